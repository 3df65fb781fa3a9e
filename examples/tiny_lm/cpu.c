/* SPDX-License-Identifier: MIT-0
 *
 * cpu.c - the C backend of tiny_lm. One thread; every loop over outputs is innermost, so that the
 * compiler can vectorise it without touching the order of a sum.
 */
#define _POSIX_C_SOURCE 200809L
#include "lm.h"
#include "lm_math.h"
#define SPECVERIFY_REF_IMPLEMENTATION
#include "specverify_ref.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* One model with its KV cache. plane = 2 * layer for K, 2 * layer + 1 for V. */
typedef struct cpu_model {
    lm_dims dims;
    const float *weights;
    float *cache; /* [plane][batch][max_seq][d_model] */
    float *kept;  /* [batch * (gamma + 1)][vocab] logits that verification asks for */
} cpu_model;

enum { MAX_BLOCKS = 40 };

typedef struct cpu_state {
    lm_limits limits;
    lm_sampling sampling;
    cpu_model models[LM_NUM_MODELS];
    int32_t *board; /* [board_size] */

    /* activations, [max_rows][...] */
    float *x, *normed, *qkv, *attended, *hidden, *gated, *logits;
    float *scores; /* [max_seq] */

    /* sampling; one scratch memory, as the kit's launches come one after the other */
    float *temperature;          /* [batch] */
    uint64_t *seed;              /* [batch] */
    int32_t *position, *sampled; /* [batch] */
    void *kit_scratch;
    int64_t kit_scratch_bytes;

    /* verification: target KV rows of the drafts, and what the kit packs and reports */
    float *scratch; /* [plane][batch][gamma][d_model] */
    float *packed;  /* [plane][batch * gamma][d_model] */
    const void **src_planes;
    void **dst_planes;                               /* [plane] */
    int32_t *offsets;                                /* [batch + 1] */
    int32_t *draft_len, *accepted_len, *num_emitted; /* [batch] */
    int32_t *out_tokens;                             /* [batch][gamma + 1] */
    int32_t num_active;
    int64_t *histogram; /* [gamma + 1] */
    int64_t totals[SPECV_STAT_COUNT];

    void *blocks[MAX_BLOCKS]; /* all of the above, to free */
    int num_blocks, out_of_memory;
} cpu_state;

static size_t times(int32_t a, int32_t b) { return (size_t)a * (size_t)b; }

static int fail(lm_backend *backend, const char *message) {
    (void)snprintf(backend->message, sizeof backend->message, "%s", message);
    return -1;
}

/* ---- forward pass --------------------------------------------------------------------------- */

/* Sizes of a model are multiples of 32, so columns need no remainder. */
enum { TILE_ROWS = 4, TILE_COLUMNS = 32 };

/* num_rows x TILE_COLUMNS outputs: sums in registers, ascending k. num_rows is a constant in every
 * caller, so the loops unroll. */
static inline void matmul_tile(float *y, const float *residual, const float *x, const float *w,
                               int num_rows, int32_t size_in, int32_t size_out) {
    float sum[TILE_ROWS][TILE_COLUMNS] = {{0}};
    for (int32_t k = 0; k < size_in; k++)
        for (int r = 0; r < num_rows; r++)
            for (int c = 0; c < TILE_COLUMNS; c++)
                sum[r][c] = lm_mac(sum[r][c], x[times(r, size_in) + (size_t)k],
                                   w[times(k, size_out) + (size_t)c]);
    for (int r = 0; r < num_rows; r++)
        for (int c = 0; c < TILE_COLUMNS; c++) {
            size_t at = times(r, size_out) + (size_t)c;
            y[at] = residual ? lm_add(residual[at], sum[r][c]) : sum[r][c];
        }
}

