/* counters.cu - what the kernels promise to cost, counted by ptxrun: ballots, bytes, sectors.
   On a GPU, and without nvcc, there is nothing that counts, and the test is skipped. Run it with
   ptxrun's deterministic schedule: others split warps, and so change the counts. */

#include "kv.h"

#if T_DEVICE

#include "ptxrun/include/ptxrun_count.h"
#include <cuda_profiler_api.h>

static int can_count(void) {
    if (ptxrun_count(NULL, "launches") >= 0) return 1;
    t_skip("only ptxrun counts: this is a GPU");
    return 0;
}

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* A1 over rows that all have n drafts and accept k: outputs stored once, tokens loaded up to the
   stop, in steps of 128 positions, and a ballot for every 32 positions that were reached. */
static void test_a1(void) {
    static const int drafts[] = {0, 1, 8, 31, 32, 33, 128, 300, 1000};
    static const int accepted[] = {0, 1, 7, 31, 32, 33, 63, 64, 127, 128, 300, 999, 1000};
    const int num_rows = 13;
    int given[13];
    if (!can_count()) return;
    for (int i = 0; i < T_COUNT(drafts); ++i)
        for (int j = 0; j < T_COUNT(accepted) * 2; ++j) {
            const int n = drafts[i], k = accepted[j / 2];
            const int64_t token = j % 2 ? 8 : 4, read = ceil_div(k + 1, 128) * 128;
            shape s;
            batch b;
            specv_verify_greedy_desc d;
            if (k > n) continue;
            t_case("A1, %d drafts, %d accepted, int%d", n, k, (int)token * 8);
            memset(&s, 0, sizeof s);
            memset(&b, 0, sizeof b);
            for (int row = 0; row < num_rows; ++row) given[row] = k;
            s.batch = num_rows, s.max_draft = n, s.vocab = 1000;
            s.dtype = token == 8 ? SPECV_I64 : SPECV_I32;
            s.spread = SPREAD_GIVEN, s.given = given;
            batch_make(&b, &s);
            t_upload();
            d = batch_describe(&b, T_HOST_SIDE);
            CHECK_EQ(specv_ref_verify_greedy(&d), SPECV_OK, -1);
            d = batch_describe(&b, T_DEVICE_SIDE);
            T_CUDA(cudaProfilerStart());
            CHECK_EQ(specv_verify_greedy(&d, 0), SPECV_OK, -1);
            t_check_device();
            T_CUDA(cudaProfilerStop());
            const char *kernel = "specv_verify_greedy_kernel";
            const int64_t tokens_read = (read < n ? read : n) + (read < n + 1 ? read : n + 1);
            CHECK_EQ(ptxrun_count(kernel, "launches"), 1, -1);
            CHECK(ptxrun_count(kernel, "ballots") <= num_rows * ceil_div(k + 1, 32));
            CHECK_EQ(ptxrun_count(kernel, "load_bytes"), num_rows * tokens_read * token, -1);
            CHECK_EQ(ptxrun_count(kernel, "store_bytes"),
                     num_rows * (4 + 1 + token + 4 + 1 + 4 + token * (n + 1)), -1);
            CHECK_EQ(ptxrun_count(kernel, "atomics"), 0, -1);
            CHECK_EQ(ptxrun_count(kernel, "barriers"), 0, -1);
            batch_free(&b);
        }
}

static void *device_copy(const void *of, int64_t bytes) {
    t_buf b = t_in(bytes, 0);
    memcpy(b.host, of, b.bytes);
    T_CUDA(cudaMemcpy(b.device, b.host, b.bytes, cudaMemcpyHostToDevice));
    return b.device;
}

static void *device_ints(const int32_t *numbers, int count) {
    return device_copy(numbers, 4 * count);
}

static void *device_zeros(int64_t bytes) {
    t_buf b = t_in(bytes, 0);
    T_CUDA(cudaMemset(b.device, 0, b.bytes));
    return b.device;
}

/* A8 over one row of bf16 scores, with num_active if it is not null. Returns what the kernels
   counted together, or, of serial_trips, the first pass. */
static int64_t count_sample(const char *counter, const int32_t *num_active, const uint16_t *scores,
                            const uint32_t *mask, int vocab, int top_k, float top_p) {
    static const uint64_t seed = 7;
    static const int32_t position = 3;
    const int trips = strcmp(counter, "serial_trips") == 0;
    specv_sample_desc d = SPECV_ZERO;
    const int64_t bytes = specv_sample_scratch_bytes(1, vocab);
    d.scores.data = device_copy(scores, 2 * (int64_t)vocab), d.scores.dtype = SPECV_LOGITS_BF16;
    d.vocab = vocab, d.batch = 1;
    d.seed = (const uint64_t *)device_copy(&seed, sizeof seed);
    d.position = (const int32_t *)device_copy(&position, sizeof position);
    if (mask) d.filters.mask = (const uint32_t *)device_copy(mask, 4 * ceil_div(vocab, 32));
    if (top_k) d.filters.top_k = (const int32_t *)device_copy(&top_k, sizeof top_k);
    if (top_k) d.filters.top_p = (const float *)device_copy(&top_p, sizeof top_p);
    if (num_active) d.num_active = (const int32_t *)device_ints(num_active, 1);
    d.token = device_zeros(4), d.scratch = device_zeros(bytes), d.scratch_bytes = bytes;
    T_CUDA(cudaProfilerStart());
    CHECK_EQ(specv_sample(&d, 0), SPECV_OK, -1);
    T_CUDA(cudaDeviceSynchronize());
    T_CUDA(cudaProfilerStop());
    t_free_buffers();
    return ptxrun_count(trips ? "specv_softmax_bf16_kernel" : NULL, counter);
}

/* The first scores of a dense batch do not wait for what says which rows are live. */
static void test_ahead(void) {
    static uint16_t scores[32000];
    static const int32_t live = 1;
    if (!can_count()) return;
    t_case("A8 with num_active");
    for (int x = 0; x < 32000; ++x) scores[x] = (uint16_t)(0x3f80 + t_below(256));
    const int64_t plain = count_sample("serial_trips", NULL, scores, NULL, 32000, 0, 1);
    CHECK(plain > 0);
    CHECK_EQ(count_sample("serial_trips", &live, scores, NULL, 32000, 0, 1), plain, -1);
}

