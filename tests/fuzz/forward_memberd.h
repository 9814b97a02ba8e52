/* memberd, as traind's API finds it when it dials (forward.h): the real server with the Trainer service over a cluster that is played (api_backend.h),
 * behind a wire that stops, breaks at any byte or says something of its own; or nobody; or somebody who does not accept; or one that the script speaks
 * for, nearly right. It comes and goes. Sockets are pairs, as port_end.h's, so the same input gives the same result. Static.
 */
#ifndef TR_TESTS_FUZZ_FORWARD_MEMBERD_H
#define TR_TESTS_FUZZ_FORWARD_MEMBERD_H

#include "tests/fuzz/api_backend.h"
#include "tests/fuzz/api_served.h"
#include "tests/fuzz/api_words.h"

#define MEMBERD_LINKS       4
#define MEMBERD_WIRE_BYTES  (64u << 10)
#define MEMBERD_PIECES      4 /* of so many bytes, in a turn each way */
#define MEMBERD_PATIENCE_NS (UINT64_C(1000000) * (TR_GRPC_DIAL_TIMEOUT_MS + 1000))
#define MEMBERD_STREAMS_MAX 100000 /* that traind may open on one connection */

enum memberd_is { MEMBERD_SERVES, MEMBERD_ABSENT, MEMBERD_HANGS, MEMBERD_PLAYED };

/* A connection that traind has dialled. */
struct memberd_link {
	struct port_end near; /* what traind's socket is joined with */
	int far;              /* the server's; -1: the script answers, or nobody does */
	uint64_t dialled_ns;
	size_t junk;   /* not accepted: the socket is full of so much */
	size_t left;   /* after so many bytes it breaks; SIZE_MAX: never */
	bool stops[2]; /* nothing comes through from traind, to traind */
	bool spoilt;   /* no more is expected of it */
	bool greets;   /* it has said its settings, or will not */
	uint8_t head[WORDS_HEAD_BYTES];
	size_t have, skip; /* of a frame's head, and of what is behind it: what traind says */
	uint32_t opened;   /* the newest call */
};

static struct {
	struct listener *plain, *secure;
	struct grpc_server *server; /* NULL: it has ended */
	struct tls_context *tls;    /* that traind dials with; NULL: plainly */
	enum memberd_is is;
	int cause;    /* why it is absent */
	uint8_t how;  /* it greets, and with which certificate, as it is played */
	size_t lasts; /* bytes after which each new connection to the real one breaks */
	struct memberd_link links[MEMBERD_LINKS];
	unsigned next; /* the link that goes when there are too many */
} memberd;

/* ---- the real one */

static void memberd_accepted(void *arg, enum listener_protocol protocol, struct stream stream,
    const void *early, size_t early_bytes)
{
	(void)arg;
	if (protocol == LISTENER_HTTP2 && memberd.server != NULL)
		grpc_server_accept(memberd.server, stream, early, early_bytes);
	else
		stream_close(&stream);
}

static void memberd_ended(void *arg)
{
	(void)arg;
	memberd.server = NULL;
	trainer_service_destroy(api.service);
	api.service = NULL;
}

static void memberd_start(void)
{
	struct tr_error error = { 0 };
	live_need(listener_start(&port.net, "127.0.0.1:0", false, NULL, memberd_accepted, NULL,
	              &memberd.plain, &error),
	    &error, "memberd's port");
	live_need(listener_start(&port.net, "127.0.0.1:0", false, tls_end_victims, memberd_accepted,
	              NULL, &memberd.secure, &error),
	    &error, "memberd's port with TLS");
	for (unsigned i = 0; i < MEMBERD_LINKS; i++)
		memberd.links[i] = (struct memberd_link){ .near.tls.fd = -1, .far = -1 };
	memberd.server = served_trainer();
}

/* ---- what traind dials */

static void memberd_break(struct memberd_link *link)
{
	port_close(&link->near);
	if (link->far >= 0)
		(void)close(link->far);
	link->far = -1;
}

static void memberd_fill(struct memberd_link *link, int fd)
{
	static const uint8_t junk[4096];
	ssize_t n;
	while ((n = send(fd, junk, sizeof(junk), MSG_DONTWAIT | MSG_NOSIGNAL)) > 0)
		link->junk += (size_t)n;
}

