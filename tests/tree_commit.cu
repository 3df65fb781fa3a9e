/* tree_commit.cu - B4, committing the path of a tree that was accepted, in place, to padded and
   paged caches.

   Every element of a cache says where it is: in which sequence or page, at which position, head and
   plane. So after a launch every element says where it was, and a row that went to another place of
   the same page, or was stored over before it was loaded, is seen like one that did not move. What
   is expected is a picture of the cache in which places are exchanged one by one, all read from
   what was there before. */

#include "cache.h"
#include "slots.h"
#include "tickets.h"

typedef enum fault {
    FAULT_NONE,
    FAULT_ACCEPTED,  /* accepted_len is out of range */
    FAULT_NODES,     /* num_nodes is */
    FAULT_CACHE_LEN, /* cache_len is */
    FAULT_ROOT,      /* the path does not begin with the root */
    FAULT_DESCENDS,  /* it does not ascend */
    FAULT_LEAVES,    /* its last node is none */
    FAULT_FULL,      /* its last node is behind max_positions */
    FAULT_PAGE,      /* one of its pages is none */
    FAULT_SHARED,    /* a page that would be written has another number of owners than one */
    NUM_FAULTS
} fault;

/* Where new lengths go. */
enum { LEN_NONE, LEN_IN_PLACE, LEN_APART };

typedef struct form {
    int batch, max_nodes, max_depth, max_positions, heads, num_sms, live;
    int page_size; /* 0: padded */
    int planes;    /* -1: none, 0: one without a table, n: a table of n */
    int64_t head_bytes, gap[NUM_AXES];
    const char *order;
    int offset, table_gap, src_gap, path_gap, null_planes;
    int faults; /* per cent of live rows */
    int lens, with_nodes, with_src, with_refs, with_status, keep_status, with_slots;
    int chains; /* per cent of rows whose path moves nothing */
} form;

typedef struct commit {
    form f;
    slots slots;
    grid cache;
    plane_table planes;
    unsigned null_planes;
    int64_t row_pages, table_stride, src_stride, path_stride, num_pages, num_moves;
    t_buf active, accepted, path, nodes, cache_len, new_len, table, src_table, refs, status, ticket;
    t_buf data;
    char *expected, *old_len;
    int32_t *want_len; /* [batch]; of live rows */
    uint32_t *want;    /* [batch]: status */
} commit;

static void *get_memory(size_t bytes) {
    void *p = calloc(bytes + 1, 1);
    if (!p) t_die(__FILE__, __LINE__, "commit", "no memory");
    return p;
}

static int32_t node_at(const commit *c, int row, int j) {
    return word_at(&c->path, row * c->path_stride + j);
}
static void put_node(const commit *c, int row, int j, int32_t node) {
    put_word(&c->path, row * c->path_stride + j, node);
}

/* Places of a cache are numbered; -1: there is no such page. */
static int64_t place_of(const commit *c, int row, int64_t x, int is_src) {
    const int64_t slot = slot_place(&c->slots, row), size = c->f.page_size;
    const int from = is_src && c->src_table.host;
    int32_t page;
    if (!size) return slot * c->f.max_positions + x;
    page = word_at(from ? &c->src_table : &c->table,
                   slot * (from ? c->src_stride : c->table_stride) + x / size);
    return page < 0 || page >= c->num_pages ? -1 : page * size + x % size;
}

static int64_t outer_of(const commit *c, int64_t place) {
    return place / (c->f.page_size ? c->f.page_size : c->f.max_positions);
}
static int64_t pos_of(const commit *c, int64_t place) {
    return place % (c->f.page_size ? c->f.page_size : c->f.max_positions);
}

/* What a row whose lengths and path are right comes to, place by place. */
static uint32_t judge_places(commit *c, int row, int32_t len, int32_t accepted) {
    uint32_t status = 0;
    for (int j = 0; j <= accepted; ++j) {
        const int64_t to = place_of(c, row, (int64_t)len + j, 0);
        const int64_t from = place_of(c, row, (int64_t)len + node_at(c, row, j), 1);
        if (to < 0 || from < 0) status |= SPECV_ROW_BAD_PAGE;
        if (to >= 0 && from >= 0 && to != from && c->refs.host &&
            word_at(&c->refs, to / c->f.page_size) != 1)
            status |= SPECV_ROW_SHARED_PAGE;
        for (int i = j + 1; i <= accepted && to >= 0 && c->src_table.host; ++i)
            if (place_of(c, row, (int64_t)len + node_at(c, row, i), 1) == to)
                status |= SPECV_ROW_BAD_PAGE;
    }
    return status;
}

static void expect_moves(commit *c, int row, int32_t len, int32_t accepted) {
    for (int j = 0; j <= accepted; ++j) {
        const int64_t to = place_of(c, row, (int64_t)len + j, 0);
        const int64_t from = place_of(c, row, (int64_t)len + node_at(c, row, j), 1);
        if (to == from) continue;
        c->num_moves += 1;
        for (int v = 0; v < c->cache.count[AXIS_PLANE] && c->expected; ++v)
            if (!(c->null_planes >> v & 1))
                tag_position(c->expected, &c->cache, outer_of(c, to), pos_of(c, to), v,
                             outer_of(c, from), pos_of(c, from));
    }
}

/* An ascending path of `accepted` nodes behind the root. */
static void draw_path(const commit *c, int row, int32_t nodes, int32_t accepted, int chain) {
    int32_t left = accepted, at = 1;
    put_node(c, row, 0, 0);
    for (int32_t j = 1; j <= accepted; ++j, ++at, --left) {
        while (!chain && nodes - at > left && !t_chance((int)(100 * left / (nodes - at)))) ++at;
        put_node(c, row, j, at);
    }
}

