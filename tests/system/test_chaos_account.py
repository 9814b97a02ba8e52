"""What scripts/chaos_sharded.py says of strikes, rows and kinds of jobs: by made up strikes, events and rows; and memberd takes each kind."""
import random
import sys
import types

import pytest

from harness import Cluster
from stubs import ROOT, pb

sys.path.insert(0, str(ROOT / "scripts"))

import chaos_checks  # noqa: E402
import chaos_jobs  # noqa: E402
import chaos_recovery  # noqa: E402
import chaos_rows  # noqa: E402


def strike(kind, unix_ms, *peers, seconds=0):
    return types.SimpleNamespace(kind=kind, peers=set(peers), unix_ms=unix_ms, over_ms=unix_ms, seconds=seconds)


def rows_at(*times, view=1, first=1):
    return [{"step": first + i, "unix_ms": unix_ms, "view": view} for i, unix_ms in enumerate(times)]


LOSS = [(1010, "peer 8 (rank 0 on node-1) was lost: killed by SIGKILL"), (1020, "view 2: 3 peers, round 5 is done again: peer p8 on node-1 was lost")]


# ---- strikes

def test_a_kill_is_timed_to_the_first_step_of_a_view_without_its_victim():
    found, untimed = chaos_recovery.recoveries([strike("worker", 1000, 8)], rows_at(900, 1005) + rows_at(1100, view=2, first=3), LOSS, "job 1")
    assert [(one.total, one.parts, one.name, one.job) for one in found] == [(100, {"detection": 10, "view": 10, "step": 80}, "worker", "job 1")] and not untimed


def test_back_to_a_checkpoint_and_what_is_struck_meanwhile_are_named():
    events = LOSS + [(1030, "no worker is left that holds a: training goes back from step 5 to the checkpoint of step 3")]
    strikes = [strike("worker", 1000, 8), strike("memberd", 1040)]
    found, _ = chaos_recovery.recoveries(strikes, rows_at(900) + rows_at(1100, 1150, view=2), events)
    assert [one.name for one in found] == ["worker, back to a checkpoint, others meanwhile", "memberd, others meanwhile"]


def test_memberd_is_timed_to_a_step_that_was_committed_after_it():
    """The first row behind the strike may be of a step before it."""
    found, _ = chaos_recovery.recoveries([strike("memberd", 1000)], rows_at(990, 1002, 1700, 1750), [])
    assert [(one.name, one.total) for one in found] == [("memberd", 700)]


def test_what_puts_nobody_out_is_timed_to_the_next_step():
    found, untimed = chaos_recovery.recoveries([strike(kind, 1000, 8) for kind in ("pause", "split", "cut")], rows_at(990, 1010, 1300), [])
    assert [(one.name, one.total) for one in found] == [(f"{kind}, nobody put out", 300) for kind in ("pause", "split", "cut")] and not untimed


def test_a_loss_is_by_the_last_that_struck():
    """Peer 8 was cut off for a while that did no harm, and killed later."""
    rows = rows_at(900, 910, 930) + rows_at(1100, view=2, first=4)
    found, _ = chaos_recovery.recoveries([strike("split", 905, 8, 9), strike("worker", 1000, 8)], rows, LOSS)
    assert [(one.name, one.total) for one in found] == [("split, nobody put out", 25), ("worker", 100)]
    silent = [(unix_ms, text.replace("killed by SIGKILL", "node node-1 was lost: silent for 1.0 s")) for unix_ms, text in LOSS]
    found, _ = chaos_recovery.recoveries([strike("split", 905, 8, 9), strike("split", 1000, 8)], rows, silent)
    assert [(one.name, one.total) for one in found] == [("split, nobody put out", 25), ("split", 100)]


def test_who_stands_still_and_is_lost_with_its_node_is_not_lost_by_that():
    gone = [(1010, "peer 8 (rank 0 on node-1) was lost: node node-1 was lost: its process ended (its lifeline closed)"), LOSS[1]]
    found, _ = chaos_recovery.recoveries([strike("pause", 905, 8)], rows_at(900, 910, 930) + rows_at(1100, view=2, first=4), gone)
    assert [one.name for one in found] == ["pause, nobody put out"]


