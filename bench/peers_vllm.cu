/* peers_vllm.cu - vLLM's Triton kernels behind peers.h, launched in the grids of its own Python.
   Includes what peers_vllm.py has made of a checkout. The runtime gets their fat binaries the way
   that nvcc gives it a program's own: there are no sources for nvcc to compile. */

#include <cuda_runtime.h>

#include "peers.h"

typedef struct peer_kernel {
    const char *name;
    const unsigned long long *data;
    size_t shared;
    unsigned threads;
} peer_kernel;

#include "vllm_kernels.h"

/* Of the last two the first is for 32000 ids, the second for 128256. */
enum {
    VLLM_GUMBEL,
    VLLM_RECOVER,
    VLLM_REJECT,
    VLLM_STATS,
    VLLM_RESAMPLE,
    VLLM_JUDGE,
    VLLM_INSERT = VLLM_JUDGE + 2,
    VLLM_KERNELS = VLLM_INSERT + 2
};

extern "C" void **__cudaRegisterFatBinary(void *wrapper);
extern "C" void __cudaRegisterFatBinaryEnd(void **module);
extern "C" void __cudaRegisterFunction(void **module, const char *host, char *device,
                                       const char *name, int limit, uint3 *, uint3 *, dim3 *,
                                       dim3 *, int *);

static char handles[VLLM_KERNELS]; /* the runtime knows a kernel by an address of ours */

static void register_all(void) {
    static struct {
        int magic, version;
        const void *data;
        void *file;
    } wrappers[VLLM_KERNELS];
    static int is_done;
    if (is_done++) return;
    for (int k = 0; k < VLLM_KERNELS; ++k) {
        void **module;
        char *name = (char *)peer_kernels[k].name;
        wrappers[k].magic = 0x466243b1, wrappers[k].version = 1;
        wrappers[k].data = peer_kernels[k].data;
        module = __cudaRegisterFatBinary(&wrappers[k]);
        __cudaRegisterFunction(module, &handles[k], name, name, -1, 0, 0, 0, 0, 0);
        __cudaRegisterFatBinaryEnd(module);
    }
}

static int launch(int kernel, int x, int y, void **args, cudaStream_t stream) {
    const dim3 grid((unsigned)x, (unsigned)y), block(peer_kernels[kernel].threads);
    register_all();
    return (int)cudaLaunchKernel(&handles[kernel], grid, block, args, peer_kernels[kernel].shared,
                                 stream);
}

static void *no_scratch; /* two parameters that Triton adds to every kernel */

extern "C" int peer_vllm_gumbel(const peer_noise *s, cudaStream_t stream) {
    int tiles = (s->vocab + 1023) / 1024, no_stride = 0;
    peer_noise a = *s;
    void *args[] = {&a.tile_token,  &tiles,   &a.tile_best, &tiles,     &no_stride,
                    &a.logits,      &a.vocab, &a.row,       &a.seed,    &a.position,
                    &a.temperature, &a.vocab, &no_scratch,  &no_scratch};
    return launch(VLLM_GUMBEL, s->batch, tiles, args, stream);
}

extern "C" int peer_vllm_reject(const peer_race *r, cudaStream_t stream) {
    peer_race a = *r;
    void *recover[] = {&a.recovered, &a.ends,  &a.drafts,   &a.q,       &a.p,
                       &a.inverse,   &a.vocab, &no_scratch, &no_scratch};
    void *reject[] = {&a.out,   &a.ends,      &a.drafts,  &a.q,         &a.p,
                      &a.bonus, &a.recovered, &a.coins,   &a.is_greedy, &a.n,
                      &a.vocab, &no_scratch,  &no_scratch};
    const int status = launch(VLLM_RECOVER, r->batch, r->n, recover, stream);
    return status ? status : launch(VLLM_REJECT, r->batch, 1, reject, stream);
}

/* Four launches, as probabilistic_rejection_sample() makes them. */
extern "C" int peer_vllm_logits(const peer_logits *l, cudaStream_t stream) {
    const int is_large = l->vocab > 32000;
    int blocks = (l->vocab + 8191) / 8192, tiles = (l->vocab + 1023) / 1024;
    int out_stride = l->n + 1, q_stride = l->n * l->vocab, status;
    peer_logits a = *l;
    void *stats[] = {&a.p_argmax, &blocks,   &a.p_max,    &blocks,    &a.p_sum, &blocks,
                     &a.q_max,    &blocks,   &a.q_sum,    &blocks,    &a.p,     &a.vocab,
                     &a.q,        &q_stride, &a.vocab,    &a.row,     &a.step,  &a.temperature,
                     &a.vocab,    &a.n,      &no_scratch, &no_scratch};
    void *judge[] = {&a.out,   &out_stride, &a.num_out, &a.p_lse,    &a.q_lse,   &a.p,
                     &a.vocab, &a.p_argmax, &blocks,    &a.p_max,    &blocks,    &a.p_sum,
                     &blocks,  &a.drafts,   &a.q,       &q_stride,   &a.vocab,   &a.q_max,
                     &blocks,  &a.q_sum,    &blocks,    &a.ends,     &a.request, &a.temperature,
                     &a.seed,  &a.position, &blocks,    &no_scratch, &no_scratch};
    void *resample[] = {&a.tile_token, &tiles,      &a.tile_best, &tiles,      &a.p,
                        &a.vocab,      &a.p_lse,    &a.q,         &q_stride,   &a.vocab,
                        &a.q_lse,      &a.num_out,  &a.ends,      &a.row,      &a.temperature,
                        &a.seed,       &a.position, &a.vocab,     &no_scratch, &no_scratch};
    void *insert[] = {&a.out,         &out_stride, &a.num_out, &a.tile_token, &tiles,
                      &a.tile_best,   &tiles,      &tiles,     &a.ends,       &a.row,
                      &a.temperature, &no_scratch, &no_scratch};
    status = launch(VLLM_STATS, l->batch * out_stride, blocks, stats, stream);
    if (!status) status = launch(VLLM_JUDGE + is_large, l->batch, 1, judge, stream);
    if (!status) status = launch(VLLM_RESAMPLE, l->batch, tiles, resample, stream);
    if (!status) status = launch(VLLM_INSERT + is_large, l->batch, 1, insert, stream);
    return status;
}
