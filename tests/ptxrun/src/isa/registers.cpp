// PTX gives every value a register of its own: tens of thousands, of which few hold something at a
// time. Here those that never do at the same time get one place, so that a warp's registers stay in
// the cache of the host.
//
// A value is live where some path from there reads it before it writes it. What may be read before
// it was written is live from the start, shares its place with nothing before that, and is still
// reported. A guarded write ends nothing: the other lanes keep what they had.
#include "registers.hpp"
#include <algorithm>
#include <map>
#include <queue>

namespace ptxrun {

namespace {

Values valuesOf(const Instruction &i) {
  Values values;
  for (int k = 0; k < i.sources; k++) values.source[k] = i.source[k].index;
  for (int k = 0; k < i.destinations; k++) values.destination[k] = i.destination[k].index;
  PredicateIndex read[] = {i.guard, i.predicateSource, i.predicateSource2};
  PredicateIndex written[] = {i.predicateDestination, i.predicateDestination2};
  std::copy(std::begin(read), std::end(read), values.predicateSource);
  std::copy(std::begin(written), std::end(written), values.predicateDestination);
  return values;
}

struct Mention {
  uint32_t at;          // instruction
  bool reads, replaces; // all that was there
};

struct Value {
  uint32_t first = UINT32_MAX, last = 0; // instructions between which it is live, both included
  uint32_t size = 0;                     // units of the file
  std::vector<Mention> mentions;         // in the order of the code

  void reach(uint32_t at) {
    first = std::min(first, at);
    last = std::max(last, at);
  }
};

struct Flowchart {                      // the code in blocks without jumps
  std::vector<uint32_t> blockOf, begin; // begin has one more: the end of the last
  std::vector<std::vector<uint32_t>> before;

  explicit Flowchart(const std::vector<Instruction> &code) {
    std::vector<bool> leads(code.size() + 1, false);
    leads[0] = true;
    for (uint32_t at = 0; at < code.size(); at++) {
      const Instruction &i = code[at];
      if (i.flow == Flow::Branch) leads[i.target] = true;
      for (uint32_t target : i.table) leads[target] = true;
      if (ends(i)) leads[at + 1] = true;
    }
    for (uint32_t at = 0; at < code.size(); at++) {
      if (leads[at]) begin.push_back(at);
      blockOf.push_back(uint32_t(begin.size()) - 1);
    }
    begin.push_back(uint32_t(code.size()));
    before.resize(begin.size());
    for (uint32_t block = 0; block + 1 < begin.size(); block++) {
      const Instruction &i = code[begin[block + 1] - 1];
      auto leadsTo = [&](uint32_t target) {
        if (target < code.size()) before[blockOf[target]].push_back(block);
      };
      if (i.flow == Flow::Branch) leadsTo(i.target);
      for (uint32_t target : i.table) leadsTo(target);
      // An index outside of a table is reported, and goes on.
      if (i.guard != noPredicate || (i.flow != Flow::Branch && i.flow != Flow::Exit))
        leadsTo(begin[block + 1]);
    }
  }
  static bool ends(const Instruction &i) {
    return i.flow == Flow::Branch || i.flow == Flow::BranchTable || i.flow == Flow::Exit;
  }
};

class Liveness {
public:
  explicit Liveness(const Flowchart &from)
      : chart(from), enters(from.before.size(), 0), leaves(from.before.size(), 0),
        replaced(from.before.size(), 0) {}

  void find(Value &value) {
    round++;
    for (const Mention &mention : value.mentions) {
      uint32_t block = chart.blockOf[mention.at];
      value.reach(mention.at);
      if (mention.reads && replaced[block] != round) enter(value, block);
      if (mention.replaces) replaced[block] = round;
    }
    while (!waiting.empty()) {
      uint32_t block = waiting.back();
      waiting.pop_back();
      for (uint32_t previous : chart.before[block]) {
        if (leaves[previous] == round) continue;
        leaves[previous] = round;
        value.reach(chart.begin[previous + 1] - 1);
        if (replaced[previous] != round) enter(value, previous);
      }
    }
  }

private:
  const Flowchart &chart;
  std::vector<uint32_t> enters, leaves, replaced; // the round in which a block was last seen to
  std::vector<uint32_t> waiting;
  uint32_t round = 0;

  void enter(Value &value, uint32_t block) {
    if (enters[block] == round) return;
    enters[block] = round;
    value.reach(chart.begin[block]);
    waiting.push_back(block);
  }
};

// One kind of registers: what is live when, by the index that the decoder gave, and then where it
// is.
class File {
public:
  explicit File(uint32_t indices) : values(indices), place(indices, 0) {}

