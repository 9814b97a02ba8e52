#include "client/trainctl/config.h"

#include <fnmatch.h>
#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/trainctl/cluster.h"
#include "client/trainctl/path.h"

#define DEFAULT_ADDRESS "127.0.0.1:7070"

const struct args_row config_options[] = {
	{ "--address", NULL, "ADDR",
	    "memberd or a traind, as host:port or unix:/path (else TRAIND_ADDRESS, else the "
	    "embedded "
	    "cluster of TRAIND_HOME, else " DEFAULT_ADDRESS ")",
	    false },
	{ "--tls", NULL, "DIR",
	    "speak TLS, with ca.crt, node.crt and node.key of DIR, as `trainctl cert` makes it "
	    "(else "
	    "TRAIND_TLS; never to the embedded cluster)",
	    false },
	{ "--insecure", NULL, NULL,
	    "allow an ADDR that is not loopback, without TLS (else TRAIND_INSECURE, if it is 1)",
	    false },
	{ "--json", NULL, NULL, "print JSON", false },
	{ "--color", NULL, "WHEN", "auto, always or never", false },
	{ "--help", "-h", NULL, "print help", false },
	{ NULL, NULL, NULL, NULL, false },
};

/* Enough for a program to find its interpreter, libraries and devices, and no secrets: a job's record is kept. */
static const char *const passed_on[] = { "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG",
	"LANGUAGE", "LC_*", "TZ", "TMPDIR", "TERM", "LD_LIBRARY_PATH", "PYTHON*", "VIRTUAL_ENV",
	"CONDA_*", "OMP_*", "OPENBLAS_*", "MKL_*", "BLIS_*", "KMP_*", "GOMP_*", "CUDA_*", "HIP_*",
	"ROCR_*", "NCCL_*", "RCCL_*", "GLOO_*", "UCX_*", "TORCH_*", "PYTORCH_*", "TP_SOCKET_IFNAME",
	"TRITON_*", "XLA_*", "HF_HOME", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "XDG_CACHE_HOME",
	NULL };

static tr_status read_address(const struct args *args, struct config *config, struct tr_error *error)
{
	const char *given = args_value(args, "--address");
	const char *variable = getenv("TRAIND_ADDRESS");
	bool by_option = given != NULL;
	if (!by_option)
		given = variable;
	if (!by_option && (given == NULL || given[0] == '\0'))
		return TR_OK; /* by home or default, which are there already */
	if (strlen(given) >= sizeof(config->address))
		return tr_error_set(error, TR_EINVAL,
		    "--address: found %zu bytes, allowed: at most %d", strlen(given),
		    TR_ADDRESS_MAX - 1);
	(void)snprintf(config->address, sizeof(config->address), "%s", given);
	config->address_by = by_option ? CONFIG_BY_OPTION : CONFIG_BY_ENVIRONMENT;
	return TR_OK;
}

tr_status config_set_home(struct config *config, const char *home, struct tr_error *error)
{
	char current[PATH_MAX], full[PATH_MAX];
	if (getcwd(current, sizeof(current)) == NULL ||
	    !path_absolute(current, home, full, sizeof(full)) ||
	    strlen(full) + sizeof("/cluster/node-1024/address") > PATH_MAX)
		return tr_error_set(error, TR_EINVAL, "'%.200s' cannot be the folder of a cluster",
		    home);
	(void)snprintf(config->home, sizeof(config->home), "%s", full);
	(void)snprintf(config->cluster, sizeof(config->cluster), "%.*s/cluster", PATH_MAX - 32,
	    full);
	if (config->address[0] != '\0' && config->address_by <= CONFIG_BY_ENVIRONMENT)
		return TR_OK;
	if (cluster_address(config->cluster, config->address)) {
		config->address_by = CONFIG_BY_HOME;
	} else {
		(void)snprintf(config->address, sizeof(config->address), "%s", DEFAULT_ADDRESS);
		config->address_by = CONFIG_BY_DEFAULT;
	}
	return TR_OK;
}

static tr_status read_home(struct config *config, struct tr_error *error)
{
	char home[PATH_MAX];
	const char *given = getenv("TRAIND_HOME");
	const char *user = getenv("HOME");
	if (given != NULL && given[0] != '\0')
		(void)snprintf(home, sizeof(home), "%s", given);
	else
		(void)snprintf(home, sizeof(home), "%s/.traind",
		    user != NULL && user[0] == '/' ? user : "/root");
	return config_set_home(config, home, error);
}

static bool is_dumb(void)
{
	const char *term = getenv("TERM");
	return term == NULL || term[0] == '\0' || strcmp(term, "dumb") == 0;
}

bool config_stderr_moves(void)
{
	return isatty(STDERR_FILENO) && !is_dumb();
}

static tr_status read_color(const struct args *args, struct config *config, struct tr_error *error)
{
	const char *when = args_value(args, "--color");
	const char *no_color = getenv("NO_COLOR");
	bool dumb = is_dumb();
	config->terminal = isatty(STDOUT_FILENO) && isatty(STDIN_FILENO) && !dumb;
	if (when == NULL || strcmp(when, "auto") == 0)
		config->color = isatty(STDOUT_FILENO) && !dumb &&
		    (no_color == NULL || no_color[0] == '\0');
	else if (strcmp(when, "always") == 0)
		config->color = true;
	else if (strcmp(when, "never") == 0)
		config->color = false;
	else
		return tr_error_set(error, TR_EINVAL,
		    "--color: found '%.60s', allowed: auto, always or never", when);
	return TR_OK;
}

tr_status config_read(const struct args *args, struct config *config, struct tr_error *error)
{
	const char *tls = args_value(args, "--tls");
	if (tls == NULL)
		tls = getenv("TRAIND_TLS");
	const char *insecure = getenv("TRAIND_INSECURE");
	*config = (struct config){ .json = args_has(args, "--json"),
		.insecure = args_has(args, "--insecure") ||
		    (insecure != NULL && strcmp(insecure, "1") == 0),
		.tls = tls == NULL || tls[0] == '\0' ? NULL : tls };
	(void)setlocale(LC_CTYPE, "");
	config->utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
	tr_status status = read_home(config, error);
	if (status == TR_OK)
		status = read_color(args, config, error);
	return status == TR_OK ? read_address(args, config, error) : status;
}

static bool is_passed_on(const char *variable)
{
	char name[128];
	size_t length = strcspn(variable, "=");
	if (length >= sizeof(name))
		return false;
	memcpy(name, variable, length);
	name[length] = '\0';
	for (size_t i = 0; passed_on[i] != NULL; i++) {
		if (fnmatch(passed_on[i], name, 0) == 0)
			return true;
	}
	return false;
}

const char **config_worker_environment(void)
{
	size_t count = 0, used = 0;
	while (environ[count] != NULL)
		count++;
	const char **list = calloc(count + 1, sizeof(*list));
	for (size_t i = 0; list != NULL && i < count; i++) {
		if (is_passed_on(environ[i]))
			list[used++] = environ[i];
	}
	return list;
}

const char *config_search_path(void)
{
	const char *path = getenv("PATH");
	return path != NULL ? path : "/usr/local/bin:/usr/bin:/bin";
}
