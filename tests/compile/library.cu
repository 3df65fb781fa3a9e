/* A shared library that vendors the kit and exports one function of its own, LIBRARY_ENTRY: the
   version of the launcher that ran, and the status bits that its kernel set for a bad draft. */
#define SPECVERIFY_IMPLEMENTATION
#include "specverify.cuh"

extern "C" __attribute__((visibility("default"))) int LIBRARY_ENTRY(unsigned *bits) {
    const int32_t tokens[3] = {-7, 1, 2};
    int32_t *device;
    specv_verify_greedy_desc d = SPECV_ZERO;
    int status = (int)cudaMalloc((void **)&device, 32);
    if (status) return -1;
    cudaMemcpy(device, tokens, sizeof tokens, cudaMemcpyHostToDevice);
    d.rows.batch = 1;
    d.rows.max_draft = 1;
    d.draft_tokens = device;
    d.target_tokens = device + 1;
    d.accepted_len = device + 3;
    d.row_status = (uint32_t *)(device + 4);
    status = specv_verify_greedy(&d, NULL);
    cudaMemcpy(bits, device + 4, sizeof *bits, cudaMemcpyDeviceToHost);
    cudaFree(device);
    return status ? -1 : specv_version();
}
