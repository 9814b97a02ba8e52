"""train.dropout on real daemons: what is left out of a sample is the same on any mesh, with recomputation, in strict jobs to the bit, in replicas that train apart, and in a step that is done again."""
import json
import os
import signal

import grpc
import pytest

from harness import Cluster, trainctl
from mesh_jobs import STEPS, active, assert_same_training, keyed_spec, reach, rows_of, sharded_spec, train
from test_mesh_sync import apart_spec, assert_same_learning
from test_strict_jobs import assert_same_bits, digest, strict_spec

DROPOUT = 0.1


def dropping(spec, share=DROPOUT):
    spec.train.optimizer.dropout = share
    return spec


@pytest.mark.parametrize("preset", ["gpt2", "llama"])
def test_any_mesh_leaves_out_the_same(tmp_path, text, preset):
    one, other = tmp_path / "one", tmp_path / "other"
    train(tmp_path / "cluster-one", dropping(sharded_spec(text, one, 1, preset=preset)), 1)
    train(tmp_path / "cluster-other", sharded_spec(text, other, 1, preset=preset), 1)
    ours, theirs = rows_of(one), rows_of(other)
    assert abs(ours[1]["loss"] - theirs[1]["loss"]) > 1e-3
    # Before the first step nothing is learned, and nothing is left out of what is only evaluated.
    assert ours[1]["val_loss"] == theirs[1]["val_loss"]
    for name, dp, pp, tp in (("dp2tp2", 2, 1, 2), ("pp2", 1, 2, 1)):
        spec = dropping(keyed_spec(text, tmp_path / name, dp, pp, tp, preset=preset, recompute=pp > 1))
        spec.mesh.sequence_parallel, spec.mesh.zero_owners = tp > 1, dp if dp > 1 else 0
        train(tmp_path / f"cluster-{name}", spec, dp, slots=pp * tp)
        assert_same_training(one, tmp_path / name)


def test_strict_jobs_leave_out_the_same_to_the_bit(tmp_path, text):
    runs = {}
    for name, mesh, share in (("one", (1, 1, 1), DROPOUT), ("split", (2, 1, 2), DROPOUT), ("staged", (1, 2, 1, "auto", 1, True), DROPOUT), ("whole", (1, 1, 1), 0)):
        spec = dropping(strict_spec(text, tmp_path / name, *mesh), share)
        train(tmp_path / f"cluster-{name}", spec, spec.mesh.nodes, slots=spec.mesh.workers_per_node)
        runs[name] = tmp_path / name
    assert_same_bits(runs["one"], runs["split"])
    assert_same_bits(runs["one"], runs["staged"])
    assert digest(runs["whole"]) != digest(runs["one"])


def test_in_bf16_too(tmp_path, text):
    """What is rounded comes behind what is left out and before it: to the bit over any split, with rows of their own and recomputed or not."""
    runs = {}
    for name, mesh, share in (("one", (1, 1, 1), DROPOUT), ("split", (1, 2, 2, "auto", 1, True), DROPOUT), ("whole", (1, 1, 1), 0)):
        spec = dropping(strict_spec(text, tmp_path / name, *mesh, steps=20), share)
        spec.train.optimizer.dtype = "bf16"
        train(tmp_path / f"cluster-{name}", spec, spec.mesh.nodes, slots=spec.mesh.workers_per_node)
        runs[name] = tmp_path / name
    assert_same_bits(runs["one"], runs["split"])
    assert digest(runs["whole"]) != digest(runs["one"])


def test_a_step_done_again_leaves_out_the_same(tmp_path, text):
    """A replica dies: its step is computed once more by those who are left, and the others by other workers than in a calm run."""
    steps = 60
    train(tmp_path / "cluster-calm", dropping(strict_spec(text, tmp_path / "calm", steps=steps)), 1)
    with Cluster(tmp_path / "cluster", nodes=2) as cluster:
        job = cluster.submit(dropping(strict_spec(text, tmp_path / "run", 2, steps=steps)))
        reach(tmp_path / "run", 10)
        os.kill(active(cluster, job)[1].pid, signal.SIGKILL)
        cluster.wait_job(job, "DONE")
    assert_same_bits(tmp_path / "calm", tmp_path / "run")


