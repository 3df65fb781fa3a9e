/* scores.cuh - A2 to A5 and A8: rules that read what a model says of the whole vocabulary.

   Scores are made on the device: rows of random logits, and drafts' rows that differ from the
   target's by noise, so that a good part of the drafts is accepted. The drafts themselves are drawn
   by A8 from the drafts' rows, the way an engine does it. Before a mode is timed, the outputs of
   the first and the last request are compared with the reference, of the last alone where rows are
   long: every request is judged by itself, and the reference takes seconds for all of them. */

#ifndef SPECV_BENCH_SCORES_CUH
#define SPECV_BENCH_SCORES_CUH

typedef struct scores_mode {
    const char *name, *op, *variant;
    int rule, with_q, probs; /* probs: scores are probabilities, else logits */
    int drafts;              /* 0: A8, nothing is drafted */
    int top_k;               /* 0: none; -1: given, but off; RELAXED: top_n */
    float top_p;             /* 0: none; other lossy rules: alpha, threshold_acc, ratio */
    int told;                /* likeliest ids that every token comes with, raw, and its rank */
    int order;               /* of the filters */
    int mask;                /* a row of bits for each request; A8 alone */
} scores_mode;

/* For A8 the rule says which method draws: COUPLED is Gumbel-max. */
static const scores_mode scores_modes[] = {
    {"greedy", "verify_logits", "5 kit", SPECV_RULE_GREEDY, 0, 0, 1, 0, 0, 0, 0, 0},
    {"token", "verify_token", "5 kit q", SPECV_RULE_TOKEN, 1, 0, 1, 0, 0, 0, 0, 0},
    {"one-hot", "verify_token", "5 kit one-hot", SPECV_RULE_TOKEN, 0, 0, 1, 0, 0, 0, 0, 0},
    {"block", "verify_block", "5 kit q", SPECV_RULE_BLOCK, 1, 0, 1, 0, 0, 0, 0, 0},
    {"coupled", "verify_coupled", "5 kit", SPECV_RULE_COUPLED, 0, 0, 1, 0, 0, 0, 0, 0},
    {"probs", "verify_token", "5 kit probs", SPECV_RULE_TOKEN, 1, 1, 1, 0, 0, 0, 0, 0},
    {"block-probs", "verify_block", "5 kit probs", SPECV_RULE_BLOCK, 1, 1, 1, 0, 0, 0, 0, 0},
    {"score", "score", "5 kit", SPECV_RULE_SCORE, 0, 0, 1, 0, 0, 0, 0, 0},
    {"typical", "verify_lossy", "5 kit typical", SPECV_RULE_TYPICAL, 0, 0, 1, 0, 0.3f, 0, 0, 0},
    {"typical-draw", "verify_lossy", "5 kit typical draw", SPECV_RULE_TYPICAL_DRAW, 0, 0, 1, 0,
     0.3f, 0, 0, 0},
    {"threshold", "verify_lossy", "5 kit threshold", SPECV_RULE_THRESHOLD, 0, 0, 1, 0, 0.7f, 0, 0,
     0},
    {"relaxed", "verify_lossy", "5 kit relaxed", SPECV_RULE_RELAXED, 0, 0, 1, 3, 0, 0, 0, 0},
    {"bounded", "verify_lossy", "5 kit q bounded", SPECV_RULE_BOUNDED, 1, 0, 1, 0, 2, 0, 0, 0},
    {"cdf", "sample", "5 kit cdf", SPECV_RULE_TOKEN, 0, 0, 0, 0, 0, 0, 0, 0},
    {"gumbel", "sample", "5 kit gumbel", SPECV_RULE_COUPLED, 0, 0, 0, 0, 0, 0, 0, 0},
    {"cdf-probs", "sample", "5 kit probs", SPECV_RULE_TOKEN, 0, 1, 0, 0, 0, 0, 0, 0},
    {"cdf-k50-p90", "sample", "5 kit k50 p90", SPECV_RULE_TOKEN, 0, 0, 0, 50, 0.9f, 0, 0, 0},
    {"cdf-k200", "sample", "5 kit k200", SPECV_RULE_TOKEN, 0, 0, 0, 200, 0, 0, 0, 0},
    {"cdf-p90", "sample", "5 kit p90", SPECV_RULE_TOKEN, 0, 0, 0, 0, 0.9f, 0, 0, 0},
    {"cdf-p10", "sample", "5 kit p10", SPECV_RULE_TOKEN, 0, 0, 0, 0, 0.1f, 0, 0, 0},
    {"gumbel-k50", "sample", "5 kit gumbel k50", SPECV_RULE_COUPLED, 0, 0, 0, 50, 0, 0, 0, 0},
    {"cdf-mask", "sample", "5 kit mask", SPECV_RULE_TOKEN, 0, 0, 0, 0, 0, 0, 0, 1},
    {"cdf-off", "sample", "5 kit off", SPECV_RULE_TOKEN, 0, 0, 0, -1, 0, 0, 0, 0},
    {"one-hot-off", "verify_token", "5 kit one-hot off", SPECV_RULE_TOKEN, 0, 0, 1, -1, 0, 0, 0, 0},
    {"token-k50-p90", "verify_token", "5 kit q k50 p90", SPECV_RULE_TOKEN, 1, 0, 1, 50, 0.9f, 0, 0,
     0},
    {"one-hot-k50-p90", "verify_token", "5 kit one-hot k50 p90", SPECV_RULE_TOKEN, 0, 0, 1, 50,
     0.9f, 0, 0, 0},
    {"coupled-k50", "verify_coupled", "5 kit k50", SPECV_RULE_COUPLED, 0, 0, 1, 50, 0, 0, 0, 0},
    {"token-top20", "verify_token", "5 kit q top 20", SPECV_RULE_TOKEN, 1, 0, 1, 0, 0, 20, 0, 0},
    {"cdf-top20", "sample", "5 kit top 20", SPECV_RULE_TOKEN, 0, 0, 0, 0, 0, 20, 0, 0},
};

