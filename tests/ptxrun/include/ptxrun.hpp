// Public interface of ptxrun: load PTX text, allocate simulated memory, launch kernels, read
// reports.
//
// Nothing here depends on CUDA headers or on how the interpreter works inside.  The command-line
// driver (src/tool) and the stand-in CUDA runtime (cudart) are both written against this file only.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace ptxrun {

struct Dim3 {
  uint32_t x = 1, y = 1, z = 1;
  uint64_t count() const { return uint64_t(x) * y * z; }
};

enum class BlockOrder { Ascending, Descending, Random };

// What to run and what to check.  `set("seed", "7")` is the textual form used by every front end.
struct Options {
  uint64_t seed = 0; // 0: deterministic schedule; otherwise random warps, lane groups, lane order
  uint32_t splitPercent = 0; // chance to run only a random subset of a converged group of lanes
  uint32_t slice = 512;      // warp instructions before another warp gets its turn
  uint32_t residentBlocks = 16;
  BlockOrder order = BlockOrder::Ascending;
  bool weakMemory = false; // global stores reach other blocks late and out of order unless fenced
  bool lateCopies = false; // asynchronous copies reach pinned memory when the host waits for them
  bool sharedRaces = true;
  bool globalRaces = true;
  bool uninitialised = true;
  bool profile = false;                     // count sectors, bank conflicts and divergence
  bool profileLines = false;                // and print one line per instruction
  std::string profileFile;                  // CSV destination; empty: print text
  bool approximateJitter = false;           // perturb .approx results by -2..+2 ulp
  uint64_t maxInstructions = 5'000'000'000; // thread instructions per launch
  double maxSeconds = 0;                    // wall clock per launch; 0: unlimited
  // Instructions of each running warp, none of which changes memory, before "livelock".
  uint64_t spinLimit = 3'000'000;
  uint32_t maxReports = 40; // reports printed by the front ends

  bool set(const std::string &name, const std::string &value); // false: no such option or bad value
  static std::string help();
};

struct Report {
  std::string kind; // one of reportKinds(), e.g. "race-shared"
  std::string text; // kind, source line and why; then, a line each, who, the calls, the instruction
  uint64_t count = 0;
  bool fatal = false; // the launch was abandoned
  bool note = false;  // worth knowing, not counted as a fault
};

struct Totals { // README.md, "Counters", says what each one means
  uint64_t launches = 0, dependentLaunches = 0, warpInstructions = 0, threadInstructions = 0,
           partialInstructions = 0;
  uint64_t branches = 0, divergentBranches = 0, barriers = 0, atomics = 0;
  uint64_t collectives = 0, ballots = 0, votes = 0, shuffles = 0, matches = 0, reductions = 0,
           warpSyncs = 0;
  uint64_t loadRequests = 0, storeRequests = 0, atomicRequests = 0;
  uint64_t loadSectors = 0, storeSectors = 0, atomicSectors = 0, idealSectors = 0;
  uint64_t loadBytes = 0, storeBytes = 0, atomicBytes = 0, sharedAccesses = 0, bankConflicts = 0;
  uint64_t serialTrips = 0; // the sum over launches
  double seconds = 0;
  void add(const Totals &other);
};

struct ParameterSlot {
  uint32_t offset, size;
};

struct KernelInfo {
  std::vector<ParameterSlot> parameters;
  uint64_t parameterBytes = 0, staticSharedBytes = 0, localBytes = 0;
  uint32_t maxThreads = 1024; // from .maxntid/.reqntid
  Dim3 requiredCluster;       // from .reqnctapercluster; 1,1,1 when absent
};

struct LaunchConfig {
  Dim3 grid, block, cluster;
  uint64_t dynamicSharedBytes = 0;
  bool allBlocksResident = false; // cooperative launch
  bool overlapsPrevious = false;  // only griddepcontrol.wait orders it after the launch before
};

struct Symbol {
  uint64_t address = 0;
  uint64_t size = 0;
};

enum class Initial { Undefined, Defined }; // is a fresh allocation's content readable?

class Engine;
class LoadedModule; // opaque handle, owned by the simulator

class Simulator {
public:
  Simulator();
  ~Simulator();
  Options &options();

  // Each module has its own name space, as each translation unit has.  Throws std::runtime_error.
  LoadedModule *load(std::string text, const std::string &name);
  LoadedModule *loadFile(const std::string &path);
  std::vector<std::string> kernels(const LoadedModule &) const;
  KernelInfo info(LoadedModule &, const std::string &kernel);
  bool findSymbol(const LoadedModule &, const std::string &name, Symbol &result) const;
  uint32_t targetArchitecture(const LoadedModule &) const; // 90 for .target sm_90

  // Simulated addresses are host addresses inside the simulator's arena.  allocate returns 0 when
  // full.
  uint64_t allocate(uint64_t bytes, const std::string &name, Initial initial);
  bool release(uint64_t address); // false: not the start of a live allocation
  bool contains(uint64_t address, Symbol *allocation = nullptr) const;
  void write(uint64_t destination, const void *source, uint64_t bytes); // throw when out of bounds
  void read(void *destination, uint64_t source, uint64_t bytes) const;
  void fill(uint64_t destination, uint8_t value, uint64_t bytes);
  void copy(uint64_t destination, uint64_t source, uint64_t bytes);

  // Runs the grid to its end, or to the first fatal report.
  void launch(LoadedModule &, const std::string &kernel, const LaunchConfig &,
              const void *parameters, uint64_t parameterBytes);

  std::vector<Report> reports() const;
  void clearReports();
  std::string summary() const; // one line: how many reports of which kinds, what ran, how fast
  const Totals &totals() const;
  void clearProfile();
  // A counter by its name in the CSV, of one kernel or (kernel empty) of all; false: no such
  // counter.
  bool count(const std::string &kernel, const std::string &counter, uint64_t &value) const;
  std::string profileText() const; // per-kernel totals, and lines when asked
  std::string profileCsv() const;

private:
  std::unique_ptr<Engine> engine;
};

} // namespace ptxrun
