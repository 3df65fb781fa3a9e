/* fuzz.cu - random descriptors for every operation, and relations between runs.

   Case i of a group is drawn from seed --seed + i. What fails prints its seed; to see that case
   alone: "fuzz GROUP --seed S --cases 1". More than the usual number: "--cases N". */

#include "kv.h"
#include "slots.h"
#include "step.h"

static long num_cases(long usual, long quick) {
    return t.cases ? t.cases : t.quick ? quick : usual;
}

/* ------------------------------------------------------------------------- random descriptors */

/* Mostly small: a fault shows in a small case, and there is time for many. */
static shape any_shape(void) {
    static const int64_t vocabs[] = {0, 8, 100, 50257, INT32_MAX, ((int64_t)1 << 33) + 5};
    static const int drafts[] = {0,  1,  2,  3,  4,  5,  7,   8,   9,  15,
                                 16, 17, 31, 32, 33, 64, 127, 128, 130};
    shape s;
    memset(&s, 0, sizeof s);
    s.batch = (int)t_below(t_chance(5) ? 300 : t_chance(50) ? 40 : 9);
    s.max_draft = t_chance(70) ? (int)t_below(10) : T_PICK(drafts);
    s.dtype = t_chance(50) ? SPECV_I64 : SPECV_I32;
    s.layout = (layout)t_below(NUM_LAYOUTS);
    s.endings = t_chance(30)   ? 0
                : t_chance(50) ? (unsigned)ALL_ENDINGS
                               : (unsigned)t_random() & ALL_ENDINGS;
    s.outputs = (unsigned)(t_chance(50) ? OUT_ALL : (int)t_below(OUT_ALL + 1) | OUT_NONE);
    s.spread = (spread)t_below(3);
    s.vocab = T_PICK(vocabs);
    if (s.dtype == SPECV_I32 && s.vocab > INT32_MAX) s.vocab = 0;
    s.num_eos = (int)t_below(SPECV_MAX_EOS + 1);
    s.has_num_active = t_chance(30);
    s.num_active = (int)t_between(-2, s.batch + 3);
    if (s.layout != CSR && t_chance(40)) {
        s.draft_gap = (int)t_below(5);
        s.target_gap = (int)t_below(5);
    }
    if (t_chance(40)) s.out_gap = (int)t_below(5);
    s.spare_drafts = (int)t_below(4);
    return s;
}

static kv_shape any_kv(const shape *s) {
    static const int64_t sizes[] = {1,  2,  3,  4,  8,   12,  15,  16,  17,
                                    31, 32, 48, 64, 100, 128, 256, 1040};
    static const int sms[] = {1, 1, 1, 1, 2, 3, 4, 5, 6, 7};
    kv_shape k;
    memset(&k, 0, sizeof k);
    k.row_bytes = T_PICK(sizes);
    if (t_chance(40)) k.pos_gap = t_chance(50) ? 16 * t_below(3) : t_below(9);
    if (t_chance(40) && s->layout != CSR) k.seq_gap = t_chance(50) ? 16 * t_below(3) : t_below(9);
    if (t_chance(40)) k.dst_gap = t_chance(50) ? 16 * t_below(3) : t_below(9);
    if (t_chance(50)) k.src_offset = (int)t_below(16), k.dst_offset = (int)t_below(16);
    if (t_chance(30)) k.num_planes = (int)t_between(1, 5);
    k.null_planes = t_chance(50) ? 0 : 30;
    k.num_sms = !t.quick && t_chance(1) ? 132 : T_PICK(sms); /* a whole device takes its time */
    k.room = (room)t_below(NUM_ROOMS);
    k.bad_accepted = t_chance(50) ? 0 : 20;
    k.keep_status = t_chance(50);
    return k;
}

static void fuzz_verify(void) {
    for (long i = 0, end = num_cases(10000, 400); i < end; ++i) {
        shape s;
        t_case("A1:");
        s = any_shape();
        batch_run(&s);
    }
}

static void fuzz_pack(void) {
    for (long i = 0, end = num_cases(4500, 250); i < end; ++i) {
        shape s;
        kv_shape k;
        t_case("B1:");
        s = any_shape();
        k = any_kv(&s);
        kv_run_b1(&s, &k);
    }
}

static void fuzz_verify_pack(void) {
    for (long i = 0, end = num_cases(3500, 120); i < end; ++i) {
        shape s;
        kv_shape k;
        t_case("B2:");
        s = any_shape();
        k = any_kv(&s);
        kv_run_b2(&s, &k, t_chance(10));
    }
}

static void fuzz_stats(void) {
    for (long i = 0, end = num_cases(2000, 200); i < end; ++i) {
        shape s;
        t_case("E:");
        s = any_shape();
        if (t_chance(3)) s.max_draft = (int)t_between(2000, 4200), s.batch = (int)t_below(5);
        run_step(&s, (int)t_below(NUM_WAYS));
    }
}

/* ------------------------------------------------------------------------------------- trees */

/* Mostly small numbers of nodes, and those around what a warp holds. */
static int any_nodes(int most) {
    static const int borders[] = {1, 2, 31, 32, 33, 63, 64, 65, 127, 128, 129, 160, 257};
    const int n = t_chance(80) ? (int)t_between(1, 9) : T_PICK(borders);
    return n < most ? n : most;
}

static int32_t any_word(int32_t bound) {
    const int32_t odd[] = {-1, -2, bound, bound + 1, INT32_MAX, INT32_MIN};
    return t_chance(30)   ? (int32_t)t_random()
           : t_chance(40) ? T_PICK(odd)
                          : (int32_t)t_below(bound);
}

static void any_words(const t_buf *b) {
    for (size_t i = 0; i < b->bytes; ++i) b->host[i] = (char)t_random();
}

/* Parents of n nodes: a tree, one with some wrong numbers, or all of them anything. */
static void any_parents(const t_buf *b, int64_t first, int n) {
    const int kind = (int)t_below(4), wrong = t_chance(12) ? (int)t_between(1, 3) : 0;
    const int all = t_chance(4);
    for (int i = 0; i < n; ++i)
        put_word(b, first + i,
                 all         ? any_word(n)
                 : i == 0    ? -1
                 : kind == 0 ? i - 1
                 : kind == 1 ? 0
                 : kind == 2 ? (int32_t)t_between(i > 3 ? i - 3 : 0, i - 1)
                             : (int32_t)t_below(i));
    for (int k = 0; k < wrong; ++k) put_word(b, first + t_below(n), any_word(n));
}

/* Outputs of A7 that there are, as bits. */
enum { WOOD_OUTPUTS = 10, WOOD_STATUS = 1, WOOD_PATH = 2, WOOD_TOKENS = 4, WOOD_NEXT = 8 };

/* Trees of a step, and what models say of them. */
typedef struct wood {
    int batch, max_nodes, max_depth, rule, by_ids, live, keep, num_eos, step_row, stream, order;
    int has_draft, dtypes[2], offset[2];
    unsigned outputs;
    specv_dtype dtype;
    int64_t vocab, columns, parent_stride, token_stride, target_stride, out_stride;
    int64_t pos_stride[2], seq_stride[2], mask_stride[2], mask_rows[2], scratch_bytes;
    slots slots;
    t_buf active, nodes, parent, token, target, scores[2], temperature[2], seed, position, scratch;
    t_buf mask[2], mask_row[2], top_k[2], top_p[2], min_p[2];
    int tell, max_top, raw; /* of emitted tokens: bits of the four outputs, and of num_top */
    t_buf told, rank, top_id, top_logprob, num_top;
    t_buf accepted, mismatch, next, out, emitted, finished, status, path, index, predicts, logprob;
} wood;

