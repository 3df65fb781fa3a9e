/* peers.cu - kernels of other projects beside the kit's, on the same inputs: counted by ptxrun, or
   timed on a GPU, if there is one. Built and run by peers.sh, with -DPEERS_FLASHINFER, _SGLANG,
   _VLLM where their sources are.

   A pair is one step of each side between the same two moments: from what both read to a token, or
   to packed KV. Ours goes through its launchers, a peer's through its own host entry points. What
   either needs set to zero before is not counted.

   Ours is compared with the reference bit for bit. A peer's result is judged on the host: accepted
   drafts must be ours, and the last token must be the one that the peer's coin points to in the
   distribution; ours gets the same coin in a launch that is not counted, for its token to be
   compared. Peers stop reading where their coin points, so the seed is the one of 64 whose coins
   have the mean that is nearest to a half; of peers that draw until a filter keeps the id, the
   median of 9 seeds. */

#define SPECVERIFY_IMPLEMENTATION
#define SPECVERIFY_REF_STATIC
#define SPECVERIFY_REF_IMPLEMENTATION
#include <cuda_runtime.h>
#include <cub/cub.cuh>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>

#include "../specverify_ref.h"

#include "bench.h"
#include "cub_accepted.cuh"
#include "peers.h"
#include "peers_pair.h"

enum { MAX_SETS = 1, MAX_BATCH = 64 };

#define HOST_BYTES ((int64_t)128 << 20)

static char *arena, *host_in, *host_out; /* device; host: one set; host: what is fetched */

static int64_t align_up(int64_t bytes) { return (bytes + 255) / 256 * 256; }

#include "scores.cuh"

static const char *only; /* part of the names of the pairs that are wanted */

static int is_pair_wanted(const char *pair, const char *shape) {
    char name[160];
    snprintf(name, sizeof name, "%s %s", pair, shape);
    bench_random_state = 7; /* inputs are the same whatever came before */
    return !only || strstr(name, only);
}

static void fail_pair(const char *pair, const char *shape, int row, const char *why) {
    fprintf(stderr, "peers: %s, %s, request %d: %s\n", pair, shape, row, why);
    exit(1);
}

/* --------------------------------------------------------------------------------------- ours */

static scores_run run;

#if defined(PEERS_FLASHINFER) || defined(PEERS_SGLANG) || defined(PEERS_VLLM)
static peers_side launch_ours(void) {
    verify_scores(&run);
    return launch_side(run.mode->name, launch_scores, &run);
}

static char *ours_at(int field) { return run.base + run.of_all.at[field]; }

/* Device memory of a pair's peer, freed all together. Bytes are not 0, so that what a peer leaves
   alone shows. */
static void *taken[32];
static int num_taken;

static void *take(int64_t bytes, int fill) {
    void *memory;
    if (num_taken == (int)(sizeof taken / sizeof *taken)) bench_fail("too many buffers", -1);
    CUDA_CHECK(cudaMalloc(&memory, (size_t)bytes));
    CUDA_CHECK(cudaMemset(memory, fill, (size_t)bytes));
    taken[num_taken++] = memory;
    return memory;
}

static void *take_copy(const void *from, int64_t bytes) {
    void *memory = take(bytes, 0);
    CUDA_CHECK(cudaMemcpy(memory, from, (size_t)bytes, cudaMemcpyDefault));
    return memory;
}

static void give_all(void) {
    while (num_taken) CUDA_CHECK(cudaFree(taken[--num_taken]));
}

static void fetch(void *to, const void *from, int64_t bytes) {
    CUDA_CHECK(cudaMemcpy(to, from, (size_t)bytes, cudaMemcpyDeviceToHost));
}

/* The rows that request b's token is drawn from, on the host: max(p - q, 0); q null: p. */
static void draw_weights(int b, int position, int has_q, double *weights) {
    float *row = (float *)malloc(sizeof *row * (size_t)run.vocab);
    const int64_t row_bytes = run.vocab * 4, gamma = run.gamma;
    fetch(row, ours_at(FIELD_TARGET) + (b * (gamma + 1) + position) * row_bytes, row_bytes);
    for (int64_t x = 0; x < run.vocab; ++x) weights[x] = row[x];
    if (has_q) fetch(row, ours_at(FIELD_DRAFT) + (b * gamma + position) * row_bytes, row_bytes);
    for (int64_t x = 0; has_q && x < run.vocab; ++x)
        weights[x] = weights[x] > row[x] ? weights[x] - row[x] : 0;
    free(row);
}

static void soften(double *weights, int64_t vocab) {
    double most = weights[0];
    for (int64_t x = 1; x < vocab; ++x) most = weights[x] > most ? weights[x] : most;
    for (int64_t x = 0; x < vocab; ++x) weights[x] = exp(weights[x] - most);
}

/* Does the coin point to the token, as far as a sum of floats can tell? `scaled`: the coin is a
   part of all weight, else of 1. */
static int is_pointed_at(const double *weights, int64_t vocab, int64_t token, double coin,
                         int scaled) {
    double total = 0, before = 0;
    if (token < 0 || token >= vocab || !(weights[token] > 0)) return 0;
    for (int64_t x = 0; x < vocab; ++x) {
        if (x < token) before += weights[x];
        total += weights[x];
    }
    if (scaled) coin *= total;
    return coin >= before - 2e-5 * total && coin <= before + weights[token] + 2e-5 * total;
}

/* Tokens of ours when it is given the peer's coins: FIELD_NEXT, on the host. */
static const int32_t *draw_with_coins(const float *coins) {
    static int32_t tokens[MAX_BATCH];
    specv_verify_sample_desc verify = run.verify[0];
    specv_sample_desc sample = run.sample[0];
    int status;
    verify.sample_uniform = coins, sample.uniform = coins;
    CUDA_CHECK(cudaMemset(ours_at(FIELD_NEXT), 0xa5, (size_t)run.batch * 4));
    bench_wait();
    status = run.mode->drafts ? specv_verify_sample(&verify, bench.stream)
                              : specv_sample(&sample, bench.stream);
    if (status) bench_fail("with coins", status);
    bench_wait();
    fetch(tokens, ours_at(FIELD_NEXT), (int64_t)run.batch * 4);
    return tokens;
}

