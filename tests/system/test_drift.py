"""Outer state that differs on one member (collectives/sync/parity.h): a bit flips in one tensor of one peer; all say which of whom, it is put right in
that round, nothing wrong reaches the others."""

import pytest

from harness import wait_for
from line_process import group_of
from test_sync import CASES, ELEMENTS, LAYERS, Nesterov, Peer, check_alike, farthest, inner, used_by

PARTS = ["outer parameters of", "outer momentum of", "outer counters"]
NAMES = ["first", "second", "third"]


@pytest.fixture
def group(tmp_path):
    with group_of(Peer, tmp_path) as start:
        yield start


def id_of(peer):
    return peer.said("joined")[0]["joined"]


def events_of(peers):
    """What they said of drift: the same words everywhere."""
    texts = [[line["event"] for line in peer.said("event")] for peer in peers]
    assert all(own == texts[0] for own in texts), texts
    return texts[0]


def run(group, size, mode, steps, spoilt, **options):
    """`spoilt`: the place in the order of starting of who is given the words in `options` that begin with "only_"."""
    only = {key[5:]: value for key, value in options.items() if key.startswith("only_")}
    options = {key: value for key, value in options.items() if not key.startswith("only_")}
    peers = [group(size, mode, steps, **options, **(only if place == spoilt else {})) for place in range(size)]
    for peer in peers:
        peer.end()
    check_alike(peers)
    return peers


# mode, its options, when the bit flips, in which tensor: at the last step before a merge; with an overlap also while the tensor is on its way, and nobody can have compared it yet.
FLIPS = [("local_sgd", dict(H=5), 10, 1), ("diloco", dict(H=8), 16, 2), ("hdet", dict(H=6), 12, 0), ("streaming", dict(H=9, P=3, tau=2), 15, 1),
         ("streaming", dict(H=9, P=3, tau=2), 13, 0), ("eager", dict(H=6, eta=0.5), 19, 1), ("eager", dict(H=6, eta=0.5), 13, 2)]


@pytest.mark.parametrize("mode,options,step,tensor,part",
                         [(*flip, part) for flip in FLIPS for part in (0, 1) if part == 0 or flip[0] not in ("local_sgd", "hdet")],
                         ids=lambda value: str(value) if isinstance(value, (str, int)) else "-")
def test_a_bit_that_flips_is_put_right(group, mode, options, step, tensor, part):
    """With two members too: who no longer holds what it wrote is wrong, whatever its place. (local SGD and HDET have no momentum.)"""
    for size, spoilt in ((3, 1), (2, 0), (2, 1)):
        peers = run(group, size, mode, 40, spoilt, name=f"{size}-{spoilt}", **options, only_flip=step, only_tensor=tensor, only_part=part)
        said = events_of(peers)
        assert len(said) == 1 and f"peer {id_of(peers[spoilt])} held other {PARTS[part]} {NAMES[tensor]} (put right by peer" in said[0], said
        assert ("does not count" in said[0]) == (part == 0), said
        if part == 1:  # nothing is lost
            assert farthest(peers[0].lines[-1]["outer"], CASES[mode][1](size, 40)[40]) < 2e-6


@pytest.mark.parametrize("step", [13, 16, 17])
def test_momentum_that_flips_with_carry(group, step):
    """Taken at step 16, merged at 19. What is spoilt by the take is not trained on from, and nothing is lost."""
    for size, spoilt in ((3, 1), (2, 0)):
        peers = run(group, size, "diloco", 40, spoilt, name=f"{size}-{spoilt}", H=8, tau=3, carry=1, only_flip=step, only_tensor=1, only_part=1)
        said = events_of(peers)
        assert len(said) == 1 and said[0].startswith("round 2: ") and f"{PARTS[1]} second (put right by peer" in said[0], said
        reference = CASES["late"][1](size, 40, blind=(index_of(peers[spoilt]), 16) if step <= 16 else None)
        assert farthest(peers[0].lines[-1]["outer"], reference[40]) < 2e-6


@pytest.mark.parametrize("part", [0, 1])
@pytest.mark.parametrize("step", range(13, 18))
def test_a_bit_that_flips_while_all_compare(group, step, part):
    """Taken at step 12, merged at 18: by `step` the round may be compared, or committed, or neither. It is put right in that round or in the next one, whose
    movement of who was wrong does not count, and nothing wrong reaches the others."""
    for size, spoilt in ((3, 1), (2, 0), (2, 1)):
        only = [dict(flip=step, tensor=1, part=part) if place == spoilt else {} for place in range(size)]
        peers = [group(size, "eager", 60, name=f"{size}-{spoilt}", H=6, eta=0.5, pause_us=300, **words) for words in only]
        for peer in peers:
            peer.end()
        said, = events_of(peers)
        assert f"peer {id_of(peers[spoilt])} held other" in said and f"{PARTS[part]} second (put right by peer" in said, said
        found = int(said.split()[1].rstrip(":"))
        assert found in (2, 3)
        check_alike(peers[:spoilt] + peers[spoilt + 1:])
        peers[spoilt].lines = [line for line in peers[spoilt].lines if line.get("round", found) >= found]
        check_alike(peers)


