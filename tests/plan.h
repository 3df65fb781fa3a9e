/* plan.h - D1 and D2: cases of random weights, and what must be said of them.

   Weights are held against long double; ancestors against arithmetic in 128 bits that takes another
   way: how many points lie below each border, not where each point falls. */

#ifndef PLAN_H_INCLUDED
#define PLAN_H_INCLUDED

#include "io.h"
#include "slots.h"

#include "engine.h"

#include <math.h>

typedef unsigned __int128 wide;

T_FN double get_double(const t_buf *b, int64_t index) {
    double x;
    memcpy(&x, b->host + 8 * index, 8);
    return x;
}
T_FN void put_double(const t_buf *b, int64_t index, double x) {
    memcpy(b->host + 8 * index, &x, 8);
}
T_FN float get_float(const t_buf *b, int64_t index) {
    return specv_bits_float((uint32_t)get32(b->host, index));
}
T_FN void put_float(const t_buf *b, int64_t index, float x) { memcpy(b->host + 4 * index, &x, 4); }

T_FN double normal(void) {
    double sum = 0;
    for (int i = 0; i < 12; ++i) sum += t_uniform();
    return sum - 6;
}

/* NaN and +infinity count as -infinity. */
T_FN long double clean(long double w, uint32_t *bits) {
    if (!isnan(w) && !(isinf(w) && w > 0)) return w;
    *bits |= SPECV_ROW_NAN;
    return -(long double)INFINITY;
}

/* ---------------------------------------------------------------------------------------- D1 */

enum { COLUMNS = 9 }; /* drafts at most */

typedef struct weights {
    int batch, live, max_draft, dtype, num_eos, num_ids, strides_given;
    int64_t draft_stride, target_stride, row_stride, pos_stride, eos[SPECV_MAX_EOS];
    slots slots;
    t_buf num_active, tokens, next, p, q, alpha, bonus, lse, finished, log_weight, interval;
    t_buf emitted, status;
    int keep_status;
} weights;

typedef struct weighed { /* what a particle must be afterwards */
    long double log_weight, interval, size;
    int32_t emitted, finished;
    uint32_t status;
} weighed;

T_FN double odd_number(int odd) {
    const double odds[] = {-INFINITY, -INFINITY, NAN, INFINITY, -1e30, 0};
    return t_chance(odd) ? T_PICK(odds) : normal() * 4 - 5;
}

T_FN void put_numbers(t_buf *b, int64_t count, int odd) {
    *b = t_in(4 * count, 0);
    for (int64_t i = 0; i < count; ++i) put_float(b, i, (float)odd_number(odd));
}

/* Ids are few, so that many are an EOS. An int64 may have one's low half, and be none. */
T_FN void put_id(const weights *w, const t_buf *b, int64_t at) {
    const int64_t above = w->dtype == SPECV_I64 && t_chance(15) ? (int64_t)1 << 32 : 0;
    put_number(b->host, w->dtype, at, t_below(w->num_ids) + above);
}

