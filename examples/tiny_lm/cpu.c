/* SPDX-License-Identifier: MIT-0
 *
 * cpu.c - the C backend of tiny_lm. Every loop over outputs is innermost, so that vectors do not
 * touch the order of a sum. The forward pass is compiled for several widths of them (cpu_pass.h),
 * and the widest that the machine has is chosen at run time. Two threads share matrices
 * (cpu_team.h).
 */
#define _POSIX_C_SOURCE 200809L
#include "lm.h"
#include "lm_cache.h"
#include "lm_emitted.h"
#include "lm_filters.h"
#include "lm_math.h"
#include "lm_particles.h"
#include "lm_trees.h"
#define SPECVERIFY_REF_IMPLEMENTATION
#include "specverify_ref.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cpu_team.h"

typedef struct cpu_model {
    lm_dims dims;
    const float *weights; /* as in lm_view and lm_layer, but matrices are as width.store has them */
    lm_kv kv;
    float *kept;  /* [batch * columns of a step][vocab] logits that verification asks for */
    float *spare; /* what a cache is copied to, if the layout says so; then the two change places */
} cpu_model;

enum { MAX_BLOCKS = 128 };

typedef struct cpu_state cpu_state;

/* The forward pass for one width of vectors. */
typedef struct cpu_width {
    /* All layers for all rows, from s->x; s->logits of all but the first num_silent. */
    void (*pass)(const cpu_state *s, const cpu_model *m, const lm_row *rows, int32_t num_rows,
                 int32_t num_silent);
    void (*store)(float *to, const float *from, int32_t size_in, int32_t size_out); /* a matrix */
    int (*fuses)(void);
} cpu_width;

struct cpu_state {
    cpu_width width;
    cpu_team *team;
    lm_limits limits;
    lm_sampling sampling;
    lm_cache cache;
    cpu_model models[LM_NUM_MODELS];
    lm_particles particles;
    lm_tree_arrays trees;

    /* activations, [max_rows][...] */
    float *x, *normed, *qkv, *attended, *hidden, *gated, *logits;
    float *scores;                  /* [ABREAST_ROWS][max_seq] */
    float *q_rows;                  /* [d_model][ABREAST_ROWS]: rows of a head's q */
    const float **seen_k, **seen_v; /* [max_seq] KV rows that a row sees, by position */

    /* sampling; one scratch memory, as the kit's launches come one after the other */
    float *temperature, *warm;   /* [batch]; warm: 1, see keep_confidence */
    uint64_t *seed;              /* [batch] */
    int32_t *position, *sampled; /* [batch] */
    lm_filter_arrays *filters;
    specv_emitted told; /* [batch][gamma + 1] */
    void *kit_scratch;
    int64_t kit_scratch_bytes;

    /* the target's KV rows of a pass that is to be judged: [plane][batch][1 + gamma][d_model] */
    float *scratch;
    void **scratch_planes;
    int64_t *histogram; /* [gamma + 1] */
    int64_t totals[SPECV_STAT_COUNT];

    void *blocks[MAX_BLOCKS]; /* all of the above, to free */
    int num_blocks, out_of_memory;
};

static size_t times(int32_t a, int32_t b) { return (size_t)a * (size_t)b; }

static int fail(lm_backend *backend, const char *message) {
    (void)snprintf(backend->message, sizeof backend->message, "%s", message);
    return -1;
}

/* What a function of the kit returned. */
static int check(lm_backend *backend, int status) {
    return status == SPECV_OK ? 0 : fail(backend, specv_status_string(status));
}

/* ---- forward pass --------------------------------------------------------------------------- */

/* Rows of a tile of outputs; columns of a row alone. Sizes of a model are multiples of ALONE, so
 * there is no remainder. */
enum { TILE_ROWS = 6, ALONE = 32 };

/* How many rows of a tile's weights are asked for before they are needed, floats of a cache line:
 * they come from far away, and the sums of several rows keep the machine too busy to look ahead. */
enum { AHEAD = 64, LINE = 16 };

/* Rows and positions that attention goes through side by side. */
enum { ABREAST = 8, ABREAST_ROWS = 8 };

static float halving_tree(float partial[LM_LANES]) {
    for (int half = LM_LANES / 2; half > 0; half /= 2)
        for (int lane = 0; lane < half; lane++)
            partial[lane] = lm_add(partial[lane], partial[lane + half]);
    return partial[0];
}

/* Where the KV row of a column is: in the cache, or in the verify scratch. */
static float *kv_row(const cpu_state *s, const cpu_model *m, int32_t plane, const lm_row *row,
                     int32_t column) {
    const int32_t positions = 1 + s->limits.gamma;
    size_t index;
    if (column < row->scratch_from) return lm_kv_row(s->cache, m->kv, plane, row->slot, column);
    index = times(plane, s->limits.batch) + (size_t)row->seq;
    index = index * (size_t)positions + (size_t)(column - row->scratch_from);
    return s->scratch + index * (size_t)m->dims.d_model;
}

static void rotate(float *head, const float *rope, int32_t head_dim) {
    for (int32_t i = 0; i < head_dim; i += 2) {
        float even = head[i], odd = head[i + 1];
        head[i] = lm_mac(lm_mul(even, rope[i]), -odd, rope[i + 1]);
        head[i + 1] = lm_mac(lm_mul(even, rope[i + 1]), odd, rope[i]);
    }
}

