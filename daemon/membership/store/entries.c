#include "daemon/membership/store/entries.h"

#include <raft.h>
#include <stdlib.h>

void fifo_init(struct fifo *fifo)
{
	fifo->first = NULL;
	fifo->last = &fifo->first;
}

void fifo_push(struct fifo *fifo, struct entry *entry)
{
	entry->next = NULL;
	*fifo->last = entry;
	fifo->last = &entry->next;
}

struct entry *fifo_pop(struct fifo *fifo)
{
	struct entry *entry = fifo->first;
	if (entry != NULL) {
		fifo->first = entry->next;
		if (fifo->first == NULL)
			fifo->last = &fifo->first;
	}
	return entry;
}

void entry_free(struct entry *entry)
{
	raft_free(entry->base);
	free(entry);
}

void fifo_free(struct fifo *fifo)
{
	for (struct entry *entry; (entry = fifo_pop(fifo)) != NULL;)
		entry_free(entry);
}
