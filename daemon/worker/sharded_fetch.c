/* Machines that share no disk: a checkpoint is on that of whoever wrote it. Before shards are read from one, or training goes back to one, who does not find it gets a copy of its files from who
 * does, and puts it where it would have been. From then on it is as if all had had it: what is wrong with it is found by who reads it, who gives it included (sharded_back.c); then another disk's is tried.
 *
 * All ops are in a scope of the giver and those who take, and are taken back one by one, so a copy of any size needs one piece of the group's memory. */
#include <stdio.h>
#include <string.h>

#include "daemon/checkpoint/checkpoint_copy.h"
#include "daemon/worker/patience.h"
#include "daemon/worker/trainer_inside.h"

struct fetch_piece {
	int64_t failed;                       /* 1: the giver cannot read its files */
	int64_t sizes[CHECKPOINT_COPY_FILES]; /* of the first piece, which has no bytes */
	uint8_t bytes[];                      /* [fetch_bytes] */
};

/* What each says it has, in 63 bits. */
enum { FILES_BITS = 24 };
#define ROUNDS_MOST ((UINT64_C(1) << (62 - FILES_BITS)) - 1)

struct fetch {
	struct sharded_scope scope;
	uint32_t root; /* of the scope: who gives */
	bool gives;
	struct checkpoint_copy copy;
	struct fetch_piece *piece;
	uint32_t ops;        /* pieces so far */
	struct tr_error own; /* why this worker could not read, or write, its files */
};

/* ---- who ---- */

int64_t sharded_which(const struct manifest *manifest)
{
	struct tr_digest files = tr_digest_fold(tr_digest_of(manifest->model,
	                                            strlen(manifest->model)),
	    tr_digest_of(manifest->optimizer, strlen(manifest->optimizer)));
	uint64_t round = manifest->round < ROUNDS_MOST ? manifest->round : ROUNDS_MOST;
	return (int64_t)((round + 1) << FILES_BITS | (files.low & ((1u << FILES_BITS) - 1)));
}

/* Where training went back and came to a step again, disks may have different checkpoints of it: the one of the latest round counts. One of another job is none, or it would take the place of
 * this one's. 0: there is none. */
static int64_t what_is_here(struct trainer *t, uint64_t step, const char *path)
{
	char found[CHECKPOINT_PATH_MAX];
	struct sharded *s = t->sharded;
	struct tr_error why;
	if (checkpoint_look(path, &s->whole, s->back, found, &why) != TR_OK ||
	    sharded_check_checkpoint(t, step, path, &why) != TR_OK)
		return 0;
	int64_t which = sharded_which(s->back);
	return which == s->files.spoilt ? 0 : which;
}

static tr_status ask(struct trainer *t, const struct tr_round *round, int64_t here,
    struct tr_error *error)
{
	struct sharded *s = t->sharded;
	memset(s->sums->here, 0, sizeof(s->sums->here));
	if (s->self != RANKS_NONE)
		s->sums->here[s->self] = here;
	tr_status status = tr_allreduce(t->group, TAG_HERE, s->sums->here, TR_GROUP_PEERS_MAX,
	    TR_I64, TR_SUM, trainer_contributes(round) ? TR_CONTRIBUTE : 0, error);
	return status == TR_OK ? tr_wait(t->group, TAG_HERE, error) : status;
}

/* The first who has it gives it to those who do not. False: nobody has to, or can; or this worker has nothing to do with it. */
static bool share_out(struct trainer *t, const struct tr_round *round, struct fetch *f)
{
	struct sharded *s = t->sharded;
	const int64_t *here = s->sums->here;
	uint32_t giver = 0;
	for (uint32_t i = 1; i < round->contributors; i++)
		if (here[i] > here[giver])
			giver = i;
	s->files.which = here[giver];
	if (s->files.which == 0)
		return false;
	for (uint32_t i = 0; i < round->contributors; i++) {
		if (i == giver)
			f->root = f->scope.count;
		if (i == giver || here[i] != here[giver])
			f->scope.members[f->scope.count++] = i;
	}
	f->gives = s->self == giver;
	s->files.has = s->self != RANKS_NONE && here[s->self] == s->files.which;
	return f->scope.count > 1 && s->self != RANKS_NONE &&
	    (f->gives || here[s->self] != here[giver]);
}

