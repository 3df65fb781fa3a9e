// The longest chain of dependent round trips to global memory: README.md, "Serial trips".
// Only while a program is counted; registers are taken as a warp's, as a scoreboard takes them.
#pragma once
#include "state.hpp"

namespace ptxrun {

namespace trips {

void startWarp(const Context &, Warp &);
// Before the instruction runs; active: lanes whose guard holds.
void step(Context &, const Instruction &, LaneMask active);
// The warps whose lanes wait at the barrier leave it together.
void passBarrier(Block &, uint32_t id);
void passClusterBarrier(const Block &, Warp &);

} // namespace trips

} // namespace ptxrun
