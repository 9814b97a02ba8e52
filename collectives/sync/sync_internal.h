/* Inside tr_sync. Not for others. */
#ifndef TR_COLLECTIVES_SYNC_SYNC_INTERNAL_H
#define TR_COLLECTIVES_SYNC_SYNC_INTERNAL_H

#include "collectives/sync.h"
#include "collectives/sync/costs.h"
#include "collectives/sync/lease.h"
#include "collectives/sync/pace.h"
#include "collectives/sync/parity.h"
#include "collectives/sync/report.h"
#include "collectives/sync/schedule.h"
#include "collectives/sync/search.h"
#include "collectives/sync/shares.h"
#include "common/error.h"
#include "common/limits.h"

#define SYNC_OPTIONS_LEAST offsetof(struct tr_sync_options, batch) /* their first version */

/* tr_sync_complete, of options as long as this library knows them. */
tr_status sync_options_complete(struct tr_sync_options *options, unsigned layers,
    struct tr_error *error);

enum { SYNC_FOLLOW_MAX = 4 };
enum sync_tag {
	SYNC_TAG_FRAGMENT,
	SYNC_TAG_TOTALS,
	SYNC_TAG_REPORTS,
	SYNC_TAG_FRAGMENT_AGAIN, /* without those who drifted */
	SYNC_TAG_TOTALS_AGAIN,
	SYNC_TAG_ROSTER,
	SYNC_TAG_SAID,
	SYNC_TAG_SEARCH,
	SYNC_TAG_FOLLOW, /* SYNC_FOLLOW_MAX of them */
	SYNC_TAG_FOLLOW_LAST = SYNC_TAG_FOLLOW + SYNC_FOLLOW_MAX - 1,
	SYNC_TAG_PARITY, /* and those after it */
};
enum { SYNC_EVENT_MAX = 512 };

/* What is summed with a fragment. */
struct sync_totals {
	double weight; /* by which its movement counts; of all: what their sum is divided by */
	double tokens, samples, sums[TR_SYNC_SUMS];
	struct sync_costs_said costs;
};
enum { SYNC_TOTALS = sizeof(struct sync_totals) / sizeof(double) };

struct sync_tensor {
	char *name;
	float *data;          /* the caller's */
	size_t count, offset; /* in the outer parameters */
	unsigned fragment;
};

/* State, equal on all peers. */
struct sync_counters {
	uint64_t round;            /* merged */
	double lr_base[2];         /* HDET: b and v */
	struct pace_agreed agreed; /* if pace_decides */
	struct sync_costs costs;
	struct search_state search; /* HDET with lr_search */
	double slowest_s; /* of a step, of those who are there or missing; 0: not known (leasing.c) */
	uint64_t steps, race_steps; /* of the group's schedule, as the options have them */
	uint64_t before;            /* its schedule, see there */
};

/* State: digests of what was written at the last merge of a tensor; zeros: not known. */
struct sync_written {
	struct tr_digest outer, momentum;
};

/* What a round came to. */
struct sync_result {
	const float *sum, *residual_next;
	const struct sync_totals *totals;
};

/* What a member that was put out keeps (alone.c): what no merge has; behind it the movement since the last take, of all parameters, then what was on its way, of fragment `fragment` if it is not
 * KEPT_NOTHING: both as from - to. */
struct sync_kept {
	uint64_t magic, parameters, fragments, tensors;
	uint64_t peer; /* who it was */
	uint64_t first,
	    first_after; /* samples: at the head of its queue; and once what was on its way is counted */
	uint64_t fragment, was; /* was: whom it replaced, while no commit had known it; or 0 */
	double on_way_tokens, on_way_steps, on_way_samples, on_way_lost;
	double tokens[SYNC_FRAGMENTS_MAX], steps[SYNC_FRAGMENTS_MAX], samples, lost;
};

