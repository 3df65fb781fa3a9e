#!/bin/bash
# bench/peers.sh - kernels of other projects beside ours, on the same inputs, counted by ptxrun, or
# timed where there is a GPU.
#
# A table on the screen; with --update counts into bench/results/ptxrun/peers.csv, too: instructions,
# bytes and round trips. Times, as rows on the screen, are left in $BUILD/peers/peers.csv. No source
# of a peer is in this repository, and none is fetched: name the folders.
#
#   FLASHINFER=folder   a checkout of FlashInfer
#   SGLANG=folder       a checkout of SGLang; its kernel is written on FlashInfer's headers
#   A folder that is no git checkout says in a file COMMIT which commit it is of.
#   TRTLLM=folder       a checkout of TensorRT-LLM
#   VLLM=folder         a checkout of vLLM; its kernels are Triton's: PYTHON must import triton
#   CUB is the one that nvcc brings along. A peer that is not here: "skipped NAME: why".
#
#   bench/peers.sh "CDF / A8"   only pairs of that name, or "PAIR SHAPE"; into no file
#   BUILD=build   NVCC=nvcc   ARCH=90   PYTHON=python3   PTXRUN_OUT=folder of ptxrun's build
set -u
cd "$(dirname "$0")/.." || exit 1
BUILD=${BUILD:-build}/peers ARCH=${ARCH:-90}
NVCC=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
FLASHINFER=${FLASHINFER:-} SGLANG=${SGLANG:-} VLLM=${VLLM:-} PYTHON=${PYTHON:-python3}
TRTLLM=${TRTLLM:-}
ptxrun=${PTXRUN_OUT:-$PWD/tests/ptxrun/build} update=
[ "${1:-}" = --update ] && update=1 && shift
out=bench/results/ptxrun/peers.csv

has() { command -v "$1" > /dev/null 2>&1; }

# Which commit a folder is of.
version() {
    if [ -e "$1/.git" ]; then
        git -C "$1" rev-parse HEAD
    else
        head -n 1 "$1/COMMIT" 2> /dev/null || echo unknown
    fi
}

compile() { "$NVCC" "${flags[@]}" "$@"; }

has "$NVCC" || { echo "skipped peers: no nvcc; the committed counts are in $out"; exit 0; }
toolkit=$(dirname "$(readlink -f "$(command -v "$NVCC")")")
mkdir -p "$BUILD"
rm -f "$BUILD"/*
flags=(-O3 -std=c++17 -cudart shared -Xcompiler -w -w)
if timeout 10 nvidia-smi -L 2> /dev/null | grep -q GPU; then
    timed=1 figures=times
    flags+=("-arch=sm_$ARCH")
    libraries=$toolkit/../lib64:$toolkit/../lib:${LD_LIBRARY_PATH:-}
else
    timed= figures="counts of ptxrun, not times"
    [ -f "$ptxrun/libcudart.so.13" ] || make -s -C tests/ptxrun OUT="$ptxrun" || exit 1
    flags+=(-gencode "arch=compute_$ARCH,code=compute_$ARCH" -no-compress)
    libraries=$ptxrun
fi
found=() objects=() trees=()
{
    echo "# $figures; sm_$ARCH of nvcc" \
        "$("$NVCC" --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')"
    echo "# specverify $(sed -n 's/#define SPECVERIFY_VERSION_STRING "\(.*\)"/\1/p' specverify.cuh)"
} > "$BUILD/head"

# The peers are built with fast arithmetic, as they build themselves; the kit is not.
if [ -f "$FLASHINFER/include/flashinfer/sampling.cuh" ]; then
    compile -use_fast_math -I"$FLASHINFER/include" -c bench/peers_flashinfer.cu \
        -o "$BUILD/flashinfer.o" || exit 1
    found+=(-DPEERS_FLASHINFER) objects+=("$BUILD/flashinfer.o")
    echo "# FlashInfer $(version "$FLASHINFER")" >> "$BUILD/head"
else
    echo "skipped FlashInfer: FLASHINFER=folder has no include/flashinfer/sampling.cuh"
fi
speculative=$SGLANG/sgl-kernel/csrc/speculative
if [ -f "$speculative/speculative_sampling.cuh" ] && [ ${#found[@]} = 1 ]; then
    bench/peers_kernels.sh "$speculative/eagle_utils.cu" VerifyTreeGreedy \
        > "$BUILD/sglang_greedy.h" || exit 1
    compile -use_fast_math -I"$BUILD" -I"$FLASHINFER/include" -I"$speculative" \
        -c bench/peers_sglang.cu -o "$BUILD/sglang.o" || exit 1
    trees+=("greedy 1 8" "greedy 32 8" "coin 1 8 32000" "coin 1 3 32000" "coin 16 3 32000")
    found+=(-DPEERS_SGLANG) objects+=("$BUILD/sglang.o")
    echo "# SGLang $(version "$SGLANG")" >> "$BUILD/head"
elif [ -f "$speculative/speculative_sampling.cuh" ]; then
    echo "skipped SGLang: its kernel needs FLASHINFER=folder, too"
else
    echo "skipped SGLang: SGLANG=folder has no sgl-kernel/csrc/speculative"
fi
accepts=$TRTLLM/cpp/tensorrt_llm/kernels/speculativeDecoding/common.cu
if [ -f "$accepts" ]; then
    bench/peers_kernels.sh "$accepts" reduceMaxInt4 acceptDraftTokensByIdsWithPaths \
        > "$BUILD/trtllm_paths.h" || exit 1
    compile -use_fast_math -I"$BUILD" -c bench/peers_trtllm.cu -o "$BUILD/trtllm.o" || exit 1
    found+=(-DPEERS_TRTLLM) objects+=("$BUILD/trtllm.o") trees+=("paths 1 8" "paths 32 8")
    echo "# TensorRT-LLM $(version "$TRTLLM")" >> "$BUILD/head"
else
    echo "skipped TensorRT-LLM: TRTLLM=folder has no speculativeDecoding/common.cu"
fi
if [ ! -f "$VLLM/vllm/v1/sample/rejection_sampler.py" ]; then
    echo "skipped vLLM: VLLM=folder has no vllm/v1/sample/rejection_sampler.py"
elif ! "$PYTHON" -c "import triton" 2> /dev/null; then
    echo "skipped vLLM: $PYTHON has no triton"
else
    triton=$("$PYTHON" -W ignore bench/peers_vllm.py "$VLLM" "$BUILD/vllm_kernels.h" \
        "$toolkit/fatbinary") || exit 1
    compile -I"$BUILD" -c bench/peers_vllm.cu -o "$BUILD/vllm.o" || exit 1
    found+=(-DPEERS_VLLM) objects+=("$BUILD/vllm.o")
    echo "# vLLM $(version "$VLLM"), Triton $triton" >> "$BUILD/head"
fi
cub=$toolkit/../include/cccl/cub/version.cuh
echo "# CUB $(sed -n 's/#define CUB_VERSION \([0-9]*\).*/\1/p' "$cub" 2> /dev/null)" >> "$BUILD/head"

