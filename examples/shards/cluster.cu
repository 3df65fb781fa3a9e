/* cluster.cu - the exchange of A9 inside a kernel that makes logits: ranks are the blocks of a
   cluster, and distributed shared memory stands in for NVLink. It is what an engine does that has a
   one-shot all-gather of its own: three times a word or two of each row go from every rank to every
   rank, then all have the token, with the bits of A8 over all columns.

       nvcc -arch=sm_90 -I ../.. -o cluster cluster.cu && ./cluster

   12 rows of 10000 logits, 4 ranks with 2048, 3072, 2048 and 2832 ids
   tokens: 6710 6630 3450 5318 8190 2857 9618 3462 7610 6692 313 6927
   every rank has the tokens and log-probabilities of one that has all columns

   Where there are no clusters (before sm_90) it says so and exits with 77. */
#include <cooperative_groups.h>
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SPECVERIFY_STATIC
#include "specverify.cuh"
#define SPECVERIFY_REF_STATIC
#define SPECVERIFY_REF_IMPLEMENTATION
#include "specverify_ref.h"

enum { RANKS = 4, ROWS = 12, WARPS = 4, VOCAB = 10000, NO_CLUSTERS = 77 };
enum { TILES = (VOCAB + SPECV_TILE_IDS - 1) / SPECV_TILE_IDS, OF_RANK = TILES };

/* What the model says; a kernel of an engine has it in registers. */
typedef struct step {
    float logits[ROWS][VOCAB];
    float temperature[ROWS], logprob[RANKS][ROWS];
    uint64_t seed[ROWS];
    int32_t position[ROWS], token[RANKS][ROWS];
} step;

/* A rank's memory, of which the others write parts. */
typedef struct rank_memory {
    specv_tile tiles[ROWS][OF_RANK];      /* its own */
    specv_tile shards[ROWS][RANKS];       /* first exchange: what ranks say of their columns */
    unsigned long long sums[ROWS][RANKS]; /* second: of the row's sum */
    int32_t token[ROWS];                  /* third: from the rank that has drawn it, */
    float score[ROWS];                    /* and its logit */
} rank_memory;

/* Ids from which on a rank has them: whole tiles. */
static __host__ __device__ int first_id_of(int rank) {
    const int first = TILES * rank / RANKS * SPECV_TILE_IDS;
    return rank == RANKS ? VOCAB : first;
}

static __global__ void __cluster_dims__(RANKS, 1, 1) sample_by_ranks(step *s) {
    __shared__ rank_memory memory;
    const cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();
    const int rank = (int)cluster.block_rank(), warp = (int)threadIdx.x / 32;
    const int lane = (int)threadIdx.x % 32;
    const int first_id = first_id_of(rank), num_ids = first_id_of(rank + 1) - first_id;
    const int num_tiles = (num_ids + SPECV_TILE_IDS - 1) / SPECV_TILE_IDS;
    /* Lane r sends to rank r. */
    rank_memory *other = cluster.map_shared_rank(&memory, (unsigned)lane % RANKS);

    for (int row = warp; row < ROWS; row += WARPS) {
        const specv_scale scale = specv_softmax_scale(s->temperature[row]);
        for (int t = 0; t < num_tiles; ++t) {
            const specv_noise none = {0, 0, 0, 0};
            float score[32];
            specv_warp_load_tile(score, s->logits[row] + first_id, SPECV_LOGITS_F32, num_ids, t);
            const specv_tile tile = specv_warp_tile_stats(score, 4, first_id / SPECV_TILE_IDS + t,
                                                          SPECV_TILE_SUM, &scale, &none);
            if (lane == 0) memory.tiles[row][t] = tile;
        }
        __syncwarp();
        const specv_tile mine =
            specv_warp_shard_tile(memory.tiles[row], num_tiles, SPECV_TILE_SUM, &scale);
        if (lane < RANKS) other->shards[row][rank] = mine;
    }
    cluster.sync();

    for (int row = warp; row < ROWS; row += WARPS) {
        const specv_scale scale = specv_softmax_scale(s->temperature[row]);
        const specv_distribution p =
            specv_warp_merge_tiles(memory.shards[row], RANKS, SPECV_TILE_SUM, 0, &scale);
        const uint64_t sum = specv_warp_shard_sum(memory.tiles[row], num_tiles, &p, &scale);
        if (lane < RANKS) other->sums[row][rank] = sum;
    }
    cluster.sync();

    for (int row = warp; row < ROWS; row += WARPS) {
        const specv_scale scale = specv_softmax_scale(s->temperature[row]);
        specv_distribution p =
            specv_warp_merge_tiles(memory.shards[row], RANKS, SPECV_TILE_SUM, 0, &scale);
        __syncwarp();
        if (lane < RANKS) {
            specv_tile *shard = &memory.shards[row][lane];
            shard->sum = memory.sums[row][lane];
            if (shard->sum) shard->max = p.max; /* it is in the row's units */
        }
        __syncwarp();
        p = specv_warp_merge_tiles(memory.shards[row], RANKS, SPECV_TILE_SUM, 0, &scale);
        const specv_random random =
            specv_philox(s->seed[row], (uint32_t)s->position[row], 0, 0, SPECV_TAG_DRAW);
        const specv_shard_place place = specv_thread_choose_shard(
            memory.shards[row], RANKS, (uint64_t)random.x[1] << 32 | random.x[0]);
        if (place.rank != rank) continue;
        const int column =
            specv_warp_draw_in_shard(s->logits[row] + first_id, SPECV_LOGITS_F32, num_ids,
                                     memory.tiles[row], num_tiles, &p, &scale, place);
        if (lane >= RANKS || column < 0) continue;
        other->token[row] = first_id + column;
        other->score[row] = s->logits[row][first_id + column];
    }
    cluster.sync();

    for (int row = warp; row < ROWS; row += WARPS) { /* all of it is known on every rank */
        const specv_scale scale = specv_softmax_scale(s->temperature[row]);
        const specv_distribution p =
            specv_warp_merge_tiles(memory.shards[row], RANKS, SPECV_TILE_SUM, 0, &scale);
        if (lane != 0) continue;
        s->token[rank][row] = memory.token[row];
        s->logprob[rank][row] = specv_log_probability(&p, &scale, memory.score[row]);
    }
}

