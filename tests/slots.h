/* slots.h - batches as lists of slots: more slots than rows, in no order, and what such a list may
   hold by mistake: slots that are none, slots that a row before has, anything behind live rows.

   A row that is inert or has a bad slot has a place, too, that its slot does not name: what is
   there, and in places of no row, must not change. */

#ifndef SLOTS_H_INCLUDED
#define SLOTS_H_INCLUDED

#include "t.h"

typedef struct slots {
    t_buf list;   /* slots, as int32; of no bytes: row b is slot b */
    t_buf wide;   /* of no bytes, or the same as int64: what the operation is given then */
    t_buf places; /* [count]: slots in the order of their rows, then those of no row */
    int rows, live;
    int count;   /* entries of arrays "[slot]" */
    int written; /* the operation writes there: a slot has one row, the first */
} slots;

enum { NO_SLOTS = -1 };

/* Where the state of a row is; from `rows` on, where that of no row is. */
T_FN int slot_place(const slots *s, int64_t i) {
    return (int)(s->list.host ? word_at(&s->places, i) : i);
}

/* Where a live row's request is; -1: BAD_SLOT. Also for what is no live row. */
T_FN int64_t slot_of(const slots *s, int64_t row) {
    if (!s->list.host) return row;
    return row < s->live && word_at(&s->list, row) == slot_place(s, row) ? slot_place(s, row) : -1;
}

/* A live row that must get BAD_SLOT. */
T_FN int slot_is_bad(const slots *s, int64_t row) { return row < s->live && slot_of(s, row) < 0; }

/* Gives a row a slot that is none, or that of a row before. slots_end tells what comes of it. */
T_FN void slots_spoil(const slots *s, int row) {
    const int32_t none[] = {-1, s->count, INT32_MIN, INT32_MAX, -s->count};
    put_word(&s->list, row,
             row > 0 && t_chance(50) ? word_at(&s->list, t_below(row)) : T_PICK(none));
}

/* Whose the slots are, as the list says it. */
T_FN void slots_settle(const slots *s) {
    char *taken = (char *)calloc((size_t)s->count + 1, 1);
    int next = 0;
    if (!taken) t_die(__FILE__, __LINE__, "slots", "no memory");
    for (int row = 0; row < s->rows; ++row) {
        const int32_t slot = word_at(&s->list, row);
        const int ok = row < s->live && slot >= 0 && slot < s->count;
        put_word(&s->places, row, ok && !(s->written && taken[slot]) ? slot : -1);
        if (ok) taken[slot] = 1;
    }
    for (int i = 0; i < s->count; ++i) {
        if (i < s->rows && word_at(&s->places, i) >= 0) continue;
        while (taken[next]) ++next;
        put_word(&s->places, i, next++);
    }
    free(taken);
    for (int row = 0; row < s->rows && s->wide.host; ++row) {
        const int32_t slot = word_at(&s->list, row);
        const int other = slot_of(s, row) < 0 && t_chance(50); /* bad by its high word as well */
        ((int64_t *)(void *)s->wide.host)[row] = slot ^ (other ? (int64_t)1 << 40 : 0);
    }
}

/* Rows from `live` on are inert: nobody looks at their slots. */
T_FN void slots_end(slots *s, int live) {
    s->live = live;
    if (!s->list.host) return;
    for (int row = live; row < s->rows; ++row)
        if (t_chance(50))
            put_word(&s->list, row, (int32_t)t_random());
        else
            slots_spoil(s, row);
    slots_settle(s);
}

/* bad: per cent of live rows; or NO_SLOTS. */
T_FN slots slots_draw(int rows, int live, int bad, int written) {
    slots s;
    memset(&s, 0, sizeof s);
    s.rows = s.count = rows, s.live = live, s.written = written;
    if (bad == NO_SLOTS || rows == 0) return s;
    s.count += 1 + (int)t_below(t_chance(30) ? rows + 1 : 4);
    t_note(" %d slots,", s.count);
    s.list = t_in(4 * (int64_t)rows, 0), s.places = t_in(4 * (int64_t)s.count, 0);
    if (t_chance(40)) s.wide = t_in(8 * (int64_t)rows, 0);
    for (int i = 0; i < s.count; ++i) { /* a random order */
        const int64_t j = t_below(i + 1);
        put_word(&s.places, i, word_at(&s.places, j));
        put_word(&s.places, j, i);
    }
    for (int row = 0; row < rows; ++row) {
        put_word(&s.list, row, word_at(&s.places, row));
        if (row < live && t_chance(bad)) slots_spoil(&s, row);
    }
    slots_end(&s, live);
    return s;
}

/* How often slots are given, and with what faults. */
T_FN int draw_bad_slots(void) { return t_chance(40) ? NO_SLOTS : t_chance(50) ? 0 : 10; }

T_FN const void *slots_at(const slots *s, int side) {
    return t_at(s->wide.host ? &s->wide : &s->list, side);
}
T_FN int32_t slots_dtype(const slots *s) { return s->wide.host ? SPECV_I64 : SPECV_I32; }

/* num_slots of a descriptor: what it is without slots does not matter. */
T_FN int32_t slots_count(const slots *s) { return s->list.host ? s->count : s->count % 3 - 1; }

/* State of so many bytes a slot is what it was, wherever it is no live row's. */
T_FN void slots_check_rest(const slots *s, const char *now, const char *before, size_t bytes) {
    for (int i = 0; i < s->count; ++i) {
        const size_t at = bytes * (size_t)slot_place(s, i);
        if (i < s->live && slot_of(s, i) >= 0) continue;
        CHECK_EQ(memcmp(now + at, before + at, bytes), 0, slot_place(s, i));
    }
}

#endif /* SLOTS_H_INCLUDED */
