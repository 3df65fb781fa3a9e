/* engines.cu - what inference engines keep, given to the kit as it is: no gather, no conversion.

   A case is two steps of an engine. Requests lie in slots; each step's batch is a list of them, in
   any order; between the steps requests leave and others join. A step is verification and commit
   (B3), in half of the paged cases behind the allocation of pages (B5), all launches on one stream.
   The oracle is each request alone: the reference with a batch of 1, dense, in buffers of its own,
   knowing nothing of slots. Beside it the reference is given each step as one plain dense batch.

   The position is the cache length itself: verification reads it, the commit behind it advances it,
   so that each step has random numbers of its own although nobody else counts.

   vLLM          draft_token_ids [sum n]; cu_num_draft_tokens [batch], counts without a leading 0;
                 logits [sum n + batch][vocab] as the model gives them, a request's bonus row behind
                 those of its drafts (rejection_sampler.py first gathers the two kinds by
                 target_logits_indices and bonus_logits_indices, and draws the bonus: both fall
                 away); draft_probs [sum n][vocab] or none; out [batch][max_spec_len + 1], -1
                 behind the last token. In the slots of idx_mapping [batch]: temperature, seed,
                 num_computed_tokens, block tables. What its second model runner has beside them
                 does not fit: cu_num_logits, which counts n + 1, and draft logits by slot.
   SGLang        candidates [batch][n + 1], the root before the drafts: a pointer one further on,
                 and a stride; target_predict [batch][n + 1]; int64, and so is predict here.
                 accept_token_num is accepted_len, and accept_index follows from it. In the slots
                 of req_pool_indices [batch], int64 too: req_to_token, a block table of pages of one
                 position; temperature, seed, length.
   TensorRT-LLM  Drafts, their number, the target's tokens or scores by place in the batch, as MTP
                 and EAGLE have them. In batchSlots [batch]: temperature, randomSeed, sequence
                 length, linear cache [max_batch][K, V][heads][max_seq][head_dim]. The number of
                 accepted tokens is num_emitted, FinishedState's EOS bit is finished. What the
                 layer for external draft models has does not fit: draftIds, their numbers and
                 their probabilities by slot. */

#include "cache.h"

#include <math.h>

enum { MAX_ROWS = 8, MOST_DRAFTS = 5, STEPS = 2, HEADS = 2, HEAD_BYTES = 16, KV_PLANES = 2 };
enum { REQUESTS = 10, EOS_OF_NOBODY = -1, RESERVE = 2 * (MOST_DRAFTS + 1) };

/* What is verified against what. */
typedef enum form {
    TOKENS,       /* A1: target tokens */
    GREEDY,       /* rule GREEDY: logits */
    NO_DRAFT,     /* rule TOKEN: logits; drafts without scores */
    DRAFT_PROBS,  /* rule TOKEN: logits and the draft's probabilities */
    DRAFT_LOGITS, /* rule TOKEN: logits on both sides */
    PROBS         /* rule TOKEN: probabilities on both sides */
} form;

typedef struct engine {
    const char *cache_order; /* see grid_orders */
    specv_dtype dtype;
    layout layout;
    int page_size;   /* 0: padded */
    int has_root;    /* a token in front of each row's drafts */
    int long_drafts; /* a row of draft scores has as many positions as one of the target's */
    form forms[4];
} engine;

static const engine vllm = {
    "voph", SPECV_I32, CSR, 16, 0, 0, {GREEDY, NO_DRAFT, DRAFT_PROBS, DRAFT_PROBS}};
static const engine sglang = {"voph", SPECV_I64, DENSE, 1, 1, 1, {TOKENS, GREEDY, NO_DRAFT, PROBS}};
static const engine tensorrt_llm = {
    "ovhp", SPECV_I32, DENSE_LEN, 0, 0, 0, {TOKENS, DRAFT_LOGITS, DRAFT_PROBS, PROBS}};

/* What a step says of a row. */
typedef struct verdict {
    int64_t tokens[MOST_DRAFTS + 1];
    int64_t next;
    int32_t accepted, emitted;
    uint32_t status;
    float logprob, lse;
    uint8_t mismatch, finished;
} verdict;

typedef struct request {
    uint64_t id; /* what the models say depends on it */
    uint64_t seed;
    float temperature;
    int slot;
    int32_t prompt, len;    /* positions in its cache: at first, now */
    char *cache[KV_PLANES]; /* its own, padded */
    int leaves;
} request;

/* A row of a step, and what the request alone makes of it. */
typedef struct turn {
    request *r;
    int n;
    int32_t draft[MOST_DRAFTS];
    float *target, *drafts; /* [n + 1][vocab], [n][vocab] */
    int32_t before, after;
    verdict alone;
} turn;

/* A step as the engine has it. */
typedef struct step {
    turn rows[MAX_ROWS];
    int live, batch, max_draft;
    int64_t num_drafts;
    t_buf slot, lengths, num_active, draft, target_tokens, target, draft_scores, accepted, mismatch,
        next, tokens, emitted, finished, status, logprob, lse, src, slot_mapping, ids,
        append_status, resize_status;
    grid src_grid;
    plane_table src_planes;
} step;

typedef struct world {
    engine e;
    form form;
    int vocab, num_slots, max_positions, num_pages, still, in_place, hands_out;
    int64_t eos;
    request requests[REQUESTS];
    step steps[STEPS];
    t_buf temperature, seed, cache_len, table, pool, scratch, ticket;
    t_buf num_row_pages, page_refs, free_pages, num_free; /* of B5, if it hands out the pages */
    int64_t scratch_bytes;
    grid pool_grid;
    plane_table pool_planes;
} world;

