"""A program on a terminal of its own, as a person would see and use it."""
import fcntl
import os
import pathlib
import pty
import re
import select
import struct
import subprocess
import termios

from harness import DEADLINE_S, wait_for


class Terminal:
    """The program `command`; `text` is all that it has written."""

    def __init__(self, command, environment, columns=120):
        self.fd, slave = pty.openpty()
        self.resize(columns)
        self.process = subprocess.Popen(["setsid", "--ctty", "--wait", *map(str, command)], stdin=slave, stdout=slave, stderr=slave,
                                        env=environment, start_new_session=True)
        os.close(slave)
        self.text = ""

    def resize(self, columns):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def read(self):
        while select.select([self.fd], [], [], 0)[0]:
            try:
                data = os.read(self.fd, 65536)
            except OSError:  # the other side is closed
                break
            if not data:
                break
            self.text += data.decode(errors="replace")
        return self.text

    def expect(self, pattern):
        return wait_for(lambda: re.search(pattern, self.read(), re.DOTALL), f"{pattern!r}")

    def send(self, keys):
        os.write(self.fd, keys.encode())

    def program(self):
        """The pid of `command`; of setsid, the process that it made."""
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return int(children[0]) if children else self.process.pid

    def wait(self, deadline_s=None):
        def ended():
            self.read()
            return self.process.poll() is not None
        wait_for(ended, "the program to end", deadline_s)
        self.read()
        return self.process.returncode

    def close(self):
        os.close(self.fd)  # what still runs is told by SIGHUP
        self.process.wait(DEADLINE_S)
