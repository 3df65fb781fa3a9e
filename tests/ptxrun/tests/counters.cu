// The counters, read from inside the program.
#include "../include/ptxrun_count.h"
#include "check.h"
#include <cuda_profiler_api.h>

// Per warp 1 ballot, 1 vote, 2 shuffles and 1 warp sync; per block 1 barrier.
extern "C" __global__ void collect(const int *in, int *out) {
  __shared__ int s[64];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int v = in[i];
  unsigned b = __ballot_sync(~0u, v > 0);
  v += __any_sync(~0u, v == 7);
  v += __shfl_xor_sync(~0u, v, 1);
  v += __shfl_down_sync(~0u, v, 2);
  s[threadIdx.x] = v;
  __syncwarp();
  v += s[threadIdx.x ^ 1];
  __syncthreads();
  out[i] = v + int(b);
}
__global__ void strided(const int *in, int *out) { out[threadIdx.x * 8] = in[threadIdx.x * 8]; }
extern "C" __global__ void banks(int *out) {
  __shared__ int s[32 * 32];
  s[threadIdx.x * 32] = int(threadIdx.x); // all in one bank
  __syncwarp();
  out[threadIdx.x] = s[threadIdx.x * 32];
}
extern "C" __global__ void half(int *out) {
  if (threadIdx.x < 16)
    for (int k = 0; k < 10; k++) atomicAdd(&out[k], 1);
}

void counts(const char *kernel, const char *counter, long long wanted) {
  long long got = ptxrun_count(kernel, counter);
  if (got == wanted) return;
  std::printf("%s %s: %lld, not %lld\n", kernel ? kernel : "all", counter, got, wanted);
  expect(false, "counter");
}

int main() {
  Buffer<int> in(256, 1), out(256);
  if (ptxrun_count(nullptr, "launches") < 0) {
    std::printf("skipped: not running on ptxrun\n");
    return 0;
  }
  collect<<<2, 64>>>(in.device, out.device); // not counted
  ok(cudaProfilerStart());
  for (int k = 0; k < 3; k++) collect<<<2, 64>>>(in.device, out.device);
  strided<<<1, 32>>>(in.device, out.device);
  banks<<<1, 32>>>(out.device);
  half<<<1, 32>>>(in.device);
  ok(cudaDeviceSynchronize());
  ok(cudaProfilerStop());
  counts("collect", "launches", 3);
  counts("collect", "ballots", 3 * 4);
  counts("collect", "votes", 3 * 4);
  counts("collect", "shuffles", 3 * 8);
  counts("collect", "warp_syncs", 3 * 4);
  counts("collect", "collectives", 3 * 20);
  counts("collect", "barriers", 3 * 2);
  counts("collect", "load_requests", 3 * 4);
  counts("collect", "load_bytes", 3 * 512);
  counts("collect", "load_sectors", 3 * 16);
  counts("collect", "store_sectors", 3 * 16);
  counts("collect", "partial_instructions", 0);
  counts("collect", "bank_conflicts", 0);
  counts("strided", "load_sectors", 32);
  counts("strided", "store_bytes", 128);
  counts("strided", "ideal_sectors", 8);
  counts("banks", "bank_conflicts", 62);
  counts("half", "atomics", 160);
  counts("half", "atomic_requests", 10);
  expect(ptxrun_count("half", "partial_instructions") >= 10, "partial warps");
  expect(ptxrun_count("half", "divergent_branches") == 1, "divergent branches");
  counts(nullptr, "launches", 6);
  counts(nullptr, "no such counter", -1);
  counts("no such kernel", "launches", 0);
  return finish();
}
