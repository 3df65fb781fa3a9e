/* align.cu - C1: sequences that end in the same column, and move when they grow unevenly.

   One step at a time is compared with a move out of place; many steps with texts that have no
   padding. */

#if !defined(_DEFAULT_SOURCE)
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#endif
#include "columns.h"

#include <sys/mman.h>

#if !T_DEVICE
#define specv_realign(d, stream)  specv_ref_realign(d)
#define specv_shift_kv(d, stream) specv_ref_shift_kv(d)
#endif

/* --------------------------------------------------------------------------- C1: moving columns */

static specv_shift draw_shift(int columns) {
    static const int32_t wild[] = {-1, INT32_MIN, INT32_MAX, 1 << 30};
    static const int near[] = {1, 2, 3, 7, 15, 16, 17, 31, 32, 33, 64};
    specv_shift s = {0, 0, 0, 0};
    int64_t by = T_PICK(near), low, high;
    if (t_chance(10)) by = 0;
    if (t_chance(20)) by = t_between(0, columns);
    if (by > columns) by = columns;
    if (t_chance(50)) by = -by;
    low = by < 0 ? -by : 0, high = by > 0 ? columns - by : columns;
    s.by = (int32_t)by;
    s.first = (int32_t)t_between(low, t_chance(50) ? low : high);
    s.count = (int32_t)t_between(t_chance(50) ? high - s.first : 0, high - s.first);
    s.reserved = (int32_t)t_random();
    if (t_chance(85)) return s;
    switch (t_below(7)) {
    case 0: s.first = (int32_t)low - 1; break;
    case 1: s.count = (int32_t)high - s.first + 1; break;
    case 2: s.first = T_PICK(wild); break;
    case 3: s.count = T_PICK(wild); break;
    case 4: s.by = T_PICK(wild); break;
    case 5: s.by = (int32_t)(columns - s.first + 1); break;
    default: s.first = T_PICK(wild), s.count = T_PICK(wild), s.by = T_PICK(wild);
    }
    return s;
}

static void run_moves(int batch, int columns, int heads, int head_bytes, int num_planes) {
    cache c;
    slots at;
    int live, keep = t_chance(30);
    const int64_t ends[] = {0, -1, INT32_MIN, INT32_MAX, columns / 2, columns, columns + 1};
    t_note(" batch %d, columns %d,", batch, columns);
    t_buf active = draw_num_active(batch, &live);
    at = slots_draw(batch, live, t_chance(50) ? NO_SLOTS : 20, 1);
    cache_make(&c, at.count, columns, heads, head_bytes, num_planes);
    t_buf shifts = t_in(16 * (int64_t)batch, 0), end = t_in(t_chance(60) ? 4 * batch : 0, 0);
    io *status = t_chance(80) ? io_new(4 * (int64_t)batch, 0) : NULL;
    for (int b = 0; b < batch; ++b) {
        const specv_shift s = draw_shift(columns);
        memcpy(shifts.host + 16 * (int64_t)b, &s, 16);
        if (end.host) put32(end.host, b, t_chance(50) ? t_below(columns + 1) : T_PICK(ends));
        if (status && keep) put32(status->buf.host, b, (int64_t)t_random());
        fill_columns(&c, slot_place(&at, b), s.first, (int64_t)s.first + s.count, t_chance(50));
    }
    io_begin();
    for (int b = 0; b < batch; ++b) {
        specv_shift s;
        memcpy(&s, shifts.host + 16 * (int64_t)b, 16);
        const int64_t by = s.by;
        int64_t first = s.first, last = first + s.count - 1, old = 0; /* columns first..last */
        const int works = b < live && !slot_is_bad(&at, b);
        int bad;
        if (end.host && last >= get32(end.host, b)) last = get32(end.host, b) - 1;
        bad = first <= last &&
              (first < 0 || last >= columns || first + by < 0 || last + by >= columns);
        if (works && first <= last && !bad)
            want_move(&c, slot_place(&at, b), first, last - first + 1, by);
        if (status && keep) old = get32(status->buf.host, b);
        if (works && bad) old |= SPECV_ROW_BAD_LENGTH;
        if (slot_is_bad(&at, b)) old |= SPECV_ROW_BAD_SLOT;
        if (status) put32(status->want, b, old);
    }
    t_upload();
    for (int side = 0; side <= T_DEVICE; ++side) {
        specv_shift_kv_desc d = SPECV_ZERO;
        d.batch = batch, d.keep_status = keep, d.num_sms = batch % 4; /* a grid of any size */
        d.slot = slots_at(&at, side), d.slot_dtype = slots_dtype(&at),
        d.num_slots = slots_count(&at);
        d.num_active = (const int32_t *)t_at(&active, side);
        d.shifts = (const specv_shift *)t_at(&shifts, side);
        d.end = (const int32_t *)t_at(&end, side);
        d.row_status = (uint32_t *)io_at(status, side);
        d.kv = cache_describe(&c, side);
        if (side == T_HOST_SIDE) CHECK_EQ(specv_ref_shift_kv(&d), SPECV_OK, -1);
        if (side == T_HOST_SIDE) io_check();
        if (side == T_DEVICE_SIDE) CHECK_EQ(specv_shift_kv(&d, 0), SPECV_OK, -1);
    }
    t_check_device();
    cache_free(&c);
    io_free();
}

