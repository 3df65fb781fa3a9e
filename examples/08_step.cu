/* The whole step of an engine in one CUDA graph: draft, target pass, verification, commit. Requests
   live in slots; the lengths of their caches say how far each has come, and are the positions
   that random numbers are drawn for: the append advances both, and nobody else has to.

       nvcc -arch=native -I .. -o 08_step 08_step.cu && ./08_step

   40 replays: 168, 158 and 153 tokens, in slots 4, 1 and 3
   40 eager steps: the same texts
   caches: the rows of exactly these tokens
   OK */
#include <cuda_runtime.h>
#include <stdio.h>
#include <string.h>
#define SPECVERIFY_IMPLEMENTATION
#include "specverify.cuh"

enum { ROWS = 3, SLOTS = 5, GAMMA = 4, VOCAB = 500, MAX_TEXT = 256, STEPS = 40 };

struct state { /* all of it in device memory */
    /* of requests, by slot: what an engine keeps while a request lives */
    float temperature[SLOTS];
    uint64_t seed[SLOTS];
    int32_t cache_len[SLOTS], pending[SLOTS], text[SLOTS][MAX_TEXT];
    uint32_t cache[SLOTS][MAX_TEXT];
    /* of the step, by row */
    int32_t slot[ROWS], draft[ROWS][GAMMA], accepted[ROWS], next[ROWS], out[ROWS][GAMMA + 1];
    uint32_t rows_status[ROWS], ticket;
    float draft_logits[ROWS][GAMMA][VOCAB], target_logits[ROWS][GAMMA + 1][VOCAB];
    uint32_t pass_kv[ROWS][GAMMA + 1];
};

static __host__ __device__ uint32_t mix(uint32_t a, uint32_t b) {
    a = (a ^ b * 0x9e3779b9u) * 0x85ebca6bu;
    a = (a ^ a >> 15) * 0xc2b2ae35u;
    return a ^ a >> 13;
}
static __host__ __device__ uint32_t kv_of(int position, int token) {
    return mix((uint32_t)position + 1, (uint32_t)token);
}
static __device__ int token_before(const state *s, int b, int j) { /* position j of the step */
    return j ? s->draft[b][j - 1] : s->pending[s->slot[b]];
}

/* Stand for models: what comes next depends on the last token alone; the draft model errs a bit. */
static __global__ void draft_model(state *s, int j) {
    const int b = (int)blockIdx.x, last = token_before(s, b, j);
    for (int id = (int)threadIdx.x; id < VOCAB; id += (int)blockDim.x) {
        const uint32_t x = mix((uint32_t)last, (uint32_t)id);
        s->draft_logits[b][j][id] = (float)(x % 997) / 90 + (float)(mix(x, 7) % 100) / 150;
    }
}
static __global__ void target_model(state *s) {
    const int b = (int)blockIdx.x, j = (int)blockIdx.y, last = token_before(s, b, j);
    for (int id = (int)threadIdx.x; id < VOCAB; id += (int)blockDim.x)
        s->target_logits[b][j][id] = (float)(mix((uint32_t)last, (uint32_t)id) % 997) / 90;
    if (threadIdx.x == 0) s->pass_kv[b][j] = kv_of(s->cache_len[s->slot[b]] + j, last);
}
/* The engine's own: before the append, while cache_len is still where the step began. */
static __global__ void write_text(state *s) {
    const int b = (int)threadIdx.x, slot = s->slot[b];
    for (int i = 0; i <= s->accepted[b]; ++i)
        s->text[slot][s->cache_len[slot] - s->accepted[b] + i] = s->out[b][i]; /* appended */
    s->pending[slot] = s->next[b];
}

