/* SPDX-License-Identifier: MIT-0
 *
 * gpu.cu - the CUDA backend of tiny_lm. One stream; the host learns of a step only at its commit,
 * with a budget of how many drafts are left to verify, and with trees of what may become of them.
 * One allocation when it is opened, see arena.h, and none after that.
 * Kernels are plain: a thread per output where outputs are many, a warp per row where a row is
 * reduced. What each output sums, and in which order, is that of cpu.c, operation by operation.
 */
#ifndef TINY_LM_KIT_ELSEWHERE /* defined: another .cu of the program has the kit */
#define SPECVERIFY_IMPLEMENTATION
#endif
#include "specverify.cuh"

#include "../arena.h"
#include "lm.h"
#include "lm_cache.h"
#include "lm_emitted.h"
#include "lm_filters.h"
#include "lm_math.h"
#include "lm_particles.h"
#include "lm_trees.h"

#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WARP = 32, ELEMENT_THREADS = 128 };
enum { MATMUL_THREADS = 64, MATMUL_ROWS = 8, MATMUL_DEPTH = 128 };
#define ALL_LANES 0xffffffffu

typedef struct gpu_model {
    lm_dims dims;
    float *weights;
    lm_kv kv;
    lm_kv spare; /* what a cache is copied to, if the layout says so; then the two change places */
    float *kept; /* [batch * columns of a step][vocab] logits that verification asks for */
} gpu_model;

/* What the host tells the device about a step, and what it wants back: one copy each. */
typedef struct step_in {
    int32_t num_active;
    int32_t draft_len[LM_MAX_BATCH], position[LM_MAX_BATCH], draft_end[LM_MAX_BATCH];
    int32_t text_at[LM_MAX_BATCH];
    uint64_t seed[LM_MAX_BATCH];
} step_in;

typedef struct step_out {
    int32_t accepted_len[LM_MAX_BATCH], num_emitted[LM_MAX_BATCH];
    uint32_t row_status[LM_MAX_BATCH];
    int32_t width;
} step_out;

/* The same of a pass that samples. */
typedef struct sample_in {
    int32_t num_active;
    int32_t position[LM_MAX_BATCH];
    uint64_t seed[LM_MAX_BATCH];
} sample_in;

typedef struct gpu_state {
    arena memory; /* of all that points to the device */
    lm_limits limits;
    lm_sampling sampling;
    lm_cache cache;
    gpu_model models[LM_NUM_MODELS];
    lm_particles particles;
    lm_tree_arrays trees;
    cudaStream_t stream;

    /* one pass, [max_rows][...] */
    lm_row *rows;
    float *x, *normed, *qkv, *attended, *hidden, *gated, *logits;

    /* sampling; one scratch memory, as the kit's launches come one after the other */
    float *temperature; /* [batch] */
    float *warm;        /* [batch] 1, see keep_confidence */
    int32_t *sampled;   /* [batch] */
    sample_in *sample;
    lm_filter_arrays *filters;
    void *told_memory;
    specv_emitted told; /* [batch][gamma + 1], in told_memory */
    void *kit_scratch;
    int64_t kit_scratch_bytes;

    /* the target's KV rows of a pass that is to be judged: [plane][batch][1 + gamma][d_model] */
    float *scratch;
    void **scratch_planes;
    step_in *in;
    step_out *out;
    int64_t *histogram; /* [gamma + 1] */
    int64_t *totals;    /* [SPECV_STAT_COUNT] */

    void *beside; /* what a program that has this file in it asked for, see gpu_open_beside */
} gpu_state;

/* ---- kernels -------------------------------------------------------------------------------- */

/* Where the KV row of a column is: in the cache, or in the verify scratch. */
static __device__ float *kv_row(const lm_cache &c, const lm_kv &kv, float *scratch, int32_t plane,
                                const lm_row &row, int32_t column) {
    int64_t index;
    if (column < row.scratch_from) return lm_kv_row(c, kv, plane, row.slot, column);
    index = (int64_t)plane * c.limits.batch + row.seq;
    index = index * (1 + c.limits.gamma) + (column - row.scratch_from);
    return scratch + index * kv.d_model;
}

/* The sum of cpu.c's halving_tree over one partial sum per lane; valid in lane 0. */
static __device__ float halving_tree(float partial) {
    for (int half = WARP / 2; half > 0; half /= 2)
        partial = lm_add(partial, __shfl_down_sync(ALL_LANES, partial, (unsigned)half));
    return partial;
}

/* Block: one row. */
static __global__ void embed_kernel(float *x, const float *tok_emb, const int32_t *board,
                                    const lm_row *rows, int32_t vocab, int32_t size) {
    const int64_t row = blockIdx.x;
    int32_t token = board[rows[row].token_at];
    if (token < 0 || token >= vocab) token = 0; /* an argmax over NaN: the draft is rejected */
    for (int32_t i = (int32_t)threadIdx.x; i < size; i += (int32_t)blockDim.x)
        x[row * size + i] = tok_emb[(int64_t)token * size + i];
}

/* Block: one warp, one row. */
static __global__ void rms_norm_kernel(float *out, const float *x, const float *weight,
                                       int32_t size) {
    const int32_t lane = (int32_t)threadIdx.x;
    const int64_t first = (int64_t)blockIdx.x * size;
    float partial = 0, scale;
    for (int32_t i = lane; i < size; i += WARP)
        partial = lm_mac(partial, x[first + i], x[first + i]);
    scale = lm_rms_scale(__shfl_sync(ALL_LANES, halving_tree(partial), 0), size);
    for (int32_t i = lane; i < size; i += WARP)
        out[first + i] = lm_mul(lm_mul(x[first + i], scale), weight[i]);
}

/* y = x w (+ residual, which may be y). Block: MATMUL_ROWS rows, a column per thread. x passes
 * through shared memory, so that each weight is read once per block. */
static __global__ void matmul_kernel(float *y, const float *residual, const float *x,
                                     const float *w, int32_t num_rows, int32_t size_in,
                                     int32_t size_out) {
    __shared__ __align__(16) float tile[MATMUL_DEPTH][MATMUL_ROWS];
    const int32_t column = (int32_t)(blockIdx.x * MATMUL_THREADS + threadIdx.x);
    const int32_t row0 = (int32_t)blockIdx.y * MATMUL_ROWS;
    const float *const my_w = w + (column < size_out ? column : 0);
    float sum[MATMUL_ROWS] = {0};
    for (int32_t k0 = 0; k0 < size_in; k0 += MATMUL_DEPTH) {
        const int32_t depth = size_in - k0 < MATMUL_DEPTH ? size_in - k0 : MATMUL_DEPTH;
        __syncthreads();
        for (int32_t r = 0; r < MATMUL_ROWS; r++)
            for (int32_t k = (int32_t)threadIdx.x; k < depth; k += MATMUL_THREADS)
                tile[k][r] = row0 + r < num_rows ? x[(int64_t)(row0 + r) * size_in + k0 + k] : 0;
        __syncthreads();
#pragma unroll 4
        for (int32_t k = 0; k < depth; k++) {
            const float weight = my_w[(int64_t)(k0 + k) * size_out];
#pragma unroll
            for (int r = 0; r < MATMUL_ROWS; r++) sum[r] = lm_mac(sum[r], tile[k][r], weight);
        }
    }
    if (column >= size_out) return;
#pragma unroll
    for (int r = 0; r < MATMUL_ROWS; r++) {
        const int64_t at = (int64_t)(row0 + r) * size_out + column;
        if (row0 + r < num_rows) y[at] = residual ? lm_add(residual[at], sum[r]) : sum[r];
    }
}

