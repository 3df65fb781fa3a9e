/* SPDX-License-Identifier: MIT-0
 *
 * tiny_lm.c - batched speculative decoding with a small real model pair, checked against plain
 * decoding.
 *
 * For each batch of prompts: decode it plainly with the target; then again speculatively, where a
 * step drafts up to gamma tokens per sequence, scores them all in one target pass, and lets the kit
 * accept (specv_verify_pack_kv). Greedy verification promises the same text, and the arithmetic of
 * the backends does not depend on how rows are batched, so "the same" means every byte of the text
 * and every bit that was committed to the target's KV cache.
 *
 * State of a sequence with `len` known tokens:
 *   target cache  positions 0 .. len-2. The last token is pending: the next pass makes its KV row
 *   draft cache   positions 0 .. draft_cached-1, where draft_cached is len-1, or len-2 after a step
 *                 that accepted every draft: the last draft was never an input of the draft model.
 *                 The next step feeds that token first, else the draft reads a hole in its cache.
 */
#define _POSIX_C_SOURCE 200809L
#include "lm.h"
#include "specverify.cuh"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_DIFFERENT = 1, EXIT_UNUSABLE = 2 };
enum { MAX_GAMMA = 64, MAX_TOKENS = 4095, MIN_PASS_ROWS = 64 };

/* ---- options and prompts -------------------------------------------------------------------- */

typedef struct options {
    const char *prompts, *target, *draft, *backend;
    int32_t batch, gamma, tokens;
    int quiet;
} options;

static const char usage[] =
    "usage: tiny_lm [options]\n"
    "  --prompts FILE   one prompt a line       (examples/tiny_lm/prompts.txt)\n"
    "  --target FILE    the model that decides  (examples/tiny_lm/target.bin)\n"
    "  --draft FILE     the model that proposes (examples/tiny_lm/draft.bin)\n"
    "  --batch N        sequences at a time, 1 to 256 (8)\n"
    "  --gamma N        drafts per step, 1 to 64 (4)\n"
    "  --tokens N       tokens to add to every prompt (64)\n"
    "  --backend NAME   cpu, gpu, or auto: gpu if there is one (auto)\n"
    "  --quiet          only the last line\n"
    "  --help           this text\n"
    "exit status: 0 identical to plain decoding, 1 different, 2 could not run\n";

/* A token is a byte: prompts may hold any byte but a newline. */
typedef struct prompts {
    char *bytes;
    const char **start;
    int32_t *length;
    int32_t count;
} prompts;

static void die(const char *subject, const char *problem) {
    fflush(stdout);
    fprintf(stderr, "tiny_lm: %s%s%s\n", subject, *subject ? ": " : "", problem);
    exit(EXIT_UNUSABLE);
}

static void *allocate(size_t count, size_t size) {
    void *block = calloc(count ? count : 1, size);
    if (!block) die("", "out of memory");
    return block;
}

static int32_t parse_int(const char *name, const char *text, int32_t low, int32_t high) {
    char *end, problem[96];
    long value;
    errno = 0;
    value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < low || value > high) {
        (void)snprintf(problem, sizeof problem, "'%.32s' is not a number from %d to %d", text,
                       (int)low, (int)high);
        die(name, problem);
    }
    return (int32_t)value;
}

static int is_option_with_value(const char *name) {
    static const char *const names[] = {"--prompts", "--target", "--draft", "--backend",
                                        "--batch",   "--gamma",  "--tokens"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0) return 1;
    return 0;
}

