/* A CA in a folder that goes away at the end, and certificates of it. */
#ifndef TR_TESTS_TLS_FILES_H
#define TR_TESTS_TLS_FILES_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/trainctl/certificate.h"
#include "collectives/transport/tls.h"

struct tls_files {
	char folder[64];
};

static inline int tls_files_remove(const char *path, const struct stat *status, int flag,
    struct FTW *at)
{
	(void)status;
	(void)flag;
	(void)at;
	return remove(path);
}

static inline void tls_files_make(struct tls_files *files)
{
	struct certificate_made made;
	(void)snprintf(files->folder, sizeof(files->folder), "/tmp/test-tls-XXXXXX");
	assert_non_null(mkdtemp(files->folder));
	assert_int_equal(certificate_make_ca(files->folder, &made, NULL), TR_OK);
}

static inline void tls_files_end(struct tls_files *files)
{
	(void)nftw(files->folder, tls_files_remove, 8, FTW_DEPTH | FTW_PHYS);
}

/* A new node of the CA, ready for use. */
static inline struct tls_context *tls_files_node(const struct tls_files *files, const char *node)
{
	struct tls_context *context = NULL;
	struct certificate_made made;
	struct tr_error error = { 0 };
	assert_int_equal(certificate_make_node(files->folder, node, NULL, 0, 1, &made, NULL), TR_OK);
	if (tls_context_load(made.folder, &context, &error) != TR_OK)
		fail_msg("%s", error.text);
	return context;
}

#endif
