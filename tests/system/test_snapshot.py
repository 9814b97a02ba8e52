"""A snapshot of memberd's log holds every entry that was applied before it, also those of the same write."""
import concurrent.futures

from harness import DEADLINE_S, Cluster
from stubs import pb

JOBS = 2200  # each is submitted and cancelled: more entries than lie between two snapshots


def test_jobs_survive_a_snapshot_and_kill_9(tmp_path):
    with Cluster(tmp_path, nodes=0) as cluster:
        api = cluster.api()
        spec = pb.JobSpec(name="queued")
        spec.command.argv.append("true")
        spec.command.directory = str(tmp_path)
        spec.mesh.workers = 1

        def submit_and_cancel(number):
            request = pb.SubmitJobRequest(request_id=f"job-{number}", spec=spec)
            job = api.SubmitJob(request, timeout=4 * DEADLINE_S).job_id
            if number % 10:
                api.CancelJob(pb.CancelJobRequest(job_id=job), timeout=4 * DEADLINE_S)
            return job

        with concurrent.futures.ThreadPoolExecutor(64) as pool:
            ids = list(pool.map(submit_and_cancel, range(JOBS)))
        before = {job.id: job.state for job in api.ListJobs(pb.ListJobsRequest()).jobs}
        assert sorted(before) == sorted(ids) and len(set(before.values())) == 2
        for _ in range(2):
            cluster.kill_memberd()
            cluster.restart_memberd()
            cluster.wait_nodes(alive=0)
            after = {job.id: job.state for job in cluster.api().ListJobs(pb.ListJobsRequest()).jobs}
            assert after == before
