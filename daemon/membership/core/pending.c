#include <stdlib.h>

#include "daemon/membership/core/state.h"

bool pending_any(const struct membership *m, enum pending_kind kind, uint64_t object)
{
	for (size_t i = 0; i < m->pending_count; i++)
		if (m->pending[i].kind == kind && m->pending[i].object == object)
			return true;
	return false;
}

void pending_add(struct membership *m, enum pending_kind kind, uint64_t object, uint64_t cookie)
{
	if (m->pending_count == m->pending_capacity) {
		size_t capacity = m->pending_capacity > 0 ? 2 * m->pending_capacity : 16;
		struct pending *grown = realloc(m->pending, capacity * sizeof(*grown));
		if (grown == NULL) {
			m->oom = true;
			return;
		}
		m->pending = grown;
		m->pending_capacity = capacity;
	}
	m->pending[m->pending_count++] = (struct pending){ .cookie = cookie,
		.kind = kind,
		.object = object };
}

bool pending_is(const struct membership *m, uint64_t cookie, enum pending_kind kind,
    uint64_t *object)
{
	for (size_t i = 0; i < m->pending_count; i++)
		if (m->pending[i].cookie == cookie && m->pending[i].kind == kind) {
			*object = m->pending[i].object;
			return true;
		}
	return false;
}

void pending_remove(struct membership *m, uint64_t cookie)
{
	for (size_t i = 0; i < m->pending_count; i++) {
		if (m->pending[i].cookie == cookie) {
			m->pending[i] = m->pending[--m->pending_count];
			return;
		}
	}
}

void pending_wait(struct membership *m, uint64_t cookie, uint64_t request, uint64_t job,
    bool existed, const char *request_id)
{
	if (m->waiters_count == m->waiters_capacity) {
		size_t capacity = m->waiters_capacity > 0 ? 2 * m->waiters_capacity : 16;
		struct waiter *grown = realloc(m->waiters, capacity * sizeof(*grown));
		if (grown == NULL) {
			m->oom = true;
			return;
		}
		m->waiters = grown;
		m->waiters_capacity = capacity;
	}
	struct waiter *waiter = &m->waiters[m->waiters_count++];
	*waiter = (struct waiter){ .cookie = cookie,
		.request = request,
		.job = job,
		.existed = existed };
	copy_text(waiter->request_id, sizeof(waiter->request_id), request_id);
}

void pending_answer(struct membership *m, uint64_t cookie, tr_status status, const char *text)
{
	size_t kept = 0;
	for (size_t i = 0; i < m->waiters_count; i++) {
		struct waiter w = m->waiters[i];
		if (w.cookie == cookie)
			action_reply(m, w.request, status, status == TR_OK ? w.job : 0, w.existed,
			    text);
		else
			m->waiters[kept++] = w;
	}
	m->waiters_count = kept;
}
