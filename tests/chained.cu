/* chained.cu - launches behind others that are not complete: kernels of the kit as programmatic
   dependents, and kernels of its user behind the kit's. */

#include "batch.h"

#if T_DEVICE

enum { PDL_ROWS = 8, PDL_DRAFT = 4, PDL_DRAFTS = PDL_ROWS * PDL_DRAFT };
enum { PDL_TOKENS = PDL_DRAFTS + PDL_ROWS * (PDL_DRAFT + 1) };

/* Row b accepts b % 5 drafts. words: drafts, then targets; next, the accepted lengths. */
static void dependent_inputs(int32_t *words) {
    for (int b = 0; b < PDL_ROWS; ++b) {
        for (int j = 0; j <= PDL_DRAFT; ++j)
            words[PDL_DRAFTS + b * (PDL_DRAFT + 1) + j] = 10 * b + j;
        for (int j = 0; j < PDL_DRAFT; ++j)
            words[b * PDL_DRAFT + j] = 10 * b + j + (j == b % (PDL_DRAFT + 1));
        words[PDL_TOKENS + b] = b % (PDL_DRAFT + 1);
    }
}

#endif

/* Every kernel may be the programmatic dependent of the one that writes its inputs: it waits before
   it reads. Without a wait the interpreter reports what was read too early. */
static void test_dependents(void) {
#if T_DEVICE
    enum { INPUTS = PDL_TOKENS + PDL_ROWS };
    int32_t input[INPUTS], offsets[PDL_ROWS + 1], accepted[PDL_ROWS];
    int64_t totals[SPECV_STAT_COUNT];
    int32_t *staged, *made;
    char *out;
    specv_verify_pack_kv_desc d = SPECV_ZERO;
    specv_accept_stats_desc stats = SPECV_ZERO;
    dependent_inputs(input);
    T_CUDA(cudaMalloc((void **)&staged, sizeof input));
    T_CUDA(cudaMalloc((void **)&made, sizeof input));
    T_CUDA(cudaMalloc((void **)&out, 4096));
    T_CUDA(cudaMemset(out, 0, 4096));
    T_CUDA(cudaMemcpy(staged, input, sizeof input, cudaMemcpyHostToDevice));
    d.verify.rows.batch = PDL_ROWS, d.verify.rows.max_draft = PDL_DRAFT;
    d.verify.draft_tokens = made, d.verify.target_tokens = made + PDL_DRAFTS;
    d.verify.accepted_len = (int32_t *)out;
    d.kv.src = out + 1024, d.kv.dst = out + 2048, d.kv.row_bytes = 16, d.kv.capacity_rows = 64;
    d.kv.offsets = (int32_t *)out + PDL_ROWS, d.kv.num_sms = 4;
    stats.rows = d.verify.rows, stats.accepted_len = made + PDL_TOKENS;
    stats.totals = (int64_t *)(out + 512);
    d.verify.chained = stats.chained = SPECV_CHAINED_AFTER;
    /* 3: a chain of three; 4: KV in odd pieces, B2, then, 5, B1 */
    for (int kernel = 0; kernel < 6; ++kernel) {
        t_case("dependent kernel %d", kernel);
        T_CUDA(cudaMemset(made, 0xff, sizeof input));
        T_CUDA(cudaMemset(out, 0xff, 1024));
        t_produce(made, staged, 4 * INPUTS);
        if (kernel == 0) CHECK_EQ(specv_verify_greedy(&d.verify, 0), SPECV_OK, -1);
        if (kernel == 1) CHECK_EQ(specv_verify_pack_kv(&d, 0), SPECV_OK, -1);
        if (kernel == 4) {
            d.kv.row_bytes = 24, d.verify.chained = SPECV_CHAINED_AFTER;
            CHECK_EQ(specv_verify_pack_kv(&d, 0), SPECV_OK, -1);
        }
        if (kernel == 2) CHECK_EQ(specv_accept_stats(&stats, 0), SPECV_OK, -1);
        if (kernel == 5) {
            specv_pack_kv_desc pack = SPECV_ZERO;
            pack.rows = d.verify.rows, pack.accepted_len = made + PDL_TOKENS, pack.kv = d.kv;
            pack.chained = SPECV_CHAINED_AFTER;
            CHECK_EQ(specv_pack_kv(&pack, 0), SPECV_OK, -1);
        }
        if (kernel == 3) {
            specv_pack_kv_desc pack = SPECV_ZERO;
            pack.rows = d.verify.rows, pack.accepted_len = d.verify.accepted_len, pack.kv = d.kv;
            stats.accepted_len = d.verify.accepted_len;
            pack.chained = d.verify.chained = SPECV_CHAINED_AFTER | SPECV_CHAINED_BEFORE;
            CHECK_EQ(specv_verify_greedy(&d.verify, 0), SPECV_OK, -1);
            CHECK_EQ(specv_pack_kv(&pack, 0), SPECV_OK, -1);
            CHECK_EQ(specv_accept_stats(&stats, 0), SPECV_OK, -1);
        }
        t_check_dependents();
        T_CUDA(cudaMemcpy(accepted, out, sizeof accepted, cudaMemcpyDeviceToHost));
        T_CUDA(cudaMemcpy(offsets, d.kv.offsets, sizeof offsets, cudaMemcpyDeviceToHost));
        T_CUDA(cudaMemcpy(totals, stats.totals, sizeof totals, cudaMemcpyDeviceToHost));
        for (int b = 0; b < PDL_ROWS && kernel != 2 && kernel != 5; ++b)
            CHECK_EQ(accepted[b], input[PDL_TOKENS + b], b);
        if (kernel & 1 || kernel == 4)
            CHECK_EQ(offsets[PDL_ROWS], 0 + 1 + 2 + 3 + 4 + 0 + 1 + 2, 0);
        if (kernel == 2 || kernel == 3) CHECK_EQ(totals[SPECV_STAT_ACCEPTED], 13, 0);
    }
    T_CUDA(cudaFree(staged));
    T_CUDA(cudaFree(made));
    T_CUDA(cudaFree(out));
#else
    t_skip("dependent launches need a device");
#endif
}

