/* SPDX-License-Identifier: MIT-0
 *
 * model.c - reads a model file of tiny_lm. The format is described at the top of train.py.
 */
#include "lm.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER_BYTES = 32, FORMAT_VERSION = 1 };

/* ---- layout of the weight block ------------------------------------------------------------- */

static size_t size_of(int32_t rows, int32_t columns) { return (size_t)rows * (size_t)columns; }

static size_t layer_weights(const lm_dims *m) {
    return 2 * (size_t)m->d_model + 4 * size_of(m->d_model, m->d_model) +
           3 * size_of(m->d_model, m->d_ff);
}

static size_t shared_weights(const lm_dims *m) {
    return 2 * size_of(m->vocab, m->d_model) + (size_t)m->d_model +
           size_of(m->max_seq, m->d_model / m->num_heads);
}

size_t lm_num_weights(const lm_dims *m) {
    return shared_weights(m) + (size_t)m->num_layers * layer_weights(m);
}

lm_view lm_view_of(const lm_dims *m, const float *weights) {
    lm_view view;
    view.tok_emb = weights;
    view.head = view.tok_emb + size_of(m->vocab, m->d_model);
    view.final_norm = view.head + size_of(m->vocab, m->d_model);
    view.rope = view.final_norm + m->d_model;
    return view;
}

lm_layer lm_layer_of(const lm_dims *m, const float *weights, int32_t index) {
    lm_layer layer;
    layer.attn_norm = weights + shared_weights(m) + (size_t)index * layer_weights(m);
    layer.wqkv = layer.attn_norm + m->d_model;
    layer.wo = layer.wqkv + 3 * size_of(m->d_model, m->d_model);
    layer.ffn_norm = layer.wo + size_of(m->d_model, m->d_model);
    layer.w_gate_up = layer.ffn_norm + m->d_model;
    layer.w_down = layer.w_gate_up + 2 * size_of(m->d_model, m->d_ff);
    return layer;
}

/* ---- reading the file ----------------------------------------------------------------------- */

typedef struct reader {
    const unsigned char *bytes;
    size_t size, at;
    int non_finite;
} reader;

static int fail(char *message, size_t size, const char *path, const char *format, ...) {
    va_list args;
    int used = snprintf(message, size, "%s: ", path);
    va_start(args, format);
    if (used >= 0 && (size_t)used < size)
        (void)vsnprintf(message + used, size - (size_t)used, format, args);
    va_end(args);
    return -1;
}

unsigned char *lm_read_file(const char *path, size_t *size) {
    unsigned char *bytes = NULL, *grown;
    size_t capacity = 0;
    FILE *file = fopen(path, "rb");
    *size = 0;
    if (!file) return NULL;
    do {
        capacity = 2 * capacity + 65536;
        grown = (unsigned char *)realloc(bytes, capacity);
        if (!grown) break;
        bytes = grown;
        *size += fread(bytes + *size, 1, capacity - *size, file);
    } while (*size == capacity);
    if (!grown || ferror(file)) { /* a folder opens, but cannot be read */
        free(bytes);
        bytes = NULL;
    }
    fclose(file);
    return bytes;
}

