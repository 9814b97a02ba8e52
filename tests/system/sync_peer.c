/* A process that trains by collectives/sync.h; tests/system/test_sync.py starts several and holds what they print against the papers' equations
 * in double precision.
 *
 *	sync_peer MEMBERSHIP GROUP SIZE MODE STEPS [KEY=VALUE ...]
 *	    H, P, tau, carry, lr_search (sync.h), eta, mu, alpha, beta, codec, spread, temperature, seconds, by_speed, grace, quorum;
 *	    weights: of the enumeration; batch: samples of a step of all, and a peer's weights are its samples; from: as if those before it had been handed out; share_by_speed
 *	    pause_us: of an inner step, with share_by_speed of a sample; uneven=1: peers' weights differ; policy, deadline, transport: of the group
 *	    flip: after this step a bit of its outer state flips: of tensor `tensor` in (part) 0 its outer parameters, 1 its momentum, 2 the counters, or (3) of its own parameters,
 *	    and the exponent's top one
 *	    stop=1: it stops (SIGSTOP) once a round is committed whose merge is still to come
 *	    die: in the call after this step it is killed, die_us after the call began
 *	    outer=1: a merge's line has "outer" too
 *	    ready: what it says in tr_sync_ready; saved: its parameters to begin with
 *
 * The problem: three layers of ELEMENTS parameters w, from w = 0 or what `saved` says; the peer of index m takes at step s the gradient
 * w - target(m, s, element) with a learning rate of 1/8; the loss is half the mean square of that. The targets are multiples of 1/64.
 *
 * Prints a JSON object a line: {"joined": peer}, {"round": ...} for each merge, {"done": ..., "outer": [...]} or {"error": ...}. With a batch also
 * {"used": [samples of a step]} and {"account": ...} before the end.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/sync.h"
#include "tests/system/peer_program.h"
#include "collectives/sync/lease.h"

enum { LAYERS = 3, ELEMENTS = 50 };

struct peer {
	tr_group *group;
	tr_sync *sync;
	float w[LAYERS][ELEMENTS];
	double pause_us, uneven, policy, deadline;
	double flip, part, tensor, die, die_us;
	double transport; /* 1: TCP, also on one host */
	double batch, from, stop, outer, ready, saved;
	bool shares;          /* a step takes pause_us a sample */
	uint64_t own, merges; /* steps since the last merge; merges */
	/* The outer parameters as the newest commit left them, which may be some steps before its merge, and their digest. */
	float committed[LAYERS * ELEMENTS];
	uint64_t agreed;
	float *follows; /* each step adds 1 + its index, as to an optimizer's moments; NULL: nothing follows */
};

static float target(unsigned index, uint64_t step, unsigned element)
{
	uint64_t x = (uint64_t)index * 7919 + step * 104729 + element * 1299709;

	return (float)(int)(x % 129) / 64 - 1 + (float)(element % 7) / 4;
}

/* The loss before the step. */
static double inner_step(struct peer *p, const struct tr_sync_now *now)
{
	float rate = (float)now->lr_scale / 8;
	double squares = 0;

	for (unsigned layer = 0; layer < LAYERS; layer++)
		for (unsigned e = 0; e < ELEMENTS; e++) {
			float *w = &p->w[layer][e];
			float off = *w - target(now->index, now->step + 1, layer * ELEMENTS + e);
			*w -= off * rate;
			squares += (double)off * off;
		}
	if (p->pause_us > 0)
		(void)usleep((useconds_t)(p->pause_us * (p->shares ? (double)now->samples : 1)));
	return squares / 2 / (LAYERS * ELEMENTS);
}

/* struct tr_sync_options, lr_probe. */
static double probe(void *arg, uint64_t batch)
{
	const struct peer *p = arg;
	double squares = 0;

	for (unsigned i = 0; i < LAYERS * ELEMENTS; i++) {
		float off = p->w[i / ELEMENTS][i % ELEMENTS] - target(0, batch, i);
		squares += (double)off * off;
	}
	return squares / 2 / (LAYERS * ELEMENTS);
}

