#include "common/digest_blocks.h"

bool digest_avx2(uint64_t lanes[DIGEST_LANES], const void *data, size_t blocks)
{
#ifdef __AVX2__
	if (!__builtin_cpu_supports("avx2"))
		return false;
	digest_blocks(lanes, data, blocks);
	return true;
#else
	(void)lanes, (void)data, (void)blocks;
	return false;
#endif
}
