#include "tests/bench/coll_case.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/bench/coll_site.h"
#include "tests/bench/processes.h"

const enum tr_dtype coll_case_dtypes[MEASURE_DTYPES] = { TR_F32, TR_F64, TR_I32, TR_I64, TR_F16,
	TR_BF16, TR_U8 };

static bool row_of(const char *const *names, const char *name, unsigned *row)
{
	for (*row = 0; names[*row] != NULL; ++*row)
		if (strcmp(names[*row], name) == 0)
			return true;
	return false;
}

bool coll_case_algorithm(const char *name, enum tr_algorithm *algorithm)
{
	static const char *const names[] = { "auto", "ring", "star", "direct", "hierarchical",
		"one-shot", NULL };
	unsigned row;
	bool found = row_of(names, name, &row);
	*algorithm = found ? (enum tr_algorithm)row : TR_AUTO;
	return found;
}

bool coll_case_transport(const char *name, enum tr_transport *transport)
{
	static const char *const names[] = { "auto", "tcp", "shm", NULL };
	unsigned row;
	bool found = row_of(names, name, &row);
	*transport = found ? (enum tr_transport)row : TR_TRANSPORT_AUTO;
	return found;
}

bool coll_case_dtype(const char *name, enum measure_dtype *dtype)
{
	for (unsigned i = 0; i < MEASURE_DTYPES; i++)
		if (strcmp(measure_dtype_names[i], name) == 0) {
			*dtype = (enum measure_dtype)i;
			return true;
		}
	return false;
}

bool coll_case_codec(const char *name, enum tr_codec *codec)
{
	static const char *const names[] = { "none", "bf16", "int8", "int4", "e3m0", "int2", NULL };
	unsigned row;
	bool found = row_of(names, name, &row);
	*codec = found ? (enum tr_codec)row : TR_CODEC_NONE;
	return found;
}

double coll_case_tolerance(const struct coll_case *c)
{
	/* Steps between 0 and a block's largest value; what is sent are inputs of at most MEASURE_INPUT_MAX and sums of `world` of
	 * them, and a value may be coded again at every hop. bf16 holds these whole numbers as they are. */
	static const double steps[] = { INFINITY, INFINITY, 127, 7, 3, 1 };
	enum tr_codec codec;
	double n = c->c.world;
	(void)coll_case_codec(c->codec, &codec);
	return (n + n * n) * MEASURE_INPUT_MAX / (2 * steps[codec]);
}

void coll_check(tr_status st, const char *call, const struct tr_error *error)
{
	char what[64];
	if (st == TR_OK)
		return;
	(void)snprintf(what, sizeof(what), "collbench: %s", call);
	processes_die(what, error->text);
}

tr_group *coll_case_join(const struct coll_case *c)
{
	struct tr_join_options options = TR_JOIN_OPTIONS_INIT;
	struct tr_error error = { 0 };
	char name[32], listen[COLL_SITE_LISTEN_MAX];
	tr_group *group;
	if (c->sites != NULL) {
		coll_site_enter(c->sites, c->c.rank, listen);
		options.listen = listen;
		options.insecure = true;
	}
	(void)snprintf(name, sizeof(name), "collbench-%u", c->number);
	options.membership = c->address;
	options.name = name;
	options.size = c->c.world;
	options.policy = c->policy;
	options.sockets = c->sockets;
	options.congestion = c->congestion;
	options.tls = c->tls;
	(void)coll_case_algorithm(c->algorithm, &options.algorithm);
	(void)coll_case_transport(c->transport, &options.transport);
	coll_check(tr_group_join(&options, &group, &error), "join", &error);
	return group;
}

void coll_case_submit(tr_group *group, uint32_t tag, void *data, const struct coll_case *c)
{
	struct tr_error error = { 0 };
	struct tr_op op = TR_OP_INIT;
	op.tag = tag;
	op.output = data;
	op.count = c->c.bytes / measure_dtype_size(c->c.dtype);
	op.dtype = coll_case_dtypes[c->c.dtype];
	(void)coll_case_codec(c->codec, &op.codec);
	coll_check(tr_submit(group, &op, &error), "all-reduce", &error);
}

