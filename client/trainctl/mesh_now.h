/* The mesh of a sharded job for people: what the job file asks for, and what of it the workers that are there make up; the smaller one that training goes on with if they are too few
 * and stay so. The rules are those of ranks.h and remesh.h: workers follow them some rounds later. */
#ifndef TR_CLIENT_TRAINCTL_MESH_NOW_H
#define TR_CLIENT_TRAINCTL_MESH_NOW_H

#include <stdbool.h>
#include <stddef.h>

#include "daemon/plan/mesh.h"
#include "traind/v1/trainer.pb-c.h"

struct mesh_now {
	struct mesh job, mesh;     /* that the job file asks for; that there is */
	uint32_t copies;           /* of it that make up a replica (mesh.copies, or fewer) */
	uint32_t replicas, spares; /* while it runs; else as the job asks for, and none */
};

/* False: its model is not split. */
bool mesh_now_of(const Traind__V1__Job *job, struct mesh_now *now);

/* Seconds that its steps take lately; 0: nobody has said. */
double mesh_now_step_s(const Traind__V1__Job *job);
/* That they are to take by the plan in force; 0: it was not planned. */
double mesh_now_planned_s(const Traind__V1__Job *job);

#define MESH_NOW_TEXT_MAX 256
/* "dp 1 of 2 x tp 2, 1 spare", "dp 1 x tp 2 instead of dp 1 x tp 4", "dp 1 x tp 2, 1 copy a replica instead of 2" */
bool mesh_now_text(const Traind__V1__Job *job, char *text, size_t bytes);

#endif