  // Nothing writes it: it is there from the start, in front of all others.
  void keep(int32_t index, uint32_t units) {
    values[size_t(index)].size = 0;
    place[size_t(index)] = int32_t(size);
    size += units;
    kept.push_back(index);
  }
  void read(int32_t index, uint32_t units, uint32_t at) {
    mention(index, units, {at, true, false});
  }
  void write(int32_t index, uint32_t units, uint32_t at, bool all) {
    mention(index, units, {at, false, all});
  }

  // In the order in which they begin, each takes a place that is free by then.
  void assign(const Flowchart &chart) {
    for (int32_t index : kept) values[size_t(index)].mentions.clear();
    Liveness liveness(chart);
    std::vector<uint32_t> order;
    for (uint32_t k = 0; k < values.size(); k++)
      if (!values[k].mentions.empty()) {
        liveness.find(values[k]);
        order.push_back(k);
      }
    std::stable_sort(order.begin(), order.end(),
                     [&](uint32_t a, uint32_t b) { return values[a].first < values[b].first; });
    using End = std::pair<uint32_t, uint32_t>; // last instruction, value
    std::priority_queue<End, std::vector<End>, std::greater<End>> live;
    std::map<uint32_t, std::vector<int32_t>> free; // by size
    for (uint32_t k : order) {
      for (; !live.empty() && live.top().first < values[k].first; live.pop()) {
        uint32_t over = live.top().second;
        free[values[over].size].push_back(place[over]);
      }
      std::vector<int32_t> &fitting = free[values[k].size];
      if (fitting.empty()) {
        fitting.push_back(int32_t(size));
        size += values[k].size;
      }
      place[k] = fitting.back();
      fitting.pop_back();
      live.push({values[k].last, k});
    }
  }
  int32_t placeOf(int32_t index) const { return index < 0 ? index : place[size_t(index)]; }
  uint32_t units() const { return size; }

private:
  std::vector<Value> values;
  std::vector<int32_t> place, kept;
  uint32_t size = 0;

  void mention(int32_t index, uint32_t units, Mention what) {
    if (index < 0) return;
    values[size_t(index)].size = units;
    values[size_t(index)].mentions.push_back(what);
  }
};

uint32_t unitsOf(const RegisterOperand &operand) { return operand.bytes * warpSize / registerUnit; }

} // namespace

void shareRegisters(Kernel &kernel) {
  File registers(kernel.registerUnits), predicates(kernel.predicates);
  for (const PresetRegister &preset : kernel.presets)
    registers.keep(preset.reg.index, unitsOf(preset.reg));
  for (const auto &special : kernel.specials)
    registers.keep(special.first.index, unitsOf(special.first));
  predicates.keep(truePredicate, 1);
  predicates.keep(falsePredicate, 1);

  for (uint32_t at = 0; at < kernel.code.size(); at++) {
    const Instruction &i = kernel.code[at];
    bool all = i.guard == noPredicate;
    for (int k = 0; k < i.sources; k++) registers.read(i.source[k].index, unitsOf(i.source[k]), at);
    for (PredicateIndex p : {i.guard, i.predicateSource, i.predicateSource2})
      predicates.read(p, 1, at);
    for (int k = 0; k < i.destinations; k++)
      registers.write(i.destination[k].index, unitsOf(i.destination[k]), at, all);
    for (PredicateIndex p : {i.predicateDestination, i.predicateDestination2})
      predicates.write(p, 1, at, all);
  }
  Flowchart chart(kernel.code);
  registers.assign(chart);
  predicates.assign(chart);

  kernel.values.reserve(kernel.code.size());
  for (Instruction &i : kernel.code) {
    kernel.values.push_back(valuesOf(i));
    for (int k = 0; k < i.sources; k++) i.source[k].index = registers.placeOf(i.source[k].index);
    for (int k = 0; k < i.destinations; k++)
      i.destination[k].index = registers.placeOf(i.destination[k].index);
    for (PredicateIndex *p : {&i.guard, &i.predicateSource, &i.predicateSource2,
                              &i.predicateDestination, &i.predicateDestination2})
      *p = predicates.placeOf(*p);
  }
  for (PresetRegister &preset : kernel.presets)
    preset.reg.index = registers.placeOf(preset.reg.index);
  for (auto &special : kernel.specials)
    special.first.index = registers.placeOf(special.first.index);
  kernel.registerValues = kernel.registerUnits;
  kernel.predicateValues = kernel.predicates;
  kernel.registerUnits = registers.units();
  kernel.predicates = predicates.units();
}

} // namespace ptxrun
