"""Native jobs on real daemons while nodes die, stop, join; memberd away; disks full: what issue after issue must keep."""
import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time

import numpy
import pytest
import safetensors.numpy

from harness import BIN, DEADLINE_S, Cluster, trainctl, wait_for
from stubs import pb

CONTEXT, BATCH = 32, 32  # tokens, sequences of a global batch
WORDS = "the quick brown fox jumps over the lazy dog while the hacker reads the manual twice and nods. "


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("".join(WORDS[i % 7:] + str(i * i) + "\n" for i in range(2000)))
    return path


def job_spec(text, folder, nodes, steps, on_loss="replay", every=0, resume="", layers=2, width=64, **model):
    spec = pb.JobSpec(name="training")
    spec.train.model.MergeFrom(pb.Model(**{"preset": "gpt2", "layers": layers, "width": width, "heads": 2, "context": CONTEXT,
                                               "vocab": "bytes", **model}))
    spec.train.data.MergeFrom(pb.Data(text=[str(text)], validation=0.1))
    spec.train.optimizer.MergeFrom(pb.Optimizer(steps=steps, batch_tokens=BATCH * CONTEXT, lr=1e-3, warmup=5, clip=1.0,
                                                seed=7))
    spec.train.sync.MergeFrom(pb.Sync(mode="ddp", on_loss=on_loss))
    spec.train.checkpoint.MergeFrom(pb.Checkpoint(every=every, keep=2, dir=str(folder), resume=str(resume)))
    spec.mesh.MergeFrom(pb.Mesh(nodes=nodes, min_nodes=1, threads=1))
    return spec


def metrics(folder):
    """{step: row}; each step stands there once."""
    rows = {}
    path = pathlib.Path(folder) / "metrics.jsonl"
    for line in path.read_text().splitlines() if path.exists() else []:
        row = json.loads(line)
        assert row["step"] not in rows, f"step {row['step']} was recorded twice"
        rows[row["step"]] = row
    return rows


def reach(cluster, job, step):
    wait_for(lambda: cluster.job(job).progress.step >= step, f"step {step}")


def reach_file(folder, step):
    wait_for(lambda: max(metrics(folder), default=0) >= step, f"step {step} in {folder}")


def worker_of(cluster, job, node):
    """The pid of the active worker on a node."""
    peers = cluster.job(job).peers
    return next(peer.pid for peer in peers if peer.node_name == node and peer.state == "active")


def writer_of(cluster, job):
    """The node whose worker writes metrics.jsonl."""
    writer = min(cluster.job(job).peers, key=lambda peer: peer.id).node_name
    return next(node for number, node in enumerate(cluster.nodes, 1) if f"node-{number}" == writer)


def another_than_the_writer(cluster, job):
    """A node whose worker does not write it: the line of a step that its writer has just committed may die with it."""
    return next(node for node in cluster.nodes if node is not writer_of(cluster, job))


def account_is_whole(job, steps):
    """Every round (steps, then the last one without samples) committed, recorded once, all samples counted."""
    rounds = job.rounds
    assert rounds.committed == rounds.recorded and rounds.committed > steps
    assert rounds.samples == steps * BATCH


def undisturbed(tmp_path, text, nodes, steps):
    with Cluster(tmp_path / "calm", nodes=nodes) as cluster:
        job = cluster.submit(job_spec(text, tmp_path / "calm-run", nodes, steps))
        account_is_whole(cluster.wait_job(job, "DONE"), steps)
    return metrics(tmp_path / "calm-run")


