/* The kit's device functions inside a kernel of your own: attention over each sequence's KV cache,
   the target's tokens, the accept scan and the commit of the KV, all in one launch.

       nvcc -arch=native -I .. -o 02_in_your_kernel 02_in_your_kernel.cu && ./02_in_your_kernel

   accepted: 0 1 2 3 4 5 6 0 1 2 3 4 5 6 0 1 2 3 4 5 6 0 1 2
   fused and unfused: accepted, next tokens, offsets, packed KV and caches are equal
   OK

   Unfused: the same model writes the target's tokens, then specv_verify_pack_kv packs, then a
   third kernel appends to the caches. */
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define SPECVERIFY_IMPLEMENTATION
#include "specverify.cuh"

/* One head of 32 dimensions, one lane each. One block holds all rows: a warp scan places them. */
enum { ROWS = 24, GAMMA = 6, VOCAB = 64, DIM = 32, CACHE = 64, KV = 2 * DIM };

struct state {
    float embedding[VOCAB][DIM], key[VOCAB][DIM], value[VOCAB][DIM];
    int32_t last[ROWS], draft[ROWS][GAMMA], target[ROWS][GAMMA + 1], len[ROWS];
    int32_t accepted[ROWS], next[ROWS], offsets[ROWS + 1];
    float draft_kv[ROWS][GAMMA][KV], packed[ROWS * GAMMA][KV];
    float cache[ROWS][CACHE][KV]; /* len[row] rows hold accepted text */
};

static __device__ float warp_sum(float x) {
    for (int distance = 16; distance > 0; distance /= 2)
        x += __shfl_xor_sync(0xffffffff, x, distance);
    return x;
}

/* The target model at one position: attention over the cache and the drafts before, then the id
   with the largest logit, the lowest on ties. Call: warp. */
static __device__ int target_token(const state *s, int row, int position, int lane) {
    int token = position ? s->draft[row][position - 1] : s->last[row], best = 0;
    float query = s->embedding[token][lane], out = 0, sum = 0, best_logit = -1e30f;
    for (int t = 0; t < s->len[row] + position; ++t) {
        const float *kv = t < s->len[row] ? s->cache[row][t] : s->draft_kv[row][t - s->len[row]];
        float weight = expf(warp_sum(query * kv[lane]) + 0.01f * (float)t);
        out = fmaf(weight, kv[DIM + lane], out);
        sum += weight;
    }
    out = query + (sum > 0 ? out / sum : 0);
    for (int id = 0; id < VOCAB; ++id) {
        float logit = warp_sum(out * s->value[id][lane]);
        if (logit > best_logit) best_logit = logit, best = id;
    }
    return best;
}

static __device__ void run_target(state *s, int row, int lane) {
    for (int j = 0; j < GAMMA; ++j) { /* the KV that the drafts add, if they are accepted */
        s->draft_kv[row][j][lane] = s->key[s->draft[row][j]][lane];
        s->draft_kv[row][j][DIM + lane] = s->value[s->draft[row][j]][lane];
    }
    __syncwarp();
    for (int j = 0; j <= GAMMA; ++j) {
        int token = target_token(s, row, j, lane);
        if (lane == 0) s->target[row][j] = token;
    }
    __syncwarp();
}

static __global__ void fused(state *s) {
    __shared__ int lens[ROWS];
    const int row = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    run_target(s, row, lane);
    int accepted = warp_ballot_accept(s->draft[row], s->target[row], GAMMA);
    if (lane == 0) lens[row] = accepted;
    __syncthreads();
    int total, first = warp_exclusive_scan(lane < ROWS ? lens[lane] : 0, &total);
    if (row == 0 && lane < ROWS) s->offsets[lane] = first;
    first = __shfl_sync(0xffffffff, first, row);
    int64_t bytes = accepted * (int64_t)sizeof s->packed[0];
    warp_copy_kv(s->packed[first], s->draft_kv[row], bytes);
    warp_copy_kv(s->cache[row][s->len[row]], s->draft_kv[row], bytes);
    __syncwarp();
    if (lane == 0) {
        s->accepted[row] = accepted, s->len[row] += accepted;
        s->next[row] = thread_next_token(s->target[row], accepted, VOCAB);
        if (row == 0) s->offsets[ROWS] = total;
    }
}

