/* SPDX-License-Identifier: MIT-0
 *
 * lm_particles.h - rule smc: what a backend keeps of its particles, and the descriptors of the
 * kit's operations on them, for both backends. Particle i of request g is row, and slot, g * N + i.
 *
 * Each model has a block table and a pool of its own: a cache's copy-on-write copies the pages of
 * one cache, and the draft model's cache ends earlier than the target's.
 */
#ifndef LM_PARTICLES_H
#define LM_PARTICLES_H

#include "lm_cache.h"

/* Arrays whose length is not given have an element per row. */
typedef struct lm_pool {
    int32_t *table; /* [rows][table_stride_elems] */
    int32_t *num_row_pages, *cache_len;
    int32_t *page_refs, *free_pages, *num_free; /* [num_pages], [num_pages], scalar */
    int32_t *copy_src_page, *copy_dst_page;
} lm_pool;

/* What the host knows of a cycle, none of it from the device. */
typedef struct lm_cycle_in {
    int32_t num_active, num_groups;
    int32_t position[LM_MAX_BATCH]; /* of the groups */
    uint64_t seed[LM_MAX_BATCH];
    int32_t row_reserve[LM_MAX_BATCH]; /* of the rows */
    uint8_t finished[LM_MAX_BATCH];
} lm_cycle_in;

/* What it wants to know for its report, and whether anything went wrong. */
typedef struct lm_cycle_out {
    uint32_t row_status[LM_MAX_BATCH], weight_status[LM_MAX_BATCH], job_status[LM_MAX_BATCH];
    uint32_t fork_status[LM_MAX_BATCH];
    int32_t draft_lacks[LM_MAX_BATCH], founder[LM_MAX_BATCH];
    int32_t num_jobs[LM_MAX_BATCH], drawn_row[LM_MAX_BATCH];
    double ess[LM_MAX_BATCH], log_z[LM_MAX_BATCH], interval_weight[LM_MAX_BATCH];
    int32_t num_free[LM_NUM_MODELS];
} lm_cycle_out;

typedef struct lm_particles {
    lm_limits limits;
    lm_pool pool[LM_NUM_MODELS];
    lm_cycle_in *in;
    lm_cycle_out *out;
    float *target_logprob; /* [rows][gamma] */
    float *draft_logprob;  /* [gamma][rows]: a draft pass samples one position of all rows */
    float *lse, *bonus_lse;
    float *alpha, *bonus_temperature;
    uint8_t *finished;
    double *log_weight;
    int32_t *text_len;
    int32_t *src_slot, *dst_slot; /* fan-out */
    int32_t *jobs;                /* [groups][N - 1][2] */
    void *scratch;                /* of D3, of its own: zeroed once */
    int64_t scratch_bytes;
    int is_tempered; /* alpha is not 1: bonus tokens come from another distribution */
    double threshold;
} lm_particles;

static inline int32_t lm_num_groups(const lm_particles *p) {
    return p->limits.batch / p->limits.particles;
}

/* A model's cache; without kv: the pages alone. */
static inline specv_kv_cache lm_pool_cache(const lm_cache *c, const lm_pool *pool,
                                           const lm_kv *kv) {
    specv_kv_cache d = lm_kv_cache(c, kv);
    d.block_table = pool->table;
    return d;
}

/* B5. Room for `reserve` more columns, or for row_reserve, in one model's cache: partly filled
 * pages that others own too are copied. finished: give back all pages of those. */
static inline specv_page_resize_desc lm_pool_resize(const lm_cache *c, const lm_particles *p,
                                                    int which, const lm_kv *kv) {
    const lm_pool *pool = &p->pool[which];
    specv_page_resize_desc d = SPECV_ZERO;
    d.keep_status = which != LM_TARGET; /* one row_status for both; the target's comes first */
    d.num_active = &p->in->num_active;
    d.pool.page_refs = pool->page_refs;
    d.pool.free_pages = pool->free_pages;
    d.pool.num_free = pool->num_free;
    d.num_row_pages = pool->num_row_pages;
    d.cache_len = pool->cache_len;
    d.copy_src_page = pool->copy_src_page;
    d.copy_dst_page = pool->copy_dst_page;
    d.row_status = p->out->row_status;
    d.kv = lm_pool_cache(c, pool, kv);
    d.batch = p->limits.batch;
    return d;
}

/* D4. The other particles of each request share the pages of its particle 0. */
static inline specv_page_fork_desc lm_pool_fork(const lm_cache *c, const lm_particles *p, int which,
                                                int32_t num_groups) {
    const lm_pool *pool = &p->pool[which];
    specv_page_fork_desc d = SPECV_ZERO;
    d.page_refs = pool->page_refs;
    d.block_table = pool->table;
    d.num_row_pages = pool->num_row_pages;
    d.cache_len = pool->cache_len;
    d.src_slot = p->src_slot;
    d.dst_slot = p->dst_slot;
    d.fork_status = p->out->fork_status;
    d.num_slots = p->limits.batch;
    d.num_forks = num_groups * (p->limits.particles - 1);
    d.page_size = c->layout.page_size;
    d.num_pages = c->layout.num_pages;
    d.max_row_pages = c->table_stride_elems;
    return d;
}

