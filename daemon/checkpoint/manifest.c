#include "daemon/checkpoint/manifest.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/json.h"
#include "common/json_read.h"

#define MANIFEST_FORMAT  "traind checkpoint"
#define MANIFEST_VERSION 2 /* 1: of one piece */
#define OWN_DIGEST       "digest"
#define OWN_BEGINS       ",\"" OWN_DIGEST "\":"

static const char *const account_keys[] = { "samples_given", "samples_returned", "samples_dropped",
	"samples_anew" };
enum { ACCOUNT_KEYS = sizeof(account_keys) / sizeof(account_keys[0]) };
static const char *const costs_keys[] = { "merges", "merges_sent_bytes", "merges_dense_bytes",
	"merges_waited_ms", "merges_flight_ms" };
#define COST_MOST (UINT64_C(1) << 53)
enum { COSTS_KEYS = sizeof(costs_keys) / sizeof(costs_keys[0]) };
/* As bits, so that training goes on from the very same numbers. */
static const char *const lr_keys[] = { "lr_base_bits", "lr_base_momentum_bits" };

static void add_uint(struct json *j, const char *key, uint64_t value)
{
	json_key(j, key);
	json_uint(j, value);
}

static void add_string(struct json *j, const char *key, const char *value)
{
	json_key(j, key);
	json_string(j, value);
}

/* Numbers one after another: from, to of each free range; from, to, count, peer, round, cause of each dropped one. */
static void add_account(struct json *j, const struct lease_account *a)
{
	add_uint(j, account_keys[0], a->cursor);
	json_key(j, account_keys[1]);
	json_array(j);
	for (size_t i = 0; i < a->free_count; i++) {
		json_uint(j, a->free[i].from);
		json_uint(j, a->free[i].to);
	}
	json_end(j);
	json_key(j, account_keys[2]);
	json_array(j);
	for (size_t i = 0; i < a->dropped_count; i++) {
		const struct lease_dropped *d = &a->dropped[i];
		json_uint(j, d->from);
		json_uint(j, d->to);
		json_uint(j, d->count);
		json_uint(j, d->peer);
		json_uint(j, d->round);
		json_uint(j, d->cause);
	}
	json_end(j);
	if (a->anew > 0)
		add_uint(j, account_keys[3], a->anew);
}

/* Whole numbers: the next ones do not depend on them. */
static void add_costs(struct json *j, const struct sync_costs *costs)
{
	add_uint(j, costs_keys[0], costs->merges);
	add_uint(j, costs_keys[1], (uint64_t)costs->sent_bytes);
	add_uint(j, costs_keys[2], (uint64_t)costs->dense_bytes);
	add_uint(j, costs_keys[3], (uint64_t)(1e3 * costs->waited_s));
	add_uint(j, costs_keys[4], (uint64_t)(1e3 * costs->flight_s));
}

static void add_job(struct json *j, const struct manifest_job *job)
{
	json_key(j, "job");
	json_object(j);
	add_uint(j, "id", job->id);
	add_string(j, "name", job->name);
	add_uint(j, "submitted_unix_ms", job->submitted_unix_ms);
	json_end(j);
}

const char *manifest_shard_name(uint32_t number, char name[MANIFEST_SHARD_MAX])
{
	(void)snprintf(name, MANIFEST_SHARD_MAX, "shard-%05u.safetensors", number);
	return name;
}

static void add_shards(struct json *j, const struct manifest_shards *s)
{
	json_key(j, "shards");
	json_object(j);
	add_uint(j, "pp", s->pp);
	add_uint(j, "tp", s->tp);
	add_uint(j, "chunks", s->chunks);
	json_key(j, "layers");
	json_array(j);
	for (uint32_t i = 0; i < s->pp && s->layers[0] > 0; i++)
		json_uint(j, s->layers[i]);
	json_end(j);
	json_end(j);
}

