/* scores.h - steps with scores over the vocabulary, of every type, layout and accident, for the
   tests of A2 to A5, A8, A10 and A11: what a step is made of, and how reference and device run
   it. */

#ifndef SCORES_H_INCLUDED
#define SCORES_H_INCLUDED

#define SPECVERIFY_NO_GREEDY /* only >>sample is launched: less to compile */
#if !defined(WITH_SHARDS)
#define SPECVERIFY_NO_SHARDS
#endif
#define SPECVERIFY_NO_PACK
#define SPECVERIFY_NO_CACHE
#define SPECVERIFY_NO_COLUMNS
#define SPECVERIFY_NO_SCHEDULE
#define SPECVERIFY_NO_PARTICLES
#define SPECVERIFY_NO_STATS
#include "batch.h"

#include <math.h>

/* ------------------------------------------------------------------------------------- scenes */

/* What is unusual about the scores, as bits. */
enum {
    ODD_NAN = 1,       /* here and there a NaN */
    ODD_MASK = 2,      /* most ids are -inf (probability 0) */
    ODD_TOP = 4,       /* +inf, or a logit beyond the format, or a probability that is none */
    ODD_EMPTY = 8,     /* rows without any finite entry */
    ODD_TIES = 16,     /* few different values */
    ODD_SAME = 32,     /* q = p */
    ODD_DISJOINT = 64, /* where one has probability the other has none */
    ODD_LIAR = 128,    /* q says nothing of the draft's origin */
    ODD_ALL = 255,
    ODD_ZEROS =
        256, /* logits are 0, -0 or whole numbers below: the largest is anywhere, many times */
    ODD_HALF = 512,  /* a draft has about half of the weight: where it is rejected is felt */
    ODD_LIGHT = 1024 /* at temperature 1, all ids but one weigh a unit or two */
};

enum { NO_DRAFT_SCORES = -1 };

#if defined(WITH_LOSSY)
enum { NUM_RULES = SPECV_RULE_BOUNDED + 1 };
#else
enum { NUM_RULES = SPECV_RULE_SCORE + 1 };
#endif

/* Random cases of a rule each: of three the third is a lossy one's. */
T_FN int rule_of_case(uint64_t seed) {
    const int turn = (int)((seed + 3) % 15);
    return turn < 10 ? turn % (SPECV_RULE_SCORE + 1) : turn - 5;
}

T_FN const char *rule_name(int rule) {
    static const char *const names[] = {"token",   "block",   "coupled",      "greedy",
                                        "score",   "typical", "typical draw", "threshold",
                                        "relaxed", "bounded"};
    return names[rule];
}

T_FN int takes_draft_scores(int rule) {
    return rule < SPECV_RULE_SCORE || rule == SPECV_RULE_BOUNDED;
}

/* What a lossy rule is told. */
enum { LOOSE_ANY = 0, LOOSE_NOT = 1, LOOSE_GIVEN = 2 };

/* Which filters there are, as bits. */
enum {
    HAS_MASK = 1,
    HAS_TOP_K = 2,
    HAS_TOP_P = 4,
    HAS_MIN_P = 8,
    HAS_MASK_ROW = 16, /* requests name their masks, some of them wrongly or none */
    HAS_MASK_GAP = 32, /* words behind each mask */
    HAS_CUTS = HAS_TOP_K | HAS_TOP_P | HAS_MIN_P,
    HAS_ALL = 63
};

/* What is told of every emitted token, as bits. */
enum {
    TELL_LOGPROB = 1,
    TELL_RANK = 2,
    TELL_TOP_ID = 4,
    TELL_TOP_LOGPROB = 8,
    TELL_TOP = TELL_TOP_ID | TELL_TOP_LOGPROB,
    TELL_ALL = 15,
    TELL_NUM_TOP = 16 /* requests say how many ids they are told, some of them wrongly */
};

typedef struct scene {
    shape s;
    int rule, target_dtype, draft_dtype;
    unsigned odd;
    float temperature; /* < 0: mixed, some of them 0 and some bad */
    float spread;
    int uniforms;   /* 1: given, 0: from seeds */
    int gap;        /* elements behind every position's scores */
    int offset;     /* elements before the first */
    int null_extra; /* no logprob, no lse */
    int num_sms;
    int stream, step_row;
    int slots; /* 1: the requests' values lie in slots, in any order, with noise between them */
    unsigned filters, draft_filters; /* HAS_* */
    int filter_order;
    int32_t top_k; /* these for every request, where they are not 0; else anything */
    float top_p, min_p;
    unsigned tell; /* TELL_*; 0: TELL_LOGPROB where the vocabulary is odd */
    int max_top, raw;
    int bonus; /* 1: what follows drafts that are all accepted is given */
    int loose; /* LOOSE_*: lossy rules are told anything, what makes them lossless, or these: */
    float loose_low,
        loose_scale; /* epsilon, threshold_single, delta; alpha, threshold_acc, ratio */
    int32_t loose_top;
} scene;

