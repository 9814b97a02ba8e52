/* Every key of a job: one table for the reader of job files, for validation, for --set and for the
 * reference in docs/job-file.md. Pure: works on JobSpec messages.
 *
 * In a JobSpec 0 and "" mean "unset", so that a client in any language may leave keys out.
 * Therefore a key that may be 0 has 0 as its default, and job_option_set() refuses 0 for the
 * others.
 */
#ifndef TR_DAEMON_PLAN_JOB_OPTIONS_H
#define TR_DAEMON_PLAN_JOB_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "daemon/plan/model_config.h"
#include "traind/v1/trainer.pb-c.h"

enum option_kind {
	OPTION_STRING,
	OPTION_CHOICE,   /* .allowed: "a|b|c" */
	OPTION_UINT,     /* .least, .most */
	OPTION_DOUBLE,   /* .least, .most */
	OPTION_FRACTION, /* 5% or 0.05 */
	OPTION_BOOL,
	OPTION_PATH,
	OPTION_PATHS,
	OPTION_UINTS, /* each .least to .most */
};

/* There are no more than these; a table by option has room for so many. */
#define JOB_OPTIONS_MAX 128

struct job_option {
	const char *key; /* dotted: "train.batch_tokens" */
	enum option_kind kind;
	double least, most;
	const char *allowed;
	const char *fallback; /* default as text; NULL: required */
	const char *unit, *help;
};

/* Ended by key NULL. */
const struct job_option *job_options(void);
const struct job_option *job_option_find(const char *key); /* NULL: no such key */
bool job_option_is_section(const char *name);              /* "train": keys "train.*" exist */

/* How many values a key takes; 0: it is no list. */
size_t job_option_list_most(const struct job_option *option);
/* What an option takes, in words: "a whole number from 1 to 256". */
const char *job_option_allowed(const struct job_option *option, char *text, size_t bytes);
/* The known key most like `key`, or NULL if none is near. */
const char *job_option_suggest(const char *key);

/* Sets one key from text. TR_EINVAL: "train.lr: found 'fast', allowed: a number from 1e-09 to 10"
 * (no file, no line: the caller's). A list gets one more per call, up to job_option_list_most();
 * job_option_clear() empties it. */
tr_status job_option_set(Traind__V1__JobSpec *spec, const char *key, const char *text,
    struct tr_error *error);
void job_option_clear(Traind__V1__JobSpec *spec, const char *key);
/* The i-th text of a key of kind string, choice, path or paths; NULL past the end or if unset. */
const char *job_option_text(const Traind__V1__JobSpec *spec, const char *key, size_t i);

/* Fills what is unset with defaults and checks the whole (impossible sizes, batch_tokens a multiple
 * of context, heads divide width, paths absolute...). The error's text begins with the dotted key.
 * Idempotent. memberd calls it again at SubmitJob. */
tr_status job_validate(Traind__V1__JobSpec *spec, struct tr_error *error);
/* Whether so many tokens (bytes of a text) suffice for training and validation; for who can see the files.
 * `spec` is validated. */
tr_status job_validate_text(const Traind__V1__JobSpec *spec, uint64_t tokens,
    struct tr_error *error);
/* The shape of the model that the job asks for, with defaults. Beyond what job_validate checks it fails if the preset is not known. */
tr_status job_model_config(const Traind__V1__Model *model, struct model_config *config,
    struct tr_error *error);
/* Of the model that `spec` asks for; validated. */
uint64_t job_parameters(const Traind__V1__JobSpec *spec);

/* An empty spec with train (or command) set; NULL: out of memory. Free with
 * traind__v1__job_spec__free_unpacked(spec, NULL). */
Traind__V1__JobSpec *job_spec_new(bool train);

#endif
