/* Folders as Hugging Face's transformers writes (save_pretrained) and loads (from_pretrained) them, to and from checkpoints.
 *
 * Both write everything beside its place and rename it: a folder is complete or not there.
 */
#ifndef TR_DAEMON_CHECKPOINT_HF_FOLDER_H
#define TR_DAEMON_CHECKPOINT_HF_FOLDER_H

#include <stdatomic.h>

#include "daemon/checkpoint/bpe.h"
#include "daemon/checkpoint/checkpoint.h"
#include "daemon/checkpoint/hf_config.h"
#include "daemon/plan/model_config.h"

/* What was written, and what it is. */
struct hf_result {
	char path[CHECKPOINT_PATH_MAX];
	struct model_config config;
	uint64_t step;
	/* hf_import: what config.json says that training left out (hf_config_dropout). */
	double dropout;
	char dropout_text[HF_DROPOUT_TEXT_MAX];
};

/* Checkpoint (its folder, or one with `latest`) -> `folder`, which must not be there or be empty: config.json, generation_config.json,
 * model.safetensors, README.md and the tokenizer: vocab.json and merges.txt of the folder `tokenizer`, or NULL: of a model of bytes theirs.
 * Digests are checked. result->path is the checkpoint's. Who sets `cancelled` (NULL: nobody) has TR_ECANCELLED, and nothing is left. */
tr_status hf_export(const char *checkpoint, const char *folder, const char *tokenizer,
    const atomic_bool *cancelled, struct hf_result *result, struct tr_error *error);

/* `folder` -> the checkpoint `to`/step-00000000, to which `latest` points, without moments. Weights are in model.safetensors, or in the
 * files that model.safetensors.index.json names; F64, BF16 and F16 become F32. What is not GPT-2 or Llama as this program computes them,
 * or has tensors that it does not know, is refused. */
tr_status hf_import(const char *folder, const char *to, struct hf_result *result,
    struct tr_error *error);

/* hf_tokenizer.c: tokenizer.json that makes each byte of a text the token of its value; to be freed. NULL: out of memory. */
char *hf_tokenizer_of_bytes(void);
char *hf_tokenizer_config(const struct model_config *config);
/* tokenizer_config.json beside vocab.json and merges.txt; to be freed. */
char *hf_tokenizer_config_bpe(const struct model_config *config, const struct bpe *bpe);

#endif
