/* tree_layout.cu - layouts of trees: from links, paths, masks and parents to parents, depths,
   position ids and masks.

   A tree is drawn, and written down in one of the forms; what has to come out is written down from
   the tree as well, root first: a node's ancestors are its parent's and itself. What is no tree is
   known by construction, or because no tree of that size, of which there are few, is written down
   like that. */

#include "io.h"
#include "slots.h"

enum { PARENTS = SPECV_TREE_PARENTS, LINKS = SPECV_TREE_LINKS, PATHS = SPECV_TREE_PATHS };
enum { MASK = SPECV_TREE_MASK, NUM_FORMS = 4 };

typedef struct shape {
    int form, batch, live, max_nodes, path_len, num_paths, wide_links, wide_ids;
    int given_gap, mask_gap, one_tree, with_nodes, with_position, with_slots, keep_status;
    int outputs; /* 1 parent, 2 depth, 4 position ids, 8 mask, 16 status */
    int faults;  /* per cent of live rows */
} shape;

enum { ALL_OUTPUTS = 31 };

typedef struct layout {
    shape s;
    slots slots;
    int words;
    int64_t stride, mask_stride;
    t_buf active, nodes, position, given, siblings; /* given: whatever the form says */
    t_buf parent, depth, ids, mask, status;
} layout;

static const char *const form_names[] = {"parents", "links", "paths", "mask"};

/* ------------------------------------------------------------------------------- making trees */

enum { RANDOM, CHAIN, STAR, COMB, BUSHY, NUM_KINDS };

static void draw_tree(int32_t *parent, int n, int kind) {
    parent[0] = -1;
    for (int i = 1; i < n; ++i)
        parent[i] = kind == CHAIN   ? i - 1
                    : kind == STAR  ? 0
                    : kind == COMB  ? (i - 1) / 2 * 2
                    : kind == BUSHY ? (int32_t)t_between(i > 40 ? i - 40 : 0, i - 1)
                                    : (int32_t)t_below(i);
}

static int has_child(const int32_t *parent, int n, int node) {
    for (int i = node + 1; i < n; ++i)
        if (parent[i] == node) return 1;
    return 0;
}

static void put_given(const layout *l, int64_t at, int64_t value) {
    put_word(&l->given, at, (int32_t)value);
}

static void put_link(const layout *l, const t_buf *to, int64_t at, int64_t node) {
    if (l->s.wide_links)
        ((int64_t *)(void *)to->host)[at] = node;
    else
        put_word(to, at, (int32_t)node);
}

/* Writes a tree down, from element `first` on. Returns the paths that it has. */
static int write_tree(const layout *l, int64_t first, const int32_t *parent, int n) {
    const shape *s = &l->s;
    int paths = 0;
    if (s->form == PARENTS)
        for (int i = 0; i < n; ++i) put_given(l, first + i, parent[i]);
    if (s->form == LINKS) {
        int32_t last[SPECV_MAX_NODES]; /* child so far */
        for (int i = 0; i < n; ++i) {
            last[i] = -1;
            put_link(l, &l->given, first + i, -1), put_link(l, &l->siblings, first + i, -1);
        }
        for (int i = 1; i < n; ++i) {
            const int32_t p = parent[i];
            if (last[p] < 0)
                put_link(l, &l->given, first + p, i);
            else
                put_link(l, &l->siblings, first + last[p], i);
            last[p] = i;
        }
    }
    for (int i = 0; i < n && s->form == MASK; ++i) {
        const int64_t row = first + (int64_t)i * l->words;
        for (int w = 0; w < l->words; ++w) put_given(l, row + w, 0);
        for (int32_t at = t_chance(50) ? i : parent[i]; at >= 0; at = parent[at])
            put_given(l, row + at / 32, word_at(&l->given, row + at / 32) | (int)(1u << at % 32));
    }
    for (int leaf = 0; leaf < n && s->form == PATHS; ++leaf) {
        const int64_t path = first + (int64_t)paths * s->path_len;
        int depth = 0;
        if (has_child(parent, n, leaf)) continue;
        for (int32_t at = parent[leaf]; at >= 0; at = parent[at]) ++depth;
        for (int32_t at = leaf, e = depth; at >= 0; at = parent[at], --e)
            put_given(l, path + e, at);
        if (depth + 1 < s->path_len) put_given(l, path + depth + 1, -1);
        paths += 1;
    }
    return paths;
}

