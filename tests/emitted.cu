/* emitted.cu - A11: what is told of every emitted token: ln p, rank, and the likeliest ids.

   A position's ids are put in order here by sorting, what filters leave out of it too, and its law
   is added up in long double: ranks and ids must be those, log-probabilities within what the kit's
   arithmetic may be off. Then the device against the reference, bit for bit. */

#include "kept.h"

/* -------------------------------------------------------------------------------------- oracle */

/* A position's law: its ids in order, and how a score becomes ln p. */
typedef struct law {
    ranked *ids;
    int64_t count;
    int of_probs, is_sure; /* scores are probabilities; one id has all */
    long double heat, largest, sum;
} law;

/* Of the law that the position has filters and masks were obeyed before, see leave_kept. */
static law open_law(const stage *g, int row, int j) {
    const int64_t vocab = g->c.s.vocab, first = scores_at(g, row, j, 0);
    const int dtype = g->c.target_dtype;
    float heat = ((const float *)(const void *)g->temperature.host)[slot_of(g, row)];
    int zero;
    law l;
    memset(&l, 0, sizeof l);
    if (g->c.raw) heat = 1;
    zero = !(heat >= 1.220703125e-4f && heat <= 8192); /* and what is no temperature */
    zero |= !g->c.raw && g->c.rule == SPECV_RULE_GREEDY;
    l.ids = (ranked *)malloc(sizeof(ranked) * (size_t)vocab);
    if (!l.ids) t_die(__FILE__, __LINE__, "malloc", "no memory");
    l.of_probs = dtype == SPECV_PROBS_F32;
    l.heat = l.of_probs || zero ? 1 : heat;
    for (int64_t x = 0; x < vocab; ++x) {
        const float score = get_score(&g->target, dtype, first + x);
        const int is_p = score >= 1.17549435e-38f && score <= 2;
        if (l.of_probs ? !is_p : !(score > infinity(-1))) continue;
        l.ids[l.count].score = score, l.ids[l.count].id = (int32_t)x;
        l.count += 1;
    }
    qsort(l.ids, (size_t)l.count, sizeof *l.ids, by_rank);
    if (!l.count) return l;
    l.largest = l.ids[0].score;
    /* Logits beyond the format, of which the tests have none that are nearly so. */
    l.is_sure = zero || (!l.of_probs && !(fabsl(l.largest / l.heat) <= 363000));
    if (l.is_sure) l.count = 1;
    for (int64_t i = 0; i < l.count && !l.is_sure; ++i)
        l.sum += l.of_probs ? l.ids[i].score : expl((l.ids[i].score - l.largest) / l.heat);
    /* Without filters they are what they say, whatever their sum; of a lossy rule weights. */
    if (l.of_probs && (g->c.raw || !(g->c.filters || specv_i_is_lossy(g->c.rule) ||
                                     (g->draft.host && g->c.draft_filters))))
        l.sum = 1;
    return l;
}

/* Where in the order an id is, behind all if the law has it not. */
static int64_t place_of(const law *l, int64_t id) {
    int64_t at = 0;
    while (at < l->count && l->ids[at].id != id) ++at;
    return at;
}

/* Is this ln p of the id at that place? */
static int is_log_p(const law *l, int64_t at, float p) {
    long double want = -logl(l->sum);
    if (at >= l->count) return p == -INFINITY;
    if (l->is_sure) return p == 0;
    want += l->of_probs ? logl(l->ids[at].score) : (l->ids[at].score - l->largest) / l->heat;
    if (want < -360000) return p < -100000 && p > -INFINITY;
    return fabsl(p - want) <= fabsl(want) * 1e-6L + 2e-6L;
}

static float float_at(const t_buf *b, int64_t index) {
    float value;
    memcpy(&value, b->host + 4 * index, 4);
    return value;
}

/* What position j of a row emits, -1: nothing, or what was given. A sampler has no accepted_len. */
static int64_t emitted_token(const stage *g, int row, int j, int is_sampler) {
    const truth *r = &g->b.rows[row];
    const int accepted = is_sampler ? 0 : word_at(&g->b.accepted, row);
    if (!r->live || r->first < 0 || j > accepted) return -1;
    if (g->bonus.host && j == r->n_draft) return -1;
    if (j < accepted) return get_token(&g->b.draft, g->c.s.dtype, r->first + j);
    return get_token(&g->b.tokens, g->c.s.dtype, row * g->b.out_stride + j);
}

/* Position j of a row; law: null if no token is there. */
static void check_position(const stage *g, int row, int j, const law *l, int64_t token) {
    const int64_t at = row * ((int64_t)g->c.s.max_draft + 1) + j;
    const int64_t place = l ? place_of(l, token) : 0;
    int64_t num_top = l ? g->c.max_top : 0;
    if (l && g->num_top.host) num_top = word_at(&g->num_top, slot_of(g, row));
    if (num_top > g->c.max_top) num_top = g->c.max_top;
    if (l && num_top > l->count) num_top = l->count;
    if (g->rank.host) CHECK_EQ(word_at(&g->rank, at), l ? place + 1 : 0, row);
    if (g->out_logprob.host && !l) CHECK(float_at(&g->out_logprob, at) == 0);
    if (g->out_logprob.host && l) CHECK(is_log_p(l, place, float_at(&g->out_logprob, at)));
    for (int i = 0; i < g->c.max_top; ++i) {
        const int64_t top = at * g->c.max_top + i;
        const int64_t id = i < num_top ? l->ids[i].id : -1;
        if (g->top_id.host) CHECK_EQ(word_at(&g->top_id, top), id, row);
        if (!g->top_logprob.host) continue;
        if (id < 0)
            CHECK(float_at(&g->top_logprob, top) == -INFINITY);
        else
            CHECK(is_log_p(l, i, float_at(&g->top_logprob, top)));
        if (id == token && id >= 0 && g->out_logprob.host) /* the same number */
            CHECK_EQ(word_at(&g->top_logprob, top), word_at(&g->out_logprob, at), row);
    }
}

