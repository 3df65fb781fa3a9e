/* columns.h - what the tests of C1 and C2 share: the arrays of a specv_columns, the outputs of the
   pass before, texts without any padding to compare with, and caches in which every byte says to
   which token, place and head it belongs. */

#ifndef COLUMNS_H_INCLUDED
#define COLUMNS_H_INCLUDED

#include "io.h"
#include "slots.h"
#include "tickets.h"

/* How much room a step finds. */
typedef enum fit { FIT_PLENTY, FIT_EXACT, FIT_SHORT, FIT_KV_SHORT, FIT_BAD_WIDTH, NUM_FITS } fit;

/* The arrays of a specv_columns, and the outputs of the pass before. */
typedef struct board {
    int batch, live, max_draft, max_columns, token_dtype, index_dtype;
    int64_t stride, out_stride, pad_token;
    io *tokens, *mask, *positions, *width, *status, *ticket; /* some may be null */
    int keep_status;
    t_buf active, out_tokens, num_emitted;
    slots slots;
} board;

T_FN void board_make(board *d, const slots *at, int max_draft, int max_columns, int all) {
    const int batch = at->rows;
    const int64_t index_bytes = t_chance(50) ? 4 : 8, token_bytes = t_chance(50) ? 4 : 8;
    int64_t elements;
    memset(d, 0, sizeof *d);
    d->slots = *at;
    d->batch = batch, d->max_draft = max_draft, d->max_columns = max_columns;
    d->token_dtype = token_bytes == 8 ? SPECV_I64 : SPECV_I32;
    d->index_dtype = index_bytes == 8 ? SPECV_I64 : SPECV_I32;
    d->stride = max_columns + (t_chance(50) ? t_below(5) : 0);
    d->out_stride = max_draft + 1 + (t_chance(50) ? t_below(3) : 0);
    d->pad_token = t_chance(50) ? 0 : token_bytes == 8 ? (int64_t)5 << 33 : 50256;
    elements = batch ? (at->count - 1) * d->stride + max_columns : 0;
    if (all || t_chance(85)) d->tokens = io_new(elements * token_bytes, 0);
    if (all || t_chance(85)) d->mask = io_new(elements * index_bytes, 0);
    if (all || t_chance(85)) d->positions = io_new(elements * index_bytes, 0);
    if (all || t_chance(85)) d->status = io_new(4 * (int64_t)batch, 0);
    d->keep_status = !all && d->status && t_chance(30);
    if (d->status) t_fill_status(&d->status->buf, d->keep_status);
    d->width = io_new(4, 0);
    d->ticket = io_new(4, 0);
    put32(d->ticket->buf.host, 0, 0);
    if (d->tokens)
        d->out_tokens =
            t_in(batch ? ((batch - 1) * d->out_stride + max_draft + 1) * token_bytes : 0, 0);
    d->num_emitted = t_in(4 * (int64_t)batch, 0);
    t_note(" batch %d, max_draft %d, columns %d, %d-byte tokens", batch, max_draft, max_columns,
           (int)token_bytes);
}

T_FN specv_columns board_columns(const board *b, int side) {
    specv_columns c = SPECV_ZERO;
    c.tokens = io_at(b->tokens, side);
    c.mask = io_at(b->mask, side);
    c.position_ids = io_at(b->positions, side);
    c.width = (int32_t *)io_at(b->width, side);
    c.stride_elems = b->stride == b->max_columns && b->max_draft % 2 ? 0 : b->stride;
    c.pad_token = b->pad_token;
    c.index_dtype = b->index_dtype;
    c.max_columns = b->max_columns;
    return c;
}

#if T_DEVICE
/* After a launch with a bad ticket. A block, which is a row, says so; the width and the rows'
   lengths are as they were. */
T_FN void board_check_ticket(const board *b, const io *lengths) {
    const void *now = io_at(lengths, T_DEVICE_SIDE), *status = io_at(b->status, T_DEVICE_SIDE);
    CHECK_EQ(word_on_device(io_at(b->width, T_DEVICE_SIDE), 0), get32(b->width->buf.host, 0), -1);
    for (int row = 0; row < b->batch; ++row)
        CHECK_EQ(word_on_device(now, row), get32(lengths->buf.host, row), row);
    CHECK(ticket_is_told((const uint32_t *)status, b->batch));
}
#endif

/* pad_token is a token like any other. */
T_FN int64_t draw_token(const board *b) {
    if (t_chance(20)) return b->pad_token;
    return t_below(b->token_dtype == SPECV_I64 ? (int64_t)1 << 40 : INT32_MAX);
}

T_FN int64_t emitted_at(const board *b, int row, int64_t j) {
    return get_number(b->out_tokens.host, b->token_dtype, row * b->out_stride + j);
}