static void draw_row(commit *c, int row) {
    const form *f = &c->f;
    const int works = row < f->live && !slot_is_bad(&c->slots, row);
    const int32_t bad[] = {-1, INT32_MIN, INT32_MAX};
    fault what = works && t_chance(f->faults) ? (fault)t_below(NUM_FAULTS) : FAULT_NONE;
    int32_t nodes = f->with_nodes ? (int32_t)t_between(1, f->max_nodes) : f->max_nodes;
    int32_t most = nodes - 1 < f->max_depth ? nodes - 1 : f->max_depth, room;
    int32_t accepted = (int32_t)t_between(0, t_chance(30) ? most : most < 8 ? most : 8), len;
    uint32_t status = 0;
    for (int j = 0; j < f->max_depth + 1; ++j) put_node(c, row, j, (int32_t)t_random());
    draw_path(c, row, nodes, accepted, t_chance(f->chains));
    room = f->max_positions - node_at(c, row, accepted);
    len = room > 0 ? (int32_t)(t_chance(20) ? room - 1 : t_below(room)) : 0;
    if (what == FAULT_FULL)
        len = (int32_t)t_between(room > 0 ? room : 0, f->max_positions), room = -1;
    if (what == FAULT_DESCENDS && accepted > 0) {
        const int j = (int)t_between(1, accepted);
        put_node(c, row, j, node_at(c, row, j - 1) - (int32_t)t_below(2) * (j > 1));
        status = SPECV_ROW_BAD_TREE;
    }
    if (what == FAULT_ROOT) {
        put_node(c, row, 0, t_chance(50) ? -1 : 1);
        status = SPECV_ROW_BAD_TREE;
    }
    if (what == FAULT_LEAVES && accepted > 0) {
        put_node(c, row, accepted, t_chance(50) ? nodes : INT32_MAX);
        status = SPECV_ROW_BAD_TREE;
    }
    if (what == FAULT_ACCEPTED)
        accepted = t_chance(50) ? most + 1 : T_PICK(bad), status = SPECV_ROW_BAD_LENGTH;
    if (what == FAULT_NODES && f->with_nodes)
        nodes = t_chance(30)   ? 0
                : t_chance(50) ? f->max_nodes + 1
                               : T_PICK(bad),
        status = SPECV_ROW_BAD_LENGTH;
    if (what == FAULT_CACHE_LEN)
        len = t_chance(50) ? f->max_positions + 1 : T_PICK(bad), status = SPECV_ROW_BAD_LENGTH;
    if (!works) accepted = (int32_t)t_random(), nodes = (int32_t)t_random();
    put_word(&c->accepted, row, accepted);
    put_word(&c->cache_len, slot_place(&c->slots, row), len);
    if (f->with_nodes) put_word(&c->nodes, row, nodes);
    if (works && !status && room <= 0) status = SPECV_ROW_NO_SPACE;
    if (works && !status && what == FAULT_PAGE && f->page_size) {
        const int is_src = c->src_table.host && t_chance(50);
        const int32_t j = (int32_t)t_between(0, accepted);
        const int64_t x = (int64_t)len + (is_src ? node_at(c, row, j) : j);
        put_word(is_src ? &c->src_table : &c->table,
                 slot_place(&c->slots, row) * (is_src ? c->src_stride : c->table_stride) +
                     x / f->page_size,
                 t_chance(50) ? (int32_t)c->num_pages : T_PICK(bad));
    }
    if (works && !status && what == FAULT_SHARED && c->refs.host) {
        const int64_t to = place_of(c, row, (int64_t)len + t_between(0, accepted), 0);
        const int32_t others[] = {0, 2, -1, INT32_MAX};
        if (to >= 0) put_word(&c->refs, to / f->page_size, T_PICK(others));
    }
    if (works && !status) status = judge_places(c, row, len, accepted);
    if (works && !status) expect_moves(c, row, len, accepted);
    c->want[row] = works ? status : slot_is_bad(&c->slots, row) ? SPECV_ROW_BAD_SLOT : 0;
    c->want_len[row] = works && !status ? len + accepted + 1 : len;
}

/* Every row has pages of its own, twice as many as it needs: the table names one half in a random
   order; the table as it was names some of them, at the same place or another, and others. */
static void draw_tables(commit *c) {
    const int64_t n = c->row_pages;
    int32_t *all = (int32_t *)get_memory(4 * (size_t)c->num_pages);
    for (int64_t i = 0; i < c->num_pages; ++i) {
        const int64_t j = t_below(i + 1);
        all[i] = all[j];
        all[j] = (int32_t)i;
    }
    for (int64_t i = 0; i < (int64_t)c->table.bytes / 4; ++i) put_word(&c->table, i, -9);
    for (int64_t i = 0; i < (int64_t)c->src_table.bytes / 4; ++i) put_word(&c->src_table, i, -9);
    for (int64_t i = 0; i < (int64_t)c->refs.bytes / 4; ++i)
        put_word(&c->refs, i, t_chance(95) || !c->f.faults ? 1 : 2);
    for (int slot = 0; slot < c->slots.count; ++slot) {
        const int32_t *own = all + 2 * n * slot;
        const int shift = t_chance(40) ? 0 : (int)t_below(3) - 1;
        for (int64_t e = 0; e < n; ++e) {
            const int64_t other = e + shift;
            put_word(&c->table, slot * c->table_stride + e, own[e]);
            if (c->src_table.host)
                put_word(&c->src_table, slot * c->src_stride + e,
                         t_chance(60) && other >= 0 && other < n ? own[other] : own[n + e]);
        }
    }
    free(all);
}

