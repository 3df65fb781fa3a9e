/* append.h - a case of B3: a batch with sources, caches and tables whose outcome is known.

   For every row an outcome is drawn first (appended, full, a page out of range, ...), then the
   lengths and table entries that lead there. Every byte of cache and source says where it belongs:
   see cache.h. Positions that the row has in its cache already carry tags as well, so a byte that
   is written in front of cache_len is seen like one behind. */

#ifndef APPEND_H_INCLUDED
#define APPEND_H_INCLUDED

#include "cache.h"
#include "slots.h"

/* Outputs that may be null, as bits. */
enum { GIVE_DRAFT = 1, GIVE_DRAFT_LACKS = 2, GIVE_SLOTS = 4, GIVE_IDS = 8, GIVE_STATUS = 16 };
enum { GIVE_ALL = 31 };

typedef enum fault {
    FAULT_NONE,
    FAULT_ACCEPTED,    /* accepted_len is out of range */
    FAULT_CACHE_LEN,   /* cache_len is */
    FAULT_DRAFT_CACHE, /* draft_cache_len is: the rows are appended all the same */
    FAULT_FULL,        /* no room in the sequence */
    FAULT_PAGE,        /* a page that would be written is none */
    FAULT_SHARED,      /* a page that would be written has another number of owners than one */
    FAULT_BOTH,        /* both of these */
    NUM_FAULTS
} fault;

typedef struct form {
    shape s; /* batch, drafts, layout, num_active; END_BAD_LENGTH in endings */
    int pending, heads, max_positions, num_sms;
    int page_size; /* 0: padded */
    int planes;    /* -1: none, 0: one without a table, n: a table of n */
    int64_t head_bytes, src_gap[NUM_AXES], dst_gap[NUM_AXES];
    const char *src_order, *dst_order;
    int src_offset, dst_offset; /* bytes from a 16-byte boundary */
    int table_gap, null_planes; /* entries; per cent */
    int faults;                 /* per cent of live rows */
    unsigned give;              /* GIVE_* */
    int with_refs, keep_status, with_slots;
} form;

/* What becomes of a row. */
typedef struct outcome {
    int32_t accepted, before, after; /* as given; cache_len; after: -1 if nothing is known */
    int32_t next; /* where the next pass starts: after, whatever becomes of the ticket */
    int32_t draft_before, draft_after, draft_lacks;
    int64_t count; /* KV rows that are appended */
    uint32_t old_status, status;
} outcome;

typedef struct append {
    form f;
    batch b; /* lengths only */
    slots slots;
    outcome *rows;
    int32_t *page; /* [batch][row_pages]: -1 where the table names none */
    int64_t row_pages, table_stride_elems, num_pages, columns;
    grid src, dst;
    plane_table src_planes, dst_planes;
    unsigned src_null, dst_null;
    t_buf accepted, cache_len, draft_len, draft_lacks, mapping, ids, page_refs, status, ticket,
        table;
    t_buf src_data, dst_data;
    char *expected, *old_cache_len, *old_draft_len;
} append;

T_FN void *get_memory(size_t bytes) {
    void *p = calloc(bytes + 1, 1);
    if (!p) t_die(__FILE__, __LINE__, "append", "no memory");
    return p;
}

T_FN char *copy_of(const t_buf *b) {
    char *copy = (char *)get_memory(b->bytes);
    if (b->bytes) memcpy(copy, b->host, b->bytes);
    return copy;
}

/* ---------------------------------------------------------------------------- making a case */

