#!/usr/bin/env python3
"""Tokens a second of one native worker against PyTorch on the same model, batch and thread count.

The two take turns in short blocks within one run, so that both see the same machine; the ratio of each pair of blocks is taken
and the median printed. PyTorch runs eager, or with --compile through torch.compile: scaled_dot_product_attention, AdamW (fused), clip_grad_norm_; the
whole batch at once or in micro-batches, whichever is faster for it; bf16 is autocast there and train.dtype here.

	build/venv/bin/python scripts/bench_trainer.py [--build DIR] [--threads N] [--blocks N] [--case WORD] [--compile] [--json]
"""

import argparse
import contextlib
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

try:
    import torch
except ImportError:
    torch = None

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "parity"))
if torch:
    import gpt2_torch
    import llama_torch
    import reference

# name, preset, layers, width, heads, context, sequences of a batch, the trainer's micro-batch, steps a block
CASES = [
    ("quickstart: 4 layers, 128 wide, context 128", "gpt2", 4, 128, 4, 128, 16, 4, 4),
    ("12 layers, 256 wide, context 256", "gpt2", 12, 256, 8, 256, 8, 2, 1),
    ("llama: 12 layers, 256 wide, context 256", "llama", 12, 256, 8, 256, 8, 2, 1),
    ("12 layers, 768 wide, context 256", "gpt2", 12, 768, 12, 256, 4, 2, 1),
]
DTYPES = ("f32", "bf16")


def config(preset, layers, width, heads, context):
    """What Hugging Face's config.json says of such a model."""
    if preset == "gpt2":
        return {"model_type": "gpt2", "n_layer": layers, "n_embd": width, "n_head": heads, "n_positions": context, "vocab_size": 256}
    return {"model_type": "llama", "num_hidden_layers": layers, "hidden_size": width, "num_attention_heads": heads,
            "intermediate_size": (-(-8 * width // 3) + 63) // 64 * 64, "max_position_embeddings": context, "vocab_size": 256,
            "tie_word_embeddings": True, "rms_norm_eps": 1e-5}


class Native:
    def __init__(self, build, preset, layers, width, heads, context, sequences, micro, threads, dtype):
        self.folder = tempfile.TemporaryDirectory()
        path = pathlib.Path(self.folder.name) / "config.json"
        path.write_text(json.dumps(config(preset, layers, width, heads, context)))
        words = [path.parent, sequences, micro, threads] + (["bf16"] if dtype == "bf16" else [])
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
        self.folder.cleanup()


class Torch:
    def __init__(self, preset, layers, width, heads, context, sequences, micro, dtype, compiled):
        self.model = {"gpt2": gpt2_torch.Gpt2, "llama": llama_torch.Llama}[preset](layers, width, heads, context)
        reference.randomize(self.model, 1, 0.02)
        batch = torch.randint(0, 256, (sequences, context + 1))
        self.parts = [(b[:, :-1].contiguous(), b[:, 1:].contiguous()) for b in batch.split(micro)]
        self.optimizer = reference.optimizer(self.model, 1e-3)
        for group in self.optimizer.param_groups:
            group["fused"] = True
        self.forward = torch.compile(self.model) if compiled else self.model
        self.arithmetic = torch.autocast("cpu", dtype=torch.bfloat16) if dtype == "bf16" else contextlib.nullcontext()

    def seconds(self, steps):
        start = time.perf_counter()
        for _ in range(steps):
            self.optimizer.zero_grad(set_to_none=True)
            for inputs, targets in self.parts:
                with self.arithmetic:
                    logits = self.forward(inputs)
                (reference.mean_loss(logits.float(), targets) / len(self.parts)).backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
        return time.perf_counter() - start


def bench(build, name, preset, layers, width, heads, context, sequences, micro, steps, threads, blocks, dtype, compiled):
    shape = (preset, layers, width, heads, context, sequences)
    tokens = sequences * context * steps
    native = Native(build, *shape, micro, threads, dtype)
    native.seconds(1)
    row = {"case": name, "dtype": dtype, "threads": threads, "compiled": compiled}
    if torch is None:
        row["tokens_per_s"] = tokens / statistics.median(native.seconds(steps) for _ in range(blocks))
        native.close()
        return row
    peers = [Torch(*shape, sequences, dtype, compiled), Torch(*shape, micro, dtype, compiled)]
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
    head = "trainer: {case}, {dtype}; each on {threads} thread{s}: {tokens_per_s:.0f} tokens/s".format(
        s="" if row["threads"] == 1 else "s", **row)
    if torch is None:
        return head + " (PyTorch is not installed: `make bench TORCH=1` compares)"
    return head + ", PyTorch {torch} ({mode}) {torch_tokens_per_s:.0f} tokens/s: {ratio:.2f} times as fast as that".format(
        mode="compiled" if row["compiled"] else "eager", **row)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--blocks", type=int, default=9)
    parser.add_argument("--case", default="", help="only cases whose name has this word")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    subprocess.run(["make", "-s", "trainer-probe", f"BUILD={args.build}"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    if torch is not None:
        torch.set_num_threads(args.threads)
    for case in CASES:
        for dtype in DTYPES if args.case in case[0] else ():
            row = bench(args.build, *case, threads=args.threads, blocks=args.blocks, dtype=dtype, compiled=args.compile)
            print(json.dumps(row) if args.json else text(row), flush=True)


if __name__ == "__main__":
    main()