/* Filters of one side. */
typedef struct stage_filters {
    t_buf mask, mask_row, top_k, top_p, min_p;
    int64_t stride; /* words */
    int num_rows;
} stage_filters;

typedef struct stage {
    scene c;
    batch b;
    t_buf target, draft, temperature, draft_temperature, seed, position, accept, sample, logprob,
        lse, out_logprob, rank, top_id, top_logprob, num_top, target_logprob, slot, bonus;
    t_buf loose_low, loose_scale, loose_top;
    stage_filters filters, draft_filters;
    int num_slots; /* entries of per-request arrays */
    void *scratch[2];
    int64_t scratch_bytes;
} stage;

static uint32_t half_bits(float value) { /* toward zero; for test data only */
    uint32_t bits = specv_float_bits(value), sign = bits >> 16 & 0x8000u;
    int32_t exponent = (int32_t)(bits >> 23 & 255) - 112;
    if (specv_i_is_nan(value)) return sign | 0x7e01u;
    if (exponent >= 31) return sign | (bits << 1 == 0xff000000u ? 0x7c00u : 0x7bffu);
    if (exponent <= 0) return sign;
    return sign | (uint32_t)exponent << 10 | (bits >> 13 & 0x3ffu);
}

static void put_score(const t_buf *b, int dtype, int64_t at, float value) {
    if (dtype == SPECV_LOGITS_F16)
        ((uint16_t *)(void *)b->host)[at] = (uint16_t)half_bits(value);
    else if (dtype == SPECV_LOGITS_BF16)
        ((uint16_t *)(void *)b->host)[at] = (uint16_t)(specv_float_bits(value) >> 16);
    else
        ((float *)(void *)b->host)[at] = value;
}

T_FN float get_score(const t_buf *b, int dtype, int64_t at) {
    uint32_t code, sign, exponent;
    if (dtype == SPECV_LOGITS_F32 || dtype == SPECV_PROBS_F32)
        return ((const float *)(const void *)b->host)[at];
    code = ((const uint16_t *)(const void *)b->host)[at];
    if (dtype == SPECV_LOGITS_BF16) return specv_bits_float(code << 16);
    sign = code >> 15 << 31, exponent = code >> 10 & 31;
    if (exponent == 0) return 0; /* half_bits makes no others */
    if (exponent == 31) exponent = 143;
    return specv_bits_float(sign | (exponent + 112) << 23 | (code & 1023) << 13);
}

static float normal(float deviation) {
    double sum = 0;
    for (int i = 0; i < 6; ++i) sum += t_uniform();
    return (float)((sum - 3) * 1.4142) * deviation;
}

static float infinity(int sign) { return specv_bits_float(sign < 0 ? 0xff800000u : 0x7f800000u); }

static float odd_top(int dtype) {
    const float tops[] = {infinity(1), 1e30f, 3e6f, -1e30f};
    const float no_probs[] = {infinity(1), -0.25f, 2.5f, infinity(-1)};
    return dtype == SPECV_PROBS_F32 ? T_PICK(no_probs) : T_PICK(tops);
}

/* Scores of one position: `base` holds logits, `top` is to be the largest of them, or -1. */
static void put_scores(const scene *c, const t_buf *b, int dtype, int64_t at, const float *base,
                       int64_t top) {
    const int probs = dtype == SPECV_PROBS_F32;
    const int empty = c->odd & ODD_EMPTY && t_chance(15);
    double sum = 0, largest = -1e30;
    for (int64_t x = 0; x < c->s.vocab; ++x)
        if (base[x] > largest) largest = base[x];
    if (probs)
        for (int64_t x = 0; x < c->s.vocab; ++x) sum += specv_exp2(base[x] * 0.25f);
    for (int64_t x = 0; x < c->s.vocab; ++x) {
        float value = base[x];
        if (probs) value = (float)(specv_exp2(base[x] * 0.25f) / sum);
        if (c->odd & ODD_ZEROS && value == 0 && t_chance(50)) value = -0.f;
        if (x == top) value = probs ? 1.5f : (float)largest + 2;
        if ((c->odd & ODD_MASK && t_chance(97) && x != top) || empty)
            value = probs ? 0 : infinity(-1);
        if (c->odd & ODD_NAN && t_chance(2) && x != top) value = specv_bits_float(0x7fc00000u);
        put_score(b, dtype, at + x, value);
    }
    if (c->odd & ODD_TOP && t_chance(30))
        for (int i = 0; i < 3; ++i) put_score(b, dtype, at + t_below(c->s.vocab), odd_top(dtype));
}

