# make soak MINUTES=60 [SEED=] [POLICY=keep] [TRANSPORT=auto]: processes of one group are killed, stopped, ended and added for a long time. See scripts/soak.py.
MINUTES ?= 10
POLICY ?= keep
TRANSPORT ?= auto
$(BUILD)/tests/soak_peer: $(BUILD)/obj/tests/soak/soak_peer.o
.PHONY: soak
soak:
	@scripts/deps.sh build
	@$(MAKE) -s $(JOBS) $(BUILD)/tests/soak_peer $(BUILD)/bin/memberd
	@python3 scripts/soak.py --build $(BUILD) --seconds $$(($(MINUTES) * 60)) --policy $(POLICY) --transport $(TRANSPORT) $(if $(SEED),--seed $(SEED))