def test_replicas_that_train_apart(tmp_path, text):
    train(tmp_path / "cluster-one", dropping(apart_spec(text, tmp_path / "one", 2, 1, 1)), 2)
    train(tmp_path / "cluster-split", dropping(apart_spec(text, tmp_path / "split", 2, 2, 1)), 2, slots=2)
    assert assert_same_learning(tmp_path / "one", tmp_path / "split")


def test_a_job_that_goes_on_leaves_out_the_same(tmp_path, text):
    train(tmp_path / "cluster-whole", dropping(sharded_spec(text, tmp_path / "whole", 1, every=10)), 1)
    with Cluster(tmp_path / "cluster", nodes=1) as cluster:
        cluster.wait_job(cluster.submit(dropping(sharded_spec(text, tmp_path / "rest", 1, resume=tmp_path / "whole" / "step-00000010"))), "DONE")
    whole, rest = rows_of(tmp_path / "whole"), rows_of(tmp_path / "rest")
    assert {step: row["loss"] for step, row in rest.items()} == {step: whole[step]["loss"] for step in range(11, STEPS + 1)}
    assert digest(tmp_path / "rest") == digest(tmp_path / "whole")


def test_checkpoints_say_it_and_jobs_may_change_it(tmp_path, text):
    with Cluster(tmp_path / "cluster", nodes=1) as cluster:
        environment = {**cluster.environment, "TRAIND_ADDRESS": cluster.memberd.address}
        cluster.wait_job(cluster.submit(dropping(sharded_spec(text, tmp_path / "run", 1, steps=10))), "DONE")
        assert "wrote" in trainctl("export", tmp_path / "run", "-o", tmp_path / "exported", environment=environment).stdout
        for folder in (tmp_path / "run" / "latest", tmp_path / "exported"):
            config = json.loads((folder / "config.json").read_text())
            assert [config[key] for key in ("resid_pdrop", "embd_pdrop", "attn_pdrop")] == [DROPOUT] * 3
        assert json.loads((tmp_path / "run" / "latest" / "manifest.json").read_text())["dropout"] == DROPOUT
        told = trainctl("import", tmp_path / "exported", "-o", tmp_path / "begin", environment=environment).stdout
        says = "\nIts config.json has {}: a job leaves nothing out, or with train.dropout: {} of the embedding's output, of attention probabilities and of what layers add.\n"
        assert told.endswith(says.format("resid_pdrop 0.1, embd_pdrop 0.1, attn_pdrop 0.1", "0.1 that share"))
        # What it says to do can be done, also where others left out more.
        config.update(resid_pdrop=0.95, attn_pdrop=0.0)
        (tmp_path / "exported" / "config.json").write_text(json.dumps(config))
        told = trainctl("import", tmp_path / "exported", "-o", tmp_path / "other", environment=environment).stdout
        assert told.endswith(says.format("resid_pdrop 0.95, embd_pdrop 0.1, attn_pdrop 0", "0.9 that share, the largest there is,"))
        # On from there without it.
        cluster.wait_job(cluster.submit(sharded_spec(text, tmp_path / "rest", 1, steps=20, resume=tmp_path / "run")), "DONE")
        assert sorted(rows_of(tmp_path / "rest")) == list(range(11, 21))
        assert "dropout" not in json.loads((tmp_path / "rest" / "latest" / "manifest.json").read_text())
        for share, said in ((0.95, "0.95"), (1, "1"), (-0.1, "-0.1"), (float("nan"), "nan")):
            with pytest.raises(grpc.RpcError) as refused:
                cluster.submit(dropping(sharded_spec(text, tmp_path / "never", 1), share))
            assert f"train.dropout: found {said}, allowed: a number from 0 to 0.9" in refused.value.details()
