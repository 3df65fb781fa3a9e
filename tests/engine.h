/* engine.h - a small engine with pages (resize, append, fork, finish) next to a model of it.

   The model knows nothing of reference counts: it keeps, for each sequence, the list of its pages
   and the tag of each position, and counts owners anew whenever it wants to know them. */

#ifndef ENGINE_H_INCLUDED
#define ENGINE_H_INCLUDED

#include "cache.h"

enum { NO = -1 };

T_FN void run_resize(const specv_page_resize_desc *d, int side) {
    if (side == T_HOST_SIDE) CHECK_EQ(specv_ref_page_resize(d), SPECV_OK, -1);
#if T_DEVICE
    if (side == T_DEVICE_SIDE) CHECK_EQ(specv_page_resize(d, 0), SPECV_OK, -1);
#endif
}

T_FN void run_fork(const specv_page_fork_desc *d, int side) {
    if (side == T_HOST_SIDE) CHECK_EQ(specv_ref_page_fork(d), SPECV_OK, -1);
#if T_DEVICE
    if (side == T_DEVICE_SIDE) CHECK_EQ(specv_page_fork(d, 0), SPECV_OK, -1);
#endif
}

enum { MAX_LEN = 64, DRAFTS = 4, PENDING = 1 };

typedef struct sequence {
    int32_t len, num_pages, finished;
    int32_t page[MAX_LEN];
    int64_t tag[MAX_LEN]; /* of the bytes at each position */
} sequence;

typedef struct engine {
    int num_rows, num_pages, size, positions, row_pages, table_stride_elems, planes, num_sms;
    sequence *rows; /* the model */
    int32_t *free_pages, *owners;
    char *poisoned; /* [num_pages]: free, and full of poison on both sides */
    int32_t num_free;
    int64_t next_tag;
    uint32_t *status; /* what the operation must say of each row */
    int32_t *copy_src_page, *copy_dst_page;
    grid g, source_grid;
    plane_table planes_of, source_planes;
    t_buf page_refs, stack, stack_size, table, num_row_pages, cache_len, ticket, accepted;
    t_buf finished, reserve, row_status, from, to, src, dst, source, data;
} engine;

T_FN void *zeros(int64_t count, size_t bytes) {
    void *p = calloc((size_t)count, bytes);
    if (!p) t_die(__FILE__, __LINE__, "engine", "no memory");
    return p;
}

/* Gives the device what the host has written for this step. */
T_FN void send(const t_buf *b, int64_t first, int64_t bytes) {
#if T_DEVICE
    if (bytes)
        T_CUDA(
            cudaMemcpy(b->device + first, b->host + first, (size_t)bytes, cudaMemcpyHostToDevice));
#else
    (void)b, (void)first, (void)bytes;
#endif
}

