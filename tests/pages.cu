/* pages.cu - B5, page tables: growing, shrinking, sharing, copying before a shared page is written.

   Cases by hand say what every word must be afterwards. The fuzz runs a small engine next to a
   model of it: see engine.h. */

#include "engine.h"
#include "slots.h"

/* ------------------------------------------------------------------------------ cases by hand */

enum { PAGES = 8, ROWS = 4, ENTRIES = 3, SIZE = 4, BYTES = 20 };

typedef struct state {
    int32_t page_refs[PAGES], free_pages[PAGES], num_free;
    int32_t table[ROWS * ENTRIES], num_row_pages[ROWS], cache_len[ROWS];
} state;

typedef struct resize_case {
    const char *name;
    int batch, reserve;
    state before;
    int32_t row_reserve[ROWS]; /* all 0: none are given */
    uint8_t finished[ROWS];
    state after; /* cache_len is not changed; free_pages behind num_free do not matter */
    int32_t copy_src_page[ROWS], copy_dst_page[ROWS];
    uint32_t status[ROWS];
} resize_case;

enum {
    LENGTH = SPECV_ROW_BAD_LENGTH,
    DRY = SPECV_ROW_NO_SPACE,
    PAGE = SPECV_ROW_BAD_PAGE,
    SHARED = SPECV_ROW_SHARED_PAGE,
    SLOT = SPECV_ROW_BAD_SLOT
};

/* Pages of 4 positions, 12 positions at most. In each state: page_refs, free pages, how many; then
   the table with a line per row, pages per row, lengths. */
