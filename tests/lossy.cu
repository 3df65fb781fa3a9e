/* lossy.cu - A6: lossy rules, against their definitions in long double, against the rules that they
   are where nothing is relaxed, their laws by counting on grids, and device against reference, bit
   for bit, over every type, layout, filter and accident. */

#define WITH_LOSSY
#include "kept.h"

#include "chi2.h"

enum { FIRST_LOSSY = SPECV_RULE_TYPICAL };

static const char *const rules[] = {"token",   "block",        "coupled",   "greedy",  "score",
                                    "typical", "typical-draw", "threshold", "relaxed", "bounded"};

static int is_tokens_alone(int rule) {
    return rule == SPECV_RULE_TYPICAL || rule == SPECV_RULE_RELAXED;
}

/* -------------------------------------------------------------------------------------- oracle */

/* A position's law by its definition; weights of probabilities are what they say. */
typedef struct law {
    long double *p;
    int64_t vocab, first; /* the likeliest id; -1: none */
    int is_sure;
} law;

static law open_law(const stage *g, int row, int j, int of_draft) {
    const t_buf *scores = of_draft ? &g->draft : &g->target;
    const int dtype = of_draft ? g->c.draft_dtype : g->c.target_dtype;
    const int probs = dtype == SPECV_PROBS_F32;
    const t_buf *heats =
        of_draft && g->draft_temperature.host ? &g->draft_temperature : &g->temperature;
    const float heat = ((const float *)(const void *)heats->host)[slot_of(g, row)];
    const int zero = !(heat >= 1.220703125e-4f && heat <= 8192);
    const int64_t at = scores_at(g, row, j, of_draft);
    long double largest = -INFINITY, sum = 0;
    law l;
    memset(&l, 0, sizeof l);
    l.vocab = g->c.s.vocab, l.first = -1;
    l.p = (long double *)calloc((size_t)l.vocab, sizeof *l.p);
    if (!l.p) t_die(__FILE__, __LINE__, "calloc", "no memory");
    for (int64_t x = 0; x < l.vocab; ++x) {
        const float score = get_score(scores, dtype, at + x);
        const int counts = probs ? score >= 1.17549435e-38f && score <= 2 : !isnan(score);
        l.p[x] = counts ? score : -INFINITY;
        if (l.p[x] > largest) largest = l.p[x], l.first = x;
    }
    l.is_sure = l.first >= 0 && zero && !(of_draft && probs);
    l.is_sure |= l.first >= 0 && !probs && !(fabsl(largest / (zero ? 1 : heat)) <= 363000);
    for (int64_t x = 0; x < l.vocab; ++x) {
        if (l.is_sure || l.first < 0)
            l.p[x] = x == l.first;
        else if (probs)
            l.p[x] = l.p[x] > 0 ? l.p[x] : 0;
        else
            l.p[x] = expl((l.p[x] - largest) / heat);
        sum += l.p[x];
    }
    for (int64_t x = 0; x < l.vocab && l.first >= 0; ++x) l.p[x] /= sum;
    return l;
}

/* In nats. */
static long double entropy_of(const law *l) {
    long double sum = 0;
    for (int64_t x = 0; x < l->vocab; ++x)
        if (l->p[x] > 0) sum -= l->p[x] * logl(l->p[x]);
    return sum;
}

/* What the request's rule is told: 0 and 1 the two numbers, `top`. */
typedef struct numbers {
    long double low, scale, top;
    int bad;
} numbers;

static long double number_at(const t_buf *b, int slot, float low, float high, float otherwise,
                             int *bad) {
    float x;
    if (!b->host) return otherwise;
    x = ((const float *)(const void *)b->host)[slot];
    if (x >= low && x <= high) return x;
    *bad = 1;
    return otherwise;
}

static numbers numbers_of(const stage *g, int slot) {
    const int rule = g->c.rule, bounded = rule == SPECV_RULE_BOUNDED;
    const int typical = rule == SPECV_RULE_TYPICAL || rule == SPECV_RULE_TYPICAL_DRAW;
    numbers n = {1, 1, 1, 0};
    n.low = number_at(&g->loose_low, slot, 0, 1, 1, &n.bad);
    n.scale = number_at(&g->loose_scale, slot, bounded ? 1 : 0,
                        typical   ? INFINITY
                        : bounded ? 1048576
                                  : 1,
                        typical ? INFINITY : 1, &n.bad);
    if (rule == SPECV_RULE_TYPICAL_DRAW && !g->loose_low.host && !g->loose_scale.host) n.low = 0;
    if (g->loose_top.host) n.top = word_at(&g->loose_top, slot);
    return n;
}

/* Is it? 2: too near to say. */
static int is_above(long double a, long double b, long double about) {
    const long double room = about * 1e-5L + 1e-30L;
    return fabsl(a - b) <= room ? 2 : a > b;
}

/* min(epsilon, alpha e^-H) */
static long double typical_least(const law *l, const numbers *n) {
    const long double by_entropy = n->scale * expl(-entropy_of(l));
    return n->low < by_entropy ? n->low : by_entropy;
}

static int either(int a, int b) { return a == 1 || b == 1 ? 1 : a || b ? 2 : 0; }
static int both(int a, int b) { return a == 0 || b == 0 ? 0 : a == 1 && b == 1 ? 1 : 2; }