/* Rounded toward zero: what it is of does not matter here. */
static void put_any_score(const t_buf *b, int dtype, int64_t at, float value) {
    const uint32_t bits = specv_float_bits(value), sign = bits >> 16 & 0x8000u;
    const int exponent = (int)(bits >> 23 & 255) - 112;
    uint32_t code = bits >> 16;
    if (dtype == SPECV_LOGITS_F32 || dtype == SPECV_PROBS_F32) {
        memcpy(b->host + 4 * at, &bits, 4);
        return;
    }
    if (dtype == SPECV_LOGITS_F16)
        code = exponent >= 31  ? sign | 0x7c00u | (value != value)
               : exponent <= 0 ? sign
                               : sign | (uint32_t)exponent << 10 | (bits >> 13 & 0x3ffu);
    ((uint16_t *)(void *)b->host)[at] = (uint16_t)code;
}

/* What a row of scores is like. UNITS: probabilities that weigh next to nothing together. */
enum {
    ROW_FLAT,
    ROW_SHARP,
    ROW_TIES,
    ROW_ONE,
    ROW_SOME,
    ROW_ODD,
    ROW_UNITS,
    ROW_SAME,
    NUM_ROW_KINDS
};

/* A row, as floats; ROW_SAME: what is there, but for some last bits. Returns its largest. */
static int64_t any_row(float *row, int64_t vocab, int probs, int kind) {
    const float infinite = specv_bits_float(0x7f800000u), unit = 8.8817841970012523e-16f;
    const float odd[] = {infinite, -infinite, specv_bits_float(0x7fc00000u), 60000.f, -1, 3e38f, 2};
    const float steep = kind == ROW_SHARP ? 6.f : 1.f;
    const int64_t one = t_below(vocab);
    double sum = 0;
    int64_t best = 0;
    for (int64_t x = 0; x < vocab && kind == ROW_SAME; ++x)
        if (t_chance(30)) row[x] = specv_bits_float(specv_float_bits(row[x]) ^ 1);
    for (int64_t x = 0; x < vocab && kind != ROW_SAME; ++x) {
        const int out = kind == ROW_ONE ? x != one : kind == ROW_SOME && t_chance(60);
        row[x] = (float)(t_uniform() * 4 - 2) * steep;
        if (kind == ROW_TIES) row[x] = (float)(int)row[x];
        if (probs) sum += row[x] = out ? 0 : specv_exp2(row[x]);
        if (!probs && out) row[x] = -infinite;
        if (kind == ROW_UNITS && probs) row[x] = unit * (float)t_below(t_chance(50) ? 60 : 3000);
        if (row[x] > row[best]) best = x;
    }
    for (int64_t x = 0; x < vocab && probs && sum > 0 && kind != ROW_UNITS; ++x)
        row[x] = (float)(row[x] / sum);
    for (int k = 0; k < 3 && kind == ROW_ODD; ++k) row[t_below(vocab)] = T_PICK(odd);
    return best;
}

/* Scores of all nodes; drafts are often what the target finds likeliest. */
static void any_scores(wood *w) {
    float *row = (float *)malloc(sizeof *row * (size_t)w->vocab);
    const int usual = (int)t_below(NUM_ROW_KINDS);
    int64_t best[512];
    if (!row) t_die(__FILE__, __LINE__, "malloc", "no memory");
    for (int side = 0; side <= w->has_draft; ++side) {
        const int64_t bytes = (int64_t)specv_i_score_bytes(w->dtypes[side]);
        w->pos_stride[side] = w->vocab + (t_chance(50) ? 0 : t_below(9));
        w->seq_stride[side] = w->max_nodes * w->pos_stride[side] + (t_chance(50) ? 0 : t_below(9));
        w->offset[side] = t_chance(50) ? 0 : (int)t_below(8);
        w->scores[side] =
            t_in(bytes * ((w->batch ? (w->batch - 1) * w->seq_stride[side] +
                                          (w->max_nodes - 1) * w->pos_stride[side] + w->vocab
                                    : 1) +
                          w->offset[side]),
                 0);
    }
    for (int b = 0; b < w->batch; ++b) {
        for (int i = 0; i < w->max_nodes; ++i) {
            int kind = t_chance(50) ? usual : (int)t_below(NUM_ROW_KINDS);
            for (int side = 0; side <= w->has_draft; ++side) {
                const int dtype = w->dtypes[side], probs = dtype == SPECV_PROBS_F32;
                const int64_t at =
                    w->offset[side] + b * w->seq_stride[side] + i * w->pos_stride[side];
                const int64_t its =
                    any_row(row, w->vocab, probs, kind == ROW_SAME && !side ? ROW_SHARP : kind);
                if (!side) best[i] = its;
                for (int64_t x = 0; x < w->vocab; ++x)
                    put_any_score(&w->scores[side], dtype, at + x, row[x]);
                if (t_chance(30)) kind = w->dtypes[0] == w->dtypes[1] ? ROW_SAME : ROW_ONE;
            }
        }
        for (int i = 1; i < w->max_nodes; ++i) {
            const int32_t parent = word_at(&w->parent, b * w->parent_stride + i);
            if (parent >= 0 && parent < i && t_chance(40))
                put_token(&w->token, w->dtype, b * w->token_stride + i, best[parent]);
        }
    }
    free(row);
}

static void any_limits(wood *w, int side) {
    const float parts[] = {0.f, 0.3f, 0.7f, 0.95f, 1.f, 1e-3f, -1.f, specv_bits_float(0x7fc00000u)};
    const int has = t_chance(60) ? 0 : (int)t_below(32), num_slots = w->slots.count;
    const int64_t words = (w->vocab + 31) / 32, least = (int64_t)w->batch * w->max_nodes;
    w->mask_stride[side] = words + (t_chance(50) ? 0 : 2);
    w->mask_rows[side] = least + (has & 16 ? (int)t_below(4) : 0);
    if (!w->batch || !num_slots) return;
    if (has & 1) {
        w->mask[side] = t_in(4 * w->mask_stride[side] * w->mask_rows[side], 0);
        any_words(&w->mask[side]);
        if (has & 16) w->mask_row[side] = t_in(4 * (int64_t)w->batch, 0);
        for (int b = 0; b < w->batch && has & 16; ++b)
            put_word(&w->mask_row[side], b,
                     t_chance(20) ? any_word((int32_t)w->mask_rows[side])
                                  : (int32_t)t_between(-1, w->mask_rows[side] - w->max_nodes));
    }
    if (has & 2) w->top_k[side] = t_in(4 * (int64_t)num_slots, 0);
    if (has & 4) w->top_p[side] = t_in(4 * (int64_t)num_slots, 0);
    if (has & 8) w->min_p[side] = t_in(4 * (int64_t)num_slots, 0);
    for (int k = 0; k < num_slots; ++k) {
        if (has & 2)
            put_word(&w->top_k[side], k,
                     t_chance(20) ? any_word((int32_t)w->vocab) : (int32_t)t_below(6));
        if (has & 4) ((float *)(void *)w->top_p[side].host)[k] = T_PICK(parts);
        if (has & 8) ((float *)(void *)w->min_p[side].host)[k] = T_PICK(parts);
    }
}

