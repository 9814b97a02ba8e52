/* Structs of coll.h that carry their own size: a program and the library that it finds at run time may know different
 * lengths of one. New fields are only ever appended, and zero always means what was so before they were there.
 *
 *	struct tr_op known;
 *	tr_status st = sized_read("op", op, OP_LEAST, &known, sizeof(known), error);
 */
#ifndef TR_COLLECTIVES_ENGINE_SIZED_H
#define TR_COLLECTIVES_ENGINE_SIZED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

/* Copies `given`, whose first member is its size_of, to `known`, zeroed where an older program knows less. TR_EINVAL: it is shorter
 * than its first version (`least`), or a newer program sets a field that this library does not know. */
tr_status sized_read(const char *what, const void *given, size_t least, void *known,
    size_t known_bytes, struct tr_error *error);

/* Fills `wanted`, whose first member says how much the program knows, with as much of `known`; size_of stays. */
tr_status sized_write(const char *what, const void *known, size_t known_bytes, size_t least,
    void *wanted, struct tr_error *error);

/* Room of a struct without a size: false, if a newer program sets a field there that this library does not know. */
#define SIZED_ROOM(reserved) (sizeof(reserved) / sizeof((reserved)[0]))
bool sized_unused(const uint64_t *reserved, size_t count);

#endif