static void test_moves(void) {
    static const int edges[] = {1, 2, 4, 15, 16, 17, 32, 64, 255, 256, 257, 272, 300, 336, 512};
    for (int i = 0; i < T_COUNT(edges); ++i) {
        t_case("row bytes:");
        run_moves(4, 40, 1, edges[i], i % 3);
    }
    for (int i = 0; i < (t.quick ? 80 : 400); ++i) {
        const int heads = t_chance(50) ? 1 : (int)t_between(2, 5);
        t_case("moves:");
        const int bytes = (int)t_between(1, t_chance(60) ? 40 : 300 / heads);
        run_moves((int)t_between(1, 6), (int)t_between(1, 70), heads, bytes,
                  (int)t_between(0, MAX_PLANES));
    }
    for (int i = 0; i < (t.quick ? 6 : 24); ++i) { /* long rows, wide and narrow */
        static const int widths[] = {16, 1, 48, 64, 7, 128};
        t_case("long rows:");
        run_moves(3, (int)t_between(500, t.quick ? 700 : 2600), 1 + i / 6 % 2, widths[i % 6],
                  i % 3);
    }
    t_case("slices and heads:");
    for (int i = 0; i < 3; ++i) run_moves(3, 150 + 70 * i, 3, 112, 1 + i); /* 16 and 5 units */
    t_case("many rows:");
    run_moves(700, 9, 1, 5, 0);
    run_moves(513, 5, 2, 160, 1);
    t_case("no rows:");
    run_moves(0, 9, 1, 16, 1);
}

/* ----------------------------------------------------------------------------- C1: one realign */

typedef struct aligned {
    board b;
    cache kv; /* num_planes 0: none */
    io *pad, *shifts;
} aligned;

static specv_realign_desc aligned_describe(const aligned *a, int side) {
    specv_realign_desc d = SPECV_ZERO;
    d.token_dtype = a->b.token_dtype;
    d.num_active = (const int32_t *)t_at(&a->b.active, side);
    d.out_tokens = t_at(&a->b.out_tokens, side);
    d.num_emitted = (const int32_t *)t_at(&a->b.num_emitted, side);
    d.pad_len = (int32_t *)io_at(a->pad, side);
    d.shifts = (specv_shift *)io_at(a->shifts, side);
    d.row_status = (uint32_t *)io_at(a->b.status, side);
    d.ticket = (uint32_t *)io_at(a->b.ticket, side);
    d.columns = board_columns(&a->b, side);
    if (a->kv.num_planes) d.kv = cache_describe(&a->kv, side);
    if (a->b.out_stride > a->b.max_draft + 1 || a->b.batch % 2)
        d.out_stride_elems = a->b.out_stride;
    d.batch = a->b.batch, d.max_draft = a->b.max_draft;
    d.keep_status = a->b.keep_status, d.num_sms = a->b.batch % 3;
    d.slot = slots_at(&a->b.slots, side), d.slot_dtype = slots_dtype(&a->b.slots),
    d.num_slots = slots_count(&a->b.slots);
    return d;
}

/* Runs both sides; `exact`: everything must be as wanted. */
static void aligned_run(const aligned *a, int exact) {
    specv_realign_desc d = aligned_describe(a, T_HOST_SIDE);
    t_upload();
    CHECK_EQ(specv_ref_realign(&d), SPECV_OK, -1);
    if (exact) io_check();
    io_accept();
#if T_DEVICE
    d = aligned_describe(a, T_DEVICE_SIDE);
    CHECK_EQ(specv_realign(&d, 0), SPECV_OK, -1);
    t_check_device();
#endif
}

/* One row of the model: the text without padding, put where it belongs. */
static void want_aligned_row(const aligned *a, int row, int64_t width, int64_t new_width,
                             int64_t gain) {
    const board *b = &a->b;
    const int at = slot_place(&b->slots, row);
    const int64_t pad = get32(a->pad->buf.host, at), old = width - pad, tokens = old + gain;
    const int64_t new_pad = new_width - tokens;
    const int64_t start = new_pad == pad ? width : pad < new_pad ? pad : new_pad;
    int64_t stop = (width > new_width ? width : new_width) + b->max_draft;
    const specv_shift shift = {(int32_t)pad, (int32_t)(tokens ? tokens - 1 : 0),
                               (int32_t)(new_pad - pad), 0};
    if (stop > b->max_columns) stop = b->max_columns;
    for (int64_t x = start; x < stop; ++x)
        want_column(b, row, x, b->pad_token, 0, x > new_pad ? x - new_pad : 0);
    for (int64_t i = 0; i < tokens; ++i) {
        int64_t token = 0;
        if (new_pad + i < start) continue; /* nothing changes there */
        if (b->tokens && i < old)
            token = get_number(b->tokens->buf.host, b->token_dtype, at * b->stride + pad + i);
        if (b->tokens && i >= old) token = emitted_at(b, row, i - old);
        want_column(b, row, new_pad + i, token, 1, i);
    }
    put32(a->pad->want, at, new_pad);
    memcpy(a->shifts->want + 16 * (int64_t)row, &shift, 16);
    if (a->kv.num_planes) want_move(&a->kv, at, pad, shift.count, shift.by);
}

