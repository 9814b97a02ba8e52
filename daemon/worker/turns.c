#include "daemon/worker/turns.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct player {
	struct turns *turns;
	unsigned number;
	pthread_t thread;
	pthread_cond_t mine; /* it is this player's turn, or the end */
	bool busy;           /* it has not come to the end of this run */
};

struct turns {
	unsigned count, started;
	turns_play *play;
	void *arg;
	pthread_mutex_t lock;
	unsigned turn;    /* who runs, of those that are busy */
	unsigned arrived; /* at the meeting that is under way */
	bool stopped, over;
	struct player *players;
};

/* To the next one that has something to do. Under the lock. */
static void pass(struct turns *t, unsigned from)
{
	for (unsigned i = 1; i <= t->count; i++) {
		struct player *next = &t->players[(from + i) % t->count];
		if (!next->busy)
			continue;
		t->turn = next->number;
		(void)pthread_cond_signal(&next->mine);
		return;
	}
	(void)pthread_cond_signal(&t->players[0].mine); /* turns_run returns */
}

static void play(struct player *player)
{
	struct turns *t = player->turns;
	bool good = t->play(t->arg, player->number);
	(void)pthread_mutex_lock(&t->lock);
	t->stopped = t->stopped || !good;
	player->busy = false;
	pass(t, player->number);
	(void)pthread_mutex_unlock(&t->lock);
}

/* Until it has the turn. False: it is over. Under the lock. */
static bool wait_turn(struct player *player)
{
	struct turns *t = player->turns;
	while (!t->over && !(player->busy && t->turn == player->number))
		(void)pthread_cond_wait(&player->mine, &t->lock);
	return !t->over;
}

static void *player_main(void *arg)
{
	struct player *player = arg;
	struct turns *t = player->turns;
	for (;;) {
		(void)pthread_mutex_lock(&t->lock);
		bool goes_on = wait_turn(player);
		(void)pthread_mutex_unlock(&t->lock);
		if (!goes_on)
			return NULL;
		play(player);
	}
}

static bool is_busy(const struct turns *t)
{
	for (unsigned k = 0; k < t->count; k++)
		if (t->players[k].busy)
			return true;
	return false;
}

bool turns_run(struct turns *t)
{
	(void)pthread_mutex_lock(&t->lock);
	for (unsigned k = 0; k < t->count; k++)
		t->players[k].busy = true;
	t->turn = t->arrived = 0;
	t->stopped = false;
	(void)pthread_mutex_unlock(&t->lock);
	play(&t->players[0]);
	(void)pthread_mutex_lock(&t->lock);
	while (is_busy(t))
		(void)pthread_cond_wait(&t->players[0].mine, &t->lock);
	bool good = !t->stopped;
	(void)pthread_mutex_unlock(&t->lock);
	return good;
}

bool turns_meet(struct turns *t, unsigned player, bool (*meet)(void *arg), void *arg)
{
	(void)pthread_mutex_lock(&t->lock);
	bool last = !t->stopped && ++t->arrived == t->count;
	if (!last && !t->stopped) {
		pass(t, player);
		(void)wait_turn(&t->players[player]);
	}
	(void)pthread_mutex_unlock(&t->lock);
	/* Nobody else runs: what follows needs no lock. */
	if (last) {
		t->arrived = 0;
		t->stopped = !meet(arg);
	}
	return !t->stopped;
}

static tr_status start(struct turns *t, struct tr_error *error)
{
	for (unsigned k = 0; k < t->count; k++) {
		t->players[k].turns = t;
		t->players[k].number = k;
		(void)pthread_cond_init(&t->players[k].mine, NULL);
	}
	for (t->started = 1; t->started < t->count; t->started++) {
		struct player *player = &t->players[t->started];
		int failed = pthread_create(&player->thread, NULL, player_main, player);
		if (failed != 0)
			return tr_error_set(error, TR_ELIMIT, "cannot start thread %u of %u: %s",
			    t->started, t->count, strerror(failed));
	}
	return TR_OK;
}

tr_status turns_create(unsigned players, turns_play *play_one, void *arg, struct turns **out,
    struct tr_error *error)
{
	struct turns *t = calloc(1, sizeof(*t));
	if (t != NULL)
		t->players = calloc(players, sizeof(*t->players));
	if (t == NULL || t->players == NULL) {
		free(t);
		return tr_error_set(error, TR_ENOMEM, "no memory for %u threads", players);
	}
	t->count = players;
	t->play = play_one;
	t->arg = arg;
	(void)pthread_mutex_init(&t->lock, NULL);
	tr_status status = start(t, error);
	if (status != TR_OK) {
		turns_destroy(t);
		return status;
	}
	*out = t;
	return TR_OK;
}

void turns_destroy(struct turns *t)
{
	if (t == NULL)
		return;
	(void)pthread_mutex_lock(&t->lock);
	t->over = true;
	for (unsigned k = 1; k < t->started; k++)
		(void)pthread_cond_signal(&t->players[k].mine);
	(void)pthread_mutex_unlock(&t->lock);
	for (unsigned k = 1; k < t->started; k++)
		(void)pthread_join(t->players[k].thread, NULL);
	for (unsigned k = 0; k < t->count; k++)
		(void)pthread_cond_destroy(&t->players[k].mine);
	(void)pthread_mutex_destroy(&t->lock);
	free(t->players);
	free(t);
}
