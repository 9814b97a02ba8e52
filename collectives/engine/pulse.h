/* Signs of life between members. A member says Pulses on the connections that it dialled to a peer and has nothing to say on. So a link on whose connections no byte comes for the
 * timeout says that nothing comes through: the process is stopped, its machine is gone, or the way is cut. Any byte counts, half a frame too, so slow but moving is never silent. A
 * reader that does not read (its core has no room, it stood still itself) holds nothing against anybody.
 *
 * A link of one connection has a pulse at every interval. One of several has one in a third of a timeout, on the next of them; and on all of them, at every interval, while what was said has no answer
 * from the other end's kernel, which tells of other connections too (pulse_due): so it does not matter how many of them are dead, and which. Eight connections that each had
 * their own within 0.6 of the timeout took 4.6 kB/s of a way of 150 ms, both ways. Whose reader judges each connection by itself (an older one, as far as we know), and what goes through a relay,
 * whose kernel answers in the other end's place, has these (pulse_turns). A connection that is dead alone is noticed by its sender, as it has no answer (lane_set_patience).
 *
 * These parts are pure: times come in. Who sends and closes: peer_link.c (peer_link_look), peer_inbound.c (inbound_judge);
 * pulse.c has the engine's timer too. Engine thread only.
 *
 *	struct pulse_ear ear = { 0 };
 *	pulse_ear_promise(&ear, now_ms);                  a Pulse came: from here on silence means something
 *	if (pulse_ear_silent_ms(&ear, bytes_in, true, now_ms) >= timeout_ms)
 *		conn_close(conn, "silent for ...");
 */
#ifndef TR_COLLECTIVES_ENGINE_PULSE_H
#define TR_COLLECTIVES_ENGINE_PULSE_H

#include <stdbool.h>
#include <stdint.h>

/* One link, as its reader hears it. */
struct pulse_ear {
	uint64_t bytes, heard_ms;
	bool promised; /* the other end sends pulses */
};

/* When the looks come late, it was us who stood still. */
struct pulse_clock {
	uint64_t looked_ms; /* 0: never */
};

#define PULSE_ECHOES \
	32 /* heartbeats whose answers may be under way: round trips of six seconds at the usual interval */

/* How long an answer takes. Over a long way several are under way at a time. */
struct pulse_echo {
	uint64_t sequence; /* of the newest; 0: none yet */
	uint64_t sent_us[PULSE_ECHOES];
};

/* The number of the one that is sent now. */
uint64_t pulse_echo_sent(struct pulse_echo *echo, uint64_t now_us);
/* Its answer is here: after so many microseconds; 0: it was never sent, or too long ago. */
uint64_t pulse_echo_heard(const struct pulse_echo *echo, uint64_t sequence, uint64_t now_us);

void pulse_ear_promise(struct pulse_ear *ear, uint64_t now_ms);
/* A look: `bytes` that came until now, whether we would have read more. 0: it moves, or nothing is promised. */
uint64_t pulse_ear_silent_ms(struct pulse_ear *ear, uint64_t bytes, bool reading, uint64_t now_ms);
/* By so much its silence was ours. */
void pulse_ear_excuse(struct pulse_ear *ear, uint64_t ms);

/* On how many of `lanes` idle connections a pulse is said at an interval, so that no two of one are more than 0.6 of a timeout apart, also where a turn is missed since
 * something else was said. */
unsigned pulse_turns(unsigned lanes, uint64_t interval_ms, uint64_t timeout_ms);

/* Of a link of several connections, as its sender sees it. */
struct pulse_mouth {
	uint64_t acked_bytes; /* at the look before */
	unsigned still;       /* looks since those were more, each of which found no more */
};

/* A look: so many bytes have an answer from the other end. On how many connections a pulse is said now: 0, 1 or UINT_MAX, all that are idle. */
unsigned pulse_due(struct pulse_mouth *mouth, uint64_t acked_bytes, uint32_t rtt_us,
    uint64_t interval_ms, uint64_t timeout_ms);

/* How long we stood still since the look before, if that is more than a quarter of the timeout; else 0. */
uint64_t pulse_clock_look(struct pulse_clock *clock, uint64_t interval_ms, uint64_t timeout_ms,
    uint64_t now_ms);

/* Silence after which a peer is given up: what memberd says, more over a long way (docs/architecture.md, "Health"). */
uint64_t pulse_timeout_ms(uint64_t configured_ms, double one_way_s);

struct engine;
struct member;

void pulse_init(struct engine *engine);
/* memberd's welcome: from now on, or with new numbers. */
void pulse_start(struct engine *engine, uint32_t interval_ms, uint32_t timeout_ms);
void pulse_stop(struct engine *engine);
bool pulse_on(const struct engine *engine);
/* Of this member's view. */
uint64_t pulse_member_timeout_ms(const struct member *member);

#endif
