#!/bin/bash
# all.sh FAMILY...: runs families of tests, two at a time, and adds up their last lines
# "N passed, N failed, N skipped". A family that does not end with such a line counts as one failure.
# Logs: build/logs/FAMILY.log. A family is a line of the table below.
cd "$(dirname "$0")/.." || exit 2
mkdir -p build/logs
passed=0; failed=0; skipped=0; nl=$'\n'

command_of() {
  case $1 in
    units) echo "bash tests/run.sh" ;;            # reference and device against oracles
    compile) echo "bash tests/compile/run.sh" ;;  # every way to include and build the kit
    compile_quick) echo "bash tests/compile/run.sh --quick" ;; # one compiler of each kind
    broken) echo "bash tests/compile/broken.sh" ;; # each compile case turns red on a broken header
    examples) echo "bash examples/run.sh" ;;
    tiny_lm) echo "bash tests/tiny_lm.sh" ;;      # the main job, on real tokens
    lint) command -v python3 > /dev/null && echo "python3 tests/lint.py" || echo "skip lint python3" ;;
    planted) echo "bash tests/planted/run.sh" ;;
    ptxrun) echo "make -s -C tests/ptxrun check" ;; # the interpreter's own tests
    bench) echo "bash bench/run.sh --check" ;;    # it builds, verifies, and its scripts run
    *) return 1 ;;
  esac
}

skip() { printf 'skipped %s: no %s\n0 passed, 0 failed, 1 skipped\n' "$1" "$2"; }

# Runs one family; prints its outcome at once, leaves its counts in build/logs/FAMILY.counts.
run_family() { # family, command
  local family=$1 log=build/logs/$1.log start=$SECONDS status line counts text
  $2 > "$log" 2>&1
  status=$?
  line=$(grep -E '^[0-9]+ passed, [0-9]+ failed' "$log" | tail -n 1)
  counts=($(grep -oE '[0-9]+' <<< "$line"))
  [ ${#counts[@]} -ge 2 ] || { counts=(0 1 0); line="no result line"; }
  # A family that says it passed must also exit 0.
  [ $status -eq 0 ] || [ "${counts[1]}" -gt 0 ] || counts[1]=1
  if [ "${counts[1]}" -gt 0 ]; then
    text=$(tail -n 40 "$log")
  else
    text=$(grep -iE '^ *skipped?\b' "$log" | sort -u | head -n 12)
  fi
  printf '== %s\n%s   %s: %s (%d s)\n' "$family" "${text:+$text$nl}" "$family" "$line" \
    $((SECONDS - start))
  echo "${counts[0]} ${counts[1]} ${counts[2]:-0}" > "build/logs/$family.counts"
}

# Two at a time: some families are one process after the other.
for family in "$@"; do
  command=$(command_of "$family") || { echo "all.sh: no family '$family'"; exit 2; }
  rm -f "build/logs/$family.counts"
  [ "$(jobs -rp | wc -l)" -lt "${FAMILIES_AT_A_TIME:-2}" ] || wait -n
  run_family "$family" "$command" &
done
wait
for family in "$@"; do
  read -r p f s < "build/logs/$family.counts" || { p=0; f=1; s=0; }
  passed=$((passed + p)); failed=$((failed + f)); skipped=$((skipped + s))
done
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
