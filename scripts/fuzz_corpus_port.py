"""Scripts of fuzz_api and fuzz_port for make_fuzz_corpus.py: what comes to the port of a daemon, as tests/fuzz/port_end.h, accepts.h, api_words.h and the two
read it."""
from fuzz_corpus_memberd import RIGHT, odd

SETTINGS, RESET, PRIORITY, PUSH, PING, GOAWAY, WINDOW, CONTINUATION, UNKNOWN = 4, 3, 2, 5, 6, 7, 8, 9, 10
LIST_NODES, GET_JOB, LIST_JOBS, SUBMIT, CANCEL, WATCH, FOLLOW, LOGS, SAMPLES, MEASURE, LINKS, CHECK, WATCH_HEALTH, WATCH_ALL = range(14)
SECURE, DEAF = 3, 12  # how a client of the API connects


def time(pieces):
    return bytes([15, pieces])


def raw(event, end, data, how=100):
    out = b""
    for at in range(0, len(data), 255):
        piece = data[at:at + 255]
        out += bytes([end << 4 | event, how, len(piece)]) + piece
    return out


def connects(end=0, how=0, settings=b"", piece=None):
    how |= 0 if piece is None else 48
    return bytes([end << 4, how]) + (b"" if piece is None else bytes([piece])) + bytes([len(settings)]) + settings + RIGHT * 2


def headers(method, head=RIGHT, block=RIGHT, path=RIGHT, frames=1):
    return bytes([method]) + path + head + RIGHT + block + RIGHT * 2 * frames


def call(method, end=0, head=RIGHT, block=RIGHT, body=RIGHT, says=RIGHT, prefix=RIGHT, frames=1, path=RIGHT):
    return bytes([end << 4]) + headers(method, head, block, path, frames) + body + says + prefix + RIGHT * 2


def frames(kind, fields=RIGHT, times=0, end=0):
    count = (times + 1) ** 2 // 64 + 1
    return bytes([end << 4 | 7, kind]) + fields + bytes([times]) + RIGHT * 2 * count


def acts(which, *more):
    return bytes([14, which, *more])


def settings(*pairs):
    return bytes(8 * value + key for key, value in pairs)


def hostile_heads():
    """One for each thing that may be wrong with the headers of a call."""
    for which in range(1, 16):
        more = {7: 4, 9: 8, 10: 8, 11: 8}.get(which, 1)
        for other in range(more):
            fields = bytes([128 + which])
            if which == 12:
                fields += bytes([3, 10])
            elif more > 1:
                fields += bytes([other])
            yield f"head-{which}-{other}", connects() + call(LIST_NODES, head=fields) + time(2)


