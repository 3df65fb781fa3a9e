#!/bin/bash
# bench/run.sh - what can be measured where we are; `make bench` calls it.
#
# With a GPU this is bench/device.sh. Without one there is no time of a kernel to be had, so it does
# the two things that mean something: it times the reference (hyperfine), and it counts what every
# variant does (tests/ptxrun: instructions, sectors, bytes, collectives), which is exact and the
# same on every machine. One screen of it, beside what the study measured; no committed file
# changes.
#
#   bench/run.sh --all     every count, in long tables
#   bench/run.sh --update  the counts into bench/results/ptxrun/counters.csv
#   bench/run.sh --check   builds everything here, verifies every variant, runs every script as far
#                          as it goes without a GPU, compares counts and pictures with what is
#                          committed; ends with "N passed, N failed, N skipped"
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
    ${CC:-cc} -O3 -std=c99 bench/bench_ref.c -o "$BUILD/bench_ref" || return 1
    if ! get_hyperfine; then
        echo "the C reference, timed: skipped, hyperfine $why"
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
        NR == 1 { printf "the C reference, us on one core here (measured):"; next }
        {
            repeats = $1
            sub(/.* x/, "", repeats)
            sub(/ x[0-9]*$/, "", $1)
            printf "%s %s %.2f", NR == 4 ? ",\n " : NR == 2 ? "" : ",", $1, 1e6 * $4 / repeats
        }
        END { print "" }' "$BUILD/reference.csv"
}

# bench.cu for the interpreter, and the counts of every variant, in $BUILD/counters.csv.
build_for_ptxrun() {
    [ -f "$ptxrun/libcudart.so.13" ] || make -s -C tests/ptxrun OUT="$ptxrun" || return 1
    "$NVCC" -arch="$ARCH" -O3 -std=c++17 -lineinfo -cudart shared -no-compress \
        -DBENCH_FLAGS="\"-O3 -arch=$ARCH\"" bench/bench.cu -o "$BUILD/bench"
}

count() {
    LD_LIBRARY_PATH=$ptxrun PTXRUN_EXIT=1 PTXRUN_QUIET=1 \
        "$BUILD/bench" counters > "$BUILD/counters.csv"
}

say_what_changed() {
    [ -n "${update:-}" ] ||
        echo "No committed file has changed: that takes --update. With a GPU: bench/device.sh"
}

show_counts() {
    local out=bench/results/ptxrun/counters.csv shown=$BUILD/counters.csv
    if has "$NVCC"; then
        build_for_ptxrun && count || return 1
    else
        shown=$out
        echo "counts: skipped, no nvcc; these are the committed ones"
    fi
    if [ -n "$update" ] && [ "$shown" != "$out" ]; then
        mkdir -p "${out%/*}" && cp "$shown" "$out" && echo "written: $out"
    fi
    if [ -n "$all" ]; then
        print_counts "$shown"
        print_score_counts "$shown"
        print_move_counts "$shown"
        echo "every column: $shown"
    elif has python3; then
        python3 bench/plot.py screen "$shown"
    else
        echo "no python3: bench/run.sh --all has the counts alone"
    fi
}

print_counts() {
    echo "lanes: of 32 that take part in an instruction, mean; diverge: branches that part a warp;"
    echo "ideal: sectors if every one were used in full; moved/min: 32 bytes a sector over the"
    echo "least bytes; kv: bytes of a KV row. Counted, one launch."
    awk -F, '
        /^#/ { next }
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
    echo
    echo "insn/score: instructions of threads over the scores that the first pass reads; read/min:"
    echo "sectors read over the least bytes. Counted, one launch."
    awk -F, '
        $1 == "op" {
            for (i = 1; i <= NF; ++i) column[$i] = i
            printf "%-14s %-18s %4s %5s %5s %7s %9s | %8s %11s %8s\n", "op", "variant", "b",
                   "gamma", "alpha", "vocab", "dtype", "launches", "insn/score", "read/min"
            next
        }
        $column["generator"] == "scores" {
            type = $column["dtype"]
            id_bytes = type == "bf16" ? 2 : 4
            # All that min_bytes holds besides scores is less than a row of them.
            rows = int($column["min_bytes"] / $column["kv_bytes"])
            printf "%-14s %-18s %4d %5d %5.2f %7d %9s | %8d %11.1f %8.3f\n", $1, $2, $3, $4, $5,
                   $6 / id_bytes, type, $column["launches"],
                   $column["thread_instructions"] / (rows * $6 / id_bytes),
                   32 * $column["load_sectors"] / $column["min_bytes"]
        }' "$1"
}

