"""Merges that are on their way while training goes on."""
import facts
from claims import Better, Target, Within
from plan import Arm
from studies.quality import AVERAGE_2, DILOCO_2, DP, ISOLATED_2

ORDER = 4
TITLE = "Overlap: streaming and eager"
# On its way for as long as there is until the next fragment departs: what hides communication of 0.8 of a round (hidden.py). With `carry` training goes on from where a worker's own movement would bring the group
# (collectives/sync/late.h), which errs by that movement's noise times eta (1 + mu): so a smaller outer rate, and an inner one that is larger by as much.
STREAMING = Arm("streaming-m2-carry-10", nodes=2, train={**DILOCO_2.train, "lr": 1e-3, "min_lr": 1e-4},
                sync={"mode": "streaming", "inner_steps": 32, "fragments": 3, "overlap": 10, "outer_lr": 0.5, "carry": True})
# Eager's, whose outer steps know others' movements one round late, is that too, at DiLoCo's inner rate: 1.2351, with (0.7, 0.9) 1.2728, at 1.2e-3 1.2506 (studies/tuning.py, seed 1).
EAGER = Arm("eager-m2-outer-0.4-0.9", nodes=2, train=DILOCO_2.train, sync={"mode": "eager", "inner_steps": 32, "outer_lr": 0.4})
NAIVE = Arm("naive-delay-m2", nodes=2, train=DILOCO_2.train, sync=EAGER.sync, program="naive-delay")
ARMS = [DILOCO_2, STREAMING, EAGER, NAIVE, DP, AVERAGE_2, ISOLATED_2]
CLAIMS = [Within(STREAMING, DILOCO_2, 0.01), Within(EAGER, DILOCO_2, 0.04), Better(EAGER, NAIVE)]
NOTES = """*naive-delay* is eager without the worker's own share while the average is under way (arXiv 2502.12996, section 3): `variants/naive-delay.patch` changes one
number of collectives/sync; the product has no such mode. Until 2026-11-29 *carry* trained on from where the
parameters were at the take: with an overlap of ten that was +2.0 % (seed 1), with one of five, which hides too little, +0.9 % (three seeds). Loss only: these runs share processors with whatever else runs."""

HIDDEN_WORDS = """The fragment is on its way behind inner steps, and so are the two round trips in which all compare what it is about to change, and commit (collectives/sync/closing.h; before they were,
streaming hid 83, 94 and 95 %, eager 93, 96 and 98 %). What is merged at a job's last step has nothing to hide behind, and is not in these figures."""


def extra(folder):
    """What hidden.py has measured."""
    hidden = facts.read(folder, "hidden")
    if hidden is None:
        return facts.missing("hidden")
    out = [f"Communication behind computation, two nodes, 150 ms there and back, 20 Mbit/s (scripts/experiments/hidden.py, commit {', '.join(sorted({size['commit'] for size in hidden['sizes'].values()}))}, `{hidden['topology'].splitlines()[-1]}`; "
           "computation is paced). *Communication*: what a merge of DiLoCo adds to a round, beside the round of a node that is alone. *Hidden*: of the time from a fragment's departure to its "
           "merge, the share in which nobody waited for it (`trainctl status`). *Of alone*: speed beside that node's.\n\n"]
    rows, targets = [], []
    for size in hidden["sizes"].values():
        for mode, arm in size["modes"].items():
            rows.append([f"{size['parameters'] / 1e6:.1f} M", f"{size['alone_round_s']:.1f} s", f"{size['communication']:.2f}", mode, f"{arm['round_s']:.2f} s", f"{arm['hidden']:.1%}",
                         f"{arm['of_alone']:.1%}"])
        targets += [Target(f"{mode}, {size['parameters'] / 1e6:.1f} M parameters: at least 95 % hidden", (size["modes"][mode]["hidden"],), least=0.95).line
                    for mode in ("streaming", "eager")]
    return "".join([*out, facts.table(["parameters", "round alone", "communication", "mode", "round", "hidden", "of alone"], rows), *targets, "\n", HIDDEN_WORDS, "\n\n"])
