"""train.strict on real daemons: one worker's parameters, bit for bit, on any mesh of powers of two, with any keys of the mesh, whoever dies."""
import hashlib
import os
import signal

import pytest

from harness import Cluster, trainctl, trainctl_json, wait_for
from mesh_jobs import active, counted_once, keyed_spec, parameters, reach, rows_of, train, write_text
from stubs import ROOT
from test_training import BATCH

STEPS = 20 if os.environ.get("NIGHTLY") else 12  # test_any_mesh_has_one_workers_bits takes 20 in any case
MODELS = {"gpt2": {"preset": "gpt2"}, "llama": {"preset": "llama", "tied": "false", "kv_heads": 4, "heads": 8}}


def strict_spec(text, folder, dp=1, pp=1, tp=1, *keys, threads=1, **options):
    options = {"heads": 8, "layers": 3, "steps": STEPS, **options}
    spec = keyed_spec(text, folder, dp, pp, tp, *keys, **options)
    spec.train.optimizer.strict = True
    spec.train.optimizer.clip = 0.5
    spec.mesh.threads = threads
    return spec


def digest(folder):
    """Of all parameters' bits."""
    whole = hashlib.sha256()
    for name, numbers in sorted(parameters(folder).items()):
        whole.update(name.encode() + numbers.tobytes())
    return whole.hexdigest()


def told(folder):
    return {step: (row["loss"], row["grad_norm"], row.get("val_loss")) for step, row in rows_of(folder).items()}


def assert_same_bits(one, other, name=""):
    assert told(other) == told(one), name
    assert digest(other) == digest(one), name


def run(tmp_path, text, name, *mesh, steps=STEPS, **options):
    spec = strict_spec(text, tmp_path / name, *mesh, steps=steps, **options)
    done, _ = train(tmp_path / f"cluster-{name}", spec, spec.mesh.nodes, slots=spec.mesh.workers_per_node)
    assert (done.rounds.committed, done.rounds.samples) == (steps + 1, steps * BATCH)
    return tmp_path / name


MESHES = {"dp2": (2, 1, 1), "dp4": (4, 1, 1), "tp2": (1, 1, 2), "tp4": (1, 1, 4), "dp2tp2": (2, 1, 2), "pp2tp2": (1, 2, 2), "dp2pp2": (2, 2, 1),
          "recomputed": (1, 2, 1, "auto", 1, True), "gpipe": (1, 3, 1, "gpipe")}
if not os.environ.get("NIGHTLY"):  # dp2tp2 has both
    del MESHES["dp2"], MESHES["tp2"]


@pytest.mark.parametrize("model", MODELS)
def test_any_mesh_has_one_workers_bits(tmp_path, text, model):
    one = run(tmp_path, text, "one", threads=3, steps=20, **MODELS[model])
    for name, mesh in MESHES.items():
        assert_same_bits(one, run(tmp_path, text, name, *mesh, steps=20, **MODELS[model]), name)


def test_a_head_for_each_worker(tmp_path, text):
    """As many workers share a layer as its width has parts."""
    assert_same_bits(run(tmp_path, text, "one", heads=4), run(tmp_path, text, "tp4", 1, 1, 4, heads=4))


def test_with_all_keys(tmp_path, text):
    """Microbatches of two sequences, so that a part of the batch has one for each of two stages."""
    runs = {}
    for name, mesh in {"one": (1, 1, 1), "interleaved": (1, 2, 1, "auto", 2, True), "split": (2, 2, 2), "bf16": (1, 1, 1), "bf16-split": (1, 2, 2)}.items():
        spec = strict_spec(text, tmp_path / name, *mesh, layers=4)
        spec.train.optimizer.micro_sequences = 2
        spec.train.optimizer.dtype = "bf16" if name.startswith("bf16") else "f32"
        spec.mesh.sequence_parallel = mesh[2] > 1
        train(tmp_path / f"cluster-{name}", spec, spec.mesh.nodes, slots=spec.mesh.workers_per_node)
        runs[name] = tmp_path / name
    assert_same_bits(runs["one"], runs["interleaved"])
    assert_same_bits(runs["one"], runs["split"])
    assert_same_bits(runs["bf16"], runs["bf16-split"])
    assert digest(runs["bf16"]) != digest(runs["one"])


