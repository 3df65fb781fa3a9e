/* peers_trees.cu - draft trees of 60 nodes, ours beside SGLang's and TensorRT-LLM's kernels in one
   run: on the simulator cycles of each kernel, on ptxrun counts, a row of peers.csv. Built and run
   by peers.sh and peers_cycles.sh, with -DPEERS_SGLANG, -DPEERS_TRTLLM where their sources are.

     OUT greedy BATCH ACCEPTED          target ids: SGLang's accept_index and predicts
     OUT paths BATCH ACCEPTED           target ids: TensorRT-LLM's path and tokens
     OUT coin BATCH ACCEPTED VOCAB      probabilities: one number a node, SGLang's outputs

   Trees, scores and our outputs are those of trees.cuh, compared with the reference. A peer's path
   and drafts must be ours; where it draws a token, that must be the one that its number points to,
   which is a half everywhere. Our launch asks for what the peer's writes. What a peer needs set to
   zero before (SGLang: as many floats as the tree has scores) is not counted. */

#define SPECVERIFY_IMPLEMENTATION
#define SPECVERIFY_REF_STATIC
#define SPECVERIFY_REF_IMPLEMENTATION
#include <cuda_runtime.h>

#include "simulated.h"

#include "../specverify_ref.h"

#include "bench.h"
#include "peers.h"
#include "peers_pair.h"
#include "trees.cuh"

#if defined(BENCH_SIMULATED) /* it knows programs of one file */
#if defined(PEERS_SGLANG)
#include "peers_sglang.cu"
#endif
#if defined(PEERS_TRTLLM)
#include "peers_trtllm.cu"
#endif
#endif

enum { STEPS = TREE_DEPTH + 1 };

static trees_run run;

static void fail_tree(int b, const char *why) {
    printf("RESULT request %d: %s\n", b, why);
    exit(1);
}

static void fetch(void *to, const void *from, size_t bytes) {
    CUDA_CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost));
}

/* Device memory of bytes that are not 0, so that what a peer leaves alone shows. */
static void *poisoned(size_t bytes) {
    void *memory;
    CUDA_CHECK(cudaMalloc(&memory, bytes));
    CUDA_CHECK(cudaMemset(memory, 0xa5, bytes));
    return memory;
}

/* Ours, then theirs, twice: what fits is in the L2 the second time, and that one counts. */
static void run_pair(const trees_case *c, const char *peer, bench_launch theirs,
                     const void *context, peers_side *ours, peers_side *its) {
    for (int turn = 0; turn < 2; ++turn) {
        if (BENCH_IS_SIMULATED) printf("RESULT turn %d ours\n", turn), fflush(stdout);
        *ours = launch_side("ours", launch_tree, &run);
        if (BENCH_IS_SIMULATED) printf("RESULT turn %d %s\n", turn, peer), fflush(stdout);
        *its = launch_side(peer, theirs, context);
    }
    check_tree_outputs(&run, c);
}

#if defined(PEERS_SGLANG)
/* The same tree as first child and next sibling. */
static void describe_sglang(peer_tree *t, const trees_case *c) {
    const size_t words = (size_t)c->batch * (size_t)c->nodes;
    int64_t *links = (int64_t *)tree_words(3 * 8 * words);
    float *coins = (float *)tree_words(4 * words);
    memset(t, 0, sizeof *t);
    t->batch = c->batch, t->nodes = c->nodes, t->steps = STEPS, t->vocab = c->vocab;
    for (size_t i = 0; i < 2 * words; ++i) links[words + i] = -1;
    for (int b = 0; b < c->batch; ++b)
        for (int i = c->nodes - 1; i >= 0; --i) {
            int64_t *index = links + b * c->nodes, *next = index + words, *sibling = next + words;
            const int up = i ? run.path_at[tree_level(c, i)] : 0;
            index[i] = b * c->nodes + i, coins[b * c->nodes + i] = 0.5f;
            if (i) sibling[i] = next[up], next[up] = i;
        }
    t->candidates = (int64_t *)run.d.trees.token;
    t->target = (int64_t *)run.d.target_tokens;
    t->index = (int64_t *)tree_memory(links, 3 * 8 * words);
    t->next = t->index + words, t->sibling = t->next + words;
    t->coins = (float *)tree_memory(coins, 4 * words), t->last_coin = t->coins;
    t->predicts = (int32_t *)poisoned(4 * words);
    t->accept_index = (int32_t *)poisoned(4 * (size_t)c->batch * STEPS);
    t->accepted = (int32_t *)poisoned(4 * (size_t)c->batch);
    if (c->vocab) {
        t->p = (float *)run.d.target.data;
        CUDA_CHECK(cudaMalloc((void **)&t->q, 4 * words * (size_t)c->vocab));
        CUDA_CHECK(cudaMemset(t->q, 0, 4 * words * (size_t)c->vocab));
    }
    free(links), free(coins);
}

