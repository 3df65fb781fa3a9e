/* shards.cu - A9: ranks with parts of the vocabulary say what one with all of it does, bit for bit,
   each of them; records that do not belong together are seen by all. Ranks are a loop here, and the
   all-gather is that their records lie behind each other. */

#define WITH_SHARDS
#include "scores.h"

enum { MAX_RANKS = 16, MAX_EXCHANGES = 6 };

/* How the vocabulary is divided. */
typedef struct parts {
    int count;
    int32_t first[MAX_RANKS], ids[MAX_RANKS];
} parts;

/* Ranks with any number of tiles, also none: `even`, or wherever the dice fall. */
static parts draw_parts(int count, int64_t vocab, int even) {
    const int32_t tiles = (int32_t)((vocab + SPECV_TILE_IDS - 1) / SPECV_TILE_IDS);
    int32_t cut[MAX_RANKS + 1];
    parts p;
    p.count = count;
    cut[0] = 0, cut[count] = tiles;
    for (int i = 1; i < count; ++i)
        cut[i] = even ? (int32_t)((int64_t)tiles * i / count) : (int32_t)t_between(0, tiles);
    for (int i = 1; i < count; ++i) /* in order */
        for (int k = i; k > 1 && cut[k - 1] > cut[k]; --k) {
            const int32_t other = cut[k];
            cut[k] = cut[k - 1], cut[k - 1] = other;
        }
    for (int i = 0; i < count; ++i) {
        const int64_t end = (int64_t)cut[i + 1] * SPECV_TILE_IDS;
        p.first[i] = cut[i] * SPECV_TILE_IDS;
        p.ids[i] = (int32_t)(end < vocab ? end : vocab) - p.first[i];
        if (p.ids[i] <= 0) p.ids[i] = 0;
    }
    return p;
}

/* A step's records: what the ranks of one side wrote, and before that. */
typedef struct exchange {
    char *gathered[2]; /* of this step, of the one before */
    void *scratch[MAX_RANKS];
    int64_t bytes[2], stride[2];
    int64_t num_ids; /* of the largest rank */
} exchange;

/* What goes wrong between the ranks, for those who test it. */
typedef struct mischief {
    int rank, step; /* whose descriptor `spoil` gets before a step; -1: every step */
    void (*spoil)(specv_verify_shard_desc *d, int side);
    void (*shuffle)(char *gathered, int64_t stride, int count, int64_t bytes, int side);
} mischief;

static int64_t calls, bytes_sent; /* of one rank, in the last run */

static int32_t most_named, all_named; /* max_top_k and all_top_k of what runs */

/* Masks of each rank alone, where they are not those of all. */
static t_buf masks_of_rank[MAX_RANKS];

static char *new_bytes(int64_t bytes, int side) {
    char *p = NULL;
#if T_DEVICE
    if (side == T_DEVICE_SIDE) {
        T_CUDA(cudaMalloc((void **)&p, (size_t)bytes));
        T_CUDA(cudaMemset(p, T_POISON, (size_t)bytes));
        return p;
    }
#endif
    (void)side;
    p = (char *)malloc((size_t)bytes);
    if (!p) t_die(__FILE__, __LINE__, "new_bytes", "no memory");
    memset(p, T_POISON, (size_t)bytes);
    return p;
}

static void free_bytes(void *p, int side) {
#if T_DEVICE
    if (side == T_DEVICE_SIDE) {
        T_CUDA(cudaFree(p));
        return;
    }
#endif
    (void)side;
    free(p);
}

static int run_step(const specv_verify_shard_desc *d, int side) {
#if T_DEVICE
    if (side == T_DEVICE_SIDE) return specv_verify_shard(d, 0);
#endif
    (void)side;
    return specv_ref_verify_shard(d);
}

/* The rank's own view of a step: its columns lie inside the scores of all. */
static specv_verify_shard_desc describe_rank(const stage *g, const parts *p, int rank, int side) {
    specv_verify_shard_desc d = SPECV_ZERO;
    const int64_t stride = g->c.s.vocab + g->c.gap;
    specv_scores *of[2];
    d.sample = stage_describe(g, side);
    of[0] = &d.sample.target, of[1] = &d.sample.draft;
    for (int i = 0; i < 2; ++i) {
        if (!of[i]->data) continue;
        of[i]->data =
            (const char *)of[i]->data + p->first[rank] * (int64_t)specv_i_score_bytes(of[i]->dtype);
        if (p->ids[rank] == 0) of[i]->data = NULL;
        of[i]->pos_stride_elems = stride;
        if (g->c.s.layout != CSR)
            of[i]->seq_stride_elems =
                (g->c.s.max_draft + (i == 0 && !g->c.bonus)) * stride + 2 * g->c.gap;
    }
    if (p->ids[rank] == 0 && g->draft.host) d.sample.draft.data = t_at(&g->draft, side);
    d.first_id = p->first[rank], d.num_ids = p->ids[rank], d.num_shards = p->count;
    d.max_top_k = most_named, d.all_top_k = all_named;
    if (masks_of_rank[rank].host)
        d.sample.filters.mask = (const uint32_t *)t_at(&masks_of_rank[rank], side);
    return d;
}

/* Outputs of the host, one behind the other; to be freed. */
static char *copy_outputs(size_t *bytes) {
    char *copy, *to;
    *bytes = 0;
    for (int i = 0; i < t_num_buffers; ++i)
        if (t_buffers[i].is_output) *bytes += t_buffers[i].total;
    copy = to = (char *)malloc(*bytes + 1);
    if (!copy) t_die(__FILE__, __LINE__, "malloc", "no memory");
    for (int i = 0; i < t_num_buffers; ++i)
        if (t_buffers[i].is_output) {
            memcpy(to, t_buffers[i].host_base, t_buffers[i].total);
            to += t_buffers[i].total;
        }
    return copy;
}

static void poison_outputs(void) {
    for (int i = 0; i < t_num_buffers; ++i)
        if (t_buffers[i].is_output) memset(t_buffers[i].host_base, T_POISON, t_buffers[i].total);
}

/* All ranks, step by step. What each says in the end must be what the host's outputs are now. The
   records of the reference's ranks go to *records, or are compared with these; to be freed. */
static void run_ranks(const stage *g, const parts *p, const mischief *m, int side,
                      char *records[MAX_EXCHANGES]) {
    size_t bytes;
    char *want = copy_outputs(&bytes);
    exchange x;
    memset(&x, 0, sizeof x);
    const int64_t scratch_bytes =
        specv_shard_scratch_bytes(g->c.s.batch, g->c.s.max_draft, g->c.s.vocab, p->count);
    for (int rank = 0; rank < p->count; ++rank) {
        x.scratch[rank] = new_bytes(scratch_bytes, side);
#if T_DEVICE
        if (side == T_DEVICE_SIDE) T_CUDA(cudaMemset(x.scratch[rank], 0, SPECV_TICKET_BYTES));
#endif
    }
    calls = bytes_sent = 0;
    for (int step = 0;; ++step) {
        specv_verify_shard_desc d = describe_rank(g, p, 0, side);
        d.step = step;
        x.bytes[0] = specv_shard_record_bytes(&d);
        x.stride[0] = x.bytes[0] + (g->c.gap ? 32 : 0);
        CHECK(x.bytes[0] >= 0 && x.bytes[0] % 16 == 0);
        CHECK(step < MAX_EXCHANGES + 1);
        if (x.bytes[0] > 0) x.gathered[0] = new_bytes(x.stride[0] * p->count, side);
        for (int rank = 0; rank < p->count; ++rank) {
            d = describe_rank(g, p, rank, side);
            d.step = step;
            d.sample.scratch = x.scratch[rank], d.sample.scratch_bytes = scratch_bytes;
            if (x.bytes[0] > 0) d.record = x.gathered[0] + rank * x.stride[0];
            d.gathered = x.gathered[1];
            d.record_stride_bytes = g->c.gap ? x.stride[1] : 0;
            if (m && m->spoil && m->rank == rank && (m->step < 0 || m->step == step))
                m->spoil(&d, side);
            if (side == T_HOST_SIDE) poison_outputs();
            if (side == T_DEVICE_SIDE) t_poison_device();
            CHECK_EQ(run_step(&d, side), SPECV_OK, rank);
            if (x.bytes[0] > 0) continue;
            if (side == T_HOST_SIDE) {
                size_t same;
                char *seen = copy_outputs(&same);
                size_t at = 0;
                while (at < bytes && seen[at] == want[at]) ++at;
                CHECK_EQ(at, bytes, rank);
                free(seen);
                t_check_host();
            } else {
                t_check_device();
            }
        }
        if (x.gathered[1]) free_bytes(x.gathered[1], side);
        x.gathered[1] = x.gathered[0], x.gathered[0] = NULL;
        x.bytes[1] = x.bytes[0], x.stride[1] = x.stride[0];
        if (x.bytes[0] <= 0) break;
        calls += 1, bytes_sent += x.bytes[0];
        if (side == T_HOST_SIDE) {
            records[step] = (char *)malloc((size_t)(x.stride[1] * p->count));
            memcpy(records[step], x.gathered[1], (size_t)(x.stride[1] * p->count));
        }
#if T_DEVICE
        if (side == T_DEVICE_SIDE) {
            char *seen = (char *)malloc((size_t)(x.stride[1] * p->count));
            T_CUDA(cudaMemcpy(seen, x.gathered[1], (size_t)(x.stride[1] * p->count),
                              cudaMemcpyDeviceToHost));
            int64_t at = 0, all = x.stride[1] * p->count;
            while (at < all && seen[at] == records[step][at]) ++at;
            CHECK_EQ(at, all, step); /* the first byte that differs */
            free(seen);
        }
#endif
        if (m && m->shuffle && (m->step < 0 || m->step == step))
            m->shuffle(x.gathered[1], x.stride[1], p->count, x.bytes[1], side);
    }
    for (int rank = 0; rank < p->count; ++rank) free_bytes(x.scratch[rank], side);
    free(want);
}

