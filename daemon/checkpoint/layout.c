#include "daemon/checkpoint/layout.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/limits.h"

#define LAYOUT_ALIGN 16

enum size { NONE, WIDTH, QUERIES, KEYS, QKV, HIDDEN, CONTEXT, VOCAB };

/* A tensor of a layer; those of one part follow one another. */
struct row {
	enum layout_part part;
	const char *name;
	enum size rows, columns; /* rows NONE: a vector */
	enum layout_init init;
};

#define LAYER_TENSORS_MAX 12

static const struct names {
	const char *tokens, *positions, *layer, *last_norm_w, *last_norm_b, *head;
	struct row rows[LAYER_TENSORS_MAX + 1]; /* ended by name NULL */
} names[MODEL_PRESETS] = {
	[MODEL_GPT2] = {
		.tokens = "transformer.wte.weight",
		.positions = "transformer.wpe.weight",
		.layer = "transformer.h",
		.last_norm_w = "transformer.ln_f.weight",
		.last_norm_b = "transformer.ln_f.bias",
		.rows = {
			{ LAYOUT_NORM1_W, "ln_1.weight", NONE, WIDTH, LAYOUT_ONES },
			{ LAYOUT_NORM1_B, "ln_1.bias", NONE, WIDTH, LAYOUT_ZEROS },
			{ LAYOUT_QKV_W, "attn.c_attn.weight", WIDTH, QKV, LAYOUT_NORMAL },
			{ LAYOUT_QKV_B, "attn.c_attn.bias", NONE, QKV, LAYOUT_ZEROS },
			{ LAYOUT_PROJ_W, "attn.c_proj.weight", QUERIES, WIDTH, LAYOUT_RESIDUAL },
			{ LAYOUT_PROJ_B, "attn.c_proj.bias", NONE, WIDTH, LAYOUT_ZEROS },
			{ LAYOUT_NORM2_W, "ln_2.weight", NONE, WIDTH, LAYOUT_ONES },
			{ LAYOUT_NORM2_B, "ln_2.bias", NONE, WIDTH, LAYOUT_ZEROS },
			{ LAYOUT_UP_W, "mlp.c_fc.weight", WIDTH, HIDDEN, LAYOUT_NORMAL },
			{ LAYOUT_UP_B, "mlp.c_fc.bias", NONE, HIDDEN, LAYOUT_ZEROS },
			{ LAYOUT_DOWN_W, "mlp.c_proj.weight", HIDDEN, WIDTH, LAYOUT_RESIDUAL },
			{ LAYOUT_DOWN_B, "mlp.c_proj.bias", NONE, WIDTH, LAYOUT_ZEROS },
		},
	},
	[MODEL_LLAMA] = {
		.tokens = "model.embed_tokens.weight",
		.layer = "model.layers",
		.last_norm_w = "model.norm.weight",
		.head = "lm_head.weight",
		.rows = {
			{ LAYOUT_NORM1_W, "input_layernorm.weight", NONE, WIDTH, LAYOUT_ONES },
			{ LAYOUT_QKV_W, "self_attn.q_proj.weight", QUERIES, WIDTH, LAYOUT_NORMAL },
			{ LAYOUT_QKV_W, "self_attn.k_proj.weight", KEYS, WIDTH, LAYOUT_NORMAL },
			{ LAYOUT_QKV_W, "self_attn.v_proj.weight", KEYS, WIDTH, LAYOUT_NORMAL },
			{ LAYOUT_PROJ_W, "self_attn.o_proj.weight", WIDTH, QUERIES, LAYOUT_RESIDUAL },
			{ LAYOUT_NORM2_W, "post_attention_layernorm.weight", NONE, WIDTH, LAYOUT_ONES },
			{ LAYOUT_UP_W, "mlp.gate_proj.weight", HIDDEN, WIDTH, LAYOUT_NORMAL },
			{ LAYOUT_UP_W, "mlp.up_proj.weight", HIDDEN, WIDTH, LAYOUT_NORMAL },
			{ LAYOUT_DOWN_W, "mlp.down_proj.weight", WIDTH, HIDDEN, LAYOUT_RESIDUAL },
		},
	},
};

static size_t size_of(const struct model_config *c, enum size size)
{
	const size_t sizes[] = { [NONE] = 0,
		[WIDTH] = c->width,
		[QUERIES] = model_queries(c),
		[KEYS] = model_keys(c),
		[QKV] = model_qkv(c),
		[HIDDEN] = c->hidden,
		[CONTEXT] = c->context,
		[VOCAB] = c->vocab };
	return sizes[size];
}

/* Counts that do not fit in 64 bits stay at the most that does: config.json may say what it likes. */
static void grow(size_t *count, size_t numbers)
{
	if (__builtin_add_overflow(*count, numbers, count))
		*count = SIZE_MAX;
}

