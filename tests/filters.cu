/* filters.cu - A10: masks, top-k, top-p and min-p, in every rule.

   What is kept is found here by sorting; the verification of what is left must then be what it is
   with every other id's logit at -inf, in every output. That is held against the reference, on rows
   of every kind, and the device against the reference. Known endings are pinned one by one. */

#define T_INSIDE /* functions of the implementation are called */
/* so that it has kernels of its own, those that it starts */
#define SPECVERIFY_NO_GREEDY
#define SPECVERIFY_NO_SHARDS
#define SPECVERIFY_NO_PACK
#define SPECVERIFY_NO_CACHE
#define SPECVERIFY_NO_TREES
#define SPECVERIFY_NO_COLUMNS
#define SPECVERIFY_NO_SCHEDULE
#define SPECVERIFY_NO_PARTICLES
#define SPECVERIFY_NO_STATS
#include "kept.h"

/* ----------------------------------------------------------------------------------- scenes */

/* The reference with filters against the reference on what they leave. */
static void check_kept(stage *g, const snapshot *before) {
    snapshot with;
    specv_verify_sample_desc d;
    const specv_filters none = SPECV_ZERO;
    int32_t *off = (int32_t *)calloc(1 << 16, sizeof *off);
    if (!off || g->c.s.batch > 1 << 12) t_die(__FILE__, __LINE__, "calloc", "no memory");
    take_snapshot(&with);
    for (int i = 0; i < t_num_buffers; ++i)
        if (t_buffers[i].is_output)
            memcpy(t_buffers[i].host_base, before->of[i], t_buffers[i].total);
    if (leave_all_kept(g)) {
        d = stage_describe(g, T_HOST_SIDE);
        const int filtered = specv_i_is_filtered(&d);
        d.filters = d.draft_filters = none;
        if (filtered) d.filters.top_k = off; /* probabilities are weights all the same */
        d.scratch = no_scratch(), d.scratch_bytes = INT64_MAX;
        CHECK_EQ(specv_ref_verify_sample(&d), SPECV_OK, -1);
        for (int i = 0; i < t_num_buffers; ++i) {
            const t_buf *b = &t_buffers[i];
            if (!b->is_output) continue;
            for (int row = 0; b->host == g->b.status.host && b->host && row < g->c.s.batch; ++row) {
                uint32_t status;
                memcpy(&status, with.of[i] + b->before + 4 * row, 4);
                if (!(t_old_status(g->c.s.keep_status, row) & SPECV_ROW_BAD_FILTER))
                    status &= ~(uint32_t)SPECV_ROW_BAD_FILTER;
                CHECK_EQ((uint32_t)word_at(b, row), status, row);
                memcpy(b->host + 4 * row, with.of[i] + b->before + 4 * row, 4);
            }
            CHECK_BYTES(b->host, with.of[i] + b->before, b->bytes);
            t_check_around(b, b->host_base, with.of[i], "around", __FILE__, __LINE__);
        }
    }
    drop_snapshot(&with, 1);
    free(off);
}

static void note_filters(const scene *c) {
    t_note(" %s, scores %d and %d, odd %#x, T %g, spread %g, filters %u and %u, order %d, k %d, "
           "p %g, min %g, %s%s, gap %d,",
           rule_name(c->rule), c->target_dtype, c->draft_dtype, c->odd, (double)c->temperature,
           (double)c->spread, c->filters, c->draft_filters, c->filter_order, c->top_k,
           (double)c->top_p, (double)c->min_p, c->uniforms ? "uniforms" : "seeds",
           c->slots ? ", slots" : "", c->gap);
    batch_note(&c->s);
}

static void filtered_run(const scene *c) {
    snapshot before;
    stage g;
    note_filters(c);
    stage_make(&g, c);
    t_upload();
    take_snapshot(&before);
    run_reference(&g);
    check_kept(&g, &before);
    t_check_host();
    drop_snapshot(&before, 0);
#if T_DEVICE
    specv_verify_sample_desc d = describe_device(&g);
    for (int again = 0; again < 2; ++again) { /* with scratch memory as it was left, too */
        if (again) batch_poison_device(&g.b);
        CHECK_EQ(specv_verify_sample(&d, 0), SPECV_OK, -1);
        t_check_device();
    }
    T_CUDA(cudaFree(d.scratch));
#endif
    batch_free(&g.b);
}

static scene filtered_scene(int rows, int max_draft, int vocab) {
    scene c = plain_scene(rows, max_draft, vocab);
    c.target_dtype = SPECV_LOGITS_BF16, c.draft_dtype = SPECV_LOGITS_BF16;
    c.filters = HAS_ALL;
    return c;
}

/* Every rule and type, every subset of filters. */
static void test_types(void) {
    int turn = 0;
    for (int rule = 0; rule < NUM_RULES; ++rule)
        for (int dtype = 0; dtype < 4; ++dtype)
            for (int draft = -1; draft < 4; ++draft) {
                scene c = filtered_scene(3, 3, 1500);
                c.rule = rule, c.target_dtype = dtype, c.draft_dtype = draft;
                c.filters = 1 + (unsigned)(turn % 15);
                if (c.filters & HAS_MASK && turn % 4 == 0) c.filters |= HAS_MASK_GAP;
                c.draft_filters = draft < 0 ? 0 : (unsigned)(turn * 7 % 16);
                if (rule == SPECV_RULE_SCORE) c.draft_filters = 0;
                c.filter_order = turn++ % 3;
                if (t.quick && turn % 3) continue;
                if (rule == SPECV_RULE_SCORE && draft >= 0) continue;
                t_case("every rule and type:");
                filtered_run(&c);
            }
}

static void test_random(void) {
    for (int i = 0; i < (t.cases ? t.cases : t.quick ? 60 : T_DEVICE ? 500 : 3000); ++i) {
        t_case("random:");
        scene c = random_scene(rule_of_case(t.case_seed));
        c.filters = (unsigned)t_below(HAS_ALL + 1);
        if (!(c.filters & HAS_MASK)) c.filters &= ~(unsigned)(HAS_MASK_ROW | HAS_MASK_GAP);
        if (takes_draft_scores(c.rule) && c.draft_dtype >= 0)
            c.draft_filters = (unsigned)t_below(HAS_ALL + 1);
        if (!(c.draft_filters & HAS_MASK))
            c.draft_filters &= ~(unsigned)(HAS_MASK_ROW | HAS_MASK_GAP);
        if (c.s.max_draft == 0) c.draft_filters &= ~(unsigned)HAS_MASK;
        c.filter_order = (int)t_below(3);
        filtered_run(&c);
    }
}

/* Where there are more tiles than the GPU has room for, each warp has its own: rows that end in a
   tile's first ids, in its last part, or with it, that are not aligned, that have NaN, nothing but
   one id, nothing at all; every rule and type, requests that nothing cuts and some at temperature 0
   beside others, with masks and without. */