/* The host's outputs are what every rank has to say. */
static void run_both_sides(const stage *g, const parts *p, const mischief *m) {
    char *records[MAX_EXCHANGES] = {NULL};
    run_ranks(g, p, m, T_HOST_SIDE, records);
#if T_DEVICE
    run_ranks(g, p, m, T_DEVICE_SIDE, records);
#endif
    for (int i = 0; i < MAX_EXCHANGES; ++i) free(records[i]);
}

/* How often ranks exchange records. */
static int exchanges_of(const stage *g) {
    const int rule = g->c.rule, has_all = all_named && g->filters.top_k.host;
    const int has_q = g->draft.host && (rule == SPECV_RULE_TOKEN || rule == SPECV_RULE_BLOCK);
    const int of_all = g->c.filter_order == SPECV_TOP_P_OF_ALL &&
                       (g->filters.top_p.host || (has_q && g->draft_filters.top_p.host));
    if (rule == SPECV_RULE_GREEDY) return 1;
    if (rule == SPECV_RULE_COUPLED && !has_all)
        return 1 + (of_all || g->logprob.host || g->lse.host || g->out_logprob.host);
    if (has_all) return 1 + of_all;
    return 3 + has_q;
}

/* What a rank sends where all rows have limits: all of it at once. */
static int64_t bytes_of_named(const stage *g) {
    const scene *c = &g->c;
    const int has_q = g->draft.host && (c->rule == SPECV_RULE_TOKEN || c->rule == SPECV_RULE_BLOCK);
    const int64_t rows = c->s.layout == CSR ? g->b.num_draft_tokens + c->s.batch
                                            : (int64_t)c->s.batch * (c->s.max_draft + 1);
    const int sides = 1 + (has_q && g->draft_filters.top_k.host);
    const int words = 1 + (has_q || c->rule == SPECV_RULE_COUPLED) + sides * most_named;
    return (16 + 4 * c->s.batch + 8 * rows * words + 15) / 16 * 16;
}

static void run_scene(scene *c, int ranks, int even) {
    parts p = draw_parts(ranks, c->s.vocab, even);
    stage g;
    c->s.keep_status = 0;
    if (c->rule == SPECV_RULE_COUPLED && t_chance(50)) c->null_extra = 1, c->tell = TELL_NUM_TOP;
    t_note(" rule %d, %d ranks%s, type %d, odd %#x, T %g, gap %d,", c->rule, ranks,
           even ? "" : " uneven", c->target_dtype, c->odd, (double)c->temperature, c->gap);
    batch_note(&c->s);
    stage_make(&g, c);
    t_upload();
    run_reference(&g);
    run_both_sides(&g, &p, NULL);
    CHECK_EQ(calls, c->s.batch ? exchanges_of(&g) : 0, c->rule);
    batch_free(&g.b);
}

/* The outputs of a row of which nothing was looked at. */
static void expect_inert(const stage *g, int row, uint32_t status) {
    const int64_t columns = g->c.s.max_draft + 1;
    float *of_drafts = (float *)(void *)g->target_logprob.host;
    float *of_emitted = (float *)(void *)g->out_logprob.host;
    if (g->b.accepted.host) put_word(&g->b.accepted, row, 0);
    if (g->b.emitted.host) put_word(&g->b.emitted, row, 0);
    if (g->b.mismatch.host) g->b.mismatch.host[row] = 0;
    if (g->b.finished.host) g->b.finished.host[row] = 0;
    if (g->b.next.host) put_token(&g->b.next, g->c.s.dtype, row, -1);
    for (int64_t j = 0; j < columns && g->b.tokens.host; ++j)
        put_token(&g->b.tokens, g->c.s.dtype, row * g->b.out_stride + j, -1);
    if (g->b.status.host) put_word(&g->b.status, row, (int32_t)status);
    if (g->logprob.host) ((float *)(void *)g->logprob.host)[row] = 0;
    if (g->lse.host) ((float *)(void *)g->lse.host)[row] = 0;
    for (int64_t j = 0; j < columns && of_emitted; ++j) of_emitted[row * columns + j] = 0;
    for (int64_t j = 0; j < columns - 1 && of_drafts; ++j) of_drafts[row * (columns - 1) + j] = 0;
}

static const int some_rules[] = {SPECV_RULE_GREEDY, SPECV_RULE_COUPLED, SPECV_RULE_TOKEN,
                                 SPECV_RULE_BLOCK, SPECV_RULE_SCORE};

/* Any step, any division. */
static void test_equal(void) {
    for (int i = 0; i < (t.cases ? t.cases : t.quick ? 24 : T_DEVICE ? 160 : 1500); ++i) {
        t_case("equal:");
        scene c = random_scene((int)(t.case_seed % NUM_RULES));
        c.rule = T_PICK(some_rules);
        c.target_dtype = (int)t_below(3), c.draft_dtype = (int)t_between(NO_DRAFT_SCORES, 2);
        if (t_chance(30)) c.odd |= ODD_HALF;
        c.s.vocab = t_chance(20) ? T_PICK(vocabs) : t_between(1, 9000);
        if (c.s.vocab < 8) c.s.endings = 0, c.s.num_eos = 0;
        if (c.s.vocab == 1) c.s.spread = SPREAD_ALL;
        c.bonus = t_chance(20);
        if (t_chance(30)) c.filters = HAS_MASK | (unsigned)t_below(4) << 4;
        if (t_chance(20) && c.draft_dtype >= 0 && c.s.max_draft > 0)
            c.draft_filters = HAS_MASK | (unsigned)t_below(4) << 4;
        run_scene(&c, 1 + (int)t_below(MAX_RANKS), t_chance(40));
    }
}

/* Does a side of a row ask for more than ranks name? */
static int asks_too_much(const stage *g, const stage_filters *f, int slot) {
    const int32_t vocab = (int32_t)g->c.s.vocab, top_k = word_at(&f->top_k, slot);
    const float p = f->top_p.host ? ((const float *)(void *)f->top_p.host)[slot] : 1;
    const float least = f->min_p.host ? ((const float *)(void *)f->min_p.host)[slot] : 0;
    if (top_k > 0 && top_k < vocab) return top_k > most_named;
    return all_named || (p >= 0 && p < 1) || (least > 0 && least <= 1);
}

/* Is the row none that ranks can do? */
static int is_refused(const stage *g, int row) {
    const int slot = slot_of(g, row), n = g->b.rows[row].n_draft;
    const t_buf *of_draft = g->draft_temperature.host ? &g->draft_temperature : &g->temperature;
    if (!g->b.rows[row].live || g->b.rows[row].first < 0) return 0;
    if (g->c.rule == SPECV_RULE_GREEDY) return 0;
    if (specv_temperature_is_0(((const float *)(void *)g->temperature.host)[slot])) return 0;
    if (g->filters.top_k.host && (n > 0 || !g->c.bonus) && asks_too_much(g, &g->filters, slot))
        return 1;
    if (!g->draft_filters.top_k.host || n == 0) return 0;
    if (g->c.rule != SPECV_RULE_TOKEN && g->c.rule != SPECV_RULE_BLOCK) return 0;
    if (specv_temperature_is_0(((const float *)(void *)of_draft->host)[slot])) return 0;
    return asks_too_much(g, &g->draft_filters, slot);
}

/* Most rows' top_k is one that ranks serve. */
static void tame_top_k(const stage *g, const stage_filters *f) {
    for (int slot = 0; f->top_k.host && slot < g->num_slots; ++slot)
        if (t_chance(85)) put_word(&f->top_k, slot, (int32_t)t_between(1, most_named));
}

/* top_k, and top_p and min_p behind it, in any order: of few ids and many, among rows without, with
   and without the word that all have one; all: with it, how often of 100. */
