/* What a process of the same host can do to a live engine (live.h): over the UNIX socket beside the rings, descriptors of wrong
 * kinds, sizes and seals, in wrong messages and numbers; in the rings, any index, slot, offset and length, changed at any
 * time, and frames of the attacked group that are nearly right, with bodies inside the ring or in memory that was shown.
 * First byte: as fuzz_engine.c.
 */
#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "collectives/transport/board.h"
#include "collectives/transport/descriptors.h"
#include "collectives/transport/shm_memory.h"
#include "collectives/transport/shm_ring.h"
#include "collectives/transport/shm_socket.h"
#include "tests/fuzz/attack.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define WAYS        4
#define SENT_MAX    6
#define SHOWN_BYTES (20 * 4096) /* a board is in it, where a peer's staging has one */
_Static_assert(SHOWN_BYTES >= STAGING_BOARD_AT + sizeof(struct board), "room for a board");
/* Pieces of memory that a lane shows; that may stay mapped of lanes that ended with frames of the view on them. */
#define PIECES_MAX 4
#define KEPT_MAX   64
#define RING_BYTES (4096 + SHM_RING_SLOTS * sizeof(struct shm_ring_slot) + SHM_RING_DATA)

/* A socket and what was handed over on it. */
struct way {
	int socket, bell;          /* -1: none */
	struct shm_ring put, take; /* as the engine reads and writes them; control NULL: none */
	uint64_t produced;
	unsigned pieces; /* of memory, shown on it */
};

static int port = -1;
static char name[64];
static struct way ways[WAYS];
static int shown = -1; /* memory that is as it should be */
static uint8_t *shown_base;

/* ---- descriptors */

static int memory(size_t bytes, int seals)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0 || fcntl(fd, F_ADD_SEALS, seals) != 0)
		live_die("no memory to show");
	return fd;
}

/* A ring; mapped here too. */
static int ring(struct shm_ring *mapped)
{
	int fd;
	if (mapped->control != NULL)
		shm_ring_unmap(mapped);
	live_need(shm_ring_create(mapped, &fd, NULL), &(struct tr_error){ 0 }, "a ring");
	return fd;
}

