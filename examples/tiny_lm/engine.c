/* SPDX-License-Identifier: MIT-0
 *
 * engine.c - plain decoding; speculative decoding, where a step drafts up to gamma tokens per
 * sequence, scores them, or as many as the step's budget allows, in one target pass, and lets the
 * kit judge them and take those it accepts into text and cache; and who is in the batch.
 */
#define _POSIX_C_SOURCE 200809L
#include "engine.h"
#include "specverify.cuh"
#include "tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_NGRAM = 4, MIN_PASS_ROWS = 64 };

void die(const char *subject, const char *problem) {
    fflush(stdout);
    fprintf(stderr, "tiny_lm: %s%s%s\n", subject, *subject ? ": " : "", problem);
    exit(EXIT_UNUSABLE);
}

void *allocate(size_t count, size_t size) {
    void *block = calloc(count ? count : 1, size);
    if (!block) die("", "out of memory");
    return block;
}

void must(engine *e, int status) {
    if (status != 0) die(e->backend.name, e->backend.message);
}

/* The weights are finite, so NaN among the target's logits comes from a poisoned cache. */
void lost_position(const engine *e) {
    fflush(stdout);
    fprintf(stderr, "tiny_lm: %s: the target read a position that was never committed\n",
            e->backend.name);
    exit(EXIT_DIFFERENT);
}

static double lap(engine *e, int phase, double since) {
    double now = e->backend.seconds(&e->backend);
    e->seconds[phase] += now - since;
    return now;
}

void progress(engine *e, const char *phase, int32_t done, int32_t total, const char *unit) {
    const int terminal = isatty(STDERR_FILENO);
    const double now = e->backend.seconds(&e->backend);
    if (!e->show_progress || now - e->last_progress < (terminal ? 0.2 : 5.0)) return;
    e->last_progress = now;
    e->progress_on_screen = terminal;
    fprintf(stderr, "%s%s, %d of %d %s done%s", terminal ? "\r" : "", phase, (int)done, (int)total,
            unit, terminal ? "   " : "\n");
}

void clear_progress(engine *e) {
    if (e->progress_on_screen) fprintf(stderr, "\r%60s\r", "");
    e->progress_on_screen = 0;
}

/* ---- memory --------------------------------------------------------------------------------- */

specv_emitted new_told(const engine *e, size_t num_tokens) {
    const size_t bytes = lm_emitted_bytes(&e->sampling, num_tokens);
    return lm_emitted_in(bytes ? allocate(bytes, 1) : NULL, &e->sampling, num_tokens);
}

/* Memory for every layout that will be used. */
static void add_layout(lm_limits *limits, const lm_layout *layout) {
    const int32_t columns = layout->num_pages * layout->page_size;
    const int32_t table = (layout->max_columns + layout->page_size - 1) / layout->page_size;
    if (limits->cache_columns < columns) limits->cache_columns = columns;
    if (limits->text_stride < layout->max_columns) limits->text_stride = layout->max_columns;
    if (limits->num_pages < layout->num_pages) limits->num_pages = layout->num_pages;
    if (limits->table_size < limits->slots * table) limits->table_size = limits->slots * table;
    if (layout->copies) limits->copies = 1;
}

void open_engine(engine *e, const lm_model *models) {
    lm_limits *limits = &e->limits;
    const int32_t columns = lm_step_columns(limits); /* of a step */
    e->target = models[LM_TARGET].dims;
    e->draft = models[LM_DRAFT].dims;
    limits->max_rows = limits->batch * columns;
    if (limits->max_rows < MIN_PASS_ROWS) limits->max_rows = MIN_PASS_ROWS;
    if (!limits->particles) add_layout(limits, &e->plain);
    add_layout(limits, &e->speculative);
    limits->prompt_at = limits->slots * limits->text_stride;
    limits->draft_at = limits->prompt_at + limits->slots * limits->max_seq;
    limits->target_at =
        limits->draft_at + limits->batch * (limits->nodes ? limits->nodes : limits->gamma);
    limits->board_size = limits->target_at + limits->batch * columns;
    if (limits->nodes) e->trees = new_trees(limits);
    e->rows = (lm_row *)allocate((size_t)limits->max_rows, sizeof *e->rows);
    e->told = new_told(e, (size_t)limits->batch * ((size_t)limits->gamma + 1));
    e->kv = (float *)allocate((size_t)limits->max_seq * (size_t)e->target.d_model, sizeof *e->kv);
    e->text = (int32_t *)allocate((size_t)limits->text_stride, sizeof *e->text);
    e->columns =
        (int32_t *)allocate((size_t)limits->slots * (size_t)limits->max_seq, sizeof *e->columns);
    must(e, e->backend.open(&e->backend, models, limits, &e->sampling));
    e->last_progress = e->backend.seconds(&e->backend);
}

