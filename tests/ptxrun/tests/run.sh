#!/bin/bash
# run.sh OUT ARCH: builds every test program with nvcc and runs the lines of manifest.txt.
# A line is   program arguments | options | expectation   where the expectation is
#   clean          exit status 0 and not a single report
#   report KIND    the report KIND appears
#   reports N      there are N reports
#   fails TEXT     nonzero exit status, and TEXT on the terminal
#   prints TEXT    TEXT on the terminal; @name in it is the number of the line marked @name in
#                  the program
# and SEEDS among the options stands for four seeds with weak=1 split=20.  A program whose name
# ends in _NN needs sm_NN and is skipped below it.
out=$(cd "$1" && pwd); arch=$2; here=$(cd "$(dirname "$0")" && pwd)
passed=0; failed=0; skipped=0
mkdir -p "$out/tests"

suits() { # program: may it run on this architecture?
  local needed=${1##*_}
  [[ ! $needed =~ ^[0-9]+$ ]] || [ "${arch#sm_}" -ge "$needed" ]
}
build() { # name
  suits "$1" || return 0
  local binary="$out/tests/$1-$arch" extra=""
  [ -f "$binary" ] && [ -z "$(find "$here/$1.cu" "$here"/*.h -newer "$binary")" ] && return 0
  [[ $1 == *_rdc ]] && extra="-rdc=true"
  nvcc -arch="$arch" -std=c++17 -Xcompiler -pthread -O3 -lineinfo \
    -cudart shared -no-compress $extra -o "$binary" "$here/$1.cu"
}
export -f build suits; export out arch here
ls "$here"/*.cu | grep -v /job.cu | xargs -n1 basename | sed 's/\.cu$//' |
  xargs -P2 -I{} bash -c 'build {}' || { echo "some test program does not build"; exit 1; }

# A sanitized interpreter needs its run-time library loaded before the program.
preload=$(ldd "$out/libcudart.so.13" | awk '/libasan/ {print $3}')
export ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1

run() { # program arguments, options, expectation
  local text status line want=${3%% *} what=${3#* } good=no
  set -- $1 -- "$2"
  local program=$1; shift
  while [[ $what =~ @([a-z_]+) ]]; do
    line=$(grep -n "// @${BASH_REMATCH[1]}\$" "$here/$program.cu" | cut -d: -f1)
    what=${what/@${BASH_REMATCH[1]}/${line:?no line is marked @${BASH_REMATCH[1]}}}
  done
  local arguments=(); while [ "$1" != -- ]; do arguments+=("$1"); shift; done
  text=$(LD_PRELOAD="$preload" LD_LIBRARY_PATH="$out:$LD_LIBRARY_PATH" PTXRUN_EXIT=1 PTXRUN_OPTS="$2" \
    timeout 300 "$out/tests/$program-$arch" "${arguments[@]}" 2>&1); status=$?
  case $want in
    clean) [ $status = 0 ] && ! grep -q REPORT <<<"$text" && good=yes ;;
    report) grep -q "REPORT $what:" <<<"$text" && good=yes ;;
    reports) [ "$(grep -c REPORT <<<"$text")" = "$what" ] && good=yes ;;
    fails) [ $status != 0 ] && grep -qF -- "$what" <<<"$text" && good=yes ;;
    prints) grep -qF -- "$what" <<<"$text" && good=yes ;;
  esac
  grep -qE 'runtime error:|AddressSanitizer' <<<"$text" && good=no # of the interpreter itself
  if [ $good = yes ]; then passed=$((passed + 1)); else
    failed=$((failed + 1)); head -5 <<<"$text"
    echo "FAILED: $program ${arguments[*]} [$2]: expected $want $what, status $status"
  fi
}

while IFS='|' read -r program options expectation; do
  program=$(xargs <<<"$program"); options=$(xargs <<<"$options"); expectation=$(xargs <<<"$expectation")
  [ -z "$program" ] || [ "${program:0:1}" = '#' ] && continue
  suits "${program%% *}" || { skipped=$((skipped + 1)); continue; }
  if [[ $options == *SEEDS* ]]; then
    for seed in 1 2 3 4; do run "$program" "${options/SEEDS/seed=$seed weak=1 split=20}" "$expectation"; done
  else run "$program" "$options" "$expectation"; fi
done < "$here/manifest.txt"

# What the table cannot say: a function for each, which must succeed; 77: it does not apply here.
program() { # [NAME=value ...] program arguments
  local settings=(); while [[ $1 == *=* ]]; do settings+=("$1"); shift; done
  local name=$1; shift
  env LD_PRELOAD="$preload" LD_LIBRARY_PATH="$out" PTXRUN_QUIET=1 "${settings[@]}" \
    "$out/tests/$name-$arch" "$@"
}
profile_csv() {
  program PTXRUN_OPTS="prof=$out/tests/profile.csv" softmax > /dev/null &&
    python3 "$here/profile_check.py" "$out/tests/profile.csv"
}
job_file() {
  nvcc -arch="$arch" -O3 -ptx -o "$out/tests/job.ptx" "$here/job.cu" &&
    "$out/ptxrun" "$out/tests/job.ptx" "$here/example.job" seed=3 | grep -q "^out: 3 5 7 9"
}
newer_device() { program PTXRUN_DEVICE="cc=120" api device 120 > /dev/null; }
older_device() {
  ! program PTXRUN_DEVICE="cc=70" api device 70 > "$out/tests/refused.txt" 2>&1 &&
    grep -q "needs compute capability ${arch#sm_}, the device has 70" "$out/tests/refused.txt"
}
exit_at_first_report() {
  program PTXRUN_EXIT=first bugs nosync > "$out/tests/first.txt" 2>&1
  [ $? = 86 ] && ! grep -qx ok "$out/tests/first.txt"
}
approximate_jitter() {
  local exact seeded jittered
  exact=$(program numeric fragile); seeded=$(program PTXRUN_OPTS="seed=1" numeric fragile)
  jittered=$(program PTXRUN_OPTS="approx=jitter seed=1" numeric fragile)
  [ "$exact" = "$seeded" ] && [ "$exact" != "$jittered" ]
}
without_lineinfo() { # the PTX line then is all that is known
  nvcc -arch="$arch" -std=c++17 -O3 -cudart shared -no-compress -o "$out/tests/plain-$arch" \
    "$here/reports.cu" &&
    program plain stride 2>&1 | grep -qE "REPORT oob-global: ptx:[0-9]+: read of 4 bytes"
}
quick_start() { # README's
  local run=(env ARCH="$arch" PTXRUN_OUT="$out" PTXRUN_QUIET=1) line
  [ -z "$preload" ] || return 77
  line=$(grep -n '= tile' "$here/../example/reverse.cu" | cut -d: -f1)
  "${run[@]}" "$here/../cuda-run" "$here/../example/reverse.cu" | grep -qx "0 wrong, no error" &&
    ! "${run[@]}" NVCCFLAGS=-DFORGOTTEN "$here/../cuda-run" "$here/../example/reverse.cu" \
      > "$out/tests/quick_start.txt" 2>&1 &&
    grep -q "REPORT race-shared: reverse.cu:$line: read of" "$out/tests/quick_start.txt"
}
with_cmake() { # flags: configures, builds and tests the example
  rm -rf "$out/tests/cmake"
  cmake -S "$here/../example" -B "$out/tests/cmake" -DPTXRUN_OUT="$out" -DCMAKE_CUDA_FLAGS="$1" &&
    cmake --build "$out/tests/cmake" &&
    ctest --test-dir "$out/tests/cmake" --output-on-failure
}
cmake_example() {
  command -v cmake > /dev/null && [ -z "$preload" ] || return 77
  with_cmake "" > "$out/tests/cmake.txt" 2>&1 &&
    ! with_cmake -DFORGOTTEN > "$out/tests/cmake.txt" 2>&1 &&
    grep -q "REPORT race-shared: reverse.cu" "$out/tests/cmake.txt"
}
for check in quick_start cmake_example without_lineinfo profile_csv job_file newer_device \
  older_device exit_at_first_report approximate_jitter; do
  $check; status=$?
  if [ $status = 0 ]; then passed=$((passed + 1))
  elif [ $status = 77 ]; then skipped=$((skipped + 1)); echo "skipped: $check"
  else failed=$((failed + 1)); echo "FAILED: $check"; fi
done
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
