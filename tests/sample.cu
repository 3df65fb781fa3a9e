/* sample.cu - A2 to A5 and A8: verification and sampling from scores over the vocabulary.

   For temperature 0 the answers come from batch.h, as for A1: the scores are built around its
   target tokens. For the sampled rules the reference is the oracle of the device, bit for bit, over
   every type, layout and accident of the scores; that the reference follows the published rules is
   shown in law.cu and numeric.cu. */

#include "batch.h"

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
    ODD_ALL = 255
};

enum { NO_DRAFT_SCORES = -1 };

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
} scene;

typedef struct stage {
    scene c;
    batch b;
    t_buf target, draft, temperature, draft_temperature, seed, position, accept, sample, logprob,
        lse;
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

static float normal(float spread) {
    double sum = 0;
    for (int i = 0; i < 6; ++i) sum += t_uniform();
    return (float)((sum - 3) * 1.4142) * spread;
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
        if (x == top) value = probs ? 0.75f : (float)largest + 2;
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

/* Where position j of a row has its scores. */
static int64_t scores_at(const stage *g, int row, int j, int of_draft) {
    const int64_t pos_stride = g->c.s.vocab + g->c.gap;
    const int64_t seq_stride = (g->c.s.max_draft + !of_draft) * pos_stride + 2 * g->c.gap;
    if (g->c.s.layout == CSR)
        return g->c.offset + (g->b.rows[row].first + (of_draft ? 0 : row) + j) * pos_stride;
    return g->c.offset + row * seq_stride + j * pos_stride;
}

static t_buf new_scores(const stage *g, int dtype, int of_draft) {
    const int64_t bytes = dtype == SPECV_LOGITS_F16 || dtype == SPECV_LOGITS_BF16 ? 2 : 4;
    const int rows = g->c.s.batch, positions = g->c.s.max_draft + !of_draft;
    int64_t end = 0;
    if (g->c.s.layout == CSR)
        end = (g->b.num_draft_tokens + (of_draft ? 0 : rows)) * (g->c.s.vocab + g->c.gap);
    else if (rows > 0 && positions > 0)
        end = scores_at(g, rows - 1, positions - 1, of_draft) - g->c.offset + g->c.s.vocab;
    return t_in((g->c.offset + end) * bytes, 0);
}

static void put_position(stage *g, float *base, int row, int j, int has_draft) {
    const scene *c = &g->c;
    const truth *r = &g->b.rows[row];
    const int64_t target_first =
        c->s.layout == CSR ? r->first + row : row * g->b.target_stride;
    const int64_t token = get_token(&g->b.target, c->s.dtype, target_first + j);
    const int64_t target_at = scores_at(g, row, j, 0);
    const int sure = c->rule == SPECV_RULE_GREEDY || t_chance(30);
    for (int64_t x = 0; x < c->s.vocab; ++x) {
        base[x] = normal(c->spread);
        if (c->odd & ODD_TIES) base[x] = (float)(int)base[x];
        if (c->odd & ODD_DISJOINT && x % 2) base[x] = -60;
    }
    put_scores(c, &g->target, c->target_dtype, target_at, base, sure ? token : -1);
    if (!has_draft || c->draft_dtype < 0) return;
    for (int64_t x = 0; x < c->s.vocab; ++x) {
        if (c->odd & ODD_LIAR) base[x] = normal(c->spread);
        if (!(c->odd & ODD_SAME)) base[x] += normal(0.3f * c->spread);
        if (c->odd & ODD_DISJOINT) base[x] = x % 2 ? normal(c->spread) : -60;
    }
    put_scores(c, &g->draft, c->draft_dtype, scores_at(g, row, j, 1), base, -1);
}

static void stage_make(stage *g, const scene *c) {
    const int64_t rows = c->s.batch;
    float *base = (float *)malloc(sizeof(float) * (size_t)(c->s.vocab + 1));
    specv_verify_sample_desc d;
    if (!base) t_die(__FILE__, __LINE__, "malloc", "no memory");
    memset(g, 0, sizeof *g);
    g->c = *c;
    batch_make(&g->b, &c->s);
    g->target = new_scores(g, c->target_dtype, 0);
    if (c->draft_dtype >= 0) g->draft = new_scores(g, c->draft_dtype, 1);
    for (int row = 0; row < rows; ++row)
        for (int j = 0; g->b.rows[row].first >= 0 && j <= g->b.rows[row].n_draft; ++j)
            put_position(g, base, row, j, j < g->b.rows[row].n_draft);
    free(base);
    g->temperature = t_in(4 * rows, 0);
    if (t_chance(50)) g->draft_temperature = t_in(4 * rows, 0);
    g->seed = t_in(8 * rows, 0);
    g->position = t_in(4 * rows, 0);
    for (int row = 0; row < rows; ++row) {
        ((float *)(void *)g->temperature.host)[row] = draw_temperature(c);
        if (g->draft_temperature.host)
            ((float *)(void *)g->draft_temperature.host)[row] = draw_temperature(c);
        ((uint64_t *)(void *)g->seed.host)[row] = t_random();
        ((int32_t *)(void *)g->position.host)[row] = (int32_t)t_below(100000);
    }
    if (c->uniforms) {
        const int64_t count = (int64_t)(g->b.draft.bytes / (c->s.dtype == SPECV_I64 ? 8 : 4));
        g->accept = t_in(4 * count, 0);
        g->sample = t_in(4 * rows, 0);
        for (int64_t i = 0; i < count; ++i)
            ((float *)(void *)g->accept.host)[i] = t_chance(5) ? 0 : (float)t_below(1 << 24) * 0x1p-24f;
        for (int64_t i = 0; i < rows; ++i)
            ((float *)(void *)g->sample.host)[i] =
                t_chance(10) ? (t_chance(50) ? 0 : 1 - 0x1p-24f) : (float)t_uniform();
    }
    if (!c->null_extra) g->logprob = t_out(4 * rows, 0), g->lse = t_out(4 * rows, 0);
    (void)d;
}

static specv_verify_sample_desc stage_describe(const stage *g, int side) {
    const int64_t pos_stride = g->c.s.vocab + g->c.gap;
    specv_verify_sample_desc d = SPECV_ZERO;
    d.verify = batch_describe(&g->b, side);
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
            d.target.seq_stride_elems = (g->c.s.max_draft + 1) * pos_stride + 2 * g->c.gap;
            d.draft.seq_stride_elems = g->c.s.max_draft * pos_stride + 2 * g->c.gap;
        }
    }
    d.temperature = (const float *)t_at(&g->temperature, side);
    d.draft_temperature = (const float *)t_at(&g->draft_temperature, side);
    d.seed = (const uint64_t *)t_at(&g->seed, side);
    d.position = (const int32_t *)t_at(&g->position, side);
    d.accept_uniform = (const float *)t_at(&g->accept, side);
    d.sample_uniform = (const float *)t_at(&g->sample, side);
    d.logprob = (float *)t_at(&g->logprob, side);
    d.lse = (float *)t_at(&g->lse, side);
    d.rule = g->c.rule;
    d.num_sms = g->c.num_sms;
    d.stream = g->c.stream;
    d.step_row = g->c.step_row;
    return d;
}

