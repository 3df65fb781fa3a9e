// Race check of global memory between blocks.
#include "global_races.hpp"
#include <algorithm>

namespace ptxrun {

void GlobalRaces::beginLaunch(uint32_t count, bool overlapsPrevious) {
  const bool previousEnded = !released && firstForNext == launch;
  launch++; // makes every shadow cell of earlier launches void
  firstOverlapping = overlapsPrevious && !previousEnded ? firstForNext : launch;
  firstForNext = firstOverlapping;
  released = false;
  blocks.assign(count, BlockClocks{});
  carried.clear();
}

void GlobalRaces::join(Clock &into, const Clock &from) {
  if (into.size() < from.size()) into.resize(from.size(), 0);
  for (size_t k = 0; k < from.size(); k++) into[k] = std::max(into[k], from[k]);
}

bool GlobalRaces::knows(const BlockClocks &clocks, uint32_t block, uint32_t clock) const {
  return block < clocks.known.size() && clocks.known[block] >= clock;
}

namespace {
// Which bytes of the word at `at` lie in begin..end-1, one bit for each.
uint8_t bytesOfWord(uint64_t at, uint64_t begin, uint64_t end) {
  uint64_t first = begin > at ? begin - at : 0, last = std::min<uint64_t>(end - at, 4);
  return uint8_t((1u << last) - (1u << first));
}
} // namespace

GlobalRaces::Result GlobalRaces::access(uint32_t block, uint64_t address, uint32_t bytes,
                                        bool isWrite, bool strong) {
  Result result;
  const BlockClocks &mine = blocks[block];
  auto check = [&](Conflict kind, uint64_t at, uint32_t other, uint32_t clock, bool otherStrong) {
    if (!other || other == block + 1 || (strong && otherStrong) || knows(mine, other - 1, clock))
      return;
    if (result.conflict == Conflict::None) result = {kind, at, other - 1, strong || otherStrong};
  };
  for (uint64_t at = address & ~uint64_t(3); at < address + bytes; at += 4) {
    GlobalShadow &cell = memory.shadowAt(at);
    uint8_t touched = bytesOfWord(at, address, address + bytes);
    if (cell.launch != launch) cell = {launch, 0, 0, 0, 0, false, false, 0, 0};
    if (touched & cell.writerBytes)
      check(Conflict::WriteBefore, at, cell.writer, cell.writerClock, cell.writerStrong);
    if (isWrite) {
      if (touched & cell.readerBytes)
        check(Conflict::ReadBefore, at, cell.reader, cell.readerClock, cell.readerStrong);
      bool goesOn = cell.writer == block + 1 && cell.writerClock == mine.own;
      cell.writerBytes = uint8_t(touched | (goesOn ? cell.writerBytes : 0));
      cell.writer = block + 1;
      cell.writerClock = mine.own;
      cell.writerStrong = strong;
    } else {
      bool goesOn = cell.reader == block + 1 && cell.readerClock == mine.own;
      cell.readerBytes = uint8_t(touched | (goesOn ? cell.readerBytes : 0));
      cell.reader = block + 1;
      cell.readerClock = mine.own;
      cell.readerStrong = strong;
    }
  }
  return result;
}

GlobalRaces::Conflict GlobalRaces::withEarlierLaunch(uint64_t address, uint32_t bytes,
                                                     bool isWrite) const {
  for (uint64_t at = address & ~uint64_t(3); at < address + bytes; at += 4) {
    const GlobalShadow &cell = memory.shadowAt(at);
    if (cell.launch < firstOverlapping || cell.launch >= launch) continue;
    uint8_t touched = bytesOfWord(at, address, address + bytes);
    if (touched & cell.writerBytes) return Conflict::WriteBefore;
    if (isWrite && touched & cell.readerBytes) return Conflict::ReadBefore;
  }
  return Conflict::None;
}

void GlobalRaces::acquire(uint32_t block) {
  BlockClocks &mine = blocks[block];
  join(mine.known, mine.collected);
  mine.collected.clear();
}

void GlobalRaces::fence(uint32_t block) {
  acquire(block);
  BlockClocks &mine = blocks[block];
  mine.published = mine.known;
  if (mine.published.size() <= block) mine.published.resize(block + 1, 0);
  mine.published[block] = mine.own++;
}

void GlobalRaces::strongRead(uint32_t block, uint64_t address) {
  auto found = carried.find(address / 4);
  if (found != carried.end()) join(blocks[block].collected, found->second);
}

// A read-modify-write continues the release sequence of the value it replaces; a plain strong
// write starts a new one.
void GlobalRaces::strongWrite(uint32_t block, uint64_t address, bool readModifyWrite) {
  const Clock &published = blocks[block].published;
  if (published.empty()) {
    if (!readModifyWrite) carried.erase(address / 4);
  } else if (readModifyWrite)
    join(carried[address / 4], published);
  else
    carried[address / 4] = published;
}

} // namespace ptxrun
