/* Jobs and nodes as JSON; keys stay as they are, new ones may come. No figure yet: null. */
#ifndef TR_CLIENT_TRAINCTL_JOB_JSON_H
#define TR_CLIENT_TRAINCTL_JOB_JSON_H

#include "common/json.h"
#include "traind/v1/trainer.pb-c.h"

void job_json_write(struct json *json, const Traind__V1__Job *job, bool with_events);
void job_json_node(struct json *json, const Traind__V1__Node *node);

#endif
