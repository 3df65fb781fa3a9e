/* reshuffle.cu - D3 and D4: whose pages, text and numbers go where, and particles in whole cycles.

   Single launches are held against shuffle.h; cycles of resize, append, resampling and reshuffle
   against the engine of engine.h with a reshuffle of its own, which counts owners anew. */

#include "plan.h"
#include "shuffle.h"
#include "tickets.h"

#if !T_DEVICE
#define specv_reshuffle(d, stream) specv_ref_reshuffle(d)
#endif

/* ---------------------------------------------------------------------------------------- D3 */

static void shuffle_both(shuffle *s) {
    shuffle_want(s);
    t_upload();
    specv_reshuffle_desc d = shuffle_describe(s, T_HOST_SIDE);
    CHECK_EQ(specv_ref_reshuffle(&d), SPECV_OK, -1);
    io_check();
#if T_DEVICE
    d = shuffle_describe(s, T_DEVICE_SIDE);
    CHECK_EQ(specv_reshuffle(&d, 0), SPECV_OK, -1);
#endif
    t_check_device();
    shuffle_check_scratch(s);
    shuffle_free(s);
}

static void shuffle_run(shuffle *s, int dead_percent) {
    t_note(" %d groups, %d jobs, %d rows, %d caches", s->groups, s->max_jobs, s->batch,
           s->num_caches);
    shuffle_make(s, dead_percent);
    shuffle_inert(s);
    shuffle_both(s);
}

static void shuffle_cache(shuffle *s, int i, int size, int max_row_pages, int num_pages) {
    s->c[i].size = size, s->c[i].max_row_pages = max_row_pages, s->c[i].num_pages = num_pages;
}

static void test_shuffles(void) {
    static const int sizes[] = {1, 3, 16, 64};
    for (int i = 0; i < (t.cases ? t.cases : t.quick ? 60 : T_DEVICE ? 300 : 4000); ++i) {
        shuffle s;
        t_case("shuffles:");
        memset(&s, 0, sizeof s);
        s.groups = (int)t_between(1, 5), s.max_jobs = (int)t_between(1, 12);
        s.batch = s.groups * (s.max_jobs + 1);
        if (t_chance(10)) s.batch = (int)t_between(1, 4);
        s.num_caches = (int)t_below(SPECV_MAX_CACHES + 1);
        s.num_carry = (int)t_below(SPECV_MAX_CARRY + 1);
        s.dtype = t_chance(50) ? SPECV_I64 : SPECV_I32;
        s.faults = t_chance(50) ? 0 : 12;
        s.sparse = t_chance(60);
        s.text_stride = t_chance(70) ? t_between(1, 40) : 0;
        for (int k = 0; k < s.num_caches; ++k)
            shuffle_cache(&s, k, T_PICK(sizes), (int)t_between(1, 12),
                          (int)t_between(1, s.batch * 12));
        shuffle_run(&s, (int)t_between(0, 90));
    }
}

/* Tables and texts of several blocks. */
static void test_long(void) {
    for (int i = 0; i < (t.quick ? 2 : 6); ++i) {
        shuffle s;
        t_case("long:");
        memset(&s, 0, sizeof s);
        s.groups = 2, s.max_jobs = 3, s.batch = 8, s.num_caches = i % 3, s.num_carry = 2;
        s.faults = i < 3 ? 0 : 10, s.sparse = i % 2;
        s.text_stride = i % 2 ? 100 : 30000;
        for (int k = 0; k < s.num_caches; ++k)
            shuffle_cache(&s, k, k ? 16 : 1, k ? 700 : 5300 + 1000 * i, 30000);
        shuffle_run(&s, 50);
    }
}

/* More jobs than the last block has threads, most of them none, of many groups. */
static void test_wide(void) {
    for (int i = 0; i < 2; ++i) {
        shuffle s;
        t_case("wide:");
        memset(&s, 0, sizeof s);
        s.groups = i ? 3 : 40, s.max_jobs = i ? 255 : 7, s.batch = s.groups * (s.max_jobs + 1);
        s.num_caches = 1, s.num_carry = 1, s.text_stride = 3, s.faults = 2, s.sparse = i;
        shuffle_cache(&s, 0, 3, 4, 4 * s.batch);
        shuffle_run(&s, 60);
    }
}

/* Marks of pools of any size, from a few bits to more words than a block sweeps in a turn: few
   pages go back, or nearly all. */
static void test_marks(void) {
    static const int pools[] = {1,    31,   32,   33,   127,   128,   129,   1023,
                                1024, 1025, 8192, 8193, 32767, 32768, 32769, 70001};
    for (int i = 0; i < T_COUNT(pools); ++i)
        for (int dense = 0; dense < 2; ++dense) {
            shuffle s;
            const int most = pools[i] < 8 ? 1 : dense ? pools[i] / 4 : 6;
            if (t.quick && dense && pools[i] > 2000 && i % 3) continue;
            t_case("marks of %d pages:", pools[i]);
            memset(&s, 0, sizeof s);
            s.groups = 1, s.max_jobs = 4, s.batch = 5, s.num_caches = 1 + i % 2;
            shuffle_cache(&s, 0, 1, most, pools[i]);
            if (i % 2) shuffle_cache(&s, 1, 16, 2, pools[T_COUNT(pools) - 1 - i]);
            shuffle_run(&s, 60);
        }
}

