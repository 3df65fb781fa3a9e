#!/bin/bash
# run.sh [--first | --rest]: the test programs of this folder, the reference against its oracles and
# the device against the reference. The last line is "N passed, N failed, N skipped".
#   --first                   every program, the long ones and the device with the quick cases
#   --rest                    what --first leaves out: sanitizers, flags, schedules, all cases
#   CC=gcc NVCC=nvcc          compilers
#   TESTS="verify pack"       these programs or scripts only (default: all)
#   QUICK=1                   a subset of the cases everywhere
#   ALL_TEXTS=1               the laws of law.cu on ptxrun with all their texts, and nothing else
#   GENERATIONS="75 90"       of PTX, for ptxrun; the last is the one that most run in full
#   JOBS=2                    runs at a time
#   SANITIZE=1                on a GPU: compute-sanitizer's four tools as well
#   BUILD=build  OUT=$BUILD/tests  where binaries and logs go
#
# Without nvcc: the reference alone, plain and under sanitizers. With nvcc and a GPU: the device on
# it. With nvcc alone: the device on tests/ptxrun, as the last of these generations in full, and as each
# with a schedule that a GPU may choose but seldom does (warps out of lock-step, late
# stores, random block order). Without an option, and wherever TESTS chooses programs: all of it.
cd "$(dirname "$0")/.." || exit 2
PATH="$PATH:/usr/local/cuda/bin"
CC=${CC:-gcc}
NVCC=${NVCC:-nvcc}
OUT=${OUT:-${BUILD:-build}/tests}
JOBS=${JOBS:-$(nproc 2>/dev/null || echo 2)}
QUICK=${QUICK:+--quick}
GENERATIONS=${GENERATIONS:-75 90}
[ -n "${ALL_TEXTS:-}" ] && TESTS=law GENERATIONS=90
first=1 rest=1 # which of the two halves
case ${TESTS:+all}${1:-} in --first) rest= ;; --rest) first= ;; esac
# In the order of the header's families, then what goes through all of them.
PROGRAMS="verify numeric sample filters emitted lossy law shards pack append pages trees tree_law tree_commit \
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
# gcc guesses wrong about loops of no turns once it instruments them; clang has no such word.
can_build "$CC" $asan -Werror -Wno-maybe-uninitialized && asan="$asan -Wno-maybe-uninitialized"
can_build "$CC" $asan && have_asan=1
can_build clang $msan && have_msan=1

# A build that fails is one failure; one that succeeds is not counted. --rest takes what --first made
# of the same sources.
newer_than_sources() {
  [ -z "$first" ] && [ -s "$1" ] &&
    [ -z "$(find specverify.cuh specverify_ref.h tests/*.cu tests/*.h tests/compile tests/run.sh -newer "$1")" ]
}
build() { # file, command
  newer_than_sources "$OUT/$1" ||
    printf '%s\t%s\n' "build-$1" "$2 -o $OUT/$1 && echo '0 passed, 0 failed, 0 skipped'" >> "$plan"
}
inside() { grep -qw '^#define T_INSIDE' "tests/$1.cu"; } # it calls what only the headers know
# Kernels and reference, built once, and the command that links them to a program.
linked() { # program, object files
  inside "$1" || echo "-DT_LINKED ${*:2}"
}
full=sm_${GENERATIONS##* }
sides= # each has kernels and programs of its own
if [ -n "$have_gpu" ]; then
  sides=gpu
elif [ -n "$have_nvcc" ]; then
  for cc in ${rest:+$GENERATIONS}; do sides="$sides sm_$cc"; done
  sides=${sides:-$full}
fi
compiler() { # side
  case $1 in
    gpu) echo "$NVCC -arch=native $nvcc" ;;
    *) # PTX alone, as ptxrun takes nothing else
      local compute=compute_${1#sm_}
      echo "$NVCC -cudart shared -no-compress -gencode arch=$compute,code=$compute $nvcc" ;;
  esac
}
nvcc="-O3 -lineinfo -Xcompiler -Wall,-Wextra,-Wconversion,-Wshadow -I."
modes=c # of the reference: plain, and under sanitizers
flags_of() {
  case $1 in
    c) echo "$CC -O2 $c" ;;
    asan) echo "$CC -g -O1 $asan $c" ;;
    msan) echo "clang -g -O1 $msan $c" ;;
  esac
}
[ -n "$have_asan" ] && [ -n "$rest" ] && modes="$modes asan"
[ -n "$have_msan" ] && [ -n "$rest" ] && modes="$modes msan"
[ -n "${ALL_TEXTS:-}" ] && modes=
for side in $sides; do build "kernels-$side.o" "$(compiler $side) -c tests/compile/kernels.cu"; done
for mode in $modes; do build "kernels-$mode.o" "$(flags_of $mode) -c tests/compile/kernels.cu"; done
if [ -n "$have_nvcc" ] && [ -z "$have_gpu" ] && [ ! -f $interpreter/libcudart.so.13 ]; then
  if ! make -s -C tests/ptxrun OUT="$PWD/$interpreter" > "$OUT/ptxrun.log" 2>&1; then
    tail "$OUT/ptxrun.log"
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
  fi
