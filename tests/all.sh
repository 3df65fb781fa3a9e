#!/bin/bash
# all.sh FAMILY...: runs families of tests one after the other, ONE+OTHER beside each other (each of
# these keeps one core busy), and adds up their last lines "N passed, N failed, N skipped". A family
# that does not end with such a line counts as one failure.
# Logs: $BUILD/logs/FAMILY.log (build). A family is a line of the table below.
cd "$(dirname "$0")/.." || exit 2
export BUILD=${BUILD:-build}
mkdir -p "$BUILD/logs" || exit 2
passed=0; failed=0; skipped=0

command_of() {
  case $1 in
    units) echo "bash tests/run.sh" ;;            # reference and device against oracles
    compile) echo "bash tests/compile/run.sh" ;;  # every way to include and build the kit
    compile_quick) echo "bash tests/compile/run.sh --quick" ;; # one compiler of each kind
    compile_rest) echo "bash tests/compile/run.sh --rest" ;; # what compile_quick leaves out
    broken) echo "bash tests/compile/broken.sh" ;; # each compile case turns red on a broken header
    examples) echo "bash examples/run.sh" ;;
    tiny_lm) echo "bash tests/tiny_lm.sh" ;;      # the main job, on real tokens
    tiny_lm_gpu) echo "bash tests/tiny_lm_gpu.sh" ;; # the same on the interpreter
    lint) command -v python3 > /dev/null && echo "python3 tests/lint.py" || echo "skip lint python3" ;;
    planted) echo "bash tests/planted/run.sh" ;;
    ptxrun) echo "make -s -C tests/ptxrun check" ;; # the interpreter's own tests
    bench) echo "bash bench/run.sh --check" ;;    # it builds, verifies, and its scripts run
    cycles) echo "bash bench/cycles.sh --check" ;; # counts, SASS, cycles as committed
    *) return 1 ;;
  esac
}

skip() { printf 'skipped %s: no %s\n0 passed, 0 failed, 1 skipped\n' "$1" "$2"; }

run() { # family: its log, and its exit status and seconds beside it
  local log=$BUILD/logs/$1.log start=$SECONDS
  $(command_of "$1") > "$log" 2>&1
  echo "$? $((SECONDS - start))" > "$log.status"
}

count() { # family that ran
  local log=$BUILD/logs/$1.log status seconds line counts
  read -r status seconds < "$log.status"
  line=$(grep -E '^[0-9]+ passed, [0-9]+ failed' "$log" | tail -n 1)
  counts=($(grep -oE '[0-9]+' <<< "$line"))
  [ ${#counts[@]} -ge 2 ] || { counts=(0 1 0); line="no result line"; }
  # A family that says it passed must also exit 0.
  [ "$status" -eq 0 ] || [ "${counts[1]}" -gt 0 ] || counts[1]=1
  if [ "${counts[1]}" -gt 0 ]; then
    grep -E '^(FAIL|FAILED) ' "$log" | head -n 40
    tail -n 40 "$log"
  else
    grep -iE '^ *skipped?\b' "$log" | sort -u | head -n 12
  fi
  echo "   $1: $line ($seconds s)"
  passed=$((passed + counts[0])); failed=$((failed + counts[1])); skipped=$((skipped + ${counts[2]:-0}))
}

for families in "$@"; do
  for family in ${families//+/ }; do
    command_of "$family" > /dev/null || { echo "all.sh: no family '$family'"; exit 2; }
  done
  echo "== $families"
  for family in ${families//+/ }; do run "$family" & done
  wait
  for family in ${families//+/ }; do count "$family"; done
done
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
