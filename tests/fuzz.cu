/* fuzz.cu - random descriptors for every operation, and relations between runs.

   Case i of a group is drawn from seed --seed + i. What fails prints its seed; to see that case
   alone: "fuzz GROUP --seed S --cases 1". More than the usual number: "--cases N". */

#include "kv.h"
#include "step.h"

static long num_cases(long usual, long quick) {
    return t.cases ? t.cases : t.quick ? quick : usual;
}

/* ------------------------------------------------------------------------- random descriptors */

/* Mostly small: a fault shows in a small case, and there is time for many. */
static shape any_shape(void) {
    static const int64_t vocabs[] = {0, 8, 100, 50257, INT32_MAX, ((int64_t)1 << 33) + 5};
    static const int drafts[] = {0,  1,  2,  3,  4,  5,  7,   8,   9,  15,
                                 16, 17, 31, 32, 33, 64, 127, 128, 130};
    shape s;
    memset(&s, 0, sizeof s);
    s.batch = (int)t_below(t_chance(5) ? 300 : t_chance(50) ? 40 : 9);
    s.max_draft = t_chance(70) ? (int)t_below(10) : T_PICK(drafts);
    s.dtype = t_chance(50) ? SPECV_I64 : SPECV_I32;
    s.layout = (layout)t_below(NUM_LAYOUTS);
    s.endings = t_chance(30)   ? 0
                : t_chance(50) ? (unsigned)ALL_ENDINGS
                               : (unsigned)t_random() & ALL_ENDINGS;
    s.outputs = (unsigned)(t_chance(50) ? OUT_ALL : (int)t_below(OUT_ALL + 1) | OUT_NONE);
    s.spread = (spread)t_below(3);
    s.vocab = T_PICK(vocabs);
    if (s.dtype == SPECV_I32 && s.vocab > INT32_MAX) s.vocab = 0;
    s.num_eos = (int)t_below(SPECV_MAX_EOS + 1);
    s.has_num_active = t_chance(30);
    s.num_active = (int)t_between(-2, s.batch + 3);
    if (s.layout != CSR && t_chance(40)) {
        s.draft_gap = (int)t_below(5);
        s.target_gap = (int)t_below(5);
    }
    if (t_chance(40)) s.out_gap = (int)t_below(5);
    s.spare_drafts = (int)t_below(4);
    return s;
}

static kv_shape any_kv(const shape *s) {
    static const int64_t sizes[] = {1,  2,  3,  4,  8,   12,  15,  16,  17,
                                    31, 32, 48, 64, 100, 128, 256, 1040};
    static const int sms[] = {1, 1, 1, 1, 2, 3, 4, 5, 6, 7};
    kv_shape k;
    memset(&k, 0, sizeof k);
    k.row_bytes = T_PICK(sizes);
    if (t_chance(40)) k.pos_gap = t_chance(50) ? 16 * t_below(3) : t_below(9);
    if (t_chance(40) && s->layout != CSR) k.seq_gap = t_chance(50) ? 16 * t_below(3) : t_below(9);
    if (t_chance(40)) k.dst_gap = t_chance(50) ? 16 * t_below(3) : t_below(9);
    if (t_chance(50)) k.src_offset = (int)t_below(16), k.dst_offset = (int)t_below(16);
    if (t_chance(30)) k.num_planes = (int)t_between(1, 5);
    k.null_planes = t_chance(50) ? 0 : 30;
    k.num_sms = !t.quick && t_chance(1) ? 132 : T_PICK(sms); /* a whole device takes its time */
    k.room = (room)t_below(NUM_ROOMS);
    k.bad_accepted = t_chance(50) ? 0 : 20;
    k.keep_status = t_chance(50);
    return k;
}

static void fuzz_verify(void) {
    for (long i = 0, end = num_cases(10000, 400); i < end; ++i) {
        shape s;
        t_case("A1:");
        s = any_shape();
        batch_run(&s);
    }
}

static void fuzz_pack(void) {
    for (long i = 0, end = num_cases(4500, 250); i < end; ++i) {
        shape s;
        kv_shape k;
        t_case("B1:");
        s = any_shape();
        k = any_kv(&s);
        kv_run_b1(&s, &k);
    }
}

