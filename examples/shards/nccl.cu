/* nccl.cu - mpi.c on GPUs: a thread for each, NCCL gathers the records. All launches and exchanges
   of a verification are captured once, in a graph, and replayed for each step: nothing waits for
   the host in between.

       nvcc -std=c++17 -O2 -arch=native -I../.. nccl.cu ../graphs/kit.cu -o nccl -lnccl
       ./nccl             (as many ranks as there are GPUs; ./nccl 2: two of them)

   Without a GPU it says so and exits with 77. With -Ialone and without -lnccl it is a rank alone.
   Prints, with any number of ranks:

   a step of 4 requests, 3 drafts each, 10000 ids, bf16: bytes that a rank sends
   rule     draft scores  exchanges  bytes  logits
   GREEDY   -                     1    160  320000
   COUPLED  -                     1    288  320000
   COUPLED  lse                   2    512  320000
   SCORE    -                     3    448  320000
   TOKEN    -                     3    576  320000
   TOKEN    bf16                  4    896  560000
   BLOCK    -                     3    576  320000
   BLOCK    bf16                  4   1184  560000
   COUPLED  k                     1   5408  320000
   SCORE    k                     1   5280  320000
   TOKEN    k                     3   5696  320000
   TOKEN    all k                 1   5280  320000
   TOKEN    bf16, k               1  10528  560000
   BLOCK    bf16, k               1  10528  560000
   84 steps: every output of every rank as of one that has all columns
*/

#include <cuda_runtime.h>
#include <nccl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "specverify.cuh"
#define SPECVERIFY_REF_STATIC
#define SPECVERIFY_REF_IMPLEMENTATION
#include "specverify_ref.h"

#include "step.h"

enum { MAX_RANKS = 64, RECORD_BYTES = 1 << 16, NO_GPU = 77 };

static void fail(const char *what, const char *why) {
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}
static void check(int status, const char *what) {
    if (status < 0) fail(what, specv_status_string(status));
    if (status > 0) fail(what, cudaGetErrorString((cudaError_t)status));
}
static void check_nccl(ncclResult_t result, const char *what) {
    if (result != ncclSuccess) fail(what, ncclGetErrorString(result));
}

static void *managed(size_t bytes) {
    void *memory = NULL;
    check(cudaMallocManaged(&memory, bytes), "cudaMallocManaged");
    return memory;
}

typedef struct rank_args {
    pthread_t thread;
    ncclUniqueId id;
    int rank, ranks, differ, steps;
} rank_args;

/* All steps of a verification, on the stream; bytes that this rank sends. */
static int64_t enqueue(specv_verify_shard_desc *d, char *record, char *gathered, ncclComm_t comm,
                       cudaStream_t stream, int *exchanges) {
    int64_t sent = 0;
    *exchanges = 0;
    d->gathered = NULL;
    for (d->step = 0;; ++d->step) {
        const int64_t bytes = specv_shard_record_bytes(d);
        check(bytes < 0 ? (int)bytes : SPECV_OK, "specv_shard_record_bytes");
        d->record = bytes ? record : NULL;
        check(specv_verify_shard(d, stream), "specv_verify_shard");
        if (bytes == 0) return sent;
        check_nccl(ncclAllGather(record, gathered, (size_t)bytes, ncclChar, comm, stream),
                   "ncclAllGather");
        d->gathered = gathered;
        sent += bytes, *exchanges += 1;
    }
}

