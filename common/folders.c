#include "common/folders.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

tr_status folders_make(const char *path, struct tr_error *error)
{
	char made[PATH_MAX];
	if (path[0] == '\0')
		return tr_error_set(error, TR_EINVAL, "'' cannot be a folder");
	if ((size_t)snprintf(made, sizeof(made), "%s", path) >= sizeof(made))
		return tr_error_set(error, TR_EINVAL, "folder name is too long: %.200s", path);
	for (char *slash = strchr(made + 1, '/');; slash = strchr(slash + 1, '/')) {
		if (slash != NULL)
			*slash = '\0';
		if (mkdir(made, 0700) != 0 && errno != EEXIST)
			return tr_error_set(error, TR_EIO, "cannot make folder %s: %s", made,
			    strerror(errno));
		if (slash == NULL)
			return TR_OK;
		*slash = '/';
	}
}
