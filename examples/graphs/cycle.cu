/* See cycle.h. The passes, the kit's descriptors and the pages are those of tiny_lm's CUDA backend,
   whose functions are its own: so its file is part of this one. New is what its host does between
   them, as kernels of a thread per row. */
#include <cuda_runtime.h>
#include "watch.h"
#define TINY_LM_KIT_ELSEWHERE
#include "../tiny_lm/gpu.cu"
#include "cycle.h"

enum { PAGE_SIZE = 4, ROW_THREADS = 128 };

/* In device memory. */
typedef struct cycle_state {
    /* of requests, by slot */
    int32_t len[LM_MAX_BATCH], end[LM_MAX_BATCH];
    uint64_t seed[LM_MAX_BATCH];
    uint8_t leave[LM_MAX_BATCH]; /* the host says so */
    /* by row: who is in the step, and who in the next one */
    int32_t slot[LM_MAX_BATCH], next_slot[LM_MAX_BATCH], active[LM_MAX_BATCH];
    int32_t next_num_active;
    uint8_t finished[LM_MAX_BATCH];
} cycle_state;

struct cycle {
    engine *e;
    gpu_state *s;
    arena memory; /* a buffer of the backend's arena */
    cycle_state *state;
    cycle_report *report;
    void **planes; /* [batch][num_planes] scratch_planes of steps of 1, 2, ... rows */
};

static size_t report_bytes(const lm_limits *limits) {
    return sizeof(cycle_report) + times(limits->batch, limits->gamma + 1) * sizeof(int32_t);
}

/* ---- kernels: what the host does in engine.c and smc.c --------------------------------------- */

/* Which rows of the step before have come to their end. */
static __global__ void find_finished(cycle_state *state, const step_in *in) {
    const int row = (int)threadIdx.x, slot = state->slot[row];
    if (row < in->num_active)
        state->finished[row] = state->len[slot] >= state->end[slot] || state->leave[slot];
}

/* The rows that go on become the step's. */
static __global__ void begin_step(cycle_state *state, step_in *in, cycle_report *report,
                                  lm_limits limits) {
    const int row = (int)threadIdx.x, rows = (int)blockDim.x;
    const int live = state->next_num_active < rows ? state->next_num_active : rows;
    if (row == 0) {
        in->num_active = live;
        report->num_rows = live, report->gamma = limits.gamma;
        if (live < state->next_num_active) report->fault |= CYCLE_FAULT_ROWS;
    }
    state->slot[row] = row < live ? state->next_slot[row] : -1;
    in->draft_len[row] = 0;
    if (row >= live) return;
    const int slot = state->next_slot[row], len = state->len[slot];
    const int room = state->end[slot] - len - 1; /* the step adds a token of its own */
    in->draft_len[row] = room < limits.gamma ? room : limits.gamma;
    in->position[row] = len;
    in->text_at[row] = slot * limits.text_stride + len;
    in->seed[row] = state->seed[slot];
}

/* The rows of a pass: the target's, [rows][gamma + 1], or those of draft k. Before draft 0 the
   draft model is fed the token before the pending one, which it lacks if all drafts were accepted;
   if not, it makes the KV row that is there once more, the same bits. Rows of padding run beside
   the others in the part of the verify scratch that is theirs. slots null: row r is in slot r. */
static __global__ void make_rows(lm_row *rows, const step_in *in, const int32_t *slots,
                                 lm_limits limits, int num_rows, int which, int k, int keeps) {
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    const int columns = limits.gamma + 1, silent = which == LM_DRAFT && k == 0 ? limits.batch : 0;
    if (i >= num_rows) return;
    const int r = which == LM_TARGET ? i / columns : i % limits.batch;
    const int ahead = which == LM_TARGET ? i % columns : i < silent ? -1 : k;
    const int slot = slots ? slots[r] : r, pending = in->position[r] - 1;
    lm_row row;
    row.seq = r;
    row.seed = 0; /* the kit reads it from `in` */
    row.pick_at = row.keep_at = row.node = -1;
    row.tree_from = 0;
    if (which == LM_TARGET)
        row.pick_at = limits.target_at + i, row.keep_at = i;
    else if (i >= silent)
        row.pick_at = limits.draft_at + r * limits.gamma + k, row.keep_at = r * limits.gamma + k;
    if (!keeps) row.keep_at = -1;
    if (r < in->num_active) {
        row.slot = slot;
        row.column = row.pos = pending + ahead;
        row.token_at = ahead > 0 ? limits.draft_at + r * limits.gamma + ahead - 1
                                 : slot * limits.text_stride + row.column;
        row.scratch_from = which == LM_TARGET ? pending : limits.text_stride;
    } else {
        row.slot = row.token_at = row.scratch_from = 0;
        row.column = row.pos = which == LM_TARGET ? ahead : ahead + 1;
    }
    rows[i] = row;
}

