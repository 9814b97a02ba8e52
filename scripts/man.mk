# `make man`: build/man/*.3 from the comments of the public headers; `make install` puts them.
MAN_PAGES := $(BUILD)/man/.made
MAN_HEADERS := collectives/coll.h collectives/sync.h collectives/domain.h common/status.h
$(MAN_PAGES): $(MAN_HEADERS) scripts/make_man.py
	@rm -rf $(@D) && python3 scripts/make_man.py $(@D) $(VERSION) $(MAN_HEADERS)
	@touch $@
.PHONY: man
man: $(MAN_PAGES)
install: man
test-programs: man