/* The same from grids of any size: what there was is put back for each. */
static void test_sms(void) {
    static const int sms[] = {1, 3, 132};
    for (int i = 0; i < (t.quick ? 3 : 12); ++i) {
        shuffle s;
        char *before[IO_MAX];
        t_case("sms:");
        memset(&s, 0, sizeof s);
        s.groups = 9, s.max_jobs = 7, s.batch = 72, s.num_caches = 2, s.num_carry = 2;
        s.text_stride = i % 2 ? 20 : 9000, s.faults = i % 3 ? 0 : 8;
        for (int k = 0; k < 2; ++k) shuffle_cache(&s, k, k ? 16 : 1, k ? 5 : 60, 4000);
        shuffle_make(&s, 60);
        shuffle_inert(&s);
        shuffle_want(&s);
        for (int k = 0; k < io_count; ++k) {
            before[k] = (char *)zeros((int64_t)io_list[k].buf.bytes + 1, 1);
            memcpy(before[k], io_list[k].buf.host, io_list[k].buf.bytes);
        }
        for (int j = 0; j < T_COUNT(sms); ++j) {
            t_note(" %d", s.num_sms = sms[j]);
            for (int k = 0; k < io_count; ++k)
                memcpy(io_list[k].buf.host, before[k], io_list[k].buf.bytes);
            t_upload();
            specv_reshuffle_desc d = shuffle_describe(&s, T_HOST_SIDE);
            CHECK_EQ(specv_ref_reshuffle(&d), SPECV_OK, -1);
            io_check();
#if T_DEVICE
            d = shuffle_describe(&s, T_DEVICE_SIDE);
            CHECK_EQ(specv_reshuffle(&d, 0), SPECV_OK, -1);
#endif
            t_check_device();
            shuffle_check_scratch(&s);
        }
        for (int k = 0; k < io_count; ++k) free(before[k]);
        shuffle_free(&s);
    }
}

/* What a pool and its tables can say of each other: which pages go back, and whether every job is
   told. */
enum contradiction {
    ENTRIES_WITHOUT_OWNERS, /* the page goes back once */
    IDS_OF_NO_PAGE,         /* nobody counts them */
    NO_OWNER_OF_A_SRC,      /* it gains some all the same */
    STACK_BELOW_0,          /* nothing can go back */
    STACK_ABOVE_ALL,
    STACK_FAR_ABOVE_ALL,
    STACK_TOO_FULL, /* for one of them, so for all */
    STACK_JUST_FITS,
    NO_CONTRADICTION,
    NUM_CONTRADICTIONS
};

static void test_contradictions(void) {
    enum { ROWS = 8, PAGES = ROWS + 2, GONE = ROWS - 2 }; /* 0 and 1 live, the others take theirs */
    for (int way = 0; way < NUM_CONTRADICTIONS; ++way) {
        const int num_free = way == STACK_BELOW_0         ? -1
                             : way == STACK_ABOVE_ALL     ? PAGES + 1
                             : way == STACK_FAR_ABOVE_ALL ? INT32_MAX
                             : way == STACK_TOO_FULL      ? PAGES - GONE + 1
                             : way == STACK_JUST_FITS     ? PAGES - GONE
                                                          : 2;
        const int lost = way >= STACK_BELOW_0 && way <= STACK_TOO_FULL;
        const uint32_t told = way < STACK_JUST_FITS ? SPECV_ROW_BAD_PAGE : 0;
        shuffle s;
        t_case("contradiction %d", way);
        memset(&s, 0, sizeof s);
        s.groups = 1, s.max_jobs = GONE + 2, s.batch = ROWS, s.num_caches = 1;
        shuffle_cache(&s, 0, 4, 2, PAGES);
        shuffle_make(&s, 0);
        const pages_of *c = &s.c[0];
        if (!s.status) s.status = io_new(4 * s.max_jobs, 0);
        for (int row = 0; row < ROWS; ++row) {
            const int no_page = way == IDS_OF_NO_PAGE && row > 1; /* 9 + PAGES or -3 */
            put32(c->table->buf.host, row * c->stride,
                  way == ENTRIES_WITHOUT_OWNERS && row > 2 ? 2 : row);
            put32(c->table->buf.host, row * c->stride + 1,
                  !no_page  ? -1
                  : row % 2 ? 9 + PAGES
                            : -3);
            put32(c->cache_len->buf.host, row, row ? 1 : 4);
            put32(c->num_row_pages->buf.host, row, 1 + no_page);
        }
        for (int page = 0; page < PAGES; ++page)
            put32(c->page_refs->buf.host, page, page < (way == ENTRIES_WITHOUT_OWNERS ? 3 : ROWS));
        if (way == NO_OWNER_OF_A_SRC) put32(c->page_refs->buf.host, 0, 0);
        put32(c->stack->buf.host, 0, ROWS), put32(c->stack->buf.host, 1, ROWS + 1);
        put32(c->stack_size->buf.host, 0, num_free);
        for (int j = 0; j <= GONE + 1; ++j) /* the last but one names one row twice */
            put32(s.jobs.host, 2 * j, j % 2), put32(s.jobs.host, 2 * j + 1, j < GONE ? j + 2 : 1);
        put32(s.jobs.host, 2 * GONE, 1);
        put32(s.num_jobs.host, 0, GONE + 1);
        io_begin();
        want_status(s.status, s.keep_status, GONE, SPECV_ROW_BAD_LENGTH | told);
        want_status(s.status, s.keep_status, GONE + 1, 0);
        for (int row = 2; row < ROWS; ++row) {
            put32(c->table->want, row * c->stride, row % 2);
            put32(c->table->want, row * c->stride + 1, -1);
            put32(c->cache_len->want, row, row % 2 ? 1 : 4);
            put32(c->num_row_pages->want, row, 1);
            want_status(s.status, s.keep_status, row - 2, told);
        }
        for (int page = 0; page < PAGES; ++page)
            put32(c->page_refs->want, page, page < 2 ? ROWS / 2 : 0);
        if (way == NO_OWNER_OF_A_SRC) put32(c->page_refs->want, 0, ROWS / 2 - 1);
        for (int i = 0; i < (way == ENTRIES_WITHOUT_OWNERS ? 1 : GONE) && !lost; ++i) {
            put32(c->stack->want, num_free + i, 2 + i);
            put32(c->stack_size->want, 0, num_free + i + 1);
        }
        for (int i = num_free; i < PAGES && way == STACK_TOO_FULL; ++i)
            put32(c->stack->want, i, -1);
        t_upload();
        specv_reshuffle_desc d = shuffle_describe(&s, T_HOST_SIDE);
        CHECK_EQ(specv_ref_reshuffle(&d), SPECV_OK, -1);
        io_check();
#if T_DEVICE
        d = shuffle_describe(&s, T_DEVICE_SIDE);
        CHECK_EQ(specv_reshuffle(&d, 0), SPECV_OK, -1);
#endif
        t_check_device();
        shuffle_free(&s);
    }
}

