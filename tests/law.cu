/* law.cu - A3 to A5 and A8 do not change the law of the text: what a step emits is what the target
   model alone would have written.

   The yardstick is the published rule, written here once more, in doubles. First the rule is shown
   to be right, by adding up the probabilities of everything that can happen. Then the reference's
   decisions are compared with it for given uniforms; the device's have to equal the reference's.
   Last, whole texts are drawn, several steps long and with keys as in production, and counted:
   that is what sees a random number that is used twice. Broken rules and misused keys go the same
   way and have to be found: a yardstick that cannot see them proves nothing. */

#include "t.h"

#include <math.h>
#include <time.h>

/* ------------------------------------------------------------------------------------ models */

enum { MAX_V = 5, MAX_N = 4, CONTEXTS = 512, TARGET = 0, DRAFT = 1 };

/* Two models, target and draft, whose distributions depend on the whole text. Texts are numbered
   as the nodes of a tree, the empty one 0; the first CONTEXTS of them have rows of their own,
   longer ones share them. */
typedef struct model {
    int vocab, dtype;
    float temperature[2];
    float score[2][CONTEXTS][MAX_V]; /* what the kit gets; half-precision codes can hold it */
    double prob[2][CONTEXTS][MAX_V]; /* what it means */
} model;

static uint64_t child(const model *m, uint64_t node, int64_t token) {
    return node * (uint64_t)m->vocab + 1 + (uint64_t)token;
}

static int context(uint64_t node) { return (int)(node < CONTEXTS ? node : t_mix(node) % CONTEXTS); }

static const double *probs(const model *m, int side, uint64_t node) {
    return m->prob[side][context(node)];
}

static uint16_t f16_code(float x) {
    int exponent;
    double fraction = 2 * frexp(fabs((double)x), &exponent) - 1;
    if (isinf(x)) return x < 0 ? 0xfc00u : 0x7c00u;
    if (!(fabs((double)x) > 0)) return 0;
    return (uint16_t)((x < 0 ? 0x8000 : 0) + (exponent + 14) * 1024 + (int)(fraction * 1024));
}

/* A logit that this dtype can hold. */
static float fit(int dtype, double logit) {
    if (dtype == SPECV_LOGITS_F16) return (float)(floor(logit * 64) / 64);
    if (dtype == SPECV_LOGITS_BF16) return (float)(floor(logit * 32) / 32); /* below 8 */
    return (float)logit;
}

/* From scores to what they mean. */
static void set_probs(model *m, int side, int c) {
    float *score = m->score[side][c];
    double sum = 0, *prob = m->prob[side][c], largest = -1e300;
    for (int x = 0; x < m->vocab; ++x) largest = score[x] > largest ? (double)score[x] : largest;
    for (int x = 0; x < m->vocab; ++x) {
        prob[x] = (double)score[x];
        if (m->dtype != SPECV_PROBS_F32)
            prob[x] = exp((prob[x] - largest) / (double)m->temperature[side]);
        sum += prob[x];
    }
    for (int x = 0; x < m->vocab; ++x) prob[x] /= sum;
}

/* Random models. zeros: some tokens cannot come. likeness, 0 to 1: how much the draft model is
   like the target; 1 is the same scores. */
static void draw_model(model *m, int vocab, int dtype, int zeros, double likeness) {
    static const float temperatures[] = {1.f, 0.7f, 1.4f};
    m->vocab = vocab, m->dtype = dtype;
    m->temperature[TARGET] = T_PICK(temperatures);
    m->temperature[DRAFT] = likeness < 1 ? T_PICK(temperatures) : m->temperature[TARGET];
    for (int c = 0; c < CONTEXTS; ++c) {
        double logit[2][MAX_V];
        for (int side = TARGET; side <= DRAFT; ++side) {
            int kept = (int)t_below(vocab);
            double sum = 0;
            for (int x = 0; x < vocab; ++x) {
                logit[side][x] = 4 * (t_uniform() + t_uniform() - 1);
                if (side == DRAFT)
                    logit[side][x] = likeness * logit[TARGET][x] + (1 - likeness) * logit[side][x];
                m->score[side][c][x] = fit(dtype, logit[side][x]);
                if (zeros && x != kept && t_chance(30)) m->score[side][c][x] = -INFINITY;
                if (side == DRAFT && !(likeness < 1)) m->score[side][c][x] = m->score[TARGET][c][x];
                sum += exp((double)m->score[side][c][x]);
            }
            if (dtype == SPECV_PROBS_F32 && (side == TARGET || likeness < 1))
                for (int x = 0; x < vocab; ++x)
                    m->score[side][c][x] = (float)(exp((double)m->score[side][c][x]) / sum);
            set_probs(m, side, c);
        }
    }
}

/* The same two distributions after every text. */
static void fixed_model(model *m, int vocab, int dtype, const double *p, const double *q) {
    const int logits = dtype != SPECV_PROBS_F32;
    m->vocab = vocab, m->dtype = dtype;
    m->temperature[TARGET] = m->temperature[DRAFT] = 1;
    for (int c = 0; c < CONTEXTS; ++c)
        for (int x = 0; x < vocab; ++x) {
            m->score[TARGET][c][x] = (float)(logits ? log(p[x]) : p[x]);
            m->score[DRAFT][c][x] = (float)(logits ? log(q[x]) : q[x]);
            m->prob[TARGET][c][x] = p[x], m->prob[DRAFT][c][x] = q[x];
        }
}

/* Sun et al.'s example, and a textbook's. */
static const double toy_p[] = {1. / 3, 2. / 3}, toy_q[] = {2. / 3, 1. / 3};
static const double textbook_p[] = {.1, .5, .4}, textbook_q[] = {.5, .4, .1};

/* ------------------------------------------------------------------------- the published rules */

/* Ways to get them wrong. */
typedef enum fault {
    SOUND,
    SWAPPED,        /* p and q exchanged in the test */
    RESIDUAL_IS_P,  /* after a rejection the token is drawn from p */
    NEXT_ROW,       /* residual of the row behind the rejected draft */
    STALE_BONUS,    /* bonus of the row before the last */
    REUSED_UNIFORM, /* the number that rejected draws the token, too (H2) */
    FIRST_REJECT,   /* block: stops at the first failure instead of the last success */
    NO_PREFIX,      /* block: residual (p - q)+ without P */
    NO_CLAMP,       /* block: P may exceed 1 */
    PREFIX_AS_H,    /* block: h = P before the end, too */
    LESS_OR_EQUAL,  /* u * q <= p: one number in 2^24, which no count would see */
    NUM_FAULTS
} fault;

static const char *const fault_names[] = {
    "none",        "p and q swapped", "residual is p", "residual of the next row",
    "stale bonus", "reused uniform",  "first reject",  "no prefix",
    "no clamp",    "h is P",          "less or equal"};

typedef struct rules {
    int block, one_hot; /* one_hot: q is 1 at the draft */
    fault broken;
} rules;

/* Drafts d[0..n-1] behind the text node[0], with everything that the rule says of them. */
typedef struct judged {
    const model *m;
    const rules *r;
    const int *d;
    int n;
    uint64_t node[MAX_N + 1];
    double prefix[MAX_N + 1];           /* block: P_i */
    double left[MAX_N], right[MAX_N];   /* test i passes if u * left < right */
    double law[MAX_N + 1], rate[MAX_N]; /* P(tau = i), P(test i passes) */
} judged;

static double q_of(const judged *g, int row, int x) {
    if (g->r->one_hot) return g->d[row] == x;
    return probs(g->m, DRAFT, g->node[row])[x];
}

static double least(double a, double b) { return a < b ? a : b; }

static judged judge(const model *m, const rules *r, uint64_t node, const int *d, int n) {
    judged g;
    double rest = 1;
    g.m = m, g.r = r, g.d = d, g.n = n;
    g.node[0] = node, g.prefix[0] = 1;
    for (int i = 0; i < n; ++i) {
        double p = probs(m, TARGET, g.node[i])[d[i]], q = q_of(&g, i, d[i]);
        g.node[i + 1] = child(m, g.node[i], d[i]);
        g.left[i] = r->broken == SWAPPED ? p : q;
        g.right[i] = r->broken == SWAPPED ? q : p;
        p *= g.prefix[i];
        g.prefix[i + 1] = q > 0 ? p / q : p > 0;
        if (r->broken != NO_CLAMP) g.prefix[i + 1] = least(g.prefix[i + 1], 1);
    }
    for (int i = 0; i < n && r->block; ++i) {
        const double *p = probs(m, TARGET, g.node[i + 1]), prefix = g.prefix[i + 1];
        g.left[i] = 1, g.right[i] = prefix;
        if (i + 1 == n || r->broken == PREFIX_AS_H) continue;
        g.left[i] = g.right[i] = 0;
        for (int x = 0; x < m->vocab; ++x) {
            double gain = prefix * p[x] - q_of(&g, i + 1, x);
            if (gain > 0)
                g.right[i] += gain;
            else
                g.left[i] -= gain;
        }
    }
    for (int i = 0; i < n; ++i)
        g.rate[i] = g.left[i] > 0 ? least(g.right[i] / g.left[i], 1) : r->block || g.right[i] > 0;
    if (r->block && r->broken != FIRST_REJECT) {
        for (int i = n; i > 0; --i) g.law[i] = rest * g.rate[i - 1], rest *= 1 - g.rate[i - 1];
        g.law[0] = rest;
    } else {
        for (int i = 0; i < n; ++i) g.law[i] = rest * (1 - g.rate[i]), rest *= g.rate[i];
        g.law[n] = rest;
    }
    return g;
}

