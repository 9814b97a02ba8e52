#!/usr/bin/env python3
"""Writes the seed corpora of fuzz_frame, fuzz_segment, fuzz_message, fuzz_membership, fuzz_engine, fuzz_tls, fuzz_shm, fuzz_relay,
fuzz_probe, fuzz_probe_dial, fuzz_domain, fuzz_memberd, fuzz_node, fuzz_api, fuzz_forward and fuzz_port (tests/fuzz/corpus/), from
the stubs of proto/, which scripts/venv.sh makes anew if they are old. A second, independent encoder of frames and headers: see docs/protocol.md."""
import pathlib
import struct
import subprocess
import sys

from fuzz_corpus_forward import forward_scripts
from fuzz_corpus_memberd import RIGHT, memberd_scripts, node_scripts
from fuzz_corpus_port import api_scripts, port_scripts

ROOT = pathlib.Path(__file__).resolve().parent.parent
if subprocess.run([ROOT / "scripts" / "venv.sh", "stubs"]).returncode != 0:
    sys.exit(1)  # it said why
sys.path.insert(0, str(ROOT / "build" / "venv" / "stubs"))
from traind.peer import peer_pb2 as peer  # noqa: E402
from traind.v1 import trainer_pb2 as v1  # noqa: E402

CORPUS = ROOT / "tests" / "fuzz" / "corpus"
MASK = (1 << 64) - 1
TO_MEMBER, TO_NODE, PEER, SEGMENT, STATE = 1, 2, 3, 4, 5


def xxh3_64_of_six(data):
    """XXH3_64bits of 4 to 8 bytes with the default secret and seed 0 (xxhash.h, XXH3_len_4to8_64b)."""
    secret = bytes.fromhex("7c01812cf721ad1cded46de9839097db")
    flip = int.from_bytes(secret[:8], "little") ^ int.from_bytes(secret[8:], "little")
    first, last = int.from_bytes(data[:4], "little"), int.from_bytes(data[-4:], "little")
    h = (last + (first << 32)) ^ flip
    rotate = lambda value, by: (value << by | value >> (64 - by)) & MASK
    h ^= rotate(h, 49) ^ rotate(h, 24)
    h = h * 0x9FB21C651E98DF25 & MASK
    h ^= (h >> 35) + len(data)
    h = h * 0x9FB21C651E98DF25 & MASK
    return h ^ h >> 28


def frame(kind, payload, length=None):
    head = struct.pack("<IH", len(payload) if length is None else length, kind)
    return head + struct.pack("<H", xxh3_64_of_six(head) & 0xFFFF) + payload


def segment(elements=4, kind=1, dtype=1, reduce=1, number=0, count=4, payload=None, codec=0, collective=0, root=0,
            algorithm=0, encoding=0, says=None):
    size = {1: 4, 2: 8, 3: 4, 4: 8, 5: 2, 6: 2, 7: 1}.get(dtype, 4)
    if payload is None:
        payload = bytes(i % 256 for i in range(elements * size))
    head = struct.pack("<QQQIIQBBBBIBBBxII4x", 3, 17, 3, 0, number, count, dtype, reduce, codec, collective, root, algorithm, kind,
                       encoding, elements, len(payload) if says is None else says)
    return head + b"\x07" + bytes(31) + payload


def state(bytes_, offset=0, tensor=0, says=None):
    return struct.pack("<QQII", 17, offset, tensor, len(bytes_) if says is None else says) + bytes_


def native_job(**optimizer):
    spec = v1.JobSpec(name="quickstart")
    spec.train.model.MergeFrom(v1.Model(preset="gpt2", layers=4, width=128, heads=4, context=128, vocab="bytes"))
    spec.train.data.text.append("/usr/share/doc/jargon-text/jargon.txt.gz")
    spec.train.data.validation = 0.05
    values = dict(steps=600, batch_tokens=8192, lr=1e-3, warmup=50, clip=1.0, seed=1, dtype="f32")
    spec.train.optimizer.MergeFrom(v1.Optimizer(**{**values, **optimizer}))
    spec.train.sync.MergeFrom(v1.Sync(mode="ddp", on_loss="replay", algorithm="auto"))
    spec.train.checkpoint.MergeFrom(v1.Checkpoint(every=200, keep=2, dir="/tmp/runs/quickstart"))
    spec.train.sample.MergeFrom(v1.Sample(tokens=200, prompt="hacker", temperature=0.8))
    spec.mesh.MergeFrom(v1.Mesh(nodes=3, min_nodes=1))
    return spec


def command_job():
    spec = v1.JobSpec(name="echo", command=v1.CommandSpec(argv=["/bin/sh", "-c", "true"], env=["A=b"], directory="/tmp"))
    spec.mesh.workers = 4
    return spec


def a_view():
    peers = [peer.ViewPeer(peer=i, address=f"127.0.0.1:{7000 + i}", participate_from=1, contribute_from=1,
                           node_name=f"n{i}") for i in (4, 5, 6)]
    return peer.View(group=2, number=3, peers=peers, ring=[1, 0, 2], hub=1, policy=peer.POLICY_REPLAY, latency_s=1e-4,
                     bandwidth_bytes_per_s=1e9, segment_bytes=1 << 18, reason="peer 7 was lost: reset by peer")


