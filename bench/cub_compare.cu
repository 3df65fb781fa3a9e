/* cub_compare.cu - packing with CUB behind the kit's A1, on the seed's grid; CSV like bench.cu's.

   nvcc -arch=sm_90 -O3 -std=c++17 bench/cub_compare.cu -o build/cub_compare
   cub_compare [--quick] [--iters N] [--warmup N] [--graph N] [--replays N]

   cub flagged   A1, then DeviceSelect::Flagged over 16-byte units; a unit's flag is computed from
                 accepted_len, so that no mask is written or read
   cub batched   A1, then DeviceScan::ExclusiveSum, then DeviceMemcpy::Batched, one buffer per row
   kit           specv_verify_pack_kv

   Each is compared with the reference before it is timed. C++ because CUB is; nothing else here
   has templates. */

#define SPECVERIFY_IMPLEMENTATION
#define SPECVERIFY_REF_STATIC
#define SPECVERIFY_REF_IMPLEMENTATION
#include <cuda_runtime.h>
#include <cub/cub.cuh>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>

#include "../specverify_ref.h"

#include "bench.h"
#include "cub_accepted.cuh"

#if !defined(BENCH_FLAGS)
#define BENCH_FLAGS "unknown"
#endif

typedef struct peer_case {
    int batch, gamma;
    int64_t row_bytes, accepted, set_bytes, tokens_up_to_stop;
    double alpha;
    int num_sets;
    void *scratch;
    size_t scratch_bytes;
    int64_t *selected;
    specv_verify_pack_kv_desc d[32];
} peer_case;

struct row_source {
    char *src;
    int64_t row_bytes;
    int gamma;
    __device__ void *operator()(int row) const { return src + row * (gamma * row_bytes); }
};

struct row_target {
    char *dst;
    const int32_t *offsets;
    int64_t row_bytes;
    __device__ void *operator()(int row) const { return dst + offsets[row] * row_bytes; }
};

struct row_size {
    const int32_t *accepted_len;
    int64_t row_bytes;
    __device__ int64_t operator()(int row) const { return accepted_len[row] * row_bytes; }
};

static int run_flagged(const void *context, int set, cudaStream_t stream) {
    const peer_case *c = (const peer_case *)context;
    const specv_verify_pack_kv_desc *d = &c->d[set];
    int64_t units_per_row = c->row_bytes / 16;
    size_t bytes = c->scratch_bytes;
    unit_is_accepted accepted = {d->verify.accepted_len, units_per_row, c->gamma};
    auto flags =
        thrust::make_transform_iterator(thrust::make_counting_iterator((int64_t)0), accepted);
    int status = specv_verify_greedy(&d->verify, stream);
    if (status) return status;
    return (int)cub::DeviceSelect::Flagged(c->scratch, bytes, (const uint4 *)d->kv.src, flags,
                                           (uint4 *)d->kv.dst, c->selected,
                                           c->batch * c->gamma * units_per_row, stream);
}

static int run_batched(const void *context, int set, cudaStream_t stream) {
    const peer_case *c = (const peer_case *)context;
    const specv_verify_pack_kv_desc *d = &c->d[set];
    size_t bytes = c->scratch_bytes;
    row_source source = {(char *)d->kv.src, c->row_bytes, c->gamma};
    row_target target = {(char *)d->kv.dst, d->kv.offsets, c->row_bytes};
    row_size size = {d->verify.accepted_len, c->row_bytes};
    auto rows = thrust::make_counting_iterator(0);
    int status = specv_verify_greedy(&d->verify, stream);
    if (status) return status;
    status = (int)cub::DeviceScan::ExclusiveSum(c->scratch, bytes, d->verify.accepted_len,
                                                d->kv.offsets, c->batch, stream);
    if (status) return status;
    bytes = c->scratch_bytes;
    return (int)cub::DeviceMemcpy::Batched(
        c->scratch, bytes, thrust::make_transform_iterator(rows, source),
        thrust::make_transform_iterator(rows, target), thrust::make_transform_iterator(rows, size),
        c->batch, stream);
}

