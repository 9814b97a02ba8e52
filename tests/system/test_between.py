"""Between the cores and what they stand on: a memberd that stands still for long, ways that are long when it restarts, readers of output
that read slowly, checkpoints that were told to a memberd that died."""
import os
import signal
import socket
import subprocess
import threading
import time

from harness import BIN, Cluster, Daemon, wait_for
from stubs import pb
from test_training import job_spec, metrics, reach_file, text  # noqa: F401 (a fixture)


# ---- a memberd that stands still for longer than traind is patient (link.c: SILENCE_LEAST_MS)

def test_a_memberd_that_stood_still_ends_no_work(tmp_path):
    with Cluster(tmp_path, nodes=1) as cluster:
        job = cluster.submit_command(["sleep", "60"])
        cluster.wait_job(job, "RUNNING")
        cluster.memberd.signal(signal.SIGSTOP)
        time.sleep(13)
        cluster.memberd.signal(signal.SIGCONT)
        time.sleep(3)
        now = cluster.job(job)
        assert now.state == pb.JobState.JOB_STATE_RUNNING, now.reason + cluster.memberd.log()[-1500:]


# ---- memberd's machine takes the hello and is gone before it answers: nothing comes any more, no reset either

def test_a_hello_that_nobody_answers(tmp_path):
    """memberd's machine hangs (its kernel takes connections and bytes), then its power is cycled: who had said hello hears nothing, ever.
    When memberd is back, nodes have to come back by themselves."""
    with Cluster(tmp_path, nodes=0) as cluster:
        way = SlowWay(("127.0.0.1", cluster.memberd.port), 0)
        way.hangs = True
        folder = tmp_path / "node-1"
        node = Daemon("traind", folder, ["--memberd", way.address, "--listen", "127.0.0.1:0", "--dir", folder, "--slots", 1,
                                         "--name", "node-1"], cluster.environment).start()
        cluster.nodes.append(node)
        node.wait_serving()
        wait_for(lambda: b"node-1" in way.swallowed, "the hello")
        way.hangs = False  # memberd is back; of the old connection nobody knows
        wait_for(lambda: any(row.state == "alive" for row in cluster.list_nodes()), "the node to come back", 45)


# ---- a long way, and a memberd that restarts

class SlowWay:
    """A port that passes on to another one, each byte after `delay_s`."""

    def __init__(self, to, delay_s):
        self.to, self.delay_s = to, delay_s
        self.hangs, self.swallowed = False, b""
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listening.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.listening.accept()
            except OSError:
                return
            if self.hangs:
                threading.Thread(target=self.swallow, args=(near,), daemon=True).start()
                continue
            try:
                far = socket.create_connection(self.to, timeout=5)
                far.settimeout(None)
            except OSError:
                near.close()
                continue
            for a, b in ((near, far), (far, near)):
                threading.Thread(target=self.pass_on, args=(a, b), daemon=True).start()

    def swallow(self, near):
        while data := near.recv(65536):
            self.swallowed += data

    def pass_on(self, a, b):
        queue, ready = [], threading.Condition()

        def write():
            while True:
                with ready:
                    while not queue:
                        ready.wait()
                    due, data = queue.pop(0)
                time.sleep(max(0, due - time.monotonic()))
                try:
                    if not data:
                        b.shutdown(socket.SHUT_RDWR)
                        return
                    b.sendall(data)
                except OSError:
                    return
        threading.Thread(target=write, daemon=True).start()
        while True:
            try:
                data = a.recv(65536)
            except OSError:
                data = b""
            with ready:
                queue.append((time.monotonic() + self.delay_s, data))
                ready.notify()
            if not data:
                return


