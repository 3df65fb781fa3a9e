/* verify.cu - A1, greedy verification, and the device functions below it.
   The answers come from batch.h, where rows are built around them. */

#include "batch.h"

/* ----------------------------------------------------------------------------------- one case */

static shape plain_shape(int num_rows, int max_draft) {
    shape s;
    memset(&s, 0, sizeof s);
    s.batch = num_rows;
    s.max_draft = max_draft;
    s.vocab = 50257;
    return s;
}

/* --------------------------------------------------------------------------------- the groups */

/* Every batch size with every draft length. Types and layouts go round; small shapes run in all of
   them. The largest shapes would take most of the time and show nothing new: each size meets the
   large sizes of the other side once. */
static void test_grid(void) {
    static const int batches[] = {0, 1, 31, 32, 33, 255, 256, 1023, 1024, 1025, 4097};
    static const int drafts[] = {0, 1, 2, 7, 8, 31, 32, 33, 63, 64, 65, 128, 1000};
    int turn = 0;
    for (int i = 0; i < T_COUNT(batches); ++i)
        for (int j = 0; j < T_COUNT(drafts); ++j) {
            const int tokens = batches[i] * (drafts[j] + 1);
            const int variants = tokens > 5000 || t.quick ? 1 : 6;
            if (tokens > (t.quick ? 15000 : 150000) && (i + j) % 4 && batches[i] * 8 > drafts[j])
                continue;
            if (t.quick && tokens > 70000) continue;
            for (int v = 0; v < variants; ++v, ++turn) {
                shape s = plain_shape(batches[i], drafts[j]);
                s.dtype = turn % 2 ? SPECV_I64 : SPECV_I32;
                s.layout = (layout)(turn / 2 % NUM_LAYOUTS);
                s.vocab = turn % 5 ? s.vocab : 0;
                s.endings = turn % 3 ? 0 : ALL_ENDINGS;
                s.num_eos = turn % 3 ? 0 : turn % 5;
                t_case("grid:");
                batch_run(&s);
            }
        }
}

static void test_all_or_nothing(void) {
    static const int drafts[] = {1, 8, 32, 33, 128, 129, 300};
    for (int i = 0; i < T_COUNT(drafts) * NUM_LAYOUTS * 2; ++i) {
        shape s = plain_shape(37, drafts[i % T_COUNT(drafts)]);
        s.layout = (layout)(i / T_COUNT(drafts) % NUM_LAYOUTS);
        s.spread = i >= T_COUNT(drafts) * NUM_LAYOUTS ? SPREAD_ALL : SPREAD_NONE;
        s.dtype = i % 2 ? SPECV_I64 : SPECV_I32;
        t_case(s.spread == SPREAD_ALL ? "all accepted:" : "none accepted:");
        batch_run(&s);
    }
}

/* Every accepted length of a row, with every way to end there. */
static void test_every_position(void) {
    const int ends[] = {END_BONUS,     END_BONUS_EOS,  END_BONUS_BAD,  END_ACCEPTED_EOS,
                        END_REJECT,    END_REJECT_EOS, END_REJECT_BAD, END_PLACEHOLDER,
                        END_BAD_DRAFT, END_BOTH_BAD};
    const int max_draft = t.quick ? 34 : 131;
    int *k = (int *)malloc(sizeof(int) * (size_t)(max_draft + 1));
    if (!k) t_die(__FILE__, __LINE__, "malloc", "no memory");
    for (int row = 0; row <= max_draft; ++row) k[row] = row;
    for (int e = 0; e < T_COUNT(ends); ++e)
        for (int wide = 0; wide < 2; ++wide)
            for (int way = 0; way < NUM_LAYOUTS; ++way) {
                shape s = plain_shape(max_draft + 1, max_draft);
                s.spread = SPREAD_GIVEN;
                s.given = k;
                s.endings = 1u << ends[e];
                s.num_eos = 1 + e % SPECV_MAX_EOS;
                s.dtype = wide ? SPECV_I64 : SPECV_I32;
                s.layout = (layout)way;
                t_case("ending %d at every position:", ends[e]);
                batch_run(&s);
            }
    free(k);
}

