/* moves.cuh - B3 to B5, layouts of trees, C1 to C5, D1 to D3: operations on the caches and the
   numbers of a batch.

   Most of them change what they read, so that a second launch would find other lengths, pages,
   pads or weights. Hence slots: each launch of a round of up to MAX_SETS has numbers of its own,
   and in front of slot 0 one memcpy sets those that change back, of all slots at once. It is part
   of every figure here, floors too: 1/32 of a small memcpy per launch, and of the event pairs one
   in 32 sees it, which leaves the median alone. KV, columns and texts are not set back: what they
   hold changes no cost. All slots work on one cache, at places of their own, so that what a launch
   writes is not in L2 when its slot comes round again; what B3 reads lies in `sources` that take
   turns.

   Before a mode is timed, slot 0 runs once. Its numbers and the last plane are compared with the
   reference; the other planes hold the same, but for a tag in every word, and are compared with
   the last one on the device. After all rounds its state and outputs must be the same again.

   Nobody publishes code for realignment in place. `realign-published` does what EQSPEC's does
   (arXiv 2510.22876): for each plane a new tensor of zeros, and everything copied into it. One
   kernel copies all planes here, where that code runs a loop of slices, and memory is not
   allocated: it is kinder than what it stands for. */

#ifndef SPECV_BENCH_MOVES_CUH
#define SPECV_BENCH_MOVES_CUH

/* Kind, and the name of its operation. */
#define MOVES_KINDS(X)                                                                             \
    X(append, append_kv)                                                                           \
    X(resize, page_resize)                                                                         \
    X(fork, page_fork)                                                                             \
    X(commit, commit_path)                                                                         \
    X(layout, tree_layout)                                                                         \
    X(realign, realign)                                                                            \
    X(gap, gap_commit)                                                                             \
    X(compact, compact)                                                                            \
    X(group, group)                                                                                \
    X(budget, draft_budget)                                                                        \
    X(weights, particle_weights)                                                                   \
    X(plan, resample_plan)                                                                         \
    X(reshuffle, reshuffle)

#define KIND(kind, op) MOVE_##kind,
enum { MOVES_KINDS(KIND) NUM_MOVE_KINDS };
#undef KIND

typedef struct moves_mode {
    const char *name, *op, *variant;
    int kind, has_kv, paged, heads_first, published, uniform;
    int power, particles; /* of D: with the power bonus; of a group */
} moves_mode;

static const moves_mode moves_modes[] = {
    {"append", "append_kv", "5 kit padded", MOVE_append, 1, 0, 0, 0, 0, 0, 0},
    {"append-paged", "append_kv", "5 kit paged", MOVE_append, 1, 1, 0, 0, 0, 0, 0},
    {"append-hnd", "append_kv", "5 kit paged HND", MOVE_append, 1, 1, 1, 0, 0, 0, 0},
    {"append-numbers", "append_kv", "5 kit numbers", MOVE_append, 0, 1, 0, 0, 0, 0, 0},
    {"resize", "page_resize", "5 kit", MOVE_resize, 0, 1, 0, 0, 0, 0, 0},
    {"resize-copy", "page_resize", "5 kit copies", MOVE_resize, 1, 1, 0, 0, 0, 0, 0},
    {"fork", "page_fork", "5 kit", MOVE_fork, 0, 1, 0, 0, 0, 0, 0},
    {"commit", "commit_path", "5 kit padded", MOVE_commit, 1, 0, 0, 0, 0, 0, 0},
    {"commit-paged", "commit_path", "5 kit paged", MOVE_commit, 1, 1, 0, 0, 0, 0, 0},
    {"layout-links", "tree_layout", "5 kit links", MOVE_layout, 0, 0, 0, 0, 0, 0, 0},
    {"realign", "realign", "5 kit", MOVE_realign, 1, 0, 0, 0, 0, 0, 0},
    {"realign-published", "realign", "0 published", MOVE_realign, 1, 0, 0, 1, 0, 0, 0},
    {"realign-uniform", "realign", "5 kit uniform", MOVE_realign, 1, 0, 0, 0, 1, 0, 0},
    {"gap", "gap_commit", "5 kit", MOVE_gap, 0, 0, 0, 0, 0, 0, 0},
    {"compact", "compact", "5 kit", MOVE_compact, 0, 0, 0, 0, 0, 0, 0},
    {"group", "group", "5 kit", MOVE_group, 0, 0, 0, 0, 0, 0, 0},
    {"budget", "draft_budget", "5 kit", MOVE_budget, 0, 0, 0, 0, 0, 0, 0},
    {"weights", "particle_weights", "5 kit", MOVE_weights, 0, 0, 0, 0, 0, 0, 0},
    {"weights-power", "particle_weights", "5 kit power", MOVE_weights, 0, 0, 0, 0, 0, 1, 0},
    {"plan-4", "resample_plan", "5 kit N 4", MOVE_plan, 0, 0, 0, 0, 0, 0, 4},
    {"plan-16", "resample_plan", "5 kit N 16", MOVE_plan, 0, 0, 0, 0, 0, 0, 16},
    {"plan-64", "resample_plan", "5 kit N 64", MOVE_plan, 0, 0, 0, 0, 0, 0, 64},
    {"plan-1024", "resample_plan", "5 kit N 1024", MOVE_plan, 0, 0, 0, 0, 0, 0, 1024},
    {"reshuffle", "reshuffle", "5 kit N 16", MOVE_reshuffle, 0, 1, 0, 0, 0, 0, 16},
    {"reshuffle-none", "reshuffle", "5 kit no jobs", MOVE_reshuffle, 0, 1, 0, 0, 1, 0, 16},
};

enum { NUM_MOVES_MODES = sizeof moves_modes / sizeof moves_modes[0] };

/* One position of a plane: 8 heads of 128 halves. */
enum { MOVES_HEADS = 8, MOVES_HEAD_BYTES = 256, MOVES_ROW = 2048, MOVES_PAGE = 16 };
enum { MOVES_PICK = 8, MOVES_MAX_PLANES = 64 };

/* Parts of a slot: STATE is set back; what IN holds may be changed in place, at no harm. */
enum { PART_IN, PART_STATE, PART_OUT, PART_SCRATCH, NUM_PARTS }; /* the last: nobody's business */

typedef struct moves_memory { /* of one slot, on either side */
    char *base[NUM_PARTS];
    int64_t used[NUM_PARTS];
    void *const *cache;      /* planes */
    const void *const *rows; /* planes of what B3 appends */
} moves_memory;

#define KIND(kind, op) specv_##op##_desc kind;
typedef union moves_desc {
    MOVES_KINDS(KIND)
} moves_desc;
#undef KIND

typedef struct moves_run {
    const moves_mode *mode;
    int batch, gamma, planes, positions, num_slots, num_sources, num_sms;
    double alpha;
    int64_t plane_bytes, source_bytes; /* of one plane */
    int64_t kv_bytes;                  /* all planes, the published way's new ones, sources */
    int64_t moved, least, asked;       /* bytes of a launch, means over the slots */
    int64_t part_bytes[NUM_PARTS];     /* of one slot */
    char *parts[NUM_PARTS], *first_state, *kv;
    bench_floor probe;
    moves_desc d[MAX_SETS];
} moves_run;

/* --------------------------------------------------------------------------------------- layout */

static void *take_bytes(moves_memory *m, int part, int64_t bytes) {
    char *at = m->base[part] + m->used[part];
    m->used[part] += align_up(bytes);
    return at;
}

#define TAKE(type, part, count) ((type *)take_bytes(m, part, (int64_t)sizeof(type) * (count)))

static int pages_of(int64_t positions) { return (int)((positions + MOVES_PAGE - 1) / MOVES_PAGE); }

static specv_kv_cache describe_cache(const moves_run *r, moves_memory *m) {
    specv_kv_cache kv = SPECV_ZERO;
    const int row_pages = pages_of(r->positions);
    kv.head_bytes = MOVES_HEAD_BYTES, kv.num_heads = MOVES_HEADS;
    kv.max_positions = r->positions;
    if (r->mode->has_kv) kv.planes = m->cache, kv.num_planes = r->planes;
    if (r->mode->paged) {
        kv.block_table = TAKE(int32_t, PART_STATE, (int64_t)r->batch * row_pages);
        kv.page_size = MOVES_PAGE, kv.num_pages = r->batch * row_pages;
    }
    if (r->mode->heads_first) {
        kv.pos_stride_bytes = MOVES_HEAD_BYTES;
        kv.head_stride_bytes = MOVES_HEAD_BYTES * MOVES_PAGE;
        kv.page_stride_bytes = MOVES_ROW * MOVES_PAGE;
    }
    return kv;
}

