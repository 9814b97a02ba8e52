/* Single keys from the terminal, for the question after Ctrl-C. In the background the terminal is left as it is. */
#ifndef TR_CLIENT_TRAINCTL_KEYS_H
#define TR_CLIENT_TRAINCTL_KEYS_H

#include <stdbool.h>
#include <termios.h>
#include <uv.h>

struct keys {
	uv_poll_t poll;
	struct termios before;
	bool open;
	void (*pressed)(void *arg, char key);
	void *arg;
};

/* Ctrl-C shows no "^C", which would shift a line that is drawn again; true gives back what was. */
void keys_echo_control(bool shown);
/* False: stdin is no terminal, or we are in the background. */
bool keys_open(struct keys *keys, uv_loop_t *loop, void (*pressed)(void *arg, char key), void *arg);
/* Restores the terminal. `closed` runs from a later turn if it was open. */
void keys_close(struct keys *keys, uv_close_cb closed);

#endif