static void run_limits(scene *c, int ranks, int even, int all) {
    static const int32_t most[] = {1, 2, 20, 50, 129, SPECV_SHARD_TOP_K};
    parts p = draw_parts(ranks, c->s.vocab, even);
    stage g;
    most_named = T_PICK(most);
    all_named = t_chance(all) && (c->draft_dtype < 0 || c->draft_filters & HAS_TOP_K);
    c->s.keep_status = 0;
    if (c->tell & ~(unsigned)TELL_LOGPROB) c->tell = 0;
    t_note(
        " rule %d, %d ranks%s, types %d %d, odd %#x, T %g, filters %#x %#x, order %d, most %d%s,",
        c->rule, ranks, even ? "" : " uneven", c->target_dtype, c->draft_dtype, c->odd,
        (double)c->temperature, c->filters, c->draft_filters, c->filter_order, (int)most_named,
        all_named ? ", all" : "");
    batch_note(&c->s);
    stage_make(&g, c);
    tame_top_k(&g, &g.filters), tame_top_k(&g, &g.draft_filters);
    t_upload();
    run_reference(&g);
    for (int row = 0; row < c->s.batch; ++row) {
        const uint32_t status = g.b.rows[row].status & SPECV_ROW_BAD_LENGTH;
        if (is_refused(&g, row)) expect_inert(&g, row, status | SPECV_ROW_BAD_FILTER);
    }
    run_both_sides(&g, &p, NULL);
    CHECK_EQ(calls, c->s.batch ? exchanges_of(&g) : 0, c->rule);
    if (calls == 1 && all_named && c->rule != SPECV_RULE_GREEDY)
        CHECK_EQ(bytes_sent, bytes_of_named(&g), c->rule);
    batch_free(&g.b);
    most_named = all_named = 0;
}

static unsigned random_limits(void) {
    return HAS_TOP_K | (unsigned)t_below(4) * HAS_TOP_P | (t_chance(30) ? (unsigned)HAS_MASK : 0);
}

/* Of vocabularies of models: lists of few ids and of many, and rows too flat for a list. */
static void test_large_limits(void) {
    static const int sizes[] = {32000, 128256, 262144}, ranks[] = {2, 5, 16};
    for (int turn = 0; turn < (t.quick ? 4 : 24); ++turn) {
        scene c = plain_scene(2, 2, sizes[turn / 4 % T_COUNT(sizes)]);
        t_case("large limits %d:", turn);
        c.rule = some_rules[1 + turn % 4];
        c.draft_dtype = turn % 3 ? NO_DRAFT_SCORES : turn % 2, c.target_dtype = turn % 3;
        c.filters = HAS_TOP_K | (turn % 2 ? (unsigned)HAS_TOP_P : 0), c.filter_order = turn % 3;
        if (c.draft_dtype >= 0 && turn % 2) c.draft_filters = HAS_TOP_K;
        c.spread = turn % 4 == 1 ? 0.001f : 3;
        if (turn % 4 == 3) c.odd = ODD_TIES;
        run_limits(&c, ranks[turn % T_COUNT(ranks)], turn % 2, 50);
    }
    for (int turn = 0; turn < (t.quick ? 2 : 6); ++turn) { /* target and draft, one exchange */
        scene c = plain_scene(1, 2, sizes[turn / 2 % T_COUNT(sizes)]);
        t_case("large limits of both %d:", turn);
        c.rule = turn % 2 ? SPECV_RULE_BLOCK : SPECV_RULE_TOKEN;
        c.draft_dtype = turn % 3, c.target_dtype = (turn + turn / 2) % 3;
        c.filters = HAS_TOP_K | HAS_TOP_P, c.draft_filters = HAS_TOP_K, c.odd = ODD_HALF;
        run_limits(&c, ranks[turn % T_COUNT(ranks)], turn % 2, 100);
    }
}

/* 255 ids of a tile of their own that weigh about 2^-32 each: all together what decides whether the
   float of the sum is 1 or the next one. Of each alone a row's units hold no fraction. */
static void test_fine_sums(void) {
    enum { ROWS = 100 };
    for (int turn = 0; turn < 2; ++turn) {
        scene c = plain_scene(ROWS, 0, 2048);
        const parts p = draw_parts(1 + turn, c.s.vocab, 1);
        stage g;
        t_case("fine sums: %d ranks", p.count);
        c.rule = SPECV_RULE_TOKEN, c.draft_dtype = NO_DRAFT_SCORES;
        c.filters = HAS_TOP_K, c.top_k = SPECV_SHARD_TOP_K;
        most_named = SPECV_SHARD_TOP_K, all_named = 1;
        stage_make(&g, &c);
        for (int row = 0; row < ROWS; ++row)
            for (int id = 0; id < 2048; ++id)
                put_score(&g.target, SPECV_LOGITS_F32, (int64_t)row * 2048 + id,
                          id == 3                   ? 0
                          : id >= 1024 && id < 1279 ? -22.1768f - 0.0005f * (float)(row - ROWS / 2)
                                                    : -80);
        t_upload();
        run_reference(&g);
        run_both_sides(&g, &p, NULL);
        most_named = all_named = 0;
        batch_free(&g.b);
    }
}

/* What p has more of than q are ids of about 2^-39, a few units of what tiles are chosen by: their
   fractions decide in which tile the token is. Drafts have no p, and q hardly any. */
static void test_fine_residuals(void) {
    enum { ROWS = 40, VOCAB = 4096, DRAFT = 7 };
    for (int turn = 0; turn < (t.quick ? 2 : 6); ++turn) {
        scene c = plain_scene(ROWS, 1, VOCAB);
        const parts p = draw_parts(1 + turn, c.s.vocab, 1);
        const float none = infinity(-1);
        stage g;
        t_case("fine residuals: %d ranks", p.count);
        c.rule = turn % 2 ? SPECV_RULE_BLOCK : SPECV_RULE_TOKEN, c.null_extra = 1;
        c.tell = TELL_NUM_TOP;
        c.filters = c.draft_filters = HAS_TOP_K, c.top_k = 60, most_named = 60, all_named = 1;
        stage_make(&g, &c);
        for (int64_t row = 0; row < ROWS; ++row) {
            put_token(&g.b.draft, c.s.dtype, row, DRAFT);
            for (int64_t x = 0; x < VOCAB; ++x) {
                const float small = x % 100 == 99 ? -27 - 2 * (float)t_uniform() : none;
                put_score(&g.target, SPECV_LOGITS_F32, 2 * row * VOCAB + x, x == 3 ? 0 : small);
                put_score(&g.draft, SPECV_LOGITS_F32, row * VOCAB + x,
                          x == 3       ? 0
                          : x == DRAFT ? -20
                                       : none);
            }
        }
        t_upload();
        run_reference(&g);
        for (int row = 0; row < ROWS; ++row) CHECK_EQ(word_at(&g.b.accepted, row), 0, row);
        run_both_sides(&g, &p, NULL);
        CHECK_EQ(calls, 1, turn);
        most_named = all_named = 0;
        batch_free(&g.b);
    }
}

static void test_limits(void) {
    for (int i = 0; i < (t.cases ? t.cases : t.quick ? 24 : T_DEVICE ? 160 : 1500); ++i) {
        t_case("limits:");
        scene c = random_scene((int)(t.case_seed % NUM_RULES));
        c.rule = T_PICK(some_rules);
        c.target_dtype = (int)t_below(3), c.draft_dtype = (int)t_between(NO_DRAFT_SCORES, 2);
        if (t_chance(30)) c.odd |= ODD_HALF;
        c.s.vocab = t_chance(20) ? T_PICK(vocabs) : t_between(1, 9000);
        if (c.s.vocab < 8) c.s.endings = 0, c.s.num_eos = 0;
        if (c.s.vocab == 1) c.s.spread = SPREAD_ALL;
        c.bonus = t_chance(20);
        if (t_chance(80)) c.temperature = 1;
        c.filters = random_limits(), c.filter_order = (int)t_below(3);
        if (c.draft_dtype >= 0 && c.s.max_draft > 0 && t_chance(60))
            c.draft_filters = random_limits();
        run_limits(&c, 1 + (int)t_below(MAX_RANKS), t_chance(40), 50);
    }
}

/* One exchange for target and draft, both with limits: drafts that are rejected with half of the
   weight, laws that are alike or have nothing in common, rows of one id or none, more rows than a
   block keeps at hand. */
static void test_alone(void) {
    static const unsigned odd[] = {
        ODD_HALF,  ODD_HALF | ODD_TIES, ODD_HALF | ODD_NAN, ODD_HALF | ODD_MASK,
        ODD_SAME,  ODD_DISJOINT,        ODD_LIAR,           ODD_TOP,
        ODD_EMPTY, ODD_TIES | ODD_SAME};
    for (int i = 0; i < (t.cases ? t.cases : t.quick ? 40 : T_DEVICE ? 160 : 1500); ++i) {
        t_case("alone:");
        scene c = random_scene((int)(t.case_seed % NUM_RULES));
        const int ranks = 1 + (int)t_below(MAX_RANKS);
        c.rule = i % 2 ? SPECV_RULE_BLOCK : SPECV_RULE_TOKEN;
        c.target_dtype = (int)t_below(3), c.draft_dtype = (int)t_below(3);
        c.s.vocab = t_chance(20) ? 1024 * t_between(1, 16) : t_between(257, 9000);
        c.s.max_draft = t_chance(10) ? 35 : (int)t_between(1, 6);
        c.odd = T_PICK(odd), c.bonus = t_chance(20);
        if (t_chance(90)) c.temperature = 1;
        c.filters = random_limits(), c.draft_filters = random_limits();
        c.filter_order = (int)t_below(3);
        run_limits(&c, ranks, t_chance(40), 100);
    }
}

