// The public Simulator: modules, memory, launches.  Glue only.
#include "../include/ptxrun.hpp"
#include "isa/decoder.hpp"
#include "machine/global_races.hpp"
#include "machine/grid.hpp"
#include "machine/store_buffer.hpp"
#include "profile.hpp"
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#if defined(__GLIBC__)
#include <malloc.h>
#endif
#include <sstream>
#include <stdexcept>

namespace ptxrun {

class LoadedModule {
public:
  Module parsed;
  SymbolTable symbols; // module variables, placed in simulated memory
  std::map<std::string, std::unique_ptr<Kernel>> kernels;
};

class Engine {
public:
  Options options;
  GlobalMemory memory;
  Reporter reporter;
  LaunchOrder order;
  GlobalRaces races{memory};
  StoreBuffers stores;
  Totals totals;
  std::vector<std::unique_ptr<LoadedModule>> modules;
  std::vector<std::unique_ptr<Block>> spareBlocks;
  uint64_t workspace = 0;

  void placeVariables(LoadedModule &module);
  Kernel &kernel(LoadedModule &module, const std::string &name);
  uint64_t clearedWorkspace(); // for the grid barrier of a cooperative launch
  Allocation &range(uint64_t address, uint64_t bytes, const char *what) const;
  template <class Visit> void forEachLaunched(Visit visit) {
    for (const auto &module : modules)
      for (const auto &entry : module->kernels)
        if (entry.second && entry.second->totals.launches) visit(*entry.second);
  }
};

void Engine::placeVariables(LoadedModule &module) {
  for (const auto &entry : module.parsed.variables) {
    const Variable &variable = entry.second;
    if (variable.space == Space::Shared) continue;
    if (variable.external && variable.initial.empty()) continue; // defined elsewhere: unknown here
    uint64_t address =
        memory.allocate(std::max<uint64_t>(variable.size, 1), variable.name, Initial::Defined);
    if (!address) throw std::runtime_error("out of simulated memory for variable " + variable.name);
    if (!variable.initial.empty())
      std::memcpy(reinterpret_cast<void *>(address), variable.initial.data(),
                  std::min<uint64_t>(variable.initial.size(), variable.size));
    module.symbols[variable.name] = {variable.space, address, false, variable.size};
  }
  for (const auto &entry : module.parsed.variables)
    for (const Relocation &relocation : entry.second.relocations) {
      auto target = module.symbols.find(relocation.symbol);
      if (target == module.symbols.end())
        throw std::runtime_error(module.parsed.name + ": initial value refers to unknown symbol '" +
                                 relocation.symbol + "'");
      void *at = reinterpret_cast<void *>(module.symbols[entry.first].offset + relocation.offset);
      uint64_t value;
      std::memcpy(&value, at, sizeof value);
      value += target->second.offset;
      std::memcpy(at, &value, sizeof value);
    }
}

Kernel &Engine::kernel(LoadedModule &module, const std::string &name) {
  auto &slot = module.kernels[name];
  if (!slot) slot = Decoder(module.parsed, module.symbols).decodeKernel(name);
  return *slot;
}

uint64_t Engine::clearedWorkspace() {
  constexpr uint64_t bytes = 64;
  if (!workspace) workspace = memory.allocate(bytes, "grid barrier", Initial::Defined);
  if (workspace) std::memset(reinterpret_cast<void *>(workspace), 0, bytes);
  return workspace;
}

Allocation &Engine::range(uint64_t address, uint64_t bytes, const char *what) const {
  Allocation *allocation = memory.find(address);
  if (!allocation || !allocation->holds(address, bytes))
    throw std::runtime_error(std::string("host ") + what + " of " + std::to_string(bytes) +
                             " bytes at " + hex(address) + ": " + memory.describe(address));
  return *allocation;
}

Simulator::Simulator() : engine(new Engine) {
#if defined(__GLIBC__)
  // A block's registers are megabytes that the next block needs again: giving them back to the
  // system after each block, and getting them anew page by page, took most of the time.
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
#endif
}
Simulator::~Simulator() = default;
Options &Simulator::options() { return engine->options; }

LoadedModule *Simulator::load(std::string text, const std::string &name) {
  std::unique_ptr<LoadedModule> module(new LoadedModule);
  module->parsed = parseModule(text, name);
  engine->placeVariables(*module);
  engine->modules.push_back(std::move(module));
  return engine->modules.back().get();
}

LoadedModule *Simulator::loadFile(const std::string &path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot open " + path);
  std::stringstream text;
  text << file.rdbuf();
  return load(text.str(), path);
}

std::vector<std::string> Simulator::kernels(const LoadedModule &module) const {
  std::vector<std::string> names;
  for (const auto &function : module.parsed.functions)
    if (function.second.isKernel) names.push_back(function.first);
  return names;
}

KernelInfo Simulator::info(LoadedModule &module, const std::string &kernel) {
  return engine->kernel(module, kernel).info;
}
uint32_t Simulator::targetArchitecture(const LoadedModule &module) const {
  return module.parsed.architecture;
}

bool Simulator::findSymbol(const LoadedModule &module, const std::string &name,
                           Symbol &result) const {
  auto found = module.symbols.find(name);
  if (found == module.symbols.end()) return false;
  result = {found->second.offset, found->second.size};
  return true;
}

uint64_t Simulator::allocate(uint64_t bytes, const std::string &name, Initial initial) {
  return engine->memory.allocate(bytes, name, initial);
}

bool Simulator::release(uint64_t address) {
  if (engine->memory.release(address)) return true;
  engine->reporter.add(Fault::BadFree, "", address, 0, Witness(), [&] {
    Finding finding;
    finding.what = hex(address) + ": " + engine->memory.describe(address);
    return finding;
  });
  return false;
}

bool Simulator::contains(uint64_t address, Symbol *allocation) const {
  const Allocation *found = engine->memory.find(address);
  if (found && allocation) *allocation = {found->begin, found->end - found->begin};
  return found;
}

void Simulator::write(uint64_t destination, const void *source, uint64_t bytes) {
  if (!bytes) return;
  Allocation &allocation = engine->range(destination, bytes, "write");
  std::memcpy(reinterpret_cast<void *>(destination), source, bytes);
  engine->memory.markInitialised(allocation, destination, bytes);
}

void Simulator::read(void *destination, uint64_t source, uint64_t bytes) const {
  if (!bytes) return;
  engine->range(source, bytes, "read");
  std::memcpy(destination, reinterpret_cast<const void *>(source), bytes);
}

void Simulator::fill(uint64_t destination, uint8_t value, uint64_t bytes) {
  if (!bytes) return;
  Allocation &allocation = engine->range(destination, bytes, "fill");
  std::memset(reinterpret_cast<void *>(destination), value, bytes);
  engine->memory.markInitialised(allocation, destination, bytes);
}

// Copies of undefined bytes stay undefined.
void Simulator::copy(uint64_t destination, uint64_t source, uint64_t bytes) {
  if (!bytes) return;
  Allocation &from = engine->range(source, bytes, "copy source"),
             &to = engine->range(destination, bytes, "copy target");
  std::memmove(reinterpret_cast<void *>(destination), reinterpret_cast<const void *>(source),
               bytes);
  if (!to.trackInitialised) return;
  if (!from.trackInitialised)
    engine->memory.markInitialised(to, destination, bytes);
  else
    std::memmove(engine->memory.initialisedAt(destination), engine->memory.initialisedAt(source),
                 bytes);
}

void Simulator::launch(LoadedModule &module, const std::string &name, const LaunchConfig &config,
                       const void *parameters, uint64_t parameterBytes) {
  Kernel &kernel = engine->kernel(module, name);
  if (parameterBytes < kernel.info.parameterBytes)
    throw std::runtime_error("kernel " + name + " takes " +
                             std::to_string(kernel.info.parameterBytes) + " parameter bytes, got " +
                             std::to_string(parameterBytes));
  uint64_t threads = config.block.count();
  if (!threads || threads > 1024 || !config.grid.count())
    throw std::runtime_error("kernel " + name + ": bad grid or block size");

  Options &o = engine->options;
  Device device{o, engine->memory, engine->reporter, Random(o.seed), engine->spareBlocks};
  engine->reporter.beginLaunch();
  Totals totals;
  const uint8_t *bytes = static_cast<const uint8_t *>(parameters);
  Context context{device,
                  o,
                  kernel,
                  config,
                  {bytes, bytes + parameterBytes},
                  engine->order,
                  engine->races,
                  engine->stores,
                  totals,
                  config.allBlocksResident ? engine->clearedWorkspace() : 0,
                  o.sharedRaces || o.globalRaces || o.uninitialised};
  for (Instruction &i : kernel.code) i.lastAllocation = nullptr; // may be freed by now
  auto start = std::chrono::steady_clock::now();
  Grid(context).run();
  totals.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  totals.launches = 1;
  totals.dependentLaunches = config.overlapsPrevious;
  kernel.totals.add(totals);
  engine->totals.add(totals);
}

std::vector<Report> Simulator::reports() const { return engine->reporter.list(); }
void Simulator::clearReports() { engine->reporter.clear(); }

std::string Simulator::summary() const {
  const Totals &t = engine->totals;
  size_t kernels = 0;
  engine->forEachLaunched([&](const Kernel &) { kernels++; });
  char speed[64];
  std::snprintf(speed, sizeof speed, " in %.3f s (%.1f M/s)", t.seconds,
                double(t.threadInstructions) / (t.seconds + 1e-9) / 1e6);
  return reportCounts(reports(), engine->options.maxReports) + "; " + counted(kernels, "kernel") +
         " launched " + counted(t.launches, "time") + ", " +
         counted(t.threadInstructions, "thread instruction") + speed;
}
const Totals &Simulator::totals() const { return engine->totals; }

void Simulator::clearProfile() {
  engine->forEachLaunched([](Kernel &kernel) {
    kernel.totals = Totals();
    kernel.profile.assign(kernel.profile.size(), Profile());
  });
}

bool Simulator::count(const std::string &name, const std::string &counter, uint64_t &value) const {
  value = 0;
  for (const Counter &row : counters()) {
    if (counter != row.name) continue;
    engine->forEachLaunched([&](const Kernel &kernel) {
      if (name.empty() || name == kernel.name) value += kernel.totals.*row.value;
    });
    return true;
  }
  return false;
}

std::string Simulator::profileText() const {
  std::string text;
  engine->forEachLaunched([&](const Kernel &kernel) {
    text += ptxrun::profileText(kernel, engine->options.profileLines);
  });
  return text;
}

std::string Simulator::profileCsv() const {
  std::string text = profileCsvHeader();
  engine->forEachLaunched([&](const Kernel &kernel) { text += ptxrun::profileCsv(kernel); });
  return text;
}

} // namespace ptxrun