static float draw_temperature(const scene *c) {
    const float odd[] = {0, 0, -0.f, 1e-6f, 0.01f, 0.3f, 0.7f, 1, 1.5f, 30, -1, 1e9f, 0};
    if (c->temperature >= 0) return c->temperature;
    return t_chance(10) ? specv_bits_float(0x7fc00000u) : T_PICK(odd);
}

/* Positions that a row has in addition to its drafts'. */
static int positions_beyond(const stage *g, int of_draft) { return !of_draft && !g->c.bonus; }

/* Where position j of a row has its scores. */
static int64_t scores_at(const stage *g, int row, int j, int of_draft) {
    const int beyond = positions_beyond(g, of_draft);
    const int64_t pos_stride = g->c.s.vocab + g->c.gap;
    const int64_t seq_stride = (g->c.s.max_draft + beyond) * pos_stride + 2 * g->c.gap;
    if (g->c.s.layout == CSR)
        return g->c.offset + (g->b.rows[row].first + beyond * row + j) * pos_stride;
    return g->c.offset + row * seq_stride + j * pos_stride;
}

static t_buf new_scores(const stage *g, int dtype, int of_draft) {
    const int64_t bytes = dtype == SPECV_LOGITS_F16 || dtype == SPECV_LOGITS_BF16 ? 2 : 4;
    const int beyond = positions_beyond(g, of_draft);
    const int rows = g->c.s.batch, positions = g->c.s.max_draft + beyond;
    int64_t end = 0;
    if (g->c.s.layout == CSR)
        end = (g->b.num_draft_tokens + beyond * rows) * (g->c.s.vocab + g->c.gap);
    else if (rows > 0 && positions > 0)
        end = scores_at(g, rows - 1, positions - 1, of_draft) - g->c.offset + g->c.s.vocab;
    return t_in((g->c.offset + end) * bytes, 0);
}
#define new_scores(g, dtype, of_draft) (T_SITE(new_scores, 1), new_scores(g, dtype, of_draft))

static void put_position(stage *g, float *base, int row, int j, int has_draft) {
    const scene *c = &g->c;
    const truth *r = &g->b.rows[row];
    const int64_t target_first = c->s.layout == CSR ? r->first + row : row * g->b.target_stride;
    const int64_t token = get_token(&g->b.target, c->s.dtype, target_first + j);
    const int64_t target_at = scores_at(g, row, j, 0);
    const int sure =
        !(c->odd & (ODD_ZEROS | ODD_LIGHT)) && (c->rule == SPECV_RULE_GREEDY || t_chance(30));
    for (int64_t x = 0; x < c->s.vocab; ++x) {
        base[x] = normal(c->spread);
        if (c->odd & (ODD_TIES | ODD_ZEROS)) base[x] = (float)(int)base[x];
        if (c->odd & ODD_ZEROS && base[x] > 0) base[x] = -base[x];
        if (c->odd & ODD_DISJOINT && x % 2) base[x] = -60;
        if (c->odd & ODD_LIGHT) base[x] = x == 7 ? 0 : -27.3f + 0.1f * base[x];
    }
    if (c->odd & ODD_HALF && has_draft) {
        const int64_t draft = get_token(&g->b.draft, c->s.dtype, r->first + j);
        double sum = 0;
        for (int64_t x = 0; x < c->s.vocab; ++x) sum += exp((double)base[x]);
        if (draft >= 0 && draft < c->s.vocab) base[draft] = (float)log(sum);
    }
    if (has_draft || !c->bonus)
        put_scores(c, &g->target, c->target_dtype, target_at, base, sure ? token : -1);
    if (!has_draft || c->draft_dtype < 0) return;
    for (int64_t x = 0; x < c->s.vocab; ++x) {
        if (c->odd & ODD_LIAR) base[x] = normal(c->spread);
        if (!(c->odd & ODD_SAME)) base[x] += normal(0.3f * c->spread);
        if (c->odd & ODD_DISJOINT) base[x] = x % 2 ? normal(c->spread) : -60;
    }
    put_scores(c, &g->draft, c->draft_dtype, scores_at(g, row, j, 1), base, -1);
}

/* Distinct slots, from a batch's worth more than there are rows; those of inert rows are noise. */
static void draw_slots(stage *g) {
    const int rows = g->c.s.batch;
    int32_t *slot;
    g->slot = t_in(4 * (int64_t)rows, 0);
    g->num_slots = 2 * rows + 1;
    slot = (int32_t *)(void *)g->slot.host;
    for (int row = 0; row < rows; ++row) {
        int again = 1;
        while (again) {
            slot[row] = (int32_t)t_below(g->num_slots);
            again = 0;
            for (int before = 0; before < row; ++before) again |= slot[before] == slot[row];
        }
    }
    for (int row = 0; row < rows; ++row)
        if (!g->b.rows[row].live) slot[row] = (int32_t)t_random();
}

