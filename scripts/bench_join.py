"""How long others stand still while a large shard comes to a worker that joins, or (--mesh) while another mesh is made: four machines (network namespaces) with a cable each train a job of dp 2 x pp 2, one is lost, the job goes on as dp 1 and gets
another machine. With --mesh three train a job of pp 3, one is lost, the job goes on as pp 2, and as pp 3 when another machine is there. Prints, of the steps (with --inner-steps: merges) until some after both newcomers work, or the mesh is the job's, the usual one while there were fewer workers and the longest, with all of them and the events. Other
repositories that are named are asked the same, in turn, with their own builds.

    build/venv/bin/python scripts/bench_join.py RATE WIDTH [--zero | --strict | --inner-steps H | --mesh] [REPOSITORY ...]     # 500mbit 416: 51 MB each
"""
import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve()
BEFORE, AFTER = 12, 8  # rows of metrics
JOB = """name: join
model: {{preset: gpt2, layers: 4, width: {width}, heads: 4, context: 32, vocab: bytes}}
data: {{text: [{folder}/text.txt], validation: 10%}}
train: {{steps: 100000, batch_tokens: 512, lr: 1e-4, warmup: 5, clip: 1.0, seed: 7, eval_every: 100000{train}}}
mesh: {{nodes: {nodes}, pp: {pp}, threads: 1{mesh}}}
{sync}
checkpoint: {{dir: {folder}/run{every}}}
"""


def job_of(options, folder):
    """Each row of metrics is a step, or a merge."""
    sync = f"sync: {{mode: diloco, inner_steps: {options.inner_steps}}}" if options.inner_steps else ""
    nodes, pp = (3, 3) if options.mesh else (4, 2)
    return JOB.format(width=options.width, nodes=nodes, pp=pp, every=", every: 5, sharded: true" if options.mesh else "", folder=folder, sync=sync, train=", strict: true" if options.strict else "", mesh=", zero_owners: 2" if options.zero else "")


def once(options):
    """One run, with the build of the repository whose tests are imported."""
    from harness import wait_for
    from mesh_jobs import rows_of, write_text
    from node_lab import NodeLab
    with tempfile.TemporaryDirectory(prefix="join-") as name, NodeLab(pathlib.Path(name)) as lab:
        folder = pathlib.Path(name)
        run = folder / "run"
        write_text(folder)
        (folder / "job.yaml").write_text(job_of(options, folder))

        def add(number):
            node = lab.add_node(number)
            lab.slow_down(node, options.rate)

        def events():
            return [event["text"] for event in lab.json("status", 1)["events"]]

        def wait_rows(count):
            wait_for(lambda: len(rows_of(run)) >= count, f"{count} rows", 300)

        smaller, larger = ("goes on with dp 1 x pp 2", "goes on with dp 1 x pp 3") if options.mesh else ("goes on with dp 1 until", " takes rank ")
        for number in range(2, 5 if options.mesh else 6):
            add(number)
        lab.trainctl("launch", folder / "job.yaml", "--detach")
        wait_rows(9)
        lost = lab.nodes.pop()
        lost.process.kill()
        lost.process.wait()
        wait_for(lambda: any(smaller in text for text in events()), smaller, 120)
        alone = len(rows_of(run))
        wait_rows(alone + BEFORE)
        add(6)
        wait_for(lambda: any(larger in text for text in events()), larger, 300)
        there = len(rows_of(run))
        wait_rows(there + AFTER)
        rows, found = rows_of(run), events()
        lab.trainctl("cancel", 1)
    times = [rows[step]["unix_ms"] for step in sorted(rows)]
    took = [after - before for before, after in zip(times[alone + 2:], times[alone + 3:there + AFTER])]
    return {"usual": statistics.median(took[:BEFORE - 3]), "took": took, "there": there - alone - 3,
            "events": [text for text in found if re.search(r"takes rank|is to work with|merge at step|MB moved", text)]}


def ask(repository, words):
    """In a process of its own, whose tests and binaries are that repository's."""
    tests = pathlib.Path(repository) / "tests" / "system"
    done = subprocess.run([sys.executable, str(HERE), "--once", *words], cwd=repository, check=True, stdout=subprocess.PIPE, text=True,
                          env={"PYTHONPATH": str(tests), "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"})
    found = json.loads(done.stdout.splitlines()[-1])
    print(f"{repository}: with fewer {found['usual']:.0f} ms, longest {max(found['took'])} ms (the {found['took'].index(max(found['took'])) + 1}th; all worked by the {found['there']}th)")
    print("    ms: " + " ".join(str(ms) for ms in found["took"]))
    print("".join(f"    {text}\n" for text in found["events"]), end="", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("rate")
    parser.add_argument("width")
    parser.add_argument("repositories", nargs="*", default=[HERE.parents[1]])
    parser.add_argument("--zero", action="store_true", help="ZeRO-1 with two owners")
    parser.add_argument("--strict", action="store_true")
    parser.add_argument("--mesh", action="store_true", help="another mesh instead of a replica more")
    parser.add_argument("--inner-steps", type=int, default=0, help="DiLoCo: replicas train apart")
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_intermixed_args()
    if options.once:
        print(json.dumps(once(options)))
        return
    words = [word for word in sys.argv[1:] if word not in options.repositories]
    for repository in options.repositories:
        ask(repository, words)


if __name__ == "__main__":
    main()