/* y[r] = x[r] w (+ residual[r], which may be y). */
static void matmul(float *y, const float *residual, const float *x, const float *w,
                   int32_t num_rows, int32_t size_in, int32_t size_out) {
    for (int32_t c = 0; c < size_out; c += TILE_COLUMNS) {
        int32_t r = 0;
        for (; r + TILE_ROWS <= num_rows; r += TILE_ROWS) {
            size_t at = times(r, size_out) + (size_t)c;
            matmul_tile(y + at, residual ? residual + at : NULL, x + times(r, size_in), w + c,
                        TILE_ROWS, size_in, size_out);
        }
        for (; r < num_rows; r++) {
            size_t at = times(r, size_out) + (size_t)c;
            matmul_tile(y + at, residual ? residual + at : NULL, x + times(r, size_in), w + c, 1,
                        size_in, size_out);
        }
    }
}

static float halving_tree(float partial[LM_LANES]) {
    for (int half = LM_LANES / 2; half > 0; half /= 2)
        for (int lane = 0; lane < half; lane++)
            partial[lane] = lm_add(partial[lane], partial[lane + half]);
    return partial[0];
}

static void rms_norm(float *out, const float *x, const float *weight, int32_t size) {
    float partial[LM_LANES] = {0}, scale;
    for (int32_t i = 0; i < size; i += LM_LANES) /* size is a multiple of LM_LANES */
        for (int lane = 0; lane < LM_LANES; lane++)
            partial[lane] = lm_mac(partial[lane], x[i + lane], x[i + lane]);
    scale = lm_rms_scale(halving_tree(partial), size);
    for (int32_t i = 0; i < size; i++) out[i] = lm_mul(lm_mul(x[i], scale), weight[i]);
}

/* Where the KV row of a position is: in the cache, or still in the verify scratch. */
static float *kv_row(const cpu_state *s, const cpu_model *m, int32_t plane, const lm_row *row,
                     int32_t pos) {
    const lm_limits *limits = &s->limits;
    size_t index;
    if (pos < row->cache_end) {
        index = times(plane, limits->batch) + (size_t)row->slot;
        index = index * (size_t)m->dims.max_seq + (size_t)pos;
        return m->cache + index * (size_t)m->dims.d_model;
    }
    index = times(plane, limits->batch) + (size_t)row->seq;
    index = index * (size_t)limits->gamma + (size_t)(pos - row->cache_end);
    return s->scratch + index * (size_t)m->dims.d_model;
}

static void rotate(float *head, const float *rope, int32_t head_dim) {
    for (int32_t i = 0; i < head_dim; i += 2) {
        float even = head[i], odd = head[i + 1];
        head[i] = lm_mac(lm_mul(even, rope[i]), -odd, rope[i + 1]);
        head[i + 1] = lm_mac(lm_mul(even, rope[i + 1]), odd, rope[i]);
    }
}

/* RoPE on q and k; k and v to where kv_row says. */
static void rotate_and_store(const cpu_state *s, const cpu_model *m, int32_t layer,
                             const lm_row *row, float *qkv) {
    const int32_t d = m->dims.d_model, head_dim = d / m->dims.num_heads;
    const float *rope = lm_view_of(&m->dims, m->weights).rope + times(row->pos, head_dim);
    for (int32_t i = 0; i < 2 * d; i += head_dim) rotate(qkv + i, rope, head_dim);
    memcpy(kv_row(s, m, 2 * layer, row, row->pos), qkv + d, (size_t)d * sizeof(float));
    memcpy(kv_row(s, m, 2 * layer + 1, row, row->pos), qkv + 2 * d, (size_t)d * sizeof(float));
}

