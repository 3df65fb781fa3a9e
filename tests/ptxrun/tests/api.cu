// The runtime API around kernels: device queries, memory, events, errors.
#include "check.h"
#include <cstring>

__constant__ int table[4] = {3, 1, 4, 1};
__device__ int counter = 5;
__global__ void useSymbols(int *out) { out[threadIdx.x] = table[threadIdx.x & 3] + counter; }
__global__ void needsShared(int *out, int n) {
  extern __shared__ int s[];
  s[n - 1 - threadIdx.x] = threadIdx.x;
  __syncthreads();
  if (!threadIdx.x) out[0] = s[n - 1];
}
__global__ void __launch_bounds__(64) bounded(int *out) { out[0] = 1; }

void deviceQueries() {
  int count, value, version;
  cudaDeviceProp p;
  ok(cudaGetDeviceCount(&count));
  ok(cudaGetDeviceProperties(&p, 0));
  ok(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 0));
  expect(count >= 1 && p.multiProcessorCount == value && value > 0 && p.warpSize == 32, "device");
  ok(cudaDeviceGetAttribute(&value, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
  expect(size_t(value) == p.sharedMemPerBlockOptin && value >= 48 * 1024, "shared memory");
  ok(cudaDriverGetVersion(&version));
  expect(version >= 12000, "driver version");
  ok(cudaRuntimeGetVersion(&version));
  expect(cudaGetDeviceProperties(&p, 99) == cudaErrorInvalidDevice, "no such device");
  cudaGetLastError();
}

__global__ void reportArchitecture(int *out) {
#ifdef __CUDA_ARCH__
  out[0] = __CUDA_ARCH__ / 10;
#endif
}
int builtFor() {
  Buffer<int> out(1);
  reportArchitecture<<<1, 1>>>(out.device);
  ok(cudaGetLastError(), "launch");
  return out.download()[0];
}

void functionAttributes() {
  Buffer<int> out(32);
  const int n = 64 * 1024 / 4;
  needsShared<<<1, 32, n * 4>>>(out.device, n);
  expect(cudaPeekAtLastError() == cudaErrorInvalidValue &&
             cudaGetLastError() == cudaErrorInvalidValue,
         "too much dynamic shared memory");
  expect(cudaGetLastError() == cudaSuccess, "the error is consumed");
  ok(cudaFuncSetAttribute(needsShared, cudaFuncAttributeMaxDynamicSharedMemorySize, n * 4));
  needsShared<<<1, 32, n * 4>>>(out.device, n);
  ok(cudaGetLastError(), "after the opt-in");
  bounded<<<1, 128>>>(out.device);
  expect(cudaGetLastError() != cudaSuccess, "more threads than launch bounds");
  bounded<<<1, 2048>>>(out.device);
  expect(cudaGetLastError() == cudaErrorInvalidConfiguration, "more than 1024 threads");
  cudaFuncAttributes a;
  int blocks = 0;
  ok(cudaFuncGetAttributes(&a, bounded));
  expect(a.maxThreadsPerBlock == 64, "launch bounds");
  cudaFuncAttributes plain;
  int major, minor;
  ok(cudaFuncGetAttributes(&plain, useSymbols));
  ok(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
  ok(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0));
  expect(a.ptxVersion == builtFor() && plain.ptxVersion == builtFor(), "PTX version");
  expect(a.binaryVersion == major * 10 + minor && a.binaryVersion >= a.ptxVersion,
         "binary version");
  ok(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, needsShared, 32, n * 4));
  expect(blocks >= 1 && blocks <= 4, "occupancy");
}

void memory() {
  Buffer<int> out(32);
  useSymbols<<<1, 32>>>(out.device);
  expect(out.download()[2] == 9, "initial values");
  int fresh[4] = {10, 20, 30, 40}, seven = 7, back = 0;
  ok(cudaMemcpyToSymbol(table, fresh, sizeof fresh));
  ok(cudaMemcpyToSymbol(counter, &seven, sizeof seven));
  useSymbols<<<1, 32>>>(out.device);
  expect(out.download()[2] == 37, "new values");
  ok(cudaMemcpyFromSymbol(&back, counter, sizeof back));
  expect(back == 7, "cudaMemcpyFromSymbol");
  int *pinned, *device, host[8];
  cudaStream_t s;
  ok(cudaStreamCreate(&s));
  ok(cudaMallocHost(&pinned, 32));
  ok(cudaMallocAsync(&device, 32, s));
  for (int k = 0; k < 8; k++) pinned[k] = k * k;
  ok(cudaMemcpyAsync(device, pinned, 32, cudaMemcpyHostToDevice, s));
  ok(cudaMemsetAsync(device, 0xff, 8, s));
  ok(cudaMemcpyAsync(host, device, 32, cudaMemcpyDeviceToHost, s));
  ok(cudaStreamSynchronize(s));
  expect(host[1] == -1 && host[7] == 49, "asynchronous copies");
  cudaPointerAttributes a;
  ok(cudaPointerGetAttributes(&a, device));
  expect(a.type == cudaMemoryTypeDevice, "device pointer");
  ok(cudaPointerGetAttributes(&a, pinned));
  expect(a.type == cudaMemoryTypeHost, "pinned pointer");
  ok(cudaPointerGetAttributes(&a, host));
  expect(a.type == cudaMemoryTypeUnregistered, "ordinary pointer");
  ok(cudaFreeAsync(device, s));
  ok(cudaFreeHost(pinned));
  void *huge;
  expect(cudaMalloc(&huge, size_t(1) << 46) == cudaErrorMemoryAllocation, "out of memory");
  expect(!std::strcmp(cudaGetErrorName(cudaGetLastError()), "cudaErrorMemoryAllocation"),
         "error name");
}

