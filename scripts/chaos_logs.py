"""What there is to read of one job of scripts/chaos_sharded.py: what befell it, its rows, what its workers and all daemons said."""
import shutil


def write_story(folder, strikes, events):
    """events.txt, beside the job's metrics.jsonl."""
    told = [*events, *((strike.unix_ms, f"STRIKE {strike.kind} {sorted(strike.peers)} {strike.seconds or ''}".rstrip()) for strike in strikes)]
    (folder / "events.txt").write_text("".join(f"{unix_ms:.0f} {text}\n" for unix_ms, text in sorted(told)))


def keep_logs(where, cluster, job, folder):
    """In the folder `where`, anew."""
    shutil.rmtree(where, ignore_errors=True)
    where.mkdir(parents=True)
    for name in ("events.txt", "metrics.jsonl"):
        shutil.copy(folder / name, where)
    for daemon in [cluster.memberd, *cluster.nodes]:
        shutil.copy(daemon.log_path, where / f"{daemon.folder.name}.log")
        logs = daemon.folder / "logs" / f"job-{job}"
        if logs.exists():
            shutil.copytree(logs, where / f"{daemon.folder.name}-job-{job}")
