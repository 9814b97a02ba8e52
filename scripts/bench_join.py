"""How long others stand still while a large shard comes to a worker that joins: four machines (network namespaces) with a cable each train a job of dp 2 x pp 2, one is lost, the job goes on as dp 1 and gets
another machine. Prints, of the steps until some after both newcomers work, the usual one while dp 1 went on alone and the longest, with all steps and the events. Other repositories that are named are
asked the same, in turn, with their own builds.

    build/venv/bin/python scripts/bench_join.py RATE WIDTH [REPOSITORY ...]     # 500mbit 416: 51 MB each
"""
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve()
STEPS, BEFORE, AFTER = 400, 12, 8
JOB = """name: join
model: {{preset: gpt2, layers: 4, width: {width}, heads: 4, context: 32, vocab: bytes}}
data: {{text: [{folder}/text.txt], validation: 10%}}
train: {{steps: {steps}, batch_tokens: 512, lr: 1e-4, warmup: 5, clip: 1.0, seed: 7, eval_every: 4000}}
mesh: {{nodes: 4, pp: 2, threads: 1}}
checkpoint: {{dir: {folder}/run}}
"""


def once(rate, width):
    """One run, with the build of the repository whose tests are imported."""
    from harness import wait_for
    from mesh_jobs import reach, rows_of, write_text
    from node_lab import NodeLab
    with tempfile.TemporaryDirectory(prefix="join-") as name, NodeLab(pathlib.Path(name)) as lab:
        folder = pathlib.Path(name)
        write_text(folder)
        (folder / "job.yaml").write_text(JOB.format(width=width, folder=folder, steps=STEPS))

        def add(number):
            node = lab.add_node(number)
            lab.slow_down(node, rate)

        def events():
            return [event["text"] for event in lab.json("status", 1)["events"]]

        for number in range(2, 6):
            add(number)
        lab.trainctl("launch", folder / "job.yaml", "--detach")
        run = folder / "run"
        reach(run, 5)
        lost = lab.nodes.pop()
        lost.process.kill()
        lost.process.wait()
        wait_for(lambda: any("goes on with dp 1 until" in text for text in events()), "dp 1", 120)
        alone = max(rows_of(run))
        reach(run, alone + BEFORE)
        add(6)
        wait_for(lambda: any(" takes rank " in text for text in events()), "a join", 300)
        there = max(rows_of(run))
        reach(run, there + AFTER)
        rows, found = rows_of(run), events()
        lab.trainctl("cancel", 1)
    took = {step: rows[step]["unix_ms"] - rows[step - 1]["unix_ms"] for step in range(alone + 3, there + AFTER + 1)}
    return {"usual": statistics.median(list(took.values())[:BEFORE - 3]), "took": took, "there": there,
            "events": [text for text in found if re.search(r"takes rank|is to work with", text)]}


def ask(repository, rate, width):
    """In a process of its own, whose tests and binaries are that repository's."""
    tests = pathlib.Path(repository) / "tests" / "system"
    done = subprocess.run([sys.executable, str(HERE), "--once", rate, width], cwd=repository, check=True, stdout=subprocess.PIPE, text=True,
                          env={"PYTHONPATH": str(tests), "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"})
    found = json.loads(done.stdout.splitlines()[-1])
    longest = max(found["took"], key=found["took"].get)
    print(f"{repository}: dp 1 alone {found['usual']:.0f} ms a step, longest {found['took'][longest]} ms (step {longest}; newcomers worked by step {found['there']})")
    print("    ms: " + " ".join(str(ms) for ms in found["took"].values()))
    print("".join(f"    {text}\n" for text in found["events"]), end="", flush=True)


def main():
    if sys.argv[1] == "--once":
        print(json.dumps(once(sys.argv[2], int(sys.argv[3]))))
        return
    for repository in sys.argv[3:] or [HERE.parents[1]]:
        ask(repository, sys.argv[1], sys.argv[2])


if __name__ == "__main__":
    main()