static void wood_draw(wood *w) {
    static const int64_t few[] = {1, 2, 3, 4, 5, 6, 7, 8, 11, 33, 127, 130, 1000, 1024, 1025, 2051};
    static const int64_t any[] = {0, 8, 50257, INT32_MAX, ((int64_t)1 << 33) + 5};
    memset(w, 0, sizeof *w);
    w->by_ids = t_chance(25), w->batch = (int)t_below(t_chance(90) ? 4 : 12) | w->by_ids;
    w->rule = w->by_ids ? SPECV_TREE_GREEDY : (int)t_below(SPECV_TREE_TRAVERSAL_DISTINCT + 1);
    w->has_draft = specv_i_tree_needs_draft(w->rule) && t_chance(75),
    w->dtype = t_chance(50) ? SPECV_I64 : SPECV_I32;
    w->vocab = w->by_ids ? T_PICK(any) : few[t_below(t_chance(92) ? 9 : T_COUNT(few))];
    if (w->dtype == SPECV_I32 && w->vocab > INT32_MAX) w->vocab = 0;
    w->max_nodes = any_nodes(w->by_ids        ? 512
                             : w->vocab < 12  ? (t_chance(95) ? 34 : 257)
                             : w->vocab < 200 ? 12
                                              : 5);
    if (w->max_nodes > 40) w->batch = 1 + w->batch % 2;
    w->max_depth = w->max_nodes > 1 && t_chance(40) ? (int)t_between(1, w->max_nodes - 1) : 0;
    w->columns = (w->max_depth ? w->max_depth : w->max_nodes - 1) + 1, w->keep = t_chance(30);
    w->num_eos = t_chance(50) && (w->vocab == 0 || w->vocab > 4) ? (int)t_between(1, 4) : 0;
    w->step_row = t_chance(70) ? 0 : (int)t_below(1000), w->stream = t_chance(30);
    w->order = (int)t_below(3);
    w->live = t_chance(70) ? w->batch : (int)t_between(-2, w->batch + 3);
    w->outputs = t_chance(50) ? ~0u : (unsigned)t_random();
    if (!w->by_ids && t_chance(25)) { /* which needs what was emitted, and where */
        w->tell = (int)t_below(32), w->max_top = (int)t_between(1, 4), w->raw = t_chance(40);
        w->outputs |= WOOD_PATH | WOOD_TOKENS;
    }
    for (int i = 0; i < 2; ++i) w->dtypes[i] = t_chance(40) ? SPECV_PROBS_F32 : (int)t_below(4);
    w->parent_stride = w->max_nodes + t_below(3), w->token_stride = w->max_nodes + t_below(3);
    w->target_stride = w->max_nodes + t_below(3), w->out_stride = w->columns + t_below(3);
}

static int wood_live(const wood *w) {
    return w->live < 0 ? 0 : w->live > w->batch ? w->batch : w->live;
}

static void wood_make(wood *w) {
    const int64_t bytes = w->dtype == SPECV_I64 ? 8 : 4, num_trees = w->batch;
    const int alphabet = t_chance(60) ? 3 : 40;
    w->slots = slots_draw(w->batch, wood_live(w), w->by_ids ? NO_SLOTS : draw_bad_slots(), 0);
    if (w->live != w->batch) w->active = t_in(4, 0), put_word(&w->active, 0, w->live);
    if (t_chance(60)) w->nodes = t_in(4 * num_trees, 0);
    w->parent = t_in(4 * num_trees * w->parent_stride, 0);
    w->token = t_in(bytes * num_trees * w->token_stride, 0);
    if (w->by_ids) w->target = t_in(bytes * num_trees * w->target_stride, 0);
    any_words(&w->parent), any_words(&w->token), any_words(&w->target);
    for (int b = 0; b < w->batch; ++b) {
        int n = (int)t_between(1, w->max_nodes);
        if (w->nodes.host) put_word(&w->nodes, b, t_chance(10) ? any_word(w->max_nodes) : n);
        if (!w->nodes.host) n = w->max_nodes;
        any_parents(&w->parent, b * w->parent_stride, n);
        for (int i = 0; i < n; ++i) {
            const int32_t parent = word_at(&w->parent, b * w->parent_stride + i);
            int64_t token = t_below(alphabet), target = t_below(alphabet);
            if (w->vocab) token %= w->vocab, target %= w->vocab;
            if (t_chance(5)) token = -1;
            if (t_chance(3)) token = (int64_t)t_random();
            if (t_chance(3)) target = (int64_t)t_random();
            if (w->by_ids && parent >= 0 && parent < i && t_chance(70))
                token = get_token(&w->target, w->dtype, b * w->target_stride + parent);
            put_token(&w->token, w->dtype, b * w->token_stride + i, token);
            if (w->by_ids) put_token(&w->target, w->dtype, b * w->target_stride + i, target);
        }
    }
    if (!w->by_ids) {
        const int num_slots = w->slots.count;
        const float heats[] = {0, 0,    1e-5f, 0.01f, 0.3f,
                               1, 1.5f, -1,    9000,  specv_bits_float(0x7fc00000u)};
        any_scores(w);
        for (int side = 0; side < 2; ++side) {
            if (t_chance(60)) w->temperature[side] = t_in(4 * (int64_t)num_slots, 0);
            for (int k = 0; k < num_slots && w->temperature[side].host; ++k)
                ((float *)(void *)w->temperature[side].host)[k] =
                    t_chance(60) ? 0.7f : T_PICK(heats);
        }
        w->seed = t_in(8 * (int64_t)num_slots, 0), w->position = t_in(4 * (int64_t)num_slots, 0);
        any_words(&w->seed), any_words(&w->position);
        any_limits(w, 0);
        if (w->has_draft) any_limits(w, 1);
        w->scratch_bytes = specv_verify_tree_scratch_bytes(num_trees, w->max_nodes, w->vocab) +
                           specv_verify_sample_scratch_bytes(num_trees, w->max_nodes, w->vocab);
        w->scratch = t_out(w->scratch_bytes, 0);
        for (int i = 0; i < t_num_buffers; ++i)
            if (t_buffers[i].host == w->scratch.host) t_buffers[i].is_private = 1;
        if (t_chance(70)) w->logprob = t_out(4 * num_trees, 0);
        if (w->tell & 1) w->told = t_out(4 * num_trees * w->columns, 0);
        if (w->tell & 2) w->rank = t_out(4 * num_trees * w->columns, 0);
        if (w->tell & 4) w->top_id = t_out(4 * num_trees * w->columns * w->max_top, 0);
        if (w->tell & 8) w->top_logprob = t_out(4 * num_trees * w->columns * w->max_top, 0);
        if (w->tell & 16) w->num_top = t_in(4 * (int64_t)num_slots, 0);
        for (int k = 0; k < num_slots && w->num_top.host; ++k)
            put_word(&w->num_top, k, t_chance(20) ? any_word(5) : (int32_t)t_below(5));
    }
    w->accepted = t_out(4 * num_trees, 0);
    if (w->outputs & WOOD_STATUS)
        w->status = t_out(4 * num_trees, 0), t_fill_status(&w->status, w->keep);
    if (w->outputs & WOOD_PATH) w->path = t_out(4 * num_trees * w->columns, 0);
    if (w->outputs & WOOD_TOKENS) w->out = t_out(bytes * num_trees * w->out_stride, 0);
    if (w->outputs & WOOD_NEXT) w->next = t_out(bytes * num_trees, 0);
    if (w->outputs & 16) w->mismatch = t_out(num_trees, 0);
    if (w->outputs & 32) w->emitted = t_out(4 * num_trees, 0);
    if (w->outputs & 64) w->finished = t_out(num_trees, 0);
    if (w->outputs & 128) w->index = t_out(4 * num_trees * w->columns, 0);
    if (w->outputs & 256) w->predicts = t_out(bytes * num_trees * w->max_nodes, 0);
}

