#!/usr/bin/env python3
"""Runs every test and counts them. The last line is `N passed, N failed`, or `N passed, N failed, N skipped`
with the reasons above it; the exit status is 1 if anything failed.

Suites: check (make check), unit (cmocka programs), fuzz (the committed corpora), sim (seeds of the simulator), python (pytest on
tests/system and tests/parity). Programs run as many at once as there are processors, then Python tests, which mostly wait, twice as
many; check has what they leave of the processors, from the beginning on. A program that crashes, hangs, has no tests, leaves a process behind, or makes a
sanitizer speak (in any process of it) has failed, and the end of its output is shown. On SIGINT or SIGTERM whatever runs is ended first: the last line
ends with `interrupted by SIGTERM`, and what did not come to its end has failed. A second signal makes it short.
"""
import argparse
import collections
import concurrent.futures
import glob
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
import xml.etree.ElementTree as xml

ROOT = pathlib.Path(__file__).resolve().parent.parent
MARK = "TRAIND_TEST_RUN"  # in the environment of everything that a run starts
PYTEST_INTERRUPTED = 2  # its exit code
# What ASan says at the first change of coroutines (tests/sim/sharded): no finding.
COROUTINES_NOTE = "WARNING: ASan doesn't fully support makecontext/swapcontext"
Outcome = collections.namedtuple("Outcome", "name passed failures skips seconds")


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build", help="folder of programs and tests")
    parser.add_argument("--suites", default="unit,fuzz,sim,python", help="comma-separated")
    parser.add_argument("--only", default="", help="regular expression on the names of programs and tests")
    parser.add_argument("--seeds", default="1..1000,10000001..10000400,20000001..20000800,40000001..40000300",
                        help="of the simulator, with commas; from 10000001 on members stand still until they are given up, "
                             "from 20000001 on they show small ops on boards, from 40000001 on states come in pieces")
    cpus = len(os.sched_getaffinity(0))
    parser.add_argument("--jobs", type=int, default=cpus, help="programs at once")
    parser.add_argument("--python-jobs", type=int, default=0, help=f"Python tests at once (default: {min(2 * cpus, 16)}; {min(cpus, 16)} with a sanitizer)")
    parser.add_argument("--limit-s", type=float, default=180, help="of one program; of one Python test twice that")
    parser.add_argument("--python-limit-s", type=float, default=3600, help="of all Python tests together")
    return parser.parse_args()


def tail(path, lines=40):
    try:
        text = path.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    cut = [f"... ({len(text) - lines} lines before)"] if len(text) > lines else []
    return "\n".join(cut + text[-lines:])


class Children:
    """The programs that run now, each the head of a session of its own, and the signal that is to end them."""
    GRACE_S = 10  # for pytest to tidy up behind its tests

    def __init__(self):
        self.changed = threading.Condition()
        self.groups = set()
        self.signal = None

    def begin(self, argv, **how):
        """None: too late."""
        with self.changed:
            if self.signal:
                return None
            process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, cwd=ROOT, start_new_session=True, **how)
            self.groups.add(process.pid)
        return process

    def forget(self, process):
        with self.changed:
            self.groups.discard(process.pid)
            self.changed.notify_all()

    def on_signal(self, number, _):
        """Of the main thread, which may hold the lock: others do what needs it."""
        again, self.signal = self.signal, self.signal or signal.Signals(number)
        threading.Thread(target=self.end, args=(0 if again else self.GRACE_S,)).start()

    def end(self, grace_s):
        with self.changed:
            self.tell(signal.SIGINT)
            self.changed.wait_for(lambda: not self.groups, grace_s)
            self.tell(signal.SIGKILL)

    def tell(self, number):
        for group in self.groups:
            try:
                os.killpg(group, number)
            except ProcessLookupError:
                pass  # it has just ended and is not forgotten yet


CHILDREN = Children()


