/* nghttp2's callbacks of a grpc_session: they write down what came and touch the stream; nothing acts here. */
#ifndef TR_DAEMON_API_HTTP2_CALLBACKS_H
#define TR_DAEMON_API_HTTP2_CALLBACKS_H

#include "daemon/api/grpc_session.h"

/* The most that one nghttp2_session_mem_send gives: a frame of the default size with its header and padding; a header block counts
 * its CONTINUATIONs one by one. */
#define HTTP2_PIECE_MAX (16384 + 9 + 256)

/* Creates session->http2 with our limits and submits the SETTINGS. */
tr_status http2_callbacks_attach(struct grpc_session *session);

#endif
