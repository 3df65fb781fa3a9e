/* cycles.cuh - the cases of cycles.sh: one launch of each, on ptxrun or on GPGPU-Sim.

   Every operation of the kit at the sizes at which engines run, beside the variants of
   variants.cuh. On the simulator the floors come first: a chain of 1 to 3 loads in the grid of the
   operation, a read of the bytes that it must read, a copy of
   those that it must move. Every launch follows another one of the same, whose results are the
   reference's: caches are warm where they are large enough.

   Each launch is announced by a line "RESULT row,..." and ended by "RESULT end": the simulator
   prints what its kernels took in between. On ptxrun a row of counts stands behind the names. On a
   GPU `bench cases` times the same launches. */

#ifndef SPECV_BENCH_CYCLES_CUH
#define SPECV_BENCH_CYCLES_CUH

/* `what`: an operation of bench.cu, or a mode of scores.cuh or moves.cuh. `size`: bytes of a row,
   ids of a vocabulary, positions. `extra`: planes, or the type of scores. `stop`: the draft that
   every request is rejected at, for scores; how many of a tree are accepted. `large`: minutes on
   the simulator, only where asked for. "shard-1-token": step 1 of A9 in one of two ranks, mode
   token. */
typedef struct cycles_case {
    const char *name, *what;
    int batch, gamma, size, extra, stop, large;
} cycles_case;

