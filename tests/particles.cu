/* particles.cu - D1 and D2: weights of particles, who is resampled. See plan.h for the model. */

#include "plan.h"

#if !T_DEVICE
#define specv_particle_weights(d, stream) specv_ref_particle_weights(d)
#define specv_resample_plan(d, stream)    specv_ref_resample_plan(d)
#endif

/* ---------------------------------------------------------------------------------------- D1 */

static void run_weights(int count, int max_draft, int odd, int bad) {
    weights w;
    weights_make(&w, count, max_draft, odd, bad);
    w.keep_status = w.status.host && t_chance(30);
    t_fill_status(&w.status, w.keep_status);
    t_note(" batch %d, %d drafts, %d eos, %d odd, slots %d", count, max_draft, w.num_eos, odd, bad);
    weighed *want = (weighed *)zeros(count, sizeof(weighed));
    char *state[] = {w.log_weight.host, w.interval.host, w.finished.host};
    const size_t bytes[] = {8, 8, 1};
    char *before[T_COUNT(state)];
    for (int i = 0; i < T_COUNT(state); ++i) {
        before[i] = (char *)zeros(w.slots.count, bytes[i]);
        memcpy(before[i], state[i], bytes[i] * (size_t)w.slots.count);
    }
    for (int b = 0; b < w.live; ++b) {
        const int64_t slot = slot_of(&w.slots, b);
        if (slot >= 0) want[b] = weigh(&w, b, slot);
        if (slot < 0) want[b].status = SPECV_ROW_BAD_SLOT;
    }
    t_upload();
    specv_particle_weights_desc d = weights_describe(&w, T_HOST_SIDE);
    CHECK_EQ(specv_ref_particle_weights(&d), SPECV_OK, -1);
    for (int b = 0; b < count; ++b) {
        const int64_t slot = b < w.live ? slot_of(&w.slots, b) : -1;
        if (w.emitted.host) CHECK_EQ(word_at(&w.emitted, b), want[b].emitted, b);
        if (w.status.host)
            CHECK_EQ((uint32_t)word_at(&w.status, b),
                     want[b].status | t_old_status(w.keep_status, b), b);
        if (slot < 0) continue;
        CHECK(is_weight(get_double(&w.log_weight, slot), want[b].log_weight, want[b].size));
        CHECK(is_weight(get_double(&w.interval, slot), want[b].interval, want[b].size));
        CHECK_EQ((uint8_t)w.finished.host[slot], want[b].finished, b);
    }
    for (int i = 0; i < T_COUNT(state); ++i) {
        slots_check_rest(&w.slots, state[i], before[i], bytes[i]);
        free(before[i]);
    }
    free(want);
    t_check_host();
#if T_DEVICE
    d = weights_describe(&w, T_DEVICE_SIDE);
    CHECK_EQ(specv_particle_weights(&d, 0), SPECV_OK, -1);
#endif
    t_check_device();
}

static void test_weights(void) {
    static const int batches[] = {1, 2, 8, 31, 33, 255, 256, 257, 700};
    for (int i = 0; i < (t.cases ? t.cases : t.quick ? 60 : T_DEVICE ? 300 : 5000); ++i) {
        t_case("weights:");
        run_weights(T_PICK(batches), (int)t_below(COLUMNS + 1), t_chance(50) ? 0 : 6,
                    draw_bad_slots());
    }
    for (int i = 0; i < 2; ++i) {
        t_case("many:");
        run_weights(t.quick ? 5000 : 70000, 3 * i, 1, NO_SLOTS);
    }
}

/* ---------------------------------------------------------------------------------------- D2 */

static void test_plans(void) {
    static const int sizes[] = {1, 2, 3, 7, 31, 32, 33, 64, 100, 255, 256, 1000, 1024};
    static const int groups[] = {0, 1, 2, 5, 33};
    static const double thresholds[] = {0.5, 1, 0.9, 0.1, 0};
    int turn = 0;
    for (int round = 0; round < (T_DEVICE ? 1 : t.quick ? 1 : 8); ++round)
        for (int i = 0; i < T_COUNT(sizes); ++i)
            for (int j = 0; j < T_COUNT(groups); ++j)
                for (int scheme = 0; scheme < NUM_SCHEMES; ++scheme, ++turn) {
                    plan p;
                    if (t.quick && (turn % 3 || sizes[i] * groups[j] > 2100)) continue;
                    t_case("%s, %d groups of %d", schemes[scheme], groups[j], sizes[i]);
                    plan_make_in(&p, groups[j], sizes[i], scheme, T_PICK(thresholds),
                                 draw_bad_slots());
                    plan_kinds(&p, turn % 2 ? -1 : turn / 8 % NUM_KINDS);
                    if (t_chance(30)) plan_uniforms(&p);
                    if (t_chance(30)) p.num_active = draw_num_active(p.groups, &p.live);
                    slots_end(&p.slots, p.live);
                    if (t_chance(20)) { /* nothing that may be null */
                        memset(&p.log_weight, 0, sizeof p.log_weight);
                        p.log_z = p.counts = p.drawn_row = p.ess = p.status = p.log_weight;
                        if (p.uniform.host) p.seed = p.position = p.log_weight;
                    }
                    p.keep_status = p.status.host && t_chance(30);
                    t_fill_status(&p.status, p.keep_status);
                    plan_run(&p);
                }
}

