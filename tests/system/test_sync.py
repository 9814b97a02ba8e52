"""Low-communication training (collectives/sync.h) among processes: the outer parameters are what the papers' equations give in double
precision, bit-identical on all peers, whoever dies or comes."""
import math
import signal

import pytest

from harness import wait_for
from line_process import LineProcess, group_of
from stubs import BUILD

LAYERS, ELEMENTS, RATE = 3, 50, 1 / 8


class Peer(LineProcess):
    def __init__(self, cluster, size, mode, steps, name="g", **options):
        words = [f"{key}={value}" for key, value in options.items()]
        super().__init__([BUILD / "tests" / "sync_peer", cluster.memberd.address, name, size, mode, steps, *words],
                         cluster.environment)

    def merges(self):
        return self.said("round")


@pytest.fixture
def group(tmp_path):
    with group_of(Peer, tmp_path) as start:
        yield start


# ---- the papers, in double precision: {step of a merge: the outer parameters after it}; in the last step's call, where several may be merged, after all of them ----

def target(index, step, element):
    x = index * 7919 + step * 104729 + element * 1299709
    return (x % 129) / 64 - 1 + (element % 7) / 4


def inner(w, index, step, elements):
    for e in elements:
        w[e] -= (w[e] - target(index, step, e)) * RATE


class Nesterov:
    """torch.optim.SGD(nesterov=True)"""

    def __init__(self, eta, mu):
        self.eta, self.mu, self.v = eta, mu, {}

    def step(self, theta, elements, d):
        for e in elements:
            self.v[e] = self.mu * self.v.get(e, 0.0) + d[e]
            theta[e] -= self.eta * (d[e] + self.mu * self.v[e])

    def foreseen(self, theta, e, d):
        """What step() would make of it."""
        return theta[e] - self.eta * (d + self.mu * (self.mu * self.v.get(e, 0.0) + d))