/* The second launch of A3 with draft scores opens nothing again: the plan beside what is left,
   scores, ticket, sums, scores. */
static void test_second_pass(void) {
    enum { VOCAB = 8192, DRAFTS = 4 };
    static uint16_t p[(DRAFTS + 1) * VOCAB], q[DRAFTS * VOCAB];
    static const int32_t draft[DRAFTS] = {1, 2, 3, 4}, position = 3;
    static const uint64_t seed = 7;
    specv_verify_sample_desc d = SPECV_ZERO;
    const int64_t bytes = specv_verify_sample_scratch_bytes(1, DRAFTS, VOCAB);
    if (!can_count()) return;
    t_case("A3 with draft scores, all rejected");
    for (int x = 0; x < (DRAFTS + 1) * VOCAB; ++x) p[x] = (uint16_t)(0x3f80 + t_below(64));
    for (int x = 0; x < DRAFTS * VOCAB; ++x) q[x] = (uint16_t)(0x3f80 + t_below(64));
    for (int j = 0; j < DRAFTS; ++j) { /* -128, and 8 */
        p[j * VOCAB + draft[j]] = 0xc300, q[j * VOCAB + draft[j]] = 0x4100;
    }
    d.verify.rows.batch = 1, d.verify.rows.max_draft = DRAFTS, d.verify.vocab = VOCAB;
    d.verify.draft_tokens = device_copy(draft, sizeof draft), d.verify.token_dtype = SPECV_I32;
    d.verify.draft_stride_elems = DRAFTS;
    d.verify.accepted_len = (int32_t *)device_zeros(4), d.verify.next_token = device_zeros(4);
    d.target.data = device_copy(p, sizeof p), d.target.dtype = SPECV_LOGITS_BF16;
    d.draft.data = device_copy(q, sizeof q), d.draft.dtype = SPECV_LOGITS_BF16;
    d.rule = SPECV_RULE_TOKEN;
    d.seed = (const uint64_t *)device_copy(&seed, sizeof seed);
    d.position = (const int32_t *)device_copy(&position, sizeof position);
    d.scratch = device_zeros(bytes), d.scratch_bytes = bytes;
    T_CUDA(cudaProfilerStart());
    CHECK_EQ(specv_verify_sample(&d, 0), SPECV_OK, -1);
    T_CUDA(cudaDeviceSynchronize());
    T_CUDA(cudaProfilerStop());
    t_free_buffers();
    const int64_t trips = ptxrun_count("specv_residual_kernel", "serial_trips");
    printf("A3 with draft scores: %d round trips of its second launch\n", (int)trips);
    CHECK(trips > 0 && trips <= 5);
}

/* Thread instructions of a launch of A8 on eight rows, by the kernel of that name. top_k: null: no
   limit. */
static int64_t count_rows(const uint16_t *scores, int vocab, int num_sms, int method,
                          const int32_t *top_k, const char *kernel) {
    enum { ROWS = 8 };
    uint64_t seed[ROWS];
    int32_t position[ROWS];
    specv_sample_desc d = SPECV_ZERO;
    const int64_t bytes = specv_sample_scratch_bytes(ROWS, vocab);
    for (int b = 0; b < ROWS; ++b) seed[b] = (uint64_t)b, position[b] = b;
    d.scores.data = device_copy(scores, 2 * (int64_t)vocab * ROWS);
    d.scores.dtype = SPECV_LOGITS_BF16, d.vocab = vocab, d.batch = ROWS, d.num_sms = num_sms;
    d.method = method;
    d.seed = (const uint64_t *)device_copy(seed, sizeof seed);
    d.position = (const int32_t *)device_copy(position, sizeof position);
    d.token = device_zeros(4 * ROWS), d.scratch = device_zeros(bytes), d.scratch_bytes = bytes;
    if (top_k) d.filters.top_k = (const int32_t *)device_copy(top_k, 4 * ROWS);
    T_CUDA(cudaProfilerStart());
    CHECK_EQ(specv_sample(&d, 0), SPECV_OK, -1);
    T_CUDA(cudaDeviceSynchronize());
    T_CUDA(cudaProfilerStop());
    t_free_buffers();
    return ptxrun_count(kernel, "thread_instructions");
}

/* Where each warp has a tile to itself, a score costs less than three quarters of what it does
   where four warps share one. */
static void test_whole_tiles(void) {
    enum { VOCAB = 32000, ROWS = 8 };
    static uint16_t scores[ROWS * VOCAB];
    if (!can_count()) return;
    for (int x = 0; x < ROWS * VOCAB; ++x) scores[x] = (uint16_t)(0x3f80 + t_below(256));
    static const int32_t few[ROWS] = {50, 50, 50, 50, 50, 50, 50, 50};
    static const struct {
        const char *name, *whole, *shared;
        int method;
        const int32_t *top_k;
    } of[] = {
        {"CDF", "specv_softmax_whole_bf16_kernel", "specv_softmax_bf16_kernel", SPECV_SAMPLE_CDF,
         0},
        {"Gumbel", "specv_noise_whole_bf16_kernel", "specv_noise_bf16_kernel", SPECV_SAMPLE_GUMBEL,
         0},
        {"top-k", "specv_filtered_whole_kernel", "specv_filtered_kernel", SPECV_SAMPLE_CDF, few}};
    for (int i = 0; i < T_COUNT(of); ++i) {
        t_case("A8 of eight rows, %s", of[i].name);
        const int64_t whole = count_rows(scores, VOCAB, 2, of[i].method, of[i].top_k, of[i].whole);
        const int64_t shared =
            count_rows(scores, VOCAB, 132, of[i].method, of[i].top_k, of[i].shared);
        printf("A8 of eight rows, %s: instructions a score %.1f, where warps share tiles %.1f\n",
               of[i].name, (double)whole / (ROWS * VOCAB), (double)shared / (ROWS * VOCAB));
        CHECK(whole > 0 && shared > 0);
        CHECK(4 * whole < 3 * shared);
    }
}

