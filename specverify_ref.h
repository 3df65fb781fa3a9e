/* specverify_ref.h - 0.2.0 - the operations of specverify.cuh in portable C
   SPDX-License-Identifier: MIT-0                              no warranty; use at your own risk

   Do this:
       #define SPECVERIFY_REF_IMPLEMENTATION
   before you include this file in *one* C, C++ or CUDA file. With SPECVERIFY_REF_STATIC defined as
   well, everything is private to that file.

   For two readers: the test that wants to know what is right, and the machine without a GPU.
   Every function takes the descriptor of specverify.cuh, with host pointers in it, runs at once,
   and returns the same status codes. Outputs are equal to the device's, bit for bit. The code is
   the definition written down: one row after the other, one position after the other, nothing
   shared with the device functions. C99 and C++; no allocation, no state, no library.

   It needs IEEE arithmetic: strict doubles and floats, no -ffast-math.

   Contents: >>api, >>rows, >>A1, >>scores, >>A2-A5, >>A8, >>B1, >>B2, >>E, >>diff; licence as in
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
#define SPECV_REF_API static SPECV_UNUSED
#else
#define SPECV_REF_API SPECV_EXTERN_C SPECVERIFY_API
#endif

#if !defined(SPECVERIFY_REF_STATIC) || defined(SPECVERIFY_REF_IMPLEMENTATION)

/* A1 to A8, B1, B2, E: see the launchers of the same name. Call: any thread; no two calls that
   share an output. Return 0 or SPECV_ERR_*. */
SPECV_REF_API int specv_ref_verify_greedy(const specv_verify_greedy_desc *d);
SPECV_REF_API int specv_ref_verify_sample(const specv_verify_sample_desc *d);
SPECV_REF_API int specv_ref_sample(const specv_sample_desc *d);
SPECV_REF_API int specv_ref_pack_kv(const specv_pack_kv_desc *d);
SPECV_REF_API int specv_ref_verify_pack_kv(const specv_verify_pack_kv_desc *d);
SPECV_REF_API int specv_ref_accept_stats(const specv_accept_stats_desc *d);

/* Compares two buffers of `count` elements of `bytes` bytes each. Returns how many elements
   differ; *first, if not null, gets the index of the first that does, or -1. */
SPECV_REF_API int64_t specv_ref_diff(const void *a, const void *b, int64_t count, int64_t bytes,
                                     int64_t *first);

#endif
#endif /* SPECVERIFY_REF_H_INCLUDED */

#if defined(SPECVERIFY_REF_IMPLEMENTATION) && !defined(SPECVERIFY_REF_IMPLEMENTATION_INCLUDED)
#define SPECVERIFY_REF_IMPLEMENTATION_INCLUDED

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

