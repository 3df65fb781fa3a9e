/* SPDX-License-Identifier: MIT-0
 *
 * gpu.cu - the CUDA backend of tiny_lm. One stream; the host learns of a step only at its commit.
 * Kernels are plain: a thread per output where outputs are many, a warp per row where a row is
 * reduced. What each output sums, and in which order, is that of cpu.c, operation by operation.
 */
#define SPECVERIFY_IMPLEMENTATION
#include "specverify.cuh"

#include "lm.h"
#include "lm_math.h"

#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WARP = 32, ELEMENT_THREADS = 128 };
enum { MATMUL_THREADS = 64, MATMUL_ROWS = 8, MATMUL_DEPTH = 128 };
#define ALL_LANES 0xffffffffu

/* One model with its KV cache. plane = 2 * layer for K, 2 * layer + 1 for V. */
typedef struct gpu_model {
    lm_dims dims;
    float *weights;
    float *cache; /* [plane][batch][max_seq][d_model] */
    float *kept;  /* [batch * (gamma + 1)][vocab] logits that verification asks for */
} gpu_model;

/* What the host tells the device about a step, and what it wants back: one copy each. */
typedef struct step_in {
    int32_t num_active;
    int32_t slot[LM_MAX_BATCH], draft_len[LM_MAX_BATCH], cache_end[LM_MAX_BATCH];
    int32_t text_at[LM_MAX_BATCH];
    uint64_t seed[LM_MAX_BATCH];
} step_in;

typedef struct step_out {
    int32_t accepted_len[LM_MAX_BATCH], num_emitted[LM_MAX_BATCH];
} step_out;

/* The same of a pass that samples. */
typedef struct sample_in {
    int32_t num_active;
    int32_t position[LM_MAX_BATCH];
    uint64_t seed[LM_MAX_BATCH];
} sample_in;

enum { MAX_BLOCKS = 40 };

typedef struct gpu_state {
    lm_limits limits;
    lm_sampling sampling;
    gpu_model models[LM_NUM_MODELS];
    cudaStream_t stream;
    int32_t *board; /* [board_size] */

    /* one pass, [max_rows][...] */
    lm_row *rows;
    float *x, *normed, *qkv, *attended, *hidden, *gated, *logits;

    /* sampling; one scratch memory, as the kit's launches come one after the other */
    float *temperature; /* [batch] */
    int32_t *sampled;   /* [batch] */
    sample_in *sample;
    void *kit_scratch;
    int64_t kit_scratch_bytes;

    /* verification: target KV rows of the drafts, and what the kit packs and reports */
    float *scratch;      /* [plane][batch][gamma][d_model] */
    float *packed;       /* [plane][batch * gamma][d_model] */
    void **planes;       /* [2][num_planes]: where each plane starts in scratch, then in packed */
    int32_t *offsets;    /* [batch + 1] */
    int32_t *out_tokens; /* [batch][gamma + 1] */
    step_in *in;
    step_out *out;
    int64_t *histogram; /* [gamma + 1] */
    int64_t *totals;    /* [SPECV_STAT_COUNT] */

    void *blocks[MAX_BLOCKS]; /* all of the above, to free */
    int num_blocks;
    cudaError_t error; /* the first while opening */
} gpu_state;

/* Where the KV rows of one model are. */
typedef struct kv_places {
    float *cache, *scratch;
    int32_t batch, gamma, max_seq, d_model;
} kv_places;

/* ---- kernels -------------------------------------------------------------------------------- */

