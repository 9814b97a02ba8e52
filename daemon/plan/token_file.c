#include "daemon/plan/token_file.h"

#include <stddef.h>

static uint32_t number(const uint8_t *at)
{
	return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

tr_status token_file_parse(const uint8_t *header, uint64_t got, uint64_t size,
    struct token_file *out, struct tr_error *error)
{
	static const struct {
		uint32_t magic, version;
		unsigned width;
	} kinds[] = { { 20240520, 1, 2 }, { 20240801, 7, 4 } };
	if (got < TOKEN_FILE_HEADER || size < TOKEN_FILE_HEADER)
		return tr_error_set(error, TR_EPROTO,
		    "%llu bytes are too few for a file of tokens, which begins with %d",
		    (unsigned long long)size, TOKEN_FILE_HEADER);
	struct token_file file = { .count = number(header + 8) };
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (number(header) == kinds[i].magic && number(header + 4) == kinds[i].version)
			file.width = kinds[i].width;
	if (file.width == 0)
		return tr_error_set(error, TR_EPROTO,
		    "it begins with %u, version %u; files of tokens of llm.c with 20240520, "
		    "version 1, "
		    "or 20240801, version 7",
		    number(header), number(header + 4));
	if (file.count == 0)
		return tr_error_set(error, TR_EPROTO, "it has no tokens");
	if (size - TOKEN_FILE_HEADER != file.count * file.width)
		return tr_error_set(error, TR_EPROTO,
		    "its header says %llu tokens of %u bytes, %llu bytes follow",
		    (unsigned long long)file.count, file.width,
		    (unsigned long long)(size - TOKEN_FILE_HEADER));
	*out = file;
	return TR_OK;
}