/* A kernel of the user's behind a launcher need not wait, as a programmatic dependent either: what
   it copies is complete. The launchers whose first kernel may have a second, here without. */
static void test_followers(void) {
#if T_DEVICE
    enum { A1, A2, B5, C1, NUM_LAUNCHERS };
    static const int32_t words[] = {5, 6, 7, 5, 6, 9, 9}; /* drafts, then targets: 2 are accepted */
    static const float logits[4] = {0, 1, 3, 2};
    static const int32_t want[NUM_LAUNCHERS] = {2, 2, 1, 2};
    char *memory;
    int32_t got = -1;
    T_CUDA(cudaMalloc((void **)&memory, 1 << 16));
    T_CUDA(cudaMemset(memory, 0, 1 << 16));
    T_CUDA(cudaMemcpy(memory, words, sizeof words, cudaMemcpyHostToDevice));
    T_CUDA(cudaMemcpy(memory + 64, logits, sizeof logits, cudaMemcpyHostToDevice));
    int32_t *const out = (int32_t *)(memory + 128), *const copy = out + 16;
    int32_t *const one = out + 32, *const zero = out + 48;
    for (int i = 0; i < 2; ++i) T_CUDA(cudaMemcpy(one + i, want + B5, 4, cudaMemcpyHostToDevice));
    for (int launcher = 0; launcher < NUM_LAUNCHERS; ++launcher) {
        t_case("a user's dependent behind launcher %d", launcher);
        if (launcher == A1) {
            specv_verify_greedy_desc d = SPECV_ZERO;
            d.rows.batch = 1, d.rows.max_draft = 3, d.accepted_len = out;
            d.draft_tokens = memory, d.target_tokens = memory + 12;
            CHECK_EQ(specv_verify_greedy(&d, 0), SPECV_OK, -1);
        } else if (launcher == A2) {
            specv_verify_sample_desc d = SPECV_ZERO;
            d.verify.rows.batch = 1, d.verify.vocab = 4, d.rule = SPECV_RULE_GREEDY;
            d.verify.accepted_len = zero + 1, d.verify.next_token = out;
            d.target.data = memory + 64, d.scratch = memory + 4096, d.scratch_bytes = 1 << 15;
            CHECK_EQ(specv_verify_sample(&d, 0), SPECV_OK, -1);
        } else if (launcher == B5) {
            specv_page_resize_desc d = SPECV_ZERO;
            d.batch = 1, d.reserve = 4, d.cache_len = zero, d.num_row_pages = out;
            d.pool.page_refs = zero + 4, d.pool.free_pages = zero + 8, d.pool.num_free = one + 1;
            d.kv.block_table = zero + 12, d.kv.page_size = 4, d.kv.num_pages = 1;
            d.kv.max_positions = 4;
            CHECK_EQ(specv_page_resize(&d, 0), SPECV_OK, -1);
        } else {
            specv_realign_desc d = SPECV_ZERO;
            d.batch = 1, d.out_tokens = memory, d.num_emitted = one, d.pad_len = zero;
            d.shifts = (specv_shift *)(memory + 1024), d.ticket = (uint32_t *)zero + 20;
            d.columns.width = out, d.columns.max_columns = 4;
            T_CUDA(cudaMemcpy(out, want + B5, 4, cudaMemcpyHostToDevice));
            CHECK_EQ(specv_realign(&d, 0), SPECV_OK, -1);
        }
        t_follow(copy, out, 4);
        T_CUDA(cudaMemcpy(&got, copy, 4, cudaMemcpyDeviceToHost));
        CHECK_EQ(got, want[launcher], launcher);
        T_CUDA(cudaMemset(out, 0, 64));
    }
    T_CUDA(cudaFree(memory));
#else
    t_skip("dependent launches need a device");
#endif
}

int main(int argc, char **argv) {
    static const t_group groups[] = {
        {"dependents", test_dependents},
        {"followers", test_followers},
    };
    return t_main(argc, argv, groups, T_COUNT(groups));
}