/* Paths and their length that any tree of n nodes can need, or one does. */
static void need_paths(shape *s, const int32_t *parent, int n) {
    int paths = 0, longest = 0;
    for (int leaf = 0; leaf < n; ++leaf) {
        int depth = 0;
        for (int32_t at = parent[leaf]; at >= 0; at = parent[at]) ++depth;
        paths += !has_child(parent, n, leaf);
        longest = depth > longest ? depth : longest;
    }
    if (paths > s->num_paths) s->num_paths = paths;
    if (longest + 1 > s->path_len) s->path_len = longest + 1;
}

/* ------------------------------------------------------------------------------------- layouts */

static int64_t given_elems(const layout *l) {
    const shape *s = &l->s;
    return s->form == PATHS  ? (int64_t)s->num_paths * s->path_len
           : s->form == MASK ? (int64_t)s->max_nodes * l->words
                             : s->max_nodes;
}

static void layout_make(layout *l, const shape *s) {
    const int64_t rows = s->batch, nodes = rows * s->max_nodes;
    int64_t elements, bytes;
    memset(l, 0, sizeof *l);
    l->s = *s;
    l->words = (s->max_nodes + 31) / 32;
    l->stride = given_elems(l) + s->given_gap, l->mask_stride = l->words + s->mask_gap;
    l->slots =
        slots_draw(s->batch, s->live, s->with_slots && s->with_position ? s->faults : NO_SLOTS, 0);
    elements = s->one_tree ? given_elems(l) : rows ? (rows - 1) * l->stride + given_elems(l) : 0;
    bytes = s->form == LINKS && s->wide_links ? 8 : 4;
    l->given = t_in(elements * bytes, 0);
    l->siblings = t_in(s->form == LINKS ? elements * bytes : 0, 0);
    for (size_t i = 0; i < l->given.bytes; ++i) l->given.host[i] = (char)t_random();
    for (size_t i = 0; i < l->siblings.bytes; ++i) l->siblings.host[i] = (char)t_random();
    if (s->live < s->batch) l->active = t_in(4, 0), put_word(&l->active, 0, s->live);
    l->nodes = t_in(s->with_nodes ? 4 * rows : 0, 0);
    l->position = t_in(s->with_position ? 4 * (int64_t)l->slots.count : 0, 0);
    for (int i = 0; i < l->slots.count && s->with_position; ++i)
        put_word(&l->position, i, (int32_t)t_below(INT32_MAX - SPECV_MAX_NODES));
    if (s->outputs & 1) l->parent = t_out(4 * nodes, 0);
    if (s->outputs & 2) l->depth = t_out(4 * nodes, 0);
    if (s->outputs & 4 && s->with_position) l->ids = t_out((s->wide_ids ? 8 : 4) * nodes, 0);
    if (s->outputs & 8) l->mask = t_out(4 * nodes * l->mask_stride, 0);
    if (s->outputs & 16) l->status = t_out(4 * rows, 0), t_fill_status(&l->status, s->keep_status);
}

static specv_tree_layout_desc describe(const layout *l, int side) {
    const shape *s = &l->s;
    const void *given = t_at(&l->given, side);
    specv_tree_layout_desc d = SPECV_ZERO;
    d.form = s->form;
    if (s->form == PARENTS) d.given_parent = (const int32_t *)given;
    if (s->form == LINKS) d.first_child = given, d.next_sibling = t_at(&l->siblings, side);
    if (s->form == PATHS) d.paths = (const int32_t *)given;
    if (s->form == MASK) d.given_mask = (const uint32_t *)given;
    d.num_active = (const int32_t *)t_at(&l->active, side);
    d.num_nodes = (const int32_t *)t_at(&l->nodes, side);
    d.slot = slots_at(&l->slots, side), d.slot_dtype = slots_dtype(&l->slots);
    d.num_slots = slots_count(&l->slots);
    d.position = (const int32_t *)t_at(&l->position, side);
    d.parent = (int32_t *)t_at(&l->parent, side);
    d.depth = (int32_t *)t_at(&l->depth, side);
    d.position_ids = t_at(&l->ids, side);
    d.mask = (uint32_t *)t_at(&l->mask, side);
    d.row_status = (uint32_t *)t_at(&l->status, side);
    if (s->given_gap || s->batch % 2) d.given_stride_elems = l->stride;
    if (s->mask_gap || s->batch % 2) d.mask_stride_words = l->mask_stride;
    d.one_tree = s->one_tree, d.batch = s->batch, d.max_nodes = s->max_nodes;
    d.num_paths = s->num_paths, d.path_len = s->path_len;
    d.link_dtype = s->wide_links ? SPECV_I64 : SPECV_I32;
    d.index_dtype = s->wide_ids ? SPECV_I64 : SPECV_I32;
    d.keep_status = s->keep_status;
    return d;
}

