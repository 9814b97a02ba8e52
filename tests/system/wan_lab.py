"""A laboratory of wide-area networks for tests (docs/wanlab.md): sites are network namespaces, and this process can have sockets in
several of them at once.

    with WanLab("site a\\nsite b\\nlink a b delay=20ms") as lab:
        lab.do("set a b loss=1%")
        server = lab.popen("a", [program, "--listen", lab.address("a") + ":0"])
        client = lab.socket("b", socket.SOCK_STREAM)
"""
import ctypes
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import threading

from stubs import BUILD, ROOT

WANLAB = BUILD / "bin" / "wanlab"
CONFIGS = ROOT / "configs" / "wan"
CLONE_NEWNET = 0x40000000


def missing():
    """Why there can be no laboratory here; None: there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return "there is no /dev/net/tun"
    probe = subprocess.run(["unshare", "--net", "true"], capture_output=True)
    return None if probe.returncode == 0 else "network namespaces cannot be made here"


class WanLab:
    """`topology`: the text, or the path of a file."""

    def __init__(self, topology, seed=1):
        if isinstance(topology, pathlib.Path):
            path = topology
        else:
            with tempfile.NamedTemporaryFile("w", suffix=".wan", delete=False) as file:
                file.write(topology)
            path = pathlib.Path(file.name)
        self.process = subprocess.Popen(
            [WANLAB, "run", "--seed", str(seed), path, "--", "sh", "-c", 'echo "$WANLAB_SOCKET"; exec cat'],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.control = self.process.stdout.readline().strip()
        if path != topology:
            path.unlink()
        if not self.control:
            raise RuntimeError(f"wanlab ended with {self.process.wait()}")
        self.environment = {**os.environ, "WANLAB_SOCKET": self.control}
        self.nets = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for net, _ in self.nets.values():
            os.close(net)
        self.nets = {}
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()

    def kill9(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def command(self, site, argv):
        """`argv`, to be run in the site with self.environment."""
        return [str(WANLAB), "exec", site, "--", *map(str, argv)]

    def popen(self, site, argv, **more):
        return subprocess.Popen(self.command(site, argv), env=self.environment, **more)

    def ask(self, request):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
            client.connect(self.control)
            client.send(request.encode())
            answer, files, _, _ = socket.recv_fds(client, 1 << 16, 1)
        return answer.decode(), files

    def do(self, *lines):
        """All of these changes at once."""
        answer, _ = self.ask("\n".join(lines))
        assert answer == "ok", answer

    def show(self):
        """{(from, to): {counter: int}}."""
        rows = {}
        for line in self.ask("show")[0].splitlines():
            words = line.split()
            if "=" not in words[0]:
                pairs = (word.split("=") for word in words[2:] if "=" in word)
                rows[words[0], words[1]] = {key: int(value) for key, value in pairs if value.isdigit()}
        return rows

    def net(self, site):
        """A file of its namespace, and its address there."""
        if site not in self.nets:
            answer, files = self.ask(f"enter {site}")
            assert answer.startswith("ok "), answer
            self.nets[site] = files[0], answer.split()[1]
        return self.nets[site]

    def address(self, site):
        return self.net(site)[1]

    def socket(self, site, kind):
        """A socket of this process in the site, bound to its address and a port of the system's choice."""
        net, address = self.net(site)
        made = []

        def inside():  # a thread has its own namespace; a socket stays where it was made
            if ctypes.CDLL(None, use_errno=True).setns(net, CLONE_NEWNET) == 0:
                made.append(socket.socket(socket.AF_INET, kind))
        thread = threading.Thread(target=inside)
        thread.start()
        thread.join()
        assert made, f"cannot enter {site}"
        made[0].bind((address, 0))
        return made[0]
