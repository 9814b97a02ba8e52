/* Runs of replicas that train apart, of those of cases.h. */
#ifndef TR_TESTS_SIM_SHARDED_CASES_APART_H
#define TR_TESTS_SIM_SHARDED_CASES_APART_H

#include "tests/sim/sharded/cases.h"

/* By then there is a smaller mesh. */
#define CASE_LATE_US (2300 * MS)

/* `what`, as any seed has it, becomes one of them: seeds from CASE_APART_SEEDS and CASE_COPIES_SEEDS on. */
void case_apart_of(uint64_t seed, struct play_case *what);
/* The `number`-th of those that have each fault at each instruction: of the step of the first one; `smaller`: of a change of mesh after it. False: there are no more. */
bool case_apart_calm(size_t number, struct play_case *calm);

/* ---- cases.c ---- */
void case_set_mesh(struct play_case *what, const uint32_t mesh[MESH_AXES], uint32_t owners);

#endif
