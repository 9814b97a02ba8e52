#include "client/trainctl/launch_spec.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/trainctl/config.h"
#include "client/trainctl/jobfile.h"
#include "common/limits.h"
#include "daemon/plan/job_options.h"

/* The program's name with what a job's name may not hold replaced. */
static char *name_of(const char *program)
{
	const char *slash = strrchr(program, '/');
	char *name = strndup(slash != NULL ? slash + 1 : program, TR_NAME_MAX - 1);
	for (char *at = name; at != NULL && *at != '\0'; at++) {
		bool first = at == name;
		if (!isalnum((unsigned char)*at) && *at != '_' &&
		    (first || (*at != '.' && *at != '-')))
			*at = '_';
	}
	return name;
}

static bool copy_list(char **to, size_t *count, const char *const *from, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		to[*count] = strdup(from[i]);
		if (to[*count] == NULL)
			return false;
		(*count)++;
	}
	return true;
}

static bool fill_environment(const struct args *args, Traind__V1__CommandSpec *command)
{
	const char **inherited = config_worker_environment();
	size_t count = 0;
	while (inherited != NULL && inherited[count] != NULL)
		count++;
	command->env = calloc(count + args->n_given + 1, sizeof(*command->env));
	bool good = inherited != NULL && command->env != NULL &&
	    copy_list(command->env, &command->n_env, inherited, count);
	free(inherited);
	for (size_t i = 0; good && i < args->n_given; i++) {
		if (strcmp(args->given[i].row->name, "--env") == 0)
			good = copy_list(command->env, &command->n_env, &args->given[i].value, 1);
	}
	return good;
}

static tr_status read_command(const struct args *args, Traind__V1__JobSpec *spec,
    struct tr_error *error)
{
	uint64_t workers, nodes;
	char current[PATH_MAX];
	tr_status status = args_number(args, "--workers", 1, TR_GROUP_PEERS_MAX, 1, &workers, error);
	if (status == TR_OK)
		status = args_number(args, "--nodes", 1, TR_GROUP_PEERS_MAX, 0, &nodes, error);
	if (status != TR_OK)
		return status;
	if (nodes > workers)
		return tr_error_set(error, TR_EINVAL,
		    "--nodes: found %llu, allowed: at most as many as -n has workers, %llu",
		    (unsigned long long)nodes, (unsigned long long)workers);
	if (args->n_rest == 0)
		return tr_error_set(error, TR_EINVAL,
		    "no command (usage: trainctl launch -n %llu -- CMD...)",
		    (unsigned long long)workers);
	if (getcwd(current, sizeof(current)) == NULL)
		return tr_error_set(error, TR_EIO, "the current folder: %s", strerror(errno));
	Traind__V1__CommandSpec *command = spec->command;
	const char *name = args_value(args, "--name");
	spec->name = name != NULL ? strdup(name) : name_of(args->rest[0]);
	spec->mesh->workers = (uint32_t)workers;
	spec->mesh->nodes = (uint32_t)nodes;
	command->directory = strdup(current);
	command->argv = calloc(args->n_rest + 1, sizeof(*command->argv));
	if (spec->name == NULL || command->directory == NULL || command->argv == NULL ||
	    !copy_list(command->argv, &command->n_argv, (const char *const *)args->rest,
	        args->n_rest) ||
	    !fill_environment(args, command))
		return tr_error_set(error, TR_ENOMEM, "out of memory");
	return job_validate(spec, error);
}

static tr_status read_file(const struct args *args, Traind__V1__JobSpec **spec,
    struct tr_error *error)
{
	const char **sets = calloc(args->n_given + 1, sizeof(*sets));
	size_t count = 0;
	if (sets == NULL)
		return tr_error_set(error, TR_ENOMEM, "out of memory");
	for (size_t i = 0; i < args->n_given; i++) {
		if (strcmp(args->given[i].row->name, "--set") == 0)
			sets[count++] = args->given[i].value;
	}
	tr_status status = jobfile_read(args->words[0], sets, count, spec, error);
	free(sets);
	if (status != TR_OK || !args_has(args, "--costs") || (*spec)->mesh->auto_)
		return status;
	traind__v1__job_spec__free_unpacked(*spec, NULL);
	*spec = NULL;
	return tr_error_set(error, TR_EINVAL,
	    "--costs goes with a job of `mesh: auto`: no other is planned");
}

tr_status launch_spec_read(const struct args *args, Traind__V1__JobSpec **spec,
    struct tr_error *error)
{
	bool command = args_has(args, "--workers");
	static const char *const command_only[] = { "--env", "--name", "--nodes" };
	if (!command && args->rest != NULL && args->n_words == 0)
		return tr_error_set(error, TR_EINVAL,
		    "how many workers? (usage: trainctl launch -n N -- CMD...)");
	if (command && (args->n_words > 0 || args_has(args, "--set") || args_has(args, "--costs")))
		return tr_error_set(error, TR_EINVAL,
		    "either a job file, with --set or --costs, or -n N and a command");
	for (size_t i = 0; i < 3 && !command; i++) {
		if (args_has(args, command_only[i]))
			return tr_error_set(error, TR_EINVAL, "%s goes with -n N and a command",
			    command_only[i]);
	}
	if (!command && (args->n_words == 0 || args->rest != NULL))
		return tr_error_set(error, TR_EINVAL,
		    "a job file is missing (usage: trainctl launch FILE, or launch -n N -- "
		    "CMD...)");
	if (!command)
		return read_file(args, spec, error);
	Traind__V1__JobSpec *made = job_spec_new(false);
	tr_status status = made != NULL ? read_command(args, made, error)
	                                : tr_error_set(error, TR_ENOMEM, "out of memory");
	if (status == TR_OK)
		*spec = made;
	else if (made != NULL)
		traind__v1__job_spec__free_unpacked(made, NULL);
	return status;
}