static void *run_rank(void *args) {
    rank_args *a = (rank_args *)args;
    const int first = first_id_of(a->rank, a->ranks);
    const int num = first_id_of(a->rank + 1, a->ranks) - first;
    const int64_t scratch_bytes = specv_shard_scratch_bytes(BATCH, DRAFTS, num, a->ranks);
    char *record, *gathered;
    void *scratch, *of_reference = malloc(32);
    cudaStream_t stream;
    ncclComm_t comm;
    check(cudaSetDevice(a->rank), "cudaSetDevice");
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    check_nccl(ncclCommInitRank(&comm, a->ranks, a->id, a->rank), "ncclCommInitRank");
    check(cudaMalloc(&record, RECORD_BYTES), "cudaMalloc");
    check(cudaMalloc(&gathered, (size_t)a->ranks * RECORD_BYTES), "cudaMalloc");
    check(cudaMalloc(&scratch, (size_t)scratch_bytes), "cudaMalloc");
    check(cudaMemset(scratch, 0, (size_t)scratch_bytes), "cudaMemset");
    step *own = new_step(num, managed), *all = new_step(VOCAB, malloc);
    for (int i = 0; i < NUM_RUNS; ++i) {
        specv_verify_shard_desc d = SPECV_ZERO;
        cudaGraph_t graph;
        cudaGraphExec_t replay;
        int exchanges;
        d.sample = describe(own, runs[i].id, runs[i].with_q, runs[i].logs, runs[i].limits);
        d.sample.scratch = scratch, d.sample.scratch_bytes = scratch_bytes;
        d.first_id = first, d.num_ids = num, d.num_shards = a->ranks;
        if (runs[i].limits) d.max_top_k = MAX_TOP_K, d.all_top_k = runs[i].limits == 2;
        check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
        const int64_t sent = enqueue(&d, record, gathered, comm, stream, &exchanges);
        check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
        check(cudaGraphInstantiate(&replay, graph, 0), "cudaGraphInstantiate");
        for (int b = 0; b < BATCH; ++b) own->position[b] = 100 * b;
        for (int n = 0; n < STEPS; ++n) {
            memcpy(all->position, own->position, sizeof all->position);
            fill(own, first, num, runs[i].with_q), fill(all, 0, VOCAB, runs[i].with_q);
            propose(all, n);
            memcpy(own->drafts, all->drafts, sizeof own->drafts);
            memset(&own->out, 0, sizeof own->out), memset(&all->out, 0, sizeof all->out);
            check(cudaGraphLaunch(replay, stream), "cudaGraphLaunch");
            check(cudaStreamSynchronize(stream), "a step");
            specv_verify_sample_desc of_one =
                describe(all, runs[i].id, runs[i].with_q, runs[i].logs, runs[i].limits);
            of_one.scratch = of_reference, of_one.scratch_bytes = INT64_MAX; /* it needs none */
            check(specv_ref_verify_sample(&of_one), "specv_ref_verify_sample");
            a->differ += memcmp(&own->out, &all->out, sizeof own->out) != 0;
            for (int b = 0; b < BATCH; ++b) own->position[b] += own->out.accepted[b] + 1;
            a->steps += 1;
        }
        check(cudaGraphExecDestroy(replay), "cudaGraphExecDestroy");
        check(cudaGraphDestroy(graph), "cudaGraphDestroy");
        if (a->rank == 0) print_run(i, exchanges, sent);
    }
    check_nccl(ncclCommDestroy(comm), "ncclCommDestroy");
    free(all->target), free(all->draft), free(all), free(of_reference);
    return NULL; /* the rest goes with the process */
}

int main(int argc, char **argv) {
    static rank_args args[MAX_RANKS];
    int gpus = 0, differ = 0;
    if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0) {
        printf("no GPU\n");
        return NO_GPU;
    }
    const int wanted = argc > 1 ? (int)strtol(argv[1], NULL, 10) : gpus;
    const int ranks = wanted < gpus ? wanted : gpus;
    if (ranks < 1 || ranks > MAX_RANKS) fail("ranks", "1 to 64, and no more than there are GPUs");
    check_nccl(ncclGetUniqueId(&args[0].id), "ncclGetUniqueId");
    print_head();
    for (int i = 0; i < ranks; ++i) {
        args[i].id = args[0].id, args[i].rank = i, args[i].ranks = ranks;
        if (pthread_create(&args[i].thread, NULL, run_rank, &args[i]) != 0)
            fail("pthread_create", "no thread");
    }
    for (int i = 0; i < ranks; ++i) {
        pthread_join(args[i].thread, NULL);
        differ += args[i].differ;
    }
    print_end(args[0].steps, ranks, differ);
    return differ != 0;
}