static specv_verify_tree_desc wood_describe(const wood *w, int side) {
    specv_verify_tree_desc d = SPECV_ZERO;
    specv_scores *scores[2];
    specv_filters *filters[2];
    scores[0] = &d.target, scores[1] = &d.draft;
    filters[0] = &d.filters, filters[1] = &d.draft_filters;
    d.rule = w->rule, d.vocab = w->vocab, d.max_depth = w->max_depth, d.keep_status = w->keep;
    d.trees.batch = w->batch, d.trees.max_nodes = w->max_nodes, d.trees.token_dtype = w->dtype;
    d.trees.num_active = (const int32_t *)t_at(&w->active, side);
    d.trees.num_nodes = (const int32_t *)t_at(&w->nodes, side);
    d.trees.parent = (const int32_t *)t_at(&w->parent, side);
    d.trees.token = t_at(&w->token, side), d.target_tokens = t_at(&w->target, side);
    d.trees.slot = slots_at(&w->slots, side), d.trees.slot_dtype = slots_dtype(&w->slots);
    d.trees.num_slots = slots_count(&w->slots);
    d.trees.parent_stride_elems = w->parent_stride, d.trees.token_stride_elems = w->token_stride;
    if (w->by_ids) d.target_stride_elems = w->target_stride;
    d.out_stride_elems = w->out_stride, d.num_eos = w->num_eos;
    for (int i = 0; i < w->num_eos; ++i) d.eos_token[i] = i + 1;
    for (int i = 0; i <= w->has_draft && !w->by_ids; ++i) {
        scores[i]->dtype = w->dtypes[i], scores[i]->pos_stride_elems = w->pos_stride[i];
        scores[i]->seq_stride_elems = w->seq_stride[i];
        scores[i]->data = (const char *)t_at(&w->scores[i], side) +
                          w->offset[i] * (int64_t)specv_i_score_bytes(w->dtypes[i]);
        filters[i]->mask = (const uint32_t *)t_at(&w->mask[i], side);
        filters[i]->mask_row = (const int32_t *)t_at(&w->mask_row[i], side);
        filters[i]->top_k = (const int32_t *)t_at(&w->top_k[i], side);
        filters[i]->top_p = (const float *)t_at(&w->top_p[i], side);
        filters[i]->min_p = (const float *)t_at(&w->min_p[i], side);
        if (filters[i]->mask) filters[i]->mask_stride_words = w->mask_stride[i];
        if (filters[i]->mask_row) filters[i]->num_mask_rows = (int32_t)w->mask_rows[i];
        filters[i]->order = w->order;
    }
    d.temperature = (const float *)t_at(&w->temperature[0], side);
    d.draft_temperature = (const float *)t_at(&w->temperature[1], side);
    d.seed = (const uint64_t *)t_at(&w->seed, side);
    d.position = (const int32_t *)t_at(&w->position, side);
    d.step_row = w->step_row, d.stream = w->stream;
    d.accepted_len = (int32_t *)t_at(&w->accepted, side);
    d.mismatch = (uint8_t *)t_at(&w->mismatch, side), d.next_token = t_at(&w->next, side);
    d.out_tokens = t_at(&w->out, side), d.num_emitted = (int32_t *)t_at(&w->emitted, side);
    d.finished = (uint8_t *)t_at(&w->finished, side);
    d.row_status = (uint32_t *)t_at(&w->status, side), d.path = (int32_t *)t_at(&w->path, side);
    d.accept_index = (int32_t *)t_at(&w->index, side), d.predicts = t_at(&w->predicts, side);
    d.emitted.logprob = (float *)t_at(&w->told, side);
    d.emitted.rank = (int32_t *)t_at(&w->rank, side);
    d.emitted.top_id = (int32_t *)t_at(&w->top_id, side);
    d.emitted.top_logprob = (float *)t_at(&w->top_logprob, side);
    d.emitted.num_top = (const int32_t *)t_at(&w->num_top, side);
    d.emitted.max_top = w->max_top, d.emitted.raw = w->raw;
    d.logprob = (float *)t_at(&w->logprob, side);
    d.scratch = t_at(&w->scratch, side), d.scratch_bytes = w->scratch_bytes;
    return d;
}

/* Bits that say what is wrong with a live row's numbers. */
static uint32_t wood_faults(const wood *w, int b) {
    int n = w->nodes.host ? word_at(&w->nodes, b) : w->max_nodes;
    uint32_t faults = 0;
    if (slot_is_bad(&w->slots, b)) return SPECV_ROW_BAD_SLOT;
    if (n < 1 || n > w->max_nodes) n = 1, faults = SPECV_ROW_BAD_LENGTH; /* the root counts */
    for (int i = 0; i < n; ++i) {
        const int32_t parent = word_at(&w->parent, b * w->parent_stride + i);
        const int64_t token = get_token(&w->token, w->dtype, b * w->token_stride + i);
        if (i ? parent < 0 || parent >= i : parent != -1) return faults | SPECV_ROW_BAD_TREE;
        for (int k = 1; k < i && specv_i_tree_is_distinct(w->rule); ++k)
            if (word_at(&w->parent, b * w->parent_stride + k) == parent && token >= 0 &&
                token < w->vocab &&
                get_token(&w->token, w->dtype, b * w->token_stride + k) == token)
                return faults | SPECV_ROW_BAD_TREE;
    }
    return faults;
}

/* What holds whatever the rule and the scores: the path is one of the tree, what is emitted are its
   tokens and one behind, faults are named. */
static void wood_check(const wood *w) {
    const uint32_t of_trees = SPECV_ROW_BAD_SLOT | SPECV_ROW_BAD_LENGTH | SPECV_ROW_BAD_TREE;
    for (int b = 0; b < w->batch; ++b) {
        const int is_live = b < wood_live(w), accepted = word_at(&w->accepted, b);
        const uint32_t old = t_old_status(w->keep, b), faults = is_live ? wood_faults(w, b) : 0;
        const uint32_t status = w->status.host ? (uint32_t)word_at(&w->status, b) : 0;
        int at = 0;
        CHECK(accepted >= 0 && accepted < w->columns);
        if (!is_live || faults) CHECK_EQ(accepted, 0, b);
        if (w->status.host && !((status | old) & SPECV_ROW_BAD_FILTER))
            CHECK_EQ((status & of_trees) | (old & of_trees), faults | (old & of_trees), b);
        if (w->next.host && w->emitted.host)
            CHECK_EQ(word_at(&w->emitted, b), accepted + (get_token(&w->next, w->dtype, b) >= 0),
                     b);
        if (!w->path.host || word_at(&w->path, b * w->columns) < 0) continue;
        CHECK_EQ(word_at(&w->path, b * w->columns), 0, b);
        for (int i = 1; i < w->columns; ++i) {
            const int32_t node = word_at(&w->path, b * w->columns + i);
            CHECK_EQ(node > at && node < w->max_nodes, i <= accepted, b);
            if (i > accepted) CHECK_EQ(node, -1, b);
            if (i > accepted || node <= at || node >= w->max_nodes) continue;
            CHECK_EQ(word_at(&w->parent, b * w->parent_stride + node), at, b);
            if (w->out.host)
                CHECK_EQ(get_token(&w->out, w->dtype, b * w->out_stride + i - 1),
                         get_token(&w->token, w->dtype, b * w->token_stride + node), b);
            at = node;
        }
    }
}

static void fuzz_trees(void) {
    for (long i = 0, end = num_cases(T_DEVICE ? 600 : 4000, T_DEVICE ? 90 : 260); i < end; ++i) {
        wood w;
        t_case("A7:");
        wood_draw(&w);
        t_note(" rule %d%s, batch %d, live %d, %d nodes, depth %d, vocab %lld, scores %d and %d",
               w.rule, w.by_ids ? " by ids" : "", w.batch, w.live, w.max_nodes, w.max_depth,
               (long long)w.vocab, w.dtypes[0], w.dtypes[1]);
        wood_make(&w);
        t_upload();
        for (int side = 0; side <= T_DEVICE; ++side) {
            const specv_verify_tree_desc d = wood_describe(&w, side);
            if (side == T_HOST_SIDE) CHECK_EQ(specv_ref_verify_tree(&d), SPECV_OK, -1);
#if T_DEVICE
            if (side == T_DEVICE_SIDE) CHECK_EQ(specv_verify_tree(&d, 0), SPECV_OK, -1);
#endif
        }
        wood_check(&w);
        t_check_host();
        t_check_device();
    }
}

/* A tree's results depend on its row alone, its seed above all: whatever is beside it, by the
   reference each gives the same text in a batch of its own; the device gives the reference's. */