#if T_DEVICE
/* Every job that exists says that the ticket was bad. */
static void run_bad_ticket(int blocks, int which) {
    shuffle s;
    memset(&s, 0, sizeof s);
    s.groups = 2, s.max_jobs = blocks / 2, s.batch = 2 * s.max_jobs + 2;
    s.num_caches = which % (SPECV_MAX_CACHES + 1), s.num_carry = 1, s.text_stride = 9;
    s.faults = which % 4 == 3 ? 12 : 0;
    for (int k = 0; k < s.num_caches; ++k) shuffle_cache(&s, k, k ? 1 : 4, 7, 9 * s.batch);
    shuffle_make(&s, 60);
    if (!s.status) s.status = io_new(4 * blocks, 0);
    t_upload();
    specv_reshuffle_desc d = shuffle_describe(&s, T_DEVICE_SIDE);
    ticket_put((uint32_t *)d.scratch, ticket_word(which, blocks));
    CHECK_EQ(specv_reshuffle(&d, 0), SPECV_OK, -1);
    T_CUDA(cudaDeviceSynchronize());
    for (int j = 0; j < blocks; ++j) {
        const int exists = j % s.max_jobs < get32(s.num_jobs.host, j / s.max_jobs);
        const int32_t status = word_on_device(d.job_status, j);
        const uint32_t old = t_old_status(s.keep_status, j);
        CHECK_EQ((uint32_t)status, exists ? old | SPECV_ROW_BAD_TICKET : old, j);
    }
    shuffle_both(&s); /* from the beginning, with tickets that are zero */
}
#endif

static void test_tickets(void) { TICKET_CASES(run_bad_ticket, 2, 6, 12); }

/* -------------------------------------------------------------------------- cycles of an engine */

enum { TEXT = 24, CARRIES = 3 };

/* Groups of particles with a target's and a draft's cache, and what they carry around. */
typedef struct crowd {
    engine e[2];
    int groups, n, rows;
    plan p;
    t_buf text, text_len, carry[CARRIES], status, scratch;
    int32_t *want_text, *want_len, *want_carry[CARRIES];
} crowd;

static const int64_t carried[CARRIES] = {4, 8, 12};

static void crowd_make(crowd *c, int groups, int n) {
    static const int sizes[] = {1, 3, 16, 64};
    memset(c, 0, sizeof *c);
    c->groups = groups, c->n = n, c->rows = groups * n;
    plan_make(&c->p, groups, n, (int)t_below(NUM_SCHEMES), t_chance(50) ? 1 : 0.5);
    c->text = t_out(4 * c->rows * TEXT, 0), c->text_len = t_out(4 * c->rows, 0);
    c->status = t_out(4 * groups * (n - 1), 0);
    memset(c->text_len.host, 0, c->text_len.bytes);
    c->want_text = (int32_t *)zeros(c->rows * TEXT, 4);
    c->want_len = (int32_t *)zeros(c->rows, 4);
    for (int i = 0; i < CARRIES; ++i) {
        c->carry[i] = t_out(carried[i] * c->rows, 0);
        memset(c->carry[i].host, 0, c->carry[i].bytes);
        c->want_carry[i] = (int32_t *)zeros(c->rows, (size_t)carried[i]);
    }
    for (int i = 0; i < 2; ++i) {
        engine *e = &c->e[i];
        e->num_rows = c->rows, e->size = T_PICK(sizes), e->positions = (int)t_between(20, MAX_LEN);
        e->planes = 1 + (int)t_below(2), e->num_sms = (int)t_between(1, 8);
        /* from a pool that is often dry to one that never is */
        e->num_pages = c->rows + (int)t_below((int64_t)c->rows * e->positions / e->size + 1);
        engine_make(e);
    }
    c->scratch = t_out(specv_reshuffle_scratch_bytes((int64_t)groups * (n - 1),
                                                     c->e[0].num_pages + c->e[1].num_pages),
                       0);
    t_buffers[t_num_buffers - 1].is_private = 1;
    memset(c->scratch.host, 0, c->scratch.bytes);
}

static void crowd_free(crowd *c) {
    for (int i = 0; i < 2; ++i) engine_free(&c->e[i]);
    for (int i = 0; i < CARRIES; ++i) free(c->want_carry[i]);
    free(c->want_text);
    free(c->want_len);
    plan_free(&c->p);
}

static specv_reshuffle_desc crowd_describe(const crowd *c, int side) {
    specv_reshuffle_desc d = SPECV_ZERO;
    d.jobs = (const int32_t *)t_at(&c->p.jobs, side);
    d.num_jobs = (const int32_t *)t_at(&c->p.num_jobs, side);
    for (int i = 0; i < 2; ++i) {
        const engine *e = &c->e[i];
        specv_particle_cache *k = &d.cache[i];
        k->pool.page_refs = (int32_t *)t_at(&e->page_refs, side);
        k->pool.free_pages = (int32_t *)t_at(&e->stack, side);
        k->pool.num_free = (int32_t *)t_at(&e->stack_size, side);
        k->block_table = (int32_t *)t_at(&e->table, side);
        k->num_row_pages = (int32_t *)t_at(&e->num_row_pages, side);
        k->cache_len = (int32_t *)t_at(&e->cache_len, side);
        k->table_stride_elems = e->table_stride_elems;
        k->page_size = e->size, k->num_pages = e->num_pages, k->max_row_pages = e->row_pages;
    }
    for (int i = 0; i < CARRIES; ++i)
        d.carry[i].data = t_at(&c->carry[i], side), d.carry[i].elem_bytes = carried[i];
    d.text = t_at(&c->text, side), d.text_len = (int32_t *)t_at(&c->text_len, side);
    d.job_status = (uint32_t *)t_at(&c->status, side);
    d.scratch = t_at(&c->scratch, side), d.scratch_bytes = (int64_t)c->scratch.bytes;
    d.text_stride_elems = TEXT;
    d.num_groups = c->groups, d.max_jobs = c->n - 1, d.batch = c->rows;
    d.num_caches = 2, d.num_carry = CARRIES;
    return d;
}

