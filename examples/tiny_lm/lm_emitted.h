/* SPDX-License-Identifier: MIT-0
 *
 * lm_emitted.h - what the kit tells of the tokens that it emits (A11): arrays of one block of
 * memory, in the backend for the kit to fill and on the host for the engine to keep. Tokens are in
 * the order of [row][column]: a pass has one column, a verification gamma + 1.
 */
#ifndef LM_EMITTED_H
#define LM_EMITTED_H

#include "lm.h"
#include "specverify.cuh"

#include <string.h>

static inline size_t lm_emitted_bytes(const lm_sampling *sampling, size_t num_tokens) {
    const size_t words[] = {0, 1, 2 + 2 * (size_t)sampling->num_top}; /* of a token */
    return words[sampling->tell] * num_tokens * sizeof(float);
}

/* As much as a verification can tell, or a pass. */
static inline size_t lm_told_bytes(const lm_sampling *sampling, const lm_limits *limits) {
    return lm_emitted_bytes(sampling, (size_t)limits->batch * ((size_t)limits->gamma + 1));
}

/* In memory of so many bytes. Null is what the kit need not tell. */
static inline specv_emitted lm_emitted_in(void *memory, const lm_sampling *sampling,
                                          size_t num_tokens) {
    specv_emitted e = SPECV_ZERO;
    if (sampling->tell == LM_TELL_NOTHING) return e;
    e.logprob = (float *)memory;
    if (sampling->tell == LM_TELL_LOGPROB) return e;
    e.raw = 1;
    e.rank = (int32_t *)(e.logprob + num_tokens);
    e.max_top = sampling->num_top;
    if (e.max_top == 0) return e;
    e.top_id = e.rank + num_tokens;
    e.top_logprob = (float *)(e.top_id + (size_t)e.max_top * num_tokens);
    return e;
}

/* On the host. */
static inline void lm_copy_emitted(const specv_emitted *to, size_t to_token,
                                   const specv_emitted *from, size_t from_token,
                                   size_t num_tokens) {
    const size_t top = (size_t)to->max_top;
    if (to->logprob)
        memcpy(to->logprob + to_token, from->logprob + from_token, num_tokens * sizeof(float));
    if (to->rank)
        memcpy(to->rank + to_token, from->rank + from_token, num_tokens * sizeof(int32_t));
    if (top == 0) return;
    memcpy(to->top_id + top * to_token, from->top_id + top * from_token,
           top * num_tokens * sizeof(int32_t));
    memcpy(to->top_logprob + top * to_token, from->top_logprob + top * from_token,
           top * num_tokens * sizeof(float));
}

#endif
