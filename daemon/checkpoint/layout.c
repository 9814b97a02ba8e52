#include "daemon/checkpoint/layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LAYOUT_ALIGN 16

static void add(struct layout *layout, const char *name, size_t rows, size_t columns)
{
	struct layout_tensor *tensor = &layout->tensors[layout->tensor_count++];
	(void)snprintf(tensor->name, sizeof(tensor->name), "%s", name);
	tensor->offset = layout->count;
	tensor->rows = rows;
	tensor->columns = columns;
	size_t numbers = layout_numbers(tensor);
	layout->parameters += numbers;
	layout->count += (numbers + LAYOUT_ALIGN - 1) / LAYOUT_ALIGN * LAYOUT_ALIGN;
}

static void add_layer(struct layout *layout, unsigned layer)
{
	/* Rows and columns as multiples of the width. */
	static const struct {
		const char *name;
		unsigned rows, columns;
	} parts[LAYOUT_PER_LAYER] = {
		[LAYOUT_NORM1_W] = { "ln_1.weight", 0, 1 },
		[LAYOUT_NORM1_B] = { "ln_1.bias", 0, 1 },
		[LAYOUT_QKV_W] = { "attn.c_attn.weight", 1, 3 },
		[LAYOUT_QKV_B] = { "attn.c_attn.bias", 0, 3 },
		[LAYOUT_PROJ_W] = { "attn.c_proj.weight", 1, 1 },
		[LAYOUT_PROJ_B] = { "attn.c_proj.bias", 0, 1 },
		[LAYOUT_NORM2_W] = { "ln_2.weight", 0, 1 },
		[LAYOUT_NORM2_B] = { "ln_2.bias", 0, 1 },
		[LAYOUT_UP_W] = { "mlp.c_fc.weight", 1, 4 },
		[LAYOUT_UP_B] = { "mlp.c_fc.bias", 0, 4 },
		[LAYOUT_DOWN_W] = { "mlp.c_proj.weight", 4, 1 },
		[LAYOUT_DOWN_B] = { "mlp.c_proj.bias", 0, 1 },
	};
	size_t width = layout->config.width;
	for (size_t i = 0; i < LAYOUT_PER_LAYER; i++) {
		char name[LAYOUT_NAME_MAX];
		(void)snprintf(name, sizeof(name), "transformer.h.%u.%s", layer, parts[i].name);
		add(layout, name, parts[i].rows * width, parts[i].columns * width);
	}
}

tr_status layout_init(const struct model_config *config, struct layout *layout,
    struct tr_error *error)
{
	if (config->layers == 0 || config->width == 0 || config->heads == 0 ||
	    config->context == 0 || config->vocab == 0 || config->width % config->heads != 0)
		return tr_error_set(error, TR_EINVAL,
		    "a model of %u layers, width %u, heads %u, context %u cannot "
		    "be built: all must be "
		    "positive and heads divide width",
		    config->layers, config->width, config->heads, config->context);
	size_t tensors = LAYOUT_FIRST_LAYER + (size_t)LAYOUT_PER_LAYER * config->layers + 2;
	*layout = (struct layout){ .config = *config };
	layout->tensors = calloc(tensors, sizeof(*layout->tensors));
	if (layout->tensors == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory for a table of %zu tensors",
		    tensors);
	add(layout, "transformer.wte.weight", config->vocab, config->width);
	add(layout, "transformer.wpe.weight", config->context, config->width);
	for (unsigned layer = 0; layer < config->layers; layer++)
		add_layer(layout, layer);
	add(layout, "transformer.ln_f.weight", 0, config->width);
	add(layout, "transformer.ln_f.bias", 0, config->width);
	return TR_OK;
}

void layout_finish(struct layout *layout)
{
	free(layout->tensors);
	memset(layout, 0, sizeof(*layout));
}

size_t layout_layer(const struct layout *layout, size_t layer, enum layout_in_layer which)
{
	return layout->tensors[LAYOUT_FIRST_LAYER + layer * LAYOUT_PER_LAYER + which].offset;
}

size_t layout_last_norm(const struct layout *layout, size_t which)
{
	return layout->tensors[layout->tensor_count - 2 + which].offset;
}
