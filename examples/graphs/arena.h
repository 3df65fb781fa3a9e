/* One allocation, cut into buffers whose addresses never change: what a captured graph needs, and
   what graphs of all buckets share. Lay out twice: without memory to learn the size, then in it. */
#ifndef ARENA_H
#define ARENA_H
#include <stddef.h>

typedef struct arena {
    char *base;  /* null: only measures */
    size_t used; /* bytes */
} arena;

static inline void *arena_take(arena *a, size_t bytes) {
    void *block = a->base ? a->base + a->used : NULL;
    a->used += (bytes + 255) / 256 * 256; /* as cudaMalloc aligns */
    return block;
}

#endif
