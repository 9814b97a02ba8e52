"""`trainctl plan`: plans for clusters in files and for a running one, with costs from a file and measured; refusals."""
import json
import os
import re
from collections import Counter

import pytest

from fake_trainer import FakeTrainer
from harness import Cluster, trainctl, trainctl_json
from stubs import ROOT, pb

EXAMPLE = ROOT / "configs" / "cluster.yaml"
JOB = """name: planned
model: {layers: 6, width: 64, heads: 4, context: 32}
data: {text: [text.txt]}
train: {steps: 10, batch_tokens: 512, micro_sequences: 4}
mesh: {nodes: 2, threads: 1}
"""
# tp, microbatch; forward and backward of embedding, layer and head in seconds; bytes of embedding, layer, head and working memory
COSTS = """# made up
update 1e-9
process 8000000
round 0.001
""" + "".join(f"cost {tp} {n} {1e-4 * n} {1e-4 * n} {1e-2 * n / tp} {2e-2 * n / tp} {5e-3 * n / tp} {1e-2 * n / tp} "
              f"{8192 * n} {150000 * n // tp} {40000 * n} {100000 * n}\n" for tp in (1, 2, 4) for n in (1, 2, 4))


@pytest.fixture
def job(tmp_path):
    (tmp_path / "text.txt").write_text("all work and no play makes jack a dull boy\n" * 50)
    (tmp_path / "costs").write_text(COSTS)
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return path


