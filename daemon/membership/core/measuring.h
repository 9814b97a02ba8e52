/* Links measured on request: which hosts, whose turn it is, and what came out. All of it is soft state: a memberd that restarts knows no figures.
 * Nodes of one host have the same links, and share its cards: one of them measures for all.
 *
 * In turns of pairs several streams cross the cable of a site, and each has a part of it. So behind these, where sites can be told apart (sites.h), comes what one stream has between two of them
 * alone, then what all that a site can send at once has together.
 */
#ifndef TR_MEMBERSHIP_CORE_MEASURING_H
#define TR_MEMBERSHIP_CORE_MEASURING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/limits.h"
#include "daemon/membership/core/sites.h"
#include "traind/v1/trainer.pb-c.h"

#define MEASURED_WORDS_MAX 320

struct measured_link {
	uint64_t from, to; /* nodes */
	double latency_s, bandwidth_bytes_per_s;
	double layer_s; /* within a host; 0: not measured */
	uint64_t at_ms, session;
	char error[MEASURED_WORDS_MAX]; /* empty: there are figures */
};

struct measuring_pair {
	uint64_t number;   /* names it to the nodes; 0: it is over */
	uint64_t from, to; /* nodes: who dials whom. The same: what its host shares */
	bool turned;       /* the other one dials now, since this one could not reach it */
	uint64_t deadline_ms;
	char error[MEASURED_WORDS_MAX]; /* of the first try */
};

/* Of hosts that share a cable, one node each. */
struct measured_site {
	uint32_t count;
	uint64_t nodes[TR_PROBE_HOSTS_MAX];
	double out_bytes_per_s, in_bytes_per_s; /* 0: nothing is shared that way */
};

enum measuring_step { MEASURE_HOSTS, MEASURE_PAIRS, MEASURE_ALONE, MEASURE_TOGETHER };

struct measuring {
	bool under_way;
	bool layers_only; /* links are known: what each host measures of itself is all */
	uint64_t session; /* how often links were measured */
	enum measuring_step step;
	uint32_t host_count, turn;             /* of this step */
	uint64_t hosts[TR_PROBE_HOSTS_MAX];    /* a node of each */
	Traind__V1__MeasureLinksRequest *wish; /* whose layers are measured; NULL: nobody's yet */
	uint32_t pair_count;
	struct measuring_pair pairs[TR_PROBE_HOSTS_MAX]; /* of this turn */
	uint64_t number;                                 /* the newest that was given */
	struct sites *sites;              /* from MEASURE_ALONE on; NULL: none, or no memory */
	double together_out, together_in; /* of this turn's pairs so far */
	bool together_failed;
	struct measured_site known[TR_PROBE_SITES_MAX]; /* by the last measurement that is over */
	uint32_t known_count;
	uint64_t requests[TR_PROBE_CALLERS_MAX];
	uint32_t request_count;
};

#endif
