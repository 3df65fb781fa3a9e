/* SPDX-License-Identifier: MIT-0
 *
 * tree.h - draft trees, one a sequence and step. Node 0 is the pending token; depth k has `width`
 * nodes, numbers 1 + (k - 1) * width and on, and the deepest is what the text has room for, `gamma`
 * at most.
 */
#ifndef TREE_H
#define TREE_H

#include "engine.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Rules that judge trees alone, behind those of specv_rule: SPECV_TREE_ONE_COIN and on. */
enum { RULE_OF_TREES = SPECV_RULE_BOUNDED + 1, NUM_TREE_RULES = 5 };

/* What the engine keeps of the trees of a step: [batch][nodes]. */
typedef struct engine_trees {
    lm_trees now;
    int32_t num_nodes[LM_MAX_BATCH], position[LM_MAX_BATCH], column[LM_MAX_BATCH];
    int32_t *parent, *token;
    float *score;   /* of the path to a node */
    int32_t *child; /* [batch * width][width], as the next */
    float *child_logprob;
    int32_t *row_position; /* [batch * width], as the next */
    uint64_t *row_seed;
} engine_trees;

engine_trees *new_trees(const lm_limits *limits);
void free_trees(engine_trees *t);

/* A tree of depth draft_len[i] for every sequence, one depth of all of them per pass. */
void draft_trees(engine *e, sequence *seqs, int32_t num_seqs, const int32_t *draft_len);
/* One target pass over all nodes. */
void score_trees(engine *e, const sequence *seqs, int32_t num_seqs);

#ifdef __cplusplus
}
#endif
#endif
