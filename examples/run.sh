#!/bin/bash
# run.sh [--first | --rest] [name pattern]: builds and runs every example here and compares what it
# prints with NAME.expected, which is also in the first comment of its source.  --first: those that
# are built in seconds, where there is nvcc; --rest: the others.  On a GPU if there is one, else
# on ptxrun; 03_ref_only, trees/ref_only and shards/mpi need neither, the latter mpicc.  pytorch
# brings its own test.
# Ends with "N passed, N failed, N skipped".
#   OUT=build folder  ARCH=compute_90  NVCC=path  PTXRUN_OUT=folder of ptxrun  HEADERS=folder of the kit
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/.." && pwd)
headers=$(cd "${HEADERS:-$root}" && pwd)
out=${OUT:-$here/build}
ptxrun=${PTXRUN_OUT:-$root/tests/ptxrun/build}
export TINY_LM_THREADS=${TINY_LM_THREADS:-1} OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} # other tests run beside these
first="01_launch 02_in_your_kernel 03_plain_c 03_ref_only 04_graph 05_sample trees/ref_only"
rest="06_replay 07_lm_head 08_step 09_api_request graphs/verify graphs/cycles overlap/overlap \
  shards/nccl shards/cluster trees/steps shards/mpi pytorch"
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

compile() { # strict, so that an example never is somebody's first warning
  nvcc -arch="$arch" -std=c++17 -O2 ${interpretable:-} -Werror all-warnings \
    -Xcompiler "${warnings// /,}" -I "$headers" "$@"
}
build() { # name, sources...
  local name=$1; shift
  compile -o "$out/$name" "$@"
}
# What most of the compiler's time goes to, where it is not called.
chains="-DSPECVERIFY_NO_SHARDS -DSPECVERIFY_NO_TREES"
fewer="$chains -DSPECVERIFY_NO_SAMPLE"
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
build_05_sample() { build "$1" $chains "$here/05_sample.cu"; }
build_06_replay() { build "$1" $chains "$here/06_replay.cu"; }
build_07_lm_head() { build "$1" $chains "$here/07_lm_head.cu"; }
build_08_step() { build "$1" $chains "$here/08_step.cu"; }
build_09_api_request() { build "$1" $chains "$here/09_api_request.cu"; }

# Programs of several files share the kit, and what they have of tiny_lm; built when the first of them
# is.
have() { # name, command...: builds $out/name.o, once a run
  local name=$1; shift
  [ -n "${built[$name]:-}" ] || { "$@" -c -o "$out/$name.o" && built[$name]=1; }
}
declare -A built
have_kit() { have kit compile "$here/graphs/kit.cu"; }
have_cycle() {
  local part
  for part in model cpu engine tree smc judge; do
    have $part gcc -std=c99 -O3 -ffp-contract=off $warnings -Werror -I "$headers" \
      "$here/tiny_lm/$part.c" || return
  done
  have cycle compile -Xcompiler -ffp-contract=off "$here/graphs/cycle.cu"
}
build_with_cycle() { # name, source
  have_kit && have_cycle &&
    build "$1" "$2" "$out"/{kit,cycle,model,cpu,engine,tree,smc,judge}.o -Xcompiler -pthread
}
build_shards_nccl() { # a rank alone; against NCCL itself as well, where it is
  have_kit && build "$1" -I "$here/shards/alone" "$here/shards/nccl.cu" "$out/kit.o" || return
  echo '#include <nccl.h>' >"$out/has_nccl.cu"
  if compile -c -o "$out/has_nccl.o" "$out/has_nccl.cu" 2>/dev/null; then
    build "$1_linked" "$here/shards/nccl.cu" "$out/kit.o" -lnccl
  else
    echo "not linked with NCCL itself: no nccl.h"
  fi
}
build_shards_cluster() { build "$1" "$here/shards/cluster.cu"; }
build_trees_ref_only() { gcc $strict_c -I "$headers" -o "$out/$1" "$here/trees/ref_only.c"; }
build_trees_steps() { build "$1" -DSPECVERIFY_NO_SAMPLE -DSPECVERIFY_NO_SHARDS "$here/trees/steps.cu"; }
build_graphs_verify() { have_kit && build "$1" "$here/graphs/verify.cu" "$out/kit.o"; }
build_graphs_cycles() { build_with_cycle "$1" "$here/graphs/cycles.cu"; }
build_overlap_overlap() { build_with_cycle "$1" "$here/overlap/overlap.cu"; }
arguments_graphs_cycles=$here/tiny_lm
arguments_overlap_overlap=$here/tiny_lm

