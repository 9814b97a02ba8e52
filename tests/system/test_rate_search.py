"""HDET's search for the learning rate (collectives/sync/search.h): two races from the beginning, against a reference in double precision that knows of the members only at which rates they
said they trained; and members that die and come in the middle of it."""
import math
import signal

import numpy
import pytest

from harness import wait_for
from line_process import group_of
from mesh_jobs import rows_of, staged_spec, train, write_text
from test_sync import ELEMENTS, LAYERS, RATE, Peer, check_alike, farthest, target

COUNT = LAYERS * ELEMENTS


@pytest.fixture
def group(tmp_path):
    with group_of(Peer, tmp_path) as start:
        yield start


def loss_on(w, batch):
    return sum((w[e] - target(0, batch, e)) ** 2 for e in range(COUNT)) / 2 / COUNT


def lowest_rate(race, told):
    """told: (scale, loss) of each, evenly spaced in the logarithm. Where the parabola of least squares is lowest, by quarters of a spacing: through the best one and its neighbours in
    the first race, through all in the second."""
    told = sorted(told)
    at = min(range(len(told)), key=lambda i: told[i][1])
    if race == 1:
        told, at = (told[at - 1:at + 2], 1) if 0 < at < len(told) - 1 else (told[at:at + 1], 0)
    if len(told) < 3:
        return told[at][0]
    curvature, slope, _ = numpy.polyfit(range(len(told)), [loss for _, loss in told], 2)
    if curvature <= 0:
        return told[at][0]
    lowest = min(len(told) - 0.5, max(-0.5, -slope / 2 / curvature))
    return told[0][0] * (told[1][0] / told[0][0]) ** (round(4 * lowest) / 4)


