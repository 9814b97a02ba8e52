#include "daemon/plan/restage.h"

#include <string.h>

/* Of a step, less is not worth a look at what the change takes. */
#define PERCENT      10
#define DOUBLED_MOST 3

void restage_restart(struct restage *r)
{
	uint64_t tried = r->tried;

	memset(r, 0, sizeof(*r));
	r->tried = tried;
}

void restage_tried(struct restage *r)
{
	r->tried++;
}

bool restage_looks(const struct restage *r)
{
	return r->steps + 1 == RESTAGE_STEPS;
}

uint32_t restage_room(double free_bytes, uint32_t workers, double layer_bytes)
{
	double layers = free_bytes / (2 * layer_bytes * (workers > 0 ? workers : 1));

	return layers < RESTAGE_ROOM_MOST ? (uint32_t)layers : RESTAGE_ROOM_MOST;
}

static uint64_t head_of(const struct restage_rules *rules, uint32_t stage)
{
	return stage + 1 == rules->stages ? rules->head : 0;
}

/* Of a stage that takes `each` for RESTAGE_LAYER. */
static uint64_t takes(const struct restage_rules *rules, uint32_t stage, uint64_t each,
    uint32_t layers)
{
	return each * ((uint64_t)layers * RESTAGE_LAYER + head_of(rules, stage)) / RESTAGE_LAYER;
}

/* 1F1B: all microbatches through the slowest stage, and one through the others. */
static uint64_t step_ns(const struct restage_rules *rules, const uint64_t *stage_ns)
{
	uint64_t longest = 0, sum = 0, microbatches = rules->microbatches;

	for (uint32_t i = 0; i < rules->stages; i++) {
		longest = stage_ns[i] > longest ? stage_ns[i] : longest;
		sum += stage_ns[i];
	}
	return (microbatches - 1) * (longest / microbatches) + sum / microbatches;
}

static bool has_room(const struct restage_rules *rules, uint32_t stage, uint32_t layers)
{
	return layers < rules->layers[stage] || layers < rules->most[stage];
}

/* One layer after another to the stage that has it done first; as many as there are now. */
static void deal(const struct restage_rules *rules, const uint64_t *each, uint32_t *next)
{
	uint32_t left = 0;

	for (uint32_t i = 0; i < rules->stages; i++) {
		next[i] = rules->least;
		left += rules->layers[i] - rules->least;
	}
	for (; left > 0; left--) {
		uint32_t best = rules->stages;
		for (uint32_t i = 0; i < rules->stages; i++)
			if (has_room(rules, i, next[i]) &&
			    (best == rules->stages ||
			        takes(rules, i, each[i], next[i] + 1) <
			            takes(rules, best, each[best], next[best] + 1)))
				best = i;
		next[best]++; /* somebody has room: they are dealt now */
	}
}

/* Whether other layers take PERCENT less than what was measured. */
static bool wishes(const struct restage_rules *rules, const uint64_t *sums,
    struct restage_wish *wish)
{
	uint64_t each[TR_GROUP_PEERS_MAX], next[TR_GROUP_PEERS_MAX];

	for (uint32_t i = 0; i < rules->stages; i++) {
		wish->stage_ns[i] = sums[i] / RESTAGE_STEPS;
		each[i] = wish->stage_ns[i] * RESTAGE_LAYER /
		    ((uint64_t)rules->layers[i] * RESTAGE_LAYER + head_of(rules, i));
	}
	deal(rules, each, wish->layers);
	for (uint32_t i = 0; i < rules->stages; i++)
		next[i] = takes(rules, i, each[i], wish->layers[i]);
	wish->now_ns = step_ns(rules, wish->stage_ns);
	wish->next_ns = step_ns(rules, next);
	return 100 * wish->next_ns <= (100 - PERCENT) * wish->now_ns;
}

static uint64_t looks_needed(const struct restage *r)
{
	return (uint64_t)RESTAGE_LOOKS << (r->tried < DOUBLED_MOST ? r->tried : DOUBLED_MOST);
}

bool restage_note(struct restage *r, const struct restage_rules *rules, const uint64_t *nanoseconds,
    struct restage_wish *wish)
{
	uint64_t sums[TR_GROUP_PEERS_MAX];

	for (uint32_t i = 0; i < rules->stages; i++) {
		if (nanoseconds[i] == 0 || rules->layers[i] < rules->least) {
			restage_restart(r);
			return false;
		}
		r->nanoseconds[i] += nanoseconds[i];
	}
	if (++r->steps < RESTAGE_STEPS)
		return false;
	memcpy(sums, r->nanoseconds, sizeof(sums));
	memset(r->nanoseconds, 0, sizeof(r->nanoseconds));
	r->steps = 0;
	if (r->settled++ == 0)
		return false;
	r->looks = wishes(rules, sums, wish) ? r->looks + 1 : 0;
	if (r->looks < looks_needed(r))
		return false;
	restage_restart(r);
	return true;
}