/* Drafts of row b, or -1 if its length is outside its range. */
static int32_t specv_ref_i_num_drafts(const specv_rows *rows, int b) {
    int64_t start, end, num_drafts = rows->max_draft;
    if (rows->row_start) {
        start = rows->row_start[b];
        end = rows->row_start[b + 1];
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
    if (d->rows.row_start) return d->rows.row_start[b];
    return b * (d->draft_stride_elems ? d->draft_stride_elems : d->rows.max_draft);
}

/* Drafts of row b that may be read, or -1 if nothing of it may be: inert, or CSR with a length out
   of range. A dense row with such a length counts as one without drafts. */
static int32_t specv_ref_i_open_row(const specv_verify_greedy_desc *d, int b, uint32_t *status) {
    int32_t num_drafts = specv_ref_i_num_drafts(&d->rows, b);
    if (!specv_ref_i_is_live(&d->rows, b)) return -1;
    if (num_drafts >= 0) return num_drafts;
    *status |= SPECV_ROW_BAD_LENGTH;
    return d->rows.row_start ? -1 : 0;
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
    if (d->row_status) d->row_status[b] = o->status;
    if (!d->out_tokens) return;
    for (int64_t column = 0; column < columns; ++column) {
        int64_t token = -1;
        if (column < o->accepted)
            token = specv_ref_i_get(d->draft_tokens, dtype, specv_ref_i_first_draft(d, b) + column);
        if (column == o->accepted) token = o->next_token;
        specv_ref_i_put(d->out_tokens, dtype, out + column, token);
    }
}

/* ===================================================================================== >>A1 */

/* a = target, d = draft, n = drafts of the row:
       k = min { j : a[j] != d[j], or j = n };   emit d[0..k-1], a[k]
   and nothing after an EOS. Greedy case of Leviathan et al. 2023 (arXiv 2211.17192). */
static void specv_ref_i_verify_row(const specv_verify_greedy_desc *d, int b) {
    const int dtype = d->token_dtype;
    const int64_t columns = (int64_t)d->rows.max_draft + 1;
    const int64_t draft_base = specv_ref_i_first_draft(d, b);
    specv_ref_i_outcome o = {0, 0, 0, -1, 0};
    int32_t num_drafts = specv_ref_i_open_row(d, b, &o.status);
    int64_t target_base = d->rows.row_start
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

SPECV_REF_API int specv_ref_verify_greedy(const specv_verify_greedy_desc *d) {
    int status = specv_verify_greedy_validate(d);
    if (status != SPECV_OK) return status;
    for (int b = 0; b < d->rows.batch; ++b) specv_ref_i_verify_row(d, b);
    return SPECV_OK;
}

/* ================================================================================= >>scores */

/* One position of the target's or the draft's scores, and what sampling needs to know of it. */
typedef struct specv_ref_i_scores {
    const specv_scores *scores; /* null: no draft scores, q is 1 at the draft */
    int64_t first;              /* element of id 0 */
    int64_t vocab;
    specv_scale scale; /* logits at a temperature that is not 0 */
    specv_distribution row;
} specv_ref_i_scores;

static int specv_ref_i_are_probs(const specv_scores *s) { return s->dtype == SPECV_PROBS_F32; }

/* Score of id x as a float. A NaN, or a probability that is none, is as good as absent: -inf. */
static float specv_ref_i_score(specv_ref_i_scores *r, int64_t x) {
    int64_t at = r->first + x;
    const void *data = r->scores->data;
    float score;
    if (r->scores->dtype == SPECV_LOGITS_F16)
        score = specv_f16_float(((const uint16_t *)data)[at]);
    else if (r->scores->dtype == SPECV_LOGITS_BF16)
        score = specv_bf16_float(((const uint16_t *)data)[at]);
    else
        score = ((const float *)data)[at];
    if (score != score || (specv_ref_i_are_probs(r->scores) && !(score >= 0 && score <= 2))) {
        r->row.status |= SPECV_ROW_NAN;
        return specv_bits_float(0xff800000u);
    }
    return score;
}

/* Largest score of ids begin..end-1, -inf if there is none; *id: the lowest that has it. */
static float specv_ref_i_largest(specv_ref_i_scores *r, int64_t begin, int64_t end, int32_t *id) {
    float largest = specv_bits_float(0xff800000u);
    *id = (int32_t)begin;
    for (int64_t x = begin; x < end; ++x) {
        float score = specv_ref_i_score(r, x);
        if (score > largest) largest = score, *id = (int32_t)x;
    }
    return largest;
}

static int64_t specv_ref_i_tile_end(const specv_ref_i_scores *r, int64_t begin) {
    return begin + SPECV_TILE_IDS < r->vocab ? begin + SPECV_TILE_IDS : r->vocab;
}

static specv_weight specv_ref_i_weight(specv_ref_i_scores *r, int64_t x) {
    float logit = specv_ref_i_score(r, x);
    return specv_softmax_weight(logit > r->scale.floor ? logit : r->scale.floor, &r->scale);
}

/* Does the tile that begins here have weights, and relative to which n? */
static int specv_ref_i_tile_n(specv_ref_i_scores *r, int64_t begin, int32_t *n) {
    int32_t id;
    float largest = specv_ref_i_largest(r, begin, specv_ref_i_tile_end(r, begin), &id);
    if (!specv_in_range(largest, &r->scale)) return 0;
    *n = specv_softmax_weight(largest, &r->scale).n;
    return 1;
}

/* Opens position j of row b of the target (or draft) and finds its distribution:
   temperature 0, or a largest logit beyond the format: all on the first id that has it;
   otherwise weights, summed in integers. Probabilities are taken as they are. */
static specv_ref_i_scores specv_ref_i_open(const specv_verify_sample_desc *d, int b, int64_t j,
                                           int of_draft, float temperature) {
    const specv_rows *rows = &d->verify.rows;
    const specv_scores *scores = of_draft ? &d->draft : &d->target;
    const int64_t positions = (int64_t)rows->max_draft + !of_draft;
    specv_ref_i_scores r;
    int64_t pos_stride = scores->pos_stride_elems ? scores->pos_stride_elems : d->verify.vocab;
    int64_t seq_stride =
        scores->seq_stride_elems ? scores->seq_stride_elems : positions * pos_stride;
    int zero = specv_temperature_is_0(temperature) || d->rule == SPECV_RULE_GREEDY;
    if (of_draft && specv_ref_i_are_probs(scores)) zero = 0; /* q is what it says */
    r.scores = scores;
    r.vocab = d->verify.vocab;
    r.first = b * seq_stride + j * pos_stride;
    if (rows->row_start) r.first = (rows->row_start[b] + (of_draft ? 0 : b) + j) * pos_stride;
    r.scale = specv_softmax_scale(zero ? 1.f : temperature);
    r.row.sum = 0, r.row.inverse = r.row.inverse_low = 0, r.row.n = 0, r.row.status = 0;
    r.row.kind = SPECV_SOFTMAX;
    if (specv_ref_i_are_probs(scores) && !zero) {
        r.row.id = -1, r.row.max = 0;
        return r;
    }
    r.row.max = specv_ref_i_largest(&r, 0, r.vocab, &r.row.id);
    if (r.row.max == specv_bits_float(0xff800000u) ||
        (specv_ref_i_are_probs(scores) && r.row.max == 0)) {
        r.row.kind = SPECV_NO_TOKEN;
        r.row.status |= SPECV_ROW_EMPTY;
    } else if (zero || !specv_in_range(r.row.max, &r.scale)) {
        r.row.kind = SPECV_ONE_HOT;
        if (!zero) r.row.status |= SPECV_ROW_EXTREME;
    } else {
        r.row.n = specv_softmax_weight(r.row.max, &r.scale).n;
        for (int64_t begin = 0; begin < r.vocab; begin += SPECV_TILE_IDS) {
            uint64_t sum = 0;
            int32_t n;
            if (!specv_ref_i_tile_n(&r, begin, &n)) continue;
            for (int64_t x = begin; x < specv_ref_i_tile_end(&r, begin); ++x) {
                specv_weight w = specv_ref_i_weight(&r, x);
                sum += specv_weight_units(&w, n);
            }
            r.row.sum += specv_i_shift_right(sum, (uint32_t)(r.row.n - n));
        }
        specv_i_set_inverse(&r.row);
    }
    return r;
}

/* Probability of id x. */
static float specv_ref_i_p(specv_ref_i_scores *r, int64_t x) {
    float score = specv_ref_i_score(r, x);
    if (specv_ref_i_are_probs(r->scores) && r->row.kind == SPECV_SOFTMAX)
        return score > 0 ? score : 0;
    return specv_probability(&r->row, &r->scale, score, (int32_t)x);
}

/* ================================================================================== >>A2-A5 */

/* What the next token is drawn from: weights over the ids. */
typedef struct specv_ref_i_weights {
    specv_ref_i_scores *p, *q; /* (prefix * p - q)+, or p alone where q is null */
    float prefix;
    int64_t without; /* p alone: this id has no weight; -1: none */
} specv_ref_i_weights;

static uint64_t specv_ref_i_units(const specv_ref_i_weights *w, int64_t x, int32_t n) {
    specv_weight weight;
    if (w->q) {
        float p = specv_ref_i_p(w->p, x), q = specv_ref_i_p(w->q, x);
        float gain = specv_fma(w->prefix, p, -q);
        return gain > 0 ? specv_fixed40(gain) : 0;
    }
    if (x == w->without) return 0;
    if (specv_ref_i_are_probs(w->p->scores)) return specv_fixed40(specv_ref_i_p(w->p, x));
    weight = specv_ref_i_weight(w->p, x);
    return specv_weight_units(&weight, n);
}

/* Units of a tile's weights, and how many bits they are finer than the row's; 0: no weights. */
static int specv_ref_i_tile_scale(const specv_ref_i_weights *w, int64_t begin, int32_t *n,
                                  uint32_t *finer) {
    *n = 0, *finer = 0;
    if (w->q || specv_ref_i_are_probs(w->p->scores)) return 1;
    if (!specv_ref_i_tile_n(w->p, begin, n)) return 0;
    *finer = (uint32_t)(w->p->row.n - *n);
    return 1;
}

static uint64_t specv_ref_i_tile_sum(const specv_ref_i_weights *w, int64_t begin, int32_t *n,
                                     uint32_t *finer) {
    uint64_t sum = 0;
    if (!specv_ref_i_tile_scale(w, begin, n, finer)) return 0;
    for (int64_t x = begin; x < specv_ref_i_tile_end(w->p, begin); ++x)
        sum += specv_ref_i_units(w, x, *n);
    return sum;
}

/* Inverse CDF in id order: the first id whose running sum exceeds floor(u * W), W the sum of all
   weights, u = uniform / 2^64. First the tile is found that way, then the id inside it. -1 if no
   id has weight. */
static int64_t specv_ref_i_draw(const specv_ref_i_weights *w, uint64_t uniform) {
    const int64_t vocab = w->p->vocab;
    uint64_t total = 0, left;
    uint32_t finer;
    int32_t n;
    for (int64_t begin = 0; begin < vocab; begin += SPECV_TILE_IDS) {
        uint64_t sum = specv_ref_i_tile_sum(w, begin, &n, &finer);
        total += specv_i_shift_right(sum, finer);
    }
    left = specv_i_mul_high(uniform, total);
    for (int64_t begin = 0; begin < vocab; begin += SPECV_TILE_IDS) {
        uint64_t sum = specv_ref_i_tile_sum(w, begin, &n, &finer);
        uint64_t part = specv_i_shift_right(sum, finer);
        if (left >= part) {
            left -= part;
            continue;
        }
        left <<= finer;
        for (int64_t x = begin;; ++x) {
            uint64_t units = specv_ref_i_units(w, x, n);
            if (left < units) return x;
            left -= units;
        }
    }
    return -1;
}

/* The row's numbers: u of the test of draft j, and the one that draws the token at position k. */
static uint32_t specv_ref_i_position(const specv_verify_sample_desc *d, int b) {
    return (uint32_t)d->position[b];
}

static float specv_ref_i_accept_uniform(const specv_verify_sample_desc *d, int b, int32_t j) {
    if (d->accept_uniform) return d->accept_uniform[specv_ref_i_first_draft(&d->verify, b) + j];
    return specv_uniform24(specv_philox(d->seed[b], specv_ref_i_position(d, b),
                                        (uint32_t)(d->step_row + j), 0, SPECV_TAG_ACCEPT)
                               .x[0]);
}

static uint64_t specv_ref_i_sample_uniform(const specv_verify_sample_desc *d, int b, int32_t k) {
    uint32_t tag = d->stream == SPECV_STREAM_DRAFT ? SPECV_TAG_DRAFT : SPECV_TAG_SAMPLE;
    specv_random r;
    if (d->sample_uniform) return specv_uniform_bits(d->sample_uniform[b]);
    r = specv_philox(d->seed[b], specv_ref_i_position(d, b), (uint32_t)(d->step_row + k), 0, tag);
    return (uint64_t)r.x[1] << 32 | r.x[0];
}

/* A row while it is judged. */
typedef struct specv_ref_i_judge {
    const specv_verify_sample_desc *d;
    int b;
    float temperature, draft_temperature;
    int32_t usable;    /* drafts before the first placeholder, up to and including the first EOS */
    int ends_with_eos; /* the last of these is an EOS: no token follows it */
    specv_ref_i_outcome o;
    float logprob, lse;
} specv_ref_i_judge;

static int64_t specv_ref_i_draft(const specv_ref_i_judge *g, int32_t j) {
    return specv_ref_i_get(g->d->verify.draft_tokens, g->d->verify.token_dtype,
                           specv_ref_i_first_draft(&g->d->verify, g->b) + j);
}

static specv_ref_i_scores specv_ref_i_target_at(specv_ref_i_judge *g, int32_t j) {
    return specv_ref_i_open(g->d, g->b, j, 0, g->temperature);
}

static specv_ref_i_scores specv_ref_i_draft_at(specv_ref_i_judge *g, int32_t j) {
    return specv_ref_i_open(g->d, g->b, j, 1, g->draft_temperature);
}

/* Position k emits `token`, with its log-probability under p. */
static void specv_ref_i_emit(specv_ref_i_judge *g, specv_ref_i_scores *p, int64_t token) {
    g->o.next_token = token;
    g->o.finished = specv_ref_i_is_eos(&g->d->verify, token);
    if (!specv_ref_i_are_probs(p->scores))
        g->lse = p->row.kind == SPECV_ONE_HOT ? specv_i_add(p->row.max, 0) /* no -0 */
                                              : specv_log_sum_exp(&p->row);
    if (token < 0 || p->row.kind != SPECV_SOFTMAX) return;
    if (specv_ref_i_are_probs(p->scores)) {
        int32_t exponent;
        float fraction = specv_i_log2(specv_ref_i_p(p, token), &exponent);
        g->logprob = specv_i_ln(exponent, fraction, 0);
    } else {
        g->logprob = specv_log_probability(&p->row, &p->scale, specv_ref_i_score(p, token));
    }
}

/* Position k emits a token drawn from p. */
static void specv_ref_i_emit_from(specv_ref_i_judge *g, specv_ref_i_scores *p, int32_t k) {
    specv_ref_i_weights w;
    int64_t token = p->row.id;
    w.p = p, w.q = NULL, w.prefix = 1, w.without = -1;
    if (p->row.kind == SPECV_SOFTMAX)
        token = specv_ref_i_draw(&w, specv_ref_i_sample_uniform(g->d, g->b, k));
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
    w.p = &p, w.q = NULL, w.prefix = prefix, w.without = specv_ref_i_draft(g, k);
    if (g->d->draft.data) {
        q = specv_ref_i_draft_at(g, k);
        w.q = &q, w.without = -1;
    }
    token = specv_ref_i_draw(&w, specv_ref_i_sample_uniform(g->d, g->b, k));
    if (w.q) g->o.status |= q.row.status;
    g->o.status |= p.row.status;
    if (token >= 0) {
        specv_ref_i_emit(g, &p, token);
    } else {
        g->o.status |= SPECV_ROW_ZERO_RESIDUAL;
        specv_ref_i_emit_from(g, &p, k);
    }
}

/* The usable drafts were all accepted. */
static void specv_ref_i_emit_bonus(specv_ref_i_judge *g, int32_t n_draft) {
    g->o.mismatch = !g->ends_with_eos && g->usable < n_draft;
    if (g->ends_with_eos) {
        g->o.finished = 1;
    } else {
        specv_ref_i_scores p = specv_ref_i_target_at(g, g->usable);
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

/* A3: accept draft j while u_j * q(d_j) < p(d_j). Leviathan et al. 2023, algorithm 1. */
static void specv_ref_i_judge_token(specv_ref_i_judge *g, int32_t n_draft) {
    for (; g->o.accepted < g->usable; ++g->o.accepted) {
        float q, p = specv_ref_i_pair(g, g->o.accepted, &q);
        if (!specv_accept(specv_ref_i_accept_uniform(g->d, g->b, g->o.accepted), q, p)) {
            specv_ref_i_emit_residual(g, g->o.accepted, 1);
            return;
        }
    }
    specv_ref_i_emit_bonus(g, n_draft);
}

/* A4, with P_0 = 1, P_i = min(1, P_(i-1) * p(d_i) / q(d_i)):
       h_i = Z_i / D_i,  Z_i = sum (P_i p - q)+,  D_i = sum (q - P_i p)+   at position i < n,
       h_n = P_n;   tau = the largest i with u_i < h_i, or 0
   then the residual (P_tau p - q)+ at position tau. Sun et al. 2025, algorithm 2. */
static int specv_ref_i_block_test(specv_ref_i_judge *g, int32_t i, float prefix, uint32_t *seen) {
    float u = specv_ref_i_accept_uniform(g->d, g->b, i - 1), q_of_draft, p_of_draft, gained, lost;
    specv_ref_i_scores p, q;
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
        for (int64_t x = 0; x < p.vocab; ++x) {
            gained = specv_fma(prefix, specv_ref_i_p(&p, x), -specv_ref_i_p(&q, x));
            if (gained > 0) gain += specv_fixed40(gained);
            if (gained < 0) loss += specv_fixed40(-gained);
        }
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
    if (g->o.accepted < g->usable)
        specv_ref_i_emit_residual(g, g->o.accepted, prefix_of_tau);
    else
        specv_ref_i_emit_bonus(g, n_draft);
}

/* The only token that position j can have: the largest score (A2), or the largest score plus
   noise (A5); -1 if there is none. */
static int64_t specv_ref_i_choose(specv_ref_i_judge *g, specv_ref_i_scores *p, int32_t j) {
    int64_t best = INT64_MIN, choice = -1;
    uint32_t position;
    if (p->row.kind != SPECV_SOFTMAX) return p->row.kind == SPECV_ONE_HOT ? p->row.id : -1;
    position = specv_ref_i_position(g->d, g->b) + (uint32_t)(g->d->step_row + j);
    for (int64_t x = 0; x < p->vocab; ++x) {
        float score = specv_ref_i_score(p, x);
        int32_t noise = specv_gumbel24(
            specv_philox(g->d->seed[g->b], position, 0, (uint32_t)x / 4, SPECV_TAG_COUPLED)
                .x[x % 4]);
        int64_t value;
        if (specv_ref_i_are_probs(p->scores)) {
            int32_t exponent;
            float fraction;
            if (score < 1.17549435e-38f) continue; /* 0, or as good as */
            fraction = specv_i_log2(score, &exponent);
            value = specv_i_score(exponent, fraction, noise);
        } else {
            specv_weight w;
            if (!(score > p->scale.floor)) continue;
            w = specv_softmax_weight(score, &p->scale);
            value = specv_i_score(w.n, w.f, noise);
        }
        if (value > best) best = value, choice = x;
    }
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
        p = specv_ref_i_target_at(g, j);
        choice = specv_ref_i_choose(g, &p, j);
        g->o.status |= p.row.status;
        if (j < g->usable && choice == specv_ref_i_draft(g, j)) continue;
        g->o.mismatch = j < n_draft;
        specv_ref_i_emit(g, &p, choice);
        return;
    }
}

static float specv_ref_i_temperature(const float *temperatures, int b, uint32_t *status) {
    float temperature = temperatures ? temperatures[b] : 1;
    if (!specv_temperature_ok(temperature)) *status |= SPECV_ROW_BAD_TEMPERATURE;
    return temperature;
}

static void specv_ref_i_judge_row(const specv_verify_sample_desc *d, int b) {
    specv_ref_i_judge g;
    specv_ref_i_outcome nothing = {0, 0, 0, -1, 0};
    int32_t n_draft;
    int sampled = d->rule == SPECV_RULE_TOKEN || d->rule == SPECV_RULE_BLOCK;
    g.d = d, g.b = b, g.o = nothing, g.usable = 0, g.ends_with_eos = 0, g.logprob = g.lse = 0;
    n_draft = specv_ref_i_open_row(&d->verify, b, &g.o.status);
    if (n_draft >= 0) {
        g.temperature = 0;
        if (d->rule != SPECV_RULE_GREEDY)
            g.temperature = specv_ref_i_temperature(d->temperature, b, &g.o.status);
        g.draft_temperature = g.temperature;
        sampled = sampled && !specv_temperature_is_0(g.temperature);
        if (sampled && d->draft_temperature && d->draft.data)
            g.draft_temperature = specv_ref_i_temperature(d->draft_temperature, b, &g.o.status);
        while (g.usable < n_draft && !g.ends_with_eos) {
            int64_t draft = specv_ref_i_draft(&g, g.usable);
            if (!specv_ref_i_is_token(&d->verify, draft)) break;
            g.ends_with_eos = specv_ref_i_is_eos(&d->verify, draft);
            g.usable += 1;
        }
        if (!sampled)
            specv_ref_i_judge_equal(&g, n_draft);
        else if (d->rule == SPECV_RULE_BLOCK)
            specv_ref_i_judge_block(&g, n_draft);
        else
            specv_ref_i_judge_token(&g, n_draft);
        if (g.o.mismatch && g.o.accepted == g.usable) {
            int64_t draft = specv_ref_i_draft(&g, g.usable);
            if (draft != -1 && !specv_ref_i_is_token(&d->verify, draft))
                g.o.status |= SPECV_ROW_BAD_DRAFT;
        }
    }
    specv_ref_i_write_row(&d->verify, b, &g.o);
    if (d->logprob) d->logprob[b] = g.logprob;
    if (d->lse) d->lse[b] = g.lse;
}

SPECV_REF_API int specv_ref_verify_sample(const specv_verify_sample_desc *d) {
    int status = specv_verify_sample_validate(d);
    if (status != SPECV_OK) return status;
    for (int b = 0; b < d->verify.rows.batch; ++b) specv_ref_i_judge_row(d, b);
    return SPECV_OK;
}

/* ===================================================================================== >>A8 */

SPECV_REF_API int specv_ref_sample(const specv_sample_desc *d) {
    specv_verify_sample_desc v;
    int status = specv_sample_validate(d);
    if (status != SPECV_OK) return status;
    v = specv_sample_as_verify(d);
    for (int b = 0; b < d->batch; ++b) specv_ref_i_judge_row(&v, b);
    return SPECV_OK;
}

/* ===================================================================================== >>B1 */

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
            int64_t from = d->rows.row_start ? (d->rows.row_start[b] + (int64_t)j) * pos_stride
                                             : b * seq_stride + j * pos_stride;
            int64_t to = (kv->offsets[b] + (int64_t)j) * dst_stride;
            for (int64_t byte = 0; byte < kv->row_bytes; ++byte) dst[to + byte] = src[from + byte];
        }
    }
}