T_FN void want_column(const board *b, int row, int64_t column, int64_t token, int mask,
                      int64_t position) {
    const int64_t at = slot_place(&b->slots, row) * b->stride + column;
    if (b->tokens) put_number(b->tokens->want, b->token_dtype, at, token);
    if (b->mask) put_number(b->mask->want, b->index_dtype, at, mask);
    if (b->positions) put_number(b->positions->want, b->index_dtype, at, position);
}

T_FN void draw_emitted(const board *b) {
    for (int row = 0; row < b->batch && b->out_tokens.host; ++row)
        for (int j = 0; j <= b->max_draft; ++j)
            put_number(b->out_tokens.host, b->token_dtype, row * b->out_stride + j, draw_token(b));
}

/* A text without padding. */
enum { MAX_ROWS = 12, MAX_TEXT = 400, MAX_DRAFTS = 40 };

typedef struct text {
    int64_t token[MAX_TEXT];
    int len, finished;
    int draft_len; /* positions that the draft model's cache holds */
} text;

/* A prompt of x->len tokens in the last of `width` columns. */
T_FN void board_prompt(const board *b, int row, text *x, int64_t width) {
    for (int64_t column = 0; column < width; ++column) {
        const int64_t i = column - (width - x->len),
                      at = slot_place(&b->slots, row) * b->stride + column;
        if (i >= 0) x->token[i] = draw_token(b);
        put_number(b->tokens->buf.host, b->token_dtype, at, i < 0 ? b->pad_token : x->token[i]);
        put_number(b->mask->buf.host, b->index_dtype, at, i >= 0);
        put_number(b->positions->buf.host, b->index_dtype, at, i > 0 ? i : 0);
    }
}

/* ----------------------------------------------------------------------------------- the caches */

enum { MAX_PLANES = 5 };

typedef struct cache {
    specv_kv_cache kv; /* without pointers; a stride that is the default may be 0 */
    int64_t head_stride, pos_stride, seq_stride;
    int batch, heads, head_bytes, num_planes;
    int has_table;
    io *plane[MAX_PLANES]; /* null: the table has no such plane */
    void *host_table[MAX_PLANES], *device_table;
} cache;

T_FN int64_t place(const cache *c, int64_t row, int64_t column, int64_t head) {
    return row * c->seq_stride + column * c->pos_stride + head * c->head_stride;
}

/* [position][head] or [head][position] in each row, or [position][row][head]. */
T_FN void draw_strides(cache *c, int columns) {
    static const int64_t gaps[] = {0, 0, 0, 1, 3, 8, 16};
    const int64_t gap[3] = {T_PICK(gaps), T_PICK(gaps), T_PICK(gaps)};
    const int order = t_chance(60) ? 0 : t_chance(60) ? 1 : 2;
    if (order == 0) {
        c->head_stride = c->head_bytes + gap[0];
        c->pos_stride = c->heads * c->head_stride + gap[1];
        c->seq_stride = columns * c->pos_stride + gap[2];
    } else if (order == 1) {
        c->pos_stride = c->head_bytes + gap[0];
        c->head_stride = columns * c->pos_stride + gap[1];
        c->seq_stride = c->heads * c->head_stride + gap[2];
    } else {
        c->head_stride = c->head_bytes + gap[0];
        c->seq_stride = c->heads * c->head_stride + gap[1];
        c->pos_stride = (c->batch ? c->batch : 1) * c->seq_stride + gap[2];
    }
}

/* Planes full of poison. num_planes 0: one plane without a table. */
T_FN void cache_make(cache *c, int batch, int columns, int heads, int head_bytes, int num_planes) {
    int64_t bytes;
    memset(c, 0, sizeof *c);
    c->batch = batch, c->heads = heads, c->head_bytes = head_bytes;
    c->has_table = num_planes > 0;
    c->num_planes = num_planes ? num_planes : 1;
    draw_strides(c, columns);
    c->kv.num_planes = num_planes ? num_planes : (int)t_below(2);
    c->kv.num_heads = heads == 1 && t_chance(50) ? 0 : heads;
    c->kv.head_bytes = head_bytes;
    c->kv.max_positions = columns;
    c->kv.head_stride_bytes = c->head_stride, c->kv.pos_stride_bytes = c->pos_stride;
    c->kv.seq_stride_bytes = c->seq_stride;
    if (c->head_stride == head_bytes && t_chance(50)) c->kv.head_stride_bytes = 0;
    if (c->pos_stride == heads * c->head_stride && t_chance(50)) c->kv.pos_stride_bytes = 0;
    if (c->seq_stride == columns * c->pos_stride && t_chance(50)) c->kv.seq_stride_bytes = 0;
    bytes = batch ? place(c, batch - 1, columns - 1, heads - 1) + head_bytes : 0;
    for (int i = 0; i < c->num_planes; ++i)
        if (!c->has_table || num_planes == 1 || t_chance(80)) {
            c->plane[i] = io_new(bytes, t_chance(50) ? t_below(16) : 0);
            c->host_table[i] = c->plane[i]->buf.host;
        }
#if T_DEVICE
    void *table[MAX_PLANES];
    for (int i = 0; i < MAX_PLANES; ++i) table[i] = io_at(c->plane[i], T_DEVICE_SIDE);
    T_CUDA(cudaMalloc(&c->device_table, sizeof table));
    T_CUDA(cudaMemcpy(c->device_table, table, sizeof table, cudaMemcpyHostToDevice));
#endif
    t_note(" kv: %d x %d bytes, strides %lld %lld %lld, planes %d%s", heads, head_bytes,
           (long long)c->head_stride, (long long)c->pos_stride, (long long)c->seq_stride,
           c->num_planes, c->has_table ? " in a table" : "");
}