/* clang-format off */
static const resize_case resize_cases[] = {
    {"grow: the last free page goes first", 2, 4,
     {{1, 1, 0, 0, 0, 0, 0, 0}, {2, 3, 4, 5, 6, 7}, 6,
      {0, NO, NO, 1, NO, NO}, {1, 1}, {3, 4}},
     {0}, {0},
     {{1, 1, 0, 0, 0, 0, 1, 1}, {2, 3, 4, 5}, 4,
      {0, 7, NO, 1, 6, NO}, {2, 2}, {3, 4}},
     {NO, NO}, {NO, NO}, {0, 0}},
    {"a row without pages; three at once; enough already", 3, 5,
     {{1, 1, 0, 0, 0, 0, 0, 0}, {2, 3, 4, 5, 6, 7}, 6,
      {NO, NO, NO, NO, NO, NO, 1, 0, NO}, {0, 0, 2}, {0, 0, 3}},
     {5, 12, 5}, {0},
     {{1, 1, 0, 1, 1, 1, 1, 1}, {2}, 1,
      {7, 6, NO, 5, 4, 3, 1, 0, NO}, {2, 3, 2}, {0, 0, 3}},
     {NO, NO, NO}, {NO, NO, NO}, {0, 0, 0}},
    {"shrink: surplus pages come back in their order", 1, 1,
     {{1, 1, 1, 0, 0, 0, 0, 0}, {3, 4}, 2,
      {2, 0, 1}, {3}, {2}},
     {0}, {0},
     {{0, 0, 1, 0, 0, 0, 0, 0}, {3, 4, 0, 1}, 4,
      {2, NO, NO}, {1}, {2}},
     {NO}, {NO}, {0}},
    {"finished: all pages come back, and go to the rows that need one, whichever they are", 3, 4,
     {{1, 1, 1, 1, 0, 0, 0, 0}, {0}, 0,
      {0, NO, NO, 1, 2, NO, 3, NO, NO}, {1, 2, 1}, {4, 7, 1}},
     {0}, {0, 1, 0},
     {{1, 1, 1, 1, 0, 0, 0, 0}, {0}, 0,
      {0, 2, NO, NO, NO, NO, 3, 1, NO}, {2, 0, 2}, {4, 7, 1}},
     {NO, NO, NO}, {NO, NO, NO}, {0, 0, 0}},
    {"dry in the middle: rows behind that need a page get none, though one is left", 4, 1,
     {{1, 1, 1, 1, 0, 0, 0, 0}, {4, 5}, 2,
      {0, NO, NO, 1, NO, NO, 2, NO, NO, 3, NO, NO}, {1, 1, 1, 1}, {4, 4, 4, 2}},
     {1, 8, 1, 1}, {0},
     {{1, 1, 1, 1, 0, 1, 0, 0}, {4}, 1,
      {0, 5, NO, 1, NO, NO, 2, NO, NO, 3, NO, NO}, {2, 1, 1, 1}, {4, 4, 4, 2}},
     {NO, NO, NO, NO}, {NO, NO, NO, NO}, {0, DRY, DRY, 0}},
    {"a dry pool still takes pages back, from rows behind as well", 3, 1,
     {{1, 1, 1, 1, 0, 0, 0, 0}, {0}, 0,
      {0, NO, NO, 1, NO, NO, 2, 3, NO}, {1, 1, 2}, {4, 4, 2}},
     {0}, {0},
     {{1, 1, 1, 1, 0, 0, 0, 0}, {0}, 0,
      {0, 3, NO, 1, NO, NO, 2, NO, NO}, {2, 1, 1}, {4, 4, 2}},
     {NO, NO, NO}, {NO, NO, NO}, {0, DRY, 0}},
    {"two owners write: the first gets a copy, the last keeps the page", 2, 1,
     {{1, 2, 0, 0, 0, 0, 0, 0}, {2, 3}, 2,
      {0, 1, NO, 0, 1, NO}, {2, 2}, {6, 6}},
     {0}, {0},
     {{1, 1, 0, 1, 0, 0, 0, 0}, {2}, 1,
      {0, 3, NO, 0, 1, NO}, {2, 2}, {6, 6}},
     {1, NO}, {3, NO}, {0, 0}},
    {"a copy and a new page: the copy is taken first", 2, 4,
     {{2, 0, 0, 0, 0, 0, 0, 0}, {1, 2, 3, 4}, 4,
      {0, NO, NO, 0, NO, NO}, {1, 1}, {3, 3}},
     {0}, {0},
     {{1, 0, 1, 1, 1, 0, 0, 0}, {1}, 1,
      {4, 3, NO, 0, 2, NO}, {2, 2}, {3, 3}},
     {0, NO}, {4, NO}, {0, 0}},
    {"who does not write shares on", 2, 0,
     {{2, 0, 0, 0, 0, 0, 0, 0}, {1, 2}, 2,
      {0, NO, NO, 0, NO, NO}, {1, 1}, {3, 3}},
     {0}, {0},
     {{2, 0, 0, 0, 0, 0, 0, 0}, {1, 2}, 2,
      {0, NO, NO, 0, NO, NO}, {1, 1}, {3, 3}},
     {NO, NO}, {NO, NO}, {0, 0}},
    {"a full page is shared on", 2, 1,
     {{2, 0, 0, 0, 0, 0, 0, 0}, {1, 2}, 2,
      {0, NO, NO, 0, NO, NO}, {1, 1}, {4, 4}},
     {0}, {0},
     {{2, 1, 1, 0, 0, 0, 0, 0}, {0}, 0,
      {0, 2, NO, 0, 1, NO}, {2, 2}, {4, 4}},
     {NO, NO}, {NO, NO}, {0, 0}},
    {"three owners, one free page", 3, 1,
     {{3, 0, 0, 0, 0, 0, 0, 0}, {5}, 1,
      {0, NO, NO, 0, NO, NO, 0, NO, NO}, {1, 1, 1}, {2, 3, 1}},
     {0}, {0},
     {{2, 0, 0, 0, 0, 1, 0, 0}, {0}, 0,
      {5, NO, NO, 0, NO, NO, 0, NO, NO}, {1, 1, 1}, {2, 3, 1}},
     {0, NO, NO}, {5, NO, NO}, {0, DRY, DRY}},
    {"the other owner leaves in the same launch: no copy", 2, 1,
     {{2, 0, 0, 0, 0, 0, 0, 0}, {5}, 1,
      {0, NO, NO, 0, NO, NO}, {1, 1}, {3, 3}},
     {0}, {0, 1},
     {{1, 0, 0, 0, 0, 0, 0, 0}, {5}, 1,
      {0, NO, NO, NO, NO, NO}, {1, 0}, {3, 3}},
     {NO, NO}, {NO, NO}, {0, 0}},
    {"both owners leave: freed once, where the first of them has it", 3, 1,
     {{2, 1, 1, 0, 0, 0, 0, 0}, {7}, 1,
      {2, 0, NO, 0, 1, NO}, {2, 2, 0}, {5, 5, 0}},
     {1, 1, 0}, {1, 1, 0},
     {{0, 0, 0, 0, 0, 0, 0, 0}, {7, 2, 0, 1}, 4,
      {NO, NO, NO, NO, NO, NO}, {0, 0, 0}, {5, 5, 0}},
     {NO, NO, NO}, {NO, NO, NO}, {0, 0, 0}},
    {"more entries than owners: freed once, and told", 3, 1,
     {{1, 2, 0, 0, 0, 0, 0, 0}, {7}, 1,
      {0, NO, NO, 0, NO, NO, 1, NO, NO}, {1, 1, 1}, {1, 1, 1}},
     {0}, {1, 1, 1},
     {{0, 1, 0, 0, 0, 0, 0, 0}, {7, 0}, 2,
      {NO, NO, NO, NO, NO, NO, NO, NO, NO}, {0, 0, 0}, {1, 1, 1}},
     {NO, NO, NO}, {NO, NO, NO}, {PAGE, PAGE, 0}},
    {"a page twice in a row of the table", 2, 0,
     {{1, 0, 1, 0, 0, 0, 0, 0}, {7}, 1,
      {0, 0, NO, 2, NO, NO}, {2, 1}, {5, 1}},
     {0}, {1, 1},
     {{0, 0, 0, 0, 0, 0, 0, 0}, {7, 0, 2}, 3,
      {NO, NO, NO, NO, NO, NO}, {0, 0}, {5, 1}},
     {NO, NO}, {NO, NO}, {PAGE, 0}},
    {"ids out of range, a page without owner; full pages in front are not looked at", 4, 1,
     {{1, 1, 0, 1, 0, 0, 0, 0}, {7, 6, 5}, 3,
      {8, NO, NO, NO, NO, NO, 2, NO, NO, NO, 1, NO}, {1, 1, 1, 2}, {1, 2, 3, 8}},
     {0}, {0},
     {{1, 1, 0, 1, 0, 1, 0, 0}, {7, 6}, 2,
      {8, NO, NO, NO, NO, NO, 2, NO, NO, NO, 1, 5}, {1, 1, 1, 3}, {1, 2, 3, 8}},
     {NO, NO, NO, NO}, {NO, NO, NO, NO}, {PAGE, PAGE, PAGE, 0}},
    {"a page behind the content that others own too", 2, 4,
     {{1, 2, 1, 0, 0, 0, 0, 0}, {7}, 1,
      {0, 1, NO, 2, 1, NO}, {2, 2}, {3, 6}},
     {4, 1, 0}, {0},
     {{1, 1, 1, 0, 0, 0, 0, 1}, {0}, 0,
      {0, 1, NO, 2, 7, NO}, {2, 2}, {3, 6}},
     {NO, 1}, {NO, 7}, {SHARED, 0}},
    {"a surplus page that others own too is given back", 2, 1,
     {{1, 2, 1, 0, 0, 0, 0, 0}, {7}, 1,
      {0, 1, NO, 2, 1, NO}, {2, 2}, {3, 8}},
     {0}, {0},
     {{1, 1, 1, 0, 0, 0, 0, 1}, {0}, 0,
      {0, NO, NO, 2, 1, 7}, {1, 3}, {3, 8}},
     {NO, NO}, {NO, NO}, {0, 0}},
    {"lengths out of range", 4, 1,
     {{1, 1, 1, 0, 0, 0, 0, 0}, {7}, 1,
      {0, NO, NO, 1, NO, NO, 2, NO, NO, NO, NO, NO}, {1, 1, 1, 4}, {NO, 13, 5, 1}},
     {0}, {0, 0, 0, 1},
     {{1, 1, 1, 0, 0, 0, 0, 0}, {7}, 1,
      {0, NO, NO, 1, NO, NO, 2, NO, NO, NO, NO, NO}, {1, 1, 1, 4}, {NO, 13, 5, 1}},
     {NO, NO, NO, NO}, {NO, NO, NO, NO}, {LENGTH, LENGTH, LENGTH, LENGTH}},
    {"reserves and page counts out of range", 3, 1,
     {{1, 1, 1, 0, 0, 0, 0, 0}, {7}, 1,
      {0, NO, NO, 1, NO, NO, 2, NO, NO}, {1, NO, 1}, {4, 0, 4}},
     {NO, 1, 1}, {0},
     {{1, 1, 1, 0, 0, 0, 0, 1}, {0}, 0,
      {0, NO, NO, 1, NO, NO, 2, 7, NO}, {1, NO, 2}, {4, 0, 4}},
     {NO, NO, NO}, {NO, NO, NO}, {LENGTH, LENGTH, 0}},
    {"no more than max_positions", 2, INT32_MAX,
     {{1, 1, 1, 0, 0, 0, 0, 0}, {7, 6}, 2,
      {0, 1, 2, NO, NO, NO}, {3, 0}, {12, 0}},
     {INT32_MAX, 7}, {0},
     {{1, 1, 1, 0, 0, 0, 1, 1}, {0}, 0,
      {0, 1, 2, 6, 7, NO}, {3, 2}, {12, 0}},
     {NO, NO}, {NO, NO}, {0, 0}},
    {"num_free below 0", 2, 4,
     {{1, 1, 0, 0, 0, 0, 0, 0}, {7, 6}, NO,
      {0, NO, NO, 1, NO, NO}, {1, 1}, {3, 3}},
     {0}, {0, 1},
     {{1, 1, 0, 0, 0, 0, 0, 0}, {0}, NO,
      {0, NO, NO, 1, NO, NO}, {1, 1}, {3, 3}},
     {NO, NO}, {NO, NO}, {PAGE, PAGE}},
    {"num_free above num_pages", 2, 4,
     {{1, 1, 0, 0, 0, 0, 0, 0}, {7, 6}, 9,
      {0, NO, NO, 1, NO, NO}, {1, 1}, {3, 3}},
     {0}, {0, 1},
     {{1, 1, 0, 0, 0, 0, 0, 0}, {7, 6}, 9,
      {0, NO, NO, 1, NO, NO}, {1, 1}, {3, 3}},
     {NO, NO}, {NO, NO}, {PAGE, PAGE}},
    {"something else than a page on the stack", 2, 4,
     {{1, 1, 0, 0, 0, 0, 0, 0}, {7, 8}, 2,
      {0, NO, NO, 1, NO, NO}, {1, 1}, {3, 3}},
     {0}, {0},
     {{1, 1, 0, 0, 0, 0, 0, 1}, {0}, 0,
      {0, NO, NO, 1, 7, NO}, {2, 2}, {3, 3}},
     {NO, NO}, {NO, NO}, {PAGE, 0}},
    {"something else than a page on the stack, for a copy: the row loses its content", 2, 1,
     {{2, 0, 0, 0, 0, 0, 0, 0}, {7, NO}, 2,
      {0, NO, NO, 0, NO, NO}, {1, 1}, {3, 3}},
     {0}, {0},
     {{1, 0, 0, 0, 0, 0, 0, 0}, {7}, 1,
      {NO, NO, NO, 0, NO, NO}, {1, 1}, {3, 3}},
     {0, NO}, {NO, NO}, {PAGE, 0}},
    {"pages with owners on the stack: what does not fit on it again is told", 3, 1,
     {{1, 1, 1, 0, 0, 0, 0, 0}, {7, 6, 5, 4, 3, 2, 1}, 7,
      {0, NO, NO, 1, NO, NO, 2, NO, NO}, {1, 1, 1}, {4, 4, 3}},
     {0}, {1, 1, 0},
     {{0, 0, 1, 0, 0, 0, 0, 0}, {7, 6, 5, 4, 3, 2, 1, 0}, 8,
      {NO, NO, NO, NO, NO, NO, 2, NO, NO}, {0, 0, 1}, {4, 4, 3}},
     {NO, NO, NO}, {NO, NO, NO}, {0, PAGE, 0}},
    {"a full stack, then somebody takes from it", 2, 1,
     {{1, 1, 0, 0, 0, 0, 0, 0}, {0, 1, 2, 3, 4, 5, 6, 7}, 8,
      {0, NO, NO, 1, NO, NO}, {1, 1}, {4, 4}},
     {0}, {1, 0},
     {{0, 1, 0, 0, 0, 0, 0, 1}, {0, 1, 2, 3, 4, 5, 6}, 7,
      {NO, NO, NO, 1, 7, NO}, {0, 2}, {4, 4}},
     {NO, NO}, {NO, NO}, {PAGE, 0}},
};
/* clang-format on */

