/* append.cu - B3, committing the KV rows of accepted tokens to padded and paged caches. How a case
   is made and checked: append.h. */

#if !defined(_DEFAULT_SOURCE)
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#endif
#define T_INSIDE /* functions of the implementation are called */
#define SPECVERIFY_NO_SAMPLE
#define SPECVERIFY_NO_SHARDS
#define SPECVERIFY_NO_PACK
#define SPECVERIFY_NO_TREES
#define SPECVERIFY_NO_COLUMNS
#define SPECVERIFY_NO_SCHEDULE
#define SPECVERIFY_NO_PARTICLES
#define SPECVERIFY_NO_STATS
#include "append.h"
#include "tickets.h"

#include <sys/mman.h>

/* -------------------------------------------------------------------------------- the groups */

static form plain_form(int num_rows, int max_draft, int turn) {
    form f;
    memset(&f, 0, sizeof f);
    f.s.batch = num_rows, f.s.max_draft = max_draft;
    f.s.layout = (layout)(turn % NUM_LAYOUTS);
    f.pending = 1, f.heads = 2, f.head_bytes = 16;
    f.max_positions = max_draft + 14;
    f.src_order = f.dst_order = grid_orders[0];
    f.num_sms = 2;
    f.give = GIVE_ALL;
    return f;
}

static void draw_gaps(form *f, int64_t unit) {
    for (int axis = 0; axis < NUM_AXES; ++axis) {
        f->src_gap[axis] = t_chance(30) ? unit * t_between(1, 3) : 0;
        f->dst_gap[axis] = t_chance(30) ? unit * t_between(1, 3) : 0;
    }
}

static void draw_form(form *f, int turn, int64_t most_bytes) {
    static const int page_sizes[] = {1, 2, 3, 7, 16, 64, 128, 256}, sms[] = {1, 2, 132, 0};
    static const int64_t sizes[] = {1, 2, 3, 4, 8, 12, 16, 17, 32, 48, 100, 128, 255, 256};
    const int64_t unit = t_chance(50) ? 16 : t_chance(50) ? 4 : 1;
    int64_t row_bytes;
    *f = plain_form((int)t_between(0, t_chance(50) ? 8 : 70), (int)t_below(18), turn);
    f->s.spare_drafts = (int)t_below(4);
    f->s.has_num_active = t_chance(25);
    f->s.num_active = (int)t_between(-1, f->s.batch + 2);
    f->pending = (int)t_below(3);
    f->page_size = t_chance(60) ? T_PICK(page_sizes) : 0;
    f->max_positions = f->pending + f->s.max_draft + (int)t_below(t_chance(30) ? 150 : 12);
    if (t_chance(10)) f->max_positions = (int)t_between(1, f->max_positions + 1); /* often full */
    if (f->max_positions < 1) f->max_positions = 1;
    f->heads = t_chance(30) ? 1 : (int)t_between(2, 9);
    f->head_bytes = t_chance(50) ? 16 * t_between(1, 6) : T_PICK(sizes);
    f->planes = (int)t_between(-1, 6);
    f->null_planes = t_chance(30) ? 30 : 0;
    f->src_order = T_PICK(grid_orders), f->dst_order = T_PICK(grid_orders);
    draw_gaps(f, unit);
    if (t_chance(30)) f->src_offset = (int)t_below(16);
    if (t_chance(30)) f->dst_offset = (int)t_below(16);
    f->table_gap = t_chance(30) ? (int)t_below(4) : 0;
    f->num_sms = T_PICK(sms);
    f->give = t_chance(50) ? (unsigned)t_below(GIVE_ALL + 1) : (unsigned)GIVE_ALL;
    f->with_refs = f->page_size && t_chance(50);
    f->keep_status = t_chance(25);
    f->with_slots = t_chance(50);
    row_bytes = (int64_t)f->heads * f->head_bytes * (f->planes > 0 ? f->planes : 1) *
                (f->max_positions + f->page_size);
    while (f->s.batch > 1 && f->s.batch * row_bytes > most_bytes) f->s.batch /= 2;
}

static void test_shapes(void) {
    for (int i = 0; i < (t.cases ? t.cases : t.quick ? 250 : 800); ++i) {
        form f;
        t_case("shape %d:", i);
        draw_form(&f, i, t.quick ? 60000 : 200000);
        append_run(&f);
    }
}

/* Faults of every kind among rows without one. */
static void test_faults(void) {
    for (int i = 0; i < (t.cases ? t.cases : t.quick ? 250 : 800); ++i) {
        form f;
        t_case("faults %d:", i);
        draw_form(&f, i, t.quick ? 30000 : 100000);
        f.faults = i % 3 ? 25 : 90;
        f.give |= GIVE_STATUS;
        if (i % 2) f.s.endings = ALL_ENDINGS;
        if (f.page_size) f.with_refs = i % 4 != 0;
        append_run(&f);
    }
}

/* More rows than a block, or all blocks, take at a time. */
static void test_batches(void) {
    static const int batches[] = {255, 256, 257, 1023, 1024, 1025, 2049, 5000};
    for (int i = 0; i < T_COUNT(batches) * 4; ++i) {
        form f = plain_form(batches[i / 4], 1 + i % 2, i);
        /* 6: rows of one slot in several warps */
        if (t.quick && ((i % 4 > 0 && i != 6) || batches[i / 4] > 3000)) continue;
        t_case("batches:");
        f.heads = 1, f.head_bytes = i % 4 < 2 ? 1 : 16;
        f.page_size = i % 4 % 2 ? 2 : 0;
        f.with_refs = i % 4 == 3;
        f.max_positions = 5;
        f.num_sms = i % 3 ? 132 : 1;
        f.faults = i % 4 == 2 ? 30 : 0;
        f.with_slots = i % 3 == 0;
        f.s.has_num_active = i % 5 == 4, f.s.num_active = batches[i / 4] - 100;
        append_run(&f);
    }
}

/* Units of 16 bytes fit only where everything is a multiple of 16: each number that matters is the
   only one that is not, by 8, by 4 and by an odd number. */