/* Vocabularies at the edges of the types, with and without EOS ids. */
static void test_vocabulary(void) {
    static const int64_t vocabs[] = {
        0, 8, 32000, INT32_MAX, INT32_MAX + (int64_t)1, ((int64_t)1 << 32) + 8};
    for (int i = 0; i < T_COUNT(vocabs); ++i)
        for (int wide = 0; wide < 2; ++wide)
            for (int eos = 0; eos <= SPECV_MAX_EOS; ++eos) {
                shape s = plain_shape(64, 9);
                s.vocab = vocabs[i];
                s.dtype = wide ? SPECV_I64 : SPECV_I32;
                if (!wide && s.vocab > INT32_MAX) continue;
                s.num_eos = eos;
                s.endings = ALL_ENDINGS;
                s.layout = (layout)(eos % NUM_LAYOUTS);
                t_case("vocabulary:");
                batch_run(&s);
            }
}

static void test_lengths(void) {
    static const int drafts[] = {0, 1, 2, 8, 33, 64};
    for (int i = 0; i < (t.quick ? 24 : 120); ++i) {
        shape s = plain_shape(1 + i * 7 % 90, drafts[i % T_COUNT(drafts)]);
        s.layout = i % 4 == 0 ? DENSE_LEN : CSR;
        s.dtype = i % 3 ? SPECV_I32 : SPECV_I64;
        s.endings = (unsigned)ORDINARY | 1u << END_BAD_LENGTH;
        s.spare_drafts = i % 5;
        t_case("bad lengths:");
        batch_run(&s);
    }
}

static void test_num_active(void) {
    static const int actives[] = {0, 1, 3, 31, 32, 33, 63, 64, 65, 1000, -1, INT32_MIN, INT32_MAX};
    for (int i = 0; i < T_COUNT(actives) * NUM_LAYOUTS; ++i) {
        shape s = plain_shape(64, 5);
        s.has_num_active = 1;
        s.num_active = actives[i / NUM_LAYOUTS];
        s.layout = (layout)(i % NUM_LAYOUTS);
        s.endings = i % 2 ? 0 : ALL_ENDINGS;
        s.num_eos = 2;
        t_case("inert rows:");
        batch_run(&s);
    }
}

static void test_strides(void) {
    static const int gaps[] = {0, 1, 3, 64};
    for (int i = 0; i < 64; ++i) {
        shape s = plain_shape(17 + i % 2, i % 3 ? 7 : 40);
        s.draft_gap = gaps[i % 4], s.target_gap = gaps[i / 4 % 4], s.out_gap = gaps[i / 16];
        s.dtype = i % 2 ? SPECV_I64 : SPECV_I32;
        s.layout = i % 5 == 0 ? DENSE_LEN : DENSE;
        if (i % 7 == 0) s.layout = CSR, s.draft_gap = s.target_gap = 0;
        t_case("strides:");
        batch_run(&s);
    }
}

/* Each set of outputs: what is null is not written, and does not change the others. */
static void test_null_outputs(void) {
    for (int outputs = 0; outputs <= OUT_ALL; ++outputs) {
        shape s = plain_shape(9, 6);
        s.outputs = (unsigned)(outputs ? outputs : OUT_NONE);
        s.layout = (layout)(outputs % NUM_LAYOUTS);
        s.endings = ALL_ENDINGS;
        s.num_eos = 1;
        s.keep_status = outputs / 3 % 2;
        t_case("outputs %#x:", (unsigned)outputs);
        batch_run(&s);
    }
}

/* The device gets no bytes for what may not be read: the gaps behind the columns of dense rows; of
   a CSR batch drafts beyond a row's length, and inert rows. ptxrun reports an access to them as
   uninitialised. */
