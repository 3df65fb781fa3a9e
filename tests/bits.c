/* bits.c - a digest of every operation of the reference that computes with floats or doubles, over
   random cases, for flags.sh: whatever compiles this file has to print the same text. Inputs are
   made from integers and outputs are hashed as bytes: nothing here depends on flags itself.

       digest: 0x0123456789abcdef  operation, cases */

#define SPECVERIFY_REF_STATIC
#define SPECVERIFY_REF_IMPLEMENTATION
#include "specverify_ref.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))
#define PICK(array)  ((array)[below(COUNT(array))])

/* ------------------------------------------------------------------------------------ numbers */

static uint64_t state;

static uint64_t draw(void) { /* splitmix64 */
    uint64_t x = state += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}
static int below(int bound) { return (int)(draw() % (uint64_t)bound); }
static int chance(int percent) { return below(100) < percent; }

/* Bits of a float of 2^low .. 2^(high + 1), of either sign if `sign` is 1. */
static uint32_t draw_bits(int low, int high, int sign) {
    const uint32_t exponent = (uint32_t)(127 + low + below(high - low + 1));
    const uint64_t x = draw();
    return (sign ? (uint32_t)(x >> 63) << 31 : 0) | exponent << 23 | (uint32_t)(x & 0x7fffff);
}
static float draw_float(int low, int high, int sign) {
    return specv_bits_float(draw_bits(low, high, sign));
}
static double draw_double(int low, int high, int sign) {
    const uint64_t exponent = (uint64_t)(1023 + low + below(high - low + 1)), x = draw();
    return specv_i_bits_double((sign ? x >> 63 << 63 : 0) | exponent << 52 | (x & ~0ull >> 12));
}

/* ------------------------------------------------------------------------------------- arrays */

/* Memory of the open case. What is written to outputs goes into the digest. */
static uint64_t memory[1 << 18];
static size_t used;
static struct {
    const void *data;
    size_t bytes;
} outputs[16];
static int num_outputs;
static uint64_t digest;
static long cases, faults;

static void *input(int count, int bytes) {
    void *data = memory + used;
    used += ((size_t)count * (size_t)bytes + 15) / 16 * 2;
    if (used > COUNT(memory)) {
        fprintf(stderr, "bits: a case is too large\n");
        exit(2);
    }
    return data;
}
static void *output(int count, int bytes) {
    void *data = input(count, bytes);
    outputs[num_outputs].data = data;
    outputs[num_outputs++].bytes = (size_t)count * (size_t)bytes;
    return data;
}
static float *floats(int count, int low, int high, int sign) {
    float *data = (float *)input(count, 4);
    for (int i = 0; i < count; ++i) data[i] = draw_float(low, high, sign);
    return data;
}
static double *doubles(int count, int low, int high, int sign) {
    double *data = (double *)output(count, 8); /* all arrays of doubles are in/out */
    for (int i = 0; i < count; ++i) data[i] = draw_double(low, high, sign);
    return data;
}
static uint64_t *seeds(int count) {
    uint64_t *data = (uint64_t *)input(count, 8);
    for (int i = 0; i < count; ++i) data[i] = draw();
    return data;
}
static int32_t *integers(int count, int bound) {
    int32_t *data = (int32_t *)input(count, 4);
    for (int i = 0; i < count; ++i) data[i] = below(bound);
    return data;
}

static void hash(const void *data, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) {
        digest = (digest ^ ((const unsigned char *)data)[i]) * 0x100000001B3u;
        digest ^= digest >> 29;
    }
}
/* The case is over. A descriptor that was refused would leave nothing to compare. */
static void close_case(int status) {
    if (status && faults++ == 0) fprintf(stderr, "bits: %s\n", specv_status_string(status));
    for (int i = 0; i < num_outputs; ++i) hash(outputs[i].data, outputs[i].bytes);
    memset(memory, 0, used * sizeof memory[0]);
    used = 0, num_outputs = 0, cases += 1;
}
static void open_operation(uint64_t seed) { state = seed, digest = 0, cases = 0; }
static void close_operation(const char *name, const char *part) {
    printf("digest: 0x%016llx  %s%s, %ld cases\n", (unsigned long long)digest, name, part, cases);
}

