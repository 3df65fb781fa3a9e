#!/bin/bash
# run.sh: the test programs of this folder, the reference against its oracles and the device against
# the reference. The last line is "N passed, N failed, N skipped".
#   CC=gcc NVCC=nvcc          compilers
#   TESTS="verify pack"       these programs or scripts only (default: all)
#   QUICK=1                   a subset of the cases everywhere
#   ALL_TEXTS=1               the laws of law.cu on ptxrun with all their texts, and nothing else
#   GENERATIONS="75 90"       of PTX, for ptxrun; sm_90 is the one that most run in full
#   JOBS=2                    runs at a time
#   SANITIZE=1                on a GPU: compute-sanitizer's four tools as well
#   BUILD=build  OUT=$BUILD/tests  where binaries and logs go
#
# Without nvcc: the reference alone, plain and under sanitizers. With nvcc and a GPU: the device on
# it. With nvcc alone: the device on tests/ptxrun, as sm_90 in full, and for each of these
# generations with a schedule that a GPU may choose but seldom does (warps out of lock-step, late
# stores, random block order).
cd "$(dirname "$0")/.." || exit 2
PATH="$PATH:/usr/local/cuda/bin"
CC=${CC:-gcc}
NVCC=${NVCC:-nvcc}
OUT=${OUT:-${BUILD:-build}/tests}
JOBS=${JOBS:-$(nproc 2>/dev/null || echo 2)}
QUICK=${QUICK:+--quick}
GENERATIONS=${GENERATIONS:-75 90}
[ -n "${ALL_TEXTS:-}" ] && TESTS=law GENERATIONS=90
# In the order of the header's families, then what goes through all of them.
PROGRAMS="verify numeric sample filters emitted law shards pack append pages trees tree_law tree_commit \
  tree_layout align gap schedule particles reshuffle stats engines chained seed bits counters fuzz"
