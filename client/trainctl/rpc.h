/* Calls to traind.v1.Trainer with messages in and out, one after another; streams are follow.c's and verb_logs.c's own. */
#ifndef TR_CLIENT_TRAINCTL_RPC_H
#define TR_CLIENT_TRAINCTL_RPC_H

#include <uv.h>

#include "client/trainctl/config.h"
#include "client/trainctl/exit_code.h"
#include "client/trainctl/interrupt.h"
#include "daemon/api/grpc_client.h"
#include "traind/v1/trainer.pb-c.h"

#define RPC_PATH(method) "/traind.v1.Trainer/" method

struct rpc {
	uv_loop_t loop;
	struct grpc_client *client;
	const struct config *config;
	char address[TR_ADDRESS_MAX]; /* config's, or where the cluster has moved since */
	bool gone;                    /* the record of the embedded cluster */
	bool steady;                  /* rpc_call waits for its answer whatever signal comes */
	enum grpc_status status;      /* of the last call */
	bool lost;                    /* the status is ours: nobody answered */
	char text[512];
	struct interrupt_watch watch;
};

tr_status rpc_open(struct rpc *rpc, const struct config *config, struct tr_error *error);
void rpc_close(struct rpc *rpc);

/* The embedded cluster's record once more, if the address is from there: `down` removes it, the next `up` has another port. */
enum rpc_record { RPC_RECORD_SAME, RPC_RECORD_MOVED, RPC_RECORD_GONE };
/* Moved: calls that are open end with CANCELLED, others go to the new address. Not from within a call's callbacks. */
enum rpc_record rpc_read_record(struct rpc *rpc);

/* Runs the loop until the answer is there, or (CANCELLED) a signal comes (interrupt.h). NULL: rpc->status and rpc->text say why. Free with
 * protobuf_c_message_free_unpacked(message, NULL). */
void *rpc_call(struct rpc *rpc, const char *path, const void *request,
    const ProtobufCMessageDescriptor *response, uint64_t deadline_ms);

/* A message that has come. What people read of it has no control characters, unless JSON is printed; NULL: it cannot be read. */
void *rpc_unpack(const struct rpc *rpc, const ProtobufCMessageDescriptor *kind,
    const uint8_t *message, size_t bytes);
/* For `ended`: how the call ended. */
void rpc_note_end(struct rpc *rpc, const struct grpc_client_call *call, enum grpc_status status,
    const char *text);

/* Packs `request` and starts a call whose messages go to `callbacks`. */
tr_status rpc_start(struct rpc *rpc, const char *path, const void *request,
    const struct grpc_client_callbacks *callbacks, void *arg, struct grpc_client_call **call,
    struct tr_error *error);

/* Prints why the last call failed, and what to do, to stderr; returns trainctl's exit code for it. */
int rpc_complain(const struct rpc *rpc);

#endif
