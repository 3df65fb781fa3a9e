/* batch.h - a batch of token rows whose answers are known, because the rows were built around them.

   For every row an ending is drawn first (all accepted, rejected at position k, cut by an EOS),
   then the tokens that lead there, then noise everywhere that must not matter: behind the stop,
   beyond the row's length, in the gaps of strides, in inert rows. Nothing here walks along a row to
   find out where it ends, so a mistake in the rule cannot hide in the oracle. */

#ifndef BATCH_H_INCLUDED
#define BATCH_H_INCLUDED

#include "t.h"

typedef enum ending {
    END_BONUS,        /* all accepted, then an ordinary token */
    END_BONUS_EOS,    /* all accepted, then an EOS */
    END_BONUS_BAD,    /* all accepted, then something outside the vocabulary */
    END_ACCEPTED_EOS, /* the last accepted draft is an EOS */
    END_REJECT,       /* a token of the vocabulary, but the wrong one */
    END_REJECT_EOS,   /* the same, and the correction is an EOS */
    END_REJECT_BAD,   /* the same, and the correction is outside the vocabulary */
    END_PLACEHOLDER,  /* draft -1 */
    END_BAD_DRAFT,    /* the draft is outside the vocabulary */
    END_BOTH_BAD,     /* draft and target are equal, and outside the vocabulary */
    END_BAD_LENGTH,   /* draft_len, row_start or row_end is out of range */
    NUM_ENDINGS,
    ORDINARY = 1 << END_BONUS | 1 << END_REJECT,
    ALL_ENDINGS = (1 << NUM_ENDINGS) - 1
} ending;

/* Outputs of A1 that may be null, as bits. */
enum {
    OUT_MISMATCH = 1,
    OUT_NEXT = 2,
    OUT_TOKENS = 4,
    OUT_EMITTED = 8,
    OUT_FINISHED = 16,
    OUT_STATUS = 32,
    OUT_ALL = 63,
    OUT_NONE = 64 /* no optional output at all */
};

typedef enum layout { DENSE, DENSE_LEN, CSR, NUM_LAYOUTS } layout;

/* How k is drawn among 0..n. */
typedef enum spread { SPREAD_MIXED, SPREAD_NONE, SPREAD_ALL, SPREAD_GIVEN } spread;

typedef struct shape {
    int batch, max_draft;
    specv_dtype dtype;
    layout layout;
    unsigned endings; /* 1 << ending, or 0: ORDINARY */
    unsigned outputs; /* OUT_*, or 0: all of them */
    spread spread;
    const int *given; /* SPREAD_GIVEN: accepted length of every row */
    int64_t vocab;    /* 0: unknown */
    int num_eos;
    int has_num_active, num_active;
    int draft_gap, target_gap, out_gap; /* stride minus row, in elements */
    int spare_drafts;                   /* CSR: drafts that the buffers hold and no row owns */
    int keep_status;
} shape;

/* What the step must say of a row. */
typedef struct truth {
    int64_t first; /* element of the row's first draft; -1: nothing of it may be read */
    int64_t next_token;
    int n_draft; /* 0 when the length is bad or the row is inert */
    int live, accepted, mismatch, emitted, finished;
    uint32_t status;
} truth;

typedef struct batch {
    shape s;
    int64_t eos[SPECV_MAX_EOS];
    int64_t draft_stride, target_stride, out_stride, num_draft_tokens;
    truth *rows; /* [batch] */
    t_buf num_active, draft_len, row_start, draft, target;
    int by_end; /* CSR by row_end: row_start without its first element, which is noise */
    t_buf accepted, mismatch, next, tokens, emitted, finished, status;
} batch;

/* ------------------------------------------------------------------------------------ tokens */

T_FN void put_token(const t_buf *b, specv_dtype dtype, int64_t index, int64_t token) {
    if (dtype == SPECV_I64)
        ((int64_t *)(void *)b->host)[index] = token;
    else
        ((int32_t *)(void *)b->host)[index] = (int32_t)token;
}

T_FN int64_t get_token(const t_buf *b, specv_dtype dtype, int64_t index) {
    if (dtype == SPECV_I64) return ((const int64_t *)(const void *)b->host)[index];
    return ((const int32_t *)(const void *)b->host)[index];
}