def install():
    holders = [peer.Holder(peer=4, sealed=b"\x0f"), peer.Holder(peer=5, sealed=b"\x07")]
    resume = peer.Resume(base_round=17, finish=True, base_attempt=2, contributors=[4, 5, 6, 7],
                         ops=[peer.OpHolders(tag=0, segments=4, holders=holders)])
    return peer.ViewInstall(view=a_view(), resume=resume, recorded_round=16)


def commits():
    rounds = [peer.RoundCommit(round=r, view=3, attempt=2, samples=64, contributors=[4, 5, 6], digest_low=r, digest_high=1)
              for r in (16, 17)]
    return peer.RoundCommits(group=2, peer=5, rounds=rounds)


def messages():
    """(index in fuzz_message.c's table, name, message)"""
    hello = peer.NodeHello(node_id=1, incarnation=99, name="n1", address="127.0.0.1:7001", pid=12, slots=1, cores=2,
                           memory_bytes=1 << 34, devices=["cpu"], peers=[peer.PeerHere(job_id=1, group=2, peer=4, view=3)])
    report = peer.ViewReport(group=2, peer=4, proposal=4, view=3, committed_round=16, begun_round=17, attempt=3, closed=True,
                             ops=[peer.OpReport(tag=0, segments=4, sealed=b"\x0f", whole=b"\x0f")])
    progress = v1.Progress(step=17, steps=600, loss=2.5, val_loss=float("nan"), tokens_per_s=1e5)
    for name, fields in {
        "hello": dict(hello=hello),
        "heartbeat": dict(heartbeat=peer.Heartbeat(sequence=5, peers=[peer.PeerProgress(group=2, peer=4, round=17)])),
        "worker-started": dict(worker_started=peer.WorkerStarted(job_id=1, peer=4, pid=77)),
        "peer-ready": dict(peer_ready=peer.PeerReady(group=2, peer=4, state_signature="w:4096")),
        "view-report": dict(view_report=report),
        "link-lost": dict(link_lost=peer.LinkLost(group=2, view=3, peer=4, lost=5, reason="reset by peer")),
        "worker-exited": dict(worker_exited=peer.WorkerExited(job_id=1, peer=4, signal=9, reason="killed by SIGKILL")),
        "round-commits": dict(round_commits=commits()),
        "peer-report": dict(peer_report=peer.PeerReport(job_id=1, peer=4, progress=progress, event="checkpoint")),
        "log-data": dict(log_data=peer.LogData(stream=1, data=b"line\n", end=True)),
        "join-group": dict(join_group=peer.JoinGroup(name="example", size=4, address="127.0.0.1:7002")),
        "node-leave": dict(node_leave=peer.NodeLeave(reason="shut down")),
        "lifeline": dict(lifeline=peer.Lifeline(node_id=1, incarnation=99)),
    }.items():
        yield 0, f"to-member-{name}", peer.ToMember(**fields)
    start = peer.StartWorker(job_id=1, group=2, peer=4, world_size=3, spec=native_job(), run_id="abc")
    for name, fields in {
        "welcome": dict(welcome=peer.Welcome(node_id=1, heartbeat_interval_ms=250, heartbeat_timeout_ms=2000)),
        "refused": dict(refused=peer.Refused(reason="no")),
        "start-worker": dict(start_worker=start),
        "stop-worker": dict(stop_worker=peer.StopWorker(job_id=1, reason="cancelled", grace_ms=3000)),
        "view-propose": dict(view_propose=peer.ViewPropose(group=2, number=4, members=[4, 5])),
        "view-install": dict(view_install=install()),
        "peer-evicted": dict(peer_evicted=peer.PeerEvicted(group=2, peer=4, reason="silent for 2.0 s")),
        "log-request": dict(log_request=peer.LogRequest(stream=1, job_id=1, peer=4, follow=True, credit_bytes=65536)),
    }.items():
        yield 1, f"to-node-{name}", peer.ToNode(**fields)
    tensors = [peer.StateTensor(name="wte", bytes=4096)]
    for name, fields in {
        "hello": dict(hello=peer.PeerHello(group=2, link=1, lane=1, **{"from": 4, "to": 5})),
        "vote": dict(vote=peer.Vote(view=3, round=17, attempt=3, digest_low=1, digest_high=2, signatures=5, pairs=6, early=True)),
        "commit": dict(commit=peer.Commit(view=3, round=17, attempt=3, status=-8, reason="peer 4 differs")),
        "state-request": dict(state_request=peer.StateRequest(view=3, round=16)),
        "state-begin": dict(state_begin=peer.StateBegin(round=16, tensors=tensors, header=b"h")),
        "state-end": dict(state_end=peer.StateEnd(round=16, digest_low=[1], digest_high=[2])),
        "goodbye": dict(goodbye=peer.Goodbye(reason="leaves")),
        "pulse": dict(pulse=peer.Pulse()),
        "lane-lost": dict(lane_lost=peer.LaneLost(lane=1)),
        "lane-received": dict(lane_received=peer.LaneReceived(lane=1, frames=7, ended=True)),
    }.items():
        yield 2, f"peer-{name}", peer.PeerMessage(**fields)
    planned = peer.JobPlanned(job_id=1, group=2, peers=[peer.PlannedPeer(peer=4, node_id=1, incarnation=99)])
    for name, fields in {
        "node-seen": dict(node_seen=peer.NodeSeen(hello=hello)),
        "job-submitted": dict(job_submitted=peer.JobSubmitted(job_id=1, request_id="r1", spec=native_job())),
        "job-planned": dict(job_planned=planned),
        "job-moved": dict(job_moved=peer.JobMoved(job_id=1, state=v1.JOB_STATE_DONE, progress=progress)),
        "view": dict(view=install()),
        "rounds": dict(rounds=commits()),
        "ids": dict(ids_reserved=peer.IdsReserved(below=1000)),
    }.items():
        yield 3, f"log-{name}", peer.LogEntry(unix_ms=1, **fields)
    job = v1.Job(id=1, spec=native_job(), state=v1.JOB_STATE_RUNNING, progress=progress,
                 peers=[v1.Peer(id=4, state="active")], events=[v1.JobEvent(unix_ms=1, text="view 3")])
    placed = peer.SnapshotPeer(planned=planned.peers[0], group=2, state="placed", node_name="n1", worked=True)
    ledger = peer.SnapshotLedger(recorded=2, samples=128, newest=17, frontier=17, sets=[peer.ContributorSet(peers=[4, 5])])
    snapshot = peer.Snapshot(next_id=9, next_job=2, nodes=[peer.SnapshotNode(hello=hello)],
                             jobs=[peer.SnapshotJob(job=job, request_id="r1", group=2, peers=[placed], ledger=ledger)],
                             groups=[peer.SnapshotGroup(group=2, job_id=1, view=install(), proposed=3, ledger=ledger)])
    yield 4, "snapshot", snapshot
    yield 5, "submit", v1.SubmitJobRequest(request_id="r1", spec=native_job())
    yield 6, "job-native", native_job()
    yield 6, "job-command", command_job()
    yield 6, "job-odd-batch", native_job(batch_tokens=1000)
    yield 6, "job-nan", native_job(lr=float("nan"))
    yield 6, "job-huge", native_job(steps=MASK, batch_tokens=MASK, seed=MASK)