def races(scales, steps, H):
    """scales(m, r): at which scale peer m trained in round r. What the base is after each round, who won, the outer parameters, where training began anew and when the last winner gave its own."""
    size, theta, base = len(scales), [0.0] * COUNT, 1.0
    race, judged, winner, origin, highest = 1, False, None, 0, 0.0
    local, bases, winners = [list(theta) for _ in scales], [], []
    for r in range(1, steps // H + 1):
        for m in range(size):
            for step in range((r - 1) * H + 1, r * H + 1):
                local[m] = [w - (w - target(m, step, e)) * RATE * scales[m][r - 1] for e, w in enumerate(local[m])]
        step = r * H
        if not race:
            theta = [sum(w[e] for w in local) / size for e in range(COUNT)]
            local = [list(theta) for _ in scales]
        elif winner is not None:
            theta, race, winner, given = list(local[winner]), 0, None, step
            local = [list(theta) for _ in scales]
        elif judged:
            losses = [loss_on(local[m], r) for m in range(size)]
            best = losses.index(min(losses))
            base, judged = lowest_rate(race, [(scales[m][r - 1], losses[m]) for m in range(size)]), False
            winners.append(best)
            highest = max([highest, *(scales[m][r - 1] for m in range(size) if losses[m] <= 1.1 * losses[best])])
            if race == 1 and size > 1:
                race, origin = 2, step
                local = [list(theta) for _ in scales]
            else:
                winner, base = best, min(base * size, highest)
        else:
            judged = step - origin >= math.ceil(0.03 * steps)
        bases.append(base)
    return theta, bases, winners, origin, given


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_what_it_finds(group, size):
    """The rates of a race are the middles of cells of the whole span, and everything else is as the reference has it."""
    steps, H = 480, 4
    peers = [group(size, "hdet", steps, H=H, lr_search=1) for _ in range(size)]
    for peer in peers:
        peer.end()
    check_alike(peers)
    peers.sort(key=lambda peer: peer.said("started")[0]["index"])
    scales = [[line["lr_scale"] for line in peer.said("started") + peer.merges()] for peer in peers]
    theta, bases, winners, origin, given = races(scales, steps, H)
    if size > 1:
        assert sorted(scales[m][0] for m in range(size)) == pytest.approx([16 ** ((2 * k + 1) / size - 1) for k in range(size)])
        of_second = sorted(scales[m][origin // H] for m in range(size))
        assert of_second == pytest.approx([bases[origin // H - 1] * 4 ** ((2 * k + 1) / size - 1) for k in range(size)], rel=1e-3)
    said = [line["lr_base"] for line in peers[0].merges()]
    assert said == pytest.approx(bases, rel=1e-3)
    assert farthest(peers[0].lines[-1]["outer"], theta) < 2e-5
    assert [line["origin"] for line in peers[0].merges()][-1] == origin and (origin > 0) == (size > 1)
    # What follows began anew with the second race, was its winner's at its end, and then each one's own.
    follows = [peer.said("follows")[0]["follows"] for peer in peers]
    assert follows == [(1 + winners[-1]) * (given - origin) + (1 + m) * (steps - given) for m in range(size)]
    events = [[line["event"] for line in peer.said("event")] for peer in peers]
    ids = [peer.said("joined")[0]["joined"] for peer in peers]
    assert all(own == events[0] for own in events)
    assert [event.split()[7] for event in events[0] if "race" in event] == [str(ids[m]) for m in winners] and len(winners) == min(size, 2)


def test_a_short_job_has_no_races(group):
    peers = [group(2, "hdet", 47 * 4, H=4, lr_search=1) for _ in range(2)]
    for peer in peers:
        peer.end()
    check_alike(peers)
    assert not any("race" in line["event"] for line in peers[0].said("event"))
    assert sorted(peer.said("started")[0]["lr_scale"] for peer in peers) == pytest.approx([1 - 1 / 9, 1 + 1 / 9])


@pytest.mark.parametrize("merges", [1, 3, 5, 8, 20])
def test_who_dies_and_who_comes_in_it(group, merges):
    """In either race, between them and after them: those who are there at the end agree on every merge, and races have ended."""
    options = dict(H=4, lr_search=1, pause_us=2000)
    peers = [group(4, "hdet", 480, **options) for _ in range(4)]
    wait_for(lambda: len(peers[0].merges()) >= merges, "some merges")
    peers[3].process.send_signal(signal.SIGKILL)
    joiner = group(4, "hdet", 480, **options)
    members = [*peers[:3], joiner]
    for peer in members:
        peer.end()
    check_alike(members)
    assert sum("race" in line["event"] for line in peers[0].said("event")) == 2
    assert joiner.merges()[-1]["contributors"] == 4


def kill_the_second_winner(group, name):
    """As soon as it is known: it was to give its parameters in the next merge, four steps later. Those who are left, at their end, and how many merges there were by then."""
    peers = [group(3, "hdet", 480, name, H=4, lr_search=1, pause_us=20000) for _ in range(3)]
    by_id = {peer.said("joined")[0]["joined"]: peer for peer in peers if wait_for(lambda: peer.said("joined"), "its id") or True}
    wait_for(lambda: len(peers[0].said("event")) == 2, "the second race's winner")
    said = peers[0].said("event")[1]
    winner = by_id[int(said["event"].split()[7])]
    winner.process.send_signal(signal.SIGKILL)
    left = [peer for peer in peers if peer is not winner]
    for peer in left:
        peer.end()
    check_alike(left)
    before = peers[0].lines[:peers[0].lines.index(said)]
    return left, sum("round" in line for line in before) + 1  # a merge's event is said before it


def test_a_winner_that_dies_before_it_has_given_its_parameters(group):
    """What was learned in the race is lost; what the others' optimizers know with it: they begin anew, at the rate that was found."""
    for attempt in range(5):  # on a busy machine it may have given them by the time it is killed
        left, merges = kill_the_second_winner(group, f"g{attempt}")
        named = left[0].merges()
        if named[merges]["contributors"] == 2:
            break
    assert named[merges]["tokens"] == 0 and named[merges]["contributors"] == 2  # nobody's movement was taken
    origin = named[-1]["origin"]
    assert origin == named[merges]["step"] and named[merges - 1]["origin"] < origin and named[-1]["lr_base"] == named[merges - 1]["lr_base"]
    assert sorted(peer.said("follows")[0]["follows"] for peer in left) == [480 - origin, 2 * (480 - origin)]  # each its own since then


@pytest.mark.parametrize("mode,options,words", [("diloco", dict(), "sync.lr_search: found 1, allowed: 0 (false) unless the mode is hdet"),
                                                ("hdet", dict(temperature=0.1), "sync.lr_temperature: found 0.1, allowed: nothing beside lr_search"),
                                                ("hdet", dict(mu=0.5), "sync.outer_momentum: found 0.5, allowed: 0 beside lr_search")])
def test_options_that_cannot_be(group, mode, options, words):
    peer = group(1, mode, 400, H=4, lr_search=1, **options)
    peer.process.wait(timeout=60)
    wait_for(lambda: peer.said("error"), "its last word")
    assert words in peer.said("error")[0]["text"]


def test_a_job_trains_anew_in_each_race(tmp_path):
    """Its schedule, with a warm-up of ten steps, begins with the second race and ends with the job; what the base became times it is the rate. While there are races nothing is saved."""
    spec = staged_spec(write_text(tmp_path), tmp_path / "run", 1, 1, nodes=2, workers=1, steps=200)
    optimizer, sync = spec.train.optimizer, spec.train.sync
    optimizer.warmup, optimizer.min_lr, spec.train.checkpoint.every = 10, 1e-4, 2
    sync.mode, sync.inner_steps, sync.lr_search = "hdet", 2, True
    _, events = train(tmp_path / "cluster", spec, 2)
    assert events.count("learning rate, race") == 2, events
    rows = rows_of(tmp_path / "run")
    origin = max(step for step, row in rows.items() if row["lr"] == 0)  # the merge with which the second race began
    assert 20 <= origin < 28  # a tenth of the steps; one merge to tell, one to hear of it
    raced = next(step for step in sorted(rows) if step >= origin + 24)

    def schedule(step):
        at, steps = step - origin, 200 - origin
        return at / 10 if at <= 10 else 0.1 + 0.9 * (1 + math.cos(math.pi * (at - 10) / (steps - 10))) / 2
    bases = {round(rows[step]["lr"] / optimizer.lr / schedule(step), 6) for step in rows if step > raced}
    assert len(bases) == 1, bases
    assert rows[200]["lr"] == pytest.approx(1e-4 * bases.pop(), rel=1e-5)
    saved = [int(path.name.split("-")[-1]) for path in (tmp_path / "run").iterdir() if path.is_dir() and path.name.split("-")[-1].isdigit()]
    assert saved and min(saved) > origin
