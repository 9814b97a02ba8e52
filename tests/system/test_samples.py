"""`trainctl samples`: whoever dies or comes, each sample of an epoch is counted once, in flight, dropped or left, and what is counted is what workers
consumed: each writes the number of every sample down before it uses it (TRAIND_SAMPLES_LOG)."""
import collections
import json
import pathlib
import re

import pytest

from harness import Cluster, trainctl, trainctl_json, wait_for
from test_rare_training import rare
from test_training import BATCH, another_than_the_writer, job_spec, reach_file, text  # noqa: F401 (a fixture)


def logging_cluster(tmp_path, nodes=3):
    (tmp_path / "samples").mkdir(exist_ok=True)
    return Cluster(tmp_path / "cluster", nodes=nodes, environment={"TRAIND_SAMPLES_LOG": str(tmp_path / "samples")})


def consumed(tmp_path):
    """{peer: numbers of samples in the order in which it consumed them}"""
    found = {}
    for path in (tmp_path / "samples").iterdir():
        ranges = [word.split("-") for line in path.read_text().splitlines() for word in line.split()[1:]]
        found[int(path.name.removeprefix("peer-"))] = [n for a, b in ranges for n in range(int(a), int(b))]
    return found


def shown(cluster, job):
    return trainctl_json("--address", cluster.memberd.address, "samples", job)


def check_sums(told):
    for row in told["epochs"]:
        epochs = row["through"] - row["epoch"] + 1
        assert row["counted"] + row["in_flight"] + row["dropped"] + row["left"] == epochs * told["per_epoch"]
        assert row["dropped"] == sum(r["count"] for r in row["ranges"])
    return told


def counted_of(told):
    return sum(row["counted"] for row in told["epochs"])


def check_once(numbers_of):
    """Nobody of these trained on what another did, or twice. All numbers."""
    found = collections.Counter(n for numbers in numbers_of for n in numbers)
    assert max(found.values()) == 1, "a sample was trained on twice"
    return set(found)


def check_account(tmp_path, cluster, job, dead, all_used):
    """Of an ended job that was never started again, one of whose workers died. `all_used`: what the dead one held was used by others; by time, who
    has got it may not have come to it at the end. Returns what is shown."""
    told, by_peer = check_sums(shown(cluster, job)), consumed(tmp_path)
    assert told["round"] > 0 and all(row["in_flight"] == 0 for row in told["epochs"])
    survivors = check_once(numbers for peer, numbers in by_peer.items() if peer != dead)
    # What the dead one had consumed is counted up to its last round; from there on it was given out again, as far as the others came to it.
    lost = by_peer[dead]
    again = [n in survivors for n in lost]
    before = again.index(True) if True in again else len(lost)
    counted = counted_of(told)
    assert counted == cluster.job(job).rounds.samples
    assert len(set(lost)) == len(lost) and len(survivors) < counted <= len(survivors) + before
    unused = len(survivors) + before - counted + again[before:].count(False)
    assert unused <= sum(row["left"] for row in told["epochs"])
    assert unused == 0 or not all_used or before == len(lost)
    return told


def peer_on(cluster, job, node):
    return next(p.id for p in cluster.job(job).peers if p.node_name == f"node-{cluster.nodes.index(node) + 1}")


@pytest.mark.parametrize("mode,settings", [("diloco", dict(inner_steps=10)), ("streaming", dict(inner_steps=10, fragments=2, overlap=3)),
                                           ("streaming", dict(inner_seconds=0.1, fragments=2))],
                         ids=["diloco", "streaming", "streaming-by-time"])
def test_each_sample_once_with_a_death_and_a_join(tmp_path, text, mode, settings):  # noqa: F811
    steps, run = 160, tmp_path / "run"
    with logging_cluster(tmp_path) as cluster:
        job = cluster.submit(rare(mode, text, run, 3, steps, **settings))
        reach_file(run, 30)
        node = another_than_the_writer(cluster, job)
        dead = peer_on(cluster, job, node)
        node.kill9()
        cluster.add_node()
        check_sums(shown(cluster, job))
        cluster.wait_job(job, "DONE")
        told = check_account(tmp_path, cluster, job, dead, all_used="inner_seconds" not in settings)
        assert sum(row["dropped"] for row in told["epochs"]) == 0
        if "inner_seconds" not in settings:
            line = trainctl("--address", cluster.memberd.address, "samples", job).stdout
            assert line.startswith("every sample once: ") and line.count("\n") == 1


