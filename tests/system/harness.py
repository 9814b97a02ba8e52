"""Clusters of real daemons for tests: starts memberd and traind in temporary folders on ports that the system
chooses, waits for conditions, kills and restarts, and ends everything it started, by process id.

    def test_something(tmp_path):
        with Cluster(tmp_path, nodes=3) as cluster:
            job = cluster.submit_command(["sh", "-c", "echo hello"], workers=3)
            cluster.wait_job(job, "DONE")
            cluster.nodes[1].kill9()
            cluster.wait_nodes(alive=2)

What a cluster started carries TRAIND_TEST_CLUSTER in its environment, so that orphans can be found: leaving the
`with` block fails if any process is left.
"""
import glob
import json
import os
import pathlib
import signal
import subprocess
import time
import uuid

import grpc

from stubs import BUILD, ROOT, pb, rpc

BIN = BUILD / "bin"
MARK = "TRAIND_TEST_CLUSTER"
DEADLINE_S = 120 * (4 if any("-" + san in BUILD.name for san in ("address", "undefined", "thread")) else 1)


def wait_for(condition, what, deadline_s=None):
    """Waits until condition() is true and returns its value. Polls: the deadline is generous, a pass is quick."""
    deadline = time.monotonic() + (deadline_s or DEADLINE_S)
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {deadline_s or DEADLINE_S} s in vain for: {what}")
        time.sleep(0.02)


def marked_processes(mark):
    """{pid: command line} of live processes whose environment carries `mark`, zombies left out."""
    found = {}
    for folder in glob.glob("/proc/[0-9]*"):
        try:
            with open(folder + "/environ", "rb") as file:
                if f"{MARK}={mark}".encode() not in file.read().split(b"\0"):
                    continue
            with open(folder + "/cmdline", "rb") as file:
                found[int(os.path.basename(folder))] = file.read().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue
    return found


