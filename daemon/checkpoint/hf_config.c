#include "daemon/checkpoint/hf_config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/json.h"
#include "common/json_read.h"

#define KEY_MAX   128
#define QUOTE_MAX 60
#define NUMBER_MAX \
	(1u << 24) /* of any size: eight times one fits in 32 bits; products are the layout's (layout.h) */

static const char *const classes[MODEL_PRESETS] = {
	[MODEL_GPT2] = "GPT2LMHeadModel",
	[MODEL_LLAMA] = "LlamaForCausalLM",
};

/* Whole numbers. */
static const struct number {
	enum model_preset preset;
	bool optional; /* absent or null: the field's default */
	const char *key;
	size_t offset;
} numbers[] = {
	{ MODEL_GPT2, false, "n_layer", offsetof(struct model_config, layers) },
	{ MODEL_GPT2, false, "n_embd", offsetof(struct model_config, width) },
	{ MODEL_GPT2, false, "n_head", offsetof(struct model_config, heads) },
	{ MODEL_GPT2, true, "n_inner", offsetof(struct model_config, hidden) },
	{ MODEL_GPT2, false, "n_positions", offsetof(struct model_config, context) },
	{ MODEL_GPT2, false, "vocab_size", offsetof(struct model_config, vocab) },
	{ MODEL_LLAMA, false, "num_hidden_layers", offsetof(struct model_config, layers) },
	{ MODEL_LLAMA, false, "hidden_size", offsetof(struct model_config, width) },
	{ MODEL_LLAMA, false, "num_attention_heads", offsetof(struct model_config, heads) },
	{ MODEL_LLAMA, true, "num_key_value_heads", offsetof(struct model_config, kv_heads) },
	{ MODEL_LLAMA, true, "head_dim", offsetof(struct model_config, head_width) },
	{ MODEL_LLAMA, false, "intermediate_size", offsetof(struct model_config, hidden) },
	{ MODEL_LLAMA, false, "max_position_embeddings", offsetof(struct model_config, context) },
	{ MODEL_LLAMA, false, "vocab_size", offsetof(struct model_config, vocab) },
};

/* What may be one way only, as JSON; of several the first is written. All are the defaults of transformers. */
static const struct fixed {
	enum model_preset preset;
	const char *key, *allowed[2];
} fixed[] = {
	{ MODEL_GPT2, "activation_function", { "\"gelu_new\"", "\"gelu_pytorch_tanh\"" } },
	{ MODEL_GPT2, "scale_attn_weights", { "true", NULL } },
	{ MODEL_GPT2, "scale_attn_by_inverse_layer_idx", { "false", NULL } },
	{ MODEL_GPT2, "add_cross_attention", { "false", NULL } },
	{ MODEL_GPT2, "is_causal", { "true", NULL } },
	{ MODEL_LLAMA, "hidden_act", { "\"silu\"", "\"swish\"" } },
	{ MODEL_LLAMA, "attention_bias", { "false", NULL } },
	{ MODEL_LLAMA, "mlp_bias", { "false", NULL } },
	{ MODEL_LLAMA, "is_causal", { "true", NULL } },
};