/* offsets[b] = sum of k over the rows before b;   dst[offsets[b] + j] = src[b][j] for j < k_b */
SPECV_REF_API int specv_ref_pack_kv(const specv_pack_kv_desc *d) {
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
        if (d->row_status) d->row_status[b] = bits | (d->keep_status ? d->row_status[b] : 0);
    }
    if (d->rows.batch > 0) d->kv.offsets[d->rows.batch] = offset;
    return SPECV_OK;
}

/* ===================================================================================== >>B2 */

SPECV_REF_API int specv_ref_verify_pack_kv(const specv_verify_pack_kv_desc *d) {
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

/* ====================================================================================== >>E */

SPECV_REF_API int specv_ref_accept_stats(const specv_accept_stats_desc *d) {
    int64_t step[SPECV_STAT_COUNT] = {0};
    int status = specv_accept_stats_validate(d);
    if (status != SPECV_OK || d->rows.batch == 0) return status;
    if (d->histogram && !d->accumulate)
        for (int64_t k = 0; k <= d->rows.max_draft; ++k) d->histogram[k] = 0;
    for (int b = 0; b < d->rows.batch; ++b) {
        int32_t num_drafts = specv_ref_i_num_drafts(&d->rows, b), len, emitted = 0;
        if (!specv_ref_i_is_live(&d->rows, b)) continue;
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
        step[SPECV_STAT_REJECTED] += d->mismatch ? d->mismatch[b] != 0 : len < num_drafts;
        step[SPECV_STAT_EMITTED] += emitted;
        if (d->histogram) d->histogram[len] += 1;
    }
    if (d->totals)
        for (int s = 0; s < SPECV_STAT_COUNT; ++s)
            d->totals[s] = step[s] + (d->accumulate ? d->totals[s] : 0);
    return SPECV_OK;
}

/* =================================================================================== >>diff */

SPECV_REF_API int64_t specv_ref_diff(const void *a, const void *b, int64_t count, int64_t bytes,
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

#endif /* SPECVERIFY_REF_IMPLEMENTATION */
