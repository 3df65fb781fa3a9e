/* Descriptors made of arbitrary bytes, and nearly valid ones. Validation must not crash, overflow
   or look behind a pointer, and must agree with the slow checker below, which states every rule
   once more, in 128-bit arithmetic: it accepts what breaks no rule and names a rule that is broken.
   Built for libFuzzer, or with PLAIN_RANDOM as a program that takes a number of seconds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define SPECVERIFY_REF_STATIC
#include "specverify_ref.h"

typedef __int128 wide;
enum { NUM_CODES = 64 };
static unsigned char broken[NUM_CODES]; /* by -status */

#define RULE(condition, code)                                                                      \
    do {                                                                                           \
        if (!(condition)) broken[-(SPECV_ERR_##code)] = 1;                                         \
    } while (0)

static int aligned(const void *p, unsigned bytes) { return (uintptr_t)p % bytes == 0; }
static int fits(wide product) { return product <= INT64_MAX; }

static void rules_of_rows(const specv_rows *r) {
    RULE(r->batch >= 0, BATCH);
    RULE(r->max_draft >= 0, MAX_DRAFT);
    RULE((wide)r->batch * ((wide)r->max_draft + 1) <= 1 << 30, TOO_LARGE);
    RULE(r->draft_len == NULL || r->row_start == NULL, LAYOUT);
    RULE(aligned(r->num_active, 4), NUM_ACTIVE);
    RULE(aligned(r->draft_len, 4), DRAFT_LEN);
    RULE(aligned(r->row_start, 4), ROW_START);
    if (r->row_start)
        RULE(r->num_draft_tokens >= 0 && r->num_draft_tokens <= (wide)r->batch * (wide)r->max_draft,
             NUM_DRAFT_TOKENS);
    else
        RULE(r->num_draft_tokens == 0, NUM_DRAFT_TOKENS);
}

static void rules_of_stride(int64_t given, int64_t least, int forbidden, int code) {
    if (given != 0 && (forbidden || given < least)) broken[-code] = 1;
}

static void rules_of_verify(const specv_verify_greedy_desc *d) {
    const unsigned token = d->token_dtype == SPECV_I64 ? 8 : 4;
    const int csr = d->rows.row_start != NULL;
    const int64_t max_draft = d->rows.max_draft;
    RULE(d->canary0 == 0 && d->canary1 == 0, CANARY);
    rules_of_rows(&d->rows);
    RULE(d->token_dtype == 0 || d->token_dtype == 1, TOKEN_DTYPE);
    if (d->rows.batch > 0) {
        RULE(d->draft_tokens || (csr ? d->rows.num_draft_tokens <= 0 : max_draft <= 0),
             DRAFT_TOKENS);
        RULE(d->target_tokens, TARGET_TOKENS);
        RULE(d->accepted_len, ACCEPTED_LEN);
    }
    RULE(aligned(d->draft_tokens, token), DRAFT_TOKENS);
    RULE(aligned(d->target_tokens, token), TARGET_TOKENS);
    RULE(aligned(d->accepted_len, 4), ACCEPTED_LEN);
    RULE(aligned(d->next_token, token), NEXT_TOKEN);
    RULE(aligned(d->out_tokens, token), OUT_TOKENS);
    RULE(aligned(d->num_emitted, 4), NUM_EMITTED);
    RULE(aligned(d->row_status, 4), ROW_STATUS);
    rules_of_stride(d->draft_stride_elems, max_draft, csr, SPECV_ERR_DRAFT_STRIDE);
    rules_of_stride(d->target_stride_elems, max_draft + 1, csr, SPECV_ERR_TARGET_STRIDE);
    rules_of_stride(d->out_stride_elems, max_draft + 1, 0, SPECV_ERR_OUT_STRIDE);
    RULE(fits((wide)d->rows.batch * d->draft_stride_elems * 8), SIZE);
    RULE(fits((wide)d->rows.batch * d->target_stride_elems * 8), SIZE);
    RULE(fits((wide)d->rows.batch * d->out_stride_elems * 8), SIZE);
    RULE(d->vocab >= 0, VOCAB);
    RULE(d->num_eos >= 0 && d->num_eos <= SPECV_MAX_EOS, NUM_EOS);
    for (int i = 0; i < d->num_eos && i < SPECV_MAX_EOS; ++i)
        RULE(d->eos_token[i] >= 0 && (d->vocab == 0 || d->eos_token[i] < d->vocab), EOS_TOKEN);
}

static void rules_of_kv(const specv_kv_pack *kv, const specv_rows *r) {
    const int csr = r->row_start != NULL, tables = kv->src_planes || kv->dst_planes;
    const wide positions = csr ? r->num_draft_tokens : r->max_draft, batch = r->batch;
    const wide pos = kv->src_pos_stride_bytes ? kv->src_pos_stride_bytes : kv->row_bytes;
    const wide out = kv->dst_row_stride_bytes ? kv->dst_row_stride_bytes : kv->row_bytes;
    const wide sequence = kv->src_seq_stride_bytes ? kv->src_seq_stride_bytes : positions * pos;
    RULE(kv->num_planes >= 0, NUM_PLANES);
    RULE(tables ? kv->num_planes != 0 : kv->num_planes <= 1, NUM_PLANES);
    RULE(aligned(kv->src_planes, 8), SRC);
    RULE(aligned(kv->dst_planes, 8), DST);
    RULE(aligned(kv->offsets, 4), OFFSETS);
    RULE(kv->row_bytes > 0, ROW_BYTES);
    RULE(pos >= kv->row_bytes, SRC_POS_STRIDE);
    RULE(out >= kv->row_bytes, DST_ROW_STRIDE);
    RULE(kv->capacity_rows > 0, CAPACITY);
    RULE(fits(kv->capacity_rows * out), SIZE);
    RULE(fits(batch * r->max_draft * kv->row_bytes), SIZE);
    RULE(fits(positions * pos), SIZE);
    if (!csr || kv->src_seq_stride_bytes) RULE(fits(batch * sequence), SIZE);
    if (kv->src_seq_stride_bytes) {
        RULE(!csr, SRC_SEQ_STRIDE);
        RULE(sequence >= 0, SRC_SEQ_STRIDE);
        RULE(positions == 0 || sequence >= (positions - 1) * pos + kv->row_bytes, SRC_SEQ_STRIDE);
    }
    RULE(kv->num_sms >= 0 && kv->num_sms < 65536, NUM_SMS);
    if (r->batch > 0) RULE(kv->offsets, OFFSETS);
    if (r->batch > 0 && positions > 0) {
        RULE((kv->src != NULL) == !tables && (kv->src_planes != NULL) == tables, SRC);
        RULE((kv->dst != NULL) == !tables && (kv->dst_planes != NULL) == tables, DST);
    }
}

static void rules_of_pack(const specv_pack_kv_desc *d) {
    RULE(d->canary0 == 0 && d->canary1 == 0 && d->reserved == 0, CANARY);
    rules_of_rows(&d->rows);
    RULE(d->keep_status == 0 || d->keep_status == 1, KEEP_STATUS);
    RULE(d->rows.batch <= 0 || d->accepted_len, ACCEPTED_LEN);
    RULE(aligned(d->accepted_len, 4), ACCEPTED_LEN);
    RULE(aligned(d->row_status, 4), ROW_STATUS);
    rules_of_kv(&d->kv, &d->rows);
}

static void rules_of_verify_pack(const specv_verify_pack_kv_desc *d) {
    RULE(d->canary1 == 0 && d->reserved == 0, CANARY);
    rules_of_verify(&d->verify);
    rules_of_kv(&d->kv, &d->verify.rows);
}

static void rules_of_stats(const specv_accept_stats_desc *d) {
    RULE(d->canary0 == 0 && d->canary1 == 0 && d->reserved == 0, CANARY);
    rules_of_rows(&d->rows);
    RULE(d->accumulate == 0 || d->accumulate == 1, ACCUMULATE);
    RULE(d->rows.batch <= 0 || d->accepted_len, ACCEPTED_LEN);
    RULE(aligned(d->accepted_len, 4), ACCEPTED_LEN);
    RULE(aligned(d->num_emitted, 4), NUM_EMITTED);
    RULE(aligned(d->histogram, 8), HISTOGRAM);
    RULE(d->histogram || d->totals, HISTOGRAM);
    RULE(aligned(d->totals, 8), TOTALS);
}

static void fail(const char *what, int status) {
    fprintf(stderr, "%s: %d, %s; broken rules:", what, status, specv_status_string(status));
    for (int i = 0; i < NUM_CODES; ++i)
        if (broken[i]) fprintf(stderr, " %d", -i);
    fprintf(stderr, "\n");
    abort();
}

static void compare(int status) {
    int any = 0;
    for (int i = 0; i < NUM_CODES; ++i) any |= broken[i];
    if (strstr(specv_status_string(status), "not a status code")) fail("unknown status", status);
    if (status == SPECV_OK && any) fail("accepted, but", status);
    if (status != SPECV_OK && (status > 0 || status <= -NUM_CODES || !broken[-status]))
        fail("rejected for a rule that holds", status);
}

/* A valid descriptor, resolved: the farthest address of each buffer is below 2^63. */
static void reach_of_kv(const specv_kv_pack *kv, const specv_rows *r) {
    wide last = r->row_start
                    ? (wide)r->num_draft_tokens * kv->src_pos_stride_bytes
                    : (wide)(r->batch - 1) * kv->src_seq_stride_bytes +
                          (wide)(r->max_draft - 1) * kv->src_pos_stride_bytes + kv->row_bytes;
    if (r->batch == 0 || r->max_draft == 0) return;
    if (!fits(last)) fail("the last source row is out of reach", 0);
    if (!fits((wide)kv->capacity_rows * kv->dst_row_stride_bytes)) fail("destination", 0);
    if (kv->num_planes < 1) fail("no planes after resolving", 0);
}

static void reach_of_verify(const specv_verify_greedy_desc *d) {
    const wide rows = d->rows.batch;
    if (!fits(rows * d->draft_stride_elems * 8) || !fits(rows * d->target_stride_elems * 8) ||
        !fits(rows * d->out_stride_elems * 8))
        fail("a token is out of reach", 0);
    if (d->out_stride_elems <= d->rows.max_draft) fail("rows of out_tokens overlap", 0);
}

/* Numbers at which rules change. */
static const int64_t edges[] = {0,         1,         -1,        2,          3,         4,
                                7,         8,         9,         16,         31,        32,
                                4096,      65535,     65536,     INT32_MAX,  INT32_MIN, 1 << 30,
                                INT64_MAX, INT64_MIN, 1LL << 60, 1LL << 33,  -8,        0x1001,
                                0x1002,    0x1004,    0x1008,    0x7fffff00, 32768,     32767};

static const uint8_t *input, *input_end;

static uint64_t take(int bytes) {
    uint64_t value = 0;
    for (; bytes > 0; --bytes) value = value << 8 | (input < input_end ? *input++ : 0);
    return value;
}

/* Mostly the sane value, sometimes an edge, sometimes anything. */
static int64_t field(int64_t sane) {
    unsigned choice = (unsigned)take(1);
    if (choice < 224) return sane;
    if (choice < 252) return edges[take(1) % (sizeof edges / sizeof edges[0])];
    return (int64_t)take(8);
}
static int32_t field32(int32_t sane) { return (int32_t)field(sane); }
static void *pointer(void) { return (void *)(intptr_t)field(0x1000); }
static void *maybe(void) { return take(1) < 128 ? NULL : pointer(); }

static void fill_rows(specv_rows *r) {
    r->batch = field32((int32_t)take(1));
    r->max_draft = field32((int32_t)take(1) % 17);
    r->num_active = (const int32_t *)maybe();
    if (take(1) < 128) {
        r->draft_len = (const int32_t *)maybe();
        r->num_draft_tokens = field(0);
    } else {
        r->row_start = (const int32_t *)pointer();
        r->num_draft_tokens = field((int64_t)r->batch * (r->max_draft & 15));
    }
}

static void fill_verify(specv_verify_greedy_desc *d) {
    const int64_t csr = d->rows.row_start ? 0 : 1;
    d->canary0 = (uint32_t)field(0);
    d->token_dtype = field32((int32_t)take(1) & 1);
    d->draft_tokens = pointer(), d->target_tokens = pointer();
    d->accepted_len = (int32_t *)pointer(), d->mismatch = (uint8_t *)maybe();
    d->next_token = maybe(), d->out_tokens = maybe(), d->num_emitted = (int32_t *)maybe();
    d->finished = (uint8_t *)maybe(), d->row_status = (uint32_t *)maybe();
    d->draft_stride_elems = field(csr * (take(1) & 1) * ((int64_t)d->rows.max_draft + 3));
    d->target_stride_elems = field(csr * (take(1) & 1) * ((int64_t)d->rows.max_draft + 1));
    d->out_stride_elems = field((take(1) & 1) * ((int64_t)d->rows.max_draft + 2));
    d->vocab = field(32000);
    for (int i = 0; i < SPECV_MAX_EOS; ++i) d->eos_token[i] = field(i);
    d->num_eos = field32((int32_t)take(1) % 5);
    d->canary1 = (uint32_t)field(0);
}

static void fill_kv(specv_kv_pack *kv, const specv_rows *r) {
    const int tables = take(1) < 128;
    if (tables) {
        kv->src_planes = (const void *const *)pointer(), kv->dst_planes = (void *const *)pointer();
    } else {
        kv->src = pointer(), kv->dst = pointer();
    }
    if (take(1) > 250) kv->dst = pointer();
    if (take(1) > 250) kv->src_planes = NULL;
    kv->offsets = (int32_t *)pointer();
    kv->row_bytes = field(64);
    kv->src_pos_stride_bytes = field((take(1) & 1) * 80);
    kv->src_seq_stride_bytes = field(r->row_start ? 0 : (take(1) & 1) * 2048);
    kv->dst_row_stride_bytes = field((take(1) & 1) * 96);
    kv->capacity_rows = field(100);
    kv->num_planes = field32(tables ? 2 : (int32_t)take(1) & 1);
    kv->num_sms = field32(132);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static specv_verify_greedy_desc verify;
    static specv_pack_kv_desc pack;
    static specv_verify_pack_kv_desc both;
    static specv_accept_stats_desc stats;
    int kind, raw, status;
    if (size < 2) return 0;
    memset(broken, 0, sizeof broken);
    kind = data[0] & 3, raw = data[0] >= 224;
    input = data + 1, input_end = data + size;
    size = raw ? size - 1 : 0;
#define RAW(d) memcpy(&(d), input, size < sizeof(d) ? size : sizeof(d))
    switch (kind) {
    case 0:
        memset(&verify, 0, sizeof verify);
        RAW(verify);
        if (!raw) fill_rows(&verify.rows), fill_verify(&verify);
        rules_of_verify(&verify);
        compare(status = specv_verify_greedy_validate(&verify));
        if (status == SPECV_OK) {
            specv_verify_greedy_resolve(&verify);
            reach_of_verify(&verify);
        }
        break;
    case 1:
        memset(&pack, 0, sizeof pack);
        RAW(pack);
        if (!raw) {
            fill_rows(&pack.rows), fill_kv(&pack.kv, &pack.rows);
            pack.accepted_len = (const int32_t *)pointer(), pack.row_status = (uint32_t *)maybe();
            pack.keep_status = field32((int32_t)take(1) & 1);
            pack.reserved = (uint32_t)field(0), pack.canary1 = (uint32_t)field(0);
        }
        rules_of_pack(&pack);
        compare(status = specv_pack_kv_validate(&pack));
        if (status == SPECV_OK) {
            specv_pack_kv_resolve(&pack);
            reach_of_kv(&pack.kv, &pack.rows);
        }
        break;
    case 2:
        memset(&both, 0, sizeof both);
        RAW(both);
        if (!raw) {
            fill_rows(&both.verify.rows), fill_verify(&both.verify);
            fill_kv(&both.kv, &both.verify.rows);
            both.reserved = (uint32_t)field(0), both.canary1 = (uint32_t)field(0);
        }
        rules_of_verify_pack(&both);
        compare(status = specv_verify_pack_kv_validate(&both));
        if (status == SPECV_OK) {
            int launches = specv_verify_pack_kv_launches(&both);
            if (launches != 1 && launches != 2) fail("launches", launches);
            specv_verify_pack_kv_resolve(&both);
            reach_of_verify(&both.verify), reach_of_kv(&both.kv, &both.verify.rows);
        }
        break;
    default:
        memset(&stats, 0, sizeof stats);
        RAW(stats);
        if (!raw) {
            fill_rows(&stats.rows);
            stats.accumulate = field32((int32_t)take(1) & 1);
            stats.accepted_len = (const int32_t *)pointer();
            stats.mismatch = (const uint8_t *)maybe(), stats.num_emitted = (const int32_t *)maybe();
            stats.histogram = (int64_t *)maybe(), stats.totals = (int64_t *)pointer();
            stats.reserved = (uint32_t)field(0), stats.canary1 = (uint32_t)field(0);
        }
        rules_of_stats(&stats);
        compare(status = specv_accept_stats_validate(&stats));
    }
    return status == SPECV_OK ? 1 : 0;
}

#if defined(PLAIN_RANDOM)
#include <time.h>

int main(int argc, char **argv) {
    const double seconds = argc > 1 ? atof(argv[1]) : 5;
    const clock_t start = clock();
    uint64_t state = 0x9e3779b97f4a7c15u, tried = 0, accepted = 0;
    uint8_t bytes[600];
    while ((double)(clock() - start) < seconds * CLOCKS_PER_SEC) {
        for (int n = 0; n < 1000; ++n) {
            for (size_t i = 0; i < sizeof bytes; ++i) {
                state ^= state << 13, state ^= state >> 7, state ^= state << 17;
                bytes[i] = (uint8_t)(state >> 32);
            }
            accepted += (uint64_t)LLVMFuzzerTestOneInput(bytes, sizeof bytes);
            tried += 1;
        }
    }
    printf("%llu descriptors, %llu of them valid\n", (unsigned long long)tried,
           (unsigned long long)accepted);
    return accepted > tried / 20 && accepted < tried ? 0 : 1; /* else it did not try enough */
}
#endif