static options parse_options(int argc, char **argv) {
    options o;
    memset(&o, 0, sizeof o);
    o.prompts = "examples/tiny_lm/prompts.txt";
    o.target = "examples/tiny_lm/target.bin";
    o.draft = "examples/tiny_lm/draft.bin";
    o.backend = "auto";
    o.batch = 8;
    o.gamma = 4;
    o.tokens = 64;
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(name, "--help") == 0) {
            fputs(usage, stdout);
            exit(0);
        }
        if (strcmp(name, "--quiet") == 0) {
            o.quiet = 1;
            continue;
        }
        if (!is_option_with_value(name)) die(name, "unknown option; --help lists them");
        if (!value) die(name, "needs a value");
        if (strcmp(name, "--prompts") == 0)
            o.prompts = value;
        else if (strcmp(name, "--target") == 0)
            o.target = value;
        else if (strcmp(name, "--draft") == 0)
            o.draft = value;
        else if (strcmp(name, "--backend") == 0)
            o.backend = value;
        else if (strcmp(name, "--batch") == 0)
            o.batch = parse_int(name, value, 1, LM_MAX_BATCH);
        else if (strcmp(name, "--gamma") == 0)
            o.gamma = parse_int(name, value, 1, MAX_GAMMA);
        else
            o.tokens = parse_int(name, value, 1, MAX_TOKENS);
        i++;
    }
    return o;
}

static prompts load_prompts(const char *path, int32_t num_new, int32_t max_seq) {
    prompts p = {NULL, NULL, NULL, 0};
    size_t size, num_lines = 1;
    char problem[120];
    p.bytes = (char *)lm_read_file(path, &size);
    if (!p.bytes) die(path, "cannot be read");
    if (size == 0) die(path, "no prompts");
    for (size_t i = 0; i + 1 < size; i++) num_lines += p.bytes[i] == '\n';
    if (num_lines > 65536) die(path, "more than 65536 prompts");
    p.start = (const char **)allocate(num_lines, sizeof *p.start);
    p.length = (int32_t *)allocate(num_lines, sizeof *p.length);
    for (size_t at = 0; at < size;) {
        const char *end = (const char *)memchr(p.bytes + at, '\n', size - at);
        size_t length = (end ? (size_t)(end - p.bytes) : size) - at;
        int32_t number = p.count + 1;
        if (length == 0) {
            (void)snprintf(problem, sizeof problem, "prompt %d is empty", (int)number);
            die(path, problem);
        }
        if (length + (size_t)num_new > (size_t)max_seq) {
            (void)snprintf(problem, sizeof problem,
                           "prompt %d: %zu bytes and %d tokens do not fit in %d positions",
                           (int)number, length, (int)num_new, (int)max_seq);
            die(path, problem);
        }
        p.start[p.count] = p.bytes + at;
        p.length[p.count++] = (int32_t)length;
        at += length + 1;
    }
    return p;
}

/* ---- engine --------------------------------------------------------------------------------- */

enum { PREFILL, PLAIN, DRAFT, TARGET, VERIFY, COMMIT, NUM_PHASES };

typedef struct engine {
    lm_backend backend;
    lm_limits limits;
    int32_t max_seq;             /* columns of the text area, which starts the token board */
    int32_t draft_at, target_at; /* then [batch][gamma] drafts, [batch][gamma + 1] target choices */
    lm_row *rows;                /* [max_rows] */
    lm_dims target;
    float *kv; /* [max_seq][d_model], one plane of one sequence on the host */
    double seconds[NUM_PHASES];
    int64_t passes[NUM_PHASES];
    double last_progress;
    int show_progress, progress_on_screen;
} engine;

typedef struct sequence {
    int32_t slot; /* its cache, and its row of the text area */
    int32_t len, end;
    int32_t draft_cached;
} sequence;

/* What a batch of prompts became. */
typedef struct outcome {
    int32_t *text; /* [batch][max_seq], -1 where there is none */
    uint64_t *kv;  /* [batch] fingerprint of the target's KV cache */
} outcome;

/* A backend that fails cannot be trusted with the next call: report and leave. */
static void must(engine *e, int status) {
    if (status != 0) die(e->backend.name, e->backend.message);
}