/* Both sides of everything that B5 touches. */
typedef struct tables {
    t_buf page_refs, free_pages, num_free, table, num_row_pages, cache_len;
    t_buf reserve, finished, from, to, status, num_active, data, src, dst;
} tables;

static t_buf words(const int32_t *from, int64_t count) {
    t_buf b = t_out(4 * count, 0);
    memcpy(b.host, from, 4 * (size_t)count);
    return b;
}
#define words(from, count) (T_SITE(words, 4), words(from, count))

static void tables_make(tables *w, const state *s, int num_rows) {
    memset(w, 0, sizeof *w);
    w->page_refs = words(s->page_refs, PAGES);
    w->free_pages = words(s->free_pages, PAGES);
    w->num_free = words(&s->num_free, 1);
    w->table = words(s->table, num_rows * ENTRIES);
    w->num_row_pages = words(s->num_row_pages, num_rows);
    w->cache_len = words(s->cache_len, num_rows);
}

static void check_words(const t_buf *b, const int32_t *want, int64_t count) {
    CHECK_BYTES(b->host, want, 4 * count);
}

static void check_pool(const tables *w, const state *s) {
    const int known = s->num_free < 0 || s->num_free > PAGES ? 0 : s->num_free;
    check_words(&w->page_refs, s->page_refs, PAGES);
    check_words(&w->num_free, &s->num_free, 1);
    check_words(&w->free_pages, s->free_pages, known);
}

static void check_state(const tables *w, const state *s, int num_rows) {
    check_pool(w, s);
    check_words(&w->table, s->table, num_rows * ENTRIES);
    check_words(&w->num_row_pages, s->num_row_pages, num_rows);
    check_words(&w->cache_len, s->cache_len, num_rows);
}

static specv_page_resize_desc describe_tables(const tables *w, int num_rows, int side) {
    specv_page_resize_desc d = SPECV_ZERO;
    d.pool.page_refs = (int32_t *)t_at(&w->page_refs, side);
    d.pool.free_pages = (int32_t *)t_at(&w->free_pages, side);
    d.pool.num_free = (int32_t *)t_at(&w->num_free, side);
    d.num_row_pages = (int32_t *)t_at(&w->num_row_pages, side);
    d.cache_len = (const int32_t *)t_at(&w->cache_len, side);
    d.row_reserve = (const int32_t *)t_at(&w->reserve, side);
    d.finished = (const uint8_t *)t_at(&w->finished, side);
    d.copy_src_page = (int32_t *)t_at(&w->from, side);
    d.copy_dst_page = (int32_t *)t_at(&w->to, side);
    d.row_status = (uint32_t *)t_at(&w->status, side);
    d.num_active = (const int32_t *)t_at(&w->num_active, side);
    d.kv.block_table = (int32_t *)t_at(&w->table, side);
    d.kv.page_size = SIZE, d.kv.num_pages = PAGES, d.kv.max_positions = SIZE * ENTRIES;
    d.batch = num_rows;
    d.num_sms = 2;
    return d;
}

/* Pages full of tags; returns what the copies make of them. */
static char *make_data(tables *w, grid *g, const resize_case *c, int live, int way) {
    const int64_t gap[NUM_AXES] = {3, 0, 5, 1};
    char *expected;
    g->count[AXIS_OUTER] = PAGES, g->count[AXIS_POS] = SIZE;
    g->count[AXIS_HEAD] = 2, g->count[AXIS_PLANE] = 1, g->elem_bytes = BYTES;
    grid_make(g, grid_orders[way % 3], gap);
    w->data = t_out(g->bytes, way % 2);
    expected = (char *)malloc((size_t)g->bytes);
    if (!expected) t_die(__FILE__, __LINE__, "make_data", "no memory");
    for (int page = 0; page < PAGES; ++page)
        for (int x = 0; x < SIZE; ++x) tag_position(w->data.host, g, page, x, 0, page, x);
    memcpy(expected, w->data.host, (size_t)g->bytes);
    for (int row = 0; row < live; ++row)
        for (int x = 0; c->copy_dst_page[row] >= 0 && x < c->before.cache_len[row] % SIZE; ++x)
            tag_position(expected, g, c->copy_dst_page[row], x, 0, c->copy_src_page[row], x);
    return expected;
}

static void describe_data(const tables *w, const grid *g, specv_kv_cache *kv, int side) {
    kv->plane = t_at(&w->data, side);
    kv->num_heads = 2, kv->head_bytes = BYTES;
    kv->head_stride_bytes = g->stride[AXIS_HEAD];
    kv->pos_stride_bytes = g->stride[AXIS_POS];
    kv->page_stride_bytes = g->stride[AXIS_OUTER];
}

/* Each case bare, with KV, with statuses to keep, and with rows behind that are inert: those would
   have much to give and to take. */
static void run_case(const resize_case *c, int way) {
    const int with_kv = way > 0, keep = way % 2, inert = way > 2 && way < 6;
    const int all = inert ? ROWS : c->batch, live = way == 7 ? 0 : c->batch;
    const int32_t active = inert ? c->batch : way == 6 ? c->batch + 5 : -3;
    const uint32_t old = keep ? 0x8000u : 0;
    state before = c->before, after = c->after;
    tables w;
    grid g;
    char *expected = NULL;
    int any_reserve = 0, any_finished = 0;
    for (int row = c->batch; row < ROWS; ++row) {
        for (int i = 0; i < ENTRIES; ++i)
            before.table[row * ENTRIES + i] = after.table[row * ENTRIES + i] = i;
        before.num_row_pages[row] = after.num_row_pages[row] = 2;
        before.cache_len[row] = after.cache_len[row] = row;
    }
    for (int row = 0; row < c->batch; ++row) {
        any_reserve |= c->row_reserve[row] != 0;
        any_finished |= c->finished[row];
    }
    if (live == 0) after = before;
    tables_make(&w, &before, all);
    if (any_reserve) w.reserve = words(c->row_reserve, all);
    if (any_finished) w.finished = t_out(all, 1);
    if (any_finished) memcpy(w.finished.host, c->finished, (size_t)all);
    if (with_kv || keep) w.from = t_out(4 * all, 0), w.to = t_out(4 * all, 0);
    w.status = t_out(4 * all, 0);
    for (int row = 0; row < all && keep; ++row) put_word(&w.status, row, (int32_t)old);
    if (way > 2) w.num_active = words(&active, 1);
    if (with_kv) expected = make_data(&w, &g, c, live, way);
    t_upload();
    for (int side = 0; side <= T_DEVICE; ++side) {
        specv_page_resize_desc d = describe_tables(&w, all, side);
        d.reserve = c->reserve;
        d.keep_status = keep;
        if (with_kv) describe_data(&w, &g, &d.kv, side);
        run_resize(&d, side);
    }
    check_state(&w, &after, all);
    for (int row = 0; row < all; ++row) {
        const int is_live = row < live;
        CHECK_EQ((uint32_t)word_at(&w.status, row), (is_live ? c->status[row] : 0) | old, row);
        if (!w.from.host) continue;
        CHECK_EQ(word_at(&w.from, row), is_live ? c->copy_src_page[row] : NO, row);
        CHECK_EQ(word_at(&w.to, row), is_live ? c->copy_dst_page[row] : NO, row);
    }
    if (with_kv) check_image(&w.data, expected);
    t_check_host();
    t_check_device();
    free(expected);
}

enum { GIVEN_ROWS = 2 * ROWS + 2, MOST_SLOTS = 2 * GIVEN_ROWS + 4 };

/* Every other row is one of the case's; elsewhere is what others could use. */
static void scatter(int32_t *to, const int32_t *from, const slots *s, int num_rows, int entries) {
    for (int i = 0; i < s->count * entries; ++i) to[i] = entries > 1 ? i % PAGES : 2;
    for (int row = 0; row < num_rows; ++row)
        memcpy(to + slot_place(s, 2 * row) * entries, from + row * entries, 4 * (size_t)entries);
}

static t_buf scattered(const int32_t *from, const slots *s, int num_rows, int entries) {
    int32_t to[MOST_SLOTS * ENTRIES] = {0};
    scatter(to, from, s, num_rows, entries);
    return (words)(to, s->count * entries);
}
#define scattered(from, s, rows, entries) (T_SITE(scattered, 4), scattered(from, s, rows, entries))

static void check_scattered(const t_buf *b, const int32_t *from, const slots *s, int num_rows,
                            int entries) {
    int32_t want[MOST_SLOTS * ENTRIES] = {0};
    scatter(want, from, s, num_rows, entries);
    check_words(b, want, s->count * entries);
}

