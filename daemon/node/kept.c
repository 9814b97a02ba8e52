#include "daemon/node/kept.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PREFIX "group-"

void kept_folder(const char *node, uint64_t group, char *path, size_t size)
{
	int length = snprintf(path, size, "%s/kept/" PREFIX "%" PRIu64, node, group);
	if (length < 0 || (size_t)length >= size)
		path[0] = '\0';
}

bool kept_any(const char *node, uint64_t group)
{
	char path[PATH_MAX];
	kept_folder(node, group, path, sizeof(path));
	DIR *folder = opendir(path);
	const struct dirent *entry;
	bool any = false;
	if (folder == NULL)
		return false;
	while (!any && (entry = readdir(folder)) != NULL)
		any = entry->d_name[0] != '.';
	(void)closedir(folder);
	return any;
}

/* Files alone: nobody makes folders there. */
static void drop(const char *path)
{
	DIR *folder = opendir(path);
	if (folder == NULL)
		return;
	const struct dirent *entry;
	while ((entry = readdir(folder)) != NULL)
		(void)unlinkat(dirfd(folder), entry->d_name, 0);
	(void)closedir(folder);
	(void)rmdir(path);
}

static void drop_all(const char *node)
{
	char path[PATH_MAX];
	(void)snprintf(path, sizeof(path), "%s/kept", node);
	DIR *kept = opendir(path);
	if (kept == NULL)
		return;
	const struct dirent *entry;
	while ((entry = readdir(kept)) != NULL)
		if (strncmp(entry->d_name, PREFIX, strlen(PREFIX)) == 0 &&
		    snprintf(path, sizeof(path), "%s/kept/%s", node, entry->d_name) <
		        (int)sizeof(path))
			drop(path);
	(void)closedir(kept);
}

void kept_drop(const char *node, uint64_t group)
{
	char path[PATH_MAX];
	if (group == 0) {
		drop_all(node);
		return;
	}
	kept_folder(node, group, path, sizeof(path));
	if (path[0] != '\0')
		drop(path);
}
