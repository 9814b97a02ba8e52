"""The same with batches of 4096 tokens, so an eighth of the steps: 32 of them are a larger part of the training, and the gap is too."""
from claims import Better, Within
from plan import Arm

ORDER = 7
SEEDS = (1,)
TITLE = "Large batches"
TRAIN = {"steps": 3648, "batch_tokens": 4096, "lr": 8e-3, "min_lr": 8e-4, "warmup": 128, "beta2": 0.95}
DP = Arm("large-dp", train=TRAIN)
DILOCO_2 = Arm("large-diloco-m2", nodes=2, train=TRAIN, sync={"mode": "diloco", "inner_steps": 32})
AVERAGE_2 = Arm("large-average-m2", nodes=2, train=TRAIN, sync={"mode": "local_sgd", "inner_steps": 32})
FEW_BYTES = Arm("large-diloco-m2-h64-int4", nodes=2, train=TRAIN, sync={"mode": "diloco", "inner_steps": 64, "codec": "int4"})
ARMS = [DP, DILOCO_2, AVERAGE_2, FEW_BYTES]
CLAIMS = [Within(DILOCO_2, DP, 0.01), Better(DILOCO_2, AVERAGE_2)]
NOTES = "Outer rate 0.7 and momentum 0.9, the papers'."
