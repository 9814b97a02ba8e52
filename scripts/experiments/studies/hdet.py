"""HDET that begins with a wrong learning rate."""
from claims import Recovers
from plan import Arm
from studies.quality import AVERAGE_4, DP, ISOLATED_4

ORDER = 6
TITLE = "HDET: begun at a ninth and at nine times the best learning rate"


def at(kind, name, factor, **sync):
    train = {key: rate * factor for key, rate in AVERAGE_4.train.items()}
    return Arm(f"{kind}-m4-lr-{name}", nodes=4, train=train, sync={**AVERAGE_4.sync, **sync})


LOW, HIGH = at("average", "ninth", 1 / 9), at("average", "times-9", 9)
HDET_LOW, HDET_HIGH = (at("hdet-search", name, factor, mode="hdet", lr_search=True) for name, factor in (("ninth", 1 / 9), ("times-9", 9)))
PAPERS = at("hdet", "ninth", 1 / 9, mode="hdet", lr_spread=0.3)  # of Tuning
ARMS = [AVERAGE_4, LOW, HDET_LOW, HIGH, HDET_HIGH, DP, ISOLATED_4]
CLAIMS = [Recovers(HDET_LOW, LOW, AVERAGE_4, 0.8), Recovers(HDET_HIGH, HIGH, AVERAGE_4, 0.8)]
NOTES = """All average their parameters every 32 steps; of the gap between a wrong rate and the right one, held fixed, the claim says how much HDET makes good. *hdet-search* has `lr_search` (two races from the beginning);
the paper's own rule is *hdet-m4-lr-ninth* under Tuning. The best rate is by a rule, sqrt(4) times data parallel's, not by tuning."""
