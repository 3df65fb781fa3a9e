/* SPDX-License-Identifier: MIT-0
 *
 * smc.h - SMC-SD: N particles a request, every draft accepted, weights instead of rejections; and
 * plain passes over given texts, which say what a text is worth and which KV rows it has.
 */
#ifndef SMC_H
#define SMC_H

#include "engine.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct smc_report {
    int64_t cycles;                    /* of a request */
    int64_t resampled, replaced;       /* cycles that resampled; particles that were replaced */
    double ess;                        /* sum over cycles of effective particles */
    double log_z;                      /* sum over requests */
    double *z;                         /* [replicates] sums over prompts of exp(log_z) */
    int32_t num_prompts;               /* request i is replicate i / num_prompts */
    int64_t requests, founders;        /* founders: particles of the start that have descendants */
    int64_t tokens;                    /* that the texts gained */
    int32_t lost;                      /* requests whose particles all have weight 0 */
    int64_t compared;                  /* caches held against a plain prefill */
    int32_t most_pages[LM_NUM_MODELS]; /* in use at the end of a cycle */
    int32_t pools_whole;
} smc_report;

/* Prompts first .. first+count-1, as many requests as fit; texts at text[i * max_seq]. With a
 * judge, each particle's caches are compared after each cycle. */
void decode_with_particles(engine *e, engine *judge, const prompts *p, int32_t first, int32_t count,
                           int32_t *text, smc_report *report);

/* Parts of that. Requests begin, with caches that hold all but the ends of their prompts; a cycle
 * adds num_drafts + 1 tokens to all particles; a particle of each request is drawn, all leave. */
typedef struct particle_batch {
    lm_cycle cycle;
    int32_t num_particles, first; /* first: number of the first prompt */
    int32_t len[LM_MAX_BATCH];    /* of the groups */
    uint64_t seed[LM_MAX_BATCH], particle_seed[LM_MAX_BATCH];
    double ess[LM_MAX_BATCH];
    int32_t num_jobs[LM_MAX_BATCH], num_emitted[LM_MAX_BATCH];
} particle_batch;

void start_particles(engine *e, particle_batch *b, const prompts *p, int32_t first,
                     int32_t num_groups);
void run_cycle(engine *e, engine *judge, particle_batch *b, int32_t num_drafts, smc_report *report);
void finish_particles(engine *e, particle_batch *b, int32_t *text, smc_report *report);

/* Another state of e's backend, for texts of e's: 8 at a time. */
void open_judge(engine *judge, const engine *e, const lm_model *models);
void close_judge(engine *judge);
/* Sum of ln p of text[i * max_seq + from[i] .. length[i] - 1] under the target at temperature 1,
 * with e's filters. */
double log_likelihood(engine *judge, const int32_t *text, const int32_t *from,
                      const int32_t *length, int32_t count);
/* Of the KV rows of a text's first `count` tokens after a plain prefill, and as they are in a
 * slot. */
uint64_t plain_fingerprint(engine *judge, int which, const int32_t *text, int32_t count);
uint64_t slot_fingerprint(engine *e, int which, int32_t slot, int32_t count);

#ifdef __cplusplus
}
#endif
#endif
