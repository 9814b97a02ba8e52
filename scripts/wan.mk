# The laboratory of wide-area networks: docs/wanlab.md. `scripts/wanlab run TOPOLOGY -- COMMAND`.
WAN_O := $(patsubst %.c,$(BUILD)/obj/%.o,$(filter-out %/main.c,$(wildcard tests/wan/*.c)))
$(BUILD)/bin/wanlab: $(BUILD)/obj/tests/wan/main.o $(WAN_O) $(BUILD)/lib/libtraincoll.a
	@mkdir -p $(@D)
	@echo "ld $@"
	@$(CC) -o $@ $^ $(ALL_LDFLAGS) -lm
.PHONY: wanlab
wanlab: $(BUILD)/bin/wanlab
test-programs: $(BUILD)/bin/wanlab

# What of it is arithmetic: tests/unit/test_wan.c.
$(BUILD)/tests/test_wan: $(BUILD)/obj/tests/unit/test_wan.o $(WAN_O) $(BUILD)/lib/libtraincoll.a
	@mkdir -p $(@D)
	@$(CC) -o $@ $^ $(ALL_LDFLAGS) -lcmocka -lm
