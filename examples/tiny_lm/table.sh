#!/bin/sh
# SPDX-License-Identifier: MIT-0
#
# table.sh - README.md's table of rules and temperatures: tokens per target pass of a sequence and
# tokens per step of a batch of 8, for gamma 4 and 8. Counts, so every machine prints the same. A
# sampled row is the mean over 8 seeds: with one, differences between rules would be noise.
#
# usage: examples/tiny_lm/table.sh [program]   ($BUILD/tiny_lm, which it makes; BUILD is build)

cd "$(dirname "$0")/../.." || exit 2
program=${1:-${BUILD:-build}/tiny_lm}
[ $# -gt 0 ] || make -s BUILD="${BUILD:-build}" "$program" || exit 2

# cell OPTIONS...: "a / b", both as tokens by passes over all seeds
cell() {
    for seed in $seeds; do
        "$program" --backend cpu --batch 8 --seed $seed "$@" 2>/dev/null || echo "failed"
    done | awk '
        /^block efficiency/ { passes += 1 / $3; runs++ }
        /^tokens per step/ { steps += 1 / $4 }
        /^failed/ { failed = 1 }
        END { if (failed || !runs) exit 1; printf "%.2f / %.1f", runs / passes, runs / steps }'
}

# row NAME OPTIONS...
row() {
    name=$1
    shift
    four=$(cell --gamma 4 "$@") && eight=$(cell --gamma 8 "$@") || exit 2
    echo "| $name | $four | $eight |"
}

echo "| \`--rule\`, \`--temperature\` | \`--gamma 4\` | \`--gamma 8\` |"
echo "|---|---|---|"
seeds=1
row "greedy" --rule greedy
seeds="1 2 3 4 5 6 7 8"
for temperature in 0.5 0.8 1.0; do
    for rule in token block coupled; do
        row "$rule, $temperature" --rule $rule --temperature $temperature
    done
done