/* bad: of slots_draw. */
T_FN void weights_make(weights *w, int count, int max_draft, int odd, int bad) {
    const int turned = t_chance(40); /* draft_logprob as [max_draft][batch] */
    memset(w, 0, sizeof *w);
    w->batch = count, w->max_draft = max_draft;
    w->dtype = t_chance(50) ? SPECV_I64 : SPECV_I32;
    w->num_eos = (int)t_below(SPECV_MAX_EOS + 1);
    w->num_ids = t_chance(50) ? 12 : 60;
    w->strides_given = turned || t_chance(60);
    w->draft_stride = w->target_stride = w->row_stride = max_draft, w->pos_stride = 1;
    if (w->strides_given) w->draft_stride += t_below(4), w->target_stride += t_below(4);
    if (w->strides_given) w->pos_stride += t_below(2), w->row_stride *= w->pos_stride;
    if (turned) w->row_stride = 1, w->pos_stride = count + t_below(3);
    for (int i = 0; i < w->num_eos; ++i) w->eos[i] = t_below(12) + (t_chance(10) ? 1LL << 32 : 0);
    w->num_active = draw_num_active(count, &w->live);
    w->slots = slots_draw(count, w->live, bad, 1);
    if (t_chance(85)) {
        const int64_t ids = (count - 1) * w->draft_stride + max_draft;
        w->tokens = t_in((w->dtype == SPECV_I64 ? 8 : 4) * ids, 0);
        for (int64_t i = 0; i < ids; ++i) put_id(w, &w->tokens, i);
    }
    if (t_chance(85)) w->next = t_in((w->dtype == SPECV_I64 ? 8 : 4) * (int64_t)count, 0);
    for (int b = 0; b < count && w->next.host; ++b) {
        put_id(w, &w->next, b);
        if (t_chance(10)) put_number(w->next.host, w->dtype, b, -1); /* nothing was drawn */
    }
    if (max_draft > 0) {
        put_numbers(&w->p, (count - 1) * w->target_stride + max_draft, odd);
        put_numbers(&w->q, (count - 1) * w->row_stride + (max_draft - 1) * w->pos_stride + 1, odd);
    }
    if (t_chance(60)) {
        const float alphas[] = {1, 0.5f, 2, 4, 0.7f, 0};
        w->alpha = t_in(4 * (int64_t)w->slots.count, 0);
        for (int k = 0; k < w->slots.count; ++k) put_float(&w->alpha, k, T_PICK(alphas));
    }
    if (t_chance(60)) put_numbers(&w->bonus, count, odd);
    if (w->bonus.host || t_chance(30)) put_numbers(&w->lse, count, odd);
    w->finished = t_out(w->slots.count, 0), w->log_weight = t_out(8 * (int64_t)w->slots.count, 0);
    w->interval = t_out(8 * (int64_t)w->slots.count, 0);
    for (int k = 0; k < w->slots.count; ++k) {
        w->finished.host[k] = (char)(t_chance(20) ? t_between(1, 255) : 0);
        put_double(&w->log_weight, k, odd_number(odd) * 10);
        put_double(&w->interval, k, odd_number(odd));
    }
    if (t_chance(80)) w->emitted = t_out(4 * (int64_t)count, 0);
    if (t_chance(80)) w->status = t_out(4 * (int64_t)count, 0);
}

T_FN specv_particle_weights_desc weights_describe(const weights *w, int side) {
    specv_particle_weights_desc d = SPECV_ZERO;
    d.token_dtype = w->dtype;
    d.num_active = (const int32_t *)t_at(&w->num_active, side);
    d.slot = slots_at(&w->slots, side), d.slot_dtype = slots_dtype(&w->slots);
    d.num_slots = slots_count(&w->slots);
    d.draft_tokens = t_at(&w->tokens, side), d.next_token = t_at(&w->next, side);
    d.target_logprob = (const float *)t_at(&w->p, side);
    d.draft_logprob = (const float *)t_at(&w->q, side);
    d.alpha = (const float *)t_at(&w->alpha, side);
    d.bonus_lse = (const float *)t_at(&w->bonus, side);
    d.lse = (const float *)t_at(&w->lse, side);
    d.finished = (uint8_t *)t_at(&w->finished, side);
    d.log_weight = (double *)t_at(&w->log_weight, side);
    d.interval_weight = (double *)t_at(&w->interval, side);
    d.num_emitted = (int32_t *)t_at(&w->emitted, side);
    d.row_status = (uint32_t *)t_at(&w->status, side);
    if (w->strides_given) {
        d.draft_stride_elems = w->draft_stride, d.target_logprob_stride_elems = w->target_stride;
        d.draft_logprob_seq_stride_elems = w->row_stride,
        d.draft_logprob_pos_stride_elems = w->pos_stride;
    }
    memcpy(d.eos_token, w->eos, sizeof d.eos_token);
    d.num_eos = w->num_eos, d.batch = w->batch, d.max_draft = w->max_draft;
    d.keep_status = w->keep_status;
    return d;
}

T_FN int is_end(const weights *w, const t_buf *tokens, int64_t at) {
    for (int i = 0; i < w->num_eos && tokens->host; ++i)
        if (get_number(tokens->host, w->dtype, at) == w->eos[i]) return 1;
    return 0;
}

