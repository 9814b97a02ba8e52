#include "collectives/engine/sized.h"

#include <stdint.h>
#include <string.h>

#define SIZED_BYTES_MAX 65536 /* more is no size: the struct was not initialised */

static tr_status sized_check(const char *what, size_t given_bytes, size_t least,
    struct tr_error *error)
{
	if (given_bytes < least || given_bytes > SIZED_BYTES_MAX)
		return tr_error_set(error, TR_EINVAL,
		    "%s: size_of is %zu, at least %zu is needed: was the struct initialised?", what,
		    given_bytes, least);
	return TR_OK;
}

tr_status sized_read(const char *what, const void *given, size_t least, void *known,
    size_t known_bytes, struct tr_error *error)
{
	size_t given_bytes;
	if (given == NULL)
		return tr_error_set(error, TR_EINVAL, "%s: NULL", what);
	memcpy(&given_bytes, given, sizeof(given_bytes));
	tr_status st = sized_check(what, given_bytes, least, error);
	if (st != TR_OK)
		return st;
	for (size_t i = known_bytes; i < given_bytes; i++)
		if (((const uint8_t *)given)[i] != 0)
			return tr_error_set(error, TR_EINVAL,
			    "%s: the program sets a field that this library is too old for", what);
	size_t common = given_bytes < known_bytes ? given_bytes : known_bytes;
	memset(known, 0, known_bytes);
	memcpy(known, given, common);
	return TR_OK;
}

tr_status sized_write(const char *what, const void *known, size_t known_bytes, size_t least,
    void *wanted, struct tr_error *error)
{
	size_t given_bytes;
	if (wanted == NULL)
		return tr_error_set(error, TR_EINVAL, "%s: NULL", what);
	memcpy(&given_bytes, wanted, sizeof(given_bytes));
	tr_status st = sized_check(what, given_bytes, least, error);
	if (st != TR_OK)
		return st;
	size_t common = given_bytes < known_bytes ? given_bytes : known_bytes;
	memset((uint8_t *)wanted + sizeof(size_t), 0, given_bytes - sizeof(size_t));
	memcpy((uint8_t *)wanted + sizeof(size_t), (const uint8_t *)known + sizeof(size_t),
	    common - sizeof(size_t));
	return TR_OK;
}

bool sized_unused(const uint64_t *reserved, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (reserved[i] != 0)
			return false;
	return true;
}
