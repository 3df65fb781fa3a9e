// What can be reported, and the collection of what was.
// Knows nothing of instructions or memory: callers say who, where and why.
//
// A fault is met by one lane after the other, by one warp after the other, in every instruction of
// an unrolled loop.  All of it at one source line is one report: the first words, the lanes of the
// first warp with the range of their addresses, and how many more there were in that launch.
#pragma once
#include "../include/ptxrun.hpp"
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <unordered_set>
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

// "3 reports (2 race-shared, 1 trap), 1 note-undef-reg"; of these only `shown` were printed.
std::string reportCounts(const std::vector<Report> &reports, size_t shown);

struct Span { // what an access touches; bytes 0: it is no access
  uint64_t address = 0;
  uint32_t bytes = 0;
};

struct Witness { // who met it; lanes 0: nobody in particular
  uint32_t block = 0, warp = 0;
  uint32_t lanes = 0;
  Span span = {};
};

struct Finding {                    // in words
  std::string line, what;           // "kernel.cu:12", or empty; what is wrong
  std::string kernel, block;        // their names
  std::vector<std::string> details; // a line each
};

class Reporter {
public:
  // One report per (fault, place, variant); the words are only made the first time.  `place` is any
  // number that names the source line or the instruction; `scope` the kernel.
  void add(Fault fault, const std::string &scope, uint64_t place, uint32_t variant,
           const Witness &witness, const std::function<Finding()> &words);
  void beginLaunch();
  std::vector<Report> list();
  void clear();
  bool fatalSeen = false; // since the launch began

private:
  struct Open { // a report whose text still grows
    Finding finding;
    Witness first;
    uint64_t begin = 0, end = 0;        // of the first warp's accesses
    std::unordered_set<uint64_t> warps; // all of them
  };
  std::map<std::tuple<Fault, std::string, uint64_t, uint32_t>, size_t> indexOf;
  std::vector<Report> reports;
  std::map<size_t, Open> open; // by index in `reports`

  void close();
};

} // namespace ptxrun
