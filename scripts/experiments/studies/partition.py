"""Halves that do not see one another, and a coordinator that dies in the middle of a commit."""
import facts
from claims import Target

ORDER = 9
TITLE = "Partition and coordinator"
ARMS = []
NOTES = """All by what each worker itself says of every merge: round, step, digest of the outer parameters, time. *Differ*: rounds after which members held different bits or were at different
steps. *Twice*: rounds that a worker merged twice. *Missing*: numbers below the newest round that nobody merged. DiLoCo, merges every five steps of 0.1 s."""


def checks(words, one):
    return [Target(f"{words}: rounds that differ, that were merged twice, that are missing", (one["differ"], one["twice"], one["skipped"]), most=0, form="{}").line,
            Target(f"{words}: rounds missing in memberd's record", (one["committed"] - one["recorded"],), most=0, form="{}").line]


def extra(folder):
    """What partition.py has measured."""
    found = facts.read(folder, "partition")
    if found is None:
        return facts.missing("partition")
    halves, coordinator = found["halves"], found["coordinator"]
    cuts, kills = halves["cuts"], coordinator["kills"]
    died = [kill for kill in kills if kill["mid_commit"]]
    return "".join([
        f"Two sites of four nodes, memberd at one of them (a), 40 ms there and back (scripts/experiments/partition.py, commit {found['commit']}); {halves['rounds']} rounds in all. "
        "*Whole again*: from the healing until all eight have merged a round together.\n\n",
        facts.table(["cut for", "rounds of a meanwhile", "rounds of b meanwhile", "rounds that b has alone", "whole again"],
                    [[f"{cut['seconds']:.1f} s", str(cut["rounds_a"]), str(cut["rounds_b"]), str(cut["only_b"]), f"{cut['whole_again_s']:.1f} s"] for cut in cuts]),
        *checks("halves", halves),
        Target("halves: rounds that the half without memberd merged and the other did not", tuple(cut["only_b"] for cut in cuts), most=0, form="{}").line,
        f"\nFour sites with a node each, 80 ms between any two; the hub of the commits killed with -9 (traind and worker) {len(kills)} times, of which {len(died)} times it had closed the round "
        f"and not all others had merged it; {coordinator['rounds']} rounds in all. The others had merged that round at most {max(kill['last_merged_s'] for kill in kills):.2f} s after the "
        "death.\n\n",
        *checks("coordinator", coordinator),
        Target("coordinator: of the rounds under way at a death in mid-commit, how many the others did not all commit", (sum(not kill["merged_by_all"] for kill in died),), most=0,
               form="{}").line, "\n"])
