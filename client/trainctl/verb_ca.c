/* ca and cert: who may be a member of a cluster that speaks TLS. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/trainctl/certificate.h"
#include "client/trainctl/print.h"
#include "client/trainctl/verbs.h"
#include "common/json.h"

const struct args_row verb_cert_options[] = {
	{ "--address", NULL, "HOST",
	    "a name or an IP address at which others dial it, as in --listen or --advertise; may "
	    "be "
	    "given several times",
	    false },
	{ "--days", NULL, "N", "how long it is valid (default: 730, and no longer than the CA)",
	    false },
	{ NULL, NULL, NULL, NULL, false },
};

static int fail(tr_status status, const struct tr_error *error)
{
	bool usage = status == TR_EINVAL || status == TR_EEXIST || status == TR_ENOTFOUND;
	return verbs_complain(usage ? EXIT_USAGE : EXIT_JOB_FAILED, "%s", error->text);
}

/* The folder that was named, or TRAIND_HOME/tls. */
static const char *folder_of(const struct verb_call *call, char path[PATH_MAX])
{
	if (call->args->n_words > 1)
		return call->args->words[1];
	(void)snprintf(path, PATH_MAX, "%.*s/tls", PATH_MAX - 8, call->config->home);
	return path;
}

int verb_ca(struct verb_call *call)
{
	char path[PATH_MAX];
	struct certificate_made made;
	struct tr_error error;
	if (strcmp(call->args->words[0], "init") != 0)
		return verbs_complain(EXIT_USAGE, "ca: found '%.60s', allowed: init",
		    call->args->words[0]);
	tr_status status = certificate_make_ca(folder_of(call, path), &made, &error);
	if (status != TR_OK)
		return fail(status, &error);
	if (!call->config->json) {
		(void)printf("made a CA in %s, valid until %s: keep ca.key to yourself, and make a "
		             "certificate for each node with `trainctl cert NODE --address "
		             "HOST%s%s`\n",
		    made.folder, made.expires, call->args->n_words > 1 ? " " : "",
		    call->args->n_words > 1 ? made.folder : "");
		return EXIT_OK;
	}
	struct json json = { 0 };
	json_object(&json);
	json_key(&json, "folder");
	json_string(&json, made.folder);
	json_key(&json, "expires");
	json_string(&json, made.expires);
	json_end(&json);
	print_json_text(&json);
	return EXIT_OK;
}

static void print_cert(const struct verb_call *call, const struct certificate_made *made,
    const char *const *addresses, size_t count)
{
	const char *node = call->args->words[0];
	if (!call->config->json) {
		(void)printf("made %s, valid until %s: copy that folder to %s, readable by its "
		             "daemons only (scp -rp %s %s:/etc/traind-tls), and start them with "
		             "--tls /etc/traind-tls\n",
		    made->folder, made->expires, node, made->folder, node);
		return;
	}
	struct json json = { 0 };
	json_object(&json);
	json_key(&json, "node");
	json_string(&json, node);
	json_key(&json, "folder");
	json_string(&json, made->folder);
	json_key(&json, "expires");
	json_string(&json, made->expires);
	json_key(&json, "addresses");
	json_array(&json);
	for (size_t i = 0; i < count; i++)
		json_string(&json, addresses[i]);
	json_end(&json);
	json_end(&json);
	print_json_text(&json);
}

int verb_cert(struct verb_call *call)
{
	char path[PATH_MAX];
	struct certificate_made made;
	struct tr_error error;
	uint64_t days;
	size_t count = 0;
	if (args_number(call->args, "--days", 1, CERTIFICATE_DAYS_MAX, CERTIFICATE_NODE_DAYS, &days,
	        &error) != TR_OK)
		return verbs_complain(EXIT_USAGE, "%s", error.text);
	const char **addresses = calloc(call->args->n_given + 1, sizeof(*addresses));
	if (addresses == NULL)
		return verbs_complain(EXIT_JOB_FAILED, "out of memory");
	for (size_t i = 0; i < call->args->n_given; i++) {
		if (call->args->given[i].row == verb_cert_options)
			addresses[count++] = call->args->given[i].value;
	}
	tr_status status = certificate_make_node(folder_of(call, path), call->args->words[0],
	    addresses, count, days, &made, &error);
	if (status == TR_OK)
		print_cert(call, &made, addresses, count);
	free(addresses);
	return status == TR_OK ? EXIT_OK : fail(status, &error);
}
