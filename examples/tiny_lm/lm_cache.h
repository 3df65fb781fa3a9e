/* SPDX-License-Identifier: MIT-0
 *
 * lm_cache.h - the caches of tiny_lm: where a column is, who may see it, and the descriptors of the
 * kit's operations that keep them. The C backend hands these to specv_ref_*, the CUDA backend to
 * specv_*; nothing else differs.
 */
#ifndef LM_CACHE_H
#define LM_CACHE_H

#include "lm.h"
#include "lm_math.h"
#include "specverify.cuh"

/* All pointers but `dims` are into the backend's memory. Arrays whose length is not given have an
 * element per slot. */
typedef struct lm_cache {
    lm_layout layout;
    lm_limits limits;
    int32_t table_stride_elems; /* pages of a slot */
    int32_t *table; /* [slots][table_stride_elems] which pages a slot's columns are in */
    int32_t *board; /* starts with the text area, [slots][text_stride] */

    int32_t *cache_len;     /* RAGGED, PAGED: columns whose KV rows are there */
    int32_t *num_row_pages; /* pages that the slot owns */
    int32_t *row_reserve;
    int32_t *page_refs, *free_pages, *num_free; /* [num_pages], [num_pages], scalar: the pool */

    int32_t *pad_len;             /* PADDED, and FIXED while EXSPEC aligns: columns of padding */
    specv_shift *shifts;          /* what the last alignment moved */
    int32_t *shift_end;           /* but from this column on there is nothing to move */
    int32_t *mask, *position_ids; /* GAP: [slots][text_stride] */
    int32_t *text_len;            /* GAP: tokens of the text */
    int32_t *width;               /* PADDED, GAP: scalar */

    int32_t *num_active;               /* scalar: sequences in the step */
    int32_t *draft_len, *accepted_len; /* [batch] of the step */
    int32_t *num_emitted;              /* [batch] */
    int32_t *out_tokens;               /* [batch][gamma + 1] */
    int32_t *node_position;            /* [batch][nodes] of trees; or null, as the next */
    uint32_t *node_mask;               /* [batch][nodes][words] which nodes a node sees */
    float *max_prob;                   /* [batch] of a draft pass: the most likely token's; or null,
                                        * as the next two: there is no budget */
    float *confidence, *survival;      /* [batch][gamma] of the step */
    int32_t *prompt_len;               /* PADDED, GAP: of those who enter; 0 for the others */
    uint8_t *finished;
    int32_t *active, *new_num_active; /* [slots], scalar: who goes on (C3), who is picked (C4) */
    int32_t *order;                   /* C4: by length */
    uint32_t *row_status, *ticket;    /* ticket: scalar, zeroed once */
} lm_cache;

/* One model's part: its KV rows, [page][plane][page_size][d_model]. */
typedef struct lm_kv {
    float *data;
    void **planes;      /* [num_planes] where each plane starts in page 0 */
    int32_t *table;     /* particles: a block table of the model's own; else null */
    int32_t num_planes; /* 2 * layer is K, 2 * layer + 1 is V */
    int32_t d_model;
} lm_kv;

/* ---- memory ---------------------------------------------------------------------------------- */

/* A backend's memory, all bits zero; the backend frees it and remembers a failure. */
typedef void *lm_zeroed(void *backend, size_t count, size_t size);

/* What is the backend's own business in every backend. Left to it: what the host reads or writes
 * in each step, from num_active to num_emitted, shift_end, width and row_status. */
