#include "daemon/worker/gemm_kernels.h"

#include <cblas.h>
#include <string.h>

#include "common/log.h"

static bool one_of(const char *name, const char *const *names)
{
	for (; *names != NULL; names++)
		if (strcmp(name, *names) == 0)
			return true;
	return false;
}

/* OpenBLAS falls back to older kernels on processors that it does not know, at half the speed or less. */
const char *gemm_kernels_better(const struct gemm_kernels *kernels)
{
	static const char *const avx512[] = { "SkylakeX", "Cooperlake", "Sapphirerapids",
		"SapphireRapids", NULL };
	static const char *const old[] = { "Generic", "Prescott", "Core2", "Penryn", "Dunnington",
		"Nehalem", "Atom", "Athlon", "Opteron", "Barcelona", "Bobcat", "Sandybridge",
		NULL };
	bool told = kernels->asked != NULL && kernels->asked[0] != '\0';
	if (told || strstr(kernels->config, "DYNAMIC_ARCH") == NULL)
		return NULL;
	if (kernels->avx512 && !one_of(kernels->core, avx512))
		return "SkylakeX";
	if (kernels->avx2 && one_of(kernels->core, old))
		return "Haswell";
	return NULL;
}

const char *gemm_kernels_missed(const char *asked)
{
	struct gemm_kernels kernels = {
		.asked = asked,
		.core = openblas_get_corename(),
		.config = openblas_get_config(),
#ifdef __x86_64__
		.avx2 = __builtin_cpu_supports("avx2") != 0,
		.avx512 = __builtin_cpu_supports("avx512dq") != 0 &&
		    __builtin_cpu_supports("avx512bw") != 0 &&
		    __builtin_cpu_supports("avx512vl") != 0,
#endif
	};
	return gemm_kernels_better(&kernels);
}

void gemm_kernels_log(const char *asked)
{
	const char *core = openblas_get_corename(), *better = gemm_kernels_missed(asked);

	if (better != NULL)
		log_warn("gemm",
		    "OpenBLAS uses its %s kernels; this processor can run the faster %s ones: "
		    "start traind with OPENBLAS_CORETYPE=%s",
		    core, better, better);
	else
		log_info("gemm", "OpenBLAS uses its %s kernels", core);
}
