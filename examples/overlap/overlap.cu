/* Two steps deep: while step t runs, the host handles what step t-1 emitted. Results come by copies
   into pinned memory, one block of it for even steps and one for odd ones, each with an event. A
   request that the host ends (a stop string: the device knows no text) has one step more in flight,
   of which nothing is emitted and nobody else notices.

       bash ../run.sh overlap (README.md has the command alone); ./overlap FOLDER_OF_tiny_lm

   one deep: graphs of 4 4 2 2 2, 0 rows late with 0 tokens, clean loop
   two deep: graphs of 4 4 4 2 2 2, 2 rows late with 5 tokens, clean loop
   two deep: the same texts as one deep, those of plain requests up to their stop strings
   what came late: not emitted, its pages free
     And they were u
     Who is the
     Let us God
     But thy glory.
   OK */
#include <cuda_runtime.h>
#include "../graphs/watch.h"
#include "../graphs/buckets.h"
#include "../graphs/cycle.h"
#include <stdlib.h>
#include <string.h>

enum { REQUESTS = 4, GAMMA = 2, NEW_TOKENS = 12, MAX_TEXT = 24, MAX_DEPTH = 2, MAX_STEPS = 64 };

static const char *starts[REQUESTS] = {"And", "Who is", "Let us", "But"};
static int32_t lengths[REQUESTS] = {3, 6, 6, 3};
static int32_t new_tokens[REQUESTS] = {NEW_TOKENS, NEW_TOKENS, NEW_TOKENS, NEW_TOKENS};
static const prompts requests = {NULL, starts, lengths, new_tokens, REQUESTS};
/* Where the host ends a text; the device goes on until it has all new tokens. */
static const char *const stops[REQUESTS] = {NULL, "the", "God", "."};
static const char *const no_stops[REQUESTS] = {NULL, NULL, NULL, NULL};

