/* A decoding loop without the host in it: propose, verify, pack, all in one CUDA graph for each
   batch bucket. A step takes the smallest bucket that holds the live sequences; how many there
   are, their draft lengths and tokens lie in device memory and change from step to step.

       nvcc -arch=native -I .. -o 04_graph 04_graph.cu && ./04_graph [steps]

   1000 steps in graphs of 4, 8, 16 and 32 rows: 134 136 231 499 replays
   1000 eager steps of the exact batch: equal, bit for bit
   OK */
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#define SPECVERIFY_IMPLEMENTATION
#include "specverify.cuh"

enum { ROWS = 32, GAMMA = 8, KV_BYTES = 64, BUCKETS = 4, SEED = 12345 };

struct state {
    unsigned long long digest; /* of all outputs of all steps */
    int32_t step, num_active;
    int32_t draft_len[ROWS], draft[ROWS][GAMMA], target[ROWS][GAMMA + 1];
    int32_t accepted[ROWS], next[ROWS], text[ROWS][GAMMA + 1], offsets[ROWS + 1];
    uint32_t draft_kv[ROWS][GAMMA][KV_BYTES / 4], packed[ROWS * GAMMA][KV_BYTES / 4];
};

static __host__ __device__ uint32_t mix(uint32_t a, uint32_t b) {
    a = (a ^ b * 0x9e3779b9u) * 0x85ebca6bu;
    a = (a ^ a >> 15) * 0xc2b2ae35u;
    return a ^ a >> 13;
}

/* The scheduler: how many sequences live in a step. The host knows it without asking the device. */
static __host__ __device__ int live_rows(int step) {
    return 1 + (int)(mix(SEED, (uint32_t)step) % ROWS);
}

/* Stands for both models: drafts that agree with the target four times in five, and their KV. */
static __global__ void propose(state *s) {
    const int b = (int)blockIdx.x, j = (int)threadIdx.x;
    const uint32_t seed = mix(mix(SEED + 1, (uint32_t)s->step), (uint32_t)(b * 64 + j));
    if (b == 0 && j == 0) s->num_active = live_rows(s->step);
    if (j == 0) s->draft_len[b] = (int)(seed >> 8) % (GAMMA + 1);
    if (j <= GAMMA) s->target[b][j] = (int)(seed >> 9) % 1000;
    if (j < GAMMA) {
        s->draft[b][j] = (int)(seed >> 9) % 1000 + (seed % 5 == 0);
        for (int i = 0; i < KV_BYTES / 4; ++i) s->draft_kv[b][j][i] = mix(seed, (uint32_t)i);
    }
}

/* Folds what the step put out into the digest, and goes to the next step. The sum of its terms
   does not depend on their order. One block. */
static __global__ void fold(state *s, int rows) {
    __shared__ unsigned long long sum;
    const int thread = (int)threadIdx.x, live = live_rows(s->step);
    unsigned long long mine = 0;
    if (thread == 0) sum = 0;
    __syncthreads();
#define FOLD(array, count)                                                                         \
    for (int i = thread; i < (count); i += (int)blockDim.x)                                        \
        mine += mix((uint32_t)(array)[i], (uint32_t)(i + s->step * 7919)) * 0x9e3779b97f4a7c15ull;
    FOLD(s->accepted, live)
    FOLD(s->next, live)
    FOLD(&s->text[0][0], live * (GAMMA + 1))
    FOLD(s->offsets, live + 1)
    FOLD(&s->packed[0][0], s->offsets[live] * KV_BYTES / 4)
    for (int b = live + thread; b < rows; b += (int)blockDim.x) /* padding says nothing */
        mine += s->accepted[b] != 0 || s->next[b] != -1;
    atomicAdd(&sum, mine);
    __syncthreads();
    if (thread == 0) s->digest = s->digest * 31 + sum, s->step += 1;
}

