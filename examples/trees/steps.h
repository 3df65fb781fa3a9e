/* Steps of speculative decoding with draft trees, as engines call them, on whatever runs the kit:
   ref_only.c is the reference on host memory, steps.cu the kernels on memory that both sides see.

   Trees come as engines have them: as SGLang's eagle worker gives them to its verification
   (retrieve_next_token, retrieve_next_sibling, candidates and target_predict, int64), or as
   TensorRT-LLM's decoder has them (paths of nodes, -1 behind the last; ids int32). Each step

       specv_tree_layout   what is given -> parents; position ids and the mask for the pass
       the pass            writes a KV row for each node behind the cache, says what follows it
       specv_verify_tree   which path the target takes, and the token behind it
       specv_commit_path   the path's KV rows go to consecutive positions; new lengths

   and in the end texts are what plain decoding gives, and caches hold the rows of those texts, each
   in its place. The model is a hash of the text so far, which also is what its KV rows hold. */

#ifndef STEPS_H_INCLUDED
#define STEPS_H_INCLUDED

#include <stdio.h>
#include <string.h>

enum { REQUESTS = 6, NODES = 24, DEPTH = 6, TOKENS = 60, POSITIONS = TOKENS + NODES + DEPTH };
enum { PAGE = 4, ROW_PAGES = (POSITIONS + PAGE - 1) / PAGE, PLANES = 3, VOCAB = 40 };
enum { PATHS = NODES, FROM_LINKS = 0, FROM_PATHS = 1 };

/* What the launches of a step read and write. */
typedef struct shared {
    int64_t next_token[REQUESTS][NODES], next_sibling[REQUESTS][NODES]; /* SGLang's */
    int32_t paths[REQUESTS][PATHS][DEPTH + 1];                          /* TensorRT-LLM's */
    int64_t candidates[REQUESTS][NODES], target_predict[REQUESTS][NODES];
    int32_t draft_ids[REQUESTS][NODES], target_ids[REQUESTS][NODES]; /* the same as int32 */
    int32_t num_nodes[REQUESTS];
    int32_t parent[REQUESTS][NODES], position_ids[REQUESTS][NODES];
    uint32_t mask[REQUESTS][NODES];
    int32_t path[REQUESTS][DEPTH + 1], accepted_len[REQUESTS];
    int64_t out_tokens[REQUESTS][DEPTH + 1]; /* or as many int32 */
    int32_t cache_len[REQUESTS], num_emitted[REQUESTS];
    uint32_t status[REQUESTS], ticket;
    int32_t block_table[REQUESTS][ROW_PAGES];
    uint64_t kv[PLANES][REQUESTS * ROW_PAGES][PAGE]; /* rows of one word each */
    void *planes[PLANES];
} shared;

typedef struct text {
    int32_t token[POSITIONS];
    int len; /* the last token has no row in the cache yet */
} text;

/* The functions that run a step: the reference's or launchers, with a wait behind the last. */
int run_layout(const specv_tree_layout_desc *d);
int run_verify(const specv_verify_tree_desc *d);
int run_commit(const specv_commit_path_desc *d);

static uint64_t hash_on(uint64_t hash, int32_t token) {
    hash = (hash ^ (uint64_t)(token + 1)) * 0x9E3779B97F4A7C15u;
    return hash ^ hash >> 29;
}

/* Of the first `len` tokens. */
static uint64_t hash_of(const text *t, int len) {
    uint64_t hash = 1;
    for (int i = 0; i < len; ++i) hash = hash_on(hash, t->token[i]);
    return hash;
}

static int32_t next_of(uint64_t hash) { return (int32_t)(hash % VOCAB); }

/* One of the draft model's three tokens is the target's three times out of four. */
static int32_t guess(uint64_t hash, int which) {
    const int32_t good = next_of(hash);
    if (which == (int)(hash >> 40) % 3 && (hash >> 50 & 3)) return good;
    return (int32_t)((hash >> (which * 7 + 8)) % VOCAB);
}

