/* The door: connections that were dialled to us and belong to no member yet. Who says hello must have the group's token (View) and be in
 * our view. A member may have a view before us, so that a peer dials that we do not know yet, or before we have any view: then its
 * hello is not taken, nothing more is read of the connection, and it is looked at again with our next view. So many may wait, and
 * so long; some of the places are kept for those that have the token.
 *
 * What a stranger can cost: TR_CONN_UNGREETED_MAX connections for TR_CONN_GREETING_TIMEOUT_MS each, without staging.
 */
#include <inttypes.h>

#include "collectives/engine/inbound.h"
#include "collectives/engine/inbound_link.h"
#include "collectives/transport/shm_hub.h"

/* ---- who is at the door ---- */

static struct inbound_list *list_of(const struct inbound *in)
{
	return in->waits ? &in->engine->waiting : &in->engine->strangers;
}

static void list_add(struct inbound_list *list, struct inbound *in)
{
	struct inbound **at = &list->first;
	while (*at != NULL)
		at = &(*at)->next;
	*at = in;
	list->count++;
}

static void list_remove(struct inbound_list *list, struct inbound *in)
{
	struct inbound **at = &list->first;
	while (*at != NULL && *at != in)
		at = &(*at)->next;
	if (*at == NULL)
		return;
	*at = in->next;
	in->next = NULL;
	list->count--;
}

static void watch(struct engine *engine)
{
	uint64_t now_ms = uv_now(&engine->loop), due_ms = UINT64_MAX;
	const struct inbound *oldest[] = { engine->strangers.first, engine->waiting.first };
	for (unsigned i = 0; i < 2; i++)
		if (oldest[i] != NULL && oldest[i]->deadline_ms < due_ms)
			due_ms = oldest[i]->deadline_ms;
	if (due_ms == UINT64_MAX || engine->stopping)
		return;
	(void)uv_timer_start(&engine->hello_timer, inbound_on_hello_timer,
	    due_ms > now_ms ? due_ms - now_ms : 0, 0);
}

static void turn_away(struct inbound *in, const char *reason)
{
	list_remove(list_of(in), in);
	lane_close(in->lane, reason);
}

void inbound_on_hello_timer(uv_timer_t *timer)
{
	struct engine *engine = timer->data;
	uint64_t now_ms = uv_now(&engine->loop);
	while (engine->strangers.first != NULL && engine->strangers.first->deadline_ms <= now_ms)
		turn_away(engine->strangers.first, "it did not say whom it wants in time");
	while (engine->waiting.first != NULL && engine->waiting.first->deadline_ms <= now_ms)
		turn_away(engine->waiting.first, "its peer came in no view of ours");
	watch(engine);
}

void inbound_door_close(struct engine *engine)
{
	while (engine->strangers.first != NULL)
		turn_away(engine->strangers.first, "the engine stops");
	while (engine->waiting.first != NULL)
		turn_away(engine->waiting.first, "the engine stops");
}

void inbound_door_enter(struct engine *engine, struct inbound *in)
{
	in->engine = engine;
	in->deadline_ms = uv_now(&engine->loop) + TR_CONN_GREETING_TIMEOUT_MS;
	list_add(&engine->strangers, in);
	if (engine->strangers.count > TR_CONN_UNGREETED_MAX)
		turn_away(engine->strangers.first, "too many others have not said whom they want");
	watch(engine);
}

void inbound_door_left(struct inbound *in)
{
	list_remove(list_of(in), in);
}

void inbound_door_look(struct engine *engine)
{
	for (struct inbound *in = engine->waiting.first; in != NULL; in = in->next)
		lane_resume(in->lane);
}

/* ---- hello ---- */

/* How long it takes says nothing about where they differ. */
static bool same_token(const uint64_t a[2], const uint64_t b[2])
{
	volatile uint64_t differ = (a[0] ^ b[0]) | (a[1] ^ b[1]);
	return differ == 0;
}

static tr_status check_claim(struct engine *engine, const struct shm_claim *claim,
    struct member **member, struct tr_error *error)
{
	*member = engine_find(engine, claim->group, claim->to);
	if (*member == NULL || (*member)->over)
		return tr_error_set(error, TR_ENOTFOUND,
		    "peer %" PRIu64 " of group %" PRIu64 " is not here", claim->to, claim->group);
	if ((*member)->view == 0)
		return TR_EAGAIN;
	if (!same_token((*member)->token, claim->token))
		return tr_error_set(error, TR_EREFUSED,
		    "it does not have the token of group %" PRIu64, claim->group);
	return TR_OK;
}

