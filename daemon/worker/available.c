#include "daemon/worker/available.h"

#include <math.h>
#include <stdio.h>

double available_bytes(void)
{
	char line[128];
	unsigned long long kib = 0;
	FILE *file = fopen("/proc/meminfo", "re");
	while (file != NULL && kib == 0 && fgets(line, sizeof(line), file) != NULL)
		(void)sscanf(line, "MemAvailable: %llu", &kib);
	if (file != NULL)
		(void)fclose(file);
	return kib > 0 ? 1024.0 * (double)kib : INFINITY;
}