def alive(pid):
    """Whether the process exists and is no zombie."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


class Daemon:
    """One memberd or traind process, its folder and its log."""

    def __init__(self, program, folder, arguments, environment, through=()):
        """`through`: what starts it, in its own process: ["unshare", "--mount"]."""
        self.program, self.folder = program, pathlib.Path(folder)
        self.arguments, self.environment, self.through = list(map(str, arguments)), environment, list(map(str, through))
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log_path = self.folder / "daemon.log"
        self.process, self.stderr = None, None  # stderr: a descriptor instead of the log

    def start(self):
        for name in ("address", "pid"):
            (self.folder / name).unlink(missing_ok=True)
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen([*self.through, str(BIN / self.program), *self.arguments], stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=self.stderr or log, env=self.environment, start_new_session=True)
        return self

    def wait_serving(self):
        def serves():
            assert self.process.poll() is None, f"{self.program} ended with {self.process.returncode}:\n{self.log()}"
            return (self.folder / "address").exists() and (self.folder / "pid").exists()
        wait_for(serves, f"{self.program} to serve; its log:\n{self.log()}")
        return self

    @property
    def pid(self):
        return self.process.pid

    @property
    def address(self):
        return (self.folder / "address").read_text().strip()

    @property
    def port(self):
        return int(self.address.rsplit(":", 1)[1])

    def log(self):
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def wait_log(self, text):
        wait_for(lambda: text in self.log(), f"'{text}' in the log of {self.program}")

    def running(self):
        return self.process is not None and self.process.poll() is None

    def signal(self, number):
        self.process.send_signal(number)

    def kill9(self):
        self.process.kill()
        self.process.wait()

    def terminate(self):
        """SIGTERM; returns the exit code."""
        if self.running():
            self.process.terminate()
        return self.process.wait(DEADLINE_S)

    def stop(self):
        """Ends it in any state, a stopped one included."""
        if not self.running():
            return
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.kill9()

    def rss_kib(self):
        status = pathlib.Path(f"/proc/{self.pid}/status").read_text()
        return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])

    def cpu_s(self):
        fields = pathlib.Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def open_fds(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))


class Cluster:
    def __init__(self, folder, nodes=3, slots=1, memberd=(), traind=(), environment=None, tls=None):
        """`memberd`, `traind`: further arguments of theirs; `tls`: the folder with which the API is spoken to. Starts on `with` (or start())."""
        self.folder, self.count, self.slots = pathlib.Path(folder), nodes, slots
        self.memberd_arguments, self.traind_arguments = list(memberd), list(traind)
        self.mark = str(uuid.uuid4())
        self.credentials = None
        if tls is not None:
            self.credentials = grpc.ssl_channel_credentials(*((pathlib.Path(tls) / name).read_bytes()
                                                              for name in ("ca.crt", "node.key", "node.crt")))
        self.environment = {**os.environ, **(environment or {}), MARK: self.mark,
                            "TRAIND_HOME": str(self.folder / "home")}
        self.memberd, self.nodes, self.channels = None, [], {}

    # ---- starting and ending

    def start(self):
        try:
            self.start_memberd()
            for _ in range(self.count):
                self.add_node(wait=False)
            for node in self.nodes:
                node.wait_serving()
            self.wait_nodes(alive=self.count)
        except BaseException:
            self.stop()
            raise
        return self

    def start_memberd(self, listen="127.0.0.1:0"):
        folder = self.folder / "memberd"
        self.memberd = Daemon("memberd", folder, ["--listen", listen, "--dir", folder, *self.memberd_arguments],
                              self.environment).start().wait_serving()
        return self.memberd

    def restart_memberd(self):
        """On the same port and folder, after kill9() or terminate(). API channels are made anew."""
        return self.start_memberd(listen=self.last_address)

    def kill_memberd(self):
        self.last_address = self.memberd.address
        self.memberd.kill9()
        self.close_channels()

    def add_node(self, wait=True, slots=None, arguments=(), through=()):
        number = len(self.nodes) + 1
        folder = self.folder / f"node-{number}"
        node = Daemon("traind", folder, ["--memberd", self.memberd.address, "--listen", "127.0.0.1:0", "--dir", folder,
                                         "--slots", slots or self.slots, "--name", f"node-{number}",
                                         *self.traind_arguments, *arguments], self.environment, through).start()
        self.nodes.append(node)
        if wait:
            node.wait_serving()
        return node

    def stop(self):
        """Ends daemons, then whatever is left of them. Returns the processes that should not have been there."""
        self.close_channels()
        for daemon in [*self.nodes, self.memberd]:
            if daemon is not None:
                daemon.stop()
        try:
            wait_for(lambda: not self.processes(), "all processes of the cluster to end", 15)
        except AssertionError:
            pass
        orphans = self.processes()
        for pid in orphans:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        return orphans

    def processes(self):
        """{pid: command} of everything alive that this cluster started, workers and their children included."""
        return marked_processes(self.mark)

    def workers(self):
        """Processes that are neither daemons nor shepherds."""
        daemons = {daemon.pid for daemon in [self.memberd, *self.nodes] if daemon and daemon.process}
        return {pid: command for pid, command in self.processes().items()
                if pid not in daemons and "--shepherd" not in command}

    def __enter__(self):
        return self.start()

    def __exit__(self, kind, value, trace):
        orphans = self.stop()
        if kind is not None:
            for daemon in [self.memberd, *self.nodes]:
                if daemon is not None:
                    print(f"---- log of {daemon.folder}\n{daemon.log()[-6000:]}")
        elif orphans:
            raise AssertionError(f"processes left behind: {orphans}")

    # ---- the API

    def api(self, target=None):
        """A TrainerStub on memberd, a Daemon, or any gRPC target ("unix:/path")."""
        target = target or self.memberd
        address = target.address if isinstance(target, Daemon) else target
        if address not in self.channels:
            options = [("grpc.max_reconnect_backoff_ms", 200)]
            plain = self.credentials is None or address.startswith("unix:")
            self.channels[address] = grpc.insecure_channel(address, options) if plain else \
                grpc.secure_channel(address, self.credentials, options)
        return rpc.TrainerStub(self.channels[address])

    def close_channels(self):
        for channel in self.channels.values():
            channel.close()
        self.channels = {}

    def submit(self, spec, request_id=""):
        return self.api().SubmitJob(pb.SubmitJobRequest(request_id=request_id, spec=spec), timeout=DEADLINE_S).job_id

    def submit_command(self, argv, workers=1, per_node=0, env=(), directory=None, name="command"):
        spec = pb.JobSpec(name=name)
        spec.command.argv.extend(argv)
        spec.command.env.extend(env)
        spec.command.directory = str(directory or self.folder)
        spec.mesh.workers = workers
        spec.mesh.workers_per_node = per_node
        return self.submit(spec)

    def job(self, job):
        return self.api().GetJob(pb.GetJobRequest(job_id=job), timeout=DEADLINE_S)

    def wait_job(self, job, *states, deadline_s=None):
        """Waits for one of the states ("DONE", "FAILED"...) and returns the job; another end is an error at once. So is that a worker of a job that is done ended by itself with an error, which another one would hide."""
        def there():
            now = self.job(job)
            name = pb.JobState.Name(now.state).removeprefix("JOB_STATE_")
            if name in states:
                assert name != "DONE" or "trainworker: " not in self.events(now), self.events(now)
                return now
            assert name not in ("DONE", "FAILED", "CANCELLED"), f"job is {name}: {now.reason}\n{self.events(now)}"
            return None
        return wait_for(there, f"job {job} to be {' or '.join(states)}", deadline_s)

    @staticmethod
    def events(job):
        return "\n".join(event.text for event in job.events)

    def list_nodes(self):
        return list(self.api().ListNodes(pb.ListNodesRequest(), timeout=DEADLINE_S).nodes)

    def wait_nodes(self, alive):
        """Until exactly so many nodes are alive; returns them."""
        def there():
            try:
                rows = [node for node in self.list_nodes() if node.state == "alive"]
            except grpc.RpcError:
                return None
            return (rows,) if len(rows) == alive else None
        return wait_for(there, f"{alive} nodes to be alive")[0]

    def logs(self, job, follow=False, rank=None, target=None):
        """The whole output as bytes, all ranks in the order of arrival."""
        request = pb.StreamLogsRequest(job_id=job, follow=follow, one_rank=rank is not None, rank=rank or 0)
        return b"".join(chunk.data for chunk in self.api(target).StreamLogs(request, timeout=DEADLINE_S))


def trainctl(*arguments, environment=None, check=True, timeout=DEADLINE_S):
    """Runs trainctl to its end; returns the CompletedProcess with text output."""
    done = subprocess.run([str(BIN / "trainctl"), *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, env=environment, timeout=timeout)
    if check and done.returncode != 0:
        raise AssertionError(f"trainctl {' '.join(map(str, arguments))}: exit code {done.returncode}\n{done.stderr}")
    return done


def trainctl_json(*arguments, environment=None):
    return json.loads(trainctl(*arguments, "--json", environment=environment).stdout)
