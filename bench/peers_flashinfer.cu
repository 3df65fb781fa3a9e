/* peers_flashinfer.cu - FlashInfer's own host entry points behind peers.h.
   Includes its headers from where peers.sh was told: -I$FLASHINFER/include. */

#include <cuda_runtime.h>
#include <flashinfer/sampling.cuh>
#include <flashinfer/topk.cuh>

#include "peers.h"

namespace sampling = flashinfer::sampling;

extern "C" int peer_flashinfer_chain(const peer_verify *v, cudaStream_t stream) {
    return (int)sampling::ChainSpeculativeSampling<float, int32_t>(
        v->q, (int32_t *)v->drafts, v->p, v->out, v->accepted, v->emitted, (uint32_t)v->batch,
        (uint32_t)v->n, (uint32_t)v->vocab, true, nullptr, v->seed, nullptr, 0, stream);
}

/* With programmatic dependent launch, as its Python asks for on sm_90. */
extern "C" int peer_flashinfer_softmax(const peer_sample *s, cudaStream_t stream) {
    return (int)sampling::OnlineSoftmax<float>(s->scores, s->probs, (uint32_t)s->batch,
                                               (uint32_t)s->vocab, nullptr, 1.f, s->workspace,
                                               s->workspace_bytes, true, stream);
}

extern "C" int peer_flashinfer_cdf(const peer_sample *s, float *probs, cudaStream_t stream) {
    return (int)sampling::SamplingFromProb<float, int32_t>(
        probs, s->token, (bool *)s->valid, nullptr, (uint32_t)s->batch, (uint32_t)s->vocab, true,
        nullptr, s->seed, nullptr, 0, stream);
}

extern "C" int peer_flashinfer_gumbel(const peer_sample *s, cudaStream_t stream) {
    return (int)sampling::SamplingFromLogits<float, int32_t>(
        s->scores, s->token, nullptr, (uint32_t)s->batch, (uint32_t)s->vocab, true, nullptr,
        s->seed, nullptr, 0, stream);
}

extern "C" int peer_flashinfer_joint(const peer_sample *s, cudaStream_t stream) {
    const int status = peer_flashinfer_softmax(s, stream);
    if (status) return status;
    return (int)sampling::TopKTopPSamplingFromProb<float, int32_t>(
        s->probs, nullptr, nullptr, s->token, (bool *)s->valid, nullptr, (uint32_t)s->batch,
        s->top_k, s->top_p, (uint32_t)s->vocab, true, nullptr, s->seed, nullptr, 0, stream);
}

static int draw_top_p(const peer_sample *s, float *probs, int vocab, cudaStream_t stream) {
    return (int)sampling::TopPSamplingFromProb<float, int32_t>(
        probs, s->token, (bool *)s->valid, nullptr, nullptr, (uint32_t)s->batch, s->top_p,
        (uint32_t)vocab, true, nullptr, s->seed, nullptr, 0, stream);
}

extern "C" int peer_flashinfer_top_p(const peer_sample *s, cudaStream_t stream) {
    const int status = peer_flashinfer_softmax(s, stream);
    return status ? status : draw_top_p(s, s->probs, s->vocab, stream);
}

/* Scores to probabilities in place, and of those the ids that top_p keeps. */
static int draw_of_scores(const peer_sample *s, float *scores, int vocab, cudaStream_t stream) {
    const int status = (int)sampling::OnlineSoftmax<float>(
        scores, scores, (uint32_t)s->batch, (uint32_t)vocab, nullptr, 1.f, s->workspace,
        s->workspace_bytes, true, stream);
    return status ? status : draw_top_p(s, scores, vocab, stream);
}

extern "C" int peer_flashinfer_masked(const peer_sample *s, cudaStream_t stream) {
    const int status = (int)sampling::RadixTopKMaskLogitsMultiCTA<float, int32_t>(
        s->scores, s->probs, nullptr, (uint32_t)s->batch, (uint32_t)s->top_k, (uint32_t)s->vocab,
        (sampling::RadixRowState *)s->row_states, stream);
    return status ? status : draw_of_scores(s, s->probs, s->vocab, stream);
}

/* Sorted and reproducible, as its Python asks for. */
extern "C" int peer_flashinfer_first(const peer_sample *s, cudaStream_t stream) {
    const int status = (int)sampling::TopKDispatch<float, int32_t>(
        s->scores, s->kept, s->kept_score, (uint32_t)s->batch, (uint32_t)s->top_k,
        (uint32_t)s->vocab, (sampling::RadixRowState *)s->row_states, true, true,
        sampling::TopKTieBreak::None, stream);
    return status ? status : draw_of_scores(s, s->kept_score, s->top_k, stream);
}

static __global__ void draw_coins(uint64_t seed, int batch, int which, float *coins) {
    const int row = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    curandStatePhilox4_32_10_t state;
    float coin = 0;
    if (row >= batch) return;
    curand_init(seed, (unsigned long long)row, 0, &state);
    for (int i = 0; i <= which; ++i) coin = curand_uniform(&state);
    coins[row] = coin;
}

extern "C" int peer_flashinfer_coins(uint64_t seed, int batch, int which, float *coins,
                                     cudaStream_t stream) {
    draw_coins<<<(unsigned)(batch + 127) / 128, 128, 0, stream>>>(seed, batch, which, coins);
    return (int)cudaPeekAtLastError();
}
