.PHONY: quickstart
quickstart:
	@scripts/deps.sh build
	@$(MAKE) --no-print-directory all
	@scripts/quickstart.sh $(BUILD)
