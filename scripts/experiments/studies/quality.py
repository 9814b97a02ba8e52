"""DiLoCo against data parallel, isolated replicas and plain averaging, at equal tokens and global batch."""
import math

from claims import Better, Within
from plan import TRAIN, Arm

ORDER = 2
TITLE = "Quality: two and four workers that talk every 32 steps"
DP = Arm("dp")
# Outer steps are the papers', 0.7 and 0.9. They make seven steps of one, and a mean of M workers' steps, each with 1/M of the batch, goes 1/sqrt(M) as far as one worker's
# with all of it: so the inner rate is less than data parallel's (studies/tuning.py).
INNER = {"lr": 7e-4, "min_lr": 7e-5}
DILOCO_2, DILOCO_4 = (Arm(f"diloco-m{m}", nodes=m, train=INNER, sync={"mode": "diloco", "inner_steps": 32}) for m in (2, 4))
# By the same reckoning plain averaging wants sqrt(M) times data parallel's rate, and an isolated worker, whose batch is 1/M, 1/sqrt(M) of it.


def rate(factor):
    return {"lr": TRAIN["lr"] * factor, "min_lr": TRAIN["min_lr"] * factor}


AVERAGE_2, AVERAGE_4 = (Arm(f"average-m{m}", nodes=m, train=rate(math.sqrt(m)), sync={"mode": "local_sgd", "inner_steps": 32}) for m in (2, 4))
ISOLATED_2, ISOLATED_4 = (Arm(f"isolated-m{m}", replicas=m, train=rate(1 / math.sqrt(m))) for m in (2, 4))
ARMS = [DP, DILOCO_2, DILOCO_4, AVERAGE_2, AVERAGE_4, ISOLATED_2, ISOLATED_4]
CLAIMS = [Within(DILOCO_2, DP, 0.01), Better(DILOCO_2, AVERAGE_2), Better(DILOCO_2, ISOLATED_2),
          Within(DILOCO_4, DP, 0.02), Better(DILOCO_4, AVERAGE_4), Better(DILOCO_4, ISOLATED_4)]
NOTES = """Worker m of M takes 1/M of each global batch, AdamW is its own. *average*: the parameters' mean every 32 steps, no outer momentum (`local_sgd`).
*isolated*: M jobs that know nothing of one another, each for as many steps with 1/M of the batch, so 1/M of the tokens, and with a seed of its own (weights
and order of samples); the figure is the mean of their losses."""
