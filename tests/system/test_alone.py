"""A worker whose machine is cut off trains on alone, and what it learned is merged when it is back (sync.alone_steps), or dropped if it comes too late.
Machines are sites of a laboratory; root is needed: without it these tests are skipped."""
import re
import sys

import pytest

from harness import wait_for
from stubs import ROOT
from test_samples import check_once, check_sums, consumed, counted_of
from test_training import text  # noqa: F401 (a fixture)
from wan_lab import WanLab, missing

sys.path.insert(0, str(ROOT / "scripts" / "experiments"))
from sites import Sites  # noqa: E402

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))

# What is between two merges is the network's: some 0.3 s.
APART = "site a\nsite b\nsite c\nlink all all delay=40ms rate=100mbit queue=200ms"
MODEL = {"preset": "gpt2", "layers": 2, "width": 32, "heads": 2, "context": 32, "vocab": "bytes"}
BATCH = 6


def launch(sites, text, steps, **sync):  # noqa: F811
    train = {"steps": steps, "batch_tokens": BATCH * MODEL["context"], "micro_sequences": 2, "lr": 4e-3, "warmup": 20, "clip": 1.0, "seed": 1}
    return sites.launch({"name": "alone", "model": MODEL, "data": {"text": [str(text)]}, "train": train,
                         "mesh": {"nodes": 3, "min_nodes": 2, "threads": 1}, "sync": sync, "checkpoint": {"dir": str(sites.folder / "checkpoints")}})


def merges(sites, number):
    return sites.job(number)["rounds"]["committed"]


def await_merges(sites, number, more):
    before = merges(sites, number)
    wait_for(lambda: merges(sites, number) >= before + more, "merges")


def peers(sites, number, node):
    return [peer["id"] for peer in sites.job(number)["peers"] if peer["node"] == node]


def events(sites, number):
    return "\n".join(event["text"] for event in sites.job(number)["events"])


def cut_off(sites, number, more):
    """Site c, until the others have merged so often without it. Its peer."""
    await_merges(sites, number, 3)
    peer, = peers(sites, number, "c")
    sites.lab.do("cut a c", "cut b c")
    wait_for(lambda: "trains on alone" in sites.worker_output("c"), "it to train on")
    await_merges(sites, number, more)
    sites.lab.do("heal a c", "heal b c")
    return peer


@pytest.fixture
def lab(tmp_path):
    (tmp_path / "samples").mkdir()
    with WanLab(APART) as made:
        made.environment["TRAIND_SAMPLES_LOG"] = str(tmp_path / "samples")
        yield made


@pytest.mark.parametrize("sync", [dict(mode="diloco", inner_steps=4), dict(mode="eager", inner_steps=4),
                                  dict(mode="streaming", inner_steps=4, fragments=2, overlap=1), dict(mode="diloco", inner_seconds=0.05)],
                         ids=["diloco", "eager", "streaming", "diloco-by-time"])
def test_what_was_learned_alone_is_merged(lab, tmp_path, text, sync):  # noqa: F811
    """Each sample that anybody trained on is counted, once: also those of the time alone."""
    by_time = "inner_seconds" in sync
    with Sites(lab, tmp_path, {name: name for name in "abc"}) as sites:
        number = launch(sites, text, 4000 if by_time else 400, alone_steps=400 if by_time else 60, alone_after_seconds=0.6, **sync)
        was = cut_off(sites, number, 3)
        wait_for(lambda: "is back" in events(sites, number), "what it learned")
        said = re.search(r"peer (\d+) is back: what it learned as peer (\d+) in (\d+) samples goes into its first merge", events(sites, number))
        assert said, events(sites, number)
        assert int(said[2]) == was and int(said[3]) > 0 and int(said[1]) in peers(sites, number, "c")
        assert "keeps what it learned since its last merge" in sites.worker_output("c")
        sites.await_end(number)
        told, by_peer = check_sums(sites.trainctl("samples", str(number))), consumed(tmp_path)
        used = check_once(by_peer.values())
        assert len(by_peer) == 4 and len(by_peer[was]) >= int(said[3])
        assert counted_of(told) == len(used) == sites.job(number)["rounds"]["samples"]
        wait_for(lambda: not list((tmp_path / "node-c").glob("kept/group-*")), "nothing to be kept any more")


def test_who_comes_too_late_is_told_so(lab, tmp_path, text):  # noqa: F811
    """The others went on for more than its samples are kept for it: they have used them."""
    with Sites(lab, tmp_path, {name: name for name in "abc"}) as sites:
        number = launch(sites, text, 400, mode="diloco", inner_steps=4, alone_steps=4, alone_after_seconds=0.6)
        was = cut_off(sites, number, 14)
        wait_for(lambda: "is back too late" in events(sites, number), "the word that it is too late")
        assert re.search(rf"what it learned as peer {was} in \d+ samples is dropped, they were given to others", events(sites, number))
        sites.await_end(number)
        told, by_peer = check_sums(sites.trainctl("samples", str(number))), consumed(tmp_path)
        others = check_once(numbers for peer, numbers in by_peer.items() if peer != was)
        again = [n in others for n in by_peer[was]]
        before = again.index(True)
        assert before > 0 and counted_of(told) == len(others) + before


def test_a_job_that_is_cancelled_meanwhile_ends(lab, tmp_path, text):  # noqa: F811
    with Sites(lab, tmp_path, {name: name for name in "abc"}) as sites:
        number = launch(sites, text, 10**6, mode="diloco", inner_steps=4, alone_steps=1000, alone_after_seconds=0.6)
        await_merges(sites, number, 3)
        sites.lab.do("cut a c", "cut b c")
        wait_for(lambda: "trains on alone" in sites.worker_output("c"), "it to train on")
        sites.trainctl("cancel", str(number))
        sites.lab.do("heal a c", "heal b c")
        wait_for(lambda: sites.job(number)["state"] == "cancelled", "the job to end")
        wait_for(lambda: not list((tmp_path / "node-c").glob("kept/group-*")), "nothing to be kept any more")