T_FN void engine_make(engine *e) {
    const int64_t n = e->num_rows;
    const int64_t gap[NUM_AXES] = {t_below(20), 0, 0, t_below(20)}, no_gap[NUM_AXES] = {0};
    e->row_pages = (e->positions + e->size - 1) / e->size;
    e->table_stride_elems = e->row_pages + (int)t_below(3);
    e->rows = (sequence *)zeros(n, sizeof(sequence));
    e->free_pages = (int32_t *)zeros(e->num_pages, 4);
    e->owners = (int32_t *)zeros(e->num_pages, 4);
    e->poisoned = (char *)zeros(e->num_pages, 1);
    e->status = (uint32_t *)zeros(n, 4);
    e->copy_src_page = (int32_t *)zeros(n, 4), e->copy_dst_page = (int32_t *)zeros(n, 4);
    e->g.count[AXIS_OUTER] = e->num_pages, e->g.count[AXIS_POS] = e->size;
    e->g.count[AXIS_HEAD] = 2, e->g.count[AXIS_PLANE] = e->planes;
    e->g.elem_bytes = t_chance(50) ? 16 : 5;
    grid_make(&e->g, grid_orders[t_below(3)], gap); /* a page's bytes in a plane lie together */
    e->page_refs = t_out(4 * e->num_pages, 0), e->stack = t_out(4 * e->num_pages, 0);
    e->stack_size = t_out(4, 0), e->ticket = t_out(4, 0);
    e->table = t_out(4 * n * e->table_stride_elems, 0);
    e->num_row_pages = t_out(4 * n, 0), e->cache_len = t_out(4 * n, 0);
    e->accepted = t_out(4 * n, 0), e->finished = t_out(n, 0), e->reserve = t_out(4 * n, 0);
    e->row_status = t_out(4 * n, 0), e->from = t_out(4 * n, 0), e->to = t_out(4 * n, 0);
    e->src = t_out(4 * n, 0), e->dst = t_out(4 * n, 0);
    e->source_grid = e->g;
    e->source_grid.count[AXIS_OUTER] = n, e->source_grid.count[AXIS_POS] = PENDING + DRAFTS;
    grid_make(&e->source_grid, "voph", no_gap);
    e->source = t_out(e->source_grid.bytes, 0);
    e->data = t_out(e->g.bytes, 0);
    for (int i = 0; i < e->num_pages; ++i) {
        const int64_t j = t_below(i + 1);
        e->free_pages[i] = e->free_pages[j];
        e->free_pages[j] = i;
        put_word(&e->page_refs, i, 0);
        e->poisoned[i] = 1;
    }
    for (int i = 0; i < e->num_pages; ++i) put_word(&e->stack, i, e->free_pages[i]);
    put_word(&e->stack_size, 0, e->num_free = e->num_pages);
    put_word(&e->ticket, 0, 0);
    for (int row = 0; row < e->num_rows; ++row) {
        put_word(&e->num_row_pages, row, 0), put_word(&e->cache_len, row, 0);
        e->rows[row].finished = row % 2; /* the others have arrived */
    }
    for (int64_t i = 0; i < n * e->table_stride_elems; ++i)
        if (i % e->table_stride_elems < e->row_pages) put_word(&e->table, i, NO);
    table_make(&e->planes_of, &e->data, &e->g, 0);
    table_make(&e->source_planes, &e->source, &e->source_grid, 0);
    t_upload();
}

T_FN void engine_free(engine *e) {
    table_free(&e->planes_of);
    table_free(&e->source_planes);
    free(e->rows);
    free(e->free_pages);
    free(e->owners);
    free(e->poisoned);
    free(e->status);
    free(e->copy_src_page);
    free(e->copy_dst_page);
}

T_FN void count_owners(engine *e) {
    memset(e->owners, 0, 4 * (size_t)e->num_pages);
    for (int row = 0; row < e->num_rows; ++row)
        for (int i = 0; i < e->rows[row].num_pages; ++i) e->owners[e->rows[row].page[i]] += 1;
}

T_FN int pages_for(const engine *e, int64_t positions) {
    return (int)((positions + e->size - 1) / e->size);
}

/* ---- the model of each operation */

T_FN int row_wants(const engine *e, int row) {
    const sequence *s = &e->rows[row];
    const int want = s->len + word_at(&e->reserve, row);
    return s->finished ? 0 : want < e->positions ? want : e->positions;
}

T_FN void model_give_back(engine *e) {
    static int32_t given[SPECV_PAGE_ROWS * MAX_LEN];
    int count = 0;
    for (int row = 0; row < e->num_rows; ++row) {
        sequence *s = &e->rows[row];
        const int keep = pages_for(e, row_wants(e, row));
        if (word_at(&e->reserve, row) < 0) continue;
        for (int i = keep; i < s->num_pages; ++i) given[count++] = s->page[i];
        if (keep < s->num_pages) s->num_pages = keep;
    }
    count_owners(e);
    for (int i = 0; i < count; ++i) {
        if (e->owners[given[i]] != 0) continue;
        e->owners[given[i]] = -1; /* once */
        e->free_pages[e->num_free++] = given[i];
    }
}

T_FN void model_take(engine *e) {
    int dry = 0;
    count_owners(e);
    for (int row = 0; row < e->num_rows; ++row) {
        sequence *s = &e->rows[row];
        const int want = row_wants(e, row), keep = pages_for(e, want);
        const int bad = word_at(&e->reserve, row) < 0;
        const int at = s->len / e->size; /* the page that is partly filled */
        int copy, needs;
        e->status[row] = bad ? SPECV_ROW_BAD_LENGTH : 0;
        if (bad) continue;
        copy = want > s->len && s->len % e->size && e->owners[s->page[at]] > 1;
        needs = copy + (keep > s->num_pages ? keep - s->num_pages : 0);
        if (needs > 0 && (dry || needs > e->num_free)) {
            e->status[row] = SPECV_ROW_NO_SPACE;
            dry = 1;
        } else if (needs > 0) {
            if (copy) {
                const int32_t page = e->free_pages[--e->num_free];
                e->copy_src_page[row] = s->page[at], e->copy_dst_page[row] = page;
                e->owners[s->page[at]] -= 1;
                s->page[at] = page;
            }
            while (s->num_pages < keep) s->page[s->num_pages++] = e->free_pages[--e->num_free];
        }
    }
}