/* In the order of A10; what counts as absent does not. */
static int comes_before(const stage *g, int row, int j, int64_t x, int64_t d) {
    const int dtype = g->c.target_dtype;
    const int64_t at = scores_at(g, row, j, 0);
    const float its = get_score(&g->target, dtype, at + x),
                own = get_score(&g->target, dtype, at + d);
    if (isnan(its) || (dtype == SPECV_PROBS_F32 && !(its >= 0 && its <= 2))) return 0;
    return its > own || (its == own && x < d);
}

/* May draft d be accepted at position j? 2: too near, or a matter of noise. */
static int may_accept(const stage *g, int row, int j, int64_t d, const law *p, const numbers *n) {
    const int rule = g->c.rule;
    const long double of_d = p->p[d];
    if (p->first < 0) return 0;
    if (is_tokens_alone(rule) || rule == SPECV_RULE_TYPICAL_DRAW) {
        if (p->is_sure) return d == p->first;
    }
    if (is_tokens_alone(rule)) {
        if (d == p->first) return 1;
        if (of_d < 1e-36L) return of_d > 0 ? 2 : 0;
    }
    if (rule == SPECV_RULE_TYPICAL) {
        const long double least = typical_least(p, n);
        return is_above(of_d, least, least);
    }
    if (rule == SPECV_RULE_RELAXED) {
        int64_t before = 0;
        for (int64_t x = 0; x < p->vocab; ++x) before += comes_before(g, row, j, x, d);
        return both(before < n->top, is_above(of_d, p->p[p->first] - n->low, 1));
    }
    if (rule == SPECV_RULE_TYPICAL_DRAW) {
        const long double least = typical_least(p, n);
        if (d == p->first) return 2;
        return is_above(of_d, least, least) ? 2 : 0;
    }
    if (!g->accept.host) return 2;
    {
        const int64_t at = g->b.rows[row].first + j;
        const long double u = ((const float *)(const void *)g->accept.host)[at];
        long double q = 1;
        if (p->is_sure) /* temperature 0, or a logit that takes all */
            return d == p->first ? (rule == SPECV_RULE_BOUNDED ? 2 : 1) : 0;
        if (of_d < 1e-36L) return of_d > 0 ? 2 : 0;
        if (rule == SPECV_RULE_THRESHOLD)
            return either(is_above(of_d, u * n->scale, of_d), is_above(of_d, n->low, of_d));
        if (g->draft.host) {
            law l = open_law(g, row, j, 1);
            q = l.p[d];
            free(l.p);
        }
        return is_above(n->scale * of_d, u * q, u * q);
    }
}

/* Follows every row as far as it can be known. Counts what it decided. */
static int64_t num_decided, num_accepted_anyhow, num_rejected, num_undecided;

static void check_rows(stage *g) {
    for (int row = 0; row < g->c.s.batch; ++row) {
        const truth *r = &g->b.rows[row];
        const int accepted = word_at(&g->b.accepted, row);
        const uint32_t status = g->b.status.host ? (uint32_t)word_at(&g->b.status, row) : 0;
        const uint32_t old = t_old_status(g->c.s.keep_status, row);
        numbers n;
        int j = 0, known = 1, ended = 0;
        if (!r->live || r->first < 0 || (status & SPECV_ROW_BAD_FILTER)) continue;
        if (!g->b.status.host && (g->c.filters | g->c.draft_filters) & HAS_MASK_ROW)
            continue; /* the mask may be none */
        n = numbers_of(g, slot_of(g, row));
        if (g->b.status.host && !(old & SPECV_ROW_BAD_LOSSY))
            CHECK_EQ((status & SPECV_ROW_BAD_LOSSY) != 0, n.bad, row);
        for (;; ++j) {
            int64_t d = -1, token;
            law p;
            int may = 0;
            if (j < r->n_draft) d = get_token(&g->b.draft, g->c.s.dtype, r->first + j);
            if (ended || (j == r->n_draft && g->c.bonus)) break;
            p = open_law(g, row, j, 0);
            if (d >= 0 && d < g->c.s.vocab) may = may_accept(g, row, j, d, &p, &n);
            num_decided += may != 2, num_undecided += may == 2;
            num_accepted_anyhow += may == 1 && d != p.first, num_rejected += may == 0 && d >= 0;
            if (may == 2 && j < accepted && !p.is_sure && p.first >= 0 &&
                g->c.rule == SPECV_RULE_TYPICAL_DRAW)
                CHECK(d == p.first || is_above(p.p[d], typical_least(&p, &n), p.p[d]));
            if (may == 2) may = j < accepted; /* it is taken at its word, */
            if (may != (j < accepted)) known = 0;
            CHECK_EQ(j < accepted, may, row);
            if (may && known) {
                ended = is_eos(&g->b, d);
                free(p.p);
                continue;
            }
            token = g->b.next.host ? get_token(&g->b.next, g->c.s.dtype, row) : -2;
            if (known && token != -2) {
                if (is_tokens_alone(g->c.rule)) CHECK_EQ(token, p.first, row);
                if (p.is_sure || p.first < 0) CHECK_EQ(token, p.first, row);
                if (token >= 0 && p.p[token] > 1e-36L && g->c.rule == SPECV_RULE_TYPICAL_DRAW &&
                    token != p.first)
                    CHECK(is_above(p.p[token], typical_least(&p, &n), p.p[token]));
            }
            free(p.p);
            break;
        }
        if (ended) CHECK_EQ(accepted, j, row);
    }
}

/* -------------------------------------------------------------------------------------- scenes */

