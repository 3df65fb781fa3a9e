/* The other file of a program: launchers, kernels and device functions, no implementation.
   Verifies one row three ways. */
#include <cuda_runtime.h>
#include <stdio.h>
#include "specverify.cuh"

#define CUDA(call)                                                                                 \
    do {                                                                                           \
        if ((call) != cudaSuccess) return printf("failed: %s\n", #call), 1;                        \
    } while (0)

static __global__ void verify_row(const int32_t *draft, const int32_t *target, int32_t *accepted) {
    int len = specv_warp_ballot_accept(draft, target, 3);
    if (threadIdx.x == 0) *accepted = len;
}

int main(void) {
    const int32_t draft[3] = {5, 6, 7}, target[4] = {5, 6, 9, 9};
    int32_t *device, accepted[3] = {0, 0, 0};
    specv_verify_greedy_desc d = SPECV_ZERO;
    specv_verify_greedy_task task = SPECV_ZERO;
    void *args[1] = {&task};
    CUDA(cudaMalloc((void **)&device, 64));
    CUDA(cudaMemcpy(device, draft, sizeof draft, cudaMemcpyHostToDevice));
    CUDA(cudaMemcpy(device + 4, target, sizeof target, cudaMemcpyHostToDevice));
    d.rows.batch = 1;
    d.rows.max_draft = 3;
    d.draft_tokens = device;
    d.target_tokens = device + 4;
    d.accepted_len = device + 8;
    if (specv_verify_greedy(&d, NULL) != SPECV_OK) return 1;
    specv_verify_greedy_resolve(&d);
    d.accepted_len = device + 9;
    task.d = d;
    CUDA(cudaLaunchKernel((const void *)specv_verify_greedy_kernel, dim3(1),
                          dim3(SPECV_VERIFY_THREADS), args, 0, NULL));
    verify_row<<<1, 32>>>(device, device + 4, device + 10);
    CUDA(cudaGetLastError());
    CUDA(cudaMemcpy(accepted, device + 8, sizeof accepted, cudaMemcpyDeviceToHost));
    printf("accepted %d %d %d\n", accepted[0], accepted[1], accepted[2]);
    CUDA(cudaFree(device));
    return accepted[0] == 2 && accepted[1] == 2 && accepted[2] == 2 ? 0 : 1;
}
