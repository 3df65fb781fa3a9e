/* One allocation, cut into buffers whose addresses never change: what a captured graph needs, and
   what graphs of all buckets share. Lay out twice: without memory, which tells the size from
   numbers alone, then in it. Nothing is returned but all at once.

   Who watches allocations (tests/ptxrun, compute-sanitizer) sees one, and not where a buffer in it
   ends. So behind each stands a fence with all bits set: a write past the end shows in arena_flaw,
   and what is read there is NaN, or -1. */
#ifndef ARENA_H
#define ARENA_H
#include <cuda_runtime.h>
#include <stddef.h>

enum { ARENA_ALIGN = 256 /* as cudaMalloc */, ARENA_FENCE = 256, ARENA_MAX_BUFFERS = 128 };

typedef struct arena {
    char *base;                    /* null: only measures */
    size_t used, size;             /* bytes that were taken, that there are */
    size_t end[ARENA_MAX_BUFFERS]; /* of each buffer: from there on its fence */
    int count;
    cudaError_t error; /* the first: one check after many calls */
} arena;

/* A buffer of zeros; null where there is no memory yet, or was an error. */
static inline void *arena_take(arena *a, size_t bytes) {
    char *const block = a->base ? a->base + a->used : NULL;
    const size_t end = a->used + bytes;
    a->used = (end + ARENA_FENCE + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
    if (a->error != cudaSuccess) return NULL;
    if (a->count == ARENA_MAX_BUFFERS || (a->base && a->used > a->size))
        return a->error = cudaErrorMemoryAllocation, (void *)NULL;
    a->end[a->count++] = end;
    if (a->base) a->error = cudaMemset(block, 0, bytes);
    return block;
}

/* Nothing is taken; who lays out again gets the same addresses. */
static inline void arena_clear(arena *a) {
    if (a->error == cudaSuccess && a->base) a->error = cudaMemset(a->base, 0xff, a->size);
    a->used = 0, a->count = 0;
}

/* What was measured is to be had in that memory: a buffer of another arena can be an arena. */
static inline void arena_in(arena *a, void *memory) {
    a->base = (char *)memory, a->size = a->used;
    arena_clear(a);
}

/* Memory for what was measured: the only allocation. cudaFree(a->base) returns it. */
static inline void arena_open(arena *a) {
    void *memory = NULL;
    if (a->error == cudaSuccess) a->error = cudaMalloc(&memory, a->used);
    arena_in(a, memory);
}

/* What is wrong with it once all work is done, or null. */
static inline const char *arena_flaw(const arena *a) {
    unsigned char fence[ARENA_FENCE];
    cudaError_t error = a->error == cudaSuccess ? cudaDeviceSynchronize() : a->error;
    if (error != cudaSuccess) return cudaGetErrorString(error);
    if (a->used != a->size) return "the arena is laid out otherwise than it was measured";
    for (int i = 0; i < a->count; ++i) {
        error = cudaMemcpy(fence, a->base + a->end[i], sizeof fence, cudaMemcpyDeviceToHost);
        if (error != cudaSuccess) return cudaGetErrorString(error);
        for (size_t byte = 0; byte < sizeof fence; ++byte)
            if (fence[byte] != 0xff) return "a write behind the end of a buffer of the arena";
    }
    return NULL;
}

#endif
