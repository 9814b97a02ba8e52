"""Every mixture of dp, tp and pp of one, two and four with at most eight workers, two and four chunks, ZeRO-1, sequence parallelism and recomputation, and of dp three (with two owners, which is where all three
hold different moments) with at most twelve, both presets, against one worker of the same model: losses and parameters within 1e-5 after 20 steps, and with train.strict, of powers of two, its bits. Llama's heads
share keys and values by twos, and it has tied and untied heads by turns. (Of these test_matrix_jobs.py and test_strict_jobs.py run some each time, with kills.)"""
import itertools
import math

import pytest

from harness import Cluster
from mesh_jobs import STEPS, assert_same_training, counted_once, keyed_spec
from test_strict_jobs import assert_same_bits, strict_spec

SIZES, WORKERS_MOST, LAYERS = (1, 2, 4), 8, 8
LLAMA = {"preset": "llama", "heads": 8, "kv_heads": 4}  # of tp 4 each has one of keys and values
MODELS = {"gpt2": [{"preset": "gpt2", "heads": 4}], "llama": [{**LLAMA, "tied": "true"}, {**LLAMA, "tied": "false"}]}


def mixtures(strict):
    """dp, pp, tp and further keys; the first one is one worker that keeps its layers."""
    sizes = [sizes for sizes in itertools.product(SIZES, repeat=3) if math.prod(sizes) <= WORKERS_MOST]
    thirds = [] if strict else [(3, pp, tp) for pp, tp in itertools.product(SIZES, repeat=2) if pp * tp <= 4]
    for dp, pp, tp in sizes + thirds:
        chunks = [chunks for chunks in (1, 2, 4) if chunks == 1 or pp > 1 and pp * chunks <= LAYERS]
        owners = {1: (0,), 3: (2,)}.get(dp, (0, 2))
        ways = itertools.product(chunks, owners, (False, True) if tp > 1 else (False,), (False, True))
        for chunks, owners, own_rows, recompute in ways:
            yield dp, pp, tp, {"chunks": chunks, "zero_owners": owners, "sequence_parallel": own_rows, "recompute": recompute}


def learned(cluster, text, folder, model, strict, dp, pp, tp, keys):
    spec = (strict_spec if strict else keyed_spec)(text, folder, dp, pp, tp, **{"steps": STEPS, "layers": LAYERS, **model})
    spec.train.optimizer.micro_sequences = 1 if strict else 2  # enough of them in each part of a strict job's batch for stages of two chunks
    for name, value in keys.items():
        setattr(spec.mesh, name, value)
    job = cluster.submit(spec)
    done = cluster.wait_job(job, "DONE")
    counted_once(cluster, job, STEPS)
    assert "other numbers" not in cluster.events(done)
    return folder


@pytest.mark.parametrize("strict", [False, True], ids=["near", "strict"])
@pytest.mark.parametrize("model", MODELS)
def test_all_mixtures(tmp_path, text, model, strict):
    """Models by turns as bits of the mixture's number add up: so each has any two keys at any two of their values."""
    models, wrong, ones = MODELS[model], [], []
    with Cluster(tmp_path / "cluster", nodes=max(SIZES), slots=WORKERS_MOST) as cluster:
        for variant, asked in enumerate(models):
            ones.append(learned(cluster, text, tmp_path / f"one-{variant}", asked, strict, *next(mixtures(strict))))
        for number, (dp, pp, tp, keys) in enumerate(itertools.islice(mixtures(strict), 1, None), 1):
            variant = number.bit_count() % len(models)
            folder = learned(cluster, text, tmp_path / str(number), models[variant], strict, dp, pp, tp, keys)
            try:
                (assert_same_bits if strict else assert_same_training)(ones[variant], folder)
            except AssertionError as error:
                wrong.append((models[variant], dp, pp, tp, keys, str(error)[:200]))
    assert number + 1 == (140 if strict else 172) and not wrong, wrong