@pytest.fixture
def here(tmp_path):
    """Runs trainctl where no cluster is."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TRAIND_")}
    environment["TRAIND_HOME"] = str(tmp_path / "home")

    def run(*words, **options):
        return trainctl(*words, environment=environment, check=False, **options)
    run.environment = environment
    return run


def cluster_file(folder, nodes, links="inside: {ms: 0.01, gbit: 40}\nbetween: {ms: 0.2, gbit: 1}\n"):
    path = folder / "nodes.yaml"
    path.write_text("nodes:\n" + "".join(f"  - {{{node}}}\n" for node in nodes) + links)
    return path


def check(plan, batch, layers):
    """What must be so of any plan."""
    ranks = plan["ranks"]
    assert len(ranks) == plan["dp"] * plan["pp"] * plan["tp"]
    assert sum(plan["layers"]) == layers and len(plan["layers"]) == plan["pp"] * plan["chunks"] and min(plan["layers"]) >= 1
    assert len({rank["worker"] for rank in ranks}) == len(ranks)
    replicas = {rank["dp"]: rank["microbatches"] for rank in ranks}
    assert sum(replicas.values()) * plan["microbatch"] == batch
    holders = {}
    for rank in ranks:
        holders.setdefault((rank["pp"], rank["tp"]), set()).add(rank["node"])
    assert set(plan["goes_back_without"]) == {node for nodes in holders.values() if len(nodes) == 1 for node in nodes}
    assert all(0 < rank["memory_bytes"] <= rank["has_bytes"] for rank in ranks)
    assert max(rank["memory_bytes"] for rank in ranks) == plan["memory_bytes"] and plan["fits"]
    assert abs(sum(plan["times"].values()) - plan["step_s"]) < 1e-6 * plan["step_s"]
    assert all(other["why"] for other in plan["others"])
    assert all(not other["fits"] or other["step_s"] >= plan["step_s"] for other in plan["others"])


def keys_of(text):
    """The line of keys, as --set has them."""
    line = re.search("^keys +(.*)$", text, re.MULTILINE).group(1)
    return [f"{key}={value}" for key, value in re.findall(r"([a-z_]+\.[a-z_]+): (\[[^]]*\]|[^, ]+)", line)]


@pytest.mark.parametrize("nodes, sets", [
    (["name: a", "name: b"], ["mesh.pp=2", "mesh.chunks=3", "mesh.layers=[3, 3]", "train.micro_sequences=2"]),
    (["name: a", "name: b"], ["mesh.pp=2", "mesh.schedule=gpipe", "mesh.layers=4,2"]),
    (["name: a", "name: b"], ["mesh.shares=[3, 1]", "mesh.zero_owners=2"]),
    (["name: a"], ["mesh.tp=2", "mesh.sequence_parallel=true", "mesh.min_nodes=2"]),
    (["name: a"], ["mesh.pp=2", "mesh.schedule=1f1b"]),
    (["name: a", "name: b, speed: 0.01"], ["mesh.min_nodes=2"]),
    (["name: a, workers: 4"], ["mesh.nodes=1", "mesh.auto=true"]),
    (["name: a, memory: 15.4MiB", "name: b, memory: 15.4MiB", "name: c, memory: 15.4MiB"], ["mesh.threads=0", "checkpoint.every=0"]),
    (["name: a, speed: 3", "name: b"], ["mesh.pp=2", "mesh.layers=[1, 5]"]),
])
def test_with_the_keys_of_a_plan_a_job_is_that_plan(tmp_path, job, here, nodes, sets):
    words = ["plan", job, "--cluster", cluster_file(tmp_path, nodes, "between: {ms: 0.01, gbit: 40}\n"), "--costs", tmp_path / "costs",
             *(word for key in sets for word in ("--set", key))]
    plan = trainctl_json(*words, environment=here.environment)
    keys = keys_of(here(*words).stdout)
    assert plan["keys"] == keys and plan["keys_place"]
    own = trainctl_json(*words, "--as-is", *(word for key in keys for word in ("--set", key)), environment=here.environment)
    for name in ("dp", "pp", "tp", "schedule", "chunks", "microbatch", "recompute", "sequence_parallel", "zero_owners", "layers"):
        assert own[name] == plan[name], (name, keys)
    # what is said of mesh.min_nodes holds; there may be fewer nodes, then the keys say so
    least = max(int(word.split("=")[1]) for word in [*sets, "mesh.min_nodes=1"] if word.startswith("mesh.min_nodes="))
    assert len({rank["node"] for rank in plan["ranks"]}) >= min(least, len(nodes)) and (least <= len(nodes)) == ("mesh.min_nodes" not in "".join(keys))
    assert sorted(rank["microbatches"] for rank in own["ranks"]) == sorted(rank["microbatches"] for rank in plan["ranks"])


def test_keys_that_cannot_place_workers_say_so(tmp_path, job, here):
    nodes = cluster_file(tmp_path, ["name: a, workers: 2, memory: 15.4MiB", "name: b, memory: 15.4MiB"], "between: {ms: 0.01, gbit: 40}\n")
    told = here("plan", job, "--cluster", nodes, "--costs", tmp_path / "costs")
    assert "no keys place 3 workers on 2 nodes as unevenly as this; `mesh: auto` does" in told.stdout, told
    assert "mesh.nodes" not in told.stdout


SITES = "inside: {ms: 0.01, gbit: 40}\nbetween: {ms: 0.2, gbit: 1}\nlinks:\n  - {from: x, to: y, ms: 50, gbit: 0.02}\n"


def sites(folder, memory):
    """Two nodes at each of two sites, with a slow way between."""
    return cluster_file(folder, [f"name: {name}, memory: {memory}, site: {site}" for name, site in ("ax", "by", "cx", "dy")], SITES)


def test_replicas_that_train_apart(tmp_path, job, here):
    """What goes between them are merges, and workers hold more. Where one holds the model each is a replica; else a replica lies within a site, where a plan for gradients at each step has half as many tokens a second."""
    def plan(memory, mode, *more):
        words = ["plan", job, "--cluster", sites(tmp_path, memory), "--costs", tmp_path / "costs", "--set", f"sync.mode={mode}", "--set", "train.steps=2000", *more]
        return trainctl_json(*words, environment=here.environment), here(*words).stdout

    each, told = plan("1GiB", "diloco")
    assert "sync      diloco: replicas train apart and merge every 500 steps, 4 bytes of each parameter" in told
    assert "merges 0." in told and "gradients over dp" not in told
    assert (each["dp"], each["pp"], each["tp"]) == (4, 1, 1)
    summed, told = plan("1GiB", "ddp")
    assert "sync  " not in told and "gradients over dp" in told
    assert summed["step_s"] > 1.5 * each["step_s"]
    split, _ = plan("18.4MiB", "diloco")
    assert split["dp"] == 2 and split["pp"] * split["tp"] == 2 and split["zero_owners"] == 0
    for replica in (0, 1):
        assert {rank["node"] for rank in split["ranks"] if rank["dp"] == replica} in ({"a", "c"}, {"b", "d"})
    assert sum(link["bytes"] for link in split["links"] if {link["from"], link["to"]} not in ({"a", "c"}, {"b", "d"})) < 1e-2 * sum(link["bytes"] for link in split["links"])
    meanwhile, told = plan("18.4MiB", "streaming")
    assert "and train on meanwhile" in told and meanwhile["dp"] == 2
    # What the file asks for may be for whole models alone.
    refused = here("plan", job, "--cluster", sites(tmp_path, "18.4MiB"), "--costs", tmp_path / "costs", "--set", "sync.mode=diloco", "--set", "sync.grace_seconds=1")
    assert refused.returncode == 1 and "no plan fits into memory" in refused.stderr and "dp 4 x pp 1 x tp 1" in refused.stderr, refused


def test_who_writes_a_checkpoint_needs_room_too(tmp_path, job, here):
    """It was said, and the plan given all the same: the job would have trained, and lost its last checkpoint. What the refusal asks for is enough."""
    def words(memory):
        return ["plan", job, "--cluster", cluster_file(tmp_path, [f"name: {name}, memory: {memory}" for name in "ab"]), "--costs", tmp_path / "costs", "--set", "checkpoint.every=5"]

    refused = here(*words("13MiB"))
    assert refused.returncode == 1 and not refused.stdout
    needs = re.search(r"takes ([\d.]+) MiB, to write a checkpoint, at a worker of node a, which has 13.0 MiB; it would fit with ([\d.]+) MiB there", refused.stderr)
    assert needs and needs[1] == needs[2], refused.stderr
    assert "TOO MUCH" not in here(*words(f"{float(needs[2]) + 0.1:.1f}MiB")).stdout
    assert here(*words(f"{float(needs[2]) + 0.1:.1f}MiB")).returncode == 0


def test_plans_know_no_copies(tmp_path, job, here):
    """With moments by pieces the one plan that was left had one worker, and keys that no job can have."""
    words = ["plan", job, "--cluster", cluster_file(tmp_path, [f"name: n{i}" for i in range(4)]), "--costs", tmp_path / "costs", "--set", "mesh.nodes=4",
             "--set", "sync.mode=diloco", "--set", "mesh.copies=2", "--set", "mesh.zero_owners=1"]
    done = here(*words)
    assert done.returncode == 1 and not done.stdout
    assert "mesh.copies: found 2, allowed: 1, since a search for plans knows no copies; --as-is says" in done.stderr
    assert "plan      dp 4 x pp 1 x tp 1" in here(*words, "--as-is").stdout


def test_example_cluster(tmp_path, job, here):
    words = ["plan", job, "--cluster", EXAMPLE, "--costs", tmp_path / "costs", "--pareto", "--any"]
    plan = trainctl_json(*words, environment=here.environment)
    check(plan, 16, 6)
    assert len(plan["others"]) > 3 and len(plan["pareto"]) > 1
    for faster, smaller in zip(plan["pareto"], plan["pareto"][1:]):
        assert smaller["step_s"] > faster["step_s"] and smaller["memory_bytes"] < faster["memory_bytes"]
    for other in plan["others"]:  # none that it prints is missing
        assert not other["fits"] or any(row["step_s"] <= other["step_s"] and row["memory_bytes"] <= other["memory_bytes"] for row in plan["pareto"])
    assert plan["links"] and all(link["bytes"] > 0 and link["seconds"] > 0 for link in plan["links"])
    assert trainctl_json(*words, environment=here.environment) == plan  # the same again
    text = here(*words)
    assert text.returncode == 0 and not text.stderr
    for words in ("plan      dp ", "MICROBATCHES", "TAKES", "WHY NOT", "LESS MEMORY", "choices:", str(EXAMPLE)):
        assert words in text.stdout


def test_sequence_parallel_as_asked_for(tmp_path, job, here):
    """It sends as many bytes, of which all-gathers are not made behind gradients of weights; with stages, messages are of one worker's rows."""
    plans = []
    for asked in ("true", "false"):
        words = ["plan", job, "--cluster", cluster_file(tmp_path, ["name: a, workers: 2", "name: b, workers: 2"]), "--costs", tmp_path / "costs",
                 "--as-is", "--set", "mesh.workers_per_node=2", "--set", "mesh.tp=2", "--set", "mesh.pp=2",
                 "--set", f"mesh.sequence_parallel={asked}"]
        plans.append(trainctl_json(*words, environment=here.environment))
        assert (", sequence parallel\n" in here(*words).stdout) == (asked == "true")
    own, rows = plans
    assert own["sequence_parallel"] and not rows["sequence_parallel"]
    assert own["times"]["exchange_s"] > rows["times"]["exchange_s"] > 0

    def sent(plan, between):
        return sum(link["bytes"] for link in plan["links"] if (link["from"] != link["to"]) == between)
    assert sent(own, False) == pytest.approx(sent(rows, False), rel=1e-2)  # and gradients of what all hold, once a step
    assert 0 < sent(own, True) < sent(rows, True)


