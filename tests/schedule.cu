/* schedule.cu - C3, which rows go on, C4, rows in order of a key, and C5, a budget of drafts: each
   against a model that sorts, scans or copies out of place. */

#include "io.h"
#include "slots.h"
#include "tickets.h"

#include <math.h>

#if !T_DEVICE
#define specv_compact(d, stream)      specv_ref_compact(d)
#define specv_group(d, stream)        specv_ref_group(d)
#define specv_draft_budget(d, stream) specv_ref_draft_budget(d)
#endif

/* ------------------------------------------------------------------------------------------ C3 */

enum lengths { LENGTHS_NONE, LENGTHS_CACHE, LENGTHS_BOTH, LENGTHS_BAD, LENGTHS_HUGE, NUM_LENGTHS };

typedef struct compaction {
    int batch, num_carry, keep_status;
    int64_t elem_bytes[SPECV_MAX_CARRY];
    slots slots;
    t_buf active, finished, cache_len, draft_cache_len;
    io *rows, *new_slot, *count, *start, *first, *ranges, *status, *carry[SPECV_MAX_CARRY];
} compaction;

static specv_compact_desc compact_describe(const compaction *c, int side) {
    specv_compact_desc d = SPECV_ZERO;
    d.batch = c->batch;
    d.num_active = (const int32_t *)t_at(&c->active, side);
    d.slot = slots_at(&c->slots, side), d.slot_dtype = slots_dtype(&c->slots);
    d.num_slots = slots_count(&c->slots);
    d.finished = (const uint8_t *)t_at(&c->finished, side);
    d.cache_len = (const int32_t *)t_at(&c->cache_len, side);
    d.draft_cache_len = (const int32_t *)t_at(&c->draft_cache_len, side);
    d.active = (int32_t *)io_at(c->rows, side);
    d.new_num_active = (int32_t *)io_at(c->count, side);
    d.new_slot = io_at(c->new_slot, side);
    d.start_position = (int32_t *)io_at(c->start, side);
    d.draft_lacks_first = (int32_t *)io_at(c->first, side);
    d.draft_lacks_start = (int32_t *)io_at(c->ranges, side);
    d.row_status = (uint32_t *)io_at(c->status, side);
    d.num_carry = c->num_carry, d.keep_status = c->keep_status;
    for (int i = 0; i < c->num_carry; ++i) {
        d.carry[i].data = io_at(c->carry[i], side);
        d.carry[i].elem_bytes = c->elem_bytes[i];
    }
    return d;
}

static void draw_lengths(const compaction *c, enum lengths lengths) {
    static const int32_t wild[] = {-1, INT32_MIN, INT32_MAX};
    for (int slot = 0; slot < c->slots.count; ++slot) {
        int64_t len = lengths == LENGTHS_HUGE ? INT32_MAX - 1 - t_below(2) : t_below(5000);
        int64_t lacks = lengths == LENGTHS_HUGE ? len
                        : t_chance(80)          ? t_below(2)
                                                : t_below(len + 1);
        int64_t first = len - (lacks > len ? len : lacks);
        if (lengths == LENGTHS_BAD && t_chance(20)) len = T_PICK(wild);
        if (lengths == LENGTHS_BAD && t_chance(20)) first = t_chance(50) ? len + 1 : T_PICK(wild);
        if (c->cache_len.host) put32(c->cache_len.host, slot, len);
        if (c->draft_cache_len.host) put32(c->draft_cache_len.host, slot, first);
    }
}

static void put_new_slot(const compaction *c, int i, int64_t slot) {
    if (!c->new_slot) return;
    if (slots_dtype(&c->slots) == SPECV_I64)
        ((int64_t *)(void *)c->new_slot->want)[i] = slot;
    else
        put32(c->new_slot->want, i, slot);
}

/* Every row that goes on is copied to its place; what lies behind them stays. */
static void want_compact(const compaction *c, int live) {
    int count = 0;
    int64_t sum = 0;
    for (int i = 0; i < c->batch; ++i) { /* what follows the rows that go on */
        put32(c->rows->want, i, -1);
        put_new_slot(c, i, -1);
        if (c->start) put32(c->start->want, i, 0);
        if (c->first) put32(c->first->want, i, 0);
        want_status(c->status, c->keep_status, i, 0);
    }
    for (int b = 0; b < live; ++b) {
        const int64_t slot = slot_of(&c->slots, b);
        int64_t len = 0, first = 0;
        int bad = 0;
        if (c->finished.host[b]) continue; /* and has perhaps no slot any more */
        if (slot < 0) want_status(c->status, c->keep_status, b, SPECV_ROW_BAD_SLOT);
        if (slot < 0) continue;
        if (c->cache_len.host) len = first = get32(c->cache_len.host, slot);
        if (c->draft_cache_len.host) first = get32(c->draft_cache_len.host, slot);
        bad = len < 0 || len > INT32_MAX - 1 || first < 0 || first > len;
        put32(c->rows->want, count, b);
        put_new_slot(c, count, slot);
        if (c->start && !bad) put32(c->start->want, count, len);
        if (c->first && !bad) put32(c->first->want, count, first);
        if (bad) want_status(c->status, c->keep_status, b, SPECV_ROW_BAD_LENGTH);
        if (c->ranges) put32(c->ranges->want, count, sum);
        sum += bad ? 0 : len + 1 - first;
        for (int i = 0; i < c->num_carry; ++i)
            memcpy(c->carry[i]->want + count * c->elem_bytes[i],
                   c->carry[i]->buf.host + b * c->elem_bytes[i], (size_t)c->elem_bytes[i]);
        count += 1;
    }
    if (c->batch) put32(c->count->want, 0, count);
    for (int i = count; i <= c->batch && c->batch && c->ranges; ++i) put32(c->ranges->want, i, sum);
}