/* Every column that the reference has filled in. */
static void check_told(stage *g, int is_sampler) {
    snapshot s;
    take_snapshot(&s);
    if (!g->c.raw && g->c.filters) leave_all_kept(g);
    for (int row = 0; row < g->c.s.batch; ++row)
        for (int j = 0; j <= g->c.s.max_draft; ++j) {
            const int64_t token = emitted_token(g, row, j, is_sampler);
            law l;
            if (token < 0) {
                check_position(g, row, j, NULL, token);
                continue;
            }
            l = open_law(g, row, j);
            check_position(g, row, j, &l, token);
            free(l.ids);
        }
    drop_snapshot(&s, 1);
    CHECK(1);
}

/* -------------------------------------------------------------------------------------- scenes */

enum { NO_SAMPLER = -1 }; /* else a stream */

/* A8 of a scene without drafts: its rule says the method. */
static specv_sample_desc as_sampler(const specv_verify_sample_desc *v, int stream) {
    specv_sample_desc d = SPECV_ZERO;
    d.token_dtype = v->verify.token_dtype;
    d.num_active = v->verify.rows.num_active;
    d.slot = v->verify.rows.slot, d.num_slots = v->verify.rows.num_slots;
    d.scores = v->target;
    d.temperature = v->temperature, d.seed = v->seed, d.position = v->position;
    d.filters = v->filters;
    d.token = v->verify.out_tokens, d.token_stride_elems = v->verify.out_stride_elems;
    d.logprob = v->logprob, d.lse = v->lse, d.emitted = v->emitted;
    d.row_status = v->verify.row_status, d.keep_status = v->verify.keep_status;
    d.scratch = v->scratch, d.scratch_bytes = v->scratch_bytes;
    d.vocab = v->verify.vocab, d.batch = v->verify.rows.batch;
    d.method = v->rule == SPECV_RULE_COUPLED ? SPECV_SAMPLE_GUMBEL : SPECV_SAMPLE_CDF;
    if (d.method == SPECV_SAMPLE_CDF) d.uniform = v->sample_uniform;
    d.num_sms = v->num_sms, d.step_row = v->step_row, d.stream = stream;
    return d;
}

static void note_told(const scene *c, int stream) {
    t_note(" %s%s, scores %d and %d, odd %#x, T %g, spread %g, filters %u and %u, tell %u, max_top "
           "%d, %s%s, gap %d, sms %d,",
           stream < 0 ? "" : "sampler ", rule_name(c->rule), c->target_dtype, c->draft_dtype,
           c->odd, (double)c->temperature, (double)c->spread, c->filters, c->draft_filters, c->tell,
           c->max_top, c->raw ? "raw" : "processed", c->bonus ? ", bonus" : "", c->gap, c->num_sms);
    batch_note(&c->s);
}

static void reference_of(const stage *g, int stream) {
    specv_verify_sample_desc v = stage_describe(g, T_HOST_SIDE);
    specv_sample_desc d;
    v.scratch = no_scratch(), v.scratch_bytes = INT64_MAX;
    if (stream < 0) {
        CHECK_EQ(specv_ref_verify_sample(&v), SPECV_OK, -1);
        return;
    }
    d = as_sampler(&v, stream);
    CHECK_EQ(specv_ref_sample(&d), SPECV_OK, -1);
}

#if T_DEVICE
/* Twice, the second time with scratch memory as it was left. */
static void device_of(const stage *g, int stream) {
    specv_verify_sample_desc v = describe_device(g);
    specv_sample_desc d = as_sampler(&v, stream);
    for (int again = 0; again < 2; ++again) {
        if (again) batch_poison_device(&g->b);
        CHECK_EQ(stream < 0 ? specv_verify_sample(&v, 0) : specv_sample(&d, 0), SPECV_OK, -1);
        t_check_device();
        check_scratch(v.scratch, v.scratch_bytes);
    }
    T_CUDA(cudaFree(v.scratch));
}
#endif

/* Oracle, reference and device of a stage that is made. */
static void told_stage(stage *g, int stream) {
    t_upload();
    reference_of(g, stream);
    check_told(g, stream >= 0);
    t_check_host();
#if T_DEVICE
    device_of(g, stream);
#endif
    batch_free(&g->b);
}

static void told_run(const scene *c, int stream) {
    stage g;
    note_told(c, stream);
    stage_make(&g, c);
    told_stage(&g, stream);
}

/* All is told. */
static scene told_scene(int rows, int max_draft, int vocab) {
    scene c = plain_scene(rows, max_draft, vocab);
    c.target_dtype = SPECV_LOGITS_BF16, c.draft_dtype = NO_DRAFT_SCORES;
    c.tell = TELL_ALL, c.max_top = 5;
    return c;
}

