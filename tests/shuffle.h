/* shuffle.h - a case of D3: caches, text and numbers of particles, jobs good and bad, and what must
   be afterwards.

   The model knows which pages a row really has. It moves lists of pages, then counts owners anew:
   nothing of it adds to a count of references. */

#ifndef SHUFFLE_H_INCLUDED
#define SHUFFLE_H_INCLUDED

#include "io.h"
#include "slots.h"

#include "engine.h"

typedef struct pages_of {
    int size, num_pages, max_row_pages;
    int64_t stride;
    int32_t *real; /* [slot] entries that the row has, whatever num_row_pages says */
    io *page_refs, *stack, *stack_size, *table, *num_row_pages, *cache_len;
} pages_of;

typedef struct shuffle {
    int groups, max_jobs, batch, num_caches, num_carry, dtype, faults; /* per cent */
    int sparse; /* rows have slots; some are bad if there are faults. Given, they stay */
    slots slots;
    int64_t text_stride, carry_bytes[SPECV_MAX_CARRY];
    pages_of c[SPECV_MAX_CACHES];
    int keep_status, num_sms, live; /* live: groups */
    t_buf active;
    io *carry[SPECV_MAX_CARRY], *text, *text_len, *status;
    t_buf scratch;
    t_buf jobs, num_jobs;
} shuffle;

static const int32_t wild_numbers[] = {-1, INT32_MIN, INT32_MAX, INT32_MAX - 1, -100};

T_FN int32_t shuffle_pages_for(const pages_of *c, int64_t positions) {
    return (int32_t)((positions + c->size - 1) / c->size);
}

/* Rows with pages that some share: the same page at the same place, or at another one. */
T_FN void draw_tables(const shuffle *s, pages_of *c) {
    int32_t *fresh = (int32_t *)zeros(c->num_pages, 4), num_fresh = c->num_pages;
    char *table;
    c->page_refs = io_new(4 * c->num_pages, 0), c->stack = io_new(4 * c->num_pages, 0);
    c->stack_size = io_new(4, 0), c->table = io_new(4 * s->slots.count * c->stride, 0);
    c->num_row_pages = io_new(4 * s->slots.count, 0), c->cache_len = io_new(4 * s->slots.count, 0);
    c->real = (int32_t *)zeros(s->slots.count + 1, 4);
    table = c->table->buf.host;
    for (int page = 0; page < c->num_pages; ++page) {
        const int64_t other = t_below(page + 1);
        fresh[page] = fresh[other], fresh[other] = page;
        put32(c->page_refs->buf.host, page, 0);
    }
    for (int row = 0; row < s->slots.count; ++row) {
        const int held = t_chance(10) ? 0 : (int)t_between(0, c->max_row_pages);
        const int shared = t_chance(60) ? (int)t_below(held + 1) : 0, by = t_chance(20);
        int e = 0;
        for (; e < held; ++e) {
            int32_t page = -1;
            if (row && e < shared && e + by < c->real[row - 1])
                page = (int32_t)get32(table, (row - 1) * c->stride + e + by);
            else if (num_fresh > 0)
                page = fresh[--num_fresh];
            if (page < 0) break;
            put32(table, row * c->stride + e, page);
            put32(c->page_refs->buf.host, page, get32(c->page_refs->buf.host, page) + 1);
        }
        c->real[row] = e;
        put32(c->num_row_pages->buf.host, row, e);
        /* a row may own pages behind its content, and a part of the last page */
        put32(c->cache_len->buf.host, row,
              t_chance(50) ? t_below((int64_t)e * c->size + 1) : (int64_t)e * c->size);
        for (; e < c->max_row_pages; ++e) put32(table, row * c->stride + e, -1);
    }
    for (int i = 0; i < num_fresh; ++i) put32(c->stack->buf.host, i, fresh[i]);
    put32(c->stack_size->buf.host, 0, num_fresh);
    free(fresh);
}

