#include "daemon/node/devices.h"

#include <hwloc.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/cores.h"

static void add(struct devices *devices, const char *kind, const char *name, const char *model)
{
	if (devices->count == DEVICES_MAX)
		return;
	(void)snprintf(devices->names[devices->count++], DEVICES_NAME_MAX, "%s: %s%s%s", kind, name,
	    model == NULL ? "" : " ", model == NULL ? "" : model);
}

static void add_processor(struct devices *devices, hwloc_topology_t topology)
{
	const char *model = NULL;
	hwloc_obj_t package = hwloc_get_obj_by_type(topology, HWLOC_OBJ_PACKAGE, 0);
	if (package != NULL)
		model = hwloc_obj_get_info_by_name(package, "CPUModel");
	char cores[32];
	(void)snprintf(cores, sizeof(cores), "(%u hardware threads)", devices->cores);
	add(devices, "cpu", model == NULL || model[0] == '\0' ? "unnamed" : model, cores);
}

static void add_accelerators(struct devices *devices, hwloc_topology_t topology)
{
	hwloc_obj_t object = NULL;
	while ((object = hwloc_get_next_osdev(topology, object)) != NULL) {
		if (object->attr->osdev.type != HWLOC_OBJ_OSDEV_GPU &&
		    object->attr->osdev.type != HWLOC_OBJ_OSDEV_COPROC)
			continue;
		const char *model = hwloc_obj_get_info_by_name(object, "GPUModel");
		add(devices, "gpu", object->name == NULL ? "unnamed" : object->name, model);
	}
}

static bool ask_hwloc(struct devices *devices)
{
	hwloc_topology_t topology;
	if (hwloc_topology_init(&topology) != 0)
		return false;
	/* Caches, bridges and the like are of no use here and cost memory. */
	(void)hwloc_topology_set_all_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_NONE);
	(void)hwloc_topology_set_type_filter(topology, HWLOC_OBJ_PACKAGE,
	    HWLOC_TYPE_FILTER_KEEP_ALL);
	(void)hwloc_topology_set_type_filter(topology, HWLOC_OBJ_OS_DEVICE,
	    HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
	bool loaded = hwloc_topology_load(topology) == 0;
	if (loaded) {
		int units = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PU);
		devices->cores = units > 0 ? (unsigned)units : 0;
		devices->memory_bytes = hwloc_get_root_obj(topology)->total_memory;
		add_processor(devices, topology);
		add_accelerators(devices, topology);
	}
	hwloc_topology_destroy(topology);
	return loaded;
}

void devices_detect(struct devices *devices)
{
	*devices = (struct devices){ 0 };
	if (!ask_hwloc(devices) || devices->cores == 0)
		devices->cores = cores_allowed();
	if (devices->memory_bytes == 0)
		devices->memory_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) *
		    (uint64_t)sysconf(_SC_PAGESIZE);
	/* The topology is gone; its pages should be too. */
	(void)malloc_trim(0);
}
