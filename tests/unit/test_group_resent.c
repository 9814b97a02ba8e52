/* What a death costs in bytes: one of four members dies in the middle of a 64 MiB all-reduce, and what the others have to send a
 * second time is counted. A member's window bounds it: with `direct` at most 1.5 S/n. Links are FIFO; which one delivers next is
 * drawn from a seed; what was not delivered when the view froze was not sent.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "collectives/core/bits.h"
#include "collectives/core/group.h"
#include "common/rng.h"

#define N        4
#define VICTIM   2 /* index; peer ids are one more */
#define ELEMENTS (16u << 20)
#define BYTES    ((uint64_t)ELEMENTS * sizeof(int32_t))
#define SEGMENTS ((BYTES + TR_SEGMENT_BYTES - 1) / TR_SEGMENT_BYTES)

static size_t frame_number(uint8_t kind, unsigned from, unsigned to, uint32_t segment)
{
	return (((size_t)kind - 1) * N * N + (size_t)from * N + to) * SEGMENTS + segment;
}

struct message {
	struct message *next;
	struct segment_header header;
	const void *payload;
	size_t bytes;
	struct group_buffer *buffer;
	Traind__Peer__Vote vote;
	Traind__Peer__Commit commit;
	Traind__Peer__Submitted *submitted;
	enum group_action_kind kind;
};

struct link {
	struct message *head, *tail;
};

struct world {
	struct group_core *cores[N];
	struct link links[N][N];
	int32_t *data[N];
	Traind__Peer__ViewReport *reports[N];
	bool dead[N], decided[N];
	tr_status status[N];
	uint8_t *
	    sent; /* bitmap: this member has sent this frame to that one before, in the first view */
	uint64_t delivered, again, draws;
	unsigned view;
	struct rng_key key;
};

static void act(struct world *w, unsigned who, struct group_actions *actions);

static tr_status step(struct world *w, unsigned who, struct group_event *event)
{
	struct group_actions actions = { 0 };
	struct tr_error error = { 0 };
	tr_status st = group_core_step(w->cores[who], event, &actions, &error);
	if (st != TR_OK && st != TR_EAGAIN && st != TR_ESTALE)
		fail_msg("member %u: %s", who, error.text);
	act(w, who, &actions);
	group_actions_finish(&actions);
	return st;
}

static void drop(struct world *w, unsigned from, unsigned to)
{
	struct link *link = &w->links[from][to];
	while (link->head) {
		struct message *message = link->head;
		link->head = message->next;
		if (message->buffer)
			group_buffer_release(w->cores[from], message->buffer);
		if (message->submitted)
			traind__peer__submitted__free_unpacked(message->submitted, NULL);
		free(message);
	}
	link->tail = NULL;
}

static void queue(struct world *w, unsigned from, struct group_action *action)
{
	struct link *link = &w->links[from][action->to - 1];
	struct message *message = calloc(1, sizeof(*message));
	assert_non_null(message);
	*message = (struct message){ .header = action->header,
		.payload = action->payload,
		.bytes = action->payload_bytes,
		.buffer = action->buffer,
		.vote = action->vote,
		.commit = action->commit,
		.submitted = action->submitted,
		.kind = action->kind };
	action->submitted = NULL;
	if (link->tail)
		link->tail->next = message;
	else
		link->head = message;
	link->tail = message;
}

static void act(struct world *w, unsigned who, struct group_actions *actions)
{
	for (size_t i = 0; i < actions->count; i++) {
		struct group_action *action = &actions->items[i];
		switch (action->kind) {
		case GROUP_DO_SEND_SEGMENT:
		case GROUP_DO_SEND_VOTE:
		case GROUP_DO_SEND_COMMIT:
		case GROUP_DO_SEND_SUBMITTED:
			queue(w, who, action);
			break;
		case GROUP_DO_DROP_SENDS:
			for (unsigned to = 0; to < N; to++)
				drop(w, who, to);
			break;
		case GROUP_DO_REPORT:
			w->reports[who] = action->report;
			action->report = NULL;
			break;
		case GROUP_DO_DECIDED:
			w->decided[who] = true;
			w->status[who] = action->status;
			break;
		default:
			break;
		}
	}
	group_actions_clear(actions);
}

