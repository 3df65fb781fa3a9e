/* mpi.c - a step is verified by several processes, each with a part of the vocabulary (tensor
   parallelism), and none ever sees the logits of another. MPI moves the records, the reference does
   the work: no GPU. On one, the same loop with specv_verify_shard and ncclAllGather on its stream.

       mpicc -std=c99 -O2 -I../.. mpi.c -o mpi
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
   48 steps: every output of every rank as of one that has all columns

   logits: what all ranks together have of them, and a gather brings to each. */

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SPECVERIFY_REF_STATIC
#define SPECVERIFY_REF_IMPLEMENTATION
#include "specverify_ref.h"

enum { BATCH = 4, DRAFTS = 3, POSITIONS = DRAFTS + 1, VOCAB = 10000, STEPS = 6 };

/* What a model says of an id at a position of a request, as bf16: a function, so that each rank can
   have its columns of one, and all of them to compare with. The draft model says nearly the
   same. */
static uint16_t logit(int request, int position, int id, int of_draft) {
    const uint64_t key = (uint64_t)request << 32 | (uint32_t)position;
    const specv_random r = specv_philox(key, (uint32_t)id, 0, 0, 0);
    const specv_random other = specv_philox(key, (uint32_t)id, 1, 0, 0);
    float x = 3.f * specv_uniform24(r.x[0]) * specv_uniform24(r.x[1]);
    if (r.x[2] < 1u << 20) x += 9.f; /* a few likely ids */
    if (of_draft) x += 0.5f * specv_uniform24(other.x[0]);
    return (uint16_t)(specv_float_bits(x) >> 16);
}

/* All that a step reads and writes; `first` and `num` are the columns that are here. */
typedef struct step {
    uint16_t *target, *draft;
    int32_t drafts[BATCH][DRAFTS], position[BATCH];
    uint64_t seed[BATCH];
    struct {
        int32_t accepted[BATCH], next[BATCH], tokens[BATCH][POSITIONS];
        uint32_t status[BATCH];
        float logprob[BATCH], lse[BATCH], of_drafts[BATCH][DRAFTS], emitted[BATCH][POSITIONS];
    } out;
} step;

static step *new_step(int num) {
    step *s = (step *)calloc(1, sizeof *s);
    s->target = (uint16_t *)malloc(2 * (size_t)(BATCH * POSITIONS * num) + 2);
    s->draft = (uint16_t *)malloc(2 * (size_t)(BATCH * DRAFTS * num) + 2);
    for (int b = 0; b < BATCH; ++b) s->seed[b] = 1000 + (uint64_t)b;
    return s;
}

/* The models run. */
static void fill(step *s, int first, int num, int with_q) {
    for (int b = 0; b < BATCH; ++b)
        for (int j = 0; j < POSITIONS; ++j)
            for (int x = 0; x < num; ++x) {
                const int at = s->position[b] + j;
                s->target[(b * POSITIONS + j) * num + x] = logit(b, at, first + x, 0);
                if (with_q && j < DRAFTS)
                    s->draft[(b * DRAFTS + j) * num + x] = logit(b, at, first + x, 1);
            }
}

/* Drafts that are often good: the likeliest ids, but for some. */
static void propose(step *all, int n) {
    for (int b = 0; b < BATCH; ++b)
        for (int j = 0; j < DRAFTS; ++j) {
            const uint16_t *of = all->target + (b * POSITIONS + j) * VOCAB;
            int best = 0;
            for (int x = 1; x < VOCAB; ++x) /* none is negative: codes are in the same order */
                if (of[x] > of[best]) best = x;
            all->drafts[b][j] = (n + b + j) % 5 ? best : (best + 1) % VOCAB;
        }
}

static specv_verify_sample_desc describe(step *s, int rule, int with_q, int logs) {
    specv_verify_sample_desc d = SPECV_ZERO;
    d.verify.rows.batch = BATCH, d.verify.rows.max_draft = DRAFTS;
    d.verify.vocab = VOCAB;
    d.verify.draft_tokens = s->drafts;
    d.verify.accepted_len = s->out.accepted, d.verify.next_token = s->out.next;
    d.verify.out_tokens = s->out.tokens, d.verify.row_status = s->out.status;
    d.target.data = s->target, d.target.dtype = SPECV_LOGITS_BF16;
    if (with_q) d.draft.data = s->draft, d.draft.dtype = SPECV_LOGITS_BF16;
    d.seed = s->seed, d.position = s->position, d.rule = rule;
    if (logs) d.logprob = s->out.logprob, d.lse = s->out.lse;
    if (logs) d.emitted.logprob = &s->out.emitted[0][0];
    if (rule == SPECV_RULE_SCORE) d.target_logprob = &s->out.of_drafts[0][0];
    return d;
}