/* What the token behind tau accepted drafts is drawn from: weights; returns their sum. */
static double next_weights(const judged *g, int tau, double *w) {
    const fault broken = g->r->broken;
    const int rejected = tau < g->n;
    int row = rejected && broken == NEXT_ROW ? tau + 1 : tau;
    double total = 0, prefix = g->r->block && broken != NO_PREFIX ? g->prefix[tau] : 1;
    if (!rejected && broken == STALE_BONUS && tau > 0) row = tau - 1;
    const double *p = probs(g->m, TARGET, g->node[row]);
    const double *q = probs(g->m, DRAFT, g->node[row]);
    for (int x = 0; x < g->m->vocab; ++x) {
        w[x] = p[x];
        if (rejected && broken != RESIDUAL_IS_P) {
            w[x] = g->r->one_hot ? (x == g->d[tau] ? 0 : p[x]) : prefix * p[x] - q[x];
            if (w[x] < 0) w[x] = 0;
        }
        total += w[x];
    }
    if (total > 0) return total;
    for (int x = 0; x < g->m->vocab; ++x) total += w[x] = p[x];
    return total;
}

/* P(next token = x | drafts, tau) */
static void next_law(const judged *g, int tau, double *law) {
    double w[MAX_V], before = 0, total = next_weights(g, tau, w);
    const int reused = g->r->broken == REUSED_UNIFORM && tau < g->n;
    const double from = reused ? g->rate[tau] : 0; /* the uniform is known to be above */
    for (int x = 0; x < g->m->vocab; ++x) {
        double after = before + w[x] / total, begin = before > from ? before : from;
        law[x] = after > begin ? (after - begin) / (1 - from) : 0;
        before = after;
    }
}

/* Adds up everything that a step of n drafts can do, then lets the target go on alone to n + 1
   tokens. Returns how far the law of the result is from the target's, at worst. */
static double law_error(const model *m, const rules *r, int n, double *mean_tau) {
    static double emitted[MAX_N + 2][1024 + 1];
    int num_texts = 1, d[MAX_N + 1], worst_is_nan = 0;
    double worst = 0;
    for (int i = 0; i < n; ++i) num_texts *= m->vocab;
    memset(emitted, 0, sizeof emitted);
    *mean_tau = 0;
    for (int text = 0; text < num_texts; ++text) {
        double weight = 1, law[MAX_V];
        uint64_t node = 0;
        for (int i = n, rest = text; i-- > 0; rest /= m->vocab) d[i] = rest % m->vocab;
        for (int i = 0; i < n; ++i) {
            weight *= probs(m, DRAFT, node)[d[i]];
            node = child(m, node, d[i]);
        }
        if (!(weight > 0)) continue;
        judged g = judge(m, r, 0, d, n);
        for (int tau = 0, accepted = 0; tau <= n; ++tau) {
            if (g.law[tau] > 0) next_law(&g, tau, law);
            for (int x = 0; x < m->vocab && g.law[tau] > 0; ++x)
                emitted[tau + 1][accepted * m->vocab + x] += weight * g.law[tau] * law[x];
            *mean_tau += weight * g.law[tau] * tau;
            if (tau < n) accepted = accepted * m->vocab + d[tau];
        }
    }
    for (int text = 0; text < num_texts * m->vocab; ++text) {
        double sum = 0, want = 1, error;
        uint64_t node = 0;
        int prefix = 0;
        for (int i = n, rest = text; i >= 0; --i, rest /= m->vocab) d[i] = rest % m->vocab;
        for (int i = 0; i <= n; ++i) {
            double p = probs(m, TARGET, node)[d[i]];
            node = child(m, node, d[i]);
            prefix = prefix * m->vocab + d[i];
            sum = sum * p + emitted[i + 1][prefix]; /* sum over L of law(y_<L) prod p behind L */
            want *= p;
        }
        error = fabs(sum - want);
        worst = error > worst ? error : worst;
        worst_is_nan |= isnan(error) != 0;
    }
    return worst_is_nan ? INFINITY : worst;
}

/* The same rule with given uniforms. margin: how close the closest of its comparisons was, so that
   rounding could have turned it; comparisons between exact numbers are not close. */
typedef struct decision {
    int tau, token;
    double margin;
} decision;

static int passes(const judged *g, int i, double u, double *margin) {
    const double left = g->left[i], right = g->right[i], gap = fabs(u * left - right);
    const int block = g->r->block;
    double scale = block ? 1 : (left > right ? left : right);
    /* 0 against 0: a token that cannot come, or comes behind one that cannot */
    if (!(u > 0) && !(right > 0) && !(block && g->prefix[i + 1] > 0)) scale = 0;
    if (scale > 0 && gap / scale < *margin) *margin = gap / scale;
    if (g->r->broken == LESS_OR_EQUAL) return u * left <= right;
    return u * left < right || (block && !(left > 0));
}

static decision decide(const judged *g, const float *u, float v) {
    decision o = {0, -1, 1};
    double w[MAX_V], total, sum = 0;
    for (int i = 0; i < g->n; ++i) {
        if (passes(g, i, (double)u[i], &o.margin))
            o.tau = i + 1;
        else if (!g->r->block)
            break;
    }
    total = next_weights(g, o.tau, w);
    for (int x = 0; x < g->m->vocab; ++x) {
        sum += w[x];
        if ((v > 0 || sum > 0) && fabs((double)v * total - sum) < o.margin && sum < total)
            o.margin = fabs((double)v * total - sum);
        if (o.token < 0 && (double)v * total < sum) o.token = x;
    }
    return o;
}

/* -------------------------------------------------------------------------------- enumeration */

static void test_enumeration(void) {
    static model m;
    const int turns = t.quick ? 1 : 4;
    double worst = 0;
    for (int vocab = 2; vocab <= 4; ++vocab)
        for (int n = 0; n <= MAX_N; ++n)
            for (int kind = 0; kind < 8; ++kind)
                for (int turn = 0; turn < turns; ++turn) {
                    rules r = {kind & 1, kind >> 1 & 1, SOUND};
                    double mean, error;
                    t_case("enumeration: V %d, %d drafts, %s, %s, %s zeros", vocab, n,
                           r.block ? "block" : "token", r.one_hot ? "one-hot" : "with q",
                           kind & 4 ? "with" : "no");
                    draw_model(&m, vocab, SPECV_LOGITS_F32, kind >> 2, turn % 2 ? .7 : 0);
                    error = law_error(&m, &r, n, &mean);
                    CHECK(error < 1e-12);
                    worst = error > worst ? error : worst;
                    if (r.block) { /* never accepts less than the token rule */
                        rules token = {0, 0, SOUND};
                        double token_mean;
                        token.one_hot = r.one_hot;
                        law_error(&m, &token, n, &token_mean);
                        CHECK(mean > token_mean - 1e-12);
                        if (n == 1) CHECK(fabs(mean - token_mean) < 1e-12);
                    }
                }
    t_close_case();
    printf("enumeration: worst error %.1e\n", worst);
}

/* -------------------------------------------------------------------------- running the kit */

/* A batch as the kit gets it. The reference runs always; the device, if wanted, on the same
   inputs, and has to say the same. */
typedef struct kit {
    int rows, vocab, max_draft, dtype, device;
    int with_q, with_len, with_accept, with_sample; /* inputs that are given */
    t_buf draft_tokens, draft_len, target, draft, temperature, draft_temperature, seed, position,
        accept_uniform, sample_uniform;
    t_buf accepted, next, out, status;
    t_buf scores, token, token_status; /* of the sampler */
    t_buf scratch;
} kit;

/* Some machines hold a case's buffers only: the arrays of the host that go with them. */
static void *more(size_t bytes) {
    void *p = calloc(bytes ? bytes : 1, 1);
    if (!p) t_die(__FILE__, __LINE__, "calloc", "no memory");
    return p;
}

static int score_bytes(int dtype) {
    return dtype == SPECV_LOGITS_F16 || dtype == SPECV_LOGITS_BF16 ? 2 : 4;
}