static void *memory(int64_t count, size_t bytes) {
    void *p = calloc((size_t)count + 1, bytes);
    if (!p) t_die(__FILE__, __LINE__, "memory", "out of it");
    return p;
}

static int is_greedy(const world *w) { return w->form == TOKENS || w->form == GREEDY; }
static int has_draft_scores(const world *w) { return w->form >= DRAFT_PROBS; }

/* --------------------------------------------------------------------------------- the models */

/* What a model says at a position of a request's text: noise, and a favourite that the draft model
   shares. In a still world every position is like any other, and nothing is likely. */
static void say(const world *w, const request *r, int64_t position, int is_draft, float *logit) {
    const uint64_t at = r->id * 1000003 + (uint64_t)(w->still ? 0 : position);
    for (int x = 0; x < w->vocab; ++x) {
        const uint64_t bits = t_mix(t_mix(at) + (uint64_t)x);
        logit[x] = (float)(bits >> 40) / (1 << 22) - 2;
        if (is_draft) logit[x] += (float)(bits & 0xffff) / (1 << 17);
    }
    if (!w->still) logit[t_mix(at + 77) % (uint64_t)w->vocab] = is_draft ? 8.5f : 9.f;
}

static void to_probs(float *score, int vocab, float temperature) {
    double sum = 0, heat = temperature > 0 ? temperature : 1;
    for (int x = 0; x < vocab; ++x) sum += exp(score[x] / heat);
    for (int x = 0; x < vocab; ++x) score[x] = (float)(exp(score[x] / heat) / sum);
}

static int32_t largest(const float *score, int vocab) {
    int32_t best = 0;
    for (int x = 1; x < vocab; ++x)
        if (score[x] > score[best]) best = x;
    return best;
}

static int32_t drawn(const float *prob, int vocab) {
    double u = t_uniform();
    for (int x = 0; x < vocab; ++x)
        if ((u -= prob[x]) < 0) return x;
    return largest(prob, vocab);
}

/* Scores of a row at the request's present length, and drafts. */
static void draw_turn(const world *w, turn *row) {
    const int64_t vocab = w->vocab;
    const float temperature = row->r->temperature;
    float *q = (float *)memory(vocab, 4);
    row->before = row->r->len;
    row->target = (float *)memory((row->n + 1) * vocab, 4);
    row->drafts = (float *)memory(row->n * vocab, 4);
    for (int j = 0; j <= row->n; ++j) {
        float *p = row->target + j * vocab;
        say(w, row->r, row->before + j, 0, p);
        if (j < row->n) {
            say(w, row->r, row->before + j, 1, q);
            memcpy(row->drafts + j * vocab, q, (size_t)vocab * 4);
            to_probs(q, w->vocab, temperature);
            row->draft[j] = drawn(q, w->vocab);
            if (is_greedy(w) && t_chance(60)) row->draft[j] = largest(p, w->vocab);
            if (!has_draft_scores(w) && t_chance(5)) row->draft[j] = -1; /* no draft there */
            if (w->still)
                row->draft[j] = (int32_t)((row->r->id + (uint64_t)j) % (uint64_t)w->vocab);
            if (w->form == DRAFT_PROBS || w->form == PROBS)
                memcpy(row->drafts + j * vocab, q, (size_t)vocab * 4);
        }
        if (w->form == PROBS) to_probs(p, w->vocab, temperature);
    }
    free(q);
}

/* ----------------------------------------------------------------------------- plain reference */

/* What all ways of giving a step share. */
static specv_verify_sample_desc rule_of(const world *w) {
    specv_verify_sample_desc d = SPECV_ZERO;
    d.rule = w->form == GREEDY ? SPECV_RULE_GREEDY : SPECV_RULE_TOKEN;
    d.target.dtype = w->form == PROBS ? SPECV_PROBS_F32 : SPECV_LOGITS_F32;
    d.draft.dtype = w->form == DRAFT_LOGITS ? SPECV_LOGITS_F32 : SPECV_PROBS_F32;
    d.verify.vocab = w->vocab;
    if (w->eos != EOS_OF_NOBODY) d.verify.num_eos = 1, d.verify.eos_token[0] = w->eos;
    return d;
}

