/* The pure parts of gRPC: prefixes, timeouts, percent-encoding, heads, statuses, queues, budgets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <nghttp2/nghttp2.h>
#include <string.h>

#include "common/limits.h"
#include "common/token_bucket.h"
#include "daemon/api/grpc_frame.h"
#include "daemon/api/grpc_inbox.h"
#include "daemon/api/grpc_outbox.h"
#include "daemon/api/grpc_percent.h"
#include "daemon/api/grpc_request_head.h"
#include "daemon/api/grpc_response_head.h"
#include "daemon/api/grpc_timeout.h"

static void prefix_layout(void **state)
{
	(void)state;
	uint8_t prefix[GRPC_FRAME_PREFIX_BYTES];
	grpc_frame_put_prefix(prefix, 0x01020304);
	static const uint8_t want[] = { 0, 1, 2, 3, 4 };
	assert_memory_equal(prefix, want, sizeof(want));
}

static void frames(void **state)
{
	(void)state;
	struct grpc_frame frame;
	uint8_t bytes[16] = { 0, 0, 0, 0, 3, 'a', 'b', 'c', 'd' };
	for (size_t length = 0; length < 8; length++)
		assert_int_equal(grpc_frame_look(bytes, length, 3, &frame), GRPC_FRAME_PARTIAL);
	assert_int_equal(grpc_frame_look(bytes, 8, 3, &frame), GRPC_FRAME_WHOLE);
	assert_int_equal(frame.bytes, 3);
	assert_ptr_equal(frame.message, bytes + 5);
	assert_int_equal(grpc_frame_look(bytes, 9, 3, &frame), GRPC_FRAME_WHOLE);
	assert_int_equal(grpc_frame_look(bytes, 5, 2, &frame), GRPC_FRAME_TOO_LONG);
	bytes[0] = 1;
	assert_int_equal(grpc_frame_look(bytes, 9, 3, &frame), GRPC_FRAME_COMPRESSED);
	bytes[0] = 2;
	assert_int_equal(grpc_frame_look(bytes, 1, 3, &frame), GRPC_FRAME_MALFORMED);
	memset(bytes, 0xff, sizeof(bytes));
	bytes[0] = 0;
	assert_int_equal(grpc_frame_look(bytes, 5, TR_GRPC_MESSAGE_MAX, &frame),
	    GRPC_FRAME_TOO_LONG);
}

static void timeouts(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		bool valid;
		uint64_t ms;
	} cases[] = {
		{ "100m", true, 100 },
		{ "1S", true, 1000 },
		{ "2M", true, 120000 },
		{ "3H", true, 10800000 },
		{ "1n", true, 1 },
		{ "1000001n", true, 2 },
		{ "1000u", true, 1 },
		{ "0m", true, 0 },
		{ "99999999H", true, 99999999ull * 3600000 },
		{ "100000000m", false, 0 },
		{ "", false, 0 },
		{ "m", false, 0 },
		{ "1", false, 0 },
		{ "-1m", false, 0 },
		{ "1x", false, 0 },
		{ "1 m", false, 0 },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint64_t ms = 77;
		bool valid = grpc_timeout_parse(cases[i].text, strlen(cases[i].text), &ms);
		assert_int_equal(valid, cases[i].valid);
		assert_int_equal(ms, cases[i].valid ? cases[i].ms : 77);
	}
}

/* What is written is read back, never as less, and within the precision of eight digits. */
static void timeout_round_trip(void **state)
{
	(void)state;
	for (uint64_t ms = 0; ms < UINT64_MAX / 3; ms = ms * 3 + 1) {
		char text[GRPC_TIMEOUT_TEXT_MAX];
		uint64_t back;
		grpc_timeout_format(ms, text);
		assert_true(grpc_timeout_parse(text, strlen(text), &back));
		if (ms <= 99999999)
			assert_int_equal(back, ms);
		else
			assert_true(back <= ms);
	}
}

static void percent(void **state)
{
	(void)state;
	static const struct {
		const char *plain, *encoded;
	} cases[] = {
		{ "", "" },
		{ "no such job 3", "no such job 3" },
		{ "50% done", "50%25 done" },
		{ "two\nlines\t", "two%0Alines%09" },
		{ "\xc3\xa9t\xc3\xa9", "%C3%A9t%C3%A9" },
		{ "\x7f~", "%7F~" },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char out[64], back[64];
		size_t length = grpc_percent_encode(cases[i].plain, out, sizeof(out));
		assert_string_equal(out, cases[i].encoded);
		assert_int_equal(length, strlen(out));
		assert_int_equal(grpc_percent_decode(out, length, back, sizeof(back)),
		    strlen(cases[i].plain));
		assert_string_equal(back, cases[i].plain);
	}
}