static void note_scene(const scene *c) {
    t_note(" %s, scores %d and %d, odd %#x, T %g, spread %g, filters %u and %u, tell %u, %s%s%s,",
           rules[c->rule], c->target_dtype, c->draft_dtype, c->odd, (double)c->temperature,
           (double)c->spread, c->filters, c->draft_filters, c->tell,
           c->uniforms ? "uniforms" : "seeds", c->slots ? ", slots" : "",
           c->bonus ? ", bonus" : "");
    batch_note(&c->s);
}

/* Twice, the second time with scratch memory as it was left. */
static void device_of(const stage *g, const specv_verify_sample_desc *without) {
#if T_DEVICE
    specv_verify_sample_desc d = describe_device(g);
    if (without && !without->seed) d.seed = NULL, d.position = NULL;
    for (int again = 0; again < 2; ++again) {
        if (again) batch_poison_device(&g->b);
        CHECK_EQ(specv_verify_sample(&d, 0), SPECV_OK, -1);
        t_check_device();
        check_scratch(d.scratch, d.scratch_bytes);
    }
    T_CUDA(cudaFree(d.scratch));
#else
    (void)g, (void)without;
#endif
}

static void scene_run(const scene *c) {
    stage g;
    snapshot s;
    specv_verify_sample_desc d;
    note_scene(c);
    stage_make(&g, c);
    t_upload();
    d = stage_describe(&g, T_HOST_SIDE);
    d.scratch = no_scratch(), d.scratch_bytes = INT64_MAX;
    if (is_tokens_alone(c->rule)) d.seed = NULL, d.position = NULL; /* no use for them */
    CHECK_EQ(specv_ref_verify_sample(&d), SPECV_OK, -1);
    take_snapshot(&s);
    if (c->filters || c->draft_filters) leave_all_kept(&g);
    check_rows(&g);
    drop_snapshot(&s, 1);
    t_check_host();
    device_of(&g, &d);
    batch_free(&g.b);
}

static void test_types(void) {
    for (int rule = FIRST_LOSSY; rule < NUM_RULES; ++rule)
        for (int dtype = 0; dtype < 4; ++dtype)
            for (int draft = -1; draft < 4; ++draft) {
                scene c = plain_scene(4, 3, 1500);
                if (draft >= 0 && rule != SPECV_RULE_BOUNDED) continue;
                if (t.quick && draft >= 0 && (dtype + draft) % 3) continue;
                c.rule = rule, c.target_dtype = dtype, c.draft_dtype = draft;
                c.uniforms = draft % 2 == 0;
                t_case("every rule and type:");
                scene_run(&c);
            }
}

static scene lossy_scene(void) {
    scene c = random_scene(FIRST_LOSSY + (int)t_below(NUM_RULES - FIRST_LOSSY));
    c.rule = FIRST_LOSSY + (int)t_below(NUM_RULES - FIRST_LOSSY);
    if (t_chance(40)) c.filters = (unsigned)t_below(HAS_ALL + 1);
    if (t_chance(20)) c.draft_filters = (unsigned)t_below(HAS_ALL + 1);
    if (!(c.filters & HAS_MASK)) c.filters &= HAS_CUTS;
    if (!(c.draft_filters & HAS_MASK)) c.draft_filters &= HAS_CUTS;
    if (c.rule != SPECV_RULE_BOUNDED || c.draft_dtype < 0) c.draft_filters = 0;
    c.filter_order = (int)t_below(3);
    c.bonus = t_chance(20);
    if (t_chance(25)) c.tell = (unsigned)t_below(2 * TELL_NUM_TOP), c.max_top = (int)t_below(6);
    if (!c.max_top) c.tell &= TELL_LOGPROB | TELL_RANK;
    if (c.tell & ~(unsigned)TELL_LOGPROB) c.s.outputs = 0;
    c.raw = c.tell && t_chance(30);
    if (c.raw) c.s.outputs = 0;
    if (t_chance(30)) c.odd |= ODD_HALF;
    return c;
}

static void test_random(void) {
    for (int i = 0; i < (t.cases ? t.cases : t.quick ? 120 : T_DEVICE ? 500 : 4000); ++i) {
        t_case("random:");
        scene c = lossy_scene();
        scene_run(&c);
    }
}

/* Was there something to decide? */
static void test_counts(void) {
    num_decided = num_accepted_anyhow = num_rejected = num_undecided = 0;
    for (int i = 0; i < (t.quick ? 100 : 200); ++i) {
        scene c = plain_scene(6, 4, i / 5 % 2 ? 40 : 8);
        c.rule = FIRST_LOSSY + i % (NUM_RULES - FIRST_LOSSY), c.uniforms = 1;
        c.target_dtype = i % 4, c.draft_dtype = (i + i / 4) % 4, c.spread = i % 2 ? 1 : 0.4f;
        c.s.spread = SPREAD_ALL, c.odd = i % 3 ? ODD_HALF : 0;
        t_case("decided:");
        scene_run(&c);
    }
    t_case("what was decided");
    CHECK(num_accepted_anyhow > num_decided / 50);
    CHECK(num_rejected > num_decided / 50);
    CHECK(num_decided > num_undecided);
}

static void test_vocabularies(void) {
    static const int real[] = {32000, 128256, 262144};
    for (int i = 0; i < T_COUNT(real); ++i)
        for (int rule = FIRST_LOSSY; rule < NUM_RULES; ++rule) {
            scene c = plain_scene(1, 1 + rule % 2, real[i]);
            if (t.quick && (i || rule % 2)) continue;
            c.rule = rule, c.target_dtype = (i + rule) % 4, c.draft_dtype = rule % 4;
            c.num_sms = 132, c.spread = i == 1 ? 0.5f : 3, c.odd = ODD_HALF;
            if (i == 2) c.filters = HAS_TOP_P, c.top_p = 0.9f;
            t_case("vocabulary %d:", real[i]);
            scene_run(&c);
        }
}

