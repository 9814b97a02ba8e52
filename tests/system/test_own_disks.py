"""Machines that share no disk: a checkpoint is on that of whoever wrote it, and a job goes on from it all the same. Each node has a mount namespace of
its own, in which the job's folder is on a disk of its own."""
import json
import math
import os
import shutil
import signal
import subprocess

import pytest

from harness import BUILD, Cluster, trainctl, wait_for
from mesh_jobs import SLOW, active, alone, rows_of, write_text
from stubs import pb
from test_training import BATCH, job_spec

MODES = ("ddp", "diloco", "streaming", "eager", "hdet", "local_sgd")
SPLIT = {"tp 2": {"tp": 2}, "pp 2": {"pp": 2}}  # each node has a part of the model
H = 5
pytestmark = pytest.mark.skipif(os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode != 0,
                                reason="mount namespaces cannot be made here")


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return write_text(tmp_path_factory.mktemp("text"))


class Disks:
    """`run`: the folder that the job file names."""

    def __init__(self, folder, nodes=2):
        self.run = folder / "run"
        self.own = [folder / f"disk-{number + 1}" for number in range(nodes)]
        for disk in (self.run, *self.own):
            disk.mkdir()

    def through(self, number):
        return ["unshare", "--mount", "--propagation", "private", "sh", "-c", 'mount --bind "$1" "$2" && shift 2 && exec "$@"', "sh",
                self.own[number], self.run]

    def cluster(self, folder, before=lambda number: (), **options):
        """`before`: what else node `number` is started through."""
        made = Cluster(folder, nodes=0, **options)
        return made, lambda: [made.add_node(through=[*before(number), *self.through(number)]) for number in range(len(self.own))]

    def rows(self):
        """{step: its rows} of all disks: a step that was done again has several."""
        found = {}
        for disk in self.own:
            path = disk / "metrics.jsonl"
            for line in path.read_text().splitlines(keepends=True) if path.exists() else []:
                if line.endswith("\n"):
                    row = json.loads(line)
                    found.setdefault(row["step"], []).append(row)
        return found

    def written(self):
        """Numbers of disks with a checkpoint."""
        return [number for number, disk in enumerate(self.own) if (disk / "latest").exists()]


def spec_of(text, run, mode, steps, every, lr=1e-3, **options):
    spec = job_spec(text, run, 2, steps, every=every, **options)
    spec.train.optimizer.lr = lr
    if mode in SPLIT:
        spec.mesh.MergeFrom(pb.Mesh(**SPLIT[mode]))
    elif mode != "ddp":
        spec.train.sync.MergeFrom(pb.Sync(mode=mode, inner_steps=H, **({"fragments": 2} if mode == "streaming" else {})))
    return spec


def counted(cluster, job, steps, mode):
    """All of every step; with an overlap who gets its state begins some steps after the round in which its part is its own."""
    samples = cluster.api().GetSamples(pb.GetSamplesRequest(job_id=job))
    all_of_it = sum(epoch.counted + epoch.dropped for epoch in samples.epochs)
    least = steps - 2 * H if mode in ("streaming", "eager") else steps
    assert least * BATCH <= all_of_it <= steps * BATCH
    assert not any(epoch.in_flight for epoch in samples.epochs)


def lose_power(nodes):
    """At once: no node sees another one's end first."""
    for node in nodes:
        os.kill(node.pid, signal.SIGKILL)
    for node in nodes:
        node.process.wait()


def kill_who_did_not_write(cluster, job, disks):
    """Once there is a checkpoint: the worker of the node whose disk has none."""
    wait_for(lambda: len(disks.written()) > 0 and max(disks.rows(), default=0) > 45, "a checkpoint")
    [has] = disks.written()
    os.kill(next(peer.pid for peer in active(cluster, job) if peer.node_name == f"node-{2 - has}"), signal.SIGKILL)