/* The definition, in the order in which it is written down. */
T_FN weighed weigh(const weights *w, int b, int64_t slot) {
    weighed r = {0, 0, 1, 0, 0, 0};
    long double gain = 0, alpha = w->alpha.host ? get_float(&w->alpha, slot) : 1;
    int ended = 0;
    r.finished = (uint8_t)w->finished.host[slot];
    for (int j = 0; j < w->max_draft && !r.finished && !ended; ++j, ++r.emitted) {
        const long double p = get_float(&w->p, b * w->target_stride + j);
        const long double q = get_float(&w->q, b * w->row_stride + j * w->pos_stride);
        gain += alpha * p - q;
        r.size += fabsl(alpha * p) + fabsl(q);
        ended = is_end(w, &w->tokens, b * w->draft_stride + j);
    }
    if (!r.finished && !ended) {
        if (w->bonus.host) {
            const long double lse = get_float(&w->lse, b), bonus = get_float(&w->bonus, b);
            gain += bonus - alpha * lse;
            r.size += fabsl(bonus) + fabsl(alpha * lse);
        }
        r.emitted += !w->next.host || get_number(w->next.host, w->dtype, b) >= 0;
        ended = is_end(w, &w->next, b);
    }
    if (ended) r.finished = 1;
    gain = clean(gain, &r.status);
    r.log_weight = clean((long double)get_double(&w->log_weight, slot) + gain, &r.status);
    r.interval = clean((long double)get_double(&w->interval, slot) + gain, &r.status);
    return r;
}

T_FN int is_weight(double actual, long double expected, long double size) {
    if (isinf(expected)) return isinf(actual) && actual < 0;
    return fabsl(actual - expected) <= 1e-12L * (size + fabsl(expected));
}

/* ---------------------------------------------------------------------------------------- D2 */

/* How the weights of a group look. */
typedef enum kind {
    KIND_EQUAL,  /* all the same, anywhere */
    KIND_NEAR,   /* nearly so */
    KIND_NORMAL, /* as in life */
    KIND_WIDE,   /* most are nothing */
    KIND_FAR,    /* beyond what exp can say */
    KIND_ONE,    /* one finite weight */
    KIND_NONE,   /* none */
    KIND_HALF,   /* every other is -infinity */
    KIND_TWO,    /* 1 and 1/2: borders meet points */
    KIND_ODD,    /* NaN and +infinity among them */
    KIND_SCALED, /* apart by anything from 2^-40 to 2^12 */
    NUM_KINDS
} kind;

T_FN void draw_group(double *w, int n, kind k) {
    const double base = t_chance(50) ? 0 : normal() * 1e4;
    const double scale = ldexp(1, (int)t_between(-40, 12));
    const int hot = (int)t_below(n);
    for (int i = 0; i < n; ++i) {
        w[i] = base + normal() * (k == KIND_NEAR ? 0.01 : k == KIND_WIDE ? 20 : 1.5);
        if (k == KIND_EQUAL) w[i] = base;
        if (k == KIND_FAR) w[i] = normal() * 1e307;
        if (k == KIND_SCALED) w[i] = base + normal() * scale;
        if (k == KIND_TWO) w[i] = t_chance(50) ? 0 : -0.69314718055994531;
        if (k == KIND_NONE || (k == KIND_ONE && i != hot) || (k == KIND_HALF && i % 2))
            w[i] = -INFINITY;
        if (k == KIND_ODD && t_chance(30)) w[i] = t_chance(50) ? NAN : INFINITY;
    }
}

typedef struct plan {
    int groups, live, n, scheme;
    double threshold, *before, *before_log, *before_z;
    slots slots; /* of groups */
    t_buf num_active, weight, log_weight, log_z, seed, position, uniform, jobs, num_jobs;
    t_buf counts, drawn_row, ess, status;
    int keep_status;
} plan;