static void test_unread(void) {
#if T_DEVICE
    for (int i = 0; i < 2 * NUM_LAYOUTS; ++i) {
        shape s = plain_shape(70, i < NUM_LAYOUTS ? 9 : 140);
        batch b;
        specv_verify_greedy_desc d;
        void *draft, *target;
        s.layout = (layout)(i % NUM_LAYOUTS);
        s.has_num_active = 1, s.num_active = 50;
        s.draft_gap = s.target_gap = s.layout == CSR ? 0 : 3;
        t_case("unread memory:");
        batch_note(&s);
        batch_make(&b, &s);
        t_upload();
        d = batch_describe(&b, T_HOST_SIDE);
        CHECK_EQ(specv_ref_verify_greedy(&d), SPECV_OK, -1);
        d = batch_describe(&b, T_DEVICE_SIDE);
        T_CUDA(cudaMalloc(&draft, b.draft.bytes));
        T_CUDA(cudaMalloc(&target, b.target.bytes));
        for (int row = 0; row < (s.layout == CSR ? s.num_active : s.batch); ++row) {
            const truth *r = &b.rows[row];
            size_t at = (size_t)(s.layout == CSR ? r->first + row : row * b.target_stride) * 4;
            size_t drafts_at = (size_t)(s.layout == CSR ? r->first : row * b.draft_stride) * 4;
            size_t bytes = (size_t)(s.layout == CSR ? r->n_draft : s.max_draft) * 4;
            if (bytes)
                T_CUDA(cudaMemcpy((char *)draft + drafts_at, b.draft.host + drafts_at, bytes,
                                  cudaMemcpyHostToDevice));
            T_CUDA(cudaMemcpy((char *)target + at, b.target.host + at, bytes + 4,
                              cudaMemcpyHostToDevice));
        }
        d.draft_tokens = draft, d.target_tokens = target;
        CHECK_EQ(specv_verify_greedy(&d, 0), SPECV_OK, -1);
        t_check_device();
        T_CUDA(cudaFree(draft));
        T_CUDA(cudaFree(target));
        batch_free(&b);
    }
#else
    t_skip("only the device has uninitialised memory to find: needs nvcc");
#endif
}

/* --------------------------------------------------------------------------------- validation */

static int64_t storage[64]; /* something to point to: nothing of it is read or written */

static specv_verify_greedy_desc valid_desc(void) {
    specv_verify_greedy_desc d = SPECV_ZERO;
    d.rows.batch = 4, d.rows.max_draft = 7;
    d.token_dtype = SPECV_I64;
    d.draft_tokens = d.target_tokens = storage;
    d.accepted_len = (int32_t *)storage;
    d.vocab = 100;
    return d;
}

static const int32_t *misaligned(void) {
    return (const int32_t *)(const void *)((char *)storage + 2);
}

/* The validator, the reference and the launcher all answer `code` to a descriptor with `change`. */
#define EXPECT(code, change)                                                                       \
    do {                                                                                           \
        specv_verify_greedy_desc d = valid_desc();                                                 \
        change;                                                                                    \
        CHECK_EQ(specv_verify_greedy_validate(&d), code, -1);                                      \
        if ((code) != SPECV_OK) CHECK_EQ(specv_ref_verify_greedy(&d), code, -1);                   \
        if (T_DEVICE && (code) != SPECV_OK) CHECK_EQ(launch(&d), code, -1);                        \
    } while (0)

static int launch(const specv_verify_greedy_desc *d) {
#if T_DEVICE
    return specv_verify_greedy(d, 0);
#else
    return specv_ref_verify_greedy(d);
#endif
}

