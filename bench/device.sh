#!/bin/bash
# bench/device.sh - everything that needs a GPU, in one call of under nine minutes.
#
#   bench/device.sh              results into $OUT if that is set, else build/device/results/<gpu>
#   bench/device.sh --update     results into bench/results/<gpu>, which is for committing
#   bench/device.sh --dry-run    every stage on tests/ptxrun with tiny settings: shows that the
#                                script works; the figures it leaves in build/dry-run are empty
#
#   FLASHINFER, SGLANG, VLLM, TRTLLM   checkouts, for peers.sh
#   ONLY="verify counters"       only these stages; without "build", with what was built before
#
# Time: each stage has a budget of its own and what is left of LIMIT (500 s), whichever is less: a
# stage that hangs costs its budget, not the stages behind it. So the end is at LIMIT + 5 s for a
# stage that must be killed + 20 s for the summary and its pictures: 525 s, under nine minutes. What
# matters most runs first: if every stage took all of its budget, those up to "moves" would run in
# full (455 s) and "examples" for the rest. What was not reached says so; ONLY runs it in a second
# call. Ten files come out, none of them deep, and pictures beside them:
#   machine.txt  log.txt  tests.txt  sanitizer.txt  bench.csv  cases.csv  peers.csv  pairs.csv
#   ncu.csv  summary.md
# The clocks and modes of the card are left as they are.
set -u
cd "$(dirname "$0")/.." || exit 1
dry=0 update=0
for word in "$@"; do
    case $word in
    --dry-run) dry=1 ;;
    --update) update=1 ;;
    *) sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 2 ;;
    esac
done
LIMIT=${LIMIT:-500} ARCH=${ARCH:-sm_90} BUILD=${BUILD:-build/device}
NVCC=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
SECONDS=0

has() { command -v "$1" > /dev/null 2>&1; }

if [ $dry = 1 ]; then
    LIMIT=${DRY_LIMIT:-1500} BUILD=build/dry-run
    out=$BUILD/results
    ptxrun=${PTXRUN_OUT:-$PWD/tests/ptxrun/build}
    [ -f "$ptxrun/libcudart.so.13" ] || make -s -C tests/ptxrun OUT="$ptxrun" || exit 1
    export LD_LIBRARY_PATH=$ptxrun PTXRUN_EXIT=1 PTXRUN_QUIET=1
    settings="--quick --warmup 0 --iters 1 --graph 2 --replays 1"
else
    if ! timeout 10 nvidia-smi -L 2> /dev/null | grep -q GPU; then
        echo "device.sh: no GPU here; try bench/device.sh --dry-run"
        exit 1
    fi
    gpu=$(timeout 10 nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1)
    gpu=$(tr -cs 'A-Za-z0-9\n' - <<< "$gpu" | sed 's/-$//; s/^NVIDIA-//' | tr A-Z a-z)
    out=${OUT:-$BUILD/results/$gpu}
    [ $update = 0 ] || out=bench/results/$gpu
    cuda=$(dirname "$(dirname "$NVCC")")
    export LD_LIBRARY_PATH=$cuda/lib64:$cuda/lib:${LD_LIBRARY_PATH:-}
    settings=
fi
mkdir -p "$BUILD" "$out"
: > "$out/log.txt"
statuses=()

# stage NAME BUDGET COMMAND...: output to log.txt; remembers how it went. In a dry run the budgets
# do not count: the interpreter is some ten thousand times slower than what they were made for.
stage() {
    local name=$1 budget=$2 left=$((LIMIT - SECONDS)) started=$SECONDS code
    shift 2
    [[ -z ${ONLY:-} || " $ONLY " == *" $name "* ]] || return 0
    [ $dry = 1 ] && budget=$left
    [ "$budget" -gt "$left" ] && budget=$left
    if [ "$budget" -le 5 ]; then
        statuses+=("$name: not run, no time was left")
        return 1
    fi
    echo "== $name (up to $budget s)" >> "$out/log.txt"
    # shellcheck disable=SC2163
    export -f "$1" 2> /dev/null # functions only; programs need no export
    timeout -k 5 "$budget" bash -c '"$@"' stage "$@" >> "$out/log.txt" 2>&1
    code=$?
    collect_rows
    case $code in
    0) statuses+=("$name: ok, $((SECONDS - started)) s") ;;
    77) statuses+=("$name: skipped, $(tail -n 1 "$out/log.txt")") ;;
    124 | 137) statuses+=("$name: stopped after $budget s") ;;
    *) statuses+=("$name: FAILED ($code) after $((SECONDS - started)) s, see log.txt") ;;
    esac
    echo "${statuses[-1]}"
    return $code
}

skip() {
    echo "$1"
    exit 77
}