/* The same with slots. Behind each of the case's rows a live one that would give back all its
   pages, but has a slot that is none, or is that of a row before; behind all of them inert ones. */
static void run_slots(const resize_case *c, int way) {
    const int all = 2 * c->batch + 2;
    const int32_t active = 2 * c->batch;
    int32_t reserve[GIVEN_ROWS];
    const uint32_t old = way % 2 ? 0x8000u : 0;
    const state *before = &c->before, *after = &c->after;
    int any_reserve = 0;
    char *expected;
    tables w;
    grid g;
    tables_make(&w, before, 0);
    slots s = slots_draw(all, active, 0, 1);
    for (int row = 1; row < active; row += 2) slots_spoil(&s, row);
    slots_settle(&s);
    w.table = scattered(before->table, &s, c->batch, ENTRIES);
    w.num_row_pages = scattered(before->num_row_pages, &s, c->batch, 1);
    w.cache_len = scattered(before->cache_len, &s, c->batch, 1);
    w.finished = t_out(all, 0), w.status = t_out(4 * all, 0);
    w.from = t_out(4 * all, 0), w.to = t_out(4 * all, 0);
    for (int i = 0; i < all; ++i) {
        const int row = i / 2, is_case = i < active && i % 2 == 0;
        reserve[i] = is_case ? c->row_reserve[row] : 12;
        if (is_case) any_reserve |= c->row_reserve[row] != 0;
        w.finished.host[i] = (char)(is_case ? c->finished[row] : 1);
        put_word(&w.status, i, (int32_t)old);
    }
    if (any_reserve) w.reserve = words(reserve, all);
    w.num_active = words(&active, 1);
    expected = make_data(&w, &g, c, c->batch, way);
    t_upload();
    for (int side = 0; side <= T_DEVICE; ++side) {
        specv_page_resize_desc d = describe_tables(&w, all, side);
        d.slot = slots_at(&s, side), d.slot_dtype = slots_dtype(&s), d.num_slots = slots_count(&s);
        d.reserve = c->reserve;
        d.keep_status = way % 2;
        describe_data(&w, &g, &d.kv, side);
        run_resize(&d, side);
    }
    check_pool(&w, after);
    check_scattered(&w.table, after->table, &s, c->batch, ENTRIES);
    check_scattered(&w.num_row_pages, after->num_row_pages, &s, c->batch, 1);
    check_scattered(&w.cache_len, after->cache_len, &s, c->batch, 1);
    for (int i = 0; i < all; ++i) {
        const int row = i / 2, is_case = i < active && i % 2 == 0;
        const uint32_t bits = is_case ? c->status[row] : i < active ? SLOT : 0;
        CHECK_EQ((uint32_t)word_at(&w.status, i), bits | old, i);
        CHECK_EQ(word_at(&w.from, i), is_case ? c->copy_src_page[row] : NO, i);
        CHECK_EQ(word_at(&w.to, i), is_case ? c->copy_dst_page[row] : NO, i);
    }
    check_image(&w.data, expected);
    t_check_host();
    t_check_device();
    free(expected);
}

static void test_slots(void) {
    for (int i = 0; i < T_COUNT(resize_cases); ++i)
        for (int way = 0; way < 6; ++way) {
            if (t.quick && way != i % 6) continue;
            t_case("slots: %s, way %d", resize_cases[i].name, way);
            run_slots(&resize_cases[i], way);
        }
}

static void test_cases(void) {
    for (int i = 0; i < T_COUNT(resize_cases); ++i)
        for (int way = 0; way < 8; ++way) {
            if (t.quick && way > 0 && way != 1 + i % 7) continue;
            t_case("%s, way %d", resize_cases[i].name, way);
            run_case(&resize_cases[i], way);
        }
}

/* -------------------------------------------------------------------------------------- forks */

enum { FORKS = 4 };

typedef struct fork_case {
    const char *name;
    int num_forks;
    int32_t src[FORKS], dst[FORKS];
    state before, after;
    uint32_t status[FORKS];
} fork_case;

/* Row 0 has 6 positions in 3 pages, row 1 has 4 in one; rows 2 and 3 are empty. */
/* clang-format off */
static const fork_case fork_cases[] = {
    {"pages with content are shared, and no others", 2, {0, 1}, {2, 3},
     {{1, 1, 1, 1}, {0}, 0,
      {0, 1, 2, 3, NO, NO, NO, NO, NO, NO, NO, NO}, {3, 1, 0, 0}, {6, 4, 9, 9}},
     {{2, 2, 1, 2}, {0}, 0,
      {0, 1, 2, 3, NO, NO, 0, 1, NO, 3, NO, NO}, {3, 1, 2, 1}, {6, 4, 6, 4}},
     {0, 0}},
    {"two forks of the same row", 2, {0, 0}, {3, 2},
     {{1, 1, 1, 1}, {0}, 0,
      {0, 1, 2, 3, NO, NO, NO, NO, NO, NO, NO, NO}, {3, 1, 0, 0}, {6, 4, 0, 0}},
     {{3, 3, 1, 1}, {0}, 0,
      {0, 1, 2, 3, NO, NO, 0, 1, NO, 0, 1, NO}, {3, 1, 2, 2}, {6, 4, 6, 6}},
     {0, 0}},
    {"nothing to share", 1, {1}, {3},
     {{1, 1, 1, 1}, {0}, 0,
      {0, 1, 2, 3, NO, NO, NO, NO, NO, NO, NO, NO}, {3, 1, 0, 0}, {6, 0, 9, 9}},
     {{1, 1, 1, 1}, {0}, 0,
      {0, 1, 2, 3, NO, NO, NO, NO, NO, NO, NO, NO}, {3, 1, 0, 0}, {6, 0, 9, 0}},
     {0}},
    {"slots out of range, a slot to itself", 4, {4, 0, NO, 2}, {2, 4, 3, 2},
     {{1, 1, 1, 1}, {0}, 0,
      {0, 1, 2, 3, NO, NO, NO, NO, NO, NO, NO, NO}, {3, 1, 0, 0}, {6, 4, 0, 0}},
     {{1, 1, 1, 1}, {0}, 0,
      {0, 1, 2, 3, NO, NO, NO, NO, NO, NO, NO, NO}, {3, 1, 0, 0}, {6, 4, 0, 0}},
     {LENGTH, LENGTH, LENGTH, LENGTH}},
    {"a slot twice as dst: the first wins, even where it failed", 4, {1, 0, 0, 0}, {2, 2, 1, 3},
     {{1, 1, 1, 1}, {0}, 0,
      {0, 1, 2, 3, NO, NO, NO, NO, NO, NO, NO, NO}, {3, 1, 0, 0}, {6, 5, 0, 0}},
     {{2, 2, 1, 1}, {0}, 0,
      {0, 1, 2, 3, NO, NO, NO, NO, NO, 0, 1, NO}, {3, 1, 0, 2}, {6, 5, 0, 6}},
     {LENGTH, LENGTH, LENGTH, 0}},
    {"a dst that is a src as well, before and behind it", 3, {0, 2, 0}, {2, 3, 3},
     {{1, 1, 1, 1}, {0}, 0,
      {0, 1, 2, 3, NO, NO, NO, NO, NO, NO, NO, NO}, {3, 1, 0, 0}, {6, 4, 0, 0}},
     {{1, 1, 1, 1}, {0}, 0,
      {0, 1, 2, 3, NO, NO, NO, NO, NO, NO, NO, NO}, {3, 1, 0, 0}, {6, 4, 0, 0}},
     {LENGTH, 0, LENGTH}},
    {"lengths and counts out of range", 2, {0, 1}, {2, 3},
     {{1, 1, 1, 1}, {0}, 0,
      {0, 1, 2, 3, NO, NO, NO, NO, NO, NO, NO, NO}, {4, 1, 0, 0}, {6, NO, 0, 0}},
     {{1, 1, 1, 1}, {0}, 0,
      {0, 1, 2, 3, NO, NO, NO, NO, NO, NO, NO, NO}, {4, 1, 0, 0}, {6, NO, 0, 0}},
     {LENGTH, LENGTH}},
    {"an id out of range, a page without owner; neither row is shared in part", 2, {0, 1}, {2, 3},
     {{1, 1, 1, 0}, {0}, 0,
      {0, 8, 2, 3, NO, NO, NO, NO, NO, NO, NO, NO}, {3, 1, 0, 0}, {6, 4, 0, 0}},
     {{1, 1, 1, 0}, {0}, 0,
      {0, 8, 2, 3, NO, NO, NO, NO, NO, NO, NO, NO}, {3, 1, 0, 0}, {6, 4, 0, 0}},
     {PAGE, PAGE}},
};
/* clang-format on */

