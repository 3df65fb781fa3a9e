/* kept.h - what the filters of A10 keep of a position, found by sorting, for the tests of A10 and
   A11; and copies of all buffers, as what is found is put in the place of the scores. */

#ifndef KEPT_H_INCLUDED
#define KEPT_H_INCLUDED

#include "scores.h"

/* ---------------------------------------------------------------------------------- snapshots */

/* The bytes of all buffers on the host. */
typedef struct snapshot {
    char *of[T_MAX_BUFFERS];
} snapshot;

static void take_snapshot(snapshot *s) {
    for (int i = 0; i < t_num_buffers; ++i) {
        s->of[i] = (char *)malloc(t_buffers[i].total + 1);
        if (!s->of[i]) t_die(__FILE__, __LINE__, "malloc", "no memory");
        memcpy(s->of[i], t_buffers[i].host_base, t_buffers[i].total);
    }
}

static void drop_snapshot(snapshot *s, int restore) {
    for (int i = 0; i < t_num_buffers; ++i) {
        if (restore) memcpy(t_buffers[i].host_base, s->of[i], t_buffers[i].total);
        free(s->of[i]);
    }
}

/* ----------------------------------------------------------------------------- what is kept */

typedef struct ranked {
    float score;
    int32_t id;
    uint64_t units;
} ranked;