static void test_whole_tiles(void) {
    static const int sizes[] = {3100, 8191, 9216, 1025, 17 * SPECV_TILE_IDS + 700};
    static const int odds[] = {0, ODD_NAN | ODD_TOP, ODD_ZEROS | ODD_EMPTY, ODD_SAME, ODD_TIES};
    int turn = 0;
    for (int i = 0; i < T_COUNT(sizes); ++i)
        for (int rule = 0; rule < NUM_RULES; ++rule)
            for (int dtype = 0; dtype < 4; ++dtype, ++turn) {
                scene c = filtered_scene(3 + turn % 4, turn % 5 ? 3 : 0, sizes[i]);
                if (t.quick && turn % 4) continue;
                c.rule = rule, c.target_dtype = dtype, c.odd = odds[turn % T_COUNT(odds)];
                c.draft_dtype = !takes_draft_scores(rule) || turn % 3 == 0 ? NO_DRAFT_SCORES
                                : turn % 3 == 1                            ? dtype
                                                                           : SPECV_LOGITS_F32;
                c.filters = turn % 6 ? 1 + (unsigned)(turn * 5 % 15) : HAS_MASK;
                c.draft_filters = c.draft_dtype < 0 ? 0 : (unsigned)(turn * 7 % 16);
                c.filter_order = turn % 3;
                c.temperature = turn % 2 ? -1.f : 0.7f;
                c.s.layout = turn % 2 ? DENSE_LEN : CSR;
                c.gap = turn % 3 ? 4 : 3, c.num_sms = 1;
                t_case("whole tiles, vocabulary %d, odd %d:", sizes[i], c.odd);
                filtered_run(&c);
            }
}

/* Many ids with one score at every limit: bf16 logits that are whole numbers, 0 and -0 among them;
   all alike; rows so flat, and k so large, that no list holds what is kept. */
static void test_ties(void) {
    static const int32_t ks[] = {1, 2, 700, 1024, 1025, 3000};
    static const float ps[] = {0.001f, 0.3f, 0.5f, 0.9f, 0.999f, 0.99999994f};
    for (int i = 0; i < 6; ++i)
        for (int kind = 0; kind < 4; ++kind)
            for (int what = HAS_TOP_K; what < HAS_MASK_ROW; what += 2) {
                scene c = filtered_scene(1, 1, kind == 3 ? 70000 : 9000);
                if (t.quick && (i + kind + what / 2) % 5) continue;
                if (kind == 3 && (i + what / 2) % 4) continue;
                c.rule = (i + kind) % NUM_RULES;
                if (c.rule == SPECV_RULE_GREEDY) c.rule = SPECV_RULE_TOKEN;
                c.odd = kind == 0 ? ODD_ZEROS : kind == 1 ? ODD_TIES : 0;
                c.spread = kind == 2 ? 1e-30f : 1;
                c.target_dtype = (i + kind) % 3;
                c.draft_dtype = what % 4 ? NO_DRAFT_SCORES : c.target_dtype;
                c.filters = (unsigned)what | (i % 2 ? HAS_MASK : 0);
                c.top_k = ks[i], c.top_p = ps[(i + kind) % 6], c.min_p = ps[(i + what) % 6];
                c.filter_order = (i + what) % 3;
                c.num_sms = 20;
                t_case("ties %d:", kind);
                filtered_run(&c);
            }
}

/* Rows too flat for a list whose blocks have helpers: 1 to 15 of them, on rows of each kind, of
   one request or several, some of which need none. */
static void test_helpers(void) {
    static const int sizes[] = {16 * 1024, 23 * 1024 + 5, 40000, 129 * 1024 - 3};
    static const float ps[] = {0.3f, 0.9f, 0.999f, 0.6f};
    static const unsigned cuts[] = {HAS_TOP_P, HAS_TOP_P | HAS_MIN_P, HAS_MIN_P,
                                    HAS_TOP_P | HAS_TOP_K};
    static const int ks[] = {3000, 1 << 20, 50};
    for (int i = 0; i < (t.quick ? 8 : 64); ++i) {
        scene c = filtered_scene(1 + i / 2 % 3, i % 3, sizes[i % 4]);
        c.rule = i % NUM_RULES;
        if (c.rule == SPECV_RULE_GREEDY) c.rule = SPECV_RULE_COUPLED;
        c.target_dtype = (i + i / 3) % 3;
        c.draft_dtype = i % 4 == 1 && takes_draft_scores(c.rule) && c.s.max_draft ? c.target_dtype
                                                                                  : NO_DRAFT_SCORES;
        c.odd = i % 5 == 2 ? ODD_TIES : i % 5 == 3 ? ODD_SAME : 0;
        c.spread = i % 7 == 3 ? 1e-30f : i % 7 == 5 ? 4 : 0.5f;
        c.filters = cuts[(i / 4 + i / 8) % 4] | (i % 6 == 5 ? HAS_MASK : 0);
        c.top_k = ks[i % 3];
        c.draft_filters = c.draft_dtype >= 0 ? c.filters & HAS_CUTS : 0;
        c.top_p = ps[i / 2 % 4], c.min_p = i % 2 ? 0.3f : 1e-6f;
        c.filter_order = i / 5 % 3;
        c.num_sms = i % 3 == 0 ? 132 : 7 * (1 + i % 8);
        t_case("helpers %d:", i);
        filtered_run(&c);
    }
    for (int i = 0; i < (t.quick ? 1 : 3); ++i) { /* top_p ends among ids of a unit or two */
        scene c = filtered_scene(1, 1, 129 * 1024 - 3);
        c.rule = SPECV_RULE_TOKEN;
        c.target_dtype = SPECV_LOGITS_F32, c.draft_dtype = NO_DRAFT_SCORES;
        c.odd = ODD_LIGHT, c.spread = 1, c.temperature = 1;
        c.filters = HAS_TOP_P, c.draft_filters = 0, c.top_p = 0.99999994f;
        c.num_sms = i % 2 ? 40 : 132;
        t_case("helpers, light ids %d:", i);
        filtered_run(&c);
    }
}

/* Real vocabularies at the settings of real requests. */
static void test_vocabularies(void) {
    static const int real[] = {32000, 50257, 128256, 151936, 262144};
    static const struct {
        int32_t k;
        float p, min;
    } usual[] = {{50, 0.9f, 0}, {0, 0.95f, 0}, {40, 0, 0}, {0, 0, 0.05f}, {200, 0.8f, 0.02f}};
    for (int i = 0; i < T_COUNT(real); ++i)
        for (int u = 0; u < T_COUNT(usual); ++u) {
            scene c = filtered_scene(1, (i + u) % 2, real[i]);
            if (t.quick && (i + u) % 5) continue;
            c.rule = (i + 2 * u) % NUM_RULES;
            if (c.rule == SPECV_RULE_GREEDY) c.rule = SPECV_RULE_COUPLED;
            c.draft_dtype = NO_DRAFT_SCORES;
            c.target_dtype = (i + u) % 3;
            c.filters = HAS_MASK;
            if (usual[u].k) c.filters |= HAS_TOP_K;
            if (usual[u].p > 0) c.filters |= HAS_TOP_P;
            if (usual[u].min > 0) c.filters |= HAS_MIN_P;
            if (u > 0) c.filters &= ~(unsigned)HAS_MASK;
            c.top_k = usual[u].k, c.top_p = usual[u].p, c.min_p = usual[u].min;
            c.filter_order = i % 3;
            c.num_sms = 132;
            t_case("vocabulary %d:", real[i]);
            filtered_run(&c);
        }
}