void close_engine(engine *e) {
    must(e, e->backend.close(&e->backend));
    free(e->rows);
    free(e->told.logprob);
    free(e->kv);
    free(e->text);
    free(e->columns);
    free_trees(e->trees);
}

/* ---- rows of a pass ------------------------------------------------------------------------- */

/* Drafts are behind the last known token. */
static int32_t column_of(const sequence *s, int32_t pos) {
    return pos < s->len ? s->column[pos] : s->column[s->len - 1] + pos - (s->len - 1);
}

int32_t text_at(const engine *e, const sequence *s, int32_t pos) {
    return s->slot * e->limits.text_stride + column_of(s, pos);
}

lm_row row_of(const engine *e, const sequence *s, int32_t pos, int32_t token_at, int32_t pick_at) {
    lm_row row;
    row.token_at = token_at;
    row.pick_at = pick_at;
    row.keep_at = row.node = -1;
    row.seq = row.tree_from = 0;
    row.slot = s->slot;
    row.column = s->pad + column_of(s, pos);
    row.scratch_from = e->limits.text_stride; /* all columns in the cache */
    row.pos = pos;
    row.seed = s->seed;
    return row;
}

uint64_t request_seed(const engine *e, uint32_t request) {
    const specv_random r = specv_philox(e->seed, request, 0, 0, 0);
    return (uint64_t)r.x[1] << 32 | r.x[0];
}

lm_pick pick_of(const engine *e, int32_t stream, int32_t step_row) {
    lm_pick pick = {LM_PICK_CDF, 0, 0};
    if (e->sampling.by_choice) pick.method = LM_PICK_LARGEST;
    pick.stream = stream;
    /* Rules that emit the likeliest token draft it, too; a draft without scores may be any. */
    if ((e->sampling.rule == SPECV_RULE_TYPICAL || e->sampling.rule == SPECV_RULE_RELAXED ||
         (e->sampling.rule == SPECV_RULE_THRESHOLD && stream == SPECV_STREAM_DRAFT)) &&
        !e->sampling.filters.given)
        pick.method = LM_PICK_LARGEST;
    if (e->sampling.rule == SPECV_RULE_COUPLED || e->sampling.rule == SPECV_RULE_TYPICAL_DRAW)
        pick.method = LM_PICK_GUMBEL, pick.stream = SPECV_STREAM_COUPLED;
    pick.step_row = step_row;
    return pick;
}

static const lm_pick no_pick = {LM_PICK_NONE, 0, 0};

/* KV rows of all tokens but the last, for one model, in passes of at most max_rows rows. */
static void prefill(engine *e, int which, const sequence *seqs, int32_t num_seqs) {
    double start = e->backend.seconds(&e->backend);
    int32_t num_rows = 0;
    for (int32_t i = 0; i < num_seqs; i++)
        for (int32_t pos = 0; pos + 1 < seqs[i].len; pos++) {
            e->rows[num_rows++] = row_of(e, &seqs[i], pos, text_at(e, &seqs[i], pos), -1);
            if (num_rows < e->limits.max_rows) continue;
            must(e, e->backend.forward(&e->backend, which, e->rows, num_rows, num_rows, no_pick));
            num_rows = 0;
        }
    if (num_rows > 0)
        must(e, e->backend.forward(&e->backend, which, e->rows, num_rows, num_rows, no_pick));
    lap(e, PREFILL, start);
}

/* ---- what is told of tokens ------------------------------------------------------------------ */

/* Of the last pass or verification. */
static void read_told(engine *e) {
    if (e->told.logprob) must(e, e->backend.read_told(&e->backend, e->told.logprob));
}

