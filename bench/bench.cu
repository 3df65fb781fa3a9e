/* bench.cu - every figure that the project states about the kit, and the earlier variants.

   nvcc -arch=sm_90 -O3 -cudart shared bench/bench.cu -o build/bench     (bench/run.sh does it)

   bench floors                 empty kernel, latency probes, device-to-device copy
   bench verify                 A1: variants 0, 1, 5
   bench sample                 A2 to A5 and A8, from scores over the vocabulary
   bench filters                the same with what requests ask for: A10, A11
   bench pack                   B1: variants 2, 5
   bench verify_pack            B2: variants 2 to 5 over the grid of the seed
   bench wide                   B2 beyond it: batch to 1024, planes to 64, one launch or two
   bench tune                   B2 against num_sms
   bench shapes                 B2 at few points, for a kit that was built with other constants
   bench moves                  B3, B5, C1 to C5, D1 to D3: caches, pages, aligned batches,
                                particles
   bench stats                  E
   bench cases [CASE ...]       the cases of cycles.cuh, timed; another table
   bench all                    all of these
   bench one OP VARIANT B GAMMA ALPHA ROW_BYTES PLANES DTYPE
                                one launch of one case, for a profiler or a sanitizer
   bench one sample MODE B GAMMA VOCAB bf16|f32
                                the same; modes are listed in scores.cuh
   bench one move MODE B GAMMA PLANES POSITIONS
                                the same; modes are listed in moves.cuh. B: of particles, all of
                                them, rounded up to whole groups
   bench counters               under ptxrun: counts of one launch of every variant
   bench cycles [CASE ...]      the cases of cycles.cuh, one launch of each; cycles.sh reads it
   bench cycles list            their names, and the kernels that each needs
   options, anywhere: --quick, --iters N, --warmup N, --graph N, --replays N, --arena MIB,
   --variants NAME,NAME: of cycles, of the cases that have several

   CSV on stdout; lines that begin with # describe the machine and the run. Every variant of every
   case is compared with the reference before it is timed, with all outputs poisoned before: bytes
   that should not have been written count as errors, too. The first difference ends the program.

   Variants are described in variants.cuh, what reads scores in scores.cuh, what moves KV and keeps
   numbers in moves.cuh, cases without a GPU in cycles.cuh, floors and the clock in bench.h. */

#define SPECVERIFY_IMPLEMENTATION
#define SPECVERIFY_REF_STATIC
#define SPECVERIFY_REF_IMPLEMENTATION
#include <cuda_runtime.h>

#include "simulated.h"

#include "../specverify_ref.h"

#include "bench.h"
#include "variants.cuh"

#if !defined(BENCH_FLAGS)
#define BENCH_FLAGS "unknown"
#endif

/* -------------------------------------------------------------------------------------- cases */

enum { OP_VERIFY = 1, OP_PACK = 2, OP_VERIFY_PACK = 4, OP_STATS = 8 };
enum { GEN_BINOMIAL, GEN_GEOMETRIC, GEN_SCORES, GEN_MOVES };

typedef struct bench_case {
    int op, batch, gamma, generator, dtype, planes, num_sms;
    double alpha;
    int64_t row_bytes;
} bench_case;

/* Where everything lies in one input set; the same on both sides. Outputs follow inputs. */
typedef struct bench_layout {
    int64_t draft, target, in_lens, src, src_planes, dst_planes; /* inputs */
    int64_t outputs, lens, mismatch, next_token, offsets, histogram, totals, dst;
    int64_t bytes;
} bench_layout;

enum { MAX_SETS = 32 };

/* A case that is ready to be launched. */
typedef struct bench_run {
    bench_case c;
    bench_layout at;
    int num_sets;
    int64_t accepted, needed_tokens; /* drafts accepted; tokens up to and with the stop */
    char *base;                      /* device; set s starts at base + s * at.bytes */
    variant_args args[MAX_SETS];
    specv_verify_pack_kv_desc both[MAX_SETS];
    specv_pack_kv_desc pack[MAX_SETS];
    specv_accept_stats_desc stats[MAX_SETS];
} bench_run;

typedef struct bench_variant {
    const char *name;
    int ops, max_batch;
    bench_launch launch;
} bench_variant;

static char *arena, *host_in, *host_out; /* device; host: one set; host: outputs of one set */

#define HOST_BYTES ((int64_t)256 << 20) /* of each of the two */

static int64_t align_up(int64_t bytes) { return (bytes + 255) / 256 * 256; }

static int64_t token_bytes(const bench_case *c) { return c->dtype == SPECV_I64 ? 8 : 4; }

static int64_t plane_bytes(const bench_case *c) {
    return align_up((int64_t)c->batch * c->gamma * c->row_bytes);
}

static bench_layout lay_out(const bench_case *c) {
    int64_t b = c->batch, kv = (c->op & (OP_PACK | OP_VERIFY_PACK)) ? plane_bytes(c) : 0, end = 0;
    bench_layout at;
#define PLACE(field, size) (at.field = end, end += align_up(size))
    PLACE(draft, b * c->gamma * token_bytes(c));
    PLACE(target, b * (c->gamma + 1) * token_bytes(c));
    PLACE(in_lens, b * 4);
    PLACE(src_planes, c->planes * 8);
    PLACE(dst_planes, c->planes * 8);
    PLACE(src, kv * c->planes);
    at.outputs = end;
    PLACE(lens, b * 4);
    PLACE(mismatch, b);
    PLACE(next_token, b * token_bytes(c));
    PLACE(offsets, (b + 1) * 4);
    PLACE(histogram, (c->gamma + 1) * 8);
    PLACE(totals, SPECV_STAT_COUNT * 8);
    PLACE(dst, kv * c->planes);
#undef PLACE
    at.bytes = end;
    return at;
}