static void test_units(void) {
    static const int by[] = {8, 4, 2, 1, 15};
    for (int i = 0; i < 13 * T_COUNT(by) * 2; ++i) {
        const int what = i % 13, off = by[i / 13 % T_COUNT(by)];
        form f = plain_form(3 + i % 4, 3, i);
        if (t.quick && i % 3) continue;
        t_case("units, number %d is off by %d:", what, off);
        f.page_size = i / 13 / T_COUNT(by) ? 3 : 0;
        f.head_bytes = 48, f.planes = 2;
        f.src_order = f.dst_order = i % 3 ? "ovhp" : "ovph";
        if (what < 4) f.src_gap[what] = off;
        if (what >= 4 && what < 8) f.dst_gap[what - 4] = off;
        if (what == 8) f.src_offset = off;
        if (what == 9) f.dst_offset = off;
        if (what == 10) f.src_offset = f.dst_offset = off; /* both, in step */
        if (what == 11) f.head_bytes = 48 + off;
        if (what == 12) f.src_gap[AXIS_PLANE] = f.dst_gap[AXIS_PLANE] = 16; /* none */
        append_run(&f);
    }
}

/* Nothing to append, in each way, and batch 0. */
static void test_nothing(void) {
    for (int i = 0; i < 36; ++i) {
        form f = plain_form(i % 4 ? 5 : 0, i % 3 ? 0 : 4, i / 3);
        t_case("nothing:");
        f.pending = i % 3 == 2;
        f.s.spread = SPREAD_NONE;
        f.page_size = i % 5 == 0 ? 4 : 0;
        f.planes = i % 4 - 1;
        f.s.has_num_active = i % 6 == 1;
        append_run(&f);
    }
}

/* draft_lacks as the descriptor says it: 1, and 2 after all drafts were accepted, whether the
   draft model's length is kept or not. The draft model is fed the pending token and all drafts but
   the last, and after each step what it lacks, but for the next token. */
static void test_draft_lacks(void) {
    enum { ROWS = 5, STEPS = 6, DRAFTS = 3 };
    for (int keeps = 0; keeps < 2; ++keeps) {
        int32_t len[ROWS], draft_len[ROWS];
        t_case("draft lacks, %s", keeps ? "with draft_cache_len" : "without");
        t_buf accepted = t_in(4 * ROWS * STEPS, 0), cache = t_out(4 * ROWS, 0);
        t_buf draft = t_out(4 * ROWS, 0), draft_lacks = t_out(4 * ROWS * STEPS, 0);
        t_buf ticket = t_out(4, 0);
        for (int row = 0; row < ROWS; ++row) {
            len[row] = 10 * row;
            put_word(&cache, row, len[row]);
            put_word(&draft, row, draft_len[row] = len[row] + DRAFTS); /* pending, two drafts */
            for (int step = 0; step < STEPS; ++step)
                put_word(&accepted, step * ROWS + row, (row + step) % (DRAFTS + 1));
        }
        put_word(&ticket, 0, 0);
        t_upload();
        for (int side = 0; side <= T_DEVICE; ++side) {
            specv_append_kv_desc d = SPECV_ZERO;
            d.rows.batch = ROWS, d.rows.max_draft = DRAFTS;
            d.num_pending = 1, d.kv.max_positions = 100, d.num_sms = 2;
            d.cache_len = (int32_t *)t_at(&cache, side);
            d.ticket = (uint32_t *)t_at(&ticket, side);
            for (int step = 0; step < STEPS; ++step) {
                d.accepted_len = (int32_t *)t_at(&accepted, side) + step * ROWS;
                d.draft_lacks = (int32_t *)t_at(&draft_lacks, side) + step * ROWS;
                if (keeps && step == 0) d.draft_cache_len = (int32_t *)t_at(&draft, side);
                if (step == 1) d.draft_cache_len = NULL; /* drafted again: pending, two drafts */
                run_on(&d, side);
            }
        }
        for (int step = 0; step < STEPS; ++step)
            for (int row = 0; row < ROWS; ++row) {
                const int k = (row + step) % (DRAFTS + 1);
                len[row] += 1 + k;
                CHECK_EQ(word_at(&draft_lacks, step * ROWS + row), k == DRAFTS ? 2 : 1, row);
                if (step > 0) continue;
                draft_len[row] = len[row] - (k == DRAFTS);
                if (keeps) CHECK_EQ(word_at(&draft, row), draft_len[row], row);
            }
        for (int row = 0; row < ROWS; ++row) CHECK_EQ(word_at(&cache, row), len[row], row);
        t_check_host();
        t_check_device();
    }
}

/* Slots and position ids, written down by hand: paged, padded, padded with the end in sight, and
   numbers beyond 32 bits. Each row has `len` positions and appends 2. */
#define BIG ((int64_t)INT32_MAX)
enum { SLOT_WAYS = 6, SLOT_ROWS = 3, LAST = INT32_MAX };

static const struct {
    int32_t len, positions, page_size, num_ids;
    int64_t slot[SLOT_ROWS][5];
} slot_ways[SLOT_WAYS] = {
    {3, 12, 3, 5, {{14, 21, 22, 23, -1}, {14, 21, 22, 23, -1}, {14, 21, 22, 23, -1}}},
    {3, 12, 0, 5, {{5, 6, 7, 8, 9}, {17, 18, 19, 20, 21}, {29, 30, 31, 32, 33}}},
    {3, 9, 0, 5, {{5, 6, 7, 8, -1}, {14, 15, 16, 17, -1}, {23, 24, 25, 26, -1}}},
    {3,
     LAST,
     0,
     5,
     {{5, 6, 7, 8, 9},
      {BIG + 5, BIG + 6, BIG + 7, BIG + 8, BIG + 9},
      {2 * BIG + 5, 2 * BIG + 6, 2 * BIG + 7, 2 * BIG + 8, 2 * BIG + 9}}},
    {LAST - 3,
     LAST,
     0,
     0,
     {{LAST - 1, -1, -1, -1, -1}, {2 * BIG - 1, -1, -1, -1, -1}, {3 * BIG - 1, -1, -1, -1, -1}}},
    {LAST - 3,
     LAST,
     1 << 29,
     0,
     {{LAST - 1, -1, -1, -1, -1}, {LAST - 1, -1, -1, -1, -1}, {LAST - 1, -1, -1, -1, -1}}},
};

