/* memberd's core against nodes, clients and a log that say anything. The input is a list of events: a byte for the kind,
 * two for the length (little-endian), then a packed message. What was accepted must be a function of the log: a fresh core
 * that is given the same entries, and one that is given the snapshot, hold the same state.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/membership/core/membership.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define ENTRIES_MAX 2000
#define EVENTS_MAX  300
#define CONNECTIONS 4

enum kind { MESSAGE, CLOSED, SUBMIT, CANCEL, TICK, ENTRY, SNAPSHOT, LEAD, NO_SPACE, KINDS };

struct world {
	struct membership *core;
	struct membership_actions actions;
	uint64_t now_ms, requests;
	Traind__Peer__LogEntry *log[ENTRIES_MAX]; /* applied ones first, then the appended */
	uint64_t cookies[ENTRIES_MAX];
	size_t applied, appended;
	Traind__Peer__Snapshot *restored; /* the log starts behind it */
	bool leads, no_space;
};

static void step(struct world *world, struct membership_event event)
{
	struct tr_error error = { 0 };
	event.now_ms = world->now_ms;
	event.unix_ms = 1700000000000 + world->now_ms;
	event.random = world->now_ms * 0x9e3779b97f4a7c15u;
	event.secret[0] = ~event.random;
	(void)membership_step(world->core, &event, &world->actions, &error);
}

static void refuse(struct world *world, uint64_t cookie)
{
	struct membership_event event = { .kind = MEMBERSHIP_APPEND_FAILED, .cookie = cookie };
	event.reason = "no space left on device";
	step(world, event);
}

/* Takes the actions of all steps so far; what is appended comes back afterwards, as from the log. */
static void act(struct world *world)
{
	for (size_t i = 0; i < world->actions.count; i++) {
		struct membership_action *action = &world->actions.items[i];
		if (action->kind == MEMBERSHIP_DO_SEND)
			assert(action->message != NULL && action->conn != 0);
		if (action->kind != MEMBERSHIP_DO_APPEND)
			continue;
		assert(world->leads);
		if (world->appended == ENTRIES_MAX || world->no_space) {
			uint64_t cookie = action->cookie;
			refuse(world, cookie); /* may move the array */
			world->no_space = false;
			continue;
		}
		world->cookies[world->appended] = action->cookie;
		world->log[world->appended++] = action->entry;
		action->entry = NULL;
	}
	membership_actions_clear(&world->actions);
}

static void settle(struct world *world)
{
	act(world);
	while (world->applied < world->appended) {
		size_t next = world->applied++;
		struct membership_event event = { .kind = MEMBERSHIP_APPLIED,
			.entry = world->log[next] };
		event.cookie = world->cookies[next];
		step(world, event);
		act(world);
	}
}

static void message(struct world *world, const uint8_t *data, size_t size)
{
	if (size == 0)
		return;
	Traind__Peer__ToMember *said = traind__peer__to_member__unpack(NULL, size - 1, data + 1);
	if (said == NULL)
		return;
	struct membership_event event = { .kind = MEMBERSHIP_MESSAGE, .message = said };
	event.conn = 1 + data[0] % CONNECTIONS;
	step(world, event);
	settle(world);
	traind__peer__to_member__free_unpacked(said, NULL);
}

static void submit(struct world *world, const uint8_t *data, size_t size)
{
	Traind__V1__SubmitJobRequest *request = traind__v1__submit_job_request__unpack(NULL, size,
	    data);
	if (request == NULL)
		return;
	struct membership_event event = { .kind = MEMBERSHIP_SUBMIT, .submit = request };
	event.request = ++world->requests;
	step(world, event);
	settle(world);
	traind__v1__submit_job_request__free_unpacked(request, NULL);
}

static void entry(struct world *world, const uint8_t *data, size_t size)
{
	if (world->leads || world->appended == ENTRIES_MAX)
		return;
	Traind__Peer__LogEntry *read = traind__peer__log_entry__unpack(NULL, size, data);
	if (read == NULL)
		return;
	world->cookies[world->appended] = 0;
	world->log[world->appended++] = read;
	settle(world);
}

static void snapshot(struct world *world, const uint8_t *data, size_t size)
{
	if (world->leads || world->appended > 0 || world->restored != NULL)
		return;
	world->restored = traind__peer__snapshot__unpack(NULL, size, data);
	if (world->restored == NULL)
		return;
	step(world,
	    (struct membership_event){ .kind = MEMBERSHIP_RESTORED, .snapshot = world->restored });
	settle(world);
}

