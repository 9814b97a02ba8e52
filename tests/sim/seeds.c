/* Seeds that found a bug. They are run by name with every `make test`. */
#include "tests/sim/sim.h"

const struct sim_seed sim_seeds[] = {
	{ 1, false, "first", "the first seed of all: the simulator itself" },
	{ 630, false, "saved-inputs-freed",
	    "a failed core freed inputs of uniform that sends still read" },
	{ 725, false, "failure-unheard",
	    "memberd was away when a member failed, and nobody said it again" },
	{ 1907, false, "one-name", "a mismatch seen in a resume plan named one peer only" },
	{ 2905, false, "refused-alone",
	    "two gave up since they disagreed, and the others had that very round without them" },
	{ 397, false, "newcomer-wrong", "a newcomer with other ops ended all who were there" },
	{ 3047, false, "newcomer-wrong-2", "the same, seen by the hub" },
	{ 152637, false, "newcomer-wrong-3",
	    "the hub compared the results of a newcomer with other ops, and ended all" },
	{ 6433, 8, "newcomer-wrong-4", "the same" },
	{ 6537, false, "voter-demoted",
	    "a joiner that had voted for its first round was taken for one without state, so that "
	    "a "
	    "living contributor was left out of the next round" },
	{ 11908, false, "voter-demoted-2", "the same, later" },
	{ 18081, false, "joiner-of-a-later-round",
	    "a joiner of round 2 was taken for a holder while round 1 went on" },
	{ 23581, false, "transfer-given-up",
	    "a donor ended a transfer and no view change followed: the joiner waited for ever" },
	{ 170, false, "state-lost-unseen",
	    "a joiner's port refused the connection of its state after the donor had written it "
	    "all: "
	    "neither asked nor sent again" },
	{ 557, false, "last-contributor",
	    "every contributor died and a joiner that holds the state was left: nobody could redo "
	    "the "
	    "round" },
	{ 1507, false, "last-contributor-2", "the same, many rounds later" },
	{ 30052, true, "nobodys-round",
	    "the only result of a round was a broadcast whose root died: its record named nobody, "
	    "memberd refused "
	    "it, and the log stood still" },
	{ 1974, true, "needed-by-the-dead",
	    "no contributor was left, and what was missing was a dead one's own block: the last "
	    "holder of "
	    "the state failed" },
	{ 1105, true, "residual-of-nobody",
	    "a reduce-scatter's block whose contributor died had no encoder, and nobody wrote its "
	    "residual" },
	{ 13, true, "send-overwrites",
	    "what is sent with a codec was decoded into the sender's memory, which is const" },
	{ 2127, true, "receive-from-the-dead",
	    "a round went on without ops as far as memberd knew; then a member submitted its "
	    "receive from a peer that had died, and failed" },
	{ 26419, true, "receive-from-the-dead-2", "the same, where the others had voted" },
	{ 20036, true, "two-numberings",
	    "uniform redid a round with indices that one contributor knew from before the loss and "
	    "another one, which began it then, from after it" },
	{ 17658, true, "two-numberings-2",
	    "some members had used an index before and began again, one had not and stayed" },
	{ 8688, true, "block-of-another-cut",
	    "the same: a block's size was of the attempt before the loss" },
	{ 2363, true, "one-sided-pair", "a receive without its send named the receiver only" },
	{ 3340, 8, "one-sided-pair-2", "the same" },
	{ 11432, true, "died-of-its-state",
	    "the simulator: a joiner died as it took its state, which was not in its memory yet" },
	{ 108525, true, "state-for-nobody",
	    "the simulator: a donor went on streaming to a joiner that was no longer in the view" },
	{ 191590, true, "record-of-the-dead",
	    "memberd was away when a round was committed, and all who knew of it died; a joiner "
	    "held "
	    "its state and not its record, and the log stood still" },
	{ 41687, true, "record-of-the-dead-2", "the same, in the first round of all" },
	{ 2151, 3, "samples-of-no-result",
	    "uniform redid a round behind a caller that had read a result and taken its samples "
	    "from it: nobody agreed with it" },
	{ 340, 3, "samples-of-no-result-2", "the same, with a majority" },
	{ 46, 3, "read-and-redone",
	    "a caller had read a result of an attempt that was redone: another one was committed" },
	{ 1923, 3, "read-and-redone-2", "the same, in the first round of all" },
	{ 901, 3, "waits-and-closed",
	    "all waited for an op, and one had closed the round without it: nobody compared what "
	    "they do" },
	{ 2993, 3, "waits-and-closed-2", "the same" },
	{ 76227, 3, "guilty-and-alone",
	    "the simulator: a joiner with other ops outlived all contributors, who were told of "
	    "both, and was told that none is left" },
	{ 11568, 4, "died-of-what-was-held",
	    "the simulator: a member died of a frame that had been held, and the next one was "
	    "written into its memory" },
	{ 9432, 4, "counted-by-nobody",
	    "frames that came before the round began were counted neither then nor when they were "
	    "offered again, since their op was submitted in the same turn: the word that their "
	    "sender waited for was never said" },
	{ 1457, 5, "committed-by-the-lost",
	    "all had voted, one was lost, and a round with scopes began again for it: the lost one "
	    "committed it when it woke" },
	{ 570, 6, "sent-to-who-has-it",
	    "an op could not be released after a view change, as frames of it waited for a member "
	    "that had its result, and had released it" },
	{ 800, 6, "sent-to-who-has-it-2", "the same" },
	{ 10000983, 6, "committed-by-the-lost-2",
	    "the same as 1457 with a joiner: it had no vote in the view in which all had voted, "
	    "and since it had not, the round began again in the view after its own" },
	{ 10002832, 6, "committed-by-the-lost-3", "the same" },
	{ 75259, 6, "committed-what-was-taken-back",
	    "the hub stood still with all votes on their way, was lost, and when it woke committed "
	    "the "
	    "round in its old view with inputs whose owners had gone on and written there again" },
	{ 10058471, 6, "in-another-order",
	    "the simulator: a member left out an op whose other end was lost, and did the rest in "
	    "another order; that was taken for other results" },
	{ 906, 7, "records-behind-a-full-disk",
	    "records that waited for an entry which the disk refused waited for ever, and the "
	    "group's next view for them" },
	{ 2999, 7, "records-before-a-full-disk",
	    "members were told that all up to the newest round was recorded, forgot what the disk "
	    "had refused, and the ledger had a gap for ever" },
	{ 558, 8, "joiner-with-a-state-of-its-own",
	    "a joiner said that it had the state that the round starts from: it kept its own, "
	    "which nobody compared" },
	{ 567, 8, "joiner-ahead",
	    "a joiner said that it had more than the group, and ended; or the others did" },
	{ 2281, 8, "joiner-in-the-first-round",
	    "the state before round 1 was to come to it, but a view later it counted as one that "
	    "has it" },
	{ 2008, 8, "left-by-a-joiner",
	    "a joiner that died before its first view left what it had declared as the group's "
	    "state" },
	{ 93581, 8, "mismatch-with-peer-0",
	    "a view's plan did not say who had submitted an op of which nobody held anything: who "
	    "had another one named peer 0 as the other" },
	{ 10688, 9, "mismatch-with-peer-0-2",
	    "the same (9768, until who gives nothing owned nothing)" },
	{ 2797, 9, "two-contributors-of-one-index",
	    "who had got all of its state contributed to a round that was redone behind the "
	    "others, and was told an "
	    "index that one of them had" },
	{ 20004775, 9, "a-view-that-counts",
	    "a joiner whose state came gradually has a second view, in which it counts: the check "
	    "of what views are for knew of one" },
	{ 49690, 8, "records-in-front-of-a-batch",
	    "records that came after others which waited for the log went into it first, and their "
	    "members were told to forget all up to them" },
	{ 10002181, 8, "founder-that-gives-before-it-begins",
	    "the simulator's own fault: a founder whose worker waited to begin had no state to "
	    "give to a joiner" },
	{ 4781, 7, "join-on-a-full-disk",
	    "a join whose entry the disk refused was forgotten: its process waited for ever" },
	{ 30011100, 9, "refused-behind",
	    "two gave up a round since they disagreed, and who was to finish the one before had it "
	    "without them" },
	{ 30012117, 9, "refused-behind-2", "the same, with a joiner" },
	{ 124336, 10, "records-on-their-way",
	    "a member that told newer records before older ones, after memberd had come back, was "
	    "told "
	    "to forget all of them when the newer were logged; memberd died before the others "
	    "were" },
	{ 452, 11, "window-of-nothing",
	    "three quarters of a window of one byte were none over short ways, and what was passed "
	    "on late never left" },
};
const size_t sim_seed_count = sizeof(sim_seeds) / sizeof(sim_seeds[0]);

static const struct {
	uint64_t seed;
	const char *words;
} stories[] = {
	{ 2905, "disagree in round 2" },
	{ 6433, "disagree in round 14" },
	{ 3340, "which has none with it" },
	{ 2993, "op 99 is unknown to peer" },
	{ 10688, "segments at the first and" },
};

const char *seeds_story(uint64_t seed)
{
	for (size_t i = 0; i < sizeof(stories) / sizeof(stories[0]); i++)
		if (stories[i].seed == seed)
			return stories[i].words;
	return NULL;
}
