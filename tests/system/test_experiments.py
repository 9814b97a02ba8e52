"""scripts/experiments: which runs there are and when two are the same, what a study claims of its losses, pages made of runs that are kept;
one tiny run on real daemons, stopped in the middle and gone on with."""
import dataclasses
import importlib
import importlib.util
import json
import math
import pathlib
import re
import subprocess
import sys
import threading

import pytest

from harness import Cluster, trainctl_json, wait_for
from stubs import ROOT

FOLDER = ROOT / "scripts" / "experiments"
sys.path.insert(0, str(FOLDER))

import auto  # noqa: E402
import churn  # noqa: E402
import claims  # noqa: E402
import execute  # noqa: E402
import facts  # noqa: E402
import hidden  # noqa: E402
import partition  # noqa: E402
import plan  # noqa: E402
import report  # noqa: E402
import store  # noqa: E402
import text  # noqa: E402
import throttle  # noqa: E402
import timing  # noqa: E402
import variants  # noqa: E402


def load_main():
    spec = importlib.util.spec_from_file_location("experiments_main", FOLDER / "__main__.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


main = load_main()
ARM = plan.Arm("some", nodes=2, sync={"mode": "diloco", "inner_steps": 32})
TEXT = {"path": "/text", "bytes": 1000, "held_out_bytes": 30}


def run_of(arm, seed=1):
    return plan.Run(arm, seed, plan.settings_of(arm, seed))


# ---- the plan

def test_key_stands_for_settings():
    """Settings that differ in anything have other keys; the order of keys, names and how often is looked do not matter."""
    key = run_of(ARM).key
    same = dataclasses.replace(ARM, name="other", sync={"inner_steps": 32, "mode": "diloco"})
    assert run_of(same).key == key and re.fullmatch("[0-9a-f]{12}", key)
    others = [run_of(ARM, 2), *(run_of(dataclasses.replace(ARM, **change)) for change in (
        {"nodes": 4}, {"train": {"lr": 1e-3}}, {"sync": {"mode": "diloco", "inner_steps": 64}}, {"replicas": 2}, {"program": "naive-delay"},
        {"slowness": (1, 2)}))]
    assert len({key, *(other.key for other in others)}) == 1 + len(others)


def test_runs_are_wanted_seed_by_seed_and_once():
    studies = plan.studies()
    runs = plan.runs(studies)
    assert [study.ORDER for study in studies] == sorted(study.ORDER for study in studies)
    assert len({run.key for run in runs}) == len(runs)
    assert [run.seed for run in runs] == sorted(run.seed for run in runs)
    assert {(run.arm.name, run.seed) for run in runs} >= {(arm.name, seed) for study in studies for arm in study.ARMS
                                                         for seed in getattr(study, "SEEDS", plan.SEEDS)}
    names = {}
    for run in runs:  # a name is of one arm only: figures and files go by it
        assert names.setdefault((run.arm.name, run.seed), run.key) == run.key


def test_all_arms_see_as_many_tokens():
    """More than 20 a parameter, and the same for all but the short runs that tune."""
    parameters, tokens = plan.parameters_of(plan.MODEL), plan.TRAIN["steps"] * plan.TRAIN["batch_tokens"]
    assert 0.7e6 < parameters < 1.1e6 and tokens > 20 * parameters
    for run in plan.runs(plan.studies()):
        train = run.settings["train"]
        shared = run.settings["sync"].get("share_by_speed", False)  # each step has a whole batch
        speeds = [1 / slowness for slowness in run.arm.slowness if not shared] or [1]
        if not run.arm.name.startswith("short-"):
            assert train["steps"] * train["batch_tokens"] * sum(speeds) / len(speeds) == pytest.approx(tokens, rel=2e-3), run.arm.name


def test_replicas_know_nothing_of_one_another(tmp_path):
    run = run_of(plan.Arm("apart", replicas=4))
    jobs = [plan.job_of(run, TEXT, tmp_path, replica) for replica in range(4)]
    assert len({job["train"]["seed"] for job in jobs}) == 4 and all(job["mesh"]["nodes"] == 1 for job in jobs)
    assert sum(job["train"]["batch_tokens"] for job in jobs) == plan.TRAIN["batch_tokens"]
    assert jobs[0]["data"]["validation"] == 0.03 and "resume" not in jobs[0]["checkpoint"]
    (tmp_path / "latest").mkdir()
    assert plan.job_of(run, TEXT, tmp_path)["checkpoint"]["resume"] == str(tmp_path)


def test_room_for_workers():
    two, four = run_of(ARM), run_of(plan.Arm("four", nodes=2, replicas=2))
    assert main.next_that_fits([four], 0, 2) is four
    assert main.next_that_fits([two, four], 1, 2) is None and main.next_that_fits([two, four], 1, 3) is two
    assert main.next_that_fits([], 0, 2) is None


def test_jobs_of_all_arms_are_accepted(tmp_path):
    """By a cluster without nodes, so that none is run."""
    arms = {run.arm.name: run for run in plan.runs(plan.studies())}
    with Cluster(tmp_path / "cluster", nodes=0) as cluster:
        for name, run in arms.items():
            path = tmp_path / f"{name}.yaml"
            path.write_text(execute.yaml_of(plan.job_of(run, {**TEXT, "path": __file__}, tmp_path / "run")))
            assert trainctl_json("--address", cluster.memberd.address, "launch", path, "--detach")["id"] > 0


def test_held_out_text_is_not_trained_on():
    size = text.PIECE_BYTES
    source = b"".join(bytes([number]) * size for number in range(70)) + b"rest"
    trained, held_out = text.split([source, b"short"])
    assert sorted(set(held_out)) == [31, 63] and len(held_out) == 2 * size
    assert not set(held_out) & set(trained) and trained.endswith(b"restshort") and len(trained) + len(held_out) == len(source) + 5


def test_variants_apply():
    for patch in (FOLDER / "variants").glob("*.patch"):
        done = subprocess.run(["git", "-C", ROOT, "apply", "--check", patch], capture_output=True, text=True)
        assert done.returncode == 0, f"{patch.name} does not apply any more:\n{done.stderr}"
    asked_for = {run.arm.program for run in plan.runs(plan.studies())} - {""} | {variants.PACED}
    assert asked_for == {patch.stem for patch in (FOLDER / "variants").glob("*.patch")}


def test_slow_worker_gets_its_share():
    """A worker that always wants to run, with a tenth of a core: after ten seconds it had one."""
    bucket, used, now, tick = throttle.Bucket(0.1, 0.0, 0.0), 0.0, 0.0, 0.02
    while now < 10:
        now += tick
        used += tick if bucket.may_run(used, now) else 0
    assert used == pytest.approx(1, abs=0.1)
    idle = throttle.Bucket(0.1, 0.0, 0.0)
    idle.may_run(0.0, 1000.0)
    assert idle.left == throttle.MOST_SAVED_S


@pytest.mark.parametrize("given", [1.0, 0.3])
def test_a_busy_machine_slows_all_alike(given):
    """The fastest may have half a core and gets `given` of that; who is twice as slow gets half of what it gets."""
    clock, fast, slow = throttle.Clock(0.0, 0.0), throttle.Bucket(0.5, 0.0, 0.0), throttle.Bucket(0.25, 0.0, 0.0)
    used, slow_used, now, tick = 0.0, 0.0, 0.0, 0.02
    while now < 10:
        now += tick
        used += given * tick * (0.5 if given < 1 else 1) if fast.may_run(used, now) else 0
        slow_used += tick if slow.may_run(slow_used, clock.tell(used, now, False)) else 0
    assert used == pytest.approx(5 * given, rel=0.05) and slow_used == pytest.approx(used / 2, rel=0.05)
    assert clock.tell(used, now + 3, True) == pytest.approx(2 * used + 3)  # it waits for the others, who go on


def test_rate_is_of_whole_rounds():
    """A merge each second brings eight samples; the first two merges are not counted, nor is what is looked at between."""
    looks = [(at / 4, 8 * (at // 4)) for at in range(33)]
    assert timing.rate(looks) == pytest.approx(8 * plan.MODEL["context"])


# ---- measured apart from runs

@pytest.mark.parametrize("target,holds", [
    (claims.Target("x", (0.95, 0.99), least=0.95), True), (claims.Target("x", (0.99, 0.94), least=0.95), False),
    (claims.Target("x", (0, 0), most=0, form="{}"), True), (claims.Target("x", (0, 1), most=0, form="{}"), False),
    (claims.Target("x", (-0.03,), least=-0.02, most=0.02), False)])
def test_targets(target, holds):
    assert target.holds is holds and ("**holds**" in target.line) is holds


def test_churn_is_judged_beside_the_undisturbed_job():
    """Half of the tokens in the same time; at as many tokens a loss 1 % above."""
    arms = {"undisturbed": {"tokens": 1000, "seconds": 10, "curve": [[0, 4.0], [1000, 2.0]]},
            "every-15-s": {"tokens": 500, "seconds": 10, "curve": [[250, 3.5 * 1.01], [500, 3.0 * 1.01]]}}
    churn.compare(arms)
    assert arms["every-15-s"]["efficiency"] == 0.5 and arms["every-15-s"]["loss_beside"] == pytest.approx(0.01)


def test_a_round_of_streaming_has_all_its_merges():
    """Three merges a second apart are a round of three seconds; the last merge, of what is left, comes early."""
    rows = {step: {"unix_ms": 1000 * step} for step in range(1, 13)} | {13: {"unix_ms": 12001}}
    assert hidden.round_s(rows, "streaming") == 3 and hidden.round_s(rows, "eager") == 1


class Said:
    """Sites of which the workers said these merges: {node: [(peer, round, digest)]}."""

    def __init__(self, rows):
        self.nodes = rows

    def worker_output(self, name):
        return "".join(json.dumps({"merged": one, "peer": peer, "step": one, "digest": digest, "unix_s": one}) + "\n" for peer, one, digest in self.nodes[name])

    def job(self, _):
        return {"rounds": {"committed": 3, "recorded": 3}, "state": "running"}


def test_partition_is_judged_by_what_workers_say():
    good = [(1, 1, "a"), (1, 2, "b"), (1, 3, "c")]
    assert partition.judge(Said({"x": good, "y": [(2, 1, "a"), (3, 3, "c")]}), 1).items() >= {"rounds": 3, "differ": 0, "twice": 0, "skipped": 0}.items()
    assert partition.judge(Said({"x": good, "y": [(2, 1, "a"), (2, 2, "c")]}), 1)["differ"] == 1
    assert partition.judge(Said({"x": [*good, (1, 3, "c")]}), 1)["twice"] == 1
    assert partition.judge(Said({"x": [good[0], good[2]]}), 1)["skipped"] == 1


def test_bound_of_direct_among_unequal_members():
    """Equal: 2 (n - 1) / n of the bytes, in whole segments, and what a crowd of senders costs. A very slow one has no share, and what it gives and gets counts. Between: nobody could end sooner. The last segment
    comes back when its sum is made."""
    second = auto.RATE_MBIT * 1e6 / 8 * auto.PAYLOAD
    count, each = auto.segments(second, 0)
    last, fullest = each / second, -(-count // 4) / count
    assert 1.5 <= auto.model_s("direct", 4, 0, second, 1) == pytest.approx(max(3 * (fullest + last), (1 + 2 * fullest) * (1 + 2 * auto.CROWD) + last))
    assert auto.model_s("direct", 4, 0, second, 0.1) == pytest.approx(10 + last / 0.1)
    ends = min(max((1 + 2 * (1 - u) / 3), (1 + 2 * u) / 0.75) for u in (n / 1000 for n in range(334)))
    assert auto.model_s("direct", 4, 0, second, 0.75) == pytest.approx(ends + last / 0.75, rel=2e-3)


# ---- what is made of runs

A, B, C = (plan.Arm(name) for name in "abc")


@pytest.mark.parametrize("claim,losses,holds", [
    (claims.Within(A, B, 0.01), {"a": {1: 1.005, 2: 1.012}, "b": {1: 1.0, 2: 1.0, 3: 9.0}}, True),
    (claims.Within(A, B, 0.01), {"a": {1: 1.011}, "b": {1: 1.0}}, False),
    (claims.Within(A, B, 0.01), {"a": {1: 1.0}, "b": {2: 1.0}}, None),
    (claims.Better(A, B), {"a": {1: 1.0, 2: 1.0}, "b": {1: 1.1, 2: 1.01}}, True),
    (claims.Better(A, B), {"a": {1: 1.0, 2: 1.0}, "b": {1: 1.1, 2: 1.0}}, False),
    (claims.WithinSpread(A, B), {"a": {1: 1.0}, "b": {1: 1.0}}, None),
    (claims.WithinSpread(A, B), {"a": {1: 1.02, 2: 1.04}, "b": {1: 1.0, 2: 1.03}}, True),
    (claims.WithinSpread(A, B), {"a": {1: 1.05, 2: 1.05}, "b": {1: 1.0, 2: 1.03}}, False),
    (claims.Recovers(A, B, C, 0.8), {"a": {1: 1.1}, "b": {1: 2.0}, "c": {1: 1.0}}, True),
    (claims.Recovers(A, B, C, 0.8), {"a": {1: 1.3}, "b": {1: 2.0}, "c": {1: 1.0}}, False)])
def test_claims(claim, losses, holds):
    verdict = claim.judge(losses)
    assert verdict.holds is holds
    assert verdict.standing == "not run" if holds is None else "so far" in verdict.standing


def test_what_has_a_file_is_not_measured_again(tmp_path, monkeypatch):
    called = []
    fake = type("calls", (), {"run": staticmethod(lambda words, check: called.append([str(word) for word in words[1:]]) or subprocess.CompletedProcess(words, int(len(called) == 1)))})
    monkeypatch.setattr(facts, "subprocess", fake)
    for name in facts.CALLS:
        if name not in ("wire", "churn"):
            (tmp_path / f"{name}.json").touch()
    assert facts.measure(tmp_path) == 1
    assert [pathlib.Path(words[0]).name for words in called] == ["wire.py", *["churn.py"] * 6] and called[1][1:] == ["--mode", "diloco", "--seed", "1", "--out", str(tmp_path / "churn.json")]
    assert facts.measure(tmp_path, ["timing"]) == 0 and len(called) == 7
    with pytest.raises(SystemExit, match="found none, allowed: wire"):
        facts.measure(tmp_path, ["none"])


def test_more_tokens_show_nothing():
    losses, tokens = {"a": {1: 0.99, 2: 0.99}, "b": {1: 1.0, 2: 1.0}}, {"a": {1: 100, 2: 124}, "b": {1: 100, 2: 100}}
    assert claims.Within(A, B, 0.01).judge(losses, tokens).standing == "not shown, at +0%, +24% tokens"
    tokens["a"][2] = 100.5
    assert claims.Within(A, B, 0.01).judge(losses, tokens).standing == "holds so far (2 of 3 seeds)"


def kept_result(loss):
    return {"commit": "c0ffee", "machine": {"cpu": "x", "cores": 2, "kernel": "6"}, "resumed": [], "val_loss": loss, "tokens": 14942208, "cpu_s": 1200.0,
            "sent": [{"from_step": 0, "tcp_bytes": 10**6, "shm_bytes": 10**6, "workers": 1}], "validation": [[1824, loss + 0.1], [3648, loss]]}


def test_page_says_what_is_missing(tmp_path):
    study = importlib.import_module("studies.quality")
    kept = store.Store(tmp_path / "runs")
    for arm, loss in ((study.DP, 1.5), (study.DILOCO_2, 1.51)):
        kept.put(run_of(arm), kept_result(loss))
    report.write(tmp_path, [study], kept)
    page = (tmp_path / "README.md").read_text()
    assert "| diloco-m2 | 1 of 3 | 14.9 M | 1.5100 |  | +0.67% | 2.0 MB | 20 min |" in page and "| average-m2 | 0 of 3 |" in page
    assert "diloco-m2 within 1% of dp: **holds so far (1 of 3 seeds)** (+0.67%)" in page and "diloco-m4 within 2% of dp: **not run**" in page
    assert "average-m2 1" in page and "diloco-m2 1" not in page.split("Missing")[1].split("\n")[0]
    picture = (tmp_path / "quality.svg").read_text()
    assert picture.count("<polyline") == 2 and picture.count("<circle") == 2


def test_committed_page_is_of_the_committed_runs(tmp_path):
    """make experiments-tables has been called since the runs were added."""
    results = ROOT / "docs" / "results"
    report.write(tmp_path, plan.studies(), store.Store(results / "runs"), results)
    assert (tmp_path / "README.md").read_text() == (results / "README.md").read_text()
    known = {store.Store(results / "runs").path(run) for run in plan.runs(plan.studies())}
    assert set((results / "runs").glob("*.json")) <= known, "runs that no study asks for"


def test_curves_are_thinned():
    points = [(step, float(step)) for step in range(1, 1001)]
    thinned = store.thin(points)
    assert len(thinned) <= store.CURVE_POINTS and thinned[-1][0] == 1000 and thinned[0] == [16, 8.5]
    assert store.thin(points[:3]) == [[1, 1.0], [2, 2.0], [3, 3.0]]


def test_rows_of_the_same_commit_are_kept(tmp_path):
    path = tmp_path / "results" / "rows.json"
    first = store.Rows(path, "c0ffee", ("loss", "sockets"), "cases", rate=100)
    assert not first.has("0", 1)
    first.put({"loss": "0", "sockets": 1, "mbit": 90})
    again = store.Rows(path, "c0ffee", ("loss", "sockets"), "cases", rate=100)
    assert again.has("0", 1) and not again.has("0", 8)
    again.put({"loss": "0", "sockets": 8, "mbit": 80})
    whole = json.loads(path.read_text())
    assert [row["mbit"] for row in whole["cases"]] == [90, 80] and whole["commit"] == "c0ffee" and whole["rate"] == 100
    assert not store.Rows(path, "0ther", ("loss", "sockets"), "cases").has("0", 1)


# ---- a run

@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """A plan of a second, and its text."""
    monkeypatch.setattr(plan, "MODEL", {**plan.MODEL, "layers": 1, "width": 16, "heads": 2, "context": 16})
    monkeypatch.setattr(plan, "TRAIN", {**plan.TRAIN, "steps": 400, "batch_tokens": 64, "warmup": 10, "eval_sequences": 8})
    monkeypatch.setattr(plan, "CHECKPOINT_STEPS", 40)
    monkeypatch.setattr(execute, "POLL_S", 0.05)
    path = tmp_path / "text.txt"
    path.write_text("".join(f"{number * number} is the square of {number}.\n" for number in range(2000)))
    return {"path": str(path), "bytes": path.stat().st_size, "held_out_bytes": path.stat().st_size // 10}


def test_run_is_stopped_and_goes_on(tiny, tmp_path):
    steps = 4000  # seconds: CPU time is looked at while workers live
    run = run_of(plan.Arm("tiny", nodes=2, sync={"mode": "diloco", "inner_steps": 20, "codec": "int8"}, train={"steps": steps}))
    stop, work = threading.Event(), tmp_path / "work"
    checkpoints = work / run.key / "replica-0" / "checkpoints"

    def stop_early():
        wait_for(lambda: (checkpoints / "latest").exists(), "a checkpoint")
        stop.set()
    watcher = threading.Thread(target=stop_early)
    watcher.start()
    first = execute.execute(run, work, tiny, stop)
    watcher.join()
    result = first or execute.execute(run, work, tiny, threading.Event())
    if first is None:  # a machine that did it all before the stop came has nothing to go on with
        assert result["resumed"] and result["resumed"][0] >= 40
    assert math.isfinite(result["val_loss"]) and result["tokens"] == steps * 64 and result["curve"][-1][0] == steps
    assert result["sent"][0]["workers"] == 2 and result["sent"][0]["tcp_bytes"] + result["sent"][0]["shm_bytes"] > 0
    assert result["cpu_s"] > 0 and not (work / run.key).exists() and not list(work.iterdir())
    kept = store.Store(tmp_path / "runs")
    kept.put(run, result)
    assert kept.get(run)["settings"] == run.settings and json.loads(kept.path(run).read_text())["val_loss"] == result["val_loss"]


def test_replicas_run_apart(tiny, tmp_path):
    result = execute.execute(run_of(plan.Arm("tiny-apart", replicas=2, train={"steps": 40})), tmp_path / "work", tiny, threading.Event())
    assert len(result["val_losses"]) == 2 and result["val_losses"][0] != result["val_losses"][1]
    assert result["val_loss"] == pytest.approx(sum(result["val_losses"]) / 2)


def test_runner_does_what_is_missing_once(tiny, tmp_path):
    """One run is there already, one is done, one cannot be: the others go on, and the call fails."""
    arms = [plan.Arm(name, train={"steps": 20 + number}) for number, name in enumerate(("there", "missing"))]
    there, missing, bad = run_of(arms[0]), run_of(arms[1]), run_of(plan.Arm("bad", sync={"mode": "ddp", "inner_steps": 5}))
    kept = store.Store(tmp_path / "runs")
    kept.put(there, kept_result(1.5))
    runner = main.Runner([there, bad, missing], kept, tmp_path / "work", tiny, 1)
    assert runner.run() == 1 and [words.split()[0] for words in runner.failed] == ["bad"]
    assert kept.get(there)["val_loss"] == 1.5 and math.isfinite(kept.get(missing)["val_loss"]) and not kept.has(bad)
    assert main.Runner([there, missing], kept, tmp_path / "work", tiny, 1).waiting == []
    stopped = main.Runner([bad], kept, tmp_path / "work", tiny, 1)
    stopped.stop.set()
    assert stopped.run() == 0 and stopped.waiting == [bad]