static void commit_make(commit *c, const form *f) {
    const int64_t num_rows = f->batch;
    int64_t num_slots, entries[2] = {1, 1}; /* no gap behind the last row */
    memset(c, 0, sizeof *c);
    c->f = *f;
    if (c->f.live > f->batch || c->f.live < 0) c->f.live = f->batch;
    c->path_stride = f->max_depth + 1 + f->path_gap;
    c->row_pages = f->page_size ? (f->max_positions + f->page_size - 1) / f->page_size : 0;
    c->table_stride = c->row_pages + f->table_gap, c->src_stride = c->row_pages + f->src_gap;
    c->slots = slots_draw(f->batch, c->f.live, f->with_slots ? f->faults : NO_SLOTS, 1);
    num_slots = c->slots.count;
    c->num_pages = f->page_size ? 2 * num_slots * c->row_pages + 1 : 0;
    if (f->page_size && num_slots) entries[0] = (num_slots - 1) * c->table_stride + c->row_pages;
    if (f->page_size && num_slots) entries[1] = (num_slots - 1) * c->src_stride + c->row_pages;
    if (c->f.live < f->batch) c->active = t_in(4, 0), put_word(&c->active, 0, c->f.live);
    c->accepted = t_in(4 * num_rows, 0);
    c->path = t_in(4 * (num_rows ? (num_rows - 1) * c->path_stride + f->max_depth + 1 : 0), 0);
    c->nodes = t_in(f->with_nodes ? 4 * num_rows : 0, 0);
    if (f->lens == LEN_IN_PLACE)
        c->cache_len = t_out(4 * num_slots, 0);
    else
        c->cache_len = t_in(4 * num_slots, 0);
    if (f->lens == LEN_APART) c->new_len = t_out(4 * num_slots, 0);
    c->table = t_in(4 * entries[0], 0);
    c->src_table = t_in(f->with_src ? 4 * entries[1] : 0, 0);
    c->refs = t_in(f->with_refs ? 4 * c->num_pages : 0, 0);
    if (f->with_status)
        c->status = t_out(4 * num_rows, 0), t_fill_status(&c->status, f->keep_status);
    c->ticket = t_out(4, 0);
    put_word(&c->ticket, 0, 0);
    c->want = (uint32_t *)get_memory(4 * (size_t)num_rows);
    c->want_len = (int32_t *)get_memory(4 * (size_t)num_rows);
    for (int64_t i = 0; i < (int64_t)c->path.bytes / 4; ++i) put_word(&c->path, i, -7);
    for (int64_t i = 0; i < num_slots; ++i) put_word(&c->cache_len, i, (int32_t)t_random());
    draw_tables(c);
    c->cache.count[AXIS_OUTER] = f->page_size ? c->num_pages : num_slots ? num_slots : 1;
    c->cache.count[AXIS_POS] = f->page_size ? f->page_size : f->max_positions;
    c->cache.count[AXIS_HEAD] = f->heads,
    c->cache.count[AXIS_PLANE] = f->planes > 0 ? f->planes : 1;
    c->cache.elem_bytes = f->head_bytes;
    grid_make(&c->cache, f->order, f->gap);
    if (f->planes >= 0) {
        c->data = t_out(c->cache.bytes, f->offset);
        for (int64_t o = 0; o < c->cache.count[AXIS_OUTER]; ++o)
            for (int64_t x = 0; x < c->cache.count[AXIS_POS]; ++x)
                for (int v = 0; v < c->cache.count[AXIS_PLANE]; ++v)
                    tag_position(c->data.host, &c->cache, o, x, v, o, x);
        c->expected = (char *)get_memory(c->data.bytes);
        memcpy(c->expected, c->data.host, c->data.bytes);
    }
    for (int v = 0; v < f->planes; ++v)
        if (t_chance(f->null_planes)) c->null_planes |= 1u << v;
    for (int row = 0; row < f->batch; ++row) draw_row(c, row);
    c->old_len = (char *)get_memory(c->cache_len.bytes);
    if (c->cache_len.bytes) memcpy(c->old_len, c->cache_len.host, c->cache_len.bytes);
    if (f->planes > 0) table_make(&c->planes, &c->data, &c->cache, c->null_planes);
}

static void commit_free(commit *c) {
    if (c->f.planes > 0) table_free(&c->planes);
    free(c->expected);
    free(c->old_len);
    free(c->want);
    free(c->want_len);
}

static specv_commit_path_desc commit_describe(const commit *c, int side) {
    const form *f = &c->f;
    specv_commit_path_desc d = SPECV_ZERO;
    d.keep_status = f->keep_status;
    d.num_active = (const int32_t *)t_at(&c->active, side);
    d.slot = slots_at(&c->slots, side), d.slot_dtype = slots_dtype(&c->slots);
    d.num_slots = slots_count(&c->slots);
    d.accepted_len = (const int32_t *)t_at(&c->accepted, side);
    d.path = (const int32_t *)t_at(&c->path, side);
    d.num_nodes = (const int32_t *)t_at(&c->nodes, side);
    d.cache_len = (const int32_t *)t_at(&c->cache_len, side);
    if (f->lens == LEN_IN_PLACE) d.new_cache_len = (int32_t *)t_at(&c->cache_len, side);
    if (f->lens == LEN_APART) d.new_cache_len = (int32_t *)t_at(&c->new_len, side);
    d.src_block_table = (const int32_t *)t_at(&c->src_table, side);
    d.page_refs = (const int32_t *)t_at(&c->refs, side);
    d.row_status = (uint32_t *)t_at(&c->status, side);
    if (f->lens != LEN_NONE) d.ticket = (uint32_t *)t_at(&c->ticket, side);
    if (f->path_gap || f->batch % 2) d.path_stride_elems = c->path_stride;
    d.batch = f->batch, d.max_nodes = f->max_nodes;
    d.max_depth = f->max_depth == f->max_nodes - 1 && f->batch % 2 ? 0 : f->max_depth;
    d.num_sms = f->num_sms;
    d.kv.max_positions = f->max_positions;
    if (f->page_size) {
        d.kv.block_table = (int32_t *)t_at(&c->table, side);
        d.kv.page_size = f->page_size;
        d.kv.num_pages = (int32_t)c->num_pages;
        if (f->table_gap || f->batch % 2) d.kv.table_stride_elems = c->table_stride;
        if (f->with_src && c->src_stride != c->table_stride)
            d.src_table_stride_elems = c->src_stride;
    }
    if (f->planes < 0) return d;
    d.kv.num_heads = f->heads == 1 ? f->batch % 2 : f->heads;
    d.kv.num_planes = f->planes ? f->planes : f->batch % 2;
    d.kv.head_bytes = f->head_bytes;
    d.kv.head_stride_bytes = grid_stride(&c->cache, AXIS_HEAD);
    d.kv.pos_stride_bytes = grid_stride(&c->cache, AXIS_POS);
    *(f->page_size ? &d.kv.page_stride_bytes : &d.kv.seq_stride_bytes) =
        grid_stride(&c->cache, AXIS_OUTER);
    if (f->planes)
        d.kv.planes = table_at(&c->planes, side);
    else
        d.kv.plane = t_at(&c->data, side);
    return d;
}

