"""Which learning rate the baseline learns best with, in a sixth of the tokens. plan.TRAIN has the outcome."""
from plan import Arm

ORDER = 0
SEEDS = (1,)
TITLE = "Learning rate of the baseline"
ARMS = [Arm(f"dp-lr-{lr:g}", train={"lr": lr, "min_lr": lr / 10, "steps": 608}) for lr in (2e-3, 4e-3, 8e-3, 1.6e-2)]
