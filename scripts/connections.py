"""TCP connections of processes, and their end at any moment (`ss -K`: Linux with CONFIG_INET_DIAG_DESTROY, as root; elsewhere nothing breaks). For scripts/soak.py and scripts/chaos_kills.py."""
import re
import subprocess


def connections_of(pids):
    """Established ones: (process, its address, the other one's), in order."""
    found = []
    for line in subprocess.run(["ss", "-tnpHO", "state", "established"], capture_output=True, text=True).stdout.splitlines():
        fields, pid = line.split(), re.search(r"pid=(\d+)", line)
        if pid is not None and int(pid.group(1)) in pids:
            found.append((int(pid.group(1)), fields[2], fields[3]))
    return sorted(found)


def break_connection(here, there):
    """Both ends see it reset. Whether it was there, and the system can."""
    return here in subprocess.run(["ss", "-tnKH", "src", here, "dst", there], capture_output=True, text=True).stdout
