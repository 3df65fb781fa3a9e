/* trees.cu - A7, verification of draft trees: what a path is by another way of finding it, chains
   against the rules for chains, malformed trees, laws of texts. */

#include "t.h"

#include <math.h>

/* -------------------------------------------------------------------------------------- trees */

/* What is unusual about a batch, as bits. */
enum {
    TREE_PLACEHOLDERS = 1,
    TREE_BAD_TOKENS = 2, /* drafts and target ids outside the vocabulary */
    TREE_EOS = 4,
    TREE_BAD_LENGTHS = 8,
    TREE_MALFORMED = 16,
    TREE_INERT = 32,
    TREE_ALL = 63
};

typedef enum tree_kind { CHAIN, STAR, BINARY, ANY, DEEP, NUM_KINDS } tree_kind;

typedef struct forest {
    int batch, max_nodes, dtype, vocab, odd, num_eos, max_depth, keep;
    int only; /* 1 + a tree_kind; 0: any */
    int64_t parent_stride, token_stride, target_stride, out_stride;
    t_buf num_active, num_nodes, parent, token, target;
    t_buf accepted, mismatch, next, out, emitted, finished, status, path, index, predicts;
} forest;

static void put_token(const t_buf *b, int dtype, int64_t i, int64_t token) {
    const int32_t word = (int32_t)token;
    if (dtype == SPECV_I64)
        memcpy(b->host + 8 * i, &token, 8);
    else
        memcpy(b->host + 4 * i, &word, 4);
}

static int64_t token_at(const t_buf *b, int dtype, int64_t i) {
    int64_t token;
    if (dtype != SPECV_I64) return word_at(b, i);
    memcpy(&token, b->host + 8 * i, 8);
    return token;
}

static int parent_of(tree_kind kind, int i) {
    switch (kind) {
    case CHAIN: return i - 1;
    case STAR: return 0;
    case BINARY: return (i - 1) / 2;
    case DEEP: return i < 4 ? i - 1 : (int)t_between(i - 4, i - 1);
    default: return (int)t_below(i);
    }
}

static int draw_length(const forest *f) {
    const int lengths[] = {1, 2, 31, 32, 33, 60, 64, 127, 128, 129, 255, 256, 257, 1000};
    const int n = t_chance(50) ? f->max_nodes : (int)T_PICK(lengths);
    if (f->odd & TREE_BAD_LENGTHS && t_chance(20)) {
        const int bad[] = {0, -1, f->max_nodes + 1, INT32_MIN, INT32_MAX};
        return T_PICK(bad);
    }
    return n <= f->max_nodes ? n : (int)t_between(1, f->max_nodes);
}

/* A wrong parent somewhere: a cycle, a parent that comes later, one out of range, a second root. */
static void spoil_parents(const forest *f, int b, int n) {
    const int i = (int)t_below(n);
    const int32_t bad[] = {i, i + 1, n, f->max_nodes, INT32_MIN, INT32_MAX, -2, i ? -1 : 0};
    put_word(&f->parent, b * f->parent_stride + i, T_PICK(bad));
}

static void forest_make(forest *f) {
    const int bytes = f->dtype == SPECV_I64 ? 8 : 4;
    const int64_t columns = (f->max_depth ? f->max_depth : f->max_nodes - 1) + 1;
    const int64_t gap = t_chance(50) ? 0 : t_below(5), batch = f->batch;
    f->parent_stride = f->max_nodes + gap, f->token_stride = f->max_nodes + gap;
    f->target_stride = f->max_nodes + gap, f->out_stride = columns + gap;
    f->num_active = t_in(4, 0), f->num_nodes = t_in(4 * batch, 0);
    f->parent = t_in(4 * batch * f->parent_stride, 0);
    f->token = t_in(bytes * batch * f->token_stride, 0);
    f->target = t_in(bytes * batch * f->target_stride, 0);
    put_word(&f->num_active, 0, f->odd & TREE_INERT ? (int32_t)t_below(batch + 2) : f->batch);
    for (int b = 0; b < f->batch; ++b) {
        const int n = draw_length(f), nodes = n < 1 || n > f->max_nodes ? 1 : n;
        const tree_kind kind = (tree_kind)(f->only ? f->only - 1 : t_below(NUM_KINDS));
        const int ids = t_chance(50) ? 2 : 5; /* so that siblings are equal now and then */
        put_word(&f->num_nodes, b, n);
        for (int i = 0; i < f->max_nodes; ++i) {
            int64_t token = t_below(ids), target = t_below(ids);
            put_word(&f->parent, b * f->parent_stride + i,
                     i == 0      ? -1
                     : i < nodes ? parent_of(kind, i)
                                 : (int32_t)t_random());
            if (f->odd & TREE_PLACEHOLDERS && t_chance(5)) token = -1;
            if (f->odd & TREE_BAD_TOKENS && t_chance(2)) token = t_chance(50) ? f->vocab : -7;
            if (f->odd & TREE_BAD_TOKENS && t_chance(2)) target = t_chance(50) ? f->vocab : -1;
            put_token(&f->token, f->dtype, b * f->token_stride + i, token);
            put_token(&f->target, f->dtype, b * f->target_stride + i, target);
        }
        for (int i = 1; i < nodes; ++i) /* long paths are wanted, too */
            if (kind != ANY && t_chance(80))
                put_token(
                    &f->token, f->dtype, b * f->token_stride + i,
                    token_at(&f->target, f->dtype,
                             b * f->target_stride + word_at(&f->parent, b * f->parent_stride + i)));
        if (f->odd & TREE_MALFORMED && t_chance(50)) spoil_parents(f, b, nodes);
    }
    f->accepted = t_out(4 * batch, 0), f->mismatch = t_out(batch, 0);
    f->next = t_out(bytes * batch, 0), f->out = t_out(bytes * batch * f->out_stride, 0);
    f->emitted = t_out(4 * batch, 0), f->finished = t_out(batch, 0);
    f->status = t_out(4 * batch, 0), f->path = t_out(4 * batch * columns, 0);
    f->index = t_out(4 * batch * columns, 0), f->predicts = t_out(bytes * batch * f->max_nodes, 0);
    t_fill_status(&f->status, f->keep);
}

static specv_verify_tree_desc forest_describe(const forest *f, int side) {
    specv_verify_tree_desc d = SPECV_ZERO;
    d.trees.batch = f->batch, d.trees.max_nodes = f->max_nodes, d.trees.token_dtype = f->dtype;
    d.trees.num_active = (const int32_t *)t_at(&f->num_active, side);
    d.trees.num_nodes = (const int32_t *)t_at(&f->num_nodes, side);
    d.trees.parent = (const int32_t *)t_at(&f->parent, side);
    d.trees.token = t_at(&f->token, side), d.target_tokens = t_at(&f->target, side);
    d.trees.parent_stride_elems = f->parent_stride, d.trees.token_stride_elems = f->token_stride;
    d.target_stride_elems = f->target_stride, d.out_stride_elems = f->out_stride;
    d.accepted_len = (int32_t *)t_at(&f->accepted, side);
    d.mismatch = (uint8_t *)t_at(&f->mismatch, side), d.next_token = t_at(&f->next, side);
    d.out_tokens = t_at(&f->out, side), d.num_emitted = (int32_t *)t_at(&f->emitted, side);
    d.finished = (uint8_t *)t_at(&f->finished, side);
    d.row_status = (uint32_t *)t_at(&f->status, side);
    d.path = (int32_t *)t_at(&f->path, side);
    d.accept_index = (int32_t *)t_at(&f->index, side), d.predicts = t_at(&f->predicts, side);
    d.vocab = f->vocab, d.max_depth = f->max_depth, d.keep_status = f->keep;
    d.num_eos = f->num_eos;
    for (int i = 0; i < f->num_eos; ++i) d.eos_token[i] = 1 + i;
    return d;
}

static void run_tree(const specv_verify_tree_desc *d, int side) {
    if (side == T_HOST_SIDE) CHECK_EQ(specv_ref_verify_tree(d), SPECV_OK, -1);
#if T_DEVICE
    if (side == T_DEVICE_SIDE) CHECK_EQ(specv_verify_tree(d, 0), SPECV_OK, -1);
#endif
}

static int is_eos_of(const forest *f, int64_t token) { return token >= 1 && token <= f->num_eos; }

/* What a row must say, by going through the nodes once in their order: a node is on the path if its
   parent is, it has the token wanted there, and is the first to have it. */
