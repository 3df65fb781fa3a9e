// Block barriers and the cluster barrier.
#include "barrier.hpp"
#include "../isa/source.hpp"
#include "access.hpp"
#include "trips.hpp"
#include <algorithm>
#include <climits>

namespace ptxrun {

namespace {

struct Gathering {                                 // the threads at one barrier number
  uint32_t waiting = 0, arrived = 0, expected = 0; // expected 0: all live threads
  uint32_t pc = UINT_MAX, otherPc = UINT_MAX;      // otherPc: a second place, where there is one
};

std::map<uint32_t, Gathering> gather(const Block &block) {
  std::map<uint32_t, Gathering> all;
  for (const Warp &warp : block.warps)
    forEachLane(warp.atBarrier, [&](int lane) {
      Gathering &g = all[warp.barrierId[lane]];
      g.waiting++;
      g.expected = std::max(g.expected, warp.barrierCount[lane]);
      if (g.pc == UINT_MAX) g.pc = warp.pc[lane];
      if (g.pc != warp.pc[lane]) g.otherPc = warp.pc[lane];
    });
  for (const auto &arrival : block.arrivals) all[arrival.first].arrived = arrival.second;
  return all;
}

template <class Visit> void forEachWaiting(Block &block, uint32_t id, Visit visit) {
  for (Warp &warp : block.warps)
    forEachLane(warp.atBarrier, [&](int lane) {
      if (warp.barrierId[lane] == id) visit(warp, lane);
    });
}

void judge(Context &c, Block &block, uint32_t id, const Gathering &g) {
  bool early = !g.expected && block.liveThreads != block.threads;
  bool divergent = g.otherPc != UINT_MAX;
  if (!divergent && !early) return;
  const Instruction &i = c.kernel.code[g.pc];
  bool first = true;
  forEachWaiting(block, id, [&](Warp &warp, int lane) {
    if (!first) return;
    first = false;
    c.enter(block, warp);
    if (divergent)
      c.report(i, lane, Fault::BarrierDivergent, [&] {
        return "threads of the block meet at different barriers, others at " +
               placeOf(c.kernel, c.kernel.code[g.otherPc]);
      });
    if (early)
      c.report(i, lane, Fault::BarrierAfterExit, [&] {
        return std::to_string(block.threads - block.liveThreads) + " threads had already exited";
      });
  });
}

struct Reduction {
  uint32_t count = 0, all = 1, any = 0;
  uint32_t valueFor(Combine combine) const {
    return combine == Combine::None ? count : combine == Combine::And ? all : any;
  }
};

bool isReduction(const Instruction &i) {
  return BarrierOperation(i.operation) == BarrierOperation::Reduce;
}

void passBarrier(Context &c, Block &block, uint32_t id) {
  if (c.options.profile) trips::passBarrier(block, id);
  Reduction reduction;
  bool ordered = false; // one thread's griddepcontrol.wait serves all that meet here
  forEachWaiting(block, id, [&](Warp &warp, int lane) {
    ordered |= hasLane(warp.afterEarlierLaunches, lane);
    const Instruction &i = c.kernel.code[warp.pc[lane]];
    if (!isReduction(i)) return;
    c.enter(block, warp);
    uint32_t value = hasLane(c.sourcePredicate(i), lane);
    reduction.count += value;
    reduction.all &= value;
    reduction.any |= value;
  });
  forEachWaiting(block, id, [&](Warp &warp, int lane) {
    const Instruction &i = c.kernel.code[warp.pc[lane]];
    if (isReduction(i)) {
      c.enter(block, warp);
      uint32_t value = reduction.valueFor(i.combine);
      c.setPredicate(i.predicateDestination, value ? allLanes : 0, laneBit(lane));
      Lanes<uint32_t> values;
      for (uint32_t &v : values.v) v = value;
      if (i.destinations) {
        c.write(i.destination[0], values, laneBit(lane));
        warp.defined[i.destination[0].index] |= laneBit(lane);
      }
    }
    warp.pc[lane]++;
    if (ordered) warp.afterEarlierLaunches |= laneBit(lane);
    warp.atBarrier &= ~laneBit(lane);
    warp.runnable |= laneBit(lane);
  });
  block.arrivals.erase(id);
  block.order.barrier();
  c.totals.barriers++;
}

} // namespace

bool releaseBarriers(Context &c, Block &block) {
  bool anyWaits = false;
  for (const Warp &warp : block.warps) anyWaits |= warp.atBarrier != 0;
  if (!anyWaits) return false;
  bool released = false;
  for (const auto &entry : gather(block)) {
    const Gathering &g = entry.second;
    uint32_t needed = g.expected ? g.expected : block.liveThreads;
    if (!g.waiting || g.waiting + g.arrived < needed) continue;
    judge(c, block, entry.first, g);
    passBarrier(c, block, entry.first);
    released = true;
  }
  return released;
}

// ---- cluster

void completeClusterPhase(Cluster &cluster) {
  if (!cluster.arrived || cluster.arrived < cluster.liveThreads) return;
  cluster.arrived = 0;
  cluster.phase++;
  for (Block *block : cluster.blocks)
    if (block) block->order.barrier();
}

void arriveAtCluster(Context &c, const Instruction &i, LaneMask mask) {
  Cluster &cluster = *c.block->cluster;
  if (i.release) fence(c, mask, true);
  forEachLane(mask, [&](int lane) { c.warp->clusterPhase[lane] = cluster.phase; });
  cluster.arrived += countLanes(mask);
  c.madeProgress();
  completeClusterPhase(cluster);
}

bool releaseClusterWaits(Block &block) {
  bool released = false;
  for (Warp &warp : block.warps)
    forEachLane(warp.atCluster, [&](int lane) {
      if (warp.clusterPhase[lane] == block.cluster->phase) return;
      trips::passClusterBarrier(block, warp);
      warp.atCluster &= ~laneBit(lane);
      warp.runnable |= laneBit(lane);
      warp.pc[lane]++;
      released = true;
    });
  return released;
}

} // namespace ptxrun