static void put_score(const t_buf *b, int dtype, int64_t at, float score) {
    uint16_t code =
        dtype == SPECV_LOGITS_F16 ? f16_code(score) : (uint16_t)(specv_float_bits(score) >> 16);
    if (score_bytes(dtype) == 2)
        memcpy(b->host + 2 * at, &code, 2);
    else
        memcpy(b->host + 4 * at, &score, 4);
}

static int32_t *ints(const t_buf *b) { return (int32_t *)(void *)b->host; }
static float *floats(const t_buf *b) { return (float *)(void *)b->host; }
static uint64_t *words(const t_buf *b) { return (uint64_t *)(void *)b->host; }

static specv_verify_sample_desc verify_desc(const kit *k, int side, int rule) {
    specv_verify_sample_desc d = SPECV_ZERO;
    d.verify.rows.batch = k->rows;
    d.verify.rows.max_draft = k->max_draft;
    if (k->with_len) d.verify.rows.draft_len = (const int32_t *)t_at(&k->draft_len, side);
    d.verify.vocab = k->vocab;
    d.verify.draft_tokens = t_at(&k->draft_tokens, side);
    d.verify.accepted_len = (int32_t *)t_at(&k->accepted, side);
    d.verify.next_token = t_at(&k->next, side);
    d.verify.out_tokens = t_at(&k->out, side);
    d.verify.row_status = (uint32_t *)t_at(&k->status, side);
    d.target.data = t_at(&k->target, side);
    d.target.dtype = d.draft.dtype = k->dtype;
    if (k->with_q) d.draft.data = t_at(&k->draft, side);
    d.temperature = (const float *)t_at(&k->temperature, side);
    d.draft_temperature = (const float *)t_at(&k->draft_temperature, side);
    d.seed = (const uint64_t *)t_at(&k->seed, side);
    d.position = (const int32_t *)t_at(&k->position, side);
    if (k->with_accept) d.accept_uniform = (const float *)t_at(&k->accept_uniform, side);
    if (k->with_sample) d.sample_uniform = (const float *)t_at(&k->sample_uniform, side);
    d.scratch = t_at(&k->scratch, side);
    d.scratch_bytes = (int64_t)k->scratch.bytes;
    d.rule = rule;
    return d;
}

static specv_sample_desc sample_desc(const kit *k, int side, int method, int row, int stream,
                                     int of_draft) {
    specv_sample_desc d = SPECV_ZERO;
    d.scores.data = t_at(&k->scores, side);
    d.scores.dtype = k->dtype;
    d.temperature = (const float *)t_at(of_draft ? &k->draft_temperature : &k->temperature, side);
    d.seed = (const uint64_t *)t_at(&k->seed, side);
    d.position = (const int32_t *)t_at(&k->position, side);
    if (k->with_sample) d.uniform = (const float *)t_at(&k->sample_uniform, side);
    d.token = t_at(&k->token, side);
    d.row_status = (uint32_t *)t_at(&k->token_status, side);
    d.scratch = t_at(&k->scratch, side);
    d.scratch_bytes = (int64_t)k->scratch.bytes;
    d.vocab = k->vocab;
    d.batch = k->rows;
    d.method = method, d.step_row = row, d.stream = stream;
    return d;
}

static kit open_kit(int rows, int vocab, int max_draft, int dtype, int device) {
    kit k;
    specv_verify_sample_desc d;
    memset(&k, 0, sizeof k);
    k.rows = rows, k.vocab = vocab, k.max_draft = max_draft, k.dtype = dtype;
    k.device = device && T_DEVICE;
    k.with_q = max_draft > 0;
    const int64_t drafts = (int64_t)rows * max_draft, row_bytes = vocab * score_bytes(dtype);
    k.draft_tokens = t_in(4 * drafts, 0);
    k.draft_len = t_in(4 * rows, 0);
    k.target = t_in((drafts + rows) * row_bytes, 0);
    k.draft = t_in(drafts * row_bytes, 0);
    k.temperature = t_in(4 * rows, 0), k.draft_temperature = t_in(4 * rows, 0);
    k.seed = t_in(8 * rows, 0);
    k.position = t_in(4 * rows, 0);
    k.accept_uniform = t_in(4 * drafts, 0), k.sample_uniform = t_in(4 * rows, 0);
    k.accepted = t_out(4 * rows, 0), k.next = t_out(4 * rows, 0);
    k.out = t_out(4 * (drafts + rows), 0), k.status = t_out(4 * rows, 0);
    k.scores = t_in(rows * row_bytes, 0);
    k.token = t_out(4 * rows, 0), k.token_status = t_out(4 * rows, 0);
    d = verify_desc(&k, T_HOST_SIDE, SPECV_RULE_TOKEN);
    d.draft.data = max_draft ? t_at(&k.draft, T_HOST_SIDE) : NULL;
    const int64_t bytes = specv_verify_sample_scratch_bytes(&d);
    if (bytes < 0) t_die(__FILE__, __LINE__, "scratch", specv_status_string((int)bytes));
    k.scratch = t_in(bytes, 0);
    memset(k.scratch.host, 0, (size_t)bytes);
#if T_DEVICE
    T_CUDA(cudaMemset(k.scratch.device, 0, (size_t)bytes));
#endif
    for (int b = 0; b < rows; ++b) {
        floats(&k.temperature)[b] = floats(&k.draft_temperature)[b] = 1;
        words(&k.seed)[b] = t_random();
        ints(&k.position)[b] = 0, ints(&k.draft_len)[b] = max_draft;
        floats(&k.sample_uniform)[b] = 0;
    }
    for (int64_t i = 0; i < drafts; ++i) {
        ints(&k.draft_tokens)[i] = 0;
        floats(&k.accept_uniform)[i] = 0;
    }
    return k;
}

#if T_DEVICE
static void to_device(const t_buf *b) {
    if (b->bytes) T_CUDA(cudaMemcpy(b->device, b->host, b->bytes, cudaMemcpyHostToDevice));
}

static void same_on_device(const t_buf *b) {
    char *copy = (char *)more(b->bytes);
    T_CUDA(cudaMemcpy(copy, b->device, b->bytes, cudaMemcpyDeviceToHost));
    for (size_t at = 0; at < b->bytes; at += 4) {
        int32_t host, device;
        memcpy(&host, b->host + at, 4);
        memcpy(&device, copy + at, 4);
        if (host != device) {
            CHECK_EQ(device, host, (int64_t)at / 4);
            break;
        }
    }
    free(copy);
}
#endif

static void run_verify(const kit *k, int rule) {
    specv_verify_sample_desc d = verify_desc(k, T_HOST_SIDE, rule);
    CHECK_EQ(specv_ref_verify_sample(&d), SPECV_OK, -1);
#if T_DEVICE
    const t_buf *inputs[] = {&k->draft_tokens,   &k->draft_len,     &k->target,
                             &k->draft,          &k->temperature,   &k->draft_temperature,
                             &k->seed,           &k->position,      &k->accept_uniform,
                             &k->sample_uniform, &k->accept_uniform};
    if (!k->device) return;
    for (int i = 0; i < T_COUNT(inputs); ++i) to_device(inputs[i]);
    d = verify_desc(k, T_DEVICE_SIDE, rule);
    CHECK_EQ(specv_verify_sample(&d, 0), SPECV_OK, -1);
    T_CUDA(cudaDeviceSynchronize());
    same_on_device(&k->accepted);
    same_on_device(&k->next);
    same_on_device(&k->out);
    same_on_device(&k->status);
#endif
}

static void run_sample(const kit *k, int method, int row, int stream, int of_draft) {
    specv_sample_desc d = sample_desc(k, T_HOST_SIDE, method, row, stream, of_draft);
    CHECK_EQ(specv_ref_sample(&d), SPECV_OK, -1);
#if T_DEVICE
    const t_buf *inputs[] = {&k->scores, &k->temperature, &k->draft_temperature,
                             &k->seed,   &k->position,    &k->sample_uniform};
    if (!k->device) return;
    for (int i = 0; i < T_COUNT(inputs); ++i) to_device(inputs[i]);
    d = sample_desc(k, T_DEVICE_SIDE, method, row, stream, of_draft);
    CHECK_EQ(specv_sample(&d, 0), SPECV_OK, -1);
    T_CUDA(cudaDeviceSynchronize());
    same_on_device(&k->token);
    same_on_device(&k->token_status);
#endif
}

/* Scores behind the text `node`, to row `at` of a buffer. */
static void put_scores(const t_buf *b, int64_t at, const model *m, int side, uint64_t node) {
    for (int x = 0; x < m->vocab; ++x)
        put_score(b, m->dtype, at * m->vocab + x, m->score[side][context(node)][x]);
}

