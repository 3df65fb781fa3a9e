/* sample.cu - A2 to A5 and A8: verification and sampling from scores over the vocabulary.

   For temperature 0 the answers come from batch.h, as for A1: the scores are built around its
   target tokens. For the sampled rules the reference is the oracle of the device, bit for bit, over
   every type, layout and accident of the scores; that the reference follows the published rules is
   shown in law.cu and numeric.cu. */

#define T_INSIDE /* functions of the implementation are called */
/* so that it has kernels of its own, those that it starts */
#define SPECVERIFY_NO_GREEDY
#define SPECVERIFY_NO_SHARDS
#define SPECVERIFY_NO_PACK
#define SPECVERIFY_NO_CACHE
#define SPECVERIFY_NO_TREES
#define SPECVERIFY_NO_COLUMNS
#define SPECVERIFY_NO_SCHEDULE
#define SPECVERIFY_NO_PARTICLES
#define SPECVERIFY_NO_STATS
#include "scores.h"

/* ---- rule SCORE against long double */

/* ln p(token) at a position; *bound: how far the kit may be from it, -1: anything far below 0. */
static long double log_p(const stage *g, int row, int j, int64_t token, long double *bound) {
    const int64_t first = scores_at(g, row, j, 0), vocab = g->c.s.vocab;
    const int dtype = g->c.target_dtype, probs = dtype == SPECV_PROBS_F32;
    const float heat = ((const float *)(const void *)g->temperature.host)[slot_of(g, row)];
    const int zero = !(heat >= 1.220703125e-4f && heat <= 8192); /* and what is no temperature */
    const int weighs = specv_i_is_lossy(g->c.rule);              /* whatever they sum up to */
    long double sum = 0, largest = -INFINITY, mine = -INFINITY;
    int64_t best = -1;
    for (int64_t x = 0; x < vocab; ++x) {
        long double score = get_score(&g->target, dtype, first + x);
        if (isnan(score) || (probs && (score < 0 || score > 2))) score = probs ? 0 : -INFINITY;
        if (probs && weighs) sum += score >= 1.17549435e-38L ? score : 0;
        if (x == token) mine = score;
        if (score > largest) largest = score, best = x;
    }
    *bound = 0;
    if (probs && !zero) {
        if (weighs) mine = mine >= 1.17549435e-38L ? mine / sum : 0;
        *bound = fabsl(logl(mine)) * 1e-6L + 2e-6L;
        return mine > 0 ? logl(mine) : -INFINITY;
    }
    if (isinf(largest) && largest < 0) return largest;
    if (probs && !(largest > 0)) return -INFINITY;
    if (zero || fabsl(largest / heat) > 363400) return token == best ? 0 : -INFINITY;
    if (isinf(mine)) return mine;
    for (int64_t x = 0; x < vocab; ++x) {
        const long double score = get_score(&g->target, dtype, first + x);
        if (!isnan(score)) sum += expl((score - largest) / heat);
    }
    mine = (mine - largest) / heat - logl(sum);
    *bound = mine < -360000 || fabsl(largest / heat) > 359000 ? -1 : fabsl(mine) * 1e-6L + 2e-6L;
    return mine;
}

/* The next token of a row is what verification without drafts draws there. */
static void check_next(const stage *g, int row, int k) {
    const specv_verify_sample_desc v = stage_describe(g, T_HOST_SIDE);
    const int64_t bytes = (int64_t)specv_i_score_bytes(g->c.target_dtype);
    specv_verify_sample_desc d = SPECV_ZERO;
    int64_t token = -2;
    int32_t accepted;
    float logprob, lse;
    uint32_t status;
    d.verify.token_dtype = SPECV_I64, d.verify.next_token = &token;
    d.verify.accepted_len = &accepted, d.verify.row_status = &status;
    d.verify.vocab = g->c.s.vocab, d.verify.rows.batch = 1;
    d.logprob = &logprob, d.lse = &lse;
    d.target.data = g->target.host + scores_at(g, row, k, 0) * bytes;
    d.target.dtype = g->c.target_dtype;
    d.temperature = v.temperature + slot_of(g, row), d.seed = v.seed + slot_of(g, row),
    d.position = v.position + slot_of(g, row);
    if (v.sample_uniform) d.sample_uniform = v.sample_uniform + row;
    d.scratch = no_scratch(), d.scratch_bytes = INT64_MAX;
    d.step_row = g->c.step_row + k, d.stream = g->c.stream;
    CHECK_EQ(specv_ref_verify_sample(&d), SPECV_OK, row);
    if (g->b.next.host) CHECK_EQ(get_token(&g->b.next, g->c.s.dtype, row), token, row);
    if (g->logprob.host) CHECK_BYTES(g->logprob.host + 4 * row, &logprob, 4);
    if (g->lse.host) CHECK_BYTES(g->lse.host + 4 * row, &lse, 4);
    if (g->b.status.host) CHECK_EQ(status & ~(uint32_t)word_at(&g->b.status, row), 0, row);
}

/* Every draft up to an EOS, or to what is no token, is accepted and has its log-probability. */
static void check_scored(const stage *g) {
    const int columns = g->c.s.max_draft;
    for (int row = 0; row < g->c.s.batch; ++row) {
        const truth *r = &g->b.rows[row];
        const int bad_row = !r->live || r->first < 0;
        int usable = 0, ended = 0, wrong = -1;
        while (!bad_row && usable < r->n_draft && !ended) {
            const int64_t token = get_token(&g->b.draft, g->c.s.dtype, r->first + usable);
            if (token < 0 || token >= g->c.s.vocab) break;
            ended = is_eos(&g->b, token);
            usable += 1;
        }
        CHECK_EQ(word_at(&g->b.accepted, row), usable, row);
        if (g->b.mismatch.host)
            CHECK_EQ(g->b.mismatch.host[row], !ended && !bad_row && usable < r->n_draft, row);
        for (int j = 0; j < columns; ++j) {
            const float p =
                ((const float *)(const void *)g->target_logprob.host)[(int64_t)row * columns + j];
            long double want = 0, bound = 0;
            if (j < usable)
                want = log_p(g, row, j, get_token(&g->b.draft, g->c.s.dtype, r->first + j), &bound);
            if (bound < 0     ? !(p < -100000) && p != want
                : isinf(want) ? !(isinf(p) && p < 0)
                              : !(fabsl(p - want) <= bound))
                wrong = j;
        }
        CHECK_EQ(wrong, -1, row); /* the last wrong column */
        if (!bad_row && !ended) check_next(g, row, usable);
        if ((bad_row || ended) && g->b.next.host)
            CHECK_EQ(get_token(&g->b.next, g->c.s.dtype, row), -1, row);
    }
    CHECK(1);
}

/* ln p of every emitted token, in long double; 0 where there is none. */
static void check_out_logprobs(const stage *g) {
    const int columns = g->c.s.max_draft + 1;
    for (int row = 0; row < g->c.s.batch; ++row) {
        const truth *r = &g->b.rows[row];
        const int accepted = word_at(&g->b.accepted, row);
        int wrong = -1;
        for (int j = 0; j < columns; ++j) {
            const float p =
                ((const float *)(const void *)g->out_logprob.host)[(int64_t)row * columns + j];
            long double want = 0, bound = 0;
            if (j < accepted && g->c.rule != SPECV_RULE_GREEDY) /* then it is 1 */
                want = log_p(g, row, j, get_token(&g->b.draft, g->c.s.dtype, r->first + j), &bound);
            else if (j == accepted && g->logprob.host) /* the same number */
                want = ((const float *)(const void *)g->logprob.host)[row];
            else if (j == accepted)
                continue;
            if (bound < 0     ? !(p < -100000) && p != want
                : isinf(want) ? !(isinf(p) && p < 0)
                              : !(fabsl(p - want) <= bound))
                wrong = j;
        }
        CHECK_EQ(wrong, -1, row);
    }
}

static void scene_run(const scene *c) {
    stage g;
    t_note(" %s, scores %d and %d, odd %#x, T %g, spread %g, %s%s, gap %d, offset %d,",
           rule_name(c->rule), c->target_dtype, c->draft_dtype, c->odd, (double)c->temperature,
           (double)c->spread, c->uniforms ? "uniforms" : "seeds", c->slots ? ", slots" : "", c->gap,
           c->offset);
    batch_note(&c->s);
    stage_make(&g, c);
    t_upload();
    run_reference(&g);
    for (int row = 0; row < c->s.batch && g.b.status.host; ++row)
        CHECK_EQ(t_old_status(c->s.keep_status, row) & ~(uint32_t)word_at(&g.b.status, row), 0,
                 row);
    const int is_known =
        c->rule == SPECV_RULE_GREEDY && !(c->odd & (ODD_TOP | ODD_EMPTY | ODD_ZEROS));
    if (is_known) {
        /* Only these say NaN; the tokens are known all the same. */
        if (c->odd & ODD_NAN && g.b.status.host)
            for (int row = 0; row < c->s.batch; ++row)
                ((uint32_t *)(void *)g.b.status.host)[row] &= ~(uint32_t)SPECV_ROW_NAN;
        if (!(c->odd & ODD_NAN)) batch_check(&g.b, NULL);
    }
    if (c->rule == SPECV_RULE_SCORE) check_scored(&g);
    if (g.out_logprob.host) check_out_logprobs(&g);
    t_check_host();
#if T_DEVICE
    {
        specv_verify_sample_desc d = describe_device(&g);
        CHECK_EQ(specv_verify_sample(&d, 0), SPECV_OK, -1);
        if (!(is_known && c->odd & ODD_NAN)) t_check_device();
        batch_poison_device(&g.b); /* again, with the scratch as it was left */
        CHECK_EQ(specv_verify_sample(&d, 0), SPECV_OK, -1);
        if (!(is_known && c->odd & ODD_NAN)) t_check_device();
        check_scratch(d.scratch, d.scratch_bytes);
        T_CUDA(cudaFree(d.scratch));
    }
#endif
    batch_free(&g.b);
}

static void test_types(void) {
    for (int rule = 0; rule < NUM_RULES; ++rule)
        for (int dtype = 0; dtype < 4; ++dtype)
            for (int draft = -1; draft < 4; ++draft) {
                scene c = plain_scene(2, 3, 1500);
                if (t.quick && (rule + dtype + draft) % 3) continue;
                if (rule == SPECV_RULE_SCORE && draft >= 0) continue;
                c.rule = rule, c.target_dtype = dtype, c.draft_dtype = draft;
                c.null_extra = rule == SPECV_RULE_COUPLED && dtype % 2;
                t_case("every rule and type:");
                scene_run(&c);
            }
}

/* Everything at once, from small to odd. */
static void test_random(void) {
    for (int i = 0; i < (t.cases ? t.cases : t.quick ? 60 : T_DEVICE ? 400 : 3000); ++i) {
        t_case("random:");
        scene c = random_scene(rule_of_case(t.case_seed)); /* a seed says all of a case */
        scene_run(&c);
    }
}

/* Rows of scores with accidents, one kind at a time, in every rule. */
static void test_accidents(void) {
    for (int bit = 0; bit < 8; ++bit)
        for (int rule = 0; rule < NUM_RULES; ++rule)
            for (int probs = 0; probs < 2; ++probs) {
                scene c = plain_scene(6, 3, probs ? 300 : 1100);
                if (t.quick && (bit + rule + probs) % 3) continue;
                c.rule = rule, c.odd = 1u << bit;
                c.target_dtype = probs ? SPECV_PROBS_F32 : SPECV_LOGITS_BF16;
                c.draft_dtype = probs ? SPECV_PROBS_F32 : SPECV_LOGITS_BF16;
                c.uniforms = bit % 2;
                t_case("accident %d:", bit);
                scene_run(&c);
            }
}

/* Accidents on both sides of a row, of different types: which rows are looked at says which bits
   the status has. */
static void test_two_accidents(void) {
    for (int turn = 0; turn < (t.quick ? 60 : 300); ++turn) {
        scene c = plain_scene(3, 2, 40);
        c.rule = turn % 4 == 3 ? SPECV_RULE_TOKEN : SPECV_RULE_BLOCK;
        c.target_dtype = SPECV_LOGITS_F16;
        c.draft_dtype = turn % 3 ? SPECV_PROBS_F32 : SPECV_LOGITS_F32;
        c.odd = ODD_TOP | (turn % 5 ? 0 : ODD_NAN), c.spread = 20;
        t_case("two accidents:");
        scene_run(&c);
    }
}

