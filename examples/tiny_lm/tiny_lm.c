/* SPDX-License-Identifier: MIT-0
 *
 * tiny_lm.c - batched speculative decoding with a small real model pair, checked against plain
 * decoding.
 *
 * Every prompt is decoded plainly with the target, then again speculatively (engine.c). The rules
 * greedy and coupled promise the same text, and the arithmetic of the backends does not depend on
 * how rows are batched or where their caches are, so "the same" means every byte of the text and
 * every bit that was committed to the target's KV cache. The rules token and block, and those that
 * judge trees alone, promise the same law of the text: --check-law compares samples. The rule smc
 * promises neither: its texts come nearer to the target's law the more particles there are; --check
 * compares its caches with plain ones. What --logprobs tells of tokens must be equal wherever the
 * text must.
 */
#define _POSIX_C_SOURCE 200809L
#include "smc.h"
#include "tree.h"
#include "specverify.cuh"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GAMMA = 4, MAX_GAMMA = LM_MAX_GAMMA, MAX_TOKENS = 4095, MAX_PAGE_SIZE = 256 };
enum { SMC_PARTICLES = 8, MAX_PROMPTS = 65536 };
enum { LAW_TOKENS = 2, MIN_LAW_TEXTS = 20, MAX_LAW_TEXTS = 1000000 };

/* ---- options and prompts -------------------------------------------------------------------- */

static const char *const drafter_names[] = {"model", "ngram", "random"};

enum { NUM_RULES = RULE_OF_TREES + NUM_TREE_RULES };
/* specv_rule, then those of trees alone */
static const char *const rule_names[] = {"token",
                                         "block",
                                         "coupled",
                                         "greedy",
                                         "smc",
                                         "typical",
                                         "typical-draw",
                                         "threshold",
                                         "relaxed",
                                         "bounded",
                                         "one-coin",
                                         "recursive",
                                         "recursive-distinct",
                                         "traversal",
                                         "traversal-distinct"};

/* lm_layout.kind, without FIXED */
static const char *const cache_names[] = {"ragged", "paged", "padded", "gap"};
enum { NUM_CACHE_NAMES = LM_NUM_CACHES - LM_RAGGED };

static const char *const realign_names[] = {"in-place", "copy"}; /* lm_layout.copies */

enum { NUM_FILTER_ORDERS = SPECV_TOP_P_OF_ALL + 1 };
/* specv_filter_order */
static const char *const order_names[] = {"top-k-first", "min-p-first", "joint"};

typedef struct options {
    const char *prompts, *target, *draft, *backend;
    const char *mask; /* null: not given */
    lm_filters filters;
    int32_t order;                           /* of filters; -1: not given */
    int32_t batch, gamma, tokens, check_law; /* batch, gamma: 0 = not given */
    int32_t tree_width, tree_depth;          /* 0: drafts are chains */
    int32_t budget;                          /* 0: not given */
    int32_t logprobs;                        /* -1: not given */
    int32_t rule, drafter;
    int32_t cache, page_size, copies; /* page_size: 0 = not given; copies: -1 = not given */
    int32_t window;                   /* of EXSPEC; 0 = not asked for */
    int32_t particles, replicates;    /* 0: not given */
    float temperature;                /* -1: not given */
    float alpha, ess;                 /* -1: not given */
    int32_t relaxes;                  /* numbers of --relax; 0: not given */
    float relax[2];
    uint64_t seed;
    int continuous, vary_tokens, sort, quiet, likelihood, check, log_launches;
} options;

static const char usage[] =
    "usage: tiny_lm [options]\n"
    "  --prompts FILE   one prompt a line       (examples/tiny_lm/prompts.txt)\n"
    "  --target FILE    the model that decides  (examples/tiny_lm/target.bin)\n"
    "  --draft FILE     the model that proposes (examples/tiny_lm/draft.bin)\n"
    "  --batch N        prompts at a time, 1 to 256 (8; rule smc: 8 if the particles fit)\n"
    "  --gamma N        drafts per step, 1 to 64 (4)\n"
    "  --tree WxD       drafts as a tree, D deep, with W nodes at each depth; W at most 32, W * D\n"
    "                   64. Not with --gamma, --budget, --logprobs, --cache gap,\n"
    "                   --exspec, drafters but model (a chain)\n"
    "  --budget N       of the drafts of a step, verify the N that are likeliest to be accepted "
    "(all)\n"
    "  --tokens N       tokens to add to every prompt (64)\n"
    "  --rule NAME      how drafts are judged: greedy, token, block, coupled, smc (greedy);\n"
    "                   lossy: typical, typical-draw, threshold, relaxed, bounded;\n"
    "                   of --tree: greedy, coupled, one-coin, recursive, recursive-distinct,\n"
    "                   traversal, traversal-distinct\n"
    "  --relax X[,Y]    what a lossy rule is told: typical, typical-draw: epsilon, alpha;\n"
    "                   threshold: of one token, of all; relaxed: top_n, delta; bounded: ratio\n"
    "                   (nothing: lossless)\n"
    "  --temperature T  of the rules that sample, 0 to 8192; 0 is greedy (1)\n"
    "  --mask FILE      texts are of the bytes in FILE, written as the report writes them: as\n"
    "                   themselves, \\n, \\\\ or \\xNN; line ends in it mean nothing (all)\n"
    "  --top-k N        of these the N likeliest, 1 to 256 (all)\n"
    "  --top-p P        the fewest that have P of the probability, 0 to 1 (all)\n"
    "  --min-p P        those with P of the likeliest one's probability, 0 to 1 (all)\n"
    "  --filter-order NAME\n"
    "                   --top-p is a part of: top-k-first: what --top-k leaves; min-p-first: what\n"
    "                   --min-p and --top-k leave; joint: what the mask leaves (top-k-first)\n"
    "  --seed N         of all random numbers (1)\n"
    "  --particles N    of a prompt, rule smc: batch * N is at most 256 (8)\n"
    "  --alpha A        rule smc: the texts' law is that of the target to this power, 0.1 to 10 "
    "(1)\n"
    "  --ess T          rule smc: resample when fewer than T * N particles count, 0 to 1 (0.5)\n"
    "  --replicates R   rule smc: each prompt R times, 2 to 65536; with the standard error of the\n"
    "                   estimate\n"
    "  --check          rule smc: after each cycle, every particle's caches against a plain "
    "prefill\n"
    "  --log-launches   rule smc: a line for every pass and every call of the kit\n"
    "  --logprobs N     below each text a line for each new token: its ln p, its rank, and the N\n"
    "                   likeliest tokens with theirs, 0 to 32; by the target at temperature 1,\n"
    "                   without filters\n"
    "  --likelihood     what the target says of the texts, at temperature 1, with the filters\n"
    "  --drafter NAME   model; ngram: what followed the same bytes before; random (model)\n"
    "  --cache NAME     ragged: a length per sequence; paged: pages of a pool; padded: aligned by\n"
    "                   moving; gap: aligned by masking (ragged)\n"
    "  --page-size N    tokens in a page of --cache paged, 1 to 256 (16)\n"
    "  --realign NAME   of --cache padded: in-place; copy: all to a new cache (in-place)\n"
    "  --continuous     the next prompt joins as soon as a sequence leaves; not with --cache gap\n"
    "  --exspec W       a window of W sequences, up to 256; a batch is of one length if it can be\n"
    "  --vary-tokens    fewer new tokens for some prompts: N, 0.8 N, 0.6 N, 0.4 N in turn\n"
    "  --sort           prompts by length\n"
    "  --check-law N    instead: N plain and N speculative samples of what follows the first\n"
    "                   prompt; compares the two histograms of their first 2 tokens\n"
    "  --backend NAME   cpu, gpu, or auto: gpu if there is one (auto)\n"
    "  --quiet          only the last line\n"
    "  --help           this text\n"
    "exit status: 0 as promised (identical to plain decoding; of the same law), 1 not,\n"
    "2 could not run\n";

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

