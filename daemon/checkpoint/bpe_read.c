/* vocab.json and merges.txt. Their bytes are not trusted. Tokens stand there as characters: of each byte the one that GPT-2's encoder.py shows
 * for it (byte_character.h). */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "common/json_read.h"
#include "common/limits.h"
#include "daemon/checkpoint/bpe_inside.h"
#include "daemon/checkpoint/byte_character.h"

#define NAME_MAX_BYTES 1024
#define VOCAB_MAX      (1u << 24)

tr_status bpe_read_file(const char *folder, const char *name, char **text, size_t *length,
    struct tr_error *error)
{
	char path[4096 + 16];
	struct stat about;
	(void)snprintf(path, sizeof(path), "%s/%s", folder, name);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &about) != 0 || about.st_size > TR_BPE_FILE_MAX) {
		int cause = fd < 0 ? errno : EFBIG;
		if (fd >= 0)
			(void)close(fd);
		return tr_error_set(error, cause == ENOENT ? TR_ENOTFOUND : TR_EIO,
		    "%s: cannot read: %s", name, strerror(cause));
	}
	char *made = malloc((size_t)about.st_size + 1);
	size_t used = 0;
	const char *failed = NULL;
	while (made != NULL && failed == NULL && used < (size_t)about.st_size) {
		ssize_t got = read(fd, made + used, (size_t)about.st_size - used);
		if (got > 0)
			used += (size_t)got;
		else if (got == 0)
			failed = "it became shorter meanwhile";
		else if (errno != EINTR)
			failed = strerror(errno);
	}
	(void)close(fd);
	if (made == NULL)
		return tr_error_set(error, TR_ENOMEM, "%s: no memory for it", name);
	if (failed != NULL) {
		free(made);
		return tr_error_set(error, TR_EIO, "%s: cannot read: %s", name, failed);
	}
	made[used] = '\0';
	*text = made;
	*length = used;
	return TR_OK;
}

/* In place: characters become bytes. False: there is one that stands for no byte. */
static bool to_bytes(char *text, size_t *length)
{
	size_t used = 0;
	for (size_t i = 0; i < *length;) {
		unsigned char byte;
		size_t run = byte_of_character(text + i, *length - i, &byte);
		if (run == 0)
			return false;
		text[used++] = (char)byte;
		i += run;
	}
	*length = used;
	return true;
}

static size_t place_of_name(const struct bpe *bpe, const char *bytes, size_t length)
{
	size_t mask = bpe->name_places - 1, at = (size_t)XXH3_64bits(bytes, length) & mask;
	for (; bpe->names[at] >= 0; at = (at + 1) & mask) {
		const struct bpe_text *found = &bpe->token[bpe->names[at]];
		if (found->length == length && memcmp(found->at, bytes, length) == 0)
			break;
	}
	return at;
}

static int32_t id_of(const struct bpe *bpe, const char *bytes, size_t length)
{
	return bpe->names[place_of_name(bpe, bytes, length)];
}