static void fuzz_verify_pack(void) {
    for (long i = 0, end = num_cases(3500, 120); i < end; ++i) {
        shape s;
        kv_shape k;
        t_case("B2:");
        s = any_shape();
        k = any_kv(&s);
        kv_run_b2(&s, &k, t_chance(10));
    }
}

static void fuzz_stats(void) {
    for (long i = 0, end = num_cases(2000, 200); i < end; ++i) {
        shape s;
        t_case("E:");
        s = any_shape();
        if (t_chance(3)) s.max_draft = (int)t_between(2000, 4200), s.batch = (int)t_below(5);
        run_step(&s, (int)t_below(NUM_WAYS));
    }
}

/* ---------------------------------------------------------------------------------- relations */

/* The rows `order` of another batch, in the shape s: in another order, layout, width, with other
   gaps, and with rows behind them that are inert. Everything that is not a row is drawn anew. */
static void rearrange(batch *to, const batch *from, const shape *s, const int *order, int num) {
    batch_start(to, s);
    memcpy(to->eos, from->eos, sizeof to->eos);
    for (int row = 0; row < s->batch; ++row) {
        truth *r = &to->rows[row];
        int32_t noise = (int32_t)t_random(), n = row < num ? from->rows[order[row]].n_draft : 0;
        if (row < num) *r = from->rows[order[row]];
        r->first = s->layout == CSR ? to->num_draft_tokens : row * to->draft_stride;
        to->num_draft_tokens += s->layout == CSR ? n : 0;
        if (to->draft_len.host) memcpy(to->draft_len.host + 4 * row, row < num ? &n : &noise, 4);
        if (!to->row_start.host) continue;
        if (row <= num) noise = (int32_t)r->first;
        memcpy(to->row_start.host + 4 * row, &noise, 4);
    }
    if (to->row_start.host) {
        int32_t end = (int32_t)to->num_draft_tokens;
        memcpy(to->row_start.host + 4 * (int64_t)s->batch, &end, 4);
        to->by_end = t_chance(50);
    }
    batch_tokens(to);
    for (int row = 0; row < s->batch; ++row) {
        const truth *r = &from->rows[row < num ? order[row] : 0];
        int64_t from_target;
        put_noise(to, row);
        if (row >= num) continue;
        from_target =
            from->s.layout == CSR ? r->first + order[row] : order[row] * from->target_stride;
        for (int j = 0; j <= r->n_draft; ++j)
            put_pair(to, row, j, j < r->n_draft,
                     j < r->n_draft ? get_token(&from->draft, s->dtype, r->first + j) : 0,
                     get_token(&from->target, s->dtype, from_target + j));
    }
    batch_outputs(to);
}

/* Row `order[i]` of one run and row i of the other have the same results. */
static void check_same_rows(const batch *a, const batch *b, const int *order, int num) {
    const int64_t columns = a->s.max_draft < b->s.max_draft ? a->s.max_draft : b->s.max_draft;
    const specv_dtype dtype = a->s.dtype;
    for (int row = 0; row < num; ++row) {
        const int was = order[row];
        CHECK_EQ(word_at(&b->accepted, row), word_at(&a->accepted, was), row);
        CHECK_EQ(b->mismatch.host[row], a->mismatch.host[was], row);
        CHECK_EQ(get_token(&b->next, dtype, row), get_token(&a->next, dtype, was), row);
        CHECK_EQ(word_at(&b->emitted, row), word_at(&a->emitted, was), row);
        CHECK_EQ(b->finished.host[row], a->finished.host[was], row);
        CHECK_EQ(word_at(&b->status, row), word_at(&a->status, was), row);
        for (int64_t j = 0; j <= columns; ++j)
            CHECK_EQ(get_token(&b->tokens, dtype, row * b->out_stride + j),
                     get_token(&a->tokens, dtype, was * a->out_stride + j), row);
    }
}