static void add_files(struct json *j, const struct manifest *m)
{
	char name[MANIFEST_SHARD_MAX];
	json_key(j, "files");
	json_object(j);
	if (m->config[0] != '\0')
		add_string(j, MANIFEST_CONFIG, m->config);
	for (uint32_t i = 0; i < m->shards.count; i++)
		add_string(j, manifest_shard_name(i, name), m->shards.files[i]);
	if (m->shards.count == 0)
		add_string(j, MANIFEST_MODEL, m->model);
	if (m->shards.count == 0 && m->optimizer[0] != '\0')
		add_string(j, MANIFEST_OPTIMIZER, m->optimizer);
	json_end(j);
}

/* Of all that stands before it. */
static void add_own_digest(struct json *j)
{
	char hex[TR_DIGEST_HEX_MAX];
	if (json_text(j) != NULL)
		add_string(j, OWN_DIGEST, tr_digest_hex(tr_digest_of(j->text, j->length), hex));
}

char *manifest_text(const struct manifest *m)
{
	struct json j = { 0 };
	json_object(&j);
	add_string(&j, "format", MANIFEST_FORMAT);
	add_uint(&j, "version", m->shards.count > 0 ? MANIFEST_VERSION : 1);
	if (m->job.id > 0)
		add_job(&j, &m->job);
	add_uint(&j, "step", m->step);
	if (m->round > 0)
		add_uint(&j, "round", m->round);
	add_uint(&j, "seed", m->seed);
	add_uint(&j, "samples", m->samples);
	add_uint(&j, "tokens", m->tokens);
	if (m->age != m->step)
		add_uint(&j, "moments_steps", m->age);
	if (m->account.cursor > 0)
		add_account(&j, &m->account);
	if (m->costs.merges > 0)
		add_costs(&j, &m->costs);
	add_string(&j, "spec", m->spec);
	if (m->order[0] != '\0')
		add_string(&j, "order", m->order);
	if (m->dropout > 0) {
		json_key(&j, "dropout");
		json_double(&j, m->dropout);
	}
	for (size_t i = 0; m->lr_base[0] > 0 && i < 2; i++) {
		uint64_t bits;
		memcpy(&bits, &m->lr_base[i], sizeof(bits));
		add_uint(&j, lr_keys[i], bits);
	}
	if (m->shards.count > 0)
		add_shards(&j, &m->shards);
	add_files(&j, m);
	add_own_digest(&j);
	json_end(&j);
	const char *text = json_text(&j);
	char *copy = text == NULL ? NULL : strdup(text);
	json_finish(&j);
	return copy;
}

/* Numbers that tr_sync cannot have written are left out. */
static void read_rate(struct json_reader *r, double *value)
{
	uint64_t bits = 0;
	double number;
	(void)json_read_uint(r, &bits);
	memcpy(&number, &bits, sizeof(number));
	*value = isfinite(number) && fabs(number) <= 1e6 ? number : 0;
}

/* What is no share is left out, too. */
static void read_dropout(struct json_reader *r, double *share)
{
	double number = 0;
	*share = json_read_double(r, &number) && number > 0 && number < 1 ? number : 0;
}

/* Rows of `width` numbers, at most `most`; how many there are. */
static uint64_t read_rows(struct json_reader *r, uint64_t *rows, size_t width, size_t most)
{
	size_t count = 0;
	for (json_read_array(r); json_read_item(r); count++) {
		uint64_t number = 0;
		(void)json_read_uint(r, &number);
		if (count < width * most)
			rows[count] = number;
	}
	return count % width == 0 ? count / width : UINT64_MAX;
}

