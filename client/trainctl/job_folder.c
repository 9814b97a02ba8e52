#include "client/trainctl/job_folder.h"

#include <stdio.h>
#include <string.h>

#include "client/trainctl/rpc.h"

#define DEADLINE_MS 10000

const char *job_folder(const Traind__V1__Job *job)
{
	bool has = job->spec != NULL && job->spec->train != NULL &&
	    job->spec->train->checkpoint != NULL;
	return has ? job->spec->train->checkpoint->dir : "";
}

bool job_folder_is_of(const Traind__V1__Job *job, uint64_t id, uint64_t submitted_unix_ms)
{
	return id == job->id && submitted_unix_ms == job->submitted_unix_ms;
}

const char *job_folder_words(const Traind__V1__Job *job, uint64_t id, const char *name,
    char words[JOB_FOLDER_WORDS_MAX])
{
	bool named = name != NULL && name[0] != '\0';
	(void)snprintf(words, JOB_FOLDER_WORDS_MAX, "job %llu%s%s%s%s", (unsigned long long)id,
	    named ? " ('" : "", named ? name : "", named ? "')" : "",
	    id == job->id ? " of another cluster" : "");
	return words;
}

static bool has_written(const Traind__V1__Job *job, bool saved)
{
	const Traind__V1__Progress *progress = job->progress;
	return progress != NULL && (saved ? progress->checkpoint[0] != '\0' : progress->step > 0);
}

int job_folder_check(struct verb_call *call, const Traind__V1__Job *job, bool saved)
{
	Traind__V1__ListJobsRequest request = TRAIND__V1__LIST_JOBS_REQUEST__INIT;
	Traind__V1__ListJobsResponse *listed = rpc_call(call->rpc, RPC_PATH("ListJobs"), &request,
	    &traind__v1__list_jobs_response__descriptor, DEADLINE_MS);
	const char *folder = job_folder(job);
	uint64_t later = 0;
	if (listed == NULL)
		return rpc_complain(call->rpc);
	for (size_t i = 0; i < listed->n_jobs && later == 0; i++) { /* newest first */
		const Traind__V1__Job *other = listed->jobs[i];
		if (other->id > job->id && strcmp(job_folder(other), folder) == 0 &&
		    has_written(other, saved))
			later = other->id;
	}
	traind__v1__list_jobs_response__free_unpacked(listed, NULL);
	if (later == 0)
		return EXIT_OK;
	return verbs_complain(EXIT_USAGE,
	    "job %llu: job %llu has the same checkpoint.dir and has written there since, on this "
	    "machine or another: give %llu, or the folder's path to take what is here: %s",
	    (unsigned long long)job->id, (unsigned long long)later, (unsigned long long)later,
	    folder);
}
