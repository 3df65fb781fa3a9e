#!/bin/bash
# bench/peers_cycles.sh - tree kernels of other projects beside ours in one run of the simulator:
# cycles of kernels alone, of the second turn, when what fits is in the L2.
#
# Lines "CASE,SIDE,KERNEL,CYCLES"; results/gpgpusim/peers.csv has them. Folders as for peers.sh:
# FLASHINFER, SGLANG, TRTLLM; a peer that is not here: "skipped NAME".
#
#   GPGPUSIM=folder bench/peers_cycles.sh             all cases
#   GPGPUSIM=folder bench/peers_cycles.sh greedy      only those of that name
#   BUILD=build
set -u
cd "$(dirname "$0")/.." || exit 1
out=${BUILD:-build}/peers_cycles only=${1:-}
flags=(-I. -DBENCH_SIMULATED -use_fast_math -Xcompiler -w -w)
for family in GREEDY SAMPLE SHARDS PACK CACHE COLUMNS SCHEDULE PARTICLES STATS; do
    flags+=("-DSPECVERIFY_NO_$family") # nothing of them is launched, and all would be compiled
done
FLASHINFER=${FLASHINFER:-} SGLANG=${SGLANG:-} TRTLLM=${TRTLLM:-} GPGPUSIM=${GPGPUSIM:-}
[ -x "$GPGPUSIM/sim" ] || { echo "skipped peers_cycles: no simulator (GPGPUSIM=folder)"; exit 0; }
mkdir -p "$out"
out=$(cd "$out" && pwd)

names="specv_[a-z_]*_kernel|VerifyTreeGreedy|Tree[A-Za-z]*TargetOnly|acceptDraft[A-Za-z]*Paths"

# Prints a line for each kernel between "RESULT turn 1 SIDE" and the next.
case_of() {
    local name=$1 kernels=$2
    shift 2
    case $name in *"$only"*) ;; *) return ;; esac
    KIT_ONLY=$kernels "$GPGPUSIM/sim" "$out/trees" "$@" > "$out/$name.log" 2>&1 ||
        { echo "FAILED $name"; tail -n 3 "$out/$name.log"; exit 1; }
    awk -v name="$name" -v names="$names" '
        /^RESULT turn 1 / { side = $4 }
        side && match($0, /kernel=[^ ]*/) {
            kernel = substr($0, RSTART + 7, RLENGTH - 7)
            match($0, /cycles=[0-9]*/)
            cycles = substr($0, RSTART + 7, RLENGTH - 7)
            if (match(kernel, names))
                print name "," side "," substr(kernel, RSTART, RLENGTH) "," cycles
        }' "$out/$name.log"
}

speculative=$SGLANG/sgl-kernel/csrc/speculative
accepts=$TRTLLM/cpp/tensorrt_llm/kernels/speculativeDecoding/common.cu
if [ -f "$speculative/eagle_utils.cu" ] &&
    [ -f "$FLASHINFER/include/flashinfer/sampling.cuh" ]; then
    bench/peers_kernels.sh "$speculative/eagle_utils.cu" VerifyTreeGreedy \
        > "$out/sglang_greedy.h" || exit 1
    flags+=(-DPEERS_SGLANG -I"$out" -I"$FLASHINFER/include" -I"$speculative")
    sglang=1
else
    sglang= && echo "skipped SGLang: it needs SGLANG=folder and FLASHINFER=folder"
fi
if [ -f "$accepts" ]; then
    bench/peers_kernels.sh "$accepts" reduceMaxInt4 acceptDraftTokensByIdsWithPaths \
        > "$out/trtllm_paths.h" || exit 1
    flags+=(-DPEERS_TRTLLM -I"$out")
    trtllm=1
else
    trtllm= && echo "skipped TensorRT-LLM: TRTLLM=folder"
fi
[ -n "$sglang$trtllm" ] || exit 0
"$GPGPUSIM/build" bench/peers_trees.cu "$out/trees" "${flags[@]}" || exit 1
if [ -n "$sglang" ]; then
    case_of greedy-b1 "tree_ids VerifyTreeGreedy" greedy 1 8
    case_of greedy-b32 "tree_ids VerifyTreeGreedy" greedy 32 8
    case_of coin-b1 "specv_tree_coin TargetOnly" coin 1 8 32000
    case_of coin-b1-rejected "specv_tree_coin TargetOnly" coin 1 3 32000
    case_of coin-b4 "specv_tree_coin TargetOnly" coin 4 8 32000
fi
if [ -n "$trtllm" ]; then
    case_of paths-b1 "tree_ids acceptDraft" paths 1 8
    case_of paths-b32 "tree_ids acceptDraft" paths 32 8
fi
