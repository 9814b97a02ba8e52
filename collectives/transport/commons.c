#include "collectives/transport/commons.h"

#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "collectives/transport/shm_memory.h"

/* What an op is called, where it is told. */
struct name {
	_Atomic uint64_t stamp; /* it is whole; 0 while it is written, and at first */
	_Atomic uint64_t round, attempt, sign, tag;
};

struct seat {
	_Alignas(64) _Atomic uint32_t bell; /* rung by anybody; who sleeps, sleeps on it */
	_Atomic uint32_t sleeps;            /* or is about to */
	_Alignas(64) struct name names[COMMONS_ENTRIES];
	_Alignas(64) struct name passed;
	struct name ended;                                 /* of whatever tag */
	_Alignas(64) _Atomic uint64_t read[COMMONS_SEATS]; /* up to which stamp of each seat's */
};

/* Apart from the inputs, which are large: what is looked at of all seats is a few pages. */
struct commons {
	_Atomic uint64_t peers[COMMONS_SEATS];
	struct seat seats[COMMONS_SEATS];
	_Alignas(4096) uint8_t bodies[COMMONS_SEATS][COMMONS_ENTRIES][COMMONS_BODY_MAX];
};

/* ---- the memory ---- */

tr_status commons_create(int *fd, struct tr_error *error)
{
	void *base;
	tr_status st = shm_memory_create("traind-commons", sizeof(struct commons), fd, &base, error);
	if (st == TR_OK)
		(void)munmap(base, sizeof(struct commons));
	return st;
}

tr_status commons_open(int fd, unsigned seat, uint64_t peer, struct commons_own *own,
    struct tr_error *error)
{
	void *base;
	if (seat >= COMMONS_SEATS)
		return tr_error_set(error, TR_EPROTO, "seat %u of %u in the commons", seat,
		    COMMONS_SEATS);
	tr_status st = shm_memory_map(fd, sizeof(struct commons), true, &base, error);
	if (st != TR_OK)
		return st;
	*own = (struct commons_own){ .commons = base, .seat = seat };
	struct seat *mine = &own->commons->seats[seat];
	for (unsigned i = 0; i < COMMONS_ENTRIES; i++) {
		uint64_t stamp = atomic_load(&mine->names[i].stamp);
		own->stamp = stamp > own->stamp ? stamp : own->stamp;
	}
	atomic_store(&mine->sleeps, 0);
	atomic_store(&own->commons->peers[seat], peer);
	return TR_OK;
}

void commons_close(struct commons_own *own)
{
	if (own->commons != NULL)
		(void)munmap(own->commons, sizeof(struct commons));
	own->commons = NULL;
}

uint64_t commons_peer(const struct commons_own *own, unsigned seat)
{
	return atomic_load(&own->commons->peers[seat]);
}

unsigned commons_seat_of(const struct commons_own *own, uint64_t peer)
{
	for (unsigned seat = 0; seat < COMMONS_SEATS; seat++)
		if (commons_peer(own, seat) == peer)
			return seat;
	return COMMONS_NO_SEAT;
}

/* ---- showing ---- */

static void write_name(struct name *name, const struct commons_op *op)
{
	atomic_store_explicit(&name->round, op->round, memory_order_relaxed);
	atomic_store_explicit(&name->attempt, op->attempt, memory_order_relaxed);
	atomic_store_explicit(&name->sign, op->sign, memory_order_relaxed);
	atomic_store_explicit(&name->tag, op->tag, memory_order_relaxed);
}

static bool is_of_attempt(const struct name *name, const struct commons_op *op)
{
	return atomic_load_explicit(&name->round, memory_order_relaxed) == op->round &&
	    atomic_load_explicit(&name->attempt, memory_order_relaxed) == op->attempt;
}

static bool is_of(const struct name *name, const struct commons_op *op)
{
	return is_of_attempt(name, op) &&
	    atomic_load_explicit(&name->tag, memory_order_relaxed) == op->tag;
}

uint64_t commons_unread(const struct commons_own *own, const struct commons_op *op)
{
	const struct commons_entry_use *use = &own->uses[(own->stamp + 1) % COMMONS_ENTRIES];
	uint64_t unread = 0;
	/* Of an earlier round, or of an attempt that was given up, nobody reads any more. */
	if (use->round != op->round || use->attempt != op->attempt)
		return 0;
	for (uint64_t left = use->readers; left != 0; left &= left - 1) {
		const struct seat *reader = &own->commons->seats[__builtin_ctzll(left)];
		if (atomic_load(&reader->read[own->seat]) < use->stamp)
			unread |= left & -left;
	}
	return unread;
}