/* The reference, given rows as a dense batch without slots: arrays in the order of the rows. */
static void run_plain(const world *w, const turn *rows, int count, int32_t frozen, verdict *out) {
    specv_verify_sample_desc d = rule_of(w);
    specv_verify_greedy_desc *v = &d.verify;
    static char scratch[32];
    int32_t len[MAX_ROWS], position[MAX_ROWS], accepted[MAX_ROWS], next[MAX_ROWS];
    int32_t emitted[MAX_ROWS], draft[MAX_ROWS * (MOST_DRAFTS + 1)];
    int32_t choice[MAX_ROWS * (MOST_DRAFTS + 1)], tokens[MAX_ROWS * (MOST_DRAFTS + 1)];
    uint32_t status[MAX_ROWS];
    uint64_t seed[MAX_ROWS];
    uint8_t mismatch[MAX_ROWS], finished[MAX_ROWS];
    float temperature[MAX_ROWS], logprob[MAX_ROWS] = {0}, lse[MAX_ROWS] = {0}, *target, *drafts;
    const int64_t vocab = w->vocab;
    int most = 0;
    for (int b = 0; b < count; ++b) most = rows[b].n > most ? rows[b].n : most;
    target = (float *)memory(count * (most + 1) * vocab, 4);
    drafts = (float *)memory(count * most * vocab, 4);
    for (int b = 0; b < count; ++b) {
        const turn *row = &rows[b];
        memcpy(target + b * (most + 1) * vocab, row->target, (size_t)((row->n + 1) * vocab) * 4);
        memcpy(drafts + b * most * vocab, row->drafts, (size_t)(row->n * vocab) * 4);
        len[b] = row->n;
        for (int j = 0; j < most; ++j) draft[b * most + j] = j < row->n ? row->draft[j] : -1;
        for (int j = 0; j <= most; ++j)
            choice[b * (most + 1) + j] =
                j <= row->n ? largest(row->target + j * vocab, w->vocab) : 0;
        temperature[b] = row->r->temperature, seed[b] = row->r->seed;
        position[b] = frozen >= 0 ? frozen : row->before;
    }
    v->rows.batch = count, v->rows.max_draft = most, v->rows.draft_len = len;
    v->draft_tokens = draft;
    v->accepted_len = accepted, v->mismatch = mismatch, v->next_token = next;
    v->out_tokens = tokens, v->num_emitted = emitted, v->finished = finished;
    v->row_status = status;
    if (w->form == TOKENS) {
        v->target_tokens = choice;
        CHECK_EQ(specv_ref_verify_greedy(v), SPECV_OK, -1);
    } else {
        d.target.data = target;
        if (has_draft_scores(w)) d.draft.data = drafts;
        d.temperature = temperature, d.seed = seed, d.position = position;
        d.logprob = logprob, d.lse = lse;
        d.scratch = scratch + (16 - (size_t)scratch % 16), d.scratch_bytes = INT64_MAX;
        CHECK_EQ(specv_ref_verify_sample(&d), SPECV_OK, -1);
    }
    for (int b = 0; b < count; ++b) {
        verdict *o = &out[b];
        memset(o, 0, sizeof *o);
        o->accepted = accepted[b], o->next = next[b], o->emitted = emitted[b];
        o->status = status[b], o->mismatch = mismatch[b], o->finished = finished[b];
        o->logprob = logprob[b], o->lse = lse[b];
        for (int j = 0; j <= MOST_DRAFTS; ++j)
            o->tokens[j] = j <= most ? tokens[b * (most + 1) + j] : -1;
    }
    free(target), free(drafts);
}

/* KV rows of a request's pass are named by its text positions. */
static void put_kv(char *to, const request *r, int64_t position, int plane) {
    for (int head = 0; head < HEADS; ++head)
        tag_bytes(to + head * HEAD_BYTES, HEAD_BYTES, (int64_t)r->id, position, head, plane);
}

/* The request alone: verification and commit, and its state afterwards. */
static void run_alone(const world *w, turn *row) {
    enum { ROW_BYTES = HEADS * HEAD_BYTES };
    request *r = row->r;
    specv_append_kv_desc a = SPECV_ZERO;
    char src[KV_PLANES][(MOST_DRAFTS + 1) * ROW_BYTES];
    const void *from[KV_PLANES];
    void *to[KV_PLANES];
    uint32_t status = 1, ticket = 0;
    run_plain(w, row, 1, -1, &row->alone);
    for (int v = 0; v < KV_PLANES; ++v) {
        for (int j = 0; j <= row->n; ++j) put_kv(src[v] + j * ROW_BYTES, r, row->before + j, v);
        from[v] = src[v], to[v] = r->cache[v];
    }
    a.rows.batch = 1, a.rows.max_draft = row->n, a.num_pending = 1;
    a.accepted_len = &row->alone.accepted, a.cache_len = &r->len;
    a.row_status = &status, a.ticket = &ticket;
    a.src.planes = from, a.kv.planes = to, a.kv.num_planes = KV_PLANES;
    a.kv.num_heads = HEADS, a.kv.head_bytes = HEAD_BYTES, a.kv.max_positions = w->max_positions;
    CHECK_EQ(specv_ref_append_kv(&a), SPECV_OK, -1);
    CHECK_EQ(status, 0, -1);
    row->after = r->len;
    r->leaves = row->alone.finished;
}

/* -------------------------------------------------------------------------------- the buffers */

static int64_t *longs(const t_buf *b) { return (int64_t *)(void *)b->host; }
static float *floats(const t_buf *b) { return (float *)(void *)b->host; }

static t_buf of_words(int64_t count) { return t_in(4 * count, 0); }
static t_buf out_words(int64_t count) { return t_out(4 * count, 0); }
#define of_words(count)  (T_SITE(of_words, 4), of_words(count))
#define out_words(count) (T_SITE(out_words, 4), out_words(count))

/* The first draft, the first target row. A row of plain columns or, in CSR, what was before it. */
static int64_t first_draft(const world *w, const step *s, int row) {
    int64_t first = 0;
    if (w->e.layout != CSR) return (int64_t)row * (s->max_draft + w->e.has_root) + w->e.has_root;
    for (int b = 0; b < row; ++b) first += s->rows[b].n;
    return first;
}

static int64_t first_target(const world *w, const step *s, int row) {
    if (w->e.layout != CSR) return (int64_t)row * (s->max_draft + 1);
    return first_draft(w, s, row) + row;
}

static int64_t first_draft_score(const world *w, const step *s, int row) {
    if (w->e.layout != CSR) return (int64_t)row * (s->max_draft + w->e.long_drafts);
    return first_draft(w, s, row);
}

static void put_slot(const world *w, step *s, int b, int64_t slot) {
    if (w->e.dtype == SPECV_I64)
        longs(&s->slot)[b] = slot;
    else
        put_word(&s->slot, b, (int32_t)slot);
}