/* RoPE on q and k, by the position in the text; k and v to where kv_row says. Block: one row, a
 * pair of elements per turn. */
static __global__ void rotate_and_store_kernel(float *qkv, const float *rope, const lm_row *rows,
                                               lm_cache c, lm_kv kv, float *scratch, int32_t layer,
                                               int32_t head_dim) {
    const lm_row row = rows[blockIdx.x];
    const int32_t d = kv.d_model, pos = lm_seen_position(c, &row, row.column);
    float *const q = qkv + (int64_t)blockIdx.x * 3 * d;
    float *const k_row = kv_row(c, kv, scratch, 2 * layer, row, row.column);
    float *const v_row = kv_row(c, kv, scratch, 2 * layer + 1, row, row.column);
    for (int32_t i = 2 * (int32_t)threadIdx.x; i < 2 * d; i += 2 * (int32_t)blockDim.x) {
        const float *const turn = rope + (int64_t)pos * head_dim + i % head_dim;
        const float even = q[i], odd = q[i + 1];
        const float new_even = lm_mac(lm_mul(even, turn[0]), -odd, turn[1]);
        const float new_odd = lm_mac(lm_mul(even, turn[1]), odd, turn[0]);
        float *const to = i < d ? q + i : k_row + i - d;
        to[0] = new_even, to[1] = new_odd;
    }
    for (int32_t i = (int32_t)threadIdx.x; i < d; i += (int32_t)blockDim.x) v_row[i] = q[2 * d + i];
}

/* Block: one warp, one row (x) and one head (y). Columns that the row may not see have no position;
 * the others' V rows are noted in the order of the text. */
static __global__ void attend_kernel(float *out, const float *qkv, const lm_row *rows, lm_cache c,
                                     lm_kv kv, float *scratch, int32_t layer, int32_t head_dim,
                                     float scale) {
    extern __shared__ const float *seen_v[];                    /* [max_seq] */
    float *const scores = (float *)(seen_v + c.limits.max_seq); /* [max_seq] */
    const lm_row row = rows[blockIdx.x];
    const int32_t lane = (int32_t)threadIdx.x, first = (int32_t)blockIdx.y * head_dim;
    const int32_t num_pos = lm_seen_position(c, &row, row.column) + 1;
    const float *const q = qkv + (int64_t)blockIdx.x * 3 * kv.d_model + first;
    float top = -INFINITY, partial = 0, inverse;
    for (int32_t column = lane; column <= row.column; column += WARP) {
        const int32_t pos = lm_seen_position(c, &row, column);
        float sum = 0;
        if (pos < 0) continue;
        const float *const k = kv_row(c, kv, scratch, 2 * layer, row, column) + first;
        for (int32_t i = 0; i < head_dim; i++) sum = lm_mac(sum, q[i], k[i]);
        scores[pos] = lm_mul(sum, scale);
        seen_v[pos] = kv_row(c, kv, scratch, 2 * layer + 1, row, column) + first;
        if (scores[pos] > top) top = scores[pos];
    }
    for (int half = WARP / 2; half > 0; half /= 2) {
        const float other = __shfl_xor_sync(ALL_LANES, top, half);
        if (other > top) top = other;
    }
    __syncwarp();
    for (int32_t pos = lane; pos < num_pos; pos += WARP) {
        scores[pos] = lm_exp(lm_add(scores[pos], -top));
        partial = lm_add(partial, scores[pos]);
    }
    inverse = lm_div(1.0f, __shfl_sync(ALL_LANES, halving_tree(partial), 0));
    __syncwarp();
    for (int32_t i = lane; i < head_dim; i += WARP) {
        float sum = 0;
        for (int32_t pos = 0; pos < num_pos; pos++) sum = lm_mac(sum, scores[pos], seen_v[pos][i]);
        out[(int64_t)blockIdx.x * kv.d_model + first + i] = lm_mul(sum, inverse);
    }
}

/* Block: one row. */
static __global__ void swiglu_kernel(float *gated, const float *hidden, int32_t d_ff) {
    const int64_t row = blockIdx.x;
    for (int32_t i = (int32_t)threadIdx.x; i < d_ff; i += (int32_t)blockDim.x)
        gated[row * d_ff + i] =
            lm_swiglu(hidden[2 * row * d_ff + i], hidden[(2 * row + 1) * d_ff + i]);
}

/* The lowest id among the largest logits, -1 if all are NaN. Block: one warp, one row. */
static __global__ void argmax_kernel(int32_t *board, const float *logits, const lm_row *rows,
                                     int32_t vocab) {
    const float *const mine = logits + (int64_t)blockIdx.x * vocab;
    float top = -INFINITY;
    int32_t best = vocab;
    for (int32_t i = (int32_t)threadIdx.x; i < vocab; i += WARP)
        if (mine[i] > top) top = mine[i], best = i;
    for (int half = WARP / 2; half > 0; half /= 2) {
        const float other = __shfl_xor_sync(ALL_LANES, top, half);
        const int32_t other_best = __shfl_xor_sync(ALL_LANES, best, half);
        if (other > top || (other == top && other_best < best)) top = other, best = other_best;
    }
    if (threadIdx.x == 0) board[rows[blockIdx.x].pick_at] = best < vocab ? best : -1;
}

/* Logits to where verification looks for them. Block: one row. */
static __global__ void keep_kernel(float *kept, const float *logits, const lm_row *rows,
                                   int32_t vocab) {
    const int64_t from = blockIdx.x, to = rows[blockIdx.x].keep_at;
    for (int32_t i = (int32_t)threadIdx.x; i < vocab; i += (int32_t)blockDim.x)
        kept[to * vocab + i] = logits[from * vocab + i];
}

/* Sampled tokens to the board. One block, a thread per row. */
static __global__ void place_kernel(int32_t *board, const int32_t *sampled, const lm_row *rows) {
    board[rows[threadIdx.x].pick_at] = sampled[threadIdx.x];
}

/* How sure the draft model is of the drafts of a pass. One block, a thread per row. */
static __global__ void place_confidence_kernel(lm_cache c, const lm_row *rows) {
    c.confidence[rows[threadIdx.x].pick_at - c.limits.draft_at] = c.max_prob[threadIdx.x];
}

/* As EQSPEC was published: all columns of all sequences go to a cache of zeros. Block: one column
 * (x) of one slot (y) and plane (z); surplus blocks leave. */
static __global__ void copy_cache_kernel(lm_cache c, lm_kv from, lm_kv to, const int32_t *end) {
    const int32_t column = (int32_t)blockIdx.x, slot = (int32_t)blockIdx.y;
    const int32_t plane = (int32_t)blockIdx.z;
    if (column >= *c.width || slot >= *c.num_active) return;
    const specv_shift shift = c.shifts[slot];
    const int32_t source = column - shift.by;
    int32_t last = shift.first + shift.count;
    if (end && end[slot] < last) last = end[slot];
    const int is_moved = source >= shift.first && source < last;
    const float *const old = lm_kv_row(c, from, plane, slot, is_moved ? source : column);
    float *const fresh = lm_kv_row(c, to, plane, slot, column);
    for (int32_t i = (int32_t)threadIdx.x; i < from.d_model; i += (int32_t)blockDim.x)
        fresh[i] = is_moved ? old[i] : 0;
}

