#!/bin/bash
# all.sh [--seconds] FAMILY...: runs families of tests one after the other, ONE+OTHER beside each other (each of
# these keeps one core busy), and adds up their last lines "N passed, N failed, N skipped". A family
# that does not end with such a line counts as one failure.
# Logs: $BUILD/logs/FAMILY.log (build). A family is a line of the table below.
# While they run, a line says which, for how long and how far: on a terminal one that is written
# anew, in a log one a minute. How long they take is said before: what they took here last time
# ($BUILD/logs/FAMILY.seconds), or what the table has of two cores that did nothing else; --seconds:
# says only that.
cd "$(dirname "$0")/.." || exit 2
export BUILD=${BUILD:-build}
mkdir -p "$BUILD/logs" || exit 2
passed=0; failed=0; skipped=0

command_of() {
  case $1 in
    units) echo "bash tests/run.sh" ;;            # reference and device against oracles
    units_first | tiny_lm_first | tiny_lm_gpu_first | examples_first) # without what takes long
      echo "$(command_of "${1%_first}") --first" ;;
    units_rest | examples_rest) echo "$(command_of "${1%_rest}") --rest" ;; # what that leaves out
    compile) echo "bash tests/compile/run.sh" ;;  # every way to include and build the kit
    compile_quick) echo "bash tests/compile/run.sh --quick" ;; # one compiler of each kind
    compile_rest) echo "bash tests/compile/run.sh --rest" ;; # what compile_quick leaves out
    broken) echo "bash tests/compile/broken.sh" ;; # each compile case turns red on a broken header
    examples) echo "bash examples/run.sh" ;;
    tiny_lm) echo "bash tests/tiny_lm.sh" ;;      # the main job, on real tokens
    tiny_lm_gpu) echo "bash tests/tiny_lm_gpu.sh" ;; # the same on the interpreter
    lint) command -v python3 > /dev/null && echo "python3 tests/lint.py" || echo "skip lint python3" ;;
    steps) echo "bash tests/shards.sh" ;;         # A9, 100,000 steps on the reference
    planted) echo "bash tests/planted/run.sh" ;;
    check_nvcc) echo "python3 tests/check_nvcc.py" ;; # registers, shared memory, spills
    ptxrun) echo "make -s -C tests/ptxrun check" ;; # the interpreter's own tests
    bench) echo "bash bench/run.sh --check" ;;    # it builds, verifies, and its scripts run
    cycles) echo "bash bench/cycles.sh --check" ;; # counts, SASS, cycles as committed
    *) return 1 ;;
  esac
}

# Seconds of a family, two cores, if it never ran here. What keeps one core busy says so by its place
# in a group, ONE+OTHER.
expected_of() {
  local log=$BUILD/logs/$1.seconds
  if [ -z "${TESTS:-}${QUICK:-}" ] && [ -s "$log" ]; then cat "$log"; return; fi
  [ -z "${TESTS:-}" ] || { echo 0; return; } # a choice of programs: who knows
  case $1 in
    units) [ -n "${QUICK:-}" ] && echo 400 || echo 1100 ;;
    units_first) echo 300 ;;
    units_rest) echo 900 ;;
    compile) echo 600 ;;
    compile_quick) echo 150 ;;
    tiny_lm | tiny_lm_gpu) echo 300 ;;
    compile_rest) echo 480 ;;
    examples | examples_rest) echo 400 ;;
    tiny_lm_first | tiny_lm_gpu_first | examples_first) echo 120 ;;
    ptxrun | planted) echo 90 ;;
    check_nvcc) echo 150 ;;
    broken) echo 450 ;;
    cycles | steps) echo 200 ;;
    bench) echo 300 ;;
    *) echo 10 ;;
  esac
}
about() { # seconds
  if [ "$1" -lt 100 ]; then echo "$1 s"; else echo "$((($1 + 30) / 60)) min"; fi
}

skip() { printf 'skipped %s: no %s\n0 passed, 0 failed, 1 skipped\n' "$1" "$2"; }

run() { # family: its log, and its exit status and seconds beside it
  local log=$BUILD/logs/$1.log start=$SECONDS
  $(command_of "$1") > "$log" 2>&1
  echo "$? $((SECONDS - start))" > "$log.status"
  [ -n "${TESTS:-}${QUICK:-}" ] || echo "$((SECONDS - start))" > "$BUILD/logs/$1.seconds"
}

# "units: 21 of 96 runs, law-c", from what a family writes about itself, or its log's last line.
state_of() {
  local log=$BUILD/logs/$1.log
  if [[ $1 == units* ]] && [ -s "$BUILD/tests/progress" ]; then
    echo "$1: $(< "$BUILD/tests/progress")"
  else
    echo "$1: $(tail -n 1 "$log" 2> /dev/null | tr -d '\r' | cut -c1-40)"
  fi
}

# Until the jobs are done. Not a job of theirs, so `wait` does not wait for it.
watch() { # seconds expected, family...
  local expected=$1 start=$SECONDS said=$SECONDS family line left
  shift
  while sleep "${WATCH_S:-2}"; do
    line=""
    for family; do
      [ -e "$BUILD/logs/$family.log.status" ] || line="$line  $(state_of "$family")"
    done
    [ -n "$line" ] || return
    left=$((expected - SECONDS + start))
    line="   $((SECONDS - start)) s$([ $left -gt 0 ] && echo ", about $(about $left) to go"):$line"
    if [ -t 1 ]; then
      printf '\r\033[K%.*s' "$((${COLUMNS:-100} - 1))" "$line"
    elif [ $((SECONDS - said)) -ge "${WATCH_LOG_S:-60}" ]; then
      said=$SECONDS
      echo "$line"
    fi
  done
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
    tail -n 70 "$log"
  else
    grep -iE '^ *skipped?\b' "$log" | sort -u | head -n 12
  fi
  echo "   $1: $line ($seconds s)"
  passed=$((passed + counts[0])); failed=$((failed + counts[1])); skipped=$((skipped + ${counts[2]:-0}))
}

seconds_only= longest=0 total=0
if [ "${1:-}" = --seconds ]; then seconds_only=1; shift; fi
for families in "$@"; do
  for family in ${families//+/ }; do
    command_of "$family" > /dev/null || { echo "all.sh: no family '$family'"; exit 2; }
    seconds=$(expected_of "$family")
    [ "$seconds" -le "$longest" ] || longest=$seconds
  done
  total=$((total + longest)) longest=0
done
if [ -n "$seconds_only" ]; then echo $total; exit; fi
[ $total -lt 20 ] || echo "about $(about $total) on two cores that do nothing else, or as last time here"
for families in "$@"; do
  longest=0
  for family in ${families//+/ }; do
    seconds=$(expected_of "$family")
    [ "$seconds" -le "$longest" ] || longest=$seconds
    rm -f "$BUILD/logs/$family.log.status"
  done
  echo "== $families$([ $longest -lt 20 ] || echo " (about $(about $longest))")"
  jobs=""
  for family in ${families//+/ }; do
    run "$family" &
    jobs="$jobs $!"
  done
  watch $longest ${families//+/ } &
  watcher=$!
  wait $jobs
  kill $watcher 2> /dev/null
  wait $watcher 2> /dev/null
  [ ! -t 1 ] || printf '\r\033[K'
  for family in ${families//+/ }; do count "$family"; done
done
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