def test_memory_is_saved_where_it_is_lacking(tmp_path, job, here):
    """ZeRO-1 with the owners that the file asks for; with two among the plans that take less."""
    (tmp_path / "costs").write_text("".join(line + "\n" for line in COSTS.splitlines() if not line.startswith(("cost 2", "cost 4"))))
    nodes = cluster_file(tmp_path, [f"name: n{i}" for i in range(4)])
    words = ["plan", job, "--cluster", nodes, "--costs", tmp_path / "costs", "--set", "mesh.nodes=4", "--set", "checkpoint.every=0"]
    whole = trainctl_json(*words, "--as-is", environment=here.environment)
    asked = trainctl_json(*words, "--as-is", "--set", "mesh.zero_owners=2", environment=here.environment)
    parameters = 6 * (12 * 64 * 64 + 13 * 64) + 256 * 64 + 32 * 64 + 2 * 64
    assert (whole["zero_owners"], asked["zero_owners"]) == (0, 2)
    assert whole["memory_bytes"] - asked["memory_bytes"] == pytest.approx(3 * parameters, abs=2)  # 16 bytes, and 8 + 8 x 2/4 + 4/4

    def sent(plan):
        return sum(link["bytes"] for link in plan["links"])
    assert sent(asked) / sent(whole) == pytest.approx(4 / 3, rel=1e-6)  # as tests/system/test_zero_jobs.py measures
    assert "mesh.zero_owners: 2" in here(*words, "--as-is", "--set", "mesh.zero_owners=2").stdout
    assert trainctl_json(*words, environment=here.environment)["zero_owners"] == 0
    assert any(row["zero_owners"] == 2 for row in trainctl_json(*words, "--pareto", environment=here.environment)["pareto"])