static void test_validation(void) {
    t_case("every status code of A1");
    CHECK_EQ(specv_verify_greedy_validate(NULL), SPECV_ERR_NULL_DESC, -1);
    CHECK_EQ(specv_ref_verify_greedy(NULL), SPECV_ERR_NULL_DESC, -1);
    CHECK_EQ(launch(NULL), SPECV_ERR_NULL_DESC, -1);
    EXPECT(SPECV_OK, (void)0);
    EXPECT(SPECV_ERR_CANARY, d.canary0 = 1);
    EXPECT(SPECV_ERR_CANARY, d.canary1 = 1);
    EXPECT(SPECV_ERR_CHAINED, d.chained = 4);
    EXPECT(SPECV_ERR_CHAINED, d.chained = -1);
    EXPECT(SPECV_ERR_BATCH, d.rows.batch = -1);
    EXPECT(SPECV_ERR_MAX_DRAFT, d.rows.max_draft = -1);
    EXPECT(SPECV_ERR_TOO_LARGE, (d.rows.batch = 1 << 15, d.rows.max_draft = 1 << 15));
    EXPECT(SPECV_OK, (d.rows.batch = 1 << 15, d.rows.max_draft = (1 << 15) - 1));
    EXPECT(SPECV_ERR_TOO_LARGE, (d.rows.batch = INT32_MAX, d.rows.max_draft = INT32_MAX));
    EXPECT(SPECV_ERR_TOO_LARGE, (d.rows.batch = INT32_MAX, d.rows.max_draft = 0));
    EXPECT(SPECV_ERR_LAYOUT, d.rows.draft_len = d.rows.row_start = (int32_t *)storage);
    EXPECT(SPECV_ERR_NUM_ACTIVE, d.rows.num_active = misaligned());
    EXPECT(SPECV_ERR_DRAFT_LEN, d.rows.draft_len = misaligned());
    EXPECT(SPECV_ERR_LAYOUT, d.rows.draft_len = d.rows.row_end = (int32_t *)storage);
    EXPECT(SPECV_ERR_LAYOUT, d.rows.row_start = d.rows.row_end = (int32_t *)storage);
    EXPECT(SPECV_ERR_ROW_START, d.rows.row_start = misaligned());
    EXPECT(SPECV_ERR_ROW_START, d.rows.row_end = misaligned());
    EXPECT(SPECV_ERR_SLOT, (d.rows.slot = misaligned(), d.rows.num_slots = 1));
    EXPECT(SPECV_ERR_SLOT, d.rows.slot = (int32_t *)storage);
    EXPECT(SPECV_ERR_SLOT, (d.rows.slot = (int32_t *)storage, d.rows.num_slots = -1));
    EXPECT(SPECV_OK, (d.rows.slot = (int32_t *)storage, d.rows.num_slots = 1));
    EXPECT(SPECV_OK, d.rows.num_slots = -1);
    EXPECT(SPECV_ERR_SLOT, d.rows.slot_dtype = 2);
    EXPECT(SPECV_ERR_NUM_DRAFT_TOKENS, d.rows.num_draft_tokens = 1);
    EXPECT(SPECV_ERR_NUM_DRAFT_TOKENS, d.rows.num_draft_tokens = -1);
    EXPECT(SPECV_ERR_NUM_DRAFT_TOKENS,
           (d.rows.row_start = (int32_t *)storage, d.rows.num_draft_tokens = 4 * 7 + 1));
    EXPECT(SPECV_OK, (d.rows.row_start = (int32_t *)storage, d.rows.num_draft_tokens = 4 * 7));
    EXPECT(SPECV_ERR_TOKEN_DTYPE, d.token_dtype = 2);
    EXPECT(SPECV_ERR_TOKEN_DTYPE, d.token_dtype = -1);
    EXPECT(SPECV_ERR_DRAFT_TOKENS, d.draft_tokens = NULL);
    EXPECT(SPECV_OK, (d.draft_tokens = NULL, d.rows.max_draft = 0));
    EXPECT(SPECV_OK, (d.draft_tokens = NULL, d.rows.row_start = (int32_t *)storage));
    EXPECT(SPECV_OK, (d.draft_tokens = NULL, d.rows.row_end = (int32_t *)storage));
    EXPECT(SPECV_OK, (d.rows.row_end = (int32_t *)storage, d.rows.num_draft_tokens = 4 * 7));
    EXPECT(SPECV_ERR_DRAFT_TOKENS, d.draft_tokens = (char *)storage + 4);
    EXPECT(SPECV_OK, (d.draft_tokens = (char *)storage + 4, d.token_dtype = SPECV_I32));
    EXPECT(SPECV_ERR_TARGET_TOKENS, d.target_tokens = NULL);
    EXPECT(SPECV_ERR_TARGET_TOKENS, d.target_tokens = (char *)storage + 4);
    EXPECT(SPECV_ERR_ACCEPTED_LEN, d.accepted_len = NULL);
    EXPECT(SPECV_ERR_ACCEPTED_LEN, d.accepted_len = (int32_t *)misaligned());
    EXPECT(SPECV_ERR_NEXT_TOKEN, d.next_token = (char *)storage + 4);
    EXPECT(SPECV_ERR_OUT_TOKENS, d.out_tokens = (char *)storage + 4);
    EXPECT(SPECV_ERR_NUM_EMITTED, d.num_emitted = (int32_t *)misaligned());
    EXPECT(SPECV_ERR_ROW_STATUS, d.row_status = (uint32_t *)misaligned());
    EXPECT(SPECV_ERR_KEEP_STATUS, d.keep_status = 2);
    EXPECT(SPECV_ERR_KEEP_STATUS, d.keep_status = -1);
    EXPECT(SPECV_ERR_DRAFT_STRIDE, d.draft_stride_elems = 6);
    EXPECT(SPECV_ERR_DRAFT_STRIDE, d.draft_stride_elems = -1);
    EXPECT(SPECV_ERR_DRAFT_STRIDE,
           (d.rows.row_start = (int32_t *)storage, d.draft_stride_elems = 7));
    EXPECT(SPECV_OK, d.draft_stride_elems = 7);
    EXPECT(SPECV_ERR_TARGET_STRIDE, d.target_stride_elems = 7);
    EXPECT(SPECV_ERR_TARGET_STRIDE,
           (d.rows.row_start = (int32_t *)storage, d.target_stride_elems = 8));
    EXPECT(SPECV_OK, d.target_stride_elems = 8);
    EXPECT(SPECV_ERR_OUT_STRIDE, d.out_stride_elems = 7);
    EXPECT(SPECV_OK, (d.rows.row_start = (int32_t *)storage, d.out_stride_elems = 8));
    EXPECT(SPECV_ERR_SIZE, d.draft_stride_elems = INT64_MAX / 8);
    EXPECT(SPECV_ERR_SIZE, d.target_stride_elems = INT64_MAX / 8);
    EXPECT(SPECV_ERR_SIZE, d.out_stride_elems = INT64_MAX / 8);
    EXPECT(SPECV_ERR_VOCAB, d.vocab = -1);
    EXPECT(SPECV_ERR_NUM_EOS, d.num_eos = -1);
    EXPECT(SPECV_ERR_NUM_EOS, d.num_eos = SPECV_MAX_EOS + 1);
    EXPECT(SPECV_ERR_EOS_TOKEN, (d.num_eos = 2, d.eos_token[1] = -1));
    EXPECT(SPECV_ERR_EOS_TOKEN, (d.num_eos = 2, d.eos_token[1] = 100));
    EXPECT(SPECV_OK, (d.num_eos = 1, d.eos_token[1] = -1));
    EXPECT(SPECV_OK, (d.num_eos = 1, d.eos_token[0] = 1000, d.vocab = 0));

    t_case("status strings");
#define ONE_MORE(name, value, text) +1
    const int num_codes = 0 SPECV_STATUS_TABLE(ONE_MORE); /* from 0 down, without gaps */
    for (int code = -2 * num_codes; code < 100; ++code) {
        const char *text = specv_status_string(code);
        int known = code <= 0 && code > -num_codes;
        CHECK_EQ(strncmp(text, "SPECV_", 6) == 0, known, code);
    }
    CHECK(strstr(specv_status_string(SPECV_ERR_VOCAB), "SPECV_ERR_VOCAB: vocab"));

#if T_DEVICE
    t_case("version");
    CHECK_EQ(specv_version(), SPECVERIFY_VERSION, -1);
#endif
}

