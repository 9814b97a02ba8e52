"""From a kill to the next committed step: what a job's events and metrics say of each strike of scripts/chaos_kills.py, and the table of all."""
import re
import statistics

PARTS = ("detection", "view", "step")


class Recovery:
    """Milliseconds from a strike to the first step that was committed in a view without its victims."""

    def __init__(self, strike, lost, view, step, back, disturbed):
        self.kind, self.unix_ms, self.back, self.disturbed = strike.kind, strike.unix_ms, back, disturbed
        self.total = step - strike.unix_ms
        self.parts = dict(zip(PARTS, (lost - strike.unix_ms, view - lost, step - view)))


def first_after(unix_ms, items, matches):
    return next((item for item in items if item[0] >= unix_ms and matches(item[1])), None)


def recovery_of(strike, strikes, rows, events):
    """None: the job ended before, or nobody was put out (a short pause)."""
    names = "|".join(f"p?{peer}" for peer in strike.peers)
    reason = ".*(silent|stopped by)" if strike.kind == "pause" else ""  # else it was killed later
    lost = first_after(strike.unix_ms - 5, events, re.compile(rf"\bpeer ({names})\b.* (is|was) lost{reason}").search)
    view = lost and first_after(lost[0], events, re.compile(r"^view \d+: ").match)
    if not view:
        return None
    number = int(re.match(r"view (\d+)", view[1])[1])
    # Of a job that was queued again views are counted from 1 anew.
    anew = first_after(lost[0], events, re.compile("goes on from checkpoint").search)
    row = next((row for row in rows if row["unix_ms"] >= lost[0] and (row["view"] >= number or (anew and row["unix_ms"] > anew[0]))), None)
    if row is None:
        return None
    back = first_after(lost[0], events, re.compile("training goes back|goes on from checkpoint").search)
    disturbed = any(other is not strike and strike.unix_ms < other.unix_ms < row["unix_ms"] for other in strikes) or \
        any(other is not strike and other.unix_ms < strike.unix_ms < other.over_ms for other in strikes)
    return Recovery(strike, lost[0], max(view[0], lost[0]), row["unix_ms"], back is not None and back[0] <= row["unix_ms"], disturbed)


def recoveries(strikes, rows, events):
    """`rows`: of metrics.jsonl in their order; `events`: (unix_ms, text), ascending."""
    found = []
    for strike in strikes:
        recovery = recovery_of(strike, strikes, rows, events) if strike.peers else None
        if recovery is not None:
            strike.over_ms = strike.unix_ms + recovery.total
            found.append(recovery)
    return found


def moves(rows, events):
    """[(MB, ms)]: rounds in which a shard came to a new rank, beside what a round takes otherwise: its length minus the median."""
    usual = usual_ms(rows)
    found = []
    for unix_ms, text in events:
        size = re.search(r"takes rank .*: ([0-9.]+) MB from", text)
        # A worker's event comes some time after its round, never before.
        at = size and max((i for i, row in enumerate(rows) if row["unix_ms"] <= unix_ms), default=0)
        if at:
            found.append((float(size[1]), rows[at]["unix_ms"] - rows[at - 1]["unix_ms"] - usual))
    return found


def usual_ms(rows):
    return statistics.median(b["unix_ms"] - a["unix_ms"] for a, b in zip(rows, rows[1:])) if len(rows) > 1 else 0.0


def spread(values):
    """"median, 90th of 100, worst", in ms."""
    ordered = sorted(values)
    return "%6.0f %6.0f %6.0f" % (statistics.median(ordered), ordered[min(len(ordered) - 1, len(ordered) * 9 // 10)], ordered[-1])


def table(found):
    """Lines: by what was struck, whether training went back to a checkpoint, and whether something else was struck in between."""
    lines = ["from the strike to the next step, ms     n  median   90th  worst   of which, medians: " + ", ".join(PARTS)]
    groups = {}
    for recovery in found:
        name = f"{recovery.kind}{', back to a checkpoint' if recovery.back else ''}{', others meanwhile' if recovery.disturbed else ''}"
        groups.setdefault(name, []).append(recovery)
    for name, group in sorted(groups.items()):
        parts = ", ".join("%.0f" % statistics.median(r.parts[part] for r in group) for part in PARTS)
        lines.append(f"{name:38s} {len(group):4d} {spread(r.total for r in group)}   {parts}")
    return lines
