/* seed.cu - the checks of the document that this project grew from, S. Kolawole, "Batched
   Speculative Decoding Verification Kernels" (2026).

   It reports two sets: 43 parity tests in five classes, and 216 checks over a grid of batch, draft
   length, acceptance rate and KV width. It says how many of each there are, not which. Here a class
   has as many cases as there, and the 216 are: 4 batches x 3 lengths x 3 rates x 4 widths of its
   main sweep, verified and packed in one call (144), and its sensitivity sweep at batch 32, 6
   lengths x 3 rates x 4 widths, packed alone (72). KV elements are fp16, tokens int64, the
   vocabulary has 4096 ids.

   The document draws accepted lengths from Binomial(gamma, alpha). A chain of drafts, each accepted
   with probability alpha, ends at the first rejection: its length is truncated geometric. The grid
   runs with both. */

#include "kv.h"

static const double alphas[] = {0.3, 0.6, 0.9};
static const int kv_dims[] = {128, 512, 1024, 2048};

enum { MAX_ROWS = 32 };

static int binomial(int gamma, double alpha) {
    int k = 0;
    for (int j = 0; j < gamma; ++j) k += t_uniform() < alpha;
    return k;
}

static int geometric(int gamma, double alpha) {
    int k = 0;
    while (k < gamma && t_uniform() < alpha) ++k;
    return k;
}

typedef int (*draw)(int gamma, double alpha);

static shape seed_shape(int num_rows, int gamma, double alpha, draw accepted) {
    static int given[MAX_ROWS];
    shape s;
    memset(&s, 0, sizeof s);
    s.batch = num_rows;
    s.max_draft = gamma;
    s.dtype = SPECV_I64;
    s.vocab = 4096;
    s.spread = SPREAD_GIVEN;
    s.given = given;
    for (int row = 0; row < num_rows; ++row) given[row] = accepted(gamma, alpha);
    return s;
}

static kv_shape seed_kv(int kv_dim) {
    kv_shape k;
    memset(&k, 0, sizeof k);
    k.row_bytes = 2 * (int64_t)kv_dim;
    if (t.quick) k.row_bytes /= 8; /* KV is most of the work */
    k.num_sms = 8;
    return k;
}

/* ----------------------------------------------------------------------------- the 43 classes */

typedef struct config {
    int num_rows, gamma;
    double alpha;
} config;

static const config configs[9] = {{1, 8, 0.3},    {4, 8, 0.6},    {16, 8, 0.6},
                                  {32, 8, 0.9},   {16, 64, 0.6},  {32, 64, 0.9},
                                  {32, 128, 0.3}, {32, 128, 0.9}, {5, 37, 0.5}};

#if T_DEVICE
/* The document's first kernel: a thread per sequence walks along its row. */
__global__ void naive_kernel(const int64_t *draft, const int64_t *target, int num_rows, int gamma,
                             int32_t *accepted) {
    int row = (int)(blockIdx.x * blockDim.x + threadIdx.x), k = 0;
    if (row >= num_rows) return;
    while (k < gamma && draft[row * gamma + k] == target[row * (gamma + 1) + k]) ++k;
    accepted[row] = k;
}
#endif

static void parity(const config *c, int naive) {
    shape s = seed_shape(c->num_rows, c->gamma, c->alpha, binomial);
    batch b;
    specv_verify_greedy_desc d;
    batch_note(&s);
    if (naive) s.outputs = OUT_NONE; /* that kernel has no other output */
    batch_make(&b, &s);
    t_upload();
    d = batch_describe(&b, T_HOST_SIDE);
    CHECK_EQ(specv_ref_verify_greedy(&d), SPECV_OK, -1);
    batch_check(&b, NULL);
#if T_DEVICE
    d = batch_describe(&b, T_DEVICE_SIDE);
    if (naive)
        naive_kernel<<<1, 256>>>((const int64_t *)d.draft_tokens, (const int64_t *)d.target_tokens,
                                 s.batch, s.max_draft, d.accepted_len);
    else
        CHECK_EQ(specv_verify_greedy(&d, 0), SPECV_OK, -1);
    T_CUDA(cudaGetLastError());
    t_check_device();
#endif
    batch_free(&b);
}

static void test_naive_and_ballot(void) {
    for (int i = 0; i < 18; ++i) {
        t_case("%s:", i % 2 ? "ballot" : "naive");
        parity(&configs[i / 2], i % 2 == 0);
    }
}

