/* What is asked of a log (propagate.h). */
#include "daemon/plan/propagate.h"

#include <stdio.h>

uint32_t collective_log_count(const struct collective_log *log, enum graph_section_kind section,
    enum propagate_phase phase, enum collective collective, enum mesh_axis axis)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < log->count; i++) {
		const struct collective_entry *entry = &log->entries[i];
		count += (section == SECTIONS || entry->section == section) &&
		    entry->phase == phase &&
		    (collective == COLLECTIVES || entry->collective == collective) &&
		    entry->axis == axis;
	}
	return count;
}

double collective_entry_bytes_sent(const struct collective_entry *entry,
    const struct strategy *strategy)
{
	uint32_t dp = strategy->mesh.size[MESH_DP];
	uint32_t n = entry->axis == MESH_PP ? 2 : strategy->mesh.size[entry->axis];

	/* A piece, an n-th of it, to each of n - R workers. */
	if (entry->collective == COLLECTIVE_SEND_RECEIVE)
		return (double)entry->bytes * (n - entry->owners) / n;
	return collective_bytes_sent(entry->collective, (double)entry->bytes,
	    entry->with_dp ? n * dp : n);
}

double collective_log_bytes_sent(const struct collective_log *log, const struct strategy *strategy,
    enum graph_section_kind section, enum propagate_phase phase, enum collective collective,
    enum mesh_axis axis, uint32_t layers)
{
	double bytes = 0;

	for (uint32_t i = 0; i < log->count; i++) {
		const struct collective_entry *entry = &log->entries[i];
		if ((section != SECTIONS && entry->section != section) || entry->phase != phase ||
		    (collective != COLLECTIVES && entry->collective != collective) ||
		    entry->axis != axis)
			continue;
		bytes += collective_entry_bytes_sent(entry, strategy) *
		    (section == SECTIONS && entry->section == SECTION_LAYER ? layers : 1);
	}
	return bytes;
}

const char *collective_entry_text(const struct collective_entry *entry, char *text, size_t bytes)
{
	static const char *const sections[SECTIONS] = { "embedding", "layer", "head" };
	static const char *const phases[] = { "forward", "backward", "step" };
	char from[TENSOR_PLACEMENT_TEXT_MAX], to[TENSOR_PLACEMENT_TEXT_MAX];

	(void)snprintf(text, bytes, "%s %s: %s%s %s -> %s over %s%s: %s of %llu bytes",
	    sections[entry->section], phases[entry->phase], entry->gradient ? "gradient of " : "",
	    entry->tensor, tensor_placement_text(entry->from, from),
	    tensor_placement_text(entry->to, to), mesh_axis_name(entry->axis),
	    entry->with_dp ? " and dp" : "", collective_name(entry->collective),
	    (unsigned long long)entry->bytes);
	return text;
}
