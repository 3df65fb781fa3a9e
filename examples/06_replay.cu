/* Seeded replay: the same seed gives the same sampled text, with speculation on or off, whatever
   the number of drafts, the drafter and the batch. Rule COUPLED, drafts and plain text by Gumbel.

       nvcc -arch=native -I .. -o 06_replay 06_replay.cu && ./06_replay [tokens]

   plain: 16 requests, 10 tokens each
   batch  1, good drafter, gamma 1: equal, 1.57 tokens a step
   batch  1, good drafter, gamma 3: equal, 2.13 tokens a step
   batch  1, good drafter, gamma 8: equal, 2.35 tokens a step
   batch  1, random drafter, gamma 1: equal, 1.01 tokens a step
   batch  1, random drafter, gamma 3: equal, 1.01 tokens a step
   batch  1, random drafter, gamma 8: equal, 1.01 tokens a step
   batch 16, good drafter, gamma 1: equal, 1.57 tokens a step
   batch 16, good drafter, gamma 3: equal, 2.13 tokens a step
   batch 16, good drafter, gamma 8: equal, 2.35 tokens a step
   batch 16, random drafter, gamma 1: equal, 1.00 tokens a step
   batch 16, random drafter, gamma 3: equal, 1.00 tokens a step
   batch 16, random drafter, gamma 8: equal, 1.00 tokens a step
   other seeds: 15 of 16 texts differ
   same text: 12 of 12

   The noise that draws a token is a function of the request's seed and the token's position in the
   text alone. A draft is accepted if it is the token that this noise draws, so drafts decide how
   fast the text comes, and nothing else. That takes logits which do not depend on the batch either,
   bit for bit: of a real model, kernels whose sums keep their order whatever the batch. */
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define SPECVERIFY_IMPLEMENTATION
#include "specverify.cuh"

enum { REQUESTS = 16, PROMPT = 2, MAX_LENGTH = 258, VOCAB = 200, MAX_GAMMA = 8 };
enum { SEED = 12345 };
enum { PLAIN, GOOD_DRAFTER, RANDOM_DRAFTER };

struct state {
    float logits[REQUESTS][MAX_GAMMA + 1][VOCAB]; /* the target's */
    float draft_logits[REQUESTS][VOCAB];          /* the draft's, of one position at a time */
    float temperature[REQUESTS];
    uint64_t seed[REQUESTS];
    int32_t len[REQUESTS], text[REQUESTS][MAX_LENGTH];
    int32_t draft_len[REQUESTS], drafts[REQUESTS][MAX_GAMMA], token[REQUESTS];
    int32_t accepted[REQUESTS], emitted[REQUESTS], out[REQUESTS][MAX_GAMMA + 1];
    int32_t end;        /* of every text */
    int32_t live_steps; /* of all rows, while their text was not complete */
};

static __device__ uint32_t mix(uint32_t a, uint32_t b) {
    a = (a ^ b * 0x9e3779b9u) * 0x85ebca6bu;
    a = (a ^ a >> 15) * 0xc2b2ae35u;
    return a ^ a >> 13;
}

static __device__ float unit(uint32_t bits) { return specv_uniform24(bits); } /* [0, 1) */

/* Token `at` of the row's text; behind its end the drafts follow. */
static __device__ uint32_t token_at(const state *s, int row, int at) {
    const int ahead = at - s->len[row];
    return (uint32_t)(ahead < 0 ? s->text[row][at] : s->drafts[row][ahead]);
}

/* Both models: logits are a hash of the last two tokens. The draft model is the target but for a
   bit of noise. A block per row and position. */
static __global__ void forward(state *s, int first_position, int of_draft) {
    const int row = (int)blockIdx.x, j = first_position + (int)blockIdx.y;
    const int next = s->len[row] + j; /* of the token that these logits are for */
    float *logits = of_draft ? s->draft_logits[row] : s->logits[row][j];
    if (j > s->draft_len[row]) return;
    const uint32_t context = mix(token_at(s, row, next - 1), token_at(s, row, next - 2));
    for (int id = (int)threadIdx.x; id < VOCAB; id += (int)blockDim.x) {
        const uint32_t hash = mix(context, (uint32_t)id);
        logits[id] = 8 * unit(hash);
        if (of_draft) logits[id] += unit(mix(hash, 1));
    }
}

