#include "daemon/worker/ending.h"

#include <signal.h>
#include <unistd.h>

#define WAIT_S 2

static volatile sig_atomic_t wanted;

static void on_term(int number)
{
	(void)number;
	wanted = 1;
	(void)alarm(WAIT_S);
}

/* As if nobody had waited. */
static void on_alarm(int number)
{
	(void)number;
	(void)signal(SIGTERM, SIG_DFL);
	(void)raise(SIGTERM);
}

void ending_wait(void)
{
	struct sigaction term = { .sa_handler = on_term, .sa_flags = SA_RESTART },
	                 over = { .sa_handler = on_alarm };
	(void)sigemptyset(&term.sa_mask);
	(void)sigemptyset(&over.sa_mask);
	(void)sigaction(SIGTERM, &term, NULL);
	(void)sigaction(SIGALRM, &over, NULL);
}

bool ending_wanted(void)
{
	return wanted != 0;
}

void ending_hold(void)
{
	(void)signal(SIGTERM, SIG_IGN); /* the one of its eviction may still be on its way */
	(void)alarm(0);
}
