/* A group's token: drawn once, in every view, in nothing that people see. */
#include "tests/unit/membership_harness.h"

static const Traind__Peer__View *newest_view(const struct world *w, uint64_t conn)
{
	assert_non_null(w->install[conn]);
	return w->install[conn]->view_install->view;
}

/* Job 1, group 4: peer p5 is lost, and p6 and p7 go on. */
static void lose_the_first(struct world *w)
{
	exited(w, 1, 1, 5, 0, 9, "");
	for (uint64_t c = 2; c <= 3; c++)
		report(w, c, 4, 4 + c, 2, 1, 0, 0, 0, false, 0, 0);
}

static void all_views_of_a_group_have_its_token(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	uint64_t low = newest_view(&w, 1)->token_low, high = newest_view(&w, 1)->token_high;
	assert_true(low != 0 && high != 0);
	for (uint64_t c = 2; c <= 3; c++) {
		assert_int_equal(newest_view(&w, c)->token_low, low);
		assert_int_equal(newest_view(&w, c)->token_high, high);
	}
	lose_the_first(&w);
	assert_int_equal(newest_view(&w, 2)->number, 2);
	assert_int_equal(newest_view(&w, 2)->token_low, low);
	assert_int_equal(newest_view(&w, 2)->token_high, high);
	world_finish(&w);
}

static void a_restart_keeps_it(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	uint64_t low = newest_view(&w, 1)->token_low, high = newest_view(&w, 1)->token_high;
	world_restart(&w);
	for (int from_snapshot = 0; from_snapshot < 2; from_snapshot++) {
		Traind__Peer__Snapshot *snapshot = membership_snapshot(w.m);
		assert_non_null(snapshot);
		assert_int_equal(snapshot->n_groups, 1);
		assert_int_equal(snapshot->groups[0]->view->view->token_low, low);
		assert_int_equal(snapshot->groups[0]->view->view->token_high, high);
		struct membership_event event = { .kind = MEMBERSHIP_RESTORED,
			.snapshot = snapshot };
		world_step(&w, &event);
		traind__peer__snapshot__free_unpacked(snapshot, NULL);
	}
	world_finish(&w);
}

static void groups_have_different_tokens(void **state)
{
	struct world w;
	uint64_t tokens[2] = { 0 };
	(void)state;
	three_nodes(&w);
	for (uint64_t i = 0; i < 2; i++) {
		submit(&w, i + 1, i == 0 ? "a" : "b", native_spec(1));
		for (uint64_t c = 1; c <= 3; c++) {
			const Traind__Peer__ToNode *said = w.last[c];
			if (said == NULL ||
			    said->body_case != TRAIND__PEER__TO_NODE__BODY_START_WORKER ||
			    said->start_worker->job_id != i + 1)
				continue;
			uint64_t group = said->start_worker->group, peer = said->start_worker->peer;
			ready(&w, c, group, peer, 0);
			report(&w, c, group, peer, 1, 0, 0, 0, 0, false, 0, 0);
			tokens[i] = newest_view(&w, c)->token_low;
			break;
		}
	}
	assert_true(tokens[0] != 0 && tokens[1] != 0);
	assert_true(tokens[0] != tokens[1]);
	world_finish(&w);
}

static bool packed_has(const ProtobufCMessage *message, uint64_t word)
{
	size_t bytes = protobuf_c_message_get_packed_size(message);
	uint8_t *packed = malloc(bytes + 1);
	assert_non_null(packed);
	(void)protobuf_c_message_pack(message, packed);
	bool has = memmem(packed, bytes, &word, sizeof(word)) != NULL;
	free(packed);
	return has;
}

static bool words_have(const char *words, uint64_t word)
{
	static const char *const forms[] = { "%llu", "%llx", "%llX" };
	char text[32];
	bool has = false;
	for (unsigned i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
		(void)snprintf(text, sizeof(text), forms[i], (unsigned long long)word);
#pragma GCC diagnostic pop
		has = has || strstr(words, text) != NULL;
	}
	return has;
}

/* The trace has every log line, and what was said to nodes and the log in words. */
static void nobody_is_shown_it(void **state)
{
	struct world w;
	(void)state;
	three_nodes(&w);
	submit(&w, 1, "a", native_spec(3));
	for (uint64_t c = 1; c <= 3; c++)
		ready(&w, c, 4, 4 + c, 0);
	for (uint64_t c = 1; c <= 3; c++)
		report(&w, c, 4, 4 + c, 1, 0, 0, 0, 0, false, 0, 0);
	lose_the_first(&w);
	const Traind__Peer__View *view = newest_view(&w, 2);
	Traind__V1__Job *job = membership_job(w.m, 1, true);
	Traind__V1__ListJobsResponse *jobs = membership_jobs(w.m);
	Traind__V1__ListNodesResponse *nodes = membership_nodes(w.m, w.now);
	const uint64_t words[] = { view->token_low, view->token_high };
	assert_true(packed_has(&view->base, words[0]) && packed_has(&view->base, words[1]));
	for (unsigned i = 0; i < 2; i++) {
		assert_false(packed_has(&job->base, words[i]));
		assert_false(packed_has(&jobs->base, words[i]));
		assert_false(packed_has(&nodes->base, words[i]));
		assert_false(words_have(w.trace, words[i]));
	}
	traind__v1__job__free_unpacked(job, NULL);
	traind__v1__list_jobs_response__free_unpacked(jobs, NULL);
	traind__v1__list_nodes_response__free_unpacked(nodes, NULL);
	world_finish(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_views_of_a_group_have_its_token),
		cmocka_unit_test(a_restart_keeps_it),
		cmocka_unit_test(groups_have_different_tokens),
		cmocka_unit_test(nobody_is_shown_it),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
