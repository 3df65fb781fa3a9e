/* gap.cu - C2: sequences share columns, nothing moves, and rejected columns are masked. At the end,
   for C1 to C5: strides beyond 4 GiB, and kernels behind the one that writes their inputs. */

#if !defined(_DEFAULT_SOURCE)
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#endif
#include "columns.h"

#include <sys/mman.h>

#if !T_DEVICE
#define specv_gap_commit(d, stream) specv_ref_gap_commit(d)
#define specv_realign(d, stream)    specv_ref_realign(d)
#endif

typedef struct gaps {
    board b;
    t_buf accepted;
    io *content, *max_draft_lacks; /* max_draft_lacks may be null */
} gaps;

static void gaps_make(gaps *g, const slots *at, int max_draft, int max_columns, int all) {
    memset(g, 0, sizeof *g);
    board_make(&g->b, at, max_draft, max_columns, all);
    g->accepted = t_in(4 * (int64_t)at->rows, 0);
    g->content = io_new(4 * (int64_t)at->count, 0);
    if (all || t_chance(80)) g->max_draft_lacks = io_new(4, 0);
}

static specv_gap_commit_desc gaps_describe(const gaps *g, int side) {
    specv_gap_commit_desc d = SPECV_ZERO;
    d.token_dtype = g->b.token_dtype;
    d.num_active = (const int32_t *)t_at(&g->b.active, side);
    d.accepted_len = (const int32_t *)t_at(&g->accepted, side);
    d.out_tokens = t_at(&g->b.out_tokens, side);
    d.num_emitted = (const int32_t *)t_at(&g->b.num_emitted, side);
    d.text_len = (int32_t *)io_at(g->content, side);
    d.max_draft_lacks = (int32_t *)io_at(g->max_draft_lacks, side);
    d.row_status = (uint32_t *)io_at(g->b.status, side);
    d.ticket = (uint32_t *)io_at(g->b.ticket, side);
    d.columns = board_columns(&g->b, side);
    if (g->b.out_stride > g->b.max_draft + 1 || g->b.batch % 2)
        d.out_stride_elems = g->b.out_stride;
    d.batch = g->b.batch, d.max_draft = g->b.max_draft;
    d.keep_status = g->b.keep_status;
    d.slot = slots_at(&g->b.slots, side), d.slot_dtype = slots_dtype(&g->b.slots),
    d.num_slots = slots_count(&g->b.slots);
    return d;
}

static void gaps_run(const gaps *g, int exact) {
    specv_gap_commit_desc d = gaps_describe(g, T_HOST_SIDE);
    t_upload();
    CHECK_EQ(specv_ref_gap_commit(&d), SPECV_OK, -1);
    if (exact) io_check();
    io_accept();
#if T_DEVICE
    d = gaps_describe(g, T_DEVICE_SIDE);
    CHECK_EQ(specv_gap_commit(&d, 0), SPECV_OK, -1);
    t_check_device();
#endif
}

static void put_step(const gaps *g, int row, int64_t accepted, int64_t emitted) {
    put32(g->accepted.host, row, accepted);
    put32(g->b.num_emitted.host, row, emitted);
}

/* One row of the model: which token each new column holds, then a count along them. */
static void want_gap_row(const gaps *g, int row, int64_t width, int64_t new_width) {
    const board *b = &g->b;
    const int64_t k = get32(g->accepted.host, row), n = get32(b->num_emitted.host, row);
    int64_t count = get32(g->content->buf.host, slot_place(&b->slots, row)),
            stop = new_width + b->max_draft;
    if (stop > b->max_columns) stop = b->max_columns;
    for (int64_t x = width; x < stop; ++x) {
        int64_t source = -1; /* in emitted */
        if (x < width + k) source = x - width;
        if (n > k && x == new_width - 1) source = k;
        if (source >= 0) {
            want_column(b, row, x, b->tokens ? emitted_at(b, row, source) : 0, 1, count);
            count += 1;
        } else {
            int64_t position = x < new_width ? count - 1 : count + x - new_width;
            want_column(b, row, x, b->pad_token, 0, position > 0 ? position : 0);
        }
    }
    put32(g->content->want, slot_place(&b->slots, row), count);
}