/* "WxD" */
static void parse_tree(const char *name, const char *text, options *o) {
    char problem[120], *end;
    const long width = *text >= '0' && *text <= '9' ? strtol(text, &end, 10) : 0;
    long depth = 0;
    if (width >= 1 && width <= SPECV_MAX_TOP && *end == 'x' && end[1] >= '0' && end[1] <= '9')
        depth = strtol(end + 1, &end, 10);
    if (depth < 1 || depth > MAX_GAMMA || width * depth > MAX_GAMMA || *end) {
        (void)snprintf(problem, sizeof problem,
                       "'%.32s' is not WIDTHxDEPTH, as 4x3: a width of 1 to %d, at most %d nodes",
                       text, (int)SPECV_MAX_TOP, (int)MAX_GAMMA);
        die(name, problem);
    }
    o->tree_width = (int32_t)width;
    o->tree_depth = (int32_t)depth;
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

static float parse_share(const char *name, const char *text, float low, float high) {
    char *end, problem[96];
    const float value = strtof(text, &end);
    if (end == text || *end || !(value >= low && value <= high)) {
        (void)snprintf(problem, sizeof problem, "'%.32s' is not a number from %g to %g", text,
                       (double)low, (double)high);
        die(name, problem);
    }
    return value;
}

/* "X" or "X,Y". The kit says what is out of range. */
static void parse_relax(const char *name, const char *text, options *o) {
    char *end;
    o->relax[0] = strtof(text, &end);
    o->relaxes = end != text;
    if (o->relaxes && *end == ',') {
        const char *second = end + 1;
        o->relax[1] = strtof(second, &end);
        o->relaxes = end != second ? 2 : 0;
    }
    if (!o->relaxes || *end) die(name, "is not X or X,Y, two numbers");
}

static int32_t parse_name(const char *name, const char *text, const char *const *names,
                          int32_t count) {
    char problem[192];
    int length = snprintf(problem, sizeof problem, "'%.32s' is none of", text);
    for (int32_t i = 0; i < count; i++) {
        if (strcmp(text, names[i]) == 0) return i;
        length += snprintf(problem + length, sizeof problem - (size_t)length, " %s", names[i]);
    }
    die(name, problem);
    return -1;
}

static int is_option_with_value(const char *name) {
    static const char *const names[] = {
        "--prompts", "--target",       "--draft",       "--backend", "--batch",     "--gamma",
        "--tokens",  "--rule",         "--temperature", "--seed",    "--drafter",   "--check-law",
        "--cache",   "--page-size",    "--realign",     "--exspec",  "--particles", "--alpha",
        "--ess",     "--replicates",   "--budget",      "--top-k",   "--top-p",     "--min-p",
        "--mask",    "--filter-order", "--logprobs",    "--tree",    "--relax"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0) return 1;
    return 0;
}

/* Sets it, if it is one of the filters. */
static int is_filter(options *o, const char *name, const char *value) {
    lm_filters *f = &o->filters;
    if (strcmp(name, "--top-k") == 0)
        f->given |= LM_TOP_K, f->top_k = parse_int(name, value, 1, LM_VOCAB);
    else if (strcmp(name, "--top-p") == 0)
        f->given |= LM_TOP_P, f->top_p = parse_share(name, value, 0, 1);
    else if (strcmp(name, "--min-p") == 0)
        f->given |= LM_MIN_P, f->min_p = parse_share(name, value, 0, 1);
    else if (strcmp(name, "--mask") == 0)
        o->mask = value;
    else if (strcmp(name, "--filter-order") == 0)
        o->order = parse_name(name, value, order_names, NUM_FILTER_ORDERS);
    else
        return 0;
    return 1;
}

/* Sets it, if it is one. */
static int is_switch(options *o, const char *name) {
    if (strcmp(name, "--quiet") == 0) return o->quiet = 1;
    if (strcmp(name, "--continuous") == 0) return o->continuous = 1;
    if (strcmp(name, "--vary-tokens") == 0) return o->vary_tokens = 1;
    if (strcmp(name, "--sort") == 0) return o->sort = 1;
    if (strcmp(name, "--likelihood") == 0) return o->likelihood = 1;
    if (strcmp(name, "--check") == 0) return o->check = 1;
    if (strcmp(name, "--log-launches") == 0) return o->log_launches = 1;
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
    else if (strcmp(name, "--tree") == 0)
        parse_tree(name, value, o);
    else if (strcmp(name, "--budget") == 0)
        o->budget = parse_int(name, value, 1, LM_MAX_BATCH * MAX_GAMMA);
    else if (strcmp(name, "--tokens") == 0)
        o->tokens = parse_int(name, value, 1, MAX_TOKENS);
    else if (strcmp(name, "--rule") == 0)
        o->rule = parse_name(name, value, rule_names, NUM_RULES);
    else if (strcmp(name, "--relax") == 0)
        parse_relax(name, value, o);
    else if (strcmp(name, "--temperature") == 0)
        o->temperature = parse_temperature(name, value);
    else if (strcmp(name, "--seed") == 0)
        o->seed = parse_seed(name, value);
    else if (strcmp(name, "--drafter") == 0)
        o->drafter = parse_name(name, value, drafter_names, NUM_DRAFTERS);
    else if (strcmp(name, "--cache") == 0)
        o->cache = LM_RAGGED + parse_name(name, value, cache_names, NUM_CACHE_NAMES);
    else if (strcmp(name, "--page-size") == 0)
        o->page_size = parse_int(name, value, 1, MAX_PAGE_SIZE);
    else if (strcmp(name, "--realign") == 0)
        o->copies = parse_name(name, value, realign_names, 2);
    else if (strcmp(name, "--exspec") == 0)
        o->window = parse_int(name, value, 1, LM_MAX_BATCH);
    else if (strcmp(name, "--particles") == 0)
        o->particles = parse_int(name, value, 1, LM_MAX_BATCH);
    else if (strcmp(name, "--replicates") == 0)
        o->replicates = parse_int(name, value, 2, MAX_PROMPTS);
    else if (strcmp(name, "--alpha") == 0)
        o->alpha = parse_share(name, value, 0.1f, 10);
    else if (strcmp(name, "--logprobs") == 0)
        o->logprobs = parse_int(name, value, 0, SPECV_MAX_TOP);
    else if (strcmp(name, "--ess") == 0)
        o->ess = parse_share(name, value, 0, 1);
    else if (!is_filter(o, name, value))
        o->check_law = parse_int(name, value, MIN_LAW_TEXTS, MAX_LAW_TEXTS);
}

/* Rule smc, and what is of it alone. */
static void check_smc_options(const options *o) {
    if (o->rule != SPECV_RULE_SCORE) {
        if (o->particles) die("--particles", "is of --rule smc");
        if (o->replicates) die("--replicates", "is of --rule smc");
        if (o->alpha >= 0) die("--alpha", "is of --rule smc");
        if (o->ess >= 0) die("--ess", "is of --rule smc");
        if (o->check) die("--check", "is of --rule smc");
        if (o->log_launches) die("--log-launches", "is of --rule smc");
        return;
    }
    if (o->temperature >= 0 && specv_temperature_is_0(o->temperature))
        die("--temperature", "the rule smc needs one above 0");
    if (o->batch * (o->particles ? o->particles : SMC_PARTICLES) > LM_MAX_BATCH)
        die("--particles", "batch * particles is above 256");
    if (o->cache && o->cache != LM_PAGED) die("--cache", "the rule smc shares pages: paged");
    if (o->drafter != DRAFTER_MODEL) die("--drafter", "the rule smc needs a model");
    if (o->budget) die("--budget", "the rule smc keeps every draft");
    if (o->logprobs >= 0)
        die("--logprobs", "the rule smc copies texts, not what was told of them: see --likelihood");
    if (o->continuous || o->window || o->vary_tokens)
        die("--rule smc", "has batches of prompts that gain the same number of tokens");
    if (o->check_law) die("--check-law", "the rule smc has that law with many particles only");
}

static int is_lossy(int32_t rule) {
    return rule >= SPECV_RULE_TYPICAL && rule <= SPECV_RULE_BOUNDED;
}

/* Lossy rules, and how much of a text they may change. */
static void check_lossy_options(const options *o) {
    const float high = o->rule == SPECV_RULE_BOUNDED ? 1048576.0f : 1.0f;
    const float low = o->rule == SPECV_RULE_BOUNDED ? 1.0f : 0.0f;
    if (!o->relaxes) return;
    if (!is_lossy(o->rule)) die("--relax", "is of lossy rules");
    if ((o->rule == SPECV_RULE_BOUNDED) != (o->relaxes == 1))
        die("--relax", "the rule bounded has one number, the others have two");
    if (o->rule == SPECV_RULE_RELAXED ? !(o->relax[0] >= 1 && o->relax[0] <= LM_VOCAB)
                                      : !(o->relax[0] >= low && o->relax[0] <= high))
        die("--relax", "the first number is out of range");
    if (!(o->relax[1] >= 0) || (o->rule != SPECV_RULE_TYPICAL &&
                                o->rule != SPECV_RULE_TYPICAL_DRAW && !(o->relax[1] <= 1)))
        die("--relax", "the second number is out of range");
    if (o->check_law) die("--check-law", "a lossy rule has another law than the target");
}

/* Trees, and rules that judge nothing else. */
static void check_tree_options(const options *o) {
    if (!o->tree_width) {
        if (o->rule >= RULE_OF_TREES) die("--rule", "this one judges trees: give --tree as well");
        return;
    }
    if (o->rule == SPECV_RULE_TOKEN)
        die("--tree", "the rule token judges chains; of trees it is --rule recursive");
    if (o->rule == SPECV_RULE_BLOCK)
        die("--tree", "the rule block judges chains; of trees it is --rule traversal");
    if (o->rule == SPECV_RULE_SCORE) die("--tree", "the rule smc has particles, each a chain");
    if (is_lossy(o->rule)) die("--tree", "lossy rules judge chains");
    if (o->gamma) die("--tree", "its depth says how many drafts follow each other, not --gamma");
    if (o->budget) die("--budget", "is shared by chains, not by trees");
    if (o->drafter != DRAFTER_MODEL)
        die("--tree", "grows by what a model says; choose --drafter model");
    if (o->logprobs >= 0) die("--tree", "verification of trees tells nothing for --logprobs");
    if (o->cache == LM_GAP) die("--cache gap", "has drafts in the order of the text: no trees");
    if (o->window) die("--exspec", "has a cache without a commit: no trees");
}

/* Options that contradict each other. */
static void check_options(const options *o) {
    check_smc_options(o);
    check_tree_options(o);
    check_lossy_options(o);
    if (o->likelihood && o->check_law) die("--likelihood", "is of texts, not of --check-law");
    if (o->logprobs >= 0 && o->check_law) die("--logprobs", "is of texts, not of --check-law");
    if (o->budget && o->drafter != DRAFTER_MODEL)
        die("--budget", "goes by the confidence of a model; choose --drafter model");
    if (o->rule == SPECV_RULE_GREEDY && o->temperature > 0)
        die("--temperature", "the rule greedy has none; choose --rule token, block or coupled");
    if (o->rule == SPECV_RULE_GREEDY && o->check_law)
        die("--check-law", "the rule greedy has one text; choose --rule token, block or coupled");
    if (o->order >= 0 && !(o->filters.given & LM_TOP_P))
        die("--filter-order", "says what --top-p is a part of, and there is none");
    if (o->page_size && o->cache != LM_PAGED && o->rule != SPECV_RULE_SCORE)
        die("--page-size", "is of --cache paged");
    if (o->copies >= 0 && o->cache != LM_PADDED) die("--realign", "is of --cache padded");
    if (o->continuous && o->cache == LM_GAP)
        die("--continuous", "a newcomer's prompt has no place before the columns of --cache gap");
    if (o->window && (o->continuous || o->cache))
        die("--exspec", "has a cache and a schedule of its own");
    if (o->window && o->window < (o->batch ? o->batch : 8))
        die("--exspec", "the window is smaller than the batch");
    if (o->check_law && (o->continuous || o->window || o->vary_tokens || o->sort ||
                         (o->cache && o->cache != LM_RAGGED)))
        die("--check-law", "has one prompt, one batch at a time, and --cache ragged");
}

/* How many characters of a text stand for a byte, as print_bytes writes it; 0: they do not. */
static size_t read_byte(const unsigned char *text, size_t size, int32_t *byte) {
    static const char digits[] = "0123456789abcdef";
    *byte = text[0];
    if (text[0] < 32 || text[0] >= 127) return 0;
    if (text[0] != '\\') return 1;
    if (size >= 2 && text[1] == '\\') return 2;
    if (size >= 2 && text[1] == 'n') return *byte = '\n', 2;
    if (size < 4 || text[1] != 'x') return 0;
    *byte = 0;
    for (int i = 2; i < 4; i++) {
        const char *digit = (const char *)memchr(digits, text[i], sizeof digits - 1);
        if (!digit) return 0;
        *byte = 16 * *byte + (int32_t)(digit - digits);
    }
    return 4;
}

/* The bytes of a file, in which line ends are for the reader, are those that are allowed. */
static void load_mask(lm_filters *f, const char *path) {
    size_t size, taken;
    unsigned char *text = lm_read_file(path, &size);
    int32_t line = 1, byte, is_empty = 1;
    char problem[96];
    if (!text) die(path, "cannot be read");
    for (size_t at = 0; at < size; at += taken) {
        taken = 1;
        if (text[at] == '\n') {
            line++;
            continue;
        }
        taken = read_byte(text + at, size - at, &byte);
        if (!taken && text[at] == '\\')
            (void)snprintf(problem, sizeof problem,
                           "line %d: a \\ is followed by n, by \\, or by x and two of 0-9a-f",
                           (int)line);
        else if (!taken)
            (void)snprintf(problem, sizeof problem, "line %d: write this byte as \\x%02x",
                           (int)line, (unsigned)text[at]);
        if (!taken) die(path, problem);
        f->mask[byte / 32] |= 1u << byte % 32;
        is_empty = 0;
    }
    free(text);
    if (is_empty) die(path, "allows no byte");
    f->given |= LM_MASK;
}

static options parse_options(int argc, char **argv) {
    options o;
    memset(&o, 0, sizeof o);
    o.prompts = "examples/tiny_lm/prompts.txt";
    o.target = "examples/tiny_lm/target.bin";
    o.draft = "examples/tiny_lm/draft.bin";
    o.backend = "auto";
    o.tokens = 64;
    o.rule = SPECV_RULE_GREEDY;
    o.temperature = -1;
    o.seed = 1;
    o.copies = o.order = -1;
    o.alpha = o.ess = -1;
    o.logprobs = -1;
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i];
        if (strcmp(name, "--help") == 0) {
            fputs(usage, stdout);
            exit(0);
        }
        if (is_switch(&o, name)) continue;
        if (!is_option_with_value(name)) die(name, "unknown option; --help lists them");
        if (i + 1 == argc) die(name, "needs a value");
        set_option(&o, name, argv[++i]);
    }
    check_options(&o);
    if (o.rule == SPECV_RULE_SCORE) {
        if (!o.particles) o.particles = SMC_PARTICLES;
        if (o.alpha < 0) o.alpha = 1;
        if (o.ess < 0) o.ess = 0.5f;
        if (!o.batch && 8 * o.particles > LM_MAX_BATCH) o.batch = LM_MAX_BATCH / o.particles;
        o.cache = LM_PAGED;
        o.likelihood = 1;
    }
    if (!o.replicates) o.replicates = 1;
    if (!o.batch) o.batch = 8;
    if (!o.gamma) o.gamma = o.tree_width ? o.tree_depth : GAMMA;
    if (!o.cache) o.cache = LM_RAGGED;
    if (!o.page_size) o.page_size = 16;
    if (o.temperature < 0) o.temperature = o.rule == SPECV_RULE_GREEDY ? 0.0f : 1.0f;
    if (o.rule == SPECV_RULE_SCORE && (!specv_temperature_ok(o.temperature / o.alpha) ||
                                       specv_temperature_is_0(o.temperature / o.alpha)))
        die("--alpha", "the temperature divided by it is no temperature above 0");
    if (o.rule == SPECV_RULE_SCORE && (o.alpha < 1 || o.alpha > 1) &&
        o.filters.given & (LM_TOP_P | LM_MIN_P))
        die("--alpha", "the power of a law keeps other bytes by --top-p and --min-p than the law");
    if (o.order >= 0) o.filters.order = o.order;
    if (o.mask) load_mask(&o.filters, o.mask);
    if (o.check_law) o.tokens = o.gamma + LAW_TOKENS; /* so that the first step has all drafts */
    return o;
}

