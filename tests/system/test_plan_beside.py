"""Layers are measured by as many processes at once as workers share a host: of all its nodes, of the job's own workers with --as-is; how fast a node is, alone."""
import os
import subprocess

import pytest

from harness import DEADLINE_S, Cluster
from node_lab import NodeLab
from test_auto import job_file, planner_that_measures, worker_of_speed

ROW = "{layer} {layer} 5e-3 1e-2 8192 150000 40000 100000\n"
COSTS = "update 1e-9\nprocess 1000000\nround 0.001\ncost 1 1 1e-4 1e-4 " + ROW + "cost 1 4 4e-4 4e-4 " + ROW
pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core: nobody is measured beside another")


def planner_that_tells(folder):
    """It notes beside how many others each of its trainworkers is asked to measure. A layer takes twice as long beside others."""
    planner = planner_that_measures(folder, "")
    (folder / "trainworker").write_text(f"""#!/bin/sh
cat > /dev/null
echo $5 >> {folder}/beside
[ $5 = 0 ] && cat <<END || cat <<END2
{COSTS.format(layer=0.05)}END
{COSTS.format(layer=0.1)}END2
""")
    return planner


def asked(folder):
    told = sorted(int(word) for word in (folder / "beside").read_text().split())
    (folder / "beside").unlink()
    return told


def test_nodes_of_one_host(tmp_path, text):
    """Two nodes of one worker each; the process beside may be ended before it has noted anything."""
    planner = planner_that_tells(tmp_path / "bin")
    with Cluster(tmp_path / "cluster", nodes=2, slots=1) as cluster:
        environment = {**cluster.environment, "TRAIND_ADDRESS": cluster.memberd.address}
        for words, beside in ((), 1), (("--as-is", "--set", "mesh.nodes=2"), 1), (("--as-is", "--set", "mesh.nodes=1"), 0):
            done = subprocess.run([planner, "plan", job_file(tmp_path, text, "{threads: 1}"), *words], env=environment, check=True, stdout=subprocess.PIPE, text=True, timeout=DEADLINE_S)
            # one alone too, as the nodes were when they measured a layer
            assert set(asked(tmp_path / "bin")) == {0, beside}, words
            assert ("in f32, 2 workers at once;" in done.stdout.replace("\n", " ")) == (beside == 1), done.stdout


def test_nodes_are_compared_with_one_alone(tmp_path, text):
    with NodeLab(tmp_path) as lab:
        lab.add_node(2, slots=2, more=worker_of_speed(tmp_path, 2, 0.15))  # 0.2 s a layer, half as fast as this machine
        lab.program = planner_that_tells(tmp_path / "bin")
        plan = lab.json("plan", job_file(tmp_path, text, "{threads: 1}"), "--measure")
        assert "node-2 has measured 0.50 of that speed" in plan["layers_by"]
        assert set(asked(tmp_path / "bin")) == {0, 1}


def test_of_another_model_layers_alone_are_measured(tmp_path, text):
    """Links that are known stay as they were, with their age."""
    with NodeLab(tmp_path) as lab:
        for node, speed in (2, 0.3), (3, 0.15):
            lab.add_node(node, more=worker_of_speed(tmp_path, node, speed))
        lab.program = planner_that_tells(tmp_path / "bin")
        tables = []
        for more in ["--measure"], ["--set", "model.context=16"]:
            plan = lab.json("plan", job_file(tmp_path, text, "{threads: 1}"), *more)
            assert "node-3 has measured 0.50 of that speed" in plan["layers_by"]
            tables.append(lab.json("nodes", "--links"))
        before, after = tables
        assert after["layers_of"] != before["layers_of"]
        between = [[row["bandwidth_bytes_per_s"] for row in table["links"] if row["from"] != row["to"]] for table in tables]
        assert len(between[0]) == 2 and between[0] == between[1]
        ages = {(row["from"], row["to"]): row["age_s"] for row in after["links"]}
        assert max(ages["node-2", "node-2"], ages["node-3", "node-3"]) < min(ages["node-2", "node-3"], ages["node-3", "node-2"])
