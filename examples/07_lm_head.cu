/* A fused LM head: logits are computed a tile at a time in registers, and sampled from there.
   They are never written to memory, and the token is bit for bit that of specv_sample.

       nvcc -arch=native -I .. -o 07_lm_head 07_lm_head.cu && ./07_lm_head

   tokens: 140 1076 3021 2047 256 1207 14 2635
   sums and maxima of the rows: equal
   tokens of specv_sample: equal
   its log-probabilities: equal
   its log-sum-exp: equal
   per row, written and read: 120 bytes of tiles, not 20000 bytes of logits
   OK

   What it saves: the head writes vocab * 4 bytes of logits for each row, and the sampler reads
   them back. Here they become 24 bytes for each 1024 of them, written and read back. With 128k ids
   that is 1 MB per row less, twice. The weights are read all the same: at a batch of 1 they are
   most of the bytes, so the gain grows with the batch. */
#include <cuda_runtime.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define SPECVERIFY_IMPLEMENTATION
#include "specverify.cuh"

/* The ids of a unit are in the vocabulary all or none: VOCAB is a multiple of 4. */
enum { ROWS = 8, HIDDEN = 64, VOCAB = 5000, UNIT = 4 };
enum { TILES = (VOCAB + SPECV_TILE_IDS - 1) / SPECV_TILE_IDS };

/* Who: the fused head; the same kernel on logits that were written first; specv_sample on those. */
enum { FUSED, FROM_MEMORY, SAMPLER };

struct state {
    float weight[HIDDEN][VOCAB]; /* so that neighbouring ids are neighbours in memory */
    float hidden[ROWS][HIDDEN], temperature[ROWS];
    uint64_t seed[ROWS];
    int32_t position[ROWS];
    specv_tile tiles[ROWS][TILES];
    unsigned ticket;
    float logits[ROWS][VOCAB]; /* only for the comparison */
    specv_distribution distribution[2][ROWS];
    float logprob[3][ROWS], lse[3][ROWS];
    int32_t token[3][ROWS];
};

/* One logit. The order of its sum is fixed: every kernel here gets the same bits. */
static __device__ float logit_of(const state *s, int row, int id) {
    float sum = 0;
    for (int h = 0; h < HIDDEN; ++h) sum = fmaf(s->weight[h][id], s->hidden[row][h], sum);
    return sum;
}

/* A tile of logits in registers, 32 a lane, where specv_warp_tile_stats looks for them: lane l has
   in turn t the UNIT ids from (t * 32 + l) * UNIT of the tile on. So the warp reads 512 bytes of
   weights at a time, side by side. Behind the vocabulary there is -inf. Call: warp. */
static __device__ void compute_tile(float score[32], const state *s, int row, int tile) {
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int t = 0; t < 32 / UNIT; ++t) {
        const int id = tile * SPECV_TILE_IDS + (t * 32 + lane) * UNIT;
        float4 sum = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
        if (id < VOCAB) {
            sum = make_float4(0, 0, 0, 0);
#pragma unroll 4
            for (int h = 0; h < HIDDEN; ++h) {
                const float4 w = *(const float4 *)&s->weight[h][id];
                const float x = s->hidden[row][h];
                sum.x = fmaf(w.x, x, sum.x), sum.y = fmaf(w.y, x, sum.y);
                sum.z = fmaf(w.z, x, sum.z), sum.w = fmaf(w.w, x, sum.w);
            }
        }
        score[UNIT * t] = sum.x, score[UNIT * t + 1] = sum.y;
        score[UNIT * t + 2] = sum.z, score[UNIT * t + 3] = sum.w;
    }
}

/* A block per tile, a warp per row: a tile's weights come from memory once for all rows. The last
   block to arrive puts the rows together. */
static __global__ __launch_bounds__(32 * ROWS) void lm_head(state *s, int who) {
    __shared__ int is_last;
    const int tile = (int)blockIdx.x, row = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int greedy = specv_temperature_is_0(s->temperature[row]);
    const specv_scale scale = specv_softmax_scale(greedy ? 1 : s->temperature[row]);
    const specv_noise noise = {s->seed[row], (uint32_t)s->position[row], 0, SPECV_TAG_COUPLED};
    /* SCORE draws the token, SUM is for its probability; the argmax needs neither. */
    const int what = greedy ? 0 : SPECV_TILE_SCORE | SPECV_TILE_SUM;
    float score[32];
    if (who == FUSED)
        compute_tile(score, s, row, tile);
    else
        specv_warp_load_tile(score, s->logits[row], SPECV_LOGITS_F32, VOCAB, tile);
    const specv_tile stats = specv_warp_tile_stats(score, UNIT, tile, what, &scale, &noise);
    if (lane == 0) s->tiles[row][tile] = stats;

    /* Blocks are counted from 0 back to 0: nothing to reset. The fences carry the tiles. */
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        is_last = atomicInc(&s->ticket, gridDim.x - 1) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    if (!is_last) return;
    const specv_distribution d = specv_warp_merge_tiles(s->tiles[row], TILES, what, greedy, &scale);
    if (lane == 0) { /* one logit is computed again: cheaper than to keep a tile of them */
        const float logit = d.id < 0 ? 0 : logit_of(s, row, d.id);
        s->distribution[who][row] = d;
        s->token[who][row] = d.id;
        s->logprob[who][row] = specv_log_probability(&d, &scale, logit);
        s->lse[who][row] = d.kind == SPECV_SOFTMAX ? specv_log_sum_exp(&d) : d.max;
    }
}

