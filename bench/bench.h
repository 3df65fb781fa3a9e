/* bench.h - what every measurement shares: the clock, the statistics, the generator, the floors.

   How a figure comes about: 20 launches to warm up, then 200 with an event before and after each;
   their median and percentiles are what a caller sees who launches into an idle stream. Beside it
   the same launches replayed from a graph, GRAPH_LAUNCHES at a time: what they cost when no host
   is in the way. The floors are measured in the same run by the same code. */

#ifndef SPECV_BENCH_H
#define SPECV_BENCH_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../tests/ptxrun/include/ptxrun_count.h"

/* BENCH_SIMULATED: built with the runtime of GPGPU-Sim (cycles.sh), which has no graphs, no
   profiler and no stream but the default one, and runs a kernel ten thousand times as slowly. */
#if defined(BENCH_SIMULATED)
#define BENCH_IS_SIMULATED 1
#else
#define BENCH_IS_SIMULATED 0
#include <cuda_profiler_api.h>
#endif

static struct {
    int warmup, iters;           /* launches between event pairs */
    int graph_launches, replays; /* launches in a graph, graphs replayed */
    int quick;                   /* few cases, for a look at whether everything works */
    int interpreted;             /* ptxrun runs us: there are no times */
    int64_t arena_bytes, l2_bytes;
    cudaStream_t stream;
} bench = {20, 200, 64, 20, 0, 0, (int64_t)2 << 30, 0, 0};

