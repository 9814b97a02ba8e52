"""DiLoCo that merges every 64 steps with 4 bits a number; what that costs in loss. What it sends is counted by wire.py."""
import json

from claims import Within
from plan import Arm
from studies.quality import DP

ORDER = 1
TITLE = "Few bytes: H = 64, int4"
FEW_BYTES = Arm("diloco-m2-h64-int4", nodes=2, sync={"mode": "diloco", "inner_steps": 64, "codec": "int4"})
ARMS = [DP, FEW_BYTES]
CLAIMS = [Within(FEW_BYTES, DP, 0.03)]


def extra(folder):
    """What wire.py has measured."""
    path = folder / "wire.json"
    if not path.exists():
        return "On the wire: not measured yet (`build/venv/bin/python scripts/experiments/wire.py`).\n\n"
    wire = json.loads(path.read_text())
    every = wire["data_parallel"]
    out = ["On the wire between two sites, both ways, counted by the kernel at one site's interface, all headers and signs of life included "
           f"(scripts/experiments/wire.py, commit {wire['commit']}, `{wire['topology'].splitlines()[-1]}`):\n\n"
           "| | a step takes | bytes a step | of the whole run | data parallel sends |\n|---|---|---|---|---|\n"
           f"| data parallel, f32 | {every['step_s']:.2f} s | {every['step']:,.0f} | {(every['once'] + every['step'] * wire['steps']) / 1e9:.2f} GB | |\n"]
    out += [f"| H = 64, int4 | {few['step_s']:.2f} s | {few['step']:,.0f} | {(few['once'] + few['step'] * wire['steps']) / 1e6:.1f} MB | {few['ratio']:.0f} times as much |\n"
            for few in wire["few_bytes"]]
    return "".join(out) + "\n"
