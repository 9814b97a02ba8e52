/* The small parts of the daemons: options, folders, identity, a worker's environment, the advertised address, kept ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/log.h"
#include "daemon/node/advertise.h"
#include "daemon/node/devices.h"
#include "daemon/node/environment.h"
#include "daemon/node/identity.h"
#include "daemon/node/kept.h"
#include "daemon/node/shepherd_spec.h"
#include "daemon/node/worker_ends.h"
#include "daemon/shell/cmdline.h"
#include "daemon/shell/rundir.h"

static char folder[64];

static int make_folder(void **state)
{
	(void)state;
	(void)snprintf(folder, sizeof(folder), "/tmp/test_node.XXXXXX");
	return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state)
{
	(void)state;
	char command[128];
	(void)snprintf(command, sizeof(command), "rm -rf %s", folder);
	return system(command);
}

/* ---- options */

static struct {
	const char *listen, *name;
	uint64_t slots;
	bool insecure, json;
	enum log_level level;
} set;

static const struct cmdline_row rows[] = {
	{ .name = "listen",
	    .kind = CMDLINE_TEXT,
	    .target = &set.listen,
	    .fallback = "a:1",
	    .metavar = "ADDR" },
	{ .name = "name", .kind = CMDLINE_TEXT, .target = &set.name, .metavar = "NAME" },
	{ .name = "slots",
	    .kind = CMDLINE_COUNT,
	    .target = &set.slots,
	    .least = 1,
	    .most = 9,
	    .fallback = "2" },
	{ .name = "insecure", .kind = CMDLINE_FLAG, .target = &set.insecure },
	{ .name = "log-format", .kind = CMDLINE_STYLE, .target = &set.json, .fallback = "text" },
	{ .name = "log-level", .kind = CMDLINE_LEVEL, .target = &set.level, .fallback = "info" },
	{ .name = NULL },
};

static tr_status parse(const char *words, enum cmdline_wish *wish, struct tr_error *error)
{
	static char text[256];
	char *argv[16] = { "program" };
	int argc = 1;
	(void)snprintf(text, sizeof(text), "%s", words);
	for (char *word = strtok(text, " "); word != NULL; word = strtok(NULL, " "))
		argv[argc++] = word;
	return cmdline_parse(rows, argc, argv, wish, error);
}

static void test_options(void **state)
{
	(void)state;
	enum cmdline_wish wish;
	struct tr_error error;
	set.name = "kept";
	assert_int_equal(parse("", &wish, &error), TR_OK);
	assert_int_equal(wish, CMDLINE_RUN);
	assert_string_equal(set.listen, "a:1");
	assert_string_equal(set.name, "kept");
	assert_int_equal(set.slots, 2);
	assert_false(set.insecure || set.json);
	assert_int_equal(parse("--listen b:2 --slots=9 --insecure --log-format json --log-level "
	                       "error --name n",
	                     &wish, &error),
	    TR_OK);
	assert_string_equal(set.listen, "b:2");
	assert_string_equal(set.name, "n");
	assert_int_equal(set.slots, 9);
	assert_true(set.insecure && set.json);
	assert_int_equal(set.level, LOG_ERROR);
	assert_int_equal(parse("--slots 9 --help", &wish, &error), TR_OK);
	assert_int_equal(wish, CMDLINE_HELP);
	assert_int_equal(parse("--version", &wish, &error), TR_OK);
	assert_int_equal(wish, CMDLINE_VERSION);
}

static void test_wrong_options(void **state)
{
	(void)state;
	static const struct {
		const char *words, *text;
	} cases[] = {
		{ "--slots 10", "--slots: found '10', allowed: a number from 1 to 9" },
		{ "--slots -1", "--slots: found '-1', allowed: a number from 1 to 9" },
		{ "--slots 2x", "--slots: found '2x', allowed: a number from 1 to 9" },
		{ "--slots", "--slots needs a value" },
		{ "--listen=", "--listen: found nothing, allowed: ADDR" },
		{ "--lis x", "unknown argument '--lis'; see --help" },
		{ "--listening x", "unknown argument '--listening'; see --help" },
		{ "listen", "unknown argument 'listen'; see --help" },
		{ "--insecure=maybe", "--insecure: found 'maybe', allowed: true, false" },
		{ "--log-format xml", "--log-format: found 'xml', allowed: text, json" },
		{ "--log-level loud",
		    "--log-level: found 'loud', allowed: debug, info, warn, error" },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		enum cmdline_wish wish;
		struct tr_error error;
		assert_int_equal(parse(cases[i].words, &wish, &error), TR_EINVAL);
		if (strncmp(error.text, cases[i].text, strlen(cases[i].text)) != 0)
			fail_msg("%s: %s", cases[i].words, error.text);
	}
}

