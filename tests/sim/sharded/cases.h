/* Which runs there are (play.h): by seed, and all of one fault. */
#ifndef TR_TESTS_SIM_SHARDED_CASES_H
#define TR_TESTS_SIM_SHARDED_CASES_H

#include "tests/sim/sharded/play.h"

#define CASE_SEED 12 /* of those of one fault */

/* From these on replicas have unequal shares, and stages other layers than like workers had; in half of those with several replicas shares follow their speeds. */
#define CASE_UNEVEN_SEEDS 1000000u
/* From these on replicas train apart. */
#define CASE_APART_SEEDS 2000000u
/* From these on they have learning rates of their own. */
#define CASE_RATES_SEEDS 2500000u
/* From these on they take as many steps as they get done in a time, every second one with rates too. */
#define CASE_TIMED_SEEDS 2750000u
/* From these on they train on while a fragment is merged: two fragments, three that are carried, eager. */
#define CASE_STREAM_SEEDS 2900000u
/* From these on jobs get other plans in mid-job. */
#define CASE_REPLAN_SEEDS 3000000u
/* From these on a replica loses a worker and gets another one, to which its shard comes in a few steps; the other faults strike meanwhile. */
#define CASE_JOIN_SEEDS 4000000u
/* From these on there are stages, with GPipe's list or, every second one, in two chunks, interleaved: of the first kind of seeds, unequal ones, those that train apart or stream, and joins, in turn. */
#define CASE_SCHEDULE_SEEDS 5000000u
/* From these on strict jobs have ZeRO-1: of the first kind of seeds and joins in turn. */
#define CASE_STRICT_ZERO_SEEDS 5500000u
/* From these on all ways to split are there at once: three replicas of two stages of two workers, ZeRO-1 with two owners, GPipe's list or two chunks. Nobody who is lost is replaced. */
#define CASE_ALL_WAYS_SEEDS 5750000u
/* From these on replicas that train apart are several copies of the mesh: a third of them by steps, by speed and by time, from the second number on with rates of their own, from the third on with merges that they train on through. */
#define CASE_COPIES_SEEDS        6000000u
#define CASE_COPIES_RATES_SEEDS  6500000u
#define CASE_COPIES_STREAM_SEEDS 6750000u
/* From these on they are one copy again, and of seldom more than a replica so many are lost that the mesh becomes smaller, and the job's again: all in turn. */
#define CASE_APART_REMESH_SEEDS 7000000u
/* The same, of several copies: so many are lost that there are fewer copies, or a smaller mesh too. */
#define CASE_COPIES_REMESH_SEEDS 8000000u
/* From these on checkpoints are in shards: of the first kind of seeds, unequal ones, those that train apart, stream, get other plans or joins, are several copies or get another mesh, in turn. */
#define CASE_SHARDS_SEEDS 9000000u
/* From these on workers are divided into two groups that hear nothing of each other for a while, one of them perhaps nothing of memberd: at any instruction, one more fault of any of the seeds above, all kinds in turn, and in every second one instead of pauses and cuts too. */
#define CASE_SPLIT_SEEDS 9500000u
/* (All below 10,000,000, from where on the simulator itself stops nodes: tests/sim/sim.h.) From these on a replica loses a worker, as from CASE_JOIN_SEEDS on, and in three of four seeds who comes instead is slow: the replica is taken back. Other faults strike before, meanwhile and after it. */
#define CASE_TRIAL_SEEDS 9700000u
/* A mesh of at most six workers, perhaps spares, one to four faults in steps 2
 * to 6, most of them followed by another worker. */
void case_of_seed(uint64_t seed, struct play_case *what);

/* A kill, a pause and a cut of each worker at each of its instructions, half of those that are put out are replaced; by `name` of one kind of jobs alone (NULL: of all; false: there is no such):
 *
 *	meshes     each mesh of at most six workers, also with ZeRO-1: in step 5, which compares a checkpoint's shards, sends them to who writes it, validates and computes; where one was
 *	           killed and comes late, of each other while the mesh becomes smaller, and while it becomes the job's again; where there are several replicas, while shards come to who is
 *	           there instead
 *	schedules  the same with GPipe's list and with chunks
 *	apart      replicas that train apart: in a checkpoint's round and the one after it, or while the mesh becomes another one
 *	strict     strict jobs, with ZeRO-1 too
 *	shards     of checkpoints in shards, every third mesh: in steps 5 and 6
 *	next-step  kills in step 6, of all of these but replicas apart
 *	all-ways   dp, pp and tp of chunks with several microbatches, ZeRO-1, own rows between products and recomputed layers at once: steps 5 and 6, changes of mesh and joins
 *	llama      the same of a model that is untied, with fewer keys and values than queries
 *	uneven     the same of unequal shares and layers
 *	replanned  steps 5 and 6 of jobs that get other plans, and each instruction of these changes of mesh
 *	halves     no kills: meshes of four are divided into two and two, in each way, at each instruction of step 5 of each worker, memberd with either half or both
 *
 * Of all these the `part`-th, from 1, of `parts` equal parts (each `parts`-th of them). `sim` and `play` are used to count instructions first. */
bool cases_all(struct sim *sim, struct play *play, const char *name, uint64_t part, uint64_t parts,
    void (*call)(void *arg, const struct play_case *what), void *arg);

/* "dp 2 x pp 1 x tp 2: kill of n1 at step 5, instruction 17". */
void case_name(const struct play_case *what, char *text, size_t bytes);

#endif
