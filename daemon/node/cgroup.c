#include "daemon/node/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define REMOVES_MAX     50
#define REMOVE_PAUSE_US 2000

/* Where cgroup v2 is mounted, and which of its folders is the mount's root, out of /proc/self/mountinfo. */
static bool find_mount(char mount[PATH_MAX], char root[PATH_MAX])
{
	FILE *file = fopen("/proc/self/mountinfo", "re");
	if (file == NULL)
		return false;
	char line[PATH_MAX * 2];
	bool found = false;
	while (!found && fgets(line, sizeof(line), file) != NULL) {
		const char *type = strstr(line, " - cgroup2 ");
		/* 41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw */
		found = type != NULL && sscanf(line, "%*s %*s %*s %4095s %4095s", root, mount) == 2;
	}
	(void)fclose(file);
	return found;
}

static bool find_own(char path[PATH_MAX])
{
	FILE *file = fopen("/proc/self/cgroup", "re");
	if (file == NULL)
		return false;
	char line[PATH_MAX];
	bool found = false;
	while (!found && fgets(line, sizeof(line), file) != NULL) {
		line[strcspn(line, "\n")] = '\0';
		found = strncmp(line, "0::/", 4) == 0;
		if (found)
			(void)snprintf(path, PATH_MAX, "%s", line + 3);
	}
	(void)fclose(file);
	return found;
}

bool cgroup_find(char *folder, size_t size, char *reason, size_t reason_size)
{
	char mount[PATH_MAX], root[PATH_MAX], own[PATH_MAX];
	if (!find_mount(mount, root) || !find_own(own)) {
		(void)snprintf(reason, reason_size, "no cgroup v2 here");
		return false;
	}
	const char *below = own;
	if (strcmp(root, "/") != 0 && strncmp(own, root, strlen(root)) == 0)
		below = own + strlen(root);
	if (strcmp(below, "/") == 0)
		below = "";
	int length = snprintf(folder, size, "%s%s", mount, below);
	if (length < 0 || (size_t)length >= size) {
		(void)snprintf(reason, reason_size, "the path of our cgroup is too long");
		return false;
	}
	char probe[PATH_MAX + 32];
	(void)snprintf(probe, sizeof(probe), "%s/traind-probe-%ld", folder, (long)getpid());
	if (!cgroup_make(probe)) {
		(void)snprintf(reason, reason_size, "cannot make a cgroup in %s: %s", folder,
		    strerror(errno));
		return false;
	}
	char kill_file[PATH_MAX + 64];
	(void)snprintf(kill_file, sizeof(kill_file), "%s/cgroup.kill", probe);
	bool can_kill = access(kill_file, W_OK) == 0;
	cgroup_remove(probe);
	if (!can_kill)
		(void)snprintf(reason, reason_size, "this kernel has no cgroup.kill");
	return can_kill;
}

bool cgroup_make(const char *path)
{
	return path[0] != '\0' && (mkdir(path, 0755) == 0 || errno == EEXIST);
}

static bool write_file(const char *path, const char *name, const char *text)
{
	char file[PATH_MAX];
	if (path[0] == '\0' ||
	    snprintf(file, sizeof(file), "%s/%s", path, name) >= (int)sizeof(file))
		return false;
	int fd = open(file, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	ssize_t wrote = write(fd, text, strlen(text));
	(void)close(fd);
	return wrote > 0;
}

bool cgroup_enter(const char *path)
{
	return write_file(path, "cgroup.procs", "0");
}

bool cgroup_kill(const char *path)
{
	return write_file(path, "cgroup.kill", "1");
}

void cgroup_remove(const char *path)
{
	if (path[0] == '\0' || rmdir(path) == 0 || errno == ENOENT)
		return;
	/* A worker with rights may have made cgroups of its own in there; their depth is the kernel's limit. */
	DIR *folder = opendir(path);
	if (folder == NULL)
		return;
	const struct dirent *entry;
	while ((entry = readdir(folder)) != NULL) {
		char below[PATH_MAX];
		if (entry->d_type != DT_DIR || entry->d_name[0] == '.' ||
		    snprintf(below, sizeof(below), "%s/%s", path, entry->d_name) >=
		        (int)sizeof(below))
			continue;
		cgroup_remove(below);
	}
	(void)closedir(folder);
	(void)rmdir(path);
}

/* Processes take a moment to go after the kill; the removal of their cgroup then finds them gone. */
static void kill_and_remove(const char *path)
{
	(void)cgroup_kill(path);
	for (int i = 0; i < REMOVES_MAX && access(path, F_OK) == 0; i++) {
		cgroup_remove(path);
		(void)usleep(REMOVE_PAUSE_US);
	}
}

size_t cgroup_sweep(const char *prefix)
{
	char folder[PATH_MAX];
	size_t count = 0;
	(void)snprintf(folder, sizeof(folder), "%s", prefix);
	char *name = strrchr(folder, '/');
	if (name == NULL)
		return 0;
	*name++ = '\0';
	DIR *list = opendir(folder);
	if (list == NULL)
		return 0;
	const struct dirent *entry;
	while ((entry = readdir(list)) != NULL) {
		char path[PATH_MAX];
		if (entry->d_type != DT_DIR || strncmp(entry->d_name, name, strlen(name)) != 0 ||
		    snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name) >=
		        (int)sizeof(path))
			continue;
		kill_and_remove(path);
		count++;
	}
	(void)closedir(list);
	return count;
}