static uint64_t digest(const struct peer *p)
{
	uint64_t sum = 14695981039346656037u;

	for (size_t layer = 0; layer < LAYERS; layer++)
		for (unsigned e = 0; e < ELEMENTS; e++) {
			uint32_t bits;
			memcpy(&bits, tr_sync_outer(p->sync, layer) + e, sizeof(bits));
			sum = (sum ^ bits) * 1099511628211u;
		}
	return sum;
}

static void look(struct peer *p)
{
	for (unsigned i = 0; i < LAYERS * ELEMENTS; i++)
		p->committed[i] = tr_sync_outer(p->sync, i / ELEMENTS)[i % ELEMENTS];
	p->agreed = digest(p);
}

/* What a cosmic ray, or a stray write, does. */
static void flip(struct peer *p)
{
	size_t tensor = (size_t)p->tensor;
	float *momentum = tr_sync_momentum(p->sync, tensor);
	void *at = (void *)(uintptr_t)(tr_sync_outer(p->sync, tensor) + ELEMENTS / 2);
	uint32_t bits, bit = 21;

	if (p->part == 1 && !momentum)
		exit(3);
	if (p->part == 1)
		at = momentum + ELEMENTS / 2;
	if (p->part == 2)
		at = tr_sync_lr_base(p->sync);
	if (p->part == 3) {
		at = &p->w[tensor][ELEMENTS / 2];
		bit = 30;
	}
	memcpy(&bits, at, sizeof(bits));
	bits ^= 1u << bit;
	memcpy(at, &bits, sizeof(bits));
}

static void disturb(struct peer *p, uint64_t step)
{
	if ((double)step == p->flip)
		flip(p);
	if ((double)step == p->die)
		(void)ualarm((useconds_t)p->die_us, 0); /* SIGALRM ends the process */
}

static void use(const struct peer *p, const struct tr_sync_now *now, struct tr_sync_work *did)
{
	did->samples = did->tokens = (double)now->samples;
	printf("{\"used\": [");
	for (uint64_t i = 0; i < now->samples; i++)
		printf("%s%" PRIu64, i > 0 ? ", " : "", tr_sync_sample(p->sync, i));
	printf("]}\n");
}

static void say_account(const struct lease_account *a)
{
	uint64_t held = 0, freed = 0;

	for (size_t i = 0; i < a->held_count; i++)
		held += a->held[i].to - a->held[i].from;
	for (size_t i = 0; i < a->free_count; i++)
		freed += a->free[i].to - a->free[i].from;
	printf("{\"account\": %" PRIu64 ", \"counted\": %" PRIu64 ", \"held\": %" PRIu64
	       ", \"free\": %" PRIu64 ", \"pieces\": %" PRIu64 ", \"dropped\": [",
	    a->cursor, lease_counted(a), held, freed, a->held_count);
	for (size_t i = 0; i < a->dropped_count; i++)
		printf("%s[%" PRIu64 ", %" PRIu64 ", %" PRIu64 "]", i > 0 ? ", " : "",
		    a->dropped[i].from, a->dropped[i].to, a->dropped[i].count);
	printf("]}\n");
}

static void say_outer(const float *outer)
{
	printf(", \"outer\": [");
	for (unsigned i = 0; i < LAYERS * ELEMENTS; i++)
		printf("%s%.9g", i > 0 ? ", " : "", (double)outer[i]);
	printf("]");
}

static void say_merge(const struct peer *p, const struct tr_sync_now *now)
{
	printf("{\"round\": %" PRIu64 ", \"step\": %" PRIu64
	       ", \"fragment\": %u, \"tokens\": %g, \"loss\": %.17g, \"digest\": "
	       "\"%016" PRIx64 "\", \"contributors\": %u, \"waited_s\": %g, \"flight_s\": "
	       "%g, \"bytes\": %" PRIu64 ", \"own\": %" PRIu64
	       ", \"lr_scale\": %.17g, \"lr_base\": %.17g, \"origin\": %" PRIu64,
	    now->merged_round, now->merged_step, now->fragment, now->tokens, now->sums[0],
	    p->agreed, now->contributors, now->waited_s, now->flight_s, now->bytes, p->own,
	    now->lr_scale, tr_sync_lr_base(p->sync)[0], tr_sync_origin(p->sync));
	if (p->outer > 0)
		say_outer(p->committed);
	printf("}\n");
}