#define CUDA(call)                                                                                 \
    do {                                                                                           \
        const cudaError_t error_ = (call);                                                         \
        if (error_ != cudaSuccess) die(#call, cudaGetErrorString(error_));                         \
    } while (0)

/* What the host needs to be two steps deep: all of it is taken before the loop. */
typedef struct pipeline {
    cycle *c;
    graph_pool graphs;
    cudaStream_t stream;
    cycle_report *report[MAX_DEPTH]; /* pinned; step t has [t % MAX_DEPTH], as of the next two */
    uint8_t *leave[MAX_DEPTH];       /* pinned, [slots] */
    cudaEvent_t done[MAX_DEPTH];
} pipeline;

/* What becomes of the requests, and how. */
typedef struct outcome_of_run {
    char text[REQUESTS][MAX_TEXT + GAMMA + 2];
    int rows[MAX_STEPS], steps; /* graphs that were replayed */
    int late_rows, late_tokens; /* of requests that had ended when their step's results came */
    int clean;                  /* the loop allocated nothing, and waited for events alone */
} run;

static void open_pipeline(pipeline *p, engine *e) {
    memset(p, 0, sizeof *p);
    if (!(p->c = cycle_open(e))) die("cycle_open", "failed");
    p->stream = cycle_stream(p->c);
    p->graphs.capacity = MAX_GRAPHS;
    for (int i = 0; i < MAX_DEPTH; ++i) {
        CUDA(cudaMallocHost((void **)&p->report[i], cycle_report_bytes(p->c)));
        CUDA(cudaMallocHost((void **)&p->leave[i], (size_t)e->limits.slots));
        CUDA(cudaEventCreateWithFlags(&p->done[i], cudaEventDisableTiming));
    }
}

static void close_pipeline(pipeline *p) {
    for (int i = 0; i < MAX_DEPTH; ++i) {
        CUDA(cudaFreeHost(p->report[i]));
        CUDA(cudaFreeHost(p->leave[i]));
        CUDA(cudaEventDestroy(p->done[i]));
    }
    pool_close(&p->graphs);
    const char *const flaw = cycle_close(p->c);
    if (flaw) die("cycle_close", flaw);
}

/* Step t: those who leave are told to the device, the graph of the smallest bucket that holds the
   rest, its results on their way, an event behind them. Nothing here waits. */
static void enqueue(pipeline *p, int t, int rows, const uint8_t *gone, int slots) {
    const int at = t % MAX_DEPTH;
    cudaGraphExec_t exec = NULL;
    memcpy(p->leave[at], gone, (size_t)slots); /* the copy of step t-2 is done: it was waited for */
    if (cycle_leave(p->c, p->leave[at], p->stream) != 0) die("cycle_leave", "failed");
    CUDA(pool_get(&p->graphs, rows, cycle_step, p->c, p->stream, &exec));
    CUDA(cudaGraphLaunch(exec, p->stream));
    CUDA(cudaMemcpyAsync(p->report[at], cycle_report_of(p->c), cycle_report_bytes(p->c),
                         cudaMemcpyDeviceToHost, p->stream));
    CUDA(cudaEventRecord(p->done[at], p->stream));
}

/* The results of step t, when they are there: text, and who has come to an end. */
static void handle(pipeline *p, int t, const char *const *stop, run *r, uint8_t *gone) {
    const cycle_report *report = p->report[t % MAX_DEPTH];
    CUDA(cudaEventSynchronize(p->done[t % MAX_DEPTH]));
    if (report->fault) die("step", "fault");
    for (int row = 0; row < report->num_rows; ++row) {
        const int slot = report->slot[row], count = report->num_emitted[row];
        char *const text = r->text[slot];
        if (gone[slot]) {
            r->late_rows += 1, r->late_tokens += count;
            continue;
        }
        for (int j = 0; j < count && !gone[slot]; ++j) {
            const size_t len = strlen(text);
            text[len] = (char)report->token[row * (GAMMA + 1) + j];
            gone[slot] = (stop[slot] && strstr(text + lengths[slot], stop[slot])) ||
                         (int)len + 1 == lengths[slot] + new_tokens[slot];
        }
    }
}

static int bucket_for(const uint8_t *gone) {
    int live = 0;
    for (int slot = 0; slot < REQUESTS; ++slot) live += !gone[slot];
    return live ? bucket_of(POWERS_OF_TWO, live) : 0;
}

/* All requests. depth 1: each step's results are handled before the next step begins. */
static void decode(engine *e, pipeline *p, int depth, const char *const *stop, run *r) {
    uint8_t gone[LM_MAX_BATCH] = {0};
    int before[WATCH_KINDS], t, rows;
    sequence seqs[LM_MAX_BATCH];
    memset(r, 0, sizeof *r);
    start_batch(e, &e->speculative, &requests, 0, REQUESTS, seqs);
    if (cycle_admit(p->c, seqs, REQUESTS) != 0) die("cycle_admit", "failed");
    for (int slot = 0; slot < REQUESTS; ++slot) strcpy(r->text[slot], starts[slot]);
    CUDA(cudaStreamSynchronize(p->stream));
    for (rows = 1; rows <= bucket_of(POWERS_OF_TWO, REQUESTS); rows *= 2) {
        cudaGraphExec_t exec;
        CUDA(pool_get(&p->graphs, rows, cycle_step, p->c, p->stream, &exec));
    }
    memcpy(before, watched, sizeof before);
    for (t = 0; (rows = bucket_for(gone)) > 0; ++t) {
        r->rows[t] = rows;
        enqueue(p, t, rows, gone, e->limits.slots);
        if (t >= depth - 1) handle(p, t - depth + 1, stop, r, gone);
    }
    for (int rest = t - depth + 1; rest < t; ++rest)
        if (rest >= 0) handle(p, rest, stop, r, gone);
    r->steps = t;
    r->clean = watched[WATCH_MEMORY] == before[WATCH_MEMORY] &&
               watched[WATCH_GRAPH] == before[WATCH_GRAPH] &&
               watched[WATCH_COPY] - before[WATCH_COPY] == 2 * t &&
               watched[WATCH_WAIT] - before[WATCH_WAIT] == t;
}

/* Is every page free once the last ones have left? One more step, of nobody, lets them. */
static int all_pages_free(engine *e, pipeline *p, int t) {
    uint8_t gone[LM_MAX_BATCH];
    int32_t num_free, all;
    memset(gone, 1, sizeof gone);
    enqueue(p, t, 1, gone, e->limits.slots);
    if (cycle_free_pages(p->c, &num_free, &all) != 0) die("cycle_free_pages", "failed");
    return num_free == all && p->report[t % MAX_DEPTH]->num_rows == 0;
}

/* The text as it was without stop strings, up to the first one. */
static int is_cut(const char *text, const char *whole, int prompt, const char *stop) {
    const char *const found = stop ? strstr(whole + prompt, stop) : NULL;
    const size_t len = found ? (size_t)(found - whole) + strlen(stop) : strlen(whole);
    return strlen(text) == len && memcmp(text, whole, len) == 0;
}

/* What tiny_lm's own engine writes on the CPU, which knows no stop strings either. */
static int is_of_engine(const lm_model *models, const run *whole) {
    static int32_t text[REQUESTS][MAX_TEXT + GAMMA];
    const outcome result = {0, text[0], NULL, SPECV_ZERO};
    engine cpu;
    int same = 1;
    cycle_set_engine(&cpu, 0, SPECV_RULE_TOKEN, REQUESTS, 0, GAMMA, MAX_TEXT);
    open_engine(&cpu, models);
    decode_speculatively(&cpu, &requests, 0, REQUESTS, &result);
    close_engine(&cpu);
    for (int i = 0; i < REQUESTS; ++i)
        for (int pos = 0; pos < lengths[i] + new_tokens[i]; ++pos)
            same = same && text[i][pos] == (unsigned char)whole->text[i][pos];
    return same;
}

static void print_run(const char *name, const run *r) {
    printf("%s: graphs of", name);
    for (int t = 0; t < r->steps; ++t) printf(" %d", r->rows[t]);
    printf(", %d rows late with %d tokens, %s\n", r->late_rows, r->late_tokens,
           r->clean ? "clean loop" : "UNCLEAN loop");
}

int main(int argc, char **argv) {
    lm_model models[LM_NUM_MODELS];
    static run whole, one_deep, two_deep; /* whole: without stop strings */
    engine e;
    pipeline p;
    if (argc != 2) die("usage", "overlap FOLDER_OF_tiny_lm");
    cycle_load_models(models, argv[1]);
    cycle_set_engine(&e, 1, SPECV_RULE_TOKEN, REQUESTS, 0, GAMMA, MAX_TEXT);
    open_engine(&e, models);
    open_pipeline(&p, &e);
    decode(&e, &p, 1, no_stops, &whole);
    decode(&e, &p, 1, stops, &one_deep);
    decode(&e, &p, 2, stops, &two_deep);
    const int freed = all_pages_free(&e, &p, two_deep.steps);

    int cut = is_of_engine(models, &whole);
    for (int i = 0; i < REQUESTS; ++i)
        cut = cut && is_cut(two_deep.text[i], whole.text[i], lengths[i], stops[i]);
    const int same = memcmp(one_deep.text, two_deep.text, sizeof one_deep.text) == 0;
    const int harmless = one_deep.late_tokens == 0 && two_deep.late_tokens > 0 && freed;
    print_run("one deep", &one_deep);
    print_run("two deep", &two_deep);
    printf("two deep: %s as one deep, %s\n", same ? "the same texts" : "OTHER texts",
           cut ? "those of plain requests up to their stop strings"
               : "NOT cut where they should be");
    printf("what came late: %s\n", harmless ? "not emitted, its pages free" : "NOT harmless");
    for (int i = 0; i < REQUESTS; ++i) printf("  %s\n", two_deep.text[i]);
    const int good = same && cut && harmless && one_deep.clean && two_deep.clean;
    printf(good ? "OK\n" : "MISMATCH\n");
    close_pipeline(&p);
    close_engine(&e);
    for (int i = 0; i < LM_NUM_MODELS; ++i) lm_free(&models[i]);
    return good ? 0 : 1;
}