static void check(int status, const char *what) {
    if (status == SPECV_OK) return;
    fprintf(stderr, "%s: %s\n", what, specv_status_string(status));
    MPI_Abort(MPI_COMM_WORLD, 1);
}

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
        check(specv_ref_verify_shard(d), "specv_ref_verify_shard");
        if (bytes == 0) return sent;
        MPI_Allgather(record, (int)bytes, MPI_BYTE, gathered, (int)bytes, MPI_BYTE, MPI_COMM_WORLD);
        d->gathered = gathered;
        sent += bytes, *exchanges += 1;
    }
}

int main(int argc, char **argv) {
    static const struct {
        const char *rule, *q;
        int id, with_q, logs;
    } runs[] = {
        {"GREEDY", "-", SPECV_RULE_GREEDY, 0, 0},     {"COUPLED", "-", SPECV_RULE_COUPLED, 0, 0},
        {"COUPLED", "lse", SPECV_RULE_COUPLED, 0, 1}, {"SCORE", "-", SPECV_RULE_SCORE, 0, 1},
        {"TOKEN", "-", SPECV_RULE_TOKEN, 0, 1},       {"TOKEN", "bf16", SPECV_RULE_TOKEN, 1, 1},
        {"BLOCK", "-", SPECV_RULE_BLOCK, 0, 1},       {"BLOCK", "bf16", SPECV_RULE_BLOCK, 1, 1}};
    const int tiles = (VOCAB + SPECV_TILE_IDS - 1) / SPECV_TILE_IDS;
    int rank, ranks, differ = 0, all_differ, steps = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    /* Whole tiles for each; the last one also has what the vocabulary ends with. */
    const int first = tiles * rank / ranks * SPECV_TILE_IDS;
    const int end = tiles * (rank + 1) / ranks * SPECV_TILE_IDS;
    const int num = (end < VOCAB ? end : VOCAB) - first;
    const int64_t scratch_bytes = specv_shard_scratch_bytes(BATCH, DRAFTS, num, ranks);
    step *own = new_step(num), *all = new_step(VOCAB);
    char *record = (char *)malloc(1 << 16), *gathered = (char *)malloc((size_t)ranks << 16);
    void *scratch = malloc((size_t)scratch_bytes);
    if (rank == 0)
        printf("a step of %d requests, %d drafts each, %d ids, bf16: bytes that a rank sends\n"
               "rule     draft scores  exchanges  bytes  logits\n",
               BATCH, DRAFTS, VOCAB);
    for (int i = 0; i < (int)(sizeof runs / sizeof runs[0]); ++i) {
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
            d.sample = describe(own, runs[i].id, runs[i].with_q, runs[i].logs);
            d.sample.scratch = scratch, d.sample.scratch_bytes = scratch_bytes;
            d.first_id = first, d.num_ids = num, d.num_shards = ranks;
            sent = verify_together(&d, record, gathered, &exchanges);
            of_one = describe(all, runs[i].id, runs[i].with_q, runs[i].logs);
            of_one.scratch = scratch, of_one.scratch_bytes = INT64_MAX; /* it needs none */
            check(specv_ref_verify_sample(&of_one), "specv_ref_verify_sample");
            differ += memcmp(&own->out, &all->out, sizeof own->out) != 0;
            for (int b = 0; b < BATCH; ++b) own->position[b] += own->out.accepted[b] + 1;
            steps += 1;
        }
        if (rank == 0)
            printf("%-8s %-12s %10d %6d %7d\n", runs[i].rule, runs[i].q, exchanges, (int)sent,
                   2 * VOCAB * BATCH * (POSITIONS + (runs[i].with_q ? DRAFTS : 0)));
    }
    MPI_Allreduce(&differ, &all_differ, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0 && all_differ == 0)
        printf("%d steps: every output of every rank as of one that has all columns\n", steps);
    else if (rank == 0)
        printf("%d of %d outputs differ\n", all_differ, steps * ranks);
    free(own->target), free(own->draft), free(own), free(all->target), free(all->draft), free(all);
    free(record), free(gathered), free(scratch);
    MPI_Finalize();
    return all_differ != 0;
}
