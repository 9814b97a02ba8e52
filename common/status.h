/* The one list of statuses: name, number, text. Zero is success, all others are negative.
 *
 *	tr_status st = thing_start(&thing, &error);
 *	if (st != TR_OK)
 *		return st;   // error.text already says what happened
 */
#ifndef TR_COMMON_STATUS_H
#define TR_COMMON_STATUS_H

#define TR_STATUS_MAP(X)                                                          \
	X(TR_OK, 0, "ok")                                                         \
	X(TR_EINVAL, -1, "invalid argument")                                      \
	X(TR_EPEERLOST, -2, "a peer was lost")                                    \
	X(TR_ESTALE, -3, "message from an earlier view")                          \
	X(TR_EAGAIN, -4, "not now, offer it again later")                         \
	X(TR_ENOMEM, -5, "out of memory")                                         \
	X(TR_ETIMEDOUT, -6, "deadline exceeded")                                  \
	X(TR_EMISMATCH, -7, "peers disagree about the signature of an operation") \
	X(TR_EDIGEST, -8, "peers hold different results")                         \
	X(TR_EPROTO, -9, "malformed message")                                     \
	X(TR_EIO, -10, "input/output error")                                      \
	X(TR_ENOTFOUND, -11, "not found")                                         \
	X(TR_EEXIST, -12, "already exists")                                       \
	X(TR_ELIMIT, -13, "a limit was reached")                                  \
	X(TR_EUNAVAILABLE, -14, "service unavailable")                            \
	X(TR_ECANCELLED, -15, "cancelled")                                        \
	X(TR_EEVICTED, -16, "this peer was evicted from its group")               \
	X(TR_ERESTART, -17, "the round was abandoned and starts again")           \
	X(TR_EREFUSED, -18, "refused")                                            \
	X(TR_EINTERNAL, -19, "internal error")

typedef enum tr_status {
#define X(name, number, text) name = number,
	TR_STATUS_MAP(X)
#undef X
} tr_status;

#define TR_ERROR_TEXT_MAX 512

/* A status, and in words what happened and to whom. Filled by a call that fails; before that it says nothing. */
struct tr_error {
	tr_status status;
	char text[TR_ERROR_TEXT_MAX];
};

/* Part of libtraincoll's public face; everything else is hidden. */
#define TR_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/* Both return static strings and accept any number. Any thread. */
TR_API const char *tr_status_name(tr_status status);
TR_API const char *tr_status_text(tr_status status);

#ifdef __cplusplus
}
#endif

#endif
