/* UTF-8 (RFC 3629). Pure. */
#ifndef TR_COMMON_UTF8_H
#define TR_COMMON_UTF8_H

#include <stddef.h>

/* Length of the well-formed sequence at `s`, of which `left` bytes (at least one) are there; or 0. */
size_t utf8_length(const unsigned char *s, size_t left);
/* Where that is 0: how many bytes one U+FFFD stands for, as many as begin a sequence that could have been well-formed (Unicode, 3.9; Python's decoders), or one. */
size_t utf8_bad_length(const unsigned char *s, size_t left);

/* How many bytes at the end of `s` begin a sequence that is not whole yet; at most 3. */
size_t utf8_begun(const unsigned char *s, size_t length);

#endif