static int32_t int_at(const unsigned char *bytes) {
    uint32_t value = (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
                     (uint32_t)bytes[3] << 24;
    int32_t result;
    memcpy(&result, &value, sizeof result);
    return result;
}

static float next_half(reader *in) {
    unsigned bits = (unsigned)in->bytes[in->at] | (unsigned)in->bytes[in->at + 1] << 8;
    int exponent = (int)(bits >> 10 & 31u), fraction = (int)(bits & 1023u);
    float magnitude;
    in->at += 2;
    if (exponent == 31) in->non_finite = 1;
    magnitude =
        exponent ? ldexpf((float)(fraction + 1024), exponent - 25) : ldexpf((float)fraction, -24);
    return bits >> 15 ? -magnitude : magnitude;
}

static void read_vector(reader *in, const float *to, int32_t size) {
    float *out = (float *)(uintptr_t)to; /* views are const for everybody but the loader */
    for (int32_t i = 0; i < size; i++) out[i] = next_half(in);
}

/* A file matrix [out][in] becomes columns first_column.. of a [in][num_columns] matrix. */
static void read_transposed(reader *in, const float *to, int32_t rows_out, int32_t size_in,
                            int32_t num_columns, int32_t first_column) {
    float *out = (float *)(uintptr_t)to;
    for (int32_t o = 0; o < rows_out; o++)
        for (int32_t i = 0; i < size_in; i++)
            out[size_of(i, num_columns) + (size_t)(first_column + o)] = next_half(in);
}

static void read_weights(reader *in, const lm_model *model) {
    const lm_dims *m = &model->dims;
    const int32_t d = m->d_model, ff = m->d_ff;
    const lm_view view = lm_view_of(m, model->weights);
    size_t tok_emb_at = in->at;
    read_vector(in, view.tok_emb, m->vocab * d);
    in->at = tok_emb_at; /* the head is tied to the embedding */
    read_transposed(in, view.head, m->vocab, d, m->vocab, 0);
    for (int32_t l = 0; l < m->num_layers; l++) {
        const lm_layer layer = lm_layer_of(m, model->weights, l);
        read_vector(in, layer.attn_norm, d);
        read_transposed(in, layer.wqkv, d, d, 3 * d, 0);
        read_transposed(in, layer.wqkv, d, d, 3 * d, d);
        read_transposed(in, layer.wqkv, d, d, 3 * d, 2 * d);
        read_transposed(in, layer.wo, d, d, d, 0);
        read_vector(in, layer.ffn_norm, d);
        read_transposed(in, layer.w_gate_up, ff, d, 2 * ff, 0);
        read_transposed(in, layer.w_gate_up, ff, d, 2 * ff, ff);
        read_transposed(in, layer.w_down, d, ff, d, 0);
    }
    read_vector(in, view.final_norm, d);
}

/* Angles in double, so that the rounded table is the same on every machine. */
static void fill_rope(const lm_model *model) {
    const lm_dims *m = &model->dims;
    const int32_t head_dim = m->d_model / m->num_heads;
    float *rope = (float *)(uintptr_t)lm_view_of(m, model->weights).rope;
    for (int32_t pos = 0; pos < m->max_seq; pos++)
        for (int32_t i = 0; i < head_dim; i += 2) {
            double angle = pos * pow(10000.0, -(double)i / head_dim);
            *rope++ = (float)cos(angle);
            *rope++ = (float)sin(angle);
        }
}

static int dims_are_sane(const lm_dims *m) {
    return m->vocab == LM_VOCAB && m->num_layers >= 1 && m->num_layers <= LM_MAX_LAYERS &&
           m->num_heads >= 1 && m->d_model >= 32 && m->d_model <= 1024 && m->d_model % 32 == 0 &&
           m->d_ff >= 32 && m->d_ff <= 4096 && m->d_ff % 32 == 0 &&
           m->d_model % (2 * m->num_heads) == 0 && m->max_seq >= 2 && m->max_seq <= 4096;
}

static int read_header(const reader *in, lm_dims *m, const char *path, char *message,
                       size_t message_size) {
    size_t expected;
    if (in->size < HEADER_BYTES)
        return fail(message, message_size, path, "truncated: %zu bytes are no header", in->size);
    if (memcmp(in->bytes, "SVLM", 4) != 0)
        return fail(message, message_size, path, "not a tiny_lm model (bad magic)");
    if (int_at(in->bytes + 4) != FORMAT_VERSION)
        return fail(message, message_size, path, "format version %d, this program reads %d",
                    (int)int_at(in->bytes + 4), (int)FORMAT_VERSION);
    m->vocab = int_at(in->bytes + 8);
    m->d_model = int_at(in->bytes + 12);
    m->num_layers = int_at(in->bytes + 16);
    m->num_heads = int_at(in->bytes + 20);
    m->d_ff = int_at(in->bytes + 24);
    m->max_seq = int_at(in->bytes + 28);
    if (!dims_are_sane(m))
        return fail(message, message_size, path,
                    "unusable sizes: vocab %d, d_model %d, layers %d, heads %d, d_ff %d, seq %d",
                    (int)m->vocab, (int)m->d_model, (int)m->num_layers, (int)m->num_heads,
                    (int)m->d_ff, (int)m->max_seq);
    expected = HEADER_BYTES + 2 * (size_of(m->vocab, m->d_model) + (size_t)m->d_model +
                                   (size_t)m->num_layers * layer_weights(m));
    if (in->size != expected)
        return fail(message, message_size, path, "%s: %zu bytes, its sizes ask for %zu",
                    in->size < expected ? "truncated" : "too long", in->size, expected);
    return 0;
}

int lm_load(lm_model *model, const char *path, char *message, size_t message_size) {
    reader in = {NULL, 0, HEADER_BYTES, 0};
    unsigned char *bytes = lm_read_file(path, &in.size);
    int status = -1;
    memset(model, 0, sizeof *model);
    in.bytes = bytes;
    if (!bytes) return fail(message, message_size, path, "cannot be read");
    if (read_header(&in, &model->dims, path, message, message_size) == 0) {
        model->num_weights = lm_num_weights(&model->dims);
        model->weights = (float *)calloc(model->num_weights, sizeof(float));
        if (!model->weights) {
            status = fail(message, message_size, path, "out of memory");
        } else {
            read_weights(&in, model);
            fill_rope(model);
            status = in.non_finite
                         ? fail(message, message_size, path, "damaged: a weight is not finite")
                         : 0;
        }
    }
    free(bytes);
    if (status != 0) lm_free(model);
    return status;
}

void lm_free(lm_model *model) {
    free(model->weights);
    memset(model, 0, sizeof *model);
}
