#include "collectives/kernels/dispatch.h"

#include <stdatomic.h>
#include <string.h>
#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif

#include "collectives/kernels/self_check.h"
#include "collectives/kernels/variant.h"
#include "common/log.h"

#define VARIANTS_MAX 4

static bool has_avx2(void)
{
#if defined(__x86_64__) || defined(__i386__)
	unsigned a, b, c, d; /* clang 14's __builtin_cpu_supports does not know f16c */
	return __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
#else
	return false;
#endif
}

static bool has_avx512(void)
{
#if defined(__x86_64__) || defined(__i386__)
	return has_avx2() && __builtin_cpu_supports("avx512f") &&
	    __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
	    __builtin_cpu_supports("avx512vl");
#else
	return false;
#endif
}

/* Worst first. */
static unsigned list(const struct variant *found[VARIANTS_MAX])
{
	const struct variant *const all[VARIANTS_MAX] = { variant_plain, variant_base,
		has_avx2() ? variant_avx2 : NULL, has_avx512() ? variant_avx512 : NULL };
	unsigned count = 0;
	for (unsigned i = 0; i < VARIANTS_MAX; i++)
		if (all[i] != NULL)
			found[count++] = all[i];
	return count;
}

const struct variant *variant_best(const struct variant *const *worst_first, unsigned count)
{
	char what[64];
	while (--count > 0) {
		if (self_check_variant(worst_first[count], what, sizeof(what)))
			break;
		log_warn("kernels", "%s differs from plain in %s on this machine: not used",
		    worst_first[count]->name, what);
	}
	return worst_first[count];
}

/* Checked once in the life of the process. */
static const struct variant *best(void)
{
	static const struct variant *_Atomic chosen;
	const struct variant *now = atomic_load_explicit(&chosen, memory_order_relaxed);
	if (now == NULL) { /* two threads that come here at once store the same */
		const struct variant *found[VARIANTS_MAX];
		unsigned count = list(found);
		now = variant_best(found, count);
		atomic_store_explicit(&chosen, now, memory_order_relaxed);
	}
	return now;
}

static const struct variant *_Atomic used;

const struct variant *variant_now(void)
{
	const struct variant *now = atomic_load_explicit(&used, memory_order_relaxed);
	if (now == NULL) {
		now = best();
		atomic_store_explicit(&used, now, memory_order_relaxed);
	}
	return now;
}

const char *const *kernels_variants(void)
{
	static _Thread_local const char *names[VARIANTS_MAX + 1];
	const struct variant *found[VARIANTS_MAX];
	unsigned count = list(found);
	for (unsigned i = 0; i < count; i++)
		names[i] = found[i]->name;
	names[count] = NULL;
	return names;
}

bool kernels_use(const char *name)
{
	const struct variant *found[VARIANTS_MAX];
	unsigned count = list(found);
	if (name == NULL) {
		atomic_store_explicit(&used, best(), memory_order_relaxed);
		return true;
	}
	for (unsigned i = 0; i < count; i++)
		if (strcmp(name, found[i]->name) == 0) {
			atomic_store_explicit(&used, found[i], memory_order_relaxed);
			return true;
		}
	return false;
}

const char *kernels_used(void)
{
	return variant_now()->name;
}
