/* A fuzzer's input as a script: bytes that choose what happens next, and fields near what would be right unless a byte says
 * otherwise. Static, as all of the fuzzers' shared parts.
 */
#ifndef TR_TESTS_FUZZ_SCRIPT_H
#define TR_TESTS_FUZZ_SCRIPT_H

#include <stddef.h>
#include <stdint.h>

struct script {
	const uint8_t *at;
	size_t left;
};

/* 0 behind the end. */
static uint8_t script_byte(struct script *script)
{
	if (script->left == 0)
		return 0;
	script->left--;
	return *script->at++;
}

/* Mostly `right`; sometimes beside it, sometimes anything. */
static uint64_t script_about(struct script *script, uint64_t right)
{
	uint8_t how = script_byte(script);
	if (how < 192)
		return right;
	if (how < 224)
		return right + (how & 7) - 4;
	uint64_t value = 0;
	for (int i = 0; i < 8; i++)
		value = value << 8 | script_byte(script);
	return value >> (how & 24) * 2;
}

#endif
