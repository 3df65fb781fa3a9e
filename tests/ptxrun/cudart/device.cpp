// The device that programs see: an H200-like model; PTXRUN_DEVICE="processors=4 cc=80 ..." changes
// it.
#include "runtime.hpp"
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

namespace ptxrun::runtime {
namespace {

struct ModelRow {
  const char *name;
  void (*set)(DeviceModel &, size_t);
};
const ModelRow modelRows[] = {
    {"processors", [](DeviceModel &d, size_t v) { d.processors = int(v); }},
    {"cc",
     [](DeviceModel &d, size_t v) {
       d.computeMajor = int(v / 10);
       d.computeMinor = int(v % 10);
       d.computeGiven = true;
     }},
    {"shared",
     [](DeviceModel &d, size_t v) {
       d.sharedOptIn = v;
       d.sharedPerProcessor = v + 1024;
     }},
    {"memory", [](DeviceModel &d, size_t v) { d.globalBytes = v; }},
    {"threads", [](DeviceModel &d, size_t v) { d.threadsPerProcessor = int(v); }},
    {"blocks", [](DeviceModel &d, size_t v) { d.blocksPerProcessor = int(v); }},
    {"l2", [](DeviceModel &d, size_t v) { d.l2Bytes = int(v); }}};

DeviceModel modelFromEnvironment() {
  DeviceModel model;
  const char *text = std::getenv("PTXRUN_DEVICE");
  std::istringstream words(text ? text : "");
  for (std::string word; words >> word;) {
    size_t equals = word.find('=');
    bool known = false;
    for (const ModelRow &row : modelRows)
      if (word.substr(0, equals) == row.name) {
        row.set(model, equals == std::string::npos
                           ? 0
                           : std::strtoull(word.c_str() + equals + 1, nullptr, 0));
        known = true;
      }
    if (!known)
      std::fprintf(stderr, "[ptxrun] unknown entry '%s' in PTXRUN_DEVICE\n", word.c_str());
  }
  return model;
}

struct AttributeRow {
  cudaDeviceAttr attribute;
  int (*value)(const DeviceModel &);
};
const AttributeRow attributeRows[] = {
    {cudaDevAttrMultiProcessorCount, [](const DeviceModel &d) { return d.processors; }},
    {cudaDevAttrComputeCapabilityMajor, [](const DeviceModel &d) { return d.computeMajor; }},
    {cudaDevAttrComputeCapabilityMinor, [](const DeviceModel &d) { return d.computeMinor; }},
    {cudaDevAttrMaxSharedMemoryPerBlock, [](const DeviceModel &d) { return int(d.sharedDefault); }},
    {cudaDevAttrMaxSharedMemoryPerBlockOptin,
     [](const DeviceModel &d) { return int(d.sharedOptIn); }},
    {cudaDevAttrMaxSharedMemoryPerMultiprocessor,
     [](const DeviceModel &d) { return int(d.sharedPerProcessor); }},
    {cudaDevAttrReservedSharedMemoryPerBlock, [](const DeviceModel &) { return 1024; }},
    {cudaDevAttrMaxThreadsPerMultiProcessor,
     [](const DeviceModel &d) { return d.threadsPerProcessor; }},
    {cudaDevAttrMaxBlocksPerMultiprocessor,
     [](const DeviceModel &d) { return d.blocksPerProcessor; }},
    {cudaDevAttrMaxThreadsPerBlock, [](const DeviceModel &) { return 1024; }},
    {cudaDevAttrMaxRegistersPerBlock, [](const DeviceModel &d) { return d.registersPerProcessor; }},
    {cudaDevAttrMaxRegistersPerMultiprocessor,
     [](const DeviceModel &d) { return d.registersPerProcessor; }},
    {cudaDevAttrWarpSize, [](const DeviceModel &) { return 32; }},
    {cudaDevAttrMaxGridDimX, [](const DeviceModel &) { return 0x7fffffff; }},
    {cudaDevAttrMaxGridDimY, [](const DeviceModel &) { return 65535; }},
    {cudaDevAttrMaxGridDimZ, [](const DeviceModel &) { return 65535; }},
    {cudaDevAttrMaxBlockDimX, [](const DeviceModel &) { return 1024; }},
    {cudaDevAttrMaxBlockDimY, [](const DeviceModel &) { return 1024; }},
    {cudaDevAttrMaxBlockDimZ, [](const DeviceModel &) { return 64; }},
    {cudaDevAttrL2CacheSize, [](const DeviceModel &d) { return d.l2Bytes; }},
    {cudaDevAttrTotalConstantMemory, [](const DeviceModel &) { return 65536; }},
    {cudaDevAttrClockRate, [](const DeviceModel &) { return 1980000; }},
    {cudaDevAttrMemoryClockRate, [](const DeviceModel &) { return 3201000; }},
    {cudaDevAttrGlobalMemoryBusWidth, [](const DeviceModel &) { return 6144; }},
    {cudaDevAttrCooperativeLaunch, [](const DeviceModel &) { return 1; }},
    {cudaDevAttrUnifiedAddressing, [](const DeviceModel &) { return 1; }},
    {cudaDevAttrManagedMemory, [](const DeviceModel &) { return 1; }},
    {cudaDevAttrConcurrentManagedAccess, [](const DeviceModel &) { return 1; }},
    {cudaDevAttrCanMapHostMemory, [](const DeviceModel &) { return 1; }},
    {cudaDevAttrMemoryPoolsSupported, [](const DeviceModel &) { return 1; }},
    {cudaDevAttrConcurrentKernels, [](const DeviceModel &) { return 1; }},
    {cudaDevAttrAsyncEngineCount, [](const DeviceModel &) { return 3; }},
    {cudaDevAttrTextureAlignment, [](const DeviceModel &) { return 512; }},
    {cudaDevAttrClusterLaunch, [](const DeviceModel &d) { return int(d.computeMajor >= 9); }},
    {cudaDevAttrStreamPrioritiesSupported, [](const DeviceModel &) { return 1; }},
    {cudaDevAttrComputeMode, [](const DeviceModel &) { return 0; }},
    {cudaDevAttrIntegrated, [](const DeviceModel &) { return 0; }},
    {cudaDevAttrEccEnabled, [](const DeviceModel &) { return 1; }},
    {cudaDevAttrPageableMemoryAccess, [](const DeviceModel &) { return 0; }}};

constexpr int toolkitVersion = 13000;

} // namespace

namespace {
DeviceModel &model() {
  static DeviceModel instance = modelFromEnvironment();
  return instance;
}
} // namespace

const DeviceModel &device() { return model(); }

void fitDeviceTo(uint32_t architecture) {
  if (model().computeGiven) return;
  model().computeMajor = int(architecture / 10);
  model().computeMinor = int(architecture % 10);
}

} // namespace ptxrun::runtime

