#!/bin/bash
# bench/cycles.sh - what the kernels cost, without a GPU, from three witnesses that are never mixed:
#
#   simulated   cycles of GPGPU-Sim's V100, kernels alone: what waits for what
#   counted     instructions and round trips of ptxrun: what the program asks for
#   SASS        registers, bytes, the hot loop's instructions: what the compiler makes of it
#
#   bench/cycles.sh            all three, on the screen; no committed file changes
#   bench/cycles.sh --update   the first into bench/results/gpgpusim/cycles.csv, and the table there;
#                              cases that were not simulated, or failed, keep their rows
#   bench/cycles.sh --check    counts and SASS as in bench/results/gate.csv, cycles within 5 %; ends
#                              with "N passed, N failed, N skipped"
#   bench/cycles.sh --accept   writes gate.csv anew, from what is here, and does what --update does.
#                              A kernel whose code has grown by more than a tenth needs a word:
#                              WHY="..."
#   bench/cycles.sh --grid [--update]
#                              simulates curves for plot.py: A1, B1, B2 over the study's grid,
#                              scores over the vocabulary; a case takes seconds to minutes; into
#                              bench/results/gpgpusim/grid.csv
#   CASES="A1-b32 D2" bench/cycles.sh   only these are simulated; `bench cycles list` has them all
#
#   VARIANTS="two,kit"         of cases with several, these alone: others can cost ten times as much
#
#   GPGPUSIM=folder   with `build PROGRAM.cu OUT [flags]` and `sim PROGRAM args`, which prints a
#                     line "KIT kernel=... cycles=..." for each kernel; none: skipped
#   LARGE=1           also the cases that the simulator takes minutes for
#   JOBS=2   BUILD=build   NVCC=nvcc   PTXRUN_OUT=folder   CUDA_TOOLS=folder of cuobjdump
set -u
cd "$(dirname "$0")/.." || exit 1
export PATH="$PATH:/usr/local/cuda/bin"
BUILD=${BUILD:-build} JOBS=${JOBS:-2} NVCC=${NVCC:-nvcc} GPGPUSIM=${GPGPUSIM:-}
VARIANTS=${VARIANTS:-}
ptxrun=${PTXRUN_OUT:-$PWD/tests/ptxrun/build}
out=$BUILD/cycles mode=--show update=
for word in "$@"; do
    case $word in
    --update) update=--update ;;
    --check | --accept | --grid) mode=$word ;;
    *) sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 2 ;;
    esac
done
mkdir -p "$out/logs"
rm -f "$out"/*.txt "$out"/*.csv "$out"/*.log "$out"/*.cubin "$out"/logs/*

has() { command -v "$1" > /dev/null 2>&1; }

# What is not here says so in FILE.txt, which cycles.py prints.
skip() { echo "skipped $1: $2" | tee "$out/$1.txt"; }

count() {
    has "$NVCC" || { skip counted "no nvcc"; return; }
    [ -f "$ptxrun/libcudart.so.13" ] || make -s -C tests/ptxrun OUT="$ptxrun" || return 1
    "$NVCC" -gencode arch=compute_90,code=compute_90 -O3 -std=c++17 -cudart shared -no-compress \
        bench/bench.cu -o "$out/counted" || return 1
    LD_LIBRARY_PATH=$ptxrun PTXRUN_EXIT=1 PTXRUN_QUIET=1 "$out/counted" cycles all \
        > "$out/logs/counted" || return 1
    sed -n 's/^RESULT //p' "$out/logs/counted" > "$out/counted.csv"
}

# Runs in parallel, the long ones first: the simulator uses one core.
simulate() {
    [ -x "$GPGPUSIM/sim" ] || { skip simulated "no simulator (GPGPUSIM=folder)"; return; }
    has "$NVCC" || { skip simulated "no nvcc"; return; }
    "$GPGPUSIM/build" bench/bench.cu "$out/simulated" -I. -DBENCH_SIMULATED -Xcompiler -w || return 1
    # The program itself cannot start without the simulator.
    KIT_ONLY=none "$GPGPUSIM/sim" "$out/simulated" cycles list |
        sed -n 's/^RESULT case //p' > "$out/cases"
    list_cases > "$out/list" || return 1
    export GPGPUSIM out VARIANTS
    # shellcheck disable=SC2016
    xargs -a "$out/list" -P "$JOBS" -L 1 bash -c '
        name=$0 start=$SECONDS
        KIT_ONLY="floor_ ${*:2}" "$GPGPUSIM/sim" "$out/simulated" --arena 512 cycles "$name" \
            ${VARIANTS:+--variants "$VARIANTS"} > "$out/logs/$name" 2>&1 &&
            echo "   $name: $((SECONDS - start)) s" ||
            { echo "FAILED $name"; tail -n 5 "$out/logs/$name"; rm "$out/logs/$name"; exit 1; }'
    local status=$?
    while read -r name _; do
        [ ! -f "$out/logs/$name" ] || cat "$out/logs/$name"
    done < "$out/list" > "$out/simulated.log"
    return $status
}

list_cases() {
    local word=usual
    [ -n "${LARGE:-}${CASES:-}" ] && word='[ul]'
    [ "$mode" = --grid ] && word="grid " && [ -n "${LARGE:-}${CASES:-}" ] && word=grid
    grep "^[^ ]* $word" "$out/cases" | grep -E "^(${CASES:+(${CASES// /|}) })"
}

compile_sass() {
    has "$NVCC" || { skip sass "no nvcc"; return; }
    printf '%s\n' 75 90 | xargs -P "$JOBS" -I @ "$NVCC" -arch=sm_@ -std=c++17 -I. -cubin \
        -o "$out/sm_@.cubin" tests/compile/implementation.cu
}

failed=0
case $mode in
--grid) simulate || failed=1 ;;
*)
    count &
    counting=$!
    compile_sass || { echo "FAILED compile_sass"; failed=1; }
    wait $counting || { echo "FAILED count"; failed=1; }
    simulate || { echo "FAILED simulate"; failed=1; }
    ;;
esac
# shellcheck disable=SC2086
python3 bench/cycles.py "$mode" "$out" $failed $update
