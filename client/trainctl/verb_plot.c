/* plot */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/trainctl/job_folder.h"
#include "client/trainctl/output.h"
#include "client/trainctl/plot.h"
#include "client/trainctl/print.h"
#include "client/trainctl/verbs.h"
#include "common/json.h"

#define FILE_NAME "metrics.jsonl"
#define TITLE_MAX 256

const struct args_row verb_plot_options[] = {
	{ "--output", "-o", "FILE", "where to write the SVG (loss.svg); - is standard output",
	    false },
	{ NULL, NULL, NULL, NULL, false },
};

struct source {
	char name[TITLE_MAX], path[PATH_MAX];
	struct metrics_file metrics;
};

static int find_file(const char *word, struct source *source)
{
	struct stat facts;
	struct tr_error error;
	if (stat(word, &facts) != 0)
		return verbs_complain(EXIT_USAGE,
		    "%s: %s; give a job's number, a run's folder or its " FILE_NAME, word,
		    strerror(errno));
	(void)snprintf(source->name, sizeof(source->name), "%s", word);
	(void)snprintf(source->path, sizeof(source->path),
	    S_ISDIR(facts.st_mode) ? "%s/" FILE_NAME : "%s", word);
	return metrics_file_read(source->path, NULL, &source->metrics, &error) == TR_OK
	    ? EXIT_OK
	    : verbs_complain(EXIT_JOB_FAILED, "%s", error.text);
}

/* Its rows of a file that may have those of others, too. */
static int read_job(struct verb_call *call, const Traind__V1__Job *job, struct source *source)
{
	const struct metrics_job wanted = { job->id, job->submitted_unix_ms };
	struct metrics_file *file = &source->metrics;
	char words[JOB_FOLDER_WORDS_MAX];
	struct tr_error error;
	if (metrics_file_read(source->path, &wanted, file, &error) != TR_OK)
		return verbs_complain(EXIT_JOB_FAILED, "%s", error.text);
	if (file->own > 0)
		return EXIT_OK;
	if (file->unknown > 0)
		return job_folder_check(call, job, false);
	return verbs_complain(EXIT_JOB_FAILED,
	    "job %llu: %s has no step of it, but steps of %s; the node of the job's first worker "
	    "writes it: run this there, or give the file's path to take what is here",
	    (unsigned long long)job->id, source->path,
	    job_folder_words(job, file->other.id, NULL, words));
}

static int find_job(struct verb_call *call, const char *word, struct source *source)
{
	int code = EXIT_OK;
	Traind__V1__Job *job = verbs_training_job(call, word, &code);
	if (job == NULL)
		return code;
	const char *dir = job_folder(job);
	(void)snprintf(source->name, sizeof(source->name), "job %llu  %s",
	    (unsigned long long)job->id, job->spec->name);
	(void)snprintf(source->path, sizeof(source->path), "%s/" FILE_NAME, dir);
	if (job->progress == NULL || job->progress->step == 0)
		code = verbs_complain(EXIT_JOB_FAILED, "job %s has made no step yet", word);
	else if (dir[0] == '\0')
		code = verbs_complain(EXIT_USAGE,
		    "job %s has no checkpoint.dir, where its losses would be", word);
	else if (access(source->path, R_OK) != 0)
		code = verbs_complain(EXIT_JOB_FAILED,
		    "job %s: %s: %s here; the node of the job's first worker writes it: run this "
		    "there, or "
		    "give a copy of the file",
		    word, source->path, strerror(errno));
	else
		code = read_job(call, job, source);
	traind__v1__job__free_unpacked(job, NULL);
	return code;
}

static bool is_replaced(const char *path)
{
	struct stat there;
	return lstat(path, &there) != 0 || S_ISREG(there.st_mode);
}

static int write_output(const struct plot_run *runs, size_t count)
{
	int failed = 0;
	errno = 0;
	(void)plot_write(stdout, runs, count);
	output_check(&failed);
	return failed == 0 || failed == EPIPE /* `trainctl plot 1 -o - | head` */
	    ? EXIT_OK
	    : verbs_complain(EXIT_JOB_FAILED, "standard output: %s", strerror(failed));
}

/* A file is written beside, then renamed: whoever looks at it meanwhile sees the old one. What else is at the path, a device or a link, is not ours to replace and gets the bytes. */
static int write_file(const char *path, const struct plot_run *runs, size_t count)
{
	char beside[PATH_MAX];
	if (strcmp(path, "-") == 0)
		return write_output(runs, count);
	if ((size_t)snprintf(beside, sizeof(beside), "%s.%ld.new", path, (long)getpid()) >=
	    sizeof(beside))
		return verbs_complain(EXIT_USAGE, "--output: the path is too long");
	bool replaced = is_replaced(path);
	FILE *stream = fopen(replaced ? beside : path, replaced ? "wx" : "w");
	if (stream == NULL)
		return verbs_complain(EXIT_JOB_FAILED, "%s: %s",
		    replaced && errno == EEXIST ? beside : path, strerror(errno));
	bool written = plot_write(stream, runs, count);
	int cause = errno;
	if (fclose(stream) != 0 && written) {
		written = false;
		cause = errno;
	}
	if (written && (!replaced || rename(beside, path) == 0))
		return EXIT_OK;
	if (written)
		cause = errno;
	if (replaced)
		(void)unlink(beside);
	return verbs_complain(EXIT_JOB_FAILED, "%s: %s", path, strerror(cause));
}

static void say_written(const struct config *config, const char *path, const struct plot_run *runs,
    size_t count)
{
	struct json json = { 0 };
	if (strcmp(path, "-") == 0)
		return;
	if (!config->json) {
		(void)printf("wrote %s\n", path);
		return;
	}
	json_object(&json);
	json_key(&json, "file");
	json_string(&json, path);
	json_key(&json, "runs");
	json_array(&json);
	for (size_t i = 0; i < count; i++) {
		json_object(&json);
		json_key(&json, "name");
		json_string(&json, runs[i].name);
		json_key(&json, "steps");
		json_uint(&json, metrics_file_last(runs[i].metrics));
		json_end(&json);
	}
	json_end(&json);
	json_end(&json);
	print_json_text(&json);
}

static int draw(struct verb_call *call, struct source sources[PLOT_RUNS_MAX])
{
	const struct args *args = call->args;
	const char *path = args_value(args, "--output") != NULL ? args_value(args, "--output")
	                                                        : "loss.svg";
	struct plot_run runs[PLOT_RUNS_MAX];
	int code = EXIT_OK;
	for (size_t i = 0; code == EXIT_OK && i < args->n_words; i++) {
		struct source *source = &sources[i];
		code = verbs_is_number(args->words[i]) ? find_job(call, args->words[i], source)
		                                       : find_file(args->words[i], source);
		runs[i] = (struct plot_run){ source->name, &source->metrics };
	}
	if (code == EXIT_OK)
		code = write_file(path, runs, args->n_words);
	if (code == EXIT_OK)
		say_written(call->config, path, runs, args->n_words);
	return code;
}

int verb_plot(struct verb_call *call)
{
	struct source *sources = calloc(PLOT_RUNS_MAX, sizeof(*sources));
	if (sources == NULL)
		return verbs_complain(EXIT_JOB_FAILED, "no memory");
	int code = draw(call, sources);
	for (size_t i = 0; i < PLOT_RUNS_MAX; i++)
		metrics_file_finish(&sources[i].metrics);
	free(sources);
	return code;
}