static void memberd_lead_on(struct memberd_link *link)
{
	int ends[2];
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0)
		live_die("no sockets");
	link->far = ends[0];
	listener_take(memberd.tls == NULL ? memberd.plain : memberd.secure, ends[1]);
}

static void memberd_play(struct memberd_link *link)
{
	link->spoilt = true;
	link->near.reads = (memberd.how & 64) == 0;
	link->near.piece = (memberd.how & 128) == 0 ? 0 : 1u + (memberd.how & 15);
	if (memberd.tls != NULL)
		tls_end_open(&link->near.tls, link->near.tls.fd, true,
		    (memberd.how & 48) != 48 ? TLS_END_OURS
		                             : (enum tls_end_who)(memberd.how % TLS_END_WHOS));
}

static struct memberd_link *memberd_free_link(void)
{
	for (unsigned i = 0; i < MEMBERD_LINKS; i++)
		if (!port_is_open(&memberd.links[i].near))
			return &memberd.links[i];
	struct memberd_link *link = &memberd.links[memberd.next++ % MEMBERD_LINKS];
	memberd_break(link);
	return link;
}

static int memberd_dialled(int fd, const struct sockaddr *to)
{
	int ends[2];
	(void)to;
	if (memberd.is == MEMBERD_ABSENT) {
		errno = memberd.cause;
		return -1;
	}
	struct memberd_link *link = memberd_free_link();
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0 ||
	    dup3(ends[0], fd, O_CLOEXEC) < 0)
		live_die("no sockets");
	(void)close(ends[0]);
	*link = (struct memberd_link){
		.near = { .tls = { .fd = ends[1] }, .reads = true, .next = 1, .last = 1 },
		.far = -1,
		.left = memberd.lasts
	};
	if (memberd.is == MEMBERD_SERVES) {
		memberd_lead_on(link);
	} else if (memberd.is == MEMBERD_PLAYED) {
		memberd_play(link);
	} else {
		link->spoilt = true;
		link->dialled_ns = one.now_ns;
		memberd_fill(link, fd);
		errno = EINPROGRESS;
		return -1;
	}
	return 0;
}

/* ---- the wire to the real one */

/* false: one of the ends is gone. */
static bool memberd_carry_piece(struct memberd_link *link, int from, int to, bool *more)
{
	static uint8_t bytes[MEMBERD_WIRE_BYTES];
	size_t most = link->left < sizeof(bytes) ? link->left : sizeof(bytes);
	ssize_t n = recv(from, bytes, most, MSG_PEEK | MSG_DONTWAIT);
	if (n == 0 || (n < 0 && errno != EAGAIN))
		return false;
	n = n < 0 ? 0 : send(to, bytes, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (n < 0 && errno != EAGAIN)
		return false;
	*more = n > 0;
	if (n <= 0)
		return true;
	(void)recv(from, bytes, (size_t)n, MSG_DONTWAIT);
	port.heard = (port.heard ^ (uint64_t)n) * UINT64_C(0x100000001b3);
	link->left -= link->left == SIZE_MAX ? 0 : (size_t)n;
	return link->left > 0;
}

static bool memberd_carry(struct memberd_link *link, int from, int to)
{
	bool more = true, here = true;
	for (unsigned i = 0; here && more && i < MEMBERD_PIECES; i++)
		here = memberd_carry_piece(link, from, to, &more);
	return here;
}

static void memberd_wire_turn(struct memberd_link *link)
{
	bool here = link->stops[0] || memberd_carry(link, link->near.tls.fd, link->far);
	if (!here || !(link->stops[1] || memberd_carry(link, link->far, link->near.tls.fd)))
		memberd_break(link);
}

/* ---- one that is played: what it hears, and its greeting */

static void memberd_hears(struct memberd_link *link, const uint8_t *bytes, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (link->skip > 0) {
			link->skip--;
			continue;
		}
		if (link->have == 0 && bytes[i] == 'P') /* the preface; no frame is so long */
			link->skip = strlen(WORDS_PREFACE);
		link->head[link->have++] = bytes[i];
		if (link->skip > 0) {
			link->have = 0;
			link->skip--;
		}
		if (link->have < WORDS_HEAD_BYTES)
			continue;
		uint32_t stream = 0;
		for (unsigned k = 0; k < 4; k++)
			stream = stream << 8 | link->head[5 + k];
		link->have = 0;
		link->skip = (size_t)link->head[0] << 16 | (size_t)link->head[1] << 8 |
		    link->head[2];
		if (link->head[3] == WORDS_HEADERS && stream > link->opened)
			link->opened = stream;
		if (stream > MEMBERD_STREAMS_MAX)
			live_die("traind says to memberd what is no frame");
	}
}

