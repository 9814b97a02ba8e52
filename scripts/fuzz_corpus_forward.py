"""Scripts of fuzz_forward for make_fuzz_corpus.py: what clients of traind's API and memberd say, as tests/fuzz/forward_memberd.h, api_words.h and it read it."""
from fuzz_corpus_memberd import RIGHT, odd
from fuzz_corpus_port import (CHECK, DEAF, FOLLOW, GET_JOB, GOAWAY, LIST_JOBS, LIST_NODES, LOGS, MEASURE, PING, RESET, SECURE, SETTINGS, SUBMIT, WATCH,
                              WATCH_ALL, WINDOW, acts, call, connects, frames, headers, raw, settings, time)

SERVES, ABSENT, HANGS, PLAYED = range(4)
ENDS, TLS, GONE, NAME, UNIX, NOWHERE = 1, 4, 8, 16, 32, 48  # of the first byte; + 64 * how memberd is found
BREAKS, LASTS, STOPS_OUT, STOPS_IN, ACCEPTS, SHUTS_WRITE, SHUTS_READ, SAYS = range(8)

WAIT = time(1) * 2 + time(0) * 8  # turns in which a call comes to memberd


def memberd_is(what, how=0, cause=0):
    return bytes([12, (4 * cause + what) % 16 * 16]) + (bytes([how]) if what == PLAYED else b"")


def memberd_does(what):
    """2: it ends, 3: it is there again, 4: all connections break"""
    return bytes([12, what])


def link(what, *more, at=0):
    return bytes([12, at << 4 | 6 + what, *more])


def block(frames=1):
    return RIGHT + RIGHT * 2 * frames


def message(size=1, ends=False, says=RIGHT, prefix=RIGHT):
    return bytes([(240 if ends else 0) + size]) + says + prefix + RIGHT * 2


def trailers(status=0, words=0, frames=1):
    return bytes([status, words]) + block(frames)


def says(what, *more, at=0):
    return bytes([at << 4 | 13, what]) + b"".join(more)


def answers(sizes=(1,), status=0, words=0, stream=RIGHT, head=RIGHT, at=0):
    return says(0, bytes([len(sizes)]), stream, head, block(), *(message(size) for size in sizes), trailers(status, words), at=at)


def lonely(status, words=0, stream=RIGHT, head=RIGHT, frames=1):
    return says(7, stream, head, trailers(status, words, frames))


