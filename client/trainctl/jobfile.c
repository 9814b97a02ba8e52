#include "client/trainctl/jobfile.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/trainctl/job_text.h"
#include "client/trainctl/path.h"
#include "common/limits.h"
#include "daemon/checkpoint/bpe.h"
#include "daemon/checkpoint/checkpoint.h"
#include "daemon/checkpoint/hf_config.h"

struct job {
	const char *path;
	char folder[PATH_MAX];  /* of the job file, absolute */
	char current[PATH_MAX]; /* of the caller, absolute */
	Traind__V1__JobSpec *spec;
	struct jobfile_places places;
};

static size_t row_of(const char *key)
{
	const struct job_option *option = job_option_find(key);
	assert(option != NULL);
	return (size_t)(option - job_options());
}

static bool has_set(const struct job *job)
{
	for (size_t i = 0; i < JOB_OPTIONS_MAX; i++) {
		if (job->places.by_set[i])
			return true;
	}
	return false;
}

/* Of a key that the file lacks: where its section is, as far as that has keys, else where the file begins. */
static unsigned line_near(const struct job *job, const char *key)
{
	unsigned line = job->places.first_line, first = 0;
	size_t section = strcspn(key, ".");
	for (const struct job_option *option = job_options(); option->key != NULL; option++) {
		unsigned at = job->places.line[option - job_options()];
		if (key[section] == '.' && strncmp(option->key, key, section + 1) == 0 && at != 0 &&
		    (first == 0 || at < first))
			first = at;
	}
	return first != 0 ? first : line;
}

/* Puts the place of the key that `cause` begins with before it. */
static tr_status locate(const struct job *job, const struct tr_error *cause, struct tr_error *error)
{
	char key[2 * TR_NAME_MAX];
	(void)snprintf(key, sizeof(key), "%.*s", (int)strcspn(cause->text, ":"), cause->text);
	const struct job_option *option = job_option_find(key);
	unsigned line = line_near(job, key);
	if (option != NULL && job->places.by_set[option - job_options()])
		return tr_error_set(error, cause->status, "--set: %s", cause->text);
	if (option != NULL && job->places.line[option - job_options()] != 0)
		line = job->places.line[option - job_options()];
	else if (has_set(job)) /* no line has the key: what was set may be why it is wanted */
		return tr_error_set(error, cause->status, "%s:%u (with --set): %s", job->path, line,
		    cause->text);
	return tr_error_set(error, cause->status, "%s:%u: %s", job->path, line, cause->text);
}