/* Scores of row b of the batch for verification, its drafts being in place. */
static void put_row(const kit *k, int b, const model *m, uint64_t node) {
    for (int j = 0; j <= k->max_draft; ++j) {
        put_scores(&k->target, (int64_t)b * (k->max_draft + 1) + j, m, TARGET, node);
        if (j == k->max_draft) return;
        put_scores(&k->draft, (int64_t)b * k->max_draft + j, m, DRAFT, node);
        node = child(m, node, ints(&k->draft_tokens)[b * k->max_draft + j]);
    }
}

/* ---------------------------------------------------------------------------------- decisions */

static int pick_from(const double *law, int vocab) {
    double u = t_uniform();
    for (int x = 0; x < vocab; ++x) {
        u -= law[x];
        if (u < 0) return x;
    }
    for (int x = vocab - 1; x > 0; --x)
        if (law[x] > 0) return x;
    return 0;
}

/* On the grid of 24 bits, with the ends and the middle more often. */
static float pick_uniform(void) {
    static const float special[] = {0.f, 5.9604644775390625e-8f, .5f, 1 - 5.9604644775390625e-8f};
    return t_chance(15) ? T_PICK(special) : specv_uniform24((uint32_t)t_random());
}

static long decisions_seen, decisions_close, decisions_different;

/* One batch: rows behind random texts, random drafts, given uniforms. Returns how many decisions
   differ though they were not close. */
static long compare_decisions(kit *k, const model *m, const rules *r) {
    const int n = k->max_draft;
    uint64_t *node = (uint64_t *)more(sizeof *node * (size_t)k->rows);
    long wrong = 0;
    k->with_q = !r->one_hot && n > 0;
    for (int b = 0; b < k->rows; ++b) {
        uint64_t at = node[b] = (uint64_t)t_below(CONTEXTS);
        for (int j = 0; j < n; ++j) {
            /* sometimes a draft that the draft model would not propose */
            int d =
                t_chance(80) ? pick_from(probs(m, DRAFT, at), m->vocab) : (int)t_below(m->vocab);
            ints(&k->draft_tokens)[b * n + j] = d;
            floats(&k->accept_uniform)[b * n + j] = pick_uniform();
            at = child(m, at, d);
        }
        floats(&k->sample_uniform)[b] = pick_uniform();
        floats(&k->temperature)[b] = m->temperature[TARGET];
        floats(&k->draft_temperature)[b] = m->temperature[DRAFT];
        put_row(k, b, m, node[b]);
    }
    run_verify(k, r->block ? SPECV_RULE_BLOCK : SPECV_RULE_TOKEN);
    for (int b = 0; b < k->rows; ++b) {
        const int *drafts = ints(&k->draft_tokens) + b * n;
        judged g = judge(m, r, node[b], drafts, n);
        decision o = decide(&g, floats(&k->accept_uniform) + b * n, floats(&k->sample_uniform)[b]);
        int same = ints(&k->accepted)[b] == o.tau && ints(&k->next)[b] == o.token;
        decisions_seen += 1;
        decisions_close += o.margin < 1e-6;
        decisions_different += !same;
        wrong += !same && !(o.margin < 1e-6);
        if (!same && !(o.margin < 1e-6) && r->broken == SOUND) {
            CHECK_EQ(ints(&k->accepted)[b], o.tau, b);
            CHECK_EQ(ints(&k->next)[b], o.token, b);
        }
    }
    free(node);
    return wrong;
}

static kit decision_kit(int rows, int vocab, int n, int dtype) {
    kit k = open_kit(rows, vocab, n, dtype, T_DEVICE);
    k.device = 0;
    k.with_accept = n > 0, k.with_sample = 1;
    return k;
}

static void test_decisions(void) {
    static model m;
    decisions_seen = decisions_close = decisions_different = 0;
    for (int kind = 0; kind < 16; ++kind)
        for (int n = 0; n <= MAX_N; ++n) {
            rules r = {kind & 1, kind >> 1 & 1, SOUND};
            const int dtype = (kind + n) % 4, vocab = 2 + (kind / 4 + n) % 4;
            t_case("decisions: V %d, %d drafts, %s, %s, dtype %d, %s zeros", vocab, n,
                   r.block ? "block" : "token", r.one_hot ? "one-hot" : "with q", dtype,
                   kind & 4 ? "with" : "no");
            kit k = decision_kit(16, vocab, n, dtype);
            for (int batch = 0; batch < (t.quick ? 30 : 400); ++batch) {
                draw_model(&m, vocab, dtype, kind >> 2 & 1, kind & 8 ? .7 : 0);
                k.device = T_DEVICE && batch == 0 && (!t.quick || (kind + n) % 5 == 0);
                CHECK_EQ(compare_decisions(&k, &m, &r), 0, batch);
            }
        }
    t_close_case();
    printf("decisions: %ld rows, %ld with a close comparison, %ld of them decided otherwise\n",
           decisions_seen, decisions_close, decisions_different);
}

/* ------------------------------------------------------------------------------------ counting */

enum { MAX_CELLS = 1024, TEXT = 24 };

typedef struct chi2 {
    double statistic, df;
} chi2;

/* Adds a group of cells; those that expect less than 5 are put together. */
static void add_cells(chi2 *c, const double *observed, const double *expected, int count) {
    double few_observed = 0, few_expected = 0, cells = 0, sum = 0;
    for (int i = 0; i < count; ++i) {
        double gap = observed[i] - expected[i];
        if (expected[i] < 5) {
            few_observed += observed[i], few_expected += expected[i];
            continue;
        }
        sum += gap * gap / expected[i];
        cells += 1;
    }
    if (few_expected >= 5) {
        double gap = few_observed - few_expected;
        sum += gap * gap / few_expected;
        cells += 1;
    } else if (few_observed > few_expected + 10 * (1 + sqrt(few_expected))) {
        c->statistic += 1e9; /* what can hardly happen did */
    }
    if (cells > 1) c->statistic += sum, c->df += cells - 1; /* one alone says nothing */
}

static int fits(chi2 c) { return c.statistic <= c.df + 10 * sqrt(2 * c.df); }

/* Who proposes, and what the kit is told of it. */
typedef enum drafter {
    FROM_Q,    /* drawn from q, q given */
    HIDDEN_Q,  /* drawn from q, which is not given: one-hot */
    BEST,      /* argmax of q, not given */
    ANY,       /* uniformly random, not given */
    COUPLED_Q, /* drawn from q with the target's noise, not given */
    NUM_DRAFTERS
} drafter;

static const char *const drafter_names[] = {"q given", "q hidden", "argmax", "random", "coupled"};

/* Keys that are used for two things. */
typedef enum misuse {
    PROPER,
    SAME_STREAM,   /* drafts and residual (H1) */
    SHARED_ACCEPT, /* test and residual (H2) */
    ABSOLUTE,      /* drafts and tests of a step and the next: keyed by the place alone (H3) */
    SAME_POSITION, /* all of a step and the next */
    WRONG_Q,       /* q is not what the drafts were drawn from (H4) */
    NUM_MISUSES
} misuse;

static const char *const misuse_names[] = {
    "proper keys",          "drafts share the residual's key", "one uniform for test and residual",
    "keys without the row", "position does not advance",       "q of another temperature"};

typedef struct chain {
    const model *m;
    int rule, max_draft, steps, length; /* length: tokens that are counted; at most steps */
    drafter drafts;
    misuse keys;
    int ragged; /* rows have 0 to max_draft drafts */
    int greedy; /* every 4th row has temperature 0 */
} chain;

/* Counts over many texts. */
typedef struct tally {
    double texts, first[MAX_CELLS];                        /* by their first tokens */
    double observed[TEXT][MAX_N + 1][MAX_V];               /* first token of a step, by the */
    double expected[TEXT][MAX_N + 1][MAX_V];               /* length accepted before it */
    double tau, tau_expected, tau_variance, steps_counted; /* given the drafts */
    double matches, match_expected, match_variance;        /* coupled: first draft accepted */
    double greedy_rows;
} tally;

/* The texts of one batch. */
typedef struct texts {
    uint64_t *node;
    int32_t *len, *token; /* token[row * TEXT + i] */
    int32_t *before;      /* accepted in the last step */
    uint64_t *at;
} texts;

static texts open_texts(int rows) {
    texts x;
    size_t n = (size_t)rows;
    x.node = (uint64_t *)more(n * 8), x.at = (uint64_t *)more(n * 8);
    x.len = (int32_t *)more(n * 4), x.token = (int32_t *)more(n * 4 * TEXT);
    x.before = (int32_t *)more(n * 4);
    return x;
}

static void close_texts(texts *x) {
    free(x->node), free(x->at), free(x->len), free(x->token), free(x->before);
}

static int argmax(const double *law, int vocab) {
    int best = 0;
    for (int x = 1; x < vocab; ++x)
        if (law[x] > law[best]) best = x;
    return best;
}

