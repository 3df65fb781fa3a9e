/* trees.cuh - A7: trees of 60 nodes, on each of which eight drafts in a row are accepted, or fewer,
   by target ids or by scores under every rule. Outputs are compared with the reference's. */

#ifndef SPECV_BENCH_TREES_CUH
#define SPECV_BENCH_TREES_CUH

enum { TREE_DEPTH = 8, TREE_WIDTH = 4 };

/* Which outputs are asked for beside accepted_len and next_token. */
enum { TREE_PATH = 1, TREE_INDEX = 2, TREE_PREDICTS = 4, TREE_TOKENS = 8 };

typedef struct trees_case {
    int batch, nodes, vocab; /* vocab 0: target ids */
    int scores, rule, stop;  /* specv_score_dtype; drafts that are accepted */
    int token_dtype, outputs;
    int32_t top_k; /* of all requests; 0: no limits */
    float top_p;
} trees_case;

typedef struct trees_run {
    specv_verify_tree_desc d, h; /* device; host, the reference's */
    int64_t least;               /* bytes that must be read and written */
    int path_at[TREE_DEPTH + 1]; /* nodes of the path that is on offer */
    int out_bytes;
} trees_run;

static int launch_tree(const void *context, int set, cudaStream_t stream) {
    (void)set;
    return specv_verify_tree(&((const trees_run *)context)->d, stream);
}

static void *tree_memory(const void *from, size_t bytes) {
    void *memory;
    CUDA_CHECK(cudaMalloc(&memory, bytes));
    CUDA_CHECK(cudaMemcpy(memory, from, bytes, cudaMemcpyHostToDevice));
    return memory;
}

static void *tree_words(size_t bytes) {
    void *memory = calloc(bytes ? bytes : 1, 1);
    if (!memory) bench_fail("no memory for trees", -1);
    return memory;
}

/* Nodes come in levels of seven; all of a level are children of the third node of the level before,
   those behind the last level of its parent, too. */
static int tree_level(const trees_case *c, int i) {
    const int level = i ? (i - 1) / (c->nodes / TREE_DEPTH) : 0;
    return level > TREE_DEPTH - 1 ? TREE_DEPTH - 1 : level;
}

static void plan_path(const trees_case *c, int *path_at) {
    path_at[0] = 0;
    for (int level = 0; level < TREE_DEPTH; ++level)
        path_at[level + 1] = level * (c->nodes / TREE_DEPTH) + TREE_WIDTH - 1;
}

/* A score of an id of the target's row at a node, or of the draft model's: a node of the path that
   is gone on from has almost all on the next one's token, its children are drawn from seven equal
   parts and a small rest; other rows are almost flat. `wanted`: the token, or -1. */
static float tree_score(const trees_case *c, int is_draft, int x, int wanted, int is_child,
                        int row) {
    const int is_one = is_draft ? is_child : x == wanted;
    if (c->scores == SPECV_PROBS_F32) {
        const float rest = 0.0009765625f; /* 2^-10 */
        if (is_draft) return is_one ? (1 - rest) / 7 : rest / (float)c->vocab;
        if (wanted < 0) return 1 / (float)c->vocab;
        return is_one ? 1 - rest : rest / (float)(c->vocab - 1);
    }
    if (c->top_k && !is_one) { /* few are far above most, as of a model */
        const uint32_t mixed = ((uint32_t)x * 2654435761u + (uint32_t)row) * 2246822519u;
        return (float)(mixed >> 22 & 1023) / 256 + (float)(mixed >> 12 & 1023) / 256 +
               (float)(mixed >> 2 & 1023) / 256;
    }
    if (c->rule == SPECV_TREE_GREEDY) /* 8 beside 1 to 1.5 */
        return is_one ? 8 : 1 + (float)((x * 7 + row) % 64) / 128;
    return (float)((x * 7 + row) % 64) / 64 + (float)(is_one ? is_draft ? 24 : 48 : 0);
}

static void put_tree_score(void *rows, const trees_case *c, int64_t at, float score) {
    uint32_t bits;
    memcpy(&bits, &score, 4);
    if (c->scores == SPECV_LOGITS_BF16)
        ((uint16_t *)rows)[at] = (uint16_t)(bits >> 16);
    else
        ((float *)rows)[at] = score;
}

