"""make experiments: trains what docs/results/ is made of, and makes docs/results/ of what has been trained.

    build/venv/bin/python scripts/experiments run [--only STUDY]... [--arm PART]... [--threads N]     whatever has no result yet, most wanted first
    build/venv/bin/python scripts/experiments measure [--only NAME]...               what is measured apart from runs and has no file yet (facts.py); needs root, and a machine that does nothing else
    build/venv/bin/python scripts/experiments tables                                  docs/results/README.md and plots
    build/venv/bin/python scripts/experiments status

SIGTERM or Ctrl-C stop `run` at once; called again it goes on from the checkpoints.
"""
import argparse
import os
import pathlib
import shutil
import signal
import sys
import threading
import traceback

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "system"))

import facts  # noqa: E402
import plan  # noqa: E402
import report  # noqa: E402
import store  # noqa: E402


def chosen(only):
    found = plan.studies()
    names = [study.__name__.removeprefix("studies.") for study in found]
    for name in only:
        if name not in names:
            raise SystemExit(f"experiments: found study {name}, allowed: {' '.join(names)}")
    return [study for study, name in zip(found, names) if not only or name in only]


def next_that_fits(waiting, busy, threads):
    """The most wanted run, if there is room for its workers; with nothing under way any run has room."""
    return waiting[0] if waiting and (busy == 0 or busy + waiting[0].workers <= threads) else None


class Runner:
    def __init__(self, runs, kept, folder, text, threads):
        self.waiting = [run for run in runs if not kept.has(run)]
        self.kept, self.folder, self.text, self.threads = kept, folder, text, threads
        self.stop, self.changed, self.under_way, self.failed = threading.Event(), threading.Condition(), {}, []

    def one(self, run):
        import execute
        words = f"{run.arm.name} seed {run.seed} ({run.key})"
        print(f"experiments: {words} begins", flush=True)
        try:
            result = execute.execute(run, self.folder, self.text, self.stop)
            if result:
                self.kept.put(run, result)
                print(f"experiments: {words}: validation loss {result['val_loss']:.4f}, {result['cpu_s']:.0f} s of CPU", flush=True)
        except Exception as error:  # the others go on; the next call tries again
            traceback.print_exc()
            self.failed.append(words)
            if isinstance(error, execute.Disturbed):  # from the start
                shutil.rmtree(self.folder / run.key, ignore_errors=True)
        with self.changed:
            del self.under_way[run.key]
            self.changed.notify()

    def run(self):
        with self.changed:
            while self.under_way or (self.waiting and not self.stop.is_set()):
                busy = sum(run.workers for run, _ in self.under_way.values())
                run = None if self.stop.is_set() else next_that_fits(self.waiting, busy, self.threads)
                if run:
                    self.waiting.remove(run)
                    thread = threading.Thread(target=self.one, args=(run,))
                    self.under_way[run.key] = (run, thread)
                    thread.start()
                else:
                    self.changed.wait(1)
        return 1 if self.failed else 0


def run(options, runs, kept, text):
    folder = options.work / "runs"
    runner = Runner(runs, kept, folder, text, options.threads)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: runner.stop.set())
    code = runner.run()
    print(f"experiments: {'stopped' if runner.stop.is_set() else 'done'}; {sum(map(kept.has, runs))} of {len(runs)} runs are there"
          + (f"; failed: {', '.join(runner.failed)}" if runner.failed else ""), flush=True)
    return code


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=["run", "measure", "tables", "status"])
    parser.add_argument("--only", action="append", default=[], help="a study: a file of studies/ without .py; of `measure`: a script without .py")
    parser.add_argument("--arm", action="append", default=[], help="a part of an arm's name: run and status take these alone")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="workers at a time, of several runs together")
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "docs" / "results")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build" / "experiments")
    options = parser.parse_args()
    if options.verb == "measure":
        return facts.measure(options.results, options.only)
    kept = store.Store(options.results / "runs")
    studies = chosen(options.only)
    if options.verb == "tables":
        report.write(options.results, studies, kept)
        return 0
    runs = [one for one in plan.runs(studies) if not options.arm or any(part in one.arm.name for part in options.arm)]
    if options.verb == "status":
        for one in runs:
            found = kept.get(one)
            print(f"{one.arm.name:28} seed {one.seed}  {found['val_loss']:.4f}" if found else f"{one.arm.name:28} seed {one.seed}  -")
        return 0
    import text
    options.work.mkdir(parents=True, exist_ok=True)
    return run(options, runs, kept, text.make(options.work))


if __name__ == "__main__":
    sys.exit(main())
