/* The mesh of a sharded job for people: what the job file asks for, and what of it the workers that are there make up (the rule is ranks.h's). */
#ifndef TR_CLIENT_TRAINCTL_MESH_NOW_H
#define TR_CLIENT_TRAINCTL_MESH_NOW_H

#include <stdbool.h>
#include <stddef.h>

#include "daemon/plan/mesh.h"
#include "traind/v1/trainer.pb-c.h"

struct mesh_now {
	struct mesh mesh;
	uint32_t replicas, spares; /* while it runs; else as the job asks for, and none */
};

/* False: its model is not split. */
bool mesh_now_of(const Traind__V1__Job *job, struct mesh_now *now);

#define MESH_NOW_TEXT_MAX 128
/* "dp 1 of 2 x tp 2, 1 spare" */
bool mesh_now_text(const Traind__V1__Job *job, char *text, size_t bytes);

#endif
