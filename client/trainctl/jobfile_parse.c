/* libyaml's parser (the one libcyaml is built on) and its marks: libcyaml's own errors give neither
 * the line of an unknown key nor what is allowed, and it takes the first of two equal keys in
 * silence.
 */
#include "client/trainctl/jobfile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "common/edit_distance.h"
#include "common/limits.h"

#define FOUND_TEXT 80

struct reader {
	yaml_parser_t yaml;
	yaml_event_t event;
	bool has_event;
	const char *name;
	Traind__V1__JobSpec *spec;
	struct jobfile_places *places;
	struct tr_error *error;
	char sections[JOB_OPTIONS_MAX][TR_NAME_MAX];
	size_t n_sections;
};

static unsigned event_line(const struct reader *reader)
{
	return (unsigned)reader->event.start_mark.line + 1;
}

static tr_status refuse(struct reader *reader, const char *field, const char *found,
    const char *allowed)
{
	return tr_error_set(reader->error, TR_EINVAL, "%s:%u: %.*s: found %s, allowed: %s",
	    reader->name, event_line(reader), 2 * TR_NAME_MAX, field, found, allowed);
}

static tr_status next_event(struct reader *reader)
{
	if (reader->has_event)
		yaml_event_delete(&reader->event);
	reader->has_event = false;
	if (yaml_parser_parse(&reader->yaml, &reader->event)) {
		reader->has_event = true;
		return TR_OK;
	}
	const yaml_parser_t *yaml = &reader->yaml;
	if (yaml->error == YAML_MEMORY_ERROR)
		return tr_error_set(reader->error, TR_ENOMEM, "%s: out of memory", reader->name);
	size_t line = yaml->problem_mark.line;
	if (yaml->error == YAML_READER_ERROR) /* has no mark: where the scanner is */
		line = yaml->mark.line;
	return tr_error_set(reader->error, TR_EINVAL,
	    "%s:%zu: yaml: found what cannot be read (%s%s%s), allowed: `key: "
	    "value` lines, indented by spaces",
	    reader->name, line + 1, yaml->context != NULL ? yaml->context : "",
	    yaml->context != NULL ? ", " : "",
	    yaml->problem != NULL ? yaml->problem : "no reason given");
}

static const char *kind_of(const yaml_event_t *event)
{
	switch (event->type) {
	case YAML_ALIAS_EVENT:
		return "an alias";
	case YAML_SEQUENCE_START_EVENT:
		return "a list";
	case YAML_MAPPING_START_EVENT:
		return "a mapping";
	case YAML_STREAM_END_EVENT:
	case YAML_DOCUMENT_END_EVENT:
		return "nothing";
	default:
		return "something else";
	}
}

/* Where a value is no answer, which one it is. */
static const char *found_there(const yaml_event_t *event, char text[FOUND_TEXT])
{
	if (event->type != YAML_SCALAR_EVENT)
		return kind_of(event);
	(void)snprintf(text, FOUND_TEXT, "'%.60s'", (const char *)event->data.scalar.value);
	return text;
}

static bool has_tag(const yaml_event_t *event)
{
	switch (event->type) {
	case YAML_SCALAR_EVENT:
		return event->data.scalar.tag != NULL;
	case YAML_SEQUENCE_START_EVENT:
		return event->data.sequence_start.tag != NULL;
	case YAML_MAPPING_START_EVENT:
		return event->data.mapping_start.tag != NULL;
	default:
		return false;
	}
}

/* The event's scalar as text, or NULL with the error set. Plain null and ~ are "". */
static const char *scalar(struct reader *reader, const char *field, const char *allowed)
{
	const yaml_event_t *event = &reader->event;
	if (has_tag(event)) {
		(void)refuse(reader, field, "a tag", "plain values");
		return NULL;
	}
	if (event->type != YAML_SCALAR_EVENT) {
		(void)refuse(reader, field, kind_of(event), allowed);
		return NULL;
	}
	const char *text = (const char *)event->data.scalar.value;
	if (strlen(text) != event->data.scalar.length) {
		(void)refuse(reader, field, "a zero byte", allowed);
		return NULL;
	}
	if (event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
	    (strcmp(text, "~") == 0 || strcmp(text, "null") == 0))
		return "";
	return text;
}

static tr_status set_value(struct reader *reader, const struct job_option *option,
    const char *allowed)
{
	const char *text = scalar(reader, option->key, allowed);
	struct tr_error cause;
	if (text == NULL)
		return TR_EINVAL;
	tr_status status = job_option_set(reader->spec, option->key, text, &cause);
	if (status != TR_OK)
		(void)tr_error_set(reader->error, status, "%s:%u: %s", reader->name,
		    event_line(reader), cause.text);
	return status;
}

