/* "Did you mean": how far apart two words are. */
#ifndef TR_COMMON_EDIT_DISTANCE_H
#define TR_COMMON_EDIT_DISTANCE_H

#include <stddef.h>

#define TR_EDIT_WORD_MAX 47

/* Levenshtein's distance (1966), with a swap of neighbours as one edit. More than TR_EDIT_WORD_MAX if a word is
 * longer than that. */
unsigned tr_edit_distance(const char *a, const char *b);
/* So many edits in a word of this length are still a slip. */
unsigned tr_edits_of_a_slip(size_t length);

#endif