static const cycles_case cycles_cases[] = {
    {"A1-b1", "verify", 1, 8, 0, 1, 0, 0},
    {"A1-b32", "verify", 32, 8, 0, 1, 0, 0},
    {"A1-b256", "verify", 256, 8, 0, 1, 0, 0},
    {"B1-b32", "pack", 32, 8, 1024, 1, 0, 0},
    {"B2-b4", "verify_pack", 4, 8, 1024, 1, 0, 0},
    {"B2-b32", "verify_pack", 32, 8, 1024, 1, 0, 0},
    {"B2-b128", "verify_pack", 128, 8, 2048, 1, 0, 1},
    {"A2-rows1", "greedy", 1, 0, 128256, SPECV_LOGITS_BF16, 0, 0},
    {"A2-rows5", "greedy", 1, 4, 128256, SPECV_LOGITS_BF16, 4, 0},
    {"A8-rows1", "cdf", 1, 0, 128256, SPECV_LOGITS_BF16, 0, 0},
    {"A8-probs", "cdf-probs", 1, 0, 32000, SPECV_PROBS_F32, 0, 0},
    {"A8-gumbel", "gumbel", 1, 0, 32000, SPECV_LOGITS_BF16, 0, 0},
    {"A8-k50-p90", "cdf-k50-p90", 1, 0, 128256, SPECV_LOGITS_BF16, 0, 0},
    {"A8-k50-v8k", "cdf-k50-p90", 1, 0, 8192, SPECV_LOGITS_BF16, 0, 0},
    {"A8-k200", "cdf-k200", 1, 0, 32000, SPECV_LOGITS_BF16, 0, 0},
    {"A8-k50-b16", "cdf-k50-p90", 16, 0, 32000, SPECV_LOGITS_BF16, 0, 0},
    {"A8-mask", "cdf-mask", 1, 0, 128256, SPECV_LOGITS_BF16, 0, 0},
    {"A8-off-b16", "cdf-off", 16, 0, 32000, SPECV_LOGITS_BF16, 0, 0},
    {"A3-off", "one-hot-off", 1, 4, 128256, SPECV_LOGITS_BF16, 4, 0},
    {"A8-gumbel-k50", "gumbel-k50", 1, 0, 32000, SPECV_LOGITS_BF16, 0, 0},
    {"A8-top20", "cdf-top20", 1, 0, 128256, SPECV_LOGITS_BF16, 0, 0},
    {"A8-p10", "cdf-p10", 1, 0, 128256, SPECV_LOGITS_BF16, 0, 0},
    {"A8-p90-flat", "cdf-p90", 1, 0, 128256, SPECV_LOGITS_BF16, 0, 0},
    {"A3-onehot", "one-hot", 1, 4, 128256, SPECV_LOGITS_BF16, 4, 0},
    {"A3-k50-p90", "one-hot-k50-p90", 1, 4, 128256, SPECV_LOGITS_BF16, 4, 0},
    {"A3-logits", "token", 1, 4, 8192, SPECV_LOGITS_BF16, 2, 0},
    {"A3-b1", "probs", 1, 5, 32000, SPECV_PROBS_F32, 2, 0},
    {"A3-b1-all", "probs", 1, 5, 32000, SPECV_PROBS_F32, 5, 0},
    {"A3-b16", "probs", 16, 5, 32000, SPECV_PROBS_F32, 2, 1},
    {"A4-logits", "block", 1, 4, 8192, SPECV_LOGITS_BF16, 2, 0},
    {"A4-b1", "block-probs", 1, 5, 32000, SPECV_PROBS_F32, 2, 0},
    {"A5-b1", "coupled", 1, 4, 32000, SPECV_LOGITS_BF16, 2, 0},
    {"A8-rows5", "cdf", 5, 0, 32000, SPECV_LOGITS_BF16, 0, 0},
    {"A5-b16", "coupled", 16, 4, 32000, SPECV_LOGITS_BF16, 2, 1},
    {"A8-b16", "cdf", 16, 0, 32000, SPECV_LOGITS_BF16, 0, 0},
    {"A8-rows80", "cdf", 80, 0, 32000, SPECV_LOGITS_BF16, 0, 1},
    {"score", "score", 1, 4, 8192, SPECV_LOGITS_BF16, 4, 0},
    {"A6-typical", "typical", 1, 4, 8192, SPECV_LOGITS_BF16, 2, 0},
    {"A6-typical-v128k", "typical", 1, 4, 128256, SPECV_LOGITS_BF16, 2, 1},
    {"A6-draw", "typical-draw", 1, 4, 8192, SPECV_LOGITS_BF16, 2, 0},
    {"A6-threshold", "threshold", 1, 4, 8192, SPECV_LOGITS_BF16, 2, 0},
    {"A6-relaxed", "relaxed", 1, 4, 8192, SPECV_LOGITS_BF16, 2, 0},
    {"A6-bounded", "bounded", 1, 4, 8192, SPECV_LOGITS_BF16, 2, 0},
    {"A9-greedy-step0", "shard-0-greedy", 1, 4, 65536, SPECV_LOGITS_BF16, 4, 0},
    {"A9-onehot-step0", "shard-0-one-hot", 1, 4, 65536, SPECV_LOGITS_BF16, 4, 0},
    {"A9-onehot-step1", "shard-1-one-hot", 1, 4, 65536, SPECV_LOGITS_BF16, 4, 0},
    {"A9-onehot-step2", "shard-2-one-hot", 1, 4, 65536, SPECV_LOGITS_BF16, 4, 0},
    {"A9-onehot-step3", "shard-3-one-hot", 1, 4, 65536, SPECV_LOGITS_BF16, 4, 0},
    {"A9-token-step2", "shard-2-token", 1, 4, 8192, SPECV_LOGITS_BF16, 2, 0},
    {"A9-token-step3", "shard-3-token", 1, 4, 8192, SPECV_LOGITS_BF16, 2, 0},
    {"A9-k50-step0", "shard-0-token-k50-p90", 1, 4, 16384, SPECV_LOGITS_BF16, 2, 1},
    {"A9-k50-step1", "shard-1-token-k50-p90", 1, 4, 16384, SPECV_LOGITS_BF16, 2, 1},
    {"A9-k50-columns", "token-k50-p90", 1, 4, 8192, SPECV_LOGITS_BF16, 2, 1},
    {"A9-token-columns", "token", 1, 4, 4096, SPECV_LOGITS_BF16, 2, 0},
    {"A9-columns", "one-hot", 1, 4, 32768, SPECV_LOGITS_BF16, 4, 0},
    {"B3", "append-paged", 8, 8, 64, 2, 0, 0},
    {"B3-hnd", "append-hnd", 8, 8, 64, 2, 0, 0},
    {"B3-b32", "append-paged", 32, 8, 64, 16, 0, 1},
    {"B3-hnd-b32", "append-hnd", 32, 8, 64, 16, 0, 1},
    {"B5-resize", "resize", 32, 8, 2048, 0, 0, 0},
    {"B5-copies", "resize-copy", 8, 8, 64, 4, 0, 0},
    {"B5-fork", "fork", 32, 8, 512, 0, 0, 0},
    {"A7-b1", "tree", 1, 59, 0, 1, 8, 0},
    {"A7-b32", "tree", 32, 59, 0, 1, 8, 0},
    {"A7-logits", "tree", 1, 59, 8192, SPECV_LOGITS_BF16, 8, 0},
    {"A7-coupled", "tree-coupled", 1, 59, 8192, SPECV_LOGITS_BF16, 8, 0},
    {"A7-coin", "tree-coin", 1, 59, 32000, SPECV_PROBS_F32, 8, 0},
    {"A7-coin-3", "tree-coin", 1, 59, 32000, SPECV_PROBS_F32, 3, 0},
    {"A7-coin-k20-p90", "tree-coin-k20-p90", 1, 59, 8192, SPECV_LOGITS_BF16, 8, 0},
    {"A7-coin-b16", "tree-coin", 16, 59, 32000, SPECV_PROBS_F32, 3, 1},
    {"A7-coin-logits", "tree-coin", 1, 59, 32000, SPECV_LOGITS_BF16, 8, 1},
    {"A7-recursive", "tree-recursive", 1, 59, 8192, SPECV_LOGITS_BF16, 8, 1},
    {"A7-distinct", "tree-distinct", 1, 59, 8192, SPECV_LOGITS_BF16, 8, 1},
    {"A7-traversal", "tree-traversal", 1, 59, 8192, SPECV_LOGITS_BF16, 8, 1},
    {"A7-traversal-distinct", "tree-traversal-distinct", 1, 59, 8192, SPECV_LOGITS_BF16, 8, 1},
    {"B4", "commit", 8, 8, 96, 2, 0, 0},
    {"B4-paged", "commit-paged", 8, 8, 96, 2, 0, 0},
    {"B4-b32", "commit-paged", 32, 8, 96, 16, 0, 1},
    {"A7-layout", "layout-links", 32, 8, 60, 0, 0, 0},
    {"C1", "realign", 8, 8, 64, 2, 0, 0},
    {"C2", "gap", 32, 8, 256, 0, 0, 0},
    {"C3", "compact", 32, 8, 64, 0, 0, 0},
    {"C4", "group", 256, 0, 64, 0, 0, 0},
    {"C5", "budget", 32, 8, 64, 0, 0, 0},
    {"D1", "weights", 256, 8, 64, 0, 0, 0},
    {"D2", "plan-16", 256, 0, 64, 0, 0, 0},
    {"D3", "reshuffle", 64, 0, 256, 0, 0, 0},
    {"E", "stats", 32, 8, 0, 1, 0, 0},
};

