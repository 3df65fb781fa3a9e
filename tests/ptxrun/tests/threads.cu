// Many host threads at once: launches, copies, captures and errors do not mix.
#include "check.h"
#include <thread>

__global__ void addTo(int *data, int value, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) data[i] += value;
}

const int n = 100, rounds = 10;

void work(int id, bool *good) {
  cudaStream_t s;
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  *good = cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking) == cudaSuccess;
  int *data, host[n];
  *good &= cudaMalloc(&data, sizeof host) == cudaSuccess;
  *good &= cudaMemsetAsync(data, 0, sizeof host, s) == cudaSuccess;
  *good &= cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal) == cudaSuccess;
  addTo<<<2, 64, 0, s>>>(data, 1000, n);
  *good &= cudaStreamEndCapture(s, &graph) == cudaSuccess;
  *good &= cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess;
  for (int k = 0; k < rounds; k++) {
    addTo<<<2, 64, 0, s>>>(data, id, n);
    *good &= cudaGraphLaunch(executable, s) == cudaSuccess;
    if (id % 2) cudaSetDevice(99); // an error of this thread alone
    *good &= cudaPeekAtLastError() == (id % 2 ? cudaErrorInvalidDevice : cudaSuccess);
  }
  *good &= cudaMemcpyAsync(host, data, sizeof host, cudaMemcpyDeviceToHost, s) == cudaSuccess;
  for (int value : host) *good &= value == rounds * (1000 + id);
  *good &= cudaFree(data) == cudaSuccess;
}

int main() {
  const int count = 6;
  bool good[count] = {};
  std::vector<std::thread> threads;
  for (int id = 0; id < count; id++) threads.emplace_back(work, id, &good[id]);
  for (std::thread &thread : threads) thread.join();
  for (bool g : good) expect(g, "a thread's results");
  return finish();
}