static void attend(const cpu_state *s, const cpu_model *m, int32_t layer, const lm_row *row,
                   const float *q, float *out) {
    const int32_t head_dim = m->dims.d_model / m->dims.num_heads, num_pos = row->pos + 1;
    const float scale = lm_div(1.0f, lm_sqrt((float)head_dim));
    for (int32_t first = 0; first < m->dims.d_model; first += head_dim) {
        float partial[LM_LANES] = {0}, top = -INFINITY, inverse;
        for (int32_t pos = 0; pos < num_pos; pos++) {
            const float *k = kv_row(s, m, 2 * layer, row, pos) + first;
            float sum = 0;
            for (int32_t i = 0; i < head_dim; i++) sum = lm_mac(sum, q[first + i], k[i]);
            s->scores[pos] = lm_mul(sum, scale);
            if (s->scores[pos] > top) top = s->scores[pos];
        }
        for (int32_t pos = 0; pos < num_pos; pos++)
            s->scores[pos] = lm_exp(lm_add(s->scores[pos], -top));
        for (int32_t pos = 0; pos < num_pos; pos++)
            partial[pos % LM_LANES] = lm_add(partial[pos % LM_LANES], s->scores[pos]);
        inverse = lm_div(1.0f, halving_tree(partial));
        for (int32_t i = 0; i < head_dim; i++) out[first + i] = 0;
        for (int32_t pos = 0; pos < num_pos; pos++) {
            const float *v = kv_row(s, m, 2 * layer + 1, row, pos) + first;
            for (int32_t i = 0; i < head_dim; i++)
                out[first + i] = lm_mac(out[first + i], s->scores[pos], v[i]);
        }
        for (int32_t i = 0; i < head_dim; i++) out[first + i] = lm_mul(out[first + i], inverse);
    }
}

static void layer_forward(const cpu_state *s, const cpu_model *m, int32_t index, const lm_row *rows,
                          int32_t num_rows) {
    const int32_t d = m->dims.d_model, ff = m->dims.d_ff;
    const lm_layer layer = lm_layer_of(&m->dims, m->weights, index);
    for (int32_t r = 0; r < num_rows; r++)
        rms_norm(s->normed + times(r, d), s->x + times(r, d), layer.attn_norm, d);
    matmul(s->qkv, NULL, s->normed, layer.wqkv, num_rows, d, 3 * d);
    for (int32_t r = 0; r < num_rows; r++)
        rotate_and_store(s, m, index, rows + r, s->qkv + times(r, 3 * d));
    for (int32_t r = 0; r < num_rows; r++)
        attend(s, m, index, rows + r, s->qkv + times(r, 3 * d), s->attended + times(r, d));
    matmul(s->x, s->x, s->attended, layer.wo, num_rows, d, d);

    for (int32_t r = 0; r < num_rows; r++)
        rms_norm(s->normed + times(r, d), s->x + times(r, d), layer.ffn_norm, d);
    matmul(s->hidden, NULL, s->normed, layer.w_gate_up, num_rows, d, 2 * ff);
    for (int32_t r = 0; r < num_rows; r++)
        for (int32_t i = 0; i < ff; i++)
            s->gated[times(r, ff) + (size_t)i] =
                lm_swiglu(s->hidden[times(r, 2 * ff) + (size_t)i],
                          s->hidden[times(r, 2 * ff) + (size_t)(ff + i)]);
    matmul(s->x, s->x, s->gated, layer.w_down, num_rows, ff, d);
}

/* The lowest id among the largest logits; NaN is never larger. All NaN: -1, no token. */
static int32_t argmax(const float *logits, int32_t vocab) {
    float top = -INFINITY;
    int32_t best = -1;
    for (int32_t i = 0; i < vocab; i++)
        if (logits[i] > top) top = logits[i], best = i;
    return best;
}

/* ---- from logits to tokens ------------------------------------------------------------------ */

/* Of one pass: a token for each of up to `batch` rows. */
static specv_sample_desc sample_desc(const cpu_state *s) {
    specv_sample_desc d = SPECV_ZERO;
    d.num_active = &s->num_active;
    d.batch = s->limits.batch;
    d.vocab = s->models[LM_TARGET].dims.vocab;
    d.scores.data = s->logits;
    d.temperature = s->temperature;
    d.seed = s->seed;
    d.position = s->position;
    d.token = s->sampled;
    d.scratch = s->kit_scratch;
    d.scratch_bytes = s->kit_scratch_bytes;
    return d;
}