T_FN void model_resize(engine *e) {
    for (int row = 0; row < e->num_rows; ++row) e->copy_src_page[row] = e->copy_dst_page[row] = NO;
    model_give_back(e);
    model_take(e);
}

T_FN void model_append(engine *e) {
    memset(e->source.host, 0x5A, e->source.bytes); /* rows of rejected drafts */
    count_owners(e);
    for (int row = 0; row < e->num_rows; ++row) {
        sequence *s = &e->rows[row];
        const int count = PENDING + word_at(&e->accepted, row);
        uint32_t status = s->len + count > e->positions ? SPECV_ROW_NO_SPACE : 0;
        for (int i = s->len / e->size;
             !(status & SPECV_ROW_NO_SPACE) && i <= (s->len + count - 1) / e->size; ++i)
            status |= i >= s->num_pages            ? (uint32_t)SPECV_ROW_BAD_PAGE
                      : e->owners[s->page[i]] != 1 ? (uint32_t)SPECV_ROW_SHARED_PAGE
                                                   : 0;
        e->status[row] = status;
        for (int j = 0; j < count && !status; ++j) {
            s->tag[s->len++] = ++e->next_tag;
            for (int v = 0; v < e->planes; ++v)
                tag_position(e->source.host, &e->source_grid, row, j, v, e->next_tag, 0);
        }
    }
}

T_FN uint32_t model_fork(engine *e, int src, int dst) {
    const sequence *from = &e->rows[src];
    sequence *to = &e->rows[dst];
    if (to->num_pages) return SPECV_ROW_BAD_LENGTH;
    to->num_pages = pages_for(e, from->len);
    to->len = from->len;
    for (int i = 0; i < to->num_pages; ++i) to->page[i] = from->page[i];
    for (int x = 0; x < to->len; ++x) to->tag[x] = from->tag[x];
    return 0;
}

/* ---- the operations themselves */

T_FN void engine_kv(const engine *e, specv_kv_cache *kv, int side) {
    kv->planes = table_at(&e->planes_of, side);
    kv->block_table = (int32_t *)t_at(&e->table, side);
    kv->head_bytes = e->g.elem_bytes, kv->num_heads = 2, kv->num_planes = e->planes;
    kv->head_stride_bytes = e->g.stride[AXIS_HEAD];
    kv->pos_stride_bytes = e->g.stride[AXIS_POS];
    kv->page_stride_bytes = e->g.stride[AXIS_OUTER];
    kv->table_stride_elems = e->table_stride_elems;
    kv->max_positions = e->positions, kv->page_size = e->size, kv->num_pages = e->num_pages;
}

T_FN specv_page_resize_desc describe_resize(const engine *e, int side) {
    specv_page_resize_desc d = SPECV_ZERO;
    d.pool.page_refs = (int32_t *)t_at(&e->page_refs, side);
    d.pool.free_pages = (int32_t *)t_at(&e->stack, side);
    d.pool.num_free = (int32_t *)t_at(&e->stack_size, side);
    d.num_row_pages = (int32_t *)t_at(&e->num_row_pages, side);
    d.cache_len = (const int32_t *)t_at(&e->cache_len, side);
    d.row_reserve = (const int32_t *)t_at(&e->reserve, side);
    d.finished = (const uint8_t *)t_at(&e->finished, side);
    d.copy_src_page = (int32_t *)t_at(&e->from, side),
    d.copy_dst_page = (int32_t *)t_at(&e->to, side);
    d.row_status = (uint32_t *)t_at(&e->row_status, side);
    d.batch = e->num_rows, d.num_sms = e->num_sms;
    engine_kv(e, &d.kv, side);
    return d;
}

T_FN void engine_resize(const engine *e, int side) {
    specv_page_resize_desc d = describe_resize(e, side);
    run_resize(&d, side);
}