static inline void lm_allocate_cache(lm_cache *c, const lm_limits *limits, lm_zeroed *zeroed,
                                     void *backend) {
    const size_t slots = (size_t)limits->slots, pages = (size_t)limits->num_pages;
    const size_t columns = slots * (size_t)limits->text_stride;
    const struct {
        int32_t **to;
        size_t count;
    } ints[] = {{&c->board, (size_t)limits->board_size},
                {&c->table, (size_t)limits->table_size},
                {&c->cache_len, slots},
                {&c->num_row_pages, slots},
                {&c->row_reserve, slots},
                {&c->page_refs, pages},
                {&c->free_pages, pages},
                {&c->num_free, 1},
                {&c->pad_len, slots},
                {&c->mask, columns},
                {&c->position_ids, columns},
                {&c->text_len, slots},
                {&c->out_tokens, slots * ((size_t)limits->gamma + 1)},
                {&c->prompt_len, slots},
                {&c->active, slots},
                {&c->new_num_active, 1},
                {&c->order, slots}};
    c->limits = *limits;
    for (size_t i = 0; i < sizeof ints / sizeof ints[0]; i++)
        *ints[i].to = (int32_t *)zeroed(backend, ints[i].count, sizeof(int32_t));
    if (limits->budget) {
        const size_t batch = (size_t)limits->batch, drafts = batch * (size_t)limits->gamma;
        c->max_prob = (float *)zeroed(backend, batch, sizeof(float));
        c->confidence = (float *)zeroed(backend, drafts, sizeof(float));
        c->survival = (float *)zeroed(backend, drafts, sizeof(float));
    }
    c->shifts = (specv_shift *)zeroed(backend, slots, sizeof(specv_shift));
    c->finished = (uint8_t *)zeroed(backend, slots, 1);
    c->ticket = (uint32_t *)zeroed(backend, 1, sizeof(uint32_t));
}

/* ---- where a column is, who may see it ------------------------------------------------------ */

/* The KV row of a column. */
LM_FN float *lm_kv_row(lm_cache c, lm_kv kv, int32_t plane, int32_t slot, int32_t column) {
    const int32_t size = c.layout.page_size;
    const int32_t *const table = kv.table ? kv.table : c.table;
    const int64_t page = table[(int64_t)slot * c.table_stride_elems + column / size];
    return kv.data + ((page * kv.num_planes + plane) * size + column % size) * kv.d_model;
}

/* Which position of the text is in the column; below 0: none, nobody may see it. Columns from
 * `width` on are those of the pass that asks: not judged yet, so not in the mask. */
LM_FN int32_t lm_position(lm_cache c, int32_t slot, int32_t column) {
    const int64_t at = (int64_t)slot * c.limits.text_stride + column;
    if (c.layout.kind != LM_GAP) return column - c.pad_len[slot];
    return column < *c.width && !c.mask[at] ? -1 : c.position_ids[at];
}

LM_FN int32_t lm_node_words(lm_limits limits) { return (limits.nodes + 31) / 32; }

/* The same for a row, which may be a node of a tree: of nodes it sees its ancestors and itself. */
LM_FN int32_t lm_seen_position(lm_cache c, const lm_row *row, int32_t column) {
    const int64_t tree = (int64_t)row->seq * c.limits.nodes;
    const uint32_t *seen;
    int32_t other;
    if (row->node < 0 || column < row->tree_from) return lm_position(c, row->slot, column);
    other = column - row->tree_from;
    seen = c.node_mask + (tree + row->node) * lm_node_words(c.limits);
    return seen[other / 32] >> other % 32 & 1 ? c.node_position[tree + other] : -1;
}

/* ---- descriptors ---------------------------------------------------------------------------- */

static inline int lm_is_paged(const lm_cache *c) {
    return c->layout.kind == LM_RAGGED || c->layout.kind == LM_PAGED;
}

static inline int lm_is_aligned(const lm_cache *c) {
    return c->layout.kind == LM_PADDED || c->layout.kind == LM_GAP;
}

static inline int64_t lm_page_bytes(const lm_cache *c, const lm_kv *kv) {
    return (int64_t)kv->num_planes * c->layout.page_size * kv->d_model * (int64_t)sizeof(float);
}

