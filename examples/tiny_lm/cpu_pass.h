/* SPDX-License-Identifier: MIT-0
 *
 * cpu_pass.h - the forward pass of cpu.c, which includes it once for each width of vectors: LANES
 * floats, functions called NAME(...), compiled with TARGET. A vector is LANES neighbouring outputs,
 * never a part of a sum, so all widths give the same bits.
 */

/* Columns of a tile. A matrix [in][out] is stored as [out / COLUMNS][in][COLUMNS], so a tile of
 * outputs reads its weights one behind the other, which is what the caches of a CPU are fast at. */
#define COLUMNS NAME(columns)
enum { COLUMNS = 2 * LANES };

/* num_rows x (columns of num_tiles tiles) outputs: sums in registers, ascending k. Both numbers are
 * constants in every caller, so the loops unroll. */
#if defined(HAS_VECTORS)
typedef float NAME(vector) __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
enum { NAME(row_lanes) = LANES < ABREAST_ROWS ? LANES : ABREAST_ROWS };
typedef float NAME(rows) __attribute__((vector_size(4 * NAME(row_lanes)), aligned(4), may_alias));

INLINED TARGET void NAME(tile)(float *y, const float *residual, const float *x, const float *w,
                               const int num_rows, const int num_tiles, int32_t size_in,
                               int32_t size_out) {
    NAME(vector) sum[TILE_ROWS][2 * ALONE / COLUMNS] = {{{0}}};
    for (int32_t k = 0; k < size_in; k++)
        for (int t = 0; t < num_tiles; t++) {
            const float *at = w + times(t, size_in) * COLUMNS + times(k, COLUMNS);
            const uintptr_t ahead = (uintptr_t)at + 4 * AHEAD * COLUMNS; /* beyond w, too: a hint */
            for (unsigned c = 0; c < COLUMNS; c += LINE)
                __builtin_prefetch((const void *)(ahead + 4 * c));
            const NAME(vector) low = *(const NAME(vector) *)at;
            const NAME(vector) high = *(const NAME(vector) *)(at + LANES);
            for (int r = 0; r < num_rows; r++) {
                const float factor = x[times(r, size_in) + (size_t)k];
                sum[r][2 * t] = sum[r][2 * t] + factor * low;
                sum[r][2 * t + 1] = sum[r][2 * t + 1] + factor * high;
            }
        }
    for (int r = 0; r < num_rows; r++)
        for (int v = 0; v < 2 * num_tiles; v++) {
            const size_t at = times(r, size_out) + times(v, LANES);
            if (residual) sum[r][v] = *(const NAME(vector) *)(residual + at) + sum[r][v];
            *(NAME(vector) *)(y + at) = sum[r][v];
        }
}
#else
INLINED TARGET void NAME(tile)(float *y, const float *residual, const float *x, const float *w,
                               const int num_rows, const int num_tiles, int32_t size_in,
                               int32_t size_out) {
    for (int r = 0; r < num_rows; r++)
        for (int t = 0; t < num_tiles; t++) {
            const float *weight = w + times(t, size_in) * COLUMNS;
            const size_t at = times(r, size_out) + times(t, COLUMNS);
            float sum[COLUMNS] = {0};
            for (int32_t k = 0; k < size_in; k++, weight += COLUMNS)
                for (int c = 0; c < COLUMNS; c++)
                    sum[c] = lm_mac(sum[c], x[times(r, size_in) + (size_t)k], weight[c]);
            for (int c = 0; c < COLUMNS; c++)
                y[at + (size_t)c] = residual ? lm_add(residual[at + (size_t)c], sum[c]) : sum[c];
        }
}
#endif

static TARGET void NAME(store)(float *to, const float *from, int32_t size_in, int32_t size_out) {
    for (int32_t c = 0; c < size_out; c += COLUMNS)
        for (int32_t k = 0; k < size_in; k++, to += COLUMNS)
            memcpy(to, from + times(k, size_out) + (size_t)c, COLUMNS * sizeof(float));
}

/* y[r] = x[r] w (+ residual[r], which may be y). The sums of TILE_ROWS rows of a tile fit into
 * registers. A row alone takes the tiles of ALONE columns, or each addition would wait for the last
 * one. Every tile is read for all rows before the next. Half 0 is the first half of the columns. */