/* Bits that are equal have the law of the operation that they are equal to. That they are, over
   many steps; tests/shards.sh asks for 100,000. */
static void test_steps(void) {
#if T_DEVICE
    t_skip("steps of the reference");
#else
    const long steps = t.cases ? t.cases : t.quick ? 200 : 2000;
    long rows = 0, emitted = 0;
    for (long i = 0; i < steps; ++i) {
        scene c = plain_scene(4, 1 + (int)t_below(4), (int)t_between(1025, 3000));
        const int ranks = (int)t_between(2, 3), limits = (int)t_below(3);
        parts p;
        stage g;
        t_case("step:");
        c.rule = some_rules[i % T_COUNT(some_rules)], c.temperature = 1, c.null_extra = 1;
        c.tell = TELL_NUM_TOP; /* nothing that needs exchanges of its own */
        c.draft_dtype = (int)t_between(NO_DRAFT_SCORES, 2), c.target_dtype = (int)t_below(3);
        c.odd = t_chance(70) ? ODD_HALF : 0;
        if (limits) c.filters = HAS_TOP_K | (unsigned)t_below(4) * HAS_TOP_P;
        if (limits && c.draft_dtype >= 0) c.draft_filters = HAS_TOP_K;
        c.top_k = 1 + (int)t_below(60), c.filter_order = (int)t_below(3);
        if (limits) most_named = 60, all_named = limits == 2;
        p = draw_parts(ranks, c.s.vocab, t_chance(50));
        stage_make(&g, &c);
        t_upload();
        run_reference(&g);
        run_both_sides(&g, &p, NULL);
        for (int row = 0; row < c.s.batch; ++row) emitted += word_at(&g.b.emitted, row);
        rows += c.s.batch;
        most_named = all_named = 0;
        batch_free(&g.b);
    }
    printf("steps by ranks: %ld, of %ld requests' rows with %ld tokens: compared bit by bit\n",
           steps, rows, emitted);
#endif
}

/* Each step of a rank alone is the dependent of the one before, the first one of the kernel that
   writes the logits: all wait before they read. */
static void test_chained(void) {
#if T_DEVICE
    for (int turn = 0; turn < (t.quick ? 6 : 18); ++turn) {
        scene c = plain_scene(3, 2, 1500);
        const int64_t count = 3 * 3 * 1500;
        const parts p = draw_parts(1, 1500, 1);
        specv_verify_shard_desc d;
        char *record[2];
        float *made;
        stage g;
        c.rule = some_rules[(turn + 1) % T_COUNT(some_rules)];
        c.draft_dtype = turn % 2 ? NO_DRAFT_SCORES : (int)SPECV_LOGITS_F32, c.null_extra = 1;
        c.tell = TELL_NUM_TOP;
        if (turn % 3) c.filters = HAS_TOP_K, c.top_k = 20, most_named = 30;
        if (turn % 3 && c.draft_dtype >= 0) c.draft_filters = HAS_TOP_K;
        all_named = turn % 3 == 2;
        t_case("chained steps: rule %d, turn %d", c.rule, turn);
        stage_make(&g, &c);
        t_upload();
        run_reference(&g);
        d = describe_rank(&g, &p, 0, T_DEVICE_SIDE);
        d.sample.scratch_bytes = specv_shard_scratch_bytes(3, 2, 1500, 1);
        d.sample.scratch = new_scratch(d.sample.scratch_bytes);
        record[0] = new_bytes(1 << 16, T_DEVICE_SIDE),
        record[1] = new_bytes(1 << 16, T_DEVICE_SIDE);
        T_CUDA(cudaMalloc((void **)&made, 4 * count));
        T_CUDA(cudaMemset(made, 0xff, 4 * count));
        t_produce(made, d.sample.target.data, 4 * count);
        d.sample.target.data = made;
        for (d.step = 0;; ++d.step) {
            const int64_t bytes = specv_shard_record_bytes(&d);
            CHECK(bytes >= 0 && bytes <= 1 << 16);
            d.record = bytes ? record[d.step % 2] : NULL;
            d.gathered = d.step ? record[(d.step + 1) % 2] : NULL;
            d.sample.verify.chained = SPECV_CHAINED_AFTER | (bytes ? SPECV_CHAINED_BEFORE : 0);
            CHECK_EQ(specv_verify_shard(&d, 0), SPECV_OK, d.step);
            if (bytes <= 0) break;
        }
        CHECK_EQ(d.step, exchanges_of(&g), turn);
        t_check_dependents();
        t_check_device();
        free_bytes(record[0], T_DEVICE_SIDE), free_bytes(record[1], T_DEVICE_SIDE);
        T_CUDA(cudaFree(made));
        T_CUDA(cudaFree(d.sample.scratch));
        most_named = all_named = 0;
        batch_free(&g.b);
    }
#else
    t_skip("dependent launches need a device");
#endif
}

#if T_DEVICE
enum { MAX_TILES = 16 };

/* A row of several ranks, one after the other, in a warp: token, log-probability, largest id. */
static __global__ void by_hand(const char *scores, int dtype, int vocab, int ranks,
                               int tiles_of_rank, float temperature, uint64_t uniform,
                               int32_t *token, float *logprob) {
    __shared__ specv_tile tiles[MAX_TILES], shards[MAX_TILES];
    const int what = SPECV_TILE_SUM, lane = (int)threadIdx.x, bytes = dtype ? 2 : 4;
    const specv_scale scale = specv_softmax_scale(temperature);
    const specv_noise none = {0, 0, 0, 0};
    for (int r = 0; r < ranks; ++r) {
        const int first = r * tiles_of_rank;
        int end = first + tiles_of_rank;
        while (end > first && (end - 1) * SPECV_TILE_IDS >= vocab) --end;
        for (int t = first; t < end; ++t) {
            float score[32];
            const int unit = dtype ? 8 : 4;
            specv_warp_load_tile(score, scores, dtype, vocab, t);
            const specv_tile tile = specv_warp_tile_stats(score, unit, t, what, &scale, &none);
            if (lane == 0) tiles[t] = tile;
        }
        __syncwarp();
        const specv_tile mine = specv_warp_shard_tile(tiles + first, end - first, what, &scale);
        if (lane == 0) shards[r] = mine;
    }
    __syncwarp();
    specv_distribution p = specv_warp_merge_tiles(shards, ranks, what, 0, &scale);
    __syncwarp();
    for (int r = 0; r < ranks; ++r) {
        const int first = r * tiles_of_rank;
        int end = first + tiles_of_rank;
        while (end > first && (end - 1) * SPECV_TILE_IDS >= vocab) --end;
        const uint64_t sum = specv_warp_shard_sum(tiles + first, end - first, &p, &scale);
        if (lane == 0) shards[r].sum = sum;
        if (lane == 0 && sum) shards[r].max = p.max;
    }
    __syncwarp();
    p = specv_warp_merge_tiles(shards, ranks, what, 0, &scale);
    const specv_shard_place place = specv_thread_choose_shard(shards, ranks, uniform);
    int32_t id = p.kind == SPECV_ONE_HOT ? p.id : -1;
    if (p.kind == SPECV_SOFTMAX && place.rank >= 0) {
        const int first = place.rank * tiles_of_rank, from = first * SPECV_TILE_IDS;
        int end = first + tiles_of_rank;
        while (end > first && (end - 1) * SPECV_TILE_IDS >= vocab) --end;
        const int ids = (end * SPECV_TILE_IDS < vocab ? end * SPECV_TILE_IDS : vocab) - from;
        id = from + specv_warp_draw_in_shard(scores + (int64_t)from * bytes, dtype, ids,
                                             tiles + first, end - first, &p, &scale, place);
    }
    if (lane != 0) return;
    *token = id, *logprob = 0;
    if (id >= 0 && p.kind == SPECV_SOFTMAX)
        *logprob = specv_log_probability(
            &p, &scale,
            dtype == SPECV_LOGITS_F32 ? ((const float *)(const void *)scores)[id]
            : dtype == SPECV_LOGITS_BF16
                ? specv_bf16_float(((const uint16_t *)(const void *)scores)[id])
                : specv_f16_float(((const uint16_t *)(const void *)scores)[id]));
}
#endif