/* A uniform that is none counts as the largest below 1 and says so, where it is used. */
static void test_bad_uniforms(void) {
    static const float bad[] = {-1e-30f, 1, INFINITY, NAN};
    const int n = 6, groups = 3;
    for (int i = 0; i < T_COUNT(bad) * NUM_SCHEMES; ++i) {
        const int scheme = i % NUM_SCHEMES;
        int32_t counts[2][18];
        plan p;
        for (int sound = 1; sound >= 0; --sound) {
            t_case("uniforms: %s, %g", schemes[scheme], sound ? 1 - 0x1p-24 : (double)bad[i / 4]);
            plan_make(&p, groups, n, scheme, 1);
            plan_uniforms(&p);
            for (int k = 0; k < groups * n; ++k) /* the last group does not resample */
                put_double(&p.weight, k, k < 2 * n && k % 2 ? -1.25 : 0);
            put_float(&p.uniform, scheme == SPECV_RESAMPLE_SYSTEMATIC ? 1 : n,
                      sound ? 1 - 0x1p-24f : bad[i / 4]);
            put_float(&p.uniform, scheme == SPECV_RESAMPLE_SYSTEMATIC ? 2 : 2 * n, bad[i / 4]);
            t_upload();
            plan_reference(&p);
            for (int g = 0; g < groups; ++g)
                CHECK_EQ(word_at(&p.status, g), g == 1 && !sound ? SPECV_ROW_BAD_UNIFORM : 0, g);
            for (int k = 0; k < groups * n; ++k) counts[sound][k] = word_at(&p.counts, k);
            t_check_host();
            plan_device(&p);
            plan_free(&p);
        }
        /* the other schemes have other uniforms beside it, drawn anew */
        for (int k = n; k < 2 * n && scheme == SPECV_RESAMPLE_SYSTEMATIC; ++k)
            CHECK_EQ(counts[0][k], counts[1][k], k);
    }
}

static int same_bytes(const t_buf *a, const t_buf *b) {
    return a->bytes == b->bytes && (a->bytes == 0 || memcmp(a->host, b->host, a->bytes) == 0);
}

/* A batch in slots has the bits of the same batch without. */
static void test_slots(void) {
    for (int i = 0; i < (t.quick ? 12 : 100); ++i) {
        const int groups = 1 + i % 7, n = i % 3 ? 5 : 40, rows = groups * n;
        weights w, v; /* v, r: the same in slots */
        plan p, r;
        t_case("in slots: %d groups of %d", groups, n);
        do t_random(), weights_make(&w, rows, 4, i % 2 ? 6 : 0, NO_SLOTS);
        while (!w.alpha.host && t_num_buffers < T_MAX_BUFFERS / 2);
        plan_make(&p, groups, n, i % NUM_SCHEMES, 0.9);
        plan_make_in(&r, groups, n, i % NUM_SCHEMES, 0.9, 0);
        plan_kinds(&p, i % 2 ? -1 : KIND_NORMAL);
        plan_kinds(&r, -1);
        v = w;
        v.slots = slots_draw(rows, rows, 0, 1);
        if (w.alpha.host) v.alpha = t_in(4 * (int64_t)v.slots.count, 0);
        v.finished = t_out(v.slots.count, 0), v.log_weight = t_out(8 * (int64_t)v.slots.count, 0);
        v.interval = t_out(8 * (int64_t)v.slots.count, 0);
        if (w.emitted.host) v.emitted = t_out(4 * (int64_t)rows, 0);
        if (w.status.host) v.status = t_out(4 * (int64_t)rows, 0);
        for (int b = 0; b < rows; ++b) {
            const int64_t slot = slot_of(&v.slots, b);
            if (w.alpha.host) put_float(&v.alpha, slot, get_float(&w.alpha, b));
            v.finished.host[slot] = w.finished.host[b];
            memcpy(v.log_weight.host + 8 * slot, w.log_weight.host + 8 * b, 8);
            memcpy(v.interval.host + 8 * slot, w.interval.host + 8 * b, 8);
        }
        for (int g = 0; g < groups; ++g) {
            const int64_t slot = slot_of(&r.slots, g), bytes = 8 * (int64_t)n;
            memcpy(r.seed.host + 8 * slot, p.seed.host + 8 * g, 8);
            memcpy(r.position.host + 4 * slot, p.position.host + 4 * g, 4);
            memcpy(r.log_z.host + 8 * slot, p.log_z.host + 8 * g, 8);
            memcpy(r.weight.host + bytes * slot, p.weight.host + bytes * g, (size_t)bytes);
            memcpy(r.log_weight.host + bytes * slot, p.log_weight.host + bytes * g, (size_t)bytes);
        }
        t_upload();
        specv_particle_weights_desc d = weights_describe(&w, T_HOST_SIDE);
        CHECK_EQ(specv_ref_particle_weights(&d), SPECV_OK, -1);
        d = weights_describe(&v, T_HOST_SIDE);
        CHECK_EQ(specv_ref_particle_weights(&d), SPECV_OK, -1);
        plan_reference(&p), plan_reference(&r);
        for (int b = 0; b < rows; ++b) {
            const int64_t slot = slot_of(&v.slots, b);
            CHECK_EQ(v.finished.host[slot], w.finished.host[b], b);
            CHECK_BYTES(v.log_weight.host + 8 * slot, w.log_weight.host + 8 * b, 8);
            CHECK_BYTES(v.interval.host + 8 * slot, w.interval.host + 8 * b, 8);
        }
        CHECK(same_bytes(&v.emitted, &w.emitted));
        CHECK(same_bytes(&v.status, &w.status));
        for (int g = 0; g < groups; ++g) {
            const int64_t slot = slot_of(&r.slots, g), bytes = 8 * (int64_t)n;
            CHECK_BYTES(r.log_z.host + 8 * slot, p.log_z.host + 8 * g, 8);
            CHECK_BYTES(r.weight.host + bytes * slot, p.weight.host + bytes * g, (size_t)bytes);
            CHECK_BYTES(r.log_weight.host + bytes * slot, p.log_weight.host + bytes * g,
                        (size_t)bytes);
        }
        CHECK(same_bytes(&r.jobs, &p.jobs));
        CHECK(same_bytes(&r.num_jobs, &p.num_jobs));
        CHECK(same_bytes(&r.counts, &p.counts));
        CHECK(same_bytes(&r.drawn_row, &p.drawn_row));
        CHECK(same_bytes(&r.ess, &p.ess));
        CHECK(same_bytes(&r.status, &p.status));
        t_check_host();
#if T_DEVICE
        for (int k = 0; k < 2; ++k) {
            specv_resample_plan_desc e = plan_describe(k ? &r : &p, T_DEVICE_SIDE);
            d = weights_describe(k ? &v : &w, T_DEVICE_SIDE);
            CHECK_EQ(specv_particle_weights(&d, 0), SPECV_OK, -1);
            CHECK_EQ(specv_resample_plan(&e, 0), SPECV_OK, -1);
        }
#endif
        t_check_device();
        plan_free(&p), plan_free(&r);
    }
}