def assert_learned_as(disks, calm):
    expected = rows_of(calm)
    for step, several in disks.rows().items():
        assert several[-1]["loss"] == pytest.approx(expected[step]["loss"], rel=1e-6), step


@pytest.mark.parametrize("mode", (*MODES, *SPLIT))
def test_disks_with_different_checkpoints(tmp_path, text, mode):
    """One disk has step 10, the other one step 20: all go on from step 20, whoever has it. The loss goes on falling from there."""
    first = tmp_path / "first"
    with Cluster(tmp_path / "before", nodes=2) as cluster:
        cluster.wait_job(cluster.submit(spec_of(text, first, mode, 20, 10)), "DONE")
    disks = Disks(tmp_path)
    older, newest = sorted(folder.name for folder in first.glob("step-*"))
    for disk, step in zip(disks.own, (older, newest)):
        shutil.copytree(first / step, disk / step)
        (disk / "latest").symlink_to(step)
    cluster, add = disks.cluster(tmp_path / "cluster")
    with cluster:
        add()
        job = cluster.submit(spec_of(text, disks.run, mode, 40, 0, resume=disks.run))
        done = cluster.wait_job(job, "DONE")
        events = cluster.events(done)
        counted(cluster, job, 40, mode)
    assert "other numbers" not in events and "held other" not in events, events
    rows = disks.rows()
    assert min(rows) > 20 and max(rows) == 40
    learned = [json.loads(line) for line in (first / "metrics.jsonl").read_text().splitlines()]
    assert rows[40][-1]["loss"] < learned[-1]["loss"] < learned[0]["loss"]


@pytest.mark.parametrize("mode", (*MODES, *SPLIT))
def test_only_one_disk_has_it(tmp_path, text, mode):
    """All machines lose their power; the one whose disk has the checkpoint comes back last."""
    disks, steps = Disks(tmp_path), 200
    exact = mode == "ddp" or mode in SPLIT
    calm = alone(tmp_path, text, steps=steps, lr=SLOW) if exact else None
    cluster, add = disks.cluster(tmp_path / "cluster")
    with cluster:
        nodes = add()
        job = cluster.submit(spec_of(text, disks.run, mode, steps, 20, lr=SLOW if exact else 1e-3, **({"heads": 4} if exact else {})))
        wait_for(lambda: cluster.job(job).progress.checkpoint and max(disks.rows(), default=0) > 45, "a checkpoint")
        [has] = disks.written()
        lose_power(nodes)
        for node in (nodes[1 - has], nodes[has]):
            node.start().wait_serving()
        done = cluster.wait_job(job, "DONE")
        events = cluster.events(done)
        counted(cluster, job, steps, mode)
    assert "goes on from checkpoint" in events, events
    rows = disks.rows()
    if exact:
        assert sorted(rows) == list(range(1, steps + 1))
        own = disks.written()
        assert any((disks.own[number] / f"step-{steps:08}").exists() for number in own)
    else:
        assert max(rows) == steps
    assert all(math.isfinite(row["loss"]) for several in rows.values() for row in several)
    assert rows[steps][-1]["loss"] < rows[min(rows)][0]["loss"]
    if calm is not None:
        assert_learned_as(disks, calm)


@pytest.mark.parametrize("mode", ("ddp", "diloco", "pp 2"))
def test_nobody_has_it(tmp_path, text, mode):
    with Cluster(tmp_path / "cluster", nodes=2) as cluster:
        job = cluster.submit(spec_of(text, tmp_path / "run", mode, 20, 0, resume=tmp_path / "typo"))
        failed = cluster.wait_job(job, "FAILED")
        words = cluster.events(failed) + failed.reason
    assert f"checkpoint.resume: {tmp_path}/typo" in words, words
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_who_was_told_latest(tmp_path, text):
    """The job file names `latest` itself, which is a link on one disk and nothing on the other: no folder takes the link's place."""
    first, disks = tmp_path / "first", Disks(tmp_path)
    with Cluster(tmp_path / "before", nodes=2) as cluster:
        cluster.wait_job(cluster.submit(spec_of(text, first, "tp 2", 10, 0)), "DONE")
    shutil.copytree(first / "step-00000010", disks.own[1] / "step-00000010")
    (disks.own[1] / "latest").symlink_to("step-00000010")
    cluster, add = disks.cluster(tmp_path / "cluster")
    with cluster:
        add()
        job = cluster.submit(spec_of(text, disks.run, "tp 2", 20, 0, resume=disks.run / "latest"))
        events = cluster.events(cluster.wait_job(job, "DONE"))
    assert "a copy came over the network" in events, events
    assert all((disk / "latest").is_symlink() and (disk / "step-00000010" / "manifest.json").exists() for disk in disks.own)