static __global__ void place_draft(state *s, int j) { /* a thread per row */
    s->drafts[threadIdx.x][j] = s->token[threadIdx.x];
}

static __global__ void random_drafts(state *s) { /* a block per row, a thread per draft */
    const int row = (int)blockIdx.x, j = (int)threadIdx.x;
    s->drafts[row][j] = (int32_t)(mix((uint32_t)s->len[row], (uint32_t)(row * 64 + j)) % VOCAB);
}

/* How many drafts a row needs: its last token of all comes without. A thread per row. */
static __global__ void begin_step(state *s, int gamma) {
    const int row = (int)threadIdx.x, left = s->end - 1 - s->len[row];
    s->draft_len[row] = left < 0 ? 0 : left < gamma ? left : gamma;
}

static __global__ void append(state *s, int drafted) { /* a thread per row */
    const int row = (int)threadIdx.x, emitted = drafted ? s->emitted[row] : 1;
    if (s->len[row] == s->end) return; /* waits for the other rows */
    for (int i = 0; i < emitted; ++i)
        s->text[row][s->len[row]++] = drafted ? s->out[row][i] : s->token[row];
    atomicAdd(&s->live_steps, 1);
}

#define CUDA(call)                                                                                 \
    do {                                                                                           \
        if ((call) != cudaSuccess) return printf("failed: %s\n", #call), 1;                        \
    } while (0)
#define KIT(call)                                                                                  \
    do {                                                                                           \
        int status = (call);                                                                       \
        if (status) return printf("%s: %s\n", #call, specv_status_string(status)), 1;              \
    } while (0)

/* Prompts, seeds and temperatures, 0 among them, of `batch` requests. */
static void set_requests(state *s, int first, int batch, int end, uint64_t seed) {
    memset(s, 0, sizeof *s);
    s->end = end;
    for (int row = 0; row < batch; ++row) {
        const int request = first + row;
        s->seed[row] = seed + (uint64_t)request;
        s->temperature[row] = 0.1f * (float)request;
        s->len[row] = PROMPT;
        for (int i = 0; i < PROMPT; ++i) s->text[row][i] = (request * 37 + i * 11) % VOCAB;
    }
}

/* Decodes all requests, `batch` at a time; gamma drafts a step unless PLAIN. */
static int decode(state *host, state *device, void *scratch, int64_t scratch_bytes, int batch,
                  int drafter, int gamma, int end, uint64_t seed,
                  int32_t text[REQUESTS][MAX_LENGTH], double *tokens_per_step) {
    int live_steps = 0;
    specv_sample_desc d = SPECV_ZERO; /* of plain text and of drafts */
    d.batch = batch, d.vocab = VOCAB, d.method = SPECV_SAMPLE_GUMBEL,
    d.stream = SPECV_STREAM_COUPLED, d.token = device->token;
    d.temperature = device->temperature, d.seed = device->seed, d.position = device->len;
    d.scores.data = drafter == PLAIN ? device->logits[0][0] : device->draft_logits[0];
    d.scores.seq_stride_elems = drafter == PLAIN ? (MAX_GAMMA + 1) * VOCAB : VOCAB;
    d.scratch = scratch, d.scratch_bytes = scratch_bytes;
    specv_verify_sample_desc v = SPECV_ZERO;
    v.verify.rows.batch = batch, v.verify.rows.max_draft = gamma, v.verify.vocab = VOCAB;
    v.verify.rows.draft_len = device->draft_len, v.verify.draft_tokens = device->drafts;
    v.verify.draft_stride_elems = MAX_GAMMA, v.verify.out_stride_elems = MAX_GAMMA + 1;
    v.verify.accepted_len = device->accepted, v.verify.num_emitted = device->emitted;
    v.verify.out_tokens = device->out, v.rule = SPECV_RULE_COUPLED;
    v.target.data = device->logits, v.target.seq_stride_elems = (MAX_GAMMA + 1) * VOCAB;
    v.temperature = device->temperature, v.seed = device->seed, v.position = device->len;
    v.scratch = scratch, v.scratch_bytes = scratch_bytes;

    for (int first = 0; first < REQUESTS; first += batch) {
        int done = 0;
        set_requests(host, first, batch, end, seed);
        CUDA(cudaMemcpy(device, host, sizeof *device, cudaMemcpyHostToDevice));
        while (!done) {
            begin_step<<<1, batch>>>(device, gamma);
            if (drafter == RANDOM_DRAFTER) random_drafts<<<batch, gamma>>>(device);
            for (int j = 0; j < gamma && drafter == GOOD_DRAFTER; ++j) {
                forward<<<batch, 64>>>(device, j, 1);
                d.step_row = j; /* the noise is that of position len + j */
                KIT(specv_sample(&d, NULL));
                place_draft<<<1, batch>>>(device, j);
            }
            forward<<<dim3((unsigned)batch, (unsigned)gamma + 1), 64>>>(device, 0, 0);
            if (drafter == PLAIN)
                KIT(specv_sample(&d, NULL));
            else
                KIT(specv_verify_sample(&v, NULL));
            append<<<1, batch>>>(device, drafter != PLAIN);
            CUDA(cudaMemcpy(host->len, device->len, sizeof host->len, cudaMemcpyDeviceToHost));
            done = 1;
            for (int row = 0; row < batch; ++row) done &= host->len[row] == end;
        }
        CUDA(cudaMemcpy(host, device, sizeof *device, cudaMemcpyDeviceToHost));
        memcpy(text[first], host->text, (size_t)batch * sizeof text[0]);
        live_steps += host->live_steps;
    }
    *tokens_per_step = (double)REQUESTS * (end - PROMPT) / live_steps;
    return 0;
}

int main(int argc, char **argv) {
    const int tokens = argc > 1 ? atoi(argv[1]) : 10, end = PROMPT + tokens;
    static state host;
    static int32_t plain[REQUESTS][MAX_LENGTH], text[REQUESTS][MAX_LENGTH];
    const int batches[] = {1, REQUESTS}, gammas[] = {1, 3, MAX_GAMMA};
    int runs = 0, same = 0, others = 0;
    double speed;
    state *device;
    void *scratch;
    if (end <= PROMPT || end > MAX_LENGTH) return 1;
    CUDA(cudaMalloc((void **)&device, sizeof *device));
    /* enough for all steps, a sampler's too */
    const int64_t scratch_bytes = specv_verify_sample_scratch_bytes(REQUESTS, MAX_GAMMA, VOCAB);
    CUDA(cudaMalloc(&scratch, (size_t)scratch_bytes));
    CUDA(cudaMemset(scratch, 0, SPECV_TICKET_BYTES)); /* once: launches leave them so */

    if (decode(&host, device, scratch, scratch_bytes, REQUESTS, PLAIN, 0, end, SEED, plain, &speed))
        return 1;
    printf("plain: %d requests, %d tokens each\n", REQUESTS, tokens);
    for (int b = 0; b < 2; ++b)
        for (int drafter = GOOD_DRAFTER; drafter <= RANDOM_DRAFTER; ++drafter)
            for (int g = 0; g < 3; ++g) {
                if (decode(&host, device, scratch, scratch_bytes, batches[b], drafter, gammas[g],
                           end, SEED, text, &speed))
                    return 1;
                const int equal = memcmp(text, plain, sizeof text) == 0;
                printf("batch %2d, %s drafter, gamma %d: %s, %.2f tokens a step\n", batches[b],
                       drafter == GOOD_DRAFTER ? "good" : "random", gammas[g],
                       equal ? "equal" : "NOT equal", speed);
                runs += 1, same += equal;
            }
    /* Equality says something only where the seed has a say: all but the greedy request. */
    if (decode(&host, device, scratch, scratch_bytes, REQUESTS, PLAIN, 0, end, 2 * SEED, text,
               &speed))
        return 1;
    for (int i = 0; i < REQUESTS; ++i) others += memcmp(text[i], plain[i], sizeof text[i]) != 0;
    printf("other seeds: %d of %d texts differ\n", others, REQUESTS);
    printf("same text: %d of %d\n", same, runs);
    CUDA(cudaFree(scratch));
    CUDA(cudaFree(device));
    return same == runs && others > REQUESTS / 2 ? 0 : 1;
}
