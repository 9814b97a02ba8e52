"""Jobs of `mesh: auto`: planned with measured links and layers for what is free, kept with their plan, run to their end with one worker's losses; slow links are
avoided; what cannot be is refused. Machines with slow cables are network namespaces: root is needed for these."""
import json
import os
import shutil
import subprocess

import pytest

from harness import BIN, DEADLINE_S, Cluster, trainctl, trainctl_json, wait_for
from mesh_jobs import alone, assert_same_training
from node_lab import NodeLab
from stubs import ROOT, pb
from test_links import check_rates
from test_plan import COSTS
from test_training import BATCH, CONTEXT, job_spec

MODEL = "model: {preset: gpt2, layers: 2, width: 64, heads: 4, context: %d, vocab: bytes}" % CONTEXT


def job_file(folder, text, mesh, steps=20, more=""):
    """The same training as sharded_spec of test_sharded_jobs.py."""
    path = folder / "job.yaml"
    path.write_text(f"""name: planned
{MODEL}
data: {{text: [{text}], validation: 10%}}
train: {{steps: {steps}, batch_tokens: {BATCH * CONTEXT}, lr: 1e-3, warmup: 5, clip: 1.0, seed: 7, eval_every: 7, micro_sequences: 4}}
mesh: {mesh}
checkpoint: {{dir: {folder}/run}}
{more}""")
    return path


def check_placement(job, nodes):
    """Its workers are where the plan had them."""
    assert [peer["node"] for peer in sorted(job["peers"], key=lambda peer: peer["rank"])] == [nodes[number] for number in job["plan"]["nodes"]]


def test_auto_runs_to_its_end_as_one_worker(tmp_path, text):
    one = alone(tmp_path, text)
    with Cluster(tmp_path / "cluster", nodes=2, slots=2) as cluster:
        environment = {**cluster.environment, "TRAIND_ADDRESS": cluster.memberd.address}
        file = job_file(tmp_path, text, "auto")
        done = trainctl("launch", file, environment=environment)
        assert "\nplan      dp " in "\n" + done.stdout and "links     measured by the nodes" in done.stdout and "ranks     node-" in done.stdout
        assert_same_training(one, tmp_path / "run")
        job = trainctl_json("status", 1, environment=environment)
        assert job["state"] == "done" and job["plan"]["step_s"] > 0 and job["plan"]["actual_step_s"] > 0
        nodes = {node["id"]: node["name"] for node in trainctl_json("nodes", environment=environment)}
        check_placement(job, nodes)
        assert "\nplan        dp " in trainctl("status", 1, environment=environment).stdout
        rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
        assert all(row["planned_step_s"] == pytest.approx(job["plan"]["step_s"]) for row in rows)
        assert all(row["step_s"] > 0 for row in rows[1:])
        assert "planned were" in trainctl("logs", 1, environment=environment).stdout
        # `mesh: {auto: true, threads: 1}` is the same, and what is taken is not planned with
        cluster.submit_command(["sleep", "100"], workers=4)
        wait_for(lambda: sum(len(node["workers"]) for node in trainctl_json("nodes", environment=environment)) == 4, "all slots to be taken")
        refused = trainctl("launch", job_file(tmp_path, text, "{auto: true, threads: 1}"), environment=environment, check=False)
        assert refused.returncode == 1 and "no node that lives and has a free slot" in refused.stderr


def planner_that_measures(folder, costs):
    """A trainctl beside which stands a trainworker that says that layers cost so much."""
    folder.mkdir()
    shutil.copy(BIN / "trainctl", folder / "trainctl")
    (folder / "trainworker").write_text(f"#!/bin/sh\ncat > /dev/null\ncat <<END\n{costs}END\n")
    (folder / "trainworker").chmod(0o755)
    return folder / "trainctl"


