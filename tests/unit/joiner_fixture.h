/* Peers at work that hold a large state, and one that joins them through a port that does harm. All of it is static: a test program
 * includes this once.
 */
#ifndef TR_TESTS_JOINER_FIXTURE_H
#define TR_TESTS_JOINER_FIXTURE_H

#include "tests/unit/engine_fixture.h"
#include "tests/unit/frame_proxy.h"

struct big_state {
	uint8_t *data[3];
	size_t bytes[3];
};

/* Too little to ask several donors; and enough. */
static const size_t little[3] = { 3u << 20, 0, 1234567 },
                    much[3] = { 12u << 20, 1, (4u << 20) + 5 };
static const size_t *state_bytes = little;

static inline void declare_state(struct fx_host *host, struct big_state *big, bool filled)
{
	struct tr_error error = { 0 };
	for (unsigned i = 0; i < 3; i++) {
		char name[16];
		(void)snprintf(name, sizeof(name), "tensor %u", i);
		big->bytes[i] = state_bytes[i];
		big->data[i] = tr_alloc(host->group, state_bytes[i]);
		assert_non_null(big->data[i]);
		for (size_t k = 0; filled && k < state_bytes[i]; k++)
			big->data[i][k] = (uint8_t)(k * 31 + i);
		assert_int_equal(tr_state_add(host->group, name, big->data[i], state_bytes[i],
		                     &error),
		    TR_OK);
	}
	assert_int_equal(tr_state_add(host->group, "outside", big, 4, &error), TR_EINVAL);
}

/* One round of a peer with one small op. */
static inline tr_status small_round(struct fx_host *host, double *value, bool *received,
    struct tr_error *error)
{
	struct tr_round round;
	tr_status st = tr_round_begin(host->group, &round, error);
	if (st != TR_OK)
		return st;
	*value = 1;
	*received = round.receive_state;
	st = tr_allreduce(host->group, 7, value, 1, TR_F64, TR_SUM,
	    round.index < round.contributors ? TR_CONTRIBUTE : 0, error);
	if (st == TR_OK && round.receive_state)
		st = tr_state_receive(host->group, error);
	if (st == TR_OK)
		st = tr_wait(host->group, 7, error);
	if (st == TR_OK)
		st = tr_round_commit(host->group, NULL, &round, error);
	return st;
}

struct small {
	struct fx_host *host;
	pthread_t thread;
	double *value;
	bool stop, received;
	tr_status status;
	unsigned done;
	struct tr_error error;
};

static inline void *small_run(void *arg)
{
	struct small *small = arg;
	struct fx *fx = small->host->fx;
	for (;;) {
		bool received = false;
		small->status = small_round(small->host, small->value, &received, &small->error);
		pthread_mutex_lock(&fx->lock);
		small->received = small->received || received;
		small->done += small->status == TR_OK;
		pthread_cond_broadcast(&fx->changed);
		pthread_mutex_unlock(&fx->lock);
		if (small->status != TR_OK && small->status != TR_ERESTART)
			return NULL;
	}
}

static inline void small_start(struct small *small, struct fx_host *host)
{
	struct tr_error error = { 0 };
	*small = (struct small){ .host = host };
	small->value = tr_alloc(host->group, sizeof(double));
	if (tr_state_ready(host->group, 0, &error) != TR_OK)
		fail_msg("%s", error.text);
	assert_int_equal(pthread_create(&small->thread, NULL, small_run, small), 0);
}

/* Two peers at work, and a third that joins them through a port that does harm. */
struct harmed {
	struct fx *fx;
	struct frame_proxy proxy;
	struct big_state big[3];
	struct small small[3];
	unsigned running; /* callers not joined yet: the first so many */
};

static inline struct harmed *harmed_start(struct fp_harm harm)
{
	struct harmed *h = calloc(1, sizeof(*h));
	bool all[FX_HOSTS_MAX] = { true, true, true };
	assert_non_null(h);
	h->fx = fx_start(3, TRAIND__PEER__POLICY__POLICY_REPLAY,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	for (unsigned i = 0; i < 3; i++)
		fx_attach(&h->fx->hosts[i]);
	for (unsigned i = 0; i < 2; i++) {
		declare_state(&h->fx->hosts[i], &h->big[i], true);
		small_start(&h->small[i], &h->fx->hosts[i]);
	}
	fx_found(h->fx, 2);
	FX_WAIT(h->fx, h->small[0].done >= 1 && h->small[1].done >= 1);
	fp_start(&h->proxy, &h->fx->hosts[2], harm);
	declare_state(&h->fx->hosts[2], &h->big[2], false);
	small_start(&h->small[2], &h->fx->hosts[2]);
	h->running = 3;
	FX_WAIT(h->fx, h->fx->hosts[2].ready);
	fx_change_view(h->fx, all);
	return h;
}

static inline void harmed_stop(struct harmed *h)
{
	fp_stop(&h->proxy);
	for (unsigned i = 0; i < 3; i++)
		fx_host_stop(&h->fx->hosts[i]);
	for (unsigned i = 0; i < h->running; i++)
		assert_int_equal(pthread_join(h->small[i].thread, NULL), 0);
	fx_stop(h->fx);
	free(h);
}

#endif