# The first rows bring the header and the machine; rows of a kit with other constants say so in
# the column of the variant; half a line is no row.
collect_rows() {
    local rows=$BUILD/rows.csv file=$out/bench.csv label
    [ -s "$rows" ] || return 0
    label=$(cat "$BUILD/rows.label")
    [ -s "$file" ] || grep -E '^(#|op,)' "$rows" > "$file"
    grep -vE '^(#|op,)' "$rows" | awk -F, -v OFS=, -v label="$label" '
        NF == 25 {
            if (label != "") $2 = $2 " " label
            print
        }' >> "$file"
    rm -f "$rows"
}

# ------------------------------------------------------------------------------------- machine

machine() {
    timeout 10 nvidia-smi 2> /dev/null || echo "no nvidia-smi"
    timeout 10 nvidia-smi -q -d CLOCK 2> /dev/null
    "$NVCC" --version | tail -n 2
    python3 --version
    git log -1 --format='commit %H' 2> /dev/null || true
}

# --------------------------------------------------------------------------------------- build

# -cudart shared -no-compress: the same binaries run on ptxrun.
build_one() {
    local source=$1 program=$2
    shift 2
    "$NVCC" -arch="$ARCH" -O3 -std=c++17 -lineinfo -cudart shared -no-compress \
        -DBENCH_FLAGS="\"-O3 -arch=$ARCH\"" "$source" -o "$BUILD/$program" "$@"
}