def test_a_strict_job_with_owners_of_moments(tmp_path, job, here):
    """As it is, and as `mesh: auto` takes it: with its owners, and no worse than without replicas."""
    words = ["plan", job, "--cluster", cluster_file(tmp_path, [f"name: n{i}" for i in range(4)]), "--costs", tmp_path / "costs", "--set", "train.strict=true",
             "--set", "mesh.zero_owners=2"]
    own = trainctl_json(*words, "--as-is", "--set", "mesh.nodes=4", environment=here.environment)
    assert (own["dp"], own["zero_owners"]) == (4, 2)
    chosen = trainctl_json(*words, environment=here.environment)
    check(chosen, 16, 6)
    assert chosen["dp"] > 1 and chosen["zero_owners"] == 2 and chosen["step_s"] <= own["step_s"]


def test_what_a_lost_node_costs_is_said(tmp_path, job, here):
    """A stage on one node alone, and each of two replicas whole on a node of its own."""
    nodes = cluster_file(tmp_path, ["name: a", "name: b"])
    words = ["plan", job, "--as-is", "--cluster", nodes, "--costs", tmp_path / "costs", "--set", "mesh.nodes=2"]
    alone = here(*words, "--set", "mesh.pp=2")
    assert "without a or b training goes back to the newest checkpoint: no other node holds all that it does" in alone.stdout, alone.stdout
    assert trainctl_json(*words, "--set", "mesh.pp=2", environment=here.environment)["goes_back_without"] == ["a", "b"]
    both = here(*words)
    assert both.returncode == 0 and "goes back" not in both.stdout
    assert trainctl_json(*words, environment=here.environment)["goes_back_without"] == []


def test_slow_nodes_get_less_and_far_ones_nothing(tmp_path, job, here):
    nodes = cluster_file(tmp_path, ["name: a", "name: b", "name: slow, speed: 0.5"], "between: {ms: 0.01, gbit: 40}\n")
    plan = trainctl_json("plan", job, "--any", "--cluster", nodes, "--costs", tmp_path / "costs", environment=here.environment)
    check(plan, 16, 6)
    assert (plan["dp"], plan["pp"]) == (3, 1)  # beside which no plan of such links and costs is faster
    given = {rank["node"]: rank["microbatches"] for rank in plan["ranks"]}
    assert given["slow"] < min(given["a"], given["b"])
    far = cluster_file(tmp_path, ["name: a", "name: b", "name: far"],
                       "between: {ms: 0.01, gbit: 40}\nlinks: [{from: a, to: far, ms: 500, gbit: 0.001}, {from: b, to: far, ms: 500, gbit: 0.001}]\n")
    plan = trainctl_json("plan", job, "--cluster", far, "--costs", tmp_path / "costs", environment=here.environment)
    check(plan, 16, 6)
    assert {rank["node"] for rank in plan["ranks"]} == {"a", "b"}


def test_what_does_not_fit_is_refused_with_the_numbers(tmp_path, job, here):
    nodes = cluster_file(tmp_path, ["name: a, memory: 8.5MiB", "name: b, memory: 8.5MiB"])
    done = here("plan", job, "--cluster", nodes, "--costs", tmp_path / "costs")
    assert done.returncode == 1 and not done.stdout
    for words in ("no plan fits into memory", "takes ", "which has 8.50 MiB", "it would fit with "):
        assert words in done.stderr


def test_links_of_a_node_share_its_card(tmp_path, job, here):
    """The stage in the middle sends on and back: as fast as its card, which is its links' where nobody says."""
    found = {}
    for card in ("", ", card_gbit: 100", ", card_gbit: 0.0005", ", card_in_gbit: 0.0005"):
        nodes = cluster_file(tmp_path, ["name: a", "name: b" + card, "name: c"], "between: {ms: 0.1, gbit: 0.002}\n")
        words = ["plan", job, "--cluster", nodes, "--costs", tmp_path / "costs", "--as-is", "--set", "mesh.nodes=3", "--set", "mesh.pp=3", "--set", "mesh.schedule=1f1b",
                 "--set", "train.micro_sequences=1"]
        found[card] = json.loads(here(*words, "--json").stdout)
        shown = here(*words).stdout
        middle = found[card]["ranks"][1]["node"]
        assert f"\n{middle} " in shown and "(others)" in shown
        cards = {row["node"] + row["way"]: row for row in found[card]["cards"]}
        sent = sum(link["bytes"] for link in found[card]["links"] if link["from"] == middle)
        assert cards[middle + "out"]["bytes"] == sent
    free, slow_both, slow_in = (found[card]["step_s"] for card in (", card_gbit: 100", ", card_gbit: 0.0005", ", card_in_gbit: 0.0005"))
    assert 1.01 * free < found[""]["step_s"] < slow_in <= slow_both