static double cycles_alpha = 0.8;

static const char *cycles_name; /* of the case in hand */

/* The study's grid, as far as the simulator copes, for plot.py: A1 at all of its points and at more
   batches; B1 and B2 where little KV moves (a megabyte is minutes); what reads scores over the
   vocabulary. Large ones only where asked for: B2 over all of the study's grid but where tens of
   megabytes move. 0 ends a list. Names are A1-b32-g8-a30, B2-b4-g8-a30-r256, A8-v32000. */
typedef struct cycles_grid {
    const char *name, *what; /* the part of the name before "-b" or "-v" */
    int batches[5], gammas[4], percents[4], rows[5], large;
} cycles_grid;

static const cycles_grid cycles_grids[] = {
    {"A1", "verify", {1, 4, 16, 32, 0}, {8, 64, 128, 0}, {30, 60, 90, 0}, {0}, 0},
    {"A1", "verify", {32, 0}, {4, 16, 32, 0}, {30, 60, 90, 0}, {0}, 0},
    {"A1", "verify", {64, 128, 256, 0}, {8, 0}, {60, 0}, {0}, 0},
    {"B1", "pack", {32, 0}, {8, 0}, {90, 0}, {256, 1024, 2048, 0}, 0},
    {"B2", "verify_pack", {4, 0}, {8, 0}, {30, 0}, {256, 0}, 0},
    {"B2", "verify_pack", {32, 0}, {8, 0}, {30, 60, 90, 0}, {256, 1024, 2048, 0}, 0},
    {"B2", "verify_pack", {4, 0}, {8, 0}, {60, 90, 0}, {256, 0}, 1},
    {"B2", "verify_pack", {4, 0}, {8, 0}, {30, 60, 90, 0}, {1024, 2048, 4096, 0}, 1},
    {"B2", "verify_pack", {1, 16, 0}, {8, 0}, {30, 60, 90, 0}, {256, 1024, 2048, 4096, 0}, 1},
    {"B2", "verify_pack", {32, 0}, {8, 0}, {30, 60, 90, 0}, {4096, 0}, 1},
    {"B2", "verify_pack", {1, 4, 16, 32, 0}, {64, 128, 0}, {30, 60, 90, 0}, {256, 1024, 0}, 1},
};