static void run_on(const specv_commit_path_desc *d, int side) {
    if (side == T_HOST_SIDE) CHECK_EQ(specv_ref_commit_path(d), SPECV_OK, -1);
#if T_DEVICE
    if (side == T_DEVICE_SIDE) CHECK_EQ(specv_commit_path(d, 0), SPECV_OK, -1);
#endif
}

static void commit_check(const commit *c) {
    const t_buf *lens = c->f.lens == LEN_APART ? &c->new_len : &c->cache_len;
    for (int row = 0; row < c->f.batch; ++row) {
        const int known = row < c->f.live && !slot_is_bad(&c->slots, row);
        if (known && c->f.lens != LEN_NONE)
            CHECK_EQ(word_at(lens, slot_place(&c->slots, row)), c->want_len[row], row);
        if (c->status.host)
            CHECK_EQ((uint32_t)word_at(&c->status, row),
                     c->want[row] | t_old_status(c->f.keep_status, row), row);
    }
    if (c->f.lens == LEN_IN_PLACE) slots_check_rest(&c->slots, c->cache_len.host, c->old_len, 4);
    CHECK_EQ(word_at(&c->ticket, 0), 0, -1);
    if (c->data.host) check_image(&c->data, c->expected);
}

static void commit_run(const form *f) {
    commit c;
    t_note(" batch %d, live %d, nodes %d, depth %d, page %d, positions %d, heads %d x %lld %s, "
           "planes %d, num_sms %d, lens %d%s%s",
           f->batch, f->live, f->max_nodes, f->max_depth, f->page_size, f->max_positions, f->heads,
           (long long)f->head_bytes, f->order, f->planes, f->num_sms, f->lens,
           f->with_src ? ", two tables" : "", f->with_refs ? ", refs" : "");
    commit_make(&c, f);
    t_upload();
    for (int side = 0; side <= T_DEVICE; ++side) {
        const specv_commit_path_desc d = commit_describe(&c, side);
        run_on(&d, side);
    }
    commit_check(&c);
    t_check_host();
    t_check_device();
    commit_free(&c);
}

/* -------------------------------------------------------------------------------- the groups */

static form plain_form(int num_rows, int max_nodes) {
    form f;
    memset(&f, 0, sizeof f);
    f.batch = f.live = num_rows, f.max_nodes = max_nodes, f.max_depth = max_nodes - 1;
    f.heads = 2, f.head_bytes = 16, f.max_positions = max_nodes + 9;
    f.order = grid_orders[0];
    f.num_sms = 2, f.lens = LEN_IN_PLACE, f.with_status = 1;
    return f;
}

static void draw_form(form *f, int64_t most_bytes) {
    static const int page_sizes[] = {1, 2, 3, 4, 7, 8, 16, 32, 64, 128, 256};
    static const int sms[] = {1, 2, 5, 132, 0};
    static const int64_t sizes[] = {1, 2, 3, 4, 8, 12, 16, 17, 32, 48, 100, 128, 255, 256, 512};
    const int64_t unit = t_chance(50) ? 16 : t_chance(50) ? 4 : 1;
    int64_t row_bytes;
    *f = plain_form((int)t_between(0, t_chance(50) ? 6 : 40),
                    (int)t_between(1, t_chance(70) ? 24 : 90));
    if (t_chance(50) && f->max_nodes > 1) f->max_depth = (int)t_between(1, f->max_nodes - 1);
    if (t_chance(25)) f->live = (int)t_between(0, f->batch);
    f->page_size = t_chance(70) ? T_PICK(page_sizes) : 0;
    f->max_positions = f->max_nodes + (int)t_below(t_chance(30) ? 100 : 12);
    if (t_chance(10)) f->max_positions = (int)t_between(1, f->max_positions); /* often full */
    f->heads = t_chance(30) ? 1 : (int)t_between(2, 9);
    f->head_bytes = t_chance(50) ? 16 * t_between(1, 6) : T_PICK(sizes);
    f->planes = (int)t_between(-1, 6);
    f->null_planes = t_chance(30) ? 30 : 0;
    f->order = T_PICK(grid_orders);
    for (int axis = 0; axis < NUM_AXES; ++axis)
        f->gap[axis] = t_chance(30) ? unit * t_between(1, 3) : 0;
    if (t_chance(30)) f->offset = (int)t_below(16);
    f->table_gap = t_chance(30) ? (int)t_below(4) : 0;
    f->src_gap = t_chance(30) ? (int)t_below(4) : f->table_gap;
    f->path_gap = t_chance(30) ? (int)t_below(4) : 0;
    f->num_sms = T_PICK(sms);
    f->lens = (int)t_below(3);
    f->with_nodes = t_chance(70);
    f->with_src = f->page_size && t_chance(40);
    f->with_refs = f->page_size && t_chance(40);
    f->with_status = t_chance(85);
    f->keep_status = t_chance(25);
    f->with_slots = t_chance(50);
    f->chains = t_chance(30) ? 50 : 5;
    row_bytes = (int64_t)f->heads * f->head_bytes * (f->planes > 0 ? f->planes : 1) *
                (f->max_positions + f->page_size) * (f->page_size ? 2 : 1);
    while (f->batch > 1 && f->batch * row_bytes > most_bytes) f->batch /= 2;
    if (f->live > f->batch) f->live = f->batch;
}

static void test_shapes(void) {
    for (int i = 0; i < (t.cases ? t.cases : t.quick ? 250 : 900); ++i) {
        form f;
        t_case("shape %d:", i);
        draw_form(&f, t.quick ? 60000 : 200000);
        commit_run(&f);
    }
}

/* Faults of every kind among rows without one. */
static void test_faults(void) {
    for (int i = 0; i < (t.cases ? t.cases : t.quick ? 250 : 900); ++i) {
        form f;
        t_case("faults %d:", i);
        draw_form(&f, t.quick ? 30000 : 100000);
        f.faults = i % 3 ? 30 : 90;
        f.with_status = 1;
        if (f.page_size) f.with_refs = i % 4 != 0;
        commit_run(&f);
    }
}

/* Tables that changed since the pass wrote: pages that are at other places now, earlier ones and
   later ones. Where a row would be stored over a later node's, the row stays as it is. */