/* Where the row's request has its values; -1: an inert row's, nowhere. */
static int slot_of(const stage *g, int row) {
    if (!g->slot.host) return row;
    return g->b.rows[row].live ? word_at(&g->slot, row) : -1;
}

/* Per-request values: noise everywhere, then those of the rows. */
static void put_requests(stage *g) {
    const uint64_t noise = t_random();
    for (int slot = 0; slot < g->num_slots; ++slot) {
        ((float *)(void *)g->temperature.host)[slot] = NAN;
        if (g->draft_temperature.host) ((float *)(void *)g->draft_temperature.host)[slot] = NAN;
        ((uint64_t *)(void *)g->seed.host)[slot] = noise + (uint64_t)slot;
        ((int32_t *)(void *)g->position.host)[slot] = slot;
    }
    for (int row = 0; row < g->c.s.batch; ++row) {
        const int slot = slot_of(g, row);
        if (slot < 0) continue;
        ((float *)(void *)g->temperature.host)[slot] = draw_temperature(&g->c);
        if (g->draft_temperature.host)
            ((float *)(void *)g->draft_temperature.host)[slot] = draw_temperature(&g->c);
        ((uint64_t *)(void *)g->seed.host)[slot] = t_random();
        ((int32_t *)(void *)g->position.host)[slot] = (int32_t)t_below(100000);
    }
}

static float draw_part(float one) {
    const float odd[] = {0,           -0.f,  1e-9f,      0.02f, 0.1f,  0.3f,   0.5f,
                         0.5f,        0.9f,  0.9f,       0.95f, 0.99f, 0.999f, 1,
                         0.99999994f, -0.5f, 1.0000001f, one,   one,   3};
    return t_chance(5) ? specv_bits_float(0x7fc00000u) : T_PICK(odd);
}

static int32_t draw_top_k(int64_t vocab) {
    const int32_t odd[] = {
        0, -1, 1, 2, 3, 10, 40, 50, 300, 2000, (int32_t)vocab, (int32_t)vocab - 1};
    return t_chance(30) ? (int32_t)t_between(1, vocab) : T_PICK(odd);
}

/* Masks that allow nearly all, half, a few, one or no ids; some rows more than are needed. */
static void draw_masks(stage *g, stage_filters *f, unsigned what, int positions) {
    const int64_t vocab = g->c.s.vocab, words = (vocab + 31) / 32;
    const int csr = g->c.s.layout == CSR;
    const int least =
        csr ? (int)g->b.num_draft_tokens + (positions > g->c.s.max_draft) * g->c.s.batch
            : g->c.s.batch * positions;
    f->stride = words + (what & HAS_MASK_GAP ? 3 : 0);
    f->num_rows = least + (what & HAS_MASK_ROW ? 1 + (int)t_below(4) : 0);
    f->mask = t_in(f->num_rows ? 4 * (f->num_rows * f->stride - (f->stride - words)) : 0, 0);
    for (int row = 0; row < f->num_rows; ++row) {
        const int percent[] = {99, 50, 50, 3, 0};
        const int p = T_PICK(percent), one = t_chance(80);
        for (int64_t x = 0; x < 32 * words; ++x)
            if ((x >= vocab && t_chance(50)) || t_chance(p))
                ((uint32_t *)(void *)f->mask.host)[row * f->stride + x / 32] |= 1u << x % 32;
            else
                ((uint32_t *)(void *)f->mask.host)[row * f->stride + x / 32] &= ~(1u << x % 32);
        const int64_t x = t_below(vocab);
        if (one) ((uint32_t *)(void *)f->mask.host)[row * f->stride + x / 32] |= 1u << x % 32;
    }
    if (!(what & HAS_MASK_ROW)) return;
    f->mask_row = t_in(4 * (int64_t)g->c.s.batch, 0);
    for (int row = 0; row < g->c.s.batch; ++row) {
        const int64_t most = f->num_rows - positions;
        const int32_t wrong[] = {-2, f->num_rows, INT32_MAX, INT32_MIN};
        put_word(&f->mask_row, row,
                 t_chance(15)              ? -1
                 : t_chance(6) || most < 0 ? T_PICK(wrong)
                                           : (int32_t)t_between(0, most));
    }
}

