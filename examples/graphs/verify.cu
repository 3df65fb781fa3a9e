/* The verify step (rule TOKEN, lengths and live rows in device memory) in CUDA graphs: 1,000 steps
   replayed under three bucket policies, against 1,000 eager steps of the exact batch.

       nvcc -arch=native -I ../.. -o verify verify.cu kit.cu && ./verify [steps]

   batches 1 to 512          graphs  % padding: of rows, of a step  GB: a set each, one arena
     powers of two              10                 24.9       24.5             1.60       0.80
     step 8                     71                  1.3        2.6            25.98       0.80
     on demand                  32                  0.0        0.0            24.75       0.80
     no graphs                   0                  0.0        0.0             0.00       0.80
   1000 eager steps of the exact batch: 3110 tokens
   333 replays, powers of two  5 captures ( 0 into old), 16.9 % padding: same texts, clean loop
   333 replays, step 8         9 captures ( 0 into old),  5.3 % padding: same texts, clean loop
   334 replays, on demand     16 captures (10 into old),  0.0 % padding: same texts, clean loop
   one arena, 268032 bytes
   OK */
#include <cuda_runtime.h>
#include "watch.h"
#include "../arena.h"
#include "buckets.h"
#include "specverify.cuh"
#include <stdlib.h>
#include <string.h>

enum { MAX_LIVE = 12, MAX_ROWS = 16, SLOTS = 16, GAMMA = 2, VOCAB = 48, CACHED = 6, SEED = 12345 };

/* In the arena, but for the counts. */
typedef struct buffers {
    /* of the program: what a scheduler decides, here ahead of time */
    int32_t *schedule; /* [steps] live rows */
    int32_t *likely;   /* [VOCAB] what mostly follows a token */
    int32_t *step;
    /* of requests, by slot */
    float *temperature;
    uint64_t *seed;
    int32_t *len, *text; /* [SLOTS], [SLOTS][max_text] */
    int64_t max_text;
    /* of the step, by row */
    int32_t *num_active, *slot, *draft_len, *draft; /* draft: [MAX_ROWS][GAMMA] */
    float *logits;                                  /* [MAX_ROWS][GAMMA + 1][VOCAB] */
    int32_t *accepted, *emitted, *out;              /* out: [MAX_ROWS][GAMMA + 1] */
    int32_t *spoiled;                               /* rows of padding that said something */
    void *scratch;
    int64_t scratch_bytes;
} buffers;

static buffers lay_out(arena *a, int steps) {
    buffers b;
    const size_t word = sizeof(int32_t), rows = MAX_ROWS;
    b.max_text = 1 + (int64_t)steps * (GAMMA + 1);
    b.scratch_bytes = specv_verify_sample_scratch_bytes(MAX_ROWS, GAMMA, VOCAB);
    b.schedule = (int32_t *)arena_take(a, (size_t)steps * word);
    b.likely = (int32_t *)arena_take(a, VOCAB * word);
    b.step = (int32_t *)arena_take(a, word);
    b.temperature = (float *)arena_take(a, SLOTS * sizeof(float));
    b.seed = (uint64_t *)arena_take(a, SLOTS * sizeof(uint64_t));
    b.len = (int32_t *)arena_take(a, SLOTS * word);
    b.text = (int32_t *)arena_take(a, SLOTS * (size_t)b.max_text * word);
    b.num_active = (int32_t *)arena_take(a, word);
    b.slot = (int32_t *)arena_take(a, rows * word);
    b.draft_len = (int32_t *)arena_take(a, rows * word);
    b.draft = (int32_t *)arena_take(a, rows * GAMMA * word);
    b.logits = (float *)arena_take(a, rows * (GAMMA + 1) * VOCAB * sizeof(float));
    b.accepted = (int32_t *)arena_take(a, rows * word);
    b.emitted = (int32_t *)arena_take(a, rows * word);
    b.out = (int32_t *)arena_take(a, rows * (GAMMA + 1) * word);
    b.spoiled = (int32_t *)arena_take(a, word);
    b.scratch = arena_take(a, (size_t)b.scratch_bytes);
    return b;
}

static __host__ __device__ uint32_t mix(uint32_t a, uint32_t b) {
    a = (a ^ b * 0x9e3779b9u) * 0x85ebca6bu;
    a = (a ^ a >> 15) * 0xc2b2ae35u;
    return a ^ a >> 13;
}

/* Stands for the target: the next token depends on the last one alone. */
static __host__ __device__ float logit(int last, int id) {
    return (float)(mix((uint32_t)last, (uint32_t)id) % 997) / 90;
}