static TARGET void NAME(matmul_half)(const void *job, int half) {
    const matmul_job j = *(const matmul_job *)job;
    const int32_t num_rows = j.num_rows, size_in = j.size_in, size_out = j.size_out;
    const int32_t step = num_rows == 1 ? ALONE : COLUMNS;
    const int32_t middle = size_out / ALONE / 2 * ALONE, end = half ? size_out : middle;
    const float *w = j.w + times(half ? middle : 0, size_in);
    for (int32_t c = half ? middle : 0; c < end; c += step, w += times(size_in, step))
        for (int32_t row = 0, num; row < num_rows; row += num) {
            const int32_t groups = (num_rows - row + TILE_ROWS - 1) / TILE_ROWS;
            const size_t at = times(row, size_out) + (size_t)c;
            const float *const from = j.x + times(row, size_in);
            const float *const add = j.residual ? j.residual + at : NULL;
            num = (num_rows - row + groups - 1) / groups;
            switch (num_rows == 1 ? 0 : num) {
            case 0:
                NAME(tile)(j.y + at, add, from, w, 1, ALONE / COLUMNS, size_in, size_out);
                break;
            case 1: NAME(tile)(j.y + at, add, from, w, 1, 1, size_in, size_out); break;
            case 2: NAME(tile)(j.y + at, add, from, w, 2, 1, size_in, size_out); break;
            case 3: NAME(tile)(j.y + at, add, from, w, 3, 1, size_in, size_out); break;
            case 4: NAME(tile)(j.y + at, add, from, w, 4, 1, size_in, size_out); break;
            case 5: NAME(tile)(j.y + at, add, from, w, 5, 1, size_in, size_out); break;
            default: NAME(tile)(j.y + at, add, from, w, 6, 1, size_in, size_out); break;
            }
        }
}

static void NAME(matmul)(const cpu_state *s, float *y, const float *residual, const float *x,
                         const float *w, int32_t num_rows, int32_t size_in, int32_t size_out) {
    const matmul_job job = {y, residual, x, w, num_rows, size_in, size_out};
    team_do(s->team, NAME(matmul_half), &job);
}

static TARGET void NAME(rms_norm)(float *out, const float *x, const float *weight, int32_t size) {
    float partial[LM_LANES] = {0}, scale;
    for (int32_t i = 0; i < size; i += LM_LANES) /* size is a multiple of LM_LANES */
        for (int lane = 0; lane < LM_LANES; lane++)
            partial[lane] = lm_mac(partial[lane], x[i + lane], x[i + lane]);
    scale = lm_rms_scale(halving_tree(partial), size);
    for (int32_t i = 0; i < size; i++) out[i] = lm_mul(lm_mul(x[i], scale), weight[i]);
}

/* q k of one row at `num` positions, a constant: each sum is a chain of additions, which wait for
 * each other, but not for those of other positions. */
INLINED TARGET void NAME(dot)(float *scores, const float *q, const float *const *k, int32_t first,
                              int32_t head_dim, const int num, float scale) {
    float sum[ABREAST] = {0};
    for (int32_t i = 0; i < head_dim; i++)
        for (int j = 0; j < num; j++) sum[j] = lm_mac(sum[j], q[i], k[j][first + i]);
    for (int j = 0; j < num; j++) scores[j] = lm_mul(sum[j], scale);
}

/* The same of ABREAST_ROWS rows, q [head_dim][ABREAST_ROWS], scores a row `stride` apart: here rows
 * are what a vector has beside each other. */
INLINED TARGET void NAME(dot_rows)(float *scores, int32_t stride, const float *q,
                                   const float *const *k, int32_t first, int32_t head_dim,
                                   const int num, float scale) {
#if defined(HAS_VECTORS)
    enum { VECTORS = ABREAST_ROWS / NAME(row_lanes) };
    NAME(rows) sum[ABREAST][VECTORS] = {{{0}}};
    for (int32_t i = 0; i < head_dim; i++) {
        const NAME(rows) *at = (const NAME(rows) *)(q + times(i, ABREAST_ROWS));
        for (int j = 0; j < num; j++)
            for (int v = 0; v < VECTORS; v++) sum[j][v] = sum[j][v] + at[v] * k[j][first + i];
    }
    for (int j = 0; j < num; j++)
        for (int r = 0; r < ABREAST_ROWS; r++)
            scores[times(r, stride) + (size_t)j] =
                lm_mul(sum[j][r / NAME(row_lanes)][r % NAME(row_lanes)], scale);
#else
    for (int j = 0; j < num; j++)
        for (int r = 0; r < ABREAST_ROWS; r++) {
            float sum = 0;
            for (int32_t i = 0; i < head_dim; i++)
                sum = lm_mac(sum, q[times(i, ABREAST_ROWS) + (size_t)r], k[j][first + i]);
            scores[times(r, stride) + (size_t)j] = lm_mul(sum, scale);
        }
#endif
}

