/* An error's text with its cause (struct tr_error, status.h), filled where the cause is first known; callers add context.
 *
 *	return tr_error_set(error, TR_EIO, "cannot open %s: %s", path, strerror(errno));
 *	...
 *	return tr_error_wrap(error, "loading job file");   // "loading job file: cannot open ..."
 */
#ifndef TR_COMMON_ERROR_H
#define TR_COMMON_ERROR_H

#include "common/status.h"

/* `error` may be NULL. Both return the status, so that a caller can return the call. `cold`: what leads to them is kept out of the
 * way of what is done for each op, whose instructions alone are more than a core's first cache. */
tr_status tr_error_set(struct tr_error *error, tr_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4), cold));
tr_status tr_error_wrap(struct tr_error *error, const char *format, ...)
    __attribute__((format(printf, 2, 3), cold));

/* One more of several that led to the same end, "first; second", as far as there is room. */
void tr_error_add(struct tr_error *all, const struct tr_error *one);

/* No error yet. For what is done for each frame: an initializer would write all of the text. */
static inline void tr_error_clear(struct tr_error *error)
{
	error->status = TR_OK;
	error->text[0] = '\0';
}

#endif