static void run_gap_step(int batch, int max_draft, fit room, int faults) {
    static const int wild[] = {-1, INT32_MIN, INT32_MAX};
    gaps g;
    slots at;
    int64_t width = t_between(0, 30), new_width, furthest = -1;
    const int quiet = t_chance(10), most = t_chance(50) ? max_draft : (int)t_below(max_draft + 1);
    int64_t columns = width + t_between(0, 2 * max_draft + 2);
    int live, no_space, *bad;
    bad = (int *)calloc((size_t)batch + 1, sizeof(int));
    if (!bad) t_die(__FILE__, __LINE__, "run_gap_step", "no memory");
    t_buf active = draw_num_active(batch, &live);
    if (room == FIT_PLENTY) columns = width + 2 * max_draft + 3;
    if (room == FIT_SHORT) columns = width;
    if (columns < 1) columns = 1;
    at = slots_draw(batch, live, t_chance(50) ? NO_SLOTS : faults ? 20 : 0, 1);
    gaps_make(&g, &at, max_draft, (int)columns, 0);
    g.b.active = active;
    draw_emitted(&g.b);
    for (int row = 0; row < batch; ++row) {
        const int64_t k = t_between(0, most), n = k + t_chance(80);
        put_step(&g, row, quiet ? 0 : k, quiet ? 0 : n);
        put32(g.content->buf.host, slot_place(&at, row), t_between(0, width));
        if (!faults || t_chance(80)) continue;
        bad[row] = 1;
        switch (t_below(6)) {
        case 0: put_step(&g, row, max_draft + 1, max_draft + 1 + t_below(2)); break;
        case 1: put_step(&g, row, T_PICK(wild), T_PICK(wild)); break;
        case 2: put_step(&g, row, most, most + 2); break;
        case 3: put_step(&g, row, most, T_PICK(wild)); break;
        case 4: put_step(&g, row, 1, max_draft ? 0 : 1); break;
        default:
            put32(g.content->buf.host, slot_place(&at, row),
                  t_chance(50) ? columns + 1 : T_PICK(wild));
        }
    }
    if (room == FIT_BAD_WIDTH) {
        const int64_t bad_width[] = {-1, INT32_MIN, columns + 1, INT32_MAX};
        width = T_PICK(bad_width);
        for (int row = 0; row < batch; ++row) bad[row] = 1;
    }
    put32(g.b.width->buf.host, 0, width);
    io_begin();
    for (int row = 0; row < live; ++row)
        if (!bad[row] && !slot_is_bad(&at, row) && get32(g.b.num_emitted.host, row) > 0 &&
            get32(g.accepted.host, row) > furthest)
            furthest = get32(g.accepted.host, row);
    new_width = width + furthest + 1;
    no_space = new_width > columns && room != FIT_BAD_WIDTH;
    for (int row = 0; row < batch; ++row) {
        uint32_t bits = bad[row] ? (uint32_t)SPECV_ROW_BAD_LENGTH : 0;
        if (!bits && no_space) bits = SPECV_ROW_NO_SPACE;
        if (slot_is_bad(&at, row)) bits = SPECV_ROW_BAD_SLOT;
        want_status(g.b.status, g.b.keep_status, row, row < live ? bits : 0);
        if (row < live && !bits) want_gap_row(&g, row, width, new_width);
    }
    if (g.max_draft_lacks && batch)
        put32(g.max_draft_lacks->want, 0, furthest == max_draft && !no_space ? 2 : 1);
    if (!no_space) put32(g.b.width->want, 0, new_width);
    gaps_run(&g, 1);
    io_free();
    free(bad);
}

static void test_gap_step(void) {
    for (int i = 0; i < (t.quick ? 150 : 900); ++i) {
        const int max_draft = t_chance(20) ? (int)t_between(9, 70) : (int)t_between(0, 8);
        t_case("gap step:");
        run_gap_step((int)t_between(1, 12), max_draft, (fit)(i % NUM_FITS), i % 3 == 2);
    }
    for (int i = 0; i < 4; ++i) { /* more columns than a block has threads */
        t_case("gap step, many drafts:");
        run_gap_step(5, 150 + 150 * i, i % 2 ? FIT_PLENTY : FIT_EXACT, 0);
    }
    for (int i = 0; i < (t.quick ? 3 : 9); ++i) {
        t_case("gap step, many rows:");
        run_gap_step(300 + 900 * (i % 3), 5, FIT_PLENTY, i % 2);
    }
    t_case("gap step, no rows:");
    run_gap_step(0, 3, FIT_PLENTY, 0);
}

