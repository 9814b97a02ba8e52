# The simulator: the real cores of memberd and of the collectives in virtual time. `make sim SEEDS=1..1000`.
SEEDS ?= 1..1000
SIM_O := $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard tests/sim/*.c))
SIM_LIBS := $(addprefix $(BUILD)/lib/,libmembership.a libplan.a libtraincoll.a)
$(BUILD)/bin/sim: $(SIM_O) $(SIM_LIBS)
	@mkdir -p $(@D)
	@echo "ld $@"
	@$(CC) -o $@ $(SIM_O) -Wl,--start-group $(SIM_LIBS) -Wl,--end-group $(ALL_LDFLAGS) $(LINK_ALL)
.PHONY: sim
sim: $(BUILD)/bin/sim
	@$(BUILD)/bin/sim --seeds $(SEEDS)

# tests/unit/test_sim.c runs the simulator in its own process.
$(BUILD)/tests/test_sim: $(BUILD)/obj/tests/unit/test_sim.o $(filter-out %/main.o,$(SIM_O)) $(SIM_LIBS)
	@mkdir -p $(@D)
	@$(CC) -o $@ $(filter %.o,$^) -Wl,--start-group $(SIM_LIBS) -Wl,--end-group $(ALL_LDFLAGS) $(LINK_ALL) -lcmocka