static void memberd_greet(struct memberd_link *link)
{
	static const char other[] = "HTTP/1.1 400 Bad Request\r\n\r\n";
	uint8_t settings[6 * 8];
	link->greets = true;
	if ((memberd.how & 7) == 7) {
		port_put(&link->near, &port.none, other, sizeof(other) - 1);
	} else if ((memberd.how & 7) != 6) {
		static const uint8_t few[3][6] = { { 0, 3, 0, 0, 0, 2 }, { 0, 3 },
			{ 0, 3, 0, 0, 0, 1 } };
		size_t bytes = words_settings((memberd.how & 7) == 5 ? &port.script : &port.none,
		    settings);
		if ((memberd.how & 7) >= 2 && (memberd.how & 7) <= 4) {
			memcpy(settings, few[(memberd.how & 7) - 2], sizeof(few[0]));
			bytes = sizeof(few[0]); /* calls at a time */
		}
		words_put(&link->near,
		    (struct words_frame){ WORDS_SETTINGS, 0, 0, bytes, settings });
	}
}

static void memberd_played_turn(struct memberd_link *link)
{
	static uint8_t bytes[MEMBERD_WIRE_BYTES];
	const struct tls_end *tls = &link->near.tls;
	bool shaken = tls->ssl == NULL || SSL_is_init_finished(tls->ssl);
	if (!link->greets && shaken)
		memberd_greet(link);
	if (!link->near.reads && shaken)
		return;
	size_t got = port_turn(&link->near, &port.none, bytes, sizeof(bytes));
	memberd_hears(link, bytes, got);
	if (got == 0 && port_was_left(&link->near))
		memberd_break(link);
}

/* Nobody accepts; traind gives it up after its time. */
static void memberd_hanging_turn(struct memberd_link *link)
{
	struct pollfd left = { .fd = link->near.tls.fd };
	if (poll(&left, 1, 0) > 0 && (left.revents & POLLHUP) != 0)
		memberd_break(link);
	else if (one.now_ns > link->dialled_ns + MEMBERD_PATIENCE_NS)
		live_die("traind waits for too long for a memberd that does not accept");
}

/* Before each turn of traind's. */
static void memberd_turn(void)
{
	for (unsigned i = 0; i < MEMBERD_LINKS; i++) {
		struct memberd_link *link = &memberd.links[i];
		if (!port_is_open(&link->near))
			continue;
		if (link->junk > 0)
			memberd_hanging_turn(link);
		else if (link->far >= 0)
			memberd_wire_turn(link);
		else
			memberd_played_turn(link);
	}
}

/* ---- what the script lets happen */

static void memberd_accept_late(struct memberd_link *link)
{
	static uint8_t bytes[4096];
	while (link->junk > 0) {
		ssize_t n = recv(link->near.tls.fd, bytes,
		    link->junk < sizeof(bytes) ? link->junk : sizeof(bytes), MSG_DONTWAIT);
		if (n <= 0)
			live_die("what fills a socket is gone");
		link->junk -= (size_t)n;
	}
	if (memberd.is == MEMBERD_PLAYED)
		memberd_play(link);
	else
		memberd_lead_on(link);
}

static void memberd_become(uint8_t how)
{
	static const int causes[] = { ECONNREFUSED, ENETUNREACH, EHOSTUNREACH, EACCES, ETIMEDOUT,
		EADDRNOTAVAIL };
	memberd.is = (enum memberd_is)(how % 4);
	memberd.cause = causes[how / 4 % 6];
	if (memberd.is == MEMBERD_PLAYED)
		memberd.how = script_byte(&port.script);
}