/* The public functions, put together as their contracts say: A8 of all columns. */
static void test_by_hand(void) {
#if T_DEVICE
    int32_t *token_there, token;
    float *logprob_there, logprob;
    T_CUDA(cudaMalloc((void **)&token_there, 4));
    T_CUDA(cudaMalloc((void **)&logprob_there, 4));
    for (int turn = 0; turn < (t.quick ? 40 : 300); ++turn) {
        scene c =
            plain_scene(1, 0, turn % 3 ? (int)t_between(1, 9000) : (int)t_between(9000, 16000));
        const int tiles = (int)((c.s.vocab + SPECV_TILE_IDS - 1) / SPECV_TILE_IDS);
        const int ranks = (int)t_between(1, 6);
        specv_sample_desc d = SPECV_ZERO;
        stage g;
        t_case("by hand:");
        t_note(" %d ids, %d ranks", (int)c.s.vocab, ranks);
        c.target_dtype = turn % 3, c.draft_dtype = NO_DRAFT_SCORES, c.spread = turn % 5 ? 3 : 0.02f;
        c.odd = turn % 7 == 0 ? ODD_MASK : turn % 7 == 1 ? ODD_TIES : 0, c.temperature = 0.7f;
        stage_make(&g, &c);
        t_upload();
        d.batch = 1, d.vocab = c.s.vocab, d.token_dtype = SPECV_I32;
        d.scores.data = t_at(&g.target, T_HOST_SIDE), d.scores.dtype = c.target_dtype;
        d.temperature = (const float *)t_at(&g.temperature, T_HOST_SIDE);
        d.seed = (const uint64_t *)t_at(&g.seed, T_HOST_SIDE);
        d.position = (const int32_t *)t_at(&g.position, T_HOST_SIDE);
        d.token = &token, d.logprob = &logprob;
        d.scratch = no_scratch(), d.scratch_bytes = INT64_MAX;
        CHECK_EQ(specv_ref_sample(&d), SPECV_OK, turn);
        const specv_random x =
            specv_philox(d.seed[0], (uint32_t)d.position[0], 0, 0, SPECV_TAG_DRAW);
        by_hand<<<1, 32>>>((const char *)t_at(&g.target, T_DEVICE_SIDE), c.target_dtype,
                           (int)c.s.vocab, ranks, (tiles + ranks - 1) / ranks, d.temperature[0],
                           (uint64_t)x.x[1] << 32 | x.x[0], token_there, logprob_there);
        T_CUDA(cudaGetLastError());
        int32_t seen;
        float its;
        T_CUDA(cudaMemcpy(&seen, token_there, 4, cudaMemcpyDeviceToHost));
        T_CUDA(cudaMemcpy(&its, logprob_there, 4, cudaMemcpyDeviceToHost));
        CHECK_EQ(seen, token, turn);
        CHECK_EQ(specv_float_bits(its), specv_float_bits(logprob), turn);
        batch_free(&g.b);
    }
    T_CUDA(cudaFree(token_there));
    T_CUDA(cudaFree(logprob_there));
#else
    t_skip("device functions need a device");
#endif
}

/* A rank reads of a mask what is of its own ids: whatever else there is. */
static void test_masks(void) {
    for (int turn = 0; turn < (t.quick ? 5 : 30); ++turn) {
        scene c = plain_scene(3, 2, 5000);
        stage g;
        t_case("masks:");
        c.rule = some_rules[turn % T_COUNT(some_rules)];
        c.draft_dtype = turn % 2 ? NO_DRAFT_SCORES : turn % 3, c.target_dtype = turn % 3;
        c.filters = HAS_MASK | (turn % 2 ? (unsigned)HAS_TOP_K : 0), c.top_k = 1 + turn;
        const parts p = draw_parts(2 + turn % 4, c.s.vocab, turn % 3);
        stage_make(&g, &c);
        most_named = turn % 2 ? 32 : 0;
        const int64_t rows = g.filters.num_rows, stride = g.filters.stride;
        for (int rank = 0; rank < p.count; ++rank) {
            const int64_t low = p.first[rank] / 32, high = (p.first[rank] + p.ids[rank] + 31) / 32;
            masks_of_rank[rank] = t_in((int64_t)g.filters.mask.bytes, 0);
            for (int64_t i = 0; i < rows * stride; ++i)
                ((uint32_t *)(void *)masks_of_rank[rank].host)[i] =
                    p.ids[rank] && i % stride >= low && i % stride < high
                        ? ((const uint32_t *)(void *)g.filters.mask.host)[i]
                        : (uint32_t)t_random();
        }
        t_upload();
        run_reference(&g);
        run_both_sides(&g, &p, NULL);
        memset(masks_of_rank, 0, sizeof masks_of_rank);
        most_named = 0;
        batch_free(&g.b);
    }
}

/* Vocabularies of models, 1 to 16 ranks. */
static void test_vocabularies(void) {
    static const int sizes[] = {1024, 32000, 128256, 151936, 262144}, ranks[] = {1, 2, 3, 8, 16};
    for (int i = 0; i < T_COUNT(sizes); ++i)
        for (int rule = 0; rule < T_COUNT(some_rules); ++rule) {
            scene c = plain_scene(2, 2, sizes[i]);
            if (t.quick && (i + rule) % 3) continue;
            c.rule = some_rules[rule], c.draft_dtype = i % 2 ? (i + rule) % 3 : NO_DRAFT_SCORES;
            c.target_dtype = (i + rule) % 3;
            t_case("vocabulary %d:", sizes[i]);
            run_scene(&c, ranks[(i + 2 * rule) % T_COUNT(ranks)], i % 2);
        }
}

/* Rows with accidents, one kind at a time: NaN on one rank is said by all, ranks whose ids are all
   -inf, rows without any score, equal scores on several ranks. */
static void test_accidents(void) {
    for (int bit = 0; bit < 10; ++bit)
        for (int rule = 0; rule < T_COUNT(some_rules); ++rule) {
            scene c = plain_scene(5, 3, 5000);
            if (t.quick && (bit + rule) % 2) continue;
            c.rule = some_rules[rule], c.draft_dtype = rule % 2 ? NO_DRAFT_SCORES : bit % 3;
            c.odd = 1u << bit;
            c.target_dtype = bit % 3, c.temperature = bit % 2 ? -1.f : 1.f;
            t_case("accident %d:", bit);
            run_scene(&c, 2 + bit % 5, bit % 2);
        }
}

/* More drafts than lanes, and more rows than a block keeps at hand. */
static void test_long_rows(void) {
    for (int turn = 0; turn < (t.quick ? 4 : 16); ++turn) {
        scene c = plain_scene(2, turn % 2 ? 70 : 35, 2100);
        c.rule = some_rules[turn % T_COUNT(some_rules)];
        c.draft_dtype = turn % 3 - 1, c.target_dtype = turn / 3 % 3;
        c.odd = turn % 4 ? (unsigned)ODD_SAME : (unsigned)ODD_HALF;
        t_case("long rows:");
        run_scene(&c, 1 + turn % 4, turn % 2);
    }
}

/* One row without drafts, its scores given: what ranks say by themselves, no other run asked. */
static void run_known(const parts *p, int64_t vocab, const float *score, int64_t token,
                      uint32_t status) {
    scene c = plain_scene(1, 0, (int)vocab);
    stage g;
    c.rule = SPECV_RULE_GREEDY, c.draft_dtype = NO_DRAFT_SCORES, c.null_extra = 1;
    c.tell = TELL_NUM_TOP;
    stage_make(&g, &c);
    memcpy(g.target.host, score, sizeof(float) * (size_t)vocab);
    put_token(&g.b.next, c.s.dtype, 0, token);
    put_token(&g.b.tokens, c.s.dtype, 0, token);
    put_word(&g.b.accepted, 0, 0), put_word(&g.b.emitted, 0, token >= 0);
    g.b.mismatch.host[0] = 0, g.b.finished.host[0] = 0;
    put_word(&g.b.status, 0, (int32_t)status);
    t_upload();
    run_both_sides(&g, p, NULL);
    batch_free(&g.b);
}

/* The largest score on either side of each border between ranks, on several ranks at once, nowhere:
   the lowest id that has it, by construction. */
static void test_borders(void) {
    enum { VOCAB = 5 * 1024 + 77 };
    static float score[VOCAB];
    const float none = infinity(-1), nan = specv_bits_float(0x7fc00000u);
    for (int turn = 0; turn < (t.quick ? 12 : 60); ++turn) {
        const int ranks = 1 + turn % 7;
        int64_t token = -1;
        uint32_t status = 0;
        t_case("border: %d ranks, turn %d", ranks, turn);
        const parts p = draw_parts(ranks, VOCAB, turn % 2);
        for (int i = 0; i < VOCAB; ++i) score[i] = t_chance(50) ? none : -normal(1) - 9;
        for (int i = 0; i < ranks && turn % 5; ++i) {
            const int32_t at = p.first[i] + (t_chance(50) ? 0 : p.ids[i] - 1);
            if (p.ids[i] == 0 || (turn % 5 == 1 && i != turn % ranks)) continue;
            score[at] = turn % 3 ? 40 : i % 2 ? 0.f : -0.f; /* equal ones */
            if (turn % 3 == 0) score[at] += 0;
        }
        if (turn % 5 == 0)
            for (int i = 0; i < VOCAB; ++i) score[i] = none;
        for (int i = 0; i < VOCAB; ++i)
            if (score[i] > (token < 0 ? none : score[token])) token = i;
        if (turn % 4 == 3) {
            const int64_t at = t_below(VOCAB);
            if (at != token) score[at] = nan, status |= SPECV_ROW_NAN;
        }
        if (token < 0) status |= SPECV_ROW_EMPTY;
        run_known(&p, VOCAB, score, token, status);
    }
}

/* One request, whose position 0 has the logits `score`, and the number that draws: the token. A
   draft has all of q, and no p, so that it is rejected. */
