"""Processes that are a group of libtraincoll, which say a JSON object of each round (library_peer.c, mesh_peer.c), and what must be true of what they say."""
from harness import wait_for
from line_process import LineProcess


class GroupPeer(LineProcess):
    def rounds(self):
        return self.said("round")

    def reached(self, round_number):
        assert self.process.poll() is None or self.rounds()[-1]["round"] >= round_number, self.story()
        return any(line["round"] >= round_number for line in self.rounds())

    def paused(self):
        return bool(self.said("paused"))

    def submitted(self):
        return bool(self.said("submitted"))

    def end(self):
        """The rounds it committed, after it ended by itself."""
        super().end()
        return self.rounds()


def check_agreement(histories, first=1):
    """All results are right by the contributor sets, every round was committed once, and all peers hold the same."""
    for history in histories:
        numbers = [line["round"] for line in history]
        assert numbers == list(range(numbers[0], numbers[-1] + 1))
        assert all(line["wrong"] == 0 for line in history), history
    for number in range(first, histories[0][-1]["round"] + 1):
        rows = [line for history in histories for line in history if line["round"] == number]
        assert len({(line["sum"], line["contributors"], line["partial"]) for line in rows}) == 1, rows


def check_common(histories):
    """The same of the rounds that all have."""
    last = min(history[-1]["round"] for history in histories)
    check_agreement([[line for line in history if line["round"] <= last] for history in histories])


def check_survivors(peers, survivors):
    """They go on, and agree as long as all do. `peers`: these and the dead."""
    last = max(peer.rounds()[-1]["round"] for peer in peers)
    wait_for(lambda: all(peer.reached(last + 20) for peer in survivors), "the survivors to go on")
    histories = [list(peer.rounds()) for peer in survivors]
    shortest = min(len(history) for history in histories)
    check_agreement([history[:shortest] for history in histories])