/* Descriptors of one set whose memory starts at `base`, on either side. */
static void describe(const bench_case *c, const bench_layout *at, char *base, variant_args *args,
                     specv_verify_pack_kv_desc *both, specv_pack_kv_desc *pack,
                     specv_accept_stats_desc *stats) {
    specv_verify_pack_kv_desc d = SPECV_ZERO;
    specv_pack_kv_desc p = SPECV_ZERO;
    specv_accept_stats_desc e = SPECV_ZERO;
    variant_args a = SPECV_ZERO;
    d.verify.rows.batch = c->batch;
    d.verify.rows.max_draft = c->gamma;
    d.verify.token_dtype = c->dtype;
    d.verify.draft_tokens = base + at->draft;
    d.verify.target_tokens = base + at->target;
    d.verify.accepted_len = (int32_t *)(base + at->lens);
    d.verify.mismatch = (uint8_t *)(base + at->mismatch);
    d.verify.next_token = base + at->next_token;
    if (c->planes > 1) {
        d.kv.src_planes = (const void *const *)(base + at->src_planes);
        d.kv.dst_planes = (void *const *)(base + at->dst_planes);
    } else {
        d.kv.src = base + at->src;
        d.kv.dst = base + at->dst;
    }
    d.kv.num_planes = c->planes;
    d.kv.offsets = (int32_t *)(base + at->offsets);
    d.kv.row_bytes = c->row_bytes;
    d.kv.capacity_rows = (int64_t)c->batch * c->gamma;
    d.kv.num_sms = c->num_sms;

    p.rows = d.verify.rows;
    p.accepted_len = (const int32_t *)(base + at->in_lens);
    p.kv = d.kv;

    e.rows = d.verify.rows;
    e.accepted_len = p.accepted_len;
    e.histogram = (int64_t *)(base + at->histogram);
    e.totals = (int64_t *)(base + at->totals);

    a.draft = d.verify.draft_tokens, a.target = d.verify.target_tokens;
    a.accepted_len = d.verify.accepted_len, a.mismatch = d.verify.mismatch;
    a.next_token = d.verify.next_token, a.offsets = d.kv.offsets;
    a.src_planes = d.kv.src_planes, a.dst_planes = d.kv.dst_planes;
    a.src = d.kv.src, a.dst = d.kv.dst, a.row_bytes = c->row_bytes;
    a.batch = c->batch, a.max_draft = c->gamma, a.num_planes = c->planes;
    if (c->op == OP_PACK) a.accepted_len = (int32_t *)(base + at->in_lens);

    *both = d, *pack = p, *stats = e, *args = a;
}

static void put_token(const bench_case *c, int64_t at, int64_t index, int64_t token) {
    if (c->dtype == SPECV_I64)
        ((int64_t *)(host_in + at))[index] = token;
    else
        ((int32_t *)(host_in + at))[index] = (int32_t)token;
}

/* Random inputs of one set, in host_in. Tokens of a vocabulary of 4096, like the seed's. */
static void generate(bench_run *r) {
    const bench_case *c = &r->c;
    int32_t *lens = (int32_t *)(host_in + r->at.in_lens);
    uint64_t *kv = (uint64_t *)(host_in + r->at.src);
    r->accepted = r->needed_tokens = 0;
    for (int b = 0; b < c->batch; ++b) {
        int k = bench_accepted(c->gamma, c->alpha, c->generator == GEN_GEOMETRIC);
        lens[b] = k;
        r->accepted += k;
        r->needed_tokens += 2 * k + (k < c->gamma ? 2 : 1);
        for (int j = 0; j <= c->gamma; ++j) {
            int64_t token = (int64_t)(bench_random() % 4096), other = token;
            if (j > k) other = (int64_t)(bench_random() % 4096);
            if (j == k) other = (token + 1 + (int64_t)(bench_random() % 4095)) % 4096;
            put_token(c, r->at.target, (int64_t)b * (c->gamma + 1) + j, token);
            if (j < c->gamma) put_token(c, r->at.draft, (int64_t)b * c->gamma + j, other);
        }
    }
    for (int64_t i = 0; i < (r->at.outputs - r->at.src) / 8; ++i) kv[i] = bench_random();
}

static void write_tables(const bench_case *c, const bench_layout *at, char *set, void *host_copy) {
    char **src = (char **)((char *)host_copy + at->src_planes);
    char **dst = (char **)((char *)host_copy + at->dst_planes);
    for (int p = 0; p < c->planes; ++p) {
        src[p] = set + at->src + p * plane_bytes(c);
        dst[p] = set + at->dst + p * plane_bytes(c);
    }
}

/* Fills every set with the same inputs, at addresses of its own, and the expected outputs into
   host_in: there they stay until the next case. */
static void prepare(bench_run *r, const bench_case *c, int max_sets) {
    specv_verify_pack_kv_desc both;
    specv_pack_kv_desc pack;
    specv_accept_stats_desc stats;
    variant_args args;
    int64_t output_bytes, set_bytes;
    r->c = *c;
    r->at = lay_out(c);
    set_bytes = r->at.bytes, output_bytes = set_bytes - r->at.outputs;
    r->num_sets = max_sets;
    while (r->num_sets > 1 && r->num_sets * set_bytes > bench.arena_bytes) r->num_sets -= 1;
    if (set_bytes > bench.arena_bytes) bench_fail("the arena is too small for a case", -1);
    r->base = arena;
    generate(r);
    for (int s = 0; s < r->num_sets; ++s) {
        char *set = r->base + s * set_bytes;
        write_tables(c, &r->at, set, host_in);
        CUDA_CHECK(cudaMemcpy(set, host_in, (size_t)(s ? r->at.src : r->at.outputs),
                              cudaMemcpyHostToDevice));
        if (s)
            CUDA_CHECK(cudaMemcpy(set + r->at.src, r->base + r->at.src,
                                  (size_t)(r->at.outputs - r->at.src), cudaMemcpyDeviceToDevice));
        describe(c, &r->at, set, &r->args[s], &r->both[s], &r->pack[s], &r->stats[s]);
    }
    CUDA_CHECK(cudaDeviceSynchronize()); /* our stream does not wait for the default one */
    write_tables(c, &r->at, host_in, host_in);
    memset(host_in + r->at.outputs, 0xa5, (size_t)output_bytes);
    describe(c, &r->at, host_in, &args, &both, &pack, &stats);
    int status = 0;
    switch (c->op) {
    case OP_VERIFY: status = specv_ref_verify_greedy(&both.verify); break;
    case OP_PACK: status = specv_ref_pack_kv(&pack); break;
    case OP_VERIFY_PACK: status = specv_ref_verify_pack_kv(&both); break;
    case OP_STATS: status = specv_ref_accept_stats(&stats); break;
    }
    if (status) bench_fail("reference", status);
}

/* Every set through the variant, into poisoned outputs; ends the program at a difference. */
static void verify_variant(const bench_run *r, const bench_variant *v) {
    int64_t output_bytes = r->at.bytes - r->at.outputs;
    for (int s = 0; s < r->num_sets; ++s) {
        char *outputs = r->base + s * r->at.bytes + r->at.outputs;
        int status;
        CUDA_CHECK(cudaMemsetAsync(outputs, 0xa5, (size_t)output_bytes, bench.stream));
        status = v->launch(r, s, bench.stream);
        if (status) bench_fail(v->name, status);
        CUDA_CHECK(cudaMemcpyAsync(host_out, outputs, (size_t)output_bytes, cudaMemcpyDeviceToHost,
                                   bench.stream));
        bench_wait();
        if (memcmp(host_out, host_in + r->at.outputs, (size_t)output_bytes) != 0) {
            int64_t at = 0;
            while (host_out[at] == host_in[r->at.outputs + at]) ++at;
            fprintf(stderr,
                    "bench: variant %s differs from the reference: output byte %lld (set %d), "
                    "op %d, batch %d, gamma %d, alpha %g, row bytes %lld, planes %d, dtype %d\n",
                    v->name, (long long)at, s, r->c.op, r->c.batch, r->c.gamma, r->c.alpha,
                    (long long)r->c.row_bytes, r->c.planes, r->c.dtype);
            exit(1);
        }
    }
}

/* ----------------------------------------------------------------------------------- variants */

