#include "collectives/core/scope.h"

#include <inttypes.h>
#include <stdlib.h>

#include "collectives/core/member.h"

struct member_scope {
	struct member_scope *next;
	struct op_scope scope;
	struct roster roster;
};

tr_status scope_check(const struct tr_scope *scope, uint32_t tag, unsigned contributors,
    unsigned index, struct op_scope *checked, struct tr_error *error)
{
	uint64_t last = scope->first + (scope->count - UINT64_C(1)) * scope->stride;

	*checked = (struct op_scope){ 0 };
	if (scope->count == 0 && (scope->first | scope->stride) == 0)
		return TR_OK;
	if (scope->count == 0 || last >= contributors || scope->count > UINT8_MAX ||
	    (scope->stride == 0 && scope->count > 1) || scope->stride > UINT8_MAX)
		return tr_error_set(error, TR_EINVAL,
		    "op %" PRIu32 ": a scope of %" PRIu32 " contributors from %" PRIu32
		    " on, every %" PRIu32 ", in a round of %u",
		    tag, scope->count, scope->first, scope->stride, contributors);
	*checked = (struct op_scope){ (uint8_t)scope->first,
		scope->count > 1 ? (uint8_t)scope->stride : 1, (uint8_t)scope->count };
	if (roster_scope_index(checked, index) == ROSTER_NONE)
		return tr_error_set(error, TR_EINVAL,
		    "op %" PRIu32 ": contributor %u is not in the scope of %" PRIu32
		    " from %" PRIu32 " on, every %" PRIu32,
		    tag, index, scope->count, scope->first, scope->stride);
	return TR_OK;
}

const struct roster *scope_roster(struct group_core *core, const struct op_scope *scope)
{
	if (scope->count == 0)
		return &core->roster;
	for (struct member_scope *known = core->scopes; known; known = known->next)
		if (scope_same(&known->scope, scope))
			return &known->roster;
	struct member_scope *made = malloc(sizeof(*made));
	if (!made)
		return NULL;
	made->scope = *scope;
	if (roster_scope(&made->roster, &core->roster, &core->view, scope, core->peer, NULL) !=
	    TR_OK) {
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

uint64_t scope_term(const struct op *op, uint64_t digest)
{
	const struct roster *roster = op->roster;

	return roster->me > 0 ? digest : (uint64_t)0 - digest * (roster->n - 1u);
}
