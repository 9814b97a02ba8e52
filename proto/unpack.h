/* Memory for messages that came from outside: unpacking a few bytes of protobuf can ask for a hundred times as much, so it
 * gets a budget.
 *
 *	struct unpack_budget budget;
 *	Traind__Peer__ToMember *message = traind__peer__to_member__unpack(unpack_budget(&budget, bytes), bytes, data);
 *
 * The message is malloc'ed memory: free it with free_unpacked(message, NULL).
 */
#ifndef TR_PROTO_UNPACK_H
#define TR_PROTO_UNPACK_H

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>

struct unpack_budget {
	ProtobufCAllocator allocator;
	size_t left;
};

/* The allocator of a message of `bytes`; over its budget it says that there is no memory. */
ProtobufCAllocator *unpack_budget(struct unpack_budget *budget, size_t bytes);

#endif
