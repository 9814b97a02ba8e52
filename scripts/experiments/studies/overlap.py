"""Merges that are on their way while training goes on."""
from claims import Better, Within
from plan import Arm
from studies.quality import DILOCO_2

ORDER = 4
TITLE = "Overlap: streaming and eager"
STREAMING = Arm("streaming-m2", nodes=2, sync={"mode": "streaming", "inner_steps": 32, "fragments": 3, "overlap": 5})
EAGER = Arm("eager-m2", nodes=2, sync={"mode": "eager", "inner_steps": 32})
NAIVE = Arm("naive-delay-m2", nodes=2, sync=EAGER.sync, program="naive-delay")
ARMS = [DILOCO_2, STREAMING, EAGER, NAIVE]
CLAIMS = [Within(STREAMING, DILOCO_2, 0.01), Within(EAGER, DILOCO_2, 0.04), Better(EAGER, NAIVE)]
NOTES = """*naive-delay* is eager without the worker's own share while the average is under way (arXiv 2502.12996, section 3): `variants/naive-delay.patch` changes one
number of collectives/sync; the product has no such mode. Loss only: these runs share processors with whatever else runs."""