static void put_turn(const world *w, step *s, int b) {
    const turn *row = &s->rows[b];
    const int64_t vocab = w->vocab;
    const int64_t drafts = first_draft(w, s, b), targets = first_target(w, s, b);
    put_slot(w, s, b, row->r->slot);
    if (w->e.layout == CSR) put_word(&s->lengths, b, (int32_t)drafts + row->n);
    if (w->e.layout == DENSE_LEN) put_word(&s->lengths, b, row->n);
    for (int j = 0; j < row->n; ++j) put_token(&s->draft, w->e.dtype, drafts + j, row->draft[j]);
    for (int j = 0; j <= row->n; ++j) {
        const float *p = row->target + j * vocab;
        if (w->form == TOKENS)
            put_token(&s->target_tokens, w->e.dtype, targets + j, largest(p, w->vocab));
        else
            memcpy(floats(&s->target) + (targets + j) * vocab, p, (size_t)vocab * 4);
        for (int v = 0; v < KV_PLANES && !w->in_place; ++v) {
            const int csr = w->e.layout == CSR;
            put_kv(s->src.host + grid_at(&s->src_grid, csr ? 0 : b, csr ? targets + j : j, 0, v),
                   row->r, row->before + j, v);
        }
    }
    if (has_draft_scores(w) && row->n > 0)
        memcpy(floats(&s->draft_scores) + first_draft_score(w, s, b) * vocab, row->drafts,
               (size_t)(row->n * vocab) * 4);
}

static void make_step(const world *w, step *s) {
    const int csr = w->e.layout == CSR;
    const int64_t rows = s->batch, columns = (int64_t)s->max_draft + 1, vocab = w->vocab;
    const int64_t token_bytes = w->e.dtype == SPECV_I64 ? 8 : 4, none[NUM_AXES] = {0, 0, 0, 0};
    const int64_t num_targets = csr ? s->num_drafts + rows : rows * columns;
    s->slot = t_in(token_bytes * rows, 0);
    if (w->e.layout != DENSE) s->lengths = of_words(rows);
    if (s->live < s->batch) s->num_active = of_words(1);
    s->draft = t_in(token_bytes * (csr             ? s->num_drafts
                                   : w->e.has_root ? rows * columns
                                                   : rows * s->max_draft),
                    0);
    if (w->form == TOKENS)
        s->target_tokens = t_in(token_bytes * num_targets, 0);
    else
        s->target = of_words(num_targets * vocab);
    if (has_draft_scores(w))
        s->draft_scores =
            of_words((csr ? s->num_drafts : rows * (s->max_draft + w->e.long_drafts)) * vocab);
    for (int b = s->live; b < s->batch; ++b) { /* padding of a captured batch: anything */
        put_slot(w, s, b, t_chance(50) ? s->rows[0].r->slot : -1);
        if (s->lengths.host) put_word(&s->lengths, b, (int32_t)t_random());
    }
    if (s->num_active.host) put_word(&s->num_active, 0, s->live);
    s->src_grid.elem_bytes = HEAD_BYTES;
    s->src_grid.count[AXIS_OUTER] = csr ? 1 : rows;
    s->src_grid.count[AXIS_POS] = csr ? num_targets : columns;
    s->src_grid.count[AXIS_HEAD] = HEADS, s->src_grid.count[AXIS_PLANE] = KV_PLANES;
    grid_make(&s->src_grid, "voph", none);
    if (!w->in_place) {
        s->src = t_in(s->src_grid.bytes, 0);
        table_make(&s->src_planes, &s->src, &s->src_grid, 0);
    }
    for (int b = 0; b < s->live; ++b) put_turn(w, s, b);
    s->accepted = out_words(rows), s->emitted = out_words(rows), s->status = out_words(rows);
    s->mismatch = t_out(rows, 0), s->finished = t_out(rows, 0);
    s->next = t_out(token_bytes * rows, 0), s->tokens = t_out(token_bytes * rows * columns, 0);
    if (w->form != TOKENS) s->logprob = out_words(rows), s->lse = out_words(rows);
    s->slot_mapping = t_out(8 * rows * columns, 0), s->ids = out_words(rows * columns);
    s->append_status = out_words(rows);
    if (w->hands_out) s->resize_status = out_words(rows);
}

static int64_t row_pages_of(const world *w, int64_t positions) {
    return (positions + w->e.page_size - 1) / w->e.page_size;
}

/* All pages in any order; where B5 hands them out, those that no prompt needs are free. */
static void make_pages(world *w) {
    const int64_t row_pages = row_pages_of(w, w->max_positions);
    int num_free = 0;
    w->num_pages = (int)(w->num_slots * row_pages);
    w->table = w->hands_out ? out_words(w->num_pages) : of_words(w->num_pages);
    for (int i = 0; i < w->num_pages; ++i) {
        const int64_t other = t_below(i + 1);
        put_word(&w->table, i, word_at(&w->table, other));
        put_word(&w->table, other, i);
    }
    if (!w->hands_out) return;
    w->num_row_pages = out_words(w->num_slots), w->page_refs = out_words(w->num_pages);
    w->free_pages = out_words(w->num_pages), w->num_free = out_words(1);
    for (int slot = 0; slot < w->num_slots; ++slot) {
        int64_t used = 0;
        for (int i = 0; i < REQUESTS; ++i)
            if (w->requests[i].slot == slot) used = row_pages_of(w, w->requests[i].prompt);
        put_word(&w->num_row_pages, slot, (int32_t)used);
        for (int64_t i = 0; i < row_pages; ++i) {
            const int32_t page = word_at(&w->table, slot * row_pages + i);
            put_word(&w->page_refs, page, i < used);
            if (i < used) continue;
            put_word(&w->free_pages, num_free++, page);
            put_word(&w->table, slot * row_pages + i, -1);
        }
    }
    put_word(&w->num_free, 0, num_free);
}