/* A10: a mask is read once, and what filters cost beside it is a part of a read of the row. */
static void test_filters(void) {
    static uint16_t scores[128256];
    static uint32_t mask[128256 / 32];
    static const int vocabs[] = {32000, 128256};
    if (!can_count()) return;
    for (int i = 0; i < T_COUNT(vocabs); ++i) {
        const int vocab = vocabs[i];
        const int64_t of_row = vocab / 16, of_mask = ceil_div(vocab, 256);
        t_case("A8 with filters, vocabulary %d", vocab);
        for (int x = 0; x < vocab; ++x) { /* -16 to 16, as a logit: few are likely */
            uint32_t bits;
            const float score = (float)(t_below(4096) + t_below(4096) + t_below(4096)) / 384 - 16;
            memcpy(&bits, &score, 4);
            scores[x] = (uint16_t)(bits >> 16);
        }
        for (int w = 0; w < vocab / 32; ++w) mask[w] = w % 3 ? 0xffffffffu : 0x0f0f0f0fu;
        const int64_t plain = count_sample("load_sectors", NULL, scores, NULL, vocab, 0, 1);
        const int64_t masked = count_sample("load_sectors", NULL, scores, mask, vocab, 0, 1);
        const int64_t cut = count_sample("load_sectors", NULL, scores, NULL, vocab, 50, 0.9f);
        const int64_t both = count_sample("load_sectors", NULL, scores, mask, vocab, 50, 0.9f);
        CHECK(plain >= of_row && plain <= of_row + 400); /* statistics of tiles */
        /* A plain row's tiles are looked at once; with filters, by every warp once more. */
        CHECK(masked - plain >= of_mask && masked - plain <= of_mask + 128);
        /* and of shares with likely ids; helpers look at maxima of tiles, and for the first look */
        const int64_t tiles = ceil_div(vocab, 1024), helpers = ceil_div(tiles, 8);
        CHECK(cut - plain <= 320 + helpers * (tiles + 32));
        scores[7] = 0x42c0; /* 96: how far below it the 50th is does not matter */
        const int64_t peaked = count_sample("load_sectors", NULL, scores, NULL, vocab, 50, 0.9f);
        CHECK(peaked - plain <= 320 + helpers * (tiles + 32));
        for (int x = 0; x < vocab; ++x) /* -16, and one of 8 to 12 in each share of 256 */
            scores[x] = (uint16_t)(x % 256 == 7 ? 0x4100 + x / 256 % 64 : 0xc180);
        const int64_t even = count_sample("load_sectors", NULL, scores, NULL, vocab, 50, 0.9f);
        CHECK(even - plain <= 320 + helpers * (tiles + 32));
        CHECK(both - cut <= of_mask + 128); /* a byte of the mask for each lane with such ids */
        CHECK(both <= of_row * 23 / 10);
        /* Helpers of a flat row hand in what they find; where top_k leaves few, they leave. */
        for (int x = 0; x < vocab; ++x) scores[x] = (uint16_t)(0x3f80 + t_below(64));
        const int64_t alone = count_sample("store_sectors", NULL, scores, NULL, vocab, 50, 0.9f);
        const int64_t helped =
            count_sample("store_sectors", NULL, scores, NULL, vocab, vocab, 0.9f);
        CHECK(helped > alone + 20 * helpers);
    }
}

typedef struct cost {
    int64_t load_bytes, load_sectors, store_bytes, store_sectors, store_requests;
} cost;

/* Forms of packing: B1 and B2 as steps that are not small; B2 in two launches, the second of which
   is a small step of B1; small steps. */
enum { FORM_B1, FORM_ONE, FORM_TWO, FORM_SMALL_B2, FORM_SMALL_B1, NUM_FORMS };

static int is_b1(int form) { return form == FORM_B1 || form == FORM_SMALL_B1; }

static int is_small(int form) { return form >= FORM_TWO; }

/* Runs a form on the same rows every time; what the kernel that copies has moved. */
static cost count_pack(int form, const shape *s, const kv_shape *k, int64_t *kv_rows) {
    static const char *const kernels[] = {
        "specv_pack_kv_kernel", "specv_verify_pack_kv_kernel", "specv_pack_small_kernel",
        "specv_verify_pack_small_kernel", "specv_pack_small_kernel"};
    const char *kernel = kernels[form];
    batch b;
    kv_pack p;
    cost c;
    t.random = t.case_seed;
    batch_make(&b, s);
    kv_make(&p, k, &b, is_b1(form));
    t_upload();
    if (is_b1(form)) {
        specv_pack_kv_desc d = kv_describe_b1(&p, T_HOST_SIDE);
        CHECK_EQ(specv_ref_pack_kv(&d), SPECV_OK, -1);
    } else {
        specv_verify_pack_kv_desc d = kv_describe_b2(&p, T_HOST_SIDE);
        CHECK_EQ(specv_ref_verify_pack_kv(&d), SPECV_OK, -1);
    }
    T_CUDA(cudaProfilerStart());
    if (is_b1(form)) {
        specv_pack_kv_desc d = kv_describe_b1(&p, T_DEVICE_SIDE);
        CHECK_EQ(form == FORM_B1 ? kv_launch_tiles(&d, 2) : specv_pack_kv(&d, 0), SPECV_OK, -1);
    } else {
        specv_verify_pack_kv_desc d = kv_describe_b2(&p, T_DEVICE_SIDE);
        CHECK_EQ(form == FORM_ONE   ? kv_launch_one(&d, 4)
                 : form == FORM_TWO ? kv_launch_two(&d)
                                    : specv_verify_pack_kv(&d, 0),
                 SPECV_OK, -1);
    }
    t_check_device();
    T_CUDA(cudaProfilerStop());
    CHECK_EQ(ptxrun_count(kernel, "launches"), 1, -1);
    c.load_bytes = ptxrun_count(kernel, "load_bytes");
    c.load_sectors = ptxrun_count(kernel, "load_sectors");
    c.store_bytes = ptxrun_count(kernel, "store_bytes");
    c.store_sectors = ptxrun_count(kernel, "store_sectors");
    c.store_requests = ptxrun_count(kernel, "store_requests");
    *kv_rows = word_at(&p.offsets, s->batch);
    kv_free(&p);
    batch_free(&b);
    t_free_buffers();
    return c;
}

/* Two runs that differ in row_bytes alone: the difference is KV, and nothing else. Each accepted
   byte is loaded once and stored once, in whole sectors where rows are whole sectors. */