/* Emitted tokens to the text. Block: one sequence. */
static __global__ void commit_text_kernel(int32_t *board, const int32_t *out_tokens,
                                          const int32_t *num_emitted, const step_in *in,
                                          int32_t columns) {
    const int32_t seq = (int32_t)blockIdx.x;
    for (int32_t j = (int32_t)threadIdx.x; j < num_emitted[seq]; j += (int32_t)blockDim.x)
        board[in->text_at[seq] + j] = out_tokens[(int64_t)seq * columns + j];
}

/* ---- host: errors and memory ---------------------------------------------------------------- */

static int fail(lm_backend *backend, const char *message) {
    (void)snprintf(backend->message, sizeof backend->message, "%s", message);
    return -1;
}

static int check(lm_backend *backend, cudaError_t error) {
    return error == cudaSuccess ? 0 : fail(backend, cudaGetErrorString(error));
}

/* Of a launcher of the kit: 0, its own negative code, or a cudaError_t. */
static int check_kit(lm_backend *backend, int status) {
    if (status > 0) return check(backend, (cudaError_t)status);
    return status == SPECV_OK ? 0 : fail(backend, specv_status_string(status));
}

static size_t times(int32_t a, int32_t b) { return (size_t)a * (size_t)b; }

static size_t cache_size(const gpu_state *s, const gpu_model *m) {
    return times(s->limits.cache_columns, m->dims.d_model) * (size_t)m->kv.num_planes;
}

static size_t scratch_size(const gpu_state *s) {
    const lm_dims *dims = &s->models[LM_TARGET].dims;
    return 2 * times(dims->num_layers, dims->d_model) * times(s->limits.batch, 1 + s->limits.gamma);
}

static size_t kept_size(const gpu_state *s, const gpu_model *m) {
    return times(s->limits.batch, lm_step_columns(&s->limits)) * (size_t)m->dims.vocab;
}

/* Host to device, behind all work of the stream; `from` may change after the call. */
static int send(lm_backend *backend, void *to, const void *from, size_t bytes) {
    const gpu_state *s = (const gpu_state *)backend->state;
    return check(backend, cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, s->stream));
}

static int send_ints(lm_backend *backend, int32_t *to, const int32_t *from, int32_t count) {
    return send(backend, to, from, (size_t)count * sizeof *from);
}

/* Device to host, behind all work of the stream. */
static int fetch(lm_backend *backend, void *to, const void *from, size_t bytes) {
    const gpu_state *s = (const gpu_state *)backend->state;
    if (check(backend, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, s->stream)) != 0)
        return -1;
    return check(backend, cudaStreamSynchronize(s->stream));
}

/* ---- host: forward pass --------------------------------------------------------------------- */

static void matmul(const gpu_state *s, float *y, const float *residual, const float *x,
                   const float *w, int32_t num_rows, int32_t size_in, int32_t size_out) {
    const dim3 grid((unsigned)((size_out + MATMUL_THREADS - 1) / MATMUL_THREADS),
                    (unsigned)((num_rows + MATMUL_ROWS - 1) / MATMUL_ROWS));
    matmul_kernel<<<grid, MATMUL_THREADS, 0, s->stream>>>(y, residual, x, w, num_rows, size_in,
                                                          size_out);
}

static void layer_forward(const gpu_state *s, const gpu_model *m, int32_t index, int32_t num_rows) {
    const int32_t d = m->dims.d_model, ff = m->dims.d_ff, head_dim = d / m->dims.num_heads;
    const float scale = lm_div(1.0f, lm_sqrt((float)head_dim));
    const unsigned blocks = (unsigned)num_rows;
    const size_t seen_bytes = (size_t)s->limits.max_seq * (sizeof(float *) + sizeof(float));
    const lm_layer layer = lm_layer_of(&m->dims, m->weights, index);
    const float *const rope = lm_view_of(&m->dims, m->weights).rope;
    rms_norm_kernel<<<blocks, WARP, 0, s->stream>>>(s->normed, s->x, layer.attn_norm, d);
    matmul(s, s->qkv, NULL, s->normed, layer.wqkv, num_rows, d, 3 * d);
    rotate_and_store_kernel<<<blocks, ELEMENT_THREADS, 0, s->stream>>>(
        s->qkv, rope, s->rows, s->cache, m->kv, s->scratch, index, head_dim);
    attend_kernel<<<dim3(blocks, (unsigned)m->dims.num_heads), WARP, seen_bytes, s->stream>>>(
        s->attended, s->qkv, s->rows, s->cache, m->kv, s->scratch, index, head_dim, scale);
    matmul(s, s->x, s->x, s->attended, layer.wo, num_rows, d, d);

    rms_norm_kernel<<<blocks, WARP, 0, s->stream>>>(s->normed, s->x, layer.ffn_norm, d);
    matmul(s, s->hidden, NULL, s->normed, layer.w_gate_up, num_rows, d, 2 * ff);
    swiglu_kernel<<<blocks, ELEMENT_THREADS, 0, s->stream>>>(s->gated, s->hidden, ff);
    matmul(s, s->x, s->x, s->gated, layer.w_down, num_rows, ff, d);
}

/* What was started, for those who ask. */
static void note(const lm_backend *backend, const char *what, int32_t rows, int32_t silent) {
    if (!backend->log) return;
    fprintf(backend->log, "launch %s %d", what, (int)rows);
    if (silent) fprintf(backend->log, " and %d", (int)silent);
    fprintf(backend->log, "\n");
}

/* ---- host: from logits to tokens ------------------------------------------------------------ */

/* Of one pass of a model: a token for each of up to `batch` rows. */
static specv_sample_desc sample_desc(const gpu_state *s, int which) {
    specv_sample_desc d = SPECV_ZERO;
    d.num_active = &s->sample->num_active;
    d.batch = s->limits.batch;
    d.vocab = s->models[LM_TARGET].dims.vocab;
    d.scores.data = s->logits;
    d.temperature = s->temperature;
    d.seed = s->sample->seed;
    d.position = s->sample->position;
    d.filters = lm_filters_of(s->filters, &s->sampling, which);
    if (which == LM_TARGET) d.emitted = s->told;
    d.token = s->sampled;
    d.max_prob = s->cache.max_prob;
    d.scratch = s->kit_scratch;
    d.scratch_bytes = s->kit_scratch_bytes;
    return d;
}

/* What random numbers the rows of a pass are to be drawn with. */
static int send_sample(lm_backend *backend, const lm_row *rows, int32_t num_rows, lm_pick pick) {
    const gpu_state *s = (const gpu_state *)backend->state;
    sample_in in;
    note(backend, "sample", num_rows, 0);
    memset(&in, 0, sizeof in);
    in.num_active = num_rows;
    for (int32_t r = 0; r < num_rows; r++) {
        in.seed[r] = rows[r].seed;
        in.position[r] = rows[r].pos + 1 - pick.step_row; /* of the first token of the step */
    }
    return send(backend, s->sample, &in, sizeof in);
}