static void run_realign(int batch, int max_draft, int longest, fit room, int faults) {
    static const int32_t bad_gain[] = {-1, INT32_MIN, INT32_MAX, 0};
    aligned a;
    slots at;
    const int is_long = longest > 100, uniform = !is_long && t_chance(20);
    const int common = (int)t_between(0, max_draft + 1);
    int32_t *gain = (int32_t *)calloc((size_t)batch + 1, 4), *pad;
    int64_t width = t_between(is_long ? longest - 100 : 0, longest), new_width = 0, most = 0,
            columns, kv_columns;
    int live, no_space;
    pad = (int32_t *)calloc((size_t)batch + 1, 4);
    if (!gain || !pad) t_die(__FILE__, __LINE__, "run_realign", "no memory");
    memset(&a, 0, sizeof a);
    t_buf active = draw_num_active(batch, &live);
    if (is_long) memset(&active, 0, sizeof active), live = batch;
    at = slots_draw(batch, live, t_chance(50) ? NO_SLOTS : faults ? 20 : 0, 1);
    for (int row = 0; row < batch; ++row) {
        gain[row] = uniform ? common : (int32_t)t_between(0, max_draft + 1);
        pad[row] = (int32_t)t_between(0, t_chance(50) ? width : (width + 3) / 4);
        if (uniform && row == 0) pad[row] = 0;
        if (row >= live || slot_is_bad(&at, row)) continue;
        if (width - pad[row] + gain[row] > new_width) new_width = width - pad[row] + gain[row];
        if (width + gain[row] > most) most = width + gain[row];
    }
    columns = (new_width > width ? new_width : width) + max_draft + t_below(4);
    if (room == FIT_EXACT) columns = new_width > width ? new_width : width;
    if (room == FIT_SHORT) columns = new_width - 1 > width ? new_width - 1 : width;
    if (columns < 1) columns = 1;
    kv_columns = most > columns ? most : columns;
    if (room == FIT_EXACT) kv_columns = most > 1 ? most - 1 : 1;
    if (room == FIT_KV_SHORT && new_width > 2) kv_columns = new_width - 2;
    board_make(&a.b, &at, max_draft, (int)columns, is_long);
    a.b.active = active, a.b.live = live;
    a.pad = io_new(4 * (int64_t)at.count, 0);
    a.shifts = io_new(16 * (int64_t)batch, 0);
    if (t_chance(70) || room == FIT_KV_SHORT)
        cache_make(&a.kv, at.count, (int)kv_columns, (int)t_between(1, 3), (int)t_between(1, 24),
                   (int)t_below(3));
    draw_emitted(&a.b);
    for (int row = 0; row < batch; ++row) {
        for (int64_t x = 0; x < columns && a.b.tokens; ++x)
            put_number(a.b.tokens->buf.host, a.b.token_dtype, slot_place(&at, row) * a.b.stride + x,
                       draw_token(&a.b));
        if (a.kv.num_planes)
            fill_columns(&a.kv, slot_place(&at, row), pad[row], width + gain[row] - 1,
                         t_chance(50));
        put32(a.pad->buf.host, slot_place(&at, row), pad[row]);
        put32(a.b.num_emitted.host, row, gain[row]);
    }
    for (int row = 0; row < batch && faults; ++row) {
        const int64_t bad_pad[] = {-1, INT32_MIN, INT32_MAX, width + 1};
        /* Not the longest row: the width would be another one. */
        if (row < live && width - pad[row] + gain[row] == new_width) continue;
        if (t_chance(15))
            put32(a.b.num_emitted.host, row, t_chance(50) ? max_draft + 2 : T_PICK(bad_gain));
        else if (t_chance(15))
            put32(a.pad->buf.host, slot_place(&at, row), T_PICK(bad_pad));
    }
    if (room == FIT_BAD_WIDTH) {
        const int64_t bad_width[] = {-1, INT32_MIN, columns + 1, INT32_MAX};
        width = T_PICK(bad_width), new_width = 0;
    }
    put32(a.b.width->buf.host, 0, width);
    io_begin();
    no_space = new_width > columns || (a.kv.num_planes && new_width - 1 > kv_columns);
    memset(a.shifts->want, 0, 16 * (size_t)batch);
    for (int row = 0; row < batch; ++row) {
        const int64_t n = get32(a.b.num_emitted.host, row),
                      p = get32(a.pad->buf.host, slot_place(&at, row));
        const int gain_ok = n >= 0 && n <= max_draft + 1;
        const int pad_ok = p >= 0 && p <= width && room != FIT_BAD_WIDTH;
        uint32_t bits = (gain_ok && pad_ok ? 0u : (uint32_t)SPECV_ROW_BAD_LENGTH) |
                        (pad_ok && no_space ? (uint32_t)SPECV_ROW_NO_SPACE : 0u);
        if (slot_is_bad(&at, row)) bits = SPECV_ROW_BAD_SLOT;
        want_status(a.b.status, a.b.keep_status, row, row < live ? bits : 0);
        if (row < live && !slot_is_bad(&at, row) && pad_ok && !no_space)
            want_aligned_row(&a, row, width, new_width, gain_ok ? n : 0);
    }
    if (new_width > 0 && !no_space) put32(a.b.width->want, 0, new_width);
    aligned_run(&a, 1);
    if (a.kv.num_planes) cache_free(&a.kv);
    io_free();
    free(gain);
    free(pad);
}

