/* A tokenizer for models of bytes, as Hugging Face's tokenizers library reads it: byte-level BPE without merges. */
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "daemon/checkpoint/byte_character.h"
#include "daemon/checkpoint/hf_folder.h"

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

char *hf_tokenizer_config(const struct model_config *config)
{
	struct json j = { 0 };
	json_object(&j);
	json_key(&j, "tokenizer_class");
	json_string(&j, "PreTrainedTokenizerFast");
	json_key_uint(&j, "model_max_length", config->context);
	json_key_bool(&j, "clean_up_tokenization_spaces", false);
	json_end(&j);
	return taken(&j);
}
