/* Output of workers on its way from nodes to a reader of the API.
 *
 * A reader (a StreamLogs call) has one source for each peer whose output it wants. Following, all are open at once and new peers
 * are added as the job goes; otherwise they are read one after the other, rank by rank. Each source may have
 * `window` bytes on the way; what the client has read is given back to the sources as credit.
 */
#include "daemon/membership/server/memberd_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/log.h"

#define WINDOW_ALL_BYTES   (1u << 20) /* of all sources of a reader together... */
#define WINDOW_LEAST_BYTES (8u << 10) /* ...but of each at least */

struct log_source {
	uint64_t stream; /* our number for it, on the node's connection; 0: not opened */
	struct membership_log_place place;
	bool ended;
	uint64_t window; /* bytes that it may have on the way */
	uint64_t unread; /* sent to the client, not read by it */
	uint64_t owed;   /* read by the client, credit not yet given back */
};

struct log_reader {
	uint64_t stream; /* of the API */
	uint64_t job;
	bool follow, one_rank;
	bool fresh; /* to be looked at in the next turn */
	uint32_t rank;
	uint64_t tail_bytes;
	struct log_source *sources;
	size_t count;
	tr_status status; /* of the first source that went wrong */
	char text[256];
	struct log_reader *next;
};

static void send_to(struct memberd *memberd, const struct log_source *source, int body_case,
    void *body)
{
	Traind__Peer__ToNode message = TRAIND__PEER__TO_NODE__INIT;
	message.body_case = (Traind__Peer__ToNode__BodyCase)body_case;
	message.log_request = body; /* all members of the union are pointers to messages */
	node_conns_send(memberd, source->place.conn, &message);
}

static void went_wrong(struct log_reader *reader, tr_status status, const char *text,
    const struct log_source *source)
{
	if (reader->status != TR_OK)
		return;
	reader->status = status;
	(void)snprintf(reader->text, sizeof(reader->text),
	    "output of rank %" PRIu32 " on node %s: %s", source->place.rank,
	    source->place.node_name, text);
}

/* Its part of what all that are open at once may have. Of a job that still waits for its nodes, as `launch` asks for it, there is none before. */
static uint64_t window_of(const struct log_reader *reader)
{
	uint64_t at_once = 0;
	for (size_t i = 0; reader->follow && i < reader->count; i++)
		at_once += reader->sources[i].ended ? 0 : 1;
	uint64_t window = WINDOW_ALL_BYTES / (at_once > 0 ? at_once : 1);
	return window > WINDOW_LEAST_BYTES ? window : WINDOW_LEAST_BYTES;
}

static void open_source(struct memberd *memberd, struct log_reader *reader,
    struct log_source *source)
{
	if (!node_conns_has(memberd, source->place.conn)) {
		source->ended = true;
		went_wrong(reader, TR_EUNAVAILABLE, "the node is not connected", source);
		return;
	}
	Traind__Peer__LogRequest request = TRAIND__PEER__LOG_REQUEST__INIT;
	source->stream = ++memberd->next_log_stream;
	source->window = window_of(reader);
	request.stream = source->stream;
	request.job_id = reader->job;
	request.peer = source->place.peer;
	request.follow = reader->follow;
	request.tail_bytes = reader->tail_bytes;
	request.credit_bytes = source->window;
	send_to(memberd, source, TRAIND__PEER__TO_NODE__BODY_LOG_REQUEST, &request);
}

static bool has_source(const struct log_reader *reader, uint64_t peer)
{
	for (size_t i = 0; i < reader->count; i++)
		if (reader->sources[i].place.peer == peer)
			return true;
	return false;
}

static int by_rank(const void *a, const void *b)
{
	const struct membership_log_place *left = a, *right = b;
	if (left->rank != right->rank)
		return left->rank < right->rank ? -1 : 1;
	return left->peer < right->peer ? -1 : left->peer > right->peer;
}

