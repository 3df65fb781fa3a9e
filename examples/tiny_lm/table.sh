#!/bin/sh
# SPDX-License-Identifier: MIT-0
#
# table.sh - README.md's tables of rules, temperatures and drafts: tokens per target pass of a
# sequence and tokens per step of a batch of 8. Counts, so every machine prints the same. Sampled
# rules are run with 8 seeds: with one, differences between rules would be noise.
#
# usage: examples/tiny_lm/table.sh [--csv] [program]   ($BUILD/tiny_lm, which it makes)
#   --csv   a line for each run; bench/results/tiny_lm/rules.csv is this, and bench/plot.py draws it

cd "$(dirname "$0")/../.." || exit 2
csv=
[ "${1:-}" = --csv ] && csv=1 && shift
program=${1:-${BUILD:-build}/tiny_lm}
[ $# -gt 0 ] || make -s BUILD="${BUILD:-build}" "$program" >&2 || exit 2

# run RULE TEMPERATURE GAMMA SEED OPTIONS...: a line of numbers
run() {
    line="$1,$2,$3,$4"
    gamma=$3 seed=$4
    shift 4
    "$program" --backend cpu --batch 8 --gamma "$gamma" --seed "$seed" "$@" 2>/dev/null |
        awk -v line="$line" '
        /^drafts  / { proposed = $2; accepted = $4 }
        /^acceptance rate/ { rate = $3 }
        /^block efficiency/ { efficiency = $3 }
        /^tokens per step/ { tokens = $4; steps = $8 }
        END {
            if (!efficiency || !tokens) exit 1
            printf "%s,%d,%d,%.3f,%.3f,%.2f,%d\n", line, proposed, accepted, rate, efficiency,
                   tokens, steps
        }' || { echo "table.sh: $line failed" >&2; exit 2; }
}

rows() {
    for gamma in 1 2 4 8; do run greedy 0 $gamma 1 --rule greedy || exit 2; done
    for temperature in 0.5 0.8 1.0; do
        for rule in token block coupled; do
            for gamma in 4 8; do
                for seed in 1 2 3 4 5 6 7 8; do
                    run $rule $temperature $gamma $seed --rule $rule --temperature $temperature ||
                        exit 2
                done
            done
        done
    done
}

if [ -n "$csv" ]; then
    echo "# counted: tiny_lm's models, 32 prompts, 64 tokens each, batch 8; table.sh --csv"
    echo "rule,temperature,gamma,seed,proposed,accepted,rate,efficiency,tokens_per_step,steps"
    rows
    exit
fi

# Means over seeds as tokens by passes over all of them.
rows | awk -F, '
    {
        name = $1 ($2 > 0 ? ", " $2 : "")
        if (!(name in seen)) names[++count] = name
        seen[name] = 1
        key = name SUBSEP $3
        passes[key] += 1 / $8
        steps[key] += 1 / $9
        ++runs[key]
    }
    function cell(name, gamma, key) {
        key = name SUBSEP gamma
        return sprintf("%.2f / %.1f", runs[key] / passes[key], runs[key] / steps[key])
    }
    END {
        print "| `--rule`, `--temperature` | `--gamma 4` | `--gamma 8` |"
        print "|---|---|---|"
        for (i = 1; i <= count; ++i)
            print "| " names[i] " | " cell(names[i], 4) " | " cell(names[i], 8) " |"
    }'
