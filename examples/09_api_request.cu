/* What API requests ask for - temperature, top_k, top_p, min_p, a grammar, log-probabilities - from
   raw logits to verified tokens in one call a step, in one CUDA graph for all of them: requests,
   masks and logits change in device memory. Drafts are drawn under the same limits.

       nvcc -arch=native -I .. -o 09_api_request 09_api_request.cu && ./09_api_request

   top_k, top_p: 9G1hP7nYPIt5tBHWSWE8f4fiI0y1q6VW6VW1ffi6Z80yzAsC   ln p -90.63
   a grammar: 0R5b8q6Z8k1m3p3l8u2r6t5H1S8f4q1N1m2O4v4f4a9G1X5r   ln p -104.79, obeys the grammar
   plain: 0dQJ3lNGrGNRR69LqUqcngdA7Ri6   ln p -87.03
   min_p: LbEX5X2Uh8f21EA73DWSfFqepZ2dISfFyItWj0FsbnxHfG9G0y   ln p -144.38
   all of it: 0R9B2z1h3p3l0y1i1i   ln p -25.96, obeys the grammar
   16 replays: the same bits as the reference
   OK */
#include <cuda_runtime.h>
#include <stdio.h>
#include <string.h>
#define SPECVERIFY_IMPLEMENTATION
#include "specverify.cuh"
#define SPECVERIFY_REF_IMPLEMENTATION
#include "specverify_ref.h" /* for the check alone */