static void percent_limits(void **state)
{
	(void)state;
	char out[8];
	/* An escape, or a character of two bytes, is whole or not there. */
	assert_int_equal(grpc_percent_encode("abcdef\n", out, sizeof(out)), 6);
	assert_int_equal(grpc_percent_encode("a\xc3\xa9\xc3\xa9", out, sizeof(out)), 7);
	assert_int_equal(grpc_percent_encode("ab\xc3\xa9", out, sizeof(out)), 2);
	assert_int_equal(grpc_percent_encode("abc", out, 1), 0);
	assert_int_equal(grpc_percent_decode("%zz%4", 5, out, sizeof(out)), 5);
	assert_string_equal(out, "%zz%4");
	assert_int_equal(grpc_percent_decode("%00x", 4, out, sizeof(out)), 2);
	assert_string_equal(out, "?x");
	assert_int_equal(grpc_percent_decode("abcdefghij", 10, out, sizeof(out)), 7);
}

static struct grpc_request_head good_head(void)
{
	struct grpc_request_head head = { 0 };
	grpc_request_head_add(&head, ":method", 7, "POST", 4);
	grpc_request_head_add(&head, ":path", 5, "/a.B/C", 6);
	grpc_request_head_add(&head, "te", 2, "trailers", 8);
	grpc_request_head_add(&head, "content-type", 12, "application/grpc", 16);
	return head;
}

static void expect_refusal(const char *name, const char *value, unsigned http_status,
    enum grpc_status status)
{
	struct grpc_refusal refusal;
	struct grpc_request_head head = good_head();
	grpc_request_head_add(&head, name, strlen(name), value, strlen(value));
	assert_false(grpc_request_head_judge(&head, 100, &refusal));
	assert_int_equal(refusal.http_status, http_status);
	assert_int_equal(refusal.status, status);
}

static void request_heads(void **state)
{
	(void)state;
	struct grpc_refusal refusal;
	struct grpc_request_head head = good_head();
	assert_true(grpc_request_head_judge(&head, 100, &refusal));
	assert_string_equal(head.path, "/a.B/C");
	assert_false(grpc_request_head_judge(&head, TR_GRPC_HEADERS_BYTES_MAX + 1, &refusal));
	assert_int_equal(refusal.status, GRPC_RESOURCE_EXHAUSTED);
	grpc_request_head_add(&head, "content-type", 12, "application/grpc+proto", 22);
	grpc_request_head_add(&head, "grpc-encoding", 13, "identity", 8);
	grpc_request_head_add(&head, "grpc-timeout", 12, "5S", 2);
	assert_true(grpc_request_head_judge(&head, 100, &refusal));
	assert_int_equal(head.timeout_ms, 5000);
	expect_refusal(":method", "GET", 405, GRPC_UNKNOWN);
	expect_refusal("te", "nothing", 200, GRPC_INTERNAL);
	expect_refusal("content-type", "text/html", 415, GRPC_UNKNOWN);
	expect_refusal("content-type", "application/grpcx", 415, GRPC_UNKNOWN);
	expect_refusal("content-type", "application/grpc+json", 200, GRPC_UNIMPLEMENTED);
	expect_refusal("grpc-encoding", "gzip", 200, GRPC_UNIMPLEMENTED);
	expect_refusal("grpc-timeout", "soon", 200, GRPC_INTERNAL);
	char path[TR_GRPC_PATH_MAX + 1];
	memset(path, 'x', sizeof(path));
	path[TR_GRPC_PATH_MAX] = '\0';
	expect_refusal(":path", path, 200, GRPC_UNIMPLEMENTED);
}

static enum grpc_status response(const char *http_status, const char *type, const char *status,
    uint32_t reset_code, char text[TR_GRPC_STATUS_TEXT_MAX])
{
	struct grpc_response_head head = { 0 };
	if (http_status != NULL)
		grpc_response_head_add(&head, ":status", 7, http_status, strlen(http_status));
	if (type != NULL)
		grpc_response_head_add(&head, "content-type", 12, type, strlen(type));
	if (status != NULL)
		grpc_response_head_add(&head, "grpc-status", 11, status, strlen(status));
	grpc_response_head_add(&head, "grpc-message", 12, "a%20b", 5);
	return grpc_response_head_end(&head, reset_code, text);
}

static void response_heads(void **state)
{
	(void)state;
	static const char type[] = "application/grpc";
	char text[TR_GRPC_STATUS_TEXT_MAX];
	assert_int_equal(response("200", type, "0", 0, text), GRPC_OK);
	assert_string_equal(text, "a b");
	assert_int_equal(response("200", type, "5", NGHTTP2_CANCEL, text), GRPC_NOT_FOUND);
	assert_int_equal(response("200", type, "16", 0, text), GRPC_UNAUTHENTICATED);
	assert_int_equal(response("200", type, "17", 0, text), GRPC_UNKNOWN);
	assert_int_equal(response("200", type, "x", 0, text), GRPC_UNKNOWN);
	assert_int_equal(response("503", "text/html", NULL, 0, text), GRPC_UNAVAILABLE);
	assert_int_equal(response("404", NULL, NULL, 0, text), GRPC_UNIMPLEMENTED);
	assert_int_equal(response("200", "text/html", NULL, 0, text), GRPC_UNKNOWN);
	assert_int_equal(response("200", type, NULL, 0, text), GRPC_INTERNAL);
	assert_int_equal(response(NULL, NULL, NULL, NGHTTP2_REFUSED_STREAM, text), GRPC_UNAVAILABLE);
	assert_int_equal(response(NULL, NULL, NULL, NGHTTP2_CANCEL, text), GRPC_CANCELLED);
	assert_int_equal(response(NULL, NULL, NULL, NGHTTP2_ENHANCE_YOUR_CALM, text),
	    GRPC_RESOURCE_EXHAUSTED);
	assert_int_equal(response(NULL, NULL, NULL, NGHTTP2_PROTOCOL_ERROR, text), GRPC_INTERNAL);
}

