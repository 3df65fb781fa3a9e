// The table of faults, and the collection of reports.
#include "report.hpp"

namespace ptxrun {

namespace {
const FaultInfo faultTable[] = {
    {"oob-global", false, false, "global access outside every live allocation"},
    {"oob-shared", false, false, "shared access outside the block's shared memory"},
    {"oob-local", false, false, "local access outside the thread's local memory"},
    {"oob-param", false, false, "access outside the kernel's parameters"},
    {"misaligned", false, false, "address is no multiple of the access size"},
    {"write-param", false, false, "store to a kernel parameter"},
    {"uninit-shared", false, false, "read of shared memory nobody has written"},
    {"uninit-global", false, false, "read of cudaMalloc memory nobody has written"},
    {"note-undef-reg", false, true, "read of a register no instruction has written"},
    {"race-shared", false, false,
     "shared accesses of two threads with no barrier or fence chain between"},
    {"race-global", false, false,
     "plain global accesses of two blocks with no fence chain between, or of two threads of a "
     "block with no barrier either"},
    {"race-global-mixed", false, false, "as race-global, one side volatile or atomic"},
    {"pdl-unordered", false, false,
     "access to data of an overlapping earlier launch before griddepcontrol.wait"},
    {"shfl-inactive-source", false, false, "shuffle reads a lane that does not take part"},
    {"mask-without-self", false, false, "a lane executes a collective whose mask lacks it"},
    {"mask-names-exited-lane", false, false, "a collective's mask names a lane that has exited"},
    {"barrier-divergent", false, false, "threads meet at different barrier instructions"},
    {"barrier-after-exit", false, false, "some threads exited before the barrier"},
    {"barrier-invalid", true, false, "mbarrier used before init or beyond its count"},
    {"deadlock", true, false, "no lane can go on"},
    {"livelock", true, false, "lanes run, but nothing changes any more"},
    {"trap", true, false, "trap or failed assert"},
    {"brx-range", true, false, "index outside the branch table"},
    {"hang", true, false, "instruction limit reached (maxinsn)"},
    {"timeout", true, false, "wall-clock limit reached (maxseconds)"},
    {"bad-free", false, false, "free of an address that is no live allocation"},
};
}

const FaultInfo &faultInfo(Fault fault) { return faultTable[size_t(fault)]; }

void Reporter::add(Fault fault, const std::string &scope, uint64_t place, uint32_t variant,
                   const std::function<std::string()> &text) {
  const FaultInfo &info = faultInfo(fault);
  fatalSeen |= info.fatal;
  auto inserted = indexOf.insert({{fault, scope, place, variant}, reports.size()});
  if (inserted.second)
    reports.push_back({info.kind, info.kind + (": " + text()), 0, info.fatal, info.note});
  reports[inserted.first->second].count++;
}

void Reporter::clear() {
  indexOf.clear();
  reports.clear();
}

} // namespace ptxrun
