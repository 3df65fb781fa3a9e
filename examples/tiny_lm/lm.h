/* SPDX-License-Identifier: MIT-0
 *
 * lm.h - the parts of tiny_lm: a model file, a backend that runs it, an engine that decodes.
 *
 *   model.c     loads a model: checks the file, decodes fp16, lays the weights out for the backends
 *   cpu.c       backend in plain C, verification and cache by specverify_ref.h; its forward pass,
 *               for each width of vectors, is cpu_pass.h
 *   gpu.cu      backend in CUDA, verification and cache by specverify.cuh; ../arena.h: its memory
 *   lm_cache.h  what both tell the kit about their caches; lm_filters.h: about filters;
 *               lm_emitted.h: what they want to know of tokens
 *   trees.h     draft trees in both: what is asked of the draft model; lm_trees.h: descriptors
 *   particles.h rule smc in both: the kit's calls of a cycle; lm_particles.h: their descriptors
 *   tree.c      draft trees as the engine sees them: how they grow, the pass over them
 *   engine.c    plain decoding, speculative decoding, who is in the batch
 *   tiny_lm.c   options, the comparison, the report
 *
 * A backend owns two models (target and draft), their KV caches, and the *token board*: one array
 * of token ids in its memory. Rows read their token from the board and write the one they pick back
 * to it, so a whole drafting loop runs without the host looking at a token.
 */
#ifndef LM_H
#define LM_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { LM_MAX_BATCH = 256, LM_MAX_GAMMA = 64, LM_MAX_LAYERS = 64, LM_VOCAB = 256 };

/* ---- model ---------------------------------------------------------------------------------- */

typedef struct lm_dims {
    int32_t vocab, d_model, num_layers, num_heads, d_ff, max_seq;
} lm_dims;

typedef struct lm_model {
    lm_dims dims;
    float *weights; /* one block, so that a backend can copy it; see lm_view, lm_layer */
    size_t num_weights;
} lm_model;

/* Matrices are stored [in][out]: neighbouring outputs are neighbours in memory, which both a vector
 * unit and a warp want, and the sum over `in` keeps its order. */
typedef struct lm_layer {
    const float *attn_norm; /* [d_model] */
    const float *wqkv;      /* [d_model][3 * d_model] */
    const float *wo;        /* [d_model][d_model] */
    const float *ffn_norm;  /* [d_model] */
    const float *w_gate_up; /* [d_model][2 * d_ff] */
    const float *w_down;    /* [d_ff][d_model] */
} lm_layer;

typedef struct lm_view {
    const float *tok_emb;    /* [vocab][d_model] */
    const float *head;       /* [d_model][vocab], the same numbers */
    const float *final_norm; /* [d_model] */
    const float *rope;       /* [max_seq][head_dim / 2][cos, sin] */
} lm_view;

size_t lm_num_weights(const lm_dims *dims);
lm_view lm_view_of(const lm_dims *dims, const float *weights);
lm_layer lm_layer_of(const lm_dims *dims, const float *weights, int32_t layer);

/* 0, or -1 and one line of text in message. */
int lm_load(lm_model *model, const char *path, char *message, size_t message_size);
void lm_free(lm_model *model);

/* All bytes of a file, to be freed; null if it cannot be read. */
unsigned char *lm_read_file(const char *path, size_t *size);

/* ---- caches --------------------------------------------------------------------------------- */

/* A sequence in the batch has a *slot*: a row of *columns*. A column holds a token in the text area
 * of the board and a KV row in both models' caches. Kinds of caches differ in which column a token
 * of the text is in, and in what must be done after a step in which every sequence accepted another
 * number of drafts:
 *
 *   FIXED   column = position, and nothing is moved: a pass leaves its KV rows in place. What plain
 *           decoding uses, without the kit, and EXSPEC
 *   RAGGED  column = position; KV rows of drafts wait in a scratch for the verdict, and those that
 *           were accepted are appended to the sequence's own length (B3)
 *   PAGED   the same in pages of a pool, which are taken and given back (B5)
 *   PADDED  all sequences end in the same column, padding is on the left; rejected drafts are
 *           closed up by moving what is before them (C1: EQSPEC)
 *   GAP     all sequences end in the same column, nothing is moved; rejected drafts leave masked
 *           columns behind (C2)
 *
 * Where a column is in memory is the same for all: in the page that the slot's block table names.
 * Where there are no pages, a page is as long as a sequence can get. */
