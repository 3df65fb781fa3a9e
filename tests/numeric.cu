/* numeric.cu - the arithmetic below sampling: random numbers, half precision, the accept test, the
   softmax in integers, logarithms, Gumbel noise. On the host each function is held against an
   oracle that shares nothing with it: C's own fmaf, exact integers, long double. Where the header
   states an error, that error is the bound; otherwise the bound is what was measured, with little
   slack, and the program prints both. Then the device must give the host's bits, and two digests
   pin the bits themselves, for every compiler and every flag. */

#define T_INSIDE_REFERENCE /* functions of the reference are called */
#include "t.h"

#include <math.h>

#if T_DEVICE
#define BOTH static __host__ __device__
#else
#define BOTH static
#endif

__extension__ typedef unsigned __int128 u128;

/* The seed's generator has no floats. For the digests neither may this: sums of integers are exact,
   so no compiler can round them differently. Mean 0, variance 1, within +-6. */
static double normal(void) {
    int64_t sum = 0;
    for (int i = 0; i < 12; ++i) sum += (int64_t)(t_random() >> 48);
    return (double)(sum - 12 * 32768 + 6) / 65536;
}

static float random_bits(void) { return specv_bits_float((uint32_t)t_random()); }

/* A float with any sign and mantissa and a power of two from the range. */
static float random_near(int lowest, int highest) {
    uint32_t rest = (uint32_t)t_random() & 0x807fffffu;
    return specv_bits_float(rest | (uint32_t)(t_between(lowest, highest) + 127) << 23);
}

/* Equal bits; a NaN equals any NaN, because hosts and GPUs choose different ones. */
static int same(float a, float b) {
    if (specv_i_is_nan(a) || specv_i_is_nan(b)) return a != a && b != b;
    return specv_float_bits(a) == specv_float_bits(b);
}

static void check_bound(const char *what, double worst, double bound) {
    printf("measured: %s %.4g, bound %.4g\n", what, worst, bound);
    CHECK(worst <= bound);
}

static void raise_to(double *worst, long double error) {
    if (!(fabsl(error) <= *worst)) *worst = (double)fabsl(error); /* a NaN becomes the worst */
}

/* The error that a float has beyond its own rounding: half a unit, at most 2^-24 of the value. For
   |value| < 16 that half unit is below 1e-6. */
static double beyond_rounding(float value, long double exact) {
    double error = (double)(fabsl(value - exact) - fabsl(exact) * 0x1p-24L);
    return error > 0 || error != error ? error : 0;
}

/* Where floats change their ways: zeros, subnormals, powers of two with their neighbours, the ends
   of what the softmax takes (2^19, 2^20, 2^-13, 2^13), infinities, NaN. */
static const uint32_t edges[] = {
    0x00000000, 0x00000001, 0x00000002, 0x00400000, 0x007fffff, 0x00800000, 0x00800001, 0x0d800000,
    0x33000000, 0x33800000, 0x38ffffff, 0x39000000, 0x39000001, 0x3effffff, 0x3f000000, 0x3f000001,
    0x3f3504f2, 0x3f3504f3, 0x3f3504f4, 0x3f7fffff, 0x3f800000, 0x3f800001, 0x3fb504f2, 0x3fb504f3,
    0x3fb504f4, 0x40000000, 0x407fffff, 0x40800000, 0x42fbffff, 0x45ffffff, 0x46000000, 0x46000001,
    0x48ffffff, 0x49000000, 0x49000001, 0x49800000, 0x4b000000, 0x4b400000, 0x5f7fffff, 0x5f800000,
    0x7e800000, 0x7f7fffff, 0x7f800000, 0x7f800001, 0x7fc00000, 0x7fffffff};

static float edge(int i) {
    return specv_bits_float(edges[i / 2 % T_COUNT(edges)] | (uint32_t)(i % 2) << 31);
}
enum { NUM_EDGES = 2 * T_COUNT(edges) };

/* ---------------------------------------------------------------------------- random numbers */

/* kat_vectors of Random123 1.14.0, philox4x32 10. Its keys are pairs of words, the low one first:
   the words of the third vector are all different, so every order but the right one fails. */
