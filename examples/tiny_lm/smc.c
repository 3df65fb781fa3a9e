/* SPDX-License-Identifier: MIT-0
 *
 * smc.c - SMC-SD (arXiv 2604.15672). A request is N particles: sequences with texts and caches of
 * their own that share what they have in common. In a cycle each particle drafts gamma tokens and
 * keeps all of them, and one more that the target draws. Its weight gains p(drafts)^alpha over
 * q(drafts); when few particles have most of the weight, these take the places of the others.
 *
 * All particles of a request have the same length, and what the host does depends on lengths alone:
 * --log-launches prints the same for all texts.
 */
#include "smc.h"
#include "specverify.cuh"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int32_t num_slots(const particle_batch *b) { return b->cycle.num_groups * b->num_particles; }

/* Two particles must differ, and one must not draw its bonus tokens with the numbers that resampled
 * its request. A seed belongs to a place, not to the particle that is there. */
static uint64_t particle_seed(uint64_t request, int32_t particle) {
    const specv_random r = specv_philox(request, (uint32_t)particle, 0, 1, SPECV_TAG_RESAMPLE);
    return (uint64_t)r.x[1] << 32 | r.x[0];
}

static lm_row particle_row(const engine *e, const particle_batch *b, int32_t slot, int32_t pos) {
    lm_row row;
    row.token_at = slot * e->limits.text_stride + pos;
    row.pick_at = row.keep_at = row.node = -1;
    row.tree_from = 0;
    row.seq = row.slot = slot;
    row.column = row.pos = pos;
    row.scratch_from = e->limits.text_stride; /* in the cache */
    row.seed = b->particle_seed[slot];
    return row;
}

static void pass(engine *e, int which, int32_t num_rows, int32_t num_silent, lm_pick pick) {
    must(e, e->backend.forward(&e->backend, which, e->rows, num_rows, num_silent, pick));
}

static const lm_pick no_pick = {LM_PICK_NONE, 0, 0};

/* ---- a batch begins ------------------------------------------------------------------------- */

static void prefill(engine *e, const particle_batch *b, int which) {
    int32_t num_rows = 0;
    for (int32_t g = 0; g < b->cycle.num_groups; g++)
        for (int32_t pos = 0; pos + 1 < b->len[g]; pos++) {
            e->rows[num_rows++] = particle_row(e, b, g * b->num_particles, pos);
            if (num_rows < e->limits.max_rows) continue;
            pass(e, which, num_rows, num_rows, no_pick);
            num_rows = 0;
        }
    if (num_rows > 0) pass(e, which, num_rows, num_rows, no_pick);
}

void start_particles(engine *e, particle_batch *b, const prompts *p, int32_t first,
                     int32_t num_groups) {
    const int32_t n = e->limits.particles;
    memset(b, 0, sizeof *b);
    b->num_particles = n;
    b->first = first;
    b->cycle.num_groups = num_groups;
    b->cycle.len = b->len;
    b->cycle.seed = b->seed;
    b->cycle.ess = b->ess;
    b->cycle.num_jobs = b->num_jobs;
    b->cycle.num_emitted = b->num_emitted;
    must(e, e->backend.begin(&e->backend, &e->speculative));
    for (int32_t g = 0; g < num_groups; g++) {
        b->len[g] = p->length[first + g];
        b->seed[g] = request_seed(e, (uint32_t)(first + g));
        for (int32_t pos = 0; pos < b->len[g]; pos++)
            e->text[pos] = (unsigned char)p->start[first + g][pos];
        for (int32_t i = 0; i < n; i++) {
            const int32_t slot = g * n + i;
            b->particle_seed[slot] = particle_seed(b->seed[g], i);
            must(e, e->backend.write_board(&e->backend, slot * e->limits.text_stride, e->text,
                                           b->len[g]));
        }
    }
    must(e, e->backend.admit(&e->backend, &b->cycle));
    prefill(e, b, LM_TARGET);
    prefill(e, b, LM_DRAFT);
    must(e, e->backend.fan_out(&e->backend, &b->cycle));
}

/* ---- a cycle -------------------------------------------------------------------------------- */

/* The first pass takes what the draft model lacks: the pending token, and before it the last draft
 * of the cycle before. */
static void draft(engine *e, const particle_batch *b) {
    for (int32_t k = 0; k < b->cycle.num_drafts; k++) {
        const lm_pick pick = {LM_PICK_CDF, SPECV_STREAM_DRAFT, k};
        int32_t num_rows = 0, num_silent;
        for (int32_t slot = 0; slot < num_slots(b) && k == 0 && b->cycle.behind; slot++)
            e->rows[num_rows++] = particle_row(e, b, slot, b->len[slot / b->num_particles] - 2);
        num_silent = num_rows;
        for (int32_t slot = 0; slot < num_slots(b); slot++) {
            const int32_t pick_at = e->limits.draft_at + slot * e->limits.gamma + k;
            lm_row *row = &e->rows[num_rows++];
            *row = particle_row(e, b, slot, b->len[slot / b->num_particles] - 1 + k);
            if (k > 0) row->token_at = pick_at - 1;
            row->pick_at = pick_at;
        }
        pass(e, LM_DRAFT, num_rows, num_silent, pick);
        e->passes[DRAFT]++;
    }
}