/* In the cache, or still in the verify scratch. */
static __device__ float *kv_row(kv_places kv, int32_t plane, lm_row row, int32_t pos) {
    int64_t index;
    if (pos < row.cache_end) {
        index = ((int64_t)plane * kv.batch + row.slot) * kv.max_seq + pos;
        return kv.cache + index * kv.d_model;
    }
    index = ((int64_t)plane * kv.batch + row.seq) * kv.gamma + (pos - row.cache_end);
    return kv.scratch + index * kv.d_model;
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

/* RoPE on q and k; k and v to where kv_row says. Block: one row, a pair of elements per turn. */
static __global__ void rotate_and_store_kernel(float *qkv, const float *rope, const lm_row *rows,
                                               kv_places kv, int32_t layer, int32_t head_dim) {
    const lm_row row = rows[blockIdx.x];
    const int32_t d = kv.d_model;
    float *const q = qkv + (int64_t)blockIdx.x * 3 * d;
    float *const k_row = kv_row(kv, 2 * layer, row, row.pos);
    float *const v_row = kv_row(kv, 2 * layer + 1, row, row.pos);
    for (int32_t i = 2 * (int32_t)threadIdx.x; i < 2 * d; i += 2 * (int32_t)blockDim.x) {
        const float *const turn = rope + (int64_t)row.pos * head_dim + i % head_dim;
        const float even = q[i], odd = q[i + 1];
        const float new_even = lm_mac(lm_mul(even, turn[0]), -odd, turn[1]);
        const float new_odd = lm_mac(lm_mul(even, turn[1]), odd, turn[0]);
        float *const to = i < d ? q + i : k_row + i - d;
        to[0] = new_even, to[1] = new_odd;
    }
    for (int32_t i = (int32_t)threadIdx.x; i < d; i += (int32_t)blockDim.x) v_row[i] = q[2 * d + i];
}

/* Block: one warp, one row (x) and one head (y). */
static __global__ void attend_kernel(float *out, const float *qkv, const lm_row *rows, kv_places kv,
                                     int32_t layer, int32_t head_dim, float scale) {
    extern __shared__ float scores[]; /* [max_seq] */
    const lm_row row = rows[blockIdx.x];
    const int32_t lane = (int32_t)threadIdx.x, num_pos = row.pos + 1;
    const int32_t first = (int32_t)blockIdx.y * head_dim;
    const float *const q = qkv + (int64_t)blockIdx.x * 3 * kv.d_model + first;
    float top = -INFINITY, partial = 0, inverse;
    for (int32_t pos = lane; pos < num_pos; pos += WARP) {
        const float *const k = kv_row(kv, 2 * layer, row, pos) + first;
        float sum = 0;
        for (int32_t i = 0; i < head_dim; i++) sum = lm_mac(sum, q[i], k[i]);
        scores[pos] = lm_mul(sum, scale);
        if (scores[pos] > top) top = scores[pos];
    }
    for (int half = WARP / 2; half > 0; half /= 2) {
        const float other = __shfl_xor_sync(ALL_LANES, top, half);
        if (other > top) top = other;
    }
    for (int32_t pos = lane; pos < num_pos; pos += WARP) {
        scores[pos] = lm_exp(lm_add(scores[pos], -top));
        partial = lm_add(partial, scores[pos]);
    }
    inverse = lm_div(1.0f, __shfl_sync(ALL_LANES, halving_tree(partial), 0));
    __syncwarp();
    for (int32_t i = lane; i < head_dim; i += WARP) {
        float sum = 0;
        for (int32_t pos = 0; pos < num_pos; pos++)
            sum = lm_mac(sum, scores[pos], kv_row(kv, 2 * layer + 1, row, pos)[first + i]);
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

/* Packed KV rows to the cache. Block: one packed row (x) of one plane (y); surplus blocks leave. */
static __global__ void commit_kv_kernel(kv_places kv, const float *packed, const int32_t *offsets,
                                        const step_in *in) {
    const int32_t packed_row = (int32_t)blockIdx.x, plane = (int32_t)blockIdx.y;
    const int64_t capacity_rows = gridDim.x;
    if (packed_row >= offsets[kv.batch]) return;
    const int32_t seq = specv_thread_find_row(offsets, kv.batch, packed_row);
    const int32_t pos = in->cache_end[seq] + (packed_row - offsets[seq]);
    const lm_row committed = {0, 0, 0, in->slot[seq], pos, 0, kv.max_seq, 0}; /* in the cache */
    specv_block_copy_kv(kv_row(kv, plane, committed, pos),
                        packed + (plane * capacity_rows + packed_row) * kv.d_model,
                        kv.d_model * (int64_t)sizeof(float));
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
    return 2 * times(m->dims.num_layers, s->limits.batch) * times(m->dims.max_seq, m->dims.d_model);
}

static size_t scratch_size(const gpu_state *s) {
    const lm_dims *dims = &s->models[LM_TARGET].dims;
    return 2 * times(dims->num_layers, dims->d_model) * times(s->limits.batch, s->limits.gamma);
}

static size_t kept_size(const gpu_state *s, const gpu_model *m) {
    return times(s->limits.batch, s->limits.gamma + 1) * (size_t)m->dims.vocab;
}

static kv_places places_of(const gpu_state *s, const gpu_model *m) {
    const kv_places kv = {m->cache,        s->scratch,      s->limits.batch,
                          s->limits.gamma, m->dims.max_seq, m->dims.d_model};
    return kv;
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
    const size_t scores_bytes = (size_t)m->dims.max_seq * sizeof(float);
    const lm_layer layer = lm_layer_of(&m->dims, m->weights, index);
    const float *const rope = lm_view_of(&m->dims, m->weights).rope;
    const kv_places kv = places_of(s, m);
    rms_norm_kernel<<<blocks, WARP, 0, s->stream>>>(s->normed, s->x, layer.attn_norm, d);
    matmul(s, s->qkv, NULL, s->normed, layer.wqkv, num_rows, d, 3 * d);
    rotate_and_store_kernel<<<blocks, ELEMENT_THREADS, 0, s->stream>>>(s->qkv, rope, s->rows, kv,
                                                                       index, head_dim);
    attend_kernel<<<dim3(blocks, (unsigned)m->dims.num_heads), WARP, scores_bytes, s->stream>>>(
        s->attended, s->qkv, s->rows, kv, index, head_dim, scale);
    matmul(s, s->x, s->x, s->attended, layer.wo, num_rows, d, d);

    rms_norm_kernel<<<blocks, WARP, 0, s->stream>>>(s->normed, s->x, layer.ffn_norm, d);
    matmul(s, s->hidden, NULL, s->normed, layer.w_gate_up, num_rows, d, 2 * ff);
    swiglu_kernel<<<blocks, ELEMENT_THREADS, 0, s->stream>>>(s->gated, s->hidden, ff);
    matmul(s, s->x, s->x, s->gated, layer.w_down, num_rows, ff, d);
}

/* ---- host: from logits to tokens ------------------------------------------------------------ */

/* Of one pass: a token for each of up to `batch` rows. */
static specv_sample_desc sample_desc(const gpu_state *s) {
    specv_sample_desc d = SPECV_ZERO;
    d.num_active = &s->sample->num_active;
    d.batch = s->limits.batch;
    d.vocab = s->models[LM_TARGET].dims.vocab;
    d.scores.data = s->logits;
    d.temperature = s->temperature;
    d.seed = s->sample->seed;
    d.position = s->sample->position;
    d.token = s->sampled;
    d.scratch = s->kit_scratch;
    d.scratch_bytes = s->kit_scratch_bytes;
    return d;
}

/* s->rows + first are these rows on the device. */
static int sample(lm_backend *backend, const lm_row *rows, int32_t num_rows, int32_t first,
                  lm_pick pick) {
    const gpu_state *s = (const gpu_state *)backend->state;
    specv_sample_desc d = sample_desc(s);
    sample_in in;
    memset(&in, 0, sizeof in);
    in.num_active = num_rows;
    for (int32_t r = 0; r < num_rows; r++) {
        in.seed[r] = rows[r].seed;
        in.position[r] = rows[r].pos + 1 - pick.step_row; /* of the first token of the step */
    }
    if (check(backend,
              cudaMemcpyAsync(s->sample, &in, sizeof in, cudaMemcpyHostToDevice, s->stream)) != 0)
        return -1;
    d.method = pick.method == LM_PICK_GUMBEL ? SPECV_SAMPLE_GUMBEL : SPECV_SAMPLE_CDF;
    d.stream = pick.stream;
    d.step_row = pick.step_row;
    if (check_kit(backend, specv_sample(&d, s->stream)) != 0) return -1;
    place_kernel<<<1, (unsigned)num_rows, 0, s->stream>>>(s->board, s->sampled, s->rows + first);
    return check(backend, cudaGetLastError());
}

static int gpu_forward(lm_backend *backend, int which, const lm_row *rows, int32_t num_rows,
                       int32_t num_silent, lm_pick pick) {
    const gpu_state *s = (const gpu_state *)backend->state;
    const gpu_model *m = &s->models[which];
    const lm_view view = lm_view_of(&m->dims, m->weights);
    const int32_t d = m->dims.d_model, vocab = m->dims.vocab, num_loud = num_rows - num_silent;
    if (check(backend, cudaMemcpyAsync(s->rows, rows, (size_t)num_rows * sizeof *rows,
                                       cudaMemcpyHostToDevice, s->stream)) != 0)
        return -1;
    embed_kernel<<<(unsigned)num_rows, ELEMENT_THREADS, 0, s->stream>>>(
        s->x, view.tok_emb, s->board, s->rows, vocab, d);
    for (int32_t l = 0; l < m->dims.num_layers; l++) layer_forward(s, m, l, num_rows);
    if (num_loud > 0) {
        rms_norm_kernel<<<(unsigned)num_loud, WARP, 0, s->stream>>>(
            s->normed, s->x + times(num_silent, d), view.final_norm, d);
        matmul(s, s->logits, NULL, s->normed, view.head, num_loud, d, vocab);
        if (pick.method == LM_PICK_LARGEST)
            argmax_kernel<<<(unsigned)num_loud, WARP, 0, s->stream>>>(s->board, s->logits,
                                                                      s->rows + num_silent, vocab);
        if (rows[num_silent].keep_at >= 0) /* all rows of a pass, or none */
            keep_kernel<<<(unsigned)num_loud, ELEMENT_THREADS, 0, s->stream>>>(
                m->kept, s->logits, s->rows + num_silent, vocab);
    }
    if (check(backend, cudaGetLastError()) != 0) return -1;
    if (pick.method == LM_PICK_CDF || pick.method == LM_PICK_GUMBEL)
        return sample(backend, rows + num_silent, num_loud, num_silent, pick);
    return 0;
}

/* ---- host: verification: the kit's work, then the commit ------------------------------------ */

/* What all rules share. */
static specv_verify_greedy_desc verify_desc(const gpu_state *s) {
    specv_verify_greedy_desc d = SPECV_ZERO;
    d.rows.num_active = &s->in->num_active;
    d.rows.draft_len = s->in->draft_len;
    d.rows.batch = s->limits.batch;
    d.rows.max_draft = s->limits.gamma;
    d.draft_tokens = s->board + s->limits.draft_at;
    d.accepted_len = s->out->accepted_len;
    d.num_emitted = s->out->num_emitted;
    d.out_tokens = s->out_tokens;
    d.vocab = s->models[LM_TARGET].dims.vocab;
    return d;
}

static specv_verify_sample_desc verify_sample_desc(const gpu_state *s) {
    specv_verify_sample_desc d = SPECV_ZERO;
    d.verify = verify_desc(s);
    d.rule = s->sampling.rule;
    d.target.data = s->models[LM_TARGET].kept;
    if (s->sampling.use_draft_logits) d.draft.data = s->models[LM_DRAFT].kept;
    d.temperature = s->temperature;
    d.seed = s->in->seed;
    d.position = s->in->cache_end;
    d.scratch = s->kit_scratch;
    d.scratch_bytes = s->kit_scratch_bytes;
    return d;
}

static specv_kv_pack kv_pack(const gpu_state *s) {
    const lm_dims *dims = &s->models[LM_TARGET].dims;
    specv_kv_pack kv = SPECV_ZERO;
    kv.src_planes = s->planes;
    kv.dst_planes = s->planes + 2 * dims->num_layers;
    kv.num_planes = 2 * dims->num_layers;
    kv.offsets = s->offsets;
    kv.row_bytes = (int64_t)dims->d_model * (int64_t)sizeof(float);
    kv.capacity_rows = (int64_t)s->limits.batch * s->limits.gamma;
    return kv;
}

/* One call verifies and packs. */
static int verify_greedy(const gpu_state *s) {
    specv_verify_pack_kv_desc d = SPECV_ZERO;
    d.verify = verify_desc(s);
    d.verify.target_tokens = s->board + s->limits.target_at;
    d.kv = kv_pack(s);
    return specv_verify_pack_kv(&d, s->stream);
}

static int verify_sampled(const gpu_state *s) {
    const specv_verify_sample_desc d = verify_sample_desc(s);
    specv_pack_kv_desc pack = SPECV_ZERO;
    int status = specv_verify_sample(&d, s->stream);
    if (status != SPECV_OK) return status;
    pack.rows = d.verify.rows;
    pack.accepted_len = s->out->accepted_len;
    pack.kv = kv_pack(s);
    return specv_pack_kv(&pack, s->stream);
}

static int gpu_verify(lm_backend *backend, const lm_step *step) {
    const gpu_state *s = (const gpu_state *)backend->state;
    const size_t bytes = (size_t)step->num_seqs * sizeof(int32_t);
    specv_accept_stats_desc stats = SPECV_ZERO;
    step_in in;
    int status;
    memset(&in, 0, sizeof in);
    in.num_active = step->num_seqs;
    memcpy(in.slot, step->slot, bytes);
    memcpy(in.draft_len, step->draft_len, bytes);
    memcpy(in.cache_end, step->cache_end, bytes);
    memcpy(in.text_at, step->text_at, bytes);
    memcpy(in.seed, step->seed, (size_t)step->num_seqs * sizeof *in.seed);
    if (check(backend, cudaMemcpyAsync(s->in, &in, sizeof in, cudaMemcpyHostToDevice, s->stream)) !=
        0)
        return -1;
    status = s->sampling.rule == SPECV_RULE_GREEDY ? verify_greedy(s) : verify_sampled(s);
    if (check_kit(backend, status) != 0) return -1;

    stats.accumulate = 1;
    stats.rows = verify_desc(s).rows;
    stats.accepted_len = s->out->accepted_len;
    stats.num_emitted = s->out->num_emitted;
    stats.histogram = s->histogram;
    stats.totals = s->totals;
    return check_kit(backend, specv_accept_stats(&stats, s->stream));
}

static int gpu_commit(lm_backend *backend, const lm_step *step) {
    const gpu_state *s = (const gpu_state *)backend->state;
    const gpu_model *target = &s->models[LM_TARGET];
    const lm_limits *limits = &s->limits;
    const dim3 grid((unsigned)(limits->batch * limits->gamma),
                    (unsigned)(2 * target->dims.num_layers));
    step_out out;
    commit_kv_kernel<<<grid, ELEMENT_THREADS, 0, s->stream>>>(places_of(s, target), s->packed,
                                                              s->offsets, s->in);
    commit_text_kernel<<<(unsigned)limits->batch, WARP, 0, s->stream>>>(
        s->board, s->out_tokens, s->out->num_emitted, s->in, limits->gamma + 1);
    if (check(backend, cudaGetLastError()) != 0 ||
        check(backend,
              cudaMemcpyAsync(&out, s->out, sizeof out, cudaMemcpyDeviceToHost, s->stream)) != 0 ||
        check(backend, cudaStreamSynchronize(s->stream)) != 0)
        return -1;
    memcpy(step->accepted_len, out.accepted_len, (size_t)step->num_seqs * sizeof(int32_t));
    memcpy(step->num_emitted, out.num_emitted, (size_t)step->num_seqs * sizeof(int32_t));
    return 0;
}

/* ---- host: state ---------------------------------------------------------------------------- */

/* All bits set is a NaN. */
static int gpu_poison(lm_backend *backend) {
    const gpu_state *s = (const gpu_state *)backend->state;
    const size_t scratch_bytes = scratch_size(s) * sizeof(float);
    for (int which = 0; which < LM_NUM_MODELS; which++) {
        const gpu_model *m = &s->models[which];
        const size_t cache_bytes = cache_size(s, m) * sizeof(float);
        const size_t kept_bytes = kept_size(s, m) * sizeof(float);
        if (check(backend, cudaMemsetAsync(m->cache, 0xff, cache_bytes, s->stream)) != 0 ||
            check(backend, cudaMemsetAsync(m->kept, 0xff, kept_bytes, s->stream)) != 0)
            return -1;
    }
    if (check(backend, cudaMemsetAsync(s->scratch, 0xff, scratch_bytes, s->stream)) != 0) return -1;
    return check(backend, cudaMemsetAsync(s->packed, 0xff, scratch_bytes, s->stream));
}

static int gpu_write_board(lm_backend *backend, int32_t at, const int32_t *tokens, int32_t count) {
    const gpu_state *s = (const gpu_state *)backend->state;
    return check(backend, cudaMemcpyAsync(s->board + at, tokens, (size_t)count * sizeof *tokens,
                                          cudaMemcpyHostToDevice, s->stream));
}

/* Device to host, behind all work of the stream. */
static int fetch(lm_backend *backend, void *to, const void *from, size_t bytes) {
    const gpu_state *s = (const gpu_state *)backend->state;
    if (check(backend, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, s->stream)) != 0)
        return -1;
    return check(backend, cudaStreamSynchronize(s->stream));
}

static int gpu_read_board(lm_backend *backend, int32_t at, int32_t *tokens, int32_t count) {
    const gpu_state *s = (const gpu_state *)backend->state;
    return fetch(backend, tokens, s->board + at, (size_t)count * sizeof *tokens);
}

static int gpu_read_cache(lm_backend *backend, int which, int32_t plane, int32_t slot,
                          int32_t num_pos, float *rows) {
    const gpu_state *s = (const gpu_state *)backend->state;
    const gpu_model *m = &s->models[which];
    const size_t sequence = times(plane, s->limits.batch) + (size_t)slot;
    return fetch(backend, rows, m->cache + sequence * times(m->dims.max_seq, m->dims.d_model),
                 times(num_pos, m->dims.d_model) * sizeof *rows);
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

static void gpu_close(lm_backend *backend) {
    gpu_state *s = (gpu_state *)backend->state;
    for (int i = 0; i < s->num_blocks; i++) (void)cudaFree(s->blocks[i]);
    if (s->stream) (void)cudaStreamDestroy(s->stream);
    free(s);
    backend->state = NULL;
}

/* Zeroed device memory until gpu_close. Keeps the first error: one check after many calls. */
static void *zeroed(gpu_state *s, size_t count, size_t size) {
    void *block = NULL;
    const size_t bytes = (count ? count : 1) * size;
    if (s->error == cudaSuccess) s->error = cudaMalloc(&block, bytes);
    if (s->error == cudaSuccess) s->error = cudaMemset(block, 0, bytes);
    s->blocks[s->num_blocks++] = block;
    return block;
}

static float *floats(gpu_state *s, size_t count) {
    return (float *)zeroed(s, count, sizeof(float));
}

static void upload(gpu_state *s, void *to, const void *from, size_t bytes) {
    if (s->error == cudaSuccess) s->error = cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice);
}

static void allocate_models(gpu_state *s, const lm_model *models) {
    for (int which = 0; which < LM_NUM_MODELS; which++) {
        gpu_model *m = &s->models[which];
        m->dims = models[which].dims;
        m->weights = floats(s, models[which].num_weights);
        m->cache = floats(s, cache_size(s, m));
        m->kept = floats(s, kept_size(s, m));
        upload(s, m->weights, models[which].weights, models[which].num_weights * sizeof(float));
    }
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
    const size_t batch = (size_t)s->limits.batch, gamma = (size_t)s->limits.gamma;
    const size_t num_planes = 2 * (size_t)s->models[LM_TARGET].dims.num_layers;
    const size_t plane_size = scratch_size(s) / num_planes;
    void *planes[2 * 2 * LM_MAX_LAYERS];
    s->scratch = floats(s, scratch_size(s));
    s->packed = floats(s, scratch_size(s));
    s->planes = (void **)zeroed(s, 2 * num_planes, sizeof(void *));
    s->offsets = (int32_t *)zeroed(s, batch + 1, sizeof(int32_t));
    s->out_tokens = (int32_t *)zeroed(s, batch * (gamma + 1), sizeof(int32_t));
    s->in = (step_in *)zeroed(s, 1, sizeof(step_in));
    s->out = (step_out *)zeroed(s, 1, sizeof(step_out));
    s->histogram = (int64_t *)zeroed(s, gamma + 1, sizeof(int64_t));
    s->totals = (int64_t *)zeroed(s, SPECV_STAT_COUNT, sizeof(int64_t));
    for (size_t plane = 0; plane < num_planes; plane++) {
        planes[plane] = s->scratch + plane * plane_size;
        planes[num_planes + plane] = s->packed + plane * plane_size;
    }
    upload(s, s->planes, planes, 2 * num_planes * sizeof(void *));
}

/* The kit's scratch memory is as large as the larger of its two descriptors says. */
static int allocate_sampling(gpu_state *s) {
    const size_t batch = (size_t)s->limits.batch;
    float temperature[LM_MAX_BATCH];
    specv_sample_desc sample;
    specv_verify_sample_desc verify;
    int64_t of_sample, of_verify;
    s->temperature = floats(s, batch);
    s->sampled = (int32_t *)zeroed(s, batch, sizeof(int32_t));
    s->sample = (sample_in *)zeroed(s, 1, sizeof(sample_in));
    if (s->error != cudaSuccess) return SPECV_OK;
    for (size_t i = 0; i < batch; i++) temperature[i] = s->sampling.temperature;
    upload(s, s->temperature, temperature, batch * sizeof(float));
    sample = sample_desc(s);
    verify = verify_sample_desc(s);
    of_sample = specv_sample_scratch_bytes(&sample);
    of_verify = specv_verify_sample_scratch_bytes(&verify);
    if (of_sample < 0) return (int)of_sample;
    if (of_verify < 0) return (int)of_verify;
    s->kit_scratch_bytes = of_sample > of_verify ? of_sample : of_verify;
    s->kit_scratch = zeroed(s, (size_t)s->kit_scratch_bytes, 1);
    return SPECV_OK;
}

static int gpu_open(lm_backend *backend, const lm_model models[LM_NUM_MODELS],
                    const lm_limits *limits, const lm_sampling *sampling) {
    gpu_state *s = (gpu_state *)calloc(1, sizeof *s);
    cudaError_t error;
    int status;
    if (!s) return fail(backend, "out of memory");
    backend->state = s;
    s->limits = *limits;
    s->sampling = *sampling;
    s->error = cudaStreamCreate(&s->stream);
    s->board = (int32_t *)zeroed(s, (size_t)limits->board_size, sizeof(int32_t));
    allocate_models(s, models);
    allocate_activations(s);
    allocate_verification(s);
    status = allocate_sampling(s);
    error = s->error == cudaSuccess ? cudaDeviceSynchronize() : s->error;
    if (error == cudaSuccess && status == SPECV_OK) return 0;
    gpu_close(backend);
    return error == cudaSuccess ? check_kit(backend, status) : check(backend, error);
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
    backend->poison = gpu_poison;
    backend->write_board = gpu_write_board;
    backend->read_board = gpu_read_board;
    backend->forward = gpu_forward;
    backend->verify = gpu_verify;
    backend->commit = gpu_commit;
    backend->read_cache = gpu_read_cache;
    backend->read_stats = gpu_read_stats;
    backend->seconds = gpu_seconds;
}
