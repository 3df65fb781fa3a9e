// Runs one warp for a while: picks a group of lanes at one pc, executes it, lets groups meet again.
//
// Every lane has its own pc (independent thread scheduling).  Normally the group with the lowest
// pc runs first, which reconverges structured code; a seed or an exhausted quantum picks others,
// so that lanes that wait for each other make progress.
#pragma once
#include "state.hpp"

namespace ptxrun {

class WarpRunner {
public:
  explicit WarpRunner(Context &context) : c(context), code(context.kernel.code) {}
  bool run(Block &, Warp &, uint32_t budget); // true when any instruction was executed

private:
  struct Group {
    uint32_t pc;
    LaneMask mask;          // lanes that run together
    uint32_t meetAt;        // lowest pc above ours where other runnable lanes wait
    bool dissolved = false; // the lanes' own pcs are up to date again
  };

  Context &c;
  std::vector<Instruction> &code;
  Block *block = nullptr;
  Warp *warp = nullptr;
  bool preferOther = false; // the last group used up its quantum while others waited

  Group chooseGroup();
  uint32_t quantumFor(const Group &, uint32_t budget);
  void execute(Group &, const Instruction &, LaneMask active);
  void branch(Group &, const Instruction &, LaneMask active);
  void branchTable(Group &, const Instruction &, LaneMask active);
  void exitLanes(Group &, LaneMask active);
  void collective(Group &, const Instruction &, LaneMask active);
  void barrier(Group &, const Instruction &, LaneMask active);
  void clusterWait(Group &, LaneMask active);
  void dissolve(Group &, LaneMask stays); // `stays` keep this pc, the rest goes to the next one
  void runCollective(const Instruction &, LaneMask active);
  void tryCollectives();
  bool tryCollective(int lane);
  void checkDefined(const Instruction &, LaneMask active);
  void readUndefined(const Instruction &, int operand, LaneMask active);
  void runHandler(const Instruction &, LaneMask active);
};

} // namespace ptxrun
