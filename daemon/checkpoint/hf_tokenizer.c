/* Tokenizers as Hugging Face's tokenizers library reads them: for models of bytes byte-level BPE without merges; for others what GPT-2's files do not say. */
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "daemon/checkpoint/byte_character.h"
#include "daemon/checkpoint/hf_folder.h"

#define END_OF_TEXT "<|endoftext|>" /* GPT-2's one special token */

static void put_vocabulary(struct json *j)
{
	json_key(j, "vocab");
	json_object(j);
	for (unsigned byte = 0; byte < 256; byte++) {
		char text[3];
		byte_character((unsigned char)byte, text);
		json_key_uint(j, text, byte);
	}
	json_end(j);
}

static void put_byte_level(struct json *j, const char *key)
{
	json_key(j, key);
	json_object(j);
	json_key(j, "type");
	json_string(j, "ByteLevel");
	json_key_bool(j, "add_prefix_space", false);
	json_key_bool(j, "trim_offsets", false);
	json_key_bool(j, "use_regex", false);
	json_end(j);
}

static void put_null(struct json *j, const char *key)
{
	json_key(j, key);
	json_null(j);
}

static char *taken(struct json *j)
{
	const char *text = json_text(j);
	char *copy = text == NULL ? NULL : strdup(text);
	json_finish(j);
	return copy;
}

char *hf_tokenizer_of_bytes(void)
{
	static const char *const none[] = { "truncation", "padding", "normalizer",
		"post_processor" };
	struct json j = { 0 };
	json_object(&j);
	json_key(&j, "version");
	json_string(&j, "1.0");
	for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++)
		put_null(&j, none[i]);
	json_key(&j, "added_tokens");
	json_array(&j);
	json_end(&j);
	put_byte_level(&j, "pre_tokenizer");
	put_byte_level(&j, "decoder");
	json_key(&j, "model");
	json_object(&j);
	json_key(&j, "type");
	json_string(&j, "BPE");
	put_null(&j, "unk_token");
	put_vocabulary(&j);
	json_key(&j, "merges");
	json_array(&j);
	json_end(&j);
	json_end(&j);
	json_end(&j);
	return taken(&j);
}

static void begin_config(struct json *j, const struct model_config *config, const char *class)
{
	json_object(j);
	json_key(j, "tokenizer_class");
	json_string(j, class);
	json_key_uint(j, "model_max_length", config->context);
	json_key_bool(j, "clean_up_tokenization_spaces", false);
}

char *hf_tokenizer_config(const struct model_config *config)
{
	struct json j = { 0 };
	begin_config(&j, config, "PreTrainedTokenizerFast");
	json_end(&j);
	return taken(&j);
}

static bool has_end_of_text(const struct bpe *bpe)
{
	for (uint32_t id = 0; id < bpe_vocab(bpe); id++) {
		size_t length;
		const char *bytes = bpe_bytes(bpe, (int32_t)id, &length);
		if (length == strlen(END_OF_TEXT) && memcmp(bytes, END_OF_TEXT, length) == 0)
			return true;
	}
	return false;
}

/* Unless it is told otherwise, transformers adds the end of a text to a vocabulary without it, and the model has no such token. */
char *hf_tokenizer_config_bpe(const struct model_config *config, const struct bpe *bpe)
{
	static const char *const special[] = { "bos_token", "eos_token", "unk_token" };
	bool end = has_end_of_text(bpe);
	struct json j = { 0 };
	begin_config(&j, config, "GPT2Tokenizer");
	json_key_bool(&j, "add_prefix_space", false);
	for (size_t i = 0; i < sizeof(special) / sizeof(special[0]); i++) {
		json_key(&j, special[i]);
		if (end)
			json_string(&j, END_OF_TEXT);
		else
			json_null(&j);
	}
	json_end(&j);
	return taken(&j);
}