/* A tree of different siblings, breadth first; hash[i]: of the text up to node i. */
static int grow_tree(uint64_t root, int32_t *parent, int32_t *token, uint64_t *hash, int *depth) {
    int n = 1;
    parent[0] = -1, token[0] = 0, hash[0] = root, depth[0] = 0;
    for (int i = 0; i < n; ++i)
        for (int which = 0, first = n; which < 3 && n < NODES && depth[i] < DEPTH; ++which) {
            const int32_t draft = guess(hash[i], which);
            int again = 0;
            for (int k = first; k < n; ++k) again |= token[k] == draft;
            if (again) continue;
            parent[n] = i, token[n] = draft, depth[n] = depth[i] + 1;
            hash[n] = hash_on(hash[i], draft);
            ++n;
        }
    return n;
}

static uint64_t *kv_row(shared *s, int plane, int b, int position) {
    return &s->kv[plane][s->block_table[b][position / PAGE]][position % PAGE];
}

/* The tree of a request, in both forms, and what the target's pass makes of it. */
static void draft_and_pass(shared *s, int b, const text *t) {
    int32_t parent[NODES], token[NODES], last[NODES];
    uint64_t hash[NODES];
    int depth[NODES], num_paths = 0;
    const int n = grow_tree(hash_of(t, t->len), parent, token, hash, depth);
    s->num_nodes[b] = n;
    memset(s->paths[b], 0xff, sizeof s->paths[b]);
    for (int i = 0; i < n; ++i) {
        s->next_token[b][i] = s->next_sibling[b][i] = -1, last[i] = 0;
        if (i && last[parent[i]])
            s->next_sibling[b][last[parent[i]]] = i;
        else if (i)
            s->next_token[b][parent[i]] = i;
        if (i) last[parent[i]] = i;
        s->candidates[b][i] = s->draft_ids[b][i] = i ? token[i] : t->token[t->len - 1];
        s->target_predict[b][i] = s->target_ids[b][i] = next_of(hash[i]);
        for (int plane = 0; plane < PLANES; ++plane)
            *kv_row(s, plane, b, s->cache_len[b] + i) = hash[i] + (uint64_t)plane;
    }
    for (int leaf = 0; leaf < n; ++leaf) {
        if (last[leaf]) continue; /* it has a child */
        for (int at = leaf; at >= 0; at = parent[at]) s->paths[b][num_paths][depth[at]] = at;
        num_paths += 1;
    }
}

static int run_step(shared *s, int form) {
    specv_tree_layout_desc layout = SPECV_ZERO;
    specv_verify_tree_desc verify = SPECV_ZERO;
    specv_commit_path_desc commit = SPECV_ZERO;
    int status;
    layout.form = form == FROM_LINKS ? SPECV_TREE_LINKS : SPECV_TREE_PATHS;
    layout.batch = REQUESTS, layout.max_nodes = NODES;
    layout.num_nodes = s->num_nodes;
    layout.link_dtype = SPECV_I64;
    layout.first_child = s->next_token, layout.next_sibling = s->next_sibling;
    layout.paths = &s->paths[0][0][0], layout.num_paths = PATHS, layout.path_len = DEPTH + 1;
    layout.position = s->cache_len; /* the root is the first token that is not in the cache */
    layout.parent = &s->parent[0][0];
    layout.position_ids = s->position_ids, layout.mask = &s->mask[0][0];
    layout.row_status = s->status;
    if ((status = run_layout(&layout)) != SPECV_OK) return status;

    verify.rule = SPECV_TREE_GREEDY;
    verify.trees.batch = REQUESTS, verify.trees.max_nodes = NODES;
    verify.trees.num_nodes = s->num_nodes, verify.trees.parent = &s->parent[0][0];
    verify.trees.token_dtype = form == FROM_LINKS ? SPECV_I64 : SPECV_I32;
    verify.trees.token = form == FROM_LINKS ? (void *)s->candidates : (void *)s->draft_ids;
    verify.target_tokens = form == FROM_LINKS ? (void *)s->target_predict : (void *)s->target_ids;
    verify.max_depth = DEPTH, verify.vocab = VOCAB;
    verify.accepted_len = s->accepted_len, verify.path = &s->path[0][0];
    verify.out_tokens = s->out_tokens, verify.num_emitted = s->num_emitted;
    verify.row_status = s->status, verify.keep_status = 1;
    if ((status = run_verify(&verify)) != SPECV_OK) return status;

    commit.batch = REQUESTS, commit.max_nodes = NODES, commit.max_depth = DEPTH;
    commit.num_nodes = s->num_nodes, commit.accepted_len = s->accepted_len;
    commit.path = &s->path[0][0];
    commit.cache_len = commit.new_cache_len = s->cache_len;
    commit.row_status = s->status, commit.keep_status = 1, commit.ticket = &s->ticket;
    commit.kv.planes = s->planes, commit.kv.num_planes = PLANES;
    commit.kv.head_bytes = sizeof(uint64_t), commit.kv.max_positions = POSITIONS;
    commit.kv.block_table = &s->block_table[0][0];
    commit.kv.page_size = PAGE, commit.kv.num_pages = REQUESTS * ROW_PAGES;
    return run_commit(&commit);
}