struct tr_sync {
	tr_group *group;
	struct tr_sync_options options; /* defaults filled in */
	struct sync_schedule schedule;
	struct sync_tensor *tensors;
	size_t tensor_count;
	size_t first[SYNC_FRAGMENTS_MAX +
	    1]; /* where each fragment begins; the last: how many parameters there are */

	float *outer, *momentum; /* the group's state */
	struct sync_counters *counters;
	struct sync_written *written; /* [tensor_count + 1]; the last one: of the counters, as outer */
	float *delta, *sum; /* of the fragment on its way: what this peer gives, what all come to */
	float *residual, *residual_next; /* of all fragments; NULL: no error feedback */
	struct sync_totals *totals;      /* reduced with the fragment */
	struct sync_report
	    *reports; /* [TR_GROUP_PEERS_MAX], the same, by index; NULL: no need of them */
	struct lease_account *leases; /* state of the group; NULL: the options have no batch */
	struct lease_wish *roster;    /* [TR_GROUP_PEERS_MAX], reduced from the round's begin on */
	struct lease_account
	    *early; /* a newcomer's, until its first commit: what it made of the roster */
	struct lease_said *said; /* [TR_GROUP_PEERS_MAX], by index: what each did with its leases */
	bool enrolled_early;     /* `early` counts */
	uint64_t most;           /* samples of an inner step of this peer, until the next commit */
	/* With share_by_speed, from the first merge on: this peer's part, and to how many the batch was dealt; what the newest commit made of it, until its merge. */
	struct sync_share part, part_next;
	uint64_t dealt, dealt_next;
	float *start, *lead,
	    *lead_momentum; /* eager: where training started, how far this peer is ahead, at what pace */

	struct tr_round round; /* under way */
	struct sync_slot slot;
	bool taken, finished;
	bool follows; /* it knows where training is, and how long it goes on */
	struct pace_progress progress;
	struct pace_agreed
	    paced_by; /* what was agreed when the round began: its commit changes that before its merge */
	double resumed_s;         /* monotonic: since when the caller works */
	struct sync_totals given; /* of the fragment on its way */
	double given_steps;       /* inner steps of it */
	double share;             /* of all weights this peer's in the last merge; 0: not known */
	double tokens[SYNC_FRAGMENTS_MAX],
	    steps[SYNC_FRAGMENTS_MAX];      /* this peer's since the fragment was taken last */
	double samples, sums[TR_SYNC_SUMS]; /* since the last take */
	double lost,
	    given_lost; /* samples whose work was thrown away, used before those: since the last take; said with it */
	struct sync_report report; /* of this peer, with the fragment on its way */
	double lr_scale, loss,
	    loss_tokens; /* of this peer: the mean times tokens, and those, summed since the rate was chosen */
	double departed_s;         /* monotonic */
	double waited_s, flight_s; /* in the merges since the last take */
	uint64_t sent_bytes;       /* by this peer, said */
	bool started, trains;      /* tr_sync_start was called; was left well */
	/* In this try of the round: drift_submit was called; it waits for nothing but its commit; that was asked for. */
	bool compared, settled, closed;
	/* arriving.h: this round is to be decided without this peer's state; how many were. */
	bool defers;
	unsigned deferred;
	double begun_s; /* monotonic: the round */
	/* The round that was taken is committed (closing.h), its merge is still to come: which one, what was agreed with it, and whether the next one has begun. */
	bool committed, begun_ahead;
	uint64_t merging;
	struct pace_agreed agreed;
	/* late.h: training went on from where this peer foresaw the merge; `delta` holds where it went on from. */
	bool foreseen, recalled;
	bool runs_ahead; /* eager, of the slot's round: this peer trains on from where its own share would bring it */
	bool spoilt[SYNC_FRAGMENTS_MAX]; /* what this peer holds of it changed in memory: until its next merge (drift.h) */
	struct tr_commit close; /* when it is settled */