/* Mask, position ids, and the text that is read through the mask, from column 0 on. */
static void check_gap_row(const gaps *g, int row, const text *x, int64_t width) {
    const board *b = &g->b;
    const int slot = slot_place(&b->slots, row);
    const int64_t at = slot * b->stride;
    int64_t sum = 0, wrong = 0;
    for (int64_t column = 0; column < width; ++column) {
        const int64_t mask = get_number(b->mask->buf.host, b->index_dtype, at + column);
        const int64_t token = get_number(b->tokens->buf.host, b->token_dtype, at + column);
        wrong += mask != 0 && mask != 1;
        wrong += token != (mask == 0 ? b->pad_token : sum < x->len ? x->token[sum] : -1);
        sum += mask;
        wrong += get_number(b->positions->buf.host, b->index_dtype, at + column) !=
                 (sum > 0 ? sum - 1 : 0);
    }
    for (int64_t column = width; column < width + b->max_draft; ++column) /* the next drafts */
        wrong += get_number(b->positions->buf.host, b->index_dtype, at + column) !=
                     sum + column - width ||
                 get_number(b->mask->buf.host, b->index_dtype, at + column) != 0;
    CHECK_EQ(wrong, 0, row);
    CHECK_EQ(sum, x->len, row);
    CHECK_EQ(get32(g->content->buf.host, slot), x->len, row);
    if (b->status) CHECK_EQ(get32(b->status->buf.host, row), 0, row);
}

static void start_row(const gaps *g, int row, text *x, int64_t width) {
    board_prompt(&g->b, row, x, width);
    put32(g->content->buf.host, slot_place(&g->b.slots, row), x->len);
}

static void run_gap_rounds(int batch, int max_draft, int num_steps) {
    static text texts[MAX_ROWS];
    gaps g;
    slots at;
    int live = batch;
    int64_t width = 0;
    memset(texts, 0, sizeof texts);
    for (int row = 0; row < batch; ++row) {
        texts[row].len = (int)t_between(0, 20); /* 0: an empty prompt */
        if (texts[row].len > width) width = texts[row].len;
    }
    at = slots_draw(batch, batch, t_chance(50) ? NO_SLOTS : 0, 1);
    gaps_make(&g, &at, max_draft, (int)width + (num_steps + 1) * (max_draft + 1), 1);
    g.b.active = t_in(4, 0);
    for (int row = 0; row < batch; ++row) start_row(&g, row, &texts[row], width);
    put32(g.b.width->buf.host, 0, width);
    for (int step = 0; step < num_steps; ++step) {
        int64_t furthest = -1;
        for (int row = 0; row < batch; ++row) {
            text *x = &texts[row];
            int64_t k = t_chance(20) ? max_draft : t_between(0, max_draft), n;
            const int stops = t_chance(6);
            n = k + !(stops && k && t_chance(50));
            if (row >= live || x->finished) k = n = 0;
            if (n > 0 && k > furthest) furthest = k;
            put_step(&g, row, k, n);
            for (int j = 0; j <= max_draft; ++j) {
                const int64_t token = j < n ? draw_token(&g.b) : -1;
                put_number(g.b.out_tokens.host, g.b.token_dtype, row * g.b.out_stride + j, token);
                if (j < n) x->token[x->len++] = token;
            }
            x->finished |= stops;
        }
        put32(g.b.active.host, 0, live);
        gaps_run(&g, 0);
        t_check_host();
        width += furthest + 1;
        CHECK_EQ(get32(g.b.width->buf.host, 0), width, -1);
        CHECK_EQ(get32(g.max_draft_lacks->buf.host, 0), furthest == max_draft ? 2 : 1, -1);
        for (int row = 0; row < live; ++row) check_gap_row(&g, row, &texts[row], width);
        while (live > 0 && texts[live - 1].finished) live -= 1;
    }
    io_free();
}

static void test_gap_rounds(void) {
    for (int i = 0; i < (t.quick ? 20 : 100); ++i) {
        const int max_draft = i % 4 == 3 ? (int)t_between(9, 20) : (int)t_between(0, 6);
        t_case("gap rounds:");
        run_gap_rounds((int)t_between(1, MAX_ROWS), max_draft, t.quick ? 8 : 12);
    }
}