/* ---- folders */

static void test_a_folder_has_one_daemon(void **state)
{
	(void)state;
	char path[128], words[32];
	struct tr_error error;
	int first, second;
	(void)snprintf(path, sizeof(path), "%s/a/b/c", folder);
	assert_int_equal(rundir_open(path, "traind", &first, &error), TR_OK);
	assert_int_equal(rundir_open(path, "traind", &second, &error), TR_EEXIST);
	(void)snprintf(words, sizeof(words), "pid %ld", (long)getpid());
	assert_non_null(strstr(error.text, words));
	assert_non_null(strstr(error.text, "--dir"));
	(void)close(first);
	assert_int_equal(rundir_open(path, "traind", &second, &error), TR_OK);
	(void)close(second);
}

static void test_files_are_replaced_whole(void **state)
{
	(void)state;
	char text[64];
	struct tr_error error;
	assert_int_equal(rundir_read(folder, "address", text, sizeof(text), &error), TR_ENOTFOUND);
	assert_int_equal(rundir_announce(folder, "127.0.0.1:7", &error), TR_OK);
	assert_int_equal(rundir_write(folder, "address", "127.0.0.1:8", &error), TR_OK);
	assert_int_equal(rundir_read(folder, "address", text, sizeof(text), &error), TR_OK);
	assert_string_equal(text, "127.0.0.1:8");
	assert_int_equal(rundir_read(folder, "pid", text, sizeof(text), &error), TR_OK);
	assert_int_equal(atoi(text), getpid());
	rundir_retract(folder);
	assert_int_equal(rundir_read(folder, "pid", text, sizeof(text), &error), TR_ENOTFOUND);
	assert_int_equal(rundir_write("/proc/nowhere", "x", "y", &error), TR_EIO);
	assert_non_null(strstr(error.text, "/proc/nowhere/x"));
	assert_int_equal(rundir_make("/proc/version/x", &error), TR_EIO);
}

static void test_identity(void **state)
{
	(void)state;
	struct identity first, second;
	struct tr_error error;
	assert_int_equal(identity_load(folder, &first, &error), TR_OK);
	assert_int_equal(first.node_id, 0);
	assert_int_equal(identity_keep(folder, &first, 42, &error), TR_OK);
	assert_int_equal(identity_load(folder, &second, &error), TR_OK);
	assert_int_equal(second.node_id, 42);
	assert_int_not_equal(second.incarnation, first.incarnation);
	assert_int_equal(rundir_write(folder, "node-id", "4x", &error), TR_OK);
	assert_int_equal(identity_load(folder, &second, &error), TR_EINVAL);
	assert_non_null(strstr(error.text, "found '4x'"));
}

/* ---- environment */

static size_t count_of(char **environment, const char *entry)
{
	size_t count = 0;
	for (; *environment != NULL; environment++)
		count += strcmp(*environment, entry) == 0;
	return count;
}

