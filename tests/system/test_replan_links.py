"""A job of `mesh: auto` over machines with cables, one of which becomes slow while it trains: it says which way, goes on with another plan out of workers' memory, and learns what one worker learns."""
import re

from harness import BIN, wait_for
from mesh_jobs import SLOW, alone, assert_near, rows_of
from node_lab import NodeLab
from test_auto import job_file
from test_training import BATCH

STEPS = 60
WIDTH = 320  # a step sends 10 MB: of bursts of less than 8 MiB nobody knows at what rate they went


def worker_that_measures(folder, name, seconds):
    """Says that a layer takes so long for a sequence, longer than anywhere: no worker looks slower than planned, and two replicas pay also over half of the cable; it works as ever."""
    path = folder / f"trainworker-{name}"
    costs = "\n".join(f"cost 1 {count} 1e-5 1e-5 {count * seconds} {2 * count * seconds} {count * seconds / 2} {count * seconds} 40960 750000 200000 500000" for count in (1, 2, 4))
    path.write_text(f"""#!/bin/sh
[ "$1" = --measure ] || exec {BIN}/trainworker "$@"
cat > /dev/null
cat <<END
{costs}
END
""")
    path.chmod(0o755)
    return ["--trainworker", str(path)]


def big_job(folder, text):
    file = job_file(folder, text, "{auto: true, threads: 1}", steps=STEPS)
    file.write_text(file.read_text().replace("lr: 1e-3", f"lr: {SLOW}").replace("width: 64", f"width: {WIDTH}"))
    return file


def test_a_cable_that_becomes_slow(tmp_path, text, monkeypatch):
    """Replicas of the whole model, for which nothing was asked but a plan: their sums over the slow cable take more than stages' messages, or than one worker does for all."""
    monkeypatch.setenv("TRAIND_DRIFT_STEPS", "3")
    one = alone(tmp_path, text, steps=STEPS, lr=SLOW, width=WIDTH)
    with NodeLab(tmp_path) as lab:
        nodes = [lab.add_node(number, more=worker_that_measures(tmp_path, number, 3.6e-2)) for number in (2, 3)]
        for node in nodes:
            lab.slow_down(node, "400mbit")
        number = int(re.search(r"job (\d+)", lab.trainctl("launch", "--detach", big_job(tmp_path, text)).stdout).group(1))
        assert lab.json("status", number)["plan"]["text"].startswith("dp 2 x pp 1 x tp 1")
        wait_for(lambda: max(rows_of(tmp_path / "run"), default=0) > 5, "steps")
        peers = {peer["id"] for peer in lab.json("status", number)["peers"]}
        lab.slow_down(nodes[1], "16mbit")
        wait_for(lambda: lab.json("status", number)["state"] not in ("queued", "running"), "its end", 300)
        done = lab.json("status", number)
    events = "\n".join(event["text"] for event in done["events"])
    assert done["state"] == "done", events
    words = re.search(r"mesh: a step takes \S+ ms, planned were \S+ ms, as from peer (\d+) to peer (\d+) goes (\d+) % of what was planned with: goes on with (dp [^;]*) instead of dp 2, "
                      r"by prediction (\S+) ms instead of (\S+) ms; ", events)
    assert words, events
    assert {int(words.group(1)), int(words.group(2))} == peers and int(words.group(3)) < 80 and float(words.group(5)) < 0.9 * float(words.group(6)), events
    assert "goes back" not in events and "is lost" not in events, events
    assert done["rounds"]["samples"] == STEPS * BATCH
    assert_near(tmp_path / "run", one, STEPS)