/* Every rule and type, raw or not, with filters or without. */
static void test_types(void) {
    int turn = 0;
    for (int rule = 0; rule < NUM_RULES; ++rule)
        for (int dtype = 0; dtype < 4; ++dtype)
            for (int kind = 0; kind < 4; ++kind) {
                scene c = told_scene(2, 2, 1500);
                c.rule = rule, c.target_dtype = dtype;
                c.draft_dtype = (turn + turn / 4) % 5 - 1;
                if (rule == SPECV_RULE_SCORE) c.draft_dtype = NO_DRAFT_SCORES;
                c.odd = turn % 3 ? 0 : ODD_SAME; /* some drafts are accepted */
                c.raw = kind % 2;
                if (kind / 2) c.filters = 1 + (unsigned)(turn * 7 % 15);
                if (kind / 2 && c.draft_dtype >= 0) c.draft_filters = (unsigned)turn % 16;
                c.filter_order = turn % 3;
                c.temperature = turn % 5 == 4 ? -1.f : 0.7f;
                if (t.quick && turn++ % 4) continue;
                t_case("every rule and type:");
                told_run(&c, NO_SAMPLER);
                turn += !t.quick;
            }
}

/* Which outputs and how many ids: anything. */
static void draw_told(scene *c) {
    const int tops[] = {0, 1, 1, 2, 5, 5, 20, 32};
    c->tell = (unsigned)t_below(TELL_ALL + 1);
    if (!c->tell || t_chance(50)) c->tell |= TELL_NUM_TOP; /* it alone asks for nothing */
    c->max_top = t_chance(70) ? T_PICK(tops) : (int)t_between(0, SPECV_MAX_TOP);
    c->raw = t_chance(40);
    if (c->s.outputs) c->s.outputs |= OUT_TOKENS; /* they have to be known */
}

static void draw_told_filters(scene *c) {
    if (t_chance(50)) return;
    c->filters = (unsigned)t_below(HAS_ALL + 1);
    if (takes_draft_scores(c->rule) && c->draft_dtype >= 0 && t_chance(50))
        c->draft_filters = (unsigned)t_below(HAS_ALL + 1);
    if (!(c->filters & HAS_MASK)) c->filters &= ~(unsigned)(HAS_MASK_ROW | HAS_MASK_GAP);
    if (c->s.max_draft == 0) c->draft_filters &= ~(unsigned)HAS_MASK;
    if (!(c->draft_filters & HAS_MASK))
        c->draft_filters &= ~(unsigned)(HAS_MASK_ROW | HAS_MASK_GAP);
    c->filter_order = (int)t_below(3);
}

static void test_random(void) {
    for (int i = 0; i < (t.cases ? t.cases : t.quick ? 28 : T_DEVICE ? 140 : 800); ++i) {
        t_case("random:");
        scene c = random_scene(rule_of_case(t.case_seed));
        draw_told(&c), draw_told_filters(&c);
        c.bonus = c.s.max_draft && t_chance(20);
        told_run(&c, NO_SAMPLER);
    }
}

/* A8, by either method and in every stream. */
static void test_sampler(void) {
    for (int i = 0; i < (t.cases ? t.cases : t.quick ? 16 : T_DEVICE ? 80 : 300); ++i) {
        t_case("sampler:");
        scene c = random_scene(0);
        c.rule = t.case_seed % 2 ? SPECV_RULE_COUPLED : SPECV_RULE_TOKEN;
        c.s.max_draft = 0, c.s.layout = DENSE, c.s.endings = 0, c.s.num_eos = 0;
        c.s.draft_gap = 0, c.draft_dtype = NO_DRAFT_SCORES;
        draw_told(&c), draw_told_filters(&c);
        told_run(&c, (int)t_below(c.rule == SPECV_RULE_COUPLED ? 3 : 2));
    }
}

/* Laws of four ids, in their order, with ln p. */
enum { HALF_IS_1, SURE_1, SURE_0, FIRST_TWO, ALL_BUT_1, SHARP };
static const struct {
    int count;
    int32_t id[4];
    float log_p[4];
} laws[] = {
    {3, {1, 0, 2}, {-0.693147181f, -1.38629436f, -1.38629436f}}, /* 1/4, 1/2, 1/4, 0 */
    {1, {1}, {0}},
    {1, {0}, {0}},
    {2, {1, 0}, {-0.405465108f, -1.09861229f}},                  /* 2/3, 1/3 */
    {2, {0, 2}, {-0.693147181f, -0.693147181f}},                 /* 1/2 each */
    {3, {1, 0, 2}, {-0.405465108f, -1.79175947f, -1.79175947f}}, /* 4/6, 1/6 each */
};

/* Of a position with p of 1/4, 1/2, 1/4 and 0; column 0 of a step that scores a draft tells of it.
   Filters: top_k 2, a mask without id 1. */
