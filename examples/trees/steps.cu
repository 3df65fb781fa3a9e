/* Draft trees from SGLang's links and from TensorRT-LLM's paths: see steps.h. The three launches of
   a step follow each other on a stream, and let each other start early.

       nvcc -arch=native -I ../.. -o steps steps.cu && ./steps

   links: 21 steps, 2.51 tokens a step, text and cache as decoded plainly
   paths: 21 steps, 2.51 tokens a step, text and cache as decoded plainly */
#include <cuda_runtime.h>
#define SPECVERIFY_IMPLEMENTATION
#include "specverify.cuh"

#include "steps.h"

int run_layout(const specv_tree_layout_desc *d) {
    specv_tree_layout_desc first = *d;
    first.chained = SPECV_CHAINED_BEFORE;
    return specv_tree_layout(&first, 0);
}

int run_verify(const specv_verify_tree_desc *d) {
    specv_verify_tree_desc second = *d;
    second.chained = SPECV_CHAINED_AFTER | SPECV_CHAINED_BEFORE;
    return specv_verify_tree(&second, 0);
}

/* The host looks at what the step made, so it waits; an engine that does not need to goes on. */
int run_commit(const specv_commit_path_desc *d) {
    specv_commit_path_desc last = *d;
    int status;
    last.chained = SPECV_CHAINED_AFTER;
    status = specv_commit_path(&last, 0);
    return status ? status : (int)cudaDeviceSynchronize();
}

int main() {
    void *memory;
    int wrong;
    if (cudaMallocManaged(&memory, sizeof(shared)) != cudaSuccess) return 2;
    wrong = run_texts((shared *)memory, FROM_LINKS) + run_texts((shared *)memory, FROM_PATHS);
    cudaFree(memory);
    return wrong != 0;
}
