"""What `trainctl status` says of links between peers, and who is slow: over cables of which one is slow (a laboratory of wide-area networks, root), and on one host."""
import re
import subprocess
import sys

import pytest

from harness import BIN, Cluster, trainctl, trainctl_json, wait_for
from mesh_jobs import Throttled, active
from stubs import ROOT
from test_rare_training import rare
from test_training import job_spec, reach, text  # noqa: F401 (a fixture)
from wan_lab import WanLab, missing

sys.path.insert(0, str(ROOT / "scripts" / "experiments"))
from sites import Sites  # noqa: E402

# There and back take 20 ms between a and b, and 80 ms between c and either.
CABLES = "site a\nsite b\nsite c\nlink a b delay=10ms rate=200mbit queue=100ms\nlink a c delay=40ms rate=8mbit queue=100ms\nlink b c delay=40ms rate=8mbit queue=100ms"
MODEL = {"preset": "gpt2", "layers": 2, "width": 192, "heads": 2, "context": 32, "vocab": "bytes"}  # a merge sends some 4 MB
CABLE = 1e6  # bytes/s of a slow one


def launch(sites, text):  # noqa: F811
    train = {"steps": 10**6, "batch_tokens": 6 * MODEL["context"], "micro_sequences": 2, "lr": 4e-3, "seed": 1}
    return sites.launch({"name": "links", "model": MODEL, "data": {"text": [str(text)]}, "train": train,
                         "mesh": {"nodes": 3, "min_nodes": 3, "threads": 1}, "sync": {"mode": "diloco", "inner_steps": 2}})


def links_of(job):
    """{(from node, to node): link}"""
    nodes = {peer["id"]: peer["node"] for peer in job["peers"]}
    return {(peer["node"], nodes[link["peer"]]): link for peer in job["peers"] for link in peer["links"]}


def slowest(sites, number):
    """All links, and (from, to) of the slowest that was measured, once that is one of those over the slow cables."""
    found = links_of(sites.job(number))
    rates = {names: link["bandwidth_bytes_per_s"] for names, link in found.items() if link["bandwidth_bytes_per_s"]}
    names = min(rates, key=rates.get, default="")
    return "c" in names and {sender for sender, _ in found} == set("abc") and (found, names)


def shown_to_people(lab, sites, number):
    argv = lab.command("a", [BIN / "trainctl", "--address", sites.memberd, "--insecure", "status", str(number)])
    return subprocess.run(argv, env=lab.environment, capture_output=True, text=True, check=True).stdout


@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_the_slow_link_is_named(tmp_path, text):  # noqa: F811
    """Each direction is told by who sends. Rates and round trips are those of the cables, to a factor; what a busy machine holds up looks slower, and more distant."""
    with WanLab(CABLES) as lab, Sites(lab, tmp_path, {name: name for name in "abc"}) as sites:
        number = launch(sites, text)
        found, names = wait_for(lambda: slowest(sites, number), "rates of the links over the slow cables", deadline_s=170)
        shown = shown_to_people(lab, sites, number)
        sites.cancel(number)
    for ends, link in found.items():
        assert 0.9 * (0.08 if "c" in ends else 0.02) < link["rtt_s"] < (0.4 if "c" in ends else 0.079), found
    assert CABLE / 20 < found[names]["bandwidth_bytes_per_s"] < 3 * CABLE and found[names]["sent_bytes"] > 1e5, found
    head, *rows = [line for line in shown.splitlines() if re.match(r"PEER|\d+ ", line)]
    assert head.index("SENDS") < head.index("SLOWEST LINK") < head.index("RATE") < head.index("ROUND TRIP") < head.index("REASON"), shown
    cells = {row.split()[2]: row[head.index("SLOWEST LINK"):head.index("REASON")] for row in rows}
    said = {node: re.fullmatch(r"to \d+ \((\w)\) +(-|[\d.]+ [KM]?i?B/s) +(\d+ ms) *", cell) for node, cell in cells.items()}
    assert set(said) == set("abc") and all(said.values()), shown
    assert said[names[0]].group(2) != "-" and "c" in (names[0], said[names[0]].group(1)), shown


def test_who_is_slow(tmp_path, text):  # noqa: F811
    """A worker that is stopped most of the time: the others wait for it, and it for nobody. On one host peers share memory, and no link is shown."""
    with Cluster(tmp_path / "cluster", nodes=3) as cluster:
        job = cluster.submit(job_spec(text, tmp_path / "run", 3, 10**6, layers=4, width=256))  # it is to be stopped while it computes, mostly
        reach(cluster, job, 1)
        slow = active(cluster, job)[1]

        def marked():
            rows = trainctl_json("--address", cluster.memberd.address, "status", job)["peers"]
            return [row["id"] for row in rows if row["slow"]] == [slow.id] and rows
        with Throttled(slow.pid):
            rows = wait_for(marked, "it to be marked", deadline_s=120)
            shown = trainctl("--address", cluster.memberd.address, "status", job).stdout
        trainctl("--address", cluster.memberd.address, "cancel", job)
    waits = {row["id"]: row["waits"] for row in rows}
    others = sum(share for peer, share in waits.items() if peer != slow.id) / 2
    assert others >= 0.2 and waits[slow.id] <= others / 4, rows
    assert all(row["links"] == [] and row["rtt_s"] > 0 for row in rows), rows
    head, = [line for line in shown.splitlines() if line.startswith("PEER")]
    assert "SLOWEST LINK" not in head and all(word in head for word in ("WAITS", "RTT", "SENDS")), shown
    row, = [line for line in shown.splitlines() if line.endswith("slow: the others wait for it")]
    assert row.split()[0] == str(slow.id) and re.fullmatch(r"\d+%", row[head.index("WAITS"):head.index("RTT")].strip()), shown
    assert re.fullmatch(r"[\d.]+ (us|ms)", row[head.index("RTT"):head.index("SENDS")].strip()), shown


def test_merges_of_how_many(tmp_path, text):  # noqa: F811
    with Cluster(tmp_path / "cluster", nodes=2) as cluster:
        done = cluster.wait_job(cluster.submit(rare("streaming", text, tmp_path / "run", 2, 47, inner_steps=10, fragments=2, overlap=2)), "DONE")
        shown = trainctl("--address", cluster.memberd.address, "status", done.id).stdout
        # Fragments are taken at 5, 10, ... and merged two steps later. What goes on from step 12 takes its first one at 17, and has one merge less in all.
        sync = {"inner_steps": 10, "fragments": 2, "overlap": 2}
        cluster.wait_job(cluster.submit(rare("streaming", text, tmp_path / "half", 2, 20, "replay", 12, **sync)), "DONE")
        later = rare("streaming", text, tmp_path / "later", 2, 47, "replay", 0, tmp_path / "half" / "step-00000012", **sync)
        later = cluster.wait_job(cluster.submit(later), "DONE")
        shown_later = trainctl("--address", cluster.memberd.address, "status", later.id).stdout
    count = done.progress.merges.count
    assert count == done.rounds.committed - 1 and f"\nmerges      {count} of {count}\n" in shown, shown
    assert later.progress.merges.count == count - 1 and f"\nmerges      {count - 1}\n" in shown_later, shown_later