def test_churn_does_not_change_the_curve(tmp_path, text):
    """kill -9 of a traind in mid-step, later a new node: no step lost or twice, the curve within rounding of the calm one."""
    steps, run, began = 300, tmp_path / "run", time.time()
    calm = undisturbed(tmp_path, text, 4, steps)
    with Cluster(tmp_path / "churn", nodes=4) as cluster:
        job = cluster.submit(job_spec(text, run, 4, steps))
        reach_file(run, 20)
        another_than_the_writer(cluster, job).kill9()
        reach_file(run, 50)
        cluster.add_node()
        done = cluster.wait_job(job, "DONE")
        account_is_whole(done, steps)
        assert done.view >= 3, cluster.events(done)
        assert "enters" in cluster.events(done) and "was lost" in cluster.events(done)
    churn = metrics(run)
    assert sorted(churn) == sorted(calm) == list(range(1, steps + 1))
    assert {row["contributors"] for row in churn.values()} == {3, 4} and churn[steps]["contributors"] == 4
    times = [calm[step]["unix_ms"] / 1000 for step in sorted(calm)]
    assert times == sorted(times) and began - 1 < times[0] < times[-1] < time.time() + 1
    for step in calm:
        assert churn[step]["loss"] == pytest.approx(calm[step]["loss"], rel=2e-3), step


def test_drop_says_what_is_missing(tmp_path, text):
    """Policy drop: the round in which a node dies is applied with what arrived, and is reported as partial if that is less."""
    steps, run = 100, tmp_path / "run"
    with Cluster(tmp_path / "cluster", nodes=3) as cluster:
        job = cluster.submit(job_spec(text, run, 3, steps, on_loss="drop"))
        for number, step in ((2, 20), (1, 40)):
            reach_file(run, step)
            cluster.nodes[number].kill9()
        done = cluster.wait_job(job, "DONE")
        rounds = done.rounds
        assert rounds.committed == rounds.recorded and rounds.replayed_rounds == 0
        assert (steps - rounds.partial_rounds) * BATCH <= rounds.samples <= steps * BATCH
        # A round is partial exactly when samples are missing from it.
        assert (rounds.samples < steps * BATCH) <= (rounds.partial_rounds > 0)


def test_job_ends_while_memberd_is_away(tmp_path, text):
    """Its last rounds, figures and checkpoint were told to nobody: they come with the workers' ends."""
    steps, run = 120, tmp_path / "run"
    with Cluster(tmp_path / "cluster", nodes=3) as cluster:
        job = cluster.submit(job_spec(text, run, 3, steps))
        reach_file(run, steps - 60)
        cluster.kill_memberd()
        wait_for(lambda: not cluster.workers(), "the workers to finish by themselves")
        cluster.restart_memberd()
        done = cluster.wait_job(job, "DONE")
        account_is_whole(done, steps)
        assert done.progress.step == steps
        assert pathlib.Path(done.progress.checkpoint).name == f"step-{steps:08d}"
        assert done.progress.loss == pytest.approx(metrics(run)[steps]["loss"])
        assert done.progress.val_loss == pytest.approx(metrics(run)[steps]["val_loss"])


def test_memberd_dies_in_mid_training(tmp_path, text):
    """Workers train on meanwhile; daemons come back by themselves; the job and the view numbers go on."""
    steps, run = 1000, tmp_path / "run"
    with Cluster(tmp_path / "cluster", nodes=3) as cluster:
        job = cluster.submit(job_spec(text, run, 3, steps))
        reach_file(run, 20)
        cluster.kill_memberd()
        before = max(metrics(run))
        reach_file(run, before + 20)
        cluster.restart_memberd()
        cluster.wait_nodes(alive=3)
        assert cluster.job(job).view == 1
        cluster.nodes[0].kill9()
        done = cluster.wait_job(job, "DONE")
        # A memberd that starts again leaves out the numbers that the last view had reserved.
        assert 1 < done.view <= 18 and len([peer for peer in done.peers if peer.state == "finished"]) == 2
        account_is_whole(done, steps)


def test_worker_dies_and_is_replaced_on_its_node(tmp_path, text):
    steps, run = 400, tmp_path / "run"
    with Cluster(tmp_path / "cluster", nodes=3) as cluster:
        job = cluster.submit(job_spec(text, run, 3, steps))
        reach_file(run, 20)
        os.kill(worker_of(cluster, job, "node-2"), signal.SIGKILL)
        done = cluster.wait_job(job, "DONE")
        account_is_whole(done, steps)
        assert "SIGKILL" in cluster.events(done)
        assert metrics(run)[steps]["contributors"] == 3, cluster.events(done)