def test_schedules_that_are_chosen(tmp_path, text):
    """Where kept layers fit nowhere they are computed again; where updates are slow and microbatches many, stages are interleaved: jobs run what was planned."""
    one = alone(tmp_path, text, layers=4)
    with Cluster(tmp_path / "cluster", nodes=1, slots=2) as cluster:
        environment = {**cluster.environment, "TRAIND_ADDRESS": cluster.memberd.address}
        each = trainctl_json("nodes", environment=environment)[0]["memory_bytes"] // 2
        cases = {"recomputed": (each // 3, 1e-9), "interleaved": (1000, 1e-3)}
        for name, (kept, update) in cases.items():
            folder = tmp_path / name
            planner = planner_that_measures(folder, f"update {update}\nprocess 1000000\nround 0.001\n"
                                            f"cost 1 2 1e-4 1e-4 1e-1 2e-1 1e-2 1e-2 0 {kept} 0 1000\n")
            file = job_file(folder, text, "auto")
            file.write_text(file.read_text().replace("layers: 2", "layers: 4"))
            done = subprocess.run([planner, "launch", file], env=environment, capture_output=True, text=True, timeout=DEADLINE_S)
            assert done.returncode == 0, done.stderr
            assert_same_training(one, folder / "run")
            job = cluster.job(max(row["id"] for row in trainctl_json("jobs", environment=environment)))
            mesh = job.spec.mesh
            if name == "recomputed":
                assert mesh.recompute and ", recomputed: a step of" in done.stdout
            else:
                assert (mesh.pp, mesh.chunks, mesh.schedule, mesh.recompute) == (2, 2, "interleaved", False)
                assert "interleaved in 2 chunks" in done.stdout


def test_a_mesh_that_was_chosen(tmp_path, text):
    """A plan over the API as trainctl makes it, with tensor parallelism across nodes in an order of its own, is run as it says."""
    one = alone(tmp_path, text)
    with Cluster(tmp_path / "cluster", nodes=2, slots=2) as cluster:
        ids = {node.name: node.id for node in cluster.list_nodes()}
        spec = job_spec(text, tmp_path / "run", 1, 20, heads=4)
        spec.train.optimizer.eval_every = 7
        spec.mesh.MergeFrom(pb.Mesh(tp=2, auto=True))
        spec.plan.MergeFrom(pb.JobPlan(nodes=[ids["node-2"], ids["node-2"], ids["node-1"], ids["node-1"]], text="dp 2 x pp 1 x tp 2", step_s=1e-6))
        job = cluster.submit(spec)
        done = cluster.wait_job(job, "DONE")
        assert [peer.node_name for peer in sorted(done.peers, key=lambda peer: peer.rank)] == ["node-2", "node-2", "node-1", "node-1"]
        assert (done.spec.mesh.nodes, done.spec.mesh.workers_per_node, done.spec.mesh.workers) == (2, 2, 4)
        assert "mesh: dp 2 x tp 2" in cluster.events(done)
        assert_same_training(one, tmp_path / "run")


def test_steps_that_take_longer_are_an_event(tmp_path, text):
    with Cluster(tmp_path / "cluster", nodes=1) as cluster:
        spec = job_spec(text, tmp_path / "run", 1, 2000)
        spec.mesh.auto = True
        spec.plan.MergeFrom(pb.JobPlan(nodes=[cluster.list_nodes()[0].id], text="dp 1", step_s=1e-5, compute_s=1e-5))
        job = cluster.submit(spec)
        wait_for(lambda: "that were planned: workers compute longer than was measured" in cluster.events(cluster.job(job)), "an event")


def test_a_plan_is_on_as_many_nodes_as_the_job_wants(tmp_path, text):
    """Where one worker alone would be fastest too: training starts on no fewer nodes than mesh.min_nodes. What cannot be is said before layers are measured."""
    with Cluster(tmp_path / "cluster", nodes=2, slots=2) as cluster:
        environment = {**cluster.environment, "TRAIND_ADDRESS": cluster.memberd.address}
        planner = planner_that_measures(tmp_path / "bin", "update 1e-13\nprocess 1000000\nround 0.001\ncost 1 2 1e-9 1e-9 1e-9 1e-9 1e-9 1e-9 0 1000 0 1000\n")
        for least in (1, 2):
            folder = tmp_path / f"of-{least}"
            folder.mkdir()
            file = job_file(folder, text, f"{{auto: true, threads: 1, min_nodes: {least}}}")
            done = subprocess.run([planner, "launch", file], env=environment, capture_output=True, text=True, timeout=DEADLINE_S)
            assert done.returncode == 0, done.stderr
            job = cluster.job(least)
            assert len(set(job.spec.plan.nodes)) == job.spec.mesh.nodes == least and job.spec.mesh.min_nodes == least
        (tmp_path / "bin" / "trainworker").unlink()
        told = subprocess.run([planner, "launch", job_file(tmp_path, text, "{auto: true, min_nodes: 3}")], env=environment, capture_output=True, text=True,
                              timeout=DEADLINE_S)
        assert told.returncode == 1 and "mesh.min_nodes: found 3, allowed: at most 2, as many nodes as have slots and cores free now" in told.stderr


@pytest.mark.parametrize("mesh, words", [
    ("{auto: true, tp: 2}", "mesh.tp: found 2, allowed: nothing, since mesh.auto chooses it"),
    ("{auto: true, nodes: 3}", "mesh.nodes: found 3, allowed: nothing, since mesh.auto chooses it"),
    ("automatic", "mesh: found 'automatic', allowed: auto, or a mapping of"),
])
def test_what_does_not_go_with_auto(tmp_path, text, mesh, words):
    done = trainctl("launch", job_file(tmp_path, text, mesh), check=False)
    assert done.returncode == 2 and words in done.stderr


def test_what_does_not_fit_is_refused_with_the_numbers(tmp_path, text):
    """And nothing was started."""
    with Cluster(tmp_path / "cluster", nodes=1) as cluster:
        environment = {**cluster.environment, "TRAIND_ADDRESS": cluster.memberd.address}
        file = job_file(tmp_path, text, "auto")
        file.write_text(file.read_text().replace("layers: 2, width: 64", "layers: 6, width: 512"))
        done = trainctl("plan", file, "--cluster", small_cluster(tmp_path), "--costs", costs_file(tmp_path), environment=environment, check=False)
        assert done.returncode == 1 and "no plan fits into memory" in done.stderr and "it would fit with " in done.stderr
        assert trainctl_json("jobs", environment=environment) == []


def small_cluster(folder):
    path = folder / "nodes.yaml"
    path.write_text("nodes: [{name: a, memory: 20MiB}, {name: b, memory: 20MiB}]\n")
    return path


def costs_file(folder, slower=1):
    """Layers that take so many times longer than COSTS says."""
    rows = [line.split() for line in COSTS.splitlines()]
    for row in rows:
        if row[0] == "cost":
            row[3:9] = (f"{float(time) * slower:g}" for time in row[3:9])
    path = folder / "costs"
    path.write_text("".join(" ".join(row) + "\n" for row in rows))
    return path


def test_slow_links_carry_no_tensor_parallelism(tmp_path, text):
    """Three machines, one with a tenth of the others' rate: two that share layers are the others; a job of `mesh: auto` runs there to its end."""
    one = alone(tmp_path, text)
    with NodeLab(tmp_path) as lab:
        for number, rate in ((2, "10mbit"), (3, "100mbit"), (4, "100mbit")):
            lab.slow_down(lab.add_node(number, more=worker_of_speed(tmp_path, number, 1)), rate)
        words = ["plan", job_file(tmp_path, text, "{nodes: 2, tp: 2, threads: 1}"), "--as-is", "--costs", costs_file(tmp_path)]
        plan = lab.json(*words)  # it has them measured
        assert "measured by the nodes" in plan["links_by"] and "assumed" not in plan["links_by"]
        check_rates(lab, {"node-2": 10, "node-3": 100, "node-4": 100})
        plan = lab.json(*words)
        assert "measured by the nodes" in plan["links_by"] and "assumed" not in plan["links_by"]
        assert {rank["node"] for rank in plan["ranks"]} == {"node-3", "node-4"}
        # bytes over a way, and how long they take there
        way = next(link for link in plan["links"] if (link["from"], link["to"]) == ("node-3", "node-4"))
        assert way["bytes"] / way["seconds"] == pytest.approx(12.5e6, rel=0.15)
        free = lab.json("plan", job_file(tmp_path, text, "{auto: true, threads: 1}"), "--auto", "--costs", costs_file(tmp_path))
        assert "measured by the nodes" in free["links_by"]
        costs = costs_file(tmp_path)
        costs.write_text("".join(line + "\n" for line in COSTS.splitlines() if not line.startswith(("cost 1", "cost 4"))))  # so that it has to be tp 2
        launch = lab.trainctl("launch", job_file(tmp_path, text, "{auto: true, threads: 1}"), "--costs", costs)
        assert "links     measured by the nodes" in launch.stdout
        job = lab.json("status", 1)
        assert job["state"] == "done"
        check_placement(job, {node["id"]: node["name"] for node in lab.json("nodes")})
        assert "dp 1 x pp 1 x tp 2" in job["plan"]["text"]
        assert {peer["node"] for peer in job["peers"]} == {"node-3", "node-4"}
        assert_same_training(one, tmp_path / "run")


def worker_of_speed(folder, name, speed):
    """A trainworker that measures layers as slow as that, and works as ever."""
    path = folder / f"trainworker-{name}"
    path.write_text(f"""#!/bin/sh
[ "$1" = --measure ] || exec {BIN}/trainworker "$@"
cat > {folder}/asked-{name}
echo "cost 1 1 1e-4 1e-4 {1e-2 / speed} {2e-2 / speed} 5e-3 1e-2 8192 150000 40000 100000"
""")
    path.chmod(0o755)
    return ["--trainworker", str(path)]


def test_slow_nodes_get_less(tmp_path, text):
    """Each node measures a layer of the job; who cannot, or has work, is taken to be as fast as others, and nothing hangs."""
    with NodeLab(tmp_path) as lab:
        # layers of seconds, beside which no link is slow: each node is worth taking
        for number, speed in ((2, 0.01), (3, 0.0025), (4, 0.011)):
            lab.add_node(number, more=worker_of_speed(tmp_path, number, speed))
        words = ["plan", job_file(tmp_path, text, "{threads: 1}"), "--costs", costs_file(tmp_path, 100), "--any"]
        plan = lab.json(*words)
        assert "node-3 has measured 0.25 of that speed" in plan["layers_by"]
        given = {rank["node"]: rank["microbatches"] for rank in plan["ranks"]}
        assert given.get("node-3", 0) < min(given["node-2"], given["node-4"])
        assert lab.json(*words)["ranks"] == plan["ranks"]  # it is kept
        rows = {row["from"]: row["layer_s"] for row in lab.json("nodes", "--links")["links"] if row["from"] == row["to"]}
        assert rows == {"node-2": pytest.approx(3), "node-3": pytest.approx(12), "node-4": pytest.approx(3 / 1.1)}
        # another model's layers are others: they are measured too
        (tmp_path / "asked-3").unlink()
        lab.json("plan", job_file(tmp_path, text, "{threads: 1}"), "--set", "model.width=128", "--costs", costs_file(tmp_path, 100))
        assert (tmp_path / "asked-3").exists()
        # where somebody works nobody measures layers, and one that fails is said
        lab.trainctl("launch", "-n", "3", "--detach", "--", "sleep", "100")
        wait_for(lambda: all(node["workers"] for node in lab.json("nodes")), "all nodes to have work")
        (tmp_path / "asked-3").unlink()
        assert "has measured" not in lab.json(*words, "--measure")["layers_by"]
        assert not (tmp_path / "asked-3").exists()
        lab.trainctl("cancel", "1")
        wait_for(lambda: not any(node["workers"] for node in lab.json("nodes")), "the work to end")
        (tmp_path / "trainworker-3").write_text("#!/bin/sh\nexit 3\n")
        assert "has measured" not in lab.json(*words, "--measure")["layers_by"]
        assert "layers cannot be measured: trainworker --measure ended with exit code 3" in lab.lab.log()


def test_links_that_could_not_be_measured_are_said(tmp_path, text):
    with NodeLab(tmp_path) as lab:
        lab.add_node(2, hidden=True)
        lab.add_node(3, hidden=True)
        plan = lab.json("plan", job_file(tmp_path, text, "{threads: 1}"), "--costs", costs_file(tmp_path), "--measure")
        assert "could not be measured" in plan["links_by"] and "8 Mbit/s" in plan["links_by"]
        assert subprocess.run(lab.command("jobs", "--json"), capture_output=True, text=True).stdout.strip() == "[]"


def test_example_without_a_cluster(tmp_path, text):
    """configs/auto.yaml with a smaller model: a cluster of its own is started for it, planned for, and ended."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TRAIND_")}
    environment["TRAIND_HOME"] = str(tmp_path / "home")
    sets = {"model.layers": 2, "model.width": 64, "model.context": 32, "data.text": text, "data.validation": 0, "train.steps": 5, "train.warmup": 1,
            "train.batch_tokens": 1024, "checkpoint.dir": tmp_path / "run", "checkpoint.every": 0, "mesh.threads": 1, "sample.tokens": 1}
    words = [word for key, value in sets.items() for word in ("--set", f"{key}={value}")]
    done = trainctl("launch", ROOT / "configs" / "auto.yaml", *words, environment=environment)
    assert "plan      dp " in done.stdout and "done: 5 steps" in done.stdout
