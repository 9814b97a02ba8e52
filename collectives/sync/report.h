/* What each contributor tells the others with a merge: numbers that are not simply added up. Reduced as f64, each in the place of its index, so
 * all peers have all of them and draw the same conclusions.
 *
 * There is a place for every index that a group can have: under TR_UNIFORM a round may be redone among fewer contributors while those who had
 * begun it still count the dead, so their number is not the same on all.
 */
#ifndef TR_COLLECTIVES_SYNC_REPORT_H
#define TR_COLLECTIVES_SYNC_REPORT_H

struct sync_report {
	double lr_scale; /* with which it trained; negative: and its loss was not finite; 0: nobody has this place */
	double loss;   /* mean over its tokens */
	double step;   /* inner steps done (pace.h) */
	double step_s; /* how long each of the last ones took; 0: not known */
	/* With share_by_speed (shares.h), else 0: of a step, in the mean of the last ones, and what its part is from this merge's take on. */
	double samples, share;
};

enum { SYNC_REPORT_NUMBERS = sizeof(struct sync_report) / sizeof(double) };

#endif