/* RoPE on q and k, by the position in the text; k and v to where kv_row says. */
static void rotate_and_store(const cpu_state *s, const cpu_model *m, int32_t layer,
                             const lm_row *row, float *qkv) {
    const int32_t d = m->dims.d_model, head_dim = d / m->dims.num_heads;
    const int32_t pos = lm_seen_position(s->cache, row, row->column);
    const float *rope = lm_view_of(&m->dims, m->weights).rope + times(pos, head_dim);
    for (int32_t i = 0; i < 2 * d; i += head_dim) rotate(qkv + i, rope, head_dim);
    memcpy(kv_row(s, m, 2 * layer, row, row->column), qkv + d, (size_t)d * sizeof(float));
    memcpy(kv_row(s, m, 2 * layer + 1, row, row->column), qkv + 2 * d, (size_t)d * sizeof(float));
}

/* The KV rows that a row may see, in the order of the text. Returns how many. Columns of a page are
 * one behind the other, and so are those of the scratch. */
static int32_t look_back(const cpu_state *s, const cpu_model *m, int32_t layer, const lm_row *row) {
    const int32_t size = s->cache.layout.page_size;
    const float *k = NULL, *v = NULL;
    int32_t num_pos = 0, behind = 0; /* columns that follow in the same page */
    for (int32_t column = 0; column <= row->column; column++) {
        const int32_t pos = lm_seen_position(s->cache, row, column);
        if (behind > 0 && column != row->scratch_from) {
            k += m->dims.d_model, v += m->dims.d_model, behind--;
        } else {
            k = kv_row(s, m, 2 * layer, row, column);
            v = kv_row(s, m, 2 * layer + 1, row, column);
            behind = (column < row->scratch_from ? size - column % size : INT32_MAX) - 1;
        }
        if (pos < 0) continue;
        s->seen_k[pos] = k;
        s->seen_v[pos] = v;
        num_pos = pos + 1;
    }
    return num_pos;
}

/* How many of these rows, up to ABREAST_ROWS, see the KV rows of one sequence, each all of those
 * that the one before it sees. */
static int32_t rows_of_one(const lm_row *rows, int32_t num_rows) {
    int32_t num = 1;
    if (rows[0].node >= 0) return 1;
    while (num < num_rows && num < ABREAST_ROWS && rows[num].slot == rows[0].slot &&
           rows[num].node < 0 && rows[num].seq == rows[0].seq &&
           rows[num].scratch_from == rows[0].scratch_from &&
           rows[num].column > rows[num - 1].column)
        ++num;
    return num;
}

/* Outputs y[num_rows][size_out], shared by halves of their columns. */
typedef struct matmul_job {
    float *y;
    const float *residual, *x, *w;
    int32_t num_rows, size_in, size_out;
} matmul_job;

/* Vectors as gcc and clang know them; TINY_LM_PLAIN: without, as for any other compiler. */
#if defined(__GNUC__) && !defined(TINY_LM_PLAIN)
#define HAS_VECTORS 1
#define INLINED     static inline __attribute__((always_inline))
#else
#define INLINED static inline
#endif

#define NAME(function) function##_4
#define LANES          4
#define TARGET
#include "cpu_pass.h"

#if defined(HAS_VECTORS) && (defined(__x86_64__) || defined(__i386__))
#define NAME(function) function##_8
#define LANES          8
#define TARGET         __attribute__((target("avx2")))
#include "cpu_pass.h"

#define NAME(function) function##_16
#define LANES          16
#define TARGET         __attribute__((target("avx512f")))
#include "cpu_pass.h"
#define HAS_WIDTH(lanes)                                                                           \
    ((lanes) == 16 ? __builtin_cpu_supports("avx512f") : __builtin_cpu_supports("avx2"))
#endif

/* The widest vectors of this machine; TINY_LM_LANES in the environment: not wider than that. */
static cpu_width widest(void) {
    const cpu_width narrow = {pass_4, store_4, fuses_4};
#if defined(HAS_WIDTH)
    const cpu_width avx2 = {pass_8, store_8, fuses_8}, avx512 = {pass_16, store_16, fuses_16};
    const char *wanted = getenv("TINY_LM_LANES");
    const long most = wanted ? strtol(wanted, NULL, 10) : 16;
    if (most >= 16 && HAS_WIDTH(16)) return avx512;
    if (most >= 8 && HAS_WIDTH(8)) return avx2;
#endif
    return narrow;
}

/* The lowest id among the largest logits; NaN is never larger. All NaN: -1, no token. */
static int32_t argmax(const float *logits, int32_t vocab) {
    float top = -INFINITY;
    int32_t best = -1;
    for (int32_t i = 0; i < vocab; i++)
        if (logits[i] > top) top = logits[i], best = i;
    return best;
}

/* What was started, for those who ask. */
static void note(const lm_backend *backend, const char *what, int32_t rows, int32_t silent) {
    if (!backend->log) return;
    fprintf(backend->log, "launch %s %d", what, (int)rows);
    if (silent) fprintf(backend->log, " and %d", (int)silent);
    fprintf(backend->log, "\n");
}

/* ---- from logits to tokens ------------------------------------------------------------------ */

