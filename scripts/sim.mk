# The simulator: the real cores of memberd and of the collectives in virtual time. `make sim SEEDS=1..1000`; from 10000001 on members stand still in the middle of ops until the others have given them up; from 20000001 on all share a host and show small ops on boards (odd seeds stand still too); from 30000001 on faults are aimed at pairs of state and fault that the others hardly meet; from 40000001 on joiners get their states in pieces from several members, some of them damaged, and one of four has rounds of two hundred ops.
SEEDS ?= 1..1000
SIM_O := $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard tests/sim/*.c))
SIM_LIBS := $(addprefix $(BUILD)/lib/,libmembership.a libplan.a libtraincoll.a)
$(BUILD)/bin/sim: $(SIM_O) $(SIM_LIBS)
	@mkdir -p $(@D)
	@echo "ld $@"
	@$(CC) -o $@ $(SIM_O) -Wl,--start-group $(SIM_LIBS) -Wl,--end-group $(ALL_LDFLAGS) $(LINK_ALL)
# COVERAGE=1: counts the cores' lines, in a folder of its own, and in which states faults struck. LINES=1 names lines that no seed reached.
COVERAGE ?=
SIM_COVERAGE_FLAGS := BUILD=build-coverage CFLAGS="-O2 -g --coverage" LDFLAGS=--coverage
.PHONY: sim
ifeq ($(COVERAGE),)
sim: $(BUILD)/bin/sim
	@$(BUILD)/bin/sim --seeds $(SEEDS)
else
sim:
	@$(MAKE) --no-print-directory COVERAGE= $(SIM_COVERAGE_FLAGS) build-coverage/bin/sim
	@find build-coverage -name '*.gcda' -delete
	@build-coverage/bin/sim --seeds $(SEEDS) --pairs; status=$$?; \
		scripts/sim_coverage.py --build build-coverage $(if $(LINES),--lines) && exit $$status
endif

# tests/unit/test_sim.c runs the simulator in its own process.
$(BUILD)/tests/test_sim: $(BUILD)/obj/tests/unit/test_sim.o $(filter-out %/main.o,$(SIM_O)) $(SIM_LIBS)
	@mkdir -p $(@D)
	@$(CC) -o $@ $(filter %.o,$^) -Wl,--start-group $(SIM_LIBS) -Wl,--end-group $(ALL_LDFLAGS) $(LINK_ALL) -lcmocka

# Sharded jobs in it: the trainer's own sharded parts, with a model, a disk and coll.h of the simulator's. `make sim-sharded SEEDS=1..1000`, ALL=1: each fault at each instruction of each kind of job, in parts that all processors share (some three hours of one); one kind alone: $(BUILD)/bin/sim-sharded --all --case NAME.
SIM_SHARDED_O := $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard tests/sim/sharded/*.c)) $(filter-out %/main.o,$(SIM_O)) \
	$(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard daemon/worker/sharded*.c daemon/worker/pipeline*.c) daemon/worker/add_arrays.c daemon/worker/buckets.c daemon/worker/mesh_memory.c daemon/worker/resume.c daemon/worker/waits.c)
SIM_SHARDED_LIBS := $(SIM_LIBS) $(BUILD)/lib/libcheckpoint.a
$(BUILD)/bin/sim-sharded: $(SIM_SHARDED_O) $(SIM_SHARDED_LIBS)
	@mkdir -p $(@D)
	@echo "ld $@"
	@$(CC) -o $@ $(SIM_SHARDED_O) -Wl,--start-group $(SIM_SHARDED_LIBS) -Wl,--end-group $(ALL_LDFLAGS) $(LINK_ALL)
.PHONY: sim-sharded
ALL ?=
sim-sharded: $(BUILD)/bin/sim-sharded
	@$(if $(ALL),seq 90 | xargs -P $$(nproc) -I PART $(BUILD)/bin/sim-sharded --all --part PART/90,$(BUILD)/bin/sim-sharded --seeds $(SEEDS))
$(BUILD)/tests/test_sim_sharded $(BUILD)/tests/test_sim_sharded_all $(BUILD)/tests/test_sim_sharded_copies $(BUILD)/tests/test_sim_sharded_saving $(BUILD)/tests/test_sim_sharded_splits $(BUILD)/tests/test_sim_sharded_trial: $(BUILD)/tests/test_%: $(BUILD)/obj/tests/unit/test_%.o $(filter-out %/sharded/main.o,$(SIM_SHARDED_O)) $(SIM_SHARDED_LIBS)
	@mkdir -p $(@D)
	@$(CC) -o $@ $(filter %.o,$^) -Wl,--start-group $(SIM_SHARDED_LIBS) -Wl,--end-group $(ALL_LDFLAGS) $(LINK_ALL) -lcmocka