T_FN void plan_make_in(plan *p, int groups, int n, int scheme, double threshold, int bad) {
    const slots in = slots_draw(groups, groups, bad, 1);
    const int64_t all = (int64_t)in.count * n;
    memset(p, 0, sizeof *p);
    p->slots = in;
    p->groups = p->live = groups, p->n = n, p->scheme = scheme, p->threshold = threshold;
    p->weight = t_out(8 * all, 0), p->log_weight = t_out(8 * all, 0);
    p->log_z = t_out(8 * in.count, 0);
    p->seed = t_in(8 * in.count, 0), p->position = t_out(4 * in.count, 0);
    p->jobs = t_out(8 * (int64_t)groups * (n - 1), 0), p->num_jobs = t_out(4 * groups, 0);
    p->drawn_row = t_out(4 * groups, 0);
    p->counts = t_out(4 * (int64_t)groups * n, 0), p->ess = t_out(8 * groups, 0),
    p->status = t_out(4 * groups, 0);
    p->before = (double *)zeros(all + 1, 8), p->before_log = (double *)zeros(all + 1, 8);
    p->before_z = (double *)zeros(in.count + 1, 8);
    for (int slot = 0; slot < in.count; ++slot) {
        const uint64_t seed = t_random();
        memcpy(p->seed.host + 8 * (int64_t)slot, &seed, 8);
        put_word(&p->position, slot, (int32_t)t_random());
        put_double(&p->log_z, slot, t_chance(50) ? 0 : normal() * 100);
    }
    for (int64_t i = 0; i < all; ++i) put_double(&p->log_weight, i, normal());
}

T_FN void plan_make(plan *p, int groups, int n, int scheme, double threshold) {
    plan_make_in(p, groups, n, scheme, threshold, NO_SLOTS);
}

T_FN void plan_kinds(plan *p, int kind_or_any) {
    for (int slot = 0; slot < p->slots.count; ++slot)
        draw_group((double *)(void *)p->weight.host + (int64_t)slot * p->n, p->n,
                   (kind)(kind_or_any < 0 ? t_below(NUM_KINDS) : kind_or_any));
}

/* Numbers of the caller's instead of seeds: the ends of [0, 1) as well. */
T_FN void plan_uniforms(plan *p) {
    const int64_t count =
        p->scheme == SPECV_RESAMPLE_SYSTEMATIC ? p->groups : (int64_t)p->groups * p->n;
    p->uniform = t_in(4 * count, 0);
    for (int64_t i = 0; i < count; ++i)
        put_float(&p->uniform, i,
                  t_chance(5)   ? 0
                  : t_chance(5) ? 1 - 5.9604644775390625e-8f
                  : t_chance(5) ? 0.5f
                                : (float)t_below(1 << 24) * 5.9604644775390625e-8f);
}

T_FN void plan_keep(plan *p) { /* what there is before the launch */
    memcpy(p->before, p->weight.host, p->weight.bytes);
    if (p->log_weight.host) memcpy(p->before_log, p->log_weight.host, p->log_weight.bytes);
    if (p->log_z.host) memcpy(p->before_z, p->log_z.host, p->log_z.bytes);
}

T_FN void plan_free(plan *p) {
    free(p->before);
    free(p->before_log);
    free(p->before_z);
}

T_FN specv_resample_plan_desc plan_describe(const plan *p, int side) {
    specv_resample_plan_desc d = SPECV_ZERO;
    d.scheme = p->scheme;
    d.num_active_groups = (const int32_t *)t_at(&p->num_active, side);
    d.group_slot = slots_at(&p->slots, side), d.group_slot_dtype = slots_dtype(&p->slots);
    d.num_group_slots = slots_count(&p->slots);
    d.interval_weight = (double *)t_at(&p->weight, side);
    d.log_weight = (double *)t_at(&p->log_weight, side);
    d.log_z = (double *)t_at(&p->log_z, side);
    d.seed = (const uint64_t *)t_at(&p->seed, side);
    d.position = (const int32_t *)t_at(&p->position, side);
    d.uniform = (const float *)t_at(&p->uniform, side);
    d.jobs = (int32_t *)t_at(&p->jobs, side), d.num_jobs = (int32_t *)t_at(&p->num_jobs, side);
    d.num_copies = (int32_t *)t_at(&p->counts, side), d.ess = (double *)t_at(&p->ess, side);
    d.drawn_row = (int32_t *)t_at(&p->drawn_row, side);
    d.group_status = (uint32_t *)t_at(&p->status, side);
    d.threshold = p->threshold, d.num_groups = p->groups, d.num_particles = p->n;
    d.keep_status = p->keep_status;
    return d;
}