static int run_kit(const void *context, int set, cudaStream_t stream) {
    return specv_verify_pack_kv(&((const peer_case *)context)->d[set], stream);
}

static char *arena, *host_in, *host_out;

static int64_t align_up(int64_t bytes) { return (bytes + 255) / 256 * 256; }

/* Inputs and expected outputs of the case: one set on the host, as many as exceed the L2 on the
   device. Packed KV is the only output compared: CUB writes no offsets[batch]. */
static void prepare(peer_case *c, int generator_is_geometric) {
    int64_t b = c->batch, g = c->gamma, kv = align_up(b * g * c->row_bytes);
    int64_t draft = 0, target = align_up(b * g * 8), src = target + align_up(b * (g + 1) * 8);
    int64_t lens = src + kv, mismatch = lens + align_up(b * 4), next = mismatch + align_up(b);
    int64_t offsets = next + align_up(b * 8), dst = offsets + align_up((b + 1) * 4);
    c->set_bytes = dst + kv;
    c->num_sets = (int)(2 * bench.l2_bytes / c->set_bytes + 1);
    if (c->num_sets > 32) c->num_sets = 1;
    if (bench.quick && c->num_sets > 2) c->num_sets = 2;
    c->accepted = c->tokens_up_to_stop = 0;
    for (int64_t row = 0; row < b; ++row) {
        int k = bench_accepted(c->gamma, c->alpha, generator_is_geometric);
        c->accepted += k, c->tokens_up_to_stop += 2 * k + (k < g ? 2 : 1);
        for (int64_t j = 0; j <= g; ++j) {
            int64_t token = (int64_t)(bench_random() % 4096);
            ((int64_t *)(host_in + target))[row * (g + 1) + j] = token;
            if (j < g)
                ((int64_t *)(host_in + draft))[row * g + j] = j == k ? (token + 1) % 4096 : token;
        }
    }
    for (int64_t i = 0; i < kv / 8; ++i) ((uint64_t *)(host_in + src))[i] = bench_random();
    memset(host_in + lens, 0xa5, (size_t)(c->set_bytes - lens));
    for (int s = c->num_sets; s >= 0; --s) { /* the last of all, set 0 on the host: expected */
        char *base = s ? arena + (s - 1) * c->set_bytes : host_in;
        specv_verify_pack_kv_desc d = SPECV_ZERO;
        d.verify.token_dtype = SPECV_I64;
        d.verify.rows.batch = c->batch;
        d.verify.rows.max_draft = c->gamma;
        d.verify.draft_tokens = base + draft;
        d.verify.target_tokens = base + target;
        d.verify.accepted_len = (int32_t *)(base + lens);
        d.verify.mismatch = (uint8_t *)(base + mismatch);
        d.verify.next_token = base + next;
        d.kv.src = base + src;
        d.kv.dst = base + dst;
        d.kv.offsets = (int32_t *)(base + offsets);
        d.kv.row_bytes = c->row_bytes;
        d.kv.capacity_rows = b * g;
        if (s) {
            CUDA_CHECK(cudaMemcpy(base, host_in, (size_t)c->set_bytes, cudaMemcpyHostToDevice));
            c->d[s - 1] = d;
        } else {
            int status = specv_ref_verify_pack_kv(&d);
            if (status) bench_fail("reference", status);
        }
    }
}

static void compare_with_reference(const peer_case *c, const char *name, bench_launch launch) {
    int64_t kv_bytes = (int64_t)c->batch * c->gamma * c->row_bytes;
    int64_t dst_offset = c->set_bytes - align_up(kv_bytes);
    for (int s = 0; s < c->num_sets; ++s) {
        int status;
        CUDA_CHECK(cudaMemsetAsync(c->d[s].kv.dst, 0xa5, (size_t)kv_bytes, bench.stream));
        status = launch(c, s, bench.stream);
        if (status) bench_fail(name, status);
        CUDA_CHECK(cudaMemcpyAsync(host_out, c->d[s].kv.dst, (size_t)kv_bytes,
                                   cudaMemcpyDeviceToHost, bench.stream));
        bench_wait();
        if (memcmp(host_out, host_in + dst_offset, (size_t)kv_bytes) != 0) {
            fprintf(stderr, "cub_compare: %s differs from the reference\n", name);
            exit(1);
        }
    }
}

