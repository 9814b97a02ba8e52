/* Links between the peers of a job, as people are shown them. Pure. */
#ifndef TR_CLIENT_TRAINCTL_PEER_LINKS_H
#define TR_CLIENT_TRAINCTL_PEER_LINKS_H

#include <stdbool.h>
#include <stddef.h>

#include "client/trainctl/print.h"
#include "traind/v1/trainer.pb-c.h"

/* NULL: none is known. */
const Traind__V1__PeerLink *peer_links_slowest(const Traind__V1__Peer *peer);

#define PEER_LINKS_TEXT_MAX 160
/* The slowest of all: "5 to 6, 1.2 MiB/s, 45 ms". False: none is known. */
bool peer_links_text(const Traind__V1__Job *job, char text[PEER_LINKS_TEXT_MAX]);
/* Whom the others wait for: "peer 6", "3 peers". False: for nobody. */
bool peer_links_slow_text(const Traind__V1__Job *job, char text[PRINT_FIGURE_MAX]);

const char *peer_links_rate(const Traind__V1__PeerLink *link,
    char text[PRINT_FIGURE_MAX]); /* "1.2 MiB/s"; "-": not measured */

#endif