def test_back_to_it_in_mid_job(tmp_path, text):
    """A stage's only holder is killed. Who comes in its place finds no checkpoint on its node's disk."""
    disks, steps = Disks(tmp_path), 120
    calm = alone(tmp_path, text, steps=steps, lr=SLOW)
    cluster, add = disks.cluster(tmp_path / "cluster")
    with cluster:
        add()
        job = cluster.submit(spec_of(text, disks.run, "pp 2", steps, 20, lr=SLOW, heads=4))
        kill_who_did_not_write(cluster, job, disks)
        done = cluster.wait_job(job, "DONE")
        events = cluster.events(done)
        counted(cluster, job, steps, "pp 2")
    assert "training goes back from step" in events and "a copy came over the network" in events, events
    assert sorted(disks.rows()) == list(range(1, steps + 1))
    assert_learned_as(disks, calm)


def trained(folder, text, mode="pp 2", steps=20, every=10, keep=2, seed=7, **options):
    """The folder of a job that is done."""
    spec = spec_of(text, folder / "first", mode, steps, every, **options)
    spec.train.checkpoint.keep, spec.train.optimizer.seed = keep, seed
    with Cluster(folder / "before", nodes=2) as cluster:
        cluster.wait_job(cluster.submit(spec), "DONE")
    return folder / "first"


def copy_to(disk, first, steps):
    for step in steps:
        shutil.copytree(first / f"step-{step:08}", disk / f"step-{step:08}")
    (disk / "latest").symlink_to(f"step-{max(steps):08}")


def has(disk, step):
    return (disk / f"step-{step:08}").exists()


def manifest_of(disk, step):
    return json.loads((disk / f"step-{step:08}" / "manifest.json").read_text())


def model_of(disk, step):
    return (disk / f"step-{step:08}" / "model.safetensors").read_bytes()


def damage(checkpoint):
    data = bytearray((checkpoint / "model.safetensors").read_bytes())
    data[-4] ^= 1
    (checkpoint / "model.safetensors").write_bytes(data)


def goes_on(tmp_path, text, disks, mode, ends="DONE", before=lambda number: (), memberd=(), slots=1, resume=None, mesh=None, steps=40):
    """Events of a job that goes on from what is on the disks, and why it failed."""
    cluster, add = disks.cluster(tmp_path / "cluster", before, memberd=memberd, slots=slots)
    spec = spec_of(text, disks.run, mode, steps, 0, resume=resume or disks.run)
    spec.mesh.MergeFrom(pb.Mesh(**mesh or {}))
    with cluster:
        add()
        done = cluster.wait_job(cluster.submit(spec), ends)
        return cluster.events(done) + done.reason


def test_two_workers_of_one_node_need_one_copy(tmp_path, text):
    """The second one would take what the first one writes for what a crash has left."""
    disks, first = Disks(tmp_path), trained(tmp_path, text)
    copy_to(disks.own[1], first, (20,))
    events = goes_on(tmp_path, text, disks, "pp 2", slots=2, mesh={"workers_per_node": 2, "tp": 2})
    assert events.count("a copy came over the network") == 1 and "no copy" not in events, events
    assert max(disks.rows()) == 40 and min(disks.rows()) == 21
    assert (disks.own[0] / "step-00000020" / "manifest.json").exists()


