// Branches, calls, barriers, clocks, and device-side printf and assert.
#include "../machine/access.hpp"
#include "../machine/barrier.hpp"
#include "../machine/global_races.hpp"
#include "decoder.hpp"
#include <cstdio>

namespace ptxrun {

void readClock(Context &c, const Instruction &i, LaneMask mask) {
  Lanes<uint64_t> now;
  for (uint64_t &value : now.v) value = c.clock;
  c.writeWide(i.destination[0], now, mask);
}

namespace {

void nothing(Context &, const Instruction &, LaneMask) {}
void decodeNothing(Form &f) { f.emit(nothing); }

void decodeBranch(Form &f) {
  f.out.flow = Flow::Branch;
  f.decoder.appendBranch(std::move(f.out), f.operand(0).name);
}
void decodeBranchTable(Form &f) {
  f.out.flow = Flow::BranchTable;
  f.exactSource(0, Scalar::U32);
  f.decoder.appendBranchTable(std::move(f.out), f.operand(1).name);
}
void decodeExit(Form &f) {
  f.out.flow = Flow::Exit;
  f.emit(nullptr);
}
void decodeReturn(Form &f) { f.decoder.appendReturn(std::move(f.out)); }
void decodeTrap(Form &f) {
  f.out.flow = Flow::Trap;
  f.emit(nullptr);
}
void decodeSleep(Form &f) {
  f.out.flow = Flow::Yield;
  f.emit(nullptr);
}

// ---- barriers
void joinClocks(Context &c, const Instruction &, LaneMask mask) {
  c.block->order.syncWarp(c.warp->order, mask);
  if (c.warp->afterEarlierLaunches & mask) c.warp->afterEarlierLaunches |= mask;
}

void decodeWarpBarrier(Form &f) {
  f.out.flow = Flow::Collective;
  f.out.counter = &Totals::warpSyncs;
  f.exactSource(0, Scalar::B32);
  f.emit(joinClocks);
}
void decodeClusterBarrier(Form &f) {
  if (f.has("wait")) {
    f.out.flow = Flow::ClusterWait;
    return f.emit(nullptr);
  }
  f.out.release = !f.has("relaxed");
  f.out.arrivesAtCluster = true;
  f.emit(arriveAtCluster);
}
void decodeBlockBarrier(Form &f) { // [d,] a [, b] [, p]
  static const NamedValue operations[] = {{"arrive", int(BarrierOperation::Arrive)},
                                          {"red", int(BarrierOperation::Reduce)}};
  static const NamedValue combinations[] = {{"and", int(Combine::And)}, {"or", int(Combine::Or)}};
  f.out.flow = Flow::Barrier;
  f.out.operation = uint8_t(f.choose(operations, int(BarrierOperation::Sync)));
  bool reduces = BarrierOperation(f.out.operation) == BarrierOperation::Reduce;
  size_t next = 0, end = f.operandCount();
  if (reduces) {
    f.out.combine = Combine(f.choose(combinations, int(Combine::None))); // None: count
    if (f.type() == Scalar::Predicate)
      f.out.predicateDestination = f.predicateDestination(f.operand(0).name);
    else
      f.exactDestination(0, Scalar::U32);
    f.predicateSource(--end);
    next = 1;
  }
  if (next < end)
    f.source(next++, Scalar::U32);
  else
    f.constantSource(0);
  if (next < end) f.source(next++, Scalar::U32);
  f.emit(nullptr);
}
void decodeBarrier(Form &f) {
  if (f.has("warp"))
    decodeWarpBarrier(f);
  else if (f.has("cluster"))
    decodeClusterBarrier(f);
  else
    decodeBlockBarrier(f);
}

// ---- programmatic dependent launch
void waitForEarlierLaunches(Context &c, const Instruction &, LaneMask mask) {
  c.warp->afterEarlierLaunches |= mask;
  if (!c.block->releasedDependents) c.globalRaces.waitsBeforeRelease();
}
void releaseDependents(Context &c, const Instruction &, LaneMask) {
  c.block->releasedDependents = true;
  c.globalRaces.releases();
}
void decodeGridControl(Form &f) {
  f.emit(f.has("wait") ? waitForEarlierLaunches : releaseDependents);
}

// ---- printf: the arguments are packed in the caller's local memory like C variadic arguments
class Formatter {
public:
  Formatter(const char *formatText, const uint8_t *argumentBytes)
      : format(formatText), arguments(argumentBytes) {}
  std::string run() {
    while (*format) {
      if (*format == '%')
        conversion();
      else
        text += *format++;
    }
    return std::move(text);
  }

private:
  const char *format;
  const uint8_t *arguments;
  size_t used = 0;
  std::string text;

