#include "client/trainctl/cluster.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>
#include <yaml.h>

#include "client/trainctl/interrupt.h"
#include "client/trainctl/path.h"
#include "common/json.h"

static void file_name(const char *folder, const char *name, char path[PATH_MAX])
{
	(void)snprintf(path, PATH_MAX, "%.*s/%s", PATH_MAX - 64, folder, name);
}

/* ---- reading: JSON is YAML ---- */

static const yaml_node_t *member(yaml_document_t *document, const yaml_node_t *mapping,
    const char *key)
{
	if (mapping == NULL || mapping->type != YAML_MAPPING_NODE)
		return NULL;
	for (yaml_node_pair_t *pair = mapping->data.mapping.pairs.start;
	     pair < mapping->data.mapping.pairs.top; pair++) {
		const yaml_node_t *name = yaml_document_get_node(document, pair->key);
		if (name != NULL && name->type == YAML_SCALAR_NODE &&
		    strcmp((char *)name->data.scalar.value, key) == 0)
			return yaml_document_get_node(document, pair->value);
	}
	return NULL;
}

static const char *text_of(yaml_document_t *document, const yaml_node_t *mapping, const char *key)
{
	const yaml_node_t *node = member(document, mapping, key);
	return node != NULL && node->type == YAML_SCALAR_NODE
	    ? (const char *)node->data.scalar.value
	    : "";
}

static bool read_daemon(yaml_document_t *document, const yaml_node_t *node,
    struct cluster_daemon *daemon)
{
	(void)snprintf(daemon->name, sizeof(daemon->name), "%s", text_of(document, node, "name"));
	(void)snprintf(daemon->address, sizeof(daemon->address), "%s",
	    text_of(document, node, "address"));
	daemon->process.pid = (pid_t)strtol(text_of(document, node, "pid"), NULL, 10);
	daemon->process.start_time = strtoull(text_of(document, node, "start_time"), NULL, 10);
	daemon->slots = (unsigned)strtoul(text_of(document, node, "slots"), NULL, 10);
	return daemon->name[0] != '\0' && strchr(daemon->name, '/') == NULL &&
	    daemon->process.pid > 0;
}

static bool read_record(yaml_document_t *document, struct cluster *cluster)
{
	const yaml_node_t *root = yaml_document_get_root_node(document);
	const yaml_node_t *nodes = member(document, root, "nodes");
	cluster->starting = strcmp(text_of(document, root, "starting"), "true") == 0;
	if (!read_daemon(document, member(document, root, "memberd"), &cluster->memberd) ||
	    nodes == NULL || nodes->type != YAML_SEQUENCE_NODE)
		return false;
	for (yaml_node_item_t *item = nodes->data.sequence.items.start;
	     item < nodes->data.sequence.items.top; item++) {
		if (cluster->n_nodes == CLUSTER_NODES_MAX ||
		    !read_daemon(document, yaml_document_get_node(document, *item),
		        &cluster->nodes[cluster->n_nodes]))
			return false;
		cluster->n_nodes++;
	}
	return true;
}

static tr_status load(struct cluster *cluster, struct tr_error *error)
{
	char path[PATH_MAX];
	yaml_parser_t parser;
	yaml_document_t document;
	file_name(cluster->folder, "cluster.json", path);
	FILE *file = fopen(path, "re");
	if (file == NULL)
		return errno == ENOENT
		    ? TR_OK
		    : tr_error_set(error, TR_EIO, "cannot read %s: %s", path, strerror(errno));
	bool good = yaml_parser_initialize(&parser);
	if (good) {
		yaml_parser_set_input_file(&parser, file);
		good = yaml_parser_load(&parser, &document);
		if (good) {
			good = read_record(&document, cluster);
			yaml_document_delete(&document);
		}
		yaml_parser_delete(&parser);
	}
	(void)fclose(file);
	return good ? TR_OK
	            : tr_error_set(error, TR_EPROTO,
	                  "%s is damaged: end the daemons it names by hand and delete it", path);
}

bool cluster_address(const char *folder, char address[TR_ADDRESS_MAX])
{
	struct cluster *cluster = calloc(1, sizeof(*cluster));
	if (cluster == NULL)
		return false;
	(void)snprintf(cluster->folder, sizeof(cluster->folder), "%s", folder);
	bool found = load(cluster, NULL) == TR_OK && cluster->memberd.address[0] != '\0' &&
	    !cluster->starting;
	if (found)
		(void)snprintf(address, TR_ADDRESS_MAX, "%s", cluster->memberd.address);
	free(cluster);
	return found;
}

bool cluster_is_recorded(const char *folder)
{
	char path[PATH_MAX];
	file_name(folder, "cluster.json", path);
	return access(path, F_OK) == 0 || errno != ENOENT;
}

/* ---- writing ---- */

static void write_daemon(struct json *json, const struct cluster_daemon *daemon)
{
	json_object(json);
	json_key(json, "name");
	json_string(json, daemon->name);
	json_key(json, "pid");
	json_int(json, daemon->process.pid);
	json_key(json, "start_time");
	json_uint(json, daemon->process.start_time);
	json_key(json, "address");
	json_string(json, daemon->address);
	json_key(json, "slots");
	json_uint(json, daemon->slots);
	json_end(json);
}