static specv_page_fork_desc describe_fork(const tables *w, int num_rows, int num_forks, int side) {
    specv_page_fork_desc d = SPECV_ZERO;
    d.page_refs = (int32_t *)t_at(&w->page_refs, side);
    d.block_table = (int32_t *)t_at(&w->table, side);
    d.num_row_pages = (int32_t *)t_at(&w->num_row_pages, side);
    d.cache_len = (int32_t *)t_at(&w->cache_len, side);
    d.src_slot = (const int32_t *)t_at(&w->src, side);
    d.dst_slot = (const int32_t *)t_at(&w->dst, side);
    d.fork_status = (uint32_t *)t_at(&w->status, side);
    d.num_slots = num_rows, d.num_forks = num_forks;
    d.page_size = SIZE, d.num_pages = PAGES, d.max_row_pages = ENTRIES;
    return d;
}

static void test_forks(void) {
    for (int i = 0; i < T_COUNT(fork_cases); ++i) {
        const fork_case *c = &fork_cases[i];
        tables w;
        t_case("fork: %s", c->name);
        tables_make(&w, &c->before, ROWS);
        w.src = words(c->src, c->num_forks), w.dst = words(c->dst, c->num_forks);
        if (i % 4 != 1) w.status = t_out(4 * c->num_forks, 0);
        const int keep = i % 4 == 2;
        t_fill_status(&w.status, keep);
        t_upload();
        for (int side = 0; side <= T_DEVICE; ++side) {
            specv_page_fork_desc d = describe_fork(&w, ROWS, c->num_forks, side);
            if (i % 2) d.table_stride_elems = ENTRIES;
            d.keep_status = keep;
            run_fork(&d, side);
        }
        check_state(&w, &c->after, ROWS);
        for (int k = 0; k < c->num_forks && w.status.host; ++k)
            CHECK_EQ((uint32_t)word_at(&w.status, k), c->status[k] | t_old_status(keep, k), k);
        t_check_host();
        t_check_device();
    }
}

/* Forks behind *num_active_forks are not looked at: the last of these would spoil the first two. */
static void test_inert_forks(void) {
    static const int32_t actives[] = {2, 1, 0, -1, 3, INT32_MAX, INT32_MIN};
    static const state before = {{1, 1}, {0},   0, {0, NO, NO, 1, NO, NO, NO, NO, NO, NO, NO, NO},
                                 {1, 1}, {4, 2}};
    static const int32_t src[] = {0, 1, 2}, dst[] = {2, 3, 0};
    for (int i = 0; i < 2 * T_COUNT(actives); ++i) {
        const int32_t given = actives[i / 2];
        const int keep = i % 2, live = given < 0 ? 0 : given < 3 ? given : 3;
        state after = before;
        t_buf active;
        tables w;
        t_case("fork: %d active", (int)given);
        tables_make(&w, &before, ROWS);
        w.src = words(src, 3), w.dst = words(dst, 3), w.status = t_out(4 * 3, 0);
        active = words(&given, 1);
        t_fill_status(&w.status, keep);
        for (int k = live == 3; k < live && k < 2; ++k) {
            after.page_refs[k] += 1, after.table[dst[k] * ENTRIES] = k;
            after.num_row_pages[dst[k]] = 1, after.cache_len[dst[k]] = before.cache_len[k];
        }
        t_upload();
        for (int side = 0; side <= T_DEVICE; ++side) {
            specv_page_fork_desc d = describe_fork(&w, ROWS, 3, side);
            d.num_active_forks = (const int32_t *)t_at(&active, side), d.keep_status = keep;
            run_fork(&d, side);
        }
        check_state(&w, &after, ROWS);
        for (int k = 0; k < 3; ++k) {
            const uint32_t bits = live == 3 && k != 1 ? LENGTH : 0;
            CHECK_EQ((uint32_t)word_at(&w.status, k), bits | t_old_status(keep, k), k);
        }
        t_check_host();
        t_check_device();
    }
}

/* All rows leave, and every page is in many tables, so that warps meet at its count: pages with an
   even id have as many owners as entries, the others claim to have one less. */
static void run_owners(int with_slots) {
    enum { ALL = SPECV_PAGE_ROWS };
    static const int32_t stack[PAGES] = {0, 2, 1, 3, 4, 5, 6, 7}; /* as rows name them first */
    tables w;
    memset(&w, 0, sizeof w);
    t_case("pages with many owners%s", with_slots ? ", with slots" : "");
    const slots s = slots_draw(ALL, ALL, with_slots ? 0 : NO_SLOTS, 1);
    w.page_refs = t_out(4 * PAGES, 0), w.free_pages = t_out(4 * PAGES, 0);
    w.num_free = t_out(4, 0), w.table = t_out(4 * s.count * ENTRIES, 0);
    w.num_row_pages = t_out(4 * s.count, 0), w.cache_len = t_out(4 * s.count, 0);
    w.finished = t_out(ALL, 0), w.status = t_out(4 * ALL, 0);
    put_word(&w.num_free, 0, 0);
    for (int page = 0; page < PAGES; ++page) {
        put_word(&w.page_refs, page, 2 * ALL / PAGES - page % 2);
        put_word(&w.free_pages, page, NO);
    }
    for (int row = 0; row < ALL; ++row) {
        const int at = slot_place(&s, row);
        put_word(&w.table, at * ENTRIES, row % PAGES);
        put_word(&w.table, at * ENTRIES + 1, (row + 2) % PAGES);
        put_word(&w.table, at * ENTRIES + 2, NO);
        put_word(&w.num_row_pages, at, 2), put_word(&w.cache_len, at, 5);
        w.finished.host[row] = 1;
    }
    t_upload();
    for (int side = 0; side <= T_DEVICE; ++side) {
        specv_page_resize_desc d = describe_tables(&w, ALL, side);
        d.slot = slots_at(&s, side), d.slot_dtype = slots_dtype(&s), d.num_slots = slots_count(&s);
        run_resize(&d, side);
    }
    CHECK_EQ(word_at(&w.num_free, 0), PAGES, -1);
    check_words(&w.free_pages, stack, PAGES);
    for (int page = 0; page < PAGES; ++page) CHECK_EQ(word_at(&w.page_refs, page), 0, page);
    for (int row = 0; row < ALL; ++row) {
        CHECK_EQ((uint32_t)word_at(&w.status, row), row % 2 ? PAGE : 0, row);
        const int at = slot_place(&s, row);
        CHECK_EQ(word_at(&w.num_row_pages, at), 0, row);
        for (int i = 0; i < ENTRIES; ++i) CHECK_EQ(word_at(&w.table, at * ENTRIES + i), NO, row);
    }
    t_check_host();
    t_check_device();
}

static void test_owners(void) {
    run_owners(0);
    run_owners(1);
}

/* More forks than a block has threads. Row i of the first half has a page and goes to the row half
   further; every 7th fork wants a row that an earlier one has, some of the launch's first rows. */
static void test_many_forks(void) {
    enum { FORKS_OF = SPECV_PAGE_ROWS + 300, ALL = 2 * FORKS_OF };
    tables w;
    memset(&w, 0, sizeof w);
    t_case("%d forks", FORKS_OF);
    w.page_refs = t_out(4 * ALL, 0), w.table = t_out(4 * ALL, 0);
    w.num_row_pages = t_out(4 * ALL, 0), w.cache_len = t_out(4 * ALL, 0);
    w.src = t_out(4 * FORKS_OF, 0), w.dst = t_out(4 * FORKS_OF, 0);
    w.status = t_out(4 * FORKS_OF, 0);
    for (int row = 0; row < ALL; ++row) {
        const int used = row < FORKS_OF;
        put_word(&w.page_refs, row, used);
        put_word(&w.table, row, used ? FORKS_OF - 1 - row : NO);
        put_word(&w.num_row_pages, row, used), put_word(&w.cache_len, row, used ? row % 5 : 0);
    }
    for (int i = 0; i < FORKS_OF; ++i) {
        put_word(&w.src, i, i);
        put_word(&w.dst, i, FORKS_OF + (i % 7 == 6 ? i / 2 : i)); /* i / 2 may be taken or not */
    }
    t_upload();
    for (int side = 0; side <= T_DEVICE; ++side) {
        specv_page_fork_desc f = describe_fork(&w, ALL, FORKS_OF, side);
        f.num_pages = ALL, f.max_row_pages = 1;
        run_fork(&f, side);
    }
    for (int i = 0; i < FORKS_OF; ++i) {
        /* i / 2 was an ordinary fork's, or another 7th one's who came before, or nobody's */
        const int want = i % 7 == 6 ? i / 2 : i, free_for_all = want % 7 == 6;
        int taken = i % 7 == 6 ? !free_for_all : 0;
        for (int k = 6; k < i && !taken; k += 7) taken = i % 7 == 6 && k / 2 == want;
        CHECK_EQ((uint32_t)word_at(&w.status, i), taken ? LENGTH : 0, i);
        if (taken) continue;
        CHECK_EQ(word_at(&w.cache_len, FORKS_OF + want), i % 5, i);
        CHECK_EQ(word_at(&w.num_row_pages, FORKS_OF + want), i % 5 > 0, i);
        CHECK_EQ(word_at(&w.table, FORKS_OF + want), i % 5 ? FORKS_OF - 1 - i : NO, i);
        CHECK_EQ(word_at(&w.page_refs, FORKS_OF - 1 - i), 1 + (i % 5 > 0), i);
    }
    t_check_host();
    t_check_device();
}

