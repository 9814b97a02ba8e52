"""Scripts of fuzz_memberd and fuzz_node for make_fuzz_corpus.py: what memberd says, as tests/fuzz/memberd_words.h reads it."""

RIGHT = b"\0"  # a field that is right


def odd(value):
    return b"\xe0" + value.to_bytes(8, "big")


def memberd_install(peers=2, relayed=0, ops=0, said=RIGHT, **other):
    """A view and its plan; `other`: fields that are not right."""
    def field(name, right=RIGHT):
        return other.pop(name, right)
    right = 1 if peers == 1 else 2
    word = bytes([2]) + field("how") + field("terms") + field("group") + field("number")
    word += RIGHT if peers == right else odd(peers)
    for i in range(min(peers, 8)):
        word += b"".join(field(f"{name}{i}") for name in ("peer", "address", "host", "local", "late", "participate", "contribute", "donor", "name"))
    word += odd(relayed) if relayed else RIGHT
    for i in range(min(relayed, 8)):
        word += b"".join(field(f"{name}{i}") for name in ("way_group", "way_from", "way_to", "way_node", "way_address", "way_low", "way_high"))
    word += b"".join(field(name) for name in ("n_ring", "ring", "hub", "segment_bytes", "op_segments", "low", "high", "reason",
                                              "base_round", "base_attempt", "contributors", "c0", "c1", "c2", "c3"))
    word += odd(ops) if ops else RIGHT
    word += b"".join(field(f"op{i}", RIGHT * 4) for i in range(ops)) + (field("holders", RIGHT * 6) if ops else b"")
    word += field("recorded") + field("reserved") + said
    assert not other, other
    return word


def memberd_duties(relays=1, waits=1, said=RIGHT, way=RIGHT * 7):
    word = bytes([5])
    for count in (relays, waits):
        word += (RIGHT if count == 1 else odd(count)) + way * min(count, 8)
    return word + said


