# traind. `make`, `make test`, `make check`, `make quickstart`, `make sim SEEDS=1..1000`, `make chaos KILLS=200`,
# `make fuzz SECONDS_EACH=60`, `make bench`, `make install PREFIX= DESTDIR=`. SAN=address|undefined|thread
# builds into its own folder. Objects, generated code and programs live in build/ only.

SAN ?=
BUILD ?= build$(if $(SAN),-$(SAN))
PREFIX ?= /usr/local
DESTDIR ?=
VERSION := 0.1.0

ifeq ($(origin CC),default)
CC := gcc
endif

PKGS := libuv raft libprotobuf-c libnghttp2 hwloc libxxhash openssl libpcre2-8
WARN := -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wformat=2 -Werror
CFLAGS ?= -O2 -g
SANFLAGS := $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer $(if $(filter undefined,$(SAN)),-fno-sanitize-recover=all))
PKG_CFLAGS := $(shell pkg-config --cflags $(PKGS) 2>/dev/null)
# Empty until the packages are there; `make deps`, `test` and `quickstart` install them, then make starts anew.
READY := $(shell command -v $(firstword $(CC)) protoc-c >/dev/null && pkg-config --exists $(PKGS) 2>/dev/null && echo yes)
# Open MPI is optional: where its mpicc is, its backend is built as a module that libtraincoll loads by name.
MPI_CFLAGS := $(patsubst -I%,-isystem %,$(filter -I%,$(shell mpicc -showme:compile 2>/dev/null)))
# For `$(MAKE)` of a whole set; whoever gave -j has chosen.
JOBS = $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc))
ALL_CFLAGS = -std=gnu11 -D_GNU_SOURCE -DTR_VERSION='"$(VERSION)"' -I. -isystem $(BUILD)/gen -fPIC -pthread -ffp-contract=off \
	-fvisibility=hidden -MMD -MP $(WARN) $(PKG_CFLAGS) $(CFLAGS) $(SANFLAGS)
ALL_LDFLAGS = -pthread $(SANFLAGS) $(LDFLAGS)

