// Frames in words.
#include "source.hpp"
#include <algorithm>

namespace ptxrun {

uint32_t ownFrame(const Kernel &kernel, uint32_t frame) {
  uint32_t outermost = frame;
  while (uint32_t caller = kernel.frames[outermost].caller) outermost = caller;
  while (kernel.frames[frame].file != kernel.frames[outermost].file)
    frame = kernel.frames[frame].caller;
  return frame;
}

std::string lineOf(const Kernel &kernel, uint32_t number, bool wholePath) {
  const Frame &frame = kernel.frames[number];
  if (!number || frame.file >= kernel.files.size()) return "";
  std::string file = kernel.files[frame.file];
  if (!wholePath) file.erase(0, file.rfind('/') + 1); // npos + 1 is 0
  return file + ":" + std::to_string(frame.line);
}

std::string placeOf(const Kernel &kernel, const Instruction &i) {
  std::string line = lineOf(kernel, ownFrame(kernel, i.frame), false);
  return line.empty() ? "ptx:" + std::to_string(i.line) : line;
}

std::vector<std::string> framesAround(const Kernel &kernel, uint32_t own, uint32_t innermost) {
  std::vector<std::string> inner, outer;
  auto text = [&](const char *relation, uint32_t number) {
    std::string function = readableName(kernel.frames[number].function);
    return relation + (function.empty() ? "?" : function) + " at " + lineOf(kernel, number, true);
  };
  for (uint32_t k = innermost; k != own; k = kernel.frames[k].caller)
    inner.push_back(text("which calls ", k));
  std::reverse(inner.begin(), inner.end());
  for (uint32_t k = kernel.frames[own].caller; k; k = kernel.frames[k].caller)
    outer.push_back(text("called by ", k));
  if (own) inner.insert(inner.begin(), text("in ", own));
  inner.insert(inner.end(), outer.begin(), outer.end());
  return inner;
}

} // namespace ptxrun
