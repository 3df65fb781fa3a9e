/* io.h - buffers that an operation changes in place. Each has a third copy, `want`, on the host: it
   begins as what is there, a test writes into it what has to change, and afterwards everything must
   be as it says: results, gaps of strides, and whatever nobody had to touch.

   Half of the buffers have guards on both sides, the others end where their last element ends: a
   guard shows a stray write everywhere, an end shows a stray read to ASan and ptxrun. */

#ifndef IO_H_INCLUDED
#define IO_H_INCLUDED

#include "t.h"

typedef struct io {
    t_buf buf;
    char *want;
    int index; /* in t_buffers */
} io;

enum { IO_MAX = 64 };
static io io_list[IO_MAX];
static int io_count;

/* Poisoned; lives until io_free. `offset` as in t_in. */
T_FN io *io_new(int64_t bytes, int64_t offset) {
    io *b = &io_list[io_count++];
    if (io_count > IO_MAX) t_die(__FILE__, __LINE__, "io_new", "too many");
    b->index = t_num_buffers;
    b->buf = t_chance(50) || bytes == 0 ? t_out(bytes, offset) : t_in(bytes, offset);
    b->want = (char *)malloc((size_t)bytes + 1);
    if (!b->want) t_die(__FILE__, __LINE__, "io_new", "no memory");
    memset(b->want, T_POISON, (size_t)bytes + 1);
    return b;
}
#define io_new(bytes, offset) (T_SITE(io_new, t_unit_of(#bytes)), io_new(bytes, offset))

T_FN void io_free(void) {
    while (io_count > 0) free(io_list[--io_count].want);
}

/* What there is now has to stay, until a test says otherwise. */
T_FN void io_begin(void) {
    for (int i = 0; i < io_count; ++i)
        memcpy(io_list[i].want, io_list[i].buf.host, io_list[i].buf.bytes);
}

/* What there is now is an input of what comes next. */
T_FN void io_accept(void) {
    for (int i = 0; i < io_count; ++i) {
        t_buf *b = &t_buffers[io_list[i].index];
        if (!b->is_output) b->hash = t_hash(b->host_base, b->total);
    }
}

/* After the reference ran: everything is as wanted, guards are whole, inputs unchanged. */
T_FN void io_check_at(const char *file, int line) {
    for (int i = 0; i < io_count; ++i) {
        const io *b = &io_list[i];
        t_check_bytes(b->buf.host, b->want, b->buf.bytes, &b->buf, "reference, not as wanted:", "",
                      file, line);
    }
    io_accept();
    t_check_host_at(file, line);
}
#define io_check() io_check_at(__FILE__, __LINE__)

/* Where a descriptor points; null for a buffer that there is not. */
T_FN void *io_at(const io *b, int side) { return b ? t_at(&b->buf, side) : NULL; }

/* Numbers of either width in a host copy, `host` or `want`. */
T_FN void put_number(char *data, int dtype, int64_t index, int64_t value) {
    const int32_t narrow = (int32_t)value;
    if (dtype == SPECV_I64)
        memcpy(data + 8 * index, &value, 8);
    else
        memcpy(data + 4 * index, &narrow, 4);
}

T_FN int64_t get_number(const char *data, int dtype, int64_t index) {
    int64_t wide;
    int32_t narrow;
    if (dtype == SPECV_I64) return memcpy(&wide, data + 8 * index, 8), wide;
    memcpy(&narrow, data + 4 * index, 4);
    return narrow;
}

T_FN void put32(char *data, int64_t index, int64_t value) {
    put_number(data, SPECV_I32, index, value);
}
T_FN int64_t get32(const char *data, int64_t index) { return get_number(data, SPECV_I32, index); }

/* A status array (or null) of a launch whose row i gets these bits. */
T_FN void want_status(const io *status, int keep, int64_t i, uint32_t bits) {
    if (status) put32(status->want, i, t_old_status(keep, i) | bits);
}

/* num_active among the numbers that matter for `batch` rows; *live: rows that are. Null half of the
   time: all. */
T_FN t_buf draw_num_active(int batch, int *live) {
    const int64_t choices[] = {0,         -1,    INT32_MIN, 1,        batch / 2,
                               batch - 1, batch, batch + 1, INT32_MAX};
    int64_t active = T_PICK(choices);
    t_buf b;
    memset(&b, 0, sizeof b);
    *live = batch;
    if (t_chance(50)) return b;
    if (t_chance(50)) active = t_between(0, batch);
    b = t_in(4, 0);
    put32(b.host, 0, active);
    *live = (int)(active < 0 ? 0 : active > batch ? batch : active);
    return b;
}

/* ---------------------------------------------------------------------------------- validation */

static int64_t io_storage[8]; /* something to point to: nothing of it is read or written */

T_FN int32_t *word(void) {
    return (int32_t *)(void *)(((uintptr_t)io_storage + 15) & ~(uintptr_t)15);
}

T_FN void *misaligned(void) { return (char *)word() + 2; }

/* What must be said of a descriptor that was valid before the change. */
#define EXPECT(op, code, change)                                                                   \
    do {                                                                                           \
        specv_##op##_desc d = valid_##op();                                                        \
        change;                                                                                    \
        CHECK_EQ(specv_##op##_validate(&d), code, -1);                                             \
        if ((code) != SPECV_OK) CHECK_EQ(specv_ref_##op(&d), code, -1);                            \
        if ((code) != SPECV_OK) CHECK_EQ(specv_##op(&d, 0), code, -1);                             \
    } while (0)

#define EXPECT_NULL(op)                                                                            \
    do {                                                                                           \
        CHECK_EQ(specv_##op##_validate(NULL), SPECV_ERR_NULL_DESC, -1);                            \
        CHECK_EQ(specv_ref_##op(NULL), SPECV_ERR_NULL_DESC, -1);                                   \
        CHECK_EQ(specv_##op(NULL, 0), SPECV_ERR_NULL_DESC, -1);                                    \
    } while (0)

#endif /* IO_H_INCLUDED */
