/* TLS below framed connections: who is let in, what both ends say of who is not, and bytes of all sizes under many keys. What holds for
 * any connection is in test_conn.c, which runs with TLS as well. */
#include "tests/unit/conn_fixture.h"
#include "tests/unit/tls_files.h"

#include <malloc.h>
#include <openssl/ssl.h>
#include <sys/stat.h>

static struct tls_files files;

static int make_files(void **state)
{
	(void)state;
	tls_files_make(&files);
	return 0;
}

static int end_files(void **state)
{
	(void)state;
	tls_files_end(&files);
	return 0;
}

/* A pair of which each end has what it is given; the client has dialled. */
static struct pair *begin(struct tls_context *server, struct tls_context *client,
    const char *address)
{
	void *state;
	pair_tls[PAIR_SERVER] = server;
	pair_tls[PAIR_CLIENT] = client;
	(void)pair_listen(&state, address);
	pair_dial(state);
	return state;
}

static void end(struct pair *pair)
{
	void *state = pair;
	(void)pair_teardown(&state);
	tls_context_release(pair_tls[PAIR_SERVER]);
	tls_context_release(pair_tls[PAIR_CLIENT]);
	pair_tls[PAIR_SERVER] = pair_tls[PAIR_CLIENT] = NULL;
}

/* The client is not let in, and says so with these words. */
static void refused(struct tls_context *server, struct tls_context *client, const char *address,
    const char *words)
{
	struct pair *pair = begin(server, client, address);
	run_until(pair, &pair->client.closed, 1);
	if (strstr(pair->client.reason, words) == NULL)
		fail_msg("'%s' is not in '%s'", words, pair->client.reason);
	assert_int_equal(pair->server.frames, 0);
	end(pair);
}

static void another_ca(void **state)
{
	(void)state;
	struct tls_files others;
	tls_files_make(&others);
	refused(tls_files_node(&files, "ours"), tls_files_node(&others, "theirs"), "127.0.0.1:0",
	    "its certificate (ours) was signed by another CA than ours");
	tls_files_end(&others);
}

static void another_address(void **state)
{
	(void)state;
	refused(tls_files_node(&files, "near"), tls_files_node(&files, "far"), "127.0.0.2:0",
	    "its certificate (near) is not for 127.0.0.2, which was dialled");
}

static void plain_to_tls(void **state)
{
	(void)state;
	refused(tls_files_node(&files, "speaks"), NULL, "127.0.0.1:0", TLS_REFUSED_TEXT);
}

static void tls_to_plain(void **state)
{
	(void)state;
	refused(NULL, tls_files_node(&files, "asks"), "127.0.0.1:0",
	    "it does not speak TLS: it was started without --tls DIR");
}

static void to_unix_socket_it_is_plain(void **state)
{
	(void)state;
	char address[64];
	(void)snprintf(address, sizeof(address), "unix:/tmp/test-tls-%d.sock", getpid());
	struct tls_context *ours = tls_files_node(&files, "unix");
	struct pair *pair = begin(ours, tls_context_hold(ours), address);
	run_until(pair, &pair->client.connected, 1);
	end(pair);
}

/* Every record a new key; sizes around what a record, a read and a write take. */
static void all_sizes_under_many_keys(void **state)
{
	static const size_t sizes[] = { 0, 1, 100, 4095, 4096, 16383, 16384, 16385, 65536, 131072,
		1000003, TR_FRAME_CONTROL_MAX };
	enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };
	(void)state;
	uint8_t *bytes = malloc(TR_FRAME_CONTROL_MAX);
	assert_non_null(bytes);
	for (size_t i = 0; i < TR_FRAME_CONTROL_MAX; i++)
		bytes[i] = (uint8_t)(i * 31 + i / 251);
	struct tls_context *one = tls_files_node(&files, "one"),
	                   *two = tls_files_node(&files, "two");
	tls_context_set_records_per_key(one, 3);
	tls_context_set_records_per_key(two, 1);
	struct pair *pair = begin(one, two, "127.0.0.1:0");
	run_until(pair, &pair->client.connected, 1);
	for (unsigned i = 0; i < SIZES; i++) {
		assert_int_equal(conn_send_copy(pair->client.conn, FRAME_PEER, bytes, sizes[i]),
		    TR_OK);
		run_until(pair, &pair->server.frames, i + 1);
		assert_true(pair->server.sum == sum_of(bytes, sizes[i]));
		assert_int_equal(conn_send_copy(pair->server.conn, FRAME_PEER, bytes, sizes[i]),
		    TR_OK);
		run_until(pair, &pair->client.frames, i + 1);
		assert_true(pair->client.sum == sum_of(bytes, sizes[i]));
	}
	struct lane_counters counters;
	conn_counters(pair->client.conn, &counters);
	assert_true(counters.bytes_out > pair->server.bytes); /* records and handshake count */
	free(bytes);
	end(pair);
}

