/* Your sampler, replaced by five lines: temperature, softmax and draw for a whole batch in one
   launch; then drafts drawn from another model, and the one call that judges them.

       nvcc -arch=native -I .. -o 05_sample 05_sample.cu && ./05_sample

   specv_sample: chi-square 58.7, limit 89.3; greedy rows: the top logit
   the own sampler's tokens: the same
   log-probabilities and log-sum-exp: within 1e-6 of the direct computation
   specv_verify_sample: chi-square 23.2, limit 58.4; greedy rows: the top logit
   tokens a sampled row: 2.45, expected 2.42
   OK */
#include <cuda_runtime.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#define SPECVERIFY_IMPLEMENTATION
#include "specverify.cuh"

/* So small a vocabulary that a histogram of the tokens fills up. */
enum { ROWS = 2048, JUDGED = 512, VOCAB = 100, GAMMA = 2, SEED = 12345 };

struct state {
    float logits[ROWS][VOCAB];
    float target[JUDGED][GAMMA + 1][VOCAB], draft[JUDGED][GAMMA][VOCAB];
    float temperature[ROWS], uniform[ROWS], logprob[ROWS], lse[ROWS];
    uint64_t seed[ROWS];
    int32_t position[ROWS], own[ROWS], token[ROWS];
    int32_t drafts[JUDGED][GAMMA], accepted[JUDGED], text[JUDGED][GAMMA + 1];
};

/* What many a decoding loop has: softmax at a temperature, then the first token at which the
   running sum passes a random number; at temperature 0 the largest logit. */
static __global__ void own_sampler(state *s) {
    const int row = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    const float *logits = s->logits[row], temperature = s->temperature[row];
    float sum = 0, running = 0;
    int top = 0, token = 0;
    for (int id = 1; id < VOCAB; ++id)
        if (logits[id] > logits[top]) top = id;
    for (int id = 0; id < VOCAB; ++id) sum += expf((logits[id] - logits[top]) / temperature);
    for (; token < VOCAB - 1; ++token) {
        running += expf((logits[token] - logits[top]) / temperature);
        if (running > s->uniform[row] * sum) break;
    }
    s->own[row] = temperature > 0 ? token : top;
}

