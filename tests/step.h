/* step.h - the results of one step with known counts, to be given to E. */

#ifndef STEP_H_INCLUDED
#define STEP_H_INCLUDED

#include "batch.h"

/* How a step is given to specv_accept_stats, as bits. */
enum {
    WITH_MISMATCH = 1,
    WITH_EMITTED = 2,
    WITH_HISTOGRAM = 4,
    WITH_TOTALS = 8,
    ACCUMULATE = 16,
    WITH_FAULTS = 32, /* accepted_len and num_emitted out of range in some rows */
    WITH_DRAFTS = 64, /* some of them padded with placeholders */
    NUM_WAYS = 128
};

typedef struct step {
    batch b;
    int ways;
    t_buf accepted, mismatch, emitted, histogram, totals;
    int64_t *want_histogram, want_totals[SPECV_STAT_COUNT];
} step;

T_FN void put_counter(t_buf *b, int64_t index, int64_t value) {
    memcpy(b->host + 8 * index, &value, 8);
}

T_FN int64_t get_counter(const t_buf *b, int64_t index) {
    int64_t value;
    memcpy(&value, b->host + 8 * index, 8);
    return value;
}

/* A row that proposed fewer drafts than it has columns, not fewer than were accepted: there is no
   placeholder among them, then one, then anything. Returns how many. */
T_FN int draw_padding(step *s, int row) {
    const truth *r = &s->b.rows[row];
    const specv_dtype dtype = s->b.s.dtype;
    const int n = t_chance(40) ? r->n_draft : (int)t_between(r->accepted, r->n_draft);
    for (int j = 0; j < r->n_draft; ++j) {
        const int is_one = get_token(&s->b.draft, dtype, r->first + j) == -1;
        if (j < n && is_one) put_token(&s->b.draft, dtype, r->first + j, t_chance(50) ? 7 : -2);
        if (j == n || (j > n && t_chance(50))) put_token(&s->b.draft, dtype, r->first + j, -1);
    }
    return n;
}

/* One row: what the step says of it, and what has to be counted. */
T_FN void draw_step_row(step *s, int row) {
    const truth *r = &s->b.rows[row];
    const int usable = r->live && !(r->status & SPECV_ROW_BAD_LENGTH);
    const int n_draft = s->ways & WITH_DRAFTS && usable ? draw_padding(s, row) : r->n_draft;
    const int32_t too_many[] = {n_draft + 1, -1, INT32_MAX, INT32_MIN};
    int32_t accepted = r->accepted, emitted = r->emitted;
    int64_t *totals = s->want_totals;
    int fault = r->live && (s->ways & WITH_FAULTS) && t_chance(20), bad = r->live && r->status;
    if (fault && (s->ways & WITH_EMITTED) && t_chance(50)) {
        emitted = t_chance(50) ? accepted + 2 : (t_chance(50) ? -1 : INT32_MAX);
        bad = 1;
    } else if (fault) {
        accepted = T_PICK(too_many);
        bad = 1;
    }
    if (!r->live || r->status) /* nothing that may count */
        accepted = (int32_t)t_random(), emitted = (int32_t)t_random();
    memcpy(s->accepted.host + 4 * row, &accepted, 4);
    if (s->mismatch.host) s->mismatch.host[row] = (char)(r->mismatch ? 1 + t_below(255) : 0);
    if (s->emitted.host) memcpy(s->emitted.host + 4 * row, &emitted, 4);
    if (!r->live) return;
    totals[SPECV_STAT_BAD_ROWS] += bad;
    if (bad) return;
    totals[SPECV_STAT_STEPS] = 1;
    totals[SPECV_STAT_ROWS] += 1;
    totals[SPECV_STAT_DRAFTED] += n_draft;
    totals[SPECV_STAT_ACCEPTED] += accepted;
    if (accepted < n_draft)
        totals[SPECV_STAT_REJECTED] += s->ways & WITH_MISMATCH ? r->mismatch : 1;
    totals[SPECV_STAT_EMITTED] += s->ways & WITH_EMITTED ? emitted : accepted + 1;
    s->want_histogram[accepted] += 1;
}

