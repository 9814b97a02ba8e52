"""A memberd and nodes at sites of a laboratory (docs/wanlab.md; root).

    with WanLab("site a\\nsite b\\nlink a b delay=75ms") as lab, Sites(lab, folder, {"a": "a", "b": "b"}) as sites:
        number = sites.launch({"name": "job", "mesh": ...})
        while not sites.ended(number): ...
"""
import json
import pathlib
import subprocess
import time

from harness import BIN, wait_for


class Sites:
    """memberd at site a, and nodes: {name: site}. `arguments`: further ones of traind."""

    def __init__(self, lab, folder, nodes=None, arguments=()):
        self.lab, self.folder, self.processes = lab, pathlib.Path(folder), {}
        self.nodes, self.arguments = nodes or {"a": "a", "b": "b"}, arguments

    def start(self, site, program, name, *arguments):
        """It may have been there before, in the same folder."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        (folder / "address").unlink(missing_ok=True)
        with open(folder / "log", "ab") as log:
            self.processes[name] = self.lab.popen(site, [BIN / program, "--listen", f"{self.lab.address(site)}:0", "--insecure", "--dir", folder, *arguments],
                                                  stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        wait_for(lambda: (folder / "address").exists(), f"{program} to serve")
        return (folder / "address").read_text().strip()

    def start_node(self, name, site):
        self.start(site, "traind", f"node-{name}", "--memberd", self.memberd, "--name", name, *self.arguments)

    def end_node(self, name):
        self.processes[f"node-{name}"].terminate()
        self.processes[f"node-{name}"].wait()

    def worker_output(self, name):
        """What all workers of the node have written, of all jobs."""
        logs = sorted((self.folder / f"node-{name}").glob("logs/job-*/*.log"), key=lambda path: path.stat().st_mtime)
        return "".join(path.read_text(errors="replace") for path in logs)

    def log(self, name):
        return (self.folder / name / "log").read_text(errors="replace")

    def trainctl(self, *words):
        argv = self.lab.command("a", [BIN / "trainctl", "--address", self.memberd, "--insecure", *words, "--json"])
        done = subprocess.run(argv, env=self.lab.environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def __enter__(self):
        self.memberd = self.start("a", "memberd", "memberd")
        for name, site in self.nodes.items():
            self.start_node(name, site)
        wait_for(lambda: len(self.trainctl("nodes")) == len(self.nodes), "all nodes")
        return self

    def __exit__(self, *_):
        for process in reversed(self.processes.values()):
            process.terminate()
            process.wait()

    def launch(self, spec):
        """The job's number."""
        path = self.folder / f"{spec['name']}.yaml"
        path.write_text("\n".join(f"{section}: {json.dumps(keys)}" for section, keys in spec.items()))
        return self.trainctl("launch", path, "--detach")["id"]

    def job(self, number):
        return self.trainctl("status", str(number))

    def cancel(self, number):
        self.trainctl("cancel", str(number))
        wait_for(lambda: self.job(number)["state"] == "cancelled", "the job to end")

    def ended(self, number):
        job = self.job(number)
        assert job["state"] not in ("failed", "cancelled"), job
        return job["state"] == "done"

    def await_end(self, number, poll_s=0.2):
        while not self.ended(number):
            time.sleep(poll_s)
