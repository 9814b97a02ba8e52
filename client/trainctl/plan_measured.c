#include "client/trainctl/plan_measured.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/trainctl/config.h"
#include "client/trainctl/interrupt.h"
#include "client/trainctl/proc.h"
#include "common/limits.h"
#include "daemon/shell/measure_run.h"

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
	*m = (struct plan_measured){ .costs = { .at = m->rows }, .on_core = 1 };
	while (good && fgets(line, sizeof(line), file) != NULL) {
		if (strncmp(line, "cost ", 5) == 0 && m->costs.count < PLAN_COSTS_MAX)
			good = read_cost(line, &m->rows[m->costs.count++]);
		else
			good = sscanf(line, "update %lf", &m->costs.update_s) == 1 ||
			    sscanf(line, "add %lf", &m->costs.add_s) == 1 ||
			    sscanf(line, "sum %lf %lf", &m->costs.sum_s, &m->costs.sum_byte_s) ==
			        2 ||
			    sscanf(line, "process %" SCNu64, &m->costs.process_bytes) == 1 ||
			    sscanf(line, "core %lf", &m->on_core) == 1 ||
			    sscanf(line, "of %159[^\n]", m->of) == 1 ||
			    sscanf(line, "parameter %" SCNu32, &m->costs.parameter_bytes) == 1 ||
			    sscanf(line, "round %lf", &m->costs.round_s) == 1 || line[0] == '#' ||
			    line[0] == '\n';
	}
	if (ferror(file)) /* a folder */
		return tr_error_set(error, TR_EPROTO, "--costs: cannot read %s: %s", name,
		    strerror(errno));
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
		return tr_error_set(error, TR_ENOTFOUND, "--costs: cannot read %s: %s", path,
		    strerror(errno));
	tr_status st = read_lines(file, path, measured, error);
	(void)fclose(file);
	return st;
}

/* On a terminal, below what is said before and in place of what it showed last. */
static void show_part(const char *line, size_t length)
{
	static const char begins[] = "# measures ";
	const size_t skipped = sizeof(begins) - 1;
	if (length > skipped && strncmp(line, begins, skipped) == 0 && config_stderr_moves())
		(void)fprintf(stderr, "\r\033[K  %.*s", (int)(length - skipped), line + skipped);
}

static void show_none(void)
{
	if (config_stderr_moves())
		(void)fprintf(stderr, "\r\033[K");
}

tr_status plan_measured_here(const Traind__V1__JobSpec *spec,
    const struct plan_measured_limits *limits, const char *search_path,
    struct plan_measured *measured, struct tr_error *error)
{
	char program[PATH_MAX], *text = NULL;
	if (!proc_find_program("trainworker", search_path, program, sizeof(program)))
		return tr_error_set(error, TR_ENOTFOUND,
		    "no trainworker beside trainctl or in PATH, which would measure layers; "
		    "--costs FILE has times of another machine");
	size_t bytes = traind__v1__job_spec__get_packed_size(spec);
	uint8_t *packed = malloc(bytes + 1);
	if (packed == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory for the job");
	(void)traind__v1__job_spec__pack(spec, packed);
	tr_status st = measure_run(&(struct measure_run){ .program = program,
	                               .job = packed,
	                               .job_bytes = bytes,
	                               .threads = limits->threads,
	                               .beside = limits->beside,
	                               .tp_most = limits->tp_most,
	                               .sequences_most = limits->sequences_most,
	                               .stop = interrupt_flag(),
	                               .said = show_part },
	    &text, error);
	show_none();
	free(packed);
	FILE *lines = st == TR_OK ? fmemopen(text, strlen(text), "r") : NULL;
	if (lines != NULL) {
		st = read_lines(lines, "trainworker --measure", measured, error);
		(void)fclose(lines);
	} else if (st == TR_OK) {
		st = tr_error_set(error, TR_EPROTO, "trainworker --measure printed nothing");
	}
	free(text);
	return st;
}
