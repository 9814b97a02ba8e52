#include "collectives/core/select.h"

#include <stdio.h>

/* Loopback, as measured on the development machine: used until a link was measured. */
#define LATENCY_UNMEASURED_S    25e-6
#define BANDWIDTH_UNMEASURED_BS 2e9
/* From here on a way is a long one: what is on the way takes longer than what handles it, so that blocks that follow one another hide
 * the one behind the other. Until such a link was measured it is taken for one of 100 Mbit/s: the first round shows what it is. */
#define LONG_LATENCY_S     0.5e-3
#define LONG_UNMEASURED_BS 12.5e6
/* A trip's length of what TCP sends after a pause: it is paced, by what was seen of the way before. Measured among four, 64 KiB and 1 MiB, round trips of 20 and 200 ms:
 * 1.1 to 1.35 times the way's own. */
#define LONG_TRIP 1.2
/* Where one member is slow, all send to it at once: what its way loses by that, against one sender. 4 MiB and a quarter of the rate: 1.13; 1 MiB and a tenth: 1.02. */
#define LONG_STREAMS_COST 1.1
/* Each member beyond two that sends to the same one at once costs a part of its way. Measured with 100 Mbit/s and 20 ms there and back, 1 MiB: 1.02 among four (1.21 with 16 MiB), 1.12 to 1.29 among
 * eight. */
#define LONG_CROWD_COST 0.04
/* And where all that comes is the others' inputs (a hub, one-shot). Measured with round trips of 20 and 200 ms, 64 KiB to 16 MiB: 1.04 among four, 1.02 to 1.14 among eight. */
#define LONG_INPUTS_COST 0.02
/* Memory of one host, and one message's way through two engines, on the same machine. */
#define HOST_LATENCY_S    5e-6
#define HOST_BANDWIDTH_BS 6e9
#define HANDLING_S        8e-6
#define HOST_CORES        2 /* at least: peers of one host share them */
/* Direct's CPU time beside the ring's where all share a host's caches and talk over sockets: n = 4 and 8, 1 to 64 MiB. */
#define STREAMS_COST 1.1
/* Bytes of inputs that one core adds up a second, of vectors that are in no cache. */
#define FOLD_BS 8e9

#define ALGORITHMS (TR_ONE_SHOT + 1)

static const char *const names[ALGORITHMS] = {
	[TR_AUTO] = "auto",
	[TR_RING] = "ring",
	[TR_STAR] = "star",
	[TR_DIRECT] = "direct",
	[TR_HIERARCHICAL] = "hierarchical",
	[TR_ONE_SHOT] = "one-shot",
};

const char *select_name(enum tr_algorithm algorithm)
{
	return (unsigned)algorithm < ALGORITHMS ? names[algorithm] : "?";
}

static double latency(const struct select_input *input)
{
	bool known = input->latency_s > 0;

	/* What heartbeats of one host show beyond the loopback's is how busy it is. */
	if (!known || (input->hosts == 1 && input->latency_s > LATENCY_UNMEASURED_S))
		return LATENCY_UNMEASURED_S;
	return input->latency_s;
}

bool select_long(double latency_s)
{
	return latency_s >= LONG_LATENCY_S;
}

static bool is_long(const struct select_input *input)
{
	return select_long(latency(input));
}

static double bandwidth(const struct select_input *input)
{
	if (input->bandwidth_bytes_per_s > 0)
		return input->bandwidth_bytes_per_s;
	return is_long(input) ? LONG_UNMEASURED_BS : BANDWIDTH_UNMEASURED_BS;
}

/* Until something that was sent has come. */
static double trip_s(const struct select_input *input)
{
	return is_long(input) ? LONG_TRIP * latency(input) : latency(input);
}

static double larger(double a, double b)
{
	return a > b ? a : b;
}

/* What the fullest of n members has when the op's segments are dealt out: part of the op. */
static double dealt(const struct select_input *input)
{
	uint64_t n = input->peers, of = input->segment_bytes;
	uint64_t segments = of > 0 ? (input->bytes + of - 1) / of : 0;

	if (segments == 0)
		return 1 / (double)n;
	uint64_t fullest = (segments + n - 1) / n;
	return (double)fullest / (double)segments;
}

/* A segment has to be there before it goes on. */
static double segment_s(const struct select_input *input)
{
	uint64_t bytes = input->segment_bytes < input->bytes ? input->segment_bytes : input->bytes;

	return (double)bytes / bandwidth(input);
}