static specv_columns describe_columns(const moves_run *r, moves_memory *m) {
    specv_columns c = SPECV_ZERO;
    c.max_columns = r->positions + r->gamma;
    c.index_dtype = SPECV_I64;
    c.tokens = TAKE(int64_t, PART_IN, (int64_t)r->batch * c.max_columns);
    c.mask = TAKE(int64_t, PART_IN, (int64_t)r->batch * c.max_columns);
    c.position_ids = TAKE(int64_t, PART_IN, (int64_t)r->batch * c.max_columns);
    c.width = TAKE(int32_t, PART_STATE, 1);
    return c;
}

static void describe_append(const moves_run *r, moves_memory *m, specv_append_kv_desc *d) {
    const int b = r->batch, columns = r->gamma + 1;
    d->rows.batch = b, d->rows.max_draft = r->gamma;
    d->accepted_len = TAKE(int32_t, PART_IN, b);
    d->ticket = TAKE(uint32_t, PART_IN, 1);
    d->cache_len = TAKE(int32_t, PART_STATE, b);
    d->draft_cache_len = TAKE(int32_t, PART_STATE, b);
    d->draft_lacks = TAKE(int32_t, PART_OUT, b);
    d->slot_mapping = TAKE(int64_t, PART_OUT, b * columns);
    d->position_ids = TAKE(int32_t, PART_OUT, b * columns);
    d->row_status = TAKE(uint32_t, PART_OUT, b);
    d->kv = describe_cache(r, m);
    if (r->mode->has_kv) d->src.planes = m->rows;
    d->num_pending = 1;
}

static void describe_resize(const moves_run *r, moves_memory *m, specv_page_resize_desc *d) {
    const int b = r->batch;
    d->kv = describe_cache(r, m);
    d->pool.page_refs = TAKE(int32_t, PART_STATE, d->kv.num_pages);
    d->pool.free_pages = TAKE(int32_t, PART_STATE, d->kv.num_pages);
    d->pool.num_free = TAKE(int32_t, PART_STATE, 1);
    d->num_row_pages = TAKE(int32_t, PART_STATE, b);
    d->cache_len = TAKE(int32_t, PART_IN, b);
    if (r->mode->has_kv) {
        d->copy_src_page = TAKE(int32_t, PART_OUT, b);
        d->copy_dst_page = TAKE(int32_t, PART_OUT, b);
    } else {
        d->finished = TAKE(uint8_t, PART_IN, b);
    }
    d->row_status = TAKE(uint32_t, PART_OUT, b);
    d->batch = b, d->reserve = r->gamma + 1;
}

static void describe_fork(const moves_run *r, moves_memory *m, specv_page_fork_desc *d) {
    const specv_kv_cache kv = describe_cache(r, m);
    d->num_slots = r->batch, d->num_forks = r->batch / 2;
    d->page_size = MOVES_PAGE, d->num_pages = kv.num_pages;
    d->max_row_pages = pages_of(r->positions);
    d->block_table = kv.block_table;
    d->page_refs = TAKE(int32_t, PART_STATE, kv.num_pages);
    d->num_row_pages = TAKE(int32_t, PART_STATE, r->batch);
    d->cache_len = TAKE(int32_t, PART_STATE, r->batch);
    d->src_slot = TAKE(int32_t, PART_IN, r->batch);
    d->dst_slot = TAKE(int32_t, PART_IN, r->batch);
    d->fork_status = TAKE(uint32_t, PART_OUT, r->batch);
}

/* Paths of gamma nodes behind the root, of the trees that engines ask for. */
enum { MOVES_NODES = 60 };

static void describe_commit(const moves_run *r, moves_memory *m, specv_commit_path_desc *d) {
    d->batch = r->batch, d->max_nodes = MOVES_NODES, d->max_depth = r->gamma;
    d->accepted_len = TAKE(int32_t, PART_IN, r->batch);
    d->path = TAKE(int32_t, PART_IN, r->batch * (r->gamma + 1));
    d->ticket = TAKE(uint32_t, PART_IN, 1);
    d->new_cache_len = TAKE(int32_t, PART_STATE, r->batch);
    d->cache_len = d->new_cache_len;
    d->row_status = TAKE(uint32_t, PART_OUT, r->batch);
    d->kv = describe_cache(r, m);
}

/* Trees of `positions` nodes. */
static void describe_layout(const moves_run *r, moves_memory *m, specv_tree_layout_desc *d) {
    const int64_t nodes = (int64_t)r->batch * r->positions;
    d->form = SPECV_TREE_LINKS, d->link_dtype = SPECV_I64;
    d->batch = r->batch, d->max_nodes = r->positions;
    d->first_child = TAKE(int64_t, PART_IN, nodes);
    d->next_sibling = TAKE(int64_t, PART_IN, nodes);
    d->position = TAKE(int32_t, PART_IN, r->batch);
    d->parent = TAKE(int32_t, PART_OUT, nodes);
    d->depth = TAKE(int32_t, PART_OUT, nodes);
    d->position_ids = TAKE(int32_t, PART_OUT, nodes);
    d->mask = TAKE(uint32_t, PART_OUT, nodes * specv_i_mask_words(d->max_nodes));
    d->row_status = TAKE(uint32_t, PART_OUT, r->batch);
}

static void describe_realign(const moves_run *r, moves_memory *m, specv_realign_desc *d) {
    d->token_dtype = SPECV_I64;
    d->batch = r->batch, d->max_draft = r->gamma;
    d->out_tokens = TAKE(int64_t, PART_IN, r->batch * (r->gamma + 1));
    d->num_emitted = TAKE(int32_t, PART_IN, r->batch);
    d->ticket = TAKE(uint32_t, PART_IN, 1);
    d->pad_len = TAKE(int32_t, PART_STATE, r->batch);
    d->shifts = TAKE(specv_shift, PART_OUT, r->batch);
    d->row_status = TAKE(uint32_t, PART_OUT, r->batch);
    d->columns = describe_columns(r, m);
    d->kv = describe_cache(r, m);
}

static void describe_gap(const moves_run *r, moves_memory *m, specv_gap_commit_desc *d) {
    d->token_dtype = SPECV_I64;
    d->batch = r->batch, d->max_draft = r->gamma;
    d->accepted_len = TAKE(int32_t, PART_IN, r->batch);
    d->out_tokens = TAKE(int64_t, PART_IN, r->batch * (r->gamma + 1));
    d->num_emitted = TAKE(int32_t, PART_IN, r->batch);
    d->ticket = TAKE(uint32_t, PART_IN, 1);
    d->text_len = TAKE(int32_t, PART_STATE, r->batch);
    d->max_draft_lacks = TAKE(int32_t, PART_OUT, 1);
    d->row_status = TAKE(uint32_t, PART_OUT, r->batch);
    d->columns = describe_columns(r, m);
}

/* Carried: seeds, temperatures, block tables. */
static const int64_t carried_bytes[] = {8, 4, 512};

static void describe_compact(const moves_run *r, moves_memory *m, specv_compact_desc *d) {
    const int b = r->batch;
    d->batch = b;
    d->finished = TAKE(uint8_t, PART_IN, b);
    d->cache_len = TAKE(int32_t, PART_IN, b);
    d->draft_cache_len = TAKE(int32_t, PART_IN, b);
    d->active = TAKE(int32_t, PART_OUT, b);
    d->new_num_active = TAKE(int32_t, PART_OUT, 1);
    d->start_position = TAKE(int32_t, PART_OUT, b);
    d->draft_lacks_first = TAKE(int32_t, PART_OUT, b);
    d->draft_lacks_start = TAKE(int32_t, PART_OUT, b + 1);
    d->row_status = TAKE(uint32_t, PART_OUT, b);
    d->num_carry = (int)(sizeof carried_bytes / sizeof carried_bytes[0]);
    for (int i = 0; i < d->num_carry; ++i) {
        d->carry[i].elem_bytes = carried_bytes[i];
        d->carry[i].data = TAKE(char, PART_IN, b *carried_bytes[i]);
    }
}

static int blocks_of_compact(const specv_compact_desc *d) {
    int blocks = 1;
    for (int i = 0; i < d->num_carry; ++i) blocks += specv_i_num_slices(d->carry[i].elem_bytes);
    return blocks;
}

