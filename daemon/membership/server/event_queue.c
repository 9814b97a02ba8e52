/* The queue between the world and the core. */
#include "daemon/membership/server/memberd_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

#include "common/log.h"

/* Events stepped in one turn of the loop before input is looked at again. */
#define STEPS_PER_TURN 256

static uint64_t unix_ms(void)
{
	struct timespec now;
	(void)clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static uint64_t monotonic_ms(void)
{
	return uv_hrtime() / 1000000;
}

static void fresh_random(void *bytes, size_t size)
{
	while (getrandom(bytes, size, 0) < 0 && errno == EINTR)
		continue;
}

static void free_event(struct queued_event *item)
{
	if (item->owned != NULL)
		protobuf_c_message_free_unpacked(item->owned, NULL);
	free(item);
}

static void keep_awake(uv_idle_t *idle)
{
	(void)idle;
}

void event_queue_wake(struct memberd *memberd)
{
	(void)uv_idle_start(&memberd->queue.busy, keep_awake);
}

static void deadline_passed(uv_timer_t *timer)
{
	struct memberd *memberd = timer->data;
	/* Not before this turn's input is in the queue: after a pause of ours (SIGSTOP, a busy machine) the heartbeats that
	 * waited in the sockets must count before anybody is called silent. */
	memberd->queue.tick_due = true;
	event_queue_wake(memberd);
}

static void arm_timer(struct memberd *memberd)
{
	uint64_t deadline = membership_deadline_ms(memberd->core), now = monotonic_ms();
	if (deadline == UINT64_MAX) {
		(void)uv_timer_stop(&memberd->queue.timer);
		return;
	}
	uv_update_time(memberd->loop);
	(void)uv_timer_start(&memberd->queue.timer, deadline_passed,
	    deadline > now ? deadline - now : 0, 0);
}

void event_queue_broken(struct memberd *memberd)
{
	if (memberd->broken || memberd->stopping)
		return;
	memberd->broken = true;
	memberd->failed(memberd->arg,
	    "out of memory: what memberd knows may lack something that its log has, so it ends; "
	    "started again, it reads its log");
}

static bool goes_on(const struct memberd *memberd)
{
	return !memberd->stopping && !memberd->broken;
}

static void step_core(struct memberd *memberd, struct queued_event *item)
{
	struct tr_error error = { 0 };
	if (memberd->broken)
		return;
	item->event.now_ms = monotonic_ms();
	item->event.unix_ms = unix_ms();
	fresh_random(&item->event.random, sizeof(item->event.random));
	fresh_random(item->event.secret, sizeof(item->event.secret));
	item->event.reason = item->reason;
	tr_status st = membership_step(memberd->core, &item->event, &memberd->actions, &error);
	if (st == TR_ENOMEM)
		event_queue_broken(memberd);
	else if (st != TR_OK && item->event.kind == MEMBERSHIP_MESSAGE)
		node_conns_finish(memberd, item->event.conn,
		    error.text[0] != '\0' ? error.text : tr_status_text(st));
	else if (st != TR_OK)
		log_error("membership", "event %d: %s", item->event.kind,
		    error.text[0] != '\0' ? error.text : tr_status_text(st));
}

static void step(struct memberd *memberd, struct queued_event *item)
{
	step_core(memberd, item);
	if (goes_on(memberd))
		actions_carry_out(memberd);
	if (item->event.kind == MEMBERSHIP_MESSAGE)
		node_conns_stepped(memberd, item->event.conn);
	free_event(item);
}

/* What the log has applied is the core's state only once it is stepped. What follows from it is carried out in a later turn: this runs
 * inside a callback of the log. */
void event_queue_catch_up(struct memberd *memberd)
{
	struct event_queue *queue = &memberd->queue;
	struct queued_event **at = &queue->first;
	while (*at != NULL) {
		struct queued_event *item = *at;
		if (item->event.kind != MEMBERSHIP_APPLIED &&
		    item->event.kind != MEMBERSHIP_RESTORED) {
			at = &item->next;
			continue;
		}
		*at = item->next;
		step_core(memberd, item);
		free_event(item);
	}
	queue->last = at;
	event_queue_wake(memberd);
}

static void after_input(uv_check_t *check)
{
	struct memberd *memberd = check->data;
	struct event_queue *queue = &memberd->queue;
	bool stepped = memberd->actions.count > 0;
	if (goes_on(memberd))
		actions_carry_out(memberd);
	for (int i = 0; queue->first != NULL && i < STEPS_PER_TURN && goes_on(memberd); i++) {
		struct queued_event *item = queue->first;
		queue->first = item->next;
		if (queue->first == NULL)
			queue->last = &queue->first;
		step(memberd, item);
		stepped = true;
	}
	if (queue->tick_due && queue->first == NULL && goes_on(memberd)) {
		struct queued_event *tick = calloc(1, sizeof(*tick));
		queue->tick_due = false;
		if (tick != NULL) {
			tick->event.kind = MEMBERSHIP_TICK;
			step(memberd, tick);
		}
		stepped = true;
	}
	if (!goes_on(memberd)) {
		(void)uv_idle_stop(&queue->busy);
		return;
	}
	log_relay_turn(memberd);
	if (stepped)
		arm_timer(memberd);
	if (queue->first == NULL)
		(void)uv_idle_stop(&queue->busy);
}

void event_queue_init(struct memberd *memberd)
{
	struct event_queue *queue = &memberd->queue;
	queue->last = &queue->first;
	(void)uv_check_init(memberd->loop, &queue->check);
	(void)uv_idle_init(memberd->loop, &queue->busy);
	(void)uv_timer_init(memberd->loop, &queue->timer);
	queue->check.data = memberd;
	queue->timer.data = memberd;
	(void)uv_check_start(&queue->check, after_input);
}

void event_queue_push(struct memberd *memberd, const struct membership_event *event,
    ProtobufCMessage *owned, const char *reason)
{
	struct event_queue *queue = &memberd->queue;
	struct queued_event *item = goes_on(memberd) ? calloc(1, sizeof(*item)) : NULL;
	if (item == NULL) {
		event_queue_broken(memberd);
		if (owned != NULL)
			protobuf_c_message_free_unpacked(owned, NULL);
		return;
	}
	item->event = *event;
	item->owned = owned;
	(void)snprintf(item->reason, sizeof(item->reason), "%s", reason == NULL ? "" : reason);
	*queue->last = item;
	queue->last = &item->next;
	event_queue_wake(memberd);
}

void event_queue_close(struct memberd *memberd)
{
	struct event_queue *queue = &memberd->queue;
	while (queue->first != NULL) {
		struct queued_event *item = queue->first;
		queue->first = item->next;
		free_event(item);
	}
	queue->last = &queue->first;
	uv_close((uv_handle_t *)&queue->check, NULL);
	uv_close((uv_handle_t *)&queue->busy, NULL);
	uv_close((uv_handle_t *)&queue->timer, NULL);
}