/* P(two models that share their noise choose the same token). Daliri et al. 2024. */
static double match_rate(const double *p, const double *q, int vocab) {
    double rate = 0;
    for (int j = 0; j < vocab; ++j) {
        double sum = 0;
        if (!(p[j] > 0 && q[j] > 0)) continue;
        for (int i = 0; i < vocab; ++i)
            sum += p[i] / p[j] > q[i] / q[j] ? p[i] / p[j] : q[i] / q[j];
        rate += 1 / sum;
    }
    return rate;
}

static const int first_position = 41;

static void draw_drafts(const chain *c, kit *k, texts *x) {
    const int n = c->max_draft,
              method = c->drafts == COUPLED_Q ? SPECV_SAMPLE_GUMBEL : SPECV_SAMPLE_CDF;
    const int stream = c->keys == SAME_STREAM ? SPECV_STREAM_TARGET : SPECV_STREAM_DRAFT;
    const int given = k->with_sample;
    for (int b = 0; b < k->rows; ++b) x->at[b] = x->node[b];
    for (int j = 0; j < n; ++j) {
        for (int b = 0; b < k->rows; ++b) put_scores(&k->scores, b, c->m, DRAFT, x->at[b]);
        if (c->drafts == BEST || c->drafts == ANY) {
            for (int b = 0; b < k->rows; ++b)
                ints(&k->token)[b] = c->drafts == ANY
                                         ? (int)t_below(c->m->vocab)
                                         : argmax(probs(c->m, DRAFT, x->at[b]), c->m->vocab);
        } else {
            const int absolute = c->keys == ABSOLUTE;
            k->with_sample = 0;
            for (int b = 0; b < k->rows && absolute; ++b) ints(&k->position)[b] += j;
            run_sample(k, method, absolute ? 0 : j, stream, 1);
            for (int b = 0; b < k->rows && absolute; ++b) ints(&k->position)[b] -= j;
            k->with_sample = given;
        }
        for (int b = 0; b < k->rows; ++b) {
            const int d = ints(&k->token)[b];
            if (d < 0 || d >= c->m->vocab) t_die(__FILE__, __LINE__, "draft", "no token");
            ints(&k->draft_tokens)[b * n + j] = d;
            x->at[b] = child(c->m, x->at[b], d);
        }
    }
}

/* What the step should do, on average, for these drafts. */
static void count_step(const chain *c, const kit *k, const texts *x, int step, int b, tally *sum) {
    const double *p = probs(c->m, TARGET, x->node[b]), *q = probs(c->m, DRAFT, x->node[b]);
    const int n = ints(&k->draft_len)[b], vocab = c->m->vocab, tau = ints(&k->accepted)[b];
    const int token = ints(&k->out)[b * (c->max_draft + 1)];
    if (step > 0 && token >= 0) {
        sum->observed[step][x->before[b]][token] += 1;
        for (int y = 0; y < vocab; ++y) sum->expected[step][x->before[b]][y] += p[y];
    }
    if (c->rule == SPECV_RULE_COUPLED && n > 0) {
        double rate = match_rate(p, q, vocab);
        sum->matches += tau > 0;
        sum->match_expected += rate, sum->match_variance += rate * (1 - rate);
    } else if (c->rule != SPECV_RULE_COUPLED) {
        rules r = {c->rule == SPECV_RULE_BLOCK, c->drafts != FROM_Q, SOUND};
        judged g = judge(c->m, &r, x->node[b], ints(&k->draft_tokens) + b * c->max_draft, n);
        double mean = 0, square = 0;
        for (int i = 0; i <= n; ++i) mean += g.law[i] * i, square += g.law[i] * i * i;
        sum->tau += tau, sum->tau_expected += mean, sum->tau_variance += square - mean * mean;
    }
    sum->steps_counted += 1;
}

static void run_step(const chain *c, kit *k, texts *x, int step, tally *sum) {
    const int n = c->max_draft;
    for (int b = 0; b < k->rows; ++b) {
        ints(&k->position)[b] = first_position + (c->keys == SAME_POSITION ? 0 : x->len[b]);
        ints(&k->draft_len)[b] =
            c->ragged ? (int)(t_mix((uint64_t)(b * 64 + step)) % (uint64_t)(n + 1)) : n;
    }
    draw_drafts(c, k, x);
    for (int b = 0; b < k->rows; ++b) {
        put_row(k, b, c->m, x->node[b]);
        for (int j = 0; j < n && c->keys == ABSOLUTE; ++j) /* what a key without a row would be */
            floats(&k->accept_uniform)[b * n + j] = specv_uniform24(
                specv_philox(words(&k->seed)[b], (uint32_t)ints(&k->position)[b] + (uint32_t)j, 0,
                             0, SPECV_TAG_ACCEPT)
                    .x[0]);
        for (int j = 0; j < n && c->keys == SHARED_ACCEPT; ++j)
            floats(&k->accept_uniform)[b * n + j] = specv_uniform24((uint32_t)t_random());
        floats(&k->sample_uniform)[b] = 0;
    }
    for (int b = 0; b < k->rows && c->keys == WRONG_Q; ++b) floats(&k->draft_temperature)[b] *= 2;
    run_verify(k, c->rule);
    for (int b = 0; b < k->rows && c->keys == WRONG_Q; ++b) floats(&k->draft_temperature)[b] /= 2;
    if (c->keys == SHARED_ACCEPT) { /* now it is known which one rejected */
        for (int b = 0; b < k->rows; ++b) {
            const int tau = ints(&k->accepted)[b];
            floats(&k->sample_uniform)[b] = tau < n ? floats(&k->accept_uniform)[b * n + tau]
                                                    : specv_uniform24((uint32_t)t_random());
        }
        run_verify(k, c->rule);
    }
    for (int b = 0; b < k->rows; ++b) {
        const int tau = ints(&k->accepted)[b], *out = ints(&k->out) + b * (n + 1);
        if (!(c->greedy && b % 4 == 3)) count_step(c, k, x, step, b, sum);
        for (int i = 0; i <= tau; ++i) {
            if (out[i] < 0 || out[i] >= c->m->vocab) t_die(__FILE__, __LINE__, "out", "no token");
            if (x->len[b] < TEXT) x->token[b * TEXT + x->len[b]] = out[i];
            x->len[b] += 1;
            x->node[b] = child(c->m, x->node[b], out[i]);
        }
        CHECK(ints(&k->status)[b] == 0);
        x->before[b] = tau;
    }
}

/* The batch's texts, from scratch. */
static texts run_texts(const chain *c, kit *k, uint64_t first_seed, tally *sum) {
    texts x = open_texts(k->rows);
    k->with_q = c->drafts == FROM_Q && c->max_draft > 0;
    k->with_len = c->ragged;
    k->with_accept = c->max_draft > 0 && (c->keys == ABSOLUTE || c->keys == SHARED_ACCEPT);
    k->with_sample = c->keys == SHARED_ACCEPT;
    for (int b = 0; b < k->rows; ++b) {
        words(&k->seed)[b] = first_seed + (uint64_t)b;
        floats(&k->temperature)[b] = c->greedy && b % 4 == 3 ? 0 : c->m->temperature[TARGET];
        floats(&k->draft_temperature)[b] = c->m->temperature[DRAFT];
    }
    for (int step = 0; step < c->steps; ++step) run_step(c, k, &x, step, sum);
    for (int b = 0; b < k->rows; ++b) {
        int cell = 0;
        if (c->greedy && b % 4 == 3) { /* a law of its own: there is only one text */
            uint64_t node = 0;
            for (int i = 0; i < x.len[b] && i < TEXT; ++i) {
                CHECK_EQ(x.token[b * TEXT + i], argmax(probs(c->m, TARGET, node), c->m->vocab), b);
                node = child(c->m, node, x.token[b * TEXT + i]);
            }
            sum->greedy_rows += 1;
            continue;
        }
        for (int i = 0; i < c->length; ++i) cell = cell * c->m->vocab + x.token[b * TEXT + i];
        sum->first[cell] += 1;
        sum->texts += 1;
    }
    return x;
}

/* The texts' first tokens against the product of the target's probabilities. */
static chi2 chi2_of_texts(const chain *c, const tally *sum) {
    static double expected[MAX_CELLS];
    chi2 result = {0, 0};
    int cells = 1;
    for (int i = 0; i < c->length; ++i) cells *= c->m->vocab;
    for (int cell = 0; cell < cells; ++cell) {
        uint64_t node = 0;
        int scale = cells / c->m->vocab;
        expected[cell] = sum->texts;
        for (int i = 0; i < c->length; ++i, scale = scale / c->m->vocab) {
            int x = cell / scale % c->m->vocab;
            expected[cell] *= probs(c->m, TARGET, node)[x];
            node = child(c->m, node, x);
        }
    }
    add_cells(&result, sum->first, expected, cells);
    return result;
}