static int run_naive(const void *context, int set, cudaStream_t stream) {
    const bench_run *r = (const bench_run *)context;
    return launch_naive(&r->args[set], r->c.dtype, stream);
}

static int run_ballot(const void *context, int set, cudaStream_t stream) {
    const bench_run *r = (const bench_run *)context;
    return launch_ballot(&r->args[set], r->c.dtype, stream);
}

static int run_pack(const void *context, int set, cudaStream_t stream) {
    const bench_run *r = (const bench_run *)context;
    int status = 0;
    if (r->c.op == OP_VERIFY_PACK) status = launch_ballot(&r->args[set], r->c.dtype, stream);
    return status ? status : launch_seed_pack(&r->args[set], stream);
}

static int run_single(const void *context, int set, cudaStream_t stream) {
    const bench_run *r = (const bench_run *)context;
    return launch_single(&r->args[set], r->c.dtype, 0, stream);
}

static int run_single16(const void *context, int set, cudaStream_t stream) {
    const bench_run *r = (const bench_run *)context;
    return launch_single(&r->args[set], r->c.dtype, 1, stream);
}

static int run_two(const void *context, int set, cudaStream_t stream) {
    return launch_two(&((const bench_run *)context)->both[set], 1, stream);
}

static int run_plain2(const void *context, int set, cudaStream_t stream) {
    return launch_two(&((const bench_run *)context)->both[set], 0, stream);
}

static int run_one(const void *context, int set, cudaStream_t stream) {
    return launch_one(&((const bench_run *)context)->both[set], stream);
}

static int run_kit(const void *context, int set, cudaStream_t stream) {
    const bench_run *r = (const bench_run *)context;
    switch (r->c.op) {
    case OP_VERIFY: return specv_verify_greedy(&r->both[set].verify, stream);
    case OP_PACK: return specv_pack_kv(&r->pack[set], stream);
    case OP_VERIFY_PACK: return specv_verify_pack_kv(&r->both[set], stream);
    default: return specv_accept_stats(&r->stats[set], stream);
    }
}

static const bench_variant variants[] = {
    {"0 naive", OP_VERIFY, 1 << 30, run_naive},
    {"1 ballot", OP_VERIFY, 1 << 30, run_ballot},
    {"2 pack", OP_PACK | OP_VERIFY_PACK, 1 << 30, run_pack},
    {"3 single", OP_VERIFY_PACK, 32, run_single},
    {"3 single16", OP_VERIFY_PACK, 32, run_single16},
    {"4 two", OP_VERIFY_PACK, 1 << 30, run_two},
    {"4 plain2", OP_VERIFY_PACK, 1 << 30, run_plain2},
    {"5 one", OP_VERIFY_PACK, 1 << 30, run_one},
    {"5 kit", OP_VERIFY | OP_PACK | OP_VERIFY_PACK | OP_STATS, 1 << 30, run_kit},
};

enum { NUM_VARIANTS = sizeof variants / sizeof variants[0] };

/* `names`: the parts of names to keep, separated by spaces; null: all. */
static int is_wanted(const bench_variant *v, const char *names) {
    char list[256], *name;
    if (!names) return 1;
    snprintf(list, sizeof list, "%s", names);
    for (name = strtok(list, " "); name; name = strtok(NULL, " "))
        if (strcmp(v->name + 2, name) == 0) return 1;
    return 0;
}

/* ------------------------------------------------------------------------------------- counts */

static int num_launches(const bench_run *r, const bench_variant *v) {
    if (v->launch == run_pack) return r->c.op == OP_PACK ? 2 : 3;
    if (v->launch == run_two || v->launch == run_plain2) return 2;
    if (v->launch == run_kit && r->c.op == OP_VERIFY_PACK)
        return specv_verify_pack_kv_launches(&r->both[0]);
    return 1;
}

/* What no implementation can avoid: the tokens up to each row's stop, the outputs, each accepted
   KV byte in and out. */
static int64_t min_bytes(const bench_run *r) {
    const bench_case *c = &r->c;
    int64_t b = c->batch, verify, pack;
    verify = r->needed_tokens * token_bytes(c) + b * (4 + 1 + token_bytes(c));
    pack = 4 * (b + 1) + 2 * r->accepted * c->row_bytes * c->planes;
    switch (c->op) {
    case OP_VERIFY: return verify;
    case OP_PACK: return 4 * b + pack;
    case OP_VERIFY_PACK: return verify + pack;
    default: return 4 * b + 8 * (c->gamma + 1) + 8 * SPECV_STAT_COUNT;
    }
}

/* What the variant asks the memory system for, re-reads included; most of those meet L1 or L2. */
static int64_t asked_bytes(const bench_run *r, const bench_variant *v) {
    const bench_case *c = &r->c;
    const specv_kv_pack *kv = &r->both[0].kv;
    int64_t b = c->batch, all_tokens = b * (2 * c->gamma + 1) * token_bytes(c);
    int launches = num_launches(r, v);
    if (c->op == OP_PACK && v->launch == run_kit)
        return min_bytes(r) + 4 * b * (blocks_of_pack(&r->both[0].verify.rows, kv) - 1);
    if (c->op != OP_VERIFY_PACK && v->launch != run_kit) return min_bytes(r);
    if (c->op == OP_VERIFY) return min_bytes(r) + all_tokens - r->needed_tokens * token_bytes(c);
    if (c->op != OP_VERIFY_PACK) return min_bytes(r);
    if (v->launch == run_pack) return min_bytes(r) + 12 * b;
    if (v->launch == run_single || v->launch == run_single16) return min_bytes(r);
    if (launches == 2)
        return min_bytes(r) + all_tokens - r->needed_tokens * token_bytes(c) +
               4 * b * blocks_of_pack(&r->both[0].verify.rows, kv);
    return min_bytes(r) + all_tokens * blocks_of_one(&r->both[0]);
}

#include "scores.cuh" /* these use the arena and the floors from above */
#include "moves.cuh"
#include "shards.cuh"

/* --------------------------------------------------------------------------------------- rows */

static const char *op_name(int op) {
    switch (op) {
    case OP_VERIFY: return "verify";
    case OP_PACK: return "pack";
    case OP_VERIFY_PACK: return "verify_pack";
    default: return "stats";
    }
}

static const char *generator_name(const bench_case *c) {
    if (c->generator == GEN_SCORES) return "scores";
    if (c->generator == GEN_MOVES) return "moves";
    return c->generator == GEN_GEOMETRIC ? "truncated-geometric" : "binomial";
}

static const char *dtype_name(const bench_case *c) {
    if (c->generator == GEN_SCORES) return score_name(c->dtype);
    return c->dtype == SPECV_I64 ? "int64" : "int32";
}

/* Lines of comment in front of every CSV: what its columns are. */
static void print_legend(void) {
    printf(
        "# op, variant: variants.cuh, scores.cuh, moves.cuh say what they are; floor: what nothing "
        "can beat\n"
        "# b: rows of the batch; gamma: drafts of a row; alpha: share of drafts accepted; "
        "kv_bytes: "
        "of a KV row, or of a row of scores\n"
        "# planes: K or V of a layer, packed or copied at once; generator: how accepted lengths "
        "are "
        "drawn; dtype: of tokens or scores\n"
        "# cache: warm, the same inputs again; rotate, sets in turn that exceed the L2; flush, L2 "
        "overwritten before; num_sms: what the descriptor says\n");
}

