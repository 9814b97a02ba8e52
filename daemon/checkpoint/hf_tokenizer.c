/* A tokenizer for models of bytes, as Hugging Face's tokenizers library reads it: byte-level BPE without merges. That library writes bytes as
 * characters: those that can be seen as themselves, the others from U+0100 on (as GPT-2's encoder.py does). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "daemon/checkpoint/hf_folder.h"

static bool is_seen(unsigned byte)
{
	return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

/* Code points under U+0800 as UTF-8. */
static void encode(unsigned code, char text[3])
{
	if (code < 0x80)
		(void)snprintf(text, 3, "%c", (int)code);
	else
		(void)snprintf(text, 3, "%c%c", (int)(0xc0 | code >> 6),
		    (int)(0x80 | (code & 0x3f)));
}

static void put_vocabulary(struct json *j)
{
	unsigned unseen = 256;
	json_key(j, "vocab");
	json_object(j);
	for (unsigned byte = 0; byte < 256; byte++) {
		char text[3];
		encode(is_seen(byte) ? byte : unseen++, text);
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