static void run_drawn(const parts *p, int rule, int dtype, const float *score, int64_t vocab,
                      int32_t draft, int top_k, float uniform, int32_t token) {
    const int drafts = draft >= 0;
    scene c = plain_scene(1, drafts, (int)vocab);
    stage g;
    c.rule = rule, c.target_dtype = c.draft_dtype = dtype, c.null_extra = 1, c.uniforms = 1;
    if (!drafts) c.draft_dtype = NO_DRAFT_SCORES;
    c.tell = TELL_NUM_TOP;
    if (top_k) c.filters = HAS_TOP_K, c.top_k = top_k, most_named = top_k, all_named = 1;
    if (top_k && drafts) c.draft_filters = HAS_TOP_K;
    stage_make(&g, &c);
    for (int64_t x = 0; x < vocab; ++x) {
        put_score(&g.target, dtype, x, score[x]);
        if (drafts) put_score(&g.draft, dtype, x, x == draft ? 1 : infinity(-1));
    }
    if (drafts) put_token(&g.b.draft, c.s.dtype, 0, draft);
    ((float *)(void *)g.sample.host)[0] = uniform;
    put_token(&g.b.next, c.s.dtype, 0, token);
    put_token(&g.b.tokens, c.s.dtype, 0, token);
    if (drafts) put_token(&g.b.tokens, c.s.dtype, 1, -1);
    put_word(&g.b.accepted, 0, 0), put_word(&g.b.emitted, 0, 1), put_word(&g.b.status, 0, 0);
    g.b.mismatch.host[0] = (unsigned char)drafts, g.b.finished.host[0] = 0;
    t_upload();
    run_both_sides(&g, p, NULL);
    CHECK_EQ(calls, exchanges_of(&g), rule);
    most_named = all_named = 0;
    batch_free(&g.b);
}

/* Draws that end at a border between ranks, to the last bit: of ids that weigh alike the one at
   u * count. All ids; or two, on either side of a border or far apart. */
static void test_points(void) {
    enum { VOCAB = 4096 };
    static float score[VOCAB];
    const float step = 5.9604644775390625e-8f; /* 2^-24 */
    for (int turn = 0; turn < (t.quick ? 24 : 240); ++turn) {
        const parts p = draw_parts(1 + (int)t_below(5), VOCAB, turn % 2);
        const int at = (int)t_below(p.count), is_before = turn / 2 % 2;
        const int32_t border = p.ids[at] && p.first[at] ? p.first[at] : 1024;
        const int rule = turn % 3 ? SPECV_RULE_TOKEN : SPECV_RULE_BLOCK, dtype = (int)t_below(3);
        const int top_k = turn / 4 % 3 ? 2 + 7 * (turn / 4 % 2) : 0;
        t_case("point: %d ranks, border %d, rule %d", p.count, (int)border, rule);
        if (turn % 4 == 1) {
            for (int x = 0; x < VOCAB; ++x) score[x] = 2;
            run_drawn(&p, rule, dtype, score, VOCAB, -1, 0,
                      (float)border / VOCAB - (is_before ? step : 0), border - is_before);
            continue;
        }
        const int32_t low = turn % 5 ? border - 1 : (int32_t)t_below(border);
        for (int x = 0; x < VOCAB; ++x) score[x] = x == low || x == border ? 3 : infinity(-1);
        int32_t draft = (int32_t)t_below(VOCAB);
        if (draft == low || draft == border) draft = 5;
        run_drawn(&p, rule, dtype, score, VOCAB, turn % 4 ? draft : -1, top_k,
                  is_before ? 0.5f - step : 0.5f, is_before ? low : border);
    }
}

/* ------------------------------------------------------------------------ what does not belong */

static uint64_t other_seeds[2][64];
static int32_t other_positions[2][64], other_top_k[64];

static void *on_side(void *host, void *device, size_t bytes, int side) {
#if T_DEVICE
    if (side == T_DEVICE_SIDE) {
        T_CUDA(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice));
        return device;
    }
#endif
    (void)device, (void)bytes, (void)side;
    return host;
}

static void *faults_on_device; /* room for what a spoiled descriptor points to */

static void spoil_seed(specv_verify_shard_desc *d, int side) {
    d->sample.seed =
        (const uint64_t *)on_side(other_seeds[0], faults_on_device, sizeof other_seeds[0], side);
}
static void spoil_position(specv_verify_shard_desc *d, int side) {
    d->sample.position = (const int32_t *)on_side(other_positions[0], faults_on_device,
                                                  sizeof other_positions[0], side);
}
static void spoil_top_k(specv_verify_shard_desc *d, int side) {
    d->sample.filters.top_k =
        (const int32_t *)on_side(other_top_k, faults_on_device, sizeof other_top_k, side);
}
static void spoil_order(specv_verify_shard_desc *d, int side) {
    (void)side;
    d->sample.filters.order = SPECV_MIN_P_TOP_K_TOP_P;
}
static void spoil_batch(specv_verify_shard_desc *d, int side) {
    (void)side;
    d->sample.verify.rows.batch -= 1;
}
static void spoil_length(specv_verify_shard_desc *d, int side) {
    (void)side;
    d->sample.step_row += 1;
}
static void spoil_ids(specv_verify_shard_desc *d, int side) {
    (void)side;
    d->first_id = 0, d->num_ids = SPECV_TILE_IDS;
}
static void spoil_last(specv_verify_shard_desc *d, int side) {
    (void)side;
    d->num_ids = 0;
}
static void spoil_eos(specv_verify_shard_desc *d, int side) {
    (void)side;
    d->sample.verify.num_eos = 1, d->sample.verify.eos_token[0] = 5;
}
static int64_t old_epoch[1] = {41};
static void spoil_epoch(specv_verify_shard_desc *d, int side) {
    d->epoch = (const int64_t *)on_side(old_epoch, faults_on_device, sizeof old_epoch, side);
}

/* A rank's record never came: what is there is another one. */
static void keep_stale(char *gathered, int64_t stride, int count, int64_t bytes, int side) {
    (void)stride, (void)count;
#if T_DEVICE
    if (side == T_DEVICE_SIDE) {
        T_CUDA(cudaMemset(gathered, 0, (size_t)bytes));
        return;
    }
#endif
    (void)side;
    memset(gathered, 0, (size_t)bytes);
}

/* Rank 0's record of the verification before: the same requests, each a position further back. */
static char *old_record;

static void write_old_record(const stage *g, const parts *p) {
    static int32_t positions[64];
    specv_verify_shard_desc d = describe_rank(g, p, 0, T_HOST_SIDE);
    for (int row = 0; row < g->c.s.batch; ++row) positions[row] = word_at(&g->position, row) - 1;
    d.sample.position = positions;
    d.sample.scratch_bytes =
        specv_shard_scratch_bytes(g->c.s.batch, g->c.s.max_draft, g->c.s.vocab, p->count);
    d.sample.scratch = new_bytes(d.sample.scratch_bytes, T_HOST_SIDE);
    d.record = old_record = new_bytes(specv_shard_record_bytes(&d), T_HOST_SIDE);
    poison_outputs();
    CHECK_EQ(specv_ref_verify_shard(&d), SPECV_OK, 0);
    free_bytes(d.sample.scratch, T_HOST_SIDE);
}

static void keep_old(char *gathered, int64_t stride, int count, int64_t bytes, int side) {
    (void)stride, (void)count;
#if T_DEVICE
    if (side == T_DEVICE_SIDE) {
        T_CUDA(cudaMemcpy(gathered, old_record, (size_t)bytes, cudaMemcpyHostToDevice));
        return;
    }
#endif
    (void)side;
    memcpy(gathered, old_record, (size_t)bytes);
}

/* Gathered in another order than that of ranks. */
static void swap_ranks(char *gathered, int64_t stride, int count, int64_t bytes, int side) {
    char *copy = (char *)malloc((size_t)(stride * count));
    (void)bytes;
#if T_DEVICE
    if (side == T_DEVICE_SIDE) {
        T_CUDA(cudaMemcpy(copy, gathered, (size_t)(stride * count), cudaMemcpyDeviceToHost));
        T_CUDA(cudaMemcpy(gathered, copy + stride, (size_t)stride, cudaMemcpyHostToDevice));
        T_CUDA(cudaMemcpy(gathered + stride, copy, (size_t)stride, cudaMemcpyHostToDevice));
        free(copy);
        return;
    }
#endif
    (void)side;
    memcpy(copy, gathered, (size_t)(stride * count));
    memcpy(gathered, copy + stride, (size_t)stride),
        memcpy(gathered + stride, copy, (size_t)stride);
    free(copy);
}