def test_a_split_strikes_until_it_is_healed():
    rows = rows_at(900, 910, 930) + rows_at(1100, view=2, first=4)
    found, _ = chaos_recovery.recoveries([strike("split", 905, 9, seconds=5), strike("worker", 1000, 8)], rows, LOSS)
    assert [one.name for one in found] == ["split, nobody put out", "worker, beside a split"]


@pytest.mark.parametrize("struck, rows, events, why", [
    (strike("memberd", 1000), rows_at(900, 1002), [], "the job was at its end"),
    (strike("pause", 1000, 8), rows_at(900, 1002), [], "the job was at its end"),
    (strike("worker", 1000, 8), rows_at(900), [], "the job was at its end"),
    (strike("split", 1000), rows_at(900, 1100, 1200), [], "it met nobody of the job"),
    (strike("worker", 1000, 8), rows_at(900, 1100, 1200), [], "no event tells of the loss"),
    (strike("worker", 1000, 9), rows_at(900, 1100, 1200), LOSS, "no event tells of the loss"),
    (strike("traind", 1000, 8), rows_at(900, 1100, 1200), LOSS[:1], "no view came after it"),
    (strike("node for good", 1000, 8), rows_at(900, 1100, 1200), LOSS, "no step was left"),
])
def test_what_is_not_timed_says_why(struck, rows, events, why):
    found, untimed = chaos_recovery.recoveries([struck], rows, events)
    assert not found and untimed == {(struck.kind, why): 1}
    assert chaos_recovery.summary(found, untimed) == [f"0 of 1 strikes timed; not timed: {struck.kind} 1 ({why})"]


def test_the_longest_strike_is_named():
    found, untimed = chaos_recovery.recoveries([strike("memberd", 100), strike("memberd", 1000)], rows_at(110, 190, 1002, 1700), [], "job 3 (wide: dp 2)")
    assert chaos_recovery.summary(found, untimed) == ["2 of 2 strikes timed", "the longest, 700 ms: memberd, job 3 (wide: dp 2), at unix_ms 1000"]


# ---- rows

BACK = [(1000, "no worker is left that holds a: training goes back from step 5 to the checkpoint of step 3")]


def rows_of_steps(steps):
    return [{"step": step, "unix_ms": step, "view": 1} for step in steps]


@pytest.mark.parametrize("sync, first, apart", [
    (None, 1, 1), ({"mode": "diloco", "inner_steps": 5}, 5, 5), ({"mode": "eager", "inner_steps": 5}, 10, 5), ({"mode": "streaming", "inner_steps": 5, "fragments": 2}, 4, 3),
])
def test_each_step_or_merge_has_a_row(sync, first, apart):
    kind = chaos_jobs.Kind(2, 1, 2, sync=sync)
    steps = sorted({*range(first, kind.steps, apart), kind.steps})
    assert chaos_rows.rows_lost(kind, rows_of_steps(steps), []) == 0
    assert chaos_rows.rows_lost(kind, rows_of_steps(steps[:7] + steps[10:]), []) == (3 if first == apart else 2)
    assert chaos_rows.rows_lost(kind, rows_of_steps(steps[:-4]), []) >= 2


def test_merges_by_time_say_nothing_of_steps():
    assert chaos_rows.rows_lost(chaos_jobs.Kind(2, 1, 2, sync={"mode": "diloco", "inner_seconds": 0.1}), rows_of_steps([3, 70, 450]), []) == 0


def test_rows_that_were_undone_do_not_stand_for_those_that_lack():
    """The event comes behind the first of the new rows, as it may; or not at all."""
    again = rows_at(910, 920, 930, 940, 950) + rows_at(960, 970, 1100, 1110, first=4)
    for events in (BACK, []):
        assert chaos_rows.steps_that_count(again, events) == set(range(1, 8))
        assert chaos_rows.steps_that_count(again[:5] + again[6:], events, apart=2) == ({1, 2, 3, 5, 6, 7} if events else set(range(1, 8)))