/* What can be said without any model. */
static void test_edges(void) {
    static const int sizes[] = {1, 2, 5, 32, 100, 1024};
    for (int i = 0; i < T_COUNT(sizes); ++i)
        for (int scheme = 0; scheme < NUM_SCHEMES; ++scheme) {
            const int n = sizes[i];
            plan p;
            t_case("edges: %s, %d particles", schemes[scheme], n);
            plan_make(&p, 5, n, scheme, 1);
            for (int k = 0; k < n; ++k) {
                put_double(&p.weight, k, -12345.678);                          /* equal */
                put_double(&p.weight, n + k, k == n / 2 ? 3 : -INFINITY);      /* one */
                put_double(&p.weight, 2 * n + k, -INFINITY);                   /* none */
                put_double(&p.weight, 3 * n + k, k == n - 1 ? -700 : NAN);     /* one, with NaN */
                put_double(&p.weight, 4 * n + k, k == n - 1 ? NAN : INFINITY); /* no number */
            }
            t_upload();
            plan_reference(&p);
            for (int g = 0; g < 5; ++g) {
                const int one = g == 1 ? n / 2 : n - 1, moves = g == 1 || g == 3;
                const uint32_t bits = g < 2    ? 0
                                      : g == 2 ? (uint32_t)SPECV_ROW_EMPTY
                                      : g == 4 ? (uint32_t)(SPECV_ROW_EMPTY | SPECV_ROW_NAN)
                                      : n > 1  ? (uint32_t)SPECV_ROW_NAN
                                               : 0;
                CHECK_EQ(word_at(&p.num_jobs, g), moves ? n - 1 : 0, g);
                CHECK_EQ(word_at(&p.status, g), bits, g);
                if (g) CHECK_EQ(word_at(&p.drawn_row, g), moves ? g * n + one : -1, g);
                for (int k = 0; k < n; ++k)
                    CHECK_EQ(word_at(&p.counts, g * n + k), !moves ? 1 : k == one ? n : 0, g);
                CHECK(get_double(&p.ess, g) == (moves ? 1 : g == 0 ? n : 0));
                for (int j = 0; j < n - 1; ++j)
                    CHECK_EQ(word_at(&p.jobs, 2 * (g * (n - 1) + j)), moves ? g * n + one : -1, j);
            }
            t_check_host();
            plan_device(&p);
            plan_free(&p);
        }
}

/* Groups in another order, with others behind them that are inert, and one by one: each has the
   same results. Its position decides its draws, not its place in the batch. */
