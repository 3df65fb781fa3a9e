/* SPDX-License-Identifier: MIT-0
 *
 * particles.h - rule smc in a backend: memory, and the kit's calls of a cycle in their order. cpu.c
 * and gpu.cu include it and say before what differs between them:
 *
 *   lm_state                     the backend's state, with cache, limits, sampling, models[].kv,
 *                                scratch_planes and particles
 *   KIT(name, &d)                the kit's operation: specv_ref_name, or specv_name on the stream
 *   kit_status(backend, status)  0, or -1 with a message
 *   send, fetch                  host to backend and back; fetch waits for all work
 *   zeroed(s, count, size)       memory of the backend
 *   sample_desc(s, which)        a sampling pass of all rows, by a model's logits
 *   commit_text(backend, rows)   out_tokens behind the texts
 *
 * The host sends what it knows and asks for nothing in between: every cycle is the same calls.
 */

static int p_call(lm_backend *backend, const char *name, int32_t size, int status) {
    if (backend->log) fprintf(backend->log, "launch %s %d\n", name, (int)size);
    return kit_status(backend, status);
}

#define P_CALL(name, size, d) p_call(backend, #name, (int32_t)(size), KIT(name, d))

static int p_send_ints(lm_backend *backend, int32_t *to, const int32_t *from, int32_t count) {
    return send(backend, to, from, (size_t)count * sizeof *from);
}

/* ---- memory --------------------------------------------------------------------------------- */

static int32_t *p_ints(lm_state *s, size_t count) {
    return (int32_t *)zeroed(s, count, sizeof(int32_t));
}

static float *p_floats(lm_state *s, size_t count) {
    return (float *)zeroed(s, count, sizeof(float));
}

static void allocate_particles(lm_state *s) {
    const size_t rows = (size_t)s->limits.batch, gamma = (size_t)s->limits.gamma;
    lm_particles *p = &s->particles;
    p->limits = s->limits;
    if (s->limits.particles == 0) return;
    p->target_logprob = p_floats(s, rows * gamma);
    p->lse = p_floats(s, rows);
    for (int which = 0; which < LM_NUM_MODELS; which++) {
        lm_pool *pool = &p->pool[which];
        pool->table = p_ints(s, (size_t)s->limits.table_size);
        pool->num_row_pages = p_ints(s, rows);
        pool->cache_len = p_ints(s, rows);
        pool->page_refs = p_ints(s, (size_t)s->limits.num_pages);
        pool->free_pages = p_ints(s, (size_t)s->limits.num_pages);
        pool->num_free = NULL;
        pool->copy_src_page = p_ints(s, rows);
        pool->copy_dst_page = p_ints(s, rows);
        s->models[which].kv.table = pool->table;
    }
    p->in = (lm_cycle_in *)zeroed(s, 1, sizeof *p->in);
    p->out = (lm_cycle_out *)zeroed(s, 1, sizeof *p->out);
    p->draft_logprob = p_floats(s, rows * gamma);
    p->bonus_lse = p_floats(s, rows);
    p->alpha = p_floats(s, rows);
    p->bonus_temperature = p_floats(s, rows);
    p->finished = (uint8_t *)zeroed(s, rows, 1);
    p->log_weight = (double *)zeroed(s, rows, sizeof(double));
    p->text_len = p_ints(s, rows);
    p->src_slot = p_ints(s, rows);
    p->dst_slot = p_ints(s, rows);
    p->jobs = p_ints(s, 2 * rows);
    p->scratch_bytes =
        specv_reshuffle_scratch_bytes((int64_t)rows, 2 * (int64_t)s->limits.num_pages);
    p->scratch = zeroed(s, (size_t)p->scratch_bytes, 1);
    p->is_tempered = s->sampling.alpha < 1 || s->sampling.alpha > 1;
    p->threshold = s->sampling.threshold;
    if (!p->out) return;
    for (int which = 0; which < LM_NUM_MODELS; which++)
        p->pool[which].num_free = &p->out->num_free[which];
}

