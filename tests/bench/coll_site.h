/* Processes of a bench in the sites of a laboratory (docs/wanlab.md) instead of all on this host. */
#ifndef TR_BENCH_COLL_SITE_H
#define TR_BENCH_COLL_SITE_H

#define COLL_SITE_LISTEN_MAX 64

/* This process goes into its site, the `rank`th of the list "eu,us", which begins again at its end; `listen`: where to serve there,
 * "10.99.0.1:0". Without success the process ends and says why. */
void coll_site_enter(const char *sites, unsigned rank, char listen[COLL_SITE_LISTEN_MAX]);

#endif
