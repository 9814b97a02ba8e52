/* A key's value: from text, in and out of a JobSpec (by protobuf-c's descriptors, so that the table
 * of job_options.c needs no offsets), and its own limits. Inside daemon/plan only.
 */
#ifndef TR_DAEMON_PLAN_JOB_VALUE_H
#define TR_DAEMON_PLAN_JOB_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/plan/job_options.h"

struct job_value {
	uint64_t whole;   /* OPTION_UINT, OPTION_BOOL */
	double number;    /* OPTION_DOUBLE, OPTION_FRACTION */
	const char *text; /* strings, choices, paths; borrowed */
};

#define JOB_VALUE_QUOTED_MAX 64

tr_status job_value_parse(const struct job_option *option, const char *text,
    struct job_value *value, struct tr_error *error);
tr_status job_value_check(const struct job_option *option, const struct job_value *value,
    struct tr_error *error);
/* Each number of a list, and how many there are. */
tr_status job_value_check_list(const Traind__V1__JobSpec *spec, const struct job_option *option,
    struct tr_error *error);
/* Makes the messages on the way as needed. A list gets one more. */
tr_status job_value_store(Traind__V1__JobSpec *spec, const struct job_option *option,
    const struct job_value *value, struct tr_error *error);
/* False: unset (0, empty, or its message is missing). A list's .whole is its length. */
bool job_value_load(const Traind__V1__JobSpec *spec, const struct job_option *option,
    struct job_value *value);
void job_value_clear(Traind__V1__JobSpec *spec, const struct job_option *option);
const char *job_value_text(const Traind__V1__JobSpec *spec, const struct job_option *option,
    size_t i);

/* `text` in quotes, control bytes as '?', cut after some 50 bytes. */
const char *job_value_quote(const char *text, char quoted[JOB_VALUE_QUOTED_MAX]);
/* An empty message; NULL: out of memory. */
void *job_value_message(const ProtobufCMessageDescriptor *descriptor);

#endif
