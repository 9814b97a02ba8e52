/* Life of a member, and events into its core. */
#include "collectives/engine/engine_internal.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/transport/address.h"
#include "common/digest.h"
#include "common/log.h"

#define STATE_SIGNATURE_MAX 96

static void on_tick(uv_timer_t *timer);

/* ---- life ---- */

tr_status member_create(struct engine *engine, const Traind__Peer__StartWorker *start,
    struct channel_host *host, struct member **member, struct tr_error *error)
{
	struct member *made = calloc(1, sizeof(*made));
	struct group_core_options options = { .group = start->group, .peer = start->peer };
	if (made == NULL || member_shm_start(made, &options) != TR_OK ||
	    group_core_create(&options, &made->core) != TR_OK) {
		if (made != NULL)
			member_shm_finish(made);
		free(made);
		return tr_error_set(error, TR_ENOMEM, "no memory for peer %lu",
		    (unsigned long)start->peer);
	}
	made->engine = engine;
	made->job = start->job_id;
	made->group = start->group;
	made->peer = start->peer;
	made->rank = start->rank;
	made->host = host;
	posted_init(&made->posted);
	made->row.host = host;
	made->row.progress.group = start->group;
	made->row.progress.peer = start->peer;
	*member = made;
	return TR_OK;
}

static void member_free(struct member *member)
{
	assert(member->holds == 0);
	notices_finish(member);
	state_receive_free(member);
	leftover_drop(member);
	group_actions_finish(&member->actions);
	member_shm_settle(member);
	group_core_destroy(member->core);
	member_shm_finish(member);
	engine_commons_leave(member, false);
	channel_host_destroy(member->host);
	free(member->view_peers);
	free(member->view_relays);
	posted_finish(&member->posted);
	free(member);
}

void member_unhold(struct member *member)
{
	assert(member->holds > 0);
	if (--member->holds == 0 && member->destroyed)
		member_free(member);
}

static void on_handle_closed(uv_handle_t *handle)
{
	member_unhold(handle->data);
}

void member_start(struct member *member)
{
	(void)uv_timer_init(&member->engine->loop, &member->tick);
	member->tick.data = member;
	member->tick_us = UINT64_MAX;
	member->holds++;
	held_start(member);
	state_work_start(member);
	notices_start(member);
	member_calls_start(member);
}

void member_end(struct member *member, tr_status status, const char *reason)
{
	if (member->over)
		return;
	member->over = true;
	log_info("engine", "peer %lu of group %lu ends: %s", (unsigned long)member->peer,
	    (unsigned long)member->group, reason);
	notices_flush(member);
	group_core_let_go(member->core);
	member_calls_end(member, status, reason);
	state_send_stop_all(member, reason);
	peer_link_leave(member, reason);
	inbound_leave(member);
	inbound_door_look(member->engine);
}

static void unlink_member(struct member *member)
{
	struct engine *engine = member->engine;
	struct member **link = &engine->members;
	while (*link != NULL && *link != member)
		link = &(*link)->next;
	if (*link != NULL)
		*link = member->next;
	pthread_mutex_lock(&engine->lock);
	struct member_row **row = &engine->rows;
	while (*row != NULL && *row != &member->row)
		row = &(*row)->next;
	if (*row != NULL)
		*row = member->row.next;
	pthread_mutex_unlock(&engine->lock);
}

void member_destroy(struct member *member, tr_status status, const char *reason)
{
	if (member->destroyed)
		return;
	member->destroyed = true;
	unlink_member(member);
	if (member->holds == 0) { /* it never started */
		channel_host_end(member->host, status, reason);
		member_free(member);
		return;
	}
	member_end(member, status, reason);
	member_calls_stop(member);
	held_stop(member);
	state_work_stop(member);
	uv_close((uv_handle_t *)&member->tick, on_handle_closed);
	uv_close((uv_handle_t *)&member->records_timer, on_handle_closed);
	uv_close((uv_handle_t *)&member->reports_timer, on_handle_closed);
}

/* ---- events ---- */

static void schedule_tick(struct member *member)
{
	uint64_t deadline_us = group_core_deadline_us(member->core);
	/* Deadlines move away with every step, and few are ever reached: a tick too early costs less than a timer that follows them. */
	if (deadline_us >= member->tick_us)
		return;
	member->tick_us = deadline_us;
	uint64_t now_us = engine_now_us(member->engine);
	uint64_t wait_ms = deadline_us > now_us ? (deadline_us - now_us + 999) / 1000
	                                        : member->ticking;
	uv_update_time(&member->engine->loop);
	(void)uv_timer_start(&member->tick, on_tick, wait_ms, 0);
}