/* A model's cache; without kv: the pages alone. */
static inline specv_kv_cache lm_kv_cache(const lm_cache *c, const lm_kv *kv) {
    specv_kv_cache d = SPECV_ZERO;
    d.max_positions = c->layout.max_columns;
    if (kv) {
        d.planes = kv->planes;
        d.num_planes = kv->num_planes;
        d.head_bytes = (int64_t)kv->d_model * (int64_t)sizeof(float);
    }
    if (lm_is_paged(c)) {
        d.block_table = c->table;
        d.table_stride_elems = c->table_stride_elems;
        d.page_size = c->layout.page_size;
        d.num_pages = c->layout.num_pages;
        if (kv) d.page_stride_bytes = lm_page_bytes(c, kv);
    } else if (kv) {
        d.seq_stride_bytes = lm_page_bytes(c, kv);
    }
    return d;
}

static inline specv_columns lm_columns(const lm_cache *c) {
    specv_columns d = SPECV_ZERO;
    d.tokens = c->board;
    d.width = c->width;
    if (c->layout.kind == LM_GAP) d.mask = c->mask, d.position_ids = c->position_ids;
    d.stride_elems = c->limits.text_stride;
    d.max_columns = c->layout.max_columns;
    return d;
}

/* What every rule says of a step's rows. */
static inline specv_verify_greedy_desc lm_verify(const lm_cache *c) {
    specv_verify_greedy_desc d = SPECV_ZERO;
    d.rows.num_active = c->num_active;
    d.rows.draft_len = c->draft_len;
    d.rows.batch = c->limits.batch;
    d.rows.max_draft = c->limits.gamma;
    d.draft_tokens = c->board + c->limits.draft_at;
    d.accepted_len = c->accepted_len;
    d.num_emitted = c->num_emitted;
    d.out_tokens = c->out_tokens;
    return d;
}

/* C5. draft_len becomes what the budget leaves of it. */
static inline specv_draft_budget_desc lm_spend(const lm_cache *c) {
    specv_draft_budget_desc d = SPECV_ZERO;
    d.rows = lm_verify(c).rows;
    d.confidence = c->confidence;
    d.survival = c->survival;
    d.new_draft_len = c->draft_len;
    d.max_budget = c->limits.budget;
    return d;
}

/* B5. `finished`: give back all pages of those; else room for `reserve` more columns. */
static inline specv_page_resize_desc lm_resize(const lm_cache *c, const uint8_t *finished,
                                               const int32_t *row_reserve, int32_t reserve) {
    specv_page_resize_desc d = SPECV_ZERO;
    d.num_active = c->num_active;
    d.pool.page_refs = c->page_refs;
    d.pool.free_pages = c->free_pages;
    d.pool.num_free = c->num_free;
    d.num_row_pages = c->num_row_pages;
    d.cache_len = c->cache_len;
    d.finished = finished;
    d.row_reserve = row_reserve;
    d.reserve = reserve;
    d.row_status = c->row_status;
    d.kv = lm_kv_cache(c, NULL);
    d.batch = c->limits.slots;
    return d;
}

/* B3. The pending token's row and those of accepted drafts, from the scratch: [plane][batch]
 * [1 + gamma][d_model]. */
static inline specv_append_kv_desc lm_append(const lm_cache *c, const lm_kv *kv,
                                             void *const *scratch_planes) {
    specv_append_kv_desc d = SPECV_ZERO;
    d.keep_status = 1; /* those of lm_resize */
    d.rows = lm_verify(c).rows;
    d.accepted_len = c->accepted_len;
    d.cache_len = c->cache_len;
    d.page_refs = c->page_refs;
    d.row_status = c->row_status;
    d.ticket = c->ticket;
    d.src.planes = (const void *const *)scratch_planes;
    d.kv = lm_kv_cache(c, kv);
    d.num_pending = 1;
    return d;
}

/* C1. What was emitted goes behind each text, all are aligned again. Without kv: only
 * c->shifts tell what that means for a cache. */
static inline specv_realign_desc lm_realign(const lm_cache *c, const lm_kv *kv) {
    specv_realign_desc d = SPECV_ZERO;
    d.num_active = c->num_active;
    d.out_tokens = c->out_tokens;
    d.num_emitted = c->num_emitted;
    d.pad_len = c->pad_len;
    d.shifts = c->shifts;
    d.keep_status = c->limits.nodes > 0; /* those of trees and their paths */
    d.row_status = c->row_status;
    d.ticket = c->ticket;
    d.columns = lm_columns(c);
    if (kv) d.kv = lm_kv_cache(c, kv);
    d.batch = c->limits.slots;
    d.max_draft = c->limits.gamma;
    return d;
}

