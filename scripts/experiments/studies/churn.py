"""Nodes that die and come back all the time: how many tokens are committed meanwhile."""
import facts
from claims import Target

ORDER = 7
TITLE = "Churn: a death every 60 s and every 15 s"
ARMS = []
NOTES = """*Efficiency*: tokens in committed rounds, beside those of the same job in the same time when nobody dies; all jobs of a mode ran at once, on clusters of their own. A death is SIGKILL to
one node's traind and worker at the same moment, chosen by dice; 5 s later its traind is started again, so with four nodes and a death every 15 s no system can commit more than 91.7 %.
*Whole again*: from a death until all four are members. Computation is paced: it takes its time whatever else the machine does. *Loss*: the last five validation losses beside the
undisturbed job's at as many tokens, in the mean. Less than nothing: it
learned more from as many tokens (3.4 % with one seed of three, 0.1 and -0.3 with the others; with a node missing a merge is of fewer tokens). Where seed 2 of `diloco` was run first, steps took 4.6 times the processor's time after a minute, for subnormal numbers, and efficiency
was 94.4 and 79.8 %, then 95.1 and 77.2 % (commits 2b6a2940f5, 74c20e47); what is here is of after that was mended (docs/trainer.md). torchft published 13 % of training efficiency with a failure every 15 s, 81 % with one every 60 s (other models and machines)."""
LEAST = {"every-60-s": 0.95, "every-15-s": 0.80}


def row_of(name, arm, seed):
    whole, efficiency = arm["whole_again_s"], arm.get("efficiency")
    return [name.replace("-", " "), str(seed), str(arm["kills"]), f"{arm['tokens']:,}", f"{efficiency:.1%}" if efficiency else "",
            f"{whole['median']:.1f} s, at most {whole['most']:.1f}" if whole else "", f"{arm['committed']}, {arm['abandoned_attempts']}",
            f"{arm['loss_beside']:+.2%}" if efficiency else ""]


def of_mode(mode, one):
    runs = one["runs"]
    seconds, batch = runs[0]["arms"]["undisturbed"]["seconds"], one["train"]["batch_tokens"]
    period = f"merges every {one['sync']['inner_steps']} steps" if "inner_steps" in one["sync"] else "gradients are summed at every step"
    commits = ", ".join(dict.fromkeys(run["commit"] for run in runs))
    yield (f"`{mode}`, {one['nodes']} nodes, {seconds:.0f} s; steps of {batch} tokens take {batch / one['model']['context'] / one['nodes'] * one['sequence_ms'] / 1000:.1f} s, "
           f"{period} (scripts/experiments/churn.py, commit {commits}):\n\n")
    yield facts.table(["deaths", "seed", "how many", "tokens committed", "efficiency", "whole again", "rounds committed, tries given up", "loss"],
                      [row_of(name, arm, run["seed"]) for run in runs for name, arm in run["arms"].items()])
    for name, least in LEAST.items():
        yield Target(f"{mode}, {name.replace('-', ' ')}: efficiency at least {least:.0%}", tuple(run["arms"][name]["efficiency"] for run in runs), least=least).line
    arms = [arm for run in runs for arm in run["arms"].values()]
    told, unequal = sum(len(arm["of_digests"]) for arm in arms), sum(arm["committed"] != arm["recorded"] for arm in arms)
    yield Target(f"{mode}: events that speak of digests, jobs of which a round is missing in memberd's record", (told, unequal), most=0, form="{}").line
    yield Target(f"{mode}: loss within 2 %", tuple(run["arms"][name]["loss_beside"] for run in runs for name in LEAST), least=-0.02, most=0.02, form="{:+.2%}").line
    yield "\n"


def extra(folder):
    """What churn.py has measured."""
    modes = facts.read(folder, "churn")
    if modes is None:
        return facts.missing("churn")
    return "".join(text for mode, one in sorted(modes.items(), reverse=True) for text in of_mode(mode, one))
