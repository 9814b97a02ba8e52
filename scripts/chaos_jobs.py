"""The jobs of scripts/chaos_sharded.py: which meshes, in which mode, in which order, and their specs."""
import itertools
import math

TEXT = "/usr/share/doc/jargon-text/jargon.txt.gz"
CONTEXT, BATCH, MICRO, STEPS, EVERY = 32, 32, 4, 150, 10  # tokens, sequences, of them in a microbatch; steps of a job, between checkpoints
APART_STEPS, APART_EVERY, INNER = 450, 30, 5  # of replicas that train apart; steps between their merges
KILLS_LEAST, KILLS_MOST = 6, 12  # of a job
LEARNING_RATE = 2e-4  # higher ones make a percent of a last bit within so many steps, in any job
MODELS = (("gpt2", "true"), ("llama", "false"), ("llama", "true"))  # preset, tied


class Kind:
    """dp x pp x tp with these keys of the mesh; `sync`: keys of it, replicas train apart; `auto`: planned, on any nodes; `for_good`: nodes are lost that do not come back."""

    def __init__(self, dp, pp, tp, strict=False, sync=None, auto=False, for_good=False, **keys):
        self.mesh, self.keys, self.strict, self.sync, self.auto, self.for_good = (dp, pp, tp), keys, strict, sync, auto, for_good

    @property
    def workers(self):
        return math.prod(self.mesh)

    @property
    def steps(self):
        return APART_STEPS if self.sync else STEPS

    @property
    def name(self):
        (dp, pp, tp), sync = self.mesh, dict(self.sync or {})
        words = [sync.pop("mode")] if sync else []
        words += [name if value is True else f"{name} {value}" for name, value in {**sync, **self.keys}.items()]
        return ", ".join([f"dp {dp} x pp {pp} x tp {tp}", *words, *["strict"] * self.strict, *["auto"] * self.auto])


def roomy(**sync):
    """Modes that merge every INNER steps."""
    return {"inner_steps": INNER, **sync}


ALL_KEYS = {"zero_owners": 2, "sequence_parallel": True, "chunks": 2, "recompute": True}
WIDE = (  # on nodes with slots to spare: who is lost is replaced at once
    Kind(2, 1, 2),
    Kind(2, 2, 1),
    Kind(1, 2, 2),
    Kind(2, 1, 2, auto=True),
    Kind(4, 1, 2, sync=roomy(mode="diloco", codec="int4"), copies=2),
    Kind(3, 1, 2),
    Kind(1, 1, 2),
    Kind(2, 1, 2, zero_owners=2, sequence_parallel=True, recompute=True),
    Kind(2, 2, 1, chunks=2, recompute=True),
    Kind(3, 2, 1, auto=True),
    Kind(2, 3, 1),
    Kind(2, 2, 2, sync=roomy(mode="streaming", fragments=3, overlap=1)),
    Kind(2, 2, 2, **ALL_KEYS),
    Kind(3, 2, 2, **ALL_KEYS),
    Kind(3, 2, 1, zero_owners=2),
    Kind(4, 2, 1, sync=roomy(mode="eager"), copies=2, zero_owners=1),
    Kind(2, 1, 2, strict=True),
    Kind(2, 2, 1, schedule="gpipe"),
    Kind(3, 1, 1, zero_owners=2, recompute=True),
)
TIGHT = tuple(Kind(*mesh, for_good=True, **more) for mesh, more in (  # with no slot to spare: who is lost for good is missed, until a new node comes
    ((2, 1, 2), {}),
    ((2, 2, 1), {"sync": roomy(mode="diloco")}),
    ((2, 2, 1), {"auto": True}),
    ((2, 1, 2), {"sync": roomy(mode="streaming", fragments=2, overlap=2, carry=True)}),
    ((1, 2, 2), {}),
    ((4, 1, 1), {"sync": roomy(mode="local_sgd"), "copies": 2}),
    ((2, 2, 1), {"zero_owners": 2}),
    ((2, 1, 2), {"sync": roomy(mode="hdet", lr_spread=0.3, lr_temperature=0.05)}),
    ((4, 1, 1), {"zero_owners": 2}),
    ((2, 2, 1), {"sync": roomy(mode="eager")}),
    ((2, 1, 2), {"strict": True}),
    ((2, 1, 2), {"sync": {"mode": "diloco", "inner_seconds": 0.1}}),
    ((1, 2, 2), {"auto": True}),
))