/* A small vocabulary, every k and many p: at the sums themselves and next to them. */
static void test_every_limit(void) {
    for (int i = 0; i < (t.quick ? 12 : 60); ++i) {
        const int vocab = i % 4 == 0 ? 16 : 1 + i % 20; /* of 16 alike, k / 16 is k of them */
        scene c = filtered_scene(2, 1, vocab);
        c.rule = i % 2 ? SPECV_RULE_TOKEN : SPECV_RULE_COUPLED;
        c.target_dtype = SPECV_LOGITS_F32;
        c.draft_dtype = i % 2 ? (int)SPECV_LOGITS_F32 : NO_DRAFT_SCORES;
        c.spread = i % 4 ? 1 : 1e-30f; /* alike: sums are k / vocab */
        c.filters = i % 3 ? HAS_TOP_P : HAS_TOP_P | HAS_TOP_K;
        c.draft_filters = c.draft_dtype < 0 ? 0 : HAS_TOP_P;
        c.top_k = 1 + i % vocab;
        c.top_p = (float)(1 + i % vocab) / (float)(vocab + (i % 4 != 0));
        if (i % 5 == 1) c.top_p = specv_bits_float(specv_float_bits(c.top_p) + 1);
        if (i % 5 == 2) c.top_p = specv_bits_float(specv_float_bits(c.top_p) - 1);
        c.filter_order = i % 3;
        t_case("limit %d of %d:", i, vocab);
        filtered_run(&c);
    }
}

/* Requests without drafts whose row nothing cuts: a thread a tile puts it together, as long as
   there are no more tiles than threads for it (224). */
static void test_one_row(void) {
    static const int vocabs[] = {1, 1025, 20000, 224 * 1024, 224 * 1024 + 1, 262144};
    for (int v = 0, turn = 0; v < T_COUNT(vocabs); ++v)
        for (int rule = 0; rule < NUM_RULES; ++rule, ++turn) {
            const int is_long = vocabs[v] > 100000;
            scene c = filtered_scene(is_long ? 1 : 4, is_long ? 0 : turn % 2, vocabs[v]);
            c.rule = rule, c.target_dtype = turn % 4, c.draft_dtype = NO_DRAFT_SCORES;
            if (is_long && rule != SPECV_RULE_TOKEN && (t.quick || rule % 2)) continue;
            if (is_long) c.target_dtype = v % 2 ? SPECV_LOGITS_BF16 : SPECV_LOGITS_F32;
            c.filters = turn % 3 ? HAS_MASK | HAS_TOP_P : HAS_TOP_K | HAS_TOP_P;
            c.top_k = -1, c.top_p = 1;
            c.temperature = is_long ? 0.9f : -1.f;
            c.uniforms = !is_long && turn % 5 == 1;
            c.bonus = c.s.max_draft && turn % 3 == 1;
            c.num_sms = turn % 4 < 2 ? 1 : 132; /* both kernels */
            t_case("one row:");
            filtered_run(&c);
        }
}

/* More rows than tickets have room for, and more drafts than a warp has lanes. */
static void test_shapes(void) {
    static const struct {
        int rows, drafts, vocab;
    } sizes[] = {{33, 2, 200}, {2, 40, 1100}, {1, 33, 40}, {65, 0, 60}, {0, 3, 50}, {3, 0, 5000}};
    for (int i = 0; i < T_COUNT(sizes); ++i)
        for (int rule = 0; rule < NUM_RULES; ++rule) {
            scene c = filtered_scene(sizes[i].rows, sizes[i].drafts, sizes[i].vocab);
            if (t.quick && (i + rule) % 3) continue;
            c.rule = rule;
            c.odd = i % 2 ? ODD_SAME : 0;
            c.filter_order = rule % 3;
            c.s.layout = (layout)((i + rule) % NUM_LAYOUTS);
            if (rule == SPECV_RULE_SCORE) c.draft_dtype = NO_DRAFT_SCORES;
            if (c.draft_dtype >= 0 && sizes[i].drafts)
                c.draft_filters = i % 2 ? HAS_TOP_K | HAS_TOP_P : HAS_ALL;
            if (c.draft_dtype >= 0 && i == 1) c.draft_filters = c.filters;
            c.slots = i % 2;
            t_case("shapes:");
            filtered_run(&c);
        }
}

/* ------------------------------------------------------------------------------- known answers */

/* One row, one position, five ids: 3, 1, 4, 1, -1. */
static void test_pinned(void) {
    enum { NONE = -1 };
    static const struct {
        uint32_t mask;
        int32_t k;
        float p, min, u;
        int32_t token;
        uint32_t status;
    } cases[] = {
        {31, 1, 1, 0, 0.99f, 2, 0},    /* top_k 1: the largest */
        {31, 0, 0, 0, 0.99f, 2, 0},    /* top_p 0: the likeliest */
        {31, 0, 1, 1, 0.99f, 2, 0},    /* min_p 1: the same */
        {31, 0, 1, 0, 0.9999f, 4, 0},  /* nothing: the last id */
        {31, 9, 1, 0, 0.9999f, 4, 0},  /* k above the vocabulary: nothing */
        {31, -3, 1, 0, 0.9999f, 4, 0}, /* k below 1: nothing */
        {31, 2, 1, 0, 0.01f, 0, 0},    /* ids 2 and 0 */
        {31, 2, 1, 0, 0.9999f, 2, 0},  /* */
        {31, 3, 1, 0, 0.99999f, 2, 0}, /* of the equal ones id 1, not 3, is the third */
        {10, 1, 1, 0, 0.99f, 1, 0},    /* allowed: 1 and 3, equal: the first */
        {10, 0, 1, 0, 0.99f, 3, 0},    /* */
        {16, 0, 1, 0, 0.5f, 4, 0},     /* one id is allowed */
        {0, 0, 1, 0, 0.5f, NONE, SPECV_ROW_EMPTY},
        {0, 2, 0.5f, 0.5f, 0.5f, NONE, SPECV_ROW_EMPTY},
        {31, 0, NAN, 0, 0.9999f, 4, SPECV_ROW_BAD_FILTER},
        {31, 0, -0.5f, 0, 0.9999f, 4, SPECV_ROW_BAD_FILTER},
        {31, 0, 1.5f, 0, 0.9999f, 4, SPECV_ROW_BAD_FILTER},
        {31, 0, 1, NAN, 0.9999f, 4, SPECV_ROW_BAD_FILTER},
        {31, 0, 1, -1, 0.9999f, 4, SPECV_ROW_BAD_FILTER},
        {31, 1, 2, 2, 0.9999f, 2, SPECV_ROW_BAD_FILTER}, /* what is good holds */
        /* p of 4 is .678, of 3 .250, of 1 .034 each, of -1 .005 */
        {31, 0, 0.65f, 0, 0.9999f, 2, 0},
        {31, 0, 0.68f, 0, 0.0001f, 0, 0},
        {31, 0, 1, 0.36f, 0.0001f, 0, 0}, /* e^-1 is .368 */
        {31, 0, 1, 0.37f, 0.0001f, 2, 0},
        {31, 0, 1, 0.05f, 0.9999f, 2, 0}, /* e^-3 is .0498 */
        {31, 0, 1, 0.049f, 0.9999f, 3, 0},
    };
    for (int i = 0; i < T_COUNT(cases); ++i) {
        t_case("pinned %d", i);
        const float logits[5] = {3, 1, 4, 1, -1};
        specv_sample_desc d = SPECV_ZERO;
        t_buf scores = t_in(20, 0), mask = t_in(4, 0), k = t_in(4, 0), p = t_in(4, 0),
              min = t_in(4, 0), u = t_in(4, 0), token = t_out(4, 0), status = t_out(4, 0);
        memcpy(scores.host, logits, 20);
        put_word(&mask, 0,
                 (int32_t)(cases[i].mask | 0xffffff00u)); /* bits behind vocab: anything */
        put_word(&k, 0, cases[i].k);
        memcpy(p.host, &cases[i].p, 4), memcpy(min.host, &cases[i].min, 4);
        memcpy(u.host, &cases[i].u, 4);
        t_upload();
        for (int side = T_HOST_SIDE; side <= (T_DEVICE ? T_DEVICE_SIDE : T_HOST_SIDE); ++side) {
            d.batch = 1, d.vocab = 5;
            d.scores.data = t_at(&scores, side);
            d.filters.mask = (const uint32_t *)t_at(&mask, side);
            d.filters.top_k = (const int32_t *)t_at(&k, side);
            d.filters.top_p = (const float *)t_at(&p, side);
            d.filters.min_p = (const float *)t_at(&min, side);
            d.uniform = (const float *)t_at(&u, side);
            d.token = t_at(&token, side), d.row_status = (uint32_t *)t_at(&status, side);
            d.scratch = no_scratch(), d.scratch_bytes = INT64_MAX;
            if (side == T_HOST_SIDE) {
                CHECK_EQ(specv_ref_sample(&d), SPECV_OK, -1);
                CHECK_EQ(word_at(&token, 0), cases[i].token, 0);
                CHECK_EQ(word_at(&status, 0), cases[i].status, 0);
                continue;
            }
#if T_DEVICE
            d.scratch_bytes = specv_sample_scratch_bytes(1, 5);
            d.scratch = new_scratch(d.scratch_bytes);
            CHECK_EQ(specv_sample(&d, 0), SPECV_OK, -1);
            t_check_device();
            T_CUDA(cudaFree(d.scratch));
#endif
        }
    }
}

