/* Where virtual members meet: what they have given is put together, first here, then with the other workers', and handed out. */
#include <string.h>

#include "daemon/worker/virtual_inside.h"

enum { VIRTUAL_BLOCK = 1024 }; /* numbers that are added at a time */

void virtual_meeting_add(struct virtual_members *v, size_t first, size_t last)
{
	bool maximum = v->meeting == VIRTUAL_MAXIMUM;
	for (unsigned step = 1; step < v->count; step *= 2)
		for (unsigned k = 0; k < v->count; k += 2 * step) {
			real *to = v->members[k].given;
			const real *from = v->members[k + step].given;
			for (size_t i = first; !maximum && i < last; i++)
				to[i] += from[i];
			for (size_t i = first; maximum && i < last; i++)
				to[i] = from[i] > to[i] ? from[i] : to[i];
		}
}

static void add_part(void *arg, unsigned thread, unsigned threads)
{
	struct virtual_members *v = arg;
	size_t first, last;
	pool_share(v->meeting_count, VIRTUAL_BLOCK, thread, threads, &first, &last);
	for (size_t at = first; at < last; at += VIRTUAL_BLOCK)
		virtual_meeting_add(v, at, last - at < VIRTUAL_BLOCK ? last : at + VIRTUAL_BLOCK);
}

/* Block `number` of all members is that of member `number`. */
static size_t block_of(const struct virtual_members *v)
{
	return v->meeting_count / v->all;
}

static void copy_numbers(real *to, const real *from, size_t count)
{
	if (to != from)
		memcpy(to, from, count * sizeof(*to));
}

/* The result, at `made`, to the members: each its block, or all. */
static void hand_out(const struct virtual_members *v, const real *made)
{
	size_t block = block_of(v), count = v->meeting_count;
	for (unsigned k = 0; k < v->count; k++) {
		size_t at = (virtual_first(v) + k) * block;
		if (v->meeting == VIRTUAL_SCATTER)
			copy_numbers(v->members[k].given + at, made + at, block);
		else
			copy_numbers(v->members[k].given, made, count);
	}
}

real *virtual_meeting_half(struct virtual_members *v)
{
	real *half = v->half == 0 ? v->outer->exchange : v->outer->exchange_too;
	v->half ^= 1;
	return half;
}

static bool (*sum_of(const struct virtual_members *v))(void *arg, real *data, size_t count)
{
	if (v->meeting == VIRTUAL_SCATTER)
		return v->outer->reduce_scatter;
	return v->meeting == VIRTUAL_MAXIMUM ? v->outer->maximum : v->outer->sum;
}

static bool meet_sum(struct virtual_members *v)
{
	real *made = v->members[0].given;
	pool_run(v->model->pool, add_part, v);
	if (v->outer != NULL) {
		made = virtual_meeting_half(v);
		memcpy(made, v->members[0].given, v->meeting_count * sizeof(*made));
		if (!sum_of(v)(v->outer->arg, made, v->meeting_count))
			return false;
	}
	hand_out(v, made);
	return true;
}

static bool meet_gather(struct virtual_members *v)
{
	size_t block = block_of(v);
	real *made = v->outer != NULL ? virtual_meeting_half(v) : v->members[0].given;
	for (unsigned k = 0; k < v->count; k++) {
		size_t at = (virtual_first(v) + k) * block;
		copy_numbers(made + at, v->members[k].given + at, block);
	}
	if (v->outer != NULL && !v->outer->all_gather(v->outer->arg, made, v->meeting_count))
		return false;
	hand_out(v, made);
	return true;
}

static bool meet_all(void *arg)
{
	struct virtual_members *v = arg;
	return v->meeting == VIRTUAL_GATHER ? meet_gather(v) : meet_sum(v);
}

static bool virtual_meet(struct virtual_member *member, real *data, size_t count,
    enum virtual_meeting meeting)
{
	struct virtual_members *v = member->all;
	member->given = data;
	v->meeting = meeting;
	v->meeting_count = count;
	return turns_meet(v->turns, member->number, meet_all, v);
}

static bool virtual_sum(void *arg, real *data, size_t count)
{
	return virtual_meet(arg, data, count, VIRTUAL_SUM);
}

static bool virtual_maximum(void *arg, real *data, size_t count)
{
	return virtual_meet(arg, data, count, VIRTUAL_MAXIMUM);
}

static bool virtual_reduce_scatter(void *arg, real *data, size_t count)
{
	return virtual_meet(arg, data, count, VIRTUAL_SCATTER);
}

static bool virtual_all_gather(void *arg, real *data, size_t count)
{
	return virtual_meet(arg, data, count, VIRTUAL_GATHER);
}

void virtual_meeting_use(struct model_tensor *tensor, struct virtual_member *member)
{
	tensor->sum = virtual_sum;
	tensor->maximum = virtual_maximum;
	tensor->reduce_scatter = virtual_reduce_scatter;
	tensor->all_gather = virtual_all_gather;
	tensor->arg = member;
}
