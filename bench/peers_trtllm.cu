/* peers_trtllm.cu - TensorRT-LLM's kernel that accepts along paths, behind peers.h. peers.sh takes
   it out of its file; the few names that it uses of the engine are declared here. Launched as the
   engine does, without end ids, slots and Medusa's pointers, which it takes for not given. */

#include <stdint.h>

#include <cuda_runtime.h>
#include <cub/cub.cuh>

#include "peers.h"

namespace trtllm {
typedef int32_t SizeType32;
typedef int32_t TokenIdType;

struct FinishedState {
    __device__ void setFinishedEOS() { state |= 1; }
    uint8_t state;
};

__device__ inline int32_t flat_index2(int32_t i, int32_t j, int32_t columns) {
    return i * columns + j;
}

__device__ inline int32_t flat_index3(int32_t i, int32_t j, int32_t k, int32_t rows,
                                      int32_t columns) {
    return (i * rows + j) * columns + k;
}

#include "trtllm_paths.h"
} // namespace trtllm

extern "C" int peer_trtllm_paths(const peer_paths *t, cudaStream_t stream) {
    enum { THREADS = 256 };
    trtllm::acceptDraftTokensByIdsWithPaths<float, THREADS>
        <<<(unsigned)t->batch, THREADS, 0, stream>>>(
            t->out, t->drafts, t->target, nullptr, t->accepted, nullptr, nullptr, t->paths, nullptr,
            nullptr, nullptr, nullptr, nullptr, t->best, t->batch, 0, t->batch, t->steps,
            t->steps - 1, t->nodes);
    return (int)cudaPeekAtLastError();
}