static void describe_group(const moves_run *r, moves_memory *m, specv_group_desc *d) {
    d->batch = r->batch, d->num_pick = MOVES_PICK;
    d->length = TAKE(int32_t, PART_IN, r->batch);
    d->ticket = TAKE(uint32_t, PART_IN, 1);
    d->order = TAKE(int32_t, PART_OUT, r->batch);
    d->group_start = TAKE(int32_t, PART_OUT, r->batch + 1);
    d->group_count = TAKE(int32_t, PART_OUT, 1);
    d->pick_rows = TAKE(int32_t, PART_OUT, d->num_pick);
    d->is_group = TAKE(int32_t, PART_OUT, 1);
}

static void describe_budget(const moves_run *r, moves_memory *m, specv_draft_budget_desc *d) {
    d->rows.batch = r->batch, d->rows.max_draft = r->gamma;
    d->confidence = TAKE(float, PART_IN, r->batch * r->gamma);
    d->survival = TAKE(float, PART_OUT, r->batch * r->gamma);
    d->new_draft_len = TAKE(int32_t, PART_OUT, r->batch);
    d->new_row_start = TAKE(int32_t, PART_OUT, r->batch + 1);
    d->row_status = TAKE(uint32_t, PART_OUT, r->batch);
    d->max_budget = r->batch * r->gamma * 3 / 5;
}

/* Tokens as D1 and D3 keep them, one of them an EOS; log-probabilities of drafts as a sampler
   leaves them: all particles of a position, then those of the next. */
enum { MOVES_EOS = 2, MOVES_VOCAB = 32000 };

static void describe_weights(const moves_run *r, moves_memory *m, specv_particle_weights_desc *d) {
    const int b = r->batch, gamma = r->gamma;
    d->token_dtype = SPECV_I64;
    d->batch = b, d->max_draft = gamma;
    d->draft_tokens = TAKE(int64_t, PART_IN, b * gamma);
    d->next_token = TAKE(int64_t, PART_IN, b);
    d->target_logprob = TAKE(float, PART_IN, b *gamma);
    d->draft_logprob = TAKE(float, PART_IN, b *gamma);
    d->draft_logprob_seq_stride_elems = 1, d->draft_logprob_pos_stride_elems = b;
    if (r->mode->power) {
        d->alpha = TAKE(float, PART_IN, b);
        d->bonus_lse = TAKE(float, PART_IN, b);
        d->lse = TAKE(float, PART_IN, b);
    }
    d->finished = TAKE(uint8_t, PART_STATE, b);
    d->log_weight = TAKE(double, PART_STATE, b);
    d->interval_weight = TAKE(double, PART_STATE, b);
    d->num_emitted = TAKE(int32_t, PART_OUT, b);
    d->row_status = TAKE(uint32_t, PART_OUT, b);
    d->eos_token[0] = MOVES_EOS, d->num_eos = 1;
}

/* As a step calls it: drawn_row and num_copies are for its end and for statistics. */
static void describe_plan(const moves_run *r, moves_memory *m, specv_resample_plan_desc *d) {
    const int groups = r->batch / r->mode->particles;
    d->num_groups = groups, d->num_particles = r->mode->particles;
    d->scheme = SPECV_RESAMPLE_SYSTEMATIC, d->threshold = 0.5;
    d->interval_weight = TAKE(double, PART_STATE, r->batch);
    d->log_weight = TAKE(double, PART_STATE, r->batch);
    d->log_z = TAKE(double, PART_STATE, groups);
    d->seed = TAKE(uint64_t, PART_IN, groups);
    d->position = TAKE(int32_t, PART_IN, groups);
    d->jobs = TAKE(int32_t, PART_OUT, 2 * (r->batch - groups));
    d->num_jobs = TAKE(int32_t, PART_OUT, groups);
    d->ess = TAKE(double, PART_OUT, groups);
    d->group_status = TAKE(uint32_t, PART_OUT, groups);
}

/* Pages for one whole row of each group, and for what each particle has alone: see
   fill_particle_cache. */
static specv_particle_cache describe_particle_cache(const moves_run *r, moves_memory *m) {
    specv_particle_cache c = SPECV_ZERO;
    c.page_size = MOVES_PAGE, c.max_row_pages = pages_of(r->positions);
    c.num_pages = r->batch / r->mode->particles * c.max_row_pages + r->batch * r->mode->particles;
    c.pool.page_refs = TAKE(int32_t, PART_STATE, c.num_pages);
    c.pool.free_pages = TAKE(int32_t, PART_STATE, c.num_pages);
    c.pool.num_free = TAKE(int32_t, PART_STATE, 1);
    c.block_table = TAKE(int32_t, PART_STATE, (int64_t)r->batch * c.max_row_pages);
    c.num_row_pages = TAKE(int32_t, PART_STATE, r->batch);
    c.cache_len = TAKE(int32_t, PART_STATE, r->batch);
    return c;
}

/* Carried: finished of D1, the next token. */
static const int64_t particle_bytes[] = {1, 8};

/* Text, its lengths and what is carried are the same after a second launch. */
static void describe_reshuffle(const moves_run *r, moves_memory *m, specv_reshuffle_desc *d) {
    const int groups = r->batch / r->mode->particles, jobs = r->batch - groups;
    d->token_dtype = SPECV_I64;
    d->batch = r->batch, d->num_groups = groups, d->max_jobs = r->mode->particles - 1;
    d->jobs = TAKE(int32_t, PART_IN, 2 * jobs);
    d->num_jobs = TAKE(int32_t, PART_IN, groups);
    d->num_caches = SPECV_MAX_CACHES;
    for (int i = 0; i < d->num_caches; ++i) d->cache[i] = describe_particle_cache(r, m);
    d->num_carry = (int)(sizeof particle_bytes / sizeof particle_bytes[0]);
    for (int i = 0; i < d->num_carry; ++i) {
        d->carry[i].elem_bytes = particle_bytes[i];
        d->carry[i].data = TAKE(char, PART_IN, r->batch *particle_bytes[i]);
    }
    d->text_stride_elems = r->positions;
    d->text = TAKE(int64_t, PART_IN, (int64_t)r->batch * r->positions);
    d->text_len = TAKE(int32_t, PART_IN, r->batch);
    d->job_status = TAKE(uint32_t, PART_OUT, jobs);
    d->scratch_bytes =
        specv_reshuffle_scratch_bytes(jobs, (int64_t)d->cache[0].num_pages + d->cache[1].num_pages);
    d->scratch = TAKE(char, PART_SCRATCH, d->scratch_bytes);
}

static void describe_move(const moves_run *r, moves_memory *m, moves_desc *d) {
    memset(d, 0, sizeof *d);
#define KIND(kind, op)                                                                             \
    case MOVE_##kind: describe_##kind(r, m, &d->kind); break;
    switch (r->mode->kind) { MOVES_KINDS(KIND) }
#undef KIND
}

/* ------------------------------------------------------------------------------------------ inputs

   Each fills the numbers of one slot, on the host, and adds the bytes of its launch: what moves of
   a plane; the least that is read and written beside that; what the kit asks for on top. */

typedef struct moves_bytes {
    int64_t moved, least, more;
} moves_bytes;

static int random_below(int64_t bound) { return (int)(bench_random() % (uint64_t)bound); }

static void shuffle_pages(int32_t *pages, int count) {
    for (int i = 0; i < count; ++i) {
        const int other = random_below(i + 1);
        pages[i] = pages[other], pages[other] = i;
    }
}

static int blocks_of_move(const moves_run *r, const specv_kv_cache *kv) {
    const int each = r->mode->kind == MOVE_append   ? r->gamma + 1
                     : r->mode->kind == MOVE_commit ? r->gamma
                                                    : MOVES_PAGE;
    return specv_i_move_blocks(kv, (int64_t)r->batch * each, r->num_sms);
}

static void fill_append(const moves_run *r, const specv_append_kv_desc *d, moves_bytes *n) {
    const int columns = r->gamma + 1, blocks = blocks_of_move(r, &d->kv);
    int64_t entries = 0; /* of block tables, to append, and those that the next pass needs beside */
    if (r->mode->paged) shuffle_pages(d->kv.block_table, d->kv.num_pages);
    for (int b = 0; b < r->batch; ++b) {
        const int k = bench_accepted(r->gamma, r->alpha, 0);
        const int len = random_below(r->positions - 2 * columns + 1);
        const int last = pages_of(len + 1 + k), next = pages_of(len + 1 + k + columns);
        ((int32_t *)d->accepted_len)[b] = k;
        d->cache_len[b] = len, d->draft_cache_len[b] = len + r->gamma;
        if (r->mode->has_kv) n->moved += (int64_t)(1 + k) * MOVES_ROW;
        if (r->mode->paged) entries += last - len / MOVES_PAGE, n->least += 4 * (next - last);
    }
    n->least += r->batch * (4 + 8 + 8 + 4 + 4 + 12 * columns) + 4 * entries;
    n->more += blocks * (8 * (int64_t)r->batch + 4 * entries);
    /* A lane looks its page up once a piece, which is a position: 4 units of 16 bytes. */
    if (r->mode->paged) n->more += n->moved / 64 * 4 * r->planes;
}