static void run_on(const specv_tree_layout_desc *d, int side) {
    if (side == T_HOST_SIDE) CHECK_EQ(specv_ref_tree_layout(d), SPECV_OK, -1);
#if T_DEVICE
    if (side == T_DEVICE_SIDE) CHECK_EQ(specv_tree_layout(d, 0), SPECV_OK, -1);
#endif
}

static void run_both(const layout *l) {
    t_upload();
    for (int side = 0; side <= T_DEVICE; ++side) {
        const specv_tree_layout_desc d = describe(l, side);
        run_on(&d, side);
    }
}

/* What row b must say: a tree of n nodes (0: none), and these bits. */
static void check_row(const layout *l, int b, const int32_t *parent, int n, uint32_t status) {
    const shape *s = &l->s;
    const int64_t slot = slot_of(&l->slots, b);
    static uint32_t above[SPECV_MAX_NODES][SPECV_MAX_NODES / 32];
    static int32_t depth[SPECV_MAX_NODES];
    for (int i = 0; i < s->max_nodes; ++i) {
        const int64_t at = (int64_t)b * s->max_nodes + i;
        memset(above[i], 0, sizeof above[i]);
        depth[i] = 0;
        if (i < n && i > 0) {
            memcpy(above[i], above[parent[i]], sizeof above[i]);
            depth[i] = depth[parent[i]] + 1;
        }
        if (i < n) above[i][i / 32] |= 1u << i % 32;
        if (l->parent.host) CHECK_EQ(word_at(&l->parent, at), i < n ? parent[i] : -1, b);
        if (l->depth.host) CHECK_EQ(word_at(&l->depth, at), depth[i], b);
        if (l->mask.host)
            CHECK_BYTES(l->mask.host + 4 * at * l->mask_stride, above[i], 4 * (size_t)l->words);
        for (int w = l->words; l->mask.host && w < l->mask_stride; ++w)
            CHECK_EQ((uint32_t)word_at(&l->mask, at * l->mask_stride + w), 0xcacacacau, b);
        if (l->ids.host)
            CHECK_EQ(get_number(l->ids.host, s->wide_ids ? SPECV_I64 : SPECV_I32, at),
                     i < n ? (int64_t)word_at(&l->position, slot) + depth[i] : 0, b);
    }
    if (l->status.host)
        CHECK_EQ((uint32_t)word_at(&l->status, b), status | t_old_status(s->keep_status, b), b);
}

static void check_all(void) {
    t_check_host();
    t_check_device();
}

/* Makes what is written down of a tree of n nodes none. Returns 0 if it is too small for that. */
static int spoil(const layout *l, int64_t first, const int32_t *parent, int n, int paths) {
    const int node = n > 1 ? (int)t_between(1, n - 1) : 0;
    const int64_t row = first + (int64_t)node * l->words;
    const int way = (int)t_below(5);
    if (l->s.form == PARENTS) {
        const int32_t none[] = {-1, node, n, INT32_MAX, INT32_MIN};
        if (node == 0 || t_chance(20))
            put_given(l, first, t_chance(50) ? 0 : -2);
        else
            put_given(l, first + node, none[way]);
        return 1;
    }
    if (l->s.form == LINKS) {
        const int64_t out[] = {n, -2, INT32_MAX, node,
                               l->s.wide_links ? ((int64_t)1 << 32) + node : INT32_MIN};
        if (way == 4) { /* nobody's child, or a cycle */
            if (node == 0) return 0;
            for (int i = 0; i < n; ++i) { /* who names it */
                const int dtype = l->s.wide_links ? SPECV_I64 : SPECV_I32;
                const int64_t to = t_chance(50) ? -1 : 0;
                if (get_number(l->given.host, dtype, first + i) == node)
                    put_link(l, &l->given, first + i, to);
                if (get_number(l->siblings.host, dtype, first + i) == node)
                    put_link(l, &l->siblings, first + i, to);
            }
            return 1;
        }
        /* one that is out of range or names itself; a second one that names a node */
        put_link(l, t_chance(50) ? &l->given : &l->siblings, first + node, T_PICK(out));
        return 1;
    }
    if (l->s.form == PATHS) {
        const int p = (int)t_below(paths);
        const int64_t path = first + (int64_t)p * l->s.path_len;
        int len = 0;
        while (len < l->s.path_len && word_at(&l->given, path + len) != -1) ++len;
        if (way == 0) put_given(l, path, n > 1 ? 1 : -2); /* does not begin with the root */
        if (way == 0) return 1;
        if (len < 2) return 0;
        if (way == 1) put_given(l, path + len - 1, -1); /* its leaf is in no path */
        if (way == 2) put_given(l, path + len - 1, t_chance(50) ? n : INT32_MAX);
        if (way == 3) put_given(l, path + len - 1, word_at(&l->given, path + len - 2));
        if (way == 4) put_given(l, path + t_below(len - 1) + 1, -3);
        return 1;
    }
    if (way == 0) { /* a node behind it */
        const int bit = (int)t_between(node + 1, 32 * l->words);
        if (bit == 32 * l->words) return 0;
        put_given(l, row + bit / 32, word_at(&l->given, row + bit / 32) | (int)(1u << bit % 32));
        return 1;
    }
    if (node == 0) return 0;
    if (way == 1) { /* no ancestors */
        for (int w = 0; w < l->words; ++w) put_given(l, row + w, 0);
        return 1;
    }
    /* One ancestor less, but not its parent, or one more, which is not all of somebody's. */
    for (int i = 0; i < node; ++i) {
        int is_above = 0, above_parent = 0;
        for (int32_t at = parent[node]; at >= 0; at = parent[at]) is_above |= at == i;
        above_parent = i < parent[node];
        if (above_parent && (is_above || t_chance(30))) {
            put_given(l, row + i / 32, word_at(&l->given, row + i / 32) ^ (int)(1u << i % 32));
            return 1;
        }
    }
    return 0;
}