static void test_pack(void) {
    static const int planes[] = {0, 1, 5};
    static const int64_t widths[][2] = {{4096, 8192}, {2048, 4096}, {4064, 8160}, {4095, 8191}};
    static const char *const names[] = {"B1", "B2, one launch", "B2, two launches",
                                        "B2, a small step", "B1, a small step"};
    if (!can_count()) return;
    for (int form = 0; form < NUM_FORMS; ++form)
        for (int i = 0; i < T_COUNT(planes); ++i)
            for (int w = 0; w < T_COUNT(widths); ++w) {
                shape s = SPECV_ZERO;
                kv_shape k = SPECV_ZERO;
                int64_t rows, rows_again, bytes;
                if (t.quick && (form + i - w) % 4) continue;
                if (is_small(form) && widths[w][0] % 16) continue;
                const int64_t copies = planes[i] ? planes[i] : 1;
                t_case("%s, %d planes, rows of %d and %d bytes", names[form], planes[i],
                       (int)widths[w][0], (int)widths[w][1]);
                s.batch = t.quick ? 9 : 29, s.max_draft = 9, s.vocab = 1000;
                k.row_bytes = widths[w][0], k.num_sms = 2, k.num_planes = planes[i];
                cost a = count_pack(form, &s, &k, &rows);
                k.row_bytes = widths[w][1];
                cost b = count_pack(form, &s, &k, &rows_again);
                CHECK_EQ(rows, rows_again, -1);
                CHECK(rows > 0);
                bytes = rows * copies * (widths[w][1] - widths[w][0]);
                CHECK_EQ(b.store_bytes - a.store_bytes, bytes, -1);
                if (is_small(form)) continue; /* as many blocks as there are units read the rest */
                if (copies == 1) CHECK_EQ(b.load_bytes - a.load_bytes, bytes, -1);
                if (widths[w][0] % 32) continue;
                /* With several planes also two addresses for each piece. */
                const int64_t more = b.load_sectors - a.load_sectors - bytes / 32;
                CHECK(more >= 0 && more <= (copies > 1 ? bytes / 32 / 16 : 0));
                CHECK_EQ(b.store_sectors - a.store_sectors, bytes / 32, -1);
            }
}

/* Beside KV, B1 stores offsets and row_status, and B2 what A1 stores and offsets: each once. */
static void test_outputs_once(void) {
    const int num_rows = 29, columns = 10;
    shape s = SPECV_ZERO;
    kv_shape k = SPECV_ZERO;
    if (!can_count()) return;
    s.batch = num_rows, s.max_draft = columns - 1, s.vocab = 1000;
    k.row_bytes = 512, k.num_sms = 2;
    for (int form = 0; form < NUM_FORMS; ++form) {
        if (form == FORM_TWO) continue; /* what B1 stores */
        int64_t kv_rows, outputs = 4 * (num_rows + 1) + 4 * num_rows;
        t_case("%s stores each output once, form %d", is_b1(form) ? "B1" : "B2", form);
        cost c = count_pack(form, &s, &k, &kv_rows);
        if (!is_b1(form)) outputs += num_rows * (4 + 1 + 4 + 4 + 1 + 4 * columns);
        CHECK_EQ(c.store_bytes, outputs + kv_rows * 512, -1);
    }
}

/* Rows shorter than a piece are copied a piece at a time, not one by one: 128 rows of 16 bytes take
   four stores of a warp, or eight where another stride allows 8 bytes at a time. */
static void test_gather(void) {
    enum { NUM_ROWS = 128 };
    int given[NUM_ROWS];
    shape s = SPECV_ZERO;
    kv_shape k = SPECV_ZERO;
    if (!can_count()) return;
    for (int i = 0; i < NUM_ROWS; ++i) given[i] = 1;
    s.batch = NUM_ROWS, s.max_draft = 2, s.vocab = 1000;
    s.spread = SPREAD_GIVEN, s.given = given;
    k.row_bytes = 16, k.num_sms = 1;
    for (int apart = 0; apart < 2; ++apart) {
        int64_t kv_rows;
        k.pos_gap = apart ? 8 : 0;
        t_case("B1, short rows %s", apart ? "apart" : "together");
        cost c = count_pack(FORM_B1, &s, &k, &kv_rows);
        CHECK_EQ(kv_rows, NUM_ROWS, -1);
        /* offsets and row_status: a store for each 32 */
        CHECK_EQ(c.store_requests - 5 - 4, apart ? 8 : 4, -1);
    }
}

/* The launcher does what specv_verify_pack_kv_launches says; small steps have their kernels. */
static void test_launches(void) {
    if (!can_count()) return;
    for (int i = 0; i < 4; ++i) {
        shape s = SPECV_ZERO;
        kv_shape k = SPECV_ZERO;
        batch b;
        kv_pack p;
        s.batch = i % 2 ? 1500 : 32, s.max_draft = i % 2 ? 33 : 8, s.vocab = 1000;
        s.dtype = i < 2 ? SPECV_I32 : SPECV_I64;
        k.row_bytes = 16, k.num_sms = 2;
        t_case("launches of B2 and B1:");
        batch_note(&s);
        batch_make(&b, &s);
        kv_make(&p, &k, &b, 0);
        t_upload();
        specv_verify_pack_kv_desc d = kv_describe_b2(&p, T_DEVICE_SIDE);
        const int launches = specv_verify_pack_kv_launches(&d);
        T_CUDA(cudaProfilerStart());
        CHECK_EQ(specv_verify_pack_kv(&d, 0), SPECV_OK, -1);
        T_CUDA(cudaDeviceSynchronize());
        T_CUDA(cudaProfilerStop());
        CHECK_EQ(launches, i % 2 ? 2 : 1, -1);
        CHECK_EQ(ptxrun_count(NULL, "launches"), launches, -1);
        if (launches == 1)
            CHECK_EQ(ptxrun_count("specv_verify_pack_small_kernel", "launches"), 1, -1);
        specv_pack_kv_desc pack = SPECV_ZERO;
        pack.rows = d.verify.rows, pack.accepted_len = d.verify.accepted_len, pack.kv = d.kv;
        T_CUDA(cudaProfilerStart());
        CHECK_EQ(specv_pack_kv(&pack, 0), SPECV_OK, -1);
        T_CUDA(cudaDeviceSynchronize());
        T_CUDA(cudaProfilerStop());
        CHECK_EQ(ptxrun_count(NULL, "launches"), 1, -1);
        CHECK_EQ(ptxrun_count("specv_pack_small_kernel", "launches"), launches == 1, -1);
        kv_free(&p);
        batch_free(&b);
    }
}