/* ---- how ---- */

/* A disk takes its time, and syncs gigabytes where a file ends: nobody is to be taken for stopped meanwhile. */
static void disk_begin(struct trainer *t, struct patience *patience)
{
	patience_begin(patience, trainer_progress(t), PATIENCE_MS);
}

static void write_piece(struct trainer *t, struct fetch *f, size_t bytes)
{
	struct patience patience;
	if (f->own.status != TR_OK || f->piece->failed != 0 || bytes == 0)
		return;
	disk_begin(t, &patience);
	(void)checkpoint_copy_write(&f->copy, f->piece->bytes, bytes, &f->own);
	patience_end(&patience);
}

/* One piece goes to all; when it returns its memory may be used again. */
static tr_status pass(struct trainer *t, struct fetch *f, size_t bytes, struct tr_error *error)
{
	struct tr_op op = TR_OP_INIT;
	op.tag = TAG_FETCH + 2 * f->ops;
	op.collective = TR_BROADCAST;
	op.output = f->piece;
	op.count = offsetof(struct fetch_piece, bytes) + bytes;
	op.dtype = TR_U8;
	op.root = f->root;
	op.scope = (struct tr_scope){ f->scope.members, f->scope.count };
	tr_status status = tr_submit(t->group, &op, error);
	if (status == TR_OK)
		status = tr_wait(t->group, op.tag, error);
	if (status == TR_OK && !f->gives)
		write_piece(t, f, bytes);
	bool failed = f->piece->failed != 0;
	if (status == TR_OK)
		status = sharded_barrier(t, op.tag + 1, &f->scope, error);
	if (status == TR_OK)
		status = tr_release(t->group, op.tag, error);
	if (status == TR_OK && f->ops > 0)
		status = tr_release(t->group, op.tag - 1, error);
	f->ops++;
	f->piece->failed = failed;
	return status;
}

static void read_piece(struct trainer *t, struct fetch *f, size_t bytes)
{
	struct patience patience;
	disk_begin(t, &patience);
	if (checkpoint_copy_read(&f->copy, f->piece->bytes, bytes, &f->own) != TR_OK)
		f->piece->failed = 1;
	patience_end(&patience);
}

static tr_status pass_all(struct trainer *t, struct fetch *f, uint64_t bytes, struct tr_error *error)
{
	tr_status status = TR_OK;
	size_t most = t->sharded->fetch_bytes;
	for (uint64_t left = bytes; status == TR_OK && left > 0 && f->piece->failed == 0;) {
		size_t piece = left < most ? (size_t)left : most;
		if (f->gives)
			read_piece(t, f, piece);
		status = pass(t, f, piece, error);
		left -= piece;
	}
	return status;
}

static tr_status give(struct trainer *t, struct fetch *f, const char *path, struct tr_error *error)
{
	bool opened = checkpoint_copy_open(path, t->sharded->back, &f->copy, f->piece->sizes,
	                  &f->own) == TR_OK;
	f->piece->failed = opened ? 0 : 1;
	tr_status status = pass(t, f, 0, error);
	if (opened && status == TR_OK)
		status = pass_all(t, f, checkpoint_copy_bytes(f->copy.sizes), error);
	if (opened)
		checkpoint_copy_close(&f->copy);
	return status;
}

/* What an interrupted copy left is removed first. */
static bool begin_copy(struct trainer *t, struct fetch *f, const char *path)
{
	struct patience patience;
	disk_begin(t, &patience);
	bool begun = checkpoint_copy_begin(path, f->piece->sizes, &f->copy, &f->own) == TR_OK;
	patience_end(&patience);
	return begun;
}