/* Rows own the pages that their last step needed. Without KV, a row in 16 has finished; with KV,
   rows come in pairs, and the second has just been forked from the first. */
static void fill_resize(const moves_run *r, const specv_page_resize_desc *d, moves_bytes *n) {
    const int columns = r->gamma + 1, row_pages = pages_of(r->positions), forks = r->mode->has_kv;
    int32_t *pages = (int32_t *)malloc(sizeof *pages * (size_t)d->kv.num_pages);
    int used = 0;
    shuffle_pages(pages, d->kv.num_pages);
    for (int b = 0; b < r->batch; ++b) {
        int32_t *table = d->kv.block_table + (int64_t)b * row_pages;
        const int is_fork = forks && b % 2, finished = !forks && b % 16 == 3;
        int len = 1 + columns + random_below(r->positions - 2 * columns), held, keep, first;
        if (is_fork) len = d->cache_len[b - 1];
        held = pages_of(forks ? len : len + columns - 1 - bench_accepted(r->gamma, r->alpha, 0));
        keep = finished ? 0 : pages_of(len + columns);
        for (int i = 0; i < row_pages; ++i) {
            table[i] = i >= held ? -1 : is_fork ? table[i - row_pages] : pages[used++];
            if (i < held) d->pool.page_refs[table[i]] += 1;
        }
        ((int32_t *)d->cache_len)[b] = len;
        d->num_row_pages[b] = held;
        if (!forks) ((uint8_t *)d->finished)[b] = (uint8_t)finished;
        first = finished ? 0 : len / MOVES_PAGE;
        n->least += 4 + 4 + 4 + (forks ? 8 : 1);
        n->least += 8 * (held > first ? held - first : 0); /* entries that are looked at */
        if (held != keep) n->least += 4 + 12 * (held > keep ? held - keep : keep - held);
        if (!is_fork || len % MOVES_PAGE == 0) continue;
        n->least += 20; /* the copy: its page and entry, and an owner less */
        n->moved += (int64_t)(len % MOVES_PAGE) * MOVES_ROW;
    }
    *d->pool.num_free = d->kv.num_pages - used;
    memcpy(d->pool.free_pages, pages + used, sizeof *pages * (size_t)*d->pool.num_free);
    n->least += 8;
    if (forks) n->more += 12 * (int64_t)r->batch * blocks_of_move(r, &d->kv);
    free(pages);
}

static void fill_fork(const moves_run *r, const specv_page_fork_desc *d, moves_bytes *n) {
    const int row_pages = d->max_row_pages;
    memset(d->block_table, 0xff, sizeof(int32_t) * (size_t)(r->batch * row_pages));
    for (int i = 0; i < d->num_forks; ++i) {
        const int len = 1 + random_below(r->positions), held = pages_of(len);
        ((int32_t *)d->src_slot)[i] = i, ((int32_t *)d->dst_slot)[i] = d->num_forks + i;
        d->cache_len[i] = len, d->num_row_pages[i] = held;
        for (int x = 0; x < held; ++x) {
            int32_t *page = &d->block_table[i * row_pages + x];
            *page = x * r->batch + i; /* a row's pages lie apart */
            d->page_refs[*page] = 1;
        }
        n->least += 8 + 8 + 12 + 4 + 16 * held;
        n->more += 8 * d->num_forks + 8 * held; /* each looks at all forks; entries twice */
    }
}

static void fill_commit(const moves_run *r, const specv_commit_path_desc *d, moves_bytes *n) {
    const int k = r->gamma, blocks = blocks_of_move(r, &d->kv);
    int64_t entries = 0; /* of block tables, on either side */
    if (k >= MOVES_NODES || r->positions < MOVES_NODES)
        bench_fail("too few nodes or positions for a path", -1);
    if (r->mode->paged) shuffle_pages(d->kv.block_table, d->kv.num_pages);
    for (int b = 0; b < r->batch; ++b) {
        int32_t *path = (int32_t *)d->path + (int64_t)b * (k + 1);
        const int len = random_below(r->positions - MOVES_NODES + 1);
        for (int node = 1, j = 1; j <= k; ++node) /* each set of k nodes is as likely */
            if (random_below(MOVES_NODES - node) < k + 1 - j) path[j++] = node;
        for (int j = 0; j <= k; ++j) n->moved += path[j] != j ? MOVES_ROW : 0;
        ((int32_t *)d->accepted_len)[b] = k;
        d->new_cache_len[b] = len;
        if (r->mode->paged) entries += 2 * (k + 1);
    }
    n->least += r->batch * (4 + 4 * (k + 1) + 8 + 4) + 4 * entries;
    n->more += blocks * (r->batch * (8 + 4 * (k + 1)) + 4 * entries);
    /* A lane asks for the node and its pages again, for each unit of 16 bytes. */
    n->more += n->moved / 16 * (r->mode->paged ? 12 : 4) * r->planes;
}

static void fill_layout(const moves_run *r, const specv_tree_layout_desc *d, moves_bytes *n) {
    const int nodes = d->max_nodes;
    int *last = (int *)malloc(sizeof *last * (size_t)nodes); /* child of each node so far */
    for (int b = 0; b < r->batch; ++b) {
        int64_t *child = (int64_t *)d->first_child + (int64_t)b * nodes;
        int64_t *sibling = (int64_t *)d->next_sibling + (int64_t)b * nodes;
        ((int32_t *)d->position)[b] = random_below(4096);
        for (int i = 0; i < nodes; ++i) {
            const int parent = i ? random_below(i) : 0;
            child[i] = sibling[i] = -1, last[i] = 0;
            if (i && last[parent])
                sibling[last[parent]] = i;
            else if (i)
                child[parent] = i;
            if (i) last[parent] = i;
        }
    }
    free(last);
    n->least += (int64_t)r->batch * (nodes * (2 * 8 + 3 * 4 + 4 * specv_i_mask_words(nodes)) + 8);
}

static void fill_columns(const moves_run *r, const specv_columns *c, int b, int first, int width) {
    for (int x = 0; x < c->max_columns; ++x) {
        const int64_t at = (int64_t)b * c->max_columns + x;
        const int mask = x >= first && x < width;
        ((int64_t *)c->tokens)[at] = mask ? random_below(32000) : 0;
        ((int64_t *)c->mask)[at] = mask;
        ((int64_t *)c->position_ids)[at] = x >= first ? x - first : 0;
    }
    *c->width = width;
    (void)r;
}

static void fill_emitted(const moves_run *r, const void *out_tokens, int b, int count) {
    int64_t *row = (int64_t *)out_tokens + b * (r->gamma + 1);
    for (int j = 0; j <= r->gamma; ++j) row[j] = j < count ? random_below(32000) : -1;
}

/* Each block looks at all shifts; a thread asks for its plane once a slice. */
static int64_t shifts_and_planes(const moves_run *r, int64_t movers) {
    const int64_t slices = r->planes * (MOVES_ROW / SPECV_SHIFT_SLICE);
    const int64_t items = r->batch * slices,
                  blocks = items < 2 * r->num_sms ? items : 2 * r->num_sms;
    return blocks * r->batch * 16 + movers * slices * SPECV_COLUMN_THREADS * 8;
}

/* The longest sequence has no padding, the others up to a quarter of the width. */
static void fill_realign(const moves_run *r, const specv_realign_desc *d, moves_bytes *n) {
    const int width = r->positions - r->gamma - 1;
    int64_t stays = 0, movers = 0;
    int new_width = 0;
    for (int b = 0; b < r->batch; ++b) {
        const int pad = b ? random_below(width / 4 + 1) : 0;
        const int k = r->mode->uniform ? r->gamma / 2 : bench_accepted(r->gamma, r->alpha, 0);
        d->pad_len[b] = pad, ((int32_t *)d->num_emitted)[b] = 1 + k;
        fill_emitted(r, d->out_tokens, b, 1 + k);
        fill_columns(r, &d->columns, b, pad, width);
        if (width - pad + 1 + k > new_width) new_width = width - pad + 1 + k;
    }
    for (int b = 0; b < r->batch; ++b) {
        const int pad = d->pad_len[b], content = width - pad, gain = d->num_emitted[b];
        const int new_pad = new_width - content - gain, end = new_width + r->gamma;
        const int first = new_pad == pad ? width : new_pad < pad ? new_pad : pad;
        n->least += 4 + 4 + 16 + 4 + 8 * gain + 24 * (end - first);
        *(new_pad == pad ? &stays : &n->moved) += (int64_t)(content + gain - 1) * MOVES_ROW;
        movers += new_pad != pad;
        if (new_pad != pad) n->least += 4 + 8 * content;
    }
    n->least += 8;
    n->more += 8 * (int64_t)r->batch * r->batch + /* all numbers */
               shifts_and_planes(r, movers);
    if (r->mode->published) n->more += (r->plane_bytes + 2 * stays) * r->planes;
}