/* The first token of each later step, by what the step before accepted: given the text, it must
   not matter. */
static chi2 chi2_of_steps(const chain *c, const tally *sum) {
    chi2 result = {0, 0};
    for (int step = 1; step < c->steps; ++step)
        for (int tau = 0; tau <= c->max_draft; ++tau)
            add_cells(&result, sum->observed[step][tau], sum->expected[step][tau], c->m->vocab);
    return result;
}

static double z_of_tau(const tally *sum) {
    double gap = sum->tau - sum->tau_expected;
    return sum->tau_variance > 0 ? gap / sqrt(sum->tau_variance) : (gap > 0 || gap < 0) * 1e9;
}

static const char *rule_name(int rule) {
    static const char *const names[] = {"token", "block", "coupled", "greedy"};
    return names[rule];
}

static void note_chain(const chain *c) {
    t_note(" %s, %s, V %d, %d drafts, %d steps, dtype %d%s%s", rule_name(c->rule),
           drafter_names[c->drafts], c->m->vocab, c->max_draft, c->steps, c->m->dtype,
           c->ragged ? ", ragged" : "", c->greedy ? ", some greedy" : "");
}

/* num_texts texts, or, on the device, as many as `seconds` suffice for: nobody knows here whether a
   GPU runs the kernels or an interpreter. */
static void run_chain(const chain *c, int64_t num_texts, int rows, double seconds, tally *sum) {
    const uint64_t first_seed = t_random();
    const int device = seconds > 0;
    const clock_t start = clock();
    kit k = open_kit(rows, c->m->vocab, c->max_draft, c->m->dtype, device);
    memset(sum, 0, sizeof *sum);
    for (int64_t done = 0; done < num_texts; done += rows) {
        texts x = run_texts(c, &k, first_seed + (uint64_t)done, sum);
        close_texts(&x);
        if (device && (double)(clock() - start) / CLOCKS_PER_SEC > seconds) break;
    }
}

static double all_texts;

static void check_chain(const chain *c, int64_t num_texts, int rows, double seconds) {
    static tally sum;
    chi2 whole, steps;
    run_chain(c, num_texts, rows, seconds, &sum);
    whole = chi2_of_texts(c, &sum), steps = chi2_of_steps(c, &sum);
    CHECK(fits(whole));
    CHECK(fits(steps));
    printf("%s: %.0f texts, chi2 %.1f of %.0f, steps %.1f of %.0f, ", t.what, sum.texts,
           whole.statistic, whole.df, steps.statistic, steps.df);
    if (c->rule == SPECV_RULE_COUPLED) {
        double z = 0;
        if (sum.match_variance > 0 && c->drafts == COUPLED_Q) {
            z = (sum.matches - sum.match_expected) / sqrt(sum.match_variance);
            CHECK(fabs(z) < 5);
        }
        printf("z of the matches %.2f\n", z);
    } else {
        CHECK(fabs(z_of_tau(&sum)) < 5);
        printf("tau %.4f, z %.2f\n", sum.tau / sum.steps_counted, z_of_tau(&sum));
    }
    all_texts += sum.texts;
}

#if T_DEVICE
/* As many texts as fit into LAW_SECONDS, LAW_STEPS steps long, if these are set: a million texts
   are seconds of a GPU and an hour of an interpreter. */
static void check_device_chain(chain *c) {
    const char *seconds = getenv("LAW_SECONDS"), *steps = getenv("LAW_STEPS");
    if (steps) c->steps = atoi(steps);
    if (c->length > c->steps) c->length = c->steps;
    note_chain(c);
    if (seconds)
        check_chain(c, (int64_t)1 << 40, 512, atof(seconds));
    else
        check_chain(c, 1 << 17, t.quick ? 8 : 64, t.quick ? .3 : 2);
}
#endif

/* ------------------------------------------------------------------------------------- chains */

static const int chain_kinds[][7] = {
    /* rule, drafter, V, drafts, dtype, zeros, ragged */
    {SPECV_RULE_TOKEN, FROM_Q, 3, 3, SPECV_LOGITS_F32, 0, 0},
    {SPECV_RULE_BLOCK, FROM_Q, 3, 3, SPECV_LOGITS_F32, 0, 0},
    {SPECV_RULE_BLOCK, FROM_Q, 3, 4, SPECV_PROBS_F32, 1, 1},
    {SPECV_RULE_TOKEN, HIDDEN_Q, 4, 2, SPECV_LOGITS_F16, 1, 0},
    {SPECV_RULE_BLOCK, HIDDEN_Q, 4, 3, SPECV_LOGITS_BF16, 0, 0},
    {SPECV_RULE_TOKEN, FROM_Q, 5, 4, SPECV_PROBS_F32, 0, 1},
    {SPECV_RULE_BLOCK, FROM_Q, 5, 2, SPECV_LOGITS_F16, 1, 0},
    {SPECV_RULE_TOKEN, BEST, 3, 4, SPECV_LOGITS_F32, 0, 0},
    {SPECV_RULE_BLOCK, BEST, 5, 3, SPECV_PROBS_F32, 1, 1},
};

/* Chain i of the list, over random models. */
static chain describe_chain(model *m, int i, int greedy) {
    const int *kind = chain_kinds[i];
    chain c;
    memset(&c, 0, sizeof c);
    draw_model(m, kind[2], kind[4], kind[5], i % 3 ? .6 : 0);
    c.m = m, c.rule = kind[0], c.drafts = (drafter)kind[1], c.max_draft = kind[3];
    c.length = kind[2] == 5 ? 3 : 4;
    c.steps = 4;
    c.ragged = kind[6], c.greedy = greedy;
    return c;
}

static void test_chains(void) {
    static model m;
    all_texts = 0;
    for (int i = 0; i < T_COUNT(chain_kinds); ++i) {
        t_case("chain:");
        chain c = describe_chain(&m, i, 0);
        note_chain(&c);
        check_chain(&c, t.quick ? 1 << 11 : 1 << 17, 1024, 0);
    }
    t_close_case();
    printf("chains: %.0f texts in all\n", all_texts);
}

/* Greedy requests beside sampled ones. */
static void test_mixed(void) {
    static model m;
    for (int i = 0; i < T_COUNT(chain_kinds); i += 2) {
        t_case("mixed:");
        chain c = describe_chain(&m, i, 1);
        note_chain(&c);
        check_chain(&c, t.quick ? 1 << 10 : 1 << 14, 1024, 0);
    }
}

static void test_device_chains(void) {
#if T_DEVICE
    static model m;
    all_texts = 0;
    for (int i = 0; i < T_COUNT(chain_kinds); ++i) {
        if (t.quick && i != 1 && i != 2 && i != 3) continue;
        t_case("device chain:");
        chain c = describe_chain(&m, i, i == 2);
        check_device_chain(&c);
    }
    t_close_case();
    printf("device chains: %.0f texts in all\n", all_texts);
#else
    t_skip("needs nvcc");
#endif
}

/* ---------------------------------------------------------------------------- published figures */

static void test_published(void) {
    static model m;
    static const struct {
        int vocab, n, block;
        const double *p, *q;
        double mean, digits;
    } cases[] = {{2, 2, 0, toy_p, toy_q, 10. / 9, 1e-12},
                 {2, 2, 1, toy_p, toy_q, 11. / 9, 1e-12},
                 {3, 4, 0, textbook_p, textbook_q, .6 + .36 + .216 + .1296, 1e-12},
                 {3, 4, 1, textbook_p, textbook_q, 1.503, 2e-3}}; /* a mean of samples */
    for (int i = 0; i < T_COUNT(cases); ++i) {
        static tally sum;
        const int64_t num_texts = t.quick ? 1 << 12 : 1 << 17;
        rules r = {cases[i].block, 0, SOUND};
        chain c;
        double exact, sigma, mean;
        t_case("published mean: case %d, %s", i, r.block ? "block" : "token");
        fixed_model(&m, cases[i].vocab, SPECV_PROBS_F32, cases[i].p, cases[i].q);
        CHECK(law_error(&m, &r, cases[i].n, &exact) < 1e-12);
        CHECK(fabs(exact - cases[i].mean) < cases[i].digits);
        memset(&c, 0, sizeof c);
        c.m = &m, c.rule = r.block ? SPECV_RULE_BLOCK : SPECV_RULE_TOKEN;
        c.max_draft = cases[i].n, c.steps = c.length = 1;
        run_chain(&c, num_texts, 1024, 0, &sum);
        mean = sum.tau / sum.steps_counted;
        /* the variance of tau, drafts included, is at most that of two points */
        sigma = c.max_draft / 2. / sqrt(sum.steps_counted);
        CHECK(fabs(mean - exact) < 5 * sigma);
        CHECK(fabs(z_of_tau(&sum)) < 5);
        CHECK(fits(chi2_of_texts(&c, &sum)));
        printf("%s: E[tau] %.6f exactly, %.6f over %.0f steps, z given drafts %.2f\n", t.what,
               exact, mean, sum.steps_counted, z_of_tau(&sum));
    }
}