/* One step of `rows` rows; rows beyond *num_active are padding. Null: all rows live. */
static int enqueue(state *s, int rows, const int32_t *num_active, cudaStream_t stream) {
    specv_verify_pack_kv_desc d = SPECV_ZERO;
    int status;
    d.verify.rows.batch = rows, d.verify.rows.max_draft = GAMMA;
    d.verify.rows.num_active = num_active, d.verify.rows.draft_len = s->draft_len;
    d.verify.draft_tokens = s->draft, d.verify.target_tokens = s->target;
    d.verify.accepted_len = s->accepted, d.verify.next_token = s->next;
    d.verify.out_tokens = s->text;
    d.kv.src = s->draft_kv, d.kv.dst = s->packed, d.kv.offsets = s->offsets;
    d.kv.row_bytes = KV_BYTES, d.kv.capacity_rows = ROWS * GAMMA;
    propose<<<rows, 32, 0, stream>>>(s);
    status = specv_verify_pack_kv(&d, stream);
    fold<<<1, 256, 0, stream>>>(s, rows);
    return status;
}

#define CUDA(call)                                                                                 \
    do {                                                                                           \
        if ((call) != cudaSuccess) return printf("failed: %s\n", #call), 1;                        \
    } while (0)

int main(int argc, char **argv) {
    const int steps = argc > 1 ? atoi(argv[1]) : 1000;
    int replays[BUCKETS] = {0};
    state *device, replayed, eager;
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t bucket[BUCKETS];
    size_t free_before, free_after, total;
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUDA(cudaMalloc((void **)&device, sizeof *device));
    CUDA(cudaMemset(device, 0, sizeof *device));
    for (int i = 0; i < BUCKETS; ++i) { /* global mode: to allocate or to synchronise is an error */
        CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
        if (enqueue(device, 4 << i, &device->num_active, stream) != SPECV_OK) return 1;
        CUDA(cudaStreamEndCapture(stream, &graph));
        CUDA(cudaGraphInstantiate(&bucket[i], graph, 0));
        CUDA(cudaGraphDestroy(graph));
        CUDA(cudaGraphLaunch(bucket[i], stream)); /* the first launch may load code */
    }
    CUDA(cudaMemsetAsync(device, 0, sizeof *device, stream));
    CUDA(cudaStreamSynchronize(stream));

    CUDA(cudaMemGetInfo(&free_before, &total));
    for (int step = 0; step < steps; ++step) { /* launches, and nothing else */
        int i = 0;
        while (4 << i < live_rows(step)) ++i;
        replays[i] += 1;
        CUDA(cudaGraphLaunch(bucket[i], stream));
    }
    CUDA(cudaMemGetInfo(&free_after, &total));
    CUDA(cudaMemcpyAsync(&replayed, device, sizeof replayed, cudaMemcpyDeviceToHost, stream));
    CUDA(cudaStreamSynchronize(stream));

    CUDA(cudaMemsetAsync(device, 0, sizeof *device, stream));
    for (int step = 0; step < steps; ++step)
        if (enqueue(device, live_rows(step), NULL, stream) != SPECV_OK) return 1;
    CUDA(cudaMemcpyAsync(&eager, device, sizeof eager, cudaMemcpyDeviceToHost, stream));
    CUDA(cudaStreamSynchronize(stream));

    int equal = replayed.digest == eager.digest && replayed.step == steps && eager.step == steps;
    printf("%d steps in graphs of 4, 8, 16 and 32 rows: %d %d %d %d replays\n", steps, replays[0],
           replays[1], replays[2], replays[3]);
    printf("%d eager steps of the exact batch: %s\n", steps,
           equal ? "equal, bit for bit" : "NOT equal");
    if (free_before != free_after) printf("device memory shrank or grew in the loop\n"), equal = 0;
    printf(equal ? "OK\n" : "MISMATCH\n");
    for (int i = 0; i < BUCKETS; ++i) CUDA(cudaGraphExecDestroy(bucket[i]));
    CUDA(cudaFree(device));
    CUDA(cudaStreamDestroy(stream));
    return equal ? 0 : 1;
}