enum { LM_FIXED, LM_RAGGED, LM_PAGED, LM_PADDED, LM_GAP, LM_NUM_CACHES };

typedef struct lm_layout {
    int32_t kind;
    int32_t max_columns; /* of a slot */
    int32_t page_size;   /* columns; max_columns unless PAGED */
    int32_t num_pages;   /* as many as there are slots unless PAGED */
    int32_t copies;      /* PADDED: 1 = as published, by copying all to a zeroed cache each step */
} lm_layout;

/* ---- backend -------------------------------------------------------------------------------- */

enum { LM_TARGET, LM_DRAFT, LM_NUM_MODELS };

/* One token that passes through a model. */
typedef struct lm_row {
    int32_t token_at;     /* token board index of the input token */
    int32_t pick_at;      /* token board index for the token that is picked from the logits */
    int32_t keep_at;      /* which of the model's kept logits these become; -1: nobody needs them */
    int32_t seq;          /* index in the step: which part of the verify scratch */
    int32_t slot;         /* which sequence's cache */
    int32_t column;       /* of the token; it sees this column and all text before it */
    int32_t scratch_from; /* columns from here on are in the verify scratch, not in the cache */
    int32_t node;         /* of a tree: it sees its ancestors and itself, and all text before the
                           * root; -1: none */
    int32_t tree_from;    /* column of the tree's root; the other nodes' are behind it */
    int32_t pos;          /* position in the text: which random numbers are its own */
    uint64_t seed;        /* of the request: what its random numbers are made of */
} lm_row;

/* How a pass picks tokens from its logits, and with which random numbers of the request. */
enum { LM_PICK_NONE, LM_PICK_LARGEST, LM_PICK_CDF, LM_PICK_GUMBEL };

typedef struct lm_pick {
    int32_t method;   /* LM_PICK_*; CDF and GUMBEL as in specv_sample_method */
    int32_t stream;   /* specv_stream */
    int32_t step_row; /* which token of its step it is: drafts 0, 1, 2, ... */
} lm_pick;

typedef struct lm_limits {
    int32_t batch, gamma; /* of a step; with trees gamma is how deep they are */
    int32_t nodes, width; /* of a tree, the root counts; at each depth. 0: drafts are chains */
    int32_t budget;       /* drafts that a step verifies at most; 0: all */
    int32_t slots;        /* sequences that have a cache */
    int32_t max_rows;     /* in one forward pass */
    int32_t max_seq;      /* positions of a text */
    int32_t text_stride;  /* the board starts with the text area: [slots][text_stride] */
    int32_t prompt_at;    /* on the board: [slots][max_seq] */
    int32_t draft_at;     /* on the board: [batch][gamma] drafts of a step, or [batch][nodes] */
    int32_t target_at;    /* on the board: [batch][gamma + 1] choices of the target, or the same */
    int32_t board_size;
    /* the most of any layout that `begin` will name */
    int32_t cache_columns, num_pages, table_size; /* table_size: [slots][pages of a slot] */
    int32_t copies;
    int32_t
        particles; /* of a request, rule smc; 0: none. Then slots = batch = requests * particles */
} lm_limits;

/* How many columns a step may use of a sequence: the pending token's and those of drafts. */
static inline int32_t lm_step_columns(const lm_limits *limits) {
    return limits->nodes ? limits->nodes : limits->gamma + 1;
}

/* What a text may be made of, in all requests and at every position. What is not given is off. */
enum { LM_MASK = 1, LM_TOP_K = 2, LM_TOP_P = 4, LM_MIN_P = 8 };

typedef struct lm_filters {
    int32_t given; /* LM_MASK and so on */
    int32_t top_k;
    float top_p, min_p;
    int32_t order;                /* specv_filter_order */
    uint32_t mask[LM_VOCAB / 32]; /* bit x % 32 of word x / 32: byte x is allowed */
} lm_filters;

/* What is told of every token of the target: LOGPROB: its ln p, by the law that it comes from. RAW:
 * ln p by the logits themselves, at temperature 1 and without filters, its rank, and the num_top
 * likeliest tokens with theirs. */
enum { LM_TELL_NOTHING, LM_TELL_LOGPROB, LM_TELL_RAW };

/* How drafts are judged. By choice: they are compared with the target's choices on the board, which
 * rule GREEDY does if there are no filters and nothing is told. Else by the logits that passes
 * kept: [batch][gamma + 1] of the target, [batch][gamma] of the draft model; of trees
 * [batch][nodes] of both. */