static void fuzz_lone_trees(void) {
    for (long i = 0, end = num_cases(T_DEVICE ? 300 : 2000, 120); i < end; ++i) {
        wood w;
        specv_verify_tree_desc all;
        t_case("A7, rows:");
        wood_draw(&w);
        w.outputs = ~0u, w.keep = 0;
        t_note(" rule %d%s, batch %d, %d nodes, vocab %lld", w.rule, w.by_ids ? " by ids" : "",
               w.batch, w.max_nodes, (long long)w.vocab);
        wood_make(&w);
        t_upload();
        all = wood_describe(&w, T_HOST_SIDE);
        CHECK_EQ(specv_ref_verify_tree(&all), SPECV_OK, -1);
        for (int b = 0; b < wood_live(&w); ++b) {
            const int64_t wide = w.dtype == SPECV_I64 ? 8 : 4;
            const int64_t of_slot = all.trees.slot ? 0 : b;
            specv_verify_tree_desc d = all;
            int32_t accepted = -1, path[512];
            uint32_t status = 0;
            char out[8 * 512];
            float logprob = 0;
            d.trees.batch = 1, d.trees.num_active = NULL;
            if (d.trees.num_nodes) d.trees.num_nodes += b;
            d.trees.parent += b * w.parent_stride;
            d.trees.token = (const char *)d.trees.token + b * wide * w.token_stride;
            if (d.trees.slot)
                d.trees.slot =
                    (const char *)d.trees.slot + b * (d.trees.slot_dtype == SPECV_I64 ? 8 : 4);
            if (w.by_ids)
                d.target_tokens = (const char *)d.target_tokens + b * wide * w.target_stride;
            for (int of_draft = 0; of_draft <= w.has_draft && !w.by_ids; ++of_draft) {
                specv_scores *scores = of_draft ? &d.draft : &d.target;
                specv_filters *f = of_draft ? &d.draft_filters : &d.filters;
                scores->data =
                    (const char *)scores->data +
                    b * w.seq_stride[of_draft] * (int64_t)specv_i_score_bytes(w.dtypes[of_draft]);
                if (f->mask_row)
                    f->mask_row += b;
                else if (f->mask)
                    f->mask += (int64_t)b * w.max_nodes * w.mask_stride[of_draft];
                if (f->top_k) f->top_k += of_slot;
                if (f->top_p) f->top_p += of_slot;
                if (f->min_p) f->min_p += of_slot;
            }
            if (d.temperature) d.temperature += of_slot;
            if (d.draft_temperature) d.draft_temperature += of_slot;
            if (d.seed) d.seed += of_slot, d.position += of_slot;
            d.accepted_len = &accepted, d.path = path, d.row_status = &status, d.out_tokens = out;
            d.mismatch = d.finished = NULL, d.next_token = d.predicts = NULL;
            d.num_emitted = d.accept_index = NULL;
            if (d.logprob) d.logprob = &logprob;
            memset(&d.emitted, 0, sizeof d.emitted);
            CHECK_EQ(specv_ref_verify_tree(&d), SPECV_OK, b);
            CHECK_EQ(accepted, word_at(&w.accepted, b), b);
            CHECK_EQ(status, (uint32_t)word_at(&w.status, b), b);
            CHECK_BYTES((char *)path, w.path.host + 4 * b * w.columns, 4 * (size_t)w.columns);
            CHECK_BYTES(out, w.out.host + b * wide * w.out_stride, (size_t)(wide * w.columns));
            if (d.logprob) CHECK_BYTES((char *)&logprob, w.logprob.host + 4 * b, 4);
        }
    }
}

/* Numbers that B4 moves rows by. */
typedef struct moves {
    int batch, max_nodes, max_depth, max_positions, page_size, heads, num_planes, lens, keep,
        num_sms;
    int64_t head_bytes, head_stride, pos_stride, outer_stride, row_pages, num_pages, plane_bytes;
    slots slots;
    t_buf active, accepted, path, nodes, cache_len, new_len, table, old_table, refs, status, ticket;
    t_buf data;
    char *before; /* lengths */
    void *planes; /* of the device */
    void *host_planes[4], *device_planes[4];
} moves;

/* Pages of a row's own, in any order, and now and then what is no page. */
static void any_table(const moves *m, const t_buf *table, const int32_t *own, int is_old) {
    for (int slot = 0; slot < m->slots.count; ++slot)
        for (int64_t e = 0; e < m->row_pages; ++e) {
            const int64_t of = is_old && t_chance(40) ? t_below(m->row_pages) : e;
            put_word(table, slot * m->row_pages + e,
                     !t_chance(4)   ? own[slot * m->row_pages + of]
                     : t_chance(50) ? (int32_t)(m->num_pages + t_below(9))
                                    : -(int32_t)t_below(INT32_MAX));
        }
}

static void moves_draw(moves *m) {
    static const int pages[] = {0, 0, 1, 2, 3, 4, 5, 8, 16, 32, 64, 100, 128, 256};
    static const int64_t sizes[] = {1, 2, 4, 8, 12, 16, 17, 32, 48, 64};
    memset(m, 0, sizeof *m);
    m->batch = (int)t_below(t_chance(80) ? 5 : 20), m->max_nodes = any_nodes(100);
    m->max_depth = m->max_nodes - 1;
    if (m->max_nodes > 1 && t_chance(50)) m->max_depth = (int)t_between(1, m->max_nodes - 1);
    m->page_size = m->batch ? T_PICK(pages) : 0,
    m->max_positions = (int)t_between(1, m->max_nodes + 20);
    m->heads = (int)t_between(1, 3), m->head_bytes = T_PICK(sizes);
    m->num_planes = (int)t_below(4), m->lens = (int)t_below(3), m->keep = t_chance(30);
    m->num_sms = (int)t_between(1, 6);
    m->head_stride = m->head_bytes + (t_chance(70) ? 0 : 16 * t_below(2) + t_below(2));
    m->pos_stride = m->heads * m->head_stride + (t_chance(70) ? 0 : t_below(17));
    m->outer_stride = (m->page_size ? m->page_size : m->max_positions) * m->pos_stride +
                      (t_chance(70) ? 0 : t_below(17));
}

static void any_path(const moves *m, int b) {
    const int64_t first = b * ((int64_t)m->max_depth + 1);
    const int nodes = m->nodes.host ? word_at(&m->nodes, b) : m->max_nodes;
    int accepted = 0;
    for (int node = 0; node < nodes && node < m->max_nodes && accepted <= m->max_depth; ++node)
        if (node == 0 || t_chance(45)) put_word(&m->path, first + accepted++, node);
    put_word(&m->accepted, b, t_chance(8) ? any_word(m->max_nodes) : accepted - (accepted > 0));
    if (t_chance(15)) put_word(&m->path, first + t_below(m->max_depth + 1), any_word(m->max_nodes));
}

