/* Which rounds of a group were committed, each once: {round, attempt, contributors, samples,
 * digest}. Pure; a part of memberd's durable state. Records come in any order and more than once;
 * the newest TR_ROUND_RECORDS_MAX are kept.
 */
#ifndef TR_DAEMON_MEMBERSHIP_CORE_LEDGER_H
#define TR_DAEMON_MEMBERSHIP_CORE_LEDGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/digest.h"
#include "common/error.h"
#include "traind/peer/peer.pb-c.h"
#include "traind/v1/trainer.pb-c.h"

struct ledger;

enum ledger_verdict {
	LEDGER_NEW,         /* kept, or to be kept */
	LEDGER_KNOWN,       /* the same was recorded before */
	LEDGER_CONTRADICTS, /* another result was recorded for this round */
	LEDGER_BAD,         /* malformed: no round, no contributors, or absurdly far ahead */
	LEDGER_NOMEM,
};

struct ledger *ledger_create(void);
void ledger_destroy(struct ledger *ledger);

enum ledger_verdict ledger_look(const struct ledger *ledger,
    const Traind__Peer__RoundCommit *record);
enum ledger_verdict ledger_add(struct ledger *ledger, const Traind__Peer__RoundCommit *record);
void ledger_replayed(struct ledger *ledger); /* an attempt was abandoned */
/* Rounds from `round` on never were: training goes on from an older checkpoint. */
void ledger_forget_from(struct ledger *ledger, uint64_t round);
/* Rounds before `round` are nobody's business: a group starts there. */
void ledger_start_at(struct ledger *ledger, uint64_t round);
/* Keeps the sums, frees the rows. Duplicates are not noticed any more; everything up to the newest
 * counts as known. */
void ledger_close(struct ledger *ledger);

uint64_t ledger_newest(const struct ledger *ledger);   /* newest recorded round */
uint64_t ledger_frontier(const struct ledger *ledger); /* all rounds up to here are recorded */
uint64_t ledger_recorded(const struct ledger *ledger);
void ledger_account(const struct ledger *ledger, Traind__V1__RoundAccount *account,
    char digest_hex[TR_DIGEST_HEX_MAX]);

/* For snapshots. The caller frees the message. NULL: out of memory. */
Traind__Peer__SnapshotLedger *ledger_pack(const struct ledger *ledger);
struct ledger *ledger_unpack(
    const Traind__Peer__SnapshotLedger *packed); /* NULL: malformed or no memory */

#endif