T_FN specv_append_kv_desc describe_append(const engine *e, int side) {
    specv_append_kv_desc d = SPECV_ZERO;
    d.rows.batch = e->num_rows, d.rows.max_draft = DRAFTS, d.num_pending = PENDING;
    d.accepted_len = (const int32_t *)t_at(&e->accepted, side);
    d.cache_len = (int32_t *)t_at(&e->cache_len, side);
    d.page_refs = (const int32_t *)t_at(&e->page_refs, side);
    d.row_status = (uint32_t *)t_at(&e->row_status, side);
    d.ticket = (uint32_t *)t_at(&e->ticket, side);
    d.src.planes = (const void *const *)table_at(&e->source_planes, side);
    d.num_sms = e->num_sms;
    engine_kv(e, &d.kv, side);
    return d;
}

T_FN void engine_append(const engine *e, int side) {
    specv_append_kv_desc d = describe_append(e, side);
    if (side == T_HOST_SIDE) CHECK_EQ(specv_ref_append_kv(&d), SPECV_OK, -1);
#if T_DEVICE
    if (side == T_DEVICE_SIDE) CHECK_EQ(specv_append_kv(&d, 0), SPECV_OK, -1);
#endif
}

T_FN void engine_fork(const engine *e, int num_forks, int side) {
    specv_page_fork_desc d = SPECV_ZERO;
    d.page_refs = (int32_t *)t_at(&e->page_refs, side);
    d.block_table = (int32_t *)t_at(&e->table, side);
    d.num_row_pages = (int32_t *)t_at(&e->num_row_pages, side);
    d.cache_len = (int32_t *)t_at(&e->cache_len, side);
    d.src_slot = (const int32_t *)t_at(&e->src, side);
    d.dst_slot = (const int32_t *)t_at(&e->dst, side);
    d.fork_status = (uint32_t *)t_at(&e->row_status, side);
    d.table_stride_elems = e->table_stride_elems;
    d.num_slots = e->num_rows, d.num_forks = num_forks;
    d.page_size = e->size, d.num_pages = e->num_pages, d.max_row_pages = e->row_pages;
    run_fork(&d, side);
}

/* ---- what must hold after every step */

T_FN void check_model(engine *e, int num_status) {
    int wrong = -1;
    count_owners(e);
    for (int row = 0; row < e->num_rows; ++row) {
        const sequence *s = &e->rows[row];
        CHECK_EQ(word_at(&e->num_row_pages, row), s->num_pages, row);
        CHECK_EQ(word_at(&e->cache_len, row), s->len, row);
        for (int i = 0; i < e->row_pages; ++i)
            CHECK_EQ(word_at(&e->table, (int64_t)row * e->table_stride_elems + i),
                     i < s->num_pages ? s->page[i] : NO, row);
        for (int x = 0; x < s->len && s->num_pages; ++x)
            for (int v = 0; v < e->planes; ++v)
                if (!has_tag(e->data.host, &e->g, s->page[x / e->size], x % e->size, v, s->tag[x],
                             0))
                    wrong = row;
    }
    CHECK_EQ(wrong, -1, wrong); /* a row whose KV is not its own */
    CHECK_EQ(word_at(&e->stack_size, 0), e->num_free, -1);
    for (int i = 0; i < e->num_free; ++i) {
        CHECK_EQ(word_at(&e->stack, i), e->free_pages[i], i);
        CHECK_EQ(e->owners[e->free_pages[i]], 0, i);
        e->owners[e->free_pages[i]] = -1; /* once */
    }
    for (int page = 0; page < e->num_pages; ++page) {
        CHECK(e->owners[page] != 0); /* free or owned, nothing between */
        CHECK_EQ(word_at(&e->page_refs, page), e->owners[page] < 0 ? 0 : e->owners[page], page);
    }
    for (int row = 0; row < num_status; ++row)
        CHECK_EQ((uint32_t)word_at(&e->row_status, row), e->status[row], row);
    CHECK_EQ(word_at(&e->ticket, 0), 0, -1);
}

T_FN int is_poison(const char *data, int64_t bytes) {
    for (int64_t i = 0; i < bytes; ++i)
        if ((uint8_t)data[i] != T_POISON) return 0;
    return 1;
}