static void moves_make(moves *m) {
    const int live = t_chance(70) ? m->batch : (int)t_between(-2, m->batch + 3);
    const int known = live < 0 ? 0 : live > m->batch ? m->batch : live;
    const int64_t rows = m->batch;
    int32_t *own;
    m->slots = slots_draw(m->batch, known, draw_bad_slots(), 1);
    m->row_pages = m->page_size ? (m->max_positions + m->page_size - 1) / m->page_size : 0;
    m->num_pages = m->page_size ? m->slots.count * m->row_pages + 1 : 0;
    if (live != m->batch) m->active = t_in(4, 0), put_word(&m->active, 0, live);
    m->accepted = t_in(4 * rows, 0), m->path = t_in(4 * rows * (m->max_depth + 1), 0);
    if (t_chance(50)) m->nodes = t_in(4 * rows, 0);
    m->cache_len = m->lens == 1 ? t_out(4 * m->slots.count, 0) : t_in(4 * m->slots.count, 0);
    if (m->lens == 2) m->new_len = t_out(4 * m->slots.count, 0);
    m->table = t_in(4 * m->slots.count * m->row_pages, 0);
    if (t_chance(40)) m->old_table = t_in(4 * m->slots.count * m->row_pages, 0);
    if (t_chance(30)) m->refs = t_in(4 * m->num_pages, 0);
    if (t_chance(80)) m->status = t_out(4 * rows, 0), t_fill_status(&m->status, m->keep);
    m->ticket = t_out(4, 0), put_word(&m->ticket, 0, 0);
    any_words(&m->path);
    for (int slot = 0; slot < m->slots.count; ++slot)
        put_word(&m->cache_len, slot,
                 t_chance(10) ? any_word(m->max_positions)
                              : (int32_t)t_below(m->max_positions + 1));
    for (int b = 0; b < m->batch; ++b) {
        if (m->nodes.host)
            put_word(&m->nodes, b,
                     t_chance(8) ? any_word(m->max_nodes) : (int32_t)t_between(1, m->max_nodes));
        any_path(m, b);
    }
    own = (int32_t *)malloc(4 * (size_t)m->num_pages + 4);
    if (!own) t_die(__FILE__, __LINE__, "malloc", "no memory");
    for (int64_t i = 0; i < m->num_pages; ++i) {
        const int64_t j = t_below(i + 1);
        own[i] = own[j], own[j] = (int32_t)i;
    }
    if (m->table.host) any_table(m, &m->table, own, 0);
    if (m->old_table.host) any_table(m, &m->old_table, own, 1);
    free(own);
    for (int64_t i = 0; i < (int64_t)m->refs.bytes / 4; ++i)
        put_word(&m->refs, i, t_chance(90) ? 1 : any_word(3));
    m->plane_bytes = (m->page_size ? m->num_pages : m->slots.count) * m->outer_stride;
    m->data = t_out(m->plane_bytes * (m->num_planes ? m->num_planes : 1), (int64_t)t_below(3) * 8);
    any_words(&m->data);
    for (int v = 0; v < m->num_planes; ++v) {
        const int is_null = t_chance(10);
        m->host_planes[v] = is_null ? NULL : m->data.host + v * m->plane_bytes;
        m->device_planes[v] = is_null ? NULL : m->data.device + v * m->plane_bytes;
    }
    m->before = (char *)malloc(m->cache_len.bytes + 1);
    if (!m->before) t_die(__FILE__, __LINE__, "malloc", "no memory");
    if (m->cache_len.bytes) memcpy(m->before, m->cache_len.host, m->cache_len.bytes);
#if T_DEVICE
    T_CUDA(cudaMalloc(&m->planes, sizeof m->device_planes));
    T_CUDA(
        cudaMemcpy(m->planes, m->device_planes, sizeof m->device_planes, cudaMemcpyHostToDevice));
#endif
}

static specv_commit_path_desc moves_describe(const moves *m, int side) {
    specv_commit_path_desc d = SPECV_ZERO;
    d.keep_status = m->keep, d.batch = m->batch, d.num_sms = m->num_sms;
    d.max_nodes = m->max_nodes, d.max_depth = m->max_depth;
    d.num_active = (const int32_t *)t_at(&m->active, side);
    d.slot = slots_at(&m->slots, side), d.slot_dtype = slots_dtype(&m->slots);
    d.num_slots = slots_count(&m->slots);
    d.accepted_len = (const int32_t *)t_at(&m->accepted, side);
    d.path = (const int32_t *)t_at(&m->path, side);
    d.path_stride_elems = (int64_t)m->max_depth + 1;
    d.num_nodes = (const int32_t *)t_at(&m->nodes, side);
    d.cache_len = (const int32_t *)t_at(&m->cache_len, side);
    d.new_cache_len =
        m->lens == 1 ? (int32_t *)t_at(&m->cache_len, side) : (int32_t *)t_at(&m->new_len, side);
    if (d.new_cache_len) d.ticket = (uint32_t *)t_at(&m->ticket, side);
    d.row_status = (uint32_t *)t_at(&m->status, side);
    d.kv.head_bytes = m->head_bytes, d.kv.head_stride_bytes = m->head_stride;
    d.kv.pos_stride_bytes = m->pos_stride, d.kv.num_heads = m->heads;
    d.kv.max_positions = m->max_positions, d.kv.page_size = m->page_size;
    d.kv.num_pages = (int32_t)m->num_pages;
    if (m->page_size) {
        d.kv.block_table = (int32_t *)t_at(&m->table, side);
        d.src_block_table = (const int32_t *)t_at(&m->old_table, side);
        d.page_refs = (const int32_t *)t_at(&m->refs, side);
    }
    *(m->page_size ? &d.kv.page_stride_bytes : &d.kv.seq_stride_bytes) = m->outer_stride;
    d.kv.num_planes = m->num_planes;
    if (m->num_planes)
        d.kv.planes =
            side == T_HOST_SIDE ? (void *const *)m->host_planes : (void *const *)m->planes;
    else
        d.kv.plane = t_at(&m->data, side);
    return d;
}

/* Rows without a fault have the path's nodes more, others what they had. */
static void moves_check(const moves *m) {
    const t_buf *now = m->lens == 2 ? &m->new_len : &m->cache_len;
    for (int b = 0; b < m->batch && m->lens && m->status.host; ++b) {
        const uint32_t status = (uint32_t)word_at(&m->status, b), old = t_old_status(m->keep, b);
        const int64_t slot = slot_of(&m->slots, b);
        int32_t was;
        if (b >= m->slots.live) CHECK_EQ(status, old, b);
        if (b >= m->slots.live || slot < 0 || m->keep) continue;
        memcpy(&was, m->before + 4 * slot, 4);
        CHECK_EQ(word_at(now, slot), status ? was : was + word_at(&m->accepted, b) + 1, b);
    }
    CHECK_EQ(word_at(&m->ticket, 0), 0, -1);
}

static void fuzz_commit(void) {
    for (long i = 0, end = num_cases(T_DEVICE ? 1500 : 3000, 150); i < end; ++i) {
        moves m;
        t_case("B4:");
        moves_draw(&m);
        t_note(
            " batch %d, %d nodes, depth %d, pages of %d, %d positions, %d heads x %lld, planes %d,",
            m.batch, m.max_nodes, m.max_depth, m.page_size, m.max_positions, m.heads,
            (long long)m.head_bytes, m.num_planes);
        moves_make(&m);
        t_upload();
        for (int side = 0; side <= T_DEVICE; ++side) {
            const specv_commit_path_desc d = moves_describe(&m, side);
            if (side == T_HOST_SIDE) CHECK_EQ(specv_ref_commit_path(&d), SPECV_OK, -1);
#if T_DEVICE
            if (side == T_DEVICE_SIDE) CHECK_EQ(specv_commit_path(&d, 0), SPECV_OK, -1);
#endif
        }
        moves_check(&m);
        t_check_host();
        t_check_device();
        free(m.before);
#if T_DEVICE
        T_CUDA(cudaFree(m.planes));
#endif
    }
}

