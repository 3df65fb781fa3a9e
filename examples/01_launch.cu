/* Verify a batch of drafts and pack the accepted KV rows: one descriptor, one launch.

       nvcc -arch=native -I .. -o 01_launch 01_launch.cu && ./01_launch

   row 0: 4 of 4 drafts accepted, next token 15, text 11 12 13 14 15
   row 1: 2 of 4 drafts accepted, next token 99, text 21 22 99 -1 -1
   row 2: 0 of 3 drafts accepted, next token 98, text 98 -1 -1 -1 -1
   row 3: 1 of 2 drafts accepted, next token -1, text 2 -1 -1 -1 -1, finished
   packed: kv 0.0, kv 0.1, kv 0.2, kv 0.3, kv 1.0, kv 1.1, kv 3.0
   OK */
#include <cuda_runtime.h>
#include <stdio.h>
#include <string.h>
#define SPECVERIFY_IMPLEMENTATION
#include "specverify.cuh"

#define CUDA(call)                                                                                 \
    do {                                                                                           \
        cudaError_t error = (call);                                                                \
        if (error != cudaSuccess) {                                                                \
            fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error));                         \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

enum { BATCH = 4, MAX_DRAFT = 4, KV_BYTES = 16, CAPACITY = BATCH * MAX_DRAFT, EOS = 2 };

/* All buffers of the step, so that one allocation and two copies do. */
struct step {
    int32_t draft[BATCH][MAX_DRAFT], target[BATCH][MAX_DRAFT + 1], draft_len[BATCH];
    int32_t accepted[BATCH], next[BATCH], text[BATCH][MAX_DRAFT + 1], offsets[BATCH + 1];
    uint8_t finished[BATCH];
    char draft_kv[BATCH][MAX_DRAFT][KV_BYTES], packed_kv[CAPACITY][KV_BYTES];
};

int main(void) {
    static const int32_t draft[BATCH][MAX_DRAFT] = {
        {11, 12, 13, 14}, {21, 22, 23, 24}, {31, 32, 33, -1}, {EOS, 42, -1, -1}};
    static const int32_t target[BATCH][MAX_DRAFT + 1] = {
        {11, 12, 13, 14, 15}, {21, 22, 99, 7, 7}, {98, 7, 7, 7, 7}, {EOS, 42, 43, 7, 7}};
    static const int32_t draft_len[BATCH] = {4, 4, 3, 2};
    static step host;
    const int32_t expected[BATCH] = {4, 2, 0, 1};
    step *device;
    int status;
    memcpy(host.draft, draft, sizeof draft);
    memcpy(host.target, target, sizeof target);
    memcpy(host.draft_len, draft_len, sizeof draft_len);
    for (int b = 0; b < BATCH; ++b)
        for (int j = 0; j < MAX_DRAFT; ++j)
            snprintf(host.draft_kv[b][j], KV_BYTES, "kv %d.%d", b, j);
    CUDA(cudaMalloc((void **)&device, sizeof *device));
    CUDA(cudaMemcpy(device, &host, sizeof host, cudaMemcpyHostToDevice));

    specv_verify_pack_kv_desc d = SPECV_ZERO; /* zero is the default of every field */
    d.verify.rows.batch = BATCH;
    d.verify.rows.max_draft = MAX_DRAFT;
    d.verify.rows.draft_len = device->draft_len;
    d.verify.draft_tokens = device->draft;
    d.verify.target_tokens = device->target;
    d.verify.accepted_len = device->accepted;
    d.verify.next_token = device->next;
    d.verify.out_tokens = device->text;
    d.verify.finished = device->finished;
    d.verify.vocab = 100;
    d.verify.eos_token[0] = EOS;
    d.verify.num_eos = 1;
    d.kv.src = device->draft_kv;
    d.kv.dst = device->packed_kv;
    d.kv.row_bytes = KV_BYTES;
    d.kv.capacity_rows = CAPACITY;
    d.kv.offsets = device->offsets;
    status = specv_verify_pack_kv(&d, NULL); /* only enqueues */
    if (status != SPECV_OK) {
        fprintf(stderr, "%s\n", specv_status_string(status));
        return 1;
    }

    CUDA(cudaMemcpy(&host, device, sizeof host, cudaMemcpyDeviceToHost));
    CUDA(cudaFree(device));
    for (int b = 0; b < BATCH; ++b) {
        printf("row %d: %d of %d drafts accepted, next token %d, text", b, host.accepted[b],
               host.draft_len[b], host.next[b]);
        for (int j = 0; j <= MAX_DRAFT; ++j) printf(" %d", host.text[b][j]);
        printf(host.finished[b] ? ", finished\n" : "\n");
    }
    printf("packed:");
    for (int p = 0; p < host.offsets[BATCH]; ++p) printf("%s %s", p ? "," : "", host.packed_kv[p]);
    status = memcmp(host.accepted, expected, sizeof expected) != 0;
    printf(status ? "\nMISMATCH\n" : "\nOK\n");
    return status;
}