def run_limited(argv, log, limit_s, environment):
    """Runs to the end, the limit or a signal to us. Returns how it ended, None if it has not begun, and what went wrong, or None."""
    with open(log, "wb") as output:
        process = CHILDREN.begin(argv, stdout=output, stderr=subprocess.STDOUT, env=environment)
        if process is None:
            return None, None
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return process.returncode, f"hung: killed after {limit_s:.0f} s"
        finally:
            CHILDREN.forget(process)
    if CHILDREN.signal and process.returncode != 0:
        return process.returncode, "interrupted"
    if process.returncode < 0:
        return process.returncode, f"killed by {signal.Signals(-process.returncode).name}"
    return process.returncode, None


class Run:
    def __init__(self, options):
        self.options = options
        self.build = pathlib.Path(options.build).resolve()
        self.results = self.build / "test-results"
        shutil.rmtree(self.results, ignore_errors=True)
        self.results.mkdir(parents=True)
        self.sanitized = any("-" + name in self.build.name for name in ("address", "undefined", "thread"))
        self.limit_s = options.limit_s * (4 if self.sanitized else 1)
        self.kernels = self.workers_kernels()

    def workers_kernels(self):
        """What OpenBLAS does in workers: on a processor that it does not know it takes others by itself, with other bits (docs/trainer.md, "Threads")."""
        worker = self.build / "bin" / "trainworker"
        if "OPENBLAS_CORETYPE" in os.environ or not worker.exists():
            return {}
        name = subprocess.run([worker, "--kernels"], stdin=subprocess.DEVNULL, capture_output=True, text=True).stdout.strip()
        return {"OPENBLAS_CORETYPE": name} if name else {}

    def environment(self, name, extra=None):
        """The caller's, with our mark, and with sanitizers' words sent to files that are read afterwards."""
        env = dict(os.environ)
        env.pop("MAKEFLAGS", None)
        env.pop("MAKELEVEL", None)
        env[MARK] = f"{os.getpid()}-{uuid.uuid4()}"
        env["TRAIND_BUILD"] = str(self.build)
        words = f"log_path={self.results}/{name}.sanitizer"
        for variable, defaults in (("ASAN_OPTIONS", "detect_stack_use_after_return=1"), ("UBSAN_OPTIONS", "print_stacktrace=1"),
                                   ("TSAN_OPTIONS", "second_deadlock_stack=1:die_after_fork=0")):
            env[variable] = ":".join(filter(None, (defaults, env.get(variable), words)))
        suppressions = ROOT / "tests" / "tsan.supp"
        if suppressions.exists():
            env["TSAN_OPTIONS"] += f":suppressions={suppressions}"
        env.update(extra or {})
        return env

    def aftermath(self, name, mark):
        """Failures that no exit status tells: processes left behind, words of sanitizers."""
        failures = []
        # What is about to end (just killed, say) is not left behind.
        until = time.monotonic() + 2
        while (left := marked_processes(mark)) and time.monotonic() < until:
            time.sleep(0.05)
        for pid, command in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            if not CHILDREN.signal:
                failures.append((f"{name}: process left behind", f"{pid} {command}"))
        until = time.monotonic() + 2
        while any(runs(pid) for pid, _ in left) and time.monotonic() < until:
            time.sleep(0.01)
        for path in sorted(self.results.glob(f"{name}.sanitizer.*")):
            if any(COROUTINES_NOTE not in line for line in path.read_text(errors="replace").splitlines()):
                failures.append((f"{name}: sanitizer, process {path.suffix[1:]}", tail(path, 60)))
        return failures

    def program(self, name, argv, judge, limit_s=None, extra=None):
        """Runs one program; judge(returncode, log) gives (passed, failures, skips) if it ended by itself."""
        began = time.monotonic()
        log = self.results / f"{name}.log"
        environment = self.environment(name, extra)
        returncode, trouble = run_limited(argv, log, limit_s or self.limit_s, environment)
        if returncode is None:
            return Outcome(name, 0, [], [], None)
        passed, failures, skips = judge(returncode, log)
        if trouble == "interrupted":  # what it counts tells nothing: a test that was broken off looks like one that passed
            passed, failures = 0, [(f"{name}: interrupted", "")]
        elif trouble:
            failures = failures + [(f"{name}: {trouble}", tail(log))]
        elif returncode != 0 and not failures:
            failures = [(f"{name}: exit code {returncode}", tail(log))]
        elif passed == 0 and not failures and not skips:
            failures = [(f"{name}: no tests in it", tail(log))]
        failures = failures + self.aftermath(name, environment[MARK])
        return Outcome(name, passed, failures, skips, time.monotonic() - began)

    def unit(self, program):
        name = program.name
        report = self.results / f"{name}.%g.xml"
        return self.program(name, [str(program)], lambda code, log: read_reports(self.results, f"{name}.*.xml", log),
                            extra={"CMOCKA_MESSAGE_OUTPUT": "XML", "CMOCKA_XML_FILE": str(report), **self.kernels})

    def fuzz(self, program):
        corpus = ROOT / "tests" / "fuzz" / "corpus" / program.name.removeprefix("fuzz_")
        files = [path for path in corpus.glob("*") if path.is_file()]

        def judge(returncode, log):
            if not files:
                return 0, [(f"{program.name}: no corpus in {corpus}", "")], []
            return (1 if returncode == 0 else 0), [], []

        return self.program(program.name, [str(program), *map(str, files)], judge)

    def sim(self, seeds):
        def judge(returncode, log):
            ended = re.search(r"^seeds=(\d+) violations=0$", log.read_text(errors="replace"), re.MULTILINE)
            return (1 if ended and int(ended[1]) > 0 and returncode == 0 else 0), [], []

        argv = ["make", "-s", "sim", f"SEEDS={seeds}", f"BUILD={self.build.name}"]
        if self.sanitized:
            argv.append(f"SAN={self.build.name.removeprefix('build-')}")
        return self.program(f"sim-{seeds}", argv, judge, limit_s=600 * (4 if self.sanitized else 1))

    def check(self):
        def judge(returncode, log):
            return (1 if returncode == 0 else 0), [], []

        # Bound by the processors where others mostly wait: nice, so that nobody waits for it.
        return self.program("check", ["nice", "-n", "10", "make", "-s", "check"], judge, limit_s=3600)

    def python(self, folders):
        report = self.results / "pytest.xml"
        jobs = self.options.python_jobs or min(len(os.sched_getaffinity(0)) * (1 if self.sanitized else 2), 16)
        # A process of pytest that dies fails its test and the others do what is left; a new one would be waited for in vain (pytest-xdist 3.8).
        argv = [sys.executable, "-m", "pytest", "-q", "-ra", "--tb=short", "--junitxml", str(report), "-p", "no:cacheprovider",
                "-n", str(jobs), "--dist", "loadgroup", "--max-worker-restart=0", f"--timeout={2 * self.limit_s}", f"--basetemp={self.results}/tmp", *folders]
        if self.options.only:
            argv += ["-k", re.sub(r"\W+", " and ", self.options.only)]
        limit_s = self.options.python_limit_s * (3 if self.sanitized else 1)
        def judge(returncode, log):
            if returncode == PYTEST_INTERRUPTED:  # by itself, or by others than us
                return 0, [("pytest: interrupted", tail(log))], []
            if left_out := re.search(r"(\d+) deselected", tail(log, 1)):
                print(f"     pytest: {left_out[1]} tests left to make nightly, or not asked for", flush=True)
            return read_reports(self.results, "pytest.xml", log)

        return self.program("pytest", argv, judge,
                            limit_s=limit_s, extra={"PYTHONDONTWRITEBYTECODE": "1"})