/* Is `token` where a half of the row without the node's children lies? */
static void judge_last(const trees_case *c, int b, int last, int token) {
    const float *p = (const float *)run.h.target.data + (b * c->nodes + last) * (int64_t)c->vocab;
    double before = 0, all = 0, here = 0;
    for (int x = 0; x < c->vocab; ++x) {
        double weight = p[x];
        for (int i = 1; i < c->nodes && c->stop < TREE_DEPTH; ++i)
            if (run.path_at[tree_level(c, i)] == last &&
                ((const int64_t *)run.h.trees.token)[b * c->nodes + i] == x)
                weight = 0;
        all += weight;
        if (x < token) before += weight;
        if (x == token) here = weight;
    }
    if (token < 0 || token >= c->vocab || here == 0) fail_tree(b, "a token that cannot be");
    if (before > 0.5 * all * 1.0001 || before + here < 0.5 * all * 0.9999)
        fail_tree(b, "not the token that a half points to");
}

static void judge_sglang(const peer_tree *t, const trees_case *c) {
    const size_t words = (size_t)c->batch * (size_t)c->nodes;
    int32_t *predicts = (int32_t *)tree_words(4 * words), *index = predicts;
    int32_t *accepted = (int32_t *)tree_words(4 * (size_t)c->batch);
    index = (int32_t *)tree_words(4 * (size_t)c->batch * STEPS);
    fetch(predicts, t->predicts, 4 * words);
    fetch(index, t->accept_index, 4 * (size_t)c->batch * STEPS);
    fetch(accepted, t->accepted, 4 * (size_t)c->batch);
    for (int b = 0; b < c->batch; ++b) {
        if (accepted[b] != run.h.accepted_len[b]) fail_tree(b, "accepted lengths differ");
        for (int j = 0; j <= accepted[b]; ++j) {
            const int32_t node = run.h.accept_index[b * STEPS + j];
            if (index[b * STEPS + j] != node) fail_tree(b, "paths differ");
            if (j == accepted[b] && c->vocab)
                judge_last(c, b, node - b * c->nodes, predicts[node]);
            else if (predicts[node] != ((const int64_t *)run.h.predicts)[node])
                fail_tree(b, "tokens differ");
        }
    }
    free(predicts), free(index), free(accepted);
}

static int launch_greedy(const void *context, int set, cudaStream_t stream) {
    (void)set;
    return peer_sglang_greedy((const peer_tree *)context, stream);
}

static int launch_coin(const void *context, int set, cudaStream_t stream) {
    (void)set;
    return peer_sglang_tree((const peer_tree *)context, stream);
}

static void compare_sglang(int batch, int stop, int vocab) {
    const trees_case c = {batch,
                          60,
                          vocab,
                          SPECV_PROBS_F32,
                          vocab ? SPECV_TREE_ONE_COIN : SPECV_TREE_GREEDY,
                          stop,
                          SPECV_I64,
                          TREE_INDEX | TREE_PREDICTS};
    char shape[64];
    peers_side ours, its;
    peer_tree t;
    prepare_trees(&run, &c);
    describe_sglang(&t, &c);
    if (vocab)
        snprintf(shape, sizeof shape, "B%d V%d accepted %d", batch, vocab, stop);
    else
        snprintf(shape, sizeof shape, "B%d accepted %d", batch, stop);
    run_pair(&c, "SGLang", vocab ? launch_coin : launch_greedy, &t, &ours, &its);
    judge_sglang(&t, &c);
    print_pair(vocab ? "SGLang tree of 60 / A7 one coin" : "SGLang greedy tree of 60 / A7 ids",
               shape, "SGLang", ours, its);
}
#endif

#if defined(PEERS_TRTLLM)
static int launch_paths(const void *context, int set, cudaStream_t stream) {
    (void)set;
    return peer_trtllm_paths((const peer_paths *)context, stream);
}