/* The rows are s->rows + first. */
static int draw(lm_backend *backend, specv_sample_desc d, int32_t num_rows, int32_t first,
                lm_pick pick) {
    const gpu_state *s = (const gpu_state *)backend->state;
    if (s->limits.particles && pick.stream == SPECV_STREAM_DRAFT)
        d.logprob = s->particles.draft_logprob + times(pick.step_row, s->limits.batch);
    d.method = pick.method == LM_PICK_GUMBEL ? SPECV_SAMPLE_GUMBEL : SPECV_SAMPLE_CDF;
    d.stream = pick.stream;
    d.step_row = pick.step_row;
    if (check_kit(backend, specv_sample(&d, s->stream)) != 0) return -1;
    place_kernel<<<1, (unsigned)num_rows, 0, s->stream>>>(s->cache.board, s->sampled,
                                                          s->rows + first);
    return check(backend, cudaGetLastError());
}

/* The largest probability of the law that each draft of a pass was drawn from; at temperature 0
 * that at temperature 1. Why: at the same place in cpu.c. */
static int keep_confidence(lm_backend *backend, int32_t num_rows, int32_t first) {
    const gpu_state *s = (const gpu_state *)backend->state;
    specv_sample_desc d = sample_desc(s, LM_DRAFT);
    d.temperature = s->warm;
    if (specv_temperature_is_0(s->sampling.temperature) &&
        (send_ints(backend, &s->sample->num_active, &num_rows, 1) != 0 ||
         check_kit(backend, specv_sample(&d, s->stream)) != 0))
        return -1;
    place_confidence_kernel<<<1, (unsigned)num_rows, 0, s->stream>>>(s->cache, s->rows + first);
    return check(backend, cudaGetLastError());
}

/* The rows are in s->rows. keeps: their logits are kept. */
static int run_pass(lm_backend *backend, int which, int32_t num_rows, int32_t num_silent,
                    lm_pick pick, int keeps) {
    const gpu_state *s = (const gpu_state *)backend->state;
    const gpu_model *m = &s->models[which];
    const lm_view view = lm_view_of(&m->dims, m->weights);
    const int32_t d = m->dims.d_model, vocab = m->dims.vocab, num_loud = num_rows - num_silent;
    embed_kernel<<<(unsigned)num_rows, ELEMENT_THREADS, 0, s->stream>>>(
        s->x, view.tok_emb, s->cache.board, s->rows, vocab, d);
    for (int32_t l = 0; l < m->dims.num_layers; l++) layer_forward(s, m, l, num_rows);
    if (num_loud > 0) {
        rms_norm_kernel<<<(unsigned)num_loud, WARP, 0, s->stream>>>(
            s->normed, s->x + times(num_silent, d), view.final_norm, d);
        matmul(s, s->logits, NULL, s->normed, view.head, num_loud, d, vocab);
        if (pick.method == LM_PICK_LARGEST)
            argmax_kernel<<<(unsigned)num_loud, WARP, 0, s->stream>>>(s->cache.board, s->logits,
                                                                      s->rows + num_silent, vocab);
        if (keeps)
            keep_kernel<<<(unsigned)num_loud, ELEMENT_THREADS, 0, s->stream>>>(
                m->kept, s->logits, s->rows + num_silent, vocab);
    }
    return check(backend, cudaGetLastError());
}

static int gpu_forward(lm_backend *backend, int which, const lm_row *rows, int32_t num_rows,
                       int32_t num_silent, lm_pick pick) {
    const gpu_state *s = (const gpu_state *)backend->state;
    const int32_t num_loud = num_rows - num_silent;
    const int keeps = num_loud > 0 && rows[num_silent].keep_at >= 0; /* all of a pass, or none */
    note(backend, which == LM_TARGET ? "target" : "draft", num_loud, num_silent);
    if (send(backend, s->rows, rows, (size_t)num_rows * sizeof *rows) != 0 ||
        run_pass(backend, which, num_rows, num_silent, pick, keeps) != 0)
        return -1;
    if ((pick.method == LM_PICK_CDF || pick.method == LM_PICK_GUMBEL) &&
        (send_sample(backend, rows + num_silent, num_loud, pick) != 0 ||
         draw(backend, sample_desc(s, which), num_loud, num_silent, pick) != 0))
        return -1;
    if (which == LM_DRAFT && s->limits.budget && num_loud > 0)
        return keep_confidence(backend, num_loud, num_silent);
    return 0;
}

/* ---- host: verification: the kit's work ------------------------------------------------------ */

static specv_verify_greedy_desc verify_desc(const gpu_state *s) {
    specv_verify_greedy_desc d = lm_verify(&s->cache);
    d.target_tokens = s->cache.board + s->limits.target_at;
    d.vocab = s->models[LM_TARGET].dims.vocab;
    return d;
}

static specv_verify_sample_desc verify_sample_desc(const gpu_state *s) {
    specv_verify_sample_desc d = SPECV_ZERO;
    d.verify = verify_desc(s);
    d.verify.target_tokens = NULL;
    d.rule = s->sampling.rule;
    d.target.data = s->models[LM_TARGET].kept;
    d.filters = lm_filters_of(s->filters, &s->sampling, LM_TARGET);
    if (s->sampling.use_draft_logits) {
        d.draft.data = s->models[LM_DRAFT].kept;
        d.draft_filters = lm_filters_of(s->filters, &s->sampling, LM_DRAFT);
    }
    d.lossy = lm_lossy_of(s->filters, &s->sampling);
    d.temperature = s->temperature;
    d.seed = s->in->seed;
    d.position = s->in->position;
    d.emitted = s->told;
    d.lse = s->particles.lse;
    d.target_logprob = s->particles.target_logprob; /* null but for rule smc */
    d.scratch = s->kit_scratch;
    d.scratch_bytes = s->kit_scratch_bytes;
    return d;
}

static int judge_trees(const gpu_state *s) {
    specv_verify_tree_desc d = lm_verify_tree(&s->cache, &s->trees, &s->sampling);
    if (!s->sampling.by_choice) {
        d.target.data = s->models[LM_TARGET].kept;
        d.filters = lm_filters_of(s->filters, &s->sampling, LM_TARGET);
    }
    if (s->sampling.use_draft_logits) d.draft.data = s->models[LM_DRAFT].kept; /* drawn without */
    d.temperature = s->temperature;
    d.seed = s->in->seed;
    d.position = s->in->position;
    d.scratch = s->kit_scratch;
    d.scratch_bytes = s->kit_scratch_bytes;
    return specv_verify_tree(&d, s->stream);
}

static int judge(const gpu_state *s) {
    const specv_verify_greedy_desc greedy = verify_desc(s);
    const specv_verify_sample_desc sampled = verify_sample_desc(s);
    if (s->limits.nodes) return judge_trees(s);
    if (s->sampling.by_choice) return specv_verify_greedy(&greedy, s->stream);
    return specv_verify_sample(&sampled, s->stream);
}