/* ------------------------------------------------------------------------------------- coupled */

/* Plain decoding: one token at a time, each from the target alone. */
static void plain_texts(kit *k, const model *m, uint64_t first_seed, int length, int as_steps,
                        texts *x) {
    for (int b = 0; b < k->rows; ++b) {
        words(&k->seed)[b] = first_seed + (uint64_t)b;
        x->node[b] = 0;
    }
    for (int i = 0; i < length; ++i) {
        for (int b = 0; b < k->rows; ++b) {
            put_scores(&k->scores, b, m, TARGET, x->node[b]);
            ints(&k->position)[b] = first_position + (as_steps ? i : 0);
        }
        run_sample(k, SPECV_SAMPLE_GUMBEL, as_steps ? 0 : i, SPECV_STREAM_TARGET, 0);
        for (int b = 0; b < k->rows; ++b) {
            x->token[b * TEXT + i] = ints(&k->token)[b];
            x->node[b] = child(m, x->node[b], ints(&k->token)[b]);
        }
    }
}

/* Whoever drafts, and however much, the text is the one that plain decoding writes. */
static void check_same_text(const model *m, int n, drafter drafts, int rows, int device) {
    static tally sum;
    const uint64_t first_seed = 1000;
    chain c;
    memset(&c, 0, sizeof c);
    c.m = m, c.rule = SPECV_RULE_COUPLED, c.drafts = drafts, c.max_draft = n, c.steps = 4;
    c.length = 3, c.ragged = n > 2;
    note_chain(&c);
    memset(&sum, 0, sizeof sum);
    kit k = open_kit(rows, m->vocab, n, m->dtype, device);
    texts x = run_texts(&c, &k, first_seed, &sum), plain = open_texts(rows),
          rowed = open_texts(rows);
    k.device = 0;
    plain_texts(&k, m, first_seed, TEXT, 1, &plain);
    plain_texts(&k, m, first_seed, TEXT, 0, &rowed);
    for (int b = 0; b < rows; ++b)
        for (int i = 0; i < TEXT; ++i) {
            if (i < x.len[b]) CHECK_EQ(x.token[b * TEXT + i], plain.token[b * TEXT + i], b);
            CHECK_EQ(rowed.token[b * TEXT + i], plain.token[b * TEXT + i], b);
        }
    close_texts(&x), close_texts(&plain), close_texts(&rowed);
}

static void test_coupled(void) {
    static model m;
    for (int n = 0; n <= MAX_N; ++n)
        for (int who = HIDDEN_Q; who < NUM_DRAFTERS; ++who) {
            const int vocab = 3 + (n + who) % 3, dtype = (n + who) % 4;
            t_case("coupled text:");
            t.random = 99; /* the same models for every drafter */
            draw_model(&m, vocab, dtype, n % 2, .6);
            const int device = T_DEVICE && (!t.quick || (n == 3 && who == COUPLED_Q));
            check_same_text(&m, n, (drafter)who, device ? 8 : 64, device);
        }
    for (int i = 0; i < 4; ++i) {
        chain c;
        memset(&c, 0, sizeof c);
        t_case("coupled law:");
        draw_model(&m, 3 + i % 3, i, i >= 2, i % 2 ? .6 : 0);
        c.m = &m, c.rule = SPECV_RULE_COUPLED, c.drafts = COUPLED_Q;
        c.max_draft = 1 + i, c.steps = 4, c.length = m.vocab == 5 ? 3 : 4;
        note_chain(&c);
        check_chain(&c, t.quick ? 1 << 11 : 1 << 16, 1024, 0);
    }
#if T_DEVICE
    for (int i = 0; i < 2; ++i) {
        chain c;
        memset(&c, 0, sizeof c);
        t_case("coupled law on the device:");
        draw_model(&m, 3 + i, i, i, .6);
        c.m = &m, c.rule = SPECV_RULE_COUPLED, c.drafts = COUPLED_Q;
        c.max_draft = 2 + i, c.steps = 3, c.length = 3;
        check_device_chain(&c);
    }
#endif
}

/* ------------------------------------------------------------------------------------ samplers */

/* A8 alone: one distribution, many seeds. Large vocabularies, so that the way from tile to tile
   is counted, too. */
static void check_sampler(int vocab, int dtype, int method, int stream, int64_t draws, int rows,
                          int device) {
    enum { BINS = 64 };
    double law[BINS] = {0}, observed[BINS] = {0}, sum = 0;
    char *possible = (char *)more((size_t)vocab);
    const float temperature = dtype == SPECV_PROBS_F32 ? 1.f : .8f;
    const int bins = vocab < BINS ? vocab : BINS;
    chi2 c = {0, 0};
    kit k = open_kit(rows, vocab, 0, dtype, device);
    for (int x = 0; x < vocab; ++x) {
        float score = fit(dtype, 3 * (t_uniform() + t_uniform() - 1));
        double p;
        if (t_chance(10) && x > 0) score = -INFINITY;
        if (dtype == SPECV_PROBS_F32) score = (float)(exp((double)score) / vocab / 2);
        p = dtype == SPECV_PROBS_F32 ? (double)score : exp((double)score / (double)temperature);
        possible[x] = p > 0;
        law[x * (int64_t)bins / vocab] += p, sum += p;
        for (int b = 0; b < rows; ++b) put_score(&k.scores, dtype, (int64_t)b * vocab + x, score);
    }
    for (int64_t done = 0; done < draws; done += rows) {
        for (int b = 0; b < rows; ++b) {
            words(&k.seed)[b] = 5 + (uint64_t)b; /* the same requests, further on */
            ints(&k.position)[b] = (int32_t)(done / rows);
            floats(&k.temperature)[b] = temperature;
        }
        run_sample(&k, method, 0, stream, 0);
        for (int b = 0; b < rows; ++b) {
            const int x = ints(&k.token)[b];
            if (CHECK(x >= 0 && x < vocab && possible[x])) observed[x * (int64_t)bins / vocab] += 1;
        }
    }
    for (int i = 0; i < bins; ++i) law[i] *= (double)((draws + rows - 1) / rows * rows) / sum;
    add_cells(&c, observed, law, bins);
    CHECK(fits(c));
    printf("%s: chi2 %.1f of %.0f\n", t.what, c.statistic, c.df);
    free(possible);
}

static void test_samplers(void) {
    static const int vocabs[] = {4, 33, 1500};
    for (int i = 0; i < T_COUNT(vocabs) * 4; ++i) {
        const int vocab = vocabs[i / 4], dtype = i % 4, rows = vocab > 1000 ? 64 : 512;
        const int64_t draws = vocab > 1000 ? (t.quick ? 512 : 4096) : (t.quick ? 4096 : 1 << 16);
        for (int method = 0; method < 2; ++method) {
            const int stream = (i + method) % 2;
            t_case("sampler: V %d, dtype %d, %s, stream %d", vocab, dtype,
                   method == SPECV_SAMPLE_GUMBEL ? "Gumbel" : "CDF", stream);
            check_sampler(vocab, dtype, method, stream, draws, rows, 0);
#if T_DEVICE
            if (t.quick && (i + method) % 4) continue;
            t_case("sampler on the device: V %d, dtype %d, %s, stream %d", vocab, dtype,
                   method == SPECV_SAMPLE_GUMBEL ? "Gumbel" : "CDF", stream);
            check_sampler(vocab, dtype, method, stream, t.quick ? 16 : 64, t.quick ? 16 : 64, 1);
#endif
        }
    }
}

/* ------------------------------------------------------------------------- always and never */

/* p = q: every draft is accepted. No token in common: none is. Both hold for every number that a
   generator can give, so there is no statistic in it. */