static void make_state(world *w) {
    const int64_t none[NUM_AXES] = {0, 0, 0, 0}, slots = w->num_slots;
    grid *g = &w->pool_grid;
    w->temperature = of_words(slots), w->seed = t_in(8 * slots, 0);
    w->cache_len = out_words(slots), w->ticket = out_words(1);
    put_word(&w->ticket, 0, 0);
    for (int i = 0; i < slots; ++i) {
        floats(&w->temperature)[i] = NAN;
        longs(&w->seed)[i] = (int64_t)t_random();
    }
    if (w->e.page_size) make_pages(w);
    g->elem_bytes = HEAD_BYTES;
    g->count[AXIS_OUTER] = w->e.page_size ? w->num_pages : slots;
    g->count[AXIS_POS] = w->e.page_size ? w->e.page_size : w->max_positions;
    g->count[AXIS_HEAD] = HEADS, g->count[AXIS_PLANE] = KV_PLANES;
    grid_make(g, w->e.cache_order, none);
    if (!w->in_place) {
        w->pool = t_out(g->bytes, 0);
        table_make(&w->pool_planes, &w->pool, g, 0);
    }
    for (int i = 0; i < REQUESTS; ++i) {
        const request *r = &w->requests[i];
        floats(&w->temperature)[r->slot] = r->temperature;
        longs(&w->seed)[r->slot] = (int64_t)r->seed;
        put_word(&w->cache_len, r->slot, r->prompt);
    }
    for (int i = 0; i < STEPS; ++i) {
        const step *s = &w->steps[i];
        const int64_t bytes = specv_verify_sample_scratch_bytes(s->batch, s->max_draft, w->vocab);
        if (bytes > w->scratch_bytes) w->scratch_bytes = bytes;
    }
    w->scratch = t_out(w->scratch_bytes, 0);
    t_buffers[t_num_buffers - 1].is_private = 1;
    memset(w->scratch.host, 0, SPECV_TICKET_BYTES);
}

/* Where position x of a request is in the pool: its page or slot, its place there. */
static int64_t outer_of(const world *w, const request *r, int64_t x) {
    const int64_t row_pages = w->e.page_size ? w->num_pages / w->num_slots : 0;
    return row_pages ? word_at(&w->table, r->slot * row_pages + x / w->e.page_size) : r->slot;
}

static int64_t place_of(const world *w, int64_t x) {
    return w->e.page_size ? x % w->e.page_size : x;
}

/* The pool with the requests' first `prompt` positions, or all that they have, in poison. */
static void draw_pool(const world *w, char *data, int all) {
    const grid *g = &w->pool_grid;
    memset(data, T_POISON, (size_t)g->bytes);
    for (int i = 0; i < REQUESTS; ++i) {
        const request *r = &w->requests[i];
        for (int64_t x = 0; x < (all ? r->len : r->prompt); ++x) {
            const int64_t outer = outer_of(w, r, x);
            if (outer < 0 || outer >= g->count[AXIS_OUTER]) continue; /* check_pages says so */
            for (int v = 0; v < KV_PLANES; ++v)
                for (int h = 0; h < HEADS; ++h)
                    memcpy(data + grid_at(g, outer, place_of(w, x), h, v),
                           r->cache[v] + (x * HEADS + h) * HEAD_BYTES, HEAD_BYTES);
        }
    }
}

/* ------------------------------------------------------------------------------- the launches */

static specv_rows rows_of(const world *w, const step *s, int side) {
    specv_rows r = SPECV_ZERO;
    r.batch = s->batch, r.max_draft = s->max_draft;
    r.num_active = (const int32_t *)t_at(&s->num_active, side);
    r.slot = t_at(&s->slot, side), r.slot_dtype = w->e.dtype, r.num_slots = w->num_slots;
    if (w->e.layout == CSR)
        r.row_end = (const int32_t *)t_at(&s->lengths, side), r.num_draft_tokens = s->num_drafts;
    else
        r.draft_len = (const int32_t *)t_at(&s->lengths, side);
    return r;
}

static specv_verify_sample_desc verification_of(const world *w, const step *s, int side) {
    specv_verify_sample_desc d = rule_of(w);
    specv_verify_greedy_desc *v = &d.verify;
    v->rows = rows_of(w, s, side);
    v->token_dtype = (int32_t)w->e.dtype;
    v->draft_tokens = t_at(&s->draft, side);
    if (w->e.has_root) {
        v->draft_tokens = (const char *)v->draft_tokens + (w->e.dtype == SPECV_I64 ? 8 : 4);
        v->draft_stride_elems = (int64_t)s->max_draft + 1;
    }
    v->accepted_len = (int32_t *)t_at(&s->accepted, side);
    v->mismatch = (uint8_t *)t_at(&s->mismatch, side);
    v->next_token = t_at(&s->next, side), v->out_tokens = t_at(&s->tokens, side);
    v->num_emitted = (int32_t *)t_at(&s->emitted, side);
    v->finished = (uint8_t *)t_at(&s->finished, side);
    v->row_status = (uint32_t *)t_at(&s->status, side);
    v->target_tokens = t_at(&s->target_tokens, side);
    d.target.data = t_at(&s->target, side), d.draft.data = t_at(&s->draft_scores, side);
    if (has_draft_scores(w) && w->e.long_drafts)
        d.draft.seq_stride_elems = (s->max_draft + 1) * (int64_t)w->vocab;
    if (w->form != GREEDY) {
        d.temperature = (const float *)t_at(&w->temperature, side);
        d.seed = (const uint64_t *)t_at(&w->seed, side);
        d.position = (const int32_t *)t_at(&w->cache_len, side);
    }
    d.logprob = (float *)t_at(&s->logprob, side), d.lse = (float *)t_at(&s->lse, side);
    d.scratch = t_at(&w->scratch, side), d.scratch_bytes = w->scratch_bytes;
    return d;
}

