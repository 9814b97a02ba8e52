/* Memory that one process shows to others of its host, read-only, so that frames need only say where a body lies: the
 * memory of callers (tr_alloc) and the staging of a core. The exporter numbers its pieces as they appear; each receiver
 * maps those that were announced to it.
 *
 * One thread: the engine's.
 */
#ifndef TR_COLLECTIVES_TRANSPORT_SHM_EXPORT_H
#define TR_COLLECTIVES_TRANSPORT_SHM_EXPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

/* What a member shows. */
struct shm_exports {
	struct shm_export {
		int fd; /* read-only; borrowed: it lives as long as the exports */
		const uint8_t *base;
		size_t bytes;
		bool stable; /* bodies in it stay until their round is decided */
	} * items;
	uint32_t count, capacity;
	uint32_t last; /* that was asked for */
};

tr_status shm_exports_add(struct shm_exports *exports, int fd, const void *base, size_t bytes,
    bool stable);
void shm_exports_finish(struct shm_exports *exports);
/* In which piece `data` lies whole; UINT32_MAX: in none. */
uint32_t shm_exports_find(struct shm_exports *exports, const void *data, size_t bytes,
    uint64_t *offset);

/* What a peer shows to us. Counted references: what was read in place may outlive the way it came. */
struct shm_import;

struct shm_import *shm_import_create(void); /* one reference; NULL: out of memory */
struct shm_import *shm_import_hold(struct shm_import *import);
void shm_import_release(struct shm_import *import); /* accepts NULL; unmaps with the last one */
/* The next piece; `fd` stays the caller's. TR_EPROTO: it is not what it should be, or too much of it. */
tr_status shm_import_add(struct shm_import *import, int fd, uint64_t bytes, bool stable,
    struct tr_error *error);
uint32_t shm_import_count(const struct shm_import *import);
/* NULL: outside of what was announced, or not 8-byte aligned. */
const void *shm_import_at(const struct shm_import *import, uint32_t number, uint64_t offset,
    size_t bytes, bool *stable);

#endif