static void run_shape(const shape *given) {
    shape s = *given;
    layout l;
    const int trees = s.one_tree ? 1 : s.batch;
    int32_t *parent, *n;
    uint32_t *status;
    parent = (int32_t *)calloc((size_t)(trees + 1) * SPECV_MAX_NODES, 4);
    n = (int32_t *)calloc((size_t)s.batch + 1, 4),
    status = (uint32_t *)calloc((size_t)s.batch + 1, 4);
    if (!parent || !n || !status) t_die(__FILE__, __LINE__, "layout", "no memory");
    t_note(" %s, batch %d, live %d, nodes %d, wide %d %d, gaps %d %d%s", form_names[s.form],
           s.batch, s.live, s.max_nodes, s.wide_links, s.wide_ids, s.given_gap, s.mask_gap,
           s.one_tree ? ", one tree" : "");
    for (int b = 0; b < trees; ++b) {
        n[b] = s.with_nodes && !s.one_tree ? (int32_t)t_between(1, s.max_nodes) : s.max_nodes;
        draw_tree(parent + (int64_t)b * SPECV_MAX_NODES, n[b], (int)t_below(NUM_KINDS));
        need_paths(&s, parent + (int64_t)b * SPECV_MAX_NODES, n[b]);
    }
    for (int b = trees; b < s.batch; ++b) n[b] = s.max_nodes;
    if (s.form == PATHS && t_chance(50)) s.num_paths += 2, s.path_len += (int)t_below(3);
    layout_make(&l, &s);
    for (int b = 0; b < trees; ++b) {
        const int32_t *tree = parent + (int64_t)b * SPECV_MAX_NODES;
        const int64_t first = b * l.stride;
        const int paths = write_tree(&l, first, tree, n[b]);
        for (int p = paths; p < s.num_paths && s.form == PATHS; ++p) /* none, or one again */
            for (int e = 0; e < s.path_len; ++e)
                put_given(&l, first + (int64_t)p * s.path_len + e,
                          e == 0 && (p % 2 || s.faults) ? -1 : word_at(&l.given, first + e));
        if (!s.one_tree && t_chance(s.faults) && spoil(&l, first, tree, n[b], paths))
            status[b] = SPECV_ROW_BAD_TREE;
    }
    for (int b = 0; b < s.batch; ++b) {
        int32_t given_n = n[b];
        const int32_t bad[] = {0, -1, s.max_nodes + 1, INT32_MAX, INT32_MIN};
        if (s.with_nodes && t_chance(s.faults / 2))
            given_n = T_PICK(bad), status[b] = SPECV_ROW_BAD_LENGTH;
        if (s.with_nodes) put_word(&l.nodes, b, b < s.live ? given_n : (int32_t)t_random());
        if (status[b]) n[b] = 1;
        if (s.with_position && slot_is_bad(&l.slots, b)) n[b] = 0, status[b] = SPECV_ROW_BAD_SLOT;
        if (b >= s.live) n[b] = 0, status[b] = 0;
    }
    run_both(&l);
    for (int b = 0; b < s.batch; ++b)
        check_row(&l, b, parent + (int64_t)(s.one_tree ? 0 : b) * SPECV_MAX_NODES, n[b], status[b]);
    CHECK(1); /* of batch 0 there is nothing to look at */
    check_all();
    free(parent), free(n), free(status);
}