T_FN int is_eos(const batch *b, int64_t token) {
    for (int i = 0; i < b->s.num_eos; ++i)
        if (b->eos[i] == token) return 1;
    return 0;
}

/* A token of the vocabulary. Unknown vocabularies reach to the end of the type, so that 64-bit
   tokens which differ only above bit 31 occur. */
T_FN int64_t any_token(const batch *b) {
    int64_t bound = b->s.dtype == SPECV_I64 ? (int64_t)1 << 40 : (int64_t)INT32_MAX + 1;
    return t_below(b->s.vocab ? b->s.vocab : bound);
}

T_FN int64_t ordinary_token(const batch *b) {
    int64_t token;
    do token = any_token(b);
    while (is_eos(b, token));
    return token;
}

/* A token of the vocabulary that is not `token`, as close to it as can be. */
T_FN int64_t other_token(const batch *b, int64_t token) {
    int64_t other = b->s.dtype == SPECV_I64 && t_chance(50) ? token ^ (int64_t)1 << 32 : token ^ 1;
    if (b->s.vocab == 1) return -1; /* there is no other; a row of it can only be all accepted */
    while (other == token || other < 0 || (b->s.vocab && other >= b->s.vocab)) other = any_token(b);
    return other;
}

/* Outside the vocabulary, and not the placeholder. */
T_FN int64_t bad_token(const batch *b) {
    int64_t choices[8];
    int n = 0;
    int64_t vocab = b->s.vocab;
    choices[n++] = -2;
    choices[n++] = -1000;
    choices[n++] = b->s.dtype == SPECV_I64 ? INT64_MIN : INT32_MIN;
    if (b->s.dtype == SPECV_I64) choices[n++] = -((int64_t)1 << 32) + 1; /* low half: 1 */
    if (vocab && vocab <= INT32_MAX) {
        choices[n++] = vocab;
        choices[n++] = INT32_MAX;
        if (b->s.dtype == SPECV_I64) choices[n++] = ((int64_t)1 << 32) + 1;
        if (b->s.dtype == SPECV_I64) choices[n++] = INT64_MAX;
    }
    return choices[t_below(n)];
}

/* Position j of a row: draft (unless it has none there) and target. */
T_FN void put_pair(const batch *b, int row, int j, int has_draft, int64_t draft, int64_t target) {
    const truth *r = &b->rows[row];
    int64_t target_first = b->s.layout == CSR ? r->first + row : row * b->target_stride;
    if (has_draft) put_token(&b->draft, b->s.dtype, r->first + j, draft);
    put_token(&b->target, b->s.dtype, target_first + j, target);
}

/* ----------------------------------------------------------------------------------- lengths */

T_FN void draw_dense_lengths(batch *b) {
    const int max_draft = b->s.max_draft;
    const int32_t bad[] = {-1, INT32_MIN, max_draft + 1, INT32_MAX, max_draft + 1024};
    int32_t *len = (int32_t *)(void *)b->draft_len.host;
    for (int row = 0; row < b->s.batch; ++row) {
        truth *r = &b->rows[row];
        r->first = row * b->draft_stride;
        r->n_draft = max_draft;
        if (!len) continue;
        if (b->s.spread == SPREAD_GIVEN)
            r->n_draft = (int)t_between(b->s.given[row], max_draft);
        else if (t_chance(70))
            r->n_draft = t_chance(10) ? 0 : (int)t_between(0, max_draft);
        len[row] = r->n_draft;
        if (!r->live) len[row] = t_chance(50) ? T_PICK(bad) : len[row];
        if (r->live && b->s.endings >> END_BAD_LENGTH & 1 && t_chance(20)) {
            len[row] = T_PICK(bad);
            r->n_draft = 0;
            r->status = SPECV_ROW_BAD_LENGTH;
        }
    }
}

/* A start that is wrong for the row that ends there and for the row that begins there. */
T_FN int32_t bad_start(const batch *b, const int32_t *start, int row) {
    const int64_t too_long = (int64_t)b->s.max_draft + 1;
    int64_t choices[8];
    int n = 0;
    if (row > 0) choices[n++] = b->num_draft_tokens + t_between(1, 100000);
    if (row > 0) choices[n++] = b->num_draft_tokens + 1; /* not too long, only too far */
    if (row > 0) choices[n++] = INT32_MAX;
    if (row < b->s.batch) choices[n++] = -t_between(1, 100000);
    if (row < b->s.batch) choices[n++] = -1;
    if (row < b->s.batch) choices[n++] = INT32_MIN;
    if (row > 0 && row < b->s.batch) {
        int64_t before = start[row - 1], after = start[row + 1];
        if (before + too_long > after) choices[n++] = before + too_long; /* then backwards */
        if (after - too_long >= 0 && after - too_long < before) choices[n++] = after - too_long;
    }
    return (int32_t)choices[t_below(n)];
}

