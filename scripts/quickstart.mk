.PHONY: quickstart
quickstart:
	@scripts/deps.sh build
	@$(MAKE) -s $(JOBS) all
	@scripts/quickstart.sh $(BUILD)