static __global__ void target_only(state *s) {
    run_target(s, (int)threadIdx.x / 32, (int)threadIdx.x % 32);
}

static __global__ void append(state *s) {
    const int row = (int)blockIdx.x;
    block_copy_kv(s->cache[row][s->len[row]], s->packed[s->offsets[row]],
                  s->accepted[row] * (int64_t)sizeof s->packed[0]);
    __syncthreads();
    if (threadIdx.x == 0) s->len[row] += s->accepted[row];
}

#define CUDA(call)                                                                                 \
    do {                                                                                           \
        if ((call) != cudaSuccess) return printf("failed: %s\n", #call), 1;                        \
    } while (0)

int main(void) {
    const size_t bytes = sizeof(state);
    state *start = (state *)calloc(1, bytes), *one = (state *)malloc(bytes), *device;
    state *three = (state *)malloc(bytes);
    float *weights = &start->embedding[0][0], *cache = &start->cache[0][0][0];
    for (int i = 0; i < 3 * VOCAB * DIM; ++i) weights[i] = (float)(i * 7919 % 2003 - 1001) / 1500;
    for (int i = 0; i < ROWS * CACHE * KV; ++i) cache[i] = (float)(i * 31 % 1009 - 504) / 700;
    for (int b = 0; b < ROWS; ++b) start->last[b] = b * 5 % VOCAB, start->len[b] = 3 + b % 9;

    /* Drafts that the target agrees with, one position more each time; then row b goes wrong at
       position b % 7. */
    CUDA(cudaMalloc((void **)&device, bytes));
    for (int j = 0; j <= GAMMA; ++j) {
        CUDA(cudaMemcpy(device, start, bytes, cudaMemcpyHostToDevice));
        target_only<<<1, ROWS * 32>>>(device);
        CUDA(cudaMemcpy(one, device, bytes, cudaMemcpyDeviceToHost));
        for (int b = 0; b < ROWS; ++b)
            memcpy(start->draft[b], one->target[b], sizeof one->draft[b]);
    }
    for (int b = 0; b < ROWS; ++b)
        if (b % 7 < GAMMA) start->draft[b][b % 7] = (start->draft[b][b % 7] + 1) % VOCAB;

    CUDA(cudaMemcpy(device, start, bytes, cudaMemcpyHostToDevice));
    fused<<<1, ROWS * 32>>>(device);
    CUDA(cudaMemcpy(one, device, bytes, cudaMemcpyDeviceToHost));

    CUDA(cudaMemcpy(device, start, bytes, cudaMemcpyHostToDevice));
    target_only<<<1, ROWS * 32>>>(device);
    specv_verify_pack_kv_desc d = SPECV_ZERO;
    d.verify.rows.batch = ROWS, d.verify.rows.max_draft = GAMMA, d.verify.vocab = VOCAB;
    d.verify.draft_tokens = device->draft, d.verify.target_tokens = device->target;
    d.verify.accepted_len = device->accepted, d.verify.next_token = device->next;
    d.kv.src = device->draft_kv, d.kv.dst = device->packed, d.kv.offsets = device->offsets;
    d.kv.row_bytes = sizeof device->packed[0], d.kv.capacity_rows = ROWS * GAMMA;
    if (specv_verify_pack_kv(&d, NULL) != SPECV_OK) return 1;
    append<<<ROWS, 64>>>(device);
    CUDA(cudaMemcpy(three, device, bytes, cudaMemcpyDeviceToHost));

    printf("accepted:");
    for (int b = 0; b < ROWS; ++b) printf(" %d", one->accepted[b]);
    int equal = memcmp(one, three, bytes) == 0;
    printf("\nfused and unfused: accepted, next tokens, offsets, packed KV and caches are %s\n%s\n",
           equal ? "equal" : "NOT equal", equal ? "OK" : "MISMATCH");
    CUDA(cudaFree(device));
    return equal ? 0 : 1;
}