def diloco_without(size, steps, H, eta, mu, cycle, left_out):
    """DiLoCo in double precision in which one peer's movement of one cycle does not count."""
    elements = range(LAYERS * ELEMENTS)
    theta, optimizer = [0.0] * len(elements), Nesterov(eta, mu)
    for at, first in enumerate(range(0, steps, H)):
        counted = [m for m in range(size) if at != cycle or m != left_out]
        local = [list(theta) for _ in range(size)]
        for m in counted:
            for step in range(first + 1, min(first + H, steps) + 1):
                inner(local[m], m, step, elements)
        optimizer.step(theta, elements, {e: sum(theta[e] - local[m][e] for m in counted) / len(counted) for e in elements})
    return theta


def index_of(peer):
    return peer.said("started")[0]["index"]


@pytest.mark.parametrize("size", [2, 3])
def test_what_began_at_a_wrong_place_does_not_count(group, size):
    peers = run(group, size, "diloco", 40, 0, H=8, only_flip=16, only_tensor=1)
    reference = diloco_without(size, 40, 8, 0.7, 0.9, cycle=1, left_out=index_of(peers[0]))
    assert farthest(peers[0].lines[-1]["outer"], reference) < 2e-6
    assert [line["tokens"] for line in peers[0].merges()] == [8 * size, 8 * (size - 1), *[8 * size] * 3]


@pytest.mark.parametrize("mode,codec", [("diloco", 2), ("streaming", 3), ("diloco", 5), ("streaming", 5)])
@pytest.mark.parametrize("part", [0, 1])
def test_coded(group, mode, codec, part):
    """int8, int4, int2 with error feedback."""
    options = dict(H=6, P=3, tau=1) if mode == "streaming" else dict(H=6)
    peers = run(group, 3, mode, 48, 2, codec=codec, **options, only_flip=18, only_tensor=2, only_part=part)
    assert f"peer {id_of(peers[2])} held other {PARTS[part]} third" in events_of(peers)[0]


def test_counters(group):
    """The base of the learning rates: who trained with a wrong one does not count."""
    for mode, counts in (("hdet", False), ("diloco", True)):
        peers = run(group, 2, mode, 40, 0, name=mode, H=8, only_flip=15, only_part=2)
        said = events_of(peers)
        assert len(said) == 1 and f"peer {id_of(peers[0])} held other outer counters (put right" in said[0]
        assert ("does not count" not in said[0]) == counts


def test_all_are_wrong_somewhere(group):
    """Each of two in another tensor: nobody's movement counts, each gets its tensor from the other."""
    peers = [group(2, "diloco", 40, H=8, flip=16, tensor=tensor) for tensor in (0, 2)]
    for peer in peers:
        peer.end()
    check_alike(peers)
    said, = events_of(peers)
    for peer, other, name in ((peers[0], peers[1], "first"), (peers[1], peers[0], "third")):
        assert f"peer {id_of(peer)} held other outer parameters of {name} (put right by peer {id_of(other)}); its movement" in said
    assert peers[0].merges()[1]["tokens"] == 0


DEATHS_US = [1, 100, 300, 600, 1000, 2000]


@pytest.mark.parametrize("mode,options", [("diloco", dict(H=8)), ("streaming", dict(H=9, P=3, tau=2, codec=5)), ("eager", dict(H=8, eta=0.5))],
                         ids=["diloco", "streaming", "eager"])
def test_a_death_in_the_round_that_puts_it_right(group, mode, options):
    """Another one dies so soon after it came to the merge."""
    at, die = {"diloco": (16, 16), "streaming": (18, 20), "eager": (17, 18)}[mode]
    flip = dict(flip=at, tensor=2)
    for die_us in DEATHS_US:
        only = [flip, {}, dict(die=die, die_us=die_us)]
        peers = [group(3, mode, 40, name=str(die_us), pause_us=200, **options, **words) for words in only]
        for peer in peers[:2]:
            peer.end()
        peers[2].process.wait(timeout=60)
        check_alike(peers[:2])
        said = events_of(peers[:2])
        assert len(said) == 1 and f"peer {id_of(peers[0])} held other outer parameters of third" in said[0], (die_us, said)


def test_a_joiner_of_a_spoilt_donor(group):
    """One of two holds a wrong tensor when two more come; whoever gave them what they hold, in the end all hold the right one."""
    options = dict(H=60, P=3, tau=2, pause_us=4000)
    peers = [group(2, "streaming", 600, **options, **words) for words in (dict(flip=63, tensor=2), {})]
    wait_for(lambda: peers[0].merges(), "a merge")
    joiners = [group(2, "streaming", 600, **options) for _ in range(2)]
    everybody = [*peers, *joiners]
    for peer in everybody:
        peer.end()
    said, = events_of(peers)
    assert f"peer {id_of(peers[0])} held other outer parameters of third" in said and f"peer {id_of(peers[1])} held" not in said
    found = int(said.split()[1].rstrip(":"))  # until then the wrong tensor is of another fragment
    for peer in everybody:
        peer.lines = [line for line in peer.lines if line.get("round", found) >= found]
    check_alike(everybody)