#define CUDA_CHECK(call)                                                                           \
    do {                                                                                           \
        cudaError_t cuda_status = (call);                                                          \
        if (cuda_status != cudaSuccess) {                                                          \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call,                          \
                    cudaGetErrorString(cuda_status));                                              \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static void bench_fail(const char *what, int status) {
    fprintf(stderr, "bench: %s: %s\n", what,
            status > 0 ? cudaGetErrorString((cudaError_t)status) : specv_status_string(status));
    exit(1);
}

static void bench_wait(void) { CUDA_CHECK(cudaDeviceSynchronize()); }

/* For profilers and ptxrun: what is launched between the two is looked at. */
static void bench_profile(int on) {
#if !BENCH_IS_SIMULATED
    CUDA_CHECK(on ? cudaProfilerStart() : cudaProfilerStop());
#else
    (void)on;
#endif
}

/* -------------------------------------------------------------------------------- random bits */

static uint64_t bench_random_state = 7;

static uint64_t bench_random(void) { /* splitmix64 */
    uint64_t z = bench_random_state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static double bench_uniform(void) { return (double)(bench_random() >> 11) * 0x1p-53; }

/* Accepted drafts of one row. Binomial(gamma, alpha) is what the seed drew; a chain of drafts that
   are accepted with probability alpha each gives the truncated geometric, which is far shorter. */
static int bench_accepted(int gamma, double alpha, int geometric) {
    int accepted = 0;
    for (int j = 0; j < gamma; ++j) {
        int yes = bench_uniform() < alpha;
        if (geometric && !yes) break;
        accepted += yes;
    }
    return accepted;
}

/* ---------------------------------------------------------------------------------- statistics */

typedef struct bench_times {
    double p10, p50, p90, p95; /* microseconds; 0 where nothing was measured */
} bench_times;

static int bench_compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static bench_times bench_percentiles(double *us, int count) {
    bench_times t = {0, 0, 0, 0};
    if (count == 0) return t;
    qsort(us, (size_t)count, sizeof *us, bench_compare_doubles);
    t.p10 = us[(count - 1) * 10 / 100];
    t.p50 = count % 2 ? us[count / 2] : 0.5 * (us[count / 2 - 1] + us[count / 2]);
    t.p90 = us[(count - 1) * 90 / 100];
    t.p95 = us[(count - 1) * 95 / 100];
    return t;
}

/* ------------------------------------------------------------------------------------- timing */

/* A launch of input set `set`, in whatever state `context` is. 0, or a status that ends the run. */
typedef int (*bench_launch)(const void *context, int set, cudaStream_t stream);

static void *bench_flush_buffer; /* twice the L2 */

static void bench_flush(void) {
    if (bench_flush_buffer)
        CUDA_CHECK(
            cudaMemsetAsync(bench_flush_buffer, 0x5a, (size_t)(2 * bench.l2_bytes), bench.stream));
}

/* An event pair around each launch; the sets take turns. With flush, the L2 holds none of the
   inputs when the launch starts. */
static bench_times bench_time_events(bench_launch launch, const void *context, int num_sets,
                                     int flush) {
    enum { MAX_ITERS = 1000 };
    static cudaEvent_t events[2 * MAX_ITERS];
    static int num_events;
    double us[MAX_ITERS];
    int status = 0, iters = bench.iters < MAX_ITERS ? bench.iters : MAX_ITERS;
    for (; num_events < 2 * iters; ++num_events) CUDA_CHECK(cudaEventCreate(&events[num_events]));
    for (int i = 0; i < bench.warmup && !status; ++i)
        status = launch(context, i % num_sets, bench.stream);
    bench_wait();
    for (int i = 0; i < iters && !status; ++i) {
        if (flush) bench_flush();
        CUDA_CHECK(cudaEventRecord(events[2 * i], bench.stream));
        status = launch(context, i % num_sets, bench.stream);
        CUDA_CHECK(cudaEventRecord(events[2 * i + 1], bench.stream));
    }
    if (status) bench_fail("launch", status);
    bench_wait();
    for (int i = 0; i < iters; ++i) {
        float ms = 0;
        CUDA_CHECK(cudaEventElapsedTime(&ms, events[2 * i], events[2 * i + 1]));
        us[i] = 1e3 * ms;
    }
    return bench_percentiles(us, iters);
}

#if BENCH_IS_SIMULATED
static bench_times bench_time_graph(bench_launch launch, const void *context, int num_sets) {
    const bench_times none = {0, 0, 0, 0};
    (void)launch, (void)context, (void)num_sets;
    return none;
}
#else
/* The same launches in a graph, one after the other: time per launch. */
static bench_times bench_time_graph(bench_launch launch, const void *context, int num_sets) {
    enum { MAX_REPLAYS = 100 };
    double us[MAX_REPLAYS];
    int status = 0, replays = bench.replays < MAX_REPLAYS ? bench.replays : MAX_REPLAYS;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaEvent_t begin, end;
    CUDA_CHECK(cudaStreamBeginCapture(bench.stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < bench.graph_launches && !status; ++i)
        status = launch(context, i % num_sets, bench.stream);
    CUDA_CHECK(cudaStreamEndCapture(bench.stream, &graph));
    if (status) bench_fail("launch under capture", status);
    CUDA_CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CUDA_CHECK(cudaEventCreate(&begin));
    CUDA_CHECK(cudaEventCreate(&end));
    for (int i = bench.warmup ? -2 : 0; i < replays; ++i) { /* below 0: to warm up */
        float ms = 0;
        CUDA_CHECK(cudaEventRecord(begin, bench.stream));
        CUDA_CHECK(cudaGraphLaunch(exec, bench.stream));
        CUDA_CHECK(cudaEventRecord(end, bench.stream));
        bench_wait();
        CUDA_CHECK(cudaEventElapsedTime(&ms, begin, end));
        if (i >= 0) us[i] = 1e3 * ms / bench.graph_launches;
    }
    CUDA_CHECK(cudaEventDestroy(begin));
    CUDA_CHECK(cudaEventDestroy(end));
    CUDA_CHECK(cudaGraphExecDestroy(exec));
    CUDA_CHECK(cudaGraphDestroy(graph));
    return bench_percentiles(us, replays);
}
#endif

/* ------------------------------------------------------------------------------------- floors */

extern "C" __global__ void floor_empty(void) {}

/* Latency probe: `depth` loads, each at the place that the one before names, then a store. */
extern "C" __global__ void floor_probe(const int32_t *chain, int32_t *out, int depth) {
    int thread = (int)(blockIdx.x * blockDim.x + threadIdx.x), place = thread;
    if (depth > 0) place = chain[place]; /* not a loop: its counting would be measured, too */
    if (depth > 1) place = chain[place];
    if (depth > 2) place = chain[place];
    out[thread] = place;
}

typedef struct bench_floor {
    const int32_t *chain; /* num_sets chains of PROBE_MAX_DEPTH * threads places */
    int32_t *out;
    const char *src;
    char *dst;
    int64_t bytes, set_stride; /* copy: bytes per launch, distance of the sets */
    int depth, blocks, threads;
} bench_floor;

enum { PROBE_MAX_DEPTH = 3 };

static int launch_floor_empty(const void *context, int set, cudaStream_t stream) {
    const bench_floor *f = (const bench_floor *)context;
    (void)set;
    floor_empty<<<(unsigned)f->blocks, (unsigned)f->threads, 0, stream>>>();
    return (int)cudaPeekAtLastError();
}

static int launch_floor_probe(const void *context, int set, cudaStream_t stream) {
    const bench_floor *f = (const bench_floor *)context;
    (void)set;
    floor_probe<<<(unsigned)f->blocks, (unsigned)f->threads, 0, stream>>>(f->chain, f->out,
                                                                          f->depth);
    return (int)cudaPeekAtLastError();
}

static int launch_floor_copy(const void *context, int set, cudaStream_t stream) {
    const bench_floor *f = (const bench_floor *)context;
    return (int)cudaMemcpyAsync(f->dst + set * f->set_stride, f->src + set * f->set_stride,
                                (size_t)f->bytes, cudaMemcpyDeviceToDevice, stream);
}

/* Buffers of the probe, for the largest grid that any operation has. */
enum { PROBE_MAX_THREADS = 1 << 20 };

static int32_t *bench_chain, *bench_probe_out;

/* Place t of level i holds place t of level i + 1: neighbours stay neighbours. */
static void bench_build_chain(int threads) {
    static int built;
    int32_t *host;
    if (!bench_chain) {
        CUDA_CHECK(
            cudaMalloc(&bench_chain, sizeof *bench_chain * PROBE_MAX_DEPTH * PROBE_MAX_THREADS));
        CUDA_CHECK(cudaMalloc(&bench_probe_out, sizeof *bench_probe_out * PROBE_MAX_THREADS));
    }
    if (built == threads) return;
    host = (int32_t *)malloc(sizeof *host * PROBE_MAX_DEPTH * (size_t)threads);
    for (int i = 0; i < PROBE_MAX_DEPTH * threads; ++i) host[i] = i + threads;
    CUDA_CHECK(cudaMemcpy(bench_chain, host, sizeof *host * PROBE_MAX_DEPTH * (size_t)threads,
                          cudaMemcpyHostToDevice));
    free(host);
    built = threads;
}

typedef struct bench_bound {
    const char *name;
    double us; /* graph replay, or event pairs where the row has no graph figure */
} bench_bound;

static bench_floor bench_probe(int depth, int blocks, int threads) {
    bench_floor f = {0, 0, 0, 0, 0, 0, 0, 0, 0};
    while ((int64_t)blocks * threads > PROBE_MAX_THREADS) blocks /= 2;
    bench_build_chain(blocks * threads);
    f.chain = bench_chain, f.out = bench_probe_out;
    f.depth = depth, f.blocks = blocks, f.threads = threads;
    return f;
}

/* ------------------------------------------------------------------------------------- set-up */

static void bench_print_machine(const char *flags) {
    cudaDeviceProp p;
    int driver = 0, runtime = 0, clock_khz = 0, memory_khz = 0, device = 0;
    CUDA_CHECK(cudaGetDevice(&device));
    CUDA_CHECK(cudaGetDeviceProperties(&p, device));
    CUDA_CHECK(cudaDriverGetVersion(&driver));
    CUDA_CHECK(cudaRuntimeGetVersion(&runtime));
    /* Advisory: some drivers say 0. */
    if (cudaDeviceGetAttribute(&clock_khz, cudaDevAttrClockRate, device)) clock_khz = 0;
    if (cudaDeviceGetAttribute(&memory_khz, cudaDevAttrMemoryClockRate, device)) memory_khz = 0;
    (void)cudaGetLastError();
    bench.l2_bytes = p.l2CacheSize > 0 ? p.l2CacheSize : (int64_t)64 << 20;
    printf("# gpu: %s, %d SMs, cc %d.%d, L2 %d MiB, SM clock %d MHz, memory clock %d MHz\n",
           bench.interpreted ? "none (ptxrun interprets; no times)" : p.name, p.multiProcessorCount,
           p.major, p.minor, (int)(p.l2CacheSize >> 20), clock_khz / 1000, memory_khz / 1000);
    printf("# driver: %d, runtime: %d, compiler: %d.%d, specverify: %s\n", driver, runtime,
           __CUDACC_VER_MAJOR__, __CUDACC_VER_MINOR__, SPECVERIFY_VERSION_STRING);
    printf("# flags: %s\n", flags);
    printf("# %d warm-up, %d timed launches; graphs of %d launches, %d replays\n", bench.warmup,
           bench.iters, bench.graph_launches, bench.replays);
}

static void bench_start(const char *flags) {
    bench.interpreted = ptxrun_count(NULL, "launches") >= 0;
    if (!BENCH_IS_SIMULATED)
        CUDA_CHECK(cudaStreamCreateWithFlags(&bench.stream, cudaStreamNonBlocking));
    bench_print_machine(flags);
    if (!bench.interpreted)
        CUDA_CHECK(cudaMalloc(&bench_flush_buffer, (size_t)(2 * bench.l2_bytes)));
}

#endif