static __global__ void write_logits(state *s) {
    const int id = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    for (int row = 0; row < ROWS && id < VOCAB; ++row) s->logits[row][id] = logit_of(s, row, id);
}

#define CUDA(call)                                                                                 \
    do {                                                                                           \
        if ((call) != cudaSuccess) return printf("failed: %s\n", #call), 1;                        \
    } while (0)

static float random_float(unsigned x) { /* in [-1, 1) */
    return 2 * specv_uniform24(specv_philox(7, x, 0, 0, 0).x[0]) - 1;
}

/* Are the outcomes of two ways equal, bit for bit? */
static int report(const char *what, const void *a, const void *b, size_t bytes) {
    const int equal = memcmp(a, b, bytes) == 0;
    printf("%s: %s\n", what, equal ? "equal" : "NOT equal");
    return equal;
}

int main(void) {
    state *host = (state *)calloc(1, sizeof(state)), *device;
    int status, equal = 1;
    for (int h = 0; h < HIDDEN; ++h)
        for (int id = 0; id < VOCAB; ++id)
            host->weight[h][id] = random_float((unsigned)(id * HIDDEN + h));
    for (int row = 0; row < ROWS; ++row) {
        for (int h = 0; h < HIDDEN; ++h)
            host->hidden[row][h] = random_float((unsigned)(-1 - row * HIDDEN - h));
        host->temperature[row] = 0.25f * (float)row; /* row 0 is greedy */
        host->seed[row] = 1000 + (uint64_t)row;
        host->position[row] = 17 * row; /* of the token to be drawn, in its text */
    }
    CUDA(cudaMalloc((void **)&device, sizeof *device));
    CUDA(cudaMemcpy(device, host, sizeof *device, cudaMemcpyHostToDevice));
    lm_head<<<TILES, 32 * ROWS>>>(device, FUSED);

    /* The same in two steps, with the logits in memory between them. */
    write_logits<<<(VOCAB + 255) / 256, 256>>>(device);
    lm_head<<<TILES, 32 * ROWS>>>(device, FROM_MEMORY);
    specv_sample_desc d = SPECV_ZERO;
    d.batch = ROWS, d.vocab = VOCAB, d.scores.data = device->logits;
    d.method = SPECV_SAMPLE_GUMBEL, d.stream = SPECV_STREAM_COUPLED,
    d.token = device->token[SAMPLER];
    d.temperature = device->temperature, d.seed = device->seed, d.position = device->position;
    d.logprob = device->logprob[SAMPLER], d.lse = device->lse[SAMPLER];
    d.scratch_bytes = specv_sample_scratch_bytes(ROWS, VOCAB);
    CUDA(cudaMalloc(&d.scratch, (size_t)d.scratch_bytes));
    CUDA(cudaMemset(d.scratch, 0, (size_t)d.scratch_bytes));
    status = specv_sample(&d, NULL);
    if (status) return printf("%s\n", specv_status_string(status)), 1;
    CUDA(cudaMemcpy(host, device, sizeof *device, cudaMemcpyDeviceToHost));

    printf("tokens:");
    for (int row = 0; row < ROWS; ++row) printf(" %d", host->token[FUSED][row]);
    printf("\n");
#define SAME(what, field, other)                                                                   \
    equal &= report(what, host->field[FUSED], host->field[other], sizeof host->field[FUSED])
    SAME("sums and maxima of the rows", distribution, FROM_MEMORY);
    SAME("tokens of specv_sample", token, SAMPLER);
    SAME("its log-probabilities", logprob, SAMPLER);
    SAME("its log-sum-exp", lse, SAMPLER);
    printf("per row, written and read: %d bytes of tiles, not %d bytes of logits\n",
           (int)sizeof host->tiles[0], (int)sizeof host->logits[0]);
    printf(equal ? "OK\n" : "MISMATCH\n");
    CUDA(cudaFree(d.scratch));
    CUDA(cudaFree(device));
    free(host);
    return equal ? 0 : 1;
}