/* New tokens, numbers and weights. A full text begins anew. */
static void crowd_advance(crowd *c) {
    for (int row = 0; row < c->rows; ++row) {
        int32_t *len = &c->want_len[row], token = (int32_t)t_random();
        if (*len == TEXT) *len = 0;
        c->want_text[row * TEXT + *len] = token;
        put_word(&c->text, row * TEXT + *len, token);
        put_word(&c->text_len, row, *len += 1);
        for (int i = 0; i < CARRIES; ++i) {
            const int64_t words = carried[i] / 4, w = t_below(words);
            c->want_carry[i][row * words + w] = token;
            put_word(&c->carry[i], row * words + w, token);
        }
    }
    plan_kinds(&c->p, t_chance(20) ? -1 : KIND_NORMAL);
    for (int g = 0; g < c->groups; ++g) put_word(&c->p.position, g, (int32_t)t_random());
    send(&c->text, 0, (int64_t)c->text.bytes), send(&c->text_len, 0, (int64_t)c->text_len.bytes);
    for (int i = 0; i < CARRIES; ++i) send(&c->carry[i], 0, (int64_t)c->carry[i].bytes);
    send(&c->p.weight, 0, (int64_t)c->p.weight.bytes);
    send(&c->p.position, 0, (int64_t)c->p.position.bytes);
}

/* dst becomes src, if both caches can do it. */
static uint32_t model_job(crowd *c, int src, int dst) {
    for (int i = 0; i < 2; ++i)
        if (pages_for(&c->e[i], c->e[i].rows[src].len) > c->e[i].rows[src].num_pages)
            return SPECV_ROW_BAD_LENGTH; /* it has given its pages back */
    for (int i = 0; i < 2; ++i) {
        sequence *s = &c->e[i].rows[dst];
        *s = c->e[i].rows[src];
        s->num_pages = pages_for(&c->e[i], s->len);
    }
    c->want_len[dst] = c->want_len[src];
    for (int x = 0; x < c->want_len[src]; ++x)
        c->want_text[dst * TEXT + x] = c->want_text[src * TEXT + x];
    for (int i = 0; i < CARRIES; ++i)
        memcpy((char *)c->want_carry[i] + dst * carried[i],
               (char *)c->want_carry[i] + src * carried[i], (size_t)carried[i]);
    return 0;
}

static void model_reshuffle(crowd *c, uint32_t *status) {
    for (int i = 0; i < 2; ++i) count_owners(&c->e[i]);
    for (int g = 0; g < c->groups; ++g)
        for (int j = 0; j < c->n - 1; ++j) {
            const int64_t at = (int64_t)g * (c->n - 1) + j;
            const int exists = j < word_at(&c->p.num_jobs, g);
            status[at] =
                exists ? model_job(c, word_at(&c->p.jobs, 2 * at), word_at(&c->p.jobs, 2 * at + 1))
                       : 0;
        }
    for (int i = 0; i < 2; ++i) {
        engine *e = &c->e[i];
        int32_t *before = (int32_t *)zeros(e->num_pages, 4);
        memcpy(before, e->owners, 4 * (size_t)e->num_pages);
        count_owners(e);
        for (int page = 0; page < e->num_pages; ++page)
            if (before[page] > 0 && e->owners[page] == 0) e->free_pages[e->num_free++] = page;
        free(before);
    }
}

static void check_crowd(crowd *c, const uint32_t *status) {
    int wrong = -1;
    for (int row = 0; row < c->rows; ++row) {
        const size_t bytes = 4 * (size_t)c->want_len[row];
        if (word_at(&c->text_len, row) != c->want_len[row] ||
            memcmp(c->text.host + 4 * row * TEXT, c->want_text + row * TEXT, bytes) != 0)
            wrong = row;
    }
    CHECK_EQ(wrong, -1, wrong);
    for (int i = 0; i < CARRIES; ++i)
        CHECK_BYTES(c->carry[i].host, c->want_carry[i], c->carry[i].bytes);
    for (int64_t j = 0; j < (int64_t)c->groups * (c->n - 1); ++j)
        CHECK_EQ((uint32_t)word_at(&c->status, j), status[j], j);
    for (int i = 0; i < 2; ++i) check_model(&c->e[i], 0);
}

static void crowd_cycle(crowd *c) {
    uint32_t *status = (uint32_t *)zeros(c->groups * (c->n - 1) + 1, 4);
    uint64_t before[2];
    for (int i = 0; i < 2; ++i) /* more leave when pages get scarce */
        engine_grow(&c->e[i], c->e[i].num_free * 4 < c->e[i].num_pages ? 12 : 3);
    crowd_advance(c);
    plan_reference(&c->p);
    for (int g = 0; g < c->groups; ++g) check_group(&c->p, g);
    model_reshuffle(c, status);
    for (int i = 0; i < 2; ++i) before[i] = t_hash(c->e[i].data.host, c->e[i].data.bytes);
    specv_reshuffle_desc d = crowd_describe(c, T_HOST_SIDE);
    CHECK_EQ(specv_ref_reshuffle(&d), SPECV_OK, -1);
    for (int i = 0; i < 2; ++i) /* no byte of KV moves */
        CHECK(t_hash(c->e[i].data.host, c->e[i].data.bytes) == before[i]);
    check_crowd(c, status);
#if T_DEVICE
    specv_resample_plan_desc p = plan_describe(&c->p, T_DEVICE_SIDE);
    CHECK_EQ(specv_resample_plan(&p, 0), SPECV_OK, -1);
    d = crowd_describe(c, T_DEVICE_SIDE);
    CHECK_EQ(specv_reshuffle(&d, 0), SPECV_OK, -1);
#endif
    free(status);
}

static void test_cycles(void) {
    const int crowds = T_DEVICE ? (t.quick ? 4 : 20) : t.quick ? 20 : 260;
    const int cycles = T_DEVICE ? (t.quick ? 10 : 25) : 40;
    for (int i = 0; i < crowds; ++i) {
        static crowd c;
        t_case("cycles: crowd %d", i);
        crowd_make(&c, (int)t_between(1, 4), i % 8 == 7 ? 33 : (int)t_between(2, 10));
        t_note(", %d groups of %d, pages of %d and %d", c.groups, c.n, c.e[0].size, c.e[1].size);
        t_upload();
        for (int k = 0; k < cycles && t.bad == 0; ++k) {
            crowd_cycle(&c);
            if (k % 5 == 4) t_check_device();
        }
        t_check_host();
        t_check_device();
        crowd_free(&c);
    }
}