T_FN void draw_bad_starts(batch *b, int num_live) {
    int32_t *start = (int32_t *)(void *)b->row_start.host;
    if (b->s.batch == 0 || !(b->s.endings >> END_BAD_LENGTH & 1)) return;
    for (int row = 0; row <= num_live; ++row) {
        /* A start serves two rows, and a row has two starts: never two bad ones in turn. */
        if (!t_chance(10) || (row > 0 && b->rows[row - 1].status)) continue;
        start[row] = bad_start(b, start, row);
        for (int side = row - (row > 0); side <= row && side < num_live; ++side) {
            b->rows[side].first = -1, b->rows[side].n_draft = 0;
            b->rows[side].status = SPECV_ROW_BAD_LENGTH;
        }
    }
}

T_FN void draw_csr_lengths(batch *b) {
    const int64_t most = (int64_t)b->s.batch * b->s.max_draft;
    int32_t *start = (int32_t *)(void *)b->row_start.host;
    int num_live = 0;
    start[0] = 0;
    for (int row = 0; row < b->s.batch; ++row) {
        truth *r = &b->rows[row];
        int n = t_chance(30) ? b->s.max_draft : (int)t_between(0, b->s.max_draft);
        if (t_chance(10)) n = 0;
        if (b->s.spread == SPREAD_GIVEN) n = (int)t_between(b->s.given[row], b->s.max_draft);
        r->first = start[row];
        r->n_draft = r->live ? n : 0;
        num_live += r->live;
        start[row + 1] = start[row] + r->n_draft;
    }
    b->num_draft_tokens = start[b->s.batch] + b->s.spare_drafts;
    if (b->num_draft_tokens > most) b->num_draft_tokens = most;
    for (int row = num_live + 1; row <= b->s.batch; ++row)
        if (t_chance(50)) start[row] = (int32_t)t_random();
    draw_bad_starts(b, num_live);
    b->by_end = start[0] == 0 && t_chance(50);
    if (b->by_end) start[0] = (int32_t)t_random();
}

/* ---------------------------------------------------------------------------------- the rows */

T_FN int draw_accepted(const batch *b, int row) {
    static const int edges[] = {0, 1, 31, 32, 33, 63, 64, 65, 95, 96, 127, 128, 129, 255, 256};
    int n = b->rows[row].n_draft, k = T_PICK(edges);
    if (b->s.spread == SPREAD_GIVEN) return b->s.given[row];
    if (b->s.spread == SPREAD_NONE) return 0;
    if (b->s.spread == SPREAD_ALL || t_chance(20)) return n;
    return k <= n && t_chance(50) ? k : (int)t_between(0, n);
}

/* One of the endings that the shape wants and that k of n accepted drafts can have. */
T_FN ending draw_ending(const batch *b, int n, int k) {
    const unsigned bonus = 1u << END_BONUS | 1u << END_BONUS_EOS | 1u << END_BONUS_BAD;
    const unsigned eos = 1u << END_BONUS_EOS | 1u << END_ACCEPTED_EOS | 1u << END_REJECT_EOS;
    unsigned wanted = b->s.endings ? b->s.endings : (unsigned)ORDINARY;
    wanted &= k < n ? ~bonus : bonus | 1u << END_ACCEPTED_EOS;
    if (b->s.num_eos == 0) wanted &= ~eos;
    if (k == 0) wanted &= ~(1u << END_ACCEPTED_EOS);
    wanted &= ~(1u << END_BAD_LENGTH);
    if (!wanted) return k < n ? END_REJECT : END_BONUS;
    for (;;) {
        int e = (int)t_below(NUM_ENDINGS);
        if (wanted >> e & 1) return (ending)e;
    }
}

