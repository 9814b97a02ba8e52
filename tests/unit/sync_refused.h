/* That one field of otherwise good options is refused, with these words. */
#ifndef TR_TESTS_UNIT_SYNC_REFUSED_H
#define TR_TESTS_UNIT_SYNC_REFUSED_H

#include <string.h>

#include "collectives/sync.h"

/* Layers that the tensors of `base` name. */
#define SYNC_REFUSED_LAYERS 4

#define SYNC_REFUSED(base, field, value, words)                                             \
	do {                                                                                \
		struct tr_sync_options options_ = (base);                                   \
		struct tr_error error_ = { 0 };                                             \
		options_.field = (value);                                                   \
		assert_int_equal(tr_sync_complete(&options_, SYNC_REFUSED_LAYERS, &error_), \
		    TR_EINVAL);                                                             \
		assert_non_null(strstr(error_.text, words));                                \
	} while (0)

#endif
