import sys
import pathlib

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
pytest.register_assert_rewrite("mesh_jobs")


@pytest.fixture
def text(tmp_path):
    """A file of text for jobs over meshes."""
    from mesh_jobs import write_text
    return write_text(tmp_path)