/* Of one pass of a model: a token for each of up to `batch` rows. */
static specv_sample_desc sample_desc(const cpu_state *s, int which) {
    specv_sample_desc d = SPECV_ZERO;
    d.num_active = s->cache.num_active;
    d.batch = s->limits.batch;
    d.vocab = s->models[LM_TARGET].dims.vocab;
    d.scores.data = s->logits;
    d.temperature = s->temperature;
    d.seed = s->seed;
    d.position = s->position;
    d.filters = lm_filters_of(s->filters, &s->sampling, which);
    if (which == LM_TARGET) d.emitted = s->told;
    d.token = s->sampled;
    d.max_prob = s->cache.max_prob;
    d.scratch = s->kit_scratch;
    d.scratch_bytes = s->kit_scratch_bytes;
    return d;
}

static int sample(lm_backend *backend, int which, const lm_row *rows, int32_t num_rows,
                  lm_pick pick) {
    const cpu_state *s = (const cpu_state *)backend->state;
    specv_sample_desc d = sample_desc(s, which);
    if (s->limits.particles && pick.stream == SPECV_STREAM_DRAFT)
        d.logprob = s->particles.draft_logprob + times(pick.step_row, s->limits.batch);
    note(backend, "sample", num_rows, 0);
    *s->cache.num_active = num_rows;
    for (int32_t r = 0; r < num_rows; r++) {
        s->seed[r] = rows[r].seed;
        s->position[r] = rows[r].pos + 1 - pick.step_row; /* of the first token of the step */
    }
    d.method = pick.method == LM_PICK_GUMBEL ? SPECV_SAMPLE_GUMBEL : SPECV_SAMPLE_CDF;
    d.stream = pick.stream;
    d.step_row = pick.step_row;
    if (check(backend, specv_ref_sample(&d)) != 0) return -1;
    for (int32_t r = 0; r < num_rows; r++) s->cache.board[rows[r].pick_at] = s->sampled[r];
    return 0;
}

/* How sure the draft model is of each draft of a pass: the largest probability of the law that it
 * was drawn from. Not the draft's own: whether a draft is verified must be settled before it is
 * drawn, or the rules token and block write text of another law. At temperature 0 the law is sure
 * of everything; but there a draft is a function of the text, so any number will do that comes from
 * the text: the largest probability at temperature 1, by a call whose tokens go nowhere. */
static int keep_confidence(lm_backend *backend, const lm_row *rows, int32_t num_rows) {
    const cpu_state *s = (const cpu_state *)backend->state;
    specv_sample_desc d = sample_desc(s, LM_DRAFT);
    d.temperature = s->warm;
    *s->cache.num_active = num_rows;
    if (specv_temperature_is_0(s->sampling.temperature) &&
        check(backend, specv_ref_sample(&d)) != 0)
        return -1;
    for (int32_t r = 0; r < num_rows; r++)
        s->cache.confidence[rows[r].pick_at - s->limits.draft_at] = s->cache.max_prob[r];
    return 0;
}

static int cpu_forward(lm_backend *backend, int which, const lm_row *rows, int32_t num_rows,
                       int32_t num_silent, lm_pick pick) {
    const cpu_state *s = (const cpu_state *)backend->state;
    const cpu_model *m = &s->models[which];
    const lm_view view = lm_view_of(&m->dims, m->weights);
    const int32_t d = m->dims.d_model, vocab = m->dims.vocab;
    note(backend, which == LM_TARGET ? "target" : "draft", num_rows - num_silent, num_silent);
    for (int32_t r = 0; r < num_rows; r++) {
        int32_t token = s->cache.board[rows[r].token_at];
        if (token < 0 || token >= vocab) token = 0; /* an argmax over NaN: the draft is rejected */
        memcpy(s->x + times(r, d), view.tok_emb + times(token, d), (size_t)d * sizeof(float));
    }
    s->width.pass(s, m, rows, num_rows, num_silent);
    rows += num_silent, num_rows -= num_silent;
    for (int32_t r = 0; r < num_rows; r++) {
        const float *logits = s->logits + times(r, vocab);
        if (pick.method == LM_PICK_LARGEST) s->cache.board[rows[r].pick_at] = argmax(logits, vocab);
        if (rows[r].keep_at >= 0)
            memcpy(m->kept + times(rows[r].keep_at, vocab), logits, (size_t)vocab * sizeof(float));
    }
    if ((pick.method == LM_PICK_CDF || pick.method == LM_PICK_GUMBEL) &&
        sample(backend, which, rows, num_rows, pick) != 0)
        return -1;
    if (which == LM_DRAFT && s->limits.budget && num_rows > 0)
        return keep_confidence(backend, rows, num_rows);
    return 0;
}

/* ---- verification: the kit's work ------------------------------------------------------------ */

static specv_verify_greedy_desc verify_desc(const cpu_state *s) {
    specv_verify_greedy_desc d = lm_verify(&s->cache);
    d.target_tokens = s->cache.board + s->limits.target_at;
    d.vocab = s->models[LM_TARGET].dims.vocab;
    return d;
}

