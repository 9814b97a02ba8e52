"""trainctl with a folder of its own."""
import os
import signal
import subprocess
import uuid

from harness import BIN, MARK, marked_processes, trainctl, trainctl_json


class Home:
    """A TRAIND_HOME whose processes are all ended and looked for at the end."""

    def __init__(self, folder):
        self.folder, self.mark = folder, str(uuid.uuid4())
        kept = {key: value for key, value in os.environ.items() if not key.startswith("TRAIND_")}
        self.environment = {**kept, "TRAIND_HOME": str(folder), MARK: self.mark}

    def run(self, *arguments, check=False, **options):
        return trainctl(*arguments, environment=self.environment, check=check, **options)

    def json(self, *arguments):
        return trainctl_json(*arguments, environment=self.environment)

    def start(self, *arguments):
        return subprocess.Popen([str(BIN / "trainctl"), *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, env=self.environment)

    def processes(self):
        return marked_processes(self.mark)

    def end(self):
        left = self.processes()
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        return left