static void fill_gap(const moves_run *r, const specv_gap_commit_desc *d, moves_bytes *n) {
    const int width = r->positions / 2;
    int furthest = 0;
    for (int b = 0; b < r->batch; ++b) {
        const int k = bench_accepted(r->gamma, r->alpha, 0);
        ((int32_t *)d->accepted_len)[b] = k, ((int32_t *)d->num_emitted)[b] = k + 1;
        d->text_len[b] = 1 + random_below(width);
        fill_emitted(r, d->out_tokens, b, k + 1);
        fill_columns(r, &d->columns, b, width - d->text_len[b], width);
        n->least += 4 + 4 + 8 + 4 + 8 * (k + 1);
        if (k > furthest) furthest = k;
    }
    n->least += 8 + 4 + (int64_t)r->batch * 24 * (furthest + 1 + r->gamma);
    n->more += 12 * (int64_t)r->batch * r->batch;
}

static void fill_compact(const moves_run *r, const specv_compact_desc *d, moves_bytes *n) {
    int stays = 0;
    for (int b = 0; b < r->batch; ++b) {
        const int finished = random_below(8) == 0, len = 100 + random_below(1900);
        ((uint8_t *)d->finished)[b] = (uint8_t)finished;
        ((int32_t *)d->cache_len)[b] = len;
        ((int32_t *)d->draft_cache_len)[b] = len - random_below(2);
        for (int i = 0; !finished && stays < b && i < d->num_carry; ++i)
            n->least += 2 * d->carry[i].elem_bytes;
        stays += !finished;
    }
    n->least += r->batch * (1 + 8 + 20) + 8;
    n->more += (int64_t)r->batch * (blocks_of_compact(d) - 1);
}

static void fill_group(const moves_run *r, const specv_group_desc *d, moves_bytes *n) {
    const int blocks = (r->batch + SPECV_GROUP_ROWS - 1) / SPECV_GROUP_ROWS;
    for (int b = 0; b < r->batch; ++b) ((int32_t *)d->length)[b] = 500 + random_below(24);
    n->least += 4 * (3 * r->batch + 1 + d->num_pick + 2);
    n->more += 4 * (int64_t)r->batch * blocks + 4 * r->batch;
}

static void fill_budget(const moves_run *r, const specv_draft_budget_desc *d, moves_bytes *n) {
    int steps = 1;
    for (int i = 0; i < r->batch * r->gamma; ++i)
        ((float *)d->confidence)[i] = (float)(0.3 + 0.7 * bench_uniform());
    while (r->gamma >> steps) ++steps;
    n->least += 8 * (int64_t)r->batch * r->gamma + 12 * r->batch + 4;
    if (r->batch > SPECV_BUDGET_THREADS || r->batch * (r->gamma | 1) > SPECV_BUDGET_NEAR)
        n->more += (3 * r->gamma + 2 * steps) * 4 * (int64_t)r->batch;
}

static double random_normal(void) {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += bench_uniform();
    return sum;
}

/* One particle in 16 has finished, and one in 64 drafts an EOS. */
static void fill_weights(const moves_run *r, const specv_particle_weights_desc *d, moves_bytes *n) {
    for (int b = 0; b < r->batch; ++b) {
        const int finished = b % 16 == 3, end = b % 64 == 5 ? r->gamma / 2 : r->gamma;
        const int ends = end < r->gamma, power = r->mode->power;
        for (int j = 0; j < r->gamma; ++j) {
            const int64_t at = (int64_t)b * r->gamma + j;
            const int token = MOVES_EOS + 1 + random_below(MOVES_VOCAB);
            ((int64_t *)d->draft_tokens)[at] = j == end ? (int)MOVES_EOS : token;
            ((float *)d->target_logprob)[at] = (float)(-4 * bench_uniform());
            ((float *)d->draft_logprob)[(int64_t)j * r->batch + b] = (float)(-4 * bench_uniform());
        }
        ((int64_t *)d->next_token)[b] = MOVES_EOS + 1 + random_below(MOVES_VOCAB);
        if (power) {
            ((float *)d->alpha)[b] = 2;
            ((float *)d->bonus_lse)[b] = (float)(20 + bench_uniform());
            ((float *)d->lse)[b] = (float)(10 + bench_uniform());
        }
        d->finished[b] = (uint8_t)finished;
        d->log_weight[b] = 4 * random_normal(), d->interval_weight[b] = random_normal();
        n->least += 1 + 2 * 16 + 4 + 4; /* weights also of the finished: they are cleaned */
        n->least += finished ? 0 : ends ? 16 * (end + 1) + 1 : 16 * r->gamma + 8;
        if (power) n->least += finished ? 0 : ends ? 4 : 12;
        if (power && finished) n->more += 4;
    }
}

/* Weights that vary by a factor of 4.5 in every other group, which then has an effective size of
   about a tenth and resamples, and little in the others; or in no group. */
static void draw_weights(double *weights, int batch, int particles, int uniform) {
    for (int b = 0; b < batch; ++b)
        weights[b] = random_normal() * (uniform || b / particles % 2 ? 0.2 : 1.5);
}

static void fill_plan(const moves_run *r, const specv_resample_plan_desc *d, moves_bytes *n) {
    specv_resample_plan_desc plan = *d;
    double *weights = (double *)malloc(sizeof *weights * (size_t)r->batch);
    int32_t *numbers = (int32_t *)malloc(8 * (size_t)r->batch);
    draw_weights(d->interval_weight, r->batch, d->num_particles, r->mode->uniform);
    for (int b = 0; b < r->batch; ++b) d->log_weight[b] = 4 * random_normal();
    for (int g = 0; g < d->num_groups; ++g) {
        ((uint64_t *)d->seed)[g] = bench_random();
        ((int32_t *)d->position)[g] = random_below(2048);
        d->log_z[g] = random_normal();
    }
    /* Who resamples, from a run of the reference on copies. */
    memcpy(weights, d->interval_weight, sizeof *weights * (size_t)r->batch);
    plan.interval_weight = weights, plan.log_weight = plan.log_z = plan.ess = NULL;
    plan.group_status = NULL, plan.jobs = numbers;
    plan.num_jobs = numbers + 2 * (r->batch - d->num_groups);
    if (specv_ref_resample_plan(&plan)) bench_fail("reference", -1);
    for (int g = 0; g < d->num_groups; ++g) {
        const int64_t first = (int64_t)g * d->num_particles;
        n->least += 8 * d->num_particles + 8 * (d->num_particles - 1) + 4 + 8 + 4;
        if (memcmp(weights + first, d->interval_weight + first, 8 * (size_t)d->num_particles))
            n->least += 16 * d->num_particles + 8 + 4 + 16;
    }
    free(weights);
    free(numbers);
}

/* Particles of a group are of one length. Their lines part where they last had an ancestor in
   common: for N of them some N steps ago, each of which filled about half a page. So each has up to
   N pages of its own, and before them the same as the first of its group. */
static void fill_particle_cache(const moves_run *r, const specv_particle_cache *c) {
    const int particles = r->mode->particles;
    int32_t *pages = (int32_t *)malloc(sizeof *pages * (size_t)c->num_pages);
    int used = 0;
    shuffle_pages(pages, c->num_pages);
    for (int b = 0; b < r->batch; ++b) {
        const int held = pages_of(c->cache_len[b]), own = held - 1 - random_below(particles);
        int32_t *table = c->block_table + (int64_t)b * c->max_row_pages;
        const int32_t *first = table - b % particles * (int64_t)c->max_row_pages;
        for (int e = 0; e < c->max_row_pages; ++e) {
            const int shared = e < own && b % particles;
            table[e] = e >= held ? -1 : shared ? first[e] : pages[used++];
            if (e < held) c->pool.page_refs[table[e]] += 1;
        }
        c->num_row_pages[b] = held;
    }
    *c->pool.num_free = c->num_pages - used;
    memcpy(c->pool.free_pages, pages + used, sizeof *pages * (size_t)*c->pool.num_free);
    free(pages);
}