static void read_account(struct json_reader *r, const char *key, struct lease_account *a)
{
	enum { RANGE = sizeof(a->free[0]) / 8, DROPPED = sizeof(a->dropped[0]) / 8 };
	if (strcmp(key, account_keys[0]) == 0)
		(void)json_read_uint(r, &a->cursor);
	else if (strcmp(key, account_keys[1]) == 0)
		a->free_count = read_rows(r, &a->free[0].from, RANGE, LEASE_FREE_MAX);
	else if (strcmp(key, account_keys[3]) == 0)
		(void)json_read_uint(r, &a->anew);
	else
		a->dropped_count = read_rows(r, &a->dropped[0].from, DROPPED, LEASE_DROPPED_MAX);
}

/* Which of `count` keys it is; `count`: none. */
static size_t key_of(const char *const *keys, size_t count, const char *key)
{
	size_t at = 0;
	while (at < count && strcmp(keys[at], key) != 0)
		at++;
	return at;
}

static bool is_account(const char *key)
{
	return key_of(account_keys, ACCOUNT_KEYS, key) < ACCOUNT_KEYS;
}

static bool is_cost(const char *key)
{
	return key_of(costs_keys, COSTS_KEYS, key) < COSTS_KEYS;
}

static void read_cost(struct json_reader *r, const char *key, struct sync_costs *costs)
{
	uint64_t number = 0;
	if (json_read_uint(r, &number) && number > COST_MOST)
		number = COST_MOST;
	double *const places[COSTS_KEYS] = { NULL, &costs->sent_bytes, &costs->dense_bytes,
		&costs->waited_s, &costs->flight_s };
	size_t at = key_of(costs_keys, COSTS_KEYS, key);
	if (at == 0)
		costs->merges = number;
	else
		*places[at] = (double)number * (at < 3 ? 1 : 1e-3);
}

/* What is read beside the manifest itself. */
struct reading {
	struct json_reader r;
	struct manifest m;
	char format[32], unknown[64],
	    own[TR_DIGEST_HEX_MAX]; /* unknown: the name of a file; own: its digest. "": none */
	uint64_t version;
	bool has_step;
};

/* Of a shard's file; UINT32_MAX: it is no such name. */
static uint32_t shard_of(const char *name)
{
	char same[MANIFEST_SHARD_MAX];
	unsigned number = UINT32_MAX;
	if (sscanf(name, "shard-%5u", &number) != 1 || number >= TR_GROUP_PEERS_MAX ||
	    strcmp(manifest_shard_name(number, same), name) != 0)
		return UINT32_MAX;
	return number;
}

/* A name that is not known is one whose file nobody would miss. */
static void read_files(struct reading *reading)
{
	struct json_reader *r = &reading->r;
	struct manifest *m = &reading->m;
	char name[64];
	for (json_read_object(r); json_read_key(r, name, sizeof(name));) {
		if (strcmp(name, MANIFEST_MODEL) == 0)
			json_read_string(r, m->model, sizeof(m->model));
		else if (strcmp(name, MANIFEST_OPTIMIZER) == 0)
			json_read_string(r, m->optimizer, sizeof(m->optimizer));
		else if (strcmp(name, MANIFEST_CONFIG) == 0)
			json_read_string(r, m->config, sizeof(m->config));
		else if (shard_of(name) != UINT32_MAX)
			json_read_string(r, m->shards.files[shard_of(name)], TR_DIGEST_HEX_MAX);
		else if (json_read_skip(r))
			(void)snprintf(reading->unknown, sizeof(reading->unknown), "%s", name);
	}
}

static void read_job(struct json_reader *r, struct manifest_job *job)
{
	char key[32];
	for (json_read_object(r); json_read_key(r, key, sizeof(key));) {
		if (strcmp(key, "id") == 0)
			json_read_uint(r, &job->id);
		else if (strcmp(key, "name") == 0)
			json_read_string(r, job->name, sizeof(job->name));
		else if (strcmp(key, "submitted_unix_ms") == 0)
			json_read_uint(r, &job->submitted_unix_ms);
		else
			json_read_skip(r);
	}
}