static void test_tables(void) {
    for (int i = 0; i < (t.cases ? t.cases : t.quick ? 150 : 600); ++i) {
        form f;
        t_case("tables %d:", i);
        draw_form(&f, t.quick ? 30000 : 100000);
        f.page_size = 1 + i % 5, f.with_src = f.with_status = 1;
        if (f.planes < 0) f.planes = 1;
        if (f.max_positions < f.max_nodes) f.max_positions = f.max_nodes + 5;
        commit_run(&f);
    }
}

/* Every path of every tree of up to 7 nodes, as paths of a tree are the sets of its nodes that
   begin with the root and ascend: 64 rows of a batch. Padded and in pages of each size, whether
   they begin at a page's begin or not. */
static void test_all_paths(void) {
    static const int page_sizes[] = {0, 1, 2, 3, 4, 5, 8, 256};
    enum { NODES = 7, ROWS = 1 << (NODES - 1) };
    for (int i = 0; i < T_COUNT(page_sizes) * 3; ++i) {
        form f = plain_form(ROWS, NODES);
        commit c;
        t_case("all paths, page %d, behind %d positions", page_sizes[i / 3], i % 3);
        f.page_size = page_sizes[i / 3], f.max_positions = NODES + 3, f.planes = 1 + i % 2;
        f.heads = 1, f.head_bytes = 4;
        commit_make(&c, &f);
        if (c.data.host) memcpy(c.expected, c.data.host, c.data.bytes);
        for (int set = 0; set < ROWS; ++set) {
            int32_t accepted = 0;
            for (int node = 1; node < NODES; ++node)
                if (set >> (node - 1) & 1) put_node(&c, set, ++accepted, node);
            put_word(&c.accepted, set, accepted);
            put_word(&c.cache_len, set, i % 3);
            expect_moves(&c, set, i % 3, accepted);
            c.want_len[set] = i % 3 + accepted + 1;
            CHECK_EQ(c.want[set], 0, set);
        }
        t_upload();
        for (int side = 0; side <= T_DEVICE; ++side) {
            const specv_commit_path_desc d = commit_describe(&c, side);
            run_on(&d, side);
        }
        commit_check(&c);
        t_check_host();
        t_check_device();
        commit_free(&c);
    }
}

/* A last node far behind the others, and paths longer than a lane's loads, up to all nodes there
   can be: everything moves by one, over what the node before it leaves. */
static void test_long(void) {
    static const int nodes[] = {9, 10, 17, 18, 33, 100, 1024};
    for (int i = 0; i < T_COUNT(nodes) * 2; ++i) {
        const int n = nodes[i / 2];
        form f = plain_form(1, n);
        commit c;
        t_case("long, %d nodes, page %d", n, i % 2 ? 16 : 0);
        f.page_size = i % 2 ? 16 : 0, f.heads = 3, f.planes = 2;
        f.with_src = f.page_size && n < 100;
        commit_make(&c, &f);
        memcpy(c.expected, c.data.host, c.data.bytes);
        for (int j = 1; j < n - 1; ++j) put_node(&c, 0, j, j + 1);
        for (int e = 0; e < c.row_pages && c.src_table.host; ++e) /* two tables, but the same */
            put_word(&c.src_table, e, word_at(&c.table, e));
        put_word(&c.accepted, 0, n - 2), put_word(&c.cache_len, 0, 5);
        expect_moves(&c, 0, 5, n - 2);
        c.want_len[0] = 5 + n - 1, c.want[0] = 0;
        t_upload();
        for (int side = 0; side <= T_DEVICE; ++side) {
            const specv_commit_path_desc d = commit_describe(&c, side);
            run_on(&d, side);
        }
        commit_check(&c);
        t_check_host();
        t_check_device();
        commit_free(&c);
    }
}

/* More rows than a block, or all blocks, look at at a time. */
static void test_batches(void) {
    static const int batches[] = {255, 257, 383, 384, 385, 1025, 2049, 5000};
    for (int i = 0; i < T_COUNT(batches) * 4; ++i) {
        form f = plain_form(batches[i / 4], 4);
        if (t.quick && (i % 4 > 0 || batches[i / 4] > 3000)) continue;
        t_case("batches:");
        f.heads = 1, f.head_bytes = i % 4 < 2 ? 1 : 16;
        f.page_size = i / 4 % 2 ? 2 : 0;
        f.max_positions = 6;
        f.num_sms = i % 3 ? 132 : 1;
        f.faults = i % 4 == 2 ? 30 : 0;
        f.lens = i % 4 ? LEN_IN_PLACE : i / 4 % 3;
        f.with_slots = i % 3 == 0;
        if (i % 5 == 4) f.live = batches[i / 4] - 100;
        commit_run(&f);
    }
}

/* Units of 16 bytes fit only where everything is a multiple of 16: each number that matters is the
   only one that is not, by 8, by 4 and by an odd number; heads are short, or long runs. */
static void test_units(void) {
    static const int by[] = {8, 4, 2, 1, 15};
    for (int i = 0; i < 6 * T_COUNT(by) * 4; ++i) {
        const int what = i % 6, off = by[i / 6 % T_COUNT(by)], way = i / 6 / T_COUNT(by);
        form f = plain_form(3, 6);
        if (t.quick && i % 3) continue;
        t_case("units, number %d is off by %d:", what, off);
        f.page_size = way % 2 ? 3 : 0;
        f.head_bytes = way < 2 ? 48 : 528, f.planes = 2;
        f.max_positions = 8;
        f.order = i % 2 ? "ovhp" : "ovph";
        if (way >= 2) f.head_bytes = 496; /* what has_tag and a tag's buffer hold */
        if (what < 4) f.gap[what] = off;
        if (what == 4) f.offset = off;
        if (what == 5) f.head_bytes = way < 2 ? 48 + off : 480 + off;
        if (way >= 2) f.heads = what == 5 ? 1 : 2;
        commit_run(&f);
    }
}

/* Nothing to commit, in each way, and batch 0. */
static void test_nothing(void) {
    for (int i = 0; i < 24; ++i) {
        form f = plain_form(i % 4 ? 5 : 0, i % 3 ? 1 : 6);
        t_case("nothing:");
        f.planes = i % 4 - 1;
        f.page_size = i % 5 == 0 ? 4 : 0;
        f.chains = 100;
        f.lens = i % 3;
        if (i % 6 == 1) f.live = 0;
        commit_run(&f);
    }
}

