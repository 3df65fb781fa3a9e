/* cub_accepted.cuh - what CUB is asked to select, timed (cub_compare.cu) and counted (peers.cu). */
#ifndef SPECV_BENCH_CUB_ACCEPTED_CUH
#define SPECV_BENCH_CUB_ACCEPTED_CUH

#include <stdint.h>

/* Is this 16-byte unit of the draft KV part of an accepted row? */
struct unit_is_accepted {
    const int32_t *accepted_len;
    int64_t units_per_row;
    int gamma;
    __device__ bool operator()(int64_t unit) const {
        int64_t position = unit / units_per_row;
        return position % gamma < accepted_len[position / gamma];
    }
};

#endif
