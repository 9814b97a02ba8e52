#include "daemon/node/identity.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "daemon/shell/rundir.h"

tr_status identity_load(const char *folder, struct identity *identity, struct tr_error *error)
{
	char text[64], *end;
	*identity = (struct identity){ 0 };
	while (identity->incarnation == 0)
		if (getrandom(&identity->incarnation, sizeof(identity->incarnation), 0) < 0 &&
		    errno != EINTR)
			return tr_error_set(error, TR_EIO, "no random numbers: %s", strerror(errno));
	tr_status st = rundir_read(folder, "node-id", text, sizeof(text), error);
	if (st == TR_ENOTFOUND)
		return TR_OK;
	if (st != TR_OK)
		return st;
	identity->node_id = strtoull(text, &end, 10);
	if (identity->node_id == 0 || *end != '\0')
		return tr_error_set(error, TR_EINVAL,
		    "%s/node-id: found '%s', allowed: a number; remove the file to become a new "
		    "node",
		    folder, text);
	return TR_OK;
}

tr_status identity_keep(const char *folder, struct identity *identity, uint64_t node_id,
    struct tr_error *error)
{
	char text[32];
	if (identity->node_id == node_id)
		return TR_OK;
	identity->node_id = node_id;
	(void)snprintf(text, sizeof(text), "%" PRIu64, node_id);
	return rundir_write(folder, "node-id", text, error);
}
