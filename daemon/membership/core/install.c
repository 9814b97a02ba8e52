#include "daemon/membership/core/install.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/membership/core/resume.h"
#include "daemon/membership/core/topology.h"
#include "daemon/plan/job_mesh.h"

#define MEMBERS_MAX    TR_GROUP_PEERS_MAX
#define VIEW_BYTES_MAX (TR_FRAME_CONTROL_MAX - (64u << 10)) /* of a view in the log */

/* One member of the view to be. */
struct entrant {
	struct peer *peer;
	const Traind__Peer__ViewReport *report;
	const Traind__Peer__ViewPeer *before; /* its row in the old view; NULL: it enters */
	bool holds; /* the state after base_round - 1, so that it can give it */
	Traind__Peer__ViewPeer row;
};

struct builder {
	struct membership *m;
	struct group *group;
	struct entrant entrants[MEMBERS_MAX];
	size_t count;
	struct resume_decision decision;
	Traind__Peer__Policy policy;
	Traind__Peer__Algorithm algorithm;
	bool deterministic;
	uint32_t segment_bytes; /* that were asked for; 0: none */
};

/* Unknown words were refused with the job. */
static Traind__Peer__Algorithm algorithm_of(const char *word)
{
	static const struct {
		const char *word;
		Traind__Peer__Algorithm algorithm;
	} words[] = {
		{ "ring", TRAIND__PEER__ALGORITHM__ALGORITHM_RING },
		{ "star", TRAIND__PEER__ALGORITHM__ALGORITHM_STAR },
		{ "direct", TRAIND__PEER__ALGORITHM__ALGORITHM_DIRECT },
		{ "hierarchical", TRAIND__PEER__ALGORITHM__ALGORITHM_HIERARCHICAL },
		{ "one-shot", TRAIND__PEER__ALGORITHM__ALGORITHM_ONE_SHOT },
	};
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strcmp(word, words[i].word) == 0)
			return words[i].algorithm;
	return TRAIND__PEER__ALGORITHM__ALGORITHM_AUTO;
}

static void options_of(struct builder *b)
{
	const struct job *job = b->group->job != 0 ? state_job(b->m, b->group->job) : NULL;
	b->policy = TRAIND__PEER__POLICY__POLICY_REPLAY;
	if (job == NULL) {
		const Traind__Peer__JoinGroup *founder = b->group->founder;
		b->policy = founder->policy;
		b->algorithm = founder->algorithm;
		b->deterministic = founder->deterministic;
		b->segment_bytes = founder->segment_bytes;
		return;
	}
	const Traind__V1__Sync *sync = job->spec->train != NULL ? job->spec->train->sync : NULL;
	if (sync == NULL)
		return;
	/* One set of peers for what is averaged and for its weights. Whose workers have ranks begin a round again with a table of those who are left. */
	if (strcmp(sync->mode, "ddp") != 0 && !job_mesh_is_sharded(job->spec))
		b->policy = TRAIND__PEER__POLICY__POLICY_UNIFORM;
	else if (strcmp(sync->on_loss, "drop") == 0)
		b->policy = TRAIND__PEER__POLICY__POLICY_KEEP;
	b->algorithm = algorithm_of(sync->algorithm);
	b->deterministic = sync->deterministic;
}

static void entrants_of(struct builder *b)
{
	const struct proposal *proposal = &b->group->soft.proposal;
	for (size_t i = 0; i < proposal->count; i++) {
		struct entrant *e = &b->entrants[b->count++];
		e->peer = state_group_peer(b->m, b->group, proposal->members[i].peer);
		e->report = proposal->members[i].report;
		e->before = state_view_peer(b->group, proposal->members[i].peer);
	}
}