static void run_compact(int batch, int percent, enum lengths lengths, int num_carry,
                        int64_t elem_bytes) {
    compaction c;
    specv_compact_desc d;
    const int64_t words = 4 * (int64_t)batch;
    int live;
    memset(&c, 0, sizeof c);
    c.batch = batch, c.num_carry = num_carry;
    t_note(" batch %d, %d %% finished, %d arrays", batch, percent, num_carry);
    c.active = draw_num_active(batch, &live);
    c.slots = slots_draw(batch, live, draw_bad_slots(), 0);
    c.finished = t_in(batch, t_below(4));
    if (batch == 0) lengths = LENGTHS_NONE; /* nothing to point to */
    if (lengths != LENGTHS_NONE) c.cache_len = t_in(4 * (int64_t)c.slots.count, 0);
    if (lengths >= LENGTHS_BOTH) c.draft_cache_len = t_in(4 * (int64_t)c.slots.count, 0);
    for (int b = 0; b < batch; ++b)
        c.finished.host[b] = (char)(t_chance(percent) ? t_between(1, 255) : 0);
    draw_lengths(&c, lengths);
    c.rows = io_new(words, 0);
    c.count = io_new(4, 0);
    if (t_chance(60))
        c.new_slot = io_new(slots_dtype(&c.slots) == SPECV_I64 ? 2 * words : words, 0);
    if (lengths != LENGTHS_NONE && t_chance(80)) c.start = io_new(words, 0);
    if (lengths >= LENGTHS_BOTH && t_chance(80)) c.first = io_new(words, 0);
    if (lengths >= LENGTHS_BOTH && t_chance(80)) c.ranges = io_new(words + 4, 0);
    if (t_chance(80)) c.status = io_new(words, 0);
    c.keep_status = c.status && t_chance(30);
    if (c.status) t_fill_status(&c.status->buf, c.keep_status);
    for (int i = 0; i < num_carry; ++i) {
        static const int64_t sizes[] = {1, 2, 3, 4, 4, 6, 8, 12, 16, 20, 64, 132};
        c.elem_bytes[i] = i == 0 && elem_bytes ? elem_bytes : T_PICK(sizes);
        c.carry[i] = io_new(batch * c.elem_bytes[i], t_chance(50) ? 0 : t_below(16));
        for (int64_t k = 0; k < batch * c.elem_bytes[i]; ++k)
            c.carry[i]->buf.host[k] = (char)t_random();
    }
    io_begin();
    want_compact(&c, live);
    t_upload();
    d = compact_describe(&c, T_HOST_SIDE);
    CHECK_EQ(specv_ref_compact(&d), SPECV_OK, -1);
    io_check();
#if T_DEVICE
    d = compact_describe(&c, T_DEVICE_SIDE);
    CHECK_EQ(specv_compact(&d, 0), SPECV_OK, -1);
    t_check_device();
#endif
    io_free();
}

static void test_compact(void) {
    static const int sizes[] = {0,   1,   2,   31,  32,   33,   63,   64,   65,   127, 128,
                                255, 256, 257, 511, 1023, 1024, 1025, 2047, 2049, 2100};
    static const int percents[] = {50, 0, 10, 90, 100};
    /* around one slice, around 128, around longer ones */
    static const int64_t wide[] = {4,   12,  260, 1028,  4096,  4100,  127,
                                   128, 129, 136, 16384, 16385, 32768, 40004};
    int turn = 0;
    for (int i = 0; i < T_COUNT(sizes); ++i)
        for (int j = 0; j < T_COUNT(percents); ++j, ++turn) {
            if (t.quick && sizes[i] > 300 && (i + j) % 5) continue;
            t_case("compact:");
            run_compact(sizes[i], percents[j], (enum lengths)(turn % NUM_LENGTHS),
                        turn % (SPECV_MAX_CARRY + 1), 0);
        }
    for (int i = 0; i < T_COUNT(wide); ++i) {
        t_case("compact, %d-byte elements:", (int)wide[i]);
        run_compact(wide[i] > 10000 ? 9
                    : i % 2         ? 40
                                    : 130,
                    i % 2 ? 10 : 50, LENGTHS_BOTH, 1 + i % 2, wide[i]);
    }
    for (int i = 0; i < (t.quick ? 30 : 300); ++i) {
        const int batch = (int)t_between(1, t.quick ? 80 : 400);
        t_case("compact:");
        run_compact(batch, t_chance(50) ? 5 : (int)t_between(0, 100),
                    (enum lengths)t_below(NUM_LENGTHS), (int)t_between(0, SPECV_MAX_CARRY), 0);
    }
}

/* ------------------------------------------------------------------------------------------ C4 */

enum keys { KEYS_LENGTH, KEYS_LENGTH_WIDE, KEYS_SCORE, KEYS_SCORE_ODD, KEYS_EQUAL, NUM_KEYS };

typedef struct grouping {
    int batch, num_pick, is_score, keep_status;
    slots slots;
    t_buf active, skip, key;
    io *order, *start, *groups, *pick_rows, *is_group, *status, *ticket;
} grouping;

/* A row as the model sees it: rows with smaller `kind`, then smaller `key` come first. */
typedef struct ranked {
    double key;
    int kind, row; /* kind 1: NaN */
} ranked;

static ranked rank_of(const grouping *g, int row) {
    ranked r = {0, 0, 0};
    float score;
    r.row = row;
    r.key = (double)get32(g->key.host, g->is_score ? row : slot_of(&g->slots, row));
    if (!g->is_score) return r;
    memcpy(&score, g->key.host + 4 * (int64_t)row, 4);
    r.kind = isnan(score) ? 1 : 0;
    r.key = r.kind ? 0 : -(double)score;
    return r;
}

