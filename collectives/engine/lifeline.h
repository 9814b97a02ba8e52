/* A second connection to memberd that nothing is said on: it closes when the process dies, and it does so at once. The other
 * connections of a killed process close only after its memory has been freed (10 ms for 100 MiB on a busy machine, seconds for
 * a large model or a GPU's context), and not at all while a child that it forked still holds them. This one belongs to a thread
 * with a table of files of its own (close_range(2), CLOSE_RANGE_UNSHARE): when that thread ends, there is no other holder. A
 * kernel or a sandbox without that call: there is none, and the death is seen when the others close.
 *
 * Any thread may call; lifeline_end waits for the thread: for the second that a dial may take, with TLS for a handshake as well, which is given up
 * when nothing came for a second.
 */
#ifndef TR_COLLECTIVES_ENGINE_LIFELINE_H
#define TR_COLLECTIVES_ENGINE_LIFELINE_H

#include <stdbool.h>
#include <stdint.h>

struct lifeline;
struct tls_context;

#define LIFELINE_WORDS_MAX 256

/* `tls`: spoken on it, to a memberd whose certificate is for `host`, and held; NULL, and to a UNIX socket: plain. NULL: no thread or memory for it; the calls below
 * take that. */
struct lifeline *lifeline_start(struct tls_context *tls, const char *host);
/* memberd at `address` (numeric, "127.0.0.1:7070") has welcomed this process as that node, after its hello number `call`: ties it there, instead of where it was. */
void lifeline_tie(struct lifeline *lifeline, const char *address, uint64_t node_id,
    uint64_t incarnation, uint32_t call);
/* It could not be tied, not at the second try either: why, once. (The thread itself has no file to log to.) */
bool lifeline_failed(struct lifeline *lifeline, char words[LIFELINE_WORDS_MAX]);
/* Closes it. memberd must have heard before that the process leaves, else it takes it for dead. */
void lifeline_end(struct lifeline *lifeline);

#endif
