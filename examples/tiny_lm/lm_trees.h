/* SPDX-License-Identifier: MIT-0
 *
 * lm_trees.h - draft trees: what a backend keeps of them, and the descriptors of the kit's
 * operations on them, for both backends. Tree i is sequence i's; nodes lie side by side in its
 * cache, the root in the column of the pending token.
 */
#ifndef LM_TREES_H
#define LM_TREES_H

#include "lm_cache.h"

/* Arrays are in the backend's memory. Rows that children are asked for: [batch * width]. */
typedef struct lm_tree_arrays {
    int32_t *num_nodes;    /* [batch] */
    int32_t *parent;       /* [batch][nodes], as the host gives it */
    int32_t *position;     /* [batch] of the roots */
    int32_t *checked;      /* [batch][nodes] parents as the kit has found them */
    int32_t *path;         /* [batch][gamma + 1] */
    int32_t *row_position; /* [rows], as the next two what the host says of them */
    uint64_t *row_seed;
    uint32_t *row_mask; /* [rows][LM_VOCAB / 32] what of the vocabulary is left to draw from */
    float *temperature; /* [rows] */
    int32_t *token;     /* [rows] drawn */
    float *logprob;     /* [rows] its ln q */
    int32_t *top_id;    /* [rows][width] the likeliest */
    float *top_logprob; /* [rows][width] theirs */
} lm_tree_arrays;

static inline void lm_allocate_trees(lm_cache *c, lm_tree_arrays *t, lm_zeroed *zeroed,
                                     void *backend) {
    const size_t batch = (size_t)c->limits.batch, width = (size_t)c->limits.width;
    const size_t nodes = batch * (size_t)c->limits.nodes, rows = batch * width, word = 4;
    if (c->limits.nodes == 0) return;
    t->num_nodes = (int32_t *)zeroed(backend, batch, word);
    t->parent = (int32_t *)zeroed(backend, nodes, word);
    t->position = (int32_t *)zeroed(backend, batch, word);
    t->checked = (int32_t *)zeroed(backend, nodes, word);
    t->path = (int32_t *)zeroed(backend, batch * ((size_t)c->limits.gamma + 1), word);
    t->row_position = (int32_t *)zeroed(backend, rows, word);
    t->row_seed = (uint64_t *)zeroed(backend, rows, sizeof(uint64_t));
    t->row_mask = (uint32_t *)zeroed(backend, rows * LM_VOCAB / 32, word);
    t->temperature = (float *)zeroed(backend, rows, sizeof(float));
    t->token = (int32_t *)zeroed(backend, rows, word);
    t->logprob = (float *)zeroed(backend, rows, sizeof(float));
    t->top_id = (int32_t *)zeroed(backend, rows * width, word);
    t->top_logprob = (float *)zeroed(backend, rows * width, sizeof(float));
    c->node_position = (int32_t *)zeroed(backend, nodes, word);
    c->node_mask = (uint32_t *)zeroed(backend, nodes * (size_t)lm_node_words(c->limits), word);
}

/* Of the kit, for the verification and the sampling of any step; or its negative code. */
static inline int64_t lm_kit_scratch_bytes(const lm_limits *limits, int32_t vocab) {
    const int32_t nodes = limits->nodes;
    int64_t most = specv_verify_sample_scratch_bytes(limits->batch, limits->gamma, vocab), tree;
    if (nodes == 0 || most < 0) return most;
    tree = specv_verify_tree_scratch_bytes(limits->batch, nodes, vocab);
    if (tree >= 0) tree += specv_verify_sample_scratch_bytes(limits->batch, nodes, vocab);
    if (tree < 0 || tree > most) most = tree;
    if (most < 0) return most;
    tree = specv_sample_scratch_bytes((int64_t)limits->batch * limits->width, vocab);
    return tree < 0 || tree > most ? tree : most;
}

