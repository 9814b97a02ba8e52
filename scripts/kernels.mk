# The kernels' loops are written for the vectoriser and compiled once for each kind of processor (dispatch.h chooses at
# run time). No flag here changes bits: no contraction into fused multiply-add (Makefile), no reordering of sums.
KERNEL_CFLAGS := -O3 -fno-math-errno -fno-trapping-math
CFLAGS_collectives_kernels_variant_base := $(KERNEL_CFLAGS)
ifeq ($(shell uname -m),x86_64)
CFLAGS_collectives_kernels_variant_avx2 := $(KERNEL_CFLAGS) -mavx2 -mf16c
CFLAGS_common_digest_avx2 := -O3 -mavx2
CFLAGS_common_digest_avx512 := -O3 -mavx512f
CFLAGS_collectives_kernels_variant_avx512 := $(KERNEL_CFLAGS) -mavx512f -mavx512bw -mavx512dq -mavx512vl -mf16c -mprefer-vector-width=512
endif

# GB/s of each kernel in each form beside memcpy; a part of `make bench`.
$(BUILD)/bin/kernelbench: $(BUILD)/obj/tests/bench/kernelbench.o $(BUILD)/lib/libtraincoll.a
	@mkdir -p $(@D)
	@echo "ld $@"
	@$(CC) -o $@ $^ $(ALL_LDFLAGS) -lxxhash -lm
bench: $(BUILD)/bin/kernelbench

# make kernels-neon: the kernels and their tests for 64-bit ARM, run in an emulator. Needs gcc-aarch64-linux-gnu and
# qemu-user-static; `make test` skips it where they are missing.
ARM_CC ?= aarch64-linux-gnu-gcc
ARM_RUN ?= qemu-aarch64-static
ARM_SRC := $(wildcard collectives/kernels/*.c) $(addprefix common/,rng.c log.c log_writer.c json.c utf8.c)
ARM_TESTS := $(patsubst tests/unit/%.c,$(BUILD)/neon/%,$(wildcard tests/unit/test_kernel_*.c))
$(ARM_TESTS): $(BUILD)/neon/%: tests/unit/%.c $(ARM_SRC) $(wildcard collectives/kernels/*.h tests/cross/*.h)
	@mkdir -p $(@D)
	@$(ARM_CC) -std=gnu11 -D_GNU_SOURCE -I. -Itests/cross -ffp-contract=off $(WARN) $(KERNEL_CFLAGS) -static -o $@ $< $(ARM_SRC) -lm
.PHONY: kernels-neon
kernels-neon: $(ARM_TESTS)
	@for test in $^; do echo "== $$test"; $(ARM_RUN) $$test || exit 1; done
# Elementwise loops: vectors change no bits.
CFLAGS_collectives_sync_outer = -O3