/* mask [1,1,1,0,0,1,1] gives position ids [0,1,2,2,2,3,4], out of two steps. */
static void test_gap_example(void) {
    static const int mask[] = {1, 1, 1, 0, 0, 1, 1}, position[] = {0, 1, 2, 2, 2, 3, 4};
    gaps g;
    slots at;
    text first, second;
    memset(&first, 0, sizeof first);
    memset(&second, 0, sizeof second);
    t_case("the example");
    at = slots_draw(2, 2, NO_SLOTS, 1);
    gaps_make(&g, &at, 3, 12, 1);
    first.len = second.len = 2;
    start_row(&g, 0, &first, 2);
    start_row(&g, 1, &second, 2);
    put32(g.b.width->buf.host, 0, 2);
    draw_emitted(&g.b);
    put_step(&g, 0, 1, 2); /* one accepted draft, while the other row accepts three */
    put_step(&g, 1, 3, 4);
    for (int j = 0; j < 2; ++j) first.token[first.len++] = emitted_at(&g.b, 0, j);
    gaps_run(&g, 0);
    CHECK_EQ(get32(g.b.width->buf.host, 0), 6, -1);
    CHECK_EQ(get32(g.max_draft_lacks->buf.host, 0), 2, -1);
    put_step(&g, 0, 0, 1); /* then both reject their first draft */
    put_step(&g, 1, 0, 1);
    first.token[first.len++] = emitted_at(&g.b, 0, 0);
    gaps_run(&g, 0);
    CHECK_EQ(get32(g.b.width->buf.host, 0), 7, -1);
    CHECK_EQ(get32(g.max_draft_lacks->buf.host, 0), 1, -1);
    for (int i = 0; i < 7; ++i) {
        CHECK_EQ(get_number(g.b.mask->buf.host, g.b.index_dtype, i), mask[i], i);
        CHECK_EQ(get_number(g.b.positions->buf.host, g.b.index_dtype, i), position[i], i);
    }
    check_gap_row(&g, 0, &first, 7);
    io_free();
}

#if T_DEVICE
static void run_bad_ticket(int batch, int kind) {
    const int width = (int)t_between(5, 20);
    gaps g;
    const slots at = slots_draw(batch, batch, NO_SLOTS, 1);
    gaps_make(&g, &at, 3, width + 8, 1);
    draw_emitted(&g.b);
    put32(g.b.width->buf.host, 0, width);
    for (int row = 0; row < batch; ++row) {
        const int64_t k = t_between(0, 3);
        text x;
        x.len = (int)t_between(1, width);
        start_row(&g, row, &x, width);
        put_step(&g, row, k, k + t_chance(80));
    }
    t_upload();
    specv_gap_commit_desc d = gaps_describe(&g, T_DEVICE_SIDE);
    TICKET_LAUNCH(gap_commit, d, batch, kind);
    board_check_ticket(&g.b, g.content);
    gaps_run(&g, 0); /* from the beginning, with a ticket that is zero */
    io_free();
}
#endif

static void test_tickets(void) { TICKET_CASES(run_bad_ticket, 2, 3, 12); }

/* -------------------------------------------------------------- C1 and C2: strides beyond 4 GiB */

enum { FAR_ROWS = 3, FAR_DRAFT = 2, FAR_COLUMNS = 8, FAR_WORDS = 24, FAR_RESULT = 6 * 8 + 24 };

static void far_copy(void *to, const void *from, size_t bytes) {
#if T_DEVICE
    T_CUDA(cudaMemcpy(to, from, bytes, cudaMemcpyDefault));
#else
    memcpy(to, from, bytes);
#endif
}

/* One step with tokens, position ids and emitted tokens, one after the other in `base`, in rows of
   `stride` elements; then the numbers. What there is afterwards goes to `result`. */
