/* Engines over real TCP in one process, and a double of memberd that installs views by hand. Each host has its engine and
 * a thread with its listening port; a peer's caller is whoever holds host->group.
 *
 * All of it is static: a test program includes this once.
 */
#ifndef TR_TESTS_ENGINE_FIXTURE_H
#define TR_TESTS_ENGINE_FIXTURE_H

#include "daemon/membership/core/resume.h"
#include "tests/unit/engine_fixture_hosts.h"

/* ---- the double speaks */

static void *fx_zeroed(size_t count, size_t bytes)
{
	void *memory = calloc(count + 1, bytes);
	assert_non_null(memory);
	return memory;
}

static Traind__Peer__View *fx_view(const struct fx *fx, const bool *members, uint64_t base_round)
{
	Traind__Peer__View *view = fx_zeroed(1, sizeof(*view));
	traind__peer__view__init(view);
	view->group = fx->group;
	view->number = fx->view;
	view->token_low = FX_TOKEN_LOW;
	view->token_high = FX_TOKEN_HIGH;
	view->policy = fx->policy;
	view->algorithm = fx->algorithm;
	view->hub = fx->hub;
	view->latency_s = 50e-6;
	view->bandwidth_bytes_per_s = 1e9;
	view->peers = fx_zeroed(fx->count, sizeof(*view->peers));
	view->ring = fx_zeroed(fx->count, sizeof(*view->ring));
	for (unsigned i = 0; i < fx->count; i++) {
		if (!members[i])
			continue;
		Traind__Peer__ViewPeer *peer = fx_zeroed(1, sizeof(*peer));
		traind__peer__view_peer__init(peer);
		peer->peer = FX_PEER(i);
		peer->address = strdup(fx->hosts[i].address);
		peer->node_name = strdup("host");
		if (fx->near) {
			peer->host = strdup(engine_host(fx->hosts[i].engine));
			peer->local_address = strdup(fx->hosts[i].local_address != NULL
			        ? fx->hosts[i].local_address
			        : engine_local_address(fx->hosts[i].engine));
		}
		bool joins = fx->last != NULL;
		for (size_t k = 0; fx->last != NULL && k < fx->last->view->n_peers; k++) {
			const Traind__Peer__ViewPeer *before = fx->last->view->peers[k];
			if (before->peer != peer->peer)
				continue;
			peer->participate_from = before->participate_from;
			peer->contribute_from = before->contribute_from;
			peer->donor = before->donor;
			if (before->donor != 0 && !members[before->donor - FX_PEER(0)])
				peer->donor = view->peers[0]->peer;
			bool whole = fx->hosts[i].report != NULL &&
			    !fx->hosts[i].report->without_state;
			if (before->contribute_from == TR_ROUND_LATER && whole) {
				peer->contribute_from = base_round + 1;
				peer->donor = 0;
			}
			joins = false;
		}
		if (joins) {
			bool left = fx->hosts[i].left_next == base_round;
			peer->participate_from = left ? base_round : base_round + 1;
			peer->contribute_from = fx->hosts[i].gradual ? TR_ROUND_LATER
			                                             : peer->participate_from + 1;
			peer->donor = fx->last->view->peers[0]->peer;
		} else if (fx->last == NULL) {
			peer->participate_from = peer->contribute_from = 1;
		}
		view->ring[view->n_ring] = fx->ring != NULL && fx->last == NULL
		    ? fx->ring[view->n_ring]
		    : (uint32_t)view->n_ring;
		view->n_ring++;
		view->peers[view->n_peers++] = peer;
	}
	return view;
}

static void fx_add_holder(Traind__Peer__Resume *resume, uint64_t peer,
    const Traind__Peer__OpReport *op)
{
	Traind__Peer__OpHolders *holders = NULL;
	for (size_t i = 0; i < resume->n_ops; i++)
		if (resume_same_op(op, resume->ops[i]->tag, &resume->ops[i]->scope))
			holders = resume->ops[i];
	if (holders == NULL) {
		holders = fx_zeroed(1, sizeof(*holders));
		traind__peer__op_holders__init(holders);
		holders->tag = op->tag;
		holders->segments = op->segments;
		if (op->scope.len > 0) {
			holders->scope.len = op->scope.len;
			holders->scope.data = fx_zeroed(op->scope.len, 1);
			memcpy(holders->scope.data, op->scope.data, op->scope.len);
		}
		holders->holders = fx_zeroed(FX_HOSTS_MAX, sizeof(*holders->holders));
		resume->ops[resume->n_ops++] = holders;
	}
	Traind__Peer__Holder *holder = fx_zeroed(1, sizeof(*holder));
	traind__peer__holder__init(holder);
	holder->peer = peer;
	holder->sealed.len = op->sealed.len;
	holder->sealed.data = fx_zeroed(op->sealed.len, 1);
	memcpy(holder->sealed.data, op->sealed.data, op->sealed.len);
	holders->holders[holders->n_holders++] = holder;
}