/* A token of each request where its coin points; ours, with the same coins, too. Returns how many
   of them are the same: sums of floats put some boundaries elsewhere. */
static int judge_tokens(const char *pair, const char *shape, const int32_t *tokens,
                        const float *coins, int position, int has_q) {
    double *weights = (double *)malloc(sizeof *weights * (size_t)run.vocab);
    const int is_logits = run.dtype == SPECV_LOGITS_F32;
    const int scaled = run.gamma > 0 || is_logits;
    float *coins_there = (float *)take_copy(coins, (int64_t)run.batch * 4);
    const int32_t *ours = draw_with_coins(coins_there);
    int same = 0;
    for (int b = 0; b < run.batch; ++b) {
        draw_weights(b, position, has_q, weights);
        if (is_logits) soften(weights, run.vocab);
        if (!is_pointed_at(weights, run.vocab, tokens[b], coins[b], scaled))
            fail_pair(pair, shape, b, "the peer's token is not where its coin points");
        if (!is_pointed_at(weights, run.vocab, ours[b], coins[b], 1))
            fail_pair(pair, shape, b, "our token is not where the peer's coin points");
        same += tokens[b] == ours[b];
    }
    fprintf(stderr, "   %s, %s: %d of %d tokens are the same from the same coins\n", pair, shape,
            same, run.batch);
    free(weights);
    return same;
}

/* Gumbel's noise cannot be made the same: a token must be one of those that noise can lift. */
static void judge_gumbel(const char *pair, const char *shape, const int32_t *tokens) {
    float *row = (float *)malloc(sizeof *row * (size_t)run.vocab);
    for (int b = 0; b < run.batch; ++b) {
        float most = -INFINITY;
        fetch(row, ours_at(FIELD_TARGET) + b * run.vocab * 4, run.vocab * 4);
        for (int64_t x = 0; x < run.vocab; ++x) most = row[x] > most ? row[x] : most;
        if (tokens[b] < 0 || tokens[b] >= run.vocab || row[tokens[b]] < most - 20)
            fail_pair(pair, shape, b, "the peer's token is no token of this row");
    }
    free(row);
}
#endif

/* --------------------------------------------------------------------------------- FlashInfer */

typedef struct peers_case {
    int batch, gamma, vocab, stop;
} peers_case;

#if defined(PEERS_FLASHINFER)

/* The seed whose coins have the mean nearest to a half, and these. */
static uint64_t choose_seed(int batch, int which, float *coins) {
    float *there = (float *)take(MAX_BATCH * 4, 0);
    double nearest = 2;
    uint64_t chosen = 0;
    for (uint64_t turn = 0; turn <= 64; ++turn) { /* the last once more, for its coins */
        const uint64_t seed = turn < 64 ? turn + 1 : chosen;
        double mean = 0;
        int status = peer_flashinfer_coins(seed, batch, which, there, bench.stream);
        if (status) bench_fail("coins", status);
        bench_wait();
        fetch(coins, there, (int64_t)batch * 4);
        for (int b = 0; b < batch; ++b) mean += coins[b] / batch;
        if (fabs(mean - 0.5) < nearest) nearest = fabs(mean - 0.5), chosen = seed;
    }
    return chosen;
}

static void judge_chain(const char *shape, const peers_case *c, const peer_verify *v,
                        const float *coins) {
    static const char pair[] = "FlashInfer chain / A3 probabilities";
    const int row = c->gamma + 1;
    int32_t *out = (int32_t *)malloc((size_t)(2 * c->batch * row + 2 * c->batch) * 4);
    int32_t *ours = out + c->batch * row, *emitted = ours + c->batch * row;
    int32_t tokens[MAX_BATCH];
    fetch(out, v->out, (int64_t)c->batch * row * 4);
    fetch(ours, ours_at(FIELD_OUT_TOKENS), (int64_t)c->batch * row * 4);
    fetch(emitted, v->emitted, (int64_t)c->batch * 4);
    for (int b = 0; b < c->batch; ++b) {
        if (emitted[b] != c->stop) fail_pair(pair, shape, b, "accepted lengths differ");
        for (int j = 0; j < row; ++j)
            if (j != c->stop && out[b * row + j] != ours[b * row + j])
                fail_pair(pair, shape, b, "emitted drafts differ");
        tokens[b] = out[b * row + c->stop];
    }
    judge_tokens(pair, shape, tokens, coins, c->stop, c->stop < c->gamma);
    free(out);
}

static int launch_chain(const void *context, int set, cudaStream_t stream) {
    (void)set;
    return peer_flashinfer_chain((const peer_verify *)context, stream);
}

static void compare_chain(const peers_case *c) {
    static const scores_mode mode = {"probs", "", "", SPECV_RULE_TOKEN, 1, 1, 1};
    const char *pair = "FlashInfer chain / A3 probabilities";
    const int64_t b = c->batch, n = c->gamma;
    const int rejected = c->stop < c->gamma;
    float coins[MAX_BATCH];
    peers_side ours, its;
    peer_verify v;
    char shape[64];
    snprintf(shape, sizeof shape, "B%d V%d n%d accepted %d", c->batch, c->vocab, c->gamma, c->stop);
    if (!is_pair_wanted(pair, shape)) return;
    prepare_planted_scores(&run, &mode, c->batch, c->gamma, c->vocab, SPECV_PROBS_F32, c->stop);
    ours = launch_ours();
    v.drafts = (const int32_t *)(void *)ours_at(FIELD_DRAFT_TOKENS);
    v.p = (float *)(void *)ours_at(FIELD_TARGET), v.q = (float *)(void *)ours_at(FIELD_DRAFT);
    v.out = (int32_t *)take(b * (n + 1) * 4, 0xa5);
    v.accepted = (int32_t *)take(b * 4, 0), v.emitted = (int32_t *)take(b * 4, 0); /* it adds */
    v.batch = c->batch, v.n = c->gamma, v.vocab = c->vocab;
    /* It tests every draft, one of them twice where it stops, before it draws. */
    v.seed = choose_seed(c->batch, c->gamma + rejected, coins);
    its = launch_side(pair, launch_chain, &v);
    judge_chain(shape, c, &v, coins);
    print_pair(pair, shape, "FlashInfer", ours, its);
    give_all();
}