/* Of token `pos` of a text. */
static size_t token_of(const engine *e, const sequence *s, int32_t pos, const outcome *result) {
    return (size_t)(s->number - result->first) * (size_t)e->limits.max_seq + (size_t)pos;
}

/* ---- plain steps ---------------------------------------------------------------------------- */

void plain_steps(engine *e, sequence *seqs, int32_t num_seqs, lm_pick pick, const outcome *result) {
    const double start = e->backend.seconds(&e->backend);
    for (int32_t live = num_seqs; live > 0; e->passes[PLAIN]++) {
        size_t token[LM_MAX_BATCH];
        int32_t num_rows = 0;
        for (int32_t i = 0; i < num_seqs; i++) {
            sequence *s = &seqs[i];
            if (s->len == s->enough) continue;
            token[num_rows] = token_of(e, s, s->len, result);
            e->rows[num_rows++] =
                row_of(e, s, s->len - 1, text_at(e, s, s->len - 1), text_at(e, s, s->len));
            s->column[s->len] = s->len;
            if (++s->len == s->enough) live--;
        }
        must(e, e->backend.forward(&e->backend, LM_TARGET, e->rows, num_rows, 0, pick));
        read_told(e);
        for (int32_t r = 0; r < num_rows; r++)
            lm_copy_emitted(&result->told, token[r], &e->told, (size_t)r, 1);
    }
    lap(e, PLAIN, start);
}

/* ---- drafts --------------------------------------------------------------------------------- */

/* What full acceptance left. */
int32_t fill_hole(engine *e, sequence *s, int32_t num_rows) {
    for (; s->draft_cached < s->len - 1; s->draft_cached++)
        e->rows[num_rows++] = row_of(e, s, s->draft_cached, text_at(e, s, s->draft_cached), -1);
    return num_rows;
}

/* draft_len[i] drafts for every sequence, one position of all of them per pass. */
static void draft_with_model(engine *e, sequence *seqs, int32_t num_seqs,
                             const int32_t *draft_len) {
    for (int32_t k = 0; k < e->limits.gamma; k++) {
        const lm_pick pick = pick_of(e, SPECV_STREAM_DRAFT, k);
        int32_t num_rows = 0, num_silent;
        for (int32_t i = 0; i < num_seqs && k == 0; i++) {
            if (draft_len[i] > 0) num_rows = fill_hole(e, &seqs[i], num_rows);
        }
        num_silent = num_rows;
        for (int32_t i = 0; i < num_seqs; i++) {
            sequence *s = &seqs[i];
            const int32_t draft = i * e->limits.gamma + k, pos = s->len - 1 + k;
            const int32_t pick_at = e->limits.draft_at + draft;
            lm_row *row = &e->rows[num_rows];
            if (k >= draft_len[i]) continue;
            *row = row_of(e, s, pos, k == 0 ? text_at(e, s, pos) : pick_at - 1, pick_at);
            if (e->sampling.use_draft_logits) row->keep_at = draft;
            s->draft_cached = pos + 1;
            num_rows++;
        }
        if (num_rows == num_silent) return;
        must(e, e->backend.forward(&e->backend, LM_DRAFT, e->rows, num_rows, num_silent, pick));
        e->passes[DRAFT]++;
    }
}

/* Goes on as the text did after an earlier occurrence of its last bytes: of MAX_NGRAM, or of as
 * many as have one, and the latest of these. Returns how many bytes it added behind len. */
static int32_t continue_ngram(int32_t *text, int32_t len, int32_t count) {
    for (int32_t n = MAX_NGRAM; n > 0; n--)
        for (int32_t at = len - 1; at >= n; at--)
            if (memcmp(text + at - n, text + len - n, (size_t)n * sizeof *text) == 0) {
                for (int32_t k = 0; k < count; k++) text[len + k] = text[at + k];
                return count;
            }
    return 0;
}

/* The worst case: hardly any is accepted, and the text must not suffer. */
static int32_t continue_randomly(const engine *e, const sequence *s, int32_t count) {
    for (int32_t k = 0; k < count; k++) {
        const specv_random r = specv_philox(s->seed, (uint32_t)s->len, (uint32_t)k, 0,
                                            SPECV_TAG_DRAW); /* a number that no rule uses */
        e->text[s->len + k] = (int32_t)(r.x[0] % (uint32_t)e->target.vocab);
    }
    return count;
}

