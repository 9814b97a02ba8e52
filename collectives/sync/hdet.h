/* The learning rates of HDET (arXiv 2604.24708; formulas: struct tr_sync_options, lr_spread). The same bits on every machine: the
 * system's exp, whose last bits differ among processors, is not used. Pure; any thread.
 */
#ifndef TR_COLLECTIVES_SYNC_HDET_H
#define TR_COLLECTIVES_SYNC_HDET_H

#include <stddef.h>
#include <stdint.h>

#include "collectives/sync.h"
#include "collectives/sync/report.h"

/* Of contributor `index` of `contributors` in round `round`; mean over all: 1. */
double hdet_factor(const struct tr_sync_options *options, uint64_t round, unsigned index,
    unsigned contributors);

/* base[0]: b, base[1]: v. */
void hdet_control(const struct tr_sync_options *options, const struct sync_report *reports,
    size_t count, double base[2]);

/* e^x for x <= 0, to 1e-15; 0 below -700. */
double hdet_exp(double x);

#endif