def memberd_scripts():
    """(name, what memberd says): the honest beginning, and then something else."""
    welcome, joined, recorded, silent = bytes([0]) + RIGHT * 4, bytes([1]) + RIGHT * 4, bytes([4]) + RIGHT * 4, bytes([15])
    view, both, twin = bytes([8]), bytes([14]), memberd_install
    propose = bytes([3]) + RIGHT * 5
    begin = welcome + joined + silent * 2
    start = begin + both + twin() + silent * 10
    text = lambda which: bytes([208 + which])
    yield "honest", RIGHT + start + recorded + silent * 6 + (both + silent * 4) * 2
    yield "alone", bytes([1]) + begin + twin(peers=1) + silent * 6 + recorded + silent * 6 + propose + view + twin(peers=1, how=b"\2") + silent * 8
    yield "near", bytes([4]) + start + recorded + silent * 8
    yield "joiner", bytes([2]) + begin + both + twin() + silent * 40
    yield "joiner-gradual", bytes([10]) + begin + both + twin(late0=b"\x1c") + silent * 40
    change = propose + silent + view + both + twin(how=b"\2") + silent * 8
    yield "view-changes", RIGHT + start + change * 3 + recorded + silent * 8
    yield "finishes", RIGHT + start + propose + silent + view + both + twin(how=b"\1") + silent * 8
    for name, ops in {"holders": {}, "nobody-has-it": {"holders": RIGHT * 2 + odd(9) + RIGHT * 3},
                      "sealed": {"holders": bytes([0, 255, 0, 0, 255, 0])}, "many-segments": {"op0": RIGHT + odd(1 << 30) + RIGHT * 2},
                      "scope": {"op0": RIGHT * 2 + bytes([3]) + odd(8)}}.items():
        yield f"plan-{name}", RIGHT + start + propose + silent + view + twin(how=b"\1", ops=1, **ops) + silent * 8
    yield "plan-without", RIGHT + begin + twin(how=bytes([16])) + silent * 4
    yield "view-without", RIGHT + begin + twin(how=bytes([8])) + silent * 4
    yield "unasked-view", RIGHT + start + view + twin() + silent * 4
    yield "old-view", RIGHT + start + twin(number=odd(1)) + silent * 4
    yield "last-view", RIGHT + start + propose + twin(number=odd((1 << 56) - 1)) + change + silent * 4
    yield "far-round", RIGHT + start + propose + view + twin(base_round=odd(1 << 40)) + silent * 4
    yield "not-a-ring", RIGHT + begin + twin(ring=odd(7)) + silent * 2 + twin() + both + silent * 8
    yield "no-hub", RIGHT + begin + twin(hub=odd(77)) + silent * 2 + twin() + both + silent * 8
    yield "twins", RIGHT + begin + twin(peer1=odd(10)) + silent * 4
    yield "without-us", RIGHT + start + propose + view + twin(peer0=odd(9)) + silent * 4
    yield "nobody-contributes", RIGHT + begin + twin(contribute0=odd(9), contribute1=odd(9), contributors=odd(0)) + silent * 8
    yield "strange-contributors", RIGHT + start + propose + view + twin(how=b"\1", contributors=odd(4), c0=odd(0), c1=odd(0), c2=odd(1 << 40)) + silent * 8
    for name, which in {"nobody": 0, "a-file": 2, "ipv6": 3, "outside": 4, "a-name": 6, "without-port": 7, "of-ourselves": None}.items():
        address = {"address1": text(which)} if which is not None else {}
        yield f"address-{name}", RIGHT + begin + both + twin(**address) + silent * 12
        if which is not None:
            yield f"local-{name}", bytes([4]) + begin + both + twin(local1=text(which), host1=RIGHT) + silent * 12
    yield "long-names", RIGHT + begin + twin(address1=bytes([255]), host1=bytes([254]), name1=bytes([255]), reason=bytes([255])) + silent * 4
    yield "other-token", RIGHT + begin + both + twin(low=odd(77)) + silent * 12
    yield "relayed", RIGHT + begin + both + twin(relayed=1) + silent * 12
    yield "many-peers", RIGHT + begin + twin(peers=300) + silent * 4 + twin() + both + silent * 8
    yield "too-many-peers", RIGHT + begin + twin(peers=40000) + silent * 4 + view + twin(peers=40000) + silent * 4 + view + twin() + both + silent * 8
    yield "too-many-ways", RIGHT + begin + twin(peers=300, relayed=40000) + silent * 4
    yield "duties", RIGHT + begin + memberd_duties() + silent * 4 + memberd_duties(0, 0) + silent * 4
    yield "duties-elsewhere", RIGHT + begin + memberd_duties(way=RIGHT * 4 + text(4) + RIGHT * 2) + silent * 4
    yield "too-many-relays", RIGHT + begin + memberd_duties(40000, 0) + silent * 4 + memberd_duties(40000, 0) + silent * 4
    yield "too-many-waits", RIGHT + begin + memberd_duties(0, 40000) + silent * 4
    yield "refused", bytes([0, 6, 3]) + RIGHT * 2 + silent * 4
    yield "refused-late", RIGHT + start + bytes([6, 3]) + RIGHT * 2 + silent * 4
    yield "evicted", RIGHT + start + bytes([6, 0]) + RIGHT * 5 + silent * 4
    yield "stopped", RIGHT + start + bytes([6, 1]) + RIGHT * 5 + silent * 4
    yield "over", RIGHT + start + bytes([6, 2]) + RIGHT * 2 + silent * 4
    for kind in range(6):
        yield f"for-a-node-{kind}", RIGHT + begin + bytes([7, kind]) + RIGHT * 14 + silent * 2
    yield "recorded-far", RIGHT + start + bytes([4, 0]) + odd(1 << 40) * 2 + RIGHT + silent * 4 + recorded + silent * 4
    yield "welcome-twice", RIGHT + start + welcome * 3 + joined * 3 + silent * 4
    yield "welcome-quick", RIGHT + bytes([0]) + RIGHT + odd(1) + odd(1) + RIGHT + joined + both + twin() + silent * 8
    yield "welcome-slow", RIGHT + bytes([0]) + RIGHT + odd(0xffffffff) * 2 + RIGHT + joined + both + twin() + silent * 8
    yield "another-group", RIGHT + welcome + bytes([1]) + RIGHT + odd(3) + odd(0) + RIGHT + twin() + silent * 4
    yield "another-name", RIGHT + welcome + bytes([1]) + text(9) + RIGHT * 3 + silent * 4
    yield "hangs-up", RIGHT + start + bytes([11]) + silent * 2 + welcome + silent * 4 + bytes([27]) + silent + welcome + both + silent * 6
    yield "half-closed", RIGHT + start + bytes([12]) + silent * 8
    yield "says-nothing", RIGHT + bytes([0xfd]) * 60
    yield "floods-proposals", RIGHT + start + propose[:-1] + bytes([247]) + silent * 20
    yield "floods-a-busy-engine", RIGHT + start + bytes([0x8d]) + (propose[:-1] + bytes([247])) * 2 + silent * 20
    yield "floods-views", RIGHT + start + twin(said=bytes([247])) + silent * 20
    yield "floods-welcomes", RIGHT + welcome + bytes([0]) + RIGHT * 3 + bytes([247]) + silent * 8
    yield "floods-duties", RIGHT + begin + memberd_duties(said=bytes([244])) + silent * 8
    for name, how in {"bit": 140, "cut": 184, "longer": 200, "type": 211, "half": 222}.items():
        yield f"view-{name}", RIGHT + begin + twin(said=bytes([how]) + (bytes([0, 8]) if name == "bit" else RIGHT * (name == "longer"))) + silent * 4
    yield "raw", RIGHT + begin + bytes([9, 6]) + bytes([0x3a, 4, 0x0a, 2, 8, 2]) + RIGHT + bytes([10, 8]) + b"GET / HT" + silent * 2