typedef struct cycles_curve {
    const char *name, *what;
    int vocabs[5];
} cycles_curve;

static const cycles_curve cycles_curves[] = {
    {"A2", "greedy", {8192, 32000, 65536, 128256, 0}},
    {"A8", "cdf", {8192, 32000, 65536, 128256, 0}},
    {"A10", "cdf-k50-p90", {8192, 32000, 65536, 128256, 0}},
};

/* Names of the kernels that a case launches, or parts of them: the simulator reads no others, and
   ends the program at the launch of one that it has not read. */
static const char *cycles_kernels(const cycles_case *c) {
    if (strcmp(c->what, "verify") == 0) return "verify_greedy naive ballot";
    if (strcmp(c->what, "pack") == 0) return "pack seed_";
    if (strcmp(c->what, "verify_pack") == 0) return "verify_greedy pack seed_ ballot single";
    if (strcmp(c->what, "stats") == 0) return "accept_stats";
    if (strncmp(c->what, "append", 6) == 0) return "append";
    if (strncmp(c->what, "resize", 6) == 0) return "page_resize copy_pages";
    if (strcmp(c->what, "fork") == 0) return "page_fork";
    if (strcmp(c->what, "tree") == 0) return "tree_ids tree_ahead tree_choices";
    if (strcmp(c->what, "tree-coupled") == 0) return "tree_ahead tree_choices";
    if (strcmp(c->what, "tree-coin") == 0) return "tree_ahead tree_coin";
    if (strcmp(c->what, "tree-coin-k20-p90") == 0) return "filter";
    if (strncmp(c->what, "tree-", 5) == 0) return "tree_ahead tree_kernel";
    if (strncmp(c->what, "commit", 6) == 0) return "commit_path";
    if (strncmp(c->what, "layout", 6) == 0) return "tree_layout";
    if (strcmp(c->what, "realign") == 0) return "realign shift";
    if (strcmp(c->what, "gap") == 0) return "gap_commit";
    if (strcmp(c->what, "compact") == 0) return "compact";
    if (strcmp(c->what, "group") == 0) return "group";
    if (strcmp(c->what, "budget") == 0) return "budget";
    if (strcmp(c->what, "weights") == 0) return "weights";
    if (strncmp(c->what, "plan", 4) == 0) return "plan";
    if (strcmp(c->what, "reshuffle") == 0) return "reshuffle";
    if (c->extra == SPECV_PROBS_F32) return "probs";
    /* Of all steps, and of the launch that has all columns: outputs are compared with its. */
    if (strcmp(c->what, "shard-0-greedy") == 0) return "greedy_bf16 shard_judge";
    if (strcmp(c->what, "one-hot-k50-p90") == 0 || strstr(c->what, "-off"))
        return "filtered_kernel filtered_whole filter_kernel";
    if (strcmp(c->what, "token-k50-p90") == 0)
        return "filtered_kernel filtered_whole filter_kernel residual";
    if (strncmp(c->what, "shard-", 6) == 0 && strstr(c->what, "-k50"))
        return "filtered_kernel filtered_whole filter_kernel residual shard_masked shard_names "
               "shard_cut shard_judge";
    if (strncmp(c->what, "shard-", 6) == 0)
        return "softmax_bf16 softmax_whole_bf16 residual shard_sums shard_judge shard_gains "
               "shard_draw shard_emit";
    if (strncmp(c->what, "typical", 7) == 0 || strcmp(c->what, "threshold") == 0 ||
        strcmp(c->what, "relaxed") == 0)
        return "lossy";
    if (strcmp(c->what, "bounded") == 0) return "lossy residual";
    if (strcmp(c->what, "cdf-top20") == 0)
        return "softmax_bf16 softmax_whole_bf16 filtered_kernel filtered_whole emitted_kernel";
    if (strncmp(c->what, "cdf-", 4) == 0) return "filtered_kernel filtered_whole filter_kernel";
    if (strncmp(c->what, "gumbel-", 7) == 0) return "filtered_kernel filtered_whole filter_kernel";
    if (strcmp(c->what, "greedy") == 0) return "greedy_bf16";
    if (strcmp(c->what, "gumbel") == 0 || strcmp(c->what, "coupled") == 0)
        return "noise_bf16 noise_whole_bf16";
    if (strcmp(c->what, "token") == 0 || strcmp(c->what, "block") == 0)
        return "softmax_bf16 softmax_whole_bf16 residual";
    return "softmax_bf16 softmax_whole_bf16";
}

