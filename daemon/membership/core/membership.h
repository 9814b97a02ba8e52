/* The core of memberd: nodes, health, jobs, placement, views. Sans-IO: one step, an event in (with
 * its time), actions out. What must survive goes through the log: the core asks to append an entry
 * (MEMBERSHIP_DO_APPEND) and changes its durable state only when the entry comes back
 * (MEMBERSHIP_APPLIED). Heartbeats, connections and proposals are soft.
 *
 * The rule of views: install is an entry too. A view is sent to members only after its entry was
 * applied, so a number is never used twice, not even after kill -9.
 *
 * The public API is served from here as well: SUBMIT and CANCEL are events with a request id,
 * answered by MEMBERSHIP_DO_REPLY once durable; reads are the const functions below.
 */
#ifndef TR_DAEMON_MEMBERSHIP_CORE_MEMBERSHIP_H
#define TR_DAEMON_MEMBERSHIP_CORE_MEMBERSHIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "common/ids.h"
#include "traind/peer/peer.pb-c.h"
#include "traind/v1/trainer.pb-c.h"

struct membership;

struct membership_options {
	uint64_t heartbeat_interval_ms, heartbeat_timeout_ms, progress_timeout_ms,
	    reconnect_grace_ms;
	bool relays; /* the shell relays, where no node can (MEMBERSHIP_DO_RELAY) */
};

enum membership_event_kind {
	MEMBERSHIP_APPLIED,       /* .entry: committed by the log; also replayed at start */
	MEMBERSHIP_RESTORED,      /* .snapshot: replaces the whole durable state */
	MEMBERSHIP_LEADING,       /* replay is over, we may append; the reconnect grace starts */
	MEMBERSHIP_APPEND_FAILED, /* .cookie: the entry never came to be (disk full: .reason) */
	MEMBERSHIP_MESSAGE,       /* .conn, .message from a node */
	MEMBERSHIP_CLOSED,        /* .conn, .reason */
	MEMBERSHIP_SUBMIT,        /* .request, .submit */
	MEMBERSHIP_CANCEL,        /* .request, .job, .reason */
	MEMBERSHIP_MEASURE,       /* .request, .measure */
	MEMBERSHIP_TICK,
};

struct membership_event {
	enum membership_event_kind kind;
	uint64_t now_ms;    /* monotonic */
	uint64_t unix_ms;   /* wall clock, for people only */
	uint64_t random;    /* fresh entropy for each event; the core has no source of its own */
	uint64_t secret[2]; /* the same, for what nobody else may see */
	uint64_t conn;      /* shell's number of a node connection */
	uint64_t request;   /* shell's number of an API call */
	uint64_t cookie;
	uint64_t job;
	const char *reason;
	const Traind__Peer__LogEntry *entry;
	const Traind__Peer__Snapshot *snapshot;
	const Traind__Peer__ToMember *message;
	const Traind__V1__SubmitJobRequest *submit;
	const Traind__V1__MeasureLinksRequest *measure;
};

enum membership_action_kind {
	MEMBERSHIP_DO_APPEND, /* .entry, .cookie; .may_wait: some ms, for the next entry that may not */
	MEMBERSHIP_DO_SEND,        /* .conn, .message */
	MEMBERSHIP_DO_CLOSE,       /* .conn, .text */
	MEMBERSHIP_DO_REPLY,       /* .request, .status, .job, .existed, .text */
	MEMBERSHIP_DO_JOB_CHANGED, /* .job: watchers look again */
	MEMBERSHIP_DO_LOG,         /* .text: a decision with its reason; .warn */
	MEMBERSHIP_DO_RELAY, /* .message: RelayDuties of our own, all of them; if options.relays */
	MEMBERSHIP_DO_LOG_DATA, /* .log_data (borrowed from the event): a piece of a rank's output
	                           for .stream's reader */
};

struct membership_action {
	enum membership_action_kind kind;
	uint64_t conn, request, cookie, job;
	bool existed, warn, may_wait;
	bool shares; /* .message belongs to an action before this one */
	tr_status status;
	Traind__Peer__LogEntry *entry; /* owned by the actions until group clear: free_unpacked */
	Traind__Peer__ToNode *message; /* likewise */
	const Traind__Peer__LogData *log_data;
	char text[512];
};

struct membership_actions {
	struct membership_action *items;
	size_t count, capacity;
};

tr_status membership_create(const struct membership_options *options,
    struct membership **membership);
void membership_destroy(struct membership *membership);
/* All of the log that was there at the start has been applied. */
bool membership_leading(const struct membership *membership);

tr_status membership_step(struct membership *membership, const struct membership_event *event,
    struct membership_actions *actions, struct tr_error *error);
uint64_t membership_deadline_ms(const struct membership *membership); /* UINT64_MAX: none */

/* The whole durable state, for a snapshot; the caller frees it (free_unpacked). */
Traind__Peer__Snapshot *membership_snapshot(const struct membership *membership);

/* Reads for the API; the caller frees them (free_unpacked). NULL: no such job, or out of memory. with_events: and with peers' links. */
Traind__V1__Job *membership_job(const struct membership *membership, uint64_t job, bool with_events);
Traind__V1__Samples *membership_samples(const struct membership *membership, uint64_t job);
Traind__V1__Links *membership_links(const struct membership *membership, uint64_t now_ms);
Traind__V1__ListJobsResponse *membership_jobs(const struct membership *membership);
Traind__V1__ListNodesResponse *membership_nodes(const struct membership *membership,
    uint64_t now_ms);

/* Where a rank's log is: the node connection now (0: not connected) and the peer, newest placement
 * of that rank first. Fills at most max rows for the job's ranks; for one rank if one_rank. */
struct membership_log_place {
	uint64_t conn, peer;
	uint32_t rank;
	char node_name[64];
};
size_t membership_log_places(const struct membership *membership, uint64_t job, bool one_rank,
    uint32_t rank, struct membership_log_place *places, size_t max);

void membership_actions_clear(struct membership_actions *actions);
void membership_actions_finish(struct membership_actions *actions);

#endif