enum { OF_LOGITS, OF_PROBS, BY_NOISE };

static int launch_of_logits(const void *context, int set, cudaStream_t stream) {
    const peer_sample *s = (const peer_sample *)context;
    const int status = peer_flashinfer_softmax(s, stream);
    (void)set;
    return status ? status : peer_flashinfer_cdf(s, s->probs, stream);
}

static int launch_of_probs(const void *context, int set, cudaStream_t stream) {
    const peer_sample *s = (const peer_sample *)context;
    (void)set;
    return peer_flashinfer_cdf(s, s->scores, stream);
}

static int launch_by_noise(const void *context, int set, cudaStream_t stream) {
    (void)set;
    return peer_flashinfer_gumbel((const peer_sample *)context, stream);
}

static void compare_samplers(int what, int batch, int vocab) {
    static const scores_mode modes[] = {{"cdf", "", "", SPECV_RULE_TOKEN, 0, 0, 0},
                                        {"cdf-probs", "", "", SPECV_RULE_TOKEN, 0, 1, 0},
                                        {"gumbel", "", "", SPECV_RULE_COUPLED, 0, 0, 0}};
    static const char *const pairs[] = {"FlashInfer softmax + CDF / A8 logits",
                                        "FlashInfer CDF / A8 probabilities",
                                        "FlashInfer Gumbel / A8 Gumbel"};
    static const bench_launch launches[] = {launch_of_logits, launch_of_probs, launch_by_noise};
    const char *pair = pairs[what];
    const int dtype = what == OF_PROBS ? SPECV_PROBS_F32 : SPECV_LOGITS_F32;
    const int64_t scores = (int64_t)batch * vocab * 4;
    int32_t tokens[MAX_BATCH];
    float coins[MAX_BATCH];
    peers_side ours, its;
    peer_sample s;
    char shape[64];
    snprintf(shape, sizeof shape, "B%d V%d", batch, vocab);
    if (!is_pair_wanted(pair, shape)) return;
    prepare_planted_scores(&run, &modes[what], batch, 0, vocab, dtype, 0);
    ours = launch_ours();
    s.scores = (float *)(void *)ours_at(FIELD_TARGET);
    s.probs = (float *)take(scores, 0xa5);
    s.token = (int32_t *)take(batch * 4, 0xa5);
    s.valid = (unsigned char *)take(batch, 0);
    s.workspace_bytes = 1 << 20, s.workspace = take(1 << 20, 0xa5);
    s.batch = batch, s.vocab = vocab;
    s.seed = choose_seed(batch, 0, coins);
    its = launch_side(pair, launches[what], &s);
    fetch(tokens, s.token, batch * 4);
    if (what == BY_NOISE)
        judge_gumbel(pair, shape, tokens);
    else
        judge_tokens(pair, shape, tokens, coins, 0, 0);
    print_pair(pair, shape, "FlashInfer", ours, its);
    give_all();
}

/* ---- top-k and top-p */

/* How FlashInfer filters: in one kernel behind the softmax, over masked rows, over the first k; by
   top-p alone, in one kernel behind the softmax. */
enum { FILTER_JOINT, FILTER_MASKED, FILTER_FIRST, FILTER_TOP_P };

static int launch_joint(const void *context, int set, cudaStream_t stream) {
    (void)set;
    return peer_flashinfer_joint((const peer_sample *)context, stream);
}

static int launch_masked(const void *context, int set, cudaStream_t stream) {
    (void)set;
    return peer_flashinfer_masked((const peer_sample *)context, stream);
}

static int launch_top_p(const void *context, int set, cudaStream_t stream) {
    (void)set;
    return peer_flashinfer_top_p((const peer_sample *)context, stream);
}

static int launch_first(const void *context, int set, cudaStream_t stream) {
    (void)set;
    return peer_flashinfer_first((const peer_sample *)context, stream);
}

/* Logits times a number, as temperature would have it, but for both sides in the inputs. */
static void sharpen(float sharpness) {
    const int64_t count = run.batch * run.vocab;
    float *rows = (float *)malloc(sizeof *rows * (size_t)count);
    fetch(rows, ours_at(FIELD_TARGET), count * 4);
    for (int64_t i = 0; i < count; ++i) rows[i] *= sharpness;
    CUDA_CHECK(cudaMemcpy(ours_at(FIELD_TARGET), rows, (size_t)count * 4, cudaMemcpyHostToDevice));
    free(rows);
}

static const double *ranked_weights;

static int compare_ranks(const void *a, const void *b) {
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    const double of_x = ranked_weights[x], of_y = ranked_weights[y];
    return of_x != of_y ? (of_x < of_y ? 1 : -1) : x < y ? -1 : x > y;
}

/* Weights of what top-k and top-p keep; 0 elsewhere. What top_p is a part of: all, or what top-k
   keeps. `slack`: ids are kept, too, that lie this part of it behind the end, which sums of floats
   put a little elsewhere. Returns how many ids are left. */
static int filter_weights(double *weights, const scores_mode *mode, double slack) {
    int32_t *ids = (int32_t *)malloc(sizeof *ids * (size_t)run.vocab);
    const int of_all = mode->order == SPECV_TOP_P_OF_ALL;
    double total = 0, before = 0;
    int num_kept = 0;
    for (int64_t x = 0; x < run.vocab; ++x) ids[x] = (int32_t)x;
    ranked_weights = weights;
    qsort(ids, (size_t)run.vocab, sizeof *ids, compare_ranks);
    const int64_t top_k = mode->top_k ? mode->top_k : run.vocab; /* 0: all */
    for (int64_t i = 0; i < (of_all ? run.vocab : top_k); ++i) total += weights[ids[i]];
    for (int64_t i = 0; i < run.vocab; ++i) {
        const double weight = weights[ids[i]];
        if (i < top_k && before < (mode->top_p + slack) * total)
            ++num_kept;
        else
            weights[ids[i]] = 0;
        before += weight;
    }
    free(ids);
    return num_kept;
}

