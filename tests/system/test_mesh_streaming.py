"""Replicas of several workers that train on while a fragment is merged (mesh.tp, mesh.pp with sync.mode streaming, eager, or an overlap): what they learn is what workers that hold the whole model
learn with the same settings, whoever dies."""
import os
import signal

import numpy
import pytest

from harness import Cluster, wait_for
from mesh_jobs import STEPS, active, parameters, reach, rows_of, train, write_text
from test_mesh_sync import apart_spec, check_samples

# Takes and merges of 20 steps, the last ones at once: streaming 2, 4, 6 and 4, 6, 8; carried 2, 4 and 3, 5; eager 4 and 8; late diloco 5 and 8.
HOW = {
    "streaming": dict(mode="streaming", inner_steps=6, fragments=3, overlap=2),
    "carried": dict(mode="streaming", inner_steps=4, fragments=2, overlap=1, carry=True),
    "eager": dict(mode="eager", inner_steps=4),
    "late": dict(mode="diloco", inner_steps=5, overlap=3, codec="int2"),
}


def stream_spec(text, folder, how, pp, tp, **options):
    spec = apart_spec(text, folder, 2, pp, tp, inner=HOW[how]["inner_steps"], **options)
    for key, value in HOW[how].items():
        setattr(spec.train.sync, key, value)
    return spec


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The text, and what two workers that hold the whole model learn of it, as asked for."""
    folder, known = tmp_path_factory.mktemp("whole"), {}
    text = write_text(folder)

    def learned(how):
        if how not in known:
            known[how] = folder / how
            train(folder / f"{how}-cluster", stream_spec(text, known[how], how, 1, 1), 2)
        return text, known[how]

    return learned


def assert_same(one, other, numbers=1e-5):
    left, right = parameters(one), parameters(other)
    assert left.keys() == right.keys()
    for name in left:
        assert numpy.abs(left[name] - right[name]).max() < numbers, name
    ours, theirs = rows_of(one), rows_of(other)
    assert sorted(ours) == sorted(theirs) and max(ours) == STEPS and len(ours) > 2
    for step in ours:
        assert theirs[step]["loss"] == pytest.approx(ours[step]["loss"], abs=1e-5), step


@pytest.mark.parametrize("how,pp,tp", [("streaming", 1, 2), ("streaming", 2, 1), ("streaming", 2, 2), ("carried", 1, 2), ("carried", 2, 1),
                                       ("eager", 1, 2), ("eager", 2, 1)])
def test_replicas_of_several_workers_learn_what_single_workers_do(tmp_path, whole, how, pp, tp):
    text, one = whole(how)
    _, events = train(tmp_path / "cluster", stream_spec(text, tmp_path / "run", how, pp, tp), 2, slots=pp * tp)
    assert "other numbers" not in events, events
    assert_same(one, tmp_path / "run")
