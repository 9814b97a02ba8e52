#include "daemon/api/grpc_timeout.h"

#include <inttypes.h>
#include <stdio.h>

#define TIMEOUT_DIGITS_MAX 8
#define TIMEOUT_VALUE_MAX  99999999u

/* A unit is multiply / divide milliseconds. */
static const struct timeout_unit {
	char letter;
	uint32_t multiply, divide;
} timeout_units[] = {
	{ 'n', 1, 1000000 },
	{ 'u', 1, 1000 },
	{ 'm', 1, 1 },
	{ 'S', 1000, 1 },
	{ 'M', 60000, 1 },
	{ 'H', 3600000, 1 },
};

#define TIMEOUT_UNITS (sizeof(timeout_units) / sizeof(timeout_units[0]))

bool grpc_timeout_parse(const char *text, size_t length, uint64_t *timeout_ms)
{
	if (length < 2 || length > TIMEOUT_DIGITS_MAX + 1)
		return false;
	uint64_t value = 0;
	for (size_t i = 0; i + 1 < length; i++) {
		if (text[i] < '0' || text[i] > '9')
			return false;
		value = value * 10 + (uint64_t)(text[i] - '0');
	}
	for (size_t i = 0; i < TIMEOUT_UNITS; i++) {
		const struct timeout_unit *unit = &timeout_units[i];
		if (unit->letter == text[length - 1]) {
			*timeout_ms = (value * unit->multiply + unit->divide - 1) / unit->divide;
			return true;
		}
	}
	return false;
}

void grpc_timeout_format(uint64_t timeout_ms, char text[GRPC_TIMEOUT_TEXT_MAX])
{
	for (size_t i = 0; i < TIMEOUT_UNITS; i++) {
		const struct timeout_unit *unit = &timeout_units[i];
		if (unit->divide != 1 || timeout_ms / unit->multiply > TIMEOUT_VALUE_MAX)
			continue;
		(void)snprintf(text, GRPC_TIMEOUT_TEXT_MAX, "%u%c",
		    (unsigned)(timeout_ms / unit->multiply), unit->letter);
		return;
	}
	(void)snprintf(text, GRPC_TIMEOUT_TEXT_MAX, "%uH", TIMEOUT_VALUE_MAX);
}