static void test_order(void) {
    for (int scheme = 0; scheme < NUM_SCHEMES; ++scheme)
        for (int turn = 0; turn < (t.quick ? 2 : 10); ++turn) {
            const int groups = 9, n = turn % 2 ? 70 : 16;
            plan p, r;
            int differ = 0;
            t_case("order: %s", schemes[scheme]);
            plan_make(&p, groups, n, scheme, 1);
            plan_kinds(&p, KIND_NORMAL);
            plan_make(&r, groups + 4, n, scheme, 1);
            plan_kinds(&r, -1);
            r.num_active = t_in(4, 0), r.live = groups;
            put32(r.num_active.host, 0, groups);
            for (int g = 0; g < groups; ++g) { /* group g of p is group to of r */
                const int64_t to = (g * 4 + turn) % groups;
                memcpy(r.seed.host + 8 * to, p.seed.host + 8 * g, 8);
                memcpy(r.position.host + 4 * to, p.position.host + 4 * g, 4);
                memcpy(r.weight.host + 8 * to * n, p.weight.host + 8 * (int64_t)g * n,
                       8 * (size_t)n);
            }
            t_upload();
            plan_reference(&p);
            plan_reference(&r);
            for (int g = 0; g < groups; ++g) {
                const int64_t to = (g * 4 + turn) % groups;
                CHECK_BYTES(p.counts.host + 4 * (int64_t)g * n, r.counts.host + 4 * to * n,
                            4 * (size_t)n);
                CHECK_EQ(word_at(&p.num_jobs, g), word_at(&r.num_jobs, to), g);
                CHECK_EQ(word_at(&p.drawn_row, g) - g * n, word_at(&r.drawn_row, to) - to * n, g);
                for (int j = 0; j < 2 * word_at(&p.num_jobs, g); ++j)
                    CHECK_EQ(word_at(&p.jobs, 2 * (int64_t)g * (n - 1) + j) - g * n,
                             word_at(&r.jobs, 2 * to * (n - 1) + j) - to * n, g);
            }
            for (int g = groups; g < r.groups; ++g) check_inert(&r, g, 0);
            check_others(&r);
            t_check_host();
#if T_DEVICE
            specv_resample_plan_desc d = plan_describe(&r, T_DEVICE_SIDE);
            CHECK_EQ(specv_resample_plan(&d, 0), SPECV_OK, -1);
#endif
            plan_device(&p);
            plan_free(&p), plan_free(&r);

            t_case("seeds: %s", schemes[scheme]); /* 0 and 1 are the same, 2 and 3 not */
            plan_make(&p, 4, 1000, scheme, 1);
            plan_kinds(&p, KIND_NORMAL);
            for (int g = 1; g < 4; ++g) {
                memcpy(p.weight.host + 8000 * g, p.weight.host, 8000);
                if (g != 2) memcpy(p.seed.host + 8 * g, p.seed.host, 8);
                put_word(&p.position, g, word_at(&p.position, 0) + (g == 3));
            }
            t_upload();
            plan_reference(&p);
            for (int g = 1; g < 4; ++g)
                differ |= (memcmp(p.counts.host + 4000 * g, p.counts.host, 4000) != 0) << g;
            CHECK_EQ(differ, 1 << 2 | 1 << 3, -1);
            plan_device(&p);
            plan_free(&p);
        }
}

/* Of the copies of particle k in one group: share is N w, part what is behind its point. */
static double variance_of(const model *m, int scheme, int n, int k) {
    const double sum = (double)m->sum, share = n * ((double)m->w[k] / sum);
    double variance = 0, from = 0, rest = 0;
    if (scheme == SPECV_RESAMPLE_SYSTEMATIC)
        return (share - floor(share)) * (1 - share + floor(share));
    if (scheme == SPECV_RESAMPLE_MULTINOMIAL) return share * (1 - share / n);
    for (int i = 0; i < n; ++i) {
        const double other = n * ((double)m->w[i] / sum);
        rest += other - floor(other);
        if (i < k) from += other;
    }
    if (scheme == SPECV_RESAMPLE_RESIDUAL && rest < 0.5) return 0;
    if (scheme == SPECV_RESAMPLE_RESIDUAL)
        return (share - floor(share)) * (1 - (share - floor(share)) / rest);
    for (int s = 0; s < n; ++s) { /* stratified: the part of each stratum that it has */
        const double x = fmin(from + share, s + 1) - fmax(from, s);
        if (x > 0) variance += x * (1 - x);
    }
    return variance;
}

/* Copies are N w on average. The variance of each count is known, and so is how far the mean of
   many may be from it; independent draws have a chi-square as well, with law.cu's rule of ten
   sigmas. */
static void check_means(const plan *p, const model *m, const double *sum, double groups) {
    const int residual = p->scheme == SPECV_RESAMPLE_RESIDUAL;
    double chi2 = 0, few = 0, gap_of_few = 0;
    for (int k = 0; k < p->n; ++k) {
        const double share = p->n * ((double)m->w[k] / (double)m->sum);
        const double expected = groups * (residual ? share - floor(share) : share);
        const double gap = sum[k] - groups * share;
        CHECK(fabs(gap) <= 6 * sqrt(groups * variance_of(m, p->scheme, p->n, k)) + 10);
        if (expected < 5)
            few += expected, gap_of_few += gap;
        else
            chi2 += gap * gap / expected;
    }
    if (few >= 5) chi2 += gap_of_few * gap_of_few / few;
    if (p->scheme >= SPECV_RESAMPLE_MULTINOMIAL) CHECK(chi2 <= p->n + 10 * sqrt(2. * p->n));
}