static void draw_filters(stage *g, stage_filters *f, unsigned what, int positions) {
    const scene *c = &g->c;
    if (what & HAS_MASK) draw_masks(g, f, what, positions);
    if (what & HAS_TOP_K) f->top_k = t_in(4 * (int64_t)g->num_slots, 0);
    if (what & HAS_TOP_P) f->top_p = t_in(4 * (int64_t)g->num_slots, 0);
    if (what & HAS_MIN_P) f->min_p = t_in(4 * (int64_t)g->num_slots, 0);
    for (int slot = 0; slot < g->num_slots; ++slot) {
        if (what & HAS_TOP_K)
            put_word(&f->top_k, slot, c->top_k ? c->top_k : draw_top_k(c->s.vocab));
        if (what & HAS_TOP_P)
            ((float *)(void *)f->top_p.host)[slot] = c->top_p != 0 ? c->top_p : draw_part(1);
        if (what & HAS_MIN_P)
            ((float *)(void *)f->min_p.host)[slot] = c->min_p != 0 ? c->min_p : draw_part(0);
    }
}

static int32_t draw_num_top(int max_top) {
    const int32_t odd[] = {-1, INT32_MIN, max_top + 1, INT32_MAX, 0, 1, max_top};
    return t_chance(50) ? T_PICK(odd) : (int32_t)t_between(0, max_top);
}

/* Outputs of A11, and what it reads. */
static void new_emitted(stage *g) {
    const scene *c = &g->c;
    const unsigned tell = c->tell ? c->tell : c->s.vocab % 2 ? (unsigned)TELL_LOGPROB : 0;
    const int64_t tokens = (int64_t)c->s.batch * (c->s.max_draft + 1), top = tokens * c->max_top;
    if (tell & TELL_LOGPROB) g->out_logprob = t_out(4 * tokens, 0);
    if (tell & TELL_RANK) g->rank = t_out(4 * tokens, 0);
    if (tell & TELL_TOP_ID && c->max_top) g->top_id = t_out(4 * top, 0);
    if (tell & TELL_TOP_LOGPROB && c->max_top) g->top_logprob = t_out(4 * top, 0);
    if (!(tell & TELL_NUM_TOP)) return;
    g->num_top = t_in(4 * (int64_t)g->num_slots, 0);
    for (int slot = 0; slot < g->num_slots; ++slot)
        put_word(&g->num_top, slot, draw_num_top(c->max_top));
}

static float draw_loose(const scene *c, float lossless) {
    const float odd[] = {0,    -0.f, 1e-30f, 1e-3f, 0.02f, 0.09f,      0.3f, 0.3f, 0.5f,
                         0.7f, 0.9f, 1,      1,     1.5f,  1.0000001f, 2,    8,    -0.25f};
    if (c->loose == LOOSE_NOT) return lossless;
    if (t_chance(6)) return t_chance(50) ? specv_bits_float(0x7fc00000u) : infinity(1);
    return T_PICK(odd);
}

/* What the requests' rule is told; some of it is out of range, or not given. */
static void draw_lossy(stage *g) {
    const scene *c = &g->c;
    const int rule = c->rule, relaxed = rule == SPECV_RULE_RELAXED;
    const int typical = rule == SPECV_RULE_TYPICAL, bounded = rule == SPECV_RULE_BOUNDED;
    const float most = typical ? infinity(1) : rule == SPECV_RULE_TYPICAL_DRAW ? 0.f : 1.f;
    const int32_t tops[] = {1, 0, -1, INT32_MIN, 2, 2, 3, 5, 10, 100, INT32_MAX};
    if (rule <= SPECV_RULE_SCORE) return;
    if (!bounded && (c->loose == LOOSE_GIVEN || t_chance(70)))
        g->loose_low = t_in(4 * (int64_t)g->num_slots, 0);
    if (!relaxed && (c->loose == LOOSE_GIVEN || t_chance(70)))
        g->loose_scale = t_in(4 * (int64_t)g->num_slots, 0);
    if (relaxed) g->loose_top = t_in(4 * (int64_t)g->num_slots, 0);
    for (int slot = 0; slot < g->num_slots; ++slot) {
        const int given = c->loose == LOOSE_GIVEN;
        float low = draw_loose(c, 1), scale = draw_loose(c, most);
        if (rule == SPECV_RULE_TYPICAL_DRAW && c->loose == LOOSE_NOT && !g->loose_scale.host)
            low = 0;
        if (relaxed && c->loose == LOOSE_NOT) low = t_chance(50) ? 0.2f : 1; /* top_n says it all */
        if (g->loose_low.host)
            ((float *)(void *)g->loose_low.host)[slot] = given ? c->loose_low : low;
        if (g->loose_scale.host)
            ((float *)(void *)g->loose_scale.host)[slot] = given ? c->loose_scale : scale;
        if (relaxed)
            put_word(&g->loose_top, slot,
                     given                   ? c->loose_top
                     : c->loose == LOOSE_NOT ? tops[t_below(4)]
                                             : T_PICK(tops));
    }
}

