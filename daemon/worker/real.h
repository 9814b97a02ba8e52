/* The number type of the model. `float` in the product; tests compile the same sources with double
 * (#define REAL_IS_DOUBLE before the first include) to check derivatives by finite differences.
 */
#ifndef TR_DAEMON_WORKER_REAL_H
#define TR_DAEMON_WORKER_REAL_H

#ifdef REAL_IS_DOUBLE
typedef double real;
#define REAL_C(x) x
#else
typedef float real;
#define REAL_C(x) x##f
#endif

#endif
