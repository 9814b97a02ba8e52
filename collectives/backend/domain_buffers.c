/* The host's memory of a domain's leader, between the backend and the group: from tr_alloc, which is never given back while the
 * group lives, so it is used again; pinned once it has been used, where the backend gains by it. */
#include <stdlib.h>

#include "collectives/backend/domain_internal.h"

#define BUFFERS_PIN_BYTES (64 << 10) /* what is smaller is copied as fast */
#define BUFFERS_MORE      64
#define BUFFERS_STEP      64 /* of sizes that grow, least */

/* What the group has not borrowed is free again. */
void domain_buffers_free(struct tr_domain *d)
{
	for (size_t i = 0; i < d->buffers_count; i++) {
		struct domain_buffer *buffer = &d->buffers[i];
		buffer->taken = false;
		for (unsigned k = 0; k < d->sealed_count; k++)
			buffer->taken |= d->sealed[k].host == buffer->memory;
	}
}

/* While the communicator is idle. Small ones are copied as fast. */
void domain_buffers_pin(struct tr_domain *d)
{
	for (size_t i = 0; i < d->buffers_count; i++) {
		struct domain_buffer *buffer = &d->buffers[i];
		if (buffer->memory == NULL || d->backend->pin == NULL || d->restless ||
		    buffer->pinned || buffer->unpinnable || buffer->bytes < BUFFERS_PIN_BYTES)
			continue;
		buffer->pinned = d->backend->pin(buffer->memory, buffer->bytes);
		buffer->unpinnable = !buffer->pinned;
	}
}

/* What the group has borrowed of it stays the group's. */
void domain_buffers_forget_pinned(struct tr_domain *d)
{
	for (size_t i = 0; i < d->buffers_count; i++)
		if (d->buffers[i].pinned)
			d->buffers[i] = (struct domain_buffer){ 0 };
	d->restless = true;
}

void domain_buffers_close(struct tr_domain *d)
{
	for (size_t i = 0; i < d->buffers_count; i++) {
		if (d->buffers[i].pinned)
			d->backend->unpin(d->buffers[i].memory);
	}
	free(d->buffers);
	d->buffers = NULL;
	d->buffers_count = 0;
}

/* Room for ops that become larger from round to round: what they have outgrown is not given back, so they outgrow it four times
 * while their size doubles, not each time. */
static size_t buffers_grown(size_t bytes)
{
	size_t step = BUFFERS_STEP;
	while (step < bytes / 8)
		step *= 2;
	return (bytes + step - 1) / step * step;
}

static struct domain_buffer *buffers_more(struct tr_domain *d)
{
	size_t count = d->buffers_count + BUFFERS_MORE;
	struct domain_buffer *more = realloc(d->buffers, count * sizeof(*more));
	if (more == NULL)
		return NULL;
	for (size_t i = d->buffers_count; i < count; i++)
		more[i] = (struct domain_buffer){ 0 };
	d->buffers = more;
	d->buffers_count = count;
	return &more[count - BUFFERS_MORE];
}

/* Of the least sufficient size. */
struct domain_buffer *domain_buffers_take(struct tr_domain *d, size_t bytes)
{
	struct domain_buffer *best = NULL, *unused = NULL;
	bool outgrown = false;
	for (size_t i = 0; i < d->buffers_count; i++) {
		struct domain_buffer *buffer = &d->buffers[i];
		if (buffer->taken)
			continue;
		if (buffer->memory == NULL)
			unused = buffer;
		else if (buffer->bytes < bytes)
			outgrown = true;
		else if (best == NULL || buffer->bytes < best->bytes)
			best = buffer;
	}
	if (best == NULL) {
		best = unused != NULL ? unused : buffers_more(d);
		bytes = outgrown ? buffers_grown(bytes) : bytes;
		if (best == NULL || (best->memory = tr_alloc(d->group, bytes)) == NULL)
			return NULL;
		best->bytes = bytes;
	}
	best->taken = true;
	return best;
}