static void print_header(void) {
    print_legend();
    printf(
        "# us_*: a launch between two events, launch included, percentiles; graph_us_*: a launch "
        "of "
        "a replayed graph\n"
        "# bytes: asked for, re-reads included; min_bytes: what nobody can avoid; gb_s: min_bytes "
        "over the time; launches: of kernels\n"
        "# floor, floor_us: the larger of loads that must wait for each other and a copy or read "
        "of "
        "the bytes; ratio: time over floor\n");
    printf("op,variant,b,gamma,alpha,kv_bytes,planes,generator,dtype,cache,num_sms,"
           "us_p10,us_p50,us_p90,us_p95,graph_us_p10,graph_us_p50,graph_us_p90,"
           "bytes,min_bytes,gb_s,launches,floor,floor_us,ratio\n");
}

/* A time, or nothing where there is none. */
static void print_us(double us) {
    if (us > 0 && !bench.interpreted)
        printf("%.3f,", us);
    else
        printf(",");
}

/* One line. The bandwidth is that of min_bytes: bytes that need not move earn nothing. */
static void print_row(const char *op, const char *variant, const bench_case *c, const char *cache,
                      bench_times pair, bench_times graph, int64_t bytes, int64_t least,
                      int launches, bench_bound bound) {
    double us = graph.p50 > 0 ? graph.p50 : pair.p50;
    printf("%s,%s,%d,%d,%g,%lld,%d,%s,%s,%s,%d,", op, variant, c->batch, c->gamma, c->alpha,
           (long long)c->row_bytes, c->planes, generator_name(c), dtype_name(c), cache, c->num_sms);
    print_us(pair.p10), print_us(pair.p50), print_us(pair.p90), print_us(pair.p95);
    print_us(graph.p10), print_us(graph.p50), print_us(graph.p90);
    printf("%lld,%lld,", (long long)bytes, (long long)least);
    print_us(us > 0 ? (double)least / us * 1e-3 : 0);
    printf("%d,%s,", launches, bound.name);
    print_us(bound.us);
    if (bound.us > 0 && !bench.interpreted) printf("%.3f", us / bound.us);
    printf("\n");
    fflush(stdout);
}

/* Loads that wait for each other, in the kit's own grid. */
static bench_floor probe_of_case(const bench_run *r, int depth) {
    const bench_case *c = &r->c;
    const int blocks = c->op == OP_VERIFY        ? (c->batch + 3) / 4
                       : c->op == OP_STATS       ? 1
                       : c->op == OP_VERIFY_PACK ? blocks_of_one(&r->both[0])
                                                 : blocks_of_pack(&r->pack[0].rows, &r->pack[0].kv);
    const int threads = c->op == OP_VERIFY  ? SPECV_VERIFY_THREADS
                        : c->op == OP_STATS ? SPECV_STATS_THREADS
                                            : SPECV_PACK_THREADS;
    return bench_probe(depth, blocks, threads);
}

/* The floor of a case: the loads that must wait for each other, in the kit's own grid, or the copy
   of the KV bytes, whichever takes longer. */
static bench_bound measure_bound(const bench_run *r, int with_graph) {
    const bench_case *c = &r->c;
    int64_t copied =
        (c->op & (OP_PACK | OP_VERIFY_PACK)) ? r->accepted * c->row_bytes * c->planes : 0;
    int depth = c->op == OP_VERIFY || c->op == OP_STATS ? 1 : 2;
    bench_floor f = probe_of_case(r, depth);
    bench_bound bound = {depth == 1 ? "probe1" : "probe2", 0}, copy = {"copy", 0};
    bound.us = with_graph ? bench_time_graph(launch_floor_probe, &f, 1).p50
                          : bench_time_events(launch_floor_probe, &f, 1, 1).p50;
    if (copied == 0) return bound;
    f.src = r->base + r->at.src, f.dst = r->base + r->at.dst;
    f.bytes = copied, f.set_stride = r->at.bytes;
    copy.us = with_graph ? bench_time_graph(launch_floor_copy, &f, r->num_sets).p50
                         : bench_time_events(launch_floor_copy, &f, r->num_sets, 1).p50;
    return copy.us > bound.us ? copy : bound;
}

/* All wanted variants of one case: verified, then timed with a warm L2 or, if the inputs are
   large, with sets in turn that together exceed it; small inputs also after a flush. */
static void measure_case(const bench_case *c, const char *names) {
    static bench_run run;
    bench_run *r = &run;
    bench_times none = {0, 0, 0, 0};
    bench_bound warm, cold = {"", 0};
    int64_t wanted = 2 * bench.l2_bytes / lay_out(c).bytes + 1;
    int rotates = wanted <= MAX_SETS;
    if (wanted < 2 || (bench.quick && rotates)) wanted = 2;
    prepare(r, c, rotates ? (int)wanted : 1);
    warm = measure_bound(r, 1);
    if (!rotates) cold = measure_bound(r, 0);
    for (int i = 0; i < NUM_VARIANTS; ++i) {
        const bench_variant *v = &variants[i];
        bench_times pair, graph;
        if (!(v->ops & c->op) || c->batch > v->max_batch || !is_wanted(v, names)) continue;
        verify_variant(r, v);
        pair = bench_time_events(v->launch, r, r->num_sets, 0);
        graph = bench_time_graph(v->launch, r, r->num_sets);
        print_row(op_name(c->op), v->name, c, rotates ? "rotate" : "warm", pair, graph,
                  asked_bytes(r, v), min_bytes(r), num_launches(r, v), warm);
        if (rotates) continue;
        pair = bench_time_events(v->launch, r, r->num_sets, 1);
        print_row(op_name(c->op), v->name, c, "flush", pair, none, asked_bytes(r, v), min_bytes(r),
                  num_launches(r, v), cold);
    }
}

/* ------------------------------------------------------------------------------------- sweeps */

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

/* Quick runs look at the first and the last of everything. */
static int skips(int i, int count) { return bench.quick && i != 0 && i != count - 1; }

static const double alphas[] = {0.3, 0.6, 0.9};

static bench_case make_case(int op, int batch, int gamma, double alpha, int64_t row_bytes) {
    bench_case c = {op, batch, gamma, GEN_BINOMIAL, SPECV_I64, 1, 0, alpha, row_bytes};
    return c;
}

