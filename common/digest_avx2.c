#ifdef __AVX2__
#define DIGEST_FEATURE "avx2"
#endif
#define DIGEST_FORM digest_avx2
#include "common/digest_form.h"
