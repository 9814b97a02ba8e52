#!/usr/bin/env python3
"""A picture (SVG) of a terminal in which a node dies while a job trains: runs trainctl in tmux, kills one node with kill -9,
starts a new one, and draws what the terminal shows.

    build/venv/bin/pip install -r scripts/requirements-plot.txt
    build/venv/bin/python scripts/terminal_picture.py            writes docs/images/run.svg
"""
import argparse
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
COLUMNS, LINES = 110, 30


def tmux(*arguments):
    return subprocess.run(["tmux", "-L", "traind-picture", *arguments], check=True, capture_output=True, text=True).stdout


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--out", default=ROOT / "docs" / "images" / "run.svg")
    options = parser.parse_args()
    from rich.console import Console
    from rich.text import Text

    with tempfile.TemporaryDirectory(prefix="picture-") as home:
        environment = {**os.environ, "TRAIND_HOME": home, "PATH": f"{ROOT / 'build' / 'bin'}:{os.environ['PATH']}",
                       "PS1": "$ ", "TERM": "xterm-256color"}
        environment.pop("TRAIND_ADDRESS", None)

        def ctl(*arguments):
            return subprocess.run(["trainctl", *arguments], env=environment, check=True, capture_output=True, text=True).stdout

        def screen():
            return tmux("capture-pane", "-p", "-e", "-t", "main", "-S", "-200")

        def wait(pattern, seconds):
            end = time.monotonic() + seconds
            while not re.search(pattern, screen()):
                if time.monotonic() > end:
                    sys.exit(f"waited in vain for {pattern}:\n{screen()}")
                time.sleep(0.2)

        ctl("up", "--nodes", "3")
        subprocess.run(["tmux", "-L", "traind-picture", "new-session", "-d", "-s", "main", "-x", str(COLUMNS), "-y", str(LINES),
                        "bash", "--norc", "--noprofile"], check=True, env=environment)
        try:
            tmux("send-keys", "-t", "main", shlex.join(["trainctl", "launch", "configs/quickstart.yaml", "--set",
                                                        f"train.steps={options.steps}"]), "Enter")
            os.chdir(ROOT)

            def step(least):
                end = time.monotonic() + 900
                while json.loads(ctl("jobs", "--json") or "[]")[0].get("step", 0) < least:
                    if time.monotonic() > end:
                        sys.exit(f"step {least} never came:\n{screen()}")
                    time.sleep(0.3)

            wait(r"peers", 60)
            step(options.steps // 4)
            node = next(node for node in json.loads(ctl("nodes", "--json")) if node["name"] == "node-2")
            os.kill(node["pid"], signal.SIGKILL)
            step(options.steps // 2)
            ctl("up", "--replace")
            step(options.steps * 3 // 4)
            middle = screen()
        finally:
            tmux("kill-server")
            ctl("cancel", "1")
            ctl("down")
    console = Console(record=True, width=COLUMNS, file=open(os.devnull, "w"), force_terminal=True, color_system="truecolor")
    console.print(Text.from_ansi(middle.rstrip()))
    pathlib.Path(options.out).parent.mkdir(parents=True, exist_ok=True)
    pathlib.Path(options.out).write_text(console.export_svg(title="a node dies, a new one joins"))
    print(middle)


if __name__ == "__main__":
    main()
