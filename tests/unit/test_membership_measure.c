/* Links measured on request: who meets whom, what becomes of pairs that cannot, and what is answered. */
#include "daemon/membership/core/tournament.h"
#include "tests/unit/membership_harness.h"

#define PLAYERS_MAX 40

static void all_pairs_meet_once(void **state)
{
	(void)state;
	for (uint32_t n = 0; n <= PLAYERS_MAX; n++) {
		bool met[PLAYERS_MAX][PLAYERS_MAX] = { { false } };
		uint32_t count = 0, turns = tournament_turns(n);
		assert_int_equal(turns, n < 2 ? 0 : n % 2 == 0 ? n - 1 : n);
		for (uint32_t turn = 0; turn < turns; turn++) {
			struct tournament_pair pairs[PLAYERS_MAX];
			bool plays[PLAYERS_MAX] = { false };
			uint32_t had = tournament_pairs(n, turn, pairs);
			assert_int_equal(had, n / 2);
			for (uint32_t i = 0; i < had; i++) {
				uint32_t low = pairs[i].low, high = pairs[i].high;
				assert_true(low < high && high < n);
				assert_false(plays[low] || plays[high] || met[low][high]);
				plays[low] = plays[high] = met[low][high] = true;
				count++;
			}
		}
		assert_int_equal(count, n * (n - 1) / 2 * (n > 0));
		assert_int_equal(tournament_pairs(n, turns, NULL), 0);
	}
}

/* ---- memberd ---- */

#define NODES_MAX 6

/* What each connection was asked last, and has not answered. */
static struct asked {
	uint64_t measurement;
	char address[32];
	bool open, layers, beside;
} asked[NODES_MAX + 1];
static unsigned asked_in_turn;

static void note_asked(struct world *w, const struct membership_action *action)
{
	(void)w;
	if (action->kind != MEMBERSHIP_DO_SEND ||
	    action->message->body_case != TRAIND__PEER__TO_NODE__BODY_MEASURE_LINK)
		return;
	const Traind__Peer__MeasureLink *measure = action->message->measure_link;
	assert_true(action->conn <= NODES_MAX);
	struct asked *row = &asked[action->conn];
	assert_false(row->open); /* in one pair at a time */
	row->open = true;
	row->layers = measure->job != NULL;
	row->beside = measure->beside;
	row->measurement = measure->measurement;
	(void)snprintf(row->address, sizeof(row->address), "%s", measure->address);
	asked_in_turn++;
}

static void nodes(struct world *w, uint64_t count)
{
	memset(asked, 0, sizeof(asked));
	asked_in_turn = 0;
	world_init(w);
	w->on_action = note_asked;
	w->quiet = true;
	world_lead(w);
	for (uint64_t c = 1; c <= count; c++)
		hello(w, c, 0, 100 + c, 1);
}

static void request_of(struct world *w, uint64_t number, Traind__V1__JobSpec *job, bool layers_only)
{
	Traind__V1__MeasureLinksRequest wish = TRAIND__V1__MEASURE_LINKS_REQUEST__INIT;
	struct membership_event event = { .kind = MEMBERSHIP_MEASURE,
		.request = number,
		.measure = &wish };
	w->reply = (struct membership_action){ 0 };
	wish.job = job;
	wish.threads = job != NULL;
	wish.layers_of = job != NULL ? (char[]){ "these" } : wish.layers_of;
	wish.layers_only = layers_only;
	asked_in_turn = 0;
	world_step(w, &event);
}

static void request_with(struct world *w, uint64_t number, Traind__V1__JobSpec *job)
{
	request_of(w, number, job, false);
}

static void request(struct world *w, uint64_t number)
{
	request_with(w, number, NULL);
}

/* 0: inside its own host. */
static uint64_t partner_of(uint64_t conn)
{
	unsigned last = 0;
	return sscanf(asked[conn].address, "10.0.0.%u:7000", &last) == 1 ? last : 0;
}

static void answer(struct world *w, uint64_t conn, const char *error, bool unreachable)
{
	Traind__Peer__LinkMeasured said = TRAIND__PEER__LINK_MEASURED__INIT;
	char words[64];
	(void)snprintf(words, sizeof(words), "%s", error);
	said.measurement = asked[conn].measurement;
	said.error = words;
	said.unreachable = unreachable;
	said.round_trip_s = 0.002 * (double)(conn + partner_of(conn));
	said.there_bytes_per_s = (double)(1000 * conn + partner_of(conn));
	said.back_bytes_per_s = (double)(1000 * partner_of(conn) + conn);
	said.layer_s = asked[conn].layers ? 0.03 * (double)conn : 0;
	asked[conn].open = false;
	MESSAGE(w, conn, LINK_MEASURED, link_measured, &said);
}