/* Batch and draft lengths beyond a warp and a block's share. */
static void test_shapes(void) {
    static const int batches[] = {0, 1, 2, 31, 33, 65}, drafts[] = {0, 1, 8, 31, 32, 33, 65};
    for (int i = 0; i < T_COUNT(batches); ++i)
        for (int j = 0; j < T_COUNT(drafts); ++j)
            for (int rule = 0; rule < NUM_RULES; ++rule) {
                scene c = plain_scene(batches[i], drafts[j], 40);
                if (batches[i] * drafts[j] > (t.quick ? 40 : 600)) continue;
                if (t.quick && (i + j + rule) % 3) continue;
                c.rule = rule;
                c.odd = j % 2 ? ODD_SAME : 0; /* long acceptance */
                c.draft_dtype = i % 3 ? (int)SPECV_LOGITS_F32 : (int)SPECV_PROBS_F32;
                if (i % 3 == 0 && i % 2) c.draft_dtype = NO_DRAFT_SCORES;
                c.s.layout = (layout)((i + j) % NUM_LAYOUTS);
                c.target_dtype = rule % 2 ? SPECV_LOGITS_F16 : SPECV_LOGITS_F32;
                c.num_sms = 1 + i * j % 30;
                t_case("shapes:");
                scene_run(&c);
            }
}

/* Rows of several warps' width whose stop may be anywhere, an EOS behind drafts that are all
   accepted among them, with a NaN behind the stop here and there; two ids, of which the hidden q's
   is the first as often as the second; rows without probability and without drafts; more rows of
   target and draft than a warp that puts them together has lanes. */
static void test_long_rows(void) {
    for (int rule = 0; rule < NUM_RULES; ++rule)
        for (int kind = 0; kind < 7; ++kind) {
            static const int drafts[] = {70, 70, 70, 70, 2, 0, 130};
            scene c = plain_scene(kind == 4 ? 24 : 5, drafts[kind], kind == 4 ? 2 : 12);
            c.rule = rule;
            c.odd = kind == 0 || kind == 6 ? ODD_SAME : kind == 1 ? ODD_SAME | ODD_NAN : 0;
            c.draft_dtype = kind >= 3 && kind < 6 ? NO_DRAFT_SCORES : (int)SPECV_LOGITS_F32;
            c.temperature = kind == 2 ? 0.05f : 1;
            if (kind == 5) c.target_dtype = SPECV_PROBS_F32, c.odd = ODD_EMPTY;
            if (kind < 4) c.s.endings = (unsigned)SCORE_ENDINGS, c.s.num_eos = 2;
            t_case("long rows %d:", kind);
            scene_run(&c);
        }
}

/* Real vocabularies, one row. */
static void test_vocabularies(void) {
    static const int real[] = {32000, 50257, 128256, 151936, 262144};
    for (int i = 0; i < T_COUNT(real); ++i)
        for (int rule = 0; rule < NUM_RULES; ++rule) {
            scene c = plain_scene(1, rule % 2, real[i]);
            if (t.quick && (i != 1 || rule > 1)) continue;
            if (real[i] != 50257 && i % 4 != rule % 4) continue;
            c.rule = rule;
            c.target_dtype = (i + rule) % 3;
            c.draft_dtype = rule ? NO_DRAFT_SCORES : c.target_dtype;
            c.num_sms = 132;
            t_case("vocabulary %d:", real[i]);
            scene_run(&c);
        }
}

/* Aligned rows of dense batches, in grids that run at once: blocks ask for their first scores
   before they know how long a row is, or whether it is live, which may not show. The vocabularies
   end among the eight ids of a lane. */
static void test_ahead(void) {
    static const int sizes[] = {1004, 3004, 12};
    for (int i = 0; i < T_COUNT(sizes); ++i)
        for (int rule = 0; rule < NUM_RULES; ++rule)
            for (int dtype = SPECV_LOGITS_F32; dtype <= SPECV_LOGITS_BF16; ++dtype)
                for (int kind = 0; kind < 3; ++kind) {
                    scene c = plain_scene(4, kind == 2 ? 0 : 3, sizes[i]);
                    if (t.quick && (i + rule + dtype + kind) % 3) continue;
                    c.rule = rule, c.target_dtype = dtype;
                    c.draft_dtype = kind == 1 ? NO_DRAFT_SCORES : dtype;
                    c.s.layout = kind == 2 ? DENSE : DENSE_LEN;
                    c.s.has_num_active = (i + rule) % 2, c.s.num_active = 3;
                    c.temperature = dtype == SPECV_LOGITS_F16 ? -1.f : 1.f;
                    c.slots = kind != 1;
                    c.gap = 4, c.num_sms = 132;
                    t_case("ahead, kind %d:", kind);
                    scene_run(&c);
                }
}

/* Where there are more tiles than the GPU has room for, each warp has its own: rows that end in a
   tile's first ids, in its last part, or with it, that are not aligned, that have NaN, nothing but
   one id, nothing at all, drafts' rows of the same type, of another, or none. Of the longest, where
   there are fewer than warps, each multiprocessor has some. */
static void test_whole_tiles(void) {
    static const int sizes[] = {3100, 8191, 9216, 1025, 17 * SPECV_TILE_IDS + 700};
    static const int odds[] = {0, ODD_NAN | ODD_TOP, ODD_ZEROS | ODD_EMPTY, ODD_SAME};
    static const int rules[] = {SPECV_RULE_TOKEN, SPECV_RULE_BLOCK, SPECV_RULE_SCORE,
                                SPECV_RULE_COUPLED};
    for (int i = 0; i < T_COUNT(sizes); ++i)
        for (int rule = 0; rule < T_COUNT(rules); ++rule)
            for (int dtype = SPECV_LOGITS_F32; dtype <= SPECV_LOGITS_BF16; ++dtype)
                for (int odd = 0; odd < T_COUNT(odds); ++odd) {
                    scene c = plain_scene(3 + odd, i == 2 && odd == 0 ? 0 : 3, sizes[i]);
                    if (t.quick && (i + rule + dtype + odd) % 4) continue;
                    c.rule = rules[rule], c.target_dtype = dtype, c.odd = odds[odd];
                    c.draft_dtype = (i + odd) % 3 == 0   ? NO_DRAFT_SCORES
                                    : (i + odd) % 3 == 1 ? dtype
                                                         : SPECV_LOGITS_F32;
                    c.s.layout = (i + rule) % 2 ? DENSE_LEN : CSR;
                    c.temperature = dtype == SPECV_LOGITS_F16 ? -1.f : 0.7f;
                    c.gap = odd % 2 ? 4 : 3, c.num_sms = 1;
                    if (i == 4) c.num_sms = 16 * (3 + odd); /* five tiles a block, of 18 */
                    if (c.rule == SPECV_RULE_COUPLED)
                        c.draft_dtype = NO_DRAFT_SCORES, c.null_extra = i % 2; /* sums, too */
                    t_case("whole tiles, vocabulary %d, odd %d:", sizes[i], odds[odd]);
                    scene_run(&c);
                }
}

/* Draws with and without the rejected draft from rows of which a lane has several tiles, and more
   than a warp has lanes. */
static void test_many_tiles(void) {
    static const int sizes[] = {70000, 132100, 33 * 32 * SPECV_TILE_IDS - 5};
    for (int i = 0; i < (t.quick ? 2 : T_COUNT(sizes)); ++i) {
        scene c = plain_scene(i == 0 ? 12 : i == 1 ? 4 : 2, 1, sizes[i]);
        c.rule = SPECV_RULE_TOKEN;
        c.odd = ODD_HALF;
        c.target_dtype = i % 3, c.draft_dtype = NO_DRAFT_SCORES;
        c.num_sms = 132;
        t_case("many tiles: vocabulary %d:", sizes[i]);
        scene_run(&c);
    }
}

/* What a rejected draft's place is drawn from, where the sums of a row's strips are one for each
   thread of the block that draws, those of a tile, of two, of three, and where a tile is shared by
   two blocks, or by none. */
static void test_strips(void) {
    static const int sizes[] = {32767, 32769, 131003, 270001, 600005};
    for (int i = 0; i < T_COUNT(sizes); ++i)
        for (int kind = 0; kind < 6; ++kind) {
            scene c = plain_scene(sizes[i] < 200000 ? 5 : 2, 2, sizes[i]);
            if (t.quick && (i == 4 || (i + kind) % 3)) continue;
            c.rule = kind % 2 ? SPECV_RULE_BLOCK : SPECV_RULE_TOKEN;
            c.odd = ODD_HALF;
            c.target_dtype = kind < 4 ? (int)SPECV_PROBS_F32 : (int)SPECV_LOGITS_BF16;
            c.draft_dtype = kind / 2 == 1 ? (int)NO_DRAFT_SCORES : c.target_dtype;
            c.num_sms = i % 3 == 0 ? 2000 : i % 3 == 1 ? 132 : 1;
            t_case("strips, vocabulary %d, kind %d:", sizes[i], kind);
            scene_run(&c);
        }
}

/* More rows than there are tickets: a block has all positions of its row, one behind the other. */
static void test_many_rows(void) {
    static const int rules[] = {SPECV_RULE_GREEDY, SPECV_RULE_TOKEN};
    for (int i = 0; i < T_COUNT(rules); ++i) {
        scene c = plain_scene(SPECV_TICKET_ROWS + 1, 2, 3100);
        c.rule = rules[i];
        c.odd = ODD_ZEROS | ODD_NAN;
        c.target_dtype = SPECV_LOGITS_BF16, c.draft_dtype = NO_DRAFT_SCORES;
        t_case("many rows, rule %d:", rules[i]);
        scene_run(&c);
    }
}

/* The same with noise, where each position is far quieter than the one before: what a block has
   heard of that says nothing of the next. And where a warp has several tiles of a row, of which the
   last has the token, all of them quiet. */
static void quiet_rows(int batch, int vocab, int num_sms) {
    scene c = plain_scene(batch, 2, vocab);
    stage g;
    c.rule = SPECV_RULE_COUPLED, c.num_sms = num_sms;
    c.target_dtype = SPECV_LOGITS_BF16, c.draft_dtype = NO_DRAFT_SCORES;
    t_case("%d rows, each position quieter than the one before, %d SMs", batch, num_sms);
    stage_make(&g, &c);
    for (int row = 0; row < c.s.batch; ++row)
        for (int j = 0; j < 3; ++j) {
            const int id = vocab - 1 - (row * 3 + j) * 7 % 650;
            const int64_t scores = scores_at(&g, row, j, 0);
            for (int x = 0; x < vocab; ++x)
                put_score(&g.target, c.target_dtype, scores + x, (float)(-300 * j - x % 5));
            put_score(&g.target, c.target_dtype, scores + id, (float)(100 - 300 * j));
            if (j < 2) put_token(&g.b.draft, c.s.dtype, g.b.rows[row].first + j, id);
        }
    t_upload();
    run_reference(&g);
    for (int row = 0; row < c.s.batch; ++row)
        CHECK_EQ(word_at(&g.b.accepted, row), g.b.rows[row].n_draft, row);
    run_device(&g);
    batch_free(&g.b);
}

static void test_quiet_rows(void) {
    quiet_rows(SPECV_TICKET_ROWS + 1, 3100, 132);
    quiet_rows(SPECV_TICKET_ROWS + 1, 3100, 4096); /* four warps have a tile */
    quiet_rows(3, 17 * SPECV_TILE_IDS + 700, 1);
}

/* The largest logit twice in what a block has of a row, in threads whose order is not that of the
   ids: the lower id has it. */
static void test_two_largest(void) {
    static const int ids[][2] = {{1604, 2088}, {40, 2088}, {47, 48}, {1020, 6200}, {4100, 8999}};
    for (int i = 0; i < T_COUNT(ids); ++i)
        for (int dtype = SPECV_LOGITS_F32; dtype <= SPECV_LOGITS_BF16; ++dtype) {
            scene c = plain_scene(1, 0, 9000);
            stage g;
            c.rule = SPECV_RULE_GREEDY, c.target_dtype = dtype, c.num_sms = 1;
            c.draft_dtype = NO_DRAFT_SCORES;
            t_case("two largest: %d and %d, type %d", ids[i][0], ids[i][1], dtype);
            stage_make(&g, &c);
            for (int k = 0; k < 2; ++k)
                put_score(&g.target, dtype, scores_at(&g, 0, 0, 0) + ids[i][k], 1000);
            t_upload();
            run_reference(&g);
            CHECK_EQ(word_at(&g.b.next, 0), ids[i][0], 0);
            run_device(&g);
            batch_free(&g.b);
        }
}