/* With room for each of them `times` times. */
static prompts load_prompts(const char *path, int32_t num_new, int32_t max_seq, int32_t times) {
    prompts p = {NULL, NULL, NULL, NULL, 0};
    size_t size, num_lines = 1;
    char problem[120];
    p.bytes = (char *)lm_read_file(path, &size);
    if (!p.bytes) die(path, "cannot be read");
    if (size == 0) die(path, "no prompts");
    for (size_t i = 0; i + 1 < size; i++) num_lines += p.bytes[i] == '\n';
    num_lines *= (size_t)times;
    if (num_lines > MAX_PROMPTS) die(path, "more than 65536 prompts, all replicates counted");
    p.start = (const char **)allocate(num_lines, sizeof *p.start);
    p.length = (int32_t *)allocate(num_lines, sizeof *p.length);
    p.num_new = (int32_t *)allocate(num_lines, sizeof *p.num_new);
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
        p.num_new[p.count] = num_new;
        p.length[p.count++] = (int32_t)length;
        at += length + 1;
    }
    return p;
}

/* Insertion: few, and equal lengths stay in order. */
static void sort_prompts(prompts *p) {
    for (int32_t i = 1; i < p->count; i++)
        for (int32_t j = i; j > 0 && p->length[j] < p->length[j - 1]; j--) {
            const char *start = p->start[j];
            const int32_t length = p->length[j];
            p->start[j] = p->start[j - 1], p->length[j] = p->length[j - 1];
            p->start[j - 1] = start, p->length[j - 1] = length;
        }
}