/* ------------------------------------------------------------------------- several launches */

enum { STEPS = 6, STEP_ROWS = 19, STEP_NODES = 12, STEP_POSITIONS = 48, STEP_PAGE = 4 };
enum { STEP_ROW_PAGES = STEP_POSITIONS / STEP_PAGE, STEP_BYTES = 24 };

/* Step after step of one text: a pass writes a tree's rows behind the text, the path of it that is
   accepted is committed to two caches, the first without new lengths, and the next pass writes
   behind that. In the end both caches hold the text's rows, in order, as if nothing else had ever
   been there. */
static void test_steps(void) {
    for (int turn = 0; turn < (t.quick ? 4 : 12); ++turn) {
        const int paged = turn % 2;
        int32_t len[STEP_ROWS], text[STEP_ROWS][STEP_POSITIONS];
        int32_t path[STEPS][STEP_ROWS][STEP_NODES];
        t_case("%d steps, %s", STEPS, paged ? "paged" : "padded");
        t_buf cache_len = t_out(4 * STEP_ROWS, 0), ticket = t_out(4, 0), status = t_out(4, 0);
        t_buf paths = t_in(4 * STEPS * STEP_ROWS * STEP_NODES, 0);
        t_buf accepted = t_in(4 * STEPS * STEP_ROWS, 0);
        t_buf table = t_in(4 * STEP_ROWS * STEP_ROW_PAGES, 0), data[2];
        t_buf rows = t_in(2 * STEPS * STEP_ROWS * STEP_NODES * STEP_BYTES, 0);
        (void)status;
        for (int k = 0; k < 2; ++k) data[k] = t_out(STEP_ROWS * STEP_POSITIONS * STEP_BYTES, 0);
        for (int i = 0; i < STEP_ROWS * STEP_ROW_PAGES; ++i)
            put_word(&table, i, (i * 7 + turn) % (STEP_ROWS * STEP_ROW_PAGES));
        put_word(&ticket, 0, 0);
        memset(path, 0xff, sizeof path);
        for (int row = 0; row < STEP_ROWS; ++row) {
            len[row] = 0;
            put_word(&cache_len, row, 0);
            for (int i = 0; i < STEPS; ++i) {
                int32_t count = 0;
                path[i][row][0] = 0;
                for (int node = 1; node < STEP_NODES && count < 6; ++node)
                    if (t_chance(30)) path[i][row][++count] = node;
                put_word(&accepted, i * STEP_ROWS + row, count);
                for (int j = 0; j <= count; ++j)
                    text[row][len[row]++] = i * STEP_NODES + path[i][row][j];
            }
        }
        memcpy(paths.host, path, sizeof path);
        for (int k = 0; k < 2; ++k) /* what the pass of each step writes */
            for (int i = 0; i < STEPS; ++i)
                for (int row = 0; row < STEP_ROWS; ++row)
                    for (int node = 0; node < STEP_NODES; ++node)
                        tag_bytes(rows.host +
                                      (((k * STEPS + i) * STEP_ROWS + row) * STEP_NODES + node) *
                                          STEP_BYTES,
                                  STEP_BYTES, row, i * STEP_NODES + node, 0, k);
        t_upload();
        for (int side = 0; side <= T_DEVICE; ++side) {
            int32_t at[STEP_ROWS] = {0};
            for (int i = 0; i < STEPS; ++i) {
                specv_commit_path_desc d = SPECV_ZERO;
                for (int row = 0; row < STEP_ROWS; ++row) {
                    for (int k = 0; k < 2; ++k)
                        for (int node = 0; node < STEP_NODES; ++node) {
                            const int x = at[row] + node;
                            const int64_t from =
                                ((k * STEPS + i) * STEP_ROWS + row) * STEP_NODES + node;
                            int64_t to = row * STEP_POSITIONS + x;
                            if (x >= STEP_POSITIONS) continue;
                            if (paged)
                                to =
                                    (int64_t)word_at(&table, row * STEP_ROW_PAGES + x / STEP_PAGE) *
                                        STEP_PAGE +
                                    x % STEP_PAGE;
                            char *put = (char *)t_at(&data[k], side) + to * STEP_BYTES;
                            const char *get = (const char *)rows.host + from * STEP_BYTES;
#if T_DEVICE
                            T_CUDA(cudaMemcpy(put, get, STEP_BYTES, cudaMemcpyDefault));
#else
                            memcpy(put, get, STEP_BYTES);
#endif
                        }
                    at[row] += 1 + word_at(&accepted, i * STEP_ROWS + row);
                }
                d.batch = STEP_ROWS, d.max_nodes = STEP_NODES, d.num_sms = 1 + turn % 3;
                d.accepted_len = (const int32_t *)t_at(&accepted, side) + i * STEP_ROWS;
                d.path = (const int32_t *)t_at(&paths, side) + i * STEP_ROWS * STEP_NODES;
                d.cache_len = (const int32_t *)t_at(&cache_len, side);
                d.kv.head_bytes = STEP_BYTES, d.kv.max_positions = STEP_POSITIONS;
                if (paged) {
                    d.kv.block_table = (int32_t *)t_at(&table, side);
                    d.kv.page_size = STEP_PAGE, d.kv.num_pages = STEP_ROWS * STEP_ROW_PAGES;
                }
                d.kv.plane = t_at(&data[0], side);
                run_on(&d, side);
                d.kv.plane = t_at(&data[1], side);
                d.new_cache_len = (int32_t *)t_at(&cache_len, side);
                d.ticket = (uint32_t *)t_at(&ticket, side);
                run_on(&d, side);
            }
        }
        for (int row = 0; row < STEP_ROWS; ++row) {
            CHECK_EQ(word_at(&cache_len, row), len[row], row);
            for (int x = 0; x < len[row] && len[row] + STEP_NODES <= STEP_POSITIONS; ++x)
                for (int k = 0; k < 2; ++k) {
                    const int page = word_at(&table, row * STEP_ROW_PAGES + x / STEP_PAGE);
                    const int64_t to =
                        paged ? page * STEP_PAGE + x % STEP_PAGE : row * STEP_POSITIONS + x;
                    char tag[STEP_BYTES];
                    tag_bytes(tag, STEP_BYTES, row, text[row][x], 0, k);
                    CHECK_EQ(memcmp(data[k].host + to * STEP_BYTES, tag, STEP_BYTES), 0, row);
                }
        }
        t_check_host();
        t_check_device();
    }
}