/* 64 bits behind the point of draw k. The one that picks a text is draw 1024, whoever gives the
   others. */
T_FN uint64_t seeded_draw(const plan *p, int g, int k) {
    const int64_t slot = slot_of(&p->slots, g);
    uint64_t seed;
    specv_random x;
    memcpy(&seed, p->seed.host + 8 * slot, 8);
    x = specv_philox(seed, (uint32_t)word_at(&p->position, slot), (uint32_t)k, 0,
                     SPECV_TAG_RESAMPLE);
    return (uint64_t)x.x[1] << 32 | x.x[0];
}

T_FN uint64_t draw_of(const plan *p, int g, int k) {
    const int one = p->scheme == SPECV_RESAMPLE_SYSTEMATIC;
    if (p->uniform.host) /* a float of [0, 1) has at most 24 + 126 bits there: ldexp is exact */
        return (uint64_t)ldexpl(get_float(&p->uniform, one ? g : (int64_t)g * p->n + k), 64);
    return seeded_draw(p, g, one ? 0 : k);
}

/* Particles of a group as integers, and what follows from them. */
typedef struct model {
    uint64_t w[SPECV_MAX_PARTICLES], sum;
    long double max, real_sum, ess;
    wide squares;
    int any;
    uint32_t bits;
    int32_t counts[SPECV_MAX_PARTICLES];
} model;

/* The integers are the kit's; each must be what exp says, to 2^-22.6 of itself. */
T_FN void model_weights(model *m, const double *before, int n) {
    m->sum = 0, m->any = 0, m->bits = 0, m->squares = 0, m->real_sum = 0, m->max = 0, m->ess = 0;
    for (int i = 0; i < n; ++i) {
        const long double w = clean(before[i], &m->bits);
        if (isinf(w)) continue;
        if (!m->any || w > m->max) m->max = w;
        m->any = 1;
    }
    if (!m->any) m->bits |= SPECV_ROW_EMPTY;
    for (int i = 0; i < n; ++i) {
        uint32_t ignored = 0;
        const long double w = clean(before[i], &ignored);
        const long double real = m->any ? expl(w - m->max) : 0;
        m->w[i] = isinf(w) ? 0 : specv_i_particle_units((double)w, (double)m->max);
        CHECK(fabsl((long double)m->w[i] - ldexpl(real, 40)) <= 1 + ldexpl(real, 40) * 1.5e-7L);
        m->sum += m->w[i];
        m->real_sum += real;
        m->squares += (wide)m->w[i] * m->w[i];
    }
    if (m->any) m->ess = (long double)m->sum * (long double)m->sum / (long double)m->squares;
}

/* Points of a sampler at (k + u) / n of the sum that are below `border`. */
T_FN int points_below(uint64_t border, uint32_t u, int n, uint64_t sum) {
    const wide scaled = (wide)border * (wide)n << 32, first = (wide)u * sum;
    if (scaled <= first) return 0;
    wide below = (scaled - first + ((wide)sum << 32) - 1) / ((wide)sum << 32);
    return below < (wide)n ? (int)below : n;
}

/* The particle in whose part of the running sum, `scale` times as large, `at` lies. */
T_FN int particle_at(const uint64_t *w, wide at, wide scale) {
    wide border = 0;
    int i = -1;
    do border += w[++i] * scale;
    while (border <= at);
    return i;
}

