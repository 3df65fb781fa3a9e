/* What a user of the launchers writes, as C and as C++: only declarations, no CUDA. Included twice,
   because a program includes it through several of its own headers. Compiled, never linked. */
#include "specverify.cuh"
#include "specverify.cuh"

#if SPECVERIFY_VERSION !=                                                                          \
    SPECVERIFY_VERSION_MAJOR * 10000 + SPECVERIFY_VERSION_MINOR * 100 + SPECVERIFY_VERSION_PATCH
#error "the version number does not follow from its parts"
#endif
#if defined(SPECVERIFY_IMPLEMENTATION_INCLUDED)
#error "nobody asked for the implementation"
#endif

int step(const int32_t *draft, const int32_t *target, int32_t *accepted, struct CUstream_st *s);

int step(const int32_t *draft, const int32_t *target, int32_t *accepted, struct CUstream_st *s) {
    specv_verify_greedy_desc verify = SPECV_ZERO;
    specv_pack_kv_desc pack = SPECV_ZERO;
    specv_verify_pack_kv_desc both = SPECV_ZERO;
    specv_verify_tree_desc tree = SPECV_ZERO;
    specv_commit_path_desc commit = SPECV_ZERO;
    specv_tree_layout_desc layout = SPECV_ZERO;
    specv_accept_stats_desc stats = SPECV_ZERO;
    specv_verify_sample_desc lossy = SPECV_ZERO;
    const float epsilon[4] = {0.09f, 0.09f, 0.3f, 1}, alpha[4] = {0.3f, 0.3f, 1, 1};
    int64_t totals[SPECV_STAT_COUNT] = SPECV_ZERO;
    int status = SPECV_OK;
    verify.rows.batch = 4;
    verify.rows.max_draft = 8;
    verify.draft_tokens = draft;
    verify.target_tokens = target;
    verify.accepted_len = accepted;
    verify.token_dtype = SPECV_I32;
    both.verify = verify;
    both.kv = pack.kv;
    stats.rows = verify.rows;
    lossy.verify = verify; /* A6: with scores in place of the target's tokens */
    lossy.verify.target_tokens = NULL;
    lossy.rule = SPECV_RULE_TYPICAL;
    lossy.lossy.epsilon = epsilon, lossy.lossy.alpha = alpha;
    tree.rule = SPECV_TREE_COUPLED;
    tree.trees.batch = verify.rows.batch, tree.trees.max_nodes = 9;
    if (specv_version() != SPECVERIFY_VERSION) return SPECV_ERR_CANARY;
    if ((status = specv_verify_greedy_validate(&verify)) != SPECV_OK) return status;
    if ((status = specv_verify_greedy(&verify, s)) != SPECV_OK) return status;
    if ((status = specv_pack_kv(&pack, s)) != SPECV_OK) return status;
    if ((status = specv_verify_pack_kv(&both, s)) != SPECV_OK) return status;
    if ((status = specv_verify_sample_validate(&lossy)) != SPECV_OK) return status;
    if ((status = specv_verify_sample(&lossy, s)) != SPECV_OK) return status;
    if ((status = specv_verify_tree(&tree, s)) != SPECV_OK) return status;
    if ((status = specv_commit_path(&commit, s)) != SPECV_OK) return status;
    if ((status = specv_tree_layout(&layout, s)) != SPECV_OK) return status;
    if ((status = specv_accept_stats(&stats, s)) != SPECV_OK) return status;
    return specv_status_string(status)[0] == 's' && specv_block_efficiency(totals) > 0;
}
