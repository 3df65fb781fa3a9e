// What can be reported, and the collection of what was.
// Knows nothing of instructions or memory: callers say who, where and why.
#pragma once
#include "../include/ptxrun.hpp"
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace ptxrun {

enum class Fault : uint8_t {
  OutOfBoundsGlobal,
  OutOfBoundsShared,
  OutOfBoundsLocal,
  OutOfBoundsParameter,
  Misaligned,
  WriteParameter,
  UninitialisedShared,
  UninitialisedGlobal,
  UndefinedRegister,
  RaceShared,
  RaceGlobal,
  RaceGlobalMixed,
  UnorderedLaunch,
  ShuffleInactiveSource,
  MaskWithoutSelf,
  MaskNamesExitedLane,
  BarrierDivergent,
  BarrierAfterExit,
  BarrierInvalid,
  Deadlock,
  Livelock,
  Trap,
  BranchIndex,
  InstructionLimit,
  TimeLimit,
  BadFree
};

struct FaultInfo {
  const char *kind;
  bool fatal; // the launch cannot go on in a meaningful way
  bool note;  // not counted as a fault
  const char *meaning;
};

const FaultInfo &faultInfo(Fault fault);

class Reporter {
public:
  // One report per (fault, place, variant); the text is only made the first time.  `place` is any
  // number that names the instruction or the wait; `scope` the kernel.
  void add(Fault fault, const std::string &scope, uint64_t place, uint32_t variant,
           const std::function<std::string()> &text);
  std::vector<Report> list() const { return reports; }
  void clear();
  bool fatalSeen = false; // since the launch began; the launch loop resets it

private:
  std::map<std::tuple<Fault, std::string, uint64_t, uint32_t>, size_t> indexOf;
  std::vector<Report> reports;
};

} // namespace ptxrun
