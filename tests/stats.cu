/* stats.cu - E, acceptance metrics: counters on the device, and what the host makes of them. */

#include "step.h"

#include <math.h>

static shape plain_shape(int num_rows, int max_draft, int turn) {
    shape s;
    memset(&s, 0, sizeof s);
    s.batch = num_rows;
    s.max_draft = max_draft;
    s.vocab = 1000;
    s.layout = (layout)(turn % NUM_LAYOUTS);
    s.dtype = turn / NUM_LAYOUTS % 2 ? SPECV_I64 : SPECV_I32;
    s.draft_gap = turn % 2 * 3;
    return s;
}

/* --------------------------------------------------------------------------------- the groups */

/* Every combination of inputs and outputs, with EOS cuts, inert rows and bad lengths. */
static void test_ways(void) {
    for (int ways = 0; ways < NUM_WAYS; ++ways)
        for (int turn = 0; turn < NUM_LAYOUTS; ++turn) {
            shape s = plain_shape(70, 9 + ways % 2 * 20, turn + ways % 2 * NUM_LAYOUTS);
            s.endings = ALL_ENDINGS;
            s.num_eos = 1 + ways % 4;
            s.has_num_active = ways % 3 == 0;
            s.num_active = ways % 5 == 0 ? 0 : 50;
            t_case("ways:");
            run_step(&s, ways);
        }
}

/* One block counts: sizes around its threads, around its tile of bins, and beyond both. */
static void test_sizes(void) {
    static const int batches[] = {0, 1, 31, 255, 256, 257, 1025, 4097};
    static const int drafts[] = {0, 1, 7, 128, 2046, 2047, 2048, 4095, 4096, 5000};
    int turn = 0;
    for (int i = 0; i < T_COUNT(batches); ++i)
        for (int j = 0; j < T_COUNT(drafts); ++j, ++turn) {
            shape s = plain_shape(batches[i], drafts[j], turn);
            if ((int64_t)batches[i] * drafts[j] > (t.quick ? 100000 : 1000000)) continue;
            if (t.quick && turn % 3) continue;
            t_case("sizes:");
            run_step(&s, turn * 7 % NUM_WAYS | WITH_HISTOGRAM | WITH_TOTALS);
        }
}

/* Accepted lengths on both sides of each border between tiles of bins. */
static void test_bin_borders(void) {
    static const int given[] = {0, 2047, 2048, 2049, 2048, 4095, 4096, 4097, 4098, 2047};
    for (int max_draft = 4098; max_draft < 6200; max_draft += 1000) {
        shape s = plain_shape(T_COUNT(given), max_draft, max_draft / 1000);
        s.spread = SPREAD_GIVEN;
        s.given = given;
        t_case("bin borders:");
        run_step(&s, WITH_HISTOGRAM | WITH_TOTALS);
    }
}

/* A1, then E on what A1 wrote. */
static void count_verified(const specv_verify_greedy_desc *v, specv_accept_stats_desc *d,
                           int side) {
    d->rows = v->rows, d->accepted_len = v->accepted_len;
    if (side == T_HOST_SIDE) {
        CHECK_EQ(specv_ref_verify_greedy(v), SPECV_OK, -1);
        CHECK_EQ(specv_ref_accept_stats(d), SPECV_OK, -1);
    }
#if T_DEVICE
    if (side == T_DEVICE_SIDE) {
        CHECK_EQ(specv_verify_greedy(v, 0), SPECV_OK, -1);
        CHECK_EQ(specv_accept_stats(d, 0), SPECV_OK, -1);
    }
#endif
}

/* Row b is padded from column b on, and accepts all that it has, or all but one, by A1. Nobody is
   rejected in the first case, whatever mismatch says. */
