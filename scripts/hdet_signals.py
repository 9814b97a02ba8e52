"""What could tell HDET (docs/low-communication.md) which way its learning rate should go: each candidate's sign, at states of training with a rate that is known to be too low, right
or too high. PyTorch alone, no daemons: the model, text and settings of scripts/experiments, whose `run` has made the text.

    build/venv/bin/python scripts/hdet_signals.py TEXT_FOLDER RATE [STEPS]     the signals after STEPS steps of four workers that average every 32

A derivative is that of the loss by the logarithm of the rate: negative says that the rate should rise. Minutes on two cores."""
import copy
import json
import math
import pathlib
import sys

import torch

LAYERS, WIDTH, HEADS, CONTEXT, WORKERS, PERIOD, SPREAD = 3, 136, 4, 128, 4, 32, 0.3


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
        self.qkv, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.up, self.down = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = torch.nn.Embedding(256, WIDTH), torch.nn.Embedding(CONTEXT, WIDTH)
        self.blocks, self.norm = torch.nn.ModuleList(Block() for _ in range(LAYERS)), torch.nn.LayerNorm(WIDTH)
        for name, p in self.named_parameters():
            if p.dim() > 1:
                torch.nn.init.normal_(p, 0, 0.02 / (math.sqrt(2 * LAYERS) if name.endswith(("out.weight", "down.weight")) else 1))

    def forward(self, x, y):
        hidden = self.tokens(x) + self.places.weight
        for block in self.blocks:
            hidden = block(hidden)
        return torch.nn.functional.cross_entropy((self.norm(hidden) @ self.tokens.weight.T).flatten(0, 1), y.flatten())


def draw(text, count, generator):
    windows = torch.stack([text[at:at + CONTEXT + 1] for at in torch.randint(len(text) - CONTEXT - 1, (count,), generator=generator)])
    return windows[:, :-1], windows[:, 1:]


def seeded(seed):
    return torch.Generator().manual_seed(seed)


class Worker:
    def __init__(self, model):
        self.model, self.params = model, list(model.parameters())
        decayed, others = ([p for p in self.params if (p.dim() > 1) == wanted] for wanted in (True, False))
        self.optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0}], betas=(0.9, 0.99))

    def vector(self):
        return torch.nn.utils.parameters_to_vector(self.params).detach()

    def load(self, vector):
        with torch.no_grad():
            torch.nn.utils.vector_to_parameters(vector.clone(), self.params)

    def step(self, rate, batch):
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad()
        loss = self.model(*batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.params, 1.0)
        self.optimizer.step()
        return loss.item()

    @torch.no_grad()
    def loss(self, vector, batches):
        kept = self.vector()
        self.load(vector)
        mean = sum(self.model(*batch).item() for batch in batches) / len(batches)
        self.load(kept)
        return mean


class Group:
    def __init__(self, text):
        torch.manual_seed(0)
        model = Model()
        self.text, self.workers = text, [Worker(copy.deepcopy(model)) for _ in range(WORKERS)]
        self.generators = [seeded(10 + i) for i in range(WORKERS)]

    def cycle(self, rates, steps):
        """Steps apart, then the average: (where all began, where each ended, the average, each one's mean training loss)."""
        start, own = self.workers[0].vector(), []
        for worker, rate, generator in zip(self.workers, rates, self.generators):
            own.append(sum(worker.step(rate, draw(self.text, 1, generator)) for _ in range(steps)) / steps)
        ends = [worker.vector() for worker in self.workers]
        average = sum(ends) / WORKERS
        for worker in self.workers:
            worker.load(average)
        return start, ends, average, own

    def loss(self, vector, batches):
        return self.workers[0].loss(vector, batches)


def mean_and_error(values):
    values = torch.tensor(values)
    return f"{values.mean():+.4f} +- {values.std() / math.sqrt(len(values)):.4f}"


def line(group, start, movement, batches):
    """The derivative at 1 of the loss at start + c movement, by c."""
    return (group.loss(start + (1 + SPREAD) * movement, batches) - group.loss(start + (1 - SPREAD) * movement, batches)) / (2 * SPREAD)


def signals(train, held_out, rate, steps):
    group, history = Group(train), []
    probe, validation = ([draw(text, 64, seeded(seed)) for _ in range(4)] for text, seed in ((train, 5), (held_out, 6)))
    for merge in range(steps // PERIOD):
        warm = min(1, (merge * PERIOD + PERIOD / 2) / 400)
        history.append(group.cycle([rate * warm] * WORKERS, PERIOD)[2])
    print(f"rate {rate:g}, step {steps}: validation loss {group.loss(history[-1], validation):.4f}", flush=True)
    kept = [(worker.vector(), copy.deepcopy(worker.optimizer.state_dict())) for worker in group.workers]
    for period, times in ((32, 6), (128, 3)):
        own_slopes, end_slopes, lines = [], [], []
        for time in range(times):
            for worker, (vector, moments) in zip(group.workers, kept):
                worker.load(vector)
                worker.optimizer.load_state_dict(copy.deepcopy(moments))
            group.generators = [seeded(1000 * time + i + period) for i in range(WORKERS)]
            spread = [SPREAD * ((i + time) % WORKERS - 1.5) / 1.5 for i in range(WORKERS)]
            start, ends, average, own = group.cycle([rate * (1 + s) for s in spread], period)
            squares = sum(s * s for s in spread)
            own_slopes.append(sum(s * loss for s, loss in zip(spread, own)) / squares)
            end_slopes.append(sum(s * group.loss(end, probe) for s, end in zip(spread, ends)) / squares)
            lines.append(line(group, start, average - start, probe))
        print(f"  apart for {period}: a worker's own loss {mean_and_error(own_slopes)}; its end, on a probe batch {mean_and_error(end_slopes)}; "
              f"the average's way, on a probe batch {mean_and_error(lines)}", flush=True)
    for window in (1, 2, 4, 8, 16, 32):
        if window < len(history):
            before = history[-1 - window]
            print(f"  the way of the last {window} merges: {line(group, before, history[-1] - before, validation):+.4f}", flush=True)


def main():
    torch.set_num_threads(1)
    folder, rate = pathlib.Path(sys.argv[1]), float(sys.argv[2])
    text = torch.frombuffer(bytearray((folder / "text.txt").read_bytes()), dtype=torch.uint8).long()
    held_out = json.loads((folder / "text.json").read_text())["held_out_bytes"]
    signals(text[:-held_out], text[-held_out:], rate, int(sys.argv[3]) if len(sys.argv) > 3 else 1280)


if __name__ == "__main__":
    main()
