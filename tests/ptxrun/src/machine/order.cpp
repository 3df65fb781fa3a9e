// Who lies behind whom.
#include "order.hpp"
#include <algorithm>
#include <climits>

namespace ptxrun {

// ---- what a thread knows

void Known::join(uint32_t warp, const Time *seen) {
  for (OfWarp &mine : warps)
    if (mine.warp == warp) {
      for (int k = 0; k < warpSize; k++) mine.seen[k] = std::max(mine.seen[k], seen[k]);
      return;
    }
  warps.emplace_back();
  warps.back().warp = warp;
  std::copy(seen, seen + warpSize, warps.back().seen);
}

void Known::join(const Known &other) {
  everybody = std::max(everybody, other.everybody);
  for (const OfWarp &theirs : other.warps) join(theirs.warp, theirs.seen);
}

Time Known::of(uint32_t thread) const {
  for (const OfWarp &one : warps)
    if (one.warp == thread / warpSize) return std::max(everybody, one.seen[thread % warpSize]);
  return everybody;
}

void WarpOrder::reset() {
  for (auto &row : seen) std::fill(row, row + warpSize, 0);
  lanes.reset();
}

// ---- inside a block

void ThreadOrder::reset(LaunchOrder &launchOrder, uint32_t id) {
  launch = &launchOrder;
  block = id;
  barrier();
}

void ThreadOrder::barrier() {
  barrierTime = launch->pass();
  if (!carried.empty()) carried.clear();
}

WarpOrder::Lane *ThreadOrder::lanesOf(WarpOrder &warp) {
  if (!hasLanes(warp)) {
    warp.lanes.reset(new WarpOrder::Lane[warpSize]);
    warp.since = barrierTime;
  }
  return warp.lanes.get();
}

void ThreadOrder::syncWarp(WarpOrder &warp, LaneMask mask) {
  Time joined[warpSize] = {}, now = launch->pass();
  forEachLane(mask, [&](int lane) {
    for (int k = 0; k < warpSize; k++) joined[k] = std::max(joined[k], warp.seen[lane][k]);
  });
  forEachLane(mask, [&](int lane) { joined[lane] = now; });
  forEachLane(mask, [&](int lane) { std::copy(joined, joined + warpSize, warp.seen[lane]); });
  if (!hasLanes(warp)) return;
  for (Known WarpOrder::Lane::*part :
       {&WarpOrder::Lane::known, &WarpOrder::Lane::published, &WarpOrder::Lane::collected}) {
    Known all;
    forEachLane(mask, [&](int lane) { all.join(warp.lanes[lane].*part); });
    if (!all.empty()) forEachLane(mask, [&](int lane) { warp.lanes[lane].*part = all; });
  }
}

void ThreadOrder::fence(WarpOrder &warp, uint32_t index, LaneMask mask) {
  Time now = launch->pass();
  WarpOrder::Lane *lanes = lanesOf(warp);
  forEachLane(mask, [&](int lane) {
    acquire(warp, lane);
    warp.seen[lane][lane] = now;
    lanes[lane].published = lanes[lane].known;
    lanes[lane].published.join(index, warp.seen[lane]);
  });
}

void ThreadOrder::acquire(WarpOrder &warp, int lane) {
  if (!hasLanes(warp)) return;
  warp.lanes[lane].known.join(warp.lanes[lane].collected);
  warp.lanes[lane].collected = Known();
}

void ThreadOrder::strongRead(WarpOrder &warp, int lane, uint64_t word, Time byOthers) {
  auto found = carried.empty() ? carried.end() : carried.find(word);
  if (found == carried.end() && byOthers <= barrierTime) return;
  Known &collected = lanesOf(warp)[lane].collected;
  collected.everybody = std::max(collected.everybody, byOthers);
  if (found != carried.end()) collected.join(found->second);
}

// A read-modify-write continues the release sequence of the value it replaces (goesOn); a plain
// strong write starts a new one.
void ThreadOrder::strongWrite(const WarpOrder &warp, int lane, uint64_t word, bool goesOn) {
  if (!goesOn && !carried.empty()) carried.erase(word);
  if (hasLanes(warp) && !warp.lanes[lane].published.empty())
    carried[word].join(warp.lanes[lane].published);
}

// ---- between blocks

bool LaunchOrder::beginLaunch(uint32_t count) {
  bool goesOn = time < UINT32_MAX / 2;
  if (!goesOn) time = 1;
  start = pass();
  blocks.assign(count, BlockTimes{});
  carried.clear();
  return goesOn;
}

void LaunchOrder::join(Times &into, const Times &from) {
  if (into.size() < from.size()) into.resize(from.size(), 0);
  for (size_t k = 0; k < from.size(); k++) into[k] = std::max(into[k], from[k]);
}

bool LaunchOrder::knows(uint32_t block, const Mark &mark) const {
  const Times &known = blocks[block].known;
  return mark.block < known.size() && known[mark.block] >= mark.time;
}

void LaunchOrder::acquire(uint32_t block) {
  BlockTimes &mine = blocks[block];
  join(mine.known, mine.collected);
  mine.collected.clear();
}

void LaunchOrder::fence(uint32_t block) {
  acquire(block);
  BlockTimes &mine = blocks[block];
  mine.published = mine.known;
  if (mine.published.size() <= block) mine.published.resize(block + 1, 0);
  mine.published[block] = pass();
}

Time LaunchOrder::strongRead(uint32_t block, uint64_t word) {
  auto found = carried.empty() ? carried.end() : carried.find(word);
  if (found == carried.end()) return 0;
  const Carried &here = found->second;
  join(blocks[block].collected, here.times);
  return here.writer == block || block >= here.times.size() ? 0 : here.times[block];
}

void LaunchOrder::strongWrite(uint32_t block, uint64_t word, bool goesOn) {
  const Times &published = blocks[block].published;
  if (!goesOn && !carried.empty()) carried.erase(word);
  if (published.empty()) return;
  auto inserted = carried.insert({word, {published, block}});
  if (inserted.second) return;
  Carried &here = inserted.first->second;
  join(here.times, published);
  if (here.writer != block) here.writer = severalWriters;
}

} // namespace ptxrun
