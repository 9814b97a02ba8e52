#include "tests/bench/coll_site.h"

#include <stdio.h>
#include <string.h>

#include "tests/bench/processes.h"
#include "tests/wan/client.h"

void coll_site_enter(const char *sites, unsigned rank, char listen[COLL_SITE_LISTEN_MAX])
{
	static char answer[CLIENT_TEXT_MAX];
	char site[64];
	const char *at = sites;
	for (; rank > 0; rank--) {
		at += strcspn(at, ",");
		at = *at == ',' ? at + 1 : sites;
	}
	(void)snprintf(site, sizeof(site), "%.*s", (int)strcspn(at, ","), at);
	if (!client_enter(site, answer))
		processes_die("collbench: --sites", answer);
	(void)snprintf(listen, COLL_SITE_LISTEN_MAX, "%.48s:0", answer);
}