static void print_cycles_header(void) {
    printf("RESULT head,case,op,variant,b,gamma,alpha,size,planes,dtype,min_bytes");
    for (int i = 0; bench.interpreted && i < COUNT(counter_names); ++i)
        printf(",%s", counter_names[i]);
    printf("\n");
}

static int cycles_timed; /* a GPU is here: rows of times instead, as time_cases() prints them */

static void time_launch(const char *op, const char *variant, const bench_case *c,
                        bench_launch launch, const void *context, int64_t least) {
    bench_times graph, pair, cold;
    const bench_times none = {0, 0, 0, 0};
    graph = bench.interpreted ? none : bench_time_graph(launch, context, 1);
    pair = bench.interpreted ? none : bench_time_events(launch, context, 1, 0);
    cold = bench.interpreted ? none : bench_time_events(launch, context, 1, 1);
    if (bench.interpreted && launch(context, 0, bench.stream)) bench_fail(variant, -1);
    bench_wait();
    printf("%s,%s,%s,%d,%d,%g,%lld,%d,%s,%lld,%.3f,%.3f,%.3f,%.3f,%.3f,%.3f,%.3f\n", cycles_name,
           op, variant, c->batch, c->gamma, c->alpha, (long long)c->row_bytes, c->planes,
           dtype_name(c), (long long)least, graph.p10, graph.p50, graph.p90, pair.p10, pair.p50,
           pair.p90, cold.p50);
    fflush(stdout);
}

/* One launch, between two lines. */
static void cycle_launch(const char *op, const char *variant, const bench_case *c,
                         bench_launch launch, const void *context, int64_t least) {
    int status;
    if (cycles_timed) {
        time_launch(op, variant, c, launch, context, least);
        return;
    }
    printf("\nRESULT row,%s,%s,%s,%d,%d,%g,%lld,%d,%s,%lld", cycles_name, op, variant, c->batch,
           c->gamma, c->alpha, (long long)c->row_bytes, c->planes, dtype_name(c), (long long)least);
    if (!bench.interpreted) printf("\n");
    fflush(stdout);
    bench_profile(1);
    status = launch(context, 0, bench.stream);
    if (status) bench_fail(variant, status);
    bench_wait();
    bench_profile(0);
    for (int k = 0; bench.interpreted && k < COUNT(counter_names); ++k)
        printf(",%lld", ptxrun_count(NULL, counter_names[k]));
    printf("\nRESULT end\n");
    fflush(stdout);
}

/* ------------------------------------------------------------------------------------- floors */

/* A copy as a kernel, for the simulator's own takes no time. */
extern "C" __global__ void floor_copy(const uint4 *src, uint4 *dst, int64_t count) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i < count; i += step) dst[i] = src[i];
}

static int launch_cycles_copy(const void *context, int set, cudaStream_t stream) {
    const bench_floor *f = (const bench_floor *)context;
    const int64_t count = f->bytes / 16;
    int64_t blocks = (count + 255) / 256;
    (void)set;
    if (blocks > f->blocks) blocks = f->blocks;
    floor_copy<<<(unsigned)blocks, 256, 0, stream>>>((const uint4 *)(const void *)f->src,
                                                     (uint4 *)(void *)f->dst, count);
    return (int)cudaPeekAtLastError();
}

static void cycle_floor(const char *name, const bench_case *c, bench_launch launch,
                        const void *context, int64_t bytes) {
    if (!BENCH_IS_SIMULATED && !cycles_timed) return;
    cycle_launch("floor", name, c, launch, context, bytes);
}

/* Loads that wait for each other, in the grid of an operation. */
static void cycle_probes(const bench_case *c, int blocks, int threads) {
    static const char *const names[] = {"probe1", "probe2", "probe3"};
    bench_floor f = bench_probe(PROBE_MAX_DEPTH, blocks, threads);
    if (BENCH_IS_SIMULATED) launch_floor_probe(&f, 0, bench.stream); /* the chain into the L2 */
    bench_wait();
    for (f.depth = 1; f.depth <= PROBE_MAX_DEPTH; ++f.depth)
        cycle_floor(names[f.depth - 1], c, launch_floor_probe, &f, 0);
}

