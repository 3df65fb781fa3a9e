// Where an instruction came from, in words: the lines behind it and the functions they are in.
#pragma once
#include "instruction.hpp"

namespace ptxrun {

// The innermost line in the file that the kernel stands in: most likely its author's own.  A helper
// of a header that it calls may have made the access; the line that called it is what to look at.
uint32_t ownFrame(const Kernel &, uint32_t frame);
std::string lineOf(const Kernel &, uint32_t frame, bool wholePath); // "kernel.cu:12"; "" for 0
std::string placeOf(const Kernel &, const Instruction &); // the same of its own frame, or "ptx:12"
// One line a frame, the own one first, then what it calls down to the innermost, then its callers.
std::vector<std::string> framesAround(const Kernel &, uint32_t own, uint32_t innermost);

} // namespace ptxrun