static void memberd_link_acts(struct memberd_link *link, uint8_t what)
{
	uint8_t some[16];
	if (what == 1) {
		size_t left = (size_t)script_byte(&port.script) * script_byte(&port.script);
		*(port_is_open(&link->near) ? &link->left : &memberd.lasts) = left;
	}
	if (!port_is_open(&link->near))
		return;
	link->spoilt = true;
	switch (what) {
	case 0:
		memberd_break(link);
		break;
	case 1:
		break;
	case 2:
	case 3:
		link->stops[what - 2] = !link->stops[what - 2];
		break;
	case 4:
		if (link->junk > 0)
			memberd_accept_late(link);
		break;
	case 5:
		(void)shutdown(link->near.tls.fd, SHUT_WR);
		break;
	case 6:
		(void)shutdown(link->near.tls.fd, SHUT_RD);
		break;
	default:
		for (size_t i = 0; i < sizeof(some); i++)
			some[i] = script_byte(&port.script);
		tls_end_put(&link->near.tls, some, 1u + some[0] % sizeof(some));
	}
}

/* It comes, goes, and what happens on its connections. */
static void memberd_acts(void)
{
	uint8_t which = script_byte(&port.script);
	switch (which % 16) {
	case 0:
	case 1:
		memberd_become(which / 16);
		break;
	case 2:
		if (memberd.server != NULL)
			grpc_server_close(memberd.server, memberd_ended, NULL);
		break;
	case 3:
		if (memberd.server == NULL)
			memberd.server = served_trainer();
		break;
	case 4:
		for (unsigned i = 0; i < MEMBERD_LINKS; i++)
			memberd_break(&memberd.links[i]);
		break;
	case 5:
		if (api.service != NULL)
			api_acts(&port.script);
		break;
	default:
		memberd_link_acts(&memberd.links[which / 16 % MEMBERD_LINKS], which % 16 - 6);
	}
}

/* ---- what it says where it is played */

static void memberd_take_next(struct port_end *end, uint32_t opened)
{
	uint32_t right = end->next <= opened || opened == 0 ? end->next : opened;
	end->next = right + 2;
	end->last = (uint32_t)script_about(&port.script, right);
}

