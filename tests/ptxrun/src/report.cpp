// The table of faults, and the collection of reports.
#include "report.hpp"
#include "base.hpp"
#include <algorithm>

namespace ptxrun {

namespace {
const FaultInfo faultTable[] = {
    {"oob-global", false, false, "global access outside every live allocation"},
    {"oob-shared", false, false, "shared access outside the block's shared memory"},
    {"oob-local", false, false, "local access outside the thread's local memory"},
    {"oob-param", false, false, "access outside the kernel's parameters"},
    {"misaligned", false, false, "address is no multiple of the access size"},
    {"write-param", false, false, "store to a kernel parameter"},
    {"uninit-shared", false, false, "read of shared memory nobody has written"},
    {"uninit-global", false, false, "read of cudaMalloc memory nobody has written"},
    {"note-undef-reg", false, true, "read of a register no instruction has written"},
    {"race-shared", false, false,
     "shared accesses of two threads with no barrier or fence chain between"},
    {"race-global", false, false,
     "plain global accesses of two blocks with no fence chain between, or of two threads of a "
     "block with no barrier either"},
    {"race-global-mixed", false, false, "as race-global, one side volatile or atomic"},
    {"pdl-unordered", false, false,
     "access to data of an overlapping earlier launch before griddepcontrol.wait"},
    {"shfl-inactive-source", false, false, "shuffle reads a lane that does not take part"},
    {"mask-without-self", false, false, "a lane executes a collective whose mask lacks it"},
    {"mask-names-exited-lane", false, false, "a collective's mask names a lane that has exited"},
    {"barrier-divergent", false, false, "threads meet at different barrier instructions"},
    {"barrier-after-exit", false, false, "some threads exited before the barrier"},
    {"barrier-invalid", true, false, "mbarrier used before init or beyond its count"},
    {"deadlock", true, false, "no lane can go on"},
    {"livelock", true, false, "lanes run, but nothing changes any more"},
    {"trap", true, false, "trap or failed assert"},
    {"brx-range", true, false, "index outside the branch table"},
    {"hang", true, false, "instruction limit reached (maxinsn)"},
    {"timeout", true, false, "wall-clock limit reached (maxseconds)"},
    {"bad-free", false, false, "free of an address that is no live allocation"},
};
}

const FaultInfo &faultInfo(Fault fault) { return faultTable[size_t(fault)]; }

namespace {

std::string listed(const std::map<std::string, size_t> &kinds) {
  std::string text;
  for (const auto &entry : kinds)
    text += (text.empty() ? "" : ", ") + std::to_string(entry.second) + " " + entry.first;
  return text;
}

// "lanes 0-7,16"
std::string lanesText(LaneMask mask) {
  std::string text = mask & (mask - 1) ? "lanes " : "lane ";
  for (bool first = true; mask; first = false) {
    int begin = firstLane(mask), end = begin;
    while (end + 1 < warpSize && hasLane(mask, end + 1)) end++;
    text += (first ? "" : ",") + std::to_string(begin);
    if (end > begin) text += "-" + std::to_string(end);
    for (int lane = begin; lane <= end; lane++) mask &= ~laneBit(lane);
  }
  return text;
}

std::string threadsText(const Witness &witness) {
  uint32_t base = witness.warp * warpSize, first = base + uint32_t(firstLane(witness.lanes)),
           last = base + uint32_t(lastLane(witness.lanes));
  if (first == last) return "thread " + std::to_string(first);
  return "threads " + std::to_string(first) + " to " + std::to_string(last);
}

} // namespace

std::string reportCounts(const std::vector<Report> &reports, size_t shown) {
  std::map<std::string, size_t> faults, notes;
  size_t total = 0;
  for (const Report &report : reports) {
    (report.note ? notes : faults)[report.kind]++;
    total += !report.note;
  }
  std::string text = total ? counted(total, "report") + " (" + listed(faults) + ")" : "no reports";
  if (!notes.empty()) text += ", " + listed(notes);
  if (reports.size() > shown)
    text += ", only the first " + std::to_string(shown) + " shown (maxerr)";
  return text;
}

void Reporter::add(Fault fault, const std::string &scope, uint64_t place, uint32_t variant,
                   const Witness &witness, const std::function<Finding()> &words) {
  const FaultInfo &info = faultInfo(fault);
  fatalSeen |= info.fatal;
  auto inserted = indexOf.insert({{fault, scope, place, variant}, reports.size()});
  size_t index = inserted.first->second;
  if (inserted.second) {
    reports.push_back({info.kind, "", 0, info.fatal, info.note});
    open[index] = {words(), witness, witness.span.address, 0, {}};
  }
  reports[index].count++;
  auto found = open.find(index);
  if (found == open.end() || !witness.lanes) return; // its launch is over, its text complete
  Open &report = found->second;
  report.warps.insert(uint64_t(witness.block) << 32 | witness.warp);
  if (witness.block != report.first.block || witness.warp != report.first.warp) return;
  report.first.lanes |= witness.lanes;
  report.begin = std::min(report.begin, witness.span.address);
  report.end = std::max(report.end, witness.span.address + witness.span.bytes);
}

void Reporter::close() {
  for (const auto &entry : open) {
    const Open &from = entry.second;
    const Finding &f = from.finding;
    Report &report = reports[entry.first];
    report.text = report.kind + ": " + (f.line.empty() ? "" : f.line + ": ") + f.what;
    if (!from.first.lanes) continue;
    std::string who = "kernel " + f.kernel + ", block " + f.block + ", warp " +
                      std::to_string(from.first.warp) + ", " + lanesText(from.first.lanes) + " (" +
                      threadsText(from.first) + ")";
    bool several = from.end - from.begin > from.first.span.bytes;
    if (several) who += ", addresses " + hex(from.begin) + " to " + hex(from.end - 1);
    if (from.warps.size() > 1) who += "; " + counted(from.warps.size() - 1, "other warp");
    if (report.count > std::max<uint64_t>(from.warps.size(), countLanes(from.first.lanes)))
      who += "; " + std::to_string(report.count) + " times in all";
    report.text += (report.note ? "; " : "\n    ") + who;
    for (const std::string &detail : f.details)
      if (!report.note) report.text += "\n    " + detail;
  }
  open.clear();
}

void Reporter::beginLaunch() {
  close();
  fatalSeen = false;
}

std::vector<Report> Reporter::list() {
  close();
  return reports;
}

void Reporter::clear() {
  indexOf.clear();
  reports.clear();
  open.clear();
}

} // namespace ptxrun
