/* peers.h - the kernels of other projects, as peers.cu calls them: device pointers, null stream or
   ours, 0 or an error of CUDA. Each side is compiled by itself, for the peers are built with fast
   arithmetic and the kit is not. Nothing of theirs is in this repository: peers.sh is told where
   their sources are. */

#ifndef SPECV_BENCH_PEERS_H
#define SPECV_BENCH_PEERS_H

#include <stddef.h>
#include <stdint.h>

struct CUstream_st;

#if defined(__cplusplus)
extern "C" {
#endif

/* One verification. drafts [batch][n]; p [batch][n + 1][vocab], q [batch][n][vocab]. */
typedef struct peer_verify {
    const int32_t *drafts;
    float *p, *q;
    int32_t *out; /* [batch][n + 1] */
    int32_t *accepted, *emitted;
    int batch, n, vocab;
    uint64_t seed;
} peer_verify;

int peer_flashinfer_chain(const peer_verify *v, struct CUstream_st *stream);

/* One token a row, of logits or probabilities [batch][vocab]. */
typedef struct peer_sample {
    float *scores, *probs; /* logits; what their softmax writes */
    int32_t *token;
    unsigned char *valid; /* bool */
    void *workspace;
    size_t workspace_bytes;
    int batch, vocab;
    uint64_t seed;
    int top_k; /* from here on for those that filter */
    float top_p;
    void *row_states;  /* zeros */
    float *kept_score; /* [batch][top_k], what their top-k writes */
    int32_t *kept;
} peer_sample;

int peer_flashinfer_softmax(const peer_sample *s, struct CUstream_st *stream);
int peer_flashinfer_cdf(const peer_sample *s, float *probs, struct CUstream_st *stream);
int peer_flashinfer_gumbel(const peer_sample *s, struct CUstream_st *stream);

/* Logits to a token of those that top_k and top_p keep, four ways. joint: softmax, then draws until
   both keep one; top_p is a part of all. top_p: the same, of top_p alone. masked: top-k into masked
   scores (`probs`, then in place), softmax, draws until top_p keeps one. first: the top_k ids by
   score into `kept`, softmax of these, the same draws; token is a place in `kept`, and the id there
   is left to PyTorch. */
int peer_flashinfer_joint(const peer_sample *s, struct CUstream_st *stream);
int peer_flashinfer_top_p(const peer_sample *s, struct CUstream_st *stream);
int peer_flashinfer_masked(const peer_sample *s, struct CUstream_st *stream);
int peer_flashinfer_first(const peer_sample *s, struct CUstream_st *stream);

/* Coin number `which` (from 0) that a row of the two samplers above draws. */
int peer_flashinfer_coins(uint64_t seed, int batch, int which, float *coins,
                          struct CUstream_st *stream);

/* A tree, or a chain as one of one branch: links, [batch][nodes], -1 where there is none; node 0 is
   the token before the drafts. p, q [batch][nodes][vocab], q must be zeros. steps: nodes of the
   longest path. */
typedef struct peer_tree {
    int64_t *candidates, *index, *next, *sibling;
    int64_t *target;          /* greedy: the target's choices [batch][nodes] */
    float *coins, *last_coin; /* else: [batch][nodes]; [batch] */
    float *p, *q;
    int32_t *predicts, *accept_index, *accepted; /* [batch][nodes]; [batch][steps]; [batch] */
    int batch, nodes, steps, vocab;
} peer_tree;

int peer_sglang_tree(const peer_tree *t, struct CUstream_st *stream);
int peer_sglang_greedy(const peer_tree *t, struct CUstream_st *stream);

/* A tree as a table of paths: [batch][nodes][steps] nodes, -1 behind the last; as many as there are
   leaves, then -1. */
typedef struct peer_paths {
    int32_t *paths, *drafts, *target; /* drafts [batch][nodes - 1]; target [batch][nodes] */
    int32_t *out, *accepted, *best;   /* [batch][steps]; [batch], with the last token; [batch] */
    int batch, nodes, steps;
} peer_paths;

int peer_trtllm_paths(const peer_paths *t, struct CUstream_st *stream);

/* The best id of each tile of 1024 by logit and noise; which tile has the best is left to
   PyTorch. */
typedef struct peer_noise {
    int64_t *tile_token, *seed, *position; /* [batch][tiles]; [batch] */
    double *tile_best;
    float *logits, *temperature;
    int32_t *row; /* [batch]: whose temperature and seed */
    int batch, vocab;
} peer_noise;

int peer_vllm_gumbel(const peer_noise *s, struct CUstream_st *stream);

/* One verification; rows of p and q are those of the drafts alone. inverse [batch][vocab]: of
   exponential noise. */
typedef struct peer_race {
    int32_t *out, *ends, *drafts, *bonus, *recovered; /* out [batch][n + 1]; ends: running counts */
    float *p, *q, *inverse;
    double *coins;
    unsigned char *is_greedy;
    int batch, n, vocab;
} peer_race;

int peer_vllm_reject(const peer_race *r, struct CUstream_st *stream);

/* One verification from logits. p, q as in peer_verify; places are [batch][n + 1], of 8192 ids one
   statistic each, of 1024 one token. */
typedef struct peer_logits {
    float *p, *q, *temperature;
    float *p_max, *p_sum, *q_max, *q_sum; /* scratch: [places][blocks] */
    float *p_lse, *q_lse;                 /* scratch: [batch] */
    int64_t *p_argmax, *tile_token;       /* scratch: [places][blocks]; [batch][tiles] */
    double *tile_best;                    /* scratch: [batch][tiles] */
    int64_t *out, *num_out;               /* out: [places]; [batch], the last token, too */
    int64_t *seed, *position;             /* [batch]; [places] */
    int32_t *drafts, *row, *step;         /* [places]: from place 1 on; its request; its position */
    int32_t *ends, *request;              /* [batch + 1]: running counts of places; [batch] */
    int batch, n, vocab;
} peer_logits;

int peer_vllm_logits(const peer_logits *l, struct CUstream_st *stream);

#if defined(__cplusplus)
}
#endif

#endif