compile "${found[@]}" -c bench/peers.cu -o "$BUILD/peers.o" || exit 1
compile "$BUILD/peers.o" "${objects[@]}" -o "$BUILD/peers" || exit 1
# Checks are for our own kernels, in tests/; here they would only take time.
LD_LIBRARY_PATH=$libraries PTXRUN_OPTS=${PTXRUN_OPTS:-checks=0} PTXRUN_QUIET=1 \
    "$BUILD/peers" "$@" > "$BUILD/rows.csv" || exit 1
if [ ${#trees[@]} != 0 ]; then
    compile "${found[@]}" bench/peers_trees.cu "${objects[@]}" -o "$BUILD/trees" || exit 1
fi
for words in "${trees[@]}"; do
    # shellcheck disable=SC2086
    LD_LIBRARY_PATH=$libraries PTXRUN_OPTS=${PTXRUN_OPTS:-checks=0} PTXRUN_QUIET=1 \
        "$BUILD/trees" $words > "$BUILD/tree.csv" || exit 1
    grep -F -- "${1:-}" "$BUILD/tree.csv" >> "$BUILD/rows.csv"
done
cat "$BUILD/head" "$BUILD/rows.csv" > "$BUILD/peers.csv"

cat "$BUILD/head"
if [ -n "$timed" ]; then
    echo "us: p50 of a launch in a replayed graph, between two events, the same with a cold L2"
    grep -v '^#' "$BUILD/rows.csv"
    exit 0
fi
echo "insn, warp insn: PTX instructions of threads, of warps; bytes: that lanes ask for; ratio: ours"
echo "over the peer's; trips: longest chain of loads and atomics that wait for each other, ours and"
echo "theirs; launches: ours and theirs. All counted. More instructions in many warps can take less"
echo "time than few that wait for one another: see trips."
awk -F, '
    NR == 1 {
        for (i = 1; i <= NF; ++i) column[$i] = i
        printf "%-37s %-27s | %9s %5s | %9s %5s | %8s %5s | %7s | %s\n", "ours / peer, pair", "shape",
               "insn", "ratio", "warp insn", "ratio", "bytes", "ratio", "trips", "launches"
        next
    }
    {
        printf "%-37s %-27s | %9d %5.2f | %9d %5.2f | %8d %5.2f | %2d %4d | %d %d\n", $1, $2,
               $column["ours_thread_instructions"], $column["thread_ratio"],
               $column["ours_warp_instructions"], $column["warp_ratio"], $column["ours_bytes"],
               $column["bytes_ratio"], $column["ours_serial_trips"], $column["peer_serial_trips"],
               $column["ours_launches"], $column["peer_launches"]
    }' "$BUILD/rows.csv"
[ $# = 0 ] || exit 0
if [ -z "$update" ]; then
    echo "all: $BUILD/peers.csv; $out takes --update"
elif [ ${#objects[@]} = 4 ]; then
    cp "$BUILD/peers.csv" "$out"
    echo "all: $out"
else
    echo "$out stays: not every peer was here; these are in $BUILD/peers.csv"
fi