static void test_slots(void) {
    static const int32_t tables[2][4] = {{9, 4, 7, -1}, {0, 1, 2, 3}};
    for (int way = 0; way < SLOT_WAYS; ++way) {
        t_case("slots, way %d", way);
        t_buf accepted = t_in(4 * SLOT_ROWS, 0), cache = t_out(4 * SLOT_ROWS, 0),
              ticket = t_out(4, 0);
        t_buf mapping = t_out(8 * 5 * SLOT_ROWS, 0), ids = t_out(4 * 5 * SLOT_ROWS, 0),
              pages = t_in(4 * 4 * SLOT_ROWS, 0);
        t_buf draft_lacks = t_out(4 * SLOT_ROWS, 0);
        for (int row = 0; row < SLOT_ROWS; ++row)
            put_word(&accepted, row, 1), put_word(&cache, row, slot_ways[way].len);
        for (int i = 0; i < 4 * SLOT_ROWS; ++i) put_word(&pages, i, tables[way > 0][i % 4]);
        put_word(&ticket, 0, 0);
        t_upload();
        for (int side = 0; side <= T_DEVICE; ++side) {
            specv_append_kv_desc d = SPECV_ZERO;
            d.rows.batch = SLOT_ROWS, d.rows.max_draft = 4;
            d.num_pending = 1, d.num_sms = 1;
            d.accepted_len = (const int32_t *)t_at(&accepted, side);
            d.cache_len = (int32_t *)t_at(&cache, side);
            d.slot_mapping = (int64_t *)t_at(&mapping, side);
            /* behind the last position there is no id that an int32 can hold */
            if (slot_ways[way].num_ids) d.position_ids = (int32_t *)t_at(&ids, side);
            d.draft_lacks = (int32_t *)t_at(&draft_lacks, side);
            d.ticket = (uint32_t *)t_at(&ticket, side);
            d.kv.max_positions = slot_ways[way].positions;
            d.kv.page_size = slot_ways[way].page_size;
            if (d.kv.page_size) d.kv.block_table = (int32_t *)t_at(&pages, side);
            if (d.kv.page_size) d.kv.num_pages = 10;
            run_on(&d, side);
        }
        for (int row = 0; row < SLOT_ROWS; ++row) {
            CHECK_EQ(word_at(&draft_lacks, row), 1, row); /* 1 draft of 4 was accepted */
            for (int j = 0; j < 5; ++j)
                CHECK_EQ(long_at(&mapping, row * 5 + j), slot_ways[way].slot[row][j], row);
            for (int j = 0; j < slot_ways[way].num_ids; ++j)
                CHECK_EQ(word_at(&ids, row * 5 + j), slot_ways[way].len + 2 + j, row);
        }
        t_check_host();
        t_check_device();
    }
}

/* --------------------------------------------------------------------------- several launches */

enum { STEPS = 5, STEP_ROWS = 37, STEP_DRAFTS = 6, STEP_POSITIONS = 40, STEP_PAGE = 4 };
enum { STEP_ROW_PAGES = STEP_POSITIONS / STEP_PAGE, STEP_BYTES = 24 };

/* KV rows of one step, and what becomes of the lengths. extra: bits that the append adds. */
static t_buf step_source(const batch *b, int32_t *len, uint32_t *extra) {
    const int csr = b->s.layout == CSR;
    const int64_t columns = 1 + STEP_DRAFTS;
    const int64_t rows = csr ? b->num_draft_tokens + STEP_ROWS : STEP_ROWS * columns;
    t_buf src = t_in(rows * STEP_BYTES, 0);
    for (size_t i = 0; i < src.bytes; ++i) src.host[i] = (char)(i * 53 + 5);
    for (int row = 0; row < STEP_ROWS; ++row) {
        const truth *r = &b->rows[row];
        int64_t first = csr ? r->first + row : row * columns;
        extra[row] = 0;
        if (!r->live || r->first < 0) continue;
        if (len[row] + 1 + r->accepted > STEP_POSITIONS) {
            extra[row] = SPECV_ROW_NO_SPACE;
            continue;
        }
        for (int j = 0; j <= r->accepted; ++j, ++len[row])
            tag_bytes(src.host + (first + j) * STEP_BYTES, STEP_BYTES, row, len[row], 0, 0);
    }
    return src;
}

/* A1, then B3 of what it accepted, step after step: lengths stay where the launches wrote them, and
   nobody looks before the end. */
static void test_steps(void) {
    for (int turn = 0; turn < (t.quick ? 3 : 12); ++turn) {
        const int paged = turn % 2;
        batch b[STEPS];
        t_buf src[STEPS];
        int32_t start[STEP_ROWS], len[STEP_ROWS];
        uint32_t extra[STEPS][STEP_ROWS];
        t_case("%d steps, %s, layout %d", STEPS, paged ? "paged" : "padded", turn % NUM_LAYOUTS);
        t_buf cache_len = t_out(4 * STEP_ROWS, 0), ticket = t_out(4, 0);
        t_buf table = t_in(4 * STEP_ROWS * STEP_ROW_PAGES, 0);
        t_buf cache = t_out(STEP_ROWS * STEP_POSITIONS * STEP_BYTES, turn % 3);
        for (int i = 0; i < STEP_ROWS * STEP_ROW_PAGES; ++i) /* every page once, in another order */
            put_word(&table, i, (i * 7 + turn) % (STEP_ROWS * STEP_ROW_PAGES));
        for (int row = 0; row < STEP_ROWS; ++row) {
            start[row] = len[row] = (int32_t)t_below(STEP_POSITIONS);
            put_word(&cache_len, row, len[row]);
        }
        put_word(&ticket, 0, 0);
        for (int i = 0; i < STEPS; ++i) {
            shape s;
            memset(&s, 0, sizeof s);
            s.batch = STEP_ROWS, s.max_draft = STEP_DRAFTS, s.vocab = 1000;
            s.layout = (layout)(turn % NUM_LAYOUTS);
            s.endings = turn > 2 ? ALL_ENDINGS : 0;
            s.num_eos = turn % 4;
            s.has_num_active = turn > 4, s.num_active = STEP_ROWS - 2 * i;
            batch_make(&b[i], &s);
            src[i] = step_source(&b[i], len, extra[i]);
        }
        t_upload();
        for (int side = 0; side <= T_DEVICE; ++side)
            for (int i = 0; i < STEPS; ++i) {
                specv_verify_greedy_desc v = batch_describe(&b[i], side);
                specv_append_kv_desc d = SPECV_ZERO;
                d.keep_status = 1, d.num_pending = 1;
                d.rows = v.rows;
                d.accepted_len = v.accepted_len, d.row_status = v.row_status;
                d.cache_len = (int32_t *)t_at(&cache_len, side);
                d.ticket = (uint32_t *)t_at(&ticket, side);
                d.src.plane = t_at(&src[i], side), d.kv.plane = t_at(&cache, side);
                d.kv.head_bytes = STEP_BYTES, d.kv.max_positions = STEP_POSITIONS;
                d.num_sms = 1 + turn % 3;
                if (paged) {
                    d.kv.block_table = (int32_t *)t_at(&table, side);
                    d.kv.page_size = STEP_PAGE, d.kv.num_pages = STEP_ROWS * STEP_ROW_PAGES;
                }
                if (side == T_HOST_SIDE) CHECK_EQ(specv_ref_verify_greedy(&v), SPECV_OK, i);
#if T_DEVICE
                if (side == T_DEVICE_SIDE) CHECK_EQ(specv_verify_greedy(&v, 0), SPECV_OK, i);
#endif
                run_on(&d, side);
            }
        for (int row = 0; row < STEP_ROWS; ++row) {
            CHECK_EQ(word_at(&cache_len, row), len[row], row);
            for (int x = 0; x < STEP_POSITIONS; ++x) {
                const int page = word_at(&table, row * STEP_ROW_PAGES + x / STEP_PAGE);
                const int64_t at =
                    paged ? page * STEP_PAGE + x % STEP_PAGE : row * STEP_POSITIONS + x;
                char tag[STEP_BYTES];
                memset(tag, T_POISON, sizeof tag);
                if (x >= start[row] && x < len[row]) tag_bytes(tag, STEP_BYTES, row, x, 0, 0);
                CHECK_EQ(memcmp(cache.host + at * STEP_BYTES, tag, STEP_BYTES), 0, row);
            }
        }
        for (int i = 0; i < STEPS; ++i) batch_check(&b[i], extra[i]);
        t_check_host();
        t_check_device();
        for (int i = 0; i < STEPS; ++i) batch_free(&b[i]);
    }
}

