/* peers_cycles.cu - a token of raw logits with top-k and top-p, ours and FlashInfer's, in one run
   of the simulator: cycles of each kernel. No source of FlashInfer is here: its headers come from
   -I$FLASHINFER/include. Times of a GPU: peers.sh.

     $GPGPUSIM/build bench/peers_cycles.cu OUT -I. -I$FLASHINFER/include -DBENCH_SIMULATED \
         -use_fast_math
     KIT_ONLY="filtered_kernel filter_kernel Softmax TopKTopP" $GPGPUSIM/sim OUT VOCAB SHARP

   One row of VOCAB ids, f32, top_k 50, top_p 0.9 of all that there is (FlashInfer's "joint"),
   without programmatic launches, which the simulator has not. SHARP: the logits are multiplied by
   it. All is in L2 from the second turn on. */

#include <stdio.h>
#include <stdlib.h>

#include <cuda_runtime.h>
#include <flashinfer/sampling.cuh>

#include "simulated.h" /* what the simulator lacks; before the kit */
#define SPECVERIFY_IMPLEMENTATION
#include "specverify.cuh"

namespace sampling = flashinfer::sampling;

static void check(int status, const char *what) {
    if (status == 0) return;
    printf("RESULT %s failed: %d\n", what, status);
    exit(1);
}

static void *device_memory(size_t bytes) {
    void *memory = NULL;
    check(cudaMalloc(&memory, bytes), "cudaMalloc");
    check(cudaMemset(memory, 0, bytes), "cudaMemset");
    return memory;
}

template <typename T> static T *uploaded(const T *from, size_t count) {
    T *memory = (T *)device_memory(count * sizeof(T));
    check(cudaMemcpy(memory, from, count * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
    return memory;
}

static uint64_t hash(uint64_t z) {
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Of variance 1, from four even numbers. */
static float normal(uint64_t which) {
    const uint64_t z = hash(which);
    const int sum =
        (int)(z & 0xffff) + (int)(z >> 16 & 0xffff) + (int)(z >> 32 & 0xffff) + (int)(z >> 48);
    return (float)(sum - 131070) / 37837.f;
}

/* How many ids are likelier than that of `token`. */
static int rank_of(const float *logits, int vocab, const int32_t *token) {
    int32_t id = -1;
    int rank = 0;
    check(cudaMemcpy(&id, token, 4, cudaMemcpyDeviceToHost), "cudaMemcpy");
    if (id < 0 || id >= vocab) check(1, "a token");
    for (int x = 0; x < vocab; ++x) rank += logits[x] > logits[id];
    return rank;
}

/* One token of each side. */
typedef struct both_sides {
    specv_sample_desc ours;
    float *scores, *probs;
    void *workspace;
    size_t workspace_bytes;
    int32_t *token;
    bool *valid;
    int vocab;
} both_sides;

static const int32_t top_k = 50, position = 0;
static const float top_p = 0.9f;
static const uint64_t seed = 1;

static int launch_ours(const both_sides *b, cudaStream_t stream) {
    return specv_sample(&b->ours, stream);
}

static int launch_theirs(const both_sides *b, cudaStream_t stream) {
    int status =
        sampling::OnlineSoftmax<float>(b->scores, b->probs, 1, (uint32_t)b->vocab, nullptr, 1.f,
                                       b->workspace, b->workspace_bytes, false, stream);
    if (status) return status;
    return sampling::TopKTopPSamplingFromProb<float, int32_t>(
        b->probs, nullptr, nullptr, b->token, b->valid, nullptr, 1, top_k, top_p,
        (uint32_t)b->vocab, true, nullptr, seed, nullptr, 0, stream);
}

int main(int argc, char **argv) {
    const int vocab = argc > 1 ? atoi(argv[1]) : 128256;
    const float sharp = argc > 2 ? (float)atof(argv[2]) : 1;
    float *logits = (float *)malloc(4 * (size_t)vocab);
    both_sides both = SPECV_ZERO;
    specv_sample_desc *d = &both.ours;
    const cudaStream_t stream = 0;
    if (!logits) check(1, "malloc");
    for (int x = 0; x < vocab; ++x) logits[x] = 3 * sharp * normal((uint64_t)x);
    both.vocab = vocab;
    both.scores = uploaded(logits, (size_t)vocab);
    both.probs = (float *)device_memory(4 * (size_t)vocab);
    both.token = (int32_t *)device_memory(4);
    both.valid = (bool *)device_memory(1);
    both.workspace_bytes = 1 << 20;
    both.workspace = device_memory(both.workspace_bytes);
    d->batch = 1, d->vocab = vocab;
    d->scores.data = both.scores, d->scores.dtype = SPECV_LOGITS_F32;
    d->filters.top_k = uploaded(&top_k, 1), d->filters.top_p = uploaded(&top_p, 1);
    d->filters.order = SPECV_TOP_P_OF_ALL;
    d->seed = uploaded(&seed, 1), d->position = uploaded(&position, 1);
    d->token = both.token, d->token_dtype = SPECV_I32;
    d->scratch_bytes = specv_sample_scratch_bytes(1, vocab);
    d->scratch = device_memory((size_t)d->scratch_bytes);
    check(cudaDeviceSynchronize(), "inputs");
    for (int turn = 0; turn < 2; ++turn) {
        check(launch_ours(&both, stream), "specv_sample");
        check(cudaDeviceSynchronize(), "ours");
        printf("RESULT ours rank %d\n", rank_of(logits, vocab, both.token));
        check(launch_theirs(&both, stream), "FlashInfer");
        check(cudaDeviceSynchronize(), "theirs");
        printf("RESULT theirs rank %d\n", rank_of(logits, vocab, both.token));
    }
    return 0;
}