/* top_k 1 is greedy, and what is off changes nothing, whatever the row. */
static void test_equal_to(void) {
    for (int i = 0; i < (t.quick ? 8 : 40); ++i) {
        scene c = filtered_scene(4, 2, i % 2 ? 3000 : 40);
        specv_verify_sample_desc d;
        const specv_filters none = SPECV_ZERO;
        int32_t token[4];
        snapshot with;
        stage g;
        c.rule = i % NUM_RULES, c.odd = i % 3 ? 0 : ODD_ZEROS;
        c.target_dtype = i % 3, c.draft_dtype = NO_DRAFT_SCORES;
        c.filters = HAS_CUTS, c.top_k = i % 4 < 2 ? 1 : -1, c.top_p = 1, c.min_p = 1e-44f;
        t_case("equal to greedy, or to nothing:");
        note_filters(&c);
        stage_make(&g, &c);
        for (int row = 0; row < 4; ++row) put_word(&g.filters.min_p, row, 0);
        t_upload();
        run_reference(&g);
        take_snapshot(&with);
        d = stage_describe(&g, T_HOST_SIDE);
        d.filters = none, d.scratch = no_scratch(), d.scratch_bytes = INT64_MAX;
        if (c.top_k == 1 && c.rule != SPECV_RULE_SCORE) d.rule = SPECV_RULE_GREEDY;
        if (c.top_k == 1) d.temperature = NULL;
        memcpy(token, g.b.next.host, sizeof token);
        if (c.top_k < 0) {
            CHECK_EQ(specv_ref_verify_sample(&d), SPECV_OK, -1);
            for (int b = 0; b < t_num_buffers; ++b)
                CHECK_BYTES(with.of[b], t_buffers[b].host_base, t_buffers[b].total);
        } else if (d.rule == SPECV_RULE_GREEDY) {
            CHECK_EQ(specv_ref_verify_sample(&d), SPECV_OK, -1);
            for (int row = 0; row < 4; ++row) CHECK_EQ(word_at(&g.b.next, row), token[row], row);
        }
        drop_snapshot(&with, 1);
        run_device(&g);
        batch_free(&g.b);
    }
}

/* ------------------------------------------------------------------------------ list and ranges */

#if T_DEVICE
/* What comes of a row. */
typedef struct cut_result {
    uint64_t of_list, of_ranges; /* rank key of the last id that is kept; of_list 0: no list */
    uint64_t few_sum, sum;       /* by the list of few, and by tiles */
    uint64_t by_lanes;           /* a bound of top_k; 0: there is none */
    float few_inverse[2], inverse[2];
    int32_t count, noisy, by_range; /* ids in the list; the coupled choice, of it and by ranges */
    int32_t few[2][4], drawn[2][4]; /* without nothing, without `without`: by few, by tiles */
} cut_result;

/* One row, cut from its list and by ranges. mass: of the row; exact: it is told. tiles: twice. */
static __global__ void cut_kernel(specv_i_cut_row row, specv_i_limits limits, uint64_t mass,
                                  specv_noise noise, int noisy, int32_t without, cut_result *out,
                                  specv_tile *of_list, specv_tile *of_row) {
    __shared__ specv_i_cut c;
    const uint64_t uniform[4] = {0, 0x5555555512345678ull, 0xc000000000000001ull, ~0ull};
    const int thread = (int)threadIdx.x;
    specv_i_request r;
    specv_i_weights w;
    uint64_t through;
    if (thread < row.num_tiles) c.keys[thread] = (uint64_t)row.tiles[thread].score;
    __syncthreads();
    const specv_i_coin no_coin = {0, 0, 0, 1, 0, 0};
    int count;
    const uint64_t bound = specv_i_block_kth_lane(&c, &row, limits.top_k);
    if (thread == 0) out->by_lanes = bound;
    const int kept = specv_i_block_list(&c, &row, &limits, mass, &no_coin, &count, 0);
    if (thread == 0) out->of_list = kept ? c.u.list.key[kept - 1] : 0, out->count = count;
    if (kept) {
        const int32_t its = specv_i_block_best_of_list(&c, &row, kept, &noise);
        if (thread == 0) out->noisy = its;
        for (int i = 0; count <= SPECV_I_FEW && i < 4; ++i) {
            const uint64_t total = specv_i_block_draw_few(&c, count, kept, without, uniform[i], 1);
            if (thread < 2) out->few[thread][i] = c.v.few.drawn[thread];
            if (thread < 2) out->few_inverse[thread] = c.v.few.inverse[thread];
            if (thread == 0) out->few_sum = total;
            __syncthreads();
            specv_i_block_draw_few(&c, count, kept, without, uniform[i], 0);
            if (thread == 0 && out->few[0][i] != c.v.few.drawn[0]) out->few[0][i] = -2;
            __syncthreads();
        }
        specv_i_block_tiles_of_list(&c, &row, of_list, kept);
    }
    __syncthreads();
    specv_i_best best = {noise, SPECV_I_NO_SCORE, SPECV_I_INT_MAX};
    const uint64_t flat =
        specv_i_block_cut_flat(&c, &row, &limits, mass, of_row, noisy, &best, 0, 0);
    if (thread == 0) out->of_ranges = flat, out->by_range = best.id;
    row.sieve.least = flat;
    w.p = specv_i_warp_merge(of_row, row.num_tiles, SPECV_TILE_SUM, SPECV_TILE_SUM, 0, &row.scale,
                             &through);
    w.p.inverse = w.p.inverse_low = 0;
    if (w.p.sum) specv_i_set_inverse(&w.p);
    if (thread == 0) {
        out->sum = w.p.sum;
        out->inverse[0] = w.p.inverse, out->inverse[1] = w.p.inverse_low;
    }
    r.target.scale = row.scale, r.target.dtype = row.dtype;
    w.q = w.p, w.rows.p = row.scores, w.rows.q = 0, w.p_sieve = w.q_sieve = row.sieve;
    w.prefix = 1;
    for (int i = 0; i < 8; ++i) {
        w.without = i < 4 ? -1 : without;
        const int32_t id =
            specv_i_block_draw(&r, &w, of_row, row.num_tiles, row.vocab, through, uniform[i % 4]);
        if (thread == 0) out->drawn[i / 4][i % 4] = id;
        __syncthreads();
    }
}
#endif

