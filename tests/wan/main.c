/* wanlab: wide-area networks on one machine. docs/wanlab.md is its manual. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/wan/client.h"
#include "tests/wan/lab.h"

#define FILE_BYTES_MAX 65536

static int usage(FILE *to)
{
	fputs("usage: wanlab run [--seed N] TOPOLOGY -- COMMAND...   a laboratory for as long as "
	      "COMMAND runs\n"
	      "       wanlab exec SITE -- COMMAND...                COMMAND in a site\n"
	      "       wanlab show                                   every wire: how it is, what "
	      "went through\n"
	      "       wanlab link|set|cut|blackhole|drop|heal ...   change it, as a line of a "
	      "topology does\n"
	      "       wanlab check TOPOLOGY                         says whether the file is "
	      "right\n"
	      "exec, show and changes find the laboratory by WANLAB_SOCKET, which COMMAND of `run` "
	      "has.\n",
	    to);
	return to == stdout ? 0 : 2;
}

static int say(const char *problem)
{
	fprintf(stderr, "wanlab: %s\n", problem);
	return 1;
}

static tr_status load(const char *path, struct topology *topology, struct tr_error *error)
{
	static char text[FILE_BYTES_MAX];
	FILE *file = fopen(path, "re");
	if (file == NULL)
		return tr_error_set(error, TR_EIO, "%s: %s", path, strerror(errno));
	size_t length = fread(text, 1, sizeof(text) - 1, file);
	bool whole = feof(file) != 0;
	(void)fclose(file);
	text[length] = '\0';
	if (!whole)
		return tr_error_set(error, TR_ELIMIT, "%s: more than %d bytes", path,
		    FILE_BYTES_MAX - 1);
	tr_status st = topology_lines(topology, text, true, error);
	if (st != TR_OK)
		return tr_error_wrap(error, "%s", path);
	return topology->count > 0 ? TR_OK : tr_error_set(error, TR_EINVAL, "%s: no site", path);
}

static int run(int argc, char **argv)
{
	static struct topology topology;
	struct lab_options options = { .topology = &topology, .seed = 1 };
	struct tr_error error = { 0 };
	int code = 1;
	if (argc > 1 && strcmp(argv[0], "--seed") == 0) {
		char *end;
		options.seed = strtoull(argv[1], &end, 10);
		if (*end != '\0')
			return usage(stderr);
		argc -= 2;
		argv += 2;
	}
	if (argc < 3 || strcmp(argv[1], "--") != 0)
		return usage(stderr);
	options.command = argv + 2;
	if (load(argv[0], &topology, &error) != TR_OK || lab_run(&options, &code, &error) != TR_OK)
		return say(error.text);
	return code;
}

static int check(const char *path)
{
	static struct topology topology;
	struct tr_error error = { 0 };
	return load(path, &topology, &error) == TR_OK ? 0 : say(error.text);
}

static int in_site(int argc, char **argv)
{
	static char answer[CLIENT_TEXT_MAX];
	if (argc < 3 || strcmp(argv[1], "--") != 0)
		return usage(stderr);
	if (!client_enter(argv[0], answer))
		return say(answer);
	(void)execvp(argv[2], argv + 2);
	fprintf(stderr, "wanlab: %s: %s\n", argv[2], strerror(errno));
	return 127;
}

static int ask(int argc, char **argv)
{
	static char request[CLIENT_TEXT_MAX], answer[CLIENT_TEXT_MAX];
	size_t length = 0;
	for (int i = 0; i < argc && length < sizeof(request); i++)
		length += (size_t)snprintf(request + length, sizeof(request) - length, "%s%s",
		    i > 0 ? " " : "", argv[i]);
	if (length >= sizeof(request))
		return say("that is too long");
	if (!client_ask(request, answer))
		return say(answer);
	fputs(answer, stdout);
	return 0;
}

int main(int argc, char **argv)
{
	const char *verb = argc > 1 ? argv[1] : "";
	if (strcmp(verb, "--help") == 0 || strcmp(verb, "help") == 0)
		return usage(stdout);
	if (strcmp(verb, "run") == 0)
		return run(argc - 2, argv + 2);
	if (strcmp(verb, "exec") == 0)
		return in_site(argc - 2, argv + 2);
	if (strcmp(verb, "check") == 0 && argc == 3)
		return check(argv[2]);
	return argc > 1 && verb[0] != '-' && strcmp(verb, "check") != 0 ? ask(argc - 1, argv + 1)
	                                                                : usage(stderr);
}
