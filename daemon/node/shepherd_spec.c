#include "daemon/node/shepherd_spec.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/limits.h"

/* Fields in order, each ended by NUL: numbers as text, then cgroup, directory, argv, environment. */

static void put(FILE *out, const char *text)
{
	(void)fwrite(text, 1, strlen(text) + 1, out);
}

static void put_number(FILE *out, unsigned long long number)
{
	(void)fprintf(out, "%llu", number);
	(void)fputc('\0', out);
}

static size_t count_of(const char *const *list)
{
	size_t count = 0;
	while (list[count] != NULL)
		count++;
	return count;
}

static void put_list(FILE *out, const char *const *list)
{
	put_number(out, count_of(list));
	for (; *list != NULL; list++)
		put(out, *list);
}

tr_status shepherd_spec_write(const struct shepherd_spec *spec, int *fd, struct tr_error *error)
{
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);
	if (out == NULL)
		return tr_error_set(error, TR_ENOMEM, "out of memory");
	put_number(out, (unsigned long long)spec->traind);
	put_number(out, spec->grace_ms);
	put_number(out, spec->open_files);
	put_number(out, spec->channel);
	put(out, spec->cgroup);
	put(out, spec->directory);
	put_list(out, spec->argv);
	put_list(out, spec->environment);
	bool failed = ferror(out) != 0;
	failed |= fclose(out) != 0;
	int memory = failed ? -1 : memfd_create("traind-worker", MFD_CLOEXEC);
	tr_status st = TR_OK;
	if (memory < 0 || write(memory, text, size) != (ssize_t)size ||
	    lseek(memory, 0, SEEK_SET) != 0)
		st = tr_error_set(error, TR_EIO, "cannot pass the worker's command on: %s",
		    strerror(errno));
	free(text);
	if (st != TR_OK && memory >= 0)
		(void)close(memory);
	if (st == TR_OK)
		*fd = memory;
	return st;
}

struct reader {
	char *at, *end;
	bool failed;
};

static char *get(struct reader *reader)
{
	char *text = reader->at;
	char *stop = reader->failed ? NULL : memchr(text, '\0', (size_t)(reader->end - text));
	if (stop == NULL) {
		reader->failed = true;
		return reader->end; /* the NUL behind the last byte */
	}
	reader->at = stop + 1;
	return text;
}

static unsigned long long get_number(struct reader *reader)
{
	return strtoull(get(reader), NULL, 10);
}

static const char *const *get_list(struct reader *reader)
{
	size_t count = get_number(reader);
	if (count > (size_t)(reader->end - reader->at))
		reader->failed = true;
	if (reader->failed)
		return NULL;
	const char **list = calloc(count + 1, sizeof(*list));
	if (list == NULL) {
		reader->failed = true;
		return NULL;
	}
	for (size_t i = 0; i < count; i++)
		list[i] = get(reader);
	return (const char *const *)list;
}

tr_status shepherd_spec_read(int fd, struct shepherd_spec *spec, struct tr_error *error)
{
	struct stat status;
	if (fstat(fd, &status) != 0 || status.st_size <= 0)
		return tr_error_set(error, TR_EIO, "no specification of a worker on descriptor %d",
		    fd);
	size_t size = (size_t)status.st_size;
	char *memory = malloc(size + 1);
	if (memory == NULL || pread(fd, memory, size, 0) != (ssize_t)size) {
		free(memory);
		return tr_error_set(error, TR_EIO, "cannot read the specification of a worker");
	}
	memory[size] = '\0';
	struct reader reader = { .at = memory, .end = memory + size };
	struct shepherd_spec read = { .memory = memory };
	read.traind = (pid_t)get_number(&reader);
	read.grace_ms = (unsigned)get_number(&reader);
	read.open_files = get_number(&reader);
	read.channel = get_number(&reader) != 0;
	read.cgroup = get(&reader);
	read.directory = get(&reader);
	read.argv = get_list(&reader);
	read.environment = get_list(&reader);
	if (reader.failed || read.argv[0] == NULL) {
		shepherd_spec_finish(&read);
		return tr_error_set(error, TR_EPROTO, "the specification of a worker is cut short");
	}
	*spec = read;
	return TR_OK;
}

void shepherd_spec_finish(struct shepherd_spec *spec)
{
	free((void *)spec->argv);
	free((void *)spec->environment);
	free(spec->memory);
	*spec = (struct shepherd_spec){ 0 };
}
