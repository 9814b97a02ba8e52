/* Who is dialled takes the connection, and says nothing: that ends. */
#include "tests/unit/conn_fixture.h"
#include "tests/unit/tls_files.h"

/* A port whose kernel takes connections and acknowledges what comes; no program reads it. */
static int silent_port(char address[TR_ADDRESS_MAX])
{
	struct sockaddr_in sa = { .sin_family = AF_INET,
		.sin_addr = { .s_addr = htonl(INADDR_LOOPBACK) } };
	socklen_t bytes = sizeof(sa);
	int port = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(bind(port, (struct sockaddr *)&sa, sizeof(sa)), 0);
	assert_int_equal(listen(port, 8), 0);
	assert_int_equal(getsockname(port, (struct sockaddr *)&sa, &bytes), 0);
	(void)snprintf(address, TR_ADDRESS_MAX, "127.0.0.1:%d", (int)ntohs(sa.sin_port));
	return port;
}

/* The loop stood still past its patience when the connection was there: the handshake has its time all the same, but no more than that. */
static void handshake(bool late)
{
	struct tls_files files;
	struct pair pair = { 0 };
	char address[TR_ADDRESS_MAX];
	int port = silent_port(address);
	tls_files_make(&files);
	struct tls_context *context = tls_files_node(&files, "host");
	assert_int_equal(uv_loop_init(&pair.loop), 0);
	assert_int_equal(conn_dial(&pair.loop, address, context, &callbacks, &pair.client,
	                     &pair.client.conn, NULL),
	    TR_OK);
	conn_set_patience(pair.client.conn, 200);
	while (conn_socket(pair.client.conn) < 0)
		(void)uv_run(&pair.loop, UV_RUN_ONCE); /* to the connect */
	if (late)
		(void)usleep(400000);
	run_until(&pair, &pair.client.closed, 1);
	assert_non_null(strstr(pair.client.reason, "no answer in the TLS handshake"));
	(void)uv_run(&pair.loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&pair.loop), 0);
	tls_context_release(context);
	tls_files_end(&files);
	(void)close(port);
}

static void a_handshake_ends(void **state)
{
	(void)state;
	handshake(false);
}

static void a_handshake_that_began_late_ends(void **state)
{
	(void)state;
	handshake(true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_handshake_ends),
		cmocka_unit_test(a_handshake_that_began_late_ends),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
