/* A child of fork has its parent's groups in memory and their channels in hand, but not the thread that works for them: whatever it did there
 * would be done in the parent's name. So each call looks whose the group is (coll_own).
 */
#include <pthread.h>
#include <unistd.h>

#include "collectives/engine/coll_group.h"

unsigned coll_forks;

static void forked(void)
{
	coll_forks++;
}

static void watch_forks(void)
{
	(void)pthread_atfork(NULL, NULL, forked);
}

void coll_take(struct tr_group *group)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	(void)pthread_once(&once, watch_forks);
	group->forks = coll_forks;
	group->pid = getpid();
}

tr_status coll_refuse_child(const struct tr_group *group, struct tr_error *error)
{
	return tr_error_set(error, TR_EINVAL,
	    "this group is of process %d: a child of fork has to join its own", (int)group->pid);
}
