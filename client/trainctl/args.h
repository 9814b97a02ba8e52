/* Command-line options as rows: one parser, and the help is printed from the same rows. */
#ifndef TR_CLIENT_TRAINCTL_ARGS_H
#define TR_CLIENT_TRAINCTL_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

#define ARGS_ROWS_MAX 16

struct args_row {
	const char *name;     /* "--nodes" */
	const char *letter;   /* "-n" or NULL */
	const char *argument; /* "N"; NULL: a flag */
	const char *help;
	bool ends_options; /* after this the first plain word and all that follow are a command's */
};

struct args_given {
	const struct args_row *row;
	const char *value; /* NULL for flags */
};

struct args {
	struct args_given *given; /* in order */
	size_t n_given;
	const char **words; /* what is no option */
	size_t n_words;
	char **rest; /* the command, NULL-ended, or NULL */
	size_t n_rest;
};

/* `rows` and `globals` end with name NULL. Borrows argv. TR_EINVAL: the text says what to do. No value and no word is empty. */
tr_status args_parse(const struct args_row *rows, const struct args_row *globals, int argc,
    char **argv, struct args *args, struct tr_error *error);
/* What follows "--" is no command, but words as those before it. */
tr_status args_rest_are_words(struct args *args, struct tr_error *error);
void args_finish(struct args *args);

bool args_has(const struct args *args, const char *name);
const char *args_value(const struct args *args, const char *name); /* the last; NULL: not given */
/* The option's number; `fallback` if it is not given. */
tr_status args_number(const struct args *args, const char *name, uint64_t least, uint64_t most,
    uint64_t fallback, uint64_t *number, struct tr_error *error);
tr_status args_parse_number(const char *what, const char *text, uint64_t least, uint64_t most,
    uint64_t *number, struct tr_error *error);

#endif
