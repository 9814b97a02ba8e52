/* Both ends of a channel in one process, as setup and teardown of a test. All of it is static: a test program includes this once. */
#ifndef TR_TESTS_CHANNEL_ENDS_H
#define TR_TESTS_CHANNEL_ENDS_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <unistd.h>

#include "collectives/engine/channel_host.h"
#include "collectives/engine/channel_worker.h"

struct ends {
	struct channel_host *host;
	struct channel_worker *worker;
	int raw; /* the worker's socket, where a test writes to it by hand */
};

static int ends_start(void **state)
{
	struct ends *ends = calloc(1, sizeof(*ends));
	Traind__Peer__StartWorker start = TRAIND__PEER__START_WORKER__INIT;
	Traind__V1__JobSpec spec = TRAIND__V1__JOB_SPEC__INIT;
	char name[] = "a job";
	int pair[2];
	assert_non_null(ends);
	const struct channel_seat no_seat = { -1, COMMONS_NO_SEAT };
	spec.name = name;
	start.job_id = 5;
	start.group = 6;
	start.peer = 7;
	start.rank = 2;
	start.world_size = 3;
	start.restarts = 1;
	start.spec = &spec;
	assert_int_equal(channel_pair(pair, NULL), TR_OK);
	ends->raw = dup(pair[1]);
	assert_int_equal(channel_host_create(&start, 4, pair[0], &no_seat, &ends->host, NULL),
	    TR_OK);
	assert_int_equal(channel_worker_open(pair[1], &ends->worker, NULL), TR_OK);
	*state = ends;
	return 0;
}

static int ends_stop(void **state)
{
	struct ends *ends = *state;
	channel_worker_close(ends->worker);
	channel_host_destroy(ends->host);
	(void)close(ends->raw);
	free(ends);
	return 0;
}

#define WITH_ENDS(test) cmocka_unit_test_setup_teardown(test, ends_start, ends_stop)

#endif
