/* SPDX-License-Identifier: MIT-0
 *
 * tree.c - draft trees, as the engine sees them.
 *
 * greedy, coupled and one-coin take any tree, so theirs grow where the draft model expects the text
 * to go: at each depth the `width` likeliest of the children of the nodes above, by the sum of ln q
 * along the path, as EAGLE-2 does (arXiv 2406.16858). With coupled a node's children are what the
 * draft model says with the noise of the position that the target will have, and a child counts by
 * how far it is below the best one.
 *
 * The other rules compare p with q: children must be drawn from q, and what a child is must not
 * decide whether it is judged. Theirs have one shape: `width` chains from the root.
 */
#include "tree.h"
#include "specverify.cuh"

#include <math.h>
#include <stdlib.h>
#include <string.h>

engine_trees *new_trees(const lm_limits *limits) {
    const size_t nodes = (size_t)limits->batch * (size_t)limits->nodes;
    const size_t width = (size_t)limits->width, rows = (size_t)limits->batch * width;
    engine_trees *t = (engine_trees *)allocate(1, sizeof *t);
    t->parent = (int32_t *)allocate(nodes, sizeof *t->parent);
    t->token = (int32_t *)allocate(nodes, sizeof *t->token);
    t->score = (float *)allocate(nodes, sizeof *t->score);
    t->child = (int32_t *)allocate(rows * width, sizeof *t->child);
    t->child_logprob = (float *)allocate(rows * width, sizeof *t->child_logprob);
    t->row_position = (int32_t *)allocate(rows, sizeof *t->row_position);
    t->row_seed = (uint64_t *)allocate(rows, sizeof *t->row_seed);
    t->now.num_nodes = t->num_nodes;
    t->now.parent = t->parent;
    t->now.position = t->position;
    t->now.column = t->column;
    return t;
}

void free_trees(engine_trees *t) {
    if (!t) return;
    free(t->parent);
    free(t->token);
    free(t->score);
    free(t->child);
    free(t->child_logprob);
    free(t->row_position);
    free(t->row_seed);
    free(t);
}

/* ---- where the tree goes on ------------------------------------------------------------------ */

static int is_drawn(const engine *e) { return e->sampling.tree_rule >= SPECV_TREE_RECURSIVE; }

static int is_coupled(const engine *e) {
    return e->sampling.tree_rule == SPECV_TREE_COUPLED &&
           !specv_temperature_is_0(e->sampling.temperature);
}

/* Which nodes are at a depth; depth 0 is the root. */
static int32_t first_at(const engine *e, int32_t depth) {
    return depth == 0 ? 0 : 1 + (depth - 1) * e->limits.width;
}

static int32_t num_at(const engine *e, int32_t depth) { return depth == 0 ? 1 : e->limits.width; }

/* The noise of rule COUPLED, in nats. A word in 2^24 has further bits: they do not decide who gets
 * a place in a tree. */
static float noise_of(uint64_t seed, int32_t position, int32_t token) {
    specv_noise noise;
    uint32_t x;
    noise.seed = seed, noise.position = (uint32_t)position, noise.row = 0;
    noise.tag = SPECV_TAG_COUPLED;
    x = specv_noise_words(&noise, (uint32_t)token).x[token % 4];
    return (float)specv_gumbel24(x, 0) * 0.693147181f / 16777216.0f;
}

/* How much child c of a node adds to the score of the path. */
static float child_score(const engine *e, const sequence *s, int32_t depth, const int32_t *child,
                         const float *logprob, int32_t c, int32_t stride) {
    const int32_t token = child[c * stride], best = child[0], position = s->len + depth;
    const float ln_q = logprob[c * stride];
    if (token < 0 || best < 0 || !(ln_q > -1e30f)) return -1e30f;
    if (!is_coupled(e)) return ln_q;
    return (ln_q - logprob[0]) / e->sampling.temperature + noise_of(s->seed, position, token) -
           noise_of(s->seed, position, best);
}

static void add_node(const engine *e, int32_t seq, int32_t node, int32_t parent, int32_t token,
                     float score) {
    const int32_t at = seq * e->limits.nodes + node;
    e->trees->parent[at] = parent;
    e->trees->token[at] = token;
    e->trees->score[at] = score;
    e->trees->num_nodes[seq] = node + 1;
}