/* The largest logit many times, over lanes, warps and tiles, as 0 and as -0, with a NaN here and
   there: the lowest id has it. Fewer ids than a lane holds; more tiles than a warp keeps in
   registers. */
static void test_ties(void) {
    static const int sizes[] = {1, 7, 9, 1030, 5000, 132100};
    for (int i = 0; i < T_COUNT(sizes); ++i)
        for (int rule = 0; rule < NUM_RULES; ++rule)
            for (int dtype = SPECV_LOGITS_F32; dtype <= SPECV_LOGITS_BF16; ++dtype) {
                const int large = sizes[i] > 100000;
                scene c = plain_scene(large ? 1 : 3, large ? 0 : 2, sizes[i]);
                if (large && (dtype != SPECV_LOGITS_BF16 || rule > SPECV_RULE_GREEDY)) continue;
                if (t.quick && !large && (i + rule + dtype) % 3) continue;
                c.rule = rule, c.target_dtype = dtype;
                c.draft_dtype = rule % 2 ? NO_DRAFT_SCORES : dtype;
                c.odd = dtype == SPECV_LOGITS_F16 ? ODD_ZEROS | ODD_NAN : ODD_ZEROS;
                c.temperature = (i + rule) % 2 ? 0.f : 1.f;
                c.gap = i % 3, c.offset = i % 2;
                t_case("ties:");
                scene_run(&c);
            }
}

/* From probabilities a row is judged by all of its blocks: more drafts than a warp has lanes, so
   that P of the block rule is in scratch memory; more tiles than a warp has lanes; blocks that have
   several tiles, or none; rows that are not aligned; temperatures of which some are 0. */
static void test_probabilities(void) {
    static const struct {
        int rows, drafts, vocab;
    } sizes[] = {{2, 65, 2050}, {3, 33, 1030}, {2, 2, 34001}, {5, 3, 4100}, {1, 1, 9}};
    for (int i = 0; i < T_COUNT(sizes); ++i)
        for (int rule = 0; rule < NUM_RULES; ++rule)
            for (int kind = 0; kind < 4; ++kind) {
                scene c = plain_scene(sizes[i].rows, sizes[i].drafts, sizes[i].vocab);
                if (rule == SPECV_RULE_COUPLED || (t.quick && (i + rule + kind) % 2)) continue;
                c.rule = rule, c.target_dtype = c.draft_dtype = SPECV_PROBS_F32;
                if (kind == 3 || rule == SPECV_RULE_SCORE) c.draft_dtype = NO_DRAFT_SCORES;
                c.odd = kind == 0 ? ODD_SAME : kind == 1 ? ODD_SAME | ODD_NAN : 0;
                c.temperature = kind == 2 ? -1.f : 1.f;
                c.gap = kind, c.offset = kind % 2;
                c.num_sms = kind % 2 ? 1 : 20;
                c.s.layout = (layout)((i + kind) % NUM_LAYOUTS);
                t_case("probabilities, kind %d:", kind);
                scene_run(&c);
            }
}

/* The same rows in another order, in a larger batch, with other grids, give the same results.
   Enough ids that several blocks share the residual of a row. */
static void test_invariance(void) {
#if T_DEVICE
    static const int sms[] = {1, 3, 132};
    for (int rule = 0; rule < 4; ++rule) {
        stage g;
        scene c = plain_scene(4, 3, 10000);
        c.rule = rule;
        t_case("invariance: rule %d", rule);
        stage_make(&g, &c);
        t_upload();
        run_reference(&g);
        for (int i = 0; i < T_COUNT(sms); ++i) {
            specv_verify_sample_desc d = describe_device(&g);
            const int64_t pos = c.s.vocab;
            int count = i == 1 ? 1 : 4; /* the second time each row is a batch of its own */
            d.num_sms = sms[i];
            t_poison_device();
            for (int row = 0; row < 4; row += count) {
                specv_verify_sample_desc one = d;
                one.verify.rows.batch = count;
                one.verify.draft_tokens = (const int32_t *)d.verify.draft_tokens + row * 3;
                one.target.data = (const float *)d.target.data + row * 4 * pos;
                one.draft.data = (const float *)d.draft.data + row * 3 * pos;
                one.temperature += row, one.seed += row, one.position += row;
                if (one.draft_temperature) one.draft_temperature += row;
                one.verify.accepted_len += row, one.verify.mismatch += row;
                one.verify.next_token = (int32_t *)d.verify.next_token + row;
                one.verify.out_tokens = (int32_t *)d.verify.out_tokens + row * 4;
                one.verify.num_emitted += row, one.verify.finished += row;
                one.verify.row_status += row, one.logprob += row, one.lse += row;
                CHECK_EQ(specv_verify_sample(&one, 0), SPECV_OK, row);
            }
            t_check_device();
            T_CUDA(cudaFree(d.scratch));
        }
        batch_free(&g.b);
    }
#else
    t_skip("the reference has no grid: needs nvcc");
#endif
}

/* One scratch memory for steps of different sizes, as buckets of captured graphs share it. */
static void test_shared_scratch(void) {
#if T_DEVICE
    static const int batches[] = {24, 3, 24, 1, 9};
    const int64_t bytes = 1 << 20;
    void *scratch = new_scratch(bytes);
    for (int i = 0; i < T_COUNT(batches); ++i) {
        scene c = plain_scene(batches[i], 1 + i % 2 * 2, i % 2 ? 3000 : 1100);
        stage g;
        specv_verify_sample_desc d;
        c.rule = i % 2 ? SPECV_RULE_BLOCK : SPECV_RULE_TOKEN;
        t_case("scratch memory after another batch: %d", batches[i]);
        stage_make(&g, &c);
        t_upload();
        run_reference(&g);
        d = stage_describe(&g, T_DEVICE_SIDE);
        d.scratch = scratch;
        d.scratch_bytes = bytes;
        CHECK_EQ(specv_verify_sample(&d, 0), SPECV_OK, -1);
        t_check_device();
        batch_free(&g.b);
    }
    T_CUDA(cudaFree(scratch));
#else
    t_skip("the reference needs no scratch memory");
#endif
}

/* Each kernel may be the dependent of the one that writes its inputs: it waits before it reads.
   Without a wait the interpreter reports what was read too early. */
static void test_dependents(void) {
#if T_DEVICE
    static const struct {
        int rule, target, draft;
    } firsts[] = {
        {SPECV_RULE_GREEDY, SPECV_LOGITS_F32, NO_DRAFT_SCORES},
        {SPECV_RULE_GREEDY, SPECV_LOGITS_F16, NO_DRAFT_SCORES},
        {SPECV_RULE_GREEDY, SPECV_LOGITS_BF16, NO_DRAFT_SCORES},
        {SPECV_RULE_TOKEN, SPECV_LOGITS_F32, SPECV_LOGITS_F32},
        {SPECV_RULE_TOKEN, SPECV_LOGITS_F16, SPECV_LOGITS_F16},
        {SPECV_RULE_TOKEN, SPECV_LOGITS_BF16, NO_DRAFT_SCORES},
        {SPECV_RULE_COUPLED, SPECV_LOGITS_F32, NO_DRAFT_SCORES},
        {SPECV_RULE_COUPLED, SPECV_LOGITS_F16, NO_DRAFT_SCORES},
        {SPECV_RULE_COUPLED, SPECV_LOGITS_BF16, NO_DRAFT_SCORES},
        {SPECV_RULE_COUPLED, SPECV_PROBS_F32, NO_DRAFT_SCORES},
        {SPECV_RULE_TOKEN, SPECV_PROBS_F32, SPECV_PROBS_F32},
        {SPECV_RULE_BLOCK, SPECV_PROBS_F32, SPECV_PROBS_F32},
    };
    for (int i = 0; i < T_COUNT(firsts); ++i) {
        scene c = plain_scene(3, 2, 1500);
        stage g;
        specv_verify_sample_desc d;
        char *made;
        c.rule = firsts[i].rule;
        c.target_dtype = firsts[i].target, c.draft_dtype = firsts[i].draft;
        t_case("dependent of the kernel that writes the scores, %d", i);
        stage_make(&g, &c);
        t_upload();
        run_reference(&g);
        d = describe_device(&g);
        T_CUDA(cudaMalloc((void **)&made, (size_t)g.target.bytes));
        T_CUDA(cudaMemset(made, 0xff, (size_t)g.target.bytes));
        t_produce(made, d.target.data, (int64_t)g.target.bytes);
        d.target.data = made;
        d.verify.chained = SPECV_CHAINED_AFTER;
        CHECK_EQ(specv_verify_sample(&d, 0), SPECV_OK, -1);
        t_check_dependents();
        t_check_device();
        T_CUDA(cudaFree(made));
        T_CUDA(cudaFree(d.scratch));
        batch_free(&g.b);
    }
#else
    t_skip("dependent launches need a device");
#endif
}

/* ln p of drafts at the ends of what there is, each alone in its row: NaN, -inf, what is no
   probability, temperature 0, numbers that are hardly above 0. */
static void test_scored(void) {
    static const struct {
        int dtype;
        float score, others, temperature, want;
        uint32_t status;
    } cases[] = {
        {SPECV_LOGITS_F32, NAN, 1, 1, -INFINITY, SPECV_ROW_NAN},
        {SPECV_LOGITS_F32, -INFINITY, 1, 1, -INFINITY, 0},
        {SPECV_LOGITS_F32, 1, -INFINITY, 1, 0, 0},
        {SPECV_LOGITS_F32, -INFINITY, -INFINITY, 1, -INFINITY, SPECV_ROW_EMPTY},
        {SPECV_LOGITS_F32, 2, 1, 0, 0, 0},
        {SPECV_LOGITS_F32, 1, 2, 0, -INFINITY, 0},
        {SPECV_LOGITS_F32, 1, 1, 1, -1.38629436f, 0},
        {SPECV_LOGITS_F32, INFINITY, 1, 1, 0, SPECV_ROW_EXTREME},
        {SPECV_LOGITS_F32, 1, 3, 2, -2.21428238f, 0}, /* -1 - ln (3 + 1 / e) */
        {SPECV_PROBS_F32, 0.25f, 0.25f, 1, -1.38629436f, 0},
        {SPECV_PROBS_F32, 1, 0, 1, 0, 0},
        {SPECV_PROBS_F32, 0, 0.3f, 1, -INFINITY, 0},
        {SPECV_PROBS_F32, NAN, 0.3f, 1, -INFINITY, SPECV_ROW_NAN},
        {SPECV_PROBS_F32, -0.5f, 0.3f, 1, -INFINITY, SPECV_ROW_NAN},
        {SPECV_PROBS_F32, 2.5f, 0.3f, 1, -INFINITY, SPECV_ROW_NAN},
        {SPECV_PROBS_F32, 0.5f, 0.2f, 0, 0, 0},
        {SPECV_PROBS_F32, 0.1f, 0.3f, 0, -INFINITY, 0},
        {SPECV_PROBS_F32, 1e-37f, 0.3f, 1, -85.1956482f, 0},
        {SPECV_PROBS_F32, 1e-40f, 0.3f, 1, -INFINITY, 0}, /* as good as 0 */
    };
    for (int i = 0; i < T_COUNT(cases); ++i) {
        scene c = plain_scene(1, 1, 4);
        stage g;
        float p;
        c.rule = SPECV_RULE_SCORE, c.target_dtype = cases[i].dtype;
        c.temperature = cases[i].temperature;
        t_case("log-probability of one draft, %d", i);
        stage_make(&g, &c);
        put_token(&g.b.draft, SPECV_I32, 0, 2);
        for (int64_t x = 0; x < 4; ++x)
            put_score(&g.target, c.target_dtype, x, x == 2 ? cases[i].score : cases[i].others);
        for (int64_t x = 4; x < 8; ++x) put_score(&g.target, c.target_dtype, x, 0.25f);
        t_upload();
        run_reference(&g);
        memcpy(&p, g.target_logprob.host, 4);
        CHECK(isinf(cases[i].want) ? p == cases[i].want : fabs(p - cases[i].want) <= 1e-5);
        CHECK_EQ(word_at(&g.b.status, 0), cases[i].status, 0);
        CHECK_EQ(word_at(&g.b.accepted, 0), 1, 0);
        run_device(&g);
        batch_free(&g.b);
    }
}

