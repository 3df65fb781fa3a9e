/* kernels.cu - the kit for tests that only call it: kernels and launchers, and the reference. As C
   the reference alone. */

#if defined(__CUDACC__)
#define SPECVERIFY_IMPLEMENTATION
#endif
#define SPECVERIFY_REF_IMPLEMENTATION
#include "specverify_ref.h"
