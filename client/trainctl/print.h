/* Figures, times and tables for people. */
#ifndef TR_CLIENT_TRAINCTL_PRINT_H
#define TR_CLIENT_TRAINCTL_PRINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/json.h"
#include "traind/v1/trainer.pb-c.h"

#define PRINT_FIGURE_MAX 32

/* "queued", "running"... */
const char *print_state(Traind__V1__JobState state);
bool print_is_known(Traind__V1__JobState state); /* not one of a newer memberd */
bool print_is_over(Traind__V1__JobState state);

const char *print_loss(double loss, char text[PRINT_FIGURE_MAX]);         /* "2.134"; "-" for NaN */
const char *print_rate(double tokens_per_s, char text[PRINT_FIGURE_MAX]); /* "41.2k" */
const char *print_duration(double seconds, char text[PRINT_FIGURE_MAX]);  /* "1:12", "2:03:04" */
const char *print_clock(uint64_t unix_ms, char text[PRINT_FIGURE_MAX]);   /* local "12:03:04" */
const char *print_bytes(uint64_t bytes, char text[PRINT_FIGURE_MAX]);     /* "15.6 GiB" */
const char *print_part(double part, double whole, char text[PRINT_FIGURE_MAX]); /* "1/412"; "0.37" */
const char *print_latency(double seconds,
    char text[PRINT_FIGURE_MAX]); /* "85 us", "1.2 ms", "150 ms" */
double print_seconds_of(
    const Traind__V1__Job *job); /* from its start to its end or now; 0: not started */

/* Replaces control characters by '?', in place: what others wrote moves no cursor and begins no line. `lines`: but not tabs and ends of lines. */
void print_tame(char *text, bool lines);

/* A line of standard output; finishes it. */
void print_json_text(struct json *json);

/* One table: cells are copied; columns are as wide as their widest cell. */
struct print_table {
	size_t columns, cells, capacity;
	char **text;
};
void print_cell(struct print_table *table, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void print_table_out(struct print_table *table, bool color); /* first row: the head. Frees it */

#endif
