// Kernels that use specverify's device functions with one planted fault each.
//
//     faults NAME          the fault: the interpreter must report the kind that the table names
//     faults NAME fixed    its twin, the same kernel with the fault repaired: no report at all
//     faults --list        names and kinds, for run.sh
//
// Every kernel takes `fixed`: what stands under it is the line that a user would have forgotten.
#include "../ptxrun/tests/check.h"
#include "specverify.cuh"
#include <cstring>

const int rows = 4, drafts = 8, row_bytes = 40, block = 128;

struct Data {              // one batch: dense drafts and targets, KV rows, and room for results
    const int32_t *draft;  // [rows][drafts]
    const int32_t *target; // [rows][drafts + 1]
    const char *kv;        // [rows][drafts] rows of row_bytes
    char *packed;          // [rows * drafts] rows of row_bytes
    int32_t *len;          // [rows]
    int32_t *offsets;      // [rows + 1]
    int32_t *out;          // [block]
    unsigned *ticket;      // 0
    volatile int *flag;    // 0
};

__device__ int accept(const Data &d, int row) {
    return specv_warp_ballot_accept(d.draft + row * drafts, d.target + row * (drafts + 1), drafts);
}

// ---- barriers and shared memory

// The contract of the scan asks for a barrier between two calls that share scratch.
__global__ void scan_reuse(Data d, bool fixed) {
    __shared__ int32_t scratch[SPECV_BLOCK_SCAN_SMEM_WORDS];
    int32_t total, sum = 0;
    for (int round = 0; round < 3; ++round) {
        if (fixed && round) __syncthreads();
        sum += specv_block_exclusive_scan((int)threadIdx.x + round, &total, scratch);
    }
    d.out[threadIdx.x] = sum + total;
}

// Warp functions order nothing: staged tokens need a __syncwarp before the ballot reads them.
__global__ void no_syncwarp(Data d, bool fixed) {
    __shared__ int32_t draft[rows][drafts];
    int lane = threadIdx.x % 32, row = threadIdx.x / 32;
    if (lane < drafts) draft[row][drafts - 1 - lane] = d.draft[row * drafts + drafts - 1 - lane];
    if (fixed) __syncwarp();
    int k = specv_warp_ballot_accept(draft[row], d.target + row * (drafts + 1), drafts);
    if (lane == 0) d.len[row] = k;
}

__global__ void copy_no_syncwarp(Data d, bool fixed) {
    __shared__ char kv[row_bytes];
    int lane = threadIdx.x % 32;
    specv_warp_copy_kv(kv, d.kv, row_bytes);
    if (fixed) __syncwarp();
    d.out[lane] = kv[row_bytes - 1 - lane];
}

__global__ void copy_no_barrier(Data d, bool fixed) {
    __shared__ char kv[drafts * row_bytes];
    specv_block_copy_kv(kv, d.kv, drafts * row_bytes);
    if (fixed) __syncthreads();
    d.out[threadIdx.x] = kv[drafts * row_bytes - 1 - threadIdx.x];
}

__global__ void uninitialised_row(Data d, bool fixed) {
    __shared__ int32_t draft[drafts];
    int lane = threadIdx.x % 32, staged = fixed ? drafts : drafts - 2;
    if (lane < staged) draft[lane] = d.draft[lane];
    __syncwarp();
    int k = specv_warp_ballot_accept(draft, d.target, drafts);
    if (lane == 0) d.len[0] = k;
}

// One word per warp is what a block of this size needs; half of that is not enough.
__global__ void small_scratch(Data d, bool fixed) {
    extern __shared__ int32_t scratch[];
    int32_t total, words = fixed ? block / 32 : block / 64;
    int32_t *end_aligned = scratch + block / 32 - words; // nothing lies behind it
    d.out[threadIdx.x] = specv_block_exclusive_scan(1, &total, end_aligned) + total;
}