# The compilers share the processor cores; each one's exit code counts.
build() {
    local pids=() failed=0 pid threads piece
    local threads_tried="256 384 512 1024" pieces_tried="1024 4096"
    [ $dry = 0 ] || threads_tried=256 pieces_tried= # one shows that it works
    build_one bench/bench.cu bench -Xptxas -v & pids+=($!)
    build_one bench/cub_compare.cu cub_compare & pids+=($!)
    build_one bench/kit_abi.cu libkit_abi.so -shared -Xcompiler -fPIC & pids+=($!)
    # The kit with other launch shapes, from edited copies: how good are the constants?
    for threads in $threads_tried; do
        mkdir -p "$BUILD/threads$threads/bench" "$BUILD/threads$threads/tests/ptxrun"
        cp -r tests/ptxrun/include "$BUILD/threads$threads/tests/ptxrun/"
        cp bench/*.h bench/*.cu bench/*.cuh "$BUILD/threads$threads/bench/"
        cp specverify_ref.h "$BUILD/threads$threads/"
        sed -E "s/^(#define SPECV_PACK_THREADS +)[0-9]+/\1$threads/" specverify.cuh \
            > "$BUILD/threads$threads/specverify.cuh"
        build_one "$BUILD/threads$threads/bench/bench.cu" "bench_threads$threads" & pids+=($!)
    done
    for piece in $pieces_tried; do
        mkdir -p "$BUILD/piece$piece/bench" "$BUILD/piece$piece/tests/ptxrun"
        cp -r tests/ptxrun/include "$BUILD/piece$piece/tests/ptxrun/"
        cp bench/*.h bench/*.cu bench/*.cuh "$BUILD/piece$piece/bench/"
        cp specverify_ref.h "$BUILD/piece$piece/"
        sed -E "s/^(#define SPECV_PIECE_BYTES +)[0-9]+/\1$piece/" specverify.cuh \
            > "$BUILD/piece$piece/specverify.cuh"
        build_one "$BUILD/piece$piece/bench/bench.cu" "bench_piece$piece" & pids+=($!)
    done
    for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
    [ -x "$BUILD/bench" ] || return 1
    [ $failed = 0 ] || echo "some builds failed; their stages will be skipped"
}

# --------------------------------------------------------------------------------------- tests

run_tests() {
    # OUT means another folder there: binaries and logs of the tests are no results. Without a GPU
    # `make test` is for them; here one shows that it works.
    [ $dry = 0 ] || export TESTS=stats GENERATIONS=90
    OUT=build/tests QUICK=1 bash tests/run.sh --first > "$out/tests.txt" 2>&1
    local code=$?
    tail -n 3 "$out/tests.txt"
    return $code
}

# What is new beside the operations: graphs of whole cycles, two steps deep, an API request, Python.
# Side by side, for they are mostly the compiler's time; each compares its output with what is
# committed.
examples() {
    local patterns="graphs/ overlap 08_step 09_api_request pytorch" pattern pids=() pid failed=0
    [ $dry = 0 ] || patterns="01_launch 03_ref_only"
    for pattern in $patterns; do
        mkdir -p "$BUILD/examples/${pattern%/}"
        OUT=$BUILD/examples/${pattern%/} bash examples/run.sh "$pattern" \
            > "$BUILD/examples/${pattern%/}.txt" 2>&1 & pids+=($!)
    done
    for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
    for pattern in $patterns; do
        echo "== examples/run.sh $pattern"
        cat "$BUILD/examples/${pattern%/}.txt"
    done | tee -a "$out/tests.txt"
    return $failed
}

# One launch of every operation under each tool, with an error in any of them an error here. The
# tools run side by side.
sanitize_with() {
    local tool=$1 words failed=0
    for words in "verify kit 32 128 0.9 0 1 int32" "verify kit 33 8 0.6 0 1 int64" \
        "sample token 2 4 5000 bf16" "sample block 2 4 5000 f32" "sample coupled 2 4 5000 bf16" \
        "sample token-k50-p90 2 4 5000 bf16" "sample coupled-k50 2 4 5000 f32" \
        "sample cdf-p90 2 0 5000 bf16" "sample cdf-mask 2 0 5000 bf16" \
        "sample cdf-top20 2 0 5000 bf16" "sample token-top20 2 4 5000 f32" \
        "pack kit 32 8 0.9 250 1 int64" "verify_pack one 32 8 0.6 1024 4 int32" \
        "verify_pack two 64 64 0.9 512 1 int64" "stats kit 100 8 0.6 0 1 int64" \
        "move append-hnd 33 8 3 64" "move append-numbers 128 8 0 128" "move resize 128 8 0 512" \
        "move resize-copy 33 8 3 64" "move fork 64 8 0 512" "move realign 9 8 3 96" \
        "move commit 9 8 3 96" "move commit-paged 33 8 3 96" "move layout-links 33 8 0 60" \
        "move gap 32 8 0 128" "move compact 300 8 0 64" "move group 300 0 0 64" \
        "move budget 128 8 0 64" "move weights-power 300 8 0 64" "move plan-4 100 0 0 64" \
        "move plan-1024 2048 0 0 64" "move reshuffle 256 0 0 512"; do
        echo "== $tool: bench one $words"
        # shellcheck disable=SC2086
        timeout 30 compute-sanitizer --tool "$tool" --error-exitcode 1 "$BUILD/bench" one $words \
            --arena 64 2>&1 || failed=1
    done
    return $failed
}

sanitize() {
    local tool tools="memcheck racecheck initcheck synccheck" failed=0 pids=() pid
    has compute-sanitizer || skip "there is no compute-sanitizer"
    for tool in $tools; do
        sanitize_with "$tool" > "$BUILD/sanitizer.$tool" & pids+=($!)
    done
    for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
    for tool in $tools; do cat "$BUILD/sanitizer.$tool"; done > "$out/sanitizer.txt"
    grep -c "ERROR SUMMARY: 0 errors" "$out/sanitizer.txt"
    return $failed
}

# -------------------------------------------------------------------------------------- sweeps

# sweep PROGRAM COMMAND [LABEL [OPTIONS]]: writes rows.csv; collect_rows moves them into bench.csv,
# also those of a sweep that was stopped half-way.
sweep() {
    local program=$1 command=$2 label=${3:-} more=${4:-} code
    [ -x "$BUILD/$program" ] || skip "$program was not built"
    echo "$label" > "$BUILD/rows.label"
    # shellcheck disable=SC2086
    "$BUILD/$program" "$command" $settings $more > "$BUILD/rows.csv"
    code=$?
    collect_rows
    return $code
}

# The caches of a real model, if there is room for them; otherwise planes are left out.
moves() {
    local free=0 arena=2048
    has nvidia-smi && free=$(nvidia-smi --query-gpu=memory.free --format=csv,noheader,nounits |
        head -n 1)
    if [ $dry = 0 ] && [[ $free =~ ^[0-9]+$ ]] && [ "$free" -gt 8192 ]; then
        arena=$((free - 4096 < 10240 ? free - 4096 : 10240))
    fi
    sweep bench moves "" "--arena $arena"
}

# The cases that the simulator has, with their floors: a table of its own.
cases() {
    # shellcheck disable=SC2086
    "$BUILD/bench" cases $settings > "$out/cases.csv"
}

tune_shapes() {
    local shape
    for shape in threads256 threads384 threads512 threads1024 piece1024 piece4096; do
        [ -x "$BUILD/bench_$shape" ] || { echo "no bench_$shape"; continue; }
        sweep "bench_$shape" shapes "$shape" || echo "$shape failed"
        [ $dry = 1 ] && break
    done
    true
}

# --------------------------------------------------------------------------------------- peers

peers_cub() {
    [ -x "$BUILD/cub_compare" ] || skip "cub_compare was not built"
    # shellcheck disable=SC2086
    "$BUILD/cub_compare" $settings > "$BUILD/cub.csv" 2> "$BUILD/cub.err"
    local code=$?
    grep -v "^.ptxrun. REPORT note" "$BUILD/cub.err" | head -n 20
    cat "$BUILD/cub.csv" >> "$out/peers.csv"
    return $code
}

# Kernels of FlashInfer, SGLang, vLLM beside ours, where their sources are.
peers_pairs() {
    [ $dry = 0 ] || skip "without a GPU bench/peers.sh counts"
    BUILD=$BUILD bash bench/peers.sh || return 1
    cp "$BUILD/peers/peers.csv" "$out/pairs.csv"
}

peers_torch() {
    python3 bench/compare.py "$BUILD/libkit_abi.so" --iters 100 > "$BUILD/torch.csv"
    local code=$?
    grep -q skipped "$BUILD/torch.csv" && skip "$(head -n 1 "$BUILD/torch.csv")"
    cat "$BUILD/torch.csv" >> "$out/peers.csv"
    return $code
}

# ------------------------------------------------------------------------------------ counters

# The counters that the seed could not read, of the kernels it asked about and of ours.
counters() {
    local metrics words
    has ncu || skip "there is no ncu"
    metrics=smsp__thread_inst_executed_per_inst_executed.ratio,smsp__inst_executed.sum
    metrics+=,l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum
    metrics+=,l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum
    metrics+=,dram__bytes_read.sum,dram__bytes_write.sum,gpu__time_duration.sum
    metrics+=,launch__registers_per_thread,sm__warps_active.avg.pct_of_peak_sustained_active
    : > "$out/ncu.csv"
    for words in "verify naive 32 128 0.3" "verify naive 32 128 0.9" "verify ballot 32 128 0.3" \
        "verify ballot 32 128 0.9" "verify kit 32 128 0.3" "verify kit 32 128 0.9" \
        "verify_pack one 32 8 0.9 4096" "verify_pack one 32 128 0.9 4096" \
        "verify_pack two 32 128 0.9 4096" "move append-hnd 32 8 16 128" \
        "sample cdf 1 0 128256 bf16" "sample cdf-k50-p90 1 0 128256 bf16" \
        "sample cdf-top20 1 0 128256 bf16" "sample token 8 4 32000 bf16" \
        "sample token-k50-p90 8 4 32000 bf16" "sample token-top20 8 4 32000 bf16" \
        "move realign 8 8 16 1024" "move group 1024 0 0 64" "move weights 1024 8 0 64" \
        "move plan-1024 4096 0 0 64" "move reshuffle 1024 0 0 512"; do
        echo "# bench one $words" >> "$out/ncu.csv"
        # shellcheck disable=SC2086
        timeout 30 ncu --csv --page raw --clock-control none --metrics "$metrics" \
            "$BUILD/bench" one $words --arena 256 >> "$out/ncu.csv" 2>&1
    done
    if grep -q ERR_NVGPUCTRPERM "$out/ncu.csv"; then skip "no permission to read counters"; fi
    grep -q smsp__inst_executed "$out/ncu.csv"
}

# ------------------------------------------------------------------------------------- program

whole_program() {
    grep -q '^run:' Makefile 2> /dev/null || skip "there is no make run"
    if [ $dry = 1 ]; then
        make -n run
    else
        make run
    fi
}

export BUILD NVCC ARCH out settings dry
export -f has skip build_one collect_rows sweep sanitize_with
rm -f "$BUILD/rows.csv"
if [ -z "${ONLY:-}" ]; then rm -f "$out/bench.csv" "$out/peers.csv" "$BUILD/bench"; fi

machine > "$out/machine.txt" 2>&1
if stage build 110 build; then
    stage tests 80 run_tests
    stage floors 15 sweep bench floors
    stage verify 60 sweep bench verify
    stage verify_pack 60 sweep bench verify_pack
    stage sample 50 sweep bench sample
    stage filters 40 sweep bench filters
    stage moves 40 moves
    stage cases 40 cases
    stage examples 90 examples
    stage counters 50 counters
    stage pairs 120 peers_pairs
    stage torch 60 peers_torch
    stage cub 40 peers_cub
    stage program 40 whole_program
    stage sanitize 90 sanitize
    stage wide 50 sweep bench wide
    stage pack 40 sweep bench pack
    stage stats 15 sweep bench stats
    stage tune 30 sweep bench tune
    stage shapes 50 tune_shapes
fi

timeout 10 python3 bench/plot.py summary "$out" > "$out/summary.md" 2>> "$out/log.txt" ||
    echo "no summary: see log.txt" >> "$out/summary.md"
timeout 10 python3 bench/plot.py plots "$out" >> "$out/log.txt" 2>&1
echo
cat "$out/summary.md"
echo
printf '%s\n' "${statuses[@]}" | tee -a "$out/log.txt"
echo "$SECONDS s; results in $out"
[ -x "$BUILD/bench" ] || exit 1 # nothing was measured
! printf '%s\n' "${statuses[@]}" | grep -q FAILED