static void stage_make(stage *g, const scene *c) {
    const int64_t rows = c->s.batch;
    float *base = (float *)malloc(sizeof(float) * (size_t)(c->s.vocab + 1));
    if (!base) t_die(__FILE__, __LINE__, "malloc", "no memory");
    memset(g, 0, sizeof *g);
    g->c = *c;
    if (!takes_draft_scores(c->rule)) g->c.draft_dtype = NO_DRAFT_SCORES;
    c = &g->c;
    batch_make(&g->b, &c->s);
    g->target = new_scores(g, c->target_dtype, 0);
    if (c->bonus && !g->target.host) g->target = t_in(4, 0); /* no drafts, no positions */
    if (c->draft_dtype >= 0) g->draft = new_scores(g, c->draft_dtype, 1);
    for (int row = 0; row < rows; ++row)
        for (int j = 0; g->b.rows[row].first >= 0 && j <= g->b.rows[row].n_draft; ++j)
            put_position(g, base, row, j, j < g->b.rows[row].n_draft);
    free(base);
    g->num_slots = c->s.batch;
    if (c->slots) draw_slots(g);
    g->temperature = t_in(4 * (int64_t)g->num_slots, 0);
    if (t_chance(50)) g->draft_temperature = t_in(4 * (int64_t)g->num_slots, 0);
    g->seed = t_in(8 * (int64_t)g->num_slots, 0);
    g->position = t_in(4 * (int64_t)g->num_slots, 0);
    put_requests(g);
    draw_filters(g, &g->filters, c->filters, c->s.max_draft + !c->bonus);
    draw_filters(g, &g->draft_filters, c->draft_filters, c->s.max_draft);
    if (c->uniforms) {
        const int64_t count = (int64_t)(g->b.draft.bytes / (c->s.dtype == SPECV_I64 ? 8 : 4));
        g->accept = t_in(4 * count, 0);
        g->sample = t_in(4 * rows, 0);
        for (int64_t i = 0; i < count; ++i)
            ((float *)(void *)g->accept.host)[i] =
                t_chance(5) ? 0 : (float)t_below(1 << 24) * 5.9604644775390625e-8f;
        for (int64_t i = 0; i < rows; ++i)
            ((float *)(void *)g->sample.host)[i] =
                t_chance(10) ? (t_chance(50) ? 0 : 1 - 5.9604644775390625e-8f) : (float)t_uniform();
    }
    if (!c->null_extra) g->logprob = t_out(4 * rows, 0), g->lse = t_out(4 * rows, 0);
    new_emitted(g);
    if (c->bonus) {
        const int64_t bytes = c->s.dtype == SPECV_I64 ? 8 : 4;
        g->bonus = t_in(rows * bytes, 0);
        for (int row = 0; row < c->s.batch; ++row)
            put_token(&g->bonus, c->s.dtype, row,
                      t_chance(15) ? bad_token(&g->b) : t_below(c->s.vocab));
    }
    draw_lossy(g);
    if (c->rule == SPECV_RULE_SCORE) g->target_logprob = t_out(4 * rows * c->s.max_draft, 0);
}

static specv_filters describe_filters(const stage *g, const stage_filters *f, int side) {
    specv_filters d = SPECV_ZERO;
    d.mask = (const uint32_t *)t_at(&f->mask, side);
    d.mask_row = (const int32_t *)t_at(&f->mask_row, side);
    d.top_k = (const int32_t *)t_at(&f->top_k, side);
    d.top_p = (const float *)t_at(&f->top_p, side);
    d.min_p = (const float *)t_at(&f->min_p, side);
    if (d.mask && f->stride != (g->c.s.vocab + 31) / 32) d.mask_stride_words = f->stride;
    if (d.mask_row) d.num_mask_rows = f->num_rows;
    d.order = g->c.filter_order;
    return d;
}

static specv_lossy describe_lossy(const stage *g, int side) {
    specv_lossy d = SPECV_ZERO;
    const float *low = (const float *)t_at(&g->loose_low, side);
    const float *scale = (const float *)t_at(&g->loose_scale, side);
    switch (g->c.rule) {
    case SPECV_RULE_THRESHOLD: d.threshold_single = low, d.threshold_acc = scale; break;
    case SPECV_RULE_RELAXED: d.delta = low; break;
    case SPECV_RULE_BOUNDED: d.ratio = scale; break;
    default: d.epsilon = low, d.alpha = scale;
    }
    d.top_n = (const int32_t *)t_at(&g->loose_top, side);
    return d;
}

