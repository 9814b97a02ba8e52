/* What the engine's thread has to say, brought to the control loop. */
#ifndef TR_DAEMON_NODE_ENGINE_MAIL_H
#define TR_DAEMON_NODE_ENGINE_MAIL_H

#include <stddef.h>
#include <stdint.h>

#include "collectives/engine/engine.h"
#include "daemon/node/mailbox.h"

struct engine_mail {
	struct mailbox box;
	/* On the control loop; packed is a ToMember, borrowed until return. */
	void (*to_member)(void *arg, const void *packed, size_t bytes);
	/* Takes the words; NULL: no memory for them. */
	void (*channel_closed)(void *arg, uint64_t group, uint64_t peer,
	    Traind__Peer__LastWords *words);
	void *arg;
	bool open;
};

/* For engine_create, with a struct engine_mail as its arg. */
extern const struct engine_callbacks engine_mail_callbacks;

tr_status engine_mail_init(struct engine_mail *mail, uv_loop_t *loop,
    void (*to_member)(void *arg, const void *packed, size_t bytes),
    void (*channel_closed)(void *arg, uint64_t group, uint64_t peer, Traind__Peer__LastWords *words),
    void *arg, struct tr_error *error);
void engine_mail_close(struct engine_mail *mail); /* after engine_destroy; zeroed: nothing */

#endif