/* At most draft_len[i] drafts for every sequence, from its text alone. */
static void draft_on_host(engine *e, const sequence *seqs, int32_t num_seqs, int32_t *draft_len) {
    for (int32_t i = 0; i < num_seqs; i++) {
        const sequence *s = &seqs[i];
        const int32_t drafts = e->limits.draft_at + i * e->limits.gamma;
        if (e->drafter == DRAFTER_NGRAM) {
            read_text(e, s, e->text);
            draft_len[i] = continue_ngram(e->text, s->len, draft_len[i]);
        } else {
            draft_len[i] = continue_randomly(e, s, draft_len[i]);
        }
        must(e, e->backend.write_board(&e->backend, drafts, e->text + s->len, draft_len[i]));
    }
}

/* ---- a step --------------------------------------------------------------------------------- */

/* One target pass over the pending token and the drafts of every sequence. If a rejected row must
 * not stay where it is, all wait in the scratch for the verdict. */
static void score_drafts(engine *e, const sequence *seqs, int32_t num_seqs,
                         const int32_t *draft_len) {
    const int waits = e->speculative.kind == LM_RAGGED || e->speculative.kind == LM_PAGED;
    const int by_choice = e->sampling.by_choice;
    const lm_pick pick = by_choice ? pick_of(e, SPECV_STREAM_TARGET, 0) : no_pick;
    int32_t num_rows = 0;
    for (int32_t i = 0; i < num_seqs; i++) {
        const sequence *s = &seqs[i];
        const int32_t drafts = e->limits.draft_at + i * e->limits.gamma;
        for (int32_t j = 0; j <= draft_len[i]; j++) {
            const int32_t choice = i * (e->limits.gamma + 1) + j;
            lm_row *row = &e->rows[num_rows++];
            *row = row_of(e, s, s->len - 1 + j, j == 0 ? text_at(e, s, s->len - 1) : drafts + j - 1,
                          e->limits.target_at + choice);
            if (!by_choice) row->keep_at = choice;
            row->seq = i;
            if (waits) row->scratch_from = column_of(s, s->len - 1);
        }
    }
    must(e, e->backend.forward(&e->backend, LM_TARGET, e->rows, num_rows, 0, pick));
    e->passes[TARGET]++;
}

/* Where the commit has put the `accepted` drafts and the next token. */
static void find_columns(engine *e, sequence *s, int32_t accepted) {
    const int32_t behind = s->column[s->len - 1] + 1, len = s->len + accepted + 1;
    const int32_t first = e->speculative.kind == LM_PADDED ? e->width - len : s->column[0];
    for (int32_t j = 0; j <= accepted; j++) s->column[s->len + j] = behind + j;
    if (e->speculative.kind == LM_GAP) s->column[len - 1] = e->width - 1;
    e->kv_rows += len - 1;
    if (first == s->column[0]) return;
    e->moved_kv_rows += len - 1;
    for (int32_t pos = 0; pos < len; pos++) s->column[pos] = first + pos;
}

