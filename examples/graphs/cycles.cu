/* The whole draft-verify-commit cycle of tiny_lm, and the cycle of its particles, in CUDA graphs: a
   graph for each power of two, replayed without a word to or from the host, against eager cycles of
   the exact batch and against tiny_lm's own engine on the CPU.

       bash ../run.sh graphs/cycles (README.md has the command alone); ./cycles FOLDER_OF_tiny_lm

   rule token: one arena, 9922816 bytes
     batch 1:  9 tokens, eager rows 1 1 1, 4 replays of 1 rows, 100 nodes: same texts, clean loop
     batch 2: 13 tokens, eager rows 2 2 1, 4 replays of 2 rows, 100 nodes: same texts, clean loop
     batch 3: 20 tokens, eager rows 3 3 2, 4 replays of 4 rows, 100 nodes: same texts, clean loop
   particles: one arena, 11590912 bytes
     batch 1: 3 replays of 3 rows, 69 nodes, then 1 of 3 particles replaced: the same, clean loop
     batch 3: 3 replays of 12 rows, 69 nodes, then 2 of 9 particles replaced: the same, clean loop
   OK */
#include <cuda_runtime.h>
#include "watch.h"
#include "buckets.h"
#include "cycle.h"
#include <stdlib.h>
#include <string.h>

enum { REQUESTS = 3, GAMMA = 3, PARTICLES = 3, SMC_GAMMA = 1, SMC_STEPS = 3, MAX_TEXT = 24 };

static const char *starts[REQUESTS] = {"And", "Who is", "Let us"};
static int32_t lengths[REQUESTS] = {3, 6, 6}, new_tokens[REQUESTS] = {9, 4, 7};
static int32_t particle_tokens[REQUESTS]; /* SMC: all requests as many */

static const prompts requests = {NULL, starts, lengths, new_tokens, REQUESTS};
static const prompts particle_requests = {NULL, starts, lengths, particle_tokens, REQUESTS};

