/* trees.cu - A7, verification of draft trees: what a path is by another way of finding it, chains
   against the rules for chains, malformed trees, laws of texts. */

#include "t.h"

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
        const tree_kind kind = (tree_kind)t_below(NUM_KINDS);
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
            f.max_depth = t_chance(30) && nodes[i] > 1 ? (int)t_between(1, nodes[i] - 1) : 0;
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

static void test_validation(void) {
    t_case("every status code of A7");
    CHECK_EQ(specv_verify_tree_validate(NULL), SPECV_ERR_NULL_DESC, -1);
    EXPECT(SPECV_OK, (void)0);
    EXPECT(SPECV_ERR_CANARY, d.canary0 = 1);
    EXPECT(SPECV_ERR_CANARY, d.canary1 = 1);
    EXPECT(SPECV_ERR_CANARY, d.reserved = 1);
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
}

int main(int argc, char **argv) {
    static const t_group groups[] = {
        {"validation", test_validation}, {"ids", test_ids},
        {"batches", test_batches},       {"malformed", test_malformed},
        {"chain-ids", test_chain_ids},
    };
    return t_main(argc, argv, groups, T_COUNT(groups));
}
