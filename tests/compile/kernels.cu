/* kernels.cu - kernels and launchers of the kit, for the tests that only call them. */

#define SPECVERIFY_IMPLEMENTATION
#include "specverify.cuh"
