/* What trainctl goes by: global options, then the environment, then defaults. The only file of trainctl that reads the
 * environment.
 */
#ifndef TR_CLIENT_TRAINCTL_CONFIG_H
#define TR_CLIENT_TRAINCTL_CONFIG_H

#include <limits.h>
#include <stdbool.h>

#include "client/trainctl/args.h"
#include "common/limits.h"

enum config_source { CONFIG_BY_OPTION, CONFIG_BY_ENVIRONMENT, CONFIG_BY_HOME, CONFIG_BY_DEFAULT };

struct config {
	char address[TR_ADDRESS_MAX];
	enum config_source address_by;
	char home[PATH_MAX];    /* TRAIND_HOME, absolute */
	char cluster[PATH_MAX]; /* the embedded cluster's folder */
	const char *tls;        /* folder (--tls, TRAIND_TLS); NULL: plain */
	bool insecure; /* plain to an address that is not loopback (--insecure, TRAIND_INSECURE) */
	bool json;
	bool color;    /* stdout is a terminal that wants colours, or --color always */
	bool terminal; /* stdout and stdin are terminals */
	bool utf8;
};

extern const struct args_row config_options[]; /* the global options */

tr_status config_read(const struct args *args, struct config *config, struct tr_error *error);
/* --dir names another embedded cluster than TRAIND_HOME's. */
tr_status config_set_home(struct config *config, const char *home, struct tr_error *error);
/* What of our environment the workers of a command job get: "KEY=value", NULL-ended; free the array only. */
const char **config_worker_environment(void);
const char *config_search_path(void);
bool config_stderr_moves(void); /* a terminal on which a line can be written anew */

#endif
