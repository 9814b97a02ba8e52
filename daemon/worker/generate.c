#include "daemon/worker/generate.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/rng.h"
#include "daemon/worker/random.h"

struct generation {
	int32_t *window; /* [context] */
	size_t used;     /* tokens in the window */
	size_t known;    /* of those the model's rows are computed */
	size_t context;
};

static void push(struct generation *g, int32_t token)
{
	if (g->used == g->context) {
		size_t kept = g->context / 2;
		memmove(g->window, g->window + g->used - kept, kept * sizeof(*g->window));
		g->used = kept;
		g->known = 0; /* positions moved */
	}
	g->window[g->used++] = token;
}

static int32_t likeliest(const float *logits, size_t vocab)
{
	size_t best = 0;
	for (size_t i = 1; i < vocab; i++)
		if (logits[i] > logits[best])
			best = i;
	return (int32_t)best;
}

static int32_t draw(const float *logits, size_t vocab, double temperature, double unit)
{
	double max = (double)logits[likeliest(logits, vocab)], sum = 0;
	for (size_t i = 0; i < vocab; i++)
		sum += exp(((double)logits[i] - max) / temperature);
	double left = unit * sum;
	for (size_t i = 0; i < vocab; i++) {
		left -= exp(((double)logits[i] - max) / temperature);
		if (left < 0)
			return (int32_t)i;
	}
	return likeliest(logits, vocab);
}

/* Length of the well-formed UTF-8 sequence of printable text at s, or 0. RFC 3629, section 4. */
static size_t printable(const unsigned char *s, size_t left)
{
	if (s[0] < 0x80)
		return s[0] == '\n' || s[0] == '\t' || (s[0] >= 0x20 && s[0] != 0x7f);
	size_t need = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
	if (s[0] < 0xc2 || s[0] > 0xf4 || left < need)
		return 0;
	for (size_t i = 1; i < need; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	/* Over-long forms, surrogates, beyond U+10FFFF; C1 controls. */
	bool bad = (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
	    (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f) ||
	    (s[0] == 0xc2 && s[1] < 0xa0);
	return bad ? 0 : need;
}

static void make_printable(char *text, size_t length)
{
	for (size_t i = 0; i < length;) {
		size_t run = printable((const unsigned char *)text + i, length - i);
		if (run == 0)
			text[i++] = '?';
		else
			i += run;
	}
	text[length] = '\0';
}

/* The text that tokens make: appended, with room for a final NUL. */
struct output {
	char *text;
	size_t length, capacity;
	bool failed;
};

static void write_bytes(struct output *out, const char *bytes, size_t length)
{
	if (out->length + length >= out->capacity && !out->failed) {
		size_t wanted = 2 * (out->length + length) + 64;
		char *grown = realloc(out->text, wanted);
		out->failed = grown == NULL;
		out->text = grown != NULL ? grown : out->text;
		out->capacity = grown != NULL ? wanted : out->capacity;
	}
	if (out->failed)
		return;
	memcpy(out->text + out->length, bytes, length);
	out->length += length;
}

static void write_token(struct output *out, const struct bpe *bpe, int32_t token)
{
	char byte = (char)token;
	size_t length = 1;
	const char *bytes = bpe != NULL ? bpe_bytes(bpe, token, &length) : &byte;
	write_bytes(out, bytes, length);
}

static void generate_into(struct generation *g, struct model *model, size_t vocab,
    const struct generate *options, float *logits, struct output *out)
{
	struct rng_key key = rng_key(options->seed, 0, 0);
	for (size_t i = 0; i < options->tokens; i++) {
		model_extend(model, g->window, g->known, g->used, logits);
		g->known = g->used;
		int32_t token = options->temperature > 0
		    ? draw(logits, vocab, options->temperature, rng_unit(key, RANDOM_SAMPLE, i))
		    : likeliest(logits, vocab);
		write_token(out, options->bpe, token);
		push(g, token);
		progress_tell(&options->progress);
	}
}

/* The prompt's tokens, or a line's end where there is none. */
static bool push_prompt(struct generation *g, const struct generate *options)
{
	const char *prompt = options->prompt[0] != '\0' ? options->prompt : "\n";
	struct bpe_tokens tokens = { NULL, 0, 0 };
	size_t length = strlen(prompt);
	bool good = options->bpe == NULL ||
	    bpe_encode(options->bpe, prompt, length, &tokens, NULL) == TR_OK;
	for (size_t i = 0; options->bpe == NULL && i < length; i++)
		push(g, (unsigned char)prompt[i]);
	for (size_t i = 0; good && i < tokens.count; i++)
		push(g, tokens.tokens[i]);
	free(tokens.tokens);
	return good;
}

char *generate_text(struct model *model, const struct model_config *config,
    const struct generate *options)
{
	struct generation g = { .context = config->context };
	struct output out = { NULL, 0, 0, false };
	g.window = calloc(config->context, sizeof(*g.window));
	float *logits = calloc(config->vocab, sizeof(*logits));
	write_bytes(&out, options->prompt, strlen(options->prompt));
	if (g.window != NULL && logits != NULL && push_prompt(&g, options))
		generate_into(&g, model, config->vocab, options, logits, &out);
	else
		out.failed = true;
	free(g.window);
	free(logits);
	if (out.failed) {
		free(out.text);
		return NULL;
	}
	make_printable(out.text, out.length);
	return out.text;
}