// Offsets beyond 4 GiB without the memory: nothing but the touched pages is ever there.
__global__ void touchFar(char *a, const size_t *offsets, int n) {
  int i = threadIdx.x;
  if (i < n) a[offsets[i]] = char(i + 1);
  __syncthreads();
  int other = i < n ? a[offsets[n - 1 - i]] : 0;
  __syncthreads();
  if (i < n) a[offsets[i]] += other > 0 ? 100 : 0;
}
void hugeAllocation() {
  const size_t bytes = size_t(6) << 30, gib = size_t(1) << 30;
  size_t before, during, total;
  char *a, back = 0;
  Buffer<size_t> offsets(std::vector<size_t>{0, gib, 4 * gib - 1, 4 * gib, 5 * gib + 3, bytes - 1});
  const int n = int(offsets.host.size());
  ok(cudaMemGetInfo(&before, &total));
  ok(cudaMalloc(&a, bytes));
  ok(cudaMemGetInfo(&during, &total));
  expect(before - during >= bytes && total >= before, "cudaMemGetInfo");
  touchFar<<<1, 32>>>(a, offsets.device, n);
  ok(cudaDeviceSynchronize());
  for (int k = 0; k < n; k++) {
    ok(cudaMemcpy(&back, a + offsets.host[k], 1, cudaMemcpyDeviceToHost));
    expect(back == char(k + 101), "bytes far apart");
  }
  ok(cudaMemset(a + 5 * gib, 9, 1000));
  ok(cudaMemcpy(&back, a + 5 * gib + 999, 1, cudaMemcpyDeviceToHost));
  expect(back == 9, "a far fill");
  ok(cudaFree(a));
  ok(cudaMemGetInfo(&during, &total));
  expect(during == before, "freed");
}

void errorState() {
  expect(cudaSetDevice(99) == cudaErrorInvalidDevice, "no such device");
  expect(cudaPeekAtLastError() == cudaErrorInvalidDevice, "peek leaves the error");
  expect(cudaGetLastError() == cudaErrorInvalidDevice, "get takes it");
  expect(cudaPeekAtLastError() == cudaSuccess && cudaGetLastError() == cudaSuccess, "taken");
}

void streamsAndEvents() {
  cudaStream_t s;
  cudaEvent_t begin, end;
  ok(cudaStreamCreateWithPriority(&s, cudaStreamNonBlocking, 0));
  ok(cudaEventCreate(&begin));
  ok(cudaEventCreate(&end));
  Buffer<int> out(32);
  int called = 0;
  float milliseconds = -1;
  ok(cudaEventRecord(begin, s));
  useSymbols<<<1, 32, 0, s>>>(out.device);
  ok(cudaLaunchHostFunc(
      s, [](void *p) { ++*static_cast<int *>(p); }, &called));
  ok(cudaEventRecord(end, s));
  ok(cudaEventSynchronize(end));
  ok(cudaEventElapsedTime(&milliseconds, begin, end));
  expect(called == 1 && milliseconds >= 0, "host function and elapsed time");
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusActive;
  ok(cudaStreamIsCapturing(s, &status));
  expect(status == cudaStreamCaptureStatusNone, "no capture");
  ok(cudaEventQuery(end));
  ok(cudaStreamWaitEvent(s, end, 0));
  ok(cudaEventDestroy(begin));
  ok(cudaEventDestroy(end));
  ok(cudaStreamDestroy(s));
}

int main(int argc, char **argv) {
  if (argc > 2) { // the device that PTXRUN_DEVICE asks for: api device CC
    int major, minor;
    ok(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
    ok(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0));
    expect(major * 10 + minor == std::atoi(argv[2]), "compute capability");
    expect(builtFor() <= major * 10 + minor, "the code fits the device");
    return finish();
  }
  if (argc > 1) { // an entry point ptxrun does not have; on a GPU it simply works
    cudaGraph_t graph;
    cudaGraphNode_t node;
    ok(cudaGraphCreate(&graph, 0));
    ok(cudaGraphAddEmptyNode(&node, graph, nullptr, 0));
    return finish();
  }
  deviceQueries();
  functionAttributes();
  memory();
  hugeAllocation();
  errorState();
  streamsAndEvents();
  return finish();
}
