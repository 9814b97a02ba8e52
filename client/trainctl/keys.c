#include "client/trainctl/keys.h"

#include <unistd.h>

/* A job in the background (`launch FILE &`, Ctrl-Z and bg) is stopped when it changes the terminal, which is the shell's then. */
static bool is_ours(void)
{
	return tcgetpgrp(STDIN_FILENO) == getpgrp();
}

void keys_echo_control(bool shown)
{
	static bool was_shown;
	struct termios now;
	if (!is_ours() || tcgetattr(STDIN_FILENO, &now) != 0)
		return;
	if (!shown) {
		was_shown = (now.c_lflag & ECHOCTL) != 0;
		now.c_lflag &= ~(tcflag_t)ECHOCTL;
	} else if (was_shown) {
		now.c_lflag |= ECHOCTL;
	}
	(void)tcsetattr(STDIN_FILENO, TCSANOW, &now);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
	struct keys *keys = poll->data;
	char key;
	(void)events;
	if (status < 0 || read(STDIN_FILENO, &key, 1) != 1) {
		(void)uv_poll_stop(poll);
		return;
	}
	keys->pressed(keys->arg, key);
}

bool keys_open(struct keys *keys, uv_loop_t *loop, void (*pressed)(void *arg, char key), void *arg)
{
	if (keys->open)
		return true;
	if (!is_ours() || tcgetattr(STDIN_FILENO, &keys->before) != 0 ||
	    uv_poll_init(loop, &keys->poll, STDIN_FILENO) != 0)
		return false;
	struct termios now = keys->before;
	now.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
	now.c_cc[VMIN] = 1;
	now.c_cc[VTIME] = 0;
	now.c_cc[VQUIT] = now.c_cc[VSUSP] = _POSIX_VDISABLE; /* would leave it like this */
	(void)tcsetattr(STDIN_FILENO, TCSANOW, &now);
	keys->poll.data = keys;
	keys->pressed = pressed;
	keys->arg = arg;
	keys->open = true;
	(void)uv_poll_start(&keys->poll, UV_READABLE, on_readable);
	return true;
}

void keys_close(struct keys *keys, uv_close_cb closed)
{
	if (!keys->open)
		return;
	keys->open = false;
	if (is_ours())
		(void)tcsetattr(STDIN_FILENO, TCSANOW, &keys->before);
	uv_close((uv_handle_t *)&keys->poll, closed);
}