/* Positions that blocks share: one for all, parts of several tiles, some of them with none, a tile
   each. */
static void test_parts(void) {
    static const int sms[] = {1, 9, 21, 132};
    for (int i = 0; i < T_COUNT(sms); ++i)
        for (int rule = FIRST_LOSSY; rule < NUM_RULES; ++rule) {
            scene c = plain_scene(2, 2, 9 * SPECV_TILE_IDS + 40);
            c.rule = rule, c.target_dtype = (i + rule) % 4, c.draft_dtype = rule % 4;
            c.num_sms = sms[i], c.spread = i % 2 ? 0.5f : 3, c.odd = ODD_HALF;
            if (i == 1) c.filters = HAS_TOP_P, c.top_p = 0.9f;
            t_case("parts, %d multiprocessors:", sms[i]);
            scene_run(&c);
        }
}

static void test_shapes(void) {
    static const int batches[] = {0, 1, 33, 65}, drafts[] = {0, 1, 31, 32, 33, 65};
    for (int i = 0; i < T_COUNT(batches); ++i)
        for (int j = 0; j < T_COUNT(drafts); ++j)
            for (int rule = FIRST_LOSSY; rule < NUM_RULES; ++rule) {
                scene c = plain_scene(batches[i], drafts[j], 40);
                if (batches[i] * drafts[j] > (t.quick ? 70 : 600)) continue;
                if (t.quick && (i + j + rule) % 3) continue;
                c.rule = rule, c.odd = ODD_HALF, c.loose = LOOSE_GIVEN; /* long acceptance */
                c.loose_low = rule == SPECV_RULE_RELAXED ? 1 : 0.01f;
                c.loose_scale = rule == SPECV_RULE_BOUNDED ? 8 : 0.1f, c.loose_top = 30;
                c.draft_dtype = i % 3 ? (int)SPECV_LOGITS_F32 : (int)SPECV_PROBS_F32;
                c.s.layout = (layout)((i + j) % NUM_LAYOUTS), c.s.spread = SPREAD_ALL;
                c.target_dtype = rule % 2 ? SPECV_LOGITS_F16 : SPECV_LOGITS_F32;
                c.num_sms = 1 + i * j % 30;
                t_case("shapes:");
                scene_run(&c);
            }
}

/* ------------------------------------------------------------------------------------ lossless */

/* The outputs of a lossy rule told to relax nothing are those of another one. */
static void test_lossless(void) {
    static const int as[] = {SPECV_RULE_GREEDY, SPECV_RULE_COUPLED, SPECV_RULE_TOKEN,
                             SPECV_RULE_GREEDY, SPECV_RULE_TOKEN};
    int64_t rows = 0;
    for (int i = 0; i < (t.quick ? 250 : T_DEVICE ? 600 : 2000); ++i) {
        const int rule = FIRST_LOSSY + i % (NUM_RULES - FIRST_LOSSY), other = as[i % T_COUNT(as)];
        stage g;
        snapshot s;
        specv_verify_sample_desc d;
        t_case("lossless:");
        scene c = lossy_scene();
        c.rule = rule, c.loose = LOOSE_NOT, c.s.batch = (int)t_between(4, 24);
        if (rule != SPECV_RULE_BOUNDED) c.draft_filters = 0;
        if (c.draft_dtype < 0) c.draft_filters = 0;
        if (i % 4 == 0) c.temperature = 0;
        if (is_tokens_alone(rule)) { /* GREEDY's other outputs are of temperature 0 */
            if (c.temperature < 0) c.temperature = 1.5f;
            c.odd &= ~(unsigned)ODD_TOP, c.filters &= HAS_MASK | HAS_MASK_ROW | HAS_MASK_GAP;
            c.null_extra = c.s.vocab % 2 == 0, c.tell = 0, c.max_top = 0, c.raw = 0;
            if (c.null_extra) c.s.vocab += c.s.vocab % 2;
            if (c.s.vocab % 2) c.s.vocab += 1;
            c.null_extra = 1;
        }
        if (!c.filters && !c.draft_filters &&
            (c.target_dtype == SPECV_PROBS_F32 || c.draft_dtype == SPECV_PROBS_F32))
            c.filters = HAS_TOP_K, c.top_k = -1; /* off; so that the other one weighs, too */
        note_scene(&c);
        stage_make(&g, &c);
        t_upload();
        rows += c.s.batch;
        d = stage_describe(&g, T_HOST_SIDE);
        d.scratch = no_scratch(), d.scratch_bytes = INT64_MAX;
        CHECK_EQ(specv_ref_verify_sample(&d), SPECV_OK, -1);
        take_snapshot(&s);
        memset(&d.lossy, 0, sizeof d.lossy);
        d.rule = other;
        if (g.b.status.host) t_fill_status(&g.b.status, c.s.keep_status);
        CHECK_EQ(specv_ref_verify_sample(&d), SPECV_OK, -1);
        for (int b = 0; b < t_num_buffers; ++b)
            CHECK_BYTES(t_buffers[b].host_base, s.of[b], t_buffers[b].total);
        drop_snapshot(&s, 0);
        t_check_host();
        device_of(&g, NULL); /* by the lossy rule */
        batch_free(&g.b);
    }
    t_case("lossless: rows");
    CHECK(rows > (t.quick ? 2000 : 6000));
}

