"""Whether `auto` takes the algorithm that is fastest."""
import facts
from claims import Target

ORDER = 11
TITLE = "The choice of an algorithm"
ARMS = []
NOTES = """All-reduces between sites with 100 Mbit/s up and down, from submission to result, milliseconds; medians, each algorithm in a new group. *Slow*: the last member's part of that rate.
*Later*: ops from the seventh of a group on (of 64 KiB: from the third round of 16 on), which the times are of; *first*: the second to fourth (of 64 KiB: the first round but for its first op). *Of the
best*: `auto` beside the fastest of the others. *Measured / model*: of ring, star, direct and one-shot, later ops, beside the cost model of collectives/core/select.h with the links as they were asked
for; with one slow member direct's is its bound, with the weights that end all members at the same moment."""

WORDS = """Links are measured by the ops themselves: a group's first round goes by the round trip of its connections to memberd and takes an unmeasured long way for one of 100 Mbit/s; with its commit, and each
later one, members agree on what they saw (collectives/core/links.c). Three things had kept `auto` and direct from their bound before (auto 2.58, 1.63 and 1.36 times the best in the three worst of 11 cases, 6 of 11 within 10 %; direct
1.57 to 1.89 times its bound): figures of links were those of the moment when the view was made, so none in a group of one view; each of n - 1 links began with eight connections, which lost to one another in
the queues (collectives/engine/stripe.h); and windows of 4 MiB put all of an op before its slowest end at once. Where a round trip is longer than the queues
(200 ms; they hold 100) TCP lost so much of each op that auto took 1.46 times the best with 16 MiB (4.7 s), and star and one-shot with 1 MiB twice the model: such ways are paced since (collectives/engine/pacer.h), bbr begins anew on paced connections,
and what a link carries goes without heaps (collectives/engine/rate.h). A ring of 16 MiB at 200 ms took 2.6 s where 2.25 were due: each member began half of what its link carries until results are back, and what came from others went before what it had not begun yet
(collectives/core/window.c, collectives/engine/outgoing.c); 2.3 s since. The model had left out that the last segment's result goes to all others one after the other, that inputs crowd a hub, and that a ring whose blocks are shorter than a trip pauses: 51 of 64 times were within 15 % of it before. One turn a case;
four cases, of which one turn had times that looked like a machine that was busy (first ops 1.17 of the best, or ring 1.25 and 1.44 of the model), have the least of three turns. Two cores; the model's factor for trips (1.2) is from such times, of the runs before."""


def size_text(size):
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def extra(folder):
    """What auto.py has measured."""
    found = facts.read(folder, "auto")
    if found is None:
        return facts.missing("auto")
    fixed = ("ring", "star", "direct", "one-shot")
    rows = [[str(case["members"]), f"{case['rtt_ms']} ms", size_text(case["bytes"]), f"{case['slow']:.2g}" if case["slow"] < 1 else "",
             *(f"{min(case['times_s'][name]) * 1000:.0f}" for name in ("auto", *fixed)), f"{case['first_of_best']:.2f}", f"{case['auto_of_best']:.2f}",
             ", ".join(f"{case['of_model'][name]:.2f}" for name in fixed)] for case in found["cases"]]
    near = [case for case in found["cases"] if case["auto_of_best"] <= 1.1]
    good = [value for case in found["cases"] for value in case["of_model"].values() if 0.85 <= value <= 1.15]
    chosen = [value for case in found["cases"] for name, value in case["of_model"].items() if min(case["times_s"][name]) <= 1.1 * min(case["times_s"][case["best"]])]
    near_model = [value for value in chosen if 0.85 <= value <= 1.15]
    weighted = [case for case in found["cases"] if case["slow"] < 1]
    out = [f"{len(found['cases'])} of {found['wanted']} cases have been measured (scripts/experiments/auto.py, commit {found['commit']}).\n\n",
           facts.table(["members", "round trip", "bytes", "slow", "auto", *fixed, "of the best: first", "later", "measured / model"], rows),
           Target("auto within 10 % of the best, later ops, worst first", tuple(sorted((case["auto_of_best"] for case in found["cases"]), reverse=True)), most=1.1, form="{:.2f}").line,
           f"  ({len(near)} of {len(found['cases'])} cases)\n",
           Target("the same of a group's first ops", tuple(sorted((case["first_of_best"] for case in found["cases"]), reverse=True)), most=1.1, form="{:.2f}").line,
           Target("measured within 15 % of the model, of the algorithms that auto took (within 10 % of the best)", (len(near_model) / max(1, len(chosen)),), least=1).line,
           Target("measured within 15 % of the model, part of all times", (len(good) / (4 * len(found["cases"])),), least=1).line]
    if weighted:
        out.append(Target("direct among unequal members within 1.15 of its bound", tuple(case["of_model"]["direct"] for case in weighted), most=1.15, form="{:.2f}").line)
    return "".join([*out, "\n", WORDS, "\n\n"])