static uint64_t next_open(void)
{
	for (uint64_t c = 1; c <= NODES_MAX; c++)
		if (asked[c].open)
			return c;
	return 0;
}

static void answer_all(struct world *w)
{
	for (uint64_t c = next_open(); c != 0; c = next_open())
		answer(w, c, "", false);
}

static Traind__V1__Links *links_of(struct world *w)
{
	Traind__V1__Links *links = membership_links(w->m, w->now + 3000);
	assert_non_null(links);
	return links;
}

static const Traind__V1__Link *row_of(const Traind__V1__Links *links, uint64_t from, uint64_t to)
{
	for (size_t i = 0; i < links->n_links; i++)
		if (links->links[i]->from_node == from && links->links[i]->to_node == to)
			return links->links[i];
	return NULL;
}

static void finish(struct world *w, Traind__V1__Links *links)
{
	traind__v1__links__free_unpacked(links, NULL);
	world_finish(w);
}

static void every_pair_is_measured_both_ways(void **state)
{
	(void)state;
	struct world w;
	nodes(&w, 5);
	request(&w, 7);
	assert_int_equal(asked_in_turn, 5); /* each its own host first */
	request(&w, 8);                     /* joins */
	assert_int_equal(asked_in_turn, 0);
	answer_all(&w);
	assert_int_equal(asked_in_turn, 10);
	assert_int_equal(w.reply.request, 8);
	assert_int_equal(w.reply.status, TR_OK);
	Traind__V1__Links *links = links_of(&w);
	assert_int_equal(links->n_links, 25);
	assert_int_equal(links->n_hosts, 5);
	for (uint64_t a = 1; a <= 5; a++) {
		for (uint64_t b = 1; b <= 5; b++) {
			const Traind__V1__Link *row = row_of(links, a, b);
			assert_non_null(row);
			assert_string_equal(row->error, "");
			assert_true(row->age_s >= 3 && row->age_s < 3.1);
			if (a != b) {
				assert_true(row->bandwidth_bytes_per_s == (double)(1000 * a + b));
				assert_true(row->latency_s == 0.001 * (double)(a + b));
			}
		}
	}
	finish(&w, links);
}

/* Turn after turn: nobody is asked for the next while a pair of this one is under way. */
static void a_turn_waits_for_its_pairs(void **state)
{
	(void)state;
	struct world w;
	nodes(&w, 4);
	request(&w, 7);
	for (uint64_t c = 1; c <= 3; c++)
		answer(&w, c, "", false);
	assert_int_equal(asked_in_turn, 4);
	uint64_t late = asked[4].measurement;
	answer(&w, 4, "", false);
	assert_int_equal(asked_in_turn, 6);
	/* what was answered already, or never asked, changes nothing */
	uint64_t open = next_open(), measurement = asked[open].measurement;
	asked[open].measurement = late;
	answer(&w, open, "wrong", false);
	assert_int_equal(asked_in_turn, 6);
	asked[open].measurement = measurement;
	asked[open].open = true;
	answer_all(&w);
	assert_int_equal(asked_in_turn, 4 + 6);
	Traind__V1__Links *links = links_of(&w);
	assert_int_equal(links->n_links, 16);
	for (size_t i = 0; i < links->n_links; i++)
		assert_string_equal(links->links[i]->error, "");
	finish(&w, links);
}

