"""Who is measured beside whom in scripts/bench_collectives.py: for each contender the command for a case, or why it cannot
run here. A command prints one JSON object, as tests/bench/measure.h says.

    for contender in contenders(build, algorithms):
        if not contender.missing:
            result = contender.run({"transport": "tcp", "world": 4, "bytes": 1 << 26}, iterations=10)
"""
import dataclasses
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PEERS = ROOT / "tests" / "bench" / "peers"
RUN_S = 300
SMALL_BYTES = 256 << 10
# Memory as a user's program has it who does nothing about pages: measure_memory_get, numpy.
PLAIN_PAGES = {"TR_BENCH_PAGES": "plain", "NUMPY_MADVISE_HUGEPAGE": "0"}
FLOOR = {"tcp": "bare ring", "shm": "bare fold"}
BYTES = "bare bytes"  # the bare ring without its additions: less than any all-reduce over these sockets can take


@dataclasses.dataclass
class Contender:
    name: str
    transport: str
    command: list  # before --world and --bytes; "{world}" in it is replaced
    missing: str = ""  # why it cannot run
    takes_world: bool = True
    environment: dict = dataclasses.field(default_factory=dict)
    slow: bool = False  # its processes take seconds to start: fewer cases in a quick run
    slow_small: bool = False  # an op takes tens of milliseconds whatever its size
    ours: bool = False

    def run(self, case, iterations):
        """(result, None) or (None, why there is none)."""
        if case["bytes"] < SMALL_BYTES and self.slow_small:
            iterations = min(iterations, 10)
        argv = [str(word).format(world=case["world"]) for word in self.command]
        argv += (["--world", str(case["world"])] if self.takes_world else [])
        argv += ["--bytes", str(case["bytes"]), "--iters", str(iterations), *case.get("options", [])]
        try:
            done = subprocess.run(argv, env={**os.environ, **self.environment}, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=RUN_S)
        except subprocess.TimeoutExpired:
            return None, f"did not end within {RUN_S} s"
        try:
            return json.loads(done.stdout.strip().splitlines()[-1]), None
        except (IndexError, json.JSONDecodeError):
            return None, reason_of(done)


def reason_of(done):
    """The first line that says more than that a process failed."""
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("collbench:")]
    return (ours or lines or [f"exit code {done.returncode}"])[0][:160]


def missing_program(path, package):
    return "" if path.exists() else f"not installed: {package}" if package else f"not built: `make {path}`"


def missing_torch():
    done = subprocess.run([sys.executable, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True)
    return "" if done.returncode == 0 else "not installed: `make bench TORCH=1`"


def missing_pccl():
    reason = ROOT / "build" / "venv-pccl.reason"
    if not reason.exists():
        return "not installed: scripts/venv_pccl.sh"
    return reason.read_text().strip()


def contenders(build, algorithms, plain_pages=False):
    """plain_pages: of the peers, not of the floors."""
    build = pathlib.Path(build)
    bench = build / "bench"
    pages = PLAIN_PAGES if plain_pages else {}
    peers = {"LD_PRELOAD": str((bench / "cubic_preload.so").resolve()), **pages}
    collbench, mpi, gloo = build / "bin" / "collbench", bench / "mpi_bench", bench / "gloo_bench"
    mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "{world}", "--mca", "pml", "ob1", "--mca", "btl"]
    made = []
    for transport in ("tcp", "shm"):
        made += [Contender(f"traind {algorithm}", transport, [collbench, "--json", "--algo", algorithm, "--transport", transport],
                           missing_program(collbench, ""), ours=True) for algorithm in algorithms]
    for transport, name in FLOOR.items():
        floor = bench / name.replace(" ", "_")
        made.append(Contender(name, transport, [floor], missing_program(floor, "")))
        if transport == "tcp":
            made.append(Contender(BYTES, transport, [floor, "--algo", "bytes"], missing_program(floor, "")))
    for algorithm in ("halving-doubling", "ring-chunked"):
        made.append(Contender(f"Gloo {algorithm}", "tcp", [gloo, "--algo", algorithm], missing_program(gloo, "libgloo-dev"),
                              environment=peers))
    made.append(Contender("Open MPI tcp", "tcp", [*mpirun, "tcp,self", "--mca", "btl_tcp_if_include", "lo", mpi, "--algo", "tcp"],
                          missing_program(mpi, "libopenmpi-dev"), takes_world=False, environment=peers))
    made.append(Contender("Open MPI shm", "shm", [*mpirun, "vader,self", mpi, "--algo", "shm"],
                          missing_program(mpi, "libopenmpi-dev"), takes_world=False, environment=pages))
    made.append(Contender("PyTorch gloo", "tcp", [sys.executable, PEERS / "torch_gloo.py"], missing_torch(), environment=peers,
                          slow=True))
    made.append(Contender("PCCL", "tcp", [ROOT / "build" / "venv-pccl" / "bin" / "python", PEERS / "pccl_bench.py"],
                          missing_pccl(), environment=peers, slow=True, slow_small=True))
    return made