static shape draw_shape(int form) {
    static const int nodes[] = {1, 2, 3, 5, 8, 31, 32, 33, 60, 64, 65, 97, 130};
    shape s;
    memset(&s, 0, sizeof s);
    s.form = form;
    s.batch = (int)t_between(0, 9), s.live = t_chance(70) ? s.batch : (int)t_between(0, s.batch);
    s.max_nodes = T_PICK(nodes);
    s.wide_links = t_chance(50), s.wide_ids = t_chance(50);
    s.given_gap = t_chance(40) ? (int)t_below(4) : 0, s.mask_gap = t_chance(30) ? 1 : 0;
    s.one_tree = t_chance(15), s.with_nodes = t_chance(70), s.with_position = t_chance(70);
    s.with_slots = t_chance(50), s.keep_status = t_chance(25);
    if (s.one_tree) s.with_nodes = 0;
    s.outputs = t_chance(60) ? ALL_OUTPUTS : (int)t_below(ALL_OUTPUTS + 1);
    return s;
}

/* -------------------------------------------------------------------------------- the groups */

static void test_shapes(void) {
    for (int i = 0; i < (t.cases ? t.cases : t.quick ? 160 : 800); ++i) {
        t_case("shape %d:", i);
        const shape s = draw_shape(i % NUM_FORMS);
        run_shape(&s);
    }
}

static void test_malformed(void) {
    for (int i = 0; i < (t.cases ? t.cases : t.quick ? 160 : 800); ++i) {
        t_case("malformed %d:", i);
        shape s = draw_shape(i % NUM_FORMS);
        s.faults = i % 3 ? 40 : 95, s.outputs |= 16, s.one_tree = 0;
        run_shape(&s);
    }
}

/* As large as trees get: deep, wide, and both. */
static void test_large(void) {
    for (int i = 0; i < NUM_FORMS * NUM_KINDS; ++i) {
        shape s;
        layout l;
        static int32_t parent[SPECV_MAX_NODES];
        const int n = i % 3 ? SPECV_MAX_NODES : SPECV_MAX_NODES - 31;
        t_case("large, %s, kind %d", form_names[i % NUM_FORMS], i / NUM_FORMS);
        memset(&s, 0, sizeof s);
        s.form = i % NUM_FORMS, s.batch = s.live = 1, s.max_nodes = SPECV_MAX_NODES;
        s.with_nodes = s.with_position = 1, s.outputs = ALL_OUTPUTS, s.wide_links = i & 1;
        draw_tree(parent, n, i / NUM_FORMS);
        need_paths(&s, parent, n);
        layout_make(&l, &s);
        put_word(&l.nodes, 0, n);
        write_tree(&l, 0, parent, n);
        run_both(&l);
        check_row(&l, 0, parent, n, 0);
        check_all();
    }
}

/* Every tree of up to 6 nodes, a row each, in each form. */
static void test_all_trees(void) {
    enum { MOST = 6, TREES = 120 };
    for (int form = 0; form < NUM_FORMS; ++form)
        for (int n = 1; n <= MOST; ++n) {
            int32_t parent[TREES][MOST];
            int num_trees = 1;
            shape s;
            layout l;
            t_case("all trees of %d nodes, %s", n, form_names[form]);
            memset(&s, 0, sizeof s);
            for (int i = 1; i < n; ++i) num_trees *= i;
            for (int k = 0; k < num_trees; ++k) {
                int rest = k;
                parent[k][0] = -1;
                for (int i = 1; i < n; ++i) parent[k][i] = rest % i, rest /= i;
                need_paths(&s, parent[k], n);
            }
            s.form = form, s.batch = s.live = num_trees, s.max_nodes = n;
            s.outputs = ALL_OUTPUTS, s.with_position = 1;
            layout_make(&l, &s);
            for (int k = 0; k < num_trees; ++k) {
                const int paths = write_tree(&l, k * l.stride, parent[k], n);
                for (int p = paths; p < s.num_paths && form == PATHS; ++p)
                    put_given(&l, k * l.stride + (int64_t)p * s.path_len, -1);
            }
            run_both(&l);
            for (int k = 0; k < num_trees; ++k) check_row(&l, k, parent[k], n, 0);
            check_all();
        }
}

