#include "collectives/backend/nccl_load.h"

#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

static const char *const nccl_names[] = { "libnccl.so.2", NULL };
static const char *const cuda_names[] = { "libcudart.so.13", "libcudart.so.12", "libcudart.so",
	NULL };

struct symbol {
	const char *name;
	size_t offset; /* in struct nccl_calls */
};
#define SYMBOL(result, name, parameters) { #name, offsetof(struct nccl_calls, name) },
static const struct symbol nccl_symbols[] = { NCCL_CALLS(SYMBOL) };
static const struct symbol cuda_symbols[] = { CUDA_CALLS(SYMBOL) };

static tr_status load_library(const char *given, const char *const *usual, void **library,
    struct tr_error *error)
{
	const char *one[] = { given, NULL };
	const char *first = NULL;
	/* What the process has is taken, also where another version stands first. */
	for (const char *const *name = usual; given == NULL && *name != NULL; name++) {
		*library = dlopen(*name, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
		if (*library != NULL)
			return TR_OK;
	}
	for (const char *const *name = given != NULL ? one : usual; *name != NULL; name++) {
		*library = dlopen(*name, RTLD_NOW | RTLD_LOCAL);
		if (*library != NULL)
			return TR_OK;
		const char *why = dlerror();
		if (first == NULL)
			first = why;
	}
	return tr_error_set(error, TR_EUNAVAILABLE, "backend nccl: %s", first);
}

static tr_status load_symbols(const char *what, void *library, const struct symbol *symbols,
    size_t count, struct nccl_calls *calls, struct tr_error *error)
{
	for (size_t i = 0; i < count; i++) {
		void *found = dlsym(library, symbols[i].name);
		if (found == NULL)
			return tr_error_set(error, TR_EUNAVAILABLE,
			    "backend nccl: %s has no %s: it is too old", what, symbols[i].name);
		memcpy((char *)calls + symbols[i].offset, &found, sizeof(found));
	}
	return TR_OK;
}

tr_status nccl_load(const char *nccl_library, const char *cuda_library, struct nccl_calls *calls,
    struct tr_error *error)
{
	struct nccl_calls found;
	void *nccl, *cuda;
	int version = 0, devices = 0;
	tr_status st = load_library(cuda_library, cuda_names, &cuda, error);
	if (st != TR_OK)
		return st;
	st = load_symbols("the CUDA runtime", cuda, cuda_symbols,
	    sizeof(cuda_symbols) / sizeof(*cuda_symbols), &found, error);
	if (st == TR_OK)
		st = load_library(nccl_library, nccl_names, &nccl, error);
	if (st != TR_OK)
		goto close_cuda;
	st = load_symbols("NCCL", nccl, nccl_symbols, sizeof(nccl_symbols) / sizeof(*nccl_symbols),
	    &found, error);
	if (st != TR_OK)
		goto close_nccl;
	if (found.ncclGetVersion(&version) != NCCL_OK || version < NCCL_VERSION_LEAST) {
		st = tr_error_set(error, TR_EUNAVAILABLE,
		    "backend nccl: NCCL is version %d, at least %d is needed", version,
		    NCCL_VERSION_LEAST);
		goto close_nccl;
	}
	cuda_error code = found.cudaGetDeviceCount(&devices);
	if (code != CUDA_OK || devices < 1) {
		(void)found.cudaGetLastError();
		st = tr_error_set(error, TR_EUNAVAILABLE, "backend nccl: no GPU: %s",
		    code != CUDA_OK ? found.cudaGetErrorString(code) : "none is visible");
		goto close_nccl;
	}
	*calls = found;
	return TR_OK;
close_nccl:
	(void)dlclose(nccl);
close_cuda:
	(void)dlclose(cuda);
	return st;
}
