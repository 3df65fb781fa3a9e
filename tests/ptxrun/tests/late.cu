// Copies to pinned memory, seen by the host before and after it waits for them.  With option late=1
// they arrive when it waits, and not before; a GPU may be early or late.
//   late           waits as it must
//   late nowait    reads at once
//   late wrong     waits for an event that was recorded before the copy
//   late stream    waits for another stream
#include "check.h"
#include <cstring>

__global__ void count(int *a) { a[threadIdx.x] += 1; }

int main(int argc, char **argv) {
  const char *how = argc > 1 ? argv[1] : "";
  const int n = 64;
  cudaStream_t s, other;
  cudaEvent_t before, behind;
  int *pinned, *second, pageable[n];
  Buffer<int> a(n, 5), b(n, 0);
  ok(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  ok(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  ok(cudaEventCreateWithFlags(&before, cudaEventDisableTiming));
  ok(cudaEventCreateWithFlags(&behind, cudaEventDisableTiming));
  ok(cudaMallocHost(&pinned, n * sizeof(int)));
  ok(cudaMallocHost(&second, n * sizeof(int)));
  std::memset(pinned, 0, n * sizeof(int));

  count<<<1, n, 0, s>>>(a.device);
  ok(cudaEventRecord(before, s));
  ok(cudaMemcpyAsync(pinned, a.device, n * sizeof(int), cudaMemcpyDeviceToHost, s));
  ok(cudaEventRecord(behind, s));
  ok(cudaMemsetAsync(a.device, 0, n * sizeof(int), s)); // the copy has what was there
  if (!std::strcmp(how, "wrong")) ok(cudaEventSynchronize(before));
  if (!std::strcmp(how, "stream")) ok(cudaStreamSynchronize(other));
  if (!*how) ok(cudaEventSynchronize(behind));
  expect(pinned[n - 1] == 6, "the copy has arrived");
  if (*how) return finish();

  // the device itself is never too early: from pinned memory, in stream order
  count<<<1, n, 0, s>>>(a.device);
  ok(cudaMemcpyAsync(pinned, a.device, n * sizeof(int), cudaMemcpyDeviceToHost, s));
  ok(cudaMemcpyAsync(b.device, pinned, n * sizeof(int), cudaMemcpyHostToDevice, s));
  ok(cudaStreamSynchronize(s));
  expect(pinned[3] == 1 && b.download()[3] == 1, "there and back");

  // memory that is not pinned is there when the call returns, as on a device
  ok(cudaMemcpyAsync(pageable, b.device, n * sizeof(int), cudaMemcpyDeviceToHost, s));
  expect(pageable[n - 1] == 1, "pageable memory");

  // a stream that waits for an event has waited for the copies before it
  ok(cudaMemcpyAsync(pinned, b.device, n * sizeof(int), cudaMemcpyDeviceToHost, s));
  count<<<1, n, 0, s>>>(b.device);
  ok(cudaMemcpyAsync(second, b.device, n * sizeof(int), cudaMemcpyDeviceToHost, s));
  ok(cudaEventRecord(behind, s));
  ok(cudaStreamWaitEvent(other, behind, 0));
  ok(cudaStreamSynchronize(other));
  expect(pinned[0] == 1 && second[0] == 2, "by way of another stream");

  // copies inside a graph
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  ok(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
  count<<<1, n, 0, s>>>(b.device);
  ok(cudaMemcpyAsync(pinned, b.device, n * sizeof(int), cudaMemcpyDeviceToHost, s));
  ok(cudaStreamEndCapture(s, &graph));
  ok(cudaGraphInstantiate(&executable, graph, 0));
  for (int k = 3; k < 6; k++) {
    ok(cudaGraphLaunch(executable, s));
    ok(cudaStreamSynchronize(s));
    expect(pinned[k] == k, "from a graph");
  }
  ok(cudaGraphExecDestroy(executable));
  ok(cudaGraphDestroy(graph));
  ok(cudaFreeHost(pinned));
  ok(cudaFreeHost(second));
  ok(cudaStreamDestroy(s));
  ok(cudaStreamDestroy(other));
  return finish();
}
