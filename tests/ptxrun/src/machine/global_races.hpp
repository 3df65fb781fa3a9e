// Race check of global memory between blocks.
//
// Every block has a vector clock.  A fence publishes the block's clock; a strong write (volatile,
// atomic, release) carries the published clock to its address; a strong read collects it, and the
// reader's next fence takes it over.  Two accesses of different blocks race when neither clock
// covers the other and at least one is a plain write against anything, or a plain read against a
// write.  Inside one block everything counts as ordered (shared_races.hpp is about threads).
//
// A programmatic dependent launch may run while the launch before it does, if that one lets its
// dependents start, and, when it does so before it waits itself, while still older ones do.  Until
// a thread has waited, it must not touch what these launches wrote, nor write what they read.
#pragma once
#include "memory.hpp"
#include <unordered_map>
#include <vector>

namespace ptxrun {

class GlobalRaces {
public:
  enum class Conflict : uint8_t { None, WriteBefore, ReadBefore };
  struct Result {
    Conflict conflict = Conflict::None;
    uint64_t address = 0;
    uint32_t otherBlock = 0;
    bool mixed = false; // one side strong
  };

  explicit GlobalRaces(const GlobalMemory &globalMemory) : memory(globalMemory) {}
  void beginLaunch(uint32_t blocks, bool overlapsPrevious);
  Result access(uint32_t block, uint64_t address, uint32_t bytes, bool isWrite, bool strong);
  void fence(uint32_t block);
  void strongRead(uint32_t block, uint64_t address);
  void strongWrite(uint32_t block, uint64_t address, bool readModifyWrite);
  void acquire(uint32_t block); // what strong reads collected becomes known

  bool overlapsEarlier() const { return firstOverlapping < launch; }
  Conflict withEarlierLaunch(uint64_t address, uint32_t bytes, bool isWrite) const;
  void releases() { released = true; } // some block lets dependents start before it ends
  void waitsBeforeRelease() { firstForNext = launch; } // some block did: older launches are done

private:
  using Clock = std::vector<uint32_t>;
  struct BlockClocks {
    Clock known, published, collected;
    uint32_t own = 1;
  };
  static void join(Clock &into, const Clock &from);
  bool knows(const BlockClocks &, uint32_t block, uint32_t clock) const;
  const GlobalMemory &memory;
  uint32_t launch = 0;
  uint32_t firstOverlapping = 0; // the oldest launch that may still run; `launch`: none
  uint32_t firstForNext = 0;     // the same for the next launch, if it overlaps
  bool released = false;
  std::vector<BlockClocks> blocks;
  std::unordered_map<uint64_t, Clock> carried; // by address / 4
};

} // namespace ptxrun