/* D4. One prompt, then as many particles as wanted: the parent's pages have N owners once it has
   left; the first step copies the last page, if it is not full, for all of them but one. */
static void test_fan_out(void) {
    static const int sizes[] = {1, 3, 16, 64};
    for (int i = 0; i < (t.quick ? 6 : 16); ++i) {
        const int n = i < 2 ? 1 + i : (int)t_between(2, 20);
        engine e;
        int copies = 0;
        t_case("fan-out to %d", n);
        memset(&e, 0, sizeof e);
        e.num_rows = n + 1, e.size = sizes[i % 4], e.positions = MAX_LEN, e.planes = 2;
        e.num_pages = MAX_LEN + (n + 1) * (8 + 5 / e.size), e.num_sms = 3;
        engine_make(&e);
        for (int step = 0; step < 4 + i; ++step) { /* the prompt */
            if (e.rows[0].len + PENDING + DRAFTS > MAX_LEN) break;
            for (int row = 0; row <= n; ++row) {
                e.rows[row].finished = row > 0;
                e.finished.host[row] = row > 0;
                put_word(&e.reserve, row, PENDING + DRAFTS);
                put_word(&e.accepted, row, (int32_t)t_below(DRAFTS + 1));
            }
            t_upload();
            model_resize(&e);
            for (int side = 0; side <= T_DEVICE; ++side) engine_resize(&e, side);
            model_append(&e);
            send(&e.source, 0, (int64_t)e.source.bytes);
            for (int side = 0; side <= T_DEVICE; ++side) engine_append(&e, side);
            check_model(&e, n + 1);
        }
        for (int k = 0; k < n; ++k) {
            put_word(&e.src, k, 0), put_word(&e.dst, k, k + 1);
            e.status[k] = model_fork(&e, 0, k + 1);
        }
        send(&e.src, 0, 4 * n), send(&e.dst, 0, 4 * n);
        for (int side = 0; side <= T_DEVICE; ++side) engine_fork(&e, n, side);
        check_model(&e, n);
        for (int step = 0; step < 2; ++step) {
            for (int row = 0; row <= n; ++row) {
                e.rows[row].finished = row == 0;
                e.finished.host[row] = row == 0;
                put_word(&e.reserve, row, step * (PENDING + DRAFTS));
            }
            send(&e.finished, 0, n + 1), send(&e.reserve, 0, 4 * (n + 1));
            model_resize(&e);
            for (int side = 0; side <= T_DEVICE; ++side) engine_resize(&e, side);
            check_model(&e, n + 1);
            for (int x = 0; x < pages_for(&e, e.rows[1].len) && step == 0; ++x)
                CHECK_EQ(word_at(&e.page_refs, word_at(&e.table, e.table_stride_elems + x)), n, x);
        }
        for (int row = 0; row <= n; ++row) copies += word_at(&e.from, row) >= 0;
        CHECK_EQ(copies, e.rows[1].len % e.size ? n - 1 : 0, -1);
        t_check_device();
        engine_free(&e);
    }
}

/* ------------------------------------------------------------- several launches at once */

static void carry_finished(specv_reshuffle_desc *d, const weights *w, int side) {
    d->carry[d->num_carry].data = t_at(&w->finished, side);
    d->carry[d->num_carry++].elem_bytes = 1;
}

/* Slots of particles where those of a group lie together. */
static slots particle_slots(const slots *groups, int n) {
    slots s = *groups;
    s.rows = s.live = groups->rows * n, s.count = groups->count * n;
    if (!groups->list.host) return s;
    s.list = t_in(4 * (int64_t)s.rows, 0), s.places = t_in(4 * (int64_t)s.count, 0);
    if (groups->wide.host) s.wide = t_in(8 * (int64_t)s.rows, 0);
    for (int row = 0; row < s.rows; ++row) {
        const int64_t slot = get32(groups->list.host, row / n);
        const int none = slot < 0 || slot >= groups->count;
        put32(s.list.host, row, none ? -1 : slot * n + row % n);
    }
    slots_settle(&s);
    return s;
}

/* D1, D2 and D3 from one graph, launched again and again, are what they are one by one: tickets
   are zero afterwards, jobs that there were last time are gone. A copy of a particle that has
   finished has finished. */