@pytest.mark.parametrize("mode", ["ddp", "diloco", "tp"])
def test_an_order_that_began_anew(tmp_path, text, mode):  # noqa: F811
    """After a resume with another seed it is said, also of a job that goes on from that one's checkpoint; with the same seed it is not, whatever the batch."""
    def spec(run, steps, seed, resume="", batch=BATCH):
        made = (rare(mode, text, tmp_path / run, 1, steps, inner_steps=5) if mode == "diloco"
                else job_spec(text, tmp_path / run, 1, steps, heads=4))
        made.train.optimizer.seed, made.train.checkpoint.resume = seed, str(resume)
        made.train.optimizer.batch_tokens = batch * made.train.model.context
        if mode == "tp":
            made.mesh.workers_per_node = made.mesh.tp = 2
        return made
    with Cluster(tmp_path / "cluster", nodes=1, slots=2) as cluster:
        def ran(*words):
            job = cluster.submit(spec(*words))
            cluster.wait_job(job, "DONE")
            told = check_sums(shown(cluster, job))
            return told, trainctl("--address", cluster.memberd.address, "samples", job).stdout
        told, said = ran("first", 10, 7)
        assert told["anew"] == 0 and said.startswith("every sample once: ") and said.count("\n") == 1
        told, said = ran("same", 20, 7, tmp_path / "first")
        assert told["anew"] == 0 and said.startswith("every sample once: ") and said.count("\n") == 1
        told, said = ran("larger", 20, 7, tmp_path / "first", 2 * BATCH)
        assert told["anew"] == 0 and said.startswith("every sample once: ") and said.count("\n") == 1
        given = 10 * BATCH
        for run, steps, resume in (("other", 20, "first"), ("on", 30, "other")):
            told, said = ran(run, steps, 8, tmp_path / resume)
            assert 0 < given % told["per_epoch"]
            assert told["anew"] == given and "every sample once" not in said
            assert said.splitlines()[-1] == (
                f"the order began anew with number {given}: the {given} before it are of the checkpoint that the job went on from, of a job "
                f"with another seed or text; of epoch {given // told['per_epoch']} some may be used twice and others never")


@pytest.mark.parametrize("on_loss", ["replay", "drop"])
def test_data_parallel_counts_whole_batches(tmp_path, text, on_loss):  # noqa: F811
    """ddp: batch after batch; with on_loss drop what a dead worker had is listed, with its name and its round."""
    steps, run = 60, tmp_path / "run"
    with logging_cluster(tmp_path, nodes=2) as cluster:
        job = cluster.submit(job_spec(text, run, 2, steps, on_loss))
        reach_file(run, 20)
        node = another_than_the_writer(cluster, job)
        dead = peer_on(cluster, job, node)
        node.kill9()
        cluster.wait_job(job, "DONE")
        told, by_peer = check_sums(shown(cluster, job)), consumed(tmp_path)
        committed = check_once(by_peer.values())
        ranges = [r for row in told["epochs"] for r in row["ranges"]]
        dropped = {row["epoch"] * told["per_epoch"] + n for row in told["epochs"] for r in row["ranges"]
                   for n in range(r["from"], r["to"])}
        assert counted_of(told) + len(dropped) == steps * BATCH
        assert counted_of(told) == cluster.job(job).rounds.samples
        assert not committed & dropped
        # The last line of the dead one may be missing: it writes after the commit.
        missing = set(range(steps * BATCH)) - committed - dropped
        assert len(missing) <= BATCH // 2 + 1 and all(r["peer"] in (0, dead) and r["round"] > 0 for r in ranges)
        assert not (on_loss == "replay" and dropped)


def test_from_a_checkpoint_after_memberd_was_killed_too(tmp_path, text):  # noqa: F811
    """memberd dies and comes back in the middle of a round; then all workers die: what was counted after the checkpoint is taken back, said so, and
    given out again."""
    steps, run = 1000, tmp_path / "run"
    with logging_cluster(tmp_path, nodes=2) as cluster:
        job = cluster.submit(rare("diloco", text, run, 2, steps, "replay", 60, inner_steps=5))
        reach_file(run, 25)
        cluster.kill_memberd()
        reach_file(run, 35)
        cluster.restart_memberd()
        told = wait_for(lambda: (told := counted_of(shown(cluster, job))) > 65 * BATCH and told, "rounds after the checkpoint")
        before = set(consumed(tmp_path))
        for node in list(cluster.nodes):
            node.kill9()
        for _ in range(2):
            cluster.add_node()
        done = cluster.wait_job(job, "DONE")
        events = cluster.events(done)
        folder = pathlib.Path(re.search("goes on from checkpoint (.*)", events).group(1))
        held = json.loads((folder / "manifest.json").read_text())["samples"]
        again = check_once(numbers for peer, numbers in consumed(tmp_path).items() if peer not in before)
        assert len(again) == steps * BATCH - held and done.rounds.samples == steps * BATCH  # rounds that were done again count once
        if told > held:  # as a rule: another checkpoint was not written meanwhile
            assert int(re.search("samples: ([0-9]+) were counted before the restart", events).group(1)) >= told - held
        rows = check_sums(shown(cluster, job))["epochs"]
        assert sum(row["counted"] for row in rows) == steps * BATCH and sum(row["dropped"] for row in rows) == 0
