/* Who holds which sealed segments, as a resume plan says it, from the reports of a test's members. As core_message.h. */
#ifndef TR_TESTS_CORE_HOLDERS_H
#define TR_TESTS_CORE_HOLDERS_H

#include <assert.h>
#include <string.h>

#include "collectives/core/group.h"

#define CORE_HOLDERS_OPS     32
#define CORE_HOLDERS_MEMBERS 8

struct core_holders {
	Traind__Peer__OpHolders ops[CORE_HOLDERS_OPS], *op_list[CORE_HOLDERS_OPS];
	Traind__Peer__Holder holders[CORE_HOLDERS_OPS][CORE_HOLDERS_MEMBERS],
	    *lists[CORE_HOLDERS_OPS][CORE_HOLDERS_MEMBERS];
};

static inline bool core_holders_same(const Traind__Peer__OpHolders *a,
    const Traind__Peer__OpReport *b)
{
	return a->tag == b->tag && a->scope.len == b->scope.len &&
	    (a->scope.len == 0 || memcmp(a->scope.data, b->scope.data, a->scope.len) == 0);
}

/* The ops of `peer`'s report, which may be NULL, in the order in which they are first heard of. `h` and the report stay
 * borrowed by `resume`. */
static inline void core_holders_add(struct core_holders *h, Traind__Peer__Resume *resume,
    uint64_t peer, const Traind__Peer__ViewReport *report)
{
	resume->ops = h->op_list;
	for (size_t k = 0; report != NULL && k < report->n_ops; k++) {
		size_t o = 0;
		while (o < resume->n_ops && !core_holders_same(&h->ops[o], report->ops[k]))
			o++;
		if (o == resume->n_ops) {
			assert(o < CORE_HOLDERS_OPS);
			traind__peer__op_holders__init(&h->ops[o]);
			h->ops[o].tag = report->ops[k]->tag;
			h->ops[o].scope = report->ops[k]->scope;
			h->ops[o].segments = report->ops[k]->segments;
			h->ops[o].holders = h->lists[o];
			h->op_list[o] = &h->ops[o];
			resume->n_ops++;
		}
		size_t at = h->ops[o].n_holders++;
		assert(at < CORE_HOLDERS_MEMBERS);
		traind__peer__holder__init(&h->holders[o][at]);
		h->holders[o][at].peer = peer;
		h->holders[o][at].sealed = report->ops[k]->sealed;
		h->lists[o][at] = &h->holders[o][at];
	}
}

#endif
