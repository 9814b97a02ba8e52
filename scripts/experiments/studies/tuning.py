"""What was tuned, most of it in a sixth of the tokens: batch, learning rate and beta2 of data parallel; inner rate, outer rate and momentum of DiLoCo, H = 32."""
from plan import Arm
from studies import hdet, stragglers
from studies.overlap import STREAMING
from studies.quality import DP

ORDER = 0
SEEDS = (1,)
TITLE = "Tuning"
TOKENS = 608 * 4096


def short(kind, batch, lr, beta2=0.95, outer=None):
    """`kind`: dp, or m2 and m4 for DiLoCo of so many workers; `outer`: its rate and momentum."""
    workers = 1 if kind == "dp" else int(kind[1:])
    train = {"steps": TOKENS // batch, "batch_tokens": batch, "lr": lr, "min_lr": lr / 10, "warmup": 128, "beta2": beta2}
    words = [f"short-{kind}-b{batch}-lr-{lr:g}", *([f"beta2-{beta2:g}"] if beta2 != 0.95 else []), *([f"outer-{outer[0]:g}-{outer[1]:g}"] if outer else [])]
    sync = {"mode": "diloco", "inner_steps": 32, "outer_lr": outer[0], "outer_momentum": outer[1]} if outer else {"mode": "ddp"}
    return Arm("-".join(words), nodes=workers, train=train, sync=sync)


ARMS = [short("dp", *rest) for rest in ((4096, 2e-3), (4096, 4e-3), (4096, 8e-3), (4096, 1.6e-2), (2048, 5.6e-3), (1024, 4e-3), (1024, 2.8e-3), (512, 4e-3), (512, 2.8e-3), (512, 2e-3),
                                        (512, 2.8e-3, 0.99), (512, 2e-3, 0.99))]
ARMS += [short("m2", 4096, 8e-3, outer=(0.7, 0.6)), short("m2", 2048, 5.6e-3, outer=(0.9, 0.5)), short("m2", 1024, 4e-3, outer=(0.9, 0.5)),
         short("m2", 1024, 2.8e-3, outer=(0.9, 0.5)), short("m2", 512, 2.8e-3, outer=(0.9, 0.5)), short("m2", 512, 2e-3, outer=(0.9, 0.5)),
         short("m2", 512, 1.4e-3, outer=(0.9, 0.5)), short("m2", 512, 2e-3, outer=(0.9, 0.7)), short("m2", 512, 2e-3, outer=(0.7, 0.9)),
         short("m2", 512, 2e-3, 0.99, outer=(0.9, 0.7)), short("m2", 512, 1.4e-3, 0.99, outer=(0.9, 0.7)), short("m2", 512, 8e-4, 0.99, outer=(0.7, 0.9))]
ARMS += [short("m4", 1024, 2.8e-3, outer=(0.9, 0.5)), short("m4", 512, 2e-3, outer=(0.9, 0.5)), short("m4", 512, 4e-3, outer=(0.9, 0.5)),
         short("m4", 512, 2e-3, outer=(0.9, 0.7)), short("m4", 512, 2e-3, outer=(0.9, 0.8)), short("m4", 512, 1.4e-3, outer=(0.9, 0.8)),
         short("m4", 512, 2e-3, 0.99, outer=(0.9, 0.8)), short("m4", 512, 2.8e-3, 0.99, outer=(0.9, 0.8)),
         short("m4", 512, 8e-4, 0.99, outer=(0.7, 0.9))]


def long(name, lr, nodes=1, **sync):
    """All tokens."""
    return Arm(f"long-{name}", nodes=nodes, train={"lr": lr, "min_lr": lr / 10}, sync={"mode": "diloco", "inner_steps": 32, **sync} if sync else {"mode": "ddp"})


ARMS += [DP, *(long(f"dp-lr-{lr:g}", lr) for lr in (1e-3, 2e-3, 2.8e-3)),
         long("m2-lr-0.002-outer-0.9-0.7", 2e-3, 2, outer_lr=0.9, outer_momentum=0.7), long("m2-lr-0.0005-outer-0.7-0.9", 5e-4, 2, inner_steps=32)]


def overlapped(name, lr, **sync):
    return Arm(name, nodes=2, train={"lr": lr, "min_lr": round(lr / 10, 9)}, sync={"inner_steps": 32, **sync})


ARMS += [overlapped("streaming-m2", 7e-4, mode="streaming", fragments=3, overlap=5), overlapped("streaming-m2-lr-0.0012", 1.2e-3, mode="streaming", fragments=3, overlap=5),
         overlapped("streaming-m2-lr-0.0017", 1.7e-3, mode="streaming", fragments=3, overlap=5), overlapped("streaming-m2-lr-0.0024", 2.4e-3, mode="streaming", fragments=3, overlap=5),
         overlapped("streaming-m2-outer-0.7-0.9", 7e-4, mode="streaming", fragments=3, overlap=5, outer_lr=0.7), overlapped("eager-m2", 7e-4, mode="eager"), overlapped("eager-m2-outer-0.4-0.9", 7e-4, mode="eager", outer_lr=0.4),
         overlapped("eager-m2-lr-0.0012-outer-0.4-0.9", 1.2e-3, mode="eager", outer_lr=0.4),
         STREAMING]


def rates(name, factor, steps=32, **sync):
    """Four that average their parameters, at so many times the best rate; a sixth of the tokens."""
    train = {"steps": TOKENS // 512, "batch_tokens": 512, "lr": 2.8e-3 * factor, "min_lr": 2.8e-4 * factor, "warmup": 128, "beta2": 0.99}
    mode = {"mode": "hdet", "lr_spread": 0.3, **sync} if sync else {"mode": "local_sgd"}
    return Arm(f"short-m4-{name}", nodes=4, train=train, sync={"inner_steps": steps, **mode})


ARMS += [rates("average", 1), rates("average-lr-ninth", 1 / 9)]
ARMS += [rates(f"hdet-lr-ninth-t{steps}-temperature-{temperature:g}", 1 / 9, steps, lr_temperature=temperature)
         for steps, temperature in ((32, 0.002), (32, 0.05), (128, 0.002), (128, 0.05), (256, 0.002))]
ARMS += [hdet.PAPERS, stragglers.LONGER]
NOTES = """*by-speed-h55*: the fastest worker takes 55 steps instead of 32, so that a merge is of as many tokens as with fixed H = 32: 0.3 % behind, so it is not that slow workers
take few steps between merges (weights by tokens, both).

*carry*: streaming whose workers train on, from the take on, where their own movement would bring the group, and carry those steps over to the new outer parameters, in place of alpha's mean (`sync.carry`).

*b*: tokens of a step's batch, of all workers together; *outer*: rate and momentum. plan.TRAIN and studies/quality.py have the outcome. Small batches, so more steps for the
same tokens, are better for all, and make 32 steps a smaller part of the training. An outer step multiplies what the inner ones did by rate / (1 - momentum), 7 with the papers' numbers;
where gradients are mostly noise, the mean of M workers' AdamW steps, each with 1/M of the batch, goes 1/sqrt(M) as far as one worker's with all of it. So inner rate x 7 / sqrt(M)
is what compares with data parallel's rate: in a sixth of the tokens two workers at that come within 0.3 % of data parallel, and arms that are far above it are worse, in all tokens (*long*, and *dp* with 0.0014)
more than in a sixth. All tokens also want smaller rates: of data parallel 0.0014 instead of 0.0028, half of which is the workers'. Four stay 3 % behind in a sixth of the tokens, where the outer momentum has had no time. Large batches with few steps are behind with each of these settings; merging every 8 steps was no remedy there.

*hdet*: four workers that average, begun at a ninth of the best rate. A base that rose would leave *average-lr-ninth* behind on the way to *average*; with each T and temperature it was left behind itself: the base fell (T = 32, by
`lr` in metrics.jsonl: 1.18 after 224 steps, 0.22 after 2,336). What a worker's own
loss says of its rate over T steps from a common start is the noise that its steps add, which grows with the rate and which the next average takes away again, more than what they gained, which stays."""
