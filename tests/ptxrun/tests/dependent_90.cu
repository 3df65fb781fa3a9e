// Programmatic dependent launch: chains that are right, directly and as graphs, and chains whose
// dependent touches the earlier kernels' data too soon.  Usage: dependent_90 [FAULT]
#include "check.h"
#include <string>

const int n = 256;

__global__ void produce(int *data, int base) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  data[i] = base + i;
  cudaTriggerProgrammaticLaunchCompletion();
}
// Dependents of this one start when all of it has ended.
__global__ void produceToTheEnd(int *data, int base) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  data[i] = base + i;
}
__global__ void consume(const int *data, int *out, const int *constants) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int constant = constants[i]; // nobody writes it: may be read at once
  cudaGridDependencySynchronize();
  out[i] = data[n - 1 - i] * 2 + constant;
}
__global__ void consumeByOneThread(const int *data, int *out, const int *constants) {
  if (threadIdx.x == 0) cudaGridDependencySynchronize();
  __syncthreads();
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = data[n - 1 - i] * 2 + constants[i];
}
__global__ void readTooSoon(const int *data, int *out, const int *constants) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int early = data[n - 1 - i];
  cudaGridDependencySynchronize();
  out[i] = early * 2 + constants[i];
}
__global__ void waitOfAnotherWarp(const int *data, int *out, const int *constants) {
  if (threadIdx.x < 32) cudaGridDependencySynchronize();
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = data[n - 1 - i] * 2 + constants[i];
}
__global__ void overwriteTooSoon(const int *data, int *out, const int *) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  const_cast<int *>(data)[i] = 1; // the kernel before still writes it
  cudaGridDependencySynchronize();
  out[i] = 0;
}
// Lets the next kernel start before it waits itself: that one may then overlap `produce` too.
__global__ void passOn(const int *, int *out, const int *) {
  cudaTriggerProgrammaticLaunchCompletion();
  cudaGridDependencySynchronize();
  out[blockIdx.x * blockDim.x + threadIdx.x] = 0;
}

using Consumer = void (*)(const int *, int *, const int *);

struct Chain {
  Buffer<int> data{n}, out{n}, constants{std::vector<int>(n, 5)};
  cudaStream_t stream;
  Chain() { ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)); }
  void dependent(Consumer kernel) {
    cudaLaunchAttribute attribute[1];
    attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute[0].val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = n / 64;
    config.blockDim = 64;
    config.stream = stream;
    config.attrs = attribute;
    config.numAttrs = 1;
    const int *data_ = data.device, *constants_ = constants.device;
    void *arguments[] = {&data_, &out.device, &constants_};
    ok(cudaLaunchKernelExC(&config, reinterpret_cast<const void *>(kernel), arguments));
  }
  void produceAnd(Consumer kernel, int base) {
    produce<<<n / 64, 64, 0, stream>>>(data.device, base);
    dependent(kernel);
  }
  void verify(int base, const char *what) {
    ok(cudaStreamSynchronize(stream));
    out.download();
    for (int i = 0; i < n; i++) expect(out.host[i] == (base + n - 1 - i) * 2 + 5, what);
  }
};

void rightChains() {
  Chain c;
  c.produceAnd(consume, 10);
  c.verify(10, "dependent launch");
  c.produceAnd(consumeByOneThread, 20);
  c.verify(20, "one thread waits, the barrier orders the rest");
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  ok(cudaStreamBeginCapture(c.stream, cudaStreamCaptureModeGlobal));
  c.produceAnd(consume, 30);
  ok(cudaStreamEndCapture(c.stream, &graph));
  ok(cudaGraphInstantiate(&executable, graph, 0));
  for (int k = 0; k < 3; k++) {
    c.data.upload(); // zeros
    ok(cudaGraphLaunch(executable, c.stream));
    c.verify(30, "dependent launch in a graph");
  }
  produceToTheEnd<<<n / 64, 64, 0, c.stream>>>(c.data.device, 35);
  c.dependent(readTooSoon);
  c.verify(35, "not too soon behind a kernel that lets nobody start early");
  // The attribute means nothing after a synchronisation or a copy.
  produce<<<n / 64, 64, 0, c.stream>>>(c.data.device, 40);
  ok(cudaStreamSynchronize(c.stream));
  c.dependent(readTooSoon);
  c.verify(40, "nothing left to overlap");
}

int main(int argc, char **argv) {
  const struct {
    const char *name;
    Consumer kernel;
  } faults[] = {{"read", readTooSoon}, {"write", overwriteTooSoon}, {"warp", waitOfAnotherWarp}};
  std::string wanted = argc > 1 ? argv[1] : "";
  Chain chain;
  for (const auto &fault : faults)
    if (wanted == fault.name) chain.produceAnd(fault.kernel, 0);
  if (wanted == "chain" || wanted == "chain_ok") {
    chain.produceAnd(wanted == "chain" ? passOn : consume, 0);
    chain.dependent(readTooSoon); // two launches after `produce`
  }
  if (wanted == "graph") {
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    ok(cudaStreamBeginCapture(chain.stream, cudaStreamCaptureModeGlobal));
    chain.produceAnd(readTooSoon, 0);
    ok(cudaStreamEndCapture(chain.stream, &graph));
    ok(cudaGraphInstantiate(&executable, graph, 0));
    ok(cudaGraphLaunch(executable, chain.stream));
  }
  if (wanted.empty()) rightChains();
  ok(cudaDeviceSynchronize());
  return finish();
}