def served_scripts():
    """memberd is the real one."""
    for method in range(16):
        yield f"method-{method}", connects() + call(method) + WAIT + acts(0) + acts(10) + time(2), TLS * (method % 2)
    everything = b"".join(call(method) for method in range(16))
    yield "all", connects() + everything + WAIT + acts(10) * 3 + acts(3, 4) + acts(0) * 3 + time(20), 0
    yield "all-ends", connects() + connects(1, SECURE) + everything + WAIT, ENDS
    yield "all-ends-tls", connects() + everything + WAIT, ENDS | TLS
    yield "ends-meanwhile", connects() + everything + WAIT + bytes([0xfb]) + connects(1) + call(CHECK, 1) + time(30), 0
    yield "logs", connects() + call(LOGS) + WAIT + (acts(10) + time(1)) * 8, 0
    yield "logs-deaf", connects(how=DEAF) + call(FOLLOW) + WAIT + (acts(10) + time(1)) * 60 + bytes([10]) + (time(1) + acts(10)) * 20, 0
    yield "logs-deaf-goes", connects(how=DEAF) + call(FOLLOW) + WAIT + (acts(10) + time(1)) * 60 + bytes([9, 7]) + (time(1) + acts(10)) * 4, 0
    yield "logs-deaf-reset", connects(how=DEAF) + call(FOLLOW) + WAIT + (acts(10) + time(1)) * 60 + frames(RESET, RIGHT * 2) + WAIT, 0
    yield "logs-deaf-breaks", connects(how=DEAF) + call(FOLLOW) + WAIT + (acts(10) + time(1)) * 60 + link(BREAKS) + WAIT + bytes([10]) + time(1) * 4, 0
    yield "logs-deaf-long", acts(7) + connects(how=DEAF) + call(LIST_JOBS) * 8 + time(1) * 8 + bytes([10]) + time(1) * 8, 0
    yield "answers-long-deaf", connects(how=DEAF) + acts(7) + bytes([6, LIST_JOBS, 200, 0]) + time(0) * 900, 0
    yield "logs-slow", connects(how=DEAF) + call(FOLLOW) + WAIT + ((acts(10) + time(1)) * 30 + bytes([10]) + time(1) * 4 + bytes([10])) * 4, 0
    yield "timeout-passes", connects() + call(MEASURE, head=bytes([128 + 9, 2])) + WAIT + time(20) + acts(0) + time(1), 0
    yield "timeout-while-none-is-there", connects() + call(MEASURE, head=bytes([128 + 9, 3])) + time(60), HANGS << 6
    yield "goes", connects() + call(FOLLOW) + call(WATCH) + WAIT + bytes([9, 7]) + acts(10) + time(2), 0
    yield "goes-at-once", connects() + call(FOLLOW) + bytes([9, 7]) + time(2), 0
    yield "resets", connects() + call(MEASURE) + frames(RESET, RIGHT * 2) + time(1) + call(MEASURE) + WAIT + frames(RESET, RIGHT * 2) + WAIT, 0
    yield "long", connects() + bytes([3]) + headers(SUBMIT) + RIGHT + bytes([5, 231, 255]) + RIGHT + time(1) * 30, 0
    yield "long-stops", connects() + call(LIST_NODES) + WAIT + link(STOPS_OUT) + (bytes([3]) + headers(SUBMIT) + RIGHT + bytes([5, 100, 255]) + RIGHT + time(1)) * 3 + link(STOPS_OUT) + time(1) * 30, 0
    yield "long-ever-more", connects() + call(LIST_NODES) + WAIT + link(STOPS_OUT) + (bytes([3]) + headers(SUBMIT) + RIGHT + bytes([5, 231, 255]) + RIGHT + time(1)) * 17, 0
    yield "long-ever-more-hangs", connects() + (bytes([3]) + headers(SUBMIT) + RIGHT + bytes([5, 231, 255]) + RIGHT + time(0)) * 17, HANGS << 6
    yield "many", connects() + bytes([6, LIST_NODES, 200, 0]) + time(1) * 6, 0
    yield "too-many", b"".join(connects(end) + bytes([end << 4 | 6, WATCH, 200, 0]) + time(1) for end in range(3)) + time(2), 0
    yield "too-many-wait", b"".join(connects(end) + bytes([end << 4 | 6, WATCH, 200, 0]) + time(1) for end in range(3)) + time(2), HANGS << 6
    yield "memberd-ends", connects() + everything + WAIT + memberd_does(2) + WAIT + call(LIST_NODES) + time(30) + memberd_does(3) + call(LIST_NODES) + WAIT, 0
    yield "memberd-ends-stopped", connects() + everything + WAIT + link(STOPS_IN) + memberd_does(2) + time(30) + link(STOPS_IN) + time(2), 0
    yield "memberd-breaks", connects() + everything + WAIT + memberd_does(4) + call(LIST_NODES) + time(1) * 4, GONE
    yield "memberd-silent", connects() + call(WATCH) + WAIT + link(STOPS_IN) + time(255) * 3, 0
    for count in (1, 9, 24, 40, 80, 120, 200):
        yield f"memberd-lasts-{count}", link(LASTS, count, 1) + connects() + call(LIST_NODES) + WAIT + call(LIST_NODES) + WAIT, TLS * (count % 2)
    for what, name in ((SHUTS_WRITE, "write"), (SHUTS_READ, "read")):
        yield f"memberd-shuts-{name}", connects() + everything + WAIT + link(what) + call(LIST_NODES) + WAIT, 0
    yield "memberd-garbage", connects() + call(WATCH) + WAIT + link(SAYS, *range(16)) + call(LIST_NODES) + WAIT, 0
    yield "memberd-garbage-tls", connects() + call(WATCH) + time(1) * 8 + link(SAYS, *range(16)) + call(LIST_NODES) + WAIT, TLS


