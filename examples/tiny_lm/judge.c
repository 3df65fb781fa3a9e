/* SPDX-License-Identifier: MIT-0
 *
 * judge.c - plain passes over given texts.
 */
#include "smc.h"
#include "specverify.cuh"

#include <stdlib.h>
#include <string.h>

enum { JUDGE_BATCH = 8, JUDGE_CHUNK = 16 };

void open_judge(engine *judge, const engine *e, const lm_model *models) {
    lm_limits *limits = &judge->limits;
    const int32_t max_seq = e->limits.max_seq;
    const lm_layout layout = {LM_FIXED, max_seq, max_seq, JUDGE_BATCH, 0};
    memset(judge, 0, sizeof *judge);
    judge->backend = e->backend;
    judge->backend.state = NULL;
    judge->backend.log = NULL;
    judge->target = e->target;
    judge->draft = e->draft;
    judge->plain = layout;
    judge->sampling.rule = SPECV_RULE_SCORE;
    judge->sampling.temperature = 1;
    judge->sampling.alpha = 1;
    judge->sampling.filters = e->sampling.filters;
    judge->sampling.tell = LM_TELL_LOGPROB;
    limits->batch = limits->slots = JUDGE_BATCH;
    limits->gamma = JUDGE_CHUNK;
    limits->max_rows = JUDGE_BATCH * (JUDGE_CHUNK + 1);
    limits->max_seq = limits->text_stride = max_seq;
    limits->prompt_at = JUDGE_BATCH * max_seq;
    limits->draft_at = limits->prompt_at;
    limits->target_at = limits->draft_at + JUDGE_BATCH * JUDGE_CHUNK;
    limits->board_size = limits->target_at + JUDGE_BATCH * (JUDGE_CHUNK + 1);
    limits->cache_columns = JUDGE_BATCH * max_seq;
    limits->num_pages = limits->table_size = JUDGE_BATCH;
    judge->rows = (lm_row *)allocate((size_t)limits->max_rows, sizeof *judge->rows);
    must(judge, judge->backend.open(&judge->backend, models, limits, &judge->sampling));
}

void close_judge(engine *judge) {
    must(judge, judge->backend.close(&judge->backend));
    free(judge->rows);
    judge->rows = NULL;
}

/* A token of the text area, in place. */
static lm_row text_row(const engine *e, int32_t slot, int32_t pos) {
    lm_row row;
    memset(&row, 0, sizeof row);
    row.token_at = slot * e->limits.text_stride + pos;
    row.pick_at = row.keep_at = row.node = -1;
    row.seq = row.slot = slot;
    row.column = row.pos = pos;
    row.scratch_from = e->limits.text_stride;
    return row;
}

static void write_texts(engine *judge, const int32_t *text, const int32_t *length, int32_t count) {
    int32_t width;
    must(judge, judge->backend.begin(&judge->backend, &judge->plain));
    must(judge, judge->backend.join(&judge->backend, 0, count, length, &width));
    for (int32_t i = 0; i < count; i++)
        must(judge, judge->backend.write_board(&judge->backend, i * judge->limits.text_stride,
                                               text + i * judge->limits.max_seq, length[i]));
}

/* KV rows of the first length[i] tokens. */
static void prefill_texts(engine *judge, int which, const int32_t *length, int32_t count) {
    static const lm_pick no_pick = {LM_PICK_NONE, 0, 0};
    int32_t num_rows = 0;
    for (int32_t i = 0; i < count; i++)
        for (int32_t pos = 0; pos < length[i]; pos++) {
            judge->rows[num_rows++] = text_row(judge, i, pos);
            if (num_rows < judge->limits.max_rows) continue;
            must(judge, judge->backend.forward(&judge->backend, which, judge->rows, num_rows,
                                               num_rows, no_pick));
            num_rows = 0;
        }
    if (num_rows > 0)
        must(judge, judge->backend.forward(&judge->backend, which, judge->rows, num_rows, num_rows,
                                           no_pick));
}

/* The pass over chunk[i] tokens of text i behind `at`, as if they were drafts that rule SCORE
 * judges, each by the logits of the token before. */