static void say(struct peer *p, const struct tr_sync_now *now)
{
	if (now->event)
		printf("{\"event\": \"%s\"}\n", now->event);
	if (now->merged)
		say_merge(p, now);
	if (!now->finished)
		return;
	if (p->batch > 0)
		say_account(tr_sync_leases(p->sync));
	struct tr_stats stats = TR_STATS_INIT;
	(void)tr_stats_get(p->group, &stats, NULL);
	if (p->follows)
		printf("{\"follows\": %g}\n", (double)*p->follows);
	look(p);
	printf("{\"done\": %" PRIu64 ", \"digest\": \"%016" PRIx64 "\", \"sent\": %" PRIu64,
	    now->step, p->agreed, stats.tcp_sent_bytes + stats.shm_sent_bytes);
	say_outer(p->committed);
	printf("}\n");
}

static void set(struct peer *p, struct tr_sync_options *o, const char *word)
{
	const char *equals = strchr(word, '=');
	double value = equals ? strtod(equals + 1, NULL) : 0;
	size_t length = equals ? (size_t)(equals - word) : 0;
	const struct {
		const char *key;
		double *at;
	} doubles[] = { { "eta", &o->outer_lr }, { "mu", &o->outer_momentum },
		{ "alpha", &o->alpha }, { "beta", &o->feedback }, { "spread", &o->lr_spread },
		{ "temperature", &o->lr_temperature }, { "seconds", &o->inner_seconds },
		{ "grace", &o->grace_seconds }, { "pause_us", &p->pause_us },
		{ "uneven", &p->uneven }, { "policy", &p->policy }, { "deadline", &p->deadline },
		{ "flip", &p->flip }, { "part", &p->part }, { "tensor", &p->tensor },
		{ "die", &p->die }, { "die_us", &p->die_us }, { "transport", &p->transport },
		{ "batch", &p->batch }, { "from", &p->from }, { "stop", &p->stop },
		{ "outer", &p->outer }, { "ready", &p->ready }, { "saved", &p->saved } };

	for (size_t i = 0; i < sizeof(doubles) / sizeof(doubles[0]); i++)
		if (strlen(doubles[i].key) == length && strncmp(word, doubles[i].key, length) == 0) {
			*doubles[i].at = value;
			return;
		}
	if (strncmp(word, "H=", 2) == 0)
		o->inner_steps = (uint64_t)value;
	else if (strncmp(word, "P=", 2) == 0)
		o->fragments = (unsigned)value;
	else if (strncmp(word, "tau=", 4) == 0)
		o->overlap = (int64_t)value;
	else if (strncmp(word, "by_speed=", 9) == 0)
		o->by_speed = value > 0;
	else if (strncmp(word, "share_by_speed=", 15) == 0)
		o->share_by_speed = p->shares = value > 0;
	else if (strncmp(word, "weights=", 8) == 0)
		o->weights = (enum tr_sync_weights)(int)value;
	else if (strncmp(word, "carry=", 6) == 0)
		o->carry = value > 0;
	else if (strncmp(word, "lr_search=", 10) == 0)
		o->lr_search = value > 0;
	else if (strncmp(word, "quorum=", 7) == 0)
		o->quorum = (unsigned)value;
	else if (strncmp(word, "codec=", 6) == 0)
		o->codec = (enum tr_codec)(int)value;
	else
		exit(2);
}