/* ------------------------------------------------------------------------------------- scores */

static void *draw_scores(int count, int dtype) {
    static const uint32_t odd[] = {0, 0x80000000u, 0x7fc00000u, 0x7f800000u, 0xff800000u, 1};
    const int half = dtype == SPECV_LOGITS_F16 || dtype == SPECV_LOGITS_BF16;
    const int with_odd = chance(20), spread = below(6);
    void *data = input(count, half ? 2 : 4);
    for (int i = 0; i < count; ++i) {
        uint32_t bits = draw_bits(-8, spread, 1);
        if (dtype == SPECV_PROBS_F32) bits = draw_bits(-20, -1, 0);
        if (with_odd && chance(10)) bits = PICK(odd);
        if (dtype == SPECV_LOGITS_F16)
            ((uint16_t *)data)[i] = (uint16_t)((uint32_t)below(0x4000) + (bits >> 16 & 0x8000u));
        else if (half)
            ((uint16_t *)data)[i] = (uint16_t)(bits >> 16);
        else
            memcpy((char *)data + (size_t)i * 4, &bits, 4);
    }
    return data;
}

static float *draw_temperatures(int count) {
    float *data = floats(count, -3, 2, 0);
    for (int i = 0; i < count; ++i)
        if (chance(15)) data[i] = chance(50) ? 0.f : specv_bits_float((uint32_t)draw());
    return data;
}

enum { ROWS = 4, SCRATCH = 1 << 16 };
/* Now and then more than a tile. */
static int draw_vocab(void) {
    static const int vocabs[] = {1, 2, 3, 5, 9, 40, 80};
    return chance(2) ? SPECV_TILE_IDS + 6 : PICK(vocabs);
}

static void verify_case(int rule, int dtype) {
    specv_verify_sample_desc d = SPECV_ZERO;
    const int vocab = draw_vocab(), max_draft = vocab > 100 ? below(3) : below(5);
    const int drafts = ROWS * max_draft;
    d.rule = rule;
    d.verify.rows.batch = ROWS;
    d.verify.rows.max_draft = max_draft;
    d.verify.vocab = vocab;
    d.verify.draft_tokens = integers(drafts, vocab);
    d.target.dtype = d.draft.dtype = dtype;
    d.target.data = draw_scores((drafts + ROWS) * vocab, dtype);
    if ((rule == SPECV_RULE_TOKEN || rule == SPECV_RULE_BLOCK) && chance(70))
        d.draft.data = draw_scores(drafts * vocab, dtype);
    if (chance(80)) d.temperature = draw_temperatures(ROWS);
    if (d.draft.data && chance(30)) d.draft_temperature = draw_temperatures(ROWS);
    d.seed = seeds(ROWS);
    d.position = integers(ROWS, 1 << 20);
    d.verify.accepted_len = (int32_t *)output(ROWS, 4);
    d.verify.next_token = output(ROWS, 4);
    d.verify.row_status = (uint32_t *)output(ROWS, 4);
    d.logprob = (float *)output(ROWS, 4);
    d.lse = (float *)output(ROWS, 4);
    if (rule == SPECV_RULE_SCORE) d.target_logprob = (float *)output(drafts, 4);
    d.scratch = input(SCRATCH, 1);
    d.scratch_bytes = SCRATCH;
    close_case(specv_ref_verify_sample(&d));
}

