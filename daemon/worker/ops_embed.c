/* Token and position embedding. */
#include <string.h>

#include "daemon/worker/ops.h"

void OP(embed)(const int32_t *tokens, const real *token_table, const real *position_table,
    size_t length, size_t width, real *x)
{
	for (size_t t = 0; t < length; t++) {
		const real *token = token_table + (size_t)tokens[t] * width;
		if (position_table == NULL)
			memcpy(x + t * width, token, width * sizeof(*x));
		else
			for (size_t i = 0; i < width; i++)
				x[t * width + i] = token[i] + position_table[t * width + i];
	}
}

void OP(embed_backward)(const int32_t *tokens, const real *dx, size_t length, size_t width,
    size_t first, size_t columns, real *dtoken_table, real *dposition_table)
{
	for (size_t t = 0; t < length; t++) {
		const real *d = dx + t * width + first;
		real *token = dtoken_table + (size_t)tokens[t] * width + first;
		for (size_t i = 0; i < columns; i++)
			token[i] += d[i];
		if (dposition_table == NULL)
			continue;
		real *position = dposition_table + t * width + first;
		for (size_t i = 0; i < columns; i++)
			position[i] += d[i];
	}
}