/* Each time a prompt is a request of its own, with random numbers of its own. */
static void repeat_prompts(prompts *p, int32_t times) {
    const int32_t count = p->count;
    for (; p->count < count * times; p->count++) {
        p->start[p->count] = p->start[p->count - count];
        p->length[p->count] = p->length[p->count - count];
        p->num_new[p->count] = p->num_new[p->count - count];
    }
}

static int32_t at_most(int32_t a, int32_t b) { return a < b ? a : b; }

/* ---- report --------------------------------------------------------------------------------- */

/* As it is written in texts and masks. */
typedef struct byte_name {
    char s[5];
} byte_name;

static byte_name name_byte(int32_t byte) {
    byte_name name = {""};
    if (byte == '\n' || byte == '\\')
        name.s[0] = '\\', name.s[1] = byte == '\n' ? 'n' : '\\';
    else if (byte >= 32 && byte < 127)
        name.s[0] = (char)byte;
    else
        (void)snprintf(name.s, sizeof name.s, "\\x%02x", (unsigned)byte & 0xffu);
    return name;
}

static void print_bytes(const int32_t *tokens, int32_t count) {
    for (int32_t i = 0; i < count; i++) fputs(name_byte(tokens[i]).s, stdout);
}

static void print_text(int32_t number, const int32_t *tokens, int32_t num_prompt, int32_t length) {
    printf("%3d  ", (int)number);
    print_bytes(tokens, num_prompt);
    fputs(" >> ", stdout);
    print_bytes(tokens + num_prompt, length - num_prompt);
    putchar('\n');
}

