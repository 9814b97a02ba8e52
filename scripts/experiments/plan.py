"""What is to be run. A *study* (studies/*.py) asks one question of several *arms*; an arm with a seed is a *run*. The settings of a run are
the keys of its job file and a few of ours; runs with the same settings are one run, whichever study asks for it.

    settings_of(Arm("diloco-m2-h32", nodes=2, sync={"mode": "diloco", "inner_steps": 32}), seed=1)
"""
import dataclasses
import hashlib
import importlib
import json
import pathlib

SEEDS = (1, 2, 3)
TEXT = "bbc150e357f09ce38c5f7ceaff4b9951e6c938c8bd5712a391ca488b498110ac"  # digest of what text.py makes

MODEL = {"preset": "gpt2", "layers": 3, "width": 136, "heads": 4, "context": 128, "vocab": "bytes"}
TRAIN = {"steps": 29184, "batch_tokens": 512, "lr": 1.4e-3, "min_lr": 1.4e-4, "warmup": 768, "clip": 1.0, "weight_decay": 0.1, "beta1": 0.9,
         "beta2": 0.99, "eval_sequences": 1024}
# Of no consequence for what is learned, so not part of a run's settings.
EVALUATIONS, CHECKPOINT_STEPS, MICRO_SEQUENCES = 8, 2048, 8


@dataclasses.dataclass(frozen=True)
class Arm:
    """`train` and `sync`: keys of the job file that differ from the above. `replicas`: so many jobs that know nothing of one another, each with
    an equal part of the batch and a seed of its own. `program`: a variant of the programs (variants/). `slowness`: of each node; the fastest
    has 1."""
    name: str
    nodes: int = 1
    replicas: int = 1
    train: dict = dataclasses.field(default_factory=dict)
    sync: dict = dataclasses.field(default_factory=lambda: {"mode": "ddp"})
    program: str = ""
    slowness: tuple = ()


@dataclasses.dataclass(frozen=True)
class Run:
    arm: Arm
    seed: int
    settings: dict

    @property
    def key(self):
        return key_of(self.settings)

    @property
    def workers(self):
        return self.arm.nodes * self.arm.replicas


def parameters_of(model):
    width = model["width"]
    return (256 + model["context"] + 2) * width + model["layers"] * (12 * width + 13) * width


def settings_of(arm, seed):
    train = {**TRAIN, **arm.train, "seed": seed}
    settings = {"model": MODEL, "train": train, "sync": arm.sync, "nodes": arm.nodes, "text": TEXT}
    for name in ("replicas", "program", "slowness"):
        if getattr(arm, name) != Arm.__dataclass_fields__[name].default:
            settings[name] = getattr(arm, name)
    return json.loads(json.dumps(settings))


def key_of(settings):
    """Twelve digits that stand for the settings."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]


def studies():
    """The modules of studies/, in the order in which they are wanted."""
    folder = pathlib.Path(__file__).parent / "studies"
    found = [importlib.import_module(f"studies.{path.stem}") for path in sorted(folder.glob("*.py")) if path.stem != "__init__"]
    return sorted(found, key=lambda study: study.ORDER)


def runs(found):
    """All runs of these studies, each once: first everything with the first seed."""
    once = {}
    for seed in SEEDS:
        for study in found:
            for arm in study.ARMS:
                if seed in getattr(study, "SEEDS", SEEDS):
                    run = Run(arm, seed, settings_of(arm, seed))
                    once.setdefault(run.key, run)
    return list(once.values())


def job_of(run, text, folder, replica=0):
    """The job file's sections. Replica r of a run has a seed that no other run has, and its part of the batch."""
    settings = run.settings
    train = dict(settings["train"])
    replicas = settings.get("replicas", 1)
    if replicas > 1:
        train["seed"] = 1000 * train["seed"] + replica
        train["batch_tokens"] //= replicas
    train.update(micro_sequences=MICRO_SEQUENCES, eval_every=max(train["steps"] // EVALUATIONS, 1))
    every = min(CHECKPOINT_STEPS, train["steps"])
    job = {"name": run.arm.name, "model": settings["model"], "train": train, "sync": settings["sync"],
           "data": {"text": [text["path"]], "validation": text["held_out_bytes"] / text["bytes"]},
           "mesh": {"nodes": settings["nodes"], "min_nodes": settings["nodes"], "threads": 1},
           "checkpoint": {"every": every, "keep": 1, "dir": str(folder)}}
    if (pathlib.Path(folder) / "latest").exists():
        job["checkpoint"]["resume"] = str(folder)
    return job
