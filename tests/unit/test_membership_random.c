/* memberd's core alone against random events: plausible nodes, dying connections, restarts, failing disks and hostile messages.
 * After every step: view numbers only grow and a number means one view; a peer is placed once; what was delivered was durable
 * before. At the end: the state is a function of the log, and a snapshot with the rest of the log gives the same.
 * test_membership_random FIRST LAST runs those seeds; a failing one prints its number.
 */
#include "tests/unit/membership_fake.h"

static void kill_node(struct trial *t, struct fake_node *node)
{
	close_connection(t, node);
	node->count = 0;
	node->incarnation = ++t->next_incarnation;
}

static void restart_memberd(struct trial *t)
{
	for (size_t i = 0; i < NODES; i++)
		t->nodes[i].conn = 0;
	while (letters_first < letters_count)
		free(letters[letters_first++].bytes);
	world_restart(&t->w);
	world_lead(&t->w);
}

static void fail_append(struct trial *t)
{
	struct world *w = &t->w;
	if (w->queue_count == 0)
		return;
	struct blob b = w->queue[w->queue_count - 1]; /* the newest: no later one may depend on it */
	w->queue_count--;
	struct membership_event event = { .kind = MEMBERSHIP_APPEND_FAILED, .cookie = b.cookie };
	event.reason = "no space left on the disk";
	free(b.data);
	world_step(w, &event);
}

static void live_a_little(struct trial *t, struct fake_node *node)
{
	struct fake_peer *peer = node->count > 0 ? &node->peers[draw(t, node->count)] : NULL;
	if (peer == NULL || node->conn == 0)
		return;
	uint64_t job = peer->job, group = peer->group, id = peer->peer;
	switch (draw(t, 8)) {
	case 0:
		if (job != 0)
			started(&t->w, node->conn, job, id);
		break;
	case 1:
	case 2:
		peer->ready = true;
		if (group != 0)
			ready(&t->w, node->conn, group, id, peer->committed);
		break;
	case 3:
		if (job != 0 && draw(t, 3) == 0) {
			forget_peer(node, id);
			exited(&t->w, node->conn, job, id, draw(t, 2) == 0 ? 0 : 3, 0, "words\n");
		}
		break;
	case 4:
	case 5: {
		/* Its round is committed and recorded. */
		Traind__Peer__RoundCommits commits = TRAIND__PEER__ROUND_COMMITS__INIT;
		Traind__Peer__RoundCommit row = TRAIND__PEER__ROUND_COMMIT__INIT,
		                          *list[1] = { &row };
		if (group == 0 || peer->view == 0)
			break;
		row.round = ++peer->committed;
		row.view = row.attempt = peer->view;
		row.contributors = &id;
		row.n_contributors = 1;
		row.samples = 4;
		row.digest_low = row.round;
		commits.group = group;
		commits.peer = id;
		commits.rounds = list;
		commits.n_rounds = 1;
		MESSAGE(&t->w, node->conn, ROUND_COMMITS, round_commits, &commits);
		break;
	}
	case 6: {
		Traind__Peer__PeerReport body = TRAIND__PEER__PEER_REPORT__INIT;
		Traind__V1__Progress figures = TRAIND__V1__PROGRESS__INIT;
		figures.step = peer->committed;
		figures.checkpoint = (char *)(uintptr_t)(draw(t, 2) == 0 ? "/c/step-00000003" : "");
		body.job_id = job;
		body.peer = id;
		body.progress = &figures;
		body.event = (char *)(uintptr_t)(draw(t, 4) == 0 ? "something happened" : "");
		MESSAGE(&t->w, node->conn, PEER_REPORT, peer_report, &body);
		break;
	}
	default: {
		Traind__Peer__LinkLost lost = TRAIND__PEER__LINK_LOST__INIT;
		lost.group = group;
		lost.view = peer->view;
		lost.peer = id;
		lost.lost = id + 1 - draw(t, 3);
		lost.reason = (char *)(uintptr_t)(draw(t, 2) == 0 ? "cannot reach it"
		                                                  : "reset by peer");
		MESSAGE(&t->w, node->conn, LINK_LOST, link_lost, &lost);
		break;
	}
	}
}

/* Any message, with small numbers in all fields so that they hit what exists, or with wild ones. */
static void hostile(struct trial *t)
{
	static const unsigned kinds[] = { 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 14, 15 };
	uint8_t inner[256], outer[300];
	size_t n = 0, fields = draw(t, 8);
	for (size_t f = 0; f < fields; f++) {
		unsigned field = 1 + (unsigned)draw(t, 10);
		if (draw(t, 4) == 0) {
			size_t length = draw(t, 8);
			inner[n++] = (uint8_t)(field << 3 | 2);
			inner[n++] = (uint8_t)length;
			for (size_t i = 0; i < length; i++)
				inner[n++] = (uint8_t)draw(t, 128);
		} else {
			inner[n++] = (uint8_t)(field << 3);
			if (draw(t, 8) == 0) {
				for (int i = 0; i < 9; i++)
					inner[n++] = 0xff;
				inner[n++] = 1;
			} else {
				inner[n++] = (uint8_t)draw(t, 24);
			}
		}
	}
	outer[0] = (uint8_t)(kinds[draw(t, sizeof(kinds) / sizeof(kinds[0]))] << 3 | 2);
	if (n >= 128)
		return;
	outer[1] = (uint8_t)n;
	memcpy(outer + 2, inner, n);
	Traind__Peer__ToMember *message = traind__peer__to_member__unpack(NULL, n + 2, outer);
	if (message == NULL)
		return;
	world_message(&t->w, t->nodes[draw(t, NODES)].conn, message);
	traind__peer__to_member__free_unpacked(message, NULL);
}

