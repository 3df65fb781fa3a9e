#!/bin/sh
# SPDX-License-Identifier: MIT-0
#
# speedup.sh - what speculation gains on this machine's C backend: plain time over speculative time
# as the program measures it, medians and extremes of RUNS (7) runs, by threads, width of vectors and
# batch. One thread counts its own time, two count the clock.
# A width that the machine lacks is as the next one below.
#
# usage: examples/tiny_lm/speedup.sh [program]   ($BUILD/tiny_lm, which it makes; BUILD is build)

cd "$(dirname "$0")/../.." || exit 2
program=${1:-${BUILD:-build}/tiny_lm}
[ $# -gt 0 ] || make -s BUILD="${BUILD:-build}" "$program" || exit 2
runs=$(seq "${RUNS:-7}")

echo "# examples/tiny_lm/speedup.sh: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)," \
    "${CC:-gcc} $(${CC:-gcc} -dumpfullversion), load $(cut -d ' ' -f 1 /proc/loadavg)"
echo "threads lanes batch gamma   median   least    most   plain s   speculative s (least of each)"
for threads in 1 2; do
    for lanes in 4 8 16; do
        for batch in 1 8; do
            for run in $runs; do
                TINY_LM_THREADS=$threads TINY_LM_LANES=$lanes "$program" --backend cpu --batch $batch \
                    --gamma 4 || echo failed
            done | awk -v threads=$threads -v lanes=$lanes -v batch=$batch '
                /^failed/ { failed = 1 }
                / measured on backend cpu: / {
                    sub(/^.*  /, ""); gain[++n] = $1 + 0
                    if (n == 1 || $7 + 0 < plain) plain = $7 + 0
                    if (n == 1 || $10 + 0 < steps) steps = $10 + 0
                }
                END {
                    if (failed || n == 0) exit 1
                    for (i = 1; i <= n; i++)
                        for (j = i + 1; j <= n; j++)
                            if (gain[j] < gain[i]) { t = gain[i]; gain[i] = gain[j]; gain[j] = t }
                    printf "%7d %5d %5d %5d %8.2f %7.2f %7.2f %9.3f %9.3f\n", threads, lanes,
                        batch, 4, gain[int((n + 1) / 2)], gain[1], gain[n], plain, steps
                }' || exit 1
        done
    done
done