/* --------------------------------------------------------------------------- device functions */

#if T_DEVICE

/* Each kernel stores what every lane got: results must be valid in all 32. */
__global__ void ballot_kernel(const void *draft, const void *target, const int32_t *first,
                              int num_rows, int wide, int32_t *accepted) {
    int row = (int)(blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = (int)threadIdx.x % 32;
    if (row >= num_rows) return;
    int begin = first[row], n = first[row + 1] - begin;
    accepted[row * 32 + lane] = wide ? warp_ballot_accept_i64((const int64_t *)draft + begin,
                                                              (const int64_t *)target + begin, n)
                                     : warp_ballot_accept((const int32_t *)draft + begin,
                                                          (const int32_t *)target + begin, n);
}

/* All lengths up to 70 and around multiples of 32, each with every k. */
static void test_ballot_accept(void) {
    static const int lengths[] = {95, 96, 97, 127, 128, 129, 160, 255, 256, 257, 300};
    for (int wide = 0; wide < 2; ++wide)
        for (int i = 0; i < 70 + T_COUNT(lengths); ++i) {
            const int n = i < 70 ? i : lengths[i - 70], num_rows = n + 1;
            const specv_dtype dtype = wide ? SPECV_I64 : SPECV_I32;
            if (t.quick && i % 5 != 2) continue;
            t_case("ballot_accept, %d drafts, %s", n, wide ? "int64" : "int32");
            t_buf draft = t_in((int64_t)num_rows * n * (wide ? 8 : 4), 0);
            t_buf target = t_in((int64_t)num_rows * n * (wide ? 8 : 4), 0);
            t_buf first = t_in(4 * (num_rows + 1), 0), accepted = t_out(4 * 32 * num_rows, 0);
            for (int row = 0; row <= num_rows; ++row) ((int32_t *)first.host)[row] = row * n;
            for (int k = 0; k < num_rows; ++k) {
                for (int j = 0; j < n; ++j) {
                    int64_t token = t_below(100);
                    put_token(&target, dtype, k * n + j, token);
                    if (j == k && t_chance(30)) { /* equal, but nothing that can be accepted */
                        token = -1 - t_below(2);
                        put_token(&target, dtype, k * n + j, token);
                    } else if (j == k) {
                        token += wide && t_chance(50) ? (int64_t)1 << 32 : 1;
                    }
                    put_token(&draft, dtype, k * n + j, token);
                }
                for (int lane = 0; lane < 32; ++lane) ((int32_t *)accepted.host)[k * 32 + lane] = k;
            }
            t_upload();
            t_poison_device();
            ballot_kernel<<<(unsigned)(num_rows + 3) / 4, 128>>>(draft.device, target.device,
                                                                 (int32_t *)first.device, num_rows,
                                                                 wide, (int32_t *)accepted.device);
            T_CUDA(cudaGetLastError());
            t_check_device();
        }
}

enum { FIRST_REJECT, INCLUSIVE, EXCLUSIVE, TOTAL, NO_TOTAL, ADD, MIN, MAX, NUM_LANE_RESULTS };

__global__ void lane_kernel(const int32_t *values, int32_t *results) {
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    int32_t value = values[i], *result = results + (int64_t)i * NUM_LANE_RESULTS, total;
    result[FIRST_REJECT] = warp_first_reject(value & 0x10000);
    result[INCLUSIVE] = warp_inclusive_scan(value);
    result[EXCLUSIVE] = warp_exclusive_scan(value, &total);
    result[TOTAL] = total;
    result[NO_TOTAL] = warp_exclusive_scan(value, nullptr);
    result[ADD] = warp_reduce_add(value / 32);
    result[MIN] = warp_reduce_min(value);
    result[MAX] = warp_reduce_max(value);
}

static void test_lanes(void) {
    const int num_warps = 64 * 3;
    t_case("scans, reductions and the first reject over a warp");
    t_buf in = t_in(num_warps * 32 * 4, 0), out = t_out(num_warps * 32 * NUM_LANE_RESULTS * 4, 0);
    for (int w = 0; w < num_warps; ++w) {
        int32_t *value = (int32_t *)in.host + w * 32, lowest, highest;
        uint32_t before = 0, total = 0;
        int32_t add = 0;
        int first = 32;
        for (int lane = 0; lane < 32; ++lane) {
            value[lane] = (int32_t)t_random();
            if (w % 3 == 1) value[lane] = (int32_t)t_below(3) - 1;
            /* every single lane rejects once, and once nobody does */
            if (w < 66) value[lane] = (value[lane] & ~0x10000) | (lane == w / 2 ? 0x10000 : 0);
            if (first == 32 && (value[lane] & 0x10000)) first = lane;
            lowest = lane == 0 || value[lane] < lowest ? value[lane] : lowest;
            highest = lane == 0 || value[lane] > highest ? value[lane] : highest;
            total += (uint32_t)value[lane];
            add += value[lane] / 32;
        }
        for (int lane = 0; lane < 32; ++lane) {
            int32_t *result = (int32_t *)out.host + (w * 32 + lane) * NUM_LANE_RESULTS;
            result[FIRST_REJECT] = first;
            result[EXCLUSIVE] = result[NO_TOTAL] = (int32_t)before;
            result[INCLUSIVE] = (int32_t)(before += (uint32_t)value[lane]);
            result[TOTAL] = (int32_t)total;
            result[ADD] = add, result[MIN] = lowest, result[MAX] = highest;
        }
    }
    t_upload();
    t_poison_device();
    lane_kernel<<<num_warps / 4, 128>>>((int32_t *)in.device, (int32_t *)out.device);
    T_CUDA(cudaGetLastError());
    t_check_device();
}

/* A thread per position, and again a warp per position; the warp's answer ends at num_rows - 1. */
__global__ void find_row_kernel(const int32_t *offsets, int num_rows, const int64_t *positions,
                                int count, int32_t *rows, int32_t *warp_rows) {
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < count) rows[i] = thread_find_row(offsets, num_rows, positions[i]);
    for (int p = i / 32; p < count && num_rows > 0; p += (int)(gridDim.x * blockDim.x) / 32) {
        int row = warp_find_row(offsets, num_rows, positions[p]);
        if (threadIdx.x % 32 == 0) warp_rows[p] = row;
    }
}