/* Pairs that nobody may look at: most of them would be accepted. */
T_FN void put_noise(const batch *b, int row) {
    int n = b->s.layout == CSR ? b->rows[row].n_draft : b->s.max_draft;
    for (int j = 0; j <= n; ++j) {
        int64_t target = t_chance(10) ? bad_token(b) : any_token(b);
        if (b->s.num_eos && t_chance(10)) target = b->eos[0];
        put_pair(b, row, j, j < n, t_chance(80) ? target : any_token(b), target);
    }
}

T_FN void put_row(batch *b, int row) {
    truth *r = &b->rows[row];
    const int n = r->n_draft, k = draw_accepted(b, row);
    const ending end = draw_ending(b, n, k);
    int64_t correction = ordinary_token(b), draft;
    for (int j = 0; j < k; ++j) {
        int64_t token = ordinary_token(b);
        if (j == k - 1 && end == END_ACCEPTED_EOS) token = b->eos[t_below(b->s.num_eos)];
        put_pair(b, row, j, 1, token, token);
    }
    r->accepted = k;
    r->mismatch = end >= END_REJECT;
    r->finished = end == END_BONUS_EOS || end == END_REJECT_EOS || end == END_ACCEPTED_EOS;
    if (end == END_ACCEPTED_EOS) {
        r->emitted = k;
        return;
    }
    if (end == END_BONUS_EOS || end == END_REJECT_EOS) correction = b->eos[t_below(b->s.num_eos)];
    if (end == END_BONUS_BAD || end == END_REJECT_BAD || end == END_BOTH_BAD) {
        correction = t_chance(30) ? -1 : bad_token(b);
        r->status |= SPECV_ROW_BAD_TARGET;
    } else {
        r->next_token = correction;
    }
    draft = end == END_PLACEHOLDER  ? -1
            : end == END_BAD_DRAFT  ? bad_token(b)
            : end == END_BOTH_BAD   ? correction
            : end == END_REJECT_BAD ? any_token(b)
                                    : other_token(b, correction);
    if (end == END_BAD_DRAFT || (end == END_BOTH_BAD && draft != -1))
        r->status |= SPECV_ROW_BAD_DRAFT;
    r->emitted = k + (r->next_token >= 0);
    put_pair(b, row, k, k < n, draft, correction);
}

/* ------------------------------------------------------------------------ making, describing */

/* Strides and rows without tokens. */
T_FN void batch_start(batch *b, const shape *s) {
    memset(b, 0, sizeof *b);
    b->s = *s;
    b->draft_stride = s->max_draft + s->draft_gap;
    b->target_stride = s->max_draft + 1 + s->target_gap;
    b->out_stride = s->max_draft + 1 + s->out_gap;
    b->rows = (truth *)calloc((size_t)s->batch + 1, sizeof(truth));
    if (!b->rows) t_die(__FILE__, __LINE__, "batch_start", "no memory");
    for (int row = 0; row < s->batch; ++row) {
        b->rows[row].live = !s->has_num_active || row < s->num_active;
        b->rows[row].next_token = -1;
    }
    if (s->has_num_active) {
        b->num_active = t_in(4, 0);
        memcpy(b->num_active.host, &s->num_active, 4);
    }
    if (s->layout == CSR) b->row_start = t_in(4 * ((int64_t)s->batch + 1), 0);
    if (s->layout == DENSE_LEN) b->draft_len = t_in(4 * (int64_t)s->batch, 0);
}

/* Token buffers, full of tokens that mean nothing. The last row needs no gap behind it. */
T_FN void batch_tokens(batch *b) {
    const shape *s = &b->s;
    const int64_t token_bytes = s->dtype == SPECV_I64 ? 8 : 4;
    int64_t num_drafts = b->num_draft_tokens, num_targets = num_drafts + s->batch;
    if (s->layout != CSR && s->batch > 0) {
        num_drafts = (s->batch - 1) * b->draft_stride + s->max_draft;
        num_targets = (s->batch - 1) * b->target_stride + s->max_draft + 1;
    }
    b->draft = t_in(num_drafts * token_bytes, 0);
    b->target = t_in(num_targets * token_bytes, 0);
    for (int64_t i = 0; i < num_drafts; ++i) put_token(&b->draft, s->dtype, i, any_token(b));
    for (int64_t i = 0; i < num_targets; ++i) put_token(&b->target, s->dtype, i, any_token(b));
}

