#!/bin/sh
# SPDX-License-Identifier: MIT-0
#
# lossy.sh - the table of lossy rules in this folder's README.md: tokens per target pass of a
# sequence, how many tokens are those of plain decoding, and what the target thinks of the text, by
# rule and by what it may relax. 32 prompts, 64 tokens each, batch 8, temperature 1; rules that
# sample with 4 seeds. Counts, so every machine prints the same.
#
# usage: examples/tiny_lm/lossy.sh [--update] [program]   ($BUILD/tiny_lm, which it makes)
#   --update   into bench/results/tiny_lm/lossy.txt, too

cd "$(dirname "$0")/../.." || exit 2
update=
[ "${1:-}" = --update ] && update=1 && shift
program=${1:-${BUILD:-build}/tiny_lm}
[ $# -gt 0 ] || make -s BUILD="${BUILD:-build}" "$program" >&2 || exit 2
result=bench/results/tiny_lm/lossy.txt

# row RULE [WHAT IT MAY RELAX]
row() {
    seeds="1 2 3 4"
    case $1 in greedy | typical | relaxed) seeds=1 ;; esac
    for seed in $seeds; do
        "$program" --backend cpu --batch 8 --seed $seed --likelihood --rule "$1" ${2:+--relax $2} \
            2>/dev/null || echo failed
    done | awk -v rule="$1" -v relax="${2:--}" '
        /^failed/ { failed = 1 }
        /^block efficiency/ { passes += 1 / $3; ++runs }
        /^agreement/ { agreement += $2; ++compared }
        /^identical/ { if ($5 == $7) agreement += 1; ++compared }
        /^log-likelihood/ { likelihood += $2 }
        END {
            if (failed || !runs) exit 1
            agreed = compared ? sprintf("%.3f", agreement / compared) : "-"
            printf "%-13s %-9s %5.2f %10s %10.3f\n", rule, relax, runs / passes, agreed,
                   likelihood / runs
        }' || { echo "lossy.sh: --rule $1 ${2:+--relax $2} failed" >&2; exit 2; }
}

table() {
    echo "# counted: tiny_lm's models, 32 prompts, 64 tokens each, batch 8, temperature 1; tokens per"
    echo "# target pass of a sequence, share of tokens that are plain decoding's, ln p a token by the"
    echo "# target at temperature 1, by --rule and --relax; examples/tiny_lm/lossy.sh"
    printf '%-13s %-9s %5s %10s %10s\n' rule relax pass agreement 'ln p'
    while read -r rule relax; do row "$rule" "$relax" || exit 2; done <<RULES
greedy
typical
typical 1,1.5
typical 1,1
typical 1,0.5
typical 0.3,0.09
relaxed
relaxed 2,0.1
relaxed 3,0.3
relaxed 10,0.5
coupled
typical-draw
typical-draw 1,0.1
typical-draw 1,0.3
typical-draw 1,1
token
bounded
bounded 1.2
bounded 1.5
bounded 2
bounded 4
threshold
threshold 0.5,1
threshold 1,0.7
threshold 0.3,0.5
RULES
}

lines=$(table) || exit 2
echo "$lines"
[ -z "$update" ] || echo "$lines" >$result