  template <class T> T take() {
    used = roundUp(used, sizeof(T));
    T value;
    std::memcpy(&value, arguments + used, sizeof value);
    used += sizeof value;
    return value;
  }
  template <class T> void print(const std::string &specification, T value) {
    char buffer[512];
    std::snprintf(buffer, sizeof buffer, specification.c_str(), value);
    text += buffer;
  }
  void conversion() {
    std::string specification(1, *format++);
    bool isLong = false;
    while (*format && !std::strchr("diouxXeEfgGaAcsp%", *format)) {
      isLong |= *format == 'l' || *format == 'z' || *format == 'j' || *format == 't';
      specification += *format++;
    }
    char kind = *format;
    if (kind) specification += *format++;
    if (kind == '%')
      text += '%';
    else if (kind && std::strchr("eEfgGaA", kind))
      print(specification, take<double>());
    else if (kind == 's')
      print(specification, reinterpret_cast<const char *>(take<uint64_t>()));
    else if (kind == 'p')
      print(specification, reinterpret_cast<void *>(take<uint64_t>()));
    else if (isLong)
      print(specification, take<unsigned long long>());
    else if (kind)
      print(specification, take<unsigned>());
  }
};

uint8_t *localBytes(Context &c, int lane, int64_t offset) {
  return c.warp->local.data() + uint64_t(lane) * c.kernel.info.localBytes + uint64_t(offset);
}

// offset: where the caller keeps the format pointer; offset2: the pointer to the packed arguments
void printFormatted(Context &c, const Instruction &i, LaneMask mask) {
  forEachLane(mask, [&](int lane) {
    uint64_t format, arguments;
    std::memcpy(&format, localBytes(c, lane, i.offset), sizeof format);
    std::memcpy(&arguments, localBytes(c, lane, i.offset2), sizeof arguments);
    const uint8_t *packed =
        arguments ? localBytes(c, lane, int64_t(arguments - localWindow)) : nullptr;
    std::string text = Formatter(reinterpret_cast<const char *>(format), packed).run();
    std::fputs(text.c_str(), stdout);
  });
}

void decodeCall(Form &f) { // call (results), name, (arguments)
  static const std::vector<std::string> none;
  bool returns = f.operand(0).kind == Operand::Kind::List;
  const Operand &callee = f.operand(returns);
  const auto &results = returns ? f.operand(0).elements : none;
  const auto &arguments =
      f.operandCount() > size_t(returns) + 1 ? f.operand(size_t(returns) + 1).elements : none;
  if (callee.name == "__assertfail") {
    f.out.text = "assert failed";
    return decodeTrap(f);
  }
  if (callee.name != "vprintf") return f.decoder.inlineCall(f, callee.name, arguments, results);
  SymbolReference format, packed;
  if (arguments.size() < 2 || !f.decoder.findSymbol(arguments[0], format) ||
      !f.decoder.findSymbol(arguments[1], packed))
    f.malformed("vprintf arguments");
  f.out.offset = int64_t(format.offset);
  f.out.offset2 = int64_t(packed.offset);
  f.emit(printFormatted);
}

const OpcodeRow rows[] = {{"bra", decodeBranch},
                          {"brx", decodeBranchTable},
                          {"exit", decodeExit},
                          {"ret", decodeReturn},
                          {"trap", decodeTrap},
                          {"brkpt", decodeTrap},
                          {"nanosleep", decodeSleep},
                          {"bar", decodeBarrier},
                          {"barrier", decodeBarrier},
                          {"call", decodeCall},
                          {"griddepcontrol", decodeGridControl},
                          {"setmaxnreg", decodeNothing},
                          {"pmevent", decodeNothing}};

} // namespace

Table<OpcodeRow> controlOpcodes() { return tableOf(rows); }

} // namespace ptxrun