/* Shares that training leaves out. */
static const struct dropout_key {
	enum model_preset preset;
	const char *key;
} dropouts[] = {
	{ MODEL_GPT2, "resid_pdrop" },
	{ MODEL_GPT2, "embd_pdrop" },
	{ MODEL_GPT2, "attn_pdrop" },
	{ MODEL_LLAMA, "attention_dropout" },
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const char *eps_key(enum model_preset preset)
{
	return preset == MODEL_GPT2 ? "layer_norm_epsilon" : "rms_norm_eps";
}

/* ---- writing ---- */

static void put_fixed(struct json *j, const struct fixed *row)
{
	const char *value = row->allowed[0];
	if (value[0] == '"') {
		json_key(j, row->key);
		json_stringn(j, value + 1, strlen(value) - 2);
	} else {
		json_key_bool(j, row->key, strcmp(value, "true") == 0);
	}
}

static void put_string(struct json *j, const char *key, const char *value)
{
	json_key(j, key);
	json_string(j, value);
}

static void put_double(struct json *j, const char *key, double value)
{
	json_key(j, key);
	json_double(j, value);
}

/* Version 5 of transformers reads the object, older ones the number beside it. */
static void put_rotary(struct json *j, const struct model_config *c)
{
	put_double(j, "rope_theta", c->rope_theta);
	json_key(j, "rope_parameters");
	json_object(j);
	put_double(j, "rope_theta", c->rope_theta);
	put_string(j, "rope_type", "default");
	json_end(j);
}

/* Llama's own training had none, and transformers knows that of the probabilities alone: without dropout nothing is said, as always. */
static void put_dropouts(struct json *j, enum model_preset preset, double dropout)
{
	for (size_t i = 0; i < COUNT(dropouts); i++)
		if (dropouts[i].preset != preset)
			continue;
		else if (dropout > 0)
			put_double(j, dropouts[i].key, dropout);
		else if (preset == MODEL_GPT2)
			json_key_uint(j, dropouts[i].key, 0);
}

char *hf_config_text(const struct model_config *c, double dropout)
{
	/* Bytes have no tokens for the beginning and the end of a text. */
	static const char *const tokens[] = { "bos_token_id", "eos_token_id" };
	struct json j = { 0 };
	json_object(&j);
	json_key(&j, "architectures");
	json_array(&j);
	json_string(&j, classes[c->preset]);
	json_end(&j);
	put_string(&j, "model_type", model_architecture(c->preset)->name);
	put_string(&j, "dtype", "float32");
	for (size_t i = 0; i < COUNT(numbers); i++) {
		uint32_t value;
		memcpy(&value, (const char *)c + numbers[i].offset, sizeof(value));
		if (numbers[i].preset == c->preset)
			json_key_uint(&j, numbers[i].key, value);
	}
	for (size_t i = 0; i < COUNT(fixed); i++)
		if (fixed[i].preset == c->preset)
			put_fixed(&j, &fixed[i]);
	put_double(&j, eps_key(c->preset), c->norm_eps);
	if (model_architecture(c->preset)->rotary)
		put_rotary(&j, c);
	json_key_bool(&j, "tie_word_embeddings", !c->untied);
	put_dropouts(&j, c->preset, dropout);
	for (size_t i = 0; i < COUNT(tokens); i++) {
		json_key(&j, tokens[i]);
		json_null(&j);
	}
	json_end(&j);
	const char *text = json_text(&j);
	char *copy = text == NULL ? NULL : strdup(text);
	json_finish(&j);
	return copy;
}

/* ---- reading ---- */

struct slice {
	const char *at;
	size_t length;
};

/* The value of a key of an object; false if it is absent or null. The object is well-formed. */
static bool find(struct slice object, const char *wanted, struct slice *value)
{
	struct json_reader r;
	char key[KEY_MAX];
	json_read_init(&r, object.at, object.length);
	for (json_read_object(&r); json_read_key(&r, key, sizeof(key));) {
		struct slice v;
		if (json_read_value(&r, &v.at, &v.length) && strcmp(key, wanted) == 0) {
			*value = v;
			return !(v.length == 4 && memcmp(v.at, "null", 4) == 0);
		}
	}
	return false;
}

static bool is(struct slice value, const char *text)
{
	return value.length == strlen(text) && memcmp(value.at, text, value.length) == 0;
}

static tr_status refuse(const char *key, struct slice found, const char *allowed,
    struct tr_error *error)
{
	return tr_error_set(error, TR_EINVAL, "%s: found %.*s, allowed: %s", key,
	    (int)(found.length < QUOTE_MAX ? found.length : QUOTE_MAX), found.at, allowed);
}

static tr_status read_number(struct slice text, const struct number *row,
    struct model_config *config, struct tr_error *error)
{
	struct slice value;
	struct json_reader r;
	uint64_t number = 0;
	if (!find(text, row->key, &value))
		return row->optional
		    ? TR_OK
		    : refuse(row->key, (struct slice){ "nothing", 7 }, "a whole number", error);
	json_read_init(&r, value.at, value.length);
	if (!json_read_uint(&r, &number) || number == 0 || number > NUMBER_MAX)
		return refuse(row->key, value, "a whole number from 1 to 16777216", error);
	uint32_t narrow = (uint32_t)number;
	memcpy((char *)config + row->offset, &narrow, sizeof(narrow));
	return TR_OK;
}

/* Leaves *to alone if it is absent. */
static tr_status read_double(struct slice object, const char *key, double *to,
    struct tr_error *error)
{
	struct slice value;
	struct json_reader r;
	double number = 0;
	if (!find(object, key, &value))
		return TR_OK;
	json_read_init(&r, value.at, value.length);
	if (!json_read_double(&r, &number) || !(number > 0 && number < 1e12))
		return refuse(key, value, "a number above 0", error);
	*to = number;
	return TR_OK;
}

static tr_status read_fixed(struct slice text, const struct fixed *row, struct tr_error *error)
{
	struct slice value;
	if (!find(text, row->key, &value) || is(value, row->allowed[0]) ||
	    (row->allowed[1] != NULL && is(value, row->allowed[1])))
		return TR_OK;
	return refuse(row->key, value, row->allowed[0], error);
}

static tr_status read_rotary(struct slice text, struct model_config *config, struct tr_error *error)
{
	static const char *const places[] = { "rope_parameters", "rope_scaling" };
	static const char *const types[] = { "rope_type", "type" };
	tr_status status = read_double(text, "rope_theta", &config->rope_theta, error);
	const double beside = config->rope_theta;
	for (size_t i = 0; i < COUNT(places) && status == TR_OK; i++) {
		struct slice object, type;
		if (!find(text, places[i], &object) || is(object, "{}"))
			continue;
		for (size_t k = 0; k < COUNT(types); k++)
			if (status == TR_OK && find(object, types[k], &type) &&
			    !is(type, "\"default\""))
				status = refuse(types[k], type, "\"default\"", error);
		if (status != TR_OK)
			return tr_error_wrap(error, "%s", places[i]);
		config->rope_theta = beside; /* rope_scaling stands for all of rope_parameters */
		status = read_double(object, "rope_theta", &config->rope_theta, error);
	}
	return status;
}

static tr_status read_preset(struct slice text, enum model_preset *preset, struct tr_error *error)
{
	struct slice value;
	char quoted[KEY_MAX];
	if (!find(text, "model_type", &value))
		return refuse("model_type", (struct slice){ "nothing", 7 }, "gpt2 or llama", error);
	for (size_t i = 0; i < MODEL_PRESETS; i++) {
		(void)snprintf(quoted, sizeof(quoted), "\"%s\"",
		    model_architecture((enum model_preset)i)->name);
		if (is(value, quoted)) {
			*preset = (enum model_preset)i;
			return TR_OK;
		}
	}
	return refuse("model_type", value, "gpt2 or llama", error);
}

static tr_status read_all(struct slice text, struct model_config *c, struct tr_error *error)
{
	struct slice tied;
	tr_status status = read_preset(text, &c->preset, error);
	for (size_t i = 0; i < COUNT(numbers) && status == TR_OK; i++)
		if (numbers[i].preset == c->preset)
			status = read_number(text, &numbers[i], c, error);
	for (size_t i = 0; i < COUNT(fixed) && status == TR_OK; i++)
		if (fixed[i].preset == c->preset)
			status = read_fixed(text, &fixed[i], error);
	if (status != TR_OK)
		return status;
	/* What transformers takes where nothing is said. */
	c->norm_eps = c->preset == MODEL_GPT2 ? 1e-5 : 1e-6;
	c->untied = find(text, "tie_word_embeddings", &tied) ? !is(tied, "true")
	                                                     : c->preset != MODEL_GPT2;
	status = read_double(text, eps_key(c->preset), &c->norm_eps, error);
	if (status == TR_OK && model_architecture(c->preset)->rotary)
		status = read_rotary(text, c, error);
	if (status == TR_OK)
		status = model_config_check(c, error);
	return status;
}

tr_status hf_config_parse(const char *text, size_t length, struct model_config *out,
    struct tr_error *error)
{
	struct model_config config = { 0 };
	struct json_reader r;
	char key[KEY_MAX];
	json_read_init(&r, text, length);
	for (json_read_object(&r); json_read_key(&r, key, sizeof(key));)
		(void)json_read_skip(&r);
	if (!json_read_end(&r))
		return tr_error_set(error, TR_EPROTO, "it is not a well-formed JSON object");
	tr_status status = read_all((struct slice){ text, length }, &config, error);
	if (status != TR_OK)
		return status;
	model_config_fill(&config);
	if ((uint64_t)config.head_width * config.heads != config.width)
		return tr_error_set(error, TR_EINVAL,
		    "head_dim: found %u, allowed: hidden_size / num_attention_heads, which is %u",
		    config.head_width, config.width / config.heads);
	*out = config;
	return TR_OK;
}

/* FOLDER/config.json into text [HF_CONFIG_BYTES_MAX]; -1: it cannot be read, as errno says. */
static ssize_t read_text(const char *folder, char *text)
{
	char path[4096 + sizeof(HF_CONFIG_NAME)];
	(void)snprintf(path, sizeof(path), "%s/" HF_CONFIG_NAME, folder);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	ssize_t got = read(fd, text, HF_CONFIG_BYTES_MAX);
	(void)close(fd);
	return got;
}

/* Before anything of it is believed. */
static tr_status check_digest(const char *text, size_t length, const char *digest,
    struct tr_error *error)
{
	char hex[TR_DIGEST_HEX_MAX];
	if (digest[0] == '\0' || strcmp(tr_digest_hex(tr_digest_of(text, length), hex), digest) == 0)
		return TR_OK;
	return tr_error_set(error, TR_EDIGEST,
	    HF_CONFIG_NAME " is damaged: its digest is %s, the manifest says %s", hex, digest);
}

tr_status hf_config_read(const char *folder, const char *digest, struct model_config *config,
    struct tr_error *error)
{
	char *text = malloc(HF_CONFIG_BYTES_MAX);
	if (text == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory for " HF_CONFIG_NAME);
	ssize_t got = read_text(folder, text);
	tr_status status;
	if (got < 0)
		status = tr_error_set(error,
		    errno == ENOENT || errno == ENOTDIR ? TR_ENOTFOUND : TR_EIO,
		    HF_CONFIG_NAME ": cannot read: %s", strerror(errno));
	else if ((status = check_digest(text, (size_t)got, digest, error)) == TR_OK &&
	    (status = hf_config_parse(text, (size_t)got, config, error)) != TR_OK)
		(void)tr_error_wrap(error, HF_CONFIG_NAME);
	free(text);
	return status;
}

/* Of a well-formed text. */
static double find_dropout(struct slice text, char said[HF_DROPOUT_TEXT_MAX])
{
	enum model_preset preset;
	double largest = 0;
	size_t used = 0;
	if (read_preset(text, &preset, NULL) != TR_OK)
		return 0;
	for (size_t i = 0; i < COUNT(dropouts); i++) {
		struct slice value;
		struct json_reader r;
		double share;
		if (dropouts[i].preset != preset || !find(text, dropouts[i].key, &value))
			continue;
		json_read_init(&r, value.at, value.length);
		if (!json_read_double(&r, &share) || !(share >= 0 && share < 1))
			continue;
		used += (size_t)snprintf(said + used, HF_DROPOUT_TEXT_MAX - used, "%s%s %.4g",
		    used > 0 ? ", " : "", dropouts[i].key, share);
		largest = share > largest ? share : largest;
	}
	return largest;
}

double hf_config_dropout(const char *folder, char said[HF_DROPOUT_TEXT_MAX])
{
	char *text = malloc(HF_CONFIG_BYTES_MAX);
	struct model_config config;
	ssize_t got = text != NULL ? read_text(folder, text) : -1;
	double dropout = 0;
	said[0] = '\0';
	if (got >= 0 && hf_config_parse(text, (size_t)got, &config, NULL) == TR_OK)
		dropout = find_dropout((struct slice){ text, (size_t)got }, said);
	free(text);
	return dropout;
}