/* What is no number of a mesh is none. */
static uint32_t read_count(struct json_reader *r, uint32_t most)
{
	uint64_t number = 0;
	return json_read_uint(r, &number) && number <= most ? (uint32_t)number : 0;
}

static void read_shards(struct json_reader *r, struct manifest_shards *s)
{
	char key[32];
	for (json_read_object(r); json_read_key(r, key, sizeof(key));) {
		uint32_t count = 0;
		if (strcmp(key, "pp") == 0) {
			s->pp = read_count(r, TR_GROUP_PEERS_MAX);
		} else if (strcmp(key, "tp") == 0) {
			s->tp = read_count(r, TR_GROUP_PEERS_MAX);
		} else if (strcmp(key, "chunks") == 0) {
			s->chunks = read_count(r, TR_SCHEDULE_CHUNKS_MAX);
		} else if (strcmp(key, "layers") == 0) {
			for (json_read_array(r); json_read_item(r); count++) {
				uint32_t layers = read_count(r, UINT32_MAX);
				if (count < TR_GROUP_PEERS_MAX)
					s->layers[count] = layers;
			}
		} else {
			json_read_skip(r);
		}
	}
	s->count = s->pp * s->tp;
}

static void read_keys(struct reading *reading)
{
	struct json_reader *r = &reading->r;
	struct manifest *m = &reading->m;
	char key[32];
	for (json_read_object(r); json_read_key(r, key, sizeof(key));) {
		if (strcmp(key, "format") == 0)
			json_read_string(r, reading->format, sizeof(reading->format));
		else if (strcmp(key, "version") == 0)
			json_read_uint(r, &reading->version);
		else if (strcmp(key, "step") == 0)
			reading->has_step = json_read_uint(r, &m->step);
		else if (strcmp(key, "round") == 0)
			json_read_uint(r, &m->round);
		else if (strcmp(key, "seed") == 0)
			json_read_uint(r, &m->seed);
		else if (strcmp(key, "samples") == 0)
			json_read_uint(r, &m->samples);
		else if (strcmp(key, "tokens") == 0)
			json_read_uint(r, &m->tokens);
		else if (strcmp(key, "moments_steps") == 0)
			json_read_uint(r, &m->age);
		else if (strcmp(key, "spec") == 0)
			json_read_string(r, m->spec, sizeof(m->spec));
		else if (strcmp(key, "order") == 0)
			json_read_string(r, m->order, sizeof(m->order));
		else if (strcmp(key, "dropout") == 0)
			read_dropout(r, &m->dropout);
		else if (strcmp(key, lr_keys[0]) == 0)
			read_rate(r, &m->lr_base[0]);
		else if (strcmp(key, lr_keys[1]) == 0)
			read_rate(r, &m->lr_base[1]);
		else if (is_account(key))
			read_account(r, key, &m->account);
		else if (is_cost(key))
			read_cost(r, key, &m->costs);
		else if (strcmp(key, "job") == 0)
			read_job(r, &m->job);
		else if (strcmp(key, "files") == 0)
			read_files(reading);
		else if (strcmp(key, "shards") == 0)
			read_shards(r, &m->shards);
		else if (strcmp(key, OWN_DIGEST) == 0)
			json_read_string(r, reading->own, sizeof(reading->own));
		else
			json_read_skip(r);
	}
}

/* Bytes before the last place where its own digest begins; all of them: there is none. */
static size_t bytes_of_digest(const char *text, size_t length)
{
	const size_t mark = strlen(OWN_BEGINS);
	for (size_t at = length; at >= mark; at--)
		if (memcmp(text + at - mark, OWN_BEGINS, mark) == 0)
			return at - mark;
	return length;
}

void manifest_sum_shards(struct manifest *m)
{
	struct tr_digest all = tr_digest_of("", 0);
	for (uint32_t i = 0; i < m->shards.count; i++) {
		const char *hex = m->shards.files[i];
		all = tr_digest_fold(all, tr_digest_of(hex, strlen(hex)));
	}
	(void)tr_digest_hex(all, m->model);
	(void)tr_digest_hex(all, m->optimizer);
}

