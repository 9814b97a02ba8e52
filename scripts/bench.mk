# make bench: figures as ratios from one run; never asserted. TORCH=1 installs PyTorch (CPU) to compare with. FULL=1: all cases of
# the collectives (20 minutes more). What the peers' programs need, `scripts/deps.sh bench` installs; without it they are not
# built, and the tables say so.
.PHONY: bench bench-peers
bench:
	@scripts/deps.sh bench
	@scripts/venv.sh $(if $(TORCH),torch)
	@scripts/venv_pccl.sh
	@$(MAKE) -s $(JOBS) all bench-peers
	@scripts/bench.sh $(BUILD) $(if $(FULL),--full)

MPICC := $(firstword $(wildcard /usr/bin/mpicc /usr/local/bin/mpicc))
GLOO := $(firstword $(wildcard /usr/include/gloo/allreduce.h /usr/local/include/gloo/allreduce.h))
bench-peers: $(addprefix $(BUILD)/bench/,bare_ring bare_fold cubic_preload.so $(if $(MPICC),mpi_bench) $(if $(GLOO),gloo_bench))

BENCH_O := $(addprefix $(BUILD)/obj/tests/bench/,measure.o measure_input.o measure_memory.o measure_options.o processes.o)
$(BUILD)/bench/bare_ring $(BUILD)/bench/bare_fold: $(BUILD)/bench/%: $(BUILD)/obj/tests/bench/peers/%.o $(BENCH_O)
	@mkdir -p $(@D)
	@$(CC) -o $@ $^ $(ALL_LDFLAGS) -lm
# Loaded into other people's programs: never with a sanitizer.
$(BUILD)/bench/cubic_preload.so: tests/bench/peers/cubic_preload.c
	@mkdir -p $(@D)
	@$(CC) -std=gnu11 -D_GNU_SOURCE -O2 $(WARN) -fPIC -shared -o $@ $< -ldl
CFLAGS_tests_bench_peers_mpi_bench = $(shell $(MPICC) --showme:compile)
$(BUILD)/bench/mpi_bench: $(BUILD)/obj/tests/bench/peers/mpi_bench.o $(BENCH_O)
	@mkdir -p $(@D)
	@$(MPICC) -o $@ $^ $(ALL_LDFLAGS) -lm
$(BUILD)/bench/gloo_bench: tests/bench/peers/gloo_bench.cc $(BENCH_O)
	@mkdir -p $(@D)
	@echo "c++ $<"
	@g++ -std=c++17 -O2 -Wall -I. -pthread -o $@ $^ -lgloo -lm
test-programs: $(addprefix $(BUILD)/bench/,bare_ring bare_fold) $(BUILD)/bench/cubic_preload.so
# What an op and a view change cost in messages and bytes as the group grows, counted on the cores themselves.
$(BUILD)/bin/scalebench: $(BUILD)/obj/tests/bench/scalebench.o $(BUILD)/lib/libtraincoll.a
	@mkdir -p $(@D)
	@$(CC) -o $@ $^ $(ALL_LDFLAGS) -luv -lprotobuf-c -lxxhash -lz -lssl -lcrypto -lm
.PHONY: scale
scale: $(BUILD)/bin/scalebench
	@$(BUILD)/bin/scalebench
test-programs: $(BUILD)/bin/scalebench
# One stream directly and through a relay.
$(BUILD)/bin/relaybench: $(BUILD)/obj/tests/bench/relaybench.o $(BUILD)/lib/libtraincoll.a
	@mkdir -p $(@D)
	@$(CC) -o $@ $^ $(ALL_LDFLAGS) -luv -lprotobuf-c -lxxhash -lz -lssl -lcrypto -lm
test-programs: $(BUILD)/bin/relaybench
# What the planner's timeline predicts beside what Megatron-LM published: make published.
$(BUILD)/bin/planbench: $(BUILD)/obj/tests/bench/planbench.o $(BUILD)/lib/libplan.a $(BUILD)/lib/libtraincoll.a
	@mkdir -p $(@D)
	@$(CC) -o $@ $^ $(ALL_LDFLAGS) -lprotobuf-c -lm
.PHONY: published
published: $(BUILD)/bin/planbench
	@$(BUILD)/bin/planbench
test-programs: $(BUILD)/bin/planbench
bench: $(BUILD)/bin/planbench
# The planner beside exhaustive search, and how long it plans: make plan-quality.
$(BUILD)/bin/planquality: $(BUILD)/obj/tests/bench/planquality.o $(BUILD)/lib/libplan.a $(BUILD)/lib/libtraincoll.a
	@mkdir -p $(@D)
	@$(CC) -o $@ $^ $(ALL_LDFLAGS) -lprotobuf-c -lm
.PHONY: plan-quality
plan-quality: $(BUILD)/bin/planquality
	@$(BUILD)/bin/planquality
test-programs: $(BUILD)/bin/planquality
