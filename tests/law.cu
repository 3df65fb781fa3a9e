/* law.cu - A3 to A5, A8 and A10 do not change the law of the text: what a step emits is what the
   target model alone would have written.

   The yardstick is the published rule, written here once more, in doubles. First the rule is shown
   to be right, by adding up the probabilities of everything that can happen. Then the reference's
   decisions are compared with it for given uniforms; the device's have to equal the reference's.
   Last, whole texts are drawn, several steps long and with keys as in production, and counted:
   that is what sees a random number that is used twice. Broken rules and misused keys go the same
   way and have to be found: a yardstick that cannot see them proves nothing. All of that again for
   requests with filters (A10), whose law is what they leave of the target's, sorted, cut and
   renormalised here.

   What is counted becomes p-values, which share one budget of false alarms for the whole run: see
   chi2.h. The list of them is printed at the end. */

#include "chi2.h"

#include <time.h>

/* Some machines hold a case's buffers only: the arrays of the host that go with them. */
static void *more(size_t bytes) {
    void *p = calloc(bytes ? bytes : 1, 1);
    if (!p) t_die(__FILE__, __LINE__, "calloc", "no memory");
    return p;
}

/* -------------------------------------------------------------------------------- the yardstick */

static statistic of_cells(const char *name, const chi2 *c) {
    statistic s = SPECV_ZERO;
    s.name = name, s.value = c->statistic, s.df = c->df, s.p = p_of_cells(c);
    return s;
}

static statistic of_evidence(const char *name, const evidence *e, int count) {
    statistic s = SPECV_ZERO;
    s.name = name, s.df = trials_of(e, count);
    s.p = p_of_evidence(e, count, &s.value);
    return s;
}

/* Observations of a law by inverse CDF. */
static void draw_counts(const double *law, int cells, int64_t draws, double *observed) {
    double cdf[64], before = 0;
    for (int i = 0; i < cells; ++i) {
        cdf[i] = before += law[i];
        observed[i] = 0;
    }
    for (int64_t k = 0; k < draws; ++k) {
        const double u = t_uniform() * before;
        int i = 0;
        while (i < cells - 1 && u >= cdf[i]) ++i;
        observed[i] += 1;
    }
}

/* P-values of a true law must not be small more often than they say; those of cells not much more
   seldom, either. */
static void check_null(const double *p, int count, int exact) {
    double least = 1;
    for (double level = .5; level * count > 20; level /= 4) {
        const double expected = level * count, far = 6 * sqrt(expected);
        double below = 0;
        for (int i = 0; i < count; ++i) below += p[i] < level;
        CHECK(below < expected + far);
        if (exact) CHECK(below > expected / 4 - far); /* cells claim a third of what is true */
    }
    for (int i = 0; i < count; ++i) least = p[i] < least ? p[i] : least;
    CHECK(least * count > 1e-5);
    printf("%s: %d repetitions, smallest p %.2g\n", t.what, count, least);
}

/* The exact tail of a sum of deviances of `cells` Poisson counts against chi-square's, at levels
   far below those that repetitions reach. */
static double worst_tail(int cells, double expected) {
    enum { GRID = 8192 };
    static double one[GRID], sum[GRID], next[GRID];
    const double width = .05;
    double worst = 0, tail = 0;
    memset(one, 0, sizeof one);
    for (int k = 0; k < 40 * expected; ++k) {
        const double at = deviance(k, expected) / width + .5;
        if (at < GRID) one[(int)at] += exp(k * log(expected) - expected - lgamma(k + 1.));
    }
    memcpy(sum, one, sizeof sum);
    for (int have = 1; have < cells; have *= 2) { /* cells: a power of 2 */
        memset(next, 0, sizeof next);
        for (int i = 0; i < GRID; ++i)
            for (int j = 0; sum[i] > 1e-30 && i + j < GRID; ++j) next[i + j] += sum[i] * sum[j];
        memcpy(sum, next, sizeof sum);
    }
    for (int i = GRID - 1; i > 0; --i) {
        tail += sum[i];
        const double claimed = chi2_tail((i - .5) * width, cells);
        if (claimed > 1e-12 && claimed < 1e-3 && tail > worst * claimed) worst = tail / claimed;
    }
    return worst;
}

static void test_null(void) {
    static const struct {
        double x, df, tail; /* scipy.stats.chi2.sf */
    } known[] = {{1, 1, 0.31731050786291115},        {3.841458820694124, 1, 0.05},
                 {.5, 2, 0.7788007830714049},        {40, 1, 2.5396285894708634e-10},
                 {10, 3, 0.01856613546304325},       {43, 43, 0.47131399566624804},
                 {80, 43, 0.0005229264775246996},    {60, 100, 0.999481108537452},
                 {300, 100, 7.4121008573230175e-22}, {1200, 1000, 1.2255942330622893e-05},
                 {2000, 200, 6.035827529631144e-294}};
    const int repetitions = t.quick ? 500 : 5000;
    double *p = (double *)more(sizeof *p * (size_t)repetitions), log_mean;
    t_case("null: chi-square's tail");
    for (int i = 0; i < T_COUNT(known); ++i)
        CHECK(fabs(chi2_tail(known[i].x, known[i].df) / known[i].tail - 1) < 1e-11);
    CHECK(chi2_tail(0, 5) >= 1 && chi2_tail(INFINITY, 5) <= 0);

    t_case("null: nothing observed");
    chi2 nothing = SPECV_ZERO;
    const evidence none = SPECV_ZERO;
    add_cells(&nothing, &known[0].x, &known[0].x, 1);
    const statistic empty[] = {of_cells("texts", &nothing), of_evidence("tests", &none, 1)};
    CHECK(!has_observations(&empty[0]) && !has_observations(&empty[1]));

    for (int cells = 1; cells <= (t.quick ? 8 : 128); cells *= 2) {
        t_case("null: tail of %d cells that expect %.0f", cells, least_expected);
        const double worst = worst_tail(cells, least_expected);
        CHECK(worst < 2);
        printf("%s: at most %.2f of chi-square's, from 1e-3 to 1e-12\n", t.what, worst);
    }
    for (int kind = 0; kind < 4; ++kind) {
        const int cells = kind == 0 ? 2 : kind == 1 ? 7 : kind == 2 ? 24 : 60;
        const int64_t draws = 60 * cells;
        t_case("null: %d cells, some of them rare", cells);
        for (int r = 0; r < repetitions; ++r) {
            double law[64], observed[64], sum = 0;
            chi2 c = SPECV_ZERO;
            for (int i = 0; i < cells; ++i) {
                law[i] = i % 3 == 2 && kind ? exp2(-12 * t_uniform()) : 1 + t_uniform();
                sum += law[i];
            }
            draw_counts(law, cells, draws, observed);
            for (int i = 0; i < cells; ++i) law[i] *= (double)draws / sum;
            add_cells(&c, observed, law, cells);
            p[r] = p_of_cells(&c);
        }
        check_null(p, repetitions, 1);
    }
    for (int kind = 0; kind < 3; ++kind) {
        t_case("null: events that are %s", kind == 0 ? "rare" : kind == 1 ? "common" : "both");
        for (int r = 0; r < repetitions; ++r) {
            evidence e[RATE_BINS];
            memset(e, 0, sizeof e);
            for (int i = 0; i < 300; ++i) {
                const double octaves = kind == 0 || (kind == 2 && i % 2) ? 4 + 12 * t_uniform() : 0;
                const double rate = exp2(-octaves) * t_uniform();
                add_trial(&e[rate_bin(rate)], rate, t_uniform() < rate, 0);
            }
            p[r] = p_of_evidence(e, RATE_BINS, &log_mean);
        }
        check_null(p, repetitions, 0);
    }
    free(p);
}

/* ------------------------------------------------------------------------------------ models */

enum { MAX_V = 5, MAX_N = 4, CONTEXTS = 512, TARGET = 0, DRAFT = 1 };

/* What a request asks of one side's scores. */
typedef struct filters {
    int masked; /* ids are allowed by masks, one for each text */
    int order, top_k;
    float top_p, min_p;
} filters;

static const filters no_filters = {0, SPECV_TOP_K_TOP_P_MIN_P, 0, 1, 0};

static int are_on(const filters *f) {
    return f->masked || f->top_k > 0 || f->top_p < 1 || f->min_p > 0;
}

/* Two models, target and draft, whose distributions depend on the whole text. Texts are numbered
   as the nodes of a tree, the empty one 0; the first CONTEXTS of them have rows of their own,
   longer ones share them. */
typedef struct model {
    int vocab, dtype;
    float temperature[2];
    filters kept[2];
    uint32_t allowed[2][CONTEXTS];
    float score[2][CONTEXTS][MAX_V];  /* what the kit gets; half-precision codes can hold it */
    double whole[2][CONTEXTS][MAX_V]; /* what it means without filters */
    double prob[2][CONTEXTS][MAX_V];  /* what it means */
} model;

static uint64_t child(const model *m, uint64_t node, int64_t token) {
    return node * (uint64_t)m->vocab + 1 + (uint64_t)token;
}

static int context(uint64_t node) { return (int)(node < CONTEXTS ? node : t_mix(node) % CONTEXTS); }

static const double *probs(const model *m, int side, uint64_t node) {
    return m->prob[side][context(node)];
}

static uint16_t f16_code(float x) {
    int exponent;
    double fraction = 2 * frexp(fabs((double)x), &exponent) - 1;
    if (isinf(x)) return x < 0 ? 0xfc00u : 0x7c00u;
    if (!(fabs((double)x) > 0)) return 0;
    return (uint16_t)((x < 0 ? 0x8000 : 0) + (exponent + 14) * 1024 + (int)(fraction * 1024));
}

/* A logit that this dtype can hold. */
static float fit(int dtype, double logit) {
    if (dtype == SPECV_LOGITS_F16) return (float)(floor(logit * 64) / 64);
    if (dtype == SPECV_LOGITS_BF16) { /* below 16 */
        const double steps = fabs(logit) < 8 ? 32 : 16;
        return (float)(floor(logit * steps) / steps);
    }
    return (float)logit;
}

typedef struct ranked {
    double weight;
    int id;
} ranked;