/* All that can be given for three nodes, of numbers -1 to 3, or all bits: a row each. There are two
   such trees, so what is one is known: it is written down in one way only, paths and a node's own
   bit aside. */
static void test_all_given(void) {
    for (int form = 0; form < NUM_FORMS; ++form) {
        static const int32_t trees[2][3] = {{-1, 0, 0}, {-1, 0, 1}};
        const int elements = form == PARENTS || form == MASK ? 3 : 6;
        const int values = form == MASK ? 8 : 5, first_value = form == MASK ? 0 : -1;
        int rows = 1, num_trees = 0;
        shape s;
        layout l;
        t_case("all that can be given, %s", form_names[form]);
        memset(&s, 0, sizeof s);
        for (int e = 0; e < elements; ++e) rows *= values;
        s.form = form, s.batch = s.live = rows, s.max_nodes = 3, s.num_paths = 2, s.path_len = 3;
        s.outputs = ALL_OUTPUTS;
        layout_make(&l, &s);
        for (int b = 0, rest; b < rows; ++b) {
            rest = b;
            for (int e = 0; e < elements; ++e, rest /= values) {
                const int value = rest % values + first_value;
                if (form == LINKS && e >= 3)
                    put_word(&l.siblings, b * 3 + e - 3, value);
                else
                    put_given(&l, (int64_t)b * (form == LINKS ? 3 : elements) + e, value);
            }
        }
        run_both(&l);
        for (int b = 0; b < rows; ++b) {
            const int64_t at = (int64_t)b * (form == LINKS ? 3 : elements);
            int32_t x[6];
            int which = -1;
            for (int e = 0; e < elements; ++e)
                x[e] = form == LINKS && e >= 3 ? word_at(&l.siblings, b * 3 + e - 3)
                                               : word_at(&l.given, at + e);
            if (form == PARENTS && x[0] == -1 && x[1] == 0 && (x[2] == 0 || x[2] == 1))
                which = x[2];
            if (form == LINKS && x[0] == 1 && x[2] == -1 && x[3] == -1 && x[5] == -1) {
                if (x[1] == -1 && x[4] == 2) which = 0;
                if (x[1] == 2 && x[4] == -1) which = 1;
            }
            if (form == MASK && (x[0] & 6) == 0 && (x[1] & 5) == 1)
                which = (x[2] & 3) == 1 ? 0 : (x[2] & 3) == 3 ? 1 : -1;
            if (form == PATHS) { /* 0, 01, 02 and 012 are all paths there are */
                int seen = 0, odd = 0;
                for (int p = 0; p < 2; ++p) {
                    const int32_t *y = x + 3 * p;
                    if (y[0] == -1 || (y[0] == 0 && y[1] == -1)) continue;
                    if (y[0] == 0 && y[1] == 1 && y[2] == -1)
                        seen |= 1;
                    else if (y[0] == 0 && y[1] == 2 && y[2] == -1)
                        seen |= 2;
                    else if (y[0] == 0 && y[1] == 1 && y[2] == 2)
                        seen |= 4;
                    else
                        odd = 1;
                }
                if (!odd && seen == 3) which = 0;
                if (!odd && (seen & 6) == 4) which = 1;
            }
            num_trees += which >= 0;
            check_row(&l, b, trees[which > 0], which < 0 ? 1 : 3,
                      which < 0 ? SPECV_ROW_BAD_TREE : 0);
        }
        CHECK(num_trees >= 2);
        check_all();
    }
}

/* From parents to a mask and from there to parents again, on the device without the host: the
   second launch reads what the first has written. */
static void test_round_trip(void) {
    for (int i = 0; i < (t.quick ? 10 : 40); ++i) {
        shape s;
        layout l;
        static int32_t parent[4][SPECV_MAX_NODES];
        const int n = (int)t_between(1, 200);
        t_case("round trip, %d nodes", n);
        memset(&s, 0, sizeof s);
        s.form = PARENTS, s.batch = s.live = 4, s.max_nodes = n, s.outputs = 8;
        layout_make(&l, &s);
        for (int b = 0; b < 4; ++b) {
            draw_tree(parent[b], n, (int)t_below(NUM_KINDS));
            write_tree(&l, b * l.stride, parent[b], n);
        }
        t_buf again = t_out(16 * (int64_t)n, 0);
        t_upload();
        for (int side = 0; side <= T_DEVICE; ++side) {
            specv_tree_layout_desc d = describe(&l, side), back = SPECV_ZERO;
            run_on(&d, side);
            back.form = MASK, back.batch = 4, back.max_nodes = n;
            back.given_mask = d.mask, back.parent = (int32_t *)t_at(&again, side);
            run_on(&back, side);
        }
        for (int b = 0; b < 4; ++b) CHECK_BYTES(again.host + 4 * (int64_t)b * n, parent[b], 4 * n);
        check_all();
    }
}

