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
		/* Over pp: the first stage and the last alone. */
		double sent = collective_bytes_sent(entry->collective, (double)entry->bytes,
		    axis == MESH_PP ? 2 : strategy->mesh.size[axis]);
		bytes += sent *
		    (section == SECTIONS && entry->section == SECTION_LAYER ? layers : 1);
	}
	return bytes;
}

const char *collective_entry_text(const struct collective_entry *entry, char *text, size_t bytes)
{
	static const char *const sections[SECTIONS] = { "embedding", "layer", "head" };
	static const char *const phases[] = { "forward", "backward", "step" };
	char from[TENSOR_PLACEMENT_TEXT_MAX], to[TENSOR_PLACEMENT_TEXT_MAX];

	(void)snprintf(text, bytes, "%s %s: %s%s %s -> %s over %s: %s of %llu bytes",
	    sections[entry->section], phases[entry->phase], entry->gradient ? "gradient of " : "",
	    entry->tensor, tensor_placement_text(entry->from, from),
	    tensor_placement_text(entry->to, to), mesh_axis_name(entry->axis),
	    collective_name(entry->collective), (unsigned long long)entry->bytes);
	return text;
}