def absent_scripts():
    asks = connects() + call(LIST_NODES) + call(FOLLOW) + WAIT
    for cause in range(4):
        yield f"absent-{cause}", memberd_is(ABSENT, cause=cause) + asks + memberd_is(SERVES) + call(LIST_NODES) + WAIT, GONE
    yield "absent-unix", asks, ABSENT << 6 | UNIX | GONE
    yield "served-unix", asks + acts(10) + WAIT, UNIX | GONE
    yield "absent-ends", asks, ABSENT << 6 | ENDS
    yield "named", asks + WAIT, NAME | TLS | GONE
    yield "nowhere", asks, NOWHERE | GONE
    yield "nowhere-ends", connects() + call(LIST_NODES), NOWHERE | ENDS
    yield "hangs", asks + time(120) + call(LIST_NODES) + time(1), HANGS << 6 | GONE
    yield "hangs-ends", asks, HANGS << 6 | ENDS
    yield "hangs-accepts", asks + memberd_is(SERVES) + link(ACCEPTS) + time(1) * 4, HANGS << 6
    yield "hangs-accepts-tls", asks + memberd_is(SERVES) + link(ACCEPTS) + time(1) * 12, HANGS << 6 | TLS
    yield "hangs-accepts-silent-tls", asks + memberd_is(PLAYED, 64 + 6) + link(ACCEPTS) + time(120), HANGS << 6 | TLS
    yield "hangs-breaks", asks + link(BREAKS) + WAIT, HANGS << 6
    yield "hangs-goes", asks + bytes([9, 7]) + WAIT + time(120), HANGS << 6


