#include "tests/wan/wire.h"

#define NS_BITS 8000000000ull /* nanoseconds a second, bits a byte */

__extension__ typedef unsigned __int128 wide;

enum { DRAW_LOSS, DRAW_JITTER };

static uint64_t time_of(const struct wire *wire, uint64_t bytes)
{
	return wire->shape.rate == 0 ? 0 : (uint64_t)((wide)bytes * NS_BITS / wire->shape.rate);
}

static uint64_t queue_bytes(const struct wire_shape *shape)
{
	uint64_t even = shape->rate / WIRE_QUEUE_DIV;
	if (shape->queue_bytes > 0)
		return shape->queue_bytes;
	return even > WIRE_QUEUE_MIN ? even : WIRE_QUEUE_MIN;
}

void wire_init(struct wire *wire, const struct wire_shape *shape, struct rng_key key)
{
	*wire = (struct wire){ .shape = *shape, .key = key };
}

uint64_t wire_backlog(const struct wire *wire, uint64_t now_ns)
{
	if (wire->shape.rate == 0 || wire->sent_ns <= now_ns)
		return 0;
	uint64_t bytes = (uint64_t)((wide)(wire->sent_ns - now_ns) * wire->shape.rate / NS_BITS);
	return bytes > wire->shape.burst_bytes ? bytes - wire->shape.burst_bytes : 0;
}

void wire_reshape(struct wire *wire, const struct wire_shape *shape, uint64_t now_ns)
{
	uint64_t waiting = wire_backlog(wire, now_ns);
	wire->shape = *shape;
	wire->sent_ns = waiting == 0 ? now_ns
	                             : now_ns + time_of(wire, waiting + shape->burst_bytes);
}

/* When it has left. What the bucket holds goes at once: the line may be ahead by so much. */
static uint64_t send(struct wire *wire, uint64_t now_ns, size_t bytes)
{
	uint64_t ahead_ns = time_of(wire, wire->shape.burst_bytes);
	if (wire->shape.rate == 0)
		return now_ns;
	if (wire->sent_ns < now_ns)
		wire->sent_ns = now_ns;
	wire->sent_ns += time_of(wire, bytes);
	return wire->sent_ns > now_ns + ahead_ns ? wire->sent_ns - ahead_ns : now_ns;
}

static uint64_t travel(struct wire *wire, uint64_t left_ns, uint64_t draw)
{
	const struct wire_shape *shape = &wire->shape;
	uint64_t least = shape->delay_ns > shape->jitter_ns ? shape->delay_ns - shape->jitter_ns
	                                                    : 0;
	uint64_t arrives = left_ns + shape->delay_ns;
	if (shape->jitter_ns > 0)
		arrives = left_ns + least +
		    rng_below(wire->key, DRAW_JITTER, draw,
		        shape->delay_ns + shape->jitter_ns - least + 1);
	if (!shape->reorder && arrives < wire->arrived_ns)
		arrives = wire->arrived_ns;
	if (arrives > wire->arrived_ns)
		wire->arrived_ns = arrives;
	return arrives;
}

static enum wire_fate fate(struct wire *wire, size_t bytes, uint64_t draw, uint64_t *arrives_ns)
{
	const struct wire_shape *shape = &wire->shape;
	uint64_t now_ns = wire->entered_ns;
	if (shape->blackhole || shape->cut)
		return WIRE_SWALLOWED;
	if (shape->rate > 0 && wire_backlog(wire, now_ns) + bytes > queue_bytes(shape))
		return WIRE_DROPPED;
	uint64_t left_ns = send(wire, now_ns, bytes);
	if (shape->loss > 0 && rng_unit(wire->key, DRAW_LOSS, draw) < shape->loss)
		return WIRE_LOST;
	*arrives_ns = travel(wire, left_ns, draw);
	wire->bytes += bytes;
	return WIRE_ARRIVES;
}

enum wire_fate wire_admit(struct wire *wire, uint64_t now_ns, size_t bytes, uint64_t *arrives_ns)
{
	uint64_t draw = 0;
	for (unsigned f = 0; f < WIRE_FATES; f++)
		draw += wire->packets[f];
	if (now_ns > wire->entered_ns)
		wire->entered_ns = now_ns;
	enum wire_fate met = fate(wire, bytes, draw, arrives_ns);
	wire->packets[met]++;
	return met;
}
