#include "client/trainctl/verbs.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/trainctl/plot.h"
#include "client/trainctl/print.h"
#include "common/edit_distance.h"

#define DEADLINE_MS 10000

static const struct args_row none[] = { { NULL, NULL, NULL, NULL, false } };

static const struct verb rows[] = {
	{ "up", "[--nodes N] [--slots S] [--replace] [--dir DIR]",
	    "start the embedded cluster, or add nodes to it",
	    "One memberd and N traind on loopback, kept in TRAIND_HOME (default ~/.traind), "
	    "running until `trainctl down`.\n"
	    "After `down`, or when all were killed: the nodes that have a folder there, with the "
	    "slots they had.\n"
	    "On a running cluster: says how it is and adds nodes up to N. Dead daemons are started "
	    "anew only with --replace.",
	    VERB_NEEDS_NOTHING, 0, 0, verb_up_options, verb_up },
	{ "down", "[--dir DIR]", "end the embedded cluster and everything it runs",
	    "Jobs that have not ended go on from their newest checkpoint at the next `up`.",
	    VERB_NEEDS_NOTHING, 0, 0, verb_up_options + 3, verb_down },
	{ "launch", "FILE [--set KEY=VALUE]... | -n N [--] CMD...", "run a job and follow it",
	    "FILE describes a training job (`trainctl help --job-file` lists the keys). With -n, "
	    "CMD is started N times, with\n"
	    "RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT and what else torchrun sets; "
	    "its exit code is that of the\n"
	    "first rank that fails. Without a running cluster an embedded one is started, and "
	    "ended with the job,\n"
	    "unless it has other jobs that have not ended, or does not say so.\n"
	    "Ctrl-C asks: detach, cancel or keep following; where stdin or stdout is no terminal "
	    "it cancels the job.\n"
	    "Before there is a job (daemons start, layers and links are measured) Ctrl-C, SIGTERM "
	    "or a closed terminal ends what this launch has started, and nothing else; a second "
	    "Ctrl-C ends trainctl at once.",
	    VERB_NEEDS_NOTHING, 0, 1, verb_launch_options, verb_launch },
	{ "plan", "FILE [--cluster FILE] [--measure] [--auto] [--pareto]",
	    "say how a job's model is best spread over a cluster, and what a step then takes",
	    "Measures the layers of the model on this machine as shards of each width, and "
	    "searches "
	    "over data, pipeline and tensor\n"
	    "parallelism, schedules, microbatches, recomputation and placements. Prints the plan, "
	    "its "
	    "step time, memory of each\n"
	    "worker, bytes on each link, and why others lost; or what is missing if none fits into "
	    "memory. Starts no job.",
	    VERB_NEEDS_NOTHING, 1, 1, verb_plan_options, verb_plan },
	{ "jobs", "", "list jobs, newest first", NULL, VERB_NEEDS_CLUSTER, 0, 0, none, verb_jobs },
	{ "status", "JOB",
	    "show a job: progress, losses, peers and their slowest links, rounds, events", NULL,
	    VERB_NEEDS_CLUSTER, 1, 1, none, verb_status },
	{ "plot", "JOB|FILE... [-o FILE]", "draw losses over steps, and over bytes sent, as SVG",
	    "Reads metrics.jsonl in the job's checkpoint.dir, which its first worker's node "
	    "writes; or "
	    "that file, or its folder.\n"
	    "Several are drawn into one picture. Bytes are known of jobs whose sync.mode is not "
	    "ddp. Where several jobs have written to a folder, JOB draws its own rows and those "
	    "before them; the folder all.",
	    VERB_NEEDS_CLUSTER, 1, PLOT_RUNS_MAX, verb_plot_options, verb_plot },
	{ "export", "JOB|CHECKPOINT -o FOLDER [--format hf]",
	    "write a job's model as a folder that Hugging Face transformers loads",
	    "Takes the newest checkpoint of the job, or the given one: its folder, or one with "
	    "`latest`. FOLDER gets config.json,\n"
	    "model.safetensors and, since texts are bytes, a tokenizer of bytes; it must not be "
	    "there yet, or be empty.\n"
	    "Where a later job has written to the same folder, JOB is the newest checkpoint that "
	    "it "
	    "told of, if that is still there.",
	    VERB_NEEDS_CLUSTER, 1, 1, verb_export_options, verb_export },
	{ "import", "FOLDER -o CHECKPOINT",
	    "make a checkpoint of a folder that Hugging Face transformers saved",
	    "FOLDER has config.json of a gpt2 or llama and its weights as safetensors "
	    "(save_pretrained "
	    "writes both). Prints what a\n"
	    "job file says to begin from it: the model's keys and checkpoint.resume.",
	    VERB_NEEDS_NOTHING, 1, 1, verb_import_options, verb_import },
	{ "logs", "JOB [-f] [--rank R]", "print what a job's workers have written",
	    "With several ranks each line begins with [rank].", VERB_NEEDS_CLUSTER, 1, 1,
	    verb_logs_options, verb_logs },
	{ "samples", "JOB", "show which samples of each epoch were used",
	    "One line if every sample was counted once or still will be. Else a row an epoch: each "
	    "of "
	    "its samples is counted (in the\n"
	    "result of a committed round), in flight (a worker has it), dropped (never to be used: "
	    "the lines below say whose death\n"
	    "it was), or left.",
	    VERB_NEEDS_CLUSTER, 1, 1, none, verb_samples },
	{ "cancel", "JOB", "end a job's workers and mark it cancelled", NULL, VERB_NEEDS_CLUSTER, 1,
	    1, none, verb_cancel },
	{ "nodes", "[--links] [--measure]",
	    "list nodes and their workers, or the links between them",
	    "Links are measured on request only, by the nodes themselves: a few seconds for each "
	    "node "
	    "of the cluster. `trainctl plan` and `mesh: auto` take what was measured last, and "
	    "where "
	    "a link is missing have all measured.",
	    VERB_NEEDS_CLUSTER, 0, 0, verb_nodes_options, verb_nodes },
	{ "ca", "init [DIR]", "make the certificate authority of a cluster that speaks TLS",
	    "In DIR (default: tls in TRAIND_HOME). Who has a certificate of it (`trainctl cert`) "
	    "is a "
	    "member; whoever has\n"
	    "its ca.key can make such certificates: it stays here, no daemon needs it.",
	    VERB_NEEDS_NOTHING, 1, 2, none, verb_ca },
	{ "cert", "NODE [DIR] [--address HOST]... [--days N]",
	    "make a node's certificate, signed by the CA in DIR",
	    "In DIR/NODE (DIR as of `trainctl ca init`): ca.crt, node.crt and node.key, what a "
	    "daemon "
	    "reads with --tls and a\n"
	    "program with the join option `tls`. It is for the names NODE and localhost, the "
	    "loopback "
	    "addresses and each HOST.",
	    VERB_NEEDS_NOTHING, 1, 2, verb_cert_options, verb_cert },
	{ "help", "[VERB]", "explain a verb, or print the manual or the keys of job files", NULL,
	    VERB_NEEDS_NOTHING, 0, 1, verb_help_options, verb_help },
	{ "version", "", "print the version", NULL, VERB_NEEDS_NOTHING, 0, 0, none, verb_version },
	{ .name = NULL },
};

