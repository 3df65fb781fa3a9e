/* specverify_ref.h - 0.7.0 - the operations of specverify.cuh in portable C
   SPDX-License-Identifier: MIT-0                              no warranty; use at your own risk

   Do this:
       #define SPECVERIFY_REF_IMPLEMENTATION
   before you include this file in *one* C, C++ or CUDA file. With SPECVERIFY_REF_STATIC defined as
   well, everything is private to that file. With SPECVERIFY_REF_PORTABLE it does not look whether
   the processor that it runs on has more than the compiler may assume: slower, the same bits.

   For two readers: the test that wants to know what is right, and the machine without a GPU.
   Every function takes the descriptor of specverify.cuh, with host pointers in it, runs at once,
   and returns the same status codes. Outputs are equal to the device's, bit for bit. The code is
   the definition written down: one row after the other, one position after the other, a tile of ids
   at a time, nothing shared with the device functions. C99 and C++; no allocation, no state, no
   library; 64 KiB of stack, for trees 128.

   It needs IEEE arithmetic: strict doubles and floats, no -ffast-math.

   Contents: >>api, >>rows; the families of specverify.cuh: >>greedy, >>sample, >>shards, >>pack,
   >>cache, >>trees, >>columns, >>schedule, >>particles, >>stats; >>diff. Licence as in
   specverify.cuh.
*/

#ifndef SPECVERIFY_REF_H_INCLUDED
#define SPECVERIFY_REF_H_INCLUDED

#if defined(__FAST_MATH__) || defined(__ASSOCIATIVE_MATH__) || defined(__RECIPROCAL_MATH__) ||     \
    (__FINITE_MATH_ONLY__ + 0) > 0
#error "specverify_ref.h gives the device's bits only without -ffast-math, -Ofast and their parts"
#endif
#if defined(__FLT_EVAL_METHOD__)
#if __FLT_EVAL_METHOD__ != 0 && __FLT_EVAL_METHOD__ != 16
#error "specverify_ref.h needs floats that are rounded to float: use -mfpmath=sse, not x87"
#endif
#endif

#include "specverify.cuh" /* descriptors, validation and status codes; needs no CUDA in C */

/* ==================================================================================== >>api */

#if defined(SPECVERIFY_REF_STATIC)
#define SPECV_REF_API  static SPECV_UNUSED
#define SPECV_REF_BODY SPECV_REF_API
#else
#define SPECV_REF_API  SPECV_API
#define SPECV_REF_BODY SPECV_API_BODY
#endif

#if !defined(SPECVERIFY_REF_STATIC) || defined(SPECVERIFY_REF_IMPLEMENTATION)

/* A1 to A9, B1 to B5, C1 to C5, D1 to D3, E: see the launchers of the same name. Call: any thread;
   no two calls that share an output. Return 0 or SPECV_ERR_*. */
SPECV_REF_API int specv_ref_verify_greedy(const specv_verify_greedy_desc *d)
    SPECV_AS(specv_ref_verify_greedy);
SPECV_REF_API int specv_ref_verify_sample(const specv_verify_sample_desc *d)
    SPECV_AS(specv_ref_verify_sample);
SPECV_REF_API int specv_ref_sample(const specv_sample_desc *d) SPECV_AS(specv_ref_sample);
SPECV_REF_API int specv_ref_verify_shard(const specv_verify_shard_desc *d)
    SPECV_AS(specv_ref_verify_shard);
SPECV_REF_API int specv_ref_pack_kv(const specv_pack_kv_desc *d) SPECV_AS(specv_ref_pack_kv);
SPECV_REF_API int specv_ref_verify_pack_kv(const specv_verify_pack_kv_desc *d)
    SPECV_AS(specv_ref_verify_pack_kv);
SPECV_REF_API int specv_ref_append_kv(const specv_append_kv_desc *d) SPECV_AS(specv_ref_append_kv);
SPECV_REF_API int specv_ref_page_resize(const specv_page_resize_desc *d)
    SPECV_AS(specv_ref_page_resize);
SPECV_REF_API int specv_ref_page_fork(const specv_page_fork_desc *d) SPECV_AS(specv_ref_page_fork);
SPECV_REF_API int specv_ref_verify_tree(const specv_verify_tree_desc *d)
    SPECV_AS(specv_ref_verify_tree);
SPECV_REF_API int specv_ref_tree_layout(const specv_tree_layout_desc *d)
    SPECV_AS(specv_ref_tree_layout);
SPECV_REF_API int specv_ref_commit_path(const specv_commit_path_desc *d)
    SPECV_AS(specv_ref_commit_path);
SPECV_REF_API int specv_ref_realign(const specv_realign_desc *d) SPECV_AS(specv_ref_realign);
SPECV_REF_API int specv_ref_shift_kv(const specv_shift_kv_desc *d) SPECV_AS(specv_ref_shift_kv);
SPECV_REF_API int specv_ref_gap_commit(const specv_gap_commit_desc *d)
    SPECV_AS(specv_ref_gap_commit);
SPECV_REF_API int specv_ref_compact(const specv_compact_desc *d) SPECV_AS(specv_ref_compact);
SPECV_REF_API int specv_ref_group(const specv_group_desc *d) SPECV_AS(specv_ref_group);
SPECV_REF_API int specv_ref_draft_budget(const specv_draft_budget_desc *d)
    SPECV_AS(specv_ref_draft_budget);
SPECV_REF_API int specv_ref_particle_weights(const specv_particle_weights_desc *d)
    SPECV_AS(specv_ref_particle_weights);
SPECV_REF_API int specv_ref_resample_plan(const specv_resample_plan_desc *d)
    SPECV_AS(specv_ref_resample_plan);
SPECV_REF_API int specv_ref_reshuffle(const specv_reshuffle_desc *d) SPECV_AS(specv_ref_reshuffle);
SPECV_REF_API int specv_ref_accept_stats(const specv_accept_stats_desc *d)
    SPECV_AS(specv_ref_accept_stats);

/* Compares two buffers of `count` elements of `bytes` bytes each. Returns how many elements
   differ; *first, if not null, gets the index of the first that does, or -1. */
SPECV_REF_API int64_t specv_ref_diff(const void *a, const void *b, int64_t count, int64_t bytes,
                                     int64_t *first) SPECV_AS(specv_ref_diff);

/* SPECVERIFY_VERSION of the reference that was linked. */
SPECV_REF_API int specv_ref_version(void) SPECV_AS(specv_ref_version);

#endif
#endif /* SPECVERIFY_REF_H_INCLUDED */

#if defined(SPECVERIFY_REF_IMPLEMENTATION) && !defined(SPECVERIFY_REF_IMPLEMENTATION_INCLUDED)
#define SPECVERIFY_REF_IMPLEMENTATION_INCLUDED

#if defined(SPECVERIFY_EXPORT) && !defined(SPECV_I_EXPORTING)
#error "SPECVERIFY_EXPORT: define SPECVERIFY_REF_IMPLEMENTATION before the first include"
#endif

/* =================================================================================== >>rows */

/* A token buffer seen as 64-bit numbers, whatever its dtype. */
static int64_t specv_ref_i_get(const void *tokens, int dtype, int64_t index) {
    if (dtype == SPECV_I64) return ((const int64_t *)tokens)[index];
    return ((const int32_t *)tokens)[index];
}

static void specv_ref_i_put(void *tokens, int dtype, int64_t index, int64_t token) {
    if (dtype == SPECV_I64)
        ((int64_t *)tokens)[index] = token;
    else
        ((int32_t *)tokens)[index] = (int32_t)token;
}

static int specv_ref_i_is_live(const specv_rows *rows, int b) {
    return rows->num_active == NULL || b < *rows->num_active;
}

/* The slot of live row b, or -1 and a bit in *status: it is none of 0..num_slots-1, or an earlier
   row has it too and `writes`, state of the request is written. */
static int32_t specv_ref_i_slot(const void *slot, int32_t slot_dtype, int32_t num_slots, int b,
                                int writes, uint32_t *status) {
    int64_t mine;
    int bad;
    if (slot == NULL) return b;
    mine = specv_ref_i_get(slot, slot_dtype, b);
    bad = mine < 0 || mine >= num_slots;
    for (int before = 0; writes && before < b; ++before)
        bad |= specv_ref_i_get(slot, slot_dtype, before) == mine;
    if (!bad) return (int32_t)mine;
    *status |= SPECV_ROW_BAD_SLOT;
    return -1;
}

/* CSR: index of row b's first draft; of row `batch`, the end of the last. */
static int64_t specv_ref_i_row_first(const specv_rows *rows, int b) {
    if (rows->row_start) return rows->row_start[b];
    return b == 0 ? 0 : rows->row_end[b - 1];
}

/* Drafts of row b, or -1 if its length is outside its range. */
static int32_t specv_ref_i_num_drafts(const specv_rows *rows, int b) {
    int64_t start, end, num_drafts = rows->max_draft;
    if (specv_i_is_csr(rows)) {
        start = specv_ref_i_row_first(rows, b);
        end = specv_ref_i_row_first(rows, b + 1);
        if (start < 0 || end > rows->num_draft_tokens) return -1;
        num_drafts = end - start;
    } else if (rows->draft_len) {
        num_drafts = rows->draft_len[b];
    }
    if (num_drafts < 0 || num_drafts > rows->max_draft) return -1;
    return (int32_t)num_drafts;
}

static int specv_ref_i_is_token(const specv_verify_greedy_desc *d, int64_t token) {
    if (token < 0) return 0;
    return d->vocab == 0 || token < d->vocab;
}

static int specv_ref_i_is_eos(const specv_verify_greedy_desc *d, int64_t token) {
    for (int i = 0; i < d->num_eos; ++i)
        if (d->eos_token[i] == token) return 1;
    return 0;
}

/* What a step says of one row. */
typedef struct specv_ref_i_outcome {
    int32_t accepted;
    int mismatch, finished;
    int64_t next_token;
    uint32_t status;
} specv_ref_i_outcome;

static int64_t specv_ref_i_first_draft(const specv_verify_greedy_desc *d, int b) {
    if (specv_i_is_csr(&d->rows)) return specv_ref_i_row_first(&d->rows, b);
    return b * (d->draft_stride_elems ? d->draft_stride_elems : d->rows.max_draft);
}

/* Drafts of row b that may be read, or -1 if nothing of it may be: inert, or CSR with a length out
   of range. A dense row with such a length counts as one without drafts. */
static int32_t specv_ref_i_open_row(const specv_verify_greedy_desc *d, int b, uint32_t *status) {
    int32_t num_drafts = specv_ref_i_num_drafts(&d->rows, b);
    if (!specv_ref_i_is_live(&d->rows, b)) return -1;
    if (num_drafts >= 0) return num_drafts;
    *status |= SPECV_ROW_BAD_LENGTH;
    return specv_i_is_csr(&d->rows) ? -1 : 0;
}

static void specv_ref_i_write_row(const specv_verify_greedy_desc *d, int b,
                                  const specv_ref_i_outcome *o) {
    const int dtype = d->token_dtype;
    const int64_t columns = (int64_t)d->rows.max_draft + 1;
    const int64_t out = b * (d->out_stride_elems ? d->out_stride_elems : columns);
    if (d->accepted_len) d->accepted_len[b] = o->accepted;
    if (d->mismatch) d->mismatch[b] = (uint8_t)o->mismatch;
    if (d->next_token) specv_ref_i_put(d->next_token, dtype, b, o->next_token);
    if (d->num_emitted) d->num_emitted[b] = o->accepted + (o->next_token >= 0 ? 1 : 0);
    if (d->finished) d->finished[b] = (uint8_t)o->finished;
    specv_i_put_status(d->row_status, b, o->status, d->keep_status);
    if (!d->out_tokens) return;
    for (int64_t column = 0; column < columns; ++column) {
        int64_t token = -1;
        if (column < o->accepted)
            token = specv_ref_i_get(d->draft_tokens, dtype, specv_ref_i_first_draft(d, b) + column);
        if (column == o->accepted) token = o->next_token;
        specv_ref_i_put(d->out_tokens, dtype, out + column, token);
    }
}

/* ================================================================================== >>greedy */

/* a = target, d = draft, n = drafts of the row:
       k = min { j : a[j] != d[j], or j = n };   emit d[0..k-1], a[k]
   and nothing after an EOS. Greedy case of Leviathan et al. 2023 (arXiv 2211.17192). */
static void specv_ref_i_verify_row(const specv_verify_greedy_desc *d, int b) {
    const int dtype = d->token_dtype;
    const int64_t columns = (int64_t)d->rows.max_draft + 1;
    const int64_t draft_base = specv_ref_i_first_draft(d, b);
    specv_ref_i_outcome o = {0, 0, 0, -1, 0};
    int32_t num_drafts = specv_ref_i_open_row(d, b, &o.status);
    int64_t target_base = specv_i_is_csr(&d->rows)
                              ? draft_base + b
                              : b * (d->target_stride_elems ? d->target_stride_elems : columns);
    if (num_drafts >= 0) {
        while (o.accepted < num_drafts && !o.mismatch && !o.finished) {
            int64_t draft = specv_ref_i_get(d->draft_tokens, dtype, draft_base + o.accepted);
            int64_t target = specv_ref_i_get(d->target_tokens, dtype, target_base + o.accepted);
            if (draft == target && specv_ref_i_is_token(d, draft)) {
                o.accepted += 1;
                o.finished = specv_ref_i_is_eos(d, draft);
            } else {
                o.mismatch = 1;
                if (draft != -1 && !specv_ref_i_is_token(d, draft)) o.status |= SPECV_ROW_BAD_DRAFT;
            }
        }
        if (!o.finished) {
            o.next_token = specv_ref_i_get(d->target_tokens, dtype, target_base + o.accepted);
            if (!specv_ref_i_is_token(d, o.next_token)) {
                o.next_token = -1;
                o.status |= SPECV_ROW_BAD_TARGET;
            }
            o.finished = specv_ref_i_is_eos(d, o.next_token);
        }
    }
    specv_ref_i_write_row(d, b, &o);
}

SPECV_REF_BODY int specv_ref_verify_greedy(const specv_verify_greedy_desc *d) {
    int status = specv_verify_greedy_validate(d);
    if (status != SPECV_OK) return status;
    for (int b = 0; b < d->rows.batch; ++b) specv_ref_i_verify_row(d, b);
    return SPECV_OK;
}

/* ================================================================================== >>sample */

/* ---- What the models say */

/* One position of the target's or the draft's scores, and what sampling needs to know of it. */
typedef struct specv_ref_i_scores {
    const specv_scores *scores; /* null: no draft scores, q is 1 at the draft */
    int probs;     /* probabilities, taken as they are; with filters they are weights */
    int64_t first; /* element of id 0 */
    int64_t vocab;
    const uint32_t *mask;  /* of this position, or null */
    uint64_t least;        /* rank key of the last id that filters keep; 0: they keep all */
    int is_told;           /* scores are with other ranks: that of one id is known, */
    float told;            /* this, and no other id is asked for */
    const uint64_t *named; /* or rank keys of all ids that can be kept, 0 behind them; or null */
    int32_t num_named;
    specv_scale scale; /* logits at a temperature that is not 0 */
    specv_distribution row;
} specv_ref_i_scores;

static int specv_ref_i_are_probs(const specv_scores *s) { return s->dtype == SPECV_PROBS_F32; }

/* What counts as the score of id x, of which the model said this. A NaN, or a probability that is
   none, is as good as absent: -inf. So is what filters leave out. */
static float specv_ref_i_allowed(specv_ref_i_scores *r, int64_t x, float score) {
    const float absent = specv_bits_float(0xff800000u);
    if (r->mask && !(r->mask[x / 32] >> x % 32 & 1)) return absent;
    if (score != score || (specv_ref_i_are_probs(r->scores) && !(score >= 0 && score <= 2))) {
        r->row.status |= SPECV_ROW_NAN;
        return absent;
    }
    if (r->scale.of_probs) score = specv_i_weight_score(score);
    if (r->least && specv_rank_key(score, (int32_t)x) < r->least) return absent;
    return score;
}

/* Of ids that others named; what they did not name is as good as absent. */
static float specv_ref_i_score_of_named(const specv_ref_i_scores *r, int64_t x) {
    for (int32_t i = 0; i < r->num_named && r->named[i]; ++i)
        if (specv_i_id_of_rank_key(r->named[i]) == x) return specv_i_score_of_rank_key(r->named[i]);
    return specv_bits_float(0xff800000u);
}

static float specv_ref_i_said(const specv_ref_i_scores *r, int64_t x) {
    const void *data = r->scores->data;
    if (r->is_told) return r->told;
    if (r->named) return specv_ref_i_score_of_named(r, x);
    if (r->scores->dtype == SPECV_LOGITS_F16)
        return specv_f16_float(((const uint16_t *)data)[r->first + x]);
    if (r->scores->dtype == SPECV_LOGITS_BF16)
        return specv_bf16_float(((const uint16_t *)data)[r->first + x]);
    return ((const float *)data)[r->first + x];
}

static float specv_ref_i_score(specv_ref_i_scores *r, int64_t x) {
    return specv_ref_i_allowed(r, x, specv_ref_i_said(r, x));
}

/* ---- A tile of a position

   The same is asked of every id: its weight, its probability. Tiles are arrays, gone through step
   by step with loops that compilers make vectors of; what comes out is what the kit's functions
   of numbers give for each id alone. */
enum { SPECV_REF_I_STEP = 8 };

