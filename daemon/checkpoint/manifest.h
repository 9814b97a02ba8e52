/* manifest.json of a checkpoint: written last, so a folder that has one is complete. */
#ifndef TR_DAEMON_CHECKPOINT_MANIFEST_H
#define TR_DAEMON_CHECKPOINT_MANIFEST_H

#include <stdint.h>

#include "collectives/sync/costs.h"
#include "collectives/sync/lease.h"
#include "common/digest.h"
#include "common/error.h"
#include "common/limits.h"

#define MANIFEST_NAME      "manifest.json"
#define MANIFEST_MODEL     "model.safetensors"
#define MANIFEST_OPTIMIZER "optimizer.safetensors"
#define MANIFEST_CONFIG    "config.json" /* hf_config.h */
#define MANIFEST_SAMPLE    "sample.txt"
#define MANIFEST_BYTES_MAX 65536
#define MANIFEST_SHARD_MAX 32 /* of a shard's file's name */

/* A job among those of all clusters: each of them counts from 1. */
struct manifest_job {
	uint64_t id; /* 0: nobody knows (an older file, an import) */
	uint64_t submitted_unix_ms;
	char name[TR_NAME_MAX];
};

/* Of a checkpoint in shards (checkpoint_shards.h): a file for each, as many as pp x tp. */
struct manifest_shards {
	uint32_t count; /* 0: it is in one piece */
	uint32_t pp, tp, chunks;
	uint32_t
	    layers[TR_GROUP_PEERS_MAX]; /* of each pipeline rank; all 0: as job_mesh_stages deals them */
	char files[TR_GROUP_PEERS_MAX][TR_DIGEST_HEX_MAX]; /* digests */
};

struct manifest {
	struct manifest_job job; /* whose it is */
	uint64_t step;           /* committed steps that the state holds */
	uint64_t round; /* of the group, that committed the last of them; 0: the same number */
	uint64_t seed;
	uint64_t samples;             /* counted */
	struct lease_account account; /* of them, without leases. cursor 0: none, it is an old file */
	uint64_t tokens;
	uint64_t
	    age; /* steps that made the moments, of who wrote them: as many as `step`, but where it came later or began anew (sync.mode) */
	struct sync_costs costs; /* of its merges. merges 0: none */
	char spec[TR_DIGEST_HEX_MAX]; /* digest of what determines the samples: model, text, seed, batch. "": imported */
	char order[TR_DIGEST_HEX_MAX]; /* of what determines which sample a number is: text, seed, context. "": imported, or it is an old file */
	double dropout; /* of the job (train.dropout): for who trains on elsewhere. 0: none, or it is an old file */
	double lr_base[2]; /* HDET (struct tr_sync_options): base of the learning rates and its momentum; zeros: none */
	char model[TR_DIGEST_HEX_MAX]; /* digests of the files; in shards, of all of them, both the same */
	char optimizer[TR_DIGEST_HEX_MAX]; /* "": there is none, the moments are zero */
	char config[TR_DIGEST_HEX_MAX];    /* "": it is an old file, and nobody knows */
	struct manifest_shards shards;
};

/* "shard-00003.safetensors" */
const char *manifest_shard_name(uint32_t number, char name[MANIFEST_SHARD_MAX]);

/* Of a checkpoint in shards whose digests are known: what names them all. */
void manifest_sum_shards(struct manifest *manifest);
/* The text, to be freed; NULL: out of memory. */
char *manifest_text(const struct manifest *manifest);
/* Bytes are not trusted. The text ends with a digest of what stands before it, in older files not. TR_EDIGEST: it is another one, or names of files are not what was written; TR_EPROTO: it is no manifest. */
tr_status manifest_parse(const char *text, size_t length, struct manifest *manifest,
    struct tr_error *error);

#endif
