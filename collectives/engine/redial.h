/* When memberd is dialled anew beside a connection to it. After a split has healed a connection is heard again only with its kernel's next try, and these are twice as far apart each time: up to as long
 * as the split was. A new connection is there within a moment. memberd that stands still, or is busy, is no such case: its kernel answers. Pure.
 *
 *	if (tcp_path_get(conn_socket(link->conn), &path) && redial_due(&path))
 *		...dial, and give that up after redial_patience_ms(rtt_s, silent_ms)
 */
#ifndef TR_COLLECTIVES_ENGINE_REDIAL_H
#define TR_COLLECTIVES_ENGINE_REDIAL_H

#include <stdbool.h>
#include <stdint.h>

#include "collectives/transport/tcp_path.h"

/* From one dial that had no answer to the next: half to all of it, so that a cluster does not come back in step. */
#define REDIAL_PAUSE_MS 200

/* What was sent was sent again twice, and in the time that takes, three of the way's own timeouts, there was no answer of any kind: 0.6 s in a local network, 1.1 s over 150 ms. A way that loses packets
 * has answers to those that come through. */
bool redial_due(const struct tcp_path *path);

/* So long a dial may have no answer: eight round trips, as a heartbeat, or a thirty-second of the silence so far, since the way may have become longer than it was: whatever it is now, up to
 * TR_CONN_DIAL_TIMEOUT_MS, a dial has the time for it some day. 0: who was never there may be far away. */
uint32_t redial_patience_ms(double rtt_s, uint64_t silent_ms);

#endif