/* Whose texts all are the requests': the particles'. */
static lm_cycle_in p_cycle_in(const lm_state *s, const lm_cycle *cycle) {
    const int32_t n = s->limits.particles;
    lm_cycle_in in;
    memset(&in, 0, sizeof in);
    in.num_groups = cycle->num_groups;
    in.num_active = cycle->num_groups * n;
    for (int32_t g = 0; g < cycle->num_groups; g++) {
        in.position[g] = cycle->len[g];
        in.seed[g] = cycle->seed[g];
    }
    return in;
}

static int p_fault(lm_backend *backend, const char *what, const uint32_t *status, int32_t count) {
    for (int32_t i = 0; i < count; i++)
        if (status[i]) {
            (void)snprintf(backend->message, sizeof backend->message, "%s of %d is 0x%x", what,
                           (int)i, (unsigned)status[i]);
            return -1;
        }
    return 0;
}

/* ---- a batch begins ------------------------------------------------------------------------- */

/* All pages are free, the first one is on top; rows own none. */
static int p_empty_pool(lm_backend *backend, const lm_pool *pool) {
    const lm_state *s = (const lm_state *)backend->state;
    const int32_t num_pages = s->cache.layout.num_pages, rows = s->limits.batch;
    const int32_t most = num_pages > rows ? num_pages : rows;
    int32_t *pages = (int32_t *)calloc((size_t)most, sizeof *pages);
    int failed;
    if (!pages) return fail(backend, "out of memory");
    failed = p_send_ints(backend, pool->page_refs, pages, num_pages) != 0 ||
             p_send_ints(backend, pool->num_row_pages, pages, rows) != 0 ||
             p_send_ints(backend, pool->cache_len, pages, rows) != 0 ||
             p_send_ints(backend, pool->num_free, &num_pages, 1) != 0;
    for (int32_t i = 0; i < num_pages; i++) pages[i] = num_pages - 1 - i;
    failed = failed || p_send_ints(backend, pool->free_pages, pages, num_pages) != 0;
    free(pages);
    return failed ? -1 : 0;
}

static int p_send_constants(lm_backend *backend) {
    const lm_state *s = (const lm_state *)backend->state;
    const lm_particles *p = &s->particles;
    const int32_t rows = s->limits.batch, n = s->limits.particles;
    float alpha[LM_MAX_BATCH], bonus_temperature[LM_MAX_BATCH];
    int32_t src[LM_MAX_BATCH], dst[LM_MAX_BATCH], num_forks = 0;
    for (int32_t row = 0; row < rows; row++) {
        alpha[row] = s->sampling.alpha;
        bonus_temperature[row] = s->sampling.temperature / s->sampling.alpha;
        if (row % n != 0) src[num_forks] = row - row % n, dst[num_forks++] = row;
    }
    if (send(backend, p->alpha, alpha, (size_t)rows * sizeof *alpha) != 0 ||
        send(backend, p->bonus_temperature, bonus_temperature, (size_t)rows * sizeof *alpha) != 0 ||
        p_send_ints(backend, p->src_slot, src, num_forks) != 0)
        return -1;
    return p_send_ints(backend, p->dst_slot, dst, num_forks);
}

/* Weights 0, each particle its own founder. */
static int p_send_start(lm_backend *backend) {
    const lm_state *s = (const lm_state *)backend->state;
    const lm_particles *p = &s->particles;
    const int32_t n = s->limits.particles;
    double zero[LM_MAX_BATCH] = {0};
    lm_cycle_out out;
    memset(&out, 0, sizeof out);
    for (int32_t row = 0; row < s->limits.batch; row++) out.founder[row] = row % n;
    if (send(backend, p->out, &out, sizeof out) != 0 ||
        send(backend, p->log_weight, zero, (size_t)s->limits.batch * sizeof *zero) != 0)
        return -1;
    return 0;
}

