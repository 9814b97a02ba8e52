/* What a plan was made with, as a job carries it (JobPlan.basis): so that its workers can plan it anew. Pure.
 *
 *	basis = plan_basis_make(&input, node_ids, &plan);                        // NULL: too much to carry, or no memory
 *	...
 *	plan_basis_costs(basis, rows, &costs);
 *	number = plan_basis_node(basis, id);                                     // of basis->nodes; PLAN_BASIS_NONE
 *	link = plan_basis_link(basis, from, to);
 */
#ifndef TR_DAEMON_PLAN_PLAN_BASIS_H
#define TR_DAEMON_PLAN_PLAN_BASIS_H

#include "daemon/plan/plan_layout.h"
#include "traind/v1/trainer.pb-c.h"

/* A plan of more nodes is not made anew. */
#define PLAN_BASIS_NODES_MAX 64u
#define PLAN_BASIS_NONE      UINT32_MAX

/* Costs of microbatches that this plan's job can have; nodes that its ranks are on. `node_ids`: of the cluster's. */
Traind__V1__PlanBasis *plan_basis_make(const struct plan_input *in, const uint64_t *node_ids,
    const struct plan *plan);

void plan_basis_destroy(
    Traind__V1__PlanBasis *basis); /* accepts NULL; one that is a job's goes with the job */

/* TR_EINVAL: there is more than a plan has, lists are not as long as they have to be, or a number is none. What its costs are is for who plans with them (plan_costs_derive). */
tr_status plan_basis_check(const Traind__V1__PlanBasis *basis, struct tr_error *error);
/* `rows` is costs->at. TR_EINVAL: as plan_basis_check says. */
tr_status plan_basis_costs(const Traind__V1__PlanBasis *basis,
    struct plan_cost rows[PLAN_COSTS_MAX], struct plan_costs *costs, struct tr_error *error);
uint32_t plan_basis_node(const Traind__V1__PlanBasis *basis, uint64_t id);
/* Where one of them is none of the basis: the worst way between two of its nodes. */
struct flow_link plan_basis_link(const Traind__V1__PlanBasis *basis, uint32_t from, uint32_t to);

#endif