/* Lengths of one row, and what they lead to as long as all pages are right. */
T_FN fault draw_lengths(append *a, int row) {
    const form *f = &a->f;
    const truth *r = &a->b.rows[row];
    outcome *o = &a->rows[row];
    const int works = r->live && !slot_is_bad(&a->slots, row);
    const int32_t bad_accepted[] = {-1, INT32_MIN, r->n_draft + 1, INT32_MAX};
    const int32_t bad_len[] = {-1, INT32_MIN, f->max_positions + 1, INT32_MAX};
    fault what = works && t_chance(f->faults) ? (fault)t_below(NUM_FAULTS) : FAULT_NONE;
    int64_t room;
    o->accepted = t_chance(30) ? r->n_draft : (int32_t)t_between(0, r->n_draft);
    o->count = f->pending + o->accepted;
    o->status = r->live ? r->status : 0;
    if (r->live && r->first < 0) { /* CSR without a length: nothing of the row can be used */
        o->accepted = (int32_t)t_below(3);
        o->count = 0;
    } else if (what == FAULT_ACCEPTED) {
        o->accepted = T_PICK(bad_accepted);
        o->count = 0;
        o->status |= SPECV_ROW_BAD_LENGTH;
    }
    if (what != FAULT_CACHE_LEN && o->count > f->max_positions) what = FAULT_FULL;
    room = f->max_positions - o->count;
    o->before = (int32_t)(t_chance(20)   ? room
                          : t_chance(20) ? 0
                                         : t_below(room > 0 ? room + 1 : 1));
    if (what == FAULT_FULL && o->count > 0) {
        o->before = (int32_t)t_between(room < 0 ? 0 : room + 1, f->max_positions);
        o->count = 0;
        o->status |= SPECV_ROW_NO_SPACE;
    }
    if (what == FAULT_CACHE_LEN) {
        o->before = T_PICK(bad_len);
        o->count = 0;
        o->status |= SPECV_ROW_BAD_LENGTH;
    }
    if (!works) {
        o->accepted = (int32_t)t_random(), o->before = (int32_t)t_random();
        o->count = 0, o->status = slot_is_bad(&a->slots, row) ? SPECV_ROW_BAD_SLOT : 0;
    }
    o->after = works && what != FAULT_CACHE_LEN ? (int32_t)(o->before + o->count) : -1;
    return what;
}

T_FN int32_t no_page(const append *a) {
    const int32_t bad[] = {-1, INT32_MIN, (int32_t)a->num_pages, INT32_MAX};
    return T_PICK(bad);
}

/* Table entries of one row. `own` are as many pages as it can need. */
T_FN void draw_pages(append *a, int row, fault what, const int32_t *own) {
    const int64_t size = a->f.page_size;
    outcome *o = &a->rows[row];
    const int64_t first = o->after < 0 ? 0 : o->before / size;
    const int64_t end = o->after < 0 ? 0 : (o->after + size - 1) / size;
    const int64_t low = o->count ? first + t_below(end - first) : 0;
    const int64_t high = o->count ? t_between(low, end - 1) : 0;
    int hit_page = -1, hit_shared = -1;
    if (o->count > 0 && (what == FAULT_PAGE || what == FAULT_BOTH)) hit_page = (int)low;
    if (o->count > 0 && a->f.with_refs &&
        (what == FAULT_SHARED || (what == FAULT_BOTH && high > low)))
        hit_shared = (int)high;
    for (int64_t i = 0; i < a->row_pages; ++i) {
        /* pages in front may be gone, those behind not be there yet: neither is looked at */
        const int known = i < first ? !t_chance(10) : i < end || t_chance(60);
        const int used = known && i != hit_page;
        const int32_t others[] = {0, 2, -1, INT32_MAX};
        int32_t refs = i >= first && i < end && o->count ? 1 : (int32_t)t_below(4) - 1;
        put_word(&a->table, slot_place(&a->slots, row) * a->table_stride_elems + i,
                 used ? own[i] : no_page(a));
        a->page[row * a->row_pages + i] = used ? own[i] : -1;
        if (i == hit_shared) refs = T_PICK(others);
        if (a->f.with_refs) put_word(&a->page_refs, own[i], refs);
    }
    if (hit_page >= 0) o->status |= SPECV_ROW_BAD_PAGE;
    if (hit_shared >= 0) o->status |= SPECV_ROW_SHARED_PAGE;
    if (hit_page < 0 && hit_shared < 0) return;
    o->count = 0;
    o->after = o->before;
}