static void test_padded(void) {
    enum { ROWS = 21, DRAFTS = ROWS - 1 };
    for (int turn = 0; turn < 8; ++turn) {
        const specv_dtype dtype = turn & 1 ? SPECV_I64 : SPECV_I32;
        const int rejects = turn >> 1 & 1, has_mismatch = turn >> 2, bytes = dtype ? 8 : 4;
        const int64_t drafted = (int64_t)DRAFTS * (DRAFTS + 1) / 2;
        const int64_t want[] = {1,
                                ROWS,
                                drafted,
                                drafted - rejects * DRAFTS,
                                rejects * DRAFTS,
                                drafted - rejects * DRAFTS + ROWS,
                                0};
        t_case("padded rows, %d bytes, %d rejections, %smismatch", bytes, rejects * DRAFTS,
               has_mismatch ? "" : "no ");
        t_buf draft = t_in(bytes * ROWS * DRAFTS, 0), target = t_in(bytes * ROWS * (DRAFTS + 1), 0);
        t_buf accepted = t_out(4 * ROWS, 0), mismatch = t_out(ROWS, 0);
        t_buf totals = t_out(8 * SPECV_STAT_COUNT, 0);
        for (int b = 0; b < ROWS; ++b)
            for (int j = 0; j <= DRAFTS; ++j) {
                put_token(&target, dtype, b * (DRAFTS + 1) + j, j);
                if (j < DRAFTS)
                    put_token(&draft, dtype, b * DRAFTS + j,
                              j >= b                  ? -1
                              : rejects && j == b - 1 ? j + 1
                                                      : j);
            }
        t_upload();
        for (int side = 0; side <= T_DEVICE; ++side) {
            specv_verify_greedy_desc v = SPECV_ZERO;
            specv_accept_stats_desc d = SPECV_ZERO;
            v.rows.batch = ROWS, v.rows.max_draft = DRAFTS, v.token_dtype = (int32_t)dtype;
            v.draft_tokens = t_at(&draft, side), v.target_tokens = t_at(&target, side);
            v.accepted_len = (int32_t *)t_at(&accepted, side);
            v.mismatch = (uint8_t *)t_at(&mismatch, side);
            if (has_mismatch) d.mismatch = v.mismatch;
            d.draft_tokens = v.draft_tokens, d.token_dtype = v.token_dtype;
            d.totals = (int64_t *)t_at(&totals, side);
            count_verified(&v, &d, side);
        }
        for (int i = 0; i < SPECV_STAT_COUNT; ++i) CHECK_EQ(get_counter(&totals, i), want[i], i);
        t_check_device();
    }
}

/* Several steps into the same counters. */
static void test_running(void) {
    for (int turn = 0; turn < 6; ++turn) {
        const int num_steps = 4, max_draft = 8;
        int64_t want[SPECV_STAT_COUNT] = {0}, bins[9] = {0};
        t_case("%d steps into the same counters", num_steps);
        t_buf histogram = t_out(8 * (max_draft + 1), 0), totals = t_out(8 * SPECV_STAT_COUNT, 0);
        for (int i = 0; i < num_steps; ++i) {
            shape s = plain_shape(33, max_draft, turn);
            batch b;
            s.endings = turn % 2 ? ALL_ENDINGS : 0;
            s.num_eos = turn % 2;
            batch_make(&b, &s);
            if (i == 0) t_upload();
#if T_DEVICE
            for (int k = 2; k < t_num_buffers && i > 0; ++k) /* the counters keep their numbers */
                if (t_buffers[k].device_base)
                    T_CUDA(cudaMemcpy(t_buffers[k].device_base, t_buffers[k].host_base,
                                      t_buffers[k].total, cudaMemcpyHostToDevice));
#endif
            for (int side = 0; side <= T_DEVICE; ++side) {
                specv_verify_greedy_desc v = batch_describe(&b, side);
                specv_accept_stats_desc d = SPECV_ZERO;
                d.accumulate = i > 0; /* the first step stores, so nobody has to clear */
                d.mismatch = v.mismatch;
                d.num_emitted = v.num_emitted;
                d.histogram = (int64_t *)t_at(&histogram, side);
                d.totals = (int64_t *)t_at(&totals, side);
                count_verified(&v, &d, side);
            }
            want[SPECV_STAT_STEPS] += 1;
            for (int row = 0; row < s.batch; ++row) {
                const truth *r = &b.rows[row];
                int bad = r->status & SPECV_ROW_BAD_LENGTH;
                want[SPECV_STAT_BAD_ROWS] += bad;
                if (bad) continue;
                want[SPECV_STAT_ROWS] += 1;
                want[SPECV_STAT_DRAFTED] += r->n_draft;
                want[SPECV_STAT_ACCEPTED] += r->accepted;
                want[SPECV_STAT_REJECTED] += r->mismatch;
                want[SPECV_STAT_EMITTED] += r->emitted;
                bins[r->accepted] += 1;
            }
            batch_free(&b);
        }
        for (int i = 0; i < SPECV_STAT_COUNT; ++i) CHECK_EQ(get_counter(&totals, i), want[i], i);
        for (int i = 0; i <= max_draft; ++i) CHECK_EQ(get_counter(&histogram, i), bins[i], i);
        t_check_device();
    }
}