static int same_key(const ranked *a, const ranked *b) {
    return a->kind == b->kind && a->key <= b->key && a->key >= b->key;
}

static int compare_ranked(const void *x, const void *y) {
    const ranked *a = (const ranked *)x, *b = (const ranked *)y;
    if (a->kind != b->kind) return a->kind < b->kind ? -1 : 1;
    if (!same_key(a, b)) return a->key < b->key ? -1 : 1;
    return a->row < b->row ? -1 : 1;
}

static specv_group_desc group_describe(const grouping *g, int side) {
    specv_group_desc d = SPECV_ZERO;
    d.batch = g->batch, d.num_pick = g->num_pick;
    d.num_active = (const int32_t *)t_at(&g->active, side);
    d.slot = slots_at(&g->slots, side), d.slot_dtype = slots_dtype(&g->slots);
    d.num_slots = slots_count(&g->slots);
    d.skip = (const uint8_t *)t_at(&g->skip, side);
    if (g->is_score)
        d.score = (const float *)t_at(&g->key, side);
    else
        d.length = (const int32_t *)t_at(&g->key, side);
    d.order = (int32_t *)io_at(g->order, side);
    d.group_start = (int32_t *)io_at(g->start, side);
    d.group_count = (int32_t *)io_at(g->groups, side);
    d.pick_rows = (int32_t *)io_at(g->pick_rows, side);
    d.is_group = (int32_t *)io_at(g->is_group, side);
    d.row_status = (uint32_t *)io_at(g->status, side);
    d.keep_status = g->keep_status;
    d.ticket = (uint32_t *)io_at(g->ticket, side);
    return d;
}

static void draw_keys(const grouping *g, enum keys keys, int variety) {
    const float odd[] = {0.0f, -0.0f, NAN, -NAN, INFINITY, -INFINITY, 1e-45f, -1e-45f, 3e38f};
    for (int at = 0; at < (g->is_score ? g->batch : g->slots.count); ++at) {
        float score = (float)t_between(0, variety) / 8;
        int32_t key = (int32_t)t_between(0, variety);
        if (keys == KEYS_LENGTH_WIDE) key = (int32_t)t_random();
        if (keys == KEYS_LENGTH_WIDE && t_chance(20))
            key = t_chance(50) ? INT32_MIN : t_chance(50) ? INT32_MAX : -1;
        if (keys == KEYS_EQUAL) key = 77, score = 0.5f;
        if (keys == KEYS_SCORE_ODD && t_chance(60)) score = T_PICK(odd);
        if (g->is_score) memcpy(&key, &score, 4);
        put32(g->key.host, at, key);
    }
}

/* EXSPEC's get_batch: rows are put into buckets in window order until one is full. */
static void want_picked(const grouping *g, const ranked *window, int count) {
    int full = -1, at = 0;
    for (int i = 0; i < count && full < 0; ++i) {
        int size = 0;
        for (int j = 0; j <= i; ++j) size += same_key(&window[i], &window[j]);
        if (size == g->num_pick) full = i;
    }
    if (g->is_group) put32(g->is_group->want, 0, full >= 0);
    if (!g->pick_rows) return;
    for (int i = 0; i < count && at < g->num_pick; ++i)
        if (full < 0 || same_key(&window[i], &window[full]))
            put32(g->pick_rows->want, at++, window[i].row);
    while (at < g->num_pick) put32(g->pick_rows->want, at++, -1);
}

static void want_group(const grouping *g, int live) {
    ranked *rows = (ranked *)calloc((size_t)g->batch + 1, sizeof *rows);
    int count = 0, groups = 0;
    if (!rows) t_die(__FILE__, __LINE__, "want_group", "no memory");
    for (int b = 0; b < g->batch; ++b) {
        const int takes = b < live && (!g->skip.host || !g->skip.host[b]);
        const int bad = takes && slot_of(&g->slots, b) < 0;
        if (takes && !bad) rows[count++] = rank_of(g, b);
        want_status(g->status, g->keep_status, b, bad ? SPECV_ROW_BAD_SLOT : 0);
    }
    if (g->num_pick) want_picked(g, rows, count);
    qsort(rows, (size_t)count, sizeof *rows, compare_ranked);
    for (int i = 0; i < g->batch; ++i) put32(g->order->want, i, i < count ? rows[i].row : -1);
    for (int i = 0; i < count; ++i) {
        if (i > 0 && same_key(&rows[i - 1], &rows[i])) continue;
        if (g->start) put32(g->start->want, groups, i);
        groups += 1;
    }
    for (int i = groups; i <= g->batch && g->start; ++i) put32(g->start->want, i, count);
    if (g->groups) put32(g->groups->want, 0, groups);
    free(rows);
}

/* Returns how many rows are live. */
static int group_make(grouping *g, int batch, enum keys keys, int variety, int pick,
                      int percent_skipped) {
    const int64_t words = 4 * (int64_t)batch;
    int live;
    memset(g, 0, sizeof *g);
    g->batch = batch, g->num_pick = pick;
    g->is_score = keys == KEYS_SCORE || keys == KEYS_SCORE_ODD || (keys == KEYS_EQUAL && batch % 2);
    t_note(" batch %d, keys %d of %d, pick %d, skipped %d %%", batch, (int)keys, variety, pick,
           percent_skipped);
    g->active = draw_num_active(batch, &live);
    if (percent_skipped) g->skip = t_in(batch, t_below(4));
    for (int b = 0; b < batch && percent_skipped; ++b)
        g->skip.host[b] = (char)(t_chance(percent_skipped) ? t_between(1, 255) : 0);
    g->slots = slots_draw(batch, live, draw_bad_slots(), 0);
    g->key = t_in(g->is_score ? words : 4 * (int64_t)g->slots.count, 0);
    draw_keys(g, keys, variety);
    g->order = io_new(words, 0);
    g->ticket = io_new(4, 0);
    put32(g->ticket->buf.host, 0, 0);
    if (t_chance(80)) g->status = io_new(words, 0);
    g->keep_status = g->status && t_chance(30);
    if (g->status) t_fill_status(&g->status->buf, g->keep_status);
    if (t_chance(80)) g->start = io_new(words + 4, 0);
    if (t_chance(80)) g->groups = io_new(4, 0);
    if (pick && t_chance(90)) g->pick_rows = io_new(4 * (int64_t)pick, 0);
    if (pick && t_chance(80)) g->is_group = io_new(4, 0);
    return live;
}