static void check_walk(const forest *f, int b) {
    const int depth_limit = f->max_depth ? f->max_depth : f->max_nodes - 1;
    const int64_t columns = depth_limit + 1;
    const int live = b < word_at(&f->num_active, 0);
    int n = word_at(&f->num_nodes, b), last = 0, has_children = 0, depth = 0;
    int parents[SPECV_MAX_NODES], child_of_path[SPECV_MAX_NODES], path[SPECV_MAX_NODES] = {0};
    uint32_t want = 0, got;
    int64_t next = -1;
    int finished = 0;
    if (n < 1 || n > f->max_nodes) n = 1, want |= SPECV_ROW_BAD_LENGTH;
    for (int i = 0; i < n; ++i) {
        parents[i] = word_at(&f->parent, b * f->parent_stride + i);
        child_of_path[i] = -1;
        if (i == 0 ? parents[i] != -1 : parents[i] < 0 || parents[i] >= i)
            want |= SPECV_ROW_BAD_TREE;
    }
    if (want) n = 1;
    for (int i = 1; i < n; ++i) {
        const int64_t token = token_at(&f->token, f->dtype, b * f->token_stride + i);
        const int p = parents[i];
        if (p != last || child_of_path[p] >= 0 || depth == depth_limit || token < 0 ||
            token >= f->vocab ||
            is_eos_of(f, p ? token_at(&f->token, f->dtype, b * f->token_stride + p) : -1) ||
            token != token_at(&f->target, f->dtype, b * f->target_stride + p))
            continue;
        child_of_path[p] = i, last = i, path[++depth] = i;
    }
    finished = last && is_eos_of(f, token_at(&f->token, f->dtype, b * f->token_stride + last));
    for (int i = 1; i < n && !finished; ++i)
        if (parents[i] == last) {
            const int64_t token = token_at(&f->token, f->dtype, b * f->token_stride + i);
            has_children = 1;
            if (token != -1 && (token < 0 || token >= f->vocab)) want |= SPECV_ROW_BAD_DRAFT;
        }
    if (!finished) {
        next = token_at(&f->target, f->dtype, b * f->target_stride + last);
        if (next < 0 || next >= f->vocab) next = -1, want |= SPECV_ROW_BAD_TARGET;
        finished = is_eos_of(f, next);
    }
    if (!live) want = 0, next = -1, depth = 0, finished = has_children = 0;
    CHECK_EQ(word_at(&f->accepted, b), depth, b);
    CHECK_EQ(token_at(&f->next, f->dtype, b), next, b);
    CHECK_EQ(f->finished.host[b], finished, b);
    CHECK_EQ(f->mismatch.host[b], has_children, b);
    CHECK_EQ(word_at(&f->emitted, b), depth + (next >= 0), b);
    memcpy(&got, f->status.host + 4 * b, 4);
    CHECK_EQ(got, want | t_old_status(f->keep, b), b);
    for (int i = 0; i < columns; ++i) {
        const int on_path = live && i <= depth;
        int64_t token = -1;
        if (live && i < depth)
            token = token_at(&f->token, f->dtype, b * f->token_stride + path[i + 1]);
        if (live && i == depth) token = next;
        CHECK_EQ(word_at(&f->path, b * columns + i), on_path ? path[i] : -1, b);
        CHECK_EQ(word_at(&f->index, b * columns + i), on_path ? b * f->max_nodes + path[i] : -1, b);
        CHECK_EQ(token_at(&f->out, f->dtype, b * f->out_stride + i), token, b);
        if (on_path)
            CHECK_EQ(token_at(&f->predicts, f->dtype, (int64_t)b * f->max_nodes + path[i]), token,
                     b);
    }
    for (int i = 0, at = 0; i < f->max_nodes; ++i) {
        if (live && at <= depth && path[at] == i) {
            ++at;
            continue;
        }
        CHECK_EQ(token_at(&f->predicts, f->dtype, (int64_t)b * f->max_nodes + i), -1, b);
    }
}

static void run_forest(forest *f) {
    forest_make(f);
    t_upload();
    for (int side = 0; side <= T_DEVICE; ++side) {
        specv_verify_tree_desc d = forest_describe(f, side);
        run_tree(&d, side);
    }
    for (int b = 0; b < f->batch; ++b) check_walk(f, b);
    t_check_device();
}

static forest plain_forest(int batch, int max_nodes, int turn) {
    forest f;
    memset(&f, 0, sizeof f);
    f.batch = batch, f.max_nodes = max_nodes, f.dtype = turn % 2 ? SPECV_I64 : SPECV_I32;
    f.vocab = 8;
    return f;
}

/* ----------------------------------------------------------------------------- ids: the groups */

/* Every number of nodes around borders of warps and of what a warp holds, all accidents. */
static void test_ids(void) {
    static const int nodes[] = {1,   2,   3,   31,  32,  33,  60,  64,  65,   127,
                                128, 129, 160, 255, 256, 257, 511, 513, 1023, 1024};
    for (int i = 0; i < T_COUNT(nodes); ++i)
        for (int turn = 0; turn < (t.quick ? 2 : 12); ++turn) {
            forest f = plain_forest(nodes[i] > 300 ? 5 : 13, nodes[i], turn);
            f.odd = turn < 2 ? turn * TREE_ALL : (int)t_below(TREE_ALL + 1);
            f.num_eos = f.odd & TREE_EOS ? (int)t_between(1, 2) : 0;
            f.max_depth = nodes[i] > 1 && t_chance(50)
                              ? (int)t_between(1, nodes[i] > 4 ? 3 : nodes[i] - 1)
                              : 0;
            f.keep = t_chance(30);
            t_case("%d nodes, odd %d, depth %d", nodes[i], f.odd, f.max_depth);
            run_forest(&f);
        }
}

/* Batches around the trees of a block. */
static void test_batches(void) {
    static const int batches[] = {1, 2, 3, 4, 5, 31, 33, 255, 1025};
    for (int i = 0; i < T_COUNT(batches); ++i) {
        forest f = plain_forest(batches[i], batches[i] > 300 ? 7 : 40, i);
        f.odd = TREE_ALL, f.num_eos = 1;
        t_case("%d trees", batches[i]);
        run_forest(&f);
    }
}

/* Trees of which nothing is known: any parents at all. No access leaves a buffer, none hangs, rows
   beside them are as they would be. */
static void test_malformed(void) {
    for (int turn = 0; turn < (t.quick ? 30 : 300); ++turn) {
        forest f = plain_forest(6, (int)t_between(1, turn % 3 ? 70 : 300), turn);
        t_case("anything for a parent, %d nodes", f.max_nodes);
        f.odd = TREE_MALFORMED | TREE_BAD_LENGTHS;
        forest_make(&f);
        for (int b = 0; b < f.batch; b += 2)
            for (int i = 0; i < f.max_nodes; ++i)
                if (t_chance(turn % 10 ? 10 : 100))
                    put_word(&f.parent, b * f.parent_stride + i,
                             t_chance(50) ? (int32_t)t_random()
                                          : (int32_t)t_between(-2, f.max_nodes));
        t_upload();
        for (int side = 0; side <= T_DEVICE; ++side) {
            specv_verify_tree_desc d = forest_describe(&f, side);
            run_tree(&d, side);
        }
        for (int b = 0; b < f.batch; ++b) check_walk(&f, b);
        t_check_device();
    }
}

/* A chain is what A1 verifies. */
static void test_chain_ids(void) {
    for (int turn = 0; turn < (t.quick ? 10 : 60); ++turn) {
        const int nodes = (int)t_between(2, turn % 2 ? 40 : 300);
        forest f = plain_forest(9, nodes, turn);
        t_case("chains of %d nodes", nodes);
        f.odd = (TREE_PLACEHOLDERS | TREE_BAD_TOKENS | TREE_EOS | TREE_INERT) & (int)t_random();
        f.num_eos = f.odd & TREE_EOS ? 2 : 0;
        forest_make(&f);
        t_buf len = t_in(4 * (int64_t)f.batch, 0);
        for (int b = 0; b < f.batch; ++b) {
            put_word(&len, b, word_at(&f.num_nodes, b) - 1);
            for (int i = 0; i < nodes; ++i) put_word(&f.parent, b * f.parent_stride + i, i - 1);
        }
        t_upload();
        for (int side = 0; side <= T_DEVICE; ++side) {
            specv_verify_tree_desc d = forest_describe(&f, side);
            run_tree(&d, side);
        }
        {
            specv_verify_tree_desc d = forest_describe(&f, T_HOST_SIDE);
            specv_verify_greedy_desc v = SPECV_ZERO;
            int32_t accepted[9];
            uint8_t mismatch[9], finished[9];
            uint32_t status[9];
            char next[9 * 8];
            v.rows.batch = f.batch, v.rows.max_draft = nodes - 1, v.token_dtype = f.dtype;
            v.rows.num_active = d.trees.num_active, v.rows.draft_len = (int32_t *)t_at(&len, 0);
            v.draft_tokens = (const char *)d.trees.token + (f.dtype == SPECV_I64 ? 8 : 4);
            v.draft_stride_elems = f.token_stride, v.target_tokens = d.target_tokens;
            v.target_stride_elems = f.target_stride, v.vocab = f.vocab;
            v.num_eos = f.num_eos, v.eos_token[0] = 1, v.eos_token[1] = 2;
            v.accepted_len = accepted, v.mismatch = mismatch, v.finished = finished;
            v.row_status = status, v.next_token = next;
            CHECK_EQ(specv_ref_verify_greedy(&v), SPECV_OK, -1);
            CHECK_BYTES(f.accepted.host, (char *)accepted, sizeof accepted);
            CHECK_BYTES(f.mismatch.host, (char *)mismatch, sizeof mismatch);
            CHECK_BYTES(f.finished.host, (char *)finished, sizeof finished);
            CHECK_BYTES(f.status.host, (char *)status, sizeof status);
            CHECK_BYTES(f.next.host, next, f.next.bytes);
        }
        t_check_device();
    }
}

/* ------------------------------------------------------------------------------------- scores */

/* What is unusual about scores, as bits. */
enum {
    ODD_NAN = 1,
    ODD_MASK = 2,
    ODD_TOP = 4,
    ODD_EMPTY = 8,
    ODD_SAME = 16,
    ODD_TEMPERATURE = 32,
    ODD_ALL = 63
};

/* What a request allows, of one side, as bits. */
enum { HAS_MASK = 1, HAS_TOP_K = 2, HAS_TOP_P = 4, HAS_MIN_P = 8, HAS_MASK_ROW = 16, HAS_ALL = 31 };

typedef struct limits {
    t_buf mask, mask_row, top_k, top_p, min_p;
    int64_t mask_stride;
    int rows;
} limits;

enum { TELL_LOGPROB = 1, TELL_RANK = 2, TELL_IDS = 4, TELL_THEIRS = 8, TELL_NUMBER = 16 };

/* Trees with what models say of them. */
typedef struct grove {
    forest f;
    int filters[2], order; /* HAS_* bits of target and draft */
    limits limits[2];
    int proposed; /* no draft scores, whatever the rule */
    int rule, dtypes[2], strange, num_slots, step_row, stream, own_temperature, aligned;
    int num_sms; /* 1: a walk reads rows itself, but of four nodes */
    int64_t pos_stride[2];
    t_buf scores[2], temperature[2], seed, position, slot, logprob, scratch;
    int64_t scratch_bytes;
    int asked, max_top, raw; /* TELL_* bits of what is told of emitted tokens */
    t_buf told, rank, top_id, top_logprob, num_top;
} grove;