/* Enqueues a step; what it depends on is read from device memory when it runs. */
static int step(state *s, void *scratch, int64_t scratch_bytes, cudaStream_t stream) {
    int status = SPECV_OK;
    specv_rows rows = SPECV_ZERO;
    rows.batch = ROWS, rows.max_draft = GAMMA;
    rows.slot = s->slot, rows.num_slots = SLOTS;

    specv_sample_desc draft = SPECV_ZERO;
    draft.batch = ROWS, draft.slot = s->slot, draft.num_slots = SLOTS, draft.vocab = VOCAB;
    draft.temperature = s->temperature, draft.seed = s->seed, draft.position = s->cache_len;
    draft.stream = SPECV_STREAM_DRAFT;
    draft.scores.seq_stride_elems = GAMMA * VOCAB, draft.token_stride_elems = GAMMA;
    draft.scratch = scratch, draft.scratch_bytes = scratch_bytes;
    for (int j = 0; j < GAMMA && !status; ++j) {
        draft_model<<<ROWS, 128, 0, stream>>>(s, j);
        draft.scores.data = s->draft_logits[0][j], draft.token = &s->draft[0][j];
        draft.step_row = j;
        status = specv_sample(&draft, stream);
    }
    target_model<<<dim3(ROWS, GAMMA + 1), 128, 0, stream>>>(s);

    specv_verify_sample_desc verify = SPECV_ZERO;
    verify.verify.rows = rows, verify.verify.vocab = VOCAB;
    verify.verify.draft_tokens = s->draft, verify.verify.accepted_len = s->accepted;
    verify.verify.next_token = s->next, verify.verify.out_tokens = s->out;
    verify.target.data = s->target_logits, verify.draft.data = s->draft_logits;
    verify.temperature = s->temperature, verify.seed = s->seed, verify.position = s->cache_len;
    verify.rule = SPECV_RULE_TOKEN;
    verify.scratch = scratch, verify.scratch_bytes = scratch_bytes;
    verify.verify.chained = SPECV_CHAINED_BEFORE;

    specv_append_kv_desc append = SPECV_ZERO;
    append.rows = rows, append.accepted_len = s->accepted, append.num_pending = 1;
    append.cache_len = s->cache_len; /* advanced here: the next step has other positions */
    append.src.plane = s->pass_kv, append.kv.plane = s->cache;
    append.kv.head_bytes = 4, append.kv.max_positions = MAX_TEXT;
    append.row_status = s->rows_status, append.ticket = &s->ticket;
    append.chained = SPECV_CHAINED_AFTER; /* it gets ready meanwhile, and waits: sm_90 */
    if (!status) status = specv_verify_sample(&verify, stream);
    if (!status) status = specv_append_kv(&append, stream);
    write_text<<<1, ROWS, 0, stream>>>(s);
    return status;
}

#define CUDA(call)                                                                                 \
    do {                                                                                           \
        if ((call) != cudaSuccess) return printf("failed: %s\n", #call), 1;                        \
    } while (0)

static state start, replayed, eager;

int main(void) {
    const int64_t bytes = specv_verify_sample_scratch_bytes(ROWS, GAMMA, VOCAB);
    int equal, kept = 1;
    state *s;
    void *scratch;
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    for (int b = 0; b < ROWS; ++b) {
        const int slot = start.slot[b] = (4 + 2 * b) % SLOTS;
        start.temperature[slot] = 0.8f, start.seed[slot] = 1234 + (uint64_t)b;
        start.pending[slot] = start.text[slot][0] = b;
    }
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUDA(cudaMalloc((void **)&s, sizeof *s));
    CUDA(cudaMalloc(&scratch, (size_t)bytes));
    CUDA(cudaMemset(scratch, 0, SPECV_TICKET_BYTES)); /* once; launches leave it so */

    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    if (step(s, scratch, bytes, stream) != SPECV_OK) return 1;
    CUDA(cudaStreamEndCapture(stream, &graph));
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CUDA(cudaMemcpy(s, &start, sizeof start, cudaMemcpyHostToDevice));
    for (int i = 0; i < STEPS; ++i) CUDA(cudaGraphLaunch(exec, stream));
    CUDA(cudaMemcpyAsync(&replayed, s, sizeof replayed, cudaMemcpyDeviceToHost, stream));
    CUDA(cudaStreamSynchronize(stream));

    CUDA(cudaMemcpy(s, &start, sizeof start, cudaMemcpyHostToDevice));
    for (int i = 0; i < STEPS; ++i)
        if (step(s, scratch, bytes, stream) != SPECV_OK) return 1;
    CUDA(cudaMemcpyAsync(&eager, s, sizeof eager, cudaMemcpyDeviceToHost, stream));
    CUDA(cudaStreamSynchronize(stream));

    printf("%d replays:", STEPS);
    for (int b = 0; b < ROWS; ++b)
        printf("%s %d",
               b == 0         ? ""
               : b < ROWS - 1 ? ","
                              : " and",
               replayed.cache_len[start.slot[b]]);
    printf(" tokens, in slots %d, %d and %d\n", start.slot[0], start.slot[1], start.slot[2]);
    equal = !memcmp(replayed.text, eager.text, sizeof eager.text) &&
            !memcmp(replayed.cache_len, eager.cache_len, sizeof eager.cache_len);
    printf("%d eager steps: %s\n", STEPS, equal ? "the same texts" : "OTHER texts");
    for (int slot = 0; slot < SLOTS; ++slot)
        for (int i = 0; i < MAX_TEXT; ++i) {
            const int is_text = i < replayed.cache_len[slot];
            const uint32_t row = is_text ? kv_of(i, replayed.text[slot][i]) : 0;
            kept = kept && replayed.cache[slot][i] == row;
        }
    printf("caches: %s\n", kept ? "the rows of exactly these tokens" : "OTHER rows");
    printf(equal && kept ? "OK\n" : "MISMATCH\n");
    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaGraphDestroy(graph));
    CUDA(cudaFree(scratch));
    CUDA(cudaFree(s));
    CUDA(cudaStreamDestroy(stream));
    return equal && kept ? 0 : 1;
}