/* ------------------------------------------------------------------------------------------ law */

enum { LAW_IDS = 12, GRID = 2048 };

/* Of one draft d with target p and draft q: how often grids of uniforms accept it, and what the
   others emit. */
static void count_law(const float *p, const float *q, int d, const scene *c, double *law_of_next,
                      double of_d) {
    static float accept[GRID], sample[GRID];
    static int32_t drafts[GRID], accepted[GRID], next[GRID];
    float number[2] = {c->loose_low, c->loose_scale};
    static float all_p[GRID * 2 * LAW_IDS], all_q[GRID * LAW_IDS];
    static float low[GRID], scale[GRID];
    double passes = 0, tokens[LAW_IDS] = {0};
    for (int turn = 0; turn < 2; ++turn) {
        specv_verify_sample_desc v = SPECV_ZERO;
        for (int i = 0; i < GRID; ++i) {
            drafts[i] = d, low[i] = number[0], scale[i] = number[1];
            accept[i] = turn ? 0.99999994f : ((float)i + 0.5f) / GRID;
            sample[i] = ((float)i + 0.5f) / GRID;
            for (int x = 0; x < LAW_IDS; ++x)
                all_p[(2 * i) * LAW_IDS + x] = p[x], all_p[(2 * i + 1) * LAW_IDS + x] = 1,
                                          all_q[i * LAW_IDS + x] = q[x];
        }
        v.verify.rows.batch = GRID, v.verify.rows.max_draft = 1;
        v.verify.draft_tokens = drafts, v.verify.accepted_len = accepted;
        v.verify.next_token = next, v.verify.vocab = LAW_IDS;
        v.target.data = all_p, v.target.dtype = SPECV_PROBS_F32;
        if (c->rule == SPECV_RULE_BOUNDED) v.draft.data = all_q, v.draft.dtype = SPECV_PROBS_F32;
        v.accept_uniform = accept, v.sample_uniform = sample, v.rule = c->rule;
        if (c->rule == SPECV_RULE_BOUNDED) v.lossy.ratio = scale;
        if (c->rule == SPECV_RULE_THRESHOLD)
            v.lossy.threshold_single = low, v.lossy.threshold_acc = scale;
        v.scratch = no_scratch(), v.scratch_bytes = INT64_MAX;
        CHECK_EQ(specv_ref_verify_sample(&v), SPECV_OK, -1);
        for (int i = 0; i < GRID; ++i) {
            if (!turn) passes += accepted[i];
            if (turn && !accepted[i]) tokens[next[i]] += 1;
        }
    }
    passes /= GRID;
    law_of_next[d] += of_d * passes;
    for (int x = 0; x < LAW_IDS; ++x) law_of_next[x] += of_d * (1 - passes) * tokens[x] / GRID;
}

/* c at which clamp(q, c p, ratio p) sums to 1: by halving. */
static double clamped(const double *p, const double *q, double ratio, double *r) {
    double low = 0, high = 1;
    for (int step = 0; step < 60; ++step) {
        const double c = (low + high) / 2;
        double sum = 0;
        for (int x = 0; x < LAW_IDS; ++x) {
            r[x] = q[x] < c * p[x] ? c * p[x] : q[x] > ratio * p[x] ? ratio * p[x] : q[x];
            sum += r[x];
        }
        if (sum > 1)
            high = c;
        else
            low = c;
    }
    return low;
}

static void test_bounded_law(void) {
    int told_apart = 0;
    for (int turn = 0; turn < 18; ++turn) {
        static const float ratios[] = {1, 1.25f, 1.5f, 2, 4, 1000};
        float p[LAW_IDS], q[LAW_IDS];
        double exact_p[LAW_IDS], exact_q[LAW_IDS], r[LAW_IDS], got[LAW_IDS] = {0}, sum_p = 0;
        double sum_q = 0, plain = 0, away = 0;
        scene c = plain_scene(1, 1, LAW_IDS);
        t_case("the law of BOUNDED, ratio %g", (double)ratios[turn % 6]);
        c.rule = SPECV_RULE_BOUNDED, c.loose_scale = ratios[turn % 6];
        for (int x = 0; x < LAW_IDS; ++x) {
            const float width = turn < 6 ? 2 : 0.4f; /* the narrow: c is found in several steps */
            sum_p += exact_p[x] = exp((double)normal(width));
            sum_q += exact_q[x] = exp((double)normal(width));
        }
        for (int x = 0; x < LAW_IDS; ++x) {
            exact_p[x] /= sum_p, exact_q[x] /= sum_q;
            p[x] = (float)exact_p[x], q[x] = (float)exact_q[x];
        }
        for (int d = 0; d < LAW_IDS; ++d) count_law(p, q, d, &c, got, exact_q[d]);
        clamped(exact_p, exact_q, (double)ratios[turn % 6], r);
        for (int x = 0; x < LAW_IDS; ++x) {
            CHECK(fabs(got[x] - r[x]) < 2.0 / GRID + 1e-3 / GRID * 3);
            if (fabs(got[x] - exact_p[x]) > away) away = fabs(got[x] - exact_p[x]);
        }
        for (int x = 0; x < LAW_IDS; ++x) { /* with c = 1 it would be another law */
            double other = exact_q[x] < (double)ratios[turn % 6] * exact_p[x]
                               ? exact_q[x]
                               : (double)ratios[turn % 6] * exact_p[x];
            double left = 0, mass = 0;
            for (int y = 0; y < LAW_IDS; ++y) {
                const double cap = (double)ratios[turn % 6] * exact_p[y];
                left += exact_q[y] > cap ? exact_q[y] - cap : 0;
                mass += exact_p[y] > exact_q[y] ? exact_p[y] - exact_q[y] : 0;
            }
            other += left * (exact_p[x] > exact_q[x] ? exact_p[x] - exact_q[x] : 0) / mass;
            if (fabs(other - r[x]) > plain) plain = fabs(other - r[x]);
        }
        told_apart += plain > 4.0 / GRID;
        if (turn % 6 == 0) CHECK(away < 3.0 / GRID); /* lossless */
    }
    t_case("the law of BOUNDED: residuals with c = 1 would have been seen");
    CHECK(told_apart >= 6);
}