/* out[i] = the sum over positions of p v[i], times `factor`, of `num` elements. */
INLINED TARGET void NAME(mix)(float *out, const float *p, const float *const *v, int32_t first,
                              int32_t num_pos, const int32_t num, float factor) {
    float sum[ALONE] = {0};
    for (int32_t pos = 0; pos < num_pos; pos++)
        for (int32_t i = 0; i < num; i++) sum[i] = lm_mac(sum[i], p[pos], v[pos][first + i]);
    for (int32_t i = 0; i < num; i++) out[i] = lm_mul(sum[i], factor);
}

/* The same of `num` vectors, a constant. */
#if defined(HAS_VECTORS)
INLINED TARGET void NAME(mix_vectors)(float *out, const float *p, const float *const *v,
                                      int32_t first, int32_t num_pos, const int num, float factor) {
    NAME(vector) sum[ALONE / LANES] = {{0}};
    for (int32_t pos = 0; pos < num_pos; pos++) {
        const NAME(vector) *at = (const NAME(vector) *)(v[pos] + first);
        for (int i = 0; i < num; i++) sum[i] = sum[i] + p[pos] * at[i];
    }
    for (int i = 0; i < num; i++) ((NAME(vector) *)out)[i] = sum[i] * factor;
}
#else
INLINED TARGET void NAME(mix_vectors)(float *out, const float *p, const float *const *v,
                                      int32_t first, int32_t num_pos, const int num, float factor) {
    NAME(mix)(out, p, v, first, num_pos, num * LANES, factor);
}
#endif

/* From scores to what a row takes from one head, out[first..]. */
INLINED TARGET void NAME(weigh)(float *out, float *scores, const float *const *v, int32_t first,
                                int32_t head_dim, int32_t num_pos) {
    float partial[LM_LANES] = {0}, top = -INFINITY, inverse;
    const int32_t end = first + head_dim;
    for (int32_t pos = 0; pos < num_pos; pos++)
        if (scores[pos] > top) top = scores[pos];
    for (int32_t pos = 0; pos < num_pos; pos++) scores[pos] = lm_exp(lm_add(scores[pos], -top));
    for (int32_t pos = 0; pos < num_pos; pos++)
        partial[pos % LM_LANES] = lm_add(partial[pos % LM_LANES], scores[pos]);
    inverse = lm_div(1.0f, halving_tree(partial));
    for (int32_t i = first, num; i < end; i += num) {
        const int32_t left = end - i;
        num = left >= ALONE ? ALONE : left >= LANES ? LANES : left;
        if (num == ALONE)
            NAME(mix_vectors)(out + i, scores, v, i, num_pos, ALONE / LANES, inverse);
        else if (num == LANES)
            NAME(mix_vectors)(out + i, scores, v, i, num_pos, 1, inverse);
        else
            NAME(mix)(out + i, scores, v, i, num_pos, num, inverse);
    }
}

/* Up to ABREAST_ROWS rows of one sequence: a head's K and V come from far away once for all. */
static TARGET void NAME(attend)(const cpu_state *s, const cpu_model *m, int32_t layer,
                                const lm_row *rows, int32_t num_rows, const float *qkv,
                                float *out) {
    const int32_t d = m->dims.d_model, head_dim = d / m->dims.num_heads, stride = s->limits.max_seq;
    const int32_t num_pos = look_back(s, m, layer, rows + num_rows - 1);
    const float *const *const k = s->seen_k, *const *const v = s->seen_v;
    const float scale = lm_div(1.0f, lm_sqrt((float)head_dim));
    for (int32_t first = 0; first < d; first += head_dim) {
        int32_t pos = 0;
        if (num_rows > 1)
            for (int32_t i = 0; i < head_dim; i++)
                for (int32_t r = 0; r < num_rows; r++)
                    s->q_rows[times(i, ABREAST_ROWS) + (size_t)r] =
                        qkv[times(r, 3 * d) + (size_t)(first + i)];
        while (pos < num_pos) {
            const int few = num_pos < ABREAST;
            if (!few && pos + ABREAST > num_pos) pos = num_pos - ABREAST; /* some once more */
            float *const to = s->scores + pos;
            if (num_rows > 1 && few)
                NAME(dot_rows)(to, stride, s->q_rows, k + pos, first, head_dim, 1, scale);
            else if (num_rows > 1)
                NAME(dot_rows)(to, stride, s->q_rows, k + pos, first, head_dim, ABREAST, scale);
            else if (few)
                NAME(dot)(to, qkv + first, k + pos, first, head_dim, 1, scale);
            else
                NAME(dot)(to, qkv + first, k + pos, first, head_dim, ABREAST, scale);
            pos += few ? 1 : ABREAST;
        }
        for (int32_t r = 0; r < num_rows; r++) NAME(weigh)
        (out + times(r, d), s->scores + times(r, stride), v, first, head_dim,
         lm_seen_position(s->cache, rows + r, rows[r].column) + 1);
    }
}