/* An empty batch is not even launched. */
static void test_empty(void) {
    specv_pack_kv_desc b1 = SPECV_ZERO;
    specv_verify_pack_kv_desc b2 = SPECV_ZERO;
    specv_accept_stats_desc e = SPECV_ZERO;
    int64_t totals;
    if (!can_count()) return;
    t_case("batch 0");
    b1.rows.max_draft = b2.verify.rows.max_draft = e.rows.max_draft = 8;
    b1.kv.row_bytes = b1.kv.capacity_rows = 16, b1.kv.num_sms = 2;
    b2.kv = b1.kv;
    e.totals = &totals;
    T_CUDA(cudaProfilerStart());
    CHECK_EQ(specv_verify_greedy(&b2.verify, 0), SPECV_OK, 0);
    CHECK_EQ(specv_pack_kv(&b1, 0), SPECV_OK, 0);
    CHECK_EQ(specv_verify_pack_kv(&b2, 0), SPECV_OK, 0);
    CHECK_EQ(specv_accept_stats(&e, 0), SPECV_OK, 0);
    T_CUDA(cudaProfilerStop());
    CHECK_EQ(ptxrun_count(NULL, "launches"), 0, -1);
}

/* E loads 4 bytes a row, 13 with everything that may be given and draft_len, each once. */
static void test_stats(void) {
    if (!can_count()) return;
    for (int full = 0; full < 2; ++full) {
        const int64_t num_rows = 1000;
        specv_accept_stats_desc d = SPECV_ZERO;
        t_case("E, %s", full ? "all inputs" : "accepted_len alone");
        t_buf accepted = t_in(4 * num_rows, 0), emitted = t_in(4 * num_rows, 0);
        t_buf mismatch = t_in(num_rows, 0), len = t_in(4 * num_rows, 0);
        t_buf histogram = t_out(8 * 9, 0), totals = t_out(8 * SPECV_STAT_COUNT, 0);
        memset(accepted.host, 0, accepted.bytes);
        memset(emitted.host, 0, emitted.bytes);
        memset(mismatch.host, 0, mismatch.bytes);
        memset(len.host, 0, len.bytes);
        t_upload();
        d.rows.batch = (int32_t)num_rows, d.rows.max_draft = 8;
        d.accepted_len = (const int32_t *)accepted.device;
        d.histogram = (int64_t *)histogram.device;
        d.totals = (int64_t *)totals.device;
        if (full) {
            d.rows.draft_len = (const int32_t *)len.device;
            d.mismatch = (const uint8_t *)mismatch.device;
            d.num_emitted = (const int32_t *)emitted.device;
        }
        T_CUDA(cudaProfilerStart());
        CHECK_EQ(specv_accept_stats(&d, 0), SPECV_OK, -1);
        T_CUDA(cudaDeviceSynchronize());
        T_CUDA(cudaProfilerStop());
        CHECK_EQ(ptxrun_count(NULL, "load_bytes"), num_rows * (full ? 13 : 4), -1);
        CHECK_EQ(ptxrun_count(NULL, "store_bytes"), 8 * (9 + SPECV_STAT_COUNT), -1);
    }
}

/* ---- operations that move KV within caches: each moved byte is loaded once and stored once, in
   whole sectors, and what keeps its place is not touched. */

enum { MOVE_ROWS = 6, MOVE_PLANES = 3, MOVE_POSITIONS = 64, MOVE_HEADS = 4, PAGE = 16 };

/* Small device arrays of a descriptor, from the host's numbers. */
/* MOVE_PLANES planes of `bytes` bytes, and the table of their addresses. */
static void **device_planes(int64_t bytes) {
    void *planes[MOVE_PLANES];
    t_buf table = t_in(sizeof planes, 0);
    for (int i = 0; i < MOVE_PLANES; ++i) planes[i] = device_zeros(bytes);
    T_CUDA(cudaMemcpy(table.device, planes, sizeof planes, cudaMemcpyHostToDevice));
    return (void **)(void *)table.device;
}

/* A cache of MOVE_ROWS sequences: [position][head] or [head][position], padded or with the pages of
   each sequence one behind the other. */
static specv_kv_cache make_cache(int64_t head_bytes, int paged, int heads_first) {
    specv_kv_cache kv = SPECV_ZERO;
    int32_t ids[MOVE_ROWS * MOVE_POSITIONS / PAGE];
    for (int i = 0; i < T_COUNT(ids); ++i) ids[i] = i;
    kv.planes = device_planes(MOVE_ROWS * MOVE_POSITIONS * MOVE_HEADS * head_bytes);
    kv.num_planes = MOVE_PLANES, kv.num_heads = MOVE_HEADS, kv.head_bytes = head_bytes;
    kv.max_positions = MOVE_POSITIONS;
    if (paged) {
        kv.block_table = (int32_t *)device_ints(ids, T_COUNT(ids));
        kv.page_size = PAGE, kv.num_pages = T_COUNT(ids);
    }
    if (heads_first) {
        kv.pos_stride_bytes = head_bytes;
        kv.head_stride_bytes = head_bytes * (paged ? PAGE : MOVE_POSITIONS);
        kv.seq_stride_bytes = paged ? 0 : MOVE_HEADS * kv.head_stride_bytes;
        kv.page_stride_bytes = paged ? MOVE_HEADS * kv.head_stride_bytes : 0;
    }
    return kv;
}

static cost count_kernel(const char *kernel) {
    cost c;
    c.load_bytes = ptxrun_count(kernel, "load_bytes");
    c.load_sectors = ptxrun_count(kernel, "load_sectors");
    c.store_bytes = ptxrun_count(kernel, "store_bytes");
    c.store_sectors = ptxrun_count(kernel, "store_sectors");
    c.store_requests = ptxrun_count(kernel, "store_requests");
    return c;
}

