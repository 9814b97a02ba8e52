#include "daemon/worker/ops.h"

#include <stdbool.h>

static const struct ops ops_plain = OPS_TABLE("plain C");

#if defined(__x86_64__) && !defined(REAL_IS_DOUBLE)
extern const struct ops ops_x86_v3, ops_x86_v4;

/* What x86-64-v3 and -v4 name, as far as compilers use it in loops over numbers. */
static bool has_v3(void)
{
	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
	    __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
}

static bool has_v4(void)
{
	return has_v3() && __builtin_cpu_supports("avx512f") &&
	    __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
	    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

const struct ops *ops_variant(size_t i)
{
	if (i == 0)
		return &ops_plain;
	if (i == 1 && has_v3())
		return &ops_x86_v3;
	if (i == 2 && has_v4())
		return &ops_x86_v4;
	return NULL;
}
#else
const struct ops *ops_variant(size_t i)
{
	return i == 0 ? &ops_plain : NULL;
}
#endif

const struct ops *ops_choose(void)
{
	size_t i = 0;
	while (ops_variant(i + 1) != NULL)
		i++;
	return ops_variant(i);
}
