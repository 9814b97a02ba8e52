#include "tests/system/domain_memory.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOST_TO_DEVICE 1
#define DEVICE_TO_HOST 2
#define NON_BLOCKING   1

static void must(int code, const char *what)
{
	if (code == 0)
		return;
	fprintf(stderr, "domain_peer: %s: CUDA error %d\n", what, code);
	exit(3);
}

static bool memory_open(struct memory *m, const char *cuda_library, int device, const char **why)
{
	const struct {
		const char *name;
		void *call; /* where to put its address */
	} calls[] = {
		{ "cudaHostAlloc", &m->host_alloc },
		{ "cudaMalloc", &m->device_alloc },
		{ "cudaMemcpyAsync", &m->copy },
		{ "cudaStreamSynchronize", &m->wait },
		{ "cudaSetDevice", &m->set_device },
		{ "cudaStreamCreateWithFlags", &m->new_stream },
	};
	*m = (struct memory){ 0 };
	if (cuda_library == NULL)
		return true;
	m->library = dlopen(cuda_library, RTLD_NOW | RTLD_LOCAL);
	if (m->library == NULL) {
		*why = dlerror();
		return false;
	}
	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
		void *found = dlsym(m->library, calls[i].name);
		if (found == NULL) {
			*why = calls[i].name;
			return false;
		}
		memcpy(calls[i].call, &found, sizeof(found));
	}
	if (m->set_device(device) != 0 || m->new_stream(&m->stream, NON_BLOCKING) != 0) {
		*why = "the device cannot be used";
		return false;
	}
	return true;
}

bool memory_domain(struct memory *m, struct tr_domain_options *options, const char **why)
{
	static char address[128];
	const char *place = getenv("DOMAIN_PLACE");
	options->backend = place != NULL ? "nccl" : "mpi";
	if (place == NULL)
		return memory_open(m, NULL, 0, why);
	options->nccl_library = getenv("NCCL_LIBRARY");
	options->cuda_library = getenv("CUDA_LIBRARY");
	options->address = address;
	*why = "DOMAIN_PLACE is not RANK SIZE ADDRESS DEVICE DEADLINE_MS WAIT_MS, or there is no "
	       "CUDA_LIBRARY";
	if (options->cuda_library == NULL ||
	    sscanf(place, "%u %u %127s %d %" SCNu32 " %" SCNu32, &options->rank, &options->size,
	        address, &options->device, &options->deadline_ms, &options->wait_ms) != 6 ||
	    !memory_open(m, options->cuda_library, options->device, why))
		return false;
	options->stream = m->stream;
	return true;
}

void *memory_new(struct memory *m, size_t bytes)
{
	void *host = NULL, *device = NULL;
	size_t least = bytes > 0 ? bytes : 1;
	if (m->count == MEMORY_BLOCKS)
		exit(3);
	if (m->library == NULL) {
		host = device = calloc(1, least);
		must(host == NULL, "memory");
	} else {
		must(m->host_alloc(&host, least, 0), "cudaHostAlloc");
		must(m->device_alloc(&device, least), "cudaMalloc");
		memset(host, 0, least);
	}
	m->blocks[m->count].host = host;
	m->blocks[m->count].device = device;
	m->blocks[m->count++].bytes = least;
	memory_put(m, host);
	return host;
}

/* The block that holds it, or the end of the program. */
static unsigned block_of(const struct memory *m, const void *host, size_t *offset)
{
	for (unsigned i = 0; i < m->count; i++) {
		*offset = (size_t)((const char *)host - (const char *)m->blocks[i].host);
		if (*offset < m->blocks[i].bytes)
			return i;
	}
	fprintf(stderr, "domain_peer: memory that nobody asked for\n");
	exit(3);
}

void *memory_place(const struct memory *m, void *host)
{
	size_t offset;
	unsigned i = block_of(m, host, &offset);
	return (char *)m->blocks[i].device + offset;
}

void memory_put(const struct memory *m, const void *host)
{
	size_t offset;
	unsigned i = block_of(m, host, &offset);
	if (m->library != NULL)
		must(m->copy((char *)m->blocks[i].device + offset, host,
		         m->blocks[i].bytes - offset, HOST_TO_DEVICE, m->stream),
		    "copying to the device");
}

void memory_wait(const struct memory *m)
{
	if (m->library != NULL)
		must(m->wait(m->stream), "waiting for the device");
}

void memory_get(const struct memory *m, void *host)
{
	size_t offset;
	unsigned i = block_of(m, host, &offset);
	if (m->library == NULL)
		return;
	must(m->copy(host, (char *)m->blocks[i].device + offset, m->blocks[i].bytes - offset,
	         DEVICE_TO_HOST, m->stream),
	    "copying from the device");
	memory_wait(m);
}
