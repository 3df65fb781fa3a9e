/* Descriptors made of arbitrary bytes, and nearly valid ones. Validation must not crash, overflow
   or look behind a pointer, and must agree with the slow checker below, which states every rule
   once more, in 128-bit arithmetic: it accepts what breaks no rule and names a rule that is broken.
   A valid descriptor is still valid with its defaults filled in, and its scratch memory has room
   for all that is kept there.
   Built for libFuzzer (-seed=N -max_total_time=SECONDS -max_len=600 looks further than the tests),
   or with PLAIN_RANDOM as a program that takes a number of seconds. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define SPECVERIFY_REF_STATIC
#include "specverify_ref.h"

typedef __int128 wide;
enum { NUM_CODES = 128, NUM_KINDS = 23 };
static unsigned char broken[NUM_CODES]; /* by -status */

#define RULE(condition, code)                                                                      \
    do {                                                                                           \
        if (!(condition)) broken[-(SPECV_ERR_##code)] = 1;                                         \
    } while (0)

/* What every descriptor has. */
#define RULES_OF_ALL(d)                                                                            \
    do {                                                                                           \
        RULE((d)->canary0 == 0 && (d)->canary1 == 0, CANARY);                                      \
        RULE((d)->chained >= 0 && (d)->chained < 4, CHAINED);                                      \
    } while (0)

#define RULES_OF_STATUS(d, array)                                                                  \
    do {                                                                                           \
        RULE(aligned((d)->array, 4), ROW_STATUS);                                                  \
        RULE((d)->keep_status == 0 || (d)->keep_status == 1, KEEP_STATUS);                         \
    } while (0)

static int aligned(const void *p, unsigned bytes) { return (uintptr_t)p % bytes == 0; }
static int fits(wide product) { return product <= INT64_MAX; }

static int is_csr(const specv_rows *r) { return r->row_start || r->row_end; }

static void rules_of_slots(const void *slot, int32_t slot_dtype, int32_t num_slots) {
    RULE(slot_dtype == 0 || slot_dtype == 1, SLOT);
    RULE(aligned(slot, slot_dtype == 1 ? 8 : 4) && (slot == NULL || num_slots >= 1), SLOT);
}

static void rules_of_rows(const specv_rows *r) {
    RULE(r->batch >= 0, BATCH);
    RULE(r->max_draft >= 0, MAX_DRAFT);
    RULE((wide)r->batch * ((wide)r->max_draft + 1) <= 1 << 30, TOO_LARGE);
    RULE((r->draft_len != NULL) + (r->row_start != NULL) + (r->row_end != NULL) <= 1, LAYOUT);
    RULE(aligned(r->num_active, 4), NUM_ACTIVE);
    RULE(aligned(r->draft_len, 4), DRAFT_LEN);
    RULE(aligned(r->row_start, 4) && aligned(r->row_end, 4), ROW_START);
    rules_of_slots(r->slot, r->slot_dtype, r->num_slots);
    if (is_csr(r))
        RULE(r->num_draft_tokens >= 0 && r->num_draft_tokens <= (wide)r->batch * (wide)r->max_draft,
             NUM_DRAFT_TOKENS);
    else
        RULE(r->num_draft_tokens == 0, NUM_DRAFT_TOKENS);
}

static void rules_of_stride(int64_t given, int64_t least, int forbidden, int code) {
    if (given != 0 && (forbidden || given < least)) broken[-code] = 1;
}

/* But for the target's tokens. */
static void rules_of_drafts(const specv_verify_greedy_desc *d) {
    const unsigned token = d->token_dtype == SPECV_I64 ? 8 : 4;
    const int csr = is_csr(&d->rows);
    const int64_t max_draft = d->rows.max_draft;
    RULES_OF_ALL(d);
    rules_of_rows(&d->rows);
    RULE(d->token_dtype == 0 || d->token_dtype == 1, TOKEN_DTYPE);
    if (d->rows.batch > 0) {
        RULE(d->draft_tokens || (csr ? d->rows.num_draft_tokens <= 0 : max_draft <= 0),
             DRAFT_TOKENS);
        RULE(d->accepted_len, ACCEPTED_LEN);
    }
    RULE(aligned(d->draft_tokens, token), DRAFT_TOKENS);
    RULE(aligned(d->accepted_len, 4), ACCEPTED_LEN);
    RULE(aligned(d->next_token, token), NEXT_TOKEN);
    RULE(aligned(d->out_tokens, token), OUT_TOKENS);
    RULE(aligned(d->num_emitted, 4), NUM_EMITTED);
    RULES_OF_STATUS(d, row_status);
    rules_of_stride(d->draft_stride_elems, max_draft, csr, SPECV_ERR_DRAFT_STRIDE);
    rules_of_stride(d->target_stride_elems, max_draft + 1, csr, SPECV_ERR_TARGET_STRIDE);
    rules_of_stride(d->out_stride_elems, max_draft + 1, 0, SPECV_ERR_OUT_STRIDE);
    RULE(fits((wide)d->rows.batch * d->draft_stride_elems * 8), SIZE);
    RULE(fits((wide)d->rows.batch * d->target_stride_elems * 8), SIZE);
    RULE(fits((wide)d->rows.batch * d->out_stride_elems * 8), SIZE);
    RULE(d->vocab >= 0, VOCAB);
    RULE(d->num_eos >= 0 && d->num_eos <= SPECV_MAX_EOS, NUM_EOS);
    for (int i = 0; i < d->num_eos && i < SPECV_MAX_EOS; ++i)
        RULE(d->eos_token[i] >= 0 && (d->vocab == 0 || d->eos_token[i] < d->vocab), EOS_TOKEN);
}

static void rules_of_verify(const specv_verify_greedy_desc *d) {
    rules_of_drafts(d);
    RULE(d->rows.batch <= 0 || d->target_tokens, TARGET_TOKENS);
    RULE(aligned(d->target_tokens, d->token_dtype == SPECV_I64 ? 8 : 4), TARGET_TOKENS);
}

static void rules_of_scores(const specv_scores *s, const specv_rows *r, int64_t vocab,
                            wide positions, int code);

static void rules_of_filters(const specv_filters *f, const specv_scores *s, const specv_rows *r,
                             int64_t vocab, wide positions);
static int cuts(const specv_filters *f);

static void rules_of_emitted(const specv_emitted *e, const void *tokens, int batch);

/* Are there rows of nodes, to be cut or to tell of? */
static int has_node_rows(const specv_verify_tree_desc *d) {
    const specv_emitted *e = &d->emitted;
    return cuts(&d->filters) || cuts(&d->draft_filters) || e->logprob || e->rank || e->top_id ||
           e->top_logprob;
}

/* Then A3 of a position more than there are nodes is what it takes in addition. */
/* Rows of 16 tiles and more may have helpers: 32 of them at most. */
static wide helpers_of(wide rows, wide vocab) {
    return vocab <= 15 * 1024 ? 0 : (rows < 32 ? rows : 32) * (wide)sizeof(specv_i_help);
}

static wide scratch_of_tree(const specv_verify_tree_desc *d) {
    const wide tiles = ((wide)d->vocab + 1023) / 1024, batch = d->trees.batch;
    const wide sums = tiles * (wide)(sizeof(specv_tile) + 8);
    const wide rows = batch * ((wide)d->trees.max_nodes + 1);
    const wide of_rows =
        rows * 2 * (wide)(sizeof(specv_distribution) + 8 + tiles * 128) +
        rows * tiles * (wide)(2 * sizeof(specv_tile) + SPECV_I_STRIPS * sizeof(specv_i_residual));
    const wide plans = SPECV_TICKET_BYTES + batch * (wide)sizeof(specv_i_outcome) + rows * 4;
    const wide all = batch * (wide)d->trees.max_nodes, few = all < 1024 ? all : 1024;
    const wide ahead = few * (tiles + 4) * (wide)sizeof(specv_tile);
    const wide bytes = (ahead + 15) / 16 * 16 +
                       batch * ((sums + 15) / 16 * 16 +
                                2 * (wide)d->trees.max_nodes * (wide)sizeof(specv_distribution));
    wide of_nodes = (plans + 15) / 16 * 16 + of_rows + batch * (640 + 640);
    if (!has_node_rows(d)) return bytes;
    if (helpers_of(2 * rows, d->vocab) > 0) of_nodes = (of_nodes + 15) / 16 * 16;
    return bytes + of_nodes + helpers_of(2 * rows, d->vocab);
}

static void rules_of_verify_tree(const specv_verify_tree_desc *d) {
    const specv_trees *t = &d->trees;
    const unsigned token = t->token_dtype == SPECV_I64 ? 8 : 4;
    const int from_scores = d->target_tokens == NULL, has = t->batch > 0;
    const int64_t nodes = t->max_nodes;
    specv_rows rows = {0};
    RULES_OF_ALL(d);
    RULE(t->reserved == 0, CANARY);
    RULE(d->num_sms >= 0 && d->num_sms < 65536, NUM_SMS);
    RULE(d->rule >= 0 && d->rule <= 6, RULE);
    RULE(t->batch >= 0, BATCH);
    RULE(nodes >= 1 && nodes <= 1024 && aligned(t->num_nodes, 4) && aligned(t->parent, 4), TREE);
    RULE((wide)t->batch * nodes <= 1 << 30, TOO_LARGE);
    RULE(aligned(t->num_active, 4), NUM_ACTIVE);
    RULE(t->parent || !has, TREE);
    RULE(t->token_dtype == 0 || t->token_dtype == 1, TOKEN_DTYPE);
    RULE(aligned(t->token, token) && (t->token || !has || nodes == 1), DRAFT_TOKENS);
    rules_of_stride(t->parent_stride_elems, nodes, 0, SPECV_ERR_TREE);
    rules_of_stride(t->token_stride_elems, nodes, 0, SPECV_ERR_TREE);
    RULE(fits((wide)t->batch * t->parent_stride_elems * 8), SIZE);
    RULE(fits((wide)t->batch * t->token_stride_elems * 8), SIZE);
    rules_of_slots(t->slot, t->slot_dtype, t->num_slots);
    RULE(d->max_depth >= 0 && d->max_depth < nodes, PATH);
    RULE(aligned(d->target_tokens, token), TARGET_TOKENS);
    RULE(from_scores || (d->rule == 0 && !d->target.data), TARGET_TOKENS);
    RULE(d->vocab >= 0 && (!from_scores || (d->vocab >= 1 && d->vocab <= 1 << 22)), VOCAB);
    rows.batch = t->batch, rows.max_draft = (int32_t)((uint32_t)t->max_nodes - 1u);
    if (from_scores) {
        rules_of_scores(&d->target, &rows, d->vocab, nodes, SPECV_ERR_TARGET);
        rules_of_scores(&d->draft, &rows, d->vocab, nodes, SPECV_ERR_DRAFT);
        RULE(d->target.data || !has, TARGET);
    }
    RULE(aligned(d->target.data, d->target.dtype == 1 || d->target.dtype == 2 ? 2 : 4), TARGET);
    RULE(aligned(d->draft.data, d->draft.dtype == 1 || d->draft.dtype == 2 ? 2 : 4), DRAFT);
    RULE(d->rule >= 3 || !d->draft.data, DRAFT);
    rules_of_filters(&d->filters, &d->target, &rows, d->vocab, nodes);
    rules_of_filters(&d->draft_filters, &d->draft, &rows, d->vocab, nodes);
    if (has && from_scores && has_node_rows(d))
        RULE((wide)t->batch * (nodes + 1) <= 1 << 30, TOO_LARGE);
    RULE(aligned(d->temperature, 4) && aligned(d->draft_temperature, 4), TEMPERATURE);
    RULE(aligned(d->seed, 8) && (d->seed || d->rule == 0 || !has), SEED);
    RULE(aligned(d->position, 4) && (d->position || !d->seed || !has), POSITION);
    RULE(aligned(d->logprob, 4) && (!d->logprob || from_scores), LOGPROB);
    rules_of_emitted(&d->emitted, d->out_tokens, t->batch);
    if (d->emitted.logprob || d->emitted.rank || d->emitted.top_id || d->emitted.top_logprob)
        RULE(from_scores && (!has || (d->out_tokens && d->path)), LOGPROB);
    RULE(d->step_row >= 0 && (d->stream == 0 || d->stream == 1), STREAM);
    if (has && from_scores)
        RULE(d->scratch && aligned(d->scratch, 16) && d->scratch_bytes >= scratch_of_tree(d),
             SCRATCH);
    RULE(aligned(d->accepted_len, 4) && (d->accepted_len || !has), ACCEPTED_LEN);
    RULE(aligned(d->next_token, token), NEXT_TOKEN);
    RULE(aligned(d->out_tokens, token), OUT_TOKENS);
    RULE(aligned(d->num_emitted, 4), NUM_EMITTED);
    RULES_OF_STATUS(d, row_status);
    RULE(aligned(d->path, 4) && aligned(d->accept_index, 4) && aligned(d->predicts, token), PATH);
    rules_of_stride(d->out_stride_elems, (d->max_depth ? d->max_depth : nodes - 1) + 1, 0,
                    SPECV_ERR_OUT_STRIDE);
    RULE(fits((wide)t->batch * d->out_stride_elems * 8), SIZE);
    rules_of_stride(d->target_stride_elems, nodes, 0, SPECV_ERR_TARGET_STRIDE);
    RULE(fits((wide)t->batch * d->target_stride_elems * 8), SIZE);
    RULE(d->num_eos >= 0 && d->num_eos <= SPECV_MAX_EOS, NUM_EOS);
    for (int i = 0; i < d->num_eos && i < SPECV_MAX_EOS; ++i)
        RULE(d->eos_token[i] >= 0 && (d->vocab == 0 || d->eos_token[i] < d->vocab), EOS_TOKEN);
}

static void rules_of_scores(const specv_scores *s, const specv_rows *r, int64_t vocab,
                            wide positions, int code) {
    const int csr = is_csr(r);
    const wide pos = s->pos_stride_elems ? s->pos_stride_elems : vocab;
    const wide sequence = s->seq_stride_elems ? s->seq_stride_elems : positions * pos;
    /* One row of an empty batch, too: its stride is computed. */
    const wide beyond = positions > r->max_draft ? r->batch : 0; /* rows with one more */
    const wide rows =
        csr ? (wide)r->num_draft_tokens + beyond : (r->batch ? r->batch : 1) * positions;
    const int narrow = s->dtype == SPECV_LOGITS_F16 || s->dtype == SPECV_LOGITS_BF16;
    if (!aligned(s->data, narrow ? 2 : 4)) broken[-code] = 1;
    RULE(s->reserved == 0, CANARY);
    RULE(s->dtype >= 0 && s->dtype <= 3, SCORE_DTYPE);
    RULE(pos >= vocab, SCORE_STRIDE);
    RULE(rows * pos <= INT64_MAX / 4, SIZE);
    if (s->seq_stride_elems) {
        RULE(!csr, SCORE_STRIDE);
        RULE(sequence >= (positions > 0 ? (positions - 1) * pos + vocab : 0), SCORE_STRIDE);
        RULE(r->batch * sequence <= INT64_MAX / 4, SIZE);
    }
}

static wide mask_rows(const specv_filters *f, const specv_rows *r, wide positions) {
    if (f->mask_row) return f->num_mask_rows;
    return is_csr(r) ? (wide)r->num_draft_tokens + (positions > r->max_draft ? r->batch : 0)
                     : r->batch * positions;
}

static int has_filters(const specv_filters *f) {
    return f->mask || f->top_k || f->top_p || f->min_p;
}

static void rules_of_filters(const specv_filters *f, const specv_scores *s, const specv_rows *r,
                             int64_t vocab, wide positions) {
    const wide words = ((wide)vocab + 31) / 32, rows = mask_rows(f, r, positions);
    RULE(aligned(f->top_k, 4) && aligned(f->top_p, 4) && aligned(f->min_p, 4), FILTERS);
    RULE(f->order >= 0 && f->order <= 2, FILTERS);
    RULE(!has_filters(f) || s->data || r->batch == 0, FILTERS);
    RULE(aligned(f->mask, 4) && aligned(f->mask_row, 4), MASK);
    RULE(f->num_mask_rows >= 0 && f->mask_stride_words >= 0, MASK);
    if (f->mask) {
        RULE(f->mask_stride_words == 0 || f->mask_stride_words >= words, MASK);
        RULE(f->mask_row ? f->num_mask_rows || r->batch == 0
                         : f->num_mask_rows == 0 || f->num_mask_rows >= rows,
             MASK);
        RULE((rows ? rows : 1) * (f->mask_stride_words ? f->mask_stride_words : words) <=
                 INT64_MAX / 4,
             SIZE);
    } else {
        RULE(!f->mask_row && f->num_mask_rows == 0 && f->mask_stride_words == 0, MASK);
    }
}

/* tokens: where those are that it tells of. ln p alone of their own law needs them not. */
static void rules_of_emitted(const specv_emitted *e, const void *tokens, int batch) {
    const int tells = e->rank || e->top_id || e->top_logprob || (e->logprob && e->raw);
    RULE(aligned(e->logprob, 4) && aligned(e->rank, 4) && aligned(e->top_id, 4), LOGPROB);
    RULE(aligned(e->top_logprob, 4) && aligned(e->num_top, 4), LOGPROB);
    RULE(e->max_top >= (e->top_id || e->top_logprob) && e->max_top <= 32, LOGPROB);
    RULE(e->raw == 0 || e->raw == 1, LOGPROB);
    RULE(batch <= 0 || tokens || !tells, LOGPROB);
}

/* What the descriptors of A2 to A5 and of A8 have in common. */
#define RULES_OF_REQUEST(d, batch, needs_seed)                                                     \
    RULE(aligned((d)->seed, 8) && ((batch) <= 0 || (d)->seed || !(needs_seed)), SEED);             \
    RULE(aligned((d)->position, 4) && ((batch) <= 0 || (d)->position || !(d)->seed), POSITION);    \
    RULE(aligned((d)->temperature, 4), TEMPERATURE);                                               \
    RULE(aligned((d)->logprob, 4) && aligned((d)->lse, 4), LOGPROB);                               \
    RULE(aligned((d)->max_prob, 4), MAX_PROB);                                                     \
    RULE((d)->step_row >= 0, STREAM);                                                              \
    RULE((d)->num_sms >= 0 && (d)->num_sms < 65536, NUM_SMS)

/* Draft rows have statistics: of logits, and of probabilities that filters make weights. */
static int has_draft_rows(const specv_verify_sample_desc *d) {
    return d->draft.data && (d->draft.dtype != SPECV_PROBS_F32 || has_filters(&d->filters) ||
                             has_filters(&d->draft_filters) || d->rule > SPECV_RULE_SCORE);
}

/* Are ids of its rows listed? Then requests have 640 bytes, and eight ids a byte. */
static int lists(const specv_verify_sample_desc *d) {
    const specv_filters *p = &d->filters, *q = &d->draft_filters;
    return p->top_k || p->top_p || p->min_p || q->top_k || q->top_p || q->min_p ||
           d->emitted.top_id || d->emitted.top_logprob;
}

/* What a descriptor needs: tickets, plans, prefixes, then rows, tiles, residuals and what lists
   need from the next multiple of 16 on. */
static wide of_helpers(const specv_verify_sample_desc *d) {
    const specv_rows *r = &d->verify.rows;
    const wide own = is_csr(r) ? (wide)r->num_draft_tokens : (wide)r->batch * (wide)r->max_draft;
    return lists(d) ? helpers_of((r->batch + own) * (has_draft_rows(d) ? 2 : 1), d->verify.vocab)
                    : 0;
}

static wide scratch_of(const specv_verify_sample_desc *d) {
    const specv_rows *r = &d->verify.rows;
    const wide rows =
        r->batch + (is_csr(r) ? (wide)r->num_draft_tokens : (wide)r->batch * (wide)r->max_draft);
    const wide tiles = ((wide)d->verify.vocab + 1023) / 1024;
    const wide all = has_draft_rows(d) ? 2 * rows : rows;
    wide bytes = SPECV_TICKET_BYTES + r->batch * (wide)sizeof(specv_i_outcome) + rows * 4;
    while (bytes % 16) bytes += 1;
    bytes += all * (wide)(sizeof(specv_distribution)) + all * 8; /* where filters end it */
    bytes += all * tiles * (wide)sizeof(specv_tile);
    if (d->draft.data || d->target.dtype == SPECV_PROBS_F32)
        bytes +=
            rows * tiles * SPECV_I_STRIPS * (wide)sizeof(specv_i_residual) + (wide)r->batch * 640;
    if (lists(d)) bytes += (wide)r->batch * 640 + all * tiles * 128;
    return bytes + (bytes % 16 && of_helpers(d) ? 8 : 0) + of_helpers(d);
}

static void rules_of_scratch(const specv_verify_sample_desc *d) {
    RULE(d->verify.rows.batch <= 0 ||
             (d->scratch && aligned(d->scratch, 16) && d->scratch_bytes >= scratch_of(d)),
         SCRATCH);
}

static void rules_of_sampled(const specv_verify_sample_desc *d) {
    const specv_verify_greedy_desc *v = &d->verify;
    const wide positions = (wide)v->rows.max_draft + (d->bonus_token ? 0 : 1);
    const int judges = d->rule == SPECV_RULE_TOKEN || d->rule == SPECV_RULE_BLOCK ||
                       d->rule == SPECV_RULE_THRESHOLD || d->rule == SPECV_RULE_BOUNDED;
    const int scores = d->rule == SPECV_RULE_SCORE; /* takes no test, only draws */
    const int noisy = d->rule == SPECV_RULE_COUPLED || d->rule == SPECV_RULE_TYPICAL_DRAW;
    const specv_lossy *l = &d->lossy;
    const int draws = (judges || scores) &&
                      !(d->sample_uniform && (scores || d->accept_uniform || !v->rows.max_draft));
    RULE(d->canary1 == 0 && d->reserved == 0, CANARY);
    rules_of_drafts(v);
    RULE(!v->target_tokens, TARGET_TOKENS);
    RULE(d->rule >= 0 && d->rule <= 9, RULE);
    RULE(!d->draft.data || d->rule < 4 || d->rule == 9, DRAFT);
    RULE(aligned(l->epsilon, 4) && aligned(l->alpha, 4) && aligned(l->top_n, 4), LOSSY);
    RULE(aligned(l->threshold_single, 4) && aligned(l->threshold_acc, 4), LOSSY);
    RULE(aligned(l->delta, 4) && aligned(l->ratio, 4), LOSSY);
    RULE((!l->epsilon && !l->alpha) || d->rule == 5 || d->rule == 6, LOSSY);
    RULE((!l->threshold_single && !l->threshold_acc) || d->rule == 7, LOSSY);
    RULE((!l->top_n && !l->delta) || d->rule == 8, LOSSY);
    RULE(!l->ratio || d->rule == 9, LOSSY);
    RULE(aligned(d->target_logprob, 4) && (scores || !d->target_logprob), LOGPROB);
    RULE(v->vocab >= 1 && v->vocab <= 1 << 22, VOCAB);
    rules_of_scores(&d->target, &v->rows, v->vocab, positions, SPECV_ERR_TARGET);
    rules_of_scores(&d->draft, &v->rows, v->vocab, v->rows.max_draft, SPECV_ERR_DRAFT);
    RULE(v->rows.batch <= 0 || d->target.data, TARGET);
    RULE(aligned(d->bonus_token, v->token_dtype == SPECV_I64 ? 8 : 4), TOKEN);
    rules_of_filters(&d->filters, &d->target, &v->rows, v->vocab, positions);
    rules_of_filters(&d->draft_filters, &d->draft, &v->rows, v->vocab, v->rows.max_draft);
    rules_of_emitted(&d->emitted, v->out_tokens, v->rows.batch);
    RULES_OF_REQUEST(d, v->rows.batch, draws || noisy);
    RULE(aligned(d->draft_temperature, 4), TEMPERATURE);
    RULE(aligned(d->accept_uniform, 4) && aligned(d->sample_uniform, 4), UNIFORM);
    RULE(d->stream == 0 || d->stream == 1, STREAM);
    RULE(!d->max_prob || (v->rows.max_draft == 0 && !d->bonus_token), MAX_PROB);
    rules_of_scratch(d);
}

static void rules_of_sample(const specv_sample_desc *d) {
    specv_verify_sample_desc as_verify;
    specv_rows rows = {0};
    rows.batch = d->batch;
    rows.num_active = d->num_active;
    rows.slot = d->slot, rows.slot_dtype = d->slot_dtype, rows.num_slots = d->num_slots;
    RULES_OF_ALL(d);
    rules_of_rows(&rows);
    RULE(d->method == 0 || d->method == 1, RULE);
    RULE(d->token_dtype == 0 || d->token_dtype == 1, TOKEN_DTYPE);
    RULE(d->batch <= 0 || d->token, TOKEN);
    RULE(aligned(d->token, d->token_dtype == SPECV_I64 ? 8 : 4), TOKEN);
    RULE(d->token_stride_elems >= 0, OUT_STRIDE);
    RULE(fits((wide)d->batch * d->token_stride_elems * 8), SIZE);
    RULES_OF_STATUS(d, row_status);
    RULE(d->vocab >= 1 && d->vocab <= 1 << 22, VOCAB);
    rules_of_scores(&d->scores, &rows, d->vocab, 1, SPECV_ERR_TARGET);
    RULE(d->batch <= 0 || d->scores.data, TARGET);
    rules_of_filters(&d->filters, &d->scores, &rows, d->vocab, 1);
    rules_of_emitted(&d->emitted, d->token, d->batch);
    RULE(aligned(d->uniform, 4), UNIFORM);
    RULE(d->stream >= 0 && d->stream <= (d->method == SPECV_SAMPLE_GUMBEL ? 2 : 1), STREAM);
    RULES_OF_REQUEST(d, d->batch, d->method == SPECV_SAMPLE_GUMBEL || !d->uniform);
    as_verify = specv_sample_as_verify(d);
    rules_of_scratch(&as_verify);
}

static int cuts(const specv_filters *f) { return f->top_k || f->top_p || f->min_p; }

static int is_judged_by_q(const specv_verify_sample_desc *s) {
    return s->draft.data && (s->rule == SPECV_RULE_TOKEN || s->rule == SPECV_RULE_BLOCK);
}

/* A9. Does a rank name ids of the target's rows, and of the draft's? */
static int names(const specv_verify_sample_desc *s, int of_draft) {
    if (of_draft) return is_judged_by_q(s) && cuts(&s->draft_filters);
    return s->rule != SPECV_RULE_GREEDY && cuts(&s->filters);
}

/* Which records there are: of the largest scores, of sums, of what p has more of, of tokens. */
enum { BEST, SUMS, GAINS, TOKENS, NOTHING };

static int has_record(const specv_verify_shard_desc *d, int kind) {
    const specv_verify_sample_desc *s = &d->sample;
    const int draws = s->rule != SPECV_RULE_GREEDY && s->rule != SPECV_RULE_COUPLED;
    const int has_all = d->all_top_k && names(s, 0);
    if (kind == BEST) return 1;
    if (kind == GAINS) return is_judged_by_q(s) && !has_all;
    if (kind == TOKENS) return draws && !has_all;
    for (int i = 0; i < 2; ++i) {
        const specv_filters *f = i ? &s->draft_filters : &s->filters;
        if (names(s, i) && f->top_p && f->order == SPECV_TOP_P_OF_ALL) return 1;
    }
    if (has_all) return 0;
    return draws || (s->rule == SPECV_RULE_COUPLED &&
                     (s->logprob || s->lse || s->max_prob || s->emitted.logprob));
}

/* What a step leaves. */
static int kind_of(const specv_verify_shard_desc *d, wide step) {
    for (int kind = BEST; kind < NOTHING && step >= 0; ++kind)
        if (has_record(d, kind) && step-- == 0) return kind;
    return NOTHING;
}

static int exchanges_of(const specv_verify_shard_desc *d) {
    int count = 0;
    for (int kind = BEST; kind < NOTHING; ++kind) count += has_record(d, kind);
    return count;
}

/* Bytes of the record that a step leaves; 0: it leaves none. */
static wide record_of(const specv_verify_shard_desc *d, wide step) {
    const specv_verify_sample_desc *s = &d->sample;
    const specv_rows *r = &s->verify.rows;
    const wide rows =
        r->batch + (is_csr(r) ? (wide)r->num_draft_tokens : (wide)r->batch * (wide)r->max_draft);
    const int judges = s->rule == SPECV_RULE_TOKEN || s->rule == SPECV_RULE_BLOCK;
    const int has_q = s->draft.data && judges;
    const int kind = kind_of(d, step);
    wide bytes = 16 + 4 * (wide)r->batch;
    if (kind == NOTHING) return 0;
    if (kind == BEST)
        bytes += 8 * rows *
                 (1 + (has_q || s->rule == SPECV_RULE_COUPLED) +
                  (names(s, 0) + names(s, 1)) * (wide)d->max_top_k);
    else if (kind == SUMS)
        bytes +=
            8 * rows * (1 + has_q) + 4 * rows * (1 + has_q) + (judges && !has_q ? 8 * rows : 0);
    else if (kind == GAINS)
        bytes += 24 * (s->rule == SPECV_RULE_BLOCK ? rows : r->batch);
    else
        bytes += 8 * (wide)r->batch;
    return (bytes + 15) / 16 * 16;
}

/* A9 as A2 to A5 of the columns that are here. */
static specv_verify_sample_desc columns_of(const specv_verify_shard_desc *d) {
    specv_verify_sample_desc v = d->sample;
    const int64_t words = (int64_t)(((wide)d->sample.verify.vocab + 31) / 32); /* of all ids */
    static uint32_t nothing;
    v.verify.vocab = d->num_ids ? d->num_ids : 1, v.verify.num_eos = 0;
    if (v.filters.mask && !v.filters.mask_stride_words) v.filters.mask_stride_words = words;
    if (v.draft_filters.mask && !v.draft_filters.mask_stride_words)
        v.draft_filters.mask_stride_words = words;
    if (!d->num_ids && !v.target.data) v.target.data = &nothing;
    return v;
}

static wide scratch_of_shard(const specv_verify_shard_desc *d) {
    specv_verify_sample_desc v = columns_of(d);
    const specv_rows *r = &v.verify.rows;
    v.verify.vocab = d->num_ids;
    const wide rows =
        r->batch + (is_csr(r) ? (wide)r->num_draft_tokens : (wide)r->batch * r->max_draft);
    const wide all = has_draft_rows(&v) ? 2 * rows : rows;
    wide bytes = (scratch_of(&v) + 15) / 16 * 16 + 16 * rows + 4 * (wide)r->batch;
    bytes += all * (wide)sizeof(specv_distribution);
    bytes += all * (wide)d->num_shards * (wide)sizeof(specv_tile);
    if (names(&d->sample, 0) || names(&d->sample, 1)) bytes += 8 * all * (wide)d->max_top_k;
    return bytes + rows * (wide)d->num_shards * (wide)sizeof(specv_i_residual);
}

static void rules_of_verify_shard(const specv_verify_shard_desc *d) {
    const specv_verify_sample_desc *s = &d->sample;
    const specv_rows *r = &s->verify.rows;
    const wide vocab = s->verify.vocab, words = (vocab + 31) / 32;
    const wide end = (wide)d->first_id + d->num_ids, step = d->step;
    const specv_filters *const masks[2] = {&s->filters, &s->draft_filters};
    RULE(d->canary0 == 0 && d->canary1 == 0, CANARY);
    RULE(vocab >= 1 && vocab <= 1 << 22, VOCAB);
    RULE(d->num_shards >= 1 && d->num_shards <= 256, SHARD);
    RULE(d->first_id >= 0 && d->num_ids >= 0, SHARD);
    RULE(!d->num_ids || (d->first_id % 1024 == 0 && end <= vocab), SHARD);
    RULE(d->num_ids % 1024 == 0 || end == vocab, SHARD);
    RULE(s->rule <= SPECV_RULE_SCORE, RULE);
    RULE(step >= 0 && step <= exchanges_of(d), STEP);
    RULE(d->max_top_k >= 0 && d->max_top_k <= 256, FILTERS);
    RULE(d->all_top_k == 0 || d->all_top_k == 1, FILTERS);
    RULE(!d->all_top_k || s->filters.top_k, FILTERS);
    RULE(!d->all_top_k || !is_judged_by_q(s) || s->draft_filters.top_k, FILTERS);
    RULE(aligned(d->epoch, 8), STEP);
    rules_of_drafts(&s->verify);
    for (int i = 0; i < 2; ++i) {
        RULE(!names(s, i) || (d->max_top_k > 0 && masks[i]->top_k), FILTERS);
        RULE(!masks[i]->mask || !masks[i]->mask_stride_words ||
                 masks[i]->mask_stride_words >= words,
             MASK);
    }
    RULE(s->target.dtype != SPECV_PROBS_F32, SCORE_DTYPE);
    if (s->rule == SPECV_RULE_TOKEN || s->rule == SPECV_RULE_BLOCK)
        RULE(!s->draft.data || s->draft.dtype != SPECV_PROBS_F32, SCORE_DTYPE);
    RULE(!s->emitted.rank && !s->emitted.top_id && !s->emitted.top_logprob &&
             !(s->emitted.raw && s->emitted.logprob),
         LOGPROB);
    if (vocab >= 1 && d->num_ids >= 0) {
        const specv_verify_sample_desc v = columns_of(d);
        rules_of_sampled(&v);
        if (r->batch > 0) RULE(s->scratch_bytes >= scratch_of_shard(d), SCRATCH);
    }
    if (r->batch <= 0) return;
    RULE(aligned(d->record, 16) && (d->record != NULL) == (record_of(d, step) > 0), RECORD);
    RULE(aligned(d->gathered, 16) && (d->gathered != NULL) == (record_of(d, step - 1) > 0), RECORD);
    RULE(!d->record_stride_bytes ||
             (d->record_stride_bytes >= record_of(d, step - 1) && d->record_stride_bytes % 16 == 0),
         RECORD);
    RULE(fits((wide)d->num_shards * d->record_stride_bytes), SIZE);
}

/* Of the sizes of scratch memory. */
static void rules_of_numbers(int64_t batch, int64_t max_draft, int64_t vocab) {
    RULE(batch >= 0, BATCH);
    RULE(max_draft >= 0, MAX_DRAFT);
    RULE(batch <= 1 << 30 && max_draft <= INT32_MAX &&
             (wide)batch * ((wide)max_draft + 1) <= 1 << 30,
         TOO_LARGE);
    RULE(vocab >= 1 && vocab <= 1 << 22, VOCAB);
}

static void rules_of_kv(const specv_kv_pack *kv, const specv_rows *r) {
    const int csr = is_csr(r), tables = kv->src_planes || kv->dst_planes;
    const wide positions = csr ? r->num_draft_tokens : r->max_draft, batch = r->batch;
    const wide pos = kv->src_pos_stride_bytes ? kv->src_pos_stride_bytes : kv->row_bytes;
    const wide out = kv->dst_row_stride_bytes ? kv->dst_row_stride_bytes : kv->row_bytes;
    const wide sequence = kv->src_seq_stride_bytes ? kv->src_seq_stride_bytes : positions * pos;
    RULE(kv->num_planes >= 0, NUM_PLANES);
    RULE(tables ? kv->num_planes != 0 : kv->num_planes <= 1, NUM_PLANES);
    RULE(aligned(kv->src_planes, 8), SRC);
    RULE(aligned(kv->dst_planes, 8), DST);
    RULE(aligned(kv->offsets, 4), OFFSETS);
    RULE(kv->row_bytes > 0, ROW_BYTES);
    RULE(pos >= kv->row_bytes, SRC_POS_STRIDE);
    RULE(out >= kv->row_bytes, DST_ROW_STRIDE);
    RULE(kv->capacity_rows > 0, CAPACITY);
    RULE(fits(kv->capacity_rows * out), SIZE);
    RULE(fits(batch * r->max_draft * kv->row_bytes), SIZE);
    RULE(fits(positions * pos), SIZE);
    if (!csr || kv->src_seq_stride_bytes) RULE(fits(batch * sequence), SIZE);
    if (kv->src_seq_stride_bytes) {
        RULE(!csr, SRC_SEQ_STRIDE);
        RULE(sequence >= 0, SRC_SEQ_STRIDE);
        RULE(positions == 0 || sequence >= (positions - 1) * pos + kv->row_bytes, SRC_SEQ_STRIDE);
    }
    RULE(kv->num_sms >= 0 && kv->num_sms < 65536, NUM_SMS);
    if (r->batch > 0) RULE(kv->offsets, OFFSETS);
    if (r->batch > 0 && positions > 0) {
        RULE((kv->src != NULL) == !tables && (kv->src_planes != NULL) == tables, SRC);
        RULE((kv->dst != NULL) == !tables && (kv->dst_planes != NULL) == tables, DST);
    }
}

static void rules_of_pack(const specv_pack_kv_desc *d) {
    RULES_OF_ALL(d);
    rules_of_rows(&d->rows);
    RULE(d->rows.batch <= 0 || d->accepted_len, ACCEPTED_LEN);
    RULE(aligned(d->accepted_len, 4), ACCEPTED_LEN);
    RULES_OF_STATUS(d, row_status);
    rules_of_kv(&d->kv, &d->rows);
}

static void rules_of_verify_pack(const specv_verify_pack_kv_desc *d) {
    RULE(d->canary1 == 0 && d->reserved == 0, CANARY);
    rules_of_verify(&d->verify);
    rules_of_kv(&d->kv, &d->verify.rows);
}

static void rules_of_stats(const specv_accept_stats_desc *d) {
    RULES_OF_ALL(d);
    RULE(d->reserved == 0, CANARY);
    rules_of_rows(&d->rows);
    RULE(d->accumulate == 0 || d->accumulate == 1, ACCUMULATE);
    RULE(d->token_dtype == 0 || d->token_dtype == 1, TOKEN_DTYPE);
    RULE(aligned(d->draft_tokens, d->token_dtype == SPECV_I64 ? 8 : 4), DRAFT_TOKENS);
    rules_of_stride(d->draft_stride_elems, d->rows.max_draft, is_csr(&d->rows),
                    SPECV_ERR_DRAFT_STRIDE);
    RULE(fits((wide)d->rows.batch * d->draft_stride_elems * 8), SIZE);
    RULE(d->rows.batch <= 0 || d->accepted_len, ACCEPTED_LEN);
    RULE(aligned(d->accepted_len, 4), ACCEPTED_LEN);
    RULE(aligned(d->num_emitted, 4), NUM_EMITTED);
    RULE(aligned(d->histogram, 8), HISTOGRAM);
    RULE(d->histogram || d->totals, HISTOGRAM);
    RULE(aligned(d->totals, 8), TOTALS);
}

static void fail(const char *what, int status) {
    fprintf(stderr, "%s: %d, %s; broken rules:", what, status, specv_status_string(status));
    for (int i = 0; i < NUM_CODES; ++i)
        if (broken[i]) fprintf(stderr, " %d", -i);
    fprintf(stderr, "\n");
    abort();
}

static void compare(int status) {
    int any = 0;
    for (int i = 0; i < NUM_CODES; ++i) any |= broken[i];
    if (strstr(specv_status_string(status), "not a status code")) fail("unknown status", status);
    if (status == SPECV_OK && any) fail("accepted, but", status);
    if (status != SPECV_OK && (status > 0 || status <= -NUM_CODES || !broken[-status]))
        fail("rejected for a rule that holds", status);
}

/* A valid descriptor, resolved, must pass again; not in CSR, which allows no strides of tokens. */
static void again(int csr, int status) {
    if (!csr && status != SPECV_OK) fail("rejected after resolving", status);
}

/* A valid descriptor, resolved: the farthest address of each buffer is below 2^63. */
static void reach_of_kv(const specv_kv_pack *kv, const specv_rows *r) {
    wide last = is_csr(r) ? (wide)r->num_draft_tokens * kv->src_pos_stride_bytes
                          : (wide)(r->batch - 1) * kv->src_seq_stride_bytes +
                                (wide)(r->max_draft - 1) * kv->src_pos_stride_bytes + kv->row_bytes;
    if (r->batch == 0 || r->max_draft == 0) return;
    if (!fits(last)) fail("the last source row is out of reach", 0);
    if (!fits((wide)kv->capacity_rows * kv->dst_row_stride_bytes)) fail("destination", 0);
    if (kv->num_planes < 1) fail("no planes after resolving", 0);
}

static void reach_of_verify(const specv_verify_greedy_desc *d) {
    const wide rows = d->rows.batch;
    if (!fits(rows * d->draft_stride_elems * 8) || !fits(rows * d->target_stride_elems * 8) ||
        !fits(rows * d->out_stride_elems * 8))
        fail("a token is out of reach", 0);
    if (d->out_stride_elems <= d->rows.max_draft) fail("rows of out_tokens overlap", 0);
}

static void reach_of_scores(const specv_scores *s, const specv_rows *r, wide positions) {
    const wide sequence = s->seq_stride_elems, pos = s->pos_stride_elems;
    const wide beyond = positions > r->max_draft ? r->batch : 0;
    const wide end = is_csr(r) ? (r->num_draft_tokens + beyond) * pos : r->batch * sequence;
    if (end > INT64_MAX / 4) fail("a score is out of reach", 0);
    if (!is_csr(r) && positions * pos > sequence + pos) fail("rows of scores overlap", 0);
}

static void reach_of_masks(const specv_filters *f, const specv_rows *r, wide positions) {
    if (f->mask && !fits(mask_rows(f, r, positions) * f->mask_stride_words * 4))
        fail("a mask is out of reach", 0);
}

/* The areas of scratch memory are aligned, lie one behind the other, and each holds what it is for.
   The size that numbers alone give is enough. */
static void reach_of_scratch(const specv_verify_sample_desc *d, int64_t enough) {
    const specv_rows *r = &d->verify.rows;
    const specv_i_scratch s = specv_i_scratch_layout(d);
    const int residuals = d->draft.data || d->target.dtype == SPECV_PROBS_F32;
    const wide drafts = is_csr(r) ? r->num_draft_tokens : (wide)r->batch * r->max_draft;
    const wide rows = drafts + r->batch, tiles = (d->verify.vocab + 1023) / 1024;
    const wide all = has_draft_rows(d) ? rows + rows : rows;
    const wide end = of_helpers(d) ? s.help : s.bytes;
    const wide start[] = {s.plans, s.prefixes, s.residuals, s.left,  s.opened,
                          s.lanes, s.rows,     s.least,     s.tiles, end};
    const wide size[] = {r->batch * (wide)sizeof(specv_i_outcome),
                         rows * 4,
                         residuals ? rows * tiles * SPECV_I_STRIPS * (wide)sizeof(specv_i_residual)
                                   : 0,
                         residuals ? (wide)r->batch * 640 : 0,
                         lists(d) ? (wide)r->batch * 640 : 0,
                         lists(d) ? all * tiles * 128 : 0,
                         all * (wide)sizeof(specv_distribution),
                         all * 8,
                         all * tiles * (wide)sizeof(specv_tile)};
    if (s.plans < SPECV_TICKET_BYTES || s.num_tiles != tiles) fail("tickets or tiles", 0);
    for (int i = 0; i < 9; ++i) /* sums of residuals are loaded 16 bytes at once */
        if (start[i] % (i < 2 ? 4 : i == 2 ? 16 : 8) || start[i] + size[i] > start[i + 1])
            fail("scratch memory overlaps or is not aligned", 0);
    if (of_helpers(d) && (s.help % 16 || s.help + of_helpers(d) > s.bytes))
        fail("helpers' memory overlaps or is not aligned", 0);
    if (s.bytes > enough || s.bytes != scratch_of(d)) fail("another size of scratch memory", 0);
}

/* Numbers at which rules change. */
static const int64_t edges[] = {0,         1,         -1,        2,          3,         4,
                                7,         8,         9,         16,         31,        32,
                                4096,      65535,     65536,     INT32_MAX,  INT32_MIN, 1 << 30,
                                INT64_MAX, INT64_MIN, 1LL << 60, 1LL << 33,  -8,        0x1001,
                                0x1002,    0x1004,    0x1008,    0x7fffff00, 32768,     32767};

static const uint8_t *input, *input_end;

static uint64_t take(int bytes) {
    uint64_t value = 0;
    for (; bytes > 0; --bytes) value = value << 8 | (input < input_end ? *input++ : 0);
    return value;
}

static unsigned sane_below; /* of 256; higher where there are more fields to get wrong */

/* Mostly the sane value, sometimes an edge, sometimes anything. */
static int64_t field(int64_t sane) {
    unsigned choice = (unsigned)take(1);
    if (choice < sane_below) return sane;
    if (choice < 252) return edges[take(1) % (sizeof edges / sizeof edges[0])];
    return (int64_t)take(8);
}
static int32_t field32(int32_t sane) { return (int32_t)field(sane); }
static void *pointer(void) { return (void *)(intptr_t)field(0x1000); }
static void *maybe(void) { return take(1) < 128 ? NULL : pointer(); }

/* Slots, as specv_rows and others give them. */
static void fill_slots(const void **slot, int32_t *slot_dtype, int32_t *num_slots) {
    *slot = maybe();
    *slot_dtype = field32((int32_t)take(1) & 1);
    *num_slots = field32(*slot ? 1 + (int32_t)take(1) : 0);
}

static void fill_rows(specv_rows *r) {
    r->batch = field32((int32_t)take(1));
    r->max_draft = field32((int32_t)take(1) % 17);
    r->num_active = (const int32_t *)maybe();
    fill_slots(&r->slot, &r->slot_dtype, &r->num_slots);
    if (take(1) < 128) {
        r->draft_len = (const int32_t *)maybe();
        r->num_draft_tokens = field(0);
    } else {
        *(take(1) & 1 ? &r->row_start : &r->row_end) = (const int32_t *)pointer();
        if (take(1) > 252) r->row_end = (const int32_t *)pointer();
        r->num_draft_tokens = field((int64_t)r->batch * (r->max_draft & 15));
    }
}

static void fill_verify(specv_verify_greedy_desc *d) {
    const int64_t csr = is_csr(&d->rows) ? 0 : 1;
    d->canary0 = (uint32_t)field(0), d->chained = field32((int32_t)take(1) & 3);
    d->keep_status = field32((int32_t)take(1) & 1);
    d->token_dtype = field32((int32_t)take(1) & 1);
    d->draft_tokens = pointer(), d->target_tokens = pointer();
    d->accepted_len = (int32_t *)pointer(), d->mismatch = (uint8_t *)maybe();
    d->next_token = maybe(), d->out_tokens = maybe(), d->num_emitted = (int32_t *)maybe();
    d->finished = (uint8_t *)maybe(), d->row_status = (uint32_t *)maybe();
    d->draft_stride_elems = field(csr * (take(1) & 1) * ((int64_t)d->rows.max_draft + 3));
    d->target_stride_elems = field(csr * (take(1) & 1) * ((int64_t)d->rows.max_draft + 1));
    d->out_stride_elems = field((take(1) & 1) * ((int64_t)d->rows.max_draft + 2));
    d->vocab = field(32000);
    for (int i = 0; i < SPECV_MAX_EOS; ++i) d->eos_token[i] = field(i);
    d->num_eos = field32((int32_t)take(1) % 5);
    d->canary1 = (uint32_t)field(0);
}

static void fill_kv(specv_kv_pack *kv, const specv_rows *r) {
    const int tables = take(1) < 128;
    if (tables) {
        kv->src_planes = (const void *const *)pointer(), kv->dst_planes = (void *const *)pointer();
    } else {
        kv->src = pointer(), kv->dst = pointer();
    }
    if (take(1) > 250) kv->dst = pointer();
    if (take(1) > 250) kv->src_planes = NULL;
    kv->offsets = (int32_t *)pointer();
    kv->row_bytes = field(64);
    kv->src_pos_stride_bytes = field((take(1) & 1) * 80);
    kv->src_seq_stride_bytes = field(is_csr(r) ? 0 : (take(1) & 1) * 2048);
    kv->dst_row_stride_bytes = field((take(1) & 1) * 96);
    kv->capacity_rows = field(100);
    kv->num_planes = field32(tables ? 2 : (int32_t)take(1) & 1);
    kv->num_sms = field32(132);
}

static void fill_scores(specv_scores *s, const specv_rows *r, int64_t vocab, int64_t positions) {
    s->data = pointer();
    s->dtype = field32((int32_t)take(1) & 3);
    s->pos_stride_elems = field((take(1) & 1) * ((vocab & 0x3fffff) + 7));
    s->seq_stride_elems =
        field(is_csr(r) ? 0 : (take(1) & 1) * (positions & 31) * ((vocab & 0x3fffff) + 8));
    s->reserved = (uint32_t)field(0);
}

static void fill_filters(specv_filters *f, int64_t vocab) {
    if (take(1) < 128) return;
    f->top_k = (const int32_t *)maybe(), f->top_p = (const float *)maybe();
    f->min_p = (const float *)maybe(), f->order = field32((int32_t)take(1) % 3);
    if (take(1) < 128) return;
    f->mask = (const uint32_t *)pointer();
    if (take(1) < 128) f->mask_row = (const int32_t *)pointer();
    f->num_mask_rows = field32(f->mask_row || take(1) < 128 ? 1 << (take(1) & 15) : 0);
    f->mask_stride_words = field((take(1) & 1) * ((vocab & 0x3fffff) / 32 + 1));
}

static void fill_emitted(specv_emitted *e, void **tokens) {
    if (take(1) < 128) e->logprob = (float *)pointer();
    if (take(1) < 128) return;
    e->rank = (int32_t *)maybe(), e->num_top = (const int32_t *)maybe();
    e->raw = field32((int32_t)take(1) & 1), e->max_top = field32((int32_t)take(1) % 34);
    if (e->max_top || take(1) < 8)
        e->top_id = (int32_t *)maybe(), e->top_logprob = (float *)maybe();
    if (take(1) < 250) *tokens = pointer();
}

static void fill_sampled(specv_verify_sample_desc *d) {
    specv_rows *r = &d->verify.rows;
    fill_rows(r), fill_verify(&d->verify);
    d->verify.target_tokens = take(1) < 250 ? NULL : pointer();
    if (take(1) < 64) d->bonus_token = pointer();
    fill_scores(&d->target, r, d->verify.vocab, (int64_t)r->max_draft + !d->bonus_token);
    fill_scores(&d->draft, r, d->verify.vocab, r->max_draft);
    if (take(1) < 64) d->draft.data = NULL;
    fill_filters(&d->filters, d->verify.vocab);
    if (d->draft.data || take(1) < 4) fill_filters(&d->draft_filters, d->verify.vocab);
    fill_emitted(&d->emitted, &d->verify.out_tokens);
    d->temperature = (const float *)maybe(), d->draft_temperature = (const float *)maybe();
    if (take(1) < 224) d->seed = (const uint64_t *)pointer();
    d->position = (const int32_t *)pointer();
    d->accept_uniform = (const float *)maybe(), d->sample_uniform = (const float *)maybe();
    d->logprob = (float *)maybe(), d->lse = (float *)maybe();
    d->rule = field32((int32_t)take(1) % 10), d->stream = field32((int32_t)take(1) & 1);
    if ((r->max_draft == 0 && !d->bonus_token) || take(1) < 4) d->max_prob = (float *)maybe();
    if (d->rule >= SPECV_RULE_SCORE && d->rule != SPECV_RULE_BOUNDED && take(1) < 250)
        d->draft.data = NULL;
    if (d->rule == SPECV_RULE_TYPICAL || d->rule == SPECV_RULE_TYPICAL_DRAW || take(1) < 2)
        d->lossy.epsilon = (const float *)maybe(), d->lossy.alpha = (const float *)maybe();
    if (d->rule == SPECV_RULE_THRESHOLD || take(1) < 2)
        d->lossy.threshold_single = (const float *)maybe(),
        d->lossy.threshold_acc = (const float *)maybe();
    if (d->rule == SPECV_RULE_RELAXED || take(1) < 2)
        d->lossy.top_n = (const int32_t *)maybe(), d->lossy.delta = (const float *)maybe();
    if (d->rule == SPECV_RULE_BOUNDED || take(1) < 2) d->lossy.ratio = (const float *)maybe();
    if (d->rule == SPECV_RULE_SCORE || take(1) < 4) d->target_logprob = (float *)maybe();
    d->num_sms = field32(132), d->step_row = field32((int32_t)take(1));
    d->reserved = (uint32_t)field(0), d->canary1 = (uint32_t)field(0);
    d->scratch = pointer();
    d->scratch_bytes = field(INT64_MAX);
    if (take(1) < 64) d->scratch_bytes = (int64_t)scratch_of(d) - (int64_t)(take(1) & 1);
}

static void fill_sample(specv_sample_desc *d) {
    specv_rows dense = {0};
    d->batch = field32((int32_t)take(1)), d->vocab = field(32000);
    fill_scores(&d->scores, &dense, d->vocab, 1);
    fill_filters(&d->filters, d->vocab);
    d->token_dtype = field32((int32_t)take(1) & 1), d->token = pointer();
    fill_emitted(&d->emitted, &d->token);
    d->token_stride_elems = field((int64_t)take(1) & 3), d->num_active = (const int32_t *)maybe();
    d->temperature = (const float *)maybe(), d->uniform = (const float *)maybe();
    if (take(1) < 224) d->seed = (const uint64_t *)pointer();
    d->chained = field32((int32_t)take(1) & 3);
    fill_slots(&d->slot, &d->slot_dtype, &d->num_slots);
    d->position = (const int32_t *)pointer(), d->row_status = (uint32_t *)maybe();
    d->logprob = (float *)maybe(), d->lse = (float *)maybe(), d->max_prob = (float *)maybe();
    d->method = field32((int32_t)take(1) & 1), d->stream = field32((int32_t)take(1) % 3);
    d->num_sms = field32(132), d->step_row = field32((int32_t)take(1));
    d->canary0 = (uint32_t)field(0), d->canary1 = (uint32_t)field(0);
    d->keep_status = field32((int32_t)take(1) & 1);
    d->scratch = pointer();
    d->scratch_bytes = field(INT64_MAX);
    if (take(1) < 64) {
        const specv_verify_sample_desc v = specv_sample_as_verify(d);
        d->scratch_bytes = (int64_t)scratch_of(&v) - (int64_t)(take(1) & 1);
    }
}

static void fill_verify_shard(specv_verify_shard_desc *d) {
    specv_verify_sample_desc *s = &d->sample;
    const unsigned shape = (unsigned)take(1);
    int64_t tiles;
    fill_sampled(s);
    for (int i = 0; i < 2 && take(1) < 250; ++i) { /* often what ranks can do */
        specv_filters *f = i ? &s->draft_filters : &s->filters;
        if (shape & 4) f->top_k = NULL, f->top_p = f->min_p = NULL;
        if (cuts(f) && take(1) < 200) f->top_k = (const int32_t *)pointer();
        if (f->mask && f->mask_stride_words) f->mask_stride_words = s->verify.vocab / 32 + 1;
    }
    if (s->target.dtype == SPECV_PROBS_F32) s->target.dtype = field32((int32_t)take(1) % 3);
    if (s->draft.dtype == SPECV_PROBS_F32) s->draft.dtype = field32((int32_t)take(1) % 3);
    if (take(1) < 250) {
        s->emitted.rank = NULL, s->emitted.top_id = NULL, s->emitted.top_logprob = NULL;
        s->emitted.raw = 0, s->emitted.max_top = 0, s->emitted.num_top = NULL;
    }
    s->scratch_bytes = field(INT64_MAX / 2);
    tiles = s->verify.vocab > 0 && s->verify.vocab <= 1 << 22 ? s->verify.vocab / 1024 : 0;
    d->first_id = field32((int32_t)(1024 * (tiles ? (int64_t)take(2) % (tiles + 1) : 0)));
    d->num_ids =
        field32((int32_t)(shape & 1 ? (int64_t)((uint64_t)s->verify.vocab - (uint64_t)d->first_id)
                          : shape & 2 && tiles > (int64_t)d->first_id / 1024 ? 1024
                                                                             : 0));
    d->num_shards = field32(1 + (int32_t)take(1));
    if (!(shape & 4)) d->max_top_k = field32(1 + (int32_t)take(1)), d->all_top_k = shape >> 3 & 1;
    if (take(1) < 8) d->all_top_k = field32((int32_t)take(1));
    d->step = field32((int32_t)(take(1) % (uint64_t)(exchanges_of(d) + 1)));
    d->record_stride_bytes = field(take(1) & 1 ? (int64_t)record_of(d, (wide)d->step - 1) : 0);
    if (record_of(d, d->step) > 0 || take(1) < 4) d->record = pointer();
    if (record_of(d, (wide)d->step - 1) > 0 || take(1) < 4) d->gathered = pointer();
    d->epoch = (const int64_t *)maybe();
    d->canary0 = (uint32_t)field(0), d->canary1 = (uint32_t)field(0);
    if (take(1) < 64 && s->verify.vocab > 0 && d->num_ids >= 0)
        s->scratch_bytes = (int64_t)(scratch_of_shard(d) - (wide)(take(1) & 1));
}

static void fill_verify_tree(specv_verify_tree_desc *d) {
    specv_trees *t = &d->trees;
    specv_rows rows = {0};
    d->rule = field32((int32_t)take(1) % 7);
    t->batch = field32((int32_t)take(1)), t->max_nodes = field32(1 + (int32_t)take(2) % 1024);
    t->num_active = (const int32_t *)maybe(), t->num_nodes = (const int32_t *)maybe();
    t->parent = (const int32_t *)pointer(), t->token = pointer();
    t->token_dtype = field32((int32_t)take(1) & 1);
    t->parent_stride_elems = field((take(1) & 1) * 1030), t->reserved = (uint32_t)field(0);
    t->token_stride_elems = field((take(1) & 1) * 1025);
    fill_slots(&t->slot, &t->slot_dtype, &t->num_slots);
    d->vocab = field(32000);
    if (d->rule == 0 && take(1) < 128) {
        d->target_tokens = pointer();
    } else {
        fill_scores(&d->target, &rows, d->vocab, 8);
        if (d->rule >= 3 && take(1) < 192) fill_scores(&d->draft, &rows, d->vocab, 8);
        if (take(1) < 192) d->target.seq_stride_elems = d->draft.seq_stride_elems = 0;
        d->logprob = (float *)maybe();
        if (take(1) < 128) fill_filters(&d->filters, d->vocab);
        if (d->draft.data && take(1) < 128) fill_filters(&d->draft_filters, d->vocab);
    }
    d->temperature = (const float *)maybe(), d->draft_temperature = (const float *)maybe();
    if (d->rule || take(1) < 8) d->seed = (const uint64_t *)pointer();
    d->position = (const int32_t *)pointer();
    d->accepted_len = (int32_t *)pointer(), d->mismatch = (uint8_t *)maybe();
    d->next_token = maybe(), d->out_tokens = maybe(), d->num_emitted = (int32_t *)maybe();
    d->finished = (uint8_t *)maybe(), d->row_status = (uint32_t *)maybe();
    d->path = (int32_t *)maybe(), d->accept_index = (int32_t *)maybe(), d->predicts = maybe();
    if (!d->target_tokens || take(1) < 4) fill_emitted(&d->emitted, &d->out_tokens);
    if (has_node_rows(d) && take(1) < 250) d->path = (int32_t *)pointer();
    if (d->emitted.logprob && take(1) < 250) d->out_tokens = pointer();
    d->scratch = pointer(), d->scratch_bytes = field(INT64_MAX);
    if (take(1) < 64) d->scratch_bytes = (int64_t)(scratch_of_tree(d) - (wide)(take(1) & 1));
    d->target_stride_elems = field((take(1) & 1) * 1024);
    d->out_stride_elems = field((take(1) & 1) * 1024);
    for (int i = 0; i < SPECV_MAX_EOS; ++i) d->eos_token[i] = field(i);
    d->num_eos = field32((int32_t)take(1) % 5);
    d->max_depth = field32(t->max_nodes > 1 ? (int32_t)take(1) % t->max_nodes : 0);
    d->keep_status = field32((int32_t)take(1) & 1), d->chained = field32((int32_t)take(1) & 3);
    d->step_row = field32((int32_t)take(1)), d->stream = field32((int32_t)take(1) & 1);
    d->canary0 = (uint32_t)field(0), d->canary1 = (uint32_t)field(0);
    d->num_sms = field32((int32_t)take(1));
}

#include "fuzz_state.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static specv_verify_greedy_desc verify;
    static specv_pack_kv_desc pack;
    static specv_verify_pack_kv_desc both;
    static specv_accept_stats_desc stats;
    static specv_verify_sample_desc sampled;
    static specv_sample_desc sample;
    int kind, raw, status;
    if (size < 2) return 0;
    memset(broken, 0, sizeof broken);
    kind = data[0] % NUM_KINDS, raw = data[0] >= 224;
    sane_below = kind == 3 || kind == 4 ? 246 : kind > 5 ? 250 : 224;
    input = data + 1, input_end = data + size;
    size = raw ? size - 1 : 0;
#define RAW(d) memcpy(&(d), input, size < sizeof(d) ? size : sizeof(d))
#define TRY(op)                                                                                    \
    {                                                                                              \
        static specv_##op##_desc d;                                                                \
        memset(&d, 0, sizeof d);                                                                   \
        RAW(d);                                                                                    \
        if (!raw) fill_##op(&d);                                                                   \
        rules_of_##op(&d);                                                                         \
        compare(status = specv_##op##_validate(&d));                                               \
        if (status != SPECV_OK) break;                                                             \
        specv_##op##_resolve(&d);                                                                  \
        reach_of_##op(&d);                                                                         \
        again(0, specv_##op##_validate(&d));                                                       \
        break;                                                                                     \
    }
    switch (kind) {
    case 0:
        memset(&verify, 0, sizeof verify);
        RAW(verify);
        if (!raw) fill_rows(&verify.rows), fill_verify(&verify);
        rules_of_verify(&verify);
        compare(status = specv_verify_greedy_validate(&verify));
        if (status == SPECV_OK) {
            specv_verify_greedy_resolve(&verify);
            reach_of_verify(&verify);
            again(is_csr(&verify.rows), specv_verify_greedy_validate(&verify));
        }
        break;
    case 1:
        memset(&pack, 0, sizeof pack);
        RAW(pack);
        if (!raw) {
            fill_rows(&pack.rows), fill_kv(&pack.kv, &pack.rows);
            pack.accepted_len = (const int32_t *)pointer(), pack.row_status = (uint32_t *)maybe();
            pack.keep_status = field32((int32_t)take(1) & 1);
            pack.chained = field32((int32_t)take(1) & 3), pack.canary1 = (uint32_t)field(0);
        }
        rules_of_pack(&pack);
        compare(status = specv_pack_kv_validate(&pack));
        if (status == SPECV_OK) {
            specv_pack_kv_resolve(&pack);
            reach_of_kv(&pack.kv, &pack.rows);
            again(0, specv_pack_kv_validate(&pack));
        }
        break;
    case 2:
        memset(&both, 0, sizeof both);
        RAW(both);
        if (!raw) {
            fill_rows(&both.verify.rows), fill_verify(&both.verify);
            fill_kv(&both.kv, &both.verify.rows);
            both.reserved = (uint32_t)field(0), both.canary1 = (uint32_t)field(0);
        }
        rules_of_verify_pack(&both);
        compare(status = specv_verify_pack_kv_validate(&both));
        if (status == SPECV_OK) {
            int launches = specv_verify_pack_kv_launches(&both);
            if (launches != 1 && launches != 2) fail("launches", launches);
            specv_verify_pack_kv_resolve(&both);
            reach_of_verify(&both.verify), reach_of_kv(&both.kv, &both.verify.rows);
            again(is_csr(&both.verify.rows), specv_verify_pack_kv_validate(&both));
        }
        break;
    case 3:
        memset(&sampled, 0, sizeof sampled);
        RAW(sampled);
        if (!raw) fill_sampled(&sampled);
        rules_of_sampled(&sampled);
        compare(status = specv_verify_sample_validate(&sampled));
        if (status == SPECV_OK) {
            const specv_rows *r = &sampled.verify.rows;
            reach_of_scratch(&sampled, specv_verify_sample_scratch_bytes(r->batch, r->max_draft,
                                                                         sampled.verify.vocab));
            specv_verify_sample_resolve(&sampled);
            reach_of_verify(&sampled.verify);
            reach_of_scores(&sampled.target, r, (wide)r->max_draft + !sampled.bonus_token);
            reach_of_scores(&sampled.draft, r, r->max_draft);
            reach_of_masks(&sampled.filters, r, (wide)r->max_draft + !sampled.bonus_token);
            reach_of_masks(&sampled.draft_filters, r, r->max_draft);
            again(is_csr(r), specv_verify_sample_validate(&sampled));
        }
        break;
    case 4:
        memset(&sample, 0, sizeof sample);
        RAW(sample);
        if (!raw) fill_sample(&sample);
        rules_of_sample(&sample);
        compare(status = specv_sample_validate(&sample));
        if (status == SPECV_OK) { /* as the launcher goes on */
            specv_verify_sample_desc as_verify = specv_sample_as_verify(&sample);
            reach_of_scratch(&as_verify, specv_sample_scratch_bytes(sample.batch, sample.vocab));
            specv_verify_sample_resolve(&as_verify);
            reach_of_scores(&as_verify.target, &as_verify.verify.rows, 1);
        }
        break;
    case 5:
        memset(&stats, 0, sizeof stats);
        RAW(stats);
        if (!raw) {
            fill_rows(&stats.rows);
            stats.accumulate = field32((int32_t)take(1) & 1);
            stats.accepted_len = (const int32_t *)pointer();
            stats.mismatch = (const uint8_t *)maybe(), stats.num_emitted = (const int32_t *)maybe();
            stats.histogram = (int64_t *)maybe(), stats.totals = (int64_t *)pointer();
            stats.draft_tokens = maybe(), stats.token_dtype = field32((int32_t)take(1) & 1);
            stats.draft_stride_elems =
                field(is_csr(&stats.rows) ? 0 : (take(1) & 1) * (stats.rows.max_draft + 3ll));
            stats.canary1 = (uint32_t)field(0), stats.reserved = (uint32_t)field(0);
            stats.chained = field32((int32_t)take(1) & 3);
        }
        rules_of_stats(&stats);
        compare(status = specv_accept_stats_validate(&stats));
        if (status == SPECV_OK) {
            const int csr = is_csr(&stats.rows);
            specv_accept_stats_resolve(&stats);
            if (!fits((wide)stats.rows.batch * stats.draft_stride_elems * 8))
                fail("reach of drafts", status);
            again(csr, specv_accept_stats_validate(&stats));
        }
        break;
    case 6: TRY(append_kv);
    case 7: TRY(page_resize);
    case 8: TRY(page_fork);
    case 9: TRY(realign);
    case 10: TRY(shift_kv);
    case 11: TRY(gap_commit);
    case 12: TRY(compact);
    case 13: TRY(group);
    case 14: TRY(draft_budget);
    case 15: TRY(particle_weights);
    case 16: TRY(resample_plan);
    case 17: TRY(reshuffle);
    case 18: {
        static specv_verify_shard_desc d;
        memset(&d, 0, sizeof d);
        RAW(d);
        if (!raw) fill_verify_shard(&d);
        rules_of_verify_shard(&d);
        compare(status = specv_verify_shard_validate(&d));
        if (status == SPECV_OK && d.sample.verify.rows.batch > 0) {
            const specv_rows *r = &d.sample.verify.rows;
            if (specv_shard_record_bytes(&d) != record_of(&d, d.step)) fail("record", 0);
            if (specv_shard_scratch_bytes(r->batch, r->max_draft, d.num_ids, d.num_shards) <
                specv_i_shard_layout(&d).bytes)
                fail("another size of scratch memory", 0);
        }
        break;
    }
    case 19: {
        static specv_verify_tree_desc d;
        memset(&d, 0, sizeof d);
        RAW(d);
        if (!raw) fill_verify_tree(&d);
        rules_of_verify_tree(&d);
        compare(status = specv_verify_tree_validate(&d));
        if (status == SPECV_OK) {
            specv_verify_tree_resolve(&d);
            if (!fits((wide)d.trees.batch * d.trees.parent_stride_elems * 4) ||
                !fits((wide)d.trees.batch * d.trees.token_stride_elems * 8) ||
                !fits((wide)d.trees.batch * d.target_stride_elems * 8) ||
                !fits((wide)d.trees.batch * d.out_stride_elems * 8) ||
                !fits((wide)d.trees.batch * d.target.seq_stride_elems * 4) ||
                !fits((wide)d.trees.batch * d.draft.seq_stride_elems * 4))
                fail("reach of trees", status);
            again(0, specv_verify_tree_validate(&d));
        }
        break;
    }
    case 20: TRY(commit_path);
    case 21: TRY(tree_layout);
    default: {
        const int64_t a = field((int64_t)take(2)), b = field((int64_t)take(1)), c = field(32000);
        const int64_t bytes = specv_verify_sample_scratch_bytes(a, b, c);
        rules_of_numbers(a, b, c);
        compare(status = bytes < 0 ? (int)bytes : SPECV_OK);
        memset(broken, 0, sizeof broken);
        rules_of_numbers(a, 0, c);
        compare(specv_sample_scratch_bytes(a, c) < 0 ? (int)specv_sample_scratch_bytes(a, c)
                                                     : SPECV_OK);
        memset(broken, 0, sizeof broken);
        const int64_t ids = (int64_t)take(3) & 0x3fffff, shards = field(1 + (int64_t)take(1));
        rules_of_numbers(a, b, ids ? ids : 1);
        RULE(shards >= 1 && shards <= 256, SHARD);
        const int64_t of_shards = specv_shard_scratch_bytes(a, b, ids, shards);
        compare(of_shards < 0 ? (int)of_shards : SPECV_OK);
    }
    }
    return status == SPECV_OK ? 1 : 0;
}

#if defined(PLAIN_RANDOM)
#include <time.h>

int main(int argc, char **argv) {
    const double seconds = argc > 1 ? atof(argv[1]) : 5;
    const clock_t start = clock();
    uint64_t state = 0x9e3779b97f4a7c15u, tried = 0, accepted = 0;
    uint8_t bytes[600];
    while ((double)(clock() - start) < seconds * CLOCKS_PER_SEC) {
        for (int n = 0; n < 1000; ++n) {
            for (size_t i = 0; i < sizeof bytes; ++i) {
                state ^= state << 13, state ^= state >> 7, state ^= state << 17;
                bytes[i] = (uint8_t)(state >> 32);
            }
            accepted += (uint64_t)LLVMFuzzerTestOneInput(bytes, sizeof bytes);
            tried += 1;
        }
    }
    printf("%llu descriptors, %llu of them valid\n", (unsigned long long)tried,
           (unsigned long long)accepted);
    return accepted > tried / 20 && accepted < tried ? 0 : 1; /* else it did not try enough */
}
#endif
