#include "tests/wan/topology.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS_MAX 16

struct unit {
	const char *name;
	double times;
};

static const struct unit time_units[] = { { "ns", 1 }, { "us", 1e3 }, { "ms", 1e6 }, { "s", 1e9 },
	{ NULL, 0 } };
static const struct unit rate_units[] = { { "bit", 1 }, { "kbit", 1e3 }, { "mbit", 1e6 },
	{ "gbit", 1e9 }, { NULL, 0 } };
static const struct unit size_units[] = { { "b", 1 }, { "kb", 1e3 }, { "mb", 1e6 }, { NULL, 0 } };
static const struct unit loss_units[] = { { "", 1 }, { "%", 0.01 }, { NULL, 0 } };

static bool number(const char *text, const struct unit *units, double most, double *value)
{
	char *end;
	double plain = strtod(text, &end);
	if (end == text || !isfinite(plain) || plain < 0)
		return false;
	for (; units->name != NULL; units++)
		if (strcmp(end, units->name) == 0) {
			*value = plain * units->times;
			return *value <= most;
		}
	return plain == 0 && *end == '\0' && (*value = 0, true);
}

static bool whole(const char *text, const struct unit *units, uint64_t most, uint64_t *value)
{
	double found;
	if (!number(text, units, (double)most, &found))
		return false;
	*value = (uint64_t)(found + 0.5);
	return true;
}

/* ---- keys ---- */

static bool set_queue(struct wire_shape *shape, const char *value)
{
	uint64_t lasts_ns;
	if (whole(value, size_units, WIRE_QUEUE_MAX, &shape->queue_bytes))
		return true;
	if (shape->rate == 0 || !whole(value, time_units, WIRE_DELAY_MAX, &lasts_ns))
		return false;
	shape->queue_bytes = (uint64_t)((double)shape->rate / 8e9 * (double)lasts_ns);
	return true;
}

static bool set_switch(const char *value, bool *on)
{
	*on = strcmp(value, "on") == 0;
	return *on || strcmp(value, "off") == 0;
}

static bool set_key(struct wire_shape *shape, const char *key, const char *value)
{
	if (strcmp(key, "delay") == 0)
		return whole(value, time_units, WIRE_DELAY_MAX, &shape->delay_ns);
	if (strcmp(key, "jitter") == 0)
		return whole(value, time_units, WIRE_DELAY_MAX, &shape->jitter_ns);
	if (strcmp(key, "rate") == 0)
		return whole(value, rate_units, WIRE_RATE_MAX, &shape->rate);
	if (strcmp(key, "burst") == 0)
		return whole(value, size_units, WIRE_QUEUE_MAX, &shape->burst_bytes);
	if (strcmp(key, "loss") == 0)
		return number(value, loss_units, 1, &shape->loss);
	if (strcmp(key, "reorder") == 0)
		return set_switch(value, &shape->reorder);
	return strcmp(key, "queue") == 0 && set_queue(shape, value);
}

static bool set_site_key(struct topology_site *site, const char *key, const char *value)
{
	if (strcmp(key, "up") == 0)
		return set_key(&site->up, "rate", value);
	if (strcmp(key, "down") == 0)
		return set_key(&site->down, "rate", value);
	return strcmp(key, "queue") == 0 && set_queue(&site->up, value) &&
	    set_queue(&site->down, value);
}

/* ---- lines ---- */

/* A line, cut into words, and the sites that its second and third word name. */
struct line {
	char text[TOPOLOGY_LINE_MAX];
	char *words[WORDS_MAX];
	unsigned count, options; /* options: the first word after the names */
	unsigned from_first, from_last, to_first, to_last;
	bool two;
};

int topology_find(const struct topology *topology, const char *name)
{
	for (unsigned i = 0; i < topology->count; i++)
		if (strcmp(topology->sites[i].name, name) == 0)
			return (int)i;
	return -1;
}

static tr_status find_range(const struct topology *topology, const char *name, unsigned *first,
    unsigned *last, struct tr_error *error)
{
	int found = topology_find(topology, name);
	if (found < 0 && strcmp(name, "all") != 0)
		return tr_error_set(error, TR_EINVAL, "there is no site %.32s", name);
	*first = found < 0 ? 0 : (unsigned)found;
	*last = found < 0 ? topology->count - 1 : (unsigned)found;
	return TR_OK;
}