def test_the_one_before_is_on_the_other_disk_alone(tmp_path, text):
    """The newest is damaged, so nobody gets a copy of it; the one before it is not here."""
    disks, first = Disks(tmp_path), trained(tmp_path, text)
    copy_to(disks.own[0], first, (10, 20))
    damage(disks.own[0] / "step-00000020")
    events = goes_on(tmp_path, text, disks, "pp 2")
    assert "the checkpoint of step 10 is taken instead, 10 steps before it" in events, events
    assert "no copy for who has none: model.safetensors is damaged" in events and not (disks.own[1] / "step-00000020").exists(), events
    assert min(disks.rows()) == 11 and max(disks.rows()) == 40


@pytest.mark.parametrize("number", (0, 1))
def test_what_is_damaged_on_one_disk_comes_from_the_other(tmp_path, text, number):
    """Nothing is lost, and what was damaged stays to be looked at."""
    disks, first = Disks(tmp_path), trained(tmp_path, text)
    for disk in disks.own:
        copy_to(disk, first, (10, 20))
    damage(disks.own[number] / "step-00000020")
    events = goes_on(tmp_path, text, disks, "pp 2")
    assert "a copy of the same checkpoint, which another worker has, is taken instead" in events, events
    assert min(disks.rows()) == 21 and max(disks.rows()) == 40
    assert (disks.own[number] / "step-00000020.damaged").exists()


def test_the_newest_before_it_that_anybody_has(tmp_path, text):
    """The newest is damaged: of those that are left the one of most steps counts, whoever has it."""
    disks, first = Disks(tmp_path), trained(tmp_path, text, steps=30, keep=3)
    copy_to(disks.own[0], first, (10, 30))
    copy_to(disks.own[1], first, (20,))
    damage(disks.own[0] / "step-00000030")
    events = goes_on(tmp_path, text, disks, "pp 2")
    assert min(disks.rows()) == 21, events


def test_shards_of_different_checkpoints_are_not_mixed(tmp_path, text):
    """Both disks have one of that step, which are different; and no copy can take the place of one whose folder's name says no step."""
    disks = Disks(tmp_path)
    for number in range(2):
        folder = tmp_path / f"job-{number}"
        folder.mkdir()
        first = trained(folder, text, steps=20, lr=(1e-3, 3e-3)[number])
        shutil.copytree(first / "step-00000020", disks.own[number] / "base")
    events = goes_on(tmp_path, text, disks, "pp 2", "FAILED", resume=disks.run / "base")
    assert "is another checkpoint of step 20 than the one that other workers go on from" in events, events
    assert not disks.rows()


def test_what_a_copy_takes_the_place_of_stays(tmp_path, text):
    disks = Disks(tmp_path)
    models = []
    for number in range(2):
        folder = tmp_path / f"job-{number}"
        folder.mkdir()
        copy_to(disks.own[number], trained(folder, text, steps=20, lr=(1e-3, 3e-3)[number]), (20,))
        models.append((disks.own[number] / "latest" / "model.safetensors").read_bytes())
    goes_on(tmp_path, text, disks, "pp 2", steps=21)
    now = [(disk / "step-00000020" / "model.safetensors").read_bytes() for disk in disks.own]
    assert models[0] != models[1] and now[0] == now[1] and now[0] in models
    [other] = [disk / "step-00000020.other" for disk in disks.own if (disk / "step-00000020.other").exists()]
    assert (other / "model.safetensors").read_bytes() in models and (other / "model.safetensors").read_bytes() != now[0]


