/* seats.h - where the state of a batch's rows is. With slots it lies in no order among places that
   belong to no row, and some live rows have a slot that is none, or an earlier row's.

   A row that is inert or has a bad slot has a place, too, that its slot does not name: what is
   there must not change. */

#ifndef SEATS_H_INCLUDED
#define SEATS_H_INCLUDED

#include "t.h"

typedef struct seats {
    int batch, num_slots;
    int32_t *at; /* [batch]: the place of the row's state; all are different */
    char *bad;   /* [batch]: live, and must get BAD_SLOT */
    t_buf slot;  /* what the operation is given, or nothing */
} seats;

/* given 0: row b is slot b. bad_percent: of live rows. */
T_FN void seats_make(seats *s, int num_rows, int live, int given, int bad_percent) {
    memset(s, 0, sizeof *s);
    s->batch = num_rows;
    s->num_slots = num_rows + (given ? 1 + (int)t_below(t_chance(30) ? num_rows + 1 : 4) : 0);
    s->at = (int32_t *)calloc((size_t)s->num_slots + 1, 4);
    s->bad = (char *)calloc((size_t)num_rows + 1, 1);
    if (!s->at || !s->bad) t_die(__FILE__, __LINE__, "seats", "no memory");
    for (int i = 0; i < s->num_slots; ++i) s->at[i] = i;
    if (!given) return;
    t_note(" %d slots,", s->num_slots);
    for (int i = s->num_slots - 1; i > 0; --i) {
        const int j = (int)t_below(i + 1);
        const int32_t other = s->at[j];
        s->at[j] = s->at[i], s->at[i] = other;
    }
    s->slot = t_in(4 * (int64_t)num_rows, 0);
    for (int row = 0; row < num_rows; ++row) {
        const int32_t none[] = {-1, INT32_MIN, s->num_slots, INT32_MAX};
        int32_t slot = s->at[row];
        s->bad[row] = row < live && t_chance(bad_percent);
        if (row >= live || s->bad[row]) slot = T_PICK(none);
        if (row > 0 && (row >= live || s->bad[row]) && t_chance(50)) {
            const int64_t before = t_below(row < live ? row : live > 0 ? live : 1);
            memcpy(&slot, s->slot.host + 4 * before, 4);
        }
        memcpy(s->slot.host + 4 * (int64_t)row, &slot, 4);
    }
}

T_FN void seats_free(seats *s) {
    free(s->at);
    free(s->bad);
    s->at = NULL, s->bad = NULL;
}

T_FN const int32_t *seats_slot(const seats *s, int side) {
    return (const int32_t *)t_at(&s->slot, side);
}

/* num_slots of a descriptor: what it is without slots does not matter. */
T_FN int32_t seats_num_slots(const seats *s) {
    return s->slot.host ? s->num_slots : s->num_slots % 3 - 1;
}

/* Places of no row hold what t_out left there, in a buffer of a word a place. */
T_FN void seats_check_rest(const seats *s, const t_buf *b) {
    for (int i = s->batch; i < s->num_slots; ++i)
        for (int byte = 0; byte < 4; ++byte)
            CHECK_EQ((uint8_t)b->host[4 * s->at[i] + byte], T_POISON, s->at[i]);
}

#endif /* SEATS_H_INCLUDED */