/* What is given of a tree in one of the four forms, in half of the cases with numbers changed. */
static void any_layout(const specv_tree_layout_desc *d, char *given, char *siblings,
                       int32_t *parent) {
    const int n = d->max_nodes, words = (n + 31) / 32, wide = d->link_dtype == SPECV_I64;
    const int changes = t_chance(50) ? 0 : (int)t_between(1, 3);
    const int64_t elements = d->form == SPECV_TREE_PATHS  ? (int64_t)d->num_paths * d->path_len
                             : d->form == SPECV_TREE_MASK ? (int64_t)n * words
                                                          : n;
    const int kind = (int)t_below(3);
    int32_t *word = (int32_t *)(void *)given;
    parent[0] = -1;
    for (int i = 1; i < n; ++i)
        parent[i] = kind == 0 ? i - 1 : (int32_t)t_between(kind == 1 && i > 4 ? i - 4 : 0, i - 1);
    for (int64_t e = 0; e < elements && d->form == SPECV_TREE_LINKS; ++e)
        for (int s = 0; s < 2; ++s) {
            const int from = s ? parent[e] : (int)e; /* a later child of its parent, or of itself */
            int64_t link = -1;
            for (int i = (int)e + 1; i < n && link < 0 && from >= 0; ++i)
                if (parent[i] == from) link = i;
            if (t_chance(2 * changes)) link = any_word(n);
            if (wide)
                memcpy((s ? siblings : given) + 8 * e, &link, 8);
            else
                ((int32_t *)(void *)(s ? siblings : given))[e] = (int32_t)link;
        }
    if (d->form == SPECV_TREE_PARENTS) memcpy(given, parent, 4 * (size_t)n);
    for (int i = 0; i < n && d->form == SPECV_TREE_MASK; ++i) {
        memset(word + (int64_t)i * words, 0, 4 * (size_t)words);
        for (int at = i; at >= 0; at = parent[at]) /* the sign bit is one of them */
            ((uint32_t *)word)[(int64_t)i * words + at / 32] |= 1u << at % 32;
    }
    for (int64_t e = 0; e < elements && d->form == SPECV_TREE_PATHS; ++e) word[e] = -1;
    for (int leaf = n - 1, paths = 0; leaf >= 0 && d->form == SPECV_TREE_PATHS; --leaf) {
        int depth = 0, has_child = 0;
        for (int i = leaf + 1; i < n; ++i) has_child |= parent[i] == leaf;
        for (int at = parent[leaf]; at >= 0; at = parent[at]) ++depth;
        if (has_child || depth >= d->path_len || paths == d->num_paths) continue;
        for (int at = leaf; at >= 0; at = parent[at])
            word[(int64_t)paths * d->path_len + depth--] = at;
        paths += 1;
    }
    for (int k = 0; k < changes && d->form != SPECV_TREE_LINKS && elements; ++k)
        if (d->form == SPECV_TREE_MASK && t_chance(70))
            word[t_below(elements)] ^= (int32_t)(1u << t_below(n < 32 ? n : 32));
        else
            word[t_below(elements)] = any_word(n);
}

/* Parents, depths, ids and masks say the same, of a tree or of nothing but a root. */
static void check_layout(const specv_tree_layout_desc *d, const slots *its) {
    const int words = (d->max_nodes + 31) / 32;
    for (int b = 0; b < d->batch && d->parent; ++b) {
        const int32_t *parent = d->parent + (int64_t)b * d->max_nodes;
        const int32_t *depth = d->depth ? d->depth + (int64_t)b * d->max_nodes : NULL;
        const uint32_t *mask = d->mask ? d->mask + (int64_t)b * d->max_nodes * words : NULL;
        const uint32_t status = d->row_status ? d->row_status[b] : 0;
        int n = b < its->live && !slot_is_bad(its, b);
        CHECK_EQ(parent[0], -1, b);
        while (n > 0 && n < d->max_nodes && parent[n] >= 0) ++n;
        for (int i = 0; i < d->max_nodes; ++i) {
            CHECK(i == 0 || i >= n ? parent[i] == -1 : parent[i] < i);
            if (depth) CHECK_EQ(depth[i], i == 0 || i >= n ? 0 : depth[parent[i]] + 1, b);
            for (int w = 0; w < words && mask; ++w) {
                uint32_t want = i > 0 && i < n ? mask[parent[i] * words + w] : 0;
                if (i < n && w == i / 32) want |= 1u << i % 32;
                CHECK_EQ(mask[i * words + w], want, b);
            }
        }
        if (d->row_status && !d->keep_status && status & SPECV_ROW_BAD_TREE) CHECK_EQ(n, 1, b);
    }
}

static void fuzz_layouts(void) {
    for (long i = 0, end = num_cases(T_DEVICE ? 1500 : 3000, 150); i < end; ++i) {
        specv_tree_layout_desc d = SPECV_ZERO;
        t_buf given, siblings, nodes, position, parent, depth, ids, mask, status, active;
        int live;
        int32_t tree[SPECV_MAX_NODES];
        slots its;
        t_case("layouts:");
        d.form = (int)t_below(4), d.batch = (int)t_below(5), d.max_nodes = any_nodes(130);
        d.num_paths = (int)t_below(d.max_nodes + 1), d.path_len = (int)t_below(d.max_nodes + 2);
        if (t_chance(70)) d.num_paths = d.max_nodes, d.path_len = d.max_nodes;
        d.link_dtype = t_chance(50), d.index_dtype = t_chance(50), d.keep_status = t_chance(25);
        d.one_tree = t_chance(10), live = t_chance(80) ? d.batch : (int)t_below(d.batch + 1);
        t_note(" form %d, batch %d, %d nodes, %d paths of %d,", d.form, d.batch, d.max_nodes,
               d.num_paths, d.path_len);
        const int words = (d.max_nodes + 31) / 32, trees = d.one_tree && d.batch ? 1 : d.batch;
        const int64_t each = d.form == SPECV_TREE_PATHS  ? 4 * (int64_t)d.num_paths * d.path_len
                             : d.form == SPECV_TREE_MASK ? 4 * (int64_t)d.max_nodes * words
                             : d.form == SPECV_TREE_LINKS && d.link_dtype == SPECV_I64
                                 ? 8 * (int64_t)d.max_nodes
                                 : 4 * (int64_t)d.max_nodes;
        const int64_t all = (int64_t)d.batch * d.max_nodes;
        given = t_in(each * trees, 0);
        siblings = t_in(d.form == SPECV_TREE_LINKS ? each * trees : 0, 0);
        for (int b = 0; b < trees; ++b)
            any_layout(&d, given.host + b * each, siblings.host + b * each, tree);
        nodes = t_in(t_chance(40) ? 4 * (int64_t)d.batch : 0, 0);
        for (int b = 0; b < d.batch && nodes.host; ++b)
            put_word(&nodes, b, t_chance(10) ? any_word(d.max_nodes) : d.max_nodes);
        its = slots_draw(d.batch, live, draw_bad_slots(), 0);
        position = t_in(4 * (int64_t)its.count, 0);
        any_words(&position);
        for (int slot = 0; slot < its.count; ++slot)
            put_word(&position, slot, word_at(&position, slot) & 0x3fffffff);
        active = t_in(live < d.batch ? 4 : 0, 0);
        if (active.host) put_word(&active, 0, live);
        parent = t_out(4 * all, 0), depth = t_out(4 * all, 0), mask = t_out(4 * all * words, 0);
        ids = t_out((d.index_dtype == SPECV_I64 ? 8 : 4) * all, 0);
        status = t_out(4 * (int64_t)d.batch, 0), t_fill_status(&status, d.keep_status);
        t_upload();
        for (int side = 0; side <= T_DEVICE; ++side) {
            const void *its_given = t_at(&given, side);
            if (d.form == SPECV_TREE_PARENTS) d.given_parent = (const int32_t *)its_given;
            if (d.form == SPECV_TREE_LINKS)
                d.first_child = its_given, d.next_sibling = t_at(&siblings, side);
            if (d.form == SPECV_TREE_PATHS) d.paths = (const int32_t *)its_given;
            if (d.form == SPECV_TREE_MASK) d.given_mask = (const uint32_t *)its_given;
            d.num_nodes = (const int32_t *)t_at(&nodes, side);
            d.num_active = (const int32_t *)t_at(&active, side);
            d.slot = slots_at(&its, side), d.slot_dtype = slots_dtype(&its);
            d.num_slots = slots_count(&its);
            d.position = (const int32_t *)t_at(&position, side);
            d.parent = (int32_t *)t_at(&parent, side), d.depth = (int32_t *)t_at(&depth, side);
            d.position_ids = t_at(&ids, side), d.mask = (uint32_t *)t_at(&mask, side);
            d.row_status = (uint32_t *)t_at(&status, side);
            if (side == T_HOST_SIDE) {
                CHECK_EQ(specv_ref_tree_layout(&d), SPECV_OK, -1);
                check_layout(&d, &its);
            }
#if T_DEVICE
            if (side == T_DEVICE_SIDE) CHECK_EQ(specv_tree_layout(&d, 0), SPECV_OK, -1);
#endif
        }
        t_check_host();
        t_check_device();
    }
}

