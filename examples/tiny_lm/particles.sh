#!/bin/sh
# SPDX-License-Identifier: MIT-0
#
# particles.sh - README.md's table of rules and particles: what the target says of the texts, and
# tokens per target pass of a sequence. The first 8 prompts, 40 tokens each, gamma 4; a sampled row
# is the mean over 4 seeds. Counts and sums of the same bits, so every machine prints the same.
#
# usage: examples/tiny_lm/particles.sh [program]   ($BUILD/tiny_lm, which it makes; BUILD is build)

cd "$(dirname "$0")/../.." || exit 2
program=${1:-${BUILD:-build}/tiny_lm}
[ $# -gt 0 ] || make -s BUILD="${BUILD:-build}" "$program" || exit 2
prompts=$(mktemp) || exit 2
trap 'rm -f "$prompts"' EXIT
head -n 8 examples/tiny_lm/prompts.txt >"$prompts"

# row NAME OPTIONS...
row() {
    name=$1
    shift
    for seed in $seeds; do
        "$program" --backend cpu --prompts "$prompts" --tokens 40 --gamma 4 --seed $seed \
            --likelihood "$@" 2>/dev/null || echo "failed"
    done | awk -v name="$name" '
        /^block efficiency/ { passes += 1 / $3 }
        /^tokens .* target pass of a particle/ { passes += 1 / $2 }
        /^log-likelihood/ { sum += $2; runs++ }
        /^resampling/ { resampled += $3; cycles += $5 }
        /^mean ESS/ { ess += $3 }
        /^failed/ { failed = 1 }
        END {
            if (failed || !runs) exit 1
            printf "| %s | %.2f | %.2f |", name, sum / runs, runs / passes
            if (cycles) printf " %.2f | %.1f |\n", resampled / cycles, ess / runs
            else print " | |"
        }' || exit 2
}

echo "| \`--rule\` | log-likelihood a token | tokens per target pass | cycles that resample | mean ESS |"
echo "|---|---|---|---|---|"
seeds=1
row greedy --rule greedy
seeds="1 2 3 4"
row token --rule token
row block --rule block
for alpha in 1 2; do
    for particles in 1 4 16 64; do
        row "smc, N $particles, alpha $alpha" --rule smc --particles $particles --alpha $alpha
    done
done
