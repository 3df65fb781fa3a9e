/* bits.cu - a digest of every operation: of all that it reads, and of all that it leaves, over
   random cases, degenerate and faulty ones among them. bits.expected has what this version writes:

       digest: 0x<what it leaves> 0x<what it reads> <cases> <operation>

   A change of the kit that is meant to change no bit leaves these lines as they are, and so does
   every compiler and flag (flags.sh): inputs are made from integers, outputs are hashed as bytes.
   The kernels must leave the same, on fewer cases. Where the first number differs and the second
   does not, the operation has other bits. If that is intended,
       build/tests/bits-c | sed -n 's/^digest: //p' > tests/bits.expected
   from the top folder, and CHANGELOG.md must say so; if the cases are others, first with the old
   kit and then with the new one. Names of fields are in the case of their operation alone. */

#include "t.h"

/* Cases of an operation: the first few, more, and how many there are. */
enum { FEW = 30, MORE = 200, SCORED = 1000, PLAIN = 4000 };

/* ------------------------------------------------------------------------------------- numbers */

static int below(int bound) { return (int)t_below(bound); }
static int between(int low, int high) { return (int)t_between(low, high); }
static int chance(int percent) { return t_chance(percent); }

/* Bits of a float of 2^low .. 2^(high + 1), of either sign if `sign` is 1. */
static uint32_t draw_bits(int low, int high, int sign) {
    const uint32_t exponent = (uint32_t)(127 + between(low, high));
    const uint64_t x = t_random();
    return (sign ? (uint32_t)(x >> 63) << 31 : 0) | exponent << 23 | (uint32_t)(x & 0x7fffff);
}
static float draw_float(int low, int high, int sign) {
    return specv_bits_float(draw_bits(low, high, sign));
}
static double draw_double(int low, int high, int sign) {
    const uint64_t exponent = (uint64_t)(1023 + between(low, high)), x = t_random();
    return specv_i_bits_double((sign ? x >> 63 << 63 : 0) | exponent << 52 | (x & ~0ull >> 12));
}
static float draw_uniform(void) { /* in [0, 1), seldom beyond */
    static const uint32_t odd[] = {0, 0x3f7fffffu, 0x3f800000u, 0xbf000000u, 0x7fc00000u};
    return chance(6) ? specv_bits_float(T_PICK(odd)) : draw_float(-20, -1, 0);
}
static int32_t draw_wild(int bound) { /* a number outside 0..bound */
    const int32_t wild[] = {-1, INT32_MIN, INT32_MAX, bound + 1};
    return T_PICK(wild);
}
/* A number of 0..bound; `odd` per cent: outside. */
static int32_t draw_number(int bound, int odd) {
    return chance(odd) ? draw_wild(bound) : chance(25) ? bound : between(0, bound);
}
static int draw_batch(int most) { return chance(4) ? 0 : chance(10) ? 1 : between(1, most); }
static int draw_stride(int least) { return chance(60) ? 0 : least + below(4); }

/* ------------------------------------------------------------------------------------- buffers */

/* Where a descriptor points to, in host memory; what runs on the device gets it with every pointer
   exchanged. Buffers in which nothing is wanted or of which nothing is promised, tables of planes
   and scratch memory, are private: not compared. */
static char is_table[T_MAX_BUFFERS];

static void *of_buffer(t_buf b) {
    if (b.host) is_table[t_num_buffers - 1] = 0;
    return b.host;
}
static void *input(int64_t bytes) { return of_buffer(t_in(bytes ? bytes : 1, 0)); }
static void *output(int64_t bytes) { return of_buffer(t_out(bytes, 0)); }
static void *optional(int percent, int64_t bytes) { return chance(percent) ? output(bytes) : NULL; }
static void *scratch(int64_t bytes) {
    void *data = input(bytes);
    memset(data, 0, (size_t)bytes);
    t_buffers[t_num_buffers - 1].is_private = 1;
    return data;
}
static void *noise(void *data, int64_t bytes) {
    for (int64_t i = 0; i < bytes; i += 8) {
        const uint64_t word = t_random();
        memcpy((char *)data + i, &word, (size_t)(bytes - i < 8 ? bytes - i : 8));
    }
    return data;
}
static int32_t *words_of(void *data, int count, int bound, int odd) {
    for (int i = 0; i < count; ++i) ((int32_t *)data)[i] = draw_number(bound, odd);
    return (int32_t *)data;
}
/* Numbers of 0..bound that an operation reads, or reads and writes. */
static int32_t *words(int count, int bound, int odd) {
    return words_of(input(4 * (int64_t)count), count, bound, odd);
}
static int32_t *state(int count, int bound, int odd) {
    return words_of(output(4 * (int64_t)count), count, bound, odd);
}
static uint8_t *flags_of(void *data, int count, int percent) {
    for (int i = 0; i < count; ++i)
        ((uint8_t *)data)[i] = (uint8_t)(chance(percent) ? between(1, 255) : 0);
    return (uint8_t *)data;
}
static int32_t *scalar(int32_t value) {
    int32_t *data = (int32_t *)output(4);
    *data = value;
    return data;
}
static uint32_t *ticket(void) { return (uint32_t *)scalar(0); }
static int32_t *active_rows(int batch) {
    return chance(75) ? NULL : scalar(chance(15) ? draw_wild(batch) : between(0, batch));
}
static uint32_t *old_status(int32_t keep, int batch) {
    uint32_t *data = (uint32_t *)optional(90, 4 * (int64_t)batch);
    for (int b = 0; b < batch && keep && data; ++b) data[b] = (uint32_t)t_random() & 0xffff;
    return data;
}
static float *floats(int count, int low, int high, int sign) {
    float *data = (float *)input(4 * (int64_t)count);
    for (int i = 0; i < count; ++i) data[i] = draw_float(low, high, sign);
    return data;
}
static float *uniforms(int count) {
    float *data = (float *)input(4 * (int64_t)count);
    for (int i = 0; i < count; ++i) data[i] = draw_uniform();
    return data;
}
static double *doubles(int count, int low, int high, int sign) { /* all of them are in/out */
    double *data = (double *)output(8 * (int64_t)count);
    for (int i = 0; i < count; ++i) data[i] = draw_double(low, high, sign);
    return data;
}
static uint64_t *seeds(int count) {
    return (uint64_t *)noise(input(8 * (int64_t)count), 8 * (int64_t)count);
}

static void put_id(void *data, int dtype, int64_t at, int64_t id) {
    if (dtype == SPECV_I64)
        ((int64_t *)data)[at] = id;
    else
        ((int32_t *)data)[at] = (int32_t)id;
}
static int64_t id_bytes(int dtype) { return dtype == SPECV_I64 ? 8 : 4; }

/* Ids of 0..vocab - 1, most of them `likely`, so that buffers agree with each other; `odd` per
   cent: placeholders and what is no id. */
static void *ids_of(void *data, int64_t count, int dtype, int64_t vocab, int likely, int odd) {
    const int64_t odds[] = {
        -1, -1, -2, vocab, INT32_MIN, INT32_MAX, dtype == SPECV_I64 ? (int64_t)1 << 32 : -1};
    for (int64_t i = 0; i < count; ++i)
        put_id(data, dtype, i, chance(odd) ? T_PICK(odds) : chance(likely) ? 0 : t_below(vocab));
    return data;
}
static void *ids(int64_t count, int dtype, int64_t vocab, int likely, int odd) {
    return ids_of(input(count * id_bytes(dtype)), count, dtype, vocab, likely, odd);
}

/* A buffer of KV, and a table of such. Null entries: a plane that is skipped. */
static void *kv_bytes(int64_t bytes, int is_output) {
    const int offset = chance(50) ? 0 : below(16);
    void *data = of_buffer(is_output ? t_out(bytes, offset) : t_in(bytes ? bytes : 1, offset));
    return noise(data, bytes);
}
static void **plane_table(int num_planes, int64_t bytes, int is_output) {
    void *planes[8], **table;
    for (int i = 0; i < num_planes; ++i) planes[i] = chance(12) ? NULL : kv_bytes(bytes, is_output);
    table = (void **)input(num_planes * (int64_t)sizeof(void *));
    memcpy(table, planes, (size_t)num_planes * sizeof(void *));
    is_table[t_num_buffers - 1] = 1;
    t_buffers[t_num_buffers - 1].is_private = 1;
    return table;
}

/* --------------------------------------------------------------------------------------- cases */

static uint64_t left, read_before; /* digests of the operation */
static int is_refused;             /* the case has a descriptor that may be refused */

static uint64_t hash_buffers(uint64_t hash) {
    for (int i = 0; i < t_num_buffers; ++i)
        if (!t_buffers[i].is_private)
            hash = t_mix(hash ^ t_hash(t_buffers[i].host, t_buffers[i].bytes)) + 1;
    return hash;
}

/* Seldom a field gets a value that it must not have: nothing may change then. */
#define SPOIL(field, value)                                                                        \
    do {                                                                                           \
        if (chance(1)) (field) = (value), is_refused = 1;                                          \
    } while (0)