/* In columns, where a space would not be seen. */
static void print_token(int32_t byte, float logprob) {
    printf("  %4s %8.4f", byte == ' ' ? "\\x20" : name_byte(byte).s, (double)logprob);
}

/* What was told of each token that was added: its ln p, its rank, the likeliest ones. */
static void print_told(const specv_emitted *told, size_t first, const int32_t *tokens,
                       int32_t count) {
    for (size_t i = 0; i < (size_t)count; i++) {
        const size_t top = (first + i) * (size_t)told->max_top;
        fputs("   ", stdout);
        print_token(tokens[i], told->logprob[first + i]);
        printf(" %3d", (int)told->rank[first + i]);
        for (size_t j = top; j < top + (size_t)told->max_top && told->top_id[j] >= 0; j++)
            print_token(told->top_id[j], told->top_logprob[j]);
        putchar('\n');
    }
}

/* Is what a lossy rule relaxes a text that plain decoding has? */
static int has_plain_text(const engine *e) {
    return e->sampling.rule == SPECV_RULE_TYPICAL || e->sampling.rule == SPECV_RULE_RELAXED ||
           e->sampling.rule == SPECV_RULE_TYPICAL_DRAW;
}

/* Is a text a matter of its prompt and seed alone? Else only its law is. */
static int has_one_text(const engine *e) {
    const lm_filters *f = &e->sampling.filters;
    if (f->given & LM_TOP_K && f->top_k == 1) return 1;
    if (f->given & LM_TOP_P && !(f->top_p > 0)) return 1;
    return e->sampling.rule == SPECV_RULE_GREEDY || e->sampling.rule == SPECV_RULE_COUPLED ||
           (!e->sampling.relaxes && !f->given && has_plain_text(e)) ||
           specv_temperature_is_0(e->sampling.temperature);
}

/* Zeroed, on the host. */
static outcome new_outcome(const engine *e, int32_t count) {
    const size_t num_tokens = (size_t)count * (size_t)e->limits.max_seq;
    outcome result;
    result.first = 0;
    result.text = (int32_t *)allocate(num_tokens, sizeof *result.text);
    result.kv = (uint64_t *)allocate((size_t)count, sizeof *result.kv);
    result.told = new_told(e, num_tokens);
    return result;
}

static void free_outcome(outcome *result) {
    free(result->text);
    free(result->kv);
    free(result->told.logprob);
}

/* What differs in what was told of a token, bit by bit; null: nothing. */
static const char *told_apart(const specv_emitted *a, const specv_emitted *b, size_t token) {
    const size_t top = (size_t)a->max_top, at = top * token;
    if (memcmp(a->logprob + token, b->logprob + token, sizeof(float)) != 0) return "ln p";
    if (a->rank[token] != b->rank[token]) return "rank";
    if (top == 0) return NULL;
    if (memcmp(a->top_id + at, b->top_id + at, top * sizeof(int32_t)) != 0) return "list";
    if (memcmp(a->top_logprob + at, b->top_logprob + at, top * sizeof(float)) == 0) return NULL;
    return "ln p in its list";
}

