# make check: what a machine can hold of the style. Parts: check-format, check-tidy, check-headers, check-deps, check-tree.
# clang-tidy remembers what it has passed (build/tidy), so that a second run looks at what changed only. Its analyzer follows few calls (mode=shallow) but with DEEP=1: all paths through all calls
# are 93 % of the processor time of the whole check.

CHECK_FILES := $(shell git ls-files -co --exclude-standard '*.c' '*.h' 2>/dev/null)
CHECK_C := $(filter %.c,$(filter-out tests/fuzz/% tests/bench/peers/mpi_bench.c $(if $(MPI_CFLAGS),,$(MODULES)),$(CHECK_FILES))) # only make bench installs MPI
# Nothing is remembered in a fresh clone, so .ci/run leaves out the tests' sources (TIDY_TESTS=0).
TIDY_TESTS ?= 1
CHECK_TIDY := $(if $(filter 0,$(TIDY_TESTS)),$(filter-out tests/%,$(CHECK_C)),$(CHECK_C))
CHECK_H := $(filter %.h,$(CHECK_FILES))
SYNTAX = -fsyntax-only -I. -isystem $(BUILD)/gen -D_GNU_SOURCE $(PKG_CFLAGS) -Wall -Wextra -Wpedantic -Werror

.PHONY: check check-format check-tidy check-headers check-deps check-tree check-run
check:
	@scripts/deps.sh check
	@$(MAKE) -s $(JOBS) check-run
	@echo "check: ok"
check-run: check-format check-headers check-deps check-tree check-tidy
check-format:
	@clang-format-14 --dry-run -Werror $(CHECK_FILES)
check-deps:
	@python3 scripts/check_deps.py
check-tree:
	@python3 scripts/check_tree.py
	@shellcheck -S warning $$(git ls-files -co --exclude-standard 'scripts/*.sh' .ci/run)

# Each header compiles alone; the public ones also as strict C99 and as C++.
check-headers: $(CHECK_H:%=$(BUILD)/check/%.ok) $(BUILD)/check/coll.ok
$(BUILD)/check/%.h.ok: %.h $(GEN_H)
	@mkdir -p $(@D)
	@printf '#include "$<"\ntypedef int check_headers;\n' | $(CC) -std=gnu11 $(SYNTAX) -MMD -MF $(@:.ok=.d) -MT $@ -x c -
	@touch $@
$(BUILD)/check/coll.ok: collectives/domain.h collectives/sync.h collectives/coll.h common/status.h
	@mkdir -p $(@D)
	@printf '#include "collectives/domain.h"\n#include "collectives/sync.h"\n' | $(CC) -std=c99 -pedantic-errors $(SYNTAX) -U_GNU_SOURCE -x c -
	@printf '#include "collectives/domain.h"\n#include "collectives/sync.h"\n' | g++ -std=c++11 -pedantic-errors $(SYNTAX) -U_GNU_SOURCE -x c++ -
	@touch $@

# After the compiler, whose .d files say when to look again.
TIDY := $(BUILD)/tidy$(if $(DEEP),-deep)
check-tidy: $(CHECK_TIDY:%.c=$(TIDY)/%.ok)
$(TIDY)/%.ok: $(BUILD)/obj/%.o .clang-tidy scripts/analyzer.h
	@mkdir -p $(@D)
	@clang-tidy-14 --quiet $*.c -- -std=gnu11 -D_GNU_SOURCE -DTR_VERSION='"$(VERSION)"' -I. -isystem $(BUILD)/gen \
		$(if $(DEEP),,-Xclang -analyzer-config -Xclang mode=shallow) $(PKG_CFLAGS) $(CFLAGS_$(subst /,_,$*)) $(if $(filter common/error,$*),,-include scripts/analyzer.h) >$(@:.ok=.log) 2>/dev/null || { cat $(@:.ok=.log); exit 1; }
	@touch $@
-include $(shell find $(wildcard $(BUILD)/check) /dev/null -name '*.d' 2>/dev/null)
