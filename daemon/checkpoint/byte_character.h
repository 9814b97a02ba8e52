/* The character that byte-level tokenizers show for a byte: itself if it can be seen, else one from U+0100 on (GPT-2's encoder.py). Pure. */
#ifndef TR_DAEMON_CHECKPOINT_BYTE_CHARACTER_H
#define TR_DAEMON_CHECKPOINT_BYTE_CHARACTER_H

#include <stddef.h>

/* As UTF-8, with a final NUL. */
void byte_character(unsigned char byte, char text[3]);
/* The byte of the character at `text`, and the character's length; 0: it stands for none. */
size_t byte_of_character(const char *text, size_t left, unsigned char *byte);

#endif