static void test_pinned(void) {
    static const struct {
        int token, raw;
        float temperature;
        unsigned filters;
        int32_t num_top, rank, law, told;
    } cases[] = {
        {1, 0, 1, 0, 4, 1, HALF_IS_1, 3},
        {0, 0, 1, 0, 4, 2, HALF_IS_1, 3},
        {2, 0, 1, 0, 4, 3, HALF_IS_1, 3},
        {3, 0, 1, 0, 4, 4, HALF_IS_1, 3},
        {2, 0, 1, 0, 3, 3, HALF_IS_1, 3},
        {2, 0, 1, 0, 2, 3, HALF_IS_1, 2},
        {2, 0, 1, 0, 1, 3, HALF_IS_1, 1},
        {2, 0, 1, 0, 0, 3, HALF_IS_1, 0},
        {2, 0, 1, 0, -7, 3, HALF_IS_1, 0},
        {2, 0, 1, 0, 99, 3, HALF_IS_1, 3},
        {1, 0, 0, 0, 4, 1, SURE_1, 1},
        {0, 0, 0, 0, 4, 2, SURE_1, 1},
        {3, 0, 0, 0, 4, 2, SURE_1, 1},
        {3, 0, 0, 0, 0, 2, SURE_1, 0},
        {0, 0, NAN, 0, 4, 2, SURE_1, 1},
        {0, 1, 0, 0, 4, 2, HALF_IS_1, 3},
        {3, 1, 0, 0, 4, 4, HALF_IS_1, 3},
        {2, 1, NAN, 0, 4, 3, HALF_IS_1, 3},
        {0, 0, 1, HAS_TOP_K, 4, 2, FIRST_TWO, 2},
        {2, 0, 1, HAS_TOP_K, 4, 3, FIRST_TWO, 2},
        {2, 0, 1, HAS_TOP_K, 1, 3, FIRST_TWO, 1},
        {2, 1, 1, HAS_TOP_K, 4, 3, HALF_IS_1, 3},
        {2, 0, 1, HAS_MASK, 4, 2, ALL_BUT_1, 2},
        {1, 0, 1, HAS_MASK, 4, 3, ALL_BUT_1, 2},
        {1, 1, 1, HAS_MASK, 4, 1, HALF_IS_1, 3},
        {2, 0, 1, HAS_MASK | HAS_TOP_K, 4, 2, ALL_BUT_1, 2},
        {0, 0, 0, HAS_MASK, 4, 1, SURE_0, 1},
        {1, 0, 0, HAS_MASK, 4, 2, SURE_0, 1},
        {1, 1, 0, HAS_MASK, 4, 1, HALF_IS_1, 3},
        {0, 0, .5f, 0, 4, 2, SHARP, 3}, /* of logits alone */
        {3, 0, .5f, 0, 4, 4, SHARP, 3},
        {0, 1, .5f, 0, 4, 2, HALF_IS_1, 3},
    };
    const float logits[4] = {0, 0.693147181f, 0, -INFINITY}, probs[4] = {.25f, .5f, .25f, 0};
    for (int i = 0; i < 2 * T_COUNT(cases); ++i) {
        const int n = i / 2, of = cases[n].law;
        scene c = told_scene(1, 1, 4);
        stage g;
        float log_p = -INFINITY;
        c.rule = SPECV_RULE_SCORE, c.target_dtype = i % 2 ? SPECV_PROBS_F32 : SPECV_LOGITS_F32;
        c.raw = cases[n].raw, c.max_top = 4;
        c.tell |= TELL_NUM_TOP, c.filters = cases[n].filters, c.top_k = 2;
        if (i % 2 && of == SHARP) continue;
        t_case("pinned %d, %s", n, i % 2 ? "probabilities" : "logits");
        stage_make(&g, &c);
        put_token(&g.b.draft, SPECV_I32, 0, cases[n].token);
        for (int x = 0; x < 8; ++x)
            put_score(&g.target, c.target_dtype, x, (i % 2 ? probs : logits)[x % 4]);
        for (int x = 0; x < 2 && g.filters.mask.host; ++x) put_word(&g.filters.mask, x, 13);
        ((float *)(void *)g.temperature.host)[0] = cases[n].temperature;
        put_word(&g.num_top, 0, cases[n].num_top);
        t_upload();
        run_reference(&g);
        CHECK_EQ(word_at(&g.b.accepted, 0), 1, 0);
        CHECK_EQ(word_at(&g.rank, 0), cases[n].rank, 0);
        for (int x = 0; x < laws[of].count; ++x)
            if (laws[of].id[x] == cases[n].token) log_p = laws[of].log_p[x];
        CHECK(isinf(log_p) ? float_at(&g.out_logprob, 0) == log_p
                           : fabsf(float_at(&g.out_logprob, 0) - log_p) < 2e-6f);
        for (int x = 0; x < 4; ++x) {
            const int is_told = x < cases[n].told;
            const float its = float_at(&g.top_logprob, x);
            CHECK_EQ(word_at(&g.top_id, x), is_told ? laws[of].id[x] : -1, x);
            CHECK(is_told ? fabsf(its - laws[of].log_p[x]) < 2e-6f : its == -INFINITY);
        }
        run_device(&g);
        batch_free(&g.b);
    }
}

/* Probabilities whose sum is not 1 are taken as they are, but for those of a law that filters, of
   either side, have to do with. */