static bool is_too_large(const struct layout *layout)
{
	return layout->count > TR_MODEL_NUMBERS_MAX;
}

static void align(struct layout *layout)
{
	if (!is_too_large(layout))
		layout->count = (layout->count + LAYOUT_ALIGN - 1) / LAYOUT_ALIGN * LAYOUT_ALIGN;
}

/* Its offset. `number`: in the whole model. */
static size_t add(struct layout *layout, size_t number, const char *name, enum size rows,
    enum size columns, enum layout_init init)
{
	struct layout_tensor *tensor = &layout->tensors[layout->tensor_count++];
	(void)snprintf(tensor->name, sizeof(tensor->name), "%s", name);
	tensor->offset = layout->count;
	tensor->rows = size_of(&layout->config, rows);
	tensor->columns = size_of(&layout->config, columns);
	tensor->init = init;
	tensor->fused = columns == QKV;
	tensor->number = number;
	size_t numbers;
	if (__builtin_mul_overflow(tensor->rows > 0 ? tensor->rows : 1, tensor->columns, &numbers))
		numbers = SIZE_MAX;
	grow(&layout->parameters, numbers);
	grow(&layout->count, numbers);
	return tensor->offset;
}

/* `layer` and `number`, that of its first tensor, are those of the whole model. */
static void add_layer(struct layout *layout, unsigned layer, size_t number)
{
	const struct names *n = &names[layout->config.preset];
	for (const struct row *row = n->rows; row->name != NULL; row++) {
		char name[LAYOUT_NAME_MAX];
		(void)snprintf(name, sizeof(name), "%s.%u.%s", n->layer, layer, row->name);
		if (row == n->rows || row[-1].part != row->part)
			align(layout);
		(void)add(layout, number++, name, row->rows, row->columns, row->init);
	}
	align(layout);
}

/* Where the parts of every layer are, from one that is added for it alone where the layout has none. */
static void find_parts(struct layout *layout)
{
	const struct names *n = &names[layout->config.preset];
	const struct layout before = *layout;
	add_layer(layout, 0, 0);
	struct layout found = *layout;
	const struct layout_tensor *tensor = &layout->tensors[before.tensor_count];
	for (size_t i = 0; i < LAYOUT_PARTS; i++)
		found.parts[i] = (struct layout_place){ .offset = LAYOUT_NONE };
	found.first_layer = before.count;
	found.stride = layout->count - before.count;
	for (const struct row *row = n->rows; row->name != NULL; row++, tensor++) {
		struct layout_place *place = &found.parts[row->part];
		bool flip = layout->architecture->out_in && tensor->rows > 0;
		if (place->offset == LAYOUT_NONE)
			place->offset = tensor->offset - found.first_layer;
		place->in = flip ? tensor->columns : tensor->rows;
		place->out += flip ? tensor->rows : tensor->columns;
		if (tensor->rows == 0) {
			place->vector = found.vectors;
			found.vectors += place->out;
		}
	}
	found.count = before.count;
	found.parameters = before.parameters;
	found.tensor_count = before.tensor_count;
	*layout = found;
}

static size_t layer_tensors(enum model_preset preset)
{
	size_t count = 0;
	while (names[preset].rows[count].name != NULL)
		count++;
	return count;
}

static void add_embedding(struct layout *layout)
{
	const struct names *n = &names[layout->config.preset];
	layout->tokens = add(layout, 0, n->tokens, VOCAB, WIDTH, LAYOUT_NORMAL);
	align(layout);
	if (n->positions != NULL)
		layout->positions = add(layout, 1, n->positions, CONTEXT, WIDTH, LAYOUT_NORMAL);
	align(layout);
}

/* `number`: that of its first tensor. */
static void add_head(struct layout *layout, size_t number)
{
	const struct names *n = &names[layout->config.preset];
	bool untied = layout->config.untied;
	layout->last_norm_w = add(layout, number++, n->last_norm_w, NONE, WIDTH, LAYOUT_ONES);
	align(layout);
	if (n->last_norm_b != NULL)
		layout->last_norm_b = add(layout, number++, n->last_norm_b, NONE, WIDTH,
		    LAYOUT_ZEROS);
	align(layout);
	if (!untied && layout->tokens != LAYOUT_NONE)
		layout->head = layout->tokens;
	else
		layout->head = add(layout, untied ? number : 0, untied ? n->head : n->tokens, VOCAB,
		    WIDTH, LAYOUT_NORMAL);
	align(layout);
}

