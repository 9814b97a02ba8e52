#include "collectives/core/ring.h"

unsigned ring_start(uint32_t segment, unsigned n, const bool *contributes)
{
	for (unsigned i = 0; i < n; i++) {
		unsigned place = (unsigned)((segment + (uint64_t)i) % n);
		if (contributes[place])
			return place;
	}
	return n;
}

unsigned ring_distance(unsigned place, unsigned start, unsigned n)
{
	return place >= start ? place - start : place + n - start;
}

unsigned ring_next(unsigned place, unsigned n)
{
	return place + 1 == n ? 0 : place + 1;
}

unsigned ring_previous(unsigned place, unsigned n)
{
	return place == 0 ? n - 1 : place - 1;
}

bool ring_passes_result(unsigned distance, unsigned n)
{
	/* The sealer (n - 1) starts it; n - 2 is the last to get it. */
	return n > 1 && distance != n - 2;
}