static int gpu_read_told(lm_backend *backend, void *told) {
    const gpu_state *s = (const gpu_state *)backend->state;
    const size_t bytes = lm_told_bytes(&s->sampling, &s->limits);
    return fetch(backend, told, s->told.logprob, bytes);
}

static int gpu_spend(lm_backend *backend, int32_t num_seqs, int32_t *draft_len) {
    const gpu_state *s = (const gpu_state *)backend->state;
    const specv_draft_budget_desc d = lm_spend(&s->cache);
    if (send_ints(backend, s->cache.num_active, &num_seqs, 1) != 0 ||
        send_ints(backend, s->cache.draft_len, draft_len, num_seqs) != 0 ||
        check_kit(backend, specv_draft_budget(&d, s->stream)) != 0)
        return -1;
    return fetch(backend, draft_len, s->cache.draft_len, (size_t)num_seqs * sizeof *draft_len);
}

/* The step is in s->in. */
static int judge_and_count(lm_backend *backend, int32_t num_seqs) {
    const gpu_state *s = (const gpu_state *)backend->state;
    specv_accept_stats_desc stats = SPECV_ZERO;
    note(backend, "verify", num_seqs, 0);
    if (check_kit(backend, judge(s)) != 0) return -1;

    stats.accumulate = 1;
    stats.rows = verify_desc(s).rows;
    stats.accepted_len = s->cache.accepted_len;
    stats.num_emitted = s->cache.num_emitted;
    stats.histogram = s->histogram;
    stats.totals = s->totals;
    note(backend, "accept_stats", num_seqs, 0);
    return check_kit(backend, specv_accept_stats(&stats, s->stream));
}

static int gpu_verify(lm_backend *backend, const lm_step *step) {
    const gpu_state *s = (const gpu_state *)backend->state;
    const size_t bytes = (size_t)step->num_seqs * sizeof(int32_t);
    step_in in;
    memset(&in, 0, sizeof in);
    in.num_active = step->num_seqs;
    memcpy(in.draft_len, step->draft_len, bytes);
    memcpy(in.position, step->position, bytes);
    memcpy(in.draft_end, step->draft_end, bytes);
    memcpy(in.text_at, step->text_at, bytes);
    memcpy(in.seed, step->seed, (size_t)step->num_seqs * sizeof *in.seed);
    if (send(backend, s->in, &in, sizeof in) != 0) return -1;
    return judge_and_count(backend, step->num_seqs);
}

/* ---- host: caches: the kit's work, but for the texts of FIXED, RAGGED, PAGED ----------------- */

static int check_rows(lm_backend *backend, const uint32_t *row_status, int32_t num_seqs) {
    for (int32_t i = 0; i < num_seqs; i++)
        if (row_status[i]) {
            (void)snprintf(backend->message, sizeof backend->message,
                           "row_status of sequence %d is 0x%x", (int)i, (unsigned)row_status[i]);
            return -1;
        }
    return 0;
}

static void copy_cache(const gpu_state *s, gpu_model *m, const int32_t *end) {
    const dim3 grid((unsigned)s->cache.layout.max_columns, (unsigned)s->limits.slots,
                    (unsigned)m->kv.num_planes);
    const lm_kv from = m->kv, to = m->spare;
    copy_cache_kernel<<<grid, ELEMENT_THREADS, 0, s->stream>>>(s->cache, from, to, end);
    m->kv = to, m->spare = from;
}

static int shift_cache(const gpu_state *s, int which, const int32_t *end) {
    const specv_shift_kv_desc d = lm_shift(&s->cache, &s->models[which].kv, end);
    return specv_shift_kv(&d, s->stream);
}

static int commit_padded(gpu_state *s) {
    const int copies = s->cache.layout.copies;
    const specv_realign_desc d = lm_realign(&s->cache, copies ? NULL : &s->models[LM_TARGET].kv);
    const int status = specv_realign(&d, s->stream);
    if (status == SPECV_OK && !copies) return shift_cache(s, LM_DRAFT, s->cache.shift_end);
    if (status == SPECV_OK) {
        copy_cache(s, &s->models[LM_TARGET], NULL);
        copy_cache(s, &s->models[LM_DRAFT], s->cache.shift_end);
    }
    return status;
}

/* The rows of a path, to where the drafts of a chain would be. */
static int commit_paths(const gpu_state *s) {
    int status = SPECV_OK;
    for (int i = 0; i < LM_NUM_MODELS && status == SPECV_OK; i++) {
        const int which = i == 0 ? LM_DRAFT : LM_TARGET;
        const specv_commit_path_desc d =
            lm_commit_path(&s->cache, &s->trees, &s->models[which].kv, which);
        status = specv_commit_path(&d, s->stream);
    }
    return status;
}

static int gpu_commit(lm_backend *backend, const lm_step *step) {
    gpu_state *s = (gpu_state *)backend->state;
    const lm_cache *c = &s->cache;
    const size_t bytes = (size_t)step->num_seqs * sizeof(int32_t);
    int status = SPECV_OK;
    step_out out;
    if (s->limits.nodes) status = commit_paths(s);
    if (lm_is_paged(c) && !s->limits.nodes) {
        const specv_append_kv_desc d = lm_append(c, &s->models[LM_TARGET].kv, s->scratch_planes);
        status = specv_append_kv(&d, s->stream);
    } else if (c->layout.kind == LM_PADDED && status == SPECV_OK) {
        status = commit_padded(s);
    } else if (c->layout.kind == LM_GAP) {
        const specv_gap_commit_desc d = lm_gap_commit(c);
        status = specv_gap_commit(&d, s->stream);
    }
    if (check_kit(backend, status) != 0) return -1;
    if (!lm_is_aligned(c))
        commit_text_kernel<<<(unsigned)s->limits.batch, WARP, 0, s->stream>>>(
            c->board, c->out_tokens, c->num_emitted, s->in, s->limits.gamma + 1);
    if (check(backend, cudaGetLastError()) != 0 || fetch(backend, &out, s->out, sizeof out) != 0 ||
        check_rows(backend, out.row_status, step->num_seqs) != 0)
        return -1;
    memcpy(step->accepted_len, out.accepted_len, bytes);
    memcpy(step->num_emitted, out.num_emitted, bytes);
    *step->width = out.width;
    return 0;
}

/* Nobody is here: all pages are free, the first one is on top. */
static int free_all_pages(lm_backend *backend) {
    const gpu_state *s = (const gpu_state *)backend->state;
    const int32_t num_pages = s->cache.layout.num_pages;
    const size_t bytes = (size_t)num_pages * sizeof(int32_t);
    int32_t *pages = (int32_t *)malloc(bytes);
    int status;
    if (!pages) return fail(backend, "out of memory");
    for (int32_t i = 0; i < num_pages; i++) pages[i] = num_pages - 1 - i;
    status = send(backend, s->cache.free_pages, pages, bytes);
    free(pages);
    if (status != 0 || send_ints(backend, s->cache.num_free, &num_pages, 1) != 0) return -1;
    return check(backend, cudaMemsetAsync(s->cache.page_refs, 0, bytes, s->stream));
}