static void test_always_never(void) {
    static model m;
    static tally sum;
    double tests = 0;
    for (int kind = 0; kind < 32; ++kind) {
        const int block = kind & 1, never = kind >> 1 & 1, dtype = kind / 4 % 4, hidden = kind / 16;
        const int vocab = 2 + kind % 4;
        chain c;
        if (hidden && !never) continue;
        memset(&c, 0, sizeof c);
        t_case("%s:", never ? "never" : "always");
        draw_model(&m, vocab, dtype, 0, never ? 0 : 1);
        for (int i = 0; i < CONTEXTS && never; ++i) /* one has the even tokens, the other the odd */
            for (int x = 0; x < vocab; ++x)
                m.score[x % 2][i][x] = dtype == SPECV_PROBS_F32 ? 0 : -INFINITY;
        for (int i = 0; i < CONTEXTS && never; ++i)
            for (int side = TARGET; side <= DRAFT; ++side) set_probs(&m, side, i);
        c.m = &m, c.rule = block ? SPECV_RULE_BLOCK : SPECV_RULE_TOKEN;
        c.drafts = hidden ? HIDDEN_Q : FROM_Q;
        c.max_draft = 1 + kind % MAX_N, c.steps = 4, c.length = 1;
        note_chain(&c);
        for (int device = 0; device <= (T_DEVICE && (!t.quick || kind % 8 == 1)); ++device) {
            run_chain(&c, device ? 8 : t.quick ? 512 : 1 << 13, device ? 8 : 512, device, &sum);
            CHECK_EQ(sum.tau, never ? 0 : sum.steps_counted * c.max_draft, -1);
            tests += sum.steps_counted * (block || !never ? c.max_draft : 1);
        }
    }
    t_close_case();
    printf("always, never: %.0f tests\n", tests);
}

/* Only one token is possible after each text, and both models know it: p = q = 1, whatever the
   logits are, so the largest and the smallest uniform accept it. In odd rows the last draft is
   another token, of which the draft model is as sure: p = 0, so none accepts that. */
static void test_certain(void) {
    static model m;
    const int vocab = 3, n = 3, rows = 16;
    for (int kind = 0; kind < 16; ++kind) {
        rules r = {kind & 1, kind >> 1 & 1, SOUND};
        const int dtype = kind / 4;
        t_case("certain: %s, %s, dtype %d", r.block ? "block" : "token",
               r.one_hot ? "one-hot" : "with q", dtype);
        kit k = open_kit(rows, vocab, n, dtype, 1);
        k.with_accept = k.with_sample = 1, k.with_q = !r.one_hot;
        draw_model(&m, vocab, dtype, 0, 0);
        for (int c = 0; c < CONTEXTS; ++c)
            for (int side = TARGET; side <= DRAFT; ++side)
                for (int x = 0; x < vocab; ++x) {
                    float *score = &m.score[side][c][x];
                    if (dtype == SPECV_PROBS_F32)
                        *score = x == c % vocab;
                    else if (x != c % vocab)
                        *score = -INFINITY;
                }
        for (int b = 0; b < rows; ++b) {
            uint64_t node = (uint64_t)t_below(CONTEXTS), at = node;
            for (int j = 0; j < n; ++j) {
                int d = context(at) % vocab;
                if (b % 2 && j == n - 1) d = (d + 1) % vocab;
                ints(&k.draft_tokens)[b * n + j] = d;
                floats(&k.accept_uniform)[b * n + j] = b & 2 ? 0 : 1 - 5.9604644775390625e-8f;
                at = child(&m, at, d);
            }
            floats(&k.sample_uniform)[b] = pick_uniform();
            floats(&k.temperature)[b] = m.temperature[TARGET];
            floats(&k.draft_temperature)[b] = m.temperature[DRAFT];
            put_row(&k, b, &m, node);
            for (int x = 0; x < vocab && b % 2; ++x)
                put_score(&k.draft, dtype, (int64_t)(b * n + n - 1) * vocab + x,
                          dtype == SPECV_PROBS_F32
                              ? (float)(x == ints(&k.draft_tokens)[b * n + n - 1])
                              : (x == ints(&k.draft_tokens)[b * n + n - 1] ? 1.5f : -INFINITY));
        }
        run_verify(&k, r.block ? SPECV_RULE_BLOCK : SPECV_RULE_TOKEN);
        for (int b = 0; b < rows; ++b) {
            CHECK_EQ(ints(&k.accepted)[b], n - b % 2, b);
            CHECK_EQ(ints(&k.status)[b], 0, b);
        }
    }
}

/* ------------------------------------------------------------------------------------- mutants */

/* The sums of test_enumeration have to see each broken rule. */
static void test_broken_rules(void) {
    static model m;
    for (int broken = SWAPPED; broken < LESS_OR_EQUAL; ++broken)
        for (int block = 0; block < 2; ++block) {
            rules r = {block, 0, SOUND}, sound = {block, 0, SOUND};
            double worst = 0, control = 0, mean;
            if (block ? broken == SWAPPED || broken == REUSED_UNIFORM : broken >= FIRST_REJECT)
                continue; /* not a fault of this rule */
            r.broken = (fault)broken;
            t_case("broken rule: %s, %s", block ? "block" : "token", fault_names[broken]);
            for (int turn = 0; turn < 10; ++turn) {
                double error;
                draw_model(&m, 3, SPECV_LOGITS_F32, turn % 2, turn < 5 ? .6 : 0);
                error = law_error(&m, &r, 3, &mean);
                worst = error > worst ? error : worst;
                error = law_error(&m, &sound, 3, &mean);
                control = error > control ? error : control;
            }
            CHECK(worst > 1e-3);
            CHECK(control < 1e-12);
            printf("%s: error %.1e\n", t.what, worst);
        }
}

/* The comparison of decisions has to see each of them, too: then the kit is none of them. */
static void test_broken_decisions(void) {
    static model m;
    for (int broken = SWAPPED; broken < NUM_FAULTS; ++broken)
        for (int block = 0; block < 2; ++block) {
            rules r = {block, 0, SOUND};
            long wrong = 0;
            if (broken == REUSED_UNIFORM ||
                (!block && broken >= FIRST_REJECT && broken < LESS_OR_EQUAL))
                continue;
            if (block && (broken == SWAPPED || broken == FIRST_REJECT)) continue;
            r.broken = (fault)broken;
            t_case("broken decision: %s, %s", block ? "block" : "token", fault_names[broken]);
            kit k = decision_kit(64, 3, 3, SPECV_LOGITS_F32);
            for (int turn = 0; turn < 20; ++turn) {
                draw_model(&m, 3, SPECV_LOGITS_F32, 1, turn < 10 ? .6 : 0);
                wrong += compare_decisions(&k, &m, &r);
            }
            CHECK(wrong > 0);
        }
}

/* Random numbers used twice, through the public functions: the counts have to see it, and have to
   be quiet about the same chain with proper keys. */
static void test_misused_keys(void) {
    static model m;
    static const struct {
        misuse keys;
        int rule;
        int log2_texts, log2_quick;
    } cases[] = {
        {SAME_STREAM, SPECV_RULE_TOKEN, 14, 12},   {SAME_STREAM, SPECV_RULE_BLOCK, 14, 12},
        {SHARED_ACCEPT, SPECV_RULE_TOKEN, 14, 12}, {ABSOLUTE, SPECV_RULE_BLOCK, 17, 0},
        {SAME_POSITION, SPECV_RULE_TOKEN, 14, 12}, {SAME_POSITION, SPECV_RULE_BLOCK, 14, 12},
        {WRONG_Q, SPECV_RULE_TOKEN, 14, 13},       {WRONG_Q, SPECV_RULE_BLOCK, 14, 13}};
    for (int i = 0; i < T_COUNT(cases); ++i)
        for (int proper = 0; proper < 2; ++proper) {
            static tally sum;
            chi2 whole, steps;
            chain c;
            const int log2_texts = t.quick ? cases[i].log2_quick : cases[i].log2_texts;
            if (log2_texts == 0) continue;
            memset(&c, 0, sizeof c);
            t_case("%s: %s", proper ? "control" : "misuse", misuse_names[cases[i].keys]);
            fixed_model(&m, 3, SPECV_LOGITS_F32, textbook_p, textbook_q);
            c.m = &m, c.rule = cases[i].rule, c.drafts = FROM_Q;
            c.keys = proper ? PROPER : cases[i].keys;
            c.max_draft = 4, c.steps = 4, c.length = 4;
            note_chain(&c);
            run_chain(&c, (int64_t)1 << log2_texts, 1024, 0, &sum);
            whole = chi2_of_texts(&c, &sum), steps = chi2_of_steps(&c, &sum);
            CHECK((fits(whole) && fits(steps)) == proper);
            printf("%s: %.0f texts, chi2 %.1f of %.0f, steps %.1f of %.0f\n", t.what, sum.texts,
                   whole.statistic, whole.df, steps.statistic, steps.df);
        }
}

int main(int argc, char **argv) {
    static const t_group groups[] = {
        {"enumeration", test_enumeration},
        {"decisions", test_decisions},
        {"chains", test_chains},
        {"device-chains", test_device_chains},
        {"mixed", test_mixed},
        {"published", test_published},
        {"coupled", test_coupled},
        {"samplers", test_samplers},
        {"always-never", test_always_never},
        {"certain", test_certain},
        {"broken-rules", test_broken_rules},
        {"broken-decisions", test_broken_decisions},
        {"misused-keys", test_misused_keys},
    };
    return t_main(argc, argv, groups, T_COUNT(groups));
}
