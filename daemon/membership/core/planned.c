/* Jobs that were planned: predicted beside actual steps, and why they differ. */
#include <stdio.h>
#include <string.h>

#include "daemon/membership/core/state.h"

/* Of their time that workers wait for others: so much more than planned is what makes steps longer. */
#define WAITS_MORE 0.15
/* A node that sends at less than this part of what was measured. */
#define SENDS_LESS 0.8

static bool is_of(const Traind__V1__Job *row, uint64_t node)
{
	for (size_t i = 0; i < row->n_peers; i++)
		if (row->peers[i]->node_id == node && strcmp(row->peers[i]->state, "active") == 0)
			return true;
	return false;
}

/* Between two of the job's nodes; NULL: none was measured. */
static const struct measured_link *slowest_link(const struct membership *m,
    const Traind__V1__Job *row)
{
	const struct measured_link *slowest = NULL;
	for (size_t i = 0; i < m->measured.count; i++) {
		const struct measured_link *link = m->measured.items[i];
		if (link->from == link->to || link->error[0] != '\0' || !is_of(row, link->from) ||
		    !is_of(row, link->to))
			continue;
		if (slowest == NULL || link->bandwidth_bytes_per_s < slowest->bandwidth_bytes_per_s)
			slowest = link;
	}
	return slowest;
}

static const char *name_of(const struct membership *m, uint64_t id)
{
	const struct node *node = state_node(m, id);
	return node != NULL ? node->hello->name : "?";
}

/* What heartbeats say of the sender lately, beside what the link had. */
static size_t say_link(const struct membership *m, const struct measured_link *link, char *words,
    size_t size)
{
	const struct node *from = state_node(m, link->from);
	double now = from != NULL ? from->soft.bandwidth : 0;
	int used = snprintf(words, size,
	    "; the slowest link is %s to %s, %.3g Mbit/s when measured", name_of(m, link->from),
	    name_of(m, link->to), 8e-6 * link->bandwidth_bytes_per_s);
	if (now > 0 && now < SENDS_LESS * link->bandwidth_bytes_per_s && (size_t)used < size)
		used += snprintf(words + used, size - (size_t)used, ", and %s sends at %.3g now",
		    name_of(m, link->from), 8e-6 * now);
	return (size_t)used;
}

static double mean_waits(const Traind__V1__Job *row)
{
	double sum = 0;
	unsigned count = 0;
	for (size_t i = 0; i < row->n_peers; i++) {
		bool counts = strcmp(row->peers[i]->state, "active") == 0;
		sum += counts ? row->peers[i]->waits : 0;
		count += counts;
	}
	return count > 0 ? sum / count : 0;
}

/* The likely reason why steps are longer. */
static void say_why(const struct membership *m, const Traind__V1__Job *row,
    const Traind__V1__JobPlan *plan, char *words, size_t size)
{
	double waits = mean_waits(row);
	double planned = (plan->exchange_s + plan->idle_s + plan->reduce_s) / plan->step_s;
	for (size_t i = 0; i < row->n_peers; i++) {
		if (!row->peers[i]->slow)
			continue;
		(void)snprintf(words, size, "the others wait for peer %llu (rank %u) on %.63s",
		    (unsigned long long)row->peers[i]->id, row->peers[i]->rank,
		    row->peers[i]->node_name);
		return;
	}
	if (waits < planned + WAITS_MORE) {
		(void)snprintf(words, size,
		    "workers compute longer than was measured (other work on their nodes?)");
		return;
	}
	int used = snprintf(words, size,
	    "workers wait for each other's messages %.0f %% of their time, planned were %.0f %%",
	    100 * waits, 100 * planned);
	const struct measured_link *link = slowest_link(m, row);
	if (link != NULL && used > 0 && (size_t)used < size)
		(void)say_link(m, link, words + used, size - (size_t)used);
}

/* Of the plan in force. */
static double planned_step_s(const struct job *job)
{
	const Traind__V1__PlanNow *now = job->soft.progress->plan;
	return now != NULL && now->step_s > 0 ? now->step_s : job->spec->plan->step_s;
}

static void tell(struct membership *m, const struct job *job, double actual_s)
{
	const Traind__V1__JobPlan *plan = job->spec->plan;
	double planned_s = planned_step_s(job);
	char why[320] = "", text[TR_ERROR_TEXT_MAX];
	double ratio = actual_s / planned_s;
	Traind__V1__Job *row = ratio > 1 ? membership_job(m, job->id, false) : NULL;
	if (row != NULL)
		say_why(m, row, plan, why, sizeof(why));
	(void)snprintf(text, sizeof(text),
	    "a step takes %.4g ms, %.0f %% %s than the %.4g ms that were planned%s%.300s",
	    1e3 * actual_s, 100 * (ratio > 1 ? ratio - 1 : 1 - ratio), ratio > 1 ? "more" : "less",
	    1e3 * planned_s, why[0] != '\0' ? ": " : "", why);
	facts_note(m, job, text);
	if (row != NULL)
		traind__v1__job__free_unpacked(row, NULL);
}

void planned_look(struct membership *m, struct job *job)
{
	const Traind__V1__Progress *now = job->soft.progress;
	if (job->spec->plan == NULL || now == NULL || !(now->tokens_per_s > 0))
		return;
	double actual_s = (double)job->spec->train->optimizer->batch_tokens / now->tokens_per_s;
	double planned_s = planned_step_s(job);
	if (job->soft.watched_step_s < planned_s || job->soft.watched_step_s > planned_s)
		job->soft.watch = (struct plan_watch){ 0 }; /* another plan */
	if (job->soft.watched_view != job->view)
		plan_watch_restart(&job->soft.watch, now->step);
	job->soft.watched_view = job->view;
	job->soft.watched_step_s = planned_s;
	if (plan_watch_look(&job->soft.watch, now->step, actual_s, planned_s))
		tell(m, job, actual_s);
}
