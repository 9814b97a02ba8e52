"""Whether `auto` takes the algorithm that is fastest."""
import facts
from claims import Target

ORDER = 11
TITLE = "The choice of an algorithm"
ARMS = []
NOTES = """All-reduces between sites with 100 Mbit/s up and down, from submission to result, milliseconds; the least median of two turns. *Slow*: the last member's part of that rate. *Of the best*: `auto`
beside the fastest of the others. *Measured / model*: of ring, star, direct and one-shot beside the cost model of collectives/core/select.h with the links as they were asked for; direct's is
its bound, with the weights that end all members at the same moment."""

WORDS = """Every time is of a new group's first ops (8 to 12, two of them to warm up), so of one that may not have measured its links: direct's times among unequal members are near those of even
shares (1.09, 1.12 and 1.26 times what the model has for those), and at 200 ms and 1 MiB `auto` took as long as one-shot, which costs twice its model there. Whether longer groups do better is not
measured. Where a block takes longer to send than to travel, a ring hides its latency, which the model counts in full: 0.76 and 0.78 of it with 1 MiB and 20 ms."""


def size_text(size):
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def extra(folder):
    """What auto.py has measured."""
    found = facts.read(folder, "auto")
    if found is None:
        return facts.missing("auto")
    fixed = ("ring", "star", "direct", "one-shot")
    rows = [[str(case["members"]), f"{case['rtt_ms']} ms", size_text(case["bytes"]), f"{case['slow']:.2g}" if case["slow"] < 1 else "",
             *(f"{min(case['times_s'][name]) * 1000:.0f}" for name in ("auto", *fixed)), f"{case['auto_of_best']:.2f}",
             ", ".join(f"{case['of_model'][name]:.2f}" for name in fixed)] for case in found["cases"]]
    near = [case for case in found["cases"] if case["auto_of_best"] <= 1.1]
    good = [value for case in found["cases"] for value in case["of_model"].values() if 0.85 <= value <= 1.15]
    weighted = [case for case in found["cases"] if case["slow"] < 1]
    out = [f"{len(found['cases'])} of {found['wanted']} cases have been measured (scripts/experiments/auto.py, commit {found['commit']}).\n\n",
           facts.table(["members", "round trip", "bytes", "slow", "auto", *fixed, "of the best", "measured / model"], rows),
           Target("auto within 10 % of the best, worst first", tuple(sorted((case["auto_of_best"] for case in found["cases"]), reverse=True)), most=1.1, form="{:.2f}").line,
           f"  ({len(near)} of {len(found['cases'])} cases)\n",
           Target("measured within 15 % of the model, part of all times", (len(good) / (4 * len(found["cases"])),), least=1).line]
    if weighted:
        out.append(Target("direct among unequal members within 1.15 of its bound", tuple(case["of_model"]["direct"] for case in weighted), most=1.15, form="{:.2f}").line)
    return "".join([*out, "\n", WORDS, "\n\n"])