enum { ROWS = 4, SLOTS = 5, GAMMA = 3, VOCAB = 64, LETTERS = 52, STEPS = 16, MAX_TEXT = 128 };
static const char character[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .";
struct asked { /* all that the host writes: one copy, whenever something of it changes */
    uint64_t seed[SLOTS];
    float temperature[SLOTS], top_p[SLOTS], min_p[SLOTS]; /* top_p 1, min_p 0: off */
    int32_t top_k[SLOTS];                                 /* 0: off */
    int32_t slot[ROWS], mask_row[ROWS]; /* of the step's rows; mask_row -1: without a grammar */
};
struct state { /* in device memory: of requests by slot, of the step by row */
    asked ask;
    int32_t len[SLOTS], text[SLOTS][1 + MAX_TEXT]; /* behind a prompt of one token */
    float logprob_sum[SLOTS];
    uint32_t mask[ROWS][GAMMA + 1][VOCAB / 32]; /* bit id % 32 of word id / 32: allowed */
    float draft_logits[ROWS][GAMMA][VOCAB], target_logits[ROWS][GAMMA + 1][VOCAB];
    int32_t draft[ROWS][GAMMA], accepted[ROWS], num_emitted[ROWS], out[ROWS][GAMMA + 1];
    float out_logprob[ROWS][GAMMA + 1];
    uint32_t row_status[ROWS]; /* gathers the faults of all steps */
};
static specv_filters filters_from(state *s, int position) {
    specv_filters f = SPECV_ZERO;
    f.top_k = s->ask.top_k, f.top_p = s->ask.top_p, f.min_p = s->ask.min_p;
    f.mask = s->mask[0][position], f.mask_row = s->ask.mask_row;
    f.num_mask_rows = ROWS * (GAMMA + 1) - position, f.order = SPECV_MIN_P_TOP_K_TOP_P;
    return f;
}
/* Draft j of every row, from the draft model's raw logits. */
static specv_sample_desc draft_of(state *s, int j, void *scratch, int64_t scratch_bytes) {
    specv_sample_desc d = SPECV_ZERO;
    d.batch = ROWS, d.slot = s->ask.slot, d.num_slots = SLOTS, d.vocab = VOCAB;
    d.scores.data = s->draft_logits[0][j], d.scores.seq_stride_elems = GAMMA * VOCAB;
    d.temperature = s->ask.temperature, d.seed = s->ask.seed, d.position = s->len;
    d.filters = filters_from(s, j), d.stream = SPECV_STREAM_DRAFT, d.step_row = j;
    d.token = &s->draft[0][j], d.token_stride_elems = GAMMA;
    d.row_status = s->row_status, d.keep_status = 1;
    d.scratch = scratch, d.scratch_bytes = scratch_bytes;
    return d;
}
/* The verdict, from both models' raw logits. */
static specv_verify_sample_desc verify_of(state *s, void *scratch, int64_t scratch_bytes) {
    specv_verify_sample_desc v = SPECV_ZERO;
    v.verify.rows.batch = ROWS, v.verify.rows.max_draft = GAMMA;
    v.verify.rows.slot = s->ask.slot, v.verify.rows.num_slots = SLOTS;
    v.verify.vocab = VOCAB, v.verify.draft_tokens = s->draft, v.rule = SPECV_RULE_TOKEN;
    v.target.data = s->target_logits, v.draft.data = s->draft_logits;
    v.temperature = s->ask.temperature, v.seed = s->ask.seed, v.position = s->len; /* it grows */
    v.filters = filters_from(s, 0); /* of the target: what the request allows */
    v.draft_filters = v.filters;    /* what drafts were drawn with: if it was less, say less */
    v.verify.accepted_len = s->accepted, v.verify.num_emitted = s->num_emitted;
    v.verify.out_tokens = s->out,
    v.emitted.logprob = s->out_logprob[0]; /* [ROWS][GAMMA + 1] each */
    v.verify.row_status = s->row_status, v.verify.keep_status = 1;
    v.scratch = scratch, v.scratch_bytes = scratch_bytes;
    return v;
}

/* The engine's own, for the GPU and for the check. */
static __host__ __device__ int token_before(const state *s, int b, int j) {
    return j ? s->draft[b][j - 1] : s->text[s->ask.slot[b]][s->len[s->ask.slot[b]]];
}
/* Stands for two models: what comes next depends on the last token; the draft model errs a bit. */
static __host__ __device__ void model(state *s, int b, int j, int id, int of_draft) {
    uint32_t x = (uint32_t)(token_before(s, b, j) * VOCAB + id + 1) * 0x9e3779b9u;
    float *logits = of_draft ? s->draft_logits[b][j] : s->target_logits[b][j];
    x = (x ^ x >> 15) * 0x85ebca6bu, x ^= x >> 13;
    logits[id] = (float)(x % 512 + (of_draft ? x / 512 % 64 : 0)) / 64;
}
/* Stands for a grammar engine: letter, digit, letter, ... Position j depends on draft j - 1. */
static __host__ __device__ void allow(state *s, int b, int j) {
    const int after_letter = token_before(s, b, j) < LETTERS;
    s->mask[b][j][0] = after_letter ? 0 : 0xffffffff;          /* letters */
    s->mask[b][j][1] = after_letter ? 0x3ff00000 : 0x000fffff; /* digits; letters */
}
static __host__ __device__ void commit(state *s, int b) {
    const int slot = s->ask.slot[b];
    for (int i = 0; i < s->num_emitted[b]; ++i) {
        s->text[slot][++s->len[slot]] = s->out[b][i];
        s->logprob_sum[slot] += s->out_logprob[b][i];
    }
}
static __global__ void allow_kernel(state *s, int j) { allow(s, (int)threadIdx.x, j); }
static __global__ void commit_kernel(state *s) { commit(s, (int)threadIdx.x); }
static __global__ void model_kernel(state *s, int j, int of_draft) {
    model(s, (int)blockIdx.x, j + (int)blockIdx.y, (int)threadIdx.x, of_draft);
}

/* Enqueues a step; what it depends on is read from device memory when it runs. */
static int step(state *s, void *scratch, int64_t scratch_bytes, cudaStream_t stream) {
    const specv_verify_sample_desc verify = verify_of(s, scratch, scratch_bytes);
    int status = SPECV_OK;
    for (int j = 0; j < GAMMA && !status; ++j) {
        const specv_sample_desc draft = draft_of(s, j, scratch, scratch_bytes);
        allow_kernel<<<1, ROWS, 0, stream>>>(s, j);
        model_kernel<<<ROWS, VOCAB, 0, stream>>>(s, j, 1);
        status = specv_sample(&draft, stream);
    }
    allow_kernel<<<1, ROWS, 0, stream>>>(s, GAMMA);
    model_kernel<<<dim3(ROWS, GAMMA + 1), VOCAB, 0, stream>>>(s, 0, 0);
    if (!status) status = specv_verify_sample(&verify, stream); /* the one call */
    commit_kernel<<<1, ROWS, 0, stream>>>(s);
    return status;
}
/* The same by the reference, in host memory; it leaves the scratch memory alone. */
static int step_on_host(state *s, void *scratch, int64_t scratch_bytes) {
    const specv_verify_sample_desc verify = verify_of(s, scratch, scratch_bytes);
    int status = SPECV_OK;
    for (int j = 0; j <= GAMMA && !status; ++j) {
        for (int b = 0; b < ROWS; ++b) allow(s, b, j);
        for (int i = 0; i < ROWS * VOCAB; ++i) model(s, i / VOCAB, j, i % VOCAB, 0);
        if (j == GAMMA) break;
        for (int i = 0; i < ROWS * VOCAB; ++i) model(s, i / VOCAB, j, i % VOCAB, 1);
        const specv_sample_desc draft = draft_of(s, j, scratch, scratch_bytes);
        status = specv_ref_sample(&draft);
    }
    if (!status) status = specv_ref_verify_sample(&verify);
    for (int b = 0; b < ROWS; ++b) commit(s, b);
    return status;
}

#define CUDA(call)                                                                                 \
    if ((call) != cudaSuccess) return printf("failed: %s\n", #call), 1
static const char *const what[SLOTS] = {"top_k, top_p", "a grammar", "plain", "min_p", "all of it"};
static const int has_grammar[SLOTS] = {0, 1, 0, 0, 1};
static const asked first = {{101, 102, 103, 104, 105},      /* seed, by slot */
                            {0.9f, 1, 1, 1.2f, 0.8f},       /* temperature */
                            {0.9f, 1, 1, 1, 0.95f},         /* top_p */
                            {0, 0, 0, 0.1f, 0.02f},         /* min_p */
                            {8, 0, 0, 0, 20},               /* top_k */
                            {2, 0, 3, 1},                   /* slot, by row */
                            {-1, -1, -1, 3 * (GAMMA + 1)}}; /* mask_row */
static state got, wanted;                                   /* by the GPU, by the reference */

int main(void) {
    const int64_t bytes = specv_verify_sample_scratch_bytes(ROWS, GAMMA, VOCAB);
    int ok = 1;
    state *s;
    void *scratch;
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CUDA(cudaStreamCreate(&stream));
    CUDA(cudaMalloc((void **)&s, sizeof *s));
    CUDA(cudaMalloc(&scratch, (size_t)bytes));
    wanted.ask = first;
    CUDA(cudaMemcpy(s, &wanted, sizeof wanted, cudaMemcpyHostToDevice));
    CUDA(cudaMemset(scratch, 0, SPECV_TICKET_BYTES)); /* once; launches leave it so */
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    if (step(s, scratch, bytes, stream) != SPECV_OK) return 1;
    CUDA(cudaStreamEndCapture(stream, &graph));
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < STEPS; ++i) {
        if (i == STEPS / 2) { /* the plain request has ended, another takes its row */
            wanted.ask.slot[0] = 4, wanted.ask.mask_row[0] = 0;
            CUDA(cudaMemcpyAsync(&s->ask, &wanted.ask, sizeof s->ask, cudaMemcpyDefault, stream));
        }
        CUDA(cudaGraphLaunch(exec, stream));
        if (step_on_host(&wanted, scratch, bytes) != SPECV_OK) return 1;
    }
    CUDA(cudaMemcpy(&got, s, sizeof got, cudaMemcpyDeviceToHost)); /* waits for the stream */

    for (int slot = 0; slot < SLOTS; ++slot) {
        int obeys = 1;
        printf("%s: ", what[slot]);
        for (int i = 1; i <= got.len[slot]; ++i) {
            const char c = character[got.text[slot][i] & (VOCAB - 1)];
            obeys &= i % 2 ? c >= '0' && c <= '9' : c >= 'A';
            putchar(c);
        }
        printf("   ln p %.2f%s\n", got.logprob_sum[slot], obeys ? ", obeys the grammar" : "");
        ok &= obeys == has_grammar[slot] && !got.row_status[slot % ROWS];
    }
    const int same = !memcmp(&got, &wanted, sizeof got); /* tokens, log-probabilities, all of it */
    printf("%d replays: %s the reference\n", STEPS, same ? "the same bits as" : "OTHER bits than");
    printf(ok && same ? "OK\n" : "MISMATCH\n");
    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaGraphDestroy(graph));
    CUDA(cudaFree(scratch));
    CUDA(cudaFree(s));
    CUDA(cudaStreamDestroy(stream));
    return ok && same ? 0 : 1;
}
