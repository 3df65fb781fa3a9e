/* The one CUDA file of a C program. See main.c. */
#define SPECVERIFY_IMPLEMENTATION
#include "specverify.cuh"