using namespace ptxrun::runtime;

extern "C" {

cudaError_t cudaGetDeviceCount(int *count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int *current) {
  *current = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int wanted) {
  return result(wanted == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}
cudaError_t cudaInitDevice(int wanted, unsigned, unsigned) { return cudaSetDevice(wanted); }
cudaError_t cudaDriverGetVersion(int *version) {
  *version = toolkitVersion;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int *version) {
  *version = toolkitVersion;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int number) {
  if (number) return result(cudaErrorInvalidDevice);
  for (const AttributeRow &row : attributeRows)
    if (row.attribute == attribute) {
      *value = row.value(device());
      return cudaSuccess;
    }
  return complain(cudaErrorInvalidValue, "cudaDeviceGetAttribute: attribute " +
                                             std::to_string(int(attribute)) +
                                             " is not modelled by ptxrun");
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int number) {
  if (number) return result(cudaErrorInvalidDevice);
  const DeviceModel &d = device();
  std::memset(p, 0, sizeof *p);
  std::snprintf(p->name, sizeof p->name, "ptxrun (interpreter on the CPU)");
  p->major = d.computeMajor;
  p->minor = d.computeMinor;
  p->multiProcessorCount = d.processors;
  p->totalGlobalMem = d.globalBytes;
  p->totalConstMem = 65536;
  p->sharedMemPerBlock = d.sharedDefault;
  p->sharedMemPerBlockOptin = d.sharedOptIn;
  p->sharedMemPerMultiprocessor = d.sharedPerProcessor;
  p->reservedSharedMemPerBlock = 1024;
  p->regsPerBlock = p->regsPerMultiprocessor = d.registersPerProcessor;
  p->warpSize = 32;
  p->maxThreadsPerBlock = 1024;
  p->maxThreadsPerMultiProcessor = d.threadsPerProcessor;
  p->maxBlocksPerMultiProcessor = d.blocksPerProcessor;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
  p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 0x7fffffff;
  p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->l2CacheSize = d.l2Bytes;
  p->memoryBusWidth = 6144;
  p->textureAlignment = 512;
  p->unifiedAddressing = p->managedMemory = p->canMapHostMemory = p->cooperativeLaunch =
      p->concurrentKernels = 1;
  p->asyncEngineCount = 3;
  p->clusterLaunch = d.computeMajor >= 9;
  return cudaSuccess;
}

cudaError_t cudaDeviceReset() { return cudaSuccess; }
cudaError_t cudaSetDeviceFlags(unsigned) { return cudaSuccess; }
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaDeviceSetLimit(cudaLimit, size_t) { return cudaSuccess; }
}
