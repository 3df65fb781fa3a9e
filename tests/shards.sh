#!/bin/bash
# shards.sh: many steps by ranks with parts of the vocabulary, each compared bit by bit with what one
# with all of it says, on the reference alone. Says how many; the last line is "N passed, N failed,
# N skipped".
#   STEPS=100000   how many, half of them from other seeds, in a second process
#   CC=gcc  BUILD=build
cd "$(dirname "$0")/.." || exit 2
CC=${CC:-gcc} BUILD=${BUILD:-build} STEPS=${STEPS:-100000}
mkdir -p "$BUILD/logs" || exit 2
program=$BUILD/shards_steps
"$CC" -O2 -std=c99 -x c -I. tests/shards.cu -o "$program" -lm || exit 1
half=$(((STEPS + 1) / 2))
"$program" steps --seed 1 --cases $half > "$BUILD/logs/steps1" 2>&1 &
first=$!
"$program" steps --seed 10000001 --cases $half > "$BUILD/logs/steps2" 2>&1 &
second=$!
status=0
wait $first || status=1
wait $second || status=1
grep -hv ' passed, ' "$BUILD/logs/steps1" "$BUILD/logs/steps2"
awk '/ passed, / { passed += $1; failed += $3; skipped += $5; ++count }
     END { printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped; exit count != 2 }' \
  "$BUILD/logs/steps1" "$BUILD/logs/steps2" || status=1
exit $status
