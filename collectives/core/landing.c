#include "collectives/core/landing.h"

#include "collectives/core/bits.h"
#include "collectives/core/member.h"

static bool landing_safe(const struct group_core *core, const struct op *op, unsigned from)
{
	bool replay = core->view.policy == TRAIND__PEER__POLICY__POLICY_REPLAY;

	if (op->kind != OP_REDUCED)
		return false;
	return op->input || op->saved || (replay && op->roster->live[from]);
}

static void *landing_place(const struct group_core *core, uint64_t from,
    const struct segment_header *header, struct op_segment **segment)
{
	struct op *op = round_op(core, header->tag);
	unsigned who = op ? roster_find(op->roster, from) : ROSTER_NONE;

	if (!op || who == ROSTER_NONE || header->kind != SEGMENT_SEALED ||
	    header->encoding != SEGMENT_PLAIN || !landing_safe(core, op, who) ||
	    !path_awaits(core, op, who, header) || op->segment[header->segment].landing)
		return NULL;
	*segment = &op->segment[header->segment];
	op_save_input(op, header->segment);
	return op_result_row(op, header->segment);
}

struct group_buffer *landing_take(struct group_core *core, uint64_t from,
    const struct segment_header *header)
{
	struct op_segment *segment = NULL;
	struct group_buffer *buffer = buffer_get(&core->pool, header->bytes);
	void *place = buffer ? landing_place(core, from, header, &segment) : NULL;

	if (!place)
		return buffer;
	buffer->at = place;
	buffer->landing = segment;
	buffer->landed = true;
	tr_digest_begin(&buffer->hash);
	buffer->beside = core->landings;
	core->landings = buffer;
	segment->landing = buffer;
	return buffer;
}

void landing_revoke(struct op_segment *segment)
{
	struct group_buffer *buffer = segment->landing;

	if (!buffer)
		return;
	buffer->at = buffer->data;
	buffer->landing = NULL;
	buffer->revoked = true;
	segment->landing = NULL;
}

void landing_revoke_all(struct group_core *core)
{
	for (struct group_buffer *buffer = core->landings; buffer; buffer = buffer->beside)
		if (buffer->landing)
			landing_revoke(buffer->landing);
}

void landing_end(struct group_core *core, struct group_buffer *buffer)
{
	struct group_buffer **at = &core->landings;

	if (!buffer->landed)
		return;
	while (*at != buffer)
		at = &(*at)->beside;
	*at = buffer->beside;
	if (buffer->landing)
		buffer->landing->landing = NULL;
	buffer->landing = NULL;
	buffer->landed = false;
}