/* As memberd decides it; ops are named in ascending tags, as a report has them. */
static Traind__Peer__Resume *fx_resume(const struct fx *fx, const bool *members)
{
	const Traind__Peer__ViewReport *reports[FX_HOSTS_MAX];
	uint64_t ids[FX_HOSTS_MAX];
	struct resume_input input = { .old = fx->last,
		.policy = fx->policy,
		.number = fx->view,
		.reports = reports,
		.members = ids };
	struct resume_decision decision = { 0 };
	for (unsigned i = 0; i < fx->count; i++) {
		if (!members[i])
			continue;
		reports[input.count] = fx->hosts[i].report != NULL && fx->hosts[i].report->view > 0
		    ? fx->hosts[i].report
		    : NULL;
		ids[input.count++] = FX_PEER(i);
	}
	resume_decide(&input, &decision);
	Traind__Peer__Resume *resume = fx_zeroed(1, sizeof(*resume));
	traind__peer__resume__init(resume);
	resume->base_round = decision.base_round;
	resume->finish = decision.finish;
	resume->abandoned = decision.abandoned;
	resume->restart = decision.restart;
	resume->base_attempt = decision.base_attempt;
	resume->n_contributors = decision.contributors_count;
	resume->contributors = fx_zeroed(decision.contributors_count, sizeof(uint64_t));
	memcpy(resume->contributors, decision.contributors,
	    decision.contributors_count * sizeof(uint64_t));
	resume->ops = fx_zeroed(TR_ROUND_OPS_MAX, sizeof(*resume->ops));
	for (size_t i = 0; decision.finish && i < input.count; i++)
		for (size_t k = 0; reports[i] != NULL &&
		     reports[i]->begun_round == decision.base_round && k < reports[i]->n_ops;
		     k++)
			fx_add_holder(resume, ids[i], reports[i]->ops[k]);
	return resume;
}

/* Each engine once, however many of them it has. */
static void fx_tell(struct fx *fx, const bool *members, const Traind__Peer__ToNode *message)
{
	for (unsigned i = 0; i < fx->count; i++) {
		bool told = !members[i];
		for (unsigned k = 0; k < i; k++)
			told = told || (members[k] && fx->hosts[k].engine == fx->hosts[i].engine);
		if (!told)
			engine_to_node(fx->hosts[i].engine, message);
	}
}

/* Tells `told` of a view of `members`. */
static void fx_install(struct fx *fx, const bool *members, const bool *told)
{
	Traind__Peer__ToNode message = TRAIND__PEER__TO_NODE__INIT;
	Traind__Peer__ViewInstall *install = fx_zeroed(1, sizeof(*install));
	traind__peer__view_install__init(install);
	install->resume = fx_resume(fx, members);
	install->view = fx_view(fx, members, install->resume->base_round);
	message.body_case = TRAIND__PEER__TO_NODE__BODY_VIEW_INSTALL;
	message.view_install = install;
	if (fx->last != NULL)
		traind__peer__view_install__free_unpacked(fx->last, NULL);
	fx->last = install;
	fx_tell(fx, told, &message);
}

/* Proposes, hears all reports, installs. Joiners are members that report view 0. */
static void fx_change_view(struct fx *fx, const bool *members)
{
	Traind__Peer__ToNode message = TRAIND__PEER__TO_NODE__INIT;
	Traind__Peer__ViewPropose propose = TRAIND__PEER__VIEW_PROPOSE__INIT;
	uint64_t ids[FX_HOSTS_MAX];
	fx->view++;
	propose.group = fx->group;
	propose.number = fx->view;
	propose.members = ids;
	for (unsigned i = 0; i < fx->count; i++)
		if (members[i])
			ids[propose.n_members++] = FX_PEER(i);
	message.body_case = TRAIND__PEER__TO_NODE__BODY_VIEW_PROPOSE;
	message.view_propose = &propose;
	fx_tell(fx, members, &message);
	for (unsigned i = 0; i < fx->count; i++)
		if (members[i])
			FX_WAIT(fx,
			    fx->hosts[i].report != NULL &&
			        fx->hosts[i].report->proposal == fx->view);
	fx_install(fx, members, members);
}

/* The first view, once everybody is ready. */
static inline void fx_found(struct fx *fx, unsigned members)
{
	bool all[FX_HOSTS_MAX] = { 0 };
	for (unsigned i = 0; i < members; i++) {
		FX_WAIT(fx, fx->hosts[i].ready);
		all[i] = true;
	}
	fx_change_view(fx, all);
}

/* ---- beginnings */

static inline void fx_ready(struct fx_host *host)
{
	fx_attach(host);
	assert_int_equal(tr_state_ready(host->group, 0, NULL), TR_OK);
}

/* So many hosts whose group has begun its first round, with so much memory each. */
static inline struct fx *fx_begin(unsigned members, size_t bytes, void **memory)
{
	struct fx *fx = fx_start(members, TRAIND__PEER__POLICY__POLICY_REPLAY,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	struct tr_round round;
	for (unsigned i = 0; i < members; i++) {
		fx_ready(&fx->hosts[i]);
		memory[i] = tr_alloc(fx->hosts[i].group, bytes);
		assert_non_null(memory[i]);
	}
	fx_found(fx, members);
	for (unsigned i = 0; i < members; i++)
		assert_int_equal(tr_round_begin(fx->hosts[i].group, &round, NULL), TR_OK);
	return fx;
}

/* The first host is told of a view of `members` hosts, of whom the others are played by the test. */
static inline void fx_found_alone(struct fx *fx, unsigned members)
{
	bool all[FX_HOSTS_MAX] = { 0 }, first[FX_HOSTS_MAX] = { true };
	for (unsigned i = 0; i < members; i++)
		all[i] = true;
	fx_ready(&fx->hosts[0]);
	FX_WAIT(fx, fx->hosts[0].ready);
	fx->view = 1;
	fx_install(fx, all, first);
	FX_WAIT(fx, fx->hosts[0].installed == 1);
}

/* A port at which the test is found in the host's place; to be asked for before that is in a view. */
static inline int fx_hand_port(struct fx_host *host, int backlog)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t bytes = sizeof(address);
	int port = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(bind(port, (struct sockaddr *)&address, bytes), 0);
	assert_int_equal(listen(port, backlog), 0);
	assert_int_equal(getsockname(port, (struct sockaddr *)&address, &bytes), 0);
	(void)snprintf(host->address, sizeof(host->address), "127.0.0.1:%d",
	    ntohs(address.sin_port));
	return port;
}

#endif