/* The kernel may be the programmatic dependent of the one that writes its inputs. */
static void test_dependents(void) {
#if T_DEVICE
    static const int32_t links[2][4] = {{1, 3, -1, -1}, {-1, 2, -1, -1}}, want[4] = {-1, 0, 0, 1};
    t_case("dependent");
    t_buf staged = t_in(sizeof links, 0), made = t_out(sizeof links, 0), parent = t_out(16, 0);
    memcpy(staged.host, links, sizeof links);
    t_upload();
    specv_tree_layout_desc d = SPECV_ZERO;
    d.form = LINKS, d.batch = 1, d.max_nodes = 4, d.parent = (int32_t *)parent.device;
    d.first_child = made.device, d.next_sibling = (int32_t *)made.device + 4;
    t_produce(made.device, staged.device, sizeof links);
    d.chained = SPECV_CHAINED_AFTER;
    CHECK_EQ(specv_tree_layout(&d, 0), SPECV_OK, -1);
    t_check_dependents();
    memcpy(made.host, links, sizeof links);
    memcpy(parent.host, want, sizeof want);
    t_check_device();
#else
    t_skip("dependent launches need a device");
#endif
}

/* --------------------------------------------------------------------------------- validation */

static int64_t storage[8]; /* something to point to: nothing of it is read or written */

static specv_tree_layout_desc valid_desc(int form) {
    specv_tree_layout_desc d = SPECV_ZERO;
    d.form = form, d.batch = 4, d.max_nodes = 40, d.num_paths = 3, d.path_len = 5;
    d.given_parent = d.paths = (int32_t *)storage;
    d.first_child = d.next_sibling = storage;
    d.given_mask = (uint32_t *)storage;
    d.position = (int32_t *)storage, d.position_ids = storage;
    return d;
}

#if !T_DEVICE
#define specv_tree_layout(d, stream) specv_ref_tree_layout(d)
#endif

#define EXPECT_FORM(form, code, change)                                                            \
    do {                                                                                           \
        specv_tree_layout_desc d = valid_desc(form);                                               \
        change;                                                                                    \
        CHECK_EQ(specv_tree_layout_validate(&d), code, form);                                      \
        if ((code) != SPECV_OK) CHECK_EQ(specv_ref_tree_layout(&d), code, form);                   \
        if ((code) != SPECV_OK) CHECK_EQ(specv_tree_layout(&d, 0), code, form);                    \
    } while (0)