#if T_DEVICE
static int compare_keys(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* The key of the last id that is kept, by the words of the rule: sorted, added up. 0: all are. */
static uint64_t end_by_words(const float *score, int vocab, const specv_scale *scale, int32_t n,
                             const specv_i_limits *l, uint64_t mass) {
    uint64_t *keys = (uint64_t *)malloc(sizeof *keys * (size_t)vocab), through = 0, end = 0;
    uint64_t of_k = 0, of_min = 0, of_p = 0, least = 0, of_first = 0;
    for (int x = 0; x < vocab; ++x) keys[x] = specv_rank_key(score[x], x);
    qsort(keys, (size_t)vocab, sizeof *keys, compare_keys);
    if (l->top_k < vocab) of_k = keys[l->top_k - 1];
    for (int turn = 0; turn < 2; ++turn) { /* min_p, and what top_p is a part of; top_p */
        const uint64_t limit = turn ? specv_i_part_of(l->top_p, mass) : 0;
        through = 0;
        for (int i = 0; i < vocab; ++i) {
            const float raised = specv_i_max(specv_i_score_of_rank_key(keys[i]), scale->floor);
            const specv_weight w = specv_softmax_weight(raised, scale);
            const uint64_t units = specv_weight_units(&w, n);
            if (i == 0) least = specv_i_least_weight(l->min_p, units);
            if (!turn && l->min_p > 0 && units >= least) of_min = keys[i];
            if (turn && through < limit && through + units >= limit) of_p = keys[i];
            through += units;
        }
        if (!l->has_top_p) break;
        end = l->order == SPECV_TOP_K_TOP_P_MIN_P ? of_k : of_k > of_min ? of_k : of_min;
        for (int i = 0; i < vocab && !turn && specv_i_is_of_kept(l, vocab); ++i) {
            const float raised = specv_i_max(specv_i_score_of_rank_key(keys[i]), scale->floor);
            const specv_weight w = specv_softmax_weight(raised, scale);
            if (keys[i] >= end) of_first += specv_weight_units(&w, n), mass = of_first;
        }
    }
    free(keys);
    end = of_k > of_min ? of_k : of_min;
    return end > of_p ? end : of_p;
}
#endif

#if T_DEVICE
/* What the first pass says of a tile's shares and lanes. */
static void put_shares(specv_tile *of, unsigned char *lanes, const float *score, int vocab,
                       int tile, int of_probs) {
    for (int share = 0; share < 4; ++share) {
        float largest = infinity(-1);
        for (int x = tile * SPECV_TILE_IDS + share * 256, e = 0; x < vocab && e < 256; ++e, ++x)
            if (score[x] > largest) largest = score[x];
        if (largest > of->max) of->max = largest;
        const uint64_t upper = specv_rank_key(largest, 0) >> 38;
        const float top = specv_i_score_of_rank_key(upper << 38 | 0x3fffff);
        of->score |= (int64_t)(upper << 16 * share);
        for (int lane = 32 * share; lane < 32 * share + 32; ++lane) {
            float away = 127; /* in eighths, of what the upper key says */
            for (int x = tile * SPECV_TILE_IDS + 8 * lane, e = 0; x < vocab && e < 8; ++e, ++x) {
                const int32_t octaves =
                    (int32_t)(specv_float_bits(top) - specv_float_bits(score[x])) >> 20;
                if (!of_probs)
                    away = fminf(away, 8 * (top - score[x]));
                else if (score[x] > 0)
                    away = fminf(away, (float)octaves);
            }
            lanes[lane] = (unsigned char)fmaxf(away, 0);
        }
    }
}

static __global__ void lanes_kernel(specv_i_cut_row row, int k, uint64_t *out) {
    __shared__ specv_i_cut c;
    const int thread = (int)threadIdx.x;
    if (thread < row.num_tiles) c.keys[thread] = (uint64_t)row.tiles[thread].score;
    __syncthreads();
    const uint64_t bound = specv_i_block_kth_lane(&c, &row, k);
    if (thread == 0) *out = bound;
}
#endif

/* What lanes say of top_k: there are as many ids from there on, and not many more. */
static void test_lanes(void) {
#if T_DEVICE
    int bounded = 0;
    const int cases = t.quick ? 40 : 400;
    for (int i = 0; i < cases; ++i) {
        const int of_probs = i & 1, vocab = i % 3 == 0 ? 700 : i % 3 == 1 ? 5001 : 20000;
        const int num_tiles = (vocab + SPECV_TILE_IDS - 1) / SPECV_TILE_IDS;
        const int k = 1 + (int)t_below(vocab / 10 < 1000 ? vocab / 10 : 1000);
        /* ids that count; all, or so few that there may be none of the k-th's in most lanes */
        const int each = i % 5 ? 1 : 1 + (int)t_below(40);
        const float apart = i % 7 == 3 ? 12.f : 2.f, base = i % 11 == 4 ? 2e6f : 0.f;
        t_case("lanes: vocabulary %d, top_k %d, %s, one in %d, apart %g, from %g", vocab, k,
               of_probs ? "probabilities" : "logits", each, (double)apart, (double)base);
        t_buf scores = t_in(4 * vocab, 0), tiles = t_in(24 * num_tiles, 0),
              lanes = t_in(SPECV_I_LANES * num_tiles, 0), result = t_in(8, 0);
        float *score = (float *)(void *)scores.host;
        specv_tile *of = (specv_tile *)(void *)tiles.host;
        specv_i_cut_row row;
        uint64_t bound;
        memset(&row, 0, sizeof row);
        row.max = infinity(-1);
        for (int x = 0; x < vocab; ++x) {
            const float value = normal(apart) + (of_probs ? 0 : base);
            score[x] = x % each ? (of_probs ? 0.f : infinity(-1)) : of_probs ? expf(value) : value;
            row.max = fmaxf(row.max, score[x]);
        }
        for (int tile = 0; tile < num_tiles; ++tile) {
            memset(&of[tile], 0, sizeof of[tile]);
            of[tile].max = infinity(-1);
            put_shares(&of[tile], (unsigned char *)lanes.host + tile * SPECV_I_LANES, score, vocab,
                       tile, of_probs);
        }
        t_upload();
        row.scores = scores.device, row.tiles = (const specv_tile *)(const void *)tiles.device;
        row.lanes = (const unsigned char *)lanes.device, row.num_tiles = num_tiles,
        row.vocab = vocab;
        row.dtype = of_probs ? SPECV_I_WEIGHTS_F32 : SPECV_LOGITS_F32;
        row.scale.of_probs = of_probs;
        lanes_kernel<<<1, SPECV_SAMPLE_THREADS>>>(row, k, (uint64_t *)(void *)result.device);
        t_download();
        memcpy(&bound, result.host, sizeof bound);
        int from = 0, nearer = 0; /* ids from it on; from half a logit or octave above it on */
        const float least = specv_i_score_of_rank_key(bound);
        const float above = of_probs ? least * 1.5f : least + 0.51f;
        for (int x = 0; x < vocab; ++x) {
            from += specv_rank_key(score[x], x) >= bound;
            nearer += score[x] >= above;
        }
        bounded += bound != 0;
        CHECK(bound == 0 || from >= k);
        /* some eights have two of them */
        if (bound && apart < 3 && k <= vocab / each / 32) CHECK(nearer < k + k / 4 + 4);
        if (base > 0 && !of_probs) CHECK(bound == 0);
    }
    CHECK(bounded > cases / 2);
#endif
}

/* Both ways to cut a row end at the same id and leave the same sums and scores. */
static void test_both_ways(void) {
#if T_DEVICE
    int listed = 0, few = 0, ways[3] = {0, 0, 0}; /* by_mass: no list; few; more */
    int by_lanes = 0;
    const int others = t.quick ? 12 : 80;
    for (int i = 0; i < others + (t.quick ? 24 : 72); ++i) {
        /* the last ones: what top_p alone keeps of rows from a few ids to nearly all */
        const int by_mass = i >= others;
        /* top_p ends among ids of a unit or two; no noise: of so many it takes ptxrun's patience */
        const int light = !by_mass && i % 20 == 11;
        const int vocab = light        ? 100000
                          : i % 4 == 0 ? 700
                          : i % 4 == 1 ? 5000
                          : i % 4 == 2 ? 20000
                                       : 33 * 1024 + 5;
        t_case("both ways: vocabulary %d, %d", vocab, i);
        const int num_tiles = (vocab + SPECV_TILE_IDS - 1) / SPECV_TILE_IDS;
        const int32_t ks[] = {0, 1, 7, 50, 300, 900};
        const float shares_of_mass[] = {0.9f, 0.1f, 0.5f, 0.99f, 0.01f};
        const float ps[] = {1, 0.1f, 0.5f, 0.9f}, ms[] = {0, 0.01f, 0.2f, 1};
        t_buf scores = t_in(4 * vocab, 0), tiles = t_in(24 * num_tiles, 0),
              list = t_in(24 * num_tiles, 0), flat = t_in(24 * num_tiles, 0),
              lanes = t_in(SPECV_I_LANES * num_tiles, 0), result = t_in(sizeof(cut_result), 0);
        specv_tile *t_host = (specv_tile *)(void *)tiles.host;
        const float *score = (const float *)(const void *)scores.host;
        const specv_scale scale = specv_softmax_scale(i % 3 || light ? 1.f : 0.4f);
        specv_noise noise = {t_random(), 5, 0, SPECV_TAG_COUPLED};
        uint32_t status = 0;
        specv_i_cut_row row;
        cut_result found;
        uint64_t mass = 0;
        int32_t without = (int32_t)t_below(vocab);
        float max = infinity(-1);
        specv_i_limits l =
            specv_i_limits_of(T_PICK(ks), T_PICK(ps), T_PICK(ms), i % 3, vocab, &status);
        if (i % 7 == 5) l = specv_i_limits_of(i % 2 ? 0 : 8, 0.5f, 0, i % 3, vocab, &status);
        if (i % 10 == 0)
            l = specv_i_limits_of(0, 1, 1, i % 3, vocab, &status); /* the ties of the largest */
        if (light) l = specv_i_limits_of(0, 0.99999994f, 0, i % 3, vocab, &status);
        const int late = !by_mass && i % 20 == 10; /* top_p is a part of more than min_p keeps */
        if (late)
            l = specv_i_limits_of(3000, 0.002f, 0.5f, SPECV_TOP_K_TOP_P_MIN_P, vocab, &status);
        const int at_ends =
            !by_mass && i % 8 == 6; /* the likeliest are first and last ids of tiles */
        if (at_ends) l = specv_i_limits_of(50, i % 16 == 6 ? 1 : 0.9f, 0, i % 3, vocab, &status);
        const float apart = by_mass ? (float)(1 + i / 4 % 6) : 3;
        if (by_mass) l = specv_i_limits_of(0, shares_of_mass[i % 5], 0, i % 3, vocab, &status);
        for (int64_t x = 0; x < vocab; ++x) {
            float value = normal(apart);
            if (at_ends) value = (x + 1) % SPECV_TILE_IDS < 2 ? 20 + normal(1) : value;
            if (i % 5 == 0) value = fminf((float)(int)value, 8); /* ties, of the largest, too */
            if (!by_mass && i % 7 == 5)
                value = x % 20 ? infinity(-1) : 1; /* half of the mass is an id's end */
            if (late) value = normal(1);
            if (light) value = x == 7 ? 0 : -27.3f + 0.1f * normal(1);
            ((float *)(void *)scores.host)[x] = value;
            if (value > max) {
                max = value;
                if (i & 1) without = (int32_t)x;
            }
        }
        row.n = specv_softmax_weight(max, &scale).n;
        for (int tile = 0; tile < num_tiles; ++tile) {
            specv_tile *of = &t_host[tile];
            memset(of, 0, sizeof *of);
            of->max = infinity(-1), of->score = 0; /* the maxima of its shares */
            put_shares(of, (unsigned char *)lanes.host + tile * SPECV_I_LANES, score, vocab, tile,
                       0);
            const int32_t n = specv_softmax_weight(of->max, &scale).n;
            for (int x = tile * SPECV_TILE_IDS; x < vocab && x < (tile + 1) * SPECV_TILE_IDS; ++x) {
                const specv_weight w = specv_softmax_weight(score[x], &scale);
                of->sum += specv_weight_units(&w, n);
            }
            mass += specv_i_shift_right(of->sum, (uint32_t)(row.n - n));
        }
        memcpy(list.host, tiles.host, 24 * (size_t)num_tiles);
        memcpy(flat.host, tiles.host, 24 * (size_t)num_tiles);
        t_upload();
        row.scores = scores.device, row.tiles = (const specv_tile *)(void *)tiles.device;
        row.lanes = (const unsigned char *)lanes.device;
        row.sieve.mask = NULL, row.sieve.least = 0, row.scale = scale;
        row.max = max, row.dtype = SPECV_LOGITS_F32, row.num_tiles = num_tiles, row.vocab = vocab;
        if (specv_i_limits_are_off(&l, vocab)) l.top_k = 50;
        if (i & 2 && specv_i_is_of_kept(&l, vocab) && (l.top_k <= 4 * num_tiles || l.min_p > 0))
            mass = 0; /* not asked for, as first passes have it */
        cut_kernel<<<1, SPECV_SAMPLE_THREADS>>>(
            row, l, mass, noise, !light, without, (cut_result *)(void *)result.device,
            (specv_tile *)(void *)list.device, (specv_tile *)(void *)flat.device);
        t_download();
        memcpy(&found, result.host, sizeof found);
        if (by_mass) ways[!found.of_list ? 0 : found.count <= SPECV_I_FEW ? 1 : 2] += 1;
        if (found.by_lanes && l.top_k < vocab) {
            int from = 0, nearer = 0; /* ids from it on; from two thirds above it on */
            for (int x = 0; x < vocab; ++x) {
                from += specv_rank_key(score[x], x) >= found.by_lanes;
                nearer += score[x] >= specv_i_score_of_rank_key(found.by_lanes) + 0.67f;
            }
            CHECK(from >= l.top_k);
            if (l.top_k > 4 * num_tiles && from <= SPECV_I_LIST && l.min_p == 0)
                CHECK(found.of_list);
            CHECK(nearer < l.top_k || l.top_k > vocab / 32); /* most eights have none of them */
            ++by_lanes;
        }
        if (found.of_list) {
            ++listed;
            CHECK(found.of_list == found.of_ranges);
            for (int tile = 0; tile < num_tiles; ++tile) {
                const specv_tile *of[2] = {(const specv_tile *)(void *)list.host + tile,
                                           (const specv_tile *)(void *)flat.host + tile};
                CHECK(of[0]->sum == of[1]->sum);
                if (of[1]->sum) CHECK(specv_float_bits(of[0]->max) == specv_float_bits(of[1]->max));
            }
            CHECK_EQ(found.noisy, found.by_range, -1);
            if (found.count <= SPECV_I_FEW) {
                ++few;
                CHECK(found.few_sum == found.sum);
                CHECK(!memcmp(found.few_inverse, found.inverse, sizeof found.inverse));
                for (int draw = 0; draw < 8; ++draw)
                    CHECK_EQ(found.few[draw / 4][draw % 4], found.drawn[draw / 4][draw % 4], draw);
            }
        }
        CHECK(found.of_ranges == end_by_words(score, vocab, &scale, row.n, &l, mass));
        for (int tile = 0; tile < num_tiles; ++tile) { /* of any row, listed or not */
            const specv_tile *of = (const specv_tile *)(void *)flat.host + tile;
            const int32_t n = specv_softmax_weight(t_host[tile].max, &scale).n;
            uint64_t sum = 0;
            for (int x = tile * SPECV_TILE_IDS; x < vocab && x < (tile + 1) * SPECV_TILE_IDS; ++x) {
                const specv_weight w = specv_softmax_weight(score[x], &scale);
                if (specv_rank_key(score[x], x) >= found.of_ranges)
                    sum += specv_weight_units(&w, n);
            }
            CHECK(of->sum == sum);
            CHECK((of->max == infinity(-1)) ==
                  (specv_rank_key(t_host[tile].max, 0) < found.of_ranges));
        }
    }
    CHECK(listed > 5);
    CHECK(by_lanes > (t.quick ? 1 : 15));
    CHECK(few > 1 && few < listed);
    for (int way = 0; way < 3; ++way) CHECK_EQ(ways[way] > 0, 1, way);
#else
    t_skip("the reference knows one way: needs nvcc");
#endif
}

/* ----------------------------------------------------------------- what tiles say of filters */

#if T_DEVICE
__global__ void bound_kernel(const float *scores, int64_t vocab, specv_tile *tiles, int num_tiles,
                             specv_scale scale, int count, const int32_t *top_k, const float *top_p,
                             const float *min_p, float *bound) {
    const specv_noise noise = {0, 0, 0, 0};
    for (int tile = 0; tile < num_tiles; ++tile) {
        float score[32];
        specv_warp_load_tile(score, scores, SPECV_LOGITS_F32, vocab, tile);
        const specv_tile its =
            specv_warp_tile_stats(score, 4, tile, SPECV_TILE_SUM, &scale, &noise);
        if (threadIdx.x == 0) tiles[tile] = its;
    }
    __syncwarp();
    const specv_distribution row =
        specv_warp_merge_tiles(tiles, num_tiles, SPECV_TILE_SUM, 0, &scale);
    for (int i = 0; i < count; ++i) {
        const float its =
            specv_warp_filter_bound(tiles, num_tiles, &row, &scale, top_k[i], top_p[i], min_p[i]);
        if (threadIdx.x == 0) bound[i] = its;
    }
}
#endif

/* No id that is kept has a lower score than the tiles' bound, in any order; and the bound is near:
   that of top_k the k-th largest of the tiles' largest scores, that of min_p within a factor of 4,
   that of top_p above most ids of a peaked row. */
static void test_bounds(void) {
#if T_DEVICE
    static const int sizes[] = {1, 40, 1024, 5000, 33 * 1024 + 5, 70000};
    static const float heats[] = {0.3f, 1, 4};
    enum { LIMITS = 24 };
    for (int i = 0; i < (t.quick ? 9 : 36); ++i) {
        const int vocab = sizes[i % 6], num_tiles = (vocab + SPECV_TILE_IDS - 1) / SPECV_TILE_IDS;
        t_case("bounds: vocabulary %d, %d", vocab, i);
        const specv_scale scale = specv_softmax_scale(heats[i / 2 % 3]);
        t_buf scores = t_in(4 * vocab, 0), tiles = t_in(24 * num_tiles, 0),
              ks = t_in(4 * LIMITS, 0), ps = t_in(4 * LIMITS, 0), ms = t_in(4 * LIMITS, 0),
              bounds = t_in(4 * LIMITS, 0);
        float *score = (float *)(void *)scores.host, *p = (float *)(void *)ps.host,
              *m = (float *)(void *)ms.host;
        int32_t *k = (int32_t *)(void *)ks.host;
        for (int64_t x = 0; x < vocab; ++x) score[x] = (float)(int)(normal(4) * 16) / 16;
        for (int l = 0; l < LIMITS; ++l) {
            const int only = l % 4; /* top_k, top_p, min_p, all of them */
            k[l] = only % 3 ? 0 : (int32_t)t_between(1, l % 8 < 4 ? num_tiles : vocab);
            p[l] = only == 1 || only == 3 ? 1 - (float)exp(-6 * t_uniform()) : 1;
            m[l] = only >= 2 ? (float)exp(-8 * t_uniform()) : 0;
        }
        p[3] = specv_bits_float(0x7fc00000u), m[3] = -1; /* as good as off */
        t_upload();
        bound_kernel<<<1, 32>>>(
            (const float *)(const void *)scores.device, vocab, (specv_tile *)(void *)tiles.device,
            num_tiles, scale, LIMITS, (const int32_t *)(const void *)ks.device,
            (const float *)(const void *)ps.device, (const float *)(const void *)ms.device,
            (float *)(void *)bounds.device);
        T_CUDA(cudaDeviceSynchronize());
        t_download();
        ranked *ids = (ranked *)malloc(sizeof(ranked) * (size_t)vocab);
        float *largest = (float *)malloc(sizeof(float) * (size_t)num_tiles);
        if (!ids || !largest) t_die(__FILE__, __LINE__, "malloc", "no memory");
        for (int tile = 0; tile < num_tiles; ++tile) largest[tile] = infinity(-1);
        for (int32_t x = 0; x < vocab; ++x) {
            ids[x].score = score[x], ids[x].id = x;
            if (score[x] > largest[x / SPECV_TILE_IDS]) largest[x / SPECV_TILE_IDS] = score[x];
        }
        qsort(ids, (size_t)vocab, sizeof *ids, by_rank);
        for (int l = 0; l < LIMITS; ++l) {
            const float bound = ((const float *)(const void *)bounds.host)[l];
            specv_ref_i_scores row;
            specv_scores of = SPECV_ZERO;
            uint32_t unused = 0;
            memset(&row, 0, sizeof row);
            of.data = score, row.scores = &of, row.vocab = vocab, row.scale = scale;
            row.row.max = ids[0].score;
            row.row.n = specv_softmax_weight(ids[0].score, &scale).n;
            row.row.sum = specv_ref_i_sum(&row);
            for (int order = 0; order < 3; ++order) {
                const specv_i_limits limits =
                    specv_i_limits_of(k[l], p[l], m[l], order, vocab, &unused);
                const uint64_t last = specv_ref_i_cut(&row, &limits);
                CHECK(!last || bound <= specv_i_score_of_rank_key(last));
                if (!last) CHECK(bound <= ids[vocab - 1].score);
            }
            if (l % 4 == 0 && k[l] <= num_tiles) {
                int above = 0, from = 0;
                for (int tile = 0; tile < num_tiles; ++tile)
                    above += largest[tile] > bound, from += largest[tile] >= bound;
                CHECK(above < k[l] && from >= k[l]);
            } else if (l % 4 == 2) {
                const double factor = exp((double)(bound - ids[0].score) / heats[i / 2 % 3]);
                CHECK(factor * 4 > m[l] && factor <= m[l]);
            } else if (l % 4 == 1 && i / 2 % 3 == 0 && vocab > 40 && p[l] < 0.99f) {
                CHECK(bound > ids[vocab / 2].score);
            }
        }
        free(ids), free(largest);
    }
#else
    t_skip("tiles are the device's: needs nvcc");
#endif
}

/* --------------------------------------------------------------- ranges of scores */

#if T_DEVICE
/* Of scores near the ends of ranges, found[0]: how many do not weigh what the bounds of the range
   say that counts them; found[1]: how many are not between its ends. */
__global__ void ranges_kernel(specv_scale scale, float largest, float least, uint32_t found[2]) {
    __shared__ specv_i_cut cut;
    specv_i_cut_row row;
    memset(&row, 0, sizeof row);
    row.scale = scale, row.max = largest, row.n = specv_softmax_weight(largest, &scale).n;
    const uint64_t with_mass = specv_i_key_of_weight(&scale, row.n, 1);
    const uint64_t low = specv_rank_key(least, 0x3fffff), high = specv_rank_key(largest, 0);
    const specv_i_ranges r = specv_i_ranges_of(low < with_mass ? with_mass : low, high);
    for (int i = specv_i_thread(); i < SPECV_I_RANGES; i += SPECV_SAMPLE_THREADS)
        cut.u.counts[i] = 1;
    __syncthreads();
    for (int e = specv_i_thread() + 1; e < SPECV_I_RANGES; e += SPECV_SAMPLE_THREADS) {
        const float end = specv_i_end_of_range(&r, e, 0);
        for (int ulp = -4; ulp <= 4; ++ulp) {
            const int32_t near_end = specv_i_order_key(specv_float_bits(end)) + ulp;
            const float score =
                specv_bits_float((uint32_t)(near_end < 0 ? near_end ^ 0x7fffffff : near_end));
            if (!(score >= r.least && score <= r.most)) continue;
            const int its = specv_i_range_of(&r, score, 0);
            const uint64_t units = specv_i_row_units(&row, score);
            uint64_t upper = SPECV_I_NOT_WEIGHED, bound[2], again[2];
            specv_i_bounds_of_range(&cut, &row, &r, SPECV_I_BY_BOUNDS, its, &upper, bound);
            upper = SPECV_I_NOT_WEIGHED; /* and behind the range below, whose end it has */
            specv_i_bounds_of_range(&cut, &row, &r, SPECV_I_BY_BOUNDS, its > 0 ? its - 1 : 0,
                                    &upper, again);
            if (its == 0) upper = SPECV_I_NOT_WEIGHED;
            specv_i_bounds_of_range(&cut, &row, &r, SPECV_I_BY_BOUNDS, its, &upper, again);
            if (units < bound[0] || units > bound[1] || units < again[0] || units > again[1])
                atomicAdd(&found[0], 1u);
            if (score < specv_i_end_of_range(&r, its, 0) ||
                score > specv_i_end_of_range(&r, its + 1, 0))
                atomicAdd(&found[1], 1u);
        }
    }
}
#endif

/* What the ids of a range weigh at least and at most holds for those, too, that rounding has put
   into a range beside their own. */
static void test_ranges(void) {
#if T_DEVICE
    static const float larger[] = {0, 1, 30, 500}; /* than the span */
    uint32_t outside = 0;
    for (int i = 0; i < (t.quick ? 24 : 200); ++i) {
        t_case("ranges: %d", i);
        const float heat = (float)exp(2 * t_uniform() - 1);
        const float span = (float)exp(5 * t_uniform() - 2) * heat;
        const float largest = (i % 2 ? -1.f : 1.f) * larger[i / 2 % 4] * span * (float)t_uniform();
        t_buf found = t_in(8, 0);
        memset(found.host, 0, 8);
        t_upload();
        ranges_kernel<<<1, SPECV_SAMPLE_THREADS>>>(
            specv_softmax_scale(heat), largest, largest - span, (uint32_t *)(void *)found.device);
        T_CUDA(cudaDeviceSynchronize());
        t_download();
        CHECK_EQ(((const uint32_t *)(const void *)found.host)[0], 0, i);
        outside += ((const uint32_t *)(const void *)found.host)[1];
    }
    CHECK(outside > 100);
#else
    t_skip("ranges are the device's: needs nvcc");
#endif
}

int main(int argc, char **argv) {
    static const t_group groups[] = {
        {"pinned", test_pinned},
        {"equal-to", test_equal_to},
        {"types", test_types},
        {"every-limit", test_every_limit},
        {"whole-tiles", test_whole_tiles},
        {"ties", test_ties},
        {"one-row", test_one_row},
        {"shapes", test_shapes},
        {"lanes", test_lanes},
        {"both-ways", test_both_ways},
        {"bounds", test_bounds},
        {"ranges", test_ranges},
        {"random", test_random},
        {"vocabularies", test_vocabularies},
        {"helpers", test_helpers},
    };
    return t_main(argc, argv, groups, T_COUNT(groups));
}