/* Tickets that are not what they must be: as an aborted launch leaves them, or memory that nobody
   zeroed. Those rows emit nothing and say so, whichever block sees it; the others never notice. */
static void test_tickets(void) {
#if T_DEVICE
    enum { ROWS = 4, DRAFTS = 2, COLUMNS = DRAFTS + 1 };
    for (int i = 0; i < 24; ++i) {
        const int second = i % 2; /* pass */
        scene c = plain_scene(ROWS, DRAFTS, 9000);
        stage g;
        uint32_t stale, now[2 * ROWS], status[ROWS];
        int32_t accepted[ROWS], out[ROWS * COLUMNS];
        c.target_dtype = c.draft_dtype = second ? SPECV_PROBS_F32 : SPECV_LOGITS_F32;
        c.rule = i / 2 % 2 ? SPECV_RULE_BLOCK : SPECV_RULE_TOKEN, c.num_sms = 32;
        t_case("tickets: pass %d, kind %d,", 1 + second, i / 2);
        stage_make(&g, &c);
        t_upload();
        run_reference(&g);
        specv_verify_sample_desc d = describe_device(&g);
        uint32_t *tickets = (uint32_t *)d.scratch;
        stale = i / 4 == 0 ? 1 : i / 4 == 1 ? 0x0badf00du : i / 4 == 2 ? ~0u : (uint32_t)t_random();
        if (second) { /* it is known only now which rows come to the second pass */
            T_CUDA(cudaMemcpy(tickets + 3, &stale, 4, cudaMemcpyHostToDevice));
            T_CUDA(cudaMemcpy(tickets + 5, &stale, 4, cudaMemcpyHostToDevice));
        } else {
            T_CUDA(cudaMemcpy(tickets + 2, &stale, 4, cudaMemcpyHostToDevice));
            T_CUDA(cudaMemcpy(tickets + 4, &stale, 4, cudaMemcpyHostToDevice));
        }
        CHECK_EQ(specv_verify_sample(&d, 0), SPECV_OK, -1);
        T_CUDA(cudaDeviceSynchronize());
        T_CUDA(cudaMemcpy(status, g.b.status.device, sizeof status, cudaMemcpyDeviceToHost));
        T_CUDA(cudaMemcpy(accepted, g.b.accepted.device, sizeof accepted, cudaMemcpyDeviceToHost));
        T_CUDA(cudaMemcpy(out, g.b.tokens.device, sizeof out, cudaMemcpyDeviceToHost));
        T_CUDA(cudaMemcpy(now, tickets, sizeof now, cudaMemcpyDeviceToHost));
        for (int row = 0; row < ROWS; ++row) {
            /* A row that has all of it accepted may not come to the second pass. */
            const int done = second && now[2 * row + 1] == stale;
            const int bad = (row == 1 || row == 2) && !done;
            CHECK_EQ(status[row] & SPECV_ROW_BAD_TICKET, bad ? SPECV_ROW_BAD_TICKET : 0, row);
            CHECK_EQ(accepted[row], bad ? 0 : word_at(&g.b.accepted, row), row);
            for (int j = 0; j < COLUMNS; ++j)
                CHECK_EQ(out[row * COLUMNS + j], bad ? -1 : word_at(&g.b.tokens, row * COLUMNS + j),
                         row);
        }
        T_CUDA(cudaMemset(d.scratch, 0, SPECV_TICKET_BYTES));
        t_poison_device();
        CHECK_EQ(specv_verify_sample(&d, 0), SPECV_OK, -1);
        t_check_device();
        T_CUDA(cudaFree(d.scratch));
        batch_free(&g.b);
    }
#else
    t_skip("the reference needs no scratch memory");
#endif
}

/* Scores that contradict each other: p is nowhere above q. The token then comes from p, over more
   tiles than one warp adds up. With many multiprocessors a block of probabilities knows from its
   start that it is the last one. */
static void test_zero_residual(void) {
    for (int i = 0; i < 8; ++i) {
        scene c = plain_scene(2, 2, 9000);
        stage g;
        c.target_dtype = i & 1 ? SPECV_PROBS_F32 : SPECV_LOGITS_F32;
        c.draft_dtype = SPECV_PROBS_F32, c.odd = ODD_SAME, c.uniforms = 1, c.spread = 0.5f;
        c.rule = i & 2 ? SPECV_RULE_BLOCK : SPECV_RULE_TOKEN;
        c.num_sms = i & 4 ? 132 : 8;
        t_case("zero residual: scores %d, rule %d, %d SMs", c.target_dtype, c.rule, c.num_sms);
        stage_make(&g, &c);
        for (int64_t x = 0; x < (int64_t)(g.draft.bytes / 4); ++x)
            ((float *)(void *)g.draft.host)[x] = 2;
        for (int64_t x = 0; x < (int64_t)(g.accept.bytes / 4); ++x)
            ((float *)(void *)g.accept.host)[x] = 0.99f;
        /* Near the end: a sum that comes late, and is not waited for, is in front of it. */
        for (int row = 0; row < 2; ++row)
            ((float *)(void *)g.sample.host)[row] = row ? 0.9999f : 0.99f;
        t_upload();
        run_reference(&g);
        for (int row = 0; row < 2; ++row)
            CHECK_EQ(word_at(&g.b.status, row) & SPECV_ROW_ZERO_RESIDUAL, SPECV_ROW_ZERO_RESIDUAL,
                     row);
        for (int row = 0; row < 2; ++row) CHECK(get_token(&g.b.next, SPECV_I32, row) >= 0);
        run_device(&g);
        batch_free(&g.b);
    }
}

/* The block rule by numbers of the seeds, where it has to look for the last draft that stands: near
   the first and near the 32nd, where numbers that the judge has end. */
static void test_block_numbers(void) {
    int inside = 0, beyond = 0;
    for (int i = 0; i < 8; ++i) {
        const int drafts = i & 1 ? 36 : 7, rows = i & 1 ? 64 : 16;
        scene c = plain_scene(rows, drafts, 150 + 10 * i);
        stage g;
        c.target_dtype = c.draft_dtype = SPECV_PROBS_F32, c.rule = SPECV_RULE_BLOCK;
        c.spread = i & 1 ? 0.2f : 1;
        c.num_sms = i & 2 ? 132 : 8;
        t_case("block numbers: %d drafts, %d SMs, %d", drafts, c.num_sms, i);
        stage_make(&g, &c);
        t_upload();
        run_reference(&g);
        for (int row = 0; row < rows; ++row) {
            const int accepted = word_at(&g.b.accepted, row);
            const int searched = ((const uint8_t *)g.b.mismatch.host)[row];
            inside += searched && accepted > 0 && accepted < 32;
            beyond += searched && accepted > 32;
        }
        run_device(&g);
        batch_free(&g.b);
    }
    t_case("block numbers: where it stops");
    CHECK(inside >= 40);
    CHECK(beyond >= 8);
}

/* What A8 should draw from a row of scores, in doubles, with the random numbers that its method and
   stream stand for; -1 if rounding might decide. *largest: the largest probability. */
static int32_t expected_sample(const specv_sample_desc *d, const float *score, int row,
                               double *largest) {
    const int probs = d->scores.dtype == SPECV_PROBS_F32;
    const int own = d->stream != SPECV_STREAM_COUPLED;
    const double temperature = (double)d->temperature[row];
    const uint32_t draft = d->stream == SPECV_STREAM_DRAFT ? 16 : 0;
    const uint32_t at = (uint32_t)d->position[row], step_row = (uint32_t)d->step_row;
    double top = -1e300, sum = 0, below = 0, u, best = -1e300, second = -1e300;
    int32_t choice = -1, likeliest = 0;
    specv_random r = specv_philox(d->seed[row], at, step_row, 0, 2 + draft);
    for (int64_t x = 0; x < d->vocab; ++x)
        if ((double)score[x] > top) top = (double)score[x], likeliest = (int32_t)x;
    *largest = 1;
    if (!(temperature > 0)) return likeliest;
    for (int64_t x = 0; x < d->vocab; ++x)
        sum += probs ? (double)score[x] : exp(((double)score[x] - top) / temperature);
    *largest = probs ? top : 1 / sum;
    u = d->uniform ? (double)d->uniform[row] : r.x[1] / 0x1p32 + r.x[0] / 0x1p64;
    for (int64_t x = 0; x < d->vocab; ++x) {
        const double w = probs ? (double)score[x] : exp(((double)score[x] - top) / temperature);
        if (d->method == SPECV_SAMPLE_CDF) {
            if (fabs(u * sum - below) < 1e-6 * sum) return -1;
            if (u * sum >= below) choice = (int32_t)x;
            below += w;
            continue;
        }
        r = own ? specv_philox(d->seed[row], at, step_row, (uint32_t)x / 4, 5 + draft)
                : specv_philox(d->seed[row], at + step_row, 0, (uint32_t)x / 4, 3);
        const double value = log2(w) + specv_gumbel24(r.x[x % 4], 0) / 0x1p24;
        if (value > best)
            second = best, best = value, choice = (int32_t)x;
        else if (value > second)
            second = value;
    }
    return d->method == SPECV_SAMPLE_GUMBEL && best - second < 1e-5 ? -1 : choice;
}

/* A8: sampling is verification without drafts, with an interface and random numbers of its own. */
static void test_sample(void) {
    int close = 0;
    for (int i = 0; i < (t.quick ? 12 : 48); ++i) {
        /* The last vocabulary has more tiles than a warp has lanes. */
        const int rows = 1 + i % 5, vocab = i % 8 == 6 ? 40000 : 200 + 700 * (i % 4), gap = i % 3;
        const int stride = 1 + i % 2 * 3, keep = i % 3 == 1;
        const int dtype = i / 3 % 2 ? SPECV_PROBS_F32 : SPECV_LOGITS_F32;
        specv_sample_desc d = SPECV_ZERO;
        specv_verify_sample_desc v = SPECV_ZERO;
        t_buf scores, uniform, seed, position, temperature, token, logprob, lse, status, max_prob;
        int32_t accepted[8], next[8];
        t_case("sample: %d rows, vocabulary %d, dtype %d", rows, vocab, dtype);
        scores = t_in(4 * (int64_t)rows * (vocab + gap), 0);
        uniform = t_in(4 * rows, 0), seed = t_in(8 * rows, 0), position = t_in(4 * rows, 0),
        temperature = t_in(4 * rows, 0);
        for (int64_t x = 0; x < (int64_t)rows * (vocab + gap); ++x)
            put_score(&scores, SPECV_LOGITS_F32, x, normal(3));
        for (int row = 0; row < rows && dtype == SPECV_PROBS_F32; ++row) {
            float *p = (float *)(void *)scores.host + (int64_t)row * (vocab + gap);
            double sum = 0;
            for (int x = 0; x < vocab; ++x) sum += exp((double)p[x]);
            for (int x = 0; x < vocab; ++x) p[x] = (float)(exp((double)p[x]) / sum);
        }
        for (int row = 0; row < rows; ++row) {
            ((float *)(void *)uniform.host)[row] = 0.99f - 0.1f * (float)row;
            ((uint64_t *)(void *)seed.host)[row] = t_random();
            ((int32_t *)(void *)position.host)[row] = (int32_t)t_below(1000);
            ((float *)(void *)temperature.host)[row] = row % 4 ? 0.5f * (float)row : 0;
        }
        token = t_out((i % 2 ? 8 : 4) * ((rows - 1) * stride + 1), 0), logprob = t_out(4 * rows, 0);
        lse = t_out(4 * rows, 0), status = t_out(4 * rows, 0), max_prob = t_out(4 * rows, 0);
        t_fill_status(&status, keep);
        t_upload();
        for (int side = 0; side <= T_DEVICE; ++side) {
            d.token_dtype = i % 2 ? SPECV_I64 : SPECV_I32;
            d.scores.data = t_at(&scores, side);
            d.scores.pos_stride_elems = vocab + gap;
            d.scores.dtype = dtype;
            d.temperature = (const float *)t_at(&temperature, side);
            d.seed = (const uint64_t *)t_at(&seed, side);
            d.position = (const int32_t *)t_at(&position, side);
            d.uniform = i % 4 == 2 ? (const float *)t_at(&uniform, side) : NULL;
            d.token = t_at(&token, side);
            d.token_stride_elems = stride > 1 ? stride : 0;
            d.logprob = (float *)t_at(&logprob, side);
            d.lse = (float *)t_at(&lse, side);
            d.row_status = (uint32_t *)t_at(&status, side), d.keep_status = keep;
            d.max_prob = (float *)t_at(&max_prob, side);
            d.vocab = vocab, d.batch = rows, d.method = i / 2 % 2, d.step_row = i % 3;
            d.stream = i / 4 % (d.method == SPECV_SAMPLE_GUMBEL ? 3 : 2);
            d.scratch = no_scratch();
            d.scratch_bytes = INT64_MAX;
#if T_DEVICE
            if (side == T_DEVICE_SIDE) {
                d.scratch_bytes = specv_sample_scratch_bytes(rows, vocab);
                d.scratch = new_scratch(d.scratch_bytes);
                CHECK_EQ(specv_sample(&d, 0), SPECV_OK, -1);
                t_check_device();
                T_CUDA(cudaFree(d.scratch));
                continue;
            }
#endif
            CHECK_EQ(specv_ref_sample(&d), SPECV_OK, -1);
            t_check_host();
            v.verify.rows.batch = rows, v.verify.vocab = vocab;
            v.verify.accepted_len = accepted, v.verify.next_token = next;
            v.target = d.scores;
            v.sample_uniform = d.uniform;
            v.temperature = d.temperature, v.seed = d.seed, v.position = d.position;
            v.scratch = d.scratch, v.scratch_bytes = d.scratch_bytes;
            v.rule = d.method == SPECV_SAMPLE_GUMBEL ? SPECV_RULE_COUPLED : SPECV_RULE_TOKEN;
            v.step_row = d.step_row;
            CHECK_EQ(specv_ref_verify_sample(&v), SPECV_OK, -1);
            for (int row = 0; row < rows; ++row) {
                const float *score = (const float *)(const void *)scores.host;
                const int64_t drawn = get_token(&token, (specv_dtype)d.token_dtype, row * stride);
                double largest;
                int32_t expected =
                    expected_sample(&d, score + (int64_t)row * (vocab + gap), row, &largest);
                close += expected < 0;
                CHECK_EQ((uint32_t)word_at(&status, row), t_old_status(keep, row), row);
                if (expected >= 0) CHECK_EQ(drawn, expected, row);
                CHECK(fabs((double)d.max_prob[row] / largest - 1) < 1e-6);
                /* the same numbers as a verification's: the caller's, or those of the text */
                if (d.method == SPECV_SAMPLE_CDF ? d.uniform != NULL
                                                 : d.stream == SPECV_STREAM_COUPLED)
                    CHECK_EQ(drawn, next[row], row);
            }
        }
    }
    t_close_case();
    CHECK(close <= 2);
}

