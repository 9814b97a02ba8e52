# make chaos KILLS=200 [SEED=7]: workers and daemons die at random moments; the record must be whole. See scripts/chaos.py.
KILLS ?= 200
.PHONY: chaos
chaos:
	@scripts/deps.sh test
	@scripts/venv.sh
	@$(MAKE) -s $(JOBS) all
	@build/venv/bin/python scripts/chaos.py --build $(BUILD) --kills $(KILLS) $(if $(SEED),--seed $(SEED))
# The same of sharded jobs, over meshes and modes in turn, with nodes lost for good and clusters in halves; times from faults to next steps. See scripts/chaos_sharded.py.
.PHONY: chaos-sharded
chaos-sharded:
	@scripts/deps.sh test
	@scripts/venv.sh
	@$(MAKE) -s $(JOBS) all
	@build/venv/bin/python scripts/chaos_sharded.py --build $(BUILD) --kills $(KILLS) $(if $(SEED),--seed $(SEED))