static int sample(lm_backend *backend, const lm_row *rows, int32_t num_rows, lm_pick pick) {
    cpu_state *s = (cpu_state *)backend->state;
    specv_sample_desc d = sample_desc(s);
    int status;
    s->num_active = num_rows;
    for (int32_t r = 0; r < num_rows; r++) {
        s->seed[r] = rows[r].seed;
        s->position[r] = rows[r].pos + 1 - pick.step_row; /* of the first token of the step */
    }
    d.method = pick.method == LM_PICK_GUMBEL ? SPECV_SAMPLE_GUMBEL : SPECV_SAMPLE_CDF;
    d.stream = pick.stream;
    d.step_row = pick.step_row;
    status = specv_ref_sample(&d);
    if (status != SPECV_OK) return fail(backend, specv_status_string(status));
    for (int32_t r = 0; r < num_rows; r++) s->board[rows[r].pick_at] = s->sampled[r];
    return 0;
}

static int cpu_forward(lm_backend *backend, int which, const lm_row *rows, int32_t num_rows,
                       int32_t num_silent, lm_pick pick) {
    const cpu_state *s = (const cpu_state *)backend->state;
    const cpu_model *m = &s->models[which];
    const lm_view view = lm_view_of(&m->dims, m->weights);
    const int32_t d = m->dims.d_model, vocab = m->dims.vocab;
    for (int32_t r = 0; r < num_rows; r++) {
        int32_t token = s->board[rows[r].token_at];
        if (token < 0 || token >= vocab) token = 0; /* an argmax over NaN: the draft is rejected */
        memcpy(s->x + times(r, d), view.tok_emb + times(token, d), (size_t)d * sizeof(float));
    }
    for (int32_t l = 0; l < m->dims.num_layers; l++) layer_forward(s, m, l, rows, num_rows);
    rows += num_silent, num_rows -= num_silent;
    for (int32_t r = 0; r < num_rows; r++)
        rms_norm(s->normed + times(r, d), s->x + times(num_silent + r, d), view.final_norm, d);
    matmul(s->logits, NULL, s->normed, view.head, num_rows, d, vocab);
    for (int32_t r = 0; r < num_rows; r++) {
        const float *logits = s->logits + times(r, vocab);
        if (pick.method == LM_PICK_LARGEST) s->board[rows[r].pick_at] = argmax(logits, vocab);
        if (rows[r].keep_at >= 0)
            memcpy(m->kept + times(rows[r].keep_at, vocab), logits, (size_t)vocab * sizeof(float));
    }
    if (pick.method == LM_PICK_CDF || pick.method == LM_PICK_GUMBEL)
        return sample(backend, rows, num_rows, pick);
    return 0;
}

/* ---- verification: the kit's work, then the commit ------------------------------------------ */

/* What all rules share. */
static specv_verify_greedy_desc verify_desc(const cpu_state *s) {
    specv_verify_greedy_desc d = SPECV_ZERO;
    d.rows.num_active = &s->num_active;
    d.rows.draft_len = s->draft_len;
    d.rows.batch = s->limits.batch;
    d.rows.max_draft = s->limits.gamma;
    d.draft_tokens = s->board + s->limits.draft_at;
    d.accepted_len = s->accepted_len;
    d.num_emitted = s->num_emitted;
    d.out_tokens = s->out_tokens;
    d.vocab = s->models[LM_TARGET].dims.vocab;
    return d;
}

static specv_verify_sample_desc verify_sample_desc(const cpu_state *s) {
    specv_verify_sample_desc d = SPECV_ZERO;
    d.verify = verify_desc(s);
    d.rule = s->sampling.rule;
    d.target.data = s->models[LM_TARGET].kept;
    if (s->sampling.use_draft_logits) d.draft.data = s->models[LM_DRAFT].kept;
    d.temperature = s->temperature;
    d.seed = s->seed;
    d.position = s->position;
    d.scratch = s->kit_scratch;
    d.scratch_bytes = s->kit_scratch_bytes;
    return d;
}

static specv_kv_pack kv_pack(const cpu_state *s) {
    const lm_dims *dims = &s->models[LM_TARGET].dims;
    specv_kv_pack kv = SPECV_ZERO;
    kv.src_planes = s->src_planes;
    kv.dst_planes = s->dst_planes;
    kv.num_planes = 2 * dims->num_layers;
    kv.offsets = s->offsets;
    kv.row_bytes = (int64_t)dims->d_model * (int64_t)sizeof(float);
    kv.capacity_rows = (int64_t)s->limits.batch * s->limits.gamma;
    return kv;
}

