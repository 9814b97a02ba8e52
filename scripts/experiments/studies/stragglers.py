"""Workers at speeds 1 : 1.3 : 2.6 : 5.7 that take parts of each batch, or steps, in proportion, against workers of one speed, at equal tokens."""
import json

from claims import Within
from plan import Arm
from studies.quality import AVERAGE_4, DILOCO_4, DP, ISOLATED_4

ORDER = 5
TITLE = "Stragglers: inner steps or parts of the batch in proportion to speed"
SLOWNESS = (1, 1.3, 2.6, 5.7)
# The fastest worker's steps: the four together then take the tokens of DILOCO_4's 29184 (to a part in 600).
STEPS = 50176
BY_SPEED = Arm("diloco-m4-by-speed", nodes=4, train={**DILOCO_4.train, "steps": STEPS}, sync={**DILOCO_4.sync, "by_speed": True}, slowness=SLOWNESS)
SHARES = Arm("diloco-m4-share-by-speed", nodes=4, train=DILOCO_4.train, sync={**DILOCO_4.sync, "share_by_speed": True}, slowness=SLOWNESS)
# As it was until 2026-11-26.
BY_TOKENS = Arm("diloco-m4-by-speed-tokens", nodes=4, train=BY_SPEED.train, sync={**BY_SPEED.sync, "weights": "tokens"}, slowness=SLOWNESS)
# An arm of studies/tuning.py.
# As many tokens a merge as DILOCO_4's: 55 steps of the fastest, 128 of the four together.
LONGER = Arm("diloco-m4-by-speed-h55", nodes=4, train=BY_SPEED.train, sync={**BY_TOKENS.sync, "inner_steps": 55}, slowness=SLOWNESS)
ARMS = [DILOCO_4, SHARES, BY_SPEED, BY_TOKENS, DP, AVERAGE_4, ISOLATED_4]
CLAIMS = [Within(BY_SPEED, DILOCO_4, 0.01), Within(SHARES, DILOCO_4, 0.01)]
NOTES = "Fixed H learns the same whatever the speeds are, so its loss is that of equal workers. Slow ones are stopped for part of the time (throttle.py)."


def extra(folder):
    """What timing.py has measured."""
    path = folder / "timing.json"
    timing = json.loads(path.read_text()) if path.exists() else None
    if timing is None or "shares" not in timing["tokens_per_s"]:  # or of before there were shares
        return "Tokens a second: not measured yet (`build/venv/bin/python scripts/experiments/timing.py`, on an idle machine).\n\n"
    fixed, shares, by_speed = (", ".join(map(str, timing["tokens_per_s"][name])) for name in ("fixed", "shares", "by_speed"))
    return (f"Tokens a second, modes in turns (scripts/experiments/timing.py, commit {timing['commit']}; H = {timing['inner_steps']}, batches of "
            f"{timing['batch_tokens']} tokens, the fastest worker with half a core): fixed H {fixed}; parts of the batch by speed {shares}: "
            f"{', '.join(map(str, timing['ratios']['shares']))} times as many; steps by speed {by_speed}: {', '.join(map(str, timing['ratios']['by_speed']))} times.\n\n")
