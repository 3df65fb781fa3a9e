/* columns.h - what the tests of C1 and C2 share: the arrays of a specv_columns, the outputs of the
   pass before, and texts without any padding to compare with. */

#ifndef COLUMNS_H_INCLUDED
#define COLUMNS_H_INCLUDED

#include "io.h"

/* How much room a step finds. */
typedef enum fit { FIT_PLENTY, FIT_EXACT, FIT_SHORT, FIT_KV_SHORT, FIT_BAD_WIDTH, NUM_FITS } fit;

/* The arrays of a specv_columns, and the outputs of the pass before. */
typedef struct board {
    int batch, live, max_draft, max_columns, token_dtype, index_dtype;
    int64_t stride, emitted_stride, pad_token;
    io *tokens, *mask, *positions, *width, *status, *ticket; /* some may be null */
    t_buf active, emitted, num_emitted;
} board;

T_FN void board_make(board *d, int batch, int max_draft, int max_columns, int all) {
    const int64_t index_bytes = t_chance(50) ? 4 : 8, token_bytes = t_chance(50) ? 4 : 8;
    int64_t elements;
    memset(d, 0, sizeof *d);
    d->batch = batch, d->max_draft = max_draft, d->max_columns = max_columns;
    d->token_dtype = token_bytes == 8 ? SPECV_I64 : SPECV_I32;
    d->index_dtype = index_bytes == 8 ? SPECV_I64 : SPECV_I32;
    d->stride = max_columns + (t_chance(50) ? t_below(5) : 0);
    d->emitted_stride = max_draft + 1 + (t_chance(50) ? t_below(3) : 0);
    d->pad_token = t_chance(50) ? 0 : token_bytes == 8 ? (int64_t)5 << 33 : 50256;
    elements = batch ? (batch - 1) * d->stride + max_columns : 0;
    if (all || t_chance(85)) d->tokens = io_new(elements * token_bytes, 0);
    if (all || t_chance(85)) d->mask = io_new(elements * index_bytes, 0);
    if (all || t_chance(85)) d->positions = io_new(elements * index_bytes, 0);
    if (all || t_chance(85)) d->status = io_new(4 * (int64_t)batch, 0);
    d->width = io_new(4, 0);
    d->ticket = io_new(4, 0);
    put32(d->ticket->buf.host, 0, 0);
    if (d->tokens)
        d->emitted =
            t_in(batch ? ((batch - 1) * d->emitted_stride + max_draft + 1) * token_bytes : 0, 0);
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

/* pad_token is a token like any other. */
T_FN int64_t draw_token(const board *b) {
    if (t_chance(20)) return b->pad_token;
    return t_below(b->token_dtype == SPECV_I64 ? (int64_t)1 << 40 : INT32_MAX);
}

T_FN int64_t emitted_at(const board *b, int row, int64_t j) {
    return get_number(b->emitted.host, b->token_dtype, row * b->emitted_stride + j);
}

T_FN void want_column(const board *b, int row, int64_t column, int64_t token, int mask,
                      int64_t position) {
    const int64_t at = row * b->stride + column;
    if (b->tokens) put_number(b->tokens->want, b->token_dtype, at, token);
    if (b->mask) put_number(b->mask->want, b->index_dtype, at, mask);
    if (b->positions) put_number(b->positions->want, b->index_dtype, at, position);
}

T_FN void draw_emitted(const board *b) {
    for (int row = 0; row < b->batch && b->emitted.host; ++row)
        for (int j = 0; j <= b->max_draft; ++j)
            put_number(b->emitted.host, b->token_dtype, row * b->emitted_stride + j, draw_token(b));
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
        const int64_t i = column - (width - x->len), at = row * b->stride + column;
        if (i >= 0) x->token[i] = draw_token(b);
        put_number(b->tokens->buf.host, b->token_dtype, at, i < 0 ? b->pad_token : x->token[i]);
        put_number(b->mask->buf.host, b->index_dtype, at, i >= 0);
        put_number(b->positions->buf.host, b->index_dtype, at, i > 0 ? i : 0);
    }
}

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
    d.emitted = word();
    d.num_emitted = d.num_active = d.pad_len = word();
    d.shifts = (specv_shift *)(void *)word();
    d.row_status = d.ticket = (uint32_t *)word();
    d.columns = valid_columns();
    d.kv = valid_kv();
    d.batch = 4, d.max_draft = 7;
    return d;
}

#endif /* COLUMNS_H_INCLUDED */