/* No view before: the newest state that founders brought along is where rounds start. */
static void decide_founding(struct builder *b)
{
	uint64_t newest = 0;
	for (size_t i = 0; i < b->count; i++)
		if (b->entrants[i].peer->soft.ready_round > newest)
			newest = b->entrants[i].peer->soft.ready_round;
	b->decision.base_round = newest + 1;
	b->decision.base_attempt = b->group->soft.proposal.number;
	b->decision.reason = "founded";
}

static void decide(struct builder *b)
{
	const Traind__Peer__ViewReport *reports[MEMBERS_MAX];
	uint64_t members[MEMBERS_MAX];
	for (size_t i = 0; i < b->count; i++) {
		reports[i] = b->entrants[i].before != NULL ? b->entrants[i].report : NULL;
		members[i] = b->entrants[i].peer->id;
	}
	struct resume_input input = {
		.old = b->group->view,
		.policy = b->policy,
		.number = b->group->soft.proposal.number,
		.recorded = ledger_newest(state_ledger(b->m, b->group)),
		.reports = reports,
		.members = members,
		.count = b->count,
	};
	/* Rounds of the time before this group went on from a checkpoint do not bind it. */
	if (input.recorded + 1 < b->group->view->resume->base_round)
		input.recorded = b->group->view->resume->base_round - 1;
	resume_decide(&input, &b->decision);
}

/* One that came as a joiner: does it have the state that its next round starts from? A vote for the
 * round before the base counts: it commits that round when it installs the view. */
static bool has_its_state(const struct entrant *e, uint64_t base_round)
{
	uint64_t from = e->before->participate_from, next = from > base_round ? from : base_round;
	if (e->report->without_state)
		return false;
	return e->report->committed_round + 1 >= next ||
	    (e->report->voted && e->report->begun_round + 1 >= next);
}

/* Who can give the state after base_round - 1. A member of the old view that has not got its own
 * state yet cannot. */
static void find_holders(struct builder *b)
{
	for (size_t i = 0; i < b->count; i++) {
		struct entrant *e = &b->entrants[i];
		if (b->group->view == NULL)
			e->holds = e->peer->soft.ready_round + 1 == b->decision.base_round;
		else
			e->holds = e->before != NULL &&
			    (e->before->donor == 0 || has_its_state(e, b->decision.base_round));
	}
}

/* What a member has committed at least: to be in the old view meant to have what came before it. */
static uint64_t committed_of(const struct builder *b, const struct entrant *e)
{
	uint64_t base = b->group->view->resume->base_round, from = e->before->participate_from;
	uint64_t least = (from > base ? from : base) - 1;
	return e->report->committed_round > least ? e->report->committed_round : least;
}

/* A member whose next round can only be one that the others have decided already is lost for the
 * group. */
static bool left_behind(struct builder *b)
{
	bool any = false;
	for (size_t i = 0; b->group->view != NULL && i < b->count; i++) {
		const struct entrant *e = &b->entrants[i];
		/* Everyone who took part voted for base_round - 1, so nobody is further behind than
		 * that. */
		if (!e->holds || committed_of(b, e) + 2 >= b->decision.base_round)
			continue;
		char text[REASON_MAX];
		(void)snprintf(text, sizeof(text), "it has committed round %llu only, others %llu",
		    (unsigned long long)committed_of(b, e),
		    (unsigned long long)b->decision.base_round - 1);
		peer_end(b->m, e->peer, PEER_LOST, false, text);
		any = true;
	}
	return any;
}

static size_t holders_count(const struct builder *b)
{
	size_t holders = 0;
	for (size_t i = 0; i < b->count; i++)
		holders += b->entrants[i].holds ? 1 : 0;
	return holders;
}

static bool donates(const struct builder *b, uint64_t peer)
{
	for (size_t i = 0; i < b->count; i++)
		if (b->entrants[i].peer->id == peer)
			return b->entrants[i].holds;
	return false;
}