static specv_verify_sample_desc stage_describe(const stage *g, int side) {
    const int64_t pos_stride = g->c.s.vocab + g->c.gap;
    specv_verify_sample_desc d = SPECV_ZERO;
    d.verify = batch_describe(&g->b, side);
    d.verify.rows.slot = (const int32_t *)t_at(&g->slot, side);
    d.verify.rows.num_slots = g->slot.host ? g->num_slots : 0;
    d.verify.target_tokens = NULL;
    d.verify.target_stride_elems = 0;
    d.target.dtype = g->c.target_dtype;
    d.target.data = t_at(&g->target, side);
    if (d.target.data)
        d.target.data = (const char *)d.target.data +
                        g->c.offset * (int64_t)specv_i_score_bytes(g->c.target_dtype);
    if (g->c.draft_dtype >= 0 && g->draft.host) {
        d.draft.dtype = g->c.draft_dtype;
        d.draft.data = (const char *)t_at(&g->draft, side) +
                       g->c.offset * (int64_t)specv_i_score_bytes(g->c.draft_dtype);
    }
    if (g->c.gap) {
        d.target.pos_stride_elems = d.draft.pos_stride_elems = pos_stride;
        if (g->c.s.layout != CSR) {
            d.target.seq_stride_elems =
                (g->c.s.max_draft + !g->c.bonus) * pos_stride + 2 * g->c.gap;
            d.draft.seq_stride_elems = g->c.s.max_draft * pos_stride + 2 * g->c.gap;
        }
    }
    d.temperature = (const float *)t_at(&g->temperature, side);
    d.draft_temperature = (const float *)t_at(&g->draft_temperature, side);
    d.seed = (const uint64_t *)t_at(&g->seed, side);
    d.position = (const int32_t *)t_at(&g->position, side);
    d.accept_uniform = (const float *)t_at(&g->accept, side);
    d.sample_uniform = (const float *)t_at(&g->sample, side);
    d.bonus_token = t_at(&g->bonus, side);
    d.filters = describe_filters(g, &g->filters, side);
    if (g->draft.host) d.draft_filters = describe_filters(g, &g->draft_filters, side);
    d.logprob = (float *)t_at(&g->logprob, side);
    d.lse = (float *)t_at(&g->lse, side);
    d.emitted.logprob = (float *)t_at(&g->out_logprob, side);
    d.emitted.rank = (int32_t *)t_at(&g->rank, side);
    d.emitted.top_id = (int32_t *)t_at(&g->top_id, side);
    d.emitted.top_logprob = (float *)t_at(&g->top_logprob, side);
    d.emitted.num_top = (const int32_t *)t_at(&g->num_top, side);
    d.emitted.max_top = g->c.max_top, d.emitted.raw = g->c.raw;
    d.target_logprob = (float *)t_at(&g->target_logprob, side);
    d.lossy = describe_lossy(g, side);
    d.rule = g->c.rule;
    d.num_sms = g->c.num_sms;
    d.stream = g->c.stream;
    d.step_row = g->c.step_row;
    return d;
}

/* The reference needs no scratch memory, but a descriptor must name some. */
static void *no_scratch(void) {
    static char memory[16 + 16];
    return memory + (16 - (size_t)memory % 16);
}

T_FN void run_reference(const stage *g) {
    specv_verify_sample_desc d = stage_describe(g, T_HOST_SIDE);
    d.scratch = no_scratch();
    d.scratch_bytes = INT64_MAX;
    CHECK_EQ(specv_ref_verify_sample(&d), SPECV_OK, -1);
}

#if T_DEVICE
enum { SCRATCH_GUARD = 16 }; /* bytes behind scratch memory that nobody may write */

/* Scratch memory as a caller has to prepare it: tickets are zero, the rest was never written, so
   that the interpreter and initcheck see it if a kernel reads what no kernel wrote. To be freed. */
static void *new_scratch(int64_t bytes) {
    char *scratch;
    T_CUDA(cudaMalloc((void **)&scratch, (size_t)bytes + SCRATCH_GUARD));
    T_CUDA(cudaMemset(scratch, 0, SPECV_TICKET_BYTES));
    T_CUDA(cudaMemset(scratch + bytes, T_POISON, SCRATCH_GUARD));
    return scratch;
}

/* The device's descriptor, with scratch memory of its own. */
static specv_verify_sample_desc describe_device(const stage *g) {
    specv_verify_sample_desc d = stage_describe(g, T_DEVICE_SIDE);
    d.scratch_bytes =
        specv_verify_sample_scratch_bytes(g->c.s.batch, g->c.s.max_draft, g->c.s.vocab);
    d.scratch = new_scratch(d.scratch_bytes);
    return d;
}

