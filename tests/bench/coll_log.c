#include "tests/bench/coll_log.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/bench/measure.h"

bool coll_log_open(struct coll_log *log)
{
	*log = (struct coll_log){ .processes = { -1, -1 }, .memberd = { -1, -1 } };
	log->lines = calloc(COLL_LOG_LINES_MAX, sizeof(*log->lines));
	return log->lines != NULL && pipe2(log->processes, O_CLOEXEC) == 0 &&
	    pipe2(log->memberd, O_CLOEXEC) == 0 &&
	    fcntl(log->processes[0], F_SETFL, O_NONBLOCK) == 0 &&
	    fcntl(log->memberd[0], F_SETFL, O_NONBLOCK) == 0;
}

void coll_log_close(struct coll_log *log)
{
	for (int i = 0; i < 2; i++) {
		(void)close(log->processes[i]);
		(void)close(log->memberd[i]);
	}
	free(log->lines);
}

static void end_line(struct coll_log *log, bool from_memberd, double now_s)
{
	char *text = log->partial[from_memberd];
	if (text[0] != '\0' && log->count < COLL_LOG_LINES_MAX) {
		struct coll_log_line *line = &log->lines[log->count++];
		line->at_s = now_s;
		line->from_memberd = from_memberd;
		(void)memcpy(line->text, text, sizeof(line->text));
	}
	memset(text, 0, sizeof(log->partial[0]));
}

static void take(struct coll_log *log, int fd, bool from_memberd)
{
	char bytes[4096];
	double now_s = measure_now_s();
	ssize_t n = read(fd, bytes, sizeof(bytes));
	for (ssize_t i = 0; i < n; i++) {
		char *text = log->partial[from_memberd];
		size_t used = strlen(text);
		if (bytes[i] == '\n')
			end_line(log, from_memberd, now_s);
		else if (used + 1 < sizeof(log->partial[0]) && (unsigned char)bytes[i] >= ' ' &&
		    bytes[i] != '"' && bytes[i] != '\\')
			text[used] = bytes[i];
	}
}

void coll_log_read(struct coll_log *log, int wait_ms)
{
	struct pollfd ends[2] = { { .fd = log->processes[0], .events = POLLIN },
		{ .fd = log->memberd[0], .events = POLLIN } };
	for (int wait = wait_ms; poll(ends, 2, wait) > 0; wait = 0)
		for (int i = 0; i < 2; i++)
			if ((ends[i].revents & POLLIN) != 0)
				take(log, ends[i].fd, i == 1);
			else if (ends[i].revents != 0)
				return;
}

/* Not merely suspected: memberd's words, and a member's of its link. */
static bool says_lost(const char *text)
{
	return strstr(text, "is lost") != NULL || strstr(text, "broke") != NULL;
}

bool coll_log_first_loss(const struct coll_log *log, double at_s, struct coll_log_line *line)
{
	for (size_t i = 0; i < log->count; i++)
		if (log->lines[i].at_s >= at_s && says_lost(log->lines[i].text)) {
			*line = log->lines[i];
			return true;
		}
	return false;
}

void coll_log_print(const struct coll_log *log)
{
	for (size_t i = log->count > 20 ? log->count - 20 : 0; i < log->count; i++)
		fprintf(stderr, "  %s%s\n", log->lines[i].from_memberd ? "memberd: " : "",
		    log->lines[i].text);
}