static void sample_case(int method, int dtype) {
    specv_sample_desc d = SPECV_ZERO;
    d.method = method;
    d.batch = ROWS;
    d.vocab = draw_vocab();
    d.scores.dtype = dtype;
    d.scores.data = draw_scores(ROWS * (int)d.vocab, dtype);
    if (chance(80)) d.temperature = draw_temperatures(ROWS);
    d.seed = seeds(ROWS);
    d.position = integers(ROWS, 1 << 20);
    d.step_row = below(4);
    d.stream = below(2);
    d.token = output(ROWS, 4);
    d.logprob = (float *)output(ROWS, 4);
    d.lse = (float *)output(ROWS, 4);
    d.row_status = (uint32_t *)output(ROWS, 4);
    d.scratch = input(SCRATCH, 1);
    d.scratch_bytes = SCRATCH;
    close_case(specv_ref_sample(&d));
}

/* --------------------------------------------------------------------------------- scheduling */

static void group_case(void) {
    specv_group_desc d = SPECV_ZERO;
    d.batch = 1 + below(40);
    d.score = (const float *)draw_scores(d.batch, SPECV_LOGITS_F32);
    d.num_pick = 1 + below(4);
    d.order = (int32_t *)output(d.batch, 4);
    d.group_start = (int32_t *)output(d.batch + 1, 4);
    d.group_count = (int32_t *)output(1, 4);
    d.pick_rows = (int32_t *)output(d.num_pick, 4);
    d.is_group = (int32_t *)output(1, 4);
    d.ticket = (uint32_t *)input(1, 4);
    close_case(specv_ref_group(&d));
}

static void budget_case(void) {
    specv_draft_budget_desc d = SPECV_ZERO;
    const int batch = 1 + below(12), max_draft = 1 + below(12), drafts = batch * max_draft;
    float *confidence = floats(drafts, -3, -1, 0);
    for (int i = 0; i < drafts; ++i)
        if (chance(5)) confidence[i] = specv_bits_float((uint32_t)draw());
    d.rows.batch = batch, d.rows.max_draft = max_draft;
    d.rows.draft_len = integers(batch, max_draft + 1);
    d.confidence = confidence;
    d.max_budget = below(drafts + 1);
    d.survival = (float *)output(drafts, 4);
    d.new_draft_len = (int32_t *)output(batch, 4);
    d.new_row_start = (int32_t *)output(batch + 1, 4);
    d.row_status = (uint32_t *)output(batch, 4);
    close_case(specv_ref_draft_budget(&d));
}

/* ---------------------------------------------------------------------------------- particles */

static void weights_case(void) {
    specv_particle_weights_desc d = SPECV_ZERO;
    const int batch = 8, max_draft = below(6);
    d.batch = batch, d.max_draft = max_draft;
    d.draft_tokens = integers(batch * max_draft, 12);
    d.num_eos = chance(50);
    d.target_logprob = floats(batch * max_draft, -12, 6, 1);
    d.draft_logprob = floats(batch * max_draft, -12, 6, 1);
    if (chance(70)) d.alpha = floats(batch, -3, 3, 0);
    if (chance(70)) d.bonus_lse = floats(batch, -6, 6, 1), d.lse = floats(batch, -6, 6, 1);
    d.finished = (uint8_t *)output(batch, 1);
    d.log_weight = doubles(batch, -20, 10, 1);
    d.interval_weight = doubles(batch, -20, 10, 1);
    d.num_emitted = (int32_t *)output(batch, 4);
    d.row_status = (uint32_t *)output(batch, 4);
    close_case(specv_ref_particle_weights(&d));
}