void member_look_due(struct member *member)
{
	if (group_core_due(member->core) && !member->stepping && !member->over)
		schedule_tick(member);
}

void member_publish(struct member *member)
{
	member->unpublished = true;
}

static void publish(struct member *member)
{
	struct group_core_progress core = { 0 };
	member->unpublished = false;
	group_core_progress(member->core, member->call.id != 0, &core);
	struct engine_progress *row = &member->row.progress;
	pthread_mutex_lock(&member->engine->lock);
	row->view = core.view;
	row->round = core.round;
	row->committed = core.committed;
	row->progress = member->host->taken;
	row->ready = member->ready;
	row->gradual = member->host->gradual;
	row->waiting = core.waiting || !member->ready;
	row->waits_for_count = core.waits_for_count;
	memcpy(row->waits_for, core.waits_for, sizeof(row->waits_for));
	pthread_mutex_unlock(&member->engine->lock);
}

void engine_publish(struct engine *engine)
{
	for (struct member *member = engine->members; member != NULL; member = member->next)
		if (member->unpublished && !member->over)
			publish(member);
}

static tr_status step_once(struct member *member, struct group_event *event, struct tr_error *error)
{
	event->now_us = engine_now_us(member->engine);
	tr_status st = group_core_step(member->core, event, &member->actions, error);
	/* Before any answer: with it the caller has its memory back, which peers may still read (channel_worker.c). */
	for (size_t i = 0; i < member->actions.count; i++)
		if (member->actions.items[i].kind == GROUP_DO_FAIL)
			channel_host_end(member->host, member->actions.items[i].status,
			    member->actions.items[i].text);
	for (size_t i = 0; i < member->actions.count; i++)
		member_act(member, &member->actions.items[i]);
	group_actions_clear(&member->actions);
	return st;
}

static void step_posted(struct member *member)
{
	struct posted_event *posted;
	struct tr_error error;
	while (!member->over && (posted = posted_take(&member->posted)) != NULL) {
		(void)step_once(member, &posted->event, &error);
		free(posted);
	}
}

/* `event` NULL: what was posted alone. */
static tr_status step_all(struct member *member, struct group_event *event, struct tr_error *error)
{
	assert(!member->stepping);
	if (member->over)
		return TR_ESTALE;
	member->stepping = true;
	member->engine->steps++;
	tr_status st = event != NULL ? step_once(member, event, error) : TR_OK;
	step_posted(member);
	member->stepping = false;
	if (!member->over) {
		schedule_tick(member);
		member_publish(member);
	}
	return st;
}

tr_status member_step(struct member *member, struct group_event *event, struct tr_error *error)
{
	return step_all(member, event, error);
}

static void step_tick(struct member *member)
{
	struct group_event tick = { .kind = GROUP_TICK };
	(void)member_step(member, &tick, NULL);
}

/* No tick before it: that would do what is due for want of just this. The state that has come would be asked for again, and come into memory that its caller changes by then. */
static void step_what_was_posted(struct member *member)
{
	(void)step_all(member, NULL, NULL);
}

void member_post(struct member *member, enum group_event_kind kind, uint64_t from, uint64_t round,
    tr_status status, const char *reason)
{
	if (member->over)
		return;
	const struct group_event event = { .kind = kind,
		.from = from,
		.round = round,
		.status = status,
		.reason = reason };
	if (!posted_add(&member->posted, &event))
		member_end(member, TR_ENOMEM, "no memory for an event");
	else if (!member->stepping)
		step_what_was_posted(member);
}

bool member_hold_posts(struct member *member)
{
	bool held = !member->stepping;
	member->stepping = true;
	return held;
}

void member_let_posts(struct member *member, bool held)
{
	if (!held)
		return;
	member->stepping = false;
	if (member->posted.first != NULL)
		step_what_was_posted(member);
	member_look_due(member);
}

static void on_tick(uv_timer_t *timer)
{
	struct member *member = timer->data;
	member->tick_us = UINT64_MAX;
	member->ticking = true;
	step_tick(member);
	member->ticking = false;
}

/* ---- views ---- */

const struct view_peer_entry *member_view_peer(const struct member *member, uint64_t peer)
{
	for (size_t i = 0; i < member->view_peer_count; i++)
		if (member->view_peers[i].peer == peer)
			return &member->view_peers[i];
	return NULL;
}