static void run_graph(int bad) {
    enum { REPLAYS = 5, GROUPS = 8, N = 6 };
    shuffle s;
    weights w;
    plan p;
    char was[2 * (GROUPS + 1) * N];
    t_case("weights, plan, reshuffle: %d times%s", REPLAYS, bad == NO_SLOTS ? "" : ", in slots");
    memset(&s, 0, sizeof s);
    plan_make_in(&p, GROUPS, N, SPECV_RESAMPLE_SYSTEMATIC, 0.9, bad);
    do t_random(), weights_make(&w, GROUPS * N, 4, 0, NO_SLOTS);
    while (w.num_active.host && t_num_buffers < T_MAX_BUFFERS / 2);
    s.slots = w.slots = particle_slots(&p.slots, N);
    if (w.alpha.host) w.alpha = t_in(4 * (int64_t)w.slots.count, 0);
    for (int k = 0; k < w.slots.count && w.alpha.host; ++k) put_float(&w.alpha, k, 1);
    w.finished = t_out(w.slots.count, 0);
    s.groups = GROUPS, s.max_jobs = N - 1, s.batch = GROUPS * N;
    s.num_caches = 2, s.num_carry = 2, s.text_stride = 9;
    shuffle_cache(&s, 0, 3, 6, 90), shuffle_cache(&s, 1, 16, 3, 60);
    shuffle_make(&s, 0);
    if (w.num_eos > 1) w.num_eos = 1; /* or all have finished at once */
    for (int k = 0; k < w.slots.count; ++k) w.finished.host[k] = (char)t_chance(40);
    for (int k = 0; k < w.slots.count; ++k)
        put_double(&p.weight, k, 0), put_double(&p.log_weight, k, 0);
    w.log_weight = p.log_weight, w.interval = p.weight;
    s.jobs = p.jobs, s.num_jobs = p.num_jobs;
    t_upload();
    int any = 0, copied = 0;
    for (int i = 0; i < REPLAYS; ++i) {
        specv_particle_weights_desc a = weights_describe(&w, T_HOST_SIDE);
        CHECK_EQ(specv_ref_particle_weights(&a), SPECV_OK, -1);
        plan_reference(&p);
        check_plan(&p);
        for (int g = 0; g < GROUPS; ++g) any += word_at(&p.num_jobs, g);
        shuffle_want(&s);
        specv_reshuffle_desc d = shuffle_describe(&s, T_HOST_SIDE);
        carry_finished(&d, &w, T_HOST_SIDE);
        memcpy(was, w.finished.host, (size_t)w.slots.count);
        CHECK_EQ(specv_ref_reshuffle(&d), SPECV_OK, -1);
        for (int j = 0; j < GROUPS * (N - 1); ++j) {
            if (j % (N - 1) >= word_at(&p.num_jobs, j / (N - 1))) continue;
            if (s.status && (uint32_t)word_at(&s.status->buf, j) != t_old_status(s.keep_status, j))
                continue;
            const int64_t src = slot_of(&s.slots, word_at(&p.jobs, 2 * j));
            const int64_t dst = slot_of(&s.slots, word_at(&p.jobs, 2 * j + 1));
            CHECK_EQ(w.finished.host[dst], was[src], j);
            copied += was[src] != was[dst];
        }
        for (int k = 0; k < io_count; ++k)
            CHECK_BYTES(io_list[k].buf.host, io_list[k].want, io_list[k].buf.bytes);
    }
    CHECK_EQ(any > 0, 1, any), CHECK_EQ(copied > 0, 1, copied);
#if T_DEVICE
    cudaStream_t stream = t_begin_graph();
    specv_particle_weights_desc a = weights_describe(&w, T_DEVICE_SIDE);
    specv_resample_plan_desc b = plan_describe(&p, T_DEVICE_SIDE);
    specv_reshuffle_desc c = shuffle_describe(&s, T_DEVICE_SIDE);
    carry_finished(&c, &w, T_DEVICE_SIDE);
    CHECK_EQ(specv_particle_weights(&a, stream), SPECV_OK, -1);
    CHECK_EQ(specv_resample_plan(&b, stream), SPECV_OK, -1);
    CHECK_EQ(specv_reshuffle(&c, stream), SPECV_OK, -1);
    t_run_graph(stream, REPLAYS);
#endif
    t_check_device();
    shuffle_free(&s), plan_free(&p);
}

static void test_graph(void) {
    run_graph(NO_SLOTS);
    run_graph(0);
    run_graph(30); /* groups without a slot, or with another's: so their particles */
}

#if T_DEVICE
/* Into a new buffer, by a kernel that is still at it when the next one starts. */
static char *produced(const t_buf *from) {
    char *to;
    T_CUDA(cudaMalloc((void **)&to, from->bytes));
    T_CUDA(cudaMemset(to, 0xff, from->bytes));
    t_produce(to, from->device, (int64_t)from->bytes);
    return to;
}
#endif

/* Each kernel may be the programmatic dependent of the one that writes its inputs. */
static void test_dependents(void) {
#if T_DEVICE
    char *made;
    weights w;
    plan p;
    shuffle s;
    t_case("dependent D1");
    do weights_make(&w, 40, 5, 0, NO_SLOTS);
    while (w.live == 0);
    t_upload();
    specv_particle_weights_desc a = weights_describe(&w, T_HOST_SIDE);
    CHECK_EQ(specv_ref_particle_weights(&a), SPECV_OK, -1);
    a = weights_describe(&w, T_DEVICE_SIDE);
    a.target_logprob = (const float *)(const void *)(made = produced(&w.p));
    a.chained = SPECV_CHAINED_AFTER;
    CHECK_EQ(specv_particle_weights(&a, 0), SPECV_OK, -1);
    t_check_dependents();
    t_check_device();
    T_CUDA(cudaFree(made));
    t_case("dependent D2");
    plan_make(&p, 3, 40, SPECV_RESAMPLE_STRATIFIED, 1);
    plan_kinds(&p, KIND_NORMAL);
    t_upload();
    plan_reference(&p);
    specv_resample_plan_desc b = plan_describe(&p, T_DEVICE_SIDE);
    b.seed = (const uint64_t *)(const void *)(made = produced(&p.seed));
    b.chained = SPECV_CHAINED_AFTER;
    CHECK_EQ(specv_resample_plan(&b, 0), SPECV_OK, -1);
    t_check_dependents();
    t_check_device();
    T_CUDA(cudaFree(made));
    plan_free(&p);
    t_case("dependent D3");
    memset(&s, 0, sizeof s);
    s.groups = 2, s.max_jobs = 3, s.batch = 8, s.num_caches = 1, s.num_carry = 1;
    shuffle_cache(&s, 0, 4, 5, 60);
    shuffle_make(&s, 50);
    t_upload();
    specv_reshuffle_desc d = shuffle_describe(&s, T_HOST_SIDE);
    CHECK_EQ(specv_ref_reshuffle(&d), SPECV_OK, -1);
    d = shuffle_describe(&s, T_DEVICE_SIDE);
    d.jobs = (const int32_t *)(const void *)(made = produced(&s.jobs));
    d.chained = SPECV_CHAINED_AFTER;
    CHECK_EQ(specv_reshuffle(&d, 0), SPECV_OK, -1);
    t_check_dependents();
    t_check_device();
    T_CUDA(cudaFree(made));
    shuffle_free(&s);
#else
    t_skip("dependent launches need a device");
#endif
}

/* --------------------------------------------------------------------------------- validation */

static specv_reshuffle_desc valid_reshuffle(void) {
    specv_reshuffle_desc d = SPECV_ZERO;
    d.jobs = d.num_jobs = word(), d.scratch = word(), d.scratch_bytes = 16 * (1 + 2 + 12);
    d.num_groups = 2, d.max_jobs = 3, d.batch = 8, d.num_caches = 2, d.num_carry = 1;
    d.carry[0].data = word(), d.carry[0].elem_bytes = 8;
    for (int i = 0; i < SPECV_MAX_CACHES; ++i) {
        specv_particle_cache *c = &d.cache[i];
        c->pool.page_refs = c->pool.free_pages = c->pool.num_free = word();
        c->block_table = c->num_row_pages = c->cache_len = word();
        c->page_size = 16, c->num_pages = 100, c->max_row_pages = 10;
    }
    return d;
}