enum { NUM_SCORES_MODES = sizeof scores_modes / sizeof scores_modes[0] };

enum {
    FIELD_TARGET,
    FIELD_DRAFT, /* directly behind: the floor reads both as one */
    FIELD_DRAFT_TOKENS,
    FIELD_SEED,
    FIELD_POSITION,
    FIELD_DRAFT_SEED, /* the same for every draft, for the A8 that draws them */
    FIELD_DRAFT_POSITION,
    FIELD_TOP_K,
    FIELD_TOP_P, /* these two: of each draft, for the A8 that draws them; of each request */
    FIELD_MASK,
    FIELD_LENS, /* outputs from here */
    FIELD_MISMATCH,
    FIELD_NEXT,
    FIELD_OUT_TOKENS,
    FIELD_LOGPROB, /* of each draft, for rule SCORE */
    FIELD_RANK,
    FIELD_TOP_ID,
    FIELD_TOP_LOGPROB,
    NUM_FIELDS
};

typedef struct scores_layout {
    int64_t each[NUM_FIELDS], at[NUM_FIELDS]; /* bytes of one request; offset of request 0 */
    int64_t bytes;
} scores_layout;

typedef struct scores_run {
    int batch, gamma, dtype, num_sets, num_sms, planted;
    int64_t vocab;
    const scores_mode *mode;
    scores_layout of_all, of_one;
    char *base; /* device; set s starts at base + s * of_all.bytes */
    void *scratch;
    int64_t scratch_bytes;
    int64_t rejected, accepted; /* requests that end in a rejection; drafts */
    specv_verify_sample_desc verify[MAX_SETS];
    specv_sample_desc sample[MAX_SETS];
} scores_run;

/* ------------------------------------------------------------------------------------- inputs */

