/* A kernel that calls every device function, by both names. Also given to NVRTC as it stands. */
#if defined(OWN_STDINT) /* a program that declares them itself, as some JIT users do */
typedef unsigned char uint8_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long int64_t;
typedef unsigned long uint64_t;
#endif
#include "specverify.cuh"

#if defined(SPECVERIFY_NO_SHORT_NAMES)
/* The user's own function of that name. */
static __device__ int warp_exclusive_scan(int value, int *total) { return *total = value + 1; }
extern "C" __global__ void own_scan(int *out) {
    out[threadIdx.x] = warp_exclusive_scan(41, out + blockDim.x);
}
#else
extern "C" __global__ void short_names(int32_t *out, const int32_t *in, const int64_t *wide,
                                       char *kv) {
    __shared__ int32_t scratch[SPECV_BLOCK_SCAN_SMEM_WORDS];
    int32_t total, sum = warp_first_reject(in[threadIdx.x]);
    sum += warp_ballot_accept(in, in + 8, 7) + warp_ballot_accept_i64(wide, wide + 8, 7);
    sum += warp_inclusive_scan(sum) + warp_exclusive_scan(sum, &total);
    sum += warp_reduce_add(sum) + warp_reduce_min(total) + warp_reduce_max(sum);
    sum += block_exclusive_scan(sum, &total, scratch) + thread_find_row(in, 4, total);
    sum += warp_find_row(in, 4, sum);
    sum += thread_next_token(in, 3, 0) + (int32_t)thread_next_token_i64(wide, 3, 100);
    warp_copy_kv(kv, kv + 512, 512);
    __syncthreads();
    block_copy_kv(kv + 1024, kv, 1024);
    out[threadIdx.x] = sum;
}
#endif

/* Tiles of scores: what a fused LM head calls. */
static __device__ int vocabulary(const int32_t *in) {
    const specv_scale scale = specv_softmax_scale(0.7f);
    const specv_noise noise = {1, 2, 0, SPECV_TAG_COUPLED};
    float score[32];
    specv_tile tile;
    specv_warp_load_tile(score, in, SPECV_LOGITS_BF16, 2048, 0);
    tile = specv_warp_tile_stats(score, 8, 0, SPECV_TILE_SUM | SPECV_TILE_SCORE, &scale, &noise);
    const specv_distribution row =
        specv_warp_merge_tiles(&tile, 1, SPECV_TILE_SUM | SPECV_TILE_SCORE, 0, &scale);
    const float bound = specv_warp_filter_bound(&tile, 1, &row, &scale, 50, 0.9f, 0.1f);
    return row.id + (int)specv_float_bits(bound);
}

/* A row of one rank's columns: what an all-gather of one's own calls. */
static __device__ int by_ranks(const int32_t *in) {
    const specv_scale scale = specv_softmax_scale(0.7f);
    const specv_noise noise = {1, 2, 0, SPECV_TAG_COUPLED};
    float score[32];
    specv_tile tile, shard;
    specv_warp_load_tile(score, in, SPECV_LOGITS_F16, 2048, 0);
    tile = specv_warp_tile_stats(score, 8, 0, SPECV_TILE_SUM, &scale, &noise);
    shard = specv_warp_shard_tile(&tile, 1, SPECV_TILE_SUM, &scale);
    const specv_distribution row = specv_warp_merge_tiles(&shard, 1, SPECV_TILE_SUM, 0, &scale);
    shard.sum = specv_warp_shard_sum(&tile, 1, &row, &scale);
    const specv_shard_place place = specv_thread_choose_shard(&shard, 1, (uint64_t)in[0] << 40);
    return place.rank +
           specv_warp_draw_in_shard(in, SPECV_LOGITS_F16, 2048, &tile, 1, &row, &scale, place);
}

/* A KV row in a cache of 64 positions a sequence: what an attention kernel calls. */
static __device__ int64_t cached(void) {
    specv_kv_cache kv = SPECV_ZERO;
    kv.pos_stride_bytes = 256, kv.seq_stride_bytes = 64 * 256;
    return specv_thread_kv_offset(&kv, 1, (int32_t)threadIdx.x);
}

extern "C" __global__ void long_names(const __grid_constant__ specv_verify_pack_kv_desc d,
                                      int32_t *out, const int32_t *in, const int64_t *wide,
                                      char *kv) {
    __shared__ int32_t lens[64], work[65], scratch[SPECV_BLOCK_SCAN_SMEM_WORDS];
    int32_t total, sum = specv_warp_first_reject(in[threadIdx.x]);
    specv_row row = specv_thread_load_row(&d.verify.rows, 0);
    uint32_t bits = 0;
    sum += specv_thread_slot(wide, SPECV_I64, 9, 0, &bits);
    sum += specv_thread_own_slot(in, SPECV_I32, 9, 1, &bits);
    sum += specv_warp_slot(in, SPECV_I32, 9, 2, &bits);
    specv_verdict verdict = specv_warp_verify_greedy_row(&d.verify, 0, row.status);
    sum += specv_warp_ballot_accept(in, in + 8, row.n_draft);
    sum += specv_warp_ballot_accept_i64(wide, wide + 8, 7);
    sum += specv_warp_inclusive_scan(sum) + specv_warp_exclusive_scan(sum, &total);
    sum += specv_warp_reduce_add(sum) + specv_warp_reduce_min(total) + specv_warp_reduce_max(sum);
    sum += specv_block_exclusive_scan(sum, &total, scratch);
    sum += specv_thread_find_row(in, 4, total) + specv_thread_next_token(in, 3, 0);
    sum += specv_warp_find_row(in, 4, sum);
    sum += (int32_t)specv_thread_next_token_i64(wide, 3, 100) + verdict.accepted_len;
    specv_warp_copy_kv(kv, kv + 512, 512);
    __syncthreads();
    specv_block_copy_kv(kv + 1024, kv, 1024);
    specv_block_accept_tile(&d.verify, 0, 64, lens, work);
    total = specv_block_offsets_tile(lens, 64, 0, work, scratch);
    specv_warp_pack_tile(&d.verify.rows, &d.kv, 0, 64, work, specv_warp_plane_share(&d.kv, 0, 1));
    out[threadIdx.x] = sum + total + vocabulary(in) + by_ranks(in) + (int32_t)cached();
}