static size_t score_bytes(int dtype) {
    return dtype == SPECV_LOGITS_F16 || dtype == SPECV_LOGITS_BF16 ? 2 : 4;
}

/* One position: logits of about -8 to 8, or probabilities, as they are in memory. */
static void draw_row(char *at, int dtype, int vocab, int strange) {
    float *p = (float *)malloc(sizeof(float) * (size_t)vocab);
    const int masked = strange & ODD_MASK && t_chance(30),
              none = strange & ODD_EMPTY && t_chance(10);
    const float sharp = t_chance(50) ? 1.f : 4.f;
    double sum = 0;
    if (!p) t_die(__FILE__, __LINE__, "draw_row", "no memory");
    for (int i = 0; i < vocab; ++i) {
        p[i] = (float)(t_below(4096) - 2048) / 1024.f * sharp;
        if (dtype == SPECV_PROBS_F32) sum += p[i] = (float)exp((double)p[i]);
        if (none || (masked && t_chance(70))) {
            if (dtype == SPECV_PROBS_F32) sum -= p[i];
            p[i] = dtype == SPECV_PROBS_F32 ? 0.f : -INFINITY;
        }
    }
    if (dtype == SPECV_PROBS_F32)
        for (int i = 0; i < vocab && sum > 1e-6; ++i) p[i] = (float)(p[i] / sum);
    if (strange & ODD_NAN && t_chance(10)) p[t_below(vocab)] = NAN;
    if (strange & ODD_TOP && t_chance(10)) p[t_below(vocab)] = t_chance(50) ? INFINITY : 60000.f;
    for (int i = 0; i < vocab; ++i) {
        uint32_t bits;
        uint16_t code;
        memcpy(&bits, &p[i], 4);
        if (score_bytes(dtype) == 4) {
            memcpy(at + 4 * i, &bits, 4);
            continue;
        }
        code = (uint16_t)(bits >> 16);   /* bf16 */
        if (dtype == SPECV_LOGITS_F16) { /* rounded down: what it is of does not matter here */
            const int exponent = (int)(bits >> 23 & 255) - 112;
            code = (uint16_t)(bits >> 16 & 0x8000u);
            if (exponent >= 31)
                code =
                    (uint16_t)(code | 0x7c00u | ((bits & 0x7fffffu) && exponent == 143 ? 1u : 0u));
            else if (exponent > 0)
                code = (uint16_t)(code | (uint32_t)exponent << 10 | (bits >> 13 & 0x3ffu));
        }
        memcpy(at + 2 * i, &code, 2);
    }
    free(p);
}

static void put_float(const t_buf *b, int64_t i, float value) {
    memcpy(b->host + 4 * i, &value, 4);
}

/* Masks mostly leave an id or more; drafts are allowed often. A bad row, or a bad number, now and
   then. */
static void limits_make(const grove *g, int side) {
    limits *l = (limits *)&g->limits[side];
    const forest *f = &g->f;
    const int has = g->filters[side], slots = g->num_slots ? g->num_slots : f->batch;
    const int words = (f->vocab + 31) / 32, exact = f->batch * f->max_nodes;
    const float parts[] = {0.f, 0.3f, 0.7f, 0.95f, 1.f, 1e-3f, -1.f, NAN};
    memset(l, 0, sizeof *l);
    l->mask_stride = t_chance(50) ? words : words + 2;
    l->rows = has & HAS_MASK_ROW ? exact + 3 : exact;
    l->mask = t_in(has & HAS_MASK ? 4 * l->mask_stride * l->rows : 0, 0);
    l->mask_row = t_in(has & HAS_MASK_ROW && has & HAS_MASK ? 4 * (int64_t)f->batch : 0, 0);
    l->top_k = t_in(has & HAS_TOP_K ? 4 * (int64_t)slots : 0, 0);
    l->top_p = t_in(has & HAS_TOP_P ? 4 * (int64_t)slots : 0, 0);
    l->min_p = t_in(has & HAS_MIN_P ? 4 * (int64_t)slots : 0, 0);
    for (int64_t i = 0; has & HAS_MASK && i < l->mask_stride * l->rows; ++i) {
        const uint64_t x = t_random() | (t_chance(60) ? t_random() : 0);
        put_word(&l->mask, i, t_chance(5) ? 0 : (int32_t)x);
    }
    for (int b = 0; l->mask_row.bytes && b < f->batch; ++b) {
        const int32_t odd[] = {-1, -1, -2, l->rows - f->max_nodes + 1, l->rows, INT32_MAX};
        put_word(&l->mask_row, b,
                 t_chance(20) ? T_PICK(odd) : (int32_t)t_below(l->rows - f->max_nodes + 1));
    }
    for (int k = 0; k < slots; ++k) {
        const int32_t counts[] = {1, 2, 3, 5, 40, 300, 0, -1, f->vocab, f->vocab - 1};
        if (has & HAS_TOP_K) put_word(&l->top_k, k, T_PICK(counts));
        if (has & HAS_TOP_P) put_word(&l->top_p, k, 0);
        if (has & HAS_TOP_P) memcpy(l->top_p.host + 4 * k, &parts[t_below(T_COUNT(parts))], 4);
        if (has & HAS_MIN_P) memcpy(l->min_p.host + 4 * k, &parts[t_below(T_COUNT(parts))], 4);
    }
}

static specv_filters limits_describe(const grove *g, int of_draft, int side) {
    const limits *l = &g->limits[of_draft];
    specv_filters f = SPECV_ZERO;
    if (!g->filters[of_draft]) return f;
    f.mask = l->mask.bytes ? (const uint32_t *)t_at(&l->mask, side) : NULL;
    f.mask_row = l->mask_row.bytes ? (const int32_t *)t_at(&l->mask_row, side) : NULL;
    f.top_k = l->top_k.bytes ? (const int32_t *)t_at(&l->top_k, side) : NULL;
    f.top_p = l->top_p.bytes ? (const float *)t_at(&l->top_p, side) : NULL;
    f.min_p = l->min_p.bytes ? (const float *)t_at(&l->min_p, side) : NULL;
    if (f.mask) f.mask_stride_words = l->mask_stride, f.num_mask_rows = l->rows;
    f.order = g->order;
    return f;
}

/* A request may want more ids than there is room for, or none. */
static void told_make(grove *g) {
    const forest *f = &g->f;
    const int64_t columns = (f->max_depth ? f->max_depth : f->max_nodes - 1) + 1;
    const int64_t all = 4 * f->batch * columns, slots = g->num_slots ? g->num_slots : f->batch;
    g->told = t_out(g->asked & TELL_LOGPROB ? all : 0, 0);
    g->rank = t_out(g->asked & TELL_RANK ? all : 0, 0);
    g->top_id = t_out(g->asked & TELL_IDS ? all * g->max_top : 0, 0);
    g->top_logprob = t_out(g->asked & TELL_THEIRS ? all * g->max_top : 0, 0);
    g->num_top = t_in(g->asked & TELL_NUMBER ? 4 * slots : 0, 0);
    for (int k = 0; k < slots && g->num_top.bytes; ++k)
        put_word(&g->num_top, k, (int32_t)t_between(-1, g->max_top + 1));
}

/* As a case happens to ask. */
static void draw_told(grove *g) {
    const int tops[] = {1, 2, 5, SPECV_MAX_TOP};
    g->asked = (int)t_below(32), g->raw = t_chance(50);
    if (g->asked & (TELL_IDS | TELL_THEIRS)) g->max_top = (int)T_PICK(tops);
}

static specv_emitted told_describe(const grove *g, int side) {
    specv_emitted e = SPECV_ZERO;
    e.logprob = g->told.bytes ? (float *)t_at(&g->told, side) : NULL;
    e.rank = g->rank.bytes ? (int32_t *)t_at(&g->rank, side) : NULL;
    e.top_id = g->top_id.bytes ? (int32_t *)t_at(&g->top_id, side) : NULL;
    e.top_logprob = g->top_logprob.bytes ? (float *)t_at(&g->top_logprob, side) : NULL;
    e.num_top = g->num_top.bytes ? (const int32_t *)t_at(&g->num_top, side) : NULL;
    e.max_top = g->max_top, e.raw = g->raw;
    return e;
}

static int has_draft(const grove *g) { return specv_i_tree_needs_draft(g->rule) && !g->proposed; }

