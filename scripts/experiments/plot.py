"""A study's plot: on the left validation loss by tokens, means over seeds; on the right the last losses, a dot a seed. Plain SVG, so that
nothing need be installed."""
import math
from xml.sax.saxutils import escape

import claims

WIDTH, HEIGHT, LEFT, TOP, GAP, ROW = 420, 260, 56, 40, 230, 24
COLOURS = ["#444444", "#1f4e9c", "#edae49", "#d1495b", "#4f8fdd", "#b5862a", "#e79aa4"]


def words(x, y, text, size=11, anchor="start", weight="normal"):
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}" fill="#222222">{escape(text)}</text>'


def ticks(low, high, most=5):
    """Round numbers within low..high."""
    raw = (high - low) / most or 1
    power = 10 ** math.floor(math.log10(raw))
    step = next(digit * power for digit in (1, 2, 5, 10) if digit * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]


def mean_curve(results):
    """[(tokens, loss)] where all have a value."""
    by_tokens = {}
    for result in results:
        per_step = result["tokens"] / result["settings"]["train"]["steps"]
        points = dict((step, loss) for step, loss in result["validation"]) | {result["settings"]["train"]["steps"]: result["val_loss"]}
        for step, loss in points.items():
            by_tokens.setdefault(step * per_step, []).append(loss)
    return [(tokens, claims.mean(losses)) for tokens, losses in sorted(by_tokens.items()) if len(losses) == len(results)]


def scale(low, high, start, length):
    return lambda value: start + length * (value - low) / ((high - low) or 1)


def axis(low, high, place, line, text_at):
    return [part for tick in ticks(low, high) for part in (line(place(tick)), text_at(place(tick), f"{tick:g}"))]


def draw_curves(curves, colours):
    points = [point for curve in curves.values() for point in curve[1:] or curve]
    low, high = min(loss for _, loss in points), max(loss for _, loss in points)
    high = min(high, low * 1.5)
    most = max(tokens for tokens, _ in points)
    x, y = scale(0, most / 1e6, LEFT, WIDTH), scale(low, high, TOP + HEIGHT, -HEIGHT)
    out = axis(low, high, y, lambda at: f'<line x1="{LEFT}" y1="{at:.1f}" x2="{LEFT + WIDTH}" y2="{at:.1f}" stroke="#dddddd"/>',
               lambda at, text: words(LEFT - 6, at + 4, text, 10, "end"))
    out += axis(0, most / 1e6, x, lambda at: "", lambda at, text: words(at, TOP + HEIGHT + 15, text, 10, "middle"))
    out.append(words(LEFT + WIDTH / 2, TOP + HEIGHT + 30, "million tokens", 10, "middle"))
    for name, curve in curves.items():
        path = " ".join(f"{x(tokens / 1e6):.1f},{y(loss):.1f}" for tokens, loss in curve if loss <= high)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colours[name]}" stroke-width="1.6"><title>{escape(name)}</title></polyline>')
    return out


def draw_dots(losses, colours):
    every = [loss for by_seed in losses.values() for loss in by_seed.values()]
    low, high = min(every), max(every)
    room = (high - low) * 0.06 or 0.01
    left = LEFT + WIDTH + GAP
    x = scale(low - room, high + room, left, WIDTH)
    bottom = TOP + ROW * len(losses)
    out = axis(low - room, high + room, x, lambda at: f'<line x1="{at:.1f}" y1="{TOP}" x2="{at:.1f}" y2="{bottom}" stroke="#dddddd"/>',
               lambda at, text: words(at, bottom + 15, text, 10, "middle"))
    for number, (name, by_seed) in enumerate(losses.items()):
        y = TOP + ROW * (number + 0.5)
        out.append(words(left - 10, y + 4, name, 11, "end"))
        out += [f'<circle cx="{x(loss):.1f}" cy="{y:.1f}" r="4" fill="{colours[name]}" fill-opacity="0.75"><title>seed {seed}: {loss:.4f}</title></circle>'
                for seed, loss in by_seed.items()]
    return out


def draw(path, study, found):
    """False: nothing has been run."""
    there = {name: by_seed for name, by_seed in found.items() if by_seed}
    if not there:
        return False
    colours = {arm.name: COLOURS[number % len(COLOURS)] for number, arm in enumerate(study.ARMS)}
    curves = {name: mean_curve(list(by_seed.values())) for name, by_seed in there.items()}
    losses = {name: {seed: result["val_loss"] for seed, result in by_seed.items()} for name, by_seed in there.items()}
    width, height = LEFT + 2 * WIDTH + GAP + 30, TOP + max(HEIGHT, ROW * len(losses)) + 44
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif">',
           f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
           words(LEFT, 24, "validation loss, nats a byte, mean over seeds", 12, weight="bold"),
           words(LEFT + WIDTH + GAP, 24, "at the end, a dot a seed", 12, weight="bold")]
    out += draw_curves(curves, colours) + draw_dots(losses, colours)
    path.write_text("\n".join(filter(None, out)) + "\n</svg>\n")
    return True
