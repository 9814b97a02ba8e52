# make bench: figures as ratios from one run; never asserted. TORCH=1 installs PyTorch (CPU) to compare with.
.PHONY: bench
bench:
	@scripts/deps.sh bench
	@scripts/venv.sh $(if $(TORCH),torch)
	@$(MAKE) -s $(JOBS) all
	@scripts/bench.sh $(BUILD)