static __global__ void end_step(cycle_state *state, const step_in *in, const step_out *out,
                                const int32_t *out_tokens, cycle_report *report) {
    const int row = (int)threadIdx.x, slot = state->slot[row], columns = report->gamma + 1;
    uint32_t fault = 0;
    report->slot[row] = slot;
    report->num_emitted[row] = out->num_emitted[row];
    for (int j = 0; j < columns; ++j)
        report->token[row * columns + j] = out_tokens[row * columns + j];
    if (row >= in->num_active) return;
    state->len[slot] += out->num_emitted[row];
    if (out->row_status[row]) fault |= CYCLE_FAULT_STATUS;
    if (out->num_emitted[row] != out->accepted_len[row] + 1) fault |= CYCLE_FAULT_LOST;
    if (fault) atomicOr(&report->fault, fault);
}

/* Particles: all have as many tokens more as the cycle before added. */
static __global__ void advance(step_in *in, lm_cycle_in *groups, int32_t *text_len,
                               int num_particles, int added) {
    const int row = (int)threadIdx.x;
    if (row >= in->num_active) return;
    in->position[row] += added, in->text_at[row] += added, text_len[row] += added;
    if (row % num_particles == 0) groups->position[row / num_particles] += added;
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* The backend's state as if it had been opened for that many rows; memory is where it was. */
static gpu_state view_of(const cycle *c, int rows, cudaStream_t stream) {
    gpu_state view = *c->s;
    view.stream = stream;
    view.limits.batch = view.cache.limits.batch = view.particles.limits.batch = rows;
    view.scratch_planes = c->planes + times(rows - 1, view.models[LM_TARGET].kv.num_planes);
    return view;
}

static int pass(lm_backend *backend, const int32_t *slots, int which, int32_t k, lm_pick pick,
                int keeps) {
    const gpu_state *s = (const gpu_state *)backend->state;
    const int32_t batch = s->limits.batch, silent = which == LM_DRAFT && k == 0 ? batch : 0;
    const int32_t num_rows = which == LM_TARGET ? batch * (s->limits.gamma + 1) : silent + batch;
    const unsigned blocks = (unsigned)(num_rows + ROW_THREADS - 1) / ROW_THREADS;
    make_rows<<<blocks, ROW_THREADS, 0, s->stream>>>(s->rows, s->in, slots, s->limits, num_rows,
                                                     which, k, keeps);
    if (run_pass(backend, which, num_rows, silent, pick, keeps) != 0) return -1;
    if (pick.method != LM_PICK_CDF && pick.method != LM_PICK_GUMBEL) return 0;
    specv_sample_desc d = sample_desc(s, which);
    d.num_active = &s->in->num_active, d.seed = s->in->seed, d.position = s->in->position;
    return draw(backend, d, batch, silent, pick);
}

static int draft_and_verify(const engine *e, lm_backend *backend, const int32_t *slots) {
    const gpu_state *s = (const gpu_state *)backend->state;
    const lm_pick none = {LM_PICK_NONE, 0, 0}, choice = pick_of(e, SPECV_STREAM_TARGET, 0);
    for (int32_t k = 0; k < s->limits.gamma; k++)
        if (pass(backend, slots, LM_DRAFT, k, pick_of(e, SPECV_STREAM_DRAFT, k),
                 s->sampling.use_draft_logits) != 0)
            return -1;
    if (pass(backend, slots, LM_TARGET, 0, s->sampling.by_choice ? choice : none,
             !s->sampling.by_choice) != 0)
        return -1;
    return judge_and_count(backend, s->limits.batch);
}

/* Those who have come to their end give back their pages; the others close up. As many rows as
   there may have been, whatever the bucket is now. */
static int let_go(lm_backend *backend, const cycle *c) {
    const gpu_state *s = (const gpu_state *)backend->state;
    const lm_limits *all = &c->s->limits;
    specv_page_resize_desc pages = lm_resize(&s->cache, c->state->finished, NULL, 0);
    specv_compact_desc d = SPECV_ZERO;
    pages.slot = c->state->slot, pages.num_slots = all->slots, pages.batch = all->batch;
    d.batch = all->batch, d.num_active = &s->in->num_active;
    d.slot = c->state->slot, d.num_slots = all->slots, d.finished = c->state->finished;
    d.active = c->state->active, d.new_slot = c->state->next_slot;
    d.new_num_active = &c->state->next_num_active;
    find_finished<<<1, (unsigned)all->batch, 0, s->stream>>>(c->state, s->in);
    if (check_kit(backend, specv_page_resize(&pages, s->stream)) != 0) return -1;
    return check_kit(backend, specv_compact(&d, s->stream));
}

static int commit(lm_backend *backend, const cycle *c) {
    const gpu_state *s = (const gpu_state *)backend->state;
    specv_append_kv_desc d = lm_append(&s->cache, &s->models[LM_TARGET].kv, s->scratch_planes);
    d.rows.slot = c->state->slot, d.rows.num_slots = s->limits.slots;
    if (check_kit(backend, specv_append_kv(&d, s->stream)) != 0) return -1;
    return commit_text(backend, s->limits.batch);
}

static int say(const lm_backend *backend, int status) {
    if (status != 0) fprintf(stderr, "%s\n", backend->message);
    return status;
}

int cycle_step(void *what, int rows, cudaStream_t stream) {
    const cycle *c = (const cycle *)what;
    gpu_state view = view_of(c, rows, stream);
    lm_backend backend = c->e->backend;
    specv_page_resize_desc pages = lm_resize(&view.cache, NULL, NULL, 1 + view.limits.gamma);
    const unsigned threads = (unsigned)rows;
    pages.slot = c->state->slot, pages.num_slots = view.limits.slots, pages.batch = rows;
    pages.keep_status = 1; /* those of who gave pages back */
    backend.state = &view;
    if (let_go(&backend, c) != 0) return say(&backend, -1);
    begin_step<<<1, threads, 0, stream>>>(c->state, view.in, c->report, view.limits);
    if (check_kit(&backend, specv_page_resize(&pages, stream)) != 0 ||
        draft_and_verify(c->e, &backend, c->state->slot) != 0 || commit(&backend, c) != 0)
        return say(&backend, -1);
    end_step<<<1, threads, 0, stream>>>(c->state, view.in, view.out, view.cache.out_tokens,
                                        c->report);
    return say(&backend, check(&backend, cudaGetLastError()));
}

int cycle_step_particles(void *what, int rows, cudaStream_t stream) {
    const cycle *c = (const cycle *)what;
    gpu_state view = view_of(c, rows, stream);
    lm_backend backend = c->e->backend;
    const int32_t n = view.limits.particles, gamma = view.limits.gamma;
    lm_cycle shape;
    memset(&shape, 0, sizeof shape);
    shape.num_groups = rows / n, shape.num_drafts = gamma, shape.behind = 1;
    backend.state = &view;
    advance<<<1, (unsigned)rows, 0, stream>>>(view.in, view.particles.in, view.particles.text_len,
                                              n, gamma + 1);
    if (p_take_pages(&backend, &shape) != 0 || draft_and_verify(c->e, &backend, NULL) != 0)
        return say(&backend, -1);
    return say(&backend, p_select(&backend, &shape));
}

/* ---- before and after ------------------------------------------------------------------------ */

void cycle_load_models(lm_model models[LM_NUM_MODELS], const char *folder) {
    const char *const names[] = {"target.bin", "draft.bin"};
    char path[4096], message[256];
    for (int i = 0; i < LM_NUM_MODELS; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        if (lm_load(&models[i], path, message, sizeof message) != 0) die("", message);
    }
}

/* The cycle's own buffers; how many bytes, before anything is allocated. */
static void lay_out_cycle(cycle *c, const lm_limits *limits, int32_t num_planes) {
    arena *const a = &c->memory;
    c->state = (cycle_state *)arena_take(a, sizeof *c->state);
    c->report = (cycle_report *)arena_take(a, report_bytes(limits));
    c->planes = (void **)arena_take(a, times(limits->batch, num_planes) * sizeof(void *));
}

/* As gpu_open, with room for them. */
static int open_with_cycle(lm_backend *backend, const lm_model models[LM_NUM_MODELS],
                           const lm_limits *limits, const lm_sampling *sampling) {
    cycle c;
    memset(&c, 0, sizeof c);
    lay_out_cycle(&c, limits, 2 * models[LM_TARGET].dims.num_layers);
    return gpu_open_beside(backend, models, limits, sampling, c.memory.used);
}

void cycle_set_engine(engine *e, int on_gpu, int32_t rule, int32_t requests, int32_t particles,
                      int32_t gamma, int32_t max_text) {
    lm_limits *limits = &e->limits;
    memset(e, 0, sizeof *e);
    if (on_gpu)
        lm_gpu_backend(&e->backend), e->backend.open = open_with_cycle;
    else
        lm_cpu_backend(&e->backend);
    e->seed = 1;
    e->sampling.rule = rule;
    e->sampling.by_choice = rule == SPECV_RULE_GREEDY;
    e->sampling.temperature = e->sampling.by_choice ? 0 : 0.8f;
    e->sampling.use_draft_logits = rule == SPECV_RULE_TOKEN || rule == SPECV_RULE_BLOCK;
    if (particles) e->sampling.alpha = 1, e->sampling.threshold = 0.9;
    limits->batch = limits->slots = particles ? requests * particles : requests;
    limits->particles = particles, limits->gamma = gamma;
    limits->max_seq = max_text + gamma; /* drafts behind a text's end are made, and not judged */
    const lm_layout plain = {LM_FIXED, limits->max_seq, limits->max_seq, limits->slots, 0};
    const int32_t pages = (limits->max_seq + PAGE_SIZE - 1) / PAGE_SIZE;
    const lm_layout paged = {LM_PAGED, limits->max_seq, PAGE_SIZE, limits->slots * pages, 0};
    e->plain = plain, e->speculative = paged;
}

cycle *cycle_open(engine *e) {
    cycle *c = (cycle *)calloc(1, sizeof *c);
    gpu_state *s = (gpu_state *)e->backend.state;
    const int32_t num_planes = s->models[LM_TARGET].kv.num_planes, batch = s->limits.batch;
    const size_t row = times(1 + s->limits.gamma, s->models[LM_TARGET].dims.d_model);
    void **planes = (void **)malloc(times(batch, num_planes) * sizeof(void *));
    if (!c || !planes) return free(planes), free(c), (cycle *)NULL;
    c->e = e, c->s = s;
    lay_out_cycle(c, &s->limits, num_planes);
    arena_in(&c->memory, s->beside);
    lay_out_cycle(c, &s->limits, num_planes);
    for (int32_t rows = 1; rows <= batch; rows++)
        for (int32_t plane = 0; plane < num_planes; plane++)
            planes[times(rows - 1, num_planes) + (size_t)plane] =
                s->scratch + times(plane, rows) * row;
    upload(s, c->planes, planes, times(batch, num_planes) * sizeof(void *));
    free(planes);
    if (s->memory.error == cudaSuccess && c->memory.error == cudaSuccess) return c;
    free(c);
    return NULL;
}

const char *cycle_close(cycle *c) {
    const char *const flaw = arena_flaw(&c->memory);
    free(c);
    return flaw;
}

size_t cycle_arena_bytes(const cycle *c) { return c->s->memory.size; }
cudaStream_t cycle_stream(const cycle *c) { return c->s->stream; }
const cycle_report *cycle_report_of(const cycle *c) { return c->report; }
size_t cycle_report_bytes(const cycle *c) { return report_bytes(&c->s->limits); }

int cycle_admit(cycle *c, const sequence *seqs, int32_t count) {
    lm_backend *backend = &c->e->backend;
    const uint32_t no_fault = 0;
    cycle_state state;
    memset(&state, 0, sizeof state);
    for (int32_t i = 0; i < count; i++) {
        const int32_t slot = state.slot[i] = seqs[i].slot;
        state.len[slot] = seqs[i].len, state.end[slot] = seqs[i].end;
        state.seed[slot] = seqs[i].seed;
    }
    if (send(backend, c->state, &state, sizeof state) != 0 ||
        send(backend, &c->report->fault, &no_fault, sizeof no_fault) != 0)
        return say(backend, -1);
    return say(backend, send_ints(backend, &c->s->in->num_active, &count, 1));
}

int cycle_lengths(const cycle *c, int32_t *len) {
    lm_backend *backend = &c->e->backend;
    const size_t bytes = (size_t)c->s->limits.slots * sizeof *len;
    return say(backend, fetch(backend, len, c->state->len, bytes));
}

int cycle_free_pages(const cycle *c, int32_t *num_free, int32_t *all) {
    lm_backend *backend = &c->e->backend;
    *all = c->s->cache.layout.num_pages;
    return say(backend, fetch(backend, num_free, c->s->cache.num_free, sizeof *num_free));
}

int cycle_leave(cycle *c, const uint8_t *leave, cudaStream_t stream) {
    const size_t bytes = (size_t)c->s->limits.slots;
    return check(&c->e->backend,
                 cudaMemcpyAsync(c->state->leave, leave, bytes, cudaMemcpyHostToDevice, stream));
}

int cycle_finish_particles(cycle *c, particle_batch *b, int32_t steps) {
    b->cycle.num_drafts = c->s->limits.gamma;
    for (int32_t g = 0; g < b->cycle.num_groups; g++)
        b->len[g] += steps * (b->cycle.num_drafts + 1);
    return say(&c->e->backend, p_report(&c->e->backend, &b->cycle));
}
