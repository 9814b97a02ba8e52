"""How much of a long link with losses the engine fills."""
import facts
from claims import Target

ORDER = 10
TITLE = "Transport: 100 Mbit/s, 100 ms, losses"
ARMS = []
NOTES = """An all-reduce of 1 GiB between two sites of a laboratory, busy both ways, a queue of 100 ms: IP packets that arrived one way, Mbit/s, in the second half of the time (within one op; rows of 128 MiB,
a pause of two round trips and what bbr makes of it every 11 s, are 1 to 4 Mbit/s lower). *k*: connections; *auto*: as many as the engine finds right. bbr is what the engine chooses at this round trip; cubic was asked for."""
LOSSES = ("0", "0.0001", "0.001", "0.01")


def extra(folder):
    """What transport.py has measured."""
    found = facts.read(folder, "transport")
    if found is None:
        return facts.missing("transport")
    rate = {(row["asked"], row["sockets"], row["loss"]): row.get("mbit") for row in found["rows"]}
    arms = list(dict.fromkeys((row["asked"], row["sockets"]) for row in found["rows"]))
    rows = [[{"auto": "bbr"}.get(asked, asked), f"{sockets or 'auto'}", *(f"{rate[asked, sockets, loss]:.1f}" if rate.get((asked, sockets, loss)) else "" for loss in LOSSES)]
            for asked, sockets in arms]
    out = [f"{found['seconds']:.0f} s each (scripts/experiments/transport.py, commit {found['commit']}).\n\n",
           facts.table(["congestion control", "k", *(f"loss {float(loss):.2%}" for loss in LOSSES)], rows)]
    for asked in ("auto", "cubic"):
        clean, name = rate.get((asked, 0, "0")), {"auto": "bbr"}.get(asked, asked)
        lossy, one = rate.get((asked, 0, "0.001")), rate.get((asked, 1, "0.001"))
        if clean and lossy:
            out += [Target(f"{name}: without losses at least 95 % of the rate", (clean / 100,), least=0.95).line,
                    Target(f"{name}: at 0.01 % at least 95 % of the clean link", (rate[asked, 0, "0.0001"] / clean,), least=0.95).line,
                    Target(f"{name}: at 0.1 % at least 85 % of the clean link", (lossy / clean,), least=0.85).line]
        if lossy and one:
            out += [Target(f"{name}: at 0.1 % at least ten times one connection", (lossy / one,), least=10, form="{:.1f}").line]
    return "".join([*out, "\n", WORDS, "\n\n"])


WORDS = """Claims are of as many connections as the engine finds right: eight from the beginning, since a way of 20 ms or more has so many (collectives/engine/stripe.h). One stream of bbr
crowds such a way by itself and loses 6 to 10 % of what it sends in the queue, eight lose 1 to 3 %. One connection of bbr loses so little at 0.1 % that ten times its rate is more than the
link has: that target can only be met where cubic runs. Until 2026-11-26 segments of such ops were of 1 MiB: one that lay on the slowest of eight connections held up the op's window, and ops of 1 GiB were at 81 to 84 Mbit/s (at 256 KiB 97, at 64 KiB 96).
The machine trained and tested beside these runs, which had real-time priority."""
