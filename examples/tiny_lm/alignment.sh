#!/bin/sh
# SPDX-License-Identifier: MIT-0
#
# alignment.sh - README.md's tables of what it costs that sequences accept different numbers of
# drafts, on the C backend. Shares of time are medians of RUNS (3) runs, tokens a second the best of
# them; the rest are counts, which are the same on every machine.
#
# usage: examples/tiny_lm/alignment.sh [program]   ($BUILD/tiny_lm, which it makes; BUILD is build)

cd "$(dirname "$0")/../.." || exit 2
program=${1:-${BUILD:-build}/tiny_lm}
runs=$(seq "${RUNS:-3}")
[ $# -gt 0 ] || make -s BUILD="${BUILD:-build}" "$program" || exit 2

# figures OPTIONS...: "grouping rate, share of time, KV rows moved, tokens a second"
figures() {
    for run in $runs; do
        "$program" --backend cpu "$@" 2>/dev/null || echo failed
    done | awk '
        /^failed/ { failed = 1 }
        /^grouping rate/ { group = substr($3, 1, 5) }
        /^alignment/ { share[++n] = $2; moved = $11 }
        /^tokens a second/ { if ($4 > best) best = $4 }
        END {
            if (failed || n == 0) exit 1
            for (i = 1; i <= n; i++)
                for (j = i + 1; j <= n; j++)
                    if (share[j] < share[i]) { t = share[i]; share[i] = share[j]; share[j] = t }
            print group ? group : "-", share[int((n + 1) / 2)], moved, best
        }'
}

echo "| batch | as published | KV rows moved | in place | KV rows moved |"
echo "|---|---|---|---|---|"
for batch in 1 2 4 8 16 32; do
    copy=$(figures --batch $batch --cache padded --realign copy) || exit 2
    in_place=$(figures --batch $batch --cache padded) || exit 2
    echo "$batch $copy $in_place" | awk '{
        print "| " $1 " | " $3 " % | " $4 " | " $7 " % | " $8 " |" }'
done
echo
echo "| window | batch | grouping rate | sorted by length | alignment | KV rows moved | tokens/s |"
echo "|---|---|---|---|---|---|---|"
for window in 8 32; do
    for batch in 2 4 8 16 32; do
        [ $batch -gt $window ] && continue
        random=$(figures --batch $batch --exspec $window) || exit 2
        sorted=$(runs=1 && figures --batch $batch --exspec $window --sort) || exit 2
        echo "$window $batch $random $sorted" | awk '{
            print "| " $1 " | " $2 " | " $3 " | " $7 " | " $4 " % | " $5 " | " $6 " |" }'
    done
done