static void test_fused(void) {
    for (int i = 0; i < 9; ++i) {
        const config *c = &configs[i];
        shape s;
        kv_shape k = seed_kv(kv_dims[i % T_COUNT(kv_dims)]);
        t_case("fused:");
        s = seed_shape(c->num_rows, c->gamma, c->alpha, binomial);
        kv_run_b2(&s, &k, 1);
    }
}

static void test_pack(void) {
    for (int i = 0; i < 7; ++i) {
        const config *c = &configs[i];
        shape s;
        kv_shape k = seed_kv(kv_dims[i % T_COUNT(kv_dims)]);
        t_case("pack:");
        s = seed_shape(c->num_rows, c->gamma, c->alpha, binomial);
        kv_run_b1(&s, &k);
    }
}

static void test_edges(void) {
    for (int i = 0; i < 4; ++i) {
        shape s;
        kv_shape k = seed_kv(128);
        t_case("%s, all drafts %s:", i < 2 ? "fused" : "pack", i % 2 ? "accepted" : "rejected");
        s = seed_shape(16, 8, i % 2 ? 1 : 0, binomial);
        if (i < 2)
            kv_run_b2(&s, &k, 1);
        else
            kv_run_b1(&s, &k);
    }
}

/* The document's baseline, compute_accepted_lengths: where does the row of "differs" flags, with a
   final 1, have its first maximum? It looks at every position, as a tensor library does. */
static void test_baseline(void) {
    static const config cases[5] = {
        {8, 8, 0.6}, {8, 8, 0}, {8, 8, 1}, {32, 1, 0.5}, {32, 128, 0.9}};
    for (int i = 0; i < 5; ++i) {
        shape s;
        batch b;
        t_case("baseline %d", i);
        s = seed_shape(cases[i].num_rows, cases[i].gamma, cases[i].alpha, binomial);
        batch_make(&b, &s);
        t_upload();
        for (int row = 0; row < s.batch; ++row) {
            const int64_t *draft = (const int64_t *)(void *)b.draft.host + row * s.max_draft;
            const int64_t *target = (const int64_t *)(void *)b.target.host + row * b.target_stride;
            int32_t first = s.max_draft;
            for (int j = s.max_draft - 1; j >= 0; --j)
                if (draft[j] != target[j]) first = j;
            memcpy(b.accepted.host + 4 * row, &first, 4);
            CHECK_EQ(first, s.given[row], row);
        }
#if T_DEVICE
        specv_verify_greedy_desc d = batch_describe(&b, T_DEVICE_SIDE);
        d.mismatch = d.finished = NULL, d.next_token = d.out_tokens = NULL;
        d.num_emitted = NULL, d.row_status = NULL;
        CHECK_EQ(specv_verify_greedy(&d, 0), SPECV_OK, -1);
        t_check_device();
#endif
        batch_free(&b);
    }
}

/* -------------------------------------------------------------------------- the 216 points */

static void run_grid(draw accepted) {
    static const int batches[] = {1, 4, 16, 32}, gammas[] = {8, 64, 128};
    static const int sweep[] = {4, 8, 16, 32, 64, 128};
    for (int i = 0; i < 216; ++i) {
        const int fused = i < 144, point = fused ? i : i - 144;
        const double alpha = alphas[point / 4 % 3];
        const int gamma = fused ? gammas[point / 12 % 3] : sweep[point / 12];
        shape s;
        kv_shape k = seed_kv(kv_dims[point % 4]);
        if (t.quick && i % 7) continue;
        /* As many blocks as on a whole device, where every block re-reads little. */
        if (gamma == 8 && i % 4 == 0) k.num_sms = 132;
        t_case("%s, alpha %g,", fused ? "verify and pack" : "pack", alpha);
        s = seed_shape(fused ? batches[point / 36] : 32, gamma, alpha, accepted);
        if (fused)
            kv_run_b2(&s, &k, 0);
        else
            kv_run_b1(&s, &k);
    }
}

static void test_grid_binomial(void) { run_grid(binomial); }
static void test_grid_geometric(void) { run_grid(geometric); }

int main(int argc, char **argv) {
    static const t_group groups[] = {
        {"naive-and-ballot", test_naive_and_ballot},
        {"fused", test_fused},
        {"pack", test_pack},
        {"edges", test_edges},
        {"baseline", test_baseline},
        {"grid-binomial", test_grid_binomial},
        {"grid-geometric", test_grid_geometric},
    };
    return t_main(argc, argv, groups, T_COUNT(groups));
}
