/* Low-communication training over a group of coll.h: each peer trains on its own for many inner steps; then peers average how far they got
 * (pseudo-gradients) and take an outer step together. Any program with buffers of f32 parameters can use it; the inner optimizer is the
 * caller's.
 *
 *	struct tr_join_options join = TR_JOIN_OPTIONS_INIT;
 *	join.membership = "127.0.0.1:7300";
 *	join.name = "far";
 *	join.size = 2;
 *	join.policy = TR_UNIFORM;                                        // not TR_KEEP
 *	if (tr_group_join(&join, &group, &error) != TR_OK)
 *		die(error.text);
 *	struct tr_sync_options options = TR_SYNC_OPTIONS_INIT;
 *	options.mode = TR_SYNC_DILOCO;
 *	options.inner_steps = 500;
 *	struct tr_sync_tensor tensors[] = { { .name = "w", .data = w, .count = rows * columns } };  // initial values, the same on all peers
 *	tr_sync *sync;
 *	if (tr_sync_create(group, &options, tensors, 1, &sync, &error) != TR_OK ||
 *	    tr_state_ready(group, 0, &error) != TR_OK || tr_sync_start(sync, &now, &error) != TR_OK)
 *		die(error.text);
 *	while (!now.finished) {
 *		inner_step(w, now.step + 1, now.index, now.contributors);     // any optimizer
 *		struct tr_sync_work did = { .tokens = tokens };
 *		if (tr_sync_step(sync, &did, &now, &error) != TR_OK)        // talks, if it is time to
 *			die(error.text);
 *	}
 *	tr_sync_destroy(sync);
 *
 * What it holds: the outer (global) parameters and the outer momentum, in the group's memory and declared as its state, so a joiner gets them
 * from a donor. Both are bit-identical on all peers after every round: before each commit all compare 128-bit digests of what the round is about
 * to change, tensor by tensor. A peer whose bits differ gets the right ones from one that has them, in that very round; if its outer parameters
 * were wrong, its movement does not count in it; struct tr_sync_now, event, says which tensor of whom it was. (Who is right, if not the majority:
 * who holds what it wrote itself at the last merge; then who has been there longest.) What changes between that and the outer step: without
 * overlap the digest that goes with the commit ends this peer with TR_EDIGEST; with it this peer sees it, and says so at the next merge (tr_sync_sound). Memory beside the caller's: 2 floats a parameter (1 with an
 * outer_momentum of 0, as in local SGD and HDET), 2 more for the largest fragment (1 with `scratch`), 2 more with error feedback (what was lost in coding), 3 more in eager mode, where each peer runs ahead by itself.
 *
 * A peer that dies: the round under way is finished among the others, with the weights of those whose work is in it (policy TR_UNIFORM), or
 * begun again with the same pseudo-gradients (TR_ERESTART is handled inside); an outer step is taken everywhere or nowhere. A peer that joins
 * waits in tr_sync_start for the state and the end of that round, and works from the next one on.
 *
 * Threads: those of the group's caller. tr_sync_step never blocks but at a merge, until the round is committed, where a peer's state is put right, and where a round is begun again; with an
 * overlap it looks after each inner step how far the round is, so that nothing of it may be left to wait for. It tells the membership that
 * this peer works (tr_progress); a program whose inner step may take longer than the membership's progress timeout (20 s: a peer that neither
 * works nor waits is given up) calls tr_progress meanwhile, from any thread.
 */
#ifndef TR_SYNC_H
#define TR_SYNC_H

#include "collectives/coll.h"

