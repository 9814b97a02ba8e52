#include "client/trainctl/plan_measured.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/trainctl/proc.h"
#include "common/limits.h"

static bool read_cost(const char *line, struct plan_cost *row)
{
	struct plan_section_time *t = row->time;
	uint64_t *kept = row->kept_bytes;
	return sscanf(line,
	           "cost %" SCNu32 " %" SCNu32 " %lf %lf %lf %lf %lf %lf %" SCNu64 " %" SCNu64
	           " %" SCNu64 " %" SCNu64,
	           &row->tp, &row->sequences, &t[SECTION_EMBEDDING].forward_s,
	           &t[SECTION_EMBEDDING].backward_s, &t[SECTION_LAYER].forward_s,
	           &t[SECTION_LAYER].backward_s, &t[SECTION_HEAD].forward_s,
	           &t[SECTION_HEAD].backward_s, &kept[SECTION_EMBEDDING], &kept[SECTION_LAYER],
	           &kept[SECTION_HEAD], &row->working_bytes) == 12;
}

static tr_status read_lines(FILE *file, const char *name, struct plan_measured *m,
    struct tr_error *error)
{
	char line[512];
	bool good = true;
	*m = (struct plan_measured){ .costs = { .at = m->rows } };
	while (good && fgets(line, sizeof(line), file) != NULL) {
		if (strncmp(line, "cost ", 5) == 0 && m->costs.count < PLAN_COSTS_MAX)
			good = read_cost(line, &m->rows[m->costs.count++]);
		else
			good = sscanf(line, "update %lf", &m->costs.update_s) == 1 ||
			    sscanf(line, "process %" SCNu64, &m->costs.process_bytes) == 1 ||
			    sscanf(line, "of %159[^\n]", m->of) == 1 ||
			    sscanf(line, "parameter %" SCNu32, &m->costs.parameter_bytes) == 1 ||
			    sscanf(line, "round %lf", &m->costs.round_s) == 1 || line[0] == '#' ||
			    line[0] == '\n';
	}
	if (good && m->costs.count > 0)
		return TR_OK;
	line[strcspn(line, "\n")] = '\0';
	return tr_error_set(error, TR_EPROTO, "%s: %s%.60s", name,
	    good ? "no cost of any layer" : "no line of costs: ", good ? "" : line);
}

tr_status plan_measured_read(const char *path, struct plan_measured *measured,
    struct tr_error *error)
{
	FILE *file = fopen(path, "re");
	if (file == NULL)
		return tr_error_set(error, TR_ENOTFOUND, "cannot read %s: %s", path,
		    strerror(errno));
	tr_status st = read_lines(file, path, measured, error);
	(void)fclose(file);
	return st;
}

/* The job, packed, where the program reads it. */
static FILE *pack(const Traind__V1__JobSpec *spec)
{
	size_t bytes = traind__v1__job_spec__get_packed_size(spec);
	uint8_t *packed = malloc(bytes + 1);
	FILE *file = packed != NULL ? tmpfile() : NULL;
	if (file != NULL) {
		(void)traind__v1__job_spec__pack(spec, packed);
		bool good = fwrite(packed, 1, bytes, file) == bytes && fflush(file) == 0;
		if (!good || lseek(fileno(file), 0, SEEK_SET) != 0) {
			(void)fclose(file);
			file = NULL;
		}
	}
	free(packed);
	return file;
}

static tr_status collect(pid_t pid, int from, struct plan_measured *measured, struct tr_error *error)
{
	FILE *lines = fdopen(from, "r");
	int ended = 0;
	tr_status st = lines != NULL ? read_lines(lines, "trainworker --measure", measured, error)
	                             : tr_error_set(error, TR_ENOMEM, "no memory for a file");
	if (lines != NULL)
		(void)fclose(lines);
	else
		(void)close(from);
	while (waitpid(pid, &ended, 0) < 0 && errno == EINTR)
		;
	if (!WIFEXITED(ended) || WEXITSTATUS(ended) != 0)
		return tr_error_set(error, TR_EIO,
		    "layers cannot be measured: trainworker --measure ended with %s %d",
		    WIFEXITED(ended) ? "exit code" : "signal",
		    WIFEXITED(ended) ? WEXITSTATUS(ended) : WTERMSIG(ended));
	return st;
}

tr_status plan_measured_here(const Traind__V1__JobSpec *spec,
    const struct plan_measured_limits *limits, const char *search_path,
    struct plan_measured *measured, struct tr_error *error)
{
	char program[PATH_MAX], threads[16], tp[16], sequences[16];
	char *argv[] = { program, "--measure", threads, tp, sequences, NULL };
	posix_spawn_file_actions_t actions;
	int ends[2];
	pid_t pid;
	if (!proc_find_program("trainworker", search_path, program, sizeof(program)))
		return tr_error_set(error, TR_ENOTFOUND,
		    "no trainworker beside trainctl or in PATH, which would measure layers; "
		    "--costs FILE has times of another machine");
	FILE *job = pack(spec);
	if (job == NULL || pipe2(ends, O_CLOEXEC) < 0) {
		if (job != NULL)
			(void)fclose(job);
		return tr_error_set(error, TR_EIO, "no pipe to a trainworker: %s", strerror(errno));
	}
	(void)snprintf(threads, sizeof(threads), "%u", limits->threads);
	(void)snprintf(tp, sizeof(tp), "%" PRIu32, limits->tp_most);
	(void)snprintf(sequences, sizeof(sequences), "%" PRIu32, limits->sequences_most);
	(void)posix_spawn_file_actions_init(&actions);
	(void)posix_spawn_file_actions_adddup2(&actions, fileno(job), STDIN_FILENO);
	(void)posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
	int failed = posix_spawn(&pid, program, &actions, NULL, argv, environ);
	(void)posix_spawn_file_actions_destroy(&actions);
	(void)fclose(job);
	(void)close(ends[1]);
	if (failed == 0)
		return collect(pid, ends[0], measured, error);
	(void)close(ends[0]);
	return tr_error_set(error, TR_EIO, "cannot start %s: %s", program, strerror(failed));
}