@pytest.mark.parametrize("patience, memberd, told", [(1000, (), "was stopped by SIGSTOP for 1000 ms"), (0, ("--progress-timeout-ms", 1500), "no progress")])
def test_stopped_worker_is_evicted(tmp_path, text, patience, memberd, told):
    """SIGSTOP: neither dead nor moving. Its node notices, and if that is to let it, memberd, which goes by progress; the others go on without it."""
    steps, run = 150, tmp_path / "run"
    with Cluster(tmp_path / "cluster", nodes=3, memberd=memberd, traind=["--stopped-timeout-ms", patience]) as cluster:
        job = cluster.submit(job_spec(text, run, 3, steps))
        reach_file(run, 20)
        stopped = worker_of(cluster, job, "node-3")
        os.kill(stopped, signal.SIGSTOP)
        time.sleep(0.2)
        os.kill(stopped, signal.SIGCONT)
        reach_file(run, max(metrics(run)) + 5)
        assert "was lost" not in cluster.events(cluster.job(job)) and worker_of(cluster, job, "node-3") == stopped
        os.kill(stopped, signal.SIGSTOP)
        done = cluster.wait_job(job, "DONE")
        account_is_whole(done, steps)
        assert told in cluster.events(done), cluster.events(done)
        wait_for(lambda: not os.path.exists(f"/proc/{stopped}"), "the stopped worker to be ended")


def test_a_stop_that_was_over_while_the_node_stood_still_ends_nobody(tmp_path, text):
    """The node hears of the stop, stands still itself for longer than its patience, and then of the end of the stop."""
    steps, run = 150, tmp_path / "run"
    with Cluster(tmp_path / "cluster", nodes=1, memberd=["--heartbeat-timeout-ms", 20000]) as cluster:
        job = cluster.submit(job_spec(text, run, 1, steps))
        reach_file(run, 5)
        worker, node = worker_of(cluster, job, "node-1"), cluster.nodes[0]
        os.kill(worker, signal.SIGSTOP)
        time.sleep(0.3)
        node.signal(signal.SIGSTOP)
        os.kill(worker, signal.SIGCONT)
        time.sleep(1.5)
        node.signal(signal.SIGCONT)
        account_is_whole(cluster.wait_job(job, "DONE"), steps)
        assert "was stopped by" not in node.log(), node.log()


def test_worker_stopped_before_it_is_ready_is_replaced(tmp_path, text):
    """The others are ready and wait for it; nothing else would ever end that."""
    once, lazy, run = tmp_path / "once", tmp_path / "trainworker", tmp_path / "run"
    once.write_text("")
    lazy.write_text(f"#!/bin/sh\nrm {once} 2>/dev/null && kill -STOP $$\nexec {BIN}/trainworker \"$@\"\n")
    lazy.chmod(0o755)
    with Cluster(tmp_path / "cluster", nodes=2, memberd=["--progress-timeout-ms", 1500],
                 traind=["--trainworker", lazy, "--stopped-timeout-ms", 0]) as cluster:
        done = cluster.wait_job(cluster.submit(job_spec(text, run, 2, 10)), "DONE")
        assert "no progress" in cluster.events(done) and "before it was ready" in cluster.events(done)
        account_is_whole(done, 10)


def test_stopped_node_is_evicted_and_comes_back(tmp_path, text):
    steps, run = 300, tmp_path / "run"
    with Cluster(tmp_path / "cluster", nodes=3, memberd=["--heartbeat-timeout-ms", 1000]) as cluster:
        job = cluster.submit(job_spec(text, run, 3, steps))
        reach_file(run, 20)
        cluster.nodes[2].signal(signal.SIGSTOP)
        reach_file(run, max(metrics(run)) + 20)
        assert "silent" in next(node.reason for node in cluster.list_nodes() if node.name == "node-3")
        cluster.nodes[2].signal(signal.SIGCONT)
        done = cluster.wait_job(job, "DONE")
        account_is_whole(done, steps)