/* Bytes that move, from one half of the arena to the other. */
static void cycle_copy(const bench_case *c, int64_t bytes) {
    bench_floor f = SPECV_ZERO;
    int num_sms = 0;
    if (bytes == 0) return;
    CUDA_CHECK(cudaDeviceGetAttribute(&num_sms, cudaDevAttrMultiProcessorCount, 0));
    f.bytes = bytes / 16 * 16, f.blocks = 8 * num_sms;
    f.src = arena + bench.arena_bytes / 2, f.dst = arena + bench.arena_bytes / 4 * 3;
    cycle_floor("copy", c, launch_cycles_copy, &f, 2 * bytes);
}

/* -------------------------------------------------------------------------------------- cases */

/* --variants LIST: names without their numbers, as in "two,kit". Null: all. */
static const char *cycles_variants;

static int is_wanted(const bench_variant *v) {
    const size_t length = strlen(v->name + 2);
    const char *at = cycles_variants;
    if (!at) return 1;
    for (; *at; at += strcspn(at, ","), at += *at == ',')
        if (strcspn(at, ",") == length && strncmp(at, v->name + 2, length) == 0) return 1;
    return 0;
}

static void cycle_tokens(const cycles_case *c, int op) {
    static bench_run run;
    bench_case b = make_case(op, c->batch, c->gamma, cycles_alpha, c->size);
    bench_floor grid;
    int launches;
    b.dtype = SPECV_I32, b.planes = c->extra;
    prepare(&run, &b, 1);
    grid = probe_of_case(&run, 1);
    launches = op == OP_VERIFY_PACK ? specv_verify_pack_kv_launches(&run.both[0]) : 1;
    cycle_probes(&b, grid.blocks, grid.threads);
    cycle_copy(&b, run.accepted * b.row_bytes * b.planes);
    for (int n = 0; n < NUM_VARIANTS; ++n) {
        const bench_variant *v = &variants[n];
        if (!(v->ops & op) || b.batch > v->max_batch || !is_wanted(v)) continue;
        /* Without programmatic dependent launch the same as `two`, and at these sizes as `kit`. */
        if (v->launch == run_plain2 || (v->launch == run_one && launches == 1)) continue;
        verify_variant(&run, v);
        cycle_launch(op_name(op), v->name, &b, v->launch, &run, min_bytes(&run));
    }
}

static void cycle_scores(const cycles_case *c, const scores_mode *mode) {
    static scores_run run;
    bench_case b;
    prepare_planted_scores(&run, mode, c->batch, c->gamma, c->size, c->extra, c->stop);
    verify_scores(&run);
    b = case_of_scores(&run);
    if (mode->drafts && mode->rule != SPECV_RULE_SCORE && run.accepted != c->batch * c->stop)
        bench_fail("drafts were not rejected where they should have been", -1);
    cycle_probes(&b, run.num_sms, SPECV_SAMPLE_THREADS);
    cycle_floor("read", &b, launch_floor_read, &run,
                rows_of_scores(&run) * run.vocab * score_bytes(run.dtype));
    cycle_launch(mode->op, mode->variant, &b, launch_scores, &run, min_bytes_of_scores(&run));
}

static void cycle_shard(const cycles_case *c, const scores_mode *mode, int step) {
    static scores_run run;
    static shards_run shards;
    char variant[40];
    bench_case b;
    prepare_planted_scores(&run, mode, c->batch, c->gamma, c->size, c->extra, c->stop);
    verify_scores(&run);
    prepare_shards(&shards, &run);
    verify_shards(&shards, &run);
    run_shards(&shards, step);
    b = case_of_scores(&run);
    b.row_bytes /= NUM_SHARDS;
    snprintf(variant, sizeof variant, "5 kit step %d %s", step, mode->name);
    cycle_probes(&b, run.num_sms, SPECV_SAMPLE_THREADS);
    cycle_launch("shards", variant, &b, launch_shard, &shards,
                 step ? 0 : min_bytes_of_scores(&run) / NUM_SHARDS);
}

static void cycle_move(const cycles_case *c, const moves_mode *mode) {
    static moves_run run;
    bench_case b;
    bench_floor grid;
    prepare_move(&run, mode, c->batch, c->gamma, c->extra, c->size, 1);
    b = case_of_move(&run);
    grid = probe_of_move(&run);
    cycle_probes(&b, grid.blocks, grid.threads);
    verify_move(&run);
    cycle_launch(mode->op, mode->variant, &b, launch_move, &run, run.least);
    verify_move_again(&run);
    cycle_copy(&b, run.moved); /* last: it may write to the cache */
}

