"""The plot of scripts/bench_collectives.py: for each transport and world size a panel, for each vector size a group of bars,
one for each contender: bus bandwidth for large vectors, time for small ones. Plain SVG, so that nothing need be installed."""
from xml.sax.saxutils import escape

from bench_peers import BYTES, FLOOR, SMALL_BYTES

PANEL_W, PANEL_H, GAP, LEFT, TOP, COLUMNS = 330, 150, 62, 56, 64, 3
COLOURS = ["#1f4e9c", "#4f8fdd", "#9bbfee", "#7fa7a0"]  # ours
PEER_COLOURS = {**dict.fromkeys(FLOOR.values(), "#444444"), BYTES: "#999999", "Gloo halving-doubling": "#d1495b", "Gloo ring-chunked": "#e79aa4",
                "Open MPI tcp": "#edae49", "Open MPI shm": "#edae49", "PyTorch gloo": "#6a4c93", "PCCL": "#66a182"}


def text(x, y, words, size=11, anchor="start", weight="normal", colour="#222222"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}" '
            f'fill="{colour}">{escape(words)}</text>')


def bar(x, y, width, height, colour, title):
    return (f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{max(height, 0.5):.1f}" fill="{colour}">'
            f'<title>{escape(title)}</title></rect>')


def size_text(size):
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB" if size >= 1 << 10 else f"{size} B"


def round_up(value):
    """The next of 1, 2, 5 times a power of ten."""
    power = 1e-12
    while True:
        for digit in (1, 2, 5):
            if digit * power >= value * 0.999:
                return digit * power
        power *= 10


def panels_of(table):
    """{(transport, world, small?): [(bytes, {contender: row})]}, in order of size."""
    panels = {}
    for (transport, world, size), by_name in sorted(table.items(), key=lambda item: (item[0][0] != "tcp", item[0][1:])):
        panels.setdefault((transport, world, size < SMALL_BYTES), []).append((size, by_name))
    return panels


def draw_panel(key, groups, colours, x, y):
    transport, world, small = key
    def value(row):
        return row["median_s"] * 1e6 if small else row["busbw_gbps"]
    top = round_up(max(value(row) for _, by_name in groups for row in by_name.values()))
    unit = "us an op, lower is better" if small else "bus GB/s, higher is better"
    out = [text(x, y - 10, f"{transport}, {world} processes: {unit}", 12, weight="bold")]
    for tick in (0, 0.5, 1):
        line = y + PANEL_H * (1 - tick)
        out.append(f'<line x1="{x}" y1="{line:.1f}" x2="{x + PANEL_W}" y2="{line:.1f}" stroke="#dddddd"/>')
        out.append(text(x - 6, line + 4, f"{top * tick:g}", 10, "end"))
    step = PANEL_W / len(groups)
    for number, (size, by_name) in enumerate(groups):
        names = [name for name in colours if name in by_name]
        width = min(26, step * 0.9 / max(len(names), 1))
        start = x + step * number + (step - width * len(names)) / 2
        for place, name in enumerate(names):
            height = PANEL_H * value(by_name[name]) / top
            out.append(bar(start + place * width, y + PANEL_H - height, width - 1, height, colours[name],
                           f"{name}: {value(by_name[name]):.4g}"))
        out.append(text(x + step * (number + 0.5), y + PANEL_H + 14, size_text(size), 10, "middle"))
    return out


def draw(path, table, facts):
    names = list(dict.fromkeys(name for by_name in table.values() for name in by_name))
    ours = [name for name in names if name not in PEER_COLOURS]
    colours = {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(ours)}
    colours.update({name: colour for name, colour in PEER_COLOURS.items() if name in names})
    panels = panels_of(table)
    columns = min(COLUMNS, max(len(panels), 1))
    rows = -(-len(panels) // columns)
    width, height = LEFT + columns * (PANEL_W + GAP), TOP + 34 + rows * (PANEL_H + GAP)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif">',
           f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
           text(LEFT, 22, f"All-reduce of float32 on one machine: {facts['cpu']}, {facts['cores']} cores, Linux {facts['kernel']}, "
                f"{facts['date'][:10]}, commit {facts['commit']}, load {facts['load_before']:.1f}", 12)]
    at = LEFT
    for name, colour in colours.items():
        out += [f'<rect x="{at}" y="32" width="11" height="11" fill="{colour}"/>', text(at + 15, 42, name)]
        at += 34 + 6.4 * len(name)
    for number, (key, groups) in enumerate(panels.items()):
        out += draw_panel(key, groups, colours, LEFT + number % columns * (PANEL_W + GAP),
                          TOP + 24 + number // columns * (PANEL_H + GAP))
    path.write_text("\n".join(out + ["</svg>"]) + "\n")