static void check_find_row(int num_rows) {
    t_case("find_row among %d rows", num_rows);
    t_buf offsets = t_in(4 * (num_rows + 1), 0);
    int32_t *offset = (int32_t *)offsets.host, last = 0;
    for (int i = 0; i <= num_rows; ++i) offset[i] = last += (int32_t)(t_below(2) * t_below(4));
    const int count = last - offset[0] + 3;
    t_buf positions = t_in(8 * count, 0), rows = t_out(4 * count, 0);
    t_buf warp_rows = num_rows > 0 ? t_out(4 * count, 0) : rows;
    for (int i = 0, row = 0; i < count; ++i) {
        int64_t position = i < count - 1 ? offset[0] + i : INT64_MAX;
        while (row < num_rows && offset[row + 1] <= position) ++row;
        ((int64_t *)positions.host)[i] = position;
        ((int32_t *)rows.host)[i] = row;
        if (num_rows > 0) ((int32_t *)warp_rows.host)[i] = row < num_rows ? row : num_rows - 1;
    }
    t_upload();
    t_poison_device();
    find_row_kernel<<<(unsigned)(count + 63) / 64, 64>>>(
        (int32_t *)offsets.device, num_rows, (int64_t *)positions.device, count,
        (int32_t *)rows.device, (int32_t *)warp_rows.device);
    T_CUDA(cudaGetLastError());
    t_check_device();
}