/* specv_sample puts out one token a row, side by side; drafts lie row after row. */
static __global__ void place_drafts(state *s, int j) {
    const int row = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    s->drafts[row][j] = s->token[row];
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

/* Scratch memory: the first bytes are zeroed once, and every launch leaves them so. Launches that
   do not run at the same time may share it, whatever their batches. */
static void *scratch_memory(int64_t bytes) {
    void *memory = NULL;
    if (bytes <= 0 || cudaMalloc(&memory, (size_t)bytes) != cudaSuccess) return NULL;
    return cudaMemset(memory, 0, SPECV_TICKET_BYTES) == cudaSuccess ? memory : NULL;
}

static float temperature_of(int row) { return row % 8 == 0 ? 0.f : 0.8f; } /* 0 is greedy */

/* The same in double, to check against: probabilities, and ln of the sum they are divided by. */
static double softmax(const float *logits, double temperature, double *p) {
    double sum = 0;
    for (int id = 0; id < VOCAB; ++id) sum += p[id] = exp(logits[id] / temperature);
    for (int id = 0; id < VOCAB; ++id) p[id] /= sum;
    return log(sum);
}

/* Do the tokens of the sampled rows follow p, and are those of the greedy rows the likeliest one?
   Pearson's test; all tokens that are expected less than 5 times count as one. The limit is passed
   once in a thousand times by chance (Wilson and Hilferty 1931). */
static int follows(const char *what, const int32_t *token, int rows, int stride, const double *p) {
    double count[VOCAB] = {}, rare = 0, rare_expected = 0, chi_square = 0, limit;
    int sampled = 0, greedy_right = 1, freedom = -1, top = 0;
    for (int id = 1; id < VOCAB; ++id)
        if (p[id] > p[top]) top = id;
    for (int row = 0; row < rows; ++row) {
        const int32_t id = token[row * stride];
        if (id < 0 || id >= VOCAB) return printf("%s: no token\n", what), 0;
        if (temperature_of(row) > 0)
            count[id] += 1, sampled += 1;
        else
            greedy_right &= id == top;
    }
    for (int id = 0; id < VOCAB; ++id) {
        const double expected = p[id] * sampled, off = count[id] - expected;
        if (expected < 5)
            rare += count[id], rare_expected += expected;
        else
            chi_square += off * off / expected, freedom += 1;
    }
    if (rare_expected > 0)
        chi_square += (rare - rare_expected) * (rare - rare_expected) / rare_expected, ++freedom;
    limit = 1 - 2. / (9 * freedom) + 3.09 * sqrt(2. / (9 * freedom));
    limit *= limit * limit * freedom;
    printf("%s: chi-square %.1f, limit %.1f; greedy rows: %s\n", what, chi_square, limit,
           greedy_right ? "the top logit" : "WRONG");
    return chi_square < limit && greedy_right;
}

int main(void) {
    state *host = (state *)calloc(1, sizeof(state)), *device;
    int ok = 1;
    for (int row = 0; row < ROWS; ++row) {
        for (int id = 0; id < VOCAB; ++id) host->logits[row][id] = (float)(id * 7919 % 2003) / 400;
        host->temperature[row] = temperature_of(row);
        host->seed[row] = SEED;    /* a request's text has one seed ... */
        host->position[row] = row; /* ... and many positions */
        /* What specv_sample draws with, or a part of it, so that tokens can be compared. */
        host->uniform[row] =
            specv_uniform24(specv_philox(SEED, (uint32_t)row, 0, 0, SPECV_TAG_DRAW).x[1]);
    }
    for (int row = 0; row < JUDGED; ++row)
        for (int id = 0; id < VOCAB; ++id) {
            const float logit = host->logits[row][id], other = logit + (float)(id * 31 % 17) / 12;
            for (int j = 0; j <= GAMMA; ++j) host->target[row][j][id] = logit;
            for (int j = 0; j < GAMMA; ++j) host->draft[row][j][id] = other;
        }
    CUDA(cudaMalloc((void **)&device, sizeof *device));
    CUDA(cudaMemcpy(device, host, sizeof *device, cudaMemcpyHostToDevice));
    own_sampler<<<ROWS / 128, 128>>>(device);

    /* The five lines; scratch memory belongs to your start-up code. The sixth costs no second pass
       over the logits. */
    specv_sample_desc d = SPECV_ZERO;
    d.batch = ROWS, d.vocab = VOCAB, d.scores.data = device->logits, d.token = device->token;
    d.temperature = device->temperature, d.seed = device->seed, d.position = device->position;
    d.scratch = scratch_memory(d.scratch_bytes = specv_sample_scratch_bytes(ROWS, VOCAB));
    d.logprob = device->logprob, d.lse = device->lse;
    KIT(specv_sample(&d, NULL));
    CUDA(cudaMemcpy(host, device, sizeof *device, cudaMemcpyDeviceToHost));

    double p[VOCAB], q[VOCAB], worst = 0, overlap = 0, lse = softmax(host->logits[1], 0.8, p);
    int differ = 0, sampled = 0, emitted = 0;
    ok &= follows("specv_sample", host->token, ROWS, 1, p);
    for (int row = 0; row < ROWS; ++row) {
        const int greedy = temperature_of(row) == 0; /* its token is certain: ln 1 */
        const double logprob = greedy ? 0 : log(p[host->token[row]]);
        worst = fmax(worst, fabs(host->logprob[row] - logprob));
        if (!greedy) worst = fmax(worst, fabs(host->lse[row] - lse));
        differ += host->own[row] != host->token[row];
    }
    /* A number so near to the edge between two tokens that rounding decides is rare. */
    printf("the own sampler's tokens: %s\n", differ <= 2 ? "the same" : "OTHERS");
    printf("log-probabilities and log-sum-exp: %s 1e-6 of the direct computation\n",
           worst < 1e-6 ? "within" : "NOT within");
    ok &= differ <= 2 && worst < 1e-6;

    /* Drafts: the same call, in the same scratch memory, with the draft model's logits, one
       position of the step after the other. The stream keeps their random numbers apart from those
       that judge them. */
    d.batch = JUDGED, d.logprob = d.lse = NULL, d.stream = SPECV_STREAM_DRAFT;
    d.scores.seq_stride_elems = GAMMA * VOCAB;
    for (int j = 0; j < GAMMA; ++j) {
        d.scores.data = device->draft[0][j], d.step_row = j;
        KIT(specv_sample(&d, NULL));
        place_drafts<<<JUDGED / 128, 128>>>(device, j);
    }
    specv_verify_sample_desc v = SPECV_ZERO;
    v.verify.rows.batch = JUDGED, v.verify.rows.max_draft = GAMMA, v.verify.vocab = VOCAB;
    v.verify.draft_tokens = device->drafts, v.verify.out_tokens = device->text;
    v.verify.accepted_len = device->accepted;
    v.target.data = device->target, v.draft.data = device->draft, v.rule = SPECV_RULE_TOKEN;
    v.temperature = device->temperature, v.seed = device->seed, v.position = device->position;
    v.scratch =
        scratch_memory(v.scratch_bytes = specv_verify_sample_scratch_bytes(JUDGED, GAMMA, VOCAB));
    KIT(specv_verify_sample(&v, NULL));
    CUDA(cudaMemcpy(host, device, sizeof *device, cudaMemcpyDeviceToHost));
    CUDA(cudaFree(d.scratch));
    CUDA(cudaFree(v.scratch));

    /* Whatever the draft model says, the text follows p; the overlap of p and q decides how many
       drafts are accepted. Four standard deviations are allowed. */
    ok &= follows("specv_verify_sample", host->text[0], JUDGED, GAMMA + 1, p);
    softmax(host->draft[1][0], 0.8, q);
    for (int id = 0; id < VOCAB; ++id) overlap += fmin(p[id], q[id]);
    for (int row = 0; row < JUDGED; ++row)
        if (temperature_of(row) > 0) sampled += 1, emitted += host->accepted[row] + 1;
    const double tokens = (double)emitted / sampled, wanted = specv_expected_tokens(overlap, GAMMA);
    printf("tokens a sampled row: %.2f, expected %.2f\n", tokens, wanted);
    ok &= fabs(tokens - wanted) < 4 * 0.5 * GAMMA / sqrt(sampled);
    printf(ok ? "OK\n" : "MISMATCH\n");
    CUDA(cudaFree(device));
    free(host);
    return ok ? 0 : 1;
}