static specv_verify_sample_desc verify_sample_desc(const cpu_state *s) {
    specv_verify_sample_desc d = SPECV_ZERO;
    d.verify = verify_desc(s);
    d.verify.target_tokens = NULL;
    d.rule = s->sampling.rule;
    d.target.data = s->models[LM_TARGET].kept;
    d.filters = lm_filters_of(s->filters, &s->sampling, LM_TARGET);
    if (s->sampling.use_draft_logits) {
        d.draft.data = s->models[LM_DRAFT].kept;
        d.draft_filters = lm_filters_of(s->filters, &s->sampling, LM_DRAFT);
    }
    d.lossy = lm_lossy_of(s->filters, &s->sampling);
    d.temperature = s->temperature;
    d.seed = s->seed;
    d.position = s->position;
    d.emitted = s->told;
    d.lse = s->particles.lse;
    d.target_logprob = s->particles.target_logprob; /* null but for rule smc */
    d.scratch = s->kit_scratch;
    d.scratch_bytes = s->kit_scratch_bytes;
    return d;
}

static int judge_trees(const cpu_state *s) {
    specv_verify_tree_desc d = lm_verify_tree(&s->cache, &s->trees, &s->sampling);
    if (!s->sampling.by_choice) {
        d.target.data = s->models[LM_TARGET].kept;
        d.filters = lm_filters_of(s->filters, &s->sampling, LM_TARGET);
    }
    if (s->sampling.use_draft_logits) d.draft.data = s->models[LM_DRAFT].kept; /* drawn without */
    d.temperature = s->temperature;
    d.seed = s->seed;
    d.position = s->position;
    d.scratch = s->kit_scratch;
    d.scratch_bytes = s->kit_scratch_bytes;
    return specv_ref_verify_tree(&d);
}

static int judge(const cpu_state *s) {
    const specv_verify_greedy_desc greedy = verify_desc(s);
    const specv_verify_sample_desc sampled = verify_sample_desc(s);
    if (s->limits.nodes) return judge_trees(s);
    if (s->sampling.by_choice) return specv_ref_verify_greedy(&greedy);
    return specv_ref_verify_sample(&sampled);
}

static int cpu_read_told(lm_backend *backend, void *told) {
    const cpu_state *s = (const cpu_state *)backend->state;
    const size_t bytes = lm_told_bytes(&s->sampling, &s->limits);
    memcpy(told, s->told.logprob, bytes);
    return 0;
}

static int cpu_spend(lm_backend *backend, int32_t num_seqs, int32_t *draft_len) {
    const cpu_state *s = (const cpu_state *)backend->state;
    const specv_draft_budget_desc d = lm_spend(&s->cache);
    const size_t bytes = (size_t)num_seqs * sizeof *draft_len;
    *s->cache.num_active = num_seqs;
    memcpy(s->cache.draft_len, draft_len, bytes);
    if (check(backend, specv_ref_draft_budget(&d)) != 0) return -1;
    memcpy(draft_len, s->cache.draft_len, bytes);
    return 0;
}

static int cpu_verify(lm_backend *backend, const lm_step *step) {
    cpu_state *s = (cpu_state *)backend->state;
    const size_t num_seqs = (size_t)step->num_seqs;
    specv_accept_stats_desc stats = SPECV_ZERO;
    *s->cache.num_active = step->num_seqs;
    memcpy(s->cache.draft_len, step->draft_len, num_seqs * sizeof *s->cache.draft_len);
    memcpy(s->position, step->position, num_seqs * sizeof *s->position);
    memcpy(s->seed, step->seed, num_seqs * sizeof *s->seed);
    note(backend, "verify", step->num_seqs, 0);
    if (check(backend, judge(s)) != 0) return -1;

    stats.accumulate = 1;
    stats.rows = verify_desc(s).rows;
    stats.accepted_len = s->cache.accepted_len;
    stats.num_emitted = s->cache.num_emitted;
    stats.histogram = s->histogram;
    stats.totals = s->totals;
    note(backend, "accept_stats", step->num_seqs, 0);
    return check(backend, specv_ref_accept_stats(&stats));
}

/* ---- caches: the kit's work, but for the texts of FIXED, RAGGED, PAGED ----------------------- */

static int check_rows(lm_backend *backend, int32_t num_seqs) {
    const cpu_state *s = (const cpu_state *)backend->state;
    for (int32_t i = 0; i < num_seqs; i++)
        if (s->cache.row_status[i]) {
            (void)snprintf(backend->message, sizeof backend->message,
                           "row_status of sequence %d is 0x%x", (int)i,
                           (unsigned)s->cache.row_status[i]);
            return -1;
        }
    return 0;
}

/* As EQSPEC was published: all columns of all sequences go to a cache of zeros. */
static void copy_cache(const cpu_state *s, cpu_model *m, int32_t num_seqs, const int32_t *end) {
    const size_t d = (size_t)m->dims.d_model;
    float *const from = m->kv.data, *const to = m->spare;
    for (int32_t slot = 0; slot < num_seqs; slot++) {
        const specv_shift shift = s->cache.shifts[slot];
        int32_t count = shift.count;
        if (end && end[slot] < shift.first + count) count = end[slot] - shift.first;
        for (int32_t plane = 0; plane < m->kv.num_planes; plane++) {
            const size_t first = (size_t)(lm_kv_row(s->cache, m->kv, plane, slot, 0) - from);
            memset(to + first, 0, (size_t)*s->cache.width * d * sizeof(float));
            memcpy(to + first + (size_t)(shift.first + shift.by) * d,
                   from + first + (size_t)shift.first * d, (size_t)count * d * sizeof(float));
        }
    }
    m->kv.data = to, m->spare = from;
    for (int32_t plane = 0; plane < m->kv.num_planes; plane++)
        m->kv.planes[plane] = to + times(plane, s->cache.layout.page_size) * d;
}