static void count(struct world *w, unsigned from, unsigned to, const struct message *message)
{
	size_t bit = frame_number(message->header.kind, from, to, message->header.segment);
	bool before = false;

	w->delivered += message->bytes;
	/* An input or a sum goes to another one in the new view: the bytes are the same. */
	for (unsigned other = 0; other < N; other++) {
		size_t one = frame_number(message->header.kind, from, other,
		    message->header.segment);
		before = before ||
		    (bits_get(w->sent, one) &&
		        (other == to || message->header.kind == SEGMENT_PARTIAL));
	}
	if (w->view == 1)
		bits_set(w->sent, bit);
	else if (before)
		w->again += message->bytes;
}

static bool deliver(struct world *w)
{
	unsigned first = (unsigned)rng_below(w->key, 0, w->draws++, N * N);

	for (unsigned i = 0; i < N * N; i++) {
		unsigned from = (first + i) % (N * N) / N, to = (first + i) % N;
		struct message *message = w->links[from][to].head;
		if (!message || w->dead[to])
			continue;
		struct group_event event = { .from = from + 1, .kind = GROUP_SEGMENT };
		if (message->kind == GROUP_DO_SEND_SEGMENT) {
			event.segment.header = &message->header;
			event.segment.payload = message->payload;
		} else if (message->kind == GROUP_DO_SEND_VOTE) {
			event.kind = GROUP_VOTE;
			event.vote = &message->vote;
		} else if (message->kind == GROUP_DO_SEND_SUBMITTED) {
			event.kind = GROUP_SUBMITTED;
			event.submitted = message->submitted;
		} else {
			event.kind = GROUP_COMMIT;
			message->commit.reason = (char *)"";
			event.commit = &message->commit;
		}
		w->links[from][to].head = message->next;
		if (!message->next)
			w->links[from][to].tail = NULL;
		if (message->kind == GROUP_DO_SEND_SEGMENT)
			count(w, from, to, message);
		assert_int_not_equal(step(w, to, &event), TR_EAGAIN);
		if (message->buffer)
			group_buffer_release(w->cores[from], message->buffer);
		if (message->submitted)
			traind__peer__submitted__free_unpacked(message->submitted, NULL);
		free(message);
		return true;
	}
	return false;
}

static void install(struct world *w, Traind__Peer__Algorithm algorithm)
{
	Traind__Peer__View view = TRAIND__PEER__VIEW__INIT;
	Traind__Peer__Resume resume = TRAIND__PEER__RESUME__INIT;
	Traind__Peer__ViewInstall message = TRAIND__PEER__VIEW_INSTALL__INIT;
	Traind__Peer__OpHolders holders = TRAIND__PEER__OP_HOLDERS__INIT, *op_list[] = { &holders };
	Traind__Peer__Holder rows[N], *row_list[N];
	Traind__Peer__ViewPeer peers[N], *list[N];
	uint64_t contributors[] = { 1, 2, 3, 4 };
	uint32_t ring[N];
	static const char *const hosts[] = { "a", "b", "a", "b" };

	for (unsigned i = 0; i < N; i++) {
		if (w->dead[i])
			continue;
		size_t at = view.n_peers++;
		traind__peer__view_peer__init(&peers[at]);
		peers[at].peer = i + 1;
		peers[at].participate_from = peers[at].contribute_from = 1;
		peers[at].host = (char *)hosts[i];
		list[at] = &peers[at];
		ring[at] = (uint32_t)at;
		if (!w->reports[i])
			continue;
		traind__peer__holder__init(&rows[holders.n_holders]);
		rows[holders.n_holders].peer = i + 1;
		rows[holders.n_holders].sealed = w->reports[i]->ops[0]->sealed;
		row_list[holders.n_holders] = &rows[holders.n_holders];
		holders.n_holders++;
	}
	view.number = ++w->view;
	view.n_ring = view.n_peers;
	view.peers = list;
	view.ring = ring;
	view.algorithm = algorithm;
	resume.base_round = resume.base_attempt = 1;
	resume.finish = w->view > 1;
	resume.contributors = contributors;
	resume.n_contributors = w->view > 1 ? N : 0;
	holders.tag = 1;
	holders.segments = SEGMENTS;
	holders.holders = row_list;
	resume.ops = op_list;
	resume.n_ops = w->view > 1;
	message.view = &view;
	message.resume = &resume;
	for (unsigned i = 0; i < N; i++)
		if (!w->dead[i])
			assert_int_equal(step(w, i,
			                     &(struct group_event){ .kind = GROUP_INSTALL,
			                         .install = &message }),
			    TR_OK);
}