static void ask(struct trial *t)
{
	static const char *const ids[] = { "", "", "x", "y" };
	switch (draw(t, 4)) {
	case 0:
		submit(&t->w, ++t->requests, ids[draw(t, 4)],
		    command_spec(1 + (uint32_t)draw(t, 5)));
		break;
	case 1: {
		struct membership_event event = { .kind = MEMBERSHIP_CANCEL,
			.request = ++t->requests };
		event.job = draw(t, 6);
		world_step(&t->w, &event);
		break;
	}
	case 2: {
		struct fake_node *node = &t->nodes[draw(t, NODES)];
		Traind__Peer__JoinGroup body = TRAIND__PEER__JOIN_GROUP__INIT;
		body.name = (char *)(uintptr_t)(draw(t, 2) == 0 ? "g" : "h");
		body.size = 2;
		if (node->conn != 0)
			MESSAGE(&t->w, node->conn, JOIN_GROUP, join_group, &body);
		break;
	}
	default:
		submit(&t->w, ++t->requests, ids[draw(t, 4)], native_spec(1 + (uint32_t)draw(t, 3)));
		break;
	}
}

/* Something that ends lives. */
static void disaster(struct trial *t, struct fake_node *node)
{
	switch (draw(t, 12)) {
	case 0:
	case 1:
	case 2:
		kill_node(t, node);
		break;
	case 3:
	case 4:
		close_connection(t, node);
		break;
	case 5:
	case 6:
	case 7:
		fail_append(t);
		break;
	case 8:
		world_tick(&t->w, 2000 + draw(t, 8000)); /* all are silent, or memberd stood still */
		break;
	case 9:
	case 10:
		restart_memberd(t);
		break;
	default:
		node->incarnation = ++t->next_incarnation; /* a twin, or one whose old connection hangs */
		node->count = 0;
		say_hello(t, node);
		break;
	}
}

static void random_event(struct trial *t)
{
	struct fake_node *node = &t->nodes[draw(t, NODES)];
	uint64_t kind = draw(t, 400);
	if (kind < 140) {
		for (uint64_t n = 1 + draw(t, 4); n > 0; n--)
			deliver_one(t);
	} else if (kind < 230) {
		for (uint64_t n = 1 + draw(t, 4); n > 0 && t->w.queue_count > 0; n--)
			world_apply_one(&t->w);
	} else if (kind < 330) {
		live_a_little(t, node);
	} else if (kind < 360) {
		for (size_t i = 0; i < NODES; i++)
			if (t->nodes[i].conn != 0)
				heartbeat(&t->w, t->nodes[i].conn);
	} else if (kind < 375) {
		world_tick(&t->w, draw(t, 300));
	} else if (kind < 385) {
		if (node->conn == 0)
			say_hello(t, node);
	} else if (kind < 391) {
		ask(t);
	} else if (kind < 395) {
		hostile(t);
	} else if (kind < 397) {
		disaster(t, node);
	}
}

static void keep_snapshot(struct trial *t)
{
	free(t->snapshot);
	snapshot_bytes(t->w.m, &t->snapshot, &t->snapshot_size);
	t->snapshot_at = t->w.log_count;
}

static void apply_log(struct membership *m, const struct trial *t, size_t from)
{
	struct membership_actions actions = { 0 };
	for (size_t i = from; i < t->w.log_count; i++) {
		Traind__Peer__LogEntry *entry = traind__peer__log_entry__unpack(NULL,
		    t->w.log[i].size, t->w.log[i].data);
		struct membership_event event = { .kind = MEMBERSHIP_APPLIED, .entry = entry };
		assert_int_equal(membership_step(m, &event, &actions, NULL), TR_OK);
		traind__peer__log_entry__free_unpacked(entry, NULL);
	}
	HOLD(t, actions.count == 0 || actions.items[0].kind == MEMBERSHIP_DO_JOB_CHANGED);
	membership_actions_finish(&actions);
}

static void same_as(struct trial *t, struct membership *m, const char *what)
{
	uint8_t *a, *b;
	size_t a_size, b_size;
	snapshot_bytes(t->w.m, &a, &a_size);
	snapshot_bytes(m, &b, &b_size);
	if (a_size != b_size || memcmp(a, b, a_size) != 0)
		fail_msg("seed %llu: %s gives another state", (unsigned long long)t->seed, what);
	free(a);
	free(b);
	membership_destroy(m);
}