static void group_run(const grouping *g, int live) {
    specv_group_desc d;
    io_begin();
    if (g->batch) want_group(g, live);
    t_upload();
    d = group_describe(g, T_HOST_SIDE);
    CHECK_EQ(specv_ref_group(&d), SPECV_OK, -1);
    io_check();
#if T_DEVICE
    d = group_describe(g, T_DEVICE_SIDE);
    CHECK_EQ(specv_group(&d, 0), SPECV_OK, -1);
    t_check_device();
#endif
    io_free();
}

static void run_group(int batch, enum keys keys, int variety, int pick, int percent_skipped) {
    grouping g;
    const int live = group_make(&g, batch, keys, variety, pick, percent_skipped);
    group_run(&g, live);
}

static void test_group(void) {
    static const int sizes[] = {0, 1, 2, 31, 32, 33, 64, 127, 128, 129, 255, 256, 257, 513, 1100};
    int turn = 0;
    for (int i = 0; i < T_COUNT(sizes); ++i)
        for (int keys = 0; keys < NUM_KEYS; ++keys, ++turn) {
            if (t.quick && sizes[i] > 300 && (turn % 3)) continue;
            t_case("group:");
            run_group(sizes[i], (enum keys)keys, sizes[i] / 8 + 1, turn % 4 ? turn % 9 : 0,
                      turn % 3 * 30);
        }
    for (int i = 0; i < (t.quick ? 40 : 400); ++i) {
        const int batch = (int)t_between(1, t.quick ? 100 : 300);
        t_case("group:");
        run_group(batch, (enum keys)t_below(NUM_KEYS), (int)t_between(1, 40), (int)t_between(0, 20),
                  t_chance(50) ? 0 : (int)t_between(1, 100));
    }
    for (int i = -1; i <= 1; ++i) { /* around one tile of keys */
        t_case("group, tile:");
        run_group(SPECV_GROUP_TILE + i, i ? KEYS_LENGTH : KEYS_SCORE_ODD, 300, 9, 10 * i + 10);
    }
    t_case("group, tiles, a group of more than one:");
    run_group(SPECV_GROUP_TILE + 200, KEYS_EQUAL, 1, SPECV_GROUP_TILE + 7, 1);
    t_case("group, tiles, fallback:");
    run_group(SPECV_GROUP_TILE + 150, KEYS_LENGTH_WIDE, 0, SPECV_GROUP_TILE + 9, 2);
    if (t.quick) return;
    t_case("group, large:");
    run_group(5000, KEYS_LENGTH, 300, 9, 10);
}

/* Groups that are just full, or lack one row, in a window with others between them. */
static void test_picked(void) {
    for (int i = 0; i < (t.quick ? 60 : 400); ++i) {
        const int pick = 1 + i % 8, variety = (int)t_between(1, 6);
        t_case("picked:");
        run_group((int)t_between(pick, pick * variety + 2), i % 2 ? KEYS_SCORE : KEYS_LENGTH,
                  variety, pick, i % 3 ? 0 : 20);
    }
    t_case("picked, more than there are:");
    run_group(5, KEYS_EQUAL, 1, 70, 0);
    for (int i = 0; i < 3; ++i) { /* no group is full: the first ones, from more than one tile */
        t_case("picked, fallback:");
        run_group(520 + 70 * i, KEYS_LENGTH_WIDE, 0, 300 + 120 * i, i * 25);
    }
    t_case("picked, exactly all:");
    run_group(64, KEYS_EQUAL, 1, 64, 0);
}

#if T_DEVICE
/* group_count says that the ticket was bad, and so does a row at least. */
static void run_bad_ticket(int blocks, int kind) {
    const int rows = SPECV_GROUP_ROWS * (blocks - 1) + (int)t_between(1, SPECV_GROUP_ROWS);
    grouping g;
    const int live = group_make(&g, rows, (enum keys)(kind % NUM_KEYS), 20, kind % 3, 0);
    if (!g.groups) g.groups = io_new(4, 0);
    if (!g.status) g.status = io_new(4 * (int64_t)rows, 0);
    g.keep_status = 0;
    t_upload();
    specv_group_desc d = group_describe(&g, T_DEVICE_SIDE);
    TICKET_LAUNCH(group, d, blocks, kind);
    CHECK_EQ(word_on_device(d.group_count, 0), -1, -1);
    CHECK(ticket_is_told(d.row_status, rows));
    group_run(&g, live); /* from the beginning, with a ticket that is zero */
}
#endif

static void test_tickets(void) { TICKET_CASES(run_bad_ticket, 2, 3, 9); }

/* ------------------------------------------------------------------------------------------ C5 */

enum chances { CHANCES_ANY, CHANCES_TIES, CHANCES_SURE, CHANCES_TINY, CHANCES_BAD, NUM_CHANCES };