static void test_sums(void) {
    for (int rule = 0; rule < NUM_RULES; ++rule)
        for (int kind = 0; kind < 8; ++kind) {
            scene c = told_scene(3, 2, 200);
            stage g;
            if (rule == SPECV_RULE_SCORE && kind / 4) continue;
            if (t.quick && (rule + kind) % 3) continue;
            c.rule = rule, c.target_dtype = SPECV_PROBS_F32, c.raw = kind % 2;
            if (rule != SPECV_RULE_SCORE) c.draft_dtype = SPECV_LOGITS_F16;
            if (kind / 2 % 2) c.filters = HAS_TOP_K | HAS_TOP_P;
            if (kind / 4) c.draft_filters = HAS_MIN_P;
            t_case("sums:");
            note_told(&c, NO_SAMPLER);
            stage_make(&g, &c);
            for (int64_t x = 0; x < (int64_t)(g.target.bytes / 4); ++x)
                put_score(&g.target, c.target_dtype, x,
                          1.25f * get_score(&g.target, c.target_dtype, x));
            told_stage(&g, NO_SAMPLER);
        }
}

/* From one id to many, and the most ids that can be told, more than there are among them. */
static void test_vocabularies(void) {
    static const int real[] = {1000, 1024, 1025, 32000, 128256, 262144};
    for (int i = 0; i < 33 + T_COUNT(real); ++i)
        for (int kind = 0; kind < 4; ++kind) {
            const int vocab = i < 33 ? i + 1 : real[i - 33], large = vocab > 30000;
            scene c = told_scene(large ? 1 : 2, large || vocab == 1 ? 0 : 1, vocab);
            if ((t.quick || large) && (i + kind) % (t.quick ? 7 : 2)) continue;
            c.rule = kind % 2 ? SPECV_RULE_SCORE : i % NUM_RULES;
            c.target_dtype = (i + kind) % 4;
            c.max_top = kind == 0 ? 1 : kind == 1 ? 5 : kind == 2 ? 20 : SPECV_MAX_TOP;
            if (large && kind > 1) c.max_top = 7; /* the reference looks for each */
            c.raw = i % 3 == 1;
            if (i % 3 == 2) c.filters = HAS_TOP_P | HAS_TOP_K;
            if (large) c.top_k = 50, c.top_p = 0.95f;
            if (i % 2) c.tell |= TELL_NUM_TOP;
            c.num_sms = large ? 132 : 8;
            t_case("vocabulary %d:", vocab);
            told_run(&c, NO_SAMPLER);
        }
}

/* So many equal scores at the top, or rows so flat, that no list holds them: whole numbers from 0
   or -0 down, all alike, also over more shares of tiles than a list has room for; and what filters
   keep of those. */
static void test_ties(void) {
    static const int sizes[] = {600, 9000, 70000, 300000};
    for (int i = 0; i < 4; ++i)
        for (int kind = 0; kind < 12; ++kind) {
            scene c = told_scene(i < 2 ? 3 : 1, i < 2, sizes[i]);
            if (t.quick && (i + kind) % 4) continue;
            if ((i == 2 && kind % 3 == 1) || (i == 3 && kind % 5)) continue;
            c.rule = kind % 2 ? SPECV_RULE_SCORE : SPECV_RULE_TOKEN;
            c.target_dtype = kind / 3 % 4;
            c.odd = kind % 3 == 0 ? ODD_ZEROS : kind % 3 == 1 ? ODD_TIES : 0;
            c.spread = kind % 3 == 2 ? 1e-30f : 1;
            c.max_top = kind % 4 == 0 ? SPECV_MAX_TOP : 5;
            if (i == 3) c.max_top = 3;
            if (kind % 4 > 1) c.tell |= TELL_NUM_TOP;
            c.raw = kind % 5 == 4;
            if (kind > 5) c.filters = kind % 2 ? HAS_MASK | HAS_TOP_K : HAS_TOP_P;
            c.top_k = kind == 7 ? 20 : 3000, c.top_p = 0.3f;
            t_case("ties %d:", kind);
            told_run(&c, NO_SAMPLER);
        }
}

/* Rows with accidents, one kind at a time. */
static void test_accidents(void) {
    for (int bit = 0; bit < 5; ++bit)
        for (int rule = 0; rule < NUM_RULES; ++rule)
            for (int kind = 0; kind < 4; ++kind) {
                const int probs = kind % 2;
                scene c = told_scene(6, 3, probs ? 300 : 1100);
                if ((t.quick || T_DEVICE) && (bit + rule + kind) % (t.quick ? 9 : 3)) continue;
                c.rule = rule, c.odd = 1u << bit;
                c.target_dtype = probs ? SPECV_PROBS_F32 : (bit + rule) % 3;
                c.draft_dtype = kind > 1 && rule != SPECV_RULE_SCORE ? 0 : NO_DRAFT_SCORES;
                c.raw = kind / 2;
                c.filters = (bit + kind) % 3 ? 0 : HAS_TOP_K | HAS_MIN_P | HAS_MASK;
                c.temperature = rule % 2 ? -1.f : 1.f;
                c.max_top = kind == 2 ? 32 : 3;
                t_case("accident %d:", bit);
                told_run(&c, NO_SAMPLER);
            }
}

/* Drafts at both ends of the order and in its middle, and some that have no probability: of a step
   that accepts them all, and of one told raw whose temperature is 0. */
