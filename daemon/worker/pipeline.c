#include "daemon/worker/pipeline.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/worker/pipeline_buffers.h"

/* A microbatch in a chunk, and where its messages are: numbers of buffers. */
struct unit {
	struct model_slot *slot;
	uint32_t input, output, dinput, doutput;
};

struct pipeline {
	struct pipeline_options options;
	struct model_room room;
	struct model *model;
	struct buffers_of_messages buffers;
};

/* A list being run. */
struct run {
	struct pipeline *p;
	const struct schedule_shape *shape;
	const struct schedule_list *list;
	const struct model_batch *batches;
	struct model_hooks hooks; /* the caller's, or none */
	bool train;
	uint32_t next_receive; /* instruction from which on none is begun */
	uint32_t begun;        /* receives that are, and not waited for yet */
	size_t final;          /* lowest offset that was reported */
	struct unit *units;    /* [chunks, microbatches] */
	double loss;
};

bool pipeline_message_of(const struct schedule_shape *shape, uint32_t rank,
    const struct schedule_instruction *what, struct pipeline_message *message)
{
	uint32_t stage = schedule_stage(shape, rank, what->chunk);
	bool back = what->op == SCHEDULE_RECV_B || what->op == SCHEDULE_SEND_B;
	if (!back && what->op != SCHEDULE_RECV_F && what->op != SCHEDULE_SEND_F)
		return false;
	if (what->op == SCHEDULE_SEND_F)
		stage++;
	else if (what->op == SCHEDULE_SEND_B)
		stage--;
	*message = (struct pipeline_message){ back, what->microbatch, stage,
		schedule_peer(shape, rank, what) };
	return true;
}

uint32_t pipeline_message_number(const struct schedule_shape *shape,
    const struct pipeline_message *message)
{
	uint32_t stages = shape->ranks * shape->chunks;
	return (message->microbatch * stages + message->stage) * 2 + message->gradient;
}

void pipeline_room(const struct layout *layout, const struct schedule *schedule, uint32_t rank,
    struct model_room *room)
{
	const struct schedule_list *list = &schedule->lists[rank];
	struct model_room now = { 0 };
	assert(layout->depth.chunks == schedule->shape.chunks);
	for (uint32_t i = 0; i < list->count; i++) {
		struct model_room one = { 0 };
		model_room_add(&one, layout, list->at[i].chunk, 1);
		if (list->at[i].op == SCHEDULE_FWD) {
			now.slots += one.slots;
			now.layers += one.layers;
			now.streams += one.streams;
		} else if (list->at[i].op == SCHEDULE_BWD) {
			now.slots -= one.slots;
			now.layers -= one.layers;
			now.streams -= one.streams;
		}
		room->slots = now.slots > room->slots ? now.slots : room->slots;
		room->layers = now.layers > room->layers ? now.layers : room->layers;
		room->streams = now.streams > room->streams ? now.streams : room->streams;
	}
}

