#!/bin/sh
# SPDX-License-Identifier: MIT-0
#
# budget.sh - README.md's table of budgets: --gamma 8 with a budget against the same number of drafts
# for every sequence, at the same number of verified drafts. All prompts, 64 tokens each, batch 8,
# --continuous; a sampled row is the mean over 4 seeds. Counts, so every machine prints the same.
#
# usage: examples/tiny_lm/budget.sh [program]   ($BUILD/tiny_lm, which it makes; BUILD is build)

cd "$(dirname "$0")/../.." || exit 2
program=${1:-${BUILD:-build}/tiny_lm}
[ $# -gt 0 ] || make -s BUILD="${BUILD:-build}" "$program" || exit 2

# figures OPTIONS...: "drafts verified a step, tokens per target pass, tokens a step", over all seeds
figures() {
    for seed in $seeds; do
        "$program" --backend cpu --batch 8 --continuous --seed $seed "$@" 2>/dev/null || echo failed
    done | awk '
        /^verified/ { verified += $2; runs++ }
        /^block efficiency/ { passes += 1 / $3 }
        /^tokens per step/ { steps += 1 / $4 }
        /^failed/ { failed = 1 }
        END {
            if (failed || !runs) exit 1
            printf "%.2f %.3f %.2f", verified / runs, runs / passes, runs / steps
        }'
}

# rows NAME OPTIONS...: the largest budget that verifies no more drafts a step than --gamma does
rows() {
    name=$1
    shift
    for gamma in 2 4 6; do
        fixed=$(figures --gamma $gamma "$@") || exit 2
        for budget in $(seq $((8 * gamma)) -1 1); do
            shared=$(figures --gamma 8 --budget $budget "$@") || exit 2
            [ "$(echo "$fixed $shared" | awk '{ print $4 <= $1 }')" = 1 ] && break
        done
        echo "$fixed $shared" | awk -v name="$name" -v gamma=$gamma -v budget=$budget '{
            printf "| %s | %d | %.1f | %.2f / %.1f | %d | %.1f | %.2f / %.1f |\n",
                name, gamma, $1, $2, $3, budget, $4, $5, $6 }'
    done
}

echo "| \`--rule\`, \`--temperature\` | \`--gamma\` | verified drafts a step | tokens |" \
    "\`--gamma 8 --budget\` | verified drafts a step | tokens |"
echo "|---|---|---|---|---|---|---|"
seeds=1
rows greedy --rule greedy
seeds="1 2 3 4"
for temperature in 0.5 1.0; do
    for rule in token block coupled; do
        rows "$rule, $temperature" --rule $rule --temperature $temperature
    done
done
