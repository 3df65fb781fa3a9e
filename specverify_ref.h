/* specverify_ref.h - 0.1.0 - the operations of specverify.cuh in portable C
   SPDX-License-Identifier: MIT-0                              no warranty; use at your own risk

   Do this:
       #define SPECVERIFY_REF_IMPLEMENTATION
   before you include this file in *one* C, C++ or CUDA file. With SPECVERIFY_REF_STATIC defined as
   well, everything is private to that file.

   For two readers: the test that wants to know what is right, and the machine without a GPU.
   Every function takes the descriptor of specverify.cuh, with host pointers in it, runs at once,
   and returns the same status codes. Outputs are equal to the device's, bit for bit. The code is
   the definition written down: one row after the other, one position after the other, nothing
   shared with the device functions. C99 and C++; no allocation, no state, no library.

   Contents: >>api, >>rows, >>A1, >>B1, >>B2, >>E, >>diff; licence as in specverify.cuh.
*/

#ifndef SPECVERIFY_REF_H_INCLUDED
#define SPECVERIFY_REF_H_INCLUDED

#include "specverify.cuh" /* descriptors, validation and status codes; needs no CUDA in C */

/* ==================================================================================== >>api */

#if defined(SPECVERIFY_REF_STATIC)
#define SPECV_REF_API static SPECV_UNUSED
#else
#define SPECV_REF_API SPECV_EXTERN_C SPECVERIFY_API
#endif

#if !defined(SPECVERIFY_REF_STATIC) || defined(SPECVERIFY_REF_IMPLEMENTATION)

/* A1, B1, B2, E: see the launchers of the same name. Call: any thread; no two calls that share an
   output. Return 0 or SPECV_ERR_*. */
SPECV_REF_API int specv_ref_verify_greedy(const specv_verify_greedy_desc *d);
SPECV_REF_API int specv_ref_pack_kv(const specv_pack_kv_desc *d);
SPECV_REF_API int specv_ref_verify_pack_kv(const specv_verify_pack_kv_desc *d);
SPECV_REF_API int specv_ref_accept_stats(const specv_accept_stats_desc *d);

/* Compares two buffers of `count` elements of `bytes` bytes each. Returns how many elements
   differ; *first, if not null, gets the index of the first that does, or -1. */
SPECV_REF_API int64_t specv_ref_diff(const void *a, const void *b, int64_t count, int64_t bytes,
                                     int64_t *first);

#endif
#endif /* SPECVERIFY_REF_H_INCLUDED */

#if defined(SPECVERIFY_REF_IMPLEMENTATION) && !defined(SPECVERIFY_REF_IMPLEMENTATION_INCLUDED)
#define SPECVERIFY_REF_IMPLEMENTATION_INCLUDED

/* =================================================================================== >>rows */

/* A token buffer seen as 64-bit numbers, whatever its dtype. */
static int64_t specv_ref_i_get(const void *tokens, int dtype, int64_t index) {
    if (dtype == SPECV_I64) return ((const int64_t *)tokens)[index];
    return ((const int32_t *)tokens)[index];
}

static void specv_ref_i_put(void *tokens, int dtype, int64_t index, int64_t token) {
    if (dtype == SPECV_I64)
        ((int64_t *)tokens)[index] = token;
    else
        ((int32_t *)tokens)[index] = (int32_t)token;
}

static int specv_ref_i_is_live(const specv_rows *rows, int b) {
    return rows->num_active == NULL || b < *rows->num_active;
}

/* Drafts of row b, or -1 if its length is outside its range. */
static int32_t specv_ref_i_num_drafts(const specv_rows *rows, int b) {
    int64_t start, end, num_drafts = rows->max_draft;
    if (rows->row_start) {
        start = rows->row_start[b];
        end = rows->row_start[b + 1];
        if (start < 0 || end > rows->num_draft_tokens) return -1;
        num_drafts = end - start;
    } else if (rows->draft_len) {
        num_drafts = rows->draft_len[b];
    }
    if (num_drafts < 0 || num_drafts > rows->max_draft) return -1;
    return (int32_t)num_drafts;
}

static int specv_ref_i_is_token(const specv_verify_greedy_desc *d, int64_t token) {
    if (token < 0) return 0;
    return d->vocab == 0 || token < d->vocab;
}

static int specv_ref_i_is_eos(const specv_verify_greedy_desc *d, int64_t token) {
    for (int i = 0; i < d->num_eos; ++i)
        if (d->eos_token[i] == token) return 1;
    return 0;
}

/* ===================================================================================== >>A1 */

