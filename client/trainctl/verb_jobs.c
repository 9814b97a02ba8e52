/* jobs, status, cancel */
#include <math.h>
#include <stdio.h>

#include "client/trainctl/job_json.h"
#include "client/trainctl/mesh_now.h"
#include "client/trainctl/peer_links.h"
#include "client/trainctl/print.h"
#include "client/trainctl/progress.h"
#include "client/trainctl/verbs.h"

#define DEADLINE_MS 10000

static void print_jobs(const struct config *config, const Traind__V1__ListJobsResponse *listed)
{
	static const char *const heads[] = { "JOB", "NAME", "STATE", "STEP", "LOSS", "TIME",
		"REASON" };
	struct print_table table = { .columns = 7 };
	char text[PRINT_FIGURE_MAX];
	for (size_t i = 0; i < table.columns; i++)
		print_cell(&table, "%s", heads[i]);
	for (size_t i = 0; i < listed->n_jobs; i++) {
		const Traind__V1__Job *job = listed->jobs[i];
		bool train = job->spec != NULL && job->spec->train != NULL && job->progress != NULL;
		print_cell(&table, "%llu", (unsigned long long)job->id);
		print_cell(&table, "%s", job->spec != NULL ? job->spec->name : "");
		print_cell(&table, "%s", print_state(job->state));
		if (train)
			print_cell(&table, "%llu/%llu", (unsigned long long)job->progress->step,
			    (unsigned long long)progress_steps(job));
		else
			print_cell(&table, "-");
		print_cell(&table, "%s", print_loss(train ? job->progress->loss : NAN, text));
		print_cell(&table, "%s", print_duration(print_seconds_of(job), text));
		print_cell(&table, "%s", job->reason);
	}
	print_table_out(&table, config->color);
}

int verb_jobs(struct verb_call *call)
{
	Traind__V1__ListJobsRequest request = TRAIND__V1__LIST_JOBS_REQUEST__INIT;
	Traind__V1__ListJobsResponse *listed = rpc_call(call->rpc, RPC_PATH("ListJobs"), &request,
	    &traind__v1__list_jobs_response__descriptor, DEADLINE_MS);
	if (listed == NULL)
		return rpc_complain(call->rpc);
	if (call->config->json) {
		struct json json = { 0 };
		json_array(&json);
		for (size_t i = 0; i < listed->n_jobs; i++)
			job_json_write(&json, listed->jobs[i], false);
		json_end(&json);
		print_json_text(&json);
	} else {
		print_jobs(call->config, listed);
	}
	traind__v1__list_jobs_response__free_unpacked(listed, NULL);
	return EXIT_OK;
}

static void print_plan(const Traind__V1__Job *job)
{
	const Traind__V1__JobPlan *plan = job->spec != NULL ? job->spec->plan : NULL;
	double step_s = mesh_now_step_s(job);
	if (plan == NULL)
		return;
	double planned_s = mesh_now_planned_s(job);
	(void)printf("plan        %s: a step of %.4g ms", plan->text, 1e3 * plan->step_s);
	if (job->progress != NULL && job->progress->plan != NULL)
		(void)printf("; planned anew, %.4g ms", 1e3 * planned_s);
	if (step_s > 0)
		(void)printf(", it takes %.4g ms (%+.0f %%)", 1e3 * step_s,
		    100 * (step_s / planned_s - 1));
	(void)printf("\n");
}