static void sweep_floors(void) {
    static const int grids[][2] = {{1, 128}, {8, 128}, {64, 128}, {132, 384}, {264, 384}};
    static const int64_t sizes[] = {1 << 12, 1 << 16, 1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 28};
    for (int g = 0; g < COUNT(grids); ++g) {
        bench_case c = make_case(OP_VERIFY, 0, 0, 0, 0);
        bench_bound no_bound = {"", 0};
        if (skips(g, COUNT(grids))) continue;
        c.batch = grids[g][0]; /* for floors: the grid */
        c.gamma = grids[g][1]; /* and the block */
        for (int depth = 0; depth <= PROBE_MAX_DEPTH; ++depth) {
            bench_floor f = bench_probe(depth, grids[g][0], grids[g][1]);
            bench_launch launch = depth ? launch_floor_probe : launch_floor_empty;
            char name[16];
            snprintf(name, sizeof name, depth ? "probe%d" : "empty", depth);
            print_row("floor", name, &c, "warm", bench_time_events(launch, &f, 1, 0),
                      bench_time_graph(launch, &f, 1), 0, 0, 1, no_bound);
        }
    }
    for (int i = 0; i < COUNT(sizes); ++i) {
        bench_case c = make_case(OP_PACK, 0, 0, 0, sizes[i]);
        bench_bound no_bound = {"", 0};
        bench_floor f = {0, 0, 0, 0, 0, 0, 0, 0, 0};
        int64_t sets = 2 * bench.l2_bytes / (2 * sizes[i]) + 1;
        int rotates = sets <= MAX_SETS && (sets + 1) * 2 * sizes[i] <= bench.arena_bytes;
        if (skips(i, COUNT(sizes) - 3) || (bench.quick && i >= COUNT(sizes) - 3)) continue;
        if (sets < 2) sets = 2;
        if (!rotates) sets = 1;
        f.src = arena, f.dst = arena + sizes[i], f.bytes = sizes[i], f.set_stride = 2 * sizes[i];
        print_row("floor", "copy", &c, rotates ? "rotate" : "warm",
                  bench_time_events(launch_floor_copy, &f, (int)sets, 0),
                  bench_time_graph(launch_floor_copy, &f, (int)sets), 2 * sizes[i], 2 * sizes[i], 1,
                  no_bound);
    }
}

static void sweep_verify(void) {
    static const int batches[] = {1, 4, 16, 32, 64, 128, 256}, gammas[] = {4, 8, 16, 32, 64, 128};
    for (int dtype = SPECV_I32; dtype <= SPECV_I64; ++dtype)
        for (int generator = GEN_BINOMIAL; generator <= GEN_GEOMETRIC; ++generator)
            for (int b = 0; b < COUNT(batches); ++b)
                for (int g = 0; g < COUNT(gammas); ++g)
                    for (int a = 0; a < COUNT(alphas); ++a) {
                        bench_case c = make_case(OP_VERIFY, batches[b], gammas[g], alphas[a], 0);
                        c.dtype = dtype;
                        c.generator = generator;
                        if (skips(b, 4) || skips(g, COUNT(gammas)) || skips(a, COUNT(alphas)))
                            continue;
                        if (bench.quick && b > 3) continue;
                        measure_case(&c, NULL);
                    }
}

/* The seed's grid: KV rows of 128 to 2048 fp16 elements, int64 tokens. */
static void sweep_kv(int op) {
    static const int batches[] = {1, 4, 16, 32}, gammas[] = {8, 64, 128};
    static const int kv_dims[] = {128, 512, 1024, 2048};
    for (int generator = GEN_BINOMIAL; generator <= GEN_GEOMETRIC; ++generator)
        for (int b = 0; b < COUNT(batches); ++b)
            for (int g = 0; g < COUNT(gammas); ++g)
                for (int a = 0; a < COUNT(alphas); ++a)
                    for (int k = 0; k < COUNT(kv_dims); ++k) {
                        bench_case c =
                            make_case(op, batches[b], gammas[g], alphas[a], 2 * kv_dims[k]);
                        c.generator = generator;
                        if (skips(b, COUNT(batches)) || skips(k, COUNT(kv_dims))) continue;
                        if (bench.quick && (g > 0 || a % 2 || generator)) continue;
                        measure_case(&c, NULL);
                    }
}

static void sweep_wide(void) {
    static const int batches[] = {64, 128, 256, 512, 1024}, planes[] = {2, 4, 8, 16, 32, 64};
    static const int rule_batches[] = {64, 128, 256, 512, 1024}, rule_gammas[] = {4, 8, 16, 32};
    for (int b = 0; b < COUNT(batches); ++b) {
        bench_case c = make_case(OP_VERIFY_PACK, batches[b], 8, 0.6, 4096);
        if (skips(b, COUNT(batches)) || (bench.quick && b)) continue;
        measure_case(&c, "pack two one kit");
    }
    for (int p = 0; p < COUNT(planes); ++p) {
        bench_case c = make_case(OP_VERIFY_PACK, 32, 8, 0.6, 2048);
        c.planes = planes[p];
        if (skips(p, COUNT(planes)) || (bench.quick && p > 1)) continue;
        measure_case(&c, "pack single16 two one kit");
    }
    /* Both sides of SPECV_ONE_LAUNCH_DRAFTS, with little KV so that the choice shows. */
    for (int dtype = SPECV_I32; dtype <= SPECV_I64; ++dtype)
        for (int b = 0; b < COUNT(rule_batches); ++b)
            for (int g = 0; g < COUNT(rule_gammas); ++g) {
                bench_case c = make_case(OP_VERIFY_PACK, rule_batches[b], rule_gammas[g], 0.6, 256);
                c.dtype = dtype;
                if (bench.quick && ((b != 0 && b != 3) || g != 3)) continue;
                measure_case(&c, "two plain2 one kit");
            }
}

static void sweep_tune(void) {
    static const int sms[] = {8, 16, 33, 66, 99, 132, 198, 264};
    static const int shapes[][3] = {{32, 8, 256}, {32, 8, 4096}, {32, 128, 1024}, {32, 128, 4096}};
    for (int i = 0; i < COUNT(shapes); ++i)
        for (int s = 0; s < COUNT(sms); ++s) {
            bench_case c = make_case(OP_VERIFY_PACK, shapes[i][0], shapes[i][1], 0.9, shapes[i][2]);
            c.num_sms = sms[s];
            if (bench.quick && (i > 1 || skips(s, COUNT(sms)))) continue;
            measure_case(&c, "two one");
        }
}

/* Few shapes, for kits that were built with other constants. */
static void sweep_shapes(void) {
    static const int shapes[][3] = {{4, 8, 256},    {32, 8, 256},    {32, 8, 4096},
                                    {32, 64, 1024}, {32, 128, 4096}, {256, 8, 4096}};
    for (int i = 0; i < COUNT(shapes); ++i) {
        bench_case c = make_case(OP_VERIFY_PACK, shapes[i][0], shapes[i][1], 0.9, shapes[i][2]);
        if (skips(i, COUNT(shapes)) || (bench.quick && i)) continue;
        measure_case(&c, "two one");
    }
}

static void sweep_stats(void) {
    static const int batches[] = {1, 32, 256, 1024}, gammas[] = {8, 128};
    for (int b = 0; b < COUNT(batches); ++b)
        for (int g = 0; g < COUNT(gammas); ++g) {
            bench_case c = make_case(OP_STATS, batches[b], gammas[g], 0.6, 0);
            if (skips(b, COUNT(batches))) continue;
            measure_case(&c, NULL);
        }
}

