#include "collectives/transport/relay_waits.h"

#include <stdlib.h>
#include <string.h>

#include "common/limits.h"
#include "common/log.h"

struct wait {
	struct relay_waits *waits;
	struct wait *next;
	struct conn_relay row;
	struct conn *conn; /* NULL: none, now */
	uv_timer_t again;
	bool over;       /* of no row any more: freed when its handles are closed */
	bool called;     /* its connection was handed on */
	bool complained; /* once, not at each try */
};

struct relay_waits {
	uv_loop_t *loop;
	struct tls_context *tls;
	struct listener *listener;
	struct wait *first;
	bool closing;
};

static void wait_dial(struct wait *wait);

static void waits_free(struct relay_waits *waits)
{
	if (!waits->closing || waits->first != NULL)
		return;
	tls_context_release(waits->tls);
	free(waits);
}

static void on_timer_closed(uv_handle_t *handle)
{
	struct wait *wait = handle->data, **at = &wait->waits->first;
	struct relay_waits *waits = wait->waits;
	while (*at != wait)
		at = &(*at)->next;
	*at = wait->next;
	free(wait);
	waits_free(waits);
}

static void on_again(uv_timer_t *timer)
{
	wait_dial(timer->data);
}

static void on_handed(void *arg, int fd)
{
	struct wait *wait = arg;
	wait->called = true;
	wait->complained = false;
	listener_take(wait->waits->listener, fd);
}

static void on_closed(void *arg, struct conn *conn, const char *reason)
{
	struct wait *wait = arg;
	(void)conn;
	wait->conn = NULL;
	if (wait->over) {
		uv_close((uv_handle_t *)&wait->again, on_timer_closed);
		return;
	}
	if (!wait->called && !wait->complained) {
		wait->complained = true;
		log_info("relay", "cannot wait for peer %lu at the relay at %s: %s; trying again",
		    (unsigned long)wait->row.say.from, wait->row.address, reason);
	}
	(void)uv_timer_start(&wait->again, on_again, wait->called ? 0 : TR_RELAY_WAIT_AGAIN_MS, 0);
}

static void wait_dial(struct wait *wait)
{
	static const struct conn_callbacks callbacks = { .closed = on_closed };
	struct tr_error error = { 0 };
	wait->called = false;
	if (conn_wait_at(wait->waits->loop, &wait->row, wait->waits->tls, on_handed, &callbacks,
	        wait, &wait->conn, &error) == TR_OK)
		return;
	wait->conn = NULL;
	on_closed(wait, NULL, error.text);
}

static void wait_end(struct wait *wait)
{
	if (wait->over)
		return;
	wait->over = true;
	(void)uv_timer_stop(&wait->again);
	if (wait->conn != NULL)
		conn_close(wait->conn, "nobody calls there any more");
	else
		uv_close((uv_handle_t *)&wait->again, on_timer_closed);
}

static bool same_row(const struct conn_relay *a, const struct conn_relay *b)
{
	return a->say.group == b->say.group && a->say.from == b->say.from &&
	    a->say.to == b->say.to && a->say.token[0] == b->say.token[0] &&
	    a->say.token[1] == b->say.token[1] && strcmp(a->address, b->address) == 0;
}

static bool among(const struct conn_relay *row, const struct conn_relay *rows, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (same_row(row, &rows[i]))
			return true;
	return false;
}

static bool waited_for(const struct relay_waits *waits, const struct conn_relay *row)
{
	for (const struct wait *wait = waits->first; wait != NULL; wait = wait->next)
		if (!wait->over && same_row(&wait->row, row))
			return true;
	return false;
}

tr_status relay_waits_create(uv_loop_t *loop, struct tls_context *tls, struct listener *listener,
    struct relay_waits **waits, struct tr_error *error)
{
	struct relay_waits *made = calloc(1, sizeof(*made));
	if (made == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory to wait at relays");
	*made = (struct relay_waits){ .loop = loop,
		.tls = tls_context_hold(tls),
		.listener = listener };
	*waits = made;
	return TR_OK;
}

tr_status relay_waits_set(struct relay_waits *waits, const struct conn_relay *rows, size_t count,
    struct tr_error *error)
{
	for (struct wait *wait = waits->first; wait != NULL; wait = wait->next)
		if (!among(&wait->row, rows, count))
			wait_end(wait);
	for (size_t i = 0; i < count; i++) {
		if (waited_for(waits, &rows[i]))
			continue;
		struct wait *wait = calloc(1, sizeof(*wait));
		if (wait == NULL)
			return tr_error_set(error, TR_ENOMEM, "no memory to wait at relays");
		wait->waits = waits;
		wait->row = rows[i];
		wait->row.say.kind = RELAY_WAIT;
		(void)uv_timer_init(waits->loop, &wait->again);
		wait->again.data = wait;
		wait->next = waits->first;
		waits->first = wait;
		wait_dial(wait);
	}
	return TR_OK;
}

void relay_waits_close(struct relay_waits *waits)
{
	if (waits == NULL)
		return;
	waits->closing = true;
	for (struct wait *wait = waits->first; wait != NULL; wait = wait->next)
		wait_end(wait);
	waits_free(waits);
}