static void print_training(const Traind__V1__Job *job)
{
	const Traind__V1__Progress *progress = job->progress;
	char text[MESH_NOW_TEXT_MAX];
	if (job->spec == NULL || job->spec->train == NULL || progress == NULL)
		return;
	if (mesh_now_text(job, text, sizeof(text)))
		(void)printf("mesh        %s\n", text);
	(void)printf("step        %llu of %llu\n", (unsigned long long)progress->step,
	    (unsigned long long)progress_steps(job));
	(void)printf("loss        %s", print_loss(progress->loss, text));
	(void)printf(" (first %s)\n", print_loss(progress->first_loss, text));
	(void)printf("val loss    %s\n", print_loss(progress->val_loss, text));
	(void)printf("tokens/s    %s\n", print_rate(progress->tokens_per_s, text));
	if (progress->checkpoint != NULL && progress->checkpoint[0] != '\0')
		(void)printf("checkpoint  %s\n", progress->checkpoint);
	if (job->rounds != NULL)
		(void)printf("rounds      %llu committed, %llu recorded, %llu samples, %llu "
		             "replayed, %llu partial\n",
		    (unsigned long long)job->rounds->committed,
		    (unsigned long long)job->rounds->recorded,
		    (unsigned long long)job->rounds->samples,
		    (unsigned long long)job->rounds->replayed_rounds,
		    (unsigned long long)job->rounds->partial_rounds);
}

static void print_merges(const Traind__V1__Job *job)
{
	const Traind__V1__Merges *merges = job->progress != NULL ? job->progress->merges : NULL;
	char sent[PRINT_FIGURE_MAX], dense[PRINT_FIGURE_MAX], part[PRINT_FIGURE_MAX];
	if (merges == NULL)
		return;
	uint64_t all = progress_merges(job);
	(void)printf("merges      %llu", (unsigned long long)merges->count);
	if (all > 0)
		(void)printf(" of %llu", (unsigned long long)all);
	(void)printf("\n");
	(void)printf("sent        %s, %s of the %s of data parallel training\n",
	    print_bytes(merges->sent_bytes, sent),
	    print_part((double)merges->sent_bytes, (double)merges->dense_bytes, part),
	    print_bytes(merges->dense_bytes, dense));
	(void)printf("hidden      %.0f %% of the time that merges take\n", 100 * merges->hidden);
}

static const char *node_of(const Traind__V1__Job *job, uint64_t peer)
{
	for (size_t i = 0; i < job->n_peers; i++)
		if (job->peers[i]->id == peer)
			return job->peers[i]->node_name;
	return "?";
}

static void print_slowest(struct print_table *table, const Traind__V1__Job *job,
    const Traind__V1__Peer *peer)
{
	const Traind__V1__PeerLink *link = peer_links_slowest(peer);
	char text[PRINT_FIGURE_MAX];
	if (link == NULL) {
		for (unsigned i = 0; i < 3; i++)
			print_cell(table, "-");
		return;
	}
	print_cell(table, "to %llu (%s)", (unsigned long long)link->peer, node_of(job, link->peer));
	print_cell(table, "%s", peer_links_rate(link, text));
	print_cell(table, "%s", print_latency(link->rtt_s, text));
}

static bool knows_links(const Traind__V1__Job *job)
{
	size_t i = 0;
	while (i < job->n_peers && job->peers[i]->n_links == 0)
		i++;
	return i < job->n_peers;
}

static void print_peers(const struct config *config, const Traind__V1__Job *job)
{
	static const char *const heads[] = { "PEER", "RANK", "NODE", "PID", "STATE", "ROUND",
		"WAITS", "RTT", "SENDS" };
	static const char *const of_links[] = { "SLOWEST LINK", "RATE", "ROUND TRIP" };
	bool links = knows_links(job);
	struct print_table table = { .columns = links ? 13 : 10 };
	char text[PRINT_FIGURE_MAX];
	if (job->n_peers == 0)
		return;
	(void)putchar('\n');
	for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++)
		print_cell(&table, "%s", heads[i]);
	for (size_t i = 0; links && i < sizeof(of_links) / sizeof(of_links[0]); i++)
		print_cell(&table, "%s", of_links[i]);
	print_cell(&table, "REASON");
	for (size_t i = 0; i < job->n_peers; i++) {
		const Traind__V1__Peer *peer = job->peers[i];
		print_cell(&table, "%llu", (unsigned long long)peer->id);
		print_cell(&table, "%u", peer->rank);
		print_cell(&table, "%s", peer->node_name);
		if (peer->pid == 0) { /* lost, or not begun */
			print_cell(&table, "-");
			print_cell(&table, "%s", peer->state);
			print_cell(&table, "-");
			print_cell(&table, "-");
		} else {
			print_cell(&table, "%u", peer->pid);
			print_cell(&table, "%s", peer->state);
			print_cell(&table, "%llu", (unsigned long long)peer->round);
			print_cell(&table, "%.0f%%", 100 * peer->waits);
		}
		print_cell(&table, "%s", print_latency(peer->rtt_s, text));
		if (peer->bandwidth_bytes_per_s > 0)
			print_cell(&table, "%s/s",
			    print_bytes((uint64_t)peer->bandwidth_bytes_per_s, text));
		else
			print_cell(&table, "-");
		if (links)
			print_slowest(&table, job, peer);
		print_cell(&table, "%s", peer->slow ? "slow: the others wait for it" : peer->reason);
	}
	print_table_out(&table, config->color);
}