static int by_rank(const void *a, const void *b) {
    const ranked *x = (const ranked *)a, *y = (const ranked *)b;
    if (x->weight < y->weight || x->weight > y->weight) return x->weight > y->weight ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static double least(double a, double b) { return a < b ? a : b; }

/* From weights to the law of what is kept of them: sort, cut, renormalise. Returns how close the
   closest of its comparisons was, so that rounding could have turned it; equal weights are equal
   whoever computes them. */
static double keep_law(const filters *f, const uint32_t *allowed, int vocab, double *law) {
    ranked *ids = (ranked *)more(sizeof *ids * (size_t)vocab);
    double margin = 1, sum = 0, mass = 0;
    int count = 0, by_k, by_min = 1, by_p = 0, kept;
    for (int x = 0; x < vocab; ++x) {
        const int may = !f->masked || (allowed[x / 32] >> x % 32 & 1);
        if (may && law[x] > 0) ids[count].weight = law[x], ids[count++].id = x;
        law[x] = 0;
    }
    if (count == 0) t_die(__FILE__, __LINE__, "keep_law", "no id");
    qsort(ids, (size_t)count, sizeof *ids, by_rank);
    by_k = f->top_k > 0 && f->top_k < count ? f->top_k : count;
    for (; by_min < count; ++by_min) {
        const double part = ids[by_min].weight / ids[0].weight, limit = (double)f->min_p;
        if (part < 1 && limit > 0) margin = least(margin, fabs(part - limit));
        if (part < limit) break;
    }
    kept = by_k < by_min ? by_k : by_min;
    const int of = f->order == SPECV_TOP_K_TOP_P_MIN_P   ? by_k
                   : f->order == SPECV_MIN_P_TOP_K_TOP_P ? kept
                                                         : count;
    for (int i = 0; i < of; ++i) mass += ids[i].weight;
    while (f->top_p < 1 && by_p < count) {
        sum += ids[by_p++].weight;
        margin = least(margin, fabs(sum / mass - (double)f->top_p));
        if (sum >= (double)f->top_p * mass) break;
    }
    if (by_p && by_p < kept) kept = by_p;
    sum = 0;
    for (int i = 0; i < kept; ++i) sum += ids[i].weight;
    for (int i = 0; i < kept; ++i) law[ids[i].id] = ids[i].weight / sum;
    free(ids);
    return margin;
}

/* From scores to what they mean. Returns how close a filter was to keeping other ids. */
static double set_probs(model *m, int side, int c) {
    float *score = m->score[side][c];
    double sum = 0, *prob = m->prob[side][c], largest = -1e300;
    for (int x = 0; x < m->vocab; ++x) largest = score[x] > largest ? (double)score[x] : largest;
    for (int x = 0; x < m->vocab; ++x) {
        prob[x] = (double)score[x];
        if (m->dtype != SPECV_PROBS_F32)
            prob[x] = exp((prob[x] - largest) / (double)m->temperature[side]);
        sum += prob[x];
    }
    for (int x = 0; x < m->vocab; ++x) m->whole[side][c][x] = prob[x] /= sum;
    if (!are_on(&m->kept[side])) return 1;
    return keep_law(&m->kept[side], &m->allowed[side][c], m->vocab, prob);
}

/* The same for scores that were changed: probabilities add up to 1 again. */
static void renew_probs(model *m, int side, int c) {
    set_probs(m, side, c);
    for (int x = 0; x < m->vocab && m->dtype == SPECV_PROBS_F32; ++x)
        m->score[side][c][x] = (float)m->prob[side][c][x];
}

/* Random models. zeros: some tokens cannot come. likeness, 0 to 1: how much the draft model is
   like the target; 1 is the same scores. */
static void draw_model(model *m, int vocab, int dtype, int zeros, double likeness) {
    static const float temperatures[] = {1.f, 0.7f, 1.4f};
    m->vocab = vocab, m->dtype = dtype;
    m->kept[TARGET] = m->kept[DRAFT] = no_filters;
    m->temperature[TARGET] = T_PICK(temperatures);
    m->temperature[DRAFT] = likeness < 1 ? T_PICK(temperatures) : m->temperature[TARGET];
    for (int c = 0; c < CONTEXTS; ++c) {
        double logit[2][MAX_V];
        for (int side = TARGET; side <= DRAFT; ++side) {
            int kept = (int)t_below(vocab);
            double sum = 0;
            for (int x = 0; x < vocab; ++x) {
                logit[side][x] = 4 * (t_uniform() + t_uniform() - 1);
                if (side == DRAFT)
                    logit[side][x] = likeness * logit[TARGET][x] + (1 - likeness) * logit[side][x];
                m->score[side][c][x] = fit(dtype, logit[side][x]);
                if (zeros && x != kept && t_chance(30)) m->score[side][c][x] = -INFINITY;
                if (side == DRAFT && !(likeness < 1)) m->score[side][c][x] = m->score[TARGET][c][x];
                sum += exp((double)m->score[side][c][x]);
            }
            if (dtype == SPECV_PROBS_F32 && (side == TARGET || likeness < 1))
                for (int x = 0; x < vocab; ++x)
                    m->score[side][c][x] = (float)(exp((double)m->score[side][c][x]) / sum);
            set_probs(m, side, c);
        }
    }
}

static int argmax(const double *law, int vocab) {
    int best = 0;
    for (int x = 1; x < vocab; ++x)
        if (law[x] > law[best]) best = x;
    return best;
}

/* Token x becomes 2^-octaves times as likely as all others together. */
static void set_odds(model *m, int side, int c, int x, double octaves) {
    const double temperature = (double)m->temperature[side];
    double rest = 0, logit;
    for (int y = 0; y < m->vocab; ++y)
        if (y != x && m->dtype == SPECV_PROBS_F32)
            rest += (double)m->score[side][c][y];
        else if (y != x)
            rest += exp((double)m->score[side][c][y] / temperature);
    if (!(rest > 0)) return;
    rest *= exp2(-octaves);
    logit = temperature * log(rest);
    if (logit < -15.9) logit = -15.9;
    m->score[side][c][x] = m->dtype == SPECV_PROBS_F32 ? (float)rest : fit(m->dtype, logit);
    renew_probs(m, side, c);
}

/* Rates and probabilities of 2^-8 to 2^-18, where a random number with too few bits is wrong by
   whole factors. Mostly what the draft model likes best is rare for the target; or the token where
   an inverse CDF begins is rare for both, and more so for the draft model. */
static void add_tails(model *m) {
    for (int c = 0; c < CONTEXTS; ++c) {
        const double shallow = fmod(.2 + c * .6180339887498949, 1);
        const double octaves = 18 - 10 * shallow * shallow;
        if (c % 5 < 3) {
            const int best = argmax(m->prob[DRAFT][c], m->vocab);
            set_odds(m, TARGET, c, best, octaves);
            set_odds(m, DRAFT, c, best, -1);
        }
        if (c % 5 == 3) {
            set_odds(m, TARGET, c, 0, octaves);
            set_odds(m, DRAFT, c, 0, octaves + 3);
        }
    }
}

/* Requests have these filters from now on. Masks allow an id that can come; scores that are too
   close to a limit become others. */
static void filter_model(model *m, int side, const filters *f) {
    m->kept[side] = *f;
    for (int c = 0; c < CONTEXTS; ++c) {
        float *score = m->score[side][c];
        int possible = 0;
        for (int x = 0; x < m->vocab; ++x)
            if (score[x] > score[possible] || (t_chance(50) && score[x] > -INFINITY)) possible = x;
        m->allowed[side][c] = (uint32_t)(t_random() | t_random()) | 1u << possible;
        while (set_probs(m, side, c) < 1e-6) {
            const int x = (int)t_below(m->vocab);
            if (score[x] > -INFINITY) score[x] = fit(m->dtype, (double)score[x] * t_uniform());
        }
    }
}

enum { K_P_MIN = SPECV_TOP_K_TOP_P_MIN_P, MIN_K_P = SPECV_MIN_P_TOP_K_TOP_P };

/* Of target and draft. The first three have everything, in each of the orders. */
static const filters filter_kinds[][2] = {
    {{1, K_P_MIN, 3, .9f, .05f}, {0, MIN_K_P, 3, .85f, .1f}},
    {{0, MIN_K_P, 3, .72f, .2f}, {1, SPECV_TOP_P_OF_ALL, 3, .9f, 0}},
    {{1, SPECV_TOP_P_OF_ALL, 2, .8f, .05f}, {0, K_P_MIN, 2, .9f, .05f}},
    {{1, K_P_MIN, 0, 1, 0}, {1, K_P_MIN, 0, 1, 0}},
    {{0, K_P_MIN, 2, 1, 0}, {0, K_P_MIN, 0, 1, 0}},
    {{0, K_P_MIN, 0, 1, 0}, {0, K_P_MIN, 0, .7f, 0}},
    {{0, K_P_MIN, 0, 1, .3f}, {0, K_P_MIN, 2, 1, 0}},
    {{1, MIN_K_P, 0, .7f, .1f}, {1, MIN_K_P, 0, .9f, .25f}},
};

static void draw_filters(model *m, int kind) {
    for (int side = TARGET; side <= DRAFT; ++side)
        filter_model(m, side, &filter_kinds[kind % T_COUNT(filter_kinds)][side]);
}

/* The same two distributions after every text. */
static void fixed_model(model *m, int vocab, int dtype, const double *p, const double *q) {
    const int logits = dtype != SPECV_PROBS_F32;
    m->vocab = vocab, m->dtype = dtype;
    m->temperature[TARGET] = m->temperature[DRAFT] = 1;
    m->kept[TARGET] = m->kept[DRAFT] = no_filters;
    for (int c = 0; c < CONTEXTS; ++c)
        for (int x = 0; x < vocab; ++x) {
            m->score[TARGET][c][x] = (float)(logits ? log(p[x]) : p[x]);
            m->score[DRAFT][c][x] = (float)(logits ? log(q[x]) : q[x]);
            m->prob[TARGET][c][x] = m->whole[TARGET][c][x] = p[x];
            m->prob[DRAFT][c][x] = m->whole[DRAFT][c][x] = q[x];
        }
}

/* Sun et al.'s example, and a textbook's. */
static const double toy_p[] = {1. / 3, 2. / 3}, toy_q[] = {2. / 3, 1. / 3};
static const double textbook_p[] = {.1, .5, .4}, textbook_q[] = {.5, .4, .1};

/* ------------------------------------------------------------------------- the published rules */

/* Ways to get them wrong. */
typedef enum fault {
    SOUND,
    SWAPPED,        /* p and q exchanged in the test */
    RESIDUAL_IS_P,  /* after a rejection the token is drawn from p */
    NEXT_ROW,       /* residual of the row behind the rejected draft */
    STALE_BONUS,    /* bonus of the row before the last */
    REUSED_UNIFORM, /* the number that rejected draws the token, too (H2) */
    FIRST_REJECT,   /* block: stops at the first failure instead of the last success */
    NO_PREFIX,      /* block: residual (p - q)+ without P */
    NO_CLAMP,       /* block: P may exceed 1 */
    PREFIX_AS_H,    /* block: h = P before the end, too */
    LESS_OR_EQUAL,  /* u * q <= p: one number in 2^24, which no count would see */
    WHOLE_Q,        /* q of all ids, though drafts are drawn from what is kept */
    WHOLE_TEST,     /* the test has p of all ids */
    WHOLE_RESIDUAL, /* the residual has it */
    RAW_RESIDUAL,   /* the residual has it, of ids that are kept: p does not add up to 1 */
    NUM_FAULTS
} fault;

static const char *const fault_names[] = {"none",
                                          "p and q swapped",
                                          "residual is p",
                                          "residual of the next row",
                                          "stale bonus",
                                          "reused uniform",
                                          "first reject",
                                          "no prefix",
                                          "no clamp",
                                          "h is P",
                                          "less or equal",
                                          "q without filters",
                                          "test by p without filters",
                                          "residual without filters",
                                          "residual of p as it was"};

typedef struct rules {
    int block, one_hot; /* one_hot: q is 1 at the draft */
    fault broken;
} rules;

/* Drafts d[0..n-1] behind the text node[0], with everything that the rule says of them. */
typedef struct judged {
    const model *m;
    const rules *r;
    const int *d;
    int n;
    uint64_t node[MAX_N + 1];
    double prefix[MAX_N + 1];           /* block: P_i */
    double left[MAX_N], right[MAX_N];   /* test i passes if u * left < right */
    double law[MAX_N + 1], rate[MAX_N]; /* P(tau = i), P(test i passes) */
} judged;

static const double *without_filters(const model *m, int side, uint64_t node) {
    return m->whole[side][context(node)];
}

static const double *drafted_by(const judged *g, int row) {
    if (g->r->broken == WHOLE_Q) return without_filters(g->m, DRAFT, g->node[row]);
    return probs(g->m, DRAFT, g->node[row]);
}

static const double *tested_by(const judged *g, int row) {
    if (g->r->broken == WHOLE_TEST) return without_filters(g->m, TARGET, g->node[row]);
    return probs(g->m, TARGET, g->node[row]);
}

static double q_of(const judged *g, int row, int x) {
    return g->r->one_hot ? g->d[row] == x : drafted_by(g, row)[x];
}

static judged judge(const model *m, const rules *r, uint64_t node, const int *d, int n) {
    judged g;
    double rest = 1;
    g.m = m, g.r = r, g.d = d, g.n = n;
    g.node[0] = node, g.prefix[0] = 1;
    for (int i = 0; i < n; ++i) {
        double p = tested_by(&g, i)[d[i]], q = q_of(&g, i, d[i]);
        g.node[i + 1] = child(m, g.node[i], d[i]);
        g.left[i] = r->broken == SWAPPED ? p : q;
        g.right[i] = r->broken == SWAPPED ? q : p;
        p *= g.prefix[i];
        g.prefix[i + 1] = q > 0 ? p / q : p > 0;
        if (r->broken != NO_CLAMP) g.prefix[i + 1] = least(g.prefix[i + 1], 1);
    }
    for (int i = 0; i < n && r->block; ++i) {
        const double *p = tested_by(&g, i + 1), prefix = g.prefix[i + 1];
        g.left[i] = 1, g.right[i] = prefix;
        if (i + 1 == n || r->broken == PREFIX_AS_H) continue;
        g.left[i] = g.right[i] = 0;
        for (int x = 0; x < m->vocab; ++x) {
            double gain = prefix * p[x] - q_of(&g, i + 1, x);
            if (gain > 0)
                g.right[i] += gain;
            else
                g.left[i] -= gain;
        }
    }
    for (int i = 0; i < n; ++i)
        g.rate[i] = g.left[i] > 0 ? least(g.right[i] / g.left[i], 1) : r->block || g.right[i] > 0;
    if (r->block && r->broken != FIRST_REJECT) {
        for (int i = n; i > 0; --i) g.law[i] = rest * g.rate[i - 1], rest *= 1 - g.rate[i - 1];
        g.law[0] = rest;
    } else {
        for (int i = 0; i < n; ++i) g.law[i] = rest * (1 - g.rate[i]), rest *= g.rate[i];
        g.law[n] = rest;
    }
    return g;
}

/* What the token behind tau accepted drafts is drawn from: weights; returns their sum. */
static double next_weights(const judged *g, int tau, double *w) {
    const fault broken = g->r->broken;
    const int rejected = tau < g->n;
    int row = rejected && broken == NEXT_ROW ? tau + 1 : tau;
    double total = 0, prefix = g->r->block && broken != NO_PREFIX ? g->prefix[tau] : 1;
    if (!rejected && broken == STALE_BONUS && tau > 0) row = tau - 1;
    const double *p = probs(g->m, TARGET, g->node[row]), *kept = p;
    const double *q = drafted_by(g, row);
    if (rejected && (broken == WHOLE_RESIDUAL || broken == RAW_RESIDUAL))
        p = without_filters(g->m, TARGET, g->node[row]);
    for (int x = 0; x < g->m->vocab; ++x) {
        w[x] = p[x];
        if (rejected && broken != RESIDUAL_IS_P) {
            w[x] = g->r->one_hot ? (x == g->d[tau] ? 0 : p[x]) : prefix * p[x] - q[x];
            if (w[x] < 0 || (broken == RAW_RESIDUAL && !(kept[x] > 0))) w[x] = 0;
        }
        total += w[x];
    }
    if (total > 0) return total;
    for (int x = 0; x < g->m->vocab; ++x) total += w[x] = p[x];
    return total;
}

/* P(next token = x | drafts, tau); returns the sum of the weights. */
static double next_law(const judged *g, int tau, double *law) {
    double w[MAX_V], before = 0, total = next_weights(g, tau, w);
    const int reused = g->r->broken == REUSED_UNIFORM && tau < g->n;
    const double from = reused ? g->rate[tau] : 0; /* the uniform is known to be above */
    for (int x = 0; x < g->m->vocab; ++x) {
        double after = before + w[x] / total, begin = before > from ? before : from;
        law[x] = after > begin ? (after - begin) / (1 - from) : 0;
        before = after;
    }
    return total;
}

/* What a step emits, by how many tokens it has. */
typedef struct emission {
    double of[MAX_N + 2][1024 + 1];
} emission;

static int num_texts_of(const model *m, int n) {
    int num_texts = 1;
    for (int i = 0; i < n; ++i) num_texts *= m->vocab;
    return num_texts;
}

/* The n tokens of a text, and how likely a model is to draft it. */
static double spell(const model *m, int text, int n, int *d) {
    double weight = 1;
    uint64_t node = 0;
    for (int i = n, rest = text; i-- > 0; rest /= m->vocab) d[i] = rest % m->vocab;
    for (int i = 0; i < n; ++i) {
        weight *= probs(m, DRAFT, node)[d[i]];
        node = child(m, node, d[i]);
    }
    return weight;
}

/* Lets the target go on alone to n + 1 tokens. Returns how far the law of the result is from the
   target's, at worst. */
static double error_of(const model *m, int n, const emission *emitted) {
    double worst = 0;
    int d[MAX_N + 1], worst_is_nan = 0;
    for (int text = 0; text < num_texts_of(m, n + 1); ++text) {
        double sum = 0, want = 1, error;
        uint64_t node = 0;
        int prefix = 0;
        for (int i = n, rest = text; i >= 0; --i, rest /= m->vocab) d[i] = rest % m->vocab;
        for (int i = 0; i <= n; ++i) {
            double p = probs(m, TARGET, node)[d[i]];
            node = child(m, node, d[i]);
            prefix = prefix * m->vocab + d[i];
            sum = sum * p + emitted->of[i + 1][prefix]; /* over L of law(y_<L) prod p behind L */
            want *= p;
        }
        error = fabs(sum - want);
        worst = error > worst ? error : worst;
        worst_is_nan |= isnan(error) != 0;
    }
    return worst_is_nan ? INFINITY : worst;
}

/* Adds up everything that a step of n drafts can do. */
static double law_error(const model *m, const rules *r, int n, double *mean_tau) {
    static emission emitted;
    const int num_texts = num_texts_of(m, n);
    int d[MAX_N + 1];
    memset(&emitted, 0, sizeof emitted);
    *mean_tau = 0;
    for (int text = 0; text < num_texts; ++text) {
        const double weight = spell(m, text, n, d);
        double law[MAX_V];
        if (!(weight > 0)) continue;
        judged g = judge(m, r, 0, d, n);
        for (int tau = 0, accepted = 0; tau <= n; ++tau) {
            if (g.law[tau] > 0) next_law(&g, tau, law);
            for (int x = 0; x < m->vocab && g.law[tau] > 0; ++x)
                emitted.of[tau + 1][accepted * m->vocab + x] += weight * g.law[tau] * law[x];
            *mean_tau += weight * g.law[tau] * tau;
            if (tau < n) accepted = accepted * m->vocab + d[tau];
        }
    }
    return error_of(m, n, &emitted);
}

/* The same rule with given uniforms. margin: how close the closest of its comparisons was, so that
   rounding could have turned it; comparisons between exact numbers are not close. */
typedef struct decision {
    int tau, token;
    double margin;
} decision;

static int passes(const judged *g, int i, double u, double *margin) {
    const double left = g->left[i], right = g->right[i], gap = fabs(u * left - right);
    const int block = g->r->block;
    double scale = block ? 1 : (left > right ? left : right);
    /* 0 against 0: a token that cannot come, or comes behind one that cannot */
    if (!(u > 0) && !(right > 0) && !(block && g->prefix[i + 1] > 0)) scale = 0;
    if (scale > 0 && gap / scale < *margin) *margin = gap / scale;
    if (g->r->broken == LESS_OR_EQUAL) return u * left <= right;
    return u * left < right || (block && !(left > 0));
}

static decision decide(const judged *g, const float *u, float v) {
    decision o = {0, -1, 1};
    double w[MAX_V], total, sum = 0;
    for (int i = 0; i < g->n; ++i) {
        if (passes(g, i, (double)u[i], &o.margin))
            o.tau = i + 1;
        else if (!g->r->block)
            break;
    }
    total = next_weights(g, o.tau, w);
    for (int x = 0; x < g->m->vocab; ++x) {
        sum += w[x];
        if ((v > 0 || sum > 0) && fabs((double)v * total - sum) < o.margin && sum < total)
            o.margin = fabs((double)v * total - sum);
        if (o.token < 0 && (double)v * total < sum) o.token = x;
    }
    return o;
}

/* -------------------------------------------------------------------------------- enumeration */

static void test_enumeration(void) {
    static model m;
    const int turns = t.quick ? 1 : 4;
    double worst = 0;
    for (int vocab = 2; vocab <= 4; ++vocab)
        for (int n = 0; n <= MAX_N; ++n)
            for (int kind = 0; kind < 8; ++kind)
                for (int turn = 0; turn < turns; ++turn) {
                    rules r = {kind & 1, kind >> 1 & 1, SOUND};
                    double mean, error;
                    t_case("enumeration: V %d, %d drafts, %s, %s, %s zeros", vocab, n,
                           r.block ? "block" : "token", r.one_hot ? "one-hot" : "with q",
                           kind & 4 ? "with" : "no");
                    draw_model(&m, vocab, SPECV_LOGITS_F32, kind >> 2, turn % 2 ? .7 : 0);
                    error = law_error(&m, &r, n, &mean);
                    CHECK(error < 1e-12);
                    worst = error > worst ? error : worst;
                    if (r.block) { /* never accepts less than the token rule */
                        rules token = {0, 0, SOUND};
                        double token_mean;
                        token.one_hot = r.one_hot;
                        law_error(&m, &token, n, &token_mean);
                        CHECK(mean > token_mean - 1e-12);
                        if (n == 1) CHECK(fabs(mean - token_mean) < 1e-12);
                    }
                }
    t_close_case();
    printf("enumeration: worst error %.1e\n", worst);
}

/* -------------------------------------------------------------------------- running the kit */

/* Filters of one side as the kit gets them. */
typedef struct kit_filters {
    t_buf mask, mask_row, sampled_mask, top_k, top_p, min_p;
    int order;
    int in_place; /* masks are where the scores are, further apart than they must be: no mask_row */
    int lost;     /* verification does not get them */
} kit_filters;

/* A batch as the kit gets it. The reference runs always; the device, if wanted, on the same
   inputs, and has to say the same. */
typedef struct kit {
    int rows, vocab, max_draft, dtype, device;
    int with_q, with_len, with_accept, with_sample; /* inputs that are given */
    int stream;                                     /* of verification */
    t_buf draft_tokens, draft_len, target, draft, temperature, draft_temperature, seed, position,
        accept_uniform, sample_uniform;
    t_buf accepted, next, out, status;
    t_buf scores, token, token_status, max_prob; /* of the sampler */
    t_buf confidence, survival;                  /* of the budget */
    t_buf scratch;
    kit_filters filters[2];
    int late_masks; /* each position has the mask of the one before */
} kit;

static int score_bytes(int dtype) {
    return dtype == SPECV_LOGITS_F16 || dtype == SPECV_LOGITS_BF16 ? 2 : 4;
}

static void put_score(const t_buf *b, int dtype, int64_t at, float score) {
    uint16_t code =
        dtype == SPECV_LOGITS_F16 ? f16_code(score) : (uint16_t)(specv_float_bits(score) >> 16);
    if (score_bytes(dtype) == 2)
        memcpy(b->host + 2 * at, &code, 2);
    else
        memcpy(b->host + 4 * at, &score, 4);
}

static int32_t *ints(const t_buf *b) { return (int32_t *)(void *)b->host; }
static float *floats(const t_buf *b) { return (float *)(void *)b->host; }
static uint64_t *words(const t_buf *b) { return (uint64_t *)(void *)b->host; }

/* Words from one mask of a side to the next. */
static int64_t mask_stride(const kit *k, int side) {
    return (k->vocab + 31) / 32 + (k->filters[side].in_place ? 2 : 0);
}

/* Only what some row uses is given. */
static specv_filters filters_desc(const kit *k, int of, int of_sampler, int side) {
    const kit_filters *f = &k->filters[of];
    specv_filters d = SPECV_ZERO;
    if (of_sampler) {
        d.mask = (const uint32_t *)t_at(&f->sampled_mask, side);
    } else if (f->mask.host) {
        d.mask = (const uint32_t *)t_at(&f->mask, side);
        d.mask_row = (const int32_t *)t_at(&f->mask_row, side);
        if (!f->in_place)
            d.num_mask_rows = (int32_t)((int64_t)f->mask.bytes / 4 / mask_stride(k, of));
        else
            d.mask_stride_words = mask_stride(k, of);
    }
    d.top_k = (const int32_t *)t_at(&f->top_k, side);
    d.top_p = (const float *)t_at(&f->top_p, side);
    d.min_p = (const float *)t_at(&f->min_p, side);
    d.order = f->order;
    return d;
}

static specv_verify_sample_desc verify_desc(const kit *k, int side, int rule) {
    specv_verify_sample_desc d = SPECV_ZERO;
    d.verify.rows.batch = k->rows;
    d.verify.rows.max_draft = k->max_draft;
    if (k->with_len) d.verify.rows.draft_len = (const int32_t *)t_at(&k->draft_len, side);
    d.verify.vocab = k->vocab;
    d.verify.draft_tokens = t_at(&k->draft_tokens, side);
    d.verify.accepted_len = (int32_t *)t_at(&k->accepted, side);
    d.verify.next_token = t_at(&k->next, side);
    d.verify.out_tokens = t_at(&k->out, side);
    d.verify.row_status = (uint32_t *)t_at(&k->status, side);
    d.target.data = t_at(&k->target, side);
    d.target.dtype = d.draft.dtype = k->dtype;
    if (k->with_q) d.draft.data = t_at(&k->draft, side);
    d.temperature = (const float *)t_at(&k->temperature, side);
    d.draft_temperature = (const float *)t_at(&k->draft_temperature, side);
    d.seed = (const uint64_t *)t_at(&k->seed, side);
    d.position = (const int32_t *)t_at(&k->position, side);
    if (k->with_accept) d.accept_uniform = (const float *)t_at(&k->accept_uniform, side);
    if (k->with_sample) d.sample_uniform = (const float *)t_at(&k->sample_uniform, side);
    if (!k->filters[TARGET].lost) d.filters = filters_desc(k, TARGET, 0, side);
    if (k->with_q && !k->filters[DRAFT].lost) d.draft_filters = filters_desc(k, DRAFT, 0, side);
    d.scratch = t_at(&k->scratch, side);
    d.scratch_bytes = (int64_t)k->scratch.bytes;
    d.rule = rule, d.stream = k->stream;
    return d;
}

static specv_sample_desc sample_desc(const kit *k, int side, int method, int row, int stream,
                                     int of_draft) {
    specv_sample_desc d = SPECV_ZERO;
    d.scores.data = t_at(&k->scores, side);
    d.scores.dtype = k->dtype;
    d.temperature = (const float *)t_at(of_draft ? &k->draft_temperature : &k->temperature, side);
    d.seed = (const uint64_t *)t_at(&k->seed, side);
    d.position = (const int32_t *)t_at(&k->position, side);
    if (k->with_sample) d.uniform = (const float *)t_at(&k->sample_uniform, side);
    d.filters = filters_desc(k, of_draft ? DRAFT : TARGET, 1, side);
    d.token = t_at(&k->token, side);
    d.max_prob = (float *)t_at(&k->max_prob, side);
    d.row_status = (uint32_t *)t_at(&k->token_status, side);
    d.scratch = t_at(&k->scratch, side);
    d.scratch_bytes = (int64_t)k->scratch.bytes;
    d.vocab = k->vocab;
    d.batch = k->rows;
    d.method = method, d.step_row = row, d.stream = stream;
    return d;
}

static kit open_kit(int rows, int vocab, int max_draft, int dtype, int device) {
    kit k;
    specv_verify_sample_desc d;
    memset(&k, 0, sizeof k);
    k.rows = rows, k.vocab = vocab, k.max_draft = max_draft, k.dtype = dtype;
    k.device = device && T_DEVICE;
    k.with_q = max_draft > 0;
    const int64_t drafts = (int64_t)rows * max_draft, row_bytes = vocab * score_bytes(dtype);
    k.draft_tokens = t_in(4 * drafts, 0);
    k.draft_len = t_in(4 * rows, 0);
    k.target = t_in((drafts + rows) * row_bytes, 0);
    k.draft = t_in(drafts * row_bytes, 0);
    k.temperature = t_in(4 * rows, 0), k.draft_temperature = t_in(4 * rows, 0);
    k.seed = t_in(8 * rows, 0);
    k.position = t_in(4 * rows, 0);
    k.accept_uniform = t_in(4 * drafts, 0), k.sample_uniform = t_in(4 * rows, 0);
    k.accepted = t_out(4 * rows, 0), k.next = t_out(4 * rows, 0);
    k.out = t_out(4 * (drafts + rows), 0), k.status = t_out(4 * rows, 0);
    k.scores = t_in(rows * row_bytes, 0);
    k.token = t_out(4 * rows, 0), k.token_status = t_out(4 * rows, 0);
    k.max_prob = t_out(4 * rows, 0);
    k.confidence = t_in(4 * drafts, 0), k.survival = t_out(4 * drafts, 0);
    d = verify_desc(&k, T_HOST_SIDE, SPECV_RULE_TOKEN);
    d.draft.data = max_draft ? t_at(&k.draft, T_HOST_SIDE) : NULL;
    const int64_t bytes = specv_verify_sample_scratch_bytes(
        d.verify.rows.batch, d.verify.rows.max_draft, d.verify.vocab);
    if (bytes < 0) t_die(__FILE__, __LINE__, "scratch", specv_status_string((int)bytes));
    k.scratch = t_in(bytes, 0);
    memset(k.scratch.host, 0, (size_t)bytes);
#if T_DEVICE
    T_CUDA(cudaMemset(k.scratch.device, 0, (size_t)bytes));
#endif
    for (int b = 0; b < rows; ++b) {
        floats(&k.temperature)[b] = floats(&k.draft_temperature)[b] = 1;
        words(&k.seed)[b] = t_random();
        ints(&k.position)[b] = 0, ints(&k.draft_len)[b] = max_draft;
        floats(&k.sample_uniform)[b] = 0;
    }
    for (int64_t i = 0; i < drafts; ++i) {
        ints(&k.draft_tokens)[i] = 0;
        floats(&k.accept_uniform)[i] = 0;
    }
    return k;
}

/* Buffers for filters that at most ask for as much as these. */
static void open_filters(kit *k, const filters *f) {
    for (int side = TARGET; side <= DRAFT; ++side, ++f) {
        kit_filters *of = &k->filters[side];
        const int64_t positions = k->max_draft + (side == TARGET), words = (k->vocab + 31) / 32;
        if (f->masked) { /* one side's in one way, the other's in the other */
            of->in_place = (side + k->max_draft) % 2;
            of->mask = t_in(4 * k->rows * positions * mask_stride(k, side), 0);
            if (!of->in_place) of->mask_row = t_in(4 * k->rows, 0);
            of->sampled_mask = t_in(4 * k->rows * words, 0);
        }
        if (f->top_k > 0) of->top_k = t_in(4 * k->rows, 0);
        if (f->top_p < 1) of->top_p = t_in(4 * k->rows, 0);
        if (f->min_p > 0) of->min_p = t_in(4 * k->rows, 0);
        of->order = f->order;
    }
}

/* Where the masks of row b begin: the last row's come first, where that can be said. */
static int64_t first_mask(const kit *k, int side, int b) {
    const int row = k->filters[side].in_place ? b : k->rows - 1 - b;
    return (int64_t)row * (k->max_draft + (side == TARGET));
}

/* What row b asks for. */
static void put_filters(const kit *k, int b, const filters *f) {
    for (int side = TARGET; side <= DRAFT; ++side, ++f) {
        const kit_filters *of = &k->filters[side];
        if (of->mask_row.host)
            ints(&of->mask_row)[b] = f->masked ? (int32_t)first_mask(k, side, b) : -1;
        if (of->top_k.host) ints(&of->top_k)[b] = f->top_k;
        if (of->top_p.host) floats(&of->top_p)[b] = f->top_p;
        if (of->min_p.host) floats(&of->min_p)[b] = f->min_p;
    }
}

#if T_DEVICE
static void to_device(const t_buf *b) {
    if (b->bytes) T_CUDA(cudaMemcpy(b->device, b->host, b->bytes, cudaMemcpyHostToDevice));
}

static void filters_to_device(const kit *k) {
    for (int side = TARGET; side <= DRAFT; ++side) {
        const kit_filters *f = &k->filters[side];
        const t_buf *inputs[] = {&f->mask,  &f->mask_row, &f->sampled_mask,
                                 &f->top_k, &f->top_p,    &f->min_p};
        for (int i = 0; i < T_COUNT(inputs); ++i) to_device(inputs[i]);
    }
}

static void same_on_device(const t_buf *b) {
    char *copy = (char *)more(b->bytes);
    T_CUDA(cudaMemcpy(copy, b->device, b->bytes, cudaMemcpyDeviceToHost));
    for (size_t at = 0; at < b->bytes; at += 4) {
        int32_t host, device;
        memcpy(&host, b->host + at, 4);
        memcpy(&device, copy + at, 4);
        if (host != device) {
            CHECK_EQ(device, host, (int64_t)at / 4);
            break;
        }
    }
    free(copy);
}
#endif

static void run_verify(const kit *k, int rule) {
    specv_verify_sample_desc d = verify_desc(k, T_HOST_SIDE, rule);
    CHECK_EQ(specv_ref_verify_sample(&d), SPECV_OK, -1);
#if T_DEVICE
    const t_buf *inputs[] = {&k->draft_tokens,   &k->draft_len,     &k->target,
                             &k->draft,          &k->temperature,   &k->draft_temperature,
                             &k->seed,           &k->position,      &k->accept_uniform,
                             &k->sample_uniform, &k->accept_uniform};
    if (!k->device) return;
    for (int i = 0; i < T_COUNT(inputs); ++i) to_device(inputs[i]);
    filters_to_device(k);
    d = verify_desc(k, T_DEVICE_SIDE, rule);
    CHECK_EQ(specv_verify_sample(&d, 0), SPECV_OK, -1);
    T_CUDA(cudaDeviceSynchronize());
    same_on_device(&k->accepted);
    same_on_device(&k->next);
    same_on_device(&k->out);
    same_on_device(&k->status);
#endif
}

static void run_sample(const kit *k, int method, int row, int stream, int of_draft) {
    specv_sample_desc d = sample_desc(k, T_HOST_SIDE, method, row, stream, of_draft);
    CHECK_EQ(specv_ref_sample(&d), SPECV_OK, -1);
#if T_DEVICE
    const t_buf *inputs[] = {&k->scores, &k->temperature, &k->draft_temperature,
                             &k->seed,   &k->position,    &k->sample_uniform};
    if (!k->device) return;
    for (int i = 0; i < T_COUNT(inputs); ++i) to_device(inputs[i]);
    filters_to_device(k);
    d = sample_desc(k, T_DEVICE_SIDE, method, row, stream, of_draft);
    CHECK_EQ(specv_sample(&d, 0), SPECV_OK, -1);
    T_CUDA(cudaDeviceSynchronize());
    same_on_device(&k->token);
    same_on_device(&k->token_status);
    same_on_device(&k->max_prob);
#endif
}

/* Scores behind the text `node`, to row `at` of a buffer. */
static void put_scores(const t_buf *b, int64_t at, const model *m, int side, uint64_t node) {
    for (int x = 0; x < m->vocab; ++x)
        put_score(b, m->dtype, at * m->vocab + x, m->score[side][context(node)][x]);
}

/* The same for the sampler's row b, with its mask. */
static void put_sampled(const kit *k, int b, const model *m, int side, uint64_t node) {
    const t_buf *mask = &k->filters[side].sampled_mask;
    put_scores(&k->scores, b, m, side, node);
    if (mask->host)
        put_word(mask, b, m->kept[side].masked ? (int32_t)m->allowed[side][context(node)] : -1);
}

static void put_mask(const kit *k, int b, int j, const model *m, int side, uint64_t node) {
    const t_buf *mask = &k->filters[side].mask;
    if (mask->host)
        put_word(mask, (first_mask(k, side, b) + j) * mask_stride(k, side),
                 m->kept[side].masked ? (int32_t)m->allowed[side][context(node)] : -1);
}

/* Scores and masks of row b of the batch for verification, its drafts being in place. */
static void put_row(const kit *k, int b, const model *m, uint64_t node) {
    uint64_t masked = node;
    for (int j = 0; j <= k->max_draft; ++j) {
        if (!k->late_masks) masked = node;
        put_scores(&k->target, (int64_t)b * (k->max_draft + 1) + j, m, TARGET, node);
        put_mask(k, b, j, m, TARGET, masked);
        if (j == k->max_draft) return;
        put_scores(&k->draft, (int64_t)b * k->max_draft + j, m, DRAFT, node);
        put_mask(k, b, j, m, DRAFT, node);
        masked = node;
        node = child(m, node, ints(&k->draft_tokens)[b * k->max_draft + j]);
    }
}

/* ---------------------------------------------------------------------------------- decisions */

static int pick_from(const double *law, int vocab) {
    double u = t_uniform();
    for (int x = 0; x < vocab; ++x) {
        u -= law[x];
        if (u < 0) return x;
    }
    for (int x = vocab - 1; x > 0; --x)
        if (law[x] > 0) return x;
    return 0;
}

/* On the grid of 24 bits, with the ends and the middle more often. */
static float pick_uniform(void) {
    static const float special[] = {0.f, 5.9604644775390625e-8f, .5f, 1 - 5.9604644775390625e-8f};
    return t_chance(15) ? T_PICK(special) : specv_uniform24((uint32_t)t_random());
}

static long decisions_seen, decisions_close, decisions_different;

/* One batch: rows behind random texts, random drafts, given uniforms. Returns how many decisions
   differ though they were not close. */
static long compare_decisions(kit *k, const model *m, const rules *r) {
    const int n = k->max_draft;
    uint64_t *node = (uint64_t *)more(sizeof *node * (size_t)k->rows);
    long wrong = 0;
    k->with_q = !r->one_hot && n > 0;
    for (int b = 0; b < k->rows; ++b) {
        uint64_t at = node[b] = (uint64_t)t_below(CONTEXTS);
        for (int j = 0; j < n; ++j) {
            /* sometimes a draft that the draft model would not propose */
            int d =
                t_chance(80) ? pick_from(probs(m, DRAFT, at), m->vocab) : (int)t_below(m->vocab);
            ints(&k->draft_tokens)[b * n + j] = d;
            floats(&k->accept_uniform)[b * n + j] = pick_uniform();
            at = child(m, at, d);
        }
        floats(&k->sample_uniform)[b] = pick_uniform();
        floats(&k->temperature)[b] = m->temperature[TARGET];
        floats(&k->draft_temperature)[b] = m->temperature[DRAFT];
        put_row(k, b, m, node[b]);
        put_filters(k, b, m->kept);
    }
    run_verify(k, r->block ? SPECV_RULE_BLOCK : SPECV_RULE_TOKEN);
    for (int b = 0; b < k->rows; ++b) {
        const int *drafts = ints(&k->draft_tokens) + b * n;
        judged g = judge(m, r, node[b], drafts, n);
        decision o = decide(&g, floats(&k->accept_uniform) + b * n, floats(&k->sample_uniform)[b]);
        int same = ints(&k->accepted)[b] == o.tau && ints(&k->next)[b] == o.token;
        decisions_seen += 1;
        decisions_close += o.margin < 1e-6;
        decisions_different += !same;
        wrong += !same && !(o.margin < 1e-6);
        if (!same && !(o.margin < 1e-6) && r->broken == SOUND) {
            CHECK_EQ(ints(&k->accepted)[b], o.tau, b);
            CHECK_EQ(ints(&k->next)[b], o.token, b);
        }
    }
    free(node);
    return wrong;
}

static kit decision_kit(int rows, int vocab, int n, int dtype) {
    kit k = open_kit(rows, vocab, n, dtype, T_DEVICE);
    k.device = 0;
    k.with_accept = n > 0, k.with_sample = 1;
    return k;
}

static void test_decisions(void) {
    static model m;
    decisions_seen = decisions_close = decisions_different = 0;
    for (int kind = 0; kind < 16; ++kind)
        for (int n = 0; n <= MAX_N; ++n) {
            rules r = {kind & 1, kind >> 1 & 1, SOUND};
            const int dtype = (kind + n) % 4, vocab = 2 + (kind / 4 + n) % 4;
            t_case("decisions: V %d, %d drafts, %s, %s, dtype %d, %s zeros", vocab, n,
                   r.block ? "block" : "token", r.one_hot ? "one-hot" : "with q", dtype,
                   kind & 4 ? "with" : "no");
            kit k = decision_kit(16, vocab, n, dtype);
            for (int batch = 0; batch < (t.quick ? 30 : 200); ++batch) {
                draw_model(&m, vocab, dtype, kind >> 2 & 1, kind & 8 ? .7 : 0);
                k.device = T_DEVICE && batch == 0 && (!t.quick || (kind + n) % 5 == 0);
                CHECK_EQ(compare_decisions(&k, &m, &r), 0, batch);
            }
        }
    t_close_case();
    printf("decisions: %ld rows, %ld with a close comparison, %ld of them decided otherwise\n",
           decisions_seen, decisions_close, decisions_different);
}

/* ------------------------------------------------------------------------------------ counting */

enum { MAX_CELLS = 1024, TEXT = 24 };

/* Who proposes, and what the kit is told of it. */
typedef enum drafter {
    FROM_Q,    /* drawn from q, q given */
    HIDDEN_Q,  /* drawn from q, which is not given: one-hot */
    BEST,      /* argmax of q, not given */
    ANY,       /* uniformly random, not given */
    COUPLED_Q, /* drawn from q with the target's noise, not given */
    NUM_DRAFTERS
} drafter;

static const char *const drafter_names[] = {"q given", "q hidden", "argmax", "random", "coupled"};

/* Random numbers that are not what they should be. */
typedef enum misuse {
    PROPER,
    DRAFTS_KEY,    /* the residual's number is the one that drew the draft (H1) */
    SHARED_ACCEPT, /* test and residual (H2) */
    ABSOLUTE,      /* drafts and tests of a step and the next: keyed by the place alone (H3) */
    SAME_POSITION, /* all of a step and the next */
    WRONG_Q,       /* q is not what the drafts were drawn from (H4) */
    BITS_8,        /* uniforms of so many bits */
    BITS_12,
    BITS_24,
    STUCK,            /* in one step of four the position is that of the step before */
    FEW_SEEDS,        /* 16 seeds for all rows of a batch */
    MOVED_MASS,       /* of the likeliest token 1 % becomes the next likeliest */
    NO_FILTERS,       /* verification does not get the target's */
    NO_DRAFT_FILTERS, /* nor the draft's, with which drafts were drawn */
    OTHER_ORDER,      /* of the target's filters */
    LATE_MASKS,       /* of the position before */
    RAW_P,            /* residuals have p of before the filters, of what they keep */
    NUM_MISUSES
} misuse;

static const char *const misuse_names[] = {"proper keys",
                                           "drafts share the residual's key",
                                           "one uniform for test and residual",
                                           "keys without the row",
                                           "position does not advance",
                                           "q of another temperature",
                                           "uniforms of 8 bits",
                                           "uniforms of 12 bits",
                                           "uniforms of 24 bits",
                                           "position advances in 3 steps of 4",
                                           "seeds repeat",
                                           "1 % of the likeliest token moved",
                                           "filters not given",
                                           "draft_filters not given",
                                           "another order of filters",
                                           "masks are late",
                                           "residual of p as it was"};

static int bits_of(misuse keys) {
    return keys == BITS_8 ? 8 : keys == BITS_12 ? 12 : keys == BITS_24 ? 24 : 0;
}

/* Drafts that are kept: half of the batch's, those with the largest products of this. */
typedef enum budget {
    NO_BUDGET,
    BY_MAX_PROB, /* the largest probability of what the draft was drawn from */
    BY_Q         /* its own probability: known too late for rules TOKEN and BLOCK */
} budget;

typedef struct chain {
    const model *m, *others;            /* others, or null: of the rows that are_other */
    int rule, max_draft, steps, length; /* length: tokens that are counted; at most steps */
    drafter drafts;
    int method, stream, verify_stream; /* of the draft's sampler, and of verification */
    misuse keys;
    budget keeps;
    int ragged; /* rows have 0 to max_draft drafts */
    int greedy; /* every 4th row has temperature 0 */
} chain;

static chain make_chain(const model *m, int rule, drafter drafts, int max_draft, int length) {
    chain c;
    memset(&c, 0, sizeof c);
    c.m = m, c.rule = rule, c.drafts = drafts, c.max_draft = max_draft;
    c.steps = 4, c.length = length;
    c.stream = SPECV_STREAM_DRAFT;
    if (drafts == COUPLED_Q) c.method = SPECV_SAMPLE_GUMBEL, c.stream = SPECV_STREAM_COUPLED;
    return c;
}

/* Of a batch in which not all requests have filters. */
static int are_other(const chain *c, int b) { return c->others && b % 4 == 1; }

static const model *model_of(const chain *c, int b) { return are_other(c, b) ? c->others : c->m; }

/* Drafts have the target's noise. */
static int shares_noise(const chain *c) {
    return c->method == SPECV_SAMPLE_GUMBEL && c->stream == SPECV_STREAM_COUPLED;
}

/* Drafts are tested by probability. */
static int is_judged(const chain *c) {
    return c->rule == SPECV_RULE_TOKEN || c->rule == SPECV_RULE_BLOCK;
}

/* The text is the target's. */
static int has_target_law(const chain *c) { return is_judged(c) || c->rule == SPECV_RULE_COUPLED; }

/* Drafts are drawn by numbers of their own. */
static int draws_drafts(const chain *c) {
    return c->max_draft > 0 && (c->drafts == FROM_Q || c->drafts == HIDDEN_Q) && !shares_noise(c);
}

/* Draws of a token, by what they were to be: the first possible one, where an inverse CDF begins;
   the likeliest; the others. */
typedef struct draws {
    evidence of[3 * RATE_BINS], likeliest;
} draws;

/* What a step's random numbers did, to be held against the step before. */
enum { FIRST_TOKEN, NEXT_TOKEN, FIRST_DRAFT, ONE_TEST, SAME_TOKEN, NUM_SERIAL };

/* Counts over many texts. */
typedef struct tally {
    double texts, first[MAX_CELLS];          /* by their first tokens */
    double observed[TEXT][MAX_N + 1][MAX_V]; /* first token of a step, by the */
    double expected[TEXT][MAX_N + 1][MAX_V]; /* length accepted before it */
    evidence tau;                            /* given the drafts */
    evidence tests[RATE_BINS];               /* of drafts; coupled: first draft accepted */
    evidence serial[NUM_SERIAL];             /* products of a step's with the last one's */
    draws drafts, next;                      /* coupled: next are all tokens */
    double tau_sum, steps_counted, greedy_rows, other_rows;
    double outside; /* drafts that the target cannot write */
} tally;

/* The texts of one batch. */
typedef struct texts {
    uint64_t *node;
    int32_t *len, *token; /* token[row * TEXT + i] */
    int32_t *before;      /* accepted in the last step */
    double *serial;       /* of the last step: serial[row * NUM_SERIAL + i] */
    uint64_t *at;
} texts;

static texts open_texts(int rows) {
    texts x;
    size_t n = (size_t)rows;
    x.node = (uint64_t *)more(n * 8), x.at = (uint64_t *)more(n * 8);
    x.len = (int32_t *)more(n * 4), x.token = (int32_t *)more(n * 4 * TEXT);
    x.before = (int32_t *)more(n * 4);
    x.serial = (double *)more(n * NUM_SERIAL * sizeof(double));
    return x;
}

static void close_texts(texts *x) {
    free(x->node), free(x->at), free(x->len), free(x->token), free(x->before), free(x->serial);
}

/* P(two models that share their noise choose the same token). Daliri et al. 2024. */
static double match_rate(const double *p, const double *q, int vocab) {
    double rate = 0;
    for (int j = 0; j < vocab; ++j) {
        double sum = 0;
        if (!(p[j] > 0 && q[j] > 0)) continue;
        for (int i = 0; i < vocab; ++i)
            sum += p[i] / p[j] > q[i] / q[j] ? p[i] / p[j] : q[i] / q[j];
        rate += 1 / sum;
    }
    return rate;
}

static const int first_position = 41;

static void draw_drafts(const chain *c, kit *k, texts *x) {
    const int n = c->max_draft;
    const int given = k->with_sample;
    for (int b = 0; b < k->rows; ++b) x->at[b] = x->node[b];
    for (int j = 0; j < n; ++j) {
        for (int b = 0; b < k->rows; ++b) put_sampled(k, b, model_of(c, b), DRAFT, x->at[b]);
        if (c->drafts == BEST || c->drafts == ANY) {
            for (int b = 0; b < k->rows; ++b)
                ints(&k->token)[b] =
                    c->drafts == ANY ? (int)t_below(c->m->vocab)
                                     : argmax(probs(model_of(c, b), DRAFT, x->at[b]), c->m->vocab);
        } else {
            const int absolute = c->keys == ABSOLUTE;
            k->with_sample = 0;
            for (int b = 0; b < k->rows && absolute; ++b) ints(&k->position)[b] += j;
            run_sample(k, c->method, absolute ? 0 : j, c->stream, 1);
            for (int b = 0; b < k->rows && absolute; ++b) ints(&k->position)[b] -= j;
            k->with_sample = given;
        }
        for (int b = 0; b < k->rows; ++b) {
            const int d = ints(&k->token)[b];
            if (d < 0 || d >= c->m->vocab) t_die(__FILE__, __LINE__, "draft", "no token");
            ints(&k->draft_tokens)[b * n + j] = d;
            floats(&k->confidence)[b * n + j] =
                c->keeps == BY_Q ? (float)probs(c->m, DRAFT, x->at[b])[d] : floats(&k->max_prob)[b];
            x->at[b] = child(c->m, x->at[b], d);
        }
    }
}

static void keep_drafts(const kit *k) {
    specv_draft_budget_desc d = SPECV_ZERO;
    d.rows.batch = k->rows, d.rows.max_draft = k->max_draft;
    d.confidence = floats(&k->confidence), d.survival = floats(&k->survival);
    d.new_draft_len = ints(&k->draft_len);
    d.max_budget = k->rows * k->max_draft / 2;
    CHECK_EQ(specv_ref_draft_budget(&d), SPECV_OK, -1);
}

/* Probabilities of the kit are floats, its random numbers have 24 bits at least: what it does with
   numbers that add up to `scale` may be off by so much of that. */
static double rounding(double scale) { return scale > 0 ? 4.8e-7 / scale : 1; }

/* total: of the weights that it was drawn from. */
static void add_draw(draws *e, const double *law, double total, int vocab, int token) {
    const double slack = rounding(total);
    const int best = argmax(law, vocab);
    int first = 0;
    while (!(law[first] > 0)) ++first;
    for (int x = 0; x < vocab; ++x) {
        const double rate = law[x];
        evidence *const of = e->of + rate_bin(rate);
        if (x == first) add_trial(of, rate, token == x, slack);
        if (x == best) add_trial(of + RATE_BINS, rate, token == x, slack);
        if (x == best) add_trial(&e->likeliest, rate, token == x, slack);
        if (x != first && x != best && (rate > 0 || token == x))
            add_trial(of + 2 * RATE_BINS, rate, token == x, slack);
    }
}

/* Of two steps, the products of what must be independent, and has mean 0: whether the test of a
   draft passed, where in its law's CDF a token lies. A random number that is used twice shows here.
   `last` becomes this step's. */
static void add_product(evidence *e, double *last, int step, double now, double variance,
                        double slack) {
    if (step > 0) add_value(e, now * *last, 0, variance * *last * *last, slack);
    *last = now;
}

static void add_serial_token(evidence *e, double *last, int step, const double *law, double total,
                             int vocab, int token) {
    double before = 0, at = 0, mean = 0, square = 0;
    for (int x = 0; x < vocab; ++x) {
        const double middle = before + law[x] / 2;
        mean += law[x] * middle, square += law[x] * middle * middle;
        if (x == token) at = middle;
        before += law[x];
    }
    add_product(e, last, step, at - mean, square - mean * mean, rounding(total));
}

/* Each rule has its case below: what it draws a token from, and when it accepts. */
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wswitch"
#endif

/* P(token behind tau accepted drafts | drafts, tau); rule COUPLED: given the text alone. Returns
   what the weights added up to. */
static double law_of_next(const chain *c, const judged *g, int tau, double *law) {
    const double *p = probs(g->m, TARGET, g->node[tau]);
    switch ((specv_rule)c->rule) {
    case SPECV_RULE_TOKEN:
    case SPECV_RULE_BLOCK: return next_law(g, tau, law);
    case SPECV_RULE_COUPLED:
    case SPECV_RULE_SCORE: memcpy(law, p, sizeof *law * (size_t)c->m->vocab); return 1;
    case SPECV_RULE_GREEDY:
        for (int x = 0; x < c->m->vocab; ++x) law[x] = x == argmax(p, c->m->vocab);
        return 1;
    case SPECV_RULE_TYPICAL: /* their texts have other laws: lossy.cu */
    case SPECV_RULE_TYPICAL_DRAW:
    case SPECV_RULE_THRESHOLD:
    case SPECV_RULE_RELAXED:
    case SPECV_RULE_BOUNDED: break;
    }
    t_die(__FILE__, __LINE__, "law_of_next", "a rule without a law");
    return 0;
}

/* Test i, with its rate's rounding: a ratio of small numbers has more of it. */
static double slack_of(const judged *g, int i) {
    if (!g->r->block) return rounding(1 / (g->rate[i] + .125));
    return rounding(g->left[i]);
}

static double add_test(tally *sum, const judged *g, int i, int passed) {
    add_trial(&sum->tests[rate_bin(g->rate[i])], g->rate[i], passed, slack_of(g, i));
    return slack_of(g, i);
}

static void count_tests(const chain *c, const judged *g, int tau, const int *out, tally *sum) {
    double law[MAX_V], mean = 0, square = 0, slack = 0, rate;
    switch ((specv_rule)c->rule) {
    case SPECV_RULE_TOKEN: /* forwards, up to the first that fails */
        for (int i = 0; i < g->n && i <= tau; ++i) slack += add_test(sum, g, i, i < tau);
        break;
    case SPECV_RULE_BLOCK: /* backwards, up to the first that passes */
        for (int i = g->n - 1; i >= 0 && i + 1 >= tau; --i)
            slack += add_test(sum, g, i, i + 1 == tau);
        break;
    case SPECV_RULE_COUPLED:
        rate = match_rate(probs(g->m, TARGET, g->node[0]), probs(g->m, DRAFT, g->node[0]),
                          g->m->vocab);
        if (g->n > 0 && shares_noise(c) && c->keeps != BY_Q)
            add_trial(&sum->tests[rate_bin(rate)], rate, tau > 0, rounding(1));
        for (int i = 0; i <= tau; ++i) {
            law_of_next(c, g, i, law);
            if (i < g->n && !shares_noise(c))
                add_trial(&sum->tests[rate_bin(law[g->d[i]])], law[g->d[i]], i < tau, rounding(1));
            if (i < tau) add_draw(&sum->next, law, 1, c->m->vocab, out[i]);
        }
        return;
    case SPECV_RULE_GREEDY:
        for (int i = 0; i < tau; ++i) {
            law_of_next(c, g, i, law);
            CHECK_EQ(g->d[i], argmax(law, c->m->vocab), i);
        }
        return;
    case SPECV_RULE_SCORE: CHECK_EQ(tau, g->n, -1); return;
    case SPECV_RULE_TYPICAL:
    case SPECV_RULE_TYPICAL_DRAW:
    case SPECV_RULE_THRESHOLD:
    case SPECV_RULE_RELAXED:
    case SPECV_RULE_BOUNDED: t_die(__FILE__, __LINE__, "count_tests", "a rule without a law");
    }
    for (int i = 0; i <= g->n; ++i) mean += g->law[i] * i, square += g->law[i] * i * i;
    mean /= c->max_draft, square /= c->max_draft * c->max_draft;
    if (g->n > 0)
        add_value(&sum->tau, (double)tau / c->max_draft, mean, square - mean * mean, slack);
}

#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif

static void add_serial(const chain *c, const judged *g, int tau, const int *out, const double *law,
                       double total, int step, double *last, evidence *e) {
    const int vocab = c->m->vocab, row = c->rule == SPECV_RULE_BLOCK ? g->n - 1 : 0;
    if (has_target_law(c)) {
        const double *p = probs(g->m, TARGET, g->node[0]);
        add_serial_token(&e[FIRST_TOKEN], &last[FIRST_TOKEN], step, p, 1, vocab, out[0]);
        const int same = (int)last[SAME_TOKEN];
        if (step > 0) add_trial(&e[SAME_TOKEN], p[same], out[0] == same, rounding(1));
        last[SAME_TOKEN] = out[0];
    }
    if (c->rule == SPECV_RULE_COUPLED) return; /* all its numbers are those of its tokens */
    add_serial_token(&e[NEXT_TOKEN], &last[NEXT_TOKEN], step, law, total, vocab, out[tau]);
    if (g->n == 0) {
        last[FIRST_DRAFT] = last[ONE_TEST] = 0;
        return;
    }
    if (draws_drafts(c))
        add_serial_token(&e[FIRST_DRAFT], &last[FIRST_DRAFT], step, probs(g->m, DRAFT, g->node[0]),
                         1, vocab, g->d[0]);
    if (is_judged(c))
        add_product(&e[ONE_TEST], &last[ONE_TEST], step, (tau > row) - g->rate[row],
                    g->rate[row] * (1 - g->rate[row]), slack_of(g, row));
}

/* What the step should do, on average, for these drafts. */
static void count_step(const chain *c, const kit *k, const texts *x, int step, int b, tally *sum) {
    const rules r = {c->rule == SPECV_RULE_BLOCK, c->drafts != FROM_Q, SOUND};
    const int n = ints(&k->draft_len)[b], vocab = c->m->vocab, tau = ints(&k->accepted)[b];
    const int *drafts = ints(&k->draft_tokens) + b * c->max_draft;
    int *out = ints(&k->out) + b * (c->max_draft + 1);
    const judged g = judge(model_of(c, b), &r, x->node[b], drafts, n);
    const double *p = probs(g.m, TARGET, x->node[b]);
    double law[MAX_V];
    if (tau < 0 || tau > n || out[0] < 0 || out[0] >= vocab || out[tau] < 0 || out[tau] >= vocab)
        t_die(__FILE__, __LINE__, "out", "no token");
    const double total = law_of_next(c, &g, tau, law);
    if (c->keys == MOVED_MASS && t_chance(1) && out[tau] == argmax(law, vocab)) {
        double others[MAX_V];
        memcpy(others, law, sizeof others);
        others[out[tau]] = 0;
        if (others[argmax(others, vocab)] > 0) out[tau] = argmax(others, vocab);
    }
    if (c->keys == RAW_P && tau < n) {
        const rules raw = {r.block, r.one_hot, RAW_RESIDUAL};
        const judged wrong = judge(g.m, &raw, x->node[b], drafts, n);
        double wrong_law[MAX_V];
        next_law(&wrong, tau, wrong_law);
        out[tau] = pick_from(wrong_law, vocab);
    }
    for (int i = 0; i < n; ++i) sum->outside += !(probs(g.m, TARGET, g.node[i])[drafts[i]] > 0);
    if (step > 0) {
        sum->observed[step][x->before[b]][out[0]] += 1;
        for (int y = 0; y < vocab; ++y) sum->expected[step][x->before[b]][y] += p[y];
    }
    count_tests(c, &g, tau, out, sum);
    add_draw(&sum->next, law, total, vocab, out[tau]);
    add_serial(c, &g, tau, out, law, total, step, x->serial + b * NUM_SERIAL, sum->serial);
    if (draws_drafts(c))
        for (int i = 0; i < n; ++i)
            add_draw(&sum->drafts, probs(g.m, DRAFT, g.node[i]), 1, vocab, drafts[i]);
    sum->tau_sum += tau;
    sum->steps_counted += 1;
}

/* The number that the kit would use in this row, as a caller's, of so many bits. */
static float number_of(const kit *k, int b, int row, uint32_t tag, int word, int bits) {
    const specv_random r =
        specv_philox(words(&k->seed)[b], (uint32_t)ints(&k->position)[b], (uint32_t)row, 0, tag);
    return specv_uniform24(r.x[word] >> (32 - bits) << (32 - bits));
}

static void run_step(const chain *c, kit *k, texts *x, int step, tally *sum) {
    const int n = c->max_draft, bits = bits_of(c->keys);
    for (int b = 0; b < k->rows; ++b) {
        if (!(c->keys == STUCK && step % 4 == 3))
            ints(&k->position)[b] = first_position + (c->keys == SAME_POSITION ? 0 : x->len[b]);
        ints(&k->draft_len)[b] =
            c->ragged ? (int)(t_mix((uint64_t)(b * 64 + step)) % (uint64_t)(n + 1)) : n;
    }
    draw_drafts(c, k, x);
    if (c->keeps) keep_drafts(k);
    for (int b = 0; b < k->rows; ++b) {
        put_row(k, b, model_of(c, b), x->node[b]);
        for (int j = 0; j < n && c->keys == ABSOLUTE; ++j) /* what a key without a row would be */
            floats(&k->accept_uniform)[b * n + j] = specv_uniform24(
                specv_philox(words(&k->seed)[b], (uint32_t)ints(&k->position)[b] + (uint32_t)j, 0,
                             0, SPECV_TAG_ACCEPT)
                    .x[0]);
        for (int j = 0; j < n && c->keys == SHARED_ACCEPT; ++j)
            floats(&k->accept_uniform)[b * n + j] = specv_uniform24((uint32_t)t_random());
        for (int j = 0; j < n && bits; ++j)
            floats(&k->accept_uniform)[b * n + j] = number_of(k, b, j, SPECV_TAG_ACCEPT, 0, bits);
        floats(&k->sample_uniform)[b] = bits ? number_of(k, b, 0, SPECV_TAG_SAMPLE, 1, bits) : 0;
    }
    for (int b = 0; b < k->rows && c->keys == WRONG_Q; ++b) floats(&k->draft_temperature)[b] *= 2;
    run_verify(k, c->rule);
    for (int b = 0; b < k->rows && c->keys == WRONG_Q; ++b) floats(&k->draft_temperature)[b] /= 2;
    if (c->keys == SHARED_ACCEPT || c->keys == DRAFTS_KEY) { /* now it is known which one failed */
        for (int b = 0; b < k->rows; ++b) {
            const int tau = ints(&k->accepted)[b];
            if (tau == ints(&k->draft_len)[b])
                floats(&k->sample_uniform)[b] = specv_uniform24((uint32_t)t_random());
            else if (c->keys == SHARED_ACCEPT)
                floats(&k->sample_uniform)[b] = floats(&k->accept_uniform)[b * n + tau];
            else
                floats(&k->sample_uniform)[b] =
                    number_of(k, b, tau, SPECV_TAG_DRAW + SPECV_TAG_OF_DRAFT, 1, 24);
        }
        run_verify(k, c->rule);
    }
    for (int b = 0; b < k->rows; ++b) {
        const int tau = ints(&k->accepted)[b], *out = ints(&k->out) + b * (n + 1);
        if (!(c->greedy && b % 4 == 3)) count_step(c, k, x, step, b, sum);
        for (int i = 0; i <= tau; ++i) {
            if (out[i] < 0 || out[i] >= c->m->vocab) t_die(__FILE__, __LINE__, "out", "no token");
            if (x->len[b] < TEXT) x->token[b * TEXT + x->len[b]] = out[i];
            x->len[b] += 1;
            x->node[b] = child(c->m, x->node[b], out[i]);
        }
        CHECK_EQ(ints(&k->status)[b] & ~SPECV_ROW_ZERO_RESIDUAL, 0, b); /* by rounding */
        x->before[b] = tau;
    }
}

static void misuse_filters(kit *k, const model *m, misuse keys) {
    k->filters[TARGET].lost = keys == NO_FILTERS;
    k->filters[DRAFT].lost = keys == NO_DRAFT_FILTERS;
    k->filters[TARGET].order = (m->kept[TARGET].order + (keys == OTHER_ORDER)) % 3;
    k->late_masks = keys == LATE_MASKS;
}

/* The batch's texts, from scratch. */
static texts run_texts(const chain *c, kit *k, uint64_t first_seed, tally *sum) {
    texts x = open_texts(k->rows);
    k->with_q = c->drafts == FROM_Q && c->max_draft > 0;
    k->with_len = c->ragged || c->keeps;
    k->stream = c->verify_stream;
    k->with_accept =
        c->max_draft > 0 && (c->keys == ABSOLUTE || c->keys == SHARED_ACCEPT || bits_of(c->keys));
    k->with_sample = c->keys == SHARED_ACCEPT || c->keys == DRAFTS_KEY || bits_of(c->keys);
    for (int b = 0; b < k->rows; ++b) {
        words(&k->seed)[b] = first_seed + (uint64_t)(c->keys == FEW_SEEDS ? b % 16 : b);
        floats(&k->temperature)[b] = c->greedy && b % 4 == 3 ? 0 : c->m->temperature[TARGET];
        floats(&k->draft_temperature)[b] = c->m->temperature[DRAFT];
        put_filters(k, b, model_of(c, b)->kept);
    }
    misuse_filters(k, c->m, c->keys);
    for (int step = 0; step < c->steps; ++step) run_step(c, k, &x, step, sum);
    for (int b = 0; b < k->rows; ++b) {
        int cell = 0;
        if (c->greedy && b % 4 == 3) { /* a law of its own: there is only one text */
            uint64_t node = 0;
            for (int i = 0; i < x.len[b] && i < TEXT; ++i) {
                CHECK_EQ(x.token[b * TEXT + i], argmax(probs(c->m, TARGET, node), c->m->vocab), b);
                node = child(c->m, node, x.token[b * TEXT + i]);
            }
            sum->greedy_rows += 1;
            continue;
        }
        if (are_other(c, b)) {
            sum->other_rows += 1;
            continue;
        }
        for (int i = 0; i < c->length; ++i) cell = cell * c->m->vocab + x.token[b * TEXT + i];
        sum->first[cell] += 1;
        sum->texts += 1;
    }
    return x;
}

/* The texts' first tokens against the product of the target's probabilities. */
static chi2 chi2_of_texts(const chain *c, const tally *sum) {
    static double expected[MAX_CELLS];
    chi2 result = SPECV_ZERO;
    int cells = 1;
    for (int i = 0; i < c->length; ++i) cells *= c->m->vocab;
    for (int cell = 0; cell < cells; ++cell) {
        uint64_t node = 0;
        int scale = cells / c->m->vocab;
        expected[cell] = sum->texts;
        for (int i = 0; i < c->length; ++i, scale = scale / c->m->vocab) {
            int x = cell / scale % c->m->vocab;
            expected[cell] *= probs(c->m, TARGET, node)[x];
            node = child(c->m, node, x);
        }
    }
    add_cells(&result, sum->first, expected, cells);
    return result;
}

/* The first token of each later step, by what the step before accepted: given the text, it must
   not matter. */
static chi2 chi2_of_steps(const chain *c, const tally *sum) {
    chi2 result = SPECV_ZERO;
    for (int step = 1; step < c->steps; ++step)
        for (int tau = 0; tau <= c->max_draft; ++tau)
            add_cells(&result, sum->observed[step][tau], sum->expected[step][tau], c->m->vocab);
    return result;
}

/* All that a chain's counts say. */
enum { MOST_STATISTICS = 8 };

static int statistics_of(const chain *c, const tally *sum, statistic *s) {
    int count = 0;
    if (has_target_law(c)) {
        const chi2 whole = chi2_of_texts(c, sum), steps = chi2_of_steps(c, sum);
        s[count++] = of_cells("texts", &whole);
        if (c->steps > 1) s[count++] = of_cells("steps", &steps);
        if (c->max_draft > 0 && !(shares_noise(c) && c->keeps == BY_Q))
            s[count++] = of_evidence("tests", sum->tests, T_COUNT(sum->tests));
    }
    s[count++] = of_evidence("draws", sum->next.of, T_COUNT(sum->next.of));
    s[count++] = of_evidence("likeliest", &sum->next.likeliest, 1);
    if (draws_drafts(c))
        s[count++] = of_evidence("drafts", sum->drafts.of, T_COUNT(sum->drafts.of));
    if (c->steps > 1) s[count++] = of_evidence("serial", sum->serial, T_COUNT(sum->serial));
    if (is_judged(c)) s[count++] = of_evidence("tau", &sum->tau, 1);
    return count;
}

static void print_statistics(const statistic *s, int count) {
    for (int i = 0; i < count; ++i) {
        if (!strcmp(s[i].name, "texts") || !strcmp(s[i].name, "steps"))
            printf(", %s %.1f of %.0f, p %.2g", s[i].name, s[i].value, s[i].df, s[i].p);
        else
            printf(", %s p %.2g", s[i].name, s[i].p);
    }
    printf("\n");
}

static double least_p(const statistic *s, int count) {
    double p = 1;
    for (int i = 0; i < count; ++i)
        if (s[i].df > 0 && s[i].p < p) p = s[i].p;
    return p;
}

static const char *rule_name(int rule) {
    static const char *const names[] = {"token", "block", "coupled", "greedy", "score"};
    return names[rule];
}

static void note_chain(const chain *c) {
    static const char *const streams[] = {"target", "draft", "coupled"};
    static const char *const budgets[] = {"", ", half by max_prob", ", half by q"};
    t_note(" %s, %s, V %d, %d drafts, %d steps, dtype %d%s%s%s", rule_name(c->rule),
           drafter_names[c->drafts], c->m->vocab, c->max_draft, c->steps, c->m->dtype,
           c->ragged ? ", ragged" : "", c->greedy ? ", some greedy" : "", budgets[c->keeps]);
    if (are_on(&c->m->kept[TARGET]) || are_on(&c->m->kept[DRAFT]))
        t_note(", filtered%s", c->others ? " but for some" : "");
    if (draws_drafts(c) || shares_noise(c))
        t_note(", %s of stream %s", c->method == SPECV_SAMPLE_GUMBEL ? "Gumbel" : "CDF",
               streams[c->stream]);
    if (c->verify_stream) t_note(", verified with stream %s", streams[c->verify_stream]);
}

/* num_texts texts, or, on the device, as many as `seconds` suffice for: nobody knows here whether a
   GPU runs the kernels or an interpreter. */
static void run_chain(const chain *c, int64_t num_texts, int rows, double seconds, tally *sum) {
    const uint64_t first_seed = t_random();
    const int device = seconds > 0;
    const clock_t start = clock();
    kit k = open_kit(rows, c->m->vocab, c->max_draft, c->m->dtype, device);
    open_filters(&k, c->m->kept);
    memset(sum, 0, sizeof *sum);
    for (int64_t done = 0; done < num_texts; done += rows) {
        texts x = run_texts(c, &k, first_seed + (uint64_t)done, sum);
        close_texts(&x);
        if (device && (double)(clock() - start) / CLOCKS_PER_SEC > seconds) break;
    }
}

static double all_texts, all_others, all_outside;

static void check_chain(const chain *c, int64_t num_texts, int rows, double seconds) {
    static tally sum;
    statistic s[MOST_STATISTICS];
    run_chain(c, num_texts, rows, seconds, &sum);
    const int count = statistics_of(c, &sum, s);
    for (int i = 0; i < count; ++i) judge_statistic(s[i], t.quick || seconds > 0);
    printf("%s: %.0f texts, tau %.4f", t.what, sum.texts, sum.tau_sum / sum.steps_counted);
    print_statistics(s, count);
    all_texts += sum.texts, all_others += sum.other_rows, all_outside += sum.outside;
}

static void check_host_chain(const chain *c, int64_t num_texts) {
    note_chain(c);
    check_chain(c, num_texts, 1024, 0);
}

#if T_DEVICE
/* As many texts as fit into LAW_SECONDS, LAW_STEPS steps long, if these are set: a million texts
   are seconds of a GPU and an hour of an interpreter. */
static void check_device_chain(chain *c) {
    const char *seconds = getenv("LAW_SECONDS"), *steps = getenv("LAW_STEPS");
    if (steps) c->steps = atoi(steps);
    if (c->length > c->steps) c->length = c->steps;
    note_chain(c);
    if (seconds)
        check_chain(c, (int64_t)1 << 40, 512, atof(seconds));
    else
        check_chain(c, 1 << 17, t.quick ? 8 : 64, t.quick ? .3 : 2);
}
#endif

/* ------------------------------------------------------------------------------------- chains */

static const int chain_kinds[][8] = {
    /* rule, drafter, V, drafts, dtype, zeros, ragged, model */
    {SPECV_RULE_TOKEN, FROM_Q, 4, 3, SPECV_LOGITS_F32, 0, 0, 300},
    {SPECV_RULE_BLOCK, FROM_Q, 3, 3, SPECV_LOGITS_F32, 0, 0, 201},
    {SPECV_RULE_BLOCK, FROM_Q, 4, 4, SPECV_PROBS_F32, 1, 1, 2},
    {SPECV_RULE_TOKEN, HIDDEN_Q, 4, 2, SPECV_LOGITS_F16, 1, 1, 203},
    {SPECV_RULE_BLOCK, HIDDEN_Q, 4, 3, SPECV_LOGITS_BF16, 0, 0, 4},
    {SPECV_RULE_TOKEN, FROM_Q, 5, 4, SPECV_PROBS_F32, 0, 0, 805},
    {SPECV_RULE_BLOCK, FROM_Q, 5, 2, SPECV_LOGITS_F16, 1, 0, 106},
    {SPECV_RULE_TOKEN, BEST, 4, 4, SPECV_LOGITS_F32, 0, 0, 907},
    {SPECV_RULE_BLOCK, BEST, 5, 3, SPECV_PROBS_F32, 1, 1, 308},
    {SPECV_RULE_COUPLED, COUPLED_Q, 3, 1, SPECV_LOGITS_F32, 0, 0, 209},
    {SPECV_RULE_COUPLED, COUPLED_Q, 4, 2, SPECV_LOGITS_F16, 0, 0, 310},
    {SPECV_RULE_COUPLED, COUPLED_Q, 5, 3, SPECV_LOGITS_BF16, 1, 0, 11},
    {SPECV_RULE_COUPLED, COUPLED_Q, 4, 4, SPECV_PROBS_F32, 1, 0, 12},
};

/* Chain i of the list. Its model is always the same, one in which test_mutants sees enough. */
static chain describe_chain(model *m, int i, int greedy) {
    const int *kind = chain_kinds[i];
    const uint64_t random = t.random;
    t.random = (uint64_t)kind[7];
    draw_model(m, kind[2], kind[4], kind[5], i % 3 ? .6 : 0);
    add_tails(m);
    t.random = random;
    chain c = make_chain(m, kind[0], (drafter)kind[1], kind[3], kind[2] == 5 ? 3 : 4);
    c.ragged = kind[6], c.greedy = greedy;
    return c;
}

static void test_chains(void) {
    static model m;
    all_texts = 0;
    for (int i = 0; i < T_COUNT(chain_kinds); ++i) {
        t_case("chain:");
        chain c = describe_chain(&m, i, 0);
        check_host_chain(&c, t.quick ? 1 << 11 : 1 << 17);
    }
    t_close_case();
    printf("chains: %.0f texts in all\n", all_texts);
}

/* Rules whose text is not the target's: the largest scores, or all drafts. */
static void test_other_rules(void) {
    static model m;
    for (int i = 0; i < 8; ++i) {
        t_case("other rule:");
        draw_model(&m, 3 + i % 3, i % 4, i / 4, i % 2 ? .6 : 0);
        add_tails(&m);
        chain c = make_chain(&m, i % 2 ? SPECV_RULE_SCORE : SPECV_RULE_GREEDY,
                             i < 4 ? HIDDEN_Q : BEST, 1 + i % 4, 1);
        check_host_chain(&c, t.quick ? 1 << 10 : 1 << 14);
    }
}

/* Greedy requests beside sampled ones. */
static void test_mixed(void) {
    static model m;
    for (int i = 0; i < T_COUNT(chain_kinds); i += 2) {
        t_case("mixed:");
        chain c = describe_chain(&m, i, 1);
        check_host_chain(&c, t.quick ? 1 << 10 : 1 << 14);
    }
}

static void test_device_chains(void) {
#if T_DEVICE
    static model m;
    all_texts = 0;
    for (int i = 0; i < T_COUNT(chain_kinds); ++i) {
        if (t.quick && i != 1 && i != 2 && i != 3 && i != 10) continue;
        t_case("device chain:");
        chain c = describe_chain(&m, i, i == 2);
        check_device_chain(&c);
    }
    t_close_case();
    printf("device chains: %.0f texts in all\n", all_texts);
#else
    t_skip("needs nvcc");
#endif
}

/* ---------------------------------------------------------------------------- published figures */

static void test_published(void) {
    static model m;
    static const struct {
        int vocab, n, block;
        const double *p, *q;
        double mean, digits;
    } cases[] = {{2, 2, 0, toy_p, toy_q, 10. / 9, 1e-12},
                 {2, 2, 1, toy_p, toy_q, 11. / 9, 1e-12},
                 {3, 4, 0, textbook_p, textbook_q, .6 + .36 + .216 + .1296, 1e-12},
                 {3, 4, 1, textbook_p, textbook_q, 1.503, 2e-3}}; /* a mean of samples */
    for (int i = 0; i < T_COUNT(cases); ++i) {
        static tally sum;
        const int64_t num_texts = t.quick ? 1 << 12 : 1 << 17;
        rules r = {cases[i].block, 0, SOUND};
        chain c;
        statistic s[MOST_STATISTICS];
        double exact, mean;
        t_case("published mean: case %d, %s", i, r.block ? "block" : "token");
        fixed_model(&m, cases[i].vocab, SPECV_PROBS_F32, cases[i].p, cases[i].q);
        CHECK(law_error(&m, &r, cases[i].n, &exact) < 1e-12);
        CHECK(fabs(exact - cases[i].mean) < cases[i].digits);
        c = make_chain(&m, r.block ? SPECV_RULE_BLOCK : SPECV_RULE_TOKEN, FROM_Q, cases[i].n, 1);
        c.steps = 1;
        run_chain(&c, num_texts, 1024, 0, &sum);
        mean = sum.tau_sum / sum.steps_counted;
        /* the variance of tau, drafts included, is at most that of two points */
        evidence of_mean = SPECV_ZERO;
        of_mean.trials = sum.steps_counted, of_mean.variance = sum.steps_counted / 4;
        of_mean.seen = sum.tau_sum / c.max_draft;
        of_mean.expected = exact * sum.steps_counted / c.max_draft;
        judge_statistic(of_evidence("mean", &of_mean, 1), 0);
        const int count = statistics_of(&c, &sum, s);
        for (int at = 0; at < count; ++at) judge_statistic(s[at], t.quick);
        printf("%s: E[tau] %.6f exactly, %.6f over %.0f steps", t.what, exact, mean,
               sum.steps_counted);
        print_statistics(s, count);
    }
}

/* ------------------------------------------------------------------------------------- coupled */

/* Plain decoding: one token at a time, each from the target alone. */
static void plain_texts(kit *k, const model *m, uint64_t first_seed, int length, int as_steps,
                        texts *x) {
    for (int b = 0; b < k->rows; ++b) {
        words(&k->seed)[b] = first_seed + (uint64_t)b;
        x->node[b] = 0;
    }
    for (int i = 0; i < length; ++i) {
        for (int b = 0; b < k->rows; ++b) {
            put_sampled(k, b, m, TARGET, x->node[b]);
            ints(&k->position)[b] = first_position + (as_steps ? i : 0);
        }
        run_sample(k, SPECV_SAMPLE_GUMBEL, as_steps ? 0 : i, SPECV_STREAM_COUPLED, 0);
        for (int b = 0; b < k->rows; ++b) {
            x->token[b * TEXT + i] = ints(&k->token)[b];
            x->node[b] = child(m, x->node[b], ints(&k->token)[b]);
        }
    }
}

/* Whoever drafts, and however much, the text is the one that plain decoding writes. */
static void check_same_text(const model *m, int n, drafter drafts, int rows, int device) {
    static tally sum;
    const uint64_t first_seed = 1000;
    chain c = make_chain(m, SPECV_RULE_COUPLED, drafts, n, 3);
    c.ragged = n > 2;
    note_chain(&c);
    memset(&sum, 0, sizeof sum);
    kit k = open_kit(rows, m->vocab, n, m->dtype, device);
    open_filters(&k, m->kept);
    texts x = run_texts(&c, &k, first_seed, &sum), plain = open_texts(rows),
          rowed = open_texts(rows);
    k.device = 0;
    plain_texts(&k, m, first_seed, TEXT, 1, &plain);
    plain_texts(&k, m, first_seed, TEXT, 0, &rowed);
    for (int b = 0; b < rows; ++b)
        for (int i = 0; i < TEXT; ++i) {
            if (i < x.len[b]) CHECK_EQ(x.token[b * TEXT + i], plain.token[b * TEXT + i], b);
            CHECK_EQ(rowed.token[b * TEXT + i], plain.token[b * TEXT + i], b);
        }
    close_texts(&x), close_texts(&plain), close_texts(&rowed);
}

static void test_coupled(void) {
    static model m;
    for (int n = 0; n <= MAX_N; ++n)
        for (int who = HIDDEN_Q; who < NUM_DRAFTERS; ++who) {
            const int vocab = 3 + (n + who) % 3, dtype = (n + who) % 4;
            t_case("coupled text:");
            t.random = 99; /* the same models for every drafter */
            draw_model(&m, vocab, dtype, n % 2, .6);
            const int device = T_DEVICE && (!t.quick || (n == 3 && who == COUPLED_Q));
            check_same_text(&m, n, (drafter)who, device ? 8 : 64, device);
        }
}

/* ------------------------------------------------------------------------------------ samplers */

/* A8 alone: one distribution, many seeds. Large vocabularies, so that the way from tile to tile
   is counted, too. */
static void check_sampler(int vocab, int dtype, int method, int stream, int64_t num_draws, int rows,
                          int device, const filters *f) {
    enum { BINS = 64 };
    double expected[BINS] = {0}, observed[BINS] = {0};
    double *law = (double *)more(sizeof *law * (size_t)vocab);
    const float temperature = dtype == SPECV_PROBS_F32 ? 1.f : .8f;
    const int mask_words = (vocab + 31) / 32;
    const int most = num_draws < 64 * BINS ? 1 + (int)num_draws / 64 : BINS; /* some in each */
    const int bins = vocab < most ? vocab : most;
    const filters both[] = {*f, no_filters};
    uint32_t *allowed = (uint32_t *)more(4 * (size_t)mask_words);
    chi2 c = SPECV_ZERO;
    kit k = open_kit(rows, vocab, 0, dtype, device);
    open_filters(&k, both);
    do { /* until no limit is close */
        for (int x = 0; x < vocab; ++x) {
            float score = fit(dtype, 3 * (t_uniform() + t_uniform() - 1));
            if (t_chance(10) && x > 0) score = -INFINITY;
            if (dtype == SPECV_PROBS_F32) score = (float)(exp((double)score) / vocab / 2);
            law[x] =
                dtype == SPECV_PROBS_F32 ? (double)score : exp((double)score / (double)temperature);
            for (int b = 0; b < rows; ++b)
                put_score(&k.scores, dtype, (int64_t)b * vocab + x, score);
        }
        for (int i = 0; i < mask_words && f->masked; ++i)
            allowed[i] = (uint32_t)(t_random() | t_random()) | !i;
    } while (keep_law(f, allowed, vocab, law) < 1e-6);
    for (int b = 0; b < rows; ++b) {
        put_filters(&k, b, both);
        for (int i = 0; i < mask_words && f->masked; ++i)
            put_word(&k.filters[TARGET].sampled_mask, (int64_t)b * mask_words + i,
                     (int32_t)allowed[i]);
    }
    for (int64_t done = 0; done < num_draws; done += rows) {
        for (int b = 0; b < rows; ++b) {
            words(&k.seed)[b] = 5 + (uint64_t)b; /* the same requests, further on */
            ints(&k.position)[b] = (int32_t)(done / rows);
            floats(&k.temperature)[b] = temperature;
        }
        run_sample(&k, method, 0, stream, 0);
        for (int b = 0; b < rows; ++b) {
            const int x = ints(&k.token)[b];
            if (CHECK(x >= 0 && x < vocab && law[x] > 0)) observed[x * (int64_t)bins / vocab] += 1;
        }
    }
    for (int x = 0; x < vocab; ++x)
        expected[x * (int64_t)bins / vocab] +=
            law[x] * (double)((num_draws + rows - 1) / rows * rows);
    add_cells(&c, observed, expected, bins);
    const statistic s = of_cells("tokens", &c);
    judge_statistic(s, t.quick || device);
    printf("%s: tokens %.1f of %.0f, p %.2g\n", t.what, s.value, s.df, s.p);
    free(law), free(allowed);
}

static void test_samplers(void) {
    static const int vocabs[] = {4, 33, 1500};
    for (int i = 0; i < T_COUNT(vocabs) * 4; ++i) {
        const int vocab = vocabs[i / 4], dtype = i % 4, rows = vocab > 1000 ? 64 : 512;
        const int64_t num_draws =
            vocab > 1000 ? (t.quick ? 512 : 4096) : (t.quick ? 4096 : 1 << 14);
        for (int method = 0; method < 2; ++method) {
            const int stream = (i + method) % (method == SPECV_SAMPLE_GUMBEL ? 3 : 2);
            t_case("sampler: V %d, dtype %d, %s, stream %d", vocab, dtype,
                   method == SPECV_SAMPLE_GUMBEL ? "Gumbel" : "CDF", stream);
            check_sampler(vocab, dtype, method, stream, num_draws, rows, 0, &no_filters);
#if T_DEVICE
            if (t.quick && (i + method) % 4) continue;
            t_case("sampler on the device: V %d, dtype %d, %s, stream %d", vocab, dtype,
                   method == SPECV_SAMPLE_GUMBEL ? "Gumbel" : "CDF", stream);
            check_sampler(vocab, dtype, method, stream, t.quick ? 16 : 64, t.quick ? 16 : 64, 1,
                          &no_filters);
#endif
        }
    }
}

/* ------------------------------------------------------------------------------------- filters */

/* The published rule on what filters leave: one more enumeration. */
static void test_filtered_enumeration(void) {
    static model m;
    double worst = 0, block_gain = 0;
    for (int vocab = 2; vocab <= 4; ++vocab)
        for (int n = 0; n <= MAX_N; ++n)
            for (int kind = 0; kind < (t.quick ? 8 : 8 * T_COUNT(filter_kinds)); ++kind) {
                const rules token = {0, kind & 1, SOUND}, block = {1, kind & 1, SOUND};
                double token_mean, block_mean;
                t_case("filtered enumeration: V %d, %d drafts, filters %d, %s", vocab, n, kind / 8,
                       token.one_hot ? "one-hot" : "with q");
                draw_model(&m, vocab, SPECV_LOGITS_F32, kind >> 1 & 1, kind & 4 ? .7 : 0);
                draw_filters(&m, t.quick ? kind + n : kind / 8);
                worst = fmax(worst, law_error(&m, &token, n, &token_mean));
                worst = fmax(worst, law_error(&m, &block, n, &block_mean));
                CHECK(worst < 1e-12);
                CHECK(block_mean > token_mean - 1e-12);
                block_gain = fmax(block_gain, block_mean - token_mean);
            }
    t_close_case();
    printf("filtered enumeration: worst error %.1e, block accepts up to %.2f more\n", worst,
           block_gain);
}

/* How far the law of what the kit emits is from the target's, for all drafts that there are. The
   kit is looked at from outside: how many of the 2^24 uniforms pass a test, and at how many the
   next token becomes another, is found by bisection. outside: texts with a draft that the target
   cannot write. */
static double kit_error(const model *m, int block, int one_hot, int n, misuse keys, int device,
                        int *outside) {
    enum { ONE = 1 << 24 };
    static emission emitted;
    const int places = m->vocab - 1, each = n + (n + 1) * places;
    int *drafted = (int *)more(sizeof *drafted * (size_t)num_texts_of(m, n)), count = 0, d[MAX_N];
    for (int text = 0; text < num_texts_of(m, n); ++text)
        if (spell(m, text, n, d) > 0) drafted[count++] = text;
    kit k = open_kit(count * each, m->vocab, n, m->dtype, device);
    int32_t *low = (int32_t *)more(4 * (size_t)k.rows), *high = (int32_t *)more(4 * (size_t)k.rows);
    k.with_accept = n > 0, k.with_sample = 1, k.with_q = !one_hot && n > 0;
    open_filters(&k, m->kept);
    misuse_filters(&k, m, keys);
    for (int b = 0; b < k.rows; ++b) {
        spell(m, drafted[b / each], n, ints(&k.draft_tokens) + b * n);
        floats(&k.temperature)[b] = m->temperature[TARGET];
        floats(&k.draft_temperature)[b] = m->temperature[DRAFT];
        put_row(&k, b, m, 0);
        put_filters(&k, b, m->kept);
        low[b] = -1, high[b] = ONE;
    }
    for (int round = 0; round < 25; ++round) {
        for (int b = 0; b < k.rows; ++b) {
            const int at = b % each, tau = at < n ? at : (at - n) / places;
            const float middle = (float)((low[b] + high[b]) / 2) / ONE;
            for (int j = 0; j < n; ++j) /* the least one passes whatever can, the largest fails */
                floats(&k.accept_uniform)[b * n + j] = j < tau ? 0 : 1 - 1.f / ONE;
            if (at < n)
                floats(&k.accept_uniform)[b * n + at] = middle;
            else
                floats(&k.sample_uniform)[b] = middle;
        }
        k.device = device && round == 20;
        run_verify(&k, block ? SPECV_RULE_BLOCK : SPECV_RULE_TOKEN);
        for (int b = 0; b < k.rows; ++b) {
            const int at = b % each, middle = (low[b] + high[b]) / 2;
            const int passes =
                at < n ? ints(&k.accepted)[b] > at : ints(&k.next)[b] <= (at - n) % places;
            if (passes)
                low[b] = middle;
            else
                high[b] = middle;
        }
    }
    memset(&emitted, 0, sizeof emitted);
    for (int i = 0; i < count; ++i) {
        const double weight = spell(m, drafted[i], n, d);
        double rest = 1, law[MAX_N + 1];
        uint64_t node = 0;
        int accepted = 0, cannot = 0;
        for (int at = 0; at < n; ++at) { /* block: backwards, up to the first that passes */
            const int of = block ? n - 1 - at : at;
            const double rate = (double)high[i * each + of] / ONE;
            law[block ? of + 1 : of] = rest * (block ? rate : 1 - rate);
            rest *= block ? 1 - rate : rate;
        }
        law[block ? 0 : n] = rest;
        for (int tau = 0; tau <= n; ++tau) {
            const int b = i * each + n + tau * places;
            int before = 0;
            for (int x = 0; x < m->vocab; ++x) {
                const int after = x < places ? high[b + x] : ONE;
                if (law[tau] > 0) CHECK_EQ(ints(&k.accepted)[b + (x < places ? x : 0)], tau, b);
                emitted.of[tau + 1][accepted * m->vocab + x] +=
                    weight * law[tau] * (double)(after - before) / ONE;
                before = after;
            }
            if (tau == n) break;
            cannot |= !(probs(m, TARGET, node)[d[tau]] > 0);
            node = child(m, node, d[tau]);
            accepted = accepted * m->vocab + d[tau];
        }
        *outside += cannot;
    }
    free(drafted), free(low), free(high);
    return error_of(m, n, &emitted);
}

static void test_filtered_kit(void) {
    static model m;
    double worst = 0;
    int outside = 0;
    for (int kind = 0; kind < (t.quick ? 5 : 4 * T_COUNT(filter_kinds)); ++kind)
        for (int block = 0; block < 2; ++block) {
            const int one_hot = kind % 4 == 3, n = t.quick ? 1 + kind % 2 : 1 + kind % 3;
            const int vocab = n == 1 ? 4 : 3;
            t_case("filtered kit: %s, %s, V %d, %d drafts, filters %d", block ? "block" : "token",
                   one_hot ? "one-hot" : "with q", vocab, n, kind % T_COUNT(filter_kinds));
            draw_model(&m, vocab, kind % 3, kind % 2, kind & 2 ? .6 : 0);
            draw_filters(&m, kind);
            const double error =
                kit_error(&m, block, one_hot, n, PROPER,
                          T_DEVICE && (!t.quick || (block && kind == 1)), &outside);
            CHECK(error < 2e-6);
            worst = fmax(worst, error);
        }
    t_case("filtered kit: drafts that the target cannot write");
    CHECK(outside > 10);
    t_close_case();
    printf("filtered kit: worst error %.1e, %d texts with a draft that the target cannot write\n",
           worst, outside);
}

static void test_filtered_decisions(void) {
    static model m;
    decisions_seen = decisions_close = decisions_different = 0;
    for (int kind = 0; kind < 4 * T_COUNT(filter_kinds); ++kind)
        for (int n = 0; n <= MAX_N; ++n) {
            rules r = {kind & 1, kind >> 1 & 1, SOUND};
            const int dtype = (kind + n) % 3, vocab = 2 + (kind / 4 + n) % 4;
            if (t.quick && (kind + n) % 4) continue;
            t_case("filtered decisions: V %d, %d drafts, %s, %s, dtype %d, filters %d", vocab, n,
                   r.block ? "block" : "token", r.one_hot ? "one-hot" : "with q", dtype, kind / 4);
            kit k = decision_kit(16, vocab, n, dtype);
            open_filters(&k, filter_kinds[kind / 4]);
            for (int batch = 0; batch < (t.quick ? 1 : 40); ++batch) {
                draw_model(&m, vocab, dtype, kind & 1, n % 2 ? .7 : 0);
                draw_filters(&m, kind / 4);
                k.device = T_DEVICE && batch == 0 && (!t.quick || (n == 2 && kind % 16 == 2));
                CHECK_EQ(compare_decisions(&k, &m, &r), 0, batch);
            }
        }
    t_close_case();
    printf("filtered decisions: %ld rows, %ld with a close comparison, %ld of them decided "
           "otherwise\n",
           decisions_seen, decisions_close, decisions_different);
}

static const int filtered_kinds[][11] = {
    /* rule, drafter, V, drafts, dtype, tails, ragged, mixed, drafts by noise, filters, model */
    {SPECV_RULE_TOKEN, FROM_Q, 5, 3, SPECV_LOGITS_F32, 0, 0, 0, 0, 0, 21},
    {SPECV_RULE_BLOCK, FROM_Q, 5, 3, SPECV_LOGITS_BF16, 0, 0, 0, 1, 1, 22},
    {SPECV_RULE_BLOCK, FROM_Q, 5, 2, SPECV_LOGITS_F32, 0, 1, 1, 0, 2, 23},
    {SPECV_RULE_TOKEN, FROM_Q, 5, 3, SPECV_LOGITS_F16, 1, 0, 1, 1, 3, 24},
    {SPECV_RULE_TOKEN, HIDDEN_Q, 5, 2, SPECV_LOGITS_BF16, 0, 1, 1, 0, 7, 25},
    {SPECV_RULE_BLOCK, HIDDEN_Q, 5, 3, SPECV_LOGITS_F32, 0, 0, 0, 1, 6, 26},
    {SPECV_RULE_BLOCK, BEST, 5, 3, SPECV_LOGITS_F16, 0, 0, 0, 0, 4, 27},
    {SPECV_RULE_BLOCK, FROM_Q, 4, 2, SPECV_LOGITS_F32, 1, 0, 0, 0, 5, 28},
    {SPECV_RULE_COUPLED, COUPLED_Q, 5, 2, SPECV_LOGITS_F32, 0, 0, 1, 0, 1, 29},
    {SPECV_RULE_COUPLED, COUPLED_Q, 5, 3, SPECV_LOGITS_BF16, 0, 1, 0, 0, 2, 30},
    {SPECV_RULE_SCORE, HIDDEN_Q, 4, 2, SPECV_LOGITS_F32, 0, 0, 1, 0, 0, 31},
    {SPECV_RULE_SCORE, HIDDEN_Q, 5, 1, SPECV_LOGITS_F16, 1, 0, 0, 1, 2, 32},
    {SPECV_RULE_GREEDY, HIDDEN_Q, 4, 3, SPECV_LOGITS_BF16, 0, 0, 0, 0, 7, 33},
};

/* Mixed: a row of four is another request, without filters, and one has temperature 0. */
static chain describe_filtered(model *m, model *others, int i) {
    const int *kind = filtered_kinds[i];
    const uint64_t random = t.random;
    t.random = (uint64_t)kind[10];
    draw_model(m, kind[2], kind[4], 0, i % 3 ? .85 : .3);
    if (kind[5]) add_tails(m);
    memcpy(others, m, sizeof *m);
    draw_filters(m, kind[9]);
    /* scores were moved */
    memcpy(others->score, m->score, sizeof m->score);
    memcpy(others->prob, m->whole, sizeof m->whole);
    memcpy(others->whole, m->whole, sizeof m->whole);
    t.random = random;
    chain c = make_chain(m, kind[0], (drafter)kind[1], kind[3], 3);
    c.ragged = kind[6];
    if (kind[7]) c.others = others, c.greedy = kind[0] != SPECV_RULE_SCORE;
    if (kind[8]) c.method = SPECV_SAMPLE_GUMBEL;
    return c;
}

static void test_filtered_texts(void) {
    static model m, others;
    all_texts = all_outside = all_others = 0;
    for (int i = 0; i < T_COUNT(filtered_kinds); ++i) {
        if (t.quick && i % 2) continue;
        t_case("filtered texts %d:", i);
        chain c = describe_filtered(&m, &others, i);
        note_chain(&c);
        check_chain(&c, t.quick ? 1 << 7 : 1 << 13, t.quick ? 128 : 1024, 0);
    }
    t_case("filtered texts: requests without filters, drafts that the target cannot write");
    CHECK(all_others > 0 && all_outside > 0);
    t_close_case();
    printf("filtered texts: %.0f in all, %.0f beside them without filters; %.0f drafts that the "
           "target cannot write\n",
           all_texts, all_others, all_outside);
}

static void test_filtered_on_device(void) {
#if T_DEVICE
    static model m, others;
    for (int i = 0; i < T_COUNT(filtered_kinds); ++i) {
        if (t.quick ? i != 2 && i != 8 : i % 2) continue; /* of statistics there is a most */
        t_case("filtered device texts %d:", i);
        chain c = describe_filtered(&m, &others, i);
        if (t.quick) c.steps = 2;
        check_device_chain(&c);
    }
#else
    t_skip("needs nvcc");
#endif
}

/* Filters of both models, and the text is still what the target alone would have written with its
   own, whoever drafts. */
static void test_filtered_coupled(void) {
    static model m;
    for (int n = 0; n <= MAX_N; n += 1 + t.quick)
        for (int who = HIDDEN_Q; who < NUM_DRAFTERS; ++who) {
            t_case("filtered coupled text: filters %d,", n);
            t.random = 99 + (uint64_t)n; /* the same models for every drafter */
            draw_model(&m, 3 + n % 3, n % 3, n % 2, .6);
            draw_filters(&m, n);
            const int device = T_DEVICE && (!t.quick || (n == 2 && who == COUPLED_Q));
            check_same_text(&m, n, (drafter)who, t.quick ? 4 : device ? 8 : 64, device);
        }
}

static void test_filtered_samplers(void) {
    static const int vocabs[] = {33, 1500};
    static const filters all[] = {{1, K_P_MIN, 12, .9f, .1f},
                                  {0, MIN_K_P, 14, .8f, .2f},
                                  {1, SPECV_TOP_P_OF_ALL, 9, .6f, .05f}};
    for (int i = 0; i < 2 * 3 * 3; ++i) {
        const int vocab = vocabs[i / 9], dtype = i % 3, method = (i / 4 + i / 9) % 2;
        const int stream = i % (method == SPECV_SAMPLE_GUMBEL ? 3 : 2);
        filters f = all[i / 3 % 3];
        if (vocab > 1000) f.top_k *= 20, f.min_p /= 4;
        if (t.quick && (i % 4 || vocab > 1000)) continue;
        t_case("filtered sampler: V %d, dtype %d, %s, stream %d, order %d", vocab, dtype,
               method == SPECV_SAMPLE_GUMBEL ? "Gumbel" : "CDF", stream, f.order);
        if (vocab > 1000)
            check_sampler(vocab, dtype, method, stream, 256, 64, 0, &f);
        else
            check_sampler(vocab, dtype, method, stream, t.quick ? 512 : 1 << 12, 256, 0, &f);
#if T_DEVICE
        if (t.quick && i) continue;
        t_note(", on the device");
        check_sampler(vocab, dtype, method, stream, t.quick ? 16 : 64, t.quick ? 16 : 64, 1, &f);
#endif
    }
}

/* ------------------------------------------------------------------------- always and never */

/* p = q: every draft is accepted. No token in common: none is. Both hold for every number that a
   generator can give, so there is no statistic in it. */
static void test_always_never(void) {
    static model m;
    static tally sum;
    double tests = 0;
    for (int kind = 0; kind < 32; ++kind) {
        const int block = kind & 1, never = kind >> 1 & 1, dtype = kind / 4 % 4, hidden = kind / 16;
        const int vocab = 2 + kind % 4;
        if (hidden && !never) continue;
        t_case("%s:", never ? "never" : "always");
        draw_model(&m, vocab, dtype, 0, never ? 0 : 1);
        for (int i = 0; i < CONTEXTS && never; ++i) /* one has the even tokens, the other the odd */
            for (int x = 0; x < vocab; ++x)
                m.score[x % 2][i][x] = dtype == SPECV_PROBS_F32 ? 0 : -INFINITY;
        for (int i = 0; i < CONTEXTS && never; ++i)
            for (int side = TARGET; side <= DRAFT; ++side) renew_probs(&m, side, i);
        chain c = make_chain(&m, block ? SPECV_RULE_BLOCK : SPECV_RULE_TOKEN,
                             hidden ? HIDDEN_Q : FROM_Q, 1 + kind % MAX_N, 1);
        note_chain(&c);
        for (int device = 0; device <= (T_DEVICE && (!t.quick || kind % 8 == 1)); ++device) {
            run_chain(&c, device ? 8 : t.quick ? 512 : 1 << 13, device ? 8 : 512, device, &sum);
            CHECK_EQ(sum.tau_sum, never ? 0 : sum.steps_counted * c.max_draft, -1);
            tests += sum.steps_counted * (block || !never ? c.max_draft : 1);
        }
    }
    t_close_case();
    printf("always, never: %.0f tests\n", tests);
}

/* Only one token is possible after each text, and both models know it: p = q = 1, whatever the
   logits are, so the largest and the smallest uniform accept it. In odd rows the last draft is
   another token, of which the draft model is as sure: p = 0, so none accepts that. */
static void test_certain(void) {
    static model m;
    const int vocab = 3, n = 3, rows = 16;
    for (int kind = 0; kind < 16; ++kind) {
        rules r = {kind & 1, kind >> 1 & 1, SOUND};
        const int dtype = kind / 4;
        t_case("certain: %s, %s, dtype %d", r.block ? "block" : "token",
               r.one_hot ? "one-hot" : "with q", dtype);
        kit k = open_kit(rows, vocab, n, dtype, 1);
        k.with_accept = k.with_sample = 1, k.with_q = !r.one_hot;
        draw_model(&m, vocab, dtype, 0, 0);
        for (int c = 0; c < CONTEXTS; ++c)
            for (int side = TARGET; side <= DRAFT; ++side)
                for (int x = 0; x < vocab; ++x) {
                    float *score = &m.score[side][c][x];
                    if (dtype == SPECV_PROBS_F32)
                        *score = x == c % vocab;
                    else if (x != c % vocab)
                        *score = -INFINITY;
                }
        for (int b = 0; b < rows; ++b) {
            uint64_t node = (uint64_t)t_below(CONTEXTS), at = node;
            for (int j = 0; j < n; ++j) {
                int d = context(at) % vocab;
                if (b % 2 && j == n - 1) d = (d + 1) % vocab;
                ints(&k.draft_tokens)[b * n + j] = d;
                floats(&k.accept_uniform)[b * n + j] = b & 2 ? 0 : 1 - 5.9604644775390625e-8f;
                at = child(&m, at, d);
            }
            floats(&k.sample_uniform)[b] = pick_uniform();
            floats(&k.temperature)[b] = m.temperature[TARGET];
            floats(&k.draft_temperature)[b] = m.temperature[DRAFT];
            put_row(&k, b, &m, node);
            for (int x = 0; x < vocab && b % 2; ++x)
                put_score(&k.draft, dtype, (int64_t)(b * n + n - 1) * vocab + x,
                          dtype == SPECV_PROBS_F32
                              ? (float)(x == ints(&k.draft_tokens)[b * n + n - 1])
                              : (x == ints(&k.draft_tokens)[b * n + n - 1] ? 1.5f : -INFINITY));
        }
        run_verify(&k, r.block ? SPECV_RULE_BLOCK : SPECV_RULE_TOKEN);
        for (int b = 0; b < rows; ++b) {
            CHECK_EQ(ints(&k.accepted)[b], n - b % 2, b);
            CHECK_EQ(ints(&k.status)[b], 0, b);
        }
    }
}

/* ------------------------------------------------------------------------------------- mutants */

static int is_of_filters(int broken) { return broken > LESS_OR_EQUAL; }

/* The sums of test_enumeration have to see each broken rule. */
static void test_broken_rules(void) {
    static model m;
    for (int broken = SWAPPED; broken < NUM_FAULTS; ++broken)
        for (int block = 0; block < 2; ++block) {
            rules r = {block, 0, SOUND}, sound = {block, 0, SOUND};
            double worst = 0, control = 0, mean;
            if (broken == LESS_OR_EQUAL) continue; /* its law is the same */
            if (block ? broken == SWAPPED || broken == REUSED_UNIFORM
                      : broken >= FIRST_REJECT && !is_of_filters(broken))
                continue; /* not a fault of this rule */
            r.broken = (fault)broken;
            t_case("broken rule: %s, %s", block ? "block" : "token", fault_names[broken]);
            for (int turn = 0; turn < 10; ++turn) {
                double error;
                draw_model(&m, 3, SPECV_LOGITS_F32, turn % 2, turn < 5 ? .6 : 0);
                if (is_of_filters(broken)) draw_filters(&m, turn);
                error = law_error(&m, &r, 3, &mean);
                worst = error > worst ? error : worst;
                error = law_error(&m, &sound, 3, &mean);
                control = error > control ? error : control;
            }
            CHECK(worst > 1e-3);
            CHECK(control < 1e-12);
            printf("%s: error %.1e\n", t.what, worst);
        }
}

/* The comparison of decisions has to see each of them, too: then the kit is none of them. */
static void test_broken_decisions(void) {
    static model m;
    for (int broken = SWAPPED; broken < NUM_FAULTS; ++broken)
        for (int block = 0; block < 2; ++block) {
            rules r = {block, 0, SOUND};
            long wrong = 0;
            if (broken == REUSED_UNIFORM ||
                (!block && broken >= FIRST_REJECT && broken < LESS_OR_EQUAL))
                continue;
            if (block && (broken == SWAPPED || broken == FIRST_REJECT)) continue;
            r.broken = (fault)broken;
            t_case("broken decision: %s, %s", block ? "block" : "token", fault_names[broken]);
            kit k = decision_kit(64, 3, 3, SPECV_LOGITS_F32);
            if (is_of_filters(broken)) open_filters(&k, filter_kinds[0]);
            for (int turn = 0; turn < 20 && !(is_of_filters(broken) && wrong); ++turn) {
                draw_model(&m, 3, SPECV_LOGITS_F32, 1, turn < 10 ? .6 : 0);
                if (is_of_filters(broken)) draw_filters(&m, 0);
                wrong += compare_decisions(&k, &m, &r);
            }
            CHECK(wrong > 0);
        }
}

static chain textbook_chain(model *m, int rule, drafter drafts) {
    fixed_model(m, 3, SPECV_LOGITS_F32, textbook_p, textbook_q);
    return make_chain(m, rule, drafts, 4, 4);
}

/* Has to be seen, by any of the statistics or in the law of the text alone. Returns how unlikely it
   was. */
static double catch_chain(const chain *c, int64_t num_texts, int in_text) {
    static tally sum;
    statistic s[MOST_STATISTICS];
    run_chain(c, num_texts, c->keeps ? 64 : num_texts < 1024 ? (int)num_texts : 1024, 0, &sum);
    const int count = statistics_of(c, &sum, s);
    const double p = least_p(s, in_text ? 2 : count); /* the first two are the text's */
    CHECK(p < threshold());
    printf("%s: %.0f texts", t.what, sum.texts);
    print_statistics(s, count);
    return p;
}

/* Random numbers used twice, through the public functions: the counts have to see it, and have to
   be quiet about the same chain with proper keys. */
static void test_misused_keys(void) {
    static model m;
    static const struct {
        misuse keys;
        int rule;
        int log2_texts, log2_quick;
    } cases[] = {
        {DRAFTS_KEY, SPECV_RULE_TOKEN, 14, 12},    {DRAFTS_KEY, SPECV_RULE_BLOCK, 14, 12},
        {SHARED_ACCEPT, SPECV_RULE_TOKEN, 14, 12}, {ABSOLUTE, SPECV_RULE_BLOCK, 14, 12},
        {SAME_POSITION, SPECV_RULE_TOKEN, 14, 12}, {SAME_POSITION, SPECV_RULE_BLOCK, 14, 12},
        {WRONG_Q, SPECV_RULE_TOKEN, 14, 13},       {WRONG_Q, SPECV_RULE_BLOCK, 14, 13}};
    for (int i = 0; i < T_COUNT(cases); ++i) {
        const int log2_texts = t.quick ? cases[i].log2_quick : cases[i].log2_texts;
        t_case("misuse: %s,", misuse_names[cases[i].keys]);
        chain c = textbook_chain(&m, cases[i].rule, FROM_Q);
        c.keys = cases[i].keys;
        note_chain(&c);
        catch_chain(&c, (int64_t)1 << log2_texts, 0);
    }
    for (int rule = SPECV_RULE_TOKEN; rule <= SPECV_RULE_BLOCK; ++rule) {
        t_case("control:");
        const chain c = textbook_chain(&m, rule, FROM_Q);
        check_host_chain(&c, t.quick ? 1 << 12 : 1 << 15);
    }
}

/* Every chain of the list has to see each of these. What takes all the texts of a chain is left out
   with --quick. */
static void test_mutants(void) {
    static model m;
    static const struct {
        misuse keys;
        int log2_texts, log2_quick;
    } mutants[] = {{BITS_8, 14, 13},    {BITS_12, 17, 0},    {STUCK, 14, 13},
                   {FEW_SEEDS, 14, 13}, {DRAFTS_KEY, 14, 0}, {MOVED_MASS, 16, 0}};
    for (int i = 0; i < T_COUNT(mutants); ++i) {
        const misuse keys = mutants[i].keys;
        const int log2_texts = t.quick ? mutants[i].log2_quick : mutants[i].log2_texts;
        double weakest = 0;
        int chains = 0;
        for (int at = 0; at < T_COUNT(chain_kinds) && log2_texts; ++at) {
            const int *kind = chain_kinds[at], coupled = kind[0] == SPECV_RULE_COUPLED;
            if (coupled && (bits_of(keys) || keys == DRAFTS_KEY)) continue; /* none to be given */
            if (keys == DRAFTS_KEY && kind[1] == BEST) continue;            /* not drawn */
            t_case("mutant: %s,", misuse_names[keys]);
            chain c = describe_chain(&m, at, 0);
            c.keys = keys;
            note_chain(&c);
            const double p = catch_chain(&c, (int64_t)1 << log2_texts, 0);
            weakest = p > weakest ? p : weakest;
            chains += 1;
        }
        t_close_case();
        if (chains)
            printf("mutant %s: seen in %d chains, weakest p %.1e, 10^%.1f below %.0e\n",
                   misuse_names[keys], chains, weakest,
                   log10(threshold() / (weakest > 0 ? weakest : 1e-300)), threshold());
    }
    for (int at = 0; at < T_COUNT(chain_kinds); ++at) {
        if (chain_kinds[at][0] == SPECV_RULE_COUPLED || (t.quick && at % 3)) continue;
        t_case("control: %s,", misuse_names[BITS_24]);
        chain c = describe_chain(&m, at, 0);
        c.keys = BITS_24;
        check_host_chain(&c, t.quick ? 1 << 11 : 1 << 13);
    }
}

/* Every way to draw drafts, every rule, every stream: all that validation lets through leaves the
   text its law, but for the one that the header warns of. */
static void test_combinations(void) {
    static model m;
    int refused = 0, seen = 0, biased = 0;
    for (int i = 0; i < 3 * 4 * 6 * 4; ++i) {
        const int method = i % 3, stream = i / 3 % 4, verify_stream = i / 72;
        /* The rules that keep the law, and what is none. */
        const int rule = i / 12 % 6 <= SPECV_RULE_SCORE ? i / 12 % 6 : SPECV_RULE_BOUNDED + 1;
        t_case("combination %d:", i);
        kit k = open_kit(1, 3, 1, SPECV_LOGITS_F32, 0);
        k.with_q = 0, k.stream = verify_stream;
        const specv_sample_desc drawn = sample_desc(&k, T_HOST_SIDE, method, 0, stream, 1);
        const specv_verify_sample_desc verified = verify_desc(&k, T_HOST_SIDE, rule);
        if (specv_sample_validate(&drawn) || specv_verify_sample_validate(&verified)) {
            t.open = 0, refused += 1;
            t_free_buffers();
            continue;
        }
        const int given = rule == SPECV_RULE_TOKEN || rule == SPECV_RULE_BLOCK;
        chain c = textbook_chain(&m, rule, given ? FROM_Q : HIDDEN_Q);
        c.method = method, c.stream = stream, c.verify_stream = verify_stream;
        note_chain(&c);
        seen += 1;
        CHECK_EQ(specv_sample_validate(&drawn), SPECV_OK, i);
        if (rule == SPECV_RULE_BLOCK && shares_noise(&c)) {
            biased += 1;
            if (!t.quick) catch_chain(&c, 1 << 15, 1);
        } else {
            check_chain(&c,
                        t.quick                    ? 1 << 10
                        : rule == SPECV_RULE_BLOCK ? 1 << 15
                                                   : 1 << 13,
                        1024, 0);
        }
    }
    t_case("combinations: %d, of which %d biased; %d refused", seen, biased, refused);
    CHECK_EQ(seen, 5 * 5 * 2, -1);
    CHECK_EQ(biased, 2, -1);
    t_close_case();
    printf("%s\n", t.what);
}

/* C5 between sampling and verification: drafts that the batch has no room for are not verified. */
static void test_budgets(void) {
    static model m;
    for (int rule = SPECV_RULE_TOKEN; rule <= SPECV_RULE_COUPLED; ++rule)
        for (int keeps = BY_MAX_PROB; keeps <= BY_Q; ++keeps) {
            t_case("budget:");
            draw_model(&m, 3, SPECV_LOGITS_F32, 0, .6);
            chain c = textbook_chain(&m, rule, rule == SPECV_RULE_COUPLED ? COUPLED_Q : FROM_Q);
            draw_model(&m, 3, SPECV_LOGITS_F32, 0, .6); /* a fixed q has but one largest */
            c.keeps = (budget)keeps;
            note_chain(&c);
            if (keeps == BY_Q && rule != SPECV_RULE_COUPLED)
                catch_chain(&c, t.quick ? 1 << 13 : 1 << 15, 1);
            else
                check_chain(&c, t.quick ? 1 << 11 : 1 << 15, 64, 0);
        }
}

/* Filters that verification does not get, or gets wrong: what the kit emits has another law, by
   enumeration and in what a chain counts. Residuals of a p that the kit does not have are drawn
   beside it. */
static void test_lost_filters(void) {
    static const double p[] = {.22, .2, .2, .19, .19}, q[] = {.42, .15, .145, .145, .14};
    static const filters of_draft = {0, K_P_MIN, 2, 1, 0};
    static const struct {
        misuse keys;
        int log2_texts, log2_quick;
        filters of_target;
    } cases[] = {{NO_DRAFT_FILTERS, 12, 9, {0, K_P_MIN, 3, 1, 0}},
                 {RAW_P, 12, 9, {0, K_P_MIN, 3, 1, 0}},
                 {NO_FILTERS, 9, 0, {0, K_P_MIN, 3, 1, 0}},
                 {OTHER_ORDER, 9, 0, {0, MIN_K_P, 3, .6f, .5f}},
                 {LATE_MASKS, 9, 0, {1, K_P_MIN, 0, 1, 0}}};
    static model m;
    for (int i = 0; i < T_COUNT(cases); ++i)
        for (int rule = SPECV_RULE_TOKEN; rule <= SPECV_RULE_BLOCK; ++rule) {
            const misuse keys = cases[i].keys;
            const int log2_texts = t.quick ? cases[i].log2_quick : cases[i].log2_texts;
            double worst = 0;
            int outside = 0;
            t_case("lost filters: %s,", misuse_names[keys]);
            for (int turn = 0; turn < 20 && !(worst > 1e-3); ++turn) { /* masks may be alike */
                fixed_model(&m, 5, SPECV_LOGITS_F32, p, q);
                filter_model(&m, TARGET, &cases[i].of_target);
                filter_model(&m, DRAFT, &of_draft);
                if (keys != RAW_P)
                    worst = kit_error(&m, rule == SPECV_RULE_BLOCK, 0, 1, keys, 0, &outside);
                else
                    worst = 1;
            }
            CHECK(worst > 1e-3);
            chain c = make_chain(&m, rule, FROM_Q, 2, 2);
            c.keys = keys;
            note_chain(&c);
            if (keys != RAW_P) t_note(", error of the kit's law %.1e", worst);
            if (log2_texts) catch_chain(&c, (int64_t)1 << log2_texts, 0);
        }
}

int main(int argc, char **argv) {
    static const t_group groups[] = {
        {"null", test_null},
        {"enumeration", test_enumeration},
        {"decisions", test_decisions},
        {"chains", test_chains},
        {"other-rules", test_other_rules},
        {"device-chains", test_device_chains},
        {"mixed", test_mixed},
        {"published", test_published},
        {"coupled", test_coupled},
        {"samplers", test_samplers},
        {"filtered-enumeration", test_filtered_enumeration},
        {"filtered-kit", test_filtered_kit},
        {"filtered-decisions", test_filtered_decisions},
        {"filtered-texts", test_filtered_texts},
        {"filtered-device", test_filtered_on_device},
        {"filtered-coupled", test_filtered_coupled},
        {"filtered-samplers", test_filtered_samplers},
        {"always-never", test_always_never},
        {"certain", test_certain},
        {"broken-rules", test_broken_rules},
        {"broken-decisions", test_broken_decisions},
        {"misused-keys", test_misused_keys},
        {"mutants", test_mutants},
        {"combinations", test_combinations},
        {"budgets", test_budgets},
        {"lost-filters", test_lost_filters},
    };
    t.at_end = list_statistics;
    return t_main(argc, argv, groups, T_COUNT(groups));
}