/* One call verifies and packs. */
static int verify_greedy(const cpu_state *s) {
    specv_verify_pack_kv_desc d = SPECV_ZERO;
    d.verify = verify_desc(s);
    d.verify.target_tokens = s->board + s->limits.target_at;
    d.kv = kv_pack(s);
    return specv_ref_verify_pack_kv(&d);
}

static int verify_sampled(const cpu_state *s) {
    const specv_verify_sample_desc d = verify_sample_desc(s);
    specv_pack_kv_desc pack = SPECV_ZERO;
    int status = specv_ref_verify_sample(&d);
    if (status != SPECV_OK) return status;
    pack.rows = d.verify.rows;
    pack.accepted_len = s->accepted_len;
    pack.kv = kv_pack(s);
    return specv_ref_pack_kv(&pack);
}

static int cpu_verify(lm_backend *backend, const lm_step *step) {
    cpu_state *s = (cpu_state *)backend->state;
    const size_t num_seqs = (size_t)step->num_seqs;
    specv_accept_stats_desc stats = SPECV_ZERO;
    int status;
    s->num_active = step->num_seqs;
    memcpy(s->draft_len, step->draft_len, num_seqs * sizeof *s->draft_len);
    memcpy(s->position, step->cache_end, num_seqs * sizeof *s->position);
    memcpy(s->seed, step->seed, num_seqs * sizeof *s->seed);
    status = s->sampling.rule == SPECV_RULE_GREEDY ? verify_greedy(s) : verify_sampled(s);
    if (status != SPECV_OK) return fail(backend, specv_status_string(status));

    stats.accumulate = 1;
    stats.rows = verify_desc(s).rows;
    stats.accepted_len = s->accepted_len;
    stats.num_emitted = s->num_emitted;
    stats.histogram = s->histogram;
    stats.totals = s->totals;
    status = specv_ref_accept_stats(&stats);
    return status == SPECV_OK ? 0 : fail(backend, specv_status_string(status));
}

static int cpu_commit(lm_backend *backend, const lm_step *step) {
    const cpu_state *s = (const cpu_state *)backend->state;
    const cpu_model *target = &s->models[LM_TARGET];
    const size_t d = (size_t)target->dims.d_model;
    const size_t capacity_rows = times(s->limits.batch, s->limits.gamma);
    for (int32_t seq = 0; seq < step->num_seqs; seq++) {
        const int32_t first = s->offsets[seq], count = s->offsets[seq + 1] - first;
        lm_row to = {0};
        to.slot = step->slot[seq];
        to.cache_end = target->dims.max_seq; /* everything below belongs to the cache */
        for (int32_t plane = 0; plane < 2 * target->dims.num_layers; plane++)
            memcpy(kv_row(s, target, plane, &to, step->cache_end[seq]),
                   s->packed + ((size_t)plane * capacity_rows + (size_t)first) * d,
                   (size_t)count * d * sizeof(float));
        memcpy(s->board + step->text_at[seq], s->out_tokens + times(seq, s->limits.gamma + 1),
               (size_t)s->num_emitted[seq] * sizeof(int32_t));
        step->accepted_len[seq] = s->accepted_len[seq];
        step->num_emitted[seq] = s->num_emitted[seq];
    }
    return 0;
}

/* ---- state ---------------------------------------------------------------------------------- */

static size_t cache_size(const cpu_state *s, const cpu_model *m) {
    return 2 * times(m->dims.num_layers, s->limits.batch) * times(m->dims.max_seq, m->dims.d_model);
}

static size_t scratch_size(const cpu_state *s) {
    const lm_dims *dims = &s->models[LM_TARGET].dims;
    return 2 * times(dims->num_layers, dims->d_model) * times(s->limits.batch, s->limits.gamma);
}

static size_t kept_size(const cpu_state *s, const cpu_model *m) {
    return times(s->limits.batch, s->limits.gamma + 1) * (size_t)m->dims.vocab;
}

static void fill_nan(float *values, size_t count) {
    for (size_t i = 0; i < count; i++) values[i] = NAN;
}

