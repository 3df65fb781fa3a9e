// Kernel launches and function attributes.
#include "runtime.hpp"
#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace ptxrun::runtime {

KernelHandle *kernelFor(const void *function) {
  auto found = state().kernels.find(function);
  return found == state().kernels.end() ? nullptr : found->second.get();
}

namespace {

struct Launch {
  KernelHandle *kernel;
  LaunchConfig config;
  std::vector<uint8_t> parameters;
};

std::string dimText(const Dim3 &d) {
  return std::to_string(d.x) + "," + std::to_string(d.y) + "," + std::to_string(d.z);
}
Dim3 toDim(const dim3 &d) { return {d.x, d.y, d.z}; }

// What a driver refuses before anything runs.
cudaError_t judge(const Launch &launch, const KernelInfo &info) {
  const LaunchConfig &c = launch.config;
  constexpr uint32_t maxGridYZ = 65535;
  auto refuse = [&](cudaError_t error, const std::string &why) {
    return complain(error, launch.kernel->name + ": invalid launch (" + why + "): grid " +
                               dimText(c.grid) + " block " + dimText(c.block) + " dynamic shared " +
                               std::to_string(c.dynamicSharedBytes));
  };
  if (!c.grid.count() || c.grid.y > maxGridYZ || c.grid.z > maxGridYZ)
    return refuse(cudaErrorInvalidConfiguration, "grid");
  if (!c.block.count() || c.block.count() > 1024 || c.block.z > 64)
    return refuse(cudaErrorInvalidConfiguration, "block");
  if (c.block.count() > info.maxThreads)
    return refuse(cudaErrorInvalidValue, "more threads than __launch_bounds__");
  uint64_t clusterSize = c.cluster.count();
  if (!clusterSize || clusterSize > 16 || c.grid.x % c.cluster.x || c.grid.y % c.cluster.y ||
      c.grid.z % c.cluster.z)
    return refuse(cudaErrorInvalidConfiguration, "cluster " + dimText(c.cluster));
  size_t limit = device().sharedDefault;
  bool fits = c.dynamicSharedBytes <= uint64_t(launch.kernel->maxDynamicShared) ||
              info.staticSharedBytes + c.dynamicSharedBytes <= limit;
  if (!fits)
    return refuse(cudaErrorInvalidValue,
                  "more dynamic shared memory than cudaFuncSetAttribute allows");
  return cudaSuccess;
}

cudaError_t perform(const Launch &launch) {
  if (state().failed) return result(cudaErrorLaunchFailure);
  LaunchConfig config = launch.config; // kernels run one after the other: overlap is only judged
  config.overlapsPrevious &= state().kernelBefore;
  try {
    simulator().launch(*launch.kernel->module, launch.kernel->name, config,
                       launch.parameters.data(), launch.parameters.size());
  } catch (const std::exception &error) {
    state().failed = true;
    state().faults++;
    return complain(cudaErrorLaunchFailure, launch.kernel->name + ": " + error.what());
  }
  showNewReports();
  return cudaSuccess; // a fault shows at the next synchronisation, as on a device
}

cudaError_t launchKernel(const void *function, LaunchConfig config, void **arguments,
                         cudaStream_t stream) {
  Turn turn;
  if (state().failed) return result(cudaErrorLaunchFailure);
  Launch launch{kernelFor(function), config, {}};
  if (!launch.kernel) return result(cudaErrorInvalidDeviceFunction);
  if (!launch.kernel->module)
    return complain(cudaErrorNoKernelImageForDevice,
                    launch.kernel->name + ": " + state().missingCode);
  try {
    KernelInfo info = simulator().info(*launch.kernel->module, launch.kernel->name);
    if (launch.config.cluster.count() == 1) launch.config.cluster = info.requiredCluster;
    if (cudaError_t error = judge(launch, info)) return error;
    launch.parameters.resize(info.parameterBytes);
    for (size_t k = 0; k < info.parameters.size(); k++)
      std::memcpy(&launch.parameters[info.parameters[k].offset], arguments[k],
                  info.parameters[k].size);
  } catch (const std::exception &error) {
    state().faults++;
    return complain(cudaErrorNoKernelImageForDevice, launch.kernel->name + ": " + error.what());
  }
  return enqueue(stream, "kernel", [launch] { return perform(launch); });
}

LaunchConfig plainConfig(dim3 grid, dim3 block, size_t shared) {
  return {toDim(grid), toDim(block), {}, shared, false, false};
}

} // namespace
} // namespace ptxrun::runtime

using namespace ptxrun;
using namespace ptxrun::runtime;