/* How the columns of every operation read here: kv_bytes, bytes of one row of scores; alpha, the
   fraction of the drafts that was accepted. */
static bench_case case_of_scores(const scores_run *r) {
    bench_case c = make_case(0, r->batch, r->gamma, 0, r->vocab * score_bytes(r->dtype));
    c.generator = GEN_SCORES, c.dtype = r->dtype;
    if (r->gamma) c.alpha = (double)r->accepted / (r->batch * r->gamma);
    return c;
}

static void measure_scores(scores_run *r, const scores_mode *mode) {
    const bench_times none = {0, 0, 0, 0};
    const int64_t sets_bytes = r->num_sets * r->of_all.bytes;
    const int rotates = sets_bytes > bench.l2_bytes;
    bench_bound bound;
    bench_times pair, graph;
    bench_case c;
    prepare_scores_mode(r, mode);
    verify_scores(r);
    c = case_of_scores(r);
    bound = measure_bound_of_scores(r, 1);
    pair = bench_time_events(launch_scores, r, r->num_sets, 0);
    graph = bench_time_graph(launch_scores, r, r->num_sets);
    print_row(mode->op, mode->variant, &c, rotates ? "rotate" : "warm", pair, graph,
              asked_bytes_of_scores(r), min_bytes_of_scores(r), num_launches_of_scores(r), bound);
    if (rotates) return;
    bound = measure_bound_of_scores(r, 0);
    pair = bench_time_events(launch_scores, r, r->num_sets, 1);
    print_row(mode->op, mode->variant, &c, "flush", pair, none, asked_bytes_of_scores(r),
              min_bytes_of_scores(r), num_launches_of_scores(r), bound);
}

/* A10 or A11. */
static int is_of_request(const scores_mode *mode) {
    return mode->top_k || mode->top_p > 0 || mode->mask || mode->told;
}

static int is_mode_of(const scores_mode *mode, const scores_run *r) {
    return mode->drafts == (r->gamma > 0) && mode->probs == (r->dtype == SPECV_PROBS_F32);
}

/* The interpreter looks at what is small alone. What requests ask for is looked at with bf16 and up
   to 4 drafts. */
static void sweep_scores(int of_request) {
    static const int batches[] = {1, 8, 64}, gammas[] = {0, 4, 8}, vocabs[] = {32000, 128256};
    static const int dtypes[] = {SPECV_LOGITS_BF16, SPECV_LOGITS_F32, SPECV_PROBS_F32};
    static scores_run run;
    bench_case c = make_case(OP_VERIFY, 0, 0, 0, 0);
    bench_bound no_bound = {"", 0};
    bench_floor empty = bench_probe(0, 264, SPECV_SAMPLE_THREADS);
    c.batch = empty.blocks, c.gamma = empty.threads;
    print_row("floor", "empty", &c, "warm", bench_time_events(launch_floor_empty, &empty, 1, 0),
              bench_time_graph(launch_floor_empty, &empty, 1), 0, 0, 1, no_bound);
    for (int v = 0; v < COUNT(vocabs); ++v)
        for (int b = 0; b < COUNT(batches); ++b)
            for (int g = 0; g < COUNT(gammas); ++g)
                for (int t = 0; t < COUNT(dtypes); ++t) {
                    if (bench.quick && (v || b || g > 1)) continue;
                    if (bench.interpreted && (v || b)) continue;
                    if (of_request && (g > 1 || t)) continue;
                    prepare_scores(&run, batches[b], gammas[g],
                                   bench.interpreted ? 2500 : vocabs[v], dtypes[t]);
                    for (int m = 0; m < NUM_SCORES_MODES; ++m)
                        if (is_mode_of(&scores_modes[m], &run) &&
                            is_of_request(&scores_modes[m]) == of_request)
                            measure_scores(&run, &scores_modes[m]);
                }
}

static bench_case case_of_move(const moves_run *r) {
    const int kind = r->mode->kind, has_tokens = kind == MOVE_realign || kind == MOVE_gap ||
                                                 kind == MOVE_weights || kind == MOVE_reshuffle;
    bench_case c = make_case(0, r->batch, r->gamma, r->alpha, r->planes ? MOVES_ROW : 0);
    c.generator = GEN_MOVES, c.planes = r->planes;
    c.dtype = has_tokens ? SPECV_I64 : SPECV_I32;
    return c;
}

/* What moves gigabytes takes milliseconds, and is timed less often. */
static void measure_move(moves_run *r) {
    const int iters = bench.iters, replays = bench.replays;
    const bench_case c = case_of_move(r);
    bench_bound bound;
    bench_times pair, graph;
    verify_move(r);
    if (r->moved > (int64_t)256 << 20) {
        if (bench.iters > 40) bench.iters = 40;
        if (bench.replays > 3) bench.replays = 3;
    }
    bound = measure_bound_of_move(r);
    pair = bench_time_events(launch_move, r, r->num_slots, 0);
    graph = bench_time_graph(launch_move, r, r->num_slots);
    verify_move_again(r);
    bench.iters = iters, bench.replays = replays;
    print_row(r->mode->op, r->mode->variant, &c, r->moved ? "rotate" : "warm", pair, graph,
              r->asked, r->least, num_launches_of_move(r), bound);
}

/* Rows of a mode: few, some, many. Groups of 1024 particles have 16 times as many of them. */
static int batch_of_move(const moves_mode *mode, int i) {
    static const int rows[] = {8, 32, 128}, many[] = {48, 256, 1024};
    if (mode->kind < MOVE_weights && mode->kind != MOVE_group) return rows[i];
    return many[i] * (mode->particles > 64 ? mode->particles / 64 : 1);
}

static int gamma_of_move(const moves_mode *mode) {
    const int kind = mode->kind;
    return kind == MOVE_group || kind == MOVE_plan || kind == MOVE_reshuffle ? 0 : 8;
}

/* Positions of a sequence: KV of 32768 for C1, of 4096 for the others, all sequences together,
   but up to 2048 of each; numbers alone are of 2048, block tables of D3 of 524288 together. Nodes
   of a tree. */
static int positions_of_move(const moves_mode *mode, int batch) {
    int positions = 2048;
    if (mode->kind == MOVE_layout) return MOVES_NODES;
    if (mode->kind == MOVE_realign) positions = 32768 / batch;
    if (mode->kind != MOVE_realign && mode->has_kv) positions = 4096 / batch;
    if (mode->kind == MOVE_reshuffle) positions = 524288 / batch;
    if (bench.interpreted && (mode->has_kv || mode->kind == MOVE_gap)) positions = 64;
    return positions < 64 ? 64 : positions > 2048 ? 2048 : positions;
}