/* Someone who breaks off, or says nonsense, in or after the handshake's first bytes. */
static void nonsense_is_dropped(void **state)
{
	(void)state;
	static const uint8_t hello_of_nothing[] = { 0x16, 3, 1, 0, 4, 1, 0, 0, 0 };
	static const uint8_t huge[] = { 0x16, 3, 1, 0xff, 0xff, 1, 0xff, 0xff, 0xff };
	static const uint8_t alert[] = { 0x16, 3, 3, 0, 0 };
	const struct {
		const uint8_t *bytes;
		size_t count;
	} said[] = { { hello_of_nothing, sizeof(hello_of_nothing) }, { huge, sizeof(huge) },
		{ alert, sizeof(alert) } };
	struct tls_context *ours = tls_files_node(&files, "calm");
	struct pair *pair = begin(ours, tls_context_hold(ours), "127.0.0.1:0");
	run_until(pair, &pair->client.connected, 1);
	for (unsigned i = 0; i < sizeof(said) / sizeof(said[0]); i++) {
		uint8_t byte;
		int fd = raw_dial(pair);
		raw_write(fd, said[i].bytes, said[i].count);
		(void)shutdown(fd, SHUT_WR);
		ssize_t n;
		while ((n = recv(fd, &byte, 1, MSG_DONTWAIT)) > 0 || (n < 0 && errno == EAGAIN))
			(void)uv_run(&pair->loop, UV_RUN_NOWAIT);
		(void)close(fd);
	}
	/* Others are unharmed. */
	assert_int_equal(conn_send_copy(pair->client.conn, FRAME_PEER, "abc", 3), TR_OK);
	run_until(pair, &pair->server.frames, 1);
	end(pair);
}

/* A member's own program over OpenSSL, which may do what ours would not. */
static SSL *stranger(const char *node, int fd)
{
	struct certificate_made made;
	char path[PATH_MAX + 16];
	assert_int_equal(certificate_make_node(files.folder, node, NULL, 0, 1, &made, NULL), TR_OK);
	SSL_CTX *context = SSL_CTX_new(TLS_client_method());
	(void)snprintf(path, sizeof(path), "%s/node.crt", made.folder);
	assert_int_equal(SSL_CTX_use_certificate_chain_file(context, path), 1);
	(void)snprintf(path, sizeof(path), "%s/node.key", made.folder);
	assert_int_equal(SSL_CTX_use_PrivateKey_file(context, path, SSL_FILETYPE_PEM), 1);
	SSL *ssl = SSL_new(context);
	SSL_CTX_free(context);
	assert_int_equal(SSL_set_fd(ssl, fd), 1);
	SSL_set_connect_state(ssl);
	return ssl;
}

