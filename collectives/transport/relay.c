#include "collectives/transport/relay_internal.h"

#include <assert.h>
#include <stdlib.h>

#include "common/log.h"

#define LOOK_MS 500

/* ---- the thread ---- */

static void on_look(uv_timer_t *timer)
{
	relay_ends_look(timer->data);
}

/* How long it takes says nothing about where they differ. */
static bool same_token(const uint64_t a[2], const uint64_t b[2])
{
	volatile uint64_t differ = (a[0] ^ b[0]) | (a[1] ^ b[1]);
	return differ == 0;
}

bool relay_knows(const struct relay *relay, const struct relay_message *said)
{
	for (size_t i = 0; i < relay->grants_count; i++) {
		const struct relay_grant *grant = &relay->grants[i];
		if (grant->group == said->group && grant->from == said->from &&
		    grant->to == said->to)
			return same_token(grant->token, said->token);
	}
	return false;
}

static void stop(struct relay *relay)
{
	relay->stopping = true;
	relay_ends_close(relay, "the relay ends");
	while (relay->joints != NULL)
		relay_joint_break(relay->joints, "the relay ends");
	uv_close((uv_handle_t *)&relay->look, NULL);
	uv_close((uv_handle_t *)&relay->wake, NULL);
}

static void take_grants(struct relay *relay, struct relay_grant *grants, size_t count)
{
	struct relay_joint *next;
	free(relay->grants);
	relay->grants = grants;
	relay->grants_count = count;
	relay_ends_judge(relay);
	for (struct relay_joint *joint = relay->joints; joint != NULL; joint = next) {
		next = joint->next;
		if (!relay_knows(relay, &joint->ends[0]->said))
			relay_joint_break(joint, "this pair is relayed here no more");
	}
}

static void on_wake(uv_async_t *wake)
{
	struct relay *relay = wake->data;
	pthread_mutex_lock(&relay->lock);
	struct relay_visitor *visitor = relay->visitors;
	struct relay_grant *grants = relay->new_grants;
	size_t count = relay->new_grants_count;
	bool granted = relay->granted, ends = relay->stop;
	relay->visitors = NULL;
	relay->visitors_tail = &relay->visitors;
	relay->new_grants = NULL;
	relay->granted = false;
	pthread_mutex_unlock(&relay->lock);
	if (granted)
		take_grants(relay, grants, count);
	while (visitor != NULL) {
		struct relay_visitor *next = visitor->next;
		if (ends)
			stream_close(&visitor->stream);
		else
			relay_end_begin(relay, visitor->stream);
		free(visitor);
		visitor = next;
	}
	if (ends)
		stop(relay);
}

static void run(void *arg)
{
	struct relay *relay = arg;
	(void)uv_run(&relay->loop, UV_RUN_DEFAULT);
}

static tr_status start(struct relay *relay, struct tr_error *error)
{
	int rc = uv_loop_init(&relay->loop);
	if (rc != 0)
		return tr_error_set(error, TR_EIO, "cannot relay: %s", uv_strerror(rc));
	(void)uv_timer_init(&relay->loop, &relay->look);
	relay->look.data = relay->wake.data = relay;
	log_limit_init(&relay->drops, uv_now(&relay->loop));
	(void)uv_timer_start(&relay->look, on_look, LOOK_MS, LOOK_MS);
	rc = uv_async_init(&relay->loop, &relay->wake, on_wake);
	bool woken = rc == 0;
	if (rc == 0)
		rc = uv_thread_create(&relay->thread, run, relay);
	if (rc == 0) {
		relay->running = true;
		return TR_OK;
	}
	uv_close((uv_handle_t *)&relay->look, NULL);
	if (woken)
		uv_close((uv_handle_t *)&relay->wake, NULL);
	(void)uv_run(&relay->loop, UV_RUN_DEFAULT);
	(void)uv_loop_close(&relay->loop);
	return tr_error_set(error, TR_EIO, "cannot relay: %s", uv_strerror(rc));
}

/* ---- the interface ---- */

tr_status relay_create(unsigned joined_max, struct relay **relay, struct tr_error *error)
{
	struct relay *made = calloc(1, sizeof(*made));
	if (made == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory for a relay");
	made->joined_max = joined_max;
	made->visitors_tail = &made->visitors;
	pthread_mutex_init(&made->lock, NULL);
	*relay = made;
	return TR_OK;
}

void relay_destroy(struct relay *relay)
{
	if (relay == NULL)
		return;
	pthread_mutex_lock(&relay->lock);
	bool running = relay->running;
	relay->stop = true;
	if (running)
		(void)uv_async_send(&relay->wake);
	pthread_mutex_unlock(&relay->lock);
	if (running) {
		(void)uv_thread_join(&relay->thread);
		int rc = uv_loop_close(&relay->loop);
		assert(rc == 0);
	}
	for (struct relay_visitor *next, *v = relay->visitors; v != NULL; v = next) {
		next = v->next;
		stream_close(&v->stream);
		free(v);
	}
	pthread_mutex_destroy(&relay->lock);
	free(relay->new_grants);
	free(relay->grants);
	free(relay);
}

tr_status relay_grant(struct relay *relay, const struct relay_grant *grants, size_t count,
    struct tr_error *error)
{
	if (count > (size_t)TR_NODES_MAX * TR_RELAYED_PAIRS_MAX)
		return tr_error_set(error, TR_ELIMIT, "%zu pairs to be relayed", count);
	struct relay_grant *copy = calloc(count + 1, sizeof(*copy));
	if (copy == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory to relay %zu pairs", count);
	if (count > 0)
		memcpy(copy, grants, count * sizeof(*copy));
	pthread_mutex_lock(&relay->lock);
	tr_status st = count > 0 && !relay->running ? start(relay, error) : TR_OK;
	if (st == TR_OK && relay->running) {
		free(relay->new_grants);
		relay->new_grants = copy;
		relay->new_grants_count = count;
		relay->granted = true;
		copy = NULL;
		(void)uv_async_send(&relay->wake);
	}
	pthread_mutex_unlock(&relay->lock);
	free(copy);
	return st;
}

tr_status relay_grant_rows(struct relay *relay, Traind__Peer__Relayed *const *rows, size_t count,
    struct tr_error *error)
{
	struct relay_grant *grants = calloc(count + 1, sizeof(*grants));
	if (grants == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory to relay");
	for (size_t i = 0; i < count; i++)
		grants[i] = (struct relay_grant){ rows[i]->group, rows[i]->from, rows[i]->to,
			{ rows[i]->token_low, rows[i]->token_high } };
	tr_status st = relay_grant(relay, grants, count, error);
	free(grants);
	return st;
}

void relay_accept(struct relay *relay, struct stream stream)
{
	struct relay_visitor *visitor = calloc(1, sizeof(*visitor));
	pthread_mutex_lock(&relay->lock);
	bool taken = visitor != NULL && relay->running && !relay->stop;
	if (taken) {
		visitor->stream = stream;
		*relay->visitors_tail = visitor;
		relay->visitors_tail = &visitor->next;
		(void)uv_async_send(&relay->wake);
	}
	pthread_mutex_unlock(&relay->lock);
	if (taken)
		return;
	stream_close(&stream);
	free(visitor);
}

void relay_get_counters(struct relay *relay, struct relay_counters *counters)
{
	*counters = (struct relay_counters){ .joined = atomic_load(&relay->joined),
		.waiting = atomic_load(&relay->waiting),
		.calling = atomic_load(&relay->calling),
		.bytes = atomic_load(&relay->bytes),
		.refused = atomic_load(&relay->refused) };
}
