# Fuzzing. tests/fuzz/fuzz_X.c defines LLVMFuzzerTestOneInput. `make fuzz SECONDS_EACH=60 [FUZZ=X]` looks for new
# findings with libFuzzer (clang-14); `make test` replays the committed corpus tests/fuzz/corpus/X with gcc's
# sanitizers, through tests/fuzz/replay_main.c.

SECONDS_EACH ?= 60
FUZZ ?= $(patsubst tests/fuzz/fuzz_%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
FUZZ_SAN := -fsanitize=address,undefined -fno-omit-frame-pointer -fno-sanitize-recover=all
FUZZ_LINK := -Wl,--as-needed -lraft -lyaml -lhwloc -luv -lnghttp2 -lprotobuf-c -lxxhash -lssl -lcrypto -lopenblas -lz -lm
# What the targets are linked with and no more: all of it is compiled once more, with sanitizers, in every `make test`.
FUZZ_SRC := $(call srcs,common proto collectives/core collectives/kernels collectives/transport collectives/engine daemon/membership/core daemon/api daemon/plan daemon/node daemon/shell) \
	$(addsuffix .c,collectives/sync/lease collectives/sync/options collectives/sync/schedule daemon/checkpoint/hf_config daemon/checkpoint/manifest daemon/checkpoint/safetensors client/trainctl/jobfile_parse client/trainctl/certificate) \
	$(wildcard collectives/backend/domain*.c)

# $(1): folder of objects; $(2): compiler and its flags
define fuzz_objects
$(1)/%.o: %.c $$(GEN_H)
	@mkdir -p $$(@D)
	@$(2) $$(ALL_CFLAGS) -w -O1 -c -o $$@ $$<
$(1)/gen/%.o: $$(BUILD)/gen/%.c $$(GEN_H)
	@mkdir -p $$(@D)
	@$(2) -std=gnu11 -I$$(BUILD)/gen -O1 -g -c -o $$@ $$<
# (Of this file too: a source that is new in the list would be missed, as .SECONDARY lets what is missing be.)
$(1)/lib.a: $$(FUZZ_SRC:%.c=$(1)/%.o) $$(PROTOS:%=$(1)/gen/%.pb-c.o) scripts/fuzz.mk
	@rm -f $$@ && ar rcs $$@ $$(filter %.o,$$^)
endef
# No warnings here: the main build holds them, with the one compiler they are meant for.
FUZZ_O := $(BUILD)/obj-fuzz
REPLAY_O := $(BUILD)/obj-replay
$(eval $(call fuzz_objects,$(FUZZ_O),clang-14 -fsanitize=fuzzer-no-link $(FUZZ_SAN)))
$(eval $(call fuzz_objects,$(REPLAY_O),$(CC) $(FUZZ_SAN)))

$(BUILD)/fuzz/fuzz_%: $(FUZZ_O)/tests/fuzz/fuzz_%.o $(FUZZ_O)/lib.a | fuzz-deps
	@mkdir -p $(@D)
	@echo "ld $@"
	@clang-14 -fsanitize=fuzzer $(FUZZ_SAN) -pthread -o $@ $^ $(FUZZ_LINK)
$(BUILD)/fuzz-replay/fuzz_%: $(REPLAY_O)/tests/fuzz/fuzz_%.o $(REPLAY_O)/tests/fuzz/replay_main.o $(REPLAY_O)/lib.a
	@mkdir -p $(@D)
	@echo "ld $@"
	@$(CC) $(FUZZ_SAN) -pthread -o $@ $^ $(FUZZ_LINK)

# libFuzzer is a package of its own (libclang-rt-14-dev).
.PHONY: fuzz-deps
fuzz-deps:
	@scripts/deps.sh fuzz

.PHONY: fuzz fuzz-replay fuzz-corpus $(FUZZ:%=fuzz-one-%)
fuzz-replay: $(patsubst tests/fuzz/fuzz_%.c,$(BUILD)/fuzz-replay/fuzz_%,$(wildcard tests/fuzz/fuzz_*.c))
fuzz: $(FUZZ:%=fuzz-one-%)
	@echo "fuzz: targets=$(words $(FUZZ)) seconds_each=$(SECONDS_EACH) findings=0"
$(FUZZ:%=fuzz-one-%): fuzz-one-%: $(BUILD)/fuzz/fuzz_%
	@mkdir -p $(BUILD)/fuzz/corpus/$* $(BUILD)/fuzz/findings
	@$< -max_total_time=$(SECONDS_EACH) -timeout=10 -rss_limit_mb=2048 -max_len=65536 -print_final_stats=1 \
		-artifact_prefix=$(BUILD)/fuzz/findings/$*- $(BUILD)/fuzz/corpus/$* tests/fuzz/corpus/$* \
		>$(BUILD)/fuzz/$*.log 2>&1 || { tail -n 40 $(BUILD)/fuzz/$*.log; echo "fuzz: $*: finding in $(BUILD)/fuzz/findings"; exit 1; }
	@echo "fuzz: $*: $$(sed -n 's/^stat::number_of_executed_units: *//p' $(BUILD)/fuzz/$*.log) runs, no finding"

# The seed corpora of frames, messages, headers and scripts for live engines (the other targets' owners keep theirs by hand).
fuzz-corpus:
	@build/venv/bin/python scripts/make_fuzz_corpus.py
