// Serial trips: kernels whose longest chain is known.
#include "../include/ptxrun_count.h"
#include "check.h"
#include <cuda_profiler_api.h>

#define KERNEL extern "C" __global__ void

KERNEL none(const int *, int *out) { out[threadIdx.x] = 7; }
KERNEL one(const int *in, int *out) { out[threadIdx.x] = in[threadIdx.x]; }
KERNEL two(const int *in, int *out) { out[threadIdx.x] = in[in[threadIdx.x]]; }
KERNEL three(const int *in, int *out) { out[threadIdx.x] = in[in[in[threadIdx.x]]]; }
KERNEL side_by_side(const int *in, int *out) {
  int sum = 0;
  for (int k = 0; k < 8; k++) sum += in[threadIdx.x + 8 * k];
  out[threadIdx.x] = sum;
}
KERNEL loop(const int *in, int *out, int count) { // the count is no trip
  int at = int(threadIdx.x);
#pragma unroll 1
  for (int k = 0; k < count; k++) at = in[at];
  out[threadIdx.x] = at;
}
KERNEL until(const int *in, int *out) { // each turn waits for the one before: 5 of them
  int k = 0;
#pragma unroll 1
  while (in[k] > k) k++;
  out[threadIdx.x] = k;
}
KERNEL branch(const int *in, int *out) { // the address is known, whether to load is not
  if (in[threadIdx.x] >= 0) out[threadIdx.x] = in[threadIdx.x + 32];
}
KERNEL shuffled(const int *in, int *out) {
  out[threadIdx.x] = in[__shfl_xor_sync(~0u, in[threadIdx.x], 1) & 63];
}
KERNEL through_shared(const int *in, int *out) {
  __shared__ int s[64];
  s[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = in[s[threadIdx.x ^ 32] & 63];
}
KERNEL shared_apart(const int *in, int *out) { // what was stored holds no trip
  __shared__ int s[64];
  s[threadIdx.x] = int(threadIdx.x) * 3;
  __syncthreads();
  out[threadIdx.x] = in[s[threadIdx.x ^ 32] & 63];
}
KERNEL shared_neighbours(const int *in, int *out) { // warp 1 is ahead, beside what warp 0 reads
  __shared__ __align__(16) volatile int s[8];
  if (threadIdx.x == 0) s[1] = 3, s[4] = 0;
  __syncthreads();
  if (threadIdx.x == 32) s[0] = in[in[in[0]]];
#pragma unroll 1
  for (int k = threadIdx.x < 32 ? 2000 : 0; k > 0; k--) (void)s[4]; // several turns
  if (threadIdx.x < 32) out[threadIdx.x] = in[s[1]];
}
KERNEL through_barrier(const int *in, int *out) { // warp 1 waits for warp 0, and then loads
  __shared__ volatile int s[64];
  if (threadIdx.x < 32) s[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  if (threadIdx.x >= 32) out[threadIdx.x] = in[threadIdx.x];
}
KERNEL through_global(const int *in, int *out) {
  volatile int *place = out;
  place[threadIdx.x] = in[threadIdx.x];
  out[64 + threadIdx.x] = place[threadIdx.x];
}
// A trip for `in`, one for the ticket, one for what the other blocks left.
KERNEL through_ticket(const int *in, int *out, unsigned *ticket) {
  volatile int *place = out;
  place[blockIdx.x] = in[blockIdx.x];
  __threadfence();
  if (atomicAdd(ticket, 1) != gridDim.x - 1) return;
  __threadfence();
  out[64] = place[(blockIdx.x + 1) % gridDim.x];
}
// Block 0 asks until block 1 has said so: a trip for `in` there, and one to see it, however often
// it asked; then one for what block 1 left.
KERNEL polls(const int *in, int *out, unsigned *ticket) {
  if (blockIdx.x == 1) {
    unsigned turns = 300;
#pragma unroll 1
    while (turns > 0) turns -= unsigned(in[turns & 63] > 0); // 300 trips
    ((volatile int *)out)[65] = 5;
    __threadfence();
    atomicExch(ticket, 1u);
    return;
  }
  while (atomicAdd(ticket, 0u) == 0) continue;
  __threadfence();
  out[64] = ((volatile int *)out)[65];
}
// It asks 400 times and more, and is told something that hangs on nothing.
KERNEL polls_long(int *out, unsigned *ticket) {
  if (blockIdx.x == 1) {
    for (int k = 0; k < 4000; k++) __threadfence();
    atomicExch(ticket, 1u);
    return;
  }
  while (atomicAdd(ticket, 0u) == 0) continue;
  __threadfence();
  out[64] = ((volatile int *)out)[65];
}
KERNEL red_only(const int *, int *out) { atomicAdd(&out[threadIdx.x & 7], 1); }

void deep(const char *kernel, long long wanted) {
  long long got = ptxrun_count(kernel, "serial_trips");
  if (got != wanted) std::printf("%s: %lld trips, not %lld\n", kernel, got, wanted);
  expect(got == wanted, "serial trips");
}

int main() {
  Buffer<int> in(256, 0), out(256, 0);
  Buffer<unsigned> ticket(1, 0);
  if (ptxrun_count(nullptr, "launches") < 0) {
    std::printf("skipped: not running on ptxrun\n");
    return 0;
  }
  for (int k = 0; k < 256; k++) in.host[k] = k < 4 ? 9 : 1;
  in.upload();
  ok(cudaProfilerStart());
  none<<<1, 64>>>(in.device, out.device);
  one<<<1, 64>>>(in.device, out.device);
  two<<<1, 64>>>(in.device, out.device);
  three<<<1, 64>>>(in.device, out.device);
  side_by_side<<<1, 64>>>(in.device, out.device);
  loop<<<1, 64>>>(in.device, out.device, 5);
  until<<<1, 32>>>(in.device, out.device);
  branch<<<1, 32>>>(in.device, out.device);
  shuffled<<<1, 32>>>(in.device, out.device);
  through_shared<<<1, 64>>>(in.device, out.device);
  shared_apart<<<1, 64>>>(in.device, out.device);
  shared_neighbours<<<1, 64>>>(in.device, out.device);
  through_barrier<<<1, 64>>>(in.device, out.device);
  through_global<<<1, 32>>>(in.device, out.device);
  through_ticket<<<4, 1>>>(in.device, out.device, ticket.device);
  ok(cudaMemset(ticket.device, 0, 4));
  polls<<<2, 1>>>(in.device, out.device, ticket.device);
  ok(cudaMemset(ticket.device, 0, 4));
  polls_long<<<2, 1>>>(out.device, ticket.device);
  red_only<<<1, 32>>>(in.device, out.device);
  ok(cudaDeviceSynchronize());
  ok(cudaProfilerStop());
  deep("none", 0);
  deep("one", 1);
  deep("two", 2);
  deep("three", 3);
  deep("side_by_side", 1);
  deep("loop", 5);
  deep("until", 5);
  deep("branch", 2);
  deep("shuffled", 2);
  deep("through_shared", 2);
  deep("shared_apart", 1);
  deep("shared_neighbours", 3); // those of warp 1, not one more
  deep("through_barrier", 2);
  deep("through_global", 2);
  deep("through_ticket", 3);
  deep("polls", 302);
  deep("polls_long", 2);
  deep("red_only", 0);
  one<<<1, 64>>>(in.device, out.device); // not counted
  ok(cudaDeviceSynchronize());
  deep("one", 1);
  ok(cudaProfilerStart()); // of several launches, the sum
  for (int k = 0; k < 3; k++) two<<<1, 64>>>(in.device, out.device);
  ok(cudaDeviceSynchronize());
  ok(cudaProfilerStop());
  deep("two", 6);
  return finish();
}