def in_turn(dice, only=""):
    """[(place, kind)]: each kind with `only` in its name once, in an order by the dice, of both places in turn as long as they have any."""
    tight, wide = ([(place, kind) for kind in dice.sample(kinds, len(kinds)) if only in kind.name] for place, kinds in (("tight", TIGHT), ("wide", WIDE)))
    return [pair for pair in itertools.chain.from_iterable(itertools.zip_longest(tight, wide)) if pair]


def kills_of_next(left, kinds_left):
    """So many that there are some for each of the kinds that are left. Few kills are of few jobs: one kill says little of a job."""
    return min(left, KILLS_MOST, max(KILLS_LEAST, math.ceil(left / kinds_left)))


def job_spec(pb, folder, kind, model):
    spec = pb.JobSpec(name=folder.name)
    spec.train.model.MergeFrom(pb.Model(preset=model[0], tied=model[1], layers=4, width=64, heads=4, context=CONTEXT, vocab="bytes"))
    spec.train.data.MergeFrom(pb.Data(text=[TEXT], validation=0.05))
    spec.train.optimizer.MergeFrom(pb.Optimizer(steps=kind.steps, batch_tokens=BATCH * CONTEXT, micro_sequences=MICRO, lr=LEARNING_RATE, warmup=5,
                                                clip=1.0, seed=1, strict=kind.strict))
    spec.train.sync.MergeFrom(pb.Sync(**kind.sync) if kind.sync else pb.Sync(mode="ddp", on_loss="replay"))
    spec.train.checkpoint.MergeFrom(pb.Checkpoint(every=APART_EVERY if kind.sync else EVERY, keep=2, dir=str(folder)))
    spec.mesh.MergeFrom(pb.Mesh(min_nodes=1, threads=1, pp=kind.mesh[1], tp=kind.mesh[2], **kind.keys))
    return spec


def spread(spec, kind, nodes):
    """As many workers on each node, of so many of these."""
    workers = kind.workers
    spec.mesh.nodes = next(count for count in range(min(workers, len(nodes)), 0, -1) if workers % count == 0)
    spec.mesh.workers_per_node = workers // spec.mesh.nodes


def plan(pb, spec, kind, nodes, slots, random):
    """As trainctl makes it: each worker on some node that has a slot left. Layers cost less than they do on any machine and no step is as quick as planned, so the job is planned anew soon, and after each loss."""
    places = random.sample([node for node in nodes for _ in range(slots)], kind.workers)
    known = sorted(set(places))
    costs = [pb.PlanCost(tp=tp, sequences=MICRO, forward_s=[5e-6, 2e-4 / tp, 1e-4 / tp], backward_s=[5e-6, 4e-4 / tp, 2e-4 / tp],
                         kept_bytes=[4096, 75000, 20000], working_bytes=100000) for tp in (1, 2)]
    basis = pb.PlanBasis(costs=costs, update_s=1e-9, round_s=1e-3, process_bytes=1 << 20, nodes=[pb.PlanNode(id=node, memory_bytes=1 << 30, speed=1) for node in known],
                         latency_s=[20e-6] * len(known) ** 2, bandwidth_bytes_per_s=[1.5e9] * len(known) ** 2)
    dp, pp, tp = kind.mesh
    spec.mesh.auto = True
    spec.plan.MergeFrom(pb.JobPlan(nodes=places, text=f"dp {dp} x pp {pp} x tp {tp}", step_s=1e-3, basis=basis))
