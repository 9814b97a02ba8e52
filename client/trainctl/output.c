#include "client/trainctl/output.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/utf8.h"

static struct output_line *line_of(struct output *output, uint32_t rank)
{
	if (rank >= TR_GROUP_PEERS_MAX)
		return NULL;
	if (output->lines == NULL) {
		output->lines = calloc(TR_GROUP_PEERS_MAX, sizeof(*output->lines));
		output->ranks = output->lines != NULL ? TR_GROUP_PEERS_MAX : 0;
	}
	struct output_line *line = output->lines != NULL ? &output->lines[rank] : NULL;
	if (line != NULL && line->text == NULL)
		line->text = malloc(OUTPUT_LINE_MAX);
	return line != NULL && line->text != NULL ? line : NULL;
}

static void write_line(struct output *output, uint32_t rank, struct output_line *line)
{
	if (output->color)
		(void)fprintf(stdout, "\033[3%um[%u]\033[0m ", 1 + rank % 6, rank);
	else
		(void)fprintf(stdout, "[%u] ", rank);
	(void)fwrite(line->text, 1, line->length, stdout);
	(void)fputc('\n', stdout);
	line->length = 0;
}

/* A line that is too long, up to its last whole character; the beginning of the next one stays. */
static void break_line(struct output *output, uint32_t rank, struct output_line *line)
{
	size_t begun = utf8_begun((const unsigned char *)line->text, line->length);
	line->length -= begun;
	write_line(output, rank, line);
	memmove(line->text, line->text + OUTPUT_LINE_MAX - begun, begun);
	line->length = begun;
}

void output_check(int *failed)
{
	bool bad = ferror(stdout) != 0;
	bad = fflush(stdout) != 0 || bad;
	if (!bad)
		return;
	if (*failed == 0)
		*failed = errno != 0 ? errno : EIO;
	clearerr(stdout); /* main need not tell of it too */
}

void output_write(struct output *output, uint32_t rank, const uint8_t *data, size_t bytes)
{
	if (output->failed != 0)
		return;
	errno = 0;
	struct output_line *line = output->raw ? NULL : line_of(output, rank);
	if (line == NULL) {
		(void)fwrite(data, 1, bytes, stdout);
		output->last = bytes > 0 ? (char)data[bytes - 1] : output->last;
	}
	for (size_t i = 0; line != NULL && i < bytes; i++) {
		if (data[i] == '\n')
			write_line(output, rank, line);
		else if (line->length == OUTPUT_LINE_MAX)
			break_line(output, rank, line);
		if (data[i] != '\n')
			line->text[line->length++] = (char)data[i];
	}
	output_check(&output->failed);
}

void output_gap(struct output *output, uint32_t rank, uint64_t bytes)
{
	char note[64];
	struct output_line *line = output->raw ? NULL : line_of(output, rank);
	bool amid = line != NULL ? line->length > 0 : output->last != '\0' && output->last != '\n';
	if (bytes == 0)
		return;
	int length = snprintf(note, sizeof(note), "%s[%" PRIu64 " bytes of output were not kept]\n",
	    amid ? "\n" : "", bytes);
	output_write(output, rank, (const uint8_t *)note, (size_t)length);
}

void output_flush(struct output *output)
{
	errno = 0;
	for (size_t rank = 0; rank < output->ranks && output->failed == 0; rank++) {
		if (output->lines[rank].length > 0)
			write_line(output, (uint32_t)rank, &output->lines[rank]);
	}
	output_check(&output->failed);
}

int output_finish(struct output *output)
{
	output_flush(output);
	for (size_t rank = 0; rank < output->ranks; rank++)
		free(output->lines[rank].text);
	free(output->lines);
	int failed = output->failed;
	*output = (struct output){ 0 };
	return failed;
}
