/* Runs in which the workers are divided into two groups, of those of cases.h. */
#ifndef TR_TESTS_SIM_SHARDED_CASES_SPLIT_H
#define TR_TESTS_SIM_SHARDED_CASES_SPLIT_H

#include "tests/sim/sharded/cases.h"

/* The seed of another kind that becomes the `number`-th of them: all kinds in turn. */
uint64_t case_split_of(uint64_t number);
/* `what`, as that seed has it, gets its splits: one more fault, and in half of them all that are no kill. */
void case_make_splits(uint64_t number, struct play_case *what);

#endif