# What moves KV: two counts of planes, so that their difference is what 16 bytes cost, in one
# direction, and the rest what the launch costs. `copied` is what the published way moves beside.
print_move_counts() {
    echo
    echo "insn/16 bytes: instructions of a thread for 16 bytes that it moves, from two counts of"
    echo "planes; insn of a launch: the rest. Counted, one launch."
    awk -F, '
        $1 == "op" {
            for (i = 1; i <= NF; ++i) column[$i] = i
            printf "%-12s %-16s %4s | %9s %14s %15s\n", "op", "variant", "b", "moved/min",
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
    ! grep -v '[0-9] skipped$' "$BUILD/check.log" | grep -q skipped || return 77
}

# The counts that are committed are those of this header, where the compiler is the same.
check_counts() {
    local committed=bench/results/ptxrun/counters.csv here there
    [ -x "$BUILD/bench" ] || { echo "bench was not built"; return 77; }
    [ -f "$ptxrun/libcudart.so.13" ] || make -s -C tests/ptxrun OUT="$ptxrun" || return 1
    count || return 1
    here=$(sed -n 's/.*compiler: \([0-9.]*\),.*/\1/p' "$BUILD/counters.csv")
    there=$(sed -n 's/.*compiler: \([0-9.]*\),.*/\1/p' "$committed")
    if [ "$here" != "$there" ]; then
        echo "the committed counts are of nvcc $there, here is $here"
        return 77
    fi
    diff <(grep -v '^#' "$committed") <(grep -v '^#' "$BUILD/counters.csv") \
        > "$BUILD/counts.diff" && return
    echo "$(grep -c '^[<>]' "$BUILD/counts.diff") lines differ: bench/run.sh --update"
    head -n 4 "$BUILD/counts.diff"
    return 1
}

# The same of the one peer that nvcc brings along.
check_peers() {
    local committed=bench/results/ptxrun/peers.csv here
    check_run "$BUILD/peers_of_toolkit" "rows of 4096" > "$BUILD/peers.csv" || return $?
    cat "$BUILD/peers.csv"
    here=$("$NVCC" --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')
    grep -q "of nvcc $here\$" "$committed" ||
        { echo "the committed counts are not of nvcc $here"; return 77; }
    here=$(grep '^CUB' "$BUILD/peers.csv") && [ -n "$here" ] || return 1
    grep -qxF "$here" "$committed" || { echo "other counts than $committed has"; return 1; }
}

# What a person sees: one screen, every column explained, the study's figures beside ours.
check_screen() {
    local shown=$BUILD/screen.txt word
    [ -s "$BUILD/counters.csv" ] || { echo "nothing was counted"; return 77; }
    has python3 || { echo "no python3"; return 77; }
    { python3 bench/plot.py screen "$BUILD/counters.csv" && NO_INSTALL=1 time_reference &&
        say_what_changed; } > "$shown" || return 1
    [ "$(wc -l < "$shown")" -le 40 ] || { echo "$(wc -l < "$shown") lines"; return 1; }
    awk 'length($0) > 100 { print "too wide: " $0; wide = 1 } END { exit wide }' "$shown" ||
        return 1
    local words=(b gamma alpha row "warp insn" trips moved/min cycles "study us")
    if sed -n 2p "$shown" | grep -q "ours us"; then # times of a GPU take the place of two counts
        words+=("ours us")
    else
        words+=(launch lanes)
    fi
    for word in "${words[@]}"; do
        grep -qE "^.* $word( |$)" <(sed -n 2p "$shown") || { echo "no column $word"; return 1; }
        grep -qE "(^|[ ;])$word[ ,]" <(sed '1,/^b rows/{/^b rows/!d}' "$shown") ||
            { echo "no word on $word"; return 1; }
    done
    for word in counted simulated measured; do
        grep -q "^$word" "$shown" || { echo "nothing is $word"; return 1; }
    done
    grep -qE "1 ballot .* 12.93( +[0-9.]+)?$" "$shown" || { echo "the study's 12.93 us are missing"; return 1; }
    grep -q "More instructions can be less time" "$shown"
}

# Results that would be written with --update, and here must not be.
check_show() {
    local folder=$BUILD/made-up
    has python3 || { echo "no python3"; return 77; }
    rm -rf "$folder" && mkdir -p "$folder" || return 1
    printf 'RESULT row,A1-b32,verify,5 kit,32,8,0.8,0,1,int32,2240\n%s\nRESULT end\n' \
        'KIT kernel=made_up cycles=1 thread_insn=1 warp_insn=1 l2_bytes=1' > "$folder/simulated.log"
    python3 bench/cycles.py --show "$folder" 0 && python3 bench/cycles.py --grid "$folder" 0 &&
        grep -q "A1-b32,verify,5 kit" "$folder/grid.csv"
}

# Contents and names of all that git tracks or does not ignore.
state_of_tree() { { git status --porcelain && git diff HEAD; } | cksum; }

check_tree() {
    [ -n "$before" ] || { echo "no git checkout"; return 77; }
    [ "$(state_of_tree)" = "$before" ] || { git status --short; return 1; }
}

check_all() {
    local tiny="--quick --warmup 0 --iters 1 --graph 2 --replays 1" script sweep before=
    git rev-parse HEAD > /dev/null 2>&1 && before=$(state_of_tree)
    for script in bench/*.sh; do check "$script" bash -n "$script"; done
    check "bench_ref" check_reference
    rm -f "$BUILD"/{counters.csv,bench,cub_compare,peers_of_toolkit,libkit_abi.so}
    check "build bench" check_build bench/bench.cu -o "$BUILD/bench"
    check "build kit_abi" check_build -shared -Xcompiler -fPIC bench/kit_abi.cu \
        -o "$BUILD/libkit_abi.so"
    # CUB's headers are not ours to keep free of warnings.
    strict=-w check "build cub_compare" check_build bench/cub_compare.cu -o "$BUILD/cub_compare"
    strict=-w check "build peers" check_build bench/peers.cu -o "$BUILD/peers_of_toolkit"
    check "counts as committed" check_counts
    # shellcheck disable=SC2086
    for sweep in floors verify stats sample filters moves shapes; do
        check "bench $sweep" check_run "$BUILD/bench" $sweep $tiny
    done
    # shellcheck disable=SC2086
    check "cub_compare" check_run "$BUILD/cub_compare" $tiny
    check "peers, counts as committed" check_peers
    check "compare.py" check_python bench/compare.py "$BUILD/libkit_abi.so"
    check "model of A9's exchanges" check_python bench/shards_model.py --check
    check "plot.py summary" check_python bench/plot.py summary bench/results/ptxrun
    check "cycles.py" check_python bench/cycles.py --self-test
    check "cycles.py without --update" check_show
    check "plot.py readme" check_python bench/plot.py readme --check
    check "pictures of committed files" check_python bench/pictures.py --check
    check "pictures of a GPU" check_python bench/pictures.py --self-test
    check "one screen" check_screen
    check "committed files as they were" check_tree
    echo "$passed passed, $failed failed, $skipped skipped"
    [ $failed = 0 ]
}

all='' update=''
for word in "$@"; do
    case $word in
    --check) check_all; exit ;;
    --all) all=1 ;;
    --update) update=1 ;;
    *) break ;;
    esac
done
if has nvidia-smi && nvidia-smi -L 2> /dev/null | grep -q GPU; then
    exec bench/device.sh "$@"
fi
status=0
show_counts || status=1
time_reference || status=1
say_what_changed
exit $status