def test_links_of_a_site_share_its_cable(tmp_path, job, here):
    """Two replicas of two stages at two sites: a replica's boundaries, or all gradients, go over the cable together."""
    found = {}
    for cable in ("", "cable_gbit: 100", "cable_gbit: 0.002", "cable_gbit: 100, cable_in_gbit: 0.002"):
        nodes = cluster_file(tmp_path, ["name: a, site: here", "name: b, site: here", "name: c, site: there", "name: d, site: there"],
                             "between: {ms: 0.1, gbit: 0.002}\n" + (f"sites: [{{name: there, {cable}}}]\n" if cable else ""))
        words = ["plan", job, "--cluster", nodes, "--costs", tmp_path / "costs", "--as-is", "--set", "mesh.nodes=4", "--set", "mesh.pp=2",
                 "--set", "train.micro_sequences=1"]
        found[cable] = json.loads(here(*words, "--json").stdout)
        cables = {(row["node"], row["way"]): row for row in found[cable]["cables"]}
        over = {"in": 0, "out": 0}
        for link in found[cable]["links"]:
            if (link["from"] in "cd") != (link["to"] in "cd"):
                over["in" if link["to"] in "cd" else "out"] += link["bytes"]
        assert {way: row["bytes"] for (node, way), row in cables.items()} == (over if cable else {}) and all(node == "c" for node, _ in cables)
        assert ("(other sites)" in here(*words).stdout) == bool(cable)
    unknown, free, slow, slow_in = (found[cable]["step_s"] for cable in found)
    assert unknown == free and 1.02 * free < slow_in <= slow


@pytest.mark.parametrize("wrong, line, words", [
    ("nodes: [{name: a, site: s}]\nsites: [{name: t, cable_gbit: 1}]", 2, "sites: found something else, allowed: name is the site of a node"),
    ("nodes: [{name: a}]\nsites: [{cable_gbit: 1}]", 2, "sites: found something else, allowed: name is the site of a node"),
    ("nodes: [{name: a, site: s}]\nsites: [{name: s, cable_in_gbit: 0}]", 2, "cable_in_gbit: found '0', allowed: a number above 0"),
    ("nodes: [{name: a, site: s}]\nsites: {name: s}", 2, "sites: found something else, allowed: a list of {name: A, cable_gbit: ...}"),
    ("nodes: [{name: a, speed: fast}]", 1, "speed: found 'fast', allowed: a number above 0"),
    ("nodes: [{name: a, card_gbit: 0}]", 1, "card_gbit: found '0', allowed: a number above 0"),
    ("nodes:\n  - {name: a, card_in_gbit: fast}", 2, "card_in_gbit: found 'fast', allowed: a number above 0"),
    ("nodes:\n  - {name: a, memory: 4GB}", 2, "memory: found '4GB', allowed: in MiB, GiB or TiB, as 512MiB or 16 GiB"),
    ("nodes:\n  - {name: a, memory: 0.5B}", 2, "memory: found '0.5B', allowed: in MiB, GiB or TiB, as 512MiB or 16 GiB, below 1024 TiB"),
    ("nodes:\n  - {name: a, memory: 20000000TiB}", 2, "memory: found '20000000TiB', allowed: in MiB, GiB or TiB, as 512MiB or 16 GiB, below 1024 TiB"),
    ("nodes:\n  - {name: a, memory: nanGiB}", 2, "memory: found 'nanGiB', allowed: in MiB, GiB or TiB, as 512MiB"),
    ("nodes:\n  - {name: a, memory: [4GiB]}", 2, "memory: found something else, allowed: in MiB, GiB or TiB, as 512MiB"),
    ("nodes: [{name: a}]\nbetween: {ms: }", 2, "ms: found '', allowed: a number from 0"),
    ("nodes: [{name: a}]\nbusy: True", 2, "busy: found 'True', allowed: true or false"),
    ("nodes: [{name: a}]\nbusy: [true]", 2, "busy: found something else, allowed: true or false"),
    ("nodes: [{name: a}, {name: b}]\nlinks:\n  - {from: a, to: b, ms: 1, oneway: yes}", 3, "oneway: found 'yes', allowed: true or false"),
    ("nodes: [{name: a}]\nbetwen: {ms: 1}", 2, "cluster: found 'betwen', allowed: nodes, sites, inside, between, links, busy"),
    ("nodes: [{name: a}]\nlinks: [{from: a, to: b}]", 2, "links: found something else, allowed: from and to are nodes, or sites"),
    ("nodes:\n  - {name: a}\n  - {name: b}\n  - {name: a}", 4, "name: found 'a', allowed: one that no other node has"),
    ("nodes: [{name: a}, {name: b}]\nlinks:\n  - {from: a, ms: 5}", 3, "links: found one without `to`, allowed: from and to are nodes, or sites"),
    ("nodes: [{name: a}, {name: b}]\nlinks:\n  - {to: a, ms: 5}", 3, "links: found one without `from`, allowed"),
    ("nodes: [{name: a}, {name: b}]\nlinks:\n  - {from: a, to: }", 3, "to: found '', allowed: a node, or a site"),
    ("nodes: [{name: a, workers: 0}]", 1, "workers: found '0', allowed: a number above 0"),
    ("nodes: {a", 2, "no YAML"),
    ("", 1, "nodes: found nothing"),
])
def test_bad_cluster_files(tmp_path, job, here, wrong, line, words):
    path = tmp_path / "bad.yaml"
    path.write_text(wrong)
    done = here("plan", job, "--cluster", path, "--costs", tmp_path / "costs")
    assert done.returncode == 2 and not done.stdout
    assert f"{path}:{line}: " in done.stderr and words in done.stderr


