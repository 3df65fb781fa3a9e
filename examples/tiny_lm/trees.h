/* SPDX-License-Identifier: MIT-0
 *
 * trees.h - draft trees in a backend. cpu.c and gpu.cu include it behind particles.h, which says
 * what they define before: lm_state (here with `trees` and `logits`, too), KIT, kit_status, send,
 * fetch.
 *
 * Which children go on is the engine's choice, so the host asks for them after each draft pass.
 */

static int t_grow(lm_backend *backend, const lm_trees *trees) {
    const lm_state *s = (const lm_state *)backend->state;
    const lm_tree_arrays *t = &s->trees;
    const specv_tree_layout_desc d = lm_tree_layout(&s->cache, t);
    const int32_t num_seqs = trees->num_seqs;
    if (p_send_ints(backend, s->cache.num_active, &num_seqs, 1) != 0 ||
        p_send_ints(backend, t->num_nodes, trees->num_nodes, num_seqs) != 0 ||
        p_send_ints(backend, t->parent, trees->parent, num_seqs * s->limits.nodes) != 0 ||
        p_send_ints(backend, t->position, trees->position, num_seqs) != 0)
        return -1;
    if (lm_is_aligned(&s->cache) && /* elsewhere the cache knows how long it is */
        p_send_ints(backend, s->cache.cache_len, trees->column, num_seqs) != 0)
        return -1;
    return kit_status(backend, KIT(tree_layout, &d));
}

static int t_send_rows(lm_backend *backend, const lm_proposal *p) {
    const lm_state *s = (const lm_state *)backend->state;
    const size_t rows = (size_t)p->num_rows;
    if (send(backend, s->trees.row_position, p->position, rows * sizeof *p->position) != 0)
        return -1;
    return send(backend, s->trees.row_seed, p->seed, rows * sizeof *p->seed);
}

/* With the memory that every call of the kit has for its work. */
static int t_sample(lm_backend *backend, specv_sample_desc d) {
    const lm_state *s = (const lm_state *)backend->state;
    d.scratch = s->kit_scratch;
    d.scratch_bytes = s->kit_scratch_bytes;
    return kit_status(backend, KIT(sample, &d));
}

/* Child c of all rows at once. left: [rows][LM_VOCAB / 32], all bits set. */
static int t_draw(lm_backend *backend, const lm_proposal *p, uint32_t *left, int32_t *child,
                  float *logprob) {
    const lm_state *s = (const lm_state *)backend->state;
    const lm_tree_arrays *t = &s->trees;
    const size_t rows = (size_t)p->num_rows, words = LM_VOCAB / 32;
    for (int32_t c = 0; c < p->num_children; c++) {
        specv_sample_desc d = lm_propose(t, s->logits, p);
        if (p->method == LM_PICK_CDF) d.step_row += c;
        if (send(backend, t->row_mask, left, rows * words * sizeof *left) != 0 ||
            t_sample(backend, d) != 0 ||
            fetch(backend, child + (size_t)c * rows, t->token, rows * sizeof *child) != 0 ||
            fetch(backend, logprob + (size_t)c * rows, t->logprob, rows * sizeof *logprob) != 0)
            return -1;
        for (size_t r = 0; r < rows; r++) {
            const int32_t token = child[(size_t)c * rows + r];
            if (token >= 0) left[r * words + (size_t)token / 32] &= ~(1u << token % 32);
        }
    }
    return 0;
}

static int t_propose(lm_backend *backend, const lm_proposal *p, int32_t *child, float *logprob) {
    const lm_state *s = (const lm_state *)backend->state;
    const lm_tree_arrays *t = &s->trees;
    const size_t rows = (size_t)p->num_rows, bytes = rows * LM_VOCAB / 8;
    const specv_sample_desc likeliest = lm_propose_likeliest(t, s->logits, p);
    const size_t count = rows * (size_t)p->num_children;
    uint32_t *left;
    int status;
    if (t_send_rows(backend, p) != 0) return -1;
    if (p->method == LM_PICK_LARGEST) {
        if (t_sample(backend, likeliest) != 0 ||
            fetch(backend, child, t->top_id, count * sizeof *child) != 0)
            return -1;
        return fetch(backend, logprob, t->top_logprob, count * sizeof *logprob);
    }
    left = (uint32_t *)malloc(bytes);
    if (!left) return fail(backend, "out of memory");
    memset(left, 0xff, bytes);
    status = t_draw(backend, p, left, child, logprob);
    free(left);
    return status;
}

static void use_trees(lm_backend *backend) {
    backend->grow = t_grow;
    backend->propose = t_propose;
}