static void who_cannot_be_dialled_dials(void **state)
{
	(void)state;
	struct world w;
	nodes(&w, 2);
	request(&w, 7);
	answer(&w, 1, "", false);
	answer(&w, 2, "", false);
	assert_true(asked[1].open && partner_of(1) == 2);
	answer(&w, 1, "cannot reach 10.0.0.2:7000: no answer", true);
	assert_true(asked[2].open && partner_of(2) == 1);
	answer(&w, 2, "", false);
	assert_int_equal(w.reply.request, 7);
	Traind__V1__Links *links = links_of(&w);
	assert_true(row_of(links, 2, 1)->bandwidth_bytes_per_s == 2001);
	assert_true(row_of(links, 1, 2)->bandwidth_bytes_per_s == 1002);
	traind__v1__links__free_unpacked(links, NULL);
	/* Neither can: both are said. */
	request(&w, 9);
	answer(&w, 1, "", false);
	answer(&w, 2, "", false);
	answer(&w, 1, "cannot reach 10.0.0.2:7000: no answer", true);
	answer(&w, 2, "cannot reach 10.0.0.1:7000: refused", true);
	assert_int_equal(w.reply.request, 9);
	assert_int_equal(w.reply.status, TR_OK);
	links = links_of(&w);
	assert_string_equal(row_of(links, 1, 2)->error,
	    "cannot reach 10.0.0.2:7000: no answer; cannot reach 10.0.0.1:7000: refused");
	assert_true(row_of(links, 2, 1)->bandwidth_bytes_per_s == 0);
	finish(&w, links);
}

static void who_dies_in_the_middle_is_named(void **state)
{
	(void)state;
	struct world w;
	nodes(&w, 3);
	request(&w, 7);
	answer(&w, 1, "", false);
	answer(&w, 3, "", false);
	asked[2].open = false;
	world_closed(&w, 2, "reset by peer");
	answer_all(&w); /* those of n1 and n3, whose pair is left */
	assert_int_equal(w.reply.request, 7);
	Traind__V1__Links *links = links_of(&w);
	for (uint64_t other = 1; other <= 3; other++) {
		assert_non_null(
		    strstr(row_of(links, 2, other)->error, "node-2 was lost in the middle of it"));
	}
	assert_string_equal(row_of(links, 1, 3)->error, "");
	assert_int_equal(links->n_hosts, 2);
	traind__v1__links__free_unpacked(links, NULL);
	/* Measured again without it, its rows are gone. */
	request(&w, 8);
	answer_all(&w);
	links = links_of(&w);
	assert_int_equal(links->n_links, 4);
	finish(&w, links);
}

static void who_says_nothing_is_named(void **state)
{
	(void)state;
	struct world w;
	nodes(&w, 2);
	request(&w, 7);
	answer(&w, 1, "", false);
	assert_true(asked[2].open);
	for (unsigned ms = 0; ms < TR_PROBE_ANSWER_MS + 1000 && asked_in_turn == 2; ms += 250) {
		world_tick(&w, 250);
		heartbeat(&w, 1);
		heartbeat(&w, 2);
	}
	assert_int_equal(asked_in_turn, 3);
	answer(&w, 1, "", false);
	assert_int_equal(w.reply.request, 7);
	Traind__V1__Links *links = links_of(&w);
	assert_string_equal(row_of(links, 2, 2)->error,
	    "node-2 did not say in 40 s what it measured");
	assert_string_equal(row_of(links, 1, 2)->error, "");
	finish(&w, links);
}

static void hello_of_host(struct world *w, uint64_t conn, const char *host)
{
	Traind__Peer__NodeHello hello = TRAIND__PEER__NODE_HELLO__INIT;
	char name[32], address[32], shared[32];
	(void)snprintf(name, sizeof(name), "node-%llu", (unsigned long long)conn);
	(void)snprintf(address, sizeof(address), "10.0.0.%llu:7000", (unsigned long long)conn);
	(void)snprintf(shared, sizeof(shared), "%s", host);
	hello.incarnation = 100 + conn;
	hello.name = name;
	hello.address = address;
	hello.host = shared;
	hello.slots = 1;
	hello.probe_token_low = conn;
	MESSAGE(w, conn, HELLO, hello, &hello);
}

static void nodes_of_one_host_are_measured_once(void **state)
{
	(void)state;
	struct world w;
	nodes(&w, 0);
	hello_of_host(&w, 1, "here");
	hello_of_host(&w, 2, "here");
	hello_of_host(&w, 3, "there");
	request(&w, 7);
	assert_int_equal(asked_in_turn, 2);
	answer_all(&w);
	assert_int_equal(asked_in_turn, 3);
	Traind__V1__Links *links = links_of(&w);
	assert_int_equal(links->n_links, 4);
	assert_int_equal(links->n_hosts, 3);
	assert_int_equal(links->hosts[1]->node, 2);
	assert_int_equal(links->hosts[1]->measured, 1);
	finish(&w, links);
}

