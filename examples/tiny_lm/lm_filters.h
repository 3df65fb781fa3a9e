/* SPDX-License-Identifier: MIT-0
 *
 * lm_filters.h - what both backends tell the kit about filters (A10). All requests have the same
 * ones; an engine that serves many would keep these arrays in slots, and a mask for each position.
 */
#ifndef LM_FILTERS_H
#define LM_FILTERS_H

#include "lm.h"
#include "specverify.cuh"

#include <string.h>

enum { LM_MASK_WORDS = LM_VOCAB / 32 };

/* In the backend's memory. A step's positions have mask rows of their own, one behind the other: a
 * grammar's would differ. Here all are equal, and every request begins with the first. */
typedef struct lm_filter_arrays {
    uint32_t mask[LM_MAX_GAMMA + 1][LM_MASK_WORDS];
    int32_t mask_row[LM_MAX_BATCH]; /* 0 */
    int32_t top_k[LM_MAX_BATCH];
    float top_p[LM_MAX_BATCH], min_p[LM_MAX_BATCH];
    float relax[2][LM_MAX_BATCH]; /* of lossy rules */
    int32_t top_n[LM_MAX_BATCH];
} lm_filter_arrays;

static inline void lm_fill_filters(lm_filter_arrays *a, const lm_sampling *sampling) {
    const lm_filters *f = &sampling->filters;
    memset(a, 0, sizeof *a);
    for (int32_t i = 0; i < LM_MAX_BATCH; i++) {
        for (int k = 0; k < 2; k++) a->relax[k][i] = sampling->relax[k];
        a->top_n[i] = (int32_t)sampling->relax[0];
    }
    for (int32_t j = 0; j <= LM_MAX_GAMMA; j++) memcpy(a->mask[j], f->mask, sizeof f->mask);
    for (int32_t i = 0; i < LM_MAX_BATCH; i++)
        a->top_k[i] = f->top_k, a->top_p[i] = f->top_p, a->min_p[i] = f->min_p;
}

/* Filters of one model's logits; `a` is in the backend's memory.
 *
 * Drafts are drawn with the target's filters, so that few of them are hopeless, and judged with the
 * same, so that q is what they were drawn from. But rule SCORE judges nothing: a draft that the
 * target filters has weight 0, which is right, and one that the draft model had filtered could not
 * be drawn, which nothing would make up for. There drafts have the mask alone, as it is the
 * same for both. Drafts of trees are drawn without, so that q has no filters there. */
static inline specv_filters lm_filters_of(const lm_filter_arrays *a, const lm_sampling *sampling,
                                          int which) {
    const lm_filters *f = &sampling->filters;
    specv_filters d = SPECV_ZERO;
    int32_t given = f->given;
    if (which == LM_DRAFT && sampling->rule == SPECV_RULE_SCORE) given &= LM_MASK;
    if (given & LM_MASK) {
        d.mask = a->mask[0];
        d.mask_row = a->mask_row;
        d.num_mask_rows = LM_MAX_GAMMA + 1;
    }
    if (given & LM_TOP_K) d.top_k = a->top_k;
    if (given & LM_TOP_P) d.top_p = a->top_p;
    if (given & LM_MIN_P) d.min_p = a->min_p;
    d.order = f->order;
    return d;
}

/* A6; `a` is in the backend's memory. */
static inline specv_lossy lm_lossy_of(const lm_filter_arrays *a, const lm_sampling *sampling) {
    specv_lossy d = SPECV_ZERO;
    if (!sampling->relaxes) return d;
    switch (sampling->rule) {
    case SPECV_RULE_TYPICAL:
    case SPECV_RULE_TYPICAL_DRAW: d.epsilon = a->relax[0], d.alpha = a->relax[1]; break;
    case SPECV_RULE_THRESHOLD:
        d.threshold_single = a->relax[0], d.threshold_acc = a->relax[1];
        break;
    case SPECV_RULE_RELAXED: d.top_n = a->top_n, d.delta = a->relax[1]; break;
    case SPECV_RULE_BOUNDED: d.ratio = a->relax[0]; break;
    default: break;
    }
    return d;
}

#endif