def api_scripts(recorded):
    """(name, script). `recorded`: (name, what grpcio said on a connection)"""
    for method in range(16):
        yield f"method-{method}", connects() + call(method) + time(1) + acts(0) + time(1)
        yield f"method-{method}-tls", connects(how=SECURE) + call(method) + time(1) + acts(1) + time(1)
    yield from hostile_heads()
    everything = b"".join(call(method) for method in range(16))
    yield "all", connects() + everything + acts(10) * 3 + acts(3, 4) + acts(0) * 3 + time(20)
    yield "all-server-ends", connects() + connects(1, SECURE) + everything + time(1), 1
    yield "all-deaf", connects(how=DEAF) + acts(7) + everything + time(200), 3
    yield "all-long-bad", connects() + acts(7) + acts(8) + everything + acts(10) * 4 + time(5)
    yield "all-away", connects() + acts(6) + everything + acts(6) + time(100)
    yield "at-once", connects() + acts(9) + call(SUBMIT) + call(CANCEL) + call(MEASURE) + time(1)
    yield "nobodys-answers", connects() + acts(2, 1) + acts(18, 1) + acts(34, 1) + call(CANCEL) + acts(18, 1)
    for piece in (0, 8, 40):
        yield f"pieces-{piece}", connects(piece=piece) + call(GET_JOB) + call(SUBMIT) + time(1)
        yield f"pieces-{piece}-tls", connects(how=SECURE, piece=piece) + call(GET_JOB) + call(SUBMIT) + time(1)
    yield "watch", connects() + call(WATCH) + acts(20) + time(10) + acts(19, 3) + time(10) + acts(19, 4) + time(10)
    yield "watch-deaf", connects(how=DEAF) + acts(7) + call(WATCH) * 2 + (acts(20) + time(20)) * 30 + bytes([11]) + time(20) * 3
    yield "logs", connects() + call(LOGS) + acts(10) * 4 + time(1) + acts(10) * 3
    yield "logs-deaf", connects(how=DEAF) + call(FOLLOW) * 3 + acts(10) * 40 + bytes([11]) + acts(10) * 4
    ends = bytes([12])
    yield "ends-meanwhile", connects() + connects(1, SECURE) + everything + ends + call(LIST_NODES) + call(LIST_NODES, 1) + connects(2) + call(CHECK, 2) + time(10) + call(CHECK)
    yield "ends-meanwhile-deaf", connects(how=DEAF) + acts(7) + everything + ends + call(LIST_NODES) + time(30)
    yield "all-have-calls", b"".join(connects(end) + call(WATCH_ALL, end) for end in range(6)) + time(1)
    yield "one-has-no-call", connects() + b"".join(connects(end) + call(WATCH_ALL, end) for end in range(1, 5)) + connects(5) + call(CHECK, 5)
    yield "logs-slow", connects(how=DEAF) + call(FOLLOW) + (acts(10) * 30 + bytes([11]) + time(1) * 8 + bytes([11])) * 4
    yield "logs-narrow", connects(how=64 | DEAF) + call(FOLLOW) + (acts(10) * 30 + bytes([11]) + time(1) * 8 + bytes([11])) * 2
    yield "logs-end", connects() + call(FOLLOW) * 2 + acts(10) + acts(5) + frames(RESET, RIGHT + RIGHT) + acts(10)
    yield "health", connects() + call(WATCH_ALL) + call(WATCH_HEALTH) + acts(6) + time(100) + acts(6) + time(100)
    for name, count, frame in (("short", 0, 10), ("more", 20, 63), ("most", 231, 255), ("too-long", 255, 255)):
        body = bytes([count, frame])
        yield f"long-{name}", connects() + bytes([3]) + headers(SUBMIT) + RIGHT + bytes([5]) + body + RIGHT
        yield f"long-{name}-deaf", connects(how=DEAF) + bytes([3]) + headers(SUBMIT) + RIGHT + bytes([5]) + body + RIGHT
    yield "long-many", connects() + (bytes([3]) + headers(SUBMIT) + RIGHT + bytes([5, 40, 255]) + odd(1 << 22)) * 8 + time(5)
    yield "long-lies", connects() + bytes([3]) + headers(SUBMIT) + RIGHT + bytes([5, 2, 255]) + odd(0xffffffff) + time(5)
    for then in range(4):
        yield f"many-{then}", connects() + bytes([6, LIST_NODES, 255, then]) + time(2)
        yield f"many-watch-{then}", connects(how=DEAF) + bytes([6, WATCH_ALL, 255, then]) + time(2)
    yield "many-long-deaf", connects(how=DEAF) + acts(7) + bytes([6, LIST_JOBS, 200, 0]) + time(2) + bytes([11]) + time(2)
    yield "many-connections", b"".join(connects(end, SECURE * (end % 2)) + bytes([end << 4 | 6, end, 30, 0]) for end in range(6)), 1
    for kind, name in enumerate(("data", "headers", "priority", "reset", "settings", "push", "ping", "goaway", "window", "continuation", "unknown")):
        fields = {SETTINGS: b"\x01\x01", WINDOW: RIGHT * 2}.get(kind, (RIGHT if kind in (2, 3, 5, 6, 7) else b"") + (RIGHT if kind < 4 or kind == 9 else b""))
        yield f"frame-{name}", connects() + call(WATCH_ALL) + frames(kind, fields) + call(LIST_NODES) + time(1)
        yield f"flood-{name}", connects() + call(WATCH_ALL) + frames(kind, fields, 63) + call(LIST_NODES) + time(1)
        yield f"wrong-length-{name}", connects() + call(WATCH_ALL) + frames(kind, fields)[:-2] + bytes([224]) + odd(3) + RIGHT
        yield f"wrong-stream-{name}", connects() + call(WATCH_ALL) + frames(kind, fields)[:-2] + bytes([225]) + odd(2) + RIGHT
        yield f"cut-{name}", connects() + call(WATCH_ALL) + frames(kind, fields)[:-1] + bytes([240, 128]) + connects() + call(LIST_NODES)
    yield "ping-flood", connects(how=DEAF) + frames(PING, RIGHT, 255) + time(1)
    yield "settings-flood", connects(how=DEAF) + frames(SETTINGS, b"\x01\x01", 255) + time(1)
    yield "window-nothing", connects() + call(FOLLOW) + frames(WINDOW, odd(0) + RIGHT) + acts(10) + time(1)
    yield "window-too-much", connects() + call(FOLLOW) + frames(WINDOW, odd(0x7fffffff) + RIGHT) + acts(10) + time(1)
    yield "window-of-call-too-much", connects() + call(FOLLOW) + frames(WINDOW, odd(0x7fffffff) + b"\x01" + RIGHT) + acts(10) + time(1)
    for value in range(8):
        yield f"window-{value}", connects(settings=settings((4, value))) + acts(7) + call(LIST_JOBS) + call(FOLLOW) + acts(10) * 2 + frames(WINDOW, RIGHT * 2) + time(2)
        yield f"setting-{value}", connects(settings=settings(*((key, value) for key in range(1, 8)))) + call(LIST_NODES) + time(1)
    yield "window-shuts", connects() + acts(7) + call(LIST_JOBS) + frames(SETTINGS, b"\x01" + settings((4, 0))) + call(LIST_JOBS) + time(2) + frames(SETTINGS, b"\x01" + settings((4, 3))) + time(2)
    yield "timeout-passes", connects() + call(SUBMIT, head=bytes([128 + 9, 2])) + time(20) + acts(0) + call(FOLLOW, head=bytes([128 + 9, 3])) + acts(10) + time(100)
    yield "timeout-deaf", connects(how=DEAF, settings=settings((4, 0))) + call(FOLLOW, head=bytes([128 + 9, 2])) + acts(10) + time(100)
    yield "says-nothing", connects() + time(255) + connects(how=SECURE) + time(255)
    yield "keepalive", connects(how=DEAF) + call(WATCH_ALL) + time(255) * 4
    yield "body-garbage", connects() + call(SUBMIT, body=bytes([128 + 20]) + bytes([255] * 20)) + call(GET_JOB, body=bytes([128 + 3, 8, 255, 255]))
    yield "body-not-utf-8", connects() + call(SUBMIT, body=bytes([128 + 3, 0x0a, 1, 255])) + time(1)
    yield "body-deep", connects() + call(SUBMIT, body=bytes([128 + 60]) + bytes(b for i in range(30) for b in (0x12, 58 - 2 * i)))
    yield "body-short", connects() + call(SUBMIT, says=odd(200)) + call(SUBMIT, says=odd(1)) + time(1)
    yield "body-compressed", connects() + call(SUBMIT, prefix=bytes([225])) + call(SUBMIT, prefix=bytes([226])) + time(1)
    yield "body-twice", connects() + bytes([3]) + headers(SUBMIT) + RIGHT + (bytes([4, SUBMIT, 128 + 0x78]) + RIGHT * 56 + RIGHT * 4) * 2 + time(1)
    yield "no-body", connects() + bytes([3]) + headers(SUBMIT) + b"\xff" + time(1)
    yield "long-path", connects() + call(LIST_NODES, path=b"\xff") + time(1)
    for piece in (192, 200, 255):
        yield f"block-in-pieces-{piece}", connects() + call(LIST_NODES, block=bytes([piece]), frames=26) + time(1)
    yield "headers-huge", connects() + call(LIST_NODES, head=bytes([128 + 12, 63, 255]), frames=6) + time(1) + connects() + call(LIST_NODES)
    yield "headers-kept", connects() + (call(LIST_NODES, head=bytes([128 + 12, 63, 1])) + RIGHT) * 20
    yield "http1", connects(how=2)[:2] + raw(9, 0, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n") + time(1)
    yield "wrong-port", connects(how=248) + call(LIST_NODES) + time(1) + connects(1, 240) + RIGHT * 4 + call(LIST_NODES, 1)
    yield "leaves", b"".join(connects(i) + call(FOLLOW, i) + bytes([i << 4 | 10, i]) + acts(10) for i in range(6))
    yield "leaves-tls", b"".join(connects(i, SECURE) + call(FOLLOW, i) + bytes([i << 4 | 10, i]) + RIGHT * 2 + acts(10) for i in range(6))
    yield "leaves-unsent", acts(7) + b"".join(connects(i, DEAF) + bytes([i << 4 | 6, LIST_JOBS, 20, 0]) + bytes([i << 4 | 10, i]) for i in range(6)), 1
    for name, data in recorded:
        yield name, connects(how=2, piece=99)[:3] + raw(9, 0, data[:2500])


def port_connects(end, greeting, how=0, part=RIGHT, spoils=b""):
    return bytes([end << 4, how | greeting]) + spoils + part


def port_scripts():
    """(name, script, its first byte): to the relay and to who serves probes, over TLS and plainly."""
    relay, probe = 0, 1
    turn = lambda end=0: bytes([end << 4 | 11])
    leaves = lambda end, how: bytes([end << 4 | 9, how])
    grants = lambda count: bytes([13, count - 1])
    waits = lambda end, part=RIGHT: bytes([end << 4, 1]) + part
    calls = lambda end, part=RIGHT: bytes([end << 4, 0]) + part
    passes = lambda pieces: bytes([14, pieces])
    says = lambda end, kind, part=RIGHT: bytes([end << 4 | 3, kind - 1]) + part
    asks = lambda end, kind, first, second: bytes([end << 4 | 3, 189 + 9 + kind - 1]) + RIGHT + first + second + RIGHT
    much = lambda end, how: bytes([end << 4 | 7, how])
    for name, plain in (("tls", 0), ("plain", 24)):
        opens = lambda end, greeting, plain=plain, **more: port_connects(end, greeting, plain, **more)
        pair = opens(0, relay) + waits(0) + opens(1, relay) + calls(1) + turn() + turn(1)
        yield f"relay-{name}", pair + much(0, 3) + turn(1) + much(1, 60) + turn() * 2, 0
        yield f"relay-{name}-much", pair + bytes([12, 28]) + much(0, 127) * 30 + much(1, 127) * 30 + bytes([12, 28]) + passes(1) * 4, 2
        yield f"relay-{name}-no-more", pair + grants(1) + passes(1) + grants(2) + calls(1) + much(0, 3), 0
        yield f"relay-{name}-half", pair + leaves(0, 0) + much(1, 9) + passes(1) + leaves(1, 0) + passes(1), 0
        yield f"relay-{name}-breaks", pair + much(0, 100) + leaves(1, 7) + much(0, 100) + passes(1), 0
        yield f"relay-{name}-nobody", opens(0, relay) + calls(0) + passes(110) + turn(), 0
        yield f"relay-{name}-silent", opens(0, relay) + passes(110) + turn(), 0
        yield f"relay-{name}-too-early", opens(0, relay) + waits(0) + much(0, 130) + passes(1) + turn(), 0
        yield f"relay-{name}-waits", b"".join(opens(i, relay) + waits(i) for i in range(6)) + passes(1), 0
        yield f"relay-{name}-calls", b"".join(opens(i, relay) + calls(i) for i in range(6)) + passes(1), 0
        yield f"relay-{name}-part", opens(0, relay) + calls(0, bytes([224, 128])) + calls(0) + passes(1), 0
        yield f"relay-{name}-wrong-token", opens(0, relay) + bytes([0, 192]) + RIGHT * 5 + odd(9) + RIGHT * 2 + passes(1), 0
        yield f"relay-{name}-wrong-kind", opens(0, relay) + bytes([0, 192]) + odd(3) + RIGHT * 7 + passes(1), 0
        yield f"relay-{name}-wrong-pair", opens(0, relay) + bytes([0, 192]) + RIGHT * 2 + odd(3) + RIGHT * 5 + passes(1), 0
        measured = opens(0, probe) + says(0, 1) + says(0, 2) + passes(1) + says(0, 3) + says(0, 6) + says(0, 7) + passes(1) + says(0, 5)
        yield f"probe-{name}", measured + passes(1) * 8, 0
        yield f"probe-{name}-ends", measured, 1
        yield f"probe-{name}-settles", opens(0, probe) + says(0, 1) + asks(0, 5, odd(1 << 50), odd(1 << 50)) + passes(1) * 40, 0x18
        yield f"probe-{name}-mends", opens(0, probe) + says(0, 1) + asks(0, 5, odd(1 << 50), odd(1 << 50)) + passes(1) * 20, 0xdc
        yield f"probe-{name}-deaf", port_connects(0, probe, plain | 64) + says(0, 1) + asks(0, 5, odd(1 << 50), odd(1 << 50)) + passes(200) * 3, 0
        yield f"probe-{name}-more-at-once", b"".join(opens(i, probe) + says(i, 1) + says(i, 3) for i in range(6)) + passes(2) + says(0, 7), 1
        yield f"probe-{name}-wrong-token", opens(0, probe) + asks(0, 1, odd(8), RIGHT) + passes(1), 0
        yield f"probe-{name}-no-token", opens(0, probe) + says(0, 2) + passes(1), 0
        yield f"probe-{name}-no-question", opens(0, probe) + says(0, 1) + says(0, 9) + passes(1), 0
        yield f"probe-{name}-no-block", opens(0, probe) + says(0, 1) + says(0, 3) + says(0, 2) * 600 + passes(1), 0
        yield f"probe-{name}-silent", opens(0, probe) + passes(255) * 3, 0
        yield f"probe-{name}-ever-more", opens(0, probe) + says(0, 1) + says(0, 3) + (says(0, 6) + passes(20)) * 30, 0
        yield f"probe-{name}-leaves", opens(0, probe) + says(0, 1) + says(0, 3) + leaves(0, 0) + opens(1, probe) + says(1, 1) + says(1, 5) + leaves(1, 7), 0
        for greeting, what in ((4, "frames"), (5, "http1"), (6, "http2"), (7, "other-version")):
            yield f"{what}-{name}", opens(0, greeting) + passes(1), 0
        for piece in (0, 6):
            cut = bytes([piece])
            yield f"relay-{name}-pieces-{piece}", port_connects(0, relay, plain | 32, cut + RIGHT) + waits(0) + port_connects(1, relay, plain | 32, cut + RIGHT) + calls(1) + much(0, 3) + passes(1), 0
            yield f"probe-{name}-pieces-{piece}", port_connects(0, probe, plain | 32, cut + RIGHT) + says(0, 1) + says(0, 2) + says(0, 3) + says(0, 7) + passes(1), 0
    for greeting, name, first in ((relay, "relay", calls(0)), (probe, "probe", says(0, 1))):
        for who, of in (("stranger", 1), ("nobody", 2), ("old", 3)):
            yield f"{name}-of-{who}", port_connects(0, greeting, 208 + 8 * of, spoils=RIGHT * 3) + first + passes(1), 0
        for spoilt, how in {"bit": 130, "other": 162, "cut": 180, "twice": 200, "turned": 216, "between": 230, "lost": 250}.items():
            for flight in range(3):
                spoils = RIGHT * flight + bytes([how, 9 * flight + 3, 0, 9, 0, 0, 0, 0, 0]) + RIGHT * 4
                yield f"{name}-shake-{spoilt}-{flight}", port_connects(0, greeting, 192, spoils=spoils) + first + passes(1), 0
            yield f"{name}-spoilt-{spoilt}", port_connects(0, greeting) + first[:-1] + bytes([192, how, 0, 9, 0, 1, 0, 0, 0, 0]) + passes(1), 0
        yield f"{name}-new-keys", port_connects(0, greeting) + leaves(0, 3) + bytes([40, 0, 0]) + first + leaves(0, 3) + bytes([0, 0, 0]) + passes(1), 0
        yield f"{name}-new-keys-ever-again", port_connects(0, greeting) + (leaves(0, 3) + bytes([255, 1, 0])) * 8 + first + passes(1), 0
        yield f"{name}-farewell", port_connects(0, greeting) + first + leaves(0, 2) + RIGHT + passes(1) + first, 0
        yield f"{name}-records", port_connects(0, greeting) + raw(8, 0, bytes(40), how=0) + first + passes(1), 0
        yield f"{name}-plainly-inside", port_connects(0, greeting) + raw(8, 0, b"\x17\x03\x03\x00\x05abcde", how=60) + first + passes(1), 0
    for greeting in range(8):
        yield f"wrong-port-{greeting}-tls", port_connects(0, greeting, 240, spoils=RIGHT * 3) + passes(1), 0
    yield "plainly-to-tls", port_connects(0, 0, 248) + raw(8, 0, b"TRELAY1\n", how=60) + passes(1), 0
    yield from accept_scripts()


def accept_scripts():
    """What accepting does (tests/fuzz/accepts.h): each way in which it fails, and what comes then."""
    acts = lambda what, *more: bytes([15, what, *more])
    dials, few, many = acts(0), 2, 200
    passes = lambda pieces: bytes([14, pieces])
    relays = lambda end, plain: port_connects(end, 0, plain) + bytes([end << 4, end % 2 ^ 1]) + RIGHT
    both = lambda plain: relays(0, plain) + relays(1, plain) + passes(3) + bytes([11, 16 + 11])
    yield "accepts-dialled", dials + both(0) + both(24), 0
    for cause, name in enumerate(("emfile", "enfile", "enobufs", "enomem", "econnaborted", "eintr", "eproto", "eagain", "eperm")):
        yield f"accepts-{name}", acts(8 * cause + 1, few) + both(24) + passes(10) + relays(2, 24) + passes(5), cause % 4
        yield f"accepts-{name}-tls", acts(8 * cause + 1, few) + both(0) + passes(10) * 2 + relays(2, 0) + passes(5), cause % 4
        yield f"accepts-{name}-ever-again", acts(8 * cause + 1, many) + both(24) + both(0) + passes(5), cause % 4
    yield "accepts-none-left", acts(3) + both(24) + passes(3) + acts(3) + both(24) + passes(3), 0
    yield "accepts-none-left-tls", acts(3) + both(0) + passes(3) + relays(3, 0) + acts(3) + passes(3), 2
    yield "accepts-gone", dials + acts(248 + 5) + acts(248 + 6) + passes(1), 0
    yield "accepts-gone-while-none-left", acts(3) + (acts(248 + 5) + acts(248 + 6) + passes(1)) * 4, 1
    silent = b"".join(bytes([end << 4, 24, 224, 0]) for end in range(6))
    yield "accepts-too-many-say-nothing", dials + silent + passes(1) + relays(0, 24) + passes(120), 0
    yield "accepts-say-nothing", dials + silent[:8] + passes(120), 0
    yield "accepts-again", dials + both(24) + acts(4) + passes(1) + relays(2, 24) + acts(12) + relays(3, 0) + passes(1), 0
    yield "accepts-again-while-none-left", acts(3) + both(24) + acts(4) + acts(12) + passes(1) + both(0) + acts(4), 0
    yield "accepts-again-while-waiting", dials + silent + acts(4) + silent + passes(1) + acts(4), 0
