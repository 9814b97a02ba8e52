/* The verbs of trainctl, one row each. Help, docs/trainctl.md and the check that both agree come from these rows. */
#ifndef TR_CLIENT_TRAINCTL_VERBS_H
#define TR_CLIENT_TRAINCTL_VERBS_H

#include "client/trainctl/args.h"
#include "client/trainctl/config.h"
#include "client/trainctl/exit_code.h"
#include "client/trainctl/rpc.h"

enum verb_needs {
	VERB_NEEDS_NOTHING,
	VERB_NEEDS_CLUSTER, /* call->rpc is open; whether somebody answers is seen at the first call */
};

struct verb_call {
	struct config *config;
	const struct args *args;
	struct rpc *rpc;
};

struct verb {
	const char *name, *arguments;
	const char *help;    /* one line */
	const char *details; /* a few lines, or NULL */
	enum verb_needs needs;
	size_t least_words, most_words;
	const struct args_row *options;          /* ended by name NULL */
	int (*function)(struct verb_call *call); /* trainctl's exit code */
};

const struct verb *verbs(void); /* ended by name NULL */
const struct verb *verbs_find(const char *name);

extern const struct args_row verb_up_options[], verb_launch_options[], verb_logs_options[],
    verb_plan_options[], verb_plot_options[], verb_export_options[], verb_import_options[],
    verb_cert_options[], verb_nodes_options[], verb_help_options[];

int verb_up(struct verb_call *call);
int verb_down(struct verb_call *call);
int verb_launch(struct verb_call *call);
int verb_jobs(struct verb_call *call);
int verb_status(struct verb_call *call);
int verb_plan(struct verb_call *call);
int verb_plot(struct verb_call *call);
int verb_export(struct verb_call *call);
int verb_import(struct verb_call *call);
int verb_logs(struct verb_call *call);
int verb_samples(struct verb_call *call);
int verb_cancel(struct verb_call *call);
int verb_nodes(struct verb_call *call);
int verb_ca(struct verb_call *call);
int verb_cert(struct verb_call *call);
int verb_help(struct verb_call *call);
int verb_version(struct verb_call *call);

/* Prints "trainctl: ..." and returns `code`. */
int verbs_complain(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* What is wrong with the job file, the first word, or with the options; EXIT_USAGE. FILE:LINE comes first on the line, as compilers have it, so that editors find the place. */
int verbs_bad_input(const struct verb_call *call, char *text);
/* Says that there is no such verb, and which one may be meant; EXIT_USAGE. */
int verbs_unknown(const char *name);
/* The first word as a job's number. */
bool verbs_job(const struct verb_call *call, uint64_t *job);
/* Whether a word that may be a path is a job's number. */
bool verbs_is_number(const char *word);
/* The job of that number and what it trains, or NULL and *code: it was said why. To be freed by traind__v1__job__free_unpacked. */
Traind__V1__Job *verbs_training_job(struct verb_call *call, const char *word, int *code);
/* The usage and options of a verb, to stdout. */
void verbs_print_help(const struct verb *verb);

#endif