T_FN void step_make(step *s, const shape *sh, int ways) {
    const int64_t num_bins = (int64_t)sh->max_draft + 1;
    memset(s, 0, sizeof *s);
    s->ways = ways;
    batch_make(&s->b, sh);
    s->want_histogram = (int64_t *)calloc((size_t)num_bins, sizeof(int64_t));
    if (!s->want_histogram) t_die(__FILE__, __LINE__, "step_make", "no memory");
    s->accepted = t_in(4 * (int64_t)sh->batch, 0);
    if (ways & WITH_MISMATCH) s->mismatch = t_in(sh->batch, t_below(4));
    if (ways & WITH_EMITTED) s->emitted = t_in(4 * (int64_t)sh->batch, 0);
    for (int row = 0; row < sh->batch; ++row) draw_step_row(s, row);
    if (ways & WITH_HISTOGRAM) s->histogram = t_out(8 * num_bins, 0);
    if (ways & WITH_TOTALS) s->totals = t_out(8 * SPECV_STAT_COUNT, 0);
    if (!(ways & ACCUMULATE)) return;
    for (int64_t i = 0; i < num_bins && s->histogram.host; ++i) {
        int64_t old = t_below((int64_t)1 << 40); /* beyond 32 bits */
        put_counter(&s->histogram, i, old);
        s->want_histogram[i] += old;
    }
    for (int i = 0; i < SPECV_STAT_COUNT && s->totals.host; ++i) {
        int64_t old = t_below((int64_t)1 << 40);
        put_counter(&s->totals, i, old);
        s->want_totals[i] += old;
    }
}

T_FN specv_accept_stats_desc step_describe(const step *s, int side) {
    specv_accept_stats_desc d = SPECV_ZERO;
    d.accumulate = (s->ways & ACCUMULATE) != 0;
    d.rows = batch_rows_of_no_slots(&s->b, side);
    d.accepted_len = (const int32_t *)t_at(&s->accepted, side);
    d.mismatch = (const uint8_t *)t_at(&s->mismatch, side);
    d.num_emitted = (const int32_t *)t_at(&s->emitted, side);
    d.histogram = (int64_t *)t_at(&s->histogram, side);
    d.totals = (int64_t *)t_at(&s->totals, side);
    if (s->ways & WITH_DRAFTS) {
        const specv_verify_greedy_desc v = batch_describe(&s->b, side);
        d.draft_tokens = v.draft_tokens, d.token_dtype = v.token_dtype;
        d.draft_stride_elems = v.draft_stride_elems;
    }
    return d;
}

T_FN void run_step(const shape *sh, int ways) {
    step s;
    specv_accept_stats_desc d;
    if (!(ways & (WITH_HISTOGRAM | WITH_TOTALS))) ways |= WITH_TOTALS;
    t_note(" ways %#x,", (unsigned)ways);
    batch_note(sh);
    step_make(&s, sh, ways);
    t_upload();
    d = step_describe(&s, T_HOST_SIDE);
    CHECK_EQ(specv_ref_accept_stats(&d), SPECV_OK, -1);
    t_check_host();
    for (int64_t i = 0; i <= sh->max_draft && s.histogram.host && sh->batch; ++i)
        CHECK_EQ(get_counter(&s.histogram, i), s.want_histogram[i], i);
    for (int i = 0; i < SPECV_STAT_COUNT && s.totals.host && sh->batch; ++i)
        CHECK_EQ(get_counter(&s.totals, i), s.want_totals[i], i);
#if T_DEVICE
    d = step_describe(&s, T_DEVICE_SIDE);
    CHECK_EQ(specv_accept_stats(&d, 0), SPECV_OK, -1);
    t_check_device();
#endif
    free(s.want_histogram);
    batch_free(&s.b);
}

#endif /* STEP_H_INCLUDED */
