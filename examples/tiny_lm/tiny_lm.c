/* SPDX-License-Identifier: MIT-0
 *
 * tiny_lm.c - batched speculative decoding with a small real model pair, checked against plain
 * decoding.
 *
 * For each batch of prompts: decode it plainly with the target; then again speculatively, where a
 * step drafts up to gamma tokens per sequence, scores them all in one target pass, and lets the kit
 * judge them and pack the KV rows of those it accepts. The rules greedy and coupled promise the
 * same text, and the arithmetic of the backends does not depend on how rows are batched, so "the
 * same" means every byte of the text and every bit that was committed to the target's KV cache. The
 * rules token and block promise the same law of the text: --check-law compares samples.
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
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_DIFFERENT = 1, EXIT_UNUSABLE = 2 };
enum { MAX_GAMMA = 64, MAX_TOKENS = 4095, MIN_PASS_ROWS = 64, MAX_NGRAM = 4 };
enum { LAW_TOKENS = 2, MIN_LAW_TEXTS = 20, MAX_LAW_TEXTS = 1000000 };

/* ---- options and prompts -------------------------------------------------------------------- */

enum { DRAFTER_MODEL, DRAFTER_NGRAM, DRAFTER_RANDOM, NUM_DRAFTERS };
static const char *const drafter_names[] = {"model", "ngram", "random"};

enum { NUM_RULES = SPECV_RULE_GREEDY + 1 };
static const char *const rule_names[] = {"token", "block", "coupled", "greedy"}; /* specv_rule */

typedef struct options {
    const char *prompts, *target, *draft, *backend;
    int32_t batch, gamma, tokens, check_law;
    int32_t rule, drafter;
    float temperature; /* -1: not given */
    uint64_t seed;
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
    "  --rule NAME      how drafts are judged: greedy, token, block or coupled (greedy)\n"
    "  --temperature T  of the rules that sample, 0 to 8192; 0 is greedy (1)\n"
    "  --seed N         of all random numbers (1)\n"
    "  --drafter NAME   model; ngram: what followed the same bytes before; random (model)\n"
    "  --check-law N    instead: N plain and N speculative samples of what follows the first\n"
    "                   prompt; compares the two histograms of their first 2 tokens\n"
    "  --backend NAME   cpu, gpu, or auto: gpu if there is one (auto)\n"
    "  --quiet          only the last line\n"
    "  --help           this text\n"
    "exit status: 0 as promised (identical to plain decoding; of the same law), 1 not,\n"
    "2 could not run\n";

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

static uint64_t parse_seed(const char *name, const char *text) {
    char *end, problem[96];
    unsigned long long value;
    errno = 0;
    value = strtoull(text, &end, 10);
    if (errno || *text < '0' || *text > '9' || *end) {
        (void)snprintf(problem, sizeof problem, "'%.32s' is not a number from 0 to 2^64 - 1", text);
        die(name, problem);
    }
    return value;
}

static float parse_temperature(const char *name, const char *text) {
    char *end, problem[96];
    const float value = strtof(text, &end);
    if (end == text || *end || !specv_temperature_ok(value)) {
        (void)snprintf(problem, sizeof problem, "'%.32s' is not a number from 0 to 8192", text);
        die(name, problem);
    }
    return value;
}

static int32_t parse_name(const char *name, const char *text, const char *const *names,
                          int32_t count) {
    char problem[96];
    int length = snprintf(problem, sizeof problem, "'%.32s' is none of", text);
    for (int32_t i = 0; i < count; i++) {
        if (strcmp(text, names[i]) == 0) return i;
        length += snprintf(problem + length, sizeof problem - (size_t)length, " %s", names[i]);
    }
    die(name, problem);
    return -1;
}

static int is_option_with_value(const char *name) {
    static const char *const names[] = {"--prompts",     "--target", "--draft",   "--backend",
                                        "--batch",       "--gamma",  "--tokens",  "--rule",
                                        "--temperature", "--seed",   "--drafter", "--check-law"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0) return 1;
    return 0;
}

static void set_option(options *o, const char *name, const char *value) {
    if (strcmp(name, "--prompts") == 0)
        o->prompts = value;
    else if (strcmp(name, "--target") == 0)
        o->target = value;
    else if (strcmp(name, "--draft") == 0)
        o->draft = value;
    else if (strcmp(name, "--backend") == 0)
        o->backend = value;
    else if (strcmp(name, "--batch") == 0)
        o->batch = parse_int(name, value, 1, LM_MAX_BATCH);
    else if (strcmp(name, "--gamma") == 0)
        o->gamma = parse_int(name, value, 1, MAX_GAMMA);
    else if (strcmp(name, "--tokens") == 0)
        o->tokens = parse_int(name, value, 1, MAX_TOKENS);
    else if (strcmp(name, "--rule") == 0)
        o->rule = parse_name(name, value, rule_names, NUM_RULES);
    else if (strcmp(name, "--temperature") == 0)
        o->temperature = parse_temperature(name, value);
    else if (strcmp(name, "--seed") == 0)
        o->seed = parse_seed(name, value);
    else if (strcmp(name, "--drafter") == 0)
        o->drafter = parse_name(name, value, drafter_names, NUM_DRAFTERS);
    else
        o->check_law = parse_int(name, value, MIN_LAW_TEXTS, MAX_LAW_TEXTS);
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
    o.rule = SPECV_RULE_GREEDY;
    o.temperature = -1;
    o.seed = 1;
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i];
        if (strcmp(name, "--help") == 0) {
            fputs(usage, stdout);
            exit(0);
        }
        if (strcmp(name, "--quiet") == 0) {
            o.quiet = 1;
            continue;
        }
        if (!is_option_with_value(name)) die(name, "unknown option; --help lists them");
        if (i + 1 == argc) die(name, "needs a value");
        set_option(&o, name, argv[++i]);
    }
    if (o.rule == SPECV_RULE_GREEDY && o.temperature > 0)
        die("--temperature", "the rule greedy has none; choose --rule token, block or coupled");
    if (o.rule == SPECV_RULE_GREEDY && o.check_law)
        die("--check-law", "the rule greedy has one text; choose --rule token, block or coupled");
    if (o.temperature < 0) o.temperature = o.rule == SPECV_RULE_GREEDY ? 0.0f : 1.0f;
    if (o.check_law) o.tokens = o.gamma + LAW_TOKENS; /* so that the first step has all drafts */
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
    lm_sampling sampling;
    int32_t drafter;
    uint64_t seed;
    int32_t max_seq; /* columns of the text area, which starts the token board */
    lm_row *rows;    /* [max_rows] */
    lm_dims target;
    float *kv;     /* [max_seq][d_model], one plane of one sequence on the host */
    int32_t *text; /* [max_seq], one sequence on the host */
    double seconds[NUM_PHASES];
    int64_t passes[NUM_PHASES];
    double last_progress;
    int show_progress, progress_on_screen;
} engine;