/* ------------------------------------------------------------------ probabilities that are none */

/* One row of n = 1 draft or none over three ids, p and q times a factor each. */
static void check_sum(int rule, int with_q, int drafts, float of_p, float of_q, uint32_t want) {
    const float p[] = {.25f, .5f, .25f}, q[] = {.5f, .25f, .25f};
    scene c = plain_scene(1, drafts, 3);
    stage g;
    c.rule = rule, c.target_dtype = SPECV_PROBS_F32, c.uniforms = rule != SPECV_RULE_COUPLED;
    c.draft_dtype = with_q ? (int)SPECV_PROBS_F32 : (int)NO_DRAFT_SCORES;
    t_case("sums: rule %d, %s, %d drafts, p times %.4f, q times %.4f", rule,
           with_q ? "with q" : "one-hot", drafts, (double)of_p, (double)of_q);
    stage_make(&g, &c);
    if (drafts) put_token(&g.b.draft, SPECV_I32, 0, 0);
    for (int64_t i = 0; i < 3 * (drafts + 1); ++i) /* the bonus row is sound: it is not reached */
        put_score(&g.target, c.target_dtype, i, i < 3 ? of_p * p[i] : p[i - 3]);
    for (int64_t x = 0; x < 3 && with_q && drafts; ++x)
        put_score(&g.draft, SPECV_PROBS_F32, x, of_q * q[x]);
    if (drafts) ((float *)(void *)g.accept.host)[0] = 0.99f; /* rejects */
    if (c.uniforms) ((float *)(void *)g.sample.host)[0] = 0.75f;
    t_upload();
    run_reference(&g);
    CHECK_EQ(word_at(&g.b.status, 0), want, 0);
    CHECK_EQ(word_at(&g.b.accepted, 0), 0, 0);
    run_device(&g);
    batch_free(&g.b);
}

static void test_sums(void) {
    static const float factors[] = {.9f, .9985f, .9995f, 1, 1.0005f, 1.0015f, 1.5f};
    static const int off[] = {1, 1, 0, 0, 0, 1, 1};
    for (int i = 0; i < T_COUNT(factors); ++i) {
        const uint32_t bit = off[i] ? SPECV_ROW_BAD_SUM : 0;
        for (int rule = SPECV_RULE_TOKEN; rule <= SPECV_RULE_BLOCK; ++rule) {
            check_sum(rule, 0, 0, factors[i], 1, bit);
            check_sum(rule, 0, 1, factors[i], 1, bit);
            check_sum(rule, 1, 1, factors[i], 1, bit);
            check_sum(rule, 1, 1, 1, factors[i], bit);
            check_sum(rule, 1, 1, factors[i], factors[i], 0); /* cancels out, and harms nobody */
        }
        check_sum(SPECV_RULE_SCORE, 0, 0, factors[i], 1, bit);
        check_sum(SPECV_RULE_COUPLED, 0, 0, factors[i], 1, 0); /* does not need the sum */
    }
}

/* Probabilities so small that the sum of a tile, in units of 2^-40, leaves most of its ids
   undecided: the bits of the point behind it go on in the tile. */
static void test_small_sums(void) {
    static const int sizes[] = {3001, 40001, 270001};
    for (int i = 0; i < (t.quick ? 2 : T_COUNT(sizes)); ++i) {
        scene c = plain_scene(i < 2 ? 6 : 2, 0, sizes[i]);
        stage g;
        c.rule = SPECV_RULE_TOKEN, c.target_dtype = SPECV_PROBS_F32;
        c.draft_dtype = NO_DRAFT_SCORES;
        t_case("small sums, vocabulary %d:", sizes[i]);
        stage_make(&g, &c);
        for (int64_t x = 0; x < c.s.batch * (int64_t)sizes[i]; ++x)
            put_score(&g.target, SPECV_PROBS_F32, x, ldexpf(1.f + (float)(x % 7), -47));
        t_upload();
        run_reference(&g);
        CHECK_EQ(word_at(&g.b.status, 0), SPECV_ROW_BAD_SUM, 0);
        run_device(&g);
        batch_free(&g.b);
    }
}

/* Words of the generator that come once in 2^24 times, here for known seeds: what goes on behind
   their 24 zeros decides. */
static void test_rare_words(void) {
    static const struct {
        uint64_t seed;
        double p;
        int accepted;
    } tests[] = {{33899990, 2.5e-9, 0},
                 {33899990, 4.5e-9, 1},
                 {51839954, 4.6e-8, 0},
                 {51839954, 4.8e-8, 1}}; /* u = 993,311 and 13,167,383 / 2^48 */
    static const struct {
        uint64_t seed;
        int id;
    } noises[] = {{58921, 558}, {99978, 344}, {122900, 549}};
    for (int i = 0; i < T_COUNT(tests); ++i) {
        scene c = plain_scene(1, 1, 2);
        stage g;
        c.draft_dtype = NO_DRAFT_SCORES;
        t_case("rare words: accept test %d", i);
        stage_make(&g, &c);
        ((uint64_t *)(void *)g.seed.host)[0] = tests[i].seed;
        ((int32_t *)(void *)g.position.host)[0] = 7;
        CHECK(specv_philox(tests[i].seed, 7, 0, 0, 0).x[0] < 256);
        put_token(&g.b.draft, SPECV_I32, 0, 1);
        for (int x = 0; x < 4; ++x)
            put_score(&g.target, SPECV_LOGITS_F32, x, x % 2 ? (float)log(tests[i].p) : 0);
        t_upload();
        run_reference(&g);
        CHECK_EQ(word_at(&g.b.accepted, 0), tests[i].accepted, 0);
        run_device(&g);
        batch_free(&g.b);
    }
    for (int i = 0; i < T_COUNT(noises); ++i) {
        const int id = noises[i].id, other = 7;
        const uint64_t seed = noises[i].seed;
        const uint32_t word = specv_philox(seed, 7, 0, (uint32_t)id / 4, 3).x[id % 4];
        const uint32_t finer = specv_philox(seed, 7, 0, (uint32_t)id / 4, 3 + 32).x[id % 4];
        const double without = -log2(-log1p(-(word + .5) / 0x1p32));
        const double with = -log2(-log1p(-(word + (finer + .5) / 0x1p32) / 0x1p32));
        const double against = specv_gumbel24(specv_philox(seed, 7, 0, 1, 3).x[3], 0) / 0x1p24;
        scene c = plain_scene(1, 0, 1024);
        stage g;
        c.rule = SPECV_RULE_COUPLED;
        t_case("rare words: noise %d", i);
        stage_make(&g, &c);
        ((uint64_t *)(void *)g.seed.host)[0] = seed;
        ((int32_t *)(void *)g.position.host)[0] = 7;
        CHECK(word < 256 && fabs(with - without) > 1e-4);
        for (int x = 0; x < 1024; ++x) put_score(&g.target, SPECV_LOGITS_F32, x, -INFINITY);
        put_score(&g.target, SPECV_LOGITS_F32, other, 0);
        put_score(&g.target, SPECV_LOGITS_F32, id, /* half way between */
                  (float)((against - (with + without) / 2) * 0.69314718055994531));
        t_upload();
        run_reference(&g);
        CHECK_EQ(get_token(&g.b.next, SPECV_I32, 0), with > without ? id : other, 0);
        run_device(&g);
        batch_free(&g.b);
    }
}

/* -------------------------------------------------------------------------------------- slots */

/* Every output of a step, one behind the other; to be freed. */
static char *copy_outputs(const stage *g, size_t *bytes) {
    const t_buf *const all[] = {&g->b.accepted, &g->b.mismatch,    &g->b.next,   &g->b.tokens,
                                &g->b.emitted,  &g->b.finished,    &g->b.status, &g->logprob,
                                &g->lse,        &g->target_logprob};
    char *copy, *to;
    *bytes = 0;
    for (int i = 0; i < T_COUNT(all); ++i) *bytes += all[i]->host ? (size_t)all[i]->bytes : 0;
    copy = to = (char *)malloc(*bytes + 1);
    if (!copy) t_die(__FILE__, __LINE__, "malloc", "no memory");
    for (int i = 0; i < T_COUNT(all); ++i)
        if (all[i]->host) {
            memcpy(to, all[i]->host, (size_t)all[i]->bytes);
            to += all[i]->bytes;
        }
    return copy;
}

/* The row says that its slot is bad, and nothing else. */
static void expect_bad_slot(const stage *g, int row) {
    const int64_t columns = g->c.s.max_draft + 1;
    const specv_dtype dtype = g->c.s.dtype;
    ((int32_t *)(void *)g->b.accepted.host)[row] = 0;
    ((int32_t *)(void *)g->b.emitted.host)[row] = 0;
    g->b.mismatch.host[row] = g->b.finished.host[row] = 0;
    put_token(&g->b.next, dtype, row, -1);
    for (int64_t j = 0; j < columns; ++j)
        put_token(&g->b.tokens, dtype, row * g->b.out_stride + j, -1);
    ((uint32_t *)(void *)g->b.status.host)[row] = SPECV_ROW_BAD_SLOT;
    ((float *)(void *)g->logprob.host)[row] = ((float *)(void *)g->lse.host)[row] = 0;
    for (int64_t j = 0; j < columns - 1 && g->target_logprob.host; ++j)
        ((float *)(void *)g->target_logprob.host)[row * (columns - 1) + j] = 0;
}

/* The reference without slots, given each row's values in the order of rows. */
static void run_gathered(const stage *g, const int32_t *slot) {
    specv_verify_sample_desc d = stage_describe(g, T_HOST_SIDE);
    enum { MOST = 16 };
    float temperature[MOST], draft_temperature[MOST];
    uint64_t seed[MOST];
    int32_t position[MOST];
    for (int row = 0; row < g->c.s.batch; ++row) {
        const int of = slot[row] < 0 || slot[row] >= g->num_slots ? 0 : slot[row];
        temperature[row] = d.temperature[of], seed[row] = d.seed[of],
        position[row] = d.position[of];
        if (d.draft_temperature) draft_temperature[row] = d.draft_temperature[of];
    }
    d.verify.rows.slot = NULL;
    d.temperature = temperature, d.seed = seed, d.position = position;
    if (d.draft_temperature) d.draft_temperature = draft_temperature;
    d.scratch = no_scratch(), d.scratch_bytes = INT64_MAX;
    CHECK_EQ(specv_ref_verify_sample(&d), SPECV_OK, -1);
}