static int join_pages(lm_backend *backend, int32_t num_old, int32_t num_seqs, const int32_t *len) {
    const gpu_state *s = (const gpu_state *)backend->state;
    const lm_cache *c = &s->cache;
    const specv_page_resize_desc d = lm_resize(c, NULL, c->row_reserve, 0);
    const int32_t zero[LM_MAX_BATCH] = {0}, num_new = num_seqs - num_old;
    int32_t reserve[LM_MAX_BATCH];
    if (num_old == 0 && free_all_pages(backend) != 0) return -1;
    for (int32_t i = 0; i < num_seqs; i++) reserve[i] = i < num_old ? 0 : len[i] - 1;
    if (send_ints(backend, c->row_reserve, reserve, num_seqs) != 0 ||
        send_ints(backend, c->cache_len + num_old, zero, num_new) != 0 ||
        send_ints(backend, c->num_row_pages + num_old, zero, num_new) != 0 ||
        check_kit(backend, specv_page_resize(&d, s->stream)) != 0)
        return -1;
    return send_ints(backend, c->cache_len + num_old, reserve + num_old, num_new);
}

/* Those who were here have KV rows up to their pending tokens, in the last column. */
static int join_aligned(lm_backend *backend, int32_t num_old, int32_t num_seqs, const int32_t *len,
                        int32_t width) {
    const gpu_state *s = (const gpu_state *)backend->state;
    const lm_cache *c = &s->cache;
    const specv_realign_desc d = lm_realign_prompts(c);
    const int32_t num_new = num_seqs - num_old;
    int32_t prompt_len[LM_MAX_BATCH], pad_len[LM_MAX_BATCH], end[LM_MAX_BATCH];
    if (num_old == 0) width = 0;
    for (int32_t i = 0; i < num_seqs; i++) {
        prompt_len[i] = i < num_old ? 0 : len[i];
        pad_len[i] = width; /* of those who are new */
        end[i] = i < num_old ? width - 1 : 0;
    }
    if (send_ints(backend, c->width, &width, 1) != 0 ||
        send_ints(backend, c->prompt_len, prompt_len, num_seqs) != 0 ||
        send_ints(backend, c->pad_len + num_old, pad_len + num_old, num_new) != 0 ||
        send_ints(backend, c->text_len + num_old, len + num_old, num_new) != 0 ||
        send_ints(backend, c->shift_end, end, num_seqs) != 0 ||
        check_kit(backend, specv_realign(&d, s->stream)) != 0)
        return -1;
    if (num_old == 0) return 0;
    if (check_kit(backend, shift_cache(s, LM_TARGET, c->shift_end)) != 0) return -1;
    return check_kit(backend, shift_cache(s, LM_DRAFT, c->shift_end));
}

static int gpu_join(lm_backend *backend, int32_t num_old, int32_t num_seqs, const int32_t *len,
                    int32_t *width) {
    const gpu_state *s = (const gpu_state *)backend->state;
    step_out out;
    int status = send_ints(backend, s->cache.num_active, &num_seqs, 1);
    if (status == 0 && lm_is_paged(&s->cache)) status = join_pages(backend, num_old, num_seqs, len);
    if (status == 0 && lm_is_aligned(&s->cache))
        status = join_aligned(backend, num_old, num_seqs, len, *width);
    if (status != 0 || fetch(backend, &out, s->out, sizeof out) != 0) return -1;
    *width = out.width;
    return check_rows(backend, out.row_status, num_seqs);
}

static int gpu_prepare(lm_backend *backend, int32_t num_seqs) {
    const gpu_state *s = (const gpu_state *)backend->state;
    const specv_page_resize_desc d = lm_resize(&s->cache, NULL, NULL, lm_step_columns(&s->limits));
    if (!lm_is_paged(&s->cache)) return 0;
    if (send_ints(backend, s->cache.num_active, &num_seqs, 1) != 0) return -1;
    return check_kit(backend, specv_page_resize(&d, s->stream));
}

static int gpu_leave(lm_backend *backend, int32_t num_seqs, const uint8_t *finished) {
    const gpu_state *s = (const gpu_state *)backend->state;
    const lm_cache *c = &s->cache;
    const specv_page_resize_desc give_back = lm_resize(c, c->finished, NULL, 0);
    const specv_compact_desc d = lm_compact(c, &s->models[LM_TARGET].kv, &s->models[LM_DRAFT].kv);
    if (send_ints(backend, c->num_active, &num_seqs, 1) != 0 ||
        send(backend, c->finished, finished, (size_t)num_seqs) != 0)
        return -1;
    if (lm_is_paged(c) && check_kit(backend, specv_page_resize(&give_back, s->stream)) != 0)
        return -1;
    return check_kit(backend, specv_compact(&d, s->stream));
}

static int gpu_move(lm_backend *backend, const int32_t *len, const int32_t *pad, int back) {
    const gpu_state *s = (const gpu_state *)backend->state;
    const lm_cache *c = &s->cache;
    const int32_t slots = s->limits.slots;
    const size_t status_bytes = (size_t)slots * sizeof *c->row_status;
    specv_shift shifts[LM_MAX_BATCH];
    int32_t pad_len[LM_MAX_BATCH];
    for (int32_t i = 0; i < slots; i++) {
        const specv_shift shift = {back ? pad[i] : 0, pad[i] ? len[i] : 0, back ? -pad[i] : pad[i],
                                   0};
        shifts[i] = shift;
        pad_len[i] = back ? 0 : pad[i];
    }
    if (send_ints(backend, c->num_active, &slots, 1) != 0 ||
        send(backend, c->shifts, shifts, (size_t)slots * sizeof *shifts) != 0 ||
        send_ints(backend, c->pad_len, pad_len, slots) != 0 ||
        check(backend, cudaMemsetAsync(c->row_status, 0, status_bytes, s->stream)) != 0 ||
        check_kit(backend, shift_cache(s, LM_TARGET, NULL)) != 0)
        return -1;
    return check_kit(backend, shift_cache(s, LM_DRAFT, NULL)); /* the commit looks at row_status */
}

static int gpu_group(lm_backend *backend, const int32_t *len, int32_t num_seqs, int32_t count,
                     int32_t *picked, int32_t *is_group) {
    const gpu_state *s = (const gpu_state *)backend->state;
    const lm_cache *c = &s->cache;
    const specv_group_desc d = lm_group(c, count);
    if (send_ints(backend, c->num_active, &num_seqs, 1) != 0 ||
        send_ints(backend, c->prompt_len, len, num_seqs) != 0 ||
        check_kit(backend, specv_group(&d, s->stream)) != 0 ||
        fetch(backend, is_group, c->new_num_active, sizeof *is_group) != 0)
        return -1;
    return fetch(backend, picked, c->active, (size_t)count * sizeof *picked);
}

/* ---- host: state ---------------------------------------------------------------------------- */

static int send_planes(lm_backend *backend, const lm_kv *kv, int32_t page_size) {
    void *planes[2 * LM_MAX_LAYERS];
    for (int32_t plane = 0; plane < kv->num_planes; plane++)
        planes[plane] = kv->data + times(plane, page_size) * (size_t)kv->d_model;
    return send(backend, kv->planes, planes, (size_t)kv->num_planes * sizeof *planes);
}

