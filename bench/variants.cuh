/* variants.cuh - earlier ways to verify and pack, kept to see what each step is worth.

   Numbers as in the result tables. "Seed" is the study that started the kit: Kolawole 2026, Batched
   Speculative Decoding Verification Kernels; its kernels are rebuilt here from their description.

   0  naive     A1. A thread per sequence walks its row until the first mismatch. Lanes of a warp
                stop at different places, and each step is two loads that wait for the step before.
   1  ballot    A1. A warp per sequence, 32 positions per ballot, the next chunk loaded after the
                ballot on the last one (the seed's "Opt A"): ceil((k + 1) / 32) round trips.
   2  pack      B1. A scan of the lengths, then one block of 256 threads per sequence that copies
                2-byte elements (the seed's stand-alone packer, without its host synchronisation).
                For B2 it follows variant 1: three launches.
   3  single    B2. One block of 32 x 32 threads does everything: ballots, a scan by warp 0, 2-byte
                copies by each sequence's warp (the seed's fused kernel). At most 32 sequences.
      single16  The same with the kit's 16-byte copies: what remains is the cost of one SM.
   4  two       B2. The kit's A1, then the kit's B1, in two launches chained by programmatic
                dependent launch.
      plain2    The same without the chain.
   5  kit       The kit's launchers as they are.
      one       B2 in one launch whatever the size: with `two` it shows where the rule that
                chooses between them ought to switch.

   Include after specverify.cuh with SPECVERIFY_IMPLEMENTATION: `one` and `plain2` start the kit's
   kernels in ways that its launchers would not choose. */

#ifndef SPECV_BENCH_VARIANTS_CUH
#define SPECV_BENCH_VARIANTS_CUH

/* What the variants read: dense rows of max_draft drafts, no options. */
typedef struct variant_args {
    const void *draft, *target;
    int32_t *accepted_len;
    uint8_t *mismatch;
    void *next_token;
    int32_t *offsets;
    const void *const *src_planes; /* null: src and dst are the only plane */
    void *const *dst_planes;
    const void *src;
    void *dst;
    int64_t row_bytes;
    int32_t batch, max_draft, num_planes;
} variant_args;

/* The three outputs of the seed's verifiers. With a constant dtype the branches fold. */
static __device__ __forceinline__ void variant_emit(const variant_args *a, int dtype, int row,
                                                    int accepted) {
    int64_t target_index = (int64_t)row * (a->max_draft + 1) + accepted;
    a->accepted_len[row] = accepted;
    a->mismatch[row] = accepted < a->max_draft;
    if (dtype == SPECV_I64)
        ((int64_t *)a->next_token)[row] = ((const int64_t *)a->target)[target_index];
    else
        ((int32_t *)a->next_token)[row] = ((const int32_t *)a->target)[target_index];
}

static __device__ __forceinline__ int variant_differs(const variant_args *a, int dtype, int row,
                                                      int j) {
    int64_t draft_index = (int64_t)row * a->max_draft + j;
    int64_t target_index = (int64_t)row * (a->max_draft + 1) + j;
    if (dtype == SPECV_I64)
        return ((const int64_t *)a->draft)[draft_index] !=
               ((const int64_t *)a->target)[target_index];
    return ((const int32_t *)a->draft)[draft_index] != ((const int32_t *)a->target)[target_index];
}

/* ------------------------------------------------------------------------------------ 0 naive */

static __device__ __forceinline__ void variant_naive(const variant_args *a, int dtype) {
    int row = (int)(blockIdx.x * blockDim.x + threadIdx.x), k = 0;
    if (row >= a->batch) return;
#pragma unroll 1
    while (k < a->max_draft && !variant_differs(a, dtype, row, k)) ++k;
    variant_emit(a, dtype, row, k);
}

extern "C" __global__ void naive_i32(const __grid_constant__ variant_args a) {
    variant_naive(&a, SPECV_I32);
}
extern "C" __global__ void naive_i64(const __grid_constant__ variant_args a) {
    variant_naive(&a, SPECV_I64);
}

/* ----------------------------------------------------------------------------------- 1 ballot */

static __device__ __forceinline__ int variant_ballot_row(const variant_args *a, int dtype,
                                                         int row) {
    int lane = (int)threadIdx.x % 32;
#pragma unroll 1
    for (int chunk = 0; chunk < a->max_draft; chunk += 32) {
        int j = chunk + lane;
        int first = specv_warp_first_reject(j < a->max_draft && variant_differs(a, dtype, row, j));
        if (first < 32) return chunk + first;
    }
    return a->max_draft;
}