/* What `replays` launches make of a row that one launch appends `count` rows to. The same rows are
   appended each time, until the sequence is full or a page is missing. */
static void replay_row(append *a, int row, int replays) {
    outcome *o = &a->rows[row];
    for (int i = 1; i < replays && o->count > 0; ++i) {
        const int64_t end = o->after + o->count;
        o->status = end > a->f.max_positions ? SPECV_ROW_NO_SPACE : 0;
        for (int64_t x = o->after; x < end && !o->status; ++x)
            if (outer_of(a, row, x) < 0) o->status = SPECV_ROW_BAD_PAGE;
        if (o->status) return;
        for (int64_t x = o->after; x < end; ++x)
            for (int v = 0; v < a->dst.count[AXIS_PLANE]; ++v)
                tag_position(a->expected, &a->dst, outer_of(a, row, x), pos_of(a, x), v, row,
                             o->before + (x - o->before) % o->count);
        o->after = (int32_t)end;
    }
}

#if T_DEVICE
static void replay_graph(const specv_append_kv_desc *d, int num_descs, int replays) {
    cudaStream_t stream = t_begin_graph();
    for (int i = 0; i < num_descs; ++i) CHECK_EQ(specv_append_kv(&d[i], stream), SPECV_OK, i);
    t_run_graph(stream, replays);
}
#endif

/* Two appends of different batches and grids share a ticket, and run again and again: on the device
   from a graph. */
static void test_replay(void) {
    static const int batches[] = {70, 3, 1, 300};
    for (int turn = 0; turn < (t.quick ? 4 : 16); ++turn) {
        const int replays = 2 + turn % 3;
        append a[2];
        specv_append_kv_desc d[2];
        t_case("%d replays, turn %d", replays, turn);
        for (int i = 0; i < 2; ++i) {
            form f = plain_form(batches[(turn + i) % 4], 3, turn);
            f.page_size = (turn / 2 + i) % 2 ? 3 : 0;
            f.num_sms = i ? 1 : 132;
            f.planes = 1;
            append_make(&a[i], &f);
        }
        t_upload();
        for (int side = 0; side <= T_DEVICE; ++side) {
            for (int i = 0; i < 2; ++i) {
                d[i] = append_describe(&a[i], side);
                d[i].ticket = (uint32_t *)t_at(&a[0].ticket, side);
            }
            for (int k = 0; k < 2 * replays && side == T_HOST_SIDE; ++k)
                CHECK_EQ(specv_ref_append_kv(&d[k % 2]), SPECV_OK, k);
#if T_DEVICE
            if (side == T_DEVICE_SIDE) replay_graph(d, 2, replays);
#endif
        }
        for (int i = 0; i < 2; ++i) {
            for (int row = 0; row < a[i].f.s.batch; ++row) {
                replay_row(&a[i], row, replays);
                CHECK_EQ(word_at(&a[i].cache_len, row), a[i].rows[row].after, row);
                CHECK_EQ((uint32_t)word_at(&a[i].status, row), a[i].rows[row].status, row);
            }
            check_image(&a[i].dst_data, a[i].expected);
            CHECK_EQ(word_at(&a[i].ticket, 0), 0, i);
        }
        t_check_host();
        t_check_device();
        for (int i = 0; i < 2; ++i) append_free(&a[i]);
    }
}

#if T_DEVICE

/* Blocks arrive one by one, at tickets of their own. */
typedef struct arrival {
    int32_t ticket, block, num_blocks, result;
} arrival;

static __global__ void arrive_kernel(uint32_t *tickets, arrival *list, int num_arrivals) {
    for (int i = 0; i < num_arrivals; ++i) {
        arrival *a = &list[i];
        const int result = specv_i_block_arrives(&tickets[a->ticket], a->block, a->num_blocks);
        if (threadIdx.x == 0) a->result = result;
        __syncthreads();
    }
}

#endif

/* Two launches share a ticket: they run at once, or the first was aborted when some of its blocks
   had arrived. Each num_blocks that arrive are one launch, going by the sum of their numbers, or
   the last of them sees that they are not. */
