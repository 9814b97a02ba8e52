/* The host's memory of a domain's leader, between the backend and the group: from tr_alloc, which is never given back while the
 * group lives, so it is used again; pinned once it has been used, where the backend gains by it. */
#include "collectives/backend/domain_internal.h"

#define BUFFERS_PIN_BYTES (64 << 10) /* what is smaller is copied as fast */

/* What the group has not borrowed is free again. */
void buffers_free(struct tr_domain *d)
{
	for (size_t i = 0; i < sizeof(d->buffers) / sizeof(*d->buffers); i++) {
		struct domain_buffer *buffer = &d->buffers[i];
		buffer->taken = false;
		for (unsigned k = 0; k < d->sealed_count; k++)
			buffer->taken |= d->sealed[k].host == buffer->memory;
	}
}

/* While the communicator is idle. Small ones are copied as fast. */
void buffers_pin(struct tr_domain *d)
{
	for (size_t i = 0; i < sizeof(d->buffers) / sizeof(*d->buffers); i++) {
		struct domain_buffer *buffer = &d->buffers[i];
		if (d->backend->pin == NULL || d->restless || buffer->pinned ||
		    buffer->unpinnable || buffer->bytes < BUFFERS_PIN_BYTES)
			continue;
		buffer->pinned = d->backend->pin(buffer->memory, buffer->bytes);
		buffer->unpinnable = !buffer->pinned;
	}
}

/* What the group has borrowed of it stays the group's. */
void buffers_forget_pinned(struct tr_domain *d)
{
	for (size_t i = 0; i < sizeof(d->buffers) / sizeof(*d->buffers); i++)
		if (d->buffers[i].pinned)
			d->buffers[i] = (struct domain_buffer){ 0 };
	d->restless = true;
}

void buffers_unpin(struct tr_domain *d)
{
	for (size_t i = 0; i < sizeof(d->buffers) / sizeof(*d->buffers); i++) {
		if (d->buffers[i].pinned)
			d->backend->unpin(d->buffers[i].memory);
		d->buffers[i].pinned = false;
	}
}

/* Of the least sufficient size. */
struct domain_buffer *buffers_take(struct tr_domain *d, size_t bytes)
{
	struct domain_buffer *best = NULL, *unused = NULL;
	for (size_t i = 0; i < sizeof(d->buffers) / sizeof(*d->buffers); i++) {
		struct domain_buffer *buffer = &d->buffers[i];
		if (buffer->taken)
			continue;
		if (buffer->memory == NULL)
			unused = buffer;
		else if (buffer->bytes >= bytes && (best == NULL || buffer->bytes < best->bytes))
			best = buffer;
	}
	if (best == NULL) {
		best = unused;
		if (best == NULL || (best->memory = tr_alloc(d->group, bytes)) == NULL)
			return NULL;
		best->bytes = bytes;
	}
	best->taken = true;
	return best;
}