/* Every rank, the one at fault as well, gives up the rows that it is about, and no others. */
static void test_faults(void) {
    static const struct {
        const char *what;
        mischief m;
        int row; /* -1: all */
    } faults[] = {{"seed", {1, -1, spoil_seed, NULL}, 2},
                  {"position", {1, -1, spoil_position, NULL}, 1},
                  {"top_k", {1, -1, spoil_top_k, NULL}, 3},
                  {"order of limits", {2, -1, spoil_order, NULL}, -1},
                  {"another step", {2, -1, spoil_length, NULL}, -1},
                  {"eos", {0, -1, spoil_eos, NULL}, -1},
                  {"batch", {1, 0, spoil_batch, NULL}, -1},
                  {"ids", {2, 0, spoil_ids, NULL}, -1},
                  {"ids of nobody", {2, 0, spoil_last, NULL}, -1},
                  {"epoch", {1, 0, spoil_epoch, NULL}, -1},
                  {"never came", {-1, 0, NULL, keep_stale}, -1},
                  {"of the step before", {-1, 0, NULL, keep_old}, -1},
                  {"sums never came", {-1, 1, NULL, keep_stale}, -1},
                  {"the third", {-1, 2, NULL, keep_stale}, -1},
                  {"seed of sums", {1, 1, spoil_seed, NULL}, 2},
                  {"seed of the judge", {0, 2, spoil_seed, NULL}, 2},
                  {"step behind sums", {2, 2, spoil_length, NULL}, -1},
                  {"order", {-1, 0, NULL, swap_ranks}, -1}};
#if T_DEVICE
    T_CUDA(cudaMalloc(&faults_on_device, 1024));
#endif
    for (int i = 0; i < T_COUNT(faults); ++i)
        for (int turn = 0; turn < (t.quick ? 2 : 6); ++turn) {
            /* one that has the step at fault */
            const int rule = faults[i].m.step > 0 ? some_rules[2 + (i + turn) % 3]
                                                  : some_rules[(i + turn) % T_COUNT(some_rules)];
            scene c = plain_scene(4, 2, 4000);
            parts p;
            stage g;
            c.rule = rule, c.draft_dtype = turn % 2 - 1; /* logits, or none */
            c.null_extra = 1, c.tell = TELL_NUM_TOP;
            if (faults[i].m.spoil == spoil_top_k || faults[i].m.spoil == spoil_order || turn == 3)
                c.filters = HAS_TOP_K, c.top_k = 7, most_named = 20;
            if (turn % 4 == 1 && faults[i].m.step <= 0) { /* all is said at once */
                c.filters = HAS_TOP_K, c.top_k = 7, most_named = 20, all_named = 1;
                if (c.draft_dtype >= 0) c.draft_filters = HAS_TOP_K;
            }
            t_case("fault: %s, rule %d, turn %d", faults[i].what, rule, turn);
            p = draw_parts(3, c.s.vocab, 1);
            stage_make(&g, &c);
            for (int row = 0; row < 4; ++row) {
                other_seeds[0][row] = ((const uint64_t *)(void *)g.seed.host)[row];
                other_positions[0][row] = word_at(&g.position, row);
            }
            other_seeds[0][2] ^= (uint64_t)1 << t_below(64);
            other_positions[0][1] += 1;
            for (int row = 0; row < 4; ++row) other_top_k[row] = row == 3 ? 8 : 7;
            t_upload();
            run_reference(&g);
            if (faults[i].m.shuffle == keep_old) write_old_record(&g, &p), run_reference(&g);
            for (int row = 0; row < 4; ++row)
                if (faults[i].row < 0 || faults[i].row == row)
                    expect_inert(&g, row, SPECV_ROW_BAD_RECORD);
            run_both_sides(&g, &p, &faults[i].m);
            batch_free(&g.b);
            if (old_record) free_bytes(old_record, T_HOST_SIDE), old_record = NULL;
            most_named = all_named = 0;
        }
#if T_DEVICE
    T_CUDA(cudaFree(faults_on_device));
#endif
}

/* What is sent, counted, is what the contract says of each exchange, behind a head of 16 bytes,
   rounded up to 16. */
static void test_bytes(void) {
    for (int i = 0; i < 45; ++i) {
        const int rows = 1 + (int)t_below(40), drafts = (int)t_below(9);
        const int rule = some_rules[i % T_COUNT(some_rules)];
        specv_verify_shard_desc d = SPECV_ZERO;
        t_case("bytes: %d rows, %d drafts, rule %d", rows, drafts, rule);
        d.sample.verify.rows.batch = rows, d.sample.verify.rows.max_draft = drafts;
        d.sample.rule = rule;
        const int has_q = i % 3 == 0 && rule <= SPECV_RULE_BLOCK, m = drafts + 1;
        const int all = has_q ? 2 * m : m, block = rule == SPECV_RULE_BLOCK;
        int64_t want[6] = {8 * m + 4, 0, 0, 0, 0, 0}; /* of a row */
        if (has_q) d.sample.draft.data = storage;
        if (i % 4 == 1) d.sample.filters.top_k = (const int32_t *)(const void *)storage;
        if (i % 8 == 1) d.sample.draft_filters.top_k = d.sample.filters.top_k;
        d.max_top_k = i % 4 == 1 ? 1 + (int32_t)t_below(SPECV_SHARD_TOP_K) : 0;
        if (rule == SPECV_RULE_COUPLED) want[0] = 16 * m + 4;
        if (rule != SPECV_RULE_COUPLED && rule != SPECV_RULE_GREEDY) {
            want[0] = 8 * all + 4;
            want[1] = 8 * all + 4 * m + 4 + (has_q ? 4 * m : rule == SPECV_RULE_SCORE ? 0 : 8 * m);
            if (has_q) want[2] = (block ? 24 * m : 24) + 4;
            want[2 + has_q] = 12;
        }
        d.all_top_k = d.max_top_k && i % 8 == (has_q ? 1 : 5);
        if (d.all_top_k) memset(want + 1, 0, sizeof want - sizeof *want);
        if (rule != SPECV_RULE_GREEDY) want[0] += 8 * m * d.max_top_k * (1 + (has_q && i % 8 == 1));
        for (d.step = 0; d.step < 6; ++d.step)
            CHECK_EQ(specv_shard_record_bytes(&d),
                     want[d.step] ? (16 + rows * want[d.step] + 15) / 16 * 16 : 0, d.step);
    }
}

/* Counted: of the same columns step 0 executes at most 1.05 times the thread instructions of the
   unsharded first pass: 8 / 7 of what a launch has more for 16 tiles of a row than for two, which
   are a block's; the rest of it comes behind that pass. */
static void test_cost(void) {
    for (int i = 0; i < T_COUNT(some_rules); ++i) {
        scene c = plain_scene(2, 2, 16384);
        c.rule = some_rules[i], c.draft_dtype = NO_DRAFT_SCORES, c.null_extra = 1;
        c.target_dtype = i % 3, c.tell = TELL_NUM_TOP, c.num_sms = 132;
        t_case("cost: rule %d, type %d", c.rule, c.target_dtype);
#if T_DEVICE
        stage g;
        const parts p = draw_parts(1, c.s.vocab, 1);
        long long of[3]; /* all columns; step 0 of them; two tiles */
        stage_make(&g, &c);
        t_upload();
        for (int way = 0; way < 3; ++way) {
            specv_verify_shard_desc d = describe_rank(&g, &p, 0, T_DEVICE_SIDE);
            d.sample.scratch_bytes =
                specv_shard_scratch_bytes(c.s.batch, c.s.max_draft, c.s.vocab, 1);
            d.sample.scratch = new_scratch(d.sample.scratch_bytes);
            d.record = new_bytes(specv_shard_record_bytes(&d), T_DEVICE_SIDE);
            T_CUDA(cudaProfilerStart());
            if (way == 2) {
                specv_scores *target = &d.sample.target;
                if (!target->pos_stride_elems) target->pos_stride_elems = c.s.vocab;
                if (!target->seq_stride_elems)
                    target->seq_stride_elems = (c.s.max_draft + 1) * target->pos_stride_elems;
                d.sample.verify.vocab = 2 * SPECV_TILE_IDS, d.sample.verify.num_eos = 0;
            }
            CHECK_EQ(way == 1 ? specv_verify_shard(&d, 0) : specv_verify_sample(&d.sample, 0), 0,
                     i);
            T_CUDA(cudaDeviceSynchronize());
            T_CUDA(cudaProfilerStop());
            of[way] = ptxrun_count(NULL, "thread_instructions");
            free_bytes(d.record, T_DEVICE_SIDE);
            T_CUDA(cudaFree(d.sample.scratch));
        }
        if (of[0] < 0)
            t_skip("no counters");
        else
            CHECK(of[2] > 0 && of[1] > 0 &&
                  (double)of[1] <= 1.05 * (double)(of[0] - of[2]) * 8 / 7);
        batch_free(&g.b);
#else
        t_skip("nothing to count");
        return;
#endif
    }
}

/* -------------------------------------------------------------------------- what is refused */

#define EXPECT(code, change)                                                                       \
    do {                                                                                           \
        specv_verify_shard_desc d = valid_desc();                                                  \
        change;                                                                                    \
        CHECK_EQ(specv_verify_shard_validate(&d), code, __LINE__);                                 \
        if ((code) != SPECV_OK) CHECK_EQ(run_step(&d, T_DEVICE), code, __LINE__);                  \
    } while (0)