static void measure(peer_case *c, int geometric) {
    static const struct {
        const char *name;
        bench_launch launch;
    } peers[] = {{"cub flagged", run_flagged}, {"cub batched", run_batched}, {"5 kit", run_kit}};
    prepare(c, geometric);
    for (int i = 0; i < 3; ++i) {
        bench_times pair, graph;
        int64_t least = 2 * c->accepted * c->row_bytes + c->tokens_up_to_stop * 8 +
                        c->batch * (4 + 1 + 8) + 4 * (c->batch + 1);
        compare_with_reference(c, peers[i].name, peers[i].launch);
        pair = bench_time_events(peers[i].launch, c, c->num_sets, 0);
        graph = bench_time_graph(peers[i].launch, c, c->num_sets);
        printf("verify_pack,%s,%d,%d,%g,%lld,1,%s,int64,%s,", peers[i].name, c->batch, c->gamma,
               c->alpha, (long long)c->row_bytes, geometric ? "truncated-geometric" : "binomial",
               c->num_sets > 1 ? "rotate" : "warm");
        if (bench.interpreted)
            printf(",,,%lld\n", (long long)least);
        else
            printf("%.3f,%.3f,%.3f,%lld\n", pair.p50, pair.p95, graph.p50, (long long)least);
        fflush(stdout);
    }
}

int main(int argc, char **argv) {
    static const int batches[] = {1, 4, 16, 32}, gammas[] = {8, 64, 128};
    static const int kv_dims[] = {128, 512, 1024, 2048};
    static const double alphas[] = {0.3, 0.6, 0.9};
    static peer_case c;
    for (int i = 1; i < argc; ++i) {
        int has_value = i + 1 < argc;
        if (strcmp(argv[i], "--quick") == 0) bench.quick = 1;
        if (has_value && strcmp(argv[i], "--iters") == 0) bench.iters = atoi(argv[i + 1]);
        if (has_value && strcmp(argv[i], "--warmup") == 0) bench.warmup = atoi(argv[i + 1]);
        if (has_value && strcmp(argv[i], "--graph") == 0) bench.graph_launches = atoi(argv[i + 1]);
        if (has_value && strcmp(argv[i], "--replays") == 0) bench.replays = atoi(argv[i + 1]);
    }
    bench_start(BENCH_FLAGS);
    CUDA_CHECK(cudaMalloc(&arena, (size_t)512 << 20));
    CUDA_CHECK(cudaMallocHost(&host_in, (size_t)128 << 20));
    CUDA_CHECK(cudaMallocHost(&host_out, (size_t)128 << 20));
    c.scratch_bytes = (size_t)16 << 20;
    CUDA_CHECK(cudaMalloc(&c.scratch, c.scratch_bytes));
    CUDA_CHECK(cudaMalloc(&c.selected, sizeof *c.selected));
    printf("op,variant,b,gamma,alpha,kv_bytes,planes,generator,dtype,cache,us_p50,us_p95,"
           "graph_us_p50,min_bytes\n");
    for (int geometric = 0; geometric < 2; ++geometric)
        for (int b = 0; b < 4; ++b)
            for (int g = 0; g < 3; ++g)
                for (int a = 0; a < 3; ++a)
                    for (int k = 0; k < 4; ++k) {
                        if (bench.quick && (geometric || b % 3 || g || a != 2 || k % 3)) continue;
                        c.batch = batches[b], c.gamma = gammas[g], c.alpha = alphas[a];
                        c.row_bytes = 2 * kv_dims[k];
                        measure(&c, geometric);
                    }
    CUDA_CHECK(cudaDeviceSynchronize());
    return 0;
}
