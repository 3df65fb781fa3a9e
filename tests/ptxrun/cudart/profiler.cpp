// Counting from inside a program: cudaProfilerStart clears the counters and turns all of them on,
// cudaProfilerStop turns them off again, ptxrunCount reads them (include/ptxrun_count.h).
#include "runtime.hpp"

using namespace ptxrun;
using namespace ptxrun::runtime;

namespace {
bool profileAlways() { // prof= among the options
  static const bool given = simulator().options().profile;
  return given;
}
} // namespace

extern "C" {

cudaError_t cudaProfilerStart() {
  profileAlways();
  simulator().clearProfile();
  simulator().options().profile = true;
  return cudaSuccess;
}
cudaError_t cudaProfilerStop() {
  simulator().options().profile = profileAlways();
  return cudaSuccess;
}

long long ptxrunCount(const char *kernel, const char *counter) {
  uint64_t value = 0;
  bool known = simulator().count(kernel ? kernel : "", counter, value);
  return known ? static_cast<long long>(value) : -1;
}
}