@pytest.mark.parametrize("dp, tp, owners", [(4, 1, 2), (4, 1, 3), (2, 2, 2)])
def test_moments_by_pieces(tmp_path, text, dp, tp, owners):
    """mesh.zero_owners: of four replicas each owns some of the moments, and gets the other new parameters."""
    one = run(tmp_path, text, "one", steps=20)
    spec = strict_spec(text, tmp_path / "owners", dp, 1, tp, steps=20)
    spec.mesh.zero_owners = owners
    train(tmp_path / "cluster", spec, dp, slots=tp)
    assert_same_bits(one, tmp_path / "owners")


def test_moments_by_pieces_and_a_kill(tmp_path, calm):
    """Of four replicas with two owners each one is lost: two go on, and the other two get the pieces, and gradients, until they work again."""
    words, one = calm
    with Cluster(tmp_path / "cluster", nodes=4) as cluster:
        spec = strict_spec(words, tmp_path / "run", 4, steps=LONG)
        spec.mesh.zero_owners = 2
        job = cluster.submit(spec)
        reach(tmp_path / "run", 15)
        os.kill(active(cluster, job)[1].pid, signal.SIGKILL)
        events = cluster.events(cluster.wait_job(job, "DONE"))
        assert "is lost" in events and "goes back" not in events, events
        counted_once(cluster, job, LONG)
    assert_same_bits(one, tmp_path / "run")


LONG = 120


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """The text, and where one worker has learned it strictly for so many steps."""
    folder, runs = tmp_path_factory.mktemp("learned"), {}
    words = write_text(folder)

    def of(steps):
        if steps not in runs:
            runs[steps] = folder / f"run-{steps}"
            train(folder / f"cluster-{steps}", strict_spec(words, runs[steps], steps=steps), 1)
        return words, runs[steps]
    return of


@pytest.fixture
def calm(learned):
    return learned(LONG)


@pytest.mark.parametrize("mesh, rank", [((2, 1, 2), 3), ((1, 2, 2), 2), ((1, 1, 4), 1)])
def test_a_kill_changes_no_bit(tmp_path, learned, mesh, rank):
    """Whoever comes has the highest id, so scopes have another order than ranks from then on. With dp 1 training goes back to a checkpoint."""
    steps = 60
    words, one = learned(steps)
    with Cluster(tmp_path / "cluster", nodes=mesh[0], slots=mesh[1] * mesh[2]) as cluster:
        job = cluster.submit(strict_spec(words, tmp_path / "run", *mesh, steps=steps, every=10))
        reach(tmp_path / "run", 15)
        victim = active(cluster, job)[rank]
        os.kill(victim.pid, signal.SIGKILL)
        done = cluster.wait_job(job, "DONE")
        assert f"peer {victim.id} (" in cluster.events(done) and ") is lost" in cluster.events(done)
        counted_once(cluster, job, steps)
    assert_same_bits(one, tmp_path / "run")


def test_replicas_that_are_lost_and_come_back(tmp_path, calm):
    """Of four one is lost: two go on, with a spare; then four again."""
    words, one = calm
    with Cluster(tmp_path / "cluster", nodes=4) as cluster:
        job = cluster.submit(strict_spec(words, tmp_path / "run", 4, steps=LONG))
        reach(tmp_path / "run", 15)
        cluster.nodes[3].kill9()
        wait_for(lambda: "goes on with dp 2" in cluster.events(cluster.job(job)), "dp 2")
        reach(tmp_path / "run", max(rows_of(tmp_path / "run")) + 20)
        assert "mesh        dp 2 of 4" in trainctl("--address", cluster.memberd.address, "status", job).stdout
        cluster.add_node()
        events = cluster.events(cluster.wait_job(job, "DONE"))
        assert events.count("in which the others trained on") == 2, events
        counted_once(cluster, job, LONG)
    assert_same_bits(one, tmp_path / "run")


