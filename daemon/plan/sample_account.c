#include "daemon/plan/sample_account.h"

#include <string.h>

#define SAMPLE_MOST (UINT64_C(1) << 53)
#define ROWS_MOST   4096
#define CAUSE_MOST  64

/* Ascending, apart from each other; `sum` grows by what is in them. */
static bool ranges_valid(Traind__V1__SampleRange *const *rows, size_t count, uint64_t given,
    bool counts, uint64_t *sum)
{
	for (size_t i = 0; i < count; i++) {
		const Traind__V1__SampleRange *r = rows[i];
		uint64_t length = r->to - r->from, in = counts ? r->count : length;
		if (strlen(r->cause) > CAUSE_MOST || r->from >= r->to || r->to > given ||
		    (i > 0 && r->from < rows[i - 1]->to) || in == 0 || in > length)
			return false;
		*sum += in;
	}
	return *sum <= given;
}

bool sample_account_valid(const Traind__V1__SampleAccount *a)
{
	uint64_t sum = 0;
	return a->n_held + a->n_returned + a->n_dropped <= ROWS_MOST && a->per_epoch > 0 &&
	    a->per_epoch <= SAMPLE_MOST && a->given <= SAMPLE_MOST && a->last <= SAMPLE_MOST &&
	    a->anew <= a->given &&
	    (a->beginning_case != TRAIND__V1__SAMPLE_ACCOUNT__BEGINNING_BEGUN ||
	        a->begun <= a->given) &&
	    ranges_valid(a->held, a->n_held, a->given, false, &sum) &&
	    ranges_valid(a->returned, a->n_returned, a->given, false, &sum) &&
	    ranges_valid(a->dropped, a->n_dropped, a->given, true, &sum);
}