/* The peer draws until an id is kept, each time with another coin: its token must be one of those
   that are. Ours must be where one coin points in what is kept. Returns how many the last row
   keeps. */
static int judge_filtered(const char *pair, const char *shape, const int32_t *tokens,
                          const float *coins) {
    double *weights = (double *)malloc(sizeof *weights * (size_t)run.vocab);
    float *coins_there = (float *)take_copy(coins, (int64_t)run.batch * 4);
    const int32_t *ours = draw_with_coins(coins_there);
    int num_kept = 0;
    for (int b = 0; b < run.batch; ++b) {
        draw_weights(b, 0, 0, weights);
        soften(weights, run.vocab);
        filter_weights(weights, run.mode, 2e-5);
        if (tokens[b] < 0 || tokens[b] >= run.vocab || !(weights[tokens[b]] > 0))
            fail_pair(pair, shape, b, "the peer's token is none of those that are kept");
        draw_weights(b, 0, 0, weights);
        soften(weights, run.vocab);
        num_kept = filter_weights(weights, run.mode, 0);
        if (!is_pointed_at(weights, run.vocab, ours[b], coins[b], 1))
            fail_pair(pair, shape, b, "our token is not where the coin points");
    }
    free(weights);
    return num_kept;
}

/* What the peer reads and writes, of `run`. */
static peer_sample describe_filters_of_peer(void) {
    const int64_t batch = run.batch;
    peer_sample s = SPECV_ZERO;
    s.scores = (float *)(void *)ours_at(FIELD_TARGET);
    s.probs = (float *)take(batch * run.vocab * 4, 0xa5);
    s.token = (int32_t *)take(batch * 4, 0xa5);
    s.valid = (unsigned char *)take(batch, 0);
    s.workspace_bytes = 1 << 20, s.workspace = take(1 << 20, 0xa5);
    s.row_states = take(1 << 20, 0);
    s.batch = run.batch, s.vocab = (int)run.vocab;
    s.top_k = run.mode->top_k ? run.mode->top_k : (int)run.vocab, s.top_p = run.mode->top_p;
    s.kept = (int32_t *)take(batch * s.top_k * 4, 0xa5);
    s.kept_score = (float *)take(batch * s.top_k * 4, 0xa5);
    return s;
}

/* Its tokens, on the host; PyTorch looks up what is at a place of the first k. */
static void fetch_filtered(const peer_sample *s, int how, int32_t *tokens) {
    fetch(tokens, s->token, (int64_t)s->batch * 4);
    for (int b = 0; b < s->batch && how == FILTER_FIRST; ++b) {
        if (tokens[b] < 0 || tokens[b] >= s->top_k) bench_fail("no place of the first k", b);
        fetch(&tokens[b], s->kept + (int64_t)b * s->top_k + tokens[b], 4);
    }
}

/* How often a peer draws is left to its coins, so its figures are those of the median seed. */
static void compare_filters(int how, int batch, int vocab, float sharpness) {
    enum { NUM_SEEDS = 9 };
    static const scores_mode modes[] = {
        {"cdf-k50-p90-all", "", "", SPECV_RULE_TOKEN, 0, 0, 0, 50, 0.9f, 0, SPECV_TOP_P_OF_ALL},
        {"cdf-k50-p90", "", "", SPECV_RULE_TOKEN, 0, 0, 0, 50, 0.9f, 0, SPECV_TOP_K_TOP_P_MIN_P},
        {"cdf-k50-p90", "", "", SPECV_RULE_TOKEN, 0, 0, 0, 50, 0.9f, 0, SPECV_TOP_K_TOP_P_MIN_P},
        {"cdf-p90", "", "", SPECV_RULE_TOKEN, 0, 0, 0, 0, 0.9f, 0, 0}};
    static const char *const pairs[] = {
        "FlashInfer joint / A8 top-k top-p of all", "FlashInfer masked / A8 top-k top-p",
        "FlashInfer top-k first / A8 top-k top-p", "FlashInfer top-p / A8 top-p"};
    static const bench_launch launches[] = {launch_joint, launch_masked, launch_first,
                                            launch_top_p};
    const char *pair = pairs[how];
    int32_t tokens[MAX_BATCH];
    float coins[MAX_BATCH], *coins_there;
    peers_side ours, its[NUM_SEEDS];
    peer_sample s;
    char shape[64];
    int status, num_kept = 0;
    snprintf(shape, sizeof shape, "B%d V%d T%.2g", batch, vocab, 1 / sharpness);
    if (!is_pair_wanted(pair, shape)) return;
    prepare_planted_scores(&run, &modes[how], batch, 0, vocab, SPECV_LOGITS_F32, 0);
    sharpen(sharpness);
    ours = launch_ours();
    s = describe_filters_of_peer();
    coins_there = (float *)take(MAX_BATCH * 4, 0);
    for (int turn = 0; turn < NUM_SEEDS; ++turn) {
        s.seed = (uint64_t)turn + 1;
        status = peer_flashinfer_coins(s.seed, batch, 0, coins_there, bench.stream);
        if (status) bench_fail("coins", status);
        CUDA_CHECK(cudaMemsetAsync(s.token, 0xa5, (size_t)batch * 4, bench.stream));
        its[turn] = launch_side(pair, launches[how], &s);
        fetch(coins, coins_there, (int64_t)batch * 4);
        fetch_filtered(&s, how, tokens);
        num_kept = judge_filtered(pair, shape, tokens, coins);
        time_side(&its[turn]);
    }
    fprintf(stderr, "   %s, %s: all tokens are among the %d that are kept\n", pair, shape,
            num_kept);
    qsort(its, NUM_SEEDS, sizeof *its, compare_sides);
    print_pair(pair, shape, "FlashInfer", ours, its[NUM_SEEDS / 2]);
    give_all();
}

