"""What a joiner at the end of a slow link costs the others, and how long its state is on its way."""
import facts
from claims import Target

ORDER = 8
TITLE = "A joiner over 20 Mbit/s"
ARMS = []
NOTES = """*State*: from the moment the donor begins to send it until it is there and its digests agree, beside state / rate (TCP's payload of 20 Mbit/s from each donor). *Asked*: from the
start of the joiner's traind until the donor begins: a joiner enters where a round begins. *Lost*: of the others' time, from the last merge before the joiner's traind started to the merge from
which on it contributes, what they took longer than for as many rounds without it; less than nothing where the joiner has taken samples off them by then (eager, whose joiner has its part of a batch a round before its merge). *Waits*: by how much the join's last round is longer than its computation, and by how much later rounds are, in which the joiner is a member like any other and has its part of each batch. Computation is paced.

With DiLoCo nobody's merge ends before all members have its result, the joiner included. Rounds that are shorter than the state is on its way wait for it too, unless it is cheaper for the group to go on without the rest (since 2026-11-28: *one link for all*, where the joiner has 20 Mbit/s for all of its links together; of two members
waiting is cheaper, and is what happens), and longer ones for the round's result: 3.1 s of f32 from two members, 0.4 of int4; every later merge with that member waits likewise, and for its movement too. What that is of a round is less the longer rounds are: rounds of two minutes (H = 200, int4) lose nothing that can be
seen; those of 6 s cannot, whoever does it, since the parameters alone change by 21 Mbit/s. Eager and streaming (H = 90, three fragments, an overlap of 10 steps) hide both, and a fragment leaves when the state is there. Each donor sends a share over its own link, and takes over
what another has left; *diloco*, *streaming* and *eager* send no byte twice but where a piece was on its way from two donors at the end (0.5 MB of 30.9 in one of the joins). *diloco* with 2 members and 1 donor, rounds of 24 s, is of before several donors could send (commits of each in joiner.json)."""


def waits(case, join):
    """Of the join's merge, and of a later one. With one member more each has less to compute."""
    shorter = case["members"] / (case["members"] + 1)
    return join["rounds_s"][-1] - join["quiet_round_s"], join["round_with_it_s"] - shorter * join["quiet_round_s"]


def waits_of(case, join):
    return "{:.1f}, {:.1f} s".format(*waits(case, join)) if "round_with_it_s" in join else ""


def words_of(case):
    return " ".join([case["mode"], case.get("codec", "")]).strip() + (f", {case['note']}" if "note" in case else "")


def rows_of(case):
    middle = f"{case['members']}, {case['donors']}"
    for join in case["joins"]:
        yield [words_of(case), middle, f"{join['quiet_round_s']:.1f} s", f"{join['start_to_asked_s']:.1f} s", f"{join['transfer_s']:.1f} s", f"{join['of_least']:.2f}",
               ", ".join(f"{length:.1f}" for length in join["rounds_s"]) + " s", f"{join['lost']:.1%}", waits_of(case, join)]


def extra(folder):
    """What joiner.py has measured."""
    found = facts.read(folder, "joiner")
    if found is None:
        return facts.missing("joiner")
    cases = found["cases"]
    commits = ", ".join(sorted({case["commit"] for case in cases.values()}))
    out = [f"{found['parameters'] / 1e6:.1f} M parameters, so {cases[next(iter(cases))]['joins'][0]['state_bytes'] / 1e6:.1f} MB of state (scripts/experiments/joiner.py, commit {commits}).\n\n",
           facts.table(["mode", "members, donors", "a round without it", "asked", "state", "of state / rate", "the others' rounds", "lost", "waits: its merge, a later one"],
                       [row for case in cases.values() for row in rows_of(case)])]
    for case in cases.values():
        words = f"{words_of(case)}, rounds of {case['joins'][0]['quiet_round_s']:.0f} s, {case['members']} members, {case['donors']} donor{'s'[:case['donors'] > 1]}"
        more = tuple((joined - later) / join["quiet_round_s"] for join in case["joins"] if "round_with_it_s" in join for joined, later in [waits(case, join)])
        out += [Target(f"{words}: the join's merge waits no longer than later ones with that member, but for 1 % of a round", more, most=0.01).line] if more else []
        out += [Target(f"{words}: the state takes at most 1.2 times state / rate", tuple(join["of_least"] for join in case["joins"]), most=1.2, form="{:.2f}").line,
                Target(f"{words}: the others lose less than 1 %", tuple(join["lost"] for join in case["joins"]), most=0.01).line]
    return "".join([*out, "\n"])
