#!/usr/bin/env python3
"""PCCL's all-reduce (PyPI: pypccl), measured as collbench measures. A large vector goes as several concurrent all-reduces, as its
authors advise.

    LD_PRELOAD=build/bench/cubic_preload.so build/venv-pccl/bin/python tests/bench/peers/pccl_bench.py --world 4 --bytes 67108864
"""
import os
import signal
import socket
import time

import pccl

import peer

PARTS_MAX = 4  # all-reduces at once; more are slower on two cores
PART_BYTES_MIN = 1 << 20


def free_port():
    """PCCL's master takes no port 0. One that the system gave a moment ago is free unless somebody is very quick."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def master(port):
    pid = os.fork()
    if pid:
        return pid
    node = pccl.MasterNode(listen_address=f"127.0.0.1:{port}")
    node.run()
    while True:
        signal.pause()


def descriptors(array, slot, parts):
    import numpy
    operand = pccl.ReduceOperandDescriptor(datatype=pccl.DataType.FLOAT)
    plain = pccl.QuantizationOptions(pccl.DataType.FLOAT, pccl.QuantizationAlgorithm.NONE)
    made = []
    for number, part in enumerate(numpy.array_split(array, parts)):
        reduce = pccl.ReduceDescriptor(part.size, pccl.ReduceOp.SUM, slot * parts + number, operand, plain)
        made.append(pccl.ReduceOpDescriptor.from_numpy(part, part, reduce))
    return made


def body(rank, case, meet):
    parts = max(1, min(PARTS_MAX, case.bytes // PART_BYTES_MIN))
    communicator = pccl.Communicator(f"127.0.0.1:{PORT}", peer_group=0, p2p_connection_pool_size=parts)
    communicator.connect(n_attempts=15)
    while communicator.get_attribute(pccl.Attribute.GLOBAL_WORLD_SIZE) < case.world:
        communicator.update_topology()
        time.sleep(0.01)
    meet()
    return peer.measure(case, rank, meet, lambda array, slot: communicator.all_reduce_multiple_with_retry(
        descriptors(array, slot, parts), max_in_flight=parts))


PORT = free_port()
PID = master(PORT)
try:
    peer.run("PCCL", f"ring x {PARTS_MAX}", body)
finally:
    os.kill(PID, signal.SIGKILL)
