#include "client/trainctl/args.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/edit_distance.h"

struct parse {
	const struct args_row *tables[2];
	int argc, at;
	char **argv;
	struct args *args;
	struct tr_error *error;
	bool command_follows;
};

static const struct args_row *find_row(const struct parse *parse, const char *text, size_t length)
{
	for (size_t i = 0; i < 2; i++) {
		for (const struct args_row *row = parse->tables[i]; row->name != NULL; row++) {
			if (strncmp(row->name, text, length) == 0 && row->name[length] == '\0')
				return row;
			if (row->letter != NULL && strncmp(row->letter, text, length) == 0 &&
			    row->letter[length] == '\0')
				return row;
		}
	}
	return NULL;
}

static tr_status unknown_option(const struct parse *parse, const char *text, size_t length)
{
	char name[TR_EDIT_WORD_MAX + 1];
	const char *best = NULL;
	unsigned least = TR_EDIT_WORD_MAX;
	(void)snprintf(name, sizeof(name), "%.*s", (int)(length < sizeof(name) ? length : 0), text);
	for (size_t i = 0; i < 2; i++) {
		for (const struct args_row *row = parse->tables[i]; row->name != NULL; row++) {
			unsigned apart = tr_edit_distance(name, row->name);
			if (apart < least) {
				least = apart;
				best = row->name;
			}
		}
	}
	bool near = strlen(name) > 3 && least <= tr_edits_of_a_slip(strlen(name) - 2);
	return tr_error_set(parse->error, TR_EINVAL, "unknown option '%.100s'%s%s%s", text,
	    near ? " (did you mean '" : "", near ? best : "", near ? "'?)" : "");
}

/* --name=value, --name value, -n value, -n4 */
static tr_status take_option(struct parse *parse)
{
	char *text = parse->argv[parse->at++];
	const char *equals = text[1] == '-' ? strchr(text, '=') : NULL;
	size_t length = equals != NULL ? (size_t)(equals - text) : strlen(text);
	const char *value = equals != NULL ? equals + 1 : NULL;
	const struct args_row *row = find_row(parse, text, length);
	if (row == NULL && text[1] != '-' && length > 2) {
		row = find_row(parse, text, 2);
		value = row != NULL && row->argument != NULL ? text + 2 : NULL;
		if (value == NULL)
			row = NULL;
	}
	if (row == NULL)
		return unknown_option(parse, text, length);
	if (row->argument == NULL && value != NULL)
		return tr_error_set(parse->error, TR_EINVAL, "%s takes no value", row->name);
	if (row->argument != NULL && value == NULL) {
		if (parse->at == parse->argc)
			return tr_error_set(parse->error, TR_EINVAL, "%s needs a value: %s %s",
			    text, text, row->argument);
		value = parse->argv[parse->at++];
	}
	if (value != NULL && value[0] == '\0') /* a variable that is not set, most likely */
		return tr_error_set(parse->error, TR_EINVAL, "%s: found nothing, allowed: %s",
		    row->name, row->argument);
	parse->args->given[parse->args->n_given++] = (struct args_given){ row, value };
	parse->command_follows |= row->ends_options;
	return TR_OK;
}

static tr_status take_word(struct args *args, const char *word, struct tr_error *error)
{
	if (word[0] == '\0')
		return tr_error_set(error, TR_EINVAL,
		    "found an empty word (''), which names nothing");
	args->words[args->n_words++] = word;
	return TR_OK;
}

static void take_rest(struct parse *parse, int from)
{
	parse->args->rest = parse->argv + from;
	parse->args->n_rest = (size_t)(parse->argc - from);
	parse->at = parse->argc;
}

tr_status args_parse(const struct args_row *rows, const struct args_row *globals, int argc,
    char **argv, struct args *args, struct tr_error *error)
{
	struct parse parse = { { rows, globals }, argc, 0, argv, args, error, false };
	tr_status status = TR_OK;
	*args = (struct args){ .given = calloc((size_t)argc + 1, sizeof(*args->given)),
		.words = calloc((size_t)argc + 1, sizeof(*args->words)) };
	if (args->given == NULL || args->words == NULL) {
		args_finish(args);
		return tr_error_set(error, TR_ENOMEM, "out of memory");
	}
	while (status == TR_OK && parse.at < argc) {
		char *text = argv[parse.at];
		if (strcmp(text, "--") == 0)
			take_rest(&parse, parse.at + 1);
		else if (text[0] == '-' && text[1] != '\0')
			status = take_option(&parse);
		else if (parse.command_follows)
			take_rest(&parse, parse.at);
		else
			status = take_word(args, argv[parse.at++], error);
	}
	if (status != TR_OK)
		args_finish(args);
	return status;
}

tr_status args_rest_are_words(struct args *args, struct tr_error *error)
{
	tr_status status = TR_OK;
	for (size_t i = 0; i < args->n_rest && status == TR_OK; i++)
		status = take_word(args, args->rest[i], error);
	args->rest = NULL;
	args->n_rest = 0;
	return status;
}

void args_finish(struct args *args)
{
	free(args->given);
	free(args->words);
	*args = (struct args){ 0 };
}

const char *args_value(const struct args *args, const char *name)
{
	const char *value = NULL;
	for (size_t i = 0; i < args->n_given; i++) {
		if (strcmp(args->given[i].row->name, name) == 0)
			value = args->given[i].value;
	}
	return value;
}

bool args_has(const struct args *args, const char *name)
{
	for (size_t i = 0; i < args->n_given; i++) {
		if (strcmp(args->given[i].row->name, name) == 0)
			return true;
	}
	return false;
}

tr_status args_parse_number(const char *what, const char *text, uint64_t least, uint64_t most,
    uint64_t *number, struct tr_error *error)
{
	uint64_t sum = 0;
	const char *at = text;
	for (; isdigit((unsigned char)*at) && sum <= most; at++)
		sum = sum * 10 + (uint64_t)(*at - '0');
	if (at == text || *at != '\0' || sum < least || sum > most)
		return tr_error_set(error, TR_EINVAL,
		    "%s: found '%.60s', allowed: a whole number from %llu to %llu", what, text,
		    (unsigned long long)least, (unsigned long long)most);
	*number = sum;
	return TR_OK;
}

tr_status args_number(const struct args *args, const char *name, uint64_t least, uint64_t most,
    uint64_t fallback, uint64_t *number, struct tr_error *error)
{
	const char *text = args_value(args, name);
	if (text != NULL)
		return args_parse_number(name, text, least, most, number, error);
	*number = fallback;
	return TR_OK;
}