static void test_threshold_law(void) {
    static const float singles[] = {1, 0.3f, 1, 0.25f, 0.1f}, accs[] = {1, 1, 0.5f, 0.7f, 0};
    for (int turn = 0; turn < T_COUNT(singles); ++turn) {
        float p[LAW_IDS], q[LAW_IDS] = {0};
        double exact[LAW_IDS], sum = 0;
        scene c = plain_scene(1, 1, LAW_IDS);
        t_case("the law of THRESHOLD, %g and %g", (double)singles[turn], (double)accs[turn]);
        c.rule = SPECV_RULE_THRESHOLD, c.loose_low = singles[turn], c.loose_scale = accs[turn];
        for (int x = 0; x < LAW_IDS; ++x) sum += exact[x] = exp(1.5 * (double)normal(1));
        for (int x = 0; x < LAW_IDS; ++x) exact[x] /= sum, p[x] = (float)exact[x];
        for (int d = 0; d < LAW_IDS; ++d) {
            double got[LAW_IDS] = {0}, pass = exact[d] / (double)accs[turn];
            if (accs[turn] == 0 || exact[d] >= (double)singles[turn] || pass > 1) pass = 1;
            count_law(p, q, d, &c, got, 1);
            for (int x = 0; x < LAW_IDS; ++x) {
                const double want = x == d ? pass : (1 - pass) * exact[x] / (1 - exact[d]);
                CHECK(fabs(got[x] - want) < 2.0 / GRID);
            }
        }
    }
}

/* TYPICAL_DRAW: what is left of p, made anew. A text without drafts, many seeds. */
static void test_draw_law(void) {
    enum { IDS = 12, TEXTS = 6000 };
    static float logits[TEXTS * IDS], epsilon[TEXTS], alpha[TEXTS];
    static uint64_t seed[TEXTS];
    static int32_t position[TEXTS], accepted[TEXTS], next[TEXTS];
    for (int turn = 0; turn < 4; ++turn) {
        static const float epsilons[] = {1, 0.08f, 0, 1}, alphas[] = {0.7f, INFINITY, 1, 1.4f};
        double p[IDS], sum = 0, kept = 0, entropy = 0, deviance = 0;
        int64_t counts[IDS] = {0};
        int num_kept = 0;
        t_case("the law of TYPICAL_DRAW, %g and %g", (double)epsilons[turn], (double)alphas[turn]);
        for (int x = 0; x < IDS; ++x) logits[x] = normal(1.3f);
        for (int x = 0; x < IDS; ++x) sum += p[x] = exp((double)logits[x]);
        for (int x = 0; x < IDS; ++x) p[x] /= sum, entropy -= p[x] * log(p[x]);
        for (int x = 0; x < IDS; ++x) {
            const double by_entropy = (double)alphas[turn] * exp(-entropy);
            const double least = by_entropy < (double)epsilons[turn] ? by_entropy : epsilons[turn];
            if (p[x] < least) p[x] = 0;
            kept += p[x], num_kept += p[x] > 0;
        }
        CHECK(turn == 2 || num_kept < IDS);
        for (int i = 0; i < TEXTS; ++i) {
            memcpy(logits + i * IDS, logits, sizeof *logits * IDS);
            seed[i] = t_random(), position[i] = (int32_t)t_below(1000);
            epsilon[i] = epsilons[turn], alpha[i] = alphas[turn];
        }
        specv_verify_sample_desc v = SPECV_ZERO;
        v.verify.rows.batch = TEXTS, v.verify.accepted_len = accepted, v.verify.next_token = next;
        v.verify.vocab = IDS, v.target.data = logits, v.rule = SPECV_RULE_TYPICAL_DRAW;
        v.seed = seed, v.position = position, v.lossy.epsilon = epsilon, v.lossy.alpha = alpha;
        v.scratch = no_scratch(), v.scratch_bytes = INT64_MAX;
        CHECK_EQ(specv_ref_verify_sample(&v), SPECV_OK, -1);
        for (int i = 0; i < TEXTS; ++i) counts[next[i]] += 1;
        for (int x = 0; x < IDS; ++x) {
            const double expected = TEXTS * p[x] / kept;
            if (p[x] == 0) CHECK_EQ(counts[x], 0, x);
            if (p[x] > 0 && counts[x])
                deviance += 2 * (double)counts[x] * log((double)counts[x] / expected);
        }
        CHECK(chi2_tail(deviance, num_kept > 1 ? num_kept - 1 : 1) > 1e-9);
    }
}

/* ------------------------------------------------------------------------------------- entropy */