def test_all_lost_goes_on_from_the_checkpoint(tmp_path, text):
    steps, run = 200, tmp_path / "run"
    with Cluster(tmp_path / "cluster", nodes=2) as cluster:
        job = cluster.submit(job_spec(text, run, 2, steps, every=25))
        wait_for(lambda: cluster.job(job).progress.checkpoint, "a checkpoint")
        for node in cluster.nodes:
            node.kill9()
        wait_for(lambda: cluster.job(job).state == pb.JOB_STATE_QUEUED, "the job to be queued again")
        cluster.add_node()
        cluster.add_node()
        done = cluster.wait_job(job, "DONE")
        assert done.progress.step == steps and "checkpoint" in cluster.events(done)


def test_all_lost_before_the_newest_checkpoint_was_told_of(tmp_path, text):
    """checkpoint.keep is 1: what memberd names was removed when the next one was written, and the writer died before it could say so."""
    steps, every, run, other = 250, 25, tmp_path / "run", tmp_path / "other"
    with Cluster(tmp_path / "cluster", nodes=2) as cluster:
        spec = job_spec(text, other, 2, steps, every=every)
        spec.train.checkpoint.keep = 99
        cluster.wait_job(cluster.submit(spec), "DONE")
        spec = job_spec(text, run, 2, 5000, every=every)  # too many to be over before the kill
        spec.train.checkpoint.keep = 1
        job = cluster.submit(spec)
        wait_for(lambda: cluster.job(job).progress.checkpoint, "a checkpoint")
        for node in cluster.nodes:
            node.kill9()
        wait_for(lambda: cluster.job(job).state == pb.JOB_STATE_QUEUED, "the job to be queued again")
        told = run / pathlib.Path(cluster.job(job).progress.checkpoint).name
        step = int(told.name[5:])
        own = json.loads(next(run.glob("step-*/manifest.json")).read_text())["job"]
        for path in run.glob("step-*"):
            shutil.rmtree(path)
        newer = run / f"step-{step + every:08}"
        shutil.copytree(other / newer.name, newer)
        manifest = json.loads((newer / "manifest.json").read_text())
        del manifest["digest"]
        (newer / "manifest.json").write_text(json.dumps({**manifest, "job": own}))  # as if this one had written it
        (run / "latest").unlink()
        (run / "latest").symlink_to(newer.name)
        cluster.add_node()
        cluster.add_node()
        wait_for(lambda: f"{newer} is taken instead, {every} steps after it" in cluster.events(cluster.job(job)), "which one is taken")
        wait_for(lambda: cluster.job(job).progress.step > step + every, "the job to go on")


def test_all_lost_without_a_checkpoint_fails_and_says_so(tmp_path, text):
    with Cluster(tmp_path / "cluster", nodes=2) as cluster:
        job = cluster.submit(job_spec(text, tmp_path / "run", 2, 5000))
        # Before memberd knows of a committed round, the start is as good a checkpoint as any.
        wait_for(lambda: cluster.job(job).rounds.recorded > 0, "a round in the record")
        for node in cluster.nodes:
            node.kill9()
        assert "checkpoint" in cluster.wait_job(job, "FAILED").reason


def tensors(path):
    return safetensors.numpy.load_file(path / "model.safetensors")


def test_llama_learns_and_two_are_as_one(tmp_path, text):
    """The other architecture: the loss falls, text comes out, and two workers train the model that one does."""
    steps, model = 60, {"preset": "llama", "heads": 4, "kv_heads": 2, "tied": "false"}
    last, losses = [], []
    for nodes in (1, 2):
        run = tmp_path / f"run-{nodes}"
        spec = job_spec(text, run, nodes, steps, **model)
        spec.train.sample.MergeFrom(pb.Sample(tokens=50, prompt="the "))
        with Cluster(tmp_path / f"cluster-{nodes}", nodes=nodes) as cluster:
            account_is_whole(cluster.wait_job(cluster.submit(spec), "DONE"), steps)
        losses.append([row["loss"] for _, row in sorted(metrics(run).items())])
        last.append(tensors(run / "latest"))
        assert len((run / "latest" / "sample.txt").read_text()) > 50
    assert losses[0][-1] < 0.7 * losses[0][0], losses[0]
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)
    assert last[0].keys() == last[1].keys() and "lm_head.weight" in last[0]
    for name, one in last[0].items():
        assert abs(last[1][name] - one).max() < 1e-3, name


