#include "client/trainctl/path.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* In place; `path` is absolute. */
static void fold(char *path)
{
	char *to = path;
	for (char *from = path; *from != '\0';) {
		while (*from == '/')
			from++;
		size_t length = strcspn(from, "/");
		if (length == 0)
			break;
		if (length == 2 && from[0] == '.' && from[1] == '.') {
			while (to > path && *--to != '/')
				;
		} else if (length != 1 || from[0] != '.') {
			*to++ = '/';
			memmove(to, from, length);
			to += length;
		}
		from += length;
	}
	if (to == path)
		*to++ = '/';
	*to = '\0';
}

bool path_absolute(const char *base, const char *path, char *full, size_t bytes)
{
	char joined[PATH_MAX], real[PATH_MAX];
	int length = path[0] == '/' ? snprintf(joined, sizeof(joined), "%s", path)
	                            : snprintf(joined, sizeof(joined), "%s/%s", base, path);
	if (length < 0 || (size_t)length >= sizeof(joined))
		return false;
	const char *found = realpath(joined, real);
	if (found == NULL) {
		fold(joined);
		found = joined;
	}
	length = snprintf(full, bytes, "%s", found);
	return length >= 0 && (size_t)length < bytes;
}

bool path_folder(const char *path, char *folder, size_t bytes)
{
	char above[PATH_MAX], real[PATH_MAX];
	const char *slash = strrchr(path, '/');
	int length = slash == NULL ? 1 : slash == path ? 1 : (int)(slash - path);
	int written = snprintf(above, sizeof(above), "%.*s", length, slash == NULL ? "." : path);
	if (written < 0 || (size_t)written >= sizeof(above)) {
		errno = ENAMETOOLONG;
		return false;
	}
	if (realpath(above, real) == NULL)
		return false;
	written = snprintf(folder, bytes, "%s", real);
	return written >= 0 && (size_t)written < bytes;
}

bool path_make_folder(const char *path)
{
	char part[PATH_MAX];
	int length = snprintf(part, sizeof(part), "%s", path);
	if (length <= 0 || (size_t)length >= sizeof(part)) {
		errno = ENAMETOOLONG;
		return false;
	}
	for (char *slash = part + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
		*slash = '\0';
		if (mkdir(part, 0755) < 0 && errno != EEXIST)
			return false;
		*slash = '/';
	}
	return mkdir(part, 0755) == 0 || errno == EEXIST;
}
