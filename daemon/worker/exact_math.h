/* Elementary functions in + - * / and sqrt only, so that every machine gives the same bits (libm
 * may not: it picks code with or without fused multiply-add at run time). For initial weights and
 * the schedule; not fast. Any thread.
 */
#ifndef TR_DAEMON_WORKER_EXACT_MATH_H
#define TR_DAEMON_WORKER_EXACT_MATH_H

#include <stdint.h>

double exact_log(double x);          /* x > 0, finite; error under 1e-15 of |result| + 1e-16 */
double exact_exp(double x);          /* |x| <= 700; relative error under 1e-15 */
double exact_cos_turns(double turn); /* cos(2 pi turn), 0 <= turn <= 1; error under 1e-15 */
double exact_power(double base, uint64_t exponent);

#endif
