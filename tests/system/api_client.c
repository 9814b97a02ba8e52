/* One call with grpc_client, for tests/system/test_api_client.py, whose server is Python's grpcio.
 *
 *	api_client ADDRESS PATH DEADLINE_MS [--cancel-after N] <request
 *
 * Prints a line per message, its bytes in hex; then "status NAME text". --cancel-after: cancels after the N-th message.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/api/grpc_client.h"

struct program {
	struct grpc_client *client;
	struct grpc_client_call *call;
	long messages, cancel_after;
};

static void on_message(void *arg, const uint8_t *message, size_t bytes)
{
	struct program *program = arg;
	for (size_t i = 0; i < bytes; i++)
		(void)printf("%02x", message[i]);
	(void)printf("\n");
	if (++program->messages == program->cancel_after)
		grpc_client_cancel(program->call);
}

static void on_ended(void *arg, enum grpc_status status, const char *text)
{
	(void)arg;
	(void)printf("status %s %s\n", grpc_status_name(status), text);
	uv_stop(uv_default_loop());
}

int main(int argc, char **argv)
{
	static uint8_t request[8u << 20];
	static const struct grpc_client_callbacks callbacks = { on_message, on_ended };
	struct program program = { 0 };
	struct tr_error error;
	uv_loop_t *loop = uv_default_loop();
	if (argc < 4)
		return 2;
	if (argc == 6 && strcmp(argv[4], "--cancel-after") == 0)
		program.cancel_after = strtol(argv[5], NULL, 10);
	size_t bytes = fread(request, 1, sizeof(request), stdin);
	if (grpc_client_create(loop, argv[1], NULL, &program.client, &error) != TR_OK ||
	    grpc_client_call(program.client, argv[2], request, bytes, strtoull(argv[3], NULL, 10),
	        &callbacks, &program, &program.call, &error) != TR_OK) {
		(void)fprintf(stderr, "%s\n", error.text);
		return 1;
	}
	(void)uv_run(loop, UV_RUN_DEFAULT);
	grpc_client_destroy(program.client);
	(void)uv_run(loop, UV_RUN_DEFAULT);
	return uv_loop_close(loop) == 0 ? 0 : 3;
}