static void far_run(char *base, int64_t stride, int on_device, int is_gap, int32_t *result) {
    int32_t row[FAR_COLUMNS];
    const int32_t begin[FAR_WORDS] = {1, 2, 3, 0, 1, 2, is_gap ? 3 : 0, 1, is_gap ? 1 : 2, 3};
    char *const end = base + 3 * FAR_ROWS * stride * 4;
    int32_t *words = (int32_t *)(void *)end; /* emitted, accepted, content or padding, width */
    specv_realign_desc r = SPECV_ZERO;
    specv_gap_commit_desc g = SPECV_ZERO;
    for (int i = 0; i < 3 * FAR_ROWS; ++i) {
        for (int x = 0; x < FAR_COLUMNS; ++x) row[x] = 100 * i + x;
        far_copy(base + i * stride * 4, row, sizeof row);
    }
    far_copy(end, begin, sizeof begin);
    r.columns.tokens = base;
    r.columns.position_ids = base + FAR_ROWS * stride * 4;
    r.out_tokens = base + 2 * FAR_ROWS * stride * 4;
    r.columns.stride_elems = r.out_stride_elems = stride;
    r.columns.max_columns = FAR_COLUMNS;
    r.num_emitted = words, r.pad_len = words + 6, r.columns.width = words + 9;
    r.ticket = (uint32_t *)words + 10;
    r.shifts = (specv_shift *)(void *)(words + 12);
    r.batch = FAR_ROWS, r.max_draft = FAR_DRAFT;
    g.columns = r.columns, g.out_tokens = r.out_tokens, g.out_stride_elems = stride;
    g.num_emitted = words, g.accepted_len = words + 3, g.text_len = words + 6;
    g.ticket = r.ticket, g.batch = FAR_ROWS, g.max_draft = FAR_DRAFT;
    if (!on_device)
        CHECK_EQ(is_gap ? specv_ref_gap_commit(&g) : specv_ref_realign(&r), SPECV_OK, -1);
    else
        CHECK_EQ(is_gap ? specv_gap_commit(&g, 0) : specv_realign(&r, 0), SPECV_OK, -1);
    for (int i = 0; i < 2 * FAR_ROWS; ++i)
        far_copy(result + i * FAR_COLUMNS, base + i * stride * 4, sizeof row);
    far_copy(result + 2 * FAR_ROWS * FAR_COLUMNS, end, sizeof begin);
}

/* Rows that are more than 2^31 elements apart must become what they become side by side. */
static void test_far(void) {
    const int64_t stride = ((int64_t)1 << 31) + 8, bytes = (3 * FAR_ROWS * stride + FAR_WORDS) * 4;
    void *host = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    char *device = NULL;
    int ok = host != MAP_FAILED;
#if T_DEVICE
    ok = ok && cudaMalloc((void **)&device, (size_t)bytes) == cudaSuccess;
    (void)cudaGetLastError();
#endif
    for (int is_gap = 0; is_gap < 2; ++is_gap) {
        int32_t near[FAR_RESULT], far[FAR_RESULT], packed[3 * FAR_ROWS * FAR_COLUMNS + FAR_WORDS];
        t_case("rows 8 GiB apart, C%d", 1 + is_gap);
        far_run((char *)packed, FAR_COLUMNS, 0, is_gap, near);
        CHECK_EQ(near[2 * FAR_ROWS * FAR_COLUMNS + 9], is_gap ? 6 : 4, -1); /* the new width */
        for (int side = 0; side <= T_DEVICE && ok; ++side) {
            far_run(side == T_HOST_SIDE ? (char *)host : device, stride, side, is_gap, far);
            CHECK_BYTES(near, far, sizeof far);
        }
    }
    if (host != MAP_FAILED) munmap(host, (size_t)bytes);
#if T_DEVICE
    T_CUDA(cudaFree(device));
#endif
    if (!ok) t_skip("no 77 GB of address space on both sides");
}

/* ------------------------------------------------------------ C1 to C5: behind their primary */

#if T_DEVICE

enum {
    AT_ACTIVE = 0,
    AT_EMITTED = 4,  /* num_emitted */
    AT_ACCEPTED = 8, /* or drafts */
    AT_LENGTH = 12,  /* pad_len, text_len, keys, positions in the cache */
    AT_WIDTH = 16,   /* then the ticket, and which rows are finished */
    AT_SHIFTS = 20,  /* or other outputs */
    AT_STATUS = 36,  /* of rows */
    AT_TOKENS = 40,  /* out_tokens, confidence */
    AT_COLUMNS = 56, /* a row of the batch has 20: position ids, survival, a cache */
    DEP_WORDS = 136
};