static void test_realign(void) {
    for (int i = 0; i < (t.quick ? 150 : 900); ++i) {
        const int max_draft = t_chance(20) ? (int)t_between(9, 40) : (int)t_between(0, 8);
        t_case("realign:");
        run_realign((int)t_between(1, 10), max_draft, t_chance(80) ? 24 : 90, (fit)(i % NUM_FITS),
                    i % 3 == 2);
    }
    for (int i = 0; i < (t.quick ? 4 : 12); ++i) { /* a block moves 2048 tokens at a time */
        t_case("realign, long:");
        run_realign(3, 8, i % 2 ? 2600 : 5000, FIT_PLENTY, 0);
    }
    for (int i = 0; i < (t.quick ? 3 : 9); ++i) {
        t_case("realign, many rows:");
        run_realign(300 + 900 * (i % 3), 3, 6, FIT_PLENTY, i % 2);
    }
    t_case("realign, no rows:");
    run_realign(0, 3, 6, FIT_PLENTY, 0);
}

/* ------------------------------------------------------------------- C1: many steps, two models */

static uint64_t token_tag(int row, int position, int64_t token, int model) {
    return t_mix((uint64_t)token * 4 + (uint64_t)model) + ((uint64_t)row << 20) +
           (uint64_t)position;
}

static void put_kv(const cache *c, int row, int64_t column, int position, int64_t token,
                   int model) {
    column_bytes(c, row, column, token_tag(row, position, token, model), 1);
}

/* One pass of both models over a row, and what the verification says: k drafts, then next. */
static void pass_over_row(aligned *a, const cache *draft_kv, text *x, int row, int64_t width,
                          int num_drafts, int k, int has_next) {
    board *b = &a->b;
    const int64_t pad = width - x->len;
    const int at = slot_place(&b->slots, row);
    int64_t draft[MAX_DRAFTS];
    for (int j = 0; j < num_drafts; ++j) draft[j] = draw_token(b);
    /* the target: the pending token and all drafts */
    put_kv(&a->kv, at, width - 1, x->len - 1, x->token[x->len - 1], 0);
    for (int j = 0; j < num_drafts; ++j) put_kv(&a->kv, at, width + j, x->len + j, draft[j], 0);
    /* the draft model: what it lacks, then all drafts but the last */
    for (int i = x->draft_len; i < x->len && num_drafts; ++i)
        put_kv(draft_kv, at, pad + i, i, x->token[i], 1);
    for (int j = 0; j + 1 < num_drafts; ++j)
        put_kv(draft_kv, at, width + j, x->len + j, draft[j], 1);
    if (num_drafts) x->draft_len = x->len + num_drafts - 1;
    for (int j = 0; j <= b->max_draft; ++j) {
        int64_t token = j < k ? draft[j] : -1;
        if (j == k && has_next) { /* a rejected draft is not what replaces it */
            do token = draw_token(b);
            while (k < num_drafts && token == draft[k]);
        }
        put_number(b->out_tokens.host, b->token_dtype, row * b->out_stride + j, token);
        if (j < k || (j == k && has_next)) x->token[x->len++] = token;
    }
    put32(b->num_emitted.host, row, k + has_next);
    /* what was rejected does not count */
    if (x->draft_len > x->len - 1) x->draft_len = x->len - 1;
}

/* I1, I2, and every token and KV row of every live text. */
static void check_texts(const aligned *a, const cache *draft_kv, const text *texts, int live,
                        int64_t width) {
    const board *b = &a->b;
    CHECK_EQ(get32(b->width->buf.host, 0), width, -1);
    for (int row = 0; row < live; ++row) {
        const text *x = &texts[row];
        const int slot = slot_place(&b->slots, row);
        const int64_t pad = get32(a->pad->buf.host, slot), at = slot * b->stride;
        int64_t sum = 0, wrong = 0;
        CHECK_EQ(pad + x->len, width, row); /* I1 */
        if (pad + x->len != width) return;
        for (int64_t column = 0; column < width; ++column) {
            const int there = column >= pad;
            const int64_t token = there ? x->token[column - pad] : b->pad_token;
            sum += get_number(b->mask->buf.host, b->index_dtype, at + column);
            wrong += get_number(b->mask->buf.host, b->index_dtype, at + column) != there;
            wrong += get_number(b->positions->buf.host, b->index_dtype, at + column) !=
                     (sum > 0 ? sum - 1 : 0); /* I2 */
            wrong += get_number(b->tokens->buf.host, b->token_dtype, at + column) != token;
        }
        for (int64_t column = width; column < width + b->max_draft; ++column) { /* the next pass */
            if (column >= b->max_columns) break;
            wrong += get_number(b->mask->buf.host, b->index_dtype, at + column) != 0;
            wrong += get_number(b->positions->buf.host, b->index_dtype, at + column) !=
                     x->len + column - width;
        }
        CHECK_EQ(wrong, 0, row);
        wrong = 0;
        for (int i = 0; i + 1 < x->len; ++i)
            wrong += !column_bytes(&a->kv, slot, pad + i, token_tag(slot, i, x->token[i], 0), 0);
        CHECK_EQ(wrong, 0, row);
        for (int i = 0; i < x->draft_len; ++i)
            wrong += !column_bytes(draft_kv, slot, pad + i, token_tag(slot, i, x->token[i], 1), 0);
        CHECK_EQ(wrong, 0, row);
        if (b->status) CHECK_EQ(get32(b->status->buf.host, row), 0, row);
    }
}