/* Below the nodes of a depth: the best `width` of all their children, the better ones first. `row`:
 * of the proposal, the first of these nodes; its children are `of_child` apart, rows `of_row`. */
static void add_best(const engine *e, int32_t seq, const sequence *s, int32_t depth, int32_t row,
                     int32_t of_row, int32_t of_child) {
    const engine_trees *t = e->trees;
    const int32_t width = e->limits.width, first = first_at(e, depth);
    const int32_t num = num_at(e, depth) * width;
    float score[LM_MAX_GAMMA * LM_MAX_GAMMA];
    for (int32_t i = 0; i < num; i++) {
        const int32_t at = (row + i / width) * of_row;
        score[i] =
            t->score[seq * e->limits.nodes + first + i / width] +
            child_score(e, s, depth, t->child + at, t->child_logprob + at, i % width, of_child);
    }
    for (int32_t c = 0; c < width; c++) {
        int32_t best = 0;
        for (int32_t i = 1; i < num; i++)
            if (score[i] > score[best]) best = i;
        add_node(e, seq, first_at(e, depth + 1) + c, first + best / width,
                 t->child[(row + best / width) * of_row + best % width * of_child], score[best]);
        score[best] = -INFINITY;
    }
}

/* ---- drafting -------------------------------------------------------------------------------- */

/* Rows of a proposal are those sequences, or `each` nodes of each of them. */
static lm_proposal proposal_of(engine *e, const sequence *seqs, int32_t num_seqs,
                               const int32_t *draft_len, int32_t depth, int32_t each) {
    engine_trees *t = e->trees;
    lm_proposal p;
    memset(&p, 0, sizeof p);
    p.stride = 1;
    p.step_row = depth;
    p.num_children = e->limits.width;
    p.method = LM_PICK_LARGEST;
    if (is_coupled(e)) p.method = LM_PICK_GUMBEL, p.stream = SPECV_STREAM_COUPLED;
    if (is_drawn(e)) p.method = LM_PICK_CDF, p.stream = SPECV_STREAM_DRAFT;
    p.is_distinct = is_coupled(e) || e->sampling.tree_rule == SPECV_TREE_RECURSIVE_DISTINCT ||
                    e->sampling.tree_rule == SPECV_TREE_TRAVERSAL_DISTINCT;
    for (int32_t i = 0; i < num_seqs; i++)
        for (int32_t a = 0; a < each && draft_len[i] > depth; a++, p.num_rows++) {
            t->row_position[p.num_rows] = seqs[i].len;
            t->row_seed[p.num_rows] = seqs[i].seed;
        }
    p.position = t->row_position;
    p.seed = t->row_seed;
    return p;
}

static void propose(engine *e, const lm_proposal *p) {
    must(e, e->backend.propose(&e->backend, p, e->trees->child, e->trees->child_logprob));
}

static void grow_best(engine *e, const sequence *seqs, int32_t num_seqs, const int32_t *draft_len,
                      int32_t depth) {
    const int32_t each = num_at(e, depth);
    const lm_proposal p = proposal_of(e, seqs, num_seqs, draft_len, depth, each);
    const int is_list = p.method == LM_PICK_LARGEST;
    int32_t row = 0;
    propose(e, &p);
    for (int32_t i = 0; i < num_seqs; i++) {
        if (draft_len[i] <= depth) continue;
        add_best(e, i, &seqs[i], depth, row, is_list ? p.num_children : 1,
                 is_list ? 1 : p.num_rows);
        row += each;
    }
}

/* All children of the root, then a child for each node; each has random numbers of its own. */
static void grow_drawn(engine *e, const sequence *seqs, int32_t num_seqs, const int32_t *draft_len,
                       int32_t depth) {
    const int32_t width = e->limits.width, first = first_at(e, depth + 1);
    lm_proposal p = proposal_of(e, seqs, num_seqs, draft_len, depth, 1);
    if (depth > 0) p.num_children = 1, p.stride = width, p.is_distinct = 0;
    for (int32_t c = 0; c < width; c += p.num_children) {
        if (depth > 0) p.first = c;
        p.step_row = first + c - 1;
        propose(e, &p);
        for (int32_t i = 0, row = 0; i < num_seqs; i++) {
            if (draft_len[i] <= depth) continue;
            for (int32_t k = 0; k < p.num_children; k++)
                add_node(e, i, first + c + k, depth == 0 ? 0 : first + c - width,
                         e->trees->child[k * p.num_rows + row], 0);
            row++;
        }
    }
}