static tr_status read_words(struct line *line, const char *text, struct tr_error *error)
{
	size_t length = strcspn(text, "#\n");
	char *rest = line->text;
	if (length >= sizeof(line->text))
		return tr_error_set(error, TR_EINVAL, "a line is longer than %d",
		    TOPOLOGY_LINE_MAX - 1);
	memcpy(line->text, text, length);
	line->text[length] = '\0';
	for (char *word; (word = strsep(&rest, " \t\r")) != NULL;) {
		if (*word == '\0')
			continue;
		if (line->count == WORDS_MAX)
			return tr_error_set(error, TR_EINVAL, "a line has more than %d words",
			    WORDS_MAX);
		line->words[line->count++] = word;
	}
	return TR_OK;
}

/* Words 1 and 2, if the second is no option. */
static tr_status read_sites(struct line *line, const struct topology *topology,
    struct tr_error *error)
{
	if (line->count < 2 || topology->count == 0)
		return tr_error_set(error, TR_EINVAL, "%s of which site?", line->words[0]);
	line->two = line->count > 2 && strchr(line->words[2], '=') == NULL;
	line->options = line->two ? 3 : 2;
	tr_status st = find_range(topology, line->words[1], &line->from_first, &line->from_last,
	    error);
	return st != TR_OK || !line->two
	    ? st
	    : find_range(topology, line->words[2], &line->to_first, &line->to_last, error);
}

static tr_status set_options(const struct line *line, struct wire_shape *shape,
    struct topology_site *site, struct tr_error *error)
{
	for (unsigned i = line->options; i < line->count; i++) {
		char word[TOPOLOGY_LINE_MAX], *value;
		(void)snprintf(word, sizeof(word), "%s", line->words[i]);
		value = strchr(word, '=');
		if (value == NULL)
			return tr_error_set(error, TR_EINVAL, "%.64s: KEY=VALUE was expected", word);
		*value++ = '\0';
		if (!(site != NULL ? set_site_key(site, word, value) : set_key(shape, word, value)))
			return tr_error_set(error, TR_EINVAL,
			    "%.64s: no such key here, or not such a value", line->words[i]);
	}
	return TR_OK;
}

static tr_status found_site(struct topology *topology, struct line *line, struct tr_error *error)
{
	const char *name = line->count > 1 ? line->words[1] : "";
	struct topology_site *site = &topology->sites[topology->count];
	bool good = islower((unsigned char)name[0]) && strlen(name) < TOPOLOGY_NAME_MAX;
	for (const char *c = name; good && *c != '\0'; c++)
		good = islower((unsigned char)*c) || isdigit((unsigned char)*c) || *c == '_';
	if (!good || strcmp(name, "all") == 0)
		return tr_error_set(error, TR_EINVAL,
		    "site %.32s: a name has up to %d small letters, digits and _", name,
		    TOPOLOGY_NAME_MAX - 1);
	if (topology_find(topology, name) >= 0)
		return tr_error_set(error, TR_EINVAL, "site %s is there already", name);
	if (topology->count == TOPOLOGY_SITES_MAX)
		return tr_error_set(error, TR_ELIMIT, "there are %d sites already",
		    TOPOLOGY_SITES_MAX);
	(void)snprintf(site->name, sizeof(site->name), "%s", name);
	line->options = 2;
	tr_status st = set_options(line, NULL, site, error);
	topology->count += st == TR_OK;
	return st;
}

static tr_status set_port(struct topology_pair *pair, const struct line *line,
    struct tr_error *error)
{
	char *end = NULL;
	unsigned long port = line->count == 4 ? strtoul(line->words[3], &end, 10) : 0;
	if (port == 0 || port > UINT16_MAX || *end != '\0')
		return tr_error_set(error, TR_EINVAL, "drop A B PORT: which port?");
	for (unsigned i = 0; i < TOPOLOGY_PORTS_MAX; i++)
		if (pair->ports[i] == 0 || pair->ports[i] == port) {
			pair->ports[i] = (uint16_t)port;
			return TR_OK;
		}
	return tr_error_set(error, TR_ELIMIT, "%d ports are dropped there already",
	    TOPOLOGY_PORTS_MAX);
}

