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

enum { VLLM_GUMBEL, VLLM_RECOVER, VLLM_REJECT, VLLM_KERNELS };

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
