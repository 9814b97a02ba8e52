/* Where a job goes on from: the checkpoint that its file names, or that memberd has heard of last; where a writer has put a newer one in its place, that; else the newest before it that this worker can use. All that hold the whole model get the state of those who took the newest, as any
 * joiner does, and so does who finds none; those with shards agree (sharded_back.c), and who has none gets a copy (sharded_fetch.c). */
#include <stdio.h>
#include <string.h>

#include "daemon/worker/trainer_inside.h"

/* other "": there is none, or (no memory) nobody looked for one. */
static void tell(struct trainer *t, const struct tr_error *why, const char *other, uint64_t steps,
    const char *where)
{
	char event[TR_ERROR_TEXT_MAX];
	if (other[0] != '\0')
		(void)snprintf(event, sizeof(event),
		    "checkpoint.resume: %.300s: %.120s is taken instead, %llu steps %s it",
		    why->text, other, (unsigned long long)steps, where);
	else
		(void)snprintf(event, sizeof(event), "checkpoint.resume: %.300s%s", why->text,
		    why->status == TR_ENOMEM ? "" : ": there is none before it");
	trainer_report_event(t, event);
}

/* In the place of one that is gone. What memberd names is of this job, and so is what counts instead of it: an earlier job may have left more steps in its folder. */
static bool is_newer(struct trainer *t, const char *path, char other[CHECKPOINT_PATH_MAX],
    uint64_t *steps)
{
	struct manifest manifest;
	if (!checkpoint_newer(path, other, steps))
		return false;
	return t->restarts == 0 || checkpoint_manifest(other, &manifest, NULL) != TR_OK ||
	    !trainer_is_another_job_s(t, &manifest);
}

tr_status trainer_resume(struct trainer *t, const char *resume, trainer_reads *reads,
    struct manifest *manifest, struct tr_error *error)
{
	char path[CHECKPOINT_PATH_MAX], other[CHECKPOINT_PATH_MAX];
	struct tr_error all;
	bool back = false; /* from there on only further back */
	tr_error_clear(&all);
	if (checkpoint_find(resume, path, NULL) !=
	    TR_OK) /* by its step's name: `latest` may be another one soon */
		(void)snprintf(path, sizeof(path), "%s", resume);
	for (;;) {
		struct tr_error why;
		uint64_t steps;
		tr_status status = reads(t, path, manifest, &why);
		if (status == TR_OK)
			return TR_OK;
		tr_error_add(&all, &why);
		bool newer = status != TR_ENOMEM && !back && is_newer(t, path, other, &steps);
		back = !newer;
		if (status == TR_ENOMEM || (back && !checkpoint_older(path, other, &steps))) {
			tell(t, &why, "", 0, "");
			return tr_error_set(error, status, "checkpoint.resume: %.480s", all.text);
		}
		tell(t, &why, other, steps, newer ? "after" : "before");
		if (back)
			checkpoint_set_aside(path, status);
		(void)snprintf(path, sizeof(path), "%s", other);
	}
}

tr_status trainer_check_start(const struct trainer *t, uint64_t round, bool receives,
    struct tr_error *error)
{
	if (t->nothing_read.status == TR_OK || round > 1 || receives)
		return TR_OK;
	*error = t->nothing_read;
	return error->status;
}