static void compare_with_flashinfer(void) {
    static const peers_case chains[] = {{1, 5, 32000, 2},
                                        {1, 5, 32000, 5},
                                        {16, 5, 32000, 2},
                                        {32, 5, 32000, 2},
                                        {1, 8, 128256, 2}};
    for (size_t i = 0; i < sizeof chains / sizeof *chains; ++i) compare_chain(&chains[i]);
    for (int what = OF_LOGITS; what <= BY_NOISE; ++what) {
        compare_samplers(what, 1, 32000);
        compare_samplers(what, 16, 128256);
    }
    for (int how = FILTER_JOINT; how <= FILTER_TOP_P; ++how) {
        compare_filters(how, 1, 128256, 1);
        compare_filters(how, 1, 128256, 4);
    }
}
#endif

/* ------------------------------------------------------------------------------------- SGLang */

#if defined(PEERS_SGLANG)

static void judge_tree(const char *pair, const char *shape, const peers_case *c, const peer_tree *t,
                       const float *coins) {
    const int row = c->gamma + 1;
    int32_t *out = (int32_t *)malloc((size_t)(3 * c->batch * row + c->batch) * 4);
    int32_t *ours = out + c->batch * row, *index = ours + c->batch * row;
    int32_t *accepted = index + c->batch * row, tokens[MAX_BATCH];
    fetch(out, t->predicts, (int64_t)c->batch * row * 4);
    fetch(index, t->accept_index, (int64_t)c->batch * row * 4);
    fetch(ours, ours_at(FIELD_OUT_TOKENS), (int64_t)c->batch * row * 4);
    fetch(accepted, t->accepted, (int64_t)c->batch * 4);
    for (int b = 0; b < c->batch; ++b) {
        if (accepted[b] != c->stop) fail_pair(pair, shape, b, "accepted lengths differ");
        for (int j = 0; j < c->stop; ++j)
            if (out[b * row + j] != ours[b * row + j] || index[b * row + j] != b * row + j)
                fail_pair(pair, shape, b, "emitted drafts differ");
        tokens[b] = out[b * row + c->stop];
    }
    judge_tokens(pair, shape, tokens, coins, c->stop, 0);
    free(out);
}

/* The tree's arrays for chains: node j + 1 is draft j, its parent node j. */
static void plant_chain(peer_tree *t, const peers_case *c, float *last_coins) {
    const int64_t row = c->gamma + 1, nodes = c->batch * row;
    int64_t *links = (int64_t *)malloc((size_t)nodes * 4 * 8);
    float *coins = (float *)malloc((size_t)nodes * 4);
    int32_t *drafts = (int32_t *)malloc((size_t)nodes * 4);
    fetch(drafts, ours_at(FIELD_DRAFT_TOKENS), (int64_t)c->batch * c->gamma * 4);
    for (int64_t i = 0; i < nodes; ++i) {
        const int64_t b = i / row, j = i % row;
        links[i] = j ? drafts[b * c->gamma + j - 1] : 0;
        links[nodes + i] = i;
        links[2 * nodes + i] = j < c->gamma ? j + 1 : -1;
        links[3 * nodes + i] = -1;
        coins[i] = 0.5f; /* p is 1 or more at a draft to accept, 0 at the other */
        last_coins[b] = ((float)b + 0.5f) / (float)c->batch;
    }
    t->candidates = (int64_t *)take_copy(links, nodes * 4 * 8);
    t->index = t->candidates + nodes, t->next = t->index + nodes, t->sibling = t->next + nodes;
    t->coins = (float *)take_copy(coins, nodes * 4);
    t->last_coin = (float *)take_copy(last_coins, (int64_t)c->batch * 4);
    free(links), free(coins), free(drafts);
}

static int launch_tree(const void *context, int set, cudaStream_t stream) {
    (void)set;
    return peer_sglang_tree((const peer_tree *)context, stream);
}

static void compare_tree(const peers_case *c) {
    static const scores_mode mode = {"one-hot-probs", "", "", SPECV_RULE_TOKEN, 0, 1, 1};
    const char *pair = "SGLang tree as a chain / A3 one-hot";
    const int64_t nodes = (int64_t)c->batch * (c->gamma + 1);
    float coins[MAX_BATCH];
    peers_side ours, its;
    peer_tree t;
    char shape[64];
    snprintf(shape, sizeof shape, "B%d V%d n%d accepted %d", c->batch, c->vocab, c->gamma, c->stop);
    if (!is_pair_wanted(pair, shape)) return;
    prepare_planted_scores(&run, &mode, c->batch, c->gamma, c->vocab, SPECV_PROBS_F32, c->stop);
    ours = launch_ours();
    t.batch = c->batch, t.nodes = t.steps = c->gamma + 1, t.vocab = c->vocab;
    t.p = (float *)(void *)ours_at(FIELD_TARGET);
    t.q = (float *)take(nodes * c->vocab * 4, 0);
    t.predicts = (int32_t *)take(nodes * 4, 0xa5);
    t.accept_index = (int32_t *)take(nodes * 4, 0xa5);
    t.accepted = (int32_t *)take(c->batch * 4, 0xa5);
    plant_chain(&t, c, coins);
    its = launch_side(pair, launch_tree, &t);
    judge_tree(pair, shape, c, &t, coins);
    print_pair(pair, shape, "SGLang", ours, its);
    give_all();
}

static void compare_with_sglang(void) {
    static const peers_case trees[] = {
        {1, 5, 32000, 2}, {1, 5, 32000, 5}, {16, 5, 32000, 2}, {1, 8, 128256, 2}};
    for (size_t i = 0; i < sizeof trees / sizeof *trees; ++i) compare_tree(&trees[i]);
}
#endif

