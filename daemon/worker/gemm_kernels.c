#include "daemon/worker/gemm_kernels.h"

#include <cblas.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

static const char *missed(const char *asked)
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

void gemm_kernels_prefer(const char *asked, char **argv)
{
	const char *better = missed(asked);
	char program[PATH_MAX];
	ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - 1);

	if (better == NULL || length <= 0 || setenv(GEMM_KERNELS_VARIABLE, better, 1) != 0)
		return;
	program[length] = '\0';
	(void)execv(program, argv);
	(void)unsetenv(GEMM_KERNELS_VARIABLE);
}

void gemm_kernels_log(const char *asked)
{
	const char *core = openblas_get_corename(), *better = missed(asked);

	if (better != NULL)
		log_warn("gemm",
		    "OpenBLAS uses its %s kernels; this processor can run the faster %s ones: "
		    "start traind with " GEMM_KERNELS_VARIABLE "=%s",
		    core, better, better);
	else
		log_info("gemm", "OpenBLAS uses its %s kernels", core);
}