/* a = target, d = draft, n = drafts of the row:
       k = min { j : a[j] != d[j], or j = n };   emit d[0..k-1], a[k]
   and nothing after an EOS. Greedy case of Leviathan et al. 2023 (arXiv 2211.17192). */
static void specv_ref_i_verify_row(const specv_verify_greedy_desc *d, int b) {
    const int dtype = d->token_dtype;
    const int64_t columns = (int64_t)d->rows.max_draft + 1;
    const int64_t out_stride = d->out_stride_elems ? d->out_stride_elems : columns;
    int64_t draft_base, target_base, next_token = -1, column = 0;
    int32_t accepted = 0, num_drafts = specv_ref_i_num_drafts(&d->rows, b);
    int mismatch = 0, finished = 0;
    int live = specv_ref_i_is_live(&d->rows, b);
    uint32_t status = live && num_drafts < 0 ? SPECV_ROW_BAD_LENGTH : 0;

    if (d->rows.row_start) {
        draft_base = d->rows.row_start[b];
        target_base = draft_base + b;
    } else {
        draft_base = b * (d->draft_stride_elems ? d->draft_stride_elems : columns - 1);
        target_base = b * (d->target_stride_elems ? d->target_stride_elems : columns);
        if (num_drafts < 0) num_drafts = 0; /* target[0] still follows the text */
    }

    if (live && num_drafts >= 0) {
        while (accepted < num_drafts && !mismatch && !finished) {
            int64_t draft = specv_ref_i_get(d->draft_tokens, dtype, draft_base + accepted);
            int64_t target = specv_ref_i_get(d->target_tokens, dtype, target_base + accepted);
            if (draft == target && specv_ref_i_is_token(d, draft)) {
                accepted += 1;
                finished = specv_ref_i_is_eos(d, draft);
            } else {
                mismatch = 1;
                if (draft != -1 && !specv_ref_i_is_token(d, draft)) status |= SPECV_ROW_BAD_DRAFT;
            }
        }
        if (!finished) {
            next_token = specv_ref_i_get(d->target_tokens, dtype, target_base + accepted);
            if (!specv_ref_i_is_token(d, next_token)) {
                next_token = -1;
                status |= SPECV_ROW_BAD_TARGET;
            }
            finished = specv_ref_i_is_eos(d, next_token);
        }
    }

    d->accepted_len[b] = accepted;
    if (d->mismatch) d->mismatch[b] = (uint8_t)mismatch;
    if (d->next_token) specv_ref_i_put(d->next_token, dtype, b, next_token);
    if (d->num_emitted) d->num_emitted[b] = accepted + (next_token >= 0 ? 1 : 0);
    if (d->finished) d->finished[b] = (uint8_t)finished;
    if (d->row_status) d->row_status[b] = status;
    if (d->out_tokens) {
        for (; column < accepted; ++column)
            specv_ref_i_put(d->out_tokens, dtype, b * out_stride + column,
                            specv_ref_i_get(d->draft_tokens, dtype, draft_base + column));
        specv_ref_i_put(d->out_tokens, dtype, b * out_stride + column, next_token);
        for (++column; column < columns; ++column)
            specv_ref_i_put(d->out_tokens, dtype, b * out_stride + column, -1);
    }
}

SPECV_REF_API int specv_ref_verify_greedy(const specv_verify_greedy_desc *d) {
    int status = specv_verify_greedy_validate(d);
    if (status != SPECV_OK) return status;
    for (int b = 0; b < d->rows.batch; ++b) specv_ref_i_verify_row(d, b);
    return SPECV_OK;
}

/* ===================================================================================== >>B1 */

static void specv_ref_i_copy(const specv_pack_kv_desc *d, int b, int32_t len) {
    const specv_kv_pack *kv = &d->kv;
    int64_t pos_stride = kv->src_pos_stride_bytes ? kv->src_pos_stride_bytes : kv->row_bytes;
    int64_t seq_stride =
        kv->src_seq_stride_bytes ? kv->src_seq_stride_bytes : d->rows.max_draft * pos_stride;
    int64_t dst_stride = kv->dst_row_stride_bytes ? kv->dst_row_stride_bytes : kv->row_bytes;
    int planes = kv->num_planes ? kv->num_planes : 1;
    for (int plane = 0; plane < planes; ++plane) {
        const char *src = (const char *)(kv->src_planes ? kv->src_planes[plane] : kv->src);
        char *dst = (char *)(kv->dst_planes ? kv->dst_planes[plane] : kv->dst);
        if (!src || !dst) continue;
        for (int32_t j = 0; j < len; ++j) {
            int64_t from = d->rows.row_start ? (d->rows.row_start[b] + (int64_t)j) * pos_stride
                                             : b * seq_stride + j * pos_stride;
            int64_t to = (kv->offsets[b] + (int64_t)j) * dst_stride;
            for (int64_t byte = 0; byte < kv->row_bytes; ++byte) dst[to + byte] = src[from + byte];
        }
    }
}

