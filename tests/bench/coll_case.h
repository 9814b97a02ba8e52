/* One case of collbench: its options, and a process of it as a member of a group. */
#ifndef TR_BENCH_COLL_CASE_H
#define TR_BENCH_COLL_CASE_H

#include "collectives/coll.h"
#include "tests/bench/measure.h"

struct coll_case {
	struct measure_case c;
	unsigned number;     /* of the case: groups have names of their own */
	const char *address; /* memberd's */
	const char *algorithm, *transport, *codec,
	    *congestion;   /* congestion NULL: the library's choice */
	const char *tls;   /* folder; NULL: plain */
	const char *sites; /* of a laboratory, for the processes in turn; NULL: this host */
	unsigned sockets;  /* 0: the library's choice */
	enum tr_policy policy;
};

/* Whether such a thing exists; what it means for the library. */
bool coll_case_algorithm(const char *name, enum tr_algorithm *algorithm);
bool coll_case_transport(const char *name, enum tr_transport *transport);
bool coll_case_dtype(const char *name, enum measure_dtype *dtype);
extern const enum tr_dtype coll_case_dtypes[MEASURE_DTYPES];
bool coll_case_codec(const char *name, enum tr_codec *codec);
/* How far an element's sum may be off with the case's codec. */
double coll_case_tolerance(const struct coll_case *c);

/* Ends the process with the error's text if it is one. */
void coll_check(tr_status st, const char *call, const struct tr_error *error);

/* Joins the case's group, in the process's site; does not return without. */
tr_group *coll_case_join(const struct coll_case *c);
void coll_case_submit(tr_group *group, uint32_t tag, void *data, const struct coll_case *c);

/* Runs the case and prints its line. false: a process failed and said why. */
bool coll_case_run(const struct coll_case *c, bool json);

#endif