static void test_expectation(void) {
    static const int sizes[] = {3, 16, 40};
    const int at_a_time = T_DEVICE && t.quick ? 250 : 2000;
    for (int scheme = 0; scheme < NUM_SCHEMES; ++scheme)
        for (int i = 0; i < T_COUNT(sizes); ++i) {
            const int n = sizes[i], draws = scheme == SPECV_RESAMPLE_SYSTEMATIC ? 1 : n;
            const int times = (t.quick ? 40000 : 1000000) / draws / at_a_time + 1;
            static model m;
            double sum[40] = {0}, picks[40] = {0};
            plan p;
            t_case("expectation: %s, %d groups of %d", schemes[scheme], times * at_a_time, n);
            plan_make(&p, at_a_time, n, scheme, 1);
            draw_group((double *)(void *)p.weight.host, n, i == 1 ? KIND_WIDE : KIND_NORMAL);
            for (int g = 1; g < at_a_time; ++g)
                memcpy(p.weight.host + 8 * (int64_t)g * n, p.weight.host, 8 * (size_t)n);
            model_weights(&m, (const double *)(const void *)p.weight.host, n);
            for (int time = 0; time < times; ++time) {
                if (time) memcpy(p.weight.host, p.before, p.weight.bytes);
                for (int g = 0; g < at_a_time; ++g) put_word(&p.position, g, time);
                if (time == 0 || time + 1 == times) t_upload(); /* the last for the device */
                plan_reference(&p);
                for (int64_t at = 0; at < (int64_t)at_a_time * n; ++at)
                    sum[at % n] += word_at(&p.counts, at);
                for (int g = 0; g < at_a_time; ++g) picks[word_at(&p.drawn_row, g) - g * n] += 1;
            }
            check_means(&p, &m, sum, (double)times * at_a_time);
            for (int k = 0; k < n; ++k) { /* one of them is kept, with its weight's chance */
                const double law = (double)m.w[k] / (double)m.sum, all = (double)times * at_a_time;
                CHECK(fabs(picks[k] - all * law) <= 6 * sqrt(all * law * (1 - law)) + 10);
            }
            plan_device(&p);
            plan_free(&p);
        }
}

/* -------------------------------------------------------------------------- unbiased likelihood */

/* A hidden chain of two states that is watched through a noisy channel. Particles propose states by
   a law of their own (q), and D1 corrects: ln (transition * emission) - ln q. */
static const double start[2] = {0.3, 0.7}, move[2][2] = {{0.8, 0.2}, {0.3, 0.7}};
static const double emit[2][3] = {{0.6, 0.3, 0.1}, {0.05, 0.25, 0.7}};
static const int seen[] = {2, 0, 0, 1, 2, 0, 1};
enum { STEPS = 7 };

static double exact_likelihood(void) {
    double alpha[2] = {0, 0};
    for (int step = 0; step < STEPS; ++step) {
        double next[2];
        for (int x = 0; x < 2; ++x)
            next[x] = emit[x][seen[step]] *
                      (step ? alpha[0] * move[0][x] + alpha[1] * move[1][x] : start[x]);
        alpha[0] = next[0], alpha[1] = next[1];
    }
    return alpha[0] + alpha[1];
}

/* Estimates of `runs` filters of n particles at once; their sum and sum of squares are returned. */
static void run_filters(int scheme, double threshold, int runs, int n, double *sum,
                        double *squares) {
    const int all = runs * n;
    char *state = (char *)zeros(all, 1);
    plan p;
    weights w;
    plan_make(&p, runs, n, scheme, threshold);
    memset(&w, 0, sizeof w);
    w.batch = all, w.max_draft = 1;
    w.p = t_in(4 * all, 0), w.q = t_in(4 * all, 0), w.finished = t_out(all, 0);
    w.log_weight = p.log_weight, w.interval = p.weight;
    memset(w.finished.host, 0, (size_t)all);
    memset(p.weight.host, 0, p.weight.bytes), memset(p.log_weight.host, 0, p.log_weight.bytes);
    memset(p.log_z.host, 0, p.log_z.bytes);
    for (int step = 0; step < STEPS; ++step) {
        for (int b = 0; b < all; ++b) {
            const double *law = step ? move[(int)state[b]] : start;
            const double q1 = 0.5 * law[1] + 0.25; /* between the chain's law and a coin */
            const int x = t_uniform() < q1;
            put_float(&w.p, b, (float)log(law[x] * emit[x][seen[step]]));
            put_float(&w.q, b, (float)log(x ? q1 : 1 - q1));
            state[b] = (char)x;
        }
        for (int g = 0; g < runs; ++g) put_word(&p.position, g, step);
        specv_particle_weights_desc d = weights_describe(&w, T_HOST_SIDE);
        CHECK_EQ(specv_ref_particle_weights(&d), SPECV_OK, -1);
        plan_reference(&p);
        for (int g = 0; g < runs; ++g)
            for (int j = 0; j < word_at(&p.num_jobs, g); ++j) {
                const int64_t at = 2 * ((int64_t)g * (n - 1) + j);
                state[word_at(&p.jobs, at + 1)] = state[word_at(&p.jobs, at)];
            }
    }
    for (int g = 0; g < runs; ++g) {
        double mean = 0, z;
        for (int i = 0; i < n; ++i) mean += exp(get_double(&p.weight, (int64_t)g * n + i)) / n;
        z = exp(get_double(&p.log_z, g)) * mean;
        *sum += z, *squares += z * z;
    }
    free(state);
    plan_free(&p);
}