/* Adds a source for each place that has none yet. */
static void find_sources(const struct memberd *memberd, struct log_reader *reader)
{
	struct membership_log_place places[TR_GROUP_PEERS_MAX];
	size_t count = membership_log_places(memberd->core, reader->job, reader->one_rank,
	    reader->rank, places, TR_GROUP_PEERS_MAX);
	qsort(places, count, sizeof(places[0]), by_rank);
	for (size_t i = 0; i < count; i++) {
		if (has_source(reader, places[i].peer))
			continue;
		struct log_source *sources = realloc(reader->sources,
		    (reader->count + 1) * sizeof(*reader->sources));
		if (sources == NULL)
			return;
		reader->sources = sources;
		sources[reader->count++] = (struct log_source){ .place = places[i] };
	}
}

static bool job_ended(const struct memberd *memberd, uint64_t number)
{
	Traind__V1__Job *job = membership_job(memberd->core, number, false);
	bool ended = job == NULL || job->state == TRAIND__V1__JOB_STATE__JOB_STATE_DONE ||
	    job->state == TRAIND__V1__JOB_STATE__JOB_STATE_FAILED ||
	    job->state == TRAIND__V1__JOB_STATE__JOB_STATE_CANCELLED;
	if (job != NULL)
		traind__v1__job__free_unpacked(job, NULL);
	return ended;
}

static void remove_reader(struct memberd *memberd, struct log_reader *reader)
{
	for (struct log_reader **at = &memberd->readers; *at != NULL; at = &(*at)->next) {
		if (*at != reader)
			continue;
		*at = reader->next;
		memberd->reader_count--;
		free(reader->sources);
		free(reader);
		return;
	}
}

/* Opens what is to be open; ends the reader when nothing more can come. */
static void advance(struct memberd *memberd, struct log_reader *reader)
{
	bool open = false;
	for (size_t i = 0; i < reader->count; i++) {
		struct log_source *source = &reader->sources[i];
		if (source->stream == 0 && !source->ended && (reader->follow || !open))
			open_source(memberd, reader, source);
		open |= source->stream != 0 && !source->ended;
	}
	if (open || (reader->follow && !job_ended(memberd, reader->job)))
		return;
	trainer_service_log_end(memberd->service, reader->stream, reader->status, reader->text);
	remove_reader(memberd, reader);
}

static struct log_reader *find_reader(const struct memberd *memberd, uint64_t stream)
{
	struct log_reader *reader = memberd->readers;
	while (reader != NULL && reader->stream != stream)
		reader = reader->next;
	return reader;
}

tr_status log_relay_open(struct memberd *memberd, uint64_t stream,
    const Traind__V1__StreamLogsRequest *request, struct tr_error *error)
{
	Traind__V1__Job *job = membership_job(memberd->core, request->job_id, false);
	if (job == NULL)
		return tr_error_set(error, TR_ENOTFOUND, "there is no job %" PRIu64,
		    request->job_id);
	uint32_t workers = job->spec != NULL && job->spec->mesh != NULL ? job->spec->mesh->workers
	                                                                : 0;
	traind__v1__job__free_unpacked(job, NULL);
	struct membership_log_place places[TR_GROUP_PEERS_MAX];
	if (request->one_rank && workers > 0 && request->rank >= workers &&
	    membership_log_places(memberd->core, request->job_id, true, request->rank, places,
	        TR_GROUP_PEERS_MAX) == 0)
		return tr_error_set(error, TR_EINVAL, "rank: found %u, allowed: 0 to %u",
		    request->rank, workers - 1);
	struct log_reader *reader = memberd->reader_count < TR_LOG_STREAMS_MAX
	    ? calloc(1, sizeof(*reader))
	    : NULL;
	if (reader == NULL)
		return tr_error_set(error, TR_ELIMIT, "too many readers of output at once (%zu)",
		    memberd->reader_count);
	reader->stream = stream;
	reader->job = request->job_id;
	reader->follow = request->follow;
	reader->one_rank = request->one_rank;
	reader->rank = request->rank;
	reader->tail_bytes = request->tail_bytes;
	reader->next = memberd->readers;
	memberd->readers = reader;
	memberd->reader_count++;
	reader->fresh = true; /* log_relay_turn goes on: our caller does not know the stream before we return */
	event_queue_wake(memberd);
	return TR_OK;
}

void log_relay_turn(struct memberd *memberd)
{
	for (struct log_reader *reader = memberd->readers, *next; reader != NULL; reader = next) {
		next = reader->next;
		if (reader->fresh) {
			reader->fresh = false;
			find_sources(memberd, reader);
			advance(memberd, reader);
		}
	}
}