void member_propose(struct member *member, const Traind__Peer__ViewPropose *propose)
{
	struct tr_error error = { 0 };
	struct group_event event = { .kind = GROUP_PROPOSE, .propose = propose };
	for (size_t i = 0; i < propose->n_members; i++) {
		if (propose->members[i] != member->peer)
			continue;
		tr_status st = member_step(member, &event, &error);
		if (st != TR_OK && st != TR_ESTALE)
			log_warn("engine", "peer %lu: proposal of view %lu: %s",
			    (unsigned long)member->peer, (unsigned long)propose->number,
			    error.text);
		return;
	}
}

/* The ways of ours that go through a relay. */
static void note_relays(const struct member *member, const Traind__Peer__View *view,
    struct view_peer_entry *peers, struct conn_relay *relays)
{
	for (size_t i = 0; i < view->n_relayed; i++) {
		const Traind__Peer__Relayed *row = view->relayed[i];
		relays[i] = (struct conn_relay){
			.say = { .kind = RELAY_CALL,
			    .group = row->group,
			    .from = row->from,
			    .to = row->to,
			    .token = { row->token_low, row->token_high } }
		};
		(void)snprintf(relays[i].address, TR_ADDRESS_MAX, "%s",
		    row->address[0] != '\0' ? row->address : member->engine->links.memberd);
		for (size_t k = 0; k < view->n_peers; k++)
			if (row->from == member->peer && row->to == peers[k].peer)
				peers[k].relay = &relays[i];
	}
}

static tr_status note_view(struct member *member, const Traind__Peer__View *view)
{
	struct view_peer_entry *peers = calloc(view->n_peers + 1, sizeof(*peers));
	struct conn_relay *relays = calloc(view->n_relayed + 1, sizeof(*relays));
	if (peers == NULL || relays == NULL) {
		free(peers);
		free(relays);
		return TR_ENOMEM;
	}
	for (size_t i = 0; i < view->n_peers; i++) {
		const Traind__Peer__ViewPeer *from = view->peers[i];
		peers[i].peer = from->peer;
		peers[i].participate_from = from->participate_from;
		peers[i].gradual = from->contribute_from == TR_ROUND_LATER;
		(void)snprintf(peers[i].address, TR_ADDRESS_MAX, "%s",
		    from->address != NULL ? from->address : "");
		(void)snprintf(peers[i].node_name, TR_NAME_MAX, "%s",
		    from->node_name != NULL ? from->node_name : "");
		peers[i].near = from->host[0] != '\0' &&
		    strcmp(from->host, member->engine->host) == 0;
		(void)snprintf(peers[i].local_address, TR_ADDRESS_MAX, "%s",
		    peers[i].near ? from->local_address : "");
		const struct view_peer_entry *known = member_view_peer(member, from->peer);
		if (known != NULL)
			peers[i].ended = known->ended;
	}
	note_relays(member, view, peers, relays);
	free(member->view_peers);
	free(member->view_relays);
	member->view_peers = peers;
	member->view_relays = relays;
	member->view_peer_count = view->n_peers;
	member->view = view->number;
	staging_say_view(&member->staging, view->number);
	member_board_enter(member);
	member->token[0] = view->token_low;
	member->token[1] = view->token_high;
	member->view_latency_s = view->latency_s;
	peer_link_view_changed(member);
	inbound_view_changed(member);
	return TR_OK;
}

static bool view_names(const Traind__Peer__View *view, uint64_t peer)
{
	for (size_t i = 0; i < view->n_peers; i++)
		if (view->peers[i]->peer == peer)
			return true;
	return false;
}

/* What the core refuses changes nothing, and a view is not larger than one can be: of each peer and each way we keep some hundred bytes, and look
 * through all of them. */
static tr_status check_install(const struct member *member,
    const Traind__Peer__ViewInstall *install, struct tr_error *error)
{
	tr_status st = group_core_may_install(member->core, install, error);
	if (st == TR_OK && install->view->n_relayed > TR_RELAYED_PAIRS_MAX)
		st = tr_error_set(error, TR_EPROTO, "bad view: %zu ways through relays",
		    install->view->n_relayed);
	return st;
}

/* Nobody's tensors leave this machine in plain words because memberd says so. */
static tr_status check_reach(const struct member *member, const Traind__Peer__View *view,
    struct tr_error *error)
{
	bool anywhere = member->engine->links.tls != NULL || member->engine->links.insecure;
	tr_status st = TR_OK;
	for (size_t i = 0; st == TR_OK && i < view->n_peers; i++)
		if (view->peers[i]->peer != member->peer && view->peers[i]->address[0] != '\0')
			st = address_check_told(view->peers[i]->address, anywhere, error);
	for (size_t i = 0; st == TR_OK && i < view->n_relayed; i++)
		if (view->relayed[i]->address[0] != '\0')
			st = address_check_told(view->relayed[i]->address, anywhere, error);
	return st;
}

