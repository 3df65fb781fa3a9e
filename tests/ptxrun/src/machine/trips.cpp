// The longest chain of dependent round trips to global memory.
#include "trips.hpp"
#include "access.hpp"
#include <algorithm>

namespace ptxrun {

namespace trips {

namespace {

// Bytes of memory that share a depth. In shared memory a warp that is ahead writes what is next to
// something that another has still to read, so there it is a word.
constexpr uint64_t globalGranule = 16, sharedGranule = 4;

// Of the value, not of its place, where something else may have been.
const Values &valuesOf(const Context &c, const Instruction &i) {
  return c.kernel.values[size_t(&i - c.kernel.code.data())];
}

uint32_t registersOf(const Context &c, const Instruction &i, int first) {
  uint32_t depth = 0;
  for (int k = first; k < i.sources; k++)
    if (i.source[k].index != noRegister)
      depth = std::max(depth, c.warp->trips.registers[valuesOf(c, i).source[k]]);
  return depth;
}

uint32_t predicatesOf(const Context &c, const Instruction &i) {
  uint32_t depth = 0;
  for (PredicateIndex p : valuesOf(c, i).predicateSource)
    if (p != noPredicate) depth = std::max(depth, c.warp->trips.predicates[p]);
  return depth;
}

// Lanes that do not write keep what they had, and a guard decides which these are.
void writeResults(Context &c, const Instruction &i, LaneMask active, uint32_t depth) {
  WarpTrips &trips = c.warp->trips;
  const bool all = active == c.warp->live;
  auto put = [&](uint32_t &at) { at = all ? depth : std::max(at, depth); };
  for (int k = 0; k < i.destinations; k++)
    if (i.destination[k].index != noRegister) put(trips.registers[valuesOf(c, i).destination[k]]);
  for (PredicateIndex p : valuesOf(c, i).predicateDestination)
    if (p != noPredicate) put(trips.predicates[p]);
}

struct Words { // that the lanes of an access touch, as places of one map
  Context &c;
  const Instruction &i;
  LaneMask mask;
  bool global = false, shared = false;
  Lanes<uint64_t> addresses;
  uint32_t bytes;

  Words(Context &context, const Instruction &instruction, LaneMask active)
      : c(context), i(instruction), mask(active),
        addresses(effectiveAddresses(context, instruction, 0, instruction.offset)),
        bytes(bytesOf(instruction.type) * instruction.vector) {
    uint64_t window = addresses[firstLane(mask)] & windowMask; // judged by the first lane
    bool generic = i.space == Space::Generic;
    shared = i.space == Space::Shared || (generic && window == sharedWindow);
    global = i.space == Space::Global || (generic && window == 0);
  }
  // Shared memory of another block of the cluster is that of its own rank; ours is rank 0.
  template <class Visit> void each(Visit visit) const {
    forEachLane(mask, [&](int lane) {
      uint64_t address = addresses[lane], first = address & ~windowMask;
      if (shared) {
        uint32_t rank = uint32_t(address) >> sharedRankShift;
        uint64_t block = rank ? c.block->id - c.block->rank + rank - 1 : c.block->id;
        first = sharedWindow | block << 32 | (address & sharedOffsetMask);
      }
      const uint64_t granule = shared ? sharedGranule : globalGranule, last = first + bytes - 1;
      for (uint64_t at = first / granule; at <= last / granule; at++) visit(shared ? ~at : at);
    });
  }
  uint32_t read() const {
    uint32_t depth = 0;
    if (!c.stored.empty() && (shared || global))
      each([&](uint64_t at) {
        auto found = c.stored.find(at);
        if (found != c.stored.end()) depth = std::max(depth, found->second);
      });
    return depth;
  }
  void write(uint32_t depth) const {
    if (depth && (shared || global))
      each([&](uint64_t at) {
        uint32_t &there = c.stored[at];
        there = std::max(there, depth);
      });
  }
};

void access(Context &c, const Instruction &i, LaneMask active) {
  WarpTrips &trips = c.warp->trips;
  Words words(c, i, active);
  uint32_t asked = std::max(trips.registers[valuesOf(c, i).source[0]], predicatesOf(c, i));
  uint32_t issued = std::max(asked, trips.control), depth = registersOf(c, i, 1);
  if (i.memory != Memory::Store && words.global) {
    const uint64_t place = words.addresses[firstLane(active)];
    if (i.strong && trips.poll == &i && trips.polled == place) // again: it has waited all the while
      issued = trips.pollIssued;
    trips.poll = i.strong ? &i : nullptr, trips.polled = place, trips.pollIssued = issued;
  }
  if (i.memory != Memory::Store) {
    uint32_t there = words.read(); // of what this launch has stored
    uint32_t result = std::max(words.global ? issued : asked, there) + words.global;
    if (i.memory == Memory::Atomic) result = std::max(result, depth + words.global);
    if (words.global) {
      uint64_t &longest = c.kernel.profile[size_t(&i - c.kernel.code.data())].trips;
      longest = std::max<uint64_t>(longest, result);
      c.longestTrips = std::max(c.longestTrips, result);
    }
    writeResults(c, i, active, result);
  }
  if (i.memory == Memory::Load) return;
  depth = std::max(depth, issued);
  // An atomic may announce whatever was stored before it.
  words.write(i.strong ? std::max(depth, trips.stored) : depth);
  trips.stored = std::max(trips.stored, depth);
}

} // namespace

void startWarp(const Context &c, Warp &warp) {
  warp.trips.registers.assign(c.kernel.registerValues, 0);
  warp.trips.predicates.assign(c.kernel.predicateValues, 0);
  warp.trips.control = warp.trips.stored = 0;
}

void step(Context &c, const Instruction &i, LaneMask active) {
  WarpTrips &trips = c.warp->trips;
  if (i.memory != Memory::None && active) return access(c, i, active);
  uint32_t depth = std::max(registersOf(c, i, 0), predicatesOf(c, i));
  if (i.flow == Flow::Branch || i.flow == Flow::BranchTable || i.flow == Flow::Exit)
    trips.control = std::max(trips.control, depth);
  if (i.flow == Flow::Barrier) trips.stored = std::max(trips.stored, depth); // a vote is told
  if (i.flow == Flow::ClusterWait) passClusterBarrier(*c.block, *c.warp);
  if (i.arrivesAtCluster)
    c.block->cluster->trips = std::max({c.block->cluster->trips, trips.control, trips.stored});
  writeResults(c, i, active, depth);
}

void passBarrier(Block &block, uint32_t id) {
  uint32_t depth = 0;
  auto eachWaiting = [&](auto visit) {
    for (Warp &warp : block.warps) {
      bool waits = false;
      forEachLane(warp.atBarrier, [&](int lane) { waits |= warp.barrierId[lane] == id; });
      if (waits && !warp.trips.registers.empty()) visit(warp.trips);
    }
  };
  eachWaiting([&](WarpTrips &trips) { depth = std::max({depth, trips.control, trips.stored}); });
  eachWaiting([&](WarpTrips &trips) { trips.control = depth; });
}

void passClusterBarrier(const Block &block, Warp &warp) {
  warp.trips.control = std::max(warp.trips.control, block.cluster->trips);
}

} // namespace trips

} // namespace ptxrun
