#include "client/trainctl/shown.h"

#include <stdlib.h>

static struct shown_peer *peer_of(struct shown *shown, uint64_t peer)
{
	for (size_t i = 0; i < shown->count; i++) {
		if (shown->peers[i].peer == peer)
			return &shown->peers[i];
	}
	struct shown_peer *peers = realloc(shown->peers, (shown->count + 1) * sizeof(*peers));
	if (peers == NULL)
		return NULL;
	shown->peers = peers;
	peers[shown->count] = (struct shown_peer){ .peer = peer, .fresh = shown->anywhere };
	return &peers[shown->count++];
}

struct shown_piece shown_add(struct shown *shown, const Traind__V1__LogChunk *chunk)
{
	struct shown_piece piece = { 0, 0 };
	struct shown_peer *peer = peer_of(shown, chunk->peer_id);
	if (peer == NULL)
		return piece; /* rather twice than never */
	bool said = chunk->end > 0 && chunk->end >= chunk->data.len;
	uint64_t end = said ? chunk->end : peer->at + chunk->data.len;
	uint64_t position = end - chunk->data.len;
	peer->at = end;
	if (peer->fresh)
		peer->end = position;
	peer->fresh = false;
	if (position > peer->end)
		piece.missing = position - peer->end;
	else
		piece.skip = peer->end < end ? (size_t)(peer->end - position) : chunk->data.len;
	if (end > peer->end)
		peer->end = end;
	return piece;
}

void shown_begin_again(struct shown *shown)
{
	for (size_t i = 0; i < shown->count; i++)
		shown->peers[i].at = 0;
}

void shown_finish(struct shown *shown)
{
	free(shown->peers);
	*shown = (struct shown){ 0 };
}