static void grove_make(grove *g) {
    forest *f = &g->f;
    const int needs_draft = has_draft(g), batch = f->batch;
    const int slots = g->num_slots ? g->num_slots : batch;
    forest_make(f);
    for (int side = 0; side < 1 + needs_draft; ++side) {
        const int64_t bytes = (int64_t)score_bytes(g->dtypes[side]);
        g->pos_stride[side] = f->vocab + (g->aligned || t_chance(50) ? 0 : t_below(9));
        g->scores[side] = t_in(bytes * batch * f->max_nodes * g->pos_stride[side],
                               g->aligned || t_chance(50) ? 0 : bytes * t_below(16 / bytes));
        for (int64_t row = 0; row < (int64_t)batch * f->max_nodes; ++row) {
            char *at = g->scores[side].host + bytes * row * g->pos_stride[side];
            if (side && g->strange & ODD_SAME && g->dtypes[0] == g->dtypes[1] && t_chance(50))
                memcpy(at, g->scores[0].host + bytes * row * g->pos_stride[0],
                       (size_t)(bytes * f->vocab));
            else
                draw_row(at, g->dtypes[side], f->vocab, g->strange);
        }
    }
    for (int b = 0; b < batch; ++b) /* drafts over all of the vocabulary */
        for (int i = 1; i < f->max_nodes && f->vocab > 8; ++i)
            if (token_at(&f->token, f->dtype, b * f->token_stride + i) >= 0 && t_chance(80))
                put_token(&f->token, f->dtype, b * f->token_stride + i, t_below(f->vocab));
    for (int b = 0; b < batch && specv_i_tree_is_distinct(g->rule); ++b) /* most trees are valid */
        for (int i = 1; i < f->max_nodes && b % 4; ++i)
            for (int k = 1, tries = 0; k < i && tries < 30; ++k) {
                const int64_t mine = b * f->token_stride + i, its = b * f->token_stride + k;
                if (word_at(&f->parent, b * f->parent_stride + i) !=
                        word_at(&f->parent, b * f->parent_stride + k) ||
                    token_at(&f->token, f->dtype, mine) != token_at(&f->token, f->dtype, its))
                    continue;
                put_token(&f->token, f->dtype, mine, ++tries < 30 ? t_below(f->vocab) : -1);
                k = 0;
            }
    for (int i = 0; i < 2; ++i) {
        const float odd[] = {0.f, -1.f, NAN, 1e-5f, 9000.f};
        g->temperature[i] = t_in(4 * (int64_t)slots, 0);
        for (int k = 0; k < slots; ++k)
            put_float(&g->temperature[i], k,
                      g->strange & ODD_TEMPERATURE && t_chance(20) ? T_PICK(odd)
                                                                   : 0.5f + (float)t_uniform());
    }
    g->seed = t_in(8 * (int64_t)slots, 0), g->position = t_in(4 * (int64_t)slots, 0);
    for (int k = 0; k < slots; ++k) {
        const uint64_t seed = t_random();
        memcpy(g->seed.host + 8 * k, &seed, 8);
        put_word(&g->position, k, (int32_t)t_below(100000));
    }
    g->slot = t_in(g->num_slots ? 4 * (int64_t)batch : 0, 0);
    for (int b = 0; b < batch && g->num_slots; ++b)
        put_word(&g->slot, b,
                 t_chance(10) ? (t_chance(50) ? -1 : g->num_slots)
                              : (int32_t)t_below(g->num_slots));
    g->logprob = t_out(4 * (int64_t)batch, 0);
    for (int side = 0; side < 2; ++side) limits_make(g, side);
    g->scratch_bytes = specv_verify_tree_scratch_bytes(batch, f->max_nodes, f->vocab);
    told_make(g);
    if ((g->filters[0] | g->filters[1]) & (HAS_TOP_K | HAS_TOP_P | HAS_MIN_P) || g->asked & 15)
        g->scratch_bytes += specv_verify_sample_scratch_bytes(batch, f->max_nodes, f->vocab);
    g->scratch = t_out(g->scratch_bytes, 0);
    for (int i = 0; i < t_num_buffers; ++i)
        if (t_buffers[i].host == g->scratch.host) t_buffers[i].is_private = 1;
}

static specv_verify_tree_desc grove_describe(const grove *g, int side) {
    specv_verify_tree_desc d = forest_describe(&g->f, side);
    d.rule = g->rule, d.target_tokens = NULL, d.target_stride_elems = 0;
    d.target.data = t_at(&g->scores[0], side), d.target.dtype = g->dtypes[0];
    d.target.pos_stride_elems = g->pos_stride[0];
    if (has_draft(g)) {
        d.draft.data = t_at(&g->scores[1], side), d.draft.dtype = g->dtypes[1];
        d.draft.pos_stride_elems = g->pos_stride[1];
    }
    d.temperature = (const float *)t_at(&g->temperature[0], side);
    if (g->own_temperature) d.draft_temperature = (const float *)t_at(&g->temperature[1], side);
    d.seed = (const uint64_t *)t_at(&g->seed, side);
    d.position = (const int32_t *)t_at(&g->position, side);
    if (g->num_slots) d.trees.slot = t_at(&g->slot, side), d.trees.num_slots = g->num_slots;
    d.logprob = (float *)t_at(&g->logprob, side);
    d.scratch = t_at(&g->scratch, side), d.scratch_bytes = g->scratch_bytes;
    d.step_row = g->step_row, d.stream = g->stream, d.num_sms = g->num_sms;
    d.filters = limits_describe(g, 0, side), d.draft_filters = limits_describe(g, 1, side);
    d.emitted = told_describe(g, side);
    return d;
}

static grove plain_grove(int rule, int batch, int max_nodes, int vocab, int turn) {
    grove g;
    memset(&g, 0, sizeof g);
    g.f = plain_forest(batch, max_nodes, turn);
    g.f.vocab = vocab, g.rule = rule;
    g.dtypes[0] = turn % 4, g.dtypes[1] = turn / 4 % 4;
    return g;
}

/* What holds of any path, whatever the rule: it is one of the tree, its tokens are emitted. */
static void check_path(const grove *g, int b) {
    const forest *f = &g->f;
    const int depth = word_at(&f->accepted, b);
    const int64_t columns = (f->max_depth ? f->max_depth : f->max_nodes - 1) + 1;
    for (int i = 0; i < columns && word_at(&f->path, b * columns) == 0; ++i) {
        const int node = word_at(&f->path, b * columns + i);
        CHECK_EQ(node >= 0, i <= depth, b);
        if (i == 0 || node < 0) continue;
        CHECK_EQ(word_at(&f->parent, b * f->parent_stride + node),
                 word_at(&f->path, b * columns + i - 1), b);
        CHECK_EQ(token_at(&f->out, f->dtype, b * f->out_stride + i - 1),
                 token_at(&f->token, f->dtype, b * f->token_stride + node), b);
    }
}

/* Every rule, type, accident: the device has to leave what the reference leaves. */
static void compare_scored(grove *g, int turn) {
    g->f.odd = turn % 2 ? (int)t_below(TREE_ALL + 1) : 0;
    g->strange = turn % 3 ? (int)t_below(ODD_ALL + 1) : ODD_SAME;
    g->f.num_eos = g->f.odd & TREE_EOS && g->f.vocab > 3 ? 2 : 0;
    g->f.max_depth = g->f.max_nodes > 1 && t_chance(20) ? 1 : 0;
    g->f.keep = t_chance(30), g->num_slots = t_chance(50) ? 11 : 0;
    g->step_row = (int)t_below(3), g->stream = (int)t_below(2);
    g->own_temperature = t_chance(50), g->num_sms = turn % 3 == 1;
    if (t_chance(40)) draw_told(g);
    if (t_chance(40)) g->proposed = 1, g->filters[1] = 0;
    grove_make(g);
    t_upload();
    for (int side = 0; side <= T_DEVICE; ++side) {
        specv_verify_tree_desc d = grove_describe(g, side);
        run_tree(&d, side);
    }
    for (int b = 0; b < g->f.batch; ++b) check_path(g, b);
    t_check_device();
}

static void test_scored(void) {
    static const int vocabs[] = {3, 8, 1025, 3, 40, 8, 3000, 1, 3, 1024, 8, 5003, 4, 1000};
    static const int nodes[] = {9, 1, 5, 33, 2, 64};
    for (int rule = 0; rule <= SPECV_TREE_TRAVERSAL_DISTINCT; ++rule)
        for (int turn = 0; turn < (t.quick ? 28 : 168); ++turn) {
            const int vocab = vocabs[turn % T_COUNT(vocabs)];
            grove g = plain_grove(rule, vocab <= 8 ? 24 : 4, nodes[(turn / 3) % T_COUNT(nodes)],
                                  vocab, turn);
            t_case("rule %d, vocabulary %d, %d nodes, types %d and %d", rule, vocab, g.f.max_nodes,
                   g.dtypes[0], g.dtypes[1]);
            compare_scored(&g, turn);
        }
}

/* ONE_COIN from probabilities: trees that are just small enough to be judged at once, and larger
   ones; siblings of the same few tokens; more tiles than have their sums in shared memory. */
static void test_families(void) {
    static const int nodes[] = {256, 257, 2, 40, 255, 300, 64};
    for (int turn = 0; turn < (t.quick ? 14 : 84); ++turn) {
        const int max_nodes = nodes[turn % T_COUNT(nodes)], is_wide = max_nodes == 2;
        const int vocab = is_wide ? 264 * 1024 + 5 : (int)t_between(3, 12);
        grove g = plain_grove(SPECV_TREE_ONE_COIN, is_wide ? 2 : 8, max_nodes, vocab, turn);
        g.dtypes[0] = SPECV_PROBS_F32;
        t_case("families: vocabulary %d, %d nodes", vocab, max_nodes);
        compare_scored(&g, turn);
    }
}

/* Rows that are looked at ahead of the walk by several blocks each; depths that noise is of. */
static void test_ahead(void) {
    static const int vocabs[] = {8193, 20000, 33 * 1024, 8192, 40001};
    for (int rule = 0; rule <= SPECV_TREE_TRAVERSAL_DISTINCT; ++rule)
        for (int turn = 0; turn < (t.quick ? 6 : 24); ++turn) {
            const int vocab = vocabs[(turn + rule) % T_COUNT(vocabs)];
            grove g = plain_grove(rule, 1 + turn % 2, 2 + (turn + rule) % 7, vocab, turn + rule);
            t_case("ahead: rule %d, vocabulary %d, %d nodes, type %d", rule, vocab, g.f.max_nodes,
                   g.dtypes[0]);
            g.f.only = turn % 2 ? 1 + DEEP : 0;
            compare_scored(&g, turn / 2 * 3 + turn % 2 * 2); /* ahead */
        }
}

/* A NaN tells of a row that the walk comes to, wherever in the row it is: the root's, or the next
   one's; of an EOS's row nobody asks. Rows are looked at ahead, or, `cut`, limits have cut them. */