/* ----------------------------------------------------------------------------------- the host */

static int near(double a, double b, double tolerance) { return fabs(a - b) <= tolerance; }

/* Figures that can be looked up or worked out by hand. */
static void test_closed_numbers(void) {
    int64_t none[SPECV_STAT_COUNT] = {0}, some[SPECV_STAT_COUNT] = {0};
    t_case("expected tokens and speed-up");
    CHECK(near(specv_expected_tokens(0.8, 5), 3.689, 0.0005));
    CHECK(near(specv_expected_tokens(0.7, 5), 2.941, 0.0005));
    CHECK(near(specv_expected_tokens(0.9, 5), 4.686, 0.0005));
    CHECK(near(specv_expected_speedup(0.8, 5, 0.1), 2.46, 0.005));
    CHECK(near(specv_expected_speedup(0.7, 5, 0.1), 1.96, 0.005));
    CHECK(near(specv_expected_speedup(0.9, 5, 0.1), 4.686 / 1.5, 0.0005));
    for (int gamma = 0; gamma <= 64; ++gamma) {
        CHECK(near(specv_expected_tokens(0, gamma), 1, 0));
        CHECK(near(specv_expected_tokens(1, gamma), gamma + 1, 0));
        for (int i = 1; i < 20; ++i) {
            double alpha = i / 20.0;
            double closed = (1 - pow(alpha, gamma + 1)) / (1 - alpha);
            CHECK(near(specv_expected_tokens(alpha, gamma), closed, 1e-12 * closed));
        }
    }
    t_case("metrics of totals");
    CHECK(near(specv_block_efficiency(none), 0, 0));
    CHECK(near(specv_tokens_per_step(none), 0, 0));
    CHECK(near(specv_acceptance_rate(none), 0, 0));
    some[SPECV_STAT_STEPS] = 4;
    some[SPECV_STAT_ROWS] = 16;
    some[SPECV_STAT_ACCEPTED] = 30;
    some[SPECV_STAT_REJECTED] = 10;
    some[SPECV_STAT_EMITTED] = 46;
    CHECK(near(specv_block_efficiency(some), 46.0 / 16, 0));
    CHECK(near(specv_tokens_per_step(some), 46.0 / 4, 0));
    CHECK(near(specv_acceptance_rate(some), 0.75, 0));
}

/* Rows whose drafts are accepted with probability alpha until the first rejection: the rate that
   the counters give must be alpha again, and tokens per row the formula. Bounds: five standard
   errors. */
static void test_recovers_alpha(void) {
    static const double alphas[] = {0.1, 0.3, 0.6, 0.8, 0.9, 0.97};
    const int num_rows = 20000, gamma = 8;
    for (int i = 0; i < T_COUNT(alphas); ++i) {
        const double alpha = alphas[i];
        int64_t totals[SPECV_STAT_COUNT] = {0};
        double reached, rate_error, tokens_error;
        specv_accept_stats_desc d = SPECV_ZERO;
        t_case("recovers alpha %g", alpha);
        t_buf accepted = t_in(4 * num_rows, 0);
        for (int row = 0; row < num_rows; ++row) {
            int32_t k = 0;
            while (k < gamma && t_uniform() < alpha) ++k;
            memcpy(accepted.host + 4 * row, &k, 4);
        }
        t_upload();
        d.rows.batch = num_rows, d.rows.max_draft = gamma;
        d.accepted_len = (const int32_t *)(const void *)accepted.host;
        d.totals = totals;
        CHECK_EQ(specv_ref_accept_stats(&d), SPECV_OK, -1);
        reached = (double)(totals[SPECV_STAT_ACCEPTED] + totals[SPECV_STAT_REJECTED]);
        rate_error = sqrt(alpha * (1 - alpha) / reached);
        CHECK(near(specv_acceptance_rate(totals), alpha, 5 * rate_error));
        tokens_error = gamma / 2.0 / sqrt((double)num_rows); /* of numbers in 0..gamma: at most */
        CHECK(near(specv_block_efficiency(totals), specv_expected_tokens(alpha, gamma),
                   5 * tokens_error));
    }
}

/* --------------------------------------------------------------------------------- validation */

static int64_t storage[64]; /* something to point to: nothing of it is read or written */

static void *misaligned(void) { return (char *)storage + 2; }