static const int64_t half = INT64_MAX / 2 + 1;

static void check_reshuffle_codes(void) {
    EXPECT_NULL(reshuffle);
    EXPECT(reshuffle, SPECV_OK, (void)0);
    EXPECT(reshuffle, SPECV_ERR_CANARY, d.canary0 = 1);
    EXPECT(reshuffle, SPECV_ERR_CANARY, d.canary1 = 1);
    EXPECT(reshuffle, SPECV_ERR_CANARY, d.reserved = 1);
    EXPECT(reshuffle, SPECV_ERR_CHAINED, d.chained = 4);
    EXPECT(reshuffle, SPECV_ERR_CHAINED, d.chained = -1);
    EXPECT(reshuffle, SPECV_ERR_CANARY, d.cache[1].reserved = 1);
    EXPECT(reshuffle, SPECV_ERR_BATCH, d.batch = -1);
    EXPECT(reshuffle, SPECV_ERR_SLOT, (d.slot = (int32_t *)misaligned(), d.num_slots = 8));
    EXPECT(reshuffle, SPECV_ERR_SLOT, d.slot = word());
    EXPECT(reshuffle, SPECV_OK, (d.slot = word(), d.num_slots = INT32_MAX));
    EXPECT(reshuffle, SPECV_ERR_SIZE,
           (d.slot = word(), d.num_slots = INT32_MAX, d.text_stride_elems = (int64_t)1 << 30));
    EXPECT(reshuffle, SPECV_ERR_SIZE,
           (d.slot = word(), d.num_slots = INT32_MAX, d.carry[0].elem_bytes = (int64_t)1 << 30));
    EXPECT(reshuffle, SPECV_ERR_SIZE,
           (d.slot = word(), d.num_slots = INT32_MAX,
            d.cache[1].table_stride_elems = (int64_t)1 << 30));
    EXPECT(reshuffle, SPECV_ERR_PARTICLES, d.num_groups = -1);
    EXPECT(reshuffle, SPECV_ERR_JOBS, d.max_jobs = -1);
    EXPECT(reshuffle, SPECV_OK,
           (d.num_groups = 1 << 14, d.max_jobs = 1 << 10, d.scratch_bytes = (int64_t)1 << 30));
    EXPECT(reshuffle, SPECV_ERR_JOBS, (d.num_groups = (1 << 14) + 1, d.max_jobs = 1 << 10));
    EXPECT(reshuffle, SPECV_ERR_JOBS, d.jobs = NULL);
    EXPECT(reshuffle, SPECV_ERR_JOBS, d.num_jobs = NULL);
    EXPECT(reshuffle, SPECV_OK, (d.jobs = d.num_jobs = NULL, d.max_jobs = 0));
    EXPECT(reshuffle, SPECV_ERR_JOBS, d.jobs = (int32_t *)misaligned());
    EXPECT(reshuffle, SPECV_ERR_JOBS, d.num_jobs = (int32_t *)misaligned());
    EXPECT(reshuffle, SPECV_ERR_ROW_STATUS, d.job_status = (uint32_t *)misaligned());
    EXPECT(reshuffle, SPECV_ERR_KEEP_STATUS, d.keep_status = 2);
    EXPECT(reshuffle, SPECV_ERR_NUM_SMS, d.num_sms = -1);
    EXPECT(reshuffle, SPECV_ERR_NUM_SMS, d.num_sms = 65536);
    EXPECT(reshuffle, SPECV_ERR_NUM_ACTIVE, d.num_active_groups = (int32_t *)misaligned());
    EXPECT(reshuffle, SPECV_ERR_TOKEN_DTYPE, d.token_dtype = 2);
    EXPECT(reshuffle, SPECV_ERR_TEXT,
           (d.text = misaligned(), d.text_len = word(), d.text_stride_elems = 5));
    EXPECT(reshuffle, SPECV_ERR_TEXT,
           (d.text = word() + 1, d.token_dtype = 1, d.text_len = word(), d.text_stride_elems = 5));
    EXPECT(reshuffle, SPECV_ERR_TEXT, (d.text = word(), d.text_stride_elems = 5));
    EXPECT(reshuffle, SPECV_ERR_TEXT, (d.text = word(), d.text_len = word()));
    EXPECT(reshuffle, SPECV_ERR_TEXT, d.text_len = (int32_t *)misaligned());
    EXPECT(reshuffle, SPECV_ERR_TEXT, d.text_stride_elems = -1);
    EXPECT(reshuffle, SPECV_ERR_SIZE, d.text_stride_elems = half / 8);
    EXPECT(reshuffle, SPECV_ERR_SCRATCH, d.scratch = NULL);
    EXPECT(reshuffle, SPECV_ERR_SCRATCH, d.scratch = word() + 2);
    EXPECT(reshuffle, SPECV_ERR_SCRATCH, d.scratch_bytes -= 1);
    EXPECT(reshuffle, SPECV_OK, d.cache[1].num_pages = 128);
    EXPECT(reshuffle, SPECV_ERR_SCRATCH, d.cache[1].num_pages = 129);
    EXPECT(reshuffle, SPECV_ERR_SCRATCH, d.max_jobs = 4);
    EXPECT(reshuffle, SPECV_OK, (d.max_jobs = 4, d.num_caches = 1, d.scratch_bytes += 3 * 16));
    EXPECT(reshuffle, SPECV_OK, (d.scratch = NULL, d.num_groups = 0));
    CHECK_EQ(specv_reshuffle_scratch_bytes(6, 200), 16 * (1 + 1 + 2 + 12), -1);
    CHECK_EQ(specv_reshuffle_scratch_bytes(0, 0), 16 * (1 + 2), -1);
    CHECK_EQ(specv_reshuffle_scratch_bytes(-1, 0), SPECV_ERR_JOBS, -1);
    CHECK_EQ(specv_reshuffle_scratch_bytes((1 << 24) + 1, 0), SPECV_ERR_JOBS, -1);
    CHECK_EQ(specv_reshuffle_scratch_bytes(1 << 24, -1), SPECV_ERR_NUM_PAGES, -1);
    CHECK_EQ(specv_reshuffle_scratch_bytes(0, (int64_t)2 * INT32_MAX + 1), SPECV_ERR_NUM_PAGES, -1);
    EXPECT(reshuffle, SPECV_ERR_CACHES, d.num_caches = -1);
    EXPECT(reshuffle, SPECV_ERR_CACHES, d.num_caches = SPECV_MAX_CACHES + 1);
    for (int i = 0; i < SPECV_MAX_CACHES; ++i) {
        EXPECT(reshuffle, SPECV_ERR_PAGE_REFS, d.cache[i].pool.page_refs = NULL);
        EXPECT(reshuffle, SPECV_ERR_PAGE_REFS, d.cache[i].pool.page_refs = (int32_t *)misaligned());
        EXPECT(reshuffle, SPECV_ERR_FREE_PAGES, d.cache[i].pool.free_pages = NULL);
        EXPECT(reshuffle, SPECV_ERR_FREE_PAGES,
               d.cache[i].pool.free_pages = (int32_t *)misaligned());
        EXPECT(reshuffle, SPECV_ERR_FREE_PAGES, d.cache[i].pool.num_free = NULL);
        EXPECT(reshuffle, SPECV_ERR_FREE_PAGES, d.cache[i].pool.num_free = (int32_t *)misaligned());
        EXPECT(reshuffle, SPECV_ERR_BLOCK_TABLE, d.cache[i].block_table = NULL);
        EXPECT(reshuffle, SPECV_ERR_BLOCK_TABLE, d.cache[i].block_table = (int32_t *)misaligned());
        EXPECT(reshuffle, SPECV_ERR_NUM_ROW_PAGES, d.cache[i].num_row_pages = NULL);
        EXPECT(reshuffle, SPECV_ERR_NUM_ROW_PAGES,
               d.cache[i].num_row_pages = (int32_t *)misaligned());
        EXPECT(reshuffle, SPECV_ERR_NUM_ROW_PAGES, d.cache[i].max_row_pages = 0);
        EXPECT(reshuffle, SPECV_ERR_CACHE_LEN, d.cache[i].cache_len = NULL);
        EXPECT(reshuffle, SPECV_ERR_CACHE_LEN, d.cache[i].cache_len = (int32_t *)misaligned());
        EXPECT(reshuffle, SPECV_ERR_PAGE_SIZE, d.cache[i].page_size = 0);
        EXPECT(reshuffle, SPECV_ERR_NUM_PAGES, d.cache[i].num_pages = 0);
        EXPECT(reshuffle, SPECV_ERR_TABLE_STRIDE, d.cache[i].table_stride_elems = 9);
        EXPECT(reshuffle, SPECV_ERR_TABLE_STRIDE, d.cache[i].table_stride_elems = -1);
        EXPECT(reshuffle, SPECV_OK, d.cache[i].table_stride_elems = 10);
        EXPECT(reshuffle, SPECV_ERR_SIZE, d.cache[i].table_stride_elems = half / 8);
        EXPECT(reshuffle, SPECV_ERR_SIZE,
               (d.slot = word(), d.num_slots = INT32_MAX, d.batch = 1,
                d.cache[i].max_row_pages = 1 << 30));
        EXPECT(reshuffle, SPECV_ERR_TOO_LARGE, d.cache[i].max_row_pages = (1 << 27) + 1);
    }
    EXPECT(reshuffle, SPECV_OK, (d.num_caches = 0, d.cache[0].pool.page_refs = NULL));
    EXPECT(reshuffle, SPECV_ERR_CARRY, d.num_carry = -1);
    EXPECT(reshuffle, SPECV_ERR_CARRY, d.num_carry = SPECV_MAX_CARRY + 1);
    EXPECT(reshuffle, SPECV_ERR_CARRY, d.carry[0].data = NULL);
    EXPECT(reshuffle, SPECV_OK, (d.carry[0].data = misaligned(), d.carry[0].elem_bytes = 1));
    EXPECT(reshuffle, SPECV_ERR_CARRY, d.carry[0].elem_bytes = 0);
    EXPECT(reshuffle, SPECV_ERR_CARRY, d.carry[0].elem_bytes = -1);
    EXPECT(reshuffle, SPECV_ERR_SIZE, d.carry[0].elem_bytes = half / 8);
}