def test_a_row_that_is_not_written_again_counts():
    """The step behind the checkpoint was the last one, and came out the same: its row is there."""
    assert chaos_rows.steps_that_count(rows_at(900, 910, 920, 930) + rows_at(1100, 1110, first=5), BACK) == set(range(1, 7))


def test_a_way_back_that_nobody_told():
    rows = rows_at(900, 910, 930) + rows_at(1100, view=2, first=2)
    assert chaos_rows.times_back(rows, LOSS) == 1 and chaos_rows.times_back(rows[:3], BACK) == 1
    found, _ = chaos_recovery.recoveries([strike("worker", 1000, 8)], rows, LOSS)
    assert [one.name for one in found] == ["worker, back to a checkpoint"]


def test_checkpoints_that_training_went_back_to():
    queued = [(2000, "queued: every worker was lost (the last: node n was lost): goes on from checkpoint /tmp/job/step-00000040"),
              (2500, "checkpoint.resume: /tmp/job/step-00000040: found no manifest.json in it: /tmp/job/step-00000060 is taken instead, 20 steps after it")]
    assert chaos_rows.steps_back(BACK + queued) == {3, 40, 60}


def test_records_lack_where_all_who_knew_of_them_are_lost():
    rows = rows_at(500, 1000, 1200, 1500, 3000)
    assert chaos_rows.unrecorded_most(rows, BACK) == 0
    assert chaos_rows.unrecorded_most(rows, [(2000, "queued: every worker was lost (the last: x): goes on from checkpoint /tmp/job/step-40")]) == 4


# ---- kinds of jobs

def test_two_hundred_kills_are_of_all_kinds():
    for seed in range(20):
        kinds, left, struck = chaos_jobs.in_turn(random.Random(seed)), 200, []
        assert set(kinds) == {*(("tight", kind) for kind in chaos_jobs.TIGHT), *(("wide", kind) for kind in chaos_jobs.WIDE)} and len(kinds) == len(set(kinds))
        assert [place for place, _ in kinds[:4]] == ["tight", "wide", "tight", "wide"]
        for number, pair in enumerate(kinds):
            kills = chaos_jobs.kills_of_next(left, len(kinds) - number)
            left -= kills
            struck += [pair] * (kills > 0)
        assert struck == kinds and left == 0
    assert chaos_jobs.in_turn(random.Random(1)) != chaos_jobs.in_turn(random.Random(2))


def test_a_few_kills_are_of_few_jobs():
    assert [chaos_jobs.kills_of_next(left, 32) for left in (10, 4, 1000)] == [6, 4, 12]


def test_planned_anew():
    plans = ["mesh: a step takes 681 ms, planned were 30 ms, as peer 5 computes at 24 % of the speed that it was planned with: goes on with dp 1 instead of dp 1 x pp 2, by prediction 63.4 ms",
             "mesh: with 2 workers a step takes 32.5 ms, planned were 30 ms: goes on with dp 2 instead of dp 1, 1 spare, by prediction 20.9 ms",
             "mesh: a step takes 115 ms, planned were 355 ms: stays with dp 1, 1 spare, as no other plan would take less",
             "mesh: of a step stage 1 computes 443 ms, stage 0 45.2 ms: goes on with dp 1 x pp 2, layers 5 : 1", "mesh: dp 2 x tp 2"]
    assert chaos_checks.plans_of([(1, text) for text in plans]) == (2, 1)


def test_each_kind_is_one_that_can_run(tmp_path):
    """What memberd refuses ends a run of chaos, once its turn comes."""
    with Cluster(tmp_path / "cluster", nodes=1) as cluster:
        node = cluster.list_nodes()[0].id
        for number, (_, kind) in enumerate(chaos_jobs.in_turn(random.Random(1))):
            spec = chaos_jobs.job_spec(pb, tmp_path / f"job-{number}", kind, chaos_jobs.MODELS[0])
            if kind.auto:
                chaos_jobs.plan(pb, spec, kind, [node], kind.workers, random.Random(1))
            else:
                chaos_jobs.spread(spec, kind, range(4))
            cluster.api().CancelJob(pb.CancelJobRequest(job_id=cluster.submit(spec)))