static void test_unbiased(void) {
    static const int sizes[] = {4, 7, 16};
    const double exact = exact_likelihood();
    const int runs = 1000, times = t.quick ? 3 : 24;
    for (int scheme = 0; scheme < NUM_SCHEMES; ++scheme)
        for (int i = 0; i < 4; ++i) {
            const double all = (double)runs * times;
            double sum = 0, squares = 0, error;
            t_case("unbiased: %s, threshold %g, %d particles", schemes[scheme], i % 2 ? 1 : 0.5,
                   sizes[(scheme + i / 2) % 3]);
            for (int time = 0; time < times; ++time) {
                run_filters(scheme, i % 2 ? 1 : 0.5, runs, sizes[(scheme + i / 2) % 3], &sum,
                            &squares);
                t_free_buffers();
            }
            error = sqrt((squares / all - sum / all * (sum / all)) / all);
            t_note(": %.4g standard errors of %.2g", (sum / all - exact) / error, error / exact);
            CHECK(fabs(sum / all - exact) < 5 * error);
        }
}

/* --------------------------------------------------------------------------------- validation */

static specv_particle_weights_desc valid_particle_weights(void) {
    specv_particle_weights_desc d = SPECV_ZERO;
    d.batch = 4, d.max_draft = 3;
    d.target_logprob = d.draft_logprob = (const float *)word();
    d.finished = (uint8_t *)word();
    d.log_weight = d.interval_weight = (double *)(void *)word();
    return d;
}

static specv_resample_plan_desc valid_resample_plan(void) {
    specv_resample_plan_desc d = SPECV_ZERO;
    d.num_groups = 4, d.num_particles = 8, d.threshold = 0.5;
    d.interval_weight = (double *)(void *)word();
    d.seed = (const uint64_t *)(void *)word(), d.position = word();
    d.jobs = d.num_jobs = word();
    return d;
}

static const int64_t half = INT64_MAX / 2 + 1;

