"""A program that prints a JSON object a line, and what it has printed so far."""
import contextlib
import json
import subprocess
import threading

from harness import Cluster


class LineProcess:
    """`lines` grows with what it prints."""

    def __init__(self, words, environment):
        self.lines = []
        self.errors = []
        self.process = subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, env=environment)
        self.readers = [threading.Thread(target=self.read), threading.Thread(target=self.read_errors)]
        for reader in self.readers:
            reader.start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append(json.loads(line))

    def read_errors(self):
        for line in self.process.stderr:
            self.errors.append(line)

    def said(self, key):
        return [line for line in self.lines if key in line]

    def story(self):
        return f"{self.lines[-3:]}\n" + "".join(self.errors[-20:])

    def end(self):
        """All that it said, after it ended by itself and well."""
        try:
            self.process.wait(timeout=120)
        except subprocess.TimeoutExpired as late:
            raise AssertionError(f"it does not end: {self.story()}") from late
        for reader in self.readers:
            reader.join()
        assert self.process.returncode == 0, self.story()
        assert "done" in self.lines[-1], self.story()
        return self.lines

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(18)  # SIGCONT
            self.process.kill()
            self.process.wait()
        for reader in self.readers:
            reader.join()


@contextlib.contextmanager
def group_of(make, folder):
    """A memberd without nodes, and peers, make(cluster, ...), that are ended with the test."""
    peers = []

    def start(*words, **options):
        peers.append(make(start.cluster, *words, **options))
        return peers[-1]
    start.cluster = Cluster(folder, nodes=0)
    try:
        start.cluster.start_memberd()
        yield start
    finally:
        for peer in peers:
            peer.stop()
        start.cluster.stop()
