#include "daemon/node/descend.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct process_row {
	pid_t pid, parent, group, session;
	bool dead, chosen;
};

struct process_table {
	struct process_row *rows;
	size_t count, capacity;
};

static bool is_passing(int cause)
{
	return cause == EMFILE || cause == ENFILE || cause == ENOMEM;
}

/* Parent, group, session and state out of /proc/PID/stat; the command's name in it may hold any byte but ends with the last ')'. False: it is gone, or nobody can look now, as errno says. */
static bool read_stat(const char *pid, struct process_row *row, char *state)
{
	char path[300], text[512];
	(void)snprintf(path, sizeof(path), "/proc/%s/stat", pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	ssize_t got = read(fd, text, sizeof(text) - 1);
	(void)close(fd);
	errno = 0;
	if (got <= 0)
		return false;
	text[got] = '\0';
	const char *end = strrchr(text, ')');
	return end != NULL &&
	    sscanf(end + 1, " %c %d %d %d", state, &row->parent, &row->group, &row->session) == 4;
}

static bool add_row(struct process_table *table, const struct process_row *row)
{
	if (table->count == table->capacity) {
		size_t capacity = table->capacity == 0 ? 256 : table->capacity * 2;
		struct process_row *rows = realloc(table->rows, capacity * sizeof(*rows));
		if (rows == NULL)
			return false;
		table->rows = rows;
		table->capacity = capacity;
	}
	table->rows[table->count++] = *row;
	return true;
}

/* false: not now, for want of memory or descriptors. Where there is no /proc at all it is empty. */
static bool read_table(struct process_table *table)
{
	DIR *folder = opendir("/proc");
	bool whole = true;
	if (folder == NULL)
		return !is_passing(errno);
	const struct dirent *entry;
	while (whole && (entry = readdir(folder)) != NULL) {
		char *end, state;
		struct process_row row = { .pid = (pid_t)strtol(entry->d_name, &end, 10) };
		if (row.pid <= 0 || *end != '\0')
			continue;
		if (!read_stat(entry->d_name, &row, &state)) {
			whole = !is_passing(errno);
			continue;
		}
		row.dead = state == 'Z' || state == 'X';
		whole = add_row(table, &row);
	}
	(void)closedir(folder);
	return whole;
}

static bool spared(const struct descend *which, const struct process_row *row)
{
	for (size_t i = 0; i < which->spares; i++)
		if (which->spare[i] == row->pid)
			return true;
	return which->session != 0 && row->session == which->session;
}

static bool chosen(const struct process_table *table, pid_t pid)
{
	for (size_t i = 0; i < table->count; i++)
		if (table->rows[i].pid == pid)
			return table->rows[i].chosen;
	return false;
}

static bool signalled(const struct descend *which, const struct process_row *row, int signal_number)
{
	return row->chosen && !row->dead && (which->told == 0 || row->group != which->told) &&
	    kill(row->pid, signal_number) == 0;
}

size_t descend_signal(const struct descend *which, int signal_number)
{
	struct process_table table = { 0 };
	size_t count = 0;
	if (!read_table(&table)) {
		free(table.rows);
		return 1;
	}
	/* Each pass goes one generation down; the table is a few hundred rows. */
	for (bool more = true; more;) {
		more = false;
		for (size_t i = 0; i < table.count; i++) {
			struct process_row *row = &table.rows[i];
			if (row->chosen || spared(which, row))
				continue;
			if (row->parent == which->root || chosen(&table, row->parent))
				row->chosen = more = true;
		}
	}
	for (size_t i = 0; i < table.count; i++)
		count += signalled(which, &table.rows[i], signal_number);
	free(table.rows);
	return count;
}

void descend_reap(const struct descend *which)
{
	struct process_table table = { 0 };
	(void)read_table(&table);
	for (size_t i = 0; i < table.count; i++) {
		const struct process_row *row = &table.rows[i];
		if (row->dead && row->parent == which->root && !spared(which, row))
			(void)waitpid(row->pid, NULL, WNOHANG);
	}
	free(table.rows);
}