static const struct {
    uint32_t counter[4];
    uint64_t key;
    uint32_t x[4];
} known_philox[] = {{{0, 0, 0, 0}, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
                    {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
                     ~(uint64_t)0,
                     {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
                    {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                     (uint64_t)0x299f31d0 << 32 | 0xa4093822,
                     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}};

static void test_philox(void) {
    for (int i = 0; i < T_COUNT(known_philox); ++i) {
        const uint32_t *c = known_philox[i].counter;
        specv_random r = specv_philox(known_philox[i].key, c[0], c[1], c[2], c[3]);
        t_case("known answer %d of Random123", i);
        for (int k = 0; k < 4; ++k) CHECK_EQ(r.x[k], known_philox[i].x[k], k);
    }
    t_case("tags keep the uses of random numbers apart");
    CHECK(SPECV_TAG_ACCEPT == 0 && SPECV_TAG_SAMPLE == 1 && SPECV_TAG_DRAW == 2 &&
          SPECV_TAG_COUPLED == 3 && SPECV_TAG_RESAMPLE == 4 && SPECV_TAG_NOISE == 5 &&
          SPECV_TAG_OF_DRAFT == 16 && SPECV_TAG_FINER == 32);
}

static void test_uniforms(void) {
    const int count = t.quick ? 20000 : 1000000;

    t_case("uniform24: the high 24 bits, below 1");
    for (int i = 0; i < count; ++i) {
        uint32_t random = i < 1000 ? ~(uint32_t)i : (uint32_t)t_random();
        double u = specv_uniform24(random);
        CHECK(u * 16777216.0 == (double)(random >> 8) && u >= 0 && u < 1);
    }

    t_case("uniform_bits: floor(u * 2^64), and all ones outside [0, 1)");
    for (int i = 0; i < count; ++i) {
        float u = i < NUM_EDGES ? edge(i) : i % 2 ? random_near(-70, 0) : random_bits();
        uint64_t expected = ~(uint64_t)0;
        uint32_t status = 0;
        if (i >= NUM_EDGES && i % 3) u = fabsf(u);
        int ok = u >= 0 && u < 1;
        if (ok) expected = (uint64_t)ldexp((double)u, 64); /* u has 24 bits: exact */
        CHECK(specv_uniform_bits(u) == expected);
        CHECK_EQ(specv_uniform_ok(u), ok, i);
        CHECK(same(specv_i_clean_uniform(u, &status), ok ? u : 1 - 0x1p-24f));
        CHECK_EQ(status, ok ? 0 : SPECV_ROW_BAD_UNIFORM, i);
    }

    t_case("uniform: where 24 bits are 0, those of the next word go on");
    for (int i = 0; i < count; ++i) {
        specv_random r;
        double expected = 0;
        for (int k = 0; k < 4; ++k) r.x[k] = (uint32_t)t_random() >> (t_chance(50) ? 24 : 0);
        for (int k = 3; k >= 0; --k)
            if (r.x[k] >> 8) expected = ldexp((double)(r.x[k] >> 8), -24 * (k + 1));
        CHECK((double)specv_uniform(&r) == expected && expected < 1);
    }
}

/* ----------------------------------------------------------------------------- half precision */

static double field_value(uint32_t code, int mantissa_bits, int exponent_bits) {
    const uint32_t mantissa = code & ((1u << mantissa_bits) - 1);
    const uint32_t exponent = code >> mantissa_bits & ((1u << exponent_bits) - 1);
    const int bias = (1 << (exponent_bits - 1)) - 1;
    double value =
        exponent ? ldexp(mantissa + ldexp(1, mantissa_bits), (int)exponent - bias - mantissa_bits)
                 : ldexp(mantissa, 1 - bias - mantissa_bits);
    if (exponent == (1u << exponent_bits) - 1) value = mantissa ? NAN : INFINITY;
    return code >> 15 ? -value : value;
}

static void test_half(void) {
    t_case("bf16: every code");
    for (uint32_t code = 0; code < 65536; ++code) {
        CHECK(same(specv_bf16_float(code), (float)field_value(code, 7, 8)));
        CHECK(same(specv_bf16_float(code | 0xabcd0000u), specv_bf16_float(code)));
    }
    t_case("fp16: every code");
    for (uint32_t code = 0; code < 65536; ++code)
        CHECK(same(specv_f16_float(code), (float)field_value(code, 10, 5)));
}

/* -------------------------------------------------------------------------- fma, max, compare */

static void check_fma(float a, float b, float c) {
    if (!CHECK(same(specv_fma(a, b, c), fmaf(a, b, c))))
        printf("     fma(%a, %a, %a) is %a, not %a\n", (double)a, (double)b, (double)c,
               (double)specv_fma(a, b, c), (double)fmaf(a, b, c));
}

/* c's fmaf is rounded once (glibc's is, whatever the CPU). What could go wrong on a host without
   the instruction is the second rounding, from double to float: hence cases that end near a tie,
   with and without something beyond the 53 bits of the double. */
static void test_fma(void) {
    const int count = t.quick ? 20000 : 1000000;

    t_case("fma: random bits");
    for (int i = 0; i < count; ++i) check_fma(random_bits(), random_bits(), random_bits());

    t_case("fma: exponents near each other");
    for (int i = 0; i < count; ++i)
        check_fma(random_near(-30, 30), random_near(-30, 30), random_near(-60, 60));

    t_case("fma: cancellation");
    for (int i = 0; i < count; ++i) {
        float a = random_near(-62, 62), b = random_near(-62, 62), product = -a * b;
        check_fma(a, b, specv_bits_float(specv_float_bits(product) + (uint32_t)t_between(-2, 2)));
    }

    t_case("fma: a tie, and a tie but for 2^-46 of it");
    for (int i = 0; i < count; ++i) {
        float c = random_near(-90, 90), a = 1, b = 1;
        int exponent, low = (int)t_between(-30, 30);
        frexpf(c, &exponent); /* half a unit of c is 2^(exponent - 25) */
        if (i % 3 == 1) a = 1 + 1.1920929e-7f, b = 1 - 1.1920929e-7f; /* a * b = 1 - 2^-46 */
        if (i % 3 == 2) a = 1 + 1.1920929e-7f, b = 1 + 1.1920929e-7f;
        a = ldexpf(t_chance(50) ? a : -a, low);
        b = ldexpf(b, exponent - 25 - low - (t_chance(20) ? (int)t_below(30) : 0));
        check_fma(a, b, c);
    }

    t_case("fma: subnormal products, addends and results");
    for (int i = 0; i < count; ++i) {
        float c = specv_bits_float((uint32_t)t_random() & 0x80ffffffu);
        int low = (int)t_between(-100, -20);
        check_fma(random_near(low, low), random_near(-150 - low, -120 - low), c);
        check_fma(specv_bits_float((uint32_t)t_random() & 0x807fffffu), random_near(-3, 3), c);
        check_fma(specv_bits_float((uint32_t)t_random() & 0x807fffffu), random_near(20, 40),
                  random_near(-126, -90));
    }

    t_case("fma: overflow and what only just is none");
    for (int i = 0; i < count; ++i)
        check_fma(random_near(60, 65), random_near(60, 65), random_near(120, 127));

    t_case("fma: edges");
    for (int i = 0; i < NUM_EDGES; ++i)
        for (int j = 0; j < NUM_EDGES; ++j)
            for (int k = 0; k < NUM_EDGES; ++k) check_fma(edge(i), edge(j), edge(k));

    t_case("fma: double rounding, answers by hand");
    /* 1 + 2^-23 + (2^-24 - 2^-70) is below the tie, and 1 + (2^-24 + 2^-46 + 2^-70) above it */
    CHECK(specv_fma(0x1.000002p-12f, 0x1.fffffcp-13f, 0x1.000002p0f) == 0x1.000002p0f);
    CHECK(specv_fma(0x1.000002p-12f, 0x1.000002p-12f, 1.f) == 0x1.000002p0f);
    CHECK(specv_fma(0x1p-12f, 0x1p-12f, 1.f) == 1.f);
    CHECK(specv_fma(0x1p-12f, 0x1p-12f, 0x1.000002p0f) == 0x1.000004p0f);
}

static void test_compare(void) {
    t_case("max and less on edges");
    for (int i = 0; i < NUM_EDGES; ++i)
        for (int j = 0; j < NUM_EDGES; ++j) {
            float a = edge(i), b = edge(j), larger = a > b || b != b ? a : b;
            CHECK(specv_i_is_nan(a) == (a != a));
            CHECK(specv_i_less(a, b) == (a < b));
            if (a != 0 || b != 0) CHECK(same(specv_i_max(a, b), larger));
            if (a == 0 && b == 0) CHECK(specv_i_max(a, b) == 0);
        }
}

/* ----------------------------------------------------------------------------------- integers */

static uint64_t random_word(void) { return t_random() >> t_below(64); }

static void test_integers(void) {
    const int count = t.quick ? 20000 : 1000000;

    t_case("mul_high: all 128 bits");
    for (int i = 0; i < count; ++i) {
        uint64_t a = i < 8 ? ~(uint64_t)0 << i * 8 : random_word();
        uint64_t b = i < 64 ? ~(uint64_t)0 >> i : random_word();
        CHECK(specv_i_mul_high(a, b) == (uint64_t)((u128)a * b >> 64));
    }

    t_case("shift_right: any count");
    for (int i = 0; i < count; ++i) {
        uint64_t x = t_random();
        uint32_t by = i < 130 ? (uint32_t)i : i % 2 ? (uint32_t)t_random() : (uint32_t)t_below(64);
        CHECK(specv_i_shift_right(x, by) == (by < 64 ? x / ((uint64_t)1 << by) : 0));
    }

    t_case("fixed50: floor(p * 2^50) for 0 <= p < 4");
    for (int i = 0; i < count; ++i) {
        float p = i < NUM_EDGES ? edge(i) : fabsf(i % 2 ? random_near(-55, 1) : random_bits());
        if (!(p >= 0 && p < 4)) continue;
        if (specv_float_bits(p) == 0x80000000u) continue; /* -0 is not a probability's zero */
        CHECK(specv_fixed50(p) == (uint64_t)ldexp((double)p, 50));
    }

    t_case("fixed24: the nearest integer to x * 2^24, ties to even, for |x| < 64");
    for (int i = 0; i < count; ++i) {
        float x = i < NUM_EDGES ? edge(i) : i % 2 ? random_near(-30, 5) : random_bits();
        if (i % 5 == 0) x = (float)t_between(-2000, 2000) * 0x1p-25f; /* every second is a tie */
        if (!(fabsf(x) < 64)) continue;
        CHECK(specv_i_fixed24(x) == (int32_t)llrint(ldexp((double)x, 24)));
    }

    t_case("score: n and f and noise without a loss");
    for (int i = 0; i < count; ++i) {
        int32_t n = (int32_t)t_between(-(1 << 20), 1 << 20), noise = (int32_t)t_between(0, 1 << 30);
        float f = random_near(-26, -2);
        CHECK(specv_i_score(n, f, noise - (1 << 29)) ==
              (int64_t)llrint(ldexp((double)f, 24)) + ((int64_t)n * (1 << 24)) + noise - (1 << 29));
    }
}

/* ------------------------------------------------------------------------------------- accept */

/* How many of the 2^24 numbers u pass: a binary search, as the product grows with u. */
static int64_t num_accepted(float q, float p) {
    int64_t low = 0, high = 1 << 24;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (specv_accept((float)middle * 0x1p-24f, q, p))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* A draft whose p and q agree must never be rejected, or two equal models would disagree; one that
   the target excludes must never pass. u = 1 - 2^-24 is the hardest: u * q is half a unit below q.
   It stays below q while q has all 24 bits, and q is above 2^-126; at or below 2^-126 the half
   unit is lost. */
static void test_accept(void) {
    const int count = t.quick ? 100000 : 1 << 23;
    const float last = 1 - 0x1p-24f, nan = specv_bits_float(0x7fc00000);
    double worst = 0;

    t_case("accept: p = q > 2^-126 passes with the largest u");
    for (int i = 0; i < count; ++i) {
        uint32_t mantissa = t.quick ? (uint32_t)t_below(1 << 23) : (uint32_t)i;
        float p = specv_bits_float(mantissa | 127u << 23);
        CHECK(specv_accept(last, p, p));
        p = specv_bits_float(mantissa | (uint32_t)t_between(1, 128) << 23);
        if (p > 0x1p-126f) CHECK(specv_accept(last, p, p));
    }
    for (int exponent = 1; exponent <= 254; ++exponent)
        for (int k = -2; k <= 2; ++k) {
            float p = specv_bits_float(((uint32_t)exponent << 23) + (uint32_t)k);
            if (p > 0x1p-126f) CHECK(specv_accept(last, p, p));
        }

    t_case("accept: p = q passes with any u");
    for (int i = 0; i < count; ++i) {
        float u = specv_uniform24((uint32_t)t_random());
        float p = fabsf(i % 2 ? random_near(-125, 0) : random_near(-20, 0));
        CHECK(specv_accept(u, p, p));
    }

    t_case("accept: p = 0 and NaN never pass");
    for (int i = 0; i < count / 10; ++i) {
        float u = i < 2 ? (float)i * last : specv_uniform24((uint32_t)t_random());
        float q = i < NUM_EDGES ? edge(i) : fabsf(random_bits()), p = random_bits();
        if (q >= 0) CHECK(!specv_accept(u, q, 0) && !specv_accept(u, q, -0.f));
        CHECK(!specv_accept(u, q, nan) && !specv_accept(u, nan, p) && !specv_accept(nan, q, p));
    }

    t_case("accept: q = 0 passes if p > 0");
    for (int i = 0; i < count / 10; ++i) {
        float p = fabsf(random_bits());
        CHECK(specv_accept(specv_uniform24((uint32_t)t_random()), 0, p) == (p > 0));
    }

    t_case("accept: the chance is p / q to the grain of u");
    for (int i = 0; i < (t.quick ? 5000 : 200000); ++i) {
        float q = fabsf(random_near(-20, 0)), p = q * (float)t_uniform();
        raise_to(&worst, (long double)num_accepted(q, p) - (long double)p / q * 16777216);
    }
    check_bound("accept: 2^24 * |chance - p / q|", worst, 1.5);
}

/* -------------------------------------------------------------------------------- temperature */

static float random_temperature(void) {
    return specv_bits_float((uint32_t)t_between(0x39000000, 0x46000000));
}

static void test_temperature(void) {
    const int count = t.quick ? 20000 : 300000;
    double scale = 0, floors = 0;

    t_case("temperature: ok, 0, or a fault");
    for (int i = 0; i < count; ++i) {
        float x = i < NUM_EDGES ? edge(i) : i % 2 ? random_near(-15, 15) : random_bits();
        int ok = x >= 0 && x <= 8192;
        CHECK_EQ(specv_temperature_ok(x), ok, i);
        CHECK_EQ(specv_temperature_is_0(x), !ok || x < 0x1p-13f, i);
    }

    t_case("scale: log2(e) / T as a pair, and a floor whose weight is 0");
    for (int i = 0; i < count; ++i) {
        float x = i == 0 ? 0x1p-13f : i == 1 ? 8192 : random_temperature();
        long double c = 1.4426950408889634073599L / x;
        specv_scale s = specv_softmax_scale(x);
        specv_weight w = specv_softmax_weight(s.floor, &s);
        raise_to(&scale, (((long double)s.hi - c) + s.lo) / c);
        raise_to(&floors, s.floor * c / -1048576 - 1);
        CHECK(fabsf(s.lo) <= s.hi * 0x1.5p-24f);
        /* relative to the smallest n that a row's largest logit can have */
        CHECK(specv_weight_units(&w, -(1 << 19)) == 0 && specv_weight_float(&w, -(1 << 19)) == 0);
    }
    check_bound("scale: relative error of hi + lo", scale, 0x1p-47); /* "46 bits" */
    check_bound("scale: relative error of the floor", floors, 0x1p-23);

    t_case("in_range: |logit * c| <= 2^19");
    for (int i = 0; i < count; ++i) {
        specv_scale s = specv_softmax_scale(i % 3 ? 1 : random_temperature());
        float logit = i < NUM_EDGES ? edge(i) : random_bits();
        long double size;
        if (i % 2 && i >= NUM_EDGES) logit = (float)((524288 + 8 * normal()) / s.hi);
        size = fabsl((long double)logit) * s.hi;
        if (size <= 524288) CHECK(specv_in_range(logit, &s));
        if (!(size < 524288.04L)) CHECK(!specv_in_range(logit, &s)); /* NaN too */
    }
}

/* ---------------------------------------------------------------------------------- functions */

static void check_exp2(float x, double *worst) {
    raise_to(worst, specv_exp2(x) / exp2l((long double)x) - 1);
}

static void test_exp2(void) {
    const int count = t.quick ? 20000 : 1000000;
    double worst = 0;

    t_case("exp2: |x| < 126, relative error 2e-7");
    for (int i = 0; i < count; ++i) check_exp2((float)(t_uniform() * 251.98 - 125.99), &worst);
    for (int i = -125; i <= 125; ++i)
        for (int k = -8; k <= 8; ++k) check_exp2((float)(i + k * 0.0625), &worst);
    check_bound("exp2: relative error", worst, 2e-7);
}

/* Half a unit of the mantissa where 2^f is smallest, 2^-24 / sqrt(1/2), is 8.4e-8; the polynomial
   and the rounding of f add the rest. f is rounded to its own 24 bits, and, where |logit * c| is
   large, n is not quite the nearest integer: then |f| goes to 0.532, and so does the polynomial. */
static void test_weight(void) {
    static const double sizes[] = {8, 1024, 1 << 19}; /* of logit * c */
    static const double f_bounds[] = {3.3e-8, 3.3e-8, 4.8e-8}, bounds[] = {1.4e-7, 1.4e-7, 1.6e-7};
    static const double reaches[] = {0.5001, 0.5001, 0.5330};
    const int count = t.quick ? 20000 : 1000000;
    for (int k = 0; k < T_COUNT(sizes); ++k) {
        double error = 0, relative = 0, reach = 0;
        t_case("weight: n, f and mantissa of 2^(logit * c), |logit * c| up to %g", sizes[k]);
        for (int i = 0; i < count; ++i) {
            float temperature = i % 2 ? 1 : random_temperature();
            specv_scale s = specv_softmax_scale(temperature);
            float logit = (float)((2 * t_uniform() - 1) * sizes[k] / s.hi);
            specv_weight w = specv_softmax_weight(logit, &s);
            long double f = logit * (1.4426950408889634073599L / temperature) - w.n;
            raise_to(&reach, w.f);
            raise_to(&error, w.f - f);
            raise_to(&relative, w.mantissa / exp2l(f + 23) - 1);
            CHECK(w.mantissa >> 22 && w.mantissa < 1u << 24);
            /* what is derived from it: the same number, cut off below or not rounded at all */
            for (int below = 0; below <= 120; below += (int)t_between(1, 30)) {
                uint64_t units = (uint64_t)w.mantissa << 17;
                CHECK(specv_weight_units(&w, w.n + below) == (below < 64 ? units >> below : 0));
                CHECK(specv_weight_float(&w, w.n + below) ==
                      (below <= 100 ? ldexpf((float)w.mantissa, -below) : 0.f));
            }
        }
        check_bound("weight: largest |f|", reach, reaches[k]);
        check_bound("weight: error of f", error, f_bounds[k]);
        check_bound("weight: relative error", relative, bounds[k]);
    }
}

static void test_log2(void) {
    const int count = t.quick ? 20000 : 1000000;
    double relative = 0, beyond = 0;

    t_case("i_log2: an exponent and a rest of [-1/2, 1/2], relative error 1.3e-7");
    for (int i = 0; i < count; ++i) {
        int32_t exponent;
        float x = fabsf(i % 2 ? random_near(-126, 127) : random_near(-1, 0)), rest;
        long double exact;
        if (i < NUM_EDGES) x = fabsf(edge(i));
        if (i % 10 == 3) x = specv_bits_float(0x3f800000u + (uint32_t)t_between(-5000, 5000));
        if (!(x >= 0x1p-126f && x < INFINITY)) continue;
        rest = specv_i_log2(x, &exponent);
        exact = log2l((long double)x) - exponent;
        CHECK(rest >= -0.5f && rest <= 0.5f && fabsl(exact) < 0.50000006L);
        if (exact != 0) raise_to(&relative, rest / exact - 1);
        if (exact == 0) CHECK(rest == 0);
        /* the sum is rounded once more, by half a unit of it */
        raise_to(&beyond, beyond_rounding(specv_log2(x), exact + exponent));
    }
    check_bound("i_log2: relative error", relative, 1.3e-7);
    check_bound("log2: error beyond its rounding", beyond, 6.5e-8);
}

/* finer counts for small words only */
static long double exact_gumbel(uint32_t random, uint32_t finer) {
    long double v = ((long double)random + 0.5L) / 4294967296.0L;
    if (random < 256)
        v = ((long double)random + ((long double)finer + 0.5L) / 4294967296.0L) / 4294967296.0L;
    return -log2l(-log1pl(-v)) * 16777216;
}

static void test_gumbel(void) {
    const int count = t.quick ? 20000 : 2000000;
    const uint32_t branch = 0x4afb0ccd; /* where the function changes its way */
    double small = 0, large = 0;
    int32_t before = 0, rises = 0;

    t_case("gumbel24: -log2(-ln(1 - v)) in units of 2^-24");
    for (int i = 0; i < count; ++i) {
        uint32_t random = (uint32_t)t_random();
        if (i % 4 == 1) random >>= t_below(32); /* winners */
        if (i % 4 == 2) random = ~(random >> t_below(32));
        if (i % 4 == 3) random = branch + (uint32_t)t_between(-5000, 5000);
        if (i < 4000) random = i < 2000 ? (uint32_t)i : ~(uint32_t)(i - 2000);
        uint32_t finer = (uint32_t)t_random() >> (i % 3 ? 0 : t_below(32));
        raise_to(random < branch ? &small : &large,
                 specv_gumbel24(random, finer) - exact_gumbel(random, finer));
    }
    check_bound("gumbel24: error where v < 1 - sqrt(1/2), in units", small, 5.3);
    check_bound("gumbel24: error elsewhere, in units", large, 8);
    /* what the search for the largest score takes for granted */
    CHECK_EQ(specv_gumbel24(0, 0), (int64_t)65 << 24, -1); /* "the largest value is 65" */
    CHECK(specv_gumbel24(~(uint32_t)0, 0) > -(5 << 24));
    for (int bits = 1; bits <= 32; ++bits) /* at most clz + 2 */
        CHECK(specv_gumbel24((uint32_t)1 << (bits - 1), 0) <= (32 - bits + 2) << 24);
    CHECK(specv_gumbel24(255, ~(uint32_t)0) >= specv_gumbel24(256, 0));

    /* A larger v is never worth more by more than the errors: no jump where the way changes. */
    t_case("gumbel24: falls as v grows");
    for (int i = -3000; i <= 3000; ++i) {
        int32_t value = specv_gumbel24(branch + (uint32_t)i, 0);
        if (i > -3000 && value - before > 2) ++rises;
        before = value;
    }
    CHECK_EQ(rises, 0, -1);
}

/* Bounds by which most ids need no logarithm. They are the same for all words of an interval, in
   which the noise falls from one end to the other but for its error (8 units, see above): so both
   ends, with that to spare, stand for all 2^32 words. */
static void test_score_bound(void) {
    const int64_t spare = 20, unit = 1 << 14;
    const float none[] = {-INFINITY, NAN, -3e38f, -1e9f};
    const specv_scale plain = specv_softmax_scale(1);
    const specv_i_origin zero = specv_i_origin_of(0, 0, &plain);
    int64_t below = 0, wide = 0, lost = 0, intervals = 0;
    t_case("bounds of score plus noise, all words");
    for (uint64_t low = 0, high; low >> 32 == 0; low = high + 1, ++intervals) {
        const int32_t bound = specv_i_score_bound(0, 0, &zero, (uint32_t)low);
        high = low;
        for (int bit = 31; bit >= 0; --bit) { /* the last word with the same bound */
            const uint64_t next = high + ((uint64_t)1 << bit);
            if (next >> 32 == 0 && specv_i_score_bound(0, 0, &zero, (uint32_t)next) == bound)
                high = next;
        }
        if (low < 256) high = low;                                        /* further bits count */
        if (low < 0x80000100u && high >= 0x80000100u) high = 0x800000ffu; /* the last tight word */
        for (int i = 0; i < 9; ++i) {
            const int probs = i == 7 || i == 8;
            const float temperature =
                i < 3 ? 1 : specv_bits_float((uint32_t)t_between(0x39000000, 0x46000000));
            const specv_scale scale = specv_softmax_scale(temperature);
            const float log2 = i < 2   ? 0.f
                               : i < 5 ? (float)t_between(-600000, 600000) / 9000.f
                                       : (float)t_between(-5242880, 5242880) / 10.f;
            float score = log2 / scale.hi, f = 0;
            int32_t n = 0, largest = 0;
            if (probs) {
                score = specv_bits_float((uint32_t)t_between(0x00800000, 0x40000000));
                f = specv_i_log2(score, &n);
            } else {
                const specv_weight w = specv_softmax_weight(score, &scale);
                n = w.n, f = w.f;
                largest = n + (i % 2 ? 0 : (int32_t)t_between(0, 80));
            }
            const specv_i_origin origin = specv_i_origin_of(largest, probs, &scale);
            const int32_t least = specv_gumbel24((uint32_t)high, ~(uint32_t)0);
            const int32_t most = specv_gumbel24((uint32_t)low, 0);
            const int64_t nearly = specv_i_score_bound(score, probs, &origin, (uint32_t)low);
            const int64_t its = (nearly + origin.from) * unit;
            if (specv_i_score(n, f, most) + spare > its) ++below;
            if (specv_i_bound_is_tight((uint32_t)low) &&
                specv_i_score(n, f, least) - spare < its - SPECV_I_BOUND_WIDTH * unit)
                ++wide;
            /* What may win against a weight of `largest` is above the least. */
            if (specv_i_score(n, f, most) >= (int64_t)largest * 16777216 - 5 * 16777216 &&
                nearly - SPECV_I_BOUND_WIDTH < origin.least)
                ++lost;
            /* What has no weight is below it, whatever its noise. */
            if (specv_i_score_bound(probs ? i == 7 ? 0.f : NAN : none[i % T_COUNT(none)], probs,
                                    &origin, (uint32_t)low) >= origin.least - SPECV_I_BOUND_WIDTH)
                ++lost;
        }
    }
    CHECK_EQ(below, 0, -1);
    CHECK_EQ(wide, 0, -1);
    CHECK_EQ(lost, 0, -1);
    CHECK(intervals > 20000);
    CHECK(!specv_i_bound_is_tight(0) && !specv_i_bound_is_tight(255));
    CHECK(specv_i_bound_is_tight(256) && specv_i_bound_is_tight(0x7fffffffu));
    CHECK(!specv_i_bound_is_tight(0x80000200u) && !specv_i_bound_is_tight(~(uint32_t)0));
}

/* ------------------------------------------------------------------------------------ softmax */

static uint32_t encode_bf16(float x) {
    uint32_t bits = specv_float_bits(x);
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

static uint32_t encode_f16(float x) {
    uint32_t bits = specv_float_bits(x), size = bits & 0x7fffffffu, code;
    if (size > 0x7f800000u) return 0x7e00;
    if (size == 0x7f800000u) return bits >> 31 << 15 | 0x7c00;
    if (size < 0x38800000u)
        code = (uint32_t)(ldexp((double)specv_bits_float(size), 24) + 0.5);
    else
        code = (size - (112u << 23) + 0x1000) >> 13;
    if (size >= 0x477fe000u) code = 0x7bff; /* the largest finite one */
    return bits >> 31 << 15 | code;
}

static void put_score(void *data, int dtype, int64_t i, float x) {
    if (dtype == SPECV_LOGITS_F16)
        ((uint16_t *)data)[i] = (uint16_t)encode_f16(x);
    else if (dtype == SPECV_LOGITS_BF16)
        ((uint16_t *)data)[i] = (uint16_t)encode_bf16(x);
    else
        ((float *)data)[i] = x;
}

static float get_score(const void *data, int dtype, int64_t i) {
    const uint16_t *codes = (const uint16_t *)data;
    if (dtype == SPECV_LOGITS_F16) return (float)field_value(codes[i], 10, 5);
    if (dtype == SPECV_LOGITS_BF16) return (float)field_value(codes[i], 7, 8);
    return ((const float *)data)[i];
}

static int score_bytes(int dtype) {
    return dtype == SPECV_LOGITS_F16 || dtype == SPECV_LOGITS_BF16 ? 2 : 4;
}

static const char *const score_names[] = {"f32 logits", "fp16 logits", "bf16 logits", "f32 probs"};

static specv_verify_sample_desc one_row(const void *data, int dtype, int64_t vocab) {
    specv_verify_sample_desc d = SPECV_ZERO;
    d.verify.rows.batch = 1;
    d.verify.vocab = vocab;
    d.target.data = data;
    d.target.dtype = dtype;
    return d;
}

static struct { double law, p, sum, logprob, lse; } softmax_worst;

/* Draws two tokens by A8 and compares what it says of them. */
static void check_logprobs(const t_buf *data, int dtype, int64_t vocab, float temperature,
                           long double largest, long double sum) {
    specv_sample_desc d = SPECV_ZERO;
    int32_t token = -1;
    float uniform, logprob, lse;
    t_buf scratch;
    d.batch = 1;
    d.vocab = vocab;
    d.scores.data = data->host;
    d.scores.dtype = dtype;
    d.temperature = &temperature;
    d.uniform = &uniform;
    d.token = &token;
    d.logprob = &logprob;
    d.lse = &lse;
    d.scratch_bytes = specv_sample_scratch_bytes(d.batch, d.vocab);
    scratch = t_in(d.scratch_bytes, 0);
    d.scratch = scratch.host;
    for (int i = 0; i < 2; ++i) {
        long double exact, logit;
        uniform = specv_uniform24((uint32_t)t_random());
        if (!CHECK_EQ(specv_ref_sample(&d), SPECV_OK, i)) return;
        if (!CHECK(token >= 0 && token < vocab)) return;
        logit = get_score(data->host, dtype, token);
        exact = (logit - largest) / temperature - logl(sum);
        raise_to(&softmax_worst.logprob, beyond_rounding(logprob, exact));
        if (fabsl(exact) < 16) CHECK(fabsl(logprob - exact) <= 2e-6L);
        exact = largest / temperature + logl(sum);
        raise_to(&softmax_worst.lse, beyond_rounding(lse, exact));
        if (fabsl(exact) < 16) CHECK(fabsl(lse - exact) <= 2e-6L);
    }
}

/* The exact law of a draw, in units of the row: an id has what of its part of the tile's running
   sum is not cut off where the tile's sum was rounded to such units. Returns the row's sum. */
static long double law_of_draw(const specv_ref_i_weights *w, long double *law) {
    long double total = 0;
    for (int64_t x = 0; x < w->p->vocab; ++x) law[x] = 0;
    for (int64_t begin = 0; begin < w->p->vocab; begin += SPECV_TILE_IDS) {
        specv_ref_i_units u;
        uint64_t running = 0, end;
        specv_ref_i_tile_units(w, begin, &u);
        total += (long double)u.sum;
        if (u.sum == 0) u.finer = 0;
        end = u.sum << u.finer;
        for (int i = 0; i < u.count; ++i) {
            const uint64_t first = running < end ? running : end;
            running += u.of[i];
            law[begin + i] =
                ldexpl((long double)((running < end ? running : end) - first), -(int)u.finer);
        }
    }
    return total;
}

/* Total variation distance from the softmax in long double, of the probabilities that the accept
   test uses and of the exact law of a draw. */
static void check_softmax(int64_t vocab, double spread, float temperature, int dtype) {
    t_buf data = t_in(vocab * score_bytes(dtype), 0);
    specv_verify_sample_desc d = one_row(data.host, dtype, vocab);
    long double largest = -INFINITY, sum = 0, variation = 0, difference = 0, total_p = 0, total;
    long double *exact = (long double *)malloc(2 * sizeof(long double) * (size_t)vocab);
    long double *law = exact + vocab;
    specv_ref_i_scores row;
    specv_ref_i_weights w = SPECV_ZERO;
    if (!exact) t_die(__FILE__, __LINE__, "malloc", "no memory");
    for (int64_t x = 0; x < vocab; ++x) put_score(data.host, dtype, x, (float)(normal() * spread));
    for (int64_t x = 0; x < vocab; ++x) largest = fmaxl(largest, get_score(data.host, dtype, x));
    for (int64_t x = 0; x < vocab; ++x)
        sum += exact[x] = expl((get_score(data.host, dtype, x) - largest) / temperature);
    row = specv_ref_i_open(&d, 0, 0, 0, temperature);
    CHECK_EQ(row.row.kind, SPECV_SOFTMAX, -1);
    CHECK(row.row.max == (float)largest && row.row.status == 0);
    w.p = &row, w.q = NULL, w.prefix = 1, w.without = -1;
    total = law_of_draw(&w, law);
    for (int64_t x = 0; x < vocab; ++x) {
        variation += fabsl(law[x] / total - exact[x] / sum);
        total_p += specv_ref_i_p(&row, x);
        difference += fabsl(specv_ref_i_p(&row, x) - exact[x] / sum);
    }
    CHECK((uint64_t)total == row.row.sum);
    CHECK(variation / 2 <= 3e-8L);
    raise_to(&softmax_worst.law, variation / 2);
    raise_to(&softmax_worst.p, difference / 2);
    raise_to(&softmax_worst.sum, total_p - 1);
    check_logprobs(&data, dtype, vocab, temperature, largest, sum);
    free(exact);
}

static void test_softmax(void) {
    static const int64_t vocabs[] = {1, 2, 1000, 1024, 1025, 4097, 32000, 151936, 262144};
    static const double spreads[] = {0.01, 1, 3, 10, 50};
    static const float temperatures[] = {1, 0.7f, 0.1f, 2};
    int turn = 0;
    memset(&softmax_worst, 0, sizeof softmax_worst);
    for (int v = 0; v < T_COUNT(vocabs); ++v)
        for (int s = 0; s < T_COUNT(spreads); ++s)
            for (int i = 0; i < T_COUNT(temperatures); ++i)
                for (int dtype = SPECV_LOGITS_F32; dtype <= SPECV_LOGITS_BF16; ++dtype, ++turn) {
                    if (t.quick && vocabs[v] > 4097 && !(vocabs[v] == 32000 && turn % 20 == 0))
                        continue;
                    if (vocabs[v] > 100000 && (s + i + dtype) % 3)
                        continue; /* long double's time */
                    t_case("softmax: %lld %s, spread %g, temperature %g", (long long)vocabs[v],
                           score_names[dtype], spreads[s], (double)temperatures[i]);
                    check_softmax(vocabs[v], spreads[s], temperatures[i], dtype);
                }
    t_case("softmax: all of it");
    check_bound("softmax: total variation of the draw", softmax_worst.law, 3e-8);
    check_bound("softmax: total variation of p", softmax_worst.p, 4.8e-8);
    check_bound("softmax: |sum of p - 1|", softmax_worst.sum, 1e-7);
    check_bound("logprob: error beyond its rounding", softmax_worst.logprob, 1.5e-7);
    check_bound("lse: error beyond its rounding", softmax_worst.lse, 1.2e-7);
}

/* What is given as a probability is taken as it is: ln p. */
static void test_logprob_of_probs(void) {
    double worst = 0;
    for (int i = 0; i < 40; ++i) {
        const int vocab = 3;
        specv_sample_desc d = SPECV_ZERO;
        int32_t token = -1;
        float uniform, logprob = 7, lse = 7;
        t_case("logprob: probabilities");
        t_buf data = t_in(4 * vocab, 0), scratch;
        float *p = (float *)data.host;
        p[0] = i < 4 ? 1 : fabsf(random_near(-3 - i * 3, -1));
        p[1] = 0, p[2] = (i < 4 ? 0 : 1 - p[0]);
        d.batch = 1, d.vocab = vocab;
        d.scores.data = p, d.scores.dtype = SPECV_PROBS_F32;
        uniform = i % 2 && i >= 4 ? 0.999999f : 0;
        d.uniform = &uniform, d.token = &token, d.logprob = &logprob, d.lse = &lse;
        d.scratch_bytes = specv_sample_scratch_bytes(d.batch, d.vocab);
        scratch = t_in(d.scratch_bytes, 0);
        d.scratch = scratch.host;
        CHECK_EQ(specv_ref_sample(&d), SPECV_OK, i);
        CHECK(lse == 0);
        if (!CHECK(token == 0 || token == 2)) continue;
        raise_to(&worst, beyond_rounding(logprob, logl((long double)p[token])));
        if (p[token] == 1) CHECK(logprob == 0);
    }
    t_case("logprob: probabilities, all of it");
    check_bound("logprob of probabilities: error beyond its rounding", worst, 1e-7);
}

/* -------------------------------------------------------------------------------------- tails */

/* The bound that holds for every row: on rows that are made to be bad. */
enum { DOMINANT, TILES_OF_DOMINANT, RARE, FLAT, WORST_PAIR, STEPS, NUM_BAD_ROWS };

static const char *const bad_rows[NUM_BAD_ROWS] = {
    "one dominant id, the rest at 2^-41",    "a dominant id in each tile, the rest at 2^-41",
    "one dominant id, the rest at 2e-13",    "flat",
    "two values whose weights are off most", "octaves"};

/* The logits near 300 whose weights are too large and too small by most. */
static const float *worst_pair(void) {
    static float pair[2];
    long double off[2] = {0, 0};
    if (pair[0] > 0) return pair;
    const specv_scale one = specv_softmax_scale(1);
    for (float logit = 300; logit < 300.75f; logit += 0x1p-15f) {
        const specv_weight w = specv_softmax_weight(logit, &one);
        const long double log2_weight = logl((long double)w.mantissa) / logl(2) + w.n - 23;
        const long double error = log2_weight - logit / logl(2);
        if (error > off[0]) off[0] = error, pair[0] = logit;
        if (error < off[1]) off[1] = error, pair[1] = logit;
    }
    return pair;
}

static double bad_weight(int kind, int64_t x) {
    switch (kind) {
    case DOMINANT: return x == 700 ? 1 : 0x1p-41;
    case TILES_OF_DOMINANT: return x % 1024 == 700 ? 1 : 0x1p-41;
    case RARE: return x == 700 ? 1 : 2e-13;
    case FLAT: return 1;
    case WORST_PAIR: return exp((double)worst_pair()[x % 2] - 300);
    default: return exp2(-(double)(x % 1024) / 20);
    }
}

static void open_bad_row(t_buf *data, specv_ref_i_scores *row, specv_verify_sample_desc *d,
                         int kind, int64_t vocab, int probs, long double *exact) {
    long double sum = 0;
    for (int64_t x = 0; x < vocab; ++x) sum += bad_weight(kind, x);
    *data = t_in(vocab * 4, 0);
    for (int64_t x = 0; x < vocab; ++x) {
        const double weight = bad_weight(kind, x);
        put_score(data->host, SPECV_LOGITS_F32, x,
                  (float)(probs ? weight / (double)sum : 300 + log(weight)));
        exact[x] = get_score(data->host, SPECV_LOGITS_F32, x);
        if (!probs) exact[x] = expl(exact[x] - 300);
    }
    sum = 0;
    for (int64_t x = 0; x < vocab; ++x) sum += exact[x];
    for (int64_t x = 0; x < vocab; ++x) exact[x] /= sum;
    *d = one_row(data->host, probs ? SPECV_PROBS_F32 : SPECV_LOGITS_F32, vocab);
    *row = specv_ref_i_open(d, 0, 0, 0, 1);
}

/* Outcomes of 2^64 that draw an id below x. */
static uint64_t outcomes_below(const specv_ref_i_weights *w, int64_t x) {
    uint64_t low = 0;
    for (uint64_t step = (uint64_t)1 << 63; step; step /= 2)
        if (specv_ref_i_draw(w, low + step - 1) < x) low += step;
    return low;
}

static void test_tails(void) {
    const int64_t most = t.quick ? 1 << 15 : 1 << 22;
    long double *exact = (long double *)malloc(2 * sizeof(long double) * (size_t)most), total;
    double draw = 0, p_of_test = 0;
    t_buf data;
    specv_verify_sample_desc d;
    specv_ref_i_scores row;
    specv_ref_i_weights w = SPECV_ZERO;
    if (!exact) t_die(__FILE__, __LINE__, "malloc", "no memory");
    w.p = &row, w.q = NULL, w.prefix = 1, w.without = -1;

    for (int kind = 0; kind < NUM_BAD_ROWS; ++kind)
        for (int probs = 0; probs < 2; ++probs)
            for (int64_t vocab = 1 << 13; vocab <= most; vocab *= 8) {
                long double variation = 0, difference = 0, *law = exact + vocab;
                t_case("tails: %s, %lld %s", bad_rows[kind], (long long)vocab,
                       probs ? "probabilities" : "logits");
                open_bad_row(&data, &row, &d, kind, vocab, probs, exact);
                total = law_of_draw(&w, law);
                for (int64_t x = 0; x < vocab; ++x) {
                    variation += fabsl(law[x] / total - exact[x]);
                    difference += fabsl(specv_ref_i_p(&row, x) - exact[x]);
                }
                CHECK(variation / 2 <= 1e-7L);
                CHECK(difference <= 2.4e-7L);
                raise_to(&draw, variation / 2);
                raise_to(&p_of_test, difference);
            }
    t_case("tails: all of it");
    check_bound("every row: total variation of a draw", draw, 1e-7);
    check_bound("every row: sum of what p is off", p_of_test, 2.4e-7);

    /* The draw itself, by searching for the edges between outcomes: every id has its share. */
    for (int kind = 0; kind < 2 * NUM_BAD_ROWS; ++kind) {
        const int probs = kind % 2;
        const int64_t vocab = 2500, ids[] = {0, 1, 699, 700, 701, 1023, 1024, 1025, 2048, 2300};
        t_case("tails: shares of ids, %s, %s", bad_rows[kind / 2], probs ? "probs" : "logits");
        open_bad_row(&data, &row, &d, kind / 2, vocab, probs, exact);
        for (int i = 0; i < T_COUNT(ids); ++i) {
            const int64_t x = ids[i], tile = x / 1024 * 1024;
            const uint64_t below = outcomes_below(&w, x), through = outcomes_below(&w, x + 1);
            const double share = (double)(through - below) * 0x1p-64, wanted = (double)exact[x];
            double of_tile = 0, largest = 0;
            for (int64_t y = tile; y < tile + 1024 && y < vocab; ++y) {
                of_tile += (double)exact[y];
                largest = (double)exact[y] > largest ? (double)exact[y] : largest;
            }
            /* a unit of the tile's largest weight; of a unit of the row, which its end is cut to,
               the tile's share or all of it */
            const double cut = x == 1023 ? 0x1p-39 : wanted / of_tile * 0x1p-39;
            CHECK(fabs(share - wanted) <=
                  4e-7 * wanted + (probs ? 0x1p-50 : largest * 0x1p-39) + cut);
        }
    }

    t_case("tails: accept tests of small rates");
    for (int i = 0; i < 60; ++i) {
        const double rate = exp2(-(double)i * 1.1);
        const float q = 0.75f, p = (float)(0.75 * rate);
        double unit = 1, accepted = 0;
        specv_random r = {{0, 0, 0, 0}};
        for (int word = 0; word < 4; ++word, unit *= 0x1p-24) {
            uint32_t low = 0; /* words of this place that are accepted, those before being 0 */
            for (uint32_t step = 1 << 23; step; step /= 2) {
                r.x[word] = (low + step) << 8 | 0xff;
                if (specv_accept(specv_uniform(&r), q, p)) low += step;
            }
            r.x[word] = 0;
            accepted += unit * 0x1p-24 * low;
        }
        CHECK(fabs(accepted - rate) <= 0x1p-23 * (rate < 0x1p-24 ? 0x1p-24 : 1));
    }

    /* P(noise > g) = 1 - exp(-2^-g) */
    t_case("tails: noise up to 60 octaves");
    for (int i = 0; i < 120; ++i) {
        const int32_t level = i << 23;
        const double wanted = -expm1(-exp2(-(double)i / 2));
        uint64_t low = 0;
        for (uint64_t step = (uint64_t)1 << 63; step; step /= 2)
            if (specv_gumbel24((uint32_t)((low + step - 1) >> 32), (uint32_t)(low + step - 1)) >
                level)
                low += step;
        CHECK(fabs((double)low * 0x1p-64 - wanted) <=
              (1e-6 + (i < 48 ? 0x1p-32 / wanted : 0) + 0x1p-63 / wanted) * wanted);
    }
    free(exact);
}

/* -------------------------------------------------------------------------------------- order */

static specv_distribution open_row(const void *data, int dtype, int64_t vocab, float temperature) {
    specv_verify_sample_desc d = one_row(data, dtype, vocab);
    return specv_ref_i_open(&d, 0, 0, 0, temperature).row;
}

static int same_softmax(const specv_distribution *a, const specv_distribution *b) {
    return a->sum == b->sum && a->n == b->n && a->kind == b->kind && a->max == b->max &&
           a->inverse == b->inverse && a->inverse_low == b->inverse_low;
}

/* Sums of integers cannot know the order of their parts: not inside a tile, not of the tiles; nor
   what stands beside them that has no weight; nor how the same number was stored. */
static void test_order(void) {
    static const int64_t vocabs[] = {1, 2, 31, 1000, 1024, 1025, 2048, 5000, 32000};
    for (int i = 0; i < (t.quick ? 18 : 90); ++i) {
        const int64_t vocab = vocabs[i % T_COUNT(vocabs)], tiles = vocab / SPECV_TILE_IDS;
        const double spread = i % 4 ? 3 : 30;
        const float temperature = i % 3 ? 1 : random_temperature();
        specv_distribution row, other;
        float *logits, largest = -INFINITY;
        t_case("order: %lld ids", (long long)vocab);
        t_buf data = t_in(4 * (vocab + 3000), 0), halves = t_in(2 * vocab, 0);
        logits = (float *)data.host;
        /* few bits, so that every type holds them, and many ties */
        for (int64_t x = 0; x < vocab; ++x)
            logits[x] = specv_bf16_float(encode_bf16((float)(normal() * spread)) & 0xfff0u);
        row = open_row(logits, SPECV_LOGITS_F32, vocab, temperature);
        for (int64_t x = 0; x < vocab; ++x) largest = fmaxf(largest, logits[x]);
        CHECK(row.max == largest && logits[row.id] == largest);
        for (int64_t x = 0; x < row.id; ++x) CHECK(logits[x] < largest); /* the lowest of a tie */

        for (int64_t x = 0; x < vocab; ++x) put_score(halves.host, SPECV_LOGITS_BF16, x, logits[x]);
        other = open_row(halves.host, SPECV_LOGITS_BF16, vocab, temperature);
        CHECK(same_softmax(&row, &other) && row.id == other.id);
        for (int64_t x = 0; x < vocab; ++x) put_score(halves.host, SPECV_LOGITS_F16, x, logits[x]);
        for (int64_t x = 0; x < vocab; ++x) /* values that fp16 lacks: compare what it has */
            logits[x] = get_score(halves.host, SPECV_LOGITS_F16, x);
        row = open_row(logits, SPECV_LOGITS_F32, vocab, temperature);
        other = open_row(halves.host, SPECV_LOGITS_F16, vocab, temperature);
        CHECK(same_softmax(&row, &other) && row.id == other.id);

        for (int64_t x = 0; x < 3000; ++x) logits[vocab + x] = -INFINITY;
        other = open_row(logits, SPECV_LOGITS_F32, vocab + 3000, temperature);
        CHECK(same_softmax(&row, &other) && row.id == other.id);

        for (int64_t x = 0; x < vocab; ++x) { /* every id stays in its tile */
            int64_t begin = x / SPECV_TILE_IDS * SPECV_TILE_IDS, y = begin + t_below(x - begin + 1);
            float swapped = logits[x];
            logits[x] = logits[y], logits[y] = swapped;
        }
        other = open_row(logits, SPECV_LOGITS_F32, vocab, temperature);
        CHECK(same_softmax(&row, &other));

        for (int64_t k = 0; k < tiles; ++k) { /* whole tiles change places */
            float *a = logits + k * SPECV_TILE_IDS;
            float *b = logits + t_below(k + 1) * SPECV_TILE_IDS;
            for (int x = 0; x < SPECV_TILE_IDS; ++x) {
                float swapped = a[x];
                a[x] = b[x], b[x] = swapped;
            }
        }
        other = open_row(logits, SPECV_LOGITS_F32, vocab, temperature);
        CHECK(same_softmax(&row, &other));
    }

    t_case("order: equal logits are equally likely, and the first is the largest");
    for (int64_t vocab = 1; vocab <= 3000; vocab = vocab * 2 + 1) {
        float logits[3000];
        specv_verify_sample_desc d = one_row(logits, SPECV_LOGITS_F32, vocab);
        specv_ref_i_scores row;
        for (int64_t x = 0; x < vocab; ++x) logits[x] = 1.25f;
        row = specv_ref_i_open(&d, 0, 0, 0, 0.7f);
        CHECK(row.row.id == 0);
        for (int64_t x = 0; x < vocab; ++x) {
            const specv_weight w = specv_softmax_weight(logits[x], &row.scale);
            CHECK(specv_weight_units(&w, row.row.n) * (uint64_t)vocab == row.row.sum);
            CHECK(fabs(specv_ref_i_p(&row, x) * (double)vocab - 1) < 1e-7);
        }
    }
}

/* -------------------------------------------------------------------------------------- tiles */

static int same_float(float a, float b) { return specv_float_bits(a) == specv_float_bits(b); }

/* Noise bounds of an id: with words at the ends of their octaves, short ones, and random ones. */
static void check_noisy_bound(const specv_ref_i_scores *p, int64_t x, float score) {
    static const uint32_t odd[] = {0, 1, 255, 256, 257, 0x7fffffffu, 0x80000000u, 0xffffffffu};
    specv_noise from;
    from.seed = t_random(), from.position = from.row = 0, from.tag = SPECV_TAG_COUPLED;
    for (int i = 0; i < 4; ++i) {
        const uint32_t word = i == 0   ? T_PICK(odd)
                              : i == 1 ? (uint32_t)t_random() >> t_below(32)
                                       : (uint32_t)t_random();
        const int64_t value = specv_ref_i_noisy(p, &from, x, score, word);
        const double bound = (double)specv_ref_i_noisy_bound(p, score, word) * 0x1p24;
        CHECK(value == INT64_MIN || (double)value <= bound);
    }
}

/* What the reference finds for a tile is what the functions of one id give: scores, weights,
   probabilities, gains, the units that are drawn from; and no noise exceeds its bound. */
static void test_tiles(void) {
    static const int vocabs[] = {1, 2, 7, 8, 9, 31, 1000, 1023, 1024, 1025, 1031, 2050};
    static const double spreads[] = {0.01, 1, 4, 30, 4000};
    static const float odd[] = {NAN, -INFINITY, -0.5f, -0.f, 2.5f};
    for (int i = 0; i < (t.quick ? 240 : 2400); ++i) {
        const int64_t vocab = T_PICK(vocabs);
        const int dtype = i % 4, bad = i % 5 == 0;
        const float temperature = i % 3 ? 1 : random_temperature();
        specv_ref_i_scores row[2], alone;
        specv_scores said[2];
        specv_ref_i_weights w = SPECV_ZERO;
        t_case("tiles: %lld ids, %s", (long long)vocab, score_names[dtype]);
        for (int k = 0; k < 2; ++k) {
            t_buf data = t_in(vocab * score_bytes(dtype), 0);
            const double spread = T_PICK(spreads);
            specv_verify_sample_desc d = one_row(data.host, dtype, vocab);
            for (int64_t x = 0; x < vocab; ++x) {
                float score = (float)(normal() * spread);
                if (dtype == SPECV_PROBS_F32)
                    score = fabsf(score) / (float)(spread * (double)vocab);
                if (bad && t_chance(1)) score = T_PICK(odd);
                put_score(data.host, dtype, x, score);
            }
            row[k] = specv_ref_i_open(&d, 0, 0, 0, temperature);
            said[k] = d.target, row[k].scores = &said[k]; /* d goes */
        }
        w.p = &row[0], w.q = &row[1], w.without = -1;
        w.prefix = i % 2 ? 1 : specv_uniform24((uint32_t)t_random());
        for (int64_t begin = 0; begin < vocab; begin += SPECV_TILE_IDS) {
            specv_ref_i_tile tile;
            specv_ref_i_units units;
            float p[SPECV_TILE_IDS], gain[SPECV_TILE_IDS];
            uint64_t sum = 0;
            alone = row[0];
            specv_ref_i_tile_p(&row[0], begin, &tile, p);
            specv_ref_i_gains(&w, begin, &tile, gain);
            specv_ref_i_tile_units(&w, begin, &units);
            specv_ref_i_open_tile(&row[0], begin, &tile);
            specv_ref_i_weigh(&row[0].scale, &tile);
            for (int k = 0; k < tile.count; ++k) {
                const float score = specv_ref_i_score(&alone, begin + k);
                const specv_weight weight =
                    specv_softmax_weight(specv_i_max(score, alone.scale.floor), &alone.scale);
                CHECK(same_float(tile.score[k], score));
                CHECK(tile.n[k] == weight.n && tile.mantissa[k] == weight.mantissa);
                CHECK(same_float(p[k], specv_ref_i_p(&alone, begin + k)));
                CHECK(same_float(gain[k],
                                 specv_fma(w.prefix, p[k], -specv_ref_i_p(&row[1], begin + k))));
                CHECK(units.of[k] == (gain[k] > 0 ? specv_fixed50(gain[k]) : 0));
                sum += units.of[k];
                if (alone.row.kind == SPECV_SOFTMAX) check_noisy_bound(&alone, begin + k, score);
            }
            CHECK(units.sum == sum >> units.finer && row[0].row.status == alone.row.status);
        }
    }
}

/* ----------------------------------------------------------------- all functions of three words */

enum { NUM_WORDS = 58 }; /* that evaluate() stores */

BOTH uint32_t word_of(float x) { /* one NaN for all */
    return specv_i_is_nan(x) ? 0x7fc00000u : specv_float_bits(x);
}

BOTH uint32_t *put_long(uint32_t *out, uint64_t x) {
    *out++ = (uint32_t)x;
    *out++ = (uint32_t)(x >> 32);
    return out;
}

/* Every function of the section at arguments made of three words; words that a function does not
   take are moved into its domain. Returns where it ended. */
BOTH uint32_t *evaluate(uint32_t a, uint32_t b, uint32_t c, uint32_t *out) {
    const float x = specv_bits_float(a), y = specv_bits_float(b), z = specv_bits_float(c);
    const uint64_t ab = (uint64_t)a << 32 | b, bc = (uint64_t)b << 32 | c;
    const float temperature = specv_bits_float(0x39000000u + b % 0x0d000001u);
    const float normal_a = specv_bits_float(0x00800000u + a % 0x7f000000u);
    const uint32_t sign = a & 0x80000000u;
    specv_random random = specv_philox(ab, c, a ^ c, b, a % 5);
    const specv_scale one = specv_softmax_scale(1), s = specv_softmax_scale(temperature);
    specv_distribution row;
    specv_weight w;
    float logit = x;
    double log2_sum;
    uint64_t bits;
    uint32_t uniform_status = 0;
    int32_t exponent;
    if (!(specv_float_bits(specv_i_mul(x, s.hi)) <= 0x49000000u)) /* large, or negative */
        logit = specv_i_less(x, 0) ? specv_i_max(x, s.floor) : specv_uniform24(a);
    w = specv_softmax_weight(logit, &s);

    *out++ = specv_float_bits(x);
    *out++ = word_of(specv_fma(x, y, z));
    *out++ = word_of(specv_i_add(x, y));
    *out++ = word_of(specv_i_mul(x, y));
    *out++ = word_of(specv_i_div(x, y));
    *out++ = (a | b) << 1 == 0 ? 0 : word_of(specv_i_max(x, y)); /* zeros: either will do */
    *out++ = (uint32_t)specv_i_less(x, y);
    *out++ = (uint32_t)specv_i_is_nan(x);
    out = put_long(out, specv_i_shift_right(ab, c % 4 ? c % 70 : c));
    out = put_long(out, specv_i_mul_high(ab, bc));
    *out++ = word_of(specv_bf16_float(a));
    *out++ = word_of(specv_f16_float(a));
    for (int i = 0; i < 4; ++i) *out++ = random.x[i];
    *out++ = word_of(specv_uniform24(a));
    out = put_long(out, specv_uniform_bits(x));
    *out++ = (uint32_t)specv_accept(specv_uniform24(a), y, z);
    *out++ = (uint32_t)specv_accept(specv_uniform24(a), y, y);
    *out++ = (uint32_t)specv_temperature_ok(x);
    *out++ = (uint32_t)specv_temperature_is_0(x);
    *out++ = word_of(s.hi);
    *out++ = word_of(s.lo);
    *out++ = word_of(s.floor);
    *out++ = (uint32_t)specv_in_range(x, &s);
    *out++ = (uint32_t)specv_in_range(x, &one);
    *out++ = (uint32_t)w.n;
    *out++ = word_of(w.f);
    *out++ = w.mantissa;
    out = put_long(out, specv_weight_units(&w, w.n + (int32_t)(c % 70)));
    *out++ = word_of(specv_weight_float(&w, w.n + (int32_t)(c % 110)));
    out = put_long(out, specv_fixed50(specv_bits_float(a % 0x40800000u)));
    *out++ = word_of(specv_exp2(specv_bits_float(sign | a % 0x42fc0000u)));
    *out++ = word_of(specv_log2(normal_a));
    *out++ = word_of(specv_i_log2(normal_a, &exponent));
    *out++ = (uint32_t)exponent;
    *out++ = (uint32_t)specv_i_fixed24(specv_bits_float(sign | a % 0x42800000u));
    *out++ = (uint32_t)specv_gumbel24(a, b);
    *out++ = (uint32_t)specv_gumbel24(a & 511, b);
    *out++ = word_of(specv_uniform(&random));
    random.x[0] &= 511, random.x[1] >>= c % 32, random.x[2] >>= b % 32;
    *out++ = word_of(specv_uniform(&random));
    out = put_long(out, specv_uniform_bits(specv_i_clean_uniform(y, &uniform_status)));
    *out++ = uniform_status;
    out = put_long(out, (uint64_t)specv_i_score(w.n, w.f, (int32_t)(c % 0x20000000u)));
    row.sum = (bc >> c % 30) | (uint64_t)1 << 30;
    specv_i_set_inverse(&row);
    row.n = w.n + (int32_t)(c % 50);
    row.id = (int32_t)(c % 3);
    row.kind = SPECV_SOFTMAX;
    *out++ = word_of(row.inverse);
    *out++ = word_of(specv_probability(&row, &s, logit, 1));
    row.kind = c & 8 ? SPECV_ONE_HOT : SPECV_NO_TOKEN;
    *out++ = word_of(specv_probability(&row, &s, x, 1));
    log2_sum = specv_i_log2_sum(&row);
    bits = (uint64_t)(int64_t)(log2_sum * 1099511627776.0); /* 40 bits are more than it has */
    out = put_long(out, bits);
    *out++ = word_of(specv_i_ln(w.n, w.f, log2_sum));
    return out;
}

/* Input i of a run: all half codes, all pairs of edges, then random bits and ordinary numbers. */
static void make_words(int64_t i, uint32_t *abc) {
    for (int k = 0; k < 3; ++k) abc[k] = (uint32_t)t_random();
    if (i < 65536) {
        abc[0] = (uint32_t)i;
        if (i % 2) abc[1] = specv_float_bits((float)normal());
    } else if (i < 65536 + NUM_EDGES * NUM_EDGES) {
        i -= 65536;
        abc[0] = specv_float_bits(edge((int)(i % NUM_EDGES)));
        abc[1] = specv_float_bits(edge((int)(i / NUM_EDGES)));
        if (i % 3) abc[2] = specv_float_bits(edge((int)t_below(NUM_EDGES)));
    } else if (i % 4) { /* numbers as they occur: logits, uniforms */
        abc[0] = specv_float_bits((float)(normal() * 20));
        abc[1] = specv_float_bits(specv_uniform24(abc[1]));
        if (i % 8 < 4) abc[2] = specv_float_bits(specv_uniform24(abc[2]));
    }
}

#if T_DEVICE

/* In the order of evaluate(). */
/* clang-format off */
static const char *const word_names[NUM_WORDS] = {
    "float_bits", "fma", "i_add", "i_mul", "i_div", "i_max", "i_less", "i_is_nan",
    "i_shift_right low", "i_shift_right high", "i_mul_high low", "i_mul_high high", "bf16_float",
    "f16_float", "philox 0", "philox 1", "philox 2", "philox 3", "uniform24", "uniform_bits low",
    "uniform_bits high", "accept", "accept p = q", "temperature_ok", "temperature_is_0",
    "scale hi", "scale lo", "scale floor", "in_range", "in_range of 1", "weight n", "weight f",
    "weight mantissa", "weight_units low", "weight_units high", "weight_float", "fixed50 low",
    "fixed50 high", "exp2", "log2", "i_log2", "i_log2 exponent", "i_fixed24", "gumbel24",
    "gumbel24, finer", "uniform", "uniform of small words", "clean_uniform low",
    "clean_uniform high", "clean_uniform's status",
    "i_score low", "i_score high", "i_inverse", "probability", "probability, one hot",
    "i_log2_sum low", "i_log2_sum high", "i_ln",
};
/* clang-format on */

__global__ void evaluate_kernel(const uint32_t *words, uint32_t *results, int count) {
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < count)
        evaluate(words[3 * i], words[3 * i + 1], words[3 * i + 2],
                 results + (int64_t)NUM_WORDS * i);
}

static void test_device(void) {
    const int64_t count = t.quick ? 65536 + 2 * NUM_EDGES * NUM_EDGES : 1000000;
    const int step = 1 << 15;
    for (int64_t begin = 0; begin < count; begin += step) {
        const int size = (int)(count - begin < step ? count - begin : step);
        uint32_t *got;
        t_case("device: inputs from %lld", (long long)begin);
        t_buf words = t_in(12 * size, 0), results = t_out(4 * NUM_WORDS * size, 0);
        for (int i = 0; i < size; ++i) {
            uint32_t *abc = (uint32_t *)words.host + 3 * i;
            make_words(begin + i, abc);
            evaluate(abc[0], abc[1], abc[2], (uint32_t *)results.host + NUM_WORDS * i);
        }
        t_upload();
        t_poison_device();
        evaluate_kernel<<<(unsigned)(size + 127) / 128, 128>>>((uint32_t *)words.device,
                                                               (uint32_t *)results.device, size);
        T_CUDA(cudaGetLastError());
        t_check_device();
        got = (uint32_t *)malloc(results.bytes);
        if (!got) t_die(__FILE__, __LINE__, "malloc", "no memory");
        T_CUDA(cudaMemcpy(got, results.device, results.bytes, cudaMemcpyDeviceToHost));
        for (int i = 0; i < size * NUM_WORDS && t.bad < 4; ++i) {
            const uint32_t *abc = (uint32_t *)words.host + i / NUM_WORDS * 3;
            if (got[i] == ((uint32_t *)results.host)[i]) continue;
            printf("     %s of %08x %08x %08x: %08x on the device, %08x on the host\n",
                   word_names[i % NUM_WORDS], abc[0], abc[1], abc[2], got[i],
                   ((uint32_t *)results.host)[i]);
            t.bad += 1;
        }
        free(got);
    }
}

__global__ void philox_kernel(uint64_t key, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3,
                              specv_random *out) {
    *out = specv_philox(key, c0, c1, c2, c3);
}

static void test_device_philox(void) {
    for (int i = 0; i < T_COUNT(known_philox); ++i) {
        const uint32_t *c = known_philox[i].counter;
        t_case("device: known answer %d of Random123", i);
        t_buf out = t_out(16, 0);
        memcpy(out.host, known_philox[i].x, 16);
        t_upload();
        t_poison_device();
        philox_kernel<<<1, 1>>>(known_philox[i].key, c[0], c[1], c[2], c[3],
                                (specv_random *)out.device);
        T_CUDA(cudaGetLastError());
        t_check_device();
    }
}

#else
static void test_device(void) { t_skip("the device's bits need nvcc"); }
static void test_device_philox(void) { t_skip("the device's bits need nvcc"); }
#endif

/* ------------------------------------------------------------------------------------- digests */

/* The promise that fixed inputs give fixed bits, for every compiler, flag and machine. Whoever
   changes these numbers changes what users get for a seed: that is a new major version. */
#define DIGEST_FUNCTIONS UINT64_C(0x44991ffdd82c70ef)
#define DIGEST_SAMPLE    UINT64_C(0x27c36f5cbacc431a)

static void check_digest(uint64_t digest, uint64_t pinned) {
    printf("digest: 0x%016llx\n", (unsigned long long)digest);
    CHECK(digest == pinned);
}

static uint64_t add_to_digest(uint64_t digest, const void *data, int64_t bytes) {
    return t_mix(digest ^ t_hash((const char *)data, (size_t)bytes)) + 1;
}

/* A row of scores. Only exact arithmetic and single roundings, as everywhere in the digests. */
static void fill_scores(char *data, int dtype, int64_t first, int vocab, double spread) {
    int64_t total = 0;
    if (dtype == SPECV_PROBS_F32) {
        uint64_t start = t.random;
        for (int x = 0; x < vocab; ++x) total += (int64_t)(t_random() >> 44) % 1000000;
        t.random = start;
    }
    for (int x = 0; x < vocab; ++x) {
        if (dtype == SPECV_PROBS_F32) {
            int64_t part = (int64_t)(t_random() >> 44) % 1000000;
            ((float *)data)[first + x] = (float)((double)part / (double)(total + (total == 0)));
        } else {
            put_score(data, dtype, first + x, (float)(normal() * spread));
        }
    }
    if (t_chance(3)) /* nothing to choose from */
        for (int x = 0; x < vocab; ++x)
            put_score(data, dtype, first + x, dtype == SPECV_PROBS_F32 ? 0 : -INFINITY);
    if (t_chance(5)) put_score(data, dtype, first + t_below(vocab), NAN);
    if (t_chance(5)) put_score(data, dtype, first + t_below(vocab), INFINITY);
}

/* One call of the reference on a small batch, all outputs into the digest. */
static uint64_t digest_of_case(uint64_t digest, int turn) {
    static const double spreads[] = {1, 3, 0.25, 20};
    static const float temperatures[] = {1, 0.75f, 0, 2, 0.125f, 1, 0.5f, -1};
    enum { BATCH = 3, DRAFTS = 3, POSITIONS = DRAFTS + 1 };
    specv_verify_sample_desc d = SPECV_ZERO;
    const int rule = turn % 4, dtype = turn / 4 % 4, draft_dtype = turn / 16 % 5;
    const int vocab = turn % 23 == 0 ? 2100 : (int)t_between(2, 60);
    const double spread = T_PICK(spreads);
    int32_t drafts[BATCH * DRAFTS], accepted[BATCH], next[BATCH], out[BATCH * POSITIONS];
    int32_t emitted[BATCH], position[BATCH], draft_len[BATCH];
    uint8_t mismatch[BATCH], finished[BATCH];
    uint32_t status[BATCH];
    uint64_t seed[BATCH];
    float temperature[BATCH], draft_temperature[BATCH], logprob[BATCH], lse[BATCH];
    float accept_uniform[BATCH * DRAFTS], sample_uniform[BATCH];
    t_buf target = t_in(BATCH * POSITIONS * vocab * score_bytes(dtype), 0), draft, scratch;
    uint64_t inputs = t.random; /* a draft's scores are like the target's, where types agree */
    for (int i = 0; i < BATCH * POSITIONS; ++i)
        fill_scores(target.host, dtype, (int64_t)i * vocab, vocab, spread);
    if (draft_dtype < 4) {
        draft = t_in(BATCH * DRAFTS * vocab * score_bytes(draft_dtype), 0);
        if (t_chance(50)) t.random = inputs;
        for (int i = 0; i < BATCH * DRAFTS; ++i)
            fill_scores(draft.host, draft_dtype, (int64_t)i * vocab, vocab, spread);
        /* more than a probability: then p can have nothing that q has not */
        for (int x = 0; turn % 3 == 0 && draft_dtype == SPECV_PROBS_F32 && x < vocab; ++x)
            ((float *)draft.host)[x] *= 2;
        d.draft.data = draft.host;
        d.draft.dtype = draft_dtype;
    }
    t.random = t_mix(inputs + (uint64_t)turn);
    for (int i = 0; i < BATCH * DRAFTS; ++i) {
        drafts[i] = (int32_t)t_below(vocab);
        if (t_chance(4)) drafts[i] = (int32_t)t_between(-1, vocab);
        accept_uniform[i] = specv_uniform24((uint32_t)t_random());
        if (t_chance(60) && vocab < 100) { /* a likely one: the largest of the position */
            int64_t first = (int64_t)(i / DRAFTS * POSITIONS + i % DRAFTS) * vocab;
            for (int x = 0; x < vocab; ++x)
                if (get_score(target.host, dtype, first + x) >
                    get_score(target.host, dtype,
                              first + (drafts[i] < 0 || drafts[i] >= vocab ? 0 : drafts[i])))
                    drafts[i] = x;
        }
    }
    for (int b = 0; b < BATCH; ++b) {
        draft_len[b] = (int32_t)t_between(t_chance(5) ? -1 : 0, DRAFTS);
        position[b] = (int32_t)t_below(100000);
        seed[b] = t_random();
        temperature[b] = T_PICK(temperatures);
        draft_temperature[b] = T_PICK(temperatures);
        sample_uniform[b] = specv_uniform24((uint32_t)t_random());
    }
    d.verify.rows.batch = BATCH, d.verify.rows.max_draft = DRAFTS;
    if (turn % 3) d.verify.rows.draft_len = draft_len;
    d.verify.vocab = vocab;
    d.verify.draft_tokens = drafts;
    d.verify.accepted_len = accepted, d.verify.next_token = next, d.verify.out_tokens = out;
    d.verify.num_emitted = emitted, d.verify.mismatch = mismatch, d.verify.finished = finished;
    d.verify.row_status = status;
    if (turn % 5 == 0) d.verify.num_eos = 1, d.verify.eos_token[0] = vocab / 2;
    d.target.data = target.host;
    d.target.dtype = dtype;
    if (turn % 4 || turn % 7) d.temperature = temperature;
    if (turn % 6 == 0) d.draft_temperature = draft_temperature;
    d.seed = seed, d.position = position;
    if (turn % 8 >= 6) d.accept_uniform = accept_uniform;
    if (turn % 16 >= 13) d.sample_uniform = sample_uniform;
    d.logprob = logprob, d.lse = lse;
    d.rule = rule;
    d.step_row = turn % 9 ? 0 : 2;
    d.stream = turn % 11 ? SPECV_STREAM_TARGET : SPECV_STREAM_DRAFT;
    d.scratch_bytes = specv_verify_sample_scratch_bytes(d.verify.rows.batch,
                                                        d.verify.rows.max_draft, d.verify.vocab);
    scratch = t_in(d.scratch_bytes, 0);
    d.scratch = scratch.host;
    if (!CHECK_EQ(specv_ref_verify_sample(&d), SPECV_OK, turn)) return digest;
    digest = add_to_digest(digest, accepted, sizeof accepted);
    digest = add_to_digest(digest, next, sizeof next);
    digest = add_to_digest(digest, out, sizeof out);
    digest = add_to_digest(digest, emitted, sizeof emitted);
    digest = add_to_digest(digest, mismatch, sizeof mismatch);
    digest = add_to_digest(digest, finished, sizeof finished);
    digest = add_to_digest(digest, status, sizeof status);
    for (int b = 0; b < BATCH; ++b) {
        uint32_t words[2];
        words[0] = word_of(logprob[b]), words[1] = word_of(lse[b]);
        digest = add_to_digest(digest, words, sizeof words);
    }
    return digest;
}

/* Not of --seed, not shortened by --quick: the same work everywhere. */
static void test_digest(void) {
    uint64_t digest = 1;
    t_case("digest: every function of >>numeric");
    t.random = 1;
    for (int64_t i = 0; i < 30000; ++i) {
        uint32_t abc[3], out[NUM_WORDS];
        make_words(i < 20000 ? i * 4 : 65536 + i, abc);
        CHECK(evaluate(abc[0], abc[1], abc[2], out) == out + NUM_WORDS);
        digest = add_to_digest(digest, out, sizeof out);
    }
    check_digest(digest, DIGEST_FUNCTIONS);

    t_case("digest: sampled verification, all rules and types");
    digest = 1;
    for (int turn = 0; turn < 480; ++turn) {
        t.random = (uint64_t)turn * 0x9E3779B97F4A7C15u;
        digest = digest_of_case(digest, turn);
        t_free_buffers();
    }
    check_digest(digest, DIGEST_SAMPLE);
}

int main(int argc, char **argv) {
    static const t_group groups[] = {
        {"philox", test_philox},
        {"uniforms", test_uniforms},
        {"half", test_half},
        {"fma", test_fma},
        {"compare", test_compare},
        {"integers", test_integers},
        {"accept", test_accept},
        {"temperature", test_temperature},
        {"exp2", test_exp2},
        {"weight", test_weight},
        {"log2", test_log2},
        {"gumbel", test_gumbel},
        {"bounds", test_score_bound},
        {"softmax", test_softmax},
        {"tails", test_tails},
        {"logprob-of-probs", test_logprob_of_probs},
        {"order", test_order},
        {"tiles", test_tiles},
        {"device-philox", test_device_philox},
        {"device", test_device},
        {"digest", test_digest},
    };
    return t_main(argc, argv, groups, T_COUNT(groups));
}
