#include "collectives/engine/stripe.h"

#include "common/limits.h"

#define NEAR_RTT_US  2000      /* below it, and without losses, one stream fills a link */
#define LOSSY_RTT_US 500       /* losses on less are the machine's, not the link's */
#define SETTLE_RTTS  10        /* slow start of the new ones */
#define GAIN_MIN     1.1       /* more lanes have to be worth it */
#define TRY_AGAIN_US 30000000u /* after a try that was not */

void stripe_init(struct stripe *stripe, unsigned forced)
{
	*stripe = (struct stripe){ .lanes = forced > 0 ? forced : 1, .forced = forced > 0 };
	if (stripe->lanes > TR_LANES_MAX)
		stripe->lanes = TR_LANES_MAX;
}

static void judge(struct stripe *stripe, double rate, uint64_t now_us)
{
	stripe->state = STRIPE_STEADY;
	if (rate >= GAIN_MIN * stripe->rate_before)
		return;
	stripe->lanes /= 2;
	stripe->next_try_us = now_us + TRY_AGAIN_US;
}

unsigned stripe_look(struct stripe *stripe, const struct stripe_sample *sample)
{
	uint64_t took_us = sample->now_us - stripe->looked_us;
	double rate = took_us == 0
	    ? 0
	    : (double)(sample->bytes_out - stripe->looked_bytes) * 1e6 / (double)took_us;
	bool first = stripe->looked_us == 0;
	bool far = sample->rtt_us >= NEAR_RTT_US ||
	    (sample->rtt_us >= LOSSY_RTT_US && sample->retransmits != stripe->looked_retransmits);
	stripe->looked_us = sample->now_us;
	stripe->looked_bytes = sample->bytes_out;
	stripe->looked_retransmits = sample->retransmits;
	if (stripe->forced || first || !sample->busy)
		return stripe->lanes;
	switch (stripe->state) {
	case STRIPE_STEADY:
		if (!far || stripe->lanes * 2 > TR_LANES_MAX || sample->now_us < stripe->next_try_us)
			break;
		stripe->rate_before = rate;
		stripe->lanes *= 2;
		stripe->settled_us = sample->now_us + SETTLE_RTTS * (uint64_t)sample->rtt_us;
		stripe->state = STRIPE_SETTLING;
		break;
	case STRIPE_SETTLING:
		if (sample->now_us >= stripe->settled_us)
			stripe->state = STRIPE_JUDGING; /* the interval that begins now is judged */
		break;
	case STRIPE_JUDGING:
		judge(stripe, rate, sample->now_us);
		break;
	}
	return stripe->lanes;
}