def fragments_of(count):
    return [[e for e in range(LAYERS * ELEMENTS) if e // ELEMENTS % count == f] for f in range(count)]


EXPONENTS = {False: 0, "root": 0.5, "tokens": 1}


def weights_of(peers, uneven):
    """Of peers of index m with 1 + m tokens a step, if uneven: "root" of them, or all "tokens"."""
    weights = [(1 + m) ** EXPONENTS[uneven] for m in range(peers)]
    return [w / sum(weights) for w in weights]


def diloco(peers, steps, H, eta, mu, P=1, tau=0, alpha=0.0, carry=False, uneven=False, blind=None, start=0.0):
    """DiLoCo (2311.08105, algorithm 1); with fragments, tau and alpha Streaming DiLoCo (2501.18512, algorithm 2); with carry each goes on from
    where its own movement alone would bring it, and the steps since the take are carried over (delayed averaging, 2006.00441); but for `blind`, a peer
    and the step of a take, which goes on from where it is."""
    weights, parts = weights_of(peers, uneven), fragments_of(P)
    theta, optimizer = [start] * (LAYERS * ELEMENTS), Nesterov(eta, mu)
    local = [list(theta) for _ in range(peers)]
    takes = {k * H + (f + 1) * H // P: f for k in range(steps // H + 1) for f in range(P)}
    flying, after = {}, {}

    def take(f):
        moved = [{e: theta[e] - w[e] for e in parts[f]} for w in local]
        for m, w in enumerate(local):
            for e in parts[f]:
                w[e] = optimizer.foreseen(theta, e, moved[m][e]) if carry and blind != (m, step) else w[e]
        base = [{e: w[e] for e in parts[f]} for w in local]
        return f, base, {e: sum(w * moved[m][e] for m, w in enumerate(weights)) for e in parts[f]}

    def merge(f, base, d):
        optimizer.step(theta, parts[f], d)
        for w, was in zip(local, base):
            for e in parts[f]:
                w[e] = theta[e] + w[e] - was[e] if carry else alpha * w[e] + (1 - alpha) * theta[e]
    for step in range(1, steps + 1):
        for m in range(peers):
            inner(local[m], m, step, range(LAYERS * ELEMENTS))
        if step < steps and step in takes:
            flying[min(step + tau, steps)] = take(takes[step])
        if step in flying:
            merge(*flying.pop(step))
            after[step] = list(theta)
    last = [f for at, f in takes.items() if at < steps]
    for i in range(P):
        merge(*take((last[-1] + 1 + i) % P if last else i))
    after[steps] = list(theta)
    return after


def eager(peers, steps, H, eta, mu, uneven=False):
    """Eager updates (2502.12996): each peer takes its outer step with the mean of the round before, in which its own old share is replaced by
    its new one. Evaluated are the outer parameters that the means alone give."""
    weights = weights_of(peers, uneven)
    count = LAYERS * ELEMENTS
    outer, outer_optimizer = [0.0] * count, Nesterov(eta, mu)
    own = [[0.0] * count for _ in range(peers)]
    optimizers = [Nesterov(eta, mu) for _ in range(peers)]
    before, mean = [[0.0] * count for _ in range(peers)], None
    share = [1 / peers] * peers  # the first period knows no weights
    local, after = [list(w) for w in own], {}
    for step in range(1, steps + 1):
        for m in range(peers):
            inner(local[m], m, step, range(count))
        if step % H == 0 and step < steps:
            if mean is not None:
                outer_optimizer.step(outer, range(count), mean)
                after[step] = list(outer)
                share = weights
            d = [[own[m][e] - local[m][e] for e in range(count)] for m in range(peers)]
            for m in range(peers):
                newest = [(mean[e] if mean else 0.0) + share[m] * (d[m][e] - before[m][e]) for e in range(count)]
                optimizers[m].step(own[m], range(count), newest)
                local[m] = list(own[m])
            mean = [sum(w * d[m][e] for m, w in enumerate(weights)) for e in range(count)]
            before = d
    outer_optimizer.step(outer, range(count), mean)
    outer_optimizer.step(outer, range(count),
                         [sum(w * (own[m][e] - local[m][e]) for m, w in enumerate(weights)) for e in range(count)])
    after[steps] = list(outer)
    return after


def hdet(order, peers, steps, H, spread, temperature, uneven=False):
    """HDET (2604.24708): averages of peers that trained with different learning rates, and a base rate drawn to those that learned best.
    order(m, cycle): place of peer m's rate in the spread, which the program draws. Also the bases after each cycle."""
    weights, count = weights_of(peers, uneven), LAYERS * ELEMENTS
    theta, base, v, bases, after = [0.0] * count, 1.0, 0.0, [], {}
    cycles = [(first, min(first + H, steps)) for first in range(0, steps, H)]
    for cycle, (first, last) in enumerate(cycles):
        half = (peers - 1) / 2
        rates = [base * (1 + spread * (order(m, cycle) - half) / max(half, 0.5)) for m in range(peers)]
        local, losses = [list(theta) for _ in range(peers)], [0.0] * peers
        for m in range(peers):
            for step in range(first + 1, last + 1):
                off = [local[m][e] - target(m, step, e) for e in range(count)]
                losses[m] += sum(x * x for x in off) / 2 / count / (last - first)
                local[m] = [w - x * RATE * rates[m] for w, x in zip(local[m], off)]
        theta = after[last] = [sum(w * local[m][e] for m, w in enumerate(weights)) for e in range(count)]
        mean = sum(losses) / peers
        scores = [math.exp((mean - loss) / temperature) for loss in losses]
        delta = sum(x * rate for x, rate in zip(scores, rates)) / sum(scores) - sum(rates) / peers
        v = 0.9 * v + 0.1 * delta
        base += 0.5 * v
        bases.append(base)
    return after, bases


def at_own_pace(cycles, eta, mu, uneven=False):
    """DiLoCo with peers that take different numbers of steps, cycles[c][m]: each is weighed by the root of its tokens a step, or all its tokens; all count on
    from the furthest."""
    peers, count = len(cycles[0]), LAYERS * ELEMENTS
    theta, optimizer, first, after = [0.0] * count, Nesterov(eta, mu), 0, {}
    for steps in cycles:
        local = [list(theta) for _ in range(peers)]
        weights = [(n if uneven == "tokens" else n > 0) * (1 + m) ** EXPONENTS[uneven] for m, n in enumerate(steps)]
        for m, n in enumerate(steps):
            for step in range(first + 1, first + n + 1):
                inner(local[m], m, step, range(count))
        optimizer.step(theta, range(count),
                       {e: sum(w / sum(weights) * (theta[e] - local[m][e]) for m, w in enumerate(weights)) for e in range(count)})
        first += max(steps)
        after[first] = list(theta)
    return after


def farthest(outer, reference):
    size = max(abs(x) for x in reference)
    assert size > 0.1
    return max(abs(a - b) for a, b in zip(outer, reference)) / size


def check_each_merge(peers, after):
    """Of each of them; they were started with outer=1. Nothing but rounding in single precision is between them and the reference."""
    for peer in peers:
        assert [line["step"] for line in peer.merges()] == list(after)
        off = {line["step"]: farthest(line["outer"], after[line["step"]]) for line in peer.merges()}
        assert max(off.values()) < 2e-6, off
        assert peer.lines[-1]["outer"] == peer.merges()[-1]["outer"]


def check_alike(peers):
    """The outer parameters' bits, round by round."""
    seen = {}
    for peer in peers:
        for line in peer.merges():
            seen.setdefault(line["round"], set()).add((line["digest"], line["tokens"], line["step"], line["lr_base"]))
    assert seen and all(len(kinds) == 1 for kinds in seen.values()), seen
    assert len({line["digest"] for peer in peers for line in peer.said("done")}) == 1
    return seen


MODES = {"carry": "streaming", "late": "diloco"}  # of cases that are named otherwise
CASES = {
    "local_sgd": (dict(H=5), lambda n, steps, **o: diloco(n, steps, H=5, eta=1.0, mu=0.0, **o)),
    "diloco": (dict(H=8), lambda n, steps, **o: diloco(n, steps, H=8, eta=0.7, mu=0.9, **o)),
    "streaming": (dict(H=9, P=3, tau=2), lambda n, steps, **o: diloco(n, steps, H=9, eta=0.4, mu=0.9, P=3, tau=2, alpha=0.5, **o)),
    "carry": (dict(H=9, P=3, tau=3, carry=1), lambda n, steps, **o: diloco(n, steps, H=9, eta=0.4, mu=0.9, P=3, tau=3, carry=True, **o)),
    "late": (dict(H=8, tau=3, carry=1), lambda n, steps, **o: diloco(n, steps, H=8, eta=0.7, mu=0.9, tau=3, carry=True, **o)),
    "eager": (dict(H=6, eta=0.5), lambda n, steps, **o: eager(n, steps, H=6, eta=0.5, mu=0.9, **o)),
}


@pytest.mark.parametrize("uneven", EXPONENTS)
@pytest.mark.parametrize("mode", CASES)
def test_outer_parameters_are_the_papers(group, mode, uneven):
    options, reference = CASES[mode]
    steps = 40
    peers = [group(3, MODES.get(mode, mode), steps, uneven=int(bool(uneven)), weights=int(uneven == "tokens"), outer=1, **options)
             for _ in range(3)]
    for peer in peers:
        peer.end()
    check_alike(peers)
    check_each_merge(peers, reference(3, steps, uneven=uneven))


@pytest.mark.parametrize("uneven", EXPONENTS)
def test_hdet_is_the_papers(group, uneven):
    """Rates are the spread, each once a cycle and not always the same peer's; parameters and base rate are the paper's."""
    size, steps, settings = 3, 40, dict(H=6, spread=0.3, temperature=0.05)
    peers = [group(size, "hdet", steps, uneven=int(bool(uneven)), weights=int(uneven == "tokens"), outer=1, **settings) for _ in range(size)]
    for peer in peers:
        peer.end()
    check_alike(peers)
    peers.sort(key=lambda peer: peer.said("started")[0]["index"])
    scales = [[line["lr_scale"] for line in peer.said("started") + peer.merges()] for peer in peers]

    def order(m, cycle):
        return sorted(scales[n][cycle] for n in range(size)).index(scales[m][cycle])
    after, bases = hdet(order, size, steps, uneven=uneven, **settings)
    check_each_merge(peers, after)
    said = [line["lr_base"] for line in peers[0].merges()]
    assert said == pytest.approx(bases, rel=1e-5) and abs(said[-1] - 1) > 1e-3
    for cycle, base in enumerate([1.0, *said[:-1]]):
        assert sorted(scales[m][cycle] / base for m in range(size)) == pytest.approx([0.7, 1.0, 1.3])
    assert len({order(0, cycle) for cycle in range(len(said))}) > 1


PACES = {"time": dict(seconds=0.15), "speed": dict(H=30, by_speed=1), "grace": dict(H=30, grace=0.01, quorum=2)}


@pytest.mark.parametrize("uneven", EXPONENTS)
@pytest.mark.parametrize("pace", PACES)
def test_each_at_its_own_pace(group, pace, uneven):
    """Two peers and one whose step takes ten times as long: what is merged is DiLoCo's with the steps that each really took; the slow one takes fewer
    (by speed and with a grace: once speeds are known), and training ends at the last step."""
    steps = 300
    peers = [group(3, "diloco", steps, uneven=int(bool(uneven)), weights=int(uneven == "tokens"), outer=1, pause_us=pause, **PACES[pace])
             for pause in (2000, 2000, 20000)]
    for peer in peers:
        peer.end()
    check_alike(peers)
    slow = peers[2]
    own = {peer: [line["own"] for line in peer.merges()] for peer in peers}
    first = 0 if pace == "time" else 1
    assert sum(own[slow][first:]) * 2 < min(sum(own[peer][first:]) for peer in peers[:2]), own
    if pace == "speed":  # but for the end, the fastest takes H
        assert all(max(cycle) == 30 for cycle in list(zip(*own.values()))[:-1]), own
    peers.sort(key=lambda peer: peer.said("started")[0]["index"])
    after = at_own_pace(list(zip(*(own[peer] for peer in peers))), eta=0.7, mu=0.9, uneven=uneven)
    assert list(after)[-1] == steps
    check_each_merge(peers, after)


@pytest.mark.parametrize("codec,limit", [(2, 0.005), (3, 0.15), (5, 0.3)])
def test_coded_peers_agree(group, codec, limit):
    """int8, int4, int2 with error feedback: lossy, and yet the same on all peers."""
    peers = [group(3, "streaming", 60, H=6, P=3, tau=1, codec=codec) for _ in range(3)]
    for peer in peers:
        peer.end()
    check_alike(peers)
    difference = farthest(peers[0].lines[-1]["outer"], diloco(3, 60, H=6, eta=0.4, mu=0.9, P=3, tau=1, alpha=0.5)[60])
    assert 0 < difference < limit


DEATHS = [*((mode, options) for mode, (options, _) in CASES.items()), ("streaming", dict(H=9, P=3, tau=2, codec=5)), ("hdet", dict(H=6)),
          ("diloco", dict(seconds=0.03)), ("streaming", dict(seconds=0.1, P=3, tau=2)), ("eager", dict(seconds=0.03, eta=0.5)),
          ("streaming", dict(H=9, P=3, tau=2, by_speed=1, grace=0.01)),
          ("diloco", dict(H=6, batch=10, share_by_speed=1)), ("streaming", dict(H=9, P=3, tau=2, batch=10, share_by_speed=1)),
          ("eager", dict(H=6, eta=0.5, batch=10, share_by_speed=1)), ("diloco", dict(H=6, batch=10, share_by_speed=1, grace=0.01))]


@pytest.mark.parametrize("mode,options", DEATHS, ids=lambda value: value if isinstance(value, str) else "-".join(value))
def test_death_and_join(group, mode, options):
    """One of four is killed in mid training, another comes; those who are there at the end agree on every merge. int2 has error feedback."""
    options = dict(options, pause_us=4000)
    peers = [group(4, MODES.get(mode, mode), 700, **options) for _ in range(4)]
    wait_for(lambda: len(peers[0].merges()) >= 10, "ten merges")
    peers[3].process.send_signal(signal.SIGKILL)
    wait_for(lambda: any(line["tokens"] > 0 and line["contributors"] == 3 for line in peers[0].merges()), "the others to go on")
    joiner = group(4, MODES.get(mode, mode), 700, **options)
    members = [*peers[:3], joiner]
    for peer in members:
        peer.end()
    check_alike(members)
    assert joiner.said("started")[0]["started"] > 0
    assert joiner.merges()[-1]["contributors"] == 4


@pytest.mark.parametrize("mode,options", [("eager", dict(H=300)), ("streaming", dict(H=900, P=3, tau=300)), ("diloco", dict(H=300, tau=300))],
                         ids=["eager", "streaming", "diloco"])
def test_a_merge_waits_for_nobody_once_it_is_committed(group, mode, options):
    """With an overlap a round is compared and committed while inner steps go on: the other one stops between commit and merge, and its movement is in the merge."""
    peer, other = (group(2, mode, 1500, pause_us=1000, **options, **stop) for stop in ({}, dict(stop=1)))
    wait_for(lambda: other.said("stopped"), "the commit")
    committed = other.said("stopped")[0]["stopped"]
    wait_for(lambda: len(peer.merges()) >= committed, "the merge")
    assert peer.merges()[committed - 1]["tokens"] == 2 * 300 * min(committed, options.get("P", 1))
    other.process.send_signal(signal.SIGKILL)
    peer.end()


def test_options_that_cannot_be(group):
    for options, words in [(dict(H=4, P=3, tau=3), "sync.overlap: found 3, allowed: 0 to 1"),
                           (dict(H=2, P=3), "inner_steps: found 2, allowed: at least one a fragment, 3"),
                           (dict(H=50, P=4), "fragments: found 4, allowed: 1 to 3"),
                           (dict(H=4, eta=11), "outer_lr: found 11, allowed: more than 0, at most 10")]:
        peer = group(1, "streaming", 10, **options)
        peer.process.wait(timeout=60)
        wait_for(lambda: peer.said("error"), "its last word")
        assert words in peer.said("error")[0]["text"]


@pytest.mark.parametrize("options,words", [(dict(policy=0), "sync: policy: found keep, allowed: uniform, replay"),
                                           (dict(deadline=300), "sync: op_deadline_ms: found 300, allowed: 0")],
                         ids=["keep", "deadline"])
def test_groups_that_cannot_be(group, options, words):
    """Under keep parts of a movement may be of other members than its weight; after a deadline nothing could be called again."""
    peer = group(1, "diloco", 10, H=5, **options)
    peer.process.wait(timeout=60)
    wait_for(lambda: peer.said("error"), "its last word")
    assert words in peer.said("error")[0]["text"]


@pytest.mark.parametrize("mode,options", [("streaming", dict(H=8, P=3)), ("eager", dict(H=4)), ("diloco", dict(H=8, by_speed=1))],
                         ids=["streaming", "eager", "by_speed"])
def test_a_joiner_at_the_end_takes_no_step_beyond_it(group, mode, options):
    options = dict(options, pause_us=60000)
    peers = [group(2, mode, 24, **options) for _ in range(2)]
    wait_for(lambda: len(peers[0].merges()) >= 24 // options["H"] * options.get("P", 1) - 2, "nearly all merges")
    joiner = group(2, mode, 24, **options)
    for peer in peers:
        peer.end()
    joiner.process.wait(timeout=60)
    assert [peer.said("done")[0]["done"] for peer in peers] == [24, 24]
    assert all(line["done"] == 24 for line in joiner.said("done"))
    assert all(line["step"] <= 24 for peer in [*peers, joiner] for line in peer.merges())


# ---- from what was saved ----

@pytest.mark.parametrize("mode,options", [("diloco", dict(H=10)), ("diloco", dict(H=10, by_speed=1)), ("diloco", dict(seconds=0.02)), ("local_sgd", dict(H=7)),
                                          ("streaming", dict(H=12, P=3, tau=2)), ("eager", dict(H=10)), ("hdet", dict(H=10)),
                                          ("diloco", dict(H=10, share_by_speed=1))],
                         ids=["diloco", "by_speed", "by_time", "local_sgd", "streaming", "eager", "hdet", "share_by_speed"])
def test_who_saved_most_gives_it_to_the_others(group, mode, options):
    """One went on from step 40 of 100, one from step 20, one has nothing: all have 60 steps left, from what the first one has."""
    had = ((40, 0.25), (20, 0.5), (0, -0.5))
    peers = [group(3, mode, 100 - step, ready=step, saved=value, batch=12, outer=1, pause_us=500, **options) for step, value in had]
    for peer in peers:
        peer.end()
    check_alike(peers)
    assert [peer.said("done")[0]["done"] for peer in peers] == [60] * 3
    first = peers[0].merges()[0]
    assert first["round"] == 41
    assert all(peer.merges()[0]["round"] > 41 for peer in peers[1:])
    if mode in ("diloco", "local_sgd") and "H" in options and len(options) == 1:
        H, eta, mu = options["H"], *((0.7, 0.9) if mode == "diloco" else (1, 0))
        expected = diloco(1, 60, H, eta, mu, start=0.25)[H]
        assert first["outer"] == pytest.approx(expected, abs=2e-6)


def test_nobody_saved_anything(group):
    peers = [group(2, "diloco", 20, H=5) for _ in range(2)]
    for peer in peers:
        peer.end()
    assert peers[0].merges()[0]["round"] == 1


# ---- samples ----

def used_by(peers):
    return [number for peer in peers for line in peer.said("used") for number in line["used"]]


@pytest.mark.parametrize("options", [dict(H=5), dict(H=10, by_speed=1), dict(seconds=0.02), dict(H=10, share_by_speed=1)],
                         ids=["schedule", "by_speed", "by_time", "share_by_speed"])
def test_each_sample_goes_to_one_peer(group, options):
    """Fast and slow ones; and the account keeps few ranges of them."""
    peers = [group(3, "diloco", 600, batch=12, **options, pause_us=pause_us) for pause_us in (200, 200, 2000)]
    for peer in peers:
        peer.end()
    check_alike(peers)
    used, account = used_by(peers), peers[0].said("account")[0]
    assert len(used) == len(set(used)) == account["counted"] and account["dropped"] == []
    assert account["counted"] + account["held"] + account["free"] == account["account"]
    assert account["pieces"] <= 3 * 3


@pytest.mark.parametrize("mode,options", [("diloco", dict(H=20)), ("streaming", dict(H=30, P=3, tau=5)), ("eager", dict(H=20))], ids=["diloco", "streaming", "eager"])
def test_parts_of_the_batch_go_by_speed(group, mode, options):
    """Of a batch of 14 the peer whose sample takes 16 times as long has at last about 0.4, so of some steps none; each step's samples are 14 in all; each goes to one peer."""
    steps = 240
    peers = [group(3, mode, steps, batch=14, share_by_speed=1, pause_us=pause_us, **options) for pause_us in (500, 500, 8000)]
    for peer in peers:
        peer.end()
    check_alike(peers)
    used, account = used_by(peers), peers[0].said("account")[0]
    assert len(used) == len(set(used)) == account["counted"] == 14 * steps and account["dropped"] == []
    parts = [[len(line["used"]) for line in peer.said("used")] for peer in peers]
    assert all(len(part) == steps for part in parts) and all(sum(step) == 14 for step in zip(*parts)), parts
    late = [sum(part[steps // 2:]) / (steps // 2) for part in parts]
    assert late[2] < 1.5 and min(late[:2]) > 4 and 0 in parts[2], late


def test_numbers_that_are_used_up(group):
    """Who gets no samples ends in words: the last of the 2^53 numbers are handed out."""
    peers = [group(2, "diloco", 600, H=5, batch=12, **{"from": 2**53 - 100}) for _ in range(2)]
    for peer in peers:
        peer.process.wait(timeout=60)
        wait_for(lambda: peer.said("error"), "its last word")
        error = peer.said("error")[0]
        assert error["error"] == "TR_ELIMIT" and "no samples are left for this peer" in error["text"], error
