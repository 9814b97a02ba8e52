/* traind's API: calls of traind.v1.Trainer go to memberd byte for byte, unary or server-streaming alike, with their deadlines,
 * cancellation, flow control and status; Health is answered here.
 *
 *	forward_create(loop, "10.0.0.1:7070", tls, &forward, &error);
 *	options = (struct grpc_server_options){ forward_methods(), forward_call, forward };
 *
 * memberd need not be there: calls that do not reach it end with UNAVAILABLE and say so.
 */
#ifndef TR_DAEMON_API_FORWARD_H
#define TR_DAEMON_API_FORWARD_H

#include "daemon/api/grpc_server.h"

struct forward;

tr_status forward_create(uv_loop_t *loop, const char *memberd_address, struct tls_context *tls,
    struct forward **forward, struct tr_error *error);
/* For grpc_server_options.methods and .fallback, with `forward` as .arg. */
const struct grpc_method *forward_methods(void);
void forward_call(void *arg, struct grpc_call *call, const uint8_t *request, size_t bytes);
/* After the server's `closed`. The loop must run on for the handles to close. */
void forward_destroy(struct forward *forward);

#endif
