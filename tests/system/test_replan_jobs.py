"""A job that drifts from its plan is planned anew while it runs: another dp, pp or tp out of workers' memory; what it learns is what one worker learns, each sample counts once."""
import os
import re
import signal

from harness import Cluster, wait_for
from mesh_jobs import SLOW, active, alone, assert_near, counted_once, reach, rows_of, staged_spec
from stubs import pb
from test_training import BATCH
from test_uneven_jobs import Throttled

STEPS = 80


def planned_spec(cluster, text, folder, step_s, pp=2, bytes_per_s=1.5e9, memory=1 << 30):
    """dp 1 x pp 2, or dp of all nodes, as `trainctl launch` would have planned it where steps take so long. Layers cost less than they do on any machine: who is stopped is slower than planned everywhere."""
    spec = staged_spec(text, folder, pp, steps=STEPS, lr=SLOW)
    spec.mesh.MergeFrom(pb.Mesh(auto=True, threads=1))
    spec.mesh.workers_per_node = 0
    nodes = [node.id for node in cluster.list_nodes()]
    layers = [pb.PlanCost(tp=tp, sequences=8, forward_s=[1e-5, 4e-4 / tp, 2e-4 / tp], backward_s=[1e-5, 8e-4 / tp, 4e-4 / tp], kept_bytes=[8192, 150000, 40000],
                          working_bytes=100000) for tp in (1, 2)]
    basis = pb.PlanBasis(costs=layers, update_s=1e-9, round_s=1e-3, process_bytes=1 << 20, nodes=[pb.PlanNode(id=node, memory_bytes=memory, speed=1) for node in nodes],
                         latency_s=[20e-6] * len(nodes) ** 2, bandwidth_bytes_per_s=[bytes_per_s] * len(nodes) ** 2)
    spec.plan.MergeFrom(pb.JobPlan(nodes=nodes, text=f"dp {len(nodes) // pp} x pp {pp} x tp 1", step_s=step_s, compute_s=step_s, basis=basis))
    spec.train.optimizer.micro_sequences = 8
    return spec


def test_a_worker_that_becomes_slow(tmp_path, text):
    """Of two stages of a layer each one is stopped most of the time, which neither shares nor layers can help: the job goes on with another mesh, out of memory, and says why."""
    run = tmp_path / "run"
    one = alone(tmp_path, text, steps=STEPS, lr=SLOW)
    with Cluster(tmp_path / "cluster", nodes=2, environment={"TRAIND_DRIFT_STEPS": "3"}) as cluster:
        job = cluster.submit(planned_spec(cluster, text, run, 0.03))
        wait_for(lambda: len(active(cluster, job)) == 2, "both workers")
        with Throttled(active(cluster, job)[1].pid):  # before the first step: on a busy machine it might differ from the plan for another reason
            wait_for(lambda: " instead of dp 1 x pp 2, by prediction " in cluster.events(cluster.job(job)), "another mesh")
            wait_for(lambda: cluster.job(job).progress.plan.pp == 1 and cluster.job(job).progress.plan.step_s > 0, "its plan")
        done = cluster.wait_job(job, "DONE")
        events = cluster.events(done)
        slow = re.search(r"mesh: a step takes [0-9.e+]+ ms, planned were 30 ms, as peer (\d+) computes at (\d+) % of the speed that it was planned with: goes on with dp [12]\S* .*"
                         r"instead of dp 1 x pp 2, by prediction [0-9.e+]+ ms instead of [0-9.e+]+ ms; [0-9.]+ MB moved, [0-9.]+ MB stayed where they were, in [0-9.]+ s; "
                         r"\d+ steps are left, each [0-9.e+]+ ms shorter: .* s, for a change of ", events)
        assert slow, events
        assert "goes back" not in events and " is lost" not in events, events
        assert done.rounds.samples == STEPS * BATCH
        counted_once(cluster, job, STEPS)
    assert_near(run, one, STEPS)


def test_a_job_grows_onto_a_node_that_comes(tmp_path, text):
    """Planned on the one node that was there. Another one comes, and the job goes on with a plan of both. Whose node is taken, and when: test_membership_grow.c."""
    run, steps = tmp_path / "run", 4 * STEPS
    one = alone(tmp_path, text, steps=steps, lr=SLOW)
    with Cluster(tmp_path / "cluster", nodes=1, environment={"TRAIND_DRIFT_STEPS": "4"}) as cluster:
        spec = planned_spec(cluster, text, run, 0.03, pp=1)
        spec.mesh.grow, spec.train.optimizer.steps = True, steps
        basis = spec.plan.basis  # it knows a way between two nodes, so that one which it does not know is not taken to be far
        basis.nodes.add(id=999, memory_bytes=1 << 30, speed=1)
        basis.latency_s.extend([20e-6] * 3)
        basis.bandwidth_bytes_per_s.extend([1.5e9] * 3)
        job = cluster.submit(spec)
        reach(run, 10)
        cluster.add_node()
        wait_for(lambda: re.search(r"goes on with dp (2|1 x pp 2|1 x tp 2)\S* .*instead of dp 1, 1 spare, by prediction", cluster.events(cluster.job(job))), "a plan of two workers")
        done = cluster.wait_job(job, "DONE")
        assert {peer.node_name for peer in done.peers} == {"node-1", "node-2"} and "goes back" not in cluster.events(done), cluster.events(done)
        assert done.rounds.samples == steps * BATCH
        counted_once(cluster, job, steps)
        assert rows_of(run)[steps]["contributors"] == 2
    assert_near(run, one, steps)


def test_replicas_of_whole_models(tmp_path, text):
    """A planned job of them has ranks, so that it can follow: one of two is killed, and who comes instead trains on; with sync.deterministic it has none, as it always was."""
    run = tmp_path / "run"
    one = alone(tmp_path, text, steps=STEPS, lr=SLOW)
    with Cluster(tmp_path / "cluster", nodes=2) as cluster:
        job = cluster.submit(planned_spec(cluster, text, run, 1000, pp=1))
        reach(run, 10)
        os.kill(active(cluster, job)[1].pid, signal.SIGKILL)
        done = cluster.wait_job(job, "DONE")
        events = cluster.events(done)
        assert "mesh: dp 2" in events and "was lost" in events and "goes back" not in events, events
        assert done.rounds.samples == STEPS * BATCH
        counted_once(cluster, job, STEPS)
        spec = planned_spec(cluster, text, tmp_path / "same", 1000, pp=1)
        spec.train.sync.deterministic = True
        calm = cluster.wait_job(cluster.submit(spec), "DONE")
        assert "mesh: dp" not in cluster.events(calm)
    assert_near(run, one, STEPS)
    assert_near(tmp_path / "same", one, STEPS)