static const int32_t dep_begin[AT_COLUMNS] = {
    4, 0, 0, 0, 1, 2, 3,  4, 0, 1, 2, 3, 0, 1, 2,  3, 6, 0, 0x00010100, 0, /* up to the shifts */
    2, 3, 1, 0, 1, 3, -1, 0, 0, 4, 2, 0, 3, 2, -2, 0, 0, 0, 0,          0,
};

/* Kernel `kernel` on memory that begins at w: by the reference, or as a dependent. */
static int dep_run(int kernel, int32_t *w, int on_device) {
    specv_realign_desc r = SPECV_ZERO;
    specv_shift_kv_desc s = SPECV_ZERO;
    specv_gap_commit_desc g = SPECV_ZERO;
    specv_compact_desc c = SPECV_ZERO;
    specv_group_desc o = SPECV_ZERO;
    specv_draft_budget_desc u = SPECV_ZERO;
    r.batch = s.batch = g.batch = c.batch = o.batch = u.rows.batch = 4;
    r.max_draft = g.max_draft = u.rows.max_draft = 3;
    r.num_active = s.num_active = g.num_active = c.num_active = o.num_active = u.rows.num_active =
        w + AT_ACTIVE;
    r.row_status = s.row_status = g.row_status = c.row_status = u.row_status =
        (uint32_t *)w + AT_STATUS;
    r.ticket = g.ticket = o.ticket = (uint32_t *)w + AT_WIDTH + 1;
    r.num_emitted = g.num_emitted = w + AT_EMITTED;
    r.pad_len = g.text_len = w + AT_LENGTH;
    r.out_tokens = g.out_tokens = w + AT_TOKENS;
    r.columns.width = w + AT_WIDTH, r.columns.position_ids = w + AT_COLUMNS;
    r.columns.max_columns = 20;
    g.columns = r.columns, g.accepted_len = w + AT_ACCEPTED;
    r.shifts = (specv_shift *)(w + AT_SHIFTS), s.shifts = r.shifts;
    s.kv.plane = w + AT_COLUMNS, s.kv.head_bytes = 8, s.kv.max_positions = 10;
    c.finished = (const uint8_t *)(w + AT_WIDTH + 2), c.cache_len = w + AT_LENGTH;
    c.active = w + AT_SHIFTS, c.new_num_active = w + AT_SHIFTS + 4;
    c.start_position = w + AT_SHIFTS + 8;
    o.length = w + AT_LENGTH, o.order = w + AT_SHIFTS;
    u.rows.draft_len = w + AT_ACCEPTED, u.confidence = (const float *)w + AT_TOKENS;
    u.survival = (float *)w + AT_COLUMNS, u.new_draft_len = w + AT_SHIFTS, u.max_budget = 3;
    r.chained = s.chained = g.chained = c.chained = o.chained = u.chained = SPECV_CHAINED_AFTER;
    if (on_device)
        return kernel == 0   ? specv_realign(&r, 0)
               : kernel == 1 ? specv_shift_kv(&s, 0)
               : kernel == 2 ? specv_gap_commit(&g, 0)
               : kernel == 3 ? specv_compact(&c, 0)
               : kernel == 4 ? specv_group(&o, 0)
                             : specv_draft_budget(&u, 0);
    return kernel == 0   ? specv_ref_realign(&r)
           : kernel == 1 ? specv_ref_shift_kv(&s)
           : kernel == 2 ? specv_ref_gap_commit(&g)
           : kernel == 3 ? specv_ref_compact(&c)
           : kernel == 4 ? specv_ref_group(&o)
                         : specv_ref_draft_budget(&u);
}

#endif

/* Every kernel may be the programmatic dependent of the one that writes its inputs: it waits before
   it reads. Without a wait the interpreter reports what was read too early. */