static void step(engine *e, sequence *seqs, int32_t num_seqs, const outcome *result) {
    int32_t draft_len[LM_MAX_BATCH], position[LM_MAX_BATCH], draft_end[LM_MAX_BATCH];
    int32_t text[LM_MAX_BATCH], accepted_len[LM_MAX_BATCH], num_emitted[LM_MAX_BATCH];
    uint64_t seed[LM_MAX_BATCH];
    const lm_step judged = {num_seqs, draft_len,    position,    draft_end, text,
                            seed,     accepted_len, num_emitted, &e->width};
    double time = e->backend.seconds(&e->backend);
    must(e, e->backend.prepare(&e->backend, num_seqs));
    time = lap(e, COMMIT, time);
    for (int32_t i = 0; i < num_seqs; i++) {
        const int32_t room = seqs[i].end - seqs[i].len - 1; /* the step adds a token of its own */
        draft_len[i] = room < e->limits.gamma ? room : e->limits.gamma;
        position[i] = seqs[i].len;
        seed[i] = seqs[i].seed;
        text[i] = text_at(e, &seqs[i], seqs[i].len);
    }
    if (e->trees)
        draft_trees(e, seqs, num_seqs, draft_len);
    else if (e->drafter == DRAFTER_MODEL)
        draft_with_model(e, seqs, num_seqs, draft_len);
    else
        draft_on_host(e, seqs, num_seqs, draft_len);
    for (int32_t i = 0; i < num_seqs; i++)
        e->drafted += e->trees ? e->trees->num_nodes[i] - 1 : draft_len[i];
    if (e->limits.budget) must(e, e->backend.spend(&e->backend, num_seqs, draft_len));
    for (int32_t i = 0; i < num_seqs; i++) draft_end[i] = column_of(&seqs[i], seqs[i].draft_cached);
    time = lap(e, DRAFT, time);
    if (e->trees)
        score_trees(e, seqs, num_seqs);
    else
        score_drafts(e, seqs, num_seqs, draft_len);
    time = lap(e, TARGET, time);
    must(e, e->backend.verify(&e->backend, &judged));
    read_told(e);
    time = lap(e, VERIFY, time);
    must(e, e->backend.commit(&e->backend, &judged));
    for (int32_t i = 0; i < num_seqs; i++) {
        sequence *s = &seqs[i];
        if (num_emitted[i] != accepted_len[i] + 1) lost_position(e);
        find_columns(e, s, accepted_len[i]);
        lm_copy_emitted(&result->told, token_of(e, s, s->len, result), &e->told,
                        (size_t)i * ((size_t)e->limits.gamma + 1), (size_t)num_emitted[i]);
        s->len += num_emitted[i];
        if (s->draft_cached > s->len - 1) s->draft_cached = s->len - 1; /* forget rejected drafts */
    }
    lap(e, e->speculative.kind == LM_PADDED ? ALIGN : COMMIT, time);
    e->steps++, e->rows_in_steps += num_seqs;
}

/* ---- who is in the batch -------------------------------------------------------------------- */

uint64_t fold(uint64_t hash, const void *bytes, size_t num_words) { /* FNV-1a by words */
    for (size_t i = 0; i < num_words; i++) {
        uint32_t word;
        memcpy(&word, (const char *)bytes + i * sizeof word, sizeof word);
        hash = (hash ^ word) * UINT64_C(1099511628211);
    }
    return hash;
}

/* Of the bits of all K and V rows that the target's cache holds for a sequence: of all tokens but
 * the last, which was never an input. */
static uint64_t kv_fingerprint(engine *e, const sequence *s) {
    uint64_t hash = UINT64_C(14695981039346656037);
    for (int32_t plane = 0; plane < 2 * e->target.num_layers; plane++) {
        must(e, e->backend.read_cache(&e->backend, LM_TARGET, plane, s->slot, s->column, s->len - 1,
                                      e->kv));
        hash = fold(hash, e->kv, (size_t)(s->len - 1) * (size_t)e->target.d_model);
    }
    return hash;
}

/* text may be e->text: positions are never behind their columns. */
void read_text(engine *e, const sequence *s, int32_t *text) {
    const int32_t width = s->column[s->len - 1] + 1;
    must(e, e->backend.read_board(&e->backend, s->slot * e->limits.text_stride, e->text, width));
    for (int32_t pos = 0; pos < s->len; pos++) text[pos] = e->text[s->column[pos]];
}

static void keep(engine *e, const sequence *s, const outcome *result) {
    const int32_t i = s->number - result->first;
    read_text(e, s, result->text + i * e->limits.max_seq);
    if (result->kv) result->kv[i] = kv_fingerprint(e, s);
}

static void begin(engine *e, const lm_layout *layout, sequence *seqs) {
    must(e, e->backend.begin(&e->backend, layout));
    memset(seqs, 0, (size_t)e->limits.slots * sizeof *seqs);
    for (int32_t i = 0; i < e->limits.slots; i++) {
        seqs[i].slot = i;
        seqs[i].column = e->columns + (size_t)i * (size_t)e->limits.max_seq;
    }
}

static int is_aligned(const lm_layout *layout) {
    return layout->kind == LM_PADDED || layout->kind == LM_GAP;
}