static void plan_case(int scheme) {
    static const int sizes[] = {1, 2, 3, 7, 16, 16, 33, 100};
    static const uint64_t odd[] = {0, 0x7ff8000000000000u, 0x7ff0000000000000u, 0xfff0000000000000u,
                                   0xfff0000000000000u};
    specv_resample_plan_desc d = SPECV_ZERO;
    const int groups = 8, n = PICK(sizes), all = groups * n;
    const int low = below(24) - 20, with_odd = chance(20);
    d.scheme = scheme;
    d.num_groups = groups, d.num_particles = n;
    d.interval_weight = doubles(all, low, low + below(6), 1);
    for (int i = 0; i < all && with_odd; ++i)
        if (chance(10)) d.interval_weight[i] = specv_i_bits_double(PICK(odd));
    d.log_weight = doubles(all, -20, 10, 1);
    d.log_z = doubles(groups, -20, 8, 1);
    d.seed = seeds(groups);
    d.position = integers(groups, 1 << 20);
    if (chance(30)) d.uniform = floats(all, -20, -1, 0);
    d.jobs = (int32_t *)output(2 * groups * (n - 1), 4);
    d.num_jobs = (int32_t *)output(groups, 4);
    d.num_copies = (int32_t *)output(all, 4);
    d.drawn_row = (int32_t *)output(groups, 4);
    d.ess = (double *)output(groups, 8);
    d.group_status = (uint32_t *)output(groups, 4);
    d.threshold = chance(70) ? 1 : draw_double(-3, -1, 0);
    close_case(specv_ref_resample_plan(&d));
}

/* ------------------------------------------------------------------------------------ metrics */

static void metrics_case(void) {
    int64_t totals[SPECV_STAT_COUNT];
    const double alpha = chance(5) ? 1 : draw_double(-4, -1, 0), cost = draw_double(-8, 2, 0);
    const int gamma = below(20);
    double *metric = (double *)output(5, 8);
    for (int i = 0; i < SPECV_STAT_COUNT; ++i) totals[i] = chance(5) ? 0 : below(1 << 30);
    metric[0] = specv_block_efficiency(totals);
    metric[1] = specv_tokens_per_step(totals);
    metric[2] = specv_acceptance_rate(totals);
    metric[3] = specv_expected_tokens(alpha, gamma);
    metric[4] = specv_expected_speedup(alpha, gamma, cost);
    close_case(0);
}

/* --------------------------------------------------------------------------------------- main */

int main(void) {
    static const char *const dtypes[] = {" f32", " f16", " bf16", " probs"};
    static const char *const rules[] = {"A3 token", "A4 block", "A5 coupled", "A2 greedy", "SCORE"};
    static const char *const methods[] = {"A8 cdf", "A8 gumbel"};
    static const char *const schemes[] = {" systematic", " stratified", " multinomial",
                                          " residual"};
    for (int rule = 0; rule < COUNT(rules); ++rule)
        for (int dtype = 0; dtype < COUNT(dtypes); ++dtype) {
            open_operation((uint64_t)(rule * 10 + dtype));
            for (int i = 0; i < 150; ++i) verify_case(rule, dtype);
            close_operation(rules[rule], dtypes[dtype]);
        }
    for (int method = 0; method < COUNT(methods); ++method)
        for (int dtype = 0; dtype < COUNT(dtypes); ++dtype) {
            open_operation((uint64_t)(100 + method * 10 + dtype));
            for (int i = 0; i < 150; ++i) sample_case(method, dtype);
            close_operation(methods[method], dtypes[dtype]);
        }
    open_operation(200);
    for (int i = 0; i < 2000; ++i) group_case();
    close_operation("C4", " by score");
    open_operation(201);
    for (int i = 0; i < 2000; ++i) budget_case();
    close_operation("C5", "");
    open_operation(202);
    for (int i = 0; i < 2000; ++i) weights_case();
    close_operation("D1", "");
    for (int scheme = 0; scheme < COUNT(schemes); ++scheme) {
        open_operation((uint64_t)(300 + scheme));
        for (int i = 0; i < 500; ++i) plan_case(scheme);
        close_operation("D2", schemes[scheme]);
    }
    open_operation(400);
    for (int i = 0; i < 5000; ++i) metrics_case();
    close_operation("E", " metrics");
    return faults > 0;
}
