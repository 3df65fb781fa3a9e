/* SPDX-License-Identifier: MIT-0
 *
 * lm_math.h - the scalar arithmetic of tiny_lm, shared by its C and its CUDA backend.
 *
 * Both backends must produce the same bits. So every operation here is one IEEE rounding, no
 * multiply and add may be fused (the CUDA intrinsics never are; C needs -ffp-contract=off), and
 * every sum has an order that depends on the sizes of the model alone:
 *   products of a row and a matrix, of q and k, of p and v: ascending index;
 *   sums over a row (RMSNorm, softmax): 32 strided partial sums, then a halving tree. That is
 *   what a warp does with an element per lane, and what a C compiler can vectorise.
 */
#ifndef LM_MATH_H
#define LM_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__FAST_MATH__)
#error "tiny_lm compares bits: compile it without -ffast-math"
#endif

#ifdef __CUDACC__
#define LM_FN static __host__ __device__ __forceinline__
#else
#define LM_FN static inline
#endif

#define LM_LANES 32

#ifdef __CUDA_ARCH__
LM_FN float lm_mul(float a, float b) { return __fmul_rn(a, b); }
LM_FN float lm_add(float a, float b) { return __fadd_rn(a, b); }
LM_FN float lm_div(float a, float b) { return __fdiv_rn(a, b); }
LM_FN float lm_sqrt(float a) { return __fsqrt_rn(a); }
LM_FN float lm_float_from_bits(int32_t bits) { return __int_as_float(bits); }
#else
LM_FN float lm_mul(float a, float b) { return a * b; }
LM_FN float lm_add(float a, float b) { return a + b; }
LM_FN float lm_div(float a, float b) { return a / b; }
LM_FN float lm_sqrt(float a) { return sqrtf(a); }
LM_FN float lm_float_from_bits(int32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
#endif

/* sum + a * b, two roundings. */
LM_FN float lm_mac(float sum, float a, float b) { return lm_add(sum, lm_mul(a, b)); }

/* e^x within two units in the last place; x below -87 gives e^-87, above 87 e^87. */
LM_FN float lm_exp(float x) {
    const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    float whole, rest, sum;
    x = x > -87.0f ? x : -87.0f;
    x = x < 87.0f ? x : 87.0f;
    whole = lm_add(lm_add(lm_mul(x, 1.44269504f), magic), -magic);
    /* ln 2 in two parts; the first has so few bits that its product with whole is exact. */
    rest = lm_mac(x, whole, -0.693359375f);
    rest = lm_mac(rest, whole, 2.12194440e-4f);
    sum = 1.0f / 5040.0f;
    sum = lm_mac(1.0f / 720.0f, sum, rest);
    sum = lm_mac(1.0f / 120.0f, sum, rest);
    sum = lm_mac(1.0f / 24.0f, sum, rest);
    sum = lm_mac(1.0f / 6.0f, sum, rest);
    sum = lm_mac(0.5f, sum, rest);
    sum = lm_mac(1.0f, sum, rest);
    sum = lm_mac(1.0f, sum, rest);
    return lm_mul(sum, lm_float_from_bits(((int32_t)whole + 127) * (1 << 23)));
}

/* SwiGLU: gate * sigmoid(gate) * up. */
LM_FN float lm_swiglu(float gate, float up) {
    return lm_mul(lm_div(gate, lm_add(1.0f, lm_exp(-gate))), up);
}

/* What RMSNorm multiplies a row with, from the sum of its squares. */
LM_FN float lm_rms_scale(float sum_of_squares, int32_t size) {
    return lm_div(1.0f, lm_sqrt(lm_add(lm_div(sum_of_squares, (float)size), 1e-5f)));
}

#endif