static void test_environment_of_a_command(void **state)
{
	(void)state;
	static char *own[] = { "MASTER_PORT=1", "EMPTY=", "PATH" };
	Traind__V1__CommandSpec command = TRAIND__V1__COMMAND_SPEC__INIT;
	Traind__V1__JobSpec spec = TRAIND__V1__JOB_SPEC__INIT;
	Traind__Peer__StartWorker start = TRAIND__PEER__START_WORKER__INIT;
	command.env = own;
	command.n_env = 3;
	spec.command = &command;
	start.spec = &spec;
	start.rank = 5;
	start.local_rank = 1;
	start.world_size = 8;
	start.local_world_size = 2;
	start.node_rank = 2;
	start.nodes = 4;
	start.master_address = "10.0.0.1";
	start.master_port = 29400;
	start.run_id = "job-7";
	char **environment = environment_of(&start, true, 7, "");
	static const char *const expected[] = { "RANK=5", "LOCAL_RANK=1", "WORLD_SIZE=8",
		"LOCAL_WORLD_SIZE=2", "GROUP_RANK=2", "GROUP_WORLD_SIZE=4", "ROLE_RANK=5",
		"ROLE_WORLD_SIZE=8", "ROLE_NAME=default", "MASTER_ADDR=10.0.0.1",
		"MASTER_PORT=29400", "TORCHELASTIC_RESTART_COUNT=0", "TORCHELASTIC_MAX_RESTARTS=0",
		"TORCHELASTIC_RUN_ID=job-7", "TORCHELASTIC_USE_AGENT_STORE=False",
		"OMP_NUM_THREADS=1", "TRAIND_NODE_ID=7", "MASTER_PORT=1", "EMPTY=" };
	for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++)
		if (count_of(environment, expected[i]) != 1)
			fail_msg("%s", expected[i]);
	assert_int_equal(count_of(environment, "PATH"), 0);
	environment_free(environment);
	environment = environment_of(&start, false, 7, "/n/kept/group-3");
	assert_int_equal(count_of(environment, "TRAIND_KEPT=/n/kept/group-3"), 1);
	assert_int_equal(count_of(environment, "OMP_NUM_THREADS=1"), 0);
	environment_free(environment);
	/* A trainer says in its checkpoints which job's they are. */
	static const char submitted[] = "TRAIND_JOB_SUBMITTED_UNIX_MS=1764417600123";
	start.submitted_unix_ms = 1764417600123;
	environment = environment_of(&start, false, 7, "");
	assert_int_equal(count_of(environment, submitted), 0);
	environment_free(environment);
	spec.command = NULL;
	environment = environment_of(&start, false, 7, "");
	assert_int_equal(count_of(environment, submitted), 1);
	environment_free(environment);
}

static void test_specification_of_a_worker(void **state)
{
	(void)state;
	static const char *const argv[] = { "program", "", "an argument", NULL };
	static const char *const environment[] = { "A=1\n2", NULL };
	struct shepherd_spec spec = { .traind = 77,
		.grace_ms = 3000,
		.open_files = 1024,
		.channel = true,
		.cgroup = "",
		.directory = "/tmp",
		.argv = argv,
		.environment = environment };
	struct shepherd_spec read;
	struct tr_error error;
	int fd;
	assert_int_equal(shepherd_spec_write(&spec, &fd, &error), TR_OK);
	assert_int_equal(shepherd_spec_read(fd, &read, &error), TR_OK);
	assert_int_equal(read.traind, 77);
	assert_int_equal(read.grace_ms, 3000);
	assert_int_equal(read.open_files, 1024);
	assert_true(read.channel);
	assert_string_equal(read.directory, "/tmp");
	assert_string_equal(read.argv[1], "");
	assert_string_equal(read.argv[2], "an argument");
	assert_null(read.argv[3]);
	assert_string_equal(read.environment[0], "A=1\n2");
	assert_null(read.environment[1]);
	shepherd_spec_finish(&read);
	/* Cut anywhere, it is an error and nothing worse. */
	struct stat status;
	assert_int_equal(fstat(fd, &status), 0);
	for (off_t size = status.st_size - 1; size >= 0; size--) {
		assert_int_equal(ftruncate(fd, size), 0);
		assert_int_not_equal(shepherd_spec_read(fd, &read, &error), TR_OK);
	}
	(void)close(fd);
}

/* ---- the rest */

static void test_advertised_address(void **state)
{
	(void)state;
	char address[TR_ADDRESS_MAX];
	struct tr_error error;
	assert_int_equal(advertise_address("127.0.0.1:40", NULL, address, &error), TR_OK);
	assert_string_equal(address, "127.0.0.1:40");
	assert_int_equal(advertise_address("0.0.0.0:40", "node7", address, &error), TR_OK);
	assert_string_equal(address, "node7:40");
	assert_int_equal(advertise_address("[::]:40", "fe80::1", address, &error), TR_OK);
	assert_string_equal(address, "[fe80::1]:40");
	assert_int_equal(advertise_address("0.0.0.0:40", NULL, address, &error), TR_EINVAL);
	assert_non_null(strstr(error.text, "--advertise HOST"));
	assert_int_equal(advertise_address("[::]:40", NULL, address, &error), TR_EINVAL);
	assert_int_equal(advertise_address("0.0.0.0:40", "", address, &error), TR_EINVAL);
	assert_int_equal(advertise_address("[::]:40", "fe80::1%eth0", address, &error), TR_OK);
	assert_string_equal(address, "[fe80::1%eth0]:40");
	assert_int_equal(advertise_address("0.0.0.0:40", "10.0.0.7:80", address, &error), TR_EINVAL);
	assert_non_null(strstr(error.text, "found '10.0.0.7:80', allowed: a host name"));
	assert_int_equal(advertise_address("0.0.0.0:40", "node7:80", address, &error), TR_EINVAL);
}