static int shift_cache(const cpu_state *s, int which, const int32_t *end) {
    const specv_shift_kv_desc d = lm_shift(&s->cache, &s->models[which].kv, end);
    return specv_ref_shift_kv(&d);
}

static int commit_padded(cpu_state *s, const lm_step *step) {
    const int copies = s->cache.layout.copies;
    const specv_realign_desc d = lm_realign(&s->cache, copies ? NULL : &s->models[LM_TARGET].kv);
    int status;
    memcpy(s->cache.shift_end, step->draft_end, (size_t)step->num_seqs * sizeof(int32_t));
    status = specv_ref_realign(&d);
    if (status == SPECV_OK && !copies) return shift_cache(s, LM_DRAFT, s->cache.shift_end);
    if (status == SPECV_OK) {
        copy_cache(s, &s->models[LM_TARGET], step->num_seqs, NULL);
        copy_cache(s, &s->models[LM_DRAFT], step->num_seqs, s->cache.shift_end);
    }
    return status;
}

/* The rows of a path, to where the drafts of a chain would be. */
static int commit_paths(const cpu_state *s) {
    int status = SPECV_OK;
    for (int i = 0; i < LM_NUM_MODELS && status == SPECV_OK; i++) {
        const int which = i == 0 ? LM_DRAFT : LM_TARGET;
        const specv_commit_path_desc d =
            lm_commit_path(&s->cache, &s->trees, &s->models[which].kv, which);
        status = specv_ref_commit_path(&d);
    }
    return status;
}

static int cpu_commit(lm_backend *backend, const lm_step *step) {
    cpu_state *s = (cpu_state *)backend->state;
    const lm_cache *c = &s->cache;
    const size_t bytes = (size_t)step->num_seqs * sizeof(int32_t);
    int status = SPECV_OK;
    if (s->limits.nodes) status = commit_paths(s);
    if (lm_is_paged(c) && !s->limits.nodes) {
        const specv_append_kv_desc d = lm_append(c, &s->models[LM_TARGET].kv, s->scratch_planes);
        status = specv_ref_append_kv(&d);
    } else if (c->layout.kind == LM_PADDED && status == SPECV_OK) {
        status = commit_padded(s, step);
    } else if (c->layout.kind == LM_GAP) {
        const specv_gap_commit_desc d = lm_gap_commit(c);
        status = specv_ref_gap_commit(&d);
    }
    if (check(backend, status) != 0 || check_rows(backend, step->num_seqs) != 0) return -1;
    for (int32_t seq = 0; seq < step->num_seqs && !lm_is_aligned(c); seq++)
        memcpy(c->board + step->text_at[seq], c->out_tokens + times(seq, s->limits.gamma + 1),
               (size_t)c->num_emitted[seq] * sizeof(int32_t));
    memcpy(step->accepted_len, c->accepted_len, bytes);
    memcpy(step->num_emitted, c->num_emitted, bytes);
    *step->width = *c->width;
    return 0;
}

static int join_pages(const cpu_state *s, int32_t num_old, int32_t num_seqs, const int32_t *len) {
    const lm_cache *c = &s->cache;
    const specv_page_resize_desc d = lm_resize(c, NULL, c->row_reserve, 0);
    int status;
    if (num_old == 0) { /* nobody is here: all pages are free, the first one is on top */
        *c->num_free = c->layout.num_pages;
        for (int32_t i = 0; i < c->layout.num_pages; i++)
            c->page_refs[i] = 0, c->free_pages[i] = c->layout.num_pages - 1 - i;
    }
    for (int32_t i = 0; i < num_seqs; i++) {
        c->row_reserve[i] = i < num_old ? 0 : len[i] - 1;
        if (i >= num_old) c->cache_len[i] = c->num_row_pages[i] = 0;
    }
    status = specv_ref_page_resize(&d);
    for (int32_t i = num_old; i < num_seqs; i++) c->cache_len[i] = len[i] - 1;
    return status;
}

/* Those who were here have KV rows up to their pending tokens, in the last column. */
static int join_aligned(const cpu_state *s, int32_t num_old, int32_t num_seqs, const int32_t *len) {
    const lm_cache *c = &s->cache;
    const specv_realign_desc d = lm_realign_prompts(c);
    int status;
    if (num_old == 0) *c->width = 0;
    for (int32_t i = 0; i < num_seqs; i++) {
        c->prompt_len[i] = i < num_old ? 0 : len[i];
        if (i >= num_old) c->pad_len[i] = *c->width, c->text_len[i] = len[i];
        c->shift_end[i] = i < num_old ? *c->width - 1 : 0;
    }
    status = specv_ref_realign(&d);
    if (status == SPECV_OK && num_old > 0) status = shift_cache(s, LM_TARGET, c->shift_end);
    if (status == SPECV_OK && num_old > 0) status = shift_cache(s, LM_DRAFT, c->shift_end);
    return status;
}

static int cpu_join(lm_backend *backend, int32_t num_old, int32_t num_seqs, const int32_t *len,
                    int32_t *width) {
    const cpu_state *s = (const cpu_state *)backend->state;
    int status = SPECV_OK;
    *s->cache.num_active = num_seqs;
    if (lm_is_paged(&s->cache)) status = join_pages(s, num_old, num_seqs, len);
    if (lm_is_aligned(&s->cache)) status = join_aligned(s, num_old, num_seqs, len);
    *width = *s->cache.width;
    return check(backend, status) != 0 ? -1 : check_rows(backend, num_seqs);
}