/* Behind a launch: tickets are 0 again, and nothing was written behind scratch memory. */
T_FN void check_scratch(const void *scratch, int64_t bytes) {
    static char tickets[SPECV_TICKET_BYTES];
    char guard[SCRATCH_GUARD];
    int wrong = 0;
    T_CUDA(cudaMemcpy(tickets, scratch, sizeof tickets, cudaMemcpyDeviceToHost));
    T_CUDA(cudaMemcpy(guard, (const char *)scratch + bytes, sizeof guard, cudaMemcpyDeviceToHost));
    for (int i = 0; i < SPECV_TICKET_BYTES; ++i) wrong += tickets[i] != 0;
    CHECK_EQ(wrong, 0, -1);
    for (int i = 0; i < SCRATCH_GUARD; ++i) CHECK_EQ((uint8_t)guard[i], T_POISON, i);
}
#endif

/* The device says what the reference has said. */
T_FN void run_device(const stage *g) {
#if T_DEVICE
    specv_verify_sample_desc d = describe_device(g);
    CHECK_EQ(specv_verify_sample(&d, 0), SPECV_OK, -1);
    t_check_device();
    T_CUDA(cudaFree(d.scratch));
#else
    (void)g;
#endif
}

static scene plain_scene(int num_rows, int max_draft, int vocab) {
    scene c;
    memset(&c, 0, sizeof c);
    c.s.batch = num_rows, c.s.max_draft = max_draft, c.s.vocab = vocab;
    c.draft_dtype = SPECV_LOGITS_F32;
    c.temperature = 1, c.spread = 3;
    c.num_sms = 8;
    return c;
}

/* Endings that logits can lead to: a target outside the vocabulary is not one of them. */
enum {
    SCORE_ENDINGS = ALL_ENDINGS & ~(1 << END_BONUS_BAD | 1 << END_REJECT_BAD | 1 << END_BOTH_BAD)
};

static const int vocabs[] = {1, 2, 3, 31, 33, 127, 1000, 1023, 1024, 1025, 2048, 2500, 4097};

static scene random_scene(int rule) {
    scene c = plain_scene((int)t_between(1, 6), (int)t_below(6), 8);
    c.s.vocab = t_chance(60) ? T_PICK(vocabs) : t_between(1, 1500);
    c.rule = rule;
    c.target_dtype = (int)t_below(4);
    c.draft_dtype = (int)t_between(NO_DRAFT_SCORES, 3);
    c.s.dtype = t_chance(50) ? SPECV_I64 : SPECV_I32;
    c.s.layout = (layout)t_below(NUM_LAYOUTS);
    c.s.endings = t_chance(30) ? (unsigned)SCORE_ENDINGS : 0;
    if (c.s.vocab < 8) c.s.endings = 0; /* too few ids for what those ask for */
    if (c.s.vocab == 1) c.s.spread = SPREAD_ALL;
    c.s.num_eos = c.s.vocab >= 8 && t_chance(50) ? (int)t_between(1, 4) : 0;
    c.s.has_num_active = t_chance(20), c.s.num_active = (int)t_between(-1, c.s.batch + 1);
    c.s.outputs = t_chance(30) ? (unsigned)t_between(1, OUT_ALL) : 0;
    if (c.s.layout != CSR && t_chance(30)) c.s.draft_gap = (int)t_below(4), c.s.out_gap = 3;
    c.temperature = t_chance(40) ? -1.f : t_chance(50) ? 1.f : 0.6f;
    c.spread = t_chance(30) ? 0.02f : t_chance(20) ? 20 : 3;
    c.odd = t_chance(50) ? 0 : 1u << t_below(8);
    if (t_chance(15)) c.odd = (unsigned)t_below(ODD_ALL + 1);
    c.s.keep_status = !c.odd && t_chance(30);
    c.uniforms = t_chance(40);
    c.gap = t_chance(40) ? (int)t_below(20) : 0;
    c.offset = t_chance(40) ? (int)t_below(16) : 0;
    c.null_extra = t_chance(20);
    c.num_sms = t_chance(20) ? 1 : (int)t_between(1, 40);
    c.stream = t_chance(20), c.step_row = t_chance(20) ? (int)t_below(9) : 0;
    c.slots = t_chance(40);
    return c;
}

/* ------------------------------------------------------------------------- what is refused */

/* Something to point to: nothing of it is read or written. */
static SPECV_UNUSED double storage[64];

T_FN int launch(const specv_verify_sample_desc *d) {
#if T_DEVICE
    return specv_verify_sample(d, 0);
#else
    return specv_ref_verify_sample(d);
#endif
}

T_FN int launch_sample(const specv_sample_desc *d) {
#if T_DEVICE
    return specv_sample(d, 0);
#else
    return specv_ref_sample(d);
#endif
}

#endif /* SCORES_H_INCLUDED */