#include "trees.cuh"

static const struct {
    const char *name, *variant;
    int rule;
    int32_t top_k; /* 0: no limits */
    float top_p;
} trees_modes[] = {
    {"tree", "5 kit greedy", SPECV_TREE_GREEDY, 0, 1},
    {"tree-coupled", "5 kit coupled", SPECV_TREE_COUPLED, 0, 1},
    {"tree-coin", "5 kit one coin", SPECV_TREE_ONE_COIN, 0, 1},
    {"tree-coin-k20-p90", "5 kit one coin k20 p90", SPECV_TREE_ONE_COIN, 20, 0.9f},
    {"tree-recursive", "5 kit recursive", SPECV_TREE_RECURSIVE, 0, 1},
    {"tree-distinct", "5 kit recursive distinct", SPECV_TREE_RECURSIVE_DISTINCT, 0, 1},
    {"tree-traversal", "5 kit traversal", SPECV_TREE_TRAVERSAL, 0, 1},
    {"tree-traversal-distinct", "5 kit traversal distinct", SPECV_TREE_TRAVERSAL_DISTINCT, 0, 1},
};

static int cycle_trees(const cycles_case *c) {
    static trees_run run;
    trees_case t = {c->batch, c->gamma + 1, c->size,   c->extra, 0,
                    c->stop,  SPECV_I32,    TREE_PATH, 0,        1};
    bench_case b = make_case(OP_VERIFY, c->batch, c->gamma, 1, 2 * c->size);
    for (int m = 0; m < COUNT(trees_modes); ++m) {
        if (strcmp(c->what, trees_modes[m].name) != 0) continue;
        t.rule = trees_modes[m].rule;
        t.top_k = trees_modes[m].top_k, t.top_p = trees_modes[m].top_p;
        b.planes = 1, b.dtype = SPECV_I32;
        if (c->size) b.row_bytes = tree_score_bytes(&t) * c->size;
        prepare_trees(&run, &t);
        if (c->size)
            cycle_probes(&b, c->batch,
                         t.rule == SPECV_TREE_ONE_COIN && t.scores == SPECV_PROBS_F32
                             ? SPECV_COIN_THREADS
                             : SPECV_GROVE_THREADS);
        else
            cycle_probes(&b, (c->batch + 1) / 2, SPECV_TREE_THREADS);
        cycle_launch("trees", c->size ? trees_modes[m].variant : "5 kit ids", &b, launch_tree, &run,
                     run.least);
        return 1;
    }
    return 0;
}

static int run_cycles_case(const cycles_case *c) {
    static const struct {
        const char *name;
        int op;
    } ops[] = {{"verify", OP_VERIFY},
               {"pack", OP_PACK},
               {"verify_pack", OP_VERIFY_PACK},
               {"stats", OP_STATS}};
    cycles_name = c->name;
    bench_random_state = 7;
    if (strncmp(c->what, "tree", 4) == 0) return cycle_trees(c);
    for (int i = 0; i < COUNT(ops); ++i)
        if (strcmp(c->what, ops[i].name) == 0) return cycle_tokens(c, ops[i].op), 1;
    for (int m = 0; m < NUM_SCORES_MODES; ++m)
        if (strcmp(c->what, scores_modes[m].name) == 0) return cycle_scores(c, &scores_modes[m]), 1;
    for (int m = 0; m < NUM_MOVES_MODES; ++m)
        if (strcmp(c->what, moves_modes[m].name) == 0) return cycle_move(c, &moves_modes[m]), 1;
    for (int m = 0; m < NUM_SCORES_MODES && strncmp(c->what, "shard-", 6) == 0; ++m)
        if (strcmp(c->what + 8, scores_modes[m].name) == 0)
            return cycle_shard(c, &scores_modes[m], c->what[6] - '0'), 1;
    return 0;
}

