/* When a peer counts as one that cannot be reached. */
#include "tests/unit/engine_fixture.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "collectives/engine/engine_internal.h"
#include "collectives/engine/peer_link.h"

#define INTERVAL_MS 50
#define TIMEOUT_MS  300

/* Nobody accepts there: what is dialled is open as far as `backlog` goes, and beyond has no answer. Port 0: any. */
static int listen_at(uint16_t *port, int backlog)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
		.sin_port = htons(*port) };
	socklen_t length = sizeof(at);
	int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(fd >= 0);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)), 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(fd, backlog), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &length), 0);
	*port = ntohs(at.sin_port);
	return fd;
}

/* Connections of the first host's link with at least that number that are open, or are not. */
static unsigned lanes(const struct fx *fx, bool up, uint32_t number)
{
	struct engine *engine = fx->hosts[0].engine;
	unsigned count = 0;
	pthread_mutex_lock(&engine->turn);
	const struct member *member = engine_find(engine, FX_GROUP, FX_PEER(0));
	for (const struct peer_link *link = member->links; link != NULL; link = link->next)
		for (const struct peer_lane *pl = link->lanes; pl != NULL; pl = pl->next)
			count += pl->up == up && pl->number >= number;
	pthread_mutex_unlock(&engine->turn);
	return count;
}

static void await_lanes(struct fx *fx, bool up, uint32_t number)
{
	for (unsigned tries = 0; lanes(fx, up, number) == 0; tries++) {
		FX_IS(fx, fx->hosts[0].link_lost == 0);
		assert_true(tries < 1000 * FX_DEADLINE_S);
		(void)usleep(1000);
	}
}

static void welcome(struct fx *fx, const bool *all)
{
	Traind__Peer__ToNode message = TRAIND__PEER__TO_NODE__INIT;
	Traind__Peer__Welcome body = TRAIND__PEER__WELCOME__INIT;
	body.heartbeat_interval_ms = INTERVAL_MS;
	body.heartbeat_timeout_ms = TIMEOUT_MS;
	message.body_case = TRAIND__PEER__TO_NODE__BODY_WELCOME;
	message.welcome = &body;
	fx_tell(fx, all, &message);
}

/* The second is dialled there. */
static void found_at(struct fx *fx, const struct engine_links *links, const char *address)
{
	const bool all[FX_HOSTS_MAX] = { true, true };
	(void)snprintf(fx->hosts[1].address, sizeof(fx->hosts[1].address), "%s", address);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(engine_set_links(fx->hosts[i].engine, links, NULL), TR_OK);
		fx_ready(&fx->hosts[i]);
	}
	welcome(fx, all);
	fx_found(fx, 2);
}

static void found_pair(struct fx *fx, const struct engine_links *links, uint16_t port)
{
	char address[TR_ADDRESS_MAX];
	(void)snprintf(address, sizeof(address), "127.0.0.1:%u", port);
	found_at(fx, links, address);
}