/* Rows of more entries than a block of a fork looks at in one turn. The second has a bad page near
   its end, the third one that was freed, so nothing of theirs is shared. */
static void test_long_forks(void) {
    enum { LONG = 4 * SPECV_FORK_THREADS + 300, FORKS_OF = 3, ALL = 2 * FORKS_OF };
    tables w;
    memset(&w, 0, sizeof w);
    t_case("forks of %d pages", LONG);
    w.page_refs = t_out(4 * LONG * FORKS_OF, 0), w.table = t_out(4 * LONG * ALL, 0);
    w.num_row_pages = t_out(4 * ALL, 0), w.cache_len = t_out(4 * ALL, 0);
    w.src = t_out(4 * FORKS_OF, 0), w.dst = t_out(4 * FORKS_OF, 0);
    w.status = t_out(4 * FORKS_OF, 0);
    for (int i = 0; i < LONG * ALL; ++i) put_word(&w.table, i, i < LONG * FORKS_OF ? i : NO);
    for (int i = 0; i < LONG * FORKS_OF; ++i) put_word(&w.page_refs, i, 1);
    put_word(&w.table, 2 * LONG - 3, LONG * FORKS_OF);
    put_word(&w.page_refs, 3 * LONG - 1, 0);
    for (int row = 0; row < ALL; ++row) {
        put_word(&w.num_row_pages, row, row < FORKS_OF ? LONG : 0);
        put_word(&w.cache_len, row, row < FORKS_OF ? LONG * SIZE : 0);
    }
    for (int i = 0; i < FORKS_OF; ++i) put_word(&w.src, i, i), put_word(&w.dst, i, FORKS_OF + i);
    t_upload();
    for (int side = 0; side <= T_DEVICE; ++side) {
        specv_page_fork_desc f = describe_fork(&w, ALL, FORKS_OF, side);
        f.num_pages = LONG * FORKS_OF, f.max_row_pages = LONG;
        run_fork(&f, side);
    }
    for (int i = 0; i < FORKS_OF; ++i) {
        CHECK_EQ((uint32_t)word_at(&w.status, i), i ? SPECV_ROW_BAD_PAGE : 0, i);
        CHECK_EQ(word_at(&w.num_row_pages, FORKS_OF + i), i ? 0 : LONG, i);
        for (int e = 0; e < LONG; ++e) {
            CHECK_EQ(word_at(&w.table, (FORKS_OF + i) * LONG + e), i ? NO : e, e);
            CHECK_EQ(word_at(&w.page_refs, i * LONG + e), i == 0 ? 2 : i == 1 || e < LONG - 1, e);
        }
    }
    t_check_host();
    t_check_device();
}

/* -------------------------------------------------------------------------------- the engine */

/* A small system under pressure, for many steps. */
static void test_fuzz(void) {
    const int num_steps = T_DEVICE ? (t.quick ? 16 : 60) : t.quick ? 60 : 300;
    for (int i = 0; i < (t.cases ? t.cases : t.quick ? 10 : 24); ++i) {
        engine e;
        t_case("fuzz %d:", i);
        memset(&e, 0, sizeof e);
        e.num_rows = (int)t_between(2, 40);
        e.size = (int)t_between(1, 9);
        e.positions = (int)t_between(8, MAX_LEN);
        e.planes = (int)t_between(1, 4);
        e.num_sms = (int)t_between(1, 3);
        e.num_pages = 1 + e.num_rows * e.positions * (int)t_between(2, 8) / (10 * e.size);
        t_note(" %d rows, %d pages of %d, %d positions, %d planes", e.num_rows, e.num_pages, e.size,
               e.positions, e.planes);
        engine_make(&e);
        for (int step = 0; step < num_steps && t.bad == 0; ++step) {
            engine_step(&e, e.num_free * 4 < e.num_pages ? 12 : 3,
                        t_chance(50) ? (int)t_between(1, 4) : 0);
            if (step % 4 == 3) t_check_device();
        }
        t_check_host();
        t_check_device();
        engine_free(&e);
    }
}

/* As many rows as there may be, a thread each. */
static void test_many_rows(void) {
    static const int batches[] = {SPECV_PAGE_ROWS,    SPECV_PAGE_FEW, SPECV_PAGE_FEW + 1,
                                  SPECV_PAGE_FEW - 1, 1000,           SPECV_PAGE_ROWS - 1};
    for (int i = 0; i < T_COUNT(batches); ++i) {
        engine e;
        if (t.quick && i > 2) continue;
        t_case("%d rows", batches[i]);
        memset(&e, 0, sizeof e);
        e.num_rows = batches[i];
        e.size = 3, e.positions = 12, e.planes = 1, e.num_sms = 4;
        e.num_pages = e.num_rows * 2;
        engine_make(&e);
        for (int step = 0; step < (t.quick ? 4 : 10) && t.bad == 0; ++step)
            engine_step(&e, 3, step % 2 ? e.num_rows / 3 : 2);
        engine_step(&e, 100, 0); /* all leave: more entries than threads, of pages in many tables */
        t_check_host();
        t_check_device();
        engine_free(&e);
    }
}

/* -------------------------------------------------------------- several launches at once */

enum { GRAPH_ROWS = 9, GRAPH_PAGES = 30, GRAPH_REPLAYS = 6 };

/* Resize, then append, from one graph that is launched again and again: nobody looks at lengths or
   pages in between. Row b accepts b % 3 drafts of two; the pool runs dry at some time. */
static void test_graph(void) {
    engine e;
    int32_t len[GRAPH_ROWS];
    t_case("resize and append, %d times", GRAPH_REPLAYS);
    memset(&e, 0, sizeof e);
    e.num_rows = GRAPH_ROWS, e.num_pages = GRAPH_PAGES, e.size = 3, e.positions = 40;
    e.planes = 2, e.num_sms = 2;
    engine_make(&e);
    for (int row = 0; row < GRAPH_ROWS; ++row) {
        put_word(&e.accepted, row, row % 3);
        put_word(&e.reserve, row, PENDING + row % 3);
        e.finished.host[row] = 0;
        len[row] = 0;
        for (int v = 0; v < e.planes; ++v)
            for (int j = 0; j < PENDING + DRAFTS; ++j)
                tag_position(e.source.host, &e.source_grid, row, j, v, row, j);
    }
    t_upload();
    for (int i = 0; i < GRAPH_REPLAYS; ++i) {
        engine_resize(&e, T_HOST_SIDE);
        engine_append(&e, T_HOST_SIDE);
    }
    for (int i = 0, used = 0; i < GRAPH_REPLAYS; ++i) { /* pages are all that is ever missing */
        int dry = 0;
        for (int row = 0; row < GRAPH_ROWS; ++row) {
            const int next = len[row] + PENDING + row % 3;
            const int needs = (next + 2) / 3 - (len[row] + 2) / 3;
            if (needs && (dry || used + needs > GRAPH_PAGES)) {
                dry = 1;
                continue;
            }
            used += needs;
            len[row] = next;
        }
    }
    for (int row = 0; row < GRAPH_ROWS; ++row) {
        CHECK_EQ(word_at(&e.cache_len, row), len[row], row);
        for (int x = 0; x < len[row]; ++x)
            CHECK(has_tag(e.data.host, &e.g,
                          word_at(&e.table, (int64_t)row * e.table_stride_elems + x / 3), x % 3, 1,
                          row, x % (PENDING + row % 3)));
    }
#if T_DEVICE
    cudaStream_t stream = t_begin_graph();
    specv_page_resize_desc resize = describe_resize(&e, T_DEVICE_SIDE);
    specv_append_kv_desc append = describe_append(&e, T_DEVICE_SIDE);
    CHECK_EQ(specv_page_resize(&resize, stream), SPECV_OK, -1);
    CHECK_EQ(specv_append_kv(&append, stream), SPECV_OK, -1);
    t_run_graph(stream, GRAPH_REPLAYS);
#endif
    t_check_device();
    engine_free(&e);
}