/* Slot i has page i. RAGGED and PAGED change that when a sequence joins. */
static int send_table(lm_backend *backend) {
    const gpu_state *s = (const gpu_state *)backend->state;
    int32_t table[LM_MAX_BATCH];
    if (s->cache.layout.kind == LM_PAGED) return 0;
    for (int32_t slot = 0; slot < s->limits.slots; slot++) table[slot] = slot;
    return send_ints(backend, s->cache.table, table, s->limits.slots);
}

/* All bits set is a NaN. */
static int gpu_begin(lm_backend *backend, const lm_layout *layout) {
    gpu_state *s = (gpu_state *)backend->state;
    const size_t scratch_bytes = scratch_size(s) * sizeof(float);
    const size_t slot_bytes = (size_t)s->limits.slots * sizeof(int32_t);
    lm_cache *c = &s->cache;
    c->layout = *layout;
    c->table_stride_elems = (layout->max_columns + layout->page_size - 1) / layout->page_size;
    if (send_table(backend) != 0 ||
        check(backend, cudaMemsetAsync(c->pad_len, 0, slot_bytes, s->stream)) != 0 ||
        check(backend, cudaMemsetAsync(c->row_status, 0, slot_bytes, s->stream)) != 0)
        return -1;
    for (int which = 0; which < LM_NUM_MODELS; which++) {
        const gpu_model *m = &s->models[which];
        const size_t cache_bytes = cache_size(s, m) * sizeof(float);
        const size_t kept_bytes = kept_size(s, m) * sizeof(float);
        if (check(backend, cudaMemsetAsync(m->kv.data, 0xff, cache_bytes, s->stream)) != 0 ||
            check(backend, cudaMemsetAsync(m->kept, 0xff, kept_bytes, s->stream)) != 0 ||
            send_planes(backend, &m->kv, layout->page_size) != 0)
            return -1;
        if (m->spare.data && send_planes(backend, &m->spare, layout->page_size) != 0) return -1;
    }
    return check(backend, cudaMemsetAsync(s->scratch, 0xff, scratch_bytes, s->stream));
}

static int gpu_write_board(lm_backend *backend, int32_t at, const int32_t *tokens, int32_t count) {
    const gpu_state *s = (const gpu_state *)backend->state;
    return send_ints(backend, s->cache.board + at, tokens, count);
}

static int gpu_read_board(lm_backend *backend, int32_t at, int32_t *tokens, int32_t count) {
    const gpu_state *s = (const gpu_state *)backend->state;
    return fetch(backend, tokens, s->cache.board + at, (size_t)count * sizeof *tokens);
}

static int gpu_read_cache(lm_backend *backend, int which, int32_t plane, int32_t slot,
                          const int32_t *columns, int32_t count, float *rows) {
    const gpu_state *s = (const gpu_state *)backend->state;
    lm_kv kv = s->models[which].kv;
    const size_t row_bytes = (size_t)kv.d_model * sizeof(float);
    lm_cache here = s->cache; /* with the slot's part of the table on the host */
    const size_t table_bytes = (size_t)here.table_stride_elems * sizeof(int32_t);
    const int32_t *there =
        (kv.table ? kv.table : here.table) + times(slot, here.table_stride_elems);
    int status;
    here.table = (int32_t *)malloc(table_bytes);
    if (!here.table) return fail(backend, "out of memory");
    status = fetch(backend, here.table, there, table_bytes);
    kv.table = NULL;
    for (int32_t i = 0; i < count && status == 0; i++)
        status = check(backend, cudaMemcpyAsync(rows + times(i, kv.d_model),
                                                lm_kv_row(here, kv, plane, 0, columns[i]),
                                                row_bytes, cudaMemcpyDeviceToHost, s->stream));
    free(here.table);
    return status != 0 ? -1 : check(backend, cudaStreamSynchronize(s->stream));
}

static int gpu_read_stats(lm_backend *backend, int64_t *histogram, int64_t *totals) {
    const gpu_state *s = (const gpu_state *)backend->state;
    const size_t histogram_bytes = (size_t)(s->limits.gamma + 1) * sizeof *histogram;
    if (fetch(backend, histogram, s->histogram, histogram_bytes) != 0) return -1;
    return fetch(backend, totals, s->totals, SPECV_STAT_COUNT * sizeof *totals);
}

static double gpu_seconds(lm_backend *backend) {
    const gpu_state *s = (const gpu_state *)backend->state;
    struct timespec now;
    (void)cudaStreamSynchronize(s->stream); /* an error shows at the next call that is checked */
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int gpu_close(lm_backend *backend) {
    gpu_state *s = (gpu_state *)backend->state;
    const char *const flaw = arena_flaw(&s->memory);
    (void)cudaFree(s->memory.base);
    if (s->stream) (void)cudaStreamDestroy(s->stream);
    free(s);
    backend->state = NULL;
    return flaw ? fail(backend, flaw) : 0;
}

/* Zeroed device memory until gpu_close; null while it is only measured. */
static void *zeroed(void *backend, size_t count, size_t size) {
    return arena_take(&((gpu_state *)backend)->memory, count * size);
}

static float *floats(gpu_state *s, size_t count) {
    return (float *)zeroed(s, count, sizeof(float));
}

static void upload(gpu_state *s, void *to, const void *from, size_t bytes) {
    cudaError_t *const error = &s->memory.error;
    if (*error == cudaSuccess) *error = cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice);
}

static void allocate_kv(gpu_state *s, const gpu_model *m, lm_kv *kv) {
    kv->num_planes = 2 * m->dims.num_layers;
    kv->d_model = m->dims.d_model;
    kv->data = floats(s, times(s->limits.cache_columns, kv->d_model) * (size_t)kv->num_planes);
    kv->planes = (void **)zeroed(s, (size_t)kv->num_planes, sizeof(void *));
}

static void allocate_models(gpu_state *s, const lm_model *models) {
    for (int which = 0; which < LM_NUM_MODELS; which++) {
        gpu_model *m = &s->models[which];
        m->dims = models[which].dims;
        m->weights = floats(s, models[which].num_weights);
        allocate_kv(s, m, &m->kv);
        if (s->limits.copies) allocate_kv(s, m, &m->spare);
        m->kept = floats(s, kept_size(s, m));
    }
}

static void allocate_cache(gpu_state *s) {
    lm_cache *c = &s->cache;
    s->in = (step_in *)zeroed(s, 1, sizeof(step_in));
    s->out = (step_out *)zeroed(s, 1, sizeof(step_out));
    lm_allocate_cache(c, &s->limits, zeroed, s);
    lm_allocate_trees(c, &s->trees, zeroed, s);
}

static void allocate_activations(gpu_state *s) {
    const lm_dims *a = &s->models[LM_TARGET].dims, *b = &s->models[LM_DRAFT].dims;
    const size_t d = (size_t)(a->d_model > b->d_model ? a->d_model : b->d_model);
    const size_t ff = (size_t)(a->d_ff > b->d_ff ? a->d_ff : b->d_ff);
    const size_t rows = (size_t)s->limits.max_rows;
    s->rows = (lm_row *)zeroed(s, rows, sizeof(lm_row));
    s->x = floats(s, rows * d);
    s->normed = floats(s, rows * d);
    s->qkv = floats(s, rows * 3 * d);
    s->attended = floats(s, rows * d);
    s->hidden = floats(s, rows * 2 * ff);
    s->gated = floats(s, rows * ff);
    s->logits = floats(s, rows * (size_t)a->vocab);
}

