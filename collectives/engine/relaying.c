#include "collectives/engine/relaying.h"

#include <stdio.h>
#include <stdlib.h>

#include "collectives/transport/address.h"
#include "collectives/transport/relay.h"
#include "collectives/transport/relay_waits.h"
#include "common/limits.h"
#include "common/log.h"

#define DUTIES_MAX ((size_t)TR_NODES_MAX * TR_RELAYED_PAIRS_MAX)

tr_status relaying_start(struct relaying *relaying, uv_loop_t *loop, struct tls_context *tls,
    bool insecure, struct listener *listener, const char *memberd, struct tr_error *error)
{
	relaying->anywhere = tls != NULL || insecure;
	(void)snprintf(relaying->memberd, sizeof(relaying->memberd), "%s", memberd);
	tr_status st = relay_create(TR_RELAY_JOINED_MAX, &relaying->relay, error);
	return st == TR_OK ? relay_waits_create(loop, tls, listener, &relaying->waits, error) : st;
}

static tr_status wait_at(struct relaying *relaying, const Traind__Peer__RelayDuties *duties,
    struct tr_error *error)
{
	struct conn_relay *rows = calloc(duties->n_waits + 1, sizeof(*rows));
	if (rows == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory to wait at relays");
	tr_status st = TR_OK;
	for (size_t i = 0; st == TR_OK && i < duties->n_waits; i++) {
		const Traind__Peer__Relayed *row = duties->waits[i];
		if (row->address[0] != '\0')
			st = address_check_told(row->address, relaying->anywhere, error);
		rows[i].say = (struct relay_message){ .kind = RELAY_WAIT,
			.group = row->group,
			.from = row->from,
			.to = row->to,
			.token = { row->token_low, row->token_high } };
		(void)snprintf(rows[i].address, TR_ADDRESS_MAX, "%s",
		    row->address[0] != '\0' ? row->address : relaying->memberd);
	}
	if (st == TR_OK)
		st = relay_waits_set(relaying->waits, rows, duties->n_waits, error);
	free(rows);
	return st;
}

void relaying_duties(struct relaying *relaying, const Traind__Peer__RelayDuties *duties)
{
	struct tr_error error = { 0 };
	if (duties->n_relays > DUTIES_MAX || duties->n_waits > TR_RELAY_WAITING_MAX) {
		log_error("relay", "more ways than a cluster can have");
		return;
	}
	relaying->busy = duties->n_relays + duties->n_waits > 0;
	log_info("relay", "relays %zu ways between peers, is reached over %zu", duties->n_relays,
	    duties->n_waits);
	if (relay_grant_rows(relaying->relay, duties->relays, duties->n_relays, &error) != TR_OK)
		log_error("relay", "%s", error.text);
	if (wait_at(relaying, duties, &error) != TR_OK)
		log_error("relay", "%s", error.text);
}

void relaying_accept(struct relaying *relaying, struct stream stream)
{
	relay_accept(relaying->relay, stream);
}

void relaying_close(struct relaying *relaying)
{
	relay_waits_close(relaying->waits);
	relay_destroy(relaying->relay);
	*relaying = (struct relaying){ 0 };
}