/* --------------------------------------------------------------------------------------- vLLM */

#if defined(PEERS_VLLM)

static int launch_noise(const void *context, int set, cudaStream_t stream) {
    (void)set;
    return peer_vllm_gumbel((const peer_noise *)context, stream);
}

/* Its noise cannot be made ours; the best tile, which PyTorch finds for it, is found here. */
static void compare_noise(int batch, int vocab) {
    static const scores_mode mode = {"gumbel", "", "", SPECV_RULE_COUPLED, 0, 0, 0};
    const char *pair = "vLLM Gumbel / A8 Gumbel";
    const int64_t tiles = (vocab + 1023) / 1024;
    int64_t *tile_token = (int64_t *)malloc((size_t)(batch * tiles) * 8);
    double *tile_best = (double *)malloc((size_t)(batch * tiles) * 8);
    float ones[MAX_BATCH];
    int32_t rows[MAX_BATCH], tokens[MAX_BATCH];
    int64_t positions[MAX_BATCH];
    peers_side ours, its;
    peer_noise s;
    char shape[64];
    snprintf(shape, sizeof shape, "B%d V%d", batch, vocab);
    if (!is_pair_wanted(pair, shape)) return;
    prepare_planted_scores(&run, &mode, batch, 0, vocab, SPECV_LOGITS_F32, 0);
    ours = launch_ours();
    for (int b = 0; b < batch; ++b) ones[b] = 1, rows[b] = b, positions[b] = 100 + b;
    s.tile_token = (int64_t *)take(batch * tiles * 8, 0xa5);
    s.tile_best = (double *)take(batch * tiles * 8, 0xff); /* not a number */
    s.logits = (float *)(void *)ours_at(FIELD_TARGET);
    s.temperature = (float *)take_copy(ones, batch * 4);
    s.row = (int32_t *)take_copy(rows, batch * 4);
    s.seed = (int64_t *)(void *)ours_at(FIELD_SEED);
    s.position = (int64_t *)take_copy(positions, batch * 8);
    s.batch = batch, s.vocab = vocab;
    its = launch_side(pair, launch_noise, &s);
    fetch(tile_token, s.tile_token, batch * tiles * 8);
    fetch(tile_best, s.tile_best, batch * tiles * 8);
    for (int b = 0; b < batch; ++b) {
        int64_t best = b * tiles;
        for (int64_t t = b * tiles; t < (b + 1) * tiles; ++t) {
            if (tile_token[t] / 1024 != t - b * tiles || !(tile_best[t] > -1e9))
                fail_pair(pair, shape, b, "a tile's token is not of the tile");
            if (tile_best[t] > tile_best[best]) best = t;
        }
        tokens[b] = (int32_t)tile_token[best];
    }
    judge_gumbel(pair, shape, tokens);
    print_pair(pair, shape, "vLLM", ours, its);
    free(tile_token), free(tile_best);
    give_all();
}

/* The token that wins the race of max(p - q, 0) against the noise, in floats as the kernel's. */
static int32_t winner_of(int position, const float *inverse) {
    float *p = (float *)malloc((size_t)run.vocab * 8), *q = p + run.vocab, most = -1;
    int32_t winner = -1;
    fetch(p, ours_at(FIELD_TARGET) + position * run.vocab * 4, run.vocab * 4);
    fetch(q, ours_at(FIELD_DRAFT) + position * run.vocab * 4, run.vocab * 4);
    for (int64_t x = 0; x < run.vocab; ++x) {
        const float gain = (p[x] > q[x] ? p[x] - q[x] : 0) * inverse[x];
        if (gain > most) most = gain, winner = (int32_t)x;
    }
    free(p);
    return winner;
}

static int launch_race(const void *context, int set, cudaStream_t stream) {
    (void)set;
    return peer_vllm_reject((const peer_race *)context, stream);
}

/* One request: p of its drafts lies there without the row behind them, as vLLM has it. */
static void compare_race(const peers_case *c) {
    static const scores_mode mode = {"probs", "", "", SPECV_RULE_TOKEN, 1, 1, 1};
    const char *pair = "vLLM V1 race / A3 probabilities";
    float *inverse = (float *)malloc((size_t)c->vocab * 4);
    double coins[MAX_BATCH];
    int32_t drafts[MAX_BATCH], out[MAX_BATCH], bonus = 7;
    peers_side ours, its;
    peer_race r;
    char shape[64];
    snprintf(shape, sizeof shape, "B1 V%d n%d accepted %d", c->vocab, c->gamma, c->stop);
    if (!is_pair_wanted(pair, shape)) return;
    prepare_planted_scores(&run, &mode, 1, c->gamma, c->vocab, SPECV_PROBS_F32, c->stop);
    ours = launch_ours();
    for (int x = 0; x < c->vocab; ++x) inverse[x] = (float)(-1 / log(1 - bench_uniform() * 0.999));
    for (int j = 0; j < c->gamma; ++j) coins[j] = 0.5;
    r.batch = 1, r.n = c->gamma, r.vocab = c->vocab;
    r.p = (float *)(void *)ours_at(FIELD_TARGET), r.q = (float *)(void *)ours_at(FIELD_DRAFT);
    r.drafts = (int32_t *)(void *)ours_at(FIELD_DRAFT_TOKENS);
    r.inverse = (float *)take_copy(inverse, c->vocab * 4);
    r.coins = (double *)take_copy(coins, c->gamma * 8);
    r.ends = (int32_t *)take_copy(&c->gamma, 4), r.bonus = (int32_t *)take_copy(&bonus, 4);
    r.recovered = (int32_t *)take(c->gamma * 4, 0xa5);
    r.out = (int32_t *)take((c->gamma + 1) * 4, 0xff);
    r.is_greedy = (unsigned char *)take(1, 0);
    its = launch_side(pair, launch_race, &r);
    fetch(out, r.out, (c->gamma + 1) * 4);
    fetch(drafts, r.drafts, c->gamma * 4);
    for (int j = 0; j <= c->gamma; ++j) {
        const int32_t wanted = j < c->stop          ? drafts[j]
                               : j > c->stop        ? -1
                               : c->stop < c->gamma ? winner_of(j, inverse)
                                                    : bonus;
        if (out[j] != wanted) fail_pair(pair, shape, 0, "the peer's tokens are others");
    }
    print_pair(pair, shape, "vLLM", ours, its);
    free(inverse);
    give_all();
}