static tr_status set_list(struct reader *reader, const struct job_option *option,
    const char *allowed)
{
	bool paths = option->kind == OPTION_PATHS;
	size_t count = 0, least = paths ? (size_t)option->least : 0;
	tr_status status = next_event(reader);
	for (; status == TR_OK && reader->event.type != YAML_SEQUENCE_END_EVENT;
	     status = next_event(reader)) {
		if (++count > job_option_list_most(option))
			return refuse(reader, option->key, "more", allowed);
		status = set_value(reader, option, paths ? "a path" : "a number");
		if (status != TR_OK)
			return status;
	}
	if (status == TR_OK && count < least)
		return refuse(reader, option->key, "an empty list", allowed);
	return status;
}

/* The event is the key's value. */
static tr_status read_value(struct reader *reader, const struct job_option *option)
{
	char allowed[160];
	job_option_allowed(option, allowed, sizeof(allowed));
	if (job_option_list_most(option) > 0 && reader->event.type == YAML_SEQUENCE_START_EVENT &&
	    !has_tag(&reader->event))
		return set_list(reader, option, allowed);
	return set_value(reader, option, allowed);
}

/* "name, model, data" or, with a section, "steps, batch_tokens". */
static void list_keys(const char *section, char *text, size_t bytes)
{
	size_t length = section != NULL ? strlen(section) : 0, used = 0;
	char last[TR_NAME_MAX] = "";
	text[0] = '\0';
	for (const struct job_option *row = job_options(); row->key != NULL && used < bytes; row++) {
		char part[TR_NAME_MAX];
		if (section != NULL &&
		    (strncmp(row->key, section, length) != 0 || row->key[length] != '.'))
			continue;
		const char *from = section != NULL ? row->key + length + 1 : row->key;
		(void)snprintf(part, sizeof(part), "%.*s", (int)strcspn(from, "."), from);
		if (strcmp(part, last) == 0)
			continue;
		used += (size_t)snprintf(text + used, bytes - used, "%s%s",
		    last[0] != '\0' ? ", " : "", part);
		(void)snprintf(last, sizeof(last), "%s", part);
	}
}

/* What stands at the top of a job file and is most like `key`. */
static bool suggest_section(const char *key, char section[32])
{
	char part[32];
	unsigned least = tr_edits_of_a_slip(strlen(key)) + 1;
	section[0] = '\0';
	for (const struct job_option *row = job_options(); row->key != NULL; row++) {
		(void)snprintf(part, sizeof(part), "%.*s", (int)strcspn(row->key, "."), row->key);
		unsigned apart = tr_edit_distance(key, part);
		if (apart < least) {
			least = apart;
			(void)snprintf(section, 32, "%s", part);
		}
	}
	return section[0] != '\0';
}

static tr_status unknown_key(struct reader *reader, const char *section, const char *key,
    const char *dotted)
{
	char keys[320], found[160], other[32];
	const char *near = section == NULL && strlen(key) < 3 ? NULL : job_option_suggest(dotted);
	list_keys(section, keys, sizeof(keys));
	if (near != NULL && section != NULL && strncmp(near, section, strlen(section)) == 0 &&
	    near[strlen(section)] == '.')
		near += strlen(section) + 1;
	const char *dot = near != NULL ? strrchr(near, '.') : NULL;
	bool elsewhere = dot != NULL && strcmp(dot + 1, key) == 0; /* "steps" */
	if (section == NULL && !elsewhere && suggest_section(key, other))
		near = other;
	(void)snprintf(found, sizeof(found), "an unknown key%s%s%s",
	    near != NULL ? " (did you mean '" : "", near != NULL ? near : "",
	    near != NULL ? "'?)" : "");
	return refuse(reader, dotted, found, keys);
}

static tr_status take_key(struct reader *reader, const char *section, const char *key,
    const char *dotted, const struct job_option **option)
{
	char found[64];
	*option = job_option_find(dotted);
	if (*option == NULL)
		return unknown_key(reader, section, key, dotted);
	size_t row = (size_t)(*option - job_options());
	if (reader->places->line[row] != 0) {
		(void)snprintf(found, sizeof(found), "the key again (first on line %u)",
		    reader->places->line[row]);
		return refuse(reader, dotted, found, "each key once");
	}
	reader->places->line[row] = event_line(reader);
	return TR_OK;
}

static tr_status read_pair(struct reader *reader, const char *section);

/* "mesh: auto", which says mesh.auto. */
static bool is_flag(const struct reader *reader, const char *section, char *dotted, size_t bytes)
{
	if (reader->event.type != YAML_SCALAR_EVENT || reader->event.data.scalar.length == 0)
		return false;
	(void)snprintf(dotted, bytes, "%s.%s", section,
	    (const char *)reader->event.data.scalar.value);
	const struct job_option *option = job_option_find(dotted);
	return option != NULL && option->kind == OPTION_BOOL;
}

