"""A worker crashes and is restarted on its node from the state in its shared memory; the others of the node stay in the round."""
import os
import re
import signal

from harness import Cluster, wait_for
from test_training import account_is_whole, job_spec, metrics, reach_file, text  # noqa: F401 (a fixture)

import pytest

SUSPECTED_AFTER_S = 10  # half of memberd's --progress-timeout-ms


def active(job):
    return {peer.id: peer for peer in job.peers if peer.state in ("active", "suspected")}


def hold_up(cluster, job, victim):
    """Stops all workers but the victim. On return that waits for them, in a round that it has begun and cannot leave."""
    stopped = [peer.pid for peer in active(cluster.job(job)).values() if peer.id != victim.id]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    # Nobody is suspected before somebody who can say so waits for it: the victim is the only one that is not stopped.
    wait_for(lambda: any(peer.state == "suspected" for peer in cluster.job(job).peers), "the victim to wait",
             6 * SUSPECTED_AFTER_S)
    return stopped


def test_crashed_worker_goes_on_from_its_own_memory(tmp_path, text):  # noqa: F811
    """kill -9 of one of two workers of a node in mid-round. Nothing of its state crosses the network, its neighbours are not
    disturbed, it takes part in the very round that it died in, and no step is lost or twice."""
    steps, run = 200, tmp_path / "run"

    def spec(folder):
        made = job_spec(text, folder, 2, steps)
        made.mesh.workers_per_node = 2
        return made

    with Cluster(tmp_path / "calm", nodes=2, slots=2) as cluster:
        account_is_whole(cluster.wait_job(cluster.submit(spec(tmp_path / "calm-run")), "DONE"), steps)
    calm = metrics(tmp_path / "calm-run")
    with Cluster(tmp_path / "cluster", nodes=2, slots=2,
                 memberd=["--progress-timeout-ms", 2000 * SUSPECTED_AFTER_S], traind=["--stopped-timeout-ms", 0]) as cluster:
        job = cluster.submit(spec(run))
        reach_file(run, 10)
        before = active(cluster.job(job))
        assert len(before) == 4
        victim = next(peer for peer in before.values() if peer.node_name == "node-2")
        stopped = hold_up(cluster, job, victim)
        round_held = cluster.job(job).rounds.committed + 1
        os.kill(victim.pid, signal.SIGKILL)
        wait_for(lambda: cluster.events(cluster.job(job)).count("enters") >= 1, "the next worker to enter")
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
        done = cluster.wait_job(job, "DONE")
        account_is_whole(done, steps)
        events = cluster.events(done)
        logs = "".join(node.log() for node in cluster.nodes)
    told = re.search(r"worker of rank (\d+) restarted on node-2 from its own memory \(round (\d+), ([\d.]+) MB, no network\)", events)
    assert told and int(told[1]) == victim.rank and int(told[2]) == round_held - 1 and float(told[3]) > 0, events
    # No state from any donor, in the whole life of the job: only digests.
    sent = re.findall(r"sent (\d+) bytes of the state after round (\d+) to peer (\d+)", logs)
    assert {int(count) for count, _, _ in sent} == {0}, sent
    # The others are the same peers in the same processes, and nobody else was lost.
    after = {peer.id: peer for peer in done.peers}
    for peer in before.values():
        assert after[peer.id].pid == peer.pid
        assert after[peer.id].state == ("lost" if peer.id == victim.id else "finished"), events
    follower = [peer for peer in done.peers if peer.id not in before]
    assert [(peer.node_name, peer.rank, peer.state) for peer in follower] == [("node-2", victim.rank, "finished")]
    rows = metrics(run)
    assert sorted(rows) == list(range(1, steps + 1)) and rows[steps]["contributors"] == 4
    for step in calm:
        assert rows[step]["loss"] == pytest.approx(calm[step]["loss"], rel=2e-3), step