typedef struct lm_sampling {
    int32_t rule;      /* specv_rule, or one of those that judge trees alone */
    int32_t tree_rule; /* specv_tree_rule */
    int32_t by_choice;
    float temperature;
    lm_filters filters;
    int32_t use_draft_logits; /* 0: drafts are judged as if nothing else could have been drafted */
    float alpha;              /* rule smc: power of the target */
    double threshold;         /* resample below this share of the particles */
    int32_t tell, num_top;    /* LM_TELL_*; num_top: of RAW */
    int32_t relaxes;          /* a lossy rule is told these, for every request: */
    float relax[2];           /* typical, typical-draw: epsilon, alpha; threshold: of one, of all;
                                 relaxed: top_n, delta; bounded: ratio */
} lm_sampling;

/* One verification step of num_seqs sequences. But for FIXED, sequence i has slot i. */
typedef struct lm_step {
    int32_t num_seqs;
    const int32_t *draft_len; /* [num_seqs] */
    const int32_t *position;  /* [num_seqs] of the first emitted token in its text */
    const int32_t *draft_end; /* [num_seqs] from this column on the draft's cache holds nothing */
    const int32_t *text_at;   /* [num_seqs] FIXED, RAGGED, PAGED: the first emitted token's place on
                               * the board. The others' texts are the kit's work */
    const uint64_t *seed;     /* [num_seqs] */
    int32_t *accepted_len;    /* [num_seqs] out */
    int32_t *num_emitted;     /* [num_seqs] out */
    int32_t *width;           /* out; PADDED, GAP: columns in use after the step */
} lm_step;

/* Trees of a step as far as they have grown. */
typedef struct lm_trees {
    int32_t num_seqs;
    const int32_t *num_nodes; /* [num_seqs] */
    const int32_t *parent;    /* [num_seqs][nodes] */
    const int32_t *position;  /* [num_seqs] of the roots in their texts */
    const int32_t *column;    /* [num_seqs] of the roots */
} lm_trees;

/* What children are wanted behind tokens that the draft model has just passed. */
typedef struct lm_proposal {
    int32_t method, stream; /* LM_PICK_LARGEST: the likeliest, in order; CDF, GUMBEL: drawn */
    int32_t num_rows;
    int32_t first, stride; /* rows of the pass, without silent ones: first, first + stride, ... */
    int32_t num_children;  /* of each row */
    int32_t step_row;      /* as in lm_pick, of the first child; with CDF each has one of its own */
    int32_t is_distinct;   /* a row's children are drawn without replacement */
    const int32_t *position; /* [num_rows] of the step's first token */
    const uint64_t *seed;    /* [num_rows] */
} lm_proposal;

/* A cycle of rule smc: num_groups requests, particle i of request g in slot g * particles + i. What
 * is an input here is the same for all texts of these lengths. */
typedef struct lm_cycle {
    int32_t num_groups;
    int32_t num_drafts;   /* of every particle */
    int32_t behind;       /* tokens before the pending one that the draft model lacks */
    const int32_t *len;   /* [num_groups] of the texts before the cycle */
    const uint64_t *seed; /* [num_groups] of the requests */
    double *ess;          /* [num_groups] out */
    int32_t *num_jobs;    /* [num_groups] out: particles that were replaced */
    int32_t *num_emitted; /* [num_groups * particles] out */
    int32_t pages_used[LM_NUM_MODELS]; /* out */
} lm_cycle;

