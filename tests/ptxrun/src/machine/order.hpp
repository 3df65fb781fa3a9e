// Who lies behind whom: the order between the accesses of a launch's threads.
//
// One clock serves all: whatever orders anything (a launch, a block's start, a completed barrier, a
// __syncwarp, a fence) moves it on, and every access is marked with its thread and the time.  To
// know a thread up to a time is to come after all that it did until then.
//
// Inside a block a completed barrier (or mbarrier phase) makes everything known to everybody.
// __syncwarp joins what its lanes know.  A fence publishes what its thread knows; the thread's next
// strong access (volatile, atomic, release) carries that to an address; a strong read collects it
// there, and the reader's next fence takes it over.  __syncwarp passes all of this on.  Shuffles
// and votes order nothing (as in the CUDA memory model).
//
// Between blocks only fences count, and whole blocks: a fence by any thread publishes what all of
// its block did and knew.
#pragma once
#include "../base.hpp"
#include <memory>
#include <unordered_map>
#include <vector>

namespace ptxrun {

using Time = uint32_t; // 0: before everything

struct Mark { // of an access
  Time time;
  uint32_t block;
  uint16_t thread;
};

// What a thread has learnt of its block from fences.
class Known {
public:
  void join(const Known &other);
  void join(uint32_t warp, const Time *seen); // of its lanes
  Time of(uint32_t thread) const;
  bool empty() const { return warps.empty() && !everybody; }
  Time everybody = 0; // by way of other blocks

private:
  struct OfWarp {
    uint32_t warp;
    Time seen[warpSize];
  };
  std::vector<OfWarp> warps;
};

struct WarpOrder {
  struct Lane {
    Known known, published, collected;
  };
  Time seen[warpSize][warpSize]; // seen[a][b]: up to when lane a knows lane b
  std::unique_ptr<Lane[]> lanes; // none before the warp's first fence or collecting read
  Time since = 0;                // they are from after this barrier, or void
  void reset();
};

class LaunchOrder { // one for all launches: marks outlive them
public:
  // False when the clock has begun anew: then no older mark may be left.
  bool beginLaunch(uint32_t blocks);
  Time started() const { return start; }
  Time now() const { return time; }
  Time pass() { return time == UINT32_MAX ? time : time++; } // the time up to which all lies behind

  // Between blocks.
  bool knows(uint32_t block, const Mark &mark) const;
  void fence(uint32_t block);
  Time strongRead(uint32_t block, uint64_t word); // what others know of this block
  void strongWrite(uint32_t block, uint64_t word, bool goesOn);
  void acquire(uint32_t block); // what strong reads collected becomes known

private:
  using Times = std::vector<Time>; // by block
  struct BlockTimes {
    Times known, published, collected;
  };
  struct Carried {
    Times times;
    uint32_t writer; // the one block whose strong writes these are, or
  };
  static constexpr uint32_t severalWriters = UINT32_MAX;
  static void join(Times &into, const Times &from);
  Time time = 1, start = 0;
  std::vector<BlockTimes> blocks;
  std::unordered_map<uint64_t, Carried> carried; // by word
};

class ThreadOrder { // inside one block
public:
  void reset(LaunchOrder &, uint32_t block);
  void barrier(); // one has completed
  Time lastBarrier() const { return barrierTime; }

  void syncWarp(WarpOrder &, LaneMask);
  void fence(WarpOrder &, uint32_t warp, LaneMask);
  void acquire(WarpOrder &, int lane);
  // `word`: of either space; `byOthers`: see LaunchOrder::strongRead.
  void strongRead(WarpOrder &, int lane, uint64_t word, Time byOthers);
  void strongWrite(const WarpOrder &, int lane, uint64_t word, bool goesOn);

  const Known *knownTo(const WarpOrder &warp, int lane) const {
    return hasLanes(warp) ? &warp.lanes[lane].known : nullptr;
  }

private:
  bool hasLanes(const WarpOrder &warp) const { return warp.lanes && warp.since == barrierTime; }
  WarpOrder::Lane *lanesOf(WarpOrder &);
  LaunchOrder *launch = nullptr;
  uint32_t block = 0;
  Time barrierTime = 0;                        // at first the block's start
  std::unordered_map<uint64_t, Known> carried; // by word; since the last barrier
};

} // namespace ptxrun
