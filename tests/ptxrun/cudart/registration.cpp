// What nvcc's generated host code calls before main: fat binaries, kernels, variables.
#include "runtime.hpp"
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace ptxrun::runtime {
namespace {

// The header of a fat binary and of each entry, as far as we need them.
constexpr size_t headerSizeAt = 6, payloadSizeAt = 8;
constexpr size_t entryHeaderSizeAt = 4, entryPayloadSizeAt = 8, entryMinimum = 16;
constexpr uint16_t ptxEntry = 1;

template <class T> T fieldAt(const uint8_t *base, size_t offset) {
  T value;
  std::memcpy(&value, base + offset, sizeof value);
  return value;
}

uint32_t architectureOf(const std::string &ptx) {
  const std::string target = ".target sm_";
  size_t at = ptx.find(target);
  return at == std::string::npos ? 0 : uint32_t(std::atoi(ptx.c_str() + at + target.size()));
}

// Every PTX text of a fat binary, by the architecture it needs.
std::map<uint32_t, std::string> allPtxOf(const uint8_t *fatbin, std::string &why) {
  std::map<uint32_t, std::string> found;
  const uint8_t *entry = fatbin + fieldAt<uint16_t>(fatbin, headerSizeAt);
  const uint8_t *end = entry + fieldAt<uint64_t>(fatbin, payloadSizeAt);
  while (entry + entryMinimum < end) {
    uint32_t header = fieldAt<uint32_t>(entry, entryHeaderSizeAt);
    uint64_t bytes = fieldAt<uint64_t>(entry, entryPayloadSizeAt);
    if (fieldAt<uint16_t>(entry, 0) == ptxEntry) {
      const char *text = reinterpret_cast<const char *>(entry + header);
      std::string ptx(text, strnlen(text, bytes));
      if (ptx.find(".version") != std::string::npos)
        found[architectureOf(ptx)] = ptx;
      else
        why = "the PTX in the program is compressed: build with nvcc -no-compress";
    }
    entry += header + bytes;
  }
  return found;
}

// The PTX that a driver would take: the newest that the device can run.  Empty, with the reason in
// missingCode, when there is none.
std::string ptxOf(const uint8_t *fatbin) {
  std::string &why = state().missingCode;
  why = "the program contains no PTX (built for a real architecture only, or with -rdc=true, which "
        "leaves no PTX after device linking)";
  std::map<uint32_t, std::string> found = allPtxOf(fatbin, why);
  if (found.empty()) return "";
  auto compute = [] { return uint32_t(device().computeMajor * 10 + device().computeMinor); };
  uint32_t oldest = found.begin()->first;
  if (oldest > compute()) fitDeviceTo(oldest);
  auto newer = found.upper_bound(compute());
  if (newer != found.begin()) return std::prev(newer)->second;
  why = "the program needs compute capability " + std::to_string(oldest) + ", the device has " +
        std::to_string(compute());
  return "";
}

std::string fileText(const char *path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

} // namespace
} // namespace ptxrun::runtime

using namespace ptxrun;
using namespace ptxrun::runtime;

extern "C" {

void **__cudaRegisterFatBinary(void *wrapper) {
  struct Wrapper {
    int magic, version;
    const uint8_t *data;
    void *file;
  };
  const char *given = std::getenv("PTXRUN_PTX"); // run this PTX instead of the embedded one
  std::string ptx = given ? fileText(given) : ptxOf(static_cast<Wrapper *>(wrapper)->data);
  LoadedModule *module = nullptr;
  try {
    if (!ptx.empty()) module = simulator().load(std::move(ptx), given ? given : "fatbin");
  } catch (const std::exception &error) {
    state().missingCode = error.what();
    std::fprintf(stderr, "[ptxrun] %s\n", error.what());
  }
  return reinterpret_cast<void **>(module);
}
void __cudaRegisterFatBinaryEnd(void **) {}
void __cudaUnregisterFatBinary(void **) {}
char __cudaInitModule(void **) { return 1; }

void __cudaRegisterFunction(void **module, const char *hostFunction, char *, const char *name, int,
                            uint3 *, uint3 *, dim3 *, dim3 *, int *) {
  auto &slot = state().kernels[hostFunction];
  slot.reset(new KernelHandle);
  slot->module = reinterpret_cast<LoadedModule *>(module);
  slot->name = name;
}
void __cudaRegisterVar(void **module, char *hostVariable, char *, const char *name, int, size_t,
                       int, int) {
  state().variables[hostVariable] = {reinterpret_cast<LoadedModule *>(module), name};
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream) {
  threadState().calls.push_back({grid, block, shared, static_cast<cudaStream_t>(stream)});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
  CallConfiguration call = threadState().calls.back();
  threadState().calls.pop_back();
  *grid = call.grid;
  *block = call.block;
  *shared = call.shared;
  *static_cast<cudaStream_t *>(stream) = call.stream;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *function) {
  KernelHandle *handle = kernelFor(function);
  if (!handle) return result(cudaErrorInvalidDeviceFunction);
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void *>(function));
  return cudaSuccess;
}
}
