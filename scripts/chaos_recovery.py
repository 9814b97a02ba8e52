"""From a kill to the next committed step: what a job's events and metrics say of each strike of scripts/chaos_kills.py, and the table of all."""
import collections
import re
import statistics

PARTS = ("detection", "view", "step")
AT_END = "the job was at its end"
MAY_PASS = ("pause", "cut", "split")  # short ones, of which nobody is put out
QUIET = "silent|stopped by|no answer|not answer|cannot reach"  # who is put out by a pause or a split; else it was lost by something else


class Recovery:
    """Milliseconds from a strike to the first step that was committed in a view without its victims; of one that put nobody out, to the first step."""

    def __init__(self, strike, step, lost=None, view=None, back=False, beside="", job=""):
        self.kind, self.unix_ms, self.back, self.beside, self.job = strike.kind, strike.unix_ms, back, beside, job
        self.total = step - strike.unix_ms
        self.parts = dict(zip(PARTS, (lost - strike.unix_ms, view - lost, step - view))) if lost is not None else {}

    @property
    def name(self):
        passed = self.kind in MAY_PASS and not self.parts
        return f"{self.kind}{', nobody put out' * passed}{', back to a checkpoint' * self.back}{self.beside}"


def first_after(unix_ms, items, matches):
    return next((item for item in items if item[0] >= unix_ms and matches(item[1])), None)


def beside(strike, strikes, until_ms):
    """What else struck meanwhile, or went on, in words."""
    others = [other.kind for other in strikes if other is not strike and
              (strike.unix_ms < other.unix_ms < until_ms or other.unix_ms < strike.unix_ms < other.over_ms)]
    return "" if not others else ", beside a split" if "split" in others else ", others meanwhile"


def loss_of(strike, strikes, events):
    """The event. Who was struck by what may pass, and was struck again before, was lost by that."""
    names, reason = "|".join(str(peer) for peer in strike.peers), rf".*({QUIET})" if strike.kind in ("pause", "split") else ""
    for unix_ms, text in events:
        found = re.search(rf"\bpeer p?({names})\b.* (is|was) lost{reason}", text) if unix_ms >= strike.unix_ms - 5 else None
        if found and not (strike.kind in MAY_PASS and any(strike.unix_ms < other.unix_ms <= unix_ms + 5 and int(found[1]) in other.peers for other in strikes)):
            return unix_ms, text
    return None


def next_step(strike, strikes, rows, job):
    """Of a strike that put nobody out. A row is written just behind its commit: one that was committed before the strike may be the first."""
    after = [row["unix_ms"] for row in rows if row["unix_ms"] > strike.unix_ms]
    if len(after) < 2:
        return AT_END
    return Recovery(strike, after[1], beside=beside(strike, strikes, after[1]), job=job)


def recovery_of(strike, strikes, rows, events, job=""):
    """Or a text: why it cannot be told."""
    if all(row["unix_ms"] <= strike.unix_ms for row in rows):
        return AT_END
    if strike.kind == "memberd":
        return next_step(strike, strikes, rows, job)
    if not strike.peers:
        return "it met nobody of the job"
    lost = loss_of(strike, strikes, events)
    if lost is None:
        return next_step(strike, strikes, rows, job) if strike.kind in MAY_PASS else "no event tells of the loss"
    view = first_after(lost[0], events, re.compile(r"^view \d+: ").match)
    if view is None:
        return "no view came after it"
    number = int(re.match(r"view (\d+)", view[1])[1])
    # Of a job that was queued again views are counted from 1 anew.
    anew = first_after(lost[0], events, re.compile("goes on from checkpoint").search)
    at = next((i for i, row in enumerate(rows) if row["unix_ms"] >= lost[0] and (row["view"] >= number or (anew and row["unix_ms"] > anew[0]))), None)
    if at is None:
        return "no step was left"
    step_ms, back = rows[at]["unix_ms"], first_after(lost[0], events, re.compile("training goes back|goes on from checkpoint").search)
    # Who is to tell of it may be lost just then.
    went_back = back is not None and back[0] <= step_ms or at > 0 and rows[at]["step"] <= rows[at - 1]["step"]
    return Recovery(strike, step_ms, lost[0], max(view[0], lost[0]), went_back, beside(strike, strikes, step_ms), job)


def recoveries(strikes, rows, events, job=""):
    """(those that are timed, {(what was struck, why it is not): how often}). `rows`: of metrics.jsonl in their order; `events`: (unix_ms, text), ascending; `job`: its name."""
    found, untimed = [], collections.Counter()
    for strike in strikes:
        recovery = recovery_of(strike, strikes, rows, events, job)
        if isinstance(recovery, str):
            untimed[strike.kind, recovery] += 1
        else:
            found.append(recovery)
        strike.over_ms = strike.unix_ms + max(1e3 * strike.seconds, 0 if isinstance(recovery, str) else recovery.total)
    return found, untimed


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
    lines = ["from the strike to the next step, ms            n  median   90th  worst   of which, medians: " + ", ".join(PARTS)]
    groups = {}
    for recovery in found:
        groups.setdefault(recovery.name, []).append(recovery)
    for name, group in sorted(groups.items()):
        told = [r.parts for r in group if r.parts]
        parts = ", ".join("%.0f" % statistics.median(of[part] for of in told) for part in PARTS) if told else ""
        lines.append(f"{name:45s} {len(group):4d} {spread(r.total for r in group)}   {parts}".rstrip())
    return lines


def summary(found, untimed):
    """Lines: how many strikes are timed, why the others are not, and which took longest."""
    words = [f"{kind} {count} ({why})" for (kind, why), count in sorted(untimed.items())]
    lines = [f"{len(found)} of {len(found) + untimed.total()} strikes timed" + (f"; not timed: {', '.join(words)}" if words else "")]
    if found:
        worst = max(found, key=lambda recovery: recovery.total)
        lines.append(f"the longest, {worst.total:.0f} ms: {worst.name}, {worst.job}, at unix_ms {worst.unix_ms:.0f}")
    return lines