static int cpu_prepare(lm_backend *backend, int32_t num_seqs) {
    const cpu_state *s = (const cpu_state *)backend->state;
    const specv_page_resize_desc d = lm_resize(&s->cache, NULL, NULL, lm_step_columns(&s->limits));
    if (!lm_is_paged(&s->cache)) return 0;
    *s->cache.num_active = num_seqs;
    return check(backend, specv_ref_page_resize(&d));
}

static int cpu_leave(lm_backend *backend, int32_t num_seqs, const uint8_t *finished) {
    const cpu_state *s = (const cpu_state *)backend->state;
    const lm_cache *c = &s->cache;
    const specv_page_resize_desc give_back = lm_resize(c, c->finished, NULL, 0);
    const specv_compact_desc d = lm_compact(c, &s->models[LM_TARGET].kv, &s->models[LM_DRAFT].kv);
    int status = SPECV_OK;
    *c->num_active = num_seqs;
    memcpy(c->finished, finished, (size_t)num_seqs);
    if (lm_is_paged(c)) status = specv_ref_page_resize(&give_back);
    if (status == SPECV_OK) status = specv_ref_compact(&d);
    return check(backend, status);
}

static int cpu_move(lm_backend *backend, const int32_t *len, const int32_t *pad, int back) {
    const cpu_state *s = (const cpu_state *)backend->state;
    const lm_cache *c = &s->cache;
    int status;
    *c->num_active = s->limits.slots;
    for (int32_t i = 0; i < s->limits.slots; i++) {
        const specv_shift shift = {back ? pad[i] : 0, pad[i] ? len[i] : 0, back ? -pad[i] : pad[i],
                                   0};
        c->shifts[i] = shift;
        c->pad_len[i] = back ? 0 : pad[i];
        c->row_status[i] = 0;
    }
    status = shift_cache(s, LM_TARGET, NULL);
    if (status == SPECV_OK) status = shift_cache(s, LM_DRAFT, NULL);
    return check(backend, status) != 0 ? -1 : check_rows(backend, s->limits.slots);
}

static int cpu_group(lm_backend *backend, const int32_t *len, int32_t num_seqs, int32_t count,
                     int32_t *picked, int32_t *is_group) {
    const cpu_state *s = (const cpu_state *)backend->state;
    const lm_cache *c = &s->cache;
    const specv_group_desc d = lm_group(c, count);
    *c->num_active = num_seqs;
    memcpy(c->prompt_len, len, (size_t)num_seqs * sizeof *len);
    if (check(backend, specv_ref_group(&d)) != 0) return -1;
    memcpy(picked, c->active, (size_t)count * sizeof *picked);
    *is_group = *c->new_num_active;
    return 0;
}

/* ---- state ---------------------------------------------------------------------------------- */

static size_t cache_size(const cpu_state *s, const cpu_model *m) {
    return times(s->limits.cache_columns, m->dims.d_model) * (size_t)m->kv.num_planes;
}

static size_t scratch_size(const cpu_state *s) {
    const lm_dims *dims = &s->models[LM_TARGET].dims;
    return 2 * times(dims->num_layers, dims->d_model) * times(s->limits.batch, 1 + s->limits.gamma);
}

static size_t kept_size(const cpu_state *s, const cpu_model *m) {
    return times(s->limits.batch, lm_step_columns(&s->limits)) * (size_t)m->dims.vocab;
}

static void fill_nan(float *values, size_t count) {
    for (size_t i = 0; i < count; i++) values[i] = NAN;
}

static int cpu_begin(lm_backend *backend, const lm_layout *layout) {
    cpu_state *s = (cpu_state *)backend->state;
    lm_cache *c = &s->cache;
    c->layout = *layout;
    c->table_stride_elems = (layout->max_columns + layout->page_size - 1) / layout->page_size;
    *c->width = 0;
    for (int32_t slot = 0; slot < s->limits.slots; slot++) {
        c->pad_len[slot] = 0;
        c->table[times(slot, c->table_stride_elems)] = slot; /* PAGED and RAGGED: until it joins */
    }
    for (int which = 0; which < LM_NUM_MODELS; which++) {
        cpu_model *m = &s->models[which];
        fill_nan(m->kv.data, cache_size(s, m));
        fill_nan(m->kept, kept_size(s, m));
        for (int32_t plane = 0; plane < m->kv.num_planes; plane++)
            m->kv.planes[plane] =
                m->kv.data + times(plane, layout->page_size) * (size_t)m->dims.d_model;
    }
    fill_nan(s->scratch, scratch_size(s));
    return 0;
}

static int cpu_write_board(lm_backend *backend, int32_t at, const int32_t *tokens, int32_t count) {
    const cpu_state *s = (const cpu_state *)backend->state;
    memcpy(s->cache.board + at, tokens, (size_t)count * sizeof(int32_t));
    return 0;
}

static int cpu_read_board(lm_backend *backend, int32_t at, int32_t *tokens, int32_t count) {
    const cpu_state *s = (const cpu_state *)backend->state;
    memcpy(tokens, s->cache.board + at, (size_t)count * sizeof(int32_t));
    return 0;
}