/* Numbers that nothing can be made of. */
T_FN void spoil(const shuffle *s, int row) {
    const pages_of *c = &s->c[t_below(s->num_caches > 0 ? s->num_caches : 1)];
    const int32_t wild = T_PICK(wild_numbers);
    const int what = s->num_caches > 0 ? (int)t_below(s->text ? 5 : 4) : 4;
    if (what == 0) put32(c->cache_len->buf.host, row, wild);
    if (what == 1) put32(c->cache_len->buf.host, row, (int64_t)c->real[row] * c->size + 1);
    if (what == 2) put32(c->num_row_pages->buf.host, row, wild);
    if (what == 3) put32(c->num_row_pages->buf.host, row, c->max_row_pages + 1);
    if (what == 4 && s->text)
        put32(s->text_len->buf.host, row, t_chance(50) ? s->text_stride + 1 : wild);
}

/* Each row is a dst at most once, and no dst is a src; some jobs name no rows. */
T_FN void draw_jobs(const shuffle *s, int dead_percent) {
    char *dead = (char *)zeros(s->batch + 1, 1), *jobs = s->jobs.host;
    int next = 0;
    for (int row = 0; row < s->batch; ++row) dead[row] = (char)t_chance(dead_percent);
    for (int g = 0; g < s->groups; ++g) {
        const int wanted = (int)t_between(0, s->max_jobs);
        int count = 0;
        for (; count < wanted; ++count) {
            const int64_t at = 2 * ((int64_t)g * s->max_jobs + count);
            int64_t dst = -1, src = t_below(s->batch);
            if (t_chance(s->faults)) {
                const int what = (int)t_below(3);
                dst = what == 1 ? src : t_chance(50) ? s->batch : T_PICK(wild_numbers);
                if (what == 2)
                    dst = t_below(s->batch), src = t_chance(50) ? s->batch : T_PICK(wild_numbers);
            } else {
                while (next < s->batch && !dead[next]) ++next;
                for (int i = 0; i < s->batch && dead[src]; ++i) src = (src + 1) % s->batch;
                if (next == s->batch || dead[src]) break;
                dst = next++;
            }
            put32(jobs, at, src), put32(jobs, at + 1, dst);
        }
        put32(s->num_jobs.host, g, count);
        if (count == 0 && t_chance(s->faults)) put32(s->num_jobs.host, g, -5);
        if (count == s->max_jobs && t_chance(s->faults)) put32(s->num_jobs.host, g, INT32_MAX);
        for (int64_t j = 2 * count; j < 2 * s->max_jobs; ++j)
            put32(jobs, 2 * (int64_t)g * s->max_jobs + j, t_chance(50) ? -1 : t_below(s->batch));
    }
    free(dead);
}

/* Zeroed, of the size that suffices. */
T_FN t_buf shuffle_scratch(const shuffle *s) {
    int64_t num_pages = 0;
    t_buf scratch;
    for (int i = 0; i < s->num_caches; ++i) num_pages += s->c[i].num_pages;
    scratch = t_in(specv_reshuffle_scratch_bytes((int64_t)s->groups * s->max_jobs, num_pages), 0);
    memset(scratch.host, 0, scratch.bytes);
    t_buffers[t_num_buffers - 1].is_private = 1;
    return scratch;
}

/* Tickets and marks are zero again. Behind the last mark of a cache there are none: fewer words. */
T_FN void shuffle_check_scratch(const shuffle *s) {
#if T_DEVICE
    int64_t bytes = 16;
    for (int i = 0; i < s->num_caches; ++i) bytes += (s->c[i].num_pages + 127) / 128 * 16;
    for (int64_t at = 0; at < bytes; at += 4) {
        int32_t word;
        T_CUDA(cudaMemcpy(&word, s->scratch.device + at, 4, cudaMemcpyDeviceToHost));
        if (!CHECK_EQ(word, 0, at)) return;
    }
#else
    (void)s;
#endif
}