#ifdef __cplusplus
extern "C" {
#endif

enum tr_sync_mode {
	/* Parameters are averaged every H steps. */
	TR_SYNC_LOCAL_SGD = 1,
	/* arXiv 2311.08105: the mean of H steps' movement is a gradient for Nesterov momentum. */
	TR_SYNC_DILOCO = 2,
	/* arXiv 2501.18512: DiLoCo fragment by fragment, each on its way while tau inner steps go on, then mixed in. */
	TR_SYNC_STREAMING = 3,
	/* arXiv 2502.12996: a pseudo-gradient is on its way during the whole next period; until it is there, each peer goes on with its own share
	 * of it, in a private copy, so that the outer parameters stay equal. */
	TR_SYNC_EAGER = 4,
	/* arXiv 2604.24708 (HDET): as TR_SYNC_LOCAL_SGD, but each peer trains with another learning rate around a base that all share; which of
	 * them learned best between two merges moves the base. See struct tr_sync_options, lr_spread. */
	TR_SYNC_HDET = 5,
};

/* By what a peer's movement counts in the mean that a merge makes. */
enum tr_sync_weights {
	/* The root of its tokens a step. Gradients are mostly noise, and an inner optimizer of Adam's kind makes of each a step of the same length: b tokens in it go sqrt(b) as far the right way, and n such steps
	 * have n of noise. Of means of such movements these weights have the least noise: none of what was computed is lost. Peers with equal parts of a batch count equally, however many steps they took. */
	TR_SYNC_WEIGHTS_ROOT = 0,
	/* Its tokens. */
	TR_SYNC_WEIGHTS_TOKENS = 1,
};

typedef struct tr_sync tr_sync;

struct tr_sync_tensor {
	const char *name; /* for messages; copied */
	float *data; /* the caller's: borrowed until tr_sync_destroy, any memory; written at merges, with `carry` and in eager mode at departures too */
	size_t count;
	unsigned layer;       /* tensors of one layer are in one fragment */
	uint64_t reserved[2]; /* zero */
};

/* struct tr_sync_options, steps: what was saved had them all, as where a program that had ended is started again. Who says so gives its state in tr_sync_start, and with it how far training is, to those who begin with less; all are finished when it returns.
 * The round that it says in tr_sync_ready is beyond those of who has less: else the one waits for a merge, and the other for none.
 * TR_SYNC_ALL_DONE - n, with n up to 2^53, is the same: n is the program's, who begins with less has it from tr_sync_steps. So many steps more than all were saved, say. */
#define TR_SYNC_ALL_DONE UINT64_MAX

/* Zero (in the fields where zero says something: a negative number) means as the mode's paper has it. */
struct tr_sync_options {
	size_t size_of; /* sizeof(struct tr_sync_options) */
	enum tr_sync_mode mode;
	/* Inner steps in all; 0: without end; TR_SYNC_ALL_DONE: none is left. A joiner's are those that the group has (tr_sync_steps). */
	uint64_t steps;
	uint64_t inner_steps;  /* H; 500, streaming 100, HDET 1000 */
	double outer_lr;       /* eta; 0.7, streaming 0.4; local SGD and HDET: 1 */
	double outer_momentum; /* mu; negative: 0.9; local SGD and HDET: 0 */
	unsigned fragments;    /* P, streaming only; 0: as many as there are layers, at most 8 */
	/* tau, at most H / P: inner steps between a fragment's departure and its merge; negative: streaming 1, eager H (and no other), else
	 * 0. DiLoCo may have it too: its merge then comes late and drops the part 1 - alpha of what was done meanwhile, or with `carry` nothing of it. */
	int64_t overlap;
	double alpha; /* of its own parameters that a peer keeps at a merge; negative: streaming without carry 0.5, else 0 */
	enum tr_codec codec;
	double feedback; /* beta of error feedback (struct tr_op); negative: int2 0.95, else 0 */
	/* HDET only. Between two merges contributor r of N multiplies its learning rate by struct tr_sync_now's lr_scale,
	 *
	 *	eta_r = b (1 + spread (k_r - (N-1)/2) / max((N-1)/2, 1/2)),    k = a permutation of 0 .. N-1 drawn from (seed, round)
	 *
	 * where the base b is 1 at first. At a merge, with L_r the mean of struct tr_sync_work's loss over r's tokens since the one before,
	 *
	 *	w = softmax((mean(L) - L_r) / temperature)       d = sum(w_r eta_r) - mean(eta_r)
	 *	v = momentum v + (1 - momentum) d                b = b (1 - decay) + step v,    held within 1/64 to 64
	 *
	 * over those whose movement is in the merge; one whose loss was not finite has w = 0. The caller's own schedule goes on beside b. */
	double lr_spread;      /* 0: 1/9; less than 1 */
	double lr_momentum;    /* negative: 0.9 */
	double lr_step;        /* negative: 0.5; 0: the base stays */
	double lr_decay;       /* 0 */
	double lr_temperature; /* of losses; 0: 0.002 */
	uint64_t seed;         /* of the permutations */
	/* For members of different speed, in all modes. Each then takes as many steps as it can; the step of a
	 * merge is that of the furthest member, from there all count on. No clock is shared and nobody is asked whether he is ready: the end of a
	 * merge without overlap is one moment for all, and each goes by its own monotonic clock from there, or by the speeds that the members told each other
	 * with the merge. What a member waits in a merge is not its working time, so one that was held up moves all, once. Zero: not wanted. */
	double inner_seconds; /* H by time: each takes its fragment when it has worked so long / P; instead of inner_steps */
	/* H by speed: the fastest takes inner_steps, the others fewer in proportion to their speeds since the merge before */
	bool by_speed;
	/* For stragglers: a peer that has not done its steps gives what it has, so long after the time in which by the last merge's speeds
	 * `quorum` peers would have done theirs. It looks at the end of an inner step: one that hangs inside a step is waited for until the
	 * membership gives it up. */
	double grace_seconds;
	unsigned quorum; /* 0: more than half of those there */
	/* Samples of an inner step of all peers together; 0: the caller says which ones are whose. Else each peer has leases of samples, numbered from
	 * 0, that no other consumes, whoever dies or comes: in the next step it uses the struct tr_sync_now.samples of them that tr_sync_sample names.
	 * A sample is counted with the round that takes what was learned from it; those of a peer that died before that are given out again. */
	uint64_t batch;
	/* A peer that is cut off: if it has waited for a merge for `alone_after_seconds` (0: 5), it trains on by itself, for at most
	 * `alone_steps` inner steps (0: it waits). If the merge comes after all, it goes on from there with what it learned since. If the others have put it out
	 * meanwhile, calls end with an error; what it learned can then, with a batch, be kept, and brought into the group by a new member
	 * (tr_sync_keep). All peers set the same: the others use the samples of an absent one only after eight merges and twice as many as it may
	 * miss while it takes all those steps, by the speeds that members tell each other where steps are not counted alone. */
	uint64_t alone_steps;
	double alone_after_seconds;
	/* Most members at a time, the same on all peers; 0: 256. Ops in which each has a place have so many: 48 bytes a place and merge with a batch, 48
	 * more where members take steps, or parts of the batch, as they can. TR_ELIMIT, later: there are more. */
	unsigned peers_most;
	/* Pointers first: what is appended must not lie in the room that the compiler left at the end of an earlier version of the struct. */
	/* With lr_search: the mean loss of the tensors as they are, on batch `batch`: the same for the same number, on all peers. Called in tr_sync_step, by
	 * its thread, at a race's end: at each merge from its last step on, until somebody has a loss that is a number. */
	double (*lr_probe)(void *arg, uint64_t batch);
	void *lr_probe_arg;
	/* HDET: the base is not moved by the paper's rule, above, but searched for, by two races at the beginning (docs/low-communication.md, "A search for the learning rate"). Then there is no
	 * lr_momentum, lr_step, lr_decay or lr_temperature, outer_lr is 1 and outer_momentum 0. See tr_sync_origin. */
	bool lr_search;
	/* With an overlap, instead of alpha's mean: from a fragment's departure on a peer trains from where the outer step would bring it if all had moved as it has, and what it does until the merge is
	 * carried over to the new outer parameters,
	 *
	 *	to = to_departed = OUTER(theta, v, d_m)        to = to + (theta_new - to_departed),
	 *
	 * and goes with the next movement (delayed averaging, arXiv 2006.00441). So tensors change at a departure too. Not in eager mode, which has its own way. */
	bool carry;
	/* lr_search: inner steps of a race, at least; more than a warm-up has, at most a fifth of `steps`. 0: 3 % of them. */
	uint64_t lr_race_steps;
	/* For members of different speed that all take inner_steps: each has its part of the batch by its speed, as the last merge said, instead of an equal one; so none waits for another, and what is learned is
	 * what equal members learn. Only with a batch, and not beside inner_seconds or by_speed. Of who is slower than one sample a step struct tr_sync_now's samples are 0 at
	 * times: then it has no inner step to do, and says so with tokens and samples of 0. */
	bool share_by_speed;
	enum tr_sync_weights weights;
	/* Memory of this group's tr_alloc (TR_EINVAL: it is not) that is no declared state, for as many numbers as the tensors have together, in which nobody needs anything while tr_sync_start or tr_sync_step runs: the caller's gradients,
	 * say. Movements are then summed there, and a member without an overlap holds 4 bytes a parameter less. NULL: tr_sync takes memory of its own. Not with an overlap, in eager mode or with alone_steps: then a sum is on its way
	 * while the caller works. */
	float *scratch;
};
#define TR_SYNC_OPTIONS_INIT                                                                       \
	{                                                                                          \
		sizeof(struct tr_sync_options), TR_SYNC_DILOCO, 0, 0, 0, -1, 0, -1, -1,            \
		    TR_CODEC_NONE, -1, 0, -1, -1, 0, 0, 0, 0, false, 0, 0, 0, 0, 0, 0, NULL, NULL, \
		    false, false, 0, false, TR_SYNC_WEIGHTS_ROOT, NULL                             \
	}

enum { TR_SYNC_SUMS = 8 };

/* One inner step's work. */
struct tr_sync_work {
	double tokens; /* for the weight of this peer's movement; 1e-9 to 1e12; with share_by_speed and without samples: 0 */
	/* whole, 0 to 1e12; added up until the next merge and recorded with its round (struct tr_commit). With a batch: at most struct tr_sync_now's */
	double samples;
	double sums[TR_SYNC_SUMS]; /* added up over steps and over peers until the next merge, such as losses */
	double loss;               /* HDET: a mean over this step's tokens; need not be finite */
	uint64_t reserved[3]; /* zero */
};

struct tr_sync_now {
	uint64_t step;        /* inner steps done, of `steps` */
	uint64_t round, view; /* under way */
	unsigned index, contributors,
	    peers; /* of that round, as in struct tr_round: share work by them until the next merge */
	bool finished; /* all steps are done and merged; the group has no round under way, but for `after` */
	/* Of who began when all was merged (tr_sync_start alone), a joiner or with TR_SYNC_ALL_DONE: the round of the caller's own that is under way; else zeros. */
	struct tr_round after;
	/* This call merged what an outer step made, which with an overlap was taken some calls before (at the last inner step: one of each fragment); what follows is about it (the last of
	 * them). */
	bool merged;
	bool alone; /* this call waited for a merge in vain; this peer trains on, beyond the schedule, until it comes */
	uint64_t merged_round;
	uint64_t merged_step; /* step of this merge, the same on all peers */
	unsigned fragment;
	double tokens; /* of all peers */
	double flight_s; /* from departure to merge: what of it was not waited for was hidden behind inner steps */
	/* Of all merges of this call. */
	double sums[TR_SYNC_SUMS];
	double waited_s; /* for the others and the network */
	uint64_t bytes;  /* merged, as f32 */
	double lr_scale; /* by which the caller multiplies its learning rate until the next merge; 1 but in HDET */
	/* What was found wrong with somebody's outer state, and put right, in the merges of this call: the same words on all peers. Of tr_sync_start: what
	 * became of what this peer brought. NULL: nothing. Valid until the next call. */
	const char *event;
	uint64_t samples; /* for this peer's next inner step, if the options have a batch; else 0 */
	/* This peer's own parameters were not numbers to train on (NaN, infinite, or 2^64 and more) when their movement was to be taken: it does not count, and they are the outer ones again, of
	 * all fragments; `event` says so, here alone. What an inner optimizer remembers of them is to be begun anew. */
	bool unsound;
};

/* Fills in what is not given and refuses what cannot be, as tr_sync_create does; `layers`: how many different ones the tensors name. For
 * programs that read settings before there is a group. TR_EINVAL: names the option, what was found and what is allowed. */
TR_API tr_status tr_sync_complete(struct tr_sync_options *options, unsigned layers,
    struct tr_error *error);
/* Merges that options->steps come to, of options that tr_sync_complete has filled in; of who goes on from a checkpoint those that are left. 0: not known, since there is no end, peers do not all take
 * inner_steps (inner_seconds, by_speed, grace_seconds), or the rate is searched for first. For programs that show how far training is; of the options alone, from any thread:
 *
 *	tr_sync_complete(&options, 1, &error);
 *	printf("merge %llu of %llu\n", done, (unsigned long long)tr_sync_merges(&options)); */
TR_API uint64_t tr_sync_merges(const struct tr_sync_options *options);
/* Declares the state. The tensors' values now are the outer parameters at step 0 (or come with the state, to a joiner). The group has
 * no op_deadline_ms. TR_EINVAL: as tr_sync_complete. */
TR_API tr_status tr_sync_create(tr_group *group, const struct tr_sync_options *options,
    const struct tr_sync_tensor *tensors, size_t count, tr_sync **sync, struct tr_error *error);
/* tr_state_ready of a program that may go on from what it saved. `round`: 0, or a number that grows with training, as the round of the merge that was saved (merged_round), or its step; rounds are numbered from there, and the schedule begins
 * there. Where founders of a group say different ones, those with less, or with nothing, get the state of those with the most, and take no part in the first merge: so what was saved need be on one
 * machine only. That all began with nothing shows in the first round's number, 1. TR_EINVAL: it was called before, or tr_state_ready.
 *
 *	st = tr_sync_ready(sync, found ? saved.round : 0, &error);
 *	if (st == TR_OK)
 *		st = tr_sync_start(sync, &now, &error);
 *	if (st == TR_OK && !found && now.round == 1)
 *		die("nobody has it"); */
TR_API tr_status tr_sync_ready(tr_sync *sync, uint64_t round, struct tr_error *error);
/* After tr_sync_ready or tr_state_ready: begins the first round. Blocks as tr_round_begin does; a joiner's tensors hold the outer parameters when it returns; one that
 * comes when nothing is left but merges is finished when it returns. TR_EINVAL: the group's policy is TR_KEEP, under which parts of a movement may
 * be of other members than its weight. */
TR_API tr_status tr_sync_start(tr_sync *sync, struct tr_sync_now *now, struct tr_error *error);
/* After each inner step. */
TR_API tr_status tr_sync_step(tr_sync *sync, const struct tr_sync_work *work,
    struct tr_sync_now *now, struct tr_error *error);
/* The next inner step begins here: what the caller did since the last call (evaluated, saved) does not count as time that its steps take, by which members that go by time or speed pace themselves. */
TR_API void tr_sync_resume(tr_sync *sync);
/* Inner steps in all, as the group has them: after tr_sync_start they need not be this peer's own, as where it and the group went on from different checkpoints. */
TR_API uint64_t tr_sync_steps(const tr_sync *sync);
/* The number of sample `i`, less than struct tr_sync_now's `samples`, of this peer's next inner step. UINT64_MAX: there is none. */
TR_API uint64_t tr_sync_sample(const tr_sync *sync, uint64_t i);
/* Outer parameters of tensor `tensor`, what is to be evaluated and saved; valid until destroy, changes in
 * tr_sync_step, at a merge or, with an overlap, some steps before it. */
TR_API const float *tr_sync_outer(const tr_sync *sync, size_t tensor);
/* Its outer momentum: to save it after a merge; to go on from what was saved, fill it before tr_state_ready. NULL: there is none, with an
 * outer_momentum of 0. */
TR_API float *tr_sync_momentum(tr_sync *sync, size_t tensor);
/* False: some of what it holds changed in memory behind a comparison and waits to be put right, at its fragment's next merge. Do not save it. */
TR_API bool tr_sync_sound(const tr_sync *sync);
/* HDET: the base b and its momentum v, two numbers, to be saved and filled as the outer momentum is. Asked for before tr_sync_start: the base is known, so there are no races. */
TR_API double *tr_sync_lr_base(tr_sync *sync);
/* With lr_search, before tr_sync_start: an array of the caller's, of any memory, borrowed until tr_sync_destroy, that goes with the parameters where a race ends: then it is
 * the winner's, or zeros if all begin anew. As much of the group's memory is taken. For the moments of an optimizer, which fit no other parameters than its own; at most 4, in the same order and of the same size on all peers. */
TR_API tr_status tr_sync_follow(tr_sync *sync, float *array, size_t count, struct tr_error *error);
/* The inner step at which what is trained now was begun: 0, or with lr_search where the last race was begun, from the parameters of step 0. Schedules of the learning rate and counts of gradients in an
 * optimizer's moments (which are zeros then; see tr_sync_follow) begin there. Changes in tr_sync_step, at a merge. */
TR_API uint64_t tr_sync_origin(const tr_sync *sync);
/* Whether races are under way: then the outer parameters are still those of step 0, and not worth saving. */
TR_API bool tr_sync_races(const tr_sync *sync);
/* What this peer learned and no merge has, after a call that ended with TR_EEVICTED: for who joins in its place, in this process or
 * another one on this machine. `into`: tr_sync_kept_bytes of them. Returns how many were written; 0: there is nothing to keep, or outer parameters or momentum that it is reckoned from changed in memory (the
 * log names them). */
TR_API size_t tr_sync_kept_bytes(const tr_sync *sync);
TR_API size_t tr_sync_keep(const tr_sync *sync, void *into);
/* After tr_sync_create of the same tensors and options in the group that it was in, before tr_sync_start: training starts from the outer parameters and what
 * was kept, and the first movement has both. What the others gave up by then (see alone_steps), or have already, is left out;
 * tr_sync_start's event says so. TR_EINVAL: it does not fit, or there is no batch. */
TR_API tr_status tr_sync_bring(tr_sync *sync, const void *kept, size_t bytes,
    struct tr_error *error);
/* The group's memory stays with the group. Accepts NULL. */
TR_API void tr_sync_destroy(tr_sync *sync);

#ifdef __cplusplus
}
#endif
#endif