def test_bad_costs(tmp_path, job, here):
    nodes = cluster_file(tmp_path, ["name: a"])
    done = here("plan", job, "--cluster", nodes, "--costs", tmp_path / "none")
    assert done.returncode == 2 and f"--costs: cannot read {tmp_path}/none: No such file" in done.stderr
    done = here("plan", job, "--cluster", nodes, "--costs", tmp_path)
    assert done.returncode == 2 and f"--costs: cannot read {tmp_path}: Is a directory" in done.stderr
    done = here("launch", job, "--set", "mesh.nodes=1", "--set", "mesh.auto=true", "--costs", tmp_path / "none")
    assert done.returncode == 2 and f"--costs: cannot read {tmp_path}/none: No such file" in done.stderr and not here("jobs").stdout
    (tmp_path / "costs").write_text("cost 1 2 3\n")
    done = here("plan", job, "--cluster", nodes, "--costs", tmp_path / "costs")
    assert done.returncode == 2 and "no line of costs: cost 1 2 3" in done.stderr
    (tmp_path / "costs").write_text(COSTS + "of gpt2 width 64 heads 4/4 of 16 hidden 256 context 32 vocab 256 f32 threads 2\n")
    done = here("plan", job, "--cluster", nodes, "--costs", tmp_path / "costs")
    assert done.returncode == 2 and "found costs of gpt2 width 64 heads 4/4 of 16 hidden 256 context 32 vocab 256 f32 threads 2, allowed: of gpt2 " in done.stderr
    assert here("plan", job, "--cluster", nodes, "--costs", tmp_path / "costs", "--set", "mesh.threads=2").returncode == 0
    (tmp_path / "costs").write_text("update 1e-9\n")
    done = here("plan", job, "--cluster", nodes, "--costs", tmp_path / "costs")
    assert done.returncode == 2 and "no cost of any layer" in done.stderr
    assert here("plan", tmp_path / "costs", "--cluster", nodes).returncode == 2


@pytest.mark.parametrize("words, told", [
    (["--cluster", EXAMPLE, "--measure"], "--measure does not go with --cluster: the links of a running cluster are measured"),
    (["--auto", "--cluster", EXAMPLE], "--auto does not go with --cluster: slots are free in a running cluster"),
    (["--as-is", "--pareto", "--cluster", EXAMPLE], "--pareto does not go with --as-is: the job's own plan is the only one"),
])
def test_options_that_contradict_each_other(tmp_path, job, here, words, told):
    done = here("plan", job, "--costs", tmp_path / "costs", *words)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"trainctl: {told}\n")