/* The pending token and all drafts, whose KV rows wait in the scratch. */
static void score(engine *e, const particle_batch *b) {
    int32_t draft_len[LM_MAX_BATCH], position[LM_MAX_BATCH], text_at[LM_MAX_BATCH];
    int32_t unused[LM_MAX_BATCH] = {0}, num_rows = 0;
    const lm_step step = {num_slots(b),     draft_len, position, unused, text_at,
                          b->particle_seed, unused,    unused,   unused};
    for (int32_t slot = 0; slot < num_slots(b); slot++) {
        const int32_t len = b->len[slot / b->num_particles];
        for (int32_t j = 0; j <= b->cycle.num_drafts; j++) {
            lm_row *row = &e->rows[num_rows++];
            *row = particle_row(e, b, slot, len - 1 + j);
            if (j > 0) row->token_at = e->limits.draft_at + slot * e->limits.gamma + j - 1;
            row->keep_at = slot * (e->limits.gamma + 1) + j;
            row->scratch_from = len - 1;
        }
        draft_len[slot] = b->cycle.num_drafts;
        position[slot] = len;
        text_at[slot] = slot * e->limits.text_stride + len;
    }
    pass(e, LM_TARGET, num_rows, 0, no_pick);
    must(e, e->backend.verify(&e->backend, &step));
    e->passes[TARGET]++;
}

/* Every particle's caches against those of a fresh plain prefill of its text. */
static void compare_caches(engine *e, engine *judge, const particle_batch *b, smc_report *report) {
    for (int32_t slot = 0; slot < num_slots(b); slot++) {
        const int32_t len = b->len[slot / b->num_particles];
        must(e, e->backend.read_board(&e->backend, slot * e->limits.text_stride, e->text, len));
        for (int which = 0; which < LM_NUM_MODELS; which++) {
            const int32_t count = len - 1 - (which == LM_DRAFT ? b->cycle.behind : 0);
            if (slot_fingerprint(e, which, slot, count) !=
                plain_fingerprint(judge, which, e->text, count)) {
                fflush(stdout);
                fprintf(stderr,
                        "tiny_lm: %s: prompt %d, particle %d, %d tokens: the %s's cache is not that"
                        " of its text\n",
                        e->backend.name, (int)(b->first + slot / b->num_particles + 1),
                        (int)(slot % b->num_particles), (int)len,
                        which == LM_TARGET ? "target" : "draft model");
                exit(EXIT_DIFFERENT);
            }
            report->compared++;
        }
    }
}

void run_cycle(engine *e, engine *judge, particle_batch *b, int32_t num_drafts,
               smc_report *report) {
    lm_cycle *cycle = &b->cycle;
    cycle->num_drafts = num_drafts;
    must(e, e->backend.reserve(&e->backend, cycle));
    draft(e, b);
    score(e, b);
    must(e, e->backend.resample(&e->backend, cycle));
    for (int32_t slot = 0; slot < num_slots(b); slot++)
        if (b->num_emitted[slot] != num_drafts + 1) lost_position(e);
    for (int32_t g = 0; g < cycle->num_groups; g++) {
        b->len[g] += num_drafts + 1;
        report->cycles++;
        report->ess += b->ess[g];
        report->resampled += b->num_jobs[g] > 0;
        report->replaced += b->num_jobs[g];
        report->tokens += num_drafts + 1;
    }
    for (int which = 0; which < LM_NUM_MODELS; which++)
        if (cycle->pages_used[which] > report->most_pages[which])
            report->most_pages[which] = cycle->pages_used[which];
    cycle->behind = num_drafts > 0 ? 1 : cycle->behind + 1;
    if (judge) compare_caches(e, judge, b, report);
}

/* ---- the end -------------------------------------------------------------------------------- */

void finish_particles(engine *e, particle_batch *b, int32_t *text, smc_report *report) {
    int32_t picked[LM_MAX_BATCH], founder[LM_MAX_BATCH], whole;
    double log_z[LM_MAX_BATCH];
    const int32_t n = b->num_particles;
    must(e, e->backend.pick(&e->backend, &b->cycle, picked, founder, log_z));
    for (int32_t g = 0; g < b->cycle.num_groups; g++) {
        uint8_t seen[LM_MAX_BATCH] = {0};
        if (picked[g] < 0) report->lost++, picked[g] = g * n;
        must(e, e->backend.read_board(&e->backend, picked[g] * e->limits.text_stride,
                                      text + g * e->limits.max_seq, b->len[g]));
        for (int32_t i = 0; i < n; i++) seen[founder[g * n + i]] = 1;
        for (int32_t i = 0; i < n; i++) report->founders += seen[i];
        report->log_z += log_z[g];
        report->z[(b->first + g) / report->num_prompts] += exp(log_z[g]);
        report->requests++;
    }
    must(e, e->backend.dismiss(&e->backend, &b->cycle, &whole));
    report->pools_whole &= whole;
}

void decode_with_particles(engine *e, engine *judge, const prompts *p, int32_t first, int32_t count,
                           int32_t *text, smc_report *report) {
    const int32_t num_new = p->num_new[first]; /* of all */
    particle_batch b;
    start_particles(e, &b, p, first, count);
    for (int32_t left = num_new, drafts; left > 0; left -= drafts + 1) {
        drafts = left - 1 < e->limits.gamma ? left - 1 : e->limits.gamma;
        run_cycle(e, judge, &b, drafts, report);
    }
    finish_particles(e, &b, text, report);
}
