#!/bin/bash
# failures.sh: what a failed check says. failures.c fails on purpose; its output is
# failures.expected (ACCEPT=1 writes it), and 90 checks that fail are 8 messages and a list.
# Ends with "N passed, N failed, N skipped".
cd "$(dirname "$0")/.." || exit 2
BUILD=${BUILD:-build}
mkdir -p "$BUILD/tests"
program=$BUILD/tests/failures
failed=0
fail() { echo "FAIL failures: $1"; failed=$((failed + 1)); }

"${CC:-gcc}" -O2 -std=c99 -Wall -Wextra -Wconversion -Wshadow -I. tests/failures.c -o "$program" ||
  { fail "does not build"; echo "0 passed, 1 failed, 0 skipped"; exit 1; }
"$program" rows others > "$program.out" && fail "exit status 0"
[ -z "${ACCEPT:-}" ] || cp "$program.out" tests/failures.expected
diff -u tests/failures.expected "$program.out" > "$program.diff" ||
  { cat "$program.diff"; fail "other messages"; }
lines=$("$program" many | wc -l)
[ "$lines" -eq $((2 * 8 + 32 + 1 + 1)) ] || fail "$lines lines of 90 checks"
# Without the source: where it was made, and how.
(cd "$BUILD/tests" && ./failures rows) | grep -q 'expected: t_out (made at tests/failures.c:' ||
  fail "no name where there is no source"
echo "$((4 - failed)) passed, $failed failed, 0 skipped"
[ $failed -eq 0 ]
