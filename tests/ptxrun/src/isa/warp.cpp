// Warp collectives (shfl, vote, match, redux, elect, bar.warp) and cluster addresses.
// The scheduler calls a collective once for all lanes of its mask (Flow::Collective).
#include "elementwise.hpp"
#include <algorithm>

namespace ptxrun {

namespace {

constexpr uint32_t inactiveValue = 0xBADBADBA; // what reading an absent lane gives

// ---- shfl
enum ShuffleMode : uint8_t { Up, Down, Butterfly, Index };

// The lane to read, and whether it is inside the segment (PTX ISA, shfl.sync).
std::pair<int, bool> shuffleSource(uint8_t mode, int lane, uint32_t b, uint32_t c) {
  uint32_t segment = c >> 8 & 31, clamp = c & 31;
  int distance = int(b & 31), first = lane & int(segment);
  int limit = first | int(clamp & ~segment);
  int source = lane;
  switch (mode) {
  case Up: source = lane - distance; break;
  case Down: source = lane + distance; break;
  case Butterfly: source = lane ^ distance; break;
  default: source = first | (distance & ~int(segment)); break;
  }
  bool inside = mode == Up ? source >= limit : source <= limit;
  return {inside ? source : lane, inside};
}

void shuffle(Context &c, const Instruction &i, LaneMask mask) {
  auto a = c.read<uint32_t>(i.source[0]), b = c.read<uint32_t>(i.source[1]),
       control = c.read<uint32_t>(i.source[2]);
  Lanes<uint32_t> result{};
  LaneMask inside = 0;
  forEachLane(mask, [&](int lane) {
    auto from = shuffleSource(i.operation, lane, b[lane], control[lane]);
    if (from.second) inside |= laneBit(lane);
    if (hasLane(mask, from.first)) {
      result[lane] = a[from.first];
      return;
    }
    result[lane] = inactiveValue;
    c.report(i, lane, Fault::ShuffleInactiveSource, [&] {
      return "reads lane " + std::to_string(from.first) + " which does not take part (mask " +
             hex(mask) + ")";
    });
  });
  c.write(i.destination[0], result, mask);
  c.setPredicate(i.predicateDestination, inside, mask);
}

// ---- vote
enum VoteMode : uint8_t { Ballot, Any, All, Uniform };

void vote(Context &c, const Instruction &i, LaneMask mask) {
  LaneMask yes = c.sourcePredicate(i) & mask;
  if (i.operation == Ballot) {
    Lanes<uint32_t> result;
    for (uint32_t &value : result.v) value = yes;
    return c.write(i.destination[0], result, mask);
  }
  bool outcome = i.operation == Any   ? yes != 0
                 : i.operation == All ? yes == mask
                                      : yes == 0 || yes == mask;
  c.setPredicate(i.predicateDestination, outcome ? mask : 0, mask);
}

// ---- match
void match(Context &c, const Instruction &i, LaneMask mask) {
  Lanes<uint64_t> a = c.readWide(i.source[0]);
  Lanes<uint32_t> same{};
  forEachLane(mask, [&](int lane) {
    forEachLane(mask, [&](int other) {
      if (a[other] == a[lane]) same[lane] |= laneBit(other);
    });
  });
  bool all = same[firstLane(mask)] == mask;
  if (i.option)
    for (uint32_t &value : same.v) value = all ? mask : 0; // match.all
  c.write(i.destination[0], same, mask);
  c.setPredicate(i.predicateDestination, all ? mask : 0, mask);
}

// ---- redux
enum ReduceOperation : uint8_t {
  ReduceAdd,
  ReduceMinimum,
  ReduceMaximum,
  ReduceAnd,
  ReduceOr,
  ReduceXor
};

uint32_t reducePair(const Instruction &i, uint32_t a, uint32_t b) {
  bool less = i.type == Scalar::S32 ? int32_t(a) < int32_t(b) : a < b;
  switch (i.operation) {
  case ReduceAdd: return a + b;
  case ReduceMinimum: return less ? a : b;
  case ReduceMaximum: return less ? b : a;
  case ReduceAnd: return a & b;
  case ReduceOr: return a | b;
  default: return a ^ b;
  }
}
void reduce(Context &c, const Instruction &i, LaneMask mask) {
  auto a = c.read<uint32_t>(i.source[0]);
  uint32_t total = a[firstLane(mask)];
  forEachLane(mask & (mask - 1), [&](int lane) { total = reducePair(i, total, a[lane]); });
  for (uint32_t &value : a.v) value = total;
  c.write(i.destination[0], a, mask);
}

void elect(Context &c, const Instruction &i, LaneMask mask) {
  Lanes<uint32_t> leader;
  for (uint32_t &value : leader.v) value = uint32_t(firstLane(mask));
  if (i.destinations) c.write(i.destination[0], leader, mask);
  c.setPredicate(i.predicateDestination, laneBit(firstLane(mask)), mask);
}

void activeMask(Context &c, const Instruction &i, LaneMask mask) {
  Lanes<uint32_t> result;
  for (uint32_t &value : result.v) value = mask;
  c.write(i.destination[0], result, mask);
}

void requireSync(Form &f) {
  if (!f.has("sync")) f.unsupported("only the .sync form exists on current GPUs");
}

// The mask is the last source; the scheduler reads it before it calls the handler.
void emitCollective(Form &f, size_t maskOperand, Handler handler) {
  f.out.target = f.out.sources;
  f.exactSource(maskOperand, Scalar::B32);
  f.out.flow = Flow::Collective;
  f.emit(handler);
}
void destinationPair(Form &f) { // d|p
  f.exactDestination(0, Scalar::B32);
  if (f.operand(0).kind == Operand::Kind::Pair)
    f.out.predicateDestination = f.predicateDestination(f.operand(0).second);
}

void decodeShuffle(Form &f) {
  static const NamedValue modes[] = {
      {"up", Up}, {"down", Down}, {"bfly", Butterfly}, {"idx", Index}};
  requireSync(f);
  f.out.operation = uint8_t(f.choose(modes, Index));
  f.out.counter = &Totals::shuffles;
  destinationPair(f);
  for (size_t k : {1, 2, 3}) f.exactSource(k, Scalar::B32);
  emitCollective(f, 4, shuffle);
}
void decodeVote(Form &f) {
  static const NamedValue modes[] = {
      {"ballot", Ballot}, {"any", Any}, {"all", All}, {"uni", Uniform}};
  requireSync(f);
  f.out.operation = uint8_t(f.choose(modes, Ballot));
  bool isBallot = f.out.operation == Ballot;
  f.out.counter = isBallot ? &Totals::ballots : &Totals::votes;
  if (isBallot)
    f.exactDestination(0, Scalar::B32);
  else
    f.out.predicateDestination = f.predicateDestination(f.operand(0).name);
  f.predicateSource(1);
  emitCollective(f, 2, vote);
}
void decodeMatch(Form &f) {
  requireSync(f);
  f.out.option = f.has("all");
  f.out.counter = &Totals::matches;
  destinationPair(f);
  f.source(1, f.type());
  emitCollective(f, 2, match);
}
void decodeReduce(Form &f) {
  static const NamedValue rows[] = {{"add", ReduceAdd},     {"min", ReduceMinimum},
                                    {"max", ReduceMaximum}, {"and", ReduceAnd},
                                    {"or", ReduceOr},       {"xor", ReduceXor}};
  requireSync(f);
  if (f.type() == Scalar::F32) f.unsupported();
  f.out.operation = uint8_t(f.choose(rows, ReduceAdd));
  f.out.counter = &Totals::reductions;
  f.exactDestination(0, Scalar::B32);
  f.exactSource(1, Scalar::B32);
  emitCollective(f, 2, reduce);
}
void decodeElect(Form &f) {
  destinationPair(f);
  emitCollective(f, 1, elect);
}
void decodeActiveMask(Form &f) {
  f.exactDestination(0, Scalar::B32);
  f.emit(activeMask);
}

// ---- shared memory of other blocks of the cluster
void mapToRank(Context &c, const Instruction &i, LaneMask mask) {
  Lanes<uint64_t> a = c.readWide(i.source[0]), rank = c.readWide(i.source[1]);
  for (int lane = 0; lane < warpSize; lane++) {
    uint64_t withoutRank = a[lane] & ~(uint64_t(0xff) << sharedRankShift);
    a[lane] = withoutRank | ((rank[lane] & 0x7f) + 1) << sharedRankShift;
  }
  c.writeWide(i.destination[0], a, mask);
}
void rankOfAddress(Context &c, const Instruction &i, LaneMask mask) {
  Lanes<uint64_t> a = c.readWide(i.source[0]);
  for (uint64_t &value : a.v) {
    uint64_t code = value >> sharedRankShift & 0xff;
    value = code ? code - 1 : c.block->rank;
  }
  c.writeWide(i.destination[0], a, mask);
}
void decodeMap(Form &f) {
  f.destination(0);
  f.source(1, f.type());
  f.source(2, Scalar::U32);
  f.emit(mapToRank);
}
void decodeRankOfAddress(Form &f) {
  f.destination(0);
  f.source(1, f.type());
  f.emit(rankOfAddress);
}

const OpcodeRow rows[] = {{"shfl", decodeShuffle}, {"vote", decodeVote},
                          {"match", decodeMatch},  {"redux", decodeReduce},
                          {"elect", decodeElect},  {"activemask", decodeActiveMask},
                          {"mapa", decodeMap},     {"getctarank", decodeRankOfAddress}};

} // namespace

Table<OpcodeRow> warpOpcodes() { return tableOf(rows); }

} // namespace ptxrun