MESSAGE, CLOSED, SUBMIT, CANCEL, TICK, ENTRY, SNAPSHOT, LEAD, NO_SPACE = range(9)


def event(kind, payload=b""):
    """An event of fuzz_membership.c."""
    return struct.pack("<BH", kind, len(payload)) + payload


def says(connection, **fields):
    return event(MESSAGE, bytes([connection]) + peer.ToMember(**fields).SerializeToString())


def hello(number):
    return says(number, hello=peer.NodeHello(incarnation=90 + number, name=f"n{number}", address=f"127.0.0.1:{7001 + number}",
                                             pid=10 + number, slots=1, cores=2))


def submit(spec):
    return event(SUBMIT, v1.SubmitJobRequest(request_id="r", spec=spec).SerializeToString())


def walks():
    """Lives of a cluster, as events. Ids are handed out in order: nodes 1 to 3, then group 4 and peers 5 to 7 of the job."""
    def ready(node, p):
        return says(node, peer_ready=peer.PeerReady(group=4, peer=p, state_signature="w:8"))

    def reports(number, nodes, **fields):
        return b"".join(says(node, view_report=peer.ViewReport(group=4, peer=5 + node, proposal=number, view=number - 1, **fields))
                        for node in nodes)

    start = event(LEAD) + hello(0) + hello(1) + hello(2) + submit(native_job())
    trains = start + b"".join(ready(node, 5 + node) for node in range(3)) + reports(1, range(3))
    rounds = says(0, round_commits=peer.RoundCommits(group=4, peer=5, rounds=[
        peer.RoundCommit(round=r, view=1, attempt=1, samples=64, contributors=[5, 6, 7], digest_low=r) for r in (1, 2, 3)]))
    mid = dict(committed_round=3, begun_round=4, attempt=1, closed=True)
    sealed = [peer.OpReport(tag=0, segments=4, sealed=b"\x0f", whole=b"\x0f")]
    torn = [peer.OpReport(tag=0, segments=4, sealed=b"\x03", whole=b"\x01")]
    lost = trains + rounds + event(CLOSED, b"\x02")
    progress = v1.Progress(step=3, steps=600, loss=2.5, tokens_per_s=1e5, checkpoint="/tmp/step-3")
    beats = b"".join(says(node, heartbeat=peer.Heartbeat(sequence=n, rtt_s=1e-4, peers=[
        peer.PeerProgress(group=4, peer=5 + node, round=4, progress=n, waiting=node == 0, waits_for=[7])]))
        for n in range(3) for node in range(3))
    yield "start", start
    yield "trains", trains + rounds + beats + event(TICK, b"\x05")
    yield "finish", lost + reports(2, (0, 1), ops=sealed, **mid) + hello(2) + event(TICK, b"\x40")
    yield "replay", lost + reports(2, (0, 1), ops=torn, **mid) + hello(2) + ready(2, 8) + reports(3, (0, 1), ops=torn, **mid)
    yield "silence", trains + rounds + beats + b"".join(event(TICK, b"\x0a") for _ in range(4)) + beats + event(TICK, b"\xff")
    yield "facts", trains + says(1, peer_report=peer.PeerReport(job_id=1, peer=6, progress=progress, event="checkpoint")) + says(
        1, log_data=peer.LogData(stream=1, data=b"line\n")) + says(0, link_lost=peer.LinkLost(group=4, view=1, peer=5, lost=6))
    yield "digest", trains + says(0, peer_failed=peer.PeerFailed(group=4, peer=5, status=-8, reason="digests differ"))
    yield "leave", trains + says(2, node_leave=peer.NodeLeave(reason="shut down"))
    yield "exits", start + b"".join(says(0, worker_exited=peer.WorkerExited(job_id=1, peer=p, exit_code=1)) for p in (5, 8, 9, 10))
    yield "done", trains + rounds + b"".join(says(node, worker_exited=peer.WorkerExited(job_id=1, peer=5 + node)) for node in range(3))
    yield "cancel", start + event(CANCEL, b"\x01")
    yield "no-space", start + event(NO_SPACE) + submit(command_job()) + event(TICK, b"\x14")
    command = command_job()
    command.mesh.workers = 2
    starts = b"".join(says(node, worker_started=peer.WorkerStarted(job_id=1, peer=3 + node, pid=9)) for node in range(2))
    exits = b"".join(says(node, worker_exited=peer.WorkerExited(job_id=1, peer=3 + node, exit_code=node)) for node in range(2))
    yield "command", event(LEAD) + hello(0) + hello(1) + submit(command) + starts + exits
    group = says(0, join_group=peer.JoinGroup(name="g", size=2)) + says(1, join_group=peer.JoinGroup(name="g", size=2))
    joined = b"".join(says(node, peer_ready=peer.PeerReady(group=g, peer=p)) for node in range(2) for g in (3, 4) for p in (4, 5, 6))
    leaves = b"".join(says(0, leave_group=peer.LeaveGroup(group=g, peer=p)) for g in (3, 4) for p in (4, 5, 6))
    yield "library", event(LEAD) + hello(0) + hello(1) + group + joined + leaves