extern "C" {

cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments,
                             size_t shared, cudaStream_t stream) {
  return launchKernel(function, plainConfig(grid, block, shared), arguments, stream);
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments,
                               size_t shared, cudaStream_t stream) {
  return cudaLaunchKernel(reinterpret_cast<const void *>(kernel), grid, block, arguments, shared,
                          stream);
}
cudaError_t cudaLaunchCooperativeKernel(const void *function, dim3 grid, dim3 block,
                                        void **arguments, size_t shared, cudaStream_t stream) {
  LaunchConfig config = plainConfig(grid, block, shared);
  config.allBlocksResident = true;
  return launchKernel(function, config, arguments, stream);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *given, const void *function,
                                void **arguments) {
  LaunchConfig config = plainConfig(given->gridDim, given->blockDim, given->dynamicSmemBytes);
  for (unsigned k = 0; k < given->numAttrs; k++) {
    const cudaLaunchAttribute &attribute = given->attrs[k];
    switch (attribute.id) {
    case cudaLaunchAttributeClusterDimension:
      config.cluster = {attribute.val.clusterDim.x, attribute.val.clusterDim.y,
                        attribute.val.clusterDim.z};
      break;
    case cudaLaunchAttributeCooperative:
      config.allBlocksResident = attribute.val.cooperative;
      break;
    case cudaLaunchAttributeProgrammaticStreamSerialization:
      config.overlapsPrevious = attribute.val.programmaticStreamSerializationAllowed;
      break;
    case cudaLaunchAttributeIgnore:
    case cudaLaunchAttributePriority:
    case cudaLaunchAttributeClusterSchedulingPolicyPreference:
    case cudaLaunchAttributeAccessPolicyWindow:
    case cudaLaunchAttributePreferredSharedMemoryCarveout: break;
    default:
      return complain(cudaErrorNotSupported, "cudaLaunchKernelExC: attribute " +
                                                 std::to_string(int(attribute.id)) +
                                                 " is not supported by ptxrun");
    }
  }
  return launchKernel(function, config, arguments, given->stream);
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data) {
  return enqueue(stream, "host", [=] {
    function(data);
    return cudaSuccess;
  });
}

cudaError_t cudaFuncSetAttribute(const void *function, cudaFuncAttribute attribute, int value) {
  Turn turn;
  KernelHandle *kernel = kernelFor(function);
  if (!kernel) return result(cudaErrorInvalidDeviceFunction);
  if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout ||
      attribute == cudaFuncAttributeNonPortableClusterSizeAllowed)
    return cudaSuccess;
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize)
    return complain(cudaErrorNotSupported,
                    "cudaFuncSetAttribute: attribute " + std::to_string(attribute));
  if (value < 0 || size_t(value) > device().sharedOptIn) return result(cudaErrorInvalidValue);
  kernel->maxDynamicShared = value;
  return cudaSuccess;
}
cudaError_t cudaFuncSetCacheConfig(const void *, cudaFuncCache) { return cudaSuccess; }

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, const void *function) {
  Turn turn;
  KernelHandle *kernel = kernelFor(function);
  if (!kernel || !kernel->module) return result(cudaErrorInvalidDeviceFunction);
  std::memset(attributes, 0, sizeof *attributes);
  try {
    KernelInfo info = simulator().info(*kernel->module, kernel->name);
    attributes->sharedSizeBytes = info.staticSharedBytes;
    attributes->localSizeBytes = info.localBytes;
    attributes->maxThreadsPerBlock = int(info.maxThreads);
    int byDefault = int(device().sharedDefault -
                        std::min<uint64_t>(info.staticSharedBytes, device().sharedDefault));
    attributes->maxDynamicSharedSizeBytes =
        kernel->maxDynamicShared ? kernel->maxDynamicShared : byDefault;
  } catch (const std::exception &error) {
    return complain(cudaErrorInvalidDeviceFunction, error.what());
  }
  attributes->numRegs = 32; // registers are not allocated: a plausible number
  attributes->ptxVersion = int(simulator().targetArchitecture(*kernel->module));
  attributes->binaryVersion = device().computeMajor * 10 + device().computeMinor;
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks,
                                                                   const void *function,
                                                                   int threads, size_t shared,
                                                                   unsigned) {
  cudaFuncAttributes attributes;
  if (cudaError_t error = cudaFuncGetAttributes(&attributes, function)) return error;
  if (threads <= 0) return result(cudaErrorInvalidValue);
  constexpr size_t reserved = 1024; // per block
  int warps = (threads + 31) / 32, byThreads = device().threadsPerProcessor / (warps * 32);
  int byShared =
      int(device().sharedPerProcessor / (attributes.sharedSizeBytes + shared + reserved));
  *blocks = threads > attributes.maxThreadsPerBlock
                ? 0
                : std::min({byThreads, byShared, device().blocksPerProcessor});
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function,
                                                          int threads, size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, shared,
                                                                0);
}
}