static void layers_are_measured_where_nobody_works(void **state)
{
	(void)state;
	struct world w;
	nodes(&w, 3);
	submit(&w, 1, "a", command_spec(1)); /* on n1 */
	Traind__V1__JobSpec *job = native_spec(1);
	struct tr_error error = { 0 };
	assert_int_equal(job_validate(job, &error), TR_OK);
	request_with(&w, 7, job);
	assert_true(!asked[1].layers && asked[2].layers && asked[3].layers);
	answer_all(&w);
	assert_false(asked[2].layers); /* of its host, once */
	Traind__V1__Links *links = links_of(&w);
	assert_string_equal(links->layers_of, "these");
	assert_true(row_of(links, 1, 1)->layer_s == 0);
	assert_true(row_of(links, 3, 3)->layer_s == 0.09);
	assert_true(row_of(links, 2, 3)->layer_s == 0);
	traind__v1__links__free_unpacked(links, NULL);
	/* links alone: what was known of layers is not theirs any more */
	request(&w, 8);
	answer_all(&w);
	links = links_of(&w);
	assert_string_equal(links->layers_of, "");
	assert_true(row_of(links, 3, 3)->layer_s == 0);
	/* what is no job that trains */
	traind__v1__train_spec__free_unpacked(job->train, NULL);
	job->train = NULL;
	request_with(&w, 9, job);
	assert_int_equal(w.reply.status, TR_EINVAL);
	traind__v1__job_spec__free_unpacked(job, NULL);
	finish(&w, links);
}

/* The links of hosts that were measured stay, with their age. */
static void layers_alone_where_links_are_known(void **state)
{
	(void)state;
	struct world w;
	nodes(&w, 3);
	Traind__V1__JobSpec *job = native_spec(1);
	struct tr_error error = { 0 };
	assert_int_equal(job_validate(job, &error), TR_OK);
	request_of(&w, 6, NULL, true);
	assert_int_equal(w.reply.status, TR_EINVAL);
	request_of(&w, 7, job, true); /* none is known */
	answer_all(&w);
	assert_int_equal(asked_in_turn, 3 + 3);
	world_tick(&w, 5000);
	request_of(&w, 8, job, true);
	answer_all(&w);
	assert_int_equal(asked_in_turn, 3);
	assert_int_equal(w.reply.request, 8);
	Traind__V1__Links *links = links_of(&w);
	assert_int_equal(links->n_links, 9);
	assert_true(row_of(links, 2, 3)->age_s >= 8 && row_of(links, 2, 2)->age_s < 4);
	assert_true(row_of(links, 2, 2)->layer_s == 0.06 &&
	    row_of(links, 2, 3)->bandwidth_bytes_per_s == 2003);
	traind__v1__links__free_unpacked(links, NULL);
	/* Who wants links too comes while layers are measured: both wait for the rest. */
	request_of(&w, 9, job, true);
	request(&w, 10);
	answer_all(&w);
	assert_int_equal(asked_in_turn, 3);
	assert_int_equal(w.reply.request, 10);
	links = links_of(&w);
	assert_true(row_of(links, 2, 3)->age_s < 4 && row_of(links, 2, 2)->layer_s == 0.06);
	traind__v1__links__free_unpacked(links, NULL);
	/* A host has come: all is measured. */
	hello(&w, 4, 0, 104, 1);
	request_of(&w, 11, job, true);
	answer_all(&w);
	assert_int_equal(asked_in_turn, 4 + 6);
	links = links_of(&w);
	assert_int_equal(links->n_links, 16);
	traind__v1__job_spec__free_unpacked(job, NULL);
	finish(&w, links);
}

/* Nodes 1 and 2 are at one site, 3 and 4 at another: 1000 bytes a second go from there, 2000 come in, of which each of two streams has half. */
static void answer_of_sites(struct world *w, uint64_t conn, bool shared)
{
	Traind__Peer__LinkMeasured said = TRAIND__PEER__LINK_MEASURED__INIT;
	uint64_t other = partner_of(conn);
	bool crosses = other != 0 && (conn < 3) != (other < 3);
	double out = crosses ? 1000 : 1e5, in = crosses ? 2000 : 1e5;
	said.measurement = asked[conn].measurement;
	said.round_trip_s = 0.002;
	said.there_bytes_per_s = (conn < 3 ? out : in) / (crosses && shared ? 2 : 1);
	said.back_bytes_per_s = (conn < 3 ? in : out) / (crosses && shared ? 2 : 1);
	asked[conn].open = false;
	MESSAGE(w, conn, LINK_MEASURED, link_measured, &said);
}

