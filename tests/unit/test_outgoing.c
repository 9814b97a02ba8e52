/* In which order segments leave a link. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/engine/peer_link.h"

#define FRAMES 6

struct queued {
	struct peer_link link;
	struct outgoing frames[FRAMES];
};

/* In the order of `classes`: 'h'ot, 'o'wn; 's': hot, from staging. */
static void queue_all(struct queued *q, const char *classes)
{
	memset(q, 0, sizeof(*q));
	for (unsigned c = 0; c < OUTGOING_CLASSES; c++)
		outgoing_list_init(&q->link.queue[c]);
	for (unsigned i = 0; classes[i] != '\0'; i++) {
		struct outgoing *out = &q->frames[i];
		out->number = q->link.queued++;
		out->class = classes[i] == 'o' ? OUTGOING_OWN : OUTGOING_HOT;
		out->buffer = classes[i] == 's' ? (struct group_buffer *)q : NULL;
		outgoing_append(&q->link.queue[out->class], out);
	}
}

static void assert_leave(struct queued *q, const char *order)
{
	char left[FRAMES + 1] = "";
	struct outgoing *out;
	for (unsigned i = 0; (out = outgoing_take_segment(&q->link)) != NULL; i++)
		left[i] = (char)('0' + (out - q->frames));
	assert_string_equal(left, order);
}

static void what_is_under_way_goes_first(void **state)
{
	(void)state;
	struct queued q;
	queue_all(&q, "oohoh");
	assert_leave(&q, "24013");
}

static void over_a_long_way_the_oldest_goes_first(void **state)
{
	(void)state;
	struct queued q;
	queue_all(&q, "oohoh");
	q.link.distant = true;
	assert_leave(&q, "01234");
	queue_all(&q, "hohho");
	q.link.distant = true;
	assert_leave(&q, "01234");
}

/* What is kept until it is known to have come is bounded: staging waits, inputs do not. */
static void inputs_go_where_staging_has_to_wait(void **state)
{
	(void)state;
	for (int distant = 0; distant < 2; distant++) {
		struct queued q;
		queue_all(&q, "soso");
		q.link.distant = distant != 0;
		q.link.kept_bytes = TR_LINK_KEPT_BYTES_MAX;
		assert_leave(&q, "13");
		q.link.kept_bytes = 0;
		assert_leave(&q, "02");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_under_way_goes_first),
		cmocka_unit_test(over_a_long_way_the_oldest_goes_first),
		cmocka_unit_test(inputs_go_where_staging_has_to_wait),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