static int by_rank(const void *a, const void *b) {
    const ranked *x = (const ranked *)a, *y = (const ranked *)b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

/* Is sum at least part * whole? part is a float of [0, 1]; all is exact. */
static int reaches(uint64_t sum, float part, uint64_t whole) {
    int exponent;
    const double mantissa = frexp((double)part, &exponent); /* part = mantissa * 2^exponent */
    const unsigned __int128 product = (unsigned __int128)whole * (uint64_t)ldexp(mantissa, 24);
    const int shift = 24 - exponent; /* part * whole = product / 2^shift */
    if (part <= 0) return 1;
    if (shift > 100) return sum > 0;
    return (unsigned __int128)sum >=
           (product >> shift) + ((product & (((unsigned __int128)1 << shift) - 1)) != 0);
}

static int64_t mask_row_of(const stage *g, const stage_filters *f, int row, int of_draft) {
    const int beyond = positions_beyond(g, of_draft);
    if (f->mask_row.host) return word_at(&f->mask_row, row);
    if (g->c.s.layout == CSR) return g->b.rows[row].first + beyond * row;
    return row * ((int64_t)g->c.s.max_draft + beyond);
}

static int has_masks(const stage *g, const stage_filters *f, int row, int positions) {
    const int64_t first = f->mask_row.host ? word_at(&f->mask_row, row) : -1;
    (void)g;
    return first == -1 || (first >= 0 && first + positions <= f->num_rows);
}

static float part_at(const t_buf *b, int slot, float none, int *bad) {
    float p = b->host ? ((const float *)(const void *)b->host)[slot] : none;
    if (p >= 0 && p <= 1) return p;
    *bad = 1;
    return none;
}

/* Leaves a position with what its filters keep: all else is -inf from now on. Returns how many. */
static int64_t leave_kept(stage *g, int row, int j, int of_draft) {
    const stage_filters *f = of_draft ? &g->draft_filters : &g->filters;
    const t_buf *scores = of_draft ? &g->draft : &g->target;
    const int dtype = of_draft ? g->c.draft_dtype : g->c.target_dtype;
    const float none = dtype == SPECV_PROBS_F32 ? 0 : infinity(-1);
    const int64_t vocab = g->c.s.vocab, first = scores_at(g, row, j, of_draft);
    const int64_t mask_row = mask_row_of(g, f, row, of_draft);
    const int slot = slot_of(g, row);
    const t_buf *heats =
        of_draft && g->draft_temperature.host ? &g->draft_temperature : &g->temperature;
    const float heat = ((const float *)(const void *)heats->host)[slot];
    int bad = 0;
    const int64_t top_k = f->top_k.host ? word_at(&f->top_k, slot) : 0;
    const float top_p = part_at(&f->top_p, slot, 1, &bad),
                min_p = part_at(&f->min_p, slot, 0, &bad);
    ranked *ids = (ranked *)malloc(sizeof(ranked) * (size_t)vocab);
    int64_t count = 0, kept, of_k, of_min = 0;
    if (!ids) t_die(__FILE__, __LINE__, "malloc", "no memory");
    for (int64_t x = 0; x < vocab; ++x) {
        const uint32_t word =
            f->mask.host && mask_row >= 0
                ? (uint32_t)word_at(&f->mask, (mask_row)*f->stride + j * f->stride + x / 32)
                : ~0u;
        float score = get_score(scores, dtype, first + x);
        if (dtype == SPECV_PROBS_F32 && !(score >= 1.17549435e-38f && score <= 2))
            score = infinity(-1);
        if (!(word >> x % 32 & 1)) {
            put_score(scores, dtype, first + x, none);
        } else if (score > infinity(-1)) {
            ids[count].score = score, ids[count].id = (int32_t)x;
            ++count;
        }
    }
    qsort(ids, (size_t)count, sizeof *ids, by_rank);
    kept = count;
    const specv_scale scale =
        dtype == SPECV_PROBS_F32 ? specv_i_probs_scale() : specv_softmax_scale(heat);
    const int is_q = of_draft && dtype == SPECV_PROBS_F32; /* as it is, at any temperature */
    if (count && g->c.rule != SPECV_RULE_GREEDY &&
        (is_q || (heat >= 1.220703125e-4f && heat <= 8192)) &&
        specv_in_range(ids[0].score, &scale)) {
        const int32_t n = specv_softmax_weight(ids[0].score, &scale).n;
        uint64_t whole = 0, sum = 0, *of_tile;
        int32_t *tile_n;
        const int64_t tiles = (vocab + SPECV_TILE_IDS - 1) / SPECV_TILE_IDS;
        of_tile = (uint64_t *)calloc((size_t)tiles, sizeof *of_tile);
        tile_n = (int32_t *)calloc((size_t)tiles, sizeof *tile_n);
        if (!of_tile || !tile_n) t_die(__FILE__, __LINE__, "calloc", "no memory");
        for (int64_t i = 0; i < count; ++i) {
            const float score = ids[i].score > scale.floor ? ids[i].score : scale.floor;
            const specv_weight w = specv_softmax_weight(score, &scale);
            const int64_t tile = ids[i].id / SPECV_TILE_IDS;
            ids[i].units = specv_weight_units(&w, n);
            if (!of_tile[tile]) tile_n[tile] = w.n; /* the first one is the tile's largest */
            of_tile[tile] += specv_weight_units(&w, tile_n[tile]);
        }
        for (int64_t tile = 0; tile < tiles; ++tile)
            if (of_tile[tile] && n - tile_n[tile] < 64)
                whole += of_tile[tile] >> (n - tile_n[tile]);
        free(of_tile), free(tile_n);
        of_k = top_k > 0 && top_k < vocab && top_k <= count ? top_k : 0;
        for (int64_t i = 0; i < count && min_p > 0; ++i)
            if (ids[i].units > 0 && reaches(ids[i].units, min_p, ids[0].units)) of_min = i + 1;
        if (of_k) kept = of_k;
        if (of_min && of_min < kept) kept = of_min;
        if (top_p < 1) {
            const int has_k = top_k > 0 && top_k < vocab; /* of fewer than k: of all of them */
            const int64_t of =
                g->c.filter_order == SPECV_TOP_K_TOP_P_MIN_P && has_k ? (of_k ? of_k : count)
                : g->c.filter_order == SPECV_MIN_P_TOP_K_TOP_P && (has_k || of_min) ? kept
                                                                                    : 0;
            int64_t i = 0;
            for (int64_t x = 0; x < of; ++x) sum += ids[x].units;
            if (of) whole = sum;
            sum = 0;
            while (i < count) {
                sum += ids[i++].units;
                if (sum > 0 && reaches(sum, top_p, whole)) break;
            }
            if (i < kept) kept = i;
        }
        for (int64_t i = kept; i < count; ++i) put_score(scores, dtype, first + ids[i].id, none);
    }
    free(ids);
    return kept;
}

/* All positions of all rows. Returns whether every row's masks are where it says. */
static int leave_all_kept(stage *g) {
    int all = 1;
    for (int row = 0; row < g->c.s.batch; ++row) {
        const truth *r = &g->b.rows[row];
        if (!r->live || r->first < 0) continue;
        const int positions = r->n_draft + positions_beyond(g, 0);
        if (!has_masks(g, &g->filters, row, positions) ||
            (g->draft.host && !has_masks(g, &g->draft_filters, row, r->n_draft))) {
            all = 0;
            continue;
        }
        for (int j = 0; j < positions; ++j) {
            leave_kept(g, row, j, 0);
            if (j < r->n_draft && g->draft.host) leave_kept(g, row, j, 1);
        }
    }
    return all;
}

#endif /* KEPT_H_INCLUDED */