typedef struct sequence {
    int32_t slot; /* its cache, and its row of the text area */
    int32_t len, end;
    int32_t enough; /* leaves the batch at this length: end, or when no more of it is asked for */
    int32_t draft_cached;
    uint64_t seed;
} sequence;

/* What a batch of prompts became. */
typedef struct outcome {
    int32_t *text; /* [batch][max_seq], -1 where there is none */
    uint64_t *kv;  /* [batch] fingerprint of the target's KV cache */
} outcome;

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

static void progress(engine *e, const char *phase, int32_t done, int32_t total, const char *unit) {
    const int terminal = isatty(STDERR_FILENO);
    const double now = e->backend.seconds(&e->backend);
    if (!e->show_progress || now - e->last_progress < (terminal ? 0.2 : 5.0)) return;
    e->last_progress = now;
    e->progress_on_screen = terminal;
    fprintf(stderr, "%s%s, %d of %d %s done%s", terminal ? "\r" : "", phase, (int)done, (int)total,
            unit, terminal ? "   " : "\n");
}

static void clear_progress(engine *e) {
    if (e->progress_on_screen) fprintf(stderr, "\r%60s\r", "");
    e->progress_on_screen = 0;
}

static int32_t text_at(const engine *e, const sequence *s, int32_t pos) {
    return s->slot * e->max_seq + pos;
}

static lm_row row_of(const engine *e, const sequence *s, int32_t pos, int32_t token_at,
                     int32_t pick_at) {
    lm_row row;
    row.token_at = token_at;
    row.pick_at = pick_at;
    row.keep_at = -1;
    row.slot = s->slot;
    row.pos = pos;
    row.seq = 0;
    row.cache_end = e->max_seq; /* all positions in the cache */
    row.seed = s->seed;
    return row;
}