@pytest.mark.parametrize("mode", ("diloco", "pp 2"))
def test_weights_that_were_imported_are_on_one_disk(tmp_path, text, mode):
    """They are of step 0, as nothing is."""
    disks, first = Disks(tmp_path), trained(tmp_path, text)
    trainctl("import", first / "latest", "-o", disks.own[1] / "begin")
    events = goes_on(tmp_path, text, disks, mode, resume=disks.run / "begin")
    assert "failed" not in events, events
    learned = [json.loads(line) for line in (first / "metrics.jsonl").read_text().splitlines()]
    rows = disks.rows()
    assert max(rows) == 40 and rows[min(rows)][-1]["loss"] < learned[0]["loss"] - 0.2


SLOW_SYNC = """
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
int fsync(int fd)
{
	char link[64], name[PATH_MAX] = "";
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	if (readlink(link, name, sizeof(name) - 1) > 0 && strstr(name, ".safetensors"))
		sleep(3);
	return (int)syscall(SYS_fsync, fd);
}
"""


def slow_sync(folder):
    """For Disks.cluster: what all nodes are started through."""
    (folder / "slow.c").write_text(SLOW_SYNC)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / "slow.so", folder / "slow.c"], check=True)
    return lambda number: ["env", f"LD_PRELOAD={folder / 'slow.so'}"]


@pytest.mark.skipif("-" in BUILD.name, reason="a sanitizer wants to be loaded first")
def test_a_slow_disk_takes_a_copy(tmp_path, text):
    """Syncing each of its files takes longer than a worker may stand still."""
    disks, first = Disks(tmp_path), trained(tmp_path, text)
    copy_to(disks.own[1], first, (20,))
    slow = slow_sync(tmp_path)
    events = goes_on(tmp_path, text, disks, "pp 2", before=lambda number: slow(number) if number == 0 else (),
                     memberd=["--progress-timeout-ms", 1500])
    assert "made no progress" not in events and "a copy came over the network" in events, events


def one_has_more(tmp_path, first, less):
    """Two disks, in folders of their own: either has step 20, the other one nothing, or step `less`."""
    for others, number in (((), 0), ((), 1), ((less,), 0), ((less,), 1)):
        case = tmp_path / f"{len(others)}-{number}"
        case.mkdir()
        disks = Disks(case)
        copy_to(disks.own[number], first, (20,))
        if others:
            copy_to(disks.own[1 - number], first, others)
        yield case, disks


@pytest.mark.parametrize("mode", ("ddp", "diloco", "streaming", "hdet"))
def test_one_disk_has_the_last_step(tmp_path, text, mode):
    """The other one has nothing, or less, whoever of the two nodes comes first: all begin together, with nothing left to train."""
    first = trained(tmp_path, text, mode)
    less = min(int(folder.name.removeprefix("step-")) for folder in first.glob("step-*"))
    assert less < 20
    for case, disks in one_has_more(tmp_path, first, less):
        events = goes_on(case, text, disks, mode, steps=20)
        assert "nothing is left to train" in events, (case.name, events)
        assert "refused" not in events and "again" not in events and "exited" not in events, (case.name, events)


@pytest.mark.parametrize("mode", ("ddp", "diloco"))
def test_more_steps_than_the_job_has(tmp_path, text, mode):
    """One disk has twice as many, the other one all of them, or nothing: what is written of the former's is not called a checkpoint of fewer steps."""
    first = trained(tmp_path, text, mode)
    for case, disks in one_has_more(tmp_path, first, 10):
        events = goes_on(case, text, disks, mode, steps=10)
        assert "the checkpoint is of step 20 and train.steps is 10: nothing is left to train" in events, (case.name, events)
        for disk in disks.own:
            for step in (10, 20):
                assert not has(disk, step) or model_of(disk, step) == model_of(first, step), (case.name, step)


