/* cache.h - KV caches for B3 and B5, in which every byte says where it belongs.

   A cache, or what a pass left, is a grid: sequences or pages, positions, heads and planes, nested
   in any order, with gaps. All planes are one buffer, so that a layout may hold several of them in
   a page, and so that one comparison of the whole buffer sees every byte that was written where
   nothing belongs. The bytes of an element are drawn from a generator that is seeded with
   (sequence, position, head, plane); what is expected is generated anew, never read anywhere. */

#ifndef CACHE_H_INCLUDED
#define CACHE_H_INCLUDED

#include "batch.h"

enum { AXIS_OUTER, AXIS_POS, AXIS_HEAD, AXIS_PLANE, NUM_AXES };
enum { MAX_PLANES = 8 };

/* From the outermost axis to the innermost: sequence or page o, position p, head h, plane v. */
static const char *const grid_orders[] = {
    "voph", /* NHD */
    "vohp", /* HND, and K as [head_dim / x][position][x] with more and shorter heads */
    "ovph", /* K and V in the same page */
    "ophv", /* K and V of a head side by side */
    "vpoh", /* positions outermost, sequences inside */
    "vhop", "hpvo",
};

typedef struct grid {
    int64_t count[NUM_AXES], stride[NUM_AXES];
    int64_t elem_bytes, bytes;
    unsigned packed; /* 1 << axis: a stride that 0 stands for is given as 0 */
} grid;

/* `gap`: bytes by which each axis is wider than it must be. */
T_FN void grid_make(grid *g, const char *order, const int64_t *gap) {
    int64_t inner = g->elem_bytes;
    g->packed = (unsigned)t_random();
    for (int i = NUM_AXES - 1; i >= 0; --i) {
        const char letter = order[i];
        const int axis = letter == 'o'   ? AXIS_OUTER
                         : letter == 'p' ? AXIS_POS
                         : letter == 'h' ? AXIS_HEAD
                                         : AXIS_PLANE;
        g->stride[axis] = inner + gap[axis];
        inner += (g->count[axis] - 1) * g->stride[axis];
    }
    g->bytes = inner; /* nothing behind the last element */
}

T_FN int64_t grid_at(const grid *g, int64_t outer, int64_t pos, int64_t head, int64_t plane) {
    return outer * g->stride[AXIS_OUTER] + pos * g->stride[AXIS_POS] + head * g->stride[AXIS_HEAD] +
           plane * g->stride[AXIS_PLANE];
}

/* A stride as the descriptor gets it. */
T_FN int64_t grid_stride(const grid *g, int axis) {
    const int64_t inner = axis == AXIS_HEAD  ? g->elem_bytes
                          : axis == AXIS_POS ? g->count[AXIS_HEAD] * g->stride[AXIS_HEAD]
                                             : g->count[AXIS_POS] * g->stride[AXIS_POS];
    return g->stride[axis] == inner && (g->packed >> axis & 1) ? 0 : g->stride[axis];
}

/* The bytes of one element. */
T_FN void tag_bytes(char *to, int64_t bytes, int64_t sequence, int64_t pos, int64_t head,
                    int64_t plane) {
    uint64_t seed = t_mix((uint64_t)sequence * 0xD6E8FEB86659FD93u + (uint64_t)pos + 1);
    seed = t_mix(seed + ((uint64_t)head << 32) + (uint64_t)plane);
    for (int64_t i = 0; i < bytes; i += 8) {
        uint64_t word = t_mix(seed += 0x9E3779B97F4A7C15u);
        memcpy(to + i, &word, (size_t)(bytes - i < 8 ? bytes - i : 8));
    }
}

/* All heads of one position in one plane. */
T_FN void tag_position(char *data, const grid *g, int64_t outer, int64_t pos, int plane,
                       int64_t tag_sequence, int64_t tag_pos) {
    for (int64_t head = 0; head < g->count[AXIS_HEAD]; ++head)
        tag_bytes(data + grid_at(g, outer, pos, head, plane), g->elem_bytes, tag_sequence, tag_pos,
                  head, plane);
}

/* Has a position the bytes of this tag in a plane? */
T_FN int has_tag(const char *data, const grid *g, int64_t outer, int64_t pos, int plane,
                 int64_t tag_sequence, int64_t tag_pos) {
    char expected[512];
    if (g->elem_bytes > (int64_t)sizeof expected) t_die(__FILE__, __LINE__, "has_tag", "too long");
    for (int64_t head = 0; head < g->count[AXIS_HEAD]; ++head) {
        const char *at = data + grid_at(g, outer, pos, head, plane);
        tag_bytes(expected, g->elem_bytes, tag_sequence, tag_pos, head, plane);
        if (memcmp(at, expected, (size_t)g->elem_bytes) != 0) return 0;
    }
    return 1;
}

/* A buffer against its expected bytes, all of them. */
#define check_image(b, expected) CHECK_BYTES((b)->host, expected, (b)->bytes)

/* A table of planes, with an entry per side. Null entries are skipped by the operation. */
typedef struct plane_table {
    void *entry[2][MAX_PLANES];
    void *device; /* the table in device memory */
} plane_table;

/* `skipped`: 1 << plane for entries that are null. */
T_FN void table_make(plane_table *p, const t_buf *data, const grid *g, unsigned skipped) {
    memset(p, 0, sizeof *p);
    for (int side = 0; side < 2; ++side)
        for (int v = 0; v < g->count[AXIS_PLANE] && data->host; ++v)
            if (!(skipped >> v & 1))
                p->entry[side][v] = (char *)t_at(data, side) + grid_at(g, 0, 0, 0, v);
#if T_DEVICE
    T_CUDA(cudaMalloc(&p->device, sizeof p->entry[1]));
    T_CUDA(cudaMemcpy(p->device, p->entry[1], sizeof p->entry[1], cudaMemcpyHostToDevice));
#endif
}

T_FN void *const *table_at(const plane_table *p, int side) {
    return side == T_HOST_SIDE ? p->entry[0] : (void *const *)p->device;
}

T_FN void table_free(plane_table *p) {
#if T_DEVICE
    T_CUDA(cudaFree(p->device));
#endif
    p->device = NULL;
}

#endif /* CACHE_H_INCLUDED */