/* The scheduler's part, the drafts (what mostly follows, or in one of five cases anything) and the
   target's pass. A block per row; which rows live it learns from the schedule. */
static __global__ void begin_step(buffers b) {
    const int row = (int)blockIdx.x, live = b.schedule[*b.step];
    const uint32_t chance = mix(mix(SEED, (uint32_t)*b.step), (uint32_t)row);
    const int slot = (*b.step / 7 + row) % SLOTS;
    int last;
    if (row == 0 && threadIdx.x == 0) *b.num_active = live;
    if (row >= live) return; /* of padding the last step's values stay */
    if (threadIdx.x == 0) b.slot[row] = slot, b.draft_len[row] = (int)(chance % (GAMMA + 1));
    last = b.text[slot * b.max_text + b.len[slot] - 1];
    for (int j = 0; j <= GAMMA; ++j) {
        for (int id = (int)threadIdx.x; id < VOCAB; id += (int)blockDim.x)
            b.logits[(row * (GAMMA + 1) + j) * VOCAB + id] = logit(last, id);
        if (j == GAMMA) break;
        const uint32_t die = mix(chance, (uint32_t)j);
        last = die % 5 ? b.likely[last] : (int)(die % VOCAB);
        if (threadIdx.x == 0) b.draft[row * GAMMA + j] = last;
    }
}

/* Emitted tokens to the texts. One block, a thread per row. */
static __global__ void commit(buffers b) {
    const int row = (int)threadIdx.x, slot = b.slot[row];
    const int32_t *const out = b.out + row * (GAMMA + 1);
    if (row < *b.num_active) {
        for (int i = 0; i < b.emitted[row]; ++i)
            b.text[slot * b.max_text + b.len[slot] + i] = out[i];
        b.len[slot] += b.emitted[row];
    } else {
        int silent = b.accepted[row] == 0 && b.emitted[row] == 0;
        for (int i = 0; i <= GAMMA; ++i) silent = silent && out[i] == -1;
        if (!silent) atomicAdd(b.spoiled, 1);
    }
    if (row == 0) *b.step += 1;
}

static int enqueue(void *what, int rows, cudaStream_t stream) {
    const buffers *b = (const buffers *)what;
    specv_verify_sample_desc d = SPECV_ZERO;
    int status;
    d.verify.rows.batch = rows, d.verify.rows.max_draft = GAMMA, d.verify.vocab = VOCAB;
    d.verify.rows.num_active = b->num_active, d.verify.rows.draft_len = b->draft_len;
    d.verify.rows.slot = b->slot, d.verify.rows.num_slots = SLOTS;
    d.verify.draft_tokens = b->draft, d.verify.accepted_len = b->accepted;
    d.verify.num_emitted = b->emitted, d.verify.out_tokens = b->out;
    d.rule = SPECV_RULE_TOKEN, d.target.data = b->logits;
    d.temperature = b->temperature, d.seed = b->seed, d.position = b->len;
    d.scratch = b->scratch, d.scratch_bytes = b->scratch_bytes;
    begin_step<<<(unsigned)rows, 64, 0, stream>>>(*b);
    status = specv_verify_sample(&d, stream);
    commit<<<1, (unsigned)rows, 0, stream>>>(*b);
    return status;
}