/* `layers`: of the whole model. */
static void add_all(struct layout *layout, size_t layers)
{
	const struct names *n = &names[layout->config.preset];
	const struct layout_depth *depth = &layout->depth;
	size_t first = n->positions != NULL ? 2 : 1, tensors = layer_tensors(layout->config.preset);
	if (depth->embedding)
		add_embedding(layout);
	find_parts(layout);
	for (uint32_t c = 0; c < depth->chunks; c++)
		for (uint32_t i = 0; i < depth->layers[c].count && !is_too_large(layout); i++) {
			uint32_t layer = depth->layers[c].first + i;
			add_layer(layout, layer, first + layer * tensors);
		}
	if (depth->head)
		add_head(layout, first + layers * tensors);
}

/* Fills layout->depth and the count of layers. */
static tr_status choose_layers(const struct layout_depth *depth, struct layout *layout,
    struct tr_error *error)
{
	uint32_t layers = layout->config.layers, end = 0, count = 0;
	if (layers > TR_SAFETENSORS_TENSORS_MAX) /* no file could hold them */
		return tr_error_set(error, TR_ELIMIT, "%u layers are more than this program's %u",
		    layers, TR_SAFETENSORS_TENSORS_MAX);
	layout->depth = *depth;
	if (depth->chunks == 0)
		layout->depth = (struct layout_depth){ 1, { { 0, layers } }, true, true };
	for (uint32_t c = 0; c < layout->depth.chunks; c++) {
		struct layout_range range = layout->depth.layers[c];
		if (range.first < end || range.first > layers || range.count > layers - range.first)
			return tr_error_set(error, TR_EINVAL,
			    "chunk %u has %u layers from %u on; there are %u, and %u are before it",
			    c, range.count, range.first, layers, end);
		end = range.first + range.count;
		count += range.count;
	}
	layout->config.layers = count;
	return TR_OK;
}

tr_status layout_init_depth(const struct model_config *config, const struct layout_depth *depth,
    struct layout *out, struct tr_error *error)
{
	struct layout layout = { .config = *config,
		.architecture = model_architecture(config->preset),
		.tokens = LAYOUT_NONE,
		.positions = LAYOUT_NONE,
		.last_norm_w = LAYOUT_NONE,
		.last_norm_b = LAYOUT_NONE,
		.head = LAYOUT_NONE };
	assert(depth->chunks <= TR_SCHEDULE_CHUNKS_MAX);
	tr_status status = model_config_check(config, error);
	if (status != TR_OK)
		return status;
	model_config_fill(&layout.config);
	status = choose_layers(depth, &layout, error);
	if (status != TR_OK)
		return status;
	size_t tensors = (size_t)LAYER_TENSORS_MAX * ((size_t)layout.config.layers + 1) + 5;
	layout.tensors = calloc(tensors, sizeof(*layout.tensors));
	if (layout.tensors == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory for a table of %zu tensors",
		    tensors);
	add_all(&layout, config->layers);
	if (is_too_large(&layout)) {
		free(layout.tensors);
		return tr_error_set(error, TR_ELIMIT,
		    "%u layers, width %u, hidden %u and a vocabulary of %u make more than %llu "
		    "parameters, allowed: at most so many",
		    layout.config.layers, config->width, layout.config.hidden, config->vocab,
		    TR_MODEL_NUMBERS_MAX);
	}
	*out = layout;
	return TR_OK;
}

tr_status layout_init(const struct model_config *config, struct layout *layout,
    struct tr_error *error)
{
	return layout_init_depth(config, &(struct layout_depth){ 0 }, layout, error);
}

void layout_depth_of(const uint32_t *stage_layers, uint32_t ranks, uint32_t chunks, uint32_t rank,
    struct layout_depth *depth)
{
	struct layout_depth made = { .chunks = chunks,
		.embedding = rank == 0,
		.head = rank + 1 == ranks };
	uint32_t first = 0;
	assert(chunks > 0 && chunks <= TR_SCHEDULE_CHUNKS_MAX && rank < ranks);
	for (uint32_t stage = 0; stage < ranks * chunks; stage++) {
		if (stage % ranks == rank)
			made.layers[stage / ranks] = (struct layout_range){ first,
				stage_layers[stage] };
		first += stage_layers[stage];
	}
	*depth = made;
}

bool layout_copied_table(const struct layout *layout, size_t *offset, size_t *numbers)
{
	if (layout->config.untied || layout->depth.embedding == layout->depth.head)
		return false;
	*offset = layout->depth.embedding ? layout->tokens : layout->head;
	*numbers = (size_t)layout->config.vocab * layout->config.width;
	return true;
}

unsigned layout_block(const struct layout *layout, size_t offset)
{
	unsigned block = 0;
	while (
	    block < layout->config.layers && offset >= layout_layer(layout, block, LAYOUT_NORM1_W))
		block++;
	return offset >= layout->last_norm_w ? block + 1 : block;
}

void layout_finish(struct layout *layout)
{
	free(layout->tensors);
	memset(layout, 0, sizeof(*layout));
}
