/* trees.cuh - A7: trees of 60 nodes, on each of which eight drafts in a row are what the target
   says, found by its ids or from its logits. Outputs are compared with the reference's. */

#ifndef SPECV_BENCH_TREES_CUH
#define SPECV_BENCH_TREES_CUH

enum { TREE_DEPTH = 8, TREE_WIDTH = 4 };

typedef struct trees_run {
    specv_verify_tree_desc d;
    int64_t least; /* bytes that must be read and written */
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
    void *memory = calloc(bytes, 1);
    if (!memory) bench_fail("no memory for trees", -1);
    return memory;
}

/* Nodes come in levels, of four children a parent as long as there is room. The third child of
   every node of the path is on it; a target that says something else ends it. vocab 0: ids. */
static void prepare_trees(trees_run *r, int batch, int nodes, int vocab) {
    const size_t words = (size_t)batch * (size_t)nodes, rows = vocab ? words : 0;
    int32_t *parent = (int32_t *)tree_words(4 * words), *token = (int32_t *)tree_words(4 * words);
    int32_t *target = (int32_t *)tree_words(4 * words), *out = (int32_t *)tree_words(12 * words);
    uint16_t *logits = (uint16_t *)tree_words(2 * rows * (size_t)vocab + 2);
    const int ids = vocab ? vocab : 1000;
    specv_verify_tree_desc d = SPECV_ZERO, h;
    int path_at[TREE_DEPTH + 1] = {0};
    for (int i = 1, on_path = 0, depth = 0; i < nodes; ++i) { /* a level has WIDTH nodes */
        const int level = (i - 1) / (nodes / TREE_DEPTH);
        if (level >= TREE_DEPTH) break;
        if (level > depth || i == 1) depth = level, on_path = i + (TREE_WIDTH - 2);
        if (i == on_path) path_at[level + 1] = i;
    }
    for (int b = 0; b < batch; ++b)
        for (int i = 0; i < nodes; ++i) {
            const int level = i ? (i - 1) / (nodes / TREE_DEPTH) : 0;
            const size_t at = (size_t)b * (size_t)nodes + (size_t)i;
            const int above = level > TREE_DEPTH - 1 ? TREE_DEPTH - 1 : level;
            parent[at] = i ? path_at[above] : -1;
            token[at] = (int32_t)((unsigned)(37 * i + 11 * b + 5) % (unsigned)ids);
            target[at] = ids - 1 - i;
        }
    for (int b = 0; b < batch; ++b)
        for (int depth = 0; depth < TREE_DEPTH; ++depth)
            target[b * nodes + path_at[depth]] = token[b * nodes + path_at[depth + 1]];
    for (size_t row = 0; row < rows; ++row)
        for (int x = 0; x < vocab; ++x)
            logits[row * (size_t)vocab + (size_t)x] =
                (uint16_t)(x == target[row] ? 0x4100 : 0x3f80 + (x * 7 + (int)row) % 64);
    d.trees.batch = batch, d.trees.max_nodes = nodes, d.max_depth = TREE_DEPTH, d.vocab = vocab;
    h = d;
    h.trees.parent = parent, h.trees.token = token;
    if (vocab)
        h.target.data = logits, h.target.dtype = SPECV_LOGITS_BF16;
    else
        h.target_tokens = target;
    h.scratch_bytes = vocab ? specv_verify_tree_scratch_bytes(batch, nodes, vocab) : 0;
    h.scratch = tree_words((size_t)h.scratch_bytes + 16);
    h.accepted_len = out, h.next_token = out + words, h.path = out + 2 * words;
    r->d = h;
    r->d.trees.parent = (const int32_t *)tree_memory(parent, 4 * words);
    r->d.trees.token = tree_memory(token, 4 * words);
    if (vocab)
        r->d.target.data = tree_memory(logits, 2 * rows * (size_t)vocab);
    else
        r->d.target_tokens = tree_memory(target, 4 * words);
    r->d.scratch = tree_memory(h.scratch, (size_t)h.scratch_bytes + 16);
    r->d.accepted_len = (int32_t *)tree_memory(out, 12 * words);
    r->d.next_token = r->d.accepted_len + words, r->d.path = r->d.accepted_len + 2 * words;
    int status = specv_ref_verify_tree(&h);
    if (!status) status = launch_tree(r, 0, bench.stream);
    if (status) bench_fail("trees", status);
    bench_wait();
    int32_t *got = (int32_t *)tree_words(12 * words);
    CUDA_CHECK(cudaMemcpy(got, r->d.accepted_len, 12 * words, cudaMemcpyDeviceToHost));
    if (memcmp(got, out, 12 * words) != 0) bench_fail("trees differ from the reference", -1);
    for (int b = 0; b < batch; ++b)
        if (out[b] != TREE_DEPTH) bench_fail("a path is not as long as it should be", out[b]);
    r->least = 8 * (int64_t)words + (int64_t)batch * (8 + 4 * (TREE_DEPTH + 1));
    r->least += vocab ? (int64_t)batch * (TREE_DEPTH + 1) * 2 * vocab : 4 * (int64_t)words;
    free(parent), free(token), free(target), free(logits), free(out), free(got), free(h.scratch);
}

static void cycle_trees(const cycles_case *c) {
    static trees_run run;
    bench_case b = make_case(OP_VERIFY, c->batch, c->gamma, 1, 2 * c->size);
    b.planes = 1, b.dtype = SPECV_I32;
    prepare_trees(&run, c->batch, c->gamma + 1, c->size);
    if (c->size)
        cycle_probes(&b, c->batch, SPECV_GROVE_THREADS);
    else
        cycle_probes(&b, (c->batch + 3) / 4, SPECV_TREE_THREADS);
    cycle_launch("trees", c->size ? "5 kit greedy" : "5 kit ids", &b, launch_tree, &run, run.least);
}

#endif