/* 1 if text, what was told of it, and cache of sequence i are equal, else says where they part. */
static int compare(const engine *e, int32_t number, const outcome *plain,
                   const outcome *speculative, int32_t i, int32_t num_prompt, int32_t length) {
    const int32_t *expected = plain->text + i * e->limits.max_seq;
    const int32_t *got = speculative->text + i * e->limits.max_seq;
    const size_t first = (size_t)i * (size_t)e->limits.max_seq;
    for (int32_t pos = 0; pos < length; pos++)
        if (expected[pos] != got[pos]) {
            printf("prompt %d differs at position %d: plain decoding has byte %d, speculative %d\n",
                   (int)number, (int)pos, (int)expected[pos], (int)got[pos]);
            return 0;
        }
    for (int32_t pos = num_prompt; pos < length && plain->told.logprob; pos++) {
        const char *what = told_apart(&plain->told, &speculative->told, first + (size_t)pos);
        if (!what) continue;
        printf("prompt %d has the same text, but its byte at position %d has another %s\n",
               (int)number, (int)pos, what);
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

/* Who was in the batch, and what it cost that they accept different numbers of drafts. */
static void print_schedule(const engine *e, double steps_time) {
    printf("places            %.2f of %d in the batch were taken\n",
           (double)e->rows_in_steps / (double)e->steps, (int)e->limits.batch);
    if (e->schedule == SCHEDULE_EXSPEC)
        printf("grouping rate     %.3f: %lld of %lld batches were full and of one length\n",
               (double)e->groups / (double)e->steps, (long long)e->groups, (long long)e->steps);
    if (e->schedule == SCHEDULE_EXSPEC || e->speculative.kind == LM_PADDED)
        printf(
            "alignment         %.1f %% of the time of steps; it moves %.2f of the KV rows a step\n",
            100 * e->seconds[ALIGN] / steps_time,
            e->speculative.copies ? 1.0 : (double)e->moved_kv_rows / (double)e->kv_rows);
    if (e->speculative.kind == LM_GAP)
        printf("columns           %d in use in the end\n", (int)e->width);
}

static void print_filters(const lm_filters *f) {
    int32_t num_allowed = 0;
    const char *comma = "filters           ";
    for (int32_t byte = 0; byte < LM_VOCAB; byte++)
        num_allowed += (int32_t)(f->mask[byte / 32] >> byte % 32 & 1u);
    if (f->given & LM_MASK) printf("%sa mask of %d bytes", comma, (int)num_allowed), comma = ", ";
    if (f->given & LM_TOP_K) printf("%stop-k %d", comma, (int)f->top_k), comma = ", ";
    if (f->given & LM_TOP_P) printf("%stop-p %g", comma, (double)f->top_p), comma = ", ";
    if (f->given & LM_MIN_P) printf("%smin-p %g", comma, (double)f->min_p), comma = ", ";
    if (f->given & LM_TOP_P) printf("%s%s", comma, order_names[f->order]);
    if (f->given) putchar('\n');
}

/* Why speculation is slower than plain decoding here, if it is. */
static void print_why(const engine *e, double steps_time, double tokens, double target_cost) {
    const double plain = per_pass(e, PLAIN);
    const double cost = plain > 0 ? steps_time / (double)e->steps / plain : 0;
    if (cost <= tokens) return;
    printf(
        "it does not pay   a step costs %.2f plain passes and brings %.2f tokens a sequence: %s\n",
        cost, tokens,
        target_cost > tokens ? "more rows a pass take as much longer"
                             : "the target's passes alone would pay, drafts and the rest do not");
}

static void print_report(engine *e, uint64_t kv) {
    int64_t histogram[MAX_GAMMA + 1], totals[SPECV_STAT_COUNT];
    const double steps_time = e->seconds[DRAFT] + e->seconds[TARGET] + e->seconds[VERIFY] +
                              e->seconds[COMMIT] + e->seconds[ALIGN] + e->seconds[LEAVE];
    const int gamma = (int)e->limits.gamma;
    const int is_plain = !e->limits.budget && !e->trees; /* what the model of costs knows */
    long long verified;
    double rate, draft_cost, target_cost;
    must(e, e->backend.read_stats(&e->backend, histogram, totals));
    rate = specv_acceptance_rate(totals);
    verified = (long long)(e->trees ? e->drafted : totals[SPECV_STAT_DRAFTED]);
    draft_cost = per_pass(e, PLAIN) > 0 ? per_pass(e, DRAFT) / per_pass(e, PLAIN) : 0;
    target_cost = per_pass(e, PLAIN) > 0 ? per_pass(e, TARGET) / per_pass(e, PLAIN) : 0;

    print_histogram(histogram, e->limits.gamma);
    if (e->sampling.rule != SPECV_RULE_GREEDY)
        printf("\nrule              %s, temperature %g, seed %llu, drafter %s",
               rule_names[e->sampling.rule], (double)e->sampling.temperature,
               (unsigned long long)e->seed, drafter_names[e->drafter]);
    putchar('\n');
    print_filters(&e->sampling.filters);
    if (e->trees)
        printf("trees             %d deep, %d nodes at each depth\n", gamma, (int)e->limits.width);
    printf("drafts            %lld proposed, %lld accepted\n", verified,
           (long long)totals[SPECV_STAT_ACCEPTED]);
    printf("verified          %.2f of %.2f drafts a step\n", (double)verified / (double)e->steps,
           (double)e->drafted / (double)e->steps);
    printf("acceptance rate   %.3f of the %s that were reached\n", rate,
           e->trees ? "depths" : "drafts");
    printf("block efficiency  %.3f tokens per target pass of a sequence\n",
           specv_block_efficiency(totals));
    printf("tokens per step   %.2f over the batch, %lld steps\n", specv_tokens_per_step(totals),
           (long long)totals[SPECV_STAT_STEPS]);
    printf("tokens a second   %.0f in steps, %.0f plainly\n",
           (double)totals[SPECV_STAT_EMITTED] / steps_time,
           (double)totals[SPECV_STAT_EMITTED] / e->seconds[PLAIN]);
    print_schedule(e, steps_time);
    printf("time              draft %.3f s, target %.3f s, verify %.4f s, commit %.4f s,"
           " align %.4f s,\n                  leave %.4f s (prefill %.3f s)\n",
           e->seconds[DRAFT], e->seconds[TARGET], e->seconds[VERIFY], e->seconds[COMMIT],
           e->seconds[ALIGN], e->seconds[LEAVE], e->seconds[PREFILL]);
    printf("passes            draft %.2f, target with drafts %.2f of a plain pass (%.3f ms)\n",
           draft_cost, target_cost, 1e3 * per_pass(e, PLAIN));
    if (is_plain) {
        printf("speed-up          %.2f by the model if all target passes cost the same\n",
               specv_expected_speedup(rate, gamma, draft_cost));
        printf("                  %.2f by the model with the measured pass costs\n",
               specv_expected_tokens(rate, gamma) / (gamma * draft_cost + target_cost));
    }
    printf("%-18s%.2f measured on backend %s: plain %.3f s, speculative %.3f s\n",
           is_plain ? "" : "speed-up", steps_time > 0 ? e->seconds[PLAIN] / steps_time : 0,
           e->backend.name, e->seconds[PLAIN], steps_time);
    if (e->seconds[PLAIN] > 0 && e->seconds[PLAIN] < steps_time)
        print_why(e, steps_time, specv_block_efficiency(totals), target_cost);
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

/* Sum of ln p of what was added to the prompts; *num_tokens grows by how many tokens these are. */
static double likelihood_of(engine *judge, const prompts *p, int32_t first, int32_t count,
                            const int32_t *text, int64_t *num_tokens) {
    int32_t *length = (int32_t *)allocate((size_t)count, sizeof *length);
    double sum;
    for (int32_t i = 0; i < count; i++) {
        length[i] = p->length[first + i] + p->num_new[first + i];
        *num_tokens += p->num_new[first + i];
    }
    sum = log_likelihood(judge, text, p->length + first, length, count);
    free(length);
    return sum;
}

static void print_likelihood(double sum, int64_t num_tokens, int is_filtered) {
    printf("log-likelihood    %.4f a token, of %lld, by the target at temperature 1%s\n",
           sum / (double)num_tokens, (long long)num_tokens, is_filtered ? ", with filters" : "");
}

/* All prompts, plainly and speculatively: batch by batch, or all at once if the schedule decides
 * who is in a batch. Returns the exit status. */
static int decode_all(engine *e, engine *judge, const options *o, const prompts *p) {
    const int32_t most = e->schedule == SCHEDULE_STATIC ? e->limits.batch : p->count;
    outcome plain = new_outcome(e, most), speculative = new_outcome(e, most);
    int32_t identical = 0, count;
    uint64_t kv = 0;
    double likelihood = 0;
    int64_t num_tokens = 0, agrees = 0, num_compared = 0;
    for (int32_t first = 0; first < p->count; first += count) {
        count = p->count - first < most ? p->count - first : most;
        plain.first = speculative.first = first;
        for (int32_t i = 0, batch; i < count; i += batch) {
            batch = count - i < e->limits.batch ? count - i : e->limits.batch;
            progress(e, "plain decoding", first + i, p->count, "prompts");
            decode_plainly(e, p, first + i, batch, &plain);
        }
        progress(e, "speculative decoding", first, p->count, "prompts");
        decode_speculatively(e, p, first, count, &speculative);
        clear_progress(e);
        for (int32_t i = 0; i < count; i++) {
            const int32_t prompt = first + i, num_prompt = p->length[prompt];
            const int32_t num_new = p->num_new[prompt], length = num_prompt + num_new;
            const size_t begin = (size_t)i * (size_t)e->limits.max_seq + (size_t)num_prompt;
            const int32_t *text = speculative.text + i * e->limits.max_seq;
            if (!o->quiet) print_text(prompt + 1, text, num_prompt, length);
            if (!o->quiet && speculative.told.logprob)
                print_told(&speculative.told, begin, text + num_prompt, num_new);
            for (int32_t pos = num_prompt; pos < length; pos++)
                agrees += plain.text[i * e->limits.max_seq + pos] == text[pos], num_compared++;
            if (has_one_text(e))
                identical += compare(e, prompt + 1, &plain, &speculative, i, num_prompt, length);
        }
        kv = fold(kv, speculative.kv, 2 * (size_t)count);
        if (o->likelihood)
            likelihood += likelihood_of(judge, p, first, count, speculative.text, &num_tokens);
        fflush(stdout);
    }
    free_outcome(&plain);
    free_outcome(&speculative);
    if (!o->quiet) print_report(e, kv);
    if (!o->quiet && has_plain_text(e) && !o->filters.given)
        printf("agreement         %.3f: %lld of %lld tokens are those of plain decoding\n",
               (double)agrees / (double)num_compared, (long long)agrees, (long long)num_compared);
    if (o->likelihood && !o->quiet) print_likelihood(likelihood, num_tokens, o->filters.given != 0);
    return print_verdict(e, identical, p->count);
}

/* ---- particles ------------------------------------------------------------------------------ */

/* Of the mean of the replicates' means over prompts. */
static double standard_error(const double *z, int32_t replicates, int32_t num_prompts) {
    double mean = 0, squares = 0;
    for (int32_t r = 0; r < replicates; r++) mean += z[r] / replicates;
    for (int32_t r = 0; r < replicates; r++) squares += (z[r] - mean) * (z[r] - mean);
    return sqrt(squares / (replicates - 1) / replicates) / num_prompts;
}

static void print_smc_report(engine *e, const smc_report *r, int32_t replicates) {
    int64_t histogram[MAX_GAMMA + 1], totals[SPECV_STAT_COUNT];
    const int32_t n = e->limits.particles;
    const int32_t slots = e->limits.slots, per_slot = e->speculative.num_pages / slots;
    double z = 0;
    must(e, e->backend.read_stats(&e->backend, histogram, totals));
    printf("\nrule              smc, %d particles, temperature %g, alpha %g, seed %llu\n", (int)n,
           (double)e->sampling.temperature, (double)e->sampling.alpha, (unsigned long long)e->seed);
    print_filters(&e->sampling.filters);
    printf("tokens            %.3f per target pass of a particle\n",
           specv_block_efficiency(totals));
    printf("resampling        in %lld of %lld cycles of a prompt, %lld particles replaced\n",
           (long long)r->resampled, (long long)r->cycles, (long long)r->replaced);
    printf("mean ESS          %.2f of %d, resampled below %g\n", r->ess / (double)r->cycles, (int)n,
           e->sampling.threshold * n);
    printf("founders          %.2f of the particles of a prompt's start have descendants\n",
           (double)r->founders / (double)r->requests);
    for (int32_t i = 0; i < replicates; i++) z += r->z[i];
    printf("sum of p^alpha    %.6g estimated, mean over prompts (ln: %.4f)\n",
           z / (double)r->requests, r->log_z / (double)r->requests);
    if (replicates > 1)
        printf("standard error    %.6g, from %d replicates\n",
               standard_error(r->z, replicates, r->num_prompts), (int)replicates);
    printf("pages in use      at most %d of the target's, %d of the draft model's, of %d\n",
           (int)r->most_pages[LM_TARGET], (int)r->most_pages[LM_DRAFT], (int)(slots * per_slot));
    if (r->compared)
        printf("caches            %lld as after a plain prefill\n", (long long)r->compared);
    if (r->lost)
        printf("lost              %d prompts, all particles have weight 0\n", (int)r->lost);
}

/* Returns the exit status. */
static int decode_smc(engine *e, engine *judge, const options *o, const prompts *p) {
    const int32_t most = e->limits.batch / e->limits.particles;
    outcome result = new_outcome(e, most);
    smc_report report;
    double likelihood = 0;
    int64_t num_tokens = 0;
    memset(&report, 0, sizeof report);
    report.pools_whole = 1;
    report.z = (double *)allocate((size_t)o->replicates, sizeof *report.z);
    report.num_prompts = p->count / o->replicates;
    if (o->log_launches) e->backend.log = stdout;
    for (int32_t first = 0, count; first < p->count; first += count) {
        count = at_most(p->count - first, most);
        progress(e, "decoding with particles", first, p->count, "prompts");
        decode_with_particles(e, o->check ? judge : NULL, p, first, count, result.text, &report);
        clear_progress(e);
        for (int32_t i = 0; i < count && !o->quiet; i++)
            print_text(first + i + 1, result.text + i * e->limits.max_seq, p->length[first + i],
                       p->length[first + i] + p->num_new[first + i]);
        likelihood += likelihood_of(judge, p, first, count, result.text, &num_tokens);
        fflush(stdout);
    }
    free_outcome(&result);
    if (!o->quiet) print_smc_report(e, &report, o->replicates);
    if (!o->quiet) print_likelihood(likelihood, num_tokens, o->filters.given != 0);
    free(report.z);
    printf("pages: %s\n", report.pools_whole ? "all free" : "not all free");
    return report.pools_whole ? 0 : EXIT_DIFFERENT;
}

/* ---- the law of the text -------------------------------------------------------------------- */

/* Samples many texts after one prompt and counts their first two tokens: cells [vocab][vocab].
 * The caches keep the prompt; a text writes over what the one before it left. */
static void sample_law(engine *e, const prompts *same, const options *o, int speculative,
                       int64_t *cells) {
    const lm_layout *layout = speculative ? &e->speculative : &e->plain;
    const lm_pick plain = {LM_PICK_CDF, SPECV_STREAM_TARGET, 0}; /* for rule coupled as well */
    sequence start[LM_MAX_BATCH], seqs[LM_MAX_BATCH];
    outcome result = new_outcome(e, same->count);
    const outcome texts = {0, result.text, NULL, result.told};
    int32_t num_seqs;
    start_batch(e, layout, same, 0, same->count, start);
    for (int32_t i = 0; i < same->count; i++) start[i].enough = start[i].len + LAW_TOKENS;
    for (int32_t done = 0; done < o->check_law; done += num_seqs) {
        num_seqs = o->check_law - done < same->count ? o->check_law - done : same->count;
        progress(e, speculative ? "speculative sampling" : "plain sampling", done, o->check_law,
                 "texts");
        memcpy(seqs, start, sizeof seqs);
        for (int32_t i = 0; i < num_seqs; i++) /* two samples must not share random numbers */
            seqs[i].seed = request_seed(e, 2 * (uint32_t)(done + i) + (uint32_t)speculative);
        restart_batch(e, layout, seqs, num_seqs);
        if (!speculative) plain_steps(e, seqs, num_seqs, plain, &texts);
        for (int32_t i = 0; i < num_seqs && !speculative; i++)
            read_text(e, &seqs[i], result.text + i * e->limits.max_seq);
        for (int32_t live = num_seqs; live > 0 && speculative;)
            live = step_and_leave(e, seqs, live, &texts);
        for (int32_t i = 0; i < num_seqs; i++) {
            const int32_t *first = result.text + i * e->limits.max_seq + start[i].len;
            cells[first[0] * e->target.vocab + first[1]]++;
        }
    }
    free_outcome(&result);
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
    int32_t length[LM_MAX_BATCH], num_new[LM_MAX_BATCH], groups;
    const prompts same = {NULL, start, length, num_new, e->limits.batch};
    double statistic, freedom, limit;
    for (int32_t i = 0; i < same.count; i++)
        start[i] = p->start[0], length[i] = p->length[0], num_new[i] = p->num_new[0];
    sample_law(e, &same, o, 0, plain);
    sample_law(e, &same, o, 1, speculative);
    statistic = chi_square(plain, speculative, num_cells, &groups);
    freedom = groups - 1;
    limit = freedom + 5 * sqrt(2 * freedom); /* five standard deviations */
    if (!o->quiet)
        printf("first %d tokens of %d texts, in %d groups: chi-square %.1f, at most %.1f passes\n",
               LAW_TOKENS, (int)o->check_law, (int)groups, statistic, limit);
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

/* A text has at most max_text tokens. */
static lm_layout layout_of(const options *o, const lm_limits *limits, int32_t kind,
                           int32_t max_text, int32_t max_new) {
    lm_layout layout = {kind, limits->max_seq, 0, limits->slots, 0};
    const int32_t drafts = lm_step_columns(limits) - 1;
    int32_t most_accept = limits->batch; /* in a step of GAP: how many drafts may leave gaps */
    if (most_accept > limits->gamma + 1) most_accept = limits->gamma + 1;
    if (kind == LM_PADDED || (kind != LM_FIXED && limits->nodes)) /* nodes are behind the text */
        layout.max_columns = max_text + drafts;
    if (kind == LM_GAP) layout.max_columns = max_text + max_new * (most_accept - 1) + limits->gamma;
    if (kind == LM_FIXED && o->window) layout.max_columns = max_text + limits->gamma;
    layout.page_size = layout.max_columns;
    if (kind == LM_PAGED) {
        int32_t columns = max_text + drafts;
        if (columns > limits->max_seq && !limits->nodes) columns = limits->max_seq;
        layout.page_size = o->page_size;
        layout.num_pages = limits->slots * ((columns + o->page_size - 1) / o->page_size);
    }
    layout.copies = kind == LM_PADDED && o->copies == 1;
    return layout;
}

static void lay_out(engine *e, const options *o, const prompts *p) {
    const lm_limits *limits = &e->limits;
    int32_t max_text = 0, max_new = 0;
    for (int32_t i = 0; i < p->count; i++) {
        const int32_t length = p->length[i] + p->num_new[i];
        if (length > max_text) max_text = length;
        if (p->num_new[i] > max_new) max_new = p->num_new[i];
    }
    if (!limits->particles) e->plain = layout_of(o, limits, LM_FIXED, max_text, max_new);
    e->speculative = layout_of(o, limits, o->window ? LM_FIXED : o->cache, max_text, max_new);
}

static void set_engine(engine *e, const options *o, const prompts *p, int32_t max_seq) {
    const int32_t num_texts = o->check_law ? o->check_law : p->count;
    lm_limits *limits = &e->limits;
    choose_backend(e, o->backend);
    e->show_progress = !o->quiet;
    e->drafter = o->drafter;
    e->seed = o->seed;
    if (o->continuous) e->schedule = SCHEDULE_CONTINUOUS;
    if (o->window) e->schedule = SCHEDULE_EXSPEC;
    e->sampling.rule = o->rule;
    if (o->rule == SPECV_RULE_COUPLED) e->sampling.tree_rule = SPECV_TREE_COUPLED;
    if (o->rule >= RULE_OF_TREES)
        e->sampling.tree_rule = SPECV_TREE_ONE_COIN + o->rule - RULE_OF_TREES;
    e->sampling.filters = o->filters;
    e->sampling.tell = o->logprobs < 0 ? LM_TELL_NOTHING : LM_TELL_RAW;
    if (o->logprobs > 0) e->sampling.num_top = o->logprobs;
    e->sampling.by_choice =
        o->rule == SPECV_RULE_GREEDY && !o->filters.given && e->sampling.tell == LM_TELL_NOTHING;
    e->sampling.temperature = o->temperature;
    e->sampling.relaxes = o->relaxes;
    memcpy(e->sampling.relax, o->relax, sizeof o->relax);
    e->sampling.use_draft_logits = e->sampling.tree_rule >= SPECV_TREE_RECURSIVE ||
                                   ((o->rule == SPECV_RULE_TOKEN || o->rule == SPECV_RULE_BLOCK ||
                                     o->rule == SPECV_RULE_BOUNDED) &&
                                    o->drafter == DRAFTER_MODEL);
    limits->batch = at_most(o->batch, num_texts);
    if (o->rule == SPECV_RULE_SCORE) {
        limits->particles = o->particles;
        limits->batch *= o->particles;
        e->sampling.alpha = o->alpha;
        e->sampling.threshold = (double)o->ess;
    }
    limits->slots = o->window ? at_most(o->window, num_texts) : limits->batch;
    limits->gamma = o->gamma;
    limits->width = o->tree_width;
    if (o->tree_width) limits->nodes = 1 + o->tree_width * o->gamma;
    limits->budget = o->budget;
    limits->max_seq = max_seq;
    lay_out(e, o, p);
}

int main(int argc, char **argv) {
    const options o = parse_options(argc, argv);
    lm_model models[LM_NUM_MODELS];
    engine e, judge;
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
    p = load_prompts(o.prompts, o.tokens, max_seq, o.replicates);
    for (int32_t i = 0; i < p.count && o.vary_tokens; i++) p.num_new[i] -= o.tokens * (i % 4) / 5;
    if (o.sort) sort_prompts(&p);
    repeat_prompts(&p, o.replicates);
    set_engine(&e, &o, &p, max_seq);
    open_engine(&e, models);

    if (o.likelihood) open_judge(&judge, &e, models);
    if (o.rule == SPECV_RULE_SCORE)
        status = decode_smc(&e, &judge, &o, &p);
    else
        status = o.check_law ? check_law(&e, &o, &p) : decode_all(&e, &judge, &o, &p);
    if (o.likelihood) close_judge(&judge);

    close_engine(&e);
    free(p.bytes);
    free((void *)p.start);
    free(p.length);
    free(p.num_new);
    lm_free(&models[LM_TARGET]);
    lm_free(&models[LM_DRAFT]);
    if (fflush(stdout) != 0) die("standard output", "cannot be written");
    return status;
}