static void test_dependents(void) {
#if T_DEVICE
    for (int kernel = 0; kernel < 6; ++kernel) {
        t_case("dependent kernel %d", kernel);
        t_buf staged = t_in(4 * DEP_WORDS, 0), made = t_out(4 * DEP_WORDS, 0);
        int32_t *words = (int32_t *)(void *)made.host;
        for (int i = 0; i < DEP_WORDS; ++i) {
            words[i] = i < AT_TOKENS ? dep_begin[i] : i < AT_COLUMNS ? 0x3f000000 + i : i;
            put32(staged.host, i, words[i]);
        }
        t_upload();
        T_CUDA(cudaMemset(made.device, 0xff, 4 * DEP_WORDS));
        CHECK_EQ(dep_run(kernel, words, 0), SPECV_OK, kernel);
        t_produce(made.device, staged.device, 4 * DEP_WORDS);
        CHECK_EQ(dep_run(kernel, (int32_t *)made.device, 1), 0, kernel);
        t_check_dependents();
        t_check_device();
        CHECK(memcmp(made.host, staged.host, 4 * DEP_WORDS) != 0);
    }
#else
    t_skip("dependent launches need a device");
#endif
}

/* ---------------------------------------------------------------------------------- validation */

static specv_gap_commit_desc valid_gap_commit(void) {
    specv_gap_commit_desc d = SPECV_ZERO;
    d.out_tokens = word();
    d.accepted_len = d.num_emitted = d.num_active = d.text_len = d.max_draft_lacks = word();
    d.row_status = d.ticket = (uint32_t *)word();
    d.columns = valid_columns();
    d.batch = 4, d.max_draft = 7;
    return d;
}

/* A change that C1 and C2 must refuse. */
#define EXPECT_COLUMNS(code, change)                                                               \
    do {                                                                                           \
        EXPECT(realign, code, change);                                                             \
        EXPECT(gap_commit, code, change);                                                          \
    } while (0)