static void test_arrivals(void) {
#if T_DEVICE
    enum { TICKETS = 200, MOST = 9 };
    for (int n = 2; n <= MOST; ++n) {
        int num_arrivals = 0, count = 0, sum = 0, bad = 0;
        t_case("arrivals, %d blocks", n);
        t_buf tickets = t_out(4 * TICKETS, 0);
        t_buf list = t_out(TICKETS * 2 * MOST * (int64_t)sizeof(arrival), 0);
        arrival *all = (arrival *)(void *)list.host;
        memset(tickets.host, 0, tickets.bytes);
        for (int i = 0; i < TICKETS; ++i) {
            const int aborts = t_chance(50);
            for (int k = 0, first = num_arrivals; k < 2 * n; ++k) {
                const arrival a = {i, k % n, n, -1};
                if (k < n && aborts && t_chance(50)) continue;
                if (k == n && aborts) first = num_arrivals;
                const int at = first + (int)t_below(num_arrivals - first + 1);
                all[num_arrivals++] = all[at];
                all[at] = a;
            }
        }
        t_upload();
        arrive_kernel<<<1, 64>>>((uint32_t *)tickets.device, (arrival *)list.device, num_arrivals);
        t_download();
        for (int i = 0; i < num_arrivals; ++i) {
            if (i == 0 || all[i].ticket != all[i - 1].ticket) count = sum = 0;
            count += 1, sum += all[i].block + 1;
            const int agrees = sum == n * (n + 1) / 2;
            CHECK_EQ(all[i].result,
                     count < n ? SPECV_I_NOT_LAST
                     : agrees  ? SPECV_I_LAST
                               : SPECV_I_BAD_TICKET,
                     i);
            bad += count == n && !agrees;
            if (count == n) count = sum = 0;
        }
        CHECK(bad > TICKETS / 8);
        t_check_host();
    }
#else
    t_skip("the reference needs no ticket");
#endif
}

#if T_DEVICE
/* Every live row says that the ticket was bad, and is as long as it was; KV may be behind its end.
   Then the ticket is zeroed, and the same step succeeds. few: of the kernel for a warp a piece. */
static void run_bad_ticket_of(int blocks, int kind, int few) {
    enum { ROWS = 10 };
    const int i = 11 * blocks + kind;
    form f = plain_form(ROWS, 3, i);
    append a;
    int32_t after[ROWS];
    f.heads = 3, f.head_bytes = 64, f.planes = few ? blocks : 8, f.num_sms = few ? 132 : blocks;
    f.page_size = i % 2 ? 3 : 0, f.with_refs = i % 2;
    f.faults = i % 4 == 3 ? 25 : 0, f.keep_status = i % 5 == 4;
    f.s.has_num_active = i % 3 == 2, f.s.num_active = ROWS - 3;
    if (i % 7 == 6) f.give &= ~(unsigned)GIVE_DRAFT;
    append_make(&a, &f);
    t_upload();
    for (int row = 0; row < ROWS; ++row) {
        outcome *o = &a.rows[row];
        after[row] = o->after < 0 ? o->before : o->after;
        if (!a.b.rows[row].live) continue;
        o->status |= SPECV_ROW_BAD_TICKET;
        if (o->after < 0) continue;
        o->after = o->before;
        if (o->draft_before < 0) continue;
        o->draft_after = o->draft_before < o->before ? o->draft_before : o->before;
        o->draft_lacks = o->after + 1 - o->draft_after;
    }
    specv_append_kv_desc d = append_describe(&a, T_DEVICE_SIDE);
    CHECK_EQ(specv_i_move_blocks(&d.kv, ROWS * a.columns, f.num_sms), blocks, -1);
    TICKET_LAUNCH(append_kv, d, blocks, kind);
    ticket_put(d.ticket, 0);
    t_download();
    append_check(&a);
    t_check_host();
    for (int side = 0; side <= T_DEVICE; ++side) {
        d = append_describe(&a, side);
        run_on(&d, side);
    }
    for (int row = 0; row < ROWS; ++row) CHECK_EQ(word_at(&a.cache_len, row), after[row], row);
    t_check_device();
    append_free(&a);
}
static void run_bad_ticket(int blocks, int kind) { run_bad_ticket_of(blocks, kind, 0); }
static void run_bad_ticket_of_few(int blocks, int kind) { run_bad_ticket_of(blocks, kind, 1); }
#endif

static void test_tickets(void) {
    TICKET_CASES(run_bad_ticket, 2, 3, 4, 5);
    TICKET_CASES(run_bad_ticket_of_few, 2, 3, 4, 5);
}

/* The kernel may be the programmatic dependent of the one that writes its inputs: it waits before
   it reads. Without a wait the interpreter reports what was read too early. */
static void test_dependents(void) {
#if T_DEVICE
    static const int32_t input[4] = {3, 1, 10, 20}; /* accepted, lengths */
    t_case("dependent");
    t_buf staged = t_in(sizeof input, 0), made = t_out(sizeof input, 0);
    t_buf ticket = t_out(4, 0), ids = t_out(4 * 8, 0);
    memcpy(staged.host, input, sizeof input);
    put_word(&ticket, 0, 0);
    t_upload();
    specv_append_kv_desc d = SPECV_ZERO;
    d.rows.batch = 2, d.rows.max_draft = 3, d.num_pending = 1, d.kv.max_positions = 100;
    d.accepted_len = (const int32_t *)made.device, d.cache_len = (int32_t *)made.device + 2;
    d.position_ids = (int32_t *)ids.device, d.ticket = (uint32_t *)ticket.device;
    t_produce(made.device, staged.device, sizeof input);
    d.chained = SPECV_CHAINED_AFTER;
    CHECK_EQ(specv_append_kv(&d, 0), SPECV_OK, -1);
    t_check_dependents();
    memcpy(made.host, input, sizeof input);
    put_word(&made, 2, 14), put_word(&made, 3, 22);
    for (int i = 0; i < 8; ++i) put_word(&ids, i, i < 4 ? 14 + i : 18 + i);
    t_check_device();
#else
    t_skip("dependent launches need a device");
#endif
}

/* ----------------------------------------------------------------------------- beyond 4 GiB */

enum { FAR_ROWS = 3, FAR_BYTES = 24, FAR_HEADS = 2 };

/* Memory that exists only where it is touched. */
static char *far_memory(int64_t bytes, int side) {
    void *p = NULL;
#if T_DEVICE
    if (side == T_DEVICE_SIDE && cudaMalloc(&p, (size_t)bytes) == cudaSuccess) return (char *)p;
    (void)cudaGetLastError();
#endif
    if (side == T_DEVICE_SIDE) return NULL;
    p = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : (char *)p;
}

static void far_copy(char *to, const char *from) {
#if T_DEVICE
    T_CUDA(cudaMemcpy(to, from, FAR_BYTES, cudaMemcpyDefault));
#else
    memcpy(to, from, FAR_BYTES);
#endif
}

/* Strides so long that rows lie behind 2^31 and 2^32: a 32-bit product anywhere would fold them
   back. Row b has b positions and appends one; padded, then paged with page 2 - b. */