/* The draft model's cache. Without its length it was fed all but the last of the row's tokens. */
T_FN void draw_draft_cache(append *a, int row, fault what) {
    outcome *o = &a->rows[row];
    int64_t fed = (int64_t)o->before + a->f.pending + a->b.rows[row].n_draft - 1;
    o->next = o->after;
    if (fed < 0) fed = 0;
    if (a->f.give & GIVE_DRAFT) {
        if (o->after < 0 || t_chance(10)) fed = t_chance(50) ? INT32_MAX : t_below(1000);
        if (what == FAULT_DRAFT_CACHE) fed = t_chance(50) ? -1 : INT32_MIN;
        if (t_chance(20) && fed > 0) fed = t_below(fed); /* it may lack any number of tokens */
    }
    o->draft_before = o->draft_after = (int32_t)(fed > INT32_MAX ? INT32_MAX : fed);
    if (o->after < 0) return;
    if (fed < 0) {
        o->status |= SPECV_ROW_BAD_LENGTH;
        return;
    }
    if (fed > o->after) o->draft_after = o->after;
    o->draft_lacks = o->after + 1 - o->draft_after;
}

T_FN void draw_rows(append *a) {
    const int num_rows = a->f.s.batch;
    int32_t *all = (int32_t *)get_memory(4 * (size_t)a->num_pages);
    for (int64_t i = 0; i < a->num_pages; ++i) { /* a random order of all pages */
        const int64_t j = t_below(i + 1);
        all[i] = all[j];
        all[j] = (int32_t)i;
    }
    for (int64_t i = 0; i < (int64_t)a->page_refs.bytes / 4; ++i) put_word(&a->page_refs, i, -7);
    for (int64_t i = 0; i < (int64_t)a->table.bytes / 4; ++i) put_word(&a->table, i, no_page(a));
    for (int row = 0; row < num_rows; ++row) {
        outcome *o = &a->rows[row];
        fault what = draw_lengths(a, row);
        if (a->f.page_size) draw_pages(a, row, what, all + row * a->row_pages);
        draw_draft_cache(a, row, what);
        o->old_status = a->f.keep_status ? (uint32_t)t_random() : 0;
        put_word(&a->accepted, row, o->accepted);
        put_word(&a->cache_len, slot_place(&a->slots, row), o->before);
        if (a->draft_len.host) put_word(&a->draft_len, slot_place(&a->slots, row), o->draft_before);
        if (a->status.host && a->f.keep_status) put_word(&a->status, row, (int32_t)o->old_status);
    }
    free(all);
}

/* Where position x of a row is: -1 if it has no page. */
T_FN int64_t outer_of(const append *a, int row, int64_t x) {
    if (!a->f.page_size) return slot_place(&a->slots, row);
    return a->page[row * a->row_pages + x / a->f.page_size];
}

T_FN int64_t pos_of(const append *a, int64_t x) { return a->f.page_size ? x % a->f.page_size : x; }

/* Tags of a row's positions first .. end - 1, in one plane of a picture of the cache. */
T_FN void draw_positions(const append *a, char *data, int row, int plane, int64_t first,
                         int64_t end) {
    for (int64_t x = first; x < end; ++x)
        if (outer_of(a, row, x) >= 0)
            tag_position(data, &a->dst, outer_of(a, row, x), pos_of(a, x), plane, row, x);
}

