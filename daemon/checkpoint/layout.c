#include "daemon/checkpoint/layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static void align(struct layout *layout)
{
	layout->count = (layout->count + LAYOUT_ALIGN - 1) / LAYOUT_ALIGN * LAYOUT_ALIGN;
}

/* Its offset. */
static size_t add(struct layout *layout, const char *name, enum size rows, enum size columns,
    enum layout_init init)
{
	struct layout_tensor *tensor = &layout->tensors[layout->tensor_count++];
	(void)snprintf(tensor->name, sizeof(tensor->name), "%s", name);
	tensor->offset = layout->count;
	tensor->rows = size_of(&layout->config, rows);
	tensor->columns = size_of(&layout->config, columns);
	tensor->init = init;
	tensor->fused = columns == QKV;
	size_t numbers = layout_numbers(tensor);
	layout->parameters += numbers;
	layout->count += numbers;
	return tensor->offset;
}

static void add_layer(struct layout *layout, unsigned layer)
{
	const struct names *n = &names[layout->config.preset];
	for (const struct row *row = n->rows; row->name != NULL; row++) {
		char name[LAYOUT_NAME_MAX];
		(void)snprintf(name, sizeof(name), "%s.%u.%s", n->layer, layer, row->name);
		if (row == n->rows || row[-1].part != row->part)
			align(layout);
		(void)add(layout, name, row->rows, row->columns, row->init);
	}
	align(layout);
}

/* Where the parts of every layer are, from the tensors of the first. */
static void find_parts(struct layout *layout, size_t first_tensor)
{
	const struct names *n = &names[layout->config.preset];
	const struct layout_tensor *tensor = &layout->tensors[first_tensor];
	for (size_t i = 0; i < LAYOUT_PARTS; i++)
		layout->parts[i] = (struct layout_place){ .offset = LAYOUT_NONE };
	layout->first_layer = tensor->offset;
	for (const struct row *row = n->rows; row->name != NULL; row++, tensor++) {
		struct layout_place *place = &layout->parts[row->part];
		bool flip = layout->architecture->out_in && tensor->rows > 0;
		if (place->offset == LAYOUT_NONE)
			place->offset = tensor->offset - layout->first_layer;
		place->in = flip ? tensor->columns : tensor->rows;
		place->out += flip ? tensor->rows : tensor->columns;
		if (tensor->rows == 0) {
			place->vector = layout->vectors;
			layout->vectors += place->out;
		}
	}
}

static void add_all(struct layout *layout)
{
	const struct names *n = &names[layout->config.preset];
	layout->tokens = add(layout, n->tokens, VOCAB, WIDTH, LAYOUT_NORMAL);
	align(layout);
	layout->positions = n->positions == NULL
	    ? LAYOUT_NONE
	    : add(layout, n->positions, CONTEXT, WIDTH, LAYOUT_NORMAL);
	align(layout);
	size_t first = layout->tensor_count;
	for (unsigned layer = 0; layer < layout->config.layers; layer++) {
		size_t from = layout->count;
		add_layer(layout, layer);
		layout->stride = layout->count - from;
	}
	find_parts(layout, first);
	layout->last_norm_w = add(layout, n->last_norm_w, NONE, WIDTH, LAYOUT_ONES);
	align(layout);
	layout->last_norm_b = n->last_norm_b == NULL
	    ? LAYOUT_NONE
	    : add(layout, n->last_norm_b, NONE, WIDTH, LAYOUT_ZEROS);
	align(layout);
	layout->head = layout->config.untied ? add(layout, n->head, VOCAB, WIDTH, LAYOUT_NORMAL)
	                                     : layout->tokens;
	align(layout);
}

tr_status layout_init(const struct model_config *config, struct layout *out, struct tr_error *error)
{
	struct layout layout = { .config = *config,
		.architecture = model_architecture(config->preset) };
	tr_status status = model_config_check(config, error);
	if (status != TR_OK)
		return status;
	model_config_fill(&layout.config);
	size_t tensors = (size_t)LAYER_TENSORS_MAX * config->layers + 5;
	layout.tensors = calloc(tensors, sizeof(*layout.tensors));
	if (layout.tensors == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory for a table of %zu tensors",
		    tensors);
	add_all(&layout);
	*out = layout;
	return TR_OK;
}

void layout_finish(struct layout *layout)
{
	free(layout->tensors);
	memset(layout, 0, sizeof(*layout));
}
