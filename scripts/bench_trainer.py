#!/usr/bin/env python3
"""Tokens a second of one native worker against PyTorch on the same model, batch and thread count.

The two take turns in short blocks within one run, so that both see the same machine; the ratio of each pair of blocks is taken
and the median printed. PyTorch runs eager: scaled_dot_product_attention, AdamW (fused), clip_grad_norm_; the whole batch at
once or in micro-batches, whichever is faster for it.

	build/venv/bin/python scripts/bench_trainer.py [--build DIR] [--threads N] [--blocks N] [--json]
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

try:
    import torch
except ImportError:
    torch = None

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "parity"))
if torch:
    import gpt2_torch

# name, layers, width, heads, context, sequences of a batch, the trainer's micro-batch, steps a block
CASES = [
    ("quickstart: 4 layers, 128 wide, context 128", 4, 128, 4, 128, 16, 4, 4),
    ("12 layers, 256 wide, context 256", 12, 256, 8, 256, 8, 2, 1),
]


class Native:
    def __init__(self, build, layers, width, heads, context, sequences, micro, threads):
        words = [layers, width, heads, context, sequences, micro, threads]
        self.process = subprocess.Popen(
            [str(ROOT / build / "tests" / "trainer_probe"), "bench", *map(str, words)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def seconds(self, steps):
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=30)


class Torch:
    def __init__(self, layers, width, heads, context, sequences, micro):
        self.model = gpt2_torch.Gpt2(layers, width, heads, context)
        gpt2_torch.randomize(self.model, 1, 0.02)
        batch = torch.randint(0, 256, (sequences, context + 1))
        self.parts = [(b[:, :-1].contiguous(), b[:, 1:].contiguous()) for b in batch.split(micro)]
        self.optimizer = gpt2_torch.optimizer(self.model, 1e-3)
        for group in self.optimizer.param_groups:
            group["fused"] = True

    def seconds(self, steps):
        start = time.perf_counter()
        for _ in range(steps):
            self.optimizer.zero_grad(set_to_none=True)
            for inputs, targets in self.parts:
                (self.model.loss(inputs, targets)[0] / len(self.parts)).backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
        return time.perf_counter() - start


def bench(build, name, layers, width, heads, context, sequences, micro, steps, threads, blocks):
    shape = (layers, width, heads, context, sequences)
    tokens = sequences * context * steps
    native = Native(build, *shape, micro, threads)
    native.seconds(1)
    row = {"case": name, "threads": threads}
    if torch is None:
        row["tokens_per_s"] = tokens / statistics.median(native.seconds(steps) for _ in range(blocks))
        native.close()
        return row
    peers = [Torch(*shape, sequences), Torch(*shape, micro)]
    for runner in peers:
        runner.seconds(1)
    peer = min(peers, key=lambda p: p.seconds(steps))
    ours, theirs = [], []
    for _ in range(blocks):
        ours.append(native.seconds(steps))
        theirs.append(peer.seconds(steps))
    native.close()
    row["tokens_per_s"] = tokens / statistics.median(ours)
    row["torch"] = torch.__version__
    row["torch_tokens_per_s"] = tokens / statistics.median(theirs)
    row["ratio"] = statistics.median(t / o for o, t in zip(ours, theirs))
    return row


def text(row):
    head = "trainer: {case}; each on {threads} thread{s}: {tokens_per_s:.0f} tokens/s".format(
        s="" if row["threads"] == 1 else "s", **row)
    if torch is None:
        return head + " (PyTorch is not installed: `make bench TORCH=1` compares)"
    return head + ", PyTorch {torch} (eager) {torch_tokens_per_s:.0f} tokens/s: {ratio:.2f} times as fast as that".format(**row)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--blocks", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    subprocess.run(["make", "-s", "trainer-probe", f"BUILD={args.build}"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    if torch is not None:
        torch.set_num_threads(args.threads)
    for case in CASES:
        row = bench(args.build, *case, threads=args.threads, blocks=args.blocks)
        print(json.dumps(row) if args.json else text(row), flush=True)


if __name__ == "__main__":
    main()