#define CUDA(call)                                                                                 \
    do {                                                                                           \
        const cudaError_t error_ = (call);                                                         \
        if (error_ != cudaSuccess) die(#call, cudaGetErrorString(error_));                         \
    } while (0)

/* An engine, and on the GPU its cycle and the graphs of it. */
typedef struct runner {
    engine e;
    cycle *c;
    graph_pool pool;
    graph_step *step;
    int calls; /* about memory when it was open: the last ones */
} runner;

static void open_runner(runner *r, const lm_model *models, int on_gpu, int32_t rule,
                        int32_t particles, int32_t gamma) {
    memset(r, 0, sizeof *r);
    const int room = bucket_of(POWERS_OF_TWO, REQUESTS); /* the largest bucket's padding, too */
    cycle_set_engine(&r->e, on_gpu, rule, room, particles, gamma, MAX_TEXT);
    open_engine(&r->e, models);
    r->pool.capacity = MAX_GRAPHS;
    r->step = particles ? cycle_step_particles : cycle_step;
    if (on_gpu && !(r->c = cycle_open(&r->e))) die("cycle_open", "failed");
    r->calls = watched[WATCH_MEMORY];
}

/* Prints what the graphs took and returns whether all was well with the memory. */
static int close_runner(runner *r) {
    int good = 1;
    if (r->c) {
        good = watched[WATCH_MEMORY] == r->calls;
        fprintf(stderr, "%d graphs took %lld bytes of device memory, says cudaMemGetInfo\n",
                r->pool.count, r->pool.bytes);
        pool_close(&r->pool);
        const char *const flaw = cycle_close(r->c);
        if (flaw) die("cycle_close", flaw);
        if (!good) printf("  MORE calls about memory than that of the arena\n");
    }
    close_engine(&r->e);
    return good;
}

/* Opens the GPU's, which takes all its memory in one call. */
static int open_on_gpu(runner *r, const lm_model *models, const char *what, int32_t rule,
                       int32_t particles, int32_t gamma) {
    const int before = watched[WATCH_MEMORY];
    open_runner(r, models, 1, rule, particles, gamma);
    const int good = r->calls == before + 1;
    printf("%s: %s, %zu bytes\n", what, good ? "one arena" : "MORE than one allocation",
           cycle_arena_bytes(r->c));
    return good;
}

static void step_once(runner *r, int rows) {
    if (r->step(r->c, rows, cycle_stream(r->c)) != 0) die("step", "refused");
}

/* The graph of that bucket, replayed. Returns whether the loop did nothing else. */
static int replay(runner *r, int rows, int steps) {
    int before[WATCH_KINDS];
    unsigned long long in_graphs; /* bytes */
    cudaGraphExec_t exec = NULL;
    const cudaStream_t stream = cycle_stream(r->c);
    CUDA(cudaStreamSynchronize(stream));
    CUDA(pool_get(&r->pool, rows, r->step, r->c, stream, &exec));
    memcpy(before, watched, sizeof before);
    for (int t = 0; t < steps; ++t) CUDA(cudaGraphLaunch(exec, stream));
    const int clean = memcmp(before, watched, sizeof before) == 0;
    CUDA(graph_buffers(&in_graphs));
    return clean && in_graphs == 0;
}

static size_t nodes_of(runner *r, int rows) {
    cudaGraph_t graph;
    size_t count = 0;
    CUDA(cudaStreamSynchronize(cycle_stream(r->c)));
    CUDA(graph_capture(r->step, r->c, rows, cycle_stream(r->c), &graph));
    CUDA(cudaGraphGetNodes(graph, NULL, &count));
    CUDA(cudaGraphDestroy(graph));
    return count;
}

/* ---- rule TOKEN: accepted lengths differ, requests end and leave ----------------------------- */

typedef struct texts {
    int32_t text[REQUESTS][MAX_TEXT + GAMMA]; /* as outcome.text of an engine for such texts */
    int64_t histogram[GAMMA + 1];             /* of accepted lengths, since the engine was opened */
} texts;

static void read_report(const runner *r, cycle_report *report) {
    CUDA(cudaMemcpyAsync(report, cycle_report_of(r->c), cycle_report_bytes(r->c),
                         cudaMemcpyDeviceToHost, cycle_stream(r->c)));
    CUDA(cudaStreamSynchronize(cycle_stream(r->c)));
}

static void start(runner *r, int count) {
    sequence seqs[LM_MAX_BATCH];
    start_batch(&r->e, &r->e.speculative, &requests, 0, count, seqs);
    if (cycle_admit(r->c, seqs, count) != 0) die("cycle_admit", "failed");
}

/* Texts as the board has them, of the lengths that the device says. */
static void read_texts(runner *r, int count, texts *t) {
    int32_t len[LM_MAX_BATCH];
    int64_t totals[SPECV_STAT_COUNT];
    memset(t, 0, sizeof *t);
    if (cycle_lengths(r->c, len) != 0) die("cycle_lengths", "failed");
    for (int slot = 0; slot < count; ++slot)
        must(&r->e, r->e.backend.read_board(&r->e.backend, slot * r->e.limits.text_stride,
                                            t->text[slot], len[slot]));
    must(&r->e, r->e.backend.read_stats(&r->e.backend, t->histogram, totals));
}

/* Live rows of each step to live[]; returns how many steps it took. The host looks at each. */
static int eager(runner *r, int count, int *live) {
    cycle_report *report = (cycle_report *)allocate(1, cycle_report_bytes(r->c));
    int32_t left[REQUESTS];
    int steps = 0, rows = count;
    start(r, count);
    for (int i = 0; i < count; ++i) left[i] = new_tokens[i];
    while (rows > 0) {
        live[steps++] = rows;
        step_once(r, rows);
        read_report(r, report);
        if (report->fault) die("eager step", "fault");
        rows = 0;
        for (int i = 0; i < report->num_rows; ++i) left[report->slot[i]] -= report->num_emitted[i];
        for (int i = 0; i < count; ++i) rows += left[i] > 0;
    }
    free(report);
    return steps;
}

static int rejection(const lm_model *models) {
    runner gpu, cpu;
    int good = open_on_gpu(&gpu, models, "rule token", SPECV_RULE_TOKEN, 0, GAMMA);
    open_runner(&cpu, models, 0, SPECV_RULE_TOKEN, 0, GAMMA);
    cycle_report *report = (cycle_report *)allocate(1, cycle_report_bytes(gpu.c));
    for (int count = 1; count <= REQUESTS; ++count) {
        const int bucket = bucket_of(POWERS_OF_TWO, count);
        int live[64], rows = 0, tokens = 0, differ = 0;
        texts before, alone, replayed, host;
        outcome result = {0, host.text[0], NULL, SPECV_ZERO};
        memset(&host, 0, sizeof host);
        decode_speculatively(&cpu.e, &requests, 0, count, &result);
        read_texts(&gpu, 0, &before);
        const int steps = eager(&gpu, count, live);
        read_texts(&gpu, count, &alone);
        start(&gpu, count);
        const int clean = replay(&gpu, bucket, steps + 1); /* one more: nobody is there */
        read_texts(&gpu, count, &replayed);
        read_report(&gpu, report);
        for (int k = 0; k <= GAMMA; ++k) /* as often as eagerly; padding is not counted */
            differ += replayed.histogram[k] - alone.histogram[k] !=
                      alone.histogram[k] - before.histogram[k];
        const int equal = memcmp(alone.text, replayed.text, sizeof alone.text) == 0 &&
                          memcmp(alone.text, host.text, sizeof alone.text) == 0 && differ == 0;
        for (int t = 0; t < steps; ++t) rows += live[t];
        for (int i = 0; i < count; ++i) tokens += new_tokens[i];
        good = good && equal && clean && report->fault == 0 && report->num_rows == 0;
        printf("  batch %d: %2d tokens, eager rows", count, tokens);
        for (int t = 0; t < steps; ++t) printf(" %d", live[t]);
        printf(", %d replays of %d rows, %zu nodes: %s, %s\n", steps + 1, bucket,
               nodes_of(&gpu, bucket), equal ? "same texts" : "OTHER texts",
               clean ? "clean loop" : "UNCLEAN loop");
    }
    free(report);
    good = close_runner(&gpu) && good;
    return close_runner(&cpu) && good;
}

/* ---- particles: lengths are the same for all, weights and pages are not ---------------------- */

typedef struct clouds {
    int32_t board[REQUESTS * PARTICLES]
                 [MAX_TEXT + SMC_GAMMA];          /* of all particles, before the end */
    int32_t text[REQUESTS][MAX_TEXT + SMC_GAMMA]; /* one of each, drawn by weight */
    smc_report report;
    int32_t replaced; /* in the last cycle */
    double z;
} clouds;

enum { BY_HOST, EAGER, REPLAYED };

static int decode(runner *r, int count, int how, int rows, clouds *out) {
    particle_batch b;
    int clean = 1;
    memset(out, 0, sizeof *out);
    out->report.z = &out->z, out->report.num_prompts = REQUESTS, out->report.pools_whole = 1;
    start_particles(&r->e, &b, &particle_requests, 0, count);
    run_cycle(&r->e, NULL, &b, SMC_GAMMA,
              &out->report); /* loads all code, leaves the steady state */
    for (int t = 0; t < SMC_STEPS && how == BY_HOST; ++t)
        run_cycle(&r->e, NULL, &b, SMC_GAMMA, &out->report);
    for (int t = 0; t < SMC_STEPS && how == EAGER; ++t) step_once(r, rows);
    if (how == REPLAYED) clean = replay(r, rows, SMC_STEPS);
    if (how != BY_HOST && cycle_finish_particles(r->c, &b, SMC_STEPS) != 0) die("cycle", "fault");
    for (int g = 0; g < count; ++g) out->replaced += b.num_jobs[g];
    for (int slot = 0; slot < count * PARTICLES; ++slot)
        must(&r->e, r->e.backend.read_board(&r->e.backend, slot * r->e.limits.text_stride,
                                            out->board[slot], b.len[slot / PARTICLES]));
    finish_particles(&r->e, &b, out->text[0], &out->report);
    return clean && out->report.pools_whole && out->report.lost == 0;
}

static int same(const clouds *a, const clouds *b) {
    return memcmp(a->board, b->board, sizeof a->board) == 0 &&
           memcmp(a->text, b->text, sizeof a->text) == 0 && a->replaced == b->replaced &&
           memcmp(&a->report.log_z, &b->report.log_z, sizeof(double)) == 0;
}

static int particles(const lm_model *models) {
    runner gpu, cpu;
    for (int i = 0; i < REQUESTS; ++i) particle_tokens[i] = (SMC_STEPS + 1) * (SMC_GAMMA + 1);
    int good = open_on_gpu(&gpu, models, "particles", SPECV_RULE_SCORE, PARTICLES, SMC_GAMMA);
    open_runner(&cpu, models, 0, SPECV_RULE_SCORE, PARTICLES, SMC_GAMMA);
    for (int count = 1; count <= REQUESTS; count += 2) {
        static clouds host, alone, replayed;
        const int bucket = bucket_of(POWERS_OF_TWO, count);
        int clean = decode(&cpu, count, BY_HOST, 0, &host);
        clean = decode(&gpu, count, EAGER, count * PARTICLES, &alone) && clean;
        clean = decode(&gpu, count, REPLAYED, bucket * PARTICLES, &replayed) && clean;
        const int equal = same(&host, &alone) && same(&alone, &replayed);
        good = good && equal && clean;
        printf("  batch %d: %d replays of %d rows, %zu nodes, then %d of %d particles replaced: "
               "%s, "
               "%s\n",
               count, SMC_STEPS, bucket * PARTICLES, nodes_of(&gpu, bucket * PARTICLES),
               (int)alone.replaced, count * PARTICLES, equal ? "the same" : "OTHERS",
               clean ? "clean loop" : "UNCLEAN loop");
    }
    good = close_runner(&gpu) && good;
    return close_runner(&cpu) && good;
}

int main(int argc, char **argv) {
    lm_model models[LM_NUM_MODELS];
    if (argc != 2) die("usage", "cycles FOLDER_OF_tiny_lm");
    cycle_load_models(models, argv[1]);
    const int good = rejection(models) & particles(models);
    printf(good ? "OK\n" : "MISMATCH\n");
    for (int i = 0; i < LM_NUM_MODELS; ++i) lm_free(&models[i]);
    return good ? 0 : 1;
}