/* All of its mesh are there, and no other; then what names them all is known. */
static tr_status check_shards(struct manifest *m, struct tr_error *error)
{
	const struct manifest_shards *s = &m->shards;
	uint32_t named = 0, first = 0;
	for (uint32_t i = 0; i < TR_GROUP_PEERS_MAX; i++) {
		named += s->files[i][0] != '\0';
		first += s->files[i][0] != '\0' && i < s->count;
	}
	bool in_one = m->model[0] != '\0' || m->optimizer[0] != '\0';
	if (s->count > TR_GROUP_PEERS_MAX || named != s->count || first != s->count ||
	    (s->count > 0 && (in_one || s->chunks == 0)))
		return tr_error_set(error, TR_EDIGEST,
		    "it is damaged: it names %u shards, and its mesh of pp %u x tp %u has %u",
		    named, s->pp, s->tp, s->count);
	if (s->count > 0)
		manifest_sum_shards(m);
	return TR_OK;
}

/* Of a well-formed text. */
static tr_status check_whole(const struct reading *reading, const char *text, size_t length,
    struct tr_error *error)
{
	const struct manifest *m = &reading->m;
	char hex[TR_DIGEST_HEX_MAX];
	if (reading->unknown[0] != '\0' && reading->version <= MANIFEST_VERSION)
		return tr_error_set(error, TR_EDIGEST,
		    "it is damaged: found '%s' among its files, allowed: " MANIFEST_CONFIG
		    ", " MANIFEST_MODEL ", " MANIFEST_OPTIMIZER ", shard-00000.safetensors and so "
		    "on",
		    reading->unknown);
	if (reading->own[0] != '\0' &&
	    strcmp(tr_digest_hex(tr_digest_of(text, bytes_of_digest(text, length)), hex),
	        reading->own) != 0)
		return tr_error_set(error, TR_EDIGEST,
		    "it is damaged: its digest is %s, and it says %s", hex, reading->own);
	/* What a job wrote: its moments are not passed by. */
	if (m->step > 0 && m->spec[0] != '\0' && m->optimizer[0] == '\0')
		return tr_error_set(error, TR_EDIGEST,
		    "it is damaged: it is of a job's step %llu, and names no " MANIFEST_OPTIMIZER,
		    (unsigned long long)m->step);
	return TR_OK;
}

tr_status manifest_parse(const char *text, size_t length, struct manifest *out,
    struct tr_error *error)
{
	struct reading reading = { .m = { .age = UINT64_MAX } };
	struct manifest *m = &reading.m;
	json_read_init(&reading.r, text, length);
	read_keys(&reading);
	bool is_one = strcmp(reading.format, MANIFEST_FORMAT) == 0;
	tr_status status = TR_OK;
	if (json_read_end(&reading.r) && is_one && reading.version <= MANIFEST_VERSION)
		status = check_shards(m, error);
	if (status == TR_OK && json_read_end(&reading.r) && is_one)
		status = check_whole(&reading, text, length, error);
	if (status != TR_OK)
		return status;
	if (!json_read_end(&reading.r) || !is_one || !reading.has_step || m->model[0] == '\0')
		return tr_error_set(error, TR_EPROTO, "it is not the manifest of a checkpoint");
	if (reading.version == 0 || reading.version > MANIFEST_VERSION)
		return tr_error_set(error, TR_EINVAL,
		    "it is of version %llu, this program reads versions to %d",
		    (unsigned long long)reading.version, MANIFEST_VERSION);
	if (!lease_valid(&m->account))
		return tr_error_set(error, TR_EPROTO, "its account of samples is not one");
	if (m->age > m->step)
		m->age = m->step;
	*out = *m;
	return TR_OK;
}