tr_status pipeline_create(const struct pipeline_options *options, struct pipeline **pipeline,
    struct tr_error *error)
{
	struct pipeline *p = calloc(1, sizeof(*p));
	if (p == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory for a pipeline");
	p->options = *options;
	p->room = *options->room;
	p->options.room = &p->room;
	tr_status status = model_create_room(options->layout, options->room, options->max_sequences,
	    options->pool, &p->model, error);
	if (status != TR_OK) {
		free(p);
		return status;
	}
	buffers_init(&p->buffers, &p->options.channel,
	    model_stream_numbers(options->layout, &p->room, options->max_sequences,
	        options->layout->config.context));
	*pipeline = p;
	return TR_OK;
}

void pipeline_destroy(struct pipeline *p)
{
	if (p == NULL)
		return;
	buffers_finish(&p->buffers);
	model_destroy(p->model);
	free(p);
}

struct model *pipeline_model(struct pipeline *p)
{
	return p->model;
}

void pipeline_forget(struct pipeline *p)
{
	buffers_forget(&p->buffers);
}

size_t pipeline_buffers(const struct pipeline *p)
{
	return p->buffers.count;
}

static struct unit *unit_of(const struct run *run, const struct schedule_instruction *what)
{
	return &run->units[what->chunk * run->shape->microbatches + what->microbatch];
}

static bool is_receive(const struct schedule_instruction *what)
{
	return what->op == SCHEDULE_RECV_F || what->op == SCHEDULE_RECV_B;
}

static struct pipeline_message message_of(const struct run *run,
    const struct schedule_instruction *what)
{
	struct pipeline_message message;
	bool is_one = pipeline_message_of(run->shape, run->p->options.rank, what, &message);
	assert(is_one);
	return message;
}

static size_t numbers_of(const struct run *run, const struct schedule_instruction *what)
{
	const struct model_batch *batch = &run->batches[what->microbatch];
	if (!run->train && (what->op == SCHEDULE_RECV_B || what->op == SCHEDULE_SEND_B))
		return 1; /* a word, not a gradient */
	return model_stream_numbers(run->p->options.layout, &run->p->room, batch->sequences,
	    batch->length);
}

static bool begin_receive(struct run *run, const struct schedule_instruction *what)
{
	struct buffers_of_messages *buffers = &run->p->buffers;
	struct unit *unit = unit_of(run, what);
	struct pipeline_message message = message_of(run, what);
	uint32_t *to = message.gradient ? &unit->doutput : &unit->input;
	return buffers_take(buffers, to) &&
	    buffers_receive(buffers, *to, &message, numbers_of(run, what));
}

/* The receive that comes next and PIPELINE_AHEAD more. */
static bool begin_receives(struct run *run)
{
	for (; run->begun <= PIPELINE_AHEAD && run->next_receive < run->list->count;
	     run->next_receive++) {
		const struct schedule_instruction *what = &run->list->at[run->next_receive];
		if (!is_receive(what))
			continue;
		if (!begin_receive(run, what))
			return false;
		run->begun++;
	}
	return true;
}

static bool end_receive(struct run *run, const struct schedule_instruction *what)
{
	struct buffers_of_messages *buffers = &run->p->buffers;
	struct unit *unit = unit_of(run, what);
	run->begun--;
	if (what->op == SCHEDULE_RECV_F)
		return buffers_wait(buffers, unit->input);
	if (!buffers_wait(buffers, unit->doutput))
		return false;
	if (!run->train)
		buffers_give(buffers, &unit->doutput);
	return true;
}

/* That a message has come, for who sent it (schedule_create_forward). */
static bool make_word(struct run *run, struct unit *unit)
{
	if (!buffers_take(&run->p->buffers, &unit->dinput))
		return false;
	buffers_data(&run->p->buffers, unit->dinput)[0] = 0;
	return true;
}

/* A send: the buffer is the channel's then. */
static bool run_send(struct run *run, const struct schedule_instruction *what)
{
	struct buffers_of_messages *buffers = &run->p->buffers;
	struct unit *unit = unit_of(run, what);
	struct pipeline_message message = message_of(run, what);
	uint32_t *from = message.gradient ? &unit->dinput : &unit->output;
	bool sent = buffers_send(buffers, *from, &message, numbers_of(run, what));
	buffers_give(buffers, from);
	return sent;
}

/* It needs its slot and its input no more. */
static void end_slot(struct run *run, struct unit *unit)
{
	if (unit->slot != NULL)
		model_slot_give(run->p->model, unit->slot);
	unit->slot = NULL;
	buffers_give(&run->p->buffers, &unit->input);
}

static void end_unit(struct run *run, struct unit *unit)
{
	end_slot(run, unit);
	buffers_give(&run->p->buffers, &unit->doutput);
}

static bool run_forward(struct run *run, const struct schedule_instruction *what)
{
	struct pipeline *p = run->p;
	struct unit *unit = unit_of(run, what);
	bool last = schedule_is_last(run->shape, p->options.rank, what->chunk);
	double loss = 0;
	if (!last && !buffers_take(&p->buffers, &unit->output))
		return false;
	unit->slot = model_slot_take(p->model, what->chunk, &run->batches[what->microbatch],
	    buffers_data(&p->buffers, unit->input), buffers_data(&p->buffers, unit->output));
	if (!model_slot_forward(p->model, unit->slot, &run->hooks))
		return false;
	if (run->train)
		return true;
	if (last && !model_slot_loss(p->model, unit->slot, &loss))
		return false;
	run->loss += loss;
	end_slot(run, unit); /* a word about what it sent may be on its way yet */
	return true;
}

static void on_final(void *arg, size_t offset)
{
	struct run *run = arg;
	if (offset >= run->final)
		return;
	run->final = offset;
	if (run->hooks.gradients_final != NULL)
		run->hooks.gradients_final(run->hooks.arg, offset);
}

static bool on_progress(void *arg)
{
	const struct run *run = arg;
	return run->hooks.progress == NULL || run->hooks.progress(run->hooks.arg);
}

static bool run_backward(struct run *run, const struct schedule_instruction *what)
{
	struct pipeline *p = run->p;
	struct unit *unit = unit_of(run, what);
	/* Microbatches of a chunk go backward in ascending order, so the last one ends it. */
	bool ends = what->microbatch + 1 == run->shape->microbatches;
	struct model_hooks hooks = { on_progress, ends ? on_final : NULL, run };
	double loss = 0;
	if (!schedule_is_first(run->shape, p->options.rank, what->chunk) &&
	    !buffers_take(&p->buffers, &unit->dinput))
		return false;
	if (!model_slot_backward(p->model, unit->slot, buffers_data(&p->buffers, unit->doutput),
	        buffers_data(&p->buffers, unit->dinput), &hooks, &loss))
		return false;
	run->loss += loss;
	end_unit(run, unit);
	return true;
}

static bool run_step(struct run *run, const struct schedule_instruction *what)
{
	switch ((enum schedule_op)what->op) {
	case SCHEDULE_RECV_F:
	case SCHEDULE_RECV_B:
		return end_receive(run, what);
	case SCHEDULE_FWD:
		return run_forward(run, what);
	case SCHEDULE_BWD:
		return run_backward(run, what);
	case SCHEDULE_SEND_B:
		return (run->train || make_word(run, unit_of(run, what))) && run_send(run, what);
	case SCHEDULE_SEND_F:
		return run_send(run, what);
	case SCHEDULE_GRAD_READY:
		on_final(run, model_chunk_begin(run->p->options.layout, what->chunk));
		return true;
	case SCHEDULE_OPS:
		break;
	}
	assert(!"an instruction");
	return false;
}

static bool begin_units(struct run *run)
{
	size_t count = (size_t)run->shape->chunks * run->shape->microbatches;
	run->units = calloc(count, sizeof(*run->units));
	if (run->units == NULL)
		return false;
	for (size_t i = 0; i < count; i++)
		run->units[i] = (struct unit){ NULL, BUFFERS_NONE, BUFFERS_NONE, BUFFERS_NONE,
			BUFFERS_NONE };
	return true;
}

/* With slots and buffers of what is under way, after a stop. */
static void end_units(struct run *run)
{
	size_t count = (size_t)run->shape->chunks * run->shape->microbatches;
	for (size_t i = 0; i < count; i++) {
		end_unit(run, &run->units[i]);
		buffers_give(&run->p->buffers, &run->units[i].output);
		buffers_give(&run->p->buffers, &run->units[i].dinput);
	}
	free(run->units);
}

static bool run_list(struct pipeline *p, const struct schedule *schedule,
    const struct model_batch *batches, const struct model_hooks *hooks, bool train,
    double *loss_sum)
{
	struct run run = { .p = p,
		.shape = &schedule->shape,
		.list = &schedule->lists[p->options.rank],
		.batches = batches,
		.hooks = hooks != NULL ? *hooks : (struct model_hooks){ 0 },
		.train = train,
		.final = p->options.layout->count };
	bool good = true;
	assert(p->options.layout->depth.chunks == schedule->shape.chunks);
	assert(schedule->forward == !train);
	if (!begin_units(&run))
		return false;
	for (uint32_t i = 0; i < run.list->count && good; i++)
		good = begin_receives(&run) && run_step(&run, &run.list->at[i]);
	end_units(&run);
	if (good)
		*loss_sum = run.loss;
	return good;
}

bool pipeline_gradient(struct pipeline *p, const struct schedule *schedule,
    const struct model_batch *batches, const struct model_hooks *hooks, double *loss_sum)
{
	return run_list(p, schedule, batches, hooks, true, loss_sum);
}

bool pipeline_loss(struct pipeline *p, const struct schedule *schedule,
    const struct model_batch *batches, const struct model_hooks *hooks, double *loss_sum)
{
	return run_list(p, schedule, batches, hooks, false, loss_sum);
}