/* A request's seed depends on what it is, not on when or beside whom it runs. */
static uint64_t request_seed(const engine *e, uint32_t request) {
    const specv_random r = specv_philox(e->seed, request, 0, 0, 0);
    return (uint64_t)r.x[1] << 32 | r.x[0];
}

/* How the rule wants its tokens sampled: coupled, with the noise of their positions. */
static lm_pick pick_of(const engine *e, int32_t stream, int32_t step_row) {
    lm_pick pick = {LM_PICK_CDF, 0, 0};
    if (e->sampling.rule == SPECV_RULE_GREEDY) pick.method = LM_PICK_LARGEST;
    if (e->sampling.rule == SPECV_RULE_COUPLED) pick.method = LM_PICK_GUMBEL;
    pick.stream = stream;
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

static void decode_plainly(engine *e, sequence *seqs, int32_t num_seqs, lm_pick pick) {
    const double start = e->backend.seconds(&e->backend);
    for (int32_t live = num_seqs; live > 0; e->passes[PLAIN]++) {
        int32_t num_rows = 0;
        for (int32_t i = 0; i < num_seqs; i++) {
            sequence *s = &seqs[i];
            if (s->len == s->enough) continue;
            e->rows[num_rows++] =
                row_of(e, s, s->len - 1, text_at(e, s, s->len - 1), text_at(e, s, s->len));
            if (++s->len == s->enough) live--;
        }
        must(e, e->backend.forward(&e->backend, LM_TARGET, e->rows, num_rows, 0, pick));
    }
    lap(e, PLAIN, start);
}

/* draft_len[i] drafts for every sequence, one position of all of them per pass. */
static void draft_with_model(engine *e, sequence *seqs, int32_t num_seqs,
                             const int32_t *draft_len) {
    for (int32_t k = 0; k < e->limits.gamma; k++) {
        const lm_pick pick = pick_of(e, SPECV_STREAM_DRAFT, k);
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
                                            SPECV_TAG_DRAFT); /* a number that no rule uses */
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
            must(e, e->backend.read_board(&e->backend, text_at(e, s, 0), e->text, s->len));
            draft_len[i] = continue_ngram(e->text, s->len, draft_len[i]);
        } else {
            draft_len[i] = continue_randomly(e, s, draft_len[i]);
        }
        must(e, e->backend.write_board(&e->backend, drafts, e->text + s->len, draft_len[i]));
    }
}

/* One target pass over the pending token and the drafts of every sequence. The pending token's KV
 * row goes straight to the cache; those of the drafts wait in the scratch for the verdict. */
static void score_drafts(engine *e, const sequence *seqs, int32_t num_seqs,
                         const int32_t *draft_len) {
    const int greedy = e->sampling.rule == SPECV_RULE_GREEDY;
    const lm_pick pick = greedy ? pick_of(e, SPECV_STREAM_TARGET, 0) : no_pick;
    int32_t num_rows = 0;
    for (int32_t i = 0; i < num_seqs; i++) {
        const sequence *s = &seqs[i];
        const int32_t drafts = e->limits.draft_at + i * e->limits.gamma;
        for (int32_t j = 0; j <= draft_len[i]; j++) {
            const int32_t choice = i * (e->limits.gamma + 1) + j;
            lm_row *row = &e->rows[num_rows++];
            *row = row_of(e, s, s->len - 1 + j, j == 0 ? text_at(e, s, s->len - 1) : drafts + j - 1,
                          e->limits.target_at + choice);
            if (!greedy) row->keep_at = choice;
            row->seq = i;
            row->cache_end = s->len;
        }
    }
    must(e, e->backend.forward(&e->backend, LM_TARGET, e->rows, num_rows, 0, pick));
    e->passes[TARGET]++;
}

