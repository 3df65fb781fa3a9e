#!/bin/bash
# bench/run.sh - what can be measured where we are; `make bench` calls it.
#
# With a GPU this is bench/device.sh. Without one there is no time of a kernel to be had, so it does
# the two things that mean something: it times the reference (hyperfine), and it counts what every
# variant does (tests/ptxrun: instructions, sectors, bytes, collectives), which is exact and the
# same on every machine. The counts go to bench/results/ptxrun/counters.csv, which is committed.
#
#   bench/run.sh --check   builds everything here, verifies every variant, runs every script as far
#                          as it goes without a GPU; ends with "N passed, N failed, N skipped"
#   BUILD=folder (build)   ARCH=sm_90   NO_INSTALL=1 (do not try to install hyperfine)
#   PTXRUN_OUT=folder      where tests/ptxrun was built
set -u
cd "$(dirname "$0")/.." || exit 1
BUILD=${BUILD:-build} ARCH=${ARCH:-sm_90}
NVCC=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
ptxrun=${PTXRUN_OUT:-$PWD/tests/ptxrun/build}
mkdir -p "$BUILD"

has() { command -v "$1" > /dev/null 2>&1; }

# Debian and its kin call the package hyperfine; elsewhere it is the user's to install.
get_hyperfine() {
    has hyperfine && return 0
    [ -n "${NO_INSTALL:-}" ] && { why="not installed, NO_INSTALL is set"; return 1; }
    has apt-get || { why="not installed, and there is no apt-get"; return 1; }
    [ "$(id -u)" = 0 ] || { why="not installed: apt-get install hyperfine (needs root)"; return 1; }
    apt-get install -y -q hyperfine > "$BUILD/hyperfine.log" 2>&1 ||
        { apt-get update -q && apt-get install -y -q hyperfine; } >> "$BUILD/hyperfine.log" 2>&1
    has hyperfine || { why="apt-get could not install it, see $BUILD/hyperfine.log"; return 1; }
}

time_reference() {
    echo "== the reference on this machine's CPU, one core (not the kit, which needs a GPU)"
    ${CC:-cc} -O3 -std=c99 bench/bench_ref.c -o "$BUILD/bench_ref" || return 1
    if ! get_hyperfine; then
        echo "skipped: hyperfine $why"
        return 0
    fi
    # Enough repeats that a process runs for tens of milliseconds: start-up must not matter.
    hyperfine -N --warmup 2 --runs 10 --style basic --export-csv "$BUILD/reference.csv" \
        -n "verify b32 g8 x20000" "$BUILD/bench_ref verify 32 8 60 1 20000" \
        -n "verify b256 g128 x200" "$BUILD/bench_ref verify 256 128 90 1 200" \
        -n "pack b32 g8 row 4096 x100" "$BUILD/bench_ref pack 32 8 90 4096 100" \
        -n "verify_pack b32 g8 row 4096 x100" "$BUILD/bench_ref verify_pack 32 8 90 4096 100" \
        > "$BUILD/hyperfine.txt" 2> "$BUILD/hyperfine.err" ||
        { cat "$BUILD/hyperfine.err"; return 1; }
    awk -F, '
        NR == 1 { next }
        {
            repeats = $1
            sub(/.* x/, "", repeats)
            printf "%-36s %10.2f us a step (p50 of 10 runs %.1f ms)\n", $1, 1e6 * $4 / repeats,
                   1e3 * $4
        }' "$BUILD/reference.csv"
}

