# Programs that link libtraincoll.so alone, as a user's do: tests/system/test_library.py runs library_peer, test_library_scopes.py mesh_peer, test_library_release.py release_peer, test_backend_mpi.py and test_backend_nccl.py domain_peer, scripts/bench_nccl.py domainbench, `make bench` collbench, memorybench and faultbench.
LIBRARY_PROGRAMS := $(BUILD)/tests/library_peer $(BUILD)/tests/mesh_peer $(BUILD)/tests/release_peer $(BUILD)/tests/soak_peer $(BUILD)/tests/domain_peer $(BUILD)/bin/domainbench $(BUILD)/bin/collbench $(BUILD)/bin/faultbench $(BUILD)/bin/memorybench
$(BUILD)/tests/library_peer: $(BUILD)/obj/tests/system/library_peer.o
$(BUILD)/tests/mesh_peer: $(BUILD)/obj/tests/system/mesh_peer.o
$(BUILD)/tests/release_peer: $(BUILD)/obj/tests/system/release_peer.o
COLLBENCH := collbench coll_case coll_exact coll_kill coll_log coll_memberd coll_site coll_wire measure measure_input measure_memory processes
$(BUILD)/bin/collbench: $(COLLBENCH:%=$(BUILD)/obj/tests/bench/%.o) $(BUILD)/obj/tests/wan/client.o
$(BUILD)/tests/domain_peer: $(BUILD)/obj/tests/system/domain_peer.o $(BUILD)/obj/tests/system/domain_memory.o
$(BUILD)/bin/domainbench: $(BUILD)/obj/tests/bench/domainbench.o $(BUILD)/obj/tests/system/domain_memory.o
$(BUILD)/bin/memorybench: $(addprefix $(BUILD)/obj/tests/,bench/memorybench.o bench/coll_case.o bench/coll_memberd.o bench/coll_site.o bench/measure.o bench/measure_input.o bench/measure_memory.o bench/processes.o wan/client.o)
$(BUILD)/bin/faultbench: $(BUILD)/obj/tests/bench/faultbench.o $(addprefix $(BUILD)/obj/tests/,bench/coll_memberd.o bench/coll_site.o bench/processes.o wan/client.o)
$(LIBRARY_PROGRAMS): $(BUILD)/lib/libtraincoll.so
	@mkdir -p $(@D)
	@echo "ld $@"
	@$(CC) -o $@ $(filter %.o,$^) -L$(BUILD)/lib -ltraincoll -lm -Wl,-rpath,'$$ORIGIN/../lib' $(ALL_LDFLAGS)
# Looks at the account of samples, which the shared library does not show.
$(BUILD)/tests/sync_peer: $(BUILD)/obj/tests/system/sync_peer.o $(BUILD)/lib/libtraincoll.a
	@mkdir -p $(@D)
	@echo "ld $@"
	@$(CC) -o $@ $^ $(ALL_LDFLAGS) -luv -lprotobuf-c -lxxhash -lz -lssl -lcrypto -lm
.PHONY: test-programs
test-programs: $(LIBRARY_PROGRAMS) $(BUILD)/tests/fake_nccl.so $(BUILD)/tests/sync_peer $(BUILD)/bin/memberd
bench: $(BUILD)/bin/collbench $(BUILD)/bin/domainbench $(BUILD)/bin/faultbench $(BUILD)/bin/memorybench
