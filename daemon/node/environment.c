#include "daemon/node/environment.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OWN_MAX 24

struct list {
	char **items;
	size_t count, capacity;
	bool failed;
};

__attribute__((format(printf, 2, 3))) static void add(struct list *list, const char *format, ...)
{
	va_list args;
	if (list->failed || list->count == list->capacity) {
		list->failed = true;
		return;
	}
	va_start(args, format);
	list->failed = vasprintf(&list->items[list->count], format, args) < 0;
	va_end(args);
	if (!list->failed)
		list->count++;
}

static void add_torchrun(struct list *list, const Traind__Peer__StartWorker *start)
{
	add(list, "RANK=%" PRIu32, start->rank);
	add(list, "LOCAL_RANK=%" PRIu32, start->local_rank);
	add(list, "WORLD_SIZE=%" PRIu32, start->world_size);
	add(list, "LOCAL_WORLD_SIZE=%" PRIu32, start->local_world_size);
	add(list, "GROUP_RANK=%" PRIu32, start->node_rank);
	add(list, "GROUP_WORLD_SIZE=%" PRIu32, start->nodes);
	add(list, "ROLE_RANK=%" PRIu32, start->rank);
	add(list, "ROLE_WORLD_SIZE=%" PRIu32, start->world_size);
	add(list, "ROLE_NAME=default");
	add(list, "MASTER_ADDR=%s", start->master_address);
	add(list, "MASTER_PORT=%" PRIu32, start->master_port);
	add(list, "TORCHELASTIC_RESTART_COUNT=%" PRIu32, start->restarts);
	add(list, "TORCHELASTIC_MAX_RESTARTS=0");
	add(list, "TORCHELASTIC_RUN_ID=%s", start->run_id);
	add(list, "TORCHELASTIC_USE_AGENT_STORE=False");
	add(list, "TORCH_NCCL_ASYNC_ERROR_HANDLING=1");
}

char **environment_of(const Traind__Peer__StartWorker *start, bool set_omp, uint64_t node,
    const char *kept)
{
	const Traind__V1__CommandSpec *command = start->spec == NULL ? NULL : start->spec->command;
	size_t theirs = command == NULL ? 0 : command->n_env;
	struct list list = { .capacity = OWN_MAX + theirs };
	list.items = calloc(list.capacity + 1, sizeof(*list.items));
	if (list.items == NULL)
		return NULL;
	if (command != NULL)
		add_torchrun(&list, start);
	if (command != NULL && set_omp)
		add(&list, "OMP_NUM_THREADS=1");
	add(&list, "TRAIND_JOB_ID=%" PRIu64, start->job_id);
	if (command == NULL && start->submitted_unix_ms > 0)
		add(&list, "TRAIND_JOB_SUBMITTED_UNIX_MS=%" PRIu64, start->submitted_unix_ms);
	add(&list, "TRAIND_PEER_ID=%" PRIu64, start->peer);
	add(&list, "TRAIND_NODE_ID=%" PRIu64, node);
	if (kept[0] != '\0')
		add(&list, "TRAIND_KEPT=%s", kept);
	/* An entry without '=' would take a variable away; validation lets none through. */
	for (size_t i = 0; i < theirs; i++)
		if (strchr(command->env[i], '=') != NULL)
			add(&list, "%s", command->env[i]);
	if (!list.failed)
		return list.items;
	environment_free(list.items);
	return NULL;
}

void environment_free(char **environment)
{
	for (char **entry = environment; entry != NULL && *entry != NULL; entry++)
		free(*entry);
	free((void *)environment);
}