/* A member that gets its state gradually and has missed no round: what it has of it is of the round before the base, as soon as it has installed the view. */
static bool keeps_up(const struct builder *b, const struct entrant *e)
{
	const Traind__Peer__ViewReport *report = e->report;
	uint64_t before = b->decision.base_round - 1;
	if (e->before == NULL || e->before->contribute_from != TR_ROUND_LATER ||
	    e->before->participate_from > before)
		return false;
	return report->committed_round == before ||
	    (report->voted && report->begun_round == before);
}

/* Joiners take donors in turn, so that none serves all. */
static uint64_t next_donor(const struct builder *b, size_t *turn)
{
	size_t holders = holders_count(b), want = holders > 0 ? (*turn)++ % holders : 0;
	for (size_t i = 0; i < b->count; i++)
		if (b->entrants[i].holds && want-- == 0)
			return b->entrants[i].peer->id;
	return 0;
}

/* Behind its callers: those who contribute keep the indices that they were told, and nobody is told one of them besides. */
static bool is_redone(const struct builder *b)
{
	const struct resume_decision *d = &b->decision;
	return b->policy == TRAIND__PEER__POLICY__POLICY_UNIFORM && d->abandoned && !d->restart;
}

static void fill_rows(struct builder *b)
{
	const struct resume_decision *d = &b->decision;
	/* A round that goes on keeps its participants; the next one takes the joiner in, which would have to get the state
	 * of a round that is not over. One that has the state before it at hand takes part at once: nobody contributes
	 * more or less by that, and the others had to wait for its state a round later anyway. */
	uint64_t entry = d->finish ? d->base_round + 1 : d->base_round;
	size_t turn = 0;
	for (size_t i = 0; i < b->count; i++) {
		struct entrant *e = &b->entrants[i];
		const struct node *node = state_node(b->m, e->peer->node);
		traind__peer__view_peer__init(&e->row);
		e->row.peer = e->peer->id;
		e->row.address = node->hello->address;
		if (e->peer->address[0] != '\0')
			e->row.address = e->peer->address;
		e->row.node_name = e->peer->node_name;
		e->row.host = node->hello->host;
		e->row.local_address = node->hello->local_address;
		if (e->before != NULL) {
			e->row.participate_from = e->before->participate_from;
			e->row.contribute_from = e->before->contribute_from;
		} else {
			/* What a worker before it left here is the state that this round started from. */
			bool left = e->peer->soft.left_next == d->base_round;
			e->row.participate_from = b->group->view == NULL || left ? d->base_round
			                                                         : entry;
			e->row.contribute_from = e->row.participate_from + (e->holds ? 0 : 1);
		}
		bool waited = e->row.contribute_from == TR_ROUND_LATER;
		if (e->holds && waited)
			e->row.contribute_from = entry + (is_redone(b) ? 1 : 0);
		if (e->holds)
			continue;
		/* It still waits for its state: same entry if that round is still to come, else a
		 * later one. */
		if (e->row.participate_from < d->base_round && !keeps_up(b, e)) {
			e->row.participate_from = entry;
			e->row.contribute_from = entry + 1;
		}
		if (waited || (e->peer->soft.gradual && e->before == NULL))
			e->row.contribute_from = TR_ROUND_LATER;
		bool same = e->before != NULL && donates(b, e->before->donor);
		e->row.donor = same ? e->before->donor : next_donor(b, &turn);
	}
}

/* A joiner can be the last that holds the state: a round that begins again without any contributor
 * gets those who take part in it. */
static void fill_contributors(struct builder *b)
{
	const struct resume_decision *d = &b->decision;
	for (size_t i = 0; i < b->count; i++)
		if (d->finish || b->entrants[i].row.contribute_from <= d->base_round)
			return;
	for (size_t i = 0; i < b->count; i++) {
		struct entrant *e = &b->entrants[i];
		if (e->holds && e->row.participate_from <= d->base_round)
			e->row.contribute_from = d->base_round;
	}
}

