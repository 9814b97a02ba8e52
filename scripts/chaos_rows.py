"""Whether metrics.jsonl of a job of scripts/chaos_sharded.py has a row for each step, or merge, that counts; and rounds that memberd has no record of. Pure."""
import math
import re

RECORDS_MS = 400  # records of rounds are sent every 200 ms, and written then
WHOLE_LOSS = "every worker was lost"


def steps_back(events):
    """Of checkpoints that training went back to."""
    words = r"training goes back from step \d+ to the checkpoint of step (\d+)|goes on from checkpoint \S*/step-(\d+)|/step-(\d+) is taken instead"
    return {int(next(filter(None, found.groups()))) for found in (re.search(words, text) for _, text in events) if found}


def times_back(rows, events):
    """To a checkpoint. Who is to tell of it may be lost just then, and where no step was undone rows do not show it."""
    told = sum("training goes back" in text or "goes on from checkpoint" in text for _, text in events)
    return max(told, sum(after["step"] <= before["step"] for before, after in zip(rows, rows[1:])))


def steps_that_count(rows, events, apart=1):
    """Steps of rows, less those that were undone and not done again: where steps do not ascend training has gone back to a checkpoint before, so many steps at most. (Events come some time after what they tell, or not, so times say nothing
    here. The step behind the checkpoint may come out the same as before: then its row is not written again.)"""
    kept, checkpoints = [], steps_back(events)
    for row in rows:
        if kept and row["step"] <= kept[-1]:
            back = max((step for step in checkpoints if row["step"] - apart <= step < row["step"]), default=row["step"] - 1)
            kept = [step for step in kept if step <= back]
        kept.append(row["step"])
    return set(kept)


def spacing(sync):
    """Steps from a row to the next one: as a rule, and at most. A merge that is under way is dropped where training goes back, and told with the one before where the mesh changes. None: it goes by time."""
    if not sync:
        return 1, 1
    if "inner_steps" not in sync:
        return None
    usual = math.ceil(sync["inner_steps"] / sync.get("fragments", 1))
    return usual, usual * (2 if sync["mode"] in ("eager", "streaming") else 1)


def rows_lost(kind, rows, events):
    """Of a job that ended. Merges in which no replica had trained, as each lacked a worker, have none either: of replicas that train apart the number says where to look, not that something is wrong."""
    space = spacing(kind.sync)
    if space is None:
        return 0
    usual, most = space
    steps = sorted(steps_that_count(rows, events, most))
    return sum(math.ceil(max(0, after - before - most) / usual) for before, after in zip([0, *steps], [*steps, kind.steps]))


def unrecorded_most(rows, events):
    """Who commits a round tells memberd soon: where all who know of some are lost before, a checkpoint may have what they did, and no record ever comes. A round that writes a checkpoint comes beside a step's."""
    most = 0
    for unix_ms, _ in (event for event in events if WHOLE_LOSS in event[1]):
        times = [row["unix_ms"] for row in rows if row["unix_ms"] <= unix_ms]
        most += 2 * sum(time > times[-1] - RECORDS_MS for time in times) if times else 0
    return most
