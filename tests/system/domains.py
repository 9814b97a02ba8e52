"""Domains for tests: the members of one, each a tests/system/domain_peer.c, what they wrote, and how to kill them. How they are started is
a subclass's matter (test_backend_mpi.py: mpirun, test_backend_nccl.py: by themselves)."""
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import uuid

from harness import wait_for
from stubs import BUILD

PEER = BUILD / "tests" / "domain_peer"


def new_group():
    return "g" + uuid.uuid4().hex[:8]


class Domain:
    """`pause`: [round, rank]: that rank, or all, stop there for ever. `processes`: all that must end well."""

    def __init__(self, cluster, group, domain, founders=2, rounds=5, policy="keep", count=50_000, pause=(), ranks=2, **options):
        self.folder, self.domain, self.ranks = pathlib.Path(cluster.folder), domain, ranks
        self.output = self.folder / f"domain-{domain}.log"
        arguments = [cluster.memberd.address, group, founders, domain, rounds, policy, count, self.folder, *pause]
        with open(self.output, "w") as log:
            self.processes = self.start(cluster, list(map(str, arguments)), log, **options)

    def lines(self, rank):
        path = self.folder / f"{self.domain}-{rank}.jsonl"
        if not path.exists():
            return []
        return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]

    def find(self, rank, key, value=None):
        return next((line for line in self.lines(rank) if key in line and value in (None, line[key])), None)

    def wait(self, key, value=None, ranks=None):
        """Until all ranks (or those given) said so."""
        def said():
            return all(self.find(rank, key, value) for rank in ranks or range(self.ranks))
        try:
            wait_for(said, f"domain {self.domain} to say {key} {value}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.said()}") from None

    def said(self):
        return f"{[self.lines(rank)[-3:] for rank in range(self.ranks)]}\n{self.output.read_text()[-3000:]}"

    def rounds(self, rank):
        return {line["round"]: line for line in self.lines(rank) if "round" in line}

    def pid(self, rank):
        return self.lines(rank)[0]["pid"]

    def end(self, expected=0):
        try:
            assert all(process.wait(120) == expected for process in self.processes), self.said()
        except subprocess.TimeoutExpired:
            raise AssertionError(f"domain {self.domain} does not end\n{self.said()}") from None

    def kill(self, *ranks, number=signal.SIGKILL):
        for rank in ranks:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid(rank), number)

    def kill_all(self):
        """First what started them (mpirun), so that it says nothing."""
        for process in self.processes:
            process.kill()
            process.wait()
        self.kill(*(rank for rank in range(self.ranks) if self.lines(rank)))


def check(*domains, rounds, inside, members=None, ranks=None):
    """All ranks (of each, or those given) committed all rounds with the same bits, right ones. `inside`: kinds x types x reductions."""
    sums = {}
    for domain in domains:
        for rank in ranks or range(domain.ranks):
            assert domain.find(rank, "inside") == {"inside": inside, "wrong": 0}
            assert sorted(domain.rounds(rank)) == list(range(1, rounds + 1))
            for number, line in domain.rounds(rank).items():
                assert line["wrong"] == 0
                assert members is None or line["members"] == members
                assert sums.setdefault(number, line["sum"]) == line["sum"]


def check_joined(first, second):
    """`second` joined `first`, which has done three rounds, and does three: all its members have the state that its leader received."""
    second.end()
    first.kill_all()
    for rank in range(second.ranks):
        joined = second.rounds(rank)
        assert len(joined) == 3 and min(joined) > 3
        for number, line in joined.items():
            assert line["sum"] == first.rounds(0)[number]["sum"] and line["wrong"] == 0