/* The mask and the position ids that the pass would have used. */
static int check_layout(const shared *s, int b, int first_position) {
    int wrong = 0;
    for (int i = 0; i < s->num_nodes[b]; ++i) {
        uint32_t mask = 0;
        int depth = -1;
        for (int at = i; at >= 0; at = s->parent[b][at]) mask |= 1u << at, ++depth;
        wrong += mask != s->mask[b][i] || s->position_ids[b][i] != first_position + depth;
    }
    return wrong;
}

/* Decodes all requests; returns how much is wrong. */
static int run_texts(shared *s, int form) {
    static text texts[REQUESTS];
    int steps = 0, emitted = 0, wrong = 0, done = 0;
    memset(s, 0, sizeof *s);
    for (int plane = 0; plane < PLANES; ++plane) s->planes[plane] = s->kv[plane];
    for (int b = 0; b < REQUESTS; ++b) { /* prompts of one token; pages in no order */
        texts[b].token[0] = b, texts[b].len = 1;
        for (int e = 0; e < ROW_PAGES; ++e)
            s->block_table[b][e] = (b * ROW_PAGES + e) * 5 % (REQUESTS * ROW_PAGES);
    }
    while (!done) {
        int32_t before[REQUESTS];
        int status;
        memcpy(before, s->cache_len, sizeof before);
        for (int b = 0; b < REQUESTS; ++b) draft_and_pass(s, b, &texts[b]);
        status = run_step(s, form);
        if (status) return printf("%s\n", specv_status_string(status)), 1;
        for (int b = 0; b < REQUESTS; ++b) {
            const int32_t *narrow = (const int32_t *)(const void *)s->out_tokens;
            wrong += s->status[b] != 0 || check_layout(s, b, before[b]);
            for (int i = 0; i < s->num_emitted[b]; ++i)
                texts[b].token[texts[b].len++] =
                    form == FROM_LINKS ? (int32_t)s->out_tokens[b][i] : narrow[b * (DEPTH + 1) + i];
            wrong += s->cache_len[b] != texts[b].len - 1;
            emitted += s->num_emitted[b];
            done |= texts[b].len > TOKENS;
        }
        ++steps;
    }
    for (int b = 0; b < REQUESTS; ++b)
        for (int i = 1; i < texts[b].len; ++i) {
            wrong += texts[b].token[i] != next_of(hash_of(&texts[b], i));
            for (int plane = 0; plane < PLANES; ++plane)
                wrong += *kv_row(s, plane, b, i - 1) != hash_of(&texts[b], i) + (uint64_t)plane;
        }
    printf("%s: %d steps, %.2f tokens a step, %s\n", form == FROM_LINKS ? "links" : "paths", steps,
           (double)emitted / steps / REQUESTS,
           wrong ? "WRONG" : "text and cache as decoded plainly");
    return wrong;
}

#endif