static lm_row row_of_node(const engine *e, const sequence *s, int32_t seq, int32_t node) {
    const int32_t depth = node == 0 ? 0 : (node - 1) / e->limits.width + 1;
    const int32_t drafts = e->limits.draft_at + seq * e->limits.nodes;
    lm_row row =
        row_of(e, s, s->len - 1 + depth, node == 0 ? text_at(e, s, s->len - 1) : drafts + node, -1);
    row.seq = seq;
    row.node = node;
    row.tree_from = e->trees->column[seq];
    row.column = row.tree_from + node;
    return row;
}

/* Drafts to the board; then the kit says who sees whom. */
static void grow(engine *e, int32_t num_seqs) {
    engine_trees *t = e->trees;
    t->now.num_seqs = num_seqs;
    must(e, e->backend.write_board(&e->backend, e->limits.draft_at, t->token,
                                   num_seqs * e->limits.nodes));
    must(e, e->backend.grow(&e->backend, &t->now));
}

void draft_trees(engine *e, sequence *seqs, int32_t num_seqs, const int32_t *draft_len) {
    static const lm_pick no_pick = {LM_PICK_NONE, 0, 0};
    engine_trees *t = e->trees;
    for (int32_t i = 0; i < num_seqs; i++) {
        add_node(e, i, 0, -1, 0, 0);
        t->position[i] = seqs[i].len - 1;
        t->column[i] = seqs[i].column[seqs[i].len - 1];
    }
    grow(e, num_seqs);
    for (int32_t depth = 0; depth < e->limits.gamma; depth++) {
        int32_t num_rows = 0, num_silent;
        for (int32_t i = 0; i < num_seqs && depth == 0; i++)
            if (draft_len[i] > 0) num_rows = fill_hole(e, &seqs[i], num_rows);
        num_silent = num_rows;
        for (int32_t i = 0; i < num_seqs; i++) {
            if (draft_len[i] <= depth) continue;
            for (int32_t a = 0; a < num_at(e, depth); a++) {
                const int32_t node = first_at(e, depth) + a;
                lm_row *row = &e->rows[num_rows++];
                *row = row_of_node(e, &seqs[i], i, node);
                if (is_drawn(e)) row->keep_at = i * e->limits.nodes + node;
            }
            seqs[i].draft_cached = seqs[i].len + depth;
        }
        if (num_rows == num_silent) return;
        must(e, e->backend.forward(&e->backend, LM_DRAFT, e->rows, num_rows, num_silent, no_pick));
        e->passes[DRAFT]++;
        if (is_drawn(e))
            grow_drawn(e, seqs, num_seqs, draft_len, depth);
        else
            grow_best(e, seqs, num_seqs, draft_len, depth);
        grow(e, num_seqs);
    }
}

void score_trees(engine *e, const sequence *seqs, int32_t num_seqs) {
    static const lm_pick no_pick = {LM_PICK_NONE, 0, 0};
    const int by_choice = e->sampling.by_choice;
    int32_t num_rows = 0;
    for (int32_t i = 0; i < num_seqs; i++)
        for (int32_t node = 0; node < e->trees->num_nodes[i]; node++) {
            const int32_t choice = i * e->limits.nodes + node;
            lm_row *row = &e->rows[num_rows++];
            *row = row_of_node(e, &seqs[i], i, node);
            row->pick_at = e->limits.target_at + choice;
            if (!by_choice) row->keep_at = choice;
        }
    must(e, e->backend.forward(&e->backend, LM_TARGET, e->rows, num_rows, 0,
                               by_choice ? pick_of(e, SPECV_STREAM_TARGET, 0) : no_pick));
    e->passes[TARGET]++;
}
