#include "daemon/plan/samples_text.h"

#include <stdlib.h>
#include <string.h>

#include "common/limits.h"

#define MARK        "samples:"
#define MARK_LENGTH (sizeof(MARK) - 1)
#define SAMPLE_MOST (UINT64_C(1) << 53)
#define ROWS_MOST   4096
#define CAUSE_MOST  64

char *samples_text_of(const Traind__V1__SampleAccount *account)
{
	static const char digits[] = "0123456789abcdef";
	size_t bytes = traind__v1__sample_account__get_packed_size(account);
	uint8_t *packed = malloc(bytes + 1);
	char *text = malloc(MARK_LENGTH + 2 * bytes + 1);
	if (packed == NULL || text == NULL) {
		free(packed);
		free(text);
		return NULL;
	}
	(void)traind__v1__sample_account__pack(account, packed);
	memcpy(text, MARK, MARK_LENGTH);
	for (size_t i = 0; i < bytes; i++) {
		text[MARK_LENGTH + 2 * i] = digits[packed[i] >> 4];
		text[MARK_LENGTH + 2 * i + 1] = digits[packed[i] & 15];
	}
	text[MARK_LENGTH + 2 * bytes] = '\0';
	free(packed);
	return text;
}

bool samples_text_is(const char *text)
{
	return strncmp(text, MARK, MARK_LENGTH) == 0;
}

/* 16: it is none. */
static unsigned digit(char c)
{
	if (c >= '0' && c <= '9')
		return (unsigned)(c - '0');
	return c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10 : 16;
}

/* Ascending, apart from each other; `sum` grows by what is in them. */
static bool ranges_valid(Traind__V1__SampleRange *const *rows, size_t count, uint64_t given,
    bool counts, uint64_t *sum)
{
	for (size_t i = 0; i < count; i++) {
		const Traind__V1__SampleRange *r = rows[i];
		uint64_t length = r->to - r->from, in = counts ? r->count : length;
		if (strlen(r->cause) > CAUSE_MOST || r->from >= r->to || r->to > given ||
		    (i > 0 && r->from < rows[i - 1]->to) || in == 0 || in > length)
			return false;
		*sum += in;
	}
	return *sum <= given;
}

static bool valid(const Traind__V1__SampleAccount *a)
{
	uint64_t sum = 0;
	return a->n_held + a->n_returned + a->n_dropped <= ROWS_MOST && a->per_epoch > 0 &&
	    a->per_epoch <= SAMPLE_MOST && a->given <= SAMPLE_MOST && a->last <= SAMPLE_MOST &&
	    ranges_valid(a->held, a->n_held, a->given, false, &sum) &&
	    ranges_valid(a->returned, a->n_returned, a->given, false, &sum) &&
	    ranges_valid(a->dropped, a->n_dropped, a->given, true, &sum);
}

Traind__V1__SampleAccount *samples_text_read(const char *text)
{
	if (!samples_text_is(text))
		return NULL;
	text += MARK_LENGTH;
	size_t digits = strlen(text);
	uint8_t *packed = digits % 2 == 0 && digits <= TR_CHANNEL_MESSAGE_MAX
	    ? malloc(digits / 2 + 1)
	    : NULL;
	if (packed == NULL)
		return NULL;
	for (size_t i = 0; i < digits / 2; i++) {
		unsigned high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
		if (high > 15 || low > 15) {
			free(packed);
			return NULL;
		}
		packed[i] = (uint8_t)(high << 4 | low);
	}
	Traind__V1__SampleAccount *account = traind__v1__sample_account__unpack(NULL, digits / 2,
	    packed);
	free(packed);
	if (account != NULL && !valid(account)) {
		traind__v1__sample_account__free_unpacked(account, NULL);
		return NULL;
	}
	return account;
}