# Scripts of fuzz_engine and fuzz_shm, as tests/fuzz/attack.h reads them.
def attack(which, connection, *fields):
    return bytes([connection << 4 | which]) + b"".join(fields)


def attack_segment(connection, tag=0, number=0, kind=1, contributors=2, which=3):
    return attack(which, connection, RIGHT * 5, bytes([tag, 0, number, 0]), RIGHT * 6, bytes([kind - 1, 0]), RIGHT * 2,
                  bytes([contributors, 0]), RIGHT, RIGHT * 8)


def attack_scripts():
    """(name, what the connections say; each frame is followed by three right bytes: its length, its type, whole)"""
    def opens(connection, from_peer=0, link=0, group=RIGHT):
        return attack(0, connection, RIGHT, group, bytes([from_peer, 0, 0, link, 0, 0])) + RIGHT * 3

    turn = bytes([15])
    segments = b"".join(attack_segment(c, number=n, kind=k, contributors=1 << c + 1) + RIGHT * 3
                        for k in (1, 2) for c in range(3) for n in range(4))
    packed = b"".join(attack_segment(c, number=n, kind=k, contributors=1 << c + 1, which=5) + bytes([192 * odd]) + RIGHT * 3
                      for odd in (0, 1) for k in (1, 2) for c in range(3) for n in range(4))
    everyone = b"".join(opens(c, from_peer=c) for c in range(3))
    votes = b"".join(attack(6, c, RIGHT * 8) + RIGHT * 3 for c in range(3))
    commit = attack(7, 0, RIGHT * 5) + RIGHT * 3
    ours = [attack(12, 0, bytes([n])) for n in range(6)]
    states = [attack(8, 0, bytes([n])) for n in range(4)]
    lanes = [attack(10, 0, bytes([n])) for n in range(4)]
    yield "segments", RIGHT + everyone + segments + turn + ours[2] + votes + commit + turn
    yield "packed", RIGHT + everyone + packed + turn + ours[2] + votes + commit + turn
    yield "view-change", RIGHT + everyone + segments + ours[1] + ours[4] + ours[5] + segments + ours[0] + turn
    yield "joiner", bytes([1]) + everyone + states[1] + RIGHT * 7 + states[2] + RIGHT * 8 + states[3] + RIGHT * 9 + ours[3] + turn
    yield "donor", bytes([2]) + opens(0, from_peer=2) + states[0] + RIGHT * 5 + turn * 3 + attack(0, 1, bytes([3])) + turn
    yield "lanes", (RIGHT + opens(0, link=1) + opens(1, link=1) + segments + lanes[0] + RIGHT * 3 + lanes[1] + RIGHT * 5 + turn
                    + attack(0, 1, bytes([2])) + turn + lanes[3] + RIGHT * 3)
    yield "answers", RIGHT + turn + attack(0, 0, bytes([3])) + lanes[2] + RIGHT * 7 + turn + lanes[2] + RIGHT + bytes([5, 0, 1]) + RIGHT * 3
    yield "half", RIGHT + opens(0) + attack_segment(0) + bytes([0, 0, 240, 0]) + turn + attack(0, 0, bytes([2]))
    yield "huge", RIGHT + opens(0) + attack_segment(0) + bytes([231]) + b"\xff" * 8 + RIGHT * 2 + turn
    # As a peer of the honest group, or of ours, without the token (attack_forger).
    yield "forgers", (RIGHT + b"".join(opens(c, link=c % 2, group=group) + lanes[3].replace(b"\x0a", bytes([c << 4 | 10]), 1) + RIGHT * 3
                                       + attack(6, c, RIGHT * 8) + RIGHT * 3 + attack_segment(c) + RIGHT * 3
                                       for c, group in enumerate([b"\xf0" + bytes(8), b"\xf0" + bytes(8), b"\xe8" + (2 << 16).to_bytes(8, "big")]))
                      + turn + ours[2] + turn)
    yield "strangers", RIGHT + b"".join(attack(0, c, bytes([240])) for c in range(6)) + attack_segment(0) + RIGHT * 3 + turn