static tr_status change_pair(struct topology_pair *pair, const struct line *line,
    struct tr_error *error)
{
	const char *verb = line->words[0];
	bool bare = line->options == line->count;
	if (strcmp(verb, "set") == 0 || strcmp(verb, "link") == 0)
		return bare ? tr_error_set(error, TR_EINVAL, "%s to what?", verb)
		            : set_options(line, &pair->shape, NULL, error);
	if (strcmp(verb, "drop") == 0)
		return set_port(pair, line, error);
	if (!bare)
		return tr_error_set(error, TR_EINVAL, "%s takes sites only", verb);
	if (strcmp(verb, "heal") == 0) {
		pair->shape.cut = pair->shape.blackhole = false;
		memset(pair->ports, 0, sizeof(pair->ports));
	} else if (strcmp(verb, "cut") == 0) {
		pair->shape.cut = true;
	} else {
		pair->shape.blackhole = true;
	}
	return TR_OK;
}

/* All pairs that the line's names stand for, and the other way unless the verb goes one way. */
static tr_status change_pairs(struct topology *topology, const struct line *line,
    struct tr_error *error)
{
	bool both = strcmp(line->words[0], "set") != 0 && strcmp(line->words[0], "blackhole") != 0;
	unsigned last = line->two ? line->to_last : topology->count - 1, changed = 0;
	tr_status st = TR_OK;
	for (unsigned a = line->from_first; a <= line->from_last; a++)
		for (unsigned b = line->two ? line->to_first : 0; st == TR_OK && b <= last; b++) {
			if (a == b)
				continue;
			changed++;
			st = change_pair(&topology->pairs[a][b], line, error);
			if (st == TR_OK && both)
				st = change_pair(&topology->pairs[b][a], line, error);
		}
	if (st == TR_OK && changed == 0)
		return tr_error_set(error, TR_EINVAL, "%s: between which sites?", line->words[0]);
	return st;
}

static tr_status apply(struct topology *topology, struct line *line, bool founding,
    struct tr_error *error)
{
	static const char *const verbs[] = { "link", "set", "cut", "blackhole", "drop", "heal",
		NULL };
	const char *verb = line->words[0];
	unsigned known = 0;
	if (strcmp(verb, "site") == 0 && founding)
		return found_site(topology, line, error);
	while (verbs[known] != NULL && strcmp(verbs[known], verb) != 0)
		known++;
	if (verbs[known] == NULL)
		return tr_error_set(error, TR_EINVAL,
		    "%.32s: expected %slink, set, cut, blackhole, drop or heal", verb,
		    founding ? "site, " : "");
	tr_status st = read_sites(line, topology, error);
	if (st != TR_OK)
		return st;
	if (line->two || strcmp(verb, "cut") == 0 || strcmp(verb, "heal") == 0)
		return change_pairs(topology, line, error);
	if (strcmp(verb, "set") != 0 || line->options == line->count)
		return tr_error_set(error, TR_EINVAL, "%s needs two sites", verb);
	for (unsigned a = line->from_first; st == TR_OK && a <= line->from_last; a++)
		st = set_options(line, NULL, &topology->sites[a], error);
	return st;
}

tr_status topology_line(struct topology *topology, const char *text, bool founding,
    struct tr_error *error)
{
	struct line line = { 0 };
	struct topology changed = *topology;
	tr_status st = read_words(&line, text, error);
	if (st == TR_OK && line.count > 0)
		st = apply(&changed, &line, founding, error);
	if (st == TR_OK)
		*topology = changed;
	return st;
}

tr_status topology_lines(struct topology *topology, const char *text, bool founding,
    struct tr_error *error)
{
	struct topology changed = *topology;
	unsigned number_of = 1;
	for (; *text != '\0'; number_of++) {
		tr_status st = topology_line(&changed, text, founding, error);
		if (st != TR_OK)
			return tr_error_wrap(error, "line %u", number_of);
		text += strcspn(text, "\n");
		text += *text == '\n';
	}
	*topology = changed;
	return TR_OK;
}
