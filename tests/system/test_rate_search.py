"""HDET's search for the learning rate (collectives/sync/search.h): races, then losses along the way of the outer parameters, against a reference in double
precision that knows of the members only at which rates they said they trained; and members that die and come in the middle of it."""
import math
import signal

import pytest

from harness import wait_for
from line_process import group_of
from test_sync import ELEMENTS, LAYERS, RATE, Peer, check_alike, farthest, target

COUNT = LAYERS * ELEMENTS


@pytest.fixture
def group(tmp_path):
    with group_of(Peer, tmp_path) as start:
        yield start


def loss_on(w, batch):
    return sum((w[e] - target(0, batch, e)) ** 2 for e in range(COUNT)) / 2 / COUNT


def races_and_line(scales, steps, H):
    """scales(m, r): at which scale peer m trained in round r. What the base is after each round, who won, and the outer parameters."""
    size, theta, base = len(scales), [0.0] * COUNT, 1.0
    race, judged, winner, ends = 1, False, None, (0.03, 0.05)
    local, bases, winners = [list(theta) for _ in scales], [], []
    anchor = anchored = due = probed = told = None

    def window(step):
        return step + max(2 * H, math.floor(max(1, min(math.ceil(0.4 * step), 0.3 * (steps - step)))))
    for r in range(1, steps // H + 1):
        for m in range(size):
            for step in range((r - 1) * H + 1, r * H + 1):
                local[m] = [w - (w - target(m, step, e)) * RATE * scales[m][r - 1] for e, w in enumerate(local[m])]
        step = r * H
        if race:
            if winner is not None:
                theta, race, judged, winner = list(local[winner]), race + 1 if race < 2 else 0, False, None
                local = [list(theta) for _ in scales]
                if not race:
                    anchor, anchored, due, probed = list(theta), step, window(step), None
            elif judged:
                losses = [loss_on(local[m], r * 512 + 511) for m in range(size)]
                winner = losses.index(min(losses))
                base, judged = scales[winner][r - 1], False
                winners.append(winner)
            else:
                judged = step >= ends[race - 1] * steps
        else:
            theta = [sum(w[e] for w in local) / size for e in range(COUNT)]
            local = [list(theta) for _ in scales]
            if probed is not None:
                low, here, high = told
                slope, curvature = (high - low) / 0.6, (high + low - 2 * here) / 0.09
                c = min(2, max(0.5, 1 - slope / curvature)) if curvature > 0 else 2 if slope < 0 else 0.5
                base = min(64, max(1 / 64, base * (c * c if c > 1 else c)))
                anchored, due, probed = probed, window(probed), None
            if step >= due:
                probed = step
                told = [sum(loss_on([a + c * (t - a) for a, t in zip(anchor, theta)], (r + 1) * 512 + m) for m in range(size)) for c in (0.7, 1, 1.3)]
                anchor = list(theta)
        bases.append(base)
    return theta, bases, winners


@pytest.mark.parametrize("size", [1, 2, 3])
def test_what_it_finds(group, size):
    """The rates of a race are spread over the whole span, and everything else is as the reference has it."""
    steps, H = 480, 4
    peers = [group(size, "hdet", steps, H=H, lr_search=1) for _ in range(size)]
    for peer in peers:
        peer.end()
    check_alike(peers)
    peers.sort(key=lambda peer: peer.said("started")[0]["index"])
    scales = [[line["lr_scale"] for line in peer.said("started") + peer.merges()] for peer in peers]
    if size > 1:
        assert sorted(scales[m][0] for m in range(size)) == pytest.approx([27 ** (k / (size - 1) - 1) for k in range(size)])
    theta, bases, winners = races_and_line(scales, steps, H)
    said = [line["lr_base"] for line in peers[0].merges()]
    assert said == pytest.approx(bases, rel=1e-3)
    assert farthest(peers[0].lines[-1]["outer"], theta) < 2e-5
    assert [peer.said("follows")[0]["follows"] for peer in peers] == [1 + winners[0]] * size
    events = [[line["event"] for line in peer.said("event")] for peer in peers]
    ids = [peer.said("joined")[0]["joined"] for peer in peers]
    assert all(own == events[0] for own in events)
    assert [event.split()[7] for event in events[0] if "race" in event] == [str(ids[m]) for m in winners] and len(winners) == 2


def test_a_short_job_has_no_races(group):
    peers = [group(2, "hdet", 47 * 4, H=4, lr_search=1) for _ in range(2)]
    for peer in peers:
        peer.end()
    check_alike(peers)
    assert not any("race" in line["event"] for line in peers[0].said("event"))
    assert sorted(peer.said("started")[0]["lr_scale"] for peer in peers) == pytest.approx([1 - 1 / 9, 1 + 1 / 9])


@pytest.mark.parametrize("merges", [1, 3, 5, 8, 20])
def test_who_dies_and_who_comes_in_it(group, merges):
    """In either race, between them and on the line: those who are there at the end agree on every merge, and races have ended."""
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


def test_a_winner_that_dies_before_it_has_given_its_parameters(group):
    """That race is lost; what the others' optimizers know is not: at the end it is the second race's winner's, and not void."""
    options = dict(H=4, lr_search=1, pause_us=20000)
    peers = [group(3, "hdet", 480, **options) for _ in range(3)]
    by_id = {peer.said("joined")[0]["joined"]: peer for peer in peers if wait_for(lambda: peer.said("joined"), "its id") or True}
    wait_for(lambda: peers[0].said("event"), "the first race's winner")
    winner = by_id[int(peers[0].said("event")[0]["event"].split()[7])]
    merges = len(winner.merges())
    winner.process.send_signal(signal.SIGKILL)
    left = [peer for peer in peers if peer is not winner]
    for peer in left:
        peer.end()
    check_alike(left)
    named = left[0].merges()
    assert named[merges]["tokens"] == 0 and named[merges]["contributors"] == 2  # nobody's movement was taken
    follows = {peer.said("follows")[0]["follows"] for peer in left}
    assert len(follows) == 1 and follows <= {1, 2, 3}


@pytest.mark.parametrize("mode,options,words", [("diloco", dict(), "sync.lr_search: found 1, allowed: 0 (false) unless the mode is hdet"),
                                                ("hdet", dict(temperature=0.1), "sync.lr_temperature: found 0.1, allowed: nothing beside lr_search"),
                                                ("hdet", dict(mu=0.5), "sync.outer_momentum: found 0.5, allowed: 0 beside lr_search")])
def test_options_that_cannot_be(group, mode, options, words):
    peer = group(1, mode, 400, H=4, lr_search=1, **options)
    peer.process.wait(timeout=60)
    wait_for(lambda: peer.said("error"), "its last word")
    assert words in peer.said("error")[0]["text"]
