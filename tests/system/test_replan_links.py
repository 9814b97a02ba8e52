"""A job of `mesh: auto` over machines with cables, one of which becomes slow while it trains: it says which way, goes on with another plan out of workers' memory, and learns what one worker learns."""
import re

from harness import BIN, wait_for
from mesh_jobs import SLOW, alone, assert_near, rows_of
from node_lab import NodeLab
from test_auto import job_file
from test_training import BATCH

STEPS = 60
WIDTH = 320  # a step sends 10 MB: of less nobody knows at what rate it went


def worker_that_measures(folder, name, seconds):
    """Says that a layer takes so long for a sequence, longer than anywhere, so that no worker looks slower than planned; it works as ever."""
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


def test_a_cable_that_becomes_slow(tmp_path, text, monkeypatch):
    """Two replicas of the whole model, as nothing else was asked for."""
    monkeypatch.setenv("TRAIND_DRIFT_STEPS", "3")
    one = alone(tmp_path, text, steps=STEPS, lr=SLOW, width=WIDTH)
    with NodeLab(tmp_path) as lab:
        nodes = [lab.add_node(number, more=worker_that_measures(tmp_path, number, 8e-3)) for number in (2, 3)]
        for node in nodes:
            lab.slow_down(node, "400mbit")
        file = job_file(tmp_path, text, "{auto: true, threads: 1}", steps=STEPS)
        file.write_text(file.read_text().replace("lr: 1e-3", f"lr: {SLOW}").replace("width: 64", f"width: {WIDTH}"))
        number = int(re.search(r"job (\d+)", lab.trainctl("launch", "--detach", file).stdout).group(1))
        print(lab.json("status", number)["plan"])
        wait_for(lambda: max(rows_of(tmp_path / "run"), default=0) > 5, "steps")
        lab.slow_down(nodes[1], "40mbit")
        wait_for(lambda: lab.json("status", number)["state"] == "done", "its end", 300)
        print(lab.trainctl("logs", number).stdout[-6000:])
        print(lab.json("status", number))
    assert_near(tmp_path / "run", one, STEPS)
    assert 0