/* C1 again: a sequence that enters has no text yet (pad_len = width), and gains its prompt. */
static inline specv_realign_desc lm_realign_prompts(const lm_cache *c) {
    specv_realign_desc d = lm_realign(c, NULL);
    d.out_tokens = c->board + c->limits.prompt_at;
    d.num_emitted = c->prompt_len;
    d.max_draft = c->limits.max_seq - 1;
    return d;
}

/* C1. What lm_realign did to one cache, for the other; or what c->shifts were set to. */
static inline specv_shift_kv_desc lm_shift(const lm_cache *c, const lm_kv *kv, const int32_t *end) {
    specv_shift_kv_desc d = SPECV_ZERO;
    d.keep_status = 1;
    d.num_active = c->num_active;
    d.shifts = c->shifts;
    d.end = end;
    d.row_status = c->row_status;
    d.kv = lm_kv_cache(c, kv);
    d.batch = c->limits.slots;
    return d;
}

/* C2. */
static inline specv_gap_commit_desc lm_gap_commit(const lm_cache *c) {
    specv_gap_commit_desc d = SPECV_ZERO;
    d.num_active = c->num_active;
    d.accepted_len = c->accepted_len;
    d.out_tokens = c->out_tokens;
    d.num_emitted = c->num_emitted;
    d.text_len = c->text_len;
    d.row_status = c->row_status;
    d.ticket = c->ticket;
    d.columns = lm_columns(c);
    d.batch = c->limits.slots;
    d.max_draft = c->limits.gamma;
    return d;
}

static inline void lm_carry(specv_compact_desc *d, void *data, int64_t elem_bytes) {
    d->carry[d->num_carry].data = data;
    d->carry[d->num_carry++].elem_bytes = elem_bytes;
}

/* C3. Slots close up. With a block table that moves tables, not KV rows; alignment is by rows of
 * the cache, so there the KV rows move as well. */
static inline specv_compact_desc lm_compact(const lm_cache *c, const lm_kv *target,
                                            const lm_kv *draft) {
    const int64_t word = (int64_t)sizeof(int32_t), text = c->limits.text_stride * word;
    specv_compact_desc d = SPECV_ZERO;
    d.batch = c->limits.slots;
    d.num_active = c->num_active;
    d.finished = c->finished;
    d.active = c->active;
    d.new_num_active = c->new_num_active;
    lm_carry(&d, c->board, text);
    if (c->layout.kind == LM_PADDED) {
        lm_carry(&d, c->pad_len, word);
        lm_carry(&d, target->data, lm_page_bytes(c, target));
        lm_carry(&d, draft->data, lm_page_bytes(c, draft));
    } else {
        lm_carry(&d, c->table, c->table_stride_elems * word);
    }
    if (lm_is_paged(c)) {
        lm_carry(&d, c->cache_len, word);
        lm_carry(&d, c->num_row_pages, word);
    }
    if (c->layout.kind == LM_GAP) {
        lm_carry(&d, c->text_len, word);
        lm_carry(&d, c->mask, text);
        lm_carry(&d, c->position_ids, text);
    }
    return d;
}

/* C4. Up to `count` sequences for an EXSPEC batch, by the lengths in prompt_len: to `active`;
 * new_num_active becomes 1 if they are of one length. */
static inline specv_group_desc lm_group(const lm_cache *c, int32_t count) {
    specv_group_desc d = SPECV_ZERO;
    d.batch = c->limits.slots;
    d.num_active = c->num_active;
    d.length = c->prompt_len;
    d.order = c->order;
    d.pick_rows = c->active;
    d.is_group = c->new_num_active;
    d.ticket = c->ticket;
    d.num_pick = count;
    return d;
}

#endif