static void check_weights_codes(void) {
    EXPECT_NULL(particle_weights);
    EXPECT(particle_weights, SPECV_OK, (void)0);
    EXPECT(particle_weights, SPECV_ERR_CANARY, d.canary0 = 1);
    EXPECT(particle_weights, SPECV_ERR_CANARY, d.canary1 = 1);
    EXPECT(particle_weights, SPECV_ERR_CHAINED, d.chained = 4);
    EXPECT(particle_weights, SPECV_ERR_CHAINED, d.chained = -1);
    EXPECT(particle_weights, SPECV_ERR_BATCH, d.batch = -1);
    EXPECT(particle_weights, SPECV_ERR_MAX_DRAFT, d.max_draft = -1);
    EXPECT(particle_weights, SPECV_ERR_TOO_LARGE, d.batch = (1 << 28) + 1);
    EXPECT(particle_weights, SPECV_OK, d.batch = 1 << 28);
    EXPECT(particle_weights, SPECV_ERR_NUM_ACTIVE, d.num_active = (int32_t *)misaligned());
    EXPECT(particle_weights, SPECV_ERR_SLOT, (d.slot = (int32_t *)misaligned(), d.num_slots = 4));
    EXPECT(particle_weights, SPECV_ERR_SLOT, d.slot = word());
    EXPECT(particle_weights, SPECV_OK, (d.slot = word(), d.num_slots = 1));
    EXPECT(particle_weights, SPECV_ERR_TOKEN_DTYPE, d.token_dtype = 2);
    EXPECT(particle_weights, SPECV_ERR_TOKEN_DTYPE, d.token_dtype = -1);
    EXPECT(particle_weights, SPECV_ERR_DRAFT_TOKENS, d.draft_tokens = misaligned());
    EXPECT(particle_weights, SPECV_ERR_DRAFT_TOKENS,
           (d.draft_tokens = word() + 1, d.token_dtype = 1));
    EXPECT(particle_weights, SPECV_OK, d.draft_tokens = word() + 1);
    EXPECT(particle_weights, SPECV_ERR_NEXT_TOKEN, d.next_token = misaligned());
    EXPECT(particle_weights, SPECV_ERR_NEXT_TOKEN, (d.next_token = word() + 1, d.token_dtype = 1));
    EXPECT(particle_weights, SPECV_ERR_LOGPROB, d.target_logprob = NULL);
    EXPECT(particle_weights, SPECV_ERR_LOGPROB, d.draft_logprob = NULL);
    EXPECT(particle_weights, SPECV_ERR_LOGPROB, d.target_logprob = (float *)misaligned());
    EXPECT(particle_weights, SPECV_ERR_LOGPROB, d.draft_logprob = (float *)misaligned());
    EXPECT(particle_weights, SPECV_OK,
           (d.target_logprob = d.draft_logprob = NULL, d.max_draft = 0));
    EXPECT(particle_weights, SPECV_ERR_ALPHA, d.alpha = (float *)misaligned());
    EXPECT(particle_weights, SPECV_ERR_ALPHA, d.lse = (float *)misaligned());
    EXPECT(particle_weights, SPECV_ERR_ALPHA, d.bonus_lse = (float *)(void *)word());
    EXPECT(particle_weights, SPECV_ERR_ALPHA,
           (d.bonus_lse = (float *)misaligned(), d.lse = (float *)(void *)word()));
    EXPECT(particle_weights, SPECV_OK, d.bonus_lse = d.lse = (float *)(void *)word());
    EXPECT(particle_weights, SPECV_OK, d.lse = (float *)(void *)word());
    EXPECT(particle_weights, SPECV_ERR_FINISHED, d.finished = NULL);
    EXPECT(particle_weights, SPECV_ERR_WEIGHT, d.log_weight = NULL);
    EXPECT(particle_weights, SPECV_ERR_WEIGHT, d.interval_weight = NULL);
    EXPECT(particle_weights, SPECV_ERR_WEIGHT, d.log_weight = (double *)(void *)(word() + 1));
    EXPECT(particle_weights, SPECV_ERR_WEIGHT, d.interval_weight = (double *)(void *)(word() + 1));
    EXPECT(particle_weights, SPECV_ERR_NUM_EMITTED, d.num_emitted = (int32_t *)misaligned());
    EXPECT(particle_weights, SPECV_ERR_ROW_STATUS, d.row_status = (uint32_t *)misaligned());
    EXPECT(particle_weights, SPECV_ERR_KEEP_STATUS, d.keep_status = 2);
    EXPECT(particle_weights, SPECV_ERR_DRAFT_STRIDE, d.draft_stride_elems = 2);
    EXPECT(particle_weights, SPECV_ERR_DRAFT_STRIDE, d.draft_stride_elems = -1);
    EXPECT(particle_weights, SPECV_OK, d.draft_stride_elems = 3);
    EXPECT(particle_weights, SPECV_ERR_SCORE_STRIDE, d.target_logprob_stride_elems = 2);
    EXPECT(particle_weights, SPECV_ERR_SCORE_STRIDE, d.draft_logprob_seq_stride_elems = -1);
    EXPECT(particle_weights, SPECV_ERR_SCORE_STRIDE, d.draft_logprob_pos_stride_elems = -1);
    EXPECT(particle_weights, SPECV_ERR_SCORE_STRIDE, d.draft_logprob_seq_stride_elems = 8);
    EXPECT(particle_weights, SPECV_ERR_SCORE_STRIDE, d.draft_logprob_pos_stride_elems = 4);
    EXPECT(particle_weights, SPECV_OK,
           (d.draft_logprob_seq_stride_elems = 1, d.draft_logprob_pos_stride_elems = 4));
    EXPECT(particle_weights, SPECV_ERR_SIZE, d.draft_stride_elems = half / 8);
    EXPECT(particle_weights, SPECV_ERR_SIZE, d.target_logprob_stride_elems = half / 4);
    EXPECT(particle_weights, SPECV_ERR_SIZE,
           (d.draft_logprob_seq_stride_elems = half / 4, d.draft_logprob_pos_stride_elems = 1));
    EXPECT(particle_weights, SPECV_ERR_SIZE,
           (d.draft_logprob_seq_stride_elems = 1, d.draft_logprob_pos_stride_elems = half / 4));
    EXPECT(particle_weights, SPECV_ERR_NUM_EOS, d.num_eos = SPECV_MAX_EOS + 1);
    EXPECT(particle_weights, SPECV_ERR_NUM_EOS, d.num_eos = -1);
    EXPECT(particle_weights, SPECV_ERR_EOS_TOKEN, (d.num_eos = 2, d.eos_token[1] = -1));
    EXPECT(particle_weights, SPECV_OK, d.eos_token[0] = -1);
}

