/* Must not compile: the kernels need nvcc, and the message says so. */
#define SPECVERIFY_IMPLEMENTATION
#include "specverify.cuh"