#define CUDA(call)                                                                                 \
    do {                                                                                           \
        const cudaError_t error_ = (call);                                                         \
        if (error_ != cudaSuccess)                                                                 \
            return printf("%s: %s\n", #call, cudaGetErrorString(error_)), 1;                       \
    } while (0)

/* ---- the seed's table, for lists of sizes as engines have them ------------------------------- */

/* Bytes that a verify step of so many rows works on: logits in bf16, drafts, texts, scratch. */
static int64_t step_bytes(int rows) {
    enum { DRAFTS = 4, IDS = 128256 };
    return (int64_t)rows * (DRAFTS + 1) * IDS * 2 + (int64_t)rows * (2 * DRAFTS + 6) * 4 +
           specv_verify_sample_scratch_bytes(rows, DRAFTS, IDS);
}

static void print_table(int max_batch, int cached) {
    printf("batches 1 to %-12d graphs  %% padding: of rows, of a step  GB: a set each, one arena\n",
           max_batch);
    for (int policy = 0; policy < NUM_POLICIES; ++policy) {
        int64_t rows = 0, live = 0, own = 0;
        double share = 0;
        int graphs = 0, last = 0;
        for (int n = 1; n <= max_batch; ++n) {
            const int bucket = bucket_of(policy, n);
            rows += bucket, live += n, share += 1 - (double)n / bucket;
            if (bucket != last && policy != ON_DEMAND) ++graphs, own += step_bytes(bucket);
            last = bucket;
        }
        if (policy == ON_DEMAND) /* at worst the pool holds the largest */
            for (; graphs < cached; ++graphs) own += step_bytes(max_batch - graphs);
        printf("  %-22s %6d %20.1f %10.1f %16.2f %10.2f\n", policy_names[policy], graphs,
               100 * (1 - (double)live / (double)rows), 100 * share / max_batch, (double)own * 1e-9,
               (double)step_bytes(last) * 1e-9);
    }
    printf("  %-22s %6d %20.1f %10.1f %16.2f %10.2f\n", "no graphs", 0, 0.0, 0.0, 0.0,
           (double)step_bytes(max_batch) * 1e-9);
}

/* ---- replays --------------------------------------------------------------------------------- */

/* Live rows come and go one by one, mostly few; now and then there are many at once. */
static void make_schedule(int32_t *schedule, int steps) {
    int live = 1;
    for (int t = 0; t < steps; ++t) {
        const uint32_t die = mix(SEED + 1, (uint32_t)t);
        live += (int)(die >> 8) % 3 - 1 - (live > 3 && (die >> 4) % 2);
        if (die % 16 == 0)
            live = 1 + (int)((die >> 8) % MAX_LIVE * ((die >> 16) % MAX_LIVE)) / MAX_LIVE;
        live = live < 1 ? 1 : live > MAX_LIVE ? MAX_LIVE : live;
        schedule[t] = live;
    }
}

typedef struct texts {
    int32_t len[SLOTS], spoiled;
    int32_t *text; /* [SLOTS][max_text] */
} texts;

static int reset(arena *a, const int32_t *schedule, int steps) {
    arena_clear(a);
    const buffers there = lay_out(a, steps), *b = &there; /* where they were, tickets too, and 0 */
    float temperature[SLOTS];
    uint64_t seed[SLOTS];
    int32_t len[SLOTS], likely[VOCAB];
    for (int slot = 0; slot < SLOTS; ++slot) {
        temperature[slot] = 0.7f + 0.02f * (float)slot, seed[slot] = SEED + (uint64_t)slot;
        len[slot] = 1;
    }
    for (int last = 0; last < VOCAB; ++last) {
        likely[last] = 0;
        for (int id = 1; id < VOCAB; ++id)
            if (logit(last, id) > logit(last, likely[last])) likely[last] = id;
    }
    CUDA(cudaMemcpy(b->schedule, schedule, (size_t)steps * 4, cudaMemcpyHostToDevice));
    CUDA(cudaMemcpy(b->likely, likely, sizeof likely, cudaMemcpyHostToDevice));
    CUDA(cudaMemcpy(b->temperature, temperature, sizeof temperature, cudaMemcpyHostToDevice));
    CUDA(cudaMemcpy(b->seed, seed, sizeof seed, cudaMemcpyHostToDevice));
    CUDA(cudaMemcpy(b->len, len, sizeof len, cudaMemcpyHostToDevice));
    return 0;
}

static int read_texts(const buffers *b, texts *t) {
    const size_t bytes = SLOTS * (size_t)b->max_text * sizeof(int32_t);
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaMemcpy(t->len, b->len, sizeof t->len, cudaMemcpyDeviceToHost));
    CUDA(cudaMemcpy(&t->spoiled, b->spoiled, sizeof t->spoiled, cudaMemcpyDeviceToHost));
    CUDA(cudaMemcpy(t->text, b->text, bytes, cudaMemcpyDeviceToHost));
    return 0;
}

static int same(const texts *a, const texts *b, size_t max_text) {
    return memcmp(a->len, b->len, sizeof a->len) == 0 && a->spoiled == 0 && b->spoiled == 0 &&
           memcmp(a->text, b->text, SLOTS * max_text * sizeof(int32_t)) == 0;
}