/* What is known of the links now: soft figures, which stay in the view as they were when it was made. */
static void fill_links(struct builder *b, Traind__Peer__View *view, uint32_t *ring)
{
	struct topology_peer peers[MEMBERS_MAX];
	view->latency_s = 0;
	view->bandwidth_bytes_per_s = 0;
	for (size_t i = 0; i < b->count; i++) {
		struct entrant *e = &b->entrants[i];
		const struct node *node = state_node(b->m, e->peer->node);
		e->row.latency_s = node->soft.rtt_s / 2;
		e->row.bandwidth_bytes_per_s = node->soft.bandwidth;
		peers[i] = (struct topology_peer){ .latency_s = e->row.latency_s,
			.bandwidth_bytes_per_s = e->row.bandwidth_bytes_per_s,
			.host = e->row.host,
			.may_be_hub = e->holds };
		if (e->row.latency_s > view->latency_s)
			view->latency_s = e->row.latency_s;
		if (node->soft.bandwidth > 0 &&
		    (view->bandwidth_bytes_per_s <= 0 ||
		        node->soft.bandwidth < view->bandwidth_bytes_per_s))
			view->bandwidth_bytes_per_s = node->soft.bandwidth;
	}
	topology_ring(peers, (unsigned)b->count, ring);
	view->hub = topology_hub(peers, (unsigned)b->count);
}

/* Founders of one host for whom fewer, larger segments are best: two, or more of them than it has cores. Where each has a core of its own, more segments let all of them add up at once;
 * a founder alone says nothing of who is to come, and of more than TR_OP_SEGMENTS_HOST some would own nothing of a smaller op. */
static bool share_cores(const struct builder *b)
{
	uint32_t cores = UINT32_MAX;
	if (b->entrants[0].row.host[0] == '\0' || b->count < 2 || b->count > TR_OP_SEGMENTS_HOST)
		return false;
	for (size_t i = 0; i < b->count; i++) {
		const struct node *node = state_node(b->m, b->entrants[i].peer->node);
		if (node->hello->cores < cores)
			cores = node->hello->cores;
	}
	return b->count == 2 || (cores > 0 && b->count > cores);
}

/* How ops are cut is the same in all views of a group, as a round may go on from one to the next: as far as its founders are from each other. */
static uint32_t op_segments(const struct builder *b)
{
	bool apart = false, far = false;
	if (b->group->view != NULL)
		return b->group->view->view->op_segments;
	for (size_t i = 0; i < b->count; i++) {
		apart = apart || strcmp(b->entrants[i].row.host, b->entrants[0].row.host) != 0;
		far = far || b->entrants[i].row.latency_s >= TR_LONG_WAY_S;
	}
	if (apart)
		return far ? TR_OP_SEGMENTS_LONG : 0;
	return share_cores(b) ? TR_OP_SEGMENTS_HOST : 0;
}

/* `place`: behind the row of the op that its member reported before: there it is if another member has reported the same ops. `makes`: there is to
 * be one. */
static struct Traind__Peer__OpHolders *holders_row(Traind__Peer__Resume *resume,
    const Traind__Peer__OpReport *op, size_t *place, bool makes)
{
	for (size_t i = 0; i < resume->n_ops; i++) {
		size_t at = (*place + i) % resume->n_ops;
		if (!resume_same_op(op, resume->ops[at]->tag, &resume->ops[at]->scope))
			continue;
		*place = at + 1;
		return resume->ops[at]->segments == op->segments ? resume->ops[at] : NULL;
	}
	if (!makes)
		return NULL;
	Traind__Peer__OpHolders *row = calloc(1, sizeof(*row));
	Traind__Peer__OpHolders **grown = realloc(resume->ops,
	    (resume->n_ops + 1) * sizeof(Traind__Peer__OpHolders *));
	if (grown != NULL)
		resume->ops = grown;
	if (row == NULL || grown == NULL) {
		free(row);
		return NULL;
	}
	traind__peer__op_holders__init(row);
	row->tag = op->tag;
	row->scope = op->scope; /* borrowed from the report */
	row->segments = op->segments;
	resume->ops[resume->n_ops++] = row;
	*place = resume->n_ops;
	return row;
}