static cost count_append(int64_t head_bytes, int paged, int heads_first, int64_t *positions) {
    static const int32_t accepted[MOVE_ROWS] = {0, 8, 3, 5, 8, 1};
    static const int32_t lens[MOVE_ROWS] = {0, 10, 15, 16, 40, 31};
    specv_append_kv_desc d = SPECV_ZERO;
    d.rows.batch = MOVE_ROWS, d.rows.max_draft = 8, d.num_pending = 1, d.num_sms = 2;
    d.accepted_len = (const int32_t *)device_ints(accepted, MOVE_ROWS);
    d.cache_len = (int32_t *)device_ints(lens, MOVE_ROWS);
    d.ticket = (uint32_t *)device_zeros(4);
    d.kv = make_cache(head_bytes, paged, heads_first);
    d.src.planes = (const void *const *)device_planes(MOVE_ROWS * 9 * MOVE_HEADS * head_bytes);
    *positions = 0;
    for (int i = 0; i < MOVE_ROWS; ++i) *positions += 1 + accepted[i];
    T_CUDA(cudaProfilerStart());
    CHECK_EQ(specv_append_kv(&d, 0), SPECV_OK, -1);
    T_CUDA(cudaDeviceSynchronize());
    T_CUDA(cudaProfilerStop());
    t_free_buffers();
    return count_kernel("specv_append_kv_kernel");
}

/* Half of the rows write into a page that others own too. */
static cost count_copy_on_write(int64_t head_bytes, int paged, int heads_first,
                                int64_t *positions) {
    static const int32_t lens[MOVE_ROWS] = {10, 16, 17, 0, 33, 5};
    static const int32_t held[MOVE_ROWS] = {1, 1, 2, 0, 3, 1};
    enum { NUM_PAGES = MOVE_ROWS * MOVE_POSITIONS / PAGE };
    int32_t refs[NUM_PAGES] = {0}, free_pages[NUM_PAGES], free_count = 0;
    specv_page_resize_desc d = SPECV_ZERO;
    (void)paged; /* always */
    d.kv = make_cache(head_bytes, 1, heads_first);
    *positions = 0;
    for (int b = 0; b < MOVE_ROWS; ++b)
        for (int i = 0; i < held[b]; ++i) {
            int partly = i == held[b] - 1 && lens[b] % PAGE;
            refs[b * (MOVE_POSITIONS / PAGE) + i] = partly ? 2 : 1;
            *positions += partly ? lens[b] % PAGE : 0;
        }
    for (int p = 0; p < NUM_PAGES; ++p)
        if (!refs[p]) free_pages[free_count++] = p;
    d.batch = MOVE_ROWS, d.reserve = 4, d.num_sms = 2;
    d.pool.page_refs = (int32_t *)device_ints(refs, NUM_PAGES);
    d.pool.free_pages = (int32_t *)device_ints(free_pages, NUM_PAGES);
    d.pool.num_free = (int32_t *)device_ints(&free_count, 1);
    d.num_row_pages = (int32_t *)device_ints(held, MOVE_ROWS);
    d.cache_len = (const int32_t *)device_ints(lens, MOVE_ROWS);
    d.copy_src_page = (int32_t *)device_zeros(4 * MOVE_ROWS);
    d.copy_dst_page = (int32_t *)device_zeros(4 * MOVE_ROWS);
    T_CUDA(cudaProfilerStart());
    CHECK_EQ(specv_page_resize(&d, 0), SPECV_OK, -1);
    T_CUDA(cudaDeviceSynchronize());
    T_CUDA(cudaProfilerStop());
    t_free_buffers();
    return count_kernel("specv_copy_pages_kernel");
}

/* Two runs that differ in head_bytes alone: the difference is KV, and nothing else. */
static void test_moves(void) {
    if (!can_count()) return;
    for (int form = 0; form < 8; ++form) {
        const int copies = form >= 4, paged = form & 1, heads_first = form >> 1 & 1;
        cost (*count)(int64_t, int, int, int64_t *) = copies ? count_copy_on_write : count_append;
        int64_t positions, bytes;
        cost a, b;
        if (copies && !paged) continue;
        t_case("%s, %s, %s first", copies ? "B5 copies" : "B3", paged ? "paged" : "padded",
               heads_first ? "heads" : "positions");
        a = count(64, paged, heads_first, &positions);
        b = count(192, paged, heads_first, &positions);
        bytes = positions * MOVE_PLANES * MOVE_HEADS * 128;
        CHECK(positions > 0);
        CHECK_EQ(b.store_bytes - a.store_bytes, bytes, -1);
        CHECK_EQ(b.store_sectors - a.store_sectors, bytes / 32, -1);
        /* For each piece also a plane's addresses and, from a few sectors, where rows are. */
        const int64_t more = b.load_sectors - a.load_sectors - bytes / 32;
        CHECK(more >= 0 && more <= bytes / 32 / 8);
    }
}

/* Slots cost a block of B3 the same for every row. It looks at all rows once, and for their numbers
   again at those that are not in its last tile. */
static void test_slots(void) {
    enum { ROWS = 700 };
    int64_t bytes[2];
    if (!can_count()) return;
    t_case("B3, slots");
    for (int given = 0; given < 2; ++given) {
        int32_t slot[ROWS];
        specv_append_kv_desc d = SPECV_ZERO;
        for (int b = 0; b < ROWS; ++b) slot[b] = (b * 3 + 1) % ROWS;
        d.rows.batch = ROWS, d.rows.max_draft = 8, d.num_pending = 1, d.num_sms = 2;
        d.accepted_len = (const int32_t *)device_zeros(4 * ROWS);
        d.cache_len = (int32_t *)device_zeros(4 * ROWS);
        d.ticket = (uint32_t *)device_zeros(4);
        d.kv.max_positions = 16;
        if (given) d.rows.slot = (const int32_t *)device_ints(slot, ROWS), d.rows.num_slots = ROWS;
        T_CUDA(cudaProfilerStart());
        CHECK_EQ(specv_append_kv(&d, 0), SPECV_OK, -1);
        T_CUDA(cudaDeviceSynchronize());
        T_CUDA(cudaProfilerStop());
        t_free_buffers();
        bytes[given] = count_kernel("specv_append_kv_kernel").load_bytes;
    }
    CHECK_EQ(bytes[1] - bytes[0], 4 * (2 * ROWS + SPECV_MOVE_ROWS), -1); /* once into the table */
}

/* A block of a shift loads all shifts, for each of its slices its plane's address, the KV that
   moves, and nothing else. */