/* The weights are finite, so NaN among the target's logits comes from a poisoned cache. */
static void lost_position(const engine *e) {
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

static void progress(engine *e, const char *phase, int32_t done, int32_t total) {
    const int terminal = isatty(STDERR_FILENO);
    const double now = e->backend.seconds(&e->backend);
    if (!e->show_progress || now - e->last_progress < (terminal ? 0.2 : 5.0)) return;
    e->last_progress = now;
    e->progress_on_screen = terminal;
    fprintf(stderr, "%s%s, %d of %d prompts done%s", terminal ? "\r" : "", phase, (int)done,
            (int)total, terminal ? "   " : "\n");
}

static void clear_progress(engine *e) {
    if (e->progress_on_screen) fprintf(stderr, "\r%60s\r", "");
    e->progress_on_screen = 0;
}

static int32_t text_at(const engine *e, const sequence *s, int32_t pos) {
    return s->slot * e->max_seq + pos;
}

static lm_row row_of(const engine *e, const sequence *s, int32_t pos, int32_t token_at,
                     int32_t argmax_at) {
    lm_row row;
    row.token_at = token_at;
    row.argmax_at = argmax_at;
    row.slot = s->slot;
    row.pos = pos;
    row.seq = 0;
    row.cache_end = e->max_seq; /* all positions in the cache */
    return row;
}

/* KV rows of all tokens but the last, for one model, in passes of at most max_rows rows. */
static void prefill(engine *e, int which, const sequence *seqs, int32_t num_seqs) {
    double start = e->backend.seconds(&e->backend);
    int32_t num_rows = 0;
    for (int32_t i = 0; i < num_seqs; i++)
        for (int32_t pos = 0; pos + 1 < seqs[i].len; pos++) {
            e->rows[num_rows++] = row_of(e, &seqs[i], pos, text_at(e, &seqs[i], pos), -1);
            if (num_rows < e->limits.max_rows) continue;
            must(e, e->backend.forward(&e->backend, which, e->rows, num_rows, num_rows));
            num_rows = 0;
        }
    if (num_rows > 0) must(e, e->backend.forward(&e->backend, which, e->rows, num_rows, num_rows));
    lap(e, PREFILL, start);
}

static void decode_plainly(engine *e, sequence *seqs, int32_t num_seqs) {
    double start;
    prefill(e, LM_TARGET, seqs, num_seqs);
    start = e->backend.seconds(&e->backend);
    for (int32_t live = num_seqs; live > 0; e->passes[PLAIN]++) {
        int32_t num_rows = 0;
        for (int32_t i = 0; i < num_seqs; i++) {
            sequence *s = &seqs[i];
            if (s->len == s->end) continue;
            e->rows[num_rows++] =
                row_of(e, s, s->len - 1, text_at(e, s, s->len - 1), text_at(e, s, s->len));
            if (++s->len == s->end) live--;
        }
        must(e, e->backend.forward(&e->backend, LM_TARGET, e->rows, num_rows, 0));
    }
    lap(e, PLAIN, start);
}

/* Up to draft_len[i] drafts for every sequence, one position of all of them per pass. */
static void draft_tokens(engine *e, sequence *seqs, int32_t num_seqs, const int32_t *draft_len) {
    for (int32_t k = 0; k < e->limits.gamma; k++) {
        int32_t num_rows = 0, num_silent;
        for (int32_t i = 0; i < num_seqs && k == 0; i++) { /* the hole that full acceptance left */
            sequence *s = &seqs[i];
            if (draft_len[i] > 0)
                for (; s->draft_cached < s->len - 1; s->draft_cached++)
                    e->rows[num_rows++] =
                        row_of(e, s, s->draft_cached, text_at(e, s, s->draft_cached), -1);
        }
        num_silent = num_rows;
        for (int32_t i = 0; i < num_seqs; i++) {
            sequence *s = &seqs[i];
            const int32_t drafts = e->draft_at + i * e->limits.gamma, pos = s->len - 1 + k;
            if (k >= draft_len[i]) continue;
            e->rows[num_rows++] =
                row_of(e, s, pos, k == 0 ? text_at(e, s, pos) : drafts + k - 1, drafts + k);
            s->draft_cached = pos + 1;
        }
        if (num_rows == num_silent) return;
        must(e, e->backend.forward(&e->backend, LM_DRAFT, e->rows, num_rows, num_silent));
        e->passes[DRAFT]++;
    }
}

/* One target pass over the pending token and the drafts of every sequence. The pending token's KV
 * row goes straight to the cache; those of the drafts wait in the scratch for the verdict. */
static void score_drafts(engine *e, const sequence *seqs, int32_t num_seqs,
                         const int32_t *draft_len) {
    int32_t num_rows = 0;
    for (int32_t i = 0; i < num_seqs; i++) {
        const sequence *s = &seqs[i];
        const int32_t drafts = e->draft_at + i * e->limits.gamma;
        const int32_t choices = e->target_at + i * (e->limits.gamma + 1);
        for (int32_t j = 0; j <= draft_len[i]; j++) {
            lm_row *row = &e->rows[num_rows++];
            *row = row_of(e, s, s->len - 1 + j, j == 0 ? text_at(e, s, s->len - 1) : drafts + j - 1,
                          choices + j);
            row->seq = i;
            row->cache_end = s->len;
        }
    }
    must(e, e->backend.forward(&e->backend, LM_TARGET, e->rows, num_rows, 0));
    e->passes[TARGET]++;
}

/* One step of all live sequences; returns how many are still live, in front and in order. */
static int32_t speculative_step(engine *e, sequence *seqs, int32_t num_seqs) {
    int32_t slot[LM_MAX_BATCH], draft_len[LM_MAX_BATCH], cache_end[LM_MAX_BATCH];
    int32_t text[LM_MAX_BATCH], accepted_len[LM_MAX_BATCH], num_emitted[LM_MAX_BATCH], live = 0;
    const lm_step step = {num_seqs,  e->draft_at, e->target_at, slot,       draft_len,
                          cache_end, text,        accepted_len, num_emitted};
    double time = e->backend.seconds(&e->backend);
    for (int32_t i = 0; i < num_seqs; i++) {
        const int32_t room = seqs[i].end - seqs[i].len - 1; /* the step adds a token of its own */
        draft_len[i] = room < e->limits.gamma ? room : e->limits.gamma;
        slot[i] = seqs[i].slot;
        cache_end[i] = seqs[i].len;
        text[i] = text_at(e, &seqs[i], seqs[i].len);
    }
    draft_tokens(e, seqs, num_seqs, draft_len);
    time = lap(e, DRAFT, time);
    score_drafts(e, seqs, num_seqs, draft_len);
    time = lap(e, TARGET, time);
    must(e, e->backend.verify(&e->backend, &step));
    time = lap(e, VERIFY, time);
    must(e, e->backend.commit(&e->backend, &step));
    for (int32_t i = 0; i < num_seqs; i++) {
        sequence *s = &seqs[i];
        if (num_emitted[i] < 1) lost_position(e);
        s->len += num_emitted[i];
        if (s->draft_cached > s->len - 1) s->draft_cached = s->len - 1; /* forget rejected drafts */
        if (s->len < s->end) seqs[live++] = *s;
    }
    lap(e, COMMIT, time);
    return live;
}

static void decode_speculatively(engine *e, sequence *seqs, int32_t num_seqs) {
    prefill(e, LM_TARGET, seqs, num_seqs);
    prefill(e, LM_DRAFT, seqs, num_seqs);
    for (int32_t i = 0; i < num_seqs; i++) seqs[i].draft_cached = seqs[i].len - 1;
    while (num_seqs > 0) num_seqs = speculative_step(e, seqs, num_seqs);
}

static uint64_t fold(uint64_t hash, const void *bytes, size_t num_words) { /* FNV-1a by words */
    for (size_t i = 0; i < num_words; i++) {
        uint32_t word;
        memcpy(&word, (const char *)bytes + i * sizeof word, sizeof word);
        hash = (hash ^ word) * UINT64_C(1099511628211);
    }
    return hash;
}

/* Of the bits of all K and V rows that the target's cache holds for a decoded sequence. */
static uint64_t kv_fingerprint(engine *e, int32_t slot, int32_t num_pos) {
    uint64_t hash = UINT64_C(14695981039346656037);
    for (int32_t plane = 0; plane < 2 * e->target.num_layers; plane++) {
        must(e, e->backend.read_cache(&e->backend, LM_TARGET, plane, slot, num_pos, e->kv));
        hash = fold(hash, e->kv, (size_t)num_pos * (size_t)e->target.d_model);
    }
    return hash;
}

/* Decodes prompts first .. first+num_seqs-1. */
static void decode_batch(engine *e, const prompts *p, int32_t first, int32_t num_seqs,
                         int32_t num_new, int speculative, outcome *result) {
    sequence seqs[LM_MAX_BATCH];
    const int32_t size = num_seqs * e->max_seq;
    int32_t *const text = result->text;
    memset(seqs, 0, sizeof seqs);
    for (int32_t i = 0; i < size; i++) text[i] = -1;
    for (int32_t i = 0; i < num_seqs; i++) {
        const int32_t length = p->length[first + i];
        for (int32_t pos = 0; pos < length; pos++)
            text[i * e->max_seq + pos] = (unsigned char)p->start[first + i][pos];
        seqs[i].slot = i;
        seqs[i].len = length;
        seqs[i].end = length + num_new;
    }
    /* Whatever the last run left in the caches would hide a row that this run forgets. */
    must(e, e->backend.poison(&e->backend));
    must(e, e->backend.write_board(&e->backend, 0, text, size));
    if (speculative)
        decode_speculatively(e, seqs, num_seqs);
    else
        decode_plainly(e, seqs, num_seqs);
    must(e, e->backend.read_board(&e->backend, 0, text, size));
    for (int32_t i = 0; i < num_seqs; i++) /* the last token was never an input */
        result->kv[i] = kv_fingerprint(e, i, p->length[first + i] + num_new - 1);
}

/* ---- report --------------------------------------------------------------------------------- */

static void print_bytes(const int32_t *tokens, int32_t count) {
    for (int32_t i = 0; i < count; i++) {
        if (tokens[i] == '\n')
            fputs("\\n", stdout);
        else if (tokens[i] == '\\')
            fputs("\\\\", stdout);
        else if (tokens[i] >= 32 && tokens[i] < 127)
            putchar(tokens[i]);
        else
            printf("\\x%02x", (unsigned)tokens[i] & 0xffu);
    }
}

static void print_text(int32_t number, const int32_t *tokens, int32_t num_prompt, int32_t length) {
    printf("%3d  ", (int)number);
    print_bytes(tokens, num_prompt);
    fputs(" >> ", stdout);
    print_bytes(tokens + num_prompt, length - num_prompt);
    putchar('\n');
}

/* 1 if text and cache of sequence i are equal, else says where they part. */
static int compare(const engine *e, int32_t number, const outcome *plain,
                   const outcome *speculative, int32_t i, int32_t length) {
    const int32_t *expected = plain->text + i * e->max_seq;
    const int32_t *got = speculative->text + i * e->max_seq;
    for (int32_t pos = 0; pos < length; pos++)
        if (expected[pos] != got[pos]) {
            printf("prompt %d differs at position %d: plain decoding has byte %d, speculative %d\n",
                   (int)number, (int)pos, (int)expected[pos], (int)got[pos]);
            return 0;
        }
    if (plain->kv[i] == speculative->kv[i]) return 1;
    printf("prompt %d has the same text, but different bits in the target's KV cache\n",
           (int)number);
    return 0;
}

static void print_histogram(const int64_t *histogram, int32_t gamma) {
    int64_t most = 1;
    printf("\naccepted drafts per sequence and step\n");
    for (int32_t k = 0; k <= gamma; k++)
        if (histogram[k] > most) most = histogram[k];
    for (int32_t k = 0; k <= gamma; k++) {
        printf("%6d %7lld ", (int)k, (long long)histogram[k]);
        for (int64_t bar = (histogram[k] * 48 + most - 1) / most; bar > 0; bar--) putchar('#');
        putchar('\n');
    }
}

static double per_pass(const engine *e, int phase) {
    return e->passes[phase] ? e->seconds[phase] / (double)e->passes[phase] : 0;
}

static void print_report(engine *e, uint64_t kv) {
    int64_t histogram[MAX_GAMMA + 1], totals[SPECV_STAT_COUNT];
    const double steps_time =
        e->seconds[DRAFT] + e->seconds[TARGET] + e->seconds[VERIFY] + e->seconds[COMMIT];
    const int gamma = (int)e->limits.gamma;
    double rate, draft_cost, target_cost;
    must(e, e->backend.read_stats(&e->backend, histogram, totals));
    rate = specv_acceptance_rate(totals);
    draft_cost = per_pass(e, PLAIN) > 0 ? per_pass(e, DRAFT) / per_pass(e, PLAIN) : 0;
    target_cost = per_pass(e, PLAIN) > 0 ? per_pass(e, TARGET) / per_pass(e, PLAIN) : 0;

    print_histogram(histogram, e->limits.gamma);
    printf("\ndrafts            %lld proposed, %lld accepted\n",
           (long long)totals[SPECV_STAT_DRAFTED], (long long)totals[SPECV_STAT_ACCEPTED]);
    printf("acceptance rate   %.3f of the drafts that were reached\n", rate);
    printf("block efficiency  %.3f tokens per target pass of a sequence\n",
           specv_block_efficiency(totals));
    printf("tokens per step   %.2f over the batch, %lld steps\n", specv_tokens_per_step(totals),
           (long long)totals[SPECV_STAT_STEPS]);
    printf("time              draft %.3f s, target %.3f s, verify %.4f s, commit %.4f s"
           " (prefill %.3f s)\n",
           e->seconds[DRAFT], e->seconds[TARGET], e->seconds[VERIFY], e->seconds[COMMIT],
           e->seconds[PREFILL]);
    printf("passes            draft %.2f, target with drafts %.2f of a plain pass (%.3f ms)\n",
           draft_cost, target_cost, 1e3 * per_pass(e, PLAIN));
    printf("speed-up          %.2f by the model if all target passes cost the same\n",
           specv_expected_speedup(rate, gamma, draft_cost));
    printf("                  %.2f by the model with the measured pass costs\n",
           specv_expected_tokens(rate, gamma) / (gamma * draft_cost + target_cost));
    printf("                  %.2f measured on backend %s: plain %.3f s, speculative %.3f s\n",
           steps_time > 0 ? e->seconds[PLAIN] / steps_time : 0, e->backend.name, e->seconds[PLAIN],
           steps_time);
    printf("target's KV       fingerprint %016llx\n\n", (unsigned long long)kv);
}

/* ---- main ----------------------------------------------------------------------------------- */

static void choose_backend(engine *e, const char *name) {
    if (strcmp(name, "cpu") == 0) {
        lm_cpu_backend(&e->backend);
        return;
    }
    if (strcmp(name, "gpu") != 0 && strcmp(name, "auto") != 0)
        die("--backend", "is cpu, gpu or auto");
#ifdef TINY_LM_CUDA
    if (lm_gpu_available()) {
        lm_gpu_backend(&e->backend);
        return;
    }
    if (strcmp(name, "gpu") == 0) die("--backend gpu", "no CUDA device");
#else
    if (strcmp(name, "gpu") == 0) die("--backend gpu", "this program was built without CUDA");
#endif
    lm_cpu_backend(&e->backend);
}

static void open_engine(engine *e, const options *o, const lm_model *models, int32_t num_prompts,
                        int32_t max_seq) {
    lm_limits *limits = &e->limits;
    choose_backend(e, o->backend);
    e->show_progress = !o->quiet;
    e->max_seq = max_seq;
    e->target = models[LM_TARGET].dims;
    limits->batch = o->batch < num_prompts ? o->batch : num_prompts;
    limits->gamma = o->gamma;
    limits->max_rows = limits->batch * (limits->gamma + 1);
    if (limits->max_rows < MIN_PASS_ROWS) limits->max_rows = MIN_PASS_ROWS;
    e->draft_at = limits->batch * max_seq;
    e->target_at = e->draft_at + limits->batch * limits->gamma;
    limits->board_size = e->target_at + limits->batch * (limits->gamma + 1);
    e->rows = (lm_row *)allocate((size_t)limits->max_rows, sizeof *e->rows);
    e->kv = (float *)allocate((size_t)max_seq * (size_t)e->target.d_model, sizeof *e->kv);
    must(e, e->backend.open(&e->backend, models, limits));
    e->last_progress = e->backend.seconds(&e->backend);
}

static outcome new_outcome(const engine *e) {
    const size_t batch = (size_t)e->limits.batch;
    outcome result;
    result.text = (int32_t *)allocate(batch * (size_t)e->max_seq, sizeof *result.text);
    result.kv = (uint64_t *)allocate(batch, sizeof *result.kv);
    return result;
}

static void free_outcome(outcome *result) {
    free(result->text);
    free(result->kv);
}

/* All prompts; returns how many came out identical. */
static int32_t decode_all(engine *e, const options *o, const prompts *p, uint64_t *kv) {
    outcome plain = new_outcome(e), speculative = new_outcome(e);
    int32_t identical = 0, num_seqs;
    *kv = 0;
    for (int32_t first = 0; first < p->count; first += num_seqs) {
        num_seqs = p->count - first < e->limits.batch ? p->count - first : e->limits.batch;
        progress(e, "plain decoding", first, p->count);
        decode_batch(e, p, first, num_seqs, o->tokens, 0, &plain);
        progress(e, "speculative decoding", first, p->count);
        decode_batch(e, p, first, num_seqs, o->tokens, 1, &speculative);
        clear_progress(e);
        for (int32_t i = 0; i < num_seqs; i++) {
            const int32_t prompt = first + i, length = p->length[prompt] + o->tokens;
            const int32_t *text = speculative.text + i * e->max_seq;
            if (!o->quiet) print_text(prompt + 1, text, p->length[prompt], length);
            identical += compare(e, prompt + 1, &plain, &speculative, i, length);
        }
        *kv = fold(*kv, speculative.kv, 2 * (size_t)num_seqs);
        fflush(stdout);
    }
    free_outcome(&plain);
    free_outcome(&speculative);
    return identical;
}

int main(int argc, char **argv) {
    const options o = parse_options(argc, argv);
    lm_model models[LM_NUM_MODELS];
    engine e;
    prompts p;
    char message[256];
    int32_t max_seq, identical;
    uint64_t kv;
    memset(&e, 0, sizeof e);
    if (lm_load(&models[LM_TARGET], o.target, message, sizeof message) != 0 ||
        lm_load(&models[LM_DRAFT], o.draft, message, sizeof message) != 0)
        die("", message);
    max_seq = models[LM_TARGET].dims.max_seq;
    if (max_seq > models[LM_DRAFT].dims.max_seq) max_seq = models[LM_DRAFT].dims.max_seq;
    p = load_prompts(o.prompts, o.tokens, max_seq);
    open_engine(&e, &o, models, p.count, max_seq);

    identical = decode_all(&e, &o, &p, &kv);
    if (!o.quiet) print_report(&e, kv);
    printf("identical to plain decoding: %d of %d\n", (int)identical, (int)p.count);

    e.backend.close(&e.backend);
    free(e.rows);
    free(e.kv);
    free(p.bytes);
    free((void *)p.start);
    free(p.length);
    lm_free(&models[LM_TARGET]);
    lm_free(&models[LM_DRAFT]);
    if (fflush(stdout) != 0) die("standard output", "cannot be written");
    return identical == p.count ? 0 : EXIT_DIFFERENT;
}