/* ---------------------------------------------------------------------------------- relations */

/* The rows `order` of another batch, in the shape s: in another order, layout, width, with other
   gaps, and with rows behind them that are inert. Everything that is not a row is drawn anew. */
static void rearrange(batch *to, const batch *from, const shape *s, const int *order, int num) {
    batch_start(to, s);
    memcpy(to->eos, from->eos, sizeof to->eos);
    for (int row = 0; row < s->batch; ++row) {
        truth *r = &to->rows[row];
        int32_t noise = (int32_t)t_random(), n = row < num ? from->rows[order[row]].n_draft : 0;
        if (row < num) *r = from->rows[order[row]];
        r->first = s->layout == CSR ? to->num_draft_tokens : row * to->draft_stride;
        to->num_draft_tokens += s->layout == CSR ? n : 0;
        if (to->draft_len.host) memcpy(to->draft_len.host + 4 * row, row < num ? &n : &noise, 4);
        if (!to->row_start.host) continue;
        if (row <= num) noise = (int32_t)r->first;
        memcpy(to->row_start.host + 4 * row, &noise, 4);
    }
    if (to->row_start.host) {
        int32_t end = (int32_t)to->num_draft_tokens;
        memcpy(to->row_start.host + 4 * (int64_t)s->batch, &end, 4);
        to->by_end = t_chance(50);
    }
    batch_tokens(to);
    for (int row = 0; row < s->batch; ++row) {
        const truth *r = &from->rows[row < num ? order[row] : 0];
        int64_t from_target;
        put_noise(to, row);
        if (row >= num) continue;
        from_target =
            from->s.layout == CSR ? r->first + order[row] : order[row] * from->target_stride;
        for (int j = 0; j <= r->n_draft; ++j)
            put_pair(to, row, j, j < r->n_draft,
                     j < r->n_draft ? get_token(&from->draft, s->dtype, r->first + j) : 0,
                     get_token(&from->target, s->dtype, from_target + j));
    }
    batch_outputs(to);
}

/* Row `order[i]` of one run and row i of the other have the same results. */
static void check_same_rows(const batch *a, const batch *b, const int *order, int num) {
    const int64_t columns = a->s.max_draft < b->s.max_draft ? a->s.max_draft : b->s.max_draft;
    const specv_dtype dtype = a->s.dtype;
    for (int row = 0; row < num; ++row) {
        const int was = order[row];
        CHECK_EQ(word_at(&b->accepted, row), word_at(&a->accepted, was), row);
        CHECK_EQ(b->mismatch.host[row], a->mismatch.host[was], row);
        CHECK_EQ(get_token(&b->next, dtype, row), get_token(&a->next, dtype, was), row);
        CHECK_EQ(word_at(&b->emitted, row), word_at(&a->emitted, was), row);
        CHECK_EQ(b->finished.host[row], a->finished.host[was], row);
        CHECK_EQ(word_at(&b->status, row), word_at(&a->status, was), row);
        for (int64_t j = 0; j <= columns; ++j)
            CHECK_EQ(get_token(&b->tokens, dtype, row * b->out_stride + j),
                     get_token(&a->tokens, dtype, was * a->out_stride + j), row);
    }
}

static void run_both(batch *b) {
    specv_verify_greedy_desc d = batch_describe(b, T_HOST_SIDE);
    CHECK_EQ(specv_ref_verify_greedy(&d), SPECV_OK, -1);
#if T_DEVICE
    d = batch_describe(b, T_DEVICE_SIDE);
    CHECK_EQ(specv_verify_greedy(&d, 0), SPECV_OK, -1);
#endif
}

enum { MAX_RELATED = 64 };

/* A row's results depend on the row alone: not on its place, on the other rows, on the width of
   the buffers, on the layout, on where the batch is cut, nor on inert rows behind. */
static void fuzz_rows(void) {
    for (long i = 0, end = num_cases(800, 60); i < end; ++i) {
        batch a, b, c;
        shape s;
        int order[MAX_RELATED], cut;
        t_case("row relations:");
        s = any_shape();
        s.batch = (int)t_between(1, MAX_RELATED);
        s.endings &= ~(1u << END_BAD_LENGTH);
        s.outputs = OUT_ALL;
        s.has_num_active = 0;
        batch_note(&s);
        batch_make(&a, &s);
        for (int row = 0; row < s.batch; ++row) order[row] = row;
        for (int row = s.batch - 1; row > 0; --row) { /* shuffle */
            int other = (int)t_below(row + 1), swap = order[row];
            order[row] = order[other];
            order[other] = swap;
        }
        cut = (int)t_between(0, s.batch);
        s.layout = t_chance(50) ? CSR : DENSE_LEN;
        s.max_draft += (int)t_below(40);
        s.draft_gap = s.layout == CSR ? 0 : (int)t_below(3);
        s.target_gap = s.layout == CSR ? 0 : (int)t_below(3);
        s.has_num_active = 1;
        s.batch = cut + (int)t_below(4);
        s.num_active = cut;
        rearrange(&b, &a, &s, order, cut);
        s.batch = s.num_active = a.s.batch - cut;
        rearrange(&c, &a, &s, order + cut, a.s.batch - cut);
        t_upload();
        run_both(&a);
        run_both(&b);
        run_both(&c);
        check_same_rows(&a, &b, order, cut);
        check_same_rows(&a, &c, order + cut, a.s.batch - cut);
        t_check_host();
        t_check_device();
        batch_free(&a);
        batch_free(&b);
        batch_free(&c);
    }
}

/* Results do not depend on the grid: any number of SMs, B2 in one launch or in two. */
static void fuzz_grids(void) {
#if T_DEVICE
    static const int sms[] = {1, 2, 3, 4, 5, 6, 7, 33, 132};
    for (long i = 0, end = num_cases(50, 4); i < end; ++i) {
        shape s;
        kv_shape k;
        batch b;
        kv_pack p;
        t_case("grids:");
        s = any_shape();
        k = any_kv(&s);
        batch_note(&s);
        kv_note(&k);
        batch_make(&b, &s);
        kv_make(&p, &k, &b, 0);
        t_upload();
        specv_verify_pack_kv_desc d = kv_describe_b2(&p, T_HOST_SIDE);
        CHECK_EQ(specv_ref_verify_pack_kv(&d), SPECV_OK, -1);
        d = kv_describe_b2(&p, T_DEVICE_SIDE);
        for (int j = 0; j < T_COUNT(sms) + 2; ++j) {
            d.kv.num_sms = sms[j % T_COUNT(sms)];
            if (d.kv.num_sms == 132 && i % 10) continue; /* a whole device takes its time */
            CHECK_EQ(j < T_COUNT(sms)    ? specv_verify_pack_kv(&d, 0)
                     : j == T_COUNT(sms) ? kv_launch_one(&d, 3)
                                         : kv_launch_two(&d),
                     SPECV_OK, -1);
            t_check_device();
            t_poison_device();
        }
        kv_free(&p);
        batch_free(&b);
    }
#else
    t_skip("the reference has no grid");
#endif
}

int main(int argc, char **argv) {
    static const t_group groups[] = {
        {"verify", fuzz_verify},    {"pack", fuzz_pack},
        {"both", fuzz_verify_pack}, {"stats", fuzz_stats},
        {"rows", fuzz_rows},        {"grids", fuzz_grids},
        {"trees", fuzz_trees},      {"lone-trees", fuzz_lone_trees},
        {"commit", fuzz_commit},    {"layouts", fuzz_layouts},
    };
    return t_main(argc, argv, groups, T_COUNT(groups));
}
