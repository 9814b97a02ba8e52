/* Text by the trained model, token for token. */
#ifndef TR_DAEMON_WORKER_GENERATE_H
#define TR_DAEMON_WORKER_GENERATE_H

#include "common/progress.h"
#include "daemon/checkpoint/bpe.h"
#include "daemon/worker/model.h"

struct generate {
	const char *prompt; /* "": a newline, which is not shown */
	struct bpe *bpe;    /* what tokens are; NULL: bytes */
	size_t tokens;      /* to generate */
	double temperature; /* 0: always the likeliest */
	uint64_t seed;
	struct progress progress; /* told after each token */
};

/* Prompt and what follows it, as printable UTF-8 (other bytes are shown as '?'), to be freed; NULL: out of memory. When the context is full,
 * generation goes on from its newer half. */
char *generate_text(struct model *model, const struct model_config *config,
    const struct generate *options);

#endif