static specv_verify_shard_desc valid_desc(void) {
    specv_verify_shard_desc d = SPECV_ZERO;
    void *at = (void *)(((uintptr_t)storage + 15) & ~(uintptr_t)15);
    d.sample.verify.rows.batch = 2, d.sample.verify.rows.max_draft = 1;
    d.sample.verify.draft_tokens = at, d.sample.verify.accepted_len = (int32_t *)at;
    d.sample.verify.vocab = 4000;
    d.sample.target.data = at;
    d.sample.rule = SPECV_RULE_GREEDY;
    d.sample.scratch = at, d.sample.scratch_bytes = INT64_MAX;
    d.record = at;
    d.first_id = 1024, d.num_ids = 2048, d.num_shards = 3;
    return d;
}

/* Rule TOKEN, with a top_k. */
static void limit(specv_verify_shard_desc *d, int32_t most) {
    d->sample.rule = SPECV_RULE_TOKEN, d->sample.filters.top_k = (const int32_t *)d->record;
    d->sample.seed = (const uint64_t *)d->record, d->sample.position = (const int32_t *)d->record;
    d->max_top_k = most;
}

static void test_validation(void) {
    t_case("validation");
    CHECK_EQ(specv_verify_shard_validate(NULL), SPECV_ERR_NULL_DESC, -1);
    CHECK_EQ(specv_shard_record_bytes(NULL), SPECV_ERR_NULL_DESC, -1);
    EXPECT(SPECV_OK, (void)0);
    EXPECT(SPECV_ERR_CANARY, d.canary0 = 1);
    EXPECT(SPECV_ERR_CANARY, d.canary1 = 1);
    EXPECT(SPECV_ERR_CANARY, d.sample.canary1 = 1);
    EXPECT(SPECV_ERR_VOCAB, d.sample.verify.vocab = 0);
    EXPECT(SPECV_ERR_SHARD, d.num_shards = 0);
    EXPECT(SPECV_ERR_SHARD, d.num_shards = SPECV_MAX_SHARDS + 1);
    EXPECT(SPECV_OK, d.num_shards = SPECV_MAX_SHARDS);
    EXPECT(SPECV_ERR_SHARD, d.first_id = 1000);
    EXPECT(SPECV_ERR_SHARD, d.first_id = -1024);
    EXPECT(SPECV_ERR_SHARD, d.first_id = 2048);
    EXPECT(SPECV_ERR_SHARD, d.num_ids = -1);
    EXPECT(SPECV_ERR_SHARD, d.num_ids = 1000);
    EXPECT(SPECV_OK, (d.first_id = 3072, d.num_ids = 928));
    EXPECT(SPECV_OK, (d.num_ids = 0, d.sample.target.data = NULL));
    EXPECT(SPECV_OK, (d.num_ids = 0, d.first_id = 4000));
    EXPECT(SPECV_OK, (d.num_ids = 0, d.first_id = 5000));
    EXPECT(SPECV_ERR_SHARD, (d.num_ids = 0, d.first_id = -1));
    EXPECT(SPECV_ERR_TARGET, d.sample.target.data = NULL);
    EXPECT(SPECV_ERR_RULE, d.sample.rule = -1);
    EXPECT(SPECV_ERR_RULE, d.sample.rule = SPECV_RULE_SCORE + 1);
    EXPECT(SPECV_ERR_SCORE_DTYPE, d.sample.target.dtype = SPECV_PROBS_F32);
    EXPECT(SPECV_OK, d.sample.filters.top_k = (const int32_t *)d.record); /* GREEDY: no matter */
    EXPECT(SPECV_ERR_FILTERS, limit(&d, 0));
    EXPECT(SPECV_OK, limit(&d, 1));
    EXPECT(SPECV_OK, limit(&d, SPECV_SHARD_TOP_K));
    EXPECT(SPECV_ERR_FILTERS, limit(&d, SPECV_SHARD_TOP_K + 1));
    EXPECT(SPECV_ERR_FILTERS, limit(&d, -1));
    EXPECT(SPECV_ERR_FILTERS, (limit(&d, 9), d.sample.filters.top_k = NULL,
                               d.sample.filters.min_p = (const float *)d.record));
    EXPECT(SPECV_OK, (limit(&d, 9), d.all_top_k = 1));
    EXPECT(SPECV_ERR_FILTERS, (limit(&d, 9), d.all_top_k = 2));
    EXPECT(SPECV_ERR_FILTERS, d.all_top_k = 1);
    EXPECT(SPECV_ERR_FILTERS, (limit(&d, 9), d.sample.draft.data = d.record, d.all_top_k = 1));
    EXPECT(SPECV_OK, (limit(&d, 9), d.sample.draft.data = d.record));
    EXPECT(SPECV_OK, (limit(&d, 9), d.sample.draft.data = d.record, d.all_top_k = 1,
                      d.sample.draft_filters.top_k = (const int32_t *)d.record));
    EXPECT(SPECV_ERR_FILTERS, (limit(&d, 9), d.sample.draft.data = d.record,
                               d.sample.draft_filters.top_p = (const float *)d.record));
    EXPECT(SPECV_ERR_LOGPROB,
           (d.sample.emitted.rank = (int32_t *)d.record, d.sample.verify.out_tokens = d.record));
    EXPECT(SPECV_OK, d.sample.filters.mask = (const uint32_t *)d.record);
    EXPECT(SPECV_ERR_MASK, (d.sample.filters.mask = (const uint32_t *)d.record,
                            d.sample.filters.mask_stride_words = 124));
    EXPECT(SPECV_OK, (d.sample.filters.mask = (const uint32_t *)d.record,
                      d.sample.filters.mask_stride_words = 125));
    EXPECT(SPECV_ERR_SEED, d.sample.rule = SPECV_RULE_COUPLED);
    EXPECT(SPECV_ERR_SCRATCH, d.sample.scratch_bytes = 100);
    EXPECT(SPECV_ERR_STEP, d.step = -1);
    EXPECT(SPECV_ERR_STEP, d.step = 2);
    EXPECT(SPECV_ERR_STEP, d.epoch = (const int64_t *)(const void *)((const char *)d.record + 4));
    EXPECT(SPECV_ERR_RECORD, d.record = NULL);
    EXPECT(SPECV_ERR_RECORD, d.record = (char *)d.record + 8);
    EXPECT(SPECV_ERR_RECORD, d.gathered = d.record);
    EXPECT(SPECV_ERR_RECORD, d.step = 1);
    EXPECT(SPECV_ERR_RECORD, (d.step = 1, d.gathered = d.record));
    EXPECT(SPECV_OK, (d.step = 1, d.gathered = d.record, d.record = NULL));
    EXPECT(SPECV_ERR_RECORD,
           (d.step = 1, d.gathered = d.record, d.record = NULL, d.record_stride_bytes = 16));
    EXPECT(SPECV_ERR_RECORD,
           (d.step = 1, d.gathered = d.record, d.record = NULL, d.record_stride_bytes = 1000));
    EXPECT(SPECV_OK,
           (d.step = 1, d.gathered = d.record, d.record = NULL, d.record_stride_bytes = 1008));
    EXPECT(SPECV_OK, (d.sample.verify.rows.batch = 0, d.record = NULL));
    EXPECT(SPECV_ERR_BATCH, d.sample.verify.rows.batch = -1);
    EXPECT(SPECV_ERR_EOS_TOKEN, (d.sample.verify.num_eos = 1, d.sample.verify.eos_token[0] = 4000));
    EXPECT(SPECV_OK, (d.sample.verify.num_eos = 1, d.sample.verify.eos_token[0] = 3999));
    CHECK_EQ(specv_shard_scratch_bytes(-1, 1, 100, 1), SPECV_ERR_BATCH, -1);
    CHECK_EQ(specv_shard_scratch_bytes(1, 1, 100, 0), SPECV_ERR_SHARD, -1);
    CHECK(specv_shard_scratch_bytes(1, 1, 0, 1) > 0);
    {
        specv_verify_shard_desc d = valid_desc(); /* what the function says suffices */
        d.num_shards = 16;
        d.sample.scratch_bytes = specv_shard_scratch_bytes(2, 1, 2048, 16);
        CHECK_EQ(specv_verify_shard_validate(&d), SPECV_OK, -1);
        d.num_ids = 0, d.sample.scratch_bytes = specv_shard_scratch_bytes(2, 1, 0, 16);
        CHECK_EQ(specv_verify_shard_validate(&d), SPECV_OK, -1);
    }
}

int main(int argc, char **argv) {
    static const t_group groups[] = {{"equal", test_equal},
                                     {"vocabularies", test_vocabularies},
                                     {"limits", test_limits},
                                     {"large-limits", test_large_limits},
                                     {"alone", test_alone},
                                     {"fine-sums", test_fine_sums},
                                     {"fine-residuals", test_fine_residuals},
                                     {"masks", test_masks},
                                     {"by-hand", test_by_hand},
                                     {"steps", test_steps},
                                     {"chained", test_chained},
                                     {"accidents", test_accidents},
                                     {"long-rows", test_long_rows},
                                     {"borders", test_borders},
                                     {"points", test_points},
                                     {"faults", test_faults},
                                     {"bytes", test_bytes},
                                     {"cost", test_cost},
                                     {"validation", test_validation}};
    return t_main(argc, argv, groups, T_COUNT(groups));
}
