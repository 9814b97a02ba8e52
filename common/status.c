#include "common/status.h"

const char *tr_status_name(tr_status status)
{
	switch (status) {
#define X(name, number, text) \
	case name:            \
		return #name;
		TR_STATUS_MAP(X)
#undef X
	}
	return "TR_EUNKNOWN";
}

const char *tr_status_text(tr_status status)
{
	switch (status) {
#define X(name, number, text) \
	case name:            \
		return text;
		TR_STATUS_MAP(X)
#undef X
	}
	return "unknown status";
}
