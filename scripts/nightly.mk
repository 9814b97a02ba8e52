# make nightly: the proofs that take too long for `make test`, one after another, some seven hours of two cores: the check with clang's whole analyzer, all unit and system tests (tests/system/nightly.txt), ten minutes of `make soak` over shared memory and ten over TCP, the simulator over
# NIGHTLY_SEEDS, that of sharded jobs over NIGHTLY_SHARDED and all single faults (ALL=1), 200 real kills of jobs with one mesh and of sharded ones, each point of the kill matrices, the planner beside exhaustive search (which exits 1 above 1.05), ten minutes of each fuzzer. It stops at the first that fails.
NIGHTLY_SEEDS ?= 1..200000 10000001..10010000 20000001..20010000 30000001..30005000 40000001..40010000
# Each kind of sharded jobs (tests/sim/sharded/cases.h).
NIGHTLY_SHARDED ?= 1..2000 1000000..1001000 2000000..2001000 2500000..2501000 2750000..2750500 2900000..2901000 3000000..3001000 4000000..4001000 5000000..5002000 5500000..5502000 5750000..5751000 6000000..6001000 6500000..6500500 6750000..6751000 7000000..7001000 8000000..8001000 9000000..9002000 9500000..9502000 9700000..9701000
.PHONY: nightly
nightly: all
	@$(MAKE) --no-print-directory check DEEP=1
	@NIGHTLY=1 $(MAKE) --no-print-directory test SUITES=unit,python
	@$(MAKE) --no-print-directory plan-quality
	@$(MAKE) --no-print-directory soak MINUTES=10
	@$(MAKE) --no-print-directory soak MINUTES=10 TRANSPORT=tcp POLICY=replay
	@for seeds in $(NIGHTLY_SEEDS); do $(MAKE) --no-print-directory sim SEEDS=$$seeds || exit 1; done
	@for seeds in $(NIGHTLY_SHARDED); do $(MAKE) --no-print-directory sim-sharded SEEDS=$$seeds || exit 1; done
	@$(MAKE) --no-print-directory sim-sharded ALL=1
	@$(MAKE) --no-print-directory chaos KILLS=200
	@$(MAKE) --no-print-directory chaos-sharded KILLS=200
	@$(MAKE) --no-print-directory $(BUILD)/tests/test_group_kills $(BUILD)/tests/test_group_op_kills
	@for kills in test_group_kills test_group_op_kills; do seq $$(nproc) | xargs -P $$(nproc) -I PART env KILL_MATRIX=PART/$$(nproc) $(BUILD)/tests/$$kills || exit 1; done
	@$(MAKE) --no-print-directory fuzz SECONDS_EACH=600
