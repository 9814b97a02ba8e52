#include "collectives/core/select.h"

#include <stdio.h>

/* Loopback, as measured on the development machine: used until a link was measured. */
#define LATENCY_UNMEASURED_S    35e-6
#define BANDWIDTH_UNMEASURED_BS 2e9

static double latency(const struct select_input *input)
{
	return input->latency_s > 0 ? input->latency_s : LATENCY_UNMEASURED_S;
}

static double send_s(const struct select_input *input)
{
	double bandwidth = input->bandwidth_bytes_per_s > 0 ? input->bandwidth_bytes_per_s
	                                                    : BANDWIDTH_UNMEASURED_BS;
	return (double)input->bytes / bandwidth;
}

double select_ring_s(const struct select_input *input)
{
	double n = input->peers;
	double share = input->deterministic ? 1 : (n - 1) / n;
	return 2 * (n - 1) * latency(input) + 2 * share * send_s(input);
}

double select_star_s(const struct select_input *input)
{
	return 2 * latency(input) + (input->peers - 1) * send_s(input);
}

enum tr_algorithm select_algorithm(const struct select_input *input, char *reason,
    size_t reason_bytes)
{
	enum tr_algorithm chosen = input->wanted;
	char scratch[1];

	if (!reason) {
		reason = scratch;
		reason_bytes = sizeof(scratch);
	}
	if (input->peers < 2) {
		(void)snprintf(reason, reason_bytes, "ring: nobody to talk to");
		return TR_RING;
	}
	if (chosen == TR_RING || chosen == TR_STAR) {
		(void)snprintf(reason, reason_bytes, "%s: as asked",
		    chosen == TR_RING ? "ring" : "star");
		return chosen;
	}
	double ring = select_ring_s(input), star = select_star_s(input);
	chosen = star < ring ? TR_STAR : TR_RING;
	(void)snprintf(reason, reason_bytes,
	    "%s: %.3g ms against %.3g ms (%s) for %.3g MB among %u peers, %.3g ms one way, %.3g "
	    "MB/s%s",
	    chosen == TR_STAR ? "star" : "ring", 1e3 * (chosen == TR_STAR ? star : ring),
	    1e3 * (chosen == TR_STAR ? ring : star), chosen == TR_STAR ? "ring" : "star",
	    (double)input->bytes * 1e-6, input->peers, 1e3 * latency(input),
	    input->bandwidth_bytes_per_s > 0 ? input->bandwidth_bytes_per_s * 1e-6
	                                     : BANDWIDTH_UNMEASURED_BS * 1e-6,
	    input->deterministic ? ", deterministic" : "");
	return chosen;
}
