// The state of the stand-in CUDA runtime.  Every entry point is in one of the sibling files; they
// meet only here.  Work is executed when it is enqueued, so a stream is always idle; what streams
// and events still carry is stream capture (graph.cpp).
#pragma once
#include "../include/ptxrun.hpp"
#include <chrono>
#include <cuda_runtime_api.h>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace ptxrun::runtime {

struct KernelHandle { // one __global__ function
  LoadedModule *module = nullptr;
  std::string name;
  int maxDynamicShared = 0; // cudaFuncAttributeMaxDynamicSharedMemorySize; 0: the default limit
};

struct VariableHandle {
  LoadedModule *module = nullptr;
  std::string name;
};

struct CallConfiguration { // <<<...>>>
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
};

enum class MemoryKind { Device, Host, Managed };

using Task = std::function<cudaError_t()>;

struct Runtime {
  std::unique_ptr<Simulator> simulator;
  std::map<const void *, std::unique_ptr<KernelHandle>> kernels;
  std::map<const void *, VariableHandle> variables;
  std::map<uint64_t, MemoryKind> allocations;
  bool failed = false; // a fatal report: the context is lost, as on a device
  size_t reportsShown = 0, faults = 0;
  std::string missingCode;   // why there is no PTX
  bool kernelBefore = false; // the work just done was a kernel: the next one may overlap it
  uint64_t allocatedBytes = 0;
  std::map<uint64_t, uint64_t> sizes;

  Runtime();
  ~Runtime();
  void printSummary() const;
};

// What CUDA keeps for each host thread.
struct ThreadState {
  std::vector<CallConfiguration> calls;
  cudaError_t lastError = cudaSuccess;
};

Runtime &state();
ThreadState &threadState();

// Host threads take turns: whoever reads or changes the state, or runs work, holds this.
class Turn {
public:
  Turn();

private:
  std::lock_guard<std::recursive_mutex> guard;
};

inline Simulator &simulator() { return *state().simulator; }

// Every entry point ends with this: it remembers the error.
cudaError_t result(cudaError_t error);
cudaError_t complain(cudaError_t error, const std::string &what); // prints, then result()
void showNewReports();

// graph.cpp: runs `task` now, or adds it to the graph the stream captures.
cudaError_t enqueue(cudaStream_t stream, const char *kind, Task task);
bool isCapturing(cudaStream_t stream);
cudaError_t refuseDuringCapture(const char *what); // cudaSuccess when nothing is being captured

cudaStream_t runningStream();                           // of the task that runs now
bool waitsFor(cudaStream_t stream, cudaStream_t other); // without being told to

// memory.cpp: the copies of option late=1 that have not arrived, oldest first.
uint64_t copiesOnTheirWay();                            // a mark: of all that were made until now
void deliverCopies(cudaStream_t stream, uint64_t mark); // that it waits for, older than the mark
void shareCopies(cudaStream_t from, uint64_t mark, cudaStream_t with); // it waits for them, too
void deliverAllCopies();

// launch.cpp
KernelHandle *kernelFor(const void *function);

// device.cpp
struct DeviceModel {
  int processors = 132, computeMajor = 9, computeMinor = 0;
  size_t sharedPerProcessor = 228 * 1024, sharedOptIn = 227 * 1024, sharedDefault = 48 * 1024;
  bool computeGiven = false; // by PTXRUN_DEVICE
  size_t globalBytes = size_t(141) << 30;
  int threadsPerProcessor = 2048, blocksPerProcessor = 32, registersPerProcessor = 65536,
      l2Bytes = 50 << 20;
};
const DeviceModel &device();
void fitDeviceTo(uint32_t architecture); // unless PTXRUN_DEVICE says what the device is

} // namespace ptxrun::runtime