# Taken at the step after which it flips, or later, with what was done meanwhile.
UNSOUND = [("local_sgd", dict(H=5), 10), ("diloco", dict(H=8), 14), ("diloco", dict(H=8, tau=3), 21), ("diloco", dict(H=6, codec=5), 18), ("hdet", dict(H=6), 12),
           ("streaming", dict(H=9, P=3, tau=2), 13), ("streaming", dict(H=9, P=3, tau=2, carry=1), 13), ("eager", dict(H=6, eta=0.5), 13), ("eager", dict(H=6, eta=0.5), 18)]


@pytest.mark.parametrize("mode,options,step", UNSOUND, ids=lambda value: str(value) if isinstance(value, (str, int)) else "-".join(value))
def test_own_parameters_that_are_not_finite(group, mode, options, step):
    """A bit of a peer's own parameters flips, so that they are of the size of 1e38, and what it steps to from there NaN. Nobody gets any of it; the peer goes on from the outer parameters, and says so itself, once."""
    size, steps = 3, 60
    peers = run(group, size, mode, steps, 1, batch=12, **options, only_flip=step, only_tensor=0, only_part=3)
    said = [[line["event"] for line in peer.said("event")] for peer in peers]
    assert said[0] == said[2] == [] and len(said[1]) == 1, said
    assert f"peer {id_of(peers[1])}'s own parameters of first are not finite; its movement does not count" in said[1][0]
    assert max(abs(w) for w in peers[0].lines[-1]["outer"]) < 4  # as the targets are
    used, account = used_by(peers), peers[0].said("account")[0]
    dropped = [n for first, end, count in account["dropped"] for n in range(first, end)]
    assert len(dropped) > 0 and set(dropped) <= {n for line in peers[1].said("used") for n in line["used"]}
    assert len(used) == len(set(used)) == account["counted"] + len(dropped) == 12 * steps


@pytest.mark.parametrize("size", [2, 3])
def test_who_is_not_finite_is_left_out_of_the_mean(group, size):
    peers = run(group, size, "diloco", 40, 0, H=8, only_flip=14, only_tensor=1, only_part=3)
    reference = diloco_without(size, 40, 8, 0.7, 0.9, cycle=1, left_out=index_of(peers[0]))
    assert farthest(peers[0].lines[-1]["outer"], reference) < 2e-6
    assert [line["tokens"] for line in peers[0].merges()] == [8 * size, 8 * (size - 1), *[8 * size] * 3]


# In flight too, where what was learned since the take goes with what was given.
THROWN = [("diloco", dict(H=8), 16), ("diloco", dict(H=8, tau=3), 17), ("streaming", dict(H=9, P=1, tau=4), 19),
          ("streaming", dict(H=9, P=3, tau=2), 13), ("eager", dict(H=6, eta=0.5), 13), ("eager", dict(H=6, eta=0.5), 37)]


@pytest.mark.parametrize("mode,options,step", THROWN, ids=lambda value: str(value) if isinstance(value, (str, int)) else "-".join(value))
def test_samples_of_what_is_thrown_away(group, mode, options, step):
    """Each sample that was used is counted, and then something of it is in a movement that counts, or dropped, and then nothing is."""
    size, steps = 3, 60
    peers = run(group, size, mode, steps, 1, batch=12, **options, only_flip=step, only_tensor=0, only_part=0)
    assert "does not count" in events_of(peers)[0]
    used, account = used_by(peers), peers[0].said("account")[0]
    assert all(peer.said("account")[0] == account for peer in peers)
    dropped = [n for first, end, count in account["dropped"] for n in range(first, end)]
    assert len(dropped) == sum(count for _, _, count in account["dropped"]) > 0
    assert len(used) == len(set(used)) == account["counted"] + len(dropped) == 12 * steps
    assert set(dropped) <= {n for line in peers[1].said("used") for n in line["used"]}
    assert account["account"] == account["counted"] + len(dropped) + account["held"] + account["free"]
    given = [line["tokens"] for line in peers[0].merges()]
    if options.get("P", 1) == 1:
        unsaid = peers[0].merges()[-1]["round"] - len(given)  # eager: the last call merges twice
        assert sum(given) + unsaid * 12 * options["H"] == account["counted"]
    else:  # merged at step 14; a fragment has the work of 9 steps, its own since then
        assert given[3:8] == [2 * 36, *(2 * 36 + 4 * own for own in (1, 4, 7)), 3 * 36]
