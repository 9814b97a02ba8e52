/* What a laboratory looks like: sites, and the wires between them. Text in, shapes out; pure. A file and what one says to a
 * running laboratory (wanlab set ...) have the same lines:
 *
 *	site NAME [up=RATE] [down=RATE] [queue=BYTES]   a site, and what all its traffic shares; in files only
 *	link A B KEY=VALUE ...                          both ways between A and B
 *	set A B KEY=VALUE ...                           from A to B
 *	set A up=RATE down=RATE queue=BYTES
 *	cut A [B]         nothing goes through either way any more, and what is under way is lost
 *	blackhole A B     what A sends to B from now on is lost
 *	drop A B PORT     the same both ways, but only for TCP connections with this port
 *	heal A [B]        takes these back
 *
 *	delay=50ms jitter=2ms rate=100mbit queue=1mb burst=64kb loss=0.1% reorder=on
 *
 * `all` stands for every (other) site. Pairs that nobody named are unlimited and immediate. Keys that a line leaves out stay as
 * they are. A # begins a comment. Units: ns us ms s; bit kbit mbit gbit; b kb mb (1000 each, as for bits); a queue in time is
 * that of the rate.
 */
#ifndef TR_TESTS_WAN_TOPOLOGY_H
#define TR_TESTS_WAN_TOPOLOGY_H

#include "common/error.h"
#include "tests/wan/wire.h"

#define TOPOLOGY_SITES_MAX 16
#define TOPOLOGY_NAME_MAX  16 /* NUL included */
#define TOPOLOGY_PORTS_MAX 32 /* dropped between two sites at a time */
#define TOPOLOGY_LINE_MAX  256

struct topology_pair {
	struct wire_shape shape;
	uint16_t ports[TOPOLOGY_PORTS_MAX]; /* 0: unused */
};

struct topology_site {
	char name[TOPOLOGY_NAME_MAX];
	struct wire_shape up, down;
};

struct topology {
	unsigned count;
	struct topology_site sites[TOPOLOGY_SITES_MAX];
	struct topology_pair pairs[TOPOLOGY_SITES_MAX][TOPOLOGY_SITES_MAX]; /* [from][to] */
};

/* One line. `founding`: sites may be made. On an error nothing has changed. */
tr_status topology_line(struct topology *topology, const char *line, bool founding,
    struct tr_error *error);
/* All of a file's or a message's lines, or nothing; the error names the line. */
tr_status topology_lines(struct topology *topology, const char *text, bool founding,
    struct tr_error *error);
/* The site's place, or -1. */
int topology_find(const struct topology *topology, const char *name);

#endif