/* No id is ever used twice: in the log they only grow. */
static void check_ids(struct trial *t)
{
	uint64_t newest_peer = 0, newest_job = 0;
	for (size_t i = 0; i < t->w.log_count; i++) {
		Traind__Peer__LogEntry *entry = traind__peer__log_entry__unpack(NULL,
		    t->w.log[i].size, t->w.log[i].data);
		if (entry->body_case == TRAIND__PEER__LOG_ENTRY__BODY_JOB_SUBMITTED) {
			HOLD(t, entry->job_submitted->job_id > newest_job);
			newest_job = entry->job_submitted->job_id;
		}
		for (size_t k = 0; entry->body_case == TRAIND__PEER__LOG_ENTRY__BODY_JOB_PLANNED &&
		     k < entry->job_planned->n_peers;
		     k++) {
			HOLD(t, entry->job_planned->peers[k]->peer > newest_peer);
			newest_peer = entry->job_planned->peers[k]->peer;
		}
		traind__peer__log_entry__free_unpacked(entry, NULL);
	}
}

static void check_replay(struct trial *t)
{
	check_ids(t);
	struct membership *m;
	assert_int_equal(membership_create(&world_options, &m), TR_OK);
	apply_log(m, t, 0);
	same_as(t, m, "the whole log");
	assert_int_equal(membership_create(&world_options, &m), TR_OK);
	struct membership_actions actions = { 0 };
	Traind__Peer__Snapshot *snapshot = traind__peer__snapshot__unpack(NULL, t->snapshot_size,
	    t->snapshot);
	struct membership_event event = { .kind = MEMBERSHIP_RESTORED, .snapshot = snapshot };
	assert_int_equal(membership_step(m, &event, &actions, NULL), TR_OK);
	membership_actions_finish(&actions);
	traind__peer__snapshot__free_unpacked(snapshot, NULL);
	apply_log(m, t, t->snapshot_at);
	same_as(t, m, "a snapshot and the rest of the log");
}

static void read_everything(struct trial *t)
{
	Traind__V1__ListJobsResponse *jobs = membership_jobs(t->w.m);
	Traind__V1__ListNodesResponse *nodes = membership_nodes(t->w.m, t->w.now);
	struct membership_log_place places[8];
	for (size_t i = 0; i < jobs->n_jobs; i++)
		HOLD(t, membership_log_places(t->w.m, jobs->jobs[i]->id, false, 0, places, 8) <= 8);
	traind__v1__list_jobs_response__free_unpacked(jobs, NULL);
	traind__v1__list_nodes_response__free_unpacked(nodes, NULL);
}

/* What is due is decided when it is looked at: a deadline that stays behind would keep memberd busy. After a few looks, since one decision may call for another. */
static void check_nothing_stays_due(struct trial *t)
{
	world_tick(&t->w, 1000); /* whatever was refused may be tried again */
	for (int i = 0; i < 4; i++)
		world_tick(&t->w, 0);
	HOLD(t, membership_deadline_ms(t->w.m) > t->w.now);
}

static uint64_t all_views, all_places, all_entries;

static void run_seed(uint64_t seed)
{
	static struct trial trial;
	struct trial *t = &trial;
	memset(t, 0, sizeof(*t));
	t->seed = seed;
	letters_first = letters_count = 0;
	world_init(&t->w);
	t->w.quiet = t->w.hold = true;
	t->w.on_action = post;
	world_lead(&t->w);
	for (size_t i = 0; i < NODES; i++) {
		t->nodes[i].incarnation = ++t->next_incarnation;
		say_hello(t, &t->nodes[i]);
	}
	keep_snapshot(t);
	for (int step = 0; step < STEPS; step++) {
		random_event(t);
		if (draw(t, 300) == 0)
			keep_snapshot(t);
		if (draw(t, 300) == 0)
			check_replay(t);
		if (draw(t, 100) == 0)
			check_nothing_stays_due(t);
	}
	check_replay(t);
	read_everything(t);
	while (letters_first < letters_count)
		free(letters[letters_first++].bytes);
	all_views += t->views_count;
	all_places += t->places_count;
	all_entries += t->w.log_count;
	free(t->views);
	free(t->places);
	free(t->snapshot);
	world_finish(&t->w);
}

static uint64_t first_seed = 1, last_seed = 200;

static void test_seeds(void **state)
{
	(void)state;
	for (uint64_t seed = first_seed; seed <= last_seed; seed++)
		run_seed(seed);
	print_message("%llu entries, %llu peers placed, %llu views\n",
	    (unsigned long long)all_entries, (unsigned long long)all_places,
	    (unsigned long long)all_views);
	/* A world in which nothing happens would prove nothing. */
	assert_true(all_views > last_seed - first_seed);
}

int main(int argc, char **argv)
{
	if (argc == 3) {
		first_seed = strtoull(argv[1], NULL, 10);
		last_seed = strtoull(argv[2], NULL, 10);
	}
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_seeds) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