static void test_shift(void) {
    static const specv_shift shifts[MOVE_ROWS] = {{3, 40, 5, 0},  {10, 30, -7, 0}, {0, 64, 0, 0},
                                                  {20, 1, 40, 0}, {9, 17, -9, 0},  {5, 0, 3, 0}};
    if (!can_count()) return;
    for (int heads_first = 0; heads_first < 2; ++heads_first) {
        const int64_t head_bytes = 64;
        const int64_t slices = ceil_div(MOVE_HEADS * head_bytes, SPECV_SHIFT_SLICE);
        int64_t moved = 0, movers = 0;
        specv_shift_kv_desc d = SPECV_ZERO;
        t_case("C1 shift, %s first", heads_first ? "heads" : "positions");
        d.batch = MOVE_ROWS;
        d.kv = make_cache(head_bytes, 0, heads_first);
        d.shifts = (const specv_shift *)device_ints(&shifts[0].first, 4 * MOVE_ROWS);
        for (int i = 0; i < MOVE_ROWS; ++i) {
            moved += shifts[i].by ? shifts[i].count : 0;
            movers += shifts[i].by && shifts[i].count;
        }
        moved *= MOVE_PLANES * MOVE_HEADS * head_bytes;
        T_CUDA(cudaProfilerStart());
        CHECK_EQ(specv_shift_kv(&d, 0), SPECV_OK, -1);
        T_CUDA(cudaDeviceSynchronize());
        T_CUDA(cudaProfilerStop());
        cost c = count_kernel("specv_shift_kv_kernel");
        CHECK_EQ(c.store_bytes, moved, -1);
        CHECK_EQ(c.store_sectors, moved / 32, -1);
        const int64_t blocks = MOVE_ROWS * MOVE_PLANES * slices; /* fewer than SMs */
        const int64_t addresses = movers * MOVE_PLANES * slices * SPECV_COLUMN_THREADS;
        CHECK_EQ(c.load_bytes - moved, blocks * MOVE_ROWS * 16 + addresses * 8, -1);
    }
}

/* B4 of paths some of whose nodes lie where they belong. Two tables: the second page of each row is
   another one now, so that what is in it moves, and nothing else does. */
static cost count_commit(int64_t head_bytes, int paged, int two_tables, int64_t *positions) {
    enum { DEPTH = 8, ROW_PAGES = MOVE_POSITIONS / PAGE };
    static const int32_t accepted[MOVE_ROWS] = {0, 8, 3, 5, 8, 1};
    static const int32_t lens[MOVE_ROWS] = {0, 10, 15, 16, 14, 31};
    static const int32_t gaps[MOVE_ROWS] = {0, 1, 3, 6, 9, 1}; /* the first node that moves */
    int32_t paths[MOVE_ROWS * (DEPTH + 1)], pages[MOVE_ROWS * ROW_PAGES];
    specv_commit_path_desc d = SPECV_ZERO;
    *positions = 0;
    for (int b = 0; b < MOVE_ROWS; ++b)
        for (int j = 0; j <= DEPTH; ++j) {
            const int node = j + (j >= gaps[b] && !two_tables ? 2 * j : 0);
            paths[b * (DEPTH + 1) + j] = node;
            if (j <= accepted[b]) *positions += two_tables ? (lens[b] + j) / PAGE == 1 : node != j;
        }
    for (int i = 0; i < MOVE_ROWS * ROW_PAGES; ++i)
        pages[i] = i % ROW_PAGES == 1 ? (i / ROW_PAGES + 1) * ROW_PAGES - 1 : i; /* unused there */
    d.batch = MOVE_ROWS, d.max_nodes = 30, d.max_depth = DEPTH, d.num_sms = 2;
    d.accepted_len = (const int32_t *)device_ints(accepted, MOVE_ROWS);
    d.path = (const int32_t *)device_ints(paths, T_COUNT(paths));
    d.cache_len = (const int32_t *)device_ints(lens, MOVE_ROWS);
    d.kv = make_cache(head_bytes, paged, 0);
    if (two_tables) d.src_block_table = (const int32_t *)device_ints(pages, T_COUNT(pages));
    T_CUDA(cudaProfilerStart());
    CHECK_EQ(specv_commit_path(&d, 0), SPECV_OK, -1);
    T_CUDA(cudaDeviceSynchronize());
    T_CUDA(cudaProfilerStop());
    t_free_buffers();
    return count_kernel("specv_commit_path_kernel");
}

/* Without outputs of its own a commit stores the rows that move, each byte once, no others. */
static void test_commit(void) {
    if (!can_count()) return;
    for (int form = 0; form < 3; ++form) {
        int64_t positions, bytes;
        t_case("B4, %s", form == 0 ? "padded" : form == 1 ? "paged" : "two tables");
        const cost a = count_commit(64, form > 0, form == 2, &positions);
        const cost b = count_commit(192, form > 0, form == 2, &positions);
        CHECK(positions > 5);
        bytes = positions * MOVE_PLANES * MOVE_HEADS * 64;
        CHECK_EQ(a.store_bytes, bytes, -1);
        CHECK_EQ(a.store_sectors, bytes / 32, -1);
        CHECK_EQ(b.store_bytes, 3 * bytes, -1);
        CHECK_EQ(b.store_sectors, 3 * bytes / 32, -1);
        /* For each 32 units of a row also paths, page ids and a plane's addresses. */
        const int64_t more = b.load_sectors - a.load_sectors - 2 * bytes / 32;
        CHECK(more >= 0 && more <= 2 * bytes / 32);
    }
}

/* One row stays and one moves, its `width` - 10 tokens by -3. */
static cost count_token_shift(int token_dtype, int32_t width, int64_t *barriers) {
    static const int32_t emitted[] = {1, 4}, pad[] = {0, 10};
    specv_realign_desc d = SPECV_ZERO;
    d.batch = 2, d.max_draft = 3, d.token_dtype = token_dtype;
    d.num_emitted = (const int32_t *)device_ints(emitted, 2);
    d.pad_len = (int32_t *)device_ints(pad, 2);
    d.out_tokens = device_zeros(2 * 4 * 8);
    d.shifts = (specv_shift *)device_zeros(2 * 16);
    d.ticket = (uint32_t *)device_zeros(SPECV_TICKET_BYTES);
    d.columns.width = (int32_t *)device_ints(&width, 1);
    d.columns.max_columns = width + 8;
    d.columns.tokens = device_zeros(2 * (width + 8) * 8);
    T_CUDA(cudaProfilerStart());
    CHECK_EQ(specv_realign(&d, 0), SPECV_OK, -1);
    T_CUDA(cudaDeviceSynchronize());
    T_CUDA(cudaProfilerStop());
    t_free_buffers();
    *barriers = ptxrun_count("specv_realign_kernel", "barriers");
    return count_kernel("specv_realign_kernel");
}

