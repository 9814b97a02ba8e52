"""Native jobs that talk rarely (sync.mode other than ddp) on real daemons: the example files at small size; a death and a join."""
import json
import math
import struct

import pytest

from harness import Cluster, trainctl, trainctl_json, wait_for
from stubs import ROOT, pb
from test_training import BATCH, job_spec, metrics, reach_file, another_than_the_writer, writer_of, text  # noqa: F401 (a fixture)


def rare(mode, *words, **sync):
    spec = job_spec(*words)
    spec.train.sync.Clear()
    spec.train.sync.MergeFrom(pb.Sync(mode=mode, **sync))
    return spec


@pytest.mark.parametrize("name", ["diloco-wan", "sharded-wan", "streaming-wan", "sharded-streaming", "hdet"])
def test_example_file_runs_small(tmp_path, name):
    """Each file of configs/ that talks rarely, with a smaller model and fewer steps."""
    with Cluster(tmp_path / "cluster", nodes=3 if name == "hdet" else 2, slots=2 if "sharded" in name else 1) as cluster:
        # Steps that are long beside a message: else what a busy machine makes merges wait for is more than they can hide.
        width = 128 if "streaming" in name else 32
        sizes = {"train.steps": 150, "train.batch_tokens": 512, "model.layers": 2, "model.width": width, "model.context": 64,
                 "train.warmup": 10, "train.eval_every": 50, "train.eval_sequences": 4, "checkpoint.every": 60,
                 "checkpoint.dir": tmp_path / "run"}
        words = [word for key, value in sizes.items() for word in ("--set", f"{key}={value}")]
        trainctl("--address", cluster.memberd.address, "launch", ROOT / "configs" / f"{name}.yaml", *words)
        status = trainctl_json("--address", cluster.memberd.address, "status", "1")
        merges = status["merges"]
        (tmp_path / "link.svg").symlink_to("loss.svg")  # what is no file is written through, not replaced
        plot = trainctl_json("--address", cluster.memberd.address, "plot", "1", "-o", tmp_path / "link.svg")
        shown = trainctl("--address", cluster.memberd.address, "status", "1").stdout
    rows = metrics(tmp_path / "run")
    assert max(rows) == 150 and rows[150]["loss"] < rows[min(rows)]["loss"] - 0.3
    assert (tmp_path / "run" / "latest" / "model.safetensors").exists()
    assert any(row["val_loss"] for row in rows.values())
    # Far fewer bytes than data parallel would have sent; the movement itself is not less than what the codec makes of it.
    every, bits = {"diloco-wan": (64, 4), "sharded-wan": (64, 4), "streaming-wan": (60, 4), "sharded-streaming": (60, 4), "hdet": (16, 8)}[name]
    least = merges["dense_bytes"] / every * bits / 32
    without = 3 if "sharded" in name else 1  # rounds in which nothing is merged: the last one, and of shards those that gather a checkpoint
    assert 1 < merges["count"] == status["rounds"]["committed"] - without and least * 0.9 < merges["sent_bytes"] < 4 * least
    assert merges["hidden"] > 0.2 if "streaming" in name else merges["hidden"] < 1e-6
    assert rows[150]["sent_bytes"] == merges["sent_bytes"] and "of data parallel training" in shown
    of = "" if name == "hdet" else f" of {merges['count']}"  # not said where the rate is searched for
    assert f"\nmerges      {merges['count']}{of}\n" in shown, shown
    assert plot["runs"][0]["steps"] == 150 and (tmp_path / "link.svg").is_symlink() and (tmp_path / "loss.svg").read_text().count("loss over") == 2


BY_STEPS = dict(inner_steps=10)


@pytest.mark.parametrize("mode,settings", [("diloco", BY_STEPS), ("streaming", dict(BY_STEPS, fragments=2, overlap=2)), ("eager", BY_STEPS),
                                           ("diloco", dict(inner_seconds=0.2)), ("eager", dict(inner_seconds=0.2)),
                                           ("streaming", dict(BY_STEPS, fragments=2, by_speed=True)),
                                           ("hdet", dict(BY_STEPS, grace_seconds=0.05, quorum=2)),
                                           ("streaming", dict(BY_STEPS, fragments=2, overlap=2, share_by_speed=True))],
                         ids=lambda value: value if isinstance(value, str) else "-".join(value))
