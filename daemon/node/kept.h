/* What workers that were put out of their group left for those who follow them (daemon/worker/kept.h): a folder for each group, in traind's own. */
#ifndef TR_DAEMON_NODE_KEPT_H
#define TR_DAEMON_NODE_KEPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where those of the group keep it; not made here. "": the path is too long. */
void kept_folder(const char *node, uint64_t group, char *path, size_t size);
/* Whether there is anything. */
bool kept_any(const char *node, uint64_t group);
/* The group is over. 0: all groups, since who kept something has gone with the traind before. */
void kept_drop(const char *node, uint64_t group);

#endif