static bool holds_some(const Traind__Peer__OpReport *op)
{
	for (size_t i = 0; i < op->sealed.len; i++)
		if (op->sealed.data[i] != 0)
			return true;
	return false;
}

static void holders_add(struct builder *b, Traind__Peer__OpHolders *row, uint64_t peer,
    const Traind__Peer__OpReport *op)
{
	Traind__Peer__Holder *holder = calloc(1, sizeof(*holder));
	Traind__Peer__Holder **grown = realloc(row->holders,
	    (row->n_holders + 1) * sizeof(Traind__Peer__Holder *));
	if (grown != NULL)
		row->holders = grown;
	if (holder == NULL || grown == NULL) {
		free(holder);
		b->m->oom = true;
		return;
	}
	traind__peer__holder__init(holder);
	holder->peer = peer;
	if (holds_some(op))
		holder->sealed = op->sealed; /* borrowed from the report */
	row->holders[row->n_holders++] = holder;
}

/* What the ops of the round are, its contributors say. Who came for it adds to that, and tells alone of an op that none of them has submitted
 * only if it holds a result. Who says of an op first is named even if it holds nothing: whose op is another one has to say from whose. */
static void fill_holders_of(struct builder *b, Traind__Peer__Resume *resume, bool contributors)
{
	for (size_t i = 0; i < b->count; i++) {
		const struct entrant *e = &b->entrants[i];
		if (e->before == NULL || e->report->begun_round != b->decision.base_round ||
		    e->report->attempt != b->decision.base_attempt ||
		    (e->before->contribute_from <= b->decision.base_round) != contributors)
			continue;
		size_t place = 0;
		for (size_t k = 0; k < e->report->n_ops; k++) {
			bool sealed = holds_some(e->report->ops[k]);
			Traind__Peer__OpHolders *row = holders_row(resume, e->report->ops[k],
			    &place, contributors || sealed);
			if (row != NULL && (sealed || row->n_holders == 0))
				holders_add(b, row, e->peer->id, e->report->ops[k]);
		}
	}
}

static void fill_holders(struct builder *b, Traind__Peer__Resume *resume)
{
	if (!b->decision.finish)
		return;
	fill_holders_of(b, resume, true);
	fill_holders_of(b, resume, false);
}

static void free_holders(Traind__Peer__Resume *resume)
{
	for (size_t i = 0; i < resume->n_ops; i++) {
		for (size_t k = 0; k < resume->ops[i]->n_holders; k++)
			free(resume->ops[i]->holders[k]);
		free(resume->ops[i]->holders);
		free(resume->ops[i]);
	}
	free(resume->ops);
}

/* What does not fit into the log or a frame would be refused again and again. It takes millions of segments, or of results of small ops. */
static bool too_large(struct builder *b, const Traind__Peer__LogEntry *entry)
{
	size_t bytes = traind__peer__log_entry__get_packed_size(entry);
	if (bytes <= VIEW_BYTES_MAX)
		return false;
	char text[REASON_MAX];
	(void)snprintf(text, sizeof(text),
	    "who holds which segment takes %zu KiB to say, more than %u: use fewer, larger "
	    "segments",
	    bytes >> 10, VIEW_BYTES_MAX >> 10);
	for (size_t i = 0; i < b->count; i++)
		peer_end(b->m, b->entrants[i].peer, PEER_LOST, false, text);
	return true;
}

/* A group keeps its token for as long as it lives. */
static void fill_token(const struct builder *b, Traind__Peer__View *view)
{
	const Traind__Peer__View *before = b->group->view != NULL ? b->group->view->view : NULL;
	bool has = before != NULL && (before->token_low != 0 || before->token_high != 0);
	view->token_low = has ? before->token_low : b->group->soft.token[0];
	view->token_high = has ? before->token_high : b->group->soft.token[1];
}