static void list_grid(const cycles_grid *grid) {
    const char *kind = grid->large ? "grid-large" : "grid";
    for (const int *b = grid->batches; *b; ++b)
        for (const int *g = grid->gammas; *g; ++g)
            for (const int *a = grid->percents; *a; ++a) {
                cycles_case c = {"", grid->what, *b, *g, 0, 1, 0, 0};
                if (!grid->rows[0])
                    printf("RESULT case %s-b%d-g%d-a%d %s %s\n", grid->name, *b, *g, *a, kind,
                           cycles_kernels(&c));
                for (const int *row = grid->rows; *row; ++row)
                    printf("RESULT case %s-b%d-g%d-a%d-r%d %s %s\n", grid->name, *b, *g, *a, *row,
                           kind, cycles_kernels(&c));
            }
}

static void list_cycles(void) {
    for (int i = 0; i < COUNT(cycles_cases); ++i)
        printf("RESULT case %s %s %s\n", cycles_cases[i].name,
               cycles_cases[i].large ? "large" : "usual", cycles_kernels(&cycles_cases[i]));
    for (int i = 0; i < COUNT(cycles_grids); ++i) list_grid(&cycles_grids[i]);
    for (int i = 0; i < COUNT(cycles_curves); ++i)
        for (const int *vocab = cycles_curves[i].vocabs; *vocab; ++vocab) {
            cycles_case c = {"", cycles_curves[i].what, 1, 0, *vocab, SPECV_LOGITS_BF16, 0, 0};
            printf("RESULT case %s-v%d grid %s\n", cycles_curves[i].name, *vocab,
                   cycles_kernels(&c));
        }
}

/* A case of the grid by its name. */
static int run_grid_case(const char *name) {
    cycles_case c = {name, "", 0, 0, 0, 1, 0, 0};
    int percent = 0, vocab = 0;
    const char *rest = strchr(name, '-');
    if (!rest) return 0;
    for (int i = 0; i < COUNT(cycles_curves); ++i) {
        const cycles_curve *curve = &cycles_curves[i];
        if (strncmp(name, curve->name, (size_t)(rest - name)) != 0) continue;
        if (strlen(curve->name) != (size_t)(rest - name)) continue;
        if (sscanf(rest, "-v%d", &vocab) != 1) continue;
        c.what = curve->what, c.batch = 1, c.size = vocab, c.extra = SPECV_LOGITS_BF16;
        return run_cycles_case(&c);
    }
    if (sscanf(rest, "-b%d-g%d-a%d-r%d", &c.batch, &c.gamma, &percent, &c.size) < 3) return 0;
    c.what = name[0] == 'A' ? "verify" : name[1] == '1' ? "pack" : "verify_pack";
    cycles_alpha = percent / 100.0;
    return run_cycles_case(&c);
}

/* The cases that are named, "all", or all usual ones. */
static int run_cycles(int count, char **words) {
    int found = 0;
    if (count == 1 && strcmp(words[0], "list") == 0) return list_cycles(), 0;
    print_cycles_header();
    for (int w = 0; w < count; ++w) found += run_grid_case(words[w]);
    for (int i = 0; i < COUNT(cycles_cases); ++i) {
        const cycles_case *c = &cycles_cases[i];
        int wanted = count == 0 && !c->large;
        for (int w = 0; w < count; ++w)
            wanted |= strcmp(words[w], c->name) == 0 || strcmp(words[w], "all") == 0;
        if (wanted && !run_cycles_case(c)) bench_fail(c->what, -1);
        found += wanted;
    }
    if (found) return 0;
    fprintf(stderr, "bench: no such case; see cycles.cuh\n");
    return 1;
}

/* The cases that are named, or all, as times of a GPU beside their floors; `bench moves` has what
   moves KV or changes what it reads. Small ones where an interpreter runs them. */
static int time_cases(int count, char **words) {
    cycles_timed = 1;
    printf("case,op,variant,b,gamma,alpha,size,planes,dtype,min_bytes,graph_us_p10,graph_us_p50,"
           "graph_us_p90,us_p10,us_p50,us_p90,cold_us_p50\n");
    for (int i = 0; i < COUNT(cycles_cases); ++i) {
        const cycles_case *c = &cycles_cases[i];
        int wanted = count == 0;
        for (int w = 0; w < count; ++w) wanted |= strcmp(words[w], c->name) == 0;
        for (int m = 0; m < NUM_MOVES_MODES; ++m)
            if (!strcmp(c->what, moves_modes[m].name)) wanted = 0;
        if (bench.interpreted && (c->size > 8192 || c->large)) continue;
        if (bench.quick && c->large) continue;
        if (wanted && !run_cycles_case(c)) bench_fail(c->name, -1);
    }
    return 0;
}

#endif
