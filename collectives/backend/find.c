#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/backend/backend.h"
#include "common/error.h"

/* Relative to the library or program that this code is in: beside it, or in the lib/ of a program's bin/ and of a test. */
static const char *const find_folders[] = { "", "../lib/" };

/* Global: Open MPI's own plugins look for libmpi's names. */
static void *find_open(const char *module)
{
	char self[PATH_MAX], file[PATH_MAX + 64];
	Dl_info info;
	if (dladdr((const void *)&backend_nccl, &info) != 0 && info.dli_fname != NULL &&
	    realpath(info.dli_fname, self) != NULL) {
		const char *folder = dirname(self);
		for (size_t i = 0; i < sizeof(find_folders) / sizeof(*find_folders); i++) {
			(void)snprintf(file, sizeof(file), "%s/%s%s", folder, find_folders[i],
			    module);
			if (access(file, R_OK) == 0)
				return dlopen(file, RTLD_NOW | RTLD_GLOBAL);
		}
	}
	return dlopen(module, RTLD_NOW | RTLD_GLOBAL); /* where the dynamic linker looks */
}

static tr_status find_module(const char *name, const struct backend **backend,
    struct tr_error *error)
{
	char module[64], symbol[64];
	(void)snprintf(symbol, sizeof(symbol), "backend_%s", name);
	(void)snprintf(module, sizeof(module), "traincoll-%s.so", name);
	void *handle = find_open(module);
	if (handle == NULL)
		return tr_error_set(error, TR_EUNAVAILABLE,
		    "backend %s: %s; the module is built where mpicc is installed", name,
		    dlerror());
	const struct backend *found = dlsym(handle, symbol);
	if (found == NULL)
		return tr_error_set(error, TR_EUNAVAILABLE, "%s has no %s", module, symbol);
	if (found->interface != BACKEND_INTERFACE)
		return tr_error_set(error, TR_EUNAVAILABLE,
		    "%s was built for another version of libtraincoll (%u, this is %u)", module,
		    found->interface, BACKEND_INTERFACE);
	*backend = found;
	return TR_OK;
}

tr_status backend_find(const char *name, const struct backend **backend, struct tr_error *error)
{
	if (name != NULL && strcmp(name, "nccl") == 0) {
		*backend = &backend_nccl;
		return TR_OK;
	}
	if (name != NULL && strcmp(name, "mpi") == 0)
		return find_module(name, backend, error);
	return tr_error_set(error, TR_EINVAL, "backend is '%s', allowed: mpi nccl",
	    name != NULL ? name : "");
}
