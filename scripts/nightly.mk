# make nightly: the proofs that take too long for `make test`, one after another, some three hours of two cores: the check with clang's whole analyzer, all system tests (tests/system/nightly.txt), ten minutes of `make soak`, the simulator over
# NIGHTLY_SEEDS, each point of the kill matrices, ten minutes of each fuzzer. It stops at the first that fails.
NIGHTLY_SEEDS ?= 1..200000 10000001..10010000 20000001..20010000
.PHONY: nightly
nightly: all
	@$(MAKE) --no-print-directory check DEEP=1
	@NIGHTLY=1 $(MAKE) --no-print-directory test SUITES=python
	@$(MAKE) --no-print-directory soak MINUTES=10
	@for seeds in $(NIGHTLY_SEEDS); do $(MAKE) --no-print-directory sim SEEDS=$$seeds || exit 1; done
	@$(MAKE) --no-print-directory $(BUILD)/tests/test_group_kills $(BUILD)/tests/test_group_op_kills
	@KILL_MATRIX=full $(BUILD)/tests/test_group_kills
	@$(BUILD)/tests/test_group_op_kills
	@$(MAKE) --no-print-directory fuzz SECONDS_EACH=600
