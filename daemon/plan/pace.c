#include "daemon/plan/pace.h"

void pace_restart(struct pace *p, uint64_t replicas)
{
	if (p->steps > 0)
		p->before_replicas = replicas;
	p->before_ns = pace_step_ns(p);
	p->left_out = p->steps = p->ns = 0;
}

void pace_step(struct pace *p, uint64_t ns)
{
	if (ns == 0) /* nobody was there long enough to know */
		return;
	if (p->left_out < PACE_LEFT_OUT) {
		p->left_out++;
		return;
	}
	if (p->steps == 2 * PACE_STEPS) { /* what is long ago counts less */
		p->steps /= 2;
		p->ns /= 2;
	}
	p->steps++;
	p->ns += ns;
}

void pace_change(struct pace *p, uint64_t ns)
{
	if (ns > 0)
		p->change_ns = ns;
}

void pace_fill(struct pace *p, uint64_t ns)
{
	if (ns > 0)
		p->fill_ns = ns;
}

uint64_t pace_step_ns(const struct pace *p)
{
	return p->steps > 0 ? p->ns / p->steps : p->before_ns;
}

static uint64_t cost_of(const struct pace *p, uint64_t measured_ns, uint64_t bytes)
{
	return measured_ns > 0 ? measured_ns : 2 * pace_step_ns(p) + PACE_NS_A_BYTE * bytes;
}

uint64_t pace_cost_ns(const struct pace *p, uint64_t bytes)
{
	return cost_of(p, p->change_ns, bytes);
}

uint64_t pace_link_cost_ns(const struct pace *p, uint64_t bytes, uint64_t busiest,
    uint64_t ns_a_byte)
{
	uint64_t cost = pace_cost_ns(p, bytes), link = busiest * ns_a_byte;

	return cost > link ? cost : link;
}

uint64_t pace_fill_cost_ns(const struct pace *p, uint64_t bytes)
{
	return cost_of(p, p->fill_ns, bytes);
}
