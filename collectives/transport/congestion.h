/* TCP congestion control, chosen for each connection by what its path is, since one default cannot fit a loopback, a LAN
 * and a lossy WAN: bbr paces, which halves a loopback stream; cubic fills a LAN, but at 100 ms and a loss of 1e-4 one
 * stream of it carries about 22 Mbit/s (Mathis et al. 1997: rate ~ MSS / (RTT * sqrt(loss))), where bbr keeps the rate.
 */
#ifndef TR_COLLECTIVES_TRANSPORT_CONGESTION_H
#define TR_COLLECTIVES_TRANSPORT_CONGESTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

#define CONGESTION_NAME_MAX    16
#define CONGESTION_LAN_RTT_US  2000 /* below it a path is a LAN */
#define CONGESTION_CHOICES_MAX 3

/* Names to try, best first, NULL after the last. Pure. */
const char *const *congestion_choices(bool loopback, uint32_t rtt_us);

/* Sets the first name of the list that the kernel has on a TCP socket; false: none of them. */
bool congestion_set(int fd, const char *const *choices);
/* By the connected socket's peer and its handshake's round trip. `wanted` (may be NULL) goes before all others. */
void congestion_choose(int fd, const char *wanted);
/* "" if it cannot be told. */
void congestion_get(int fd, char name[CONGESTION_NAME_MAX]);

/* bbr, with the socket's window as it is: what it had measured is found again within a few round trips, and the 10 s after which it empties the way for 200 ms, to learn how long it is,
 * begin again. Only where it loses nothing by it: false where it is another congestion control, is emptying the way now (its window is four packets then, and would stay so), mends a loss, or
 * where round trips are twice as long as the least one known: by that its window would not fill the way (it may have become longer: bbr has to find out). */
bool congestion_begin_bbr_anew(int fd);

/* TR_EINVAL, with the names that there are: the kernel does not have it, or does not let us use it. */
tr_status congestion_check(const char *name, struct tr_error *error);

#endif