/* One step of all live sequences; returns how many are still live, in front and in order. */
static int32_t speculative_step(engine *e, sequence *seqs, int32_t num_seqs) {
    int32_t slot[LM_MAX_BATCH], draft_len[LM_MAX_BATCH], cache_end[LM_MAX_BATCH];
    int32_t text[LM_MAX_BATCH], accepted_len[LM_MAX_BATCH], num_emitted[LM_MAX_BATCH], live = 0;
    uint64_t seed[LM_MAX_BATCH];
    const lm_step step = {num_seqs, slot, draft_len,    cache_end,
                          seed,     text, accepted_len, num_emitted};
    double time = e->backend.seconds(&e->backend);
    for (int32_t i = 0; i < num_seqs; i++) {
        const int32_t room = seqs[i].end - seqs[i].len - 1; /* the step adds a token of its own */
        draft_len[i] = room < e->limits.gamma ? room : e->limits.gamma;
        slot[i] = seqs[i].slot;
        cache_end[i] = seqs[i].len;
        seed[i] = seqs[i].seed;
        text[i] = text_at(e, &seqs[i], seqs[i].len);
    }
    if (e->drafter == DRAFTER_MODEL)
        draft_with_model(e, seqs, num_seqs, draft_len);
    else
        draft_on_host(e, seqs, num_seqs, draft_len);
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
        if (s->len < s->enough) seqs[live++] = *s;
    }
    lap(e, COMMIT, time);
    return live;
}

