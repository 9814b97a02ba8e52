/* State that comes over several rounds (tr_state_add_gradual): what of it is here when a round is decided without the rest, and what that is worth afterwards.
 *
 *	comes --deferred: comes, but is not whole before--> decided: nothing is written, it is of the round after --asked for again--> the rest comes
 *	  ^______________________the round begins again_______|
 *
 * Whole units of gradual tensors stay: the caller changes them with the round's results, as those who hold them do. What is no gradual tensor comes anew, and
 * so do digests. A unit of which something was on its way is lost.
 */
#include "collectives/core/bits.h"
#include "collectives/engine/state_receive.h"

static bool tensor_here(const struct state_receive *receive, unsigned tensor)
{
	for (uint64_t i = receive->map.first[tensor]; i < receive->map.first[tensor + 1]; i++)
		if (!bits_get(receive->plan.have, i))
			return false;
	return true;
}

/* What the caller reads of it, and changes otherwise than element by element. */
static bool rest_here(const struct member *member)
{
	const struct channel_host *host = member->host;
	for (unsigned i = 0; i < host->tensor_count; i++)
		if (host->tensors[i].gradual == 0 && !tensor_here(member->state_receive, i))
			return false;
	return true;
}

static uint64_t bytes_missing(const struct state_receive *receive)
{
	uint64_t bytes = 0;
	for (uint64_t i = 0; receive->plan.missing > 0 && i < receive->plan.chunks; i++)
		if (!bits_get(receive->plan.have, i))
			bytes += state_map_at(&receive->map, i).bytes;
	return bytes;
}

/* The tensors from `first` on that are of one unit, or of none; whether all of it is here. */
static unsigned unit_end(const struct member *member, unsigned first, bool *here)
{
	const struct channel_host *host = member->host;
	unsigned end = first;
	*here = true;
	for (;
	     end < host->tensor_count && host->tensors[end].gradual == host->tensors[first].gradual;
	     end++)
		*here = *here && tensor_here(member->state_receive, end);
	return end;
}

static uint64_t bytes_whole(const struct member *member)
{
	const struct channel_host *host = member->host;
	uint64_t bytes = 0;
	unsigned end;
	for (unsigned first = 0; first < host->tensor_count; first = end) {
		bool here;
		end = unit_end(member, first, &here);
		for (unsigned i = first; here && host->tensors[i].gradual != 0 && i < end; i++)
			bytes += host->tensors[i].bytes;
	}
	return bytes;
}

void state_gradual_progress(const struct member *member, struct tr_state_progress *progress)
{
	const struct state_receive *receive = member->state_receive;
	for (unsigned i = 0; i < member->host->tensor_count; i++)
		progress->bytes += member->host->tensors[i].bytes;
	if (receive == NULL) {
		progress->missing = member->state_here ? 0 : progress->bytes;
		return;
	}
	progress->missing = bytes_missing(receive);
	uint64_t here = progress->bytes - progress->missing;
	progress->came = here > receive->here_before ? here - receive->here_before : 0;
	uint64_t whole = bytes_whole(member);
	progress->kept = whole > receive->here_before ? whole - receive->here_before : 0;
	progress->may_defer = group_core_may_defer(member->core) && !receive->local &&
	    !receive->paused && rest_here(member);
}

/* A unit that is not whole is nothing: what is here of it would be changed by what is not. */
static void drop_parts(const struct member *member)
{
	struct state_receive *receive = member->state_receive;
	const struct channel_host *host = member->host;
	unsigned end;
	for (unsigned first = 0; first < host->tensor_count; first = end) {
		bool here;
		end = unit_end(member, first, &here);
		if (!here && host->tensors[first].gradual != 0)
			state_plan_spoilt(&receive->plan, receive->map.first[first],
			    receive->map.first[end]);
	}
}

void state_gradual_defer(struct member *member)
{
	if (member->state_receive != NULL)
		member->state_receive->deferred = true;
}

/* What is here is of the round before: the caller changes it now. */
static void hand_over(struct member *member)
{
	struct state_receive *receive = member->state_receive;
	state_receive_close(member, "the round is decided without the rest of the state");
	state_ask_nobody(receive);
	drop_parts(member);
	for (unsigned i = member->host->tensor_count; i-- > 0;)
		if (member->host->tensors[i].gradual == 0)
			state_plan_spoilt(&receive->plan, receive->map.first[i],
			    receive->map.first[i + 1]);
	receive->told = receive->alone = false;
	receive->paused = true;
	receive->round++;
	state_receive_hash_again(receive);
}

void state_gradual_decided(struct member *member, tr_status status, uint64_t round)
{
	struct state_receive *receive = member->state_receive;
	if (receive == NULL)
		return;
	if (receive->deferred && status == TR_OK && receive->round + 1 == round)
		hand_over(member);
	else if (receive->deferred)
		state_work_wake(
		    member); /* the round begins again: all that came is right, and may be whole */
	receive->deferred = false;
}

void state_gradual_resume(struct member *member)
{
	struct state_receive *receive = member->state_receive;
	if (!receive->paused)
		return;
	receive->paused = false;
	receive->view = member->view;
	struct tr_state_progress progress = { 0 };
	state_gradual_progress(member, &progress);
	receive->here_before = progress.bytes - progress.missing;
	/* Nothing is to come that would begin it: it is digested while the donor does so. */
	if (receive->plan.missing == 0)
		state_work_wake(member);
}
