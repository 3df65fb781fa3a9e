/* chi2.h - counts against expectations, as p-values that hold far out, and one budget of false
   alarms for all that a program looks at.

   Two kinds. `cells`: a whole distribution over few cells. The statistic is the deviance,
   2 sum O ln(O / E), and not Pearson's: the tail of a count is governed by its deviance (Chernoff),
   so chi-square's tail holds for it where Pearson's is too optimistic by orders of magnitude. Cells
   that expect little are put together. `evidence`: how often something happened whose probability
   was known each time anew, however small, and however it depends on what came before. */

#ifndef CHI2_H_INCLUDED
#define CHI2_H_INCLUDED

#include "t.h"

#include <math.h>

/* A run may raise a false alarm once in a million runs; each statistic has its share of that. */
enum { MAX_STATISTICS = 1000 };
static const double false_alarms = 1e-6;

T_FN double threshold(void) { return false_alarms / MAX_STATISTICS; }

/* ---------------------------------------------------------------------------- chi-square's tail */

/* P(chi-square of df degrees of freedom > x): the upper regularised incomplete gamma function of
   df / 2 at x / 2, by its series below a + 1, by its continued fraction above. */
T_FN double chi2_tail(double x, double df) {
    const double a = df / 2, z = x / 2;
    if (!(x > 0)) return 1;
    if (isinf(x)) return 0;
    const double front = exp(a * log(z) - z - lgamma(a));
    if (z < a + 1) {
        double term = 1 / a, sum = term;
        for (int i = 1; term > 1e-17 * sum; ++i) sum += term *= z / (a + i);
        return 1 - front * sum;
    }
    double b = z + 1 - a, c = 1e300, d = 1 / b, h = d;
    for (int i = 1; i < 100000; ++i) { /* Lentz */
        const double an = -i * (i - a);
        b += 2;
        d = 1 / (an * d + b), c = b + an / c;
        h *= c * d;
        if (fabs(c * d - 1) < 1e-16) break;
    }
    return front * h;
}

/* ----------------------------------------------------------------------------------- evidence */

/* Something happened `seen` times in `trials`; its probabilities add up to `expected`, their
   r (1 - r) to `variance`. slack: how far they may be off in all, by rounding. */
typedef struct evidence {
    double trials, seen, expected, variance, slack;
} evidence;

T_FN void add_value(evidence *e, double value, double mean, double variance, double slack) {
    e->trials += 1, e->seen += value, e->expected += mean, e->variance += variance;
    e->slack += slack < 1 ? slack : 1;
}

T_FN void add_trial(evidence *e, double rate, int happened, double slack) {
    add_value(e, happened, rate, rate * (1 - rate), slack);
}

/* For each s, exp(s (seen - expected) - (e^|s| - 1 - |s|) variance) has a mean of at most 1
   (Freedman 1975), whatever the rates depend on; so has the mean over many s, either sign, and
   over many kinds of event; and what is not negative and has mean 1 is above 1 / p with
   probability p at most (Markov). Nothing here is asymptotic. The same for any values that are
   never further than 1 from their means. log_mean: of the mean; p is its inverse, or 1. */
T_FN double p_of_evidence(const evidence *e, int count, double *log_mean) {
    enum { STEPS = 15 };
    double logs[2 * STEPS], sum = 0, largest = -1e300;
    for (int pass = 0; pass < 2; ++pass) /* first the largest exponent, then the sum */
        for (int i = 0; i < count; ++i) {
            for (int k = 0; k < STEPS; ++k) {
                const double s = 8 / (double)(1 << k), gap = e[i].seen - e[i].expected;
                const double less =
                    s * e[i].slack + (exp(s) - 1 - s) * (e[i].variance + e[i].slack);
                logs[2 * k] = s * gap - less, logs[2 * k + 1] = -s * gap - less;
            }
            for (int k = 0; k < 2 * STEPS; ++k)
                if (pass)
                    sum += exp(logs[k] - largest);
                else
                    largest = logs[k] > largest ? logs[k] : largest;
        }
    *log_mean = largest + log(sum / (2 * STEPS * (double)count));
    return *log_mean > 0 ? exp(-*log_mean) : 1;
}

T_FN double trials_of(const evidence *e, int count) {
    double trials = 0;
    for (int i = 0; i < count; ++i) trials += e[i].trials;
    return trials;
}

/* Kinds of events by their rate: powers of 4 away from 0, and from 1. */
enum { RATE_BINS = 24 };