static void append_view(struct builder *b)
{
	struct proposal *proposal = &b->group->soft.proposal;
	Traind__Peer__View view = TRAIND__PEER__VIEW__INIT;
	Traind__Peer__Resume resume = TRAIND__PEER__RESUME__INIT;
	Traind__Peer__ViewInstall install = TRAIND__PEER__VIEW_INSTALL__INIT;
	Traind__Peer__LogEntry entry = TRAIND__PEER__LOG_ENTRY__INIT;
	Traind__Peer__ViewPeer *rows[MEMBERS_MAX];
	uint32_t ring[MEMBERS_MAX];
	uint64_t contributors[MEMBERS_MAX];
	struct resume_decision *d = &b->decision;
	for (size_t i = 0; i < b->count; i++) {
		rows[i] = &b->entrants[i].row;
		if (!d->finish && rows[i]->contribute_from <= d->base_round)
			contributors[d->contributors_count++] = rows[i]->peer;
	}
	if (d->finish)
		memcpy(contributors, d->contributors, d->contributors_count * sizeof(*contributors));
	view.group = b->group->id;
	view.number = proposal->number;
	view.peers = rows;
	view.ring = ring;
	view.n_peers = view.n_ring = b->count;
	view.policy = b->policy;
	view.deterministic = b->deterministic;
	view.algorithm = b->algorithm;
	view.reason = proposal->reason;
	fill_links(b, &view, ring);
	view.op_segments = op_segments(b);
	view.segment_bytes = b->segment_bytes > 0     ? b->segment_bytes
	    : view.op_segments == TR_OP_SEGMENTS_LONG ? TR_SEGMENT_BYTES_LONG
	                                              : TR_SEGMENT_BYTES;
	view.nobody_follows = queue_nobody_follows(b->m, b->group, b->count);
	fill_token(b, &view);
	relay_fill(b->m, b->group, &view);
	resume.base_round = d->base_round;
	resume.base_attempt = d->base_attempt;
	resume.finish = d->finish;
	resume.abandoned = d->abandoned;
	resume.restart = d->restart;
	resume.contributors = contributors;
	resume.n_contributors = d->contributors_count;
	fill_holders(b, &resume);
	install.view = &view;
	install.resume = &resume;
	install.reserved = view.number + VIEWS_RESERVED;
	entry.body_case = TRAIND__PEER__LOG_ENTRY__BODY_VIEW;
	entry.view = &install;
	if (too_large(b, &entry)) {
		relay_unfill(&view);
		free_holders(&resume);
		return;
	}
	action_log(b->m, false, "group %llu: view %llu: round %llu %s: %s",
	    (unsigned long long)b->group->id, (unsigned long long)view.number,
	    (unsigned long long)d->base_round, d->finish ? "goes on" : "begins", d->reason);
	action_append(b->m, &entry, PENDING_GROUP, b->group->id, NULL);
	relay_unfill(&view);
	free_holders(&resume);
}

void install_append(struct membership *m, struct group *group)
{
	struct builder *b = state_alloc(m, sizeof(*b));
	if (b == NULL)
		return;
	b->m = m;
	b->group = group;
	options_of(b);
	entrants_of(b);
	if (group->view == NULL)
		decide_founding(b);
	else
		decide(b);
	if (group->view != NULL && peer_refused(m, group, b->decision.base_round)) {
		free(b);
		return;
	}
	find_holders(b);
	if (holders_count(b) == 0) {
		/* Nobody is left who has the state: those who waited for it cannot go on. */
		for (size_t i = 0; i < b->count; i++)
			peer_end_without_state(m, b->entrants[i].peer);
	} else if (!left_behind(b)) {
		fill_rows(b);
		fill_contributors(b);
		append_view(b);
	}
	free(b);
}