static void test_validation(void) {
    t_case("every status code of D3");
    check_reshuffle_codes();
}

/* Without groups nothing is needed, nothing happens. */
static void test_nothing(void) {
    specv_reshuffle_desc s = SPECV_ZERO;
    t_case("nothing");
    CHECK_EQ(specv_ref_reshuffle(&s), SPECV_OK, -1);
    CHECK_EQ(specv_reshuffle(&s, 0), SPECV_OK, -1);
    t_check_device();
}

/* Groups, but no rows: the same. */
static void test_no_rows(void) {
    specv_reshuffle_desc s = SPECV_ZERO;
    t_case("no rows");
    s.jobs = s.num_jobs = word(), s.scratch = word(), s.scratch_bytes = 64;
    s.num_groups = 1, s.max_jobs = 1, s.num_caches = 1;
    s.cache[0].page_size = s.cache[0].num_pages = s.cache[0].max_row_pages = 1;
    CHECK_EQ(specv_ref_reshuffle(&s), SPECV_OK, -1);
    CHECK_EQ(specv_reshuffle(&s, 0), SPECV_OK, -1);
    t_check_device();
}

int main(int argc, char **argv) {
    static const t_group groups[] = {
        {"validation", test_validation},
        {"nothing", test_nothing},
        {"shuffles", test_shuffles},
        {"long", test_long},
        {"wide", test_wide},
        {"marks", test_marks},
        {"sms", test_sms},
        {"contradictions", test_contradictions},
        {"tickets", test_tickets},
        {"cycles", test_cycles},
        {"fan-out", test_fan_out},
        {"graph", test_graph},
        {"dependents", test_dependents},
        {"no-rows", test_no_rows},
    };
    return t_main(argc, argv, groups, T_COUNT(groups));
}