static int cpu_read_cache(lm_backend *backend, int which, int32_t plane, int32_t slot,
                          const int32_t *columns, int32_t count, float *rows) {
    const cpu_state *s = (const cpu_state *)backend->state;
    const cpu_model *m = &s->models[which];
    for (int32_t i = 0; i < count; i++)
        memcpy(rows + times(i, m->dims.d_model),
               lm_kv_row(s->cache, m->kv, plane, slot, columns[i]),
               (size_t)m->dims.d_model * sizeof(float));
    return 0;
}

static int cpu_read_stats(lm_backend *backend, int64_t *histogram, int64_t *totals) {
    const cpu_state *s = (const cpu_state *)backend->state;
    memcpy(histogram, s->histogram, (size_t)(s->limits.gamma + 1) * sizeof(int64_t));
    memcpy(totals, s->totals, sizeof s->totals);
    return 0;
}

static double cpu_seconds(lm_backend *backend) {
    const cpu_state *s = (const cpu_state *)backend->state;
    const int two = s && s->team->size == 2;
    struct timespec now;
    /* Of one thread what else runs on the machine does not count; of two it would count twice. */
    clock_gettime(two ? CLOCK_MONOTONIC : CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int cpu_close(lm_backend *backend) {
    cpu_state *s = (cpu_state *)backend->state;
    if (s->team) team_close(s->team);
    for (int i = 0; i < s->num_blocks; i++) free(s->blocks[i]);
    free(s);
    backend->state = NULL;
    return 0;
}

/* Zeroed memory until cpu_close. Notes a failure, so that one check after many calls is enough. */
static void *zeroed(void *backend, size_t count, size_t size) {
    cpu_state *s = (cpu_state *)backend;
    void *block = calloc(count ? count : 1, size);
    if (!block) s->out_of_memory = 1;
    s->blocks[s->num_blocks++] = block;
    return block;
}

static float *floats(cpu_state *s, size_t count) {
    return (float *)zeroed(s, count, sizeof(float));
}

static int32_t *ints(cpu_state *s, size_t count) {
    return (int32_t *)zeroed(s, count, sizeof(int32_t));
}

static void allocate_activations(cpu_state *s) {
    const lm_dims *a = &s->models[LM_TARGET].dims, *b = &s->models[LM_DRAFT].dims;
    const size_t d = (size_t)(a->d_model > b->d_model ? a->d_model : b->d_model);
    const size_t ff = (size_t)(a->d_ff > b->d_ff ? a->d_ff : b->d_ff);
    const size_t rows = (size_t)s->limits.max_rows;
    s->x = floats(s, rows * d);
    s->normed = floats(s, rows * d);
    s->qkv = floats(s, rows * 3 * d);
    s->attended = floats(s, rows * d);
    s->hidden = floats(s, rows * 2 * ff);
    s->gated = floats(s, rows * ff);
    s->logits = floats(s, rows * (size_t)a->vocab);
    s->scores = floats(s, times(ABREAST_ROWS, s->limits.max_seq));
    s->q_rows = floats(s, d * ABREAST_ROWS);
    s->seen_k = (const float **)zeroed(s, (size_t)s->limits.max_seq, sizeof(float *));
    s->seen_v = (const float **)zeroed(s, (size_t)s->limits.max_seq, sizeof(float *));
}

/* A copy of the weights, matrices as this width of vectors wants them. */
static const float *tile_weights(cpu_state *s, const lm_model *model) {
    const lm_dims *m = &model->dims;
    const int32_t d = m->d_model, ff = m->d_ff;
    float *const to = floats(s, model->num_weights);
    const float *const from = model->weights;
    const lm_view view = lm_view_of(m, from);
    if (!to) return NULL;
    memcpy(to, from, model->num_weights * sizeof(float));
    s->width.store(to + (view.head - from), view.head, d, m->vocab);
    for (int32_t l = 0; l < m->num_layers; l++) {
        const lm_layer layer = lm_layer_of(m, from, l);
        s->width.store(to + (layer.wqkv - from), layer.wqkv, d, 3 * d);
        s->width.store(to + (layer.wo - from), layer.wo, d, d);
        s->width.store(to + (layer.w_gate_up - from), layer.w_gate_up, d, 2 * ff);
        s->width.store(to + (layer.w_down - from), layer.w_down, ff, d);
    }
    return to;
}

static void allocate_models(cpu_state *s, const lm_model models[LM_NUM_MODELS]) {
    for (int which = 0; which < LM_NUM_MODELS; which++) {
        cpu_model *m = &s->models[which];
        m->dims = models[which].dims;
        m->weights = tile_weights(s, &models[which]);
        m->kv.num_planes = 2 * m->dims.num_layers;
        m->kv.d_model = m->dims.d_model;
        m->kv.data = floats(s, cache_size(s, m));
        m->kv.planes = (void **)zeroed(s, (size_t)m->kv.num_planes, sizeof(void *));
        m->kept = floats(s, kept_size(s, m));
        if (s->limits.copies) m->spare = floats(s, cache_size(s, m));
    }
}

static void allocate_cache(cpu_state *s) {
    const size_t batch = (size_t)s->limits.batch, slots = (size_t)s->limits.slots;
    lm_cache *c = &s->cache;
    lm_allocate_cache(c, &s->limits, zeroed, s);
    lm_allocate_trees(c, &s->trees, zeroed, s);
    c->num_active = ints(s, 1);
    c->draft_len = ints(s, batch);
    c->shift_end = ints(s, slots);
    c->accepted_len = ints(s, slots);
    c->num_emitted = ints(s, slots);
    c->width = ints(s, 1);
    c->row_status = (uint32_t *)zeroed(s, slots, sizeof(uint32_t));
}

static void allocate_verification(cpu_state *s) {
    const size_t num_planes = (size_t)s->models[LM_TARGET].kv.num_planes;
    s->scratch = floats(s, scratch_size(s));
    s->scratch_planes = (void **)zeroed(s, num_planes, sizeof(void *));
    s->histogram = (int64_t *)zeroed(s, (size_t)s->limits.gamma + 1, sizeof(int64_t));
    if (s->out_of_memory) return;
    for (size_t plane = 0; plane < num_planes; plane++)
        s->scratch_planes[plane] = s->scratch + plane * (scratch_size(s) / num_planes);
}

/* The kit's scratch memory: a sampler's batch needs no more than a verification's. */
static int allocate_sampling(cpu_state *s) {
    const size_t batch = (size_t)s->limits.batch;
    void *told;
    s->temperature = floats(s, batch);
    s->warm = floats(s, batch);
    s->seed = (uint64_t *)zeroed(s, batch, sizeof(uint64_t));
    s->position = ints(s, batch);
    s->sampled = ints(s, batch);
    s->filters = (lm_filter_arrays *)zeroed(s, 1, sizeof *s->filters);
    told = zeroed(s, lm_told_bytes(&s->sampling, &s->limits), 1);
    if (s->out_of_memory) return SPECV_OK;
    s->told = lm_emitted_in(told, &s->sampling, batch * ((size_t)s->limits.gamma + 1));
    lm_fill_filters(s->filters, &s->sampling);
    for (size_t i = 0; i < batch; i++) s->temperature[i] = s->sampling.temperature, s->warm[i] = 1;
    for (size_t i = 0; i < batch * (size_t)s->limits.width; i++)
        s->trees.temperature[i] = s->sampling.temperature;
    s->kit_scratch_bytes = lm_kit_scratch_bytes(&s->limits, s->models[LM_TARGET].dims.vocab);
    if (s->kit_scratch_bytes < 0) return (int)s->kit_scratch_bytes;
    s->kit_scratch = zeroed(s, (size_t)s->kit_scratch_bytes, 1);
    return SPECV_OK;
}

/* ---- particles, trees ------------------------------------------------------------------------ */

typedef cpu_state lm_state;

#define KIT(name, d)                specv_ref_##name(d)
#define kit_status(backend, status) check(backend, status)

static int send(lm_backend *backend, void *to, const void *from, size_t bytes) {
    (void)backend;
    memcpy(to, from, bytes);
    return 0;
}

static int fetch(lm_backend *backend, void *to, const void *from, size_t bytes) {
    return send(backend, to, from, bytes);
}

static int commit_text(lm_backend *backend, int32_t num_rows) {
    const cpu_state *s = (const cpu_state *)backend->state;
    const lm_cache *c = &s->cache;
    for (int32_t row = 0; row < num_rows; row++)
        memcpy(c->board + times(row, s->limits.text_stride) + s->position[row],
               c->out_tokens + times(row, s->limits.gamma + 1),
               (size_t)c->num_emitted[row] * sizeof(int32_t));
    return 0;
}

#include "particles.h"

#include "trees.h"

/* ---- open ----------------------------------------------------------------------------------- */

static int cpu_open(lm_backend *backend, const lm_model models[LM_NUM_MODELS],
                    const lm_limits *limits, const lm_sampling *sampling) {
    cpu_state *s = (cpu_state *)calloc(1, sizeof *s);
    int status;
    if (!s) return fail(backend, "out of memory");
    backend->state = s;
    s->width = widest();
    if (s->width.fuses()) {
        (void)cpu_close(backend);
        return fail(backend, "built with fused multiply-add: compile with -ffp-contract=off");
    }
    s->team = (cpu_team *)zeroed(s, 1, sizeof *s->team);
    if (s->team) team_open(s->team);
    s->limits = *limits;
    s->sampling = *sampling;
    allocate_models(s, models);
    allocate_cache(s);
    allocate_activations(s);
    allocate_verification(s);
    allocate_particles(s);
    status = allocate_sampling(s);
    if (status == SPECV_OK && !s->out_of_memory) return 0;
    (void)cpu_close(backend);
    return fail(backend, status == SPECV_OK ? "out of memory" : specv_status_string(status));
}

void lm_cpu_backend(lm_backend *backend) {
    memset(backend, 0, sizeof *backend);
    backend->name = "cpu";
    backend->open = cpu_open;
    backend->close = cpu_close;
    backend->begin = cpu_begin;
    backend->join = cpu_join;
    backend->write_board = cpu_write_board;
    backend->read_board = cpu_read_board;
    backend->prepare = cpu_prepare;
    backend->forward = cpu_forward;
    backend->spend = cpu_spend;
    backend->verify = cpu_verify;
    backend->read_told = cpu_read_told;
    backend->commit = cpu_commit;
    backend->leave = cpu_leave;
    backend->move = cpu_move;
    backend->group = cpu_group;
    backend->read_cache = cpu_read_cache;
    backend->read_stats = cpu_read_stats;
    backend->seconds = cpu_seconds;
    use_particles(backend);
    use_trees(backend);
}
