# `make examples`: the worked examples of coll.h and sync.h, compiled as a user would: as C99, against the shared library alone.
EXAMPLES := $(patsubst examples/%.c,$(BUILD)/examples/%,$(wildcard examples/*.c))
.PHONY: examples
examples: $(EXAMPLES) $(BUILD)/bin/memberd
$(EXAMPLES): $(BUILD)/examples/%: examples/%.c $(BUILD)/lib/libtraincoll.so
	@mkdir -p $(@D)
	@$(CC) -std=c99 $(WARN) -pedantic-errors -O2 -g -I. $(SANFLAGS) -o $@ $< -L$(BUILD)/lib -ltraincoll -lm -Wl,-rpath,'$$ORIGIN/../lib'
test-programs: examples