T_FN void fill_data(append *a) {
    const int64_t planes = a->dst.count[AXIS_PLANE];
    for (size_t i = 0; i < a->src_data.bytes; ++i) /* gaps, and rows of rejected drafts */
        a->src_data.host[i] = (char)(i * 37 + 11);
    memset(a->expected, T_POISON, a->dst_data.bytes);
    for (int row = 0; row < a->f.s.batch; ++row) {
        const outcome *o = &a->rows[row];
        const truth *r = &a->b.rows[row];
        const int csr = a->f.s.layout == CSR;
        for (int v = 0; v < planes; ++v) {
            for (int64_t j = 0; j < o->count; ++j)
                tag_position(a->src_data.host, &a->src, csr ? 0 : row,
                             csr ? r->first + (int64_t)row * a->f.pending + j : j, v, row,
                             o->before + j);
            if (o->after < 0) continue;
            draw_positions(a, a->dst_data.host, row, v, 0, o->before);
            draw_positions(a, a->expected, row, v, 0, o->before);
            if ((a->src_null | a->dst_null) >> v & 1) continue;
            draw_positions(a, a->expected, row, v, o->before, o->after);
        }
    }
}

T_FN void make_grids(append *a) {
    const form *f = &a->f;
    const int csr = f->s.layout == CSR;
    int64_t *s = a->src.count, *d = a->dst.count;
    s[AXIS_OUTER] = csr ? 1 : f->s.batch;
    s[AXIS_POS] = csr ? a->b.num_draft_tokens + (int64_t)f->s.batch * f->pending : a->columns;
    d[AXIS_OUTER] = f->page_size ? a->num_pages : a->slots.count;
    d[AXIS_POS] = f->page_size ? f->page_size : f->max_positions;
    s[AXIS_HEAD] = d[AXIS_HEAD] = f->heads;
    s[AXIS_PLANE] = d[AXIS_PLANE] = f->planes > 0 ? f->planes : 1;
    for (int axis = 0; axis < NUM_AXES; ++axis) {
        if (s[axis] < 1) s[axis] = 1;
        if (d[axis] < 1) d[axis] = 1;
    }
    a->src.elem_bytes = a->dst.elem_bytes = f->head_bytes;
    grid_make(&a->src, f->src_order, f->src_gap);
    grid_make(&a->dst, f->dst_order, f->dst_gap);
}

T_FN void append_make(append *a, const form *f) {
    const int64_t num_rows = f->s.batch;
    int64_t num_slots, table_entries = 1; /* no gap behind the last row */
    int live = 0;
    memset(a, 0, sizeof *a);
    a->f = *f;
    a->columns = (int64_t)f->pending + f->s.max_draft;
    a->row_pages = f->page_size ? (f->max_positions + f->page_size - 1) / f->page_size : 0;
    a->table_stride_elems = a->row_pages + f->table_gap;
    a->num_pages = f->page_size ? num_rows * a->row_pages + 1 + t_below(3) : 0;
    batch_start(&a->b, &f->s);
    for (int row = 0; row < f->s.batch; ++row) live += a->b.rows[row].live;
    a->slots = slots_draw(f->s.batch, live, f->with_slots ? f->faults : NO_SLOTS, 1);
    num_slots = a->slots.count;
    if (num_slots > 0) table_entries = (num_slots - 1) * a->table_stride_elems + a->row_pages;
    if (f->s.layout == CSR)
        draw_csr_lengths(&a->b);
    else
        draw_dense_lengths(&a->b);
    a->rows = (outcome *)get_memory((size_t)num_rows * sizeof(outcome));
    a->page = (int32_t *)get_memory((size_t)(num_rows * a->row_pages) * 4);
    make_grids(a);
    a->accepted = t_in(4 * num_rows, 0);
    a->cache_len = t_out(4 * num_slots, 0);
    a->table = t_in(f->page_size ? 4 * table_entries : 0, 0);
    a->page_refs = t_in(f->with_refs ? 4 * a->num_pages : 0, 0);
    if (f->give & GIVE_DRAFT) a->draft_len = t_out(4 * num_slots, 0);
    if (f->give & GIVE_DRAFT_LACKS) a->draft_lacks = t_out(4 * num_rows, 0);
    if (f->give & GIVE_SLOTS) a->mapping = t_out(8 * num_rows * a->columns, 0);
    if (f->give & GIVE_IDS) a->ids = t_out(4 * num_rows * a->columns, 0);
    if (f->give & GIVE_STATUS) a->status = t_out(4 * num_rows, 0);
    a->ticket = t_out(4, 0);
    put_word(&a->ticket, 0, 0);
    draw_rows(a);
    a->old_cache_len = copy_of(&a->cache_len), a->old_draft_len = copy_of(&a->draft_len);
    if (f->planes < 0) return;
    for (int v = 0; v < f->planes; ++v) {
        if (t_chance(f->null_planes)) a->src_null |= 1u << v;
        if (t_chance(f->null_planes)) a->dst_null |= 1u << v;
    }
    a->src_data = t_in(a->src.bytes, f->src_offset);
    a->dst_data = t_out(a->dst.bytes, f->dst_offset);
    a->expected = (char *)get_memory(a->dst_data.bytes);
    fill_data(a);
    if (f->planes == 0) return;
    table_make(&a->src_planes, &a->src_data, &a->src, a->src_null);
    table_make(&a->dst_planes, &a->dst_data, &a->dst, a->dst_null);
}

