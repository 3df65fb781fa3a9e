/* A library that calls the kit, or with REFERENCE its reference, and has a function of its own,
   LIBRARY_ENTRY: the version of the launcher that ran, and the status bits that its kernel set for
   a bad draft. As CUDA, C++ or C; whether it implements the kit, too, the command line says. */
#if defined(REFERENCE)
#include "specverify_ref.h"
#else
#include <cuda_runtime_api.h>
#include "specverify.cuh"
#endif

SPECV_EXTERN_C SPECV_VISIBLE int LIBRARY_ENTRY(unsigned *bits);

SPECV_EXTERN_C SPECV_VISIBLE int LIBRARY_ENTRY(unsigned *bits) {
    const int32_t tokens[3] = {-7, 1, 2};
    specv_verify_greedy_desc d = SPECV_ZERO;
    d.rows.batch = 1;
    d.rows.max_draft = 1;
#if defined(REFERENCE)
    int32_t accepted;
    uint32_t row_status;
    d.draft_tokens = tokens;
    d.target_tokens = tokens + 1;
    d.accepted_len = &accepted;
    d.row_status = &row_status;
    if (specv_ref_verify_greedy(&d) != SPECV_OK) return -1;
    *bits = row_status;
    return specv_ref_version();
#else
    int32_t *device;
    int status = (int)cudaMalloc((void **)&device, 32);
    if (status) return -1;
    cudaMemcpy(device, tokens, sizeof tokens, cudaMemcpyHostToDevice);
    d.draft_tokens = device;
    d.target_tokens = device + 1;
    d.accepted_len = device + 3;
    d.row_status = (uint32_t *)(device + 4);
    status = specv_verify_greedy(&d, NULL);
    cudaMemcpy(bits, device + 4, sizeof *bits, cudaMemcpyDeviceToHost);
    cudaFree(device);
    return status ? -1 : specv_version();
#endif
}