def test_a_job_as_it_is(tmp_path, job, here):
    """Microbatches are cut out of a replica's share, whatever its speed; layers as jobs cut them; what is wrong is said."""
    nodes = cluster_file(tmp_path, ["name: a", "name: b, speed: 0.25"])
    words = ["plan", job, "--cluster", nodes, "--costs", tmp_path / "costs", "--as-is"]
    plan = trainctl_json(*words, environment=here.environment)
    assert [(rank["dp"], rank["microbatches"]) for rank in plan["ranks"]] == [(0, 2), (1, 2)] and plan["microbatch"] == 4
    plan = trainctl_json(*words, "--set", "mesh.pp=2", environment=here.environment)
    assert (plan["pp"], plan["chunks"], plan["recompute"]) == (2, 1, False) and sorted(plan["layers"]) == [3, 3]
    plan = trainctl_json(*words, "--set", "train.batch_tokens=256", "--set", "train.micro_sequences=8", environment=here.environment)
    assert plan["microbatch"] == 4 and {rank["microbatches"] for rank in plan["ranks"]} == {1}  # 8 sequences, of which each has 4
    split = here(*words, "--set", "mesh.tp=2")
    assert "who writes a checkpoint takes " in split.stdout and "TOO MUCH" not in split.stdout
    cluster_file(tmp_path, ["name: a, memory: 12.5MiB", "name: b, memory: 12.5MiB"])
    assert "TOO MUCH, the job would end without its last one" in here(*words, "--set", "mesh.tp=2").stdout
    cluster_file(tmp_path, ["name: a", "name: b"])
    whole = here(*words, "--set", "checkpoint.every=5").stdout, here(*words).stdout
    assert "who writes a checkpoint takes 6.1 MiB more" in whole[0] and "takes 2.4 MiB more" in whole[1]  # of all that it writes, or the block that a file goes through
    # what a search would not try by itself
    cluster_file(tmp_path, [f"name: n{i}" for i in range(20)])
    assert trainctl_json(*words, "--set", "mesh.nodes=6", "--set", "train.micro_sequences=1", environment=here.environment)["dp"] == 6
    cluster_file(tmp_path, ["name: a", "name: b"])
    many = ("mesh.pp=2", "mesh.chunks=9", "model.layers=18", "train.micro_sequences=1")
    plan = trainctl_json(*words, *(word for key in many for word in ("--set", key)), environment=here.environment)
    assert (plan["chunks"], plan["layers"]) == (9, [1] * 18)
    for changed, text in (("mesh.nodes=3", "found 3 nodes of 1 worker, allowed: at most 2 nodes, as so many have that many slots"), ("train.micro_sequences=3", "no costs of tp 1 and microbatches of 3 sequences")):
        done = here(*words, "--set", changed)
        assert done.returncode == 1 and text in done.stderr
    # no more on a node than the job has there, though there were room
    cluster_file(tmp_path, [f"name: {name}, workers: 2" for name in "abc"])
    for each, nodes in ((1, 3), (2, 2)):
        plan = trainctl_json(*words, "--set", f"mesh.nodes={nodes}", "--set", f"mesh.workers_per_node={each}", "--set", "train.micro_sequences=1", environment=here.environment)
        assert max(Counter(rank["node"] for rank in plan["ranks"]).values()) == each and plan["dp"] == nodes * each
    done = here(*words, "--set", "mesh.workers_per_node=3")
    assert done.returncode == 1 and "of 3 workers, allowed: at most 0 nodes, as so many have that many slots" in done.stderr
    job.write_text(re.sub(r"mesh: .*", "mesh: auto", job.read_text()))
    done = here(*words)
    assert done.returncode == 1 and "mesh: auto is no mesh of its own" in done.stderr


def test_schedules_that_jobs_run_are_planned(tmp_path, job, here):
    """Where whole layers do not fit they are computed again; `--as-is` has the job's own schedule, and recomputation that is asked for is in every plan."""
    nodes = cluster_file(tmp_path, ["name: a, memory: 15.4MiB", "name: b, memory: 15.4MiB"])
    words = ["plan", job, "--cluster", nodes, "--costs", tmp_path / "costs"]
    plan = trainctl_json(*words, environment=here.environment)
    check(plan, 16, 6)
    assert plan["runnable"] and plan["recompute"] and "mesh.recompute: true" in here(*words).stdout
    cluster_file(tmp_path, ["name: a", "name: b"])
    assert not trainctl_json(*words, environment=here.environment)["recompute"]
    asked = trainctl_json(*words, "--set", "mesh.recompute=true", environment=here.environment)
    assert all(row["recompute"] for row in (asked, *asked["others"]))
    own = trainctl_json(*words, "--as-is", "--set", "mesh.pp=2", "--set", "mesh.chunks=3", "--set", "train.micro_sequences=2", environment=here.environment)
    assert (own["schedule"], own["chunks"], own["recompute"], own["layers"]) == ("interleaved", 3, False, [1] * 6)
    own = trainctl_json(*words, "--as-is", "--set", "mesh.pp=2", "--set", "mesh.schedule=gpipe", "--set", "mesh.recompute=true", environment=here.environment)
    assert (own["schedule"], own["recompute"]) == ("gpipe", True)
    assert "plans     of any kind" in here(*words, "--any").stdout and "plans     of any" not in here(*words).stdout