/* Each kernel may be the programmatic dependent of the one that writes its inputs: it waits before
   it reads. Without a wait the interpreter reports what was read too early. */
static void test_dependents(void) {
#if T_DEVICE
    static const int32_t words_of[4] = {3, 1, 0, 1}; /* a length, a row; then a page and a page */
    for (int kernel = 0; kernel < 3; ++kernel) {
        static const state s = {{1}, {1, 2, 3}, 3, {0, NO, NO, NO, NO, NO}, {1, 0}, {3, 0}};
        tables w;
        t_case("dependent kernel %d", kernel);
        tables_make(&w, &s, 2);
        w.src = t_out(sizeof words_of, 0), w.dst = words(words_of, 4);
        w.data = t_out(PAGES * SIZE * BYTES, 0);
        t_upload();
        specv_page_resize_desc d = describe_tables(&w, kernel == 2 ? 1 : 2, T_DEVICE_SIDE);
        specv_page_fork_desc f = describe_fork(&w, 2, 1, T_DEVICE_SIDE);
        int32_t *made = (int32_t *)w.src.device;
        if (kernel == 2) T_CUDA(cudaMemset(w.data.device, 7, SIZE * BYTES));
        t_produce(made, w.dst.device, sizeof words_of);
        d.row_reserve = d.copy_src_page = d.copy_dst_page = NULL;
        d.reserve = 4;
        memcpy(w.src.host, words_of, sizeof words_of);
        if (kernel == 0) { /* lengths 3 and 1: each row gets a page, the second a fault */
            d.cache_len = made;
            d.chained = SPECV_CHAINED_AFTER;
            CHECK_EQ(specv_page_resize(&d, 0), SPECV_OK, -1);
            put_word(&w.table, 1, 3), put_word(&w.num_row_pages, 0, 2),
                put_word(&w.page_refs, 3, 1);
            put_word(&w.num_free, 0, 2);
        } else if (kernel == 1) { /* from row 0 to row 1 */
            f.src_slot = made + 2, f.dst_slot = made + 3;
            f.chained = SPECV_CHAINED_AFTER;
            CHECK_EQ(specv_page_fork(&f, 0), SPECV_OK, -1);
            put_word(&w.table, ENTRIES, 0), put_word(&w.num_row_pages, 1, 1);
            put_word(&w.page_refs, 0, 2), put_word(&w.cache_len, 1, 3);
        } else { /* three positions from page 0 to page 1 */
            d.cache_len = made, d.copy_src_page = made + 2, d.copy_dst_page = made + 3;
            d.kv.plane = w.data.device, d.kv.head_bytes = BYTES;
            memset(w.data.host, 7, SIZE * BYTES), memset(w.data.host + SIZE * BYTES, 7, 3 * BYTES);
            specv_page_resize_resolve(&d);
            specv_i_page_task task = specv_i_plan_pages(&d);
            CHECK_EQ(t_launch_dependent((const void *)specv_copy_pages_kernel, 2,
                                        SPECV_MOVE_THREADS, &task),
                     0, 0);
        }
        t_check_dependents();
        t_check_device();
    }
#else
    t_skip("dependent launches need a device");
#endif
}

/* --------------------------------------------------------------------------------- validation */

static int64_t storage[64]; /* something to point to: nothing of it is read or written */

static int32_t *misaligned(void) { return (int32_t *)(void *)((char *)storage + 2); }

static specv_page_resize_desc valid_resize(void) {
    specv_page_resize_desc d = SPECV_ZERO;
    int32_t *any = (int32_t *)storage;
    d.pool.page_refs = d.pool.free_pages = d.pool.num_free = any;
    d.num_row_pages = d.copy_src_page = d.copy_dst_page = any;
    d.cache_len = any;
    d.kv.block_table = any;
    d.kv.plane = storage, d.kv.head_bytes = 16, d.kv.num_heads = 4;
    d.kv.page_size = 16, d.kv.num_pages = 50, d.kv.max_positions = 100;
    d.batch = 4;
    return d;
}

static specv_page_fork_desc valid_fork(void) {
    specv_page_fork_desc d = SPECV_ZERO;
    int32_t *any = (int32_t *)storage;
    d.page_refs = d.block_table = d.num_row_pages = d.cache_len = any;
    d.src_slot = d.dst_slot = any;
    d.num_slots = 4, d.num_forks = 2, d.page_size = 16, d.num_pages = 50, d.max_row_pages = 7;
    return d;
}

#if !T_DEVICE
#define specv_page_resize(d, stream) specv_ref_page_resize(d)
#define specv_page_fork(d, stream)   specv_ref_page_fork(d)
#endif

#define RESIZE(code, change)                                                                       \
    do {                                                                                           \
        specv_page_resize_desc d = valid_resize();                                                 \
        change;                                                                                    \
        CHECK_EQ(specv_page_resize_validate(&d), code, -1);                                        \
        if ((code) != SPECV_OK) CHECK_EQ(specv_ref_page_resize(&d), code, -1);                     \
        if ((code) != SPECV_OK) CHECK_EQ(specv_page_resize(&d, 0), code, -1);                      \
    } while (0)

#define FORK(code, change)                                                                         \
    do {                                                                                           \
        specv_page_fork_desc d = valid_fork();                                                     \
        change;                                                                                    \
        CHECK_EQ(specv_page_fork_validate(&d), code, -1);                                          \
        if ((code) != SPECV_OK) CHECK_EQ(specv_ref_page_fork(&d), code, -1);                       \
        if ((code) != SPECV_OK) CHECK_EQ(specv_page_fork(&d, 0), code, -1);                        \
    } while (0)

static void check_resize_pointers(void) {
    RESIZE(SPECV_OK, (void)0);
    RESIZE(SPECV_ERR_PAGE_REFS, d.pool.page_refs = NULL);
    RESIZE(SPECV_ERR_PAGE_REFS, d.pool.page_refs = misaligned());
    RESIZE(SPECV_ERR_FREE_PAGES, d.pool.free_pages = NULL);
    RESIZE(SPECV_ERR_FREE_PAGES, d.pool.free_pages = misaligned());
    RESIZE(SPECV_ERR_FREE_PAGES, d.pool.num_free = NULL);
    RESIZE(SPECV_ERR_FREE_PAGES, d.pool.num_free = misaligned());
    RESIZE(SPECV_ERR_NUM_ROW_PAGES, d.num_row_pages = NULL);
    RESIZE(SPECV_ERR_NUM_ROW_PAGES, d.num_row_pages = misaligned());
    RESIZE(SPECV_ERR_CACHE_LEN, d.cache_len = NULL);
    RESIZE(SPECV_ERR_CACHE_LEN, d.cache_len = misaligned());
    RESIZE(SPECV_ERR_RESERVE, d.row_reserve = misaligned());
    RESIZE(SPECV_ERR_COPY, d.copy_src_page = misaligned());
    RESIZE(SPECV_ERR_COPY, d.copy_dst_page = misaligned());
    RESIZE(SPECV_ERR_COPY, d.copy_src_page = NULL);
    RESIZE(SPECV_ERR_COPY, d.copy_dst_page = NULL);
    RESIZE(SPECV_ERR_COPY, d.copy_src_page = d.copy_dst_page = NULL);
    RESIZE(SPECV_OK, (d.copy_src_page = d.copy_dst_page = NULL, d.kv.plane = NULL));
    RESIZE(SPECV_ERR_ROW_STATUS, d.row_status = (uint32_t *)misaligned());
    RESIZE(SPECV_ERR_NUM_ACTIVE, d.num_active = misaligned());
    RESIZE(SPECV_ERR_BLOCK_TABLE, d.kv.block_table = NULL);
    RESIZE(SPECV_ERR_BLOCK_TABLE, d.kv.block_table = misaligned());
    RESIZE(SPECV_ERR_PLANES, (d.kv.planes = (void *const *)storage, d.kv.num_planes = 1));
}