static void sweep_moves(void) {
    static moves_run run;
    for (int m = 0; m < NUM_MOVES_MODES; ++m)
        for (int i = 0; i < 3; ++i) {
            const moves_mode *mode = &moves_modes[m];
            const int batch = batch_of_move(mode, i);
            if (skips(i, 3) || (bench.interpreted && i && mode->has_kv)) continue;
            prepare_move(&run, mode, batch, gamma_of_move(mode), bench.interpreted ? 3 : 64,
                         positions_of_move(mode, batch), bench.quick ? 4 : MAX_SETS);
            measure_move(&run);
        }
}

/* ----------------------------------------------------------------------------- single launches */

static const char *const counter_names[] = {
    "launches",           "warp_instructions", "thread_instructions",
    "divergent_branches", "barriers",          "ballots",
    "shuffles",           "load_requests",     "store_requests",
    "load_bytes",         "store_bytes",       "load_sectors",
    "store_sectors",      "ideal_sectors",     "shared_accesses",
    "bank_conflicts",     "atomics",           "serial_trips"};

/* One launch, and its row of counts. */
static void count_launch(const char *op, const char *variant, const bench_case *c,
                         bench_launch launch, const void *context, int64_t least, int64_t asked) {
    bench_profile(1);
    int status = launch(context, 0, bench.stream);
    if (status) bench_fail(variant, status);
    bench_wait();
    bench_profile(0);
    printf("%s,%s,%d,%d,%g,%lld,%d,%s,%s,%lld,%lld", op, variant, c->batch, c->gamma, c->alpha,
           (long long)c->row_bytes, c->planes, generator_name(c), dtype_name(c), (long long)least,
           (long long)asked);
    for (int k = 0; k < COUNT(counter_names); ++k)
        printf(",%lld", ptxrun_count(NULL, counter_names[k]));
    printf("\n");
}

static void count_scores(void) {
    /* Batch and vocabulary; two vocabularies tell the cost of an id from that of a request. */
    static const int shapes[][2] = {{1, 8192}, {4, 8192}, {1, 32000}}, gammas[] = {0, 4};
    static const int dtypes[] = {SPECV_LOGITS_BF16, SPECV_LOGITS_F32, SPECV_PROBS_F32};
    static scores_run run;
    for (int t = 0; t < COUNT(dtypes); ++t)
        for (int g = 0; g < COUNT(gammas); ++g)
            for (int i = 0; i < (bench.quick ? 1 : COUNT(shapes)); ++i) {
                bench_random_state = 7;
                prepare_scores(&run, shapes[i][0], gammas[g], shapes[i][1], dtypes[t]);
                for (int m = 0; m < NUM_SCORES_MODES; ++m) {
                    const scores_mode *mode = &scores_modes[m];
                    bench_case c;
                    if (!is_mode_of(mode, &run)) continue;
                    run.num_sets = 1;
                    prepare_scores_mode(&run, mode);
                    verify_scores(&run);
                    c = case_of_scores(&run);
                    count_launch(mode->op, mode->variant, &c, launch_scores, &run,
                                 min_bytes_of_scores(&run), asked_bytes_of_scores(&run));
                }
            }
}

/* Twice the planes, or four times the rows, tell what 16 bytes or a row cost from what a launch
   costs. */
static void count_moves(void) {
    static moves_run run;
    for (int m = 0; m < NUM_MOVES_MODES; ++m)
        for (int i = 0; i < (bench.quick ? 1 : 2); ++i) {
            const moves_mode *mode = &moves_modes[m];
            const int has_kv = mode->has_kv, batch = batch_of_move(mode, i && !has_kv ? 2 : 1);
            bench_case c;
            bench_random_state = 7;
            prepare_move(&run, mode, batch, gamma_of_move(mode), i && has_kv ? 8 : 4,
                         positions_of_move(mode, batch), 1);
            verify_move(&run);
            c = case_of_move(&run);
            count_launch(mode->op, mode->variant, &c, launch_move, &run, run.least, run.asked);
        }
}

/* Counts of one launch of every variant, from the interpreter. Not times. */
static int count_variants(void) {
    static const bench_case cases[] = {
        {OP_VERIFY, 32, 8, GEN_BINOMIAL, SPECV_I64, 1, 0, 0.3, 0},
        {OP_VERIFY, 32, 8, GEN_BINOMIAL, SPECV_I64, 1, 0, 0.9, 0},
        {OP_VERIFY, 32, 128, GEN_BINOMIAL, SPECV_I64, 1, 0, 0.3, 0},
        {OP_VERIFY, 32, 128, GEN_BINOMIAL, SPECV_I64, 1, 0, 0.9, 0},
        {OP_VERIFY, 32, 128, GEN_BINOMIAL, SPECV_I32, 1, 0, 0.9, 0},
        {OP_VERIFY, 256, 8, GEN_GEOMETRIC, SPECV_I32, 1, 0, 0.6, 0},
        {OP_PACK, 32, 8, GEN_BINOMIAL, SPECV_I64, 1, 0, 0.9, 4096},
        {OP_VERIFY_PACK, 4, 8, GEN_BINOMIAL, SPECV_I64, 1, 0, 0.3, 256},
        {OP_VERIFY_PACK, 32, 8, GEN_BINOMIAL, SPECV_I64, 1, 0, 0.3, 256},
        {OP_VERIFY_PACK, 32, 8, GEN_BINOMIAL, SPECV_I64, 1, 0, 0.9, 4096},
        {OP_VERIFY_PACK, 32, 8, GEN_GEOMETRIC, SPECV_I32, 4, 0, 0.6, 1024},
        {OP_VERIFY_PACK, 32, 128, GEN_BINOMIAL, SPECV_I64, 1, 0, 0.9, 256},
        {OP_STATS, 32, 8, GEN_BINOMIAL, SPECV_I32, 1, 0, 0.6, 0},
    };
    static bench_run run;
    if (!bench.interpreted) {
        fprintf(stderr, "bench: these counts come from ptxrun; on a GPU, see device.sh for ncu\n");
        return 0;
    }
    print_legend();
    printf(
        "# min_bytes: what nobody can avoid; asked_bytes: what the variant asks for, re-reads "
        "included; of one launch of it:\n"
        "# launches; instructions of warps and of their active lanes; branches that part a warp; "
        "barriers, ballots, shuffles of warps or blocks\n"
        "# requests: loads, stores of warps; bytes of lanes; sectors of 32 bytes that they touch, "
        "ideal_sectors if every one were used in full\n"
        "# shared_accesses, bank_conflicts: of shared memory; atomics; serial_trips: longest chain "
        "of loads and atomics that wait for each other\n");
    printf("op,variant,b,gamma,alpha,kv_bytes,planes,generator,dtype,min_bytes,asked_bytes");
    for (int i = 0; i < COUNT(counter_names); ++i) printf(",%s", counter_names[i]);
    printf("\n");
    for (int i = 0; i < COUNT(cases); ++i) {
        const bench_case *c = &cases[i];
        bench_random_state = 7; /* the same lengths for every case of a shape */
        prepare(&run, c, 1);
        for (int n = 0; n < NUM_VARIANTS; ++n) {
            const bench_variant *v = &variants[n];
            if (!(v->ops & c->op) || c->batch > v->max_batch) continue;
            verify_variant(&run, v);
            count_launch(op_name(c->op), v->name, c, v->launch, &run, min_bytes(&run),
                         asked_bytes(&run, v));
        }
    }
    count_scores();
    count_moves();
    return 0;
}