/* A token behind the drafts that the residual, or p itself, can give. */
static void judge_logits(const char *pair, const char *shape, const peers_case *c,
                         const peer_logits *l, const int32_t *drafts) {
    const int row = c->gamma + 1;
    int64_t out[MAX_BATCH * 16], num_out[MAX_BATCH];
    double *p = (double *)malloc(sizeof *p * 2 * (size_t)run.vocab), *q = p + run.vocab;
    float *scores = (float *)malloc((size_t)run.vocab * 4);
    if (row > 16) bench_fail("too many drafts", -1);
    fetch(out, l->out, (int64_t)c->batch * row * 8);
    fetch(num_out, l->num_out, (int64_t)c->batch * 8);
    for (int b = 0; b < c->batch; ++b) {
        const int64_t token = out[b * row + c->stop];
        if (num_out[b] != c->stop + 1) fail_pair(pair, shape, b, "accepted lengths differ");
        for (int j = 0; j < c->stop; ++j)
            if (out[b * row + j] != drafts[b * row + j + 1])
                fail_pair(pair, shape, b, "emitted drafts differ");
        draw_weights(b, c->stop, 0, p), soften(p, run.vocab);
        fetch(scores, ours_at(FIELD_DRAFT) + (b * c->gamma + c->stop) * run.vocab * 4,
              run.vocab * 4);
        for (int64_t x = 0; x < run.vocab; ++x) q[x] = scores[x];
        soften(q, run.vocab);
        double p_sum = 0, q_sum = 0;
        for (int64_t x = 0; x < run.vocab; ++x) p_sum += p[x], q_sum += q[x];
        if (token < 0 || token >= run.vocab || p[token] / p_sum < q[token] / q_sum * (1 - 1e-5))
            fail_pair(pair, shape, b, "the peer's token is none of the residual");
    }
    free(p), free(scores);
}

static int launch_logits(const void *context, int set, cudaStream_t stream) {
    (void)set;
    return peer_vllm_logits((const peer_logits *)context, stream);
}

static void compare_logits(const peers_case *c) {
    static const scores_mode mode = {"token", "", "", SPECV_RULE_TOKEN, 1, 0, 1};
    const char *pair = "vLLM V2 sampler / A3 logits";
    const int64_t row = c->gamma + 1, places = c->batch * row;
    const int64_t blocks = (c->vocab + 8191) / 8192, tiles = (c->vocab + 1023) / 1024;
    int32_t given[MAX_BATCH * 16], drafts[MAX_BATCH * 16], rows[MAX_BATCH * 16];
    int32_t steps[MAX_BATCH * 16], ends[MAX_BATCH + 1], requests[MAX_BATCH];
    int64_t positions[MAX_BATCH * 16];
    float ones[MAX_BATCH];
    peers_side ours, its;
    peer_logits l;
    char shape[64];
    snprintf(shape, sizeof shape, "B%d V%d n%d accepted %d", c->batch, c->vocab, c->gamma, c->stop);
    if (!is_pair_wanted(pair, shape)) return;
    prepare_planted_scores(&run, &mode, c->batch, c->gamma, c->vocab, SPECV_LOGITS_F32, c->stop);
    ours = launch_ours();
    fetch(given, ours_at(FIELD_DRAFT_TOKENS), (int64_t)c->batch * c->gamma * 4);
    for (int i = 0; i < places; ++i) {
        const int b = i / (int)row, j = i % (int)row;
        drafts[i] = j ? given[b * c->gamma + j - 1] : 0;
        rows[i] = requests[b] = b, steps[i] = j, positions[i] = 100 + 7 * b + j;
        ones[b] = 1, ends[b] = b * (int)row, ends[b + 1] = (b + 1) * (int)row;
    }
    l.batch = c->batch, l.n = c->gamma, l.vocab = c->vocab;
    l.p = (float *)(void *)ours_at(FIELD_TARGET), l.q = (float *)(void *)ours_at(FIELD_DRAFT);
    l.temperature = (float *)take_copy(ones, c->batch * 4);
    l.p_max = (float *)take(places * blocks * 4, 0xff),
    l.p_sum = (float *)take(places * blocks * 4, 0);
    l.q_max = (float *)take(places * blocks * 4, 0xff),
    l.q_sum = (float *)take(places * blocks * 4, 0);
    l.p_lse = (float *)take(c->batch * 4, 0), l.q_lse = (float *)take(c->batch * 4, 0);
    l.p_argmax = (int64_t *)take(places * blocks * 8, 0xa5);
    l.tile_token = (int64_t *)take(c->batch * tiles * 8, 0xa5);
    l.tile_best = (double *)take(c->batch * tiles * 8, 0xa5);
    l.out = (int64_t *)take(places * 8, 0xa5), l.num_out = (int64_t *)take(c->batch * 8, 0xa5);
    l.seed = (int64_t *)(void *)ours_at(FIELD_SEED);
    l.position = (int64_t *)take_copy(positions, places * 8);
    l.drafts = (int32_t *)take_copy(drafts, places * 4);
    l.row = (int32_t *)take_copy(rows, places * 4),
    l.step = (int32_t *)take_copy(steps, places * 4);
    l.ends = (int32_t *)take_copy(ends, (c->batch + 1) * 4);
    l.request = (int32_t *)take_copy(requests, c->batch * 4);
    its = launch_side(pair, launch_logits, &l);
    judge_logits(pair, shape, c, &l, drafts);
    print_pair(pair, shape, "vLLM", ours, its);
    give_all();
}

