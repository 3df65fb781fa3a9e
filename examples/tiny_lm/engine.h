/* SPDX-License-Identifier: MIT-0
 *
 * engine.h - decoding of many prompts: plainly, or speculatively in batches.
 *
 * State of a sequence with `len` known tokens:
 *   target cache  positions 0 .. len-2. The last token is pending: the next pass makes its KV row
 *   draft cache   positions 0 .. draft_cached-1, where draft_cached is len-1, or len-2 after a step
 *                 that accepted every draft: the last draft was never an input of the draft model.
 *                 The next step feeds that token first, else the draft reads a hole in its cache.
 */
#ifndef ENGINE_H
#define ENGINE_H

#include "lm_emitted.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { EXIT_DIFFERENT = 1, EXIT_UNUSABLE = 2 };
enum { DRAFTER_MODEL, DRAFTER_NGRAM, DRAFTER_RANDOM, NUM_DRAFTERS };

/* Whose turn it is to join. STATIC: nobody, until all of a batch are done. CONTINUOUS: the next
 * prompt, as soon as a sequence leaves. EXSPEC: as CONTINUOUS, into a window that is larger than a
 * batch; each step takes sequences of one length, if there are enough (arXiv 2510.22876). */
enum { SCHEDULE_STATIC, SCHEDULE_CONTINUOUS, SCHEDULE_EXSPEC };

enum { PREFILL, PLAIN, DRAFT, TARGET, VERIFY, COMMIT, ALIGN, LEAVE, NUM_PHASES };

/* A token is a byte: prompts may hold any byte but a newline. */
typedef struct prompts {
    char *bytes;
    const char **start;
    int32_t *length, *num_new; /* num_new: tokens to add */
    int32_t count;
} prompts;

typedef struct engine {
    lm_backend backend;
    lm_limits limits;
    lm_sampling sampling;
    lm_layout plain, speculative; /* caches of the two ways to decode */
    int32_t schedule, drafter;
    uint64_t seed;
    lm_row *rows;               /* [max_rows] */
    struct engine_trees *trees; /* null: drafts are chains. See tree.h */
    lm_dims target, draft;
    float *kv;          /* [max_seq][d_model], one plane of one sequence on the host */
    int32_t *text;      /* [text_stride], one slot's text on the host */
    int32_t *columns;   /* [slots][max_seq], see sequence */
    int32_t width;      /* PADDED, GAP: columns in use */
    specv_emitted told; /* [batch][gamma + 1] of the last pass or verification, on the host */
    double seconds[NUM_PHASES];
    int64_t passes[NUM_PHASES];
    int64_t drafted;                      /* of these a budget may leave some unverified */
    int64_t rows_in_steps, steps, groups; /* groups: EXSPEC's full batches of one length */
    int64_t kv_rows, moved_kv_rows;       /* in the target's cache after steps; moved to align */
    double last_progress;
    int show_progress, progress_on_screen;
} engine;

typedef struct sequence {
    int32_t number; /* of its prompt */
    int32_t slot;
    int32_t len, end;
    int32_t enough; /* leaves the batch at this length: end, or when no more of it is asked for */
    int32_t draft_cached;
    int32_t *column; /* [max_seq] where each position of its text is */
    int32_t pad;     /* EXSPEC: by how much its KV rows are moved for the step */
    uint64_t seed;
} sequence;

/* What prompts became: prompt first + i is at i. */
typedef struct outcome {
    int32_t first;
    int32_t *text;      /* [count][max_seq] */
    uint64_t *kv;       /* [count] fingerprint of the target's KV cache, or null */
    specv_emitted told; /* [count][max_seq] of tokens that were added, as far as any is told */
} outcome;

void die(const char *subject, const char *problem);
void *allocate(size_t count, size_t size);
/* A backend that fails cannot be trusted with the next call: reports and leaves. */
void must(engine *e, int status);
/* The target read a position that was never committed: reports and leaves. */
void lost_position(const engine *e);

/* A line on standard error now and then. */
void progress(engine *e, const char *phase, int32_t done, int32_t total, const char *unit);
void clear_progress(engine *e);

/* How the rule wants its tokens sampled: coupled, with the noise of their positions. */
lm_pick pick_of(const engine *e, int32_t stream, int32_t step_row);
/* A row of a pass for position `pos` of a text, in its column; and where on the board a token of
 * the text is. */
lm_row row_of(const engine *e, const sequence *s, int32_t pos, int32_t token_at, int32_t pick_at);
int32_t text_at(const engine *e, const sequence *s, int32_t pos);
/* Rows for the tokens before the pending one that the draft model lacks. Returns how many rows
 * there are then. */
int32_t fill_hole(engine *e, sequence *s, int32_t num_rows);
/* A request's seed depends on what it is, not on when or beside whom it runs. */
uint64_t request_seed(const engine *e, uint32_t request);
uint64_t fold(uint64_t hash, const void *bytes, size_t num_words);

/* Memory on the host and in the backend. Set before: the backend's functions, sampling, both
 * layouts, and of the limits batch, gamma, nodes, width, budget, slots, max_seq and particles. */
void open_engine(engine *e, const lm_model *models);
void close_engine(engine *e);
/* Room for what is told of so many tokens. */
specv_emitted new_told(const engine *e, size_t num_tokens);

/* Prompts first .. first+count-1, at most a batch. */
void decode_plainly(engine *e, const prompts *p, int32_t first, int32_t count,
                    const outcome *result);
/* The same, any number of prompts, by the engine's schedule. */
void decode_speculatively(engine *e, const prompts *p, int32_t first, int32_t count,
                          const outcome *result);

/* Parts of these. Empty caches, then prompts first .. as sequences whose caches hold all but their
 * ends. Restart: the same again, where all prompts are the same one. */
void start_batch(engine *e, const lm_layout *layout, const prompts *p, int32_t first, int32_t count,
                 sequence *seqs);
void restart_batch(engine *e, const lm_layout *layout, sequence *seqs, int32_t count);
void plain_steps(engine *e, sequence *seqs, int32_t num_seqs, lm_pick pick, const outcome *result);
/* Returns how many are left, in front and in order; those who leave are kept in result. */
int32_t step_and_leave(engine *e, sequence *seqs, int32_t num_seqs, const outcome *result);
void read_text(engine *e, const sequence *s, int32_t *text);

#ifdef __cplusplus
}
#endif
#endif