static void run_both(batch *b) {
    specv_verify_greedy_desc d = batch_describe(b, T_HOST_SIDE);
    CHECK_EQ(specv_ref_verify_greedy(&d), SPECV_OK, -1);
#if T_DEVICE
    d = batch_describe(b, T_DEVICE_SIDE);
    CHECK_EQ(specv_verify_greedy(&d, 0), SPECV_OK, -1);
#endif
}

enum { MAX_RELATED = 64 };

/* A row's results depend on the row alone: not on its place, on the other rows, on the width of
   the buffers, on the layout, on where the batch is cut, nor on inert rows behind. */
static void fuzz_rows(void) {
    for (long i = 0, end = num_cases(800, 60); i < end; ++i) {
        batch a, b, c;
        shape s;
        int order[MAX_RELATED], cut;
        t_case("row relations:");
        s = any_shape();
        s.batch = (int)t_between(1, MAX_RELATED);
        s.endings &= ~(1u << END_BAD_LENGTH);
        s.outputs = OUT_ALL;
        s.has_num_active = 0;
        batch_note(&s);
        batch_make(&a, &s);
        for (int row = 0; row < s.batch; ++row) order[row] = row;
        for (int row = s.batch - 1; row > 0; --row) { /* shuffle */
            int other = (int)t_below(row + 1), swap = order[row];
            order[row] = order[other];
            order[other] = swap;
        }
        cut = (int)t_between(0, s.batch);
        s.layout = t_chance(50) ? CSR : DENSE_LEN;
        s.max_draft += (int)t_below(40);
        s.draft_gap = s.layout == CSR ? 0 : (int)t_below(3);
        s.target_gap = s.layout == CSR ? 0 : (int)t_below(3);
        s.has_num_active = 1;
        s.batch = cut + (int)t_below(4);
        s.num_active = cut;
        rearrange(&b, &a, &s, order, cut);
        s.batch = s.num_active = a.s.batch - cut;
        rearrange(&c, &a, &s, order + cut, a.s.batch - cut);
        t_upload();
        run_both(&a);
        run_both(&b);
        run_both(&c);
        check_same_rows(&a, &b, order, cut);
        check_same_rows(&a, &c, order + cut, a.s.batch - cut);
        t_check_host();
        t_check_device();
        batch_free(&a);
        batch_free(&b);
        batch_free(&c);
    }
}

/* Results do not depend on the grid: any number of SMs, B2 in one launch or in two. */
static void fuzz_grids(void) {
#if T_DEVICE
    static const int sms[] = {1, 2, 3, 4, 5, 6, 7, 33, 132};
    for (long i = 0, end = num_cases(50, 4); i < end; ++i) {
        shape s;
        kv_shape k;
        batch b;
        kv_pack p;
        t_case("grids:");
        s = any_shape();
        k = any_kv(&s);
        batch_note(&s);
        kv_note(&k);
        batch_make(&b, &s);
        kv_make(&p, &k, &b, 0);
        t_upload();
        specv_verify_pack_kv_desc d = kv_describe_b2(&p, T_HOST_SIDE);
        CHECK_EQ(specv_ref_verify_pack_kv(&d), SPECV_OK, -1);
        d = kv_describe_b2(&p, T_DEVICE_SIDE);
        for (int j = 0; j < T_COUNT(sms) + 2; ++j) {
            d.kv.num_sms = sms[j % T_COUNT(sms)];
            if (d.kv.num_sms == 132 && i % 10) continue; /* a whole device takes its time */
            CHECK_EQ(j < T_COUNT(sms)    ? specv_verify_pack_kv(&d, 0)
                     : j == T_COUNT(sms) ? kv_launch_one(&d, 3)
                                         : kv_launch_two(&d),
                     SPECV_OK, -1);
            t_check_device();
            t_poison_device();
        }
        kv_free(&p);
        batch_free(&b);
    }
#else
    t_skip("the reference has no grid");
#endif
}

int main(int argc, char **argv) {
    static const t_group groups[] = {
        {"verify", fuzz_verify}, {"pack", fuzz_pack}, {"both", fuzz_verify_pack},
        {"stats", fuzz_stats},   {"rows", fuzz_rows}, {"grids", fuzz_grids},
    };
    return t_main(argc, argv, groups, T_COUNT(groups));
}
