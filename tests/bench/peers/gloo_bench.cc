/* Gloo's all-reduce over its TCP transport, measured as collbench measures.
 *
 *	gloo_bench --world 4 --bytes 67108864 --iters 20 --algo halving-doubling
 *
 * An algorithm object is bound to its memory: there is one for each slice, made before the figures begin.
 */
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/barrier_all_to_all.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include "tests/bench/measure.h"
#include "tests/bench/processes.h"

struct peer {
	measure_case c;
	processes *shared;
	const char *algorithm;
	char folder[64];
	std::shared_ptr<gloo::rendezvous::Context> context;
	std::vector<std::unique_ptr<gloo::Algorithm>> ops; /* one for each slice */
	char *data;
};

static std::unique_ptr<gloo::Algorithm> make_op(peer *p, void *data)
{
	std::vector<float *> pointers{ static_cast<float *>(data) };
	int count = static_cast<int>(p->c.bytes / sizeof(float));
	if (strcmp(p->algorithm, "ring-chunked") == 0)
		return std::make_unique<gloo::AllreduceRingChunked<float>>(p->context, pointers, count);
	return std::make_unique<gloo::AllreduceHalvingDoubling<float>>(p->context, pointers, count);
}

static void *memory(void *arg, size_t bytes)
{
	peer *p = static_cast<peer *>(arg);
	size_t slice = (p->c.bytes + 63) / 64 * 64;
	p->data = static_cast<char *>(measure_memory_get(bytes));
	for (size_t at = 0; p->data != nullptr && at + slice <= bytes; at += slice)
		p->ops.push_back(make_op(p, p->data + at));
	return p->data;
}

static void meet(void *arg)
{
	processes_meet(static_cast<peer *>(arg)->shared);
}

static void all_reduce(void *arg, unsigned slot, void *, size_t)
{
	static_cast<peer *>(arg)->ops[slot]->run();
}

static void body(void *arg, unsigned rank)
{
	peer *p = static_cast<peer *>(arg);
	gloo::transport::tcp::attr attr;
	attr.iface = "lo";
	auto device = gloo::transport::tcp::CreateDevice(attr);
	gloo::rendezvous::FileStore store(p->folder);
	p->c.rank = rank;
	p->context = std::make_shared<gloo::rendezvous::Context>(static_cast<int>(rank),
	    static_cast<int>(p->c.world));
	p->context->connectFullMesh(store, device);
	measure_calls calls = {};
	calls.arg = p;
	calls.memory = memory;
	calls.meet = meet;
	calls.op = all_reduce;
	measure_run(&p->c, &calls, &p->shared->results[rank]);
	processes_meet(p->shared); /* nobody closes while another still looks at its sockets */
}

int main(int argc, char **argv)
{
	static const char *const algorithms[] = { "halving-doubling", "ring-chunked", nullptr };
	static peer p;
	measure_options options;
	if (!measure_options_parse(argc, argv, algorithms, &options))
		return 2;
	p.c = options.c;
	p.algorithm = options.algorithm;
	p.shared = processes_create(p.c.world);
	snprintf(p.folder, sizeof(p.folder), "/tmp/gloo_bench-XXXXXX");
	if (p.shared == nullptr || mkdtemp(p.folder) == nullptr)
		return 1;
	bool well = processes_run(p.c.world, body, &p);
	std::string head = std::string("\"peer\": \"Gloo ") + p.algorithm + "\", \"algo\": \"" +
	    p.algorithm + "\", \"transport\": \"tcp\"";
	if (well)
		measure_print(head.c_str(), &p.c, p.shared->results);
	std::string clean = std::string("rm -r '") + p.folder + "'";
	return system(clean.c_str()) == 0 && well ? 0 : 1;
}