def test_a_running_cluster_with_measured_layers(tmp_path, job):
    with Cluster(tmp_path / "cluster", nodes=2, slots=2) as cluster:
        environment = {**cluster.environment, "TRAIND_ADDRESS": cluster.memberd.address}
        plan = trainctl_json("plan", job, environment=environment)
        check(plan, 16, 6)
        assert "measured on this machine with 1 thread" in plan["layers_by"] and "measured by the nodes" in plan["links_by"]
        names = {row["name"] for row in json.loads(trainctl("nodes", "--json", environment=environment).stdout)}
        assert {rank["node"] for rank in plan["ranks"]} <= names
        own = trainctl_json("plan", job, "--as-is", environment=environment)
        check(own, 16, 6)
        assert (own["dp"], own["pp"], own["tp"], own["microbatch"], own["recompute"]) == (2, 1, 1, 4, False)
        assert own["step_s"] > 0 and not own["others"]
        many = trainctl("plan", job, "--as-is", "--set", "mesh.nodes=8", environment=environment, check=False)
        assert many.returncode == 1 and "found 8 nodes of 1 worker, allowed: at most 2 nodes" in many.stderr
        # no job was started for it
        assert trainctl_json("jobs", environment=environment) == []


def test_a_cluster_of_more_slots_than_a_job_may_have_workers(tmp_path, job):
    """As many are planned with, of all nodes, and those that are not are counted; all of them at once are whole models."""
    with FakeTrainer() as fake:
        environment = {**os.environ, "TRAIND_ADDRESS": fake.address, "TRAIND_HOME": str(tmp_path / "home")}
        costs = tmp_path / "few"
        costs.write_text("".join(line + "\n" for line in COSTS.splitlines() if not line.startswith("cost") or line.startswith("cost 1 1 ")))
        words = ["plan", job, "--costs", costs, "--auto", "--set", "mesh.auto=true", "--set", "mesh.nodes=1", "--set", "train.batch_tokens=8192"]
        for slots, left, nodes in (((1,) * 260, 4, 256), ((64,) * 4, 0, 4), ((130, 130, 40), 44, 3)):
            fake.nodes = [pb.Node(id=1 + i, name=f"n{i}", address=f"10.0.{i // 250}.{1 + i % 250}:4000", state="alive", slots=of, cores=of, memory_bytes=of << 30)
                          for i, of in enumerate(slots)]
            told = trainctl(*words, environment=environment).stdout
            assert f"cluster   {nodes} nodes, 256 workers of 1 thread" in told
            words_of_it = f"; slots left out, as a job has at most 256 workers: {left}\n"
            assert words_of_it in told if left else "slots left out" not in told, told
        plan = trainctl_json(*words, environment=environment)
        assert len(plan["ranks"]) == plan["dp"] * plan["pp"] * plan["tp"] <= 256 and plan["fits"]
        assert len(plan["ranks"]) < 256 or (plan["pp"], plan["tp"], plan["zero_owners"]) == (1, 1, 0)


def test_links_that_cannot_be_measured_are_assumed(tmp_path, job):
    """And it is said why. What is wrong besides is said as itself."""
    with FakeTrainer() as fake:
        environment = {**os.environ, "TRAIND_ADDRESS": fake.address, "TRAIND_HOME": str(tmp_path / "home")}
        fake.nodes = [pb.Node(id=1 + i, name=f"n{i}", address=f"10.0.0.{1 + i}:4000", state="alive", slots=1, cores=1, memory_bytes=1 << 30) for i in range(2)]
        fake.links = "too many wait for links to be measured"
        words = ["plan", job, "--costs", tmp_path / "costs", "--auto"]
        plan = trainctl_json(*words, environment=environment)
        assert plan["links_by"].startswith("assumed: ") and plan["links_by"].endswith(f", as they cannot be measured: {fake.links}"), plan
        refused = trainctl(*words, "--set", "mesh.nodes=3", "--set", "mesh.min_nodes=3", environment=environment, check=False)
        assert refused.returncode == 1 and "mesh.min_nodes: found 3, allowed: at most 2" in refused.stderr, refused.stderr
        assert fake.links not in refused.stderr


def test_nodes_of_one_host_share_its_cores(tmp_path, job):
    """Two whose workers have as many threads as there are cores: one of them computes, or both half as fast."""
    with Cluster(tmp_path / "cluster", nodes=2, slots=1) as cluster:
        environment = {**cluster.environment, "TRAIND_ADDRESS": cluster.memberd.address}
        cores = json.loads(trainctl("nodes", "--json", environment=environment).stdout)[0]["cores"]
        words = ["plan", job, "--costs", tmp_path / "costs", "--set", f"mesh.threads={cores}"]
        plan = trainctl_json(*words, environment=environment)
        assert len(plan["ranks"]) == 1
        told = trainctl(*words, environment=environment).stdout
        assert "slots left out, as their hosts lack cores for them: 1\n" in told
        alone = trainctl_json(*words, "--as-is", "--set", "mesh.nodes=1", environment=environment)
        both = trainctl_json(*words, "--as-is", environment=environment)
        assert len(both["ranks"]) == 2 and "0.50 of one for a thread" in both["layers_by"]
        assert both["times"]["compute_s"] == pytest.approx(alone["times"]["compute_s"])
