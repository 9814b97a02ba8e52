#include "daemon/plan/split.h"

#include <math.h>
#include <stdlib.h>

/* The best way to give so many layers to so many stages. */
struct best {
	double cost;   /* INFINITY: there is none */
	uint32_t last; /* layers of the last of these stages */
};

double split_stage_s(const struct split_input *input, uint32_t stage, uint32_t layers)
{
	double work = input->layer_s * layers;

	if (stage == 0)
		work += input->embedding_s;
	if (stage + 1 == input->stages)
		work += input->head_s;
	return input->stage_speed == NULL ? work : work / input->stage_speed[stage];
}

static tr_status check(const struct split_input *in, struct tr_error *error)
{
	uint64_t room = 0;

	if (in->stages == 0)
		return tr_error_set(error, TR_EINVAL, "split: no stages");
	if (!(in->layer_s >= 0) || !(in->embedding_s >= 0) || !(in->head_s >= 0) ||
	    isinf(in->layer_s + in->embedding_s + in->head_s))
		return tr_error_set(error, TR_EINVAL, "split: a time is below 0 or without end");
	if ((uint64_t)in->least * in->stages > in->layers)
		return tr_error_set(error, TR_EINVAL,
		    "split: %u layers for %u stages of at least %u", in->layers, in->stages,
		    in->least);
	for (uint32_t stage = 0; stage < in->stages; stage++) {
		if (in->stage_speed != NULL &&
		    !(in->stage_speed[stage] > 0 && isfinite(in->stage_speed[stage])))
			return tr_error_set(error, TR_EINVAL, "split: stage %u has no speed", stage);
		if (in->most != NULL && in->most[stage] < in->least)
			return tr_error_set(error, TR_EINVAL,
			    "split: stage %u holds %u layers, at least %u are wanted", stage,
			    in->most[stage], in->least);
		room += in->most != NULL ? in->most[stage] : in->layers;
	}
	if (room < in->layers)
		return tr_error_set(error, TR_EINVAL,
		    "split: %u layers do not fit: the stages hold %llu together", in->layers,
		    (unsigned long long)room);
	return TR_OK;
}

/* One stage more. `slowest_s` INFINITY: the cost is the slowest stage's time; else no stage may be slower than that, and the cost is
 * the sum of squares. (Both in one go would not be exact: a worse beginning can have the smaller sum in the end.) */
static void add_stage(const struct split_input *in, uint32_t stage, double slowest_s,
    const struct best *before, struct best *after)
{
	uint32_t most = in->most != NULL && in->most[stage] < in->layers ? in->most[stage]
	                                                                 : in->layers;

	for (uint32_t given = 0; given <= in->layers; given++) {
		after[given] = (struct best){ INFINITY, 0 };
		for (uint32_t here = in->least; here <= most && here <= given; here++) {
			double rest = before[given - here].cost,
			       takes = split_stage_s(in, stage, here);
			double cost = isinf(slowest_s) ? fmax(rest, takes) : rest + takes * takes;
			if (takes <= slowest_s && cost < after[given].cost)
				after[given] = (struct best){ cost, here };
		}
	}
}

/* table[stages given so far][layers given so far]. */
static double fill_table(const struct split_input *in, double slowest_s, struct best *table)
{
	size_t width = (size_t)in->layers + 1;

	table[0] = (struct best){ 0, 0 };
	for (uint32_t given = 1; given <= in->layers; given++)
		table[given] = (struct best){ INFINITY, 0 };
	for (uint32_t stage = 0; stage < in->stages; stage++)
		add_stage(in, stage, slowest_s, &table[stage * width], &table[(stage + 1) * width]);
	return table[in->stages * width + in->layers].cost;
}

tr_status split_layers(const struct split_input *input, uint32_t *layers_of, double *worst_s,
    struct tr_error *error)
{
	tr_status st = check(input, error);
	size_t width = (size_t)input->layers + 1;

	if (st != TR_OK)
		return st;
	struct best *table = calloc((input->stages + (size_t)1) * width, sizeof(*table));
	if (table == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory to split %u layers", input->layers);
	*worst_s = fill_table(input, INFINITY, table);
	(void)fill_table(input, *worst_s, table);
	uint32_t left = input->layers;
	for (uint32_t stage = input->stages; stage-- > 0;) {
		layers_of[stage] = table[(stage + 1) * width + left].last;
		left -= layers_of[stage];
	}
	free(table);
	return TR_OK;
}
