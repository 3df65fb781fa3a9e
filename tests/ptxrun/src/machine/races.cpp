// The race check of one word.
#include "races.hpp"

namespace ptxrun {

static_assert(sizeof(RaceCell) == 32, "README.md says how much memory the checks take");

bool Accessor::learntOf(const Mark &mark) const {
  if (mark.block != me.block) return launch.knows(me.block, mark);
  const Known *known = block.knownTo(warp, lane);
  return known && mark.time <= known->of(mark.thread);
}

void RaceCell::report(Race &race, Race::With with, const Mark &other, bool mixed, uint64_t at,
                      const Accessor &who) const {
  if (race) return;
  race.with = with;
  race.at = at;
  race.other = other;
  race.mixed = mixed;
  race.ownWarpWrote = writerTime > who.lastBarrier && who.isOwnWarp(writerMark());
}

void RaceCell::read(const Accessor &who, bool strong, uint64_t at, Race &race) {
  if (!who.surelyFollows(writerMark()) && !(strong && writerStrong) && !who.follows(writerMark()))
    report(race, Race::With::Write, writerMark(), strong || writerStrong, at, who);
  int slot = 0;
  if (!who.surelyFollows(readerMark(0))) {
    // A second reader of a foreign warp rather than one more of this warp.
    if (who.isOwnWarp(readerMark(0)) && !who.isOwnWarp(readerMark(1)) &&
        !who.surelyFollows(readerMark(1)))
      return;
    slot = 1;
  }
  readerTime[slot] = who.me.time;
  readerBlock[slot] = who.me.block;
  reader[slot] = who.me.thread;
  if (slot)
    secondReaderStrong = strong;
  else
    firstReaderStrong = strong;
}

void RaceCell::write(const Accessor &who, bool strong, uint64_t at, Race &race) {
  auto check = [&](Race::With with, const Mark &other, bool otherStrong) {
    if (!who.surelyFollows(other) && !(strong && otherStrong) && !who.follows(other))
      report(race, with, other, strong || otherStrong, at, who);
  };
  check(Race::With::Write, writerMark(), writerStrong);
  check(Race::With::Read, readerMark(0), firstReaderStrong);
  check(Race::With::Read, readerMark(1), secondReaderStrong);
  writerTime = who.me.time;
  writerBlock = who.me.block;
  writer = who.me.thread;
  writerStrong = strong;
  readerTime[0] = readerTime[1] = 0;
}

void RaceCell::forget(Time upTo) {
  if (writerTime <= upTo) writerTime = writerBlock = writer = writerStrong = 0;
  if (readerTime[0] <= upTo) readerTime[0] = readerBlock[0] = reader[0] = firstReaderStrong = 0;
  if (readerTime[1] <= upTo) readerTime[1] = readerBlock[1] = reader[1] = secondReaderStrong = 0;
}

bool RaceCell::sameAs(const RaceCell &other) const {
  return !std::memcmp(this, &other, offsetof(RaceCell, bytesDiffer));
}

} // namespace ptxrun
