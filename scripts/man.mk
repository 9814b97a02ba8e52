# `make man`: build/man/*.3 from the comments of coll.h; `make install` puts them.
MAN_PAGES := $(BUILD)/man/.made
$(MAN_PAGES): collectives/coll.h scripts/make_man.py
	@rm -rf $(@D) && python3 scripts/make_man.py collectives/coll.h $(@D) $(VERSION)
	@touch $@
.PHONY: man
man: $(MAN_PAGES)
install: man
test-programs: man
