#include "client/trainctl/screen.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "client/trainctl/output.h"
#include "client/trainctl/print.h"

#define PLAIN_EVERY_MS 2000
#define WIDTH_FALLBACK 80

unsigned screen_columns(void)
{
	struct winsize size;
	return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

static unsigned terminal_width(void)
{
	unsigned columns = screen_columns();
	return columns > 0 ? columns : WIDTH_FALLBACK;
}

/* A terminal that has become narrower has wrapped the line: go up as many rows as it takes now. */
static void erase(struct screen *screen)
{
	if (screen->drawn == 0)
		return;
	size_t rows = (screen->drawn - 1) / terminal_width();
	if (rows > 0)
		(void)printf("\033[%zuA", rows);
	(void)printf("\r\033[J");
	screen->drawn = 0;
}

void screen_redraw(struct screen *screen, const Traind__V1__Job *job)
{
	char line[PROGRESS_LINE_MAX];
	if (!screen->config->terminal)
		return;
	errno = 0;
	erase(screen);
	struct progress_style style = { .width = terminal_width() - 1,
		.color = screen->config->color,
		.utf8 = screen->config->utf8 };
	screen->drawn = progress_bar(job, &screen->history, &style, line);
	(void)printf("\r%s", line);
	output_check(&screen->failed);
}

void screen_say(struct screen *screen, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	errno = 0;
	erase(screen);
	(void)vprintf(format, args);
	(void)putchar('\n');
	output_check(&screen->failed);
	va_end(args);
}

static bool same_event(const struct screen *screen, const Traind__V1__JobEvent *event)
{
	return event->unix_ms == screen->last_event_ms &&
	    strncmp(event->text, screen->last_event, sizeof(screen->last_event) - 1) == 0;
}

static bool show_events(struct screen *screen, const Traind__V1__Job *job)
{
	size_t from = job->n_events;
	bool color = screen->config->color;
	char clock[PRINT_FIGURE_MAX];
	while (from > 0 && !same_event(screen, job->events[from - 1]))
		from--;
	for (size_t i = from; i < job->n_events; i++) {
		const Traind__V1__JobEvent *event = job->events[i];
		screen_say(screen, "%s%s%s  %s", color ? "\033[2m" : "",
		    print_clock(event->unix_ms, clock), color ? "\033[0m" : "", event->text);
		screen->last_event_ms = event->unix_ms;
		(void)snprintf(screen->last_event, sizeof(screen->last_event), "%s", event->text);
	}
	return from < job->n_events;
}

/* A job that waits says why, once. */
static void show_state(struct screen *screen, const Traind__V1__Job *job)
{
	char state[sizeof(screen->last_state)];
	bool waits = job->state == TRAIND__V1__JOB_STATE__JOB_STATE_QUEUED && job->reason != NULL &&
	    job->reason[0] != '\0';
	(void)snprintf(state, sizeof(state), "%s%s%s", print_state(job->state), waits ? ": " : "",
	    waits ? job->reason : "");
	if (strcmp(state, screen->last_state) == 0)
		return;
	(void)snprintf(screen->last_state, sizeof(screen->last_state), "%s", state);
	if (waits && !screen->config->terminal)
		screen_say(screen, "%s", state);
}

static void show_plain(struct screen *screen, const Traind__V1__Job *job, bool now)
{
	char line[PROGRESS_LINE_MAX];
	if (job->progress == NULL || job->progress->step == 0)
		return;
	if (screen->shown_any && job->progress->step == screen->plain_step && !now)
		return;
	progress_plain(job, line);
	screen_say(screen, "%s", line);
	screen->plain_step = job->progress->step;
	screen->shown_any = true;
}

void screen_show(struct screen *screen, const Traind__V1__Job *job, uint64_t now_ms)
{
	progress_remember(&screen->history, job);
	bool news = show_events(screen, job);
	show_state(screen, job);
	if (screen->config->terminal) {
		screen_redraw(screen, job);
	} else if (news || !screen->shown_any || now_ms - screen->plain_ms >= PLAIN_EVERY_MS) {
		uint64_t before = screen->plain_step;
		show_plain(screen, job, false);
		if (screen->plain_step != before)
			screen->plain_ms = now_ms;
	}
}

void screen_end(struct screen *screen, const Traind__V1__Job *job)
{
	if (screen->config->terminal) {
		screen_redraw(screen, job);
		errno = 0;
		(void)putchar('\n');
		screen->drawn = 0;
	} else {
		show_plain(screen, job, false);
	}
	output_check(&screen->failed);
}