static void allocate_verification(gpu_state *s) {
    const size_t num_planes = (size_t)s->models[LM_TARGET].kv.num_planes;
    s->scratch = floats(s, scratch_size(s));
    s->scratch_planes = (void **)zeroed(s, num_planes, sizeof(void *));
    s->histogram = (int64_t *)zeroed(s, (size_t)s->limits.gamma + 1, sizeof(int64_t));
    s->totals = (int64_t *)zeroed(s, SPECV_STAT_COUNT, sizeof(int64_t));
}

/* The kit's scratch memory: a sampler's batch needs no more than a verification's. */
static int allocate_sampling(gpu_state *s) {
    const size_t batch = (size_t)s->limits.batch;
    s->temperature = floats(s, batch);
    s->warm = floats(s, batch);
    s->sampled = (int32_t *)zeroed(s, batch, sizeof(int32_t));
    s->sample = (sample_in *)zeroed(s, 1, sizeof(sample_in));
    s->filters = (lm_filter_arrays *)zeroed(s, 1, sizeof(lm_filter_arrays));
    s->told_memory = zeroed(s, lm_told_bytes(&s->sampling, &s->limits), 1);
    s->kit_scratch_bytes = lm_kit_scratch_bytes(&s->limits, s->models[LM_TARGET].dims.vocab);
    if (s->kit_scratch_bytes < 0) return (int)s->kit_scratch_bytes;
    s->kit_scratch = zeroed(s, (size_t)s->kit_scratch_bytes, 1);
    return SPECV_OK;
}

/* ---- host: what the memory holds before the first step --------------------------------------- */

/* Addresses inside the blocks of a step. */
static void connect(gpu_state *s) {
    lm_cache *c = &s->cache;
    c->num_active = &s->in->num_active;
    c->draft_len = s->in->draft_len;
    c->shift_end = s->in->draft_end;
    c->accepted_len = s->out->accepted_len;
    c->num_emitted = s->out->num_emitted;
    c->row_status = s->out->row_status;
    c->width = &s->out->width;
    s->told =
        lm_emitted_in(s->told_memory, &s->sampling, times(s->limits.batch, s->limits.gamma + 1));
}

static void upload_models(gpu_state *s, const lm_model *models) {
    const size_t num_planes = (size_t)s->models[LM_TARGET].kv.num_planes;
    void *planes[2 * LM_MAX_LAYERS];
    for (int which = 0; which < LM_NUM_MODELS; which++)
        upload(s, s->models[which].weights, models[which].weights,
               models[which].num_weights * sizeof(float));
    for (size_t plane = 0; plane < num_planes; plane++)
        planes[plane] = s->scratch + plane * (scratch_size(s) / num_planes);
    upload(s, s->scratch_planes, planes, num_planes * sizeof(void *));
}

static void upload_sampling(gpu_state *s) {
    const size_t batch = (size_t)s->limits.batch;
    float temperature[LM_MAX_BATCH], warm[LM_MAX_BATCH];
    lm_filter_arrays filters;
    for (size_t i = 0; i < batch; i++) temperature[i] = s->sampling.temperature, warm[i] = 1;
    lm_fill_filters(&filters, &s->sampling);
    upload(s, s->filters, &filters, sizeof filters);
    upload(s, s->warm, warm, batch * sizeof(float));
    upload(s, s->temperature, temperature, batch * sizeof(float));
    for (size_t i = 0; i < (size_t)s->limits.width; i++)
        upload(s, s->trees.temperature + i * batch, temperature, batch * sizeof(float));
}

/* ---- host: particles, trees ------------------------------------------------------------------ */

typedef gpu_state lm_state;

#define KIT(name, d)                specv_##name(d, s->stream)
#define kit_status(backend, status) check_kit(backend, status)

static int commit_text(lm_backend *backend, int32_t num_rows) {
    const gpu_state *s = (const gpu_state *)backend->state;
    commit_text_kernel<<<(unsigned)num_rows, WARP, 0, s->stream>>>(
        s->cache.board, s->cache.out_tokens, s->cache.num_emitted, s->in, s->limits.gamma + 1);
    return check(backend, cudaGetLastError());
}

#include "particles.h"

#include "trees.h"

/* ---- host: open ----------------------------------------------------------------------------- */

/* All buffers: without memory their sizes alone, by models' dimensions, limits and sampling. */
static int lay_out(gpu_state *s, const lm_model *models, size_t bytes_beside) {
    allocate_models(s, models);
    allocate_cache(s);
    allocate_activations(s);
    allocate_verification(s);
    allocate_particles(s);
    s->beside = zeroed(s, bytes_beside, 1);
    return allocate_sampling(s);
}

/* With so many bytes for the program itself, where gpu_state says. */
static int gpu_open_beside(lm_backend *backend, const lm_model *models, const lm_limits *limits,
                           const lm_sampling *sampling, size_t bytes_beside) {
    gpu_state *s = (gpu_state *)calloc(1, sizeof *s);
    cudaError_t error;
    int status;
    if (!s) return fail(backend, "out of memory");
    backend->state = s;
    s->limits = *limits;
    s->sampling = *sampling;
    s->memory.error = cudaStreamCreate(&s->stream);
    status = lay_out(s, models, bytes_beside);
    if (status == SPECV_OK) arena_open(&s->memory);
    if (s->memory.base && s->memory.error == cudaSuccess) {
        (void)lay_out(s, models, bytes_beside); /* as before */
        connect(s);
        upload_models(s, models);
        upload_sampling(s);
    }
    error = s->memory.error == cudaSuccess ? cudaDeviceSynchronize() : s->memory.error;
    if (error == cudaSuccess && status == SPECV_OK) return 0;
    (void)gpu_close(backend);
    return error == cudaSuccess ? check_kit(backend, status) : check(backend, error);
}

static int gpu_open(lm_backend *backend, const lm_model models[LM_NUM_MODELS],
                    const lm_limits *limits, const lm_sampling *sampling) {
    return gpu_open_beside(backend, models, limits, sampling, 0);
}

int lm_gpu_available(void) {
    int count = 0;
    if (cudaGetDeviceCount(&count) == cudaSuccess) return count > 0;
    (void)cudaGetLastError(); /* no driver is an answer, not an error to carry along */
    return 0;
}

void lm_gpu_backend(lm_backend *backend) {
    memset(backend, 0, sizeof *backend);
    backend->name = "gpu";
    backend->open = gpu_open;
    backend->close = gpu_close;
    backend->begin = gpu_begin;
    backend->join = gpu_join;
    backend->write_board = gpu_write_board;
    backend->read_board = gpu_read_board;
    backend->prepare = gpu_prepare;
    backend->forward = gpu_forward;
    backend->spend = gpu_spend;
    backend->verify = gpu_verify;
    backend->read_told = gpu_read_told;
    backend->commit = gpu_commit;
    backend->leave = gpu_leave;
    backend->move = gpu_move;
    backend->group = gpu_group;
    backend->read_cache = gpu_read_cache;
    backend->read_stats = gpu_read_stats;
    backend->seconds = gpu_seconds;
    use_particles(backend);
    use_trees(backend);
}