/* A prompt becomes a sequence; its tokens go where `join` looks for them. */
static void open_sequence(engine *e, const lm_layout *layout, const prompts *p, int32_t number,
                          sequence *s) {
    const int32_t prompt_at = e->limits.prompt_at + s->slot * e->limits.max_seq;
    s->number = number;
    s->len = p->length[number];
    s->end = s->enough = s->len + p->num_new[number];
    s->draft_cached = s->len - 1;
    s->seed = request_seed(e, (uint32_t)number);
    for (int32_t pos = 0; pos < s->len; pos++) {
        e->text[pos] = (unsigned char)p->start[number][pos];
        s->column[pos] = pos;
    }
    must(e, e->backend.write_board(&e->backend, is_aligned(layout) ? prompt_at : text_at(e, s, 0),
                                   e->text, s->len));
}

/* Sequences num_old .. num_seqs-1 get their place beside the others. */
static void join(engine *e, const lm_layout *layout, sequence *seqs, int32_t num_old,
                 int32_t num_seqs) {
    int32_t len[LM_MAX_BATCH] = {0};
    for (int32_t i = 0; i < num_seqs; i++) len[i] = seqs[i].len;
    must(e, e->backend.join(&e->backend, num_old, num_seqs, len, &e->width));
    for (int32_t i = 0; i < num_seqs && is_aligned(layout); i++)
        for (int32_t pos = 0; pos < seqs[i].len; pos++)
            seqs[i].column[pos] = e->width - seqs[i].len + pos;
}

/* Prompts number .. number+count-1 become sequences behind num_old others, with caches that hold
 * all but their ends. */
static void enter(engine *e, const lm_layout *layout, const prompts *p, int32_t number,
                  sequence *seqs, int32_t num_old, int32_t count) {
    for (int32_t i = num_old; i < num_old + count; i++) {
        if (layout->kind != LM_FIXED) seqs[i].slot = i;
        open_sequence(e, layout, p, number + i - num_old, &seqs[i]);
    }
    join(e, layout, seqs, num_old, num_old + count);
    prefill(e, LM_TARGET, seqs + num_old, count);
    if (layout == &e->speculative && e->drafter == DRAFTER_MODEL)
        prefill(e, LM_DRAFT, seqs + num_old, count);
}

void start_batch(engine *e, const lm_layout *layout, const prompts *p, int32_t first, int32_t count,
                 sequence *seqs) {
    begin(e, layout, seqs);
    enter(e, layout, p, first, seqs, 0, count);
}

void restart_batch(engine *e, const lm_layout *layout, sequence *seqs, int32_t count) {
    join(e, layout, seqs, 0, count);
}

void decode_plainly(engine *e, const prompts *p, int32_t first, int32_t count,
                    const outcome *result) {
    sequence seqs[LM_MAX_BATCH];
    start_batch(e, &e->plain, p, first, count, seqs);
    plain_steps(e, seqs, count, pick_of(e, SPECV_STREAM_TARGET, 0), result);
    for (int32_t i = 0; i < count; i++) keep(e, &seqs[i], result);
}

int32_t step_and_leave(engine *e, sequence *seqs, int32_t num_seqs, const outcome *result) {
    uint8_t finished[LM_MAX_BATCH];
    int32_t live = 0, num_finished = 0;
    double time;
    step(e, seqs, num_seqs, result);
    for (int32_t i = 0; i < num_seqs; i++) {
        finished[i] = seqs[i].len >= seqs[i].enough;
        num_finished += finished[i];
        if (finished[i]) keep(e, &seqs[i], result);
    }
    if (num_finished == 0) return num_seqs;
    time = e->backend.seconds(&e->backend);
    must(e, e->backend.leave(&e->backend, num_seqs, finished));
    for (int32_t i = 0; i < num_seqs; i++) {
        const sequence s = seqs[i];
        if (finished[i]) continue;
        seqs[i] = seqs[live]; /* for its `column`, which the next to enter will use */
        seqs[live] = s;
        seqs[live].slot = live;
        live++;
    }
    lap(e, LEAVE, time);
    return live;
}

static int32_t smaller(int32_t a, int32_t b) { return a < b ? a : b; }