static void check_plan_codes(void) {
    EXPECT_NULL(resample_plan);
    EXPECT(resample_plan, SPECV_OK, (void)0);
    EXPECT(resample_plan, SPECV_ERR_CANARY, d.canary0 = 1);
    EXPECT(resample_plan, SPECV_ERR_CANARY, d.canary1 = 1);
    EXPECT(resample_plan, SPECV_ERR_CANARY, d.reserved = 1);
    EXPECT(resample_plan, SPECV_ERR_CHAINED, d.chained = 4);
    EXPECT(resample_plan, SPECV_ERR_CHAINED, d.chained = -1);
    EXPECT(resample_plan, SPECV_ERR_SLOT, d.group_slot_dtype = 2);
    EXPECT(resample_plan, SPECV_ERR_KEEP_STATUS, d.keep_status = 2);
    EXPECT(resample_plan, SPECV_ERR_SCHEME, d.scheme = -1);
    EXPECT(resample_plan, SPECV_ERR_SCHEME, d.scheme = 4);
    EXPECT(resample_plan, SPECV_ERR_PARTICLES, d.num_groups = -1);
    EXPECT(resample_plan, SPECV_ERR_PARTICLES, d.num_particles = 0);
    EXPECT(resample_plan, SPECV_ERR_PARTICLES, d.num_particles = SPECV_MAX_PARTICLES + 1);
    EXPECT(resample_plan, SPECV_OK, (d.num_particles = 1024, d.num_groups = 1 << 20));
    EXPECT(resample_plan, SPECV_ERR_TOO_LARGE,
           (d.num_particles = 1024, d.num_groups = (1 << 20) + 1));
    EXPECT(resample_plan, SPECV_ERR_NUM_ACTIVE, d.num_active_groups = (int32_t *)misaligned());
    EXPECT(resample_plan, SPECV_ERR_SLOT,
           (d.group_slot = (int32_t *)misaligned(), d.num_group_slots = 4));
    EXPECT(resample_plan, SPECV_ERR_SLOT, d.group_slot = word());
    EXPECT(resample_plan, SPECV_OK, (d.group_slot = word(), d.num_group_slots = 1));
    EXPECT(resample_plan, SPECV_ERR_WEIGHT, d.interval_weight = NULL);
    EXPECT(resample_plan, SPECV_ERR_WEIGHT, d.interval_weight = (double *)(void *)(word() + 1));
    EXPECT(resample_plan, SPECV_ERR_WEIGHT, d.log_weight = (double *)(void *)(word() + 1));
    EXPECT(resample_plan, SPECV_ERR_WEIGHT, d.log_z = (double *)(void *)(word() + 1));
    EXPECT(resample_plan, SPECV_ERR_WEIGHT, d.ess = (double *)(void *)(word() + 1));
    EXPECT(resample_plan, SPECV_ERR_SEED, d.seed = NULL);
    EXPECT(resample_plan, SPECV_ERR_SEED, d.seed = (const uint64_t *)(void *)(word() + 1));
    EXPECT(resample_plan, SPECV_OK,
           (d.seed = NULL, d.position = NULL, d.uniform = (float *)(void *)word()));
    EXPECT(resample_plan, SPECV_ERR_SEED,
           (d.seed = NULL, d.uniform = (float *)(void *)word(), d.drawn_row = word()));
    EXPECT(resample_plan, SPECV_OK, (d.uniform = (float *)(void *)word(), d.drawn_row = word()));
    EXPECT(resample_plan, SPECV_ERR_JOBS, d.drawn_row = (int32_t *)misaligned());
    EXPECT(resample_plan, SPECV_ERR_POSITION, d.position = NULL);
    EXPECT(resample_plan, SPECV_ERR_POSITION, d.position = (int32_t *)misaligned());
    EXPECT(resample_plan, SPECV_ERR_UNIFORM, d.uniform = (float *)misaligned());
    EXPECT(resample_plan, SPECV_ERR_JOBS, d.jobs = NULL);
    EXPECT(resample_plan, SPECV_OK, (d.jobs = NULL, d.num_particles = 1));
    EXPECT(resample_plan, SPECV_ERR_JOBS, d.num_jobs = NULL);
    EXPECT(resample_plan, SPECV_ERR_JOBS, d.jobs = (int32_t *)misaligned());
    EXPECT(resample_plan, SPECV_ERR_JOBS, d.num_jobs = (int32_t *)misaligned());
    EXPECT(resample_plan, SPECV_ERR_JOBS, d.num_copies = (int32_t *)misaligned());
    EXPECT(resample_plan, SPECV_ERR_ROW_STATUS, d.group_status = (uint32_t *)misaligned());
    EXPECT(resample_plan, SPECV_ERR_THRESHOLD, d.threshold = -1e-300);
    EXPECT(resample_plan, SPECV_ERR_THRESHOLD, d.threshold = 1 + 1e-15);
    EXPECT(resample_plan, SPECV_ERR_THRESHOLD, d.threshold = NAN);
    EXPECT(resample_plan, SPECV_OK, d.threshold = 1);
}

static void test_validation(void) {
    t_case("every status code of D1 and D2");
    check_weights_codes();
    check_plan_codes();
}

/* Without particles or groups: nothing is needed, nothing happens. */
static void test_nothing(void) {
    specv_particle_weights_desc w = SPECV_ZERO;
    specv_resample_plan_desc p = SPECV_ZERO;
    t_case("nothing");
    p.num_particles = 5;
    CHECK_EQ(specv_ref_particle_weights(&w), SPECV_OK, -1);
    CHECK_EQ(specv_particle_weights(&w, 0), SPECV_OK, -1);
    CHECK_EQ(specv_ref_resample_plan(&p), SPECV_OK, -1);
    CHECK_EQ(specv_resample_plan(&p, 0), SPECV_OK, -1);
    t_check_device();
}

int main(int argc, char **argv) {
    static const t_group groups[] = {
        {"validation", test_validation},
        {"nothing", test_nothing},
        {"weights", test_weights},
        {"plans", test_plans},
        {"bad-uniforms", test_bad_uniforms},
        {"slots", test_slots},
        {"edges", test_edges},
        {"order", test_order},
        {"expectation", test_expectation},
        {"unbiased", test_unbiased},
    };
    return t_main(argc, argv, groups, T_COUNT(groups));
}