static void decode_speculatively(engine *e, sequence *seqs, int32_t num_seqs) {
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

/* Prompts first .. first+num_seqs-1 become sequences with caches that hold all but their ends. */
static void start_batch(engine *e, const prompts *p, int32_t first, int32_t num_seqs,
                        int32_t num_new, int speculative, int32_t *text, sequence *seqs) {
    const int32_t size = num_seqs * e->max_seq;
    for (int32_t i = 0; i < size; i++) text[i] = -1;
    for (int32_t i = 0; i < num_seqs; i++) {
        const int32_t length = p->length[first + i];
        for (int32_t pos = 0; pos < length; pos++)
            text[i * e->max_seq + pos] = (unsigned char)p->start[first + i][pos];
        seqs[i].slot = i;
        seqs[i].len = length;
        seqs[i].end = seqs[i].enough = length + num_new;
        seqs[i].draft_cached = length - 1;
        seqs[i].seed = request_seed(e, (uint32_t)(first + i));
    }
    /* Whatever the last run left in the caches would hide a row that this run forgets. */
    must(e, e->backend.poison(&e->backend));
    must(e, e->backend.write_board(&e->backend, 0, text, size));
    prefill(e, LM_TARGET, seqs, num_seqs);
    if (speculative && e->drafter == DRAFTER_MODEL) prefill(e, LM_DRAFT, seqs, num_seqs);
}

static void decode_batch(engine *e, const prompts *p, int32_t first, int32_t num_seqs,
                         int32_t num_new, int speculative, outcome *result) {
    sequence seqs[LM_MAX_BATCH];
    start_batch(e, p, first, num_seqs, num_new, speculative, result->text, seqs);
    if (speculative)
        decode_speculatively(e, seqs, num_seqs);
    else
        decode_plainly(e, seqs, num_seqs, pick_of(e, SPECV_STREAM_TARGET, 0));
    must(e, e->backend.read_board(&e->backend, 0, result->text, num_seqs * e->max_seq));
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

/* Is a text a matter of its prompt and seed alone? Else only its law is. */
static int has_one_text(const engine *e) {
    return e->sampling.rule == SPECV_RULE_GREEDY || e->sampling.rule == SPECV_RULE_COUPLED ||
           specv_temperature_is_0(e->sampling.temperature);
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
    if (e->sampling.rule != SPECV_RULE_GREEDY)
        printf("\nrule              %s, temperature %g, seed %llu, drafter %s",
               rule_names[e->sampling.rule], (double)e->sampling.temperature,
               (unsigned long long)e->seed, drafter_names[e->drafter]);
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

/* Returns the exit status. */
static int print_verdict(engine *e, int32_t identical, int32_t num_prompts) {
    int64_t histogram[MAX_GAMMA + 1], totals[SPECV_STAT_COUNT];
    if (has_one_text(e)) {
        printf("identical to plain decoding: %d of %d\n", (int)identical, (int)num_prompts);
        return identical == num_prompts ? 0 : EXIT_DIFFERENT;
    }
    must(e, e->backend.read_stats(&e->backend, histogram, totals));
    printf("%lld tokens, %.2f a step, acceptance rate %.3f\n",
           (long long)totals[SPECV_STAT_EMITTED], specv_tokens_per_step(totals),
           specv_acceptance_rate(totals));
    return 0;
}

/* All prompts, plainly and speculatively. Returns the exit status. */
static int decode_all(engine *e, const options *o, const prompts *p) {
    outcome plain = new_outcome(e), speculative = new_outcome(e);
    int32_t identical = 0, num_seqs;
    uint64_t kv = 0;
    for (int32_t first = 0; first < p->count; first += num_seqs) {
        num_seqs = p->count - first < e->limits.batch ? p->count - first : e->limits.batch;
        progress(e, "plain decoding", first, p->count, "prompts");
        decode_batch(e, p, first, num_seqs, o->tokens, 0, &plain);
        progress(e, "speculative decoding", first, p->count, "prompts");
        decode_batch(e, p, first, num_seqs, o->tokens, 1, &speculative);
        clear_progress(e);
        for (int32_t i = 0; i < num_seqs; i++) {
            const int32_t prompt = first + i, length = p->length[prompt] + o->tokens;
            const int32_t *text = speculative.text + i * e->max_seq;
            if (!o->quiet) print_text(prompt + 1, text, p->length[prompt], length);
            if (has_one_text(e))
                identical += compare(e, prompt + 1, &plain, &speculative, i, length);
        }
        kv = fold(kv, speculative.kv, 2 * (size_t)num_seqs);
        fflush(stdout);
    }
    free_outcome(&plain);
    free_outcome(&speculative);
    if (!o->quiet) print_report(e, kv);
    return print_verdict(e, identical, p->count);
}

/* ---- the law of the text -------------------------------------------------------------------- */

/* Samples many texts after one prompt and counts their first two tokens: cells [vocab][vocab].
 * The caches keep the prompt; a text writes over what the one before it left. */
static void sample_law(engine *e, const prompts *same, const options *o, int speculative,
                       outcome *result, int64_t *cells) {
    sequence start[LM_MAX_BATCH], seqs[LM_MAX_BATCH];
    const lm_pick plain = {LM_PICK_CDF, SPECV_STREAM_TARGET, 0}; /* for rule coupled as well */
    int32_t num_seqs;
    start_batch(e, same, 0, same->count, o->tokens, speculative, result->text, start);
    for (int32_t i = 0; i < same->count; i++) start[i].enough = start[i].len + LAW_TOKENS;
    for (int32_t done = 0; done < o->check_law; done += num_seqs) {
        num_seqs = o->check_law - done < same->count ? o->check_law - done : same->count;
        progress(e, speculative ? "speculative sampling" : "plain sampling", done, o->check_law,
                 "texts");
        memcpy(seqs, start, sizeof seqs);
        for (int32_t i = 0; i < num_seqs; i++) /* two samples must not share random numbers */
            seqs[i].seed = request_seed(e, 2 * (uint32_t)(done + i) + (uint32_t)speculative);
        if (speculative)
            decode_speculatively(e, seqs, num_seqs);
        else
            decode_plainly(e, seqs, num_seqs, plain);
        must(e, e->backend.read_board(&e->backend, 0, result->text, num_seqs * e->max_seq));
        for (int32_t i = 0; i < num_seqs; i++) {
            const int32_t *first = result->text + i * e->max_seq + start[i].len;
            cells[first[0] * e->target.vocab + first[1]]++;
        }
    }
    clear_progress(e);
}

static double chi_square_term(int64_t a, int64_t b) {
    return (double)((a - b) * (a - b)) / (double)(a + b);
}

/* Of two samples of equal size. A cell that expects 5 texts of either sample is a group of its own,
 * rarer cells are merged until they do; what is left over expects fewer. */
static double chi_square(const int64_t *a, const int64_t *b, int32_t num_cells, int32_t *groups) {
    int64_t rare_a = 0, rare_b = 0;
    double sum = 0;
    *groups = 0;
    for (int32_t i = 0; i < num_cells; i++) {
        if (a[i] + b[i] >= 10) {
            sum += chi_square_term(a[i], b[i]), (*groups)++;
            continue;
        }
        rare_a += a[i], rare_b += b[i];
        if (rare_a + rare_b >= 10) {
            sum += chi_square_term(rare_a, rare_b), (*groups)++;
            rare_a = rare_b = 0;
        }
    }
    if (rare_a + rare_b > 0) sum += chi_square_term(rare_a, rare_b), (*groups)++;
    return sum;
}

/* Returns the exit status. */
static int check_law(engine *e, const options *o, const prompts *p) {
    const int32_t num_cells = e->target.vocab * e->target.vocab;
    int64_t *plain = (int64_t *)allocate((size_t)num_cells, sizeof *plain);
    int64_t *speculative = (int64_t *)allocate((size_t)num_cells, sizeof *speculative);
    const char *start[LM_MAX_BATCH];
    int32_t length[LM_MAX_BATCH], groups;
    prompts same = {NULL, start, length, e->limits.batch};
    outcome result = new_outcome(e);
    double statistic, freedom, limit;
    for (int32_t i = 0; i < same.count; i++) start[i] = p->start[0], length[i] = p->length[0];
    sample_law(e, &same, o, 0, &result, plain);
    sample_law(e, &same, o, 1, &result, speculative);
    statistic = chi_square(plain, speculative, num_cells, &groups);
    freedom = groups - 1;
    limit = freedom + 5 * sqrt(2 * freedom); /* five standard deviations */
    if (!o->quiet)
        printf("first %d tokens of %d texts, in %d groups: chi-square %.1f, at most %.1f passes\n",
               LAW_TOKENS, (int)o->check_law, (int)groups, statistic, limit);
    free_outcome(&result);
    free(plain);
    free(speculative);
    if (groups < 2) die("--check-law", "all texts begin alike: raise N or the temperature");
    printf("the law of plain sampling: %s\n", statistic <= limit ? "pass" : "fail");
    return statistic <= limit ? 0 : EXIT_DIFFERENT;
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

static void open_engine(engine *e, const options *o, const lm_model *models, int32_t num_texts,
                        int32_t max_seq) {
    lm_limits *limits = &e->limits;
    choose_backend(e, o->backend);
    e->show_progress = !o->quiet;
    e->max_seq = max_seq;
    e->target = models[LM_TARGET].dims;
    e->drafter = o->drafter;
    e->seed = o->seed;
    e->sampling.rule = o->rule;
    e->sampling.temperature = o->temperature;
    e->sampling.use_draft_logits =
        (o->rule == SPECV_RULE_TOKEN || o->rule == SPECV_RULE_BLOCK) && o->drafter == DRAFTER_MODEL;
    limits->batch = o->batch < num_texts ? o->batch : num_texts;
    limits->gamma = o->gamma;
    limits->max_rows = limits->batch * (limits->gamma + 1);
    if (limits->max_rows < MIN_PASS_ROWS) limits->max_rows = MIN_PASS_ROWS;
    limits->draft_at = limits->batch * max_seq;
    limits->target_at = limits->draft_at + limits->batch * limits->gamma;
    limits->board_size = limits->target_at + limits->batch * (limits->gamma + 1);
    e->rows = (lm_row *)allocate((size_t)limits->max_rows, sizeof *e->rows);
    e->kv = (float *)allocate((size_t)max_seq * (size_t)e->target.d_model, sizeof *e->kv);
    e->text = (int32_t *)allocate((size_t)max_seq, sizeof *e->text);
    must(e, e->backend.open(&e->backend, models, limits, &e->sampling));
    e->last_progress = e->backend.seconds(&e->backend);
}

int main(int argc, char **argv) {
    const options o = parse_options(argc, argv);
    lm_model models[LM_NUM_MODELS];
    engine e;
    prompts p;
    char message[256];
    int32_t max_seq;
    int status;
    memset(&e, 0, sizeof e);
    if (lm_load(&models[LM_TARGET], o.target, message, sizeof message) != 0 ||
        lm_load(&models[LM_DRAFT], o.draft, message, sizeof message) != 0)
        die("", message);
    max_seq = models[LM_TARGET].dims.max_seq;
    if (max_seq > models[LM_DRAFT].dims.max_seq) max_seq = models[LM_DRAFT].dims.max_seq;
    p = load_prompts(o.prompts, o.tokens, max_seq);
    open_engine(&e, &o, models, o.check_law ? o.check_law : p.count, max_seq);

    status = o.check_law ? check_law(&e, &o, &p) : decode_all(&e, &o, &p);

    e.backend.close(&e.backend);
    free(e.rows);
    free(e.kv);
    free(e.text);
    free(p.bytes);
    free((void *)p.start);
    free(p.length);
    lm_free(&models[LM_TARGET]);
    lm_free(&models[LM_DRAFT]);
    if (fflush(stdout) != 0) die("standard output", "cannot be written");
    return status;
}