static TARGET void NAME(layer)(const cpu_state *s, const cpu_model *m, int32_t index,
                               const lm_row *rows, int32_t num_rows) {
    const int32_t d = m->dims.d_model, ff = m->dims.d_ff;
    const lm_layer layer = lm_layer_of(&m->dims, m->weights, index);
    for (int32_t r = 0; r < num_rows; r++)
        NAME(rms_norm)(s->normed + times(r, d), s->x + times(r, d), layer.attn_norm, d);
    NAME(matmul)(s, s->qkv, NULL, s->normed, layer.wqkv, num_rows, d, 3 * d);
    for (int32_t r = 0; r < num_rows; r++)
        rotate_and_store(s, m, index, rows + r, s->qkv + times(r, 3 * d));
    for (int32_t r = 0, num; r < num_rows; r += num) {
        num = rows_of_one(rows + r, num_rows - r);
        NAME(attend)
        (s, m, index, rows + r, num, s->qkv + times(r, 3 * d), s->attended + times(r, d));
    }
    NAME(matmul)(s, s->x, s->x, s->attended, layer.wo, num_rows, d, d);

    for (int32_t r = 0; r < num_rows; r++)
        NAME(rms_norm)(s->normed + times(r, d), s->x + times(r, d), layer.ffn_norm, d);
    NAME(matmul)(s, s->hidden, NULL, s->normed, layer.w_gate_up, num_rows, d, 2 * ff);
    for (int32_t r = 0; r < num_rows; r++) {
        const float *gate = s->hidden + times(r, 2 * ff), *up = gate + ff;
        float *gated = s->gated + times(r, ff);
        for (int32_t i = 0; i < ff; i++) gated[i] = lm_swiglu(gate[i], up[i]);
    }
    NAME(matmul)(s, s->x, s->x, s->gated, layer.w_down, num_rows, ff, d);
}

static TARGET void NAME(pass)(const cpu_state *s, const cpu_model *m, const lm_row *rows,
                              int32_t num_rows, int32_t num_silent) {
    const lm_view view = lm_view_of(&m->dims, m->weights);
    const int32_t d = m->dims.d_model;
    for (int32_t l = 0; l < m->dims.num_layers; l++) NAME(layer)(s, m, l, rows, num_rows);
    for (int32_t r = num_silent; r < num_rows; r++) NAME(rms_norm)
    (s->normed + times(r - num_silent, d), s->x + times(r, d), view.final_norm, d);
    NAME(matmul)(s, s->logits, NULL, s->normed, view.head, num_rows - num_silent, d, m->dims.vocab);
}

/* Did the compiler fuse a multiply and an add? The two roundings cancel here, one does not. */
static TARGET int NAME(fuses)(void) {
    volatile float factor = 1.0f + 1.0f / 4096.0f;
    volatile float product = factor * factor;
    const float x = factor;
    float w[COLUMNS], sum[COLUMNS];
    for (int c = 0; c < COLUMNS; c++) w[c] = factor, sum[c] = -product;
    NAME(mix)(sum, &x, (const float *const[]){w}, 0, 1, 1, 1);
    if (sum[0] != product) return 1;
    for (int c = 0; c < COLUMNS; c++) sum[c] = -product;
    NAME(tile)(sum, sum, &x, w, 1, 1, 1, COLUMNS);
    return sum[0] != 0 || lm_mac(-product, factor, factor) != 0;
}

#undef NAME
#undef LANES
#undef TARGET
#undef COLUMNS
