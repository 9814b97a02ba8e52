#ifdef __AVX2__
#define DIGEST_FEATURE "avx2"
#endif
#define DIGEST_FORM     digest_avx2
#define DIGEST_FORM_ADD digest_avx2_add
#include "common/digest_form.h"
