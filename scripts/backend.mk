# Backends of collectives/backend that are modules of their own, loaded at run time from beside libtraincoll.
ifneq ($(MPI_CFLAGS),)
CFLAGS_collectives_backend_mpi := $(MPI_CFLAGS)
MPI_MODULE := $(BUILD)/lib/traincoll-mpi.so
$(MPI_MODULE): $(BUILD)/obj/collectives/backend/mpi.o $(BUILD)/obj/common/error.o $(BUILD)/obj/common/status.o collectives/backend/module.map
	@mkdir -p $(@D)
	@echo "ld $@"
	@$(CC) -shared -Wl,--version-script=collectives/backend/module.map -o $@ $(filter %.o,$^) $(ALL_LDFLAGS) \
		$(filter -L% -l%,$(shell mpicc -showme:link))
all: $(MPI_MODULE)
endif

# NCCL and the CUDA runtime, as tests/unit/nccl_fixture.h plays them.
$(BUILD)/tests/fake_nccl.so: $(BUILD)/obj/tests/unit/fake_nccl.o $(BUILD)/obj/tests/unit/fake_cuda.o
	@mkdir -p $(@D)
	@$(CC) -shared -o $@ $^ $(ALL_LDFLAGS)
$(BUILD)/tests/test_backend_nccl $(BUILD)/tests/test_backend_nccl_trouble: | $(BUILD)/tests/fake_nccl.so