static void test_far(void) {
    const int64_t outer = ((int64_t)3 << 30) + 64, head = (int64_t)1 << 30;
    const int64_t bytes = (FAR_ROWS - 1) * outer + (FAR_HEADS - 1) * head + 64 * 4;
    char *memory[2][2] = {{NULL}}, tag[FAR_BYTES], moved[FAR_BYTES];
    int ok = 1;
    t_case("strides beyond 4 GiB");
    t_buf accepted = t_in(4 * FAR_ROWS, 0), cache_len = t_out(4 * FAR_ROWS * 2, 0);
    t_buf table = t_in(4 * FAR_ROWS, 0), ticket = t_out(4, 0);
    for (int row = 0; row < FAR_ROWS; ++row) {
        put_word(&accepted, row, 0);
        put_word(&table, row, FAR_ROWS - 1 - row);
        put_word(&cache_len, row, row), put_word(&cache_len, row + FAR_ROWS, row);
    }
    put_word(&ticket, 0, 0);
    t_upload();
    for (int side = 0; side <= T_DEVICE; ++side)
        for (int i = 0; i < 2; ++i) ok = (memory[side][i] = far_memory(bytes, side)) != NULL && ok;
    for (int side = 0; side <= T_DEVICE && ok; ++side)
        for (int paged = 0; paged < 2; ++paged) {
            specv_append_kv_desc d = SPECV_ZERO;
            d.rows.batch = FAR_ROWS, d.rows.max_draft = 1, d.num_pending = 1, d.num_sms = 1;
            d.accepted_len = (const int32_t *)t_at(&accepted, side);
            d.cache_len = (int32_t *)t_at(&cache_len, side) + paged * FAR_ROWS;
            d.ticket = (uint32_t *)t_at(&ticket, side);
            d.kv.max_positions = 4, d.kv.num_heads = FAR_HEADS, d.kv.head_bytes = FAR_BYTES;
            d.kv.pos_stride_bytes = d.src.pos_stride_bytes = 64;
            d.kv.head_stride_bytes = d.src.head_stride_bytes = head;
            d.src.seq_stride_bytes = outer;
            *(paged ? &d.kv.page_stride_bytes : &d.kv.seq_stride_bytes) = outer;
            d.src.plane = memory[side][0], d.kv.plane = memory[side][1];
            if (paged) {
                d.kv.block_table = (int32_t *)t_at(&table, side);
                d.kv.page_size = 4, d.kv.num_pages = FAR_ROWS;
            }
            for (int row = 0; row < FAR_ROWS; ++row)
                for (int h = 0; h < FAR_HEADS; ++h) {
                    tag_bytes(tag, FAR_BYTES, row, row, h, paged);
                    far_copy(memory[side][0] + row * outer + h * head, tag);
                }
            run_on(&d, side);
            for (int row = 0; row < FAR_ROWS; ++row)
                for (int h = 0; h < FAR_HEADS; ++h) {
                    const int at = paged ? FAR_ROWS - 1 - row : row;
                    tag_bytes(tag, FAR_BYTES, row, row, h, paged);
                    far_copy(moved, memory[side][1] + at * outer + row * 64 + h * head);
                    CHECK_EQ(memcmp(moved, tag, FAR_BYTES), 0, row);
                }
        }
    if (ok) t_check_device();
    for (int i = 0; i < 2; ++i) {
        if (memory[0][i]) munmap(memory[0][i], (size_t)bytes);
#if T_DEVICE
        T_CUDA(cudaFree(memory[1][i]));
#endif
    }
    if (!ok) t_skip("no 16 GB of address space on both sides");
}

/* --------------------------------------------------------------------------------- validation */

static int64_t storage[64]; /* something to point to: nothing of it is read or written */

static void *misaligned(void) { return (char *)storage + 2; }

static specv_append_kv_desc valid_desc(void) {
    specv_append_kv_desc d = SPECV_ZERO;
    d.rows.batch = 4, d.rows.max_draft = 7;
    d.accepted_len = (int32_t *)storage;
    d.cache_len = (int32_t *)storage;
    d.ticket = (uint32_t *)storage;
    d.num_pending = 1;
    d.src.plane = d.kv.plane = storage;
    d.kv.head_bytes = 16, d.kv.num_heads = 4, d.kv.max_positions = 100;
    return d;
}

static void make_paged(specv_append_kv_desc *d) {
    d->kv.block_table = (int32_t *)storage;
    d->kv.page_size = 16, d->kv.num_pages = 50;
}

static void make_tables(specv_append_kv_desc *d) {
    d->src.plane = d->kv.plane = NULL;
    d->src.planes = (const void *const *)storage;
    d->kv.planes = (void *const *)storage;
    d->kv.num_planes = 3;
}

#if !T_DEVICE
#define specv_append_kv(d, stream) specv_ref_append_kv(d)
#endif

/* Not every change uses all of them: tells nvcc that this is meant. */
static void shortcuts(const specv_kv_cache *kv, const specv_kv_rows *src, const specv_rows *rows) {
    (void)kv, (void)src, (void)rows;
}

#define EXPECT(code, change)                                                                       \
    do {                                                                                           \
        specv_append_kv_desc d = valid_desc();                                                     \
        specv_kv_cache *kv = &d.kv;                                                                \
        specv_kv_rows *src = &d.src;                                                               \
        specv_rows *rows = &d.rows;                                                                \
        shortcuts(kv, src, rows);                                                                  \
        change;                                                                                    \
        CHECK_EQ(specv_append_kv_validate(&d), code, -1);                                          \
        if ((code) != SPECV_OK) CHECK_EQ(specv_ref_append_kv(&d), code, -1);                       \
        if ((code) != SPECV_OK) CHECK_EQ(specv_append_kv(&d, 0), code, -1);                        \
    } while (0)

#define EXPECT_PAGED(code, change)  EXPECT(code, (make_paged(&d), change))
#define EXPECT_TABLES(code, change) EXPECT(code, (make_tables(&d), change))

