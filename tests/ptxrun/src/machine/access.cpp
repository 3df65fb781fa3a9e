// One lane's memory access: from an address to bytes, and every check that belongs to it.
#include "access.hpp"
#include "global_races.hpp"
#include "store_buffer.hpp"
#include <algorithm>

namespace ptxrun {

namespace {

const char *verb(AccessKind kind) {
  static const char *const verbs[] = {"read", "write", "atomic update"};
  return verbs[size_t(kind)];
}

std::string sized(AccessKind kind, uint32_t bytes) {
  return std::string(verb(kind)) + " of " + std::to_string(bytes) + " bytes at ";
}

Space spaceOfGeneric(uint64_t &address) {
  uint64_t window = address & windowMask;
  Space space = window == sharedWindow      ? Space::Shared
                : window == localWindow     ? Space::Local
                : window == parameterWindow ? Space::Parameter
                                            : Space::Global;
  if (space != Space::Global) address -= window;
  return space;
}

bool locateShared(Context &c, const Instruction &i, int lane, uint64_t address, uint32_t bytes,
                  AccessKind kind, Place &place) {
  uint32_t rank = uint32_t(address) >> sharedRankShift;
  uint64_t offset = address & sharedOffsetMask;
  const auto &peers = c.block->cluster->blocks;
  Block *owner = rank == 0 ? c.block : rank <= peers.size() ? peers[rank - 1] : nullptr;
  if (!owner || offset + bytes > owner->shared.size()) {
    c.report(
        i, lane, Fault::OutOfBoundsShared, {address, bytes},
        [&] {
          if (!owner)
            return sized(kind, bytes) + "shared memory of cluster rank " +
                   std::to_string(rank - 1) + ", which has exited or does not exist";
          return sized(kind, bytes) + "shared+" + hex(offset) + ", block has " +
                 std::to_string(owner->shared.size());
        },
        uint32_t(kind));
    return false;
  }
  place.owner = owner;
  place.address = offset;
  place.bytes = owner->shared.data() + offset;
  return true;
}

bool locateGlobal(Context &c, const Instruction &i, int lane, uint64_t address, uint32_t bytes,
                  AccessKind kind, Place &place) {
  Allocation *found = i.lastAllocation;
  if (!found || !found->holds(address, bytes))
    i.lastAllocation = found = c.device.memory.find(address);
  if (!found || !found->holds(address, bytes)) {
    c.report(
        i, lane, Fault::OutOfBoundsGlobal, {address, bytes},
        [&] {
          return sized(kind, bytes) + hex(address) + ": " + c.device.memory.describe(address);
        },
        uint32_t(kind));
    return false;
  }
  place.allocation = found;
  place.address = address;
  place.bytes = reinterpret_cast<uint8_t *>(address);
  return true;
}

} // namespace

bool locateAnywhere(Context &c, const Instruction &i, int lane, Space space, uint64_t address,
                    uint32_t bytes, AccessKind kind, Place &place, uint32_t alignment) {
  if (space == Space::Generic) space = spaceOfGeneric(address);
  place.space = space;
  if (!alignment) alignment = bytes;
  if (address & (alignment - 1)) {
    c.report(i, lane, Fault::Misaligned, {address, bytes},
             [&] { return std::to_string(alignment) + "-byte aligned access at " + hex(address); });
    return false;
  }
  auto window = [&](Fault fault, uint8_t *base, uint64_t size) {
    if (address > size || bytes > size - address) {
      c.report(
          i, lane, fault, {address, bytes},
          [&] {
            return sized(kind, bytes) + "offset " + hex(address) + " of " + std::to_string(size);
          },
          uint32_t(kind));
      return false;
    }
    place.address = address;
    place.bytes = base + address;
    return true;
  };
  uint64_t localBytes = c.kernel.info.localBytes;
  switch (space) {
  case Space::Shared: return locateShared(c, i, lane, address, bytes, kind, place);
  case Space::Local:
    return window(Fault::OutOfBoundsLocal, c.warp->local.data() + uint64_t(lane) * localBytes,
                  localBytes);
  case Space::Parameter:
    return window(Fault::OutOfBoundsParameter, c.parameters.data(), c.parameters.size());
  default:
    place.space = Space::Global;
    return locateGlobal(c, i, lane, address, bytes, kind, place);
  }
}

// ---- checks

namespace {

Accessor accessor(const Context &c, int lane) {
  Mark me{c.order.now(), c.block->id, uint16_t(c.warp->index * warpSize + uint32_t(lane))};
  return {c.order,
          c.block->order,
          c.warp->order,
          lane,
          me,
          c.order.started(),
          c.block->order.lastBarrier()};
}

// Two lanes of a warp storing the same value to one place is a common and harmless idiom.
bool repeats(Context &c, const Race &race, const Place &place, uint32_t bytes,
             const uint8_t *stored) {
  uint8_t present[maxVectorBytes];
  if (!stored || !race.ownWarpWrote) return false;
  readBytes(c, place, present, bytes);
  return !std::memcmp(present, stored, bytes);
}

void checkSharedRace(Context &c, const Instruction &i, int lane, const Place &place, uint32_t bytes,
                     AccessKind kind, const uint8_t *stored) {
  if (!place.owner->races.enabled() || place.owner != c.block) return; // other blocks: not tracked
  bool isWrite = kind != AccessKind::Read;
  Accessor who = accessor(c, lane);
  who.forgotten = who.lastBarrier; // older marks may be of the block that had this memory before
  Race race = place.owner->races.access(who, place.address, bytes, isWrite, i.strong);
  if (!race || repeats(c, race, place, bytes, stored)) return;
  bool afterWrite = race.with == Race::With::Write;
  c.report(
      i, lane, Fault::RaceShared, {place.address, bytes},
      [&] {
        return std::string(verb(kind)) + " of shared+" + hex(race.at) + " races with " +
               (afterWrite ? "write" : "read") + " by thread " + std::to_string(race.other.thread) +
               " (no barrier between)";
      },
      uint32_t(kind) * 2 + afterWrite);
}

void checkEarlierLaunch(Context &c, const Instruction &i, int lane, const Place &place,
                        uint32_t bytes, AccessKind kind) {
  auto with = c.globalRaces.withEarlierLaunch(place.address, bytes, kind != AccessKind::Read);
  if (with == Race::With::Nothing) return;
  bool afterWrite = with == Race::With::Write;
  c.report(
      i, lane, Fault::UnorderedLaunch, {place.address, bytes},
      [&] {
        return std::string(verb(kind)) + " of '" + place.allocation->name + "'+" +
               std::to_string(place.address - place.allocation->begin) +
               ", which an earlier launch " + (afterWrite ? "writes" : "reads") +
               ", before griddepcontrol.wait";
      },
      uint32_t(kind) * 2 + afterWrite);
}

void checkGlobalRace(Context &c, const Instruction &i, int lane, const Place &place, uint32_t bytes,
                     AccessKind kind, const uint8_t *stored) {
  if (!hasLane(c.warp->afterEarlierLaunches, lane))
    checkEarlierLaunch(c, i, lane, place, bytes, kind);
  Race race = c.globalRaces.access(accessor(c, lane), place.address, bytes,
                                   kind != AccessKind::Read, i.strong);
  if (!race || repeats(c, race, place, bytes, stored)) return;
  bool afterWrite = race.with == Race::With::Write, sameBlock = race.other.block == c.block->id;
  c.report(
      i, lane, race.mixed ? Fault::RaceGlobalMixed : Fault::RaceGlobal, {place.address, bytes},
      [&] {
        return std::string(verb(kind)) + " of '" + place.allocation->name + "'+" +
               std::to_string(int64_t(race.at - place.allocation->begin)) + " unordered with " +
               (afterWrite ? "write" : "read") + " by " +
               (sameBlock ? "thread " + std::to_string(race.other.thread) + " of the same block"
                          : "block " + std::to_string(race.other.block)) +
               (race.mixed ? " (one side volatile or atomic)" : "");
      },
      uint32_t(kind) * 4 + afterWrite * 2 + sameBlock);
}

// All four, or eight, flags at a time where they can be.
bool allSet(const uint8_t *flags, uint32_t bytes) {
  uint64_t words[2];
  if (bytes == 4) {
    uint32_t word;
    std::memcpy(&word, flags, sizeof word);
    return word == 0x01010101;
  }
  if (bytes != 8 && bytes != 16) return !std::memchr(flags, 0, bytes);
  std::memcpy(words, flags, bytes);
  return words[0] == 0x0101010101010101 && words[bytes / 8 - 1] == 0x0101010101010101;
}

void checkInitialised(Context &c, const Instruction &i, int lane, const Place &place,
                      uint32_t bytes, AccessKind kind) {
  if (place.space == Space::Shared) {
    const auto &flags = place.owner->sharedInitialised;
    if (allSet(&flags[place.address], bytes)) return;
    if (const void *hole = std::memchr(&flags[place.address], 0, bytes))
      c.report(i, lane, Fault::UninitialisedShared, {place.address, bytes}, [&] {
        return std::string(verb(kind)) + " of uninitialised shared+" +
               hex(uint64_t(static_cast<const uint8_t *>(hole) - flags.data()));
      });
  } else if (place.space == Space::Global && place.allocation->trackInitialised) {
    if (allSet(c.device.memory.initialisedAt(place.address), bytes)) return;
    uint64_t hole = c.device.memory.firstUninitialised(place.address, bytes);
    if (hole < bytes)
      c.report(i, lane, Fault::UninitialisedGlobal, {place.address, bytes}, [&] {
        return std::string(verb(kind)) + " of uninitialised '" + place.allocation->name + "'+" +
               std::to_string(place.address + hole - place.allocation->begin);
      });
  }
}

// Calls visit for every word that carries what fences published.
template <class Visit> void forEachWord(const Place &place, uint32_t bytes, Visit visit) {
  uint64_t window = place.space == Space::Shared ? sharedWindow : 0;
  for (uint64_t word = place.address / 4; word <= (place.address + bytes - 1) / 4; word++)
    visit(window | word);
}

bool carriesOrder(const Context &c, const Place &place) {
  return place.space == Space::Global ? c.options.globalRaces
                                      : place.space == Space::Shared && place.owner == c.block;
}

void publish(Context &c, int lane, const Place &place, uint32_t bytes, AccessKind kind) {
  if (!carriesOrder(c, place)) return;
  // Other bytes of a word may be flags of their own.
  bool goesOn = kind == AccessKind::Atomic || place.address % 4 || bytes % 4;
  forEachWord(place, bytes, [&](uint64_t word) {
    if (place.space == Space::Global) c.order.strongWrite(c.block->id, word, goesOn);
    c.block->order.strongWrite(c.warp->order, lane, word, goesOn);
  });
}

} // namespace

void collect(Context &c, const Instruction &i, int lane, const Place &place, uint32_t bytes) {
  if (!i.strong || !carriesOrder(c, place)) return;
  forEachWord(place, bytes, [&](uint64_t word) {
    Time byOthers = place.space == Space::Global ? c.order.strongRead(c.block->id, word) : 0;
    c.block->order.strongRead(c.warp->order, lane, word, byOthers);
  });
  if (!i.acquire) return;
  if (place.space == Space::Global) c.order.acquire(c.block->id);
  c.block->order.acquire(c.warp->order, lane);
}

void checkRead(Context &c, const Instruction &i, int lane, const Place &place, uint32_t bytes,
               AccessKind kind) {
  if (!c.checksAccesses) return;
  if (c.options.uninitialised) checkInitialised(c, i, lane, place, bytes, kind);
  if (i.strong) collect(c, i, lane, place, bytes);
  if (kind != AccessKind::Read) return;
  if (place.space == Space::Shared)
    checkSharedRace(c, i, lane, place, bytes, kind, nullptr);
  else if (place.space == Space::Global && c.options.globalRaces)
    checkGlobalRace(c, i, lane, place, bytes, kind, nullptr);
}

void checkWrite(Context &c, const Instruction &i, int lane, const Place &place, uint32_t bytes,
                AccessKind kind, const uint8_t *stored) {
  if (place.space == Space::Shared) {
    checkSharedRace(c, i, lane, place, bytes, kind, stored);
    std::memset(&place.owner->sharedInitialised[place.address], 1, bytes);
  } else if (place.space == Space::Global) {
    c.device.memory.markInitialised(*place.allocation, place.address, bytes);
    if (c.options.globalRaces) checkGlobalRace(c, i, lane, place, bytes, kind, stored);
  }
  if (i.strong && c.checksAccesses) publish(c, lane, place, bytes, kind);
}

void fence(Context &c, LaneMask mask, bool deviceWide) {
  if (deviceWide && c.options.weakMemory) c.storeBuffers.flush(c.block->id);
  if (deviceWide && c.options.globalRaces) c.order.fence(c.block->id);
  if (c.checksAccesses) c.block->order.fence(c.warp->order, c.warp->index, mask);
}

void readBytes(Context &c, const Place &place, uint8_t *to, uint32_t bytes) {
  std::memcpy(to, place.bytes, bytes);
  if (c.options.weakMemory && place.space == Space::Global && !c.storeBuffers.empty())
    c.storeBuffers.forward(c.block->id, place.address, to, bytes);
}

void writeBytes(Context &c, const Place &place, const uint8_t *from, uint32_t bytes) {
  if (c.options.weakMemory && place.space == Space::Global)
    c.storeBuffers.store(c.block->id, place.address, from, bytes, c.clock, c.device.random);
  else
    std::memcpy(place.bytes, from, bytes);
}

Lanes<uint64_t> effectiveAddresses(const Context &c, const Instruction &i, int sourceIndex,
                                   int64_t offset) {
  Lanes<uint64_t> addresses = c.readWide(i.source[sourceIndex]);
  for (uint64_t &address : addresses.v) address += uint64_t(offset);
  return addresses;
}

// ---- counts

namespace {

// A warp's shared access is served in groups of lanes that move 128 bytes; a group takes as many
// cycles as the busiest bank has different words.
void countBanks(Context &c, LaneMask mask, const Lanes<uint64_t> &addresses, uint32_t bytes,
                Profile &profile) {
  uint32_t lanesPerGroup = bytes <= 4 ? warpSize : 128 / bytes,
           wordsPerLane = std::max(bytes / 4, 1u);
  for (uint32_t group = 0; group < warpSize; group += lanesPerGroup) {
    std::vector<uint32_t> words;
    for (uint32_t lane = group; lane < group + lanesPerGroup; lane++)
      for (uint32_t k = 0; hasLane(mask, int(lane)) && k < wordsPerLane; k++)
        words.push_back(uint32_t(addresses[int(lane)] / 4) + k);
    if (words.empty()) continue;
    std::sort(words.begin(), words.end());
    words.erase(std::unique(words.begin(), words.end()), words.end());
    uint32_t perBank[32] = {}, busiest = 0;
    for (uint32_t word : words) busiest = std::max(busiest, ++perBank[word % 32]);
    profile.actual += busiest;
    profile.ideal++;
    c.totals.bankConflicts += busiest - 1;
  }
  c.totals.sharedAccesses++;
}

uint64_t countSectors(LaneMask mask, const Lanes<uint64_t> &addresses, uint32_t bytes) {
  constexpr uint64_t sectorBytes = 32;
  std::vector<uint64_t> sectors;
  forEachLane(mask, [&](int lane) {
    for (uint64_t s = addresses[lane] / sectorBytes;
         s <= (addresses[lane] + bytes - 1) / sectorBytes; s++)
      sectors.push_back(s);
  });
  std::sort(sectors.begin(), sectors.end());
  return uint64_t(std::unique(sectors.begin(), sectors.end()) - sectors.begin());
}

} // namespace

void countAccess(Context &c, const Instruction &i, LaneMask mask, const Lanes<uint64_t> &addresses,
                 uint32_t bytes, AccessKind kind) {
  Profile &profile = c.kernel.profile[size_t(&i - c.kernel.code.data())];
  Space space = i.space;
  Lanes<uint64_t> offsets = addresses;
  if (space == Space::Generic) { // judged by the first lane
    uint64_t address = addresses[firstLane(mask)];
    space = spaceOfGeneric(address);
  }
  if (space == Space::Shared) return countBanks(c, mask, offsets, bytes, profile);
  if (space != Space::Global) return;
  uint64_t total = uint64_t(countLanes(mask)) * bytes,
           sectors = countSectors(mask, addresses, bytes);
  uint64_t ideal = (total + 31) / 32;
  profile.actual += sectors;
  profile.ideal += ideal;
  c.totals.idealSectors += ideal;
  uint64_t Totals::*sectorTotals[] = {&Totals::loadSectors, &Totals::storeSectors,
                                      &Totals::atomicSectors};
  uint64_t Totals::*byteTotals[] = {&Totals::loadBytes, &Totals::storeBytes, &Totals::atomicBytes};
  uint64_t Totals::*requestTotals[] = {&Totals::loadRequests, &Totals::storeRequests,
                                       &Totals::atomicRequests};
  c.totals.*requestTotals[size_t(kind)] += 1;
  c.totals.*sectorTotals[size_t(kind)] += sectors;
  c.totals.*byteTotals[size_t(kind)] += total;
}

} // namespace ptxrun