/* Particle 0 of each request gets pages for all tokens but the last. */
static int p_admit(lm_backend *backend, const lm_cycle *cycle) {
    const lm_state *s = (const lm_state *)backend->state;
    const lm_particles *p = &s->particles;
    lm_cycle_in in = p_cycle_in(s, cycle);
    if (p_send_constants(backend) != 0 || p_send_start(backend) != 0) return -1;
    for (int32_t g = 0; g < cycle->num_groups; g++)
        in.row_reserve[g * s->limits.particles] = cycle->len[g] - 1;
    if (send(backend, p->in, &in, sizeof in) != 0) return -1;
    for (int which = 0; which < LM_NUM_MODELS; which++) {
        specv_page_resize_desc d = lm_pool_resize(&s->cache, p, which, NULL);
        d.row_reserve = p->in->row_reserve;
        d.copy_src_page = d.copy_dst_page = NULL;
        if (p_empty_pool(backend, &p->pool[which]) != 0 ||
            P_CALL(page_resize, in.num_active, &d) != 0 ||
            p_send_ints(backend, p->pool[which].cache_len, in.row_reserve, in.num_active) != 0)
            return -1;
    }
    return 0;
}

static int p_fan_out(lm_backend *backend, const lm_cycle *cycle) {
    const lm_state *s = (const lm_state *)backend->state;
    const lm_particles *p = &s->particles;
    lm_cycle_out out;
    for (int which = 0; which < LM_NUM_MODELS; which++) {
        const specv_page_fork_desc d = lm_pool_fork(&s->cache, p, which, cycle->num_groups);
        if (P_CALL(page_fork, d.num_forks, &d) != 0 ||
            fetch(backend, &out, p->out, sizeof out) != 0)
            return -1;
        if (p_fault(backend, "row_status", out.row_status, s->limits.batch) != 0 ||
            p_fault(backend, "fork_status", out.fork_status, d.num_forks) != 0)
            return -1;
    }
    return 0;
}

/* ---- a cycle -------------------------------------------------------------------------------- */

/* Tokens that the draft model takes beside all drafts but the last: none in a cycle without
 * drafts. */
static int32_t p_draft_pending(const lm_cycle *cycle) {
    return cycle->num_drafts > 0 ? cycle->behind : 0;
}

/* Pages for what the cycle will add. What the host knows of it is in p->in. */
static int p_take_pages(lm_backend *backend, const lm_cycle *cycle) {
    const lm_state *s = (const lm_state *)backend->state;
    const lm_particles *p = &s->particles;
    for (int which = 0; which < LM_NUM_MODELS; which++) {
        specv_page_resize_desc d = lm_pool_resize(&s->cache, p, which, &s->models[which].kv);
        d.reserve =
            which == LM_TARGET ? 1 + cycle->num_drafts : p_draft_pending(cycle) + cycle->num_drafts;
        if (P_CALL(page_resize, cycle->num_groups * s->limits.particles, &d) != 0) return -1;
    }
    return 0;
}

static int p_reserve(lm_backend *backend, const lm_cycle *cycle) {
    const lm_state *s = (const lm_state *)backend->state;
    const lm_cycle_in in = p_cycle_in(s, cycle);
    if (send(backend, s->particles.in, &in, sizeof in) != 0) return -1;
    return p_take_pages(backend, cycle);
}

/* The bonus token comes from p^alpha: it takes the place of the one that rule SCORE drew from p,
 * with the same random number. */
static int p_draw_bonus(lm_backend *backend, const lm_cycle *cycle) {
    const lm_state *s = (const lm_state *)backend->state;
    const specv_verify_sample_desc v = verify_sample_desc(s);
    const int32_t columns = s->limits.gamma + 1;
    specv_sample_desc d = sample_desc(s, LM_TARGET);
    d.num_active = &s->particles.in->num_active;
    d.scores.data = (const float *)v.target.data + (int64_t)cycle->num_drafts * d.vocab;
    d.scores.seq_stride_elems = columns * d.vocab;
    d.temperature = s->particles.bonus_temperature;
    d.seed = v.seed;
    d.position = v.position;
    d.token = s->cache.out_tokens + cycle->num_drafts;
    d.token_stride_elems = columns;
    d.lse = s->particles.bonus_lse;
    d.method = SPECV_SAMPLE_CDF;
    d.stream = SPECV_STREAM_TARGET;
    d.step_row = cycle->num_drafts;
    return P_CALL(sample, cycle->num_groups * s->limits.particles, &d);
}