#if T_DEVICE
/* Pointers to buffers of the host, wherever they are, become those of the device. */
static void exchange_pointers(void *data, size_t bytes) {
    for (size_t at = 0; at + sizeof(char *) <= bytes; at += sizeof(char *)) {
        char *p;
        memcpy(&p, (char *)data + at, sizeof p);
        for (int i = 0; i < t_num_buffers && p; ++i) {
            const t_buf *b = &t_buffers[i];
            if (p < b->host || p > b->host + b->bytes || (p == b->host + b->bytes && b->bytes))
                continue;
            p = b->device + (p - b->host);
            memcpy((char *)data + at, &p, sizeof p);
            break;
        }
    }
}
static void before_launch(void *desc, size_t bytes) {
    exchange_pointers(desc, bytes);
    for (int i = 0; i < t_num_buffers; ++i) {
        t_buf *b = &t_buffers[i];
        if (!is_table[i]) continue;
        exchange_pointers(b->host, b->bytes);
        T_CUDA(cudaMemcpy(b->device, b->host, b->bytes, cudaMemcpyHostToDevice));
    }
}
static void after_launch(int status, int expected) {
    CHECK_EQ(status, expected, -1);
    t_check_device();
    t_download();
}
#define LAUNCH(op)                                                                                 \
    do {                                                                                           \
        before_launch(&d, sizeof d);                                                               \
        after_launch(specv_##op(&d, 0), status);                                                   \
    } while (0)
#else
#define LAUNCH(op) (void)0
#endif

static void before_case(void) {
    t_upload();
    read_before = hash_buffers(read_before);
}
/* What is returned counts as done or refused: fuzz_validate.c has the codes. */
static void after_case(int status) { left = t_mix(hash_buffers(left) + (status != SPECV_OK)); }

/* The descriptor d, on the reference, and on the device if there is one: then what that leaves. */
#define RUN(op)                                                                                    \
    do {                                                                                           \
        int status;                                                                                \
        before_case();                                                                             \
        status = specv_ref_##op(&d);                                                               \
        CHECK(status == SPECV_OK || is_refused);                                                   \
        t_check_host();                                                                            \
        LAUNCH(op);                                                                                \
        after_case(status);                                                                        \
    } while (0)

/* ------------------------------------------------------------------------------ ragged batches */

static int is_csr(const specv_rows *r) { return r->row_start != NULL; }

/* Drafts that a buffer of them holds. */
static int64_t num_drafts(const specv_rows *r, int64_t stride) {
    if (is_csr(r)) return r->num_draft_tokens;
    return (int64_t)r->batch * (stride ? stride : r->max_draft);
}

enum { DENSE = 2, DENSE_OR_CSR = 3 };

static specv_rows draw_rows(int batch, int max_draft, int layouts) {
    const int64_t most = (int64_t)batch * max_draft;
    const int layout = below(layouts), faults = chance(30) ? 8 : 0;
    specv_rows r = SPECV_ZERO;
    r.batch = batch, r.max_draft = max_draft;
    r.num_active = active_rows(batch);
    if (layout == 1) r.draft_len = words(batch, max_draft, faults);
    if (layout == 2) {
        int32_t *start = words(batch + 1, 0, 0);
        for (int b = 0; b < batch; ++b) start[b + 1] = start[b] + draw_number(max_draft, 0);
        r.num_draft_tokens = start[batch] + below(3);
        if (r.num_draft_tokens > most) r.num_draft_tokens = most;
        for (int b = 0; b <= batch; ++b)
            if (chance(faults / 2)) start[b] = draw_wild((int)most);
        r.row_start = start;
    }
    return r;
}
static void spoil_rows(specv_rows *r) { /* the last thing before a run */
    SPOIL(r->batch, -1);
    SPOIL(r->max_draft, -1);
    SPOIL(r->num_draft_tokens, -1);
}

/* Drafts of a row, 0 if nothing can be said. */
static int drafts_of(const specv_rows *r, int b) {
    int64_t n = r->max_draft;
    if (r->draft_len) n = r->draft_len[b];
    if (r->row_start) n = (int64_t)r->row_start[b + 1] - r->row_start[b];
    return n < 0 || n > r->max_draft ? 0 : (int)n;
}
static int32_t *accepted_lengths(const specv_rows *r, int odd) {
    int32_t *data = words(r->batch, 0, 0);
    for (int b = 0; b < r->batch; ++b) data[b] = draw_number(drafts_of(r, b), odd);
    return data;
}

/* What A1 to A5 and B2 share: drafts, outputs, EOS. vocab 0: unknown. */
static specv_verify_greedy_desc draw_verify(int batch, int max_draft, int dtype, int64_t vocab) {
    const int64_t bound = vocab ? vocab : 3;
    specv_verify_greedy_desc d = SPECV_ZERO;
    d.rows = draw_rows(batch, max_draft, DENSE_OR_CSR);
    d.token_dtype = dtype, d.vocab = vocab;
    if (!is_csr(&d.rows)) d.draft_stride_elems = draw_stride(max_draft);
    d.draft_tokens = ids(num_drafts(&d.rows, d.draft_stride_elems), dtype, bound, 70, 4);
    d.out_stride_elems = draw_stride(max_draft + 1);
    d.accepted_len = (int32_t *)output(4 * (int64_t)batch);
    d.mismatch = (uint8_t *)optional(90, batch);
    d.next_token = optional(90, batch * id_bytes(dtype));
    d.out_tokens = optional(90, batch * id_bytes(dtype) *
                                    (d.out_stride_elems ? d.out_stride_elems : max_draft + 1));
    d.num_emitted = (int32_t *)optional(90, 4 * (int64_t)batch);
    d.finished = (uint8_t *)optional(90, batch);
    d.row_status = (uint32_t *)optional(95, 4 * (int64_t)batch);
    d.num_eos = chance(50) ? 0 : between(1, SPECV_MAX_EOS);
    for (int i = 0; i < SPECV_MAX_EOS; ++i) d.eos_token[i] = t_below(bound);
    if (chance(80)) d.eos_token[0] = bound - 1;
    SPOIL(d.canary1, 1);
    SPOIL(d.token_dtype, 2);
    SPOIL(d.accepted_len, NULL);
    SPOIL(d.out_stride_elems, -1);
    SPOIL(d.num_eos, SPECV_MAX_EOS + 1);
    return d;
}

static void draw_target_tokens(specv_verify_greedy_desc *d, int batch, int max_draft, int dtype) {
    const int64_t per_row = max_draft + 1;
    int64_t count = d->rows.num_draft_tokens + batch;
    if (!is_csr(&d->rows)) {
        d->target_stride_elems = draw_stride(max_draft + 1);
        count = batch * (d->target_stride_elems ? d->target_stride_elems : per_row);
    }
    d->target_tokens = ids(count, dtype, d->vocab ? d->vocab : 3, 70, 2);
    SPOIL(d->target_tokens, NULL);
}

T_FN void greedy_case(int dtype) {
    static const int vocabs[] = {0, 2, 3, 5, 100};
    const int batch = draw_batch(12), max_draft = chance(15) ? between(10, 70) : below(10);
    specv_verify_greedy_desc d = draw_verify(batch, max_draft, dtype, T_PICK(vocabs));
    draw_target_tokens(&d, batch, max_draft, dtype);
    spoil_rows(&d.rows);
    RUN(verify_greedy);
}

/* -------------------------------------------------------------------------------------- scores */

static specv_scores draw_scores(int64_t rows, int64_t per_row, int64_t vocab, int dtype, int csr) {
    static const uint32_t odd[] = {0, 0x80000000u, 0x7fc00000u, 0x7f800000u, 0xff800000u, 1};
    static const uint32_t odd_f16[] = {0, 0x8000u, 0x7e00u, 0x7c00u, 0xfc00u, 1};
    const int half = dtype == SPECV_LOGITS_F16 || dtype == SPECV_LOGITS_BF16;
    const int probs = dtype == SPECV_PROBS_F32;
    const int with_odd = chance(20), spread = below(6);
    const int all_are = chance(6) ? below(T_COUNT(odd)) : -1; /* rows with nothing else */
    const int64_t gap = chance(30) ? between(1, 9) : 0;
    specv_scores s = SPECV_ZERO;
    int64_t count = rows * per_row * (vocab + gap);
    char *data;
    if (gap) s.pos_stride_elems = vocab + gap;
    if (!csr && per_row && chance(20)) {
        s.seq_stride_elems = per_row * (vocab + gap) + below(3);
        count = rows * s.seq_stride_elems;
    }
    data = (char *)input(count * (half ? 2 : 4));
    for (int64_t i = 0; i < count; ++i) {
        const int which = all_are >= 0 ? all_are : with_odd && chance(10) ? below(6) : -1;
        uint32_t bits = probs ? draw_bits(-20, -1, 0) : draw_bits(-8, spread, 1);
        if (dtype == SPECV_LOGITS_F16) bits = (uint32_t)below(0x4000) << 16 | (bits & 0x80000000u);
        if (which >= 0) bits = dtype == SPECV_LOGITS_F16 ? odd_f16[which] << 16 : odd[which];
        if (half)
            ((uint16_t *)(void *)data)[i] = (uint16_t)(bits >> 16);
        else
            memcpy(data + i * 4, &bits, 4);
    }
    s.data = data, s.dtype = dtype;
    SPOIL(s.dtype, 4);
    SPOIL(s.pos_stride_elems, -1);
    return s;
}

static float *draw_temperatures(int count) {
    static const uint32_t odd[] = {0,           0x80000000u, 0x7fc00000u,
                                   0x46000000u, 0x46000001u, 0xbf800000u};
    float *data = floats(count, -3, 2, 0);
    for (int i = 0; i < count; ++i)
        if (chance(20)) data[i] = specv_bits_float(chance(70) ? T_PICK(odd) : (uint32_t)t_random());
    return data;
}

/* Now and then more than a tile. */
static int draw_vocab(void) {
    static const int vocabs[] = {1, 2, 3, 5, 9, 40, 80};
    return chance(2) ? SPECV_TILE_IDS + 6 : T_PICK(vocabs);
}

/* Parts of 1, sevenths and sixteenths of flat rows among them, and what is none. */
static float *draw_parts(int count) {
    static const float odd[] = {0, 1, 0.5f, 0.0625f, 0.25f, 0.14285715f, -1, 1.5f};
    float *data = (float *)input(4 * (int64_t)count);
    for (int i = 0; i < count; ++i) data[i] = chance(30) ? T_PICK(odd) : (float)t_uniform();
    return data;
}

/* Of A10; rows: positions of all requests. */
static specv_filters draw_filters(int batch, int positions, int64_t rows, int vocab) {
    specv_filters f = SPECV_ZERO;
    const int64_t words_each = (vocab + 31) / 32;
    if (chance(50)) f.top_k = words(batch, vocab + 2, 10);
    if (chance(50)) f.top_p = draw_parts(batch);
    if (chance(40)) f.min_p = draw_parts(batch);
    f.order = below(3);
    if (rows == 0 || chance(50)) return f;
    f.mask_stride_words = chance(60) ? 0 : words_each + below(3);
    if (chance(50)) f.num_mask_rows = positions + below(4), f.mask_row = words(batch, 4, 10);
    const int64_t count = f.mask_row ? f.num_mask_rows : rows;
    const int64_t bytes = 4 * count * (f.mask_stride_words ? f.mask_stride_words : words_each);
    f.mask = (const uint32_t *)noise(input(bytes), bytes);
    return f;
}

/* Of A11. What is told of tokens that are not stored is refused. */
static specv_emitted draw_emitted(int batch, int columns, const void *tokens) {
    specv_emitted e = SPECV_ZERO;
    const int64_t bytes = 4 * (int64_t)batch * columns;
    e.max_top = chance(15) ? 0 : chance(80) ? between(1, 6) : SPECV_MAX_TOP;
    e.raw = chance(40);
    e.logprob = (float *)optional(70, bytes);
    e.rank = (int32_t *)optional(70, bytes);
    if (e.max_top) {
        e.top_id = (int32_t *)optional(80, bytes * e.max_top);
        e.top_logprob = (float *)optional(80, bytes * e.max_top);
        if (chance(50)) e.num_top = words(batch, e.max_top, 15);
    }
    is_refused |= !tokens;
    SPOIL(e.max_top, SPECV_MAX_TOP + 1);
    SPOIL(e.raw, 2);
    return e;
}

enum { SCRATCH = 1 << 16 };
#define FILTERED 64 /* in addition to rule or method and type */
#define TOLD     128
#define LOSSY    256

/* What lossy rules are told: most of it in their ranges. */
static specv_lossy draw_lossy(int rule, int batch) {
    specv_lossy l = SPECV_ZERO;
    const int typical = rule == SPECV_RULE_TYPICAL || rule == SPECV_RULE_TYPICAL_DRAW;
    if (typical && chance(85)) l.epsilon = draw_parts(batch);
    if (typical && chance(85)) l.alpha = draw_parts(batch);
    if (rule == SPECV_RULE_THRESHOLD && chance(85)) l.threshold_single = draw_parts(batch);
    if (rule == SPECV_RULE_THRESHOLD && chance(85)) l.threshold_acc = draw_parts(batch);
    if (rule == SPECV_RULE_RELAXED && chance(85)) l.delta = draw_parts(batch);
    if (rule == SPECV_RULE_RELAXED && chance(95)) l.top_n = words(batch, 12, 10);
    if (rule == SPECV_RULE_BOUNDED && chance(95)) l.ratio = floats(batch, -1, 2, 0);
    return l;
}

static void sampled_case(int which) {
    specv_verify_sample_desc d = SPECV_ZERO;
    const int told = which & TOLD, dtype = which % 4;
    const int filtered = which & FILTERED || (told && chance(60)) || (which & LOSSY && chance(40));
    const int lossy = which & LOSSY;
    const int rule = lossy              ? between(SPECV_RULE_TYPICAL, SPECV_RULE_BOUNDED)
                     : filtered || told ? below(5)
                                        : which / 4;
    const int vocab = draw_vocab(), batch = draw_batch(4), max_draft = below(vocab > 100 ? 3 : 5);
    const int64_t drafts = (int64_t)batch * max_draft;
    const int bonus = told && max_draft && chance(15);
    int csr;
    d.verify = draw_verify(batch, max_draft, chance(50), vocab);
    d.rule = rule;
    csr = is_csr(&d.verify.rows);
    d.target = draw_scores(batch, max_draft + !bonus, vocab, dtype, csr);
    if (bonus) d.bonus_token = ids(batch, d.verify.token_dtype, vocab, 20, 10);
    if ((lossy ? rule == SPECV_RULE_BOUNDED : rule != SPECV_RULE_SCORE) && chance(70))
        d.draft = draw_scores(batch, max_draft, vocab, chance(80) ? dtype : below(4), csr);
    if (chance(80)) d.temperature = draw_temperatures(batch);
    if (d.draft.data && chance(30)) d.draft_temperature = draw_temperatures(batch);
    d.seed = seeds(batch);
    d.position = words(batch, 1 << 20, 4);
    if (chance(20))
        d.accept_uniform = uniforms((int)num_drafts(&d.verify.rows, d.verify.draft_stride_elems));
    if (chance(20)) d.sample_uniform = uniforms(batch);
    d.step_row = chance(70) ? 0 : below(5), d.stream = chance(20), d.num_sms = between(1, 4);
    d.logprob = (float *)optional(90, 4 * (int64_t)batch);
    d.lse = (float *)optional(90, 4 * (int64_t)batch);
    if (max_draft == 0) d.max_prob = (float *)optional(70, 4 * (int64_t)batch);
    if (rule == SPECV_RULE_SCORE) d.target_logprob = (float *)output(4 * drafts);
    if (filtered) {
        const specv_rows *r = &d.verify.rows;
        const int64_t rows = csr ? r->num_draft_tokens : drafts;
        d.filters = draw_filters(batch, max_draft + !bonus, rows + (bonus ? 0 : batch), vocab);
        if (d.draft.data && d.draft.dtype != SPECV_PROBS_F32)
            d.draft_filters = draw_filters(batch, max_draft, rows, vocab);
        if (!told) d.emitted.logprob = (float *)output(4 * (int64_t)batch * (max_draft + 1));
    }
    if (told) d.emitted = draw_emitted(batch, max_draft + 1, d.verify.out_tokens);
    if (lossy) d.lossy = draw_lossy(rule, batch);
    d.scratch = scratch(SCRATCH), d.scratch_bytes = SCRATCH;
    SPOIL(d.rule, SPECV_RULE_BOUNDED + 1);
    SPOIL(d.seed, NULL);
    SPOIL(d.scratch_bytes, 16);
    SPOIL(d.stream, 2);
    spoil_rows(&d.verify.rows);
    RUN(verify_sample);
}

static void sample_case(int which) {
    specv_sample_desc d = SPECV_ZERO;
    const int told = which & TOLD, dtype = which % 4;
    const int filtered = which & FILTERED || (told && chance(60));
    const int method = filtered || told ? below(2) : which / 4;
    const int batch = draw_batch(6), token_dtype = chance(50);
    d.method = method;
    d.batch = batch, d.vocab = draw_vocab(), d.token_dtype = token_dtype;
    d.num_active = active_rows(batch);
    d.scores = draw_scores(batch, 1, d.vocab, dtype, 0);
    if (chance(80)) d.temperature = draw_temperatures(batch);
    d.seed = seeds(batch);
    d.position = words(batch, 1 << 20, 4);
    if (method == SPECV_SAMPLE_CDF && chance(20)) d.uniform = uniforms(batch);
    d.step_row = below(4), d.stream = below(method == SPECV_SAMPLE_GUMBEL ? 3 : 2);
    d.num_sms = between(1, 4);
    d.token_stride_elems = chance(70) ? 0 : between(1, 4);
    d.token =
        output(batch * id_bytes(token_dtype) * (d.token_stride_elems ? d.token_stride_elems : 1));
    d.logprob = (float *)optional(90, 4 * (int64_t)batch);
    d.lse = (float *)optional(90, 4 * (int64_t)batch);
    d.max_prob = (float *)optional(90, 4 * (int64_t)batch);
    d.row_status = (uint32_t *)optional(95, 4 * (int64_t)batch);
    if (filtered) d.filters = draw_filters(batch, 1, batch, (int)d.vocab);
    if (told) d.emitted = draw_emitted(batch, 1, d.token);
    d.scratch = scratch(SCRATCH), d.scratch_bytes = SCRATCH;
    SPOIL(d.canary0, 1);
    SPOIL(d.batch, -1);
    SPOIL(d.vocab, 0);
    SPOIL(d.token, NULL);
    SPOIL(d.method, 2);
    SPOIL(d.scratch_bytes, 16);
    RUN(sample);
}

/* ----------------------------------------------------------------------------------- B1 and B2 */

static specv_kv_pack draw_kv_pack(const specv_rows *r, int batch, int max_draft) {
    static const int sizes[] = {1, 2, 3, 4, 8, 12, 15, 16, 17, 24, 33, 48, 64, 100};
    const int64_t row_bytes = T_PICK(sizes);
    const int64_t pos_gap = chance(60) ? 0 : below(9), seq_gap = chance(60) ? 0 : below(9);
    const int64_t dst_gap = chance(60) ? 0 : below(9), pos_stride = row_bytes + pos_gap;
    const int64_t seq_stride = max_draft * pos_stride + seq_gap;
    int64_t bytes = is_csr(r) ? r->num_draft_tokens * pos_stride : batch * seq_stride + row_bytes;
    specv_kv_pack k = SPECV_ZERO;
    k.row_bytes = row_bytes;
    if (pos_gap) k.src_pos_stride_bytes = pos_stride;
    if (!is_csr(r) && seq_gap) k.src_seq_stride_bytes = seq_stride;
    if (dst_gap) k.dst_row_stride_bytes = row_bytes + dst_gap;
    k.capacity_rows = between(1, chance(40) ? batch * max_draft + 2 : batch * max_draft / 2 + 1);
    k.num_sms = between(1, 4);
    if (chance(50)) {
        k.src = kv_bytes(bytes, 0);
        k.dst = kv_bytes(k.capacity_rows * (row_bytes + dst_gap), 1);
        k.num_planes = below(2);
    } else {
        k.num_planes = between(1, 4);
        k.src_planes = (const void *const *)plane_table(k.num_planes, bytes, 0);
        k.dst_planes = plane_table(k.num_planes, k.capacity_rows * (row_bytes + dst_gap), 1);
    }
    k.offsets = (int32_t *)output(4 * ((int64_t)batch + 1));
    SPOIL(k.row_bytes, 0);
    SPOIL(k.capacity_rows, 0);
    SPOIL(k.offsets, NULL);
    SPOIL(k.num_planes, -1);
    return k;
}

T_FN void pack_case(int unused) {
    specv_pack_kv_desc d = SPECV_ZERO;
    const int batch = draw_batch(10), max_draft = below(8);
    (void)unused;
    d.rows = draw_rows(batch, max_draft, DENSE_OR_CSR);
    d.accepted_len = accepted_lengths(&d.rows, chance(30) ? 10 : 0);
    d.keep_status = chance(30);
    d.row_status = old_status(d.keep_status, batch);
    d.kv = draw_kv_pack(&d.rows, batch, max_draft);
    SPOIL(d.keep_status, 2);
    spoil_rows(&d.rows);
    RUN(pack_kv);
}

T_FN void verify_pack_case(int dtype) {
    specv_verify_pack_kv_desc d = SPECV_ZERO;
    const int large = chance(4); /* two launches */
    const int batch = large ? between(69, 80) : draw_batch(10), max_draft = large ? 60 : below(8);
    d.verify = draw_verify(batch, max_draft, dtype, chance(30) ? 0 : between(2, 5));
    draw_target_tokens(&d.verify, batch, max_draft, dtype);
    d.kv = draw_kv_pack(&d.verify.rows, batch, max_draft);
    spoil_rows(&d.verify.rows);
    RUN(verify_pack_kv);
}

/* -------------------------------------------------------------------------------- caches, pages */

/* Strides of heads, positions and sequences (or pages), in either order of the first two; 0 for
   what is the default. Returns the bytes of `outer` of the last. */
typedef struct kv_strides {
    int64_t head, pos, outer, bytes;
} kv_strides;

static kv_strides draw_strides(int64_t head_bytes, int heads, int64_t positions, int64_t outer) {
    const int64_t gap = chance(60) ? 0 : between(1, 9);
    kv_strides s;
    if (chance(60)) { /* [position][head] */
        s.head = head_bytes + (chance(50) ? 0 : gap);
        s.pos = heads * s.head + (chance(50) ? 0 : gap);
        s.outer = positions * s.pos + gap;
    } else { /* [head][position] */
        s.pos = head_bytes + gap;
        s.head = positions * s.pos;
        s.outer = heads * s.head + gap;
    }
    s.bytes = outer * s.outer;
    if (s.outer == positions * s.pos && chance(50)) s.outer = 0;
    if (s.pos == heads * s.head && chance(50)) s.pos = 0;
    if (s.head == head_bytes && chance(50)) s.head = 0;
    return s;
}

/* Heads and planes of a cache; pages if page_size is not 0. */
static specv_kv_cache draw_cache(int batch, int max_positions, int page_size, int num_pages) {
    static const int sizes[] = {1, 3, 4, 8, 16, 16, 20, 32};
    const int heads = between(1, 3), head_bytes = T_PICK(sizes);
    const kv_strides s = draw_strides(head_bytes, heads, page_size ? page_size : max_positions,
                                      page_size ? num_pages : batch);
    specv_kv_cache kv = SPECV_ZERO;
    kv.head_bytes = head_bytes, kv.num_heads = heads == 1 ? below(2) : heads;
    kv.head_stride_bytes = s.head, kv.pos_stride_bytes = s.pos;
    *(page_size ? &kv.page_stride_bytes : &kv.seq_stride_bytes) = s.outer;
    kv.max_positions = max_positions, kv.page_size = page_size, kv.num_pages = num_pages;
    kv.num_planes = below(5);
    if (kv.num_planes == 4)
        kv.num_planes = 0; /* no KV at all */
    else if (kv.num_planes <= 1)
        kv.plane = kv_bytes(s.bytes, 1);
    else
        kv.planes = plane_table(kv.num_planes, s.bytes, 1);
    SPOIL(kv.max_positions, 0);
    SPOIL(kv.head_bytes, -1);
    SPOIL(kv.num_pages, -1);
    return kv;
}

/* 0..count - 1 in some order */
static void draw_order(int32_t *order, int count) {
    for (int i = 0; i < count; ++i) {
        const int other = below(i + 1);
        order[i] = order[other];
        order[other] = i;
    }
}

T_FN void append_case(int is_paged) {
    specv_append_kv_desc d = SPECV_ZERO;
    const int batch = draw_batch(8), max_draft = below(6), pending = chance(80) ? 1 : below(4);
    const int max_positions = between(1, 30), page_size = is_paged ? between(1, 9) : 0;
    const int row_pages = page_size ? (max_positions + page_size - 1) / page_size : 0;
    const int num_pages = page_size ? batch * row_pages + between(1, 3) : 0;
    const int faults = chance(40) ? 8 : 0;
    const int64_t columns = pending + max_draft;
    int64_t src_rows;
    d.rows = draw_rows(batch, max_draft, DENSE_OR_CSR);
    d.num_pending = pending;
    d.accepted_len = accepted_lengths(&d.rows, faults);
    d.cache_len = state(batch, max_positions > 8 ? max_positions - 4 : max_positions, faults);
    if (chance(50)) d.draft_cache_len = state(batch, max_positions, faults);
    d.draft_lacks = (int32_t *)optional(70, 4 * (int64_t)batch);
    d.slot_mapping = (int64_t *)optional(70, 8 * batch * columns);
    d.position_ids = (int32_t *)optional(70, 4 * batch * columns);
    d.keep_status = chance(30);
    d.row_status = old_status(d.keep_status, batch);
    d.ticket = ticket();
    d.num_sms = between(1, 4);
    d.kv = draw_cache(batch, max_positions, page_size, num_pages);
    if (is_paged) {
        const int gap = below(3);
        int32_t *order = (int32_t *)input(4 * (int64_t)num_pages);
        draw_order(order, num_pages);
        d.kv.table_stride_elems = gap ? row_pages + gap : 0;
        d.kv.block_table = words(batch * (row_pages + gap), num_pages, 0);
        for (int b = 0; b < batch; ++b)
            for (int e = 0; e < row_pages; ++e)
                d.kv.block_table[b * (row_pages + gap) + e] =
                    chance(faults) ? draw_wild(num_pages - 1) : order[b * row_pages + e];
        if (chance(50)) {
            int32_t *refs = words(num_pages, 0, 0);
            for (int page = 0; page < num_pages; ++page)
                refs[page] = chance(faults) ? draw_wild(1) : 1;
            d.page_refs = refs;
        }
    }
    if (d.kv.plane || d.kv.planes) {
        const int heads = d.kv.num_heads ? d.kv.num_heads : 1, csr = is_csr(&d.rows);
        kv_strides s;
        src_rows = csr ? d.rows.num_draft_tokens + (int64_t)batch * pending : columns;
        if (src_rows < 1) src_rows = 1;
        s = draw_strides(d.kv.head_bytes < 0 ? 1 : d.kv.head_bytes, heads, src_rows,
                         csr ? 1 : batch);
        d.src.head_stride_bytes = s.head, d.src.pos_stride_bytes = s.pos;
        if (!csr) d.src.seq_stride_bytes = s.outer;
        if (d.kv.planes)
            d.src.planes = (const void *const *)plane_table(d.kv.num_planes, s.bytes, 0);
        else
            d.src.plane = kv_bytes(s.bytes, 0);
    }
    SPOIL(d.cache_len, NULL);
    SPOIL(d.num_pending, -1);
    SPOIL(d.ticket, NULL);
    SPOIL(d.kv.page_size, -1);
    spoil_rows(&d.rows);
    RUN(append_kv);
}

/* Where the pass wrote, another table may have named the row's pages, and others of its own. */
T_FN void commit_case(int is_paged) {
    specv_commit_path_desc d = SPECV_ZERO;
    const int batch = draw_batch(8), max_nodes = between(1, 14), depth = below(max_nodes);
    const int max_positions = between(1, 30), page_size = is_paged ? between(1, 9) : 0;
    const int row_pages = page_size ? (max_positions + page_size - 1) / page_size : 0;
    const int num_pages = page_size ? 2 * batch * row_pages + between(1, 3) : 0;
    const int faults = chance(40) ? 8 : 0, columns = (depth ? depth : max_nodes - 1) + 1;
    int32_t *accepted = words(batch, 0, 0), *path;
    d.batch = batch, d.max_nodes = max_nodes, d.max_depth = depth;
    d.path_stride_elems = draw_stride(columns);
    const int64_t stride = d.path_stride_elems ? d.path_stride_elems : columns;
    path = words((int)(batch * stride), max_nodes, 50);
    for (int b = 0; b < batch; ++b) {
        int node = 0, j = 0;
        for (; j < columns && node < max_nodes; ++j, node += 1 + below(3))
            path[b * stride + j] = chance(faults / 4) ? draw_wild(max_nodes) : node;
        accepted[b] = draw_number(j - 1, faults);
    }
    d.accepted_len = accepted, d.path = path;
    d.num_active = active_rows(batch);
    if (chance(30)) d.num_nodes = words(batch, max_nodes, faults);
    d.new_cache_len = state(batch, max_positions > 8 ? max_positions - 8 : 1, faults);
    d.cache_len = d.new_cache_len;
    if (chance(40)) d.new_cache_len = (int32_t *)optional(50, 4 * (int64_t)batch);
    d.keep_status = chance(30);
    d.row_status = old_status(d.keep_status, batch);
    d.ticket = ticket();
    d.num_sms = between(1, 4);
    d.kv = draw_cache(batch, max_positions, page_size, num_pages);
    if (is_paged) {
        const int two = chance(40);
        int32_t *order = (int32_t *)input(4 * (int64_t)num_pages), *was = NULL;
        draw_order(order, num_pages);
        d.kv.block_table = words(batch * row_pages, num_pages, 0);
        if (two) d.src_block_table = was = words(batch * row_pages, num_pages, 0);
        for (int b = 0; b < batch; ++b) {
            const int32_t *own = order + 2 * row_pages * b;
            const int by = below(3) - 1;
            for (int e = 0; e < row_pages; ++e) {
                const int at = b * row_pages + e, other = e + by;
                d.kv.block_table[at] = chance(faults) ? draw_wild(num_pages - 1) : own[e];
                if (two)
                    was[at] = other >= 0 && other < row_pages && chance(60) ? own[other]
                                                                            : own[row_pages + e];
            }
        }
        if (chance(50)) {
            int32_t *refs = words(num_pages, 0, 0);
            for (int page = 0; page < num_pages; ++page)
                refs[page] = chance(faults) ? draw_wild(1) : 1;
            d.page_refs = refs;
        }
    }
    SPOIL(d.cache_len, NULL);
    SPOIL(d.max_nodes, 0);
    SPOIL(d.ticket, NULL);
    SPOIL(d.kv.page_size, -1);
    RUN(commit_path);
}

/* Trees as parents, which are those of a random tree; whatever else is given is seldom one. */
T_FN void layout_case(int form) {
    specv_tree_layout_desc d = SPECV_ZERO;
    const int batch = draw_batch(6), nodes = chance(50) ? between(1, 5) : between(1, 70);
    const int mask_words = (nodes + 31) / 32, faults = chance(40) ? 3 : 0;
    const int count = batch * nodes * (form == SPECV_TREE_MASK ? mask_words : 1);
    int32_t *first = words(form == SPECV_TREE_PATHS ? 0 : count, 0, 0);
    int32_t *other = words(form == SPECV_TREE_LINKS ? count : 0, 0, 0);
    d.form = form, d.batch = batch, d.max_nodes = nodes;
    d.given_parent = first, d.first_child = first, d.next_sibling = other;
    d.given_mask = (const uint32_t *)first;
    d.num_paths = form == SPECV_TREE_PATHS ? below(6) : 0, d.path_len = below(7);
    if (form == SPECV_TREE_PATHS) {
        int32_t *paths = words(batch * d.num_paths * d.path_len, nodes, 20);
        for (int i = 0; i < batch * d.num_paths && d.path_len; ++i)
            for (int e = 0, node = 0; e < d.path_len && !chance(faults); ++e, ++node)
                paths[i * d.path_len + e] = node < nodes && !chance(15) ? node : -1;
        d.paths = paths;
    }
    for (int b = 0; b < batch && form != SPECV_TREE_PATHS; ++b) {
        int32_t *given = first + b * nodes * (form == SPECV_TREE_MASK ? mask_words : 1);
        for (int i = 0; i < nodes; ++i) { /* of links a chain, of masks too */
            if (form == SPECV_TREE_PARENTS) given[i] = i ? below(i) : -1;
            if (form == SPECV_TREE_LINKS) given[i] = i + 1 < nodes ? i + 1 : -1;
            if (form == SPECV_TREE_LINKS) other[b * nodes + i] = -1;
            for (int w = 0; w < mask_words && form == SPECV_TREE_MASK; ++w)
                given[i * mask_words + w] = (int32_t)(w < i / 32    ? 0xffffffffu
                                                      : w == i / 32 ? (1u << i % 32) - 1
                                                                    : 0);
            if (chance(faults)) given[i] = draw_number(nodes, 50);
        }
    }
    d.num_active = active_rows(batch);
    if (chance(40)) d.num_nodes = words(batch, nodes, faults);
    d.index_dtype = chance(50);
    d.position = words(batch, 5000, 0);
    d.parent = (int32_t *)optional(80, 4 * (int64_t)batch * nodes);
    d.depth = (int32_t *)optional(80, 4 * (int64_t)batch * nodes);
    d.position_ids = optional(80, id_bytes(d.index_dtype) * batch * nodes);
    d.mask = (uint32_t *)optional(80, 4 * (int64_t)batch * nodes * mask_words);
    d.keep_status = chance(30);
    d.row_status = old_status(d.keep_status, batch);
    SPOIL(d.form, -1);
    SPOIL(d.max_nodes, 0);
    SPOIL(d.batch, -1);
    RUN(tree_layout);
}

/* Rows that own pages, and share some with the row before; the free ones are on a stack. */
typedef struct pages {
    int num_pages, page_size, row_pages, stride;
    int32_t *owners, *stack, *num_free, *table, *num_row_pages, *cache_len;
} pages;

/* `empty`: per cent of rows without pages; `faults`: of numbers that contradict the others. */
static pages draw_pages(int batch, int empty, int faults) {
    pages p;
    int32_t fresh[256];
    int left_over;
    p.page_size = between(1, 6), p.row_pages = between(1, 6);
    p.num_pages = between(1, chance(30) ? batch * 2 + 1 : batch * p.row_pages + 4);
    p.stride = p.row_pages + (chance(50) ? 0 : below(3));
    p.owners = state(p.num_pages, 0, 0), p.stack = (int32_t *)output(4 * (int64_t)p.num_pages);
    p.num_free = scalar(0);
    p.table = (int32_t *)output(4 * (int64_t)batch * p.stride);
    p.num_row_pages = state(batch, 0, 0), p.cache_len = state(batch, 0, 0);
    draw_order(fresh, left_over = p.num_pages);
    for (int b = 0; b < batch; ++b) {
        int32_t *row = p.table + b * p.stride;
        const int held = chance(empty) ? 0 : between(0, p.row_pages);
        const int shared = b && chance(60) ? below(held + 1) : 0;
        int e = 0;
        for (; e < held; ++e) {
            if (e < shared && e < p.num_row_pages[b - 1])
                row[e] = row[e - p.stride];
            else if (left_over)
                row[e] = fresh[--left_over];
            else
                break;
            p.owners[row[e]] += 1;
        }
        p.num_row_pages[b] = e;
        p.cache_len[b] = chance(40) ? e * p.page_size : below(e * p.page_size + 1);
        for (; e < p.row_pages; ++e) row[e] = -1;
    }
    memcpy(p.stack, fresh, 4 * (size_t)p.num_pages); /* behind num_free: taken ones */
    *p.num_free = left_over;
    for (int b = 0; b < batch; ++b) {
        if (chance(faults)) p.num_row_pages[b] = draw_wild(p.row_pages);
        if (chance(faults)) p.cache_len[b] = draw_wild(p.row_pages * p.page_size);
        if (chance(faults)) { /* which one first: C leaves it open inside an expression */
            const int entry = b * p.stride + below(p.row_pages);
            p.table[entry] = draw_wild(p.num_pages - 1);
        }
    }
    return p;
}

/* A stack that is longer or shorter than it says, ids of no page on it. Only where nothing is
   copied: a page that is there twice would be written twice. */
static void spoil_stack(const pages *p, int percent) {
    const int place = below(p->num_pages);
    if (chance(percent)) *p->num_free = draw_number(p->num_pages, 30);
    if (chance(percent)) p->stack[place] = draw_wild(p->num_pages - 1);
}

T_FN void resize_case(int unused) {
    specv_page_resize_desc d = SPECV_ZERO;
    const int batch = draw_batch(10), faults = chance(40) ? 5 : 0;
    const pages p = draw_pages(batch, 15, faults);
    (void)unused;
    d.batch = batch, d.num_active = active_rows(batch);
    d.pool.page_refs = p.owners, d.pool.free_pages = p.stack, d.pool.num_free = p.num_free;
    d.num_row_pages = p.num_row_pages, d.cache_len = p.cache_len;
    d.kv =
        draw_cache(batch, p.row_pages * p.page_size - below(p.page_size), p.page_size, p.num_pages);
    d.kv.block_table = p.table;
    d.kv.table_stride_elems = p.stride == p.row_pages ? 0 : p.stride;
    if (!d.kv.plane && !d.kv.planes) spoil_stack(&p, 4 * faults);
    for (int page = 0; page < p.num_pages; ++page)
        if (chance(faults)) p.owners[page] += between(-2, 1);
    d.reserve = below(8);
    if (chance(50)) d.row_reserve = words(batch, 12, faults);
    if (chance(50)) d.finished = flags_of(input(batch), batch, 15);
    d.copy_src_page = (int32_t *)output(4 * (int64_t)batch);
    d.copy_dst_page = (int32_t *)output(4 * (int64_t)batch);
    d.keep_status = chance(30), d.row_status = old_status(d.keep_status, batch);
    d.num_sms = between(1, 4);
    SPOIL(d.batch, SPECV_PAGE_ROWS + 1);
    SPOIL(d.pool.page_refs, NULL);
    SPOIL(d.pool.num_free, NULL);
    SPOIL(d.copy_src_page, NULL);
    SPOIL(d.reserve, -1);
    RUN(page_resize);
}

/* `fan_out`: all pages are of one row. */
T_FN void fork_case(int fan_out) {
    specv_page_fork_desc d = SPECV_ZERO;
    const int batch = draw_batch(12), faults = chance(40) ? 5 : 0;
    const pages p = draw_pages(batch, fan_out ? 85 : 50, faults);
    int32_t order[16], *src = words(batch, 0, 0), *dst = words(batch, 0, 0);
    const int sources = batch ? fan_out ? 1 : between(1, batch) : 0;
    draw_order(order, batch); /* the first are sources, the others what becomes of them */
    d.num_forks = batch > sources ? between(fan_out ? 1 : 0, batch - sources) : 0;
    for (int page = 0; page < p.num_pages; ++page)
        if (chance(faults)) p.owners[page] = between(-1, 1);
    for (int i = 0; i < d.num_forks; ++i) {
        src[i] = chance(faults) ? draw_wild(batch - 1) : order[below(sources)];
        dst[i] = chance(faults) ? draw_wild(batch - 1) : order[sources + i];
        if (chance(faults)) dst[i] = chance(50) ? dst[0] : src[0];
        if (dst[i] >= 0 && dst[i] < batch && chance(85)) { /* it has nothing yet */
            for (int e = 0; e < p.num_row_pages[dst[i]] && e < p.row_pages && !faults; ++e)
                p.owners[p.table[dst[i] * p.stride + e]] -= 1;
            p.num_row_pages[dst[i]] = 0;
        }
    }
    d.page_refs = p.owners, d.block_table = p.table, d.num_row_pages = p.num_row_pages;
    d.cache_len = p.cache_len, d.src_slot = src, d.dst_slot = dst;
    d.fork_status = (uint32_t *)optional(90, 4 * (int64_t)batch);
    d.table_stride_elems = p.stride == p.row_pages ? 0 : p.stride;
    d.num_slots = batch;
    d.page_size = p.page_size, d.num_pages = p.num_pages, d.max_row_pages = p.row_pages;
    SPOIL(d.num_slots, -1);
    SPOIL(d.num_forks, -1);
    SPOIL(d.src_slot, NULL);
    SPOIL(d.page_size, 0);
    SPOIL(d.canary1, 1);
    RUN(page_fork);
}

/* --------------------------------------------------------------------------------- C1: columns */

static specv_columns draw_columns(int batch, int token_dtype, int max_columns, int width) {
    const int index_dtype = chance(50);
    specv_columns c = SPECV_ZERO;
    int64_t count;
    c.index_dtype = index_dtype, c.max_columns = max_columns;
    c.stride_elems = draw_stride(max_columns);
    count = batch * (c.stride_elems ? c.stride_elems : max_columns);
    c.tokens = optional(90, count * id_bytes(token_dtype));
    if (c.tokens) ids_of(c.tokens, count, token_dtype, 1000, 0, 0);
    c.mask = optional(90, count * id_bytes(index_dtype));
    if (c.mask) ids_of(c.mask, count, index_dtype, 2, 50, 0);
    c.position_ids = optional(90, count * id_bytes(index_dtype));
    if (c.position_ids) ids_of(c.position_ids, count, index_dtype, 50, 0, 0);
    c.width = scalar(width);
    c.pad_token = chance(50) ? 0 : token_dtype == SPECV_I64 ? (int64_t)5 << 33 : 50256;
    SPOIL(c.max_columns, 0);
    SPOIL(c.index_dtype, 2);
    SPOIL(c.width, NULL);
    return c;
}

/* --------------------------------------------------------------------------------------- trees */

static int32_t *tree_parents(int batch, int nodes, int faults) {
    int32_t *parent = words(batch * nodes, 0, 0);
    for (int i = 0; i < batch * nodes; ++i) {
        const int node = i % nodes;
        parent[i] = chance(faults) ? draw_wild(nodes) : node ? (int32_t)below(node) : -1;
    }
    return parent;
}

/* which: dtype of scores, or 4: target ids. TOLD: what is told of emitted tokens, too; drafts are
   proposals now and then. */
static void tree_case(int which) {
    static const int vocabs[] = {2, 5, 40, 1100};
    specv_verify_tree_desc d = SPECV_ZERO;
    const int from_ids = which == 4, told = which & TOLD, type = which % 4;
    const int batch = draw_batch(6), nodes = between(1, 14);
    const int vocab = from_ids ? 3 : T_PICK(vocabs), dtype = chance(50);
    d.rule = from_ids ? SPECV_TREE_GREEDY : below(7);
    d.trees.batch = batch, d.trees.max_nodes = nodes, d.trees.token_dtype = dtype;
    d.trees.num_active = active_rows(batch);
    if (chance(60)) d.trees.num_nodes = words(batch, nodes, 10);
    d.trees.parent = tree_parents(batch, nodes, chance(20) ? 4 : 0);
    d.trees.token = ids((int64_t)batch * nodes, dtype, vocab, 30, chance(50) ? 5 : 0);
    d.vocab = vocab, d.max_depth = nodes > 1 && chance(20) ? between(1, nodes - 1) : 0;
    if (from_ids) {
        d.target_tokens = ids((int64_t)batch * nodes, dtype, vocab, 30, chance(30) ? 5 : 0);
    } else {
        d.target = draw_scores(batch, nodes, vocab, type, 0);
        if (specv_i_tree_needs_draft(d.rule) && !(told && chance(50)))
            d.draft = draw_scores(batch, nodes, vocab, chance(80) ? type : below(4), 0);
        if (chance(80)) d.temperature = draw_temperatures(batch);
        if (d.draft.data && chance(30)) d.draft_temperature = draw_temperatures(batch);
        d.seed = seeds(batch), d.position = words(batch, 1 << 20, 4);
        d.step_row = chance(70) ? 0 : below(5), d.stream = chance(20);
        d.logprob = (float *)optional(90, 4 * (int64_t)batch);
        d.scratch_bytes = told ? 8 * SCRATCH : SCRATCH, d.scratch = scratch(d.scratch_bytes);
    }
    const int64_t columns = d.max_depth ? d.max_depth + 1 : nodes, bytes = 4 * batch * columns;
    d.accepted_len = (int32_t *)output(4 * (int64_t)batch);
    d.mismatch = (uint8_t *)optional(80, batch), d.finished = (uint8_t *)optional(80, batch);
    d.next_token = optional(90, batch * id_bytes(dtype));
    d.out_tokens = optional(80, batch * columns * id_bytes(dtype));
    d.num_emitted = (int32_t *)optional(80, 4 * (int64_t)batch);
    d.path = (int32_t *)optional(80, bytes), d.accept_index = (int32_t *)optional(50, bytes);
    d.predicts = optional(50, (int64_t)batch * nodes * id_bytes(dtype));
    if (told) d.emitted = draw_emitted(batch, (int)columns, d.path ? d.out_tokens : NULL);
    d.num_eos = chance(30), d.eos_token[0] = 1;
    d.keep_status = chance(20), d.row_status = old_status(d.keep_status, batch);
    SPOIL(d.rule, 7);
    SPOIL(d.trees.max_nodes, 0);
    SPOIL(d.trees.parent, NULL);
    SPOIL(d.canary1, 1);
    RUN(verify_tree);
}

T_FN void realign_case(int with_planes) {
    specv_realign_desc d = SPECV_ZERO;
    const int batch = draw_batch(8), max_draft = below(7), dtype = chance(50);
    const int width = between(0, 24), faults = chance(30) ? 8 : 0;
    const int columns = 1 + width + (chance(80) ? 2 * max_draft + 2 : below(max_draft + 1));
    d.token_dtype = dtype, d.batch = batch, d.max_draft = max_draft;
    d.num_active = active_rows(batch);
    d.out_stride_elems = draw_stride(max_draft + 1);
    d.out_tokens =
        ids(batch * (d.out_stride_elems ? d.out_stride_elems : max_draft + 1), dtype, 1000, 0, 0);
    d.num_emitted = words(batch, max_draft + 1, faults);
    d.pad_len = state(batch, chance(50) ? width : width / 3, faults);
    d.shifts = (specv_shift *)output(16 * (int64_t)batch);
    d.row_status = (uint32_t *)optional(90, 4 * (int64_t)batch);
    d.ticket = ticket();
    d.columns = draw_columns(batch, dtype, columns, chance(4) ? draw_wild(columns) : width);
    if (with_planes) d.kv = draw_cache(batch, chance(85) ? columns : between(1, columns), 0, 0);
    SPOIL(d.batch, -1);
    SPOIL(d.out_stride_elems, -1);
    SPOIL(d.num_emitted, NULL);
    SPOIL(d.pad_len, NULL);
    SPOIL(d.canary1, 1);
    RUN(realign);
}

static specv_shift draw_shift(int columns) {
    specv_shift s = {0, 0, 0, 0};
    int low, high;
    s.by = between(-columns / 2, columns / 2);
    low = s.by < 0 ? -s.by : 0, high = s.by > 0 ? columns - s.by : columns;
    s.first = between(low, high);
    s.count = between(0, high - s.first);
    if (chance(5)) s.first = draw_wild(columns);
    if (chance(5)) s.count = draw_wild(columns);
    if (chance(5)) s.by = draw_wild(columns);
    return s;
}

T_FN void shift_case(int unused) {
    specv_shift_kv_desc d = SPECV_ZERO;
    const int batch = draw_batch(8), columns = between(1, 40);
    specv_shift *shifts = (specv_shift *)input(16 * (int64_t)batch);
    (void)unused;
    for (int b = 0; b < batch; ++b) shifts[b] = draw_shift(columns);
    d.shifts = shifts, d.batch = batch, d.num_active = active_rows(batch);
    if (chance(50)) d.end = words(batch, columns, 10);
    d.keep_status = chance(30), d.row_status = old_status(d.keep_status, batch);
    do d.kv = draw_cache(batch, columns, 0, 0);
    while (!d.kv.plane && !d.kv.planes);
    SPOIL(d.batch, -1);
    SPOIL(d.shifts, NULL);
    SPOIL(d.keep_status, 2);
    RUN(shift_kv);
}

T_FN void gap_case(int unused) {
    specv_gap_commit_desc d = SPECV_ZERO;
    const int batch = draw_batch(8), max_draft = below(7), dtype = chance(50);
    const int width = between(0, 24), faults = chance(30) ? 8 : 0;
    const int columns = 1 + width + (chance(80) ? 2 * max_draft + 2 : below(max_draft + 1));
    int32_t *accepted = words(batch, max_draft, faults), *emitted = words(batch, 0, 0);
    (void)unused;
    for (int b = 0; b < batch; ++b)
        emitted[b] = chance(faults) ? draw_wild(max_draft)
                                    : accepted[b] + (chance(85) && accepted[b] >= 0 &&
                                                     accepted[b] <= max_draft);
    d.token_dtype = dtype, d.batch = batch, d.max_draft = max_draft;
    d.num_active = active_rows(batch);
    d.accepted_len = accepted, d.num_emitted = emitted;
    d.out_stride_elems = draw_stride(max_draft + 1);
    d.out_tokens =
        ids(batch * (d.out_stride_elems ? d.out_stride_elems : max_draft + 1), dtype, 1000, 0, 0);
    d.text_len = state(batch, width, faults);
    d.max_draft_lacks = (int32_t *)optional(80, 4);
    d.row_status = (uint32_t *)optional(90, 4 * (int64_t)batch);
    d.ticket = ticket();
    d.columns = draw_columns(batch, dtype, columns, chance(4) ? draw_wild(columns) : width);
    SPOIL(d.batch, -1);
    SPOIL(d.accepted_len, NULL);
    SPOIL(d.text_len, NULL);
    SPOIL(d.canary1, 1);
    RUN(gap_commit);
}

/* ---------------------------------------------------------------------------------- scheduling */

static void draw_carry(specv_carry *carry, int32_t *num_carry, int batch) {
    static const int sizes[] = {1, 2, 3, 4, 4, 6, 8, 16, 20};
    *num_carry = chance(40) ? 0 : between(1, SPECV_MAX_CARRY);
    for (int i = 0; i < *num_carry; ++i) {
        carry[i].elem_bytes = T_PICK(sizes);
        carry[i].data = kv_bytes(batch * carry[i].elem_bytes, 1);
    }
    SPOIL(*num_carry, SPECV_MAX_CARRY + 1);
}

T_FN void compact_case(int unused) {
    specv_compact_desc d = SPECV_ZERO;
    const int batch = draw_batch(70), faults = chance(30) ? 8 : 0;
    const int64_t bytes = 4 * (int64_t)batch;
    int32_t *lacks;
    (void)unused;
    d.batch = batch, d.num_active = active_rows(batch);
    d.finished = flags_of(input(batch), batch, chance(80) ? 30 : below(2) * 100);
    d.active = (int32_t *)output(bytes), d.new_num_active = (int32_t *)output(4);
    if (chance(80)) {
        d.cache_len = words(batch, 5000, faults);
        d.start_position = (int32_t *)optional(80, bytes);
        if (chance(80)) {
            d.draft_cache_len = lacks = words(batch, 2, faults);
            for (int b = 0; b < batch; ++b)
                lacks[b] = (int32_t)((uint32_t)d.cache_len[b] - (uint32_t)lacks[b]);
            d.draft_lacks_first = (int32_t *)optional(80, bytes);
            d.draft_lacks_start = (int32_t *)optional(80, bytes + 4);
        }
    }
    d.row_status = (uint32_t *)optional(90, bytes);
    draw_carry(d.carry, &d.num_carry, batch);
    SPOIL(d.batch, -1);
    SPOIL(d.finished, NULL);
    SPOIL(d.cache_len, NULL);
    SPOIL(d.active, NULL);
    SPOIL(d.canary0, 1);
    RUN(compact);
}

static void group_case(int by_score) {
    specv_group_desc d = SPECV_ZERO;
    const int batch = draw_batch(60), longest = between(0, 12);
    d.batch = batch, d.num_active = active_rows(batch);
    if (chance(40)) d.skip = flags_of(input(batch), batch, 20);
    if (by_score)
        d.score = (const float *)draw_scores(1, 1, batch ? batch : 1, SPECV_LOGITS_F32, 1).data;
    else
        d.length = words(batch, longest, chance(30) ? 10 : 0);
    d.num_pick = below(5);
    d.order = (int32_t *)output(4 * (int64_t)batch);
    d.group_start = (int32_t *)optional(85, 4 * ((int64_t)batch + 1));
    d.group_count = (int32_t *)optional(85, 4);
    if (d.num_pick) d.pick_rows = (int32_t *)optional(85, 4 * (int64_t)d.num_pick);
    if (d.num_pick) d.is_group = (int32_t *)optional(85, 4);
    d.ticket = ticket();
    SPOIL(d.batch, -1);
    SPOIL(d.length, NULL);
    SPOIL(d.order, NULL);
    SPOIL(d.num_pick, -1);
    SPOIL(d.ticket, NULL);
    RUN(group);
}

static void budget_case(int unused) {
    specv_draft_budget_desc d = SPECV_ZERO;
    const int batch = draw_batch(12), max_draft = below(12), drafts = batch * max_draft;
    const int stride = draw_stride(max_draft), with_odd = chance(30), ties = chance(20);
    float *confidence = floats(batch * (stride ? stride : max_draft), -3, -1, 0);
    (void)unused;
    for (int i = 0; i < batch * (stride ? stride : max_draft); ++i) {
        if (with_odd && chance(8)) confidence[i] = specv_bits_float((uint32_t)t_random());
        if (ties) confidence[i] = specv_bits_float(chance(60) ? 0x3f000000u : 0x3f800000u);
    }
    d.rows = draw_rows(batch, max_draft, DENSE);
    d.confidence = confidence, d.confidence_stride_elems = stride;
    d.max_budget = below(drafts + 2);
    if (chance(30)) d.budget = scalar(draw_number(drafts + 1, 20));
    d.survival = (float *)output(4 * (int64_t)drafts);
    d.new_draft_len = (int32_t *)output(4 * (int64_t)batch);
    d.new_row_start = (int32_t *)optional(85, 4 * ((int64_t)batch + 1));
    d.row_status = (uint32_t *)optional(90, 4 * (int64_t)batch);
    SPOIL(d.confidence_stride_elems, -1);
    SPOIL(d.max_budget, -1);
    SPOIL(d.survival, NULL);
    SPOIL(d.new_draft_len, NULL);
    spoil_rows(&d.rows);
    RUN(draft_budget);
}

/* ---------------------------------------------------------------------------------- particles */

static float *log_probabilities(int64_t count) {
    static const uint32_t odd[] = {0xff800000u, 0xff800000u, 0x7fc00000u, 0x7f800000u};
    const int with_odd = chance(20);
    float *data = floats((int)count, -12, 6, 1);
    for (int64_t i = 0; i < count && with_odd; ++i)
        if (chance(5)) data[i] = specv_bits_float(T_PICK(odd));
    return data;
}

static void weights_case(int unused) {
    specv_particle_weights_desc d = SPECV_ZERO;
    const int batch = draw_batch(12), max_draft = below(6), dtype = chance(50);
    const int64_t draft_stride = draw_stride(max_draft), target_stride = draw_stride(max_draft);
    (void)unused;
    d.batch = batch, d.max_draft = max_draft, d.token_dtype = dtype;
    d.num_active = active_rows(batch);
    d.draft_stride_elems = draft_stride, d.target_logprob_stride_elems = target_stride;
    if (chance(85))
        d.draft_tokens = ids(batch * (draft_stride ? draft_stride : max_draft), dtype, 12, 0, 2);
    if (chance(85)) d.next_token = ids(batch, dtype, 12, 0, 10);
    d.num_eos = below(SPECV_MAX_EOS + 1);
    for (int i = 0; i < SPECV_MAX_EOS; ++i) d.eos_token[i] = below(14);
    d.target_logprob = log_probabilities(batch * (target_stride ? target_stride : max_draft));
    d.draft_logprob = log_probabilities((int64_t)batch * max_draft);
    if (chance(30) && batch && max_draft) /* [max_draft][batch] */
        d.draft_logprob_seq_stride_elems = 1, d.draft_logprob_pos_stride_elems = batch;
    if (chance(70)) d.alpha = floats(batch, -3, 3, 0);
    if (chance(70)) d.bonus_lse = log_probabilities(batch), d.lse = log_probabilities(batch);
    d.finished = flags_of(output(batch), batch, 20);
    d.log_weight = doubles(batch, -20, 10, 1);
    d.interval_weight = doubles(batch, -20, 10, 1);
    d.num_emitted = (int32_t *)optional(85, 4 * (int64_t)batch);
    d.row_status = (uint32_t *)optional(90, 4 * (int64_t)batch);
    SPOIL(d.batch, -1);
    SPOIL(d.finished, NULL);
    SPOIL(d.log_weight, NULL);
    SPOIL(d.num_eos, -1);
    SPOIL(d.canary1, 1);
    RUN(particle_weights);
}

static void plan_case(int scheme) {
    static const int sizes[] = {1, 2, 3, 7, 16, 16, 33, 100};
    static const uint64_t odd[] = {0, 0x7ff8000000000000u, 0x7ff0000000000000u, 0xfff0000000000000u,
                                   0xfff0000000000000u};
    specv_resample_plan_desc d = SPECV_ZERO;
    const int groups = draw_batch(8), n = T_PICK(sizes), all = groups * n;
    const int low = below(24) - 20, with_odd = chance(20) ? chance(20) ? 100 : 10 : 0;
    d.scheme = scheme;
    d.num_groups = groups, d.num_particles = n, d.num_active_groups = active_rows(groups);
    d.interval_weight = doubles(all, low, low + below(6), 1);
    for (int i = 0; i < all; ++i)
        if (chance(with_odd)) d.interval_weight[i] = specv_i_bits_double(T_PICK(odd));
    if (chance(90)) d.log_weight = doubles(all, -20, 10, 1);
    if (chance(90)) d.log_z = doubles(groups, -20, 8, 1);
    d.seed = seeds(groups);
    d.position = words(groups, 1 << 20, 4);
    if (chance(30)) d.uniform = uniforms(all);
    d.jobs = (int32_t *)output(8 * (int64_t)groups * (n - 1));
    d.num_jobs = (int32_t *)output(4 * (int64_t)groups);
    d.num_copies = (int32_t *)optional(90, 4 * (int64_t)all);
    d.drawn_row = (int32_t *)optional(90, 4 * (int64_t)groups);
    d.ess = (double *)optional(90, 8 * (int64_t)groups);
    d.group_status = (uint32_t *)optional(90, 4 * (int64_t)groups);
    d.threshold = chance(70) ? 1 : chance(20) ? 0 : draw_double(-3, -1, 0);
    SPOIL(d.scheme, 4);
    SPOIL(d.num_particles, SPECV_MAX_PARTICLES + 1);
    SPOIL(d.num_groups, -1);
    SPOIL(d.threshold, 2);
    SPOIL(d.num_jobs, NULL);
    RUN(resample_plan);
}

T_FN void reshuffle_case(int unused) {
    specv_reshuffle_desc d = SPECV_ZERO;
    const int groups = draw_batch(3), max_jobs = below(4), faults = chance(30) ? 6 : 0;
    const int batch = groups * (max_jobs + 1), count = groups * max_jobs, dtype = chance(50);
    int32_t *jobs = words(2 * count, 0, 0), *num_jobs = words(groups, max_jobs, faults);
    int32_t order[16];
    int next = 0, sources;
    (void)unused;
    /* the first rows of the order are sources, each of the others is a destination once */
    draw_order(order, batch);
    sources = batch ? between(1, batch - count > 1 ? batch - count : 1) : 0;
    for (int i = 0; i < count; ++i) {
        const int dst = sources + next < batch ? order[sources + next++] : -1;
        jobs[2 * i + 1] = chance(faults) ? draw_wild(batch - 1) : dst;
        jobs[2 * i] = chance(faults) ? draw_wild(batch - 1) : order[below(sources)];
    }
    d.num_groups = groups, d.max_jobs = max_jobs, d.batch = batch, d.token_dtype = dtype;
    d.jobs = jobs, d.num_jobs = num_jobs;
    d.num_caches = below(SPECV_MAX_CACHES + 1);
    for (int i = 0; i < d.num_caches; ++i) {
        const pages p = draw_pages(batch, 10, chance(50) ? 0 : faults);
        specv_particle_cache *c = &d.cache[i];
        c->pool.page_refs = p.owners, c->pool.free_pages = p.stack, c->pool.num_free = p.num_free;
        c->block_table = p.table, c->num_row_pages = p.num_row_pages, c->cache_len = p.cache_len;
        c->table_stride_elems = p.stride == p.row_pages ? 0 : p.stride;
        c->page_size = p.page_size, c->num_pages = p.num_pages, c->max_row_pages = p.row_pages;
        spoil_stack(&p, 4 * faults);
    }
    if (chance(70)) {
        const int stride = between(1, 20);
        d.text_stride_elems = stride;
        d.text = ids_of(output((int64_t)batch * stride * id_bytes(dtype)), (int64_t)batch * stride,
                        dtype, 1000, 0, 0);
        d.text_len = state(batch, stride, faults);
    }
    draw_carry(d.carry, &d.num_carry, batch);
    d.job_status = (uint32_t *)optional(90, 4 * (int64_t)count);
    memset(output(16), 0, 16); /* the tickets of 0.5.0: the digest counts them still */
    d.scratch = scratch(SCRATCH), d.scratch_bytes = SCRATCH;
    SPOIL(d.batch, -1);
    SPOIL(d.num_caches, SPECV_MAX_CACHES + 1);
    SPOIL(d.scratch, NULL);
    SPOIL(d.max_jobs, -1);
    RUN(reshuffle);
}

/* ------------------------------------------------------------------------------------- metrics */

T_FN void stats_case(int unused) {
    specv_accept_stats_desc d = SPECV_ZERO;
    const int batch = draw_batch(40), max_draft = below(12), dtype = chance(50);
    const int faults = chance(30) ? 8 : 0;
    int32_t *emitted;
    (void)unused;
    d.rows = draw_rows(batch, max_draft, DENSE_OR_CSR);
    d.accepted_len = accepted_lengths(&d.rows, faults);
    if (chance(60)) d.mismatch = flags_of(input(batch), batch, 60);
    if (chance(60)) {
        d.num_emitted = emitted = words(batch, 1, faults);
        for (int b = 0; b < batch; ++b)
            emitted[b] = (int32_t)((uint32_t)emitted[b] + (uint32_t)d.accepted_len[b]);
    }
    if (chance(50)) {
        d.token_dtype = dtype;
        if (!is_csr(&d.rows)) d.draft_stride_elems = draw_stride(max_draft);
        d.draft_tokens = ids(num_drafts(&d.rows, d.draft_stride_elems), dtype, 9, 0, 10);
    }
    d.accumulate = chance(40);
    d.histogram = (int64_t *)optional(80, 8 * ((int64_t)max_draft + 1));
    for (int i = 0; i <= max_draft && d.accumulate && d.histogram; ++i)
        d.histogram[i] = t_below((int64_t)1 << 40);
    d.totals = (int64_t *)(d.histogram ? optional(80, 8 * SPECV_STAT_COUNT)
                                       : output(8 * SPECV_STAT_COUNT));
    for (int i = 0; i < SPECV_STAT_COUNT && d.accumulate && d.totals; ++i)
        d.totals[i] = t_below((int64_t)1 << 40);
    SPOIL(d.accumulate, 2);
    SPOIL(d.token_dtype, 2);
    SPOIL(d.accepted_len, NULL);
    spoil_rows(&d.rows);
    RUN(accept_stats);
}

static void metrics_case(int unused) { /* host functions */
    int64_t *totals = (int64_t *)input(8 * SPECV_STAT_COUNT);
    const double alpha = chance(5) ? 1 : draw_double(-4, -1, 0), cost = draw_double(-8, 2, 0);
    const int gamma = below(20);
    double *metric = (double *)output(5 * 8);
    (void)unused;
    for (int i = 0; i < SPECV_STAT_COUNT; ++i) totals[i] = chance(5) ? 0 : below(1 << 30);
    before_case();
    metric[0] = specv_block_efficiency(totals);
    metric[1] = specv_tokens_per_step(totals);
    metric[2] = specv_acceptance_rate(totals);
    metric[3] = specv_expected_tokens(alpha, gamma);
    metric[4] = specv_expected_speedup(alpha, gamma, cost);
    t_check_host();
    after_case(SPECV_OK);
}

/* ------------------------------------------------------------------------------------ digests */

typedef struct operation {
    const char *name;
    int cases;
    void (*draw)(int);
    int which;
} operation;

/* Rule or method, and dtype of scores. */
#define OF_TYPES(name, draw, of)                                                                   \
    {name " f32", SCORED, draw, (of)*4 + SPECV_LOGITS_F32},                                        \
        {name " f16", SCORED, draw, (of)*4 + SPECV_LOGITS_F16},                                    \
        {name " bf16", SCORED, draw, (of)*4 + SPECV_LOGITS_BF16}, {                                \
        name " probs", SCORED, draw, (of)*4 + SPECV_PROBS_F32                                      \
    }

static const operation operations[] = {
    OF_TYPES("A2 greedy", sampled_case, SPECV_RULE_GREEDY),
    OF_TYPES("A3 token", sampled_case, SPECV_RULE_TOKEN),
    OF_TYPES("A4 block", sampled_case, SPECV_RULE_BLOCK),
    OF_TYPES("A5 coupled", sampled_case, SPECV_RULE_COUPLED),
    OF_TYPES("SCORE", sampled_case, SPECV_RULE_SCORE),
    OF_TYPES("A8 cdf", sample_case, SPECV_SAMPLE_CDF),
    OF_TYPES("A8 gumbel", sample_case, SPECV_SAMPLE_GUMBEL),
    {"A10 f32", SCORED, sampled_case, FILTERED + SPECV_LOGITS_F32},
    {"A10 f16", SCORED, sampled_case, FILTERED + SPECV_LOGITS_F16},
    {"A10 bf16", SCORED, sampled_case, FILTERED + SPECV_LOGITS_BF16},
    {"A10 sampler f32", SCORED, sample_case, FILTERED + SPECV_LOGITS_F32},
    {"A10 sampler bf16", SCORED, sample_case, FILTERED + SPECV_LOGITS_BF16},
    {"A11 f32", SCORED, sampled_case, TOLD + SPECV_LOGITS_F32},
    {"A11 f16", SCORED, sampled_case, TOLD + SPECV_LOGITS_F16},
    {"A11 bf16", SCORED, sampled_case, TOLD + SPECV_LOGITS_BF16},
    {"A11 probs", SCORED, sampled_case, TOLD + SPECV_PROBS_F32},
    {"A11 sampler f32", SCORED, sample_case, TOLD + SPECV_LOGITS_F32},
    {"A11 sampler probs", SCORED, sample_case, TOLD + SPECV_PROBS_F32},
    {"A6 f32", SCORED, sampled_case, LOSSY + SPECV_LOGITS_F32},
    {"A6 f16", SCORED, sampled_case, LOSSY + SPECV_LOGITS_F16},
    {"A6 bf16", SCORED, sampled_case, LOSSY + SPECV_LOGITS_BF16},
    {"A6 probs", SCORED, sampled_case, LOSSY + SPECV_PROBS_F32},
    {"A6 told", SCORED, sampled_case, LOSSY + TOLD + SPECV_LOGITS_BF16},
    {"A7 f32", SCORED, tree_case, SPECV_LOGITS_F32},
    {"A7 f16", SCORED, tree_case, SPECV_LOGITS_F16},
    {"A7 bf16", SCORED, tree_case, SPECV_LOGITS_BF16},
    {"A7 probs", SCORED, tree_case, SPECV_PROBS_F32},
    {"A7 told f32", SCORED, tree_case, TOLD + SPECV_LOGITS_F32},
    {"A7 told bf16", SCORED, tree_case, TOLD + SPECV_LOGITS_BF16},
    {"A7 told probs", SCORED, tree_case, TOLD + SPECV_PROBS_F32},
    {"C4 score", PLAIN, group_case, 1},
    {"C5", PLAIN, budget_case, 0},
    {"D1", PLAIN, weights_case, 0},
    {"D2 systematic", PLAIN, plan_case, SPECV_RESAMPLE_SYSTEMATIC},
    {"D2 stratified", PLAIN, plan_case, SPECV_RESAMPLE_STRATIFIED},
    {"D2 multinomial", PLAIN, plan_case, SPECV_RESAMPLE_MULTINOMIAL},
    {"D2 residual", PLAIN, plan_case, SPECV_RESAMPLE_RESIDUAL},
    {"E metrics", PLAIN, metrics_case, 0},
#if !defined(BITS_OF_FLOATS) /* most flags are about these alone */
    {"A1 i32", PLAIN, greedy_case, SPECV_I32},
    {"A1 i64", PLAIN, greedy_case, SPECV_I64},
    {"B1", PLAIN, pack_case, 0},
    {"B2 i32", PLAIN, verify_pack_case, SPECV_I32},
    {"B2 i64", PLAIN, verify_pack_case, SPECV_I64},
    {"B3 padded", PLAIN, append_case, 0},
    {"B3 paged", PLAIN, append_case, 1},
    {"B5 resize", PLAIN, resize_case, 0},
    {"B5 fork", PLAIN, fork_case, 0},
    {"A7 ids", PLAIN, tree_case, 4},
    {"B4 padded", PLAIN, commit_case, 0},
    {"B4 paged", PLAIN, commit_case, 1},
    {"layout parents", PLAIN, layout_case, SPECV_TREE_PARENTS},
    {"layout links", PLAIN, layout_case, SPECV_TREE_LINKS},
    {"layout paths", PLAIN, layout_case, SPECV_TREE_PATHS},
    {"layout mask", PLAIN, layout_case, SPECV_TREE_MASK},
    {"C1 realign", PLAIN, realign_case, 0},
    {"C1 realign, planes", PLAIN, realign_case, 1},
    {"C1 shift", PLAIN, shift_case, 0},
    {"C2", PLAIN, gap_case, 0},
    {"C3", PLAIN, compact_case, 0},
    {"C4 length", PLAIN, group_case, 0},
    {"D3", PLAIN, reshuffle_case, 0},
    {"D4 fan-out", PLAIN, fork_case, 1},
    {"E counters", PLAIN, stats_case, 0},
#endif
};

/* What bits.expected says of so many cases of an operation. 0: nothing. */
static int find_expected(const char *name, long cases, uint64_t *leaves, uint64_t *reads) {
    FILE *file = fopen("tests/bits.expected", "r");
    char line[256], its_name[200];
    unsigned long long of[2];
    long its_cases;
    int found = 0;
    while (file && !found && fgets(line, sizeof line, file))
        found =
            sscanf(line, "%llx %llx %ld %199[^\n]", &of[0], &of[1], &its_cases, its_name) == 4 &&
            its_cases == cases && !strcmp(its_name, name);
    if (file) fclose(file);
    if (found) *leaves = of[0], *reads = of[1];
    return found;
}

static void compare(const operation *o, long cases) {
    uint64_t leaves = 0, reads = 0;
    printf("digest: 0x%016llx 0x%016llx %ld %s\n", (unsigned long long)left,
           (unsigned long long)read_before, cases, o->name);
    if (t.seed != 1) return; /* other cases */
    if (!CHECK(find_expected(o->name, cases, &leaves, &reads)))
        printf("     no line in tests/bits.expected for %ld cases of %s\n", cases, o->name);
    else if (!CHECK(read_before == reads))
        printf("     %s: the cases are others than those of tests/bits.expected\n", o->name);
    else if (!CHECK(left == leaves))
        printf("     %s: other bits from the same inputs\n", o->name);
    else
        return;
    puts("     if that is intended: build/tests/bits-c | sed -n 's/^digest: //p' > "
         "tests/bits.expected, and CHANGELOG.md must say so");
}

/* The operation that has the name of the open group. */
static void run_operation(void) {
    const operation *o = operations;
    long end = t.cases;
    while (strcmp(o->name, t.group) != 0) ++o;
    if (!end) end = T_DEVICE ? t.quick ? FEW : MORE : t.quick ? MORE : o->cases;
    left = read_before = 0;
    for (long i = 1; i <= end; ++i) {
        t_case("%s", o->name);
        is_refused = 0;
        o->draw(o->which);
        if (i == FEW || i == MORE || i == o->cases) compare(o, i);
    }
}

int main(int argc, char **argv) {
    static t_group groups[T_COUNT(operations)];
    int count = 0;
    for (int i = 0; i < T_COUNT(operations); ++i) {
        if (T_DEVICE && operations[i].draw == metrics_case) continue;
        groups[count].name = operations[i].name;
        groups[count++].run = run_operation;
    }
    return t_main(argc, argv, groups, count);
}