/* B3 of the target's cache: the pending token's row and those of all drafts, from the scratch. */
static inline specv_append_kv_desc lm_append_target(const lm_cache *c, const lm_particles *p,
                                                    const lm_kv *kv, void *const *scratch_planes) {
    specv_append_kv_desc d = lm_append(c, kv, scratch_planes);
    d.rows.num_active = &p->in->num_active;
    d.cache_len = p->pool[LM_TARGET].cache_len;
    d.draft_cache_len = p->pool[LM_DRAFT].cache_len;
    d.draft_lacks = p->out->draft_lacks;
    d.page_refs = p->pool[LM_TARGET].page_refs;
    d.row_status = p->out->row_status;
    d.kv = lm_pool_cache(c, &p->pool[LM_TARGET], kv);
    return d;
}

/* B3 of the draft model's cache: its passes left their rows in place, so only the length grows. It
 * was fed the tokens that it lacked, of which the pending one is the last, and all drafts but the
 * last: `behind` + drafts. */
static inline specv_append_kv_desc lm_append_draft(const lm_cache *c, const lm_particles *p,
                                                   int32_t behind) {
    specv_append_kv_desc d = SPECV_ZERO;
    d.keep_status = 1;
    d.rows = lm_verify(c).rows;
    d.rows.num_active = &p->in->num_active;
    d.accepted_len = c->accepted_len;
    d.cache_len = p->pool[LM_DRAFT].cache_len;
    d.page_refs = p->pool[LM_DRAFT].page_refs;
    d.row_status = p->out->row_status;
    d.ticket = c->ticket;
    d.kv = lm_pool_cache(c, &p->pool[LM_DRAFT], NULL);
    d.num_pending = behind;
    return d;
}

/* D1. No token ends a text here: all particles of a request have the same length. */
static inline specv_particle_weights_desc lm_weigh(const lm_particles *p, int32_t num_drafts) {
    specv_particle_weights_desc d = SPECV_ZERO;
    d.num_active = &p->in->num_active;
    d.target_logprob = p->target_logprob;
    d.target_logprob_stride_elems = p->limits.gamma;
    d.draft_logprob = p->draft_logprob;
    d.draft_logprob_seq_stride_elems = 1;
    d.draft_logprob_pos_stride_elems = p->limits.batch;
    d.alpha = p->alpha;
    if (p->is_tempered) d.bonus_lse = p->bonus_lse, d.lse = p->lse;
    d.finished = p->finished;
    d.log_weight = p->log_weight;
    d.interval_weight = p->out->interval_weight;
    d.row_status = p->out->weight_status;
    d.batch = p->limits.batch;
    d.max_draft = num_drafts;
    return d;
}

/* D2. */
static inline specv_resample_plan_desc lm_plan(const lm_particles *p) {
    specv_resample_plan_desc d = SPECV_ZERO;
    d.scheme = SPECV_RESAMPLE_SYSTEMATIC;
    d.num_active_groups = &p->in->num_groups;
    d.interval_weight = p->out->interval_weight;
    d.log_weight = p->log_weight;
    d.log_z = p->out->log_z;
    d.seed = p->in->seed;
    d.position = p->in->position;
    d.jobs = p->jobs;
    d.num_jobs = p->out->num_jobs;
    d.ess = p->out->ess;
    d.threshold = p->threshold;
    d.num_groups = lm_num_groups(p);
    d.num_particles = p->limits.particles;
    return d;
}

/* D2 at the end: nobody is resampled, one particle of each request is drawn. */
static inline specv_resample_plan_desc lm_choose(const lm_particles *p) {
    specv_resample_plan_desc d = lm_plan(p);
    d.drawn_row = p->out->drawn_row;
    d.threshold = 0;
    return d;
}

/* D3. Seeds stay with the rows: two copies of a particle must not draft the same tokens. */
static inline specv_reshuffle_desc lm_reshuffle(const lm_cache *c, const lm_particles *p) {
    specv_reshuffle_desc d = SPECV_ZERO;
    d.jobs = p->jobs;
    d.num_jobs = p->out->num_jobs;
    d.num_caches = LM_NUM_MODELS;
    for (int which = 0; which < LM_NUM_MODELS; which++) {
        const lm_pool *pool = &p->pool[which];
        specv_particle_cache *cache = &d.cache[which];
        cache->pool.page_refs = pool->page_refs;
        cache->pool.free_pages = pool->free_pages;
        cache->pool.num_free = pool->num_free;
        cache->block_table = pool->table;
        cache->num_row_pages = pool->num_row_pages;
        cache->cache_len = pool->cache_len;
        cache->page_size = c->layout.page_size;
        cache->num_pages = c->layout.num_pages;
        cache->max_row_pages = c->table_stride_elems;
    }
    d.carry[0].data = p->out->founder;
    d.carry[0].elem_bytes = (int64_t)sizeof(int32_t);
    d.num_carry = 1;
    d.text = c->board;
    d.text_len = p->text_len;
    d.text_stride_elems = c->limits.text_stride;
    d.job_status = p->out->job_status;
    d.scratch = p->scratch;
    d.scratch_bytes = p->scratch_bytes;
    d.num_groups = lm_num_groups(p);
    d.max_jobs = p->limits.particles - 1;
    d.batch = p->limits.batch;
    return d;
}

#endif