static void start_text(aligned *a, const cache *draft_kv, text *x, int row, int64_t width) {
    const int64_t pad = width - x->len;
    const int at = slot_place(&a->b.slots, row);
    board_prompt(&a->b, row, x, width);
    x->draft_len = x->len - 1;
    for (int i = 0; i + 1 < x->len; ++i) {
        put_kv(&a->kv, at, pad + i, i, x->token[i], 0);
        put_kv(draft_kv, at, pad + i, i, x->token[i], 1);
    }
    put32(a->pad->buf.host, at, pad);
}

/* The draft model's cache follows the shifts that specv_realign left. */
static void follow(const aligned *a, const cache *draft_kv, const t_buf *end, int side) {
    specv_shift_kv_desc d = SPECV_ZERO;
    d.batch = a->b.batch;
    d.slot = slots_at(&a->b.slots, side), d.slot_dtype = slots_dtype(&a->b.slots),
    d.num_slots = slots_count(&a->b.slots);
    d.num_active = (const int32_t *)t_at(&a->b.active, side);
    d.shifts = (const specv_shift *)io_at(a->shifts, side);
    d.end = (const int32_t *)t_at(end, side);
    d.row_status = (uint32_t *)io_at(a->b.status, side);
    d.kv = cache_describe(draft_kv, side);
    if (side == T_HOST_SIDE) CHECK_EQ(specv_ref_shift_kv(&d), SPECV_OK, -1);
    if (side == T_DEVICE_SIDE) CHECK_EQ(specv_shift_kv(&d, 0), SPECV_OK, -1);
}

/* `room`: columns for that many steps of full length, then NO_SPACE. `moves` counts rows that move
   to the left, not at all, to the right. */
static void run_rounds(int batch, int max_draft, int num_steps, int room, int *moves) {
    static text texts[MAX_ROWS];
    aligned a;
    slots at;
    cache draft_kv;
    int live = batch;
    int64_t width = 0;
    memset(texts, 0, sizeof texts);
    memset(&a, 0, sizeof a);
    for (int row = 0; row < batch; ++row) {
        texts[row].len = (int)t_between(1, 20);
        if (texts[row].len > width) width = texts[row].len;
    }
    width += t_chance(30) ? t_below(5) : 0; /* padding that no row needs goes away */
    at = slots_draw(batch, batch, t_chance(50) ? NO_SLOTS : 0, 1);
    board_make(&a.b, &at, max_draft, (int)width + room * (max_draft + 1), 1);
    a.b.active = t_in(4, 0);
    a.pad = io_new(4 * (int64_t)at.count, 0);
    a.shifts = io_new(16 * (int64_t)batch, 0);
    t_buf end = t_in(4 * (int64_t)batch, 0);
    cache_make(&a.kv, at.count, a.b.max_columns + max_draft, (int)t_between(1, 2),
               (int)t_between(1, 20), (int)t_below(3));
    cache_make(&draft_kv, at.count, a.b.max_columns + max_draft, 1, (int)t_between(1, 8), 0);
    for (int row = 0; row < batch; ++row) start_text(&a, &draft_kv, &texts[row], row, width);
    put32(a.b.width->buf.host, 0, width);
    for (int step = 0; step < num_steps; ++step) {
        const int same = t_chance(25), common = (int)t_between(0, max_draft);
        int64_t new_width = 0;
        for (int row = 0; row < batch; ++row) {
            text *x = &texts[row];
            const int num_drafts = same ? common : (int)t_between(0, max_draft);
            const int k = same || t_chance(20) ? num_drafts : (int)t_between(0, num_drafts);
            const int stops = !same && t_chance(6); /* with an EOS, or with what follows it */
            const int has_next = !(stops && k && t_chance(50));
            put32(a.b.num_emitted.host, row, 0);
            put32(end.host, row, width - x->len + x->draft_len);
            if (row >= live || x->finished) continue;
            pass_over_row(&a, &draft_kv, x, row, width, num_drafts, k, has_next);
            if (num_drafts) put32(end.host, row, width - 1 + num_drafts);
            x->finished = stops;
        }
        for (int row = 0; row < live; ++row)
            if (texts[row].len > new_width) new_width = texts[row].len;
        put32(a.b.active.host, 0, live);
        io_begin();
        if (new_width > a.b.max_columns) { /* everything stays, and every live row says so */
            memset(a.shifts->want, 0, 16 * (size_t)batch);
            for (int row = 0; row < batch; ++row)
                put32(a.b.status->want, row, row < live ? (int)SPECV_ROW_NO_SPACE : 0);
            aligned_run(&a, 1);
            t_note(" full after %d steps", step);
            break;
        }
        aligned_run(&a, 0);
        for (int row = 0; row < live; ++row) {
            specv_shift s;
            memcpy(&s, a.shifts->buf.host + 16 * (int64_t)row, 16);
            CHECK_EQ(s.first + s.by, new_width - texts[row].len, row);
            CHECK_EQ(s.count, texts[row].len - 1, row);
            moves[s.by > 0 ? 2 : s.by == 0] += 1;
            if (same && new_width == width + common + 1 && !texts[row].finished)
                CHECK_EQ(s.by, 0, row); /* uniform steps move nothing */
        }
        for (int side = 0; side <= T_DEVICE; ++side) follow(&a, &draft_kv, &end, side);
        io_accept();
        t_check_host();
        t_check_device();
        width = new_width;
        check_texts(&a, &draft_kv, texts, live, width);
        while (live > 0 && texts[live - 1].finished) live -= 1; /* the last rows leave the batch */
        if (live == 0) break;
    }
    cache_free(&draft_kv);
    cache_free(&a.kv);
    io_free();
}