def node_scripts():
    """(name, what memberd says to a traind)"""
    welcome, silent, install = bytes([0]) + RIGHT * 4, bytes([15]), memberd_install()

    def begin(how=0, group=RIGHT, peer=RIGHT, said=RIGHT):
        return bytes([7, 1, how]) + RIGHT * 4 + group + peer + RIGHT * 5 + said

    def measures(address=RIGHT, job=0, said=RIGHT):
        return bytes([7, 2]) + RIGHT + address + RIGHT + bytes([job]) + said

    def logs(kind, said=RIGHT):
        return bytes([7, 3 + kind]) + RIGHT * (6 if kind == 0 else 2) + said

    yield "honest", welcome + begin() + silent + install + silent * 2 + logs(0) + logs(1) + logs(2) + measures() + silent * 4
    for how in (1, 2, 3, 4, 12, 16, 32, 48, 64, 96, 128):
        yield f"starts-{how}", welcome + begin(how) + silent * 4
    yield "starts-again", welcome + begin() * 3 + silent * 4
    yield "starts-many", welcome + b"".join(begin(peer=odd(p)) for p in range(20, 100)) + silent * 4
    yield "starts-nobody", welcome + begin(group=odd(0), peer=odd(0)) + silent * 4
    yield "measures-here", welcome + measures(address=bytes([208])) + measures(address=bytes([208]), job=1) + silent * 4
    yield "measures-a-file", welcome + measures(address=bytes([210])) + silent * 4
    yield "measures-much", welcome + measures(said=bytes([242])) + silent * 8
    yield "floods-logs", welcome + logs(0, said=bytes([245])) + silent * 8 + logs(2, said=bytes([245])) + silent * 8
    yield "floods-starts", welcome + begin(said=bytes([244])) + silent * 8
    yield "floods-views", welcome + memberd_install(said=bytes([247])) + silent * 20
    yield "duties", welcome + memberd_duties() + silent * 4 + memberd_duties(0, 0) + silent * 4
    yield "too-many-waits", welcome + memberd_duties(0, 40000) + silent * 4
    for kind in range(3):
        yield f"ends-{kind}", welcome + begin() + bytes([6, kind]) + RIGHT * 5 + silent * 4
    yield "all-groups-are-over", welcome + bytes([6, 2]) + odd(0) + RIGHT + silent * 4
    yield "refused", bytes([6, 3]) + RIGHT * 2 + silent * 4 + welcome + silent * 4
    yield "another-cluster", welcome + silent + bytes([11]) + bytes([0]) + odd(77) + RIGHT * 3 + silent * 4