/* New keys and no byte: OpenSSL goes on with them within one read, for as long as they come, and nobody else has a turn. */
static void keys_without_end(void **state)
{
	enum { MOST = 20000 };
	(void)state;
	int fds[2], updates = 0;
	uint8_t byte;
	struct iovec piece = { &byte, 1 };
	struct tls_context *ours = tls_files_node(&files, "patient");
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
	struct tls *tls = tls_create(ours, fds[0], NULL);
	SSL *ssl = stranger("restless", fds[1]);
	while (SSL_do_handshake(ssl) != 1 || tls_handshake(tls) != TLS_DONE)
		assert_int_not_equal(tls_handshake(tls), TLS_FAILED);
	while (updates < MOST) {
		while (SSL_do_handshake(ssl) == 1 &&
		    SSL_key_update(ssl, SSL_KEY_UPDATE_NOT_REQUESTED) == 1)
			updates++;
		if (tls_read(tls, &piece, 1) < 0 && errno == EPROTO)
			break;
	}
	assert_in_range(updates, 1000, MOST - 1);
	assert_string_equal(tls_error(tls), "it has new keys ever again and says nothing");
	SSL_free(ssl);
	tls_destroy(tls);
	tls_context_release(ours);
	(void)close(fds[0]);
	(void)close(fds[1]);
}

/* ---- folders */

/* (Each held a buffer of 128 KiB for what comes after the handshake.) */
static void a_half_handshake_holds_little(void **state)
{
	enum { HALVES = 64, MOST = 100 << 10 };
	static const uint8_t record[] = { TLS_BYTE_HANDSHAKE, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3 };
	(void)state;
	struct tls_context *context = tls_files_node(&files, "half");
	struct tls *tls[HALVES];
	int fds[HALVES][2];
	size_t before = mallinfo2().uordblks;
	for (int i = 0; i < HALVES; i++) {
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0,
		                     fds[i]),
		    0);
		tls[i] = tls_create(context, fds[i][0], NULL);
		assert_non_null(tls[i]);
		assert_int_equal(write(fds[i][1], record, sizeof(record)), sizeof(record));
		assert_int_equal(tls_handshake(tls[i]), TLS_WAITS);
	}
	size_t each = (mallinfo2().uordblks - before) / HALVES;
	if (each >= MOST)
		fail_msg("%zu bytes each", each);
	for (int i = 0; i < HALVES; i++) {
		tls_destroy(tls[i]);
		(void)close(fds[i][0]);
		(void)close(fds[i][1]);
	}
	tls_context_release(context);
}

static void load_fails(const char *folder, const char *words)
{
	struct tls_context *context = NULL;
	struct tr_error error = { 0 };
	assert_int_equal(tls_context_load(folder, &context, &error), TR_EINVAL);
	assert_null(context);
	if (strstr(error.text, words) == NULL || strchr(error.text, '\n') != NULL)
		fail_msg("'%s' is not in '%s'", words, error.text);
}

static void replace(const char *folder, const char *name, const char *from_folder,
    const char *from_name)
{
	char command[3 * PATH_MAX];
	(void)snprintf(command, sizeof(command), "cp %s/%s %s/%s", from_folder, from_name, folder,
	    name);
	assert_int_equal(system(command), 0); /* NOLINT: the test's own words */
}

static void folders_that_cannot_be_used(void **state)
{
	(void)state;
	struct tls_files others;
	struct certificate_made ours, expired, theirs;
	tls_files_make(&others);
	assert_int_equal(certificate_make_node(files.folder, "a", NULL, 0, 1, &ours, NULL), TR_OK);
	assert_int_equal(certificate_make_node(files.folder, "old", NULL, 0, 0, &expired, NULL),
	    TR_OK);
	assert_int_equal(certificate_make_node(others.folder, "b", NULL, 0, 1, &theirs, NULL),
	    TR_OK);
	load_fails("/no/such/folder", "cannot read /no/such/folder/ca.crt");
	load_fails(expired.folder, "certificate (old) has expired");
	replace(ours.folder, "node.key", theirs.folder, "node.key");
	load_fails(ours.folder, "node.key holds no private key in PEM that belongs to node.crt");
	replace(ours.folder, "node.crt", theirs.folder, "node.crt");
	load_fails(ours.folder, "certificate (b) was signed by another CA than ours");
	replace(ours.folder, "node.crt", theirs.folder, "node.key");
	load_fails(ours.folder, "node.crt holds no certificate in PEM");
	replace(ours.folder, "ca.crt", theirs.folder, "node.key");
	load_fails(ours.folder, "ca.crt holds no certificate in PEM");
	tls_files_end(&others);
}