static void test_rounds(void) {
    int moves[3] = {0, 0, 0};
    for (int i = 0; i < (t.quick ? 16 : 80); ++i) {
        const int max_draft = i % 4 == 3 ? (int)t_between(9, 20) : (int)t_between(0, 6);
        t_case("rounds:");
        run_rounds((int)t_between(1, MAX_ROWS), max_draft, t.quick ? 8 : 12, i % 3 ? 13 : 4, moves);
    }
    CHECK(moves[0] > 0 && moves[1] > 0 && moves[2] > 0);
}

#if T_DEVICE
static void run_bad_ticket(int batch, int kind) {
    const int width = (int)t_between(5, 20);
    aligned a;
    const slots at = slots_draw(batch, batch, NO_SLOTS, 1);
    memset(&a, 0, sizeof a);
    board_make(&a.b, &at, 3, width + 8, 1);
    a.pad = io_new(4 * (int64_t)batch, 0);
    a.shifts = io_new(16 * (int64_t)batch, 0);
    if (kind % 2) cache_make(&a.kv, batch, width + 8, 2, 12, 1);
    draw_emitted(&a.b);
    put32(a.b.width->buf.host, 0, width);
    for (int row = 0; row < batch; ++row) {
        text x;
        x.len = (int)t_between(1, width);
        board_prompt(&a.b, row, &x, width);
        put32(a.pad->buf.host, row, width - x.len);
        put32(a.b.num_emitted.host, row, t_between(0, 4));
        if (kind % 2) fill_columns(&a.kv, row, width - x.len, width + 3, 1);
    }
    t_upload();
    specv_realign_desc d = aligned_describe(&a, T_DEVICE_SIDE);
    TICKET_LAUNCH(realign, d, batch, kind);
    board_check_ticket(&a.b, a.pad);
    aligned_run(&a, 0); /* from the beginning, with a ticket that is zero */
    if (kind % 2) cache_free(&a.kv);
    io_free();
}
#endif

static void test_tickets(void) { TICKET_CASES(run_bad_ticket, 2, 3, 12); }

/* ------------------------------------------------------------------------------- beyond 4 GiB */

enum { FAR_ROWS = 3, FAR_COLUMNS = 4, FAR_BYTES = 24 };

/* Strides so long that rows, or columns, lie behind 2^31 and 2^32: a 32-bit product anywhere would
   fold them back. Row b moves its first two columns by 2 - b. */