// Lengths in global scratch, turned into offsets by one warp; the next round's come too early.
__global__ void scratch_overwritten(Data d, bool fixed) {
    int lane = threadIdx.x % 32, row = threadIdx.x / 32;
    int32_t total = 0;
    for (int round = 0; round < 3; ++round) {
        int k = accept(d, (row + round) % rows);
        if (lane == 0) d.len[row] = k;
        __syncthreads();
        if (row == 0) {
            int32_t first = specv_warp_exclusive_scan(lane < rows ? d.len[lane] : 0, &total);
            if (lane < rows) d.offsets[lane] = first;
        }
        if (fixed) __syncthreads();
    }
}

// ---- who takes part

__global__ void divergent_ballot(Data d, bool fixed) {
    int lane = threadIdx.x % 32, rejected = d.draft[lane] != d.target[lane], first;
    if (fixed)
        first = specv_warp_first_reject(rejected);
    else if (lane < drafts)
        first = specv_warp_first_reject(rejected);
    else
        first = 32 + specv_warp_first_reject(0);
    d.out[lane] = first;
}

__global__ void ballot_after_exit(Data d, bool fixed) {
    int lane = threadIdx.x % 32;
    if (!fixed && lane >= drafts) return; // "these lanes have no draft"
    int k = accept(d, 0);
    if (lane == 0) d.len[0] = k;
}

__global__ void shuffle_after_exit(Data d, bool fixed) {
    int lane = threadIdx.x % 32;
    int32_t total, k = lane < rows ? lane + 1 : 0;
    if (!fixed && lane >= rows) return; // "these lanes have no row"
    int32_t first = specv_warp_exclusive_scan(k, &total);
    if (lane < rows) d.offsets[lane] = first;
    if (lane == 0) d.offsets[rows] = total;
}

__global__ void half_block_scan(Data d, bool fixed) {
    __shared__ int32_t scratch[SPECV_BLOCK_SCAN_SMEM_WORDS];
    int32_t total = 0, before = 0;
    if (!fixed && threadIdx.x >= block / 2) return; // whole warps, but the scan needs the block
    before = specv_block_exclusive_scan(1, &total, scratch);
    d.out[threadIdx.x] = before;
}

__global__ void divergent_barrier(Data d, bool fixed) {
    __shared__ int32_t scratch[SPECV_BLOCK_SCAN_SMEM_WORDS];
    int32_t total = 0, before = 0;
    if (fixed || threadIdx.x >= 32)
        before = specv_block_exclusive_scan(1, &total, scratch);
    else { // one warp meets the others' barrier at one of its own
        if (threadIdx.x == 0) scratch[0] = 0;
        __syncthreads();
    }
    d.out[threadIdx.x] = before;
}

// ---- addresses

__global__ void read_past_row(Data d, bool fixed) {
    int last = rows - 1, n = fixed ? drafts : drafts + 1;
    int k = specv_warp_ballot_accept(d.draft + last * drafts, d.target + last * (drafts + 1), n);
    if (threadIdx.x == 0) d.len[last] = k;
}

__global__ void write_past_packed(Data d, bool fixed) {
    int first = rows * drafts - 1, count = fixed ? 1 : 2;
    specv_warp_copy_kv(d.packed + first * row_bytes, d.kv, (int64_t)count * row_bytes);
}

// KV rows of 40 bytes start at multiples of 8: too little for 16-byte accesses.
__global__ void misaligned_copy(Data d, bool fixed) {
    int lane = threadIdx.x % 32;
    char *to = d.packed + 1 * row_bytes;
    const char *from = d.kv + 1 * row_bytes;
    if (fixed)
        specv_warp_copy_kv(to, from, 2 * row_bytes);
    else if (lane < 2 * row_bytes / 16)
        ((uint4 *)to)[lane] = ((const uint4 *)from)[lane];
}

// Inert rows of a padded batch have no length unless somebody writes one.
__global__ void unwritten_lengths(Data d, bool fixed) {
    int lane = threadIdx.x % 32, live = rows - 1;
    int32_t total;
    int32_t first =
        specv_warp_exclusive_scan(lane < (fixed ? live : rows) ? d.len[lane] : 0, &total);
    if (lane < rows) d.offsets[lane] = first;
}