static void decode_in_order(engine *e, const prompts *p, int32_t first, int32_t count,
                            const outcome *result) {
    sequence seqs[LM_MAX_BATCH];
    int32_t live = 0, done = 0;
    begin(e, &e->speculative, seqs);
    while (live > 0 || done < count) {
        const int32_t coming = smaller(count - done, e->limits.batch - live);
        if (coming > 0 && (live == 0 || e->schedule == SCHEDULE_CONTINUOUS)) {
            enter(e, &e->speculative, p, first + done, seqs, live, coming);
            live += coming, done += coming;
        }
        live = step_and_leave(e, seqs, live, result);
    }
}

/* ---- EXSPEC --------------------------------------------------------------------------------- */

/* Sequences with `pad` move to the right by it, so that all end in the same column; or back. */
static void align(engine *e, const sequence *batch, int32_t num_seqs, int back) {
    int32_t len[LM_MAX_BATCH] = {0}, pad[LM_MAX_BATCH] = {0}, most = 0;
    for (int32_t i = 0; i < num_seqs; i++) {
        len[batch[i].slot] = batch[i].len - 1; /* the last token has no KV row yet */
        pad[batch[i].slot] = batch[i].pad;
        if (batch[i].pad > most) most = batch[i].pad;
        if (batch[i].pad > 0) e->moved_kv_rows += batch[i].len - 1;
    }
    if (most > 0) must(e, e->backend.move(&e->backend, len, pad, back));
}

/* Takes up to a batch from the window: the first of one length if so many have it, else the first
 * of all, which are then aligned. */
static int32_t pick_batch(engine *e, const sequence *window, int32_t num_waiting, sequence *batch) {
    int32_t len[LM_MAX_BATCH], picked[LM_MAX_BATCH], is_group, num_seqs = 0, longest = 0;
    for (int32_t i = 0; i < num_waiting; i++) len[i] = window[i].len;
    must(e, e->backend.group(&e->backend, len, num_waiting, e->limits.batch, picked, &is_group));
    for (; num_seqs < e->limits.batch && picked[num_seqs] >= 0; num_seqs++) {
        batch[num_seqs] = window[picked[num_seqs]];
        if (batch[num_seqs].len > longest) longest = batch[num_seqs].len;
    }
    for (int32_t i = 0; i < num_seqs; i++) batch[i].pad = longest - batch[i].len;
    align(e, batch, num_seqs, 0);
    e->groups += is_group;
    return num_seqs;
}

/* The window takes back what a batch has become. Returns how many wait on; their order stays, and
 * behind them are the free slots. */
static int32_t put_back(engine *e, sequence *window, int32_t num_waiting, const sequence *batch,
                        int32_t num_seqs, const outcome *result) {
    int32_t live = 0;
    for (int32_t i = 0; i < num_waiting; i++) {
        sequence s = window[i];
        for (int32_t j = 0; j < num_seqs; j++)
            if (batch[j].slot == s.slot) s = batch[j], s.pad = 0;
        window[i] = s;
        if (s.len == s.end) {
            keep(e, &s, result);
            continue;
        }
        window[i] = window[live];
        window[live++] = s;
    }
    return live;
}

static void decode_by_length(engine *e, const prompts *p, int32_t first, int32_t count,
                             const outcome *result) {
    sequence window[LM_MAX_BATCH], batch[LM_MAX_BATCH];
    int32_t num_waiting = 0, entered = 0;
    begin(e, &e->speculative, window);
    while (num_waiting > 0 || entered < count) {
        const int32_t coming = smaller(count - entered, e->limits.slots - num_waiting);
        int32_t num_seqs;
        double time;
        enter(e, &e->speculative, p, first + entered, window, num_waiting, coming);
        num_waiting += coming, entered += coming;
        time = e->backend.seconds(&e->backend);
        num_seqs = pick_batch(e, window, num_waiting, batch);
        lap(e, ALIGN, time);
        step(e, batch, num_seqs, result);
        time = e->backend.seconds(&e->backend);
        align(e, batch, num_seqs, 1);
        lap(e, ALIGN, time);
        num_waiting = put_back(e, window, num_waiting, batch, num_seqs, result);
    }
}

void decode_speculatively(engine *e, const prompts *p, int32_t first, int32_t count,
                          const outcome *result) {
    if (e->schedule == SCHEDULE_EXSPEC)
        decode_by_length(e, p, first, count, result);
    else
        decode_in_order(e, p, first, count, result);
}