bool inbound_door_admits(struct engine *engine, const struct shm_claim *claim)
{
	struct tr_error error = { 0 };
	struct member *member;
	tr_status st = check_claim(engine, claim, &member, &error);
	if (st == TR_OK || st == TR_EAGAIN)
		return true;
	log_limited(&engine->drops, uv_now(&engine->loop), LOG_INFO, "engine",
	    "shared memory refused: %s", error.text);
	return false;
}

/* What a peer shows stays mapped until the next view, also when its lane has ended: one that comes back again and again in a view that
 * does not change would have ever more mapped here. */
static tr_status check_imports(const struct inbound *in, const struct member *member, uint64_t from,
    struct tr_error *error)
{
	unsigned mapped = member_kept_imports(member, from);
	if (traffic_transport(in->lane) != TR_TRANSPORT_SHM)
		return TR_OK;
	for (const struct inbound *other = member->inbound; other != NULL; other = other->next)
		mapped += other->from == from && traffic_transport(other->lane) == TR_TRANSPORT_SHM;
	if (mapped < TR_SHM_IMPORTS_MAX)
		return TR_OK;
	return tr_error_set(error, TR_ELIMIT,
	    "peer %" PRIu64 " shows its memory again: at most %u times in a view", from,
	    TR_SHM_IMPORTS_MAX);
}

static tr_status check_number(const struct inbound *in, const struct member *member, uint64_t from,
    struct tr_error *error)
{
	unsigned count = 0;
	for (const struct inbound *other = member->inbound; other != NULL; other = other->next)
		count += other->from == from;
	if (count < TR_INBOUND_PEER_MAX && in->engine->inbound_count < TR_INBOUND_MAX)
		return TR_OK;
	return tr_error_set(error, TR_ELIMIT,
	    "peer %" PRIu64 " has %u connections to us, all peers %u: at most %u and %u", from,
	    count, in->engine->inbound_count, TR_INBOUND_PEER_MAX, TR_INBOUND_MAX);
}

/* TR_EAGAIN; an error: there are too many. */
static tr_status wait_for_view(struct inbound *in, bool proven, struct tr_error *error)
{
	struct engine *engine = in->engine;
	unsigned most = proven ? TR_HELLOS_WAITING_MAX
	                       : TR_HELLOS_WAITING_MAX - TR_HELLOS_WAITING_PROVEN;
	if (in->waits)
		return TR_EAGAIN;
	if (engine->waiting.count >= most)
		return tr_error_set(error, TR_ELIMIT,
		    "%u connections wait for a view that names their peer: no more than that",
		    engine->waiting.count);
	list_remove(&engine->strangers, in);
	in->waits = true;
	in->deadline_ms = uv_now(&engine->loop) + TR_HELLO_WAIT_MS;
	list_add(&engine->waiting, in);
	watch(engine);
	return TR_EAGAIN;
}

static tr_status let_in(struct inbound *in, struct member *member,
    const Traind__Peer__PeerHello *hello, struct tr_error *error)
{
	tr_status st = check_imports(in, member, hello->from, error);
	if (st == TR_OK)
		st = check_number(in, member, hello->from, error);
	if (st != TR_OK)
		return st;
	if (hello->link != 0) {
		st = inbound_link_join(member, hello->from, hello->link, hello->lane, &in->link,
		    error);
		if (st != TR_OK)
			return st;
		in->number = hello->lane;
	}
	list_remove(list_of(in), in);
	in->waits = false;
	in->lane->known = true;
	in->member = member;
	in->from = hello->from;
	in->next = member->inbound;
	member->inbound = in;
	member->holds++;
	in->engine->inbound_count++;
	return TR_OK;
}

tr_status inbound_door_hello(struct inbound *in, const Traind__Peer__PeerMessage *message,
    struct tr_error *error)
{
	if (message->body_case != TRAIND__PEER__PEER_MESSAGE__BODY_HELLO)
		return tr_error_set(error, TR_EPROTO, "the first message is no hello");
	const Traind__Peer__PeerHello *hello = message->hello;
	const struct shm_claim claim = { hello->group, hello->to,
		{ hello->token_low, hello->token_high } };
	struct member *member;
	if (hello->from == 0 || hello->from == hello->to)
		return tr_error_set(error, TR_EPROTO, "a hello from peer %" PRIu64, hello->from);
	tr_status st = check_claim(in->engine, &claim, &member, error);
	if (st == TR_EAGAIN || (st == TR_OK && member_view_peer(member, hello->from) == NULL))
		return wait_for_view(in, st == TR_OK, error);
	return st == TR_OK ? let_in(in, member, hello, error) : st;
}
