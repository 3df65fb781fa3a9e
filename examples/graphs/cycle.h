/* The draft-verify-commit cycle of tiny_lm as work on one stream that never asks the host: lengths,
   live rows, pages and who leaves are in device memory. What it enqueues depends on the rows alone,
   so it can be captured once per bucket. */
#ifndef CYCLE_H
#define CYCLE_H
#include <cuda_runtime.h>
#include "specverify.cuh"
#include "../tiny_lm/smc.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a step tells: one block, [batch] rows. In device memory, for the host to copy. */
typedef struct cycle_report {
    int32_t num_rows, gamma;
    uint32_t fault; /* CYCLE_FAULT bits of all steps so far */
    int32_t slot[LM_MAX_BATCH], num_emitted[LM_MAX_BATCH];
    int32_t token[1]; /* [batch][gamma + 1] */
} cycle_report;

enum {
    CYCLE_FAULT_ROWS = 1,   /* more rows live than the step was enqueued for: some never moved */
    CYCLE_FAULT_STATUS = 2, /* of the kit: no page, a bad length, ... */
    CYCLE_FAULT_LOST = 4    /* a row without a token: the target read what was never committed */
};

typedef struct cycle cycle;

/* target.bin and draft.bin of that folder. */
void cycle_load_models(lm_model models[LM_NUM_MODELS], const char *folder);
/* An engine for `requests` at once, of texts up to max_text tokens, or with particles for that many
   requests of so many particles. Drafts come from the small model; caches are paged. */
void cycle_set_engine(engine *e, int on_gpu, int32_t rule, int32_t requests, int32_t particles,
                      int32_t gamma, int32_t max_text);

/* e is open, on the GPU: everything the cycle needs is in its arena already, so nothing is
   allocated on the device here or later. Null: an error. */
cycle *cycle_open(engine *e);
/* Before e is closed. Returns what is wrong with its buffers, or null. */
const char *cycle_close(cycle *c);
size_t cycle_arena_bytes(const cycle *c); /* of the arena: all device memory of e and c */
cudaStream_t cycle_stream(const cycle *c);
size_t cycle_report_bytes(const cycle *c);
const cycle_report *cycle_report_of(const cycle *c); /* device memory */

/* The sequences that start_batch has made become the live rows; nobody else is there. */
int cycle_admit(cycle *c, const sequence *seqs, int32_t count);
/* Pages of the pool that nobody owns, when all work is done; *all: how many there are. */
int cycle_free_pages(const cycle *c, int32_t *num_free, int32_t *all);
/* Length of each slot's text, when all work is done. */
int cycle_lengths(const cycle *c, int32_t *len);
/* In stream order: rows of slots with leave[slot] are gone from the next step on. leave [slots]:
   pinned, unchanged until the copy is done. */
int cycle_leave(cycle *c, const uint8_t *leave, cudaStream_t stream);

/* Both are a graph_step of buckets.h; what: the cycle. A step of up to `rows` live rows; those
   beyond the live ones are padding. */
int cycle_step(void *what, int rows, cudaStream_t stream);
/* The same for particles, of rows / particles requests; run_cycle has been called once, with gamma
   drafts, so the draft model lacks two tokens of each, always. */
int cycle_step_particles(void *what, int rows, cudaStream_t stream);
/* After steps with particles: faults, and what b would have after as many calls of run_cycle. */
int cycle_finish_particles(cycle *c, particle_batch *b, int32_t steps);

#ifdef __cplusplus
}
#endif
#endif