static int cpu_poison(lm_backend *backend) {
    cpu_state *s = (cpu_state *)backend->state;
    for (int which = 0; which < LM_NUM_MODELS; which++)
        fill_nan(s->models[which].cache, cache_size(s, &s->models[which]));
    fill_nan(s->scratch, scratch_size(s));
    fill_nan(s->packed, scratch_size(s));
    for (int which = 0; which < LM_NUM_MODELS; which++)
        fill_nan(s->models[which].kept, kept_size(s, &s->models[which]));
    return 0;
}

static int cpu_write_board(lm_backend *backend, int32_t at, const int32_t *tokens, int32_t count) {
    const cpu_state *s = (const cpu_state *)backend->state;
    memcpy(s->board + at, tokens, (size_t)count * sizeof(int32_t));
    return 0;
}

static int cpu_read_board(lm_backend *backend, int32_t at, int32_t *tokens, int32_t count) {
    const cpu_state *s = (const cpu_state *)backend->state;
    memcpy(tokens, s->board + at, (size_t)count * sizeof(int32_t));
    return 0;
}

static int cpu_read_cache(lm_backend *backend, int which, int32_t plane, int32_t slot,
                          int32_t num_pos, float *rows) {
    const cpu_state *s = (const cpu_state *)backend->state;
    const cpu_model *m = &s->models[which];
    lm_row row = {0};
    row.slot = slot;
    row.cache_end = m->dims.max_seq;
    memcpy(rows, kv_row(s, m, plane, &row, 0), times(num_pos, m->dims.d_model) * sizeof(float));
    return 0;
}

static int cpu_read_stats(lm_backend *backend, int64_t *histogram, int64_t *totals) {
    const cpu_state *s = (const cpu_state *)backend->state;
    memcpy(histogram, s->histogram, (size_t)(s->limits.gamma + 1) * sizeof(int64_t));
    memcpy(totals, s->totals, sizeof s->totals);
    return 0;
}