static size_t place_of_merge(const struct bpe *bpe, int32_t left, int32_t right)
{
	uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
	size_t mask = bpe->merge_places - 1;
	size_t at = (size_t)((key * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & mask;
	while (bpe->merges[at].left >= 0 &&
	    (bpe->merges[at].left != left || bpe->merges[at].right != right))
		at = (at + 1) & mask;
	return at;
}

const struct bpe_merge *bpe_merge_of(const struct bpe *bpe, int32_t left, int32_t right)
{
	const struct bpe_merge *merge = &bpe->merges[place_of_merge(bpe, left, right)];
	return merge->left >= 0 ? merge : NULL;
}

static size_t places_for(size_t count)
{
	size_t places = 16;
	while (places < 2 * count)
		places *= 2;
	return places;
}

/* ---- vocab.json ---- */

static tr_status add_token(struct bpe *bpe, char *name, size_t id, struct tr_error *error)
{
	size_t length = strlen(name);
	if (id >= VOCAB_MAX)
		return tr_error_set(error, TR_ELIMIT, "token %zu is beyond %u", id, VOCAB_MAX);
	if (id >= bpe->name_places) { /* for now: room of token */
		size_t wanted = places_for(id + 1);
		struct bpe_text *grown = realloc(bpe->token, wanted * sizeof(*grown));
		if (grown == NULL)
			return tr_error_set(error, TR_ENOMEM, "no memory for %zu tokens", wanted);
		memset(grown + bpe->name_places, 0, (wanted - bpe->name_places) * sizeof(*grown));
		bpe->token = grown;
		bpe->name_places = wanted;
	}
	if (bpe->token[id].at != NULL)
		return tr_error_set(error, TR_EPROTO, "token %zu occurs twice", id);
	if (!to_bytes(name, &length))
		return tr_error_set(error, TR_EPROTO,
		    "token %zu has a character that stands for no byte", id);
	char *kept = malloc(length + 1);
	if (kept == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory for a token");
	memcpy(kept, name, length);
	bpe->token[id] = (struct bpe_text){ kept, length };
	if (id >= bpe->vocab)
		bpe->vocab = (uint32_t)id + 1;
	return TR_OK;
}

static tr_status read_tokens(struct bpe *bpe, const char *text, size_t length,
    struct tr_error *error)
{
	struct json_reader r;
	char name[NAME_MAX_BYTES];
	uint64_t id;
	tr_status status = TR_OK;
	json_read_init(&r, text, length);
	for (json_read_object(&r); status == TR_OK && json_read_key(&r, name, sizeof(name));)
		if (json_read_uint(&r, &id))
			status = add_token(bpe, name, (size_t)id, error);
	if (status == TR_OK && !json_read_end(&r))
		status = tr_error_set(error, TR_EPROTO,
		    "it is no JSON object of tokens and numbers");
	return status;
}

static tr_status index_tokens(struct bpe *bpe, struct tr_error *error)
{
	bpe->name_places = places_for(bpe->vocab);
	bpe->names = malloc(bpe->name_places * sizeof(*bpe->names));
	if (bpe->names == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory for an index of tokens");
	memset(bpe->names, 0xff, bpe->name_places * sizeof(*bpe->names));
	for (uint32_t id = 0; id < bpe->vocab; id++)
		if (bpe->token[id].at != NULL)
			bpe->names[place_of_name(bpe, bpe->token[id].at,
			    bpe->token[id].length)] = (int32_t)id;
	for (unsigned byte = 0; byte < 256; byte++) {
		char one = (char)byte;
		bpe->of_byte[byte] = id_of(bpe, &one, 1);
		if (bpe->of_byte[byte] < 0)
			return tr_error_set(error, TR_EPROTO, "it has no token for byte %u", byte);
	}
	return TR_OK;
}

static tr_status read_vocab(struct bpe *bpe, const char *folder, struct tr_error *error)
{
	char *text;
	size_t length;
	tr_status status = bpe_read_file(folder, BPE_VOCAB, &text, &length, error);
	if (status != TR_OK)
		return status;
	status = read_tokens(bpe, text, length, error);
	free(text);
	if (status == TR_OK)
		status = index_tokens(bpe, error);
	return status == TR_OK ? TR_OK : tr_error_wrap(error, "vocab.json");
}

/* ---- merges.txt: "left right" a line, after a line that begins with #version ---- */

static tr_status add_merge(struct bpe *bpe, char *line, uint32_t rank, struct tr_error *error)
{
	char *blank = strchr(line, ' '), joined[2 * NAME_MAX_BYTES];
	if (blank == NULL || blank == line || strchr(blank + 1, ' ') != NULL)
		return tr_error_set(error, TR_EPROTO, "found no two tokens");
	size_t left = (size_t)(blank - line), right = strlen(blank + 1);
	if (!to_bytes(line, &left) || !to_bytes(blank + 1, &right) || left + right > sizeof(joined))
		return tr_error_set(error, TR_EPROTO, "found a character that stands for no byte");
	memcpy(joined, line, left);
	memcpy(joined + left, blank + 1, right);
	struct bpe_merge merge = { id_of(bpe, line, left), id_of(bpe, blank + 1, right),
		id_of(bpe, joined, left + right), rank };
	if (merge.left < 0 || merge.right < 0 || merge.result < 0)
		return tr_error_set(error, TR_EPROTO, "found a token that vocab.json does not have");
	bpe->merges[place_of_merge(bpe, merge.left, merge.right)] = merge; /* the last of two counts */
	return TR_OK;
}

static tr_status read_lines(struct bpe *bpe, char *text, struct tr_error *error)
{
	uint32_t rank = 0, number = 0;
	for (char *line = text, *end; line != NULL; line = end) {
		end = strchr(line, '\n');
		if (end != NULL)
			*end++ = '\0';
		number++;
		size_t length = strlen(line);
		if (length > 0 && line[length - 1] == '\r')
			line[--length] = '\0';
		if (length == 0 || (number == 1 && strncmp(line, "#version", 8) == 0))
			continue;
		if (add_merge(bpe, line, rank++, error) != TR_OK)
			return tr_error_wrap(error, "merges.txt: line %u", number);
	}
	return TR_OK;
}

static tr_status read_merges(struct bpe *bpe, const char *folder, struct tr_error *error)
{
	char *text;
	size_t length, lines = 1;
	tr_status status = bpe_read_file(folder, BPE_MERGES, &text, &length, error);
	if (status != TR_OK)
		return status;
	for (size_t i = 0; i < length; i++)
		lines += text[i] == '\n';
	bpe->merge_places = places_for(lines);
	bpe->merges = malloc(bpe->merge_places * sizeof(*bpe->merges));
	if (bpe->merges == NULL) {
		free(text);
		return tr_error_set(error, TR_ENOMEM, "no memory for %zu merges", lines);
	}
	memset(bpe->merges, 0xff, bpe->merge_places * sizeof(*bpe->merges));
	status = read_lines(bpe, text, error);
	free(text);
	return status;
}

tr_status bpe_read(struct bpe *bpe, const char *folder, struct tr_error *error)
{
	tr_status status = read_vocab(bpe, folder, error);
	return status == TR_OK ? read_merges(bpe, folder, error) : status;
}

void bpe_forget(struct bpe *bpe)
{
	for (uint32_t id = 0; bpe->token != NULL && id < bpe->vocab; id++)
		free(bpe->token[id].at);
	free(bpe->token);
	free(bpe->names);
	free(bpe->merges);
}