static double score_chunk(engine *judge, const int32_t *text, const int32_t *at,
                          const int32_t *chunk, int32_t count) {
    static const lm_pick no_pick = {LM_PICK_NONE, 0, 0};
    const int32_t gamma = judge->limits.gamma;
    float logprob[JUDGE_BATCH * (JUDGE_CHUNK + 1)];
    uint64_t seed[JUDGE_BATCH] = {0};
    int32_t unused[JUDGE_BATCH] = {0}, num_rows = 0;
    const lm_step step = {count, chunk, at, unused, unused, seed, unused, unused, unused};
    double sum = 0;
    for (int32_t i = 0; i < count; i++) {
        for (int32_t j = 0; j <= chunk[i]; j++) {
            lm_row *row = &judge->rows[num_rows++];
            *row = text_row(judge, i, at[i] - 1 + j);
            row->keep_at = i * (gamma + 1) + j;
        }
        must(judge, judge->backend.write_board(&judge->backend, judge->limits.draft_at + i * gamma,
                                               text + i * judge->limits.max_seq + at[i], chunk[i]));
    }
    must(judge,
         judge->backend.forward(&judge->backend, LM_TARGET, judge->rows, num_rows, 0, no_pick));
    must(judge, judge->backend.verify(&judge->backend, &step));
    must(judge, judge->backend.read_told(&judge->backend, logprob));
    for (int32_t i = 0; i < count; i++)
        for (int32_t j = 0; j < chunk[i]; j++) sum += (double)logprob[i * (gamma + 1) + j];
    return sum;
}

static double batch_likelihood(engine *judge, const int32_t *text, const int32_t *from,
                               const int32_t *length, int32_t count) {
    int32_t at[JUDGE_BATCH], chunk[JUDGE_BATCH], cached[JUDGE_BATCH], left = 1;
    double sum = 0;
    write_texts(judge, text, length, count);
    for (int32_t i = 0; i < count; i++) at[i] = from[i], cached[i] = from[i] - 1;
    prefill_texts(judge, LM_TARGET, cached, count);
    while (left > 0) {
        left = 0;
        for (int32_t i = 0; i < count; i++) {
            chunk[i] = length[i] - at[i];
            if (chunk[i] > judge->limits.gamma) chunk[i] = judge->limits.gamma;
            left += length[i] - at[i] - chunk[i];
        }
        sum += score_chunk(judge, text, at, chunk, count);
        for (int32_t i = 0; i < count; i++) at[i] += chunk[i];
    }
    return sum;
}

double log_likelihood(engine *judge, const int32_t *text, const int32_t *from,
                      const int32_t *length, int32_t count) {
    double sum = 0;
    for (int32_t i = 0, batch; i < count; i += batch) {
        batch = count - i < JUDGE_BATCH ? count - i : JUDGE_BATCH;
        sum +=
            batch_likelihood(judge, text + i * judge->limits.max_seq, from + i, length + i, batch);
    }
    return sum;
}

uint64_t slot_fingerprint(engine *e, int which, int32_t slot, int32_t count) {
    const lm_dims *dims = which == LM_TARGET ? &e->target : &e->draft;
    const size_t size = (size_t)count * (size_t)dims->d_model;
    float *rows = (float *)allocate(size, sizeof *rows);
    int32_t *columns = (int32_t *)allocate((size_t)count, sizeof *columns);
    uint64_t hash = UINT64_C(14695981039346656037);
    for (int32_t pos = 0; pos < count; pos++) columns[pos] = pos;
    for (int32_t plane = 0; plane < 2 * dims->num_layers; plane++) {
        must(e, e->backend.read_cache(&e->backend, which, plane, slot, columns, count, rows));
        hash = fold(hash, rows, size);
    }
    free(columns);
    free(rows);
    return hash;
}

uint64_t plain_fingerprint(engine *judge, int which, const int32_t *text, int32_t count) {
    write_texts(judge, text, &count, 1);
    prefill_texts(judge, which, &count, 1);
    return slot_fingerprint(judge, which, 0, count);
}