static int64_t tree_score_bytes(const trees_case *c) {
    return c->scores == SPECV_LOGITS_BF16 ? 2 : 4;
}

/* The tree's rows of scores, the same for every request but for its tokens. */
static void *plan_tree_scores(const trees_run *r, const trees_case *c, const int32_t *token,
                              const int32_t *target, int is_draft) {
    const int64_t words = (int64_t)c->batch * c->nodes;
    void *rows = tree_words((size_t)(words * c->vocab * tree_score_bytes(c)));
    for (int64_t row = 0; row < words; ++row) {
        const int i = (int)(row % c->nodes);
        int wanted = c->rule == SPECV_TREE_GREEDY ? target[row] : -1, level = -1;
        for (int depth = 0; depth < TREE_DEPTH; ++depth)
            if (i == r->path_at[depth]) level = depth;
        if (level >= 0 && level < c->stop) wanted = target[row];
        for (int x = 0; x < c->vocab; ++x)
            put_tree_score(rows, c, row * c->vocab + x,
                           tree_score(c, is_draft, x, wanted, 0, (int)row));
        for (int child = 1; is_draft && level >= 0 && child < c->nodes; ++child)
            if (tree_level(c, child) == level)
                put_tree_score(rows, c, row * c->vocab + token[row - i + child],
                               tree_score(c, 1, 0, 0, 1, (int)row));
    }
    return rows;
}

static void put_tree_token(void *tokens, const trees_case *c, int64_t at, int32_t token) {
    if (c->token_dtype == SPECV_I64)
        ((int64_t *)tokens)[at] = token;
    else
        ((int32_t *)tokens)[at] = token;
}

/* Outputs follow each other: lengths, next tokens, paths, indices, predictions, tokens; all have
   room for 8 bytes a node. */
static void point_tree_outputs(specv_verify_tree_desc *d, const trees_case *c, void *out) {
    const size_t room = 8 * (size_t)c->batch * (size_t)c->nodes;
    char *at = (char *)out;
    d->accepted_len = (int32_t *)(void *)at, d->next_token = at + room;
    if (c->outputs & TREE_PATH) d->path = (int32_t *)(void *)(at + 2 * room);
    if (c->outputs & TREE_INDEX) d->accept_index = (int32_t *)(void *)(at + 3 * room);
    if (c->outputs & TREE_PREDICTS) d->predicts = at + 4 * room;
    if (c->outputs & TREE_TOKENS) d->out_tokens = at + 5 * room;
}

/* Are the outputs of the launch before the reference's? */
static void check_tree_outputs(const trees_run *r, const trees_case *c) {
    char *got = (char *)tree_words((size_t)r->out_bytes);
    bench_wait();
    CUDA_CHECK(cudaMemcpy(got, r->d.accepted_len, (size_t)r->out_bytes, cudaMemcpyDeviceToHost));
    if (memcmp(got, r->h.accepted_len, (size_t)r->out_bytes) != 0)
        bench_fail("trees differ from the reference", -1);
    for (int b = 0; b < c->batch; ++b)
        if (r->h.accepted_len[b] != c->stop)
            bench_fail("a path is not as long as it should be", r->h.accepted_len[b]);
    free(got);
}

