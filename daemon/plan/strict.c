#include "daemon/plan/strict.h"

uint32_t strict_batch_parts(uint64_t sequences)
{
	uint32_t parts = STRICT_PARTS_MAX;

	while (sequences % parts != 0)
		parts /= 2;
	return parts;
}

uint32_t strict_width_parts(const struct model_config *config)
{
	const uint32_t divided[] = { config->heads, config->kv_heads, config->hidden, config->vocab,
		config->context };
	uint32_t parts = STRICT_PARTS_MAX;

	for (size_t i = 0; i < sizeof(divided) / sizeof(divided[0]); i++)
		while (divided[i] % parts != 0)
			parts /= 2;
	return parts;
}

uint32_t strict_power_of_two(uint32_t most)
{
	uint32_t power = 1;

	while (power <= most / 2)
		power *= 2;
	return power;
}