T_FN int rate_bin(double rate) {
    int exponent, high = rate > .5;
    frexp(high ? 1 - rate : rate, &exponent); /* 2^(exponent - 1) <= rate < 2^exponent */
    exponent = exponent < -21 || !(high ? rate < 1 : rate > 0) ? -21 : exponent;
    return high * RATE_BINS / 2 + (1 - exponent) / 2;
}

/* -------------------------------------------------------------------------------------- cells */

/* Groups of cells, each group with as many observations as it expects. */
enum { RARE_BINS = 8 };

typedef struct chi2 {
    double statistic, df;
    evidence rare[RARE_BINS]; /* cells that expect too little for a term of their own */
    double impossible;        /* seen though nothing was expected */
} chi2;

static const double least_expected = 50;

T_FN double deviance(double observed, double expected) {
    const double logs = observed > 0 ? observed * log(observed / expected) : 0;
    return 2 * (logs - (observed - expected));
}

T_FN void add_rare(chi2 *c, double observed, double expected) {
    int exponent;
    frexp(expected / least_expected, &exponent);
    evidence *e = &c->rare[exponent < -20 ? RARE_BINS - 1 : -exponent / 3];
    e->seen += observed, e->expected += expected, e->variance += expected;
}

/* Cells that expect too little go together, and, if that is not enough, into the smallest cell that
   expects enough. */
T_FN void add_cells(chi2 *c, const double *observed, const double *expected, int count) {
    double few_observed = 0, few_expected = 0, sum = 0, cells = 0;
    int smallest = -1;
    for (int i = 0; i < count; ++i) {
        if (!(expected[i] > 0)) {
            c->impossible += observed[i];
        } else if (expected[i] < least_expected) {
            few_observed += observed[i], few_expected += expected[i];
            add_rare(c, observed[i], expected[i]);
        } else if (smallest < 0 || expected[i] < expected[smallest]) {
            smallest = i;
        }
    }
    const int joins = few_expected < least_expected;
    for (int i = 0; i < count; ++i) {
        const double more = joins && i == smallest;
        if (!(expected[i] >= least_expected)) continue;
        sum += deviance(observed[i] + more * few_observed, expected[i] + more * few_expected);
        cells += 1;
    }
    if (!joins) sum += deviance(few_observed, few_expected), cells += 1;
    if (cells > 1) c->statistic += sum, c->df += cells - 1; /* one alone says nothing */
}

/* Thrice the smaller of the two: test_null in law.cu shows that chi-square's tail is too small by
   less than 2, and rare cells have the third share. */
T_FN double p_of_cells(const chi2 *c) {
    double log_mean;
    const double rare = p_of_evidence(c->rare, RARE_BINS, &log_mean);
    const double tail = chi2_tail(c->statistic, c->df), both = 3 * (rare < tail ? rare : tail);
    if (c->impossible > 0) return 0;
    return both < 1 ? both : 1;
}

/* ------------------------------------------------------------------------------------- budget */

typedef struct statistic {
    char of[160];
    const char *name;
    double value, df, p; /* df: degrees of freedom, or trials */
} statistic;

static statistic statistics[MAX_STATISTICS];
static int num_statistics, num_too_few;

T_FN int has_observations(const statistic *s) { return s->df > 0; }

/* One that has nothing to say fails, but where `may_lack`: a few texts on a device. */
T_FN void judge_statistic(statistic s, int may_lack) {
    if (!has_observations(&s)) {
        num_too_few += 1;
        CHECK(may_lack && "too few observations");
        return;
    }
    if (!CHECK(num_statistics < MAX_STATISTICS)) return;
    memcpy(s.of, t.what, sizeof s.of);
    s.of[sizeof s.of - 1] = 0;
    statistics[num_statistics++] = s;
    CHECK(s.p >= threshold());
}

T_FN void list_statistics(void) {
    const statistic *least = statistics;
    if (num_statistics == 0) return;
    for (int i = 0; i < num_statistics; ++i) {
        const statistic *s = &statistics[i];
        printf("p %-8.3g %-9s %10.1f of %-10.0f %s\n", s->p, s->name, s->value, s->df, s->of);
        if (s->p < least->p) least = s;
    }
    printf("smallest p of the run: %.3g (%s, %s) against %.0e: %d statistics, at most %d, %.0e for "
           "all; %d with too few observations\n",
           least->p, least->name, least->of, threshold(), num_statistics, (int)MAX_STATISTICS,
           false_alarms, num_too_few);
}

#endif /* CHI2_H_INCLUDED */