static void check_numbers(void) {
    EXPECT(SPECV_OK, (void)0);
    EXPECT(SPECV_ERR_CANARY, d.canary0 = 1);
    EXPECT(SPECV_ERR_CANARY, d.canary1 = 1);
    EXPECT(SPECV_ERR_CHAINED, d.chained = 4);
    EXPECT(SPECV_ERR_CHAINED, d.chained = -1);
    EXPECT(SPECV_ERR_CANARY, kv->reserved = 1);
    EXPECT(SPECV_ERR_BATCH, rows->batch = -1);
    EXPECT(SPECV_ERR_MAX_DRAFT, rows->max_draft = -1);
    EXPECT(SPECV_ERR_TOO_LARGE, rows->max_draft = 1 << 28);
    EXPECT(SPECV_ERR_LAYOUT, rows->draft_len = rows->row_start = (int32_t *)storage);
    EXPECT(SPECV_ERR_NUM_ACTIVE, rows->num_active = (int32_t *)misaligned());
    EXPECT(SPECV_ERR_DRAFT_LEN, rows->draft_len = (int32_t *)misaligned());
    EXPECT(SPECV_ERR_ROW_START, rows->row_start = (int32_t *)misaligned());
    EXPECT(SPECV_ERR_NUM_DRAFT_TOKENS, rows->num_draft_tokens = 1);
    EXPECT(SPECV_OK, (rows->row_start = (int32_t *)storage, rows->num_draft_tokens = 28));
    EXPECT(SPECV_ERR_NUM_DRAFT_TOKENS,
           (rows->row_start = (int32_t *)storage, rows->num_draft_tokens = 29));
    EXPECT(SPECV_ERR_KEEP_STATUS, d.keep_status = 2);
    EXPECT(SPECV_ERR_KEEP_STATUS, d.keep_status = -1);
    EXPECT(SPECV_ERR_NUM_PENDING, d.num_pending = -1);
    EXPECT(SPECV_OK, (d.num_pending = 0, rows->max_draft = (1 << 28) - 1));
    EXPECT(SPECV_OK, (d.num_pending = 1, rows->max_draft = (1 << 28) - 1));
    EXPECT(SPECV_ERR_NUM_PENDING, (d.num_pending = 2, rows->max_draft = (1 << 28) - 1));
    EXPECT(SPECV_ERR_NUM_PENDING, d.num_pending = INT32_MAX);
    EXPECT(SPECV_ERR_SLOT, rows->slot = (int32_t *)storage);
    EXPECT(SPECV_ERR_SLOT, (rows->slot = (int32_t *)misaligned(), rows->num_slots = 9));
    EXPECT(SPECV_OK, (rows->slot = (int32_t *)storage, rows->num_slots = INT32_MAX));
    EXPECT(SPECV_OK, rows->num_slots = INT32_MIN);
    EXPECT(SPECV_ERR_NUM_SMS, d.num_sms = -1);
    EXPECT(SPECV_ERR_NUM_SMS, d.num_sms = 65536);
    EXPECT(SPECV_OK, d.num_sms = 65535);
}

static void check_pointers(void) {
    EXPECT(SPECV_ERR_ACCEPTED_LEN, d.accepted_len = NULL);
    EXPECT(SPECV_ERR_ACCEPTED_LEN, d.accepted_len = (int32_t *)misaligned());
    EXPECT(SPECV_ERR_CACHE_LEN, d.cache_len = NULL);
    EXPECT(SPECV_ERR_CACHE_LEN, d.cache_len = (int32_t *)misaligned());
    EXPECT(SPECV_ERR_TICKET, d.ticket = NULL);
    EXPECT(SPECV_ERR_TICKET, d.ticket = (uint32_t *)misaligned());
    EXPECT(SPECV_OK, (d.accepted_len = NULL, d.cache_len = NULL, d.ticket = NULL, rows->batch = 0));
    EXPECT(SPECV_ERR_DRAFT_CACHE_LEN, d.draft_cache_len = (int32_t *)misaligned());
    EXPECT(SPECV_ERR_DRAFT_CACHE_LEN, d.draft_lacks = (int32_t *)misaligned());
    EXPECT(SPECV_ERR_SLOT_MAPPING, d.slot_mapping = (int64_t *)((char *)storage + 4));
    EXPECT(SPECV_ERR_SLOT_MAPPING, d.position_ids = (int32_t *)misaligned());
    EXPECT(SPECV_ERR_ROW_STATUS, d.row_status = (uint32_t *)misaligned());
    EXPECT(SPECV_ERR_PAGE_REFS, d.page_refs = (int32_t *)storage);
    EXPECT_PAGED(SPECV_OK, d.page_refs = (int32_t *)storage);
    EXPECT_PAGED(SPECV_ERR_PAGE_REFS, d.page_refs = (int32_t *)misaligned());
    EXPECT(SPECV_ERR_SRC, src->plane = NULL);
    EXPECT(SPECV_ERR_SRC, kv->plane = NULL);
    EXPECT(SPECV_OK, src->plane = kv->plane = NULL);
    EXPECT(SPECV_OK, (src->plane = NULL, d.num_pending = rows->max_draft = 0));
    EXPECT_TABLES(SPECV_OK, (void)0);
    EXPECT_TABLES(SPECV_ERR_SRC, src->planes = NULL);
    EXPECT_TABLES(SPECV_ERR_SRC, src->plane = storage);
    EXPECT_TABLES(SPECV_ERR_SRC, src->planes = (const void *const *)((char *)storage + 4));
    EXPECT_TABLES(SPECV_ERR_SRC, (kv->planes = NULL, kv->num_planes = 0));
    EXPECT_TABLES(SPECV_ERR_PLANES, kv->plane = storage);
    EXPECT_TABLES(SPECV_ERR_PLANES, kv->planes = (void *const *)((char *)storage + 4));
    EXPECT_TABLES(SPECV_ERR_NUM_PLANES, kv->num_planes = 0);
    EXPECT_TABLES(SPECV_ERR_NUM_PLANES, kv->num_planes = -1);
    EXPECT(SPECV_ERR_NUM_PLANES, kv->num_planes = 2);
    EXPECT(SPECV_ERR_NUM_PLANES, kv->num_planes = -1);
    EXPECT(SPECV_OK, kv->num_planes = 1);
}