typedef struct budgeting {
    int batch, max_draft, max_budget, in_place;
    int64_t stride;
    t_buf active, confidence, draft_len, budget;
    int keep_status;
    io *len, *survival, *start, *status; /* len: out, and in as well if in_place */
} budgeting;

typedef struct candidate {
    float survival;
    int row, position;
} candidate;

static int compare_candidates(const void *x, const void *y) {
    const candidate *a = (const candidate *)x, *b = (const candidate *)y;
    if (a->survival > b->survival) return -1;
    if (a->survival < b->survival) return 1;
    if (a->row != b->row) return a->row < b->row ? -1 : 1;
    return a->position < b->position ? -1 : 1;
}

static specv_draft_budget_desc budget_describe(const budgeting *g, int side) {
    specv_draft_budget_desc d = SPECV_ZERO;
    d.rows.batch = g->batch, d.rows.max_draft = g->max_draft;
    d.rows.num_active = (const int32_t *)t_at(&g->active, side);
    d.rows.draft_len = (const int32_t *)t_at(&g->draft_len, side);
    if (g->batch % 3 == 0) d.rows.slot = (const int32_t *)16, d.rows.num_slots = 1; /* not read */
    d.new_draft_len = (int32_t *)io_at(g->len, side);
    if (g->in_place) d.rows.draft_len = d.new_draft_len;
    d.confidence = (const float *)t_at(&g->confidence, side);
    d.budget = (const int32_t *)t_at(&g->budget, side);
    d.survival = (float *)io_at(g->survival, side);
    d.new_row_start = (int32_t *)io_at(g->start, side);
    d.row_status = (uint32_t *)io_at(g->status, side);
    if (g->stride > g->max_draft || g->batch % 2) d.confidence_stride_elems = g->stride;
    d.max_budget = g->max_budget, d.keep_status = g->keep_status;
    return d;
}

static float draw_chance(enum chances chances, float last) {
    static const float bad[] = {-1e-9f, 1.0000001f, INFINITY, -INFINITY, NAN, -0.0f, 2, -1};
    static const float ties[] = {0.5f, 0.5f, 0.25f, 1, 0};
    switch (chances) {
    case CHANCES_TIES: return T_PICK(ties);
    case CHANCES_SURE: return t_chance(5) ? last : 1;
    case CHANCES_TINY: return (float)pow(10, -(double)t_below(30)) * (float)t_uniform();
    case CHANCES_BAD:
        if (t_chance(15)) return T_PICK(bad);
        break;
    default: break;
    }
    return (float)(t_chance(60) ? 1 - 0.2 * t_uniform() : t_uniform());
}

/* Drafts of a row; -1 if that cannot be trusted. */
static int64_t drafts_of(const budgeting *g, int row, int live) {
    int64_t n = g->max_draft;
    if (row >= live) return 0;
    if (g->draft_len.host) n = get32(g->draft_len.host, row);
    if (g->in_place) n = get32(g->len->buf.host, row);
    return n < 0 || n > g->max_draft ? -1 : n;
}

/* Survival of all drafts, then the best of them by a sort. */
static void want_budget(const budgeting *g, int live, int64_t budget) {
    const size_t most = (size_t)g->batch * (size_t)g->max_draft;
    candidate *all = (candidate *)calloc(most + 1, sizeof *all);
    int64_t *keep = (int64_t *)calloc((size_t)g->batch + 1, sizeof *keep);
    int64_t count = 0, sum = 0;
    if (!all || !keep) t_die(__FILE__, __LINE__, "want_budget", "no memory");
    for (int b = 0; b < g->batch; ++b) {
        const int64_t n = drafts_of(g, b, live);
        uint32_t bits = n < 0 ? (uint32_t)SPECV_ROW_BAD_LENGTH : 0;
        volatile float survival = 1; /* rounded to float at each step */
        for (int j = 0; j < g->max_draft; ++j) {
            float chance = 0, value;
            if (j < n) memcpy(&chance, g->confidence.host + 4 * (b * g->stride + j), 4);
            if (isnan(chance) || chance < 0 || chance > 1) bits |= SPECV_ROW_NAN, chance = 0;
            survival = fabsf(survival * chance); /* -0.0 is 0 */
            value = survival;
            memcpy(g->survival->want + 4 * ((int64_t)b * g->max_draft + j), &value, 4);
            if (j >= n) continue;
            all[count].survival = value, all[count].row = b, all[count].position = j;
            count += 1;
        }
        want_status(g->status, g->keep_status, b, bits);
    }
    qsort(all, (size_t)count, sizeof *all, compare_candidates);
    if (budget < 0) budget = 0;
    for (int64_t i = 0; i < count && i < budget; ++i) {
        CHECK_EQ(all[i].position, keep[all[i].row], all[i].row); /* a prefix of the row */
        keep[all[i].row] += 1;
    }
    for (int b = 0; b < g->batch; ++b) {
        put32(g->len->want, b, keep[b]);
        if (g->start) put32(g->start->want, b, sum);
        sum += keep[b];
    }
    if (g->start) put32(g->start->want, g->batch, sum);
    free(all);
    free(keep);
}