@pytest.mark.skipif("-" in BUILD.name, reason="a sanitizer wants to be loaded first")
@pytest.mark.parametrize("mode", ("ddp", "diloco"))
def test_who_takes_over_the_last_checkpoint(tmp_path, text, mode):
    """Who has more steps than the job is killed while it writes. Who came with fewer writes what it has got from it, by the number of its steps."""
    first, disks = trained(tmp_path, text, mode), Disks(tmp_path)
    copy_to(disks.own[0], first, (20,))
    copy_to(disks.own[1], first, (10,))
    cluster, add = disks.cluster(tmp_path / "cluster", slow_sync(tmp_path))
    with cluster:
        add()
        job = cluster.submit(spec_of(text, disks.run, mode, 10, 0, resume=disks.run))
        wait_for(lambda: "nothing is left to train" in cluster.events(cluster.job(job)), "the last round")
        os.kill(next(peer.pid for peer in active(cluster, job) if peer.node_name == "node-1"), signal.SIGKILL)
        events = cluster.events(cluster.wait_job(job, "DONE"))
    assert [has(disks.own[1], step) and model_of(disks.own[1], step) == model_of(first, step) for step in (10, 20)] == [True, True], events
    assert manifest_of(disks.own[1], 20).get("round", 20) >= manifest_of(first, 20).get("round", 20)


@pytest.mark.parametrize("mode", ("ddp", "diloco"))
def test_most_hold_the_same_last_step(tmp_path, text, mode):
    """Whoever of the three writes the last checkpoint, it is not the one of who holds another one."""
    (tmp_path / "other").mkdir()
    first, other = trained(tmp_path, text, mode), trained(tmp_path / "other", text, mode, seed=8)
    for odd in range(2):
        case = tmp_path / f"case-{odd}"
        case.mkdir()
        disks = Disks(case, 3)
        for number, disk in enumerate(disks.own):
            copy_to(disk, other if number == odd else first, (20,))
        before = [manifest_of(disk, 20) for disk in disks.own]
        events = goes_on(case, text, disks, mode, steps=20, mesh={"nodes": 3})
        assert "held other parameters of" in events and "they began with" not in events, events
        wrote = [disk for disk, manifest in zip(disks.own, before) if manifest_of(disk, 20) != manifest]
        assert [model_of(disk, 20) for disk in wrote] == [model_of(first, 20)], (odd, events)


@pytest.mark.skipif("-" in BUILD.name, reason="a sanitizer wants to be loaded first")
@pytest.mark.parametrize("mode", ("ddp", "diloco", "streaming"))
def test_who_comes_in_the_last_round(tmp_path, text, mode):
    """While the last checkpoint is written: it takes part in that round, as those do who are there."""
    disks = Disks(tmp_path)
    cluster, add = disks.cluster(tmp_path / "cluster", slow_sync(tmp_path))
    with cluster:
        add()
        job = cluster.submit(spec_of(text, disks.run, mode, 20, 0))
        wait_for(lambda: max(disks.rows(), default=0) == 20, "the last step")
        cluster.kill_memberd()  # else it knows that nobody would be in time for a step
        cluster.restart_memberd()
        cluster.wait_nodes(2)
        founders = sorted(active(cluster, job), key=lambda peer: peer.id)
        os.kill(founders[1].pid, signal.SIGKILL)
        events = cluster.events(cluster.wait_job(job, "DONE"))
    assert "enters" in events and "different collectives" not in events and "failed" not in events, events


def test_the_last_step_and_less_after_as_many_merges(tmp_path, text):
    """As after another number of inner steps on each disk: neither waits for what the other one never does."""
    disks, first = Disks(tmp_path), trained(tmp_path, text, "diloco")
    copy_to(disks.own[0], first, (20,))
    copy_to(disks.own[1], first, (10,))
    file = disks.own[1] / "step-00000010" / "manifest.json"
    manifest = json.loads(file.read_text())
    del manifest["digest"]
    file.write_text(json.dumps({**manifest, "round": manifest_of(first, 20)["round"]}))
    events = goes_on(tmp_path, text, disks, "diloco", steps=20)
    assert "nothing is left to train" in events, events


