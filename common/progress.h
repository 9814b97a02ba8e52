/* Who works for long tells from time to time that it gets on. Called on the thread that works. */
#ifndef TR_COMMON_PROGRESS_H
#define TR_COMMON_PROGRESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct progress {
	void (*call)(void *arg); /* NULL: nobody wants to know */
	void *arg;
	const atomic_bool *cancelled; /* NULL: nobody gives up; else who writes looks there */
};

/* `to` may be NULL. */
static inline void progress_tell(const struct progress *to)
{
	if (to != NULL && to->call != NULL)
		to->call(to->arg);
}

static inline bool progress_cancelled(const struct progress *of)
{
	return of != NULL && of->cancelled != NULL && atomic_load(of->cancelled);
}

#endif