/* Are there two levels at all? */
static bool has_levels(const struct select_input *input)
{
	return input->hosts > 1 && input->hosts < input->peers;
}

/* Who folds `shares` times the whole vector. */
static double fold_s(const struct select_input *input, double shares)
{
	return shares * (double)input->bytes / FOLD_BS;
}

static double hierarchical_s(const struct select_input *input, double send_s)
{
	double m = input->host_peers, hosts = input->hosts;
	double inside = 2 * (m - 1) / m * (double)input->bytes / HOST_BANDWIDTH_BS;

	return 2 * (trip_s(input) + HOST_LATENCY_S) + 2 * (m + hosts - 2) * HANDLING_S + inside +
	    2 * (hosts - 1) / hosts / m * send_s +
	    fold_s(input, (m - 1) / m + (hosts - 1) / hosts / m);
}

/* One-shot makes everybody handle as many messages as a hub does: on one host they take turns. */
static double crowd(const struct select_input *input)
{
	return input->host_peers > HOST_CORES ? (double)input->host_peers / HOST_CORES : 1;
}

/* All on one host: what everybody does at the same time, its cores do one after the other. */
static double turns(const struct select_input *input)
{
	return input->hosts == 1 ? crowd(input) : 1;
}

/* Everybody's inputs to one member. */
static double inputs_s(const struct select_input *input, double send_s)
{
	double n = input->peers, crowded = is_long(input) ? 1 + LONG_INPUTS_COST * (n - 2) : 1;

	return (n - 1) * crowded * send_s;
}

/* Either our link is never idle, or we wait two trips for the last input of a segment and its result, which goes to all others one after the other. */
static double direct_long_s(const struct select_input *input, double send_s)
{
	double n = input->peers, share = dealt(input), a = trip_s(input), last_s = segment_s(input);
	double load = LONG_STREAMS_COST * input->direct_load, tail_s = last_s;
	double given = LONG_STREAMS_COST * input->direct_given;
	double alike = 2 * (n - 1) / n;

	if (input->direct_load < 1.01 * alike && input->direct_given < 1.01 * alike / 2) {
		load = (1 + (n - 2) * share) * (1 + LONG_CROWD_COST * (n - 2));
		given = (n - 1) * share;
		tail_s = (n - 1) * last_s;
	}
	if (has_levels(input)) {
		load *= (n - input->host_peers) / (n - 1);
		given *= (n - input->host_peers) / (n - 1);
	}
	return larger(2 * a + given * send_s + tail_s, a + load * send_s + last_s) +
	    2 * (n - 1) * HANDLING_S + fold_s(input, (n - 1) / n);
}

/* Each passes on a block while the next one comes: of every step the slower of the two counts, the trip or the block. Where blocks take longer, what is sent never pauses, and a trip is as
 * long as the way. */
static double ring_long_s(const struct select_input *input, double send_s)
{
	double n = input->peers, block_s = dealt(input) * send_s;
	double a = (block_s < latency(input) ? trip_s(input) : latency(input)) + HANDLING_S;

	return (2 * n - 3) * larger(a + segment_s(input), block_s) + a + block_s +
	    (n - 1) / n * fold_s(input, 1);
}

/* Over a long way the hub's sum of the last segment goes to all others one after the other. */
static double star_s(const struct select_input *input, double send_s)
{
	double n = input->peers, hub = input->hub_bandwidth_bytes_per_s;
	double slower = hub > 0 ? bandwidth(input) / hub : 1; /* than the others' links, in time */
	double tail_s = is_long(input) ? (n - 1) * slower * segment_s(input) : 0;

	return 2 * trip_s(input) + 2 * (n - 1) * HANDLING_S +
	    larger(inputs_s(input, slower * send_s), send_s) + tail_s + fold_s(input, n - 1);
}

static double direct_s(const struct select_input *input, double send_s)
{
	if (is_long(input))
		return direct_long_s(input, send_s);
	double n = input->peers;
	double load = input->direct_load > 0 ? input->direct_load : 2 * (n - 1) / n;

	if (has_levels(input))
		load *= (n - input->host_peers) / (n - 1);
	if (input->hosts == 1 && input->sockets && input->peers > 2)
		load *= STREAMS_COST;
	return (1 + turns(input)) * latency(input) + 2 * (n - 1) * HANDLING_S +
	    turns(input) * (load * send_s + fold_s(input, (n - 1) / n));
}