static void check_cache(void) {
    const int64_t half = INT64_MAX / 2 + 1;
    EXPECT(SPECV_ERR_MAX_POSITIONS, kv->max_positions = 0);
    EXPECT(SPECV_ERR_MAX_POSITIONS, kv->max_positions = -1);
    EXPECT(SPECV_ERR_BLOCK_TABLE, kv->block_table = (int32_t *)misaligned());
    EXPECT(SPECV_ERR_PAGE_SIZE, kv->page_size = 16);
    EXPECT(SPECV_ERR_NUM_PAGES, kv->num_pages = 16);
    EXPECT(SPECV_ERR_TABLE_STRIDE, kv->table_stride_elems = 7);
    EXPECT_PAGED(SPECV_OK, (void)0);
    EXPECT_PAGED(SPECV_ERR_PAGE_SIZE, kv->page_size = 0);
    EXPECT_PAGED(SPECV_ERR_PAGE_SIZE, kv->page_size = -1);
    EXPECT_PAGED(SPECV_ERR_NUM_PAGES, kv->num_pages = 0);
    EXPECT_PAGED(SPECV_ERR_NUM_PAGES, kv->num_pages = -1);
    EXPECT_PAGED(SPECV_ERR_TABLE_STRIDE, kv->table_stride_elems = 6);
    EXPECT_PAGED(SPECV_ERR_TABLE_STRIDE, kv->table_stride_elems = -1);
    EXPECT_PAGED(SPECV_OK, kv->table_stride_elems = 7);
    EXPECT_PAGED(SPECV_ERR_SIZE, kv->table_stride_elems = half / 8);
    EXPECT(SPECV_ERR_NUM_HEADS, kv->num_heads = -1);
    EXPECT(SPECV_ERR_HEAD_BYTES, kv->head_bytes = 0);
    EXPECT(SPECV_ERR_HEAD_BYTES, kv->head_bytes = -1);
    EXPECT(SPECV_ERR_HEAD_BYTES, kv->head_bytes = 1 << 29);
    EXPECT(SPECV_OK, (src->plane = kv->plane = NULL, kv->head_bytes = 0));
    EXPECT(SPECV_ERR_KV_STRIDE, kv->head_stride_bytes = -1);
    EXPECT(SPECV_ERR_KV_STRIDE, kv->pos_stride_bytes = -1);
    EXPECT(SPECV_ERR_KV_STRIDE, kv->seq_stride_bytes = -1);
    EXPECT_PAGED(SPECV_ERR_KV_STRIDE, kv->page_stride_bytes = -1);
    EXPECT(SPECV_ERR_KV_STRIDE, kv->head_stride_bytes = 15);
    EXPECT(SPECV_ERR_KV_STRIDE, kv->pos_stride_bytes = 63);
    EXPECT(SPECV_OK, kv->pos_stride_bytes = 64);
    EXPECT(SPECV_OK, (kv->head_stride_bytes = 1600, kv->pos_stride_bytes = 16)); /* HND */
    EXPECT(SPECV_ERR_KV_STRIDE, (kv->head_stride_bytes = 1599, kv->pos_stride_bytes = 16));
    EXPECT(SPECV_ERR_KV_STRIDE, (kv->head_stride_bytes = 1600, kv->pos_stride_bytes = 15));
    EXPECT_PAGED(SPECV_OK, (kv->head_stride_bytes = 256, kv->pos_stride_bytes = 16));
    EXPECT_PAGED(SPECV_ERR_KV_STRIDE, (kv->head_stride_bytes = 255, kv->pos_stride_bytes = 16));
    EXPECT(SPECV_ERR_KV_STRIDE, kv->seq_stride_bytes = 15);
    EXPECT_PAGED(SPECV_ERR_KV_STRIDE, kv->page_stride_bytes = 15);
    EXPECT(SPECV_ERR_SIZE, kv->head_stride_bytes = half);
    EXPECT(SPECV_ERR_SIZE, kv->pos_stride_bytes = half);
    EXPECT(SPECV_ERR_SIZE, kv->seq_stride_bytes = half);
    EXPECT(SPECV_OK, kv->seq_stride_bytes = half >> 9);
    EXPECT(SPECV_ERR_SIZE, (kv->seq_stride_bytes = half >> 9, d.rows.slot = (int32_t *)storage,
                            d.rows.num_slots = 1 << 9));
    EXPECT_PAGED(SPECV_OK, kv->table_stride_elems = half >> 9);
    EXPECT_PAGED(SPECV_ERR_SIZE, (kv->table_stride_elems = half >> 9,
                                  d.rows.slot = (int32_t *)storage, d.rows.num_slots = 1 << 9));
    EXPECT_PAGED(SPECV_ERR_SIZE, kv->page_stride_bytes = half);
}

static void check_source(void) {
    const int64_t half = INT64_MAX / 2 + 1;
    EXPECT(SPECV_ERR_KV_STRIDE, src->head_stride_bytes = -1);
    EXPECT(SPECV_ERR_KV_STRIDE, src->pos_stride_bytes = -1);
    EXPECT(SPECV_ERR_KV_STRIDE, src->seq_stride_bytes = -1);
    EXPECT(SPECV_ERR_KV_STRIDE, src->head_stride_bytes = 15);
    EXPECT(SPECV_ERR_KV_STRIDE, src->pos_stride_bytes = 63);
    EXPECT(SPECV_ERR_KV_STRIDE, src->seq_stride_bytes = 15);
    EXPECT(SPECV_OK, (src->head_stride_bytes = 128, src->pos_stride_bytes = 16));
    EXPECT(SPECV_ERR_KV_STRIDE, (src->head_stride_bytes = 127, src->pos_stride_bytes = 16));
    EXPECT(SPECV_ERR_SRC_SEQ_STRIDE,
           (rows->row_start = (int32_t *)storage, src->seq_stride_bytes = 8 * 64));
    EXPECT(SPECV_ERR_SIZE, src->head_stride_bytes = half);
    EXPECT(SPECV_ERR_SIZE, src->pos_stride_bytes = half);
    EXPECT(SPECV_ERR_SIZE, src->seq_stride_bytes = half);
    EXPECT(SPECV_OK, (src->plane = kv->plane = NULL, src->pos_stride_bytes = -1));
}

static void test_validation(void) {
    t_case("every status code of B3");
    CHECK_EQ(specv_append_kv_validate(NULL), SPECV_ERR_NULL_DESC, -1);
    CHECK_EQ(specv_ref_append_kv(NULL), SPECV_ERR_NULL_DESC, -1);
    CHECK_EQ(specv_append_kv(NULL, 0), SPECV_ERR_NULL_DESC, -1);
    check_numbers();
    check_pointers();
    check_cache();
    check_source();
}

int main(int argc, char **argv) {
    static const t_group groups[] = {
        {"validation", test_validation},
        {"slots", test_slots},
        {"draft_lacks", test_draft_lacks},
        {"nothing", test_nothing},
        {"units", test_units},
        {"shapes", test_shapes},
        {"faults", test_faults},
        {"batches", test_batches},
        {"steps", test_steps},
        {"replay", test_replay},
        {"arrivals", test_arrivals},
        {"tickets", test_tickets},
        {"dependents", test_dependents},
        {"far", test_far},
    };
    return t_main(argc, argv, groups, T_COUNT(groups));
}