static void run_budget(int batch, int max_draft, enum chances chances, int percent) {
    budgeting g;
    specv_draft_budget_desc d;
    const int64_t total = (int64_t)batch * max_draft, words = 4 * (int64_t)batch;
    const int64_t edges[] = {0, 1, -1, INT32_MIN, INT32_MAX, total, total + 1, total - 1, 31, 32};
    const int64_t wrong[] = {-1, INT32_MIN, INT32_MAX, (int64_t)max_draft + 1};
    const int given = (int)t_below(3);
    int64_t budget = percent >= 0 ? total * percent / 100 : T_PICK(edges), limit;
    int live;
    memset(&g, 0, sizeof g);
    g.batch = batch, g.max_draft = max_draft;
    g.stride = max_draft + (t_chance(50) ? t_below(4) : 0);
    g.in_place = given == 2;
    t_note(" batch %d, max_draft %d, chances %d, budget %lld", batch, max_draft, (int)chances,
           (long long)budget);
    g.active = draw_num_active(batch, &live);
    g.confidence = t_in(total ? 4 * ((batch - 1) * g.stride + max_draft) : 0, 0);
    g.len = io_new(words, 0);
    if (given == 1) g.draft_len = t_in(words, 0);
    for (int b = 0; b < batch && given; ++b) {
        int64_t n = t_chance(30) ? max_draft : t_between(0, max_draft);
        if (chances == CHANCES_BAD && t_chance(10)) n = T_PICK(wrong);
        put32(g.in_place ? g.len->buf.host : g.draft_len.host, b, n);
    }
    for (size_t i = 0; i < g.confidence.bytes; i += 4) { /* gaps, and what is behind a row */
        const float nan = NAN;
        memcpy(g.confidence.host + i, &nan, 4);
    }
    for (int b = 0; b < batch; ++b) {
        float chance = 1;
        for (int j = 0; j < drafts_of(&g, b, live); ++j) {
            chance = draw_chance(chances, chance / 2);
            memcpy(g.confidence.host + 4 * (b * g.stride + j), &chance, 4);
        }
    }
    g.survival = io_new(4 * total, 0);
    if (t_chance(80)) g.start = io_new(words + 4, 0);
    if (t_chance(80)) g.status = io_new(words, 0);
    g.keep_status = g.status && t_chance(30);
    if (g.status) t_fill_status(&g.status->buf, g.keep_status);
    limit = budget < 0 || t_chance(30) ? total : budget;
    if (t_chance(60) || limit != budget) { /* the smaller one of both counts */
        g.budget = t_in(4, 0);
        put32(g.budget.host, 0, budget);
        if (budget > 0 && t_chance(30)) put32(g.budget.host, 0, INT32_MAX), limit = budget;
    }
    g.max_budget = (int)limit;
    if (g.budget.host && get32(g.budget.host, 0) < limit) limit = get32(g.budget.host, 0);
    io_begin();
    if (batch) want_budget(&g, live, limit);
    t_upload();
    d = budget_describe(&g, T_HOST_SIDE);
    CHECK_EQ(specv_ref_draft_budget(&d), SPECV_OK, -1);
    io_check();
#if T_DEVICE
    d = budget_describe(&g, T_DEVICE_SIDE);
    CHECK_EQ(specv_draft_budget(&d, 0), SPECV_OK, -1);
    t_check_device();
#endif
    io_free();
}

static void test_budget(void) {
    static const int sizes[][2] = {{0, 5},    {1, 0},    {7, 0},    {1, 1},    {1, 200},
                                   {300, 1},  {300, 5},  {33, 31},  {32, 32},  {31, 33},
                                   {20, 200}, {257, 9},  {1025, 2}, {2100, 1}, {128, 63},
                                   {128, 64}, {129, 30}, {1024, 7}, {1024, 8}};
    static const int percents[] = {-1, 0, 10, 50, 90, 100};
    int turn = 0;
    for (int i = 0; i < T_COUNT(sizes); ++i)
        for (int chances = 0; chances < NUM_CHANCES; ++chances, ++turn) {
            if (t.quick && sizes[i][0] * sizes[i][1] > 1200 && turn % 4) continue;
            t_case("budget:");
            run_budget(sizes[i][0], sizes[i][1], (enum chances)chances,
                       percents[turn % T_COUNT(percents)]);
        }
    for (int i = 0; i < (t.quick ? 80 : 800); ++i) {
        const int max_draft = t_chance(10) ? (int)t_between(9, 70) : (int)t_between(0, 8);
        t_case("budget:");
        run_budget((int)t_between(1, max_draft > 8 ? 20 : 60), max_draft,
                   (enum chances)t_below(NUM_CHANCES), t_chance(50) ? -1 : (int)t_below(101));
    }
    if (t.quick) return;
    t_case("budget, large:");
    run_budget(300, 40, CHANCES_ANY, 40);
    t_case("budget, large, ties:");
    run_budget(300, 30, CHANCES_TIES, 20);
}

/* ---------------------------------------------------------------------------------- validation */

static specv_compact_desc valid_compact(void) {
    specv_compact_desc d = SPECV_ZERO;
    d.batch = 4;
    d.finished = (uint8_t *)word();
    d.num_active = d.cache_len = d.draft_cache_len = d.active = d.new_num_active = word();
    d.start_position = d.draft_lacks_first = d.draft_lacks_start = word();
    d.row_status = (uint32_t *)word();
    d.num_carry = 2;
    d.carry[0].data = d.carry[1].data = word();
    d.carry[0].elem_bytes = 4, d.carry[1].elem_bytes = 400;
    return d;
}

static specv_group_desc valid_group(void) {
    specv_group_desc d = SPECV_ZERO;
    d.batch = 4, d.num_pick = 2;
    d.skip = (uint8_t *)word();
    d.num_active = d.length = word();
    d.order = d.group_start = d.group_count = d.pick_rows = d.is_group = word();
    d.ticket = (uint32_t *)word();
    return d;
}

static specv_draft_budget_desc valid_draft_budget(void) {
    specv_draft_budget_desc d = SPECV_ZERO;
    d.rows.batch = 4, d.rows.max_draft = 7;
    d.rows.num_active = d.rows.draft_len = word();
    d.confidence = d.survival = (float *)(void *)word();
    d.budget = d.new_draft_len = d.new_row_start = word();
    d.row_status = (uint32_t *)word();
    d.max_budget = 20;
    return d;
}