	/* searching.h */
	struct search_told *told; /* by index, as reports; NULL: there is no search */
	struct search_told tell;  /* this peer's, with its next movement */
	uint64_t raced;           /* the race that race_scale is of */
	double race_scale;
	bool raced_late; /* it came when the race had begun, or has had other steps in it than the others: it tells nothing */
	struct {
		float *array; /* the caller's */
		float *sum;
		size_t count;
	} followers[SYNC_FOLLOW_MAX];
	unsigned follower_count;
	bool apart; /* the round under way is of a race: nobody's movement counts but the winner's */

	/* alone.h */
	double merge_since_s; /* monotonic: since when it waits for the merge */
	bool trains_alone;
	uint64_t alone; /* inner steps since then */
	void *brought;  /* what was kept, until this peer begins */
	size_t brought_bytes;
	/* Whose lease it takes over, until its first commit, 0: nobody's; and whose, if no commit knew that one. */
	uint64_t was, was_before;

	struct sync_result result; /* of the round under way */
	struct parity parity;
	struct parity_room again; /* for what is reduced again without those who drifted */
	bool redone;              /* it was, this round */
	bool outcast;             /* this peer is one of them */
	char event[SYNC_EVENT_MAX];
};

static inline bool sync_contributes(const struct tr_sync *sync)
{
	return sync->round.index < sync->round.contributors;
}

/* sync.c: begins the round after the last committed one, again if it has been begun before. */
tr_status sync_begin(struct tr_sync *sync, struct tr_error *error);
/* Behind a commit whose merge is still to come: the next round, if there is one. Who joins finds it, and who crashes left a state that is whole. */
tr_status sync_begin_ahead(struct tr_sync *sync, struct tr_error *error);

/* leasing.c: which account this peer goes by: the group's, or until its first commit its own. */
const struct lease_account *sync_leasing_account(const struct tr_sync *sync);
/* leasing.c: leases of samples among the rounds (lease.h). All but the first two: only if there are leases. */
uint64_t sync_leasing_samples(const struct tr_sync *sync); /* for the next inner step */
bool sync_leasing_is_dry(
    const struct tr_sync *sync); /* no step can be taken before the next merge */
/* At each begin of a round. */
tr_status sync_leasing_submit(struct tr_sync *sync, unsigned flags, struct tr_error *error);
/* With what a member gives to a merge. */
tr_status sync_leasing_submit_said(struct tr_sync *sync, unsigned flags, struct tr_error *error);
bool sync_leasing_is_new(
    const struct tr_sync *sync); /* this peer has no lease: it waits for the roster */
void sync_leasing_enroll(struct tr_sync *sync); /* the roster is there */
bool sync_leasing_has_none(
    const struct tr_sync *sync); /* though it may consume some now: all were handed out */
void sync_leasing_commit(struct tr_sync *sync); /* the round was committed */
void sync_leasing_merge(struct tr_sync *sync);  /* and merged, on all at the same step */
/* Samples of a step of this peer, in the mean, where no more members came than were dealt to. */
double sync_leasing_part(const struct tr_sync *sync);

double sync_monotonic_s(void);

/* The schedule is the group's: who joined, or was put right, may have come with another one. */
static inline void sync_follow_schedule(struct tr_sync *sync)
{
	sync->options.steps = sync->schedule.steps = sync->counters->steps;
	sync->options.lr_race_steps = sync->counters->race_steps;
	sync->schedule.before = sync->counters->before;
}

static inline size_t sync_fragment_count(const struct tr_sync *sync, unsigned fragment)
{
	return sync->first[fragment + 1] - sync->first[fragment];
}

static inline size_t sync_fragment_largest(const struct tr_sync *sync)
{
	size_t largest = 0;

	for (unsigned f = 0; f < sync->options.fragments; f++)
		if (sync_fragment_count(sync, f) > largest)
			largest = sync_fragment_count(sync, f);
	return largest;
}

/* Whether tensor `tensor` is of the fragment under way. */
static inline bool sync_in_slot(const struct tr_sync *sync, size_t tensor)
{
	return sync->tensors[tensor].fragment == sync->slot.fragment;
}

#endif