static tr_status slurp(const char *path, uint8_t **bytes, size_t *size, struct tr_error *error)
{
	struct stat info;
	/* A FIFO is refused, not waited for. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 || fstat(fd, &info) < 0) {
		int cause = errno;
		if (fd >= 0)
			close(fd);
		return tr_error_set(error, TR_ENOTFOUND,
		    "%s:1: file: found none that can be read (%s), allowed: a job file", path,
		    strerror(cause));
	}
	if (!S_ISREG(info.st_mode) || info.st_size > TR_JOB_FILE_BYTES_MAX) {
		close(fd);
		return tr_error_set(error, TR_EINVAL,
		    "%s:1: file: found %s, allowed: a job file of at most %d bytes", path,
		    S_ISREG(info.st_mode) ? "a larger one" : "no regular file",
		    TR_JOB_FILE_BYTES_MAX);
	}
	size_t room = TR_JOB_FILE_BYTES_MAX, used = 0;
	uint8_t *buffer = malloc(room);
	ssize_t got = buffer != NULL ? 1 : -1;
	while (got > 0 && used < room) {
		got = read(fd, buffer + used, room - used);
		used += got > 0 ? (size_t)got : 0;
	}
	close(fd);
	if (got < 0) {
		free(buffer);
		return tr_error_set(error, TR_EIO,
		    "%s:1: file: found an error while reading it (%s), allowed: a job file", path,
		    strerror(errno));
	}
	*bytes = buffer;
	*size = used;
	return TR_OK;
}

/* What stands between [text, end) up to a comma, without blanks and quotes around it; returns where that is, or `end`. */
static const char *list_entry(const char *text, const char *end, char entry[PATH_MAX])
{
	text += strspn(text, " ");
	const char *close = text < end && (*text == '"' || *text == '\'')
	    ? memchr(text + 1, *text, (size_t)(end - text - 1))
	    : NULL;
	const char *from = close != NULL ? close : text;
	const char *comma = from < end ? memchr(from, ',', (size_t)(end - from)) : NULL;
	const char *last = comma != NULL ? comma : end;
	while (last > text && last[-1] == ' ')
		last--;
	if (close != NULL && last == close + 1)
		text++, last--;
	(void)snprintf(entry, PATH_MAX, "%.*s", last > text ? (int)(last - text) : 0, text);
	return comma != NULL ? comma : end;
}

/* A list as a file and `trainctl plan` have it, "[3, 1]"; of numbers also "3,1", and "[]" takes all away. */
static tr_status set_value(Traind__V1__JobSpec *spec, const struct job_option *option,
    const char *text, struct tr_error *error)
{
	char entry[PATH_MAX], allowed[160];
	size_t length = strlen(text);
	bool bracketed = length > 1 && text[0] == '[' && text[length - 1] == ']';
	bool list = job_option_list_most(option) > 0 && bracketed;
	if (!list && option->kind != OPTION_UINTS)
		return job_option_set(spec, option->key, text, error);
	if (option->kind == OPTION_UINTS && strcmp(text, "[]") == 0) {
		job_option_clear(spec, option->key);
		return TR_OK;
	}
	const char *end = text + length - (bracketed ? 1 : 0);
	for (const char *at = text + (bracketed ? 1 : 0); at <= end; at++) {
		at = list_entry(at, end, entry);
		if (list && entry[0] == '\0')
			return tr_error_set(error, TR_EINVAL,
			    "%s: found an empty entry in '%.60s', allowed: %s", option->key, text,
			    job_option_allowed(option, allowed, sizeof(allowed)));
		tr_status status = job_option_set(spec, option->key, entry, error);
		if (status != TR_OK)
			return status;
	}
	return TR_OK;
}

static tr_status apply_set(struct job *job, const char *set, struct tr_error *error)
{
	char key[2 * TR_NAME_MAX];
	if (strcmp(set, "mesh=auto") == 0) /* as a file's `mesh: auto` */
		set = "mesh.auto=true";
	const char *equals = strchr(set, '=');
	if (equals == NULL || equals == set || (size_t)(equals - set) >= sizeof(key))
		return tr_error_set(error, TR_EINVAL,
		    "--set: %.*s: found %s, allowed: --set key=value, as in "
		    "--set train.steps=100",
		    2 * TR_NAME_MAX, set,
		    equals == NULL      ? "no '='"
		        : equals == set ? "no key"
		                        : "a key that is too long");
	(void)snprintf(key, sizeof(key), "%.*s", (int)(equals - set), set);
	const struct job_option *option = job_option_find(key);
	/* A list that the file gave is replaced; a second --set of it adds to the first. */
	if (option != NULL && job_option_list_most(option) > 0 &&
	    !job->places.by_set[option - job_options()])
		job_option_clear(job->spec, key);
	struct tr_error cause;
	tr_status status = option != NULL ? set_value(job->spec, option, equals + 1, &cause)
	                                  : job_option_set(job->spec, key, equals + 1, &cause);
	if (status != TR_OK)
		return tr_error_set(error, status, "--set: %s", cause.text);
	job->places.by_set[option - job_options()] = true;
	return TR_OK;
}

/* Makes the key's paths absolute. */
static tr_status resolve(struct job *job, const char *key, struct tr_error *error)
{
	size_t row = row_of(key);
	const char *base = job->places.by_set[row] ? job->current : job->folder;
	char *written[TR_JOB_PATHS_MAX];
	size_t count = 0;
	tr_status status = TR_OK;
	for (const char *text;
	     count < TR_JOB_PATHS_MAX && (text = job_option_text(job->spec, key, count)) != NULL;) {
		written[count] = strdup(text);
		if (written[count++] == NULL)
			status = TR_ENOMEM;
	}
	if (status == TR_OK && count > 0)
		job_option_clear(job->spec, key);
	struct tr_error cause = { .status = TR_ENOMEM, .text = "out of memory" };
	for (size_t i = 0; i < count && status == TR_OK; i++) {
		char full[PATH_MAX];
		if (!path_absolute(base, written[i], full, sizeof(full)))
			status = tr_error_set(&cause, TR_EINVAL,
			    "%s: found a path that is too long, allowed: at most %d bytes", key,
			    PATH_MAX - 1);
		else
			status = job_option_set(job->spec, key, full, &cause);
	}
	for (size_t i = 0; i < count; i++)
		free(written[i]);
	return status == TR_OK ? TR_OK : locate(job, &cause, error);
}

static tr_status check_text_files(const struct job *job, struct tr_error *error)
{
	struct tr_error cause;
	return job_text_check(job->spec, &cause) == TR_OK ? TR_OK : locate(job, &cause, error);
}

/* Whether a checkpoint's weights are those of the job's model; the manifest is written last: where it is, the checkpoint is whole. */
static tr_status check_resume(const struct job *job, const char *resume, struct tr_error *error)
{
	char found[CHECKPOINT_PATH_MAX], older[CHECKPOINT_PATH_MAX];
	uint64_t steps;
	struct model_config weights, wanted;
	struct manifest manifest;
	if (checkpoint_find(resume, found, NULL) != TR_OK)
		return tr_error_set(error, TR_ENOTFOUND,
		    "checkpoint.resume: found '%.300s', where manifest.json cannot be read (%s), "
		    "allowed: the folder of a "
		    "checkpoint",
		    resume, strerror(errno));
	tr_status status = checkpoint_config(resume, &weights, &manifest, found, error);
	bool damaged = status == TR_EDIGEST || status == TR_EPROTO;
	if (damaged && checkpoint_older(resume, older, &steps)) {
		tr_error_clear(error); /* workers take that one, and say so */
		return TR_OK;
	}
	if (status != TR_OK)
		return tr_error_wrap(error, "checkpoint.resume: %.300s", found);
	status = job_model_config(job->spec->train->model, &wanted, error);
	return status == TR_OK ? model_config_same(&weights, &wanted, error) : status;
}

static tr_status check_tokenizer(const struct job *job, const char *folder, struct tr_error *error)
{
	struct model_config config;
	struct bpe *bpe = NULL;
	tr_status status = bpe_load(folder, &bpe, error);
	if (status != TR_OK)
		return tr_error_wrap(error, "data.tokenizer");
	status = job_model_config(job->spec->train->model, &config, error);
	if (status == TR_OK && bpe_vocab(bpe) > config.vocab)
		status = tr_error_set(error, TR_EINVAL,
		    "model.vocab: found %u, allowed: at least %u, as data.tokenizer has",
		    config.vocab, bpe_vocab(bpe));
	bpe_destroy(bpe);
	return status;
}

static tr_status check_folders(const struct job *job, struct tr_error *error)
{
	struct tr_error cause = { 0 };
	struct stat info;
	const char *dir = job_option_text(job->spec, "checkpoint.dir", 0);
	const char *resume = job_option_text(job->spec, "checkpoint.resume", 0);
	const char *tokenizer = job_option_text(job->spec, "data.tokenizer", 0);
	if (dir != NULL && stat(dir, &info) == 0 && !S_ISDIR(info.st_mode))
		(void)tr_error_set(&cause, TR_EINVAL,
		    "checkpoint.dir: found '%.300s', which is no folder, allowed: a folder, or a "
		    "path where one can be made",
		    dir);
	else if (resume != NULL)
		(void)check_resume(job, resume, &cause);
	if (cause.status == TR_OK && tokenizer != NULL)
		(void)check_tokenizer(job, tokenizer, &cause);
	return cause.status == TR_OK ? TR_OK : locate(job, &cause, error);
}

static tr_status default_dir(struct job *job, struct tr_error *error)
{
	char dir[TR_NAME_MAX + 8];
	if (job_option_text(job->spec, "checkpoint.dir", 0) != NULL || job->spec->name == NULL ||
	    job->spec->name[0] == '\0')
		return TR_OK;
	(void)snprintf(dir, sizeof(dir), "runs/%s", job->spec->name);
	return job_option_set(job->spec, "checkpoint.dir", dir, error);
}

static tr_status complete(struct job *job, const char *const *sets, size_t n_sets,
    struct tr_error *error)
{
	static const char *const paths[] = { "data.text", "data.tokens", "data.tokenizer",
		"checkpoint.dir", "checkpoint.resume" };
	tr_status status = TR_OK;
	for (size_t i = 0; i < n_sets && status == TR_OK; i++)
		status = apply_set(job, sets[i], error);
	if (status == TR_OK)
		status = default_dir(job, error);
	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]) && status == TR_OK; i++)
		status = resolve(job, paths[i], error);
	if (status != TR_OK)
		return status;
	struct tr_error cause;
	if (job_validate(job->spec, &cause) != TR_OK)
		return locate(job, &cause, error);
	status = check_text_files(job, error);
	return status == TR_OK ? check_folders(job, error) : status;
}

tr_status jobfile_read(const char *path, const char *const *sets, size_t n_sets,
    Traind__V1__JobSpec **spec, struct tr_error *error)
{
	struct job job = { .path = path };
	uint8_t *bytes = NULL;
	size_t size = 0;
	tr_status status = slurp(path, &bytes, &size, error);
	if (status != TR_OK)
		return status;
	job.spec = job_spec_new(true);
	if (job.spec == NULL || !path_folder(path, job.folder, sizeof(job.folder)) ||
	    getcwd(job.current, sizeof(job.current)) == NULL)
		status = tr_error_set(error, TR_EIO, "%s:1: file: its folder cannot be found (%s)",
		    path, strerror(errno));
	if (status == TR_OK)
		status = jobfile_parse(path, bytes, size, job.spec, &job.places, error);
	if (status == TR_OK)
		status = complete(&job, sets, n_sets, error);
	free(bytes);
	if (status == TR_OK)
		*spec = job.spec;
	else if (job.spec != NULL)
		traind__v1__job_spec__free_unpacked(job.spec, NULL);
	return status;
}