static void test_find_row(void) {
    static const int sizes[] = {0, 1, 2, 3, 5, 31, 32, 33, 63, 64, 70, 1023, 1024, 1025, 2048};
    for (int i = 0; i < T_COUNT(sizes); ++i)
        if (!t.quick || sizes[i] <= 33 || sizes[i] == 1025) check_find_row(sizes[i]);
}

__global__ void next_token_kernel(const int32_t *target, const int64_t *target_i64, int count,
                                  int64_t vocab, int32_t *next, int64_t *next_i64) {
    int i = (int)threadIdx.x;
    if (i >= count) return;
    next[i] = thread_next_token(target, i, vocab);
    next_i64[i] = thread_next_token_i64(target_i64, i, vocab);
}

static void test_next_token(void) {
    static const int64_t tokens[] = {0, 1, 99, 100, 101, -1, -2, INT32_MAX, INT32_MIN};
    static const int64_t wide[] = {0,
                                   99,
                                   100,
                                   -1,
                                   INT64_MIN,
                                   INT64_MAX,
                                   (int64_t)1 << 32,
                                   ((int64_t)1 << 32) + 99,
                                   -((int64_t)1 << 32) + 1};
    const int count = T_COUNT(tokens);
    for (int64_t vocab = 0; vocab <= 100; vocab += 100) {
        t_case("next_token, vocabulary %lld", (long long)vocab);
        t_buf in = t_in(4 * count, 0), in_i64 = t_in(8 * count, 0);
        t_buf out = t_out(4 * count, 0), out_i64 = t_out(8 * count, 0);
        for (int i = 0; i < count; ++i) {
            put_token(&in, SPECV_I32, i, tokens[i]);
            put_token(&in_i64, SPECV_I64, i, wide[i]);
            put_token(&out, SPECV_I32, i,
                      tokens[i] < 0 || (vocab && tokens[i] >= vocab) ? -1 : tokens[i]);
            put_token(&out_i64, SPECV_I64, i,
                      wide[i] < 0 || (vocab && wide[i] >= vocab) ? -1 : wide[i]);
        }
        t_upload();
        t_poison_device();
        next_token_kernel<<<1, 32>>>((int32_t *)in.device, (int64_t *)in_i64.device, count, vocab,
                                     (int32_t *)out.device, (int64_t *)out_i64.device);
        T_CUDA(cudaGetLastError());
        t_check_device();
    }
}