static void test_ranks(void) {
    for (int i = 0; i < (t.quick ? 4 : T_DEVICE ? 6 : 16); ++i) {
        scene c = told_scene(2, 12, i % 4 == 3 ? 40000 : 900 + 300 * (i % 4));
        stage g;
        c.rule = SPECV_RULE_SCORE, c.target_dtype = i % 4;
        c.odd = i % 5 == 1 ? ODD_MASK : i % 5 == 2 ? ODD_NAN : i % 5 == 3 ? ODD_TIES : 0;
        c.max_top = i % 3;
        c.raw = i % 2, c.temperature = i % 4 == 1 ? 0.f : 0.8f;
        if (i % 3 == 2) c.filters = HAS_CUTS;
        if (i % 3 == 1) c.filters = HAS_MASK;
        c.spread = i % 2 ? 3 : 0.3f;
        t_case("ranks:");
        note_told(&c, NO_SAMPLER);
        stage_make(&g, &c);
        for (int row = 0; row < 2; ++row)
            for (int j = 0; j < 12; ++j) {
                const int probs = c.target_dtype == SPECV_PROBS_F32;
                law l = open_law(&g, row, j);
                int64_t place = j < 3 ? j : j < 6 ? l.count - 1 - (j - 3) : t_below(l.count + 1);
                int64_t id = t_below(c.s.vocab);
                if (place >= 0 && place < l.count) id = l.ids[place].id;
                put_token(&g.b.draft, SPECV_I32, row * 12 + j, id);
                if (j > 8) /* a score that is none */
                    put_score(&g.target, c.target_dtype, scores_at(&g, row, j, 0) + id,
                              j == 9  ? NAN
                              : probs ? -0.25f * (float)(j - 10)
                                      : infinity(-1));
                free(l.ids);
            }
        told_stage(&g, NO_SAMPLER);
    }
}

/* Few ids that have a score, in rows of many tiles, of more shares than a list has room for too;
   some of them with one so low that no tile of theirs has a weight. */
static void test_few(void) {
    static const int sizes[] = {5, 1030, 40000, 300000};
    for (int i = 0; i < T_COUNT(sizes); ++i)
        for (int ids = 1; ids < 8; ids += 3) {
            scene c = told_scene(1, 1, sizes[i]);
            stage g;
            if (t.quick && i > 1 && ids != 4) continue;
            c.rule = SPECV_RULE_SCORE, c.target_dtype = (i + ids / 3) % 4;
            c.raw = ids == 4, c.filters = i == 2 && ids == 7 ? HAS_TOP_P : 0;
            c.num_sms = 40;
            t_case("few:");
            note_told(&c, NO_SAMPLER);
            stage_make(&g, &c);
            for (int64_t x = 0; x < 2 * (int64_t)sizes[i]; ++x)
                put_score(&g.target, c.target_dtype, x,
                          c.target_dtype == SPECV_PROBS_F32 ? 0 : -INFINITY);
            for (int n = 0; n < 2 * ids; ++n) {
                float score = 0.25f * (float)t_between(1, 4);
                if (c.target_dtype != SPECV_PROBS_F32) score = n > 3 ? -1e30f : score - 0.75f;
                put_score(&g.target, c.target_dtype, t_below(sizes[i]) + n % 2 * sizes[i], score);
            }
            told_stage(&g, NO_SAMPLER);
        }
}

/* More rows than tickets have room for or than blocks fit a grid with, more drafts than a warp has
   lanes, no rows, no drafts. */
static void test_shapes(void) {
    static const struct {
        int rows, drafts, vocab;
    } sizes[] = {{33, 2, 200}, {2, 40, 1100}, {1025, 1, 5}, {0, 3, 50}, {3, 0, 5000}};
    for (int i = 0; i < T_COUNT(sizes); ++i)
        for (int rule = 0; rule < NUM_RULES; ++rule) {
            scene c = told_scene(sizes[i].rows, sizes[i].drafts, sizes[i].vocab);
            if (t.quick && (i == 2 || (i + rule) % 3)) continue;
            if (i == 2 && rule != SPECV_RULE_BLOCK) continue;
            c.rule = rule;
            c.odd = ODD_SAME; /* long acceptance */
            if (rule != SPECV_RULE_SCORE && i % 2) c.draft_dtype = SPECV_LOGITS_F32;
            c.s.layout = (layout)((i + rule) % NUM_LAYOUTS);
            c.s.num_eos = 2 * (rule % 2), c.s.endings = rule % 2 ? (unsigned)SCORE_ENDINGS : 0;
            c.s.dtype = rule % 2 ? SPECV_I64 : SPECV_I32;
            c.s.out_gap = rule % 3, c.slots = i % 2;
            c.filters = rule == 2 ? HAS_TOP_K : 0, c.raw = rule == 3;
            t_case("shapes:");
            told_run(&c, NO_SAMPLER);
        }
}

/* ln p alone, of the law that tokens come from, is the verification's own; it must be the same
   number as where ranks are asked too. */
static void test_alone(void) {
    for (int i = 0; i < (t.quick ? 12 : T_DEVICE ? 60 : 150); ++i) {
        stage g;
        specv_verify_sample_desc d;
        t_buf copy;
        t_case("alone:");
        scene c = random_scene(rule_of_case(t.case_seed));
        draw_told_filters(&c);
        if (c.s.outputs) c.s.outputs |= OUT_TOKENS;
        c.tell = TELL_LOGPROB | TELL_RANK;
        note_told(&c, NO_SAMPLER);
        stage_make(&g, &c);
        copy = t_out((int64_t)g.out_logprob.bytes, 0);
        t_upload();
        run_reference(&g);
        d = stage_describe(&g, T_HOST_SIDE);
        d.scratch = no_scratch(), d.scratch_bytes = INT64_MAX;
        d.emitted.rank = NULL, d.emitted.logprob = (float *)(void *)copy.host;
        CHECK_EQ(specv_ref_verify_sample(&d), SPECV_OK, -1);
        CHECK_BYTES(copy.host, g.out_logprob.host, copy.bytes);
        t_check_host();
#if T_DEVICE
        d = describe_device(&g);
        CHECK_EQ(specv_verify_sample(&d, 0), SPECV_OK, -1);
        d.emitted.rank = NULL, d.emitted.logprob = (float *)(void *)copy.device;
        CHECK_EQ(specv_verify_sample(&d, 0), SPECV_OK, -1);
        t_check_device();
        T_CUDA(cudaFree(d.scratch));
#endif
        batch_free(&g.b);
    }
}