static void print_job(const struct config *config, const Traind__V1__Job *job)
{
	char text[PRINT_FIGURE_MAX];
	(void)printf("job         %llu  %s\n", (unsigned long long)job->id,
	    job->spec != NULL ? job->spec->name : "");
	(void)printf("state       %s%s%s\n", print_state(job->state),
	    job->reason != NULL && job->reason[0] != '\0' ? ": " : "",
	    job->reason != NULL ? job->reason : "");
	if (job->view != 0)
		(void)printf("view        %llu\n", (unsigned long long)job->view);
	if (job->started_unix_ms != 0)
		(void)printf("time        %s\n", print_duration(print_seconds_of(job), text));
	print_plan(job);
	print_training(job);
	print_merges(job);
	print_peers(config, job);
	if (job->n_events > 0)
		(void)printf("\n");
	for (size_t i = 0; i < job->n_events; i++)
		(void)printf("%s  %s\n", print_clock(job->events[i]->unix_ms, text),
		    job->events[i]->text);
	if (job->progress != NULL && job->progress->sample != NULL &&
	    job->progress->sample[0] != '\0')
		(void)printf("\nsample:\n%s\n", job->progress->sample);
}

static void print_either(const struct config *config, const Traind__V1__Job *job)
{
	struct json json = { 0 };
	if (!config->json) {
		print_job(config, job);
		return;
	}
	job_json_write(&json, job, true);
	print_json_text(&json);
}

int verb_status(struct verb_call *call)
{
	Traind__V1__GetJobRequest request = TRAIND__V1__GET_JOB_REQUEST__INIT;
	if (!verbs_job(call, &request.job_id))
		return EXIT_USAGE;
	Traind__V1__Job *job = rpc_call(call->rpc, RPC_PATH("GetJob"), &request,
	    &traind__v1__job__descriptor, DEADLINE_MS);
	if (job == NULL)
		return rpc_complain(call->rpc);
	print_either(call->config, job);
	traind__v1__job__free_unpacked(job, NULL);
	return EXIT_OK;
}

int verb_cancel(struct verb_call *call)
{
	Traind__V1__CancelJobRequest request = TRAIND__V1__CANCEL_JOB_REQUEST__INIT;
	request.reason = (char[]){ "by trainctl cancel" };
	if (!verbs_job(call, &request.job_id))
		return EXIT_USAGE;
	Traind__V1__Job *job = rpc_call(call->rpc, RPC_PATH("CancelJob"), &request,
	    &traind__v1__job__descriptor, DEADLINE_MS);
	if (job == NULL)
		return rpc_complain(call->rpc);
	if (call->config->json)
		print_either(call->config, job);
	else
		(void)printf("job %llu is %s%s%s\n", (unsigned long long)job->id,
		    print_state(job->state),
		    job->reason != NULL && job->reason[0] != '\0' ? ": " : "",
		    job->reason != NULL ? job->reason : "");
	traind__v1__job__free_unpacked(job, NULL);
	return EXIT_OK;
}