/* Sizes are set by the caller. */
T_FN void shuffle_make(shuffle *s, int dead_percent) {
    if (!s->slots.count)
        s->slots = slots_draw(s->batch, s->batch, !s->sparse ? NO_SLOTS : s->faults ? 4 : 0, 1);
    for (int i = 0; i < s->num_caches; ++i) {
        s->c[i].stride = s->c[i].max_row_pages + t_below(3) * t_below(5);
        draw_tables(s, &s->c[i]);
    }
    if (s->text_stride > 0) {
        const int64_t bytes = (s->dtype == SPECV_I64 ? 8 : 4) * s->slots.count * s->text_stride;
        s->text = io_new(bytes, 0), s->text_len = io_new(4 * s->slots.count, 0);
        for (int64_t i = 0; i < bytes / 4; ++i) put32(s->text->buf.host, i, (int64_t)t_random());
        for (int row = 0; row < s->slots.count; ++row)
            put32(s->text_len->buf.host, row,
                  t_chance(20) ? s->text_stride : t_below(s->text_stride + 1));
    }
    for (int i = 0; i < s->num_carry; ++i) {
        s->carry_bytes[i] = t_chance(50) ? t_between(1, 40) : 4 * t_between(1, 5);
        s->carry[i] = io_new(s->carry_bytes[i] * s->slots.count, t_chance(50) ? 0 : t_below(16));
        for (int64_t k = 0; k < s->carry_bytes[i] * s->slots.count; ++k)
            s->carry[i]->buf.host[k] = (char)t_random();
    }
    s->status = t_chance(80) ? io_new(4 * s->groups * s->max_jobs, 0) : NULL;
    s->keep_status = s->status && t_chance(30);
    if (s->status) t_fill_status(&s->status->buf, s->keep_status);
    s->scratch = shuffle_scratch(s);
    s->jobs = t_in(8 * (int64_t)s->groups * s->max_jobs, 0);
    s->num_jobs = t_in(4 * s->groups, 0);
    draw_jobs(s, dead_percent);
    for (int row = 0; row < s->slots.count; ++row)
        if (t_chance(s->faults)) spoil(s, row);
    memset(&s->active, 0, sizeof s->active);
    s->live = s->groups;
}

/* Groups behind *num_active_groups: how many jobs they have is anything. */
T_FN void shuffle_inert(shuffle *s) {
    s->active = draw_num_active(s->groups, &s->live);
    for (int g = s->live; g < s->groups; ++g)
        put32(s->num_jobs.host, g, t_chance(50) ? s->max_jobs : INT32_MAX);
}

T_FN void shuffle_free(shuffle *s) {
    for (int i = 0; i < s->num_caches; ++i) free(s->c[i].real);
    io_free();
}

T_FN specv_reshuffle_desc shuffle_describe(const shuffle *s, int side) {
    specv_reshuffle_desc d = SPECV_ZERO;
    d.token_dtype = s->dtype;
    d.jobs = (const int32_t *)t_at(&s->jobs, side);
    d.num_jobs = (const int32_t *)t_at(&s->num_jobs, side);
    d.slot = slots_at(&s->slots, side), d.slot_dtype = slots_dtype(&s->slots);
    d.num_slots = slots_count(&s->slots);
    for (int i = 0; i < s->num_caches; ++i) {
        const pages_of *c = &s->c[i];
        specv_particle_cache *k = &d.cache[i];
        k->pool.page_refs = (int32_t *)io_at(c->page_refs, side);
        k->pool.free_pages = (int32_t *)io_at(c->stack, side);
        k->pool.num_free = (int32_t *)io_at(c->stack_size, side);
        k->block_table = (int32_t *)io_at(c->table, side);
        k->num_row_pages = (int32_t *)io_at(c->num_row_pages, side);
        k->cache_len = (int32_t *)io_at(c->cache_len, side);
        k->table_stride_elems = c->stride == c->max_row_pages ? 0 : c->stride;
        k->page_size = c->size, k->num_pages = c->num_pages, k->max_row_pages = c->max_row_pages;
    }
    for (int i = 0; i < s->num_carry; ++i)
        d.carry[i].data = io_at(s->carry[i], side), d.carry[i].elem_bytes = s->carry_bytes[i];
    d.text = io_at(s->text, side), d.text_len = (int32_t *)io_at(s->text_len, side);
    d.job_status = (uint32_t *)io_at(s->status, side);
    d.scratch = t_at(&s->scratch, side), d.scratch_bytes = (int64_t)s->scratch.bytes;
    d.text_stride_elems = s->text_stride;
    d.num_groups = s->groups, d.max_jobs = s->max_jobs, d.batch = s->batch;
    d.num_caches = s->num_caches, d.num_carry = s->num_carry;
    d.keep_status = s->keep_status, d.num_sms = s->num_sms;
    d.num_active_groups = (const int32_t *)t_at(&s->active, side);
    return d;
}

/* ---- the model: from what there is into what is wanted */