/* A token that moves is loaded once and stored once; a block needs one barrier for eight tokens a
   thread. */
static void test_token_shift(void) {
    const int32_t few = 300, many = 5000, round = 8 * SPECV_COLUMN_THREADS;
    if (!can_count()) return;
    for (int dtype = SPECV_I32; dtype <= SPECV_I64; ++dtype) {
        const int64_t bytes = (many - few) * (dtype == SPECV_I64 ? 8 : 4);
        int64_t a_waits, b_waits;
        t_case("C1, tokens of int%d", dtype == SPECV_I64 ? 64 : 32);
        cost a = count_token_shift(dtype, few, &a_waits), b;
        b = count_token_shift(dtype, many, &b_waits);
        CHECK_EQ(b.load_bytes - a.load_bytes, bytes, -1);
        CHECK_EQ(b.store_bytes - a.store_bytes, bytes, -1);
        CHECK_EQ(b_waits - a_waits, ceil_div(many - 10, round) - ceil_div(few - 10, round), -1);
    }
}

/* D3: a table entry that stays is looked at and no more; one that changes is stored once, and two
   owners are counted. No byte of KV is in reach: the descriptor has no planes. */
static cost count_reshuffle(int same, int64_t *atomics) {
    enum { ENTRIES = 96 };
    static const int32_t job[2] = {0, 1}, one = 1, zero = 0;
    int32_t table[2 * ENTRIES], refs[3 * ENTRIES], held[2] = {ENTRIES, ENTRIES};
    int32_t lens[2] = {ENTRIES * PAGE, 5};
    specv_reshuffle_desc d = SPECV_ZERO;
    specv_particle_cache *c = &d.cache[0];
    for (int i = 0; i < 3 * ENTRIES; ++i) refs[i] = 2; /* nobody's last owner leaves */
    for (int i = 0; i < ENTRIES; ++i) {
        table[i] = i;
        table[ENTRIES + i] = i < same ? i : ENTRIES + i;
    }
    d.jobs = (const int32_t *)device_ints(job, 2),
    d.num_jobs = (const int32_t *)device_ints(&one, 1);
    d.scratch = device_zeros((int)(d.scratch_bytes = 1 << 13));
    d.num_groups = d.max_jobs = d.num_caches = 1, d.batch = 2;
    c->pool.page_refs = (int32_t *)device_ints(refs, 3 * ENTRIES);
    c->pool.free_pages = (int32_t *)device_zeros(4 * 3 * ENTRIES);
    c->pool.num_free = (int32_t *)device_ints(&zero, 1);
    c->block_table = (int32_t *)device_ints(table, 2 * ENTRIES);
    c->num_row_pages = (int32_t *)device_ints(held, 2);
    c->cache_len = (int32_t *)device_ints(lens, 2);
    c->page_size = PAGE, c->num_pages = 3 * ENTRIES, c->max_row_pages = ENTRIES;
    T_CUDA(cudaProfilerStart());
    CHECK_EQ(specv_reshuffle(&d, 0), SPECV_OK, -1);
    T_CUDA(cudaDeviceSynchronize());
    T_CUDA(cudaProfilerStop());
    t_free_buffers();
    *atomics = ptxrun_count("specv_reshuffle_kernel", "atomics");
    return count_kernel("specv_reshuffle_kernel");
}

/* Without jobs a block of D3 does nothing but take a ticket, in one atomic. */
static int64_t reshuffle_blocks(int num_jobs, int num_sms) {
    specv_reshuffle_desc d = SPECV_ZERO;
    d.num_groups = num_jobs, d.max_jobs = d.batch = 1, d.num_sms = num_sms;
    d.jobs = (const int32_t *)device_zeros(8 * num_jobs);
    d.num_jobs = (const int32_t *)device_zeros(4 * num_jobs);
    d.scratch = device_zeros((int)(d.scratch_bytes = 1 << 13));
    T_CUDA(cudaProfilerStart());
    CHECK_EQ(specv_reshuffle(&d, 0), SPECV_OK, -1);
    T_CUDA(cudaDeviceSynchronize());
    T_CUDA(cudaProfilerStop());
    t_free_buffers();
    return ptxrun_count("specv_reshuffle_kernel", "atomics");
}

static void test_reshuffle(void) {
    int64_t few, many;
    if (!can_count()) return;
    t_case("D3: 32 and 64 of 96 entries change");
    cost b = count_reshuffle(64, &few), a = count_reshuffle(32, &many);
    CHECK_EQ(a.store_bytes - b.store_bytes, 4 * 32, -1);
    CHECK_EQ(a.load_bytes - b.load_bytes, 0, -1);
    CHECK_EQ(many - few, 2 * 32, -1);
    t_case("D3: a few blocks for each SM, as many as there are jobs");
    CHECK_EQ(reshuffle_blocks(100, 1), 4, -1);
    CHECK_EQ(reshuffle_blocks(100, 3), 12, -1);
    CHECK_EQ(reshuffle_blocks(100, 132), 100, -1);
}

int main(int argc, char **argv) {
    static const t_group groups[] = {
        {"a1", test_a1},
        {"ahead", test_ahead},
        {"second_pass", test_second_pass},
        {"whole_tiles", test_whole_tiles},
        {"filters", test_filters},
        {"pack", test_pack},
        {"outputs-once", test_outputs_once},
        {"gather", test_gather},
        {"launches", test_launches},
        {"empty", test_empty},
        {"stats", test_stats},
        {"moves", test_moves},
        {"slots", test_slots},
        {"commit", test_commit},
        {"shift", test_shift},
        {"token-shift", test_token_shift},
        {"reshuffle", test_reshuffle},
    };
    return t_main(argc, argv, groups, T_COUNT(groups));
}

#else

static void skip(void) { t_skip("only ptxrun counts, and it needs nvcc"); }

int main(int argc, char **argv) {
    static const t_group groups[] = {{"counters", skip}};
    return t_main(argc, argv, groups, T_COUNT(groups));
}

#endif