static void check_resize(void) {
    const int64_t half = INT64_MAX / 2 + 1;
    RESIZE(SPECV_ERR_CANARY, d.canary0 = 1);
    RESIZE(SPECV_ERR_CANARY, d.canary1 = 1);
    RESIZE(SPECV_ERR_CANARY, d.reserved = 1);
    RESIZE(SPECV_ERR_CHAINED, d.chained = 4);
    RESIZE(SPECV_ERR_CHAINED, d.chained = -1);
    RESIZE(SPECV_ERR_SLOT, d.slot_dtype = 2);
    RESIZE(SPECV_ERR_SLOT, d.slot = (int32_t *)storage);
    RESIZE(SPECV_ERR_SLOT, (d.slot = misaligned(), d.num_slots = 4));
    RESIZE(SPECV_OK, (d.slot = (int32_t *)storage, d.num_slots = INT32_MAX)); /* no limit of rows */
    RESIZE(SPECV_OK, d.num_slots = INT32_MIN);
    RESIZE(SPECV_OK, d.kv.table_stride_elems = half >> 10);
    RESIZE(SPECV_ERR_SIZE, (d.kv.table_stride_elems = half >> 10, d.slot = (int32_t *)storage,
                            d.num_slots = 1 << 10));
    RESIZE(SPECV_OK, (d.slot = (int32_t *)storage, d.num_slots = 9, d.batch = 0,
                      d.kv.block_table = NULL, d.kv.plane = NULL));
    RESIZE(SPECV_ERR_CANARY, d.kv.reserved = 1);
    RESIZE(SPECV_ERR_KEEP_STATUS, d.keep_status = 2);
    RESIZE(SPECV_ERR_KEEP_STATUS, d.keep_status = -1);
    RESIZE(SPECV_ERR_BATCH, d.batch = -1);
    RESIZE(SPECV_ERR_RESERVE, d.reserve = -1);
    RESIZE(SPECV_OK, d.reserve = INT32_MAX);
    RESIZE(SPECV_ERR_NUM_SMS, d.num_sms = -1);
    RESIZE(SPECV_ERR_NUM_SMS, d.num_sms = 65536);
    RESIZE(SPECV_ERR_MAX_POSITIONS, d.kv.max_positions = 0);
    RESIZE(SPECV_ERR_PAGE_SIZE, d.kv.page_size = 0);
    RESIZE(SPECV_ERR_NUM_PAGES, d.kv.num_pages = 0);
    RESIZE(SPECV_ERR_NUM_PLANES, d.kv.num_planes = 2);
    RESIZE(SPECV_ERR_NUM_HEADS, d.kv.num_heads = -1);
    RESIZE(SPECV_ERR_HEAD_BYTES, d.kv.head_bytes = 0);
    RESIZE(SPECV_OK, (d.kv.head_bytes = 0, d.kv.plane = NULL));
    RESIZE(SPECV_ERR_KV_STRIDE, d.kv.page_stride_bytes = 15);
    RESIZE(SPECV_ERR_KV_STRIDE, d.kv.pos_stride_bytes = 63);
    RESIZE(SPECV_ERR_TABLE_STRIDE, d.kv.table_stride_elems = 6);
    RESIZE(SPECV_ERR_SIZE, d.kv.page_stride_bytes = half);
    RESIZE(SPECV_OK, d.batch = SPECV_PAGE_ROWS);
    RESIZE(SPECV_ERR_TOO_LARGE, d.batch = SPECV_PAGE_ROWS + 1);
    RESIZE(SPECV_OK, (d.batch = 1 << 10, d.kv.max_positions = 1 << 24));
    RESIZE(SPECV_ERR_TOO_LARGE, (d.batch = 1 << 10, d.kv.max_positions = (1 << 24) + 1));
}

static void check_fork(void) {
    const int64_t half = INT64_MAX / 2 + 1;
    FORK(SPECV_OK, (void)0);
    FORK(SPECV_ERR_CANARY, d.canary0 = 1);
    FORK(SPECV_ERR_CANARY, d.canary1 = 1);
    FORK(SPECV_ERR_CANARY, d.reserved = 1);
    FORK(SPECV_ERR_CHAINED, d.chained = 4);
    FORK(SPECV_ERR_CHAINED, d.chained = -1);
    FORK(SPECV_ERR_SLOT, d.num_slots = -1);
    FORK(SPECV_ERR_SLOT, d.num_slots = 0);
    FORK(SPECV_ERR_FORK, d.num_forks = -1);
    FORK(SPECV_ERR_NUM_ACTIVE, d.num_active_forks = misaligned());
    FORK(SPECV_ERR_FORK, d.src_slot = NULL);
    FORK(SPECV_ERR_FORK, d.src_slot = misaligned());
    FORK(SPECV_ERR_FORK, d.dst_slot = NULL);
    FORK(SPECV_ERR_FORK, d.dst_slot = misaligned());
    FORK(SPECV_ERR_ROW_STATUS, d.fork_status = (uint32_t *)misaligned());
    FORK(SPECV_ERR_KEEP_STATUS, d.keep_status = 2);
    FORK(SPECV_ERR_PAGE_REFS, d.page_refs = NULL);
    FORK(SPECV_ERR_PAGE_REFS, d.page_refs = misaligned());
    FORK(SPECV_ERR_BLOCK_TABLE, d.block_table = NULL);
    FORK(SPECV_ERR_BLOCK_TABLE, d.block_table = misaligned());
    FORK(SPECV_ERR_NUM_ROW_PAGES, d.num_row_pages = NULL);
    FORK(SPECV_ERR_NUM_ROW_PAGES, d.num_row_pages = misaligned());
    FORK(SPECV_ERR_NUM_ROW_PAGES, d.max_row_pages = 0);
    FORK(SPECV_ERR_CACHE_LEN, d.cache_len = NULL);
    FORK(SPECV_ERR_CACHE_LEN, d.cache_len = misaligned());
    FORK(SPECV_ERR_PAGE_SIZE, d.page_size = 0);
    FORK(SPECV_ERR_NUM_PAGES, d.num_pages = 0);
    FORK(SPECV_ERR_TABLE_STRIDE, d.table_stride_elems = 6);
    FORK(SPECV_ERR_TABLE_STRIDE, d.table_stride_elems = -1);
    FORK(SPECV_OK, d.table_stride_elems = 7);
    FORK(SPECV_ERR_SIZE, d.table_stride_elems = half / 8);
    FORK(SPECV_ERR_TOO_LARGE, d.max_row_pages = (1 << 29) + 1);
}

static void test_validation(void) {
    t_case("every status code of B5");
    CHECK_EQ(specv_page_resize_validate(NULL), SPECV_ERR_NULL_DESC, -1);
    CHECK_EQ(specv_page_fork_validate(NULL), SPECV_ERR_NULL_DESC, -1);
    CHECK_EQ(specv_ref_page_resize(NULL), SPECV_ERR_NULL_DESC, -1);
    CHECK_EQ(specv_ref_page_fork(NULL), SPECV_ERR_NULL_DESC, -1);
    CHECK_EQ(specv_page_resize(NULL, 0), SPECV_ERR_NULL_DESC, -1);
    CHECK_EQ(specv_page_fork(NULL, 0), SPECV_ERR_NULL_DESC, -1);
    check_resize_pointers();
    check_resize();
    check_fork();
}

/* Batch 0 and no forks: nothing is needed, nothing happens. */
static void test_nothing(void) {
    specv_page_resize_desc d = SPECV_ZERO;
    specv_page_fork_desc f = SPECV_ZERO;
    t_case("batch 0");
    d.kv.page_size = d.kv.num_pages = d.kv.max_positions = 1;
    f.page_size = f.num_pages = f.max_row_pages = 1;
    CHECK_EQ(specv_ref_page_resize(&d), SPECV_OK, -1);
    CHECK_EQ(specv_page_resize(&d, 0), SPECV_OK, -1);
    CHECK_EQ(specv_ref_page_fork(&f), SPECV_OK, -1);
    CHECK_EQ(specv_page_fork(&f, 0), SPECV_OK, -1);
    t_check_device();
}

int main(int argc, char **argv) {
    static const t_group groups[] = {
        {"validation", test_validation}, {"nothing", test_nothing},
        {"cases", test_cases},           {"slots", test_slots},
        {"forks", test_forks},           {"inert-forks", test_inert_forks},
        {"owners", test_owners},         {"many-forks", test_many_forks},
        {"long-forks", test_long_forks}, {"fuzz", test_fuzz},
        {"many-rows", test_many_rows},   {"graph", test_graph},
        {"dependents", test_dependents},
    };
    return t_main(argc, argv, groups, T_COUNT(groups));
}
