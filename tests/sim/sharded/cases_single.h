/* Meshes of runs with one fault at each instruction, of those of cases.h (cases_all.c). */
#ifndef TR_TESTS_SIM_SHARDED_CASES_SINGLE_H
#define TR_TESTS_SIM_SHARDED_CASES_SINGLE_H

#include "tests/sim/sharded/cases.h"

/* The `number`-th of them for `what`; false: there are no more. */
bool case_take_mesh(size_t number, struct play_case *what); /* those with ZeRO-1 last */
bool case_take_strict(size_t number, struct play_case *what);
bool case_take_strict_zero(size_t number,
    struct play_case *what); /* one for each kind of replicas */

#endif