static void run_far(int64_t seq_stride, int64_t pos_stride) {
    const int64_t bytes = 3 * (seq_stride > pos_stride ? seq_stride : pos_stride) + 4096;
    char *far[2] = {NULL, NULL}, got[FAR_BYTES], want[FAR_BYTES];
    void *memory = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    int ok = memory != MAP_FAILED;
    far[0] = (char *)memory;
    t_buf shifts = t_in(16 * FAR_ROWS, 0);
    for (int b = 0; b < FAR_ROWS; ++b) {
        const specv_shift s = {b, 2, 2 - b - (b == 2), 0};
        memcpy(shifts.host + 16 * b, &s, 16);
    }
    t_upload();
#if T_DEVICE
    ok = ok && cudaMalloc((void **)&far[1], (size_t)bytes) == cudaSuccess;
    (void)cudaGetLastError();
#endif
    for (int side = 0; side <= T_DEVICE && ok; ++side) {
        specv_shift_kv_desc d = SPECV_ZERO;
        d.batch = FAR_ROWS, d.shifts = (const specv_shift *)t_at(&shifts, side);
        d.kv.plane = far[side], d.kv.head_bytes = FAR_BYTES, d.kv.max_positions = FAR_COLUMNS;
        d.kv.seq_stride_bytes = seq_stride, d.kv.pos_stride_bytes = pos_stride;
        for (int i = 0; i < FAR_ROWS * FAR_COLUMNS; ++i) {
            char *at = far[side] + i / FAR_COLUMNS * seq_stride + i % FAR_COLUMNS * pos_stride;
            tag(want, FAR_BYTES, (uint64_t)i, 0, 0);
            if (side == T_HOST_SIDE) memcpy(at, want, FAR_BYTES);
#if T_DEVICE
            if (side == T_DEVICE_SIDE)
                T_CUDA(cudaMemcpy(at, want, FAR_BYTES, cudaMemcpyHostToDevice));
#endif
        }
        if (side == T_HOST_SIDE) CHECK_EQ(specv_ref_shift_kv(&d), SPECV_OK, -1);
        if (side == T_DEVICE_SIDE) CHECK_EQ(specv_shift_kv(&d, 0), SPECV_OK, -1);
        for (int i = 0; i < FAR_ROWS * FAR_COLUMNS; ++i) {
            const int b = i / FAR_COLUMNS, x = i % FAR_COLUMNS, by = 2 - b - (b == 2);
            const int moved = x >= b + by && x < b + by + 2;
            const char *at = far[side] + b * seq_stride + x * pos_stride;
            tag(want, FAR_BYTES, (uint64_t)(i - (moved ? by : 0)), 0, 0);
#if T_DEVICE
            T_CUDA(cudaMemcpy(got, at, FAR_BYTES, cudaMemcpyDefault));
#else
            memcpy(got, at, FAR_BYTES);
#endif
            CHECK_EQ(memcmp(got, want, FAR_BYTES) == 0, 1, i);
        }
    }
    if (memory != MAP_FAILED) munmap(memory, (size_t)bytes);
#if T_DEVICE
    T_CUDA(cudaFree(far[1]));
#endif
    if (!ok) t_skip("no 28 GB of address space on both sides");
}

static void test_far(void) {
    t_case("rows beyond 4 GiB");
    run_far(((int64_t)3 << 30) + 64, 32);
    t_case("columns beyond 4 GiB");
    run_far(32, ((int64_t)3 << 30) + 64);
    t_case("both, at odd addresses");
    run_far(((int64_t)9 << 30) + 27, ((int64_t)2 << 30) + 7);
}

/* ---------------------------------------------------------------------------------- validation */

static specv_shift_kv_desc valid_shift_kv(void) {
    specv_shift_kv_desc d = SPECV_ZERO;
    d.shifts = (specv_shift *)(void *)word();
    d.num_active = d.end = word();
    d.row_status = (uint32_t *)word();
    d.kv = valid_kv();
    d.batch = 4;
    return d;
}

/* A change that C1 must refuse with and without realignment. */
#define EXPECT_KV(code, change)                                                                    \
    do {                                                                                           \
        EXPECT(realign, code, change);                                                             \
        EXPECT(shift_kv, code, change);                                                            \
    } while (0)