static void memberd_status(struct script *script)
{
	static const char *const statuses[] = { "0", "5", "14", "17", "4", "-1", "99999999999", "" };
	static const char *const texts[] = { "no", "%e4%b8", "%", "%ff%00%0a", "" };
	char text[3001];
	uint8_t status = script_byte(script), words = script_byte(script);
	words_field("grpc-status", statuses[status % 8]);
	if (words == 0)
		return;
	memset(text, 't', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	words_field("grpc-message", words < 250 ? texts[words % 5] : text);
}

static void memberd_head(struct script *script)
{
	static const char *const statuses[] = { "100", "404", "503", "429", "999", "x", "200", "" };
	uint8_t odd = script_byte(script);
	unsigned which = odd < 128 ? 0 : odd % 16;
	words_block.bytes = 0;
	if (which != 1)
		words_field(":status", which == 2 ? statuses[script_byte(script) % 8] : "200");
	if (which != 3)
		words_field("content-type",
		    which == 4       ? "text/html"
		        : which == 5 ? "application/grpc+proto"
		                     : "application/grpc");
	if (which == 6)
		words_field("grpc-encoding", "gzip");
	if (which == 7)
		words_more_fields(script);
	if (which == 8)
		words_field("Bad Name", "\x01");
	if (which == 9)
		words_field(":status", "200");
	if (which == 10)
		memberd_status(script);
}

static void memberd_says_message(struct port_end *end)
{
	struct script *script = &port.script;
	static const uint8_t zeros[1024 - 5];
	uint8_t how = script_byte(script);
	words_say_message(end, zeros, how % 128 * (size_t)7, how < 240 ? 0 : WORDS_END);
}

static void memberd_says_trailers(struct port_end *end, bool alone)
{
	if (alone)
		memberd_head(&port.script);
	else
		words_block.bytes = 0;
	memberd_status(&port.script);
	words_say_block(end, end->last, WORDS_END);
}

static void memberd_says_goaway(struct port_end *end, uint32_t opened)
{
	uint8_t payload[8];
	words_number(payload, script_about(&port.script, opened));
	words_number(payload + 4, script_about(&port.script, 0));
	words_put(end, (struct words_frame){ WORDS_GOAWAY, 0, 0, sizeof(payload), payload });
}

static void memberd_resets(struct port_end *end)
{
	uint8_t code[4];
	words_number(code, script_byte(&port.script) % 14);
	words_put(end, (struct words_frame){ WORDS_RESET, 0, end->last, 4, code });
}

static void memberd_says_whole(struct port_end *end, uint32_t opened)
{
	unsigned messages = script_byte(&port.script) % 8;
	memberd_take_next(end, opened);
	memberd_head(&port.script);
	words_say_block(end, end->last, 0);
	for (unsigned i = 0; i < messages; i++)
		memberd_says_message(end);
	memberd_says_trailers(end, false);
}

static void memberd_says(struct memberd_link *link, uint8_t what)
{
	struct port_end *end = &link->near;
	if (what < 4) {
		memberd_says_whole(end, link->opened);
	} else if (what == 4) {
		memberd_take_next(end, link->opened);
		memberd_head(&port.script);
		words_say_block(end, end->last, 0);
	} else if (what == 5) {
		memberd_says_message(end);
	} else if (what == 6) {
		memberd_says_trailers(end, false);
	} else if (what == 7) {
		memberd_take_next(end, link->opened);
		memberd_says_trailers(end, true);
	} else if (what == 8) {
		words_say_long(end);
	} else if (what < 11) {
		words_say_frame(end);
	} else if (what == 11) {
		port_raw(end);
	} else if (what == 12) {
		port_leave(end);
	} else if (what == 13) {
		end->reads = !end->reads;
	} else if (what == 14) {
		memberd_says_goaway(end, link->opened);
	} else {
		memberd_resets(end);
	}
}

/* On the connection that the script means, or another that is played. */
static void memberd_speaks(uint8_t which)
{
	uint8_t what = script_byte(&port.script);
	for (unsigned i = 0; i < MEMBERD_LINKS; i++) {
		struct memberd_link *link = &memberd.links[(which + i) % MEMBERD_LINKS];
		if (!port_is_open(&link->near) || link->far >= 0 || link->junk > 0)
			continue;
		memberd_says(link, what % 16);
		return;
	}
}

/* ---- before an input, and after it */

static void memberd_begin(uint8_t how, struct tls_context *tls)
{
	memberd.tls = tls;
	memberd.is = (enum memberd_is)(how % 4);
	memberd.cause = ECONNREFUSED;
	memberd.how = 0;
	memberd.lasts = SIZE_MAX;
	memberd.next = 0;
	one.connects = memberd_dialled;
	api_begin();
}

static bool memberd_is_calm(void)
{
	for (const struct grpc_server_connection *c = memberd.server->connections; c != NULL;
	     c = c->next)
		if (c->session->stream_count > 0)
			return false;
	return true;
}

/* From here on it is the real one, which has ended and come again if the script wanted that. Connections of which no more can be expected are none. */
static void memberd_mends(void)
{
	for (unsigned turns = 0; memberd.server != NULL && memberd.server->closing; turns++) {
		one_wait(ONE_IDLE_NS);
		if (turns == PORT_TURNS_MAX)
			live_die("memberd does not end");
	}
	if (memberd.server == NULL)
		memberd.server = served_trainer();
	for (unsigned i = 0; i < MEMBERD_LINKS; i++)
		if (port_is_open(&memberd.links[i].near) &&
		    (memberd.links[i].spoilt || memberd.links[i].left != SIZE_MAX))
			memberd_break(&memberd.links[i]);
	memberd.is = MEMBERD_SERVES;
	memberd.lasts = SIZE_MAX;
}

/* It is gone, and so is what was open: `is` says how it is found from now on, `lasts` how long. */
static void memberd_goes(enum memberd_is is, size_t lasts)
{
	for (unsigned i = 0; i < MEMBERD_LINKS; i++)
		memberd_break(&memberd.links[i]);
	memberd.is = is;
	memberd.lasts = lasts;
	memberd.cause = ECONNREFUSED;
}

#endif
