#include "common/lockstep.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/relax.h"

#define NAP_MS 100 /* the longest, before a look at the clock */

struct member {
	_Alignas(64) _Atomic uint64_t met, agreed; /* how often */
	_Atomic uint32_t news;                     /* of these and `left`; who waits sleeps on it */
	_Atomic bool left;
};

struct page {
	struct member members[LOCKSTEP_MEMBERS_MAX];
	_Atomic bool
	    words[2]; /* of member 0, in turn: it is no more than one ahead of who reads the last one */
};

struct lockstep {
	struct page *page;
	unsigned self, members;
	unsigned looks; /* before it sleeps */
};

int lockstep_create(void)
{
	int fd = memfd_create("lockstep", MFD_CLOEXEC);
	if (fd >= 0 && ftruncate(fd, sizeof(struct page)) != 0) {
		(void)close(fd);
		return -1;
	}
	return fd;
}

tr_status lockstep_open(int page, unsigned self, unsigned members, struct lockstep **lockstep,
    struct tr_error *error)
{
	struct stat is;
	if (members > LOCKSTEP_MEMBERS_MAX || self >= members || fstat(page, &is) != 0 ||
	    is.st_size != (off_t)sizeof(struct page))
		return tr_error_set(error, TR_EINVAL, "no page to measure in step with others");
	struct lockstep *l = calloc(1, sizeof(*l));
	if (l == NULL)
		return tr_error_set(error, TR_ENOMEM, "out of memory");
	void *at = mmap(NULL, sizeof(struct page), PROT_READ | PROT_WRITE, MAP_SHARED, page, 0);
	if (at == MAP_FAILED) {
		free(l);
		return tr_error_set(error, TR_EIO, "mmap: %s", strerror(errno));
	}
	*l = (struct lockstep){ at, self, members, LOOKS_MOST };
	*lockstep = l;
	return TR_OK;
}

static void wake(struct member *member)
{
	atomic_fetch_add(&member->news, 1);
	(void)syscall(SYS_futex, &member->news, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void lockstep_close(struct lockstep *l)
{
	if (l == NULL)
		return;
	atomic_store(&l->page->members[l->self].left, true);
	wake(&l->page->members[l->self]);
	(void)munmap(l->page, sizeof(struct page));
	free(l);
}

static uint64_t now_ms(void)
{
	struct timespec now;
	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static bool has_come(const struct member *member, bool agreeing, uint64_t times)
{
	return atomic_load(agreeing ? &member->agreed : &member->met) >= times ||
	    atomic_load(&member->left);
}

/* Until there are other news than `seen`, for so long; or for no reason. */
static void nap(struct member *member, uint32_t seen)
{
	const struct timespec most = { 0, NAP_MS * 1000000L };
	(void)syscall(SYS_futex, &member->news, FUTEX_WAIT, seen, &most, NULL, 0);
}

static bool comes_while_looking(const struct member *member, bool agreeing, uint64_t times,
    unsigned looks)
{
	for (unsigned i = 0; i < looks; i++) {
		relax();
		if (has_come(member, agreeing, times))
			return true;
	}
	return false;
}

/* Until it has come so often; it has left, if it does not. Who looked for long sleeps: other work has the core then, and gives it back at once. */
static void wait_for(struct lockstep *l, struct member *member, bool agreeing, uint64_t times)
{
	uint64_t begun_ms = 0;
	if (has_come(member, agreeing, times))
		return;
	if (comes_while_looking(member, agreeing, times, l->looks)) {
		l->looks = l->looks < LOOKS_MOST ? 2 * l->looks : LOOKS_MOST;
		return;
	}
	l->looks = l->looks > LOOKS_LEAST ? l->looks / 2 : LOOKS_LEAST;
	for (;;) {
		uint32_t seen = atomic_load(&member->news);
		if (has_come(member, agreeing, times))
			return;
		nap(member, seen);
		if (begun_ms == 0)
			begun_ms = now_ms();
		else if (now_ms() - begun_ms > LOCKSTEP_PATIENCE_MS) {
			atomic_store(&member->left, true);
			wake(member);
		}
	}
}

/* Returns whether this member is still waited for. */
static bool come(struct lockstep *l, bool agreeing, unsigned first, unsigned end)
{
	struct member *members = l->page->members, *self = &members[l->self];
	_Atomic uint64_t *mine = agreeing ? &self->agreed : &self->met;
	uint64_t times = atomic_fetch_add(mine, 1) + 1;
	wake(self);
	for (unsigned i = first; i < end && !atomic_load(&self->left); i++)
		if (i != l->self)
			wait_for(l, &members[i], agreeing, times);
	return !atomic_load(&self->left);
}

void lockstep_meet(struct lockstep *l, unsigned first, unsigned end)
{
	if (l != NULL)
		(void)come(l, false, first, end < l->members ? end : l->members);
}

bool lockstep_agree(struct lockstep *l, bool word)
{
	if (l == NULL)
		return word;
	struct member *leader = &l->page->members[0], *self = &l->page->members[l->self];
	uint64_t times = atomic_load(&self->agreed) + 1;
	_Atomic bool *said = &l->page->words[times % 2];
	if (l->self == 0)
		atomic_store(said, word);
	/* It may have left since. */
	return come(l, true, 0, l->members) && atomic_load(&leader->agreed) >= times
	    ? atomic_load(said)
	    : word;
}