count_on_ptxrun() {
    local out=bench/results/ptxrun
    echo
    echo "== counts of one launch of every variant (tests/ptxrun; not times)"
    if ! has "$NVCC"; then
        echo "skipped: no nvcc; the committed counts are in $out/counters.csv"
        return 0
    fi
    [ -f "$ptxrun/libcudart.so.13" ] || make -s -C tests/ptxrun OUT="$ptxrun" || return 1
    "$NVCC" -arch="$ARCH" -O3 -std=c++17 -lineinfo -cudart shared -no-compress \
        -DBENCH_FLAGS="\"-O3 -arch=$ARCH\"" bench/bench.cu -o "$BUILD/bench" || return 1
    mkdir -p "$out"
    LD_LIBRARY_PATH=$ptxrun PTXRUN_EXIT=1 PTXRUN_QUIET=1 \
        "$BUILD/bench" counters > "$BUILD/counters.csv" || return 1
    cp "$BUILD/counters.csv" "$out/counters.csv"
    print_counts "$out/counters.csv"
    print_score_counts "$out/counters.csv"
    print_move_counts "$out/counters.csv"
    echo "all: $out/counters.csv"
}

print_counts() {
    awk -F, '
        /^#/ { print; next }
        $1 == "op" {
            for (i = 1; i <= NF; ++i) column[$i] = i
            printf "%-14s %-13s %4s %5s %5s %6s %9s | %8s %9s %5s %8s %8s %8s %9s\n", "op",
                   "variant", "b", "gamma", "alpha", "kv", "dtype", "launches", "warp insn",
                   "lanes", "diverge", "sectors", "ideal", "moved/min"
            next
        }
        {
            if (last != "" && last != $1 $3 $4 $5 $6) print ""
            last = $1 $3 $4 $5 $6
            sectors = $column["load_sectors"] + $column["store_sectors"]
            printf "%-14s %-13s %4d %5d %5.1f %6d %9s | %8d %9d %5.1f %8d %8d %8d %9.2f\n", $1,
                   $2, $3, $4, $5, $6, $column["dtype"], $column["launches"],
                   $column["warp_instructions"],
                   $column["thread_instructions"] / $column["warp_instructions"],
                   $column["divergent_branches"],
                   sectors, $column["ideal_sectors"], 32 * sectors / $column["min_bytes"]
        }' "$1"
}

# What reads scores: per score that the first pass needs (from probabilities, of the rows that the
# token comes from), and sectors read over the least bytes.
print_score_counts() {
    awk -F, '
        $1 == "op" {
            for (i = 1; i <= NF; ++i) column[$i] = i
            printf "\n%-14s %-13s %4s %5s %5s %7s %9s | %8s %11s %8s\n", "op", "variant", "b",
                   "gamma", "alpha", "vocab", "dtype", "launches", "insn/score", "read/min"
            next
        }
        $column["generator"] == "scores" {
            type = $column["dtype"]
            id_bytes = type == "bf16" ? 2 : 4
            # All that min_bytes holds besides scores is less than a row of them.
            rows = int($column["min_bytes"] / $column["kv_bytes"])
            printf "%-14s %-13s %4d %5d %5.2f %7d %9s | %8d %11.1f %8.3f\n", $1, $2, $3, $4, $5,
                   $6 / id_bytes, type, $column["launches"],
                   $column["thread_instructions"] / (rows * $6 / id_bytes),
                   32 * $column["load_sectors"] / $column["min_bytes"]
        }' "$1"
}

# What moves KV: two counts of planes, so that their difference is what 16 bytes cost, in one
# direction, and the rest what the launch costs. `copied` is what the published way moves beside.
print_move_counts() {
    awk -F, '
        $1 == "op" {
            for (i = 1; i <= NF; ++i) column[$i] = i
            printf "\n%-12s %-16s %4s | %9s %14s %15s\n", "op", "variant", "b", "moved/min",
                   "insn/16 bytes", "insn of a launch"
            next
        }
        $column["generator"] != "moves" || $column["kv_bytes"] == 0 { next }
        $1 $2 == last && $column["min_bytes"] > least {
            sectors = $column["load_sectors"] + $column["store_sectors"]
            each = ($column["thread_instructions"] - insn) / (($column["min_bytes"] - least) / 32)
            printf "%-12s %-16s %4d | %9.2f %14.1f %15d\n", $1, $2, $3,
                   32 * sectors / $column["min_bytes"], each, insn - each * least / 32
        }
        { last = $1 $2; least = $column["min_bytes"]; insn = $column["thread_instructions"] }' "$1"
}