static unsigned open_count(void)
{
	unsigned count = 0;
	for (uint64_t c = 1; c <= NODES_MAX; c++)
		count += asked[c].open;
	return count;
}

/* Up to the turns of sites. */
static void answer_pairs(struct world *w)
{
	for (unsigned answered = 0; answered < 4 + 6; answered++) {
		uint64_t conn = next_open();
		assert_true(conn != 0 && !asked[conn].beside);
		answer_of_sites(w, conn, true);
	}
}

static void cables_are_measured_where_sites_are(void **state)
{
	(void)state;
	struct world w;
	nodes(&w, 4);
	request(&w, 7);
	answer_pairs(&w);
	assert_int_equal(open_count(), 1); /* one alone, then two at once */
	answer_of_sites(&w, next_open(), false);
	assert_int_equal(open_count(), 2);
	while (next_open() != 0) {
		assert_true(asked[next_open()].beside);
		answer_of_sites(&w, next_open(), true);
	}
	assert_int_equal(w.reply.request, 7);
	Traind__V1__Links *links = links_of(&w);
	assert_int_equal(links->n_links, 16);
	assert_int_equal(links->n_sites, 2);
	for (size_t i = 0; i < 2; i++) {
		const Traind__V1__LinkSite *site = links->sites[i];
		bool first = site->nodes[0] < 3;
		assert_int_equal(site->n_nodes, 2);
		assert_int_equal(site->nodes[0] + 1, site->nodes[1]);
		assert_true(site->out_bytes_per_s == (first ? 1000 : 2000) &&
		    site->in_bytes_per_s == (first ? 2000 : 1000));
	}
	for (uint64_t a = 1; a <= 2; a++)
		for (uint64_t b = 3; b <= 4; b++)
			assert_true(row_of(links, a, b)->bandwidth_bytes_per_s == 1000 &&
			    row_of(links, b, a)->bandwidth_bytes_per_s == 2000);
	traind__v1__links__free_unpacked(links, NULL);
	/* Whatever fails there leaves what was measured before, and nothing is known of cables. */
	request(&w, 8);
	answer_pairs(&w);
	answer(&w, next_open(), "it said something else than was due", false);
	answer_of_sites(&w, next_open(), true);
	answer(&w, next_open(), "it said something else than was due", false);
	assert_int_equal(w.reply.request, 8);
	links = links_of(&w);
	assert_int_equal(links->n_sites, 0);
	assert_string_equal(row_of(links, 1, 3)->error, "");
	assert_true(row_of(links, 1, 3)->bandwidth_bytes_per_s == 500);
	finish(&w, links);
}

static void without_nodes_or_room(void **state)
{
	(void)state;
	struct world w;
	nodes(&w, 0);
	request(&w, 7);
	assert_int_equal(w.reply.status, TR_EUNAVAILABLE);
	hello(&w, 1, 0, 101, 0); /* a program that links the library */
	request(&w, 7);
	assert_int_equal(w.reply.status, TR_EUNAVAILABLE);
	hello(&w, 2, 0, 102, 1);
	for (uint64_t i = 0; i < TR_PROBE_CALLERS_MAX; i++) {
		request(&w, 100 + i);
		assert_int_equal(w.reply.request, 0);
	}
	request(&w, 200);
	assert_int_equal(w.reply.request, 200);
	assert_int_equal(w.reply.status, TR_ELIMIT);
	world_finish(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_pairs_meet_once),
		cmocka_unit_test(every_pair_is_measured_both_ways),
		cmocka_unit_test(a_turn_waits_for_its_pairs),
		cmocka_unit_test(who_cannot_be_dialled_dials),
		cmocka_unit_test(who_dies_in_the_middle_is_named),
		cmocka_unit_test(who_says_nothing_is_named),
		cmocka_unit_test(nodes_of_one_host_are_measured_once),
		cmocka_unit_test(layers_are_measured_where_nobody_works),
		cmocka_unit_test(layers_alone_where_links_are_known),
		cmocka_unit_test(cables_are_measured_where_sites_are),
		cmocka_unit_test(without_nodes_or_room),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