static void test_columns_validation(void) {
    const int64_t huge = INT64_MAX / 8;
    t_case("every status code of shared columns");
    EXPECT_COLUMNS(SPECV_OK, (void)0);
    EXPECT_COLUMNS(SPECV_ERR_CANARY, d.canary0 = 1);
    EXPECT_COLUMNS(SPECV_ERR_CANARY, d.canary1 = 1);
    EXPECT_COLUMNS(SPECV_ERR_CHAINED, d.chained = 4);
    EXPECT_COLUMNS(SPECV_ERR_CHAINED, d.chained = -1);
    EXPECT_COLUMNS(SPECV_ERR_BATCH, d.batch = -1);
    EXPECT_COLUMNS(SPECV_ERR_MAX_DRAFT, d.max_draft = -1);
    EXPECT_COLUMNS(SPECV_ERR_TOO_LARGE, (d.batch = 1 << 15, d.max_draft = 1 << 15));
    EXPECT_COLUMNS(SPECV_OK, (d.batch = 1 << 15, d.max_draft = (1 << 15) - 1));
    EXPECT_COLUMNS(SPECV_ERR_TOKEN_DTYPE, d.token_dtype = 2);
    EXPECT_COLUMNS(SPECV_ERR_TOKEN_DTYPE, d.token_dtype = -1);
    EXPECT_COLUMNS(SPECV_ERR_INDEX_DTYPE, d.columns.index_dtype = 2);
    EXPECT_COLUMNS(SPECV_ERR_OUT_TOKENS, d.out_tokens = misaligned());
    EXPECT_COLUMNS(SPECV_ERR_OUT_TOKENS, (d.out_tokens = word() + 1, d.token_dtype = SPECV_I64));
    EXPECT_COLUMNS(SPECV_ERR_OUT_TOKENS, d.out_tokens = NULL);
    EXPECT_COLUMNS(SPECV_OK, d.out_tokens = d.columns.tokens = NULL);
    EXPECT_COLUMNS(SPECV_ERR_NUM_EMITTED, d.num_emitted = NULL);
    EXPECT_COLUMNS(SPECV_ERR_NUM_EMITTED, d.num_emitted = (int32_t *)misaligned());
    EXPECT_COLUMNS(SPECV_ERR_OUT_STRIDE, d.out_stride_elems = 7);
    EXPECT_COLUMNS(SPECV_ERR_OUT_STRIDE, d.out_stride_elems = -1);
    EXPECT_COLUMNS(SPECV_OK, d.out_stride_elems = 8);
    EXPECT_COLUMNS(SPECV_ERR_SIZE, d.out_stride_elems = huge);
    EXPECT_COLUMNS(SPECV_ERR_COLUMNS, d.columns.tokens = misaligned());
    EXPECT_COLUMNS(SPECV_ERR_COLUMNS, d.columns.mask = misaligned());
    EXPECT_COLUMNS(SPECV_ERR_COLUMNS, d.columns.position_ids = misaligned());
    EXPECT_COLUMNS(SPECV_ERR_COLUMNS,
                   (d.columns.mask = word() + 1, d.columns.index_dtype = SPECV_I64));
    EXPECT_COLUMNS(SPECV_OK, d.columns.tokens = d.columns.mask = d.columns.position_ids = NULL);
    EXPECT_COLUMNS(SPECV_ERR_WIDTH, d.columns.width = NULL);
    EXPECT_COLUMNS(SPECV_ERR_WIDTH, d.columns.width = (int32_t *)misaligned());
    EXPECT_COLUMNS(SPECV_ERR_MAX_COLUMNS, d.columns.max_columns = 0);
    EXPECT_COLUMNS(SPECV_ERR_MAX_COLUMNS, d.columns.stride_elems = 99);
    EXPECT_COLUMNS(SPECV_OK, d.columns.stride_elems = 100);
    EXPECT_COLUMNS(SPECV_ERR_SIZE, d.columns.stride_elems = huge);
    EXPECT_COLUMNS(SPECV_ERR_SLOT, d.slot = word());
    EXPECT_COLUMNS(SPECV_ERR_SLOT, (d.slot = (int32_t *)misaligned(), d.num_slots = 9));
    EXPECT_COLUMNS(SPECV_OK, (d.slot = word(), d.num_slots = INT32_MAX));
    EXPECT_COLUMNS(SPECV_OK, d.num_slots = INT32_MIN);
    EXPECT_COLUMNS(SPECV_OK, d.columns.stride_elems = (int64_t)1 << 54);
    EXPECT_COLUMNS(SPECV_ERR_SIZE,
                   (d.columns.stride_elems = (int64_t)1 << 54, d.slot = word(), d.num_slots = 64));
    EXPECT_COLUMNS(SPECV_ERR_SIZE,
                   (d.columns.max_columns = 1 << 29, d.slot = word(), d.num_slots = INT32_MAX));
    EXPECT_COLUMNS(SPECV_ERR_NUM_ACTIVE, d.num_active = (int32_t *)misaligned());
    EXPECT_COLUMNS(SPECV_ERR_ROW_STATUS, d.row_status = (uint32_t *)misaligned());
    EXPECT_COLUMNS(SPECV_ERR_TICKET, d.ticket = (uint32_t *)misaligned());
    EXPECT_COLUMNS(SPECV_ERR_TICKET, d.ticket = NULL);
    EXPECT_COLUMNS(SPECV_OK, d.row_status = NULL);
    EXPECT_COLUMNS(SPECV_ERR_KEEP_STATUS, d.keep_status = 2);
    EXPECT_COLUMNS(SPECV_ERR_KEEP_STATUS, d.keep_status = -1);
    EXPECT_COLUMNS(SPECV_OK, (d.batch = 0, d.columns.width = NULL, d.ticket = NULL,
                              d.num_emitted = NULL, d.out_tokens = NULL));
}

static void test_validation(void) {
    test_columns_validation();
    t_case("every other status code of C2");
    EXPECT_NULL(gap_commit);
    EXPECT(gap_commit, SPECV_ERR_CANARY, d.reserved = 1);
    EXPECT(gap_commit, SPECV_ERR_ACCEPTED_LEN, d.accepted_len = NULL);
    EXPECT(gap_commit, SPECV_ERR_ACCEPTED_LEN, d.accepted_len = (int32_t *)misaligned());
    EXPECT(gap_commit, SPECV_ERR_TEXT_LEN, d.text_len = NULL);
    EXPECT(gap_commit, SPECV_ERR_TEXT_LEN, d.text_len = (int32_t *)misaligned());
    EXPECT(gap_commit, SPECV_ERR_DRAFT_LACKS, d.max_draft_lacks = (int32_t *)misaligned());
    EXPECT(gap_commit, SPECV_OK, d.max_draft_lacks = NULL);
}

int main(int argc, char **argv) {
    static const t_group groups[] = {
        {"validation", test_validation}, {"gap-step", test_gap_step},
        {"gap-rounds", test_gap_rounds}, {"gap-example", test_gap_example},
        {"tickets", test_tickets},       {"far", test_far},
        {"dependents", test_dependents},
    };
    return t_main(argc, argv, groups, T_COUNT(groups));
}
