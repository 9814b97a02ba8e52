#include "collectives/transport/board.h"

#include <string.h>

void board_put(struct board *board, uint64_t view, uint64_t number,
    const struct segment_header *head, const void *body, size_t bytes)
{
	struct board_entry *entry = &board->entries[number % BOARD_ENTRIES];

	atomic_store_explicit(&entry->stamp, 0, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
	segment_header_put(head, entry->head);
	atomic_store_explicit(&entry->body_bytes, bytes, memory_order_relaxed);
	if (bytes > 0)
		memcpy(entry->body, body, bytes);
	atomic_store_explicit(&entry->stamp, board_stamp(view, number + 1), memory_order_release);
}

void board_say_read(struct board *board, unsigned place, uint64_t view, uint64_t count)
{
	atomic_store_explicit(&board->read[place], board_stamp(view, count), memory_order_release);
}

bool board_has_read(const struct board *theirs, unsigned place, uint64_t view, uint64_t *count)
{
	uint64_t stamp = atomic_load_explicit(&theirs->read[place], memory_order_acquire);

	if (stamp < board_stamp(view, 0) || stamp >> BOARD_STAMP_BITS != view)
		return false;
	*count = stamp - board_stamp(view, 0);
	return true;
}

const struct board_entry *board_at(const struct board *theirs, uint64_t view, uint64_t number)
{
	const struct board_entry *entry = &theirs->entries[number % BOARD_ENTRIES];

	if (atomic_load_explicit(&entry->stamp, memory_order_acquire) !=
	    board_stamp(view, number + 1))
		return NULL;
	return entry;
}

size_t board_copy_body(const struct board_entry *entry, void *body)
{
	uint64_t bytes = atomic_load_explicit(&entry->body_bytes, memory_order_relaxed);

	if (bytes > BOARD_BODY_MAX)
		bytes = BOARD_BODY_MAX;
	memcpy(body, entry->body, bytes);
	return bytes;
}

bool board_still(const struct board_entry *entry, uint64_t view, uint64_t number)
{
	atomic_thread_fence(memory_order_acquire);
	return atomic_load_explicit(&entry->stamp, memory_order_relaxed) ==
	    board_stamp(view, number + 1);
}
