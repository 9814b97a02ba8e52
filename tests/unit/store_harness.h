/* A store with an owner that remembers what came, for tests. Entries are u64 numbers 1, 2, 3 ... with padding bytes behind. */
#ifndef TR_TESTS_UNIT_STORE_HARNESS_H
#define TR_TESTS_UNIT_STORE_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uv.h>

#include <cmocka.h>

#include "daemon/membership/store/store.h"

struct owner {
	uv_loop_t loop;
	struct store *store;
	uint64_t newest;   /* number of the newest entry */
	uint64_t restored; /* number in the snapshot that came */
	uint64_t applied, own, failed, snapshots;
	bool leading, closed, in_order;
	char failure[512];
	void (*on_applied)(struct owner *owner, uint64_t number);
	void *user;
};

static inline void owner_applied(void *arg, const void *entry, size_t bytes, uint64_t cookie)
{
	struct owner *o = arg;
	uint64_t number = 0;
	assert_true(bytes >= sizeof(number));
	memcpy(&number, entry, sizeof(number));
	if (number != o->newest + 1)
		o->in_order = false;
	if (cookie != 0 && cookie != number)
		o->in_order = false;
	for (size_t i = sizeof(number); i < bytes; i++)
		if (((const uint8_t *)entry)[i] != (uint8_t)number)
			o->in_order = false;
	o->newest = number;
	o->applied++;
	o->own += cookie != 0 ? 1 : 0;
	if (o->on_applied != NULL)
		o->on_applied(o, number);
}

static inline void owner_restored(void *arg, const void *snapshot, size_t bytes)
{
	struct owner *o = arg;
	assert_int_equal(bytes, 11);
	memcpy(&o->newest, snapshot, sizeof(o->newest));
	o->restored = o->newest;
}

static inline void owner_leading(void *arg)
{
	((struct owner *)arg)->leading = true;
}

static inline void owner_failed(void *arg, uint64_t cookie, const char *reason)
{
	struct owner *o = arg;
	(void)cookie;
	o->failed++;
	(void)snprintf(o->failure, sizeof(o->failure), "%s", reason);
}

static inline tr_status owner_snapshot(void *arg, void **bytes, size_t *size)
{
	struct owner *o = arg;
	*size = 11; /* no multiple of anything */
	*bytes = calloc(1, *size);
	memcpy(*bytes, &o->newest, sizeof(o->newest));
	o->snapshots++;
	return TR_OK;
}

static inline void owner_closed(void *arg)
{
	((struct owner *)arg)->closed = true;
}

static const struct store_callbacks owner_callbacks = {
	.applied = owner_applied,
	.restored = owner_restored,
	.leading = owner_leading,
	.failed = owner_failed,
	.snapshot = owner_snapshot,
	.closed = owner_closed,
};

static inline tr_status owner_try(struct owner *o, const char *folder, struct tr_error *error)
{
	memset(o, 0, sizeof(*o));
	o->in_order = true;
	assert_int_equal(uv_loop_init(&o->loop), 0);
	return store_open(&o->loop, folder, &owner_callbacks, o, &o->store, error);
}

static inline void owner_finish_loop(struct owner *o)
{
	while (uv_run(&o->loop, UV_RUN_DEFAULT) != 0)
		;
	assert_int_equal(uv_loop_close(&o->loop), 0);
}

static inline void owner_open(struct owner *o, const char *folder)
{
	struct tr_error error = { 0 };
	if (owner_try(o, folder, &error) != TR_OK)
		fail_msg("%s", error.text);
	while (!o->leading)
		(void)uv_run(&o->loop, UV_RUN_ONCE);
}

static inline void owner_close(struct owner *o)
{
	store_close(o->store);
	owner_finish_loop(o);
	assert_true(o->closed);
}

static inline tr_status owner_append_in(struct owner *o, uint64_t number, size_t bytes,
    enum store_haste haste)
{
	uint8_t entry[8192];
	struct tr_error error = { 0 };
	assert_true(bytes >= 8 && bytes <= sizeof(entry));
	memset(entry, (int)(uint8_t)number, bytes);
	memcpy(entry, &number, sizeof(number));
	return store_append(o->store, entry, bytes, number, haste, &error);
}

static inline tr_status owner_append(struct owner *o, uint64_t number, size_t bytes)
{
	return owner_append_in(o, number, bytes, STORE_NOW);
}

static inline void owner_run_until(struct owner *o, uint64_t newest)
{
	while (o->newest < newest && o->failed == 0)
		(void)uv_run(&o->loop, UV_RUN_ONCE);
}

static inline void folder_make(char folder[64])
{
	strcpy(folder, "/tmp/traind-store-XXXXXX");
	assert_non_null(mkdtemp(folder));
}

/* In memory, where there is such a place: for tests that are about bytes, not about the disk. */
static inline void folder_make_fast(char folder[64])
{
	strcpy(folder,
	    access("/dev/shm", W_OK) == 0 ? "/dev/shm/traind-store-XXXXXX"
	                                  : "/tmp/traind-store-XXXXXX");
	assert_non_null(mkdtemp(folder));
}

static inline void folder_remove(const char *folder)
{
	char command[256];
	(void)snprintf(command, sizeof(command), "rm -rf '%s'", folder);
	assert_int_equal(system(command), 0);
}

#endif