static tr_status read_section(struct reader *reader, const char *section)
{
	char keys[320], allowed[352];
	list_keys(section, keys, sizeof(keys));
	(void)snprintf(allowed, sizeof(allowed), "%sa mapping of %s",
	    strcmp(section, "mesh") == 0 ? "auto, or " : "", keys);
	for (size_t i = 0; i < reader->n_sections; i++) {
		if (strcmp(reader->sections[i], section) == 0)
			return refuse(reader, section, "the section again", "each section once");
	}
	(void)snprintf(reader->sections[reader->n_sections++], TR_NAME_MAX, "%s", section);
	tr_status status = next_event(reader);
	if (status != TR_OK)
		return status;
	if (has_tag(&reader->event))
		return refuse(reader, section, "a tag", "plain values");
	if (reader->event.type == YAML_SCALAR_EVENT && reader->event.data.scalar.length == 0)
		return TR_OK; /* "train:" and nothing below */
	char dotted[2 * TR_NAME_MAX], found[FOUND_TEXT];
	const struct job_option *option;
	if (is_flag(reader, section, dotted, sizeof(dotted))) {
		status = take_key(reader, section, dotted + strlen(section) + 1, dotted, &option);
		return status == TR_OK ? job_option_set(reader->spec, dotted, "true", reader->error)
		                       : status;
	}
	if (reader->event.type != YAML_MAPPING_START_EVENT)
		return refuse(reader, section, found_there(&reader->event, found), allowed);
	status = next_event(reader);
	while (status == TR_OK && reader->event.type != YAML_MAPPING_END_EVENT) {
		status = read_pair(reader, section);
		if (status == TR_OK)
			status = next_event(reader);
	}
	return status;
}

/* The event is a key; leaves the last event of its value. `section` NULL: at the top. */
static tr_status read_pair(struct reader *reader, const char *section)
{
	char key[TR_NAME_MAX], dotted[2 * TR_NAME_MAX];
	const struct job_option *option;
	const char *text = scalar(reader, section != NULL ? section : "yaml", "keys that are words");
	if (text == NULL)
		return TR_EINVAL;
	(void)snprintf(key, sizeof(key), "%s", text);
	for (char *at = key; *at != '\0'; at++) {
		if ((unsigned char)*at < 0x20 || *at == 0x7f)
			*at = '?';
	}
	if (section == NULL && job_option_is_section(key))
		return read_section(reader, key);
	(void)snprintf(dotted, sizeof(dotted), "%s%s%s", section != NULL ? section : "",
	    section != NULL ? "." : "", key);
	if (section == NULL &&
	    strchr(key, '.') != NULL) /* "train.lr: 1" at the top is not how it is written */
		return refuse(reader, dotted, "a dotted key", "sections, as in `train: {lr: 1e-3}`");
	tr_status status = take_key(reader, section, key, dotted, &option);
	if (status == TR_OK)
		status = next_event(reader);
	return status == TR_OK ? read_value(reader, option) : status;
}

static tr_status read_document(struct reader *reader)
{
	const char *shape = "a mapping: name, model, data, train, mesh, sync, checkpoint, sample";
	char found[FOUND_TEXT];
	tr_status status = next_event(reader); /* stream start */
	if (status == TR_OK)
		status = next_event(reader);
	if (status == TR_OK && reader->event.type != YAML_DOCUMENT_START_EVENT)
		return refuse(reader, "yaml", "an empty file", shape);
	if (status == TR_OK)
		status = next_event(reader);
	if (status != TR_OK)
		return status;
	if (has_tag(&reader->event))
		return refuse(reader, "yaml", "a tag", "plain values");
	if (reader->event.type != YAML_MAPPING_START_EVENT)
		return refuse(reader, "yaml", found_there(&reader->event, found), shape);
	reader->places->first_line = event_line(reader);
	status = next_event(reader);
	while (status == TR_OK && reader->event.type != YAML_MAPPING_END_EVENT) {
		status = read_pair(reader, NULL);
		if (status == TR_OK)
			status = next_event(reader);
	}
	if (status == TR_OK)
		status = next_event(reader); /* document end */
	if (status == TR_OK)
		status = next_event(reader);
	if (status == TR_OK && reader->event.type != YAML_STREAM_END_EVENT)
		return refuse(reader, "yaml", "a second document", "one job in a file");
	return status;
}

tr_status jobfile_parse(const char *name, const uint8_t *bytes, size_t size,
    Traind__V1__JobSpec *spec, struct jobfile_places *places, struct tr_error *error)
{
	struct reader reader = { .name = name, .spec = spec, .places = places, .error = error };
	*places = (struct jobfile_places){ .first_line = 1 };
	if (!yaml_parser_initialize(&reader.yaml))
		return tr_error_set(error, TR_ENOMEM, "%s: out of memory", name);
	yaml_parser_set_input_string(&reader.yaml, bytes, size);
	tr_status status = read_document(&reader);
	if (reader.has_event)
		yaml_event_delete(&reader.event);
	yaml_parser_delete(&reader.yaml);
	return status;
}
