// Per-kernel totals and per-instruction lines.
#include "profile.hpp"
#include "isa/source.hpp"
#include <cstdio>

namespace ptxrun {

namespace {

const Counter counterTable[] = {{"launches", &Totals::launches},
                                {"dependent_launches", &Totals::dependentLaunches},
                                {"warp_instructions", &Totals::warpInstructions},
                                {"thread_instructions", &Totals::threadInstructions},
                                {"partial_instructions", &Totals::partialInstructions},
                                {"branches", &Totals::branches},
                                {"divergent_branches", &Totals::divergentBranches},
                                {"barriers", &Totals::barriers},
                                {"collectives", &Totals::collectives},
                                {"ballots", &Totals::ballots},
                                {"votes", &Totals::votes},
                                {"shuffles", &Totals::shuffles},
                                {"matches", &Totals::matches},
                                {"reductions", &Totals::reductions},
                                {"warp_syncs", &Totals::warpSyncs},
                                {"load_requests", &Totals::loadRequests},
                                {"store_requests", &Totals::storeRequests},
                                {"atomic_requests", &Totals::atomicRequests},
                                {"load_sectors", &Totals::loadSectors},
                                {"store_sectors", &Totals::storeSectors},
                                {"atomic_sectors", &Totals::atomicSectors},
                                {"ideal_sectors", &Totals::idealSectors},
                                {"load_bytes", &Totals::loadBytes},
                                {"store_bytes", &Totals::storeBytes},
                                {"atomic_bytes", &Totals::atomicBytes},
                                {"shared_accesses", &Totals::sharedAccesses},
                                {"bank_conflicts", &Totals::bankConflicts},
                                {"atomics", &Totals::atomics},
                                {"serial_trips", &Totals::serialTrips}};

std::string quoted(const std::string &text) { // CSV
  std::string result = "\"";
  for (char ch : text) result += ch == '"' ? std::string("\"\"") : std::string(1, ch);
  return result + "\"";
}

std::string sourcePlace(const Kernel &kernel, const Instruction &i) {
  return lineOf(kernel, i.frame, true);
}

template <class Visit> void forEachLine(const Kernel &kernel, Visit visit) {
  for (size_t k = 0; k < kernel.code.size(); k++)
    if (kernel.profile[k].executions) visit(kernel.code[k], kernel.profile[k]);
}

} // namespace

Table<Counter> counters() { return tableOf(counterTable); }

void Totals::add(const Totals &other) {
  for (const Counter &counter : counterTable) this->*counter.value += other.*counter.value;
  seconds += other.seconds;
}

std::string profileText(const Kernel &kernel, bool lines) {
  std::string text = "kernel " + kernel.name + "\n";
  char row[256];
  for (const Counter &counter : counterTable) {
    std::snprintf(row, sizeof row, "  %-20s %llu\n", counter.name,
                  static_cast<unsigned long long>(kernel.totals.*counter.value));
    text += row;
  }
  if (!lines) return text;
  text +=
      "  executions    threads     actual      ideal diverged trips  instruction (actual/ideal: "
      "sectors, or bank cycles of shared memory)\n";
  forEachLine(kernel, [&](const Instruction &i, const Profile &p) {
    std::snprintf(
        row, sizeof row, "%12llu %10llu %10llu %10llu %8llu %5llu  ",
        static_cast<unsigned long long>(p.executions), static_cast<unsigned long long>(p.threads),
        static_cast<unsigned long long>(p.actual), static_cast<unsigned long long>(p.ideal),
        static_cast<unsigned long long>(p.divergences), static_cast<unsigned long long>(p.trips));
    text += row + ("ptx:" + std::to_string(i.line)) + " " + sourcePlace(kernel, i) + " " + i.text +
            "\n";
  });
  return text;
}

std::string profileCsvHeader() {
  std::string text = "record,kernel";
  for (const Counter &counter : counterTable) text += std::string(",") + counter.name;
  return text + "\nrecord,kernel,ptx_line,source,executions,threads,actual,ideal,divergences,"
                "trips,instruction\n";
}

std::string profileCsv(const Kernel &kernel) {
  std::string text = "kernel," + quoted(kernel.name);
  for (const Counter &counter : counterTable)
    text += "," + std::to_string(kernel.totals.*counter.value);
  text += "\n";
  forEachLine(kernel, [&](const Instruction &i, const Profile &p) {
    text += "line," + quoted(kernel.name) + "," + std::to_string(i.line) + "," +
            quoted(sourcePlace(kernel, i));
    for (uint64_t value : {p.executions, p.threads, p.actual, p.ideal, p.divergences, p.trips})
      text += "," + std::to_string(value);
    text += "," + quoted(i.text) + "\n";
  });
  return text;
}

} // namespace ptxrun