def test_death_and_join(tmp_path, text, mode, settings):  # noqa: F811
    """A node dies, later one comes; every round is recorded once, all members hold the same outer parameters at the end (else the job fails), samples
    that count are at most those of the steps, fewer where the workers are not at the same step."""
    steps, run = 320, tmp_path / "run"
    with Cluster(tmp_path / "cluster", nodes=3) as cluster:
        job = cluster.submit(rare(mode, text, run, 3, steps, codec="int8", **settings))
        reach_file(run, 60)
        another_than_the_writer(cluster, job).kill9()
        reach_file(run, 120)
        cluster.add_node()
        done = cluster.wait_job(job, "DONE")
        assert done.rounds.committed == done.rounds.recorded
        alike = not {"inner_seconds", "by_speed", "grace_seconds"} & set(settings)
        least = 0.6 if alike else 0.3
        assert least * steps * BATCH < done.rounds.samples <= steps * BATCH
        assert "enters" in cluster.events(done) and "was lost" in cluster.events(done)
    rows = metrics(run)
    assert rows[steps]["contributors"] == 3 and rows[steps]["loss"] < rows[min(rows)]["loss"]


def costs_of(folder):
    """Of each line of metrics.jsonl that has them."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [(row["sent_bytes"], row["dense_bytes"]) for row in rows if row["sent_bytes"] is not None]


def check_costs(folder, shown):
    costs = costs_of(folder)
    for (sent, dense), (sent_before, dense_before) in zip(costs[1:], costs):
        assert sent >= sent_before and dense >= dense_before, costs
    assert (shown["sent_bytes"], shown["dense_bytes"]) == pytest.approx(costs[-1])  # as the newest line says


def status_of(cluster, job):
    return trainctl_json("--address", cluster.memberd.address, "status", job)


@pytest.mark.parametrize("mode,settings", [("streaming", dict(BY_STEPS, fragments=2, overlap=2)), ("diloco", dict(inner_seconds=0.15))], ids=["streaming", "by-time"])
def test_costs_go_on_with_those_who_came_later(tmp_path, text, mode, settings):  # noqa: F811
    """Two of three are replaced, then contributor 0 dies: one that came in the middle says what all merges cost from the first on."""
    steps, run = 600, tmp_path / "run"
    with Cluster(tmp_path / "cluster", nodes=3) as cluster:
        job = cluster.submit(rare(mode, text, run, 3, steps, **settings))
        reach_file(run, 60)
        founders = list(cluster.nodes)
        old_peers = {peer.id for peer in cluster.job(job).peers}
        others = [node for node in founders if node is not writer_of(cluster, job)]
        for node in others:
            node.kill9()
            cluster.add_node()
        wait_for(lambda: sorted(peer.id in old_peers for peer in cluster.job(job).peers if peer.state == "active") == [False, False, True],
                 "two that came later")
        lines = len((run / "metrics.jsonl").read_text().splitlines())
        wait_for(lambda: len(rows := (run / "metrics.jsonl").read_text().splitlines()) > lines and json.loads(rows[-1])["contributors"] == 3,
                 "a round of all three")
        before = status_of(cluster, job)["merges"]
        writer_of(cluster, job).kill9()
        done = cluster.wait_job(job, "DONE")
        shown = status_of(cluster, job)["merges"]
    check_costs(run, shown)
    assert shown["count"] == done.rounds.committed - 1 > before["count"]  # but for the last round, which writes the checkpoint


def test_costs_go_on_from_a_checkpoint(tmp_path, text):  # noqa: F811
    with Cluster(tmp_path / "cluster", nodes=2) as cluster:
        first = cluster.wait_job(cluster.submit(rare("diloco", text, tmp_path / "run", 2, 40, "replay", 20, inner_steps=5)), "DONE")
        spec = rare("diloco", text, tmp_path / "resumed", 2, 60, "replay", 0, tmp_path / "run" / "step-00000020", inner_steps=5)
        done = cluster.wait_job(cluster.submit(spec), "DONE")
        shown = status_of(cluster, done.id)["merges"]
    held = json.loads((tmp_path / "run" / "step-00000020" / "manifest.json").read_text())
    assert first.rounds.committed - 1 == 40 / 5 and held["merges"] == 20 / 5 and shown["count"] == 60 / 5
    assert costs_of(tmp_path / "run")[2][0] == pytest.approx(held["merges_sent_bytes"])  # its rows begin with the second merge
    assert costs_of(tmp_path / "resumed")[0][0] > held["merges_sent_bytes"]
    check_costs(tmp_path / "resumed", shown)


@pytest.mark.parametrize("mode", ["diloco", "hdet"])
def test_checkpoints_of_many_merges(tmp_path, text, mode):  # noqa: F811
    """Of as many merges as a search for the learning rate would take to have races: this job has none."""
    run = tmp_path / "run"
    with Cluster(tmp_path / "cluster", nodes=1) as cluster:
        done = cluster.wait_job(cluster.submit(rare(mode, text, run, 1, 300, "replay", 200, inner_steps=5)), "DONE")
    assert done.rounds.committed - 1 == 300 / 5
    assert sorted(path.name for path in run.glob("step-*")) == ["step-00000200", "step-00000300"]


@pytest.mark.parametrize("begins", ["after a restart", "from its own folder"])
def test_a_replacement_finds_a_newer_checkpoint(tmp_path, text, begins):  # noqa: F811
    """Than the one that the others began with: it goes on with them all the same."""
    steps, run = 1000, tmp_path / "run"
    with Cluster(tmp_path / "cluster", nodes=2) as cluster:
        if begins == "from its own folder":
            cluster.wait_job(cluster.submit(rare("diloco", text, run, 2, 50, "replay", 25, inner_steps=25)), "DONE")
            job = cluster.submit(rare("diloco", text, run, 2, steps, "replay", 100, run, inner_steps=25))
        else:
            job = cluster.submit(rare("diloco", text, run, 2, steps, "replay", 100, inner_steps=25))
            wait_for(lambda: (run / "step-00000100" / "manifest.json").exists() and "step-00000100" in cluster.job(job).progress.checkpoint, "a checkpoint")
            for node in list(cluster.nodes):
                node.kill9()
                cluster.add_node()
            wait_for(lambda: "goes on from checkpoint" in cluster.events(cluster.job(job)), "the restart")
            wait_for(lambda: len([peer for peer in cluster.job(job).peers if peer.state == "active"]) == 2, "its workers")
        wait_for(lambda: "step-00000300" in cluster.job(job).progress.checkpoint, "a newer checkpoint")
        writer = min((peer for peer in cluster.job(job).peers if peer.state == "active"), key=lambda peer: peer.id).node_name
        next(node for number, node in enumerate(cluster.nodes, 1) if f"node-{number}" != writer and node.process.poll() is None).kill9()
        cluster.add_node()
        done = cluster.wait_job(job, "DONE")
        events = cluster.events(done)
        assert "enters" in events and events.count("goes on from checkpoint") == (begins == "after a restart"), events
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["step"] == steps and rows[-1]["contributors"] == 2
    assert (run / "latest").resolve().name == f"step-{steps:08}"


def test_base_rate_goes_on_from_a_checkpoint(tmp_path, text):  # noqa: F811
    """hdet whose base decays fast: its checkpoint of step 20 holds the base after four merges, from which another job goes on."""
    with Cluster(tmp_path / "cluster", nodes=2) as cluster:
        cluster.wait_job(cluster.submit(rare("hdet", text, tmp_path / "run", 2, 40, "replay", 20, inner_steps=5, lr_decay=0.5)), "DONE")
        held = json.loads((tmp_path / "run" / "step-00000020" / "manifest.json").read_text())
        base = struct.unpack("<d", struct.pack("<Q", held["lr_base_bits"]))[0]
        assert base == pytest.approx(1 / 16, rel=0.5)
        spec = rare("hdet", text, tmp_path / "resumed", 2, 40, "replay", 0, tmp_path / "run" / "step-00000020", inner_steps=5)
        cluster.wait_job(cluster.submit(spec), "DONE")
    rows = metrics(tmp_path / "resumed")
    lr = 1e-3 * (1 + math.cos(math.pi * (25 - 5) / (40 - 5))) / 2
    assert min(rows) == 25 and rows[25]["lr"] == pytest.approx(lr * base, rel=0.1)