PROTOS := traind/v1/trainer traind/peer/peer $(patsubst proto/%.proto,%,$(wildcard proto/grpc/*.proto))
GEN_C := $(PROTOS:%=$(BUILD)/gen/%.pb-c.c)
GEN_H := $(GEN_C:.c=.h)
GEN_O := $(GEN_C:.c=.o)

# One archive a folder group; a file named main.c is a program's entry and stays out of archives, as a module does.
MODULES := collectives/backend/mpi.c
srcs = $(filter-out %/main.c $(MODULES),$(wildcard $(addsuffix /*.c,$(1))))
objs = $(patsubst %.c,$(BUILD)/obj/%.o,$(call srcs,$(1)))

COLL_DIRS := common proto collectives/core collectives/kernels collectives/transport collectives/engine collectives/backend collectives/sync
MEMBER_DIRS := daemon/membership/core daemon/membership/store daemon/membership/server
NODE_DIRS := daemon/node
API_DIRS := daemon/api daemon/shell
PLAN_DIRS := daemon/plan
CHECKPOINT_DIRS := daemon/checkpoint
WORKER_DIRS := daemon/worker
CLIENT_DIRS := client/trainctl client/lib

COLL_O := $(call objs,$(COLL_DIRS)) $(GEN_O)
# What every op runs through is optimized as one program in the shared library: a small op is bound by its instructions (docs/benchmarks.md).
# Not with a sanitizer or coverage, and not by compilers whose objects ld cannot read. LTO= turns it off.
LTO ?= $(if $(SAN)$(findstring coverage,$(CFLAGS)),,$(if $(filter gcc gcc-% %-gcc,$(notdir $(firstword $(CC)))),yes))
LTO_SRCS := $(filter-out common/digest_avx%.c,$(call srcs,common proto collectives/core collectives/transport collectives/engine))
LTO_O := $(if $(LTO),$(LTO_SRCS:%.c=$(BUILD)/obj-lto/%.o))
SHARED_O := $(LTO_O) $(if $(LTO),$(filter-out $(LTO_SRCS:%.c=$(BUILD)/obj/%.o),$(COLL_O)),$(COLL_O))
LTO_CFLAGS := -flto -fno-fat-lto-objects
LIBS := $(BUILD)/lib/libtraincoll.a $(BUILD)/lib/libplan.a $(BUILD)/lib/libapi.a $(BUILD)/lib/libmembership.a \
	$(BUILD)/lib/libnode.a $(BUILD)/lib/libworker.a $(BUILD)/lib/libcheckpoint.a $(BUILD)/lib/libclient.a
PROGRAMS := memberd traind trainctl trainworker
MAIN_memberd := daemon/membership/main
MAIN_traind := daemon/node/main
MAIN_trainctl := client/trainctl/main
MAIN_trainworker := daemon/worker/main
BINS := $(foreach p,$(PROGRAMS),$(if $(wildcard $(MAIN_$(p)).c),$(BUILD)/bin/$(p)))
LIBS_memberd := $(addprefix $(BUILD)/lib/,libmembership.a libapi.a libplan.a libtraincoll.a)
LIBS_traind := $(addprefix $(BUILD)/lib/,libnode.a libapi.a libplan.a libtraincoll.a)
LIBS_trainctl := $(addprefix $(BUILD)/lib/,libclient.a libcheckpoint.a libapi.a libplan.a libtraincoll.a)
LIBS_trainworker := $(addprefix $(BUILD)/lib/,libworker.a libcheckpoint.a libplan.a libtraincoll.a)
LINK_memberd := -lraft -luv -lnghttp2 -lprotobuf-c -lxxhash -lz -lssl -lcrypto -lm
LINK_traind := -lhwloc -luv -lnghttp2 -lprotobuf-c -lxxhash -lz -lssl -lcrypto -lm
LINK_trainctl := -lpcre2-8 -lyaml -luv -lnghttp2 -lprotobuf-c -lxxhash -lz -lssl -lcrypto -lm
LINK_trainworker := -lpcre2-8 -lopenblas -luv -lprotobuf-c -lxxhash -lz -lssl -lcrypto -lm
LINK_ALL := -lpcre2-8 -lraft -lyaml -lhwloc -luv -lnghttp2 -lprotobuf-c -lxxhash -lssl -lcrypto -lopenblas -lz -lm

.DEFAULT_GOAL := all
.SECONDARY:
.PHONY: all
all: $(BINS) $(BUILD)/lib/libtraincoll.so

# All that is built needs this.
.PHONY: no-packages
no-packages:
	@echo "make: packages are missing; 'make deps' installs them (as root or through sudo)" >&2; exit 1
$(BUILD)/gen/%.pb-c.c $(BUILD)/gen/%.pb-c.h &: proto/%.proto | $(if $(READY),,no-packages)
	@mkdir -p $(BUILD)/gen
	@protoc-c --proto_path=proto --c_out=$(BUILD)/gen $<
$(BUILD)/gen/%.o: $(BUILD)/gen/%.c $(GEN_H)
	@$(CC) -std=gnu11 -I$(BUILD)/gen -fPIC -fvisibility=hidden $(CFLAGS) $(SANFLAGS) -c -o $@ $<
$(BUILD)/obj/%.o: %.c $(GEN_H)
	@mkdir -p $(@D)
	@echo "cc $<"
	@$(CC) $(ALL_CFLAGS) $(if $(filter tests/unit/%,$*),$(TESTS_CFLAGS)) $(CFLAGS_$(subst /,_,$*)) -c -o $@ $<
$(BUILD)/obj-lto/%.o: %.c $(GEN_H)
	@mkdir -p $(@D)
	@$(CC) $(ALL_CFLAGS) $(LTO_CFLAGS) -c -o $@ $<

define archive
	@mkdir -p $(@D)
	@rm -f $@
	@ar rcs $@ $(filter %.o,$^)
endef
$(BUILD)/lib/libtraincoll.a: $(COLL_O)
	$(archive)
$(BUILD)/lib/libplan.a: $(call objs,$(PLAN_DIRS))
	$(archive)
$(BUILD)/lib/libapi.a: $(call objs,$(API_DIRS))
	$(archive)
$(BUILD)/lib/libmembership.a: $(call objs,$(MEMBER_DIRS))
	$(archive)
$(BUILD)/lib/libnode.a: $(call objs,$(NODE_DIRS))
	$(archive)
$(BUILD)/lib/libcheckpoint.a: $(call objs,$(CHECKPOINT_DIRS))
	$(archive)
$(BUILD)/lib/libworker.a: $(call objs,$(WORKER_DIRS))
	$(archive)
$(BUILD)/lib/libclient.a: $(call objs,$(CLIENT_DIRS))
	$(archive)
$(BUILD)/lib/libtraincoll.so: $(SHARED_O) collectives/libtraincoll.map
	@mkdir -p $(@D)
	@$(CC) -shared -Wl,-soname,libtraincoll.so.0 -Wl,--version-script=collectives/libtraincoll.map \
		$(if $(LTO),$(CFLAGS) -fPIC -flto=auto) -o $(BUILD)/lib/libtraincoll.so.$(VERSION) $(SHARED_O) $(ALL_LDFLAGS) -luv -lprotobuf-c -lxxhash -lz -lssl -lcrypto -lm
	@ln -sf libtraincoll.so.$(VERSION) $(BUILD)/lib/libtraincoll.so.0
	@ln -sf libtraincoll.so.0 $@

.SECONDEXPANSION:
$(BINS): $(BUILD)/bin/%: $(BUILD)/obj/$$(MAIN_$$*).o $$(LIBS_$$*)
	@mkdir -p $(@D)
	@echo "ld $@"
	@$(CC) -o $@ $< -Wl,--start-group $(LIBS_$*) -Wl,--end-group $(ALL_LDFLAGS) $(LINK_$*)

# What a newcomer needs first. Sets: build test check fuzz bench.
.PHONY: deps
deps:
	@scripts/deps.sh build

# Unit tests: tests/unit/test_X.c is one cmocka program.
UNIT_TESTS := $(patsubst tests/unit/%.c,$(BUILD)/tests/%,$(wildcard tests/unit/test_*.c))
$(BUILD)/tests/%: $(BUILD)/obj/tests/unit/%.o $(LIBS)
	@mkdir -p $(@D)
	@$(CC) -o $@ $< -Wl,--start-group $(LIBS) -Wl,--end-group $(ALL_LDFLAGS) $(LINK_ALL) -lcmocka
.PHONY: unit-tests
unit-tests: $(UNIT_TESTS)

# Everything, with its own set-up; TORCH=1 also compares with a live PyTorch. SUITES=unit,python ONLY=regex narrow it.
# A sanitizer's run leaves out the corpora (they have their own) and PyTorch.
comma := ,
SUITES ?= $(if $(SAN),unit$(comma)sim$(comma)python,unit$(comma)fuzz$(comma)sim$(comma)python)
SEEDS_IN_TEST ?= $(if $(SAN),1..100$(comma)10000001..10000040$(comma)20000001..20000040$(comma)40000001..40000030,1..1000$(comma)10000001..10000400$(comma)20000001..20000800$(comma)40000001..40000300)
ONLY ?=
has_suite = $(findstring $(1),$(SUITES))
.PHONY: test test-programs test-environment
test:
	@scripts/deps.sh test
	@mkdir -p $(BUILD)
	@echo "test: building; the log is $(BUILD)/test-build.log"
	@$(MAKE) $(JOBS) test-environment test-programs >$(BUILD)/test-build.log 2>&1 || \
		{ tail -n 60 $(BUILD)/test-build.log; echo "failed: the build"; echo "0 passed, 1 failed"; exit 1; }
	@build/venv/bin/python scripts/run_tests.py --build $(BUILD) --suites '$(SUITES)' --only '$(ONLY)' --seeds $(SEEDS_IN_TEST)
test-environment:
	@scripts/venv.sh $(if $(TORCH),torch)
test-programs: all unit-tests $(if $(call has_suite,fuzz),fuzz-replay) $(if $(call has_suite,sim),$(BUILD)/bin/sim)

.PHONY: clean
clean:
	rm -rf build build-coverage build-address build-undefined build-thread

-include $(wildcard scripts/*.mk)
-include $(shell find $(wildcard $(BUILD)/obj*) /dev/null -name "*.d" 2>/dev/null)
