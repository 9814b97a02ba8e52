#include "daemon/node/engine_mail.h"

#include <stdlib.h>

#include "common/log.h"

struct letter {
	struct mail mail;
	struct engine_mail *to;
	bool closed;          /* a closed channel and its LastWords, else a ToMember */
	uint64_t group, peer; /* of the channel */
	size_t bytes;
	uint8_t packed[];
};

static void deliver_closed(const struct letter *letter)
{
	struct engine_mail *to = letter->to;
	to->channel_closed(to->arg, letter->group, letter->peer,
	    traind__peer__last_words__unpack(NULL, letter->bytes, letter->packed));
}

static void deliver(struct mail *mail, bool dropped)
{
	struct letter *letter = (struct letter *)mail;
	struct engine_mail *to = letter->to;
	if (!dropped && letter->closed)
		deliver_closed(letter);
	else if (!dropped)
		to->to_member(to->arg, letter->packed, letter->bytes);
	free(letter);
}

static struct letter *letter_new(struct engine_mail *to, size_t bytes)
{
	struct letter *letter = calloc(1, sizeof(*letter) + bytes);
	if (letter == NULL) {
		log_error("node", "out of memory: a message of the engine is lost");
		return NULL;
	}
	letter->mail.run = deliver;
	letter->to = to;
	letter->bytes = bytes;
	return letter;
}

static void to_member(void *arg, const Traind__Peer__ToMember *message)
{
	struct engine_mail *to = arg;
	size_t bytes = traind__peer__to_member__get_packed_size(message);
	struct letter *letter = bytes == 0 ? NULL : letter_new(to, bytes);
	if (letter == NULL)
		return;
	(void)traind__peer__to_member__pack(message, letter->packed);
	mailbox_post(&to->box, &letter->mail);
}

static void worker_gone(void *arg, uint64_t group, uint64_t peer,
    const Traind__Peer__LastWords *words)
{
	struct engine_mail *to = arg;
	struct letter *letter = letter_new(to, traind__peer__last_words__get_packed_size(words));
	if (letter == NULL)
		return;
	(void)traind__peer__last_words__pack(words, letter->packed);
	letter->closed = true;
	letter->group = group;
	letter->peer = peer;
	mailbox_post(&to->box, &letter->mail);
}

const struct engine_callbacks engine_mail_callbacks = { .to_member = to_member,
	.worker_gone = worker_gone };

tr_status engine_mail_init(struct engine_mail *mail, uv_loop_t *loop,
    void (*to_member_call)(void *arg, const void *packed, size_t bytes),
    void (*channel_closed)(void *arg, uint64_t group, uint64_t peer, Traind__Peer__LastWords *words),
    void *arg, struct tr_error *error)
{
	mail->to_member = to_member_call;
	mail->channel_closed = channel_closed;
	mail->arg = arg;
	tr_status st = mailbox_init(&mail->box, loop, error);
	mail->open = st == TR_OK;
	return st;
}

void engine_mail_close(struct engine_mail *mail)
{
	if (mail->open)
		mailbox_close(&mail->box, NULL);
	mail->open = false;
}