T_FN void model_counts(model *m, const plan *p, int g) {
    static uint64_t rest[SPECV_MAX_PARTICLES];
    const int n = p->n;
    memset(m->counts, 0, sizeof m->counts);
    if (p->scheme == SPECV_RESAMPLE_SYSTEMATIC) {
        const uint32_t u = (uint32_t)(draw_of(p, g, 0) >> 32);
        uint64_t border = 0;
        for (int i = 0, before = 0; i < n; ++i) {
            const int below = points_below(border += m->w[i], u, n, m->sum);
            m->counts[i] = below - before, before = below;
        }
    } else if (p->scheme == SPECV_RESAMPLE_STRATIFIED) { /* at < border, both times n * 2^32 */
        for (int k = 0; k < n; ++k)
            m->counts[particle_at(m->w, ((wide)k << 32 | draw_of(p, g, k) >> 32) * m->sum,
                                  (wide)n << 32)] += 1;
    } else if (p->scheme == SPECV_RESAMPLE_MULTINOMIAL) {
        for (int k = 0; k < n; ++k)
            m->counts[particle_at(m->w, ((wide)draw_of(p, g, k) * m->sum) >> 64, 1)] += 1;
    } else {
        uint64_t left = 0;
        for (int i = 0; i < n; ++i) {
            m->counts[i] = (int32_t)((wide)m->w[i] * (wide)n / m->sum);
            left += rest[i] = (uint64_t)((wide)m->w[i] * (wide)n % m->sum);
        }
        for (int k = 0; k < (int)(left / m->sum); ++k)
            m->counts[particle_at(rest, ((wide)draw_of(p, g, k) * left) >> 64, 1)] += 1;
    }
}

/* Jobs: dead rows ascending, each with the next spare copy; then -1. */
T_FN void check_jobs(const plan *p, int g, const int32_t *counts) {
    const int n = p->n, num_jobs = word_at(&p->num_jobs, g);
    int dead = 0, spare = 0, left = counts[0] - 1, wrong = -1;
    for (int j = 0; j < n - 1; ++j) {
        const int64_t at = 2 * ((int64_t)g * (n - 1) + j);
        int32_t dst = -1, src = -1;
        while (dead < n && counts[dead] > 0) ++dead;
        if (dead < n) {
            while (left <= 0) left = counts[++spare] - 1;
            dst = g * n + dead++, src = g * n + spare, left -= 1;
        }
        if ((j < num_jobs) != (dst >= 0) || word_at(&p->jobs, at) != src ||
            word_at(&p->jobs, at + 1) != dst)
            wrong = j;
    }
    CHECK_EQ(wrong, -1, g); /* the last wrong job */
}

T_FN void check_properties(const model *m, const plan *p) {
    int sum = 0, wrong = -1;
    for (int i = 0; i < p->n; ++i) {
        const wide share = (wide)m->w[i] * (wide)p->n;
        const int least = (int)(share / m->sum), most = least + (share % m->sum > 0);
        sum += m->counts[i];
        if (p->scheme == SPECV_RESAMPLE_SYSTEMATIC && m->counts[i] > most) wrong = i;
        if ((p->scheme == SPECV_RESAMPLE_SYSTEMATIC || p->scheme == SPECV_RESAMPLE_RESIDUAL) &&
            m->counts[i] < least)
            wrong = i;
        if (m->w[i] == 0 && m->counts[i]) wrong = i;
    }
    CHECK_EQ(sum, p->n, -1);
    CHECK_EQ(wrong, -1, wrong);
}

