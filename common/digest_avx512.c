#ifdef __AVX512F__
#define DIGEST_FEATURE "avx512f"
#endif
#define DIGEST_FORM digest_avx512
#include "common/digest_form.h"