void *commons_write(struct commons_own *own, const struct commons_op *op, uint64_t readers)
{
	uint64_t stamp = ++own->stamp;
	unsigned place = (unsigned)(stamp % COMMONS_ENTRIES);
	struct seat *mine = &own->commons->seats[own->seat];
	struct name *name = &mine->names[place];
	own->uses[place] = (struct commons_entry_use){ stamp, op->round, op->attempt, readers };
	/* Who still reads what it held, in an attempt that we have given up, is to see that before anything of it changes. */
	atomic_store(&name->stamp, 0);
	atomic_thread_fence(memory_order_seq_cst);
	write_name(name, op);
	return own->commons->bodies[own->seat][place];
}

void commons_show(struct commons_own *own)
{
	struct seat *mine = &own->commons->seats[own->seat];
	atomic_store(&mine->names[own->stamp % COMMONS_ENTRIES].stamp, own->stamp);
}

static void tell(struct name *name, const struct commons_op *op)
{
	uint64_t stamp = atomic_load_explicit(&name->stamp, memory_order_relaxed);
	atomic_store(&name->stamp, 0);
	atomic_thread_fence(memory_order_seq_cst);
	write_name(name, op);
	atomic_store(&name->stamp, stamp + 1);
}

void commons_pass(struct commons_own *own, const struct commons_op *op)
{
	tell(&own->commons->seats[own->seat].passed, op);
}

void commons_end(struct commons_own *own, const struct commons_op *op)
{
	static const struct commons_op none; /* rounds count from 1 */
	tell(&own->commons->seats[own->seat].ended, op != NULL ? op : &none);
}

/* ---- looking ---- */

/* What was read before this was not written since. */
#define STILL(name, was) \
	(atomic_thread_fence(memory_order_acquire), atomic_load(&(name)->stamp) == (was))

enum commons_found commons_look(const struct commons_own *own, unsigned seat,
    const struct commons_op *op, struct commons_shown *shown)
{
	const struct seat *theirs = &own->commons->seats[seat];
	/* First: what was shown before it is found. */
	uint64_t ended = atomic_load(&theirs->ended.stamp);
	bool never = ended != 0 && is_of_attempt(&theirs->ended, op) &&
	    STILL(&theirs->ended, ended);
	for (unsigned i = 0; i < COMMONS_ENTRIES; i++) {
		const struct name *name = &theirs->names[i];
		uint64_t stamp = atomic_load(&name->stamp);
		if (stamp == 0 || !is_of(name, op))
			continue;
		bool same = atomic_load_explicit(&name->sign, memory_order_relaxed) == op->sign;
		*shown = (struct commons_shown){ own->commons->bodies[seat][i], stamp };
		if (!STILL(name, stamp)) /* a part of one name, a part of the next */
			return COMMONS_NOT_YET;
		return same ? COMMONS_SHOWN : COMMONS_ELSEWHERE;
	}
	uint64_t passed = atomic_load(&theirs->passed.stamp);
	bool elsewhere = never ||
	    (passed != 0 && is_of(&theirs->passed, op) && STILL(&theirs->passed, passed));
	return elsewhere ? COMMONS_ELSEWHERE : COMMONS_NOT_YET;
}

bool commons_still(const struct commons_own *own, unsigned seat, const struct commons_shown *shown)
{
	const struct seat *theirs = &own->commons->seats[seat];
	return STILL(&theirs->names[shown->stamp % COMMONS_ENTRIES], shown->stamp);
}

void commons_read(struct commons_own *own, unsigned seat, const struct commons_shown *shown)
{
	atomic_store(&own->commons->seats[own->seat].read[seat], shown->stamp);
}

/* ---- sleeping ---- */

void commons_wake(const struct commons_own *own, uint64_t seats)
{
	for (uint64_t left = seats; left != 0; left &= left - 1) {
		struct seat *seat = &own->commons->seats[__builtin_ctzll(left)];
		if (atomic_load(&seat->sleeps) == 0)
			continue;
		(void)atomic_fetch_add(&seat->bell, 1);
		(void)syscall(SYS_futex, &seat->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
	}
}

uint32_t commons_drowse(struct commons_own *own)
{
	struct seat *mine = &own->commons->seats[own->seat];
	atomic_store(&mine->sleeps, 1);
	return atomic_load(&mine->bell);
}

void commons_sleep(struct commons_own *own, uint32_t bell, unsigned milliseconds)
{
	const struct timespec most = { milliseconds / 1000, (long)(milliseconds % 1000) * 1000000L };
	(void)syscall(SYS_futex, &own->commons->seats[own->seat].bell, FUTEX_WAIT, bell, &most,
	    NULL, 0);
}

void commons_rise(struct commons_own *own)
{
	atomic_store(&own->commons->seats[own->seat].sleeps, 0);
}