/* A row whose ticket is not what it must be emits nothing, and nothing is told of it; the others
   never notice. */
static void test_tickets(void) {
#if T_DEVICE
    enum { ROWS = 4, COLUMNS = 3, TOP = 5 };
    for (int i = 0; i < 6; ++i) {
        scene c = told_scene(ROWS, COLUMNS - 1, 3000);
        const uint32_t stale = i / 2 ? 0x0badf00du : 1;
        stage g;
        c.rule = i % 2 ? SPECV_RULE_COUPLED : SPECV_RULE_SCORE;
        c.raw = i / 2 == 1, c.filters = i / 2 == 2 ? HAS_TOP_K : 0;
        t_case("tickets:");
        note_told(&c, NO_SAMPLER);
        stage_make(&g, &c);
        t_upload();
        run_reference(&g);
        specv_verify_sample_desc d = describe_device(&g);
        for (int row = 1; row < 3; ++row)
            T_CUDA(cudaMemcpy((uint32_t *)d.scratch + 2 * row, &stale, 4, cudaMemcpyHostToDevice));
        CHECK_EQ(specv_verify_sample(&d, 0), SPECV_OK, -1);
        for (int at = COLUMNS; at < 3 * COLUMNS; ++at) { /* what is expected of those two */
            put_word(&g.rank, at, 0), put_word(&g.out_logprob, at, 0);
            for (int x = at * TOP; x < (at + 1) * TOP; ++x)
                put_word(&g.top_id, x, -1), put_word(&g.top_logprob, x, (int32_t)0xff800000u);
        }
        T_CUDA(cudaDeviceSynchronize());
        const t_buf *const told[] = {&g.rank, &g.out_logprob, &g.top_id, &g.top_logprob};
        for (int k = 0; k < T_COUNT(told); ++k) {
            char seen[4 * ROWS * COLUMNS * TOP];
            T_CUDA(cudaMemcpy(seen, told[k]->device, told[k]->bytes, cudaMemcpyDeviceToHost));
            CHECK_BYTES(seen, told[k]->host, told[k]->bytes);
        }
        T_CUDA(cudaFree(d.scratch));
        batch_free(&g.b);
    }
#else
    t_skip("the reference needs no scratch memory");
#endif
}

/* Its launches wait for the kernel that writes the scores, and for each other; whoever follows
   finds all of it. */
static void test_dependents(void) {
#if T_DEVICE
    for (int i = 0; i < 8; ++i) {
        scene c = told_scene(3, 2, 1500);
        const int64_t count = 3 * 3 * 1500;
        stage g;
        specv_verify_sample_desc d;
        float *made;
        t_buf followed;
        c.rule = i % 2, c.target_dtype = i / 2 % 2 ? SPECV_PROBS_F32 : SPECV_LOGITS_F32;
        c.draft_dtype = i % 2 ? c.target_dtype : (int)NO_DRAFT_SCORES;
        c.filters = i / 4 ? HAS_TOP_K : 0, c.raw = i == 3;
        t_case("dependent of the kernel that writes the scores:");
        note_told(&c, NO_SAMPLER);
        stage_make(&g, &c);
        followed = t_out(4 * 9, 0);
        t_upload();
        run_reference(&g);
        memcpy(followed.host, g.rank.host, 4 * 9);
        d = describe_device(&g);
        T_CUDA(cudaMalloc((void **)&made, 4 * (size_t)count));
        T_CUDA(cudaMemset(made, 0xff, 4 * (size_t)count));
        t_produce(made, d.target.data, 4 * count);
        d.target.data = made;
        d.verify.chained = SPECV_CHAINED_AFTER;
        CHECK_EQ(specv_verify_sample(&d, 0), SPECV_OK, -1);
        t_follow(followed.device, g.rank.device, 4 * 9);
        t_check_dependents();
        t_check_device();
        T_CUDA(cudaFree(made));
        T_CUDA(cudaFree(d.scratch));
        batch_free(&g.b);
    }
#else
    t_skip("dependent launches need a device");
#endif
}

/* --------------------------------------------------------------------------------- validation */

static specv_verify_sample_desc valid_step(void) {
    specv_verify_sample_desc d = SPECV_ZERO;
    d.verify.rows.batch = 4, d.verify.rows.max_draft = 7;
    d.verify.draft_tokens = d.verify.out_tokens = storage;
    d.verify.accepted_len = (int32_t *)storage;
    d.verify.vocab = 100;
    d.target.data = storage;
    d.seed = (const uint64_t *)storage, d.position = (const int32_t *)storage;
    d.scratch = storage + (size_t)storage % 16 / 8, d.scratch_bytes = INT64_MAX;
    return d;
}

