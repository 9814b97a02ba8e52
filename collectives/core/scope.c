#include "collectives/core/scope.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/core/member.h"

struct member_scope {
	struct member_scope *next;
	struct scope scope;
	struct roster roster;
};

static tr_status scope_refuse(const struct tr_scope *scope, uint32_t tag, unsigned contributors,
    struct tr_error *error)
{
	return tr_error_set(error, TR_EINVAL,
	    "op %" PRIu32 ": a scope of %" PRIu32
	    " members, which are to be contributors, ascending, of a round of %u",
	    tag, scope->count, contributors);
}

tr_status scope_check(const struct tr_scope *scope, uint32_t tag, unsigned contributors,
    unsigned index, struct scope *checked, struct tr_error *error)
{
	memset(checked, 0, sizeof(*checked));
	if (scope->count == 0)
		return TR_OK;
	if (scope->count > contributors || scope->count > UINT8_MAX || !scope->members)
		return scope_refuse(scope, tag, contributors, error);
	for (uint32_t i = 0; i < scope->count; i++) {
		if (scope->members[i] >= contributors ||
		    (i > 0 && scope->members[i] <= scope->members[i - 1]))
			return scope_refuse(scope, tag, contributors, error);
		bits_set(checked->bits, scope->members[i]);
	}
	checked->sign.count = (uint8_t)scope->count;
	checked->sign.digest = (uint16_t)tr_digest_of(checked->bits, sizeof(checked->bits)).low;
	if (index >= contributors || !bits_get(checked->bits, index))
		return tr_error_set(error, TR_EINVAL,
		    "op %" PRIu32 ": contributor %u is not in its scope", tag, index);
	return TR_OK;
}

uint32_t scope_outer(const struct scope *scope, uint32_t index)
{
	if (scope->sign.count == 0)
		return index;
	for (uint32_t bit = 0; bit < TR_GROUP_PEERS_MAX; bit++)
		if (bits_get(scope->bits, bit) && index-- == 0)
			return bit;
	return ROSTER_NONE;
}

const struct roster *scope_roster(struct group_core *core, const struct scope *scope)
{
	if (scope->sign.count == 0)
		return &core->roster;
	for (struct member_scope *known = core->scopes; known; known = known->next)
		if (memcmp(known->scope.bits, scope->bits, sizeof(scope->bits)) == 0)
			return &known->roster;
	struct member_scope *made = malloc(sizeof(*made));
	if (!made)
		return NULL;
	made->scope = *scope;
	if (roster_scope(&made->roster, &core->roster, &core->view, scope->bits, scope->sign.count,
	        core->peer, NULL) != TR_OK) {
		free(made);
		return NULL;
	}
	made->next = core->scopes;
	core->scopes = made;
	return &made->roster;
}

void scope_forget(struct group_core *core)
{
	while (core->scopes) {
		struct member_scope *next = core->scopes->next;
		roster_finish(&core->scopes->roster);
		free(core->scopes);
		core->scopes = next;
	}
}

uint64_t scope_term(unsigned place, unsigned living, uint64_t digest)
{
	return place > 0 ? digest : (uint64_t)0 - digest * (living - 1u);
}
