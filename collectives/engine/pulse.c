#include "collectives/engine/pulse.h"

#include <limits.h>

#include "collectives/engine/engine_internal.h"
#include "common/limits.h"
#include "common/log.h"

/* ---- pure ---- */

uint64_t pulse_echo_sent(struct pulse_echo *echo, uint64_t now_us)
{
	echo->sequence++;
	echo->sent_us[echo->sequence % PULSE_ECHOES] = now_us;
	return echo->sequence;
}

uint64_t pulse_echo_heard(const struct pulse_echo *echo, uint64_t sequence, uint64_t now_us)
{
	uint64_t sent_us = echo->sent_us[sequence % PULSE_ECHOES];
	if (sequence == 0 || sequence > echo->sequence ||
	    echo->sequence - sequence >= PULSE_ECHOES || now_us < sent_us)
		return 0;
	return now_us - sent_us;
}

void pulse_ear_promise(struct pulse_ear *ear, uint64_t now_ms)
{
	if (!ear->promised)
		ear->heard_ms = now_ms;
	ear->promised = true;
}

uint64_t pulse_ear_silent_ms(struct pulse_ear *ear, uint64_t bytes, bool reading, uint64_t now_ms)
{
	if (bytes != ear->bytes || !reading) {
		ear->bytes = bytes;
		ear->heard_ms = now_ms;
	}
	return ear->promised && now_ms > ear->heard_ms ? now_ms - ear->heard_ms : 0;
}

void pulse_ear_excuse(struct pulse_ear *ear, uint64_t ms)
{
	ear->heard_ms += ms;
}

unsigned pulse_turns(unsigned lanes, uint64_t interval_ms, uint64_t timeout_ms)
{
	uint64_t looks = timeout_ms * 3 / 5 / (interval_ms > 0 ? interval_ms : 1);
	uint64_t turns = looks > 1 ? looks - 1 : 1;
	return (unsigned)((lanes + turns - 1) / turns);
}

unsigned pulse_due(struct pulse_mouth *mouth, uint64_t acked_bytes, uint32_t rtt_us,
    uint64_t interval_ms, uint64_t timeout_ms)
{
	uint64_t step_ms = interval_ms > 0 ? interval_ms : 1;
	uint64_t between = timeout_ms / 3 / step_ms, answer = 1 + rtt_us / 1000 / step_ms;
	uint64_t due = between > answer ? between - answer : 1;
	if (acked_bytes != mouth->acked_bytes) {
		mouth->acked_bytes = acked_bytes;
		mouth->still = 0;
		return 0;
	}
	mouth->still++;
	return mouth->still >= due + answer ? UINT_MAX : mouth->still == due;
}

uint64_t pulse_clock_look(struct pulse_clock *clock, uint64_t interval_ms, uint64_t timeout_ms,
    uint64_t now_ms)
{
	uint64_t due_ms = clock->looked_ms + interval_ms;
	uint64_t late_ms = clock->looked_ms != 0 && now_ms > due_ms ? now_ms - due_ms : 0;
	clock->looked_ms = now_ms;
	return late_ms > timeout_ms / 4 ? late_ms : 0;
}

uint64_t pulse_timeout_ms(uint64_t configured_ms, double one_way_s)
{
	uint64_t far_ms = one_way_s > 0 && one_way_s < 3600 ? (uint64_t)(16000.0 * one_way_s) : 0;
	return far_ms > configured_ms ? far_ms : configured_ms;
}

/* ---- the engine's timer ---- */

static void on_pulse(uv_timer_t *timer)
{
	struct engine *engine = timer->data;
	uint64_t now_ms = uv_hrtime() / 1000000;
	uint64_t late_ms = pulse_clock_look(&engine->pulse.clock, engine->pulse.interval_ms,
	    engine->pulse.timeout_ms, now_ms);
	if (late_ms > 0 && engine->members != NULL)
		log_warn("engine",
		    "this process stood still for %.1f s: silence in that time is held against "
		    "nobody",
		    (double)late_ms / 1000.0);
	struct member *next;
	for (struct member *m = engine->members; m != NULL; m = next) {
		next = m->next;
		if (m->over || m->view == 0)
			continue;
		member_board_settle(m);
		if (m->over)
			continue;
		peer_link_look(m);
		inbound_judge(m, now_ms, late_ms);
		held_judge(m, now_ms, late_ms);
	}
}

void pulse_init(struct engine *engine)
{
	(void)uv_timer_init(&engine->loop, &engine->pulse.timer);
	engine->pulse.timer.data = engine;
	engine->pulse.timeout_ms = TR_HEARTBEAT_TIMEOUT_MS;
}

void pulse_start(struct engine *engine, uint32_t interval_ms, uint32_t timeout_ms)
{
	engine->pulse.timeout_ms = timeout_ms > 0 ? timeout_ms : TR_HEARTBEAT_TIMEOUT_MS;
	engine->pulse.interval_ms = interval_ms > 0 ? interval_ms : TR_HEARTBEAT_INTERVAL_MS;
	engine->pulse.clock.looked_ms = 0;
	(void)uv_timer_start(&engine->pulse.timer, on_pulse, 0, engine->pulse.interval_ms);
}

void pulse_stop(struct engine *engine)
{
	uv_close((uv_handle_t *)&engine->pulse.timer, NULL);
}

bool pulse_on(const struct engine *engine)
{
	return engine->pulse.interval_ms > 0;
}

uint64_t pulse_member_timeout_ms(const struct member *member)
{
	return pulse_timeout_ms(member->engine->pulse.timeout_ms, member->view_latency_s);
}
