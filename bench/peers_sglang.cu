/* peers_sglang.cu - SGLang's own host entry point behind peers.h, and its greedy kernel, which
   peers.sh takes out of the file that has it and PyTorch, launched as it is there. The other is
   written on top of FlashInfer's headers: -I$FLASHINFER/include
   -I$SGLANG/sgl-kernel/csrc/speculative. */

#include <cuda_runtime.h>
#include <speculative_sampling.cuh>

#include "peers.h"

#include "sglang_greedy.h"

extern "C" int peer_sglang_tree(const peer_tree *t, cudaStream_t stream) {
    return (int)flashinfer::sampling::TreeSpeculativeSamplingTargetOnly<float, int32_t, int64_t>(
        t->predicts, t->accept_index, t->accepted, t->candidates, t->index, t->next, t->sibling,
        t->coins, t->last_coin, t->p, t->q, (uint32_t)t->batch, (uint32_t)t->steps,
        (uint32_t)t->nodes, (uint32_t)t->vocab, 1.f, 1.f, true, stream);
}

extern "C" int peer_sglang_greedy(const peer_tree *t, cudaStream_t stream) {
    VerifyTreeGreedy<int32_t, int64_t><<<(unsigned)t->batch, 1, 0, stream>>>(
        t->predicts, t->accept_index, t->accepted, t->candidates, t->index, t->next, t->sibling,
        t->target, (uint32_t)t->batch, (uint32_t)t->steps, (uint32_t)t->nodes);
    return (int)cudaPeekAtLastError();
}