/* The same launch again and again, on the device from a graph, with the lengths that it left: the
   path's nodes are where the last launch's end is. */
static void test_replay(void) {
    for (int turn = 0; turn < (t.quick ? 4 : 12); ++turn) {
        enum { REPLAYS = 3 };
        form f = plain_form(turn % 2 ? 70 : 3, 6);
        commit c;
        specv_commit_path_desc d;
        t_case("%d replays, turn %d", REPLAYS, turn);
        f.page_size = turn / 2 % 2 ? 3 : 0, f.planes = 1, f.max_positions = 40;
        f.num_sms = turn % 3 ? 132 : 1;
        commit_make(&c, &f);
        memcpy(c.expected, c.data.host, c.data.bytes);
        for (int row = 0; row < f.batch; ++row) {
            const int32_t accepted = word_at(&c.accepted, row);
            int32_t len = row % 7;
            put_word(&c.cache_len, row, len);
            for (int k = 0; k < REPLAYS; ++k, len += accepted + 1) {
                for (int j = 0; j <= accepted; ++j) {
                    const int64_t to = place_of(&c, row, len + j, 0);
                    const int64_t from = place_of(&c, row, len + node_at(&c, row, j), 1);
                    const grid *g = &c.cache;
                    for (int h = 0; h < f.heads; ++h) /* ascending, so that a loop will do */
                        memcpy(c.expected + grid_at(g, outer_of(&c, to), pos_of(&c, to), h, 0),
                               c.expected + grid_at(g, outer_of(&c, from), pos_of(&c, from), h, 0),
                               (size_t)g->elem_bytes);
                }
            }
            c.want_len[row] = len;
        }
        t_upload();
        d = commit_describe(&c, T_HOST_SIDE);
        for (int k = 0; k < REPLAYS; ++k) run_on(&d, T_HOST_SIDE);
#if T_DEVICE
        cudaStream_t stream = t_begin_graph();
        d = commit_describe(&c, T_DEVICE_SIDE);
        CHECK_EQ(specv_commit_path(&d, stream), SPECV_OK, -1);
        t_run_graph(stream, REPLAYS);
#endif
        commit_check(&c);
        t_check_host();
        t_check_device();
        commit_free(&c);
    }
}

#if T_DEVICE
/* Every live row says that the ticket was bad, and lengths are what they were. */
static void run_bad_ticket(int blocks, int kind) {
    form f = plain_form(10, 6);
    commit c;
    f.heads = 3, f.head_bytes = 64, f.planes = 8, f.num_sms = blocks, f.live = 8;
    commit_make(&c, &f);
    t_upload();
    specv_commit_path_desc d = commit_describe(&c, T_DEVICE_SIDE);
    TICKET_LAUNCH(commit_path, d, blocks, kind);
    for (int row = 0; row < f.batch; ++row) {
        CHECK_EQ(word_on_device(c.cache_len.device, row), word_at(&c.cache_len, row), row);
        CHECK_EQ((uint32_t)word_on_device(c.status.device, row),
                 row < f.live ? c.want[row] | SPECV_ROW_BAD_TICKET : 0, row);
    }
    commit_free(&c);
}
#endif

static void test_tickets(void) { TICKET_CASES(run_bad_ticket, 2, 3, 4, 5); }

/* The kernel may be the programmatic dependent of the one that writes its inputs: it waits before
   it reads. Without a wait the interpreter reports what was read too early. */
static void test_dependents(void) {
#if T_DEVICE
    static const int32_t input[] = {2, 1, 10, 20, 0, 2, 3, 0, 1, 9}; /* accepted, lengths, paths */
    t_case("dependent");
    t_buf staged = t_in(sizeof input, 0), made = t_out(sizeof input, 0), ticket = t_out(4, 0);
    memcpy(staged.host, input, sizeof input);
    put_word(&ticket, 0, 0);
    t_upload();
    specv_commit_path_desc d = SPECV_ZERO;
    d.batch = 2, d.max_nodes = 4, d.max_depth = 2, d.kv.max_positions = 100;
    d.accepted_len = (const int32_t *)made.device;
    d.cache_len = d.new_cache_len = (int32_t *)made.device + 2;
    d.path = (const int32_t *)made.device + 4;
    d.ticket = (uint32_t *)ticket.device;
    t_produce(made.device, staged.device, sizeof input);
    d.chained = SPECV_CHAINED_AFTER;
    CHECK_EQ(specv_commit_path(&d, 0), SPECV_OK, -1);
    t_check_dependents();
    memcpy(made.host, input, sizeof input);
    put_word(&made, 2, 13), put_word(&made, 3, 22);
    t_check_device();
#else
    t_skip("dependent launches need a device");
#endif
}

/* --------------------------------------------------------------------------------- validation */

static int64_t storage[64]; /* something to point to: nothing of it is read or written */

static void *misaligned(void) { return (char *)storage + 2; }

static specv_commit_path_desc valid_desc(void) {
    specv_commit_path_desc d = SPECV_ZERO;
    d.batch = 4, d.max_nodes = 8;
    d.accepted_len = d.path = d.cache_len = (int32_t *)storage;
    d.new_cache_len = (int32_t *)storage;
    d.ticket = (uint32_t *)storage;
    d.kv.plane = storage;
    d.kv.head_bytes = 16, d.kv.num_heads = 4, d.kv.max_positions = 100;
    return d;
}

static void make_paged(specv_commit_path_desc *d) {
    d->kv.block_table = (int32_t *)storage;
    d->kv.page_size = 16, d->kv.num_pages = 50;
}

#if !T_DEVICE
#define specv_commit_path(d, stream) specv_ref_commit_path(d)
#endif

#define EXPECT(code, change)                                                                       \
    do {                                                                                           \
        specv_commit_path_desc d = valid_desc();                                                   \
        change;                                                                                    \
        CHECK_EQ(specv_commit_path_validate(&d), code, -1);                                        \
        if ((code) != SPECV_OK) CHECK_EQ(specv_ref_commit_path(&d), code, -1);                     \
        if ((code) != SPECV_OK) CHECK_EQ(specv_commit_path(&d, 0), code, -1);                      \
    } while (0)