T_FN void append_free(append *a) {
    if (a->f.planes > 0) table_free(&a->src_planes);
    if (a->f.planes > 0) table_free(&a->dst_planes);
    free(a->old_cache_len);
    free(a->old_draft_len);
    free(a->rows);
    free(a->page);
    free(a->expected);
    batch_free(&a->b);
}

T_FN specv_append_kv_desc append_describe(const append *a, int side) {
    const form *f = &a->f;
    specv_append_kv_desc d = SPECV_ZERO;
    d.keep_status = f->keep_status;
    d.rows = batch_rows(&a->b, side);
    d.rows.slot = slots_at(&a->slots, side), d.rows.slot_dtype = slots_dtype(&a->slots),
    d.rows.num_slots = slots_count(&a->slots);
    d.accepted_len = (const int32_t *)t_at(&a->accepted, side);
    d.cache_len = (int32_t *)t_at(&a->cache_len, side);
    d.draft_cache_len = (int32_t *)t_at(&a->draft_len, side);
    d.draft_lacks = (int32_t *)t_at(&a->draft_lacks, side);
    d.slot_mapping = (int64_t *)t_at(&a->mapping, side);
    d.position_ids = (int32_t *)t_at(&a->ids, side);
    d.page_refs = (const int32_t *)t_at(&a->page_refs, side);
    d.row_status = (uint32_t *)t_at(&a->status, side);
    d.ticket = (uint32_t *)t_at(&a->ticket, side);
    d.num_pending = f->pending;
    d.num_sms = f->num_sms;
    d.kv.max_positions = f->max_positions;
    if (f->page_size) {
        d.kv.block_table = (int32_t *)t_at(&a->table, side);
        d.kv.page_size = f->page_size;
        d.kv.num_pages = (int32_t)a->num_pages;
        d.kv.table_stride_elems = f->table_gap || f->s.batch % 2 ? a->table_stride_elems : 0;
    }
    if (f->planes < 0) return d;
    d.kv.num_heads = f->heads == 1 ? f->s.batch % 2 : f->heads;
    d.kv.num_planes = f->planes ? f->planes : f->s.batch % 2;
    d.kv.head_bytes = f->head_bytes;
    d.kv.head_stride_bytes = grid_stride(&a->dst, AXIS_HEAD);
    d.kv.pos_stride_bytes = grid_stride(&a->dst, AXIS_POS);
    *(f->page_size ? &d.kv.page_stride_bytes : &d.kv.seq_stride_bytes) =
        grid_stride(&a->dst, AXIS_OUTER);
    d.src.head_stride_bytes = grid_stride(&a->src, AXIS_HEAD);
    d.src.pos_stride_bytes = grid_stride(&a->src, AXIS_POS);
    if (f->s.layout != CSR) d.src.seq_stride_bytes = grid_stride(&a->src, AXIS_OUTER);
    if (f->planes) {
        d.src.planes = (const void *const *)table_at(&a->src_planes, side);
        d.kv.planes = table_at(&a->dst_planes, side);
    } else {
        d.src.plane = t_at(&a->src_data, side);
        d.kv.plane = t_at(&a->dst_data, side);
    }
    return d;
}