static void test_ahead_faults(void) {
    static const int places[] = {5, 1500, 7900, 12000, 19999};
    static const char *const of[] = {"the root", "an EOS", "the row behind the root"};
    enum { NODES = 4, VOCAB = 20000, EOS = 2 };
    for (int rule = 0; rule <= SPECV_TREE_ONE_COIN; ++rule)
        for (int turn = 0; turn < 2 * 3 * T_COUNT(places); ++turn) {
            const int row = turn % 3, eos = row < 2 ? 1 : 2, place = places[turn / 3 % 5];
            const int cut = turn / 3 >= T_COUNT(places);
            grove g = plain_grove(rule, 1, NODES, VOCAB, 0);
            t_case("ahead: rule %d, NaN at %d of %s%s", rule, place, of[row], cut ? ", cut" : "");
            g.dtypes[0] = SPECV_LOGITS_F32, g.aligned = 1, g.f.num_eos = 2;
            g.filters[0] = cut ? HAS_TOP_K : 0;
            grove_make(&g);
            put_word(&g.f.num_nodes, 0, NODES);
            if (cut) put_word(&g.limits[0].top_k, 0, 5);
            for (int i = 0; i < NODES; ++i) {
                put_word(&g.f.parent, i, i - 1);
                put_token(&g.f.token, g.f.dtype, i, i == eos ? EOS : 4 + i);
            }
            put_float(&g.temperature[0], 0, 1.f);
            if (eos == 2) put_float(&g.scores[0], 5, 999.f);
            put_float(&g.scores[0], (eos - 1) * VOCAB + EOS, 999.f);
            put_float(&g.scores[0], (row > 0) * VOCAB + place, NAN);
            t_upload();
            for (int side = 0; side <= T_DEVICE; ++side) {
                specv_verify_tree_desc d = grove_describe(&g, side);
                run_tree(&d, side);
            }
            CHECK_EQ(word_at(&g.f.accepted, 0), eos, 0);
            CHECK_EQ(word_at(&g.f.status, 0) & SPECV_ROW_NAN, row == 1 ? 0 : SPECV_ROW_NAN, 0);
            t_check_device();
        }
}

/* The same with what requests allow. */
static void test_filtered(void) {
    static const int vocabs[] = {3, 40, 1025, 8, 300, 5003, 40, 3000, 8, 1, 130};
    static const int nodes[] = {5, 9, 1, 33, 2};
    for (int rule = 0; rule <= SPECV_TREE_TRAVERSAL_DISTINCT; ++rule)
        for (int turn = 0; turn < (t.quick ? 22 : 132); ++turn) {
            const int vocab = vocabs[turn % T_COUNT(vocabs)];
            const int cuts = HAS_TOP_K | HAS_TOP_P | HAS_MIN_P;
            grove g = plain_grove(rule, vocab <= 8 ? 16 : 4, nodes[(turn / 3) % T_COUNT(nodes)],
                                  vocab, turn);
            g.filters[0] = turn < 5 ? 1 << turn : (int)t_below(HAS_ALL + 1);
            if (turn == 4) g.filters[0] |= HAS_MASK;
            if (specv_i_tree_needs_draft(rule) && t_chance(70))
                g.filters[1] = (int)t_below(HAS_ALL + 1);
            g.order = turn % 3;
            t_case("filters: rule %d, vocabulary %d, %d nodes, types %d and %d, filters %d and %d, "
                   "order %d%s",
                   rule, vocab, g.f.max_nodes, g.dtypes[0], g.dtypes[1], g.filters[0], g.filters[1],
                   g.order, (g.filters[0] | g.filters[1]) & cuts ? ", cut" : "");
            g.f.odd = turn % 2 ? (int)t_below(TREE_ALL + 1) : 0;
            g.strange = turn % 3 ? (int)t_below(ODD_ALL + 1) : ODD_SAME;
            g.f.num_eos = g.f.odd & TREE_EOS && vocab > 3 ? 2 : 0;
            g.f.max_depth = g.f.max_nodes > 1 && t_chance(20) ? 1 : 0;
            g.f.keep = t_chance(30), g.num_slots = t_chance(50) ? 11 : 0;
            g.step_row = (int)t_below(3), g.stream = (int)t_below(2);
            g.own_temperature = t_chance(50);
            g.num_sms = turn % 2; /* a warp has a tile of the rows that are cut */
            if (t_chance(40)) draw_told(&g);
            if (t_chance(40)) g.proposed = 1, g.filters[1] = 0;
            grove_make(&g);
            t_upload();
            for (int side = 0; side <= T_DEVICE; ++side) {
                specv_verify_tree_desc d = grove_describe(&g, side);
                run_tree(&d, side);
            }
            for (int b = 0; b < g.f.batch; ++b) check_path(&g, b);
            t_check_device();
        }
}

/* Many siblings that are rejected one after the other: what a law was made of is felt. */
static void test_siblings(void) {
    for (int rule = SPECV_TREE_COUPLED; rule <= SPECV_TREE_TRAVERSAL_DISTINCT; ++rule)
        for (int turn = 0; turn < (t.quick ? 6 : 60); ++turn) {
            const int vocab = (int)t_between(4, 8);
            grove g = plain_grove(rule, t.quick ? 60 : 200, (int)t_between(4, vocab), vocab, turn);
            t_case("siblings: rule %d, vocabulary %d, %d nodes", rule, vocab, g.f.max_nodes);
            g.f.only = 1 + (turn % 3 == 0 ? BINARY : turn % 3 == 1 ? STAR : DEEP);
            g.strange = turn % 2 ? ODD_MASK : 0;
            g.proposed = turn % 4 / 2;
            grove_make(&g);
            for (int b = 0; b < g.f.batch; ++b) {
                put_word(&g.f.num_nodes, b, g.f.max_nodes);
                for (int i = 0; i < g.f.max_nodes; ++i) {
                    const int32_t parent = i ? parent_of((tree_kind)(g.f.only - 1), i) : -1;
                    put_word(&g.f.parent, b * g.f.parent_stride + i, parent);
                    put_token(&g.f.token, g.f.dtype, b * g.f.token_stride + i,
                              specv_i_tree_is_distinct(rule) ? i : t_below(vocab));
                }
            }
            t_upload();
            for (int side = 0; side <= T_DEVICE; ++side) {
                specv_verify_tree_desc d = grove_describe(&g, side);
                run_tree(&d, side);
            }
            for (int b = 0; b < g.f.batch; ++b) check_path(&g, b);
            t_check_device();
        }
}

