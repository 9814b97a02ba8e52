/* Ids are one-field structs, so that the compiler refuses a mix-up. Zero is "none". */
#ifndef TR_COMMON_IDS_H
#define TR_COMMON_IDS_H

#include <stdbool.h>
#include <stdint.h>

struct node_id {
	uint64_t value;
};
struct job_id {
	uint64_t value;
};
struct group_id {
	uint64_t value;
};
struct peer_id {
	uint64_t value;
};
struct view_id {
	uint64_t value;
};

#endif