static __device__ __forceinline__ void variant_ballot(const variant_args *a, int dtype) {
    int row = (int)(blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32), k;
    if (row >= a->batch) return;
    k = variant_ballot_row(a, dtype, row);
    if (threadIdx.x % 32 == 0) variant_emit(a, dtype, row, k);
}

extern "C" __global__ void ballot_i32(const __grid_constant__ variant_args a) {
    variant_ballot(&a, SPECV_I32);
}
extern "C" __global__ void ballot_i64(const __grid_constant__ variant_args a) {
    variant_ballot(&a, SPECV_I64);
}

/* ------------------------------------------------------------------------------------- 2 pack */

/* One block; offsets[batch + 1] from accepted_len. */
extern "C" __global__ void seed_scan(const __grid_constant__ variant_args a) {
    __shared__ int32_t scratch[SPECV_BLOCK_SCAN_SMEM_WORDS];
    int32_t first = 0;
    for (int row0 = 0; row0 < a.batch; row0 += (int)blockDim.x) {
        int row = row0 + (int)threadIdx.x;
        int32_t total, before;
        before =
            specv_block_exclusive_scan(row < a.batch ? a.accepted_len[row] : 0, &total, scratch);
        if (row < a.batch) a.offsets[row] = first + before;
        first += total;
        __syncthreads(); /* scratch is reused */
    }
    if (threadIdx.x == 0) a.offsets[a.batch] = first;
}

/* Elements of 2 bytes, as fp16 tensors have them, shared out over `step` threads. */
static __device__ __forceinline__ void variant_copy_halves(void *dst, const void *src,
                                                           int64_t bytes, int thread, int step) {
    for (int64_t i = thread; i < bytes / 2; i += step)
        ((unsigned short *)dst)[i] = ((const unsigned short *)src)[i];
}

/* Grid: sequences x planes. */
extern "C" __global__ void seed_pack(const __grid_constant__ variant_args a) {
    int row = (int)blockIdx.x, plane = (int)blockIdx.y;
    const char *src = (const char *)(a.src_planes ? a.src_planes[plane] : a.src);
    char *dst = (char *)(a.dst_planes ? a.dst_planes[plane] : a.dst);
    variant_copy_halves(dst + a.offsets[row] * a.row_bytes,
                        src + (int64_t)row * a.max_draft * a.row_bytes,
                        a.accepted_len[row] * a.row_bytes, (int)threadIdx.x, (int)blockDim.x);
}

/* ----------------------------------------------------------------------------------- 3 single */

static __device__ __forceinline__ void variant_single(const variant_args *a, int dtype, int wide) {
    __shared__ int32_t lens[32], starts[32];
    int lane = (int)threadIdx.x % 32, row = (int)threadIdx.x / 32;
    if (row < a->batch) {
        int k = variant_ballot_row(a, dtype, row);
        if (lane == 0) {
            variant_emit(a, dtype, row, k);
            lens[row] = k;
        }
    }
    __syncthreads();
    if (row == 0) {
        int32_t total, len = lane < a->batch ? lens[lane] : 0;
        starts[lane] = specv_warp_exclusive_scan(len, &total);
        if (lane < a->batch) a->offsets[lane] = starts[lane];
        if (lane == 0) a->offsets[a->batch] = total;
    }
    __syncthreads();
    if (row >= a->batch) return;
    for (int plane = 0; plane < a->num_planes; ++plane) {
        const char *src = (const char *)(a->src_planes ? a->src_planes[plane] : a->src);
        char *dst = (char *)(a->dst_planes ? a->dst_planes[plane] : a->dst);
        int64_t bytes = lens[row] * a->row_bytes;
        src += (int64_t)row * a->max_draft * a->row_bytes;
        dst += starts[row] * a->row_bytes;
        if (wide)
            specv_warp_copy_kv(dst, src, bytes);
        else
            variant_copy_halves(dst, src, bytes, lane, 32);
    }
}