static double cpu_seconds(lm_backend *backend) {
    struct timespec now;
    (void)backend;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void cpu_close(lm_backend *backend) {
    cpu_state *s = (cpu_state *)backend->state;
    for (int i = 0; i < s->num_blocks; i++) free(s->blocks[i]);
    free(s);
    backend->state = NULL;
}

/* Zeroed memory until cpu_close. Notes a failure, so that one check after many calls is enough. */
static void *zeroed(cpu_state *s, size_t count, size_t size) {
    void *block = calloc(count ? count : 1, size);
    if (!block) s->out_of_memory = 1;
    s->blocks[s->num_blocks++] = block;
    return block;
}

static float *floats(cpu_state *s, size_t count) {
    return (float *)zeroed(s, count, sizeof(float));
}

static int32_t *ints(cpu_state *s, size_t count) {
    return (int32_t *)zeroed(s, count, sizeof(int32_t));
}

static void allocate_activations(cpu_state *s) {
    const lm_dims *a = &s->models[LM_TARGET].dims, *b = &s->models[LM_DRAFT].dims;
    const size_t d = (size_t)(a->d_model > b->d_model ? a->d_model : b->d_model);
    const size_t ff = (size_t)(a->d_ff > b->d_ff ? a->d_ff : b->d_ff);
    const size_t rows = (size_t)s->limits.max_rows;
    s->x = floats(s, rows * d);
    s->normed = floats(s, rows * d);
    s->qkv = floats(s, rows * 3 * d);
    s->attended = floats(s, rows * d);
    s->hidden = floats(s, rows * 2 * ff);
    s->gated = floats(s, rows * ff);
    s->logits = floats(s, rows * (size_t)a->vocab);
    s->scores = floats(s, (size_t)(a->max_seq > b->max_seq ? a->max_seq : b->max_seq));
}

static void allocate_verification(cpu_state *s) {
    const size_t batch = (size_t)s->limits.batch, gamma = (size_t)s->limits.gamma;
    const size_t num_planes = 2 * (size_t)s->models[LM_TARGET].dims.num_layers;
    const size_t plane_size = scratch_size(s) / num_planes;
    s->scratch = floats(s, scratch_size(s));
    s->packed = floats(s, scratch_size(s));
    s->src_planes = (const void **)zeroed(s, num_planes, sizeof(void *));
    s->dst_planes = (void **)zeroed(s, num_planes, sizeof(void *));
    s->offsets = ints(s, batch + 1);
    s->draft_len = ints(s, batch);
    s->accepted_len = ints(s, batch);
    s->num_emitted = ints(s, batch);
    s->out_tokens = ints(s, batch * (gamma + 1));
    s->histogram = (int64_t *)zeroed(s, gamma + 1, sizeof(int64_t));
    if (s->out_of_memory) return;
    for (size_t plane = 0; plane < num_planes; plane++) {
        s->src_planes[plane] = s->scratch + plane * plane_size;
        s->dst_planes[plane] = s->packed + plane * plane_size;
    }
}

/* The kit's scratch memory is as large as the larger of its two descriptors says. */
static int allocate_sampling(cpu_state *s) {
    const size_t batch = (size_t)s->limits.batch;
    specv_sample_desc sample;
    specv_verify_sample_desc verify;
    int64_t of_sample, of_verify;
    s->temperature = floats(s, batch);
    s->seed = (uint64_t *)zeroed(s, batch, sizeof(uint64_t));
    s->position = ints(s, batch);
    s->sampled = ints(s, batch);
    if (s->out_of_memory) return SPECV_OK;
    for (size_t i = 0; i < batch; i++) s->temperature[i] = s->sampling.temperature;
    sample = sample_desc(s);
    verify = verify_sample_desc(s);
    of_sample = specv_sample_scratch_bytes(&sample);
    of_verify = specv_verify_sample_scratch_bytes(&verify);
    if (of_sample < 0) return (int)of_sample;
    if (of_verify < 0) return (int)of_verify;
    s->kit_scratch_bytes = of_sample > of_verify ? of_sample : of_verify;
    s->kit_scratch = zeroed(s, (size_t)s->kit_scratch_bytes, 1);
    return SPECV_OK;
}

/* Did the compiler fuse lm_mac's multiply and add? The two roundings cancel here, one does not. */
static int fuses_multiply_add(void) {
    volatile float factor = 1.0f + 1.0f / 4096.0f;
    volatile float product = factor * factor;
    return lm_mac(-product, factor, factor) != 0;
}

static int cpu_open(lm_backend *backend, const lm_model models[LM_NUM_MODELS],
                    const lm_limits *limits, const lm_sampling *sampling) {
    cpu_state *s = (cpu_state *)calloc(1, sizeof *s);
    int status;
    if (!s) return fail(backend, "out of memory");
    backend->state = s;
    if (fuses_multiply_add()) {
        cpu_close(backend);
        return fail(backend, "built with fused multiply-add: compile with -ffp-contract=off");
    }
    s->limits = *limits;
    s->sampling = *sampling;
    s->board = ints(s, (size_t)limits->board_size);
    for (int which = 0; which < LM_NUM_MODELS; which++) {
        s->models[which].dims = models[which].dims;
        s->models[which].weights = models[which].weights;
        s->models[which].cache = floats(s, cache_size(s, &s->models[which]));
        s->models[which].kept = floats(s, kept_size(s, &s->models[which]));
    }
    allocate_activations(s);
    allocate_verification(s);
    status = allocate_sampling(s);
    if (status == SPECV_OK && !s->out_of_memory) return 0;
    cpu_close(backend);
    return fail(backend, status == SPECV_OK ? "out of memory" : specv_status_string(status));
}

void lm_cpu_backend(lm_backend *backend) {
    memset(backend, 0, sizeof *backend);
    backend->name = "cpu";
    backend->open = cpu_open;
    backend->close = cpu_close;
    backend->poison = cpu_poison;
    backend->write_board = cpu_write_board;
    backend->read_board = cpu_read_board;
    backend->forward = cpu_forward;
    backend->verify = cpu_verify;
    backend->commit = cpu_commit;
    backend->read_cache = cpu_read_cache;
    backend->read_stats = cpu_read_stats;
    backend->seconds = cpu_seconds;
}