/* Entries of a job's two rows: both are read, and one that changes is written, with the owners of
   two pages. Pages that are given back are marked, and all marks of the cache are looked at. */
static void count_shared(const specv_reshuffle_desc *d, const specv_particle_cache *c,
                         moves_bytes *n) {
    int32_t *owners = (int32_t *)malloc(sizeof *owners * (size_t)c->num_pages);
    int freed = 0;
    memcpy(owners, c->pool.page_refs, sizeof *owners * (size_t)c->num_pages);
    for (int j = 0; j < d->num_groups * d->max_jobs; ++j) {
        const int src = d->jobs[2 * j], dst = d->jobs[2 * j + 1];
        for (int e = 0; dst >= 0 && e < c->num_row_pages[dst]; ++e) {
            const int32_t old = c->block_table[(int64_t)dst * c->max_row_pages + e];
            const int32_t now = c->block_table[(int64_t)src * c->max_row_pages + e];
            n->least += old == now ? 8 : 8 + 4 + 2 * 8;
            owners[now] += 1;
            if (--owners[old] == 0) ++freed;
        }
    }
    n->least += 8 + 4 * freed;
    if (freed > 0) n->more += 12 * (int64_t)freed + c->num_pages / 8;
    free(owners);
}

/* Jobs are those of a plan. */
static void fill_reshuffle(const moves_run *r, const specv_reshuffle_desc *d, moves_bytes *n) {
    const int particles = r->mode->particles;
    double *weights = (double *)malloc(sizeof *weights * (size_t)r->batch);
    uint64_t *seeds = (uint64_t *)malloc(sizeof *seeds * (size_t)d->num_groups);
    int32_t *zeros = (int32_t *)calloc((size_t)d->num_groups, sizeof *zeros);
    specv_resample_plan_desc plan = SPECV_ZERO;
    draw_weights(weights, r->batch, particles, r->mode->uniform);
    for (int g = 0; g < d->num_groups; ++g) seeds[g] = bench_random();
    plan.num_groups = d->num_groups, plan.num_particles = particles, plan.threshold = 0.5;
    plan.interval_weight = weights, plan.seed = seeds, plan.position = zeros;
    plan.jobs = (int32_t *)d->jobs, plan.num_jobs = (int32_t *)d->num_jobs;
    if (specv_ref_resample_plan(&plan)) bench_fail("reference", -1);
    free(weights);
    free(seeds);
    free(zeros);
    for (int b = 0; b < r->batch; ++b) {
        d->text_len[b] = b % particles ? d->text_len[b - 1]
                                       : r->positions / 2 + 1 + random_below(r->positions / 2);
        for (int i = 0; i < d->num_caches; ++i) /* the draft model lacks one more token */
            d->cache[i].cache_len[b] = d->text_len[b] - 1 - i;
        for (int x = 0; x < d->text_len[b]; ++x)
            ((int64_t *)d->text)[(int64_t)b * r->positions + x] = random_below(MOVES_VOCAB);
    }
    for (int i = 0; i < d->num_carry; ++i)
        for (int64_t x = 0; x < r->batch * d->carry[i].elem_bytes; ++x)
            ((char *)d->carry[i].data)[x] = (char)bench_random();
    for (int i = 0; i < d->num_caches; ++i) {
        fill_particle_cache(r, &d->cache[i]);
        count_shared(d, &d->cache[i], n);
    }
    n->least += 4 * d->num_groups;
    for (int j = 0; j < d->num_groups * d->max_jobs; ++j) {
        const int src = d->jobs[2 * j];
        n->least += 4;        /* status */
        n->more += 4 + 8 + 4; /* is there such a job: its own block, and the last one */
        if (src < 0) continue;
        n->least += 8 + (12 + 8) * d->num_caches + 8 + 16 * (int64_t)d->text_len[src];
        for (int i = 0; i < d->num_carry; ++i) n->least += 2 * d->carry[i].elem_bytes;
        n->more += 2 * 32; /* what came of it, for the last block */
    }
}

static void fill_move(const moves_run *r, const moves_desc *d, moves_bytes *n) {
#define KIND(kind, op)                                                                             \
    case MOVE_##kind: fill_##kind(r, &d->kind, n); break;
    switch (r->mode->kind) { MOVES_KINDS(KIND) }
#undef KIND
}

/* ------------------------------------------------------------------------------------------- KV */

__host__ __device__ static uint64_t moves_word(int64_t plane, int64_t word) {
    return scores_hash((uint64_t)word) ^ (uint64_t)plane << 48;
}

/* All planes of a cache, or of sources, one behind the other. */
extern "C" __global__ void moves_fill(uint64_t *planes, int64_t plane_words, int64_t words) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < words; i += step)
        planes[i] = moves_word(i / plane_words, i % plane_words);
}

/* Does every plane hold what the last one holds, under a tag of its own? */
extern "C" __global__ void moves_compare(const uint64_t *planes, int64_t plane_words, int64_t words,
                                         uint32_t *differs) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x, last = words / plane_words - 1;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < words; i += step) {
        const uint64_t mine = planes[i], other = planes[last * plane_words + i % plane_words];
        const uint64_t tags = (uint64_t)(i / plane_words ^ last) << 48;
        if ((mine ^ other) != tags && (mine | other) != 0) *differs = 1;
    }
}

/* Grid: (sequences x planes, parts of their columns). Positions of a sequence are contiguous. */
extern "C" __global__ void moves_published(const char *cache, char *fresh, int64_t plane_bytes,
                                           const specv_shift *shifts, int batch) {
    const int b = (int)blockIdx.x % batch, plane = (int)blockIdx.x / batch;
    const specv_shift shift = shifts[b];
    const int64_t sequence = plane * plane_bytes + plane_bytes / batch * b;
    const int64_t step = (int64_t)gridDim.y * blockDim.x;
    const int64_t count = (int64_t)shift.count * MOVES_ROW / 16;
    const uint4 *src = (const uint4 *)(const void *)(cache + sequence);
    uint4 *dst = (uint4 *)(void *)(fresh + sequence);
    src += (int64_t)shift.first * MOVES_ROW / 16;
    dst += (int64_t)(shift.first + shift.by) * MOVES_ROW / 16;
    for (int64_t i = (int64_t)blockIdx.y * blockDim.x + threadIdx.x; i < count; i += step)
        dst[i] = src[i];
}

/* Is a kernel over so many bytes, which is not what is measured, better run on the host? */
static int is_for_host(int64_t bytes) {
    return BENCH_IS_SIMULATED || (bench.interpreted && bytes > (int64_t)32 << 20);
}

static void fill_planes(const moves_run *r, char *planes, int64_t plane_bytes, int num_planes) {
    uint64_t *plane = (uint64_t *)(void *)host_out;
    const int on_host = is_for_host(plane_bytes * num_planes);
    for (int p = 0; on_host && p < num_planes; ++p) {
        for (int64_t i = 0; i < plane_bytes / 8; ++i) plane[i] = moves_word(p, i);
        CUDA_CHECK(cudaMemcpy(planes + p * plane_bytes, plane, (size_t)plane_bytes,
                              cudaMemcpyHostToDevice));
    }
    if (on_host) return;
    moves_fill<<<(unsigned)(8 * r->num_sms), 256, 0, bench.stream>>>(
        (uint64_t *)(void *)planes, plane_bytes / 8, plane_bytes / 8 * num_planes);
    CUDA_CHECK(cudaGetLastError());
}

static char *fresh_planes(const moves_run *r) { return r->kv + r->plane_bytes * r->planes; }

/* ------------------------------------------------------------------------------------- launches */

static void reset_slots(const moves_run *r, int set, cudaStream_t stream) {
    if (set == 0 && r->part_bytes[PART_STATE])
        CUDA_CHECK(cudaMemcpyAsync(r->parts[PART_STATE], r->first_state,
                                   (size_t)(r->num_slots * r->part_bytes[PART_STATE]),
                                   cudaMemcpyDeviceToDevice, stream));
}

static int launch_published(const moves_run *r, const specv_realign_desc *of, cudaStream_t stream) {
    specv_realign_desc d = *of;
    int status;
    d.kv.planes = NULL, d.kv.num_planes = 0;
    status = specv_realign(&d, stream);
    for (int p = 0; p < r->planes && !status; ++p)
        status = (int)cudaMemsetAsync(fresh_planes(r) + p * r->plane_bytes, 0,
                                      (size_t)r->plane_bytes, stream);
    if (status) return status;
    moves_published<<<dim3((unsigned)(r->batch * r->planes), 16), 256, 0, stream>>>(
        r->kv, fresh_planes(r), r->plane_bytes, d.shifts, r->batch);
    return (int)cudaPeekAtLastError();
}