/* The one connection there is breaks while another one is being dialled, which gets no answer: the peer has its time from then on. */
static void a_second_connection_that_fails_is_a_first_try(void **state)
{
	const struct engine_links links = { .transport = TR_TRANSPORT_TCP, .sockets = 2 };
	uint16_t port = 0;
	(void)state;
	struct fx *fx = fx_start(2, TRAIND__PEER__POLICY__POLICY_KEEP,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	int trap = listen_at(&port, 0);
	found_pair(fx, &links, port);
	await_lanes(fx, true, 0);
	await_lanes(fx, false, 1);
	(void)usleep(50000); /* its address is resolved meanwhile, and it is dialled */
	(void)close(trap);
	trap = listen_at(&port, 16);
	await_lanes(fx, true, 2);
	fx_stop(fx);
	(void)close(trap);
}

static void propose(struct fx *fx, const bool *all)
{
	Traind__Peer__ToNode message = TRAIND__PEER__TO_NODE__INIT;
	Traind__Peer__ViewPropose body = TRAIND__PEER__VIEW_PROPOSE__INIT;
	uint64_t ids[] = { FX_PEER(0), FX_PEER(1) };
	body.group = FX_GROUP;
	body.number = ++fx->view;
	body.members = ids;
	body.n_members = 2;
	message.body_case = TRAIND__PEER__TO_NODE__BODY_VIEW_PROPOSE;
	message.view_propose = &body;
	fx_tell(fx, all, &message);
	for (unsigned i = 0; i < 2; i++)
		FX_WAIT(fx,
		    fx->hosts[i].report != NULL && fx->hosts[i].report->proposal == fx->view);
}

/* The next view, in which the first host gets to the second one over a relay. */
static void change_to_relay(struct fx *fx, const bool *all, uint16_t port)
{
	const bool nobody[FX_HOSTS_MAX] = { false };
	Traind__Peer__ToNode message = TRAIND__PEER__TO_NODE__INIT;
	Traind__Peer__Relayed *row = fx_zeroed(1, sizeof(*row));
	char address[TR_ADDRESS_MAX];
	(void)snprintf(address, sizeof(address), "127.0.0.1:%u", port);
	propose(fx, all);
	fx_install(fx, all, nobody);
	traind__peer__relayed__init(row);
	row->group = FX_GROUP;
	row->from = FX_PEER(0);
	row->to = FX_PEER(1);
	row->node = 7;
	row->token_low = 8;
	row->address = strdup(address);
	fx->last->view->relayed = fx_zeroed(1, sizeof(row));
	fx->last->view->relayed[0] = row;
	fx->last->view->n_relayed = 1;
	message.body_case = TRAIND__PEER__TO_NODE__BODY_VIEW_INSTALL;
	message.view_install = fx->last;
	fx_tell(fx, all, &message);
}

/* A view names a relay while the direct way is still being tried: what that comes to says nothing of the relay. */
static void a_new_way_has_its_own_time(void **state)
{
	const struct engine_links links = { .transport = TR_TRANSPORT_TCP, .sockets = 1 };
	const bool all[FX_HOSTS_MAX] = { true, true };
	uint16_t port = 0, relay_port = 0;
	(void)state;
	struct fx *fx = fx_start(2, TRAIND__PEER__POLICY__POLICY_KEEP,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	int trap = listen_at(&port, 0), relay = listen_at(&relay_port, 16);
	struct sockaddr_in at = { .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
		.sin_port = htons(port) };
	int first = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(first, (struct sockaddr *)&at, sizeof(at)), 0);
	found_pair(fx, &links, port);
	await_lanes(fx, false, 0);
	change_to_relay(fx, all, relay_port);
	FX_WAIT(fx, fx->hosts[0].link_lost > 0);
	fx_lock(fx);
	if (strstr(fx->hosts[0].link_lost_reason, "through the relay") == NULL)
		fail_msg("%s", fx->hosts[0].link_lost_reason);
	pthread_mutex_unlock(&fx->lock);
	fx_stop(fx);
	(void)close(first);
	(void)close(trap);
	(void)close(relay);
}

/* Memberd may say where peers are, but not that tensors leave this machine without TLS. */
static void nobody_beyond_loopback_is_dialled_without_the_users_word(void **state)
{
	struct engine_links links = { .transport = TR_TRANSPORT_TCP, .sockets = 1 };
	struct tr_error error = { 0 };
	struct tr_round round;
	(void)state;
	struct fx *fx = fx_start(2, TRAIND__PEER__POLICY__POLICY_KEEP,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	found_at(fx, &links, "192.0.2.1:7070"); /* RFC 5737 */
	assert_int_equal(tr_round_begin(fx->hosts[0].group, &round, &error), TR_EREFUSED);
	assert_non_null(strstr(error.text, "address 192.0.2.1:7070 is not a loopback address"));
	assert_int_equal(tr_round_begin(fx->hosts[1].group, &round, &error), TR_OK);
	fx_stop(fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_second_connection_that_fails_is_a_first_try),
		cmocka_unit_test(a_new_way_has_its_own_time),
		cmocka_unit_test(nobody_beyond_loopback_is_dialled_without_the_users_word),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
