/* How collbench and its peers measure, once for all of them, so that their figures compare.
 *
 * Every process fills its buffer, meets the others at a barrier, and takes the time from the call to the result's arrival;
 * warm-up first. The figure is the slowest process's median. Below MEASURE_SMALL_BYTES an op is shorter than what processes
 * lose at a barrier, so there MEASURE_BATCH ops follow one another, each on its own slice of memory, each with its own time.
 *
 *	struct measure_case c = { .world = 4, .rank = 1, .bytes = 1 << 20, .iterations = 20 };
 *	struct measure_calls calls = { .arg = &ring, .memory = memory, .meet = meet, .op = op };
 *	measure_run(&c, &calls, &results[1]);
 *	...
 *	measure_print("\"peer\": \"bare ring\"", &c, results);    // one process, when all are done
 */
#ifndef TR_BENCH_MEASURE_H
#define TR_BENCH_MEASURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MEASURE_WORLD_MAX   64
#define MEASURE_SMALL_BYTES (256u << 10)
#define MEASURE_BATCH       64 /* ops of a round */
#define MEASURE_WARM_ROUNDS 2
#define MEASURE_INPUT_MAX   16  /* of an element of a contribution */
#define MEASURE_EACH_MAX    512 /* ops whose times are kept one by one */
#define MEASURE_REASON_MAX  320

enum measure_dtype {
	MEASURE_F32,
	MEASURE_F64,
	MEASURE_I32,
	MEASURE_I64,
	MEASURE_F16,
	MEASURE_BF16,
	MEASURE_U8,
	MEASURE_DTYPES
};
extern const char *const measure_dtype_names[MEASURE_DTYPES];

struct measure_case {
	unsigned world, rank, iterations; /* iterations: timed ops at least */
	size_t bytes;
	enum measure_dtype dtype;
	double tolerance; /* of an element's sum: 0, or what a lossy codec may do */
	bool each;        /* measure_print tells each op's time */
	bool no_sums; /* the peer only moves bytes: results are compared with each other, not with the sum */
};

/* What one process found. In memory shared by the processes, or gathered. */
struct measure_result {
	double median_s;
	double round_s; /* one op and what closes its round; 0: the peer has no rounds */
	double cpu_s; /* of an op and its part of the round's end, all threads: what a busy machine disturbs least */
	uint64_t digest;
	double wire_bytes; /* of an op: sent on all TCP sockets of the process, what closes the round included */
	double caller_mib; /* the caller's own buffers */
	/* Growth of the peak resident memory above them while the ops ran, pages that are mapped twice counted once. */
	double rss_mib;
	double huge_mib; /* of its memory in huge pages when the ops are over; of all processes the least */
	char congestion[16]; /* TCP congestion control of its busiest connection; "": it has none */
	double each_s[MEASURE_EACH_MAX]; /* of the first ops, in turn, those of the warm-up too */
	unsigned each;                   /* so many */
	/* Why the algorithm is what it is, before the first op and when all is over; "": not told. */
	char reason_first[MEASURE_REASON_MAX], reason[MEASURE_REASON_MAX];
	bool right, done;
};

/* What a peer gives. `begin` and `end` enclose a round and may be NULL. Errors end the process. */
struct measure_calls {
	void *arg;
	void *(*memory)(void *arg, size_t bytes); /* 64-byte aligned */
	void (*meet)(void *arg);                  /* barrier */
	void (*begin)(void *arg);
	void (
	    *op)(void *arg, unsigned slot, void *data, size_t bytes); /* all-reduce sum, in place */
	void (*end)(void *arg);
};

void measure_run(const struct measure_case *c, const struct measure_calls *calls,
    struct measure_result *result);

/* Prints the case as one JSON object: `head` (members of the object, without braces), then the figures. `results`: of all
 * processes. */
void measure_print(const char *head, const struct measure_case *c,
    const struct measure_result *results);

/* Of all processes: the slowest's and largest's figures, the sum of cpu_s; `right`: all right and all the same bits. */
void measure_worst(const struct measure_case *c, const struct measure_result *results,
    struct measure_result *worst);
/* bytes / s * 2 (n - 1) / n: what a link carries in a ring, so comparable between world sizes. */
double measure_busbw_gbps(const struct measure_case *c, double seconds);

/* What a peer's `memory` gives: 64-byte aligned, large buffers in huge pages where the system has them, as tr_alloc's are; with TR_BENCH_PAGES=plain in the
 * environment as malloc gives it. NULL: none. */
void *measure_memory_get(size_t bytes);
/* The same for memory that has been mapped shared, by its owner. */
void measure_memory_collapse(void *memory, size_t bytes);
#define MEASURE_HUGE_BYTES ((size_t)2 << 20)

/* By how much this process's peak of resident memory grew since; pages that are mapped twice count once. */
struct measure_memory {
	double rss_mib, elsewhere_mib; /* as it began */
};
void measure_memory_begin(struct measure_memory *memory);
double measure_memory_grown_mib(const struct measure_memory *memory);

double measure_huge_mib(void); /* of this process, in huge pages */

double measure_now_s(void);
double measure_median(double *values, unsigned count); /* sorts */

/* What process `rank` contributes: small whole numbers, so that any order of addition gives the same bits. From 1 to 16:
 * a contribution that is missing shows. */
void measure_fill(enum measure_dtype dtype, void *data, size_t bytes, unsigned rank);
bool measure_is_sum(const struct measure_case *c, const void *data);
unsigned measure_input(unsigned rank, size_t element);
double measure_value(enum measure_dtype dtype, const void *data, size_t element);
size_t measure_dtype_size(enum measure_dtype dtype);
uint64_t measure_digest(uint64_t digest, const void *data, size_t bytes);

/* TCP payload bytes sent, those sent again included, over all sockets that this process holds now, and those whose bytes
 * measure_wire_add kept before they were closed. Headers of the library count, those of TCP do not. */
uint64_t measure_wire_bytes(void);
void measure_wire_add(uint64_t bytes);
/* The socket's, or -1: not TCP. */
int64_t measure_wire_bytes_of(int fd);

/* Peers' options: --world N --bytes B --algo NAME --iters I --json (always on). false: said what is wrong. `algorithms`: those
 * allowed, the first is the default, NULL at the end. */
struct measure_options {
	struct measure_case c;
	const char *algorithm;
};
bool measure_options_parse(int argc, char **argv, const char *const *algorithms,
    struct measure_options *options);

#ifdef __cplusplus
}
#endif

#endif