static void run(struct peer *p, const struct tr_sync_options *options)
{
	struct tr_error error = { 0 };
	struct tr_sync_now now;
	struct tr_sync_tensor tensors[LAYERS] = {
		{ .name = "first", .data = p->w[0], .count = ELEMENTS, .layer = 0 },
		{ .name = "second", .data = p->w[1], .count = ELEMENTS, .layer = 1 },
		{ .name = "third", .data = p->w[2], .count = ELEMENTS, .layer = 2 }
	};
	for (unsigned i = 0; i < LAYERS * ELEMENTS; i++)
		p->w[i / ELEMENTS][i % ELEMENTS] = (float)p->saved;
	tr_status st = tr_sync_create(p->group, options, tensors, LAYERS, &p->sync, &error);

	if (st == TR_OK && options->lr_search) {
		p->follows = tr_alloc(p->group, sizeof(float));
		st = tr_sync_follow(p->sync, p->follows, 1, &error);
	}
	if (st == TR_OK && p->from > 0)
		tr_sync_leases(p->sync)->cursor = (uint64_t)p->from;
	if (st == TR_OK)
		st = tr_sync_ready(p->sync, (uint64_t)p->ready, &error);
	if (st == TR_OK)
		st = tr_sync_start(p->sync, &now, &error);
	if (st != TR_OK)
		fail("start", st, &error);
	printf("{\"started\": %" PRIu64 ", \"index\": %u, \"lr_scale\": %.17g, \"digest\": "
	       "\"%016" PRIx64 "\"}\n",
	    now.step, now.index, now.lr_scale, digest(p));
	look(p);
	while (!now.finished) {
		struct tr_sync_work did = { .tokens = p->uneven > 0 ? 1 + now.index : 1 };
		if (p->batch > 0)
			use(p, &now, &did);
		if (!p->shares || now.samples > 0)
			did.loss = inner_step(p, &now);
		if (p->follows)
			*p->follows += 1 + (float)now.index;
		p->own++;
		did.sums[0] = now.index + 1;
		disturb(p, now.step + 1);
		uint64_t before = digest(p);
		st = tr_sync_step(p->sync, &did, &now, &error);
		if (st != TR_OK)
			fail("step", st, &error);
		bool committed = digest(p) != before;
		if (committed)
			look(p);
		if (p->stop > 0 && !now.merged && committed) {
			printf("{\"stopped\": %" PRIu64 "}\n", p->merges + 1);
			(void)raise(SIGSTOP);
		}
		say(p, &now);
		p->merges += now.merged;
		if (now.merged)
			p->own = 0;
	}
	tr_sync_destroy(p->sync);
}

int main(int argc, char **argv)
{
	static const char *const modes[] = { "", "local_sgd", "diloco", "streaming", "eager",
		"hdet" };
	struct tr_join_options join = TR_JOIN_OPTIONS_INIT;
	struct tr_sync_options options = TR_SYNC_OPTIONS_INIT;
	struct tr_error error = { 0 };
	struct peer p = { .policy = TR_UNIFORM };
	if (argc < 6) {
		fprintf(stderr,
		    "usage: sync_peer MEMBERSHIP GROUP SIZE MODE STEPS [KEY=VALUE ...]\n");
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	join.membership = argv[1];
	join.name = argv[2];
	join.size = (unsigned)strtoul(argv[3], NULL, 10);
	for (unsigned mode = 1; mode < sizeof(modes) / sizeof(modes[0]); mode++)
		if (strcmp(argv[4], modes[mode]) == 0)
			options.mode = (enum tr_sync_mode)mode;
	options.steps = strtoull(argv[5], NULL, 10);
	for (int i = 6; i < argc; i++)
		set(&p, &options, argv[i]);
	options.batch = (uint64_t)p.batch;
	options.lr_probe = probe;
	options.lr_probe_arg = &p;
	join.policy = (enum tr_policy)(int)p.policy;
	join.transport = (enum tr_transport)(int)p.transport;
	join.op_deadline_ms = (uint32_t)p.deadline;
	tr_status st = tr_group_join(&join, &p.group, &error);
	if (st != TR_OK)
		fail("join", st, &error);
	printf("{\"joined\": %" PRIu64 "}\n", tr_peer_id(p.group));
	run(&p, &options);
	tr_group_leave(p.group);
	return 0;
}