/* offsets[b] = sum of k over the rows before b;   dst[offsets[b] + j] = src[b][j] for j < k_b */
SPECV_REF_API int specv_ref_pack_kv(const specv_pack_kv_desc *d) {
    int status = specv_pack_kv_validate(d);
    int32_t offset = 0;
    if (status != SPECV_OK) return status;
    for (int b = 0; b < d->rows.batch; ++b) {
        int live = specv_ref_i_is_live(&d->rows, b);
        int32_t num_drafts = specv_ref_i_num_drafts(&d->rows, b);
        int32_t len = live ? d->accepted_len[b] : 0;
        uint32_t bits = 0;
        if (live && (num_drafts < 0 || len < 0 || len > num_drafts)) {
            bits = SPECV_ROW_BAD_LENGTH;
            len = 0;
        }
        d->kv.offsets[b] = offset;
        offset += len;
        if (len > 0 && offset > d->kv.capacity_rows)
            bits |= SPECV_ROW_NO_SPACE;
        else
            specv_ref_i_copy(d, b, len);
        if (d->row_status) d->row_status[b] = bits | (d->keep_status ? d->row_status[b] : 0);
    }
    if (d->rows.batch > 0) d->kv.offsets[d->rows.batch] = offset;
    return SPECV_OK;
}

/* ===================================================================================== >>B2 */

SPECV_REF_API int specv_ref_verify_pack_kv(const specv_verify_pack_kv_desc *d) {
    specv_pack_kv_desc pack = SPECV_ZERO;
    int status = specv_verify_pack_kv_validate(d);
    if (status != SPECV_OK) return status;
    pack.keep_status = 1;
    pack.rows = d->verify.rows;
    pack.accepted_len = d->verify.accepted_len;
    pack.row_status = d->verify.row_status;
    pack.kv = d->kv;
    status = specv_ref_verify_greedy(&d->verify);
    return status != SPECV_OK ? status : specv_ref_pack_kv(&pack);
}

/* ====================================================================================== >>E */

SPECV_REF_API int specv_ref_accept_stats(const specv_accept_stats_desc *d) {
    int64_t step[SPECV_STAT_COUNT] = {0};
    int status = specv_accept_stats_validate(d);
    if (status != SPECV_OK || d->rows.batch == 0) return status;
    if (d->histogram && !d->accumulate)
        for (int64_t k = 0; k <= d->rows.max_draft; ++k) d->histogram[k] = 0;
    for (int b = 0; b < d->rows.batch; ++b) {
        int32_t num_drafts = specv_ref_i_num_drafts(&d->rows, b), len, emitted = 0;
        if (!specv_ref_i_is_live(&d->rows, b)) continue;
        len = d->accepted_len[b];
        if (len >= 0 && len <= num_drafts) emitted = d->num_emitted ? d->num_emitted[b] : len + 1;
        if (num_drafts < 0 || len < 0 || len > num_drafts || emitted < 0 || emitted > len + 1) {
            step[SPECV_STAT_BAD_ROWS] += 1;
            continue;
        }
        step[SPECV_STAT_STEPS] = 1;
        step[SPECV_STAT_ROWS] += 1;
        step[SPECV_STAT_DRAFTED] += num_drafts;
        step[SPECV_STAT_ACCEPTED] += len;
        step[SPECV_STAT_REJECTED] += d->mismatch ? d->mismatch[b] != 0 : len < num_drafts;
        step[SPECV_STAT_EMITTED] += emitted;
        if (d->histogram) d->histogram[len] += 1;
    }
    if (d->totals)
        for (int s = 0; s < SPECV_STAT_COUNT; ++s)
            d->totals[s] = step[s] + (d->accumulate ? d->totals[s] : 0);
    return SPECV_OK;
}

/* =================================================================================== >>diff */

SPECV_REF_API int64_t specv_ref_diff(const void *a, const void *b, int64_t count, int64_t bytes,
                                     int64_t *first) {
    const unsigned char *x = (const unsigned char *)a, *y = (const unsigned char *)b;
    int64_t different = 0, where = -1;
    for (int64_t i = 0; i < count; ++i) {
        int same = 1;
        for (int64_t byte = 0; byte < bytes; ++byte)
            same = same && x[i * bytes + byte] == y[i * bytes + byte];
        if (!same && different++ == 0) where = i;
    }
    if (first) *first = where;
    return different;
}

#endif /* SPECVERIFY_REF_IMPLEMENTATION */