/* Functions that can fail return 0, or -1 with the reason in `message`. */
typedef struct lm_backend {
    const char *name;
    void *state;
    char message[512];
    int (*open)(struct lm_backend *, const lm_model models[LM_NUM_MODELS], const lm_limits *,
                const lm_sampling *);
    int (*close)(struct lm_backend *); /* all is returned, in any case */
    /* Empty caches of that layout, filled with NaN, the scratch too: a column that is read, but
     * that nobody computed or committed since, shows in the text. */
    int (*begin)(struct lm_backend *, const lm_layout *);
    /* Sequences enter behind the first num_old slots, up to num_seqs: gives them pages, or aligns
     * their texts (from the board's prompt_at) with the others. *width as in lm_step, in/out. */
    int (*join)(struct lm_backend *, int32_t num_old, int32_t num_seqs, const int32_t *len,
                int32_t *width);
    int (*write_board)(struct lm_backend *, int32_t at, const int32_t *tokens, int32_t count);
    int (*read_board)(struct lm_backend *, int32_t at, int32_t *tokens, int32_t count);
    /* PAGED: pages for what the next step may add. */
    int (*prepare)(struct lm_backend *, int32_t num_seqs);
    /* All layers for all rows. Rows of one sequence must come in ascending order. The first
     * num_silent rows only leave their KV; of the others, at most `batch` if they sample, logits
     * are kept and tokens picked. */
    int (*forward)(struct lm_backend *, int which, const lm_row *rows, int32_t num_rows,
                   int32_t num_silent, lm_pick pick);
    /* What the nodes of these trees see of each other: the kit's work. */
    int (*grow)(struct lm_backend *, const lm_trees *);
    /* Children by the logits of the last pass, and their ln q at temperature 1; of LM_PICK_LARGEST
     * [num_rows][num_children], else [num_children][num_rows]. The kit's work. */
    int (*propose)(struct lm_backend *, const lm_proposal *, int32_t *child, float *logprob);
    /* With a budget, after the draft passes of a step: how many drafts of each sequence are worth
     * verifying; draft_len [num_seqs] in/out. The kit's work. */
    int (*spend)(struct lm_backend *, int32_t num_seqs, int32_t *draft_len);
    /* Accepts drafts and counts: the kit's work. */
    int (*verify)(struct lm_backend *, const lm_step *);
    /* What was told of the tokens of the last `forward` that sampled from the target, or of those
     * of the last `verify`: lm_told_bytes, as lm_emitted_in lays out batch * (gamma + 1) tokens. */
    int (*read_told)(struct lm_backend *, void *told);
    /* Caches and texts take in what was accepted: the kit's work. Fills the step's outputs. */
    int (*commit)(struct lm_backend *, const lm_step *);
    /* Of slots 0..num_seqs-1 the finished ones leave, the others close up, in order. */
    int (*leave)(struct lm_backend *, int32_t num_seqs, const uint8_t *finished);
    /* FIXED: columns 0..len-1 of each slot move right by `pad`, or back from there. */
    int (*move)(struct lm_backend *, const int32_t *len, const int32_t *pad, int back);
    /* Which `count` of num_seqs sequences should pass together, by their lengths, as
     * specv_group_desc.pick_rows; *is_group: all are of one length. */
    int (*group)(struct lm_backend *, const int32_t *len, int32_t num_seqs, int32_t count,
                 int32_t *picked, int32_t *is_group);
    /* KV rows of those columns in one plane: [count][d_model]. */
    int (*read_cache)(struct lm_backend *, int which, int32_t plane, int32_t slot,
                      const int32_t *columns, int32_t count, float *rows);
    /* Acceptance over all steps since open: rows by accepted length, and SPECV_STAT_* totals. */
    int (*read_stats)(struct lm_backend *, int64_t *histogram, int64_t *totals);
    /* A clock, after all work so far is done: of the wall, or of this process. */
    double (*seconds)(struct lm_backend *);

    /* Rule smc, in a PAGED layout; a cycle is reserve, drafting, scoring, verify, resample. */
    FILE *log; /* a line for each pass and each call of the kit, or null */
    /* Empty pools; the first particle of each request gets pages for all tokens but the last. */
    int (*admit)(struct lm_backend *, const lm_cycle *);
    /* The other particles share its pages. */
    int (*fan_out)(struct lm_backend *, const lm_cycle *);
    /* Pages for what the cycle will add; shared ones that it will write to are copied. */
    int (*reserve)(struct lm_backend *, const lm_cycle *);
    /* Bonus tokens, commit, weights, resampling. */
    int (*resample)(struct lm_backend *, lm_cycle *);
    /* picked: [num_groups] a slot each, drawn by weight, -1 if all weights are 0. founder: [slots]
     * which particle of the start each comes from. log_z: [num_groups] logarithm of the estimate of
     * the sum over all texts of p^alpha. */
    int (*pick)(struct lm_backend *, const lm_cycle *, int32_t *picked, int32_t *founder,
                double *log_z);
    /* All give back their pages. *whole: every page of both pools is free, and free once. */
    int (*dismiss)(struct lm_backend *, const lm_cycle *, int32_t *whole);
} lm_backend;

void lm_cpu_backend(lm_backend *backend);
int lm_gpu_available(void);
void lm_gpu_backend(lm_backend *backend);

#ifdef __cplusplus
}
#endif
#endif