static void start(struct world *w, Traind__Peer__Algorithm algorithm, uint64_t seed)
{
	w->key = rng_key(seed, 0, 0);
	w->sent = calloc(1, bits_bytes(2 * N * N * SEGMENTS));
	assert_non_null(w->sent);
	for (unsigned i = 0; i < N; i++) {
		w->data[i] = malloc(BYTES);
		assert_non_null(w->data[i]);
		for (size_t e = 0; e < ELEMENTS; e++)
			w->data[i][e] = 1 << 4 * i;
		assert_int_equal(group_core_create(&(struct group_core_options){ .group = 1,
		                                       .peer = i + 1 },
		                     &w->cores[i]),
		    TR_OK);
		step(w, i, &(struct group_event){ .kind = GROUP_READY });
	}
	install(w, algorithm);
	for (unsigned i = 0; i < N; i++)
		step(w, i, &(struct group_event){ .kind = GROUP_BEGIN });
	for (unsigned i = 0; i < N; i++) {
		step(w, i,
		    &(struct group_event){ .kind = GROUP_SUBMIT,
		        .submit = { .tag = 1,
		            .data = w->data[i],
		            .count = ELEMENTS,
		            .dtype = TR_I32,
		            .reduce = TR_SUM,
		            .contribute = true } });
		step(w, i, &(struct group_event){ .kind = GROUP_CLOSE });
	}
}

static void kill_one(struct world *w, Traind__Peer__Algorithm algorithm)
{
	Traind__Peer__ViewPropose propose = TRAIND__PEER__VIEW_PROPOSE__INIT;

	w->dead[VICTIM] = true;
	for (unsigned i = 0; i < N; i++) {
		drop(w, VICTIM, i);
		drop(w, i, VICTIM);
	}
	propose.number = 2;
	for (unsigned i = 0; i < N; i++)
		if (!w->dead[i])
			step(w, i,
			    &(struct group_event){ .kind = GROUP_PROPOSE, .propose = &propose });
	install(w, algorithm);
}

static void finish(struct world *w)
{
	for (unsigned i = 0; i < N; i++) {
		for (unsigned to = 0; to < N; to++)
			drop(w, i, to);
		if (w->reports[i])
			traind__peer__view_report__free_unpacked(w->reports[i], NULL);
	}
	for (unsigned i = 0; i < N; i++) {
		group_core_destroy(w->cores[i]);
		free(w->data[i]);
	}
	free(w->sent);
	free(w);
}

/* S/n that is sent again when the victim dies after `at` of the op's bytes. */
static double resent(Traind__Peer__Algorithm algorithm, double at, uint64_t seed)
{
	struct world *w = calloc(1, sizeof(*w));
	double whole = 2.0 * (N - 1) * (double)BYTES;

	assert_non_null(w);
	start(w, algorithm, seed);
	while ((double)w->delivered < at * whole)
		assert_true(deliver(w));
	assert_false(w->decided[0]);
	kill_one(w, algorithm);
	while (deliver(w))
		continue;
	for (unsigned i = 0; i < N; i++) {
		if (i == VICTIM)
			continue;
		assert_true(w->decided[i]);
		assert_int_equal(w->status[i], TR_OK);
		assert_memory_equal(w->data[i], w->data[0], BYTES);
		for (size_t e = 0; e < ELEMENTS; e++)
			assert_true(w->data[i][e] == 0x1111 || w->data[i][e] == 0x1011);
	}
	double again = (double)w->again / ((double)BYTES / N);
	print_message("%s: killed at %.2f: %.2f S/n sent again\n",
	    traind__peer__algorithm__descriptor.values[algorithm].name, at, again);
	finish(w);
	return again;
}

static void direct_sends_little_again(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 2; seed++)
		for (unsigned at = 1; at <= 3; at++)
			assert_true(resent(TRAIND__PEER__ALGORITHM__ALGORITHM_DIRECT, 0.25 * at,
			                seed) <= 1.5);
}

/* Windows bound the others too; what a ring has under way is in several hands at once. */
static void so_do_the_others(void **state)
{
	(void)state;
	assert_true(resent(TRAIND__PEER__ALGORITHM__ALGORITHM_STAR, 0.5, 1) <= 1.5);
	assert_true(resent(TRAIND__PEER__ALGORITHM__ALGORITHM_HIERARCHICAL, 0.4, 1) <= 1.5);
	assert_true(resent(TRAIND__PEER__ALGORITHM__ALGORITHM_RING, 0.5, 1) <= 1.5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(direct_sends_little_again),
		cmocka_unit_test(so_do_the_others),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
