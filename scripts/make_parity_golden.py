#!/usr/bin/env python3
"""Writes tests/parity/golden_*.safetensors: a small model's weights, batch, logits, gradients and losses by PyTorch, so that
tests/unit/test_model_parity.c compares where PyTorch is not installed. Run with build/venv/bin/python after
`scripts/venv.sh torch`."""

import pathlib
import sys

import torch
from safetensors.torch import save_file

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "parity"))
import gpt2_torch  # noqa: E402
import llama_torch  # noqa: E402
import reference  # noqa: E402

MODELS = {
    "gpt2": lambda: gpt2_torch.Gpt2(layers=2, width=32, heads=4, context=24),
    "llama": lambda: llama_torch.Llama(layers=2, width=32, heads=4, context=24, kv_heads=2, hidden=48, tied=False),
}


def main():
    torch.set_num_threads(1)
    for name, make in MODELS.items():
        model = make()
        reference.randomize(model, seed=1)
        batch = torch.randint(0, 256, (3, 25), generator=torch.Generator().manual_seed(2))
        golden = reference.reference(model, batch)
        path = ROOT / "tests" / "parity" / f"golden_{name}.safetensors"
        save_file(golden, path, metadata={"format": "pt", "torch": torch.__version__})
        print(f"{path}: {len(golden)} tensors, losses {golden['losses'].tolist()}")


if __name__ == "__main__":
    main()
