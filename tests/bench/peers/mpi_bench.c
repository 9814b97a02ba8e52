/* Open MPI's all-reduce, measured as collbench measures. mpirun starts it; which transport it takes is mpirun's option:
 *
 *	mpirun -n 4 --mca pml ob1 --mca btl tcp,self mpi_bench --bytes 67108864 --iters 20 --algo tcp
 *	mpirun -n 4 --mca pml ob1 --mca btl vader,self mpi_bench --bytes 67108864 --iters 20 --algo shm
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/measure.h"

static void *memory(void *arg, size_t bytes)
{
	(void)arg;
	return measure_memory_get(bytes);
}

static void meet(void *arg)
{
	(void)arg;
	(void)MPI_Barrier(MPI_COMM_WORLD);
}

static void all_reduce(void *arg, unsigned slot, void *data, size_t bytes)
{
	(void)arg;
	(void)slot;
	(void)MPI_Allreduce(MPI_IN_PLACE, data, (int)(bytes / sizeof(float)), MPI_FLOAT, MPI_SUM,
	    MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
	static const char *const transports[] = { "tcp", "shm", NULL };
	static struct measure_result results[MEASURE_WORLD_MAX];
	struct measure_options options;
	struct measure_result mine = { 0 };
	int rank, world;
	char head[128];
	(void)MPI_Init(&argc, &argv);
	(void)MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	(void)MPI_Comm_size(MPI_COMM_WORLD, &world);
	if (!measure_options_parse(argc, argv, transports, &options) || world > MEASURE_WORLD_MAX) {
		(void)MPI_Abort(MPI_COMM_WORLD, 2);
		return 2;
	}
	options.c.world = (unsigned)world;
	options.c.rank = (unsigned)rank;
	struct measure_calls calls = { .memory = memory, .meet = meet, .op = all_reduce };
	measure_run(&options.c, &calls, &mine);
	(void)MPI_Gather(&mine, sizeof(mine), MPI_BYTE, results, sizeof(mine), MPI_BYTE, 0,
	    MPI_COMM_WORLD);
	(void)snprintf(head, sizeof(head),
	    "\"peer\": \"Open MPI %s\", \"algo\": \"tuned\", \"transport\": \"%s\"",
	    options.algorithm, options.algorithm);
	if (rank == 0)
		measure_print(head, &options.c, results);
	(void)MPI_Finalize();
	return 0;
}