/* The limit that the kit computes for a row against long double: as -log2 of alpha e^-H. */
static void test_entropy(void) {
    static const int sizes[] = {2, 100, 5000, 128256};
    double most = 0;
    for (int turn = 0; turn < (t.quick ? 12 : 40); ++turn) {
        const int vocab = sizes[turn % T_COUNT(sizes)];
        const float width = turn % 5 == 0 ? 0.f : turn % 5 == 1 ? 12.f : 0.3f * (float)(turn % 11);
        const specv_scale scale = specv_softmax_scale(turn % 3 ? 1.f : 0.7f);
        const long double heat = turn % 3 ? 1 : 0.7f;
        long double largest = -INFINITY, total = 0, mean = 0;
        uint64_t sum = 0, weighed = 0;
        float *logit = (float *)malloc(sizeof(float) * (size_t)vocab), top = -INFINITY;
        int32_t n;
        double got;
        if (!logit) t_die(__FILE__, __LINE__, "malloc", "no memory");
        t_case("entropy of %d ids, spread %g", vocab, (double)width);
        for (int x = 0; x < vocab; ++x) {
            logit[x] = normal(width);
            if (logit[x] > top) top = logit[x];
        }
        largest = top;
        n = specv_softmax_weight(top, &scale).n;
        for (int x = 0; x < vocab; ++x) {
            const specv_weight w = specv_softmax_weight(logit[x], &scale);
            const uint64_t units = specv_weight_units(&w, n);
            const long double octaves = (largest - logit[x]) / heat / logl(2);
            sum += units, weighed += specv_i_weighed_surprise(units, specv_i_surprise(&w, n));
            total += exp2l(-octaves), mean += octaves * exp2l(-octaves);
        }
        /* both relative to the largest */
        {
            const specv_weight w = specv_softmax_weight(top, &scale);
            got = (specv_i_surprise_limit(sum, weighed, 1.f) - (double)specv_i_surprise(&w, n)) /
                  1048576;
        }
        mean /= total;
        if (fabs(got - (double)mean) > most) most = fabs(got - (double)mean);
        CHECK(fabs(got - (double)mean) < ldexp(1, -18) + vocab * ldexp(1, -39));
        free(logit);
    }
    t_case("entropy: off by %.3g bits at most", most);
    CHECK(most > 0);
}

/* ------------------------------------------------------------------------------------- launches */

