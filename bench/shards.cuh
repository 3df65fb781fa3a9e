/* shards.cuh - A9: two ranks that hold half of the vocabulary each, on one machine, one after the
   other.

   What is counted and simulated is one rank's launch of one step, as the others' run beside it;
   records go from rank to rank by copies in between. The outputs of the last step are compared with
   the reference's of all columns. */

#ifndef SPECV_BENCH_SHARDS_CUH
#define SPECV_BENCH_SHARDS_CUH

enum { NUM_SHARDS = 2, MAX_STEPS = 5 };

typedef struct shards_run {
    specv_verify_shard_desc rank[NUM_SHARDS];
    int step, num_steps;
    int64_t record_bytes[MAX_STEPS]; /* of a rank */
} shards_run;

static char *shards_memory(int64_t bytes) {
    char *memory;
    CUDA_CHECK(cudaMalloc(&memory, (size_t)bytes));
    CUDA_CHECK(cudaMemset(memory, 0, (size_t)bytes));
    return memory;
}

/* The columns of a rank, where they are among all. */
static void take_columns(specv_scores *scores, const scores_run *r, int positions, int64_t first) {
    if (!scores->data) return;
    scores->data = (const char *)scores->data + first * score_bytes(r->dtype);
    scores->pos_stride_elems = r->vocab, scores->seq_stride_elems = positions * r->vocab;
}

/* Two ranks for the mode that `r` is prepared for; outputs are those of `r`. */
static void prepare_shards(shards_run *s, const scores_run *r) {
    const int64_t half = r->vocab / NUM_SHARDS;
    const int64_t scratch = specv_shard_scratch_bytes(r->batch, r->gamma, half, NUM_SHARDS);
    specv_verify_shard_desc d = SPECV_ZERO;
    memset(s, 0, sizeof *s);
    if (r->vocab % (NUM_SHARDS * SPECV_TILE_IDS) || scratch < 0) bench_fail("shards", (int)scratch);
    d.sample = r->verify[0];
    d.num_ids = (int32_t)half, d.num_shards = NUM_SHARDS;
    if (r->mode->top_k) d.max_top_k = r->mode->top_k, d.all_top_k = 1;
    for (d.step = 0;; ++d.step) {
        const int64_t bytes = specv_shard_record_bytes(&d);
        if (bytes < 0 || d.step >= MAX_STEPS) bench_fail("records", (int)bytes);
        s->record_bytes[d.step] = bytes, s->num_steps = d.step + 1;
        if (bytes > d.record_stride_bytes) d.record_stride_bytes = bytes;
        if (bytes == 0) break;
    }
    for (int i = 0; i < NUM_SHARDS; ++i) {
        d.first_id = (int32_t)(i * half);
        d.sample = r->verify[0];
        take_columns(&d.sample.target, r, r->gamma + 1, d.first_id);
        take_columns(&d.sample.draft, r, r->gamma, d.first_id);
        d.sample.scratch = shards_memory(scratch), d.sample.scratch_bytes = scratch;
        d.record = shards_memory(d.record_stride_bytes);
        d.gathered = shards_memory(NUM_SHARDS * d.record_stride_bytes);
        s->rank[i] = d;
    }
}

static int launch_shard(const void *context, int rank, cudaStream_t stream) {
    const shards_run *s = (const shards_run *)context;
    specv_verify_shard_desc d = s->rank[rank];
    d.step = s->step;
    if (d.step == 0) d.gathered = NULL;
    if (d.step == s->num_steps - 1) d.record = NULL;
    return specv_verify_shard(&d, stream);
}

/* All steps before `last` on all ranks, and what they leave to it. */
static void run_shards(shards_run *s, int last) {
    for (s->step = 0; s->step < last; ++s->step) {
        for (int i = 0; i < NUM_SHARDS; ++i) {
            const int status = launch_shard(s, i, bench.stream);
            if (status) bench_fail("a step of shards", status);
        }
        for (int to = 0; to < NUM_SHARDS; ++to)
            for (int from = 0; from < NUM_SHARDS; ++from)
                CUDA_CHECK(cudaMemcpyAsync((char *)s->rank[to].gathered +
                                               from * s->rank[to].record_stride_bytes,
                                           s->rank[from].record, (size_t)s->record_bytes[s->step],
                                           cudaMemcpyDeviceToDevice, bench.stream));
    }
    bench_wait();
}

/* What verify_scores found to be the reference's, found again by the ranks. */
static void verify_shards(shards_run *s, const scores_run *r) {
    const size_t bytes = (size_t)(r->of_all.bytes - r->of_all.at[FIELD_LENS]);
    char *const outputs = r->base + r->of_all.at[FIELD_LENS];
    int status;
    CUDA_CHECK(cudaMemcpy(host_in, outputs, bytes, cudaMemcpyDeviceToHost));
    CUDA_CHECK(cudaMemset(outputs, 0xa5, bytes));
    run_shards(s, s->num_steps - 1);
    if ((status = launch_shard(s, 0, bench.stream)) != 0) bench_fail("the last step", status);
    bench_wait();
    CUDA_CHECK(cudaMemcpy(host_out, outputs, bytes, cudaMemcpyDeviceToHost));
    if (memcmp(host_in, host_out, bytes) != 0) bench_fail("ranks differ from the reference", -1);
}

#endif