# ---- --check: is bench/ itself in order?

passed=0 failed=0 skipped=0

check() {
    local name=$1
    shift
    if "$@" > "$BUILD/check.log" 2>&1; then
        passed=$((passed + 1))
    elif [ $? = 77 ]; then
        skipped=$((skipped + 1))
        echo "skipped $name: $(tail -n 1 "$BUILD/check.log")"
    else
        failed=$((failed + 1))
        echo "FAILED $name"
        tail -n 20 "$BUILD/check.log"
    fi
}

strict="-Wall,-Wextra,-Wconversion,-Wshadow,-Werror"

check_reference() {
    ${CC:-cc} -O3 -std=c99 -Wall -Wextra -Wconversion -Wshadow -Werror bench/bench_ref.c \
        -o "$BUILD/bench_ref" && "$BUILD/bench_ref" verify_pack 32 8 60 256 1
}

check_build() {
    has "$NVCC" || { echo "no nvcc"; return 77; }
    "$NVCC" -arch="$ARCH" -O3 -std=c++17 -cudart shared -no-compress -Xcompiler="$strict" "$@"
}

check_run() {
    local program=$1
    shift
    [ -x "$program" ] || { echo "${program##*/} was not built"; return 77; }
    [ -f "$ptxrun/libcudart.so.13" ] || make -s -C tests/ptxrun OUT="$ptxrun" || return 1
    LD_LIBRARY_PATH=$ptxrun PTXRUN_EXIT=1 PTXRUN_QUIET=1 "$program" "$@"
}

check_python() {
    has python3 || { echo "no python3"; return 77; }
    python3 "$@" || return 1
    ! grep -q skipped "$BUILD/check.log" || return 77
}

check_all() {
    local tiny="--quick --warmup 0 --iters 1 --graph 2 --replays 1" script sweep
    for script in bench/*.sh; do check "$script" bash -n "$script"; done
    check "bench_ref" check_reference
    rm -f "$BUILD/bench" "$BUILD/cub_compare" "$BUILD/peers_of_toolkit" "$BUILD/libkit_abi.so"
    check "build bench" check_build bench/bench.cu -o "$BUILD/bench"
    check "build kit_abi" check_build -shared -Xcompiler -fPIC bench/kit_abi.cu \
        -o "$BUILD/libkit_abi.so"
    # CUB's headers are not ours to keep free of warnings.
    strict=-w check "build cub_compare" check_build bench/cub_compare.cu -o "$BUILD/cub_compare"
    strict=-w check "build peers" check_build bench/peers.cu -o "$BUILD/peers_of_toolkit"
    check "bench counters" check_run "$BUILD/bench" counters --quick
    # shellcheck disable=SC2086
    for sweep in floors verify stats sample moves shapes; do
        check "bench $sweep" check_run "$BUILD/bench" $sweep $tiny
    done
    # shellcheck disable=SC2086
    check "cub_compare" check_run "$BUILD/cub_compare" $tiny
    check "peers" check_run "$BUILD/peers_of_toolkit" "rows of 4096"
    check "compare.py" check_python bench/compare.py "$BUILD/libkit_abi.so"
    check "plot.py summary" check_python bench/plot.py summary bench/results/ptxrun
    check "cycles.py" check_python bench/cycles.py --self-test
    check "plot.py readme" check_python bench/plot.py readme --check
    echo "$passed passed, $failed failed, $skipped skipped"
    [ $failed = 0 ]
}

if [ "${1:-}" = --check ]; then
    check_all
    exit
fi
if has nvidia-smi && nvidia-smi -L 2> /dev/null | grep -q GPU; then
    exec bench/device.sh "$@"
fi
status=0
time_reference || status=1
count_on_ptxrun || status=1
echo
echo "No GPU here: no kernel was timed. On one, bench/device.sh measures everything."
exit $status