/* ---------------------------------------------------------------------------------- checking */

T_FN int64_t long_at(const t_buf *b, int64_t index) {
    int64_t value;
    memcpy(&value, b->host + 8 * index, 8);
    return value;
}

/* Slots and position ids of the row's next pass. */
T_FN void check_next_pass(const append *a, int row) {
    const outcome *o = &a->rows[row];
    for (int64_t j = 0; j < a->columns; ++j) {
        const int64_t x = (int64_t)o->next + j, at = row * a->columns + j;
        int64_t slot = -1;
        if (o->next >= 0 && x < a->f.max_positions) {
            if (!a->f.page_size)
                slot = (int64_t)slot_place(&a->slots, row) * a->f.max_positions + x;
            else if (outer_of(a, row, x) >= 0)
                slot = outer_of(a, row, x) * a->f.page_size + x % a->f.page_size;
        }
        if (a->mapping.host) CHECK_EQ(long_at(&a->mapping, at), slot, row);
        if (a->ids.host) CHECK_EQ(word_at(&a->ids, at), o->next < 0 ? 0 : x, row);
    }
}

T_FN void append_check(const append *a) {
    for (int row = 0; row < a->f.s.batch; ++row) {
        const outcome *o = &a->rows[row];
        const int at = slot_place(&a->slots, row);
        CHECK_EQ(word_at(&a->cache_len, at), o->after < 0 ? o->before : o->after, row);
        if (a->draft_len.host) CHECK_EQ(word_at(&a->draft_len, at), o->draft_after, row);
        if (a->draft_lacks.host) CHECK_EQ(word_at(&a->draft_lacks, row), o->draft_lacks, row);
        if (a->status.host)
            CHECK_EQ((uint32_t)word_at(&a->status, row), o->status | o->old_status, row);
        check_next_pass(a, row);
    }
    slots_check_rest(&a->slots, a->cache_len.host, a->old_cache_len, 4);
    if (a->draft_len.host) slots_check_rest(&a->slots, a->draft_len.host, a->old_draft_len, 4);
    CHECK_EQ(word_at(&a->ticket, 0), 0, -1);
    if (a->dst_data.host) check_image(&a->dst_data, a->expected);
}

T_FN void append_run(const form *f) {
    static const char *const layouts[] = {"dense", "dense with lengths", "CSR"};
    append a;
    specv_append_kv_desc d;
    t_note(" batch %d, max_draft %d, %s, pending %d, page %d, positions %d, heads %d x %lld, "
           "%s to %s, planes %d, num_sms %d, give %u%s",
           f->s.batch, f->s.max_draft, layouts[f->s.layout], f->pending, f->page_size,
           f->max_positions, f->heads, (long long)f->head_bytes, f->src_order, f->dst_order,
           f->planes, f->num_sms, f->give, f->with_refs ? ", refs" : "");
    append_make(&a, f);
    t_upload();
    d = append_describe(&a, T_HOST_SIDE);
    CHECK_EQ(specv_ref_append_kv(&d), SPECV_OK, -1);
    append_check(&a);
    t_check_host();
#if T_DEVICE
    d = append_describe(&a, T_DEVICE_SIDE);
    CHECK_EQ(specv_append_kv(&d, 0), SPECV_OK, -1);
    t_check_device();
#endif
    append_free(&a);
}

T_FN void run_on(const specv_append_kv_desc *d, int side) {
    if (side == T_HOST_SIDE) CHECK_EQ(specv_ref_append_kv(d), SPECV_OK, -1);
#if T_DEVICE
    if (side == T_DEVICE_SIDE) CHECK_EQ(specv_append_kv(d, 0), SPECV_OK, -1);
#endif
}

#endif /* APPEND_H_INCLUDED */