#include "cycles.cuh"

static int run_once_on_scores(int count, char **words) {
    static scores_run run;
    const char *name = count > 0 ? words[0] : "token";
    const int batch = count > 1 ? atoi(words[1]) : 8, gamma = count > 2 ? atoi(words[2]) : 4;
    const int64_t vocab = count > 3 ? atoll(words[3]) : 32000;
    const int is_bf16 = count <= 4 || strcmp(words[4], "bf16") == 0;
    for (int m = 0; m < NUM_SCORES_MODES; ++m) {
        const scores_mode *mode = &scores_modes[m];
        if (strcmp(mode->name, name) != 0) continue;
        prepare_scores(&run, batch, mode->drafts ? gamma : 0, vocab,
                       mode->probs ? SPECV_PROBS_F32
                       : is_bf16   ? SPECV_LOGITS_BF16
                                   : SPECV_LOGITS_F32);
        run.num_sets = 1;
        prepare_scores_mode(&run, mode);
        verify_scores(&run);
        printf("# %s %s: equal to the reference\n", mode->op, mode->variant);
        return 0;
    }
    fprintf(stderr, "bench: no mode %s; see scores.cuh\n", name);
    return 1;
}

static int run_once_on_moves(int count, char **words) {
    static moves_run run;
    const char *name = count > 0 ? words[0] : "append";
    const int batch = count > 1 ? atoi(words[1]) : 8, gamma = count > 2 ? atoi(words[2]) : 8;
    const int planes = count > 3 ? atoi(words[3]) : 4, positions = count > 4 ? atoi(words[4]) : 64;
    for (int m = 0; m < NUM_MOVES_MODES; ++m) {
        if (strcmp(moves_modes[m].name, name) != 0) continue;
        prepare_move(&run, &moves_modes[m], batch, gamma, planes, positions, 1);
        verify_move(&run);
        printf("# %s %s: equal to the reference\n", moves_modes[m].op, moves_modes[m].variant);
        return 0;
    }
    fprintf(stderr, "bench: no mode %s; see moves.cuh\n", name);
    return 1;
}

static int run_once(int count, char **words) {
    static bench_run run;
    bench_case c = make_case(OP_VERIFY, 32, 8, 0.9, 256);
    const char *name = count > 1 ? words[1] : "kit";
    if (count > 0 && strcmp(words[0], "sample") == 0)
        return run_once_on_scores(count - 1, words + 1);
    if (count > 0 && strcmp(words[0], "move") == 0) return run_once_on_moves(count - 1, words + 1);
    if (count > 0 && strcmp(words[0], "pack") == 0) c.op = OP_PACK;
    if (count > 0 && strcmp(words[0], "verify_pack") == 0) c.op = OP_VERIFY_PACK;
    if (count > 0 && strcmp(words[0], "stats") == 0) c.op = OP_STATS;
    if (count > 2) c.batch = atoi(words[2]);
    if (count > 3) c.gamma = atoi(words[3]);
    if (count > 4) c.alpha = atof(words[4]);
    if (count > 5) c.row_bytes = atoll(words[5]);
    if (count > 6) c.planes = atoi(words[6]);
    if (count > 7) c.dtype = strcmp(words[7], "int32") == 0 ? SPECV_I32 : SPECV_I64;
    prepare(&run, &c, 1);
    for (int i = 0; i < NUM_VARIANTS; ++i) {
        const bench_variant *v = &variants[i];
        if (!(v->ops & c.op) || c.batch > v->max_batch || !is_wanted(v, name)) continue;
        verify_variant(&run, v);
        printf("# %s %s: equal to the reference\n", op_name(c.op), v->name);
        return 0;
    }
    fprintf(stderr, "bench: no variant %s of this operation at this size\n", name);
    return 1;
}

/* --------------------------------------------------------------------------------------- main */

static int run_command(int count, char **words) {
    const char *command = count ? words[0] : "";
    int all = strcmp(command, "all") == 0, known = all;
    if (strcmp(command, "counters") == 0) return count_variants();
    if (strcmp(command, "cycles") == 0) return run_cycles(count - 1, words + 1);
    if (strcmp(command, "cases") == 0) return time_cases(count - 1, words + 1);
    if (strcmp(command, "one") == 0) return run_once(count - 1, words + 1);
    print_header();
#define COMMAND(name, sweep)                                                                       \
    if (all || strcmp(command, name) == 0) {                                                       \
        known = 1;                                                                                 \
        sweep;                                                                                     \
    }
    COMMAND("floors", sweep_floors())
    COMMAND("verify", sweep_verify())
    COMMAND("sample", sweep_scores(0))
    COMMAND("filters", sweep_scores(1))
    COMMAND("pack", sweep_kv(OP_PACK))
    COMMAND("verify_pack", sweep_kv(OP_VERIFY_PACK))
    COMMAND("wide", sweep_wide())
    COMMAND("tune", sweep_tune())
    COMMAND("shapes", sweep_shapes())
    COMMAND("moves", sweep_moves())
    COMMAND("stats", sweep_stats())
#undef COMMAND
    if (!known) fprintf(stderr, "bench: no command \"%s\"; see the top of bench.cu\n", command);
    return !known;
}

int main(int argc, char **argv) {
    static const char *names[] = {"--iters", "--warmup", "--graph", "--replays"};
    int *numbers[] = {&bench.iters, &bench.warmup, &bench.graph_launches, &bench.replays};
    char *words[16];
    int num_words = 0, status;
    for (int i = 1; i < argc; ++i) {
        int taken = 0;
        for (int n = 0; n < COUNT(names); ++n)
            if (strcmp(argv[i], names[n]) == 0 && i + 1 < argc)
                *numbers[n] = atoi(argv[++i]), taken = 1;
        if (!taken && strcmp(argv[i], "--quick") == 0) bench.quick = taken = 1;
        if (!taken && strcmp(argv[i], "--arena") == 0 && i + 1 < argc)
            bench.arena_bytes = (int64_t)atoi(argv[++i]) << 20, taken = 1;
        if (!taken && strcmp(argv[i], "--variants") == 0 && i + 1 < argc)
            cycles_variants = argv[++i], taken = 1;
        if (!taken && num_words < COUNT(words)) words[num_words++] = argv[i];
    }
    bench_start(BENCH_FLAGS);
    if (bench.interpreted && bench.arena_bytes > (int64_t)256 << 20)
        bench.arena_bytes = (int64_t)256 << 20;
    CUDA_CHECK(cudaMalloc(&arena, (size_t)bench.arena_bytes));
    CUDA_CHECK(cudaMallocHost(&host_in, (size_t)HOST_BYTES));
    CUDA_CHECK(cudaMallocHost(&host_out, (size_t)HOST_BYTES));
    status = run_command(num_words, words);
    CUDA_CHECK(cudaDeviceSynchronize());
    return status;
}
