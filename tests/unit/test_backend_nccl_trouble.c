/* Domains of backend "nccl" in trouble that is rare, or comes after long (nccl_fixture.h). */
#include "tests/unit/nccl_fixture.h"

/* A domain of one, and of one in its group, whose member is the test itself. */
struct solo {
	struct fx *fx;
	tr_domain *domain;
	float *x;
};

static void must(tr_status st, const struct tr_error *error)
{
	if (st != TR_OK)
		fail_msg("%s", error->text);
}

static void solo_start(struct solo *s, size_t floats_max)
{
	struct tr_domain_options options = TR_DOMAIN_OPTIONS_INIT;
	struct tr_error error = { 0 };
	char address[64];
	s->fx = fx_start(1, TRAIND__PEER__POLICY__POLICY_KEEP,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_STAR);
	fx_attach(&s->fx->hosts[0]);
	(void)snprintf(address, sizeof(address), "@traind-test-%d-solo", (int)getpid());
	options.backend = "nccl";
	options.address = address;
	options.size = 1;
	options.nccl_library = options.cuda_library = fake_path;
	must(tr_domain_open(&options, &s->domain, &error), &error);
	must(tr_state_ready(s->fx->hosts[0].group, 0, &error), &error);
	fx_found(s->fx, 1);
	must(tr_domain_lead(s->domain, s->fx->hosts[0].group, &error), &error);
	assert_int_equal(fake_malloc((void **)&s->x, floats_max * sizeof(float)), 0);
}

static void solo_stop(struct solo *s)
{
	tr_domain_close(s->domain);
	assert_int_equal(fake_free(s->x), 0);
	fx_stop(s->fx);
	if (fake->violation() != NULL)
		fail_msg("%s", fake->violation());
	assert_int_equal(fake->live(), 0);
}

/* `ops` of so many elements each. */
static void solo_round(struct solo *s, unsigned ops, size_t count)
{
	struct tr_error error = { 0 };
	struct tr_round round;
	must(tr_domain_round_begin(s->domain, &round, &error), &error);
	for (unsigned tag = 0; tag < ops; tag++)
		must(tr_domain_allreduce(s->domain, tag, s->x, count, TR_F32, TR_SUM, &error),
		    &error);
	must(tr_domain_commit(s->domain, &(struct tr_commit){ 0 }, &round, &error), &error);
}

/* The host's memory of ops that become larger from round to round is used again where it suffices: there is no end of rounds. */
static void test_ops_that_grow(void **state)
{
	(void)state;
	struct solo s = { 0 };
	const size_t first = 1 << 14, rounds = 2 * TR_DOMAIN_OPS_MAX + 10;
	solo_start(&s, first + rounds);
	for (size_t r = 0; r < rounds; r++)
		solo_round(&s, 1, first + r);
	assert_in_range(fake->calls("cudaHostRegister"), 1, 4);
	/* as many as a round may have, larger each time */
	for (size_t count = 1; count <= 1 << 12; count *= 16)
		solo_round(&s, TR_DOMAIN_OPS_MAX, count);
	solo_stop(&s);
}

/* An abort need not return before all ranks have called it, so who aborts has told the others before. */
static void test_who_aborts_has_told_the_others(void **state)
{
	(void)state;
	struct world w = { .dies = NEVER, .deadline_ms = 1000, .policy = TR_UNIFORM };
	fake->inject(FAKE_KERNEL_HANGS, 1, 1, 1);
	play(&w, true);
	check(&w, NEVER, NEVER, true);
	assert_int_equal(fake->calls("ncclCommAbort"), MEMBERS_MAX);

	fake->reset();
	struct world dying = { .dies = 1,
		.dies_in_round = 2,
		.dies_after_op = 0,
		.policy = TR_UNIFORM };
	play(&dying, true);
	check(&dying, 1, 2, true);
}

/* The group has committed, but no broadcast succeeds, with however many communicators. */
static void test_results_that_cannot_be_shared(void **state)
{
	(void)state;
	struct world w = { .dies = NEVER };
	fake->inject(FAKE_BROADCAST_FAILS, 1, NEVER, 0);
	play(&w, true);
	for (unsigned n = 0; n < MEMBERS_MAX; n++) {
		assert_int_equal(w.all[n].st, TR_EUNAVAILABLE);
		assert_non_null(strstr(w.all[n].text,
		    "3 broadcasts of the results in a row failed; the last: NCCL: a member is "
		    "gone, or the "
		    "network: remote process exited"));
	}
	assert_int_equal(fake->calls("ncclCommInitRankConfig"), TR_DOMAIN_BUILDS_MAX * MEMBERS_MAX);
}

/* What the group has of the round is of other calls: all are told so. */
static void test_a_round_that_is_computed_again_otherwise(void **state)
{
	(void)state;
	struct world w = { .dies = 2,
		.dies_in_round = 2,
		.dies_after_op = 1,
		.policy = TR_KEEP,
		.count_again = 500 };
	play(&w, true);
	for (unsigned n = 0; n < 2; n++) {
		assert_int_equal(w.all[n].st, TR_EMISMATCH);
		assert_non_null(strstr(w.all[n].text,
		    "op tag 0 is not what it was before the round was computed again"));
	}
}

/* The program finds no error in cudaGetLastError that was told in words, and is over. */
static void test_no_memory_for_the_first_communicator(void **state)
{
	(void)state;
	struct world w = { .dies = NEVER };
	fake->inject(FAKE_NO_MEMORY, 0, NEVER, 1);
	play(&w, true);
	check(&w, NEVER, NEVER, true);
	assert_int_equal(fake->calls("ncclCommAbort"), MEMBERS_MAX - 1);
}

/* The default stream is that of the domain's device, whichever the program has as current; and it stays that. */
static void test_another_current_device(void **state)
{
	(void)state;
	struct solo s = { 0 };
	int (*set_device)(int), (*get_device)(int *), device = 0;
	*(void **)&set_device = dlsym(fake_library, "cudaSetDevice");
	*(void **)&get_device = dlsym(fake_library, "cudaGetDevice");
	solo_start(&s, 1000);
	assert_int_equal(set_device(1), 0);
	solo_round(&s, 2, 1000);
	assert_int_equal(get_device(&device), 0);
	assert_int_equal(device, 1);
	assert_int_equal(set_device(0), 0);
	solo_stop(&s);
}

/* Calls are counted in 32 bits, of which a fast domain makes as many in some weeks. */
static void test_more_calls_than_32_bits_count(void **state)
{
	(void)state;
	for (unsigned before = 1; before < 3 * (OPS + 2); before++) {
		fake->reset();
		struct world w = { .dies = NEVER, .calls_before = 0u - before };
		play(&w, true);
		check(&w, NEVER, NEVER, true);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_ops_that_grow, setup),
		cmocka_unit_test_setup(test_who_aborts_has_told_the_others, setup),
		cmocka_unit_test_setup(test_results_that_cannot_be_shared, setup),
		cmocka_unit_test_setup(test_a_round_that_is_computed_again_otherwise, setup),
		cmocka_unit_test_setup(test_no_memory_for_the_first_communicator, setup),
		cmocka_unit_test_setup(test_another_current_device, setup),
		cmocka_unit_test_setup(test_more_calls_than_32_bits_count, setup),
	};
	return load_fake() ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
