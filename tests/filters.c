/* filters.c - the reference's filters as a library, for filters.py, which says what a row is and
   compares what comes of it: which ids are kept, and what the operations make of them. */

#define SPECVERIFY_REF_STATIC
#define SPECVERIFY_REF_IMPLEMENTATION
#include "specverify_ref.h"

/* A row of scores, as often as there are positions, and what is asked of it. */
typedef struct filters_row {
    const float *scores;  /* [positions][vocab] */
    const uint32_t *mask; /* [num_mask_rows][ceil(vocab / 32)], or null */
    int64_t vocab;
    int32_t mask_row;      /* -2: no such array */
    int32_t num_mask_rows; /* of mask; 0 if that says mask_row alone */
    int32_t given;         /* 1: top_k, 2: top_p, 4: min_p; else null */
    int32_t top_k, order;
    float top_p, min_p, temperature;
} filters_row;

static specv_filters filters_of(const filters_row *r) {
    specv_filters f = SPECV_ZERO;
    f.mask = r->mask;
    if (r->mask && r->mask_row > -2) f.mask_row = &r->mask_row;
    f.num_mask_rows = r->num_mask_rows;
    f.top_k = r->given & 1 ? &r->top_k : NULL;
    f.top_p = r->given & 2 ? &r->top_p : NULL;
    f.min_p = r->given & 4 ? &r->min_p : NULL;
    f.order = r->order;
    return f;
}

/* The reference wants scratch memory as the device does, and leaves it alone. */
static char scratch[32];

static void *no_scratch(void) { return scratch + (16 - (size_t)scratch % 16); }

/* Which ids are kept, and ln p of each: all of one position, which no output of the operations is.
   of_draft: by the filters of the draft's scores, which are others. */
int filters_open(const filters_row *r, int of_draft, uint8_t *kept, float *logprob,
                 uint32_t *status) {
    specv_verify_sample_desc d = SPECV_ZERO;
    specv_ref_i_scores row;
    d.verify.vocab = r->vocab;
    d.verify.rows.batch = 1;
    d.verify.rows.max_draft = 1;
    if (of_draft)
        d.draft.data = r->scores, d.draft_filters = filters_of(r);
    else
        d.target.data = r->scores, d.filters = filters_of(r);
    row = specv_ref_i_open(&d, 0, 0, of_draft, r->temperature);
    for (int64_t x = 0; x < r->vocab; ++x) {
        const float score = specv_ref_i_score(&row, x);
        kept[x] = score > specv_bits_float(0xff800000u);
        logprob[x] = specv_i_log_p(&row.row, &row.scale, 0, score, (int32_t)x);
    }
    *status = row.row.status;
    return SPECV_OK;
}

/* A8. numbers: logprob, lse, max_prob. uniform below 0: GUMBEL, from the seed. */
int filters_sample(const filters_row *r, float uniform, uint64_t seed, int32_t *token,
                   float *numbers, uint32_t *status) {
    specv_sample_desc d = SPECV_ZERO;
    const int32_t position = 7;
    d.scores.data = r->scores;
    d.vocab = r->vocab;
    d.batch = 1;
    d.temperature = &r->temperature;
    d.filters = filters_of(r);
    if (uniform < 0)
        d.method = SPECV_SAMPLE_GUMBEL, d.seed = &seed, d.position = &position;
    else
        d.uniform = &uniform;
    d.token = token;
    d.logprob = numbers, d.lse = numbers + 1, d.max_prob = numbers + 2;
    d.row_status = status;
    d.scratch = no_scratch(), d.scratch_bytes = INT64_MAX;
    return specv_ref_sample(&d);
}

/* Rule SCORE: ln p of num_drafts ids, one a position, each of which has the row's scores. */
int filters_score(const filters_row *r, int32_t num_drafts, const int32_t *drafts, float *logprob,
                  uint32_t *status) {
    specv_verify_sample_desc d = SPECV_ZERO;
    const float uniform = 0.5f;
    int32_t accepted, next;
    int result;
    d.rule = SPECV_RULE_SCORE;
    d.verify.rows.batch = 1;
    d.verify.rows.max_draft = num_drafts;
    d.verify.draft_tokens = drafts;
    d.verify.vocab = r->vocab;
    d.verify.accepted_len = &accepted, d.verify.next_token = &next;
    d.verify.row_status = status;
    d.target.data = r->scores;
    d.temperature = &r->temperature;
    d.filters = filters_of(r);
    d.sample_uniform = &uniform;
    d.target_logprob = logprob;
    d.scratch = no_scratch(), d.scratch_bytes = INT64_MAX;
    result = specv_ref_verify_sample(&d);
    return result != SPECV_OK ? result : accepted == num_drafts ? SPECV_OK : 1;
}