/* Steps first .. last-1 by graphs. *clean: the loop launched, captured what it lacked, no more. */
static int replay(buffers *b, int policy, const int32_t *schedule, int first, int last,
                  cudaStream_t stream, graph_pool *pool, int64_t *rows, int *clean) {
    int before[WATCH_KINDS];
    size_t free_loop, free_after, total;
    unsigned long long in_graphs; /* bytes */
    cudaGraphExec_t exec;
    for (int n = 1; n <= MAX_LIVE && policy != ON_DEMAND; ++n)
        CUDA(pool_get(pool, bucket_of(policy, n), enqueue, b, stream, &exec));
    CUDA(cudaMemGetInfo(&free_loop, &total));
    memcpy(before, watched, sizeof before);
    const int ready = pool->captures;
    for (int t = first; t < last; ++t) {
        const int bucket = bucket_of(policy, schedule[t]);
        CUDA(pool_get(pool, bucket, enqueue, b, stream, &exec));
        CUDA(cudaGraphLaunch(exec, stream));
        *rows += bucket;
    }
    const int captured = pool->captures - ready; /* each begins a capture, and builds or updates */
    *clean = watched[WATCH_MEMORY] == before[WATCH_MEMORY] &&
             watched[WATCH_WAIT] == before[WATCH_WAIT] &&
             watched[WATCH_COPY] == before[WATCH_COPY] &&
             watched[WATCH_GRAPH] == before[WATCH_GRAPH] + 2 * captured;
    CUDA(cudaMemGetInfo(&free_after, &total));
    if (captured == 0) *clean = *clean && free_after == free_loop;
    CUDA(graph_buffers(&in_graphs));
    *clean = *clean && in_graphs == 0;
    fprintf(stderr, "%s: %d graphs took %lld bytes of device memory, says cudaMemGetInfo\n",
            policy_names[policy], pool->count, pool->bytes);
    return 0;
}

int main(int argc, char **argv) {
    const int steps = argc > 1 ? atoi(argv[1]) : 1000;
    arena a = SPECV_ZERO;
    buffers b = lay_out(&a, steps);
    texts eager[NUM_POLICIES], replayed; /* eager: after each policy's share of the steps */
    int end[NUM_POLICIES + 1], good = 1;
    int64_t live[NUM_POLICIES] = {0};
    cudaStream_t stream;
    int32_t *schedule;
    print_table(512, 32);

    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    arena_open(&a);
    b = lay_out(&a, steps);
    CUDA(a.error);
    const int allocations = watched[WATCH_MEMORY];
    const size_t words = SLOTS * (size_t)b.max_text;
    schedule = (int32_t *)malloc((size_t)steps * sizeof *schedule);
    replayed.text = (int32_t *)malloc((NUM_POLICIES + 1) * words * sizeof(int32_t));
    if (!schedule || !replayed.text) return printf("out of memory\n"), 1;
    make_schedule(schedule, steps);
    for (int i = 0; i <= NUM_POLICIES; ++i) end[i] = steps * i / NUM_POLICIES;

    if (reset(&a, schedule, steps) != 0) return 1;
    for (int policy = 0; policy < NUM_POLICIES; ++policy) {
        for (int t = end[policy]; t < end[policy + 1]; ++t) {
            if (enqueue(&b, schedule[t], stream) != SPECV_OK) return printf("refused\n"), 1;
            live[policy] += schedule[t];
        }
        eager[policy].text = replayed.text + (policy + 1) * words;
        if (read_texts(&b, &eager[policy]) != 0) return 1;
    }
    int64_t tokens = -SLOTS;
    for (int slot = 0; slot < SLOTS; ++slot) tokens += eager[NUM_POLICIES - 1].len[slot];
    printf("%d eager steps of the exact batch: %lld tokens\n", steps, (long long)tokens);

    if (reset(&a, schedule, steps) != 0) return 1;
    for (int policy = 0; policy < NUM_POLICIES; ++policy) {
        graph_pool pool = SPECV_ZERO;
        int64_t rows = 0;
        int clean;
        pool.capacity = policy == ON_DEMAND ? (int)CACHED : (int)MAX_GRAPHS;
        if (replay(&b, policy, schedule, end[policy], end[policy + 1], stream, &pool, &rows,
                   &clean) != 0 ||
            read_texts(&b, &replayed) != 0)
            return 1;
        const int equal = same(&eager[policy], &replayed, (size_t)b.max_text);
        printf("%3d replays, %-13s %2d captures (%2d into old), %4.1f %% padding: %s, %s\n",
               end[policy + 1] - end[policy], policy_names[policy], pool.captures, pool.updates,
               100 * (1 - (double)live[policy] / (double)rows),
               equal ? "same texts" : "OTHER texts", clean ? "clean loop" : "UNCLEAN loop");
        good = good && equal && clean;
        pool_close(&pool);
    }
    const char *const flaw = arena_flaw(&a);
    const int alone = allocations == 1 && watched[WATCH_MEMORY] == 1;
    good = good && !flaw && alone;
    printf("%s, %zu bytes%s%s\n", alone ? "one arena" : "MORE than one allocation", a.size,
           flaw ? ": " : "", flaw ? flaw : "");
    printf(good ? "OK\n" : "MISMATCH\n");
    CUDA(cudaFree(a.base));
    CUDA(cudaStreamDestroy(stream));
    free(schedule);
    free(replayed.text);
    return good ? 0 : 1;
}