static int p_commit(lm_backend *backend, const lm_cycle *cycle) {
    const lm_state *s = (const lm_state *)backend->state;
    const lm_particles *p = &s->particles;
    const int32_t rows = cycle->num_groups * s->limits.particles;
    const specv_append_kv_desc draft = lm_append_draft(&s->cache, p, p_draft_pending(cycle));
    const specv_append_kv_desc target =
        lm_append_target(&s->cache, p, &s->models[LM_TARGET].kv, s->scratch_planes);
    if (P_CALL(append_kv, rows, &draft) != 0 || P_CALL(append_kv, rows, &target) != 0) return -1;
    return commit_text(backend, rows);
}

/* How long texts are after the cycle. */
static int p_send_text_len(lm_backend *backend, const lm_cycle *cycle) {
    const lm_state *s = (const lm_state *)backend->state;
    const int32_t n = s->limits.particles, rows = cycle->num_groups * n;
    int32_t text_len[LM_MAX_BATCH];
    for (int32_t row = 0; row < rows; row++)
        text_len[row] = cycle->len[row / n] + cycle->num_drafts + 1;
    return p_send_ints(backend, s->particles.text_len, text_len, rows);
}

/* Whatever went wrong in the cycle; and what its report wants. */
static int p_report(lm_backend *backend, lm_cycle *cycle) {
    const lm_state *s = (const lm_state *)backend->state;
    const int32_t n = s->limits.particles, rows = cycle->num_groups * n;
    lm_cycle_out out;
    if (fetch(backend, cycle->num_emitted, s->cache.num_emitted, (size_t)rows * sizeof(int32_t)) !=
            0 ||
        fetch(backend, &out, s->particles.out, sizeof out) != 0 ||
        p_fault(backend, "row_status", out.row_status, rows) != 0 ||
        p_fault(backend, "row_status of the weight", out.weight_status, rows) != 0 ||
        p_fault(backend, "job_status", out.job_status, cycle->num_groups * (n - 1)) != 0)
        return -1;
    for (int32_t row = 0; row < rows && cycle->num_drafts > 0; row++)
        if (out.draft_lacks[row] != 2) return fail(backend, "draft_lacks is not 2");
    for (int32_t g = 0; g < cycle->num_groups; g++) {
        cycle->ess[g] = out.ess[g];
        cycle->num_jobs[g] = out.num_jobs[g];
    }
    for (int which = 0; which < LM_NUM_MODELS; which++)
        cycle->pages_used[which] = s->cache.layout.num_pages - out.num_free[which];
    return 0;
}

/* From scores to the particles of the next cycle. */
static int p_select(lm_backend *backend, const lm_cycle *cycle) {
    const lm_state *s = (const lm_state *)backend->state;
    const lm_particles *p = &s->particles;
    const int32_t rows = cycle->num_groups * s->limits.particles;
    const specv_particle_weights_desc weights = lm_weigh(p, cycle->num_drafts);
    const specv_resample_plan_desc plan = lm_plan(p);
    const specv_reshuffle_desc reshuffle = lm_reshuffle(&s->cache, p);
    if (p->is_tempered && p_draw_bonus(backend, cycle) != 0) return -1;
    if (p_commit(backend, cycle) != 0 || P_CALL(particle_weights, rows, &weights) != 0 ||
        P_CALL(resample_plan, cycle->num_groups, &plan) != 0)
        return -1;
    return P_CALL(reshuffle, cycle->num_groups, &reshuffle);
}

