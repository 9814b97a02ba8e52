/* Read before each file by clang-tidy alone (scripts/check.mk): what it cannot see from a declaration. */
#include "common/error.h"

/* They return the status that they were given, which is not TR_OK. */
#define tr_error_set(error, status, ...) \
	((void)tr_error_set((error), (status), __VA_ARGS__), (status))