T_FN void cache_free(cache *c) {
#if T_DEVICE
    T_CUDA(cudaFree(c->device_table));
#endif
    c->device_table = NULL;
}

T_FN specv_kv_cache cache_describe(const cache *c, int side) {
    specv_kv_cache kv = c->kv;
    if (!c->has_table)
        kv.plane = io_at(c->plane[0], side);
    else
        kv.planes =
            side == T_HOST_SIDE ? (void *const *)c->host_table : (void *const *)c->device_table;
    return kv;
}

/* The bytes of one head, of whatever `who` is. */
T_FN void tag(char *to, int bytes, uint64_t who, int plane, int64_t head) {
    uint64_t seed = t_mix(who * 64 + (uint64_t)plane * 8 + 1) + (uint64_t)head;
    for (int i = 0; i < bytes; i += 8) {
        uint64_t word = t_mix(seed += 0x9E3779B97F4A7C15u);
        memcpy(to + i, &word, (size_t)(bytes - i < 8 ? bytes - i : 8));
    }
}

/* Writes, or compares with what is there, one column of a row in all planes and heads. */
T_FN int column_bytes(const cache *c, int64_t row, int64_t column, uint64_t who, int write) {
    char bytes[512];
    int same = 1;
    for (int plane = 0; plane < c->num_planes; ++plane)
        for (int head = 0; head < c->heads && c->plane[plane]; ++head) {
            char *at = c->plane[plane]->buf.host + place(c, row, column, head);
            tag(bytes, c->head_bytes, who, plane, head);
            if (write) memcpy(at, bytes, (size_t)c->head_bytes);
            same &= memcmp(at, bytes, (size_t)c->head_bytes) == 0;
        }
    return same;
}

/* Fills columns of a row with tags; `outside`: the others as well, with other tags. */
T_FN void fill_columns(const cache *c, int row, int64_t first, int64_t end, int outside) {
    for (int64_t x = 0; x < c->kv.max_positions; ++x) {
        const uint64_t who = ((uint64_t)row << 32) + (uint64_t)x;
        if (x >= first && x < end) column_bytes(c, row, x, who, 1);
        if ((x < first || x >= end) && outside) column_bytes(c, row, x, ~who, 1);
    }
}

/* What a move has to leave, out of place: `host` still is what was there. */
T_FN void want_move(const cache *c, int row, int64_t first, int64_t count, int64_t by) {
    for (int plane = 0; plane < c->num_planes; ++plane)
        for (int64_t x = first; x < first + count; ++x)
            for (int head = 0; head < c->heads && c->plane[plane]; ++head)
                memcpy(c->plane[plane]->want + place(c, row, x + by, head),
                       c->plane[plane]->buf.host + place(c, row, x, head), (size_t)c->head_bytes);
}

/* ---------------------------------------------------------------------------------- validation */

T_FN specv_columns valid_columns(void) {
    specv_columns c = SPECV_ZERO;
    c.tokens = c.mask = c.position_ids = word();
    c.width = word();
    c.max_columns = 100;
    return c;
}

T_FN specv_kv_cache valid_kv(void) {
    specv_kv_cache kv = SPECV_ZERO;
    kv.plane = word();
    kv.head_bytes = 16, kv.num_heads = 2, kv.max_positions = 100;
    return kv;
}

T_FN specv_realign_desc valid_realign(void) {
    specv_realign_desc d = SPECV_ZERO;
    d.out_tokens = word();
    d.num_emitted = d.num_active = d.pad_len = word();
    d.shifts = (specv_shift *)(void *)word();
    d.row_status = d.ticket = (uint32_t *)word();
    d.columns = valid_columns();
    d.kv = valid_kv();
    d.batch = 4, d.max_draft = 7;
    return d;
}

#endif /* COLUMNS_H_INCLUDED */
