"""DiLoCo that merges every 64 steps with 4 bits a number, or 2; what that costs in loss. What it sends is counted by wire.py."""
import json

from claims import Within
from plan import Arm
from studies.quality import AVERAGE_2, DILOCO_2, DP, ISOLATED_2

ORDER = 1
TITLE = "Few bytes: H = 64, int4 and int2"
FEW_BYTES = Arm("diloco-m2-h64-int4", nodes=2, train=DILOCO_2.train, sync={"mode": "diloco", "inner_steps": 64, "codec": "int4"})
FEWER_BYTES = Arm("diloco-m2-h64-int2", nodes=2, train=DILOCO_2.train, sync={"mode": "diloco", "inner_steps": 64, "codec": "int2"})
ARMS = [DP, FEW_BYTES, FEWER_BYTES, AVERAGE_2, ISOLATED_2]
CLAIMS = [Within(FEW_BYTES, DP, 0.03), Within(FEWER_BYTES, DP, 0.03)]
NOTES = """A block of 128 numbers is 66 bytes in int4 and 512 in f32: 1/496 before any header, and 1/485 with headers and signs of life. A merge has more of these than a gradient: a burst
after a pause is acknowledged packet by packet (6.3 % of headers and acknowledgements, where data parallel has 4.1 %; of its bytes on the wire here, 6.2 MB a step, 6 % are no gradient), frames' headers are 1 %. Signs of life are for each second, not for each
step: 0.8 kB/s of both ways, half of it heartbeats to memberd, so they weigh where steps are slow. Over long ways encoded elements are packed without loss (collectives/transport/packing.h): most of a
block's numbers are small beside its largest, so a code of Huffman's takes 9 % less for these movements in int4. Without it 1/500 was missed (1/485 and 1/476). int2, which has error
feedback, takes 34 bytes a block."""


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
    for few in wire["few_bytes"]:
        late = f", behind {few['after']:,} steps" if few["after"] else ""
        out.append(f"| H = 64, {few['codec']}{late} | {few['step_s']:.2f} s | {few['step']:,.0f} | {(few['once'] + few['step'] * wire['steps']) / 1e6:.1f} MB "
                   f"| {few['ratio']:.0f} times as much |\n")
    return "".join(out) + "\n"