/* A batch as a list of slots has the bits of the batch whose values lie in the order of its rows.
   A slot that is none costs its row and no other; two rows of one slot are two equal requests. */
static void test_slots(void) {
    for (int turn = 0; turn < 48; ++turn) {
        const int bad = turn / 6 % 2;
        size_t bytes, same;
        char *expected, *seen;
        int32_t *slot;
        scene c = plain_scene(9, 3, turn % 2 ? 300 : 1100);
        stage g;
        c.rule = turn % NUM_RULES;
        c.s.layout = (layout)(turn % NUM_LAYOUTS);
        c.s.endings = SCORE_ENDINGS, c.s.num_eos = 1;
        c.s.has_num_active = 1, c.s.num_active = 8;
        c.draft_dtype = turn % 4 == 3 ? (int)NO_DRAFT_SCORES : turn % 4;
        c.target_dtype = turn / 5 % 4;
        c.uniforms = turn % 7 == 6, c.slots = 1, c.temperature = turn % 3 ? -1.f : 0.7f;
        t_case("slots: rule %d, layout %d, %s", c.rule, (int)c.s.layout, bad ? "bad ones" : "good");
        stage_make(&g, &c);
        slot = (int32_t *)(void *)g.slot.host;
        if (bad) slot[1] = -1, slot[2] = g.num_slots, slot[5] = INT32_MIN, slot[6] = INT32_MAX;
        if (bad) slot[4] = slot[0]; /* both are read, none is written: lawful */
        t_upload();
        run_gathered(&g, slot);
        for (int row = 0; row < c.s.batch; ++row)
            if (g.b.rows[row].live && (slot[row] < 0 || slot[row] >= g.num_slots))
                expect_bad_slot(&g, row);
        expected = copy_outputs(&g, &bytes);
        run_reference(&g);
        seen = copy_outputs(&g, &same);
        CHECK(bytes == same && memcmp(expected, seen, bytes) == 0);
        t_check_host();
        run_device(&g);
        free(expected), free(seen);
        batch_free(&g.b);
    }
}

/* The same for A8. */
static void test_sample_slots(void) {
    enum { ROWS = 7, SLOTS = 20, VOCAB = 1500 };
    for (int turn = 0; turn < 16; ++turn) {
        static const int32_t good[ROWS] = {13, 4, 19, 0, 4, 7, -1},
                             none[ROWS] = {13, SLOTS, 19, -1, 4, INT32_MIN, INT32_MAX};
        const int32_t *const slots = turn % 2 ? none : good;
        const int dtype = turn / 8 ? SPECV_I64 : SPECV_I32;
        specv_sample_desc d = SPECV_ZERO;
        int32_t active = ROWS - 1, token[ROWS], position[ROWS] = {0};
        float logprob[ROWS], lse[ROWS], max_prob[ROWS], temperature[ROWS] = {0};
        uint32_t status[ROWS];
        uint64_t seed[ROWS] = {0};
        t_buf out[5], in[6];
        t_case("slots of A8: %s, method %d, dtype %d", turn % 2 ? "bad ones" : "good", turn / 2 % 2,
               dtype);
        in[0] = t_in(4 * ROWS * VOCAB, 0), in[1] = t_in(4 * SLOTS, 0), in[2] = t_in(8 * SLOTS, 0);
        in[3] = t_in(4 * SLOTS, 0), in[4] = t_in(8 * ROWS, 0), in[5] = t_in(4, 0);
        for (int i = 0; i < 5; ++i) out[i] = t_out(4 * ROWS, 0);
        for (int x = 0; x < ROWS * VOCAB; ++x) put_score(&in[0], SPECV_LOGITS_F32, x, normal(3));
        for (int slot = 0; slot < SLOTS; ++slot) {
            ((float *)(void *)in[1].host)[slot] = NAN;
            ((uint64_t *)(void *)in[2].host)[slot] = t_random();
            ((int32_t *)(void *)in[3].host)[slot] = (int32_t)t_below(1000);
        }
        for (int row = 0; row < ROWS; ++row) {
            const int slot = slots[row], ok = slot >= 0 && slot < SLOTS;
            if (ok) ((float *)(void *)in[1].host)[slot] = 0.1f * (float)slot;
            temperature[row] = ok ? 0.1f * (float)slot : 1;
            seed[row] = ((uint64_t *)(void *)in[2].host)[ok ? slot : 0];
            position[row] = ((int32_t *)(void *)in[3].host)[ok ? slot : 0];
        }
        for (int row = 0; row < ROWS; ++row)
            if (dtype == SPECV_I64)
                ((int64_t *)(void *)in[4].host)[row] = slots[row];
            else
                ((int32_t *)(void *)in[4].host)[row] = slots[row];
        memcpy(in[5].host, &active, 4);
        t_upload();
        d.batch = ROWS, d.vocab = VOCAB, d.method = turn / 2 % 2, d.stream = turn / 4 % 2;
        d.scores.data = in[0].host, d.num_active = &active;
        d.temperature = temperature, d.seed = seed, d.position = position;
        d.token = token, d.logprob = logprob, d.lse = lse, d.max_prob = max_prob;
        d.row_status = status, d.scratch = no_scratch(), d.scratch_bytes = INT64_MAX;
        CHECK_EQ(specv_ref_sample(&d), SPECV_OK, -1);
        for (int row = 0; row < (int)active; ++row)
            if (slots[row] < 0 || slots[row] >= SLOTS) {
                token[row] = -1, status[row] = SPECV_ROW_BAD_SLOT;
                logprob[row] = lse[row] = max_prob[row] = 0;
            }
        for (int side = 0; side <= T_DEVICE; ++side) {
            d.scores.data = t_at(&in[0], side);
            d.temperature = (const float *)t_at(&in[1], side);
            d.seed = (const uint64_t *)t_at(&in[2], side);
            d.position = (const int32_t *)t_at(&in[3], side);
            d.slot = t_at(&in[4], side), d.slot_dtype = dtype, d.num_slots = SLOTS;
            d.num_active = (const int32_t *)t_at(&in[5], side);
            d.token = t_at(&out[0], side), d.logprob = (float *)t_at(&out[1], side);
            d.lse = (float *)t_at(&out[2], side), d.max_prob = (float *)t_at(&out[3], side);
            d.row_status = (uint32_t *)t_at(&out[4], side);
#if T_DEVICE
            if (side == T_DEVICE_SIDE) {
                d.scratch_bytes = specv_sample_scratch_bytes(ROWS, VOCAB);
                d.scratch = new_scratch(d.scratch_bytes);
                CHECK_EQ(specv_sample(&d, 0), SPECV_OK, -1);
                t_check_device();
                T_CUDA(cudaFree(d.scratch));
                continue;
            }
#endif
            CHECK_EQ(specv_ref_sample(&d), SPECV_OK, -1);
            t_check_host();
            CHECK_BYTES(out[0].host, token, sizeof token);
            CHECK_BYTES(out[1].host, logprob, sizeof logprob);
            CHECK_BYTES(out[2].host, lse, sizeof lse);
            CHECK_BYTES(out[3].host, max_prob, sizeof max_prob);
            CHECK_BYTES(out[4].host, status, sizeof status);
        }
    }
}

#if T_DEVICE
/* Slots of operations that write, found by a warp and by a thread for each row, and of those that
   only read: [row][3] slots and [row][3] status words. */
static __global__ void find_slots(const void *slot, int dtype, int num_slots, int rows,
                                  int32_t *found, uint32_t *status) {
    for (int row = (int)threadIdx.x / 32; row < rows; row += (int)blockDim.x / 32) {
        uint32_t bits = 0;
        const int32_t mine = specv_warp_slot(slot, dtype, num_slots, row, &bits);
        if (threadIdx.x % 32 == (unsigned)row % 32) found[3 * row] = mine, status[3 * row] = bits;
    }
    for (int row = (int)threadIdx.x; row < rows; row += (int)blockDim.x) {
        status[3 * row + 1] = status[3 * row + 2] = 0;
        found[3 * row + 1] =
            specv_thread_own_slot(slot, dtype, num_slots, row, &status[3 * row + 1]);
        found[3 * row + 2] = specv_thread_slot(slot, dtype, num_slots, row, &status[3 * row + 2]);
    }
}
#endif

/* Whose slot it is: each slot's first row's, where the operation writes. */
static void test_slot_lookup(void) {
    static const int batches[] = {1, 2, 31, 32, 33, 64, 100, 300};
    for (int i = 0; i < T_COUNT(batches) * 8; ++i) {
        const int rows = batches[i / 8], num_slots = i % 4 == 1 ? rows / 2 + 1 : 2 * rows;
        const int given = i % 4 != 3, dtype = i / 4 % 2 ? SPECV_I64 : SPECV_I32;
        t_case("whose slot: %d rows, %d slots, dtype %d", rows, given ? num_slots : 0, dtype);
        t_buf slot = t_in((dtype == SPECV_I64 ? 8 : 4) * rows, 0), found = t_out(12 * rows, 0),
              status = t_out(12 * rows, 0);
        int32_t to[300], first[600];
        for (int row = 0; row < rows; ++row) {
            to[row] = i % 4 == 2 ? (row == rows - 1 ? 0 : row) : (int32_t)t_below(num_slots);
            if (i % 4 < 2 && t_chance(10)) to[row] = t_chance(50) ? -1 : num_slots;
            if (dtype == SPECV_I32) {
                ((int32_t *)(void *)slot.host)[row] = to[row];
            } else { /* one whose low word alone would be a slot is none */
                int64_t *list = (int64_t *)(void *)slot.host;
                list[row] = to[row];
                if (i % 4 == 1 && t_chance(10)) list[row] |= (int64_t)1 << 32, to[row] = -1;
            }
        }
        for (int s = 0; s < num_slots; ++s) first[s] = -1;
        t_upload();
        for (int row = 0; row < rows; ++row) {
            const int inside = to[row] >= 0 && to[row] < num_slots;
            int mine = 0;
            if (inside && first[to[row]] < 0) first[to[row]] = row;
            if (inside) mine = first[to[row]] == row;
            for (int k = 0; k < 3; ++k) {
                const int ok = !given || (k < 2 ? mine : inside);
                const uint32_t want = ok ? 0 : SPECV_ROW_BAD_SLOT;
                uint32_t bits = 0;
                const int32_t s = specv_ref_i_slot(given ? slot.host : NULL, dtype,
                                                   given ? num_slots : 0, row, k < 2, &bits);
                CHECK_EQ(s, !ok ? -1 : given ? to[row] : row, row);
                CHECK_EQ(bits, want, row);
                ((int32_t *)(void *)found.host)[3 * row + k] = s;
                ((uint32_t *)(void *)status.host)[3 * row + k] = bits;
            }
        }
#if T_DEVICE
        find_slots<<<1, 128>>>(given ? t_at(&slot, T_DEVICE_SIDE) : NULL, dtype,
                               given ? num_slots : 0, rows, (int32_t *)t_at(&found, T_DEVICE_SIDE),
                               (uint32_t *)t_at(&status, T_DEVICE_SIDE));
        t_check_device();
#endif
    }
}