T_FN void batch_outputs(batch *b) {
    const unsigned outputs = b->s.outputs ? b->s.outputs : (unsigned)OUT_ALL;
    const int64_t token_bytes = b->s.dtype == SPECV_I64 ? 8 : 4, num_rows = b->s.batch;
    const int64_t columns = (int64_t)b->s.max_draft + 1;
    const int64_t out_tokens = num_rows ? (num_rows - 1) * b->out_stride + columns : 0;
    b->accepted = t_out(4 * num_rows, 0);
    if (outputs & OUT_MISMATCH) b->mismatch = t_out(num_rows, t_below(4));
    if (outputs & OUT_NEXT) b->next = t_out(token_bytes * num_rows, 0);
    if (outputs & OUT_TOKENS) b->tokens = t_out(token_bytes * out_tokens, 0);
    if (outputs & OUT_EMITTED) b->emitted = t_out(4 * num_rows, 0);
    if (outputs & OUT_FINISHED) b->finished = t_out(num_rows, t_below(4));
    if (outputs & OUT_STATUS) b->status = t_out(4 * num_rows, 0);
    t_fill_status(&b->status, b->s.keep_status);
}

/* Draws a batch; its buffers live until the case ends, its truth until batch_free. */
T_FN void batch_make(batch *b, const shape *s) {
    batch_start(b, s);
    for (int i = 0; i < s->num_eos; ++i) b->eos[i] = any_token(b);
    if (s->layout == CSR)
        draw_csr_lengths(b);
    else
        draw_dense_lengths(b);
    batch_tokens(b);
    for (int row = 0; row < s->batch; ++row) {
        if (b->rows[row].first < 0) continue;
        put_noise(b, row);
        if (b->rows[row].live) put_row(b, row);
    }
    batch_outputs(b);
}

T_FN void batch_free(batch *b) {
    free(b->rows);
    b->rows = NULL;
}

T_FN specv_rows batch_rows(const batch *b, int side) {
    specv_rows r = SPECV_ZERO;
    r.num_active = (const int32_t *)t_at(&b->num_active, side);
    r.draft_len = (const int32_t *)t_at(&b->draft_len, side);
    r.row_start = (const int32_t *)t_at(&b->row_start, side);
    if (b->by_end) r.row_end = r.row_start + 1, r.row_start = NULL;
    r.num_draft_tokens = b->num_draft_tokens;
    r.batch = b->s.batch;
    r.max_draft = b->s.max_draft;
    return r;
}

/* Of an operation without values of its own for a request: slots may be given, and nobody looks. */
T_FN specv_rows batch_rows_of_no_slots(const batch *b, int side) {
    specv_rows r = batch_rows(b, side);
    if (b->s.batch % 3 == 0) r.slot = (const int32_t *)16, r.num_slots = 1;
    return r;
}

T_FN specv_verify_greedy_desc batch_describe(const batch *b, int side) {
    specv_verify_greedy_desc d = SPECV_ZERO;
    d.token_dtype = (int32_t)b->s.dtype;
    d.rows = batch_rows_of_no_slots(b, side);
    d.draft_tokens = t_at(&b->draft, side);
    d.target_tokens = t_at(&b->target, side);
    d.accepted_len = (int32_t *)t_at(&b->accepted, side);
    d.mismatch = (uint8_t *)t_at(&b->mismatch, side);
    d.next_token = t_at(&b->next, side);
    d.out_tokens = t_at(&b->tokens, side);
    d.num_emitted = (int32_t *)t_at(&b->emitted, side);
    d.finished = (uint8_t *)t_at(&b->finished, side);
    d.row_status = (uint32_t *)t_at(&b->status, side);
    /* A stride without a gap is left at 0 half of the time: both must mean the same. */
    if (b->s.layout != CSR && (b->s.draft_gap || b->s.batch % 2))
        d.draft_stride_elems = b->draft_stride;
    if (b->s.layout != CSR && (b->s.target_gap || b->s.batch % 2))
        d.target_stride_elems = b->target_stride;
    if (b->s.out_gap || b->s.batch % 2) d.out_stride_elems = b->out_stride;
    d.vocab = b->s.vocab;
    d.num_eos = b->s.num_eos, d.keep_status = b->s.keep_status;
    memcpy(d.eos_token, b->eos, sizeof d.eos_token);
    return d;
}

