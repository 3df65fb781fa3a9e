// What reports say: kernels with one planted fault each.  Usage: reports NAME.
// tests/manifest.txt names the words that must appear; @name there is the line marked so here.
#include "check.h"
#include "reports.h"
#include <string>

// ---- the author's line, not the header's
__global__ void stride(int *o, const int *a) {
  int row = threadIdx.x / 32;
  o[threadIdx.x] = kit::load_row(a + row * 320, 32); // @stride
}
__global__ void twice(int *o, const int *a) { // one helper, two calls: each its own report
  int first = kit::load_row(a + 640, 8);      // @first
  int second = kit::load_row(a + 320, 4);     // @second
  o[threadIdx.x] = first + second;
}
__device__ int own_helper(const int *a) { return kit::load_row(a + 320, 32); } // @own_helper
__global__ void own(int *o, const int *a) {
  o[threadIdx.x] = own_helper(a); // @own
}
__global__ void outofline(int *o, const int *) {
  if (threadIdx.x == 40) kit::store(o + 320, 1); // @outofline
}

// ---- one report for all lanes, warps and copies of an unrolled loop
__global__ void unrolled(int *o, const int *a) {
  if (threadIdx.x % 32 >= 24) return;
  o[threadIdx.x] = kit::sum(a[threadIdx.x]); // @unrolled
}
__global__ void stuck(int *o, const int *a) {
  if (threadIdx.x % 32 < 8) o[threadIdx.x] = kit::sum(a[threadIdx.x]); // @collective
  __syncthreads();                                                     // @barrier
}
__global__ void evenlanes(int *o, const int *) {
  if (threadIdx.x % 2 == 0) o[threadIdx.x + 320] = 1;
}
__global__ void planes(int *o, const int *) { // the block by its coordinates
  if (blockIdx.x == 1 && blockIdx.y == 2) o[-1 - int(threadIdx.x)] = 1;
}

// ---- names
namespace mine {
template <class T, int N> __global__ void tile(T *o, const T *) { o[threadIdx.x + 320 * N] = N; }
} // namespace mine

// ---- barriers
__global__ void meet(int *o, const int *) {
  if (threadIdx.x < 32) {
    __syncthreads(); // @here
    o[0] = 1;
  } else {
    __syncthreads(); // @there
    o[1] = 2;
  }
}

int main(int argc, char **argv) {
  std::string name = argc > 1 ? argv[1] : "";
  const struct {
    const char *name;
    void (*kernel)(int *, const int *);
  } kernels[] = {{"stride", stride},       {"twice", twice}, {"own", own},
                 {"outofline", outofline}, {"stuck", stuck}, {"unrolled", unrolled},
                 {"evenlanes", evenlanes}, {"meet", meet},   {"tile", mine::tile<int, 3>}};
  Buffer<int> out(256), in(256);
  std::vector<int> host(256);
  for (const auto &entry : kernels)
    if (name == entry.name) entry.kernel<<<1, 256>>>(out.device, in.device);
  if (name == "planes") planes<<<dim3(2, 3), 32>>>(out.device, in.device);
  if (name == "hostpointer") stride<<<1, 256>>>(host.data(), in.device);
  if (name == "nullpointer") stride<<<1, 32>>>(out.device, nullptr);
  if (name == "hostfree") cudaFree(host.data());
  if (name == "many")
    for (int k = 0; k < 3; k++) own<<<1, 256>>>(out.device, in.device);
  cudaDeviceSynchronize();
  return finish();
}
