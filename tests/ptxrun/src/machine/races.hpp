// The race check of one word, for shared and for global memory: what is remembered of its accesses,
// and which of them race.  Two accesses race when neither comes after the other (order.hpp), one of
// them writes, and one is neither volatile nor atomic.
#pragma once
#include "order.hpp"
#include <cstddef>

namespace ptxrun {

struct Accessor { // one lane, now
  const LaunchOrder &launch;
  const ThreadOrder &block;
  const WarpOrder &warp;
  int lane;
  Mark me;
  Time forgotten;   // marks up to then do not count
  Time lastBarrier; // of the block

  uint32_t warpIndex() const { return me.thread / warpSize; }
  bool isOwnWarp(const Mark &mark) const {
    return mark.block == me.block && mark.thread / warpSize == warpIndex();
  }
  // Does the access come after the mark?  The first answers most often, and may miss a yes.
  bool surelyFollows(const Mark &mark) const {
    if (mark.time <= forgotten) return true;
    if (mark.block != me.block) return false;
    return mark.time <= lastBarrier || mark.thread == me.thread ||
           (mark.thread / warpSize == warpIndex() &&
            mark.time <= warp.seen[lane][mark.thread % warpSize]);
  }
  bool follows(const Mark &mark) const { return surelyFollows(mark) || learntOf(mark); }

private:
  bool learntOf(const Mark &) const;
};

struct Race {
  enum class With : uint8_t { Nothing, Write, Read };
  With with = With::Nothing;
  uint64_t at = 0; // address or offset
  Mark other{};
  bool mixed = false;        // one side volatile or atomic
  bool ownWarpWrote = false; // the last before this access, and since the last barrier
  explicit operator bool() const { return with != With::Nothing; }
};

// 32 bytes: one for each word, and one for each of its bytes once these have been accessed alone.
struct RaceCell {
  Time writerTime, readerTime[2]; // two readers, so that one of another warp is not lost
  uint32_t writerBlock, readerBlock[2];
  uint16_t writer, reader[2];
  bool writerStrong : 1, firstReaderStrong : 1, secondReaderStrong : 1;
  bool bytesDiffer; // in the cell of the word, which is that of its first byte

  Mark writerMark() const { return {writerTime, writerBlock, writer}; }
  Mark readerMark(int k) const { return {readerTime[k], readerBlock[k], reader[k]}; }
  void read(const Accessor &, bool strong, uint64_t at, Race &);
  void write(const Accessor &, bool strong, uint64_t at, Race &);
  void access(const Accessor &who, bool isWrite, bool strong, uint64_t at, Race &race) {
    isWrite ? write(who, strong, at, race) : read(who, strong, at, race);
  }
  void forget(Time upTo);
  bool sameAs(const RaceCell &other) const;

private:
  void report(Race &, Race::With, const Mark &, bool mixed, uint64_t at, const Accessor &) const;
};

// One byte, or some of a word whose bytes differ.
template <class CellOf>
void accessSomeBytes(const Accessor &who, uint64_t begin, uint64_t end, bool isWrite, bool strong,
                     Race &race, CellOf &&cellOf) {
  uint64_t word = begin / 4;
  RaceCell &first = cellOf(word, 0);
  for (int k = 1; k < 4 && !first.bytesDiffer; k++) cellOf(word, k) = first;
  first.bytesDiffer = true;
  for (uint64_t at = begin; at < end; at++)
    cellOf(word, int(at % 4)).access(who, isWrite, strong, at, race);
  if (end - begin < 4) return;
  bool same = true;
  first.forget(who.forgotten);
  for (int k = 1; k < 4; k++) {
    RaceCell &other = cellOf(word, k);
    other.forget(who.forgotten);
    same &= other.sameAs(first);
  }
  first.bytesDiffer = !same;
}

// Records an access and says with what it races first.  cellOf(word, k): that of its byte k.
template <class CellOf>
Race accessCells(const Accessor &who, uint64_t begin, uint32_t bytes, bool isWrite, bool strong,
                 CellOf &&cellOf) {
  Race race;
  const uint64_t end = begin + bytes;
  for (uint64_t at = begin; at < end;) {
    uint64_t next = at / 4 * 4 + 4;
    if (next > end) next = end;
    RaceCell &cell = cellOf(at / 4, 0);
    if (next - at == 4 && !cell.bytesDiffer)
      cell.access(who, isWrite, strong, at, race);
    else
      accessSomeBytes(who, at, next, isWrite, strong, race, cellOf);
    at = next;
  }
  return race;
}

class SharedRaces { // the cells of a block's shared memory
public:
  void reset(uint64_t bytes) { // 0 turns the check off
    uint64_t wanted = roundUp(bytes, 4);
    if (cells.size() != wanted) cells.assign(wanted, RaceCell{});
  }
  bool enabled() const { return !cells.empty(); }
  Race access(const Accessor &who, uint64_t offset, uint32_t bytes, bool isWrite, bool strong) {
    return accessCells(
        who, offset, bytes, isWrite, strong,
        [&](uint64_t word, int k) -> RaceCell & { return cells[word * 4 + size_t(k)]; });
  }

private:
  std::vector<RaceCell> cells; // by byte
};

} // namespace ptxrun