static void test_compact_validation(void) {
    t_case("every status code of C3");
    EXPECT_NULL(compact);
    EXPECT(compact, SPECV_OK, (void)0);
    EXPECT(compact, SPECV_ERR_CANARY, d.canary0 = 1);
    EXPECT(compact, SPECV_ERR_CANARY, d.canary1 = 1);
    EXPECT(compact, SPECV_ERR_CHAINED, d.chained = 4);
    EXPECT(compact, SPECV_ERR_CHAINED, d.chained = -1);
    EXPECT(compact, SPECV_ERR_BATCH, d.batch = -1);
    EXPECT(compact, SPECV_ERR_NUM_ACTIVE, d.num_active = (int32_t *)misaligned());
    EXPECT(compact, SPECV_ERR_SLOT, (d.slot = (int32_t *)misaligned(), d.num_slots = 4));
    EXPECT(compact, SPECV_ERR_SLOT, d.slot = word());
    EXPECT(compact, SPECV_ERR_SLOT, (d.slot = word(), d.num_slots = -1));
    EXPECT(compact, SPECV_OK, (d.slot = word(), d.num_slots = 1));
    EXPECT(compact, SPECV_ERR_SLOT, d.new_slot = (int32_t *)misaligned());
    EXPECT(compact, SPECV_ERR_FINISHED, d.finished = NULL);
    EXPECT(compact, SPECV_ERR_CACHE_LEN, d.cache_len = (int32_t *)misaligned());
    EXPECT(compact, SPECV_ERR_DRAFT_CACHE_LEN, d.draft_cache_len = (int32_t *)misaligned());
    EXPECT(compact, SPECV_ERR_ACTIVE, d.active = NULL);
    EXPECT(compact, SPECV_ERR_ACTIVE, d.active = (int32_t *)misaligned());
    EXPECT(compact, SPECV_ERR_ACTIVE, d.new_num_active = NULL);
    EXPECT(compact, SPECV_ERR_ACTIVE, d.new_num_active = (int32_t *)misaligned());
    EXPECT(compact, SPECV_ERR_DRAFT_LACKS, d.start_position = (int32_t *)misaligned());
    EXPECT(compact, SPECV_ERR_DRAFT_LACKS, d.draft_lacks_first = (int32_t *)misaligned());
    EXPECT(compact, SPECV_ERR_DRAFT_LACKS, d.draft_lacks_start = (int32_t *)misaligned());
    EXPECT(compact, SPECV_ERR_DRAFT_LACKS, d.draft_cache_len = NULL);
    EXPECT(compact, SPECV_ERR_DRAFT_LACKS,
           (d.draft_lacks_first = d.draft_lacks_start = NULL, d.cache_len = NULL));
    EXPECT(compact, SPECV_OK,
           (d.draft_lacks_first = d.draft_lacks_start = NULL, d.draft_cache_len = NULL));
    EXPECT(compact, SPECV_ERR_ROW_STATUS, d.row_status = (uint32_t *)misaligned());
    EXPECT(compact, SPECV_ERR_KEEP_STATUS, d.keep_status = 2);
    EXPECT(compact, SPECV_ERR_CARRY, d.num_carry = -1);
    EXPECT(compact, SPECV_ERR_CARRY, d.num_carry = SPECV_MAX_CARRY + 1);
    EXPECT(compact, SPECV_ERR_CARRY, d.num_carry = 3);
    EXPECT(compact, SPECV_ERR_CARRY, d.carry[1].data = NULL);
    EXPECT(compact, SPECV_OK, (d.carry[1].data = misaligned(), d.carry[1].elem_bytes = 7));
    EXPECT(compact, SPECV_ERR_CARRY, d.carry[0].elem_bytes = 0);
    EXPECT(compact, SPECV_ERR_CARRY, d.carry[0].elem_bytes = -4);
    EXPECT(compact, SPECV_ERR_SIZE, d.carry[0].elem_bytes = INT64_MAX / 8 / 4 * 4);
    EXPECT(compact, SPECV_OK, (d.batch = 0, d.finished = NULL, d.active = NULL));
}