static bool write_all(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	size_t bytes = strlen(text);
	bool good = fd >= 0 && write(fd, text, bytes) == (ssize_t)bytes && fsync(fd) == 0;
	if (fd >= 0)
		good = close(fd) == 0 && good;
	return good;
}

tr_status cluster_save(const struct cluster *cluster, struct tr_error *error)
{
	char path[PATH_MAX], temporary[PATH_MAX];
	struct json json = { 0 };
	json_object(&json);
	json_key(&json, "memberd");
	write_daemon(&json, &cluster->memberd);
	json_key(&json, "nodes");
	json_array(&json);
	for (size_t i = 0; i < cluster->n_nodes; i++)
		write_daemon(&json, &cluster->nodes[i]);
	json_end(&json);
	json_key_bool(&json, "starting", cluster->starting);
	json_end(&json);
	file_name(cluster->folder, "cluster.json", path);
	file_name(cluster->folder, "cluster.json.new", temporary);
	errno = ENOMEM;
	bool good = json_text(&json) != NULL && write_all(temporary, json_text(&json)) &&
	    rename(temporary, path) == 0;
	json_finish(&json);
	return good ? TR_OK
	            : tr_error_set(error, TR_EIO, "cannot write %s: %s", path, strerror(errno));
}

tr_status cluster_forget(const struct cluster *cluster, struct tr_error *error)
{
	char path[PATH_MAX];
	file_name(cluster->folder, "cluster.json", path);
	if (unlink(path) == 0 || errno == ENOENT)
		return TR_OK;
	return tr_error_set(error, TR_EIO, "cannot delete %s: %s", path, strerror(errno));
}

tr_status cluster_open(const char *folder, bool make, struct cluster *cluster,
    struct tr_error *error)
{
	char path[PATH_MAX];
	*cluster = (struct cluster){ .lock = -1 };
	(void)snprintf(cluster->folder, sizeof(cluster->folder), "%s", folder);
	file_name(folder, "lock", path);
	if (!make && access(folder, F_OK) != 0 && errno == ENOENT)
		return TR_OK; /* nobody can be at work in a folder that is not there */
	if (path_make_folder(folder))
		cluster->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	if (cluster->lock < 0)
		return tr_error_set(error, TR_EIO,
		    "cannot make %s: %s (TRAIND_HOME or --dir names another folder)", path,
		    strerror(errno));
	if (flock(cluster->lock, LOCK_EX | LOCK_NB) != 0) {
		(void)fprintf(stderr,
		    "trainctl: another trainctl is starting or ending this cluster: waiting for "
		    "it\n");
		while (interrupt_pending() == 0 && flock(cluster->lock, LOCK_EX) != 0 &&
		    errno == EINTR)
			;
	}
	tr_status status = interrupt_pending() == 0 ? load(cluster, error) : interrupt_error(error);
	if (status != TR_OK)
		cluster_close(cluster);
	return status;
}

void cluster_close(struct cluster *cluster)
{
	if (cluster->lock >= 0)
		(void)close(cluster->lock);
	cluster->lock = -1;
}

bool cluster_daemon_alive(const struct cluster_daemon *daemon)
{
	return proc_alive(daemon->process.pid, daemon->process.start_time);
}

size_t cluster_count_alive(const struct cluster *cluster)
{
	size_t count = cluster_daemon_alive(&cluster->memberd) ? 1 : 0;
	for (size_t i = 0; i < cluster->n_nodes; i++)
		count += cluster_daemon_alive(&cluster->nodes[i]) ? 1 : 0;
	return count;
}

size_t cluster_count_folders(const struct cluster *cluster)
{
	char name[32], path[PATH_MAX];
	for (size_t count = 0; count < CLUSTER_NODES_MAX; count++) {
		(void)snprintf(name, sizeof(name), CLUSTER_NODE_NAME, count + 1);
		file_name(cluster->folder, name, path);
		if (access(path, F_OK) != 0)
			return count;
	}
	return CLUSTER_NODES_MAX;
}

bool cluster_await_dead(const struct cluster *cluster)
{
	struct proc dead[CLUSTER_NODES_MAX + 1];
	size_t count = 0;
	if (!cluster_daemon_alive(&cluster->memberd))
		dead[count++] = cluster->memberd.process;
	for (size_t i = 0; i < cluster->n_nodes; i++) {
		if (!cluster_daemon_alive(&cluster->nodes[i]))
			dead[count++] = cluster->nodes[i].process;
	}
	return proc_await(dead, count);
}

tr_status cluster_still_ends(const struct cluster *cluster, struct tr_error *error)
{
	return tr_error_set(error, TR_EUNAVAILABLE,
	    "a daemon of the cluster in %s was killed and has not ended after 5 s: try again, or "
	    "see with `ps` what it waits for",
	    cluster->folder);
}