/* The same tree as a path to each leaf, in the order of the leaves. */
static void describe_paths(peer_paths *t, const trees_case *c) {
    const size_t words = (size_t)c->batch * (size_t)c->nodes;
    int32_t *paths = (int32_t *)tree_words(4 * words * STEPS);
    int32_t *drafts = (int32_t *)tree_words(4 * words);
    memset(paths, 0xff, 4 * words * STEPS);
    for (int b = 0; b < c->batch; ++b) {
        int32_t *path = paths + b * c->nodes * STEPS;
        for (int i = 1; i < c->nodes; ++i) {
            const int level = tree_level(c, i);
            drafts[b * (c->nodes - 1) + i - 1] =
                ((const int32_t *)run.h.trees.token)[b * c->nodes + i];
            if (level + 1 < TREE_DEPTH && i == run.path_at[level + 1]) continue;
            for (int j = 0; j <= level; ++j) path[j] = run.path_at[j];
            path[level + 1] = i, path += STEPS;
        }
    }
    t->batch = c->batch, t->nodes = c->nodes, t->steps = STEPS;
    t->paths = (int32_t *)tree_memory(paths, 4 * words * STEPS);
    t->drafts = (int32_t *)tree_memory(drafts, 4 * words);
    t->target = (int32_t *)run.d.target_tokens;
    t->out = (int32_t *)poisoned(4 * (size_t)c->batch * STEPS);
    t->accepted = (int32_t *)poisoned(4 * (size_t)c->batch);
    t->best = (int32_t *)poisoned(4 * (size_t)c->batch);
    free(paths), free(drafts);
}

static void judge_paths(const peer_paths *t, const trees_case *c) {
    const size_t columns = (size_t)c->batch * STEPS;
    int32_t *out = (int32_t *)tree_words(4 * columns), *best = (int32_t *)tree_words(4 * columns);
    int32_t *accepted = (int32_t *)tree_words(4 * columns);
    int32_t *path = (int32_t *)tree_words(4 * STEPS);
    fetch(out, t->out, 4 * columns);
    fetch(best, t->best, 4 * (size_t)c->batch);
    fetch(accepted, t->accepted, 4 * (size_t)c->batch);
    for (int b = 0; b < c->batch; ++b) {
        if (accepted[b] != run.h.accepted_len[b] + 1) fail_tree(b, "accepted lengths differ");
        if (best[b] < 0 || best[b] >= c->nodes) fail_tree(b, "no path is the best");
        fetch(path, t->paths + (b * c->nodes + best[b]) * STEPS, 4 * STEPS);
        for (int j = 0; j < accepted[b]; ++j) {
            const int32_t token = ((const int32_t *)run.h.out_tokens)[b * STEPS + j];
            if (path[j] != run.h.path[b * STEPS + j]) fail_tree(b, "paths differ");
            if (out[b * STEPS + j] != token) fail_tree(b, "tokens differ");
        }
    }
    free(out), free(best), free(accepted), free(path);
}

static void compare_paths(int batch, int stop) {
    const trees_case c = {batch, 60, 0, 0, 0, stop, SPECV_I32, TREE_PATH | TREE_TOKENS};
    char shape[64];
    peers_side ours, its;
    peer_paths t;
    prepare_trees(&run, &c);
    describe_paths(&t, &c);
    snprintf(shape, sizeof shape, "B%d accepted %d", batch, stop);
    run_pair(&c, "TensorRT-LLM", launch_paths, &t, &ours, &its);
    judge_paths(&t, &c);
    print_pair("TensorRT-LLM paths of 60 / A7 ids", shape, "TensorRT-LLM", ours, its);
}
#endif

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    const int batch = argc > 2 ? atoi(argv[2]) : 1, stop = argc > 3 ? atoi(argv[3]) : TREE_DEPTH;
    const int vocab = argc > 4 ? atoi(argv[4]) : 32000;
    int found = 0;
    (void)batch, (void)stop, (void)vocab;
    if (!BENCH_IS_SIMULATED) {
        bench.interpreted = ptxrun_count(NULL, "launches") >= 0;
        CUDA_CHECK(cudaStreamCreateWithFlags(&bench.stream, cudaStreamNonBlocking));
        if (!bench.interpreted) bench.l2_bytes = (int64_t)64 << 20;
        if (!bench.interpreted)
            CUDA_CHECK(cudaMalloc(&bench_flush_buffer, (size_t)(2 * bench.l2_bytes)));
    }
#if defined(PEERS_SGLANG)
    if (strcmp(what, "greedy") == 0) compare_sglang(batch, stop, 0), found = 1;
    if (strcmp(what, "coin") == 0) compare_sglang(batch, stop, vocab), found = 1;
#endif
#if defined(PEERS_TRTLLM)
    if (strcmp(what, "paths") == 0) compare_paths(batch, stop), found = 1;
#endif
    if (!found) fprintf(stderr, "peers_trees: no pair \"%s\", or its peer is not here\n", what);
    return !found;
}
