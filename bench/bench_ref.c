/* bench_ref.c - the reference, many times over, for hyperfine to time on a machine without a GPU.

   cc -O3 -std=c99 bench/bench_ref.c -o build/bench_ref
   bench_ref verify|pack|verify_pack B GAMMA ALPHA_PERCENT ROW_BYTES REPEATS

   Prints the tokens and rows of the last run, so that no work can be left out. */

#define SPECVERIFY_REF_STATIC
#define SPECVERIFY_REF_IMPLEMENTATION
#include "../specverify_ref.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state = 7;

static uint32_t random_below(uint32_t limit) { /* 64-bit linear congruence, high half */
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((state >> 32) % limit);
}

static void *allocate(size_t bytes) {
    void *p = calloc(bytes ? bytes : 1, 1);
    if (!p) {
        fprintf(stderr, "bench_ref: out of memory\n");
        exit(1);
    }
    return p;
}

/* Rows whose first k positions agree, k binomial, and whose position k does not. */
static void generate(int batch, int gamma, uint32_t percent, int32_t *draft, int32_t *target) {
    for (int b = 0; b < batch; ++b) {
        int k = 0;
        for (int j = 0; j < gamma; ++j) k += random_below(100) < percent;
        for (int j = 0; j <= gamma; ++j) {
            int32_t token = (int32_t)random_below(4096);
            target[b * (gamma + 1) + j] = token;
            if (j < gamma) draft[b * gamma + j] = j == k ? (token + 1) % 4096 : token;
        }
    }
}

int main(int argc, char **argv) {
    specv_verify_pack_kv_desc d = SPECV_ZERO;
    specv_pack_kv_desc p = SPECV_ZERO;
    int batch, gamma, repeats, status = 0;
    int64_t row_bytes, kv_bytes, sum = 0;
    if (argc != 7) {
        fprintf(stderr, "usage: bench_ref verify|pack|verify_pack B GAMMA ALPHA_PERCENT ROW_BYTES "
                        "REPEATS\n");
        return 2;
    }
    batch = atoi(argv[2]), gamma = atoi(argv[3]), row_bytes = atoi(argv[5]);
    repeats = atoi(argv[6]);
    kv_bytes = (int64_t)batch * gamma * row_bytes;
    d.verify.rows.batch = batch;
    d.verify.rows.max_draft = gamma;
    d.verify.draft_tokens = allocate((size_t)(batch * gamma) * 4);
    d.verify.target_tokens = allocate((size_t)(batch * (gamma + 1)) * 4);
    d.verify.accepted_len = (int32_t *)allocate((size_t)batch * 4);
    d.verify.mismatch = (uint8_t *)allocate((size_t)batch);
    d.verify.next_token = allocate((size_t)batch * 4);
    d.kv.src = allocate((size_t)kv_bytes);
    d.kv.dst = allocate((size_t)kv_bytes);
    d.kv.offsets = (int32_t *)allocate((size_t)(batch + 1) * 4);
    d.kv.row_bytes = row_bytes;
    d.kv.capacity_rows = (int64_t)batch * gamma;
    generate(batch, gamma, (uint32_t)atoi(argv[4]), (int32_t *)d.verify.draft_tokens,
             (int32_t *)d.verify.target_tokens);
    p.rows = d.verify.rows;
    p.accepted_len = d.verify.accepted_len;
    p.kv = d.kv;
    status = specv_ref_verify_greedy(&d.verify);
    for (int i = 0; i < repeats && status == 0; ++i) {
        if (strcmp(argv[1], "verify") == 0)
            status = specv_ref_verify_greedy(&d.verify);
        else if (strcmp(argv[1], "pack") == 0)
            status = specv_ref_pack_kv(&p);
        else
            status = specv_ref_verify_pack_kv(&d);
    }
    if (status != 0) {
        fprintf(stderr, "bench_ref: %s\n", specv_status_string(status));
        return 1;
    }
    for (int b = 0; b < batch; ++b)
        sum += d.verify.accepted_len[b] + ((const int32_t *)d.verify.next_token)[b];
    printf("%lld\n", (long long)sum);
    return 0;
}