__global__ void copy_rows(Data d, bool) {
    specv_block_copy_kv(d.packed, d.kv, (int64_t)rows * drafts * row_bytes);
}

// ---- other blocks

// A block per row; the last to arrive turns lengths into offsets.
__global__ void last_block(Data d, bool fixed) {
    int lane = threadIdx.x % 32;
    unsigned arrived = 0;
    int32_t total, k = accept(d, blockIdx.x);
    if (lane == 0) {
        d.len[blockIdx.x] = k;
        if (fixed) __threadfence();
        arrived = atomicAdd(d.ticket, 1);
    }
    if (__shfl_sync(~0u, arrived, 0) != gridDim.x - 1) return;
    if (fixed) __threadfence();
    __syncwarp();
    int32_t first = specv_warp_exclusive_scan(lane < rows ? d.len[lane] : 0, &total);
    if (lane < rows) d.offsets[lane] = first;
    if (lane == 0) d.offsets[rows] = total, *d.ticket = 0;
}

// Every block knows all offsets; one of them writes them.
__global__ void all_blocks_write(Data d, bool fixed) {
    int lane = threadIdx.x % 32;
    int32_t total, first = specv_warp_exclusive_scan(lane < rows ? 2 : 0, &total);
    if (lane < rows && (!fixed || blockIdx.x == 0)) d.offsets[lane] = first;
}

// A block's result read by its neighbour in the same launch.
__global__ void neighbour_reads(Data d, bool fixed) {
    int lane = threadIdx.x % 32, row = blockIdx.x, before = row ? row - 1 : 0;
    int k = accept(d, row);
    if (lane == 0) d.len[row] = k;
    if (lane == 0) d.out[row] = fixed || !row ? k : d.len[before];
}

// Waiting for a flag that is only raised behind a barrier which the waiting warp does not reach.
__global__ void waits_for_itself(Data d, bool fixed) {
    int k = accept(d, 0);
    if (threadIdx.x == 0 && !fixed)
        while (*d.flag == 0) {
        }
    __syncthreads();
    if (threadIdx.x == 0) *d.flag = k + 1;
}

__global__ void write_lengths(Data d, bool) {
    int k = accept(d, blockIdx.x);
    if (threadIdx.x == 0) d.len[blockIdx.x] = k;
#if __CUDA_ARCH__ >= 900
    cudaTriggerProgrammaticLaunchCompletion(); // the scan may start now
#endif
}
__global__ void dependent_scan(Data d, bool fixed) {
    int lane = threadIdx.x % 32;
    int32_t total;
    (void)fixed;
#if __CUDA_ARCH__ >= 900
    if (fixed) cudaGridDependencySynchronize();
#endif
    int32_t first = specv_warp_exclusive_scan(lane < rows ? d.len[lane] : 0, &total);
    if (lane < rows) d.offsets[lane] = first;
}

// ---- the table

using Kernel = void (*)(Data, bool);

void launch_dependent(Kernel kernel, Data d, bool fixed) {
    cudaLaunchAttribute attribute[1];
    attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute[0].val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = 1;
    config.blockDim = 32;
    config.attrs = attribute;
    config.numAttrs = 1;
    void *arguments[] = {&d, &fixed};
    ok(cudaLaunchKernelExC(&config, reinterpret_cast<const void *>(kernel), arguments));
}

