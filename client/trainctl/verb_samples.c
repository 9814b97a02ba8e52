/* Which samples of a job were used: one line if every one was or will be, else epoch by epoch. */
#include <stdio.h>

#include "client/trainctl/print.h"
#include "client/trainctl/verbs.h"
#include "common/json.h"

#define DEADLINE_MS 10000

typedef unsigned long long number;

static void json_epoch(struct json *json, const Traind__V1__SampleEpoch *epoch)
{
	json_object(json);
	json_key_uint(json, "epoch", epoch->epoch);
	json_key_uint(json, "through", epoch->through);
	json_key_uint(json, "counted", epoch->counted);
	json_key_uint(json, "in_flight", epoch->in_flight);
	json_key_uint(json, "dropped", epoch->dropped);
	json_key_uint(json, "left", epoch->left);
	json_key(json, "ranges");
	json_array(json);
	for (size_t i = 0; i < epoch->n_ranges; i++) {
		const Traind__V1__SampleRange *range = epoch->ranges[i];
		json_object(json);
		json_key_uint(json, "from", range->from);
		json_key_uint(json, "to", range->to);
		json_key_uint(json, "count", range->count);
		json_key_uint(json, "peer", range->peer);
		json_key_uint(json, "round", range->round);
		json_key(json, "cause");
		json_string(json, range->cause);
		json_end(json);
	}
	json_end(json);
	json_end(json);
}

static void print_json(const Traind__V1__Samples *samples)
{
	struct json json = { 0 };
	json_object(&json);
	json_key_uint(&json, "job", samples->job_id);
	json_key_bool(&json, "known", samples->known);
	json_key_uint(&json, "round", samples->round);
	json_key_uint(&json, "per_epoch", samples->per_epoch);
	json_key_bool(&json, "cut", samples->cut);
	json_key_uint(&json, "anew", samples->anew);
	json_key(&json, "epochs");
	json_array(&json);
	for (size_t i = 0; i < samples->n_epochs; i++)
		json_epoch(&json, samples->epochs[i]);
	json_end(&json);
	json_end(&json);
	print_json_text(&json);
}

/* Nothing was dropped, and only the last epoch is not done. */
static bool all_is_well(const Traind__V1__Samples *samples)
{
	for (size_t i = 0; i < samples->n_epochs; i++) {
		const Traind__V1__SampleEpoch *epoch = samples->epochs[i];
		bool last = i + 1 == samples->n_epochs;
		if (epoch->dropped > 0 || (!last && epoch->in_flight + epoch->left > 0))
			return false;
	}
	return samples->n_epochs > 0 && !samples->cut;
}

/* Which samples those before it were is known to the checkpoint's job alone. */
static void print_anew(const Traind__V1__Samples *samples)
{
	uint64_t anew = samples->anew;
	if (anew == 0)
		return;
	(void)printf("the order began anew with number %llu: the %llu before it are of the "
	             "checkpoint that the job went on from, of a job with another seed or text",
	    (number)anew, (number)anew);
	if (samples->per_epoch > 0 && anew % samples->per_epoch > 0)
		(void)printf("; of epoch %llu some may be used twice and others never",
		    (number)(anew / samples->per_epoch));
	(void)putchar('\n');
}

static void print_line(const Traind__V1__Samples *samples)
{
	const char *once = samples->anew > 0 ? "every number once" : "every sample once";
	const Traind__V1__SampleEpoch *last = samples->epochs[samples->n_epochs - 1];
	if (last->through > last->epoch || last->counted == samples->per_epoch) {
		(void)printf("%s: %llu epochs of %llu, as of round %llu\n", once,
		    (number)last->through + 1, (number)samples->per_epoch, (number)samples->round);
		return;
	}
	(void)printf("%s: ", once);
	if (last->epoch > 0)
		(void)printf("%llu epochs of %llu, and ", (number)last->epoch,
		    (number)samples->per_epoch);
	(void)printf("of epoch %llu %llu counted, %llu in flight, %llu left; as of round %llu\n",
	    (number)last->epoch, (number)last->counted, (number)last->in_flight, (number)last->left,
	    (number)samples->round);
}

static void print_range(const Traind__V1__SampleEpoch *epoch, const Traind__V1__SampleRange *range)
{
	(void)printf("epoch %llu: dropped %llu to %llu", (number)epoch->epoch, (number)range->from,
	    (number)range->to - 1);
	if (range->count < range->to - range->from)
		(void)printf(" (%llu of them)", (number)range->count);
	if (range->peer != 0)
		(void)printf(" of peer %llu", (number)range->peer);
	if (range->round != 0)
		(void)printf(" in round %llu", (number)range->round);
	(void)printf(": %s\n", range->cause);
}

static void print_epochs(const struct config *config, const Traind__V1__Samples *samples)
{
	static const char *const heads[] = { "EPOCH", "COUNTED", "IN FLIGHT", "DROPPED", "LEFT" };
	struct print_table table = { .columns = 5 };
	for (size_t i = 0; i < table.columns; i++)
		print_cell(&table, "%s", heads[i]);
	for (size_t i = 0; i < samples->n_epochs; i++) {
		const Traind__V1__SampleEpoch *epoch = samples->epochs[i];
		if (epoch->through > epoch->epoch)
			print_cell(&table, "%llu-%llu", (number)epoch->epoch,
			    (number)epoch->through);
		else
			print_cell(&table, "%llu", (number)epoch->epoch);
		print_cell(&table, "%llu", (number)epoch->counted);
		print_cell(&table, "%llu", (number)epoch->in_flight);
		print_cell(&table, "%llu", (number)epoch->dropped);
		print_cell(&table, "%llu", (number)epoch->left);
	}
	print_table_out(&table, config->color);
	(void)printf("\n%llu samples an epoch, as of round %llu%s\n", (number)samples->per_epoch,
	    (number)samples->round, samples->cut ? "; epochs in between are one row" : "");
	for (size_t i = 0; i < samples->n_epochs; i++)
		for (size_t k = 0; k < samples->epochs[i]->n_ranges; k++)
			print_range(samples->epochs[i], samples->epochs[i]->ranges[k]);
}

int verb_samples(struct verb_call *call)
{
	Traind__V1__GetSamplesRequest request = TRAIND__V1__GET_SAMPLES_REQUEST__INIT;
	if (!verbs_job(call, &request.job_id))
		return EXIT_USAGE;
	Traind__V1__Samples *samples = rpc_call(call->rpc, RPC_PATH("GetSamples"), &request,
	    &traind__v1__samples__descriptor, DEADLINE_MS);
	if (samples == NULL)
		return rpc_complain(call->rpc);
	if (call->config->json)
		print_json(samples);
	else if (!samples->known)
		(void)printf("job %llu: no worker has said yet which samples it used (a command's "
		             "never do)\n",
		    (number)request.job_id);
	else if (all_is_well(samples))
		print_line(samples);
	else
		print_epochs(call->config, samples);
	if (samples->known && !call->config->json)
		print_anew(samples);
	traind__v1__samples__free_unpacked(samples, NULL);
	return EXIT_OK;
}
