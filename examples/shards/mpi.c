/* mpi.c - a step is verified by several processes, each with a part of the vocabulary (tensor
   parallelism), and none ever sees the logits of another. MPI moves the records, the reference does
   the work: no GPU. As CUDA the kernels do it, in memory that MPI reads; an MPI that knows GPUs
   needs no such memory, and nccl.cu no host.

       mpicc -std=c99 -O2 -I../.. mpi.c -o mpi
       nvcc -O2 -I../.. -ccbin mpicxx -x cu mpi.c -o mpi
       mpirun -n 4 ./mpi

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

   logits: what all ranks together have of them, and a gather brings to each. k: each row has a
   top_k of 40 or less, and some a top_p; all k, or k of other rules: ranks are told that all
   have. */

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__CUDACC__)
#define SPECVERIFY_IMPLEMENTATION
#endif
#define SPECVERIFY_REF_STATIC
#define SPECVERIFY_REF_IMPLEMENTATION
#include "specverify_ref.h"

#include "step.h"

static void check(int status, const char *what) {
    if (status == SPECV_OK) return;
    fprintf(stderr, "%s: %s\n", what, specv_status_string(status));
    MPI_Abort(MPI_COMM_WORLD, 1);
}

#if defined(__CUDACC__)
static void *take(size_t bytes) {
    void *memory = NULL;
    return cudaMallocManaged(&memory, bytes) == cudaSuccess ? memory : NULL;
}

static void give(void *memory) { (void)cudaFree(memory); }

static int verify_shard(const specv_verify_shard_desc *d) {
    const int status = specv_verify_shard(d, 0);
    return status ? status : (int)cudaDeviceSynchronize(); /* above 0: a cudaError_t */
}
#else
static void *take(size_t bytes) { return malloc(bytes); }
static void give(void *memory) { free(memory); }
static int verify_shard(const specv_verify_shard_desc *d) { return specv_ref_verify_shard(d); }
#endif

/* One verification by all ranks; bytes that this one sends. This loop is all that an engine
   adds. */
static int64_t verify_together(specv_verify_shard_desc *d, char *record, char *gathered,
                               int *exchanges) {
    int64_t sent = 0;
    *exchanges = 0;
    for (d->step = 0;; ++d->step) {
        const int64_t bytes = specv_shard_record_bytes(d);
        check(bytes < 0 ? (int)bytes : SPECV_OK, "specv_shard_record_bytes");
        d->record = bytes ? record : NULL;
        check(verify_shard(d), "verify_shard");
        if (bytes == 0) return sent;
        MPI_Allgather(record, (int)bytes, MPI_BYTE, gathered, (int)bytes, MPI_BYTE, MPI_COMM_WORLD);
        d->gathered = gathered;
        sent += bytes, *exchanges += 1;
    }
}

int main(int argc, char **argv) {
    int rank, ranks, differ = 0, all_differ, steps = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const int first = first_id_of(rank, ranks), num = first_id_of(rank + 1, ranks) - first;
    const int64_t scratch_bytes = specv_shard_scratch_bytes(BATCH, DRAFTS, num, ranks);
    step *own = new_step(num, take), *all = new_step(VOCAB, malloc);
    char *record = (char *)take(1 << 16), *gathered = (char *)take((size_t)ranks << 16);
    void *scratch = take((size_t)scratch_bytes);
    if (rank == 0) print_head();
    for (int i = 0; i < NUM_RUNS; ++i) {
        int64_t sent = 0;
        int exchanges = 0;
        for (int b = 0; b < BATCH; ++b) own->position[b] = 100 * b;
        for (int n = 0; n < STEPS; ++n) {
            specv_verify_shard_desc d = SPECV_ZERO;
            specv_verify_sample_desc of_one;
            memcpy(all->position, own->position, sizeof all->position);
            fill(own, first, num, runs[i].with_q), fill(all, 0, VOCAB, runs[i].with_q);
            propose(all, n);
            memcpy(own->drafts, all->drafts, sizeof own->drafts);
            memset(&own->out, 0, sizeof own->out), memset(&all->out, 0, sizeof all->out);
            d.sample = describe(own, runs[i].id, runs[i].with_q, runs[i].logs, runs[i].limits);
            d.sample.scratch = scratch, d.sample.scratch_bytes = scratch_bytes;
            d.first_id = first, d.num_ids = num, d.num_shards = ranks;
            if (runs[i].limits) d.max_top_k = MAX_TOP_K, d.all_top_k = runs[i].limits == 2;
            sent = verify_together(&d, record, gathered, &exchanges);
            of_one = describe(all, runs[i].id, runs[i].with_q, runs[i].logs, runs[i].limits);
            of_one.scratch = scratch, of_one.scratch_bytes = INT64_MAX; /* it needs none */
            check(specv_ref_verify_sample(&of_one), "specv_ref_verify_sample");
            differ += memcmp(&own->out, &all->out, sizeof own->out) != 0;
            for (int b = 0; b < BATCH; ++b) own->position[b] += own->out.accepted[b] + 1;
            steps += 1;
        }
        if (rank == 0) print_run(i, exchanges, sent);
    }
    MPI_Allreduce(&differ, &all_differ, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) print_end(steps, ranks, all_differ);
    free(all->target), free(all->draft), free(all);
    give(own->target), give(own->draft), give(own);
    give(record), give(gathered), give(scratch);
    MPI_Finalize();
    return all_differ != 0;
}