/* Everything that the reference says of a live group. */
T_FN void check_group(const plan *p, int g) {
    static model m;
    const int n = p->n;
    const int64_t row = (int64_t)g * n, slot = slot_of(&p->slots, g), state = slot * n;
    int equal, resamples, same = 1;
    model_weights(&m, p->before + state, n);
    equal = (wide)m.sum * m.sum == (wide)n * m.squares; /* and then so are all doubles */
    resamples = m.any && n > 1 && !equal && m.ess < (long double)p->threshold * n;
    if (m.any && !equal && fabsl(m.ess - (long double)p->threshold * n) < 1e-13L * n)
        resamples = p->ess.host /* as near as this, it is rounding */
                        ? get_double(&p->ess, g) < p->threshold * n
                        : memcmp(p->weight.host + 8 * state, p->before + state, 8 * (size_t)n) != 0;
    for (int i = 0; i < n; ++i) m.counts[i] = 1;
    if (resamples) {
        model_counts(&m, p, g);
        check_properties(&m, p);
    }
    for (int i = 0; i < n; ++i) {
        const double now = get_double(&p->weight, state + i);
        if (p->counts.host) same &= word_at(&p->counts, row + i) == m.counts[i];
        same &= resamples ? now == 0 : memcmp(&now, &p->before[state + i], 8) == 0;
        if (p->log_weight.host)
            same &=
                get_double(&p->log_weight, state + i) == (resamples ? 0 : p->before_log[state + i]);
    }
    CHECK_EQ(same, 1, g);
    check_jobs(p, g, m.counts);
    if (p->drawn_row.host) {
        const wide at = ((wide)seeded_draw(p, g, SPECV_MAX_PARTICLES) * m.sum) >> 64;
        CHECK_EQ(word_at(&p->drawn_row, g), m.any ? g * n + particle_at(m.w, at, 1) : -1, g);
    }
    if (p->log_z.host) {
        long double z = p->before_z[slot], gain = resamples ? m.max + logl(m.real_sum / n) : 0;
        CHECK(fabsl(get_double(&p->log_z, slot) - z - gain) <=
              resamples * 1e-6L + (fabsl(z) + fabsl(gain)) * 1e-12L);
    }
    if (p->ess.host) CHECK(fabsl(get_double(&p->ess, g) - m.ess) <= 1e-9L * m.ess);
    if (p->ess.host && equal && m.any) CHECK(get_double(&p->ess, g) == n);
    if (p->status.host)
        CHECK_EQ((uint32_t)word_at(&p->status, g), m.bits | t_old_status(p->keep_status, g), g);
}

T_FN void check_inert(const plan *p, int g, uint32_t status) {
    const int64_t row = (int64_t)g * p->n;
    int same = 1;
    for (int64_t j = 0; j < 2 * (p->n - 1); ++j)
        same &= word_at(&p->jobs, 2 * (int64_t)g * (p->n - 1) + j) == -1;
    for (int i = 0; i < p->n && p->counts.host; ++i) same &= word_at(&p->counts, row + i) == 0;
    if (p->drawn_row.host) same &= word_at(&p->drawn_row, g) == -1;
    if (p->ess.host) same &= get_double(&p->ess, g) == 0;
    if (p->status.host)
        CHECK_EQ((uint32_t)word_at(&p->status, g), status | t_old_status(p->keep_status, g), g);
    CHECK_EQ(same && word_at(&p->num_jobs, g) == 0, 1, g);
}

/* Slots without a live group stay as they are. */
T_FN void check_others(const plan *p) {
    const size_t bytes = 8 * (size_t)p->n;
    slots_check_rest(&p->slots, p->weight.host, (const char *)p->before, bytes);
    if (p->log_weight.host)
        slots_check_rest(&p->slots, p->log_weight.host, (const char *)p->before_log, bytes);
    if (p->log_z.host) slots_check_rest(&p->slots, p->log_z.host, (const char *)p->before_z, 8);
}

/* After the reference ran: every group, and whatever is nobody's. */
T_FN void check_plan(const plan *p) {
    for (int g = 0; g < p->groups; ++g) {
        const int bad = g < p->live && slot_of(&p->slots, g) < 0;
        if (g < p->live && !bad)
            check_group(p, g);
        else
            check_inert(p, g, bad ? SPECV_ROW_BAD_SLOT : 0);
    }
    check_others(p);
}

T_FN void plan_reference(plan *p) {
    specv_resample_plan_desc d = plan_describe(p, T_HOST_SIDE);
    plan_keep(p);
    CHECK_EQ(specv_ref_resample_plan(&d), SPECV_OK, -1);
}

T_FN void plan_device(const plan *p) {
#if T_DEVICE
    specv_resample_plan_desc d = plan_describe(p, T_DEVICE_SIDE);
    CHECK_EQ(specv_resample_plan(&d, 0), SPECV_OK, -1);
#else
    (void)p;
#endif
    t_check_device();
}

T_FN void plan_run(plan *p) {
    t_upload();
    plan_reference(p);
    check_plan(p);
    t_check_host();
    plan_device(p);
    plan_free(p);
}

static const char *const schemes[] = {"systematic", "stratified", "multinomial", "residual"};
enum { NUM_SCHEMES = 4 };

#endif /* PLAN_H_INCLUDED */