static int launch_move(const void *context, int set, cudaStream_t stream) {
    const moves_run *r = (const moves_run *)context;
    const moves_desc *d = &r->d[set];
    reset_slots(r, set, stream);
    if (r->mode->published) return launch_published(r, &d->realign, stream);
#define KIND(kind, op)                                                                             \
    case MOVE_##kind: return specv_##op(&d->kind, stream);
    switch (r->mode->kind) { MOVES_KINDS(KIND) }
#undef KIND
    return -1;
}

static int reference_of_move(const moves_run *r, const moves_desc *d) {
#define KIND(kind, op)                                                                             \
    case MOVE_##kind: return specv_ref_##op(&d->kind);
    switch (r->mode->kind) { MOVES_KINDS(KIND) }
#undef KIND
    return -1;
}

static int num_launches_of_move(const moves_run *r) {
    if (r->mode->published) return 1 + r->planes + 1;
    if (r->mode->kind == MOVE_append || r->mode->kind == MOVE_commit) return 1;
    return r->mode->has_kv ? 2 : 1;
}

/* --------------------------------------------------------------------------------------- set-up */

static char *carve(char **at, int64_t bytes) {
    char *here = *at;
    *at += align_up(bytes);
    return here;
}

/* Tables of planes: the cache's, then each source's. */
static void *plane_tables[MAX_SETS + 1][MOVES_MAX_PLANES];

/* How much memory a slot and a plane take, and where they are in the arena, with as many of the
   planes as it holds. Returns the place of the tables. */
static char *place_move(moves_run *r) {
    const int is_append = r->mode->kind == MOVE_append, is_realign = r->mode->kind == MOVE_realign;
    const int row_positions = r->mode->paged ? pages_of(r->positions) * MOVES_PAGE : r->positions;
    moves_memory size = SPECV_ZERO;
    char *at = arena, *tables;
    int64_t per_plane, numbers = sizeof plane_tables;
    moves_desc unused;
    for (int part = 0; part < NUM_PARTS; ++part) size.base[part] = arena;
    describe_move(r, &size, &unused);
    r->plane_bytes = (int64_t)r->batch * row_positions * MOVES_ROW;
    if (is_append && r->planes) { /* sources: twice the L2 together, as far as there are slots */
        r->source_bytes = (int64_t)r->batch * (r->gamma + 1) * MOVES_ROW;
        r->num_sources = (int)(2 * bench.l2_bytes / (r->source_bytes * r->planes)) + 2;
        if (r->num_sources > r->num_slots) r->num_sources = r->num_slots;
    }
    per_plane = r->plane_bytes * (is_realign ? 2 : 1) + r->source_bytes * r->num_sources;
    for (int part = 0; part < NUM_PARTS; ++part)
        numbers += r->num_slots * size.used[part] * (part == PART_STATE ? 2 : 1);
    while (r->planes > 1 && r->planes * per_plane + numbers > bench.arena_bytes) --r->planes;
    if (r->planes * per_plane + numbers > bench.arena_bytes)
        bench_fail("the arena is too small for a case", -1);
    for (int part = 0; part < NUM_PARTS; ++part) {
        r->part_bytes[part] = size.used[part];
        r->parts[part] = carve(&at, r->num_slots * size.used[part]);
    }
    r->first_state = carve(&at, r->num_slots * size.used[PART_STATE]);
    tables = carve(&at, sizeof plane_tables);
    r->kv = at, r->kv_bytes = r->planes * per_plane;
    return tables;
}

static void prepare_planes(const moves_run *r, char *tables) {
    for (int t = 0; t <= r->num_sources && r->planes; ++t) {
        const int64_t bytes = t ? r->source_bytes : r->plane_bytes;
        char *first = r->kv + (t ? r->planes * (r->plane_bytes + (t - 1) * r->source_bytes) : 0);
        for (int p = 0; p < r->planes; ++p) plane_tables[t][p] = first + p * bytes;
        fill_planes(r, first, bytes, r->planes);
    }
    if (r->mode->kind == MOVE_realign) fill_planes(r, fresh_planes(r), r->plane_bytes, r->planes);
    CUDA_CHECK(cudaMemcpy(tables, plane_tables, sizeof plane_tables, cudaMemcpyHostToDevice));
}

/* The numbers of slot s, which stay in host_in: the slot that is compared comes last. */
static void prepare_slot(moves_run *r, int s, char *tables) {
    const int64_t source = r->num_sources ? 1 + s % r->num_sources : 0;
    moves_memory m = SPECV_ZERO, h = SPECV_ZERO;
    moves_bytes n = SPECV_ZERO;
    char *host_at = host_in;
    moves_desc host;
    for (int part = 0; part < NUM_PARTS; ++part) {
        m.base[part] = r->parts[part] + s * r->part_bytes[part];
        h.base[part] = carve(&host_at, r->part_bytes[part]);
        memset(h.base[part], part == PART_OUT ? 0xa5 : 0, (size_t)r->part_bytes[part]);
    }
    m.cache = (void *const *)(void *)tables;
    m.rows = (const void *const *)(void *)(tables + source * (int64_t)sizeof plane_tables[0]);
    describe_move(r, &m, &r->d[s]);
    describe_move(r, &h, &host);
    fill_move(r, &host, &n);
    for (int part = 0; part < NUM_PARTS; ++part)
        CUDA_CHECK(cudaMemcpy(m.base[part], h.base[part], (size_t)r->part_bytes[part],
                              cudaMemcpyHostToDevice));
    CUDA_CHECK(cudaMemcpy(r->first_state + s * r->part_bytes[PART_STATE], h.base[PART_STATE],
                          (size_t)r->part_bytes[PART_STATE], cudaMemcpyHostToDevice));
    r->moved += n.moved * r->planes;
    r->least += n.least + 2 * n.moved * r->planes;
    r->asked += n.least + 2 * n.moved * r->planes + n.more;
}

static void prepare_move(moves_run *r, const moves_mode *mode, int batch, int gamma, int planes,
                         int positions, int num_slots) {
    char *tables;
    memset(r, 0, sizeof *r);
    if (mode->particles) batch = (batch + mode->particles - 1) / mode->particles * mode->particles;
    r->mode = mode, r->alpha = mode->kind >= MOVE_compact ? 0 : mode->uniform ? 0.5 : 0.6;
    r->batch = batch, r->gamma = gamma, r->positions = positions, r->num_slots = num_slots;
    r->planes = mode->has_kv ? (planes < MOVES_MAX_PLANES ? planes : MOVES_MAX_PLANES) : 0;
    if (positions <= 2 * (gamma + 1)) bench_fail("too few positions for a mode", -1);
    CUDA_CHECK(cudaDeviceGetAttribute(&r->num_sms, cudaDevAttrMultiProcessorCount, 0));
    tables = place_move(r);
    prepare_planes(r, tables);
    for (int s = num_slots - 1; s >= 0; --s) prepare_slot(r, s, tables);
    r->moved = r->moved / num_slots / 256 * 256;
    r->least /= num_slots, r->asked /= num_slots;
    CUDA_CHECK(cudaDeviceSynchronize()); /* our stream does not wait for the default one */
}

/* --------------------------------------------------------------------------------- verification */

static void differs_from_reference(const moves_run *r, const char *what) {
    fprintf(stderr,
            "bench: mode %s differs from the reference: %s; batch %d, gamma %d, planes %d, "
            "positions %d\n",
            r->mode->name, what, r->batch, r->gamma, r->planes, r->positions);
    exit(1);
}

static void expect_equal(const moves_run *r, const char *what, const void *device, const char *host,
                         int64_t bytes) {
    CUDA_CHECK(cudaMemcpy(host_out, device, (size_t)bytes, cudaMemcpyDeviceToHost));
    if (memcmp(host_out, host, (size_t)bytes) != 0) differs_from_reference(r, what);
}

/* What the published way must leave: zeros, and in them what the reference has moved. */
static void expect_published(const moves_run *r, const specv_realign_desc *d, const char *cache,
                             char *fresh) {
    memset(fresh, 0, (size_t)r->plane_bytes);
    for (int b = 0; b < r->batch; ++b) {
        const specv_shift *s = &d->shifts[b];
        const int64_t at = ((int64_t)b * r->positions + s->first + s->by) * MOVES_ROW;
        memcpy(fresh + at, cache + at, (size_t)s->count * MOVES_ROW);
    }
    expect_equal(r, "the new plane", fresh_planes(r) + (r->planes - 1) * r->plane_bytes, fresh,
                 r->plane_bytes);
}

