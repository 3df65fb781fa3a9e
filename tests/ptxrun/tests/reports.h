// What a kernel's author has from elsewhere: helpers in a header.  Whoever passes them a wrong
// pointer is at fault, not they.
#pragma once

namespace kit {

__device__ __forceinline__ int load(const int *p, int k) { return p[k]; }
__device__ __forceinline__ int load_row(const int *row, int count) {
  return int(threadIdx.x % 32) < count ? load(row, int(threadIdx.x % 32)) : 0;
}
__device__ __forceinline__ int sum(int value) { // over a warp, all of whose lanes must call it
  for (int d = 16; d; d >>= 1) value += __shfl_xor_sync(~0u, value, d);
  return value;
}
__device__ __noinline__ void store(int *p, int value) { *p = value; }

} // namespace kit
