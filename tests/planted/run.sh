#!/bin/bash
# run.sh: every planted fault of faults.cu must be reported by its kind, at a line of faults.cu and
# not of the kit, and its repaired twin by nothing, with the plain schedule and with adversarial
# ones.  Ends with "caught N of N".
#   ARCH=sm_90   PTXRUN_OUT=folder of the built interpreter   OUT=where the binary goes
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
arch=${ARCH:-sm_90}
interpreter=${PTXRUN_OUT:-$root/tests/ptxrun/build}
out=${OUT:-$here/build}
schedules=("" "seed=1 weak=1 split=20" "seed=2 weak=1 split=20" "seed=3 weak=1 split=20 order=random")

[ -f "$interpreter/libcudart.so.13" ] || make -s -C "$root/tests/ptxrun" OUT="$interpreter" || exit 2
mkdir -p "$out" && program=$out/faults-$arch
"${NVCC:-nvcc}" -arch="$arch" -std=c++17 -O3 -lineinfo -cudart shared -no-compress -Xcompiler -Wall,-Wextra \
  -I "$root" -o "$program" "$here/faults.cu" || exit 2

run() { # schedule, arguments: the reports, without notes
  local options=$1; shift
  LD_LIBRARY_PATH="$interpreter" PTXRUN_OPTS="spin=100000 $options" timeout 60 \
    "$program" "$@" 2>&1 | grep 'REPORT' | grep -v 'REPORT note-'
}
clean() { # schedule, arguments: runs to its end, says ok, and nothing is reported
  local options=$1 text; shift
  text=$(LD_LIBRARY_PATH="$interpreter" PTXRUN_EXIT=1 PTXRUN_OPTS="spin=100000 $options" timeout 60 \
    "$program" "$@" 2>&1) && ! grep -q REPORT <<<"$text" && grep -qx ok <<<"$text"
}

caught=0; total=0; skipped=0
while IFS=$'\t' read -r name kind; do
  [ "$name" = no_grid_wait ] && [ "${arch#sm_}" -lt 90 ] &&
    { echo "skipped $name: programmatic dependent launch needs sm_90"; skipped=1; continue; }
  total=$((total + 1)); problem=""
  expected="REPORT ${kind%%:*}: faults\.cu:[0-9]+:${kind#*:}"
  for schedule in "${schedules[@]}"; do
    run "$schedule" "$name" | grep -qE "$expected" || problem+=" not reported [$schedule];"
    clean "$schedule" "$name" fixed || problem+=" twin not clean [$schedule];"
  done
  if [ -z "$problem" ]; then caught=$((caught + 1)); printf 'caught  %-20s %s\n' "$name" "$kind"
  else printf 'MISSED  %-20s %s:%s\n' "$name" "$kind" "$problem"; fi
done < <(LD_LIBRARY_PATH="$interpreter" PTXRUN_QUIET=1 "$program" --list)
echo "$caught passed, $((total - caught)) failed, $skipped skipped"
echo "caught $caught of $total"
[ "$caught" = "$total" ] && [ "$total" -gt 0 ]
