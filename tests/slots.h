/* slots.h - batches as lists of slots: more slots than rows, in no order, and what such a list may
   hold by mistake. */

#ifndef SLOTS_H_INCLUDED
#define SLOTS_H_INCLUDED

#include "io.h"

typedef struct slots {
    t_buf list;      /* of no bytes: row b is slot b */
    int rows, count; /* count: entries of arrays "[slot]" */
    int written;     /* the operation writes there: a slot has one row */
} slots;

enum { NO_SLOTS = -1 };

T_FN int slots_common_factor(int a, int b) { return b ? slots_common_factor(b, a % b) : a; }

/* bad: per cent of slots that are none, or another row's; or NO_SLOTS. */
T_FN slots slots_draw(int rows, int bad, int written) {
    slots s;
    int step, first;
    memset(&s, 0, sizeof s);
    s.rows = s.count = rows, s.written = written;
    if (bad == NO_SLOTS || rows == 0) return s;
    s.count += (int)t_between(1, rows + 2);
    s.list = t_in(4 * (int64_t)rows, 0);
    do step = (int)t_between(1, s.count);
    while (slots_common_factor(s.count, step) != 1);
    first = (int)t_below(s.count);
    for (int b = 0; b < rows; ++b) put32(s.list.host, b, (first + (int64_t)b * step) % s.count);
    for (int b = 0; b < rows; ++b) {
        const int32_t wild[] = {-1, s.count, INT32_MIN, INT32_MAX, -s.count};
        if (!t_chance(bad)) continue;
        put32(s.list.host, b, t_chance(50) ? T_PICK(wild) : get32(s.list.host, t_below(rows)));
    }
    return s;
}

/* Rows from `live` on are inert: nobody looks at their slots. */
T_FN void slots_end(const slots *s, int live) {
    for (int b = live; b < s->rows && s->list.host; ++b)
        put32(s->list.host, b,
              t_chance(50) ? (int64_t)t_random() : get32(s->list.host, t_below(b + 1)));
}

/* Where a live row's request is; -1: BAD_SLOT. */
T_FN int64_t slot_of(const slots *s, int64_t row) {
    int64_t slot;
    if (!s->list.host) return row;
    slot = get32(s->list.host, row);
    for (int64_t b = 0; b < row && s->written; ++b)
        if (get32(s->list.host, b) == slot) return -1;
    return slot < 0 || slot >= s->count ? -1 : slot;
}

/* How often slots are given, and with what faults. */
T_FN int draw_bad_slots(void) { return t_chance(40) ? NO_SLOTS : t_chance(50) ? 0 : 10; }

#endif /* SLOTS_H_INCLUDED */
