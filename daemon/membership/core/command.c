/* Command jobs: one failing rank ends the job; all exit 0: done. */
#include <stdio.h>
#include <string.h>

#include "daemon/membership/core/state.h"

void command_exited(struct membership *m, struct job *job, const struct peer *peer, int32_t code,
    const char *reason)
{
	(void)m;
	if (job->soft.failure[0] != '\0' || code == 0)
		return;
	(void)snprintf(job->soft.failure, sizeof(job->soft.failure), "rank %u on %s: %s",
	    peer->rank, peer->node_name, reason);
	job->soft.failure_code = code;
}

void command_think(struct membership *m, struct job *job)
{
	size_t live = 0, started = 0;
	const struct peer *lost = NULL;
	for (size_t i = 0; i < job->peers.count; i++) {
		const struct peer *peer = job->peers.items[i];
		live += state_peer_live(peer) ? 1 : 0;
		started += !state_peer_live(peer) || peer->soft.started ? 1 : 0;
		if ((peer->state == PEER_LOST || peer->soft.fate == PEER_LOST) &&
		    (lost == NULL || (lost->exit_code == 0 && peer->exit_code != 0)))
			lost = peer;
	}
	if (lost != NULL) {
		char text[TR_ERROR_TEXT_MAX];
		(void)snprintf(text, sizeof(text), "rank %u on %s: %s", lost->rank, lost->node_name,
		    lost->soft.reason[0] != '\0' ? lost->soft.reason : lost->reason);
		/* Which rank was first is forgotten when memberd dies before the job's end is in the log; how it ended is not. */
		bool exited = job->soft.failure[0] != '\0';
		int32_t code = lost->exit_code != 0 ? lost->exit_code : 1;
		job_append_moved(m, job, TRAIND__V1__JOB_STATE__JOB_STATE_FAILED,
		    exited ? job->soft.failure_code : code, exited ? job->soft.failure : text, NULL,
		    NULL);
	} else if (live == 0) {
		job_append_moved(m, job, TRAIND__V1__JOB_STATE__JOB_STATE_DONE, 0, "", NULL, NULL);
	} else if (started == job->peers.count &&
	    job->state == TRAIND__V1__JOB_STATE__JOB_STATE_STARTING) {
		job_append_moved(m, job, TRAIND__V1__JOB_STATE__JOB_STATE_RUNNING, 0, "", NULL,
		    NULL);
	}
}