/* Bytes given back to the window: those of the message under way at once, those behind it only when it was taken. */
static void inbox_releases(void **state)
{
	(void)state;
	struct grpc_inbox inbox = { 0 };
	struct grpc_frame frame;
	static const uint8_t two[] = { 0, 0, 0, 0, 2, 'a', 'b', 0, 0, 0, 0, 1, 'c' };
	assert_int_equal(grpc_inbox_look(&inbox, 10, &frame), GRPC_FRAME_PARTIAL);
	assert_int_equal(grpc_inbox_add(&inbox, two, 6), TR_OK);
	assert_int_equal(grpc_inbox_look(&inbox, 10, &frame), GRPC_FRAME_PARTIAL);
	assert_int_equal(grpc_inbox_release_head(&inbox, &frame), 6);
	assert_int_equal(grpc_inbox_release_head(&inbox, &frame), 0);
	assert_int_equal(grpc_inbox_add(&inbox, two + 6, sizeof(two) - 6), TR_OK);
	assert_int_equal(grpc_inbox_look(&inbox, 10, &frame), GRPC_FRAME_WHOLE);
	assert_memory_equal(frame.message, "ab", 2);
	assert_int_equal(grpc_inbox_take(&inbox, &frame), 1);
	assert_int_equal(grpc_inbox_look(&inbox, 10, &frame), GRPC_FRAME_WHOLE);
	assert_memory_equal(frame.message, "c", 1);
	assert_int_equal(grpc_inbox_clear(&inbox), 6);
	assert_int_equal(inbox.length, 0);
}

static void outbox_pieces(void **state)
{
	(void)state;
	struct grpc_outbox outbox = { 0 };
	uint8_t got[64];
	size_t used = 0, piece;
	assert_int_equal(grpc_outbox_add(&outbox, "ab", 2), TR_OK);
	assert_int_equal(grpc_outbox_add(&outbox, NULL, 0), TR_OK);
	assert_int_equal(grpc_outbox_add(&outbox, "c", 1), TR_OK);
	assert_int_equal(outbox.unsent, 18);
	while ((piece = grpc_outbox_read(&outbox, got + used, 4)) > 0)
		used += piece;
	static const uint8_t want[] = { 0, 0, 0, 0, 2, 'a', 'b', 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 'c' };
	assert_int_equal(used, sizeof(want));
	assert_memory_equal(got, want, sizeof(want));
	assert_int_equal(grpc_outbox_add(&outbox, "x", 1), TR_OK);
	grpc_outbox_finish(&outbox);
	assert_int_equal(outbox.unsent, 0);
}

static void buckets(void **state)
{
	(void)state;
	struct token_bucket bucket;
	token_bucket_init(&bucket, 3, 10, 1000);
	for (int i = 0; i < 3; i++)
		assert_true(token_bucket_take(&bucket, 1000));
	assert_false(token_bucket_take(&bucket, 1000));
	assert_false(token_bucket_take(&bucket, 1099));
	assert_true(token_bucket_take(&bucket, 1100));
	assert_false(token_bucket_take(&bucket, 1100));
	assert_false(token_bucket_take(&bucket, 900)); /* a clock that goes back gives nothing */
	for (int i = 0; i < 3; i++)
		assert_true(token_bucket_take(&bucket, UINT64_MAX));
	assert_false(token_bucket_take(&bucket, UINT64_MAX));
}

static void statuses(void **state)
{
	(void)state;
	assert_int_equal(grpc_status_of(TR_OK), GRPC_OK);
	assert_int_equal(grpc_status_of(TR_EINVAL), GRPC_INVALID_ARGUMENT);
	assert_int_equal(grpc_status_of(TR_ENOTFOUND), GRPC_NOT_FOUND);
	assert_int_equal(grpc_status_of(TR_EUNAVAILABLE), GRPC_UNAVAILABLE);
	assert_int_equal(grpc_status_of((tr_status)-999), GRPC_UNKNOWN);
	assert_string_equal(grpc_status_name(GRPC_UNAUTHENTICATED), "UNAUTHENTICATED");
	assert_string_equal(grpc_status_name((enum grpc_status)99), "UNKNOWN");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(prefix_layout),
		cmocka_unit_test(frames),
		cmocka_unit_test(timeouts),
		cmocka_unit_test(timeout_round_trip),
		cmocka_unit_test(percent),
		cmocka_unit_test(percent_limits),
		cmocka_unit_test(request_heads),
		cmocka_unit_test(response_heads),
		cmocka_unit_test(inbox_releases),
		cmocka_unit_test(outbox_pieces),
		cmocka_unit_test(buckets),
		cmocka_unit_test(statuses),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