def test_another_mesh_in_the_middle(tmp_path, calm):
    """tp 4 loses a node for good: tp 2 from the newest checkpoint, and tp 4 again."""
    words, one = calm
    with Cluster(tmp_path / "cluster", nodes=2, slots=2) as cluster:
        spec = strict_spec(words, tmp_path / "run", 2, 1, 2, steps=LONG, every=5)
        spec.mesh.tp = 4
        job = cluster.submit(spec)
        reach(tmp_path / "run", 20)
        cluster.nodes[1].kill9()
        wait_for(lambda: "goes on with dp 1 x tp 2" in cluster.events(cluster.job(job)), "tp 2")
        reach(tmp_path / "run", max(rows_of(tmp_path / "run")) + 10)
        cluster.add_node()
        done = cluster.wait_job(job, "DONE")
        assert "goes on with dp 1 x tp 4" in cluster.events(done)
    assert_same_bits(one, tmp_path / "run")


def test_goes_on_from_any_meshs_checkpoint(tmp_path, text):
    one = run(tmp_path, text, "one")
    with Cluster(tmp_path / "half", nodes=2, slots=2) as cluster:
        cluster.wait_job(cluster.submit(strict_spec(text, tmp_path / "run", 2, 1, 2, every=7)), "DONE")
    rest = strict_spec(text, tmp_path / "rest", 1, 2, 1, resume=tmp_path / "run" / "step-00000007")
    with Cluster(tmp_path / "cluster", nodes=1, slots=2) as cluster:
        cluster.wait_job(cluster.submit(rest), "DONE")
    assert digest(tmp_path / "rest") == digest(one)


def test_a_strict_job_is_planned(tmp_path, text):
    """`mesh: auto`: a mesh that its parts divide, whose shares do not follow speeds; the bits are one worker's. Its memory has the parts, which other jobs have not."""
    one = run(tmp_path, text, "one")
    spec = strict_spec(text, tmp_path / "planned")
    model, train = spec.train.model, spec.train.optimizer
    file = tmp_path / "job.yaml"
    file.write_text(f"""name: planned
model: {{preset: gpt2, layers: {model.layers}, width: {model.width}, heads: {model.heads}, context: {model.context}, vocab: bytes}}
data: {{text: [{text}], validation: {spec.train.data.validation}}}
train: {{steps: {train.steps}, batch_tokens: {train.batch_tokens}, lr: {train.lr}, warmup: {train.warmup}, clip: {train.clip}, seed: {train.seed},
        eval_every: {train.eval_every}, micro_sequences: {train.micro_sequences}, strict: true}}
mesh: {{auto: true, threads: 1}}
checkpoint: {{dir: {tmp_path}/planned}}
""")
    with Cluster(tmp_path / "cluster", nodes=1, slots=4) as cluster:
        environment = {**cluster.environment, "TRAIND_ADDRESS": cluster.memberd.address}
        assert "plan      dp " in trainctl("launch", file, environment=environment).stdout
        mesh = cluster.job(1).spec.mesh
        assert mesh.workers in (1, 2, 4) and not mesh.shares and mesh.balance == "off" and mesh.zero_owners == 0
        strict, loose = (trainctl_json("plan", file, "--as-is", "--set", "mesh.auto=false", "--set", f"train.strict={asked}", environment=environment)
                         for asked in ("true", "false"))
        assert strict["memory_bytes"] > loose["memory_bytes"]
    assert digest(tmp_path / "planned") == digest(one)


def test_what_does_not_fit_is_said():
    words = ["plan", ROOT / "configs/quickstart.yaml", "--cluster", ROOT / "configs/cluster.yaml", "--set", "train.strict=true"]
    three = trainctl(*words, "--set", "mesh.nodes=3", check=False)
    assert three.returncode != 0 and "train.strict: found true, allowed: false, since the mesh has 3 replicas" in three.stderr