static specv_accept_stats_desc valid_desc(void) {
    specv_accept_stats_desc d = SPECV_ZERO;
    d.rows.batch = 4, d.rows.max_draft = 7;
    d.accepted_len = (int32_t *)storage;
    d.histogram = d.totals = storage;
    return d;
}

#if !T_DEVICE
#define specv_accept_stats(d, stream) specv_ref_accept_stats(d)
#endif

#define EXPECT(code, change)                                                                       \
    do {                                                                                           \
        specv_accept_stats_desc d = valid_desc();                                                  \
        change;                                                                                    \
        CHECK_EQ(specv_accept_stats_validate(&d), code, -1);                                       \
        if ((code) != SPECV_OK) CHECK_EQ(specv_ref_accept_stats(&d), code, -1);                    \
        if ((code) != SPECV_OK) CHECK_EQ(specv_accept_stats(&d, 0), code, -1);                     \
    } while (0)

static void test_validation(void) {
    t_case("every status code of E");
    CHECK_EQ(specv_accept_stats_validate(NULL), SPECV_ERR_NULL_DESC, -1);
    CHECK_EQ(specv_ref_accept_stats(NULL), SPECV_ERR_NULL_DESC, -1);
    CHECK_EQ(specv_accept_stats(NULL, 0), SPECV_ERR_NULL_DESC, -1);
    EXPECT(SPECV_OK, (void)0);
    EXPECT(SPECV_ERR_CANARY, d.canary0 = 1);
    EXPECT(SPECV_ERR_CANARY, d.canary1 = 1);
    EXPECT(SPECV_ERR_CANARY, d.reserved = 1);
    EXPECT(SPECV_ERR_CHAINED, d.chained = 4);
    EXPECT(SPECV_ERR_CHAINED, d.chained = -1);
    EXPECT(SPECV_ERR_BATCH, d.rows.batch = -1);
    EXPECT(SPECV_ERR_ACCUMULATE, d.accumulate = 2);
    EXPECT(SPECV_ERR_ACCUMULATE, d.accumulate = -1);
    EXPECT(SPECV_ERR_TOKEN_DTYPE, d.token_dtype = 2);
    EXPECT(SPECV_OK, d.draft_tokens = (int32_t *)storage + 1);
    EXPECT(SPECV_ERR_DRAFT_TOKENS, d.draft_tokens = misaligned());
    EXPECT(SPECV_ERR_DRAFT_TOKENS, (d.draft_tokens = (int32_t *)storage + 1, d.token_dtype = 1));
    EXPECT(SPECV_OK, d.draft_stride_elems = 7);
    EXPECT(SPECV_ERR_DRAFT_STRIDE, d.draft_stride_elems = 6);
    EXPECT(SPECV_ERR_DRAFT_STRIDE, d.draft_stride_elems = -1);
    EXPECT(SPECV_ERR_DRAFT_STRIDE,
           (d.draft_stride_elems = 7, d.rows.row_start = (int32_t *)storage));
    EXPECT(SPECV_ERR_SIZE, d.draft_stride_elems = INT64_MAX / 8);
    EXPECT(SPECV_ERR_ACCEPTED_LEN, d.accepted_len = NULL);
    EXPECT(SPECV_OK, (d.accepted_len = NULL, d.rows.batch = 0));
    EXPECT(SPECV_ERR_ACCEPTED_LEN, d.accepted_len = (int32_t *)misaligned());
    EXPECT(SPECV_ERR_NUM_EMITTED, d.num_emitted = (int32_t *)misaligned());
    EXPECT(SPECV_ERR_HISTOGRAM, d.histogram = (int64_t *)misaligned());
    EXPECT(SPECV_ERR_HISTOGRAM, d.histogram = d.totals = NULL);
    EXPECT(SPECV_OK, d.histogram = NULL);
    EXPECT(SPECV_OK, d.totals = NULL);
    EXPECT(SPECV_ERR_TOTALS, d.totals = (int64_t *)misaligned());
}

int main(int argc, char **argv) {
    static const t_group groups[] = {
        {"validation", test_validation},
        {"closed-numbers", test_closed_numbers},
        {"recovers-alpha", test_recovers_alpha},
        {"ways", test_ways},
        {"sizes", test_sizes},
        {"bin-borders", test_bin_borders},
        {"padded", test_padded},
        {"running", test_running},
    };
    return t_main(argc, argv, groups, T_COUNT(groups));
}