/* From parents to what nodes see of each other. */
static inline specv_tree_layout_desc lm_tree_layout(const lm_cache *c, const lm_tree_arrays *t) {
    specv_tree_layout_desc d = SPECV_ZERO;
    d.form = SPECV_TREE_PARENTS;
    d.given_parent = t->parent;
    d.num_active = c->num_active;
    d.num_nodes = t->num_nodes;
    d.position = t->position;
    d.parent = t->checked;
    d.position_ids = c->node_position;
    d.mask = c->node_mask;
    d.row_status = c->row_status;
    d.keep_status = 1;
    d.batch = c->limits.batch;
    d.max_nodes = c->limits.nodes;
    return d;
}

/* A7, without what differs between backends: seeds, positions, scores, scratch memory. */
static inline specv_verify_tree_desc lm_verify_tree(const lm_cache *c, const lm_tree_arrays *t,
                                                    const lm_sampling *sampling) {
    specv_verify_tree_desc d = SPECV_ZERO;
    d.rule = sampling->tree_rule;
    d.trees.num_active = c->num_active;
    d.trees.num_nodes = t->num_nodes;
    d.trees.parent = t->checked;
    d.trees.token = c->board + c->limits.draft_at;
    d.trees.batch = c->limits.batch;
    d.trees.max_nodes = c->limits.nodes;
    if (sampling->by_choice) d.target_tokens = c->board + c->limits.target_at;
    d.vocab = LM_VOCAB;
    d.max_depth = c->limits.gamma;
    d.accepted_len = c->accepted_len;
    d.num_emitted = c->num_emitted;
    d.out_tokens = c->out_tokens;
    d.path = t->path;
    return d;
}

/* B4, of one model's cache. The target's comes last: with it lengths grow. */
static inline specv_commit_path_desc lm_commit_path(const lm_cache *c, const lm_tree_arrays *t,
                                                    const lm_kv *kv, int which) {
    specv_commit_path_desc d = SPECV_ZERO;
    d.keep_status = 1; /* those of pages and trees */
    d.num_active = c->num_active;
    d.accepted_len = c->accepted_len;
    d.path = t->path;
    d.num_nodes = t->num_nodes;
    d.cache_len = c->cache_len;
    d.row_status = c->row_status;
    if (lm_is_paged(c)) d.page_refs = c->page_refs;
    if (lm_is_paged(c) && which == LM_TARGET) d.new_cache_len = c->cache_len, d.ticket = c->ticket;
    d.kv = lm_kv_cache(c, kv);
    d.batch = c->limits.batch;
    d.max_nodes = c->limits.nodes;
    d.max_depth = c->limits.gamma;
    return d;
}

/* A8: a child for each row. */
static inline specv_sample_desc lm_propose(const lm_tree_arrays *t, const float *logits,
                                           const lm_proposal *p) {
    specv_sample_desc d = SPECV_ZERO;
    d.scores.data = logits + (size_t)p->first * LM_VOCAB;
    d.scores.seq_stride_elems = (int64_t)p->stride * LM_VOCAB;
    d.temperature = t->temperature;
    d.seed = t->row_seed;
    d.position = t->row_position;
    d.token = t->token;
    d.emitted.logprob = t->logprob;
    d.emitted.raw = 1;
    d.vocab = LM_VOCAB;
    d.batch = p->num_rows;
    d.method = p->method == LM_PICK_GUMBEL ? SPECV_SAMPLE_GUMBEL : SPECV_SAMPLE_CDF;
    d.stream = p->stream;
    d.step_row = p->step_row;
    if (p->is_distinct) d.filters.mask = t->row_mask;
    return d;
}

/* Its likeliest children for each row; what is drawn beside them goes nowhere. */
static inline specv_sample_desc lm_propose_likeliest(const lm_tree_arrays *t, const float *logits,
                                                     const lm_proposal *p) {
    specv_sample_desc d = lm_propose(t, logits, p);
    d.filters.mask = NULL;
    d.emitted.top_id = t->top_id;
    d.emitted.top_logprob = t->top_logprob;
    d.emitted.max_top = p->num_children;
    return d;
}

#endif
