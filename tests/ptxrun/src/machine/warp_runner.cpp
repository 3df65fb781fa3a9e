// Runs one warp for a while.
#include "warp_runner.hpp"
#include "barrier.hpp"
#include "trips.hpp"
#include <algorithm>
#include <climits>

namespace ptxrun {

namespace {
constexpr uint32_t divergedQuantum =
    256; // instructions before a diverged warp looks at its other lanes
constexpr uint32_t splitQuantum = 32;
} // namespace

WarpRunner::Group WarpRunner::chooseGroup() {
  uint32_t lowest = UINT_MAX;
  forEachLane(warp->runnable, [&](int lane) { lowest = std::min(lowest, warp->pc[lane]); });
  Random &random = c.device.random;
  if (preferOther || (c.options.seed && random.below(4) == 0)) { // some other lane's group
    LaneMask rest = warp->runnable;
    for (uint32_t skip = random.below(countLanes(rest)); skip; skip--) rest &= rest - 1;
    lowest = warp->pc[firstLane(rest)];
    preferOther = false;
  }
  Group group{lowest, 0, UINT_MAX};
  forEachLane(warp->runnable, [&](int lane) {
    if (warp->pc[lane] == lowest) group.mask |= laneBit(lane);
  });
  if (c.options.splitPercent && random.percent(c.options.splitPercent)) {
    LaneMask part = group.mask & LaneMask(random.next());
    if (part) group.mask = part;
  }
  forEachLane(warp->runnable & ~group.mask, [&](int lane) {
    if (warp->pc[lane] > lowest) group.meetAt = std::min(group.meetAt, warp->pc[lane]);
  });
  return group;
}

uint32_t WarpRunner::quantumFor(const Group &group, uint32_t budget) {
  bool diverged = warp->runnable & ~group.mask;
  uint32_t quantum = diverged ? std::min(budget, divergedQuantum) : budget;
  if (c.options.splitPercent) quantum = std::min(quantum, 1 + c.device.random.below(splitQuantum));
  return quantum;
}

bool WarpRunner::run(Block &ownBlock, Warp &ownWarp, uint32_t budget) {
  block = &ownBlock;
  warp = &ownWarp;
  c.enter(ownBlock, ownWarp);
  bool any = false;
  while (warp->runnable && budget && !c.device.reporter.fatalSeen) {
    Group group = chooseGroup();
    uint32_t quantum = quantumFor(group, budget), used = 0;
    any = true;
    while (true) {
      const Instruction &i = code[group.pc];
      LaneMask active = group.mask;
      if (i.guard != noPredicate) active &= c.predicate(i.guard) ^ (i.guardNegated ? allLanes : 0);
      c.clock++;
      used++;
      c.totals.warpInstructions++;
      c.totals.threadInstructions += countLanes(active);
      if (c.options.profile) {
        Profile &profile = c.kernel.profile[group.pc];
        profile.executions++;
        profile.threads += countLanes(active);
        c.totals.partialInstructions += group.mask != allLanes;
        trips::step(c, i, active);
      }
      if (i.flow == Flow::Plain) {
        if (active) runHandler(i, active);
        group.pc++;
      } else
        execute(group, i, active);
      if (c.yieldRequested) {
        c.yieldRequested = false;
        used = quantum;
      }
      if (group.dissolved || c.device.reporter.fatalSeen) break;
      if (used >= quantum) preferOther = warp->runnable & ~group.mask;
      if (group.pc >= group.meetAt || used >= quantum) break;
    }
    if (!group.dissolved) forEachLane(group.mask, [&](int lane) { warp->pc[lane] = group.pc; });
    budget = used >= budget ? 0 : budget - used;
  }
  return any;
}

void WarpRunner::runHandler(const Instruction &i, LaneMask active) {
  if (c.options.uninitialised) checkDefined(i, active);
  i.execute(c, i, active);
}

void WarpRunner::checkDefined(const Instruction &i, LaneMask active) {
  for (int k = 0; k < i.sources; k++) {
    RegisterIndex index = i.source[k].index;
    if (index != noRegister && (active & ~warp->defined[index])) readUndefined(i, k, active);
  }
  for (int k = 0; k < i.destinations; k++)
    if (i.destination[k].index != noRegister) warp->defined[i.destination[k].index] |= active;
}

void WarpRunner::readUndefined(const Instruction &i, int operand, LaneMask active) {
  LaneMask &defined = warp->defined[i.source[operand].index];
  Lanes<uint64_t> fill;
  for (uint64_t &lane : fill.v) lane = registerFill;
  c.writeWide(i.source[operand], fill, active & ~defined);
  c.reportLanes(i, active & ~defined, Fault::UndefinedRegister,
                [&] { return "operand " + std::to_string(operand) + " was never written"; });
  defined |= active;
}

void WarpRunner::execute(Group &group, const Instruction &i, LaneMask active) {
  if (!active && i.flow != Flow::Branch) {
    group.pc++;
    return;
  }
  switch (i.flow) {
  case Flow::Branch: return branch(group, i, active);
  case Flow::BranchTable: return branchTable(group, i, active);
  case Flow::Exit: return exitLanes(group, active);
  case Flow::Collective: return collective(group, i, active);
  case Flow::Barrier: return barrier(group, i, active);
  case Flow::ClusterWait: return clusterWait(group, active);
  case Flow::Trap:
    c.reportLanes(i, active, Fault::Trap, [] { return std::string(); });
    group.pc++;
    return;
  default: // Yield
    group.pc++;
    c.yieldRequested = true;
  }
}

void WarpRunner::dissolve(Group &group, LaneMask stays) {
  forEachLane(group.mask, [&](int lane) { warp->pc[lane] = group.pc + !hasLane(stays, lane); });
  group.dissolved = true;
}

void WarpRunner::branch(Group &group, const Instruction &i, LaneMask active) {
  c.totals.branches++;
  if (active == group.mask)
    group.pc = i.target;
  else if (!active)
    group.pc++;
  else {
    c.totals.divergentBranches++;
    c.kernel.profile[group.pc].divergences++;
    dissolve(group, 0);
    forEachLane(active, [&](int lane) { warp->pc[lane] = i.target; });
  }
}

void WarpRunner::branchTable(Group &group, const Instruction &i, LaneMask active) {
  dissolve(group, 0);
  forEachLane(active, [&](int lane) {
    uint32_t index = c.readLane<uint32_t>(i.source[0], lane);
    if (index < i.table.size())
      warp->pc[lane] = i.table[index];
    else
      c.report(i, lane, Fault::BranchIndex, [&] { return "index " + std::to_string(index); });
  });
}

void WarpRunner::exitLanes(Group &group, LaneMask active) {
  dissolve(group, 0);
  warp->live &= ~active;
  warp->runnable &= ~active;
  block->liveThreads -= countLanes(active);
  block->cluster->liveThreads -= countLanes(active);
  completeClusterPhase(*block->cluster);
  tryCollectives(); // others may have waited for a lane that is gone now
}

void WarpRunner::collective(Group &group, const Instruction &i, LaneMask active) {
  Lanes<uint32_t> masks = c.read<uint32_t>(i.source[i.target]);
  bool converged = true; // all named lanes are here and agree: the common case
  forEachLane(active, [&](int lane) { converged &= masks[lane] == active; });
  if (converged) {
    runCollective(i, active);
    group.pc++;
    return;
  }
  dissolve(group, active);
  forEachLane(active, [&](int lane) {
    if (!hasLane(masks[lane], lane))
      c.report(i, lane, Fault::MaskWithoutSelf, [&] {
        return "executes a collective whose mask " + hex(masks[lane]) + " does not name it";
      });
    warp->collectiveMask[lane] = masks[lane] | laneBit(lane);
  });
  warp->atCollective |= active;
  warp->runnable &= ~active;
  tryCollectives();
}

void WarpRunner::runCollective(const Instruction &i, LaneMask active) {
  c.totals.collectives++;
  if (i.counter) c.totals.*i.counter += 1;
  runHandler(i, active);
}

void WarpRunner::tryCollectives() {
  forEachLane(warp->atCollective, [&](int lane) {
    if (hasLane(warp->atCollective, lane)) tryCollective(lane);
  });
}

// A collective runs when every live lane of its mask waits at the same pc with the same mask.
bool WarpRunner::tryCollective(int first) {
  uint32_t pc = warp->pc[first];
  LaneMask named = warp->collectiveMask[first], needed = named & warp->live, present = 0;
  forEachLane(warp->atCollective, [&](int lane) {
    if (warp->collectiveMask[lane] == named && warp->pc[lane] == pc) present |= laneBit(lane);
  });
  if ((present & needed) != needed) return false;
  const Instruction &i = code[pc];
  if (needed != named)
    c.reportLanes(i, needed, Fault::MaskNamesExitedLane,
                  [&] { return "mask " + hex(named) + " but live lanes are " + hex(warp->live); });
  runCollective(i, needed);
  forEachLane(needed, [&](int lane) { warp->pc[lane]++; });
  warp->atCollective &= ~needed;
  warp->runnable |= needed;
  return true;
}

void WarpRunner::barrier(Group &group, const Instruction &i, LaneMask active) {
  if (BarrierOperation(i.operation) == BarrierOperation::Arrive) {
    forEachLane(active,
                [&](int lane) { block->arrivals[c.readLane<uint32_t>(i.source[0], lane)]++; });
    group.pc++;
    return;
  }
  dissolve(group, active);
  forEachLane(active, [&](int lane) {
    warp->barrierId[lane] = c.readLane<uint32_t>(i.source[0], lane);
    warp->barrierCount[lane] = i.sources > 1 ? c.readLane<uint32_t>(i.source[1], lane) : 0;
  });
  warp->atBarrier |= active;
  warp->runnable &= ~active;
}

void WarpRunner::clusterWait(Group &group, LaneMask active) {
  LaneMask waits = 0;
  forEachLane(active, [&](int lane) {
    if (warp->clusterPhase[lane] == block->cluster->phase) waits |= laneBit(lane);
  });
  if (!waits) {
    group.pc++;
    return;
  }
  dissolve(group, waits);
  warp->atCluster |= waits;
  warp->runnable &= ~waits;
}

} // namespace ptxrun