static void test_kv_validation(void) {
    t_case("every status code of the cache");
    EXPECT_KV(SPECV_ERR_CANARY, d.kv.reserved = 1);
    EXPECT_KV(SPECV_ERR_MAX_POSITIONS, d.kv.max_positions = 0);
    EXPECT_KV(SPECV_ERR_BLOCK_TABLE, d.kv.block_table = word());
    EXPECT_KV(SPECV_ERR_BLOCK_TABLE, d.kv.block_table = (int32_t *)misaligned());
    EXPECT_KV(SPECV_ERR_PAGE_SIZE, d.kv.page_size = 16);
    EXPECT_KV(SPECV_ERR_NUM_PAGES, d.kv.num_pages = 1);
    EXPECT_KV(SPECV_ERR_TABLE_STRIDE, d.kv.table_stride_elems = 1);
    EXPECT_KV(SPECV_ERR_NUM_PLANES, d.kv.num_planes = 2);
    EXPECT_KV(SPECV_ERR_NUM_PLANES, d.kv.num_planes = -1);
    EXPECT_KV(SPECV_ERR_NUM_PLANES, (d.kv.planes = (void *const *)word(), d.kv.plane = NULL));
    EXPECT_KV(SPECV_ERR_PLANES, (d.kv.planes = (void *const *)word(), d.kv.num_planes = 1));
    EXPECT_KV(SPECV_ERR_PLANES,
              (d.kv.planes = (void *const *)misaligned(), d.kv.plane = NULL, d.kv.num_planes = 1));
    EXPECT_KV(SPECV_ERR_NUM_HEADS, d.kv.num_heads = -1);
    EXPECT_KV(SPECV_OK, d.kv.num_heads = 0);
    EXPECT_KV(SPECV_ERR_HEAD_BYTES, d.kv.head_bytes = 0);
    EXPECT_KV(SPECV_ERR_HEAD_BYTES, d.kv.head_bytes = -1);
    EXPECT_KV(SPECV_ERR_HEAD_BYTES, d.kv.head_bytes = (1 << 29) + 1);
    EXPECT_KV(SPECV_ERR_KV_STRIDE, d.kv.head_stride_bytes = -1);
    EXPECT_KV(SPECV_ERR_KV_STRIDE, d.kv.pos_stride_bytes = -1);
    EXPECT_KV(SPECV_ERR_KV_STRIDE, d.kv.seq_stride_bytes = -1);
    EXPECT_KV(SPECV_ERR_KV_STRIDE, d.kv.page_stride_bytes = -1);
    EXPECT_KV(SPECV_ERR_KV_STRIDE, d.kv.head_stride_bytes = 15);
    EXPECT_KV(SPECV_ERR_KV_STRIDE, d.kv.pos_stride_bytes = 31);
    EXPECT_KV(SPECV_ERR_KV_STRIDE, (d.kv.pos_stride_bytes = 16, d.kv.head_stride_bytes = 1599));
    EXPECT_KV(SPECV_OK, (d.kv.pos_stride_bytes = 16, d.kv.head_stride_bytes = 1600));
    EXPECT_KV(SPECV_ERR_KV_STRIDE, d.kv.seq_stride_bytes = 15);
    EXPECT_KV(SPECV_ERR_SIZE, d.kv.seq_stride_bytes = INT64_MAX / 16);
    EXPECT_KV(SPECV_ERR_SIZE, d.kv.pos_stride_bytes = INT64_MAX / 16);
    EXPECT_KV(SPECV_ERR_SIZE, (d.kv.head_stride_bytes = INT64_MAX / 8, d.kv.num_heads = 1));
    EXPECT_KV(SPECV_ERR_SLOT, d.slot = word());
    EXPECT_KV(SPECV_ERR_SLOT, (d.slot = word(), d.num_slots = -1));
    EXPECT_KV(SPECV_ERR_SLOT, (d.slot = (int32_t *)misaligned(), d.num_slots = 9));
    EXPECT_KV(SPECV_OK, (d.slot = word(), d.num_slots = INT32_MAX));
    EXPECT_KV(SPECV_OK, d.num_slots = INT32_MIN);
    EXPECT_KV(SPECV_OK, d.kv.seq_stride_bytes = (int64_t)1 << 56);
    EXPECT_KV(SPECV_ERR_SIZE,
              (d.kv.seq_stride_bytes = (int64_t)1 << 56, d.slot = word(), d.num_slots = 16));
}

static void test_validation(void) {
    test_kv_validation();
    t_case("every other status code of C1");
    EXPECT_NULL(realign);
    EXPECT_NULL(shift_kv);
    EXPECT(realign, SPECV_ERR_PAD_LEN, d.pad_len = NULL);
    EXPECT(realign, SPECV_ERR_PAD_LEN, d.pad_len = (int32_t *)misaligned());
    EXPECT(realign, SPECV_ERR_SHIFTS, d.shifts = NULL);
    EXPECT(realign, SPECV_ERR_SHIFTS, d.shifts = (specv_shift *)(void *)(word() + 2));
    EXPECT(realign, SPECV_OK, (d.kv.plane = NULL, d.kv.max_positions = 0));
    EXPECT(shift_kv, SPECV_OK, (void)0);
    EXPECT_KV(SPECV_ERR_CANARY, d.canary0 = 1);
    EXPECT_KV(SPECV_ERR_CANARY, d.canary1 = 1);
    EXPECT_KV(SPECV_ERR_NUM_SMS, d.num_sms = -1);
    EXPECT_KV(SPECV_ERR_NUM_SMS, d.num_sms = 65536);
    EXPECT_KV(SPECV_ERR_CHAINED, d.chained = 4);
    EXPECT_KV(SPECV_ERR_CHAINED, d.chained = -1);
    EXPECT(shift_kv, SPECV_ERR_SLOT, d.slot_dtype = 2);
    EXPECT(shift_kv, SPECV_ERR_KEEP_STATUS, d.keep_status = 2);
    EXPECT(shift_kv, SPECV_ERR_BATCH, d.batch = -1);
    EXPECT(shift_kv, SPECV_ERR_NUM_ACTIVE, d.num_active = (int32_t *)misaligned());
    EXPECT(shift_kv, SPECV_ERR_SHIFTS, d.shifts = NULL);
    EXPECT(shift_kv, SPECV_ERR_SHIFTS, d.shifts = (specv_shift *)(void *)(word() + 2));
    EXPECT(shift_kv, SPECV_ERR_END, d.end = (int32_t *)misaligned());
    EXPECT(shift_kv, SPECV_ERR_ROW_STATUS, d.row_status = (uint32_t *)misaligned());
    EXPECT(shift_kv, SPECV_ERR_PLANES, d.kv.plane = NULL);
    EXPECT(shift_kv, SPECV_OK, (d.kv.plane = NULL, d.shifts = NULL, d.batch = 0));
}

int main(int argc, char **argv) {
    static const t_group groups[] = {
        {"validation", test_validation}, {"moves", test_moves},     {"realign", test_realign},
        {"rounds", test_rounds},         {"tickets", test_tickets}, {"far", test_far},
    };
    return t_main(argc, argv, groups, T_COUNT(groups));
}