# Further scripts that end with such a line: one word each.
SCRIPTS="flags.sh published.sh filters.sh failures.sh"
TESTS=${TESTS:-$PROGRAMS $SCRIPTS}
interpreter=tests/ptxrun/build
mkdir -p "$OUT/logs" && rm -f "$OUT"/logs/*
plan=$OUT/plan
: > "$plan"

has() { case " $1 " in *" $2 "*) return 0 ;; *) return 1 ;; esac }
skip() { # label, reason
  printf 'skipped %s: %s\n0 passed, 0 failed, 1 skipped\n' "$1" "$2" > "$OUT/logs/$1"
}
add() { # label, command: a run that ends with a result line
  printf '%s\t%s\n' "$1" "$2" >> "$plan"
}

# One line of the plan. A program's word counts only if its exit status agrees, so that a report of
# ptxrun (status 86) or of a sanitizer is a failure even where every check passed.
run_one() {
  local label=${1%%$'\t'*} command=${1#*$'\t'} log status start=$SECONDS
  log=$OUT/logs/$label
  timeout "${LIMIT:-900}" bash -c "$command" > "$log" 2>&1
  status=$?
  if [ $status -ne 0 ] && ! grep -qE '^[0-9]+ passed, [1-9][0-9]* failed' "$log"; then
    printf 'FAIL %s: exit status %d\n0 passed, 1 failed, 0 skipped\n' "$label" $status >> "$log"
  fi
  printf '%-28s %s (%d s)\n' "$label" \
    "$(grep -E '^[0-9]+ passed, [0-9]+ failed' "$log" | tail -n 1)" $((SECONDS - start))
  echo >> "$OUT/done"
  progress "$label"
}
# What tests/all.sh shows while this runs: how many of this plan's runs are done, and the last one.
progress() {
  echo "$(wc -l < "$OUT/done") of $of $phase${1:+, $1}" > "$OUT/progress.$$"
  mv "$OUT/progress.$$" "$OUT/progress"
}
run_plan() { # what its lines are
  phase=$1 of=$(wc -l < "$plan")
  : > "$OUT/done"
  progress
  export OUT LIMIT phase of
  export -f run_one progress
  [ -s "$plan" ] && tr '\n' '\0' < "$plan" | xargs -0 -P "$JOBS" -n 1 bash -c 'run_one "$0"'
  : > "$plan"
}

# ---- builds -------------------------------------------------------------------------------------

warnings="-Wall -Wextra -Wconversion -Wshadow"
c="-std=c99 -x c $warnings -I."
can_build() {
  echo 'int main(void) { return 0; }' | "$@" -x c - -o "$OUT/probe" 2> /dev/null && "$OUT/probe"
}
have_nvcc=$(command -v "$NVCC")
have_gpu=$(nvidia-smi -L 2> /dev/null | head -n 1)
asan="-fsanitize=address,undefined -fno-sanitize-recover=all"
msan="-fsanitize=memory"
can_build "$CC" $asan && have_asan=1
can_build clang $msan && have_msan=1

# A build that fails is one failure; one that succeeds is not counted.
build() { # label, command
  printf '%s\t%s\n' "build-$1" "$2 && echo '0 passed, 0 failed, 0 skipped'" >> "$plan"
}
if [ -n "$have_gpu" ]; then
  side=gpu
  nvcc="$NVCC -arch=native -O3 -lineinfo"
else # PTX alone, as ptxrun takes nothing else
  side=ptx
  nvcc="$NVCC -O3 -lineinfo -cudart shared -no-compress"
  for cc in $GENERATIONS; do nvcc="$nvcc -gencode arch=compute_$cc,code=compute_$cc"; done
fi
nvcc="$nvcc -Xcompiler -Wall,-Wextra,-Wconversion,-Wshadow -I."
[ -n "$have_nvcc" ] &&
  build "kernels-$side" "$nvcc -c tests/compile/kernels.cu -o $OUT/kernels-$side.o"
for name in $PROGRAMS; do
  has "$TESTS" "$name" && [ -z "${ALL_TEXTS:-}" ] || continue
  source=tests/$name.cu
  build "$name-c" "$CC -O2 $c $source -o $OUT/$name-c -lm"
  [ -n "$have_asan" ] && build "$name-asan" "$CC -g -O1 $asan $c $source -o $OUT/$name-asan -lm"
  [ -n "$have_msan" ] && build "$name-msan" "clang -g -O1 $msan $c $source -o $OUT/$name-msan -lm"
done
if [ -n "$have_nvcc" ] && [ -z "$have_gpu" ] && [ ! -f $interpreter/libcudart.so.13 ]; then
  if ! make -s -C tests/ptxrun > "$OUT/ptxrun.log" 2>&1; then
    tail "$OUT/ptxrun.log"
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
  fi
fi
run_plan builds | grep -v ' 0 failed'
for name in $PROGRAMS; do
  has "$TESTS" "$name" && [ -n "$have_nvcc" ] || continue
  kernels="-DT_LINKED $OUT/kernels-$side.o"
  grep -q '^#define T_INSIDE' tests/$name.cu && kernels="" # it calls what only the header knows
  build "$name-$side" "$nvcc tests/$name.cu $kernels -o $OUT/$name-$side"
done
run_plan builds | grep -v ' 0 failed'
grep -hE 'warning' "$OUT"/logs/build-* | sort | uniq -c | sort -rn | head -n 10

# ---- runs, the longest first --------------------------------------------------------------------

on_ptxrun() { # label, device, schedule, program and arguments
  add "$1" "LD_LIBRARY_PATH=$interpreter PTXRUN_EXIT=1 PTXRUN_DEVICE='$2' PTXRUN_OPTS='$3' $4"
}
for script in $SCRIPTS; do
  has "$TESTS" "$script" && add "$(basename "$script" .sh)" "bash tests/$script"
done
order="law sample filters emitted shards numeric fuzz trees tree_law pack seed verify align schedule"
for name in $PROGRAMS; do has "$order" "$name" || order="$order $name"; done # the others are short
for name in $order; do
  has "$TESTS" "$name" || continue
  if [ -z "$have_nvcc" ]; then
    skip "$name-device" "no nvcc"
  elif [ -n "$have_gpu" ]; then
    add "$name-gpu" "$OUT/$name-gpu $QUICK"
    for tool in ${SANITIZE:+memcheck racecheck initcheck synccheck}; do
      add "$name-$tool" "compute-sanitizer --tool $tool --error-exitcode 86 $OUT/$name-gpu --quick"
    done
  else
    few=$QUICK
    case $name in law | filters | emitted | shards | trees) few=--quick ;; esac # in full in C: minutes, here
    [ -n "${ALL_TEXTS:-}" ] && few=
    on_ptxrun "$name-sm_90" cc=90 "" "$OUT/$name-ptx $few"
  fi
done
others= # generations that have schedules of a GPU alone
for cc in $GENERATIONS; do [ $cc = 90 ] || others="$others $cc"; done
for name in $order; do
  has "$TESTS" "$name" && [ -n "$have_nvcc" ] && [ -z "$have_gpu" ] || continue
  [ -z "${ALL_TEXTS:-}" ] || continue
  if [ "$name" = counters ]; then # other schedules divide instructions differently
    for cc in $GENERATIONS; do
      [ $cc = 90 ] || on_ptxrun "$name-sm_$cc" cc=$cc "" "$OUT/$name-ptx --quick"
    done
    continue
  fi
  seed=0
  for cc in 90 $others; do
    seed=$((seed + 1))
    on_ptxrun "$name-seed$seed" cc=$cc "seed=$seed weak=1 split=20 order=random" \
      "$OUT/$name-ptx --quick --seed ${seed}000"
  done
done
for name in $order; do
  has "$TESTS" "$name" && [ -z "${ALL_TEXTS:-}" ] || continue
  add "$name-c" "$OUT/$name-c"
  few=""
  # Laws need many texts, faults of memory do not.
  case $name in law | tree_law | filters | emitted | shards) few=--quick ;; esac
  if [ -n "$have_asan" ]; then add "$name-asan" "$OUT/$name-asan $few"
  else skip "$name-asan" "$CC has no AddressSanitizer"; fi
  if [ -n "$have_msan" ]; then add "$name-msan" "$OUT/$name-msan --quick" # slower, and every shape is there
  else skip "$name-msan" "no clang with MemorySanitizer"; fi
done
run_plan runs

# ---- the sum ------------------------------------------------------------------------------------

# Every failure once: in how many runs; of the first ones what was seen, in which case, in which log.
awk '
  FNR == 1 { details = 0 }
  /^(FAIL|\[ptxrun\] REPORT|SUMMARY)/ {
    if (!runs[$0]++) { order[++num] = $0; log_of[$0] = FILENAME; details = 2; last = $0; next }
    details = 0
  }
  details > 0 && /^     / { seen[last] = seen[last] "        " $0 "\n"; --details; next }
  { details = 0 }
  END {
    for (i = 1; i <= num && i <= 40; ++i) {
      printf "%7d %s\n", runs[order[i]], order[i]
      if (i <= 8) printf "%s             first in %s\n", seen[order[i]], log_of[order[i]]
    }
    if (num > 40) printf "        and %d others\n", num - 40
  }' "$OUT"/logs/*
grep -hE '^skipped ' "$OUT"/logs/* | sort -u
cat "$OUT"/logs/* | awk '
  /^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$/ { passed += $1; failed += $3; skipped += $5 }
  END {
    if (passed + failed == 0) failed = 1
    printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped
    exit failed > 0
  }'
