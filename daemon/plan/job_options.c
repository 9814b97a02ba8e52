#include "daemon/plan/job_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/limits.h"
#include "daemon/plan/dealing.h"
#include "daemon/plan/job_value.h"
#include "daemon/plan/owners.h"

static const struct job_option rows[] = {
	{ "name", OPTION_STRING, 1, TR_NAME_MAX - 1, "letters, digits, '.', '_' and '-'", NULL,
	    NULL, "What the job is called in lists and logs." },

	{ "model.preset", OPTION_CHOICE, 0, 0, "gpt2|llama", "gpt2", NULL,
	    "Architecture. gpt2: learned positions, LayerNorm with bias, tanh-GELU, head tied to "
	    "the "
	    "embedding. llama: rotary positions, RMSNorm, SwiGLU, no biases." },
	{ "model.layers", OPTION_UINT, 1, 256, NULL, "12", NULL, "Transformer blocks." },
	{ "model.width", OPTION_UINT, 8, 16384, NULL, "768", NULL,
	    "Channels of the residual stream; a multiple of `heads`." },
	{ "model.heads", OPTION_UINT, 1, 256, NULL, "12", NULL, "Attention heads." },
	{ "model.kv_heads", OPTION_UINT, 0, 256, NULL, "0", NULL,
	    "Heads of keys and values, a divisor of `heads`: so many neighbours share one (llama). "
	    "0: "
	    "`heads`." },
	{ "model.hidden", OPTION_UINT, 0, 65536, NULL, "0", NULL,
	    "Channels inside the MLP. 0: gpt2 4 times `width`, llama 8/3 times, rounded up to a "
	    "multiple of 64." },
	{ "model.tied", OPTION_CHOICE, 0, 0, "true|false", "true",
	    NULL, "Whether the head is the token embedding; false, a matrix of its own, with llama only." },
	{ "model.rope_theta", OPTION_DOUBLE, 0, 1e9, NULL, "0", NULL,
	    "Base of the rotary positions' wavelengths (llama). 0: 10000." },
	{ "model.norm_eps", OPTION_DOUBLE, 0, 0.1, NULL, "0", NULL,
	    "Added to the variance in norms. 0: 1e-5." },
	{ "model.context", OPTION_UINT, 8, 65536, NULL, "1024", "tokens", "Length of a sequence." },
	{ "model.vocab", OPTION_STRING, 1, 8, "bytes or a number", "bytes", NULL,
	    "Tokens: `bytes` makes each byte of `data.text` one of 256. Of `data.tokens` and "
	    "`data.tokenizer`: how many "
	    "there are, as 50257 of GPT-2 and 128256 of Llama 3." },

	{ "data.text", OPTION_PATHS, 1, TR_JOB_PATHS_MAX, NULL, "", NULL,
	    "Text files, read in this order as one text; names that end in .gz are decompressed. "
	    "Each node reads its own, at the same path. This or `tokens` is required." },
	{ "data.tokens", OPTION_PATHS, 1, TR_JOB_PATHS_MAX, NULL, "",
	    NULL, "Instead of a text: files of tokens as llm.c writes them (magic 20240520 or 20240801)." },
	{ "data.tokenizer", OPTION_PATH, 0, 0, NULL, "", NULL,
	    "Folder with vocab.json and merges.txt of a GPT-2 tokenizer: `text` is read with it, "
	    "and the sample is written." },
	{ "data.validation", OPTION_FRACTION, 0, 0.5, NULL, "0", NULL,
	    "Tail of the text that is held out and only evaluated." },

	{ "train.steps", OPTION_UINT, 1, 1e9, NULL, NULL, "steps", "Optimizer steps in all." },
	{ "train.batch_tokens", OPTION_UINT, 8, 1u << 30, NULL, "8192", "tokens",
	    "One global batch, over all workers; a multiple of `model.context`." },
	{ "train.micro_sequences", OPTION_UINT, 1, 4096, NULL, "8", "sequences",
	    "At most so many are computed at once by a worker; more gradients are accumulated." },
	{ "train.lr", OPTION_DOUBLE, 1e-9, 10, NULL, "1e-3", NULL,
	    "Learning rate after the warm-up." },
	{ "train.min_lr", OPTION_DOUBLE, 0, 10, NULL, "0", NULL,
	    "Learning rate at the last step: a cosine leads there from `lr`." },
	{ "train.warmup", OPTION_UINT, 0, 1e9, NULL, "0", "steps",
	    "The learning rate rises linearly so long." },
	{ "train.clip", OPTION_DOUBLE, 0, 1e6, NULL, "0", NULL,
	    "Largest norm of the whole gradient; 0: gradients are not clipped." },
	{ "train.weight_decay", OPTION_DOUBLE, 0, 10, NULL, "0", NULL,
	    "AdamW's decay of matrices." },
	{ "train.beta1", OPTION_DOUBLE, 1e-3, 0.9999, NULL, "0.9", NULL,
	    "AdamW's decay of the first moment." },
	{ "train.beta2", OPTION_DOUBLE, 1e-3, 0.999999, NULL, "0.999", NULL,
	    "AdamW's decay of the second moment." },
	{ "train.eps", OPTION_DOUBLE, 1e-16, 1, NULL, "1e-8", NULL,
	    "AdamW's term in the denominator." },
	{ "train.dropout", OPTION_DOUBLE, 0, 0.9, NULL, "0", NULL,
	    "Share of the embedding's output, of attention probabilities and of what attention and "
	    "MLP add to the stream that a training step leaves out; the rest counts as much more. "
	    "Which, depends on seed and sample, not on the mesh." },
	{ "train.seed", OPTION_UINT, 0, 9007199254740991.0, NULL, "0", NULL,
	    "Of initial weights, of the order of samples and of what `dropout` leaves out." },
	{ "train.dtype", OPTION_CHOICE, 0, 0, "f32|bf16", "f32", NULL,
	    "Arithmetic of forward and backward. `bf16` rounds what is multiplied with parameters, "
	    "and these; sums, all else and the parameters that learn stay f32." },
	{ "train.strict", OPTION_BOOL, 0, 0, NULL, "false", NULL,
	    "Any mesh whose dp and tp are powers of two learns the same parameters, bit for bit, "
	    "whoever dies. Slower; see docs/sharding.md." },
	{ "train.eval_every", OPTION_UINT, 1, 1e9, NULL, "100", "steps",
	    "The validation loss is taken so often, and at the end; not if `data.validation` is "
	    "0." },
	{ "train.eval_sequences", OPTION_UINT, 1, 1u << 20, NULL, "64", "sequences",
	    "How much of the held-out text an evaluation reads." },

	{ "mesh.auto", OPTION_BOOL, 0, 0, NULL, "false", NULL,
	    "`trainctl launch` chooses nodes, workers, tp, pp, schedule, recomputation and "
	    "`train.micro_sequences`, as `trainctl plan --auto` says, out of the slots that are "
	    "free. `mesh: auto` is the "
	    "same. See docs/sharding.md." },
	{ "mesh.nodes", OPTION_UINT, 1, TR_GROUP_PEERS_MAX, NULL, "1", "nodes",
	    "Nodes to train on." },
	{ "mesh.workers_per_node", OPTION_UINT, 1, TR_GROUP_PEERS_MAX, NULL, "1", "workers",
	    "Workers on each node, each with one slot." },
	{ "mesh.threads", OPTION_UINT, 0, 1024, NULL, "0", "threads",
	    "Compute threads of a worker; 0: the node's cores divided by its slots." },
	{ "mesh.min_nodes", OPTION_UINT, 1, TR_GROUP_PEERS_MAX, NULL, "1", "nodes",
	    "Training starts, and goes on after losses, with no fewer than this many. With `auto` "
	    "the plan is on as many at least, or there is none." },
	{ "mesh.grow", OPTION_BOOL, 0, 0, NULL, "false", NULL,
	    "With `auto`: on nodes that come while the job runs workers start, too, on each at "
	    "most as many as the plan has on one, as long as no job waits for slots; the job is "
	    "planned anew with them. Who has no place in the new plan is a spare." },
	{ "mesh.tp", OPTION_UINT, 1, TR_GROUP_PEERS_MAX - 1, NULL, "1", "workers",
	    "Tensor parallel: so many workers share each layer, neighbours first. The model is "
	    "there workers / (`tp` x `pp`) times; see docs/sharding.md." },
	{ "mesh.pp", OPTION_UINT, 1, TR_GROUP_PEERS_MAX, NULL, "1", "stages",
	    "Pipeline parallel: so many stages of layers, microbatches pass through them one "
	    "behind the other." },
	{ "mesh.sequence_parallel", OPTION_BOOL, 0, 0, NULL, "false", NULL,
	    "With `tp`, which divides `model.context`: norms and residuals of each token are "
	    "computed and kept by one worker of the `tp` alone. As many bytes are sent, "
	    "activations take less memory." },
	{ "mesh.schedule", OPTION_CHOICE, 0, 0, "auto|gpipe|1f1b|interleaved", "auto", NULL,
	    "With `pp`, the order of forward and backward passes. `auto`: `interleaved` if "
	    "`chunks` is more "
	    "than 1, else `1f1b`." },
	{ "mesh.chunks", OPTION_UINT, 1, TR_SCHEDULE_CHUNKS_MAX, NULL, "1", NULL,
	    "Interleaved stages (Megatron-LM's virtual ones): each worker has so many, and a "
	    "microbatch "
	    "passes through all workers as many times." },
	{ "mesh.recompute", OPTION_BOOL, 0, 0, NULL, "false", NULL,
	    "Of each layer its input alone is kept, and the backward pass computes the layer "
	    "again: less "
	    "memory, some third more computation. Without `tp` and `pp`, too." },
	{ "mesh.shares", OPTION_UINTS, 1, DEALING_SHARE_MAX, NULL, "", NULL,
	    "Of each replica, as in [3, 1]: the first computes three quarters of each batch. For "
	    "workers of unequal speed; without it, or with [], all compute equally much." },
	{ "mesh.layers", OPTION_UINTS, 1, 256, NULL, "", NULL,
	    "With `pp`, layers of each stage's worker, as in [7, 5], all of `model.layers` "
	    "together; without it, or with [], they are dealt for workers of equal speed." },
	{ "mesh.balance", OPTION_CHOICE, 0, 0, "auto|on|off", "auto", NULL,
	    "`on`: shares follow the speeds that replicas have while the job runs, layers those "
	    "of stages, where steps then take a tenth less; a job of `mesh.auto` whose steps take "
	    "20 % longer than planned all the same gets another dp, pp or tp. `auto`: so do those "
	    "of `mesh.auto` with two workers or more, but with `train.strict`, "
	    "`sync.deterministic`, `sync.on_loss: drop` and modes that talk rarely." },
	{ "mesh.zero_owners", OPTION_UINT, 0, OWNERS_MAX, NULL, "0", "workers",
	    "ZeRO-1: AdamW's moments of each shard are cut over the workers that hold it, and so "
	    "many hold each piece: at least 2, so that a loss takes nothing with it, at most as "
	    "many as there are replicas. With `copies` 1 to as many as these. 0: each holds them "
	    "all." },
	{ "mesh.copies", OPTION_UINT, 1, TR_GROUP_PEERS_MAX - 1, NULL, "1", NULL,
	    "Where replicas train apart (any `sync.mode` but `ddp`): so many data-parallel "
	    "copies of the model make up one replica, as on the machines of a site. They sum "
	    "their gradients at every step, and each merges its part with the other replicas; "
	    "a divisor of workers / (`tp` x `pp`)." },
	{ "mesh.too_few", OPTION_CHOICE, 0, 0, "auto|smaller|wait", "auto", NULL,
	    "With `tp`, `pp` or `copies`, when for two seconds there have been fewer workers than "
	    "one replica takes, or as soon as nobody can follow who was lost: `smaller` goes on "
	    "with a smaller mesh, or fewer copies, until "
	    "there are enough again, `wait` waits for them. `auto`: smaller." },

	{ "sync.mode", OPTION_CHOICE, 0, 0, "ddp|local_sgd|diloco|streaming|eager|hdet", "ddp", NULL,
	    "`ddp`: gradients are reduced at every step. The others talk every `inner_steps`: "
	    "see docs/low-communication.md; with mesh.tp or mesh.pp docs/sharding.md." },
	{ "sync.on_loss", OPTION_CHOICE, 0, 0, "replay|drop", "replay", NULL,
	    "When a worker dies in a step: `replay` does the same global batch again, whole; "
	    "`drop` applies the mean over what arrived. Of ddp alone: merges of the other modes go "
	    "on "
	    "without whom they lost." },
	{ "sync.inner_steps", OPTION_UINT, 0, 1e9, NULL, "0", "steps",
	    "Steps between two merges of the same parameters (H). 0: 500, streaming 100, hdet "
	    "1000." },
	{ "sync.inner_seconds", OPTION_DOUBLE, 0, 1e6, NULL, "0", "seconds",
	    "Instead of `inner_steps`: each worker takes as many steps as it can in this time. 0: "
	    "by "
	    "steps." },
	{ "sync.by_speed", OPTION_BOOL, 0, 0, NULL, "false", NULL,
	    "The fastest worker takes `inner_steps`, the others fewer in proportion to their "
	    "speeds." },
	{ "sync.share_by_speed", OPTION_BOOL, 0, 0, NULL, "false", NULL,
	    "All workers take `inner_steps`, and of each step's samples each has a part in "
	    "proportion to its speed. Workers that hold the whole model." },
	{ "sync.weights", OPTION_CHOICE, 0, 0, "root|tokens", "root", NULL,
	    "By what a worker's movement counts in a merge: the root of its tokens a step, or all "
	    "its tokens." },
	{ "sync.grace_seconds", OPTION_DOUBLE, 0, 1e6, NULL, "0", "seconds",
	    "A worker that is so much later than the `quorum` merges what it has by then. 0: all "
	    "wait "
	    "for it." },
	{ "sync.quorum", OPTION_UINT, 0, TR_GROUP_PEERS_MAX, NULL, "0", "workers",
	    "So many must be done before the grace begins. 0: more than half." },
	{ "sync.alone_steps", OPTION_UINT, 0, 1e6, NULL, "0", "steps",
	    "A worker that is cut off trains on by itself for so many steps at most, and merges "
	    "what it learned when it is back. 0: it waits, and begins anew." },
	{ "sync.alone_after_seconds", OPTION_DOUBLE, 0, 1e5, NULL, "0", "seconds",
	    "When it has waited so long for a merge. 0: 5." },
	{ "sync.outer_lr", OPTION_DOUBLE, 0, 10, NULL, "0", NULL,
	    "Learning rate of the outer step. 0: 0.7, streaming 0.4, local_sgd and hdet 1." },
	{ "sync.outer_momentum", OPTION_DOUBLE, 0, 0.9999, NULL, "0", NULL,
	    "Nesterov momentum of the outer step. 0: 0.9, local_sgd and hdet 0." },
	{ "sync.fragments", OPTION_UINT, 0, 64, NULL, "0", NULL,
	    "Streaming: parts of whole layers that are merged one after another. 0: as many as "
	    "there are layers, at most 8." },
	{ "sync.overlap", OPTION_UINT, 0, 1e9, NULL, "0", "steps",
	    "Steps that go on between a part's departure and its merge, at most `inner_steps` / "
	    "`fragments`. 0: streaming 1, eager `inner_steps`, else none." },
	{ "sync.alpha", OPTION_DOUBLE, 0, 0.9999, NULL, "0", NULL,
	    "Share of its own parameters that a worker keeps at a merge. 0: streaming without "
	    "`carry` 0.5, else none." },
	{ "sync.carry", OPTION_BOOL, 0, 0, NULL, "false", NULL,
	    "With an overlap: from a part's departure on a worker trains on from where its own "
	    "movement would bring the group, and those steps are carried over to what the merge "
	    "brings, instead of `alpha`'s share of them." },
	{ "sync.codec", OPTION_CHOICE, 0, 0, "none|bf16|int8|int4|e3m0|int2", "none", NULL,
	    "How what is merged is coded on the wire." },
	{ "sync.feedback", OPTION_DOUBLE, -1, 1, NULL, "0", NULL,
	    "Share of what coding lost that is added to the next round. 0: int2 0.95, else none; "
	    "less than 0: none." },
	{ "sync.lr_spread", OPTION_DOUBLE, 0, 0.9999, NULL, "0", NULL,
	    "hdet: the workers' learning rates are spread evenly from 1 - this to 1 + this times "
	    "the base. 0: 1/9." },
	{ "sync.lr_temperature", OPTION_DOUBLE, 0, 1e6, NULL, "0", "loss",
	    "hdet: how much better a worker's loss must be for its rate to count e times as much. "
	    "0: 0.002." },
	{ "sync.lr_step", OPTION_DOUBLE, 0, 10, NULL, "0", NULL,
	    "hdet: how far the base of the learning rates goes with its momentum at a merge. 0: "
	    "0.5." },
	{ "sync.lr_momentum", OPTION_DOUBLE, 0, 0.9999, NULL, "0", NULL,
	    "hdet: share of that momentum that is kept at a merge. 0: 0.9." },
	{ "sync.lr_decay", OPTION_DOUBLE, 0, 0.9999, NULL, "0", NULL,
	    "hdet: part of the base that is lost at a merge, beside the schedule of `train`." },
	{ "sync.lr_search", OPTION_BOOL, 0, 0, NULL, "false", NULL,
	    "hdet: the base of the learning rates is searched for, within a sixteenth to sixteen "
	    "times `train.lr`, by two races from the beginning, each a little longer than the "
	    "warm-up, 3 % of the steps and 250 at least, a tenth of all steps at most; then no "
	    "lr_temperature, lr_step, lr_momentum or lr_decay." },
	{ "sync.algorithm", OPTION_CHOICE, 0, 0, "auto|ring|star|direct|hierarchical|one-shot",
	    "auto", NULL, "Of the all-reduce; `auto` goes by the cost model." },
	{ "sync.deterministic", OPTION_BOOL, 0, 0, NULL, "false", NULL,
	    "Bits of a reduction do not depend on algorithm, ring order or arrival." },

	{ "checkpoint.every", OPTION_UINT, 0, 1e9, NULL, "0", "steps", "0: only at the end." },
	{ "checkpoint.keep", OPTION_UINT, 1, 10000, NULL, "2", "checkpoints",
	    "Older ones are deleted. With mesh.tp or mesh.pp two are kept at least." },
	{ "checkpoint.dir", OPTION_PATH, 0, 0, NULL, "runs/NAME", NULL,
	    "Where checkpoints are written: step-00000200/ and so on, and `latest`." },
	{ "checkpoint.resume", OPTION_PATH, 0, 0, NULL, "", NULL,
	    "Checkpoint to go on from: its folder, or that of several, whose `latest` is taken." },
	{ "checkpoint.sharded", OPTION_BOOL, 0, 0, NULL, "false", NULL,
	    "With a mesh: each worker of a replica writes its own shard, and nothing goes to "
	    "another one for that. All nodes have to share checkpoint.dir. `trainctl export` puts "
	    "the shards together." },

	{ "sample.tokens", OPTION_UINT, 0, 65536, NULL, "0", "tokens",
	    "Text of this length is generated when training ends; 0: none." },
	{ "sample.prompt", OPTION_STRING, 0, TR_JOB_PROMPT_MAX, NULL, "", NULL,
	    "How that text begins." },
	{ "sample.temperature", OPTION_DOUBLE, 0, 10, NULL, "0", NULL,
	    "0: always the likeliest token; 1: as the model has learned." },
	{ .key = NULL },
};
_Static_assert(sizeof(rows) / sizeof(rows[0]) <= JOB_OPTIONS_MAX, "room for one of each");

