/* Output of workers on its way to one reader: how much of it memberd may have to hold. */
#include "daemon/membership/server/memberd_internal.h"
#include "tests/unit/membership_harness.h"

#define AT_MOST ((uint64_t)1 << 20) /* of all sources of a reader */

/* In place of memberd's: what nodes and the API are told. */
static struct {
	uint64_t streams[8], credit[8];
	size_t count;
	uint64_t given_back, sent;
	bool ended;
} told;

bool node_conns_has(struct memberd *memberd, uint64_t number)
{
	(void)memberd;
	return number != 0;
}

void node_conns_send(struct memberd *memberd, uint64_t number, const Traind__Peer__ToNode *message)
{
	(void)memberd;
	(void)number;
	if (message->body_case == TRAIND__PEER__TO_NODE__BODY_LOG_CREDIT)
		told.given_back += message->log_credit->bytes;
	if (message->body_case != TRAIND__PEER__TO_NODE__BODY_LOG_REQUEST)
		return;
	assert_true(told.count < 8);
	told.streams[told.count] = message->log_request->stream;
	told.credit[told.count++] = message->log_request->credit_bytes;
}

void event_queue_wake(struct memberd *memberd)
{
	(void)memberd;
}

void trainer_service_log(struct trainer_service *service, uint64_t stream,
    const Traind__V1__LogChunk *chunk)
{
	(void)service;
	(void)stream;
	told.sent += chunk->data.len;
}

void trainer_service_log_end(struct trainer_service *service, uint64_t stream, tr_status status,
    const char *text)
{
	(void)service;
	(void)stream;
	(void)status;
	(void)text;
	told.ended = true;
}

/* As `trainctl launch` does: it follows the output of a job that has no workers yet. */
static void test_followed_before_there_are_workers(void **state)
{
	static struct memberd memberd;
	static uint8_t bytes[AT_MOST];
	struct world w;
	struct tr_error error = { 0 };
	Traind__V1__StreamLogsRequest request = TRAIND__V1__STREAM_LOGS_REQUEST__INIT;
	(void)state;
	world_init(&w);
	world_lead(&w);
	submit(&w, 1, "a", native_spec(3));
	memberd.core = w.m;
	request.job_id = 1;
	request.follow = true;
	assert_int_equal(log_relay_open(&memberd, 1, &request, &error), TR_OK);
	log_relay_turn(&memberd);
	assert_int_equal(told.count, 0);
	for (uint64_t c = 1; c <= 3; c++)
		hello(&w, c, 0, 100 + c, 1);
	log_relay_job_changed(&memberd, 1);
	log_relay_turn(&memberd);
	assert_int_equal(told.count, 3);
	assert_true(told.credit[0] + told.credit[1] + told.credit[2] <= AT_MOST);
	/* All that they may send, and the client reads it: they may send as much again. */
	for (size_t i = 0; i < 3; i++) {
		Traind__Peer__LogData data = TRAIND__PEER__LOG_DATA__INIT;
		data.stream = told.streams[i];
		data.data = (ProtobufCBinaryData){ .len = told.credit[i], .data = bytes };
		log_relay_data(&memberd, &data);
	}
	assert_true(told.sent > AT_MOST / 2);
	log_relay_credit(&memberd, 1, told.sent);
	assert_int_equal(told.given_back, told.sent);
	assert_false(told.ended);
	log_relay_finish(&memberd);
	world_finish(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_followed_before_there_are_workers),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
