"""A job of `mesh: auto` over machines with cables, one of which becomes slow while it trains: it says which way, goes on with another plan out of workers' memory, and learns what one worker learns."""
import re
import shutil

import pytest

from harness import BIN, wait_for
from mesh_jobs import SLOW, alone, assert_near, rows_of
from node_lab import NodeLab
from test_auto import job_file
from test_training import BATCH

STEPS = 40
WIDTH = 320  # a step sends 10 MB, of three members each in a ring


def program_that_measures(folder, count=2):
    """A trainctl beside which stands a trainworker that says what layers cost, longer than anywhere (no worker looks slower than planned), and few sequences as much as many (eight; for three workers four): stages have to wait for each
    other, and of plans for `count` workers replicas are the fastest by far, whatever a busy machine does. It works as ever."""
    folder.mkdir()
    shutil.copy(BIN / "trainctl", folder / "trainctl")
    layer, head = 8 * 8e-3, 8 * 4e-3
    costs = "".join(f"cost 1 {many} 1e-5 1e-5 {k * layer} {2 * k * layer} {k * head} {2 * k * head} 40960 750000 200000 500000\n"
                    for many, k in ((1, 1), (2, 1), (4, 1), (8, 1 if count == 2 else 2)))
    (folder / "trainworker").write_text(f"""#!/bin/sh
[ "$1" = --measure ] || exec {BIN}/trainworker "$@"
cat > /dev/null
cat <<END
update 1e-9
process 8000000
round 0.001
{costs}END
""")
    (folder / "trainworker").chmod(0o755)
    return folder / "trainctl"


def big_job(folder, text):
    file = job_file(folder, text, "{auto: true, threads: 1}", steps=STEPS)
    file.write_text(file.read_text().replace("lr: 1e-3", f"lr: {SLOW}").replace("width: 64", f"width: {WIDTH}"))
    return file


def launched(lab, folder, text, plan):
    """The job's number. A busy machine may measure links that are slower than they are: what is planned with those ends, and is planned again."""
    for _ in range(5):
        number = int(re.search(r"job (\d+)", lab.trainctl("launch", "--detach", big_job(folder, text)).stdout).group(1))
        found = lab.json("status", number)["plan"]["text"]
        if found.startswith(plan):
            return number
        lab.trainctl("cancel", number)
        wait_for(lambda: lab.json("status", number)["state"] not in ("queued", "running"), "its end", 60)
        shutil.rmtree(folder / "run", ignore_errors=True)
    raise AssertionError(found)


@pytest.mark.parametrize("count", [2, 3])
def test_a_cable_that_becomes_slow(tmp_path, text, monkeypatch, count):
    """Replicas of the whole model, for which nothing was asked but a plan: their sums over the slow cable take more than stages' messages, or than one worker does for all. Of three the
    ring's other links wait for the slow one, and are not taken for slow."""
    monkeypatch.setenv("TRAIND_DRIFT_STEPS", "2")
    one = alone(tmp_path, text, steps=STEPS, lr=SLOW, width=WIDTH)
    with NodeLab(tmp_path) as lab:
        lab.program = program_that_measures(tmp_path / "bin", count)
        nodes = [lab.add_node(number, more=["--trainworker", str(lab.program.parent / "trainworker")]) for number in range(2, 2 + count)]
        for node in nodes:
            lab.slow_down(node, "1gbit")
        number = launched(lab, tmp_path, text, f"dp {count} x pp 1 x tp 1")
        wait_for(lambda: max(rows_of(tmp_path / "run"), default=0) > 5, "steps")
        peers = {peer["id"] for peer in lab.json("status", number)["peers"]}
        lab.slow_down(nodes[1], "40mbit")
        wait_for(lambda: lab.json("status", number)["state"] not in ("queued", "running"), "its end", 300)
        done = lab.json("status", number)
        said = re.findall(".*another plan is looked for.*", lab.trainctl("logs", number, "--rank", 0).stdout)
    events = "\n".join([event["text"] for event in done["events"]] + said)
    assert done["state"] == "done", events
    assert said, events
    words = re.search(rf"mesh: a step takes (\S+) ms, planned were \S+ ms, as from peer (\d+) to peer (\d+) goes (\d+) % of what was planned with: goes on with (dp [^;]*) instead of dp {count}, "
                      r"by prediction (\S+) ms instead of (\S+) ms; ", events)
    assert words, events
    took, left_at, by = float(words.group(1)), int(words.group(4)), float(words.group(7))
    assert {int(words.group(2)), int(words.group(3))} <= peers and left_at < 80 and float(words.group(6)) < 0.9 * by, events
    assert 0.5 * took < by, events  # the cable is taken to be as slow as it is, not as a mean of before and after
    assert "goes back" not in events and "is lost" not in events, events
    assert done["rounds"]["samples"] == STEPS * BATCH
    assert_near(tmp_path / "run", one, STEPS)