const struct verb *verbs(void)
{
	return rows;
}

const struct verb *verbs_find(const char *name)
{
	for (const struct verb *row = rows; row->name != NULL; row++) {
		if (strcmp(row->name, name) == 0)
			return row;
	}
	return NULL;
}

int verbs_unknown(const char *name)
{
	const char *best = NULL;
	unsigned least = TR_EDIT_WORD_MAX;
	for (const struct verb *row = rows; row->name != NULL; row++) {
		unsigned apart = tr_edit_distance(name, row->name);
		if (apart < least) {
			least = apart;
			best = row->name;
		}
	}
	if (least <= tr_edits_of_a_slip(strlen(name)))
		return verbs_complain(EXIT_USAGE,
		    "no verb '%.60s' (did you mean '%s'? `trainctl help` lists them)", name, best);
	return verbs_complain(EXIT_USAGE, "no verb '%.60s' (`trainctl help` lists them)", name);
}

int verbs_complain(int code, const char *format, ...)
{
	char *text = NULL;
	va_list args;
	va_start(args, format);
	if (vasprintf(&text, format, args) < 0)
		text = NULL;
	va_end(args);
	if (text != NULL)
		print_tame(text, true); /* the end of a log has lines */
	(void)fflush(stdout);
	(void)fprintf(stderr, "trainctl: %s\n", text != NULL ? text : "out of memory");
	free(text);
	return code;
}

int verbs_bad_input(const struct verb_call *call, char *text)
{
	const char *file = call->args->n_words > 0 ? call->args->words[0] : "";
	if (file[0] == '\0' || strncmp(text, file, strlen(file)) != 0)
		return verbs_complain(EXIT_USAGE, "%s", text);
	print_tame(text, false);
	(void)fprintf(stderr, "%s\n", text);
	return EXIT_USAGE;
}

bool verbs_job(const struct verb_call *call, uint64_t *job)
{
	struct tr_error error;
	if (args_parse_number("JOB", call->args->words[0], 1, INT64_MAX, job, &error) == TR_OK)
		return true;
	(void)verbs_complain(EXIT_USAGE,
	    "JOB: found '%.60s', allowed: a job's number, as `trainctl jobs` lists it",
	    call->args->words[0]);
	return false;
}

bool verbs_is_number(const char *word)
{
	return word[0] != '\0' && strspn(word, "0123456789") == strlen(word);
}

Traind__V1__Job *verbs_training_job(struct verb_call *call, const char *word, int *code)
{
	Traind__V1__GetJobRequest request = TRAIND__V1__GET_JOB_REQUEST__INIT;
	struct tr_error error;
	if (args_parse_number("a job's number", word, 1, UINT64_MAX, &request.job_id, &error) !=
	    TR_OK) {
		*code = verbs_complain(EXIT_USAGE, "%s", error.text);
		return NULL;
	}
	Traind__V1__Job *job = rpc_call(call->rpc, RPC_PATH("GetJob"), &request,
	    &traind__v1__job__descriptor, DEADLINE_MS);
	if (job == NULL) {
		*code = rpc_complain(call->rpc);
	} else if (job->spec == NULL || job->spec->train == NULL) {
		*code = verbs_complain(EXIT_USAGE, "job %s runs a command: it trains no model",
		    word);
		traind__v1__job__free_unpacked(job, NULL);
		job = NULL;
	}
	return job;
}

int verb_version(struct verb_call *call)
{
	(void)printf(call->config->json ? "{\"version\":\"%s\"}\n" : "trainctl %s\n", TR_VERSION);
	return EXIT_OK;
}
