/* "Did you mean": the key at the least edit distance. */
#include "daemon/plan/job_options.h"

#include <string.h>

#include "common/edit_distance.h"

static const char *last_part(const char *key)
{
	const char *dot = strrchr(key, '.');
	return dot != NULL ? dot + 1 : key;
}

const char *job_option_suggest(const char *key)
{
	if (strlen(key) > TR_EDIT_WORD_MAX)
		return NULL;
	const char *best = NULL;
	unsigned best_distance = TR_EDIT_WORD_MAX;
	for (const struct job_option *row = job_options(); row->key != NULL; row++) {
		/* The right name in the wrong section is near as well: "model.lr", "steps". */
		unsigned apart = tr_edit_distance(key, row->key),
		         by_name = 1 + tr_edit_distance(last_part(key), last_part(row->key));
		apart = by_name < apart ? by_name : apart;
		if (apart < best_distance) {
			best_distance = apart;
			best = row->key;
		}
	}
	return best_distance <= tr_edits_of_a_slip(strlen(last_part(key))) ? best : NULL;
}