/* for (int i = 0; i < count; ++i), in whole steps: loops of a length that compilers know. */
#define SPECV_REF_I_EACH(i, count)                                                                 \
    for (int i##_0 = 0; i##_0 < (count); i##_0 += SPECV_REF_I_STEP)                                \
        for (int i = i##_0; i < i##_0 + SPECV_REF_I_STEP; ++i)

typedef struct specv_ref_i_tile {
    int64_t begin;
    int32_t count, padded;       /* ids; with what fills the last step: scores of -inf */
    float score[SPECV_TILE_IDS]; /* the rest is there where it was asked for: */
    int32_t n[SPECV_TILE_IDS];   /* of the weight, as the mantissa */
    uint32_t mantissa[SPECV_TILE_IDS];
    float weight[SPECV_TILE_IDS]; /* as a float, relative to the row */
    float logit[SPECV_TILE_IDS];  /* the score, raised to where a weight is 0 */
    float f[SPECV_TILE_IDS];      /* of logit * c = n + f */
} specv_ref_i_tile;

static void specv_ref_i_open_tile(specv_ref_i_scores *r, int64_t begin, specv_ref_i_tile *t) {
    const int64_t rest = r->vocab - begin, at = r->first + begin;
    const int count = rest < SPECV_TILE_IDS ? (int)rest : SPECV_TILE_IDS;
    const int whole = count / SPECV_REF_I_STEP * SPECV_REF_I_STEP;
    const uint16_t *code =
        (const uint16_t *)r->scores->data + at; /* one of the two is what it is */
    const float *full = (const float *)r->scores->data + at;
    const int are_probs = specv_ref_i_are_probs(r->scores);
    const uint32_t sign = are_probs ? 0x80000000u : 0,
                   limit = are_probs ? 0x40000000u : 0x7f800000u;
    uint32_t odd = r->mask || r->scale.of_probs || r->least ? 0x80000000u : 0;
    float *score = t->score;
    t->begin = begin, t->count = count;
    t->padded = count > whole ? whole + SPECV_REF_I_STEP : whole;
    if (r->named) {
        for (int i = 0; i < t->padded; ++i) score[i] = specv_bits_float(0xff800000u);
        for (int32_t i = 0; i < r->num_named && r->named[i] >= r->least && r->named[i]; ++i) {
            const int64_t x = specv_i_id_of_rank_key(r->named[i]) - begin;
            if (x >= 0 && x < count) score[x] = specv_i_score_of_rank_key(r->named[i]);
        }
        return;
    }
    if (r->scores->dtype == SPECV_LOGITS_F16)
        for (int i = 0; i < whole; ++i) score[i] = specv_f16_float(code[i]);
    else if (r->scores->dtype == SPECV_LOGITS_BF16)
        SPECV_REF_I_EACH(i, whole) score[i] = specv_bf16_float(code[i]);
    else
        for (int i = 0; i < whole; ++i) score[i] = full[i];
    for (int i = whole; i < count; ++i) score[i] = specv_ref_i_said(r, begin + i);
    for (int i = 0; i < count;
         ++i) { /* a NaN, or a probability below 0 or above 2, sets the sign */
        const uint32_t bits = specv_float_bits(score[i]);
        odd |= (limit - (bits & 0x7fffffffu)) | (bits & sign);
    }
    for (int i = 0; i < count && odd >> 31; ++i)
        score[i] = specv_ref_i_allowed(r, begin + i, score[i]);
    for (int i = count; i < t->padded; ++i) score[i] = specv_bits_float(0xff800000u);
}

/* An x86-64 build that may not assume the instruction that multiplies and adds looks for it when it
   runs: processors have it since 2013, and without it these two loops are all that costs time.
   SPECVERIFY_REF_PORTABLE: it does not look. */
#if defined(__GNUC__) && defined(__x86_64__) && !defined(__FMA__) &&                               \
    !defined(SPECVERIFY_REF_PORTABLE)
#define SPECV_REF_I_LOOKS 1
#define SPECV_REF_I_FUSED static __attribute__((target("avx2,fma"))) void
SPECV_REF_I_FUSED specv_ref_i_horner_fused(float *__restrict__ w, const float *__restrict__ x,
                                           float c, int count) {
    SPECV_REF_I_EACH(i, count) w[i] = __builtin_fmaf(w[i], x[i], c);
}
SPECV_REF_I_FUSED specv_ref_i_add_scaled_fused(float *__restrict__ w, const float *__restrict__ x,
                                               float by, int count) {
    SPECV_REF_I_EACH(i, count) w[i] = __builtin_fmaf(x[i], by, w[i]);
}
static int specv_ref_i_has_fused(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#else
#define SPECV_REF_I_LOOKS 0
#endif

/* w[i] = w[i] * x[i] + c, and w[i] = x[i] * by + w[i], rounded once, for whole steps of ids. */
static void specv_ref_i_horner(float *w, const float *x, float c, int count) {
#if SPECV_REF_I_LOOKS
    if (specv_ref_i_has_fused()) {
        specv_ref_i_horner_fused(w, x, c, count);
        return;
    }
#endif
    SPECV_REF_I_EACH(i, count) w[i] = specv_fma(w[i], x[i], c);
}

static void specv_ref_i_add_scaled(float *w, const float *x, float by, int count) {
#if SPECV_REF_I_LOOKS
    if (specv_ref_i_has_fused()) {
        specv_ref_i_add_scaled_fused(w, x, by, count);
        return;
    }
#endif
    SPECV_REF_I_EACH(i, count) w[i] = specv_fma(x[i], by, w[i]);
}

/* specv_softmax_weight of the tile's ids, the same steps: n and mantissa. */
static void specv_ref_i_weigh(const specv_scale *s, specv_ref_i_tile *t) {
    const int count = t->padded;
    const uint32_t rounder = SPECV_I_ROUNDER_BITS, one = rounder - 0x800000u;
    float w[SPECV_TILE_IDS], *f = t->f;
    SPECV_REF_I_EACH(i, count) t->logit[i] = t->score[i] > s->floor ? t->score[i] : s->floor;
    if (s->of_probs) {
        for (int i = 0; i < count; ++i) {
            const specv_weight weight = specv_softmax_weight(t->logit[i], s);
            t->n[i] = weight.n, t->mantissa[i] = weight.mantissa;
        }
        return;
    }
    SPECV_REF_I_EACH(i, count) f[i] = SPECV_I_ROUNDER;
    specv_ref_i_add_scaled(f, t->logit, s->hi, count);
    SPECV_REF_I_EACH(i, count) t->n[i] = (int32_t)(specv_float_bits(f[i]) - rounder);
    SPECV_REF_I_EACH(i, count) f[i] = SPECV_I_ROUNDER - f[i]; /* exact: -n */
    specv_ref_i_add_scaled(f, t->logit, s->hi, count);
    specv_ref_i_add_scaled(f, t->logit, s->lo, count);
    SPECV_REF_I_EACH(i, count) w[i] = 1287.93335f;
    specv_ref_i_horner(w, f, 11239.791f, count);
    specv_ref_i_horner(w, f, 80685.2969f, count);
    specv_ref_i_horner(w, f, 465595.625f, count);
    specv_ref_i_horner(w, f, 2015165.75f, count);
    specv_ref_i_horner(w, f, 5814540.f, count);
    specv_ref_i_horner(w, f, SPECV_I_ROUNDER, count);
    SPECV_REF_I_EACH(i, count) t->mantissa[i] = specv_float_bits(w[i]) - one;
}

static specv_weight specv_ref_i_weight(const specv_ref_i_tile *t, int i) {
    specv_weight w;
    w.n = t->n[i], w.f = 0, w.mantissa = t->mantissa[i]; /* f: nobody asks */
    return w;
}

/* The weight of an id of the tile, in units of 2^(n - 40). */
static uint64_t specv_ref_i_weight_units(const specv_ref_i_tile *t, int i, int32_t n) {
    const specv_weight w = specv_ref_i_weight(t, i);
    return specv_weight_units(&w, n);
}

/* Is a score of the tile larger? Then it is, and *id the lowest id that has it. */
static void specv_ref_i_raise(const specv_ref_i_tile *t, float *largest, int32_t *id) {
    for (int i = 0; i < t->count; ++i)
        if (t->score[i] > *largest) *largest = t->score[i], *id = (int32_t)t->begin + i;
}

/* Largest score of a position, -inf if there is none; *id: the lowest that has it, or 0. */
static float specv_ref_i_largest(specv_ref_i_scores *r, int32_t *id) {
    float largest = specv_bits_float(0xff800000u);
    specv_ref_i_tile t;
    *id = 0;
    for (int64_t begin = 0; begin < r->vocab; begin += SPECV_TILE_IDS) {
        specv_ref_i_open_tile(r, begin, &t);
        specv_ref_i_raise(&t, &largest, id);
    }
    return largest;
}

/* Has the tile weights, and relative to which n? */
static int specv_ref_i_tile_n(const specv_ref_i_scores *r, const specv_ref_i_tile *t, int32_t *n) {
    float largest = specv_bits_float(0xff800000u);
    int32_t id;
    specv_ref_i_raise(t, &largest, &id);
    if (!specv_in_range(largest, &r->scale)) return 0;
    *n = specv_softmax_weight(largest, &r->scale).n;
    return 1;
}

/* All weights of a row: those of a tile in its own units, then tiles in the row's. */
static uint64_t specv_ref_i_sum(specv_ref_i_scores *r) {
    specv_ref_i_tile t;
    uint64_t all = 0;
    for (int64_t begin = 0; begin < r->vocab; begin += SPECV_TILE_IDS) {
        uint64_t sum = 0;
        int32_t n;
        specv_ref_i_open_tile(r, begin, &t);
        if (!specv_ref_i_tile_n(r, &t, &n)) continue;
        specv_ref_i_weigh(&r->scale, &t);
        for (int i = 0; i < t.count; ++i) sum += specv_ref_i_weight_units(&t, i, n);
        all += specv_i_shift_right(sum, (uint32_t)(r->row.n - n));
    }
    return all;
}

/* ---- A10 */

static const specv_filters *specv_ref_i_filters(const specv_verify_sample_desc *d, int of_draft) {
    return of_draft ? &d->draft_filters : &d->filters;
}

/* Positions of a row of either side's scores, at most. */
static int64_t specv_ref_i_positions(const specv_verify_sample_desc *d, int of_draft) {
    return of_draft ? d->verify.rows.max_draft : specv_i_positions(d);
}

/* Mask of position j, or null. */
static const uint32_t *specv_ref_i_mask(const specv_verify_sample_desc *d, int b, int64_t j,
                                        int of_draft) {
    const specv_rows *rows = &d->verify.rows;
    const specv_filters *f = specv_ref_i_filters(d, of_draft);
    int64_t stride =
        f->mask_stride_words ? f->mask_stride_words : specv_i_row_words(d->verify.vocab);
    int64_t first = b * specv_ref_i_positions(d, of_draft);
    if (specv_i_is_csr(rows))
        first = specv_ref_i_row_first(rows, b) + (of_draft || d->bonus_token ? 0 : b);
    if (f->mask_row) first = f->mask_row[b];
    return f->mask && first >= 0 ? f->mask + (first + j) * stride : NULL;
}

/* Can the row's masks be where mask_row says? */
static int specv_ref_i_mask_is_there(const specv_verify_sample_desc *d, int b, int32_t positions,
                                     int of_draft) {
    const specv_filters *f = specv_ref_i_filters(d, of_draft);
    if (!f->mask_row || f->mask_row[b] == -1) return 1;
    return f->mask_row[b] >= 0 && (int64_t)f->mask_row[b] + positions <= f->num_mask_rows;
}

static int specv_ref_i_masks_are_there(const specv_verify_sample_desc *d, int b, int32_t n_draft) {
    return specv_ref_i_mask_is_there(d, b, n_draft + !d->bonus_token, 0) &&
           specv_ref_i_mask_is_there(d, b, n_draft, 1);
}

/* Limits of a row, in which bad ones count as not given. */
static specv_i_limits specv_ref_i_limits_of(const specv_verify_sample_desc *d, int32_t slot,
                                            int of_draft, uint32_t *status) {
    const specv_filters *f = specv_ref_i_filters(d, of_draft);
    return specv_i_limits_of(f->top_k ? f->top_k[slot] : 0, f->top_p ? f->top_p[slot] : 1,
                             f->min_p ? f->min_p[slot] : 0, f->order, d->verify.vocab, status);
}

static specv_i_limits specv_ref_i_limits(const specv_verify_sample_desc *d, int b, int of_draft) {
    const specv_rows *rows = &d->verify.rows;
    uint32_t reported = 0; /* when the row was opened */
    int32_t slot = specv_ref_i_slot(rows->slot, rows->slot_dtype, rows->num_slots, b, 0, &reported);
    return specv_ref_i_limits_of(d, slot, of_draft, &reported);
}

/* Of the ids that come in the order down to this rank key: their weights, or how many they are. */
static uint64_t specv_ref_i_down_to(specv_ref_i_scores *r, uint64_t key, int weights) {
    specv_ref_i_tile t;
    uint64_t sum = 0;
    for (int64_t begin = 0; begin < r->vocab; begin += SPECV_TILE_IDS) {
        specv_ref_i_open_tile(r, begin, &t);
        if (weights) specv_ref_i_weigh(&r->scale, &t);
        for (int i = 0; i < t.count; ++i) {
            const uint64_t its_key = specv_rank_key(t.score[i], (int32_t)begin + i);
            if (its_key < key || its_key < SPECV_I_LEAST_RANK) continue;
            sum += weights ? specv_ref_i_weight_units(&t, i, r->row.n) : 1;
        }
    }
    return sum;
}

/* Rank key of the id at which that reaches the limit: digit by digit, as in a radix sort, without
   memory to sort in. 0: all ids together have less. */
static uint64_t specv_ref_i_reaches(specv_ref_i_scores *r, uint64_t limit, int weights) {
    enum { DIGIT = 9, VALUES = 1 << DIGIT, KEY = 54 };
    specv_ref_i_tile t;
    uint64_t key = 0; /* its first digits */
    for (int shift = KEY - DIGIT; shift >= 0; shift -= DIGIT) {
        uint64_t sum[VALUES] = {0}; /* of ids with these first digits, by the next one */
        int digit = VALUES - 1;
        for (int64_t begin = 0; begin < r->vocab; begin += SPECV_TILE_IDS) {
            specv_ref_i_open_tile(r, begin, &t);
            if (weights) specv_ref_i_weigh(&r->scale, &t);
            for (int i = 0; i < t.count; ++i) {
                const uint64_t its_key = specv_rank_key(t.score[i], (int32_t)begin + i);
                if (its_key < SPECV_I_LEAST_RANK || its_key >> shift >> DIGIT != key) continue;
                sum[its_key >> shift & (VALUES - 1)] +=
                    weights ? specv_ref_i_weight_units(&t, i, r->row.n) : 1;
            }
        }
        while (digit >= 0 && sum[digit] < limit) limit -= sum[digit--];
        if (digit < 0) return 0;
        key = key << DIGIT | (uint64_t)digit;
    }
    return key;
}

/* Rank key of the last id that has such a weight. */
static uint64_t specv_ref_i_last_above(specv_ref_i_scores *r, uint64_t limit) {
    specv_ref_i_tile t;
    uint64_t last = (uint64_t)1 << 54;
    for (int64_t begin = 0; begin < r->vocab; begin += SPECV_TILE_IDS) {
        specv_ref_i_open_tile(r, begin, &t);
        specv_ref_i_weigh(&r->scale, &t);
        for (int i = 0; i < t.count; ++i) {
            const uint64_t key = specv_rank_key(t.score[i], (int32_t)begin + i);
            if (specv_ref_i_weight_units(&t, i, r->row.n) >= limit && key < last) last = key;
        }
    }
    return last;
}

/* Rank key of the last id that top_k, top_p and min_p keep; 0: all. */
static uint64_t specv_ref_i_cut(specv_ref_i_scores *r, const specv_i_limits *l) {
    const specv_weight largest = specv_softmax_weight(r->row.max, &r->scale);
    uint64_t by_k = 0, by_p = 0, by_min = 0, kept, mass = r->row.sum;
    if (specv_i_limits_are_off(l, r->vocab)) return 0;
    if (l->top_k < r->vocab) by_k = specv_ref_i_reaches(r, (uint64_t)l->top_k, 0);
    if (l->min_p > 0)
        by_min = specv_ref_i_last_above(
            r, specv_i_least_weight(l->min_p, specv_weight_units(&largest, r->row.n)));
    kept = by_k > by_min ? by_k : by_min;
    if (l->has_top_p) {
        if (specv_i_is_of_kept(l, r->vocab))
            mass = specv_ref_i_down_to(r, l->order == SPECV_TOP_K_TOP_P_MIN_P ? by_k : kept, 1);
        by_p = specv_ref_i_reaches(r, specv_i_part_of(l->top_p, mass), 1);
    }
    return kept > by_p ? kept : by_p;
}

/* Position j of row b of the target (or draft) before any score is looked at; *zero: all of its
   weight is on one id. */
static specv_ref_i_scores specv_ref_i_frame(const specv_verify_sample_desc *d, int b, int64_t j,
                                            int of_draft, float temperature, int *zero) {
    const specv_rows *rows = &d->verify.rows;
    const specv_scores *scores = of_draft ? &d->draft : &d->target;
    const int64_t positions = specv_ref_i_positions(d, of_draft);
    specv_ref_i_scores r;
    int64_t pos_stride = scores->pos_stride_elems ? scores->pos_stride_elems : d->verify.vocab;
    int64_t seq_stride =
        scores->seq_stride_elems ? scores->seq_stride_elems : positions * pos_stride;
    *zero = specv_temperature_is_0(temperature) || d->rule == SPECV_RULE_GREEDY;
    if (of_draft && specv_ref_i_are_probs(scores)) *zero = 0; /* q is what it says */
    r.scores = scores;
    r.probs = specv_ref_i_are_probs(scores) && !specv_i_weighs_probs(d);
    r.vocab = d->verify.vocab;
    r.first = b * seq_stride + j * pos_stride;
    if (specv_i_is_csr(rows))
        r.first = (specv_ref_i_row_first(rows, b) + (of_draft || d->bonus_token ? 0 : b) + j) *
                  pos_stride;
    r.mask = specv_ref_i_mask(d, b, j, of_draft);
    r.least = 0, r.is_told = 0, r.told = 0, r.named = NULL, r.num_named = 0;
    r.scale = specv_softmax_scale(*zero ? 1.f : temperature);
    if (specv_ref_i_are_probs(scores) && !r.probs) r.scale = specv_i_probs_scale();
    r.row.sum = 0, r.row.inverse = r.row.inverse_low = 0, r.row.n = 0, r.row.status = 0;
    r.row.kind = SPECV_SOFTMAX, r.row.id = -1, r.row.max = 0;
    return r;
}

/* What follows from the largest score and its id, already there. */
static void specv_ref_i_set_kind(specv_ref_i_scores *r, int zero) {
    if (r->row.max == specv_bits_float(0xff800000u) || (r->probs && r->row.max == 0)) {
        r->row.kind = SPECV_NO_TOKEN;
        r->row.status |= SPECV_ROW_EMPTY;
    } else if (zero || !specv_in_range(r->row.max, &r->scale)) {
        r->row.kind = SPECV_ONE_HOT;
        if (!zero) r->row.status |= SPECV_ROW_EXTREME;
    } else {
        r->row.n = specv_softmax_weight(r->row.max, &r->scale).n;
    }
}

/* Opens position j of row b of the target (or draft) and finds its distribution:
   temperature 0, or a largest logit beyond the format: all on the first id that has it;
   otherwise weights, summed in integers. Probabilities are taken as they are. */
static specv_ref_i_scores specv_ref_i_open(const specv_verify_sample_desc *d, int b, int64_t j,
                                           int of_draft, float temperature) {
    int zero;
    specv_ref_i_scores r = specv_ref_i_frame(d, b, j, of_draft, temperature, &zero);
    if (r.probs && !zero) return r;
    r.row.max = specv_ref_i_largest(&r, &r.row.id);
    specv_ref_i_set_kind(&r, zero);
    if (r.row.kind == SPECV_SOFTMAX) {
        specv_i_limits limits = specv_ref_i_limits(d, b, of_draft);
        r.row.sum = specv_ref_i_sum(&r);
        r.least = specv_ref_i_cut(&r, &limits);
        if (r.least) r.row.sum = specv_ref_i_sum(&r);
        specv_i_set_inverse(&r.row);
    }
    return r;
}

/* Probability of id x. */
static float specv_ref_i_p(specv_ref_i_scores *r, int64_t x) {
    float score = specv_ref_i_score(r, x);
    if (r->probs && r->row.kind == SPECV_SOFTMAX) return score > 0 ? score : 0;
    return specv_probability(&r->row, &r->scale, score, (int32_t)x);
}

/* The same of a tile. */
static void specv_ref_i_tile_p(specv_ref_i_scores *r, int64_t begin, specv_ref_i_tile *t,
                               float *p) {
    specv_ref_i_open_tile(r, begin, t);
    if (r->row.kind != SPECV_SOFTMAX || r->probs) {
        for (int i = 0; i < t->padded; ++i) p[i] = r->probs && t->score[i] > 0 ? t->score[i] : 0;
        if (r->row.kind == SPECV_SOFTMAX) return;
        for (int i = 0; i < t->padded; ++i)
            p[i] = r->row.kind == SPECV_ONE_HOT && begin + i == r->row.id ? 1.f : 0.f;
        return;
    }
    specv_ref_i_weigh(&r->scale, t);
    for (int i = 0; i < t->padded; ++i) {
        const specv_weight w = specv_ref_i_weight(t, i);
        t->weight[i] = specv_weight_float(&w, r->row.n);
        p[i] = specv_i_mul(t->weight[i], r->row.inverse_low);
    }
    specv_ref_i_add_scaled(p, t->weight, r->row.inverse, t->padded);
}

/* ---- A2 to A5 */

/* What the next token is drawn from: weights over the ids. */
typedef struct specv_ref_i_weights {
    specv_ref_i_scores *p, *q; /* (prefix * p - q)+, or p alone where q is null */
    float prefix;
    int64_t without;                   /* p alone: this id has no weight; -1: none */
    const struct specv_ref_i_law *law; /* of a node of a tree, or null */
} specv_ref_i_weights;

/* What >>trees has in their place: r of a node's rejected children, 0 if there is none; and p alone
   without some ids. */
static int specv_ref_i_law_gains(const specv_ref_i_weights *w, int64_t begin, specv_ref_i_tile *t,
                                 float *gain);
static int specv_ref_i_law_has_not(const specv_ref_i_weights *w, int64_t id);

/* (prefix * p - q) of a tile, or p where q is null. */
static void specv_ref_i_gains(const specv_ref_i_weights *w, int64_t begin, specv_ref_i_tile *t,
                              float *gain) {
    float p[SPECV_TILE_IDS];
    if (w->law && specv_ref_i_law_gains(w, begin, t, gain)) return;
    specv_ref_i_tile_p(w->p, begin, t, w->q ? p : gain);
    if (!w->q) return;
    specv_ref_i_tile_p(w->q, begin, t, gain);
    for (int i = 0; i < t->padded; ++i) gain[i] = specv_i_negate(gain[i]);
    specv_ref_i_add_scaled(gain, p, w->prefix, t->padded);
}

/* A tile's weights: each in the tile's units, and the sum in the row's, which are 2^finer of
   them. */
typedef struct specv_ref_i_units {
    uint64_t of[SPECV_TILE_IDS], sum;
    uint32_t finer;
    int32_t count;
} specv_ref_i_units;

static void specv_ref_i_tile_units(const specv_ref_i_weights *w, int64_t begin,
                                   specv_ref_i_units *u) {
    specv_ref_i_tile t;
    float gain[SPECV_TILE_IDS];
    int32_t n = 0;
    u->finer = SPECV_I_FINER_PROBS, u->sum = 0;
    if (w->q || w->p->probs) {
        specv_ref_i_gains(w, begin, &t, gain);
        u->count = t.count;
        for (int i = 0; i < t.count; ++i) u->of[i] = gain[i] > 0 ? specv_fixed50(gain[i]) : 0;
    } else {
        specv_ref_i_open_tile(w->p, begin, &t);
        u->count = specv_ref_i_tile_n(w->p, &t, &n) ? t.count : 0;
        if (u->count == 0) return;
        u->finer = (uint32_t)(w->p->row.n - n);
        specv_ref_i_weigh(&w->p->scale, &t);
        for (int i = 0; i < t.count; ++i) u->of[i] = specv_ref_i_weight_units(&t, i, n);
    }
    if (!w->q && w->without >= begin && w->without < begin + u->count)
        u->of[w->without - begin] = 0;
    for (int i = 0; w->law && i < u->count; ++i)
        if (specv_ref_i_law_has_not(w, begin + i)) u->of[i] = 0;
    for (int i = 0; i < u->count; ++i) u->sum += u->of[i];
    u->sum = specv_i_shift_right(u->sum, u->finer);
}

/* Do the probabilities that are drawn from have the sums that they should have? p alone: 1; of
   P p - q: P - 1. Only probabilities are added up; of logits it is so by construction. */
static uint32_t specv_ref_i_look_at_sums(const specv_ref_i_weights *w) {
    const uint64_t one = (uint64_t)1 << 50;
    specv_ref_i_tile t;
    float gain[SPECV_TILE_IDS];
    uint64_t sum = 0;
    if (!w->q && !w->p->probs) return 0;
    for (int64_t begin = 0; begin < w->p->vocab; begin += SPECV_TILE_IDS) {
        specv_ref_i_gains(w, begin, &t, gain);
        for (int i = 0; i < t.count; ++i)
            sum += gain[i] > 0 ? specv_fixed50(gain[i]) : -specv_fixed50(-gain[i]);
    }
    return specv_i_bad_sum(sum, w->q ? specv_fixed50(w->prefix) - one : one) ? SPECV_ROW_BAD_SUM
                                                                             : 0;
}

/* All weights. */
static uint64_t specv_ref_i_total(const specv_ref_i_weights *w) {
    specv_ref_i_units u;
    uint64_t total = 0;
    for (int64_t begin = 0; begin < w->p->vocab; begin += SPECV_TILE_IDS) {
        specv_ref_i_tile_units(w, begin, &u);
        total += u.sum;
    }
    return total;
}

/* The id at which the running sum exceeds left + low / 2^64: first the tile is found that way, then
   the id inside it, in the tile's finer units, in which what is behind the point goes on. -1 if no
   sum does. */
static int64_t specv_ref_i_find(const specv_ref_i_weights *w, uint64_t left, uint64_t low) {
    specv_ref_i_units u;
    for (int64_t begin = 0; begin < w->p->vocab; begin += SPECV_TILE_IDS) {
        specv_ref_i_tile_units(w, begin, &u);
        if (left >= u.sum) {
            left -= u.sum;
            continue;
        }
        left = left << u.finer | specv_i_shift_right(low, 64 - u.finer);
        for (int i = 0;; ++i) {
            if (left < u.of[i]) return begin + i;
            left -= u.of[i];
        }
    }
    return -1;
}

/* Inverse CDF in id order: the first id whose running sum exceeds u * W, W the sum of all weights,
   u = uniform / 2^64. -1 if no id has weight. */
static int64_t specv_ref_i_draw(const specv_ref_i_weights *w, uint64_t uniform) {
    const uint64_t total = specv_ref_i_total(w);
    return specv_ref_i_find(w, specv_i_mul_high(uniform, total), uniform * total);
}

/* A row while it is judged. */
typedef struct specv_ref_i_judge {
    const specv_verify_sample_desc *d;
    struct specv_ref_i_shard *shard; /* null: all scores are here */
    int b;
    int32_t slot; /* where the request's own values are */
    float temperature, draft_temperature;
    int32_t usable;    /* drafts before the first placeholder, up to and including the first EOS */
    int ends_with_eos; /* the last of these is an EOS: no token follows it */
    int has_given;     /* the token is the caller's, who alone knows its scores */
    int is_tree;       /* positions are nodes of one */
    specv_ref_i_outcome o;
    float logprob, lse, max_prob;
    specv_i_told told;            /* what a lossy rule is told */
    specv_ref_i_scores opened[2]; /* the last position of the target's scores and of the draft's */
    int32_t opened_at[2];         /* which one that is, or -1 */
} specv_ref_i_judge;

static int64_t specv_ref_i_draft(const specv_ref_i_judge *g, int32_t j) {
    return specv_ref_i_get(g->d->verify.draft_tokens, g->d->verify.token_dtype,
                           specv_ref_i_first_draft(&g->d->verify, g->b) + j);
}

/* The row's numbers: u of the test of draft j, and the one that draws the token at position k. */
static uint32_t specv_ref_i_position(const specv_ref_i_judge *g) {
    return (uint32_t)g->d->position[g->slot];
}

static float specv_ref_i_accept_uniform(specv_ref_i_judge *g, int32_t j) {
    const specv_verify_sample_desc *d = g->d;
    specv_random r;
    if (d->accept_uniform)
        return specv_i_clean_uniform(
            d->accept_uniform[specv_ref_i_first_draft(&d->verify, g->b) + j], &g->o.status);
    r = specv_philox(d->seed[g->slot], specv_ref_i_position(g), (uint32_t)(d->step_row + j), 0,
                     specv_i_tag(SPECV_TAG_ACCEPT, d->stream));
    return specv_uniform(&r);
}

static uint64_t specv_ref_i_sample_uniform(specv_ref_i_judge *g, int32_t k) {
    const specv_verify_sample_desc *d = g->d;
    specv_random r;
    if (d->sample_uniform)
        return specv_uniform_bits(specv_i_clean_uniform(d->sample_uniform[g->b], &g->o.status));
    r = specv_philox(d->seed[g->slot], specv_ref_i_position(g), (uint32_t)(d->step_row + k), 0,
                     specv_i_draw_tag(d->stream));
    return (uint64_t)r.x[1] << 32 | r.x[0];
}

/* The same from what ranks say of their parts, then what else needs all scores: >>shards. Where
   ranks have named all that target and draft keep, nothing else does. */
static int specv_ref_i_has_scores(const specv_ref_i_judge *g);
static specv_ref_i_scores specv_ref_i_put_together(specv_ref_i_judge *g, int32_t j, int of_draft);
static int64_t specv_ref_i_draw_together(specv_ref_i_judge *g, const specv_ref_i_weights *w,
                                         int32_t k, uint64_t uniform);
static int specv_ref_i_gains_together(specv_ref_i_judge *g, int32_t k, uint64_t *gain,
                                      uint64_t *loss);
static int specv_ref_i_lacks_gains(specv_ref_i_judge *g);

/* Rules come back to a position: its distribution is found once. */
static specv_ref_i_scores specv_ref_i_scores_at(specv_ref_i_judge *g, int32_t j, int of_draft) {
    if (g->opened_at[of_draft] != j && g->shard)
        g->opened[of_draft] = specv_ref_i_put_together(g, j, of_draft);
    else if (g->opened_at[of_draft] != j)
        g->opened[of_draft] = specv_ref_i_open(g->d, g->b, j, of_draft,
                                               of_draft ? g->draft_temperature : g->temperature);
    g->opened_at[of_draft] = j;
    return g->opened[of_draft];
}

static specv_ref_i_scores specv_ref_i_target_at(specv_ref_i_judge *g, int32_t j) {
    return specv_ref_i_scores_at(g, j, 0);
}

static specv_ref_i_scores specv_ref_i_draft_at(specv_ref_i_judge *g, int32_t j) {
    return specv_ref_i_scores_at(g, j, 1);
}

/* What the target says of the token that position k emits. */
static float specv_ref_i_score_of_next(const specv_ref_i_judge *g, specv_ref_i_scores *p,
                                       int64_t token);

/* Position k emits `token`, with its log-probability under p. */
static void specv_ref_i_emit(specv_ref_i_judge *g, specv_ref_i_scores *p, int64_t token) {
    g->o.next_token = token;
    g->o.finished = specv_ref_i_is_eos(&g->d->verify, token);
    if (!specv_ref_i_are_probs(p->scores))
        g->lse = p->row.kind == SPECV_ONE_HOT ? specv_i_add(p->row.max, 0) /* no -0 */
                                              : specv_log_sum_exp(&p->row);
    if (token >= 0 && g->d->max_prob) {
        int32_t id;
        const float largest = g->shard ? p->row.max : specv_ref_i_largest(p, &id);
        g->max_prob = specv_i_largest_p(&p->row, &p->scale, p->probs, largest);
    }
    if (token < 0 || p->row.kind != SPECV_SOFTMAX) return;
    if (p->probs) {
        int32_t exponent;
        float fraction = specv_i_log2(specv_ref_i_p(p, token), &exponent);
        g->logprob = specv_i_ln(exponent, fraction, 0);
    } else {
        g->logprob =
            specv_log_probability(&p->row, &p->scale, specv_ref_i_score_of_next(g, p, token));
    }
}

/* A token of position k. */
static int64_t specv_ref_i_draw_at(specv_ref_i_judge *g, const specv_ref_i_weights *w, int32_t k) {
    const uint64_t uniform = specv_ref_i_sample_uniform(g, k);
    return g->shard ? specv_ref_i_draw_together(g, w, k, uniform) : specv_ref_i_draw(w, uniform);
}

/* Do what p and q are drawn from have the sums that they should have? Where ranks say their sums of
   p and q, those do. */
static uint32_t specv_ref_i_sums_at(specv_ref_i_judge *g, const specv_ref_i_weights *w, int32_t k) {
    const uint64_t one = (uint64_t)1 << 50;
    uint64_t gain, loss;
    if (specv_ref_i_has_scores(g)) return specv_ref_i_look_at_sums(w);
    if (!w->q || !specv_ref_i_gains_together(g, k, &gain, &loss)) return 0;
    return specv_i_bad_sum(gain - loss, specv_fixed50(w->prefix) - one) ? SPECV_ROW_BAD_SUM : 0;
}

/* Position k emits a token drawn from p. */
static void specv_ref_i_emit_from(specv_ref_i_judge *g, specv_ref_i_scores *p, int32_t k) {
    specv_ref_i_weights w;
    int64_t token = p->row.id;
    w.p = p, w.q = NULL, w.prefix = 1, w.without = -1, w.law = NULL;
    if (p->row.kind == SPECV_SOFTMAX) token = specv_ref_i_draw_at(g, &w, k);
    if (p->row.kind == SPECV_NO_TOKEN) token = -1;
    if (token < 0) g->o.status |= SPECV_ROW_EMPTY;
    g->o.status |= p->row.status;
    specv_ref_i_emit(g, p, token);
}

/* Draft k was rejected: the token comes from what p has more of than q, or from p if that is
   nothing (by rounding, or because the scores contradict each other). */
static void specv_ref_i_emit_residual(specv_ref_i_judge *g, int32_t k, float prefix) {
    specv_ref_i_scores p = specv_ref_i_target_at(g, k), q;
    specv_ref_i_weights w;
    int64_t token;
    g->o.mismatch = 1;
    if (p.row.kind != SPECV_SOFTMAX) { /* whatever is subtracted, the only token is the only one */
        specv_ref_i_emit_from(g, &p, k);
        return;
    }
    w.p = &p, w.q = NULL, w.prefix = prefix, w.without = specv_ref_i_draft(g, k), w.law = NULL;
    if (g->d->draft.data) {
        q = specv_ref_i_draft_at(g, k);
        w.q = &q, w.without = -1;
    }
    token = specv_ref_i_draw_at(g, &w, k);
    g->o.status |= specv_ref_i_sums_at(g, &w, k);
    if (w.q) g->o.status |= q.row.status;
    g->o.status |= p.row.status;
    if (token >= 0) {
        specv_ref_i_emit(g, &p, token);
    } else {
        g->o.status |= SPECV_ROW_ZERO_RESIDUAL;
        specv_ref_i_emit_from(g, &p, k);
    }
}

/* The caller's token follows. */
static void specv_ref_i_emit_given(specv_ref_i_judge *g) {
    const specv_verify_greedy_desc *d = &g->d->verify;
    g->has_given = 1;
    g->o.next_token = specv_ref_i_get(g->d->bonus_token, d->token_dtype, g->b);
    if (!specv_ref_i_is_token(d, g->o.next_token))
        g->o.next_token = -1, g->o.status |= SPECV_ROW_BAD_TARGET;
    g->o.finished = specv_ref_i_is_eos(d, g->o.next_token);
}

/* The usable drafts were all accepted. */
static void specv_ref_i_emit_bonus(specv_ref_i_judge *g, int32_t n_draft) {
    g->o.mismatch = !g->ends_with_eos && g->usable < n_draft;
    if (g->ends_with_eos) {
        g->o.finished = 1;
    } else if (g->d->bonus_token && g->usable == n_draft) {
        specv_ref_i_emit_given(g);
    } else {
        specv_ref_i_scores p = specv_ref_i_target_at(g, g->usable);
        specv_ref_i_weights w;
        w.p = &p, w.q = NULL, w.prefix = 1, w.without = -1, w.law = NULL;
        if (p.row.kind == SPECV_SOFTMAX) g->o.status |= specv_ref_i_sums_at(g, &w, g->usable);
        specv_ref_i_emit_from(g, &p, g->usable);
    }
}

/* p and q of draft j. Without draft scores, q is 1 there. */
static float specv_ref_i_pair(specv_ref_i_judge *g, int32_t j, float *q_of_draft) {
    specv_ref_i_scores p = specv_ref_i_target_at(g, j), q;
    int64_t draft = specv_ref_i_draft(g, j);
    float p_of_draft = specv_ref_i_p(&p, draft);
    *q_of_draft = 1;
    g->o.status |= p.row.status;
    if (g->d->draft.data) {
        q = specv_ref_i_draft_at(g, j);
        *q_of_draft = specv_ref_i_p(&q, draft);
        g->o.status |= q.row.status;
    }
    return p_of_draft;
}

/* The test of a draft: of A3, or of A6's rules that draw. */
static int specv_ref_i_passes(const specv_ref_i_judge *g, float u, float q, float p) {
    if (g->d->rule == SPECV_RULE_BOUNDED) return specv_accept(u, q, specv_i_mul(g->told.alpha, p));
    if (g->d->rule == SPECV_RULE_THRESHOLD)
        return specv_accept(u, g->told.alpha, p) || (p > 0 && p >= g->told.epsilon);
    return specv_accept(u, q, p);
}

/* BOUNDED: c of the residual (c p - q)+ at position k, whose sum is that of (q - ratio p)+. Of all
   else 1. */
static float specv_ref_i_bounded_part(specv_ref_i_judge *g, int32_t k) {
    specv_ref_i_scores p, q;
    specv_ref_i_tile t;
    float of_p[SPECV_TILE_IDS], of_q[SPECV_TILE_IDS], c = 1;
    uint64_t rejected = 0;
    if (g->d->rule != SPECV_RULE_BOUNDED || g->told.alpha == 1 || !g->d->draft.data) return 1;
    p = specv_ref_i_target_at(g, k), q = specv_ref_i_draft_at(g, k);
    if (p.row.kind != SPECV_SOFTMAX) return 1;
    for (int step = 0; step < SPECV_I_RATIO_STEPS; ++step) {
        uint64_t sum_p = 0, sum_q = 0;
        float next;
        for (int64_t begin = 0; begin < p.vocab; begin += SPECV_TILE_IDS) {
            specv_ref_i_tile_p(&q, begin, &t, of_q);
            specv_ref_i_tile_p(&p, begin, &t, of_p);
            for (int i = 0; i < t.count; ++i) {
                const float above = specv_fma(g->told.alpha, of_p[i], -of_q[i]);
                if (step == 0 && above < 0) rejected += specv_fixed50(-above);
                if (!(specv_fma(c, of_p[i], -of_q[i]) > 0)) continue;
                sum_p += specv_fixed50(of_p[i]), sum_q += specv_fixed50(of_q[i]);
            }
        }
        next = specv_i_next_ratio(c, rejected, sum_p, sum_q);
        if (next == c) break;
        c = next;
    }
    return c;
}

/* A3: accept draft j while u_j * q(d_j) < p(d_j). Leviathan et al. 2023, algorithm 1. */
static void specv_ref_i_judge_token(specv_ref_i_judge *g, int32_t n_draft) {
    for (; g->o.accepted < g->usable; ++g->o.accepted) {
        float q, p = specv_ref_i_pair(g, g->o.accepted, &q);
        float u = specv_ref_i_accept_uniform(g, g->o.accepted);
        if (!specv_ref_i_passes(g, u, q, p)) {
            specv_ref_i_emit_residual(g, g->o.accepted, specv_ref_i_bounded_part(g, g->o.accepted));
            return;
        }
    }
    specv_ref_i_emit_bonus(g, n_draft);
}

/* Rule SCORE: every usable draft is accepted, its log-probability is an output. */
static void specv_ref_i_score_drafts(specv_ref_i_judge *g, int32_t n_draft) {
    const int64_t first = g->b * (int64_t)g->d->verify.rows.max_draft;
    for (; g->o.accepted < g->usable; ++g->o.accepted) {
        specv_ref_i_scores p = specv_ref_i_target_at(g, g->o.accepted);
        int64_t draft = specv_ref_i_draft(g, g->o.accepted);
        float score = specv_ref_i_score(&p, draft);
        g->o.status |= p.row.status;
        if (g->d->target_logprob)
            g->d->target_logprob[first + g->o.accepted] =
                specv_i_log_p(&p.row, &p.scale, p.probs, score, (int32_t)draft);
    }
    specv_ref_i_emit_bonus(g, n_draft);
}

/* What p has more of than q in a tile, and less. */
static void specv_ref_i_add_gains(const specv_ref_i_weights *w, int64_t begin, uint64_t *gain,
                                  uint64_t *loss) {
    specv_ref_i_tile t;
    float gains[SPECV_TILE_IDS];
    specv_ref_i_gains(w, begin, &t, gains);
    for (int k = 0; k < t.count; ++k) {
        if (gains[k] > 0) *gain += specv_fixed50(gains[k]);
        if (gains[k] < 0) *loss += specv_fixed50(-gains[k]);
    }
}

/* A4, with P_0 = 1, P_i = min(1, P_(i-1) * p(d_i) / q(d_i)):
       h_i = Z_i / D_i,  Z_i = sum (P_i p - q)+,  D_i = sum (q - P_i p)+   at position i < n,
       h_n = P_n;   tau = the largest i with u_i < h_i, or 0
   then the residual (P_tau p - q)+ at position tau. Sun et al. 2025, algorithm 2. */
static int specv_ref_i_block_test(specv_ref_i_judge *g, int32_t i, float prefix, uint32_t *seen) {
    float u = specv_ref_i_accept_uniform(g, i - 1);
    float q_of_draft, p_of_draft, gained, lost;
    specv_ref_i_scores p, q;
    specv_ref_i_weights w;
    uint64_t gain = 0, loss = 0;
    int passes;
    if (i == g->usable) {
        passes = specv_accept(u, 1, prefix);
    } else if (prefix == 0) {
        return 0;
    } else if (!g->d->draft.data) {
        p_of_draft = specv_ref_i_pair(g, i, &q_of_draft);
        lost = specv_fma(-prefix, p_of_draft, 1);
        gained = specv_i_mul(prefix, specv_i_add(1, -p_of_draft));
        return !(lost > 0) || specv_accept(u, lost, gained);
    } else {
        p = specv_ref_i_target_at(g, i);
        q = specv_ref_i_draft_at(g, i);
        w.p = &p, w.q = &q, w.prefix = prefix, w.without = -1, w.law = NULL;
        if (specv_ref_i_has_scores(g))
            for (int64_t begin = 0; begin < p.vocab; begin += SPECV_TILE_IDS)
                specv_ref_i_add_gains(&w, begin, &gain, &loss);
        else if (!specv_ref_i_gains_together(g, i, &gain, &loss))
            return 0;
        passes = loss == 0 || specv_accept(u, (float)loss, (float)gain);
        *seen |= p.row.status | q.row.status;
    }
    if (passes) *seen = 0; /* the row that is stopped at is looked at again */
    return passes;
}

static float specv_ref_i_next_prefix(specv_ref_i_judge *g, int32_t j, float prefix) {
    float q, p = specv_i_mul(prefix, specv_ref_i_pair(g, j, &q));
    if (!(p > 0)) return 0;
    return p < q ? specv_i_div(p, q) : 1;
}

static void specv_ref_i_judge_block(specv_ref_i_judge *g, int32_t n_draft) {
    float prefix = 1, prefix_of_tau = 1;
    uint32_t seen = 0; /* status bits of sums over all ids; they count from tau on */
    for (int32_t i = 1; i <= g->usable; ++i) {
        prefix = specv_ref_i_next_prefix(g, i - 1, prefix);
        if (specv_ref_i_block_test(g, i, prefix, &seen)) g->o.accepted = i, prefix_of_tau = prefix;
    }
    g->o.status |= seen;
    if (g->o.accepted < g->usable && g->shard && specv_ref_i_lacks_gains(g)) return;
    if (g->o.accepted < g->usable)
        specv_ref_i_emit_residual(g, g->o.accepted, prefix_of_tau);
    else
        specv_ref_i_emit_bonus(g, n_draft);
}

/* log2 of an id's weight plus its noise, in units of 2^-24; word: of the generator, for the id. */
static int64_t specv_ref_i_noisy(const specv_ref_i_scores *p, const specv_noise *from, int64_t x,
                                 float score, uint32_t word) {
    specv_random finer = {{0, 0, 0, 0}};
    specv_weight w;
    int32_t noise;
    if (word < 256) finer = specv_noise_finer_words(from, (uint32_t)x);
    noise = specv_gumbel24(word, finer.x[x % 4]);
    if (p->probs) {
        if (score < 1.17549435e-38f) return INT64_MIN; /* 0, or as good as */
        w.f = specv_i_log2(score, &w.n);
    } else {
        if (!(score > p->scale.floor)) return INT64_MIN;
        w = specv_softmax_weight(score, &p->scale);
    }
    return specv_i_score(w.n, w.f, noise);
}

/* What that is at most, in units of 1: an id that cannot be the largest needs no logarithms. The
   weight is within 1/16 of 2^(score * c), or below 2^(exponent + 1). With v = word / 2^32 the noise
   is below -log2(v), so at most 32 less the whole part of log2(word); 1 more is for all that is
   rounded. Below 256 a word has further bits, and no bound. */
static float specv_ref_i_noisy_bound(const specv_ref_i_scores *p, float score, uint32_t word) {
    const int32_t log2_word = (int32_t)(specv_float_bits((float)(int32_t)(word >> 8)) >> 23) - 119;
    const float octaves = (float)(33 - log2_word);
    if (word < 256) return specv_bits_float(0x7f800000u);
    if (p->probs) return octaves + (float)((int32_t)(specv_float_bits(score) >> 23) - 126);
    return specv_i_add(specv_i_mul(score, p->scale.hi), octaves);
}

/* The id with the largest score plus noise of position j, -1 if there is none, and that number.
   first_id: that the first score is of. */
static int64_t specv_ref_i_loudest(const specv_ref_i_judge *g, specv_ref_i_scores *p, int32_t j,
                                   int64_t first_id, int64_t *best) {
    int64_t choice = -1;
    specv_ref_i_tile t;
    specv_noise from;
    specv_random words = {{0, 0, 0, 0}}; /* of four ids */
    *best = INT64_MIN;
    from = specv_i_noise_of(g->d, g->d->seed[g->slot], specv_ref_i_position(g), j);
    for (int64_t x = 0; x < p->vocab; ++x) {
        const int i = (int)(x % SPECV_TILE_IDS);
        const int64_t id = first_id + x;
        int64_t value;
        if (i == 0) specv_ref_i_open_tile(p, x, &t);
        if (x % 4 == 0) words = specv_noise_words(&from, (uint32_t)id);
        if (specv_ref_i_noisy_bound(p, t.score[i], words.x[x % 4]) < (float)(*best >> 24)) continue;
        value = specv_ref_i_noisy(p, &from, id, t.score[i], words.x[x % 4]);
        if (value > *best) *best = value, choice = id;
    }
    return choice;
}

/* The only token that position j can have: the largest score (A2), or the largest score plus
   noise (A5); -1 if there is none. */
static int64_t specv_ref_i_choose(specv_ref_i_judge *g, specv_ref_i_scores *p, int32_t j) {
    int64_t value, choice;
    if (p->row.kind != SPECV_SOFTMAX) return p->row.kind == SPECV_ONE_HOT ? p->row.id : -1;
    choice = g->shard ? p->row.id : specv_ref_i_loudest(g, p, j, 0, &value);
    if (choice < 0) p->row.status |= SPECV_ROW_EMPTY;
    return choice;
}

/* A2, A5, and every rule at temperature 0: a draft is accepted if it is the token itself. */
static void specv_ref_i_judge_equal(specv_ref_i_judge *g, int32_t n_draft) {
    for (;; ++g->o.accepted) {
        int32_t j = g->o.accepted;
        specv_ref_i_scores p;
        int64_t choice;
        if (j == g->usable && g->ends_with_eos) {
            g->o.finished = 1;
            return;
        }
        if (j == n_draft && g->d->bonus_token) {
            specv_ref_i_emit_given(g);
            return;
        }
        p = specv_ref_i_target_at(g, j);
        choice = specv_ref_i_choose(g, &p, j);
        g->o.status |= p.row.status;
        if (j < g->usable && choice == specv_ref_i_draft(g, j)) continue;
        g->o.mismatch = j < n_draft;
        specv_ref_i_emit(g, &p, choice);
        return;
    }
}

/* ---- A6 */

/* Which ids have a probability of alpha e^-H: those up to this surprise. */
static double specv_ref_i_typical(specv_ref_i_scores *p, float alpha) {
    specv_ref_i_tile t;
    uint64_t sum = 0, weighed = 0;
    for (int64_t begin = 0; begin < p->vocab; begin += SPECV_TILE_IDS) {
        specv_ref_i_open_tile(p, begin, &t);
        for (int i = 0; i < t.count; ++i) {
            specv_weight w;
            uint64_t units;
            if (!(t.score[i] > p->scale.floor)) continue;
            w = specv_softmax_weight(t.score[i], &p->scale);
            units = specv_weight_units(&w, p->row.n);
            sum += units;
            weighed += specv_i_weighed_surprise(units, specv_i_surprise(&w, p->row.n));
        }
    }
    return specv_i_surprise_limit(sum, weighed, alpha);
}

/* Its surprise, and its probability; 0 if it has none. */
static int specv_ref_i_surprise(specv_ref_i_scores *p, int64_t x, double *surprise, float *of_x) {
    const float score = specv_ref_i_score(p, x);
    specv_weight w;
    if (!(score > p->scale.floor)) return 0;
    w = specv_softmax_weight(score, &p->scale);
    *surprise = (double)specv_i_surprise(&w, p->row.n);
    *of_x = specv_ref_i_p(p, x);
    return *of_x > 0;
}

/* The loudest of the ids that TYPICAL_DRAW leaves, with the noise of rule COUPLED. */
static int64_t specv_ref_i_loudest_typical(specv_ref_i_judge *g, specv_ref_i_scores *p, int32_t j,
                                           int32_t first, double limit) {
    const specv_noise from =
        specv_i_noise_of(g->d, g->d->seed[g->slot], specv_ref_i_position(g), j);
    int64_t best = INT64_MIN, choice = -1;
    for (int64_t x = 0; x < p->vocab; ++x) {
        const float score = specv_ref_i_score(p, x);
        double surprise = 0;
        float of_x = 0;
        int64_t value;
        if (!(score > p->scale.floor)) continue;
        specv_ref_i_surprise(p, x, &surprise, &of_x);
        if (x != first && of_x < g->told.epsilon && surprise > limit) continue;
        value =
            specv_ref_i_noisy(p, &from, x, score, specv_noise_words(&from, (uint32_t)x).x[x % 4]);
        if (value > best) best = value, choice = x;
    }
    return choice;
}

/* What position j would emit, and may draft d, or -1, stand in its place? */
static int64_t specv_ref_i_stand_in(specv_ref_i_judge *g, specv_ref_i_scores *p, int32_t j,
                                    int64_t d, int *may) {
    int32_t first;
    int64_t choice;
    double limit, surprise;
    float of_d;
    uint64_t key;
    int64_t before = 0;
    if (p->row.kind != SPECV_SOFTMAX) {
        choice = p->row.kind == SPECV_ONE_HOT ? p->row.id : -1;
        *may = d >= 0 && choice == d;
        return choice;
    }
    p->row.max = specv_ref_i_largest(p, &first);
    choice = first;
    if (g->d->rule == SPECV_RULE_TYPICAL_DRAW) {
        limit = specv_ref_i_typical(p, g->told.alpha);
        choice = specv_ref_i_loudest_typical(g, p, j, first, limit);
        if (choice < 0) p->row.status |= SPECV_ROW_EMPTY;
    }
    *may = d >= 0 && d == choice;
    if (*may || d < 0 || g->d->rule == SPECV_RULE_TYPICAL_DRAW) return choice;
    if (!specv_ref_i_surprise(p, d, &surprise, &of_d)) return choice;
    if (g->d->rule == SPECV_RULE_TYPICAL) {
        *may = of_d > g->told.epsilon || surprise < specv_ref_i_typical(p, g->told.alpha);
        return choice;
    }
    key = specv_rank_key(specv_ref_i_score(p, d), (int32_t)d);
    for (int64_t x = 0; x < p->vocab; ++x)
        before += specv_rank_key(specv_ref_i_score(p, x), (int32_t)x) > key;
    *may =
        before < g->told.top_n &&
        of_d >= specv_i_add(specv_i_largest_p(&p->row, &p->scale, 0, p->row.max), -g->told.epsilon);
    return choice;
}

/* TYPICAL, TYPICAL_DRAW, RELAXED. */
static void specv_ref_i_judge_loosely(specv_ref_i_judge *g, int32_t n_draft) {
    for (;; ++g->o.accepted) {
        const int32_t j = g->o.accepted;
        specv_ref_i_scores p;
        int64_t choice;
        int may;
        if (j == g->usable && g->ends_with_eos) {
            g->o.finished = 1;
            return;
        }
        if (j == n_draft && g->d->bonus_token) {
            specv_ref_i_emit_given(g);
            return;
        }
        p = specv_ref_i_target_at(g, j);
        choice = specv_ref_i_stand_in(g, &p, j, j < g->usable ? specv_ref_i_draft(g, j) : -1, &may);
        g->o.status |= p.row.status;
        if (may) continue;
        g->o.mismatch = j < n_draft;
        specv_ref_i_emit(g, &p, choice);
        return;
    }
}

/* ---- A11 */

/* Rank key of an id, 0 if its probability is 0. */
static uint64_t specv_ref_i_key(specv_ref_i_scores *p, int64_t x) {
    const float score = specv_ref_i_score(p, x);
    const uint64_t key = specv_rank_key(score, (int32_t)x);
    if (key < SPECV_I_LEAST_RANK || (p->probs && score < 1.17549435e-38f)) return 0;
    return p->row.kind == SPECV_ONE_HOT && x != p->row.id ? 0 : key;
}

/* What is told, at element `at` of the outputs, of a token that position j emitted; -1: none.
   is_next: it is no draft. */
static void specv_ref_i_tell_of(specv_ref_i_judge *g, int64_t at, int32_t j, int64_t token,
                                int is_next) {
    const specv_emitted *e = &g->d->emitted;
    specv_verify_sample_desc plain = *g->d;
    const specv_filters none = SPECV_ZERO;
    specv_ref_i_scores p;
    uint64_t before = ~(uint64_t)0, of_token; /* before: key of the id that was told last */
    int32_t rank = 0, num_top = e->max_top;
    float logprob = 0;
    if (!e->logprob && !e->rank && !e->top_id && !e->top_logprob) return;
    if (token >= 0 && e->num_top) num_top = e->num_top[g->slot];
    if (num_top > e->max_top) num_top = e->max_top;
    if (token >= 0) {
        plain.filters = plain.draft_filters = none, plain.rule = SPECV_RULE_SCORE;
        p = e->raw ? specv_ref_i_open(&plain, g->b, j, 0, 1) : specv_ref_i_target_at(g, j);
        logprob = specv_i_log_p(&p.row, &p.scale, p.probs,
                                is_next ? specv_ref_i_score_of_next(g, &p, token)
                                        : specv_ref_i_score(&p, token),
                                (int32_t)token);
        if ((specv_i_tells(e) || g->is_tree) && p.probs &&
            specv_ref_i_score(&p, token) < 1.17549435e-38f)
            logprob = specv_bits_float(0xff800000u); /* as good as 0, at temperature 0 too */
        rank = 1, of_token = e->rank ? specv_ref_i_key(&p, token) : 0;
        for (int64_t x = 0; e->rank && x < p.vocab; ++x) rank += specv_ref_i_key(&p, x) > of_token;
    }
    if (e->logprob) e->logprob[at] = logprob;
    if (e->rank) e->rank[at] = rank;
    for (int32_t i = 0; i < e->max_top; ++i) {
        int32_t id = -1;
        float its = specv_bits_float(0xff800000u);
        uint64_t best = 0;
        for (int64_t x = 0; token >= 0 && i < num_top && x < g->d->verify.vocab; ++x) {
            const uint64_t key = specv_ref_i_key(&p, x);
            if (key < before && key > best) best = key;
        }
        before = best;
        if (best) {
            id = specv_i_id_of_rank_key(best);
            its = specv_i_log_p(&p.row, &p.scale, p.probs, specv_ref_i_score(&p, id), id);
        }
        if (e->top_id) e->top_id[at * e->max_top + i] = id;
        if (e->top_logprob) e->top_logprob[at * e->max_top + i] = its;
    }
}

/* What is told of column j. */
static void specv_ref_i_tell(specv_ref_i_judge *g, int32_t j) {
    const int64_t at = g->b * ((int64_t)g->d->verify.rows.max_draft + 1) + j;
    int64_t token = -1;
    if (j < g->o.accepted) token = specv_ref_i_draft(g, j);
    if (j == g->o.accepted && !g->has_given) token = g->o.next_token;
    specv_ref_i_tell_of(g, at, j, token, j >= g->o.accepted);
}

static float specv_ref_i_temperature(const float *temperatures, int32_t slot, uint32_t *status) {
    float temperature = temperatures ? temperatures[slot] : 1;
    if (!specv_temperature_ok(temperature)) *status |= SPECV_ROW_BAD_TEMPERATURE;
    return temperature;
}

/* Opens row b; drafts that it has, -1 if nothing of it may be used. */
static int32_t specv_ref_i_open_judge(specv_ref_i_judge *g, const specv_verify_sample_desc *d,
                                      int b) {
    const specv_ref_i_outcome nothing = {0, 0, 0, -1, 0};
    const specv_rows *rows = &d->verify.rows;
    int32_t n_draft = -1;
    g->d = d, g->shard = NULL, g->b = b, g->o = nothing, g->usable = 0;
    g->ends_with_eos = g->has_given = g->is_tree = 0, g->logprob = g->lse = g->max_prob = 0;
    g->opened_at[0] = g->opened_at[1] = -1;
    g->slot = -1;
    if (specv_ref_i_is_live(rows, b))
        g->slot =
            specv_ref_i_slot(rows->slot, rows->slot_dtype, rows->num_slots, b, 0, &g->o.status);
    if (g->slot >= 0) n_draft = specv_ref_i_open_row(&d->verify, b, &g->o.status);
    return n_draft;
}

/* Its temperatures and limits. Is it judged by p and q? */
static int specv_ref_i_open_values(specv_ref_i_judge *g) {
    const specv_verify_sample_desc *d = g->d;
    int sampled =
        d->rule != SPECV_RULE_COUPLED && d->rule != SPECV_RULE_GREEDY && !specv_i_compares(d->rule);
    g->temperature = 0;
    if (d->rule != SPECV_RULE_GREEDY)
        g->temperature = specv_ref_i_temperature(d->temperature, g->slot, &g->o.status);
    g->draft_temperature = g->temperature;
    sampled = sampled && !specv_temperature_is_0(g->temperature);
    specv_ref_i_limits_of(d, g->slot, 0, &g->o.status);
    g->told = specv_i_told_of(&d->lossy, d->rule, g->slot);
    if (specv_i_is_lossy(d->rule)) g->o.status |= g->told.status;
    if (d->draft.data && sampled) specv_ref_i_limits_of(d, g->slot, 1, &g->o.status);
    if (sampled && d->draft_temperature && d->draft.data)
        g->draft_temperature = specv_ref_i_temperature(d->draft_temperature, g->slot, &g->o.status);
    return sampled;
}

static void specv_ref_i_judge_drafts(specv_ref_i_judge *g, int32_t n_draft, int sampled) {
    const specv_verify_sample_desc *d = g->d;
    while (g->usable < n_draft && !g->ends_with_eos) {
        int64_t draft = specv_ref_i_draft(g, g->usable);
        if (!specv_ref_i_is_token(&d->verify, draft)) break;
        g->ends_with_eos = specv_ref_i_is_eos(&d->verify, draft);
        g->usable += 1;
    }
    if (d->rule == SPECV_RULE_SCORE)
        specv_ref_i_score_drafts(g, n_draft);
    else if (specv_i_compares(d->rule))
        specv_ref_i_judge_loosely(g, n_draft);
    else if (!sampled)
        specv_ref_i_judge_equal(g, n_draft);
    else if (d->rule == SPECV_RULE_BLOCK)
        specv_ref_i_judge_block(g, n_draft);
    else
        specv_ref_i_judge_token(g, n_draft);
    if (g->o.mismatch && g->o.accepted == g->usable) {
        int64_t draft = specv_ref_i_draft(g, g->usable);
        if (draft != -1 && !specv_ref_i_is_token(&d->verify, draft))
            g->o.status |= SPECV_ROW_BAD_DRAFT;
    }
}

static void specv_ref_i_write_judged(specv_ref_i_judge *g) {
    const specv_verify_sample_desc *d = g->d;
    const int b = g->b;
    specv_ref_i_write_row(&d->verify, b, &g->o);
    for (int32_t j = g->o.accepted; d->target_logprob && j < d->verify.rows.max_draft; ++j)
        d->target_logprob[b * (int64_t)d->verify.rows.max_draft + j] = 0;
    for (int32_t j = 0; j <= d->verify.rows.max_draft; ++j) specv_ref_i_tell(g, j);
    if (d->logprob) d->logprob[b] = g->logprob;
    if (d->lse) d->lse[b] = g->lse;
    if (d->max_prob) d->max_prob[b] = g->max_prob;
}

static void specv_ref_i_judge_row(const specv_verify_sample_desc *d, int b) {
    specv_ref_i_judge g;
    int32_t n_draft = specv_ref_i_open_judge(&g, d, b);
    if (n_draft >= 0 && !specv_ref_i_masks_are_there(d, b, n_draft))
        n_draft = -1, g.o.status |= SPECV_ROW_BAD_FILTER;
    if (n_draft >= 0) specv_ref_i_judge_drafts(&g, n_draft, specv_ref_i_open_values(&g));
    specv_ref_i_write_judged(&g);
}

SPECV_REF_BODY int specv_ref_verify_sample(const specv_verify_sample_desc *d) {
    int status = specv_verify_sample_validate(d);
    if (status != SPECV_OK) return status;
    for (int b = 0; b < d->verify.rows.batch; ++b) specv_ref_i_judge_row(d, b);
    return SPECV_OK;
}

/* ---- A8 */

SPECV_REF_BODY int specv_ref_sample(const specv_sample_desc *d) {
    specv_verify_sample_desc v;
    int status = specv_sample_validate(d);
    if (status != SPECV_OK) return status;
    v = specv_sample_as_verify(d);
    for (int b = 0; b < d->batch; ++b) specv_ref_i_judge_row(&v, b);
    return SPECV_OK;
}

/* ================================================================================== >>shards */

/* A step of a rank. What is judged again in each step, with more to go by each time, is in scratch
   memory. */
typedef struct specv_ref_i_shard {
    const specv_verify_shard_desc *d;
    specv_verify_sample_desc local; /* of the rank's columns alone */
    specv_verify_sample_desc
        sample;              /* of all; without outputs that others than the last step have */
    specv_i_record to, from; /* records: this step's, the one's before */
    int64_t stride;
    int64_t target_rows;
    specv_tile *tiles;         /* [rows][num_shards]: what ranks say of rows */
    specv_i_residual *gains;   /* [target rows][num_shards], but of the token's rule the first */
    uint64_t *lost;            /* [target rows]: without the draft; where q matters: the weight of
                                all ranks that the token was drawn from */
    uint64_t *named;           /* [rows][max_top_k]: what all ranks have named of a row */
    float *p, *q;              /* [target rows] */
    uint32_t *marks;           /* [batch] */
    int lacks;                 /* how far a judgement gets: 0, or what it ended for, a record */
    int has_drawn;             /* the next token was drawn by a rank, */
    float score;               /* which says this of it */
    specv_ref_i_weights drawn; /* what this step draws from; p and q are not here any more */
    int32_t drawn_at;
    int drawn_q, owner; /* the rank that draws, -1: none */
    uint64_t left, low;
} specv_ref_i_shard;

/* Of a row: a number that says what the rank knows of the request. */
static uint32_t specv_ref_i_digest(const specv_ref_i_judge *g, const int64_t *epoch,
                                   int32_t n_draft, uint32_t mark) {
    const specv_verify_sample_desc *d = g->d;
    const int64_t first = specv_ref_i_first_draft(&d->verify, g->b);
    const float *of_draft = d->draft_temperature ? d->draft_temperature : d->temperature;
    uint64_t sum = 0;
    if (n_draft < 0) return specv_i_fold_digest(0, g->o.status | mark);
    sum += specv_i_digest_of(SPECV_I_DIGEST_LENGTH, (uint64_t)n_draft);
    if (epoch) sum += specv_i_digest_of(SPECV_I_DIGEST_EPOCH, (uint64_t)*epoch);
    if (d->seed) sum += specv_i_digest_of(SPECV_I_DIGEST_SEED, d->seed[g->slot]);
    if (d->position)
        sum += specv_i_digest_of(SPECV_I_DIGEST_POSITION, (uint32_t)d->position[g->slot]);
    if (d->temperature)
        sum += specv_i_digest_of(SPECV_I_DIGEST_TEMPERATURE,
                                 specv_float_bits(d->temperature[g->slot]));
    if (of_draft)
        sum += specv_i_digest_of(SPECV_I_DIGEST_DRAFT_TEMPERATURE,
                                 specv_float_bits(of_draft[g->slot]));
    if (d->bonus_token)
        sum += specv_i_digest_of(
            SPECV_I_DIGEST_BONUS,
            (uint64_t)specv_ref_i_get(d->bonus_token, d->verify.token_dtype, g->b));
    if (d->sample_uniform)
        sum += specv_i_digest_of(SPECV_I_DIGEST_UNIFORM, specv_float_bits(d->sample_uniform[g->b]));
    if (d->filters.mask_row)
        sum += specv_i_digest_of(SPECV_I_DIGEST_MASK, (uint32_t)d->filters.mask_row[g->b]);
    if (d->draft_filters.mask_row)
        sum +=
            specv_i_digest_of(SPECV_I_DIGEST_DRAFT_MASK, (uint32_t)d->draft_filters.mask_row[g->b]);
    for (int side = 0; side < 2; ++side) {
        const specv_filters *f = specv_ref_i_filters(d, side);
        const uint32_t i = side ? SPECV_I_DIGEST_DRAFT_TOP_K : SPECV_I_DIGEST_TOP_K;
        if (f->top_k) sum += specv_i_digest_of(i, (uint32_t)f->top_k[g->slot]);
        if (f->top_p) sum += specv_i_digest_of(i + 1, specv_float_bits(f->top_p[g->slot]));
        if (f->min_p) sum += specv_i_digest_of(i + 2, specv_float_bits(f->min_p[g->slot]));
    }
    for (int32_t j = 0; j < n_draft; ++j) {
        const uint32_t i = SPECV_I_DIGEST_DRAFTS + 2 * (uint32_t)j;
        sum += specv_i_digest_of(i, (uint64_t)specv_ref_i_draft(g, j));
        if (d->accept_uniform)
            sum += specv_i_digest_of(i + 1, specv_float_bits(d->accept_uniform[first + j]));
    }
    return specv_i_fold_digest(sum, g->o.status | mark);
}

static const char *specv_ref_i_record(const specv_ref_i_shard *s, int rank) {
    return (const char *)s->d->gathered + rank * s->stride;
}

/* Do the records of all ranks belong together, and to this row? */
static int specv_ref_i_records_agree(const specv_ref_i_shard *s, int b, uint32_t digest) {
    int64_t end = 0;
    for (int rank = 0; rank < s->d->num_shards; ++rank) {
        const char *record = specv_ref_i_record(s, rank);
        const specv_i_record_head *head = (const specv_i_record_head *)(const void *)record;
        const uint32_t *rows = (const uint32_t *)(const void *)(record + s->from.rows);
        if (head->digest != specv_i_shard_digest(s->d, s->d->step - 1) || rows[b] != digest)
            return 0;
        if (head->num_ids < 0 || (head->num_ids > 0 && head->first_id != end)) return 0;
        end += head->num_ids;
    }
    return end == s->d->sample.verify.vocab;
}

/* Number of position j of row b of the target, as its scores. */
static int64_t specv_ref_i_row_of(const specv_verify_sample_desc *d, int b, int32_t j) {
    const specv_rows *rows = &d->verify.rows;
    if (specv_i_is_csr(rows)) return specv_ref_i_row_first(rows, b) + b + j;
    return b * ((int64_t)rows->max_draft + 1) + j;
}

static int64_t specv_ref_i_row_of_side(const specv_ref_i_judge *g, const specv_ref_i_shard *s,
                                       int32_t j, int of_draft) {
    return specv_ref_i_row_of(g->d, g->b, j) + (of_draft ? s->target_rows : 0);
}

/* Limits of a side, where the side has any that matter; else they are off. */
static specv_i_limits specv_ref_i_limits_of_side(const specv_ref_i_judge *g, int of_draft) {
    const specv_verify_sample_desc *d = g->d;
    const float *of[2];
    uint32_t reported = 0;
    specv_i_limits l = specv_ref_i_limits_of(d, g->slot, of_draft, &reported);
    int off = !specv_i_shard_names(d, of_draft);
    of[0] = d->temperature, of[1] = d->draft_temperature;
    for (int side = 0; side <= of_draft; ++side) /* q matters where the target is sampled */
        off |= of[side] && specv_temperature_is_0(of[side][g->slot]);
    if (off) l.top_k = (int32_t)d->verify.vocab, l.has_top_p = 0, l.min_p = 0;
    return l;
}

static int specv_ref_i_is_cut(const specv_ref_i_judge *g, int of_draft) {
    const specv_i_limits l = specv_ref_i_limits_of_side(g, of_draft);
    return !specv_i_limits_are_off(&l, g->d->verify.vocab);
}

/* Is what the row keeps among the ids that ranks name? */
static int specv_ref_i_limits_fit(const specv_ref_i_judge *g, const specv_verify_shard_desc *d,
                                  int32_t n_draft) {
    const specv_verify_sample_desc *v = g->d;
    const float *temperature[2];
    int fits = 1;
    temperature[0] = v->temperature;
    temperature[1] = v->draft_temperature ? v->draft_temperature : v->temperature;
    if (v->rule == SPECV_RULE_GREEDY) return 1;
    for (int side = 0; side < 2; ++side) {
        const specv_i_limits l = specv_ref_i_limits_of_side(g, side);
        const int positions = side ? n_draft : n_draft + !v->bonus_token;
        if (temperature[side] && specv_temperature_is_0(temperature[side][g->slot])) {
            if (side == 0) return 1;
            continue;
        }
        if (positions == 0 || (side && !specv_i_shard_has_q(v))) continue;
        if (specv_i_limits_are_off(&l, v->verify.vocab))
            fits &= !d->all_top_k;
        else
            fits &= l.top_k < v->verify.vocab && l.top_k <= d->max_top_k;
    }
    return fits;
}

static int specv_ref_i_has_scores(const specv_ref_i_judge *g) {
    return !g->shard || specv_i_shard_names_all(g->shard->d);
}

/* Puts a position together: the largest score of all ranks, the lowest id that has it, for A5 the
   loudest id, the sum of sums if they are there. Of rows that limits cut all ids that are kept were
   named, and scores of these are here. */
static specv_ref_i_scores specv_ref_i_put_together(specv_ref_i_judge *g, int32_t j, int of_draft) {
    const specv_ref_i_shard *s = g->shard;
    const int64_t row = specv_ref_i_row_of_side(g, s, j, of_draft);
    const specv_tile *tiles = s->tiles + row * s->d->num_shards;
    int64_t best = SPECV_I_NO_SCORE;
    int32_t choice = -1;
    int zero;
    specv_ref_i_scores r = specv_ref_i_frame(
        g->d, g->b, j, of_draft, of_draft ? g->draft_temperature : g->temperature, &zero);
    r.row.max = specv_bits_float(0xff800000u);
    for (int rank = 0; rank < s->d->num_shards; ++rank) {
        const specv_tile *t = &tiles[rank];
        const int32_t id = (int32_t)(t->id & ~SPECV_I_NAN_BIT);
        if (t->id & SPECV_I_NAN_BIT) r.row.status |= SPECV_ROW_NAN;
        if (t->max > r.row.max) r.row.max = t->max, r.row.id = id;
        if (t->score > best) best = t->score, choice = id;
    }
    specv_ref_i_set_kind(&r, zero);
    if (r.row.kind == SPECV_SOFTMAX) {
        r.row.id = choice;
        for (int rank = 0; rank < s->d->num_shards; ++rank) r.row.sum += tiles[rank].sum;
        if (r.row.sum) specv_i_set_inverse(&r.row);
    }
    r.mask = NULL; /* those that own the ids have looked at it */
    if (r.row.kind == SPECV_SOFTMAX && s->to.kind != SPECV_I_RECORD_SUMS &&
        specv_ref_i_is_cut(g, of_draft)) {
        const specv_i_limits limits = specv_ref_i_limits_of_side(g, of_draft);
        int64_t value;
        r.named = s->named + row * s->d->max_top_k, r.num_named = s->d->max_top_k;
        r.least = specv_ref_i_cut(&r, &limits);
        r.row.sum = specv_ref_i_sum(&r);
        specv_i_set_inverse(&r.row);
        if (g->d->rule == SPECV_RULE_COUPLED)
            r.row.id = (int32_t)specv_ref_i_loudest(g, &r, j, 0, &value);
        return r;
    }
    if (specv_i_shard_names_all(s->d)) r.named = s->named; /* one id has all weight, or none has */
    r.is_told = 1, r.told = of_draft ? s->q[row - s->target_rows] : s->p[row];
    return r;
}

static float specv_ref_i_score_of_next(const specv_ref_i_judge *g, specv_ref_i_scores *p,
                                       int64_t token) {
    return g->shard && g->shard->has_drawn ? g->shard->score : specv_ref_i_score(p, token);
}

static int specv_ref_i_lacks_gains(specv_ref_i_judge *g) {
    if (!specv_i_shard_has_q(g->d) || specv_ref_i_has_scores(g) ||
        g->shard->from.kind >= SPECV_I_RECORD_GAINS)
        return 0;
    g->shard->lacks = SPECV_I_RECORD_GAINS;
    return 1;
}

static int64_t specv_ref_i_gains_row(const specv_ref_i_judge *g, int32_t k) {
    return g->d->rule == SPECV_RULE_BLOCK ? specv_ref_i_row_of(g->d, g->b, k) : g->b;
}

static const specv_i_gains *specv_ref_i_gains_of(const specv_ref_i_judge *g, int rank, int32_t k) {
    const char *gains =
        (const char *)g->shard->d->gathered + rank * g->shard->stride + g->shard->from.gains;
    return (const specv_i_gains *)(const void *)gains + specv_ref_i_gains_row(g, k);
}

/* 0: nobody has said them yet. */
static int specv_ref_i_gains_together(specv_ref_i_judge *g, int32_t k, uint64_t *gain,
                                      uint64_t *loss) {
    const specv_ref_i_shard *s = g->shard;
    *gain = *loss = 0;
    if (s->from.kind < SPECV_I_RECORD_GAINS) return 0;
    for (int rank = 0; rank < s->d->num_shards; ++rank) {
        if (s->from.kind == SPECV_I_RECORD_GAINS) {
            *gain += specv_ref_i_gains_of(g, rank, k)->gain;
            *loss += specv_ref_i_gains_of(g, rank, k)->rest;
        } else { /* kept from then */
            const specv_i_residual *kept =
                s->gains + specv_ref_i_row_of(g->d, g->b, k) * s->d->num_shards + rank;
            *gain += kept->gain, *loss += kept->rest;
        }
    }
    return 1;
}

/* The rank whose columns an id is among, -1: none's. */
static int specv_ref_i_owner(const specv_ref_i_shard *s, int64_t id) {
    for (int rank = 0; rank < s->d->num_shards; ++rank) {
        const specv_i_record_head *head =
            (const specv_i_record_head *)(const void *)specv_ref_i_record(s, rank);
        if (id >= head->first_id && id - head->first_id < head->num_ids) return rank;
    }
    return -1;
}

/* A token by the rank in whose part of the sum the place is: known in the last step, before it is
   found out who draws it; -1: there is no weight. */
static int64_t specv_ref_i_draw_together(specv_ref_i_judge *g, const specv_ref_i_weights *w,
                                         int32_t k, uint64_t uniform) {
    specv_ref_i_shard *s = g->shard;
    const int64_t row = specv_ref_i_row_of(g->d, g->b, k);
    const int of_lost = w->without < 0 ? -1 : specv_ref_i_owner(s, w->without);
    uint64_t total = 0;
    if (w->p->named && (!w->q || specv_ref_i_has_scores(g)))
        return specv_ref_i_draw(w, uniform); /* every rank can */
    if (w->q && specv_ref_i_lacks_gains(g)) return 0;
    if (s->from.kind == SPECV_I_RECORD_TOKENS) {
        for (int rank = 0; rank < s->d->num_shards; ++rank) {
            const specv_i_drawn *drawn =
                (const specv_i_drawn *)(const void *)(specv_ref_i_record(s, rank) +
                                                      s->from.tokens) +
                g->b;
            if (drawn->token >= 0) {
                s->has_drawn = 1, s->score = drawn->score;
                total = (uint64_t)drawn->token + 1;
            }
        }
        if (w->q) { /* was it drawn from these? */
            if (!s->lost[row]) return -1;
        } else {
            uint64_t sum = 0;
            for (int rank = 0; rank < s->d->num_shards; ++rank)
                sum += s->tiles[row * s->d->num_shards + rank].sum;
            if (of_lost >= 0) sum -= s->lost[row];
            if (sum == 0) return -1;
        }
        return (int64_t)total - 1;
    }
    s->lacks = SPECV_I_RECORD_TOKENS;
    s->drawn = *w, s->drawn_at = k, s->drawn_q = w->q != NULL, s->owner = -1;
    if (s->drawn_q) s->lost[row] = 0;
    for (int turn = 0; turn < 2; ++turn)
        for (int rank = 0; rank < s->d->num_shards; ++rank) {
            uint64_t weight = s->drawn_q ? specv_ref_i_gains_of(g, rank, k)->weight
                                         : s->tiles[row * s->d->num_shards + rank].sum;
            if (rank == of_lost) weight -= s->lost[row];
            if (turn == 0) {
                total += weight;
                s->left = specv_i_mul_high(uniform, total), s->low = uniform * total;
            } else if (s->owner < 0 && s->left < weight) {
                s->owner = rank;
            } else if (s->owner < 0) {
                s->left -= weight;
            }
        }
    if (s->drawn_q) s->lost[row] = total; /* is there any, for the last step */
    return total == 0 ? -1 : 0;
}

/* Position j of the rank's own columns, with the distribution of all. */
static specv_ref_i_scores specv_ref_i_own_columns(specv_ref_i_judge *g, const specv_ref_i_shard *s,
                                                  int32_t j, int of_draft) {
    int zero;
    specv_ref_i_scores r = specv_ref_i_frame(
        &s->local, g->b, j, of_draft, of_draft ? g->draft_temperature : g->temperature, &zero);
    const specv_ref_i_scores all = specv_ref_i_put_together(g, j, of_draft);
    r.row = all.row;
    r.row.id -= s->d->first_id;                                    /* of those that are one id */
    if (all.least) r.least = all.least + (uint64_t)s->d->first_id; /* of the rank's ids */
    return r;
}

/* The step behind the largest scores: the rank's sum, and what it knows of the draft (A5: of the
   choice). */
static void specv_ref_i_put_sums(specv_ref_i_judge *g, const specv_ref_i_shard *s, int32_t j,
                                 int32_t n_draft, int of_draft) {
    const int64_t row = specv_ref_i_row_of_side(g, s, j, of_draft);
    char *record = (char *)s->d->record;
    specv_ref_i_scores own = specv_ref_i_own_columns(g, s, j, of_draft);
    int64_t column = -1;
    uint64_t sum = 0, lost = 0;
    float of_p = 0, of_q = 0;
    const int cut = specv_ref_i_is_cut(g, of_draft);
    const specv_i_limits l = specv_ref_i_limits_of_side(g, of_draft);
    if (own.row.kind == SPECV_SOFTMAX && (!cut || (l.has_top_p && l.order == SPECV_TOP_P_OF_ALL)))
        sum = specv_ref_i_sum(&own);
    ((uint64_t *)(void *)(record + s->to.sums))[row] = sum;
    if (of_draft) return;
    if (g->d->rule == SPECV_RULE_COUPLED)
        column = cut ? -1 : own.row.id;
    else if (j < n_draft && specv_ref_i_is_token(&g->d->verify, specv_ref_i_draft(g, j)))
        column = specv_ref_i_draft(g, j) - s->d->first_id;
    if (column < 0 || column >= s->d->num_ids) column = -1;
    if (column >= 0 && sum && !cut) {
        specv_ref_i_weights w;
        w.p = &own, w.q = NULL, w.prefix = 1, w.without = column, w.law = NULL;
        lost = sum - specv_ref_i_total(&w);
    }
    if (column >= 0 && !cut) of_p = specv_ref_i_score(&own, column);
    if (column >= 0 && s->to.q && !specv_ref_i_is_cut(g, 1)) {
        own = specv_ref_i_own_columns(g, s, j, 1);
        of_q = specv_ref_i_score(&own, column);
    }
    ((float *)(void *)(record + s->to.p))[row] = of_p;
    if (s->to.q) ((float *)(void *)(record + s->to.q))[row] = of_q;
    if (s->to.lost) ((uint64_t *)(void *)(record + s->to.lost))[row] = lost;
}

/* The rank's sums of what p has more of than q, where it was found out that these are needed. */
static void specv_ref_i_put_gains(specv_ref_i_judge *g, const specv_ref_i_shard *s) {
    const int block = g->d->rule == SPECV_RULE_BLOCK;
    const int32_t last = block ? g->usable - 1 : g->o.accepted;
    float prefix = 1;
    for (int32_t j = block ? 0 : last; j <= last; ++j) {
        specv_i_gains *to = (specv_i_gains *)(void *)((char *)s->d->record + s->to.gains) +
                            specv_ref_i_gains_row(g, j);
        specv_i_gains sum = {0, 0, 0};
        specv_ref_i_scores p = specv_ref_i_own_columns(g, s, j, 0);
        specv_ref_i_scores q = specv_ref_i_own_columns(g, s, j, 1);
        specv_ref_i_weights w;
        w.p = &p, w.q = &q, w.prefix = prefix, w.without = -1, w.law = NULL;
        for (int64_t begin = 0; begin < p.vocab && prefix > 0; begin += SPECV_TILE_IDS)
            specv_ref_i_add_gains(&w, begin, &sum.gain, &sum.rest);
        if (prefix > 0) sum.weight = specv_ref_i_total(&w);
        *to = sum;
        if (block) prefix = specv_ref_i_next_prefix(g, j, prefix);
    }
}

/* The token, if it is this rank's. */
static void specv_ref_i_put_token(specv_ref_i_judge *g, const specv_ref_i_shard *s) {
    specv_i_drawn drawn = {-1, 0};
    if (s->lacks == SPECV_I_RECORD_TOKENS && s->owner >= 0) {
        const specv_i_record_head *head =
            (const specv_i_record_head *)(const void *)specv_ref_i_record(s, s->owner);
        if (s->d->num_ids > 0 && head->first_id == s->d->first_id &&
            head->num_ids == s->d->num_ids) {
            const int32_t k = s->drawn_at;
            specv_ref_i_scores p = specv_ref_i_own_columns(g, s, k, 0), q;
            specv_ref_i_weights w = s->drawn;
            int64_t column;
            w.p = &p;
            if (s->drawn_q) q = specv_ref_i_own_columns(g, s, k, 1), w.q = &q;
            if (w.without >= 0) w.without -= s->d->first_id;
            column = specv_ref_i_find(&w, s->left, s->low);
            if (column >= 0) {
                drawn.token = s->d->first_id + (int32_t)column;
                drawn.score = specv_ref_i_score(&p, column);
            }
        }
    }
    ((specv_i_drawn *)(void *)((char *)s->d->record + s->to.tokens))[g->b] = drawn;
}

/* The rank's first ids of a position, as many as the row's top_k. */
static void specv_ref_i_put_named(const specv_ref_i_shard *s, specv_ref_i_scores *p, uint64_t *to,
                                  int32_t top_k) {
    const int none = p->row.max > 0 && !specv_in_range(p->row.max, &p->scale); /* one id is all */
    for (int32_t i = 0; i < s->d->max_top_k; ++i) to[i] = 0;
    for (int64_t begin = 0; begin < p->vocab && !none; begin += SPECV_TILE_IDS) {
        specv_ref_i_tile t;
        specv_ref_i_open_tile(p, begin, &t);
        for (int i = 0; i < t.count; ++i) {
            const uint64_t key = specv_rank_key(t.score[i], s->d->first_id + (int32_t)begin + i);
            int32_t at = top_k;
            if (key < SPECV_I_LEAST_RANK || key <= to[top_k - 1]) continue;
            for (--at; at > 0 && to[at - 1] < key; --at) to[at] = to[at - 1];
            to[at] = key;
        }
    }
}

/* The first ids of all ranks'. */
static void specv_ref_i_hear_named(const specv_ref_i_shard *s, int64_t row, int of_draft,
                                   int32_t top_k) {
    const int32_t most = s->d->max_top_k;
    uint64_t *to = s->named + row * most, before = ~(uint64_t)0;
    const int64_t first = (row - (of_draft ? s->target_rows : 0)) * most;
    for (int32_t at = 0; at < most; ++at) {
        uint64_t best = 0;
        for (int rank = 0; rank < s->d->num_shards && at < top_k; ++rank) {
            const uint64_t *of = (const uint64_t *)(const void *)(specv_ref_i_record(s, rank) +
                                                                  s->from.named[of_draft]) +
                                 first;
            for (int32_t i = 0; i < most; ++i)
                if (of[i] < before && of[i] > best) best = of[i];
        }
        to[at] = before = best;
    }
}

/* Step 0: what this rank says of position j. */
static void specv_ref_i_put_stats(specv_ref_i_judge *g, const specv_ref_i_shard *s, int32_t j,
                                  int of_draft) {
    const int64_t row = specv_ref_i_row_of_side(g, s, j, of_draft);
    char *record = (char *)s->d->record;
    uint32_t *of = (uint32_t *)(void *)(record + s->to.best) + 2 * row;
    int zero;
    specv_ref_i_scores p = specv_ref_i_frame(
        &s->local, g->b, j, of_draft, of_draft ? g->draft_temperature : g->temperature, &zero);
    int64_t score = SPECV_I_NO_SCORE, value;
    int32_t id;
    p.row.max = specv_ref_i_largest(&p, &id);
    specv_ref_i_set_kind(&p, zero);
    const int cut = specv_ref_i_is_cut(g, of_draft);
    if (p.row.kind != SPECV_NO_TOKEN) id += s->d->first_id;
    if (cut) {
        const int64_t of_side = row - (of_draft ? s->target_rows : 0);
        specv_ref_i_put_named(
            s, &p, (uint64_t *)(void *)(record + s->to.named[of_draft]) + of_side * s->d->max_top_k,
            specv_ref_i_limits_of_side(g, of_draft).top_k);
    }
    if (p.row.kind == SPECV_SOFTMAX) {
        id = 0;
        if (g->d->rule == SPECV_RULE_COUPLED && !cut) {
            const int64_t choice = specv_ref_i_loudest(g, &p, j, s->d->first_id, &value);
            if (choice >= 0) id = (int32_t)choice, score = value;
        }
    }
    of[0] = specv_float_bits(specv_i_add(p.row.max, 0.f)); /* no -0 */
    of[1] = (uint32_t)id | (p.row.status & SPECV_ROW_NAN ? SPECV_I_NAN_BIT : 0);
    if (g->d->rule == SPECV_RULE_COUPLED) ((int64_t *)(void *)(record + s->to.scores))[row] = score;
}

/* What all ranks have said of position j, for this step and the next ones. */
static void specv_ref_i_hear(const specv_ref_i_judge *g, const specv_ref_i_shard *s, int32_t j,
                             int32_t n_draft, int of_draft) {
    const int64_t row = specv_ref_i_row_of_side(g, s, j, of_draft);
    int64_t id = -1;
    float max = specv_bits_float(0xff800000u);
    int64_t best = SPECV_I_NO_SCORE;
    int owner;
    for (int rank = 0; rank < s->d->num_shards; ++rank) {
        const char *record = specv_ref_i_record(s, rank);
        specv_tile *t = s->tiles + row * s->d->num_shards + rank;
        if (s->from.kind == SPECV_I_RECORD_STATS) {
            const uint32_t *of = (const uint32_t *)(const void *)(record + s->from.best) + 2 * row;
            const int64_t *scores = (const int64_t *)(const void *)(record + s->from.scores);
            t->sum = 0, t->max = specv_bits_float(of[0]), t->id = of[1];
            t->score = s->from.scores ? scores[row] : SPECV_I_NO_SCORE;
        } else if (s->from.kind == SPECV_I_RECORD_SUMS) {
            t->sum = ((const uint64_t *)(const void *)(record + s->from.sums))[row];
        }
        if (rank == 0 && s->from.kind == SPECV_I_RECORD_STATS && specv_ref_i_is_cut(g, of_draft))
            specv_ref_i_hear_named(s, row, of_draft, specv_ref_i_limits_of_side(g, of_draft).top_k);
        if (t->max > max) max = t->max;
        if (g->d->rule == SPECV_RULE_COUPLED && t->score > best)
            best = t->score, id = t->id & ~SPECV_I_NAN_BIT;
    }
    if (of_draft) return;
    if (s->from.kind == SPECV_I_RECORD_STATS) s->p[row] = s->q[row] = 0, s->lost[row] = 0;
    if (s->from.kind == SPECV_I_RECORD_GAINS && j < n_draft)
        for (int rank = 0; rank < s->d->num_shards; ++rank) {
            specv_i_residual *kept = s->gains + row * s->d->num_shards + rank;
            const specv_i_gains *of = specv_ref_i_gains_of(g, rank, j);
            kept->gain = of->gain, kept->rest = of->rest;
        }
    if (s->from.kind != SPECV_I_RECORD_SUMS) return;
    if (g->d->rule != SPECV_RULE_COUPLED && j < n_draft) {
        id = specv_ref_i_draft(g, j);
        if (!specv_ref_i_is_token(&g->d->verify, id)) id = -1;
    }
    owner = id < 0 ? -1 : specv_ref_i_owner(s, id);
    if (owner >= 0) {
        const char *record = specv_ref_i_record(s, owner);
        s->p[row] = ((const float *)(const void *)(record + s->from.p))[row];
        if (s->from.q) s->q[row] = ((const float *)(const void *)(record + s->from.q))[row];
        if (s->from.lost)
            s->lost[row] = ((const uint64_t *)(const void *)(record + s->from.lost))[row];
    }
}

static void specv_ref_i_shard_row(specv_ref_i_shard *s, int b) {
    specv_ref_i_judge g;
    int32_t n_draft = specv_ref_i_open_judge(&g, &s->sample, b);
    const int32_t positions = n_draft + !g.d->bonus_token;
    const int has_masks = n_draft < 0 || (specv_ref_i_masks_are_there(g.d, b, n_draft) &&
                                          specv_ref_i_limits_fit(&g, s->d, n_draft));
    uint32_t mark = s->d->step > 0 ? s->marks[b] & SPECV_ROW_BAD_RECORD : 0;
    uint32_t digest = specv_ref_i_digest(&g, s->d->epoch, has_masks ? n_draft : -1, mark);
    if (!has_masks) n_draft = -1, g.o.status |= SPECV_ROW_BAD_FILTER;
    if (s->from.bytes && (!specv_ref_i_records_agree(s, b, digest) || mark)) {
        n_draft = -1, g.o.status = mark = SPECV_ROW_BAD_RECORD;
        g.slot = -1;
        digest = specv_ref_i_digest(&g, s->d->epoch, n_draft, mark);
    }
    s->marks[b] = mark, s->lacks = s->has_drawn = 0;
    if (s->to.bytes) ((uint32_t *)(void *)((char *)s->d->record + s->to.rows))[b] = digest;
    if (n_draft >= 0) {
        const int sampled = specv_ref_i_open_values(&g);
        const int32_t of_q = sampled && specv_i_shard_has_q(g.d) ? n_draft : 0;
        g.shard = s;
        for (int32_t i = 0; s->from.bytes && i < positions + of_q; ++i)
            specv_ref_i_hear(&g, s, i < positions ? i : i - positions, n_draft, i >= positions);
        for (int32_t i = 0; i < positions + of_q; ++i) {
            const int32_t j = i < positions ? i : i - positions;
            if (s->to.kind == SPECV_I_RECORD_STATS) specv_ref_i_put_stats(&g, s, j, i >= positions);
            if (s->to.kind == SPECV_I_RECORD_SUMS)
                specv_ref_i_put_sums(&g, s, j, n_draft, i >= positions);
        }
        if (s->to.kind > SPECV_I_RECORD_SUMS) specv_ref_i_judge_drafts(&g, n_draft, sampled);
        if (s->to.kind == SPECV_I_RECORD_GAINS && s->lacks == SPECV_I_RECORD_GAINS)
            specv_ref_i_put_gains(&g, s);
    }
    if (s->to.kind == SPECV_I_RECORD_TOKENS) specv_ref_i_put_token(&g, s);
    if (!s->to.bytes) specv_ref_i_write_judged(&g);
}

SPECV_REF_BODY int specv_ref_verify_shard(const specv_verify_shard_desc *d) {
    int status = specv_verify_shard_validate(d);
    specv_i_shard_scratch scratch;
    specv_ref_i_shard s;
    char *base;
    if (status != SPECV_OK || d->sample.verify.rows.batch == 0) return status;
    scratch = specv_i_shard_layout(d), base = (char *)d->sample.scratch;
    s.d = d, s.local = specv_i_shard_local(d), s.sample = d->sample;
    s.to = specv_i_record_of(d, d->step), s.from = specv_i_record_of(d, d->step - 1);
    s.stride = d->record_stride_bytes ? d->record_stride_bytes : s.from.bytes;
    s.target_rows = scratch.local.target_rows;
    s.tiles = (specv_tile *)(void *)(base + scratch.tiles);
    s.gains = (specv_i_residual *)(void *)(base + scratch.residuals);
    s.lost = (uint64_t *)(void *)(base + scratch.lost);
    s.named = (uint64_t *)(void *)(base + scratch.named);
    s.p = (float *)(void *)(base + scratch.p), s.q = (float *)(void *)(base + scratch.q);
    s.marks = (uint32_t *)(void *)(base + scratch.marks);
    s.lacks = s.has_drawn = 0;
    if (s.to.bytes) {
        s.sample.target_logprob = NULL;
        specv_i_record_head *head = (specv_i_record_head *)d->record;
        head->digest = specv_i_shard_digest(d, d->step);
        head->first_id = d->first_id, head->num_ids = d->num_ids;
    }
    for (int b = 0; b < d->sample.verify.rows.batch; ++b) specv_ref_i_shard_row(&s, b);
    return SPECV_OK;
}

/* ==================================================================================== >>pack */

/* ---- B1 */

static void specv_ref_i_copy(const specv_pack_kv_desc *d, int b, int32_t len) {
    const specv_kv_pack *kv = &d->kv;
    int64_t pos_stride = kv->src_pos_stride_bytes ? kv->src_pos_stride_bytes : kv->row_bytes;
    int64_t seq_stride =
        kv->src_seq_stride_bytes ? kv->src_seq_stride_bytes : d->rows.max_draft * pos_stride;
    int64_t dst_stride = kv->dst_row_stride_bytes ? kv->dst_row_stride_bytes : kv->row_bytes;
    int planes = kv->num_planes ? kv->num_planes : 1;
    for (int plane = 0; plane < planes; ++plane) {
        const char *src = (const char *)(kv->src_planes ? kv->src_planes[plane] : kv->src);
        char *dst = (char *)(kv->dst_planes ? kv->dst_planes[plane] : kv->dst);
        if (!src || !dst) continue;
        for (int32_t j = 0; j < len; ++j) {
            int64_t from = specv_i_is_csr(&d->rows)
                               ? (specv_ref_i_row_first(&d->rows, b) + j) * pos_stride
                               : b * seq_stride + j * pos_stride;
            int64_t to = (kv->offsets[b] + (int64_t)j) * dst_stride;
            for (int64_t byte = 0; byte < kv->row_bytes; ++byte) dst[to + byte] = src[from + byte];
        }
    }
}

/* offsets[b] = sum of k over the rows before b;   dst[offsets[b] + j] = src[b][j] for j < k_b */
SPECV_REF_BODY int specv_ref_pack_kv(const specv_pack_kv_desc *d) {
    int status = specv_pack_kv_validate(d);
    int32_t offset = 0;
    if (status != SPECV_OK) return status;
    for (int b = 0; b < d->rows.batch; ++b) {
        int live = specv_ref_i_is_live(&d->rows, b);
        int32_t num_drafts = specv_ref_i_num_drafts(&d->rows, b);
        int32_t len = live ? d->accepted_len[b] : 0;
        uint32_t bits = 0;
        if (live && (num_drafts < 0 || len < 0 || len > num_drafts)) {
            bits = SPECV_ROW_BAD_LENGTH;
            len = 0;
        }
        d->kv.offsets[b] = offset;
        offset += len;
        if (len > 0 && offset > d->kv.capacity_rows)
            bits |= SPECV_ROW_NO_SPACE;
        else
            specv_ref_i_copy(d, b, len);
        specv_i_put_status(d->row_status, b, bits, d->keep_status);
    }
    if (d->rows.batch > 0) d->kv.offsets[d->rows.batch] = offset;
    return SPECV_OK;
}

/* ---- B2 */

SPECV_REF_BODY int specv_ref_verify_pack_kv(const specv_verify_pack_kv_desc *d) {
    specv_pack_kv_desc pack = SPECV_ZERO;
    int status = specv_verify_pack_kv_validate(d);
    if (status != SPECV_OK) return status;
    pack.keep_status = 1;
    pack.rows = d->verify.rows;
    pack.accepted_len = d->verify.accepted_len;
    pack.row_status = d->verify.row_status;
    pack.kv = d->kv;
    status = specv_ref_verify_greedy(&d->verify);
    return status != SPECV_OK ? status : specv_ref_pack_kv(&pack);
}

/* =================================================================================== >>cache */

/* ---- B3 */

/* Where head h of position x of the sequence in a slot starts in a plane; kv is resolved. */
static int64_t specv_ref_i_place(const specv_kv_cache *kv, int64_t slot, int64_t x, int64_t h) {
    int64_t page;
    if (!kv->block_table)
        return slot * kv->seq_stride_bytes + x * kv->pos_stride_bytes + h * kv->head_stride_bytes;
    page = kv->block_table[slot * kv->table_stride_elems + x / kv->page_size];
    return page * kv->page_stride_bytes + x % kv->page_size * kv->pos_stride_bytes +
           h * kv->head_stride_bytes;
}

static int specv_ref_i_is_page(const specv_kv_cache *kv, int64_t page) {
    return page >= 0 && page < kv->num_pages;
}

static void specv_ref_i_bytes(char *dst, const char *src, int64_t bytes) {
    for (int64_t i = 0; i < bytes; ++i) dst[i] = src[i];
}

/* How many KV rows of row b belong into the cache; *cache_len is -1 if that length is bad. */
static int64_t specv_ref_i_append_count(const specv_append_kv_desc *d, int b, int32_t slot,
                                        int64_t *cache_len, uint32_t *status) {
    const specv_kv_cache *kv = &d->kv;
    int32_t num_drafts = specv_ref_i_num_drafts(&d->rows, b), accepted = d->accepted_len[b];
    int64_t count;
    *cache_len = d->cache_len[slot];
    if (*cache_len < 0 || *cache_len > kv->max_positions) {
        *cache_len = -1;
        *status |= SPECV_ROW_BAD_LENGTH;
        return 0;
    }
    if (num_drafts < 0) *status |= SPECV_ROW_BAD_LENGTH;
    if (num_drafts < 0 && specv_i_is_csr(&d->rows)) return 0;
    if (num_drafts < 0) num_drafts = 0;
    if (accepted < 0 || accepted > num_drafts) {
        *status |= SPECV_ROW_BAD_LENGTH;
        return 0;
    }
    count = (int64_t)d->num_pending + accepted;
    if (*cache_len + count > kv->max_positions) {
        *status |= SPECV_ROW_NO_SPACE;
        return 0;
    }
    for (int64_t x = *cache_len; kv->block_table && x < *cache_len + count; ++x) {
        int32_t page = kv->block_table[slot * kv->table_stride_elems + x / kv->page_size];
        if (!specv_ref_i_is_page(kv, page))
            *status |= SPECV_ROW_BAD_PAGE;
        else if (d->page_refs && d->page_refs[page] != 1)
            *status |= SPECV_ROW_SHARED_PAGE;
    }
    return *status & (SPECV_ROW_BAD_PAGE | SPECV_ROW_SHARED_PAGE) ? 0 : count;
}

static void specv_ref_i_append_rows(const specv_append_kv_desc *d, int b, int32_t slot,
                                    int64_t cache_len, int64_t count) {
    for (int plane = 0; plane < d->kv.num_planes; ++plane) {
        const char *src = (const char *)(d->src.planes ? d->src.planes[plane] : d->src.plane);
        char *dst = (char *)(d->kv.planes ? d->kv.planes[plane] : d->kv.plane);
        if (!src || !dst) continue;
        for (int64_t j = 0; j < count; ++j)
            for (int64_t h = 0; h < d->kv.num_heads; ++h) {
                int64_t from = b * d->src.seq_stride_bytes + j * d->src.pos_stride_bytes;
                if (specv_i_is_csr(&d->rows))
                    from = (specv_ref_i_row_first(&d->rows, b) + (int64_t)b * d->num_pending + j) *
                           d->src.pos_stride_bytes;
                specv_ref_i_bytes(dst + specv_ref_i_place(&d->kv, slot, cache_len + j, h),
                                  src + from + h * d->src.head_stride_bytes, d->kv.head_bytes);
            }
    }
}

/* Where the next pass's row at position x of the sequence in a slot goes: such places are numbered
   page by page. */
static int64_t specv_ref_i_kv_slot(const specv_kv_cache *kv, int32_t slot, int64_t x) {
    int64_t page;
    if (x >= kv->max_positions) return -1;
    if (!kv->block_table) return (int64_t)slot * kv->max_positions + x;
    page = kv->block_table[slot * kv->table_stride_elems + x / kv->page_size];
    return specv_ref_i_is_page(kv, page) ? page * kv->page_size + x % kv->page_size : -1;
}

static void specv_ref_i_append(const specv_append_kv_desc *d, int b) {
    const int64_t columns = (int64_t)d->num_pending + d->rows.max_draft;
    int64_t len = -1, count = 0, draft = 0, drafted;
    int32_t lacks = 0, slot = -1;
    uint32_t status = 0;
    if (specv_ref_i_is_live(&d->rows, b))
        slot = specv_ref_i_slot(d->rows.slot, d->rows.slot_dtype, d->rows.num_slots, b, 1, &status);
    if (slot >= 0) count = specv_ref_i_append_count(d, b, slot, &len, &status);
    if (count > 0 && specv_i_has_planes(&d->kv)) specv_ref_i_append_rows(d, b, slot, len, count);
    if (len >= 0) {
        drafted = specv_ref_i_num_drafts(&d->rows, b);
        draft = len + d->num_pending + (drafted > 0 ? drafted : 0) - 1;
        if (draft < 0) draft = 0;
        len += count;
        d->cache_len[slot] = (int32_t)len;
        if (d->draft_cache_len) draft = d->draft_cache_len[slot];
        if (draft < 0) status |= SPECV_ROW_BAD_LENGTH;
        if (draft > len) draft = len;
        if (draft >= 0) lacks = (int32_t)(len + 1 - draft);
        if (draft >= 0 && d->draft_cache_len) d->draft_cache_len[slot] = (int32_t)draft;
    }
    if (d->draft_lacks) d->draft_lacks[b] = lacks;
    for (int64_t j = 0; j < columns; ++j) {
        int64_t place = len >= 0 ? specv_ref_i_kv_slot(&d->kv, slot, len + j) : -1;
        if (d->slot_mapping) d->slot_mapping[b * columns + j] = place;
        if (d->position_ids) d->position_ids[b * columns + j] = len >= 0 ? (int32_t)(len + j) : 0;
    }
    specv_i_put_status(d->row_status, b, status, d->keep_status);
}

SPECV_REF_BODY int specv_ref_append_kv(const specv_append_kv_desc *desc) {
    int status = specv_append_kv_validate(desc);
    specv_append_kv_desc d;
    if (status != SPECV_OK) return status;
    d = *desc;
    specv_append_kv_resolve(&d);
    for (int b = 0; b < d.rows.batch; ++b) specv_ref_i_append(&d, b);
    return SPECV_OK;
}

/* ---- B5 */

static int specv_ref_i_num_live(const int32_t *num_active, int batch) {
    int live = num_active && *num_active < batch ? *num_active : batch;
    return live < 0 ? 0 : live;
}

/* What a row wants: entries keep .. held-1 go, entries held .. keep-1 come. */
typedef struct specv_ref_i_pages {
    int32_t *table, *num_row_pages;
    int64_t held, keep, content; /* pages that the row owns, will own, has tokens in */
    int64_t fill;                /* tokens in the last of `content`, 0 if it is full */
    int writes;                  /* the row will write behind its content */
    int ok;                      /* 0: the row stays as it is */
    uint32_t status;
} specv_ref_i_pages;

/* Everything is judged by the state before the launch: page_refs are as they were then. */
static specv_ref_i_pages specv_ref_i_pages_of(const specv_page_resize_desc *d, int b,
                                              int32_t slot) {
    const int64_t size = d->kv.page_size, len = d->cache_len[slot];
    const int64_t reserve = d->row_reserve ? d->row_reserve[b] : d->reserve;
    const int finished = d->finished && d->finished[b];
    int64_t want = finished ? 0 : len + reserve, first;
    specv_ref_i_pages r;
    r.table = d->kv.block_table + slot * d->kv.table_stride_elems;
    r.num_row_pages = d->num_row_pages + slot;
    r.held = *r.num_row_pages;
    r.content = finished ? 0 : (len + size - 1) / size;
    r.fill = finished ? 0 : len % size;
    r.status = 0, r.ok = 0;
    if (want > d->kv.max_positions) want = d->kv.max_positions;
    r.keep = (want + size - 1) / size;
    r.writes = want > len;
    if (r.held < 0 || r.held > specv_i_row_pages(&d->kv) || reserve < 0 || len < 0 ||
        len > d->kv.max_positions || r.content > r.held) {
        r.status = SPECV_ROW_BAD_LENGTH;
        return r;
    }
    first = r.content - (r.fill > 0); /* pages that are looked at: what is written or given back */
    for (int64_t i = first; i < r.held; ++i) {
        int32_t page = r.table[i];
        if (!specv_ref_i_is_page(&d->kv, page) || d->pool.page_refs[page] < 1)
            r.status |= SPECV_ROW_BAD_PAGE;
        else if (i >= r.content && i < r.keep && d->pool.page_refs[page] > 1)
            r.status |= SPECV_ROW_SHARED_PAGE;
    }
    r.ok = r.status == 0;
    return r;
}

/* Takes the pages back that a row does not want, and frees, once, those that nobody owns any more.
   In the end the counts of freed pages are below 0; specv_ref_i_settle makes them 0. */
static void specv_ref_i_give_back(const specv_page_resize_desc *d, const specv_ref_i_pages *r) {
    for (int64_t i = r->keep; i < r->held; ++i) d->pool.page_refs[r->table[i]] -= 1;
}

enum { SPECV_REF_I_FREED = -(1 << 30) };

static void specv_ref_i_free(const specv_page_resize_desc *d, specv_ref_i_pages *r) {
    for (int64_t i = r->keep; i < r->held; ++i) {
        int32_t *refs = &d->pool.page_refs[r->table[i]];
        int too_many = *refs < 0 && *refs != SPECV_REF_I_FREED;
        if (too_many) r->status |= SPECV_ROW_BAD_PAGE; /* more entries than owners */
        if (*refs > 0 || *refs <= SPECV_REF_I_FREED) continue;
        if (*d->pool.num_free < d->kv.num_pages)
            d->pool.free_pages[(*d->pool.num_free)++] = r->table[i];
        else
            r->status |= SPECV_ROW_BAD_PAGE; /* it was in free_pages while it had owners */
        *refs = SPECV_REF_I_FREED - too_many;
    }
}

static void specv_ref_i_settle(const specv_page_resize_desc *d, specv_ref_i_pages *r) {
    for (int64_t i = r->keep; i < r->held; ++i) {
        if (d->pool.page_refs[r->table[i]] < 0) d->pool.page_refs[r->table[i]] = 0;
        r->table[i] = -1;
    }
    if (r->keep < r->held) *r->num_row_pages = (int32_t)(r->held = r->keep);
}

static int32_t specv_ref_i_pop(const specv_page_resize_desc *d, uint32_t *status) {
    int32_t page = d->pool.free_pages[--*d->pool.num_free];
    if (specv_ref_i_is_page(&d->kv, page)) {
        d->pool.page_refs[page] = 1;
        return page;
    }
    *status |= SPECV_ROW_BAD_PAGE;
    return -1;
}

/* Returns 0 if the pool ran dry. */
static int specv_ref_i_take(const specv_page_resize_desc *d, specv_ref_i_pages *r,
                            int32_t *copy_src_page, int32_t *copy_dst_page, int dry) {
    int32_t *last = &r->table[r->content - 1];
    int copy = r->writes && r->fill > 0 && d->pool.page_refs[*last] > 1;
    int64_t demand = copy + r->keep - r->held;
    if (demand == 0) return 1;
    if (dry || demand > *d->pool.num_free) {
        r->status |= SPECV_ROW_NO_SPACE;
        return 0;
    }
    if (copy) {
        d->pool.page_refs[*last] -= 1;
        *copy_src_page = *last;
        *last = *copy_dst_page = specv_ref_i_pop(d, &r->status);
    }
    for (int64_t i = r->held; i < r->keep; ++i) r->table[i] = specv_ref_i_pop(d, &r->status);
    *r->num_row_pages = (int32_t)r->keep;
    return 1;
}

static void specv_ref_i_copy_page(const specv_kv_cache *kv, int64_t from, int64_t to,
                                  int64_t positions) {
    for (int plane = 0; plane < kv->num_planes; ++plane) {
        char *data = (char *)(kv->planes ? kv->planes[plane] : kv->plane);
        for (int64_t x = 0; data && x < positions; ++x)
            for (int64_t h = 0; h < kv->num_heads; ++h) {
                int64_t at = x * kv->pos_stride_bytes + h * kv->head_stride_bytes;
                specv_ref_i_bytes(data + to * kv->page_stride_bytes + at,
                                  data + from * kv->page_stride_bytes + at, kv->head_bytes);
            }
    }
}

static void specv_ref_i_resize_rows(const specv_page_resize_desc *d, int num_rows) {
    specv_ref_i_pages rows[SPECV_PAGE_ROWS];
    const int pool_ok = *d->pool.num_free >= 0 && *d->pool.num_free <= d->kv.num_pages;
    int dry = 0;
    for (int i = 0; i < num_rows; ++i) {
        uint32_t bits = 0;
        int32_t slot = specv_ref_i_slot(d->slot, d->slot_dtype, d->num_slots, i, 1, &bits);
        if (slot >= 0) rows[i] = specv_ref_i_pages_of(d, i, slot);
        if (slot >= 0 && !pool_ok) bits = SPECV_ROW_BAD_PAGE;
        if (bits) rows[i].status = bits, rows[i].ok = 0;
    }
    for (int i = 0; i < num_rows; ++i)
        if (rows[i].ok) specv_ref_i_give_back(d, &rows[i]);
    for (int i = 0; i < num_rows; ++i)
        if (rows[i].ok) specv_ref_i_free(d, &rows[i]);
    for (int i = 0; i < num_rows; ++i)
        if (rows[i].ok) specv_ref_i_settle(d, &rows[i]);
    for (int i = 0; i < num_rows; ++i) {
        int32_t copy_src_page = -1, copy_dst_page = -1;
        if (rows[i].ok && !specv_ref_i_take(d, &rows[i], &copy_src_page, &copy_dst_page, dry))
            dry = 1;
        if (d->copy_src_page)
            d->copy_src_page[i] = copy_src_page, d->copy_dst_page[i] = copy_dst_page;
        if (copy_dst_page >= 0 && specv_i_has_planes(&d->kv))
            specv_ref_i_copy_page(&d->kv, copy_src_page, copy_dst_page, rows[i].fill);
        specv_i_put_status(d->row_status, i, rows[i].status, d->keep_status);
    }
}

SPECV_REF_BODY int specv_ref_page_resize(const specv_page_resize_desc *desc) {
    int status = specv_page_resize_validate(desc), live;
    specv_page_resize_desc d;
    if (status != SPECV_OK || desc->batch == 0) return status;
    d = *desc;
    specv_page_resize_resolve(&d);
    live = specv_ref_i_num_live(d.num_active, d.batch);
    specv_ref_i_resize_rows(&d, live);
    for (int b = live; b < d.batch; ++b) {
        if (d.copy_src_page) d.copy_src_page[b] = d.copy_dst_page[b] = -1;
        specv_i_put_status(d.row_status, b, 0, d.keep_status);
    }
    return SPECV_OK;
}

static uint32_t specv_ref_i_fork(const specv_page_fork_desc *d, int live, int i) {
    const int32_t src = d->src_slot[i], dst = d->dst_slot[i];
    int64_t len, count;
    int32_t *from, *to;
    if (src < 0 || src >= d->num_slots || dst < 0 || dst >= d->num_slots || src == dst)
        return SPECV_ROW_BAD_LENGTH;
    for (int other = 0; other < live; ++other)
        if (d->src_slot[other] == dst || (other < i && d->dst_slot[other] == dst))
            return SPECV_ROW_BAD_LENGTH;
    len = d->cache_len[src];
    count = (len + d->page_size - 1) / d->page_size;
    if (len < 0 || d->num_row_pages[dst] != 0 || d->num_row_pages[src] > d->max_row_pages ||
        count > d->num_row_pages[src])
        return SPECV_ROW_BAD_LENGTH;
    from = d->block_table + src * d->table_stride_elems;
    to = d->block_table + dst * d->table_stride_elems;
    for (int64_t x = 0; x < count; ++x)
        if (from[x] < 0 || from[x] >= d->num_pages || d->page_refs[from[x]] < 1)
            return SPECV_ROW_BAD_PAGE;
    for (int64_t x = 0; x < count; ++x) {
        to[x] = from[x];
        d->page_refs[from[x]] += 1;
    }
    d->num_row_pages[dst] = (int32_t)count;
    d->cache_len[dst] = (int32_t)len;
    return 0;
}

SPECV_REF_BODY int specv_ref_page_fork(const specv_page_fork_desc *desc) {
    int status = specv_page_fork_validate(desc), live;
    specv_page_fork_desc d;
    if (status != SPECV_OK || desc->num_forks == 0) return status;
    d = *desc;
    specv_page_fork_resolve(&d);
    live = specv_ref_i_num_live(d.num_active_forks, d.num_forks);
    for (int i = 0; i < d.num_forks; ++i) {
        uint32_t bits = i < live ? specv_ref_i_fork(&d, live, i) : 0;
        specv_i_put_status(d.fork_status, i, bits, d.keep_status);
    }
    return SPECV_OK;
}

/* =================================================================================== >>trees */

/* A tree while it is walked. What a rule needs of scores is asked of a judge, as of a row's, with
   nodes for positions; its outcome is the tree's. */
typedef struct specv_ref_i_tree {
    const specv_verify_tree_desc *d;
    specv_verify_sample_desc v; /* scores, values of the request */
    specv_ref_i_judge g;
    int b;
    int32_t num_nodes, max_depth;  /* num_nodes 0: nothing of it may be read */
    int32_t path[SPECV_MAX_NODES]; /* g.o.accepted + 1 nodes */
    /* Of a child that was tried: what r and q of its parent were multiplied by, P of the parent by
       then; and P of a node. */
    float scale[SPECV_MAX_NODES], q_scale[SPECV_MAX_NODES], rest[SPECV_MAX_NODES];
    float prefix[SPECV_MAX_NODES];
} specv_ref_i_tree;

static int32_t specv_ref_i_parent(const specv_ref_i_tree *t, int32_t node) {
    const specv_trees *trees = &t->d->trees;
    const int64_t stride =
        trees->parent_stride_elems ? trees->parent_stride_elems : trees->max_nodes;
    return trees->parent[t->b * stride + node];
}

static int64_t specv_ref_i_node_token(const specv_ref_i_tree *t, int32_t node) {
    const specv_trees *trees = &t->d->trees;
    const int64_t stride = trees->token_stride_elems ? trees->token_stride_elems : trees->max_nodes;
    return specv_ref_i_get(trees->token, trees->token_dtype, t->b * stride + node);
}

/* The child of a node behind `after`, any; 0 if there is none. */
static int32_t specv_ref_i_child(const specv_ref_i_tree *t, int32_t node, int32_t after) {
    for (int32_t i = (after < node ? node : after) + 1; i < t->num_nodes; ++i)
        if (specv_ref_i_parent(t, i) == node) return i;
    return 0;
}

/* The same among those that are tried: tokens, not too deep, nothing behind an EOS. */
static int32_t specv_ref_i_tried(const specv_ref_i_tree *t, int32_t node, int32_t depth,
                                 int32_t after) {
    int32_t x = specv_ref_i_child(t, node, after);
    if (depth == t->max_depth) return 0;
    if (node && specv_ref_i_is_eos(&t->v.verify, specv_ref_i_node_token(t, node))) return 0;
    while (x && !specv_ref_i_is_token(&t->v.verify, specv_ref_i_node_token(t, x)))
        x = specv_ref_i_child(t, node, x);
    return x;
}

static int specv_ref_i_is_tree(const specv_ref_i_tree *t) {
    if (specv_ref_i_parent(t, 0) != -1) return 0;
    for (int32_t i = 1; i < t->num_nodes; ++i)
        if (specv_ref_i_parent(t, i) < 0 || specv_ref_i_parent(t, i) >= i) return 0;
    for (int32_t i = 1; i < t->num_nodes && specv_i_tree_is_distinct(t->d->rule); ++i)
        for (int32_t k = 1; k < i; ++k)
            if (specv_ref_i_parent(t, i) == specv_ref_i_parent(t, k) &&
                specv_ref_i_is_token(&t->v.verify, specv_ref_i_node_token(t, i)) &&
                specv_ref_i_node_token(t, i) == specv_ref_i_node_token(t, k))
                return 0;
    return 1;
}

/* Scores and values as A2 to A5 have them, with a position for each node. */
static specv_verify_sample_desc specv_ref_i_tree_as_rows(const specv_verify_tree_desc *desc) {
    specv_verify_tree_desc d = *desc;
    specv_verify_sample_desc v = SPECV_ZERO;
    specv_verify_tree_resolve(&d);
    v.verify.rows.batch = d.trees.batch, v.verify.rows.max_draft = d.trees.max_nodes;
    v.bonus_token = d.trees.parent; /* no position behind the last node */
    v.filters = d.filters, v.draft_filters = d.draft_filters, v.emitted = d.emitted;
    v.verify.rows.slot = d.trees.slot, v.verify.rows.slot_dtype = d.trees.slot_dtype;
    v.verify.rows.num_slots = d.trees.num_slots, v.verify.rows.num_active = d.trees.num_active;
    v.verify.vocab = d.vocab, v.verify.num_eos = d.num_eos;
    for (int i = 0; i < SPECV_MAX_EOS; ++i) v.verify.eos_token[i] = d.eos_token[i];
    v.target = d.target, v.draft = d.draft;
    v.temperature = d.temperature, v.draft_temperature = d.draft_temperature;
    v.seed = d.seed, v.position = d.position, v.step_row = d.step_row, v.stream = d.stream;
    v.rule = d.rule == SPECV_TREE_GREEDY    ? SPECV_RULE_GREEDY
             : d.rule == SPECV_TREE_COUPLED ? SPECV_RULE_COUPLED
                                            : SPECV_RULE_TOKEN;
    return v;
}

static void specv_ref_i_open_tree(specv_ref_i_tree *t, const specv_verify_tree_desc *d, int b) {
    const specv_trees *trees = &d->trees;
    uint32_t bad_slot = 0;
    t->d = d, t->b = b, t->v = specv_ref_i_tree_as_rows(d), t->num_nodes = 0, t->path[0] = 0;
    if (d->target_tokens) t->v.verify.rows.slot = NULL; /* the request has no values here */
    t->max_depth = d->max_depth ? d->max_depth : trees->max_nodes - 1;
    specv_ref_i_open_judge(&t->g, &t->v, b);
    t->g.is_tree = 1;
    bad_slot = t->g.o.status;
    if (trees->num_active && b >= *trees->num_active) return;
    if (bad_slot) return;
    t->num_nodes = trees->num_nodes ? trees->num_nodes[b] : trees->max_nodes;
    if (t->num_nodes < 1 || t->num_nodes > trees->max_nodes)
        t->num_nodes = 1, t->g.o.status |= SPECV_ROW_BAD_LENGTH;
    if (!specv_ref_i_masks_are_there(&t->v, b, t->num_nodes)) {
        t->num_nodes = 0, t->g.o.status |= SPECV_ROW_BAD_FILTER;
        return;
    }
    if (!specv_ref_i_is_tree(t)) t->num_nodes = 1, t->g.o.status |= SPECV_ROW_BAD_TREE;
}

/* Behind the last node of the path: were there children, and what of them is no token at all? */
static void specv_ref_i_look_behind(specv_ref_i_tree *t) {
    const int32_t last = t->path[t->g.o.accepted];
    for (int32_t x = specv_ref_i_child(t, last, 0); x; x = specv_ref_i_child(t, last, x)) {
        const int64_t draft = specv_ref_i_node_token(t, x);
        t->g.o.mismatch = 1;
        if (draft != -1 && !specv_ref_i_is_token(&t->v.verify, draft))
            t->g.o.status |= SPECV_ROW_BAD_DRAFT;
    }
}

/* The path goes on to a child; is that an EOS? */
static int specv_ref_i_step_down(specv_ref_i_tree *t, int32_t child) {
    t->path[++t->g.o.accepted] = child;
    t->g.o.finished = specv_ref_i_is_eos(&t->v.verify, specv_ref_i_node_token(t, child));
    return t->g.o.finished;
}

/* The first child of the path's last node that has this token; 0: none. */
static int32_t specv_ref_i_child_with(const specv_ref_i_tree *t, int64_t token) {
    const int32_t last = t->path[t->g.o.accepted], depth = t->g.o.accepted;
    int32_t x = specv_ref_i_tried(t, last, depth, 0);
    while (x && specv_ref_i_node_token(t, x) != token) x = specv_ref_i_tried(t, last, depth, x);
    return x;
}

/* GREEDY, target ids: from the root to the child that is the target's token, as long as there is
   one. */
static void specv_ref_i_walk_ids(specv_ref_i_tree *t) {
    const specv_verify_tree_desc *d = t->d;
    const int64_t stride = d->target_stride_elems ? d->target_stride_elems : d->trees.max_nodes;
    int64_t token;
    int32_t child;
    do {
        token = specv_ref_i_get(d->target_tokens, d->trees.token_dtype,
                                t->b * stride + t->path[t->g.o.accepted]);
        child = specv_ref_i_child_with(t, token);
        if (child && specv_ref_i_step_down(t, child)) return;
    } while (child);
    if (specv_ref_i_is_token(&t->v.verify, token))
        t->g.o.next_token = token;
    else
        t->g.o.status |= SPECV_ROW_BAD_TARGET;
    t->g.o.finished = specv_ref_i_is_eos(&t->v.verify, t->g.o.next_token);
}

/* GREEDY, COUPLED, and every rule at temperature 0: the same with the target's only choice. */
static void specv_ref_i_walk_equal(specv_ref_i_tree *t) {
    for (;;) {
        specv_ref_i_scores p = specv_ref_i_target_at(&t->g, t->path[t->g.o.accepted]);
        const int64_t choice = specv_ref_i_choose(&t->g, &p, t->g.o.accepted);
        const int32_t child = choice < 0 ? 0 : specv_ref_i_child_with(t, choice);
        t->g.o.status |= p.row.status;
        if (!child) {
            specv_ref_i_emit(&t->g, &p, choice);
            return;
        }
        if (specv_ref_i_step_down(t, child)) return;
    }
}

/* The law of what follows a node: p, or r behind rejected children, the last of which is `last`
   (0: none); or p without all children, ONE_COIN. */
typedef struct specv_ref_i_law {
    const specv_ref_i_tree *t;
    int32_t node, depth, last;
    int without;
} specv_ref_i_law;

/* r of one id, from p and q of it. Where children are distinct it is none of those before. */
static float specv_ref_i_law_of(const specv_ref_i_law *l, float p, float q) {
    const specv_ref_i_tree *t = l->t;
    if (l->last == 0) return p;
    for (int32_t x = specv_ref_i_tried(t, l->node, l->depth, 0); x && x <= l->last;
         x = specv_ref_i_tried(t, l->node, l->depth, x)) {
        const float gain = specv_fma(p, t->scale[x], -specv_i_tree_q(q, t->q_scale[x]));
        p = gain > 0 ? gain : 0;
    }
    return p;
}

/* Goes through the rejected children of a node, a tile at a time: gain is what the last of them
   leaves, below 0 where q had more. q: of ids that are not among the children. */
static void specv_ref_i_law_tile(const specv_ref_i_weights *w, int64_t begin, specv_ref_i_tile *t,
                                 float *gain, float *q) {
    const specv_ref_i_law *l = w->law;
    const specv_ref_i_tree *tree = l->t;
    const int distinct = specv_i_tree_is_distinct(tree->d->rule);
    unsigned char gone[SPECV_TILE_IDS] = {0};
    specv_ref_i_tile_p(w->q, begin, t, q);
    specv_ref_i_tile_p(w->p, begin, t, gain);
    for (int32_t x = specv_ref_i_tried(tree, l->node, l->depth, 0); x && x <= l->last;
         x = specv_ref_i_tried(tree, l->node, l->depth, x)) {
        const int64_t at = specv_ref_i_node_token(tree, x) - begin;
        for (int i = 0; i < t->count; ++i) {
            const float its = gone[i] ? 0 : specv_i_tree_q(q[i], tree->q_scale[x]);
            gain[i] = specv_fma(gain[i] > 0 ? gain[i] : 0, tree->scale[x], -its);
        }
        if (distinct && at >= 0 && at < t->count) gone[at] = 1;
    }
    for (int i = 0; i < t->count; ++i)
        if (gone[i]) q[i] = 0;
    for (int i = t->count; i < t->padded; ++i) gain[i] = q[i] = 0;
}

static int specv_ref_i_law_gains(const specv_ref_i_weights *w, int64_t begin, specv_ref_i_tile *t,
                                 float *gain) {
    float q[SPECV_TILE_IDS];
    if (w->law->last == 0 || w->law->without) return 0;
    specv_ref_i_law_tile(w, begin, t, gain, q);
    return 1;
}

static int specv_ref_i_law_has_not(const specv_ref_i_weights *w, int64_t id) {
    const specv_ref_i_law *l = w->law;
    if (!l->without) return 0;
    for (int32_t x = specv_ref_i_tried(l->t, l->node, l->depth, 0); x;
         x = specv_ref_i_tried(l->t, l->node, l->depth, x))
        if (specv_ref_i_node_token(l->t, x) == id) return 1;
    return 0;
}

/* p of a proposal: of equal siblings the first one's. */
static float specv_ref_i_p_of_child(const specv_ref_i_tree *t, specv_ref_i_scores *p, int32_t node,
                                    int32_t depth, int32_t x) {
    const int64_t token = specv_ref_i_node_token(t, x);
    for (int32_t k = specv_ref_i_tried(t, node, depth, 0); k < x;
         k = specv_ref_i_tried(t, node, depth, k))
        if (specv_ref_i_node_token(t, k) == token) return 0;
    return specv_i_max(specv_ref_i_p(p, token), 0);
}

/* Child x was rejected: what that leaves of its parent's law. */
static specv_i_tree_sums specv_ref_i_law_sums(specv_ref_i_weights *w) {
    specv_i_tree_sums sums = {0, 0, 0};
    specv_ref_i_tile t;
    float gain[SPECV_TILE_IDS], q[SPECV_TILE_IDS];
    for (int64_t begin = 0; begin < w->p->vocab; begin += SPECV_TILE_IDS) {
        specv_ref_i_law_tile(w, begin, &t, gain, q);
        for (int i = 0; i < t.count; ++i) {
            if (gain[i] > 0) sums.gain += specv_fixed50(gain[i]);
            if (gain[i] < 0) sums.loss += specv_fixed50(-gain[i]);
            sums.untried += specv_fixed50(q[i]);
        }
    }
    return sums;
}

/* The path ends here, and its last node emits a token of its law. */
static void specv_ref_i_emit_law(specv_ref_i_tree *t, specv_ref_i_weights *w, uint32_t bad_sum) {
    const int32_t node = w->law->node;
    int64_t token;
    if (w->p->row.kind != SPECV_SOFTMAX) {
        specv_ref_i_emit_from(&t->g, w->p, node);
        return;
    }
    token = specv_ref_i_draw_at(&t->g, w, node);
    t->g.o.status |= bad_sum;
    if (w->law->last == 0) t->g.o.status |= specv_ref_i_look_at_sums(w);
    t->g.o.status |= w->p->row.status;
    if (w->q) t->g.o.status |= w->q->row.status;
    if (token >= 0) {
        specv_ref_i_emit(&t->g, w->p, token);
    } else {
        if (w->law->last || w->law->without) t->g.o.status |= SPECV_ROW_ZERO_RESIDUAL;
        specv_ref_i_emit_from(&t->g, w->p, node);
    }
}

/* ONE_COIN: what an id weighs, in units of the row's sum. */
static uint64_t specv_ref_i_coin_units(specv_ref_i_scores *p, int64_t token) {
    const float score = specv_ref_i_score(p, token);
    specv_weight w;
    if (p->probs) return score > 0 ? specv_fixed50(score) >> SPECV_I_FINER_PROBS : 0;
    w = specv_softmax_weight(specv_i_max(score, p->scale.floor), &p->scale);
    return specv_weight_units(&w, p->row.n);
}

/* Children behind one number: SGLang's TreeSpeculativeSamplingTargetOnly. */
static void specv_ref_i_walk_coin(specv_ref_i_tree *t) {
    for (;;) {
        const int32_t node = t->path[t->g.o.accepted], depth = t->g.o.accepted;
        specv_ref_i_scores p = specv_ref_i_target_at(&t->g, node);
        const specv_random r = specv_philox(t->v.seed[t->g.slot], specv_ref_i_position(&t->g),
                                            (uint32_t)(t->v.step_row + node), 0,
                                            specv_i_tag(SPECV_TAG_ACCEPT, t->v.stream));
        const uint64_t all = p.probs ? (uint64_t)1 << 40 : p.row.sum;
        const uint64_t coin = specv_i_mul_high((uint64_t)r.x[1] << 32 | r.x[0], all);
        uint64_t so_far = 0;
        int32_t x = specv_ref_i_tried(t, node, depth, 0), accepted = 0;
        if (p.row.kind != SPECV_SOFTMAX) {
            accepted = p.row.kind == SPECV_ONE_HOT ? specv_ref_i_child_with(t, p.row.id) : 0;
            x = 0;
        }
        for (; x && !accepted; x = specv_ref_i_tried(t, node, depth, x)) {
            const int64_t token = specv_ref_i_node_token(t, x);
            if (specv_ref_i_child_with(t, token) != x) continue;
            so_far += specv_ref_i_coin_units(&p, token);
            if (specv_i_coin_falls(coin, so_far)) accepted = x;
        }
        t->g.o.status |= p.row.status;
        if (!accepted) {
            const specv_ref_i_law law = {t, node, depth, 0,
                                         specv_ref_i_tried(t, node, depth, 0) != 0};
            specv_ref_i_weights w;
            w.p = &p, w.q = NULL, w.prefix = 1, w.without = -1, w.law = &law;
            specv_ref_i_emit_law(t, &w, 0);
            return;
        }
        if (specv_ref_i_step_down(t, accepted)) return;
    }
}

/* Where a path from the root to this node is long. */
static void specv_ref_i_set_path(specv_ref_i_tree *t, int32_t node, int32_t depth) {
    t->g.o.accepted = depth;
    for (; depth >= 0; node = specv_ref_i_parent(t, node), --depth) t->path[depth] = node;
}

/* Children that were rejected. */
static int64_t specv_ref_i_num_tried(const specv_ref_i_law *l) {
    int64_t count = 0;
    for (int32_t x = specv_ref_i_tried(l->t, l->node, l->depth, 0); x && x <= l->last;
         x = specv_ref_i_tried(l->t, l->node, l->depth, x))
        count += 1;
    return count;
}

/* RECURSIVE and TRAVERSAL. Child x of a node is tried with
       r = p, then r <- (c r - q)+ behind each rejected child,  c = 1 / sum of r
   as SpecInfer has it; from the leaves (Weng et al. 2025, algorithm 2) with
       c = P / sum of r,  P_x = min(1, c r(x) / q(x)),  P <- sum (c r - q)+ / sum (q - c r)+
   behind a rejected subtree, and the node itself is accepted with P behind its last child.
   Without draft scores q is 1 at x: r is p without the children so far, and the sums are
   c (left - p(x)) and 1 - c p(x), with left = 1 - p of the children before. */
static void specv_ref_i_walk_pairs(specv_ref_i_tree *t) {
    const int traverses = specv_i_tree_traverses(t->d->rule);
    const int distinct = specv_i_tree_is_distinct(t->d->rule), proposed = !t->d->draft.data;
    specv_i_tree_proposed of_proposed = {1, 1, 1, 0};
    specv_i_tree_sums sums = {0, 0, 0};
    int32_t node = 0, depth = 0, after = 0; /* `after`: its last child that was tried */
    float c = 1, q_scale = 1, rest = 1;     /* rest: P of the node by now */
    uint32_t bad_sum = 0;
    t->prefix[0] = 1;
    for (;;) {
        const int32_t x = specv_ref_i_tried(t, node, depth, after);
        specv_ref_i_law law = {t, node, depth, after, 0};
        specv_ref_i_scores p, q;
        specv_ref_i_weights w;
        int32_t rejected = 0;
        w.p = &p, w.q = NULL, w.prefix = 1, w.without = -1, w.law = &law;
        if (x) {
            const int64_t token = specv_ref_i_node_token(t, x);
            float its_q, its_p;
            p = specv_ref_i_target_at(&t->g, node);
            if (proposed) {
                its_p = specv_i_mul(specv_ref_i_p_of_child(t, &p, node, depth, x), c), its_q = 1;
            } else {
                q = specv_ref_i_draft_at(&t->g, node);
                its_p = specv_ref_i_p(&p, token), its_q = specv_ref_i_p(&q, token);
                t->g.o.status |= q.row.status;
                its_p = specv_i_mul(specv_ref_i_law_of(&law, its_p, its_q), c);
                its_q = specv_i_tree_q(its_q, q_scale);
            }
            t->g.o.status |= p.row.status;
            t->scale[x] = c, t->q_scale[x] = q_scale, t->rest[x] = rest;
            if (traverses) {
                t->prefix[x] = specv_i_tree_prefix(its_p, its_q);
                if (t->prefix[x] > 0) {
                    node = x, depth += 1, after = 0, q_scale = 1, c = rest = t->prefix[x];
                    continue;
                }
                rejected = x;
            } else if (specv_accept(specv_ref_i_accept_uniform(&t->g, x - 1), its_q, its_p)) {
                node = x, depth += 1, after = 0, c = q_scale = 1;
                specv_ref_i_set_path(t, node, depth);
                continue;
            } else {
                rejected = x;
            }
        } else if (traverses && node) {
            const float u = specv_ref_i_accept_uniform(&t->g, node - 1);
            int passes = specv_accept(u, 1, t->prefix[node]);
            if (after && proposed)
                passes = !(of_proposed.lost > 0) ||
                         specv_accept(u, of_proposed.lost, of_proposed.gained);
            else if (after)
                passes = sums.loss == 0 || specv_accept(u, (float)sums.loss, (float)sums.gain);
            if (!passes) {
                rejected = node, node = specv_ref_i_parent(t, node), depth -= 1;
            }
        }
        if (rejected && proposed) {
            p = specv_ref_i_target_at(&t->g, node), after = rejected;
            t->g.o.status |= p.row.status;
            of_proposed = specv_i_tree_reject(specv_ref_i_p_of_child(t, &p, node, depth, rejected),
                                              t->scale[rejected], t->q_scale[rejected], traverses);
            c = of_proposed.c, q_scale = of_proposed.left;
            continue;
        }
        if (rejected) {
            p = specv_ref_i_target_at(&t->g, node), q = specv_ref_i_draft_at(&t->g, node);
            law.node = node, law.depth = depth, law.last = after = rejected;
            w.q = &q;
            sums = specv_ref_i_law_sums(&w);
            t->g.o.status |= p.row.status | q.row.status;
            bad_sum = t->scale[rejected] > 0 ? specv_i_tree_bad_sum(&sums, t->rest[rejected]) : 0;
            c = specv_i_tree_scale(&sums, traverses);
            rest = specv_i_tree_rest(&sums, traverses);
            q_scale =
                specv_i_tree_q_scale(&sums, distinct, t->d->vocab - specv_ref_i_num_tried(&law));
            continue;
        }
        specv_ref_i_set_path(t, node, depth);
        if (node && specv_ref_i_is_eos(&t->v.verify, specv_ref_i_node_token(t, node))) {
            t->g.o.finished = 1;
            return;
        }
        p = specv_ref_i_target_at(&t->g, node);
        if (after && proposed) {
            law.last = 0, law.without = 1;
        } else if (after) {
            q = specv_ref_i_draft_at(&t->g, node);
            w.q = &q;
        }
        specv_ref_i_emit_law(t, &w, bad_sum);
        return;
    }
}

static void specv_ref_i_walk_tree(specv_ref_i_tree *t) {
    int sampled, is_eos;
    int32_t last;
    if (t->d->target_tokens) {
        specv_ref_i_walk_ids(t);
    } else {
        sampled = specv_ref_i_open_values(&t->g);
        if (!sampled)
            specv_ref_i_walk_equal(t);
        else if (t->d->rule == SPECV_TREE_ONE_COIN)
            specv_ref_i_walk_coin(t);
        else
            specv_ref_i_walk_pairs(t);
    }
    last = t->path[t->g.o.accepted];
    is_eos = last && specv_ref_i_is_eos(&t->v.verify, specv_ref_i_node_token(t, last));
    if (!is_eos) specv_ref_i_look_behind(t);
}

static void specv_ref_i_write_tree(specv_ref_i_tree *t) {
    const specv_verify_tree_desc *d = t->d;
    const specv_ref_i_outcome *o = &t->g.o;
    const int dtype = d->trees.token_dtype;
    const int64_t columns = (int64_t)t->max_depth + 1;
    const int64_t out = t->b * (d->out_stride_elems ? d->out_stride_elems : columns);
    const int64_t nodes = (int64_t)t->b * d->trees.max_nodes;
    const int32_t path_len = t->num_nodes > 0 ? o->accepted + 1 : 0;
    d->accepted_len[t->b] = o->accepted;
    if (d->mismatch) d->mismatch[t->b] = (uint8_t)o->mismatch;
    if (d->next_token) specv_ref_i_put(d->next_token, dtype, t->b, o->next_token);
    if (d->num_emitted) d->num_emitted[t->b] = o->accepted + (o->next_token >= 0 ? 1 : 0);
    if (d->finished) d->finished[t->b] = (uint8_t)o->finished;
    if (d->logprob) d->logprob[t->b] = t->g.logprob;
    specv_i_put_status(d->row_status, t->b, o->status, d->keep_status);
    for (int32_t i = 0; d->predicts && i < d->trees.max_nodes; ++i)
        specv_ref_i_put(d->predicts, dtype, nodes + i, -1);
    for (int32_t i = 0; i < columns; ++i) {
        int64_t token = -1;
        if (i + 1 < path_len) token = specv_ref_i_node_token(t, t->path[i + 1]);
        if (i + 1 == path_len) token = o->next_token;
        if (d->path) d->path[t->b * columns + i] = i < path_len ? t->path[i] : -1;
        if (d->accept_index)
            d->accept_index[t->b * columns + i] = i < path_len ? (int32_t)(nodes + t->path[i]) : -1;
        if (d->out_tokens) specv_ref_i_put(d->out_tokens, dtype, out + i, token);
        if (d->predicts && i < path_len)
            specv_ref_i_put(d->predicts, dtype, nodes + t->path[i], token);
        specv_ref_i_tell_of(&t->g, t->b * columns + i, token < 0 ? 0 : t->path[i], token,
                            i + 1 == path_len);
    }
}

SPECV_REF_BODY int specv_ref_verify_tree(const specv_verify_tree_desc *d) {
    int status = specv_verify_tree_validate(d);
    if (status != SPECV_OK) return status;
    for (int b = 0; b < d->trees.batch; ++b) {
        specv_ref_i_tree t;
        specv_ref_i_open_tree(&t, d, b);
        if (t.num_nodes > 0) specv_ref_i_walk_tree(&t);
        specv_ref_i_write_tree(&t);
    }
    return SPECV_OK;
}

/* ---- B4 */

/* Where head h of position x was when the pass wrote it; d is resolved. */
static int64_t specv_ref_i_src_place(const specv_commit_path_desc *d, int64_t slot, int64_t x,
                                     int64_t h) {
    const specv_kv_cache *kv = &d->kv;
    int64_t page;
    if (!d->src_block_table) return specv_ref_i_place(kv, slot, x, h);
    page = d->src_block_table[slot * d->src_table_stride_elems + x / kv->page_size];
    return page * kv->page_stride_bytes + x % kv->page_size * kv->pos_stride_bytes +
           h * kv->head_stride_bytes;
}

/* How many nodes the path of row b has, 0 if it has a fault. */
static int32_t specv_ref_i_path_len(const specv_commit_path_desc *d, int b, int64_t slot,
                                    uint32_t *status) {
    const int32_t *path = d->path + b * d->path_stride_elems;
    const int32_t nodes = d->num_nodes ? d->num_nodes[b] : d->max_nodes;
    const int32_t accepted = d->accepted_len[b], len = d->cache_len[slot];
    const specv_kv_cache *kv = &d->kv;
    if (len < 0 || len > kv->max_positions || nodes < 1 || nodes > d->max_nodes || accepted < 0 ||
        accepted > d->max_depth || accepted >= nodes) {
        *status |= SPECV_ROW_BAD_LENGTH;
        return 0;
    }
    for (int j = 0; j <= accepted; ++j)
        if (path[j] >= nodes || (j == 0 ? path[0] != 0 : path[j] <= path[j - 1])) {
            *status |= SPECV_ROW_BAD_TREE;
            return 0;
        }
    if ((int64_t)len + path[accepted] >= kv->max_positions) {
        *status |= SPECV_ROW_NO_SPACE;
        return 0;
    }
    if (!kv->block_table) return accepted + 1;
    for (int j = 0; j <= accepted; ++j) {
        const int32_t *to = kv->block_table + slot * kv->table_stride_elems, *from = to;
        const int32_t at = (len + path[j]) % kv->page_size;
        int32_t to_page = to[(len + j) / kv->page_size], from_page;
        if (d->src_block_table) from = d->src_block_table + slot * d->src_table_stride_elems;
        from_page = from[(len + path[j]) / kv->page_size];
        if (!specv_ref_i_is_page(kv, to_page) || !specv_ref_i_is_page(kv, from_page))
            *status |= SPECV_ROW_BAD_PAGE;
        else if ((to_page != from_page || (len + j) % kv->page_size != at) && d->page_refs &&
                 d->page_refs[to_page] != 1)
            *status |= SPECV_ROW_SHARED_PAGE;
        for (int i = 0; i < j && from != to; ++i) /* an earlier node's row would come here first */
            if (to[(len + i) / kv->page_size] == from_page && (len + i) % kv->page_size == at)
                *status |= SPECV_ROW_BAD_PAGE;
    }
    return *status ? 0 : accepted + 1;
}

/* Byte by byte of a row: all nodes are read, then all are written, so that order does not matter.
   */
static void specv_ref_i_move_path(const specv_commit_path_desc *d, int b, int64_t slot,
                                  int32_t count) {
    const int32_t *path = d->path + b * d->path_stride_elems, len = d->cache_len[slot];
    char nodes[SPECV_MAX_NODES];
    for (int plane = 0; plane < d->kv.num_planes; ++plane) {
        char *data = (char *)(d->kv.planes ? d->kv.planes[plane] : d->kv.plane);
        if (!data) continue;
        for (int64_t h = 0; h < d->kv.num_heads; ++h)
            for (int64_t byte = 0; byte < d->kv.head_bytes; ++byte) {
                for (int32_t j = 0; j < count; ++j)
                    nodes[j] = data[specv_ref_i_src_place(d, slot, len + path[j], h) + byte];
                for (int32_t j = 0; j < count; ++j)
                    data[specv_ref_i_place(&d->kv, slot, len + j, h) + byte] = nodes[j];
            }
    }
}

static void specv_ref_i_commit(const specv_commit_path_desc *d, int b) {
    int32_t slot = -1, count;
    uint32_t status = 0;
    if (b < specv_ref_i_num_live(d->num_active, d->batch))
        slot = specv_ref_i_slot(d->slot, d->slot_dtype, d->num_slots, b, 1, &status);
    if (slot >= 0) {
        count = specv_ref_i_path_len(d, b, slot, &status);
        if (count > 0 && specv_i_has_planes(&d->kv)) specv_ref_i_move_path(d, b, slot, count);
        if (d->new_cache_len) d->new_cache_len[slot] = d->cache_len[slot] + count;
    }
    specv_i_put_status(d->row_status, b, status, d->keep_status);
}

SPECV_REF_BODY int specv_ref_commit_path(const specv_commit_path_desc *desc) {
    int status = specv_commit_path_validate(desc);
    specv_commit_path_desc d;
    if (status != SPECV_OK) return status;
    d = *desc;
    specv_commit_path_resolve(&d);
    for (int b = 0; b < d.batch; ++b) specv_ref_i_commit(&d, b);
    return SPECV_OK;
}

/* ---- layouts */

enum { SPECV_REF_I_NO_PARENT = -2 };

/* Gives node c a parent, that must not differ from one that it has. */
static int specv_ref_i_adopt(int32_t *parent, int64_t c, int32_t its, int again) {
    if (parent[c] != SPECV_REF_I_NO_PARENT && !(again && parent[c] == its)) return 0;
    parent[c] = its;
    return 1;
}

/* Child after child of each node. */
static int specv_ref_i_from_links(const specv_tree_layout_desc *d, int64_t first, int32_t n,
                                  int32_t *parent) {
    if (specv_ref_i_get(d->next_sibling, d->link_dtype, first) != -1) return 0;
    for (int32_t i = 0; i < n; ++i) {
        int64_t before = i, c = specv_ref_i_get(d->first_child, d->link_dtype, first + i);
        while (c != -1) {
            if (c <= before || c >= n || !specv_ref_i_adopt(parent, c, i, 0)) return 0;
            before = c, c = specv_ref_i_get(d->next_sibling, d->link_dtype, first + c);
        }
    }
    return 1;
}

static int specv_ref_i_from_paths(const specv_tree_layout_desc *d, int64_t first, int32_t n,
                                  int32_t *parent) {
    for (int32_t p = 0; p < d->num_paths; ++p) {
        const int32_t *path = d->paths + first + (int64_t)p * d->path_len;
        for (int32_t e = 0; e < d->path_len && path[e] != -1; ++e) {
            if (e == 0 && path[e] != 0) return 0;
            if (e == 0) continue;
            if (path[e] <= path[e - 1] || path[e] >= n) return 0;
            if (!specv_ref_i_adopt(parent, path[e], path[e - 1], 1)) return 0;
        }
    }
    return 1;
}

static int specv_ref_i_has_bit(const uint32_t *row, int32_t j) {
    return (int)(row[j / 32] >> j % 32 & 1);
}

static int specv_ref_i_from_mask(const specv_tree_layout_desc *d, int64_t first, int32_t n,
                                 int32_t *parent) {
    const int32_t words = specv_i_mask_words(d->max_nodes);
    for (int32_t i = 0; i < n; ++i) {
        const uint32_t *row = d->given_mask + first + (int64_t)i * words;
        for (int32_t j = 0; j < 32 * words; ++j) {
            if (j > i && specv_ref_i_has_bit(row, j)) return 0;
            if (j < i && specv_ref_i_has_bit(row, j)) parent[i] = j; /* the last one counts */
        }
        for (int32_t j = 0, its = parent[i]; j < i && its >= 0; ++j) {
            const uint32_t *above = d->given_mask + first + (int64_t)its * words;
            const int expected = j == its || (j < its && specv_ref_i_has_bit(above, j));
            if (specv_ref_i_has_bit(row, j) != expected) return 0;
        }
    }
    return 1;
}

/* The parents of row b's n nodes; returns 0 if it is no tree. */
static int specv_ref_i_parents(const specv_tree_layout_desc *d, int b, int32_t n, int32_t *parent) {
    const int64_t first = d->one_tree ? 0 : b * d->given_stride_elems;
    int ok = 1;
    for (int32_t i = 0; i < n; ++i) parent[i] = i ? SPECV_REF_I_NO_PARENT : -1;
    if (d->form == SPECV_TREE_PARENTS)
        for (int32_t i = 0; i < n; ++i) parent[i] = d->given_parent[first + i];
    if (d->form == SPECV_TREE_LINKS) ok = specv_ref_i_from_links(d, first, n, parent);
    if (d->form == SPECV_TREE_PATHS) ok = specv_ref_i_from_paths(d, first, n, parent);
    if (d->form == SPECV_TREE_MASK) ok = specv_ref_i_from_mask(d, first, n, parent);
    for (int32_t i = 0; i < n; ++i)
        ok = ok && (i == 0 ? parent[i] == -1 : parent[i] >= 0 && parent[i] < i);
    return ok;
}

static void specv_ref_i_layout(const specv_tree_layout_desc *d, int b) {
    const int live = b < specv_ref_i_num_live(d->num_active, d->batch);
    const int32_t words = specv_i_mask_words(d->max_nodes);
    int32_t parent[SPECV_MAX_NODES], n = live ? d->max_nodes : 0, slot = b;
    int64_t position = 0;
    uint32_t status = 0;
    if (live && d->num_nodes) n = d->num_nodes[b];
    if (live && d->position)
        slot = specv_ref_i_slot(d->slot, d->slot_dtype, d->num_slots, b, 0, &status);
    if (slot < 0) n = 0;
    if (live && slot >= 0) {
        if (d->position) position = d->position[slot];
        if (n < 1 || n > d->max_nodes)
            status = SPECV_ROW_BAD_LENGTH;
        else if (!specv_ref_i_parents(d, b, n, parent))
            status = SPECV_ROW_BAD_TREE;
        if (status) n = 1, parent[0] = -1;
    }
    for (int32_t i = 0; i < d->max_nodes; ++i) {
        const int64_t at = (int64_t)b * d->max_nodes + i;
        uint32_t *row = d->mask ? d->mask + at * d->mask_stride_words : NULL;
        int32_t depth = 0;
        for (int32_t w = 0; w < words && row; ++w) row[w] = 0;
        for (int32_t j = i; i < n && j >= 0; j = parent[j]) {
            if (row) row[j / 32] |= 1u << j % 32;
            depth += j > 0;
        }
        if (d->parent) d->parent[at] = i < n ? parent[i] : -1;
        if (d->depth) d->depth[at] = depth;
        if (d->position_ids)
            specv_ref_i_put(d->position_ids, d->index_dtype, at, i < n ? position + depth : 0);
    }
    specv_i_put_status(d->row_status, b, status, d->keep_status);
}

SPECV_REF_BODY int specv_ref_tree_layout(const specv_tree_layout_desc *desc) {
    int status = specv_tree_layout_validate(desc);
    specv_tree_layout_desc d;
    if (status != SPECV_OK) return status;
    d = *desc;
    specv_tree_layout_resolve(&d);
    for (int b = 0; b < d.batch; ++b) specv_ref_i_layout(&d, b);
    return SPECV_OK;
}

/* ================================================================================= >>columns */

/* ---- C1 */

/* One entry of all three arrays; a token is there if mask is 1. */
static void specv_ref_i_put_column(const specv_columns *c, int dtype, int64_t slot, int64_t column,
                                   int64_t token, int mask, int64_t position) {
    const int64_t at = slot * c->stride_elems + column;
    if (c->tokens) specv_ref_i_put(c->tokens, dtype, at, mask ? token : c->pad_token);
    if (c->mask) specv_ref_i_put(c->mask, c->index_dtype, at, mask);
    if (c->position_ids)
        specv_ref_i_put(c->position_ids, c->index_dtype, at, position > 0 ? position : 0);
}

/* New tokens of row b; -1 if the row cannot be trusted at all. */
static int64_t specv_ref_i_gain(const specv_realign_desc *d, int b, int32_t slot, int64_t width,
                                uint32_t *status) {
    int64_t gain;
    if (slot < 0) return -1;
    gain = d->num_emitted[b];
    if (gain < 0 || gain > (int64_t)d->max_draft + 1) {
        *status |= SPECV_ROW_BAD_LENGTH;
        gain = 0;
    }
    if (width >= 0 && width <= d->columns.max_columns && d->pad_len[slot] >= 0 &&
        d->pad_len[slot] <= width)
        return gain;
    *status |= SPECV_ROW_BAD_LENGTH;
    return -1;
}

static void specv_ref_i_realign_tokens(const specv_realign_desc *d, int b, int32_t slot,
                                       int64_t width, int64_t new_width, int64_t pad,
                                       int64_t gain) {
    const specv_columns *c = &d->columns;
    const int64_t content = width - pad, new_pad = new_width - content - gain;
    const int64_t by = new_pad - pad, row = slot * c->stride_elems;
    int64_t first = by == 0 ? width : pad < new_pad ? pad : new_pad;
    int64_t end = (width > new_width ? width : new_width) + d->max_draft;
    if (end > c->max_columns) end = c->max_columns;
    if (c->tokens && by > 0)
        for (int64_t i = content - 1; i >= 0; --i)
            specv_ref_i_put(c->tokens, d->token_dtype, row + new_pad + i,
                            specv_ref_i_get(c->tokens, d->token_dtype, row + pad + i));
    if (c->tokens && by < 0)
        for (int64_t i = 0; i < content; ++i)
            specv_ref_i_put(c->tokens, d->token_dtype, row + new_pad + i,
                            specv_ref_i_get(c->tokens, d->token_dtype, row + pad + i));
    for (int64_t column = first; column < end; ++column) {
        int64_t i = column - new_pad, token = 0;
        if (c->tokens && i >= 0 && i < content)
            token = specv_ref_i_get(c->tokens, d->token_dtype, row + column);
        else if (c->tokens && i >= 0 && i < content + gain)
            token = specv_ref_i_get(d->out_tokens, d->token_dtype,
                                    b * d->out_stride_elems + i - content);
        specv_ref_i_put_column(c, d->token_dtype, slot, column, token, i >= 0 && i < content + gain,
                               i);
    }
}

static void specv_ref_i_shift(const specv_kv_cache *kv, int32_t slot, int64_t first, int64_t count,
                              int64_t by) {
    for (int plane = 0; plane < kv->num_planes; ++plane) {
        char *data = (char *)(kv->planes ? kv->planes[plane] : kv->plane);
        for (int64_t i = 0; data && i < count; ++i)
            for (int64_t h = 0; h < kv->num_heads; ++h) {
                int64_t x = by > 0 ? first + count - 1 - i : first + i;
                specv_ref_i_bytes(data + specv_ref_i_place(kv, slot, x + by, h),
                                  data + specv_ref_i_place(kv, slot, x, h), kv->head_bytes);
            }
    }
}

SPECV_REF_BODY int specv_ref_realign(const specv_realign_desc *desc) {
    int status = specv_realign_validate(desc), live, no_space;
    int64_t width, new_width = 0, furthest = 0;
    specv_realign_desc d;
    if (status != SPECV_OK || desc->batch == 0) return status;
    d = *desc;
    specv_realign_resolve(&d);
    live = specv_ref_i_num_live(d.num_active, d.batch);
    width = *d.columns.width;
    for (int b = 0; b < live; ++b) {
        uint32_t ignored = 0;
        int32_t slot = specv_ref_i_slot(d.slot, d.slot_dtype, d.num_slots, b, 1, &ignored);
        int64_t gain = specv_ref_i_gain(&d, b, slot, width, &ignored);
        if (gain >= 0 && width - d.pad_len[slot] + gain > new_width)
            new_width = width - d.pad_len[slot] + gain;
        if (gain >= 0 && width + gain > furthest) furthest = width + gain;
    }
    no_space = new_width > d.columns.max_columns ||
               (specv_i_has_planes(&d.kv) && furthest - 1 > d.kv.max_positions);
    for (int b = 0; b < d.batch; ++b) {
        const specv_shift none = {0, 0, 0, 0};
        uint32_t bits = 0;
        int32_t slot =
            b < live ? specv_ref_i_slot(d.slot, d.slot_dtype, d.num_slots, b, 1, &bits) : -1;
        int64_t gain = specv_ref_i_gain(&d, b, slot, width, &bits);
        d.shifts[b] = none;
        if (gain >= 0 && no_space) bits |= SPECV_ROW_NO_SPACE;
        if (gain >= 0 && !no_space) {
            int64_t pad = d.pad_len[slot], tokens = width - pad + gain;
            d.shifts[b].first = (int32_t)pad;
            d.shifts[b].count = (int32_t)(tokens > 0 ? tokens - 1 : 0);
            d.shifts[b].by = (int32_t)(new_width - tokens - pad);
            specv_ref_i_realign_tokens(&d, b, slot, width, new_width, pad, gain);
            d.pad_len[slot] = (int32_t)(new_width - tokens);
            if (specv_i_has_planes(&d.kv))
                specv_ref_i_shift(&d.kv, slot, pad, d.shifts[b].count, d.shifts[b].by);
        }
        specv_i_put_status(d.row_status, b, bits, d.keep_status);
    }
    if (new_width > 0 && !no_space) *d.columns.width = (int32_t)new_width;
    return SPECV_OK;
}

SPECV_REF_BODY int specv_ref_shift_kv(const specv_shift_kv_desc *desc) {
    int status = specv_shift_kv_validate(desc), live;
    specv_shift_kv_desc d;
    if (status != SPECV_OK || desc->batch == 0) return status;
    d = *desc;
    specv_shift_kv_resolve(&d);
    live = specv_ref_i_num_live(d.num_active, d.batch);
    for (int b = 0; b < d.batch; ++b) {
        uint32_t bits = 0;
        int32_t slot =
            b < live ? specv_ref_i_slot(d.slot, d.slot_dtype, d.num_slots, b, 1, &bits) : -1;
        if (slot >= 0) {
            int64_t first = d.shifts[b].first, count = d.shifts[b].count, by = d.shifts[b].by;
            int64_t end = first + count;
            if (d.end && d.end[b] < end) end = d.end[b];
            count = end > first ? end - first : 0;
            if (count > 0 && (first < 0 || first + by < 0 || end > d.kv.max_positions ||
                              end + by > d.kv.max_positions))
                bits = SPECV_ROW_BAD_LENGTH;
            else
                specv_ref_i_shift(&d.kv, slot, first, by ? count : 0, by);
        }
        specv_i_put_status(d.row_status, b, bits, d.keep_status);
    }
    return SPECV_OK;
}

/* ---- C2 */

static int specv_ref_i_gap_ok(const specv_gap_commit_desc *d, int b, int32_t slot, int64_t width) {
    const int64_t accepted = d->accepted_len[b], emitted = d->num_emitted[b];
    return width >= 0 && width <= d->columns.max_columns && accepted >= 0 &&
           accepted <= d->max_draft && emitted >= accepted && emitted <= accepted + 1 &&
           d->text_len[slot] >= 0 && d->text_len[slot] <= d->columns.max_columns;
}

SPECV_REF_BODY int specv_ref_gap_commit(const specv_gap_commit_desc *desc) {
    int status = specv_gap_commit_validate(desc), live, no_space;
    int64_t width, new_width, end, furthest = -1;
    specv_gap_commit_desc d;
    if (status != SPECV_OK || desc->batch == 0) return status;
    d = *desc;
    specv_gap_commit_resolve(&d);
    live = specv_ref_i_num_live(d.num_active, d.batch);
    width = *d.columns.width;
    for (int b = 0; b < live; ++b) {
        uint32_t ignored = 0;
        int32_t slot = specv_ref_i_slot(d.slot, d.slot_dtype, d.num_slots, b, 1, &ignored);
        if (slot >= 0 && specv_ref_i_gap_ok(&d, b, slot, width) && d.num_emitted[b] > 0 &&
            d.accepted_len[b] > furthest)
            furthest = d.accepted_len[b];
    }
    new_width = width + furthest + 1;
    no_space = new_width > d.columns.max_columns;
    end = new_width + d.max_draft;
    if (end > d.columns.max_columns) end = d.columns.max_columns;
    for (int b = 0; b < d.batch; ++b) {
        uint32_t bits = 0;
        int32_t slot =
            b < live ? specv_ref_i_slot(d.slot, d.slot_dtype, d.num_slots, b, 1, &bits) : -1;
        if (slot >= 0 && !specv_ref_i_gap_ok(&d, b, slot, width)) bits = SPECV_ROW_BAD_LENGTH;
        if (slot >= 0 && !bits && no_space) bits = SPECV_ROW_NO_SPACE;
        if (slot >= 0 && !bits) {
            int64_t content = d.text_len[slot], accepted = d.accepted_len[b];
            const int has_next = d.num_emitted[b] > accepted;
            for (int64_t column = width; column < end; ++column) {
                const int64_t j = column - width;
                const int is_next = j == furthest && has_next;
                const int mask = j < accepted || is_next;
                int64_t position =
                    column < new_width ? content + mask - 1 : content + column - new_width;
                int64_t token = 0;
                if (mask && d.columns.tokens)
                    token = specv_ref_i_get(d.out_tokens, d.token_dtype,
                                            b * d.out_stride_elems + (is_next ? accepted : j));
                specv_ref_i_put_column(&d.columns, d.token_dtype, slot, column, token, mask,
                                       position);
                content += mask;
            }
            d.text_len[slot] = (int32_t)content;
        }
        specv_i_put_status(d.row_status, b, bits, d.keep_status);
    }
    if (d.max_draft_lacks) *d.max_draft_lacks = !no_space && furthest == d.max_draft ? 2 : 1;
    if (!no_space) *d.columns.width = (int32_t)new_width;
    return SPECV_OK;
}

/* ================================================================================ >>schedule */

/* ---- C3 */

SPECV_REF_BODY int specv_ref_compact(const specv_compact_desc *d) {
    int status = specv_compact_validate(d), live, count = 0;
    uint32_t lacks = 0;
    if (status != SPECV_OK || d->batch == 0) return status;
    live = specv_ref_i_num_live(d->num_active, d->batch);
    for (int b = 0; b < d->batch; ++b) {
        uint32_t bits = 0;
        int32_t slot = -1;
        if (b < live && !d->finished[b])
            slot = specv_ref_i_slot(d->slot, d->slot_dtype, d->num_slots, b, 0, &bits);
        if (slot >= 0) {
            int64_t len = d->cache_len ? d->cache_len[slot] : 0;
            int64_t first = d->draft_cache_len ? d->draft_cache_len[slot] : len;
            int bad = len < 0 || len == INT32_MAX || first < 0 || first > len;
            if (bad) bits = SPECV_ROW_BAD_LENGTH;
            d->active[count] = b;
            if (d->new_slot) specv_ref_i_put(d->new_slot, d->slot_dtype, count, slot);
            if (d->start_position) d->start_position[count] = bad ? 0 : (int32_t)len;
            if (d->draft_lacks_first) d->draft_lacks_first[count] = bad ? 0 : (int32_t)first;
            if (d->draft_lacks_start) d->draft_lacks_start[count] = (int32_t)lacks;
            lacks += bad ? 0 : (uint32_t)(len + 1 - first);
            for (int i = 0; i < d->num_carry; ++i) {
                char *data = (char *)d->carry[i].data;
                int64_t bytes = d->carry[i].elem_bytes;
                if (count < b) specv_ref_i_bytes(data + count * bytes, data + b * bytes, bytes);
            }
            count += 1;
        }
        specv_i_put_status(d->row_status, b, bits, d->keep_status);
    }
    *d->new_num_active = count;
    for (int i = count; i < d->batch; ++i) {
        d->active[i] = -1;
        if (d->new_slot) specv_ref_i_put(d->new_slot, d->slot_dtype, i, -1);
        if (d->start_position) d->start_position[i] = 0;
        if (d->draft_lacks_first) d->draft_lacks_first[i] = 0;
        if (d->draft_lacks_start) d->draft_lacks_start[i] = (int32_t)lacks;
    }
    if (d->draft_lacks_start) d->draft_lacks_start[d->batch] = (int32_t)lacks;
    return SPECV_OK;
}

/* ---- C4 */

/* Does row i come before row j? Only what "smaller" means is decided here. */
static int specv_ref_i_key_below(const specv_group_desc *d, int i, int j) {
    if (d->length && d->slot) {
        const int64_t a = specv_ref_i_get(d->slot, d->slot_dtype, i);
        return d->length[a] < d->length[specv_ref_i_get(d->slot, d->slot_dtype, j)];
    }
    if (d->length) return d->length[i] < d->length[j];
    if (d->score[j] != d->score[j]) return d->score[i] == d->score[i];
    return d->score[i] > d->score[j];
}

static int specv_ref_i_in_order(const specv_group_desc *d, int b, int live, uint32_t *bits) {
    if (b >= live || (d->skip && d->skip[b])) return 0;
    return specv_ref_i_slot(d->slot, d->slot_dtype, d->num_slots, b, 0, bits) >= 0;
}

SPECV_REF_BODY int specv_ref_group(const specv_group_desc *d) {
    int status = specv_group_validate(d), live, count = 0, groups = 0, best = -1, size = 0;
    uint32_t ignored = 0;
    if (status != SPECV_OK || d->batch == 0) return status;
    live = specv_ref_i_num_live(d->num_active, d->batch);
    for (int b = 0; b < d->batch; ++b) { /* insertion: stable */
        uint32_t bits = 0;
        int at = count, in_order = specv_ref_i_in_order(d, b, live, &bits);
        specv_i_put_status(d->row_status, b, bits, d->keep_status);
        if (!in_order) continue;
        for (; at > 0 && specv_ref_i_key_below(d, b, d->order[at - 1]); --at)
            d->order[at] = d->order[at - 1];
        d->order[at] = b;
        count += 1;
    }
    for (int i = count; i < d->batch; ++i) d->order[i] = -1;
    for (int i = 0; i < count; ++i) {
        if (i == 0 || specv_ref_i_key_below(d, d->order[i - 1], d->order[i])) {
            if (d->group_start) d->group_start[groups] = i;
            groups += 1;
            size = 0;
        }
        size += 1;
        if (size == d->num_pick && (best < 0 || d->order[i] < d->order[best])) best = i;
    }
    if (d->group_count) *d->group_count = groups;
    for (int g = groups; d->group_start && g <= d->batch; ++g) d->group_start[g] = count;
    if (d->is_group) *d->is_group = best >= 0;
    if (!d->pick_rows) return SPECV_OK;
    for (int i = 0; i < d->num_pick; ++i)
        d->pick_rows[i] = best < 0 ? -1 : d->order[best - d->num_pick + 1 + i];
    if (best < 0)
        for (int b = 0, i = 0; b < live && i < d->num_pick; ++b)
            if (specv_ref_i_in_order(d, b, live, &ignored)) d->pick_rows[i++] = b;
    return SPECV_OK;
}

/* ---- C5 */

/* Drafts of all rows whose survival is above `value`, or, with or_equal, not below it. */
static int64_t specv_ref_i_above(const specv_draft_budget_desc *d, int live, float value,
                                 int or_equal) {
    int64_t count = 0;
    for (int b = 0; b < live; ++b) {
        int32_t num_drafts = specv_ref_i_num_drafts(&d->rows, b);
        for (int32_t j = 0; j < num_drafts; ++j) {
            float survival = d->survival[b * (int64_t)d->rows.max_draft + j];
            count += survival > value || (or_equal && survival >= value);
        }
    }
    return count;
}

static void specv_ref_i_survival(const specv_draft_budget_desc *d, int b, int32_t num_drafts,
                                 uint32_t *status) {
    float survival = 1;
    for (int32_t j = 0; j < d->rows.max_draft; ++j) {
        float confidence = 0;
        if (j < num_drafts) confidence = d->confidence[b * d->confidence_stride_elems + j];
        if (!(confidence >= 0 && confidence <= 1)) *status |= SPECV_ROW_NAN;
        if (!(confidence > 0 && confidence <= 1)) confidence = 0;
        survival = specv_i_mul(survival, confidence);
        d->survival[b * (int64_t)d->rows.max_draft + j] = survival;
    }
}

SPECV_REF_BODY int specv_ref_draft_budget(const specv_draft_budget_desc *desc) {
    int status = specv_draft_budget_validate(desc), live;
    int64_t budget, drafts, ties; /* ties: drafts at the threshold that are still to be kept */
    int32_t kept = 0;
    float threshold = 2;
    specv_draft_budget_desc d;
    if (status != SPECV_OK || desc->rows.batch == 0) return status;
    d = *desc;
    specv_draft_budget_resolve(&d);
    live = specv_ref_i_num_live(d.rows.num_active, d.rows.batch);
    for (int b = 0; b < d.rows.batch; ++b) {
        int32_t num_drafts = b < live ? specv_ref_i_num_drafts(&d.rows, b) : 0;
        uint32_t bits = num_drafts < 0 ? (uint32_t)SPECV_ROW_BAD_LENGTH : 0;
        specv_ref_i_survival(&d, b, num_drafts, &bits);
        specv_i_put_status(d.row_status, b, bits, d.keep_status);
    }
    budget = d.max_budget;
    if (d.budget && *d.budget < budget) budget = *d.budget;
    drafts = specv_ref_i_above(&d, live, 0, 1);
    if (budget > drafts) budget = drafts;
    for (int b = 0; b < live; ++b) { /* the budget-th largest survival */
        int32_t num_drafts = specv_ref_i_num_drafts(&d.rows, b);
        for (int32_t j = 0; j < num_drafts && budget > 0; ++j) {
            float value = d.survival[b * (int64_t)d.rows.max_draft + j];
            if (specv_ref_i_above(&d, live, value, 0) < budget &&
                specv_ref_i_above(&d, live, value, 1) >= budget)
                threshold = value;
        }
    }
    ties = budget - specv_ref_i_above(&d, live, threshold, 0);
    for (int b = 0; b < d.rows.batch; ++b) {
        int32_t num_drafts = b < live ? specv_ref_i_num_drafts(&d.rows, b) : 0, keep = 0;
        for (; keep < num_drafts; ++keep) {
            float survival = d.survival[b * (int64_t)d.rows.max_draft + keep];
            if (survival < threshold || (survival <= threshold && ties <= 0)) break;
            ties -= survival <= threshold;
        }
        d.new_draft_len[b] = keep;
        if (d.new_row_start) d.new_row_start[b] = kept;
        kept += keep;
    }
    if (d.new_row_start) d.new_row_start[d.rows.batch] = kept;
    return SPECV_OK;
}

/* =============================================================================== >>particles */

/* ---- D1 */

/* Returns how many tokens the text gains. */
static int32_t specv_ref_i_weigh_particle(const specv_particle_weights_desc *d, int b, int32_t slot,
                                          uint32_t *bits) {
    const float alpha = d->alpha ? d->alpha[slot] : 1.f;
    double gain = 0;
    int32_t emitted = 0;
    int ended = 0;
    for (int32_t j = 0; !d->finished[slot] && j < d->max_draft && !ended; ++j) {
        const float p = d->target_logprob[b * d->target_logprob_stride_elems + j];
        const float q = d->draft_logprob[b * d->draft_logprob_seq_stride_elems +
                                         j * d->draft_logprob_pos_stride_elems];
        int64_t token = -1;
        if (d->draft_tokens)
            token = specv_ref_i_get(d->draft_tokens, d->token_dtype, b * d->draft_stride_elems + j);
        gain = specv_i_weigh(gain, alpha, p, q);
        for (int i = 0; i < d->num_eos; ++i) ended |= token == d->eos_token[i];
        emitted += 1;
    }
    if (!d->finished[slot] && !ended) {
        int64_t token = -1;
        if (d->next_token) token = specv_ref_i_get(d->next_token, d->token_dtype, b);
        emitted += d->next_token == NULL || token >= 0;
        if (d->bonus_lse) gain = specv_i_weigh(gain, -alpha, d->lse[b], -d->bonus_lse[b]);
        for (int i = 0; i < d->num_eos; ++i) ended |= token == d->eos_token[i];
    }
    if (ended) d->finished[slot] = 1;
    gain = specv_i_clean_weight(gain, bits);
    d->log_weight[slot] = specv_i_clean_weight(specv_i_add_double(d->log_weight[slot], gain), bits);
    d->interval_weight[slot] =
        specv_i_clean_weight(specv_i_add_double(d->interval_weight[slot], gain), bits);
    return emitted;
}

SPECV_REF_BODY int specv_ref_particle_weights(const specv_particle_weights_desc *desc) {
    int status = specv_particle_weights_validate(desc), live;
    specv_particle_weights_desc d;
    if (status != SPECV_OK || desc->batch == 0) return status;
    d = *desc;
    specv_particle_weights_resolve(&d);
    live = specv_ref_i_num_live(d.num_active, d.batch);
    for (int b = 0; b < d.batch; ++b) {
        int32_t slot = -1, emitted = 0;
        uint32_t bits = 0;
        if (b < live) slot = specv_ref_i_slot(d.slot, d.slot_dtype, d.num_slots, b, 1, &bits);
        if (slot >= 0) emitted = specv_ref_i_weigh_particle(&d, b, slot, &bits);
        if (d.num_emitted) d.num_emitted[b] = emitted;
        specv_i_put_status(d.row_status, b, bits, d.keep_status);
    }
    return SPECV_OK;
}

/* ---- D2 */

/* 64 bits after the point of draw k of group g in its slot. */
static uint64_t specv_ref_i_draw_uniform(const specv_resample_plan_desc *d, int g, int32_t slot,
                                         int k, uint32_t *status) {
    if (d->uniform)
        return specv_uniform_bits(specv_i_clean_uniform(
            d->uniform[d->scheme == SPECV_RESAMPLE_SYSTEMATIC ? g : g * d->num_particles + k],
            status));
    if (d->scheme == SPECV_RESAMPLE_SYSTEMATIC) k = 0;
    return specv_i_resample_bits(d->seed[slot], d->position[slot], k);
}

/* One more copy of the particle in whose part of the running sum `at` lies. */
static void specv_ref_i_count(int32_t *counts, const uint64_t *w, uint64_t at) {
    int i = 0;
    for (; at >= w[i]; ++i) at -= w[i];
    counts[i] += 1;
}

static void specv_ref_i_ancestors(const specv_resample_plan_desc *d, int g, int32_t slot,
                                  uint64_t *w, uint64_t sum, int32_t *counts, uint32_t *status) {
    const int n = d->num_particles;
    int draws = n;
    for (int i = 0; i < n; ++i) counts[i] = 0;
    if (d->scheme == SPECV_RESAMPLE_RESIDUAL) {
        uint64_t left = 0;
        for (int i = 0; i < n; ++i) {
            uint64_t share = (uint64_t)n * w[i];
            counts[i] = (int32_t)(share / sum);
            w[i] = share % sum;
            left += w[i];
        }
        draws = (int)(left / sum);
        sum = left;
    }
    for (int k = 0; k < draws; ++k) {
        const uint64_t u = specv_ref_i_draw_uniform(d, g, slot, k, status);
        if (d->scheme <= SPECV_RESAMPLE_STRATIFIED)
            specv_ref_i_count(counts, w, specv_i_stratum(k, (uint32_t)(u >> 32), n, sum));
        else
            specv_ref_i_count(counts, w, specv_i_mul_high(u, sum));
    }
}

static void specv_ref_i_plan_group(const specv_resample_plan_desc *d, int g, int32_t slot) {
    uint64_t w[SPECV_MAX_PARTICLES], sum = 0, hh = 0, hl = 0, ll = 0;
    int32_t counts[SPECV_MAX_PARTICLES];
    const int n = d->num_particles;
    double *weight = d->interval_weight + (int64_t)slot * n, max = 0, ess = 0;
    int32_t *jobs = d->jobs + 2 * (int64_t)g * (n - 1);
    int any = 0, resamples, num_jobs = 0;
    uint32_t bits = 0;
    for (int i = 0; i < n; ++i) {
        double clean = specv_i_clean_weight(weight[i], &bits);
        if (specv_i_double_bits(clean) == SPECV_I_MINUS_INFINITY) continue;
        if (!any || clean > max) max = clean;
        any = 1;
    }
    for (int i = 0; i < n; ++i) {
        uint32_t ignored = 0;
        double clean = specv_i_clean_weight(weight[i], &ignored);
        w[i] = any ? specv_i_particle_units(clean, max) : 0;
        sum += w[i];
        hh += (w[i] >> 20) * (w[i] >> 20), hl += (w[i] >> 20) * (w[i] & 0xfffff);
        ll += (w[i] & 0xfffff) * (w[i] & 0xfffff);
        counts[i] = 1;
    }
    if (any) ess = specv_i_effective(sum, hh, hl, ll);
    if (!any) bits |= SPECV_ROW_EMPTY;
    if (d->drawn_row) {
        uint64_t at = 0;
        int row = 0;
        if (any)
            at = specv_i_mul_high(
                specv_i_resample_bits(d->seed[slot], d->position[slot], SPECV_MAX_PARTICLES), sum);
        for (; any && at >= w[row]; ++row) at -= w[row];
        d->drawn_row[g] = any ? g * n + row : -1;
    }
    resamples = any && n > 1 && ess < specv_i_mul_double(d->threshold, (double)n);
    if (resamples) {
        specv_ref_i_ancestors(d, g, slot, w, sum, counts, &bits);
        if (d->log_z)
            d->log_z[slot] = specv_i_add_double(d->log_z[slot], specv_i_log_mean(sum, n, max));
        for (int i = 0; i < n; ++i) {
            weight[i] = 0;
            if (d->log_weight) d->log_weight[(int64_t)slot * n + i] = 0;
        }
    }
    for (int dead = 0, spare = 0, left = counts[0] - 1; dead < n; ++dead) {
        if (counts[dead] > 0) continue;
        while (left <= 0) left = counts[++spare] - 1;
        jobs[2 * num_jobs] = g * n + spare, jobs[2 * num_jobs + 1] = g * n + dead;
        num_jobs += 1, left -= 1;
    }
    for (int j = 2 * num_jobs; j < 2 * (n - 1); ++j) jobs[j] = -1;
    d->num_jobs[g] = num_jobs;
    for (int i = 0; d->num_copies && i < n; ++i) d->num_copies[(int64_t)g * n + i] = counts[i];
    if (d->ess) d->ess[g] = ess;
    specv_i_put_status(d->group_status, g, bits, d->keep_status);
}

SPECV_REF_BODY int specv_ref_resample_plan(const specv_resample_plan_desc *d) {
    int status = specv_resample_plan_validate(d), live;
    if (status != SPECV_OK || d->num_groups == 0) return status;
    live = specv_ref_i_num_live(d->num_active_groups, d->num_groups);
    for (int g = 0; g < d->num_groups; ++g) {
        const int64_t n = d->num_particles;
        int32_t slot = -1;
        uint32_t bits = 0;
        if (g < live)
            slot = specv_ref_i_slot(d->group_slot, d->group_slot_dtype, d->num_group_slots, g, 1,
                                    &bits);
        if (slot >= 0) {
            specv_ref_i_plan_group(d, g, slot);
            continue;
        }
        for (int64_t j = 0; j < 2 * (n - 1); ++j) d->jobs[2 * g * (n - 1) + j] = -1;
        for (int64_t i = 0; d->num_copies && i < n; ++i) d->num_copies[g * n + i] = 0;
        d->num_jobs[g] = 0;
        if (d->drawn_row) d->drawn_row[g] = -1;
        if (d->ess) d->ess[g] = 0;
        specv_i_put_status(d->group_status, g, bits, d->keep_status);
    }
    return SPECV_OK;
}

/* ---- D3 */

/* Entries of src's table that hold tokens; -1 if its numbers are bad. */
static int64_t specv_ref_i_shared_pages(const specv_particle_cache *c, int src, int dst) {
    int64_t len = c->cache_len[src], pages = (len + c->page_size - 1) / c->page_size;
    if (len < 0 || pages > c->num_row_pages[src] || c->num_row_pages[src] > c->max_row_pages ||
        c->num_row_pages[dst] < 0 || c->num_row_pages[dst] > c->max_row_pages)
        return -1;
    return pages;
}

/* Freed pages are appended to free_pages as long as there is a place. Returns 1 if an entry is no
   page, or a page without owners. */
static int specv_ref_i_share(const specv_particle_cache *c, int src, int dst, int64_t *num_freed) {
    const int64_t pages = specv_ref_i_shared_pages(c, src, dst);
    const int64_t held = c->num_row_pages[dst];
    const int32_t *from = c->block_table + src * c->table_stride_elems;
    int32_t *to = c->block_table + dst * c->table_stride_elems;
    int bad = 0;
    for (int64_t e = 0; e < pages || e < held; ++e) {
        const int32_t old = e < held ? to[e] : -1, now = e < pages ? from[e] : -1;
        if (e < held && (old < 0 || old >= c->num_pages)) bad = 1;
        if (e < pages && (now < 0 || now >= c->num_pages)) bad = 1;
        if (old == now) continue;
        to[e] = now;
        if (now >= 0 && now < c->num_pages) {
            if (c->pool.page_refs[now] < 1) bad = 1;
            c->pool.page_refs[now] += 1;
        }
        if (old < 0 || old >= c->num_pages) continue;
        if (c->pool.page_refs[old] < 1) {
            bad = 1;
        } else if (--c->pool.page_refs[old] == 0) {
            const int64_t place = *c->pool.num_free + (*num_freed)++;
            if (*c->pool.num_free >= 0 && place < c->num_pages) c->pool.free_pages[place] = old;
        }
    }
    return bad;
}

/* The pages that were freed, in ascending order (Shell 1959). Returns 1 if there was no place for
   all of them: then there are none. */
static int specv_ref_i_free_pages(const specv_particle_cache *c, int64_t num_freed) {
    const int64_t num_free = *c->pool.num_free;
    if (num_freed == 0) return 0;
    if (num_free < 0 || num_free + num_freed > c->num_pages) {
        for (int64_t i = num_free; num_free >= 0 && i < c->num_pages; ++i)
            c->pool.free_pages[i] = -1;
        return 1;
    }
    for (int64_t gap = num_freed / 2; gap > 0; gap /= 2)
        for (int64_t i = gap; i < num_freed; ++i) {
            int32_t *page = c->pool.free_pages + num_free + i, moving = *page;
            int64_t left = i;
            for (; left >= gap && page[-gap] > moving; left -= gap, page -= gap) *page = page[-gap];
            *page = moving;
        }
    *c->pool.num_free += (int32_t)num_freed;
    return 0;
}

static uint32_t specv_ref_i_reshuffle(const specv_reshuffle_desc *d, int src, int dst,
                                      int64_t *num_freed, uint32_t *of_pools) {
    uint32_t bits = 0;
    if (dst < 0 || dst >= d->batch || src < 0 || src >= d->batch || dst == src)
        return SPECV_ROW_BAD_LENGTH;
    src = specv_ref_i_slot(d->slot, d->slot_dtype, d->num_slots, src, 1, &bits);
    dst = specv_ref_i_slot(d->slot, d->slot_dtype, d->num_slots, dst, 1, &bits);
    if (bits) return bits;
    for (int i = 0; i < d->num_caches; ++i)
        if (specv_ref_i_shared_pages(&d->cache[i], src, dst) < 0) return SPECV_ROW_BAD_LENGTH;
    if (d->text && (d->text_len[src] < 0 || d->text_len[src] > d->text_stride_elems))
        return SPECV_ROW_BAD_LENGTH;
    for (int i = 0; i < d->num_caches; ++i) {
        const specv_particle_cache *c = &d->cache[i];
        if (specv_ref_i_share(c, src, dst, &num_freed[i])) *of_pools = SPECV_ROW_BAD_PAGE;
        c->num_row_pages[dst] = (int32_t)specv_ref_i_shared_pages(c, src, src);
        c->cache_len[dst] = c->cache_len[src];
    }
    for (int64_t x = 0; d->text && x < d->text_len[src]; ++x)
        specv_ref_i_put(d->text, d->token_dtype, dst * d->text_stride_elems + x,
                        specv_ref_i_get(d->text, d->token_dtype, src * d->text_stride_elems + x));
    if (d->text_len) d->text_len[dst] = d->text_len[src];
    for (int i = 0; i < d->num_carry; ++i) {
        char *data = (char *)d->carry[i].data;
        const int64_t bytes = d->carry[i].elem_bytes;
        specv_ref_i_bytes(data + dst * bytes, data + src * bytes, bytes);
    }
    return 0;
}

SPECV_REF_BODY int specv_ref_reshuffle(const specv_reshuffle_desc *desc) {
    int status = specv_reshuffle_validate(desc), live;
    int64_t num_freed[SPECV_MAX_CACHES] = {0};
    uint32_t of_pools = 0;
    specv_reshuffle_desc d;
    if (status != SPECV_OK || desc->batch == 0) return status;
    d = *desc;
    specv_reshuffle_resolve(&d);
    live = specv_ref_i_num_live(d.num_active_groups, d.num_groups);
    for (int g = 0; g < d.num_groups; ++g)
        for (int j = 0; j < d.max_jobs; ++j) {
            const int64_t at = (int64_t)g * d.max_jobs + j;
            uint32_t bits = 0;
            if (g < live && j < d.num_jobs[g])
                bits = specv_ref_i_reshuffle(&d, d.jobs[2 * at], d.jobs[2 * at + 1], num_freed,
                                             &of_pools);
            specv_i_put_status(d.job_status, at, bits, d.keep_status);
        }
    for (int i = 0; i < d.num_caches; ++i)
        if (specv_ref_i_free_pages(&d.cache[i], num_freed[i])) of_pools = SPECV_ROW_BAD_PAGE;
    for (int g = 0; g < live; ++g)
        for (int j = 0; d.job_status && j < d.max_jobs && j < d.num_jobs[g]; ++j)
            d.job_status[(int64_t)g * d.max_jobs + j] |= of_pools;
    return SPECV_OK;
}

/* =================================================================================== >>stats */

/* Drafts of row b in front of its first placeholder. */
static int32_t specv_ref_i_proposed(const specv_accept_stats_desc *d, int b, int32_t num_drafts) {
    const int64_t stride = d->draft_stride_elems ? d->draft_stride_elems : d->rows.max_draft;
    const int64_t first =
        specv_i_is_csr(&d->rows) ? specv_ref_i_row_first(&d->rows, b) : b * stride;
    int32_t n = 0;
    while (n < num_drafts && specv_ref_i_get(d->draft_tokens, d->token_dtype, first + n) != -1) ++n;
    return num_drafts < 0 ? num_drafts : n;
}

SPECV_REF_BODY int specv_ref_accept_stats(const specv_accept_stats_desc *d) {
    int64_t step[SPECV_STAT_COUNT] = {0};
    int status = specv_accept_stats_validate(d);
    if (status != SPECV_OK || d->rows.batch == 0) return status;
    if (d->histogram && !d->accumulate)
        for (int64_t k = 0; k <= d->rows.max_draft; ++k) d->histogram[k] = 0;
    for (int b = 0; b < d->rows.batch; ++b) {
        int32_t num_drafts = specv_ref_i_num_drafts(&d->rows, b), len, emitted = 0;
        if (!specv_ref_i_is_live(&d->rows, b)) continue;
        if (d->draft_tokens) num_drafts = specv_ref_i_proposed(d, b, num_drafts);
        len = d->accepted_len[b];
        if (len >= 0 && len <= num_drafts) emitted = d->num_emitted ? d->num_emitted[b] : len + 1;
        if (num_drafts < 0 || len < 0 || len > num_drafts || emitted < 0 || emitted > len + 1) {
            step[SPECV_STAT_BAD_ROWS] += 1;
            continue;
        }
        step[SPECV_STAT_STEPS] = 1;
        step[SPECV_STAT_ROWS] += 1;
        step[SPECV_STAT_DRAFTED] += num_drafts;
        step[SPECV_STAT_ACCEPTED] += len;
        step[SPECV_STAT_REJECTED] += len < num_drafts && (!d->mismatch || d->mismatch[b] != 0);
        step[SPECV_STAT_EMITTED] += emitted;
        if (d->histogram) d->histogram[len] += 1;
    }
    if (d->totals)
        for (int s = 0; s < SPECV_STAT_COUNT; ++s)
            d->totals[s] = step[s] + (d->accumulate ? d->totals[s] : 0);
    return SPECV_OK;
}

/* =================================================================================== >>diff */

SPECV_REF_BODY int64_t specv_ref_diff(const void *a, const void *b, int64_t count, int64_t bytes,
                                      int64_t *first) {
    const unsigned char *x = (const unsigned char *)a, *y = (const unsigned char *)b;
    int64_t different = 0, where = -1;
    for (int64_t i = 0; i < count; ++i) {
        int same = 1;
        for (int64_t byte = 0; byte < bytes; ++byte)
            same = same && x[i * bytes + byte] == y[i * bytes + byte];
        if (!same && different++ == 0) where = i;
    }
    if (first) *first = where;
    return different;
}

SPECV_REF_BODY int specv_ref_version(void) { return SPECVERIFY_VERSION; }

#endif /* SPECVERIFY_REF_IMPLEMENTATION */