fi
build_program() {
  local side mode
  for side in $sides; do
    build "$1-$side" "$(compiler $side) tests/$1.cu $(linked $1 "$OUT/kernels-$side.o")"
  done
  for mode in $modes; do
    build "$1-$mode" "$(flags_of $mode) tests/$1.cu $(linked $1 "-x none $OUT/kernels-$mode.o") -lm"
  done
}
for name in $PROGRAMS; do # beside the kernels, which take as long
  has "$TESTS" "$name" && inside $name && build_program $name
done
run_plan builds | grep -v ' 0 failed'
for name in $PROGRAMS; do
  has "$TESTS" "$name" && ! inside $name && build_program $name
done
run_plan builds | grep -v ' 0 failed'
grep -hE 'warning' "$OUT"/logs/build-* | sort | uniq -c | sort -rn | head -n 10

# ---- runs, the longest first --------------------------------------------------------------------

on_ptxrun() { # label, side, schedule, program and its arguments
  local name=${4%% *}
  add "$1" "LD_LIBRARY_PATH=$interpreter PTXRUN_EXIT=1 PTXRUN_DEVICE=cc=${2#sm_} PTXRUN_OPTS='$3' \
    $OUT/$name-$2 ${4#"$name"}"
}
for script in $SCRIPTS; do
  [ "$script" = flags.sh ] && half=$rest || half=$first # many builds
  [ -n "$half" ] && has "$TESTS" "$script" && add "$(basename "$script" .sh)" "bash tests/$script"
done
order="law sample filters emitted lossy shards numeric fuzz trees tree_law pack seed verify align schedule"
for name in $PROGRAMS; do has "$order" "$name" || order="$order $name"; done # the others are short
for name in $order; do
  has "$TESTS" "$name" || continue
  if [ -z "$have_nvcc" ]; then
    [ -z "$first" ] || skip "$name-device" "no nvcc"
  elif [ -n "$have_gpu" ]; then
    [ -z "$first" ] || add "$name-gpu" "$OUT/$name-gpu $QUICK"
    for tool in ${SANITIZE:+memcheck racecheck initcheck synccheck}; do
      [ -z "$first" ] || add "$name-$tool" \
        "compute-sanitizer --tool $tool --error-exitcode 86 $OUT/$name-gpu --quick"
    done
  else
    few=$QUICK
    case $name in law | filters | emitted | lossy | shards | trees) few=--quick ;; esac # in full in C: minutes, here
    [ -n "${ALL_TEXTS:-}" ] && few=
    if [ -z "$rest" ]; then
      on_ptxrun "$name-$full" $full "" "$name --quick"
    elif [ -n "$first" ] || [ "$few" != --quick ]; then # else --first had these cases
      on_ptxrun "$name-$full" $full "" "$name $few"
    fi
  fi
done
others= # that have schedules of a GPU alone
for side in $sides; do [ $side = $full ] || others="$others $side"; done
for name in $order; do
  has "$TESTS" "$name" && [ -n "$have_nvcc" ] && [ -z "$have_gpu" ] && [ -n "$rest" ] || continue
  [ -z "${ALL_TEXTS:-}" ] || continue
  if [ "$name" = counters ]; then # other schedules divide instructions differently
    for side in $others; do on_ptxrun "$name-$side" $side "" "$name --quick"; done
    continue
  fi
  seed=0
  for side in $full $others; do
    seed=$((seed + 1))
    # Minutes: these run as the last generation in lock-step alone, if there is another.
    case $name in lossy | shards | trees) [ $side != $full ] || [ -z "$others" ] || continue ;; esac
    on_ptxrun "$name-seed$seed" $side "seed=$seed weak=1 split=20 order=random" \
      "$name --quick --seed ${seed}000"
  done
done
for name in $order; do
  has "$TESTS" "$name" && [ -z "${ALL_TEXTS:-}" ] || continue
  few=
  case $name in law | shards) few=--quick ;; esac # in full: minutes
  if [ -z "$rest" ]; then add "$name-c" "$OUT/$name-c $few"
  elif [ -n "$first$few" ]; then add "$name-c" "$OUT/$name-c"; fi
  [ -n "$rest" ] || continue
  few=""
  # Laws need many texts, faults of memory do not.
  case $name in law | tree_law | filters | emitted | lossy | shards) few=--quick ;; esac
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