/* A uniform that is none counts as the largest below 1, where it is used, and says so. */
static void test_uniforms(void) {
    static const float uniforms[] = {-1e-30f, -1, 1, 1.5f, INFINITY, -INFINITY, NAN};
    for (int i = 0; i < T_COUNT(uniforms) * 12; ++i) {
        const int rule = i % 2, of_token = i / 2 % 3; /* 0: test of draft 0, 1: of draft 2 */
        const int cut = i / 6 % 2;                    /* the least likely id */
        const float bad = uniforms[i / 12], largest = 1 - 0x1p-24f;
        int32_t accepted[2], next[2];
        uint32_t status[2], seen;
        t_case("uniforms: %g of %s, rule %d%s", (double)bad,
               of_token == 2 ? "the token"
               : of_token    ? "draft 2"
                             : "draft 0",
               rule, cut ? ", cut" : "");
        for (int good = 0; good < 2; ++good) {
            scene c = plain_scene(1, 3, 5);
            stage g;
            c.rule = rule, c.uniforms = 1;
            if (cut) c.filters = HAS_TOP_K, c.top_k = 4;
            stage_make(&g, &c);
            for (int64_t x = 0; x < 20; ++x)
                put_score(&g.target, SPECV_LOGITS_F32, x, (float)(x % 5) * .1f);
            for (int64_t x = 0; x < 15;
                 ++x) /* the draft's token is twice as likely, in the row 1 */
                put_score(&g.draft, SPECV_LOGITS_F32, x, x == 7 ? 1.f : (float)(x % 5) * .1f);
            for (int j = 0; j < 3; ++j) put_token(&g.b.draft, SPECV_I32, j, 2);
            float *accept = (float *)(void *)g.accept.host;
            float *sample = (float *)(void *)g.sample.host;
            accept[0] = accept[2] = 0.5f, accept[1] = 0.99f, sample[0] = 0.25f;
            *(of_token == 2 ? sample : accept + 2 * of_token) = good ? largest : bad;
            t_upload();
            run_reference(&g);
            accepted[good] = (int32_t)word_at(&g.b.accepted, 0);
            next[good] = (int32_t)get_token(&g.b.next, SPECV_I32, 0);
            status[good] = (uint32_t)word_at(&g.b.status, 0);
            run_device(&g);
            batch_free(&g.b);
        }
        /* rule TOKEN stops at draft 1 and never looks at the uniform of draft 2 */
        seen = rule == SPECV_RULE_TOKEN && of_token == 1 ? 0 : SPECV_ROW_BAD_UNIFORM;
        CHECK_EQ(accepted[0], accepted[1], -1);
        CHECK_EQ(next[0], next[1], -1);
        CHECK_EQ(status[0], seen, -1);
        CHECK_EQ(status[1], 0, -1);
    }
}

/* --------------------------------------------------------------------------------- validation */

static void *misaligned(void) { return (char *)storage + 1; }

static specv_verify_sample_desc valid_desc(void) {
    specv_verify_sample_desc d = SPECV_ZERO;
    d.verify.rows.batch = 4, d.verify.rows.max_draft = 7;
    d.verify.draft_tokens = storage;
    d.verify.accepted_len = (int32_t *)storage;
    d.verify.vocab = 100;
    d.target.data = d.draft.data = storage;
    d.seed = (const uint64_t *)storage;
    d.position = (const int32_t *)storage;
    d.scratch = storage + (size_t)storage % 16 / 8;
    d.scratch_bytes = INT64_MAX;
    return d;
}

#define EXPECT(code, change)                                                                       \
    do {                                                                                           \
        specv_verify_sample_desc d = valid_desc();                                                 \
        change;                                                                                    \
        CHECK_EQ(specv_verify_sample_validate(&d), code, -1);                                      \
        if ((code) != SPECV_OK) CHECK_EQ(specv_ref_verify_sample(&d), code, -1);                   \
        if ((code) != SPECV_OK) CHECK_EQ(launch(&d), code, -1);                                    \
    } while (0)

#define EXPECT_SAMPLE(code, change)                                                                \
    do {                                                                                           \
        specv_sample_desc d = SPECV_ZERO;                                                          \
        d.batch = 3, d.vocab = 10, d.scores.data = d.token = storage;                              \
        d.uniform = (const float *)(const void *)storage;                                          \
        d.scratch = storage + (size_t)storage % 16 / 8, d.scratch_bytes = INT64_MAX;               \
        change;                                                                                    \
        CHECK_EQ(specv_sample_validate(&d), code, -1);                                             \
        if ((code) != SPECV_OK) CHECK_EQ(specv_ref_sample(&d), code, -1);                          \
        if ((code) != SPECV_OK) CHECK_EQ(launch_sample(&d), code, -1);                             \
    } while (0)

static void test_validation(void) {
    t_case("every status code of A2 to A5");
    CHECK_EQ(specv_verify_sample_validate(NULL), SPECV_ERR_NULL_DESC, -1);
    CHECK_EQ(specv_ref_verify_sample(NULL), SPECV_ERR_NULL_DESC, -1);
    CHECK_EQ(launch(NULL), SPECV_ERR_NULL_DESC, -1);
    EXPECT(SPECV_OK, (void)0);
    EXPECT(SPECV_ERR_CANARY, d.verify.canary0 = 1);
    EXPECT(SPECV_ERR_CANARY, d.verify.canary1 = 1);
    EXPECT(SPECV_ERR_CHAINED, d.verify.chained = 4);
    EXPECT(SPECV_ERR_CHAINED, d.verify.chained = -1);
    EXPECT(SPECV_ERR_CANARY, d.canary1 = 1);
    EXPECT(SPECV_ERR_CANARY, d.reserved = 1);
    EXPECT(SPECV_ERR_CANARY, d.target.reserved = 1);
    EXPECT(SPECV_ERR_SLOT, d.verify.rows.slot_dtype = 2);
    EXPECT(SPECV_ERR_SLOT, d.verify.rows.slot = (int32_t *)storage);
    EXPECT(SPECV_ERR_SLOT,
           (d.verify.rows.slot = (int32_t *)misaligned(), d.verify.rows.num_slots = 4));
    EXPECT(SPECV_ERR_CANARY, d.draft.reserved = 1);
    EXPECT(SPECV_ERR_BATCH, d.verify.rows.batch = -1);
    EXPECT(SPECV_ERR_TARGET_TOKENS, d.verify.target_tokens = storage);
    EXPECT(SPECV_ERR_RULE, d.rule = SPECV_RULE_BOUNDED + 1);
    EXPECT(SPECV_ERR_RULE, d.rule = -1);
    EXPECT(SPECV_ERR_VOCAB, d.verify.vocab = 0);
    EXPECT(SPECV_ERR_VOCAB, d.verify.vocab = (1 << 22) + 1);
    EXPECT(SPECV_OK, d.verify.vocab = 1 << 22);
    EXPECT(SPECV_ERR_TARGET, d.target.data = NULL);
    EXPECT(SPECV_ERR_TARGET, d.target.data = misaligned());
    EXPECT(SPECV_ERR_TARGET, (d.target.data = (char *)storage + 2));
    EXPECT(SPECV_OK, (d.target.data = (char *)storage + 2, d.target.dtype = SPECV_LOGITS_BF16));
    EXPECT(SPECV_OK, d.draft.data = NULL);
    EXPECT(SPECV_ERR_DRAFT, d.draft.data = misaligned());
    EXPECT(SPECV_ERR_SCORE_DTYPE, d.target.dtype = 4);
    EXPECT(SPECV_ERR_SCORE_DTYPE, d.draft.dtype = -1);
    EXPECT(SPECV_ERR_SCORE_STRIDE, d.target.pos_stride_elems = 99);
    EXPECT(SPECV_OK, d.target.pos_stride_elems = 100);
    EXPECT(SPECV_ERR_SCORE_STRIDE, d.target.seq_stride_elems = 799);
    EXPECT(SPECV_OK, d.target.seq_stride_elems = 800);
    EXPECT(SPECV_ERR_SCORE_STRIDE, d.draft.seq_stride_elems = 699);
    EXPECT(SPECV_OK, d.draft.seq_stride_elems = 700);
    EXPECT(SPECV_ERR_SCORE_STRIDE,
           (d.verify.rows.row_start = (int32_t *)storage, d.verify.rows.num_draft_tokens = 8,
            d.draft.seq_stride_elems = 700));
    EXPECT(SPECV_ERR_SCORE_STRIDE,
           (d.verify.rows.row_end = (int32_t *)storage, d.verify.rows.num_draft_tokens = 8,
            d.draft.seq_stride_elems = 700));
    EXPECT(SPECV_ERR_SIZE, d.target.pos_stride_elems = INT64_MAX / 64);
    EXPECT(SPECV_ERR_SIZE, d.target.seq_stride_elems = INT64_MAX / 8);
    EXPECT(SPECV_ERR_LOGPROB, d.emitted.logprob = (float *)misaligned());
    EXPECT(SPECV_ERR_FILTERS, d.filters.top_k = (int32_t *)misaligned());
    EXPECT(SPECV_ERR_FILTERS, d.filters.top_p = (float *)misaligned());
    EXPECT(SPECV_ERR_FILTERS, d.draft_filters.min_p = (float *)misaligned());
    EXPECT(SPECV_ERR_FILTERS, d.filters.order = 3);
    EXPECT(SPECV_ERR_FILTERS, d.draft_filters.order = -1);
    EXPECT(SPECV_OK, (d.filters.top_k = (int32_t *)storage, d.filters.order = 2));
    EXPECT(SPECV_OK, (d.filters.top_p = (float *)storage, d.target.dtype = SPECV_PROBS_F32));
    EXPECT(SPECV_ERR_FILTERS, (d.draft_filters.top_k = (int32_t *)storage, d.draft.data = NULL));
    EXPECT(SPECV_ERR_MASK, d.filters.mask = (uint32_t *)misaligned());
    EXPECT(SPECV_ERR_MASK, (d.filters.mask = (uint32_t *)storage, d.filters.num_mask_rows = 4,
                            d.filters.mask_row = (int32_t *)misaligned()));
    EXPECT(SPECV_ERR_MASK, d.filters.mask_row = (int32_t *)storage);
    EXPECT(SPECV_ERR_MASK, d.filters.num_mask_rows = 4);
    EXPECT(SPECV_ERR_MASK, d.filters.mask_stride_words = 4);
    EXPECT(SPECV_OK, d.filters.mask = (uint32_t *)storage);
    EXPECT(SPECV_ERR_MASK, (d.filters.mask = (uint32_t *)storage, d.filters.mask_stride_words = 3));
    EXPECT(SPECV_OK, (d.filters.mask = (uint32_t *)storage, d.filters.mask_stride_words = 4));
    EXPECT(SPECV_ERR_MASK,
           (d.filters.mask = (uint32_t *)storage, d.filters.mask_stride_words = -1));
    EXPECT(SPECV_ERR_MASK, (d.filters.mask = (uint32_t *)storage, d.filters.num_mask_rows = 3));
    EXPECT(SPECV_ERR_MASK, (d.filters.mask = (uint32_t *)storage, d.filters.num_mask_rows = -1));
    EXPECT(SPECV_ERR_MASK,
           (d.filters.mask = (uint32_t *)storage, d.filters.mask_row = (int32_t *)storage));
    EXPECT(SPECV_OK, (d.filters.mask = (uint32_t *)storage, d.filters.num_mask_rows = 1,
                      d.filters.mask_row = (int32_t *)storage));
    EXPECT(SPECV_ERR_SIZE,
           (d.filters.mask = (uint32_t *)storage, d.filters.mask_stride_words = INT64_MAX / 16));
    EXPECT(SPECV_ERR_TEMPERATURE, d.temperature = (float *)misaligned());
    EXPECT(SPECV_ERR_TEMPERATURE, d.draft_temperature = (float *)misaligned());
    EXPECT(SPECV_ERR_SEED, d.seed = (uint64_t *)misaligned());
    EXPECT(SPECV_ERR_SEED, d.seed = NULL);
    EXPECT(SPECV_OK, (d.seed = NULL, d.rule = SPECV_RULE_GREEDY));
    EXPECT(SPECV_OK, (d.seed = NULL, d.accept_uniform = d.sample_uniform = (float *)storage));
    EXPECT(SPECV_ERR_SEED, (d.seed = NULL, d.sample_uniform = (float *)storage));
    EXPECT(SPECV_OK,
           (d.seed = NULL, d.sample_uniform = (float *)storage, d.verify.rows.max_draft = 0));
    EXPECT(SPECV_ERR_SEED, (d.seed = NULL, d.accept_uniform = d.sample_uniform = (float *)storage,
                            d.rule = SPECV_RULE_COUPLED));
    EXPECT(SPECV_ERR_POSITION, d.position = NULL);
    EXPECT(SPECV_ERR_POSITION, d.position = (int32_t *)misaligned());
    EXPECT(SPECV_ERR_UNIFORM, d.accept_uniform = (float *)misaligned());
    EXPECT(SPECV_ERR_UNIFORM, d.sample_uniform = (float *)misaligned());
    EXPECT(SPECV_ERR_LOGPROB, d.logprob = (float *)misaligned());
    EXPECT(SPECV_ERR_LOGPROB, d.lse = (float *)misaligned());
    EXPECT(SPECV_ERR_LOGPROB, d.target_logprob = (float *)storage);
    EXPECT(SPECV_ERR_DRAFT, d.rule = SPECV_RULE_SCORE);
    EXPECT(SPECV_OK, (d.rule = SPECV_RULE_SCORE, d.draft.data = NULL));
    EXPECT(SPECV_OK,
           (d.rule = SPECV_RULE_SCORE, d.draft.data = NULL, d.target_logprob = (float *)storage));
    EXPECT(SPECV_ERR_LOGPROB, (d.rule = SPECV_RULE_SCORE, d.draft.data = NULL,
                               d.target_logprob = (float *)misaligned()));
    EXPECT(SPECV_ERR_SEED, (d.rule = SPECV_RULE_SCORE, d.draft.data = NULL, d.seed = NULL));
    EXPECT(SPECV_OK, (d.rule = SPECV_RULE_SCORE, d.draft.data = NULL, d.seed = NULL,
                      d.sample_uniform = (float *)storage));
    EXPECT(SPECV_ERR_STREAM, d.stream = SPECV_STREAM_COUPLED);
    EXPECT(SPECV_ERR_STREAM, (d.stream = SPECV_STREAM_COUPLED, d.rule = SPECV_RULE_COUPLED));
    EXPECT(SPECV_ERR_STREAM, d.stream = 4);
    EXPECT(SPECV_OK, d.stream = SPECV_STREAM_DRAFT);
    EXPECT(SPECV_ERR_MAX_PROB, d.max_prob = (float *)storage);
    EXPECT(SPECV_OK, (d.max_prob = (float *)storage, d.verify.rows.max_draft = 0));
    EXPECT(SPECV_ERR_MAX_PROB, (d.max_prob = (float *)misaligned(), d.verify.rows.max_draft = 0));
    EXPECT(SPECV_ERR_STREAM, d.step_row = -1);
    EXPECT(SPECV_ERR_NUM_SMS, d.num_sms = -1);
    EXPECT(SPECV_ERR_SCRATCH, d.scratch = NULL);
    EXPECT(SPECV_ERR_SCRATCH, d.scratch = (char *)d.scratch + 8);
    EXPECT(SPECV_ERR_SCRATCH, (d.filters.top_k = (int32_t *)storage,
                               d.scratch_bytes = specv_verify_sample_scratch_bytes(4, 7, 100) - 1));
    EXPECT(SPECV_OK, d.scratch_bytes = specv_verify_sample_scratch_bytes(4, 7, 100));
    EXPECT(SPECV_OK, (d.scratch = NULL, d.seed = NULL, d.verify.rows.batch = 0));

    t_case("every status code of A8");
    CHECK_EQ(specv_sample_validate(NULL), SPECV_ERR_NULL_DESC, -1);
    CHECK_EQ(launch_sample(NULL), SPECV_ERR_NULL_DESC, -1);
    EXPECT_SAMPLE(SPECV_OK, (void)0);
    EXPECT_SAMPLE(SPECV_ERR_CANARY, d.canary0 = 1);
    EXPECT_SAMPLE(SPECV_ERR_CANARY, d.canary1 = 1);
    EXPECT_SAMPLE(SPECV_ERR_CHAINED, d.chained = 4);
    EXPECT_SAMPLE(SPECV_ERR_CHAINED, d.chained = -1);
    EXPECT_SAMPLE(SPECV_ERR_SLOT, d.slot = (int32_t *)storage);
    EXPECT_SAMPLE(SPECV_ERR_SLOT, (d.slot = (int32_t *)misaligned(), d.num_slots = 4));
    EXPECT_SAMPLE(SPECV_OK, (d.slot = (int32_t *)storage, d.num_slots = 1));
    EXPECT_SAMPLE(SPECV_ERR_RULE, d.method = 2);
    EXPECT_SAMPLE(SPECV_ERR_ROW_STATUS, d.row_status = (uint32_t *)misaligned());
    EXPECT_SAMPLE(SPECV_ERR_KEEP_STATUS, d.keep_status = 2);
    EXPECT_SAMPLE(SPECV_ERR_TOKEN, d.token = NULL);
    EXPECT_SAMPLE(SPECV_ERR_TOKEN, (d.token = (char *)storage + 4, d.token_dtype = SPECV_I64));
    EXPECT_SAMPLE(SPECV_ERR_TOKEN_DTYPE, d.token_dtype = 7);
    EXPECT_SAMPLE(SPECV_ERR_BATCH, d.batch = -1);
    EXPECT_SAMPLE(SPECV_ERR_OUT_STRIDE, d.token_stride_elems = -1);
    EXPECT_SAMPLE(SPECV_OK, d.token_stride_elems = 1);
    EXPECT_SAMPLE(SPECV_ERR_VOCAB, d.vocab = 0);
    EXPECT_SAMPLE(SPECV_ERR_TARGET, d.scores.data = NULL);
    EXPECT_SAMPLE(SPECV_ERR_SEED, d.uniform = NULL);
    EXPECT_SAMPLE(SPECV_ERR_SEED, d.method = SPECV_SAMPLE_GUMBEL);
    EXPECT_SAMPLE(SPECV_ERR_STREAM, d.stream = 3);
    EXPECT_SAMPLE(SPECV_ERR_STREAM, d.stream = -1);
    EXPECT_SAMPLE(SPECV_ERR_STREAM, d.stream = SPECV_STREAM_COUPLED);
    EXPECT_SAMPLE(SPECV_ERR_SEED,
                  (d.stream = SPECV_STREAM_COUPLED, d.method = SPECV_SAMPLE_GUMBEL));
    EXPECT_SAMPLE(SPECV_ERR_MAX_PROB, d.max_prob = (float *)misaligned());
    EXPECT_SAMPLE(SPECV_OK, d.scratch_bytes = specv_sample_scratch_bytes(3, 10));
    EXPECT_SAMPLE(SPECV_ERR_SCRATCH, (d.filters.top_k = (int32_t *)storage,
                                      d.scratch_bytes = specv_sample_scratch_bytes(3, 10) - 1,
                                      d.scores.dtype = SPECV_PROBS_F32));
    EXPECT_SAMPLE(SPECV_OK, d.batch = 0);
}