static void end_copy(struct trainer *t, struct fetch *f, const char *path, bool whole)
{
	struct patience patience;
	disk_begin(t, &patience);
	struct tr_error *why = f->own.status == TR_OK ? &f->own : NULL;
	if (checkpoint_copy_end(&f->copy, whole, why) == TR_OK && whole)
		checkpoint_copy_prune(&t->folder, path);
	patience_end(&patience);
}

static tr_status take(struct trainer *t, struct fetch *f, const char *path, struct tr_error *error)
{
	f->piece->failed = 0;
	tr_status status = pass(t, f, 0, error);
	if (status != TR_OK || f->piece->failed != 0)
		return status;
	uint64_t bytes = checkpoint_copy_bytes(f->piece->sizes);
	if (bytes == UINT64_MAX)
		return tr_error_set(error, TR_EINTERNAL, "%s: sizes that no checkpoint has", path);
	bool begun = begin_copy(t, f, path);
	status = pass_all(t, f, bytes, error);
	if (begun)
		end_copy(t, f, path,
		    status == TR_OK && f->own.status == TR_OK && f->piece->failed == 0);
	return status;
}

/* ---- and what came of it ---- */

static void settle(struct trainer *t, const struct fetch *f, const char *path)
{
	struct sharded *s = t->sharded;
	s->files.not_given = f->piece->failed != 0;
	if (f->gives && s->files.not_given) {
		s->files.has = false;
		(void)tr_error_set(&s->files.cannot_give, f->own.status, "%.200s: %.250s", path,
		    f->own.text);
	} else if (f->gives) {
		s->files.has = true;
	} else if (!s->files.not_given && f->own.status == TR_OK) {
		s->files.has = true;
		if (s->files.spoilt == s->files.which)
			s->files.renewed = s->files.which;
		s->files.spoilt = 0;
	}
}

bool sharded_could_use_another(struct trainer *t, tr_status why)
{
	struct sharded *s = t->sharded;
	bool gave = s->files.cannot_give.status != TR_OK;
	bool of_its_files = why == TR_EDIGEST || why == TR_EPROTO || why == TR_EIO;
	if (s->files.not_given && !gave)
		return true;
	if (!(s->files.has || gave) || !of_its_files || s->files.renewed == s->files.which)
		return false;
	s->files.spoilt = s->files.which;
	return true;
}

static void tell(struct trainer *t, const struct fetch *f, uint64_t step, const char *path)
{
	char event[TR_ERROR_TEXT_MAX];
	if (f->own.status != TR_OK)
		(void)snprintf(event, sizeof(event), "%.200s: no copy for who has none: %.250s",
		    path, f->own.text);
	else if (!f->gives && !f->copy.elsewhere && f->piece->failed == 0)
		(void)snprintf(event, sizeof(event),
		    "the checkpoint of step %llu was not on this node's disk: a copy came over the "
		    "network, to %.200s",
		    (unsigned long long)step, path);
	else
		return;
	trainer_report_event(t, event);
}

tr_status sharded_fetch(struct trainer *t, const struct tr_round *round, uint64_t step,
    const char *path, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	struct fetch f = { .root = 0 };
	tr_error_clear(&f.own);
	s->files.which = 0;
	s->files.has = s->files.not_given = false;
	tr_error_clear(&s->files.cannot_give);
	if (path[0] == '\0')
		return TR_OK;
	tr_status status = ask(t, round, what_is_here(t, step, path), error);
	if (status != TR_OK || !share_out(t, round, &f))
		return status;
	if (s->fetch == NULL)
		s->fetch = tr_alloc(t->group, sizeof(struct fetch_piece) + s->fetch_bytes);
	if (s->fetch == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory for a piece of a checkpoint");
	f.piece = s->fetch;
	status = (f.gives ? give : take)(t, &f, path, error);
	if (status != TR_OK)
		return status;
	settle(t, &f, path);
	tell(t, &f, step, path);
	return TR_OK;
}