static unsigned mode_of(const char *folder, const char *name)
{
	char path[PATH_MAX + 32];
	struct stat status;
	(void)snprintf(path, sizeof(path), "%s/%s", folder, name);
	assert_int_equal(stat(path, &status), 0);
	return status.st_mode & 07777;
}

static void files_are_made_once_and_for_us(void **state)
{
	(void)state;
	static const char *const bad[] = { "", "a/b", "..", "-a", "a b", "a\nb", "*",
		"0123456789012345678901234567890123456789012345678901234567890123" };
	static const char *const addresses[] = { "10.1.2.3", "fe80::1", "n1.example.org" };
	static const char *const wrong[] = { "10.1.2.3:70", "a b", "" };
	struct certificate_made made;
	struct tr_error error;
	assert_int_equal(certificate_make_ca(files.folder, &made, &error), TR_EEXIST);
	assert_int_equal(mode_of(files.folder, "ca.key"), 0600);
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(certificate_make_node(files.folder, bad[i], NULL, 0, 1, &made,
		                     &error),
		    TR_EINVAL);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(certificate_make_node(files.folder, "n", wrong + i, 1, 1, &made,
		                     &error),
		    TR_EINVAL);
	assert_int_equal(certificate_make_node("/no/such/folder", "n", NULL, 0, 1, &made, &error),
	    TR_ENOTFOUND);
	assert_int_equal(certificate_make_node(files.folder, "n", addresses, 3, 1, &made, &error),
	    TR_OK);
	assert_int_equal(mode_of(made.folder, ""), 0700);
	assert_int_equal(mode_of(made.folder, "node.key"), 0600);
	assert_int_equal(certificate_make_node(files.folder, "n", NULL, 0, 1, &made, &error),
	    TR_EEXIST);
	struct tls_context *context;
	assert_int_equal(tls_context_load(made.folder, &context, &error), TR_OK);
	static const char *const ours[] = { "127.0.0.1:7", "[::1]:7", "localhost:7", "10.1.2.3:7",
		"[fe80::1]:7", "n1.example.org:7", "n:7" };
	for (unsigned i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
		assert_int_equal(tls_context_check_address(context, ours[i], &error), TR_OK);
	assert_int_equal(tls_context_check_address(context, "10.1.2.4:7", &error), TR_EINVAL);
	assert_non_null(strstr(error.text, "trainctl cert n --address 10.1.2.4"));
	tls_context_release(context);
}

/* Who dials an IP address wants it as one in the certificate, not as a name that looks like one; so does who checks its own. */
static void a_node_named_by_its_ip_address(void **state)
{
	(void)state;
	struct tls_context *server = tls_files_node(&files, "127.0.0.2");
	struct tr_error error;
	assert_int_equal(tls_context_check_address(server, "127.0.0.2:7", &error), TR_OK);
	struct pair *pair = begin(server, tls_files_node(&files, "dials"), "127.0.0.2:0");
	while (pair->client.connected == 0 && pair->client.closed == 0)
		(void)uv_run(&pair->loop, UV_RUN_ONCE);
	if (pair->client.connected == 0)
		fail_msg("%s", pair->client.reason);
	end(pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(another_ca),
		cmocka_unit_test(another_address),
		cmocka_unit_test(plain_to_tls),
		cmocka_unit_test(tls_to_plain),
		cmocka_unit_test(to_unix_socket_it_is_plain),
		cmocka_unit_test(all_sizes_under_many_keys),
		cmocka_unit_test(nonsense_is_dropped),
		cmocka_unit_test(a_half_handshake_holds_little),
		cmocka_unit_test(keys_without_end),
		cmocka_unit_test(folders_that_cannot_be_used),
		cmocka_unit_test(files_are_made_once_and_for_us),
		cmocka_unit_test(a_node_named_by_its_ip_address),
	};
	return cmocka_run_group_tests_name("tls", tests, make_files, end_files);
}