/* The cache without its planes. */
static specv_kv_cache numbers_of(const world *w, int side) {
    specv_kv_cache kv = SPECV_ZERO;
    kv.max_positions = w->max_positions, kv.page_size = w->e.page_size;
    kv.num_pages = w->num_pages, kv.block_table = (int32_t *)t_at(&w->table, side);
    return kv;
}

/* Pages for this pass and the next, whose places the commit tells. */
static specv_page_resize_desc pages_of(const world *w, const step *s, int side) {
    const specv_rows rows = rows_of(w, s, side);
    specv_page_resize_desc d = SPECV_ZERO;
    d.batch = rows.batch, d.num_active = rows.num_active;
    d.slot = rows.slot, d.slot_dtype = rows.slot_dtype, d.num_slots = rows.num_slots,
    d.reserve = RESERVE;
    d.pool.page_refs = (int32_t *)t_at(&w->page_refs, side);
    d.pool.free_pages = (int32_t *)t_at(&w->free_pages, side);
    d.pool.num_free = (int32_t *)t_at(&w->num_free, side);
    d.num_row_pages = (int32_t *)t_at(&w->num_row_pages, side);
    d.cache_len = (const int32_t *)t_at(&w->cache_len, side);
    d.row_status = (uint32_t *)t_at(&s->resize_status, side);
    d.kv = numbers_of(w, side);
    return d;
}

static specv_append_kv_desc commit_of(const world *w, const step *s, int side) {
    specv_append_kv_desc d = SPECV_ZERO;
    d.rows = rows_of(w, s, side), d.num_pending = 1;
    d.accepted_len = (const int32_t *)t_at(&s->accepted, side);
    d.cache_len = (int32_t *)t_at(&w->cache_len, side);
    d.slot_mapping = (int64_t *)t_at(&s->slot_mapping, side);
    d.position_ids = (int32_t *)t_at(&s->ids, side);
    d.row_status = (uint32_t *)t_at(&s->append_status, side);
    d.ticket = (uint32_t *)t_at(&w->ticket, side);
    d.page_refs = (const int32_t *)t_at(&w->page_refs, side);
    d.kv = numbers_of(w, side);
    if (w->in_place) return d; /* the pass wrote into the cache: numbers only */
    d.kv.num_planes = KV_PLANES, d.kv.num_heads = HEADS, d.kv.head_bytes = HEAD_BYTES;
    d.kv.planes = table_at(&w->pool_planes, side);
    d.kv.head_stride_bytes = w->pool_grid.stride[AXIS_HEAD];
    d.kv.pos_stride_bytes = w->pool_grid.stride[AXIS_POS];
    if (w->e.page_size)
        d.kv.page_stride_bytes = w->pool_grid.stride[AXIS_OUTER];
    else
        d.kv.seq_stride_bytes = w->pool_grid.stride[AXIS_OUTER];
    d.src.planes = (const void *const *)table_at(&s->src_planes, side);
    return d;
}

static void run_steps(const world *w, int side) {
    for (int i = 0; i < STEPS; ++i) {
        const specv_verify_sample_desc v = verification_of(w, &w->steps[i], side);
        const specv_append_kv_desc a = commit_of(w, &w->steps[i], side);
        const specv_page_resize_desc p = pages_of(w, &w->steps[i], side);
#if T_DEVICE
        if (side == T_DEVICE_SIDE) {
            if (w->hands_out) CHECK_EQ(specv_page_resize(&p, 0), SPECV_OK, i);
            CHECK_EQ(w->form == TOKENS ? specv_verify_greedy(&v.verify, 0)
                                       : specv_verify_sample(&v, 0),
                     SPECV_OK, i);
            CHECK_EQ(specv_append_kv(&a, 0), SPECV_OK, i);
            continue;
        }
#endif
        if (w->hands_out) CHECK_EQ(specv_ref_page_resize(&p), SPECV_OK, i);
        CHECK_EQ(w->form == TOKENS ? specv_ref_verify_greedy(&v.verify)
                                   : specv_ref_verify_sample(&v),
                 SPECV_OK, i);
        CHECK_EQ(specv_ref_append_kv(&a), SPECV_OK, i);
    }
}

/* ------------------------------------------------------------------------------------ checking */

/* Rows of a step, against the request alone. */
static void check_verdict(const world *w, const step *s, int b, const verdict *o) {
    const int columns = s->max_draft + 1;
    CHECK_EQ(word_at(&s->accepted, b), o->accepted, b);
    CHECK_EQ(word_at(&s->emitted, b), o->emitted, b);
    CHECK_EQ(get_token(&s->next, w->e.dtype, b), o->next, b);
    CHECK_EQ((uint8_t)s->mismatch.host[b], o->mismatch, b);
    CHECK_EQ((uint8_t)s->finished.host[b], o->finished, b);
    CHECK_EQ((uint32_t)word_at(&s->status, b), o->status, b);
    for (int j = 0; j < columns; ++j)
        CHECK_EQ(get_token(&s->tokens, w->e.dtype, b * columns + j), o->tokens[j], b);
    if (w->form == TOKENS) return;
    CHECK_BYTES(s->logprob.host + 4 * b, &o->logprob, 4);
    CHECK_BYTES(s->lse.host + 4 * b, &o->lse, 4);
}

