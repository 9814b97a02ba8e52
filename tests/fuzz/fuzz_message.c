/* Every protobuf message that comes from a peer, a client or the disk. First byte: which one; the rest is the
 * message. What unpacks must pack again, and a job must pass through validation, which is idempotent. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/plan/job_options.h"
#include "traind/peer/peer.pb-c.h"
#include "traind/v1/trainer.pb-c.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const ProtobufCMessageDescriptor *const messages[] = {
	&traind__peer__to_member__descriptor,
	&traind__peer__to_node__descriptor,
	&traind__peer__peer_message__descriptor,
	&traind__peer__log_entry__descriptor,
	&traind__peer__snapshot__descriptor,
	&traind__v1__submit_job_request__descriptor,
	&traind__v1__job_spec__descriptor,
};
#define MESSAGES (sizeof(messages) / sizeof(messages[0]))

static void validate(Traind__V1__JobSpec *spec)
{
	struct tr_error error;
	if (job_validate(spec, &error) != TR_OK) {
		assert(strlen(error.text) > 0);
		return;
	}
	size_t bytes = traind__v1__job_spec__get_packed_size(spec);
	uint8_t *once = malloc(bytes), *twice = malloc(bytes);
	assert(once != NULL && twice != NULL);
	(void)traind__v1__job_spec__pack(spec, once);
	tr_status again = job_validate(spec, &error);
	assert(again == TR_OK);
	assert(traind__v1__job_spec__get_packed_size(spec) == bytes);
	(void)traind__v1__job_spec__pack(spec, twice);
	assert(memcmp(once, twice, bytes) == 0);
	free(once);
	free(twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0)
		return 0;
	const ProtobufCMessageDescriptor *descriptor = messages[data[0] % MESSAGES];
	ProtobufCMessage *message = protobuf_c_message_unpack(descriptor, NULL, size - 1, data + 1);
	if (message == NULL)
		return 0;
	size_t bytes = protobuf_c_message_get_packed_size(message);
	uint8_t *packed = malloc(bytes > 0 ? bytes : 1);
	assert(packed != NULL);
	assert(protobuf_c_message_pack(message, packed) == bytes);
	free(packed);
	if (descriptor == &traind__v1__job_spec__descriptor)
		validate((Traind__V1__JobSpec *)message);
	protobuf_c_message_free_unpacked(message, NULL);
	return 0;
}