__host__ __device__ static uint64_t scores_hash(uint64_t z) { /* splitmix64 */
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Nearly normal, deviation 1: four 16-bit uniforms. */
__host__ __device__ static float scores_normal(uint64_t place) {
    const uint64_t z = scores_hash(place);
    const int sum =
        (int)(z & 0xffff) + (int)(z >> 16 & 0xffff) + (int)(z >> 32 & 0xffff) + (int)(z >> 48);
    return (float)(sum - 131070) * (1.f / 37837.f);
}

/* A block per row. A row of q has the logits of the p row at its position, and noise. */
extern "C" __global__ void scores_fill(void *out, int dtype, int64_t vocab, int positions,
                                       float noise) {
    __shared__ float sums[8];
    const int request = (int)blockIdx.x / positions, j = (int)blockIdx.x % positions;
    const uint64_t first = ((uint64_t)request << 8 | (uint64_t)j) << 32;
    const int64_t row = (int64_t)blockIdx.x * vocab;
    float total = 1, sum = 0;
    for (int pass = dtype == SPECV_PROBS_F32 ? 0 : 1; pass < 2; ++pass) {
        for (int64_t x = threadIdx.x; x < vocab; x += blockDim.x) {
            float value = 3 * scores_normal(first | (uint64_t)x);
            if (noise > 0) value += noise * scores_normal(~(first | (uint64_t)x));
            if (dtype == SPECV_PROBS_F32) value = exp2f(value * 1.4427f);
            sum += value;
            if (pass == 0) continue;
            if (dtype == SPECV_LOGITS_BF16)
                ((uint16_t *)out)[row + x] = (uint16_t)(__float_as_uint(value) >> 16);
            else
                ((float *)out)[row + x] = value / total;
        }
        if (pass == 1) return;
        for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
        if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
        __syncthreads();
        total = 0;
        for (int warp = 0; warp < 8; ++warp) total += sums[warp];
    }
}

static int64_t score_bytes(int dtype) { return dtype == SPECV_LOGITS_BF16 ? 2 : 4; }

static const char *score_name(int dtype) {
    return dtype == SPECV_LOGITS_BF16 ? "bf16" : dtype == SPECV_LOGITS_F32 ? "f32" : "probs-f32";
}

static int64_t mask_bytes(const scores_run *r) { return (r->vocab + 31) / 32 * 4; }

static scores_layout lay_out_scores(const scores_run *r, int batch) {
    const int64_t row = r->vocab * score_bytes(r->dtype), gamma = r->gamma, told = 20;
    const int64_t limits = 4 * (gamma ? gamma : 1);
    const int64_t each[NUM_FIELDS] = {(gamma + 1) * row,
                                      gamma * row,
                                      gamma * 4,
                                      8,
                                      4,
                                      gamma * 8,
                                      gamma * 4,
                                      limits,
                                      limits,
                                      gamma ? 0 : mask_bytes(r),
                                      4,
                                      1,
                                      4,
                                      (gamma + 1) * 4,
                                      gamma * 4,
                                      (gamma + 1) * 4,
                                      (gamma + 1) * told * 4,
                                      (gamma + 1) * told * 4};
    scores_layout at;
    at.bytes = 0;
    for (int f = 0; f < NUM_FIELDS; ++f) {
        at.each[f] = each[f];
        at.at[f] = at.bytes;
        at.bytes += align_up(each[f] * batch);
    }
    return at;
}

/* How tokens for a rule are drawn: for the coupled one with the noise of the text. */
static void sample_as(specv_sample_desc *s, int rule, int stream) {
    const int coupled = rule == SPECV_RULE_COUPLED;
    s->method = coupled ? SPECV_SAMPLE_GUMBEL : SPECV_SAMPLE_CDF;
    s->stream = coupled ? SPECV_STREAM_COUPLED : stream;
}

static void describe_scores(const scores_run *r, int batch, const scores_layout *at, char *base,
                            specv_verify_sample_desc *verify, specv_sample_desc *sample) {
    specv_verify_sample_desc d = SPECV_ZERO;
    specv_sample_desc s = SPECV_ZERO;
    const scores_mode *mode = r->mode;
#define FIELD(type, field) ((type *)(void *)(base + at->at[field]))
    d.verify.rows.batch = batch;
    d.verify.rows.max_draft = r->gamma;
    d.verify.vocab = r->vocab;
    d.verify.draft_tokens = FIELD(void, FIELD_DRAFT_TOKENS);
    d.verify.accepted_len = FIELD(int32_t, FIELD_LENS);
    d.verify.mismatch = FIELD(uint8_t, FIELD_MISMATCH);
    d.verify.next_token = FIELD(void, FIELD_NEXT);
    d.verify.out_tokens = FIELD(void, FIELD_OUT_TOKENS);
    d.target.dtype = r->dtype;
    d.target.data = FIELD(void, FIELD_TARGET);
    if (mode->with_q) d.draft.data = FIELD(void, FIELD_DRAFT), d.draft.dtype = r->dtype;
    d.seed = FIELD(uint64_t, FIELD_SEED);
    d.position = FIELD(int32_t, FIELD_POSITION);
    d.scratch = r->scratch, d.scratch_bytes = r->scratch_bytes;
    d.rule = mode->rule;
    if (mode->rule == SPECV_RULE_SCORE) d.target_logprob = FIELD(float, FIELD_LOGPROB);
    if (specv_i_is_lossy(mode->rule)) {
        const float *told = FIELD(float, FIELD_TOP_P);
        if (mode->rule == SPECV_RULE_RELAXED)
            d.lossy.top_n = FIELD(int32_t, FIELD_TOP_K);
        else if (mode->rule == SPECV_RULE_THRESHOLD)
            d.lossy.threshold_acc = told;
        else if (mode->rule == SPECV_RULE_BOUNDED)
            d.lossy.ratio = told;
        else
            d.lossy.alpha = told;
    } else {
        if (mode->top_k) d.filters.top_k = FIELD(int32_t, FIELD_TOP_K);
        if (mode->top_p > 0) d.filters.top_p = FIELD(float, FIELD_TOP_P);
    }
    d.filters.order = mode->order;
    if (mode->mask) d.filters.mask = FIELD(uint32_t, FIELD_MASK);
    if (mode->with_q) d.draft_filters = d.filters;
    if (mode->told) {
        d.emitted.rank = FIELD(int32_t, FIELD_RANK);
        d.emitted.top_id = FIELD(int32_t, FIELD_TOP_ID);
        d.emitted.top_logprob = FIELD(float, FIELD_TOP_LOGPROB);
        d.emitted.max_top = mode->told, d.emitted.raw = 1;
    }

    s.scores = d.target;
    s.seed = d.seed, s.position = d.position, s.filters = d.filters, s.emitted = d.emitted;
    s.token = d.verify.next_token;
    s.scratch = d.scratch, s.scratch_bytes = d.scratch_bytes;
    s.vocab = r->vocab, s.batch = batch;
    sample_as(&s, mode->rule, SPECV_STREAM_TARGET);
#undef FIELD
    *verify = d, *sample = s;
}

/* A8 over all drafts' rows: what a drafter would have proposed under the mode's rule. */
static specv_sample_desc describe_drafter(const scores_run *r, char *base, const float *zeros) {
    const scores_layout *at = &r->of_all;
    specv_sample_desc s = SPECV_ZERO;
    s.scores.dtype = r->dtype;
    s.scores.data = base + at->at[FIELD_DRAFT];
    s.temperature = r->mode->rule == SPECV_RULE_GREEDY ? zeros : NULL;
    s.seed = (const uint64_t *)(void *)(base + at->at[FIELD_DRAFT_SEED]);
    s.position = (const int32_t *)(void *)(base + at->at[FIELD_DRAFT_POSITION]);
    s.token = base + at->at[FIELD_DRAFT_TOKENS];
    s.scratch = r->scratch, s.scratch_bytes = r->scratch_bytes;
    if (!specv_i_is_lossy(r->mode->rule)) {
        if (r->mode->top_k) s.filters.top_k = (const int32_t *)(void *)(base + at->at[FIELD_TOP_K]);
        if (r->mode->top_p > 0)
            s.filters.top_p = (const float *)(void *)(base + at->at[FIELD_TOP_P]);
    }
    s.filters.order = r->mode->order;
    s.vocab = r->vocab, s.batch = r->batch * r->gamma;
    sample_as(&s, r->mode->rule, SPECV_STREAM_DRAFT);
    return s;
}

/* Scratch memory that is enough for every case so far; the part that must be zero is. */
static void reserve_scratch(scores_run *r, int64_t bytes) {
    static char *memory;
    static int64_t size;
    if (bytes < 0) bench_fail("scratch", (int)bytes);
    if (bytes > size) {
        CUDA_CHECK(cudaFree(memory));
        CUDA_CHECK(cudaMalloc(&memory, (size_t)bytes));
        CUDA_CHECK(cudaMemset(memory, 0, SPECV_TICKET_BYTES));
        CUDA_CHECK(cudaDeviceSynchronize());
        size = bytes;
    }
    r->scratch = memory, r->scratch_bytes = size;
}

/* Inputs beside scores, on the host. */
static char *small_field(const scores_run *r, int field) {
    return host_out + (r->of_all.at[field] - r->of_all.at[FIELD_DRAFT_TOKENS]);
}

/* Sizes of a shape, as many sets as fit, and its seeds and positions, on the host. */
static void shape_scores(scores_run *r, int batch, int gamma, int64_t vocab, int dtype) {
    const scores_layout *at = &r->of_all;
    int64_t wanted;
    memset(r, 0, sizeof *r);
    r->batch = batch, r->gamma = gamma, r->vocab = vocab, r->dtype = dtype;
    r->of_all = lay_out_scores(r, batch), r->of_one = lay_out_scores(r, 1);
    r->base = arena;
    wanted = 2 * bench.l2_bytes / at->bytes + 1;
    if (wanted > MAX_SETS)
        wanted = 1;
    else if (wanted < 2 || bench.quick)
        wanted = 2;
    while (wanted > 1 && wanted * at->bytes > bench.arena_bytes) --wanted;
    if (at->bytes > bench.arena_bytes) bench_fail("the arena is too small for a case", -1);
    r->num_sets = (int)wanted;
    CUDA_CHECK(cudaDeviceGetAttribute(&r->num_sms, cudaDevAttrMultiProcessorCount, 0));
    for (int b = 0; b < batch; ++b) {
        const uint64_t seed = bench_random();
        const int32_t position = (int32_t)(bench_random() % 10000);
#define HOST(type, field) ((type *)(void *)small_field(r, field))
        HOST(uint64_t, FIELD_SEED)[b] = seed;
        HOST(int32_t, FIELD_POSITION)[b] = position;
        for (int j = 0; j < gamma; ++j) {
            HOST(uint64_t, FIELD_DRAFT_SEED)[b * gamma + j] = seed;
            HOST(int32_t, FIELD_DRAFT_POSITION)[b * gamma + j] = position + j;
        }
        /* A grammar's: three in four ids are forbidden. The first one is allowed. */
        for (int64_t w = 0; w < r->of_all.each[FIELD_MASK] / 4; ++w) HOST(uint32_t, FIELD_MASK)
        [b * (r->of_all.each[FIELD_MASK] / 4) + w] =
            (uint32_t)(bench_random() & bench_random()) | (w == 0);
#undef HOST
    }
}

/* The scores of a shape, the same in every set. All modes of the shape use them. */
static void prepare_scores(scores_run *r, int batch, int gamma, int64_t vocab, int dtype) {
    const scores_layout *at = &r->of_all;
    shape_scores(r, batch, gamma, vocab, dtype);
    for (int s = 0; s < r->num_sets; ++s) {
        char *set = r->base + s * at->bytes;
        CUDA_CHECK(cudaMemsetAsync(set, 0, (size_t)at->bytes, bench.stream));
        scores_fill<<<(unsigned)(batch * (gamma + 1)), 256, 0, bench.stream>>>(
            set + at->at[FIELD_TARGET], dtype, vocab, gamma + 1, 0.f);
        if (gamma)
            scores_fill<<<(unsigned)(batch * gamma), 256, 0, bench.stream>>>(
                set + at->at[FIELD_DRAFT], dtype, vocab, gamma, 0.5f);
        CUDA_CHECK(cudaGetLastError());
        CUDA_CHECK(cudaMemcpyAsync(set + at->at[FIELD_SEED], small_field(r, FIELD_SEED),
                                   (size_t)(at->at[FIELD_LENS] - at->at[FIELD_SEED]),
                                   cudaMemcpyHostToDevice, bench.stream));
    }
    bench_wait();
}

/* What every request asks for. */
static void put_filters(const scores_run *r, char *set) {
    int32_t top_k[4096];
    float top_p[4096];
    const int count = r->batch * (r->gamma ? r->gamma : 1);
    if (count > 4096) bench_fail("too many requests", -1);
    for (int i = 0; i < count; ++i) top_k[i] = r->mode->top_k, top_p[i] = r->mode->top_p;
    CUDA_CHECK(cudaMemcpy(set + r->of_all.at[FIELD_TOP_K], top_k, (size_t)count * 4,
                          cudaMemcpyHostToDevice));
    CUDA_CHECK(cudaMemcpy(set + r->of_all.at[FIELD_TOP_P], top_p, (size_t)count * 4,
                          cudaMemcpyHostToDevice));
}

/* Drafts and descriptors of a mode. */
static void prepare_scores_mode(scores_run *r, const scores_mode *mode) {
    static float *zeros; /* temperatures */
    const int64_t num_drafts = (int64_t)r->batch * r->gamma;
    specv_sample_desc drafter;
    if (!zeros) {
        CUDA_CHECK(cudaMalloc(&zeros, 4096 * sizeof *zeros));
        CUDA_CHECK(cudaMemset(zeros, 0, 4096 * sizeof *zeros));
        CUDA_CHECK(cudaDeviceSynchronize());
    }
    if (num_drafts > 4096) bench_fail("too many drafts", -1);
    r->mode = mode;
    reserve_scratch(r, mode->drafts
                           ? specv_verify_sample_scratch_bytes(r->batch, r->gamma, r->vocab)
                           : specv_sample_scratch_bytes(r->batch, r->vocab));
    reserve_scratch(r, specv_sample_scratch_bytes(num_drafts, r->vocab));
    for (int s = 0; s < r->num_sets; ++s) {
        char *set = r->base + s * r->of_all.bytes;
        describe_scores(r, r->batch, &r->of_all, set, &r->verify[s], &r->sample[s]);
        put_filters(r, set);
        if (!mode->drafts || r->planted) continue;
        drafter = describe_drafter(r, set, zeros);
        int status = specv_sample(&drafter, bench.stream);
        if (status) bench_fail("drafter", status);
    }
    bench_wait();
}

/* A row of random scores, on the host. Probabilities are (1 + x / 64)^64, which unlike expf every
   machine computes alike. */
static void plant_row(const scores_run *r, char *row, uint64_t first) {
    double sum = 0;
    for (int64_t x = 0; x < r->vocab; ++x) {
        double value = 3 * scores_normal(first | (uint64_t)x);
        if (r->dtype == SPECV_PROBS_F32) {
            value = 1 + value / 64;
            for (int squared = 0; squared < 6; ++squared) value *= value;
        }
        sum += value;
        ((float *)(void *)row)[x] = (float)value;
    }
    for (int64_t x = 0; x < r->vocab && r->dtype == SPECV_PROBS_F32; ++x)
        ((float *)(void *)row)[x] /= (float)sum;
}

static void plant_score(const scores_run *r, char *row, int64_t token, float logit, float prob) {
    ((float *)(void *)row)[token] = r->dtype == SPECV_PROBS_F32 ? prob : logit;
}

/* What the rule itself emits at row j of p: the draft that it accepts. */
static int32_t planted_token(const scores_run *r, const char *row, uint64_t seed, int position) {
    static char no_scratch[32];
    specv_sample_desc s = SPECV_ZERO;
    const float cold = 0;
    int32_t token = -1;
    int status;
    s.scores.dtype = SPECV_LOGITS_F32, s.scores.data = row;
    s.temperature = r->mode->rule == SPECV_RULE_GREEDY ? &cold : NULL;
    s.seed = &seed, s.position = &position, s.token = &token;
    s.scratch = no_scratch + (16 - (size_t)no_scratch % 16), s.scratch_bytes = INT64_MAX;
    s.vocab = r->vocab, s.batch = 1;
    sample_as(&s, r->mode->rule, SPECV_STREAM_TARGET);
    status = specv_ref_sample(&s);
    if (status) bench_fail("reference", status);
    return token;
}

/* One set, built on the host, in which every request is rejected at a given draft (gamma: at none).
   Rules that compare probabilities find nearly all of p at a draft that they are to accept, none at
   the other; rules that compare tokens find the token that they would have emitted. */
static void prepare_planted_scores(scores_run *r, const scores_mode *mode, int batch, int gamma,
                                   int64_t vocab, int dtype, int rejected_at) {
    const scores_layout *at = &r->of_all;
    const int by_token = mode->rule == SPECV_RULE_GREEDY || mode->rule == SPECV_RULE_COUPLED;
    float *row = (float *)malloc(sizeof *row * (size_t)vocab);
    shape_scores(r, batch, gamma, vocab, dtype);
    if (at->at[FIELD_DRAFT_TOKENS] > HOST_BYTES) bench_fail("no room on the host for a case", -1);
    r->num_sets = 1, r->planted = 1, r->mode = mode;
    for (int i = 0; i < batch * (2 * gamma + 1); ++i) {
        const int of_q = i >= batch * (gamma + 1), at_row = i - of_q * batch * (gamma + 1);
        const int columns = gamma + !of_q, b = at_row / columns, j = at_row % columns;
        const uint64_t seed = ((const uint64_t *)(void *)small_field(r, FIELD_SEED))[b];
        const int position = ((const int32_t *)(void *)small_field(r, FIELD_POSITION))[b] + j;
        int32_t *draft = (int32_t *)(void *)small_field(r, FIELD_DRAFT_TOKENS) + b * gamma + j;
        char *out = host_in + at->at[of_q ? FIELD_DRAFT : FIELD_TARGET] +
                    at_row * vocab * score_bytes(dtype);
        plant_row(r, (char *)row, ((uint64_t)(i + 1)) << 32);
        if (j < gamma && !of_q) {
            *draft = by_token ? planted_token(r, (char *)row, seed, position)
                              : (int32_t)(bench_random() % (uint64_t)vocab);
            if (by_token && j == rejected_at) *draft = (*draft + 1) % (int32_t)vocab;
            if (!by_token) /* without q, which is then 1 at the draft, p is, too */
                plant_score(r, (char *)row, *draft, j == rejected_at ? -30.f : 30.f,
                            j == rejected_at ? 0.f
                            : mode->with_q   ? 0.25f
                                             : 1.f);
        }
        if (of_q && dtype == SPECV_PROBS_F32)
            plant_score(r, (char *)row, *draft, 0, j == rejected_at ? row[*draft] + 1e-4f : 0.125f);
        for (int64_t x = 0; x < vocab; ++x) {
            uint32_t bits;
            memcpy(&bits, &row[x], sizeof bits);
            if (dtype == SPECV_LOGITS_BF16)
                ((uint16_t *)(void *)out)[x] = (uint16_t)(bits >> 16);
            else
                ((float *)(void *)out)[x] = row[x];
        }
    }
    free(row);
    CUDA_CHECK(
        cudaMemcpy(r->base, host_in, (size_t)at->at[FIELD_DRAFT_TOKENS], cudaMemcpyHostToDevice));
    CUDA_CHECK(cudaMemcpy(r->base + at->at[FIELD_DRAFT_TOKENS], host_out,
                          (size_t)(at->at[FIELD_LENS] - at->at[FIELD_DRAFT_TOKENS]),
                          cudaMemcpyHostToDevice));
    prepare_scores_mode(r, mode);
}

static int launch_scores(const void *context, int set, cudaStream_t stream) {
    const scores_run *r = (const scores_run *)context;
    return r->mode->drafts ? specv_verify_sample(&r->verify[set], stream)
                           : specv_sample(&r->sample[set], stream);
}

/* -------------------------------------------------------------------------------- verification */

static void fetch_request(const scores_run *r, int set, int b, int first, int last, char *to) {
    for (int f = first; f < last; ++f)
        if (r->of_one.each[f])
            CUDA_CHECK(cudaMemcpy(to + r->of_one.at[f],
                                  r->base + set * r->of_all.bytes + r->of_all.at[f] +
                                      b * r->of_all.each[f],
                                  (size_t)r->of_one.each[f], cudaMemcpyDeviceToHost));
}

/* Every set, into poisoned outputs; the requests that are compared get their answer once, for all
   sets hold the same. Ends the program at a difference. */
static void verify_scores(scores_run *r) {
    static int32_t lens[4096];
    const int64_t outputs = r->of_all.at[FIELD_LENS], of_one = r->of_one.at[FIELD_LENS];
    const int step = r->batch > 1 && r->vocab <= 65536 ? r->batch - 1 : r->batch;
    for (int s = 0; s < r->num_sets; ++s) {
        CUDA_CHECK(cudaMemsetAsync(r->base + s * r->of_all.bytes + outputs, 0xa5,
                                   (size_t)(r->of_all.bytes - outputs), bench.stream));
        int status = launch_scores(r, s, bench.stream);
        if (status) bench_fail(r->mode->name, status);
    }
    bench_wait();
    for (int b = r->batch - 1; b >= 0; b -= step) {
        static char no_scratch[32]; /* the reference needs none, but a descriptor must name some */
        specv_verify_sample_desc verify;
        specv_sample_desc sample;
        int status;
        memset(host_in + of_one, 0xa5, (size_t)(r->of_one.bytes - of_one));
        fetch_request(r, 0, b, 0, FIELD_LENS, host_in);
        describe_scores(r, 1, &r->of_one, host_in, &verify, &sample);
        verify.scratch = sample.scratch = no_scratch + (16 - (size_t)no_scratch % 16);
        verify.scratch_bytes = sample.scratch_bytes = INT64_MAX;
        status = r->mode->drafts ? specv_ref_verify_sample(&verify) : specv_ref_sample(&sample);
        if (status) bench_fail("reference", status);
        for (int s = 0; s < r->num_sets; ++s) {
            memset(host_out + of_one, 0xa5, (size_t)(r->of_one.bytes - of_one));
            fetch_request(r, s, b, FIELD_LENS, NUM_FIELDS, host_out);
            if (memcmp(host_out + of_one, host_in + of_one, (size_t)(r->of_one.bytes - of_one)) ==
                0)
                continue;
            fprintf(stderr,
                    "bench: mode %s differs from the reference: request %d of %d (set %d), "
                    "gamma %d, vocab %lld, %s\n",
                    r->mode->name, b, r->batch, s, r->gamma, (long long)r->vocab,
                    score_name(r->dtype));
            exit(1);
        }
    }
    r->rejected = r->accepted = 0;
    if (!r->mode->drafts) return;
    CUDA_CHECK(cudaMemcpy(lens, r->base + r->of_all.at[FIELD_LENS], (size_t)r->batch * 4,
                          cudaMemcpyDeviceToHost));
    for (int b = 0; b < r->batch; ++b) {
        if (lens[b] < 0 || lens[b] > r->gamma) bench_fail("an accepted length", -1);
        r->rejected += lens[b] < r->gamma;
        r->accepted += lens[b];
    }
}

/* --------------------------------------------------------------------------------------- bytes */

/* Rows of scores that the first pass cannot do without: all of them, unless they are probabilities,
   of which a request needs the row of its token alone (and q's, if a draft was rejected). */
static int64_t rows_of_scores(const scores_run *r) {
    const int64_t b = r->batch;
    if (r->mode->probs) return b + (r->mode->with_q ? r->rejected : 0);
    return b * (r->gamma + 1) + (r->mode->with_q ? b * r->gamma : 0);
}

static int64_t min_bytes_of_scores(const scores_run *r) {
    const int64_t b = r->batch, gamma = r->gamma;
    int64_t bytes = rows_of_scores(r) * r->vocab * score_bytes(r->dtype);
    if (r->mode->rule != SPECV_RULE_GREEDY) bytes += 12 * b; /* seeds and positions */
    if (r->mode->mask) bytes += b * mask_bytes(r);
    if (!r->mode->drafts) return bytes + 4 * b;
    if (r->mode->probs) bytes += 2 * 4 * b * gamma; /* p and q at each draft */
    return bytes + b * (4 * gamma + 4 + 1 + 4 + 4 * (gamma + 1));
}

/* With the second pass where a draft was rejected, the tile that a token is drawn from, and what
   tiles leave in scratch memory for the last block. */
static int64_t asked_bytes_of_scores(const scores_run *r) {
    const int64_t b = r->batch, row = r->vocab * score_bytes(r->dtype);
    const int64_t tiles = (r->vocab + SPECV_TILE_IDS - 1) / SPECV_TILE_IDS;
    const int rule = r->mode->rule, draws = rule == SPECV_RULE_TOKEN || rule == SPECV_RULE_BLOCK;
    int64_t bytes = min_bytes_of_scores(r);
    const int64_t drawn =
        (r->mode->probs ? SPECV_I_STRIP_IDS : SPECV_TILE_IDS) * score_bytes(r->dtype);
    if (draws) bytes += b * drawn;
    if (draws && r->mode->with_q) bytes += r->rejected * drawn;
    if (r->mode->probs) /* the weights of the strips of each row */
        return bytes + b * tiles * SPECV_I_STRIPS * 2 * (int64_t)sizeof(specv_i_residual);
    bytes += rows_of_scores(r) * tiles * 2 * (int64_t)sizeof(specv_tile);
    if (r->mode->with_q)
        bytes += r->rejected * (rule == SPECV_RULE_BLOCK ? r->gamma : 1) *
                 (2 * row + tiles * SPECV_I_STRIPS * 2 * (int64_t)sizeof(specv_i_residual));
    return bytes;
}

static int num_launches_of_scores(const scores_run *r) {
    const scores_mode *mode = r->mode;
    if (specv_i_is_lossy(mode->rule))
        return 2 + (mode->with_q || mode->rule == SPECV_RULE_TYPICAL_DRAW);
    return 1 + (mode->with_q && !mode->probs) + (mode->top_k || mode->top_p > 0) +
           2 * (mode->told > 0);
}

/* --------------------------------------------------------------------------------------- floor */

/* Every 16 bytes once, four loads in flight; the store never happens, but keeps the loads. */
extern "C" __global__ void floor_read(const uint4 *src, int64_t count, uint32_t *out) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    uint32_t all = 0;
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i + 3 * step < count; i += 4 * step) {
        const uint4 a = src[i], b = src[i + step], c = src[i + 2 * step], d = src[i + 3 * step];
        all |= a.x ^ a.y ^ a.z ^ a.w ^ b.x ^ b.y ^ b.z ^ b.w;
        all |= c.x ^ c.y ^ c.z ^ c.w ^ d.x ^ d.y ^ d.z ^ d.w;
    }
    for (; i < count; i += step) {
        const uint4 a = src[i];
        all |= a.x ^ a.y ^ a.z ^ a.w;
    }
    if (all == 0x80000001u) *out = all;
}

