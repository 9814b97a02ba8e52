/* config.json, which says to Hugging Face's transformers what model a folder holds: GPT2LMHeadModel or LlamaForCausalLM. */
#ifndef TR_DAEMON_CHECKPOINT_HF_CONFIG_H
#define TR_DAEMON_CHECKPOINT_HF_CONFIG_H

#include "common/error.h"
#include "daemon/checkpoint/manifest.h"
#include "daemon/plan/model_config.h"

#define HF_CONFIG_NAME      MANIFEST_CONFIG
#define HF_CONFIG_BYTES_MAX 65536

/* The text, to be freed; NULL: out of memory. `config` is filled; `dropout` is the share that training leaves out. */
char *hf_config_text(const struct model_config *config, double dropout);
/* Bytes are not trusted; what this program cannot compute as transformers would is refused. The config is filled. */
tr_status hf_config_parse(const char *text, size_t length, struct model_config *config,
    struct tr_error *error);
/* Reads FOLDER/config.json. TR_ENOTFOUND: there is none; TR_EDIGEST: it has another digest than the manifest says ("": none is known). */
tr_status hf_config_read(const char *folder, const char *digest, struct model_config *config,
    struct tr_error *error);

/* What FOLDER/config.json says that training leaves out, which hf_config_read does not look at: "resid_pdrop 0.1, embd_pdrop 0.1, attn_pdrop 0.1" and the largest of them; 0: nothing. */
#define HF_DROPOUT_TEXT_MAX 128
double hf_config_dropout(const char *folder, char text[HF_DROPOUT_TEXT_MAX]);

#endif