static void event_of(struct world *world, uint8_t kind, const uint8_t *data, size_t size)
{
	uint8_t first = size > 0 ? data[0] : 0;
	switch (kind % KINDS) {
	case MESSAGE:
		message(world, data, size);
		break;
	case CLOSED:
		step(world,
		    (struct membership_event){ .kind = MEMBERSHIP_CLOSED,
		        .conn = 1 + first % CONNECTIONS,
		        .reason = "reset by peer" });
		break;
	case SUBMIT:
		submit(world, data, size);
		break;
	case CANCEL:
		step(world,
		    (struct membership_event){ .kind = MEMBERSHIP_CANCEL,
		        .request = ++world->requests,
		        .job = first,
		        .reason = "asked" });
		break;
	case TICK:
		world->now_ms += first * 100u;
		step(world, (struct membership_event){ .kind = MEMBERSHIP_TICK });
		break;
	case ENTRY:
		entry(world, data, size);
		break;
	case SNAPSHOT:
		snapshot(world, data, size);
		break;
	case LEAD:
		if (!world->leads) {
			world->leads = true;
			step(world, (struct membership_event){ .kind = MEMBERSHIP_LEADING });
		}
		break;
	default:
		world->no_space = world->leads;
	}
	settle(world);
}

static uint8_t *state_of(const struct membership *core, size_t *bytes)
{
	Traind__Peer__Snapshot *state = membership_snapshot(core);
	assert(state != NULL);
	*bytes = traind__peer__snapshot__get_packed_size(state);
	uint8_t *packed = malloc(*bytes + 1);
	assert(packed != NULL);
	(void)traind__peer__snapshot__pack(state, packed);
	traind__peer__snapshot__free_unpacked(state, NULL);
	return packed;
}

static void same_state(const struct world *world, const struct world *other)
{
	size_t bytes, other_bytes;
	uint8_t *state = state_of(world->core, &bytes),
	        *other_state = state_of(other->core, &other_bytes);
	assert(bytes == other_bytes && memcmp(state, other_state, bytes) == 0);
	free(state);
	free(other_state);
}

static const struct membership_options options = {
	.heartbeat_interval_ms = 250,
	.heartbeat_timeout_ms = 2000,
	.progress_timeout_ms = 20000,
	.reconnect_grace_ms = 5000,
};

static void begin(struct world *world)
{
	world->now_ms = 1000;
	tr_status created = membership_create(&options, &world->core);
	assert(created == TR_OK);
}

static void end(struct world *world)
{
	membership_actions_finish(&world->actions);
	membership_destroy(world->core);
}

/* After kill -9 the log is read again, at another time. */
static void replay(const struct world *world)
{
	struct world again = { 0 };
	begin(&again);
	again.now_ms = 999999;
	if (world->restored != NULL)
		step(&again,
		    (struct membership_event){ .kind = MEMBERSHIP_RESTORED,
		        .snapshot = world->restored });
	for (size_t i = 0; i < world->applied; i++)
		step(&again,
		    (struct membership_event){ .kind = MEMBERSHIP_APPLIED, .entry = world->log[i] });
	same_state(world, &again);
	end(&again);
}

static void restore(const struct world *world)
{
	struct world again = { 0 };
	begin(&again);
	Traind__Peer__Snapshot *state = membership_snapshot(world->core);
	step(&again, (struct membership_event){ .kind = MEMBERSHIP_RESTORED, .snapshot = state });
	traind__peer__snapshot__free_unpacked(state, NULL);
	same_state(world, &again);
	end(&again);
}

static void read_all(const struct world *world)
{
	Traind__V1__ListJobsResponse *jobs = membership_jobs(world->core);
	Traind__V1__ListNodesResponse *nodes = membership_nodes(world->core, world->now_ms);
	assert(jobs != NULL && nodes != NULL);
	for (size_t i = 0; i < jobs->n_jobs; i++) {
		Traind__V1__Job *job = membership_job(world->core, jobs->jobs[i]->id, true);
		assert(job != NULL);
		traind__v1__job__free_unpacked(job, NULL);
		struct membership_log_place places[8];
		(void)membership_log_places(world->core, jobs->jobs[i]->id, false, 0, places, 8);
	}
	traind__v1__list_jobs_response__free_unpacked(jobs, NULL);
	traind__v1__list_nodes_response__free_unpacked(nodes, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct world world;
	memset(&world, 0, sizeof(world));
	begin(&world);
	for (size_t events = 0; size >= 3 && events < EVENTS_MAX; events++) {
		size_t length = data[1] | (size_t)data[2] << 8;
		if (length > size - 3)
			length = size - 3;
		event_of(&world, data[0], data + 3, length);
		data += 3 + length;
		size -= 3 + length;
	}
	read_all(&world);
	replay(&world);
	restore(&world);
	end(&world);
	for (size_t i = 0; i < world.appended; i++)
		traind__peer__log_entry__free_unpacked(world.log[i], NULL);
	if (world.restored != NULL)
		traind__peer__snapshot__free_unpacked(world.restored, NULL);
	return 0;
}