static double one_shot_s(const struct select_input *input, double send_s)
{
	double n = input->peers;

	if (input->shown)
		return HOST_LATENCY_S + turns(input) * (HANDLING_S + fold_s(input, n - 1));
	return trip_s(input) + 2 * (n - 1) * HANDLING_S * crowd(input) +
	    turns(input) * (inputs_s(input, send_s) + fold_s(input, n - 1));
}

double select_cost_s(const struct select_input *input, enum tr_algorithm algorithm)
{
	double n = input->peers, a = trip_s(input), handling = 2 * (n - 1) * HANDLING_S;
	double send_s = (double)input->bytes / bandwidth(input);

	switch (algorithm) {
	case TR_STAR:
		return star_s(input, send_s);
	case TR_DIRECT:
		return direct_s(input, send_s);
	case TR_HIERARCHICAL:
		return hierarchical_s(input, send_s);
	case TR_ONE_SHOT:
		return one_shot_s(input, send_s);
	default:
		if (is_long(input) && !input->deterministic)
			return ring_long_s(input, send_s);
		return 2 * (n - 1) * a + handling +
		    (input->deterministic
		            ? 2 * send_s + fold_s(input, 1)
		            : turns(input) * (n - 1) / n * (2 * send_s + fold_s(input, 1)));
	}
}

static bool select_possible(const struct select_input *input, enum tr_algorithm algorithm)
{
	return algorithm != TR_HIERARCHICAL || (has_levels(input) && !input->deterministic);
}

static enum tr_algorithm select_as_asked(const struct select_input *input, char *reason,
    size_t bytes)
{
	bool possible = select_possible(input, input->wanted);

	if (bytes == 0) /* for every op: without the words */
		return possible ? input->wanted : TR_DIRECT;
	if (possible) {
		(void)snprintf(reason, bytes, "%s: as asked", select_name(input->wanted));
		return input->wanted;
	}
	(void)snprintf(reason, bytes, "direct: hierarchical was asked, but %s",
	    input->deterministic    ? "sums are to be taken in one order"
	        : input->hosts == 1 ? "all peers share one host"
	                            : "no two peers share a host");
	return TR_DIRECT;
}

static void select_words(const struct select_input *input, enum tr_algorithm chosen, char *reason,
    size_t bytes)
{
	char others[160];
	size_t at = 0;

	others[0] = '\0';
	for (unsigned other = TR_RING; other < ALGORITHMS; other++) {
		if (other == chosen || !select_possible(input, (enum tr_algorithm)other))
			continue;
		int wrote = snprintf(others + at, sizeof(others) - at, "%s%.3g ms (%s)",
		    at > 0 ? ", " : "", 1e3 * select_cost_s(input, (enum tr_algorithm)other),
		    select_name((enum tr_algorithm)other));
		if (wrote < 0 || at + (size_t)wrote >= sizeof(others))
			break;
		at += (size_t)wrote;
	}
	(void)snprintf(reason, bytes,
	    "%s: %.3g ms against %s for %.3g MB among %u peers, %.3g ms one way, %.3g MB/s%s%s",
	    select_name(chosen), 1e3 * select_cost_s(input, chosen), others,
	    (double)input->bytes * 1e-6, input->peers, 1e3 * latency(input),
	    bandwidth(input) * 1e-6, input->bandwidth_bytes_per_s > 0 ? "" : " (not measured yet)",
	    input->deterministic ? ", deterministic" : "");
}

enum tr_algorithm select_algorithm(const struct select_input *input, char *reason,
    size_t reason_bytes)
{
	char scratch[1];

	if (!reason) {
		reason = scratch;
		reason_bytes = 0;
	}
	if (input->peers < 2) {
		(void)snprintf(reason, reason_bytes, "ring: nobody to talk to");
		return TR_RING;
	}
	if (input->wanted != TR_AUTO && (unsigned)input->wanted < ALGORITHMS)
		return select_as_asked(input, reason, reason_bytes);
	enum tr_algorithm chosen = TR_RING;
	for (unsigned other = TR_STAR; other < ALGORITHMS; other++)
		if (select_possible(input, (enum tr_algorithm)other) &&
		    select_cost_s(input, (enum tr_algorithm)other) < select_cost_s(input, chosen))
			chosen = (enum tr_algorithm)other;
	if (reason_bytes > 0)
		select_words(input, chosen, reason, reason_bytes);
	return chosen;
}
