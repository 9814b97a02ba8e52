#!/usr/bin/env python3
"""Small things that a machine can check in every file of the tree: length of C files and of a program's main,
marks of unfinished work, references to what is outside the repository, links of the docs, names that Python files import of their neighbours."""
import ast
import functools
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCE_LINES_MAX, MAIN_LINES_MAX = 600, 150
UNFINISHED = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|X" + r"XX)\b")
OUTSIDE = re.compile(r"\.\./shar" + r"ed\b|/wor" + r"k/")
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
TEXT = (".c", ".h", ".py", ".sh", ".mk", ".md", ".proto", ".yaml", ".service", ".in", "")


def anchors_of(text):
    """GitHub's anchors of a document's headings."""
    for heading in re.findall(r"^#+\s+(.*)$", text, re.MULTILINE):
        yield re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def link_problems(path, text):
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    for target in LINK.findall(text):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        there = (ROOT / path).parent / file if file else ROOT / path
        if not there.exists():
            yield f"{path}: link to {target}: no such file"
        elif anchor and there.suffix == ".md" and anchor not in anchors_of(there.read_text()):
            yield f"{path}: link to {target}: no such heading"


def names_of(node):
    """What a module has at its top level, in whatever branch."""
    for statement in ast.iter_child_nodes(node):
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            yield statement.name
        elif isinstance(statement, (ast.Import, ast.ImportFrom)):
            yield from ((alias.asname or alias.name).partition(".")[0] for alias in statement.names)
        else:
            yield from (name.id for name in ast.walk(statement) if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store))
            yield from names_of(statement)


@functools.cache
def names_in(file):
    return set(names_of(ast.parse(file.read_text())))


def import_problems(path, text):
    """A test that imports a name which has moved away fails as it is collected, in the last minutes of a whole run."""
    for node in ast.walk(ast.parse(text, path)):
        neighbour = (ROOT / path).parent / f"{getattr(node, 'module', None)}.py"
        if isinstance(node, ast.ImportFrom) and neighbour.is_file():
            yield from (f"{path}:{node.lineno}: {neighbour.name} has no {alias.name}" for alias in node.names if alias.name not in names_in(neighbour))


def problems_of(path):
    file = ROOT / path
    if file.suffix not in TEXT or not file.is_file():
        return
    try:
        text = file.read_text()
    except UnicodeDecodeError:
        yield f"{path}: not UTF-8"
        return
    lines = text.count("\n")
    if file.suffix in (".c", ".h") and lines > SOURCE_LINES_MAX:
        yield f"{path}: {lines} lines, at most {SOURCE_LINES_MAX}"
    if file.name == "main.c" and lines > MAIN_LINES_MAX:
        yield f"{path}: {lines} lines, at most {MAIN_LINES_MAX} in a program's main"
    for number, line in enumerate(text.splitlines(), 1):
        if UNFINISHED.search(line):
            yield f"{path}:{number}: unfinished work: {line.strip()}"
        if OUTSIDE.search(line):
            yield f"{path}:{number}: refers outside the repository: {line.strip()}"
        if line != line.rstrip() and file.suffix != ".md":
            yield f"{path}:{number}: blanks at the end"
    if file.suffix == ".py":
        yield from import_problems(path, text)
    if file.suffix == ".md":
        yield from link_problems(path, text)


def main():
    listed = subprocess.run(["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True, text=True)
    files = [path for path in listed.stdout.split("\0") if path and not path.startswith("tests/fuzz/corpus/")]
    problems = [problem for path in files for problem in problems_of(path)]
    for problem in problems:
        print(problem)
    print(f"tree: {len(files)} files, {len(problems)} problems")
    return 1 if problems or not files else 0


if __name__ == "__main__":
    sys.exit(main())