execute() {
  if [ "$backend" = ptxrun ]; then
    # late=1: who does not wait for a copy, does not have it. ptxrun asks for and returns much memory:
    # let malloc keep it.
    LD_LIBRARY_PATH="$ptxrun:${LD_LIBRARY_PATH:-}" PTXRUN_EXIT=1 PTXRUN_QUIET=1 PTXRUN_OPTS=late=1 \
      MALLOC_MMAP_THRESHOLD_=1073741824 MALLOC_TRIM_THRESHOLD_=4294967296 "$@"
  else
    "$@"
  fi
}

passed=0 failed=0 skipped=0
case ${1:-} in
  --first) names=$first ;;
  --rest) names=$rest ;;
  *) names="$first $rest" ;;
esac
# Without a compiler for devices nothing is slow.
if [[ $backend == none:* && ${1:-} == --* ]]; then
  names="$first $rest"
  [ "$1" = --first ] || { echo "skipped: examples --first had them all"; names= skipped=1; }
fi
[[ ${1:-} != --* ]] || shift
wanted() { [[ " $names " == *" $1 "* && $1 =~ ${pattern:-.} ]]; }
pattern=${1:-}
for name in $names; do
  case $name in shards/mpi | pytorch) continue ;; esac # see below
  wanted "$name" || continue
  if [[ $name != *ref_only && $backend == none* ]]; then
    skipped=$((skipped + 1)); echo "skipped $name: ${backend#none: }"; continue
  fi
  id=${name//\//_} arguments=arguments_${name//\//_} status=1
  "build_$id" $id >"$out/$id.log" 2>&1 &&
    { execute "$out/$id" ${!arguments:+"${!arguments}"} >"$out/$id.stdout" 2>>"$out/$id.log"; status=$?; }
  if [ $status = 77 ]; then
    skipped=$((skipped + 1)); echo "skipped $name: $(tail -n 1 "$out/$id.stdout")"
  elif [ $status = 0 ] &&
    diff -u "$here/$name.expected" "$out/$id.stdout" >>"$out/$id.log"; then
    passed=$((passed + 1)); echo "passed  $name"
  else
    failed=$((failed + 1)); echo "FAILED  $name"; tail -20 "$out/$id.log"
  fi
done
# Processes are ranks; any number of them prints the same. With nvcc the kernels do the work, too.
run_shards_mpi() {
  local ranks alone=${chains/SHARDS/SAMPLE}
  for ranks in 1 2 3 4 8; do
    mpirun --allow-run-as-root --oversubscribe -n $ranks "$out/shards_mpi" >"$out/shards_mpi.stdout" &&
      diff -u "$here/shards/mpi.expected" "$out/shards_mpi.stdout" || return
  done
  [[ $backend != none* ]] || return 0
  compile $alone -DOMPI_SKIP_MPICXX -ccbin mpicxx -x cu -o "$out/shards_mpi_cuda" "$here/shards/mpi.c" &&
    execute mpirun --allow-run-as-root --oversubscribe -n 2 "$out/shards_mpi_cuda" \
      >"$out/shards_mpi.stdout" && diff -u "$here/shards/mpi.expected" "$out/shards_mpi.stdout"
}
if wanted shards/mpi; then
  if ! command -v mpicc >/dev/null || ! command -v mpirun >/dev/null; then
    skipped=$((skipped + 1)); echo "skipped shards/mpi: no mpicc"
  elif mpicc -std=c99 -O2 $warnings -Werror -I "$headers" -o "$out/shards_mpi" "$here/shards/mpi.c" \
      >"$out/shards_mpi.log" 2>&1 &&
    run_shards_mpi >>"$out/shards_mpi.log" 2>&1; then
    passed=$((passed + 1)); echo "passed  shards/mpi"
  else
    failed=$((failed + 1)); echo "FAILED  shards/mpi"; tail -20 "$out/shards_mpi.log"
  fi
fi
if wanted pytorch; then
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
[ "$failed" -eq 0 ] && [ $((passed + skipped)) -gt 0 ]