/* What greedy rules of all three engines write: the target's tokens up to the first that differs
   from its draft, -1 behind it. SGLang: the walk along a chain, whose accept_index names the nodes
   (b * columns + j) that predict these tokens. */
static void check_greedy(const world *w, const step *s, int b) {
    const turn *row = &s->rows[b];
    const int columns = s->max_draft + 1;
    int walks = 1, nodes = 0;
    for (int j = 0; j < columns; ++j) {
        const int64_t token = get_token(&s->tokens, w->e.dtype, b * columns + j);
        const int32_t choice =
            j <= row->n ? largest(row->target + (int64_t)j * w->vocab, w->vocab) : -1;
        CHECK_EQ(token, walks ? choice : -1, b);
        nodes += walks;
        walks = walks && j < row->n && row->draft[j] == choice;
    }
    CHECK_EQ(word_at(&s->accepted, b), nodes - 1, b);
}

/* Where the next pass writes: by the engine's own table. */
static void check_next_pass(const world *w, const step *s, int b) {
    const turn *row = &s->rows[b];
    const int columns = s->max_draft + 1;
    for (int j = 0; j < columns; ++j) {
        const int64_t x = row->after + j, at = b * columns + j, size = w->pool_grid.count[AXIS_POS];
        const int64_t place = outer_of(w, row->r, x) * size + place_of(w, x);
        CHECK_EQ(word_at(&s->ids, at), x, b);
        CHECK_EQ(longs(&s->slot_mapping)[at], place, b);
    }
}

/* A request has the pages that its last step asked for, one that waits those of its prompt, and no
   page has two places. */
static void check_pages(const world *w) {
    const int64_t row_pages = row_pages_of(w, w->max_positions);
    int64_t used = 0;
    char *seen = (char *)memory(w->num_pages, 1);
    for (int i = 0; i < REQUESTS; ++i) {
        const request *r = &w->requests[i];
        int64_t wanted = row_pages_of(w, r->prompt);
        for (int step_of = 0; step_of < STEPS; ++step_of)
            for (int b = 0; b < w->steps[step_of].live; ++b)
                if (w->steps[step_of].rows[b].r == r)
                    wanted = row_pages_of(w, w->steps[step_of].rows[b].before + RESERVE);
        if (wanted > row_pages) wanted = row_pages;
        CHECK_EQ(word_at(&w->num_row_pages, r->slot), wanted, i);
        for (int64_t j = 0; j < wanted; ++j) {
            const int32_t page = word_at(&w->table, r->slot * row_pages + j);
            CHECK(page >= 0 && page < w->num_pages && !seen[page]++);
        }
        used += wanted;
    }
    CHECK_EQ(word_at(&w->num_free, 0), w->num_pages - used, -1);
    for (int i = 0; i < w->num_pages - used; ++i) {
        const int32_t page = word_at(&w->free_pages, i);
        CHECK(page >= 0 && page < w->num_pages && !seen[page]++);
    }
    free(seen);
}

/* The host side, after the reference has run the engine's launches. */
static void check_steps(const world *w) {
    char *expected = (char *)memory(w->pool_grid.bytes, 1);
    char taken[64] = {0};
    for (int i = 0; i < STEPS; ++i) {
        const step *s = &w->steps[i];
        verdict plain[MAX_ROWS];
        run_plain(w, s->rows, s->live, -1, plain);
        for (int b = 0; b < s->live; ++b) {
            CHECK_EQ(memcmp(&plain[b], &s->rows[b].alone, sizeof plain[b]) == 0, 1, b);
            check_verdict(w, s, b, &s->rows[b].alone);
            if (is_greedy(w) && w->eos == EOS_OF_NOBODY) check_greedy(w, s, b);
            check_next_pass(w, s, b);
            CHECK_EQ(word_at(&s->append_status, b), 0, b);
            if (w->hands_out) CHECK_EQ(word_at(&s->resize_status, b), 0, b);
        }
        for (int b = s->live; b < s->batch; ++b) {
            CHECK_EQ(word_at(&s->accepted, b), 0, b);
            CHECK_EQ(get_token(&s->next, w->e.dtype, b), -1, b);
            CHECK_EQ(word_at(&s->status, b), 0, b);
        }
    }
    for (int i = 0; i < REQUESTS; ++i) {
        CHECK_EQ(word_at(&w->cache_len, w->requests[i].slot), w->requests[i].len, i);
        taken[w->requests[i].slot] = 1;
    }
    for (int i = 0; i < w->num_slots; ++i)
        if (!taken[i]) CHECK_BYTES(w->cache_len.host + 4 * i, "\xCA\xCA\xCA\xCA", 4);
    if (w->hands_out) check_pages(w);
    draw_pool(w, expected, 1);
    if (!w->in_place) check_image(&w->pool, expected);
    free(expected);
}

/* A still world: in the second step the same requests meet the same scores and the same drafts. The
   cache lengths alone make it another one: with those of before it says the same again. */
static void check_still(const world *w) {
    int differ = 0;
    for (int b = 0; b < w->steps[1].live; ++b) {
        const turn *now = &w->steps[1].rows[b];
        verdict again;
        for (int i = 0; i < w->steps[0].live; ++i) {
            const turn *was = &w->steps[0].rows[i];
            if (was->r != now->r) continue;
            run_plain(w, now, 1, was->before, &again);
            CHECK_EQ(memcmp(&again, &was->alone, sizeof again) == 0, 1, b);
            differ += memcmp(now->alone.tokens, was->alone.tokens, sizeof again.tokens) != 0;
        }
    }
    CHECK(differ > 0);
}