const struct job_option *job_options(void)
{
	return rows;
}

const struct job_option *job_option_find(const char *key)
{
	for (const struct job_option *row = rows; row->key != NULL; row++) {
		if (strcmp(row->key, key) == 0)
			return row;
	}
	return NULL;
}

bool job_option_is_section(const char *name)
{
	size_t length = strlen(name);
	for (const struct job_option *row = rows; row->key != NULL; row++) {
		if (strncmp(row->key, name, length) == 0 && row->key[length] == '.')
			return length > 0;
	}
	return false;
}

size_t job_option_list_most(const struct job_option *option)
{
	if (option->kind == OPTION_UINTS)
		return TR_GROUP_PEERS_MAX;
	return option->kind == OPTION_PATHS ? (size_t)option->most : 0;
}

const char *job_option_allowed(const struct job_option *option, char *text, size_t bytes)
{
	switch (option->kind) {
	case OPTION_STRING:
		(void)snprintf(text, bytes, "%s%s%.0f to %.0f bytes",
		    option->allowed != NULL ? option->allowed : "a text", ", ", option->least,
		    option->most);
		break;
	case OPTION_CHOICE: {
		size_t used = 0;
		for (const char *at = option->allowed; *at != '\0' && used + 6 < bytes; at++) {
			if (*at == '|')
				used += (size_t)snprintf(text + used, bytes - used, " or ");
			else
				text[used++] = *at;
		}
		text[used] = '\0';
		break;
	}
	case OPTION_UINT:
		(void)snprintf(text, bytes, "a whole number from %.0f to %.0f", option->least,
		    option->most);
		break;
	case OPTION_DOUBLE:
		(void)snprintf(text, bytes, "a number from %g to %g", option->least, option->most);
		break;
	case OPTION_FRACTION:
		(void)snprintf(text, bytes, "a share from %g%% to %g%% (or %g to %g)",
		    option->least * 100, option->most * 100, option->least, option->most);
		break;
	case OPTION_BOOL:
		(void)snprintf(text, bytes, "true or false");
		break;
	case OPTION_PATH:
		(void)snprintf(text, bytes, "a path");
		break;
	case OPTION_PATHS:
		(void)snprintf(text, bytes, "a list of %.0f to %.0f paths", option->least,
		    option->most);
		break;
	case OPTION_UINTS:
		(void)snprintf(text, bytes, "a list of whole numbers from %.0f to %.0f",
		    option->least, option->most);
		break;
	}
	return text;
}