/* A chain is what A2 to A5 verify, with the same random numbers. */
static void test_chain_rules(void) {
    static const int rules[][2] = {{SPECV_TREE_GREEDY, SPECV_RULE_GREEDY},
                                   {SPECV_TREE_COUPLED, SPECV_RULE_COUPLED},
                                   {SPECV_TREE_RECURSIVE, SPECV_RULE_TOKEN},
                                   {SPECV_TREE_RECURSIVE_DISTINCT, SPECV_RULE_TOKEN},
                                   {SPECV_TREE_TRAVERSAL, SPECV_RULE_BLOCK},
                                   {SPECV_TREE_TRAVERSAL_DISTINCT, SPECV_RULE_BLOCK}};
    for (int turn = 0; turn < (t.quick ? 36 : 480); ++turn) {
        enum { BATCH = 6 };
        const int *rule = rules[turn % 6], nodes = (int)t_between(2, 9);
        grove g = plain_grove(rule[0], BATCH, nodes, turn % 5 ? 12 : 2100, turn / 6);
        t_case("chain of %d, rules %d and %d", nodes, rule[0], rule[1]);
        g.f.odd = (TREE_PLACEHOLDERS | TREE_BAD_TOKENS | TREE_EOS | TREE_INERT) & (int)t_random();
        g.f.num_eos = g.f.odd & TREE_EOS ? 2 : 0;
        g.strange = (ODD_MASK | ODD_SAME | ODD_TEMPERATURE | ODD_TOP) & (int)t_random();
        g.own_temperature = t_chance(50), g.step_row = (int)t_below(3), g.stream = turn / 6 % 2;
        if (turn / 6 % 3) g.filters[0] = (int)t_below(HAS_ALL + 1), g.order = turn % 3;
        g.proposed = t_chance(50);
        if (turn / 6 % 3 && has_draft(&g)) g.filters[1] = (int)t_below(HAS_ALL + 1);
        draw_told(&g), g.asked |= TELL_RANK; /* logprob alone comes with the chain's verification */
        grove_make(&g);
        t_buf len = t_in(4 * BATCH, 0);
        for (int b = 0; b < BATCH; ++b) {
            put_word(&len, b, word_at(&g.f.num_nodes, b) - 1);
            for (int i = 0; i < nodes; ++i) put_word(&g.f.parent, b * g.f.parent_stride + i, i - 1);
            /* a row of drafts has a mask less than the chain has nodes */
            if (g.limits[1].mask_row.bytes &&
                (int64_t)word_at(&g.limits[1].mask_row, b) + word_at(&g.f.num_nodes, b) ==
                    g.limits[1].rows + 1)
                put_word(&g.limits[1].mask_row, b, 0);
        }
        t_upload();
        for (int side = 0; side <= T_DEVICE; ++side) {
            specv_verify_tree_desc d = grove_describe(&g, side);
            run_tree(&d, side);
        }
        {
            specv_verify_tree_desc d = grove_describe(&g, T_HOST_SIDE);
            specv_verify_sample_desc v = SPECV_ZERO;
            int32_t accepted[BATCH];
            uint8_t mismatch[BATCH], finished[BATCH];
            uint32_t status[BATCH];
            float logprob[BATCH];
            char next[BATCH * 8];
            int32_t first_rows[BATCH]; /* a row of masks has no draft in front of it */
            char out[BATCH * 9 * 8], *told[4];
            const t_buf *of_tree[] = {&g.told, &g.rank, &g.top_id, &g.top_logprob};
            void *scratch;
            v.verify.rows.batch = BATCH, v.verify.rows.max_draft = nodes - 1;
            v.verify.rows.num_active = d.trees.num_active, v.verify.token_dtype = g.f.dtype;
            v.verify.rows.draft_len = (int32_t *)t_at(&len, 0);
            v.verify.draft_tokens = (const char *)d.trees.token + (g.f.dtype == SPECV_I64 ? 8 : 4);
            v.verify.draft_stride_elems = g.f.token_stride, v.verify.vocab = g.f.vocab;
            v.verify.num_eos = g.f.num_eos, v.verify.eos_token[0] = 1, v.verify.eos_token[1] = 2;
            v.verify.accepted_len = accepted, v.verify.mismatch = mismatch;
            v.verify.finished = finished, v.verify.row_status = status, v.verify.next_token = next;
            v.target = d.target, v.draft = d.draft, v.logprob = logprob;
            v.draft.seq_stride_elems = nodes * g.pos_stride[1];
            if (!v.draft.data) v.draft.seq_stride_elems = 0;
            v.temperature = d.temperature, v.draft_temperature = d.draft_temperature;
            v.seed = d.seed, v.position = d.position, v.rule = rule[1];
            v.step_row = d.step_row, v.stream = d.stream;
            v.filters = d.filters, v.draft_filters = d.draft_filters;
            if (v.filters.mask && !v.filters.mask_row) v.filters.mask_row = first_rows;
            if (v.draft_filters.mask && !v.draft_filters.mask_row)
                v.draft_filters.mask_row = first_rows;
            for (int b = 0; b < BATCH; ++b) first_rows[b] = b * nodes;
            v.scratch_bytes = specv_verify_sample_scratch_bytes(BATCH, nodes - 1, v.verify.vocab);
            v.scratch = scratch = malloc(v.scratch_bytes > 0 ? (size_t)v.scratch_bytes : 1);
            for (int i = 0; i < 4; ++i) told[i] = (char *)malloc(of_tree[i]->bytes + 1);
            v.emitted = d.emitted, v.verify.out_tokens = out;
            if (d.emitted.logprob) v.emitted.logprob = (float *)(void *)told[0];
            if (d.emitted.rank) v.emitted.rank = (int32_t *)(void *)told[1];
            if (d.emitted.top_id) v.emitted.top_id = (int32_t *)(void *)told[2];
            if (d.emitted.top_logprob) v.emitted.top_logprob = (float *)(void *)told[3];
            CHECK_EQ(specv_ref_verify_sample(&v), SPECV_OK, -1);
            free(scratch);
            for (int i = 0; i < 4; ++i) {
                if (of_tree[i]->bytes) CHECK_BYTES(of_tree[i]->host, told[i], of_tree[i]->bytes);
                free(told[i]);
            }
            for (int b = 0; b < BATCH; ++b) {
                CHECK_EQ(word_at(&g.f.accepted, b), accepted[b], b);
                /* A4 also looks at rows behind a draft that p has nothing for, A3 not at all of q
                   where p is one token. */
                const uint32_t more = SPECV_ROW_NAN | (rule[1] == SPECV_RULE_BLOCK ? status[b] : 0);
                CHECK_EQ((uint32_t)word_at(&g.f.status, b) | more, status[b] | more, b);
            }
            CHECK_BYTES(g.f.mismatch.host, (char *)mismatch, sizeof mismatch);
            CHECK_BYTES(g.f.finished.host, (char *)finished, sizeof finished);
            CHECK_BYTES(g.f.next.host, next, g.f.next.bytes);
            CHECK_BYTES(g.logprob.host, (char *)logprob, sizeof logprob);
        }
        t_check_device();
    }
}

/* What is told of a column, found another way: by comparing all logits of the node behind which the
   token was emitted, and their sum in doubles. */
static void check_told(const grove *g, int b, int64_t columns) {
    const forest *f = &g->f;
    const int vocab = f->vocab;
    for (int64_t j = 0; j < columns; ++j) {
        const int node = word_at(&f->path, b * columns + j);
        const int64_t token = token_at(&f->out, f->dtype, b * f->out_stride + j);
        const int64_t at = b * columns + j, top = at * g->max_top;
        float row[64], got;
        double sum = 0, scale = 1, largest = -INFINITY;
        int rank[64] = {0};
        if (token < 0) {
            CHECK_EQ(word_at(&g->rank, at), 0, b);
            CHECK_EQ(word_at(&g->top_id, top), -1, b);
            continue;
        }
        memcpy(row, g->scores[0].host + 4 * ((int64_t)b * f->max_nodes + node) * g->pos_stride[0],
               4 * (size_t)vocab);
        if (!g->raw && g->rule != SPECV_TREE_GREEDY) {
            float temperature;
            memcpy(&temperature, g->temperature[0].host + 4 * b, 4);
            scale = 1 / (double)temperature;
        }
        for (int i = 0; i < vocab; ++i) largest = row[i] > largest ? row[i] : largest;
        for (int i = 0; i < vocab; ++i) {
            sum += exp((row[i] - largest) * scale), rank[i] = 1;
            for (int k = 0; k < vocab; ++k)
                rank[i] += row[k] > row[i] || (row[k] == row[i] && k < i);
        }
        CHECK_EQ(word_at(&g->rank, at), rank[token], b);
        for (int i = 0; i < vocab; ++i) {
            const int is_greedy = !g->raw && g->rule == SPECV_TREE_GREEDY;
            double want = (row[i] - largest) * scale - log(sum);
            if (is_greedy && rank[i] > 1) continue;
            if (is_greedy) want = 0;
            memcpy(&got, g->told.host + 4 * at, 4);
            if (i == token) CHECK(fabs(got - want) < 1e-5);
            if (rank[i] > g->max_top) continue;
            CHECK_EQ(word_at(&g->top_id, top + rank[i] - 1), i, b);
            memcpy(&got, g->top_logprob.host + 4 * (top + rank[i] - 1), 4);
            CHECK(fabs(got - want) < 1e-5);
        }
    }
}

/* What is told of emitted tokens is of the nodes of the path, which are not the first ones. */
static void test_told(void) {
    int64_t scattered = 0;
    for (int rule = 0; rule <= SPECV_TREE_TRAVERSAL_DISTINCT; ++rule)
        for (int turn = 0; turn < (t.quick ? 4 : 40); ++turn) {
            const int nodes = (int)t_between(6, 40);
            grove g = plain_grove(rule, 8, nodes, turn % 2 ? 3 : 40, turn);
            int64_t columns;
            t_case("told: rule %d, %d nodes", rule, nodes);
            g.dtypes[0] = SPECV_LOGITS_F32, g.f.max_depth = t_chance(30) ? 3 : 0;
            g.asked = 15, g.max_top = (int)t_between(1, g.f.vocab), g.raw = turn / 2 % 2;
            if (g.max_top > SPECV_MAX_TOP) g.max_top = SPECV_MAX_TOP;
            g.f.only = 1 + BINARY;
            columns = (g.f.max_depth ? g.f.max_depth : nodes - 1) + 1;
            grove_make(&g);
            t_upload();
            for (int side = 0; side <= T_DEVICE; ++side) {
                specv_verify_tree_desc d = grove_describe(&g, side);
                run_tree(&d, side);
            }
            for (int b = 0; b < g.f.batch; ++b) {
                check_told(&g, b, columns);
                for (int j = 0; j <= word_at(&g.f.accepted, b); ++j)
                    scattered += word_at(&g.f.path, b * columns + j) != j;
            }
            t_check_device();
        }
    t_case("told: some of them are others than in a chain");
    CHECK(scattered > 100);
}

/* Sums of a few units: what is drawn from them depends on bits of the random number that are below
   the tiles' units. A leaf's p, p without children, and what a child leaves of p. */
static void test_few_units(void) {
    for (int turn = 0; turn < (t.quick ? 10 : 40); ++turn) {
        const int rule = SPECV_TREE_ONE_COIN + turn % 5, nodes = 1 + turn / 5 % 2;
        const int vocab = turn % 3 ? 61 : 1060;
        char seen[1060] = {0};
        int kinds = 0;
        grove g = plain_grove(rule, 30, nodes, vocab, turn);
        t_case("a few units, rule %d, %d nodes, vocabulary %d", rule, nodes, vocab);
        g.dtypes[0] = g.dtypes[1] = SPECV_PROBS_F32;
        grove_make(&g);
        for (int b = 0; b < g.f.batch; ++b) {
            put_word(&g.f.num_nodes, b, nodes);
            for (int i = 0; i < nodes; ++i) {
                put_word(&g.f.parent, b * g.f.parent_stride + i, i - 1);
                put_token(&g.f.token, g.f.dtype, b * g.f.token_stride + i, 7);
                for (int x = 0; x < vocab; ++x) { /* of 61 about 3600 units, 3 of a tile's */
                    const int64_t row = (int64_t)b * nodes + i;
                    const float unit = 8.8817841970012523e-16f; /* 2^-50 */
                    put_float(&g.scores[0], row * g.pos_stride[0] + x,
                              unit * (float)(vocab > 61 ? t_between(1, 9) : t_between(30, 90)));
                    if (specv_i_tree_needs_draft(rule)) /* all that the child is of: rejected */
                        put_float(&g.scores[1], row * g.pos_stride[1] + x, x == 7);
                }
            }
        }
        t_upload();
        for (int side = 0; side <= T_DEVICE; ++side) {
            specv_verify_tree_desc d = grove_describe(&g, side);
            run_tree(&d, side);
        }
        for (int b = 0; b < g.f.batch; ++b) {
            const int64_t token = token_at(&g.f.next, g.f.dtype, b);
            CHECK_EQ(word_at(&g.f.accepted, b), 0, b);
            CHECK(token >= 0 && token < vocab && (nodes == 1 || token != 7));
            if (token >= 0 && token < vocab) kinds += !seen[token], seen[token] = 1;
        }
        CHECK(kinds > 10); /* whole units of tiles would lead to 6 tokens at most */
        t_check_device();
    }
}

