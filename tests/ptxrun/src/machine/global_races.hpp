// The race checks of global memory: of a launch's threads with each other, and with earlier
// launches.
//
// A programmatic dependent launch may run while the launch before it does, if that one lets its
// dependents start, and, when it does so before it waits itself, while still older ones do.  Until
// a thread has waited, it must not touch what these launches wrote, nor write what they read.
#pragma once
#include "memory.hpp"

namespace ptxrun {

class GlobalRaces {
public:
  explicit GlobalRaces(const GlobalMemory &globalMemory) : memory(globalMemory) {}
  void beginLaunch(Time started, bool overlapsPrevious);
  Race access(const Accessor &who, uint64_t address, uint32_t bytes, bool isWrite, bool strong) {
    return accessCells(
        who, address, bytes, isWrite, strong,
        [&](uint64_t word, int k) -> RaceCell & { return memory.raceCell(word, k); });
  }
  // May the lanes of a warp that read these bytes differ in the order after their last writer?
  bool lanesMayDiffer(uint32_t block, const ThreadOrder &, uint64_t address, uint32_t bytes) const;

  bool overlapsEarlier() const { return firstOverlapping < start; }
  Race::With withEarlierLaunch(uint64_t address, uint32_t bytes, bool isWrite) const;
  void releases() { released = true; } // some block lets dependents start before it ends
  void waitsBeforeRelease() { firstForNext = start; } // some block did: older launches are done

private:
  const GlobalMemory &memory;
  Time start = 0;
  Time firstOverlapping = 0; // when the oldest launch that may still run began; `start`: none
  Time firstForNext = 0;     // the same for the next launch, if it overlaps
  bool released = false;
};

} // namespace ptxrun
