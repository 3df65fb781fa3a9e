// A decoded instruction and a decoded kernel: everything a warp needs to run, no names left.
//
// Registers live in a per-warp file cut into units of 64 bytes.  A register of w bytes per lane
// takes 32*w bytes, so a RegisterIndex is a unit number and a 32-bit register is two units.
#pragma once
#include "../../include/ptxrun.hpp"
#include "../base.hpp"
#include "../report.hpp"
#include <string>
#include <vector>

namespace ptxrun {

struct Context;
struct Instruction;
struct Allocation;

using RegisterIndex = int32_t; // -1: the sink "_"
constexpr RegisterIndex noRegister = -1;
constexpr uint32_t registerUnit = 64;
constexpr uint64_t registerFill = 0xDEADBEEFDEADBEEF; // what an unwritten register reads as
using PredicateIndex = int32_t;                       // -1: none
constexpr PredicateIndex noPredicate = -1, truePredicate = 0, falsePredicate = 1;

using Handler = void (*)(Context &, const Instruction &, LaneMask);

enum class Flow : uint8_t {
  Plain,
  Branch,
  BranchTable,
  Exit,
  Collective,
  Barrier,
  ClusterWait,
  Trap,
  Yield
};
enum class Memory : uint8_t { None, Load, Store, Atomic };
enum class Rounding : uint8_t { Nearest, TowardZero, Down, Up };
enum class BarrierOperation : uint8_t { Sync, Arrive, Reduce };
enum class Combine : uint8_t { None, And, Or, Xor };

struct RegisterOperand {
  RegisterIndex index : 24;
  uint32_t bytes : 8; // per lane
  RegisterOperand(RegisterIndex at = noRegister, uint32_t width = 4) : index(at), bytes(width) {}
};

// What every instruction needs comes first, in one line of the host's cache, then what some do.
struct alignas(64) Instruction {
  Handler execute = nullptr;
  Flow flow = Flow::Plain;
  Memory memory = Memory::None;
  uint8_t destinations = 0, sources = 0;
  PredicateIndex guard = noPredicate;
  bool guardNegated = false, predicateSourceNegated = false;
  Scalar type = Scalar::None, sourceType = Scalar::None; // sourceType: cvt, set, slct, dp4a
  RegisterOperand source[9], destination[8];

  PredicateIndex predicateDestination = noPredicate, predicateDestination2 = noPredicate;
  PredicateIndex predicateSource = noPredicate, predicateSource2 = noPredicate;

  Rounding rounding = Rounding::Nearest;
  bool flush = false, saturate = false, relu = false; // .ftz .sat .relu
  uint8_t operation = 0;                              // meaning belongs to the handler's family
  Combine combine = Combine::None;                    // setp/set with a second predicate
  bool option = false; // one yes/no modifier, meaning belongs to the family

  // memory
  Space space = Space::Generic;
  uint8_t vector = 1;
  bool strong = false; // volatile, relaxed, acquire, release, atomic
  bool acquire = false, release = false;
  int64_t offset = 0, offset2 = 0;
  mutable Allocation *lastAllocation = nullptr; // the one found last time

  // control
  uint32_t target = 0; // Branch; Collective: which source is the lane mask
  bool arrivesAtCluster = false;
  uint64_t Totals::*counter = nullptr; // Collective: what it counts as
  std::vector<uint32_t> table;         // BranchTable

  uint32_t line = 0;  // of the PTX text
  uint32_t frame = 0; // in Kernel::frames
  std::string text;
};

// The registers that an instruction names in the PTX: each is one value, whatever place it has.
struct Values {
  RegisterIndex source[9], destination[8];
  PredicateIndex predicateSource[3], predicateDestination[2];
};

struct Profile { // counts of one instruction in one kernel, over all launches
  uint64_t executions = 0, threads = 0, actual = 0, ideal = 0, divergences = 0;
  uint64_t trips = 0; // of its loads from global memory: the longest chain that ends in one
};

enum class Special : uint8_t {
  TidX,
  TidY,
  TidZ,
  NtidX,
  NtidY,
  NtidZ,
  CtaidX,
  CtaidY,
  CtaidZ,
  NctaidX,
  NctaidY,
  NctaidZ,
  LaneId,
  WarpId,
  NwarpId,
  SmId,
  NsmId,
  GridId,
  LanemaskEq,
  LanemaskLe,
  LanemaskLt,
  LanemaskGe,
  LanemaskGt,
  DynamicSharedSize,
  TotalSharedSize,
  WarpSize,
  ClusterIdX,
  ClusterIdY,
  ClusterIdZ,
  NclusterIdX,
  NclusterIdY,
  NclusterIdZ,
  ClusterCtaidX,
  ClusterCtaidY,
  ClusterCtaidZ,
  ClusterNctaidX,
  ClusterNctaidY,
  ClusterNctaidZ,
  ClusterCtarank,
  ClusterNctarank,
  IsExplicitCluster,
  EnvReg1,
  EnvReg2,
  EnvReg,
  ReservedShared,
  Count
};

struct PresetRegister { // value known before the first instruction
  RegisterOperand reg;
  uint64_t value;
  bool addDynamicBase; // the value is an offset into dynamic shared memory
};

struct Frame { // a source line, and the line whose call it is part of, inlined or not
  uint32_t file = 0, line = 0;
  uint32_t caller = 0;  // a frame with a smaller number; 0: none
  std::string function; // as the linker knows it
};

struct Kernel {
  std::string name;
  KernelInfo info;
  std::vector<Instruction> code;
  std::vector<std::string> files;
  std::vector<Frame> frames{1};                     // 0: no -lineinfo
  uint32_t registerUnits = 0, predicates = 2;       // two constant predicates
  std::vector<Values> values;                       // one per instruction,
  uint32_t registerValues = 0, predicateValues = 0; // of so many indices
  std::vector<PresetRegister> presets;
  std::vector<std::pair<RegisterOperand, Special>> specials;
  uint64_t dynamicAlignment = 16;
  bool usesClusterRegisters = false;
  std::vector<Profile> profile; // one per instruction
  Totals totals;
};

} // namespace ptxrun
