// Per-kernel totals and per-instruction lines, as text for people and as CSV for programs.
#pragma once
#include "isa/form.hpp"
#include <string>

namespace ptxrun {

struct Counter { // one row of the table of counters
  const char *name;
  uint64_t Totals::*value;
};
Table<Counter> counters();

std::string profileText(const Kernel &kernel, bool lines);
std::string profileCsvHeader();
std::string
profileCsv(const Kernel &kernel); // one "kernel" row, then one "line" row per instruction

} // namespace ptxrun
