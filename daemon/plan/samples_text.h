/* An account of samples as an event's text, as it goes from a worker through its engine to memberd: "samples:" and the packed message in
 * hexadecimal. The engine carries events in order and says the last ones with the worker's end, and knows nothing of accounts. Pure.
 */
#ifndef TR_DAEMON_PLAN_SAMPLES_TEXT_H
#define TR_DAEMON_PLAN_SAMPLES_TEXT_H

#include <stdbool.h>

#include "traind/v1/trainer.pb-c.h"

/* To be freed. NULL: out of memory. */
char *samples_text_of(const Traind__V1__SampleAccount *account);

bool samples_text_is(const char *text); /* else it is an event for people */
/* NULL: it is not one, or there is no memory. A peer's words: what it says is in order is checked (ranges ascend, none is empty or beyond what was
 * given, and of no epoch there is more than it has). To be freed (free_unpacked). */
Traind__V1__SampleAccount *samples_text_read(const char *text);

#endif
