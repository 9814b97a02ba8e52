#include "common/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

tr_status tr_error_set(struct tr_error *error, tr_status status, const char *format, ...)
{
	if (error != NULL) {
		va_list args;
		va_start(args, format);
		error->status = status;
		(void)vsnprintf(error->text, sizeof(error->text), format, args);
		va_end(args);
	}
	return status;
}

tr_status tr_error_wrap(struct tr_error *error, const char *format, ...)
{
	if (error == NULL)
		return TR_EINTERNAL;
	char cause[TR_ERROR_TEXT_MAX];
	memcpy(cause, error->text, sizeof(cause));
	va_list args;
	va_start(args, format);
	int used = vsnprintf(error->text, sizeof(error->text), format, args);
	va_end(args);
	if (used >= 0 && (size_t)used < sizeof(error->text))
		(void)snprintf(error->text + used, sizeof(error->text) - (size_t)used, ": %s",
		    cause);
	return error->status;
}

void tr_error_add(struct tr_error *all, const struct tr_error *one)
{
	char before[TR_ERROR_TEXT_MAX];
	memcpy(before, all->text, sizeof(before));
	all->status = one->status;
	if (before[0] == '\0')
		memcpy(all->text, one->text, sizeof(before));
	else
		(void)tr_error_set(all, one->status, "%s; %s", before, one->text);
}
