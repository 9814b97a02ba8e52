/* trainctl: starts clusters, launches jobs, shows how they go. One row of verbs.c a verb. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "client/trainctl/verbs.h"
#include "common/standard_files.h"

static int bad_usage(const struct verb *verb, const char *text)
{
	return verbs_complain(EXIT_USAGE, "%s (usage: trainctl %s%s%s; more: trainctl help %s)",
	    text, verb->name, verb->arguments[0] != '\0' ? " " : "", verb->arguments, verb->name);
}

static int run(const struct verb *verb, const struct args *args)
{
	struct config config;
	struct rpc rpc;
	struct tr_error error;
	struct verb_call call = { .config = &config, .args = args };
	if (config_read(args, &config, &error) != TR_OK)
		return verbs_complain(EXIT_USAGE, "%s", error.text);
	if (verb->needs == VERB_NEEDS_NOTHING)
		return verb->function(&call);
	if (rpc_open(&rpc, &config, &error) != TR_OK)
		return verbs_complain(EXIT_USAGE, "%s", error.text);
	call.rpc = &rpc;
	int code = verb->function(&call);
	rpc_close(&rpc);
	return code;
}

/* The verb may come after global options. */
static int find_verb(int argc, char **argv)
{
	int at = 1;
	while (at < argc && argv[at][0] == '-') {
		const struct args_row *row = config_options;
		while (row->name != NULL && strcmp(row->name, argv[at]) != 0)
			row++;
		at += row->argument != NULL ? 2 : 1;
	}
	return at;
}

/* Takes the verb out of the arguments. */
static void remove_word(int argc, char **argv, int at)
{
	for (int i = at; i + 1 < argc; i++)
		argv[i] = argv[i + 1];
}

/* An earlier flush may have failed, whose cause nobody kept. Who reads a pipe may leave. */
static int check_output(int code)
{
	errno = 0;
	bool failed = ferror(stdout) != 0;
	failed = fflush(stdout) != 0 || failed;
	if (!failed || code != EXIT_OK || errno == EPIPE)
		return code;
	return verbs_complain(EXIT_JOB_FAILED, "standard output: %s",
	    errno != 0 ? strerror(errno) : "not all of it could be written");
}

int main(int argc, char **argv)
{
	standard_files_hold();
	(void)signal(SIGPIPE, SIG_IGN);
	int at = find_verb(argc, argv);
	const char *name = at < argc ? argv[at] : "help";
	if (at >= argc && argc > 1 && strcmp(argv[1], "--version") == 0)
		name = "version";
	const struct verb *verb = verbs_find(name);
	if (verb == NULL)
		return verbs_unknown(name);
	bool named = at < argc;
	if (named) {
		remove_word(argc, argv, at);
		argc--;
	} else if (strcmp(name, "version") == 0) {
		argc = 1;
	}
	struct args args;
	struct tr_error error;
	if (args_parse(verb->options, config_options, argc - 1, argv + 1, &args, &error) != TR_OK)
		return named
		    ? bad_usage(verb, error.text)
		    : verbs_complain(EXIT_USAGE, "%s (`trainctl help` explains)", error.text);
	int code = EXIT_OK;
	tr_status status = TR_OK;
	if (verb->function != verb_launch)
		status = args_rest_are_words(&args, &error);
	if (status != TR_OK)
		code = bad_usage(verb, error.text);
	else if (args_has(&args, "--help"))
		named ? verbs_print_help(verb) : (void)(code = run(verb, &args));
	else if (args.n_words < verb->least_words)
		code = bad_usage(verb, "an argument is missing");
	else if (args.n_words > verb->most_words)
		code = bad_usage(verb, "too many arguments");
	else
		code = run(verb, &args);
	args_finish(&args);
	return check_output(code);
}