static int planes_differ_on_host(const moves_run *r, const char *planes) {
    const int64_t bytes = r->plane_bytes, last = r->planes - 1;
    const uint64_t *mine = (const uint64_t *)(void *)host_out, *other = mine + bytes / 8;
    if (2 * bytes > HOST_BYTES) bench_fail("a plane is too large to be verified", -1);
    CUDA_CHECK(
        cudaMemcpy(host_out + bytes, planes + last * bytes, (size_t)bytes, cudaMemcpyDeviceToHost));
    for (int64_t p = 0; p < last; ++p) {
        CUDA_CHECK(cudaMemcpy(host_out, planes + p * bytes, (size_t)bytes, cudaMemcpyDeviceToHost));
        for (int64_t i = 0; i < bytes / 8; ++i)
            if ((mine[i] ^ other[i]) != (uint64_t)(p ^ last) << 48 && (mine[i] | other[i]) != 0)
                return 1;
    }
    return 0;
}

static void compare_planes(const moves_run *r, const char *planes) {
    static uint32_t *differs;
    uint32_t found;
    if (is_for_host(r->plane_bytes * r->planes)) {
        if (planes_differ_on_host(r, planes)) differs_from_reference(r, "a plane before the last");
        return;
    }
    if (!differs) CUDA_CHECK(cudaMalloc(&differs, sizeof *differs));
    CUDA_CHECK(cudaMemset(differs, 0, sizeof *differs));
    CUDA_CHECK(cudaDeviceSynchronize());
    moves_compare<<<(unsigned)(8 * r->num_sms), 256, 0, bench.stream>>>(
        (const uint64_t *)(const void *)planes, r->plane_bytes / 8, r->plane_bytes / 8 * r->planes,
        differs);
    bench_wait();
    CUDA_CHECK(cudaMemcpy(&found, differs, sizeof found, cudaMemcpyDeviceToHost));
    if (found) differs_from_reference(r, "a plane before the last");
}

static const char *const part_names[NUM_PARTS] = {"inputs", "state", "outputs", "scratch"};

/* Has slot 0 done the same once more, after any number of rounds? What verify_move expected is
   still in host_in. Columns and carried arrays, of the inputs, have moved on. */
static void verify_move_again(const moves_run *r) {
    expect_equal(r, part_names[PART_STATE], r->parts[PART_STATE],
                 host_in + align_up(r->part_bytes[PART_IN]), r->part_bytes[PART_STATE]);
    expect_equal(r, part_names[PART_OUT], r->parts[PART_OUT],
                 host_in + align_up(r->part_bytes[PART_IN]) + align_up(r->part_bytes[PART_STATE]),
                 r->part_bytes[PART_OUT]);
}

/* Slot 0, once, after prepare_move. Ends the program at a difference. */
static void verify_move(const moves_run *r) {
    static void *cache_table[MOVES_MAX_PLANES];
    static const void *rows_table[MOVES_MAX_PLANES];
    const int last = r->planes - 1;
    moves_memory h = SPECV_ZERO;
    char *host_at = host_in, *cache = NULL, *rows, *fresh;
    moves_desc host;
    int status;
    memset(cache_table, 0, sizeof cache_table);
    memset(rows_table, 0, sizeof rows_table);
    for (int part = 0; part < NUM_PARTS; ++part)
        h.base[part] = carve(&host_at, r->part_bytes[part]);
    cache = carve(&host_at, r->plane_bytes), rows = carve(&host_at, r->source_bytes);
    fresh = carve(&host_at, r->mode->published ? r->plane_bytes : 0);
    if (r->planes) { /* a plane that is null is skipped: the reference moves the last one */
        if (host_at - host_in > HOST_BYTES) bench_fail("a plane is too large to be verified", -1);
        cache_table[last] = cache, rows_table[last] = rows;
        CUDA_CHECK(cudaMemcpy(cache, r->kv + last * r->plane_bytes, (size_t)r->plane_bytes,
                              cudaMemcpyDeviceToHost));
        if (r->source_bytes)
            CUDA_CHECK(cudaMemcpy(rows, r->kv + r->planes * r->plane_bytes + last * r->source_bytes,
                                  (size_t)r->source_bytes, cudaMemcpyDeviceToHost));
    }
    h.cache = cache_table, h.rows = rows_table;
    describe_move(r, &h, &host);
    status = reference_of_move(r, &host);
    if (status) bench_fail("reference", status);
    status = launch_move(r, 0, bench.stream);
    if (status) bench_fail(r->mode->name, status);
    bench_wait();
    for (int part = 0; part < PART_SCRATCH; ++part)
        expect_equal(r, part_names[part], r->parts[part], h.base[part], r->part_bytes[part]);
    if (!r->planes) return;
    if (r->mode->published) {
        expect_published(r, &host.realign, cache, fresh);
        compare_planes(r, fresh_planes(r));
    } else {
        expect_equal(r, "the last plane", r->kv + last * r->plane_bytes, cache, r->plane_bytes);
        compare_planes(r, r->kv);
    }
}

/* ---------------------------------------------------------------------------------------- floor */

/* The bytes that move, from one half of all KV to the other, at another place each time. */
static int launch_floor_of_move(const void *context, int set, cudaStream_t stream) {
    const moves_run *r = (const moves_run *)context;
    const int64_t half = r->kv_bytes / 2 / 256 * 256, places = half - r->moved + 256;
    const char *src = r->kv + set * r->moved % places;
    reset_slots(r, set, stream);
    return (int)cudaMemcpyAsync((char *)src + half, src, (size_t)r->moved, cudaMemcpyDeviceToDevice,
                                stream);
}

static int launch_probe_of_move(const void *context, int set, cudaStream_t stream) {
    const moves_run *r = (const moves_run *)context;
    reset_slots(r, set, stream);
    return launch_floor_probe(&r->probe, set, stream);
}

/* Loads that wait for each other, in the grid of the operation: as many as it cannot do without, at
   most three. */
static bench_floor probe_of_move(const moves_run *r) {
    const int b = r->batch, particles = r->mode->particles;
    switch (r->mode->kind) {
    case MOVE_append: {
        const specv_kv_cache *kv = &r->d[0].append.kv;
        const int blocks = blocks_of_move(r, kv);
        return bench_probe(3, blocks, specv_i_move_threads(kv, b, blocks, r->num_sms));
    }
    case MOVE_commit:
        return bench_probe(3, blocks_of_move(r, &r->d[0].commit.kv), SPECV_COMMIT_THREADS);
    case MOVE_layout: return bench_probe(2, b, SPECV_LAYOUT_THREADS);
    case MOVE_resize:
        return bench_probe(3, 1, r->batch <= SPECV_PAGE_FEW ? SPECV_PAGE_FEW : SPECV_PAGE_THREADS);
    case MOVE_fork: return bench_probe(3, b > 1 ? b / 2 : 1, SPECV_FORK_THREADS);
    case MOVE_compact:
        return bench_probe(2, blocks_of_compact(&r->d[0].compact),
                           specv_i_threads_for(r->batch, SPECV_COMPACT_THREADS));
    case MOVE_group: return bench_probe(2, (b + 255) / 256, SPECV_COLUMN_THREADS);
    case MOVE_budget: return bench_probe(2, 1, specv_i_threads_for(r->batch, SPECV_BUDGET_THREADS));
    case MOVE_weights: return bench_probe(1, (b + 255) / 256, SPECV_PARTICLE_THREADS);
    case MOVE_plan: return bench_probe(2, b / particles, (particles + 31) / 32 * 32);
    case MOVE_reshuffle: return bench_probe(3, b - b / particles, SPECV_PARTICLE_THREADS);
    default: return bench_probe(2, b, SPECV_COLUMN_THREADS);
    }
}

static bench_bound measure_bound_of_move(moves_run *r) {
    static const char *const names[] = {"", "probe1", "probe2", "probe3"};
    bench_bound bound = {"", 0}, copy = {"copy", 0};
    r->probe = probe_of_move(r);
    bound.name = names[r->probe.depth];
    bound.us = bench_time_graph(launch_probe_of_move, r, r->num_slots).p50;
    if (r->moved == 0) return bound;
    if (r->moved > r->kv_bytes / 2 / 256 * 256) bench_fail("no room for the copy", -1);
    copy.us = bench_time_graph(launch_floor_of_move, r, r->num_slots).p50;
    return copy.us > bound.us || bench.interpreted ? copy : bound;
}

#endif
