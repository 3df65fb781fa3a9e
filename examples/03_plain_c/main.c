/* A C99 program calls the launchers; the kernels are compiled in kit.cu.

       nvcc -arch=native -I ../.. -o plain_c main.c kit.cu && ./plain_c

   accepted 3 1 0, next 14 77 88
   after 2 steps: 6 rows, 8 accepted of 18 drafted, 2.33 tokens per row
   OK */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include "specverify.cuh"

enum { BATCH = 3, MAX_DRAFT = 3 };

typedef struct {
    int64_t totals[SPECV_STAT_COUNT];
    int32_t draft[BATCH][MAX_DRAFT], target[BATCH][MAX_DRAFT + 1];
    int32_t accepted[BATCH], next[BATCH], emitted[BATCH];
} step;

static int failed(int status, const char *what) {
    if (status != SPECV_OK)
        fprintf(stderr, "%s: %s\n", what,
                status > 0 ? cudaGetErrorString((cudaError_t)status) : specv_status_string(status));
    return status != SPECV_OK;
}

int main(void) {
    step host = {{0},
                 {{11, 12, 13}, {21, 22, 23}, {31, 32, 33}},
                 {{11, 12, 13, 14}, {21, 77, 0, 0}, {88, 0, 0, 0}},
                 {0},
                 {0},
                 {0}};
    step *device;
    specv_verify_greedy_desc verify = SPECV_ZERO;
    specv_accept_stats_desc stats = SPECV_ZERO;
    if (specv_version() != SPECVERIFY_VERSION) return 1; /* kit.cu saw another header */
    if (failed((int)cudaMalloc((void **)&device, sizeof *device), "cudaMalloc")) return 1;
    if (failed((int)cudaMemcpy(device, &host, sizeof host, cudaMemcpyHostToDevice), "copy"))
        return 1;

    verify.rows.batch = BATCH;
    verify.rows.max_draft = MAX_DRAFT;
    verify.draft_tokens = device->draft;
    verify.target_tokens = device->target;
    verify.accepted_len = device->accepted;
    verify.next_token = device->next;
    verify.num_emitted = device->emitted;
    stats.rows = verify.rows;
    stats.accumulate = 1;
    stats.accepted_len = device->accepted;
    stats.num_emitted = device->emitted;
    stats.totals = device->totals;
    for (int n = 0; n < 2; ++n) {
        if (failed(specv_verify_greedy(&verify, NULL), "verify")) return 1;
        if (failed(specv_accept_stats(&stats, NULL), "stats")) return 1;
    }
    if (failed((int)cudaMemcpy(&host, device, sizeof host, cudaMemcpyDeviceToHost), "copy"))
        return 1;
    cudaFree(device);

    printf("accepted %d %d %d, next %d %d %d\n", host.accepted[0], host.accepted[1],
           host.accepted[2], host.next[0], host.next[1], host.next[2]);
    printf("after %d steps: %d rows, %d accepted of %d drafted, %.2f tokens per row\n",
           (int)host.totals[SPECV_STAT_STEPS], (int)host.totals[SPECV_STAT_ROWS],
           (int)host.totals[SPECV_STAT_ACCEPTED], (int)host.totals[SPECV_STAT_DRAFTED],
           specv_block_efficiency(host.totals));
    if (host.accepted[0] != 3 || host.accepted[1] != 1 || host.accepted[2] != 0 ||
        host.totals[SPECV_STAT_EMITTED] != 14) {
        printf("MISMATCH\n");
        return 1;
    }
    printf("OK\n");
    return 0;
}