/* --------------------------------------------------------------------------------------- cases */

static void draw_requests(world *w) {
    static const float temperatures[] = {0, 0, 0.5f, 0.8f, 1, 1.5f};
    for (int i = 0; i < REQUESTS; ++i) {
        request *r = &w->requests[i];
        int taken = 1;
        r->id = t_random() >> 16, r->seed = t_random();
        r->temperature = w->still ? 1 : T_PICK(temperatures);
        r->prompt = r->len = (int32_t)t_below(20);
        while (taken) {
            taken = 0, r->slot = (int)t_below(w->num_slots);
            for (int before = 0; before < i; ++before) taken |= w->requests[before].slot == r->slot;
        }
        for (int v = 0; v < KV_PLANES; ++v) {
            const int64_t row_bytes = HEADS * HEAD_BYTES;
            r->cache[v] = (char *)memory(w->max_positions * row_bytes, 1);
            for (int64_t x = 0; x < r->prompt; ++x) put_kv(r->cache[v] + x * row_bytes, r, x, v);
        }
    }
}

/* Who is in the second step: those of the first who stay, and some who have waited. */
static int draw_list(const world *w, const step *before, int *list) {
    int n = 0, limit = w->still ? 4 : (int)t_between(1, MAX_ROWS - 2);
    for (int i = 0; i < REQUESTS && n < limit; ++i) {
        int was = 0;
        for (int b = 0; before && b < before->live; ++b)
            was |= before->rows[b].r == w->requests + i;
        if (was && !w->still && (w->requests[i].leaves || t_chance(30))) continue;
        if (!was && t_chance(w->still ? 0 : 40)) continue;
        list[n++] = i;
    }
    if (n == 0) list[n++] = REQUESTS - 1;
    for (int i = n - 1; i > 0; --i) {
        const int j = (int)t_below(i + 1), other = list[j];
        list[j] = list[i], list[i] = other;
    }
    return n;
}

static void draw_step(world *w, step *s, const step *before) {
    int list[REQUESTS];
    const int most = w->still ? 2 : (int)t_between(0, MOST_DRAFTS);
    s->live = draw_list(w, before, list);
    s->batch = s->live + (t_chance(30) ? (int)t_between(1, 2) : 0);
    s->max_draft = most;
    for (int b = 0; b < s->live; ++b) {
        turn *row = &s->rows[b];
        row->r = &w->requests[list[b]];
        row->n = w->e.layout == DENSE || w->still || t_chance(40) ? most : (int)t_between(0, most);
        s->num_drafts += row->n;
        draw_turn(w, row);
        run_alone(w, row);
    }
}

static void run_case(const engine *e, int turn_of, int still) {
    world w;
    memset(&w, 0, sizeof w);
    w.e = *e, w.still = still, w.form = still ? NO_DRAFT : e->forms[turn_of % 4];
    w.vocab = (int)t_between(200, t.quick ? 700 : 1500);
    w.num_slots = REQUESTS + (int)t_below(6);
    w.max_positions = 20 + (STEPS + 1) * (MOST_DRAFTS + 1);
    w.in_place = t_chance(25), w.hands_out = e->page_size && t_chance(50);
    w.eos = EOS_OF_NOBODY;
    t_note(" form %d, vocab %d, %d slots", (int)w.form, w.vocab, w.num_slots);
    draw_requests(&w);
    if (!still && t_chance(30)) { /* what some request is likely to say first */
        float *logit = (float *)memory(w.vocab, 4);
        say(&w, &w.requests[0], w.requests[0].len, 0, logit);
        w.eos = largest(logit, w.vocab);
        free(logit);
    }
    for (int i = 0; i < STEPS; ++i) draw_step(&w, &w.steps[i], i ? &w.steps[i - 1] : NULL);
    make_state(&w);
    for (int i = 0; i < STEPS; ++i) make_step(&w, &w.steps[i]);
    if (!w.in_place) draw_pool(&w, w.pool.host, 0);
    t_upload();
    run_steps(&w, T_HOST_SIDE);
    check_steps(&w);
    if (still) check_still(&w);
    t_check_host();
#if T_DEVICE
    run_steps(&w, T_DEVICE_SIDE);
    t_check_device();
#endif
    for (int i = 0; i < STEPS; ++i) {
        for (int b = 0; b < w.steps[i].live; ++b)
            free(w.steps[i].rows[b].target), free(w.steps[i].rows[b].drafts);
        table_free(&w.steps[i].src_planes);
    }
    for (int i = 0; i < REQUESTS; ++i)
        for (int v = 0; v < KV_PLANES; ++v) free(w.requests[i].cache[v]);
    table_free(&w.pool_planes);
}

static void run_engine(const engine *e) {
    for (int i = 0; i < (t.cases ? t.cases : t.quick ? 24 : 120); ++i) {
        const int still = i % 6 == 5;
        t_case(still ? "nobody advances a position:" : "two steps:");
        run_case(e, i, still);
    }
}

static void test_vllm(void) { run_engine(&vllm); }
static void test_sglang(void) { run_engine(&sglang); }
static void test_tensorrt_llm(void) { run_engine(&tensorrt_llm); }

int main(int argc, char **argv) {
    static const t_group groups[] = {
        {"vllm", test_vllm},
        {"sglang", test_sglang},
        {"tensorrt-llm", test_tensorrt_llm},
    };
    return t_main(argc, argv, groups, T_COUNT(groups));
}
