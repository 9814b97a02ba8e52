# The trainer's ops: optimised for loops, once for each vector width (daemon/worker/ops.h chooses at run time). No
# flag here changes bits: no contraction into fused multiply-add (Makefile), no reordering of sums.
OPS_CFLAGS := -O3 -fno-math-errno -fno-trapping-math
$(foreach f,adamw attention bf16 dropout embed gelu layernorm linear loss rmsnorm rotate swiglu,$(eval CFLAGS_daemon_worker_ops_$(f) = $(OPS_CFLAGS)))
# Its additions stand for those of collectives/kernels.
CFLAGS_daemon_worker_measure_sums = -O3
ifeq ($(shell uname -m),x86_64)
CFLAGS_daemon_worker_ops_x86_v3 = $(OPS_CFLAGS) -march=x86-64-v3
CFLAGS_daemon_worker_ops_x86_v4 = $(OPS_CFLAGS) -march=x86-64-v4
endif

# The model without a cluster: for tests/parity/test_parity.py and scripts/bench_trainer.py.
$(BUILD)/tests/trainer_probe: $(BUILD)/obj/tests/parity/trainer_probe.o $(BUILD)/lib/libworker.a $(BUILD)/lib/libcheckpoint.a $(BUILD)/lib/libplan.a $(BUILD)/lib/libtraincoll.a
	@mkdir -p $(@D)
	@echo "ld $@"
	@$(CC) -o $@ $^ $(ALL_LDFLAGS) -lopenblas -lxxhash -lm
.PHONY: trainer-probe
trainer-probe: $(BUILD)/tests/trainer_probe
unit-tests: trainer-probe
# The tokenizer alone: for tests/parity/test_bpe.py.
$(BUILD)/tests/bpe_probe: $(BUILD)/obj/tests/parity/bpe_probe.o $(BUILD)/lib/libcheckpoint.a $(BUILD)/lib/libtraincoll.a
	@mkdir -p $(@D)
	@echo "ld $@"
	@$(CC) -o $@ $^ $(ALL_LDFLAGS) -lpcre2-8 -lxxhash -lm
trainer-probe: $(BUILD)/tests/bpe_probe
