/* step.h - what mpi.c and nccl.cu verify: requests of a model that is a function, so that each rank
   can have its columns of the logits, and one all of them to compare with. Included behind the
   kit and its reference. */

enum { BATCH = 4, DRAFTS = 3, POSITIONS = DRAFTS + 1, VOCAB = 10000, STEPS = 6, MAX_TOP_K = 40 };

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
    int32_t drafts[BATCH][DRAFTS], position[BATCH], top_k[BATCH];
    uint64_t seed[BATCH];
    float top_p[BATCH];
    struct {
        int32_t accepted[BATCH], next[BATCH], tokens[BATCH][POSITIONS];
        uint32_t status[BATCH];
        float logprob[BATCH], lse[BATCH], of_drafts[BATCH][DRAFTS], emitted[BATCH][POSITIONS];
    } out;
} step;

/* memory(bytes): where such things are, malloc's or one that a GPU reads, too. */
static step *new_step(int num, void *(*memory)(size_t bytes)) {
    step *s = (step *)memory(sizeof *s);
    memset(s, 0, sizeof *s);
    s->target = (uint16_t *)memory(2 * (size_t)(BATCH * POSITIONS * num) + 2);
    s->draft = (uint16_t *)memory(2 * (size_t)(BATCH * DRAFTS * num) + 2);
    for (int b = 0; b < BATCH; ++b) {
        s->seed[b] = 1000 + (uint64_t)b;
        s->top_k[b] = MAX_TOP_K >> b, s->top_p[b] = b % 2 ? 0.9f : 1.f;
    }
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

static specv_verify_sample_desc describe(step *s, int rule, int with_q, int logs, int limits) {
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
    if (limits) d.filters.top_k = s->top_k, d.filters.top_p = s->top_p;
    if (limits && with_q) d.draft_filters = d.filters;
    return d;
}

/* Rules, with and without draft scores, with and without log-probabilities; limits: 1: each row has
   a top_k of at most MAX_TOP_K, and some top_p, 2: and ranks are told that all have. */
static const struct {
    const char *rule, *q;
    int id, with_q, logs, limits;
} runs[] = {{"GREEDY", "-", SPECV_RULE_GREEDY, 0, 0, 0},
            {"COUPLED", "-", SPECV_RULE_COUPLED, 0, 0, 0},
            {"COUPLED", "lse", SPECV_RULE_COUPLED, 0, 1, 0},
            {"SCORE", "-", SPECV_RULE_SCORE, 0, 1, 0},
            {"TOKEN", "-", SPECV_RULE_TOKEN, 0, 1, 0},
            {"TOKEN", "bf16", SPECV_RULE_TOKEN, 1, 1, 0},
            {"BLOCK", "-", SPECV_RULE_BLOCK, 0, 1, 0},
            {"BLOCK", "bf16", SPECV_RULE_BLOCK, 1, 1, 0},
            {"COUPLED", "k", SPECV_RULE_COUPLED, 0, 1, 2},
            {"SCORE", "k", SPECV_RULE_SCORE, 0, 1, 2},
            {"TOKEN", "k", SPECV_RULE_TOKEN, 0, 1, 1},
            {"TOKEN", "all k", SPECV_RULE_TOKEN, 0, 1, 2},
            {"TOKEN", "bf16, k", SPECV_RULE_TOKEN, 1, 1, 2},
            {"BLOCK", "bf16, k", SPECV_RULE_BLOCK, 1, 1, 2}};

enum { NUM_RUNS = sizeof runs / sizeof runs[0] };

/* The ids of a rank: whole tiles; the last one also has what the vocabulary ends with. */
static int first_id_of(int rank, int ranks) {
    const int tiles = (VOCAB + SPECV_TILE_IDS - 1) / SPECV_TILE_IDS;
    const int first = tiles * rank / ranks * SPECV_TILE_IDS;
    return first < VOCAB ? first : VOCAB;
}

static void print_head(void) {
    printf("a step of %d requests, %d drafts each, %d ids, bf16: bytes that a rank sends\n"
           "rule     draft scores  exchanges  bytes  logits\n",
           BATCH, DRAFTS, VOCAB);
}

static void print_run(int i, int exchanges, int64_t sent) {
    printf("%-8s %-12s %10d %6d %7d\n", runs[i].rule, runs[i].q, exchanges, (int)sent,
           2 * VOCAB * BATCH * (POSITIONS + (runs[i].with_q ? DRAFTS : 0)));
}

static void print_end(int steps, int ranks, int differ) {
    if (differ == 0)
        printf("%d steps: every output of every rank as of one that has all columns\n", steps);
    else
        printf("%d of %d outputs differ\n", differ, steps * ranks);
}
