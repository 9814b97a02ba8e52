/* A domain's inside. domain.c: the public calls. domain_state.c: what all members do while they wait. domain_lead.c and
 * domain_member.c: the two ends of domain_link.h's conversation:
 *
 *	             leader                                       member
 *	begin        <- AT_BEGIN of all                           AT_BEGIN ->
 *	(if broken)  BUILD ->, opens, <- BUILT of all             opens, BUILT ->
 *	             tr_round_begin; BEGIN ->                     returns
 *	ops          compares <- OP with its own                  OP ->, starts
 *	commit       <- AT_COMMIT of all                          AT_COMMIT ->
 *	             tr_round_commit; DECIDED ->                  returns unless TR_OK
 *	share        broadcasts; <- SHARED of all; DONE ->        broadcasts; SHARED ->; returns on DONE
 *	(if broken)  BUILD ->, <- BUILT, SHARE ->, broadcasts     the same
 *
 * Broken: a member died or the backend failed. Whoever learns of it aborts its communicator and tells (TROUBLE, BREAK). Ops
 * of the round fail softly until all meet in begin, where a new communicator is built; after the group's commit it is built
 * in place, since the round counts. A communicator's calls are numbered, so that the leader sees who makes which.
 */
#ifndef TR_COLLECTIVES_BACKEND_DOMAIN_INTERNAL_H
#define TR_COLLECTIVES_BACKEND_DOMAIN_INTERNAL_H

#include "collectives/backend/domain_link.h"
#include "collectives/domain.h"

#define DOMAIN_CALLS_KEPT (2 * TR_DOMAIN_OPS_MAX)

struct domain_op {
	struct domain_call call;
	void *data;
	uint64_t sequence; /* summed inside once so many collectives are done */
	/* Leader: */
	void *host;     /* the sum inside, then the group's result */
	bool pinned;    /* `host` is */
	bool submitted; /* to the group, by this attempt or one before */
};

/* Leader: host memory from tr_alloc, which is never given back, so it is used again. */
struct domain_buffer {
	void *memory;
	size_t bytes;
	bool taken;
	bool pinned, unpinnable; /* the backend reaches it by itself; it cannot */
};

/* Leader: what it knows of each member. */
struct domain_member {
	bool here, at_begin, at_commit;
	bool held; /* the message after which nothing was read: a call that the leader has not made yet */
	uint32_t made;      /* calls of this view, as far as heard */
	uint32_t calls;     /* at its commit */
	uint32_t built;     /* newest view it answered for */
	tr_status built_st; /* its answer */
	bool shared;        /* answered */
	struct domain_message message;
};

struct tr_domain {
	const struct backend *backend;
	struct backend_comm *comm; /* NULL: none, or aborted */
	struct backend_place place;
	struct domain_link link;
	uint32_t deadline_ms, wait_ms;
	enum tr_policy policy;
	unsigned number; /* rank at open: names this member in messages */
	uint32_t view;   /* of the domain: grows with every communicator */
	bool entered, clean;
	bool broken, named; /* named: `why` says which member is lost */
	char why[TR_ERROR_TEXT_MAX];
	tr_status ended; /* not TR_OK: over, all calls return it, with `why` */

	uint32_t calls; /* made in this view */
	struct domain_call log[DOMAIN_CALLS_KEPT];
	uint64_t started, done; /* collectives of this communicator */
	bool idle;              /* the last poll found nothing under way */

	bool in_round;
	struct tr_round round;
	struct domain_op ops[TR_DOMAIN_OPS_MAX];
	unsigned ops_count;

	/* Leader */
	struct domain_member members[TR_DOMAIN_MEMBERS_MAX];
	tr_group *group;
	bool group_round; /* begun and neither committed nor abandoned */
	bool committing, abandoned;
	struct tr_error group_error;                /* of tr_allreduce, told at commit */
	struct domain_op sealed[TR_DOMAIN_OPS_MAX]; /* submitted in the group's round */
	unsigned sealed_count;
	struct domain_buffer *buffers;
	size_t buffers_count;
	bool restless; /* the device did not come to rest: pinning might wait for it for ever */

	/* Member: the leader's word that is waited for */
	bool has_word;
	struct domain_message word;
};

static inline bool domain_leads(const struct tr_domain *d)
{
	return d->number == 0;
}

/* Whether call `a` comes before `b`: numbers go around in a domain that runs for weeks. */
static inline bool domain_before(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) < 0;
}

/* domain_state.c */
void domain_break(struct tr_domain *d, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
tr_status domain_end(struct tr_domain *d, tr_status st, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void domain_poll(struct tr_domain *d); /* hears the others, moves the collectives */
/* Until `condition`. TR_ETIMEDOUT: not within wait_ms. Else what ended the domain. */
tr_status domain_wait(struct tr_domain *d, bool (*condition)(const struct tr_domain *),
    uint32_t wait_ms);
tr_status domain_error(const struct tr_domain *d,
    struct tr_error *error); /* why it is broken or ended */
void domain_abort_comm(struct tr_domain *d);
void domain_new_view(struct tr_domain *d, uint32_t view, unsigned rank, unsigned size);
tr_status domain_open_comm(struct tr_domain *d, struct tr_error *error);
tr_status domain_start(struct tr_domain *d, const struct backend_op *op);
void domain_start_broadcasts(struct tr_domain *d);

/* domain_lead.c */
void lead_hear(struct tr_domain *d); /* reads what the members say */
void lead_tell_all(struct tr_domain *d, const struct domain_message *message);
void lead_submit(struct tr_domain *d); /* gives the group what is summed inside */
tr_status lead_build(struct tr_domain *d);
tr_status lead_begin(struct tr_domain *d, struct tr_error *error);
tr_status lead_prepare(struct tr_domain *d, struct domain_op *op, struct tr_error *error);
tr_status lead_commit(struct tr_domain *d, const struct tr_commit *commit, struct tr_error *error);

/* Until what was started inside is done or broken: the deadline counts from when all members have called. */
void lead_finish(struct tr_domain *d);

/* domain_buffers.c */
void domain_buffers_free(struct tr_domain *d); /* all but what the group has borrowed */
struct domain_buffer *domain_buffers_take(struct tr_domain *d, size_t bytes);
void domain_buffers_pin(struct tr_domain *d);   /* while the communicator is idle */
void domain_buffers_close(struct tr_domain *d); /* unpins them */
void domain_buffers_forget_pinned(
    struct tr_domain *d); /* never to be used again: the device may still write to it */

/* domain_member.c */
void member_hear(struct tr_domain *d);
/* Says `kind` to the leader and does what it says, until it says `until` (or, at commit, that the round is over). */
tr_status member_obey(struct tr_domain *d, enum domain_kind kind, enum domain_kind until,
    struct tr_error *error);

#endif
