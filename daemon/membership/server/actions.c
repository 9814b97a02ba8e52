/* What the core asked for, carried out in order. */
#include "daemon/membership/server/memberd_internal.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/log.h"

static void append(struct memberd *memberd, const struct membership_action *action)
{
	struct tr_error error = { 0 };
	size_t bytes = traind__peer__log_entry__get_packed_size(action->entry);
	uint8_t *packed = malloc(bytes > 0 ? bytes : 1);
	tr_status st = packed == NULL ? tr_error_set(&error, TR_ENOMEM, "out of memory") : TR_OK;
	if (st == TR_OK) {
		(void)traind__peer__log_entry__pack(action->entry, packed);
		st = store_append(memberd->store, packed, bytes, action->cookie,
		    action->may_wait ? STORE_WITH_NEXT : STORE_NOW, &error);
	}
	if (st != TR_OK)
		event_queue_push(memberd,
		    &(struct membership_event){ .kind = MEMBERSHIP_APPEND_FAILED,
		        .cookie = action->cookie },
		    NULL, error.text);
	free(packed);
}

/* A way that is not there is missed by its ends, who say so to us. */
static void relay(struct memberd *memberd, const Traind__Peer__RelayDuties *duties)
{
	struct tr_error error = { 0 };
	log_info("relay", "relays %zu ways between peers", duties->n_relays);
	if (relay_grant_rows(memberd->relay, duties->relays, duties->n_relays, &error) != TR_OK)
		log_error("relay", "%s", error.text);
}

static void carry_out(struct memberd *memberd, const struct membership_action *action,
    struct packed_message *packed)
{
	switch (action->kind) {
	case MEMBERSHIP_DO_APPEND:
		append(memberd, action);
		break;
	case MEMBERSHIP_DO_SEND:
		node_conns_send_same(memberd, action->conn, action->message, packed);
		break;
	case MEMBERSHIP_DO_CLOSE:
		node_conns_finish(memberd, action->conn, action->text);
		break;
	case MEMBERSHIP_DO_REPLY:
		backend_reply(memberd, action);
		break;
	case MEMBERSHIP_DO_JOB_CHANGED:
		trainer_service_job_changed(memberd->service, action->job);
		log_relay_job_changed(memberd, action->job);
		break;
	case MEMBERSHIP_DO_LOG:
		log_write(action->warn ? LOG_WARN : LOG_INFO, "membership", "%s", action->text);
		break;
	case MEMBERSHIP_DO_RELAY:
		relay(memberd, action->message->relay_duties);
		break;
	case MEMBERSHIP_DO_LOG_DATA:
		log_relay_data(memberd, action->log_data);
		break;
	}
}

void actions_carry_out(struct memberd *memberd)
{
	struct packed_message packed = { 0 };
	for (size_t i = 0; i < memberd->actions.count; i++)
		carry_out(memberd, &memberd->actions.items[i], &packed);
	free(packed.bytes);
	membership_actions_clear(&memberd->actions);
}