static void prepare_trees(trees_run *r, const trees_case *c) {
    const size_t words = (size_t)c->batch * (size_t)c->nodes;
    const size_t wide = c->token_dtype == SPECV_I64 ? 8 : 4;
    int32_t *parent = (int32_t *)tree_words(4 * words), *token = (int32_t *)tree_words(4 * words);
    int32_t *target = (int32_t *)tree_words(4 * words);
    void *tokens = tree_words(8 * words), *targets = tree_words(8 * words);
    uint64_t *seed = (uint64_t *)tree_words(8 * (size_t)c->batch);
    int32_t *position = (int32_t *)tree_words(4 * (size_t)c->batch);
    const int ids = c->vocab ? c->vocab : 1000;
    int status;
    memset(r, 0, sizeof *r);
    plan_path(c, r->path_at);
    for (int b = 0; b < c->batch; ++b)
        for (int i = 0; i < c->nodes; ++i) {
            const size_t at = (size_t)b * (size_t)c->nodes + (size_t)i;
            parent[at] = i ? r->path_at[tree_level(c, i)] : -1;
            token[at] = (int32_t)((unsigned)(37 * i + 11 * b + 5) % (unsigned)ids);
            target[at] = ids - 1 - i;
        }
    for (int b = 0; b < c->batch; ++b) {
        for (int depth = 0; depth < c->stop; ++depth)
            target[b * c->nodes + r->path_at[depth]] = token[b * c->nodes + r->path_at[depth + 1]];
        seed[b] = bench_random(), position[b] = 100 + b;
    }
    for (size_t i = 0; i < words; ++i) {
        put_tree_token(tokens, c, (int64_t)i, token[i]);
        put_tree_token(targets, c, (int64_t)i, target[i]);
    }
    r->h.trees.batch = c->batch, r->h.trees.max_nodes = c->nodes, r->h.max_depth = TREE_DEPTH;
    r->h.vocab = c->vocab, r->h.rule = c->rule, r->h.trees.token_dtype = c->token_dtype;
    if (c->top_k) {
        int32_t *top_k = (int32_t *)tree_words(4 * (size_t)c->batch);
        float *top_p = (float *)tree_words(4 * (size_t)c->batch);
        for (int b = 0; b < c->batch; ++b) top_k[b] = c->top_k, top_p[b] = c->top_p;
        r->h.filters.top_k = top_k, r->h.filters.top_p = top_p;
    }
    if (c->vocab)
        r->h.scratch_bytes = specv_verify_tree_scratch_bytes(c->batch, c->nodes, c->vocab);
    if (c->top_k)
        r->h.scratch_bytes += specv_verify_sample_scratch_bytes(c->batch, c->nodes, c->vocab);
    r->out_bytes = (int)(6 * 8 * words);
    r->d = r->h;
    r->h.trees.parent = parent, r->h.trees.token = tokens;
    r->d.trees.parent = (const int32_t *)tree_memory(parent, 4 * words);
    r->d.trees.token = tree_memory(tokens, wide * words);
    if (c->vocab) {
        const size_t bytes = words * (size_t)c->vocab * (size_t)tree_score_bytes(c);
        for (int is_draft = 0; is_draft <= (c->rule >= SPECV_TREE_RECURSIVE); ++is_draft) {
            specv_scores *h = is_draft ? &r->h.draft : &r->h.target;
            specv_scores *d = is_draft ? &r->d.draft : &r->d.target;
            h->data = plan_tree_scores(r, c, token, target, is_draft);
            d->data = tree_memory(h->data, bytes);
            h->dtype = d->dtype = c->scores;
        }
    } else {
        r->h.target_tokens = targets, r->d.target_tokens = tree_memory(targets, wide * words);
    }
    if (c->rule != SPECV_TREE_GREEDY) {
        r->h.seed = seed, r->h.position = position;
        r->d.seed = (const uint64_t *)tree_memory(seed, 8 * (size_t)c->batch);
        r->d.position = (const int32_t *)tree_memory(position, 4 * (size_t)c->batch);
    }
    if (c->top_k) {
        r->d.filters.top_k = (const int32_t *)tree_memory(r->h.filters.top_k, 4 * (size_t)c->batch);
        r->d.filters.top_p = (const float *)tree_memory(r->h.filters.top_p, 4 * (size_t)c->batch);
    }
    r->h.scratch = tree_words((size_t)r->h.scratch_bytes + 16);
    r->d.scratch = tree_memory(r->h.scratch, (size_t)r->h.scratch_bytes + 16);
    void *out = tree_words((size_t)r->out_bytes);
    point_tree_outputs(&r->h, c, out);
    point_tree_outputs(&r->d, c, tree_memory(out, (size_t)r->out_bytes));
    status = specv_ref_verify_tree(&r->h);
    if (!status) status = launch_tree(r, 0, bench.stream);
    if (status) bench_fail("trees", status);
    check_tree_outputs(r, c);
    r->least = ((int64_t)wide + 4) * (int64_t)words;
    r->least += (int64_t)c->batch * (8 + 4 * (TREE_DEPTH + 1));
    r->least += c->vocab ? (int64_t)c->batch * (c->stop + 1) * tree_score_bytes(c) * c->vocab
                         : (int64_t)(wide * words);
    free(parent), free(token), free(target); /* what the descriptors point to stays */
}

#endif
