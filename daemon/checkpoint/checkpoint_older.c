#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/checkpoint/checkpoint.h"
#include "daemon/checkpoint/checkpoint_dir.h"

/* Splits the folder of the checkpoint at `path` into where it lies and its name, also if it is gone. False: it has not the name of a step. */
static bool split(const char *path, char dir[CHECKPOINT_PATH_MAX], const char **name, uint64_t *step)
{
	char link[CHECKPOINT_PATH_MAX + 16], target[CHECKPOINT_NAME_MAX] = "";
	if (checkpoint_find(path, dir, NULL) != TR_OK) {
		(void)snprintf(link, sizeof(link), "%s/" CHECKPOINT_LATEST, path);
		(void)snprintf(dir, CHECKPOINT_PATH_MAX, "%s", path);
		if (readlink(link, target, sizeof(target) - 1) > 0)
			(void)snprintf(dir + strlen(dir), CHECKPOINT_PATH_MAX - strlen(dir), "/%s",
			    target);
	}
	for (size_t last = strlen(dir); last > 0 && dir[last - 1] == '/';)
		dir[--last] = '\0';
	char *slash = strrchr(dir, '/'), *end = NULL;
	if (slash == NULL || strncmp(slash, "/step-", 6) != 0)
		return false;
	*step = strtoull(slash + 6, &end, 10);
	*slash = '\0';
	*name = slash + 1;
	return end != slash + 6 && *end == '\0';
}

bool checkpoint_before(const char *dir, uint64_t below, uint64_t *step)
{
	char name[CHECKPOINT_NAME_MAX];
	if (!checkpoint_dir_newest(dir, below, name))
		return false;
	*step = strtoull(name + 5, NULL, 10);
	return true;
}

bool checkpoint_older(const char *path, char older[CHECKPOINT_PATH_MAX], uint64_t *steps)
{
	char dir[CHECKPOINT_PATH_MAX], name[CHECKPOINT_NAME_MAX];
	const char *own;
	uint64_t step;
	if (!split(path, dir, &own, &step) || !checkpoint_dir_newest(dir, step, name))
		return false;
	*steps = step - strtoull(name + 5, NULL, 10);
	return snprintf(older, CHECKPOINT_PATH_MAX, "%s/%s", dir, name) < CHECKPOINT_PATH_MAX;
}

bool checkpoint_newer(const char *path, char newer[CHECKPOINT_PATH_MAX], uint64_t *steps)
{
	char dir[CHECKPOINT_PATH_MAX], last[CHECKPOINT_PATH_MAX];
	const char *name;
	uint64_t step, last_step;
	if (checkpoint_find(path, newer, NULL) == TR_OK || !split(path, dir, &name, &step) ||
	    checkpoint_find(dir, newer, NULL) != TR_OK || !split(newer, last, &name, &last_step) ||
	    last_step <= step)
		return false;
	*steps = last_step - step;
	return true;
}

void checkpoint_set_aside(const char *path, tr_status why)
{
	char dir[CHECKPOINT_PATH_MAX];
	const char *name;
	uint64_t step;
	/* Nothing else is a matter of its bytes: memory, a folder that is gone or that nobody may read, a job of another model. */
	bool damaged = why == TR_EDIGEST || why == TR_EPROTO;
	if (damaged && split(path, dir, &name, &step))
		checkpoint_dir_set_aside(dir, name);
}