def runs(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def marked_processes(mark):
    """Live processes whose environment says that this run started them."""
    found = []
    for folder in glob.glob("/proc/[0-9]*"):
        try:
            with open(folder + "/environ", "rb") as environ:
                ours = f"{MARK}={mark}".encode() in environ.read().split(b"\0")
            if ours:
                with open(folder + "/cmdline", "rb") as cmdline:
                    command = cmdline.read().replace(b"\0", b" ").decode(errors="replace")
                found.append((int(os.path.basename(folder)), command))
        except OSError:
            continue
    return found


def read_reports(folder, pattern, log):
    """(passed, failures, skips) of JUnit files, as cmocka and pytest write them."""
    passed, failures, skips = 0, [], []
    for path in sorted(folder.glob(pattern)):
        try:
            cases = list(xml.parse(path).getroot().iter("testcase"))
        except xml.ParseError as error:
            failures.append((f"{path.name}: unreadable report: {error}", tail(log)))
            continue
        for case in cases:
            where = case.get("classname") or path.name.split(".")[0]
            name = f"{where}: {case.get('name')}"
            trouble = [node for node in case if node.tag in ("failure", "error")]
            skipped = case.find("skipped")
            if trouble:
                failures.append((name, "\n".join((node.text or node.get("message") or "") for node in trouble)))
            elif skipped is not None:
                # pytest tells why it skips a whole file in the text alone: ('/file.py', 12, 'Skipped: why')
                whole = re.search(r"'Skipped: (.*)'\)$", skipped.text or "")
                skips.append((name, whole[1] if whole else (skipped.get("message") or "skip()").strip()))
            else:
                passed += 1
    return passed, failures, skips


def say(outcome):
    state = "FAIL" if outcome.failures else "ok"
    skipped = f", {len(outcome.skips)} skipped" if outcome.skips else ""
    print(f"{state:5}{outcome.name} ({outcome.passed} passed{skipped}) {outcome.seconds:.1f} s", flush=True)
    for name, text in outcome.failures:
        print(f"     failed: {name}")
        for line in text.strip().splitlines()[-60:]:
            print(f"       | {line}")
    sys.stdout.flush()


def main():
    options = parse_arguments()
    run = Run(options)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, CHILDREN.on_signal)
    suites = set(options.suites.split(","))
    wanted = re.compile(options.only)
    outcomes = []

    def ended(outcome):
        if outcome.seconds is not None:  # it has begun
            outcomes.append(outcome)
            say(outcome)

    with concurrent.futures.ThreadPoolExecutor(1) as beside, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        check = beside.submit(run.check) if "check" in suites and wanted.search("check") else None
        work = []
        for suite, runner, folder in (("unit", run.unit, "tests"), ("fuzz", run.fuzz, "fuzz-replay")):
            if suite in suites:
                source = ROOT / "tests" / ("unit" if suite == "unit" else "fuzz")
                programs = sorted(path for path in (run.build / folder).iterdir()
                                  if (source / f"{path.name}.c").exists() and wanted.search(path.name))
                work += [pool.submit(runner, path) for path in programs]
        if "sim" in suites and wanted.search("sim") and (ROOT / "scripts" / "sim.mk").exists():
            work += [pool.submit(run.sim, seeds) for seeds in options.seeds.split(",")]
        for done in concurrent.futures.as_completed(work):
            ended(done.result())
        # Parity is a matter of numbers, not of memory: no sanitizer there.
        folders = ["tests/system"] if run.sanitized else ["tests/system", "tests/parity"]
        folders = [folder for folder in folders if list((ROOT / folder).glob("test_*.py"))]
        if "python" in suites and folders:
            print(f"     pytest on {' and '.join(folders)}: a few minutes", flush=True)
            ended(run.python(folders))
        if check:
            ended(check.result())
    return summary(outcomes)


def summary(outcomes):
    passed = sum(outcome.passed for outcome in outcomes)
    failures = [failure for outcome in outcomes for failure in outcome.failures]
    skips = [skip for outcome in outcomes for skip in outcome.skips]
    for name, reason in skips:
        print(f"skipped: {name}: {reason}")
    for name, _ in failures:
        print(f"failed: {name}")
    ended_by = CHILDREN.signal
    print(f"{passed} passed, {len(failures)} failed" + (f", {len(skips)} skipped" if skips else "") + (f", interrupted by {ended_by.name}" if ended_by else ""))
    return 128 + ended_by if ended_by else 1 if failures or passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
