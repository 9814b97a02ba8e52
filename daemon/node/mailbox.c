#include "daemon/node/mailbox.h"

static struct mail *take_all(struct mailbox *mailbox)
{
	(void)pthread_mutex_lock(&mailbox->lock);
	struct mail *first = mailbox->first;
	mailbox->first = NULL;
	mailbox->last = &mailbox->first;
	(void)pthread_mutex_unlock(&mailbox->lock);
	return first;
}

static void run_all(struct mailbox *mailbox, bool dropped)
{
	for (struct mail *mail = take_all(mailbox), *next; mail != NULL; mail = next) {
		next = mail->next;
		mail->run(mail, dropped);
	}
}

static void woken(uv_async_t *async)
{
	run_all(async->data, false);
}

tr_status mailbox_init(struct mailbox *mailbox, uv_loop_t *loop, struct tr_error *error)
{
	int rc = uv_async_init(loop, &mailbox->async, woken);
	if (rc != 0)
		return tr_error_set(error, TR_EIO, "cannot make a mailbox: %s", uv_strerror(rc));
	mailbox->async.data = mailbox;
	mailbox->first = NULL;
	mailbox->last = &mailbox->first;
	mailbox->closed = false;
	(void)pthread_mutex_init(&mailbox->lock, NULL);
	return TR_OK;
}

void mailbox_post(struct mailbox *mailbox, struct mail *mail)
{
	mail->next = NULL;
	(void)pthread_mutex_lock(&mailbox->lock);
	bool closed = mailbox->closed;
	if (!closed) {
		*mailbox->last = mail;
		mailbox->last = &mail->next;
		(void)uv_async_send(&mailbox->async);
	}
	(void)pthread_mutex_unlock(&mailbox->lock);
	if (closed)
		mail->run(mail, true);
}

void mailbox_close(struct mailbox *mailbox, uv_close_cb closed)
{
	(void)pthread_mutex_lock(&mailbox->lock);
	mailbox->closed = true;
	(void)pthread_mutex_unlock(&mailbox->lock);
	run_all(mailbox, true);
	uv_close((uv_handle_t *)&mailbox->async, closed);
}