def test_an_exit_over_a_long_way_while_memberd_was_away(tmp_path):
    """As test_daemons.test_an_exit_while_memberd_was_away_is_reported, with a round trip of 600 ms."""
    with Cluster(tmp_path, nodes=0, memberd=["--heartbeat-timeout-ms", "2000"]) as cluster:
        way = SlowWay(("127.0.0.1", cluster.memberd.port), 0.3)
        folder = tmp_path / "node-1"
        node = Daemon("traind", folder, ["--memberd", way.address, "--listen", "127.0.0.1:0", "--dir", folder, "--slots", 1,
                                         "--name", "node-1"], cluster.environment).start()
        cluster.nodes.append(node)
        node.wait_serving()
        cluster.wait_nodes(alive=1)
        fifo = tmp_path / "fifo"
        os.mkfifo(fifo)
        job = cluster.submit_command(["sh", "-c", f"cat {fifo}; exit 0"])
        cluster.wait_job(job, "RUNNING")
        time.sleep(3)  # memberd learns how far it is
        cluster.kill_memberd()
        fifo.write_text("now\n")
        node.wait_log("ended: exit code 0")
        cluster.restart_memberd()
        ended = wait_for(lambda: (lambda now: now if now.state in (pb.JobState.JOB_STATE_DONE, pb.JobState.JOB_STATE_FAILED)
                                  else None)(cluster.job(job)), "the job to end")
        assert ended.state == pb.JobState.JOB_STATE_DONE, ended.reason


# ---- a reader that reads slowly, of several ranks

def test_output_of_a_node_that_goes_while_another_rank_is_read(tmp_path):
    """Without --follow ranks are read one after the other; the second one's node goes while the first is read (`trainctl logs 1 | less`)."""
    with Cluster(tmp_path, nodes=2) as cluster:
        job = cluster.submit_command(["sh", "-c", "head -c 30000000 /dev/zero | tr '\\0' x | fold -w 99"], workers=2, per_node=1)
        cluster.wait_job(job, "DONE")
        where = {peer.rank: peer.node_name for peer in cluster.job(job).peers}
        assert len(set(where.values())) == 2
        reader = subprocess.Popen([str(BIN / "trainctl"), "--address", cluster.memberd.address, "logs", str(job)],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=cluster.environment)
        try:
            assert reader.stdout.read(100)
            time.sleep(2)  # all that may be under way is
            cluster.nodes[int(where[1][-1]) - 1].kill9()
            cluster.wait_nodes(alive=1)
            out, err = reader.communicate(timeout=30)
        finally:
            reader.kill()
        assert reader.returncode != 0 and b"rank 1" in err, (len(out), err)


# ---- a checkpoint that was told to a memberd that died

def test_a_checkpoint_that_was_told_to_a_memberd_that_died(tmp_path, text):  # noqa: F811
    run, every = tmp_path / "run", 600
    with Cluster(tmp_path / "cluster", nodes=1) as cluster:
        job = cluster.submit(job_spec(text, run, 1, 100000, every=every))
        reach_file(run, every - 60)
        cluster.memberd.signal(signal.SIGSTOP)  # it reads nothing any more
        wait_for(lambda: (run / "latest").exists(), "a checkpoint")
        time.sleep(0.5)
        assert max(metrics(run)) < 2 * every - 10, "too fast a machine: raise `every`"
        cluster.last_address = cluster.memberd.address
        cluster.memberd.kill9()
        cluster.close_channels()
        cluster.restart_memberd()
        wait_for(lambda: cluster.job(job).progress.step > 0 and cluster.nodes[0].log().count("back with memberd"), "memberd to be told")
        time.sleep(1)
        assert max(metrics(run)) < 2 * every - 60, "too fast a machine: raise `every`"
        cluster.nodes[0].kill9()
        cluster.add_node()
        now = wait_for(lambda: (lambda j: j if j.state in (pb.JobState.JOB_STATE_FAILED, pb.JobState.JOB_STATE_RUNNING) and
                                "lost" in cluster.events(j) else None)(cluster.job(job)), "the end of it")
        assert now.state != pb.JobState.JOB_STATE_FAILED, now.reason


# ---- trainctl, told to end while memberd is away

def test_a_launch_that_is_interrupted_while_memberd_restarts(tmp_path):
    with Cluster(tmp_path, nodes=1) as cluster:
        launch = subprocess.Popen([str(BIN / "trainctl"), "--address", cluster.memberd.address, "launch", "-n", "1", "sleep", "77"],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=cluster.environment)
        job = wait_for(lambda: next((j.id for j in cluster.api().ListJobs(pb.ListJobsRequest()).jobs), 0), "the job")
        cluster.wait_job(job, "RUNNING")
        cluster.kill_memberd()
        launch.send_signal(signal.SIGINT)
        time.sleep(1)
        cluster.restart_memberd()
        _, said = launch.communicate(timeout=30)
        time.sleep(3)
        now = cluster.job(job)
        assert "was cancelled" in said and now.state == pb.JobState.JOB_STATE_CANCELLED, (said, pb.JobState.Name(now.state))
