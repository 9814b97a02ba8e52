"""Workers at speeds 1 : 1.3 : 2.6 : 5.7 that take steps in proportion, against workers of one speed, at equal tokens."""
from claims import Within
from plan import Arm
from studies.quality import DILOCO_4

ORDER = 5
TITLE = "Stragglers: inner steps in proportion to speed"
SLOWNESS = (1, 1.3, 2.6, 5.7)
# The fastest worker's steps: the four together then take the tokens of DILOCO_4's 3648 (to a part in 600).
STEPS = 6272
BY_SPEED = Arm("diloco-m4-by-speed", nodes=4, train={"steps": STEPS}, sync={**DILOCO_4.sync, "by_speed": True}, slowness=SLOWNESS)
ARMS = [DILOCO_4, BY_SPEED]
CLAIMS = [Within(BY_SPEED, DILOCO_4, 0.01)]
NOTES = "Fixed H learns the same whatever the speeds are, so its loss is that of equal workers. Slow ones are stopped for part of the time (throttle.py)."
