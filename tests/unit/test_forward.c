/* What a client of traind gets of memberd's answer (forward.h). Both ends of the call are played. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/limits.h"
#include "daemon/api/forward.h"
#include "daemon/api/grpc_client.h"

static struct grpc_client_callbacks to_memberd;
static void *to_memberd_arg;
static tr_status send_status;
static unsigned sent, ends, cancels;
static bool crowded;
static enum grpc_status ended_with;

tr_status grpc_client_create(uv_loop_t *loop, const char *address, struct tls_context *tls,
    struct grpc_client **client, struct tr_error *error)
{
	(void)loop;
	(void)address;
	(void)tls;
	(void)error;
	*client = NULL;
	return TR_OK;
}

void grpc_client_destroy(struct grpc_client *client)
{
	(void)client;
}

tr_status grpc_client_call(struct grpc_client *client, const char *path, const void *request,
    size_t bytes, uint64_t deadline_ms, const struct grpc_client_callbacks *callbacks, void *arg,
    struct grpc_client_call **call, struct tr_error *error)
{
	(void)client;
	(void)path;
	(void)request;
	(void)bytes;
	(void)deadline_ms;
	(void)error;
	to_memberd = *callbacks;
	to_memberd_arg = arg;
	*call = NULL;
	return TR_OK;
}

bool grpc_client_call_is_lost(const struct grpc_client_call *call)
{
	(void)call;
	return false;
}

void grpc_client_cancel(struct grpc_client_call *call)
{
	(void)call;
	cancels++;
}

void grpc_client_pause(struct grpc_client_call *call, bool paused)
{
	(void)call;
	(void)paused;
	fail_msg("the client reads as fast as it can");
}

const char *grpc_call_path(const struct grpc_call *call)
{
	(void)call;
	return "/traind.v1.Trainer/ListJobs";
}

uint64_t grpc_call_time_left_ms(const struct grpc_call *call)
{
	(void)call;
	return UINT64_MAX;
}

void grpc_call_on_cancel(struct grpc_call *call, void (*cancelled)(void *arg), void *arg)
{
	(void)call;
	(void)cancelled;
	(void)arg;
}

void grpc_call_on_writable(struct grpc_call *call, void (*writable)(void *arg), void *arg)
{
	(void)call;
	(void)writable;
	(void)arg;
}

bool grpc_call_is_crowded(const struct grpc_call *call)
{
	(void)call;
	return crowded;
}

tr_status grpc_call_send(struct grpc_call *call, const void *message, size_t bytes)
{
	(void)call;
	(void)message;
	(void)bytes;
	sent++;
	return send_status;
}

void grpc_call_end(struct grpc_call *call, enum grpc_status status, const char *message)
{
	(void)call;
	(void)message;
	ends++;
	ended_with = status;
}

/* memberd sends two messages, and OK. */
static void forward_two(tr_status status)
{
	uv_loop_t loop;
	struct forward *forward;
	struct tr_error error;
	uint64_t in; /* opaque to the forwarder */
	sent = ends = cancels = 0;
	send_status = status;
	assert_int_equal(uv_loop_init(&loop), 0);
	assert_int_equal(forward_create(&loop, "127.0.0.1:1", NULL, &forward, &error), TR_OK);
	forward_call(forward, (struct grpc_call *)(void *)&in, (const uint8_t *)"", 0);
	to_memberd.message(to_memberd_arg, (const uint8_t *)"one", 3);
	to_memberd.message(to_memberd_arg, (const uint8_t *)"two", 3);
	to_memberd.ended(to_memberd_arg, cancels > 0 ? GRPC_CANCELLED : GRPC_OK, "");
	forward_destroy(forward);
	(void)uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&loop), 0);
	assert_int_equal(ends, 1);
}

static void test_all_of_it(void **state)
{
	(void)state;
	forward_two(TR_OK);
	assert_int_equal(sent, 2);
	assert_int_equal(cancels, 0);
	assert_int_equal(ended_with, GRPC_OK);
}

/* An answer of which a message is missing is no answer. */
static void test_no_memory_for_a_message(void **state)
{
	(void)state;
	forward_two(TR_ENOMEM);
	assert_int_equal(sent, 1);
	assert_int_equal(cancels, 1);
	assert_int_equal(ended_with, grpc_status_of(TR_ENOMEM));
}

/* Its connection has as many answers unread as it may: what memberd sends besides is not kept for it. */
static void test_answers_that_nobody_reads(void **state)
{
	(void)state;
	crowded = true;
	forward_two(TR_OK);
	crowded = false;
	assert_int_equal(sent, 0);
	assert_int_equal(cancels, 1);
	assert_int_equal(ended_with, GRPC_RESOURCE_EXHAUSTED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_of_it),
		cmocka_unit_test(test_no_memory_for_a_message),
		cmocka_unit_test(test_answers_that_nobody_reads),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
