// Places for the registers of a decoded kernel.
#pragma once
#include "instruction.hpp"

namespace ptxrun {

// Registers that never hold something at the same time get one place. The last thing that is done
// to a kernel: Kernel::values keeps what they were.
void shareRegisters(Kernel &);

} // namespace ptxrun
