"""How the peers that are called from Python measure: as tests/bench/measure.h says, in processes forked from one.

    def body(rank, case, meet):
        ...
        return measure(case, rank, meet, op)      # op(array, slot): all-reduce sum, in place

    run("PyTorch gloo", "gloo", body)
"""
import argparse
import json
import multiprocessing
import os
import socket
import statistics
import struct
import sys
import time

SMALL_BYTES, BATCH, WARM_ROUNDS, PERIOD = 256 << 10, 64, 2, 16
BYTES_SENT_AT = 200  # in the kernel's struct tcp_info
TCP_CONGESTION = 13


def each_tcp_socket():
    """(bytes sent, congestion control) of each connection of this process."""
    for name in os.listdir("/proc/self/fd"):
        try:
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(name))) as one:
                info = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 240)
                congestion = one.getsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, 16)
            yield struct.unpack_from("Q", info, BYTES_SENT_AT)[0], congestion.split(b"\0")[0].decode()
        except (OSError, struct.error):
            continue  # not TCP, or closed meanwhile


def wire_bytes():
    return sum(bytes_sent for bytes_sent, _ in each_tcp_socket())


def status_mib(key):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith(key))


def rollup_mib():
    with open("/proc/self/smaps_rollup") as file:
        return {line.split(":")[0]: int(line.split()[1]) / 1024 for line in file if line.endswith(" kB\n")}


def counted_twice_mib():
    mib = rollup_mib()
    return mib["Rss"] - mib["Pss"]


def contribution(numpy, rank, count):
    pattern = ((rank * 3 + numpy.arange(PERIOD)) % PERIOD + 1).astype(numpy.float32)
    return numpy.resize(pattern, count)


def measure(case, rank, meet, op):
    import numpy
    small = case.bytes < SMALL_BYTES
    ops = min(case.iters, BATCH) if small else 1
    count = case.bytes // 4
    rounds = -(-case.iters // ops)
    mine = contribution(numpy, rank, count)
    wanted = sum(contribution(numpy, k, count) for k in range(case.world))
    data = numpy.empty((ops, count), numpy.float32)
    data[:] = mine
    meet()
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    resident, twice = status_mib("VmRSS:"), counted_twice_mib()
    taken, right, cpu_s, sent = [], True, 0.0, 0
    for number in range(WARM_ROUNDS + rounds):
        timed = number >= WARM_ROUNDS
        if number == WARM_ROUNDS:
            meet()  # all that was sent has left
            sent = wire_bytes()
        data[:] = mine
        meet()
        cpu, before = time.process_time(), time.perf_counter()
        for slot in range(ops):
            op(data[slot], slot)
            now = time.perf_counter()
            if timed:
                taken.append(now - before)
            before = now
        cpu_s += (time.process_time() - cpu) * timed
        right = right and bool((data == wanted).all())
    meet()
    sent = wire_bytes() - sent
    grown = status_mib("VmHWM:") - resident - max(0, counted_twice_mib() - twice)
    busiest = max(each_tcp_socket(), default=(0, ""))
    return {"median_s": statistics.median_high(taken), "right": right, "cpu_s": cpu_s / (rounds * ops),
            "rss_mib": max(0, grown), "caller_mib": data.nbytes / 2**20, "huge_mib": rollup_mib()["AnonHugePages"],
            "wire_bytes": sent / (rounds * ops), "congestion": busiest[1]}


def in_child(body, rank, case, meet, to):
    to.send(body(rank, case, meet))
    meet()  # nobody closes while another still looks at its sockets
    os._exit(0)


def run(name, algorithm, body):
    parser = argparse.ArgumentParser()
    parser.add_argument("--world", type=int, default=2)
    parser.add_argument("--bytes", type=int, default=64 << 20)
    parser.add_argument("--iters", type=int, default=20)
    case = parser.parse_args()
    context = multiprocessing.get_context("fork")
    meet = context.Barrier(case.world).wait
    pipes = [context.Pipe(duplex=False) for _ in range(case.world)]
    children = [context.Process(target=in_child, args=(body, rank, case, meet, pipes[rank][1]), daemon=True)
                for rank in range(case.world)]
    for child in children:
        child.start()
    for _, to in pipes:
        to.close()  # so that a child's death ends what is waited for
    try:
        results = [pipe.recv() for pipe, _ in pipes]
    except EOFError:
        sys.exit(f"{name}: a process failed")
    for child in children:
        child.join()
    slowest = max(result["median_s"] for result in results)
    algbw = case.bytes / slowest / 1e9
    print(json.dumps({
        "peer": name, "algo": algorithm, "transport": "tcp", "world": case.world, "bytes": case.bytes, "dtype": "f32",
        "median_s": slowest, "algbw_gbps": algbw, "busbw_gbps": algbw * 2 * (case.world - 1) / case.world,
        "identical": all(result["right"] for result in results),
        **{key: max(result[key] for result in results) for key in ("rss_mib", "caller_mib", "wire_bytes")},
        "huge_mib": min(result["huge_mib"] for result in results), "cpu_s": sum(result["cpu_s"] for result in results), "congestion": results[0]["congestion"]}))