extern "C" __global__
__launch_bounds__(1024) void single_i32(const __grid_constant__ variant_args a) {
    variant_single(&a, SPECV_I32, 0);
}
extern "C" __global__
__launch_bounds__(1024) void single_i64(const __grid_constant__ variant_args a) {
    variant_single(&a, SPECV_I64, 0);
}
extern "C" __global__
__launch_bounds__(1024) void single16_i32(const __grid_constant__ variant_args a) {
    variant_single(&a, SPECV_I32, 1);
}
extern "C" __global__
__launch_bounds__(1024) void single16_i64(const __grid_constant__ variant_args a) {
    variant_single(&a, SPECV_I64, 1);
}

/* ----------------------------------------------------------------------------------- launches */

/* All: enqueue on the stream; 0 or a cudaError_t, or the kit's status. */

static int launch_naive(const variant_args *a, int dtype, cudaStream_t stream) {
    unsigned blocks = (unsigned)(a->batch + 255) / 256;
    if (dtype == SPECV_I64)
        naive_i64<<<blocks, 256, 0, stream>>>(*a);
    else
        naive_i32<<<blocks, 256, 0, stream>>>(*a);
    return (int)cudaPeekAtLastError();
}

static int launch_ballot(const variant_args *a, int dtype, cudaStream_t stream) {
    unsigned blocks = (unsigned)(a->batch + 3) / 4;
    if (dtype == SPECV_I64)
        ballot_i64<<<blocks, 128, 0, stream>>>(*a);
    else
        ballot_i32<<<blocks, 128, 0, stream>>>(*a);
    return (int)cudaPeekAtLastError();
}

static int launch_seed_pack(const variant_args *a, cudaStream_t stream) {
    seed_scan<<<1, a->batch <= 256 ? 256 : 1024, 0, stream>>>(*a);
    seed_pack<<<dim3((unsigned)a->batch, (unsigned)a->num_planes), 256, 0, stream>>>(*a);
    return (int)cudaPeekAtLastError();
}

static int launch_single(const variant_args *a, int dtype, int wide, cudaStream_t stream) {
    if (wide && dtype == SPECV_I64)
        single16_i64<<<1, 1024, 0, stream>>>(*a);
    else if (wide)
        single16_i32<<<1, 1024, 0, stream>>>(*a);
    else if (dtype == SPECV_I64)
        single_i64<<<1, 1024, 0, stream>>>(*a);
    else
        single_i32<<<1, 1024, 0, stream>>>(*a);
    return (int)cudaPeekAtLastError();
}

/* A1 then B1, as specv_verify_pack_kv does it above SPECV_ONE_LAUNCH_DRAFTS. */
static int launch_two(const specv_verify_pack_kv_desc *d, int chained, cudaStream_t stream) {
    specv_verify_greedy_desc verify = d->verify;
    specv_pack_kv_desc pack = SPECV_ZERO;
    int status;
    verify.chained = chained ? SPECV_CHAINED_BEFORE : 0;
    status = specv_verify_greedy(&verify, stream);
    pack.chained = chained ? SPECV_CHAINED_AFTER : 0;
    pack.keep_status = 1;
    pack.rows = d->verify.rows;
    pack.accepted_len = d->verify.accepted_len;
    pack.row_status = d->verify.row_status;
    pack.kv = d->kv;
    return status ? status : specv_pack_kv(&pack, stream);
}

static int blocks_of_one(const specv_verify_pack_kv_desc *d) {
    int num_sms = 0, verify_blocks = specv_i_verify_blocks(d->verify.rows.batch);
    if (specv_i_num_sms(d->kv.num_sms, &num_sms)) return 0;
    return verify_blocks + specv_i_copy_blocks(&d->verify.rows, &d->kv, num_sms, verify_blocks);
}

static int blocks_of_pack(const specv_rows *rows, const specv_kv_pack *kv) {
    int num_sms = 0;
    if (specv_i_num_sms(kv->num_sms, &num_sms)) return 0;
    return specv_i_copy_blocks(rows, kv, num_sms, 0);
}

/* One launch, as specv_verify_pack_kv does it below SPECV_ONE_LAUNCH_DRAFTS. */
static int launch_one(const specv_verify_pack_kv_desc *desc, cudaStream_t stream) {
    specv_verify_pack_kv_desc d = *desc;
    specv_verify_pack_kv_resolve(&d);
    specv_verify_pack_kv_kernel<<<(unsigned)blocks_of_one(desc), SPECV_PACK_THREADS, 0, stream>>>(
        d);
    return (int)cudaPeekAtLastError();
}

#endif
