/* Entries on their way: queues of them, first in, first out. Inside the store only. */
#ifndef TR_DAEMON_MEMBERSHIP_ENTRIES_H
#define TR_DAEMON_MEMBERSHIP_ENTRIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct entry {
	struct entry *next;
	uint64_t cookie, sequence;
	void *base; /* raft_malloc'ed, header included; NULL once C-Raft has it */
	size_t size;
	bool snapshot;
};

struct fifo {
	struct entry *first, **last;
};

void fifo_init(struct fifo *fifo);
void fifo_push(struct fifo *fifo, struct entry *entry); /* takes it */
struct entry *fifo_pop(struct fifo *fifo);              /* gives it; NULL: empty */
void fifo_free(struct fifo *fifo);
void entry_free(struct entry *entry);

#endif