/* Children drawn without replacement of a q that is one id: behind that id q is even over all
   others of the vocabulary, whose end is in the middle of four ids that are looked at together. */
static void test_even_laws(void) {
    for (int turn = 0; turn < (t.quick ? 12 : 48); ++turn) {
        static const int vocabs[] = {5, 6, 7, 9, 1025, 1023};
        const int vocab = vocabs[turn / 2 % 6], nodes = 3 + turn / 12 % 2;
        const int rule = turn % 2 ? SPECV_TREE_RECURSIVE_DISTINCT : SPECV_TREE_TRAVERSAL_DISTINCT;
        grove g = plain_grove(rule, 8, nodes, vocab, turn);
        t_case("q is even behind its only id, rule %d, %d nodes, vocabulary %d", rule, nodes,
               vocab);
        g.dtypes[0] = g.dtypes[1] = SPECV_PROBS_F32;
        grove_make(&g);
        for (int b = 0; b < g.f.batch; ++b) {
            put_word(&g.f.num_nodes, b, nodes);
            for (int i = 0; i < nodes; ++i) {
                put_word(&g.f.parent, b * g.f.parent_stride + i, i ? 0 : -1);
                put_token(&g.f.token, g.f.dtype, b * g.f.token_stride + i, i - 1);
                for (int x = 0; x < vocab; ++x) { /* p has nothing for the first two children */
                    const int64_t row = (int64_t)b * nodes + i;
                    put_float(&g.scores[0], row * g.pos_stride[0] + x,
                              x < 2 ? 0 : 1 / (float)(vocab - 2));
                    put_float(&g.scores[1], row * g.pos_stride[1] + x, x == 0);
                }
            }
        }
        t_upload();
        for (int side = 0; side <= T_DEVICE; ++side) {
            specv_verify_tree_desc d = grove_describe(&g, side);
            run_tree(&d, side);
        }
        for (int b = 0; b < g.f.batch; ++b) {
            const int accepted = word_at(&g.f.accepted, b);
            CHECK(accepted <= nodes - 3);
            CHECK(token_at(&g.f.next, g.f.dtype, b) >= (accepted ? 0 : 2));
            CHECK_EQ((uint32_t)word_at(&g.f.status, b) & SPECV_ROW_BAD_SUM, 0, b);
        }
        t_check_device();
    }
}

/* ------------------------------------------------------------------------------------- streams */

/* Captured, replayed; and as a programmatic dependent of what writes its parents. */
static void test_streams(void) {
#if T_DEVICE
    for (int rule = -1; rule <= SPECV_TREE_TRAVERSAL; rule += 1) {
        grove g = plain_grove(rule < 0 ? 0 : rule, 3, 6, 5, 3);
        if (rule >= 0) g.asked = 15, g.max_top = 2;
        t_case("captured and dependent, %s, rule %d", rule < 0 ? "ids" : "scores", g.rule);
        grove_make(&g);
        t_buf made = t_out((int64_t)g.f.parent.bytes, 0);
        memcpy(made.host, g.f.parent.host, g.f.parent.bytes);
        t_upload();
        T_CUDA(cudaMemset(made.device, 0xff, g.f.parent.bytes));
        for (int side = 0; side <= 1; ++side) {
            specv_verify_tree_desc d =
                rule < 0 ? forest_describe(&g.f, side) : grove_describe(&g, side);
            cudaStream_t stream;
            d.trees.parent = (const int32_t *)t_at(&made, side);
            if (side == T_HOST_SIDE) {
                run_tree(&d, side);
                if (rule < 0) memset(g.logprob.host, T_POISON, g.logprob.bytes);
                continue;
            }
            d.chained = SPECV_CHAINED_AFTER;
            t_produce(made.device, g.f.parent.device, (int64_t)g.f.parent.bytes);
            CHECK_EQ(specv_verify_tree(&d, 0), SPECV_OK, -1);
            t_check_dependents();
            T_CUDA(cudaMemset(d.accepted_len, 0x55, 4 * (size_t)g.f.batch));
            d.chained = 0;
            stream = t_begin_graph();
            CHECK_EQ(specv_verify_tree(&d, stream), SPECV_OK, -1);
            t_run_graph(stream, 3);
        }
        t_check_device();
    }
#else
    t_skip("graphs and dependent launches need a device");
#endif
}

#if T_DEVICE
static int can_count(void) {
    T_CUDA(cudaProfilerStart());
    T_CUDA(cudaProfilerStop());
    if (ptxrun_count(NULL, "launches") >= 0) return 1;
    t_skip("only ptxrun counts");
    return 0;
}

/* Not where a schedule splits them: then sectors mean nothing. */
static int warps_are_whole(void) {
    const char *schedule = getenv("PTXRUN_OPTS");
    return !schedule || !strstr(schedule, "split");
}
#endif

/* What the comments of the kernels count. Target ids: all of a tree once, no barrier, a ballot for
   each 32 nodes and each step. Scores: the rows on the path once, no other; also where proposals
   were rejected one after the other; of few trees the rows of all nodes once. */
static void test_counts(void) {
#if T_DEVICE
    if (!can_count()) return;
    const int whole = warps_are_whole();
    for (int scores = 0; scores < 5; ++scores) /* 2: of proposals, all siblings; 3, 4: ahead */
        for (int turn = 0; turn < 6; ++turn) {
            const int ahead = scores > 2, proposed = scores == 2 || scores == 4;
            const int nodes = scores ? 9 : 20 + 40 * turn, vocab = scores ? 3 * 1024 : 8;
            grove g = plain_grove(proposed ? SPECV_TREE_RECURSIVE : SPECV_TREE_GREEDY,
                                  scores ? 2 : 5, nodes, vocab, turn * 2);
            int64_t visited = 0, steps = 0, bytes;
            t_case("counts, %s%s, %d nodes",
                   proposed ? "proposals"
                   : scores ? "scores"
                            : "ids",
                   ahead ? " ahead" : "", nodes);
            g.proposed = proposed, g.num_sms = !ahead;
            g.dtypes[0] = SPECV_LOGITS_F32, g.aligned = 1;
            grove_make(&g);
            for (int b = 0; b < g.f.batch; ++b) put_word(&g.f.num_nodes, b, nodes);
            for (int b = 0; b < g.f.batch; ++b)
                for (int i = 0; i < nodes; ++i)
                    put_word(&g.f.parent, b * g.f.parent_stride + i, proposed && i ? 0 : i - 1);
            for (int b = 0; b < g.f.batch && scores && !proposed; ++b) /* first drafts are right */
                for (int i = 0; i < turn; ++i)
                    put_float(&g.scores[0],
                              ((int64_t)b * nodes + i) * vocab +
                                  token_at(&g.f.token, g.f.dtype, b * g.f.token_stride + i + 1),
                              99.f);
            t_upload();
            for (int side = 0; side <= T_DEVICE; ++side) {
                specv_verify_tree_desc d =
                    scores ? grove_describe(&g, side) : forest_describe(&g.f, side);
                if (side == T_DEVICE_SIDE) T_CUDA(cudaProfilerStart());
                d.out_tokens = d.predicts = NULL;
                run_tree(&d, side);
            }
            T_CUDA(cudaDeviceSynchronize());
            T_CUDA(cudaProfilerStop());
            for (int b = 0; b < g.f.batch; ++b) steps += word_at(&g.f.accepted, b);
            visited = steps + g.f.batch, bytes = ptxrun_count(NULL, "load_bytes");
            if (scores) bytes = 32 * ptxrun_count(NULL, "load_sectors");
            if (scores) {
                const int64_t rows = ahead ? g.f.batch * nodes : visited;
                CHECK((proposed || steps >= turn) && bytes >= 4 * rows * vocab);
                /* What all warps look at: of a proposal a score, when it is tried and rejected; and
                   the tile that a token is drawn from. */
                const int64_t more = 4096 + (proposed ? 2 * 12 * 32 * nodes + 6144 : 0);
                /* Ahead, a lane's two words of 16 bytes are in one sector, and count twice. */
                const int64_t each = ahead ? 8 * vocab + 1024 : 4 * vocab;
                if (whole) CHECK(bytes < rows * each + visited * more);
            } else {
                const int64_t tree = 4 * (3 * nodes - 1) + 32 * 8; /* two words for all lanes */
                CHECK_EQ(bytes, g.f.batch * tree, -1);
                CHECK_EQ(ptxrun_count(NULL, "barriers"), 0, -1);
                CHECK(ptxrun_count(NULL, "ballots") <= g.f.batch * ((nodes + 31) / 32 + 3) + steps);
            }
        }
#else
    t_skip("counts need a device");
#endif
}

/* Rows that limits have cut are not read again: not a row's sectors by all walks. */
static void test_cut_counts(void) {
#if T_DEVICE
    if (!can_count()) return;
    const int whole = warps_are_whole();
    for (int turn = 0; turn < 4; ++turn) {
        enum { NODES = 9, IDS = 8 * 1024 };
        grove g = plain_grove(SPECV_TREE_ONE_COIN, 2, NODES, IDS, turn * 2);
        t_case("counts of rows that are cut, turn %d", turn);
        g.filters[0] = turn < 2 ? HAS_TOP_K : HAS_TOP_K | HAS_TOP_P;
        g.dtypes[0] = SPECV_LOGITS_F32, g.aligned = 1;
        grove_make(&g);
        for (int b = 0; b < g.f.batch; ++b) {
            put_word(&g.f.num_nodes, b, NODES);
            put_word(&g.limits[0].top_k, b, 5); /* few enough for a list */
            put_float(&g.temperature[0], b, 1.f);
            for (int i = 0; i < NODES; ++i) put_word(&g.f.parent, b * g.f.parent_stride + i, i - 1);
        }
        t_upload();
        for (int side = 0; side <= T_DEVICE; ++side) {
            specv_verify_tree_desc d = grove_describe(&g, side);
            if (side == T_DEVICE_SIDE) T_CUDA(cudaProfilerStart());
            run_tree(&d, side);
        }
        T_CUDA(cudaDeviceSynchronize());
        T_CUDA(cudaProfilerStop());
        const int64_t sectors = ptxrun_count("specv_tree_filtered_kernel", "load_sectors");
        CHECK(sectors > 0 && (!whole || 32 * sectors < 4 * IDS));
        t_check_device();
    }
#else
    t_skip("counts need a device");
#endif
}

