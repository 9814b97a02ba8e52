#ifdef __AVX512F__
#define DIGEST_FEATURE "avx512f"
#endif
#define DIGEST_FORM     digest_avx512
#define DIGEST_FORM_ADD digest_avx512_add
#include "common/digest_form.h"