#define EXPECT_PAGED(code, change) EXPECT(code, (make_paged(&d), change))

static void test_validation(void) {
    t_case("validation");
    CHECK_EQ(specv_commit_path_validate(NULL), SPECV_ERR_NULL_DESC, -1);
    EXPECT(SPECV_OK, (void)0);
    EXPECT(SPECV_ERR_CANARY, d.canary0 = 1);
    EXPECT(SPECV_ERR_CANARY, d.canary1 = 1);
    EXPECT(SPECV_ERR_CANARY, d.kv.reserved = 1);
    EXPECT(SPECV_ERR_CHAINED, d.chained = 4);
    EXPECT(SPECV_ERR_BATCH, d.batch = -1);
    EXPECT(SPECV_ERR_TREE, d.max_nodes = 0);
    EXPECT(SPECV_ERR_TREE, d.max_nodes = SPECV_MAX_NODES + 1);
    EXPECT(SPECV_OK, d.max_nodes = SPECV_MAX_NODES);
    EXPECT(SPECV_ERR_TREE, d.num_nodes = (int32_t *)misaligned());
    EXPECT(SPECV_ERR_PATH, d.max_depth = 8);
    EXPECT(SPECV_ERR_PATH, d.max_depth = -1);
    EXPECT(SPECV_OK, d.max_depth = 7);
    EXPECT(SPECV_ERR_TOO_LARGE, (d.batch = (1 << 20) + 1, d.max_nodes = 1024));
    EXPECT(SPECV_ERR_NUM_ACTIVE, d.num_active = (int32_t *)misaligned());
    EXPECT(SPECV_ERR_SLOT, d.slot = storage);
    EXPECT(SPECV_ERR_SLOT, (d.slot = misaligned(), d.num_slots = 9));
    EXPECT(SPECV_OK, (d.slot = storage, d.num_slots = INT32_MAX));
    EXPECT(SPECV_ERR_ACCEPTED_LEN, d.accepted_len = NULL);
    EXPECT(SPECV_ERR_ACCEPTED_LEN, d.accepted_len = (int32_t *)misaligned());
    EXPECT(SPECV_ERR_PATH, d.path = NULL);
    EXPECT(SPECV_ERR_PATH, d.path = (int32_t *)misaligned());
    EXPECT(SPECV_ERR_PATH, d.path_stride_elems = 7);
    EXPECT(SPECV_ERR_PATH, d.path_stride_elems = -1);
    EXPECT(SPECV_OK, (d.path_stride_elems = 7, d.max_depth = 6));
    EXPECT(SPECV_ERR_SIZE, d.path_stride_elems = INT64_MAX / 16);
    EXPECT(SPECV_ERR_CACHE_LEN, d.cache_len = NULL);
    EXPECT(SPECV_ERR_CACHE_LEN, d.cache_len = (int32_t *)misaligned());
    EXPECT(SPECV_ERR_CACHE_LEN, d.new_cache_len = (int32_t *)misaligned());
    EXPECT(SPECV_ERR_TICKET, d.ticket = NULL);
    EXPECT(SPECV_ERR_TICKET, d.ticket = (uint32_t *)misaligned());
    EXPECT(SPECV_OK, (d.ticket = NULL, d.new_cache_len = NULL));
    EXPECT(SPECV_OK, (d.batch = 0, d.accepted_len = d.path = d.cache_len = NULL, d.ticket = NULL));
    EXPECT(SPECV_ERR_BLOCK_TABLE, d.src_block_table = (int32_t *)storage);
    EXPECT_PAGED(SPECV_OK, d.src_block_table = (int32_t *)storage);
    EXPECT_PAGED(SPECV_ERR_BLOCK_TABLE, d.src_block_table = (int32_t *)misaligned());
    EXPECT_PAGED(SPECV_ERR_TABLE_STRIDE, d.src_table_stride_elems = 7);
    EXPECT_PAGED(SPECV_ERR_TABLE_STRIDE,
                 (d.src_table_stride_elems = 6, d.src_block_table = (int32_t *)storage));
    EXPECT_PAGED(SPECV_OK, (d.src_table_stride_elems = 7, d.src_block_table = (int32_t *)storage));
    EXPECT_PAGED(SPECV_ERR_SIZE, (d.src_table_stride_elems = INT64_MAX / 16,
                                  d.src_block_table = (int32_t *)storage));
    EXPECT(SPECV_ERR_PAGE_REFS, d.page_refs = (int32_t *)storage);
    EXPECT_PAGED(SPECV_OK, d.page_refs = (int32_t *)storage);
    EXPECT_PAGED(SPECV_ERR_PAGE_REFS, d.page_refs = (int32_t *)misaligned());
    EXPECT(SPECV_ERR_ROW_STATUS, d.row_status = (uint32_t *)misaligned());
    EXPECT(SPECV_ERR_KEEP_STATUS, d.keep_status = 2);
    EXPECT(SPECV_ERR_NUM_SMS, d.num_sms = -1);
    EXPECT(SPECV_ERR_NUM_SMS, d.num_sms = 65536);
    EXPECT(SPECV_ERR_MAX_POSITIONS, d.kv.max_positions = 0);
    EXPECT(SPECV_ERR_HEAD_BYTES, d.kv.head_bytes = 0);
    EXPECT(SPECV_OK, (d.kv.plane = NULL, d.kv.head_bytes = 0));
    EXPECT_PAGED(SPECV_ERR_PAGE_SIZE, d.kv.page_size = 0);
}

int main(int argc, char **argv) {
    static const t_group groups[] = {
        {"commit-shapes", test_shapes},
        {"commit-faults", test_faults},
        {"commit-tables", test_tables},
        {"commit-paths", test_all_paths},
        {"commit-long", test_long},
        {"commit-batches", test_batches},
        {"commit-units", test_units},
        {"commit-nothing", test_nothing},
        {"commit-steps", test_steps},
        {"commit-replay", test_replay},
        {"commit-tickets", test_tickets},
        {"commit-dependents", test_dependents},
        {"commit-validation", test_validation},
    };
    return t_main(argc, argv, groups, T_COUNT(groups));
}
