"""What was measured apart from runs: docs/results/NAME.json, written by scripts/experiments/NAME.py."""
import json


def read(folder, name):
    """None: it has not been measured."""
    path = folder / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def missing(name):
    return f"Not measured yet (`build/venv/bin/python scripts/experiments/{name}.py`).\n\n"


def table(head, rows):
    """Of Markdown; `rows`: lists of texts."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *("| " + " | ".join(row) + " |" for row in rows)]
    return "\n".join(lines) + "\n\n"