/* Slots instead of rows, or why not. */
T_FN uint32_t job_slots(const shuffle *s, int64_t *src, int64_t *dst) {
    if (*dst < 0 || *src < 0 || *dst >= s->batch || *src >= s->batch || *dst == *src)
        return SPECV_ROW_BAD_LENGTH;
    *src = slot_of(&s->slots, *src), *dst = slot_of(&s->slots, *dst);
    return *src < 0 || *dst < 0 ? SPECV_ROW_BAD_SLOT : 0;
}

T_FN int job_is_good(const shuffle *s, int64_t src, int64_t dst) {
    for (int i = 0; i < s->num_caches; ++i) {
        const pages_of *c = &s->c[i];
        const int64_t len = get32(c->cache_len->buf.host, src);
        if (len < 0 || shuffle_pages_for(c, len) > c->real[src]) return 0;
        if (get32(c->num_row_pages->buf.host, src) != c->real[src]) return 0;
        if (get32(c->num_row_pages->buf.host, dst) != c->real[dst]) return 0;
    }
    return !s->text || (get32(s->text_len->buf.host, src) >= 0 &&
                        get32(s->text_len->buf.host, src) <= s->text_stride);
}

T_FN void want_row(const shuffle *s, int64_t src, int64_t dst) {
    const int64_t token = s->dtype == SPECV_I64 ? 8 : 4;
    for (int i = 0; i < s->num_caches; ++i) {
        const pages_of *c = &s->c[i];
        const int64_t len = get32(c->cache_len->buf.host, src);
        const int32_t pages = shuffle_pages_for(c, len);
        for (int e = 0; e < pages || e < c->real[dst]; ++e)
            put32(c->table->want, dst * c->stride + e,
                  e < pages ? get32(c->table->buf.host, src * c->stride + e) : -1);
        c->real[dst] = pages;
        put32(c->num_row_pages->want, dst, pages), put32(c->cache_len->want, dst, len);
    }
    for (int i = 0; i < s->num_carry; ++i)
        memcpy(s->carry[i]->want + dst * s->carry_bytes[i],
               s->carry[i]->buf.host + src * s->carry_bytes[i], (size_t)s->carry_bytes[i]);
    if (!s->text) return;
    memcpy(s->text->want + dst * s->text_stride * token,
           s->text->buf.host + src * s->text_stride * token,
           (size_t)(get32(s->text_len->buf.host, src) * token));
    put32(s->text_len->want, dst, get32(s->text_len->buf.host, src));
}

/* page_refs are numbers of entries; a page that has lost its last one goes on the stack. */
T_FN void want_pool(const shuffle *s, const pages_of *c) {
    int32_t *owners = (int32_t *)zeros(c->num_pages, 4);
    int64_t num_free = get32(c->stack_size->buf.host, 0);
    for (int row = 0; row < s->slots.count; ++row)
        for (int e = 0; e < c->real[row]; ++e)
            owners[get32(c->table->want, row * c->stride + e)] += 1;
    for (int page = 0; page < c->num_pages; ++page) {
        if (owners[page] == 0 && get32(c->page_refs->buf.host, page) > 0)
            put32(c->stack->want, num_free++, page);
        put32(c->page_refs->want, page, owners[page]);
    }
    put32(c->stack_size->want, 0, num_free);
    free(owners);
}

T_FN void shuffle_want(const shuffle *s) {
    io_begin();
    for (int g = 0; g < s->groups; ++g)
        for (int j = 0; j < s->max_jobs; ++j) {
            const int64_t at = (int64_t)g * s->max_jobs + j;
            const int exists = g < s->live && j < get32(s->num_jobs.host, g);
            int64_t src = get32(s->jobs.host, 2 * at), dst = get32(s->jobs.host, 2 * at + 1);
            uint32_t bad = exists ? job_slots(s, &src, &dst) : 0;
            if (exists && !bad && !job_is_good(s, src, dst)) bad = SPECV_ROW_BAD_LENGTH;
            if (exists && !bad) want_row(s, src, dst);
            want_status(s->status, s->keep_status, at, bad);
        }
    for (int i = 0; i < s->num_caches; ++i) want_pool(s, &s->c[i]);
}

#endif /* SHUFFLE_H_INCLUDED */