struct Fault {
    const char *name;
    Kernel kernel;
    int blocks, threads;
    const char *kind; // a regular expression: the kind, and more where that says too little
};
const Fault faults[] = {
    {"scan_reuse", scan_reuse, 1, block, "race-shared:"},
    {"no_syncwarp", no_syncwarp, 1, 32 * rows, "race-shared:"},
    {"copy_no_syncwarp", copy_no_syncwarp, 1, 32, "race-shared:"},
    {"copy_no_barrier", copy_no_barrier, 1, block, "race-shared:"},
    {"scratch_overwritten", scratch_overwritten, 1, 32 * rows, "race-global:.* of the same block"},
    {"uninitialised_row", uninitialised_row, 1, 32, "uninit-shared:"},
    {"small_scratch", small_scratch, 1, block, "oob-shared:"},
    {"divergent_ballot", divergent_ballot, 1, 32, "deadlock:.*wait here at a collective"},
    {"ballot_after_exit", ballot_after_exit, 1, 32, "mask-names-exited-lane:"},
    {"shuffle_after_exit", shuffle_after_exit, 1, 32, "shfl-inactive-source:"},
    {"half_block_scan", half_block_scan, 1, block, "barrier-after-exit:"},
    {"divergent_barrier", divergent_barrier, 1, block, "barrier-divergent:"},
    {"read_past_row", read_past_row, 1, 32, "oob-global: read"},
    {"write_past_packed", write_past_packed, 1, 32, "oob-global: write"},
    {"misaligned_copy", misaligned_copy, 1, 32, "misaligned: 16-byte"},
    {"unwritten_lengths", unwritten_lengths, 1, 32, "uninit-global:"},
    {"use_after_free", copy_rows, 1, block, "oob-global:.*FREED"},
    {"last_block", last_block, rows, 32, "race-global:"},
    {"all_blocks_write", all_blocks_write, rows, 32, "race-global: write"},
    {"neighbour_reads", neighbour_reads, rows, 32, "race-global:"},
    {"waits_for_itself", waits_for_itself, 1, 2 * 32, "livelock:"},
    {"no_grid_wait", dependent_scan, 1, 32, "pdl-unordered: read"},
};

void run(const Fault &fault, bool fixed) {
    Buffer<int32_t> draft(numbers(rows * drafts, 3)), target(rows * (drafts + 1)), out(block);
    Buffer<int32_t> offsets(rows + 1), len(rows, 1);
    Buffer<char> kv((size_t)rows * drafts * row_bytes, 'k'), packed(kv.host.size());
    Buffer<unsigned> ticket(1);
    Buffer<int> flag(1);
    for (int b = 0; b < rows; ++b) // row b agrees in its first 2 * b + 1 places, if it has them
        for (int j = 0; j < drafts; ++j)
            target.host[b * (drafts + 1) + j] = draft.host[b * drafts + j] + (j > 2 * b);
    target.upload();
    Data d = {draft.device,   target.device, kv.device,     packed.device, len.device,
              offsets.device, out.device,    ticket.device, flag.device};
    int32_t *fresh = nullptr;
    if (fault.kernel == unwritten_lengths) { // all but the last length are written
        ok(cudaMalloc(&fresh, rows * sizeof *fresh));
        ok(cudaMemset(fresh, 0, (rows - 1) * sizeof *fresh));
        d.len = fresh;
    }
    if (fault.kernel == copy_rows && !fixed) {
        ok(cudaMalloc(&d.packed, packed.host.size()));
        ok(cudaFree(d.packed));
    }
    if (fault.kernel == dependent_scan) {
        write_lengths<<<rows, 32>>>(d, fixed);
        launch_dependent(fault.kernel, d, fixed);
    } else {
        int dynamic_bytes = fault.kernel == small_scratch ? block / 32 * 4 : 0;
        fault.kernel<<<fault.blocks, fault.threads, dynamic_bytes>>>(d, fixed);
    }
    ok(cudaGetLastError(), "launch");
    cudaDeviceSynchronize(); // fails after deadlock and livelock, as it must
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "";
    for (const Fault &fault : faults) {
        if (!std::strcmp(name, "--list")) std::printf("%s\t%s\n", fault.name, fault.kind);
        if (std::strcmp(name, fault.name)) continue;
        run(fault, argc > 2 && !std::strcmp(argv[2], "fixed"));
        return finish();
    }
    return std::strcmp(name, "--list") ? 2 : 0;
}
