/* A file of a checkpoint: its first byte says whether the rest is read as safetensors, as a manifest or as config.json. What is accepted must
 * hold what the headers promise.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/limits.h"
#include "daemon/checkpoint/hf_config.h"
#include "daemon/checkpoint/manifest.h"
#include "daemon/checkpoint/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_tensors(const uint8_t *data, size_t size)
{
	struct safetensors file;
	struct tr_error error;
	if (safetensors_parse(data, size, &file, &error) != TR_OK) {
		assert(strlen(error.text) > 0);
		return;
	}
	size_t total = 0;
	unsigned sum = 0;
	for (size_t i = 0; i < file.count; i++) {
		const struct safetensors_tensor *t = &file.tensors[i];
		const uint8_t *at = data + t->at;
		assert(t->dims <= SAFETENSORS_DIMS_MAX && strlen(t->name) < SAFETENSORS_NAME_MAX);
		assert(i == 0 || strcmp(file.tensors[i - 1].name, t->name) < 0);
		assert(safetensors_find(&file, t->name) == t);
		for (size_t b = 0; b < t->bytes; b++)
			sum += at[b]; /* every byte is ours to read */
		total += t->bytes;
	}
	assert(total <= size && sum <= 255u * size);
	safetensors_close(&file);
}

static void read_manifest(const uint8_t *data, size_t size)
{
	struct manifest manifest, again;
	struct tr_error error;
	if (manifest_parse((const char *)data, size, &manifest, &error) != TR_OK) {
		assert(strlen(error.text) > 0);
		return;
	}
	char *text = manifest_text(&manifest);
	assert(text != NULL);
	if (manifest_parse(text, strlen(text), &again, &error) == TR_OK)
		assert(again.step == manifest.step && again.samples == manifest.samples);
	free(text);
}

static void read_config(const uint8_t *data, size_t size)
{
	struct model_config config, again;
	struct tr_error error;
	if (hf_config_parse((const char *)data, size, &config, &error) != TR_OK) {
		assert(strlen(error.text) > 0);
		return;
	}
	char *text = hf_config_text(&config, 0);
	assert(text != NULL);
	assert(hf_config_parse(text, strlen(text), &again, &error) == TR_OK);
	assert(model_config_same(&config, &again, &error) == TR_OK);
	assert(again.context == config.context);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0)
		return 0;
	/* At the end of an allocation of its own, so that a byte too far is seen. */
	uint8_t *copy = malloc(size);
	assert(copy != NULL);
	memcpy(copy, data + 1, size - 1);
	if (data[0] == 'c')
		read_config(copy, size - 1);
	else if (data[0] % 2 == 0)
		read_tensors(copy, size - 1);
	else
		read_manifest(copy, size - 1);
	free(copy);
	return 0;
}