/* ---- one process ---- */

struct peer {
	struct coll_case c;
	struct processes *processes;
	tr_group *group;
};

static void *memory(void *arg, size_t bytes)
{
	struct peer *p = arg;
	struct tr_error error = { 0 };
	void *data = tr_alloc(p->group, bytes);
	coll_check(tr_state_ready(p->group, 0, &error), "ready", &error);
	return data;
}

static void meet(void *arg)
{
	processes_meet(((const struct peer *)arg)->processes);
}

static void explain(const struct peer *p, char reason[MEASURE_REASON_MAX])
{
	struct tr_error error = { 0 };
	struct tr_op op = TR_OP_INIT;
	op.count = p->c.c.bytes / measure_dtype_size(p->c.c.dtype);
	op.dtype = coll_case_dtypes[p->c.c.dtype];
	(void)coll_case_codec(p->c.codec, &op.codec);
	coll_check(tr_explain(p->group, &op, NULL, reason, MEASURE_REASON_MAX, &error), "explain",
	    &error);
}

static void begin(void *arg)
{
	const struct peer *p = arg;
	struct tr_error error = { 0 };
	struct tr_round round;
	struct measure_result *result = &p->processes->results[p->c.c.rank];
	coll_check(tr_round_begin(p->group, &round, &error), "begin", &error);
	if (result->reason_first[0] == '\0')
		explain(p, result->reason_first);
}

static void all_reduce(void *arg, unsigned slot, void *data, size_t bytes)
{
	const struct peer *p = arg;
	struct tr_error error = { 0 };
	(void)bytes;
	coll_case_submit(p->group, slot, data, &p->c);
	coll_check(tr_wait(p->group, slot, &error), "wait", &error);
}

static void end(void *arg)
{
	struct tr_error error = { 0 };
	struct tr_round round;
	coll_check(tr_round_commit(((const struct peer *)arg)->group, NULL, &round, &error),
	    "commit", &error);
}

static void body(void *arg, unsigned rank)
{
	struct peer p = *(const struct peer *)arg;
	struct measure_calls calls = { &p, memory, meet, begin, all_reduce, end };
	p.c.c.rank = rank;
	p.c.c.tolerance = coll_case_tolerance(&p.c);
	p.group = coll_case_join(&p.c);
	measure_run(&p.c.c, &calls, &p.processes->results[rank]);
	explain(&p, p.processes->results[rank].reason);
	tr_group_leave(p.group);
}

/* ---- the case ---- */

static void print_line(const struct coll_case *c, const struct measure_result *results)
{
	struct measure_result worst;
	measure_worst(&c->c, results, &worst);
	printf("%2u processes, %9zu bytes, %s, %s%s: %.1f us, with commit %.1f us; busbw %.3f "
	       "GB/s; "
	       "results %s\n",
	    c->c.world, c->c.bytes, c->algorithm, c->transport, c->tls != NULL ? " with TLS" : "",
	    worst.median_s * 1e6, worst.round_s * 1e6, measure_busbw_gbps(&c->c, worst.median_s),
	    worst.right ? "identical" : "DIFFER");
	(void)fflush(stdout);
}

bool coll_case_run(const struct coll_case *c, bool json)
{
	struct peer p = { .c = *c, .processes = processes_create(c->c.world) };
	char head[160];
	if (p.processes == NULL)
		return false;
	bool well = processes_run(c->c.world, body, &p);
	(void)snprintf(head, sizeof(head),
	    "\"peer\": \"traind\", \"algo\": \"%s\", \"transport\": \"%s\", \"codec\": \"%s\", "
	    "\"tls\": %s",
	    c->algorithm, c->transport, c->codec, c->tls != NULL ? "true" : "false");
	if (well && json)
		measure_print(head, &c->c, p.processes->results);
	else if (well)
		print_line(c, p.processes->results);
	processes_destroy(p.processes);
	return well;
}
