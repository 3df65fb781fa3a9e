#!/bin/bash
# run.sh [name pattern]: builds and runs every example here and compares what it prints with
# NAME.expected, which is also in the first comment of its source.  On a GPU if there is one, else
# on ptxrun; ref_only needs neither.  pytorch brings its own test.  Ends with "N passed, N failed, N
# skipped".
#   OUT=build folder  ARCH=compute_90  NVCC=path  PTXRUN_OUT=folder of ptxrun  HEADERS=folder of the kit
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/.." && pwd)
headers=$(cd "${HEADERS:-$root}" && pwd)
out=${OUT:-$here/build}
ptxrun=${PTXRUN_OUT:-$root/tests/ptxrun/build}
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 2
warnings="-Wall -Wextra -Wconversion -Wshadow"
strict_c="-std=c99 -Wpedantic -Wsign-conversion $warnings -Werror"
[ -x "${NVCC:-}" ] && PATH=$(dirname "$NVCC"):$PATH

if ! command -v nvcc >/dev/null; then
  backend="none: no nvcc"
elif command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q '^GPU'; then
  backend=gpu
  arch=${ARCH:-native}
elif [ -f "$ptxrun/libcudart.so.13" ] || make -s -C "$root/tests/ptxrun" OUT="$ptxrun"; then
  backend=ptxrun
  arch=${ARCH:-compute_90} # PTX alone: ptxrun takes nothing else
  interpretable="-cudart shared -no-compress -lineinfo"
else
  backend="none: neither a GPU nor ptxrun"
fi

build() { # name, sources...: strict, so that an example never is somebody's first warning
  local name=$1; shift
  nvcc -arch="$arch" -std=c++17 -O2 ${interpretable:-} -Werror all-warnings \
    -Xcompiler "${warnings// /,}" -I "$headers" -o "$out/$name" "$@"
}
# What most of the compiler's time goes to, where it is not called.
fewer=-DSPECVERIFY_NO_SAMPLE
build_01_launch() { build "$1" $fewer "$here/01_launch.cu"; }
build_02_in_your_kernel() { build "$1" $fewer "$here/02_in_your_kernel.cu"; }
build_03_plain_c() {
  local cuda
  cuda=$(dirname "$(dirname "$(readlink -f "$(command -v nvcc)")")")
  gcc $strict_c -I "$headers" -isystem "$cuda/include" \
    -c -o "$out/main.o" "$here/03_plain_c/main.c" &&
    build "$1" $fewer "$out/main.o" "$here/03_plain_c/kit.cu"
}
build_03_ref_only() {
  gcc $strict_c -I "$headers" -o "$out/$1" "$here/03_plain_c/ref_only.c"
}
build_04_graph() { build "$1" $fewer "$here/04_graph.cu"; }
build_05_sample() { build "$1" "$here/05_sample.cu"; }
build_06_replay() { build "$1" "$here/06_replay.cu"; }
build_07_lm_head() { build "$1" "$here/07_lm_head.cu"; }
build_08_step() { build "$1" "$here/08_step.cu"; }
build_09_api_request() { build "$1" "$here/09_api_request.cu"; }

execute() {
  if [ "$backend" = ptxrun ]; then
    # ptxrun asks for and returns much memory: let malloc keep it.
    LD_LIBRARY_PATH="$ptxrun:${LD_LIBRARY_PATH:-}" PTXRUN_EXIT=1 PTXRUN_QUIET=1 \
      MALLOC_MMAP_THRESHOLD_=1073741824 MALLOC_TRIM_THRESHOLD_=4294967296 "$@"
  else
    "$@"
  fi
}

passed=0 failed=0 skipped=0
for name in 01_launch 02_in_your_kernel 03_plain_c 03_ref_only 04_graph 05_sample 06_replay \
  07_lm_head 08_step 09_api_request; do
  [[ $name =~ ${1:-.} ]] || continue
  if [ $name != 03_ref_only ] && [[ $backend == none* ]]; then
    skipped=$((skipped + 1)); echo "skipped $name: ${backend#none: }"; continue
  fi
  if "build_$name" $name >"$out/$name.log" 2>&1 &&
    execute "$out/$name" >"$out/$name.stdout" 2>>"$out/$name.log" &&
    diff -u "$here/$name.expected" "$out/$name.stdout" >>"$out/$name.log"; then
    passed=$((passed + 1)); echo "passed  $name"
  else
    failed=$((failed + 1)); echo "FAILED  $name"; tail -20 "$out/$name.log"
  fi
done
if [[ pytorch =~ ${1:-.} ]]; then
  if ! command -v python3 >/dev/null; then
    skipped=$((skipped + 1)); echo "skipped pytorch: no python3"
  else
    OUT=$out/pytorch HEADERS=$headers PTXRUN_OUT=$ptxrun \
      python3 "$here/pytorch/test.py" >"$out/pytorch.log" 2>&1
    status=$?
    if [ $status -eq 0 ]; then grep -E '^(passed|skipped) ' "$out/pytorch.log"
    else cat "$out/pytorch.log"; fi
    counts=($(grep -E '^[0-9]+ passed, ' "$out/pytorch.log" | tail -n 1 | grep -oE '[0-9]+'))
    [ ${#counts[@]} -eq 3 ] || counts=(0 1 0)
    passed=$((passed + counts[0])) failed=$((failed + counts[1])) skipped=$((skipped + counts[2]))
  fi
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