static specv_sample_desc valid_sample(void) {
    const specv_verify_sample_desc v = valid_step();
    specv_sample_desc d = as_sampler(&v, SPECV_STREAM_TARGET);
    return d;
}

/* Of a step and of a sampler. */
static void expect(int code, const specv_emitted *e, int has_tokens, int rows) {
    specv_verify_sample_desc d = valid_step();
    specv_sample_desc s = valid_sample();
    d.emitted = s.emitted = *e;
    d.verify.rows.batch = s.batch = rows;
    if (!has_tokens) d.verify.out_tokens = NULL;
    CHECK_EQ(specv_verify_sample_validate(&d), code, -1);
    if (code != SPECV_OK) CHECK_EQ(specv_ref_verify_sample(&d), code, -1);
    if (code != SPECV_OK) CHECK_EQ(launch(&d), code, -1);
    if (!has_tokens) return; /* a sampler without them is refused for that */
    CHECK_EQ(specv_sample_validate(&s), code, -1);
    if (code != SPECV_OK) CHECK_EQ(specv_ref_sample(&s), code, -1);
    if (code != SPECV_OK) CHECK_EQ(launch_sample(&s), code, -1);
}

#define EXPECT(code, change)                                                                       \
    do {                                                                                           \
        specv_emitted e = SPECV_ZERO;                                                              \
        int has_tokens = 1, rows = 4;                                                              \
        change;                                                                                    \
        expect(code, &e, has_tokens, rows);                                                        \
    } while (0)

static void test_validation(void) {
    int32_t *const ids = (int32_t *)storage, *const bad = (int32_t *)((char *)storage + 2);
    float *const numbers = (float *)(void *)storage, *const odd = (float *)(void *)bad;
    t_case("what is asked of A11");
    EXPECT(SPECV_OK, (void)0);
    EXPECT(SPECV_OK, e.logprob = numbers);
    EXPECT(SPECV_OK, (e.logprob = numbers, e.raw = 1));
    EXPECT(SPECV_OK, e.rank = ids);
    EXPECT(SPECV_OK, (e.top_id = ids, e.top_logprob = numbers, e.max_top = 32));
    EXPECT(SPECV_OK, (e.top_id = ids, e.num_top = ids, e.max_top = 1));
    EXPECT(SPECV_OK, (e.num_top = ids, e.max_top = 5, e.raw = 1)); /* nothing is asked */
    EXPECT(SPECV_ERR_LOGPROB, e.logprob = odd);
    EXPECT(SPECV_ERR_LOGPROB, e.rank = bad);
    EXPECT(SPECV_ERR_LOGPROB, (e.top_id = bad, e.max_top = 5));
    EXPECT(SPECV_ERR_LOGPROB, (e.top_logprob = odd, e.max_top = 5));
    EXPECT(SPECV_ERR_LOGPROB, (e.top_id = ids, e.num_top = bad, e.max_top = 5));
    EXPECT(SPECV_ERR_LOGPROB, e.num_top = bad);
    EXPECT(SPECV_ERR_LOGPROB, e.top_id = ids);
    EXPECT(SPECV_ERR_LOGPROB, e.top_logprob = numbers);
    EXPECT(SPECV_ERR_LOGPROB, e.max_top = -1);
    EXPECT(SPECV_ERR_LOGPROB, e.max_top = 33);
    EXPECT(SPECV_ERR_LOGPROB, (e.top_id = ids, e.max_top = 33));
    EXPECT(SPECV_ERR_LOGPROB, (e.top_id = ids, e.max_top = INT32_MAX));
    EXPECT(SPECV_ERR_LOGPROB, e.raw = 2);
    EXPECT(SPECV_ERR_LOGPROB, e.raw = -1);
    t_case("A11 needs the tokens, but for ln p of their own law");
    EXPECT(SPECV_OK, (e.logprob = numbers, has_tokens = 0));
    EXPECT(SPECV_OK, (e.num_top = ids, e.max_top = 5, e.raw = 1, has_tokens = 0));
    EXPECT(SPECV_ERR_LOGPROB, (e.logprob = numbers, e.raw = 1, has_tokens = 0));
    EXPECT(SPECV_ERR_LOGPROB, (e.rank = ids, has_tokens = 0));
    EXPECT(SPECV_ERR_LOGPROB, (e.top_id = ids, e.max_top = 1, has_tokens = 0));
    EXPECT(SPECV_ERR_LOGPROB, (e.top_logprob = numbers, e.max_top = 1, has_tokens = 0));
    EXPECT(SPECV_OK, (e.rank = ids, has_tokens = 0, rows = 0));
    EXPECT(SPECV_ERR_LOGPROB, (e.rank = bad, rows = 0));
    EXPECT(SPECV_ERR_LOGPROB, (e.max_top = 33, rows = 0));
}

int main(int argc, char **argv) {
    static const t_group groups[] = {
        {"validation", test_validation},
        {"pinned", test_pinned},
        {"types", test_types},
        {"sums", test_sums},
        {"vocabularies", test_vocabularies},
        {"ties", test_ties},
        {"accidents", test_accidents},
        {"ranks", test_ranks},
        {"few", test_few},
        {"shapes", test_shapes},
        {"alone", test_alone},
        {"sampler", test_sampler},
        {"random", test_random},
        {"tickets", test_tickets},
        {"dependents", test_dependents},
    };
    return t_main(argc, argv, groups, T_COUNT(groups));
}