/* --------------------------------------------------------------------------------- validation */

static int64_t storage[64]; /* something to point to: nothing of it is read or written */

static void *misaligned(void) { return (char *)storage + 2; }

static specv_verify_tree_desc valid_desc(void) {
    specv_verify_tree_desc d = SPECV_ZERO;
    d.trees.batch = 2, d.trees.max_nodes = 8, d.vocab = 100;
    d.trees.parent = (int32_t *)storage, d.trees.token = d.target_tokens = storage;
    d.accepted_len = (int32_t *)storage;
    return d;
}

#if !T_DEVICE
#define specv_verify_tree(d, stream) specv_ref_verify_tree(d)
#endif

#define EXPECT(code, change)                                                                       \
    do {                                                                                           \
        specv_verify_tree_desc d = valid_desc();                                                   \
        change;                                                                                    \
        CHECK_EQ(specv_verify_tree_validate(&d), code, -1);                                        \
        if ((code) != SPECV_OK) CHECK_EQ(specv_ref_verify_tree(&d), code, -1);                     \
        if ((code) != SPECV_OK) CHECK_EQ(specv_verify_tree(&d, 0), code, -1);                      \
    } while (0)

/* The same of one that has scores, and room for what is told. */
#define EXPECT_SCORED(code, change)                                                                \
    EXPECT(code, (d.target_tokens = NULL, d.target.data = d.scratch = storage,                     \
                  d.out_tokens = storage, d.path = (int32_t *)storage,                             \
                  d.scratch_bytes = specv_verify_tree_scratch_bytes(2, 8, 100) +                   \
                                    specv_verify_sample_scratch_bytes(2, 8, 100),                  \
                  change))

static void test_validation(void) {
    t_case("every status code of A7");
    CHECK_EQ(specv_verify_tree_validate(NULL), SPECV_ERR_NULL_DESC, -1);
    EXPECT(SPECV_OK, (void)0);
    EXPECT(SPECV_ERR_CANARY, d.canary0 = 1);
    EXPECT(SPECV_ERR_CANARY, d.canary1 = 1);
    EXPECT(SPECV_ERR_NUM_SMS, d.num_sms = -1);
    EXPECT(SPECV_ERR_NUM_SMS, d.num_sms = 65536);
    EXPECT(SPECV_ERR_CANARY, d.trees.reserved = 1);
    EXPECT(SPECV_ERR_CHAINED, d.chained = 4);
    EXPECT(SPECV_ERR_RULE, d.rule = -1);
    EXPECT(SPECV_ERR_RULE, d.rule = 99);
    EXPECT(SPECV_ERR_BATCH, d.trees.batch = -1);
    EXPECT(SPECV_ERR_TREE, d.trees.max_nodes = 0);
    EXPECT(SPECV_ERR_TREE, d.trees.max_nodes = SPECV_MAX_NODES + 1);
    EXPECT(SPECV_OK, d.trees.max_nodes = SPECV_MAX_NODES);
    EXPECT(SPECV_ERR_TOO_LARGE, (d.trees.max_nodes = 1024, d.trees.batch = 1 << 21));
    EXPECT(SPECV_ERR_NUM_ACTIVE, d.trees.num_active = (int32_t *)misaligned());
    EXPECT(SPECV_ERR_TREE, d.trees.num_nodes = (int32_t *)misaligned());
    EXPECT(SPECV_ERR_TREE, d.trees.parent = (int32_t *)misaligned());
    EXPECT(SPECV_ERR_TREE, d.trees.parent = NULL);
    EXPECT(SPECV_ERR_TOKEN_DTYPE, d.trees.token_dtype = 2);
    EXPECT(SPECV_ERR_DRAFT_TOKENS, d.trees.token = NULL);
    EXPECT(SPECV_OK, (d.trees.token = NULL, d.trees.max_nodes = 1));
    EXPECT(SPECV_ERR_DRAFT_TOKENS, d.trees.token = misaligned());
    EXPECT(SPECV_ERR_TREE, d.trees.parent_stride_elems = 7);
    EXPECT(SPECV_ERR_TREE, d.trees.token_stride_elems = 7);
    EXPECT(SPECV_ERR_SIZE, d.trees.token_stride_elems = INT64_MAX / 8);
    EXPECT(SPECV_ERR_SIZE, d.trees.parent_stride_elems = INT64_MAX / 8);
    EXPECT(SPECV_ERR_SLOT, d.trees.slot_dtype = 2);
    EXPECT(SPECV_ERR_PATH, d.max_depth = 8);
    EXPECT(SPECV_ERR_PATH, d.max_depth = -1);
    EXPECT(SPECV_ERR_TARGET_TOKENS, d.target_tokens = misaligned());
    EXPECT(SPECV_ERR_ACCEPTED_LEN, d.accepted_len = NULL);
    EXPECT(SPECV_ERR_NEXT_TOKEN, d.next_token = misaligned());
    EXPECT(SPECV_ERR_OUT_TOKENS, d.out_tokens = misaligned());
    EXPECT(SPECV_ERR_NUM_EMITTED, d.num_emitted = (int32_t *)misaligned());
    EXPECT(SPECV_ERR_ROW_STATUS, d.row_status = (uint32_t *)misaligned());
    EXPECT(SPECV_ERR_KEEP_STATUS, d.keep_status = 2);
    EXPECT(SPECV_ERR_PATH, d.path = (int32_t *)misaligned());
    EXPECT(SPECV_ERR_PATH, d.accept_index = (int32_t *)misaligned());
    EXPECT(SPECV_ERR_PATH, d.predicts = misaligned());
    EXPECT(SPECV_ERR_OUT_STRIDE, d.out_stride_elems = 7);
    EXPECT(SPECV_ERR_TARGET_STRIDE, d.target_stride_elems = 7);
    EXPECT(SPECV_ERR_VOCAB, d.vocab = -1);
    EXPECT(SPECV_ERR_NUM_EOS, d.num_eos = 5);
    EXPECT(SPECV_ERR_EOS_TOKEN, (d.num_eos = 1, d.eos_token[0] = 100));
    t_case("what is told of emitted tokens");
    EXPECT_SCORED(SPECV_OK, (void)0);
    for (int rule = 0; rule <= SPECV_TREE_TRAVERSAL_DISTINCT; ++rule) {
        const int code = specv_i_tree_needs_draft(rule) ? SPECV_OK : SPECV_ERR_DRAFT;
#define SCORED_RULE d.rule = rule, d.seed = (uint64_t *)storage, d.position = (int32_t *)storage
        EXPECT_SCORED(SPECV_OK, (SCORED_RULE));
        EXPECT_SCORED(code, (SCORED_RULE, d.draft.data = storage));
        EXPECT_SCORED(SPECV_ERR_FILTERS, (SCORED_RULE, d.draft_filters.top_k = (int32_t *)storage));
    }
    EXPECT_SCORED(SPECV_OK, d.emitted.rank = (int32_t *)storage);
    EXPECT_SCORED(SPECV_ERR_LOGPROB, (d.emitted.logprob = (float *)storage, d.path = NULL));
    EXPECT_SCORED(SPECV_ERR_LOGPROB, (d.emitted.rank = (int32_t *)storage, d.out_tokens = NULL));
    EXPECT_SCORED(SPECV_ERR_LOGPROB, d.emitted.logprob = (float *)misaligned());
    EXPECT_SCORED(SPECV_ERR_LOGPROB, d.emitted.rank = (int32_t *)misaligned());
    EXPECT_SCORED(SPECV_ERR_LOGPROB, d.emitted.top_id = (int32_t *)storage);
    EXPECT_SCORED(SPECV_ERR_LOGPROB, d.emitted.top_logprob = (float *)misaligned());
    EXPECT_SCORED(SPECV_ERR_LOGPROB, d.emitted.num_top = (int32_t *)misaligned());
    EXPECT_SCORED(SPECV_ERR_LOGPROB, d.emitted.max_top = SPECV_MAX_TOP + 1);
    EXPECT_SCORED(SPECV_ERR_LOGPROB, d.emitted.raw = 2);
    EXPECT_SCORED(SPECV_ERR_SCRATCH, (d.emitted.rank = (int32_t *)storage, d.scratch_bytes -= 1));
    EXPECT_SCORED(SPECV_ERR_LOGPROB, (d.emitted.logprob = (float *)storage,
                                      d.target_tokens = storage, d.target.data = NULL));
}

int main(int argc, char **argv) {
    static const t_group groups[] = {
        {"validation", test_validation},
        {"ids", test_ids},
        {"batches", test_batches},
        {"malformed", test_malformed},
        {"chain-ids", test_chain_ids},
        {"scored", test_scored},
        {"families", test_families},
        {"ahead", test_ahead},
        {"ahead-faults", test_ahead_faults},
        {"filtered", test_filtered},
        {"chain-rules", test_chain_rules},
        {"siblings", test_siblings},
        {"told", test_told},
        {"few-units", test_few_units},
        {"even-laws", test_even_laws},
        {"streams", test_streams},
        {"counts", test_counts},
        {"cut-counts", test_cut_counts},
    };
    return t_main(argc, argv, groups, T_COUNT(groups));
}