void member_install(struct member *member, const Traind__Peer__ViewInstall *install)
{
	const Traind__Peer__View *view = install->view;
	struct tr_error error = { 0 };
	struct group_event event = { .kind = GROUP_INSTALL, .install = install };
	if (member->over || !view_names(view, member->peer))
		return;
	tr_status st = check_install(member, install, &error);
	if (st == TR_OK && check_reach(member, view, &error) == TR_EREFUSED) {
		member_end(member, TR_EREFUSED, error.text);
		return;
	}
	/* The addresses first: the step's actions send to them. */
	if (st == TR_OK && note_view(member, view) != TR_OK) {
		member_end(member, TR_ENOMEM, "no memory for a view");
		return;
	}
	if (st == TR_OK)
		st = member_step(member, &event, &error);
	if (st != TR_OK) {
		if (st != TR_ESTALE)
			log_warn("engine", "peer %lu: view %lu: %s", (unsigned long)member->peer,
			    (unsigned long)view->number, error.text);
		return;
	}
	member_shm_settle(member);
	state_send_view_changed(member);
	Traind__Peer__ViewInstalled installed = TRAIND__PEER__VIEW_INSTALLED__INIT;
	Traind__Peer__ToMember message = TRAIND__PEER__TO_MEMBER__INIT;
	installed.group = member->group;
	installed.peer = member->peer;
	installed.view = view->number;
	message.body_case = TRAIND__PEER__TO_MEMBER__BODY_VIEW_INSTALLED;
	message.view_installed = &installed;
	engine_tell(member->engine, &message);
}

/* Names and sizes of the state, in order: peers with other ones cannot feed each other. */
static void state_signature(const struct member *member, char text[STATE_SIGNATURE_MAX])
{
	struct tr_digest digest = { 0 };
	char hex[TR_DIGEST_HEX_MAX];
	uint64_t bytes = 0;
	for (unsigned i = 0; i < member->host->tensor_count; i++) {
		const struct channel_tensor *tensor = &member->host->tensors[i];
		digest = tr_digest_fold(digest, tr_digest_of(tensor->name, strlen(tensor->name)));
		digest = tr_digest_fold(digest, (struct tr_digest){ tensor->bytes, 0 });
		bytes += tensor->bytes;
	}
	(void)snprintf(text, STATE_SIGNATURE_MAX, "%u tensors, %lu bytes, %s",
	    member->host->tensor_count, (unsigned long)bytes, tr_digest_hex(digest, hex));
}

void member_tell_ready(struct member *member)
{
	char signature[STATE_SIGNATURE_MAX];
	Traind__Peer__PeerReady ready = TRAIND__PEER__PEER_READY__INIT;
	Traind__Peer__ToMember message = TRAIND__PEER__TO_MEMBER__INIT;
	state_signature(member, signature);
	ready.group = member->group;
	ready.peer = member->peer;
	ready.round = member->ready_round;
	ready.state_signature = signature;
	ready.gradual = member->host->gradual;
	ready.left = leftover_round(member, &ready.left_round);
	message.body_case = TRAIND__PEER__TO_MEMBER__BODY_PEER_READY;
	message.peer_ready = &ready;
	engine_tell(member->engine, &message);
}

void member_failed(struct member *member, tr_status status, const char *reason)
{
	(void)tr_error_set(&member->failure, status, "%s", reason);
	member_tell_failure(member);
}

void member_refused(struct member *member, tr_status status, uint64_t round, const char *reason)
{
	member->refused_round = round;
	member_failed(member, status, reason);
}

void member_tell_failure(struct member *member)
{
	Traind__Peer__PeerFailed failed = TRAIND__PEER__PEER_FAILED__INIT;
	Traind__Peer__ToMember message = TRAIND__PEER__TO_MEMBER__INIT;
	if (member->failure.status == TR_OK)
		return;
	failed.group = member->group;
	failed.peer = member->peer;
	failed.status = member->failure.status;
	failed.reason = member->failure.text;
	failed.refused_round = member->refused_round;
	message.body_case = TRAIND__PEER__TO_MEMBER__BODY_PEER_FAILED;
	message.peer_failed = &failed;
	engine_tell(member->engine, &message);
}