def token_file(path, kind, tokens):
    """A file as llm.c writes them."""
    magic, version, dtype = {"gpt2": (20240520, 1, "<u2"), "llama3": (20240801, 7, "<u4")}[kind]
    header = numpy.zeros(256, "<i4")
    header[:3] = magic, version, len(tokens)
    path.write_bytes(header.tobytes() + numpy.array(tokens, dtype).tobytes())
    return str(path)


def test_files_of_tokens_are_a_text(tmp_path, text):
    """Bytes written as tokens of 16 and of 32 bits, in two files, train the very model that the text does."""
    data, run = list(text.read_bytes()), {}
    with Cluster(tmp_path / "cluster", nodes=1) as cluster:
        for kind in ("text", "gpt2", "llama3"):
            spec = job_spec(text, tmp_path / kind, 1, 10)
            if kind != "text":
                del spec.train.data.text[:]
                parts = [token_file(tmp_path / f"{kind}-{i}.bin", kind, part) for i, part in enumerate((data[:5000], data[5000:]))]
                spec.train.data.tokens.extend(parts)
                spec.train.model.vocab = "256"
            cluster.wait_job(cluster.submit(spec), "DONE")
            run[kind] = digest(tmp_path / kind / "latest" / "model.safetensors")
        spec.train.model.vocab = "300"
        spec.train.checkpoint.dir = str(tmp_path / "wide")
        cluster.wait_job(cluster.submit(spec), "DONE")
        assert tensors(tmp_path / "wide" / "latest")["transformer.wte.weight"].shape[0] == 300
        spec.train.model.vocab = "100"
        # The middle of the line, a long path, is left out.
        assert "data.t" in cluster.wait_job(cluster.submit(spec), "FAILED").reason
    assert run["text"] == run["gpt2"] == run["llama3"]


def shown(byte):
    """The character that vocab.json has for a byte."""
    seen = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return chr(byte if byte in seen else 256 + [b for b in range(256) if b not in seen].index(byte))


def exported_with_its_tokenizer(cluster, tmp_path, folder, vocabulary):
    """Job 1's export has its tokenizer; of a checkpoint's folder the one that is given. What transformers makes of it: tests/parity/test_bpe.py."""
    environment = {**cluster.environment, "TRAIND_ADDRESS": cluster.memberd.address}
    for name, words in (("of-job", ["1"]), ("of-folder", [tmp_path / "run", "--tokenizer", folder]), ("without", [tmp_path / "run"])):
        trainctl("export", *words, "-o", tmp_path / name, environment=environment)
        readme = (tmp_path / name / "README.md").read_text()
        assert ("merges.txt" in readme) == (name != "without") and ("is not here" in readme) == (name == "without")
        assert "256 bytes" not in readme and not (tmp_path / name / "tokenizer.json").exists()
    assert not (tmp_path / "without" / "vocab.json").exists()
    for name in ("of-job", "of-folder"):
        assert json.loads((tmp_path / name / "vocab.json").read_text()) == vocabulary
        assert (tmp_path / name / "merges.txt").read_text() == (folder / "merges.txt").read_text()
        told = json.loads((tmp_path / name / "tokenizer_config.json").read_text())
        assert told["tokenizer_class"] == "GPT2Tokenizer" and told["eos_token"] is None
    refused = trainctl("export", 1, "--tokenizer", tmp_path, "-o", tmp_path / "no", environment=environment, check=False)
    assert refused.returncode == 2 and not (tmp_path / "no").exists()
    assert refused.stderr == f"trainctl: tokenizer: {tmp_path}: vocab.json: cannot read: No such file or directory\n"