static int odd(unsigned kind)
{
	switch (kind % 9) {
	case 0:
		return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	case 1:
		return eventfd(0, EFD_CLOEXEC);
	case 2:
		return open("/dev/null", O_RDWR | O_CLOEXEC);
	case 3:
		return memory(RING_BYTES, F_SEAL_SHRINK); /* a ring of zeroes */
	case 4:
		return memory(4096, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	case 5:
		return memory(RING_BYTES, F_SEAL_GROW); /* it may shrink */
	case 6:
		return memory(RING_BYTES, F_SEAL_SHRINK | F_SEAL_WRITE);
	case 7:
		return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	default:
		return memory(0, F_SEAL_SHRINK);
	}
}

/* ---- the socket */

static void send_message(int fd, const struct shm_message *says, size_t bytes, const int *sent,
    unsigned count)
{
	_Alignas(struct cmsghdr) uint8_t space[DESCRIPTORS_SPACE(SENT_MAX)];
	struct iovec piece = { (void *)(uintptr_t)says, bytes };
	struct msghdr header = { .msg_iov = &piece, .msg_iovlen = 1 };
	descriptors_attach(&header, space, sent, count);
	(void)sendmsg(fd, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Hello, welcome or memory, with what belongs to it unless the script says otherwise. */
static void say(struct script *script, struct way *way)
{
	struct shm_message says = { .version = SHM_SOCKET_VERSION };
	int sent[SENT_MAX];
	unsigned count = 0;
	uint32_t kind = 1 + script_byte(script) % 4;
	if (way->socket < 0 || (kind == SHM_MEMORY && way->pieces++ >= PIECES_MAX))
		return;
	if (kind == SHM_HELLO) {
		unsigned forger = attack_forger(script);
		says.claim.group = forger == 1 ? LIVE_HONEST : LIVE_ATTACKED;
		says.claim.to = LIVE_ME;
		says.claim.token[0] = live_token(LIVE_ATTACKED)[0];
		says.claim.token[1] = live_token(LIVE_ATTACKED)[1] + (forger == 2);
		sent[count++] = ring(&way->put);
		sent[count++] = ring(&way->take);
		way->produced = 0;
	}
	if (kind == SHM_HELLO || kind == SHM_WELCOME)
		sent[count++] = odd(0);
	if (kind == SHM_MEMORY)
		sent[count++] = dup(shown);
	says.kind = (uint32_t)script_about(script, kind);
	says.bytes = script_about(script, SHOWN_BYTES);
	says.stable = (uint32_t)script_about(script, way->pieces > 1); /* the first is its staging */
	if (script_byte(script) >= 224)
		says.version++;
	uint8_t how = script_byte(script);
	if (how >= 192 && count > 0) { /* one is something else */
		unsigned which = how % count;
		(void)close(sent[which]);
		sent[which] = odd(script_byte(script));
	}
	unsigned more = script_byte(script);
	while (more >= 224 && count < SENT_MAX && more-- > 0)
		sent[count++] = odd(more);
	unsigned fewer = (unsigned)(script_about(script, 0) % (count + 1));
	size_t bytes = script_about(script, sizeof(says)) % (sizeof(says) + 1);
	send_message(way->socket, &says, bytes, sent, count - fewer);
	for (unsigned i = 0; i < count; i++)
		(void)close(sent[i]);
}

/* What the engine sent: the rings of its hello, its bell. */
static void hear(struct way *way)
{
	struct shm_received received;
	if (way->socket < 0 || shm_socket_receive(way->socket, &received) != TR_OK)
		return;
	if (received.message.kind == SHM_HELLO && received.descriptor_count == 3) {
		shm_ring_unmap(&way->put);
		shm_ring_unmap(&way->take);
		(void)shm_ring_open(&way->take, received.descriptors[0], NULL);
		(void)shm_ring_open(&way->put, received.descriptors[1], NULL);
		way->produced = 0;
	}
	unsigned last = received.descriptor_count;
	if (last > 0 && shm_socket_is_bell(received.descriptors[last - 1])) {
		if (way->bell >= 0)
			(void)close(way->bell);
		way->bell = received.descriptors[--last];
	}
	while (last > 0)
		(void)close(received.descriptors[--last]);
}

static void drop(struct way *way)
{
	if (way->socket >= 0)
		(void)close(way->socket);
	if (way->bell >= 0)
		(void)close(way->bell);
	shm_ring_unmap(&way->put);
	shm_ring_unmap(&way->take);
	*way = (struct way){ .socket = -1, .bell = -1 };
}

static void sweep(void)
{
	for (unsigned i = 0; i < WAYS; i++)
		drop(&ways[i]);
	for (int fd = accept(port, NULL, NULL); fd >= 0; fd = accept(port, NULL, NULL))
		(void)close(fd);
}

static void connect_or_close(struct script *script, struct way *way)
{
	uint8_t how = script_byte(script) % 4;
	if (way->socket >= 0 && how == 0)
		(void)shutdown(way->socket, SHUT_WR);
	else if (way->socket >= 0 && how == 1)
		drop(way);
	else if (way->socket >= 0)
		hear(way);
	else if (how == 3)
		way->socket = accept4(port, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	else if (shm_socket_dial(engine_local_address(live.victim), &way->socket, NULL) != TR_OK)
		way->socket = -1;
}

/* ---- the rings */

static void ring_bell(const struct way *way)
{
	if (way->bell >= 0)
		shm_socket_ring(way->bell);
}

/* A frame, nearly right. */
static void put(struct script *script, struct way *way, const struct attack_frame *frame)
{
	if (way->put.control == NULL)
		return;
	struct shm_ring_slot *slot = &way->put.slots[way->produced % SHM_RING_SLOTS];
	size_t head = frame->type == FRAME_SEGMENT ? SEGMENT_HEADER_BYTES : 0;
	uint8_t where = script_byte(script);
	uint64_t offset = (uint64_t)(script_byte(script) % 64) * 64;
	slot->type = (uint32_t)script_about(script, frame->type);
	slot->head_bytes = (uint32_t)script_about(script, head);
	slot->memory = (uint32_t)script_about(script, where % 2 == 0 ? SHM_RING_INSIDE : 0);
	slot->body_bytes = (uint32_t)script_about(script, frame->bytes - head);
	slot->offset = script_about(script, offset);
	memcpy(slot->head, frame->payload, head);
	memcpy(where % 2 == 0 ? way->put.data + offset : shown_base + offset, frame->payload + head,
	    frame->bytes - head);
	way->produced = script_about(script, way->produced + 1);
	atomic_store(&way->put.control->produced, way->produced);
	ring_bell(way);
}

/* An entry of a board, nearly right, or how far somebody is said to have read. */
static void show(struct script *script)
{
	struct board *board = (struct board *)(void *)(shown_base + STAGING_BOARD_AT);
	uint64_t number = script_byte(script) % 8;
	uint8_t what = script_byte(script);
	struct attack_frame frame = { 0 };
	if (what % 4 == 0) {
		atomic_store(&board->read[what / 4 % BOARD_PEERS_MAX],
		    script_about(script, board_stamp(attack.view, number)));
		return;
	}
	attack_segment(script, &frame);
	struct board_entry *entry = &board->entries[number];
	size_t bytes = frame.bytes - SEGMENT_HEADER_BYTES;
	memcpy(entry->head, frame.payload, SEGMENT_HEADER_BYTES);
	memcpy(entry->body, frame.payload + SEGMENT_HEADER_BYTES,
	    bytes < BOARD_BODY_MAX ? bytes : BOARD_BODY_MAX);
	atomic_store(&entry->body_bytes, script_about(script, bytes));
	atomic_store(&entry->stamp, script_about(script, board_stamp(attack.view, number + 1)));
	for (unsigned i = 0; i < WAYS; i++)
		ring_bell(&ways[i]);
}

/* Anything, anywhere in what is shared, now. */
static void scribble(struct script *script, struct way *way)
{
	struct shm_ring *ring = script_byte(script) % 2 == 0 ? &way->put : &way->take;
	unsigned what = script_byte(script);
	uint64_t value = script_about(script, script_byte(script));
	if (ring->control == NULL)
		return;
	switch (what % 8) {
	case 0:
		atomic_store(&ring->control->produced, value);
		break;
	case 1:
		atomic_store(&ring->control->consumed, value);
		break;
	case 2:
		atomic_store(&ring->control->consumed, atomic_load(&ring->control->produced));
		break;
	case 3:
		atomic_store(&ring->control->sender_waits, (uint32_t)value);
		break;
	case 4:
		atomic_store(&ring->control->receiver_sleeps, (uint32_t)value);
		break;
	case 5:
		memset((uint8_t *)&ring->slots[what / 8] + value % sizeof(ring->slots[0]),
		    script_byte(script), 1);
		break;
	case 6:
		ring->data[value % SHM_RING_DATA] = script_byte(script);
		break;
	default:
		shown_base[value % SHOWN_BYTES] = script_byte(script);
	}
	ring_bell(way);
}

/* ---- */

static void event(struct script *script)
{
	unsigned which = script_byte(script);
	struct way *way = &ways[(which >> 4) % WAYS];
	struct attack_frame frame = { 0 };
	which &= 15;
	if (which == 0)
		connect_or_close(script, way);
	else if (which == 1)
		say(script, way);
	else if (which == 2) {
		attack_hello(script, &frame);
		put(script, way, &frame);
	} else if (attack_says(script, which, &frame))
		put(script, way, &frame);
	else if (which == 11 || which == 12)
		scribble(script, way);
	else if (which == 13)
		attack_ours(script);
	else if (which == 14)
		show(script);
	else
		live_turn();
}

/* However often a peer comes and goes within a view: what stays mapped of its memory has a bound. */
static void check_kept(unsigned before)
{
	sweep();
	live_turns();
	unsigned now = growth_mapped();
	if (now > before + KEPT_MAX)
		live_die("memory of lanes that ended stays mapped");
}

static void start(void)
{
	struct tr_error error = { 0 };
	live_need(shm_socket_listen(name, sizeof(name), &port, &error), &error, "a socket");
	shown = memory(SHOWN_BYTES, F_SEAL_SHRINK);
	shown_base = mmap(NULL, SHOWN_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, shown, 0);
	if (shown_base == MAP_FAILED)
		live_die("cannot map what is shown");
	for (unsigned i = 0; i < WAYS; i++)
		ways[i].socket = ways[i].bell = -1;
	live_start(true);
	attack.address = "127.0.0.1:9"; /* over TCP there is nobody */
	attack.local_address = name;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct script script = { data, size < ATTACK_SCRIPT_MAX ? size : ATTACK_SCRIPT_MAX };
	if (port < 0)
		start();
	if (attack_knows(data, size))
		return 0;
	growth_begin();
	memset(shown_base, 0, SHOWN_BYTES);
	attack_begin(script_byte(&script));
	unsigned mapped = growth_mapped();
	while (script.left > 0)
		event(&script);
	live_turns();
	check_kept(mapped);
	live_end(&attack.worker, sweep);
	growth_check();
	return 0;
}
