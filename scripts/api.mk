# Programs that tests/system/test_api*.py run: the API without a cluster, and one call of our client.
API_TEST_PROGRAMS := $(BUILD)/tests/api_server $(BUILD)/tests/api_client
$(API_TEST_PROGRAMS): $(BUILD)/tests/%: $(BUILD)/obj/tests/system/%.o $(LIBS)
	@mkdir -p $(@D)
	@echo "ld $@"
	@$(CC) -o $@ $< -Wl,--start-group $(LIBS) -Wl,--end-group $(ALL_LDFLAGS) $(LINK_ALL)
test-programs: $(API_TEST_PROGRAMS)