def tls_scripts():
    """(name, what is said over TLS): each flight has a byte that spoils it, behind what says it."""
    flights = RIGHT * 3  # of a handshake, at least

    def opens(connection, from_peer=0, how=0, spoils=flights, whole=RIGHT * 4):
        return attack(0, connection, bytes([how]), spoils, RIGHT, bytes([from_peer, 0, 0, 0, 0, 0])) + whole

    def says(frame, whole=RIGHT * 4):
        return frame + whole

    turn, keys = bytes([15]), lambda connection, times, wish=0: attack(12, connection, bytes([times, wish, 0]))
    raw = lambda connection, how, *rest: attack(11, connection, bytes([how]), *rest)
    record = lambda kind=RIGHT, says=RIGHT, data=b"garbage!": bytes([len(data)]) + says + kind + RIGHT * 2 + data
    odd = lambda value: b"\xe0" + value.to_bytes(8, "big")
    everyone = b"".join(opens(c, from_peer=c) for c in range(3))
    segments = b"".join(says(attack_segment(c, number=n, kind=k, contributors=1 << c + 1)) for k in (1, 2) for c in range(3) for n in range(4))
    votes = b"".join(says(attack(6, c, RIGHT * 8)) for c in range(3))
    ours = [attack(13, 0, bytes([n])) for n in range(6)]
    plain = attack(0, 0, bytes([240]))
    yield "segments", RIGHT + everyone + segments + turn + ours[2] + votes + turn
    yield "dialled", RIGHT + turn + attack(0, 0, bytes([3]) + flights) + turn * 3 + segments + turn
    yield "not-a-handshake", RIGHT + plain + raw(0, 128, bytes([30]), b"GET / HTTP/1.1\r\nHost: here\r\n\r\n") + turn * 2
    yield "a-record-that-is-none", RIGHT + plain + raw(0, 0, record(kind=odd(22), data=bytes(range(200)))) + turn * 2
    yield "a-record-that-is-too-long", RIGHT + plain + raw(0, 0, record(kind=odd(22), says=odd(0xffff))) + turn * 2
    yield "half-a-hello", RIGHT + attack(0, 0, bytes([224, 190, 20, 0])) + turn * 3
    yield "says-nothing", RIGHT + b"".join(attack(0, c, bytes([240])) for c in range(6)) + turn * 3
    for name, who in {"stranger": 1, "nobody": 2, "old": 3}.items():
        yield f"certificate-of-{name}", RIGHT + opens(0, how=192 + 8 * who) + turn + opens(1) + turn
        yield f"dialled-{name}", RIGHT + turn + attack(0, 0, bytes([192 + 8 * who + 3]) + flights) + turn * 3
    for flight in range(3):
        for name, how in {"bit": 130, "byte": 160, "cut": 180, "twice": 200, "turned": 216, "between": 230, "lost": 250}.items():
            spoils = RIGHT * flight + bytes([how, 9, 0, 1, 0, 0, 0, 0, 0])
            yield f"handshake-{name}-{flight}", RIGHT + opens(0, spoils=spoils) + turn * 2 + opens(1) + turn
            yield f"dialled-{name}-{flight}", RIGHT + turn + attack(0, 0, bytes([3]) + spoils) + turn * 3
    for name, how in {"bit": 130, "cut": 180, "twice": 200, "turned": 216, "between": 230, "lost": 250}.items():
        yield f"frame-{name}", RIGHT + everyone + attack_segment(0) + RIGHT * 3 + bytes([how, 9, 0, 1, 0, 0, 0, 0, 0]) + turn + segments + turn
    yield "garbage-inside", RIGHT + opens(0) + raw(0, 200, bytes([64]), bytes(range(64)), RIGHT) + turn + opens(0) + turn
    yield "garbage-behind", RIGHT + opens(0) + raw(0, 128, bytes([64]), bytes(range(64))) + turn
    yield "forged-record", RIGHT + opens(0) + raw(0, 0, record(data=bytes(range(128)))) + turn
    yield "alerts", RIGHT + opens(0) + raw(0, 0, record(kind=odd(21), data=b"\x02\x50")) + turn + opens(1) + raw(1, 0, record(kind=odd(21), data=b"\x01\0")) + turn
    yield "huge-frame-inside", RIGHT + opens(0) + attack_segment(0) + bytes([231]) + b"\xff" * 8 + RIGHT * 3 + turn
    yield "much-at-once", RIGHT + everyone + attack_segment(0, number=3, kind=2) + RIGHT * 2 + bytes([223]) + RIGHT * 600 + turn * 8 + segments + turn
    yield "new-keys", RIGHT + everyone + keys(0, 0) + turn + segments + keys(1, 3, 1) + segments + turn
    yield "new-keys-for-ever", RIGHT + everyone + keys(0, 255) * 8 + turn * 4 + segments + turn
    yield "new-keys-in-the-greeting", RIGHT + attack(0, 0, bytes([224]) + flights) + keys(0, 255) * 5 + turn + raw(0, 200, bytes([8]), b"TRAIND4\n", RIGHT) + turn
    yield "says-farewell", RIGHT + everyone + attack(0, 0, bytes([1, 0])) + turn + segments + attack(0, 1, bytes([0])) + turn + segments
    yield "http-inside", RIGHT + b"".join(attack(0, c, bytes([224]) + flights) + raw(c, 200, bytes([len(text)]), text, RIGHT) + turn
                                         for c, text in enumerate([b"GET /healthz HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"TPROBE1\n", b"TRELAY1\n"]))


def shm_scripts():
    """(name, what a process of this host does): sockets, descriptors, rings."""
    def says(way, kind, *fields):
        return bytes([way << 4 | 1, kind - 1]) + (b"".join(fields) or RIGHT * 8)

    def put(frame, where=0):
        return frame + bytes([where]) + RIGHT * 7

    def opens(way, from_peer=0):
        return (bytes([way << 4, 0]) + says(way, 1) + turn + bytes([way << 4, 2]) + says(way, 3)
                + put(attack(2, way, bytes([0, from_peer, 0, 0, 1, 0, 0]))) + turn)

    turn = bytes([15])
    segments = b"".join(put(attack_segment(c, number=n, kind=k, contributors=1 << c + 1), where=n % 2)
                        for k in (1, 2) for c in range(3) for n in range(4))
    yield "segments", RIGHT + b"".join(opens(w, from_peer=w) for w in range(3)) + segments + turn
    yield "answers", RIGHT + turn + bytes([0, 3, 0, 2]) + says(0, 2) + turn + bytes([11, 1, 2, 0, 0]) + turn
    for kind in range(9):
        for place in range(3):
            if kind % 3 == place:
                yield f"hello-odd-{kind}", RIGHT + bytes([0, 0]) + says(0, 1, RIGHT * 4, bytes([192 + place, kind]), RIGHT * 3) + turn
    yield "forgers", (RIGHT + b"".join(
        bytes([way << 4, 0]) + says(way, 1, kind, RIGHT * 7) + turn + says(way, 3)
        + put(attack(2, way, bytes([0xf0]) + bytes(8), bytes([0, 0, 0, 1, 0, 0]))) + turn for way, kind in enumerate([b"\xf0" + (1 << 32).to_bytes(8, "big"), b"\xe8" + (1 << 16).to_bytes(8, "big"), RIGHT])))
    yield "memory-odd", RIGHT + opens(0) + says(0, 3, RIGHT * 4, bytes([192, 5]), RIGHT * 3) + turn
    yield "memory-lies", RIGHT + opens(0) + says(0, 3, RIGHT, b"\xf8" + b"\xff" * 8, RIGHT * 6) + turn
    yield "many-descriptors", RIGHT + bytes([0, 0]) + says(0, 1, RIGHT * 5, bytes([255]), RIGHT * 2) + turn
    again = opens(0) + says(0, 3) * 3 + turn + bytes([0, 1]) + turn
    yield "comes-back", RIGHT + again * 30
    def shows(entry, *fields, **options):
        return bytes([14, entry, 1]) + attack_segment(0, **options)[1:] + (b"".join(fields) or RIGHT * 2)

    read = b"".join(bytes([14, 0, place << 2]) + RIGHT for place in range(4))
    entries = [b"".join(shows(n, tag=t, number=n % 4, contributors=2) for n, t in enumerate(order)) for order in ([0, 1, 2, 0, 1], [2, 1, 0, 1])]
    everyone = b"".join(opens(w, from_peer=w) for w in range(3))
    close = bytes([13, 2])
    yield "boards", RIGHT + everyone + read + entries[0] + turn + close + turn + entries[1] + turn
    yield "boards-odd", (RIGHT + everyone + close + shows(0, b"\xf8" + b"\xff" * 8, RIGHT) + turn + shows(1, RIGHT, bytes([200])) + turn
                         + shows(0, tag=77) + turn + shows(1, kind=2) + shows(2, kind=3) + turn)
    yield "indices", RIGHT + opens(0) + bytes([11, 0, 0, 255, 0]) + turn + opens(1) + bytes([27, 1, 1, 255, 0]) + turn


def relay_scripts():
    """(name, what the connections of fuzz_relay say, and the relay that it is): a message is ten right bytes behind its event."""
    def says(way, which=0, fields=RIGHT * 8, bytes_=RIGHT):
        return bytes([way << 4 | 1, which]) + fields + bytes_

    turn = bytes([15])
    dials = b"".join(bytes([way << 4, 0]) for way in range(8))
    call, wait = 0, 1
    joined = dials + says(0, call) + says(1, wait) + turn * 2
    part = b"\xe0" + (20).to_bytes(8, "big")  # so many bytes of a message
    begins = {"calls": b"\x06\x01", "waits": b"\x06\x00"}
    answer = bytes([7, 0]) + RIGHT * 9
    yield "joined", joined + b"\x02\x05hello\x12\x04back" + turn + b"\x00\x01" + turn + b"\x10\x01" + turn
    yield "held", joined + b"\x03\xff" * 8 + turn * 4 + b"\x10\x03\xff" * 8 + turn * 4 + b"\x10\x00" + turn
    yield "held-and-lost", joined + (b"\x03\xff" + turn) * 8
    yield "waits-too-many", dials + b"".join(says(way, wait) for way in range(8)) + turn * 2 + b"".join(says(way, call) for way in range(2)) + turn
    yield "full", dials + b"".join(says(way, way % 2) for way in range(8)) + turn * 4
    yield "both-directions", dials + b"".join(says(way, way % 2 + way // 2 % 2 * 2) for way in range(8)) + turn * 2
    yield "forgers", dials + says(0, 240) + says(1, 241) + says(2, 0, RIGHT * 5 + b"\xc0" + RIGHT * 2) + turn
    yield "in-parts", dials + says(0, call, bytes_=part) + turn + b"\x02\x2c" + bytes(44) + turn
    yield "early", dials + says(0, call) + b"\x02\x05hello" + turn + says(1, wait) + turn
    yield "grants", joined + says(2, wait) + turn + b"\x04\x00" + turn + b"\x04\x02" + says(3, call) + turn
    yield "greetings", b"\x00\xff\x10\xff\x20\xff\x30\xff" + turn + b"\x02\x03TRE" + b"\x12\x08TRELAY2\n" + b"\x22\x0cGET / HTTP/1" + turn + b"\x02\x05LAY1\n" + turn + says(0)
    yield "late", dials + says(0, call) + says(1, call, bytes_=part) + turn + b"\x05" + turn
    yield "kinds", dials + b"".join(says(way, 0, bytes([192 + 4 + way]) + RIGHT * 7) for way in range(8)) + turn
    for name, begin in begins.items():
        yield f"ours-{name}", begin + turn + answer + turn + b"\x08\x05hello" + turn
        yield f"ours-{name}-at-once", begin + turn + answer + b"\x08\x05hello" + turn + b"\x09\x00" + turn
        yield f"ours-{name}-refused", begin + turn + bytes([7, 1]) + RIGHT * 9 + turn
        yield f"ours-{name}-garbage", begin + turn + b"\x08\x3f" + b"x" * 63 + b"\x08\x02xx" + turn
        yield f"ours-{name}-cut", begin + turn + bytes([7, 0]) + RIGHT * 8 + part + turn + b"\x09\x01" + turn
        yield f"ours-{name}-closes", begin + turn + b"\x0a" + answer + turn


def probe_scripts():
    """(name, what who dials says): a message is five right bytes behind its event, a block six."""
    echo, take, give, hears = (bytes([n]) for n in (0, 1, 2, 5))
    right = RIGHT * 5
    block, last = b"\x03\x00" + right, b"\x03\x01" + right
    opens, knows = RIGHT + right, RIGHT
    huge = b"\xe0" + b"\xff" * 8
    yield "measures", opens + (echo + right + hears) * 4 + take + right + block * 6 + last + hears + give + right + hears * 8
    yield "stranger", b"\x03" + right + echo + right
    yield "nearly", knows + RIGHT + b"\xc5" + RIGHT * 3 + echo + right
    yield "not-open", knows + b"\xc5" + RIGHT * 4 + echo + right
    yield "in-parts", knows + RIGHT * 4 + b"\xe0" + (9).to_bytes(8, "big") + b"\x04x" * 23
    yield "gives-much", opens + give + RIGHT + huge * 2 + RIGHT * 2 + hears * 3
    yield "take-of-others", opens + take + right + block + b"\x03\x00\xc5" + RIGHT * 4 + echo + right
    yield "half-a-block", opens + take + right + block + b"\x03\x00" + RIGHT * 4 + b"\xe0" + (999).to_bytes(8, "big") + b"\xf6"
    yield "kinds", opens + bytes([0xb7]) + right
    yield "ends", opens + echo + right + b"\xe6" + echo + right
    yield "goes-at-once", b"\x80" + right + give + right + echo + right
    yield "spoilt", opens + echo + RIGHT * 3 + b"\xc6" + RIGHT
    for kind in (1, 4, 8, 9):
        yield f"kind-{kind}", opens + bytes([kind << 4 | 7]) + right + hears


def probe_dial_scripts():
    """(name, what a daemon that is measured answers): a turn is a byte, and so is each answer."""
    plain, tls, ends = 0, 1, 64
    heads = {"plain": plain, "tls": tls}
    for name, head in heads.items():
        yield f"measures-{name}", bytes([head])
        yield f"goes-{name}", bytes([head | ends]) + bytes(8)
        for turns in (2, 7, 40, 90):  # before the token was heard; at an echo; at its end; with blocks
            for kind, odd in {"field": b"\x80\0\xc0", "other-kind": b"\xc6", "byte": b"\xd0\x04\x01", "cut": b"\xd8\xe0" + (9).to_bytes(8, "big"),
                              "twice": b"\xe0", "half-shut": b"\xe8", "mute": b"\xf0", "hangs-up": b"\xf8"}.items():
                if head == plain or turns < 40:
                    yield f"{kind}-{turns}-{name}", bytes([head]) + bytes(turns) + odd
        for kind in range(9):
            yield f"unasked-{kind + 1}-{name}", bytes([head]) + bytes(4 + kind) + bytes([160 + 8 * kind, 0]) + bytes(6)
    yield "echoes-ahead", bytes([plain]) + bytes(4) + bytes([224, 0]) * 40
    yield "one-echo-ahead", bytes([plain]) + bytes(4) + bytes([224, 0])
    yield "blocks-ahead", bytes([plain]) + bytes(4) + bytes([161, 0]) * 40
    yield "time-passes", bytes([plain | 56]) + bytes(4) + bytes([165, 255]) * 12
    yield "we-end", bytes([plain]) + bytes(4) + bytes([247])
    yield "new-keys", bytes([tls]) + bytes(12) + bytes([163, 255, 0, 0]) * 8
    yield "farewell", bytes([tls]) + bytes(12) + bytes([164, 0])
    yield "forged-record", bytes([tls]) + bytes(12) + bytes([162, 16]) + bytes(24)
    for who in (1, 2, 3):
        yield f"certificate-{who}", bytes([tls | who << 1]) + bytes(8)


def domain_scripts():
    """(name, what members say to their leader, or it to one of them); the named findings beside them were libFuzzer's."""
    for name, head in {"leader": 0, "member": 1}.items():
        for looks in range(3):
            yield f"honest-{name}-{looks}", bytes([head | looks << 2])
        yield f"keeps-{name}", bytes([head | 16])
        yield f"ends-{name}", bytes([head | 32]) + bytes(12)
        yield f"ends-for-all-{name}", bytes([head | 34]) + bytes(12)
        for kind in range(15):
            yield f"unasked-{kind + 1}-{name}", bytes([head]) + bytes(6) + bytes([128, kind * 8 & 255, 0]) + bytes(10) + bytes([129, kind * 8 & 255, 0]) + bytes(4)
        yield f"descriptors-{name}", bytes([head]) + bytes(6) + bytes([128, 131, 20]) + bytes(20) + bytes(3) + bytes([216]) * 3
        yield f"floods-{name}", bytes([head]) + bytes(9) + bytes([129, 135]) + bytes(9)


def write(target, name, data):
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


def main():
    for index, name, message in messages():
        write("message", name, bytes([index]) + message.SerializeToString())
    log = b""
    for index, name, message in messages():
        if index == 3:
            log += event(ENTRY, message.SerializeToString())
        if index == 4:
            write("membership", "from-snapshot", event(SNAPSHOT, message.SerializeToString()) + event(LEAD) + hello(0))
    write("membership", "from-log", log + event(LEAD) + hello(0) + hello(1))
    for name, data in walks():
        write("membership", name, data)
    for name, data in attack_scripts():
        write("engine", name, data)
    for name, data in shm_scripts():
        write("shm", name, data)
    for name, data in tls_scripts():
        write("tls", name, data)
    for name, data in relay_scripts():
        write("relay", name, data)
    for name, data in probe_scripts():
        write("probe", name, data)
    for name, data in probe_dial_scripts():
        write("probe_dial", name, data)
    for name, data in domain_scripts():
        write("domain", name, data)
    for name, data in memberd_scripts():
        write("memberd", name, data)
    for name, data in node_scripts():
        write("node", name, data)
    recorded = [(path.name, path.read_bytes()[3:]) for path in sorted((CORPUS / "http2").glob("grpcio-[!s]*")) + [CORPUS / "http2" / "grpcio-several"]]
    for name, data, *how in api_scripts(recorded):
        write("api", name, bytes(how or [0]) + data)
    for name, data, how in port_scripts():
        write("port", name, bytes([how]) + data)
    for name, data, how in forward_scripts():
        write("forward", name, bytes([how]) + data)
    vote = peer.PeerMessage(vote=peer.Vote(view=3, round=17)).SerializeToString()
    write("frame", "vote", frame(PEER, vote))
    write("frame", "three", frame(TO_MEMBER, b"") + frame(PEER, vote) + frame(SEGMENT, segment()))
    write("frame", "state", frame(STATE, state(b"x" * 64)))
    write("frame", "cut", frame(TO_NODE, b"abcdef")[:-3])
    write("frame", "too-long", frame(PEER, b"", length=(4 << 20) + 1))
    write("frame", "four-gib", frame(SEGMENT, b"", length=0xFFFFFFFF))
    write("frame", "unknown-type", frame(99, b""))
    write("frame", "bad-check", frame(PEER, vote)[:6] + b"\x00\x00" + vote)
    for name, data in {"partial": segment(), "sealed-f64": segment(kind=2, dtype=2), "bad-kind": segment(kind=3),
                       "bad-dtype": segment(dtype=9), "bad-number": segment(number=1 << 31), "short": segment()[:90],
                       "wrong-size": segment(payload=b"123"), "more-than-op": segment(count=1),
                       "broadcast": segment(collective=3, root=1, algorithm=2), "encoded": segment(codec=2, encoding=2),
                       "bytes-lie": segment(says=1 << 30), "bad-encoding": segment(encoding=9)}.items():
        write("segment", name, b"\x00" + data)
    for name, data in {"state": state(b"x" * 64), "state-empty": state(b""), "state-lies": state(b"x", says=1 << 30),
                       "state-wraps": state(b"xx", offset=MASK), "state-short": state(b"")[:20]}.items():
        write("segment", name, b"\x01" + data)


if __name__ == "__main__":
    main()
