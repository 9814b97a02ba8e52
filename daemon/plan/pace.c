#include "daemon/plan/pace.h"

void pace_restart(struct pace *p)
{
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

uint64_t pace_step_ns(const struct pace *p)
{
	return p->steps > 0 ? p->ns / p->steps : 0;
}

uint64_t pace_cost_ns(const struct pace *p, uint64_t bytes)
{
	return p->change_ns > 0 ? p->change_ns : 2 * pace_step_ns(p) + PACE_NS_A_BYTE * bytes;
}
