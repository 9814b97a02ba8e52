/* Speaks to a running laboratory (control.h). Needs nothing of the project, so that any test program can have it.
 *
 *	char answer[CLIENT_TEXT_MAX];
 *	if (!client_enter("eu", answer))          // this process is in the site eu from here on; answer: its address
 *		die(answer);
 */
#ifndef TR_TESTS_WAN_CLIENT_H
#define TR_TESTS_WAN_CLIENT_H

#include <stdbool.h>

#define CLIENT_TEXT_MAX    65536
#define CLIENT_ENVIRONMENT "WANLAB_SOCKET" /* where the control socket is */

/* `answer`: what it said, without "ok " and "error: "; or what went wrong. */
bool client_ask(const char *request, char answer[CLIENT_TEXT_MAX]);
bool client_enter(const char *site, char answer[CLIENT_TEXT_MAX]);

#endif
