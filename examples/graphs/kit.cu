/* The kit, once for all programs here and in ../overlap. */
#include <cuda_runtime.h>
#include "watch.h"
#define SPECVERIFY_IMPLEMENTATION
#include "specverify.cuh"

extern "C" int watched[WATCH_KINDS] = {0};