/* Rows whose ticket was not 0 say so, and nothing else; others are as if nothing had happened. */
static void test_tickets(void) {
#if T_DEVICE
    enum { ROWS = 4, COLUMNS = 3 };
    for (int i = 0; i < 2 * (NUM_RULES - FIRST_LOSSY); ++i) {
        scene c = plain_scene(ROWS, COLUMNS - 1, 3000);
        const uint32_t stale = i % 2 ? 0x0badf00du : 1;
        stage g;
        specv_verify_sample_desc d;
        c.rule = FIRST_LOSSY + i / 2, c.null_extra = 1, c.tell = TELL_LOGPROB;
        c.loose = LOOSE_GIVEN, c.loose_low = 0.5f, c.loose_scale = 1, c.loose_top = 3;
        t_case("tickets:");
        note_scene(&c);
        stage_make(&g, &c);
        t_upload();
        run_reference(&g);
        d = describe_device(&g);
        for (int row = 1; row < 3; ++row)
            T_CUDA(cudaMemcpy((uint32_t *)d.scratch + 2 * row, &stale, 4, cudaMemcpyHostToDevice));
        CHECK_EQ(specv_verify_sample(&d, 0), SPECV_OK, -1);
        T_CUDA(cudaDeviceSynchronize());
        for (int row = 1; row < 3; ++row) { /* what is expected of those two */
            put_word(&g.b.accepted, row, 0), put_word(&g.b.emitted, row, 0);
            put_word(&g.b.status, row, SPECV_ROW_BAD_TICKET);
            put_token(&g.b.next, c.s.dtype, row, -1);
            g.b.mismatch.host[row] = g.b.finished.host[row] = 0;
            for (int j = 0; j < COLUMNS; ++j) {
                put_token(&g.b.tokens, c.s.dtype, row * g.b.out_stride + j, -1);
                put_word(&g.out_logprob, row * COLUMNS + j, 0);
            }
        }
        const t_buf *const outputs[] = {&g.b.accepted, &g.b.emitted,  &g.b.status, &g.b.next,
                                        &g.b.mismatch, &g.b.finished, &g.b.tokens, &g.out_logprob};
        for (int k = 0; k < T_COUNT(outputs); ++k) {
            char seen[8 * ROWS * COLUMNS];
            T_CUDA(cudaMemcpy(seen, outputs[k]->device, outputs[k]->bytes, cudaMemcpyDeviceToHost));
            CHECK_BYTES(seen, outputs[k]->host, outputs[k]->bytes);
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
    for (int i = 0; i < 3 * (NUM_RULES - FIRST_LOSSY); ++i) {
        scene c = plain_scene(3, 2, 1500);
        const int64_t count = 3 * 3 * 1500;
        stage g;
        specv_verify_sample_desc d;
        float *made;
        t_buf followed;
        c.rule = FIRST_LOSSY + i / 3, c.filters = i % 3 == 1 ? HAS_TOP_K : 0, c.top_k = 7;
        c.target_dtype = c.draft_dtype = i % 3 == 2 ? SPECV_PROBS_F32 : SPECV_LOGITS_F32;
        t_case("dependent of the kernel that writes the scores:");
        note_scene(&c);
        stage_make(&g, &c);
        followed = t_out(4 * 3, 0);
        t_upload();
        run_reference(&g);
        memcpy(followed.host, g.b.accepted.host, 4 * 3);
        d = describe_device(&g);
        T_CUDA(cudaMalloc((void **)&made, 4 * (size_t)count));
        T_CUDA(cudaMemset(made, 0xff, 4 * (size_t)count));
        t_produce(made, d.target.data, 4 * count);
        d.target.data = made;
        d.verify.chained = SPECV_CHAINED_AFTER;
        CHECK_EQ(specv_verify_sample(&d, 0), SPECV_OK, -1);
        t_follow(followed.device, g.b.accepted.device, 4 * 3);
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

/* ------------------------------------------------------------------------------ what is refused */

static void expect_desc(int code, int rule, const specv_lossy *lossy, int has_draft, int has_seed) {
    specv_verify_sample_desc d = SPECV_ZERO;
    d.verify.rows.batch = 1, d.verify.rows.max_draft = 2;
    d.verify.draft_tokens = storage, d.verify.accepted_len = (int32_t *)storage;
    d.verify.vocab = 8, d.target.data = storage;
    if (has_draft) d.draft.data = storage;
    if (has_seed) d.seed = (const uint64_t *)storage, d.position = (const int32_t *)storage;
    d.scratch = no_scratch(), d.scratch_bytes = INT64_MAX;
    d.rule = rule, d.lossy = *lossy;
    CHECK_EQ(specv_verify_sample_validate(&d), code, -1);
}

#define EXPECT(code, rule, change, has_draft, has_seed)                                            \
    do {                                                                                           \
        specv_lossy l = SPECV_ZERO;                                                                \
        change;                                                                                    \
        expect_desc(code, rule, &l, has_draft, has_seed);                                          \
    } while (0)

static void test_validation(void) {
    const float *const f = (const float *)(const void *)storage;
    const float *const odd = (const float *)(const void *)((const char *)storage + 2);
    const int32_t *const w = (const int32_t *)storage;
    t_case("what is refused");
    for (int rule = FIRST_LOSSY; rule < NUM_RULES; ++rule) {
        const int typical = rule == SPECV_RULE_TYPICAL || rule == SPECV_RULE_TYPICAL_DRAW;
        const int takes = rule == SPECV_RULE_BOUNDED;
        EXPECT(SPECV_OK, rule, (void)0, 0, 1);
        EXPECT(takes ? SPECV_OK : SPECV_ERR_DRAFT, rule, (void)0, 1, 1);
        EXPECT(is_tokens_alone(rule) ? SPECV_OK : SPECV_ERR_SEED, rule, (void)0, 0, 0);
        EXPECT(typical ? SPECV_OK : SPECV_ERR_LOSSY, rule, l.epsilon = f, 0, 1);
        EXPECT(typical ? SPECV_OK : SPECV_ERR_LOSSY, rule, l.alpha = f, 0, 1);
        EXPECT(rule == SPECV_RULE_THRESHOLD ? SPECV_OK : SPECV_ERR_LOSSY, rule,
               l.threshold_single = f, 0, 1);
        EXPECT(rule == SPECV_RULE_THRESHOLD ? SPECV_OK : SPECV_ERR_LOSSY, rule, l.threshold_acc = f,
               0, 1);
        EXPECT(rule == SPECV_RULE_RELAXED ? SPECV_OK : SPECV_ERR_LOSSY, rule, l.top_n = w, 0, 1);
        EXPECT(rule == SPECV_RULE_RELAXED ? SPECV_OK : SPECV_ERR_LOSSY, rule, l.delta = f, 0, 1);
        EXPECT(takes ? SPECV_OK : SPECV_ERR_LOSSY, rule, l.ratio = f, 0, 1);
        EXPECT(SPECV_ERR_LOSSY, rule, l.epsilon = odd, 0, 1);
        EXPECT(SPECV_ERR_LOSSY, rule, l.alpha = odd, 0, 1);
        EXPECT(SPECV_ERR_LOSSY, rule, l.threshold_single = odd, 0, 1);
        EXPECT(SPECV_ERR_LOSSY, rule, l.threshold_acc = odd, 0, 1);
        EXPECT(SPECV_ERR_LOSSY, rule, l.delta = odd, 0, 1);
        EXPECT(SPECV_ERR_LOSSY, rule, l.ratio = odd, 0, 1);
        EXPECT(SPECV_ERR_LOSSY, rule, l.top_n = (const int32_t *)(const void *)odd, 0, 1);
    }
    for (int rule = 0; rule < FIRST_LOSSY; ++rule) {
        EXPECT(SPECV_ERR_LOSSY, rule, l.epsilon = f, 0, 1);
        EXPECT(SPECV_ERR_LOSSY, rule, l.threshold_acc = f, 0, 1);
        EXPECT(SPECV_ERR_LOSSY, rule, l.top_n = w, 0, 1);
        EXPECT(SPECV_ERR_LOSSY, rule, l.ratio = f, 0, 1);
    }
    EXPECT(SPECV_ERR_RULE, NUM_RULES, (void)0, 0, 1);
    EXPECT(SPECV_ERR_RULE, -1, (void)0, 0, 1);
}

int main(int argc, char **argv) {
    static const t_group groups[] = {
        {"validation", test_validation},
        {"types", test_types},
        {"decided", test_counts},
        {"lossless", test_lossless},
        {"entropy", test_entropy},
        {"bounded-law", test_bounded_law},
        {"threshold-law", test_threshold_law},
        {"draw-law", test_draw_law},
        {"shapes", test_shapes},
        {"vocabularies", test_vocabularies},
        {"parts", test_parts},
        {"random", test_random},
        {"tickets", test_tickets},
        {"dependents", test_dependents},
    };
    return t_main(argc, argv, groups, T_COUNT(groups));
}