static void compare_with_vllm(void) {
    static const peers_case races[] = {{1, 5, 32000, 2}, {1, 5, 32000, 5}, {1, 8, 128256, 2}};
    static const peers_case logits[] = {{1, 5, 32000, 2}, {16, 5, 32000, 2}, {1, 8, 128256, 2}};
    compare_noise(1, 32000);
    compare_noise(16, 128256);
    for (size_t i = 0; i < sizeof races / sizeof *races; ++i) compare_race(&races[i]);
    for (size_t i = 0; i < sizeof logits / sizeof *logits; ++i) compare_logits(&logits[i]);
}
#endif

/* ---------------------------------------------------------------------------------------- CUB */

typedef struct pack_run {
    specv_pack_kv_desc d;
    int64_t *selected;
    void *scratch; /* CUB's */
    size_t scratch_bytes;
} pack_run;

static int launch_pack(const void *context, int set, cudaStream_t stream) {
    (void)set;
    return specv_pack_kv(&((const pack_run *)context)->d, stream);
}

/* Offsets, then the accepted units: what B1 does in one launch. */
static int launch_cub(const void *context, int set, cudaStream_t stream) {
    const pack_run *r = (const pack_run *)context;
    const specv_pack_kv_desc *d = &r->d;
    const int64_t units = d->kv.row_bytes / 16, gamma = d->rows.max_draft;
    unit_is_accepted accepted = {d->accepted_len, units, (int)gamma};
    auto flags =
        thrust::make_transform_iterator(thrust::make_counting_iterator((int64_t)0), accepted);
    size_t bytes = r->scratch_bytes;
    int status = (int)cub::DeviceScan::ExclusiveSum(r->scratch, bytes, d->accepted_len,
                                                    d->kv.offsets, d->rows.batch, stream);
    (void)set;
    if (status) return status;
    bytes = r->scratch_bytes;
    return (int)cub::DeviceSelect::Flagged(r->scratch, bytes, (const uint4 *)d->kv.src, flags,
                                           (uint4 *)d->kv.dst, r->selected,
                                           d->rows.batch * gamma * units, stream);
}

static void compare_pack(int batch, int gamma, int64_t row_bytes) {
    const char *pair = "CUB scan + select / B1";
    const int64_t kv = batch * gamma * row_bytes;
    int32_t lens[MAX_BATCH];
    int64_t accepted = 0;
    pack_run r = SPECV_ZERO;
    specv_pack_kv_desc *d = &r.d;
    peers_side ours, its;
    char shape[64], *at = arena;
    snprintf(shape, sizeof shape, "B%d n%d rows of %lld bytes", batch, gamma, (long long)row_bytes);
    if (!is_pair_wanted(pair, shape)) return;
    for (int b = 0; b < batch; ++b) accepted += lens[b] = bench_accepted(gamma, 0.8, 0);
    for (int64_t i = 0; i < kv / 8; ++i) ((uint64_t *)(void *)host_in)[i] = bench_random();
    d->rows.batch = batch, d->rows.max_draft = gamma;
    d->accepted_len = (int32_t *)(void *)at, at += 1024;
    d->kv.offsets = (int32_t *)(void *)at, at += 1024;
    d->kv.src = at, at += kv, d->kv.dst = at, at += kv;
    d->kv.row_bytes = row_bytes, d->kv.capacity_rows = batch * gamma;
    r.selected = (int64_t *)(void *)at, r.scratch = at + 256, r.scratch_bytes = 16 << 20;
    CUDA_CHECK(cudaMemcpy(arena, lens, (size_t)batch * 4, cudaMemcpyHostToDevice));
    CUDA_CHECK(cudaMemcpy((void *)d->kv.src, host_in, (size_t)kv, cudaMemcpyHostToDevice));
    for (int is_ours = 1; is_ours >= 0; --is_ours) {
        char *packed = host_out;
        int64_t from = 0;
        CUDA_CHECK(cudaMemset(d->kv.dst, 0xa5, (size_t)kv));
        *(is_ours ? &ours : &its) = launch_side(pair, is_ours ? launch_pack : launch_cub, &r);
        CUDA_CHECK(cudaMemcpy(host_out, d->kv.dst, (size_t)kv, cudaMemcpyDeviceToHost));
        for (int b = 0; b < batch; ++b) {
            if (memcmp(packed, host_in + from, (size_t)(lens[b] * row_bytes)) != 0)
                fail_pair(pair, shape, b, is_ours ? "our KV differs" : "the peer's KV differs");
            packed += lens[b] * row_bytes, from += gamma * row_bytes;
        }
    }
    print_pair(pair, shape, "CUB", ours, its);
}

/* --------------------------------------------------------------------------------------- main */

int main(int argc, char **argv) {
    if (argc > 1) only = argv[1];
    bench.interpreted = ptxrun_count(NULL, "launches") >= 0;
    if (!bench.interpreted) bench_print_machine("-O3; peers with fast arithmetic");
    CUDA_CHECK(cudaStreamCreateWithFlags(&bench.stream, cudaStreamNonBlocking));
    if (!bench.interpreted)
        CUDA_CHECK(cudaMalloc(&bench_flush_buffer, (size_t)(2 * bench.l2_bytes)));
    bench.quick = 1, bench.arena_bytes = (int64_t)128 << 20, bench.replays = 10;
    CUDA_CHECK(cudaMalloc(&arena, (size_t)bench.arena_bytes));
    CUDA_CHECK(cudaMallocHost(&host_in, (size_t)HOST_BYTES));
    CUDA_CHECK(cudaMallocHost(&host_out, (size_t)HOST_BYTES));
    print_pair_columns();
#if defined(PEERS_FLASHINFER)
    compare_with_flashinfer();
#endif
#if defined(PEERS_SGLANG)
    compare_with_sglang();
#endif
#if defined(PEERS_VLLM)
    compare_with_vllm();
#endif
    compare_pack(32, 8, 4096);
    compare_pack(32, 8, 65536);
    CUDA_CHECK(cudaDeviceSynchronize());
    return 0;
}