/* Free pages hold nothing: what is read from there shows. Nobody may write there either. */
T_FN void poison_free_pages(engine *e) {
    const int64_t bytes = e->size * 2 * e->g.elem_bytes;
    for (int page = 0; page < e->num_pages; ++page) {
        const int is_free = e->owners[page] < 0;
        for (int v = 0; v < e->planes && is_free; ++v) {
            char *at = e->data.host + grid_at(&e->g, page, 0, 0, v);
            if (e->poisoned[page]) CHECK(is_poison(at, bytes));
            if (e->poisoned[page]) continue;
            memset(at, T_POISON, (size_t)bytes);
#if T_DEVICE
            T_CUDA(cudaMemset(e->data.device + (at - e->data.host), T_POISON, (size_t)bytes));
#endif
        }
        e->poisoned[page] = (char)is_free;
    }
}

/* ---- one step after the other */

/* Rows leave, arrive, and ask for pages: as many as the next append can fill, or any number. */
T_FN void draw_requests(engine *e, int leave) {
    for (int row = 0; row < e->num_rows; ++row) {
        sequence *s = &e->rows[row];
        const int full = s->len + PENDING + DRAFTS > e->positions;
        int32_t reserve = PENDING + DRAFTS;
        if (t_chance(10)) reserve = (int32_t)t_below(12);
        if (t_chance(2)) reserve = -1;
        if (!s->finished && t_chance(full ? 40 : leave)) {
            s->finished = 1;
        } else if (s->finished && s->num_pages == 0 && t_chance(30)) {
            s->finished = 0;
            put_word(&e->cache_len, row, s->len = 0);
            send(&e->cache_len, 4 * row, 4);
        }
        put_word(&e->reserve, row, reserve);
        e->finished.host[row] = (char)(s->finished ? 1 + t_below(200) : 0);
    }
    send(&e->reserve, 0, 4 * e->num_rows);
    send(&e->finished, 0, e->num_rows);
}

/* Rows with pages give some to rows without. Now and then the other row has pages as well. */
T_FN int draw_forks(engine *e, int most) {
    int count = 0;
    for (int i = 0; i < most * 4 && count < most; ++i) {
        const int src = (int)t_below(e->num_rows), dst = (int)t_below(e->num_rows);
        int known = src == dst || e->rows[src].num_pages == 0;
        for (int k = 0; k < count; ++k)
            known |= word_at(&e->dst, k) == dst || word_at(&e->dst, k) == src ||
                     word_at(&e->src, k) == dst;
        if (known || (e->rows[dst].num_pages && !t_chance(3))) continue;
        put_word(&e->src, count, src);
        put_word(&e->dst, count++, dst);
    }
    for (int k = 0; k < count; ++k) {
        const int dst = word_at(&e->dst, k);
        e->status[k] = model_fork(e, word_at(&e->src, k), dst);
        if (!e->status[k]) e->rows[dst].finished = 0;
    }
    send(&e->src, 0, 4 * count);
    send(&e->dst, 0, 4 * count);
    return count;
}

/* Pages, then tokens. `leave`: per cent of rows that finish. */
T_FN void engine_grow(engine *e, int leave) {
    draw_requests(e, leave);
    model_resize(e);
    for (int side = 0; side <= T_DEVICE; ++side) engine_resize(e, side);
    for (int row = 0; row < e->num_rows; ++row) {
        CHECK_EQ(word_at(&e->from, row), e->copy_src_page[row], row);
        CHECK_EQ(word_at(&e->to, row), e->copy_dst_page[row], row);
    }
    check_model(e, e->num_rows);
    poison_free_pages(e);

    for (int row = 0; row < e->num_rows; ++row)
        put_word(&e->accepted, row, t_chance(30) ? DRAFTS : (int32_t)t_below(DRAFTS + 1));
    model_append(e);
    send(&e->accepted, 0, 4 * e->num_rows);
    send(&e->source, 0, (int64_t)e->source.bytes);
    for (int side = 0; side <= T_DEVICE; ++side) engine_append(e, side);
    check_model(e, e->num_rows);
}

T_FN void engine_step(engine *e, int leave, int forks) {
    int count;
    engine_grow(e, leave);
    count = forks ? draw_forks(e, forks) : 0;
    for (int side = 0; side <= T_DEVICE && forks; ++side) engine_fork(e, count, side);
    if (forks) check_model(e, count);
}

#endif /* ENGINE_H_INCLUDED */
