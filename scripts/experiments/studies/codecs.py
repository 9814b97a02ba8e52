"""How few bits a number may have: two workers, H = 32."""
from claims import Better, WithinSpread
from plan import Arm
from studies.quality import AVERAGE_2, DILOCO_2, DP, ISOLATED_2


def coded(name, **sync):
    return Arm(f"{DILOCO_2.name}-{name}", nodes=2, train=DILOCO_2.train, sync={**DILOCO_2.sync, **sync})


ORDER = 3
TITLE = "Codecs of the pseudo-gradients"
INT8, INT4 = coded("int8", codec="int8"), coded("int4", codec="int4")
INT2, INT2_BARE = coded("int2", codec="int2"), coded("int2-no-feedback", codec="int2", feedback=-1)
ARMS = [DILOCO_2, INT8, INT4, INT2, INT2_BARE, DP, AVERAGE_2, ISOLATED_2]
CLAIMS = [WithinSpread(INT8, DILOCO_2), WithinSpread(INT4, DILOCO_2), Better(INT2, INT2_BARE)]
NOTES = "int2 has error feedback 0.95 unless its name says otherwise; the others have none."