static void test_validation(void) {
    t_case("validation");
    CHECK_EQ(specv_tree_layout_validate(NULL), SPECV_ERR_NULL_DESC, -1);
    for (int form = 0; form < NUM_FORMS; ++form) {
        EXPECT_FORM(form, SPECV_OK, (void)0);
        EXPECT_FORM(form, SPECV_ERR_CANARY, d.canary0 = 1);
        EXPECT_FORM(form, SPECV_ERR_CANARY, d.canary1 = 1);
        EXPECT_FORM(form, SPECV_ERR_CHAINED, d.chained = 4);
        EXPECT_FORM(form, SPECV_ERR_BATCH, d.batch = -1);
        EXPECT_FORM(form, SPECV_ERR_TREE, d.max_nodes = 0);
        EXPECT_FORM(form, SPECV_ERR_TREE, d.max_nodes = SPECV_MAX_NODES + 1);
        EXPECT_FORM(form, SPECV_ERR_TOO_LARGE, (d.max_nodes = 1024, d.batch = (1 << 20) + 1));
        EXPECT_FORM(form, SPECV_ERR_NUM_ACTIVE, d.num_active = (int32_t *)misaligned());
        EXPECT_FORM(form, SPECV_ERR_TREE, d.num_nodes = (int32_t *)misaligned());
        EXPECT_FORM(form, SPECV_ERR_SLOT, d.slot = storage);
        EXPECT_FORM(form, SPECV_ERR_INDEX_DTYPE, d.index_dtype = 2);
        EXPECT_FORM(form, SPECV_ERR_POSITION, d.position = NULL);
        EXPECT_FORM(form, SPECV_ERR_POSITION, d.position = (int32_t *)misaligned());
        EXPECT_FORM(form, SPECV_OK, (d.position = NULL, d.position_ids = NULL));
        EXPECT_FORM(form, SPECV_ERR_TREE, d.parent = (int32_t *)misaligned());
        EXPECT_FORM(form, SPECV_ERR_TREE, d.depth = (int32_t *)misaligned());
        EXPECT_FORM(form, SPECV_ERR_COLUMNS, d.position_ids = misaligned());
        EXPECT_FORM(form, SPECV_ERR_COLUMNS,
                    (d.index_dtype = SPECV_I64, d.position_ids = (char *)storage + 4));
        EXPECT_FORM(form, SPECV_ERR_MASK, d.mask = (uint32_t *)misaligned());
        EXPECT_FORM(form, SPECV_ERR_MASK, d.mask_stride_words = 1);
        EXPECT_FORM(form, SPECV_OK, d.mask_stride_words = 2);
        EXPECT_FORM(form, SPECV_ERR_SIZE, d.mask_stride_words = INT64_MAX / 64);
        EXPECT_FORM(form, SPECV_ERR_ROW_STATUS, d.row_status = (uint32_t *)misaligned());
        EXPECT_FORM(form, SPECV_ERR_KEEP_STATUS, d.keep_status = 2);
        EXPECT_FORM(form, SPECV_ERR_TREE, d.one_tree = 2);
        EXPECT_FORM(form, SPECV_ERR_TREE, d.given_stride_elems = 14);
        EXPECT_FORM(form, SPECV_ERR_TREE, d.given_stride_elems = -1);
        EXPECT_FORM(form, SPECV_ERR_SIZE, d.given_stride_elems = INT64_MAX / 16);
    }
    EXPECT_FORM(PARENTS, SPECV_ERR_TREE, d.form = -1);
    EXPECT_FORM(PARENTS, SPECV_ERR_TREE, d.form = NUM_FORMS);
    EXPECT_FORM(PARENTS, SPECV_ERR_TREE, d.given_parent = NULL);
    EXPECT_FORM(PARENTS, SPECV_OK, (d.given_parent = NULL, d.batch = 0));
    EXPECT_FORM(PARENTS, SPECV_ERR_TREE, d.given_parent = (int32_t *)misaligned());
    EXPECT_FORM(LINKS, SPECV_ERR_TREE, d.first_child = NULL);
    EXPECT_FORM(LINKS, SPECV_ERR_TREE, d.next_sibling = NULL);
    EXPECT_FORM(LINKS, SPECV_ERR_TREE, d.first_child = misaligned());
    EXPECT_FORM(LINKS, SPECV_ERR_TREE,
                (d.link_dtype = SPECV_I64, d.next_sibling = (char *)storage + 4));
    EXPECT_FORM(LINKS, SPECV_ERR_INDEX_DTYPE, d.link_dtype = 2);
    EXPECT_FORM(PATHS, SPECV_ERR_PATH, d.paths = NULL);
    EXPECT_FORM(PATHS, SPECV_OK, (d.paths = NULL, d.num_paths = 0));
    EXPECT_FORM(PATHS, SPECV_ERR_PATH, d.paths = (int32_t *)misaligned());
    EXPECT_FORM(PATHS, SPECV_ERR_PATH, d.num_paths = -1);
    EXPECT_FORM(PATHS, SPECV_ERR_PATH, d.path_len = -1);
    EXPECT_FORM(PATHS, SPECV_ERR_TOO_LARGE, d.num_paths = d.path_len = 1 << 16);
    EXPECT_FORM(MASK, SPECV_ERR_MASK, d.given_mask = NULL);
    EXPECT_FORM(MASK, SPECV_ERR_MASK, d.given_mask = (uint32_t *)misaligned());
    EXPECT_FORM(MASK, SPECV_ERR_TREE, d.given_stride_elems = 79);
    EXPECT_FORM(MASK, SPECV_OK, d.given_stride_elems = 80);
}

int main(int argc, char **argv) {
    static const t_group groups[] = {
        {"layout-shapes", test_shapes},         {"layout-malformed", test_malformed},
        {"layout-large", test_large},           {"layout-all-trees", test_all_trees},
        {"layout-all-given", test_all_given},   {"layout-round-trip", test_round_trip},
        {"layout-dependents", test_dependents}, {"layout-validation", test_validation},
    };
    return t_main(argc, argv, groups, T_COUNT(groups));
}
