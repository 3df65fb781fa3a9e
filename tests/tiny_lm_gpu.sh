#!/bin/sh
# SPDX-License-Identifier: MIT-0
#
# tiny_lm_gpu.sh - examples/tiny_lm with the CUDA backend on tests/ptxrun: texts, drafts, what is told
# of tokens and the bits of KV caches are those of the C backend.
#
# usage: tests/tiny_lm_gpu.sh [--first] [build folder]     ($BUILD/tiny_lm_gpu-tests; BUILD is build)
# --first: of each kind of run the first.
# CC, NVCC choose compilers; PTXRUN_OUT is where tests/ptxrun was built.

cd "$(dirname "$0")/.." || exit 2
first=
[ "${1:-}" = --first ] && first=1 && shift
out=${1:-${BUILD:-build}/tiny_lm_gpu-tests}
. tests/tiny_lm_common.sh

if command -v "${NVCC:-nvcc}" >/dev/null; then
    ptxrun=${PTXRUN_OUT:-tests/ptxrun/build}
    [ -f "$ptxrun/libcudart.so.13" ] || make -s -C tests/ptxrun OUT="$(realpath -m "$ptxrun")"
    ptxrun=$(realpath "$ptxrun")
    if bash $here/build_gpu.sh "$out/tiny_lm_cuda" compute_90 -cudart shared -no-compress -lineinfo; then
        on_ptxrun() { LD_LIBRARY_PATH="$ptxrun" PTXRUN_EXIT=1 "$out/tiny_lm_cuda" "$@"; }
        few="--prompts $out/prompts-4 --tokens 8 --batch 3"
        runs few-cpu "$all4" "$out/tiny_lm" --backend cpu $few
        runs few-cuda-cpu "$all4" on_ptxrun --backend cpu $few && equals few-cuda-cpu few-cpu
        runs few-gpu "$all4" on_ptxrun --backend gpu $few && equals few-gpu few-cpu
        head -n 2 "$out/prompts-4" >"$out/prompts-2"
        few="--prompts $out/prompts-2 --tokens 5 --batch 2 --gamma 2"
        all2="identical to plain decoding: 2 of 2"
        runs hard-cpu "$all2" "$out/tiny_lm" --backend cpu $few
        PTXRUN_OPTS="seed=1 weak=1 split=20 approx=jitter"
        export PTXRUN_OPTS
        runs hard-gpu "$all2" on_ptxrun $few && equals hard-gpu hard-cpu
        printf 'And\nLet\n' >"$out/prompts-tiny"
        few="--prompts $out/prompts-tiny --tokens 5 --batch 2 --gamma 3"
        for rule in token block coupled; do
            drafter=model last=$counts
            [ $rule = coupled ] && drafter=ngram last=$all2
            how="--rule $rule --drafter $drafter"
            runs $rule-cpu "$last" "$out/tiny_lm" --backend cpu $few $how
            runs $rule-gpu "$last" on_ptxrun --backend gpu $few $how && equals $rule-gpu $rule-cpu
            [ -z "$first" ] || break
        done
        for rule in greedy token coupled; do
            last=$all2
            [ $rule = token ] && last=$counts
            runs budget-$rule-cpu "$last" "$out/tiny_lm" --backend cpu $few --rule $rule --budget 3
            runs budget-$rule-gpu "$last" on_ptxrun --backend gpu $few --rule $rule --budget 3
            equals budget-$rule-gpu budget-$rule-cpu
            same_drafts budget-$rule-gpu budget-$rule-cpu
            [ -z "$first" ] || break
        done
        printf 'And\nLet\nI\n' >"$out/prompts-tiny"
        all3="identical to plain decoding: 3 of 3"
        few="--prompts $out/prompts-tiny --tokens 4 --gamma 2 --vary-tokens"
        for how in "--cache paged --page-size 2 --continuous --batch 2" \
            "--cache padded --continuous --batch 2" "--cache padded --realign copy --batch 3" \
            "--cache gap --batch 3" "--exspec 3 --batch 2"; do
            case $how in *copy*) PTXRUN_OPTS= ;; esac # from here on without hard weather: it costs
            way=$(echo $how | tr -d ' ')
            runs "cpu$way" "$all3" "$out/tiny_lm" --backend cpu $few $how
            runs "gpu$way" "$all3" on_ptxrun --backend gpu $few $how
            equals "gpu$way" "cpu$way" && same_drafts "gpu$way" "cpu$way"
            [ -z "$first" ] || break
        done
        PTXRUN_OPTS=
        for how in "token --cache ragged" "block --cache paged --page-size 2" "greedy --cache paged" \
            "coupled --cache padded" "coupled --cache gap" "greedy --exspec 3 --batch 2"; do
            way=filtered-$(echo $how | tr -d ' ') last=$all3
            case $how in token* | block*) last=$counts ;; esac
            case $how in greedy*) ;; *) how="$how --temperature 2" ;; esac
            how="--rule $how $mask $cuts --filter-order min-p-first"
            runs $way-cpu "$last" "$out/tiny_lm" --backend cpu $few $how
            runs $way-gpu "$last" on_ptxrun --backend gpu $few $how
            equals $way-gpu $way-cpu && same_drafts $way-gpu $way-cpu
            [ -z "$first" ] || break
        done
        for how in "greedy --logprobs 3" "token --logprobs 0 --cache paged --page-size 2" \
            "coupled --logprobs 32 --cache padded --temperature 2 $mask $cuts"; do
            way=told-${how%% *} last=$all3
            [ $way = told-token ] && last=$counts
            runs $way-cpu "$last" "$out/tiny_lm" --backend cpu $few --rule $how
            runs $way-gpu "$last" on_ptxrun --backend gpu $few --rule $how
            equals $way-gpu $way-cpu
            [ -z "$first" ] || break
        done
        grown="--prompts $out/prompts-tiny --tokens 4 --vary-tokens"
        for how in "greedy --tree 2x2" "coupled --tree 3x2 --cache padded" \
            "one-coin --tree 2x2 --cache padded --realign copy" "recursive --tree 2x2" \
            "traversal-distinct --tree 2x2 --cache paged --page-size 2"; do
            way=tree-${how%% *} last=$counts
            case $how in greedy* | coupled*) last=$all3 ;; esac
            runs $way-cpu "$last" "$out/tiny_lm" --backend cpu $grown --rule $how
            runs $way-gpu "$last" on_ptxrun --backend gpu $grown --rule $how
            equals $way-gpu $way-cpu && same_drafts $way-gpu $way-cpu
            [ -z "$first" ] || break
        done
        cut -c1-1 $here/prompts.txt >"$out/prompts-letters"
        few="--prompts $out/prompts-letters --tokens 2 --gamma 1 --batch 32 --cache paged --page-size 2"
        how="--rule coupled --temperature 2 $mask $cuts"
        runs filtered-32-cpu "$all32" "$out/tiny_lm" --backend cpu $few $how
        runs filtered-32-gpu "$all32" on_ptxrun --backend gpu $few $how
        equals filtered-32-gpu filtered-32-cpu
        printf 'And\nLet\n' >"$out/prompts-tiny"
        for how in "--alpha 1" "--alpha 2" "--alpha 2 --top-k 8 $mask"; do
            way=$(echo $how | cut -c1-18 | tr -d ' ')
            few="--rule smc --prompts $out/prompts-tiny --tokens 6 --gamma 2 --particles 3 --page-size 2"
            few="$few $how --check --log-launches"
            runs smc-cpu$way "$free" "$out/tiny_lm" --backend cpu $few
            runs smc-gpu$way "$free" on_ptxrun --backend gpu $few
            if cmp -s "$out/smc-cpu$way" "$out/smc-gpu$way"; then pass; else
                fail "smc, $how: the backends differ"
            fi
            [ -z "$first" ] || break
        done
    else
        fail "the CUDA version does not compile"
    fi
else
    skip "the CUDA backend" "no ${NVCC:-nvcc}"
fi

echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
