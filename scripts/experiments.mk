# make experiments [THREADS=4] [ONLY=quality]: trains what docs/results/ is made of: some 60 runs of about 20 CPU minutes each, so many hours. It can be stopped
# (Ctrl-C, SIGTERM) and called again: finished runs are kept in docs/results/runs and never done again. What is measured apart from runs (wire, overlap, churn, joiners, ...) follows, where docs/results has no file of it. make experiments-tables: the page and plots alone.
.PHONY: experiments experiments-tables
experiments:
	@scripts/deps.sh build
	@scripts/venv.sh
	@$(MAKE) -s $(JOBS) all
	@TRAIND_BUILD=$(BUILD) build/venv/bin/python scripts/experiments run $(if $(THREADS),--threads $(THREADS)) $(ONLY:%=--only %)
	@$(if $(ONLY),,TRAIND_BUILD=$(BUILD) build/venv/bin/python scripts/experiments measure)
	@$(MAKE) -s experiments-tables
experiments-tables:
	@scripts/venv.sh
	@build/venv/bin/python scripts/experiments tables
