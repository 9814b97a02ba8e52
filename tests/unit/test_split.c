/* Layers over stages, against every split there is; and what cannot be split. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "common/rng.h"
#include "daemon/plan/split.h"

#define STAGES 5

struct search {
	const struct split_input *in;
	double worst_s, squares; /* the best so far */
	uint32_t tried;
};

/* Every way to give `left` layers to the stages from `stage` on. */
static void search_from(struct search *s, uint32_t stage, uint32_t left, double worst,
    double squares)
{
	if (stage == s->in->stages) {
		if (left > 0)
			return;
		s->tried++;
		if (worst < s->worst_s * (1 - 1e-12) ||
		    (worst <= s->worst_s * (1 + 1e-12) && squares < s->squares))
			s->squares = squares;
		s->worst_s = fmin(s->worst_s, worst);
		return;
	}
	for (uint32_t here = s->in->least; here <= left; here++) {
		double takes = split_stage_s(s->in, stage, here);
		if (s->in->most == NULL || here <= s->in->most[stage])
			search_from(s, stage + 1, left - here, fmax(worst, takes),
			    squares + takes * takes);
	}
}

static void against_every_split(void **state)
{
	unsigned splits = 0, none = 0;

	(void)state;
	for (uint64_t seed = 0; seed < 2000; seed++) {
		struct rng_key key = rng_key(seed, 21, 0);
		double speed[STAGES];
		uint32_t most[STAGES], layers[STAGES];
		struct split_input in = { .layers = 1 + (uint32_t)rng_below(key, 0, 0, 10),
			.stages = 1 + (uint32_t)rng_below(key, 0, 1, STAGES),
			.layer_s = 1,
			.embedding_s = 2 * rng_unit(key, 0, 2),
			.head_s = 4 * rng_unit(key, 0, 3),
			.stage_speed = seed % 2 == 0 ? speed : NULL,
			.most = seed % 3 == 0 ? most : NULL,
			.least = (uint32_t)(seed % 5 == 0) };
		struct search search = { &in, INFINITY, INFINITY, 0 };
		double worst = -1;
		for (uint32_t i = 0; i < STAGES; i++) {
			speed[i] = 0.5 + rng_unit(key, 1, i);
			most[i] = 1 + (uint32_t)rng_below(key, 2, i, 6);
		}
		search_from(&search, 0, in.layers, 0, 0);
		splits += search.tried;
		if (search.tried == 0) {
			assert_int_equal(split_layers(&in, layers, &worst, NULL), TR_EINVAL);
			assert_true(worst == -1);
			none++;
			continue;
		}
		assert_int_equal(split_layers(&in, layers, &worst, NULL), TR_OK);
		double squares = 0, slowest = 0;
		uint32_t sum = 0;
		for (uint32_t i = 0; i < in.stages; i++) {
			double takes = split_stage_s(&in, i, layers[i]);
			assert_true(
			    layers[i] >= in.least && (in.most == NULL || layers[i] <= most[i]));
			sum += layers[i];
			slowest = fmax(slowest, takes);
			squares += takes * takes;
		}
		assert_int_equal(sum, in.layers);
		assert_true(slowest == worst && fabs(worst - search.worst_s) <= 1e-12 * worst);
		assert_true(fabs(squares - search.squares) <= 1e-9 * squares);
	}
	assert_true(none > 0);
	print_message("2000 cases, %u splits tried, %u cases without one\n", splits, none);
}

/* 12 layers, a head as dear as two and a half: 4, 4, 3, 1 takes 4 everywhere but 3.5 behind; 3 each would take 5.5. */
static void a_dear_head(void **state)
{
	uint32_t layers[4];
	double worst;

	(void)state;
	assert_int_equal(split_layers(&(struct split_input){ .layers = 12,
	                                  .stages = 4,
	                                  .layer_s = 1,
	                                  .head_s = 2.5 },
	                     layers, &worst, NULL),
	    TR_OK);
	assert_true(worst == 4);
	assert_int_equal(layers[3], 1);
	assert_int_equal(layers[0] + layers[1] + layers[2], 11);
}

static void refused(struct split_input in, const char *words)
{
	struct tr_error error;
	uint32_t layers[STAGES];
	double worst;

	assert_int_equal(split_layers(&in, layers, &worst, &error), TR_EINVAL);
	assert_string_equal(error.text, words);
}

static void what_cannot_be_split(void **state)
{
	static const uint32_t little[] = { 2, 3, 0 };
	static const double stopped[] = { 1, 0, 1 };

	(void)state;
	refused((struct split_input){ .layers = 4, .layer_s = 1 }, "split: no stages");
	refused((struct split_input){ .layers = 2, .stages = 3, .layer_s = 1, .least = 1 },
	    "split: 2 layers for 3 stages of at least 1");
	refused((struct split_input){ .layers = 6, .stages = 3, .layer_s = 1, .most = little },
	    "split: 6 layers do not fit: the stages hold 5 together");
	refused((struct split_input){ .layers = 4,
	            .stages = 3,
	            .layer_s = 1,
	            .most = little,
	            .least = 1 },
	    "split: stage 2 holds 0 layers, at least 1 are wanted");
	refused((struct split_input){ .layers = 4,
	            .stages = 3,
	            .layer_s = 1,
	            .stage_speed = stopped },
	    "split: stage 1 has no speed");
	refused((struct split_input){ .layers = 4, .stages = 3, .layer_s = NAN },
	    "split: a time is below 0 or without end");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(against_every_split),
		cmocka_unit_test(a_dear_head),
		cmocka_unit_test(what_cannot_be_split),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