/* One number is enough for every rule, type and layout, and for everything smaller. */
static void test_scratch_sizes(void) {
    static const struct {
        int64_t batch, max_draft, vocab;
        int status;
    } wrong[] = {{-1, 1, 1, SPECV_ERR_BATCH},
                 {INT64_MIN, 1, 1, SPECV_ERR_BATCH},
                 {1, -1, 1, SPECV_ERR_MAX_DRAFT},
                 {1, 1, 0, SPECV_ERR_VOCAB},
                 {1, 1, -5, SPECV_ERR_VOCAB},
                 {1, 1, (1 << 22) + 1, SPECV_ERR_VOCAB},
                 {1 << 15, 1 << 15, 1, SPECV_ERR_TOO_LARGE},
                 {(1 << 30) + 1, 0, 1, SPECV_ERR_TOO_LARGE},
                 {INT64_MAX, INT64_MAX, 1, SPECV_ERR_TOO_LARGE},
                 {0, INT64_MAX, 1, SPECV_ERR_TOO_LARGE},
                 {INT64_MAX, 1, 1, SPECV_ERR_TOO_LARGE}};
    t_case("scratch memory: what has no size");
    for (int i = 0; i < T_COUNT(wrong); ++i) {
        CHECK_EQ(
            specv_verify_sample_scratch_bytes(wrong[i].batch, wrong[i].max_draft, wrong[i].vocab),
            wrong[i].status, i);
        if (wrong[i].max_draft != 1) continue;
        CHECK_EQ(specv_sample_scratch_bytes(wrong[i].batch, wrong[i].vocab), wrong[i].status, i);
    }
    CHECK(specv_verify_sample_scratch_bytes(1 << 15, (1 << 15) - 1, 1 << 22) > 0);
    CHECK(specv_verify_sample_scratch_bytes(0, INT32_MAX, 1) >= SPECV_TICKET_BYTES);
    CHECK(specv_sample_scratch_bytes(1 << 30, 1 << 22) > 0);
    CHECK(specv_sample_scratch_bytes(0, 1) >= SPECV_TICKET_BYTES);
    t_case("scratch memory: never less for more");
    for (int i = 0; i < 2000; ++i) {
        const int64_t rows = t_below(t_chance(50) ? 9 : 3000),
                      draft = t_below(t_chance(50) ? 9 : 300);
        const int64_t vocab = 1 + t_below(t_chance(50) ? 3000 : 1 << 22);
        const int64_t bytes = specv_verify_sample_scratch_bytes(rows, draft, vocab);
        const int64_t sample = specv_sample_scratch_bytes(rows, vocab);
        const int64_t more_vocab = vocab + t_below((1 << 22) - vocab + 1);
        CHECK(bytes >= sample && sample >= SPECV_TICKET_BYTES);
        CHECK(specv_verify_sample_scratch_bytes(rows + t_below(3), draft, vocab) >= bytes);
        CHECK(specv_verify_sample_scratch_bytes(rows, draft + t_below(3), vocab) >= bytes);
        CHECK(specv_verify_sample_scratch_bytes(rows, draft, more_vocab) >= bytes);
        CHECK(specv_sample_scratch_bytes(rows + t_below(3), vocab) >= sample);
        CHECK(specv_sample_scratch_bytes(rows, more_vocab) >= sample);
    }
    t_case("scratch memory: enough for any descriptor");
    for (int i = 0; i < 4000; ++i) {
        specv_verify_sample_desc d = valid_desc();
        int64_t bytes;
        d.verify.rows.batch = (int32_t)t_between(1, 40),
        d.verify.rows.max_draft = (int32_t)t_below(9);
        d.verify.vocab = 1 + t_below(5000);
        if (t_chance(50)) {
            const int64_t most = (int64_t)d.verify.rows.batch * d.verify.rows.max_draft;
            d.verify.rows.num_draft_tokens = t_chance(30) ? most : t_below(most + 1);
            *(t_chance(50) ? &d.verify.rows.row_start : &d.verify.rows.row_end) =
                (const int32_t *)storage;
        }
        d.rule = i % NUM_RULES;
        d.target.dtype = (int32_t)t_below(4), d.draft.dtype = (int32_t)t_below(4);
        if (t_chance(40) || d.rule == SPECV_RULE_SCORE) d.draft.data = NULL;
        bytes = specv_verify_sample_scratch_bytes(t_between(d.verify.rows.batch, 41),
                                                  t_between(d.verify.rows.max_draft, 9),
                                                  t_between(d.verify.vocab, 5001));
        CHECK(specv_i_scratch_layout(&d).bytes <= bytes);
        d.scratch_bytes = bytes;
        CHECK_EQ(specv_verify_sample_validate(&d), SPECV_OK, i);
        d.scratch_bytes = specv_i_scratch_layout(&d).bytes - 1;
        CHECK_EQ(specv_verify_sample_validate(&d), SPECV_ERR_SCRATCH, i);
    }
}

int main(int argc, char **argv) {
    static const t_group groups[] = {
        {"validation", test_validation},
        {"sample", test_sample},
        {"types", test_types},
        {"accidents", test_accidents},
        {"two-accidents", test_two_accidents},
        {"shapes", test_shapes},
        {"long-rows", test_long_rows},
        {"vocabularies", test_vocabularies},
        {"ahead", test_ahead},
        {"whole_tiles", test_whole_tiles},
        {"many-tiles", test_many_tiles},
        {"strips", test_strips},
        {"many-rows", test_many_rows},
        {"quiet-rows", test_quiet_rows},
        {"two-largest", test_two_largest},
        {"ties", test_ties},
        {"probabilities", test_probabilities},
        {"invariance", test_invariance},
        {"random", test_random},
        {"slots", test_slots},
        {"sample-slots", test_sample_slots},
        {"slot-lookup", test_slot_lookup},
        {"scratch-sizes", test_scratch_sizes},
        {"shared-scratch", test_shared_scratch},
        {"dependents", test_dependents},
        {"tickets", test_tickets},
        {"zero-residual", test_zero_residual},
        {"block-numbers", test_block_numbers},
        {"scored", test_scored},
        {"sums", test_sums},
        {"small-sums", test_small_sums},
        {"uniforms", test_uniforms},
        {"rare-words", test_rare_words},
    };
    return t_main(argc, argv, groups, T_COUNT(groups));
}
