import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
pytest.register_assert_rewrite("mesh_jobs")


@pytest.fixture
def text(tmp_path):
    """A file of text for jobs over meshes."""
    from mesh_jobs import write_text
    return write_text(tmp_path)


@pytest.fixture
def home(tmp_path):
    """trainctl's TRAIND_HOME: nothing that was started there may be left."""
    from trainctl_home import Home
    made = Home(tmp_path / "home")
    yield made
    made.run("down")
    assert not made.end(), "processes were left behind"


def pytest_collection_modifyitems(config, items):
    """Leaves out what only `make nightly` runs (NIGHTLY=1; nightly.txt), unless a test was asked for by name."""
    if any("::" in asked for asked in config.args):
        return
    folder = pathlib.Path(__file__).resolve().parent
    ours = {f"{item.path.name}::{item.name}": item for item in items if item.path.parent == folder}
    files = {item.path.name for item in ours.values()}
    named = [line for line in (folder / "nightly.txt").read_text().splitlines() if line.split("::")[0] in files]
    if missing := [name for name in named if name not in ours]:
        raise pytest.UsageError(f"nightly.txt: there is no {', '.join(missing)}")
    if not os.environ.get("NIGHTLY"):
        left_out = [ours[name] for name in named]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