def test_text_through_a_tokenizer(tmp_path, text):
    """GPT-2's BPE from vocab.json and merges.txt: fewer tokens than bytes, a sample that is text again."""
    folder, steps = tmp_path / "tokenizer", 40
    merges = ["t h", "th e", "\u0120 the", "o v", "e r", "ov er", "\u0120 q", "u i", "c k"]
    names = [shown(byte) for byte in range(256)] + [merge.replace(" ", "") for merge in merges]
    folder.mkdir()
    (folder / "vocab.json").write_text(json.dumps({name: i for i, name in enumerate(names)}))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")
    with Cluster(tmp_path / "cluster", nodes=1) as cluster:
        spec = job_spec(text, tmp_path / "run", 1, steps, vocab=str(len(names)))
        spec.train.data.tokenizer = str(folder)
        spec.train.sample.MergeFrom(pb.Sample(tokens=30, prompt="the quick "))
        account_is_whole(cluster.wait_job(cluster.submit(spec), "DONE"), steps)
        exported_with_its_tokenizer(cluster, tmp_path, folder, {name: i for i, name in enumerate(names)})
        spec.train.model.vocab = "260"
        assert "model.vocab: found 260, allowed: at least 265" in cluster.wait_job(cluster.submit(spec), "FAILED").reason
    losses = [row["loss"] for _, row in sorted(metrics(tmp_path / "run").items())]
    assert losses[0] == pytest.approx(numpy.log(len(names)), rel=0.02) and losses[-1] < 0.8 * losses[0]
    sample = (tmp_path / "run" / "latest" / "sample.txt").read_text()
    assert sample.startswith("the quick ") and len(sample) >= len("the quick ") + 30


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_resume_is_bit_equal(tmp_path, text):
    """20 steps, then 20 more from the checkpoint, against 40 at once, over two nodes: the same bits."""
    with Cluster(tmp_path / "cluster", nodes=2) as cluster:
        for name, steps, resume in (("whole", 40, ""), ("half", 40, "")):
            spec = job_spec(text, tmp_path / name, 2, steps, every=20, resume=resume)
            cluster.wait_job(cluster.submit(spec), "DONE")
        resumed = job_spec(text, tmp_path / "resumed", 2, 40, every=20, resume=tmp_path / "half" / "step-00000020")
        cluster.wait_job(cluster.submit(resumed), "DONE")
    for name in ("model.safetensors", "optimizer.safetensors"):
        assert digest(tmp_path / "whole" / "step-00000040" / name) == digest(tmp_path / "resumed" / "step-00000040" / name)
    assert min(metrics(tmp_path / "resumed")) == 21


@pytest.mark.parametrize("more", [{}, {"mode": "diloco", "inner_steps": 5}, {"tp": 2}], ids=["ddp", "diloco", "tp"])
def test_a_job_whose_checkpoint_is_of_its_last_step_says_so(tmp_path, text, more):
    """Or of a later one: it ends well, and has trained nothing. A job that trains does not say it."""
    left = "nothing is left to train"
    with Cluster(tmp_path / "cluster", nodes=1, slots=2) as cluster:
        done = cluster.wait_job(cluster.submit(job_spec(text, tmp_path / "run", 1, 10, every=5, heads=4)), "DONE")
        assert left not in cluster.events(done)
        for name, steps in (("same", 10), ("fewer", 5), ("more", 12)):
            spec = job_spec(text, tmp_path / name, 1, steps, resume=tmp_path / "run", heads=4)
            if "tp" in more:
                spec.mesh.MergeFrom(pb.Mesh(workers_per_node=2, tp=2))
            else:
                spec.train.sync.MergeFrom(pb.Sync(**more))
            done = cluster.wait_job(cluster.submit(spec), "DONE")
            events = cluster.events(done)
            assert events.count(left) == (name != "more"), events
            if name != "more":
                assert f"checkpoint.resume: the checkpoint is of step 10 and train.steps is {steps}: nothing is left to train" in events
            assert done.exit_code == 0