/* Scans twice with the same scratch, to see that one barrier between them is enough. */
__global__ void block_scan_kernel(const int32_t *values, int32_t *before, int32_t *totals) {
    __shared__ int32_t scratch[SPECV_BLOCK_SCAN_SMEM_WORDS];
    int thread = (int)(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z));
    int num_threads = (int)(blockDim.x * blockDim.y * blockDim.z);
    for (int round = 0; round < 2; ++round) {
        int i = round * num_threads + thread;
        before[i] = block_exclusive_scan(values[i], &totals[i], scratch);
        __syncthreads();
    }
}

static void test_block_scan(void) {
    for (unsigned threads = 32; threads <= 1024; threads += 32)
        for (int dims = 1; dims <= 3; ++dims) {
            dim3 block(threads);
            if (dims == 2) block = dim3(threads / 8, 8);
            if (dims == 3) block = dim3(2, threads / 16, 8);
            if (t.quick && threads % 480 != 32) continue;
            t_case("block scan, %u x %u x %u threads", block.x, block.y, block.z);
            t_buf in = t_in(8 * threads, 0), out = t_out(8 * threads, 0),
                  sum = t_out(8 * threads, 0);
            for (unsigned round = 0; round < 2; ++round) {
                uint32_t total = 0;
                for (unsigned i = round * threads; i < (round + 1) * threads; ++i) {
                    int32_t value = (int32_t)t_random();
                    ((int32_t *)in.host)[i] = value;
                    ((int32_t *)out.host)[i] = (int32_t)total;
                    total += (uint32_t)value;
                }
                for (unsigned i = round * threads; i < (round + 1) * threads; ++i)
                    ((int32_t *)sum.host)[i] = (int32_t)total;
            }
            t_upload();
            t_poison_device();
            block_scan_kernel<<<1, block>>>((int32_t *)in.device, (int32_t *)out.device,
                                            (int32_t *)sum.device);
            T_CUDA(cudaGetLastError());
            t_check_device();
        }
}

static void test_device_functions(void) {
    test_ballot_accept();
    test_lanes();
    test_find_row();
    test_next_token();
    test_block_scan();
}

#else
static void test_device_functions(void) { t_skip("device functions need nvcc"); }
#endif

int main(int argc, char **argv) {
    static const t_group groups[] = {
        {"validation", test_validation},
        {"device-functions", test_device_functions},
        {"grid", test_grid},
        {"all-or-nothing", test_all_or_nothing},
        {"every-position", test_every_position},
        {"vocabulary", test_vocabulary},
        {"lengths", test_lengths},
        {"num-active", test_num_active},
        {"strides", test_strides},
        {"null-outputs", test_null_outputs},
        {"unread", test_unread},
    };
    return t_main(argc, argv, groups, T_COUNT(groups));
}
