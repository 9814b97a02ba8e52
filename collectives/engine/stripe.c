#include "collectives/engine/stripe.h"

#include "common/limits.h"

#define FAR_RTT_US     20000 /* from here on several from the beginning */
#define FAR_LANES      8
#define NEAR_RTT_US    2000   /* below it, and without losses, one stream fills a link */
#define LOSSY_RTT_US   500    /* losses on less are the machine's, not the link's */
#define SETTLE_RTTS    10     /* slow start of the new ones */
#define MEASURE_RTTS   15     /* of being busy: a sawtooth or two */
#define STATE_US_MIN   500000 /* of either: a few looks */
#define GAIN_MIN       1.1    /* more lanes have to be worth it */
#define FULL_RTTS      1.25   /* round trips of a path on which something queues */
#define CROWDED        0.03   /* of what is sent is sent again, while something queues */
#define PACKET_BYTES   1448
#define DOUBTFUL_MAX   1         /* tries that brought nothing and are followed by another one */
#define WORSE          0.75      /* than when more were tried in vain */
#define TRY_AGAIN_US   30000000u /* after a try that was not; doubled */
#define TRY_AGAIN_MOST 2         /* so often */

void stripe_init(struct stripe *stripe, unsigned forced)
{
	*stripe = (struct stripe){ .lanes = forced > 0 ? forced : 1,
		.good = 1,
		.forced = forced > 0 };
	if (stripe->lanes > TR_LANES_MAX)
		stripe->lanes = TR_LANES_MAX;
}

static void enter(struct stripe *stripe, int state)
{
	stripe->state = state;
	stripe->busy_us = stripe->busy_bytes = 0;
	stripe->resent = 0;
}

static void give_back(struct stripe *stripe, unsigned lanes, uint64_t now_us)
{
	unsigned doubled = stripe->failures < TRY_AGAIN_MOST ? stripe->failures : TRY_AGAIN_MOST;
	stripe->lanes = lanes;
	stripe->trying = false;
	stripe->doubtful = 0;
	stripe->rate_failed = stripe->rate_before;
	stripe->failures++;
	stripe->next_try_us = now_us + ((uint64_t)TRY_AGAIN_US << doubled);
	enter(stripe, STRIPE_SETTLING);
}

void stripe_refused(struct stripe *stripe, unsigned lanes, uint64_t now_us)
{
	if (lanes > 0 && lanes < stripe->lanes)
		give_back(stripe, lanes, now_us);
}

static void conclude(struct stripe *stripe, const struct stripe_sample *sample)
{
	double rate = (double)stripe->busy_bytes * 1e6 / (double)stripe->busy_us;
	bool far = sample->rtt_us >= NEAR_RTT_US ||
	    (sample->rtt_us >= LOSSY_RTT_US && stripe->resent > 0);
	bool full = sample->now_rtt_us >= FULL_RTTS * sample->rtt_us;
	bool gained = !stripe->trying || rate >= GAIN_MIN * stripe->rate_before;
	if (!gained && (full || stripe->doubtful >= DOUBTFUL_MAX)) {
		give_back(stripe, stripe->good, sample->now_us);
		return;
	}
	if (gained && stripe->trying)
		stripe->failures = 0;
	stripe->doubtful = gained ? 0 : stripe->doubtful + 1;
	stripe->good = gained ? stripe->lanes : stripe->good;
	stripe->trying = false;
	if (rate < WORSE * stripe->rate_failed)
		stripe->next_try_us = stripe->failures = 0;
	bool crowded = full &&
	    (double)stripe->resent * PACKET_BYTES > CROWDED * (double)stripe->busy_bytes;
	bool enough = full && stripe->lanes >= FAR_LANES; /* what fills it does not need more */
	if (!far || crowded || enough || stripe->lanes * 2 > TR_LANES_MAX ||
	    sample->now_us < stripe->next_try_us) {
		enter(stripe, STRIPE_MEASURING);
		return;
	}
	stripe->rate_before = rate;
	stripe->lanes *= 2;
	stripe->trying = true;
	enter(stripe, STRIPE_SETTLING);
}

static bool long_enough(const struct stripe *stripe, uint32_t rtt_us)
{
	uint64_t rtts = stripe->state == STRIPE_SETTLING ? SETTLE_RTTS : MEASURE_RTTS;
	return stripe->busy_us >= STATE_US_MIN && stripe->busy_us >= rtts * rtt_us;
}

/* Once, before there is anything to send. */
static void begin(struct stripe *stripe, const struct stripe_sample *sample)
{
	unsigned links = sample->links > 1 ? sample->links : 1;
	unsigned lanes = links < FAR_LANES ? FAR_LANES / (links * links) : 1;
	stripe->begun = true;
	if (!stripe->forced && sample->rtt_us >= FAR_RTT_US && stripe->lanes < lanes)
		stripe->lanes = stripe->good = lanes;
}

unsigned stripe_look(struct stripe *stripe, const struct stripe_sample *sample)
{
	uint64_t took_us = sample->now_us - stripe->looked_us;
	uint64_t bytes = sample->acked_bytes - stripe->looked_bytes;
	uint32_t resent = sample->retransmits - stripe->looked_retransmits;
	bool first = stripe->looked_us == 0;
	stripe->looked_us = sample->now_us;
	stripe->looked_bytes = sample->acked_bytes;
	stripe->looked_retransmits = sample->retransmits;
	if (!stripe->begun && sample->rtt_us > 0)
		begin(stripe, sample);
	if (stripe->forced || first || !sample->busy)
		return stripe->lanes;
	stripe->busy_us += took_us;
	stripe->busy_bytes += bytes;
	stripe->resent += resent;
	if (!long_enough(stripe, sample->rtt_us))
		return stripe->lanes;
	if (stripe->state == STRIPE_SETTLING)
		enter(stripe, STRIPE_MEASURING);
	else
		conclude(stripe, sample);
	return stripe->lanes;
}