static int p_resample(lm_backend *backend, lm_cycle *cycle) {
    if (p_send_text_len(backend, cycle) != 0 || p_select(backend, cycle) != 0) return -1;
    return p_report(backend, cycle);
}

/* ---- the end -------------------------------------------------------------------------------- */

static int p_pick(lm_backend *backend, const lm_cycle *cycle, int32_t *picked, int32_t *founder,
                  double *log_z) {
    const lm_state *s = (const lm_state *)backend->state;
    const lm_particles *p = &s->particles;
    const int32_t n = s->limits.particles;
    const lm_cycle_in in = p_cycle_in(s, cycle);
    const specv_resample_plan_desc d = lm_choose(p);
    lm_cycle_out out;
    if (send(backend, p->in, &in, sizeof in) != 0 ||
        P_CALL(resample_plan, cycle->num_groups, &d) != 0 ||
        fetch(backend, &out, p->out, sizeof out) != 0)
        return -1;
    memcpy(founder, out.founder, (size_t)(cycle->num_groups * n) * sizeof *founder);
    for (int32_t g = 0; g < cycle->num_groups; g++) {
        double sum = 0;
        for (int32_t i = 0; i < n; i++) sum += exp(out.interval_weight[g * n + i]);
        picked[g] = out.drawn_row[g];
        log_z[g] = out.log_z[g] + log(sum / n);
    }
    return 0;
}

/* Is every page free, and once among the free ones? */
static int p_is_whole(lm_backend *backend, const lm_pool *pool, int32_t *whole) {
    const lm_state *s = (const lm_state *)backend->state;
    const int32_t num_pages = s->cache.layout.num_pages;
    const size_t bytes = (size_t)num_pages * sizeof(int32_t);
    int32_t *refs = (int32_t *)calloc(2 * (size_t)num_pages, sizeof *refs), *stack;
    int32_t num_free = 0;
    int status;
    if (!refs) return fail(backend, "out of memory");
    stack = refs + num_pages;
    status = fetch(backend, refs, pool->page_refs, bytes);
    if (status == 0) status = fetch(backend, stack, pool->free_pages, bytes);
    if (status == 0) status = fetch(backend, &num_free, pool->num_free, sizeof num_free);
    *whole &= num_free == num_pages;
    for (int32_t i = 0; i < num_pages && status == 0; i++) {
        const int32_t page = stack[i];
        if (page < 0 || page >= num_pages || refs[page] != 0)
            *whole = 0;
        else
            refs[page] = 1; /* seen */
    }
    free(refs);
    return status;
}

/* All particles give back their pages. */
static int p_dismiss(lm_backend *backend, const lm_cycle *cycle, int32_t *whole) {
    const lm_state *s = (const lm_state *)backend->state;
    const lm_particles *p = &s->particles;
    lm_cycle_in in = p_cycle_in(s, cycle);
    lm_cycle_out out;
    *whole = 1;
    memset(in.finished, 1, sizeof in.finished);
    if (send(backend, p->in, &in, sizeof in) != 0) return -1;
    for (int which = 0; which < LM_NUM_MODELS; which++) {
        specv_page_resize_desc d = lm_pool_resize(&s->cache, p, which, NULL);
        d.finished = p->in->finished;
        d.copy_src_page = d.copy_dst_page = NULL;
        if (P_CALL(page_resize, in.num_active, &d) != 0 ||
            p_is_whole(backend, &p->pool[which], whole) != 0)
            return -1;
    }
    if (fetch(backend, &out, p->out, sizeof out) != 0) return -1;
    return p_fault(backend, "row_status", out.row_status, in.num_active);
}

static void use_particles(lm_backend *backend) {
    backend->admit = p_admit;
    backend->fan_out = p_fan_out;
    backend->reserve = p_reserve;
    backend->resample = p_resample;
    backend->pick = p_pick;
    backend->dismiss = p_dismiss;
}