static int launch_floor_read(const void *context, int set, cudaStream_t stream) {
    const scores_run *r = (const scores_run *)context;
    const int64_t count = rows_of_scores(r) * r->vocab * score_bytes(r->dtype) / 16;
    int64_t blocks = (count + 255) / 256;
    if (blocks > 8 * r->num_sms) blocks = 8 * r->num_sms;
    floor_read<<<(unsigned)blocks, 256, 0, stream>>>(
        (const uint4 *)(void *)(r->base + set * r->of_all.bytes), count,
        (uint32_t *)((char *)r->scratch + SPECV_TICKET_BYTES));
    return (int)cudaPeekAtLastError();
}

/* Time to read the same scores once; from probabilities also the loads that wait for each other. */
static bench_bound measure_bound_of_scores(const scores_run *r, int with_graph) {
    bench_bound bound = {r->mode->probs ? "probe3+read" : "read", 0};
    bound.us = with_graph ? bench_time_graph(launch_floor_read, r, r->num_sets).p50
                          : bench_time_events(launch_floor_read, r, r->num_sets, 1).p50;
    if (r->mode->probs) {
        bench_floor f = bench_probe(3, r->num_sms, SPECV_SAMPLE_THREADS);
        bound.us += with_graph ? bench_time_graph(launch_floor_probe, &f, 1).p50
                               : bench_time_events(launch_floor_probe, &f, 1, 1).p50;
    }
    return bound;
}

#endif