Traind__V1__JobSpec *job_spec_new(bool train)
{
	Traind__V1__JobSpec *spec = job_value_message(&traind__v1__job_spec__descriptor);
	if (spec == NULL)
		return NULL;
	if (train)
		spec->train = job_value_message(&traind__v1__train_spec__descriptor);
	else
		spec->command = job_value_message(&traind__v1__command_spec__descriptor);
	spec->mesh = job_value_message(&traind__v1__mesh__descriptor);
	if (spec->mesh == NULL || (spec->train == NULL && spec->command == NULL)) {
		traind__v1__job_spec__free_unpacked(spec, NULL);
		return NULL;
	}
	return spec;
}

static tr_status check_room(const Traind__V1__JobSpec *spec, const struct job_option *option,
    struct tr_error *error)
{
	size_t most = job_option_list_most(option);
	struct job_value there;
	char allowed[160];
	if (most == 0 || !job_value_load(spec, option, &there) || there.whole < most)
		return TR_OK;
	return tr_error_set(error, TR_EINVAL, "%s: found more than %zu of them, allowed: %s",
	    option->key, most, job_option_allowed(option, allowed, sizeof(allowed)));
}

tr_status job_option_set(Traind__V1__JobSpec *spec, const char *key, const char *text,
    struct tr_error *error)
{
	const struct job_option *option = job_option_find(key);
	if (option == NULL) {
		const char *near = job_option_suggest(key);
		return tr_error_set(error, TR_EINVAL,
		    "%.*s: found an unknown key%s%s%s, allowed: %s", 2 * TR_NAME_MAX, key,
		    near != NULL ? " (did you mean '" : "", near != NULL ? near : "",
		    near != NULL ? "'?)" : "", "see `trainctl help --job-file`");
	}
	struct job_value value;
	tr_status status = job_value_parse(option, text, &value, error);
	if (status == TR_OK)
		status = job_value_check(option, &value, error);
	if (status == TR_OK)
		status = check_room(spec, option, error);
	if (status == TR_OK)
		status = job_value_store(spec, option, &value, error);
	return status;
}

void job_option_clear(Traind__V1__JobSpec *spec, const char *key)
{
	const struct job_option *option = job_option_find(key);
	if (option != NULL)
		job_value_clear(spec, option);
}

const char *job_option_text(const Traind__V1__JobSpec *spec, const char *key, size_t i)
{
	const struct job_option *option = job_option_find(key);
	return option != NULL ? job_value_text(spec, option, i) : NULL;
}