@pytest.mark.parametrize("number", (0, 1))
def test_the_most_steps_count_whatever_a_round_was(tmp_path, text, number):
    """One disk has 20 steps of data parallel training, which are rounds, the other one 30, of which the later ones were merged by fives."""
    first, second = trained(tmp_path, text, "ddp"), tmp_path / "second"
    with Cluster(tmp_path / "between", nodes=2) as cluster:
        cluster.wait_job(cluster.submit(spec_of(text, second, "diloco", 30, 0, resume=first / "step-00000010")), "DONE")
    disks = Disks(tmp_path)
    copy_to(disks.own[number], first, (20,))
    copy_to(disks.own[1 - number], second, (30,))
    goes_on(tmp_path, text, disks, "diloco", steps=40)
    rows = disks.rows()
    assert min(rows) >= 35 and max(rows) == 40


@pytest.mark.parametrize("mode, steps", (("ddp", 20), ("ddp", 40), ("diloco", 20)))
def test_checkpoints_of_one_step_that_differ(tmp_path, text, mode, steps):
    """Nobody can tell which one counts, and no merge follows that would put one right: nothing is written over either, and the job says so."""
    disks = Disks(tmp_path)
    for number, disk in enumerate(disks.own):
        (tmp_path / str(number)).mkdir()
        copy_to(disk, trained(tmp_path / str(number), text, mode, seed=7 + number), (20,))
    before = [(disk / "step-00000020" / "manifest.json").read_bytes() for disk in disks.own]
    events = goes_on(tmp_path, text, disks, mode, ends="FAILED", steps=steps)
    assert steps > 20 or "held other parameters of transformer.wte.weight" in events, events
    assert "they began with different checkpoints of step 20: delete all but one" in events, events
    assert [(disk / "step-00000020" / "manifest.json").read_bytes() for disk in disks.own] == before


def test_another_job_s_checkpoint_takes_no_place(tmp_path, text):
    """On the disk of who does not write lie those of another job, of the same steps, and of later rounds. Training goes back to its own all the same."""
    disks, steps, seen = Disks(tmp_path), 120, range(20, 120, 20)
    others = trained(tmp_path, text, steps=20, seed=8, heads=4)
    for disk in disks.own:
        for step in seen:
            there = disk / f"step-{step:08}"
            shutil.copytree(others / "step-00000020", there)
            manifest = json.loads((there / "manifest.json").read_text())
            del manifest["digest"]
            (there / "manifest.json").write_text(json.dumps({**manifest, "step": step, "round": 1000}))
    cluster, add = disks.cluster(tmp_path / "cluster")
    with cluster:
        add()
        job = cluster.submit(spec_of(text, disks.run, "pp 2", steps, 20, lr=SLOW, heads=4))
        kill_who_did_not_write(cluster, job, disks)
        events = cluster.events(cluster.wait_job(job, "DONE"))
        counted(cluster, job, steps, "pp 2")
    assert "training goes back from step" in events and "is of a job with another" not in events, events
    assert sorted(disks.rows()) == list(range(1, steps + 1))


@pytest.mark.parametrize("mode", ("ddp", "diloco", "pp 2"))
def test_an_earlier_job_s_later_steps_do_not_count(tmp_path, text, mode):
    """The same job file was run to its end before, in the same folder. All machines lose their power: the disk without the checkpoint of now has only that of then."""
    disks, steps = Disks(tmp_path), 100
    first = trained(tmp_path, text, mode, steps, steps)
    for disk in disks.own:
        copy_to(disk, first, (steps,))
    cluster, add = disks.cluster(tmp_path / "cluster")
    with cluster:
        nodes = add()
        job = cluster.submit(spec_of(text, disks.run, mode, steps, 20, lr=SLOW))
        wait_for(lambda: max(disks.rows(), default=0) > 45 and cluster.job(job).progress.checkpoint, "a checkpoint")
        lose_power(nodes)
        for node in nodes:
            node.start().wait_serving()
        events = cluster.events(cluster.wait_job(job, "DONE"))
    assert "goes on from checkpoint" in events, events
    assert disks.rows().keys() >= {80, 85, 90, 95, 100}, events