static void count_end(void *arg, Traind__Peer__WorkerExited *end)
{
	uint64_t *next = arg;
	assert_int_equal(end->peer, (*next)++);
	assert_string_equal(end->last_lines, "bye");
}

static void test_what_was_learned_goes_with_its_group(void **state)
{
	(void)state;
	char path[128], command[512];
	for (uint64_t group = 3; group <= 5; group++) {
		kept_folder(folder, group, path, sizeof(path));
		(void)snprintf(command, sizeof(command), "mkdir -p %s && touch %s/peer-7", path,
		    path);
		assert_false(kept_any(folder, group));
		assert_int_equal(system(command), 0);
		assert_true(kept_any(folder, group));
	}
	kept_drop(folder, 4);
	assert_true(kept_any(folder, 3) && !kept_any(folder, 4) && kept_any(folder, 5));
	kept_drop(folder, 0);
	assert_false(kept_any(folder, 3) || kept_any(folder, 5));
}

struct ends_sum {
	size_t ends, words, bytes;
	bool newest_has_words;
};

static void add_end(void *arg, Traind__Peer__WorkerExited *end)
{
	struct ends_sum *sum = arg;
	sum->ends++;
	sum->words += end->last_words != NULL;
	sum->bytes += traind__peer__worker_exited__get_packed_size(end);
	sum->newest_has_words = end->last_words != NULL;
}

/* All of them go to memberd in one turn, whatever their last words: more than may wait on the connection would close it, at each try. */
static void test_kept_ends_fit_a_connection(void **state)
{
	(void)state;
	static struct worker_ends ends;
	struct ends_sum sum = { 0 };
	char *text = calloc(1, (2u << 20) + 1);
	assert_non_null(text);
	memset(text, 'x', 2u << 20);
	for (uint64_t peer = 1; peer <= 40; peer++) {
		Traind__Peer__WorkerExited end = TRAIND__PEER__WORKER_EXITED__INIT;
		Traind__Peer__LastWords words = TRAIND__PEER__LAST_WORDS__INIT;
		words.events = &text;
		words.n_events = 1;
		end.peer = peer;
		end.last_words = &words;
		worker_ends_keep(&ends, &end);
	}
	worker_ends_each(&ends, add_end, &sum);
	assert_int_equal(sum.ends, 40);
	assert_true(sum.newest_has_words && sum.words >= 10);
	assert_true(sum.bytes <= TR_CONN_QUEUE_BYTES_MAX / 2);
	worker_ends_finish(&ends);
	assert_int_equal(ends.bytes, 0);
	free(text);
}

static void test_the_newest_ends_are_kept_in_order(void **state)
{
	(void)state;
	struct worker_ends ends = { 0 };
	for (uint64_t peer = 1; peer <= WORKER_ENDS_MAX + 10; peer++) {
		Traind__Peer__WorkerExited end = TRAIND__PEER__WORKER_EXITED__INIT;
		end.peer = peer;
		end.last_lines = "bye";
		worker_ends_keep(&ends, &end);
	}
	uint64_t next = 11;
	worker_ends_each(&ends, count_end, &next);
	assert_int_equal(next, WORKER_ENDS_MAX + 11);
	assert_int_equal(worker_ends_find(&ends, 11)->peer, 11);
	assert_null(worker_ends_find(&ends, 10));
	worker_ends_finish(&ends);
}

static void test_devices(void **state)
{
	(void)state;
	struct devices devices;
	devices_detect(&devices);
	assert_true(devices.cores >= 1);
	assert_true(devices.memory_bytes > 1 << 20);
	assert_true(devices.count >= 1);
	assert_int_equal(strncmp(devices.names[0], "cpu: ", 5), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_options),
		cmocka_unit_test(test_wrong_options),
		cmocka_unit_test(test_a_folder_has_one_daemon),
		cmocka_unit_test(test_files_are_replaced_whole),
		cmocka_unit_test(test_identity),
		cmocka_unit_test(test_environment_of_a_command),
		cmocka_unit_test(test_specification_of_a_worker),
		cmocka_unit_test(test_advertised_address),
		cmocka_unit_test(test_what_was_learned_goes_with_its_group),
		cmocka_unit_test(test_the_newest_ends_are_kept_in_order),
		cmocka_unit_test(test_kept_ends_fit_a_connection),
		cmocka_unit_test(test_devices),
	};
	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