static char no_scratch[16 + 16]; /* the reference needs none, but a descriptor must name some */

static void scene_run(const scene *c) {
    static const char *const rules[] = {"token", "block", "coupled", "greedy"};
    stage g;
    specv_verify_sample_desc d;
    t_note(" %s, scores %d and %d, odd %#x, T %g, spread %g, %s, gap %d, offset %d,", rules[c->rule],
           c->target_dtype, c->draft_dtype, c->odd, (double)c->temperature, (double)c->spread,
           c->uniforms ? "uniforms" : "seeds", c->gap, c->offset);
    batch_note(&c->s);
    stage_make(&g, c);
    t_upload();
    d = stage_describe(&g, T_HOST_SIDE);
    d.scratch = no_scratch + (16 - (size_t)no_scratch % 16);
    d.scratch_bytes = INT64_MAX;
    CHECK_EQ(specv_ref_verify_sample(&d), SPECV_OK, -1);
    if (c->rule == SPECV_RULE_GREEDY && !(c->odd & (ODD_TOP | ODD_EMPTY))) {
        /* Only these say NaN; the tokens are known all the same. */
        if (c->odd & ODD_NAN && g.b.status.host)
            for (int row = 0; row < c->s.batch; ++row)
                ((uint32_t *)(void *)g.b.status.host)[row] &= ~(uint32_t)SPECV_ROW_NAN;
        if (!(c->odd & ODD_NAN)) batch_check(&g.b, NULL);
    }
    t_check_host();
#if T_DEVICE
    {
        int64_t bytes = specv_verify_sample_scratch_bytes(&d);
        char *scratch, tickets[8] = {0};
        T_CUDA(cudaMalloc((void **)&scratch, (size_t)bytes + 16));
        T_CUDA(cudaMemset(scratch, 0, (size_t)bytes));
        T_CUDA(cudaMemset(scratch + bytes, T_POISON, 16));
        d = stage_describe(&g, T_DEVICE_SIDE);
        d.scratch = scratch;
        d.scratch_bytes = bytes;
        CHECK_EQ(specv_verify_sample(&d, 0), SPECV_OK, -1);
        if (!(c->rule == SPECV_RULE_GREEDY && c->odd & ODD_NAN)) t_check_device();
        t_poison_device(); /* again, with the scratch as it was left */
        CHECK_EQ(specv_verify_sample(&d, 0), SPECV_OK, -1);
        if (!(c->rule == SPECV_RULE_GREEDY && c->odd & ODD_NAN)) t_check_device();
        for (int row = 0; row < c->s.batch; ++row) {
            T_CUDA(cudaMemcpy(tickets, scratch + 4 * row, 4, cudaMemcpyDeviceToHost));
            T_CUDA(cudaMemcpy(tickets + 4, scratch + 4 * (c->s.batch + row), 4,
                              cudaMemcpyDeviceToHost));
            for (int i = 0; i < 8; ++i) CHECK_EQ(tickets[i], 0, row);
        }
        T_CUDA(cudaMemcpy(tickets, scratch + bytes, 8, cudaMemcpyDeviceToHost));
        for (int i = 0; i < 8; ++i) CHECK_EQ((uint8_t)tickets[i], T_POISON, bytes + i);
        T_CUDA(cudaFree(scratch));
    }
#endif
    batch_free(&g.b);
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

static void test_first(void) {
    for (int rule = 0; rule < 4; ++rule)
        for (int dtype = 0; dtype < 4; ++dtype)
            for (int draft = -1; draft < 4; ++draft) {
                scene c = plain_scene(3, 4, 2500);
                c.rule = rule, c.target_dtype = dtype, c.draft_dtype = draft;
                t_case("every rule and type:");
                scene_run(&c);
            }
}

int main(int argc, char **argv) {
    static const t_group groups[] = {
        {"first", test_first},
    };
    return t_main(argc, argv, groups, T_COUNT(groups));
}
