#include "collectives/transport/host.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

void host_identity(char identity[HOST_IDENTITY_MAX])
{
	char boot[40] = "";
	struct stat netns;
	FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
	identity[0] = '\0';
	if (file == NULL)
		return;
	if (fgets(boot, sizeof(boot), file) != NULL)
		boot[strcspn(boot, "\n")] = '\0';
	(void)fclose(file);
	if (boot[0] != '\0' && stat("/proc/self/ns/net", &netns) == 0)
		(void)snprintf(identity, HOST_IDENTITY_MAX, "%s/%lu", boot,
		    (unsigned long)netns.st_ino);
}