/* ---------------------------------------------------------------------------------- checking */

/* out_tokens of one row: accepted drafts, next token, -1, and the gap untouched. */
T_FN void check_out_tokens(const batch *b, int row) {
    const truth *r = &b->rows[row];
    const int columns = b->s.max_draft + 1;
    const int64_t base = row * b->out_stride, token_bytes = b->s.dtype == SPECV_I64 ? 8 : 4;
    int wrong = -1;
    for (int j = columns - 1; j >= 0; --j) {
        int64_t expected = j < r->accepted    ? get_token(&b->draft, b->s.dtype, r->first + j)
                           : j == r->accepted ? r->next_token
                                              : -1;
        if (get_token(&b->tokens, b->s.dtype, base + j) != expected) wrong = j;
    }
    CHECK_EQ(wrong, -1, row); /* the first wrong column */
    if (row + 1 == b->s.batch) return;
    for (int64_t at = (base + columns) * token_bytes; at < (base + b->out_stride) * token_bytes;
         ++at)
        if ((uint8_t)b->tokens.host[at] != T_POISON) {
            CHECK_EQ((uint8_t)b->tokens.host[at], T_POISON, row); /* the gap */
            break;
        }
}

/* What the reference wrote on the host is the truth; extra: bits that packing adds to the status,
   by row, or null. */
T_FN void batch_check(const batch *b, const uint32_t *extra) {
    for (int row = 0; row < b->s.batch; ++row) {
        const truth *r = &b->rows[row];
        uint32_t status = r->status | (extra ? extra[row] : 0);
        status |= t_old_status(b->s.keep_status, row);
        CHECK_EQ(word_at(&b->accepted, row), r->accepted, row);
        if (b->mismatch.host) CHECK_EQ((uint8_t)b->mismatch.host[row], r->mismatch, row);
        if (b->next.host) CHECK_EQ(get_token(&b->next, b->s.dtype, row), r->next_token, row);
        if (b->emitted.host) CHECK_EQ(word_at(&b->emitted, row), r->emitted, row);
        if (b->finished.host) CHECK_EQ((uint8_t)b->finished.host[row], r->finished, row);
        if (b->status.host) CHECK_EQ((uint32_t)word_at(&b->status, row), status, row);
        if (b->tokens.host) check_out_tokens(b, row);
    }
}

#if T_DEVICE
/* For a second launch: outputs are poison again, a status that is kept is what it was. */
T_FN void batch_poison_device(const batch *b) {
    t_poison_device();
    for (int64_t row = 0; b->s.keep_status && row < (int64_t)b->status.bytes / 4; ++row) {
        const uint32_t old = t_old_status(1, row);
        T_CUDA(cudaMemcpy(b->status.device + 4 * row, &old, 4, cudaMemcpyHostToDevice));
    }
}
#endif

/* The shape in one line, for the description of a case. */
T_FN void batch_note(const shape *s) {
    static const char *const layouts[] = {"dense", "dense with lengths", "CSR"};
    t_note(" batch %d, max_draft %d, %s, %s, vocab %lld", s->batch, s->max_draft,
           s->dtype == SPECV_I64 ? "int64" : "int32", layouts[s->layout], (long long)s->vocab);
    if (s->num_eos) t_note(", %d eos", s->num_eos);
    if (s->has_num_active) t_note(", num_active %d", s->num_active);
    if (s->draft_gap || s->target_gap || s->out_gap)
        t_note(", gaps %d %d %d", s->draft_gap, s->target_gap, s->out_gap);
}

/* A1 of one shape: reference against truth, then device against reference. */
T_FN void batch_run(const shape *s) {
    batch b;
    specv_verify_greedy_desc d;
    batch_note(s);
    batch_make(&b, s);
    t_upload();
    d = batch_describe(&b, T_HOST_SIDE);
    CHECK_EQ(specv_ref_verify_greedy(&d), SPECV_OK, -1);
    batch_check(&b, NULL);
    t_check_host();
#if T_DEVICE
    d = batch_describe(&b, T_DEVICE_SIDE);
    CHECK_EQ(specv_verify_greedy(&d, 0), SPECV_OK, -1);
    t_check_device();
#endif
    batch_free(&b);
}

#endif /* BATCH_H_INCLUDED */
