/* Which batch sizes have a graph, and a pool that holds the graphs. */
#ifndef BUCKETS_H
#define BUCKETS_H
#include <cuda_runtime.h>
#include <stdio.h>

enum { POWERS_OF_TWO, STEP_8, ON_DEMAND, NUM_POLICIES };
static const char *const policy_names[] = {"powers of two", "step 8", "on demand"};

/* Rows of the graph that a step of 1 or more live rows replays. Step 8 has the sizes below 8, too.
   On demand: no padding, and no graph before its size comes. */
static inline int bucket_of(int policy, int live) {
    int rows = 1;
    if (policy == ON_DEMAND || (policy == STEP_8 && live < 8)) return live;
    if (policy == STEP_8) return (live + 7) / 8 * 8;
    while (rows < live) rows *= 2;
    return rows;
}

enum { MAX_GRAPHS = 64 };

typedef struct graph_pool {
    int capacity; /* graphs that it may hold, at most MAX_GRAPHS */
    int count;    /* graphs that it holds */
    int captures; /* of these `updates` went into the executable graph of another size */
    int updates;
    long clock;
    long long bytes; /* device memory that building them took, says cudaMemGetInfo */
    struct {
        int rows;
        long used; /* when it was asked for last */
        cudaGraphExec_t exec;
    } graph[MAX_GRAPHS];
} graph_pool;

/* Enqueues a step of so many rows; not 0: it could not. */
typedef int graph_step(void *what, int rows, cudaStream_t stream);

static inline cudaError_t graph_capture(graph_step *step, void *what, int rows, cudaStream_t stream,
                                        cudaGraph_t *graph) {
    /* global mode: whoever allocates or waits meanwhile, here or elsewhere, gets an error */
    cudaError_t error = cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
    int status;
    if (error != cudaSuccess) return error;
    status = step(what, rows, stream);
    error = cudaStreamEndCapture(stream, graph);
    return error == cudaSuccess && status != 0 ? cudaErrorInvalidValue : error;
}

/* Bytes that memory nodes of graphs hold: none, where all buffers are an arena's. */
static inline cudaError_t graph_buffers(unsigned long long *bytes) {
    int device;
    const cudaError_t error = cudaGetDevice(&device);
    if (error != cudaSuccess) return error;
    return cudaDeviceGetGraphMemAttribute(device, cudaGraphMemAttrReservedMemHigh, bytes);
}

/* The graph of that size to *exec. A miss captures it; in a full pool the graph that was asked for
   longest ago becomes it. Graphs of sizes differ in grids and parameters, which an executable graph
   can take on without a new one being built; where they do not fit, a new one is. Work that was
   enqueued goes on with what it was enqueued with. */
static inline cudaError_t pool_get(graph_pool *pool, int rows, graph_step *step, void *what,
                                   cudaStream_t stream, cudaGraphExec_t *exec) {
    cudaGraphExecUpdateResultInfo info;
    cudaGraph_t graph;
    cudaError_t error;
    size_t free_before, free_after, total;
    int at = 0, oldest = 0;
    while (at < pool->count && pool->graph[at].rows != rows) {
        if (pool->graph[at].used < pool->graph[oldest].used) oldest = at;
        ++at;
    }
    if (at == pool->count) {
        if ((error = cudaMemGetInfo(&free_before, &total)) != cudaSuccess ||
            (error = graph_capture(step, what, rows, stream, &graph)) != cudaSuccess)
            return error;
        if (at == pool->capacity) {
            at = oldest;
            error = cudaGraphExecUpdate(pool->graph[at].exec, graph, &info);
            pool->updates += error == cudaSuccess;
            if (error != cudaSuccess) {
                (void)cudaGetLastError();
                (void)cudaGraphExecDestroy(pool->graph[at].exec);
                error = cudaGraphInstantiate(&pool->graph[at].exec, graph, 0);
            }
        } else {
            error = cudaGraphInstantiate(&pool->graph[at].exec, graph, 0);
            pool->count += error == cudaSuccess;
        }
        (void)cudaGraphDestroy(graph);
        if (error == cudaSuccess) error = cudaMemGetInfo(&free_after, &total);
        if (error != cudaSuccess) return error;
        pool->bytes += (long long)free_before - (long long)free_after;
        pool->graph[at].rows = rows;
        pool->captures += 1;
    }
    pool->graph[at].used = ++pool->clock;
    *exec = pool->graph[at].exec;
    return cudaSuccess;
}

static inline void pool_close(graph_pool *pool) {
    for (int i = 0; i < pool->count; ++i) (void)cudaGraphExecDestroy(pool->graph[i].exec);
    pool->count = 0;
}

#endif
