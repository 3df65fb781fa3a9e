// Runs a grid.
#include "grid.hpp"
#include "async_copy.hpp"
#include "barrier.hpp"
#include "global_races.hpp"
#include "store_buffer.hpp"
#include "trips.hpp"
#include <algorithm>
#include <stdexcept>

namespace ptxrun {

namespace {
constexpr uint8_t sharedFill = 0xCD,
                  localFill = 0xCD; // never zero: zeros hide missing initialisation
constexpr uint64_t maxSharedBytes = 227 * 1024;
constexpr uint32_t simulatedProcessors = 132; // %nsmid

Dim3 unflatten(uint64_t index, const Dim3 &shape) {
  return {uint32_t(index % shape.x), uint32_t(index / shape.x % shape.y),
          uint32_t(index / shape.x / shape.y)};
}
bool differsByLane(Special special) {
  return special <= Special::TidZ || special == Special::LaneId ||
         (special >= Special::LanemaskEq && special <= Special::LanemaskGt);
}
uint32_t component(const Dim3 &d, size_t k) { return k == 0 ? d.x : k == 1 ? d.y : d.z; }
} // namespace

Grid::Grid(Context &context)
    : c(context), kernel(context.kernel), options(context.options), runner(context),
      clusterDim(context.config.cluster),
      instructionLimit(context.totals.threadInstructions + context.options.maxInstructions),
      start(std::chrono::steady_clock::now()) {
  layOutShared();
  makeOrder();
  if (!c.order.beginLaunch(uint32_t(c.config.grid.count()))) {
    c.device.memory.forgetRaces();
    c.device.spare.clear();
  }
  c.globalRaces.beginLaunch(c.order.started(), c.config.overlapsPrevious);
  c.storeBuffers.beginLaunch();
}

void Grid::layOutShared() {
  uint64_t statics = kernel.info.staticSharedBytes;
  dynamicBase = statics ? roundUp(statics, kernel.dynamicAlignment) : 0;
  sharedBytes = c.config.dynamicSharedBytes ? dynamicBase + c.config.dynamicSharedBytes : statics;
  if (sharedBytes > maxSharedBytes)
    throw std::runtime_error("kernel " + kernel.name + " needs " + std::to_string(sharedBytes) +
                             " bytes of shared memory, more than 227 KiB");
}

void Grid::makeOrder() {
  const Dim3 &grid = c.config.grid;
  if (grid.x % clusterDim.x || grid.y % clusterDim.y || grid.z % clusterDim.z)
    throw std::runtime_error("kernel " + kernel.name + ": the grid is no multiple of the cluster");
  clusterOrder.resize(grid.count() / clusterDim.count());
  for (size_t k = 0; k < clusterOrder.size(); k++) clusterOrder[k] = uint32_t(k);
  if (options.order == BlockOrder::Descending)
    std::reverse(clusterOrder.begin(), clusterOrder.end());
  if (options.order == BlockOrder::Random)
    c.device.random.shuffle(clusterOrder, uint32_t(clusterOrder.size()));
}

// ---- starting blocks

void Grid::startClusters() {
  uint64_t size = clusterDim.count();
  uint64_t limit = c.config.allBlocksResident ? c.config.grid.count()
                                              : std::max<uint64_t>(options.residentBlocks, size);
  while (nextCluster < clusterOrder.size() && resident.size() + size <= limit) {
    auto cluster = std::make_shared<Cluster>();
    for (uint32_t rank = 0; rank < size; rank++) {
      std::unique_ptr<Block> block;
      if (c.device.spare.empty())
        block.reset(new Block);
      else {
        block = std::move(c.device.spare.back());
        c.device.spare.pop_back();
      }
      cluster->blocks.push_back(block.get());
      startBlock(*block, clusterOrder[nextCluster], rank, cluster);
      cluster->liveThreads += block->liveThreads;
      resident.push_back(std::move(block));
    }
    nextCluster++;
  }
}

void Grid::startBlock(Block &b, uint32_t clusterNumber, uint32_t rank,
                      const std::shared_ptr<Cluster> &cluster) {
  const Dim3 &grid = c.config.grid;
  Dim3 clusters{grid.x / clusterDim.x, grid.y / clusterDim.y, grid.z / clusterDim.z};
  b.clusterIndex = unflatten(clusterNumber, clusters);
  b.rankIndex = unflatten(rank, clusterDim);
  b.index = {b.clusterIndex.x * clusterDim.x + b.rankIndex.x,
             b.clusterIndex.y * clusterDim.y + b.rankIndex.y,
             b.clusterIndex.z * clusterDim.z + b.rankIndex.z};
  b.id = b.index.x + grid.x * (b.index.y + grid.y * b.index.z);
  b.rank = rank;
  b.cluster = cluster;
  b.threads = b.liveThreads = uint32_t(c.config.block.count());
  b.shared.assign(sharedBytes, sharedFill);
  b.sharedInitialised.assign(sharedBytes, 0);
  b.order.reset(c.order, b.id);
  b.races.reset(options.sharedRaces ? sharedBytes : 0);
  b.arrivals.clear();
  b.bulkCopies.clear();
  b.releasedDependents = false;
  uint32_t warps = (b.threads + warpSize - 1) / warpSize;
  size_t words = size_t(kernel.registerUnits) * (registerUnit / sizeof(uint64_t)) * warps;
  if (b.registerWords < words) {
    b.registerStorage.reset(new uint64_t[words]);
    b.registerWords = words;
    b.presetsOf = nullptr;
  }
  // Without this check nobody fills a register that is read before it is written.
  bool fill = !options.uninitialised;
  if (fill) std::fill_n(b.registerStorage.get(), words, registerFill);
  bool preset =
      fill || b.presetsOf != &kernel || b.presetWarps < warps || b.presetBase != dynamicBase;
  b.presetsOf = &kernel, b.presetBase = dynamicBase;
  if (preset) b.presetWarps = warps;
  b.predicateStorage.assign(size_t(kernel.predicates) * warps, 0);
  b.definedStorage.assign(size_t(kernel.registerUnits) * warps, 0);
  b.warps.resize(warps);
  for (uint32_t w = 0; w < warps; w++) startWarp(b, b.warps[w], w, preset);
}

void Grid::startWarp(Block &b, Warp &w, uint32_t index, bool preset) {
  w.index = index;
  w.registers = reinterpret_cast<uint8_t *>(b.registerStorage.get()) +
                size_t(kernel.registerUnits) * registerUnit * index;
  w.predicates = b.predicateStorage.data() + size_t(kernel.predicates) * index;
  w.defined = b.definedStorage.data() + size_t(kernel.registerUnits) * index;
  w.predicates[truePredicate] = allLanes;
  uint32_t lanes = std::min<uint32_t>(warpSize, b.threads - index * warpSize);
  w.live = w.runnable = lanes == warpSize ? allLanes : laneBit(int(lanes)) - 1;
  w.atCollective = w.atBarrier = w.atCluster = 0;
  std::fill(w.pc, w.pc + warpSize, 0);
  w.afterEarlierLaunches = c.globalRaces.overlapsEarlier() ? 0 : allLanes;
  w.order.reset();
  w.local.assign(kernel.info.localBytes * warpSize, localFill);
  w.copies.clear();
  c.enter(b, w);
  if (options.profile)
    trips::startWarp(c, w);
  else
    w.trips.registers.clear();
  for (const PresetRegister &constant : kernel.presets) w.defined[constant.reg.index] = allLanes;
  if (preset) presetRegisters();
  for (const auto &special : kernel.specials) {
    Lanes<uint64_t> values;
    bool differs = differsByLane(special.second);
    for (int lane = 0; lane < warpSize; lane++)
      values[lane] = lane && !differs ? values[0] : specialValue(special.second, b, index, lane);
    c.writeWide(special.first, values, allLanes);
    w.defined[special.first.index] = allLanes;
  }
}

void Grid::presetRegisters() {
  for (const PresetRegister &preset : kernel.presets) {
    uint64_t value = preset.value + (preset.addDynamicBase ? dynamicBase : 0);
    Lanes<uint64_t> lanes;
    for (uint64_t &lane : lanes.v) lane = value;
    c.writeWide(preset.reg, lanes, allLanes);
  }
}

uint32_t Grid::specialValue(Special special, const Block &b, uint32_t warp, int lane) const {
  const Dim3 &grid = c.config.grid, &block = c.config.block;
  Dim3 thread = unflatten(warp * warpSize + uint32_t(lane), block);
  Dim3 clusters{grid.x / clusterDim.x, grid.y / clusterDim.y, grid.z / clusterDim.z};
  const struct {
    Special first;
    const Dim3 &value;
  } triples[] = {{Special::TidX, thread},
                 {Special::NtidX, block},
                 {Special::CtaidX, b.index},
                 {Special::NctaidX, grid},
                 {Special::ClusterIdX, b.clusterIndex},
                 {Special::NclusterIdX, clusters},
                 {Special::ClusterCtaidX, b.rankIndex},
                 {Special::ClusterNctaidX, clusterDim}};
  for (const auto &triple : triples) {
    size_t k = size_t(special) - size_t(triple.first);
    if (k < 3) return component(triple.value, k);
  }
  LaneMask self = laneBit(lane), below = self - 1;
  switch (special) {
  case Special::LaneId: return uint32_t(lane);
  case Special::WarpId: return warp;
  case Special::NwarpId: return uint32_t(b.warps.size());
  case Special::SmId: return b.id % simulatedProcessors;
  case Special::NsmId: return simulatedProcessors;
  case Special::LanemaskEq: return self;
  case Special::LanemaskLe: return below | self;
  case Special::LanemaskLt: return below;
  case Special::LanemaskGe: return ~below;
  case Special::LanemaskGt: return ~(below | self);
  case Special::DynamicSharedSize: return uint32_t(c.config.dynamicSharedBytes);
  case Special::TotalSharedSize: return uint32_t(sharedBytes);
  case Special::WarpSize: return warpSize;
  case Special::ClusterCtarank: return b.rank;
  case Special::ClusterNctarank: return uint32_t(clusterDim.count());
  case Special::EnvReg1: return uint32_t(c.gridWorkspace >> 32);
  case Special::EnvReg2: return uint32_t(c.gridWorkspace);
  case Special::ReservedShared: // there is none: far out of bounds, so that a use is reported
    return sharedOffsetMask & ~uint32_t(0xffff);
  case Special::IsExplicitCluster: return clusterDim.count() > 1;
  default: return 0;
  }
}

// ---- running

bool Grid::turn(Block &b) {
  bool progress = false;
  Random &random = c.device.random;
  uint32_t warps = uint32_t(b.warps.size()), first = options.seed ? random.below(warps) : 0;
  for (uint32_t k = 0; k < warps && !c.device.reporter.fatalSeen; k++) {
    Warp &w = b.warps[(first + k) % warps];
    if (!w.runnable) continue;
    if (options.seed && warps > 1 && random.below(3) == 0) { // skipped this time
      progress = true;
      continue;
    }
    uint32_t slice = options.seed ? 1 + random.below(options.slice) : options.slice;
    progress |= runner.run(b, w, slice);
  }
  progress |= releaseBarriers(c, b);
  progress |= releaseClusterWaits(b);
  if (!b.bulkCopies.empty()) {
    completeBulkCopies(c, b, false);
    c.clock++; // time passes for the copies even when every warp waits
    progress = true;
  }
  return progress;
}

void Grid::retire(size_t index) {
  Block &b = *resident[index];
  b.cluster->blocks[b.rank] = nullptr;
  b.cluster.reset();
  c.device.spare.push_back(std::move(resident[index]));
  resident.erase(resident.begin() + long(index));
}

void Grid::run() {
  const bool &fatal = c.device.reporter.fatalSeen;
  while (!fatal) {
    startClusters();
    if (resident.empty()) break;
    bool progress = false;
    for (size_t k = 0; k < resident.size() && !fatal; k++) {
      progress |= turn(*resident[k]);
      if (resident[k]->liveThreads == 0) {
        retire(k--);
        c.madeProgress(); // however long what it did changed nothing
        progress = true;
      }
      checkLimits();
    }
    if (!c.storeBuffers.empty()) {
      if (c.storeBuffers.drain(c.clock)) c.madeProgress();
      c.clock++;
      progress = true;
    }
    if (fatal) break;
    if (!progress)
      reportStuck(Fault::Deadlock);
    else if (c.clock - c.lastProgress > options.spinLimit * runningWarps())
      reportStuck(Fault::Livelock);
  }
  c.storeBuffers.drainAll();
  c.totals.serialTrips += c.longestTrips;
}

// At least 1.
uint64_t Grid::runningWarps() const {
  uint64_t count = 0;
  for (const auto &block : resident)
    for (const Warp &warp : block->warps) count += warp.runnable != 0;
  return std::max<uint64_t>(count, 1);
}

void Grid::checkLimits() {
  if (c.totals.threadInstructions > instructionLimit)
    reportLimit(Fault::InstructionLimit,
                "executed more than maxinsn=" + std::to_string(options.maxInstructions) +
                    " thread instructions");
  if (options.maxSeconds <= 0) return;
  std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  if (elapsed.count() > options.maxSeconds)
    reportLimit(Fault::TimeLimit, "ran longer than maxseconds");
}

void Grid::reportLimit(Fault fault, const std::string &what) {
  c.device.reporter.add(fault, kernel.name, 0, 0, Witness(), [&] {
    Finding finding;
    finding.what = "kernel " + readableName(kernel.name) + " " + what;
    return finding;
  });
}

// ---- who waits where

void Grid::reportStuck(Fault fault) {
  for (auto &block : resident)
    for (Warp &warp : block->warps) reportStuck(fault, *block, warp);
}

void Grid::reportStuck(Fault fault, Block &block, Warp &warp) {
  const struct {
    LaneMask lanes;
    const char *what;
    bool namesMask;
  } states[] = {{warp.runnable, "lanes run here, and nothing changes any more", false},
                {warp.atCollective, "lanes wait here at a collective", true},
                {warp.atBarrier, "lanes wait here at a barrier", false},
                {warp.atCluster, "lanes wait here at the cluster barrier", false}};
  for (const auto &state : states) {
    std::map<uint32_t, LaneMask> byPc;
    forEachLane(state.lanes, [&](int lane) { byPc[warp.pc[lane]] |= laneBit(lane); });
    for (const auto &group : byPc) {
      std::string text = state.what;
      if (state.namesMask)
        text += " (mask " + hex(warp.collectiveMask[firstLane(group.second)]) + ")";
      c.reportFor(kernel.code[group.first], {block.id, warp.index, group.second, {}}, fault,
                  uint32_t(&state - states), [&] { return text; });
    }
  }
}

} // namespace ptxrun