static void give_back(struct memberd *memberd, struct log_source *source)
{
	Traind__Peer__LogCredit credit = TRAIND__PEER__LOG_CREDIT__INIT;
	credit.stream = source->stream;
	credit.bytes = source->owed;
	source->owed = 0;
	send_to(memberd, source, TRAIND__PEER__TO_NODE__BODY_LOG_CREDIT, &credit);
}

/* Which source the bytes that the client read came from is not told; what each gets back adds up all the same. */
void log_relay_credit(struct memberd *memberd, uint64_t stream, uint64_t bytes)
{
	struct log_reader *reader = find_reader(memberd, stream);
	for (size_t i = 0; reader != NULL && i < reader->count && bytes > 0; i++) {
		struct log_source *source = &reader->sources[i];
		uint64_t part = source->unread < bytes ? source->unread : bytes;
		source->unread -= part;
		source->owed += part;
		bytes -= part;
		if (source->owed >= source->window / 2 && !source->ended)
			give_back(memberd, source);
	}
}

static void cancel_source(struct memberd *memberd, struct log_source *source)
{
	Traind__Peer__LogCancel cancel = TRAIND__PEER__LOG_CANCEL__INIT;
	if (source->stream == 0 || source->ended)
		return;
	cancel.stream = source->stream;
	send_to(memberd, source, TRAIND__PEER__TO_NODE__BODY_LOG_CANCEL, &cancel);
}

void log_relay_close(struct memberd *memberd, uint64_t stream)
{
	struct log_reader *reader = find_reader(memberd, stream);
	if (reader == NULL)
		return;
	for (size_t i = 0; i < reader->count; i++)
		cancel_source(memberd, &reader->sources[i]);
	remove_reader(memberd, reader);
}

static struct log_source *find_source(const struct memberd *memberd, uint64_t stream,
    struct log_reader **reader)
{
	for (*reader = memberd->readers; *reader != NULL; *reader = (*reader)->next)
		for (size_t i = 0; i < (*reader)->count; i++)
			if ((*reader)->sources[i].stream == stream && !(*reader)->sources[i].ended)
				return &(*reader)->sources[i];
	return NULL;
}

void log_relay_data(struct memberd *memberd, const Traind__Peer__LogData *data)
{
	struct log_reader *reader;
	struct log_source *source = find_source(memberd, data->stream, &reader);
	if (source == NULL)
		return; /* cancelled meanwhile */
	if (data->data.len > 0) {
		Traind__V1__LogChunk chunk = TRAIND__V1__LOG_CHUNK__INIT;
		chunk.rank = source->place.rank;
		chunk.peer_id = source->place.peer;
		chunk.node_name = source->place.node_name;
		chunk.data = data->data;
		chunk.end = data->position + data->data.len;
		source->unread += data->data.len;
		trainer_service_log(memberd->service, reader->stream, &chunk);
		source = find_source(memberd, data->stream,
		    &reader); /* the call may be over by that */
	}
	if (source == NULL || !data->end)
		return;
	source->ended = true;
	if (data->error[0] != '\0')
		went_wrong(reader, TR_ENOTFOUND, data->error, source);
	advance(memberd, reader);
}

/* Looked at in the turn, after all actions of the step: a node must be told of a worker before it is asked for its output. */
void log_relay_job_changed(struct memberd *memberd, uint64_t job)
{
	for (struct log_reader *reader = memberd->readers; reader != NULL; reader = reader->next) {
		if (reader->job == job && reader->follow)
			reader->fresh = true;
	}
}

void log_relay_node_gone(struct memberd *memberd, uint64_t conn)
{
	for (struct log_reader *reader = memberd->readers, *next; reader != NULL; reader = next) {
		next = reader->next;
		bool lost = false;
		for (size_t i = 0; i < reader->count; i++) {
			struct log_source *source = &reader->sources[i];
			if (source->ended || source->stream == 0 || source->place.conn != conn)
				continue;
			source->ended = lost = true;
			went_wrong(reader, TR_EUNAVAILABLE, "the node went away", source);
		}
		if (lost)
			advance(memberd, reader);
	}
}

void log_relay_finish(struct memberd *memberd)
{
	while (memberd->readers != NULL)
		remove_reader(memberd, memberd->readers);
}
