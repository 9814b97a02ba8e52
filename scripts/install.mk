# make install PREFIX=/usr/local DESTDIR= ; make uninstall takes away exactly what it put there.

INSTALL ?= install
ROOTED := $(DESTDIR)$(PREFIX)
INSTALL_HEADERS := collectives/coll.h collectives/sync.h collectives/domain.h common/status.h
INSTALL_UNITS := $(wildcard configs/*.service)
INSTALL_MAN := $(wildcard docs/man/*.[1-8])
SO := libtraincoll.so

# The static library for others: one object in which all but the public headers' names are local.
$(BUILD)/install/libtraincoll.a: $(COLL_O)
	@mkdir -p $(@D)
	@ld -r -o $(@D)/traincoll.o $^
	@objcopy --localize-hidden $(@D)/traincoll.o
	@rm -f $@ && ar rcs $@ $(@D)/traincoll.o

.PHONY: install uninstall
install: all $(BUILD)/install/libtraincoll.a
	@$(INSTALL) -d $(ROOTED)/bin $(ROOTED)/lib/pkgconfig $(ROOTED)/include/traind
	@$(INSTALL) -m 755 $(BINS) $(ROOTED)/bin
	@for header in $(INSTALL_HEADERS); do $(INSTALL) -D -m 644 $$header $(ROOTED)/include/traind/$$header || exit 1; done
	@$(INSTALL) -m 644 $(BUILD)/install/libtraincoll.a $(ROOTED)/lib
	@$(INSTALL) -m 755 $(BUILD)/lib/$(SO).$(VERSION) $(MPI_MODULE) $(ROOTED)/lib
	@ln -sf $(SO).$(VERSION) $(ROOTED)/lib/$(SO).0
	@ln -sf $(SO).0 $(ROOTED)/lib/$(SO)
	@sed 's|@PREFIX@|$(PREFIX)|; s|@VERSION@|$(VERSION)|' configs/libtraincoll.pc.in >$(ROOTED)/lib/pkgconfig/libtraincoll.pc
	@for unit in $(INSTALL_UNITS); do mkdir -p $(ROOTED)/lib/systemd/system && \
		sed 's|@PREFIX@|$(PREFIX)|g' $$unit >$(ROOTED)/lib/systemd/system/$${unit##*/} || exit 1; done
	@for page in $(INSTALL_MAN); do $(INSTALL) -D -m 644 $$page $(ROOTED)/share/man/man$${page##*.}/$${page##*/} || exit 1; done
	@for page in $(BUILD)/man/*.3; do $(INSTALL) -D -m 644 $$page $(ROOTED)/share/man/man3/$${page##*/} || exit 1; done
	@echo "installed in $(ROOTED)$(if $(DESTDIR),,; run ldconfig if its lib folder is new to the linker)"
uninstall:
	@rm -f $(addprefix $(ROOTED)/bin/,$(PROGRAMS)) $(addprefix $(ROOTED)/lib/,libtraincoll.a $(SO) $(SO).0 $(SO).$(VERSION) traincoll-mpi.so) \
		$(ROOTED)/lib/pkgconfig/libtraincoll.pc $(addprefix $(ROOTED)/lib/systemd/system/,$(notdir $(INSTALL_UNITS))) \
		$(foreach page,$(INSTALL_MAN),$(ROOTED)/share/man/man$(patsubst .%,%,$(suffix $(page)))/$(notdir $(page)))
	@rm -f $(ROOTED)/share/man/man3/tr_*.3
	@rm -rf $(ROOTED)/include/traind
	@echo "removed from $(ROOTED)"
