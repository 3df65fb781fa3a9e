#!/bin/sh
# SPDX-License-Identifier: MIT-0
#
# trees.sh - the table of trees in this folder's README.md: tokens per target pass of a sequence, by
# rule and shape of the tree, beside chains. 32 prompts, 64 tokens each, batch 8, temperature 1; rules
# that sample with 4 seeds. Counts, so every machine prints the same.
#
# usage: examples/tiny_lm/trees.sh [--update] [program]   ($BUILD/tiny_lm, which it makes)
#   --update   into bench/results/tiny_lm/trees.txt, too

cd "$(dirname "$0")/../.." || exit 2
update=
[ "${1:-}" = --update ] && update=1 && shift
program=${1:-${BUILD:-build}/tiny_lm}
[ $# -gt 0 ] || make -s BUILD="${BUILD:-build}" "$program" >&2 || exit 2
result=bench/results/tiny_lm/trees.txt

# tokens RULE SHAPE
tokens() {
    seeds="1 2 3 4"
    [ "$1" = greedy ] && seeds=1
    for seed in $seeds; do
        "$program" --backend cpu --batch 8 --seed $seed --rule "$1" --tree "$2" 2>/dev/null ||
            echo failed
    done | awk '
        /^failed/ { failed = 1 }
        /^block efficiency/ { passes += 1 / $3; ++runs }
        END {
            if (failed || !runs) exit 1
            printf "%.2f", runs / passes
        }' || { echo "trees.sh: --rule $1 --tree $2 failed" >&2; exit 2; }
}

shapes="1x4 2x2 2x4 3x3 4x4 8x4 2x8 4x8"
table() {
    echo "# counted: tiny_lm's models, 32 prompts, 64 tokens each, batch 8, temperature 1; tokens per"
    echo "# target pass of a sequence, by --rule and --tree WIDTHxDEPTH; examples/tiny_lm/trees.sh"
    printf '%-19s' rule
    for shape in $shapes; do printf '%6s' $shape; done
    echo
    for rule in greedy coupled one-coin recursive recursive-distinct traversal traversal-distinct; do
        printf '%-19s' $rule
        for shape in $shapes; do
            value=$(tokens $rule $shape) || exit 2
            printf '%6s' "$value"
        done
        echo
    done
}

lines=$(table) || exit 2
echo "$lines"
[ -z "$update" ] || echo "$lines" >$result
