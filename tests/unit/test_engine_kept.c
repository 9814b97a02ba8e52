/* Of a link's only connection nobody is told what came, so nothing of what goes over it may be kept: a firewall that lets one connection through
 * made rounds wait for ever, once as much was kept as a link may keep (TR_LINK_KEPT_BYTES_MAX), since the second one had been dialled.
 */
#include "tests/unit/engine_fixture.h"
#include "tests/unit/frame_proxy.h"

#define PEERS 3
#define COUNT \
	(24u << 20) /* 96 MiB, two thirds of which go from the first host to the second as sums */

/* A port that takes one connection, and refuses all others. */
struct narrow {
	int port, in, out, stop[2];
	struct sockaddr_in target;
	char address[TR_ADDRESS_MAX];
	pthread_t thread;
};

static bool pass(int from, int to)
{
	static _Thread_local uint8_t bytes[256 << 10];
	ssize_t n = recv(from, bytes, sizeof(bytes), 0);
	for (ssize_t done = 0; done < n;) {
		ssize_t sent = send(to, bytes + done, (size_t)(n - done), MSG_NOSIGNAL);
		if (sent <= 0)
			return false;
		done += sent;
	}
	return n > 0;
}

static void *narrow_run(void *arg)
{
	struct narrow *narrow = arg;
	narrow->in = accept(narrow->port, NULL, NULL);
	(void)close(narrow->port);
	narrow->out = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(connect(narrow->out, (struct sockaddr *)&narrow->target,
	                     sizeof(narrow->target)),
	    0);
	for (;;) {
		struct pollfd fds[3] = { { narrow->in, POLLIN, 0 }, { narrow->out, POLLIN, 0 },
			{ narrow->stop[0], POLLIN, 0 } };
		(void)poll(fds, 3, -1);
		if (fds[2].revents != 0 ||
		    (fds[0].revents != 0 && !pass(narrow->in, narrow->out)) ||
		    (fds[1].revents != 0 && !pass(narrow->out, narrow->in)))
			break;
	}
	(void)close(narrow->in);
	(void)close(narrow->out);
	return NULL;
}

static void narrow_start(struct narrow *narrow, const char *target)
{
	struct sockaddr_in address = fp_address("127.0.0.1:0");
	socklen_t bytes = sizeof(address);
	narrow->target = fp_address(target);
	narrow->port = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(bind(narrow->port, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(narrow->port, 1), 0);
	assert_int_equal(getsockname(narrow->port, (struct sockaddr *)&address, &bytes), 0);
	(void)snprintf(narrow->address, sizeof(narrow->address), "127.0.0.1:%d",
	    ntohs(address.sin_port));
	assert_int_equal(pipe(narrow->stop), 0);
	assert_int_equal(pthread_create(&narrow->thread, NULL, narrow_run, narrow), 0);
}

static void narrow_stop(struct narrow *narrow)
{
	assert_int_equal(write(narrow->stop[1], "", 1), 1);
	assert_int_equal(pthread_join(narrow->thread, NULL), 0);
	(void)close(narrow->stop[0]);
	(void)close(narrow->stop[1]);
}

struct caller {
	struct fx_host *host;
	pthread_t thread;
	float *data;
	bool done; /* under fx->lock */
	tr_status status;
	struct tr_error error;
};

static void *caller_run(void *arg)
{
	struct caller *caller = arg;
	struct fx *fx = caller->host->fx;
	tr_group *group = caller->host->group;
	struct tr_commit commit = { .samples = 1 };
	struct tr_round round;
	caller->status = tr_round_begin(group, &round, &caller->error);
	for (size_t e = 0; e < COUNT; e++)
		caller->data[e] = 1;
	if (caller->status == TR_OK)
		caller->status = tr_allreduce(group, 0, caller->data, COUNT, TR_F32, TR_SUM,
		    TR_CONTRIBUTE, &caller->error);
	if (caller->status == TR_OK)
		caller->status = tr_round_commit(group, &commit, &round, &caller->error);
	pthread_mutex_lock(&fx->lock);
	caller->done = true;
	pthread_cond_broadcast(&fx->changed);
	pthread_mutex_unlock(&fx->lock);
	return NULL;
}

/* The first host wants two connections to each; it gets to the second one through `narrow`. */
static void found(struct fx *fx, struct caller *callers, const struct narrow *narrow)
{
	bool all[FX_HOSTS_MAX] = { true, true, true }, others[FX_HOSTS_MAX] = { false, true, true },
	     first[FX_HOSTS_MAX] = { true };
	Traind__Peer__ToNode message = TRAIND__PEER__TO_NODE__INIT;
	for (unsigned i = 0; i < PEERS; i++) {
		const struct engine_links links = { .transport = TR_TRANSPORT_TCP,
			.sockets = i == 0 ? 2 : 1 };
		callers[i] = (struct caller){ .host = &fx->hosts[i] };
		assert_int_equal(engine_set_links(fx->hosts[i].engine, &links, NULL), TR_OK);
		fx_attach(&fx->hosts[i]);
		callers[i].data = tr_alloc(fx->hosts[i].group, COUNT * sizeof(float));
		assert_non_null(callers[i].data);
		assert_int_equal(tr_state_ready(fx->hosts[i].group, 0, NULL), TR_OK);
		FX_WAIT(fx, fx->hosts[i].ready);
	}
	fx->view = 1;
	fx_install(fx, all, others);
	free(fx->last->view->peers[1]->address);
	fx->last->view->peers[1]->address = strdup(narrow->address);
	message.body_case = TRAIND__PEER__TO_NODE__BODY_VIEW_INSTALL;
	message.view_install = fx->last;
	fx_tell(fx, first, &message);
}

static void nothing_is_kept_of_an_only_connection(void **state)
{
	struct fx *fx = fx_start(PEERS, TRAIND__PEER__POLICY__POLICY_REPLAY,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	struct caller callers[PEERS];
	struct narrow narrow = { 0 };
	(void)state;
	narrow_start(&narrow, fx->hosts[1].address);
	found(fx, callers, &narrow);
	for (unsigned i = 0; i < PEERS; i++)
		assert_int_equal(pthread_create(&callers[i].thread, NULL, caller_run, &callers[i]),
		    0);
	for (unsigned i = 0; i < PEERS; i++)
		FX_WAIT(fx, callers[i].done);
	for (unsigned i = 0; i < PEERS; i++) {
		assert_int_equal(pthread_join(callers[i].thread, NULL), 0);
		assert_int_equal(callers[i].status, TR_OK);
		assert_true(callers[i].data[0] == PEERS && callers[i].data[COUNT - 1] == PEERS);
	}
	fx_stop(fx);
	narrow_stop(&narrow);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_is_kept_of_an_only_connection),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