def played_scripts():
    """memberd is one that the script speaks for; `first`: what it is asked."""
    first = connects() + call(GET_JOB) + WAIT
    two = connects() + call(GET_JOB) + call(FOLLOW) + WAIT
    at = PLAYED << 6
    yield "played", first + answers() + WAIT, at
    yield "played-tls", first + time(1) * 8 + answers() + WAIT, at | TLS
    for who in range(4):
        yield f"played-who-{who}", memberd_is(PLAYED, 48 + who) + first + time(1) * 8 + answers() + WAIT, TLS
    for how, name in ((6, "says-nothing"), (7, "http1"), (64, "deaf"), (128, "pieces"), (64 + 6, "deaf-says-nothing")):
        yield f"played-{name}", memberd_is(PLAYED, how) + first + answers() + WAIT, 0
    yield "played-more", two + answers((1, 1, 5, 100, 30)) + answers((2, 2)) + WAIT, at
    yield "played-other-order", two + answers(stream=odd(3)) + answers(stream=odd(1)) + WAIT, at
    for status in range(8):
        yield f"played-status-{status}", two + lonely(status, status % 5) + answers((), status, status) + WAIT, at
    yield "played-long-words", two + lonely(1, 251) + answers((1,), 1, 251) + WAIT, at
    for which in range(1, 11):
        fields = bytes([128 + which]) + {2: b"\x02", 7: b"\x03\x0a", 10: b"\x01\x01"}.get(which, b"")
        yield f"played-head-{which}", two + answers(head=fields) + lonely(1, head=fields) + WAIT, at
    for other in range(8):
        yield f"played-http-{other}", first + answers(head=bytes([130, other])) + WAIT, at
    yield "played-head-huge", first + says(7, RIGHT, bytes([128 + 7, 63, 255]), trailers(frames=6)) + WAIT, at
    opens = says(4, RIGHT, RIGHT, block())
    yield "played-no-trailers", first + opens + says(5, message(5, ends=True)) + WAIT, at
    yield "played-trailers-only-late", first + opens + says(5, message(5)) + says(6, trailers()) + time(1), at
    yield "played-cut-message", first + opens + says(5, message(5, says=odd(200))) + says(6, trailers()) + time(1), at
    yield "played-compressed", first + opens + says(5, message(5, prefix=bytes([225]))) + says(6, trailers()) + WAIT, at
    yield "played-malformed", first + opens + says(5, message(5, prefix=bytes([226]))) + WAIT, at
    yield "played-too-long", first + opens + says(5, message(5, says=odd(5 << 20))) + WAIT, at
    yield "played-no-head", first + says(5, message(5)) + WAIT, at
    yield "played-idle-stream", first + answers(stream=odd(99)) + WAIT, at
    yield "played-long", first + opens + says(8, bytes([200, 255]), RIGHT) + says(6, trailers()) + time(1) * 30, at
    yield "played-long-deaf", connects(how=DEAF) + call(FOLLOW) + WAIT + (opens + says(8, bytes([60, 255]), RIGHT)) + time(1) * 9 + bytes([10]) + time(1) * 9, at
    small = says(5, message(100)) * 12
    yield "played-small-deaf", connects(how=DEAF) + call(FOLLOW) + WAIT + opens + small * 8 + says(6, trailers()) + WAIT + bytes([10]) + time(1) * 4, at
    for what, name in ((SETTINGS, "settings"), (PING, "ping"), (WINDOW, "window"), (RESET, "reset"), (5, "push"), (10, "unknown"), (9, "continuation"), (0, "data"), (1, "headers"), (2, "priority")):
        fields = {SETTINGS: b"\x01\x01", WINDOW: RIGHT * 2}.get(what, (RIGHT if what in (2, 3, 5, 6) else b"") + (RIGHT if what < 4 or what == 9 else b""))
        yield f"played-frame-{name}", first + opens + says(9, frames(what, fields)[1:]) + says(5, message(5)) + says(6, trailers()) + WAIT, at
        yield f"played-flood-{name}", first + opens + says(9, frames(what, fields, 255)[1:]) + says(6, trailers()) + WAIT, at
    yield "played-goaway", two + says(14, RIGHT, RIGHT, RIGHT * 2) + call(LIST_NODES) + WAIT + answers() + answers(at=1) + WAIT, at
    yield "played-goaway-first", two + says(14, odd(1), RIGHT, RIGHT * 2) + call(LIST_NODES) + WAIT + answers() + answers(at=1) + WAIT, at
    yield "played-goaway-none", two + says(14, odd(0), RIGHT, RIGHT * 2) + call(LIST_NODES) + WAIT, at
    yield "played-goaway-angry", two + says(14, RIGHT, odd(11), RIGHT * 2) + WAIT, at
    for code in range(14):
        yield f"played-resets-{code}", first + opens + says(15, bytes([code]), RIGHT * 2) + WAIT, at
    yield "played-refuses", two + says(4, RIGHT, bytes([128 + 1]), block()) + says(15, b"\x07", RIGHT * 2) + WAIT, at
    for value in range(8):
        yield f"played-settings-{value}", memberd_is(PLAYED, 5) + connects() + call(GET_JOB) + time(1) + bytes([13, 9, SETTINGS, 1]) + settings((3, value)) + RIGHT + RIGHT * 2 + call(FOLLOW) * 3 + time(1) * 4 + answers() + answers() + WAIT, 0
        yield f"played-window-{value}", first + bytes([13, 9, SETTINGS, 1]) + settings((4, value)) + RIGHT + RIGHT * 2 + call(SUBMIT) * 2 + WAIT + answers() * 3 + time(1), at
    narrow = bytes([13, 9, SETTINGS, 1]) + settings((3, 1)) + RIGHT + RIGHT * 2
    yield "played-one-at-a-time", first + narrow + call(FOLLOW) * 5 + WAIT + b"".join(answers(at=i) for i in range(3)) * 3 + WAIT, at
    wide = lambda at: bytes([at << 4 | 13, 9, SETTINGS, 1]) + settings((3, 6)) + RIGHT + RIGHT * 2
    for few in (2, 3, 4):
        yield f"played-few-then-more-{few}", memberd_is(PLAYED, few) + connects() + (call(FOLLOW) + WAIT) * 9 + wide(0) + WAIT * 2 + answers() + WAIT, 0
        yield f"played-few-wait-{few}", memberd_is(PLAYED, few) + connects() + (call(FOLLOW, head=bytes([128 + 10, 4])) + WAIT) * 9 + answers() + WAIT + answers(at=1) + WAIT + time(60), 0
    for how in range(8):
        yield f"played-leaves-{how}", two + answers() + says(12, bytes([how]), RIGHT * 2) + call(LIST_NODES) + time(1) * 4, at | (TLS if how in (2, 3) else 0)
    yield "played-raw", first + bytes([13, 11, 100, 40]) + bytes(range(40)) + WAIT, at
    yield "played-plainly-to-tls", memberd_is(PLAYED, 0) + first + link(SAYS, *range(16)) + time(1) * 4, TLS
    yield "played-ends", two + answers((1, 2)), at | ENDS
    yield "played-many", b"".join(connects(end) + bytes([end << 4 | 6, LIST_NODES, 120, 0]) for end in range(3)) + WAIT + answers() * 20 + says(14, odd(41), RIGHT, RIGHT * 2) + time(1) * 4, at


def forward_scripts():
    """(name, script, its first byte)"""
    yield from served_scripts()
    yield from absent_scripts()
    yield from played_scripts()