static void test_group_validation(void) {
    t_case("every status code of C4");
    EXPECT_NULL(group);
    EXPECT(group, SPECV_OK, (void)0);
    EXPECT(group, SPECV_ERR_CANARY, d.canary0 = 1);
    EXPECT(group, SPECV_ERR_CANARY, d.canary1 = 1);
    EXPECT(group, SPECV_ERR_CHAINED, d.chained = 4);
    EXPECT(group, SPECV_ERR_CHAINED, d.chained = -1);
    EXPECT(group, SPECV_ERR_BATCH, d.batch = -1);
    EXPECT(group, SPECV_ERR_TOO_LARGE, d.batch = (1 << 16) + 1);
    EXPECT(group, SPECV_OK, d.batch = 1 << 16);
    EXPECT(group, SPECV_ERR_NUM_ACTIVE, d.num_active = (int32_t *)misaligned());
    EXPECT(group, SPECV_ERR_SLOT, (d.slot = (int32_t *)misaligned(), d.num_slots = 4));
    EXPECT(group, SPECV_ERR_SLOT, d.slot = word());
    EXPECT(group, SPECV_OK, (d.slot = word(), d.num_slots = 1));
    EXPECT(group, SPECV_ERR_ROW_STATUS, d.row_status = (uint32_t *)misaligned());
    EXPECT(group, SPECV_ERR_KEEP_STATUS, d.keep_status = 2);
    EXPECT(group, SPECV_ERR_KEEP_STATUS, d.keep_status = -1);
    EXPECT(group, SPECV_ERR_KEY, d.length = (int32_t *)misaligned());
    EXPECT(group, SPECV_ERR_KEY, (d.length = NULL, d.score = (float *)misaligned()));
    EXPECT(group, SPECV_ERR_KEY, d.length = NULL);
    EXPECT(group, SPECV_ERR_KEY, d.score = (float *)(void *)word());
    EXPECT(group, SPECV_OK, (d.length = NULL, d.score = (float *)(void *)word()));
    EXPECT(group, SPECV_ERR_ORDER, d.order = NULL);
    EXPECT(group, SPECV_ERR_ORDER, d.order = (int32_t *)misaligned());
    EXPECT(group, SPECV_ERR_ORDER, d.group_start = (int32_t *)misaligned());
    EXPECT(group, SPECV_ERR_ORDER, d.group_count = (int32_t *)misaligned());
    EXPECT(group, SPECV_ERR_PICK, d.num_pick = -1);
    EXPECT(group, SPECV_ERR_PICK, (d.num_pick = 0, d.is_group = NULL));
    EXPECT(group, SPECV_ERR_PICK, (d.num_pick = 0, d.pick_rows = NULL));
    EXPECT(group, SPECV_ERR_PICK, d.pick_rows = (int32_t *)misaligned());
    EXPECT(group, SPECV_ERR_PICK, d.is_group = (int32_t *)misaligned());
    EXPECT(group, SPECV_OK, (d.num_pick = 0, d.pick_rows = d.is_group = NULL));
    EXPECT(group, SPECV_ERR_TICKET, d.ticket = NULL);
    EXPECT(group, SPECV_ERR_TICKET, d.ticket = (uint32_t *)misaligned());
    EXPECT(group, SPECV_OK, (d.batch = 0, d.length = NULL, d.order = NULL, d.ticket = NULL));
}

static void test_budget_validation(void) {
    t_case("every status code of C5");
    EXPECT_NULL(draft_budget);
    EXPECT(draft_budget, SPECV_OK, (void)0);
    EXPECT(draft_budget, SPECV_ERR_CANARY, d.canary0 = 1);
    EXPECT(draft_budget, SPECV_ERR_CANARY, d.canary1 = 1);
    EXPECT(draft_budget, SPECV_ERR_CANARY, d.reserved = 1);
    EXPECT(draft_budget, SPECV_ERR_CHAINED, d.chained = 4);
    EXPECT(draft_budget, SPECV_ERR_CHAINED, d.chained = -1);
    EXPECT(draft_budget, SPECV_ERR_BATCH, d.rows.batch = -1);
    EXPECT(draft_budget, SPECV_ERR_MAX_DRAFT, d.rows.max_draft = -1);
    EXPECT(draft_budget, SPECV_ERR_TOO_LARGE, d.rows.batch = d.rows.max_draft = 1 << 15);
    EXPECT(draft_budget, SPECV_ERR_NUM_ACTIVE, d.rows.num_active = (int32_t *)misaligned());
    EXPECT(draft_budget, SPECV_ERR_DRAFT_LEN, d.rows.draft_len = (int32_t *)misaligned());
    EXPECT(draft_budget, SPECV_ERR_LAYOUT, d.rows.row_start = word());
    EXPECT(draft_budget, SPECV_ERR_LAYOUT, (d.rows.row_start = word(), d.rows.draft_len = NULL));
    EXPECT(draft_budget, SPECV_ERR_NUM_DRAFT_TOKENS, d.rows.num_draft_tokens = 1);
    EXPECT(draft_budget, SPECV_ERR_CONFIDENCE, d.confidence = NULL);
    EXPECT(draft_budget, SPECV_ERR_CONFIDENCE, d.confidence = (float *)misaligned());
    EXPECT(draft_budget, SPECV_ERR_CONFIDENCE, d.confidence_stride_elems = 6);
    EXPECT(draft_budget, SPECV_OK, d.confidence_stride_elems = 7);
    EXPECT(draft_budget, SPECV_ERR_SIZE, d.confidence_stride_elems = INT64_MAX / 8);
    EXPECT(draft_budget, SPECV_ERR_SURVIVAL, d.survival = NULL);
    EXPECT(draft_budget, SPECV_ERR_SURVIVAL, d.survival = (float *)misaligned());
    EXPECT(draft_budget, SPECV_OK, (d.confidence = d.survival = NULL, d.rows.max_draft = 0));
    EXPECT(draft_budget, SPECV_ERR_BUDGET, d.max_budget = -1);
    EXPECT(draft_budget, SPECV_ERR_BUDGET, d.budget = (int32_t *)misaligned());
    EXPECT(draft_budget, SPECV_ERR_NEW_DRAFT_LEN, d.new_draft_len = NULL);
    EXPECT(draft_budget, SPECV_ERR_NEW_DRAFT_LEN, d.new_draft_len = (int32_t *)misaligned());
    EXPECT(draft_budget, SPECV_ERR_ROW_START, d.new_row_start = (int32_t *)misaligned());
    EXPECT(draft_budget, SPECV_ERR_ROW_STATUS, d.row_status = (uint32_t *)misaligned());
    EXPECT(draft_budget, SPECV_ERR_KEEP_STATUS, d.keep_status = -1);
    EXPECT(draft_budget, SPECV_OK, (d.rows.batch = 0, d.new_draft_len = NULL, d.survival = NULL));
}

static void test_validation(void) {
    test_compact_validation();
    test_group_validation();
    test_budget_validation();
}

int main(int argc, char **argv) {
    static const t_group groups[] = {
        {"validation", test_validation}, {"compact", test_compact}, {"group", test_group},
        {"picked", test_picked},         {"tickets", test_tickets}, {"budget", test_budget},
    };
    return t_main(argc, argv, groups, T_COUNT(groups));
}