static void check(int status, const char *what) {
    if (status == 0) return;
    fprintf(stderr, "%s: %s\n", what, specv_status_string(status));
    exit(1);
}

int main(void) {
    step *s = (step *)calloc(1, sizeof *s), *on_device;
    int32_t token[ROWS];
    float logprob[ROWS];
    specv_sample_desc d = SPECV_ZERO;
    int major, differ = 0;
    check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), "attribute");
    if (major < 9) {
        printf("no clusters on this GPU\n");
        return NO_CLUSTERS;
    }
    for (int row = 0; row < ROWS; ++row) {
        s->temperature[row] = 0.5f + 0.125f * (float)row;
        s->seed[row] = 77 + (uint64_t)row, s->position[row] = 10 * row;
        for (int id = 0; id < VOCAB; ++id) {
            const specv_random r = specv_philox((uint64_t)row, (uint32_t)id, 0, 0, 0);
            s->logits[row][id] = 9.f * specv_uniform24(r.x[0]) * specv_uniform24(r.x[1]);
        }
    }
    check(cudaMalloc(&on_device, sizeof *s), "cudaMalloc");
    check(cudaMemcpy(on_device, s, sizeof *s, cudaMemcpyHostToDevice), "cudaMemcpy");
    sample_by_ranks<<<RANKS, 32 * WARPS>>>(on_device);
    check(cudaGetLastError(), "sample_by_ranks");
    check(cudaDeviceSynchronize(), "sample_by_ranks");

    d.token_dtype = SPECV_I32, d.batch = ROWS, d.vocab = VOCAB;
    d.scores.data = s->logits, d.scores.dtype = SPECV_LOGITS_F32;
    d.temperature = s->temperature, d.seed = s->seed, d.position = s->position;
    d.token = token, d.logprob = logprob;
    d.scratch = s, d.scratch_bytes = INT64_MAX; /* it needs none */
    check(specv_ref_sample(&d), "specv_ref_sample");

    check(cudaMemcpy(s, on_device, sizeof *s, cudaMemcpyDeviceToHost), "cudaMemcpy");
    printf("%d rows of %d logits, %d ranks with", ROWS, VOCAB, RANKS);
    for (int r = 0; r < RANKS; ++r)
        printf("%s %d",
               r == 0           ? ""
               : r == RANKS - 1 ? " and"
                                : ",",
               first_id_of(r + 1) - first_id_of(r));
    printf(" ids\ntokens:");
    for (int row = 0; row < ROWS; ++row) printf(" %d", (int)s->token[0][row]);
    for (int r = 0; r < RANKS; ++r)
        differ += memcmp(s->token[r], token, sizeof token) != 0 ||
                  memcmp(s->logprob[r], logprob, sizeof logprob) != 0;
    printf(differ
               ? "\n%d ranks differ\n"
               : "\nevery rank has the tokens and log-probabilities of one that has all columns\n",
           differ);
    cudaFree(on_device), free(s);
    return differ != 0;
}
