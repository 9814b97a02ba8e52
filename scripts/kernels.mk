# The kernels' loops are written for the vectoriser and compiled once for each kind of processor (dispatch.h chooses at
# run time). No flag here changes bits: no contraction into fused multiply-add (Makefile), no reordering of sums.
KERNEL_CFLAGS := -O3 -fno-math-errno -fno-trapping-math
CFLAGS_collectives_kernels_variant_base := $(KERNEL_CFLAGS)
ifeq ($(shell uname -m),x86_64)
CFLAGS_collectives_kernels_variant_avx2 := $(KERNEL_CFLAGS) -mavx2 -mf16c
CFLAGS_common_digest_avx2 := -O3 -mavx2
CFLAGS_collectives_kernels_variant_avx512 := $(KERNEL_CFLAGS) -mavx512f -mavx512bw -mavx512dq -mavx512vl -mf16c -mprefer-vector-width=512
endif

# GB/s of each kernel in each form beside memcpy; a part of `make bench`.
$(BUILD)/bin/kernelbench: $(BUILD)/obj/tests/bench/kernelbench.o $(BUILD)/lib/libtraincoll.a
	@mkdir -p $(@D)
	@echo "ld $@"
	@$(CC) -o $@ $^ $(ALL_LDFLAGS) -lxxhash -lm
bench: $(BUILD)/bin/kernelbench
