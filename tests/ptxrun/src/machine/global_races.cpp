// The race checks of global memory.
#include "global_races.hpp"
#include <algorithm>

namespace ptxrun {

void GlobalRaces::beginLaunch(Time started, bool overlapsPrevious) {
  const bool previousEnded = !released && firstForNext == start, clockGoesOn = started > start;
  start = started;
  firstOverlapping = overlapsPrevious && !previousEnded && clockGoesOn ? firstForNext : start;
  firstForNext = firstOverlapping;
  released = false;
}

bool GlobalRaces::lanesMayDiffer(uint32_t block, const ThreadOrder &order, uint64_t address,
                                 uint32_t bytes) const {
  for (uint64_t word = address / 4; word <= (address + bytes - 1) / 4; word++) {
    const RaceCell &cell = memory.raceCell(word, 0);
    if (cell.bytesDiffer || (cell.writerBlock == block && cell.writerTime > order.lastBarrier()))
      return true;
  }
  return false;
}

Race::With GlobalRaces::withEarlierLaunch(uint64_t address, uint32_t bytes, bool isWrite) const {
  auto overlaps = [&](Time time) { return time > firstOverlapping && time <= start; };
  if (!overlapsEarlier()) return Race::With::Nothing;
  for (uint64_t at = address; at < address + bytes; at++) {
    const RaceCell &whole = memory.raceCell(at / 4, 0),
                   &cell = whole.bytesDiffer ? memory.raceCell(at / 4, int(at % 4)) : whole;
    if (overlaps(cell.writerTime)) return Race::With::Write;
    if (isWrite && (overlaps(cell.readerTime[0]) || overlaps(cell.readerTime[1])))
      return Race::With::Read;
  }
  return Race::With::Nothing;
}

} // namespace ptxrun