def test_a_second_job_says_that_its_folder_is_another_s(tmp_path, text):
    """The first one, one that goes on from what is there, and ones with no steps left say nothing."""
    with Cluster(tmp_path / "cluster", nodes=1) as cluster:
        said = []
        for run, steps, resume in (("run", 10, ""), ("run", 20, tmp_path / "run"), ("run", 20, tmp_path / "run"), ("new", 20, tmp_path / "run"),
                                   ("run", 5, "")):
            job = cluster.submit(job_spec(text, tmp_path / run, 1, steps, every=5, resume=resume))
            said.append("checkpoints of another job" in cluster.events(cluster.wait_job(job, "DONE")))
        assert said == [False, False, False, False, True]


def test_a_job_that_began_again_does_not_accuse_itself(tmp_path, text):
    """All workers die with a checkpoint that memberd was not told of."""
    steps, run = 300, tmp_path / "run"
    with Cluster(tmp_path / "cluster", nodes=2) as cluster:
        job = cluster.submit(job_spec(text, run, 2, steps, every=50))
        wait_for(lambda: cluster.job(job).progress.checkpoint, "a checkpoint")
        known = int(cluster.job(job).progress.checkpoint[-8:])
        cluster.kill_memberd()
        wait_for(lambda: any((run / f"step-{step:08}" / "manifest.json").exists() for step in range(known + 50, steps, 50)), "one more")
        for node in list(cluster.nodes):
            node.kill9()
        cluster.restart_memberd()
        for _ in range(2):
            cluster.add_node()
        done = cluster.wait_job(job, "DONE")
    assert f"goes on from checkpoint {run}/step-" in cluster.events(done) and "another job" not in cluster.events(done), cluster.events(done)


def test_worker_that_dies_at_once_three_times(tmp_path, text):
    """One clear line: the exit, the last lines of its output, what to do."""
    broken = tmp_path / "trainworker"
    broken.write_text("#!/bin/sh\necho 'cannot find libimportant.so' >&2\nexit 127\n")
    broken.chmod(0o755)
    with Cluster(tmp_path / "cluster", nodes=1, traind=["--trainworker", broken]) as cluster:
        failed = cluster.wait_job(cluster.submit(job_spec(text, tmp_path / "run", 1, 10)), "FAILED")
        assert "127" in failed.reason and "libimportant" in failed.reason and "\n" not in failed.reason.strip()
        assert "three times" in failed.reason or "3 times" in failed.reason


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_full_disk_keeps_the_old_checkpoint(tmp_path, text):
    """The second checkpoint does not fit: the first stays, training goes on, the event is visible."""
    disk, run = tmp_path / "disk", tmp_path / "disk" / "run"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", disk], capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.strip()}")
    try:
        with Cluster(tmp_path / "cluster", nodes=2) as cluster:
            # About 0.1 M parameters: 1.3 MB of model and moments, so one fits and two do not.
            job = cluster.submit(job_spec(text, run, 2, 60, every=20))
            done = cluster.wait_job(job, "DONE", deadline_s=2 * DEADLINE_S)
            assert done.progress.step == 60
            assert "No space left" in cluster.events(done), cluster.events(done)
            kept = sorted(path.name for path in run.glob("step-*"))
            assert kept and (run / kept[0] / "manifest.json").exists()
            assert (run / "latest").resolve().name in kept
            assert not [path for path in run.iterdir() if path.name.startswith(".")], "what was half written is gone"
            manifest = json.loads((run / kept[0] / "manifest.json").read_text())
            assert manifest["step"] in (20, 40, 60)
            # Nor is there a byte for rows of metrics.
            with contextlib.suppress(OSError), open(disk / "all", "wb", buffering=0) as rest:
                while rest.write(bytes(4096)):
                    pass
            job = cluster.submit(job_spec(text, run / "second", 2, 5))
            done = cluster.wait_job(job, "DONE", deadline_s=2 * DEADLINE_S)
            assert f"cannot write {run}/second/metrics.jsonl (is the disk full?): training goes on" in cluster.events(done), cluster.events(done)
    finally:
        subprocess.run(["umount", "-l", disk], check=False)
