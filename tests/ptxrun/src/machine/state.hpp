// The state of a running grid: warps, blocks, clusters, and the Context handlers work in.
// Data and trivial access only; the rules are in order.cpp, barrier.cpp, access.cpp.
#pragma once
#include "../isa/instruction.hpp"
#include "memory.hpp"
#include "races.hpp"
#include "random.hpp"
#include <deque>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

namespace ptxrun {

class GlobalRaces;
class StoreBuffers;
struct Block;

struct PendingCopy {            // cp.async: the data arrives when the thread waits for its group
  uint64_t destination, source; // shared offset, global address
  uint32_t bytes, copied;       // the rest is filled with zeros
};
using CopyGroup = std::vector<PendingCopy>;

struct WarpTrips { // round trips to global memory behind each value; filled while counting
  std::vector<uint32_t> registers, predicates;
  uint32_t control = 0, stored = 0;  // behind what issues next; behind what has been stored
  const Instruction *poll = nullptr; // the last trip, if strong; its place, and behind what it was
  uint64_t polled = 0;
  uint32_t pollIssued = 0;
};

struct Warp {
  uint32_t index = 0;
  uint8_t *registers = nullptr;
  LaneMask *predicates = nullptr;
  LaneMask *defined = nullptr; // per register unit: lanes that have been written
  uint32_t pc[warpSize] = {};
  LaneMask live = 0; // not exited; each live lane is in exactly one of the next four
  LaneMask runnable = 0, atCollective = 0, atBarrier = 0, atCluster = 0;
  uint32_t collectiveMask[warpSize] = {};
  uint32_t barrierId[warpSize] = {}, barrierCount[warpSize] = {};
  uint32_t clusterPhase[warpSize] = {}; // the phase in which the lane arrived
  LaneMask afterEarlierLaunches = 0;    // lanes ordered after the launches that may still run
  WarpOrder order;
  WarpTrips trips;
  std::vector<uint8_t> local;                // localBytes per lane
  std::vector<std::deque<CopyGroup>> copies; // per lane; empty until cp.async is used
};

struct BulkCopy { // in flight; completes on an mbarrier
  uint64_t due;
  uint64_t destination, source;
  uint32_t bytes;
  Block *destinationBlock; // nullptr: global
  uint64_t barrier;        // shared offset in destinationBlock
};

struct Cluster {
  std::vector<Block *> blocks; // by rank
  uint32_t arrived = 0, phase = 0, liveThreads = 0, finishedBlocks = 0;
  uint32_t trips = 0; // behind those who have arrived
};

struct Block {
  uint32_t id = 0, rank = 0;
  Dim3 index, rankIndex, clusterIndex;
  std::shared_ptr<Cluster> cluster;
  std::vector<Warp> warps;
  std::vector<uint8_t> shared, sharedInitialised;
  ThreadOrder order;
  SharedRaces races;
  std::unique_ptr<uint64_t[]> registerStorage; // what it holds at first does not matter
  size_t registerWords = 0;
  const Kernel *presetsOf = nullptr; // whose constants its registers hold already,
  size_t presetWarps = 0;            // in so many warps,
  uint64_t presetBase = 0;           // with dynamic shared memory here
  std::vector<LaneMask> predicateStorage, definedStorage;
  uint32_t threads = 0, liveThreads = 0;
  std::map<uint32_t, uint32_t> arrivals; // bar.arrive: barrier -> threads
  std::vector<BulkCopy> bulkCopies;
  bool releasedDependents = false; // griddepcontrol.launch_dependents
};

struct Device { // what outlives a launch
  const Options &options;
  GlobalMemory &memory;
  Reporter &reporter;
  Random random;
  std::vector<std::unique_ptr<Block>> &spare; // blocks that have ended: their memory serves again
};

struct Context {
  Device &device;
  const Options &options;
  Kernel &kernel;
  const LaunchConfig &config;
  std::vector<uint8_t> parameters;
  LaunchOrder &order;
  GlobalRaces &globalRaces;
  StoreBuffers &storeBuffers;
  Totals &totals;
  uint64_t gridWorkspace; // where cooperative_groups keeps its grid barrier; 0: not cooperative
  bool checksAccesses;    // any of the race or initialisation checks is on

  Block *block = nullptr;
  Warp *warp = nullptr;
  uint64_t clock = 0, lastProgress = 0; // in warp instructions
  bool yieldRequested = false;
  std::unordered_map<uint64_t, uint32_t> stored = {}; // trips behind what this launch has stored
  uint32_t longestTrips = 0;                          // of this launch

  template <class T> Lanes<T> read(const RegisterOperand &operand) const {
    Lanes<T> lanes;
    std::memcpy(lanes.v, warp->registers + size_t(operand.index) * registerUnit, sizeof lanes.v);
    return lanes;
  }
  template <class T>
  void write(const RegisterOperand &operand, const Lanes<T> &lanes, LaneMask mask) const {
    if (operand.index == noRegister) return;
    uint8_t *to = warp->registers + size_t(operand.index) * registerUnit;
    if (mask == allLanes)
      std::memcpy(to, lanes.v, sizeof lanes.v);
    else
      forEachLane(mask,
                  [&](int lane) { std::memcpy(to + lane * sizeof(T), &lanes.v[lane], sizeof(T)); });
  }
  template <class T> T readLane(const RegisterOperand &operand, int lane) const {
    T value;
    std::memcpy(&value, warp->registers + size_t(operand.index) * registerUnit + lane * sizeof(T),
                sizeof value);
    return value;
  }
  // As unsigned integers of the register's own width, whatever it is.
  Lanes<uint64_t> readWide(const RegisterOperand &operand) const;
  void writeWide(const RegisterOperand &operand, const Lanes<uint64_t> &lanes, LaneMask mask) const;

  LaneMask predicate(PredicateIndex index) const { return warp->predicates[index]; }
  void setPredicate(PredicateIndex index, LaneMask value, LaneMask mask) const {
    if (index != noPredicate)
      warp->predicates[index] = (warp->predicates[index] & ~mask) | (value & mask);
  }
  LaneMask sourcePredicate(const Instruction &i) const {
    return predicate(i.predicateSource) ^ (i.predicateSourceNegated ? allLanes : 0);
  }

  void madeProgress() { lastProgress = clock; }
  void enter(Block &b, Warp &w) {
    block = &b;
    warp = &w;
  }
  // `what` makes the words and is only called for the first fault of its kind at this source line.
  template <class F>
  void report(const Instruction &i, int lane, Fault fault, Span span, F &&what,
              uint32_t variant = 0) const {
    reportFor(i, {block->id, warp->index, laneBit(lane), span}, fault, variant, what);
  }
  template <class F> void report(const Instruction &i, int lane, Fault fault, F &&what) const {
    report(i, lane, fault, Span(), what);
  }
  template <class F>
  void reportLanes(const Instruction &i, LaneMask lanes, Fault fault, F &&what) const {
    reportFor(i, {block->id, warp->index, lanes, {}}, fault, 0, what);
  }
  void reportFor(const Instruction &, const Witness &, Fault, uint32_t variant,
                 const std::function<std::string()> &what) const;
};

} // namespace ptxrun
